/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From chunks to marks. A chunk that raises the running maximum to a new second gives the mark
 * (second, base offset of the chunk): below that offset nothing had reached the second. A mark may
 * come with a lower offset or of a second that the calendar has already, after a restart or a cut;
 * both are harmless (fq_calendar_apply).
 *
 * The last chunk still grows and is left out: a mark costs the housekeeper a transaction (on a
 * disk: several msyncs), so there is at most one for every 64 KiB that was written, not one a
 * second for every partition that gets a record now and then. What lies in the last chunk is found
 * without the calendar.
 *
 * The shard's thread; never blocks, never allocates.
 */
#include "timeindex/chunk_table.h"

/* complete_to is told at least this often when there are no marks. */
enum { CHUNKS_PER_ADVANCE = 256 };

void fq_calendar_feeder_init(struct fq_calendar_feeder *feeder, int64_t complete_to)
{
    feeder->next_offset = complete_to;
    feeder->second = INT64_MIN;
    feeder->mark_offset = INT64_MIN;
    feeder->chunks_unsaid = 0;
}

bool fq_calendar_feeder_add(struct fq_calendar_feeder *feeder, int64_t offset,
                            int64_t max_timestamp, struct fq_calendar_mark *ret)
{
    int64_t second = fq_calendar_second(max_timestamp);
    if (second <= feeder->second) {
        return false;
    }
    feeder->second = second;
    feeder->mark_offset = offset;
    *ret = (struct fq_calendar_mark){.second = second, .offset = offset};
    return true;
}

void fq_calendar_feeder_trim(struct fq_calendar_feeder *feeder, int64_t log_start)
{
    if (feeder->mark_offset < log_start) {
        fq_calendar_feeder_init(feeder, log_start);
    }
}

/* The chunk that holds next_offset, if it is closed and all of it is committed. */
static bool next_chunk(const struct fq_calendar_feeder *feeder, const struct fq_chunks *chunks,
                       int64_t committed_end, struct fq_chunk_hit *ret)
{
    if (chunks->count == 0) {
        return false;
    }
    const struct fq_chunk_segment *last = chunks->segments[chunks->count - 1];
    if (feeder->next_offset >= last->entries[last->count - 1].base_offset) {
        return false;
    }
    uint64_t nodes = 0;
    size_t at = fq_chunk_table_segment_at(chunks, feeder->next_offset, &nodes);
    size_t entry = fq_chunk_segment_entry_at(chunks->segments[at], feeder->next_offset, &nodes);
    fq_chunk_table_hit(chunks, at, entry, ret);
    return ret->end_offset <= committed_end;
}

int fq_calendar_feeder_step(struct fq_calendar_feeder *feeder, const struct fq_chunks *chunks,
                            int64_t committed_end, unsigned chunks_max, fq_calendar_emit emit,
                            void *context)
{
    struct fq_chunk_hit hit;
    while (next_chunk(feeder, chunks, committed_end, &hit)) {
        if (chunks_max-- == 0) {
            return 1;
        }
        struct fq_calendar_feeder next = *feeder;
        struct fq_calendar_mark mark;
        bool has_mark =
            fq_calendar_feeder_add(&next, hit.chunk.base_offset, hit.chunk.max_timestamp, &mark);
        next.next_offset = hit.end_offset;
        next.chunks_unsaid++;
        if (has_mark || next.chunks_unsaid >= CHUNKS_PER_ADVANCE) {
            if (!emit(context, has_mark ? &mark : NULL, hit.end_offset)) {
                return 1;
            }
            next.chunks_unsaid = 0;
        }
        *feeder = next;
    }
    return 0;
}
