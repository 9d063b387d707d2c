/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An append-only array of int64 with the maxima of groups of 32, of groups of groups, and so on:
 * finds the first value at or after an index that is at least a threshold, in O(log32 n) groups.
 *
 * Values are added and raised at the end only. Memory is taken by reserve alone.
 */
#ifndef FQ_TIMEINDEX_MAXTREE_H
#define FQ_TIMEINDEX_MAXTREE_H

#include <stddef.h>
#include <stdint.h>

#define FQ_MAXTREE_FANOUT 32u
#define FQ_MAXTREE_LEVELS 8u /* 32^8 values: more than memory holds */
#define FQ_MAXTREE_NONE   SIZE_MAX

struct fq_maxtree {
    size_t count, capacity;
    unsigned levels_count;              /* with memory for `capacity` */
    int64_t *levels[FQ_MAXTREE_LEVELS]; /* [0]: the values; one allocation */
};

void fq_maxtree_init(struct fq_maxtree *tree);
void fq_maxtree_fini(struct fq_maxtree *tree);
/* Room for `capacity` values. 0 or NO_MEMORY (nothing changed). */
int fq_maxtree_reserve(struct fq_maxtree *tree, size_t capacity);
size_t fq_maxtree_memory_bytes(const struct fq_maxtree *tree);

void fq_maxtree_push(struct fq_maxtree *tree, int64_t value);       /* count < capacity */
void fq_maxtree_raise_last(struct fq_maxtree *tree, int64_t value); /* count > 0 */
void fq_maxtree_truncate(struct fq_maxtree *tree, size_t count);
int64_t fq_maxtree_max(const struct fq_maxtree *tree); /* INT64_MIN when empty */

/* The index of the first value >= threshold at or after `from`, or NONE. Adds the groups looked at
 * to *inout_nodes: at most twice the number of levels. */
size_t fq_maxtree_find(const struct fq_maxtree *tree, size_t from, int64_t threshold,
                       uint64_t *inout_nodes);

#endif
