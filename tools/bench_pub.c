/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publishing client. Flat out: send without waiting, take the reports now and then; a record's latency runs
 * from its send call (with --rate: from the moment it was meant to be sent, so that a stall shows in
 * every record it delayed) to the report that it is acknowledged. --sync: one at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

#define REPORTS_MAX 256
#define POLL_EVERY 64

struct publishing {
    struct fq_bench_worker *worker;
    flashq_client *client;
    flashq_producer *producer;
    uint8_t *value;
    double interval_ns; /* between two records of this client; 0: none */
    int64_t deadline_ns;
};

void fq_bench_fill(uint8_t *value, size_t size, unsigned client)
{
    uint32_t state = client * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        value[i] = (uint8_t)(state >> 24);
    }
}

bool fq_bench_is_whole(const void *value, size_t length, size_t size)
{
    struct fq_bench_stamp stamp;
    if (!value || length != size) {
        return false;
    }
    if (size < sizeof stamp) {
        return true;
    }
    memcpy(&stamp, value, sizeof stamp);
    uint32_t state = stamp.client * 2654435761u + 1;
    const uint8_t *bytes = value;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        if (i >= sizeof stamp && bytes[i] != (uint8_t)(state >> 24)) {
            return false;
        }
    }
    return stamp.magic == FQ_BENCH_MAGIC;
}

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
    p->interval_ns = bench->rate > 0 ? 1e9 * (double)bench->clients / bench->rate : 0;
    return result;
}

static void take_reports(struct publishing *p, int timeout_ms)
{
    flashq_report reports[REPORTS_MAX];
    int count;
    do {
        for (size_t i = 0; i < REPORTS_MAX; i++) {
            reports[i].struct_bytes = sizeof reports[i];
        }
        count = flashq_producer_poll(p->producer, reports, REPORTS_MAX, timeout_ms);
        int64_t now_ns = count > 0 ? fq_now_ns() : 0;
        for (int i = 0; i < count; i++) {
            int64_t sent_ns = (int64_t)(intptr_t)reports[i].user;
            if (reports[i].status == 0 && p->worker->bench->has_latency) {
                fq_histogram_record(&p->worker->latency, (uint64_t)(now_ns - sent_ns));
            }
        }
        timeout_ms = 0;
    } while (count == REPORTS_MAX);
}

/* Waits for the moment of the next record; returns when it is meant to be sent. */
static int64_t wait_turn(struct publishing *p, int64_t sequence)
{
    struct fq_bench_worker *worker = p->worker;
    int64_t due_ns = worker->began_ns + (int64_t)((double)sequence * p->interval_ns);
    for (;;) {
        int64_t left_ns = due_ns - fq_now_ns();
        if (left_ns <= 0 || fq_interrupted()) {
            return due_ns;
        }
        if (worker->bench->is_sync) {
            (void)fq_sleep_until_ns(due_ns);
        } else {
            take_reports(p, left_ns > 2000000 ? (int)(left_ns / 1000000) - 1 : 0);
        }
    }
}

static int send_one(struct publishing *p, int64_t sequence)
{
    struct fq_bench_worker *worker = p->worker;
    const struct fq_bench *bench = worker->bench;
    int64_t sent_ns = p->interval_ns > 0           ? wait_turn(p, sequence)
                      : bench->is_sync || bench->has_latency ? fq_now_ns()
                                                             : worker->began_ns;
    const struct fq_bench_stamp stamp = {FQ_BENCH_MAGIC, worker->index, (uint64_t)sequence, sent_ns};
    if (bench->size >= sizeof stamp) {
        memcpy(p->value, &stamp, sizeof stamp);
    }
    const flashq_record record = {.struct_bytes = sizeof record,
                                  .partition = FLASHQ_PARTITION_ANY,
                                  .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                                  .value = p->value,
                                  .value_length = bench->size,
                                  .user = (void *)(intptr_t)sent_ns};
    if (!bench->is_sync) {
        return flashq_send(p->producer, &record, bench->cli->timeout_ms);
    }
    int result = flashq_send_sync(p->producer, &record, bench->cli->timeout_ms, NULL);
    if (result == 0) {
        fq_histogram_record(&worker->latency, (uint64_t)(fq_now_ns() - sent_ns));
    }
    return result;
}

static void send_all(struct publishing *p)
{
    struct fq_bench_worker *worker = p->worker;
    for (int64_t i = 0; i < worker->quota && !fq_interrupted(); i++) {
        int result = send_one(p, i);
        if (result != 0) {
            worker->errors++;
            (void)snprintf(worker->errtext, sizeof worker->errtext, "%s", flashq_strerror(result));
            if (result != FLASHQ_ERR_AGAIN) {
                worker->code = result;
                return;
            }
        }
        if (i % POLL_EVERY == POLL_EVERY - 1) {
            atomic_store_explicit(&worker->done, (uint64_t)i, memory_order_relaxed);
            if (!worker->bench->is_sync) {
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
    struct fq_bench_worker *worker = p->worker;
    flashq_producer_stats *stats = &worker->stats;
    int64_t last_progress_ns = fq_now_ns();
    uint64_t last_done = 0;
    *stats = (flashq_producer_stats){.struct_bytes = sizeof *stats};
    int result;
    do {
        result = flashq_flush(p->producer, 2);
        take_reports(p, 0);
        (void)flashq_producer_get_stats(p->producer, stats);
        if (stats->records_acked + stats->records_failed != last_done) {
            last_done = stats->records_acked + stats->records_failed;
            last_progress_ns = fq_now_ns();
        }
    } while (result == FLASHQ_ERR_TIMED_OUT && fq_now_ns() - last_progress_ns < 30000000000 &&
             !fq_interrupted());
    worker->ended_ns = fq_now_ns();
    (void)flashq_producer_get_stats(p->producer, stats);
    worker->records = stats->records_acked;
    worker->errors += stats->records_failed;
    worker->bytes = stats->records_acked * worker->bench->size;
}

void *fq_bench_publish(void *argument)
{
    struct fq_bench_worker *worker = argument;
    struct fq_bench *bench = worker->bench;
    struct publishing p = {.worker = worker};
    int64_t undelivered = 0;
    fq_histogram_clear(&worker->latency);
    worker->code = open_all(&p);
    (void)pthread_barrier_wait(&bench->start);
    worker->began_ns = fq_now_ns();
    p.deadline_ns = bench->duration_ms > 0 ? worker->began_ns + bench->duration_ms * 1000000
                                           : INT64_MAX;
    if (worker->code == 0) {
        send_all(&p);
        drain(&p);
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
