/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publishing client. Flat out: send without waiting, take the reports now and then; a record's latency runs
 * from its send call (with --rate: from the moment it was meant to be sent, so that a stall shows in
 * every record it delayed) to the report that it is acknowledged. --sync: one at a time.
 *
 * The warm-up is the same with nothing counted; it ends with everything acknowledged.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

#define REPORTS_MAX 256
#define POLL_EVERY 64
#define SLEEP_LEAST_NS INT64_C(150000)
#define SLEEP_MARGIN_NS INT64_C(60000) /* what the kernel may be late by */
#define GIVE_UP_NS INT64_C(30000000000) /* without a single acknowledgement */

struct publishing {
    struct fq_bench_worker *worker;
    flashq_client *client;
    flashq_producer *producer;
    uint8_t *value;
    enum fq_bench_body body;
    uint64_t sequence;     /* of the next record */
    double interval_ns;    /* between two records of this client; 0: none */
    int64_t phase_ns;      /* the warm-up or the measurement began */
    int64_t deadline_ns;
    bool is_measured;
};

static int open_all(struct publishing *p)
{
    struct fq_bench_worker *worker = p->worker;
    struct fq_bench *bench = worker->bench;
    struct fq_cli *cli = bench->cli;
    int result = flashq_client_open(cli->config, &p->client, worker->errtext, FQ_ERRTEXT_BYTES);
    if (result == 0) {
        result = flashq_producer_open(p->client, bench->topic, cli->timeout_ms, &p->producer,
                                      worker->errtext, FQ_ERRTEXT_BYTES);
    }
    p->value = fq_alloc(bench->size);
    fq_bench_fill(p->value, bench->size, worker->index);
    p->body = bench->is_verify ? FQ_BENCH_BODY_RECORD : FQ_BENCH_BODY_SENDER;
    /* of e2e one client publishes: the rate is all its own */
    double sharing = bench->kind == FQ_BENCH_E2E ? 1 : (double)bench->clients;
    p->interval_ns = bench->rate > 0 ? 1e9 * sharing / bench->rate : 0;
    return result;
}

static void take_reports(struct publishing *p, int timeout_ms)
{
    flashq_report reports[REPORTS_MAX];
    struct fq_bench_worker *worker = p->worker;
    int count;
    do {
        for (size_t i = 0; i < REPORTS_MAX; i++) {
            reports[i].struct_bytes = sizeof reports[i];
        }
        count = flashq_producer_poll(p->producer, reports, REPORTS_MAX, timeout_ms);
        int64_t now_ns = count > 0 ? fq_now_ns() : 0;
        for (int i = 0; i < count; i++) {
            int64_t sent_ns = (int64_t)(intptr_t)reports[i].user;
            if (reports[i].status == 0 && p->is_measured && worker->bench->has_latency) {
                fq_bench_record(worker, now_ns, now_ns - sent_ns);
            }
        }
        timeout_ms = 0;
    } while (count == REPORTS_MAX);
}

/* Sleeps until the next record is due or there are reports; nearer than that it looks again and again, since
 * a sleep may end late. A publisher of e2e must not keep the processor that its receiver needs. */
static void sleep_or_take(struct publishing *p, int64_t left_ns)
{
    struct pollfd news = {.fd = flashq_client_fd(p->client), .events = POLLIN};
    if (left_ns > SLEEP_LEAST_NS) {
        int64_t span_ns = left_ns - SLEEP_MARGIN_NS;
        struct timespec wait = {span_ns / 1000000000, span_ns % 1000000000};
        (void)ppoll(&news, 1, &wait, NULL);
    }
    take_reports(p, 0);
}

/* Waits for the moment of the phase's next record; returns when it is meant to be sent. */
static int64_t wait_turn(struct publishing *p, int64_t index)
{
    struct fq_bench_worker *worker = p->worker;
    int64_t due_ns = p->phase_ns + (int64_t)((double)index * p->interval_ns);
    for (;;) {
        int64_t left_ns = due_ns - fq_now_ns();
        if (left_ns <= 0 || fq_interrupted()) {
            return due_ns;
        }
        if (worker->bench->is_sync) {
            (void)fq_sleep_until_ns(due_ns);
        } else {
            sleep_or_take(p, left_ns);
        }
    }
}

static void write_value(struct publishing *p, int64_t sent_ns)
{
    const struct fq_bench *bench = p->worker->bench;
    struct fq_bench_stamp stamp = {.run = bench->run,
                                   .client = p->worker->index,
                                   .body = (uint32_t)p->body,
                                   .sequence = p->sequence,
                                   .sent_ns = sent_ns};
    if (bench->size < sizeof stamp) {
        return;
    }
    fq_bench_seal(&stamp);
    memcpy(p->value, &stamp, sizeof stamp);
    if (p->body == FQ_BENCH_BODY_RECORD) {
        fq_bench_fill_record(p->value, bench->size, stamp.client, stamp.sequence);
    }
}

