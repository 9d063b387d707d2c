/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside broker/storage: one segment and its file.
 *
 *                 zeroed, synced        roll                seal
 *   (created) ──► PREPARED ───────────► OPEN ─────────────► SEALED
 *                    ▲                   │ ▲    truncate       │
 *                    │ zeroed, synced    │ └───────────────────┤
 *                    └────── FREE ◄──────┴─────────────────────┘
 *                             retired
 *
 *   A PREPARED one that is lent out beside its log (log_lend.c) becomes FREE, and OPEN from there.
 *
 *   FREE      nothing of it is data, whatever is in it. In the pool, on the way there, or lent.
 *   PREPARED  zero but for identity and state. In the pool, or beside a log as its next segment (then
 *             perhaps, on memory, with what that log was trimmed of: MEDIA.md, "Former lives").
 *   OPEN      identity is this life's; data up to the tail. The last of its log, or full and
 *             about to be sealed. Where a sync is needed, all bytes above its written end are zero.
 *   SEALED    never written again, but by a truncation into it. The seal block holds.
 *
 * A file becomes OPEN only when everything below its base offset is durable, so a successor proves
 * its predecessor complete: what is missing between two segments is damage, never a crash's rest.
 *
 * Threads: a segment belongs to its log's shard from the moment it is supplied until it is retired,
 * then to the housekeeper. The file below it is reference counted; the flusher holds it while
 * queued.
 */
#ifndef FQ_STORAGE_SEGMENT_H
#define FQ_STORAGE_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "storage/jobs.h"
#include "storage/layout.h"
#include "storage/log.h"
#include "storage/persist.h"

struct fq_log_shared;

/* next-N.log -> <base offset>.log, by the housekeeper: names are for people, headers count. */
struct fq_rename_job {
    struct fq_job job;
    char *from, *to;
};

struct fq_segfile {
    struct fq_job
        flush_job; /* while `queued`, in the flusher's inbox, which then holds a reference */
    _Atomic unsigned refs;
    struct fq_pfile pf;
    struct fq_log_shared *shared; /* whose durable end a flush moves; NULL: nobody's */
    _Atomic int64_t wanted_end;   /* written bytes reach this offset (release; flusher acquires) */
    _Atomic bool queued;
    _Atomic bool is_flushing; /* pairs with wanted_end, see fq_segfile_retract */
    pthread_mutex_t sync_lock;
};

int fq_segfile_open(struct fq_persist *persist, const char *path, struct fq_segfile **ret,
                    struct fq_err *err);
/* Where the medium has begin and grow, it is the caller's to grow. */
int fq_segfile_create(struct fq_persist *persist, const char *path, uint64_t bytes,
                      struct fq_segfile **ret, struct fq_err *err);
struct fq_segfile *fq_segfile_ref(struct fq_segfile *file);
void fq_segfile_unref(struct fq_segfile *file); /* the last one unmaps and closes; NULL is fine */

/* Syncs the file of a log. The kernel tells of a page that it could not write once, to whoever
 * syncs next: so one thread at a time, and an error has taken the log offline before another thread
 * can be told that all is well. OFFLINE: it is, by an earlier error. Blocks. */
int fq_segfile_sync(struct fq_segfile *file, const char *what);
/* Lowers wanted_end and waits until no flush that saw a higher one is running. */
void fq_segfile_retract(struct fq_segfile *file, int64_t end);

struct fq_index_entry {
    int64_t base_offset; /* of the first batch that begins at or after its 64 KiB chunk's start */
    uint64_t position;
};

struct fq_segment {
    /* What the medium says (kept in step by the functions below). */
    enum fq_segment_state state;
    struct fq_segment_identity identity;
    struct fq_segment_epoch epochs[FQ_SEGMENT_EPOCHS];
    uint32_t epochs_count;
    int32_t last_epoch;     /* found by recovery's walk */
    bool is_epochs_damaged; /* then an epoch only may not go down */

    /* Run time; the shard's. */
    struct fq_store *store;
    struct fq_log *log; /* NULL: outlived its log, freed at the last unpin */
    uint64_t id;
    char *path;              /* a queued rename to it counts as done: jobs run in order */
    struct fq_segfile *file; /* NULL: sealed and not mapped yet */
    struct fq_region *region;
    uint64_t data_bytes; /* appended */
    int64_t end_offset;
    uint64_t published_bytes; /* what the tail word says */
    uint64_t touched_bytes;   /* what the touched word says; 0: there is none */
    unsigned pins;
    bool is_retired;
    bool unlink_only;    /* a peer may still map it: never recycle */
    bool has_former;     /* memory: above the data lie bytes of the file's life before */
    bool is_index_whole; /* index covers all data (else: built on demand up to index_next) */

    struct fq_index_entry *index; /* sparse, one entry a chunk; room for all of them */
    uint32_t index_count, index_capacity;
    struct fq_index_entry index_next; /* first batch not looked at yet */

    /* Jobs for the housekeeper. */
    struct fq_rename_job *rename_job; /* made with the segment, given away when it is opened */
    struct fq_job retire_job;
    struct fq_segfile *retire_after; /* synced first: its start word makes the removal safe */
};

/* The only place that changes a state: checks the transition, stores the state word. Not durable
 * before the next drain/sync. Only persist errors. */
int fq_segment_set_state(struct fq_segment *segment, enum fq_segment_state next);

/* Memory for a segment of `file_bytes` (index included); the file is the caller's to set. */
struct fq_segment *fq_segment_create(struct fq_store *store, uint64_t file_bytes);
void fq_segment_destroy(struct fq_segment *segment); /* drops the file; NULL is fine */

/* PREPARED (or lent: FREE) -> OPEN: identity, tail, end, first epoch; fence; state word. */
int fq_segment_take_into_use(struct fq_segment *segment,
                             const struct fq_segment_identity *identity);
int fq_segment_store_tail(struct fq_segment *segment, uint64_t position, int64_t end_offset);
int fq_segment_store_seal(struct fq_segment *segment, int64_t last_retention_ms);
/* Memory only: from now on nothing above `position` has been written. Durable on return, so before
 * a store above an earlier one. */
int fq_segment_store_touched(struct fq_segment *segment, uint64_t position);
int fq_segment_store_start(struct fq_segment *segment, int64_t start_offset);
/* The epoch that holds for `offset`. */
int32_t fq_segment_epoch_at(const struct fq_segment *segment, int64_t offset);
int fq_segment_add_epoch(struct fq_segment *segment, int64_t from_offset, int32_t epoch);
int fq_segment_drop_epochs(struct fq_segment *segment, int64_t from_offset);

/* Makes room for the final name; before a prepared segment is given to a log. NO_MEMORY. */
int fq_segment_prepare_names(struct fq_segment *segment, const char *dir);
/* From now on it is called <base offset>.log; the housekeeper renames it. */
void fq_segment_use_final_name(struct fq_segment *segment);
/* Maps a sealed segment that is not. */
int fq_segment_map(struct fq_segment *segment, struct fq_err *err);
static inline const uint8_t *fq_segment_bytes(const struct fq_segment *segment)
{
    return segment->file->pf.map + FQ_SEG_DATA;
}
void fq_segment_index_add(struct fq_segment *segment, int64_t base_offset, uint64_t position);
int fq_segment_zero(struct fq_segment *segment, uint64_t from, uint64_t to); /* data positions */

#endif
