/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reading client: sub polls in bulk, pull takes one record a poll and times it, e2e waits at the tail and
 * takes the time from the stamp in each record (same host, CLOCK_MONOTONIC).
 *
 * Reading for a time, what was there when it began is read again and again. What can fail: the consumer (the
 * client ends with its code); records that are missing or not what was sent are errors of the run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

#define POLL_MAX 1024
#define POLL_MS 100
#define SILENCE_NS INT64_C(10000000000)   /* reading a number of records, none came */
#define TAIL_NS INT64_C(1000000000)       /* e2e: after the last was published */

struct consuming {
    struct fq_bench_worker *worker;
    flashq_client *client;
    flashq_consumer *consumer;
    struct fq_verifier *verifier;
    int64_t deadline_ns, last_record_ns;
    uint64_t read;           /* records of this phase */
    int64_t pass_read;       /* records since the last beginning */
    bool is_measured;
    bool is_trimmed;         /* the topic does not begin at 0 */
    bool is_halted;          /* nothing more will come */
};

/* ---- beginning ----------------------------------------------------------------------------- */

static int assign(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    bool is_one = bench->starts[0] == FLASHQ_OFFSET_START || bench->starts[0] == FLASHQ_OFFSET_END;
    int32_t count = is_one ? 1 : (int32_t)bench->partitions;
    int result = 0;
    for (int32_t i = 0; i < count && result == 0; i++) {
        result = flashq_consumer_assign(c->consumer, bench->topic, is_one ? -1 : i, bench->starts[i],
                                        bench->cli->timeout_ms, worker->errtext, FQ_ERRTEXT_BYTES);
    }
    return result;
}

static int open_all(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    struct fq_cli *cli = bench->cli;
    int result = flashq_client_open(cli->config, &c->client, worker->errtext, FQ_ERRTEXT_BYTES);
    if (result == 0) {
        result = flashq_consumer_open(c->client, &c->consumer, worker->errtext, FQ_ERRTEXT_BYTES);
    }
    return result == 0 ? assign(c) : result;
}

