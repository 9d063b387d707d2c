/* SPDX-License-Identifier: Apache-2.0 */
/* Inside broker/storage: a log's own struct, shared by log.c, log_read.c, log_remove.c, recovery.c.
 */
#ifndef FQ_STORAGE_LOG_IMPL_H
#define FQ_STORAGE_LOG_IMPL_H

#include "storage/log.h"
#include "storage/segment.h"
#include "storage/store_impl.h"

#define FQ_LOG_DAMAGE_MAX 1024u /* further damage is counted, not described */

struct fq_log {
    struct fq_store *store;
    struct fq_persist *persist;
    struct fq_log_shared *shared;
    struct fq_uuid topic_id;
    uint32_t partition;
    uint64_t segment_bytes, retention_bytes;

    struct fq_segment **segments; /* by base offset; the last may be open */
    size_t segments_count, segments_capacity;
    struct fq_segment *next;     /* PREPARED, taken from shared->ready */
    struct fq_segment **zombies; /* retired and still pinned */
    size_t zombies_count, zombies_capacity;

    int64_t start, end;
    int64_t published_end;                 /* pmem: durable; disks: asked to be */
    const struct fq_segment *late_segment; /* disks: where the next tail word goes once */
    int64_t late_end;                      /* this end is durable; NULL: none chosen */
    uint64_t late_bytes;
    int32_t last_epoch;
    uint64_t bytes;          /* data in all segments */
    uint64_t reserved_bytes; /* of the running reservation; 0: none */
    bool is_ask_due;         /* the next segment has not been asked for yet */
    bool is_end_due;         /* memory: fq_log_end_data, before what was committed is fenced */
    bool is_lent;            /* a peer may store above the end of the open segment */
    bool is_next_lent;       /* and in the next one, which is FREE on the medium */

    struct fq_damage *damage;
    size_t damage_count, damage_capacity;
    uint64_t cut_bytes;
};

static inline struct fq_segment *fq_log_last(const struct fq_log *log)
{
    return log->segments_count > 0 ? log->segments[log->segments_count - 1] : NULL;
}

/* Appends to the list; NO_MEMORY. */
int fq_log_add_segment(struct fq_log *log, struct fq_segment *segment);
/* The file's flushes move this log's durable end. */
void fq_log_bind(struct fq_log *log, struct fq_segment *segment);
/* What log_lend.c needs of log.c: the next segment if it is here and holds `length` (asks for it
 * otherwise), the roll into it, and whether the open one takes a batch of that length. */
int fq_log_take_next(struct fq_log *log, uint64_t length, struct fq_err *err);
int fq_log_roll(struct fq_log *log, uint64_t length, struct fq_err *err);
void fq_log_end_data(struct fq_log *log);
bool fq_log_fits(const struct fq_log *log, const struct fq_segment *last, uint64_t length);
int fq_log_refuse_offline(struct fq_log *log, struct fq_err *err);
/* Takes the log offline for good and returns `code`. */
int fq_log_fail(struct fq_log *log, int code, const char *what);
/* Removes the first `count` segments from the list and retires them; `after` (may be NULL) is
 * synced before any of them is touched. */
void fq_log_retire_first(struct fq_log *log, size_t count, struct fq_segment *after);
void fq_log_retire_unpinned(struct fq_segment *segment);

struct fq_log_damage_at {
    const char *path;
    uint64_t position, bytes;
    int64_t first_offset, next_offset;
    const char *what;
};
void fq_log_add_damage(struct fq_log *log, const struct fq_log_damage_at *at);

/* recovery.c */
int fq_log_recover(struct fq_log *log, fq_log_visitor visitor, void *context, struct fq_err *err);

#endif
