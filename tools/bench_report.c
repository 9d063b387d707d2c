/* SPDX-License-Identifier: Apache-2.0 */
/* What a bench prints, for people and as JSON. Fields of the document are only ever added. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "tools/bench.h"

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
#define FLASHQ_VERSION_TEXT VERSION_TEXT(FLASHQ_VERSION_MAJOR, FLASHQ_VERSION_MINOR, FLASHQ_VERSION_PATCH)

static const char *const kinds[] = {"pub", "sub", "pull", "e2e"};

json_t *fq_json_real(double value)
{
    return isfinite(value) && value >= 0 ? json_real(value) : json_null();
}

/* ---- printing ------------------------------------------------------------------------------ */

static const struct {
    const char *name, *key;
    double percent;
} percentiles[] = {{"p50", "p50", 50},     {"p90", "p90", 90},      {"p99", "p99", 99},
                   {"p99.9", "p999", 99.9}, {"p99.99", "p9999", 99.99}};

#define PERCENTILES (sizeof percentiles / sizeof *percentiles)

static json_t *latency_json(const struct fq_histogram *latency)
{
    if (latency->count == 0) {
        return json_null();
    }
    json_t *object = json_object();
    (void)json_object_set_new(object, "min", json_real((double)latency->min / 1e3));
    (void)json_object_set_new(object, "mean", json_real(fq_histogram_mean(latency) / 1e3));
    for (size_t i = 0; i < PERCENTILES; i++) {
        uint64_t ns = fq_histogram_percentile(latency, percentiles[i].percent);
        (void)json_object_set_new(object, percentiles[i].key, json_real((double)ns / 1e3));
    }
    (void)json_object_set_new(object, "max", json_real((double)latency->max / 1e3));
    (void)json_object_set_new(object, "count", json_integer((json_int_t)latency->count));
    return object;
}

static char *command_line(const struct fq_cli *cli)
{
    struct fq_buf line = {0};
    for (int i = 0; i < cli->argc; i++) {
        fq_buf_printf(&line, "%s%s", i > 0 ? " " : "", cli->argv[i]);
    }
    char *text = fq_strdup(fq_buf_text(&line));
    fq_buf_fini(&line);
    return text;
}

static const char *latency_from(const struct fq_bench *bench)
{
    switch (bench->kind) {
    case FQ_BENCH_PUB:
        return bench->rate > 0 ? "intended send to acknowledgement" : "send to acknowledgement";
    case FQ_BENCH_E2E:
        return bench->rate > 0 ? "intended send to receipt" : "send to receipt";
    case FQ_BENCH_PULL: return "asking for one record to having it";
    case FQ_BENCH_SUB:
    default: return "one poll of many records";
    }
}

static bool is_open_loop(const struct fq_bench *bench)
{
    return bench->rate > 0 && (bench->kind == FQ_BENCH_PUB || bench->kind == FQ_BENCH_E2E);
}

static const char *mode_of(const struct fq_bench *bench)
{
    const char *mode = bench->kind == FQ_BENCH_PUB ? NULL
                                                   : flashq_config_get(bench->cli->config, "fetch.mode");
    return mode ? mode : "pull";
}

static json_t *verified_json(const struct fq_bench *bench, const struct fq_verify_counts *v)
{
    return bench->is_verify ? json_pack("{s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)v->records,
                                        "missing", (json_int_t)v->missing, "duplicates",
                                        (json_int_t)v->duplicates, "reordered",
                                        (json_int_t)v->reordered, "corrupt", (json_int_t)v->corrupt)
                            : json_null();
}

static double rate_of(const struct fq_bench_worker *worker)
{
    double seconds = (double)(worker->ended_ns - worker->began_ns) / 1e9;
    return seconds > 0 ? (double)worker->records / seconds : 0;
}

static json_t *client_json(const struct fq_bench *bench, const struct fq_bench_worker *worker)
{
    json_t *object = json_pack("{s:I, s:I, s:o, s:o}", "msgs", (json_int_t)worker->records, "errors",
                               (json_int_t)worker->errors, "msgs_per_s",
                               fq_json_real(rate_of(worker)), "latency_us",
                               latency_json(&worker->latency));
    (void)json_object_set_new(object, "verified", verified_json(bench, &worker->verified));
    return object;
}

