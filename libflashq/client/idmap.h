/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small map from the 32-bit numbers a broker gave (slots, readers) to what they stand for here. Open
 * addressing with linear probing; the numbers come from outside, so a wrong one must simply not be found.
 * Zero-initialise. Setting may allocate; finding never does.
 */
#ifndef FQ_CLIENT_IDMAP_H
#define FQ_CLIENT_IDMAP_H

#include <stddef.h>
#include <stdint.h>

struct fq_idmap_entry {
    uint32_t id;
    void *value; /* NULL: free */
};

struct fq_idmap {
    struct fq_idmap_entry *entries;
    size_t capacity, used;
};

void fq_idmap_fini(struct fq_idmap *map);
void fq_idmap_clear(struct fq_idmap *map);
/* 0 or NO_MEMORY; value is not NULL and replaces an earlier one. */
int fq_idmap_set(struct fq_idmap *map, uint32_t id, void *value);
/* Removes id if it stands for `value`. Numbers are used again after a reconnect: what holds an old one must
 * not take away what has it now. */
void fq_idmap_remove(struct fq_idmap *map, uint32_t id, const void *value);
void *fq_idmap_get(const struct fq_idmap *map, uint32_t id);

#endif
