/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time index of one partition: the first record with timestamp >= T, exactly as a scan of
 * [log start, end) in offset order would find it, for any order of timestamps.
 *
 * Levels: calendar (day -> hour -> minute -> second; a second points at the first record whose running
 * maximum reached it; in meta.pool, owned by the housekeeper), chunks per segment (64 KiB of log or one
 * batch: offset, position, min, max), a max-tree over segments and chunks, then a scan of one chunk.
 *
 * The chunk part (struct fq_chunks) belongs to the partition's shard. The calendar part (struct
 * fq_calendar) belongs to the housekeeper; the shard feeds it with fq_calendar_mark values through a
 * ring and asks it through another. What the calendar answers is a hint that is checked against the
 * log: when it is below the log start, beyond what it covers, or does not hold, chunks answer alone.
 */
#ifndef FQ_TIMEINDEX_TIMEINDEX_H
#define FQ_TIMEINDEX_TIMEINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/meta.h"

/* ---- chunks: shard side -------------------------------------------------------------------- */

struct fq_chunk {               /* 32 bytes on media, sealed segments' `.index` files */
    int64_t base_offset;        /* of its first batch */
    uint64_t position;          /* in the segment's data */
    int64_t min_timestamp, max_timestamp;
};

struct fq_chunks;               /* all segments of one partition */

int fq_chunks_create(struct fq_chunks **ret);
void fq_chunks_destroy(struct fq_chunks *chunks);

/* One call per appended batch, in order. At most one insert per 64 KiB chunk. `segment_base` is the
 * base offset of its segment. Never fails on the path of a record: memory is reserved ahead by
 * fq_chunks_reserve (called off the path); when it has run out the chunk just grows coarser. */
void fq_chunks_add(struct fq_chunks *chunks, int64_t segment_base, int64_t base_offset,
                   uint64_t position, uint64_t bytes, int64_t min_timestamp, int64_t max_timestamp);
int fq_chunks_reserve(struct fq_chunks *chunks);
bool fq_chunks_wants_reserve(const struct fq_chunks *chunks);

void fq_chunks_trim(struct fq_chunks *chunks, int64_t log_start); /* drop what is wholly below */
void fq_chunks_truncate(struct fq_chunks *chunks, int64_t offset); /* drop entries >= offset; the
                                                 caller re-adds batches of a chunk that was cut */

/* The chunk that holds `offset`: for finding a batch without scanning the segment. */
bool fq_chunks_locate(const struct fq_chunks *chunks, int64_t offset, int64_t *ret_segment_base,
                      struct fq_chunk *ret);

/* First chunk at or after `from_offset` whose max >= timestamp (max-tree; O(log n)). */
struct fq_chunk_hit {
    int64_t segment_base;
    struct fq_chunk chunk;
    uint64_t end_position;      /* where the next chunk of the segment begins; UINT64_MAX: the last */
};
bool fq_chunks_search(const struct fq_chunks *chunks, int64_t from_offset, int64_t timestamp_ms,
                      struct fq_chunk_hit *ret, uint64_t *inout_nodes);

/* A sealed segment's chunks as the bytes of an `.index` file (magic, version, topic id, partition,
 * base offset, count, entries, CRC-32C) and back; decode checks everything. */
size_t fq_chunks_encoded_bytes(const struct fq_chunks *chunks, int64_t segment_base);
int fq_chunks_encode(const struct fq_chunks *chunks, const struct fq_uuid *topic_id,
                     uint32_t partition, int64_t segment_base, void *out, size_t out_bytes);
int fq_chunks_load(struct fq_chunks *chunks, const struct fq_uuid *topic_id, uint32_t partition,
                   int64_t segment_base, const void *bytes, size_t length, struct fq_err *err);

/* ---- calendar: housekeeper side ------------------------------------------------------------ */

struct fq_calendar_mark {       /* the running maximum reached a new second */
    int64_t second;
    int64_t offset;             /* of the record (uncompressed) or batch (compressed) that did */
};

/* Turns running maxima into marks on the shard; remembers the last second. */
struct fq_calendar_feeder {
    int64_t max_timestamp;      /* INT64_MIN at first */
};

/* Adds marks of one partition and declares the calendar complete up to `complete_to` (exclusive
 * offset), within the caller's transaction on `meta`. */
int fq_calendar_apply(struct fq_meta *meta, const struct fq_meta_key *partition,
                      const struct fq_calendar_mark *marks, size_t marks_count, int64_t complete_to,
                      struct fq_err *err);
int fq_calendar_truncate(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t offset,
                         struct fq_err *err);
int fq_calendar_trim(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t log_start,
                     struct fq_err *err);
int fq_calendar_drop(struct fq_meta *meta, const struct fq_meta_key *partition, struct fq_err *err);

struct fq_calendar_answer {
    bool found;                 /* offset: no record below it (since the calendar's start) has a
                                   running maximum >= the query; the record is at or after it */
    int64_t offset;
    int64_t complete_to;        /* beyond this, chunks answer */
    int64_t complete_from;      /* records below may be unknown to it (rebuilt, trimmed) */
};
int fq_calendar_query(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t timestamp_ms,
                      struct fq_calendar_answer *ret, uint64_t *inout_nodes);

#endif