static json_t *clients_json(const struct fq_bench *bench, const struct fq_bench_result *r)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < r->workers_count; i++) {
        (void)json_array_append_new(array, client_json(bench, &r->workers[i]));
    }
    return array;
}

/* How it was asked for, beyond what the first fields say. */
static void add_settings(json_t *document, const struct fq_bench *bench)
{
    (void)json_object_set_new(document, "loop", json_string(is_open_loop(bench) ? "open" : "closed"));
    (void)json_object_set_new(document, "partitions", json_integer((json_int_t)bench->partitions));
    (void)json_object_set_new(document, "warmup",
                              json_pack("{s:I, s:I}", "msgs", (json_int_t)bench->warmup_msgs, "ms",
                                        (json_int_t)bench->warmup_ms));
    (void)json_object_set_new(document, "mode", bench->kind == FQ_BENCH_PUB
                                                    ? json_null()
                                                    : json_string(mode_of(bench)));
    (void)json_object_set_new(document, "prefetch", json_boolean(!bench->is_single));
}

static void print_json(const struct fq_bench *bench, const struct fq_bench_result *r)
{
    struct fq_cli *cli = bench->cli;
    struct utsname host = {0};
    char schema[32], *command = command_line(cli);
    (void)snprintf(schema, sizeof schema, "flashq.bench.%s/1", kinds[bench->kind]);
    (void)uname(&host);
    json_t *document = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:b}", "schema", schema, "topic", bench->topic, "msgs",
        (json_int_t)r->records, "errors", (json_int_t)r->errors, "record_bytes",
        (json_int_t)bench->size, "clients", (json_int_t)bench->clients, "transport",
        bench->transport ? bench->transport : "auto", "sync", bench->is_sync);
    json_t *rate = bench->rate > 0 ? json_real(bench->rate) : json_string("max");
    double seconds = r->seconds > 0 ? r->seconds : NAN;
    (void)json_object_set_new(document, "rate", rate);
    (void)json_object_set_new(document, "seconds", fq_json_real(r->seconds));
    (void)json_object_set_new(document, "msgs_per_s", fq_json_real((double)r->records / seconds));
    (void)json_object_set_new(document, "mb_per_s", fq_json_real((double)r->bytes / seconds / 1e6));
    (void)json_object_set_new(document, "client_msgs_per_s",
                              json_pack("{s:o, s:o}", "min", fq_json_real(r->client_min), "max",
                                        fq_json_real(r->client_max)));
    (void)json_object_set_new(document, "latency_us", latency_json(&r->latency));
    (void)json_object_set_new(document, "latency_from", json_string(latency_from(bench)));
    (void)json_object_set_new(
        document, "batches",
        r->batches > 0 ? json_pack("{s:I, s:f}", "count", (json_int_t)r->batches, "mean_bytes",
                                   (double)r->batch_bytes / (double)r->batches)
                       : json_null());
    (void)json_object_set_new(document, "cpu_percent", fq_json_real(r->client_cpu));
    (void)json_object_set_new(document, "broker_cpu_percent", fq_json_real(r->broker_cpu));
    (void)json_object_set_new(document, "memcpy_gb_per_s", fq_json_real(r->memcpy_gb_per_s));
    (void)json_object_set_new(document, "command", json_string(command));
    (void)json_object_set_new(document, "versions",
                              json_pack("{s:s, s:s, s:s}", "flashq", FLASHQ_VERSION_TEXT, "libflashq",
                                        flashq_version(), "kernel", host.release));
    add_settings(document, bench);
    (void)json_object_set_new(document, "verified", verified_json(bench, &r->verified));
    (void)json_object_set_new(document, "per_client", clients_json(bench, r));
    fq_cli_print_json(cli, document);
    free(command);
}

