/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What readers ask: the segment that holds an offset, and the first record at or after a time.
 *
 * The world of a reader is [log start, high watermark): what is appended and not committed is
 * neither shown nor counted. Damage is an answer (CORRUPT, with the next readable offset), never a
 * reason to hide what lies behind it.
 *
 * Thread: the shard.
 */
#include <string.h>

#include "partition/state.h"

static int find_place(struct fq_partition *p, int64_t offset, struct fq_log_place *ret)
{
    int64_t segment_base;
    struct fq_chunk chunk;
    if (fq_chunks_locate(p->chunks, offset, &segment_base, &chunk)) {
        return fq_log_find_near(p->log, offset, segment_base, chunk.position, ret);
    }
    return fq_log_find(p->log, offset, ret);
}

static void describe_segment(const struct fq_partition *p, const struct fq_log_place *place,
                             struct fq_segment_open_answer *ret)
{
    struct fq_segment *segment = place->segment;
    uint64_t data_bytes = fq_segment_data_bytes(segment);
    bool is_whole =
        fq_segment_is_sealed(segment) && fq_segment_end_offset(segment) <= p->high_watermark;
    struct fq_segment *next = is_whole ? fq_segment_next(segment) : NULL;
    if (segment == p->hw_segment) {
        data_bytes = p->hw_position;
    }
    *ret = (struct fq_segment_open_answer){
        .segment_id = fq_segment_id(segment),
        .base_offset = fq_segment_base_offset(segment),
        .next_base_offset = next == NULL ? -1 : fq_segment_base_offset(next),
        .data_bytes = data_bytes,
        .window_bytes = fq_segment_capacity(segment),
        .window_offset = FQ_LIMIT_SEGMENT_HEADER_BYTES,
        .position = place->position,
        .position_offset = place->base_offset,
        .is_sealed = is_whole,
    };
}

int fq_partition_segment_open(struct fq_partition *p, int64_t offset,
                              struct fq_segment **ret_segment, struct fq_segment_open_answer *ret,
                              struct fq_err *err)
{
    long long start = fq_log_start(p->log), end = p->high_watermark;
    if (offset < start) {
        return fq_err_set(err, FLASHQ_ERR_TRIMMED, "offset %lld: the log holds %lld to %lld",
                          (long long)offset, start, end);
    }
    if (offset > end) {
        return fq_err_set(err, FLASHQ_ERR_OUT_OF_RANGE, "offset %lld: the log holds %lld to %lld",
                          (long long)offset, start, end);
    }
    struct fq_log_place place = {
        .segment = p->hw_segment, .position = p->hw_position, .base_offset = p->high_watermark};
    int rc = offset == end ? 0 : find_place(p, offset, &place);
    if (rc == FLASHQ_ERR_CORRUPT) {
        ret->position_offset = place.base_offset;
        return fq_err_set(err, rc, "offset %lld is damaged, the next readable offset is %lld",
                          (long long)offset, (long long)place.base_offset);
    }
    if (rc < 0) {
        return fq_err_set(err, rc, "offset %lld: %s", (long long)offset, fq_err_describe(rc));
    }
    *ret_segment = place.segment;
    if (place.segment == NULL) {
        *ret = (struct fq_segment_open_answer){
            .base_offset = end, .next_base_offset = -1, .position_offset = end};
        return 0;
    }
    describe_segment(p, &place, ret);
    return 0;
}

void fq_partition_committed_end(const struct fq_partition *p, struct fq_log_place *ret)
{
    *ret = (struct fq_log_place){
        .segment = p->hw_segment, .position = p->hw_position, .base_offset = p->high_watermark};
}

static int scan_log(void *context, int64_t from_offset, int64_t to_offset, int64_t segment_base,
                    uint64_t position, fq_log_visitor visitor, void *visitor_context)
{
    struct fq_log *log = context;
    return fq_log_scan_near(log, from_offset, to_offset, segment_base, position, visitor,
                            visitor_context);
}

int fq_partition_time_query(struct fq_partition *p, int64_t timestamp_ms, int64_t from_offset,
                            const struct fq_calendar_answer *calendar,
                            struct fq_time_query_answer *ret, struct fq_err *err)
{
    struct fq_timeindex_query query = {
        .chunks = p->chunks,
        .calendar = calendar,
        .timestamp_ms = timestamp_ms,
        .from_offset = from_offset,
        .log_start = fq_log_start(p->log),
        .end = p->high_watermark,
        .scan = scan_log,
        .scan_context = p->log,
    };
    struct fq_timeindex_result result;
    int rc = fq_timeindex_query(&query, &result, err);
    if (rc < 0) {
        return rc;
    }
    if (result.calendar_refuted && !p->cut_drop) {
        p->cut_drop = true;
        fq_calendar_feeder_init(&p->feeder, 0);
        p->feeder_behind = true;
    }
    *ret = result.answer;
    return 0;
}
