/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench limits: what this machine can do, measured now, so that the figures of the other
 * benches can be read beside it. Needs no broker. Each measurement goes on for a fraction of a second, on
 * threads pinned to two processors; medians of single events, rates over the whole time. The checksum is
 * libflashq's own (base/crc32c.h): the one place where the CLI reaches below the public header, since that
 * is what is to be measured.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/bench_limits.h"

#define SIZE_MAX_BYTES ((uint64_t)64 << 20)

enum {
    LIMITS_DIR = 1,
    LIMITS_SIZE,
    LIMITS_WRITE_SIZE,
    LIMITS_CORES,
    LIMITS_DURATION,
    LIMITS_ONLY,
    LIMITS_JSON
};

static const struct fq_opt options[] = {
    {LIMITS_DIR, 0, "dir", "DIR", "also write and sync a file in this directory"},
    {LIMITS_SIZE, 0, "size", "S", "bytes of a record: copies, pipeline, there and back [1024]"},
    {LIMITS_WRITE_SIZE, 0, "write-size", "S",
     "of one write to the TCP stream [1KiB, 64KiB, 256KiB and 1MiB in turn]"},
    {LIMITS_CORES, 0, "cores", "A,B", "the two processors [the first two that may be used]"},
    {LIMITS_DURATION, 0, "duration", "T", "of each measurement [200ms]"},
    {LIMITS_ONLY, 0, "only", "NAME,...", "these alone (names in the first column)"},
    {LIMITS_JSON, 0, "json", NULL, "as -O json"},
    {0, 0, NULL, NULL, NULL},
};

struct limits {
    struct fq_cli *cli;
    struct fq_limits_run run;
    uint64_t size, write_size;
    const char *only;
    struct fq_table table;
    json_t *object;
    int failed;
};

struct limit {
    const char *name, *key, *what, *unit;
    double (*measure)(const struct fq_limits_run *run);
    bool is_disk;
};

static const struct limit table[] = {
    {"memcpy", "memcpy_prepared_gb_per_s", "copy of records into prepared shared memory", "GB/s",
     fq_limits_memcpy_prepared, false},
    {"memcpy-fresh", "memcpy_fresh_gb_per_s", "copy of records into fresh shared memory", "GB/s",
     fq_limits_memcpy_fresh, false},
    {"crc32c", "crc32c_gb_per_s", "CRC-32C of 64 KiB", "GB/s", fq_limits_crc32c, false},
    {"pipeline", "pipeline_gb_per_s", "records copied and checked by one core, stored by another",
     "GB/s", fq_limits_pipeline, false},
    {"record", "record_round_trip_us", "one record checked, stored and answered, spinning", "us",
     fq_limits_record_round_trip, false},
    {"line", "line_handover_ns", "cache line from core to core", "ns", fq_limits_line, false},
    {"eventfd", "eventfd_round_trip_us", "eventfd there and back", "us", fq_limits_eventfd, false},
    {"tcp", "tcp_round_trip_us", "a record over loopback TCP there and back, sleeping", "us",
     fq_limits_tcp_blocking, false},
    {"tcp-spinning", "tcp_spinning_round_trip_us", "the same, spinning", "us",
     fq_limits_tcp_spinning, false},
    {"tcp-stream", "tcp_stream_gb_per_s", "loopback TCP stream, writes of", "GB/s",
     fq_limits_tcp_stream, false},
    {"sync", "write_fdatasync_us", "4 KiB overwrite + fdatasync", "us", fq_limits_small_sync, true},
    {"sync-large", "write_fdatasync_1mib_us", "1 MiB overwrite + fdatasync", "us",
     fq_limits_large_sync, true},
};

#define LIMITS_COUNT (sizeof table / sizeof *table)

/* ---- options ------------------------------------------------------------------------------- */

/* Whether a list of names, separated by commas, has this one. */
static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static int check_names(const char *list, struct fq_fault *fault)
{
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        size_t length = strcspn(at, ",");
        bool is_known = false;
        for (size_t i = 0; i < LIMITS_COUNT; i++) {
            is_known |= strlen(table[i].name) == length && strncmp(at, table[i].name, length) == 0;
        }
        if (!is_known) {
            return fq_fault_set(fault, "only: there is no limit \"%.*s\"", (int)(length < 40 ? length : 40),
                                at);
        }
    }
    return 0;
}

static int take_size(const char *value, uint64_t *ret, struct fq_fault *fault)
{
    int code = fq_parse_size(value, ret, fault);
    return code == 0 && (*ret == 0 || *ret > SIZE_MAX_BYTES)
               ? fq_fault_set(fault, "\"%.32s\": expected 1 byte to 64 MiB", value)
               : code;
}

