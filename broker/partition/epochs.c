/* SPDX-License-Identifier: Apache-2.0 */
/* Leader epoch history: a short sorted array, searched from its end. Thread: the shard. */
#include "partition/epochs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void fq_epochs_init(struct fq_epochs *epochs)
{
    *epochs = (struct fq_epochs){0};
}

void fq_epochs_fini(struct fq_epochs *epochs)
{
    free(epochs->entries);
    *epochs = (struct fq_epochs){0};
}

int fq_epochs_reserve(struct fq_epochs *epochs)
{
    if (epochs->count < epochs->capacity) {
        return 0;
    }
    size_t capacity = epochs->capacity == 0 ? 4 : epochs->capacity * 2;
    struct fq_epoch *entries = realloc(epochs->entries, capacity * sizeof *entries);
    if (entries == NULL) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    epochs->entries = entries;
    epochs->capacity = capacity;
    return 0;
}

void fq_epochs_assign(struct fq_epochs *epochs, int32_t epoch, int64_t offset)
{
    if (epoch <= fq_epochs_newest(epochs)) {
        return;
    }
    assert(epochs->count < epochs->capacity);
    assert(epochs->count == 0 || epochs->entries[epochs->count - 1].start_offset < offset);
    epochs->entries[epochs->count++] = (struct fq_epoch){.epoch = epoch, .start_offset = offset};
}

int32_t fq_epochs_newest(const struct fq_epochs *epochs)
{
    return epochs->count == 0 ? -1 : epochs->entries[epochs->count - 1].epoch;
}

int32_t fq_epochs_at(const struct fq_epochs *epochs, int64_t offset)
{
    for (size_t i = epochs->count; i > 0; i--) {
        if (epochs->entries[i - 1].start_offset <= offset) {
            return epochs->entries[i - 1].epoch;
        }
    }
    return -1;
}

void fq_epochs_truncate(struct fq_epochs *epochs, int64_t offset)
{
    while (epochs->count > 0 && epochs->entries[epochs->count - 1].start_offset >= offset) {
        epochs->count--;
    }
}

void fq_epochs_trim(struct fq_epochs *epochs, int64_t log_start)
{
    size_t drop = 0;
    while (drop + 1 < epochs->count && epochs->entries[drop + 1].start_offset <= log_start) {
        drop++;
    }
    if (drop > 0) {
        epochs->count -= drop;
        memmove(epochs->entries, epochs->entries + drop, epochs->count * sizeof *epochs->entries);
    }
}
