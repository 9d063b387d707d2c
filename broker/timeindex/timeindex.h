/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time index of one partition: the first record with timestamp >= T, exactly as a scan of
 * [log start, end) in offset order would find it, for any order of timestamps.
 *
 * Levels: calendar (day -> hour -> minute -> second; a second says below which offset the running
 * maximum of timestamps had not reached it; in meta.pool, owned by the housekeeper), chunks per
 * segment (64 KiB of log or one batch: offset, position, min, max), a max-tree over segments and
 * chunks, then a scan of one chunk. README.md has the argument for exactness and the bound on the
 * cost.
 *
 * The chunk part (struct fq_chunks) and the feeder belong to the partition's shard. The calendar
 * part belongs to the housekeeper; the shard feeds it with marks through a ring and asks it through
 * another. What the calendar answers is a hint that the max-tree has to confirm: a calendar that is
 * stale, damaged or missing costs time and never correctness.
 */
#ifndef FQ_TIMEINDEX_TIMEINDEX_H
#define FQ_TIMEINDEX_TIMEINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/log.h"
#include "storage/meta.h"
#include "wire/protocol.h"

/* ---- chunks: shard side -------------------------------------------------------------------- */

struct fq_chunk {        /* 32 bytes on media, sealed segments' `.index` files */
    int64_t base_offset; /* of its first batch */
    uint64_t position;   /* of that batch in the segment's data */
    int64_t min_timestamp, max_timestamp;
};

struct fq_chunks; /* all segments of one partition */

int fq_chunks_create(struct fq_chunks **ret);
void fq_chunks_destroy(struct fq_chunks *chunks); /* NULL is fine */

/* One call per appended batch, in order. At most one insert per 64 KiB chunk. `segment_base` is the
 * base offset of its segment. Never fails, allocates or blocks: memory is reserved ahead by
 * fq_chunks_reserve (off the path); when it has run out the last chunk grows coarser instead
 * (queries stay exact, they scan more; such a segment cannot be encoded). */
void fq_chunks_add(struct fq_chunks *chunks, int64_t segment_base, int64_t base_offset,
                   uint64_t position, uint64_t bytes, int64_t min_timestamp, int64_t max_timestamp);
/* 0 or NO_MEMORY (what is there stays usable). */
int fq_chunks_reserve(struct fq_chunks *chunks);
bool fq_chunks_wants_reserve(const struct fq_chunks *chunks);

/* Drops segments wholly below `log_start` (an offset); entries of the segment that holds it stay.
 */
void fq_chunks_trim(struct fq_chunks *chunks, int64_t log_start);
/* Drops every chunk that has or may have batches at or above `offset`. Returns the offset below
 * which everything is still covered: the caller adds the batches of [that, offset) again. */
int64_t fq_chunks_truncate(struct fq_chunks *chunks, int64_t offset);

size_t fq_chunks_count(const struct fq_chunks *chunks);
size_t fq_chunks_segments_count(const struct fq_chunks *chunks);
/* Bytes of memory held. */
size_t fq_chunks_memory_bytes(const struct fq_chunks *chunks);

/* The chunk that holds `offset` (the last one for offsets above it): for finding a batch without
 * scanning the segment. false: below the first chunk, or there is none. */
bool fq_chunks_locate(const struct fq_chunks *chunks, int64_t offset, int64_t *ret_segment_base,
                      struct fq_chunk *ret);

struct fq_chunk_hit {
    int64_t segment_base;
    struct fq_chunk chunk;
    int64_t end_offset;    /* the next chunk's base offset; INT64_MAX: it is the last */
    uint64_t end_position; /* where the next chunk of the segment begins; UINT64_MAX: the last */
};
/* The first chunk that has batches in [from_offset, to_offset) and max >= timestamp (a chunk that
 * only ends above from_offset counts). O(log n): adds the tree nodes visited to *inout_nodes. */
