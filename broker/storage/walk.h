/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside broker/storage: walking the batches of one segment's data, which may hold anything. Pure:
 * reads memory, decides what fits, finds the way on after damage. Recovery, reading and the offline
 * reader all walk with this, so they agree on what a batch is.
 *
 * A batch fits where it lies if its header makes sense, its base offset is the end of the batch
 * before it, its epoch is the one recorded for that offset, and its CRC holds. Together these cover
 * every bit of it: the CRC does not cover base offset, length, epoch and magic; the other three do.
 */
#ifndef FQ_STORAGE_WALK_H
#define FQ_STORAGE_WALK_H

#include "storage/segment.h"

struct fq_walk {
    const struct fq_segment *segment; /* identity and epochs */
    const uint8_t *data;
    uint64_t limit;    /* bytes of data to look at */
    uint64_t position; /* of the next batch */
    int64_t offset;    /* its base offset; after damage only the least it can be */
    bool is_after_damage;
    bool any_epoch;       /* the header is damaged: epochs only may not go down */
    int32_t epoch;        /* of the batch before */
    int64_t offset_limit; /* no batch ends above this */
};

enum fq_walk_result { FQ_WALK_FIT, FQ_WALK_END, FQ_WALK_NO_FIT };

void fq_walk_init(struct fq_walk *walk, const struct fq_segment *segment, const uint8_t *data,
                  uint64_t limit);
/* Looks at the batch at the current position. NO_FIT: *ret_why says what is wrong. */
enum fq_walk_result fq_walk_look(const struct fq_walk *walk, struct fq_batch_header *ret,
                                 const char **ret_why);
void fq_walk_advance(struct fq_walk *walk, const struct fq_batch_header *header);
/* From a position where nothing fits to the next one where something does, or to the limit.
 * Afterwards walk->offset is the base offset there; at the limit, the least the next offset can be,
 * judged by what the damaged bytes still say. Returns the position it came from. */
uint64_t fq_walk_resync(struct fq_walk *walk);

#endif