static int send_one(struct publishing *p, int64_t index)
{
    struct fq_bench_worker *worker = p->worker;
    const struct fq_bench *bench = worker->bench;
    int64_t sent_ns = p->interval_ns > 0                      ? wait_turn(p, index)
                      : bench->is_sync || bench->has_latency  ? fq_now_ns()
                                                              : p->phase_ns;
    write_value(p, sent_ns);
    const flashq_record record = {.struct_bytes = sizeof record,
                                  .partition = FLASHQ_PARTITION_ANY,
                                  .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                                  .value = p->value,
                                  .value_length = bench->size,
                                  .user = (void *)(intptr_t)sent_ns};
    if (!bench->is_sync) {
        int result = flashq_send(p->producer, &record, bench->cli->timeout_ms);
        p->sequence += result == 0;
        return result;
    }
    p->sequence++;
    int result = flashq_send_sync(p->producer, &record, bench->cli->timeout_ms, NULL);
    if (result == 0 && p->is_measured) {
        int64_t now_ns = fq_now_ns();
        fq_bench_record(worker, now_ns, now_ns - sent_ns);
    }
    return result;
}

static void send_all(struct publishing *p, int64_t quota)
{
    struct fq_bench_worker *worker = p->worker;
    for (int64_t i = 0; i < quota && !fq_interrupted(); i++) {
        int result = send_one(p, i);
        if (result != 0) {
            worker->errors++;
            (void)snprintf(worker->errtext, sizeof worker->errtext, "%s", flashq_strerror(result));
            if (result != FLASHQ_ERR_AGAIN) {
                worker->code = result;
                return;
            }
        }
        if (i % POLL_EVERY == POLL_EVERY - 1 || p->interval_ns > 0) {
            atomic_store_explicit(&worker->done, (uint64_t)i, memory_order_relaxed);
            if (!worker->bench->is_sync && i % POLL_EVERY == POLL_EVERY - 1) {
                take_reports(p, 0);
            }
            if (fq_now_ns() >= p->deadline_ns) {
                return;
            }
        }
    }
}

/* Waits as long as acknowledgements keep coming, taking reports as they do. */
static void drain(struct publishing *p)
{
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    int64_t last_progress_ns = fq_now_ns();
    uint64_t last_done = 0;
    int result;
    do {
        result = flashq_flush(p->producer, 2);
        take_reports(p, 0);
        (void)flashq_producer_get_stats(p->producer, &stats);
        if (stats.records_acked + stats.records_failed != last_done) {
            last_done = stats.records_acked + stats.records_failed;
            last_progress_ns = fq_now_ns();
        }
    } while (result == FLASHQ_ERR_TIMED_OUT && fq_now_ns() - last_progress_ns < GIVE_UP_NS &&
             !fq_interrupted());
}

static void begin_phase(struct publishing *p, int64_t duration_ms)
{
    p->phase_ns = fq_now_ns();
    p->deadline_ns = duration_ms > 0 ? p->phase_ns + duration_ms * 1000000 : INT64_MAX;
}

static void warm_up(struct publishing *p)
{
    struct fq_bench_worker *worker = p->worker;
    if (worker->code == 0 && worker->warmup_quota > 0) {
        begin_phase(p, worker->bench->warmup_ms);
        send_all(p, worker->warmup_quota);
        drain(p);
    }
    atomic_store(&worker->bench->warm_sent, (int64_t)p->sequence);
}

/* What was measured is what the counters say at the end less what they said when it began. */
static void take_figures(struct publishing *p, const flashq_producer_stats *before)
{
    struct fq_bench_worker *worker = p->worker;
    flashq_producer_stats *stats = &worker->stats;
    *stats = (flashq_producer_stats){.struct_bytes = sizeof *stats};
    (void)flashq_producer_get_stats(p->producer, stats);
    stats->records_acked -= before->records_acked;
    stats->records_failed -= before->records_failed;
    stats->batches_sent -= before->batches_sent;
    stats->batch_bytes -= before->batch_bytes;
    worker->records = stats->records_acked;
    worker->errors += stats->records_failed + before->records_failed;
    worker->bytes = stats->records_acked * worker->bench->size;
}

static void measure(struct publishing *p)
{
    struct fq_bench_worker *worker = p->worker;
    flashq_producer_stats before = {.struct_bytes = sizeof before};
    (void)flashq_producer_get_stats(p->producer, &before);
    p->is_measured = true;
    send_all(p, worker->quota);
    drain(p);
    worker->ended_ns = fq_now_ns();
    take_figures(p, &before);
}

void *fq_bench_publish(void *argument)
{
    struct fq_bench_worker *worker = argument;
    struct fq_bench *bench = worker->bench;
    struct publishing p = {.worker = worker};
    int64_t undelivered = 0;
    fq_histogram_clear(&worker->latency);
    worker->code = open_all(&p);
    fq_bench_meet(bench);
    warm_up(&p);
    fq_bench_meet(bench);
    fq_bench_meet(bench);
    begin_phase(&p, bench->duration_ms);
    worker->began_ns = worker->ended_ns = p.phase_ns;
    atomic_store(&bench->measured_ns, p.phase_ns);
    if (worker->series) {
        fq_series_begin(worker->series, p.phase_ns);
    }
    if (worker->code == 0) {
        measure(&p);
    }
    if (p.producer) {
        (void)flashq_producer_close(p.producer, bench->cli->timeout_ms, &undelivered);
        worker->errors += (uint64_t)undelivered;
    }
    (void)flashq_client_close(p.client, bench->cli->timeout_ms);
    (void)atomic_fetch_sub(&bench->producing, 1);
    free(p.value);
    return NULL;
}
