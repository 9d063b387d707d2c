/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store: one data directory (medium `dir`) with its pool of prepared segments. MEDIA.md describes
 * the files. Shared by the shards: taking a prepared segment and handing one back go through
 * single-producer rings (one pair per shard); everything slow is done by fq_store_step on the
 * housekeeper's thread.
 */
#ifndef FQ_STORAGE_STORE_H
#define FQ_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct fq_store;

enum fq_flush { FQ_FLUSH_AUTO, FQ_FLUSH_PMEM, FQ_FLUSH_SYNC };

struct fq_store_params {
    const char *data_dir;
    enum fq_flush flush;            /* auto: pmem on DAX, else sync */
    unsigned shards_count;
    uint64_t segment_bytes_max;     /* log.segment.bytes */
    uint64_t prepared_bytes;        /* floor per store: log.prepared.bytes */
    uint64_t batch_bytes_max;
};

/* Locks the directory (another live broker: FLASHQ_ERR_BUSY, named), checks the media version,
 * quarantines what it does not know. Does not wait for the pool to be filled. */
int fq_store_open(const struct fq_store_params *params, struct fq_store **ret, struct fq_err *err);
void fq_store_close(struct fq_store *store, bool clean);

/* Housekeeper: prepares, recycles, unlinks; returns how much it did (0: idle). May block on disk. */
int fq_store_step(struct fq_store *store, int64_t now_us);
/* Descriptor that is readable when step has work. */
int fq_store_wake_fd(struct fq_store *store);
/* Flusher: syncs every file that shards have queued; returns how many. Blocks on the disk. */
int fq_store_flush_step(struct fq_store *store);
int fq_store_flush_fd(struct fq_store *store);

/* Words for people: medium ("dir ext4", "dir tmpfs"), flush ("sync", "pmem (emulated: not DAX)"),
 * guarantee ("an acknowledged record survives power loss", ...). */
const char *fq_store_medium(const struct fq_store *store);
const char *fq_store_flush(const struct fq_store *store);
const char *fq_store_guarantee(const struct fq_store *store);

struct fq_store_stats {
    uint64_t prepared_count, prepared_bytes, recycled, created, unlinked, starved, syncs, sync_errors,
        quarantined;
};
void fq_store_get_stats(const struct fq_store *store, struct fq_store_stats *ret);

#endif
