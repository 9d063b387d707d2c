/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The topic of a bench: created if it is not there; where in it reading begins, and how much there is to read.
 * Main thread only.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/bench.h"

#define FILL_MSGS_DEFAULT 100000

/* -o: where reading begins in one partition. */
static int start_of(const struct fq_bench *bench, const flashq_partition_info *info, int64_t *ret)
{
    const struct fq_offset_bound *from = &bench->from.from;
    int64_t offset = from->value;
    switch (from->kind) {
    case FQ_OFFSET_NONE: *ret = FLASHQ_OFFSET_START; return 0;
    case FQ_OFFSET_FIRST:
        *ret = offset == 0 ? FLASHQ_OFFSET_START : info->start_offset + offset;
        return 0;
    case FQ_OFFSET_LAST:
        *ret = offset == 0                                       ? FLASHQ_OFFSET_END
               : info->end_offset - offset > info->start_offset ? info->end_offset - offset
                                                                : info->start_offset;
        return 0;
    case FQ_OFFSET_NUMBER: *ret = offset; return 0;
    case FQ_OFFSET_STORED:
    case FQ_OFFSET_TIME:
    default: return fq_cli_usage(bench->cli, "-o: start, end, N, +N or -N");
    }
}

static int note_partitions(struct fq_bench *bench, const flashq_partition_info *partitions, size_t count)
{
    bench->partitions = (int64_t)count;
    bench->starts = fq_realloc_array(bench->starts, count, sizeof *bench->starts);
    bench->available = 0;
    bench->is_from_start = true;
    for (size_t i = 0; i < count; i++) {
        const flashq_partition_info *info = &partitions[i];
        int code = start_of(bench, info, &bench->starts[i]);
        if (code != 0) {
            return code;
        }
        int64_t start = bench->starts[i] == FLASHQ_OFFSET_START ? info->start_offset : bench->starts[i];
        bench->is_tail = start == FLASHQ_OFFSET_END || bench->kind == FQ_BENCH_E2E;
        bench->is_from_start &= start == 0;
        bench->available += !bench->is_tail && info->end_offset > start ? info->end_offset - start : 0;
        if (bench->kind == FQ_BENCH_E2E) {
            bench->starts[i] = FLASHQ_OFFSET_END;
        }
    }
    return 0;
}

int fq_bench_prepare_topic(struct fq_bench *bench)
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
    int code = note_partitions(bench, partitions, count);
    flashq_free(partitions);
    return code;
}

static int publish_missing(struct fq_bench *bench, int64_t msgs)
{
    struct fq_bench filler = *bench;
    filler.kind = FQ_BENCH_PUB;
    filler.msgs = msgs;
    filler.clients = 1;
    filler.duration_ms = filler.warmup_ms = filler.warmup_msgs = 0;
    filler.rate = 0;
    filler.has_latency = false;
    filler.is_sync = bench->is_single; /* then every record is a batch of its own */
    filler.series_path = NULL;
    fq_cli_warn("%s has %" PRId64 " records to read: publishing %" PRId64 " more first", bench->topic,
                bench->available, msgs);
    struct fq_bench_worker *worker = fq_bench_workers_create(&filler, 1);
    int code = fq_bench_run_workers(&filler, worker, 1, 1, NULL);
    code = code == 0 && worker->errors > 0 ? FQ_EXIT_FAILED : code;
    fq_bench_workers_destroy(worker, 1);
    return code;
}

int fq_bench_fill_topic(struct fq_bench *bench)
{
    if (bench->is_tail) {
        return 0;
    }
    int64_t asked = bench->msgs > 0 ? bench->msgs + bench->warmup_msgs : 0;
    int64_t wanted = asked > 0 ? asked : FILL_MSGS_DEFAULT;
    if (bench->available < wanted && (asked > 0 || bench->available == 0)) {
        int code = publish_missing(bench, wanted - bench->available);
        code = code == 0 ? fq_bench_prepare_topic(bench) : code;
        if (code != 0) {
            return code;
        }
    }
    if (bench->available < asked) {
        fq_cli_warn("%s keeps %" PRId64 " of %" PRId64 " records: its retention.bytes removes the rest",
                    bench->topic, bench->available, wanted);
        return FQ_EXIT_FAILED;
    }
    if (bench->msgs == 0 && bench->duration_ms == 0) {
        bench->msgs = wanted < bench->available ? wanted : bench->available;
    }
    return 0;
}
