/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded ring between exactly one producing and one consuming thread of this process. Items are
 * copied by value. Lock-free: `tail` (release, by the producer) pairs with the consumer's acquire of it;
 * `head` likewise the other way. Waking a sleeping consumer is the caller's business (wake.h).
 */
#ifndef FQ_BASE_SPSC_H
#define FQ_BASE_SPSC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fq_spsc {
    size_t item_bytes;
    uint64_t mask;
    uint8_t *items;
    _Alignas(64) _Atomic uint64_t tail; /* written by the producer */
    uint64_t head_seen;                 /* producer's copy of head */
    _Alignas(64) _Atomic uint64_t head; /* written by the consumer */
    uint64_t tail_seen;                 /* consumer's copy of tail */
};

/* items_min is rounded up to a power of two. 0 or NO_MEMORY. */
int fq_spsc_init(struct fq_spsc *ring, size_t item_bytes, size_t items_min);
void fq_spsc_fini(struct fq_spsc *ring);
/* false: full. */
bool fq_spsc_push(struct fq_spsc *ring, const void *item);
/* false: empty. */
bool fq_spsc_pop(struct fq_spsc *ring, void *ret_item);
bool fq_spsc_is_empty(struct fq_spsc *ring); /* consumer's side */

#endif
