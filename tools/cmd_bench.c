/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench pub|sub|pull|e2e: options, the topic, the clients' threads, the sum. What the clients do
 * is in bench_pub.c and bench_sub.c, what is printed in bench_report.c.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench.h"

#define MSGS_DEFAULT 100000
#define E2E_RATE_DEFAULT 1000.0
#define E2E_MSGS_DEFAULT 5000
#define WATCH_NS 200000000

enum {
    BENCH_MSGS = 1,
    BENCH_DURATION,
    BENCH_SIZE,
    BENCH_CLIENTS,
    BENCH_RATE,
    BENCH_SYNC,
    BENCH_TRANSPORT,
    BENCH_MODE,
    BENCH_VERIFY,
    BENCH_JSON,
    BENCH_PARTITIONS,
    BENCH_NO_LATENCY
};

static const struct fq_opt options[] = {
    {BENCH_MSGS, 0, "msgs", "N", "how many records (sub, pull: for each client) [100000]"},
    {BENCH_DURATION, 0, "duration", "T", "or for how long, such as 10s"},
    {BENCH_SIZE, 0, "size", "S", "bytes of a value, such as 1KiB [1024]"},
    {BENCH_CLIENTS, 0, "clients", "N", "threads with a connection each [1]"},
    {BENCH_RATE, 0, "rate", "R", "records a second in all, or max"},
    {BENCH_SYNC, 0, "sync", NULL, "pub: one at a time, each from publishing to acknowledgement"},
    {BENCH_TRANSPORT, 0, "transport", "NAME", "shm or tcp"},
    {BENCH_MODE, 0, "mode", "MODE", "pull"},
    {BENCH_VERIFY, 0, "verify", NULL, "sub, pull, e2e: check every byte and the order"},
    {BENCH_NO_LATENCY, 0, "no-latency", NULL, "pub: do not ask for a report of every record"},
    {BENCH_PARTITIONS, 'p', "partitions", "N", "of the topic, if it is created [1]"},
    {BENCH_JSON, 0, "json", NULL, "as -O json"},
    {0, 0, NULL, NULL, NULL},
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct fq_bench *bench = args;
    switch (id) {
    case FQ_OPT_ARGUMENT:
        if (bench->topic) {
            return fq_fault_set(fault, "unexpected \"%.64s\"", value);
        }
        bench->topic = value;
        return 0;
    case BENCH_MSGS: return fq_parse_whole(value, "msgs", 1, INT64_MAX, &bench->msgs, fault);
    case BENCH_DURATION: return fq_parse_duration_ms(value, &bench->duration_ms, fault);
    case BENCH_SIZE: return fq_parse_size(value, &bench->size, fault);
    case BENCH_CLIENTS: return fq_parse_whole(value, "clients", 1, 256, &bench->clients, fault);
    case BENCH_PARTITIONS:
        return fq_parse_whole(value, "partitions", 1, 10000, &bench->partitions, fault);
    case BENCH_RATE: return fq_parse_rate(value, &bench->rate, fault);
    case BENCH_SYNC: bench->is_sync = true; return 0;
    case BENCH_VERIFY: bench->is_verify = true; return 0;
    case BENCH_NO_LATENCY: bench->has_latency = false; return 0;
    case BENCH_JSON: bench->cli->output = FQ_OUTPUT_JSON; return 0;
    case BENCH_TRANSPORT:
        bench->transport = value;
        return strcmp(value, "shm") == 0 || strcmp(value, "tcp") == 0
                   ? 0
                   : fq_fault_set(fault, "transport \"%.32s\": expected shm or tcp (rdma is not in "
                                         "this release)",
                                  value);
    case BENCH_MODE:
        return strcmp(value, "pull") == 0
                   ? 0
                   : fq_fault_set(fault, "mode \"%.32s\": expected pull (push is not in this "
                                         "release)",
                                  value);
    default: return FLASHQ_ERR_INVALID;
    }
}

/* ---- the topic ----------------------------------------------------------------------------- */

