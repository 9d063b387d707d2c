/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store: one data directory (medium `dir`) with its pool of prepared segments. MEDIA.md describes
 * the files. Shared by the shards. Asking for a prepared segment, handing one back and queueing a
 * file for the flusher are pushes of an embedded node onto a lock-free stack; everything slow is
 * done by fq_store_step on the housekeeper's thread and fq_store_flush_step on the flusher's.
 */
#ifndef FQ_STORAGE_STORE_H
#define FQ_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/protocol.h"

struct fq_store;
struct fq_persist;

enum fq_flush { FQ_FLUSH_AUTO, FQ_FLUSH_PMEM, FQ_FLUSH_SYNC };

struct fq_store_params {
    const char *data_dir;         /* made if absent (its parent must exist) */
    enum fq_flush flush;          /* auto: pmem on DAX, else sync */
    unsigned shards_count;        /* at least this many first segments are kept prepared */
    uint64_t segment_bytes_max;   /* log.segment.bytes */
    uint64_t segment_bytes_first; /* 0: 1 MiB; raised to batch_bytes_max plus a header */
    uint64_t prepared_bytes;      /* floor per store: log.prepared.bytes */
    uint64_t batch_bytes_max;
    struct fq_persist *persist; /* tests: used instead of what `flush` says; stays the caller's */
};

/* Locks the directory (another live broker: FLASHQ_ERR_BUSY, named), checks the media version
 * (FLASHQ_ERR_VERSION) and the limits on open files and mappings (FLASHQ_ERR_LIMIT), finds what the
 * pool has. Does not wait for the pool to be filled, and needs no free byte when the directory has
 * been used before. */
int fq_store_open(const struct fq_store_params *params, struct fq_store **ret, struct fq_err *err);
/* All logs must be closed. `clean` finishes what the housekeeper and the flusher still have to do.
 */
void fq_store_close(struct fq_store *store, bool clean);

/* Housekeeper: prepares, recycles, unlinks; returns how much it did (0: idle). May block on disk.
 */
int fq_store_step(struct fq_store *store, int64_t now_us);
/* When step must run even if nobody wakes it (a retry after "no space"; the pool shrinks after a
 * burst); INT64_MAX: never. */
int64_t fq_store_next_deadline_us(const struct fq_store *store);
/* Descriptor to sleep on: arm, call step once more (0: nothing came in between), sleep, disarm. */
int fq_store_wake_fd(struct fq_store *store);
void fq_store_wake_arm(struct fq_store *store);
void fq_store_wake_disarm(struct fq_store *store);
/* Flusher: syncs every file that shards have queued; returns how many. Blocks on the disk. */
int fq_store_flush_step(struct fq_store *store);
int fq_store_flush_fd(struct fq_store *store);
void fq_store_flush_arm(struct fq_store *store);
void fq_store_flush_disarm(struct fq_store *store);
/* Called on the flusher's (durable) or housekeeper's (segment ready) thread after something a log
 * waits for has happened: the owner wakes its shards. Set before threads start; may be NULL. */
void fq_store_on_progress(struct fq_store *store, void (*wake)(void *context), void *context);

/* Words for people: medium ("dir ext4", "dir tmpfs"), flush ("sync", "pmem (emulated: not DAX)"),
 * guarantee ("an acknowledged record survives power loss", ...). */
const char *fq_store_medium(const struct fq_store *store);
const char *fq_store_flush(const struct fq_store *store);
const char *fq_store_guarantee(const struct fq_store *store);
const char *fq_store_data_dir(const struct fq_store *store);
/* true: records are durable only after the flusher has run. */
bool fq_store_needs_flusher(const struct fq_store *store);

struct fq_store_stats {
    uint64_t prepared_count, prepared_bytes; /* in the pool now */
    uint64_t recycled, created, unlinked;
    uint64_t starved;    /* reservations that found no prepared segment */
    uint64_t roll_waits; /* reservations that waited for the flusher at the end of a segment */
    uint64_t no_space;   /* preparations refused by the medium */
    uint64_t syncs, sync_errors, quarantined, damage;
};
void fq_store_get_stats(const struct fq_store *store, struct fq_store_stats *ret);

/* --- topics as directories (not from a shard: these block) ------------------------------------ */

/* Calls `visitor` for every topic directory: its (possibly shortened) name, id, and one more than
 * its highest partition folder. Stops at, and returns, non-zero. For rebuilding a lost catalogue.
 */
int fq_store_visit_topics(struct fq_store *store,
                          int (*visitor)(void *context, const char *name, const struct fq_uuid *id,
                                         uint32_t partitions_count),
                          void *context, struct fq_err *err);
/* Deletes a topic's files: one durable rename, the rest by the housekeeper. Its logs must be
 * closed. NOT_FOUND is success. */
int fq_store_delete_topic(struct fq_store *store, const struct fq_uuid *id, struct fq_err *err);
/* Moves a file or folder of the data directory (a path relative to it) into quarantine. */
int fq_store_quarantine(struct fq_store *store, const char *relative, const char *why,
                        struct fq_err *err);

/* Small files with a CRC: written beside, synced, renamed, directory synced. `topic` NULL: in the
 * data directory itself; else in the topic's folder, which is made if absent. */
int fq_store_write_file(struct fq_store *store, const char *topic, const struct fq_uuid *id,
                        const char *name, const void *bytes, size_t length, struct fq_err *err);
/* *ret is the caller's to free. NOT_FOUND, CORRUPT. */
int fq_store_read_file(struct fq_store *store, const struct fq_uuid *id, const char *name,
                       void **ret, size_t *ret_length, struct fq_err *err);
#define FQ_STORE_FILE_BYTES_MAX (1u << 20)

#endif