bool fq_chunks_search(const struct fq_chunks *chunks, int64_t from_offset, int64_t to_offset,
                      int64_t timestamp_ms, struct fq_chunk_hit *ret, uint64_t *inout_nodes);

/* A sealed segment's chunks as the bytes of an `.index` file (README.md, "Index file") and back.
 * encoded_bytes is 0 and encode is NOT_FOUND when the segment is unknown or not wholly covered by
 * chunks of its own. */
size_t fq_chunks_encoded_bytes(const struct fq_chunks *chunks, int64_t segment_base);
int fq_chunks_encode(const struct fq_chunks *chunks, const struct fq_uuid *topic_id,
                     uint32_t partition, int64_t segment_base, void *out, size_t out_bytes);
/* Appends a sealed segment behind those that are there. Checks everything that can be checked
 * without the log: CORRUPT, VERSION, INVALID (not behind the last segment), NO_MEMORY; nothing is
 * changed then. `segment_end` and `data_bytes` are what the log says about the segment. */
int fq_chunks_load(struct fq_chunks *chunks, const struct fq_uuid *topic_id, uint32_t partition,
                   int64_t segment_base, int64_t segment_end, uint64_t data_bytes,
                   const void *bytes, size_t length, struct fq_err *err);

/* ---- feeder: shard side -------------------------------------------------------------------- */

/* No record below `offset`, as far back as the calendar goes, is of a second >= `second`, unless an
 * earlier mark says so: the running maximum reaches `second` at or after `offset`. Offsets are
 * bases of chunks (or batches): a query scans a whole chunk anyway. */
struct fq_calendar_mark {
    int64_t second; /* floor(timestamp / 1000) */
    int64_t offset;
};

/* Floor division: the second a timestamp lies in. Any int64. */
int64_t fq_calendar_second(int64_t timestamp_ms);

/* Turns running maxima into marks. */
struct fq_calendar_feeder {
    int64_t next_offset;    /* everything below was considered */
    int64_t second;         /* of the running maximum; INT64_MIN: none yet */
    int64_t mark_offset;    /* of the last mark; INT64_MIN: none known */
    uint32_t chunks_unsaid; /* considered since complete_to was last handed over */
};

/* `complete_to` is the calendar's (0: empty). The seconds before it need not be known: marks of a
 * second that the calendar has are passed over by fq_calendar_apply. Also after a truncation, with
 * the offset of the cut. */
void fq_calendar_feeder_init(struct fq_calendar_feeder *feeder, int64_t complete_to);

/* After a trim (and after its cut was handed over): when the record that made the running maximum
 * is gone, the maximum starts again at the log start; fq_calendar_trim forgets it too. So one
 * record far in the future does not keep the calendar empty for ever. */
void fq_calendar_feeder_trim(struct fq_calendar_feeder *feeder, int64_t log_start);

/* One batch (or chunk). true: *ret is a mark to hand over. When it cannot be handed over, the
 * feeder must be put back to what it was (it is a small struct: copy it before). */
bool fq_calendar_feeder_add(struct fq_calendar_feeder *feeder, int64_t offset,
                            int64_t max_timestamp, struct fq_calendar_mark *ret);

/* Hands over a mark; `mark` NULL: only complete_to has advanced. false: no room now, ask again. */
typedef bool (*fq_calendar_emit)(void *context, const struct fq_calendar_mark *mark,
                                 int64_t complete_to);

/* Feeds the calendar from the chunks: every chunk but the last that is wholly committed (below
 * `committed_end`) and not yet fed, at most `chunks_max` a call, at most one mark a chunk. Cheap
 * when there is nothing new: fit for every round. It is the live feed, the catching up after a
 * start and the rebuilding of a lost calendar in one. Returns 1 when there is more to do
 * (chunks_max reached, or emit said no: it will be asked the same again), else 0. */
int fq_calendar_feeder_step(struct fq_calendar_feeder *feeder, const struct fq_chunks *chunks,
                            int64_t committed_end, unsigned chunks_max, fq_calendar_emit emit,
                            void *context);