/* Creates it if it is not there; notes its partitions and what is there to read. */
static int prepare_topic(struct fq_bench *bench)
{
    struct fq_cli *cli = bench->cli;
    flashq_topic_info info = {.struct_bytes = sizeof info};
    flashq_partition_info *partitions = NULL;
    size_t count = 0;
    cli->errtext[0] = '\0';
    int result =
        flashq_topic_create(cli->client, bench->topic, (int32_t)bench->partitions, 0, NULL, 0,
                            cli->timeout_ms, cli->errtext, sizeof cli->errtext);
    if (result == 0 || result == FLASHQ_ERR_EXISTS) {
        cli->errtext[0] = '\0';
        result = flashq_topic_describe(cli->client, bench->topic, cli->timeout_ms, &info,
                                       &partitions, &count, cli->errtext, sizeof cli->errtext);
    }
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "%s", bench->topic);
    }
    bench->partitions = (int64_t)count;
    bench->pinned_end = 0;
    for (size_t i = 0; i < count; i++) {
        bench->pinned_end += partitions[i].end_offset - partitions[i].start_offset;
    }
    flashq_free(partitions);
    return 0;
}

/* ---- clients ------------------------------------------------------------------------------- */

static struct fq_bench_worker *workers_create(struct fq_bench *bench, int64_t count)
{
    struct fq_bench_worker *workers = fq_alloc((size_t)count * sizeof *workers);
    bool is_shared = bench->kind == FQ_BENCH_PUB; /* the records are divided among them */
    for (int64_t i = 0; i < count; i++) {
        workers[i].bench = bench;
        workers[i].index = (unsigned)i;
        workers[i].quota = bench->msgs == 0 ? INT64_MAX
                           : is_shared      ? bench->msgs / count + (i < bench->msgs % count)
                                            : bench->msgs;
    }
    return workers;
}

/* Shows the progress until the threads have done what they were asked, then joins them. */
static void watch_and_join(struct fq_bench *bench, struct fq_bench_worker *workers, int64_t count)
{
    bool is_terminal = isatty(STDERR_FILENO) != 0;
    double wanted = (double)bench->msgs * (bench->kind == FQ_BENCH_PUB ? 1 : (double)bench->clients);
    int64_t began_ns = fq_now_ns();
    for (int64_t i = 0; i < count; i++) {
        while (is_terminal) {
            struct timespec until;
            (void)clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += WATCH_NS;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            if (pthread_timedjoin_np(workers[i].thread, NULL, &until) == 0) {
                break;
            }
            uint64_t done = 0;
            for (int64_t w = 0; w < count; w++) {
                done += atomic_load_explicit(&workers[w].done, memory_order_relaxed);
            }
            double seconds = (double)(fq_now_ns() - began_ns) / 1e9;
            double percent = wanted > 0 ? 100 * (double)done / wanted
                                        : 1e5 * seconds / (double)bench->duration_ms;
            int bars = percent < 0 ? 0 : percent > 100 ? 40 : (int)(percent * 0.4);
            (void)fprintf(stderr, "\r[%.*s%*s] %.0f %%  %.0f msgs/s ", bars,
                          "########################################", 40 - bars, "", percent,
                          (double)done / seconds);
        }
        if (!is_terminal) {
            (void)pthread_join(workers[i].thread, NULL);
        }
    }
    if (is_terminal) {
        (void)fputs("\r\033[K", stderr);
    }
}

