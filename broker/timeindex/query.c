/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole query, for records in [start, end) with start = max(from_offset, log_start):
 *
 *   1. The calendar's hint, if it reaches back to start, is rounded down to the chunk that holds
 *      it. The max-tree confirms it: no chunk in [start, that chunk) is late enough. If there is
 *      one, the calendar is wrong, and that chunk is the place to go on from.
 *   2. The max-tree gives the first chunk that is late enough from there on.
 *   3. The chunk is scanned from start on. Nothing in it: the late record lies below start (or is
 *      not visible yet), which only the chunk that holds start can do; go on behind it.
 *
 * The answer depends on chunks and log alone. The shard's thread; reads mapped memory, no calls
 * that block.
 */
#include <inttypes.h>

#include "timeindex/chunk_table.h"

struct search {
    const struct fq_timeindex_query *query;
    int64_t start;
    struct fq_timeindex_result *result;
};

enum { STOP = 1 };

static void set_answer(struct fq_timeindex_result *result, enum fq_time_result what, int64_t offset,
                       int64_t timestamp_ms, int64_t next_offset)
{
    result->answer.result = (uint8_t)what;
    result->answer.offset = offset;
    result->answer.timestamp_ms = timestamp_ms;
    result->answer.next_offset = next_offset;
}

/* The first visible record of an uncompressed batch that is late enough. */
static int scan_records(struct search *search, const uint8_t *batch, size_t length)
{
    struct fq_batch_scratch unused = {.data = NULL};
    struct fq_batch_iter iter;
    struct fq_record record;
    int r = fq_batch_iter_init(&iter, batch, length, &unused, NULL);
    while (r >= 0 && (r = fq_batch_iter_next(&iter, &record)) == 1) {
        if (record.offset >= search->query->end) {
            return STOP;
        }
        if (record.offset >= search->start && record.timestamp_ms >= search->query->timestamp_ms) {
            set_answer(search->result, FQ_TIME_FOUND, record.offset, record.timestamp_ms,
                       record.offset + 1);
            return STOP;
        }
    }
    return r;
}

static int scan_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                      uint64_t segment_base, uint64_t position)
{
    (void)segment_base;
    (void)position;
    struct search *search = context;
    int64_t last_offset = header->base_offset + header->last_offset_delta;
    if (header->base_offset >= search->query->end) {
        return STOP;
    }
    search->result->answer.cost_bytes += fq_batch_total_bytes(header); /* the scan checks its CRC */
    if (last_offset < search->start || header->max_timestamp < search->query->timestamp_ms) {
        return 0;
    }
    if (fq_batch_codec(header) == FQ_CODEC_NONE) {
        return scan_records(search, batch, (size_t)fq_batch_total_bytes(header));
    }
    set_answer(search->result, FQ_TIME_CANDIDATE, header->base_offset, header->max_timestamp,
               last_offset + 1);
    return STOP;
}

/* The base offset of the chunk that holds `offset`. */
static int64_t chunk_base_of(struct search *search, int64_t offset)
{
    const struct fq_chunks *chunks = search->query->chunks;
    uint64_t *nodes = &search->result->answer.cost_nodes;
    if (chunks->count == 0) {
        return offset;
    }
    const struct fq_chunk_segment *segment =
        chunks->segments[fq_chunk_table_segment_at(chunks, offset, nodes)];
    return segment->entries[fq_chunk_segment_entry_at(segment, offset, nodes)].base_offset;
}

/* Where the max-tree search may begin: at start, or further on by the calendar's confirmed hint. */
static int64_t search_from(struct search *search)
{
    const struct fq_timeindex_query *query = search->query;
    const struct fq_calendar_answer *hint = query->calendar;
    if (!hint || !hint->found || hint->complete_from > search->start) {
        return search->start;
    }
    if (hint->offset <= search->start || hint->offset > query->end) {
        return search->start;
    }
    int64_t chunk_base = chunk_base_of(search, hint->offset);
    struct fq_chunk_hit missed;
    if (fq_chunks_search(query->chunks, search->start, chunk_base, query->timestamp_ms, &missed,
                         &search->result->answer.cost_nodes)) {
        search->result->calendar_refuted = missed.chunk.base_offset >= search->start;
        return search->start;
    }
    search->result->calendar_used = true;
    return chunk_base > search->start ? chunk_base : search->start;
}

int fq_timeindex_query(const struct fq_timeindex_query *query, struct fq_timeindex_result *ret,
                       struct fq_err *err)
{
    *ret = (struct fq_timeindex_result){.chunks_scanned = 0};
    struct search search = {.query = query, .result = ret};
    search.start = query->from_offset > query->log_start ? query->from_offset : query->log_start;
    if (query->calendar) {
        ret->answer.cost_nodes += query->calendar->nodes;
    }
    set_answer(ret, FQ_TIME_END, query->end, 0, query->end);
    if (search.start >= query->end) {
        return 0;
    }
    int64_t from = search_from(&search);
    struct fq_chunk_hit hit;
    while (fq_chunks_search(query->chunks, from, query->end, query->timestamp_ms, &hit,
                            &ret->answer.cost_nodes)) {
        int64_t scan_from =
            hit.chunk.base_offset > search.start ? hit.chunk.base_offset : search.start;
        int64_t scan_to = hit.end_offset < query->end ? hit.end_offset : query->end;
        ret->chunks_scanned++;
        if (scan_from < scan_to) {
            int r = query->scan(query->scan_context, scan_from, scan_to, hit.segment_base,
                                hit.chunk.position, scan_batch, &search);
            if (r < 0) {
                return fq_err_set(err, r,
                                  "time query: cannot read the log from offset %" PRId64 " on",
                                  scan_from);
            }
        }
        if (ret->answer.result != FQ_TIME_END) {
            return 0;
        }
        if (hit.end_offset >= query->end) {
            return 0;
        }
        from = hit.end_offset;
    }
    return 0;
}
