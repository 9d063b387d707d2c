/* SPDX-License-Identifier: Apache-2.0 */
/* What a bench prints, for people and as JSON; and where CPU time went. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/bench.h"

static const char *const kinds[] = {"pub", "sub", "pull", "e2e"};

json_t *fq_json_real(double value)
{
    return isfinite(value) && value >= 0 ? json_real(value) : json_null();
}

/* ---- CPU time ------------------------------------------------------------------------------ */

int64_t fq_bench_cpu_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return -1;
    }
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static bool is_broker(const char *pid)
{
    char path[300], name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    bool is_it = file && fgets(name, sizeof name, file) && strncmp(name, "flashqd", 7) == 0;
    if (file) {
        (void)fclose(file);
    }
    return is_it;
}

static bool is_on_this_host(struct fq_cli *cli)
{
    static const char *const local[] = {"shm:", "tcp:127.", "tcp:localhost", "tcp:[::1]"};
    char endpoint[300];
    if (flashq_client_endpoint(cli->client, endpoint, sizeof endpoint) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strncmp(endpoint, local[i], strlen(local[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The broker's process, if it runs here; 0: not known. */
static long find_broker(struct fq_cli *cli)
{
    flashq_counter *counters = NULL;
    size_t count = 0;
    long pid = 0;
    char text[24];
    if (!is_on_this_host(cli) || flashq_cluster_counters(cli->client, cli->timeout_ms, &counters,
                                                         &count, NULL, 0) != 0) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(counters[i].name, "process.pid") == 0) {
            pid = (long)counters[i].value;
        }
    }
    flashq_free(counters);
    (void)snprintf(text, sizeof text, "%ld", pid);
    return pid > 0 && is_broker(text) ? pid : 0;
}

int64_t fq_bench_broker_cpu_us(struct fq_cli *cli)
{
    long pid = find_broker(cli);
    char path[64], line[1024] = "";
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    bool is_read = file && fgets(line, sizeof line, file);
    if (file) {
        (void)fclose(file);
    }
    /* after the name in brackets: state and 10 numbers, then utime and stime in ticks */
    const char *at = is_read ? strrchr(line, ')') : NULL;
    for (int field = 0; at && field < 12; field++) {
        at = strchr(at + 1, ' ');
    }
    if (!at) {
        return -1;
    }
    char *end;
    unsigned long long user = strtoull(at, &end, 10), system = strtoull(end, NULL, 10);
    return (int64_t)((user + system) * 1000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
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
                              json_pack("{s:s, s:s}", "libflashq", flashq_version(), "kernel",
                                        host.release));
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

static void print_table(const struct fq_bench *bench, const struct fq_bench_result *r)
{
    struct fq_buf *out = &bench->cli->out.buf;
    char *command = command_line(bench->cli);
    double seconds = r->seconds > 0 ? r->seconds : 1;
    fq_buf_printf(out, "%s %s: %" PRIu64 " records of %" PRIu64 " bytes in %.3f s, %" PRId64
                       " client%s, %" PRIu64 " errors\n",
                  kinds[bench->kind], bench->topic, r->records, bench->size, r->seconds,
                  bench->clients, bench->clients == 1 ? "" : "s", r->errors);
    fq_buf_printf(out, "throughput     %.0f msgs/s  %.1f MB/s", (double)r->records / seconds,
                  (double)r->bytes / seconds / 1e6);
    if (bench->clients > 1) {
        fq_buf_printf(out, "  (slowest client %.0f, fastest %.0f msgs/s)", r->client_min,
                      r->client_max);
    }
    fq_buf_add_byte(out, '\n');
    print_latency(out, bench, &r->latency);
    if (r->batches > 0) {
        fq_buf_printf(out, "batches        %" PRIu64 " of %.0f bytes on average\n", r->batches,
                      (double)r->batch_bytes / (double)r->batches);
    }
    fq_buf_add_text(out, "CPU          "); /* each figure brings two blanks */
    print_cpu(out, "client", r->client_cpu);
    print_cpu(out, "broker", r->broker_cpu);
    fq_buf_printf(out, "\nmemcpy         %.2f GB/s into prepared shared memory, same record size\n",
                  r->memcpy_gb_per_s);
    fq_buf_printf(out, "command        %s\nversions       flashq %d.%d.%d, libflashq %s\n", command,
                  FLASHQ_VERSION_MAJOR, FLASHQ_VERSION_MINOR, FLASHQ_VERSION_PATCH,
                  flashq_version());
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