static int take_cores(struct limits *limits, const char *value, struct fq_fault *fault)
{
    cpu_set_t allowed;
    char after;
    int *cores = limits->run.cores;
    if (sscanf(value, "%d,%d%c", &cores[0], &cores[1], &after) != 2 || cores[0] < 0 || cores[1] < 0 ||
        cores[0] >= CPU_SETSIZE || cores[1] >= CPU_SETSIZE || cores[0] == cores[1]) {
        return fq_fault_set(fault, "cores \"%.32s\": expected two different ones such as 0,1", value);
    }
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
        (!CPU_ISSET((size_t)cores[0], &allowed) || !CPU_ISSET((size_t)cores[1], &allowed))) {
        return fq_fault_set(fault, "cores \"%.32s\": this process may not use them", value);
    }
    return 0;
}

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct limits *limits = args;
    int code;
    switch (id) {
    case LIMITS_DIR: limits->run.dir = value; return 0;
    case LIMITS_SIZE: return take_size(value, &limits->size, fault);
    case LIMITS_WRITE_SIZE: return take_size(value, &limits->write_size, fault);
    case LIMITS_CORES: return take_cores(limits, value, fault);
    case LIMITS_DURATION:
        code = fq_parse_duration_ns(value, &limits->run.run_ns, fault);
        return code == 0 && limits->run.run_ns <= 0 ? fq_fault_set(fault, "duration: expected more than 0")
                                                    : code;
    case LIMITS_ONLY: limits->only = value; return check_names(value, fault);
    case LIMITS_JSON: limits->cli->output = FQ_OUTPUT_JSON; return 0;
    default: return fq_fault_set(fault, "unexpected \"%.64s\"", value);
    }
}

/* The first two processors that this process may use; the same one twice where there is no second, and then
 * what needs two is not possible. */
static void default_cores(int cores[2])
{
    cpu_set_t allowed;
    int found = 0;
    cores[0] = cores[1] = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET((size_t)cpu, &allowed)) {
            cores[found] = cpu;
            cores[1] = cpu;
            found++;
        }
    }
}

/* ---- measuring and printing ---------------------------------------------------------------- */

static void add_row(struct limits *limits, const char *name, const char *what, const char *unit,
                    double value)
{
    fq_table_add(&limits->table, "%s", name);
    fq_table_add(&limits->table, "%s", what);
    if (value < 0) {
        fq_table_add(&limits->table, "not possible");
    } else {
        fq_table_add(&limits->table, "%.*f", value < 100 ? 2 : 0, value);
    }
    fq_table_add(&limits->table, "%s", unit);
}

static void measure_stream(struct limits *limits, const struct limit *limit)
{
    static const size_t usual[] = {(size_t)1 << 10, (size_t)64 << 10, (size_t)256 << 10, (size_t)1 << 20};
    size_t count = limits->write_size > 0 ? 1 : sizeof usual / sizeof *usual;
    json_t *object = json_object();
    for (size_t i = 0; i < count && !fq_interrupted(); i++) {
        char key[24], what[64];
        limits->run.write_size = limits->write_size > 0 ? (size_t)limits->write_size : usual[i];
        double rate = limit->measure(&limits->run);
        (void)snprintf(key, sizeof key, "%zu", limits->run.write_size);
        (void)snprintf(what, sizeof what, "%s %zu bytes", limit->what, limits->run.write_size);
        (void)json_object_set_new(object, key, fq_json_real(rate));
        if (!limits->object) {
            add_row(limits, limit->name, what, limit->unit, rate);
        }
    }
    if (limits->object) {
        (void)json_object_set_new(limits->object, limit->key, object);
    } else {
        json_decref(object);
    }
}

static void measure_one(struct limits *limits, const struct limit *limit)
{
    if (limit->measure == fq_limits_tcp_stream) {
        measure_stream(limits, limit);
        return;
    }
    double value = limit->measure(&limits->run);
    limits->failed |= limit->is_disk && value < 0;
    if (limits->object) {
        (void)json_object_set_new(limits->object, limit->key, fq_json_real(value));
    } else {
        add_row(limits, limit->name, limit->what, limit->unit, value);
    }
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    static const char *const headings[] = {"NAME", "LIMIT", "VALUE", "UNIT", NULL};
    struct limits limits = {.cli = cli, .size = 1024, .run = {.run_ns = 200000000}};
    default_cores(limits.run.cores);
    int code = fq_cli_parse(cli, parser, take, &limits);
    if (code >= 0) {
        return code;
    }
    limits.run.size = (size_t)limits.size;
    limits.run.write_size = (size_t)limits.write_size;
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_table_init(&limits.table, headings);
    } else {
        limits.object = json_object();
    }
    for (size_t i = 0; i < LIMITS_COUNT && !fq_interrupted(); i++) {
        bool is_asked = limits.only ? is_listed(limits.only, table[i].name)
                                    : !table[i].is_disk || limits.run.dir != NULL;
        if (is_asked) {
            measure_one(&limits, &table[i]);
        }
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_table_finish(&limits.table, &cli->out);
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:I, s:o, s:[i, i]}", "schema", "flashq.bench.limits/1",
                                         "copy_bytes", (json_int_t)limits.size, "limits", limits.object,
                                         "cores", limits.run.cores[0], limits.run.cores[1]));
    }
    return limits.failed || fq_interrupted() ? FQ_EXIT_FAILED : FQ_EXIT_OK;
}

const struct fq_command fq_cmd_bench_limits = {
    .name = "bench limits", .arguments = "", .summary = "what this machine can do, measured now",
    .options = options, .run = run};
