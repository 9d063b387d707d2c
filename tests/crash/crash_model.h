/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a log must be after a crash: the model that every state left behind is compared with.
 * Shared by the recording driver and by the nested recovery inside it.
 */
#ifndef FQ_TESTS_CRASH_MODEL_H
#define FQ_TESTS_CRASH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/log.h"
#include "storage/store.h"

#define MODEL_BATCHES_MAX 4096u

struct model_batch {
    int64_t base, next;
    uint8_t *bytes;
    size_t length;
};

struct model {
    struct fq_uuid topic_id;
    const char *topic;
    struct model_batch batches[MODEL_BATCHES_MAX]; /* every batch that may be there, in order */
    size_t count;
    int64_t acked_end;             /* everything in [start, this) was acknowledged */
    int64_t start_low, start_high; /* the log start is one of these, or between while it moves */
    bool may_be_gone, is_gone;     /* the topic is being deleted; is deleted */
};

void model_add(struct model *model, const uint8_t *bytes, size_t length, int64_t base,
               int64_t next);
/* Batches at and above `offset` may no longer be there (and must not, once `is_done`). */
void model_cut(struct model *model, int64_t offset, bool is_done);
void model_fini(struct model *model);

/* Opens the log in `store`, compares, closes. NULL: as it must be; else what is wrong. */
const char *model_check(const struct model *model, struct fq_store *store, int64_t *ret_start,
                        int64_t *ret_end);

#endif
