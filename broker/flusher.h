/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flusher: a thread that syncs what the shards have written, where the medium needs it. All
 * that was queued while one sync ran goes into the next (group commit).
 */
#ifndef FQ_BROKER_FLUSHER_H
#define FQ_BROKER_FLUSHER_H

#include "base/wake.h"
#include "storage/store.h"

struct fq_flusher {
    struct fq_store *store;
    struct fq_wake wake; /* for stopping */
    _Atomic int stop;
};

int fq_flusher_init(struct fq_flusher *flusher, struct fq_store *store);
void fq_flusher_fini(struct fq_flusher *flusher);
/* Returns how many files were synced. Blocks on the disk. */
unsigned fq_flusher_step(struct fq_flusher *flusher);
void *fq_flusher_run(void *flusher);
void fq_flusher_stop(struct fq_flusher *flusher);

#endif
