/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's leader epoch history: which epoch stamped which offsets. An entry begins at the
 * first offset that was appended in its epoch and holds until the next one's.
 */
#ifndef FQ_PARTITION_EPOCHS_H
#define FQ_PARTITION_EPOCHS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct fq_epoch {
    int32_t epoch;
    int64_t start_offset;
};

struct fq_epochs {
    struct fq_epoch *entries; /* both fields rise strictly */
    size_t count, capacity;
};

void fq_epochs_init(struct fq_epochs *epochs);
void fq_epochs_fini(struct fq_epochs *epochs);

/* Makes room for one more entry: the next fq_epochs_assign then cannot fail. */
int fq_epochs_reserve(struct fq_epochs *epochs);
/* A batch of `epoch` was appended at `offset`. Does nothing unless the epoch is newer than all
 * known. There must be room (fq_epochs_reserve). */
void fq_epochs_assign(struct fq_epochs *epochs, int32_t epoch, int64_t offset);

/* -1: none. */
int32_t fq_epochs_newest(const struct fq_epochs *epochs);
/* The epoch that stamped `offset`; -1: before the history begins. */
int32_t fq_epochs_at(const struct fq_epochs *epochs, int64_t offset);

void fq_epochs_truncate(struct fq_epochs *epochs,
                        int64_t offset); /* drops what begins at or above */
void fq_epochs_trim(struct fq_epochs *epochs, int64_t log_start); /* drops what ends at or below */

#endif
