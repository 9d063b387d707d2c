/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for things that come and go: sessions of a shard, slots and readers of a session. A
 * number is never given twice, so that what arrives late for something gone is recognised as late:
 * the low 16 bits are an index, the high 16 how often that index was used before. An index that was
 * used 65,535 times is retired. Looking up costs two loads. One thread.
 *
 * Things may be of two kinds. An index serves one kind only, so that the kind of what is gone is
 * known too.
 */
#ifndef FQ_SESSION_HANDLES_H
#define FQ_SESSION_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FQ_HANDLE_NONE UINT32_MAX /* never given: FQ_ACK_NOTIFY_IMM is this number too */

struct fq_handle_item {
    void *object;        /* NULL: free */
    uint16_t generation; /* of the object, or of the next one */
    uint16_t next_free;
    uint8_t kind;
};

#define FQ_HANDLE_KINDS 2u

struct fq_handles {
    struct fq_handle_item *items;
    uint32_t used, capacity; /* items ever used; allocated */
    uint32_t count;          /* objects */
    uint32_t count_max;
    uint32_t first_free[FQ_HANDLE_KINDS]; /* index, or none */
};

void fq_handles_init(struct fq_handles *handles, uint32_t count_max); /* count_max <= 65,535 */
/* Forgets the numbers; the objects are the caller's. */
void fq_handles_fini(struct fq_handles *handles);

/* A number for `object` (not NULL), or FQ_HANDLE_NONE: count_max is reached or there is no memory.
 */
uint32_t fq_handles_add(struct fq_handles *handles, unsigned kind, void *object);
void fq_handles_remove(struct fq_handles *handles, uint32_t handle);
/* NULL: gone, or never given. */
void *fq_handles_get(const struct fq_handles *handles, uint32_t handle);
/* Whether the number was given once and its object is gone. */
bool fq_handles_is_gone(const struct fq_handles *handles, uint32_t handle);
/* Of a number that was given, whether or not its object is gone. */
unsigned fq_handles_kind(const struct fq_handles *handles, uint32_t handle);
/* The object at index 0 .. used - 1, NULL where there is none: for walking all. */
static inline void *fq_handles_at(const struct fq_handles *handles, uint32_t index)
{
    return handles->items[index].object;
}

#endif
