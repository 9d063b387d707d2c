/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench pub|sub|pull|e2e: the options. The topic is in bench_topic.c, the run in bench_run.c, what the
 * clients do in bench_pub.c and bench_sub.c, what is printed in bench_report.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

#define MSGS_DEFAULT 100000
#define E2E_RATE_DEFAULT 1000.0
#define E2E_MSGS_DEFAULT 5000
#define SERIES_MS_DEFAULT 100
#define SIZE_MAX_BYTES ((uint64_t)64 << 20)

enum {
    BENCH_MSGS = 1,
    BENCH_DURATION,
    BENCH_WARMUP,
    BENCH_SIZE,
    BENCH_CLIENTS,
    BENCH_RATE,
    BENCH_SYNC,
    BENCH_TRANSPORT,
    BENCH_MODE,
    BENCH_OFFSET,
    BENCH_PREFETCH,
    BENCH_VERIFY,
    BENCH_HDR,
    BENCH_SERIES,
    BENCH_SERIES_INTERVAL,
    BENCH_JSON,
    BENCH_PARTITIONS,
    BENCH_NO_LATENCY
};

static const struct fq_opt options[] = {
    {BENCH_MSGS, 'n', "msgs", "N", "how many records, such as 1M (sub, pull: for each client) [100000]"},
    {BENCH_DURATION, 0, "duration", "T", "or for how long, such as 10s"},
    {BENCH_WARMUP, 0, "warmup", "N|T", "as many records, or for as long, before the measurement"},
    {BENCH_SIZE, 0, "size", "S", "bytes of a value, such as 1KiB [1024]"},
    {BENCH_CLIENTS, 0, "clients", "N", "threads with a connection each [1]"},
    {BENCH_RATE, 0, "rate", "R", "records a second in all, or max"},
    {BENCH_SYNC, 0, "sync", NULL, "pub: one at a time, each from publishing to acknowledgement"},
    {BENCH_TRANSPORT, 0, "transport", "NAME", "shm or tcp"},
    {BENCH_MODE, 0, "mode", "MODE", "sub, e2e: pull or push"},
    {BENCH_OFFSET, 'o', "offset", "OFFSET", "sub, pull: start, end, N, -N [start]"},
    {BENCH_PREFETCH, 0, "prefetch", "on|off", "pull: off brings every batch when it is asked for"},
    {BENCH_VERIFY, 0, "verify", NULL, "check every byte and the sequence of every sender"},
    {BENCH_NO_LATENCY, 0, "no-latency", NULL, "pub: do not ask for a report of every record"},
    {BENCH_HDR, 0, "hdr", "FILE", "also as an HdrHistogram percentile distribution, in us"},
    {BENCH_SERIES, 0, "series", "FILE", "also the latency over time, as CSV"},
    {BENCH_SERIES_INTERVAL, 0, "series-interval", "T", "of one line of it [100ms]"},
    {BENCH_PARTITIONS, 'p', "partitions", "N", "of the topic, if it is created [1]"},
    {BENCH_JSON, 0, "json", NULL, "as -O json"},
    {0, 0, NULL, NULL, NULL},
};

/* A number, also with k, M or G, is records; with a unit of time, as long. */
static int take_warmup(struct fq_bench *bench, const char *value, struct fq_fault *fault)
{
    bench->warmup_ms = bench->warmup_msgs = 0;
    const char *unit = value + strspn(value, "0123456789.");
    return unit[0] == '\0' || (strchr("kKMG", unit[0]) && unit[1] == '\0')
               ? fq_parse_count(value, "warmup", 0, INT64_MAX / 2, &bench->warmup_msgs, fault)
               : fq_parse_duration_ms(value, &bench->warmup_ms, fault);
}

static int take_word(const char *what, const char *value, const char *one, const char *other,
                     struct fq_fault *fault)
{
    return strcmp(value, one) == 0 || strcmp(value, other) == 0
               ? 0
               : fq_fault_set(fault, "%s \"%.32s\": expected %s or %s", what, value, one, other);
}