/* ---- calendar: housekeeper side ------------------------------------------------------------ */

/* `partition` names topic id and partition; its `node` is ignored. All but query work within the
 * caller's transaction on `meta`; on an error the caller aborts it. NO_SPACE: abort, then
 * fq_calendar_drop in a transaction of its own, and go on (the calendar starts again with the next
 * mark, and queries go by the chunks alone until then). CORRUPT: likewise. A calendar keeps at most
 * FQ_LIMIT_CALENDAR_MINUTES minute nodes: the oldest give way. */

/* Adds marks, in the order they were made, and declares the calendar complete up to `complete_to`
 * (exclusive). A mark of a second that is already reached only counts for complete_to. */
int fq_calendar_apply(struct fq_meta *meta, const struct fq_meta_key *partition,
                      const struct fq_calendar_mark *marks, size_t marks_count, int64_t complete_to,
                      struct fq_err *err);
/* Forgets what is at or above `offset`; complete_to comes down to it. */
int fq_calendar_truncate(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t offset,
                         struct fq_err *err);
/* Forgets minutes of which every mark is followed by another at or below log_start; forgets all
 * when every mark is below it. */
int fq_calendar_trim(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t log_start,
                     struct fq_err *err);
/* Removes every node of the partition. */
int fq_calendar_drop(struct fq_meta *meta, const struct fq_meta_key *partition, struct fq_err *err);

struct fq_calendar_state {
    int64_t complete_from, complete_to;
    int64_t last_second;
    uint64_t minutes_count;
};
/* NOT_FOUND: empty; CORRUPT: drop it. */
int fq_calendar_get_state(struct fq_meta *meta, const struct fq_meta_key *partition,
                          struct fq_calendar_state *ret);

struct fq_calendar_answer {
    bool found;     /* there is a calendar and it is whole */
    int64_t offset; /* no record in [complete_from, offset) has timestamp >= T */
    int64_t complete_from;
    int64_t complete_to; /* what lies beyond was not fed yet; offset is never above it */
    uint64_t nodes;      /* nodes visited */
};
/* 0 also when there is no calendar or it is damaged (ret->found is false). At most
 * FQ_CALENDAR_QUERY_NODES_MAX nodes, whatever the size of the log. */
#define FQ_CALENDAR_QUERY_NODES_MAX 6
int fq_calendar_query(struct fq_meta *meta, const struct fq_meta_key *partition,
                      int64_t timestamp_ms, struct fq_calendar_answer *ret);

/* ---- the whole query: shard side ----------------------------------------------------------- */

/* Visits the batches that overlap [from_offset, to_offset) in offset order, beginning at the chunk
 * that lies at (segment_base, position): fq_log_scan_near, with context = the log. */
typedef int (*fq_timeindex_scan)(void *context, int64_t from_offset, int64_t to_offset,
                                 int64_t segment_base, uint64_t position, fq_log_visitor visitor,
                                 void *visitor_context);

struct fq_timeindex_query {
    const struct fq_chunks *chunks;
    const struct fq_calendar_answer *calendar; /* NULL: none */
    int64_t timestamp_ms;
    int64_t from_offset;
    int64_t log_start, end; /* what readers may see: [log_start, end) */
    fq_timeindex_scan scan;
    void *scan_context;
};

struct fq_timeindex_result {
    struct fq_time_query_answer answer; /* FOUND, CANDIDATE, END and the cost */
    unsigned chunks_scanned;            /* 0, 1 or 2: the one that holds from_offset may only have
                                           earlier records that are late enough */
    bool calendar_used;    /* its hint was confirmed and moved the start of the search */
    bool calendar_refuted; /* it was wrong: drop and feed it again */
};

/* 0, or what `scan` returned (negative). */
int fq_timeindex_query(const struct fq_timeindex_query *query, struct fq_timeindex_result *ret,
                       struct fq_err *err);

#endif
