/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside broker/storage: the store's own struct, and what a log and the housekeeper share.
 */
#ifndef FQ_STORAGE_STORE_IMPL_H
#define FQ_STORAGE_STORE_IMPL_H

#include <stdatomic.h>

#include "base/limits.h"
#include "base/wake.h"
#include "storage/jobs.h"
#include "storage/segment.h"
#include "storage/store.h"

#define FQ_POOL_CLASSES 64u

/* What a log and the housekeeper and flusher share. Lives until the last of them lets go. */
enum fq_supply { FQ_SUPPLY_NONE, FQ_SUPPLY_ASKED, FQ_SUPPLY_NO_SPACE, FQ_SUPPLY_FAILED };

struct fq_log_shared {
    struct fq_job supply_job; /* while ASKED or NO_SPACE: the housekeeper's */
    _Atomic unsigned refs;
    struct fq_store *store;
    struct fq_uuid topic_id;
    uint32_t partition;
    bool wants_zeros;      /* takes only segments that are zero above their header */
    char *topic_dir, *dir; /* absolute */

    /* Written by the shard before supply_job is pushed. */
    uint64_t want_bytes, least_bytes; /* sizes of the file; the least only if there is no space */
    uint64_t after_bytes;             /* what this log will want next */
    bool is_noted;                    /* the housekeeper has counted this request */
    _Atomic bool is_closed;

    _Atomic int supply;                 /* enum fq_supply; housekeeper stores with release */
    _Atomic(struct fq_segment *) ready; /* PREPARED and in `dir`; the shard takes it (acquire) */

    _Atomic int64_t durable_end; /* flusher stores (release), shard loads (acquire) */
    _Atomic int failed;          /* code; `why` is written before it (release) */
    struct fq_err why;           /* the first failure only */
};

struct fq_log_shared *fq_log_shared_create(struct fq_store *store, const struct fq_uuid *topic_id,
                                           const char *topic, uint32_t partition);
struct fq_log_shared *fq_log_shared_ref(struct fq_log_shared *shared);
void fq_log_shared_unref(struct fq_log_shared *shared);
/* Final: takes the log offline. The first caller's reason stays. Any thread. */
void fq_log_shared_fail(struct fq_log_shared *shared, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct fq_pool_file { /* PREPARED (is_ready) or FREE */
    struct fq_pool_file *next;
    struct fq_segfile *file; /* NULL: found at start, not opened yet (see fq_pool_adopt) */
    uint64_t bytes, number;
    uint64_t faulted; /* of a file that was found: faulted in up to here */
    uint64_t grown;   /* of one that is being made */
    uint64_t zeroed;  /* data bytes, of one that had a life before */
    bool is_ready;
    /* Memory: all of it is of this partition, from below its log start; as it is it may serve that
     * partition again. (MEDIA.md, "Former lives") */
    bool has_former;
    struct fq_uuid former_topic;
    uint32_t former_partition;
};

struct fq_pool_demand {
    uint64_t bytes;    /* the size; 0: unused */
    uint64_t floor;    /* kept ready always */
    uint64_t taken;    /* in the running second */
    uint64_t rate;     /* a second: the highest of late, halved each second */
    uint64_t promised; /* logs that will want one next */
    unsigned quiet;    /* seconds in which nobody asked */
};

struct fq_pool { /* the housekeeper's */
    struct fq_pool_file *files;
    struct fq_pool_demand demand[FQ_POOL_CLASSES];
    int64_t tick_us;      /* when rates fall next; INT64_MAX: they are all 0 */
    int64_t drop_from_us; /* what was found at start is kept until then */
    int64_t retry_at_us;  /* after "no space"; INT64_MAX: not waiting */
};

struct fq_store {
    char *dir;
    struct fq_persist *persist;
    bool owns_persist;
    int lock_fd;
    struct fq_store_params params; /* data_dir is `dir` */
    uint64_t first_bytes;          /* size of a first segment's file */
    char medium[64], flush[64], guarantee[192];

    struct fq_inbox keeper_inbox;
    struct fq_wake keeper_wake;
    struct fq_job *waiting; /* the housekeeper's: jobs that found no space, oldest first */
    struct fq_inbox flush_inbox;
    struct fq_wake flush_wake;
    struct fq_pool pool;
    int64_t now_us;         /* of the running step */
    bool is_abandoned;      /* closing: jobs only free what they hold */
    _Atomic bool purge_due; /* something was moved into `deleted/` */

    void (*on_progress)(void *context);
    void *progress_context;

    _Atomic uint64_t next_id, quarantine_number;
    _Atomic uint64_t prepared_count, prepared_bytes, recycled, created, unlinked, starved,
        roll_waits, no_space, syncs, sync_errors, quarantined, damage;
};

static inline struct fq_persist *fq_store_persist(struct fq_store *store)
{
    return store->persist;
}

static inline uint64_t fq_store_next_id(struct fq_store *store)
{
    return 1 + atomic_fetch_add_explicit(&store->next_id, 1, memory_order_relaxed);
}

static inline void fq_count(_Atomic uint64_t *counter, uint64_t by)
{
    (void)atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

uint64_t fq_store_random_life(void);
void fq_store_give(struct fq_store *store, struct fq_job *job); /* to the housekeeper */
/* Queues a sync of `file` if it is not queued; wanted_end must be set before. Never fails. */
void fq_store_flush_file(struct fq_store *store, struct fq_segfile *file);
void fq_store_progressed(struct fq_store *store);

int fq_store_run_jobs(struct fq_store *store);
/* Moves a folder (absolute) into `deleted/`, durably; absent: 0. */
int fq_store_discard(struct fq_store *store, const char *path, struct fq_err *err);
/* Unlinks a bounded number of what lies in `deleted/`: appends may be waiting for a segment. */
int fq_store_purge_some(struct fq_store *store);

/* pool.c */
int fq_pool_open(struct fq_store *store, struct fq_err *err);
void fq_pool_close(struct fq_store *store);
bool fq_pool_supply(struct fq_store *store, struct fq_job *supply_job);
bool fq_pool_retire(struct fq_store *store, struct fq_job *retire_job);
bool fq_pool_rename(struct fq_store *store, struct fq_job *rename_job);
/* The housekeeper faults in the file from `from` on, until the log is closed. Only a hint. */
void fq_pool_fault_in_later(struct fq_log_shared *shared, struct fq_segfile *file, uint64_t from);
void fq_rename_job_destroy(struct fq_rename_job *job);
int fq_pool_top_up(struct fq_store *store);

/* paths.c: all return 0 or LIMIT (too long). */
#define FQ_PATH_BYTES (FQ_LIMIT_PATH_BYTES + 512)
void fq_uuid_hex(const struct fq_uuid *id, char out[33]);
bool fq_uuid_parse(const char *hex32, struct fq_uuid *ret);
/* "<name>-<hex>"; a name over FQ_TOPIC_DIR_NAME_BYTES is cut and marked with '~'. */
#define FQ_TOPIC_DIR_NAME_BYTES 200u
void fq_topic_dir_name(const char *topic, const struct fq_uuid *id, char out[256]);
/* Splits such a folder's name; false: it is not one. */
bool fq_topic_dir_parse(const char *folder, char name[256], struct fq_uuid *ret);
/* Absolute path of the existing folder with this id, whatever its name; NOT_FOUND. */
int fq_topic_dir_find(const char *data_dir, const struct fq_uuid *id, char out[FQ_PATH_BYTES]);
/* "00000000000000000123.log" -> 123; "next-12.log" -> false with *ret_next. */
bool fq_segment_name_parse(const char *name, int64_t *ret_base, bool *ret_next);

#endif
