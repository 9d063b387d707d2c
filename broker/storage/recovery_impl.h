/* SPDX-License-Identifier: Apache-2.0 */
/* Inside recovery: the files of a partition's folder, as recovery_files.c finds them for
 * recovery.c. */
#ifndef FQ_STORAGE_RECOVERY_IMPL_H
#define FQ_STORAGE_RECOVERY_IMPL_H

#include "storage/log_impl.h"

struct fq_found {
    struct fq_segment *segment;
    uint8_t header[FQ_SEG_DATA];
    bool identity_ok, base_known, seal_ok;
    struct fq_segment_seal seal;
    uint64_t start_delta; /* of the start word, plus one; 0: none */
};

struct fq_recovery {
    struct fq_log *log;
    struct fq_found **found;
    size_t count, capacity;
    fq_log_visitor visitor;
    void *context;
    int visitor_result; /* the first that was not 0: no more visits */
    struct fq_err *err;
};

/* Lists the folder: segments into r->found, one prepared file into log->next, the rest to the pool
 * or to quarantine. */
int fq_recovery_list(struct fq_recovery *r);
/* Hands a file that holds no data of this log back to the pool. */
void fq_recovery_give_back(struct fq_log *log, struct fq_segment *segment);
/* On memory nothing tells whether an open segment lies over bytes of a former life. */
bool fq_recovery_may_have_former(const struct fq_log *log);
/* Where non-zero bytes end in [from, to). */
uint64_t fq_recovery_dirty_end(const struct fq_segment *segment, uint64_t from, uint64_t to);

static inline void fq_recovery_damage(struct fq_log *log, const struct fq_segment *segment,
                                      uint64_t position, uint64_t bytes, int64_t first,
                                      int64_t next, const char *what)
{
    fq_log_add_damage(
        log, &(struct fq_log_damage_at){segment->path, position, bytes, first, next, what});
}

#endif
