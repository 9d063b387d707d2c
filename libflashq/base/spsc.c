/* SPDX-License-Identifier: Apache-2.0 */
/* Single-producer single-consumer ring; see spsc.h for what pairs with what. */
#include "base/spsc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int fq_spsc_init(struct fq_spsc *ring, size_t item_bytes, size_t items_min)
{
    uint64_t items = 1;
    while (items < items_min) {
        items *= 2;
    }
    memset(ring, 0, sizeof *ring);
    ring->items = calloc(items, item_bytes);
    if (!ring->items) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    ring->item_bytes = item_bytes;
    ring->mask = items - 1;
    return 0;
}

void fq_spsc_fini(struct fq_spsc *ring)
{
    free(ring->items);
    ring->items = NULL;
}

bool fq_spsc_push(struct fq_spsc *ring, const void *item)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_seen > ring->mask) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen > ring->mask) {
            return false;
        }
    }
    memcpy(ring->items + (tail & ring->mask) * ring->item_bytes, item, ring->item_bytes);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

bool fq_spsc_is_empty(struct fq_spsc *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_seen) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
    }
    return head == ring->tail_seen;
}

bool fq_spsc_pop(struct fq_spsc *ring, void *ret_item)
{
    if (fq_spsc_is_empty(ring)) {
        return false;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    memcpy(ret_item, ring->items + (head & ring->mask) * ring->item_bytes, ring->item_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}
