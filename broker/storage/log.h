/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's log: an ordered list of segments of which the last is open. Knows bytes, offsets
 * and durability; knows nothing of connections, replication or time queries.
 *
 * One thread (the partition's shard) uses a log. The housekeeper prepares and recycles segments
 * through the store; the flusher calls sync.
 *
 * Append, in order (numbers are those of MEDIA.md, "Store order"):
 *   fq_log_reserve      a place for `length` bytes at the tail: rolls to a prepared segment if need be
 *   fq_log_write        the bytes, from memory that nobody else can change any more (stamped)
 *   fq_log_commit_batch data fence, then the batch counts as appended: end, positions, offset index
 *   fq_log_publish      the tail word (once per poll round), then its fence
 *   durable             fq_log_durable_end: pmem: after publish; disks: when the flusher synced
 */
#ifndef FQ_STORAGE_LOG_H
#define FQ_STORAGE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/store.h"
#include "wire/protocol.h"
#include "wire/record_batch.h"

struct fq_log;
struct fq_segment;

enum fq_reserve {
    FQ_RESERVE_OK = 0,
    FQ_RESERVE_STARVED = 1 /* no prepared segment now: leave the ring undrained, try again */
};

struct fq_log_params {
    struct fq_uuid topic_id;
    const char *topic;         /* for names of files and messages */
    uint32_t partition;
    uint64_t segment_bytes;    /* the most a segment grows to; may change later */
    uint64_t retention_bytes;  /* 0: unlimited */
};

/* Called for each valid batch during recovery and scans, in offset order. `batch` points into the
 * mapping. Return non-zero to stop (fq_log_scan returns it). */
typedef int (*fq_log_visitor)(void *context, const struct fq_batch_header *header,
                              const uint8_t *batch, uint64_t segment_base, uint64_t position);

/* Opens and recovers what the store has for (topic id, partition); nothing there is an empty log at
 * offset 0. The visitor (may be NULL) sees the batches of unsealed segments, which recovery walks
 * anyway. Damage below the tail is recorded (fq_log_damage_*), kept, and served around. */
int fq_log_open(struct fq_store *store, const struct fq_log_params *params, fq_log_visitor visitor,
                void *context, struct fq_log **ret, struct fq_err *err);
/* Seals nothing; makes what is appended durable if `clean`, then forgets. */
void fq_log_close(struct fq_log *log, bool clean);
/* Removes all its files (topic deleted). Closes. */
int fq_log_delete(struct fq_log *log, struct fq_err *err);

/* --- append --------------------------------------------------------------------------------- */
int fq_log_reserve(struct fq_log *log, uint64_t length, int64_t base_offset, struct fq_err *err);
int fq_log_write(struct fq_log *log, const void *stamped_batch, uint64_t length);
int fq_log_commit_batch(struct fq_log *log, const struct fq_batch_header *header);
int fq_log_publish(struct fq_log *log);

/* --- state ---------------------------------------------------------------------------------- */
int64_t fq_log_start(const struct fq_log *log);       /* first readable offset */
int64_t fq_log_end(const struct fq_log *log);         /* next offset to append */
int64_t fq_log_durable_end(const struct fq_log *log); /* everything below is durable */
uint64_t fq_log_bytes(const struct fq_log *log);
bool fq_log_is_offline(const struct fq_log *log, struct fq_err *ret_why);

/* --- reading -------------------------------------------------------------------------------- */
struct fq_log_place {
    struct fq_segment *segment;
    uint64_t position;         /* of the batch in the segment's data */
    int64_t base_offset;       /* of the batch */
};
/* Finds the batch that holds `offset` (or, at the end, the place where it will be). TRIMMED,
 * OUT_OF_RANGE, CORRUPT (damaged there: ret->base_offset is the next readable offset). */
int fq_log_find(struct fq_log *log, int64_t offset, struct fq_log_place *ret);
int fq_log_scan(struct fq_log *log, int64_t from_offset, int64_t to_offset, fq_log_visitor visitor,
                void *context);

/* --- segments as readers see them ------------------------------------------------------------ */
struct fq_segment *fq_log_segment_first(struct fq_log *log);
struct fq_segment *fq_segment_next(struct fq_segment *segment); /* NULL after the open one */
uint64_t fq_segment_id(const struct fq_segment *segment);       /* unique in this store's life */
int64_t fq_segment_base_offset(const struct fq_segment *segment);
int64_t fq_segment_end_offset(const struct fq_segment *segment);
bool fq_segment_is_sealed(const struct fq_segment *segment);
const uint8_t *fq_segment_data(const struct fq_segment *segment);  /* the mapped data */
uint64_t fq_segment_data_bytes(const struct fq_segment *segment);  /* appended so far */
uint64_t fq_segment_capacity(const struct fq_segment *segment);
/* The fabric region over the whole file (header included), created on first use. */
struct fq_region *fq_segment_region(struct fq_segment *segment, struct fq_err *err);
/* A reader holds the segment: it is neither recycled nor unmapped until released. */
void fq_segment_pin(struct fq_segment *segment);
void fq_segment_unpin(struct fq_segment *segment);

/* --- removing ------------------------------------------------------------------------------- */
/* Moves the log start to `offset` (<= end); whole segments below it are retired: unlinked or
 * recycled once unpinned. Persistent when it returns 0. */
int fq_log_trim(struct fq_log *log, int64_t offset, struct fq_err *err);
/* Drops everything at and above `offset` (a batch boundary or the batch that holds it goes too).
 * Persistent when it returns 0. */
int fq_log_truncate(struct fq_log *log, int64_t offset, struct fq_err *err);
/* Applies retention.bytes; returns the number of segments retired. */
int fq_log_apply_retention(struct fq_log *log);

/* --- damage --------------------------------------------------------------------------------- */
struct fq_damage {
    char path[256];
    uint64_t position, bytes;       /* in the file */
    int64_t first_offset, next_offset; /* offsets lost: [first, next) */
    char what[96];
};
size_t fq_log_damage_count(const struct fq_log *log);
const struct fq_damage *fq_log_damage_at(const struct fq_log *log, size_t index);

#endif
