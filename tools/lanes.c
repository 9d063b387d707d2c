/* SPDX-License-Identifier: Apache-2.0 */
/* From OFFSETs to offsets: each bound is resolved once per partition, before anything is read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/consume.h"

struct resolve {
    struct fq_cli *cli;
    const char *topic;
    const flashq_partition_info *info;
};

/* Saturating, never below 0. */
static int64_t moved(int64_t offset, int64_t by)
{
    int64_t result;
    if (__builtin_add_overflow(offset, by, &result)) {
        return by > 0 ? INT64_MAX : 0;
    }
    return result < 0 ? 0 : result;
}

static int64_t clamped(int64_t offset, const flashq_partition_info *info)
{
    return offset < info->start_offset ? info->start_offset
           : offset > info->end_offset ? info->end_offset
                                       : offset;
}

/* The first record at or after ms; *ret_is_end if there is none. */
static int ask_time(const struct resolve *r, int64_t ms, int64_t *ret, bool *ret_is_end)
{
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    struct fq_cli *cli = r->cli;
    cli->errtext[0] = '\0';
    int result = flashq_offset_for_time(cli->client, r->topic, r->info->partition, ms,
                                        cli->timeout_ms, &answer, cli->errtext,
                                        sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "%s[%" PRId32 "]", r->topic,
                           r->info->partition);
    }
    *ret = answer.offset;
    *ret_is_end = answer.end != 0;
    return 0;
}

/* A trimmed position is moved only if the user said where to (auto.offset.reset). */
static bool reset_position(const struct resolve *r, int64_t *ret)
{
    const char *reset = flashq_config_get(r->cli->config, "auto.offset.reset");
    bool is_start = reset && (strcmp(reset, "start") == 0 || strcmp(reset, "earliest") == 0);
    bool is_end = reset && (strcmp(reset, "end") == 0 || strcmp(reset, "latest") == 0);
    *ret = is_start ? r->info->start_offset : r->info->end_offset;
    return is_start || is_end;
}

static int resolve_from(const struct resolve *r, const struct fq_offset_bound *from, int64_t *ret)
{
    const flashq_partition_info *info = r->info;
    bool is_end;
    switch (from->kind) {
    case FQ_OFFSET_LAST: *ret = clamped(moved(info->end_offset, -from->value), info); return 0;
    case FQ_OFFSET_NONE:
    case FQ_OFFSET_FIRST: *ret = clamped(moved(info->start_offset, from->value), info); return 0;
    case FQ_OFFSET_TIME: return ask_time(r, from->value, ret, &is_end);
    case FQ_OFFSET_NUMBER:
        if (from->value < info->start_offset && reset_position(r, ret)) {
            return 0;
        }
        if (from->value < info->start_offset || from->value > info->end_offset) {
            fq_cli_warn("%s[%" PRId32 "]: offset %" PRId64 " is %s: the partition has %" PRId64
                        " to %" PRId64,
                        r->topic, info->partition, from->value,
                        from->value < info->start_offset ? "trimmed" : "beyond the end",
                        info->start_offset, info->end_offset);
            return FQ_EXIT_FAILED;
        }
        *ret = from->value;
        return 0;
    case FQ_OFFSET_STORED:
    default:
        return fq_cli_usage(r->cli, "the offset \"stored\" belongs to consumer groups, which are "
                                    "not in this release");
    }
}

static int resolve_to(const struct resolve *r, const struct fq_offset_bound *to, bool is_to_end,
                      struct fq_lane *lane)
{
    const flashq_partition_info *info = r->info;
    bool is_end = false;
    int code = 0;
    lane->stop = is_to_end ? info->end_offset : FQ_STOP_NEVER;
    lane->stop_ms = INT64_MAX;
    switch (to->kind) {
    case FQ_OFFSET_LAST: lane->stop = clamped(moved(info->end_offset, -to->value), info); break;
    case FQ_OFFSET_FIRST: lane->stop = moved(info->start_offset, to->value); break;
    case FQ_OFFSET_NUMBER:
        lane->stop = to->value < lane->stop ? to->value : lane->stop;
        break;
    case FQ_OFFSET_TIME:
        code = ask_time(r, to->value, &lane->stop, &is_end);
        if (code == 0 && is_end && !is_to_end && to->value > r->cli->now_ms) {
            lane->stop = FQ_STOP_NEVER; /* it lies ahead: ends when a record gets there */
            lane->stop_ms = to->value;
        }
        break;
    case FQ_OFFSET_NONE:
    case FQ_OFFSET_STORED:
    default: break;
    }
    return code;
}

