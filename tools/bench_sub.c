/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reading client: sub polls in bulk, pull takes one record a poll and times it, e2e waits at the tail and
 * takes the time from the stamp in each record (same host, CLOCK_MONOTONIC).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

#define POLL_MAX 1024
#define POLL_MS 100
#define CLIENTS_MAX 1024

struct consuming {
    struct fq_bench_worker *worker;
    flashq_client *client;
    flashq_consumer *consumer;
    int64_t deadline_ns, last_record_ns;
    uint64_t *next_sequence; /* per client, one partition only */
    bool is_trimmed;         /* the topic does not begin at 0: any sequence may be the first */
    bool seen[CLIENTS_MAX];
};

static int open_all(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    struct fq_cli *cli = bench->cli;
    int64_t from = bench->kind == FQ_BENCH_E2E ? FLASHQ_OFFSET_END : FLASHQ_OFFSET_START;
    int result = flashq_client_open(cli->config, &c->client, worker->errtext, FQ_ERRTEXT_BYTES);
    if (result == 0) {
        result = flashq_consumer_open(c->client, &c->consumer, worker->errtext, FQ_ERRTEXT_BYTES);
    }
    if (result == 0) {
        result = flashq_consumer_assign(c->consumer, bench->topic, -1, from, cli->timeout_ms,
                                        worker->errtext, FQ_ERRTEXT_BYTES);
    }
    c->next_sequence = fq_alloc(CLIENTS_MAX * sizeof *c->next_sequence);
    return result;
}

static void fault(struct consuming *c, const flashq_message *message, const char *what)
{
    struct fq_bench_worker *worker = c->worker;
    worker->errors++;
    (void)snprintf(worker->errtext, sizeof worker->errtext, "%s[%" PRId32 "] offset %" PRId64 ": %s",
                   message->topic, message->partition, message->offset, what);
}

static void verify(struct consuming *c, const flashq_message *message)
{
    struct fq_bench_stamp stamp;
    size_t size = (size_t)c->worker->bench->size;
    if (!fq_bench_is_whole(message->value, message->value_length, size)) {
        fault(c, message, "not what the bench publishes (or of another --size)");
    } else if (size >= sizeof stamp && c->worker->bench->partitions == 1) {
        memcpy(&stamp, message->value, sizeof stamp);
        uint64_t *next = &c->next_sequence[stamp.client % CLIENTS_MAX];
        bool is_first = c->is_trimmed && !c->seen[stamp.client % CLIENTS_MAX];
        c->seen[stamp.client % CLIENTS_MAX] = true;
        /* a new run begins at 0 */
        if (stamp.sequence != *next && stamp.sequence != 0 && !is_first) {
            fault(c, message, "a record is missing or out of order");
        }
        *next = stamp.sequence + 1;
    }
}

static void take_message(struct consuming *c, const flashq_message *message)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench_stamp stamp;
    if (message->status != 0) {
        fault(c, message, flashq_strerror(message->status));
        return;
    }
    if (worker->records == 0 && worker->bench->kind != FQ_BENCH_E2E) {
        c->is_trimmed = message->offset > 0;
    }
    worker->records++;
    worker->bytes += message->value_length;
    if (worker->bench->kind == FQ_BENCH_E2E && message->value_length >= sizeof stamp) {
        memcpy(&stamp, message->value, sizeof stamp);
        if (stamp.magic == FQ_BENCH_MAGIC) {
            fq_histogram_record(&worker->latency, (uint64_t)(fq_now_ns() - stamp.sent_ns));
        }
    }
    if (worker->bench->is_verify) {
        verify(c, message);
    }
}

/* Whether there is something to wait for. */
static bool is_over(const struct consuming *c, int64_t now_ns)
{
    const struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    if (bench->kind == FQ_BENCH_E2E) {
        return atomic_load(&bench->producing) == 0 && now_ns - c->last_record_ns > 1000000000;
    }
    return now_ns >= c->deadline_ns || now_ns - c->last_record_ns > 10000000000;
}

static void consume_all(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    const flashq_message *messages[POLL_MAX];
    size_t max = worker->bench->kind == FQ_BENCH_PULL ? 1 : POLL_MAX;
    while (worker->records < (uint64_t)worker->quota && !fq_interrupted()) {
        int64_t before_ns = fq_now_ns();
        int count = flashq_consumer_poll(c->consumer, messages, max, POLL_MS);
        int64_t now_ns = fq_now_ns();
        if (count < 0) {
            worker->code = count;
            return;
        }
        for (int i = 0; i < count && worker->records < (uint64_t)worker->quota; i++) {
            take_message(c, messages[i]);
        }
        if (count > 0 && worker->bench->kind != FQ_BENCH_E2E) {
            fq_histogram_record(&worker->latency, (uint64_t)(now_ns - before_ns));
        }
        if (count > 0) {
            c->last_record_ns = now_ns;
            atomic_store_explicit(&worker->done, worker->records, memory_order_relaxed);
        }
        if ((count == 0 || now_ns >= c->deadline_ns) && is_over(c, now_ns)) {
            break;
        }
    }
    if (worker->quota != INT64_MAX && worker->records < (uint64_t)worker->quota &&
        !fq_interrupted() && c->deadline_ns == INT64_MAX) {
        worker->errors += (uint64_t)worker->quota - worker->records;
        (void)snprintf(worker->errtext, sizeof worker->errtext,
                       "records are missing%s", c->is_trimmed ? " (older ones were trimmed)" : "");
    }
}

void *fq_bench_consume(void *argument)
{
    struct fq_bench_worker *worker = argument;
    struct fq_bench *bench = worker->bench;
    struct consuming c = {.worker = worker};
    fq_histogram_clear(&worker->latency);
    worker->code = open_all(&c);
    (void)pthread_barrier_wait(&bench->start);
    worker->began_ns = c.last_record_ns = fq_now_ns();
    c.deadline_ns = bench->duration_ms > 0 && bench->kind != FQ_BENCH_E2E
                        ? worker->began_ns + bench->duration_ms * 1000000
                        : INT64_MAX;
    if (worker->code == 0) {
        consume_all(&c);
    }
    worker->ended_ns = worker->records > 0 ? c.last_record_ns : fq_now_ns();
    (void)flashq_consumer_close(c.consumer, bench->cli->timeout_ms);
    (void)flashq_client_close(c.client, bench->cli->timeout_ms);
    free(c.next_sequence);
    return NULL;
}