static int take_number(struct fq_bench *bench, int id, const char *value, struct fq_fault *fault)
{
    int code;
    switch (id) {
    case BENCH_MSGS: return fq_parse_count(value, "msgs", 1, INT64_MAX / 2, &bench->msgs, fault);
    case BENCH_DURATION: return fq_parse_duration_ms(value, &bench->duration_ms, fault);
    case BENCH_WARMUP: return take_warmup(bench, value, fault);
    case BENCH_SIZE: return fq_parse_size(value, &bench->size, fault);
    case BENCH_CLIENTS: return fq_parse_whole(value, "clients", 1, 256, &bench->clients, fault);
    case BENCH_PARTITIONS:
        return fq_parse_whole(value, "partitions", 1, 10000, &bench->partitions, fault);
    case BENCH_RATE: return fq_parse_rate(value, &bench->rate, fault);
    case BENCH_OFFSET: return fq_parse_offset(value, bench->cli->now_ms, &bench->from, fault);
    case BENCH_SERIES_INTERVAL:
        code = fq_parse_duration_ms(value, &bench->series_ms, fault);
        return code == 0 && bench->series_ms <= 0
                   ? fq_fault_set(fault, "series-interval \"%.32s\": at least 1ms", value)
                   : code;
    default: return FLASHQ_ERR_INVALID;
    }
}

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
    case BENCH_SYNC: bench->is_sync = true; return 0;
    case BENCH_VERIFY: bench->is_verify = true; return 0;
    case BENCH_NO_LATENCY: bench->has_latency = false; return 0;
    case BENCH_JSON: bench->cli->output = FQ_OUTPUT_JSON; return 0;
    case BENCH_HDR: bench->hdr_path = value; return 0;
    case BENCH_SERIES: bench->series_path = value; return 0;
    case BENCH_TRANSPORT:
        bench->transport = value;
        if (strcmp(value, "rdma") == 0) {
            return fq_fault_set(fault, "transport \"rdma\": expected shm or tcp (rdma is not in this release)");
        }
        return take_word("transport", value, "shm", "tcp", fault);
    case BENCH_MODE: bench->mode = value; return take_word("mode", value, "pull", "push", fault);
    case BENCH_PREFETCH:
        bench->is_single = strcmp(value, "off") == 0;
        return take_word("prefetch", value, "on", "off", fault);
    default: return take_number(bench, id, value, fault);
    }
}

/* ---- what fits together -------------------------------------------------------------------- */

static bool is_reading(const struct fq_bench *bench)
{
    return bench->kind == FQ_BENCH_SUB || bench->kind == FQ_BENCH_PULL;
}

static int check(struct fq_bench *bench)
{
    struct fq_cli *cli = bench->cli;
    bool needs_stamp = bench->is_verify || bench->kind == FQ_BENCH_E2E;
    if (!bench->topic) {
        return fq_cli_usage(cli, "which topic?");
    }
    if (bench->is_sync && bench->kind != FQ_BENCH_PUB) {
        return fq_cli_usage(cli, "--sync is for bench pub");
    }
    if (bench->mode && bench->kind != FQ_BENCH_SUB && bench->kind != FQ_BENCH_E2E) {
        return fq_cli_usage(cli, "--mode is for bench sub and e2e");
    }
    if (bench->is_single && bench->kind != FQ_BENCH_PULL) {
        return fq_cli_usage(cli, "--prefetch is for bench pull");
    }
    if (bench->from.from.kind != FQ_OFFSET_NONE && !is_reading(bench)) {
        return fq_cli_usage(cli, "-o is for bench sub and pull");
    }
    if (bench->size > SIZE_MAX_BYTES) {
        return fq_cli_usage(cli, "--size: a record has 64 MiB at most");
    }
    if (needs_stamp && bench->size < sizeof(struct fq_bench_stamp)) {
        return fq_cli_usage(cli, "--size: %s needs %zu bytes for its stamp",
                            bench->is_verify ? "--verify" : "e2e", sizeof(struct fq_bench_stamp));
    }
    return 0;
}

static void set_defaults(struct fq_bench *bench)
{
    uint32_t now = (uint32_t)fq_now_ns();
    bench->run = (now ^ (uint32_t)fq_wall_now_ms() << 16) | 1; /* not 0 */
    if (bench->kind == FQ_BENCH_E2E && bench->rate <= 0) {
        bench->rate = E2E_RATE_DEFAULT;
    }
    if (bench->msgs == 0 && bench->duration_ms == 0 && !is_reading(bench)) {
        bench->msgs = bench->kind == FQ_BENCH_E2E ? E2E_MSGS_DEFAULT : MSGS_DEFAULT;
    }
}

/* The client's keys that the options stand for. */
static int set_keys(struct fq_bench *bench)
{
    struct fq_cli *cli = bench->cli;
    bool wants_reports = bench->kind == FQ_BENCH_PUB && bench->has_latency && !bench->is_sync;
    int code = fq_cli_set(cli, "reports", wants_reports ? "all" : "none");
    if (code == 0 && bench->transport) {
        code = fq_cli_set(cli, "transport", bench->transport);
    }
    if (code == 0 && bench->mode) {
        code = fq_cli_set(cli, "fetch.mode", bench->mode);
    }
    if (code == 0 && bench->is_single) {
        code = fq_cli_set(cli, "fetch.prefetch", "false");
    }
    return code;
}

static int run_bench(struct fq_cli *cli, struct fq_opt_parser *parser, enum fq_bench_kind kind)
{
    struct fq_bench bench = {.cli = cli,
                             .kind = kind,
                             .size = 1024,
                             .clients = 1,
                             .partitions = 1,
                             .series_ms = SERIES_MS_DEFAULT,
                             .has_latency = true};
    int code = fq_cli_parse(cli, parser, take, &bench);
    if (code >= 0) {
        return code;
    }
    code = check(&bench);
    if (code == 0) {
        set_defaults(&bench);
        code = set_keys(&bench);
    }
    code = code == 0 ? fq_cli_connect(cli) : code;
    code = code == 0 ? fq_bench_prepare_topic(&bench) : code;
    if (code == 0 && is_reading(&bench)) {
        code = fq_bench_fill_topic(&bench);
    }
    code = code == 0 ? fq_bench_measure(&bench) : code;
    free(bench.starts);
    return code;
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