/* Back to where reading began. */
static int begin_again(struct consuming *c)
{
    struct fq_bench *bench = c->worker->bench;
    if (c->verifier) {
        fq_verifier_finish(c->verifier, true);
    }
    c->pass_read = 0;
    for (int32_t i = 0; i < (int32_t)bench->partitions; i++) {
        int result = flashq_seek_offset(c->consumer, bench->topic, i, bench->starts[i],
                                        bench->cli->timeout_ms);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* ---- records ------------------------------------------------------------------------------- */

static void fault(struct consuming *c, const flashq_message *message, const char *what)
{
    struct fq_bench_worker *worker = c->worker;
    worker->errors++;
    (void)snprintf(worker->errtext, sizeof worker->errtext, "%s[%" PRId32 "] offset %" PRId64 ": %s",
                   message->topic, message->partition, message->offset, what);
}

/* e2e: what was published before the measurement, or by somebody else, is not looked at. */
static void take_time(struct consuming *c, const flashq_message *message)
{
    struct fq_bench *bench = c->worker->bench;
    struct fq_bench_stamp stamp;
    if (fq_bench_read_stamp(message->value, message->value_length, &stamp) &&
        stamp.run == bench->run && stamp.sent_ns >= atomic_load(&bench->measured_ns)) {
        int64_t now_ns = fq_now_ns();
        fq_bench_record(c->worker, now_ns, now_ns - stamp.sent_ns);
    }
}

static void verify(struct consuming *c, const flashq_message *message)
{
    if (!c->verifier) { /* with the first record it is known where the log begins */
        struct fq_bench *bench = c->worker->bench;
        bool is_own = bench->kind == FQ_BENCH_E2E;
        bool is_from_start = is_own || (bench->is_from_start && !c->is_trimmed);
        c->verifier = fq_verifier_create((size_t)bench->size, (uint32_t)bench->partitions,
                                         is_own ? bench->run : bench->verify_run, is_from_start);
    }
    const char *what = fq_verifier_take(c->verifier, (uint32_t)message->partition, message->value,
                                        message->value_length);
    if (what) {
        fault(c, message, what);
    }
}

static void take_message(struct consuming *c, const flashq_message *message)
{
    struct fq_bench_worker *worker = c->worker;
    if (message->status != 0) {
        fault(c, message, flashq_strerror(message->status));
        c->is_halted = message->status != FLASHQ_ERR_CORRUPT && worker->bench->partitions == 1;
        return;
    }
    if (c->pass_read == 0 && worker->bench->kind != FQ_BENCH_E2E) {
        c->is_trimmed = message->offset > 0;
    }
    c->read++;
    c->pass_read++;
    if (c->is_measured) {
        worker->bytes += message->value_length;
    }
    if (c->is_measured && worker->bench->kind == FQ_BENCH_E2E) {
        take_time(c, message);
    }
    if (worker->bench->is_verify) {
        verify(c, message);
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Whether nothing is to be waited for any more. */
static bool is_over(const struct consuming *c, int64_t quota, int64_t now_ns)
{
    struct fq_bench *bench = c->worker->bench;
    if (bench->kind == FQ_BENCH_E2E && c->is_measured) {
        return atomic_load(&bench->producing) == 0 && now_ns - c->last_record_ns > TAIL_NS;
    }
    return now_ns >= c->deadline_ns || (quota != INT64_MAX && now_ns - c->last_record_ns > SILENCE_NS);
}

/* One poll; how many records, or an error. */
static int poll_once(struct consuming *c, int64_t quota)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    const flashq_message *messages[POLL_MAX];
    int64_t left = quota - (int64_t)c->read;
    size_t max = bench->kind == FQ_BENCH_PULL ? 1 : left < POLL_MAX ? (size_t)left : POLL_MAX;
    int64_t before_ns = bench->kind == FQ_BENCH_E2E ? 0 : fq_now_ns();
    int count = flashq_consumer_poll(c->consumer, messages, max, POLL_MS);
    if (count <= 0) {
        return count;
    }
    int64_t now_ns = fq_now_ns();
    for (int i = 0; i < count; i++) {
        take_message(c, messages[i]);
    }
    c->last_record_ns = now_ns;
    if (c->is_measured && bench->kind != FQ_BENCH_E2E) {
        fq_bench_record(worker, now_ns, now_ns - before_ns);
    }
    return count;
}

static void consume(struct consuming *c, int64_t quota, int64_t duration_ms)
{
    struct fq_bench_worker *worker = c->worker;
    struct fq_bench *bench = worker->bench;
    c->read = 0;
    c->last_record_ns = fq_now_ns();
    c->deadline_ns = duration_ms > 0 ? c->last_record_ns + duration_ms * 1000000 : INT64_MAX;
    while ((int64_t)c->read < quota && worker->code == 0 && !c->is_halted && !fq_interrupted()) {
        int count = poll_once(c, quota);
        if (count < 0) {
            worker->code = count;
            return;
        }
        atomic_store_explicit(&worker->done, c->read, memory_order_relaxed);
        int64_t now_ns = count > 0 ? c->last_record_ns : fq_now_ns();
        if ((count == 0 || now_ns >= c->deadline_ns) && is_over(c, quota, now_ns)) {
            return;
        }
        if (!bench->is_tail && c->pass_read >= bench->available && (int64_t)c->read < quota) {
            worker->code = begin_again(c);
        }
    }
}

/* e2e: reads what the warm-up publishes until that is over. */
static void follow_warm_up(struct consuming *c)
{
    struct fq_bench *bench = c->worker->bench;
    while (c->worker->code == 0 && !fq_interrupted() &&
           (int64_t)c->read < atomic_load(&bench->warm_sent)) {
        int count = poll_once(c, INT64_MAX);
        c->worker->code = count < 0 ? count : 0;
        if (count == 0 && fq_now_ns() - c->last_record_ns > SILENCE_NS &&
            atomic_load(&bench->warm_sent) != INT64_MAX) {
            return;
        }
    }
}

static void warm_up(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    c->last_record_ns = fq_now_ns();
    if (worker->bench->kind == FQ_BENCH_E2E) {
        follow_warm_up(c);
    } else if (worker->warmup_quota > 0) {
        consume(c, worker->warmup_quota, worker->bench->warmup_ms);
    }
}

/* With a number of records asked for, all of them come or it is an error. */
static void check_number(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    if (worker->quota != INT64_MAX && worker->records < (uint64_t)worker->quota && !fq_interrupted() &&
        c->deadline_ns == INT64_MAX && worker->code == 0) {
        worker->errors += (uint64_t)worker->quota - worker->records;
        if (worker->errtext[0] == '\0') {
            (void)snprintf(worker->errtext, sizeof worker->errtext, "records are missing%s",
                           c->is_trimmed ? " (older ones were trimmed)" : "");
        }
    }
}

static void finish_verifying(struct consuming *c)
{
    struct fq_bench_worker *worker = c->worker;
    if (c->verifier) {
        bool was_all = worker->bench->partitions == 1 || c->pass_read >= worker->bench->available;
        fq_verifier_finish(c->verifier, was_all);
        worker->verified = *fq_verifier_counts(c->verifier);
        worker->errors += worker->verified.missing; /* the others were counted as they came */
        if (worker->verified.missing > 0) {
            (void)snprintf(worker->errtext, sizeof worker->errtext, "%" PRIu64 " records are missing",
                           worker->verified.missing);
        }
    }
    fq_verifier_destroy(c->verifier);
}

void *fq_bench_consume(void *argument)
{
    struct fq_bench_worker *worker = argument;
    struct fq_bench *bench = worker->bench;
    struct consuming c = {.worker = worker};
    fq_histogram_clear(&worker->latency);
    worker->code = open_all(&c);
    fq_bench_meet(bench);
    warm_up(&c);
    fq_bench_meet(bench);
    fq_bench_meet(bench);
    worker->began_ns = fq_now_ns();
    if (worker->series) {
        fq_series_begin(worker->series, worker->began_ns);
    }
    if (worker->code == 0) {
        c.is_measured = true;
        consume(&c, worker->quota, bench->kind == FQ_BENCH_E2E ? 0 : bench->duration_ms);
        worker->records = c.read;
        check_number(&c);
    }
    worker->ended_ns = worker->records > 0 ? c.last_record_ns : fq_now_ns();
    finish_verifying(&c);
    (void)flashq_consumer_close(c.consumer, bench->cli->timeout_ms);
    (void)flashq_client_close(c.client, bench->cli->timeout_ms);
    return NULL;
}