static void print_latency(struct fq_buf *out, const struct fq_bench *bench,
                          const struct fq_histogram *latency)
{
    if (latency->count == 0) {
        fq_buf_add_text(out, "latency        not measured\n");
        return;
    }
    fq_buf_printf(out, "latency us     min %.1f  mean %.1f", (double)latency->min / 1e3,
                  fq_histogram_mean(latency) / 1e3);
    for (size_t i = 0; i < PERCENTILES; i++) {
        fq_buf_printf(out, "  %s %.1f", percentiles[i].name,
                      (double)fq_histogram_percentile(latency, percentiles[i].percent) / 1e3);
    }
    fq_buf_printf(out, "  max %.1f  (%s)\n", (double)latency->max / 1e3, latency_from(bench));
}

static void print_cpu(struct fq_buf *out, const char *name, double percent)
{
    if (percent >= 0) {
        fq_buf_printf(out, "  %s %.0f %%", name, percent);
    }
}

static void print_clients(struct fq_buf *out, const struct fq_bench_result *r)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < r->workers_count; i++) {
        uint64_t p99 = fq_histogram_percentile(&r->workers[i].latency, 99);
        least = p99 < least ? p99 : least;
        most = p99 > most ? p99 : most;
    }
    fq_buf_printf(out, "clients        slowest %.0f, fastest %.0f msgs/s; p99 from %.1f to %.1f us\n",
                  r->client_min, r->client_max, (double)least / 1e3, (double)most / 1e3);
}

static void print_verified(struct fq_buf *out, const struct fq_verify_counts *v)
{
    fq_buf_printf(out, "verified       %" PRIu64 " records: %" PRIu64 " missing, %" PRIu64
                       " duplicates, %" PRIu64 " out of order, %" PRIu64 " not as they were sent\n",
                  v->records, v->missing, v->duplicates, v->reordered, v->corrupt);
}

static void print_table(const struct fq_bench *bench, const struct fq_bench_result *r)
{
    struct fq_buf *out = &bench->cli->out.buf;
    char *command = command_line(bench->cli);
    struct utsname host = {0};
    double seconds = r->seconds > 0 ? r->seconds : 1;
    (void)uname(&host);
    fq_buf_printf(out, "%s %s: %" PRIu64 " records of %" PRIu64 " bytes in %.3f s, %" PRId64
                       " client%s, %" PRIu64 " errors\n",
                  kinds[bench->kind], bench->topic, r->records, bench->size, r->seconds,
                  bench->clients, bench->clients == 1 ? "" : "s", r->errors);
    fq_buf_printf(out, "throughput     %.0f msgs/s  %.1f MB/s", (double)r->records / seconds,
                  (double)r->bytes / seconds / 1e6);
    fq_buf_printf(out, "  (%s loop%s)\n", is_open_loop(bench) ? "open" : "closed",
                  bench->warmup_ms > 0 || bench->warmup_msgs > 0 ? ", after a warm-up" : "");
    if (r->workers_count > 1) {
        print_clients(out, r);
    }
    print_latency(out, bench, &r->latency);
    if (bench->is_verify) {
        print_verified(out, &r->verified);
    }
    if (r->batches > 0) {
        fq_buf_printf(out, "batches        %" PRIu64 " of %.0f bytes on average\n", r->batches,
                      (double)r->batch_bytes / (double)r->batches);
    }
    fq_buf_add_text(out, "CPU          "); /* each figure brings two blanks */
    print_cpu(out, "client", r->client_cpu);
    print_cpu(out, "broker", r->broker_cpu);
    fq_buf_printf(out, "\nmemcpy         %.2f GB/s into prepared shared memory, same record size\n",
                  r->memcpy_gb_per_s);
    fq_buf_printf(out, "command        %s\nversions       flashq %s, libflashq %s, Linux %s\n", command,
                  FLASHQ_VERSION_TEXT, flashq_version(), host.release);
    free(command);
}

void fq_bench_print(const struct fq_bench *bench, const struct fq_bench_result *result)
{
    if (bench->cli->output == FQ_OUTPUT_TABLE) {
        print_table(bench, result);
    } else {
        print_json(bench, result);
    }
}