/* Runs them all; 0 or an exit code, having complained. Producers are workers[0..publishing). */
static int run_workers(struct fq_bench *bench, struct fq_bench_worker *workers, int64_t count,
                       int64_t publishing)
{
    int64_t started = 0;
    (void)pthread_barrier_init(&bench->start, NULL, (unsigned)count);
    atomic_store(&bench->producing, publishing);
    for (; started < count; started++) {
        void *(*body)(void *) = started < publishing ? fq_bench_publish : fq_bench_consume;
        if (pthread_create(&workers[started].thread, NULL, body, &workers[started]) != 0) {
            fq_cli_warn("cannot start thread %" PRId64, started + 1);
            exit(FQ_EXIT_FAILED); /* the others wait at the barrier for ever */
        }
    }
    watch_and_join(bench, workers, count);
    (void)pthread_barrier_destroy(&bench->start);
    for (int64_t i = 0; i < count; i++) {
        if (workers[i].code != 0) {
            return fq_cli_fail(bench->cli, workers[i].code, workers[i].errtext, "client %" PRId64,
                               i + 1);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (workers[i].errors > 0) {
            fq_cli_warn("client %" PRId64 ": %" PRIu64 " errors: %s", i + 1, workers[i].errors,
                        workers[i].errtext);
        }
    }
    return 0;
}

static void sum_up(struct fq_bench_worker *workers, int64_t from, int64_t to,
                   struct fq_bench_result *r)
{
    int64_t began_ns = INT64_MAX, ended_ns = INT64_MIN;
    fq_histogram_clear(&r->latency);
    r->client_min = INFINITY;
    for (int64_t i = from; i < to; i++) {
        const struct fq_bench_worker *w = &workers[i];
        double rate = (double)w->records / ((double)(w->ended_ns - w->began_ns) / 1e9);
        began_ns = w->began_ns < began_ns ? w->began_ns : began_ns;
        ended_ns = w->ended_ns > ended_ns ? w->ended_ns : ended_ns;
        r->records += w->records;
        r->errors += w->errors;
        r->bytes += w->bytes;
        r->client_min = rate < r->client_min ? rate : r->client_min;
        r->client_max = rate > r->client_max ? rate : r->client_max;
        fq_histogram_add(&r->latency, &w->latency);
    }
    r->seconds = (double)(ended_ns - began_ns) / 1e9;
}

static double cpu_percent(int64_t before_us, int64_t after_us, double seconds)
{
    return before_us < 0 || after_us < before_us || seconds <= 0
               ? -1
               : (double)(after_us - before_us) / 1e4 / seconds;
}

/* ---- running ------------------------------------------------------------------------------- */

static int measure(struct fq_bench *bench)
{
    bool is_e2e = bench->kind == FQ_BENCH_E2E;
    int64_t publishing = bench->kind == FQ_BENCH_PUB ? bench->clients : is_e2e ? 1 : 0;
    int64_t count = is_e2e ? bench->clients + 1 : bench->clients;
    struct fq_bench_worker *workers = workers_create(bench, count);
    struct fq_bench_result *result = fq_alloc(sizeof *result);
    int64_t clients = bench->clients;
    result->memcpy_gb_per_s = fq_bench_memcpy_rate((size_t)bench->size, true);
    int64_t broker_before = fq_bench_broker_cpu_us(bench->cli), before = fq_bench_cpu_us();
    int64_t began_ns = fq_now_ns();
    bench->clients = is_e2e ? 1 : clients; /* one publishes: the rate is all its own */
    int code = run_workers(bench, workers, count, publishing);
    double seconds = (double)(fq_now_ns() - began_ns) / 1e9;
    bench->clients = clients;
    result->client_cpu = cpu_percent(before, fq_bench_cpu_us(), seconds);
    result->broker_cpu =
        cpu_percent(broker_before, fq_bench_broker_cpu_us(bench->cli), seconds);
    if (code == 0) {
        sum_up(workers, is_e2e ? 1 : 0, count, result);
        for (int64_t i = 0; i < publishing; i++) {
            result->batches += workers[i].stats.batches_sent;
            result->batch_bytes += workers[i].stats.batch_bytes;
            result->errors += is_e2e ? workers[i].errors : 0;
        }
        fq_bench_print(bench, result);
        code = result->errors > 0 || fq_interrupted() ? FQ_EXIT_FAILED : FQ_EXIT_OK;
    }
    free(result);
    free(workers);
    return code;
}

/* sub and pull need something to read: publishes what is missing, unmeasured. */
static int fill_topic(struct fq_bench *bench)
{
    int64_t wanted = bench->msgs > 0 ? bench->msgs : MSGS_DEFAULT;
    if (bench->pinned_end >= wanted) {
        bench->msgs = bench->msgs > 0 ? bench->msgs
                      : bench->duration_ms > 0 ? bench->pinned_end : wanted;
        return 0;
    }
    struct fq_bench filler = *bench;
    filler.kind = FQ_BENCH_PUB;
    filler.msgs = wanted - bench->pinned_end;
    filler.clients = 1;
    filler.duration_ms = 0;
    filler.rate = 0;
    filler.is_sync = filler.has_latency = false;
    fq_cli_warn("%s has %" PRId64 " records: publishing %" PRId64 " more first", bench->topic,
                bench->pinned_end, filler.msgs);
    struct fq_bench_worker *worker = workers_create(&filler, 1);
    int code = run_workers(&filler, worker, 1, 1);
    if (code == 0 && worker->errors > 0) {
        code = FQ_EXIT_FAILED;
    }
    bench->msgs = wanted;
    free(worker);
    code = code == 0 ? prepare_topic(bench) : code;
    if (code == 0 && bench->pinned_end < wanted) {
        fq_cli_warn("%s keeps %" PRId64 " of %" PRId64 " records: its retention.bytes removes the rest",
                    bench->topic, bench->pinned_end, wanted);
        code = FQ_EXIT_FAILED;
    }
    return code;
}

static int check(struct fq_bench *bench)
{
    struct fq_cli *cli = bench->cli;
    bool is_reading = bench->kind == FQ_BENCH_SUB || bench->kind == FQ_BENCH_PULL;
    if (!bench->topic) {
        return fq_cli_usage(cli, "which topic?");
    }
    if (bench->is_sync && bench->kind != FQ_BENCH_PUB) {
        return fq_cli_usage(cli, "--sync is for bench pub");
    }
    if (bench->size > (uint64_t)64 << 20) {
        return fq_cli_usage(cli, "--size: a record has 64 MiB at most");
    }
    if (bench->kind == FQ_BENCH_E2E && bench->size < sizeof(struct fq_bench_stamp)) {
        return fq_cli_usage(cli, "--size: e2e needs %zu bytes for its stamp",
                            sizeof(struct fq_bench_stamp));
    }
    if (bench->kind == FQ_BENCH_E2E && bench->rate <= 0) {
        bench->rate = E2E_RATE_DEFAULT;
    }
    if (bench->msgs == 0 && bench->duration_ms == 0 && !is_reading) {
        bench->msgs = bench->kind == FQ_BENCH_E2E ? E2E_MSGS_DEFAULT : MSGS_DEFAULT;
    }
    int code = fq_cli_set(cli, "reports",
                          bench->has_latency && !bench->is_sync && !is_reading ? "all" : "none");
    return code == 0 && bench->transport ? fq_cli_set(cli, "transport", bench->transport) : code;
}

static int run_bench(struct fq_cli *cli, struct fq_opt_parser *parser, enum fq_bench_kind kind)
{
    struct fq_bench bench = {.cli = cli,
                             .kind = kind,
                             .size = 1024,
                             .clients = 1,
                             .partitions = 1,
                             .has_latency = true};
    int code = fq_cli_parse(cli, parser, take, &bench);
    if (code >= 0) {
        return code;
    }
    code = check(&bench);
    code = code == 0 ? fq_cli_connect(cli) : code;
    code = code == 0 ? prepare_topic(&bench) : code;
    if (code == 0 && (kind == FQ_BENCH_SUB || kind == FQ_BENCH_PULL)) {
        code = fill_topic(&bench);
    }
    return code == 0 ? measure(&bench) : code;
}

static int run_pub(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_bench(cli, parser, FQ_BENCH_PUB);
}

static int run_sub(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_bench(cli, parser, FQ_BENCH_SUB);
}

static int run_pull(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_bench(cli, parser, FQ_BENCH_PULL);
}

static int run_e2e(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_bench(cli, parser, FQ_BENCH_E2E);
}

#define NOTES \
    "The topic is created if it is not there, and kept. Latencies are from the send call (with --rate: " \
    "from\nthe intended moment of sending); \"batches\" come from the client's counters.\n"

const struct fq_command fq_cmd_bench_pub = {
    .name = "bench pub", .arguments = "TOPIC", .summary = "measure publishing", .notes = NOTES,
    .options = options, .run = run_pub};
const struct fq_command fq_cmd_bench_sub = {
    .name = "bench sub", .arguments = "TOPIC", .summary = "measure reading in bulk",
    .notes = NOTES, .options = options, .run = run_sub};
const struct fq_command fq_cmd_bench_pull = {
    .name = "bench pull", .arguments = "TOPIC", .summary = "measure reading one record at a time",
    .notes = NOTES, .options = options, .run = run_pull};
const struct fq_command fq_cmd_bench_e2e = {
    .name = "bench e2e", .arguments = "TOPIC",
    .summary = "measure from publishing to a waiting reader", .notes = NOTES, .options = options,
    .run = run_e2e};