static int add_lane(struct fq_lanes *lanes, const struct resolve *r,
                    const struct fq_offset_range *range, bool is_to_end)
{
    struct fq_lane lane = {.partition = r->info->partition, .seek_to = -1};
    if (r->info->status != 0) { /* the others are still read */
        int failure = fq_cli_fail(r->cli, r->info->status, NULL, "%s[%" PRId32 "]", r->topic,
                                  r->info->partition);
        lanes->failed = lanes->failed != 0 ? lanes->failed : failure;
        return 0;
    }
    int code = resolve_from(r, &range->from, &lane.start);
    if (code == 0) {
        code = resolve_to(r, &range->to, is_to_end, &lane);
    }
    if (code == 0) {
        lane.topic = fq_strdup(r->topic);
        lanes->lanes = fq_realloc_array(lanes->lanes, lanes->count + 1, sizeof *lanes->lanes);
        lanes->lanes[lanes->count++] = lane;
    }
    return code;
}

static const flashq_partition_info *find(const flashq_partition_info *infos, size_t count,
                                         int32_t partition)
{
    for (size_t i = 0; i < count; i++) {
        if (infos[i].partition == partition) {
            return &infos[i];
        }
    }
    return NULL;
}

static int add_partitions(struct resolve *r, struct fq_lanes *lanes,
                          const flashq_partition_info *infos, size_t infos_count,
                          const int32_t *partitions, size_t partitions_count,
                          const struct fq_offset_range *range, bool is_to_end)
{
    size_t count = partitions_count > 0 ? partitions_count : infos_count;
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        r->info = partitions_count > 0 ? find(infos, infos_count, partitions[i]) : &infos[i];
        if (!r->info) {
            return fq_cli_fail(r->cli, FLASHQ_ERR_NOT_FOUND, NULL,
                               "%s[%" PRId32 "]: the topic has %zu partitions", r->topic,
                               partitions[i], infos_count);
        }
        code = add_lane(lanes, r, range, is_to_end);
    }
    return code;
}

int fq_lanes_add(struct fq_cli *cli, struct fq_lanes *lanes, const char *topic,
                 const int32_t *partitions, size_t partitions_count,
                 const struct fq_offset_range *range, bool is_to_end)
{
    flashq_topic_info info = {.struct_bytes = sizeof info};
    flashq_partition_info *infos = NULL;
    size_t count = 0;
    cli->errtext[0] = '\0';
    int result = flashq_topic_describe(cli->client, topic, cli->timeout_ms, &info, &infos, &count,
                                       cli->errtext, sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "%s", topic);
    }
    struct resolve r = {.cli = cli, .topic = topic};
    int code;
    bool is_numeric = range->from.kind == FQ_OFFSET_NUMBER || range->to.kind == FQ_OFFSET_NUMBER;
    if (is_numeric && partitions_count == 0 && count > 1) {
        code = fq_cli_usage(cli,
                            "offset %" PRId64 " of which partition? %s has %zu: name one with -p",
                            range->from.kind == FQ_OFFSET_NUMBER ? range->from.value
                                                                 : range->to.value,
                            topic, count);
    } else {
        code = add_partitions(&r, lanes, infos, count, partitions, partitions_count, range,
                              is_to_end);
    }
    flashq_free(infos);
    return code;
}

void fq_lanes_fini(struct fq_lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++) {
        free(lanes->lanes[i].topic);
    }
    free(lanes->lanes);
    *lanes = (struct fq_lanes){0};
}
