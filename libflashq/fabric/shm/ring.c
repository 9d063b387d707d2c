/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See ring.h. Sleeping: the consumer stores awake = 0 and then loads tail; the producer stores tail
 * and then loads awake. All four are sequentially consistent, so at least one of them sees the
 * other: no wake-up is lost. Room works the same way with `starved` and head.
 */
#include "fabric/shm/ring.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "flashq/error.h"

#define MASK       (FQ_SHM_RING_BYTES - 1)
#define LENGTH_MAX FQ_LIMIT_CONTROL_BYTES

_Static_assert((FQ_SHM_RING_BYTES & MASK) == 0, "a power of two");
_Static_assert(LENGTH_MAX + 64 < FQ_SHM_RING_BYTES, "the largest message fits an empty ring");

void fq_shm_tx_init(struct fq_shm_tx *tx, struct fq_shm_layout *layout, unsigned side)
{
    *tx = (struct fq_shm_tx){.shared = &layout->heads[side][0], .bytes = layout->bytes[side]};
}

int fq_shm_tx_has_room(struct fq_shm_tx *tx, uint64_t bytes)
{
    if (tx->tail - tx->head_seen + bytes <= FQ_SHM_RING_BYTES) {
        return 1;
    }
    uint64_t head = atomic_load_explicit(&tx->shared->head, memory_order_acquire);
    if (head - tx->head_seen > tx->tail - tx->head_seen || (head & 7)) {
        return FLASHQ_ERR_PROTOCOL; /* it went back, or beyond what was produced */
    }
    tx->head_seen = head;
    return tx->tail - head + bytes <= FQ_SHM_RING_BYTES;
}

int fq_shm_tx_wait_room(struct fq_shm_tx *tx, uint64_t bytes)
{
    int r = fq_shm_tx_has_room(tx, bytes);
    if (r == 0) {
        atomic_store_explicit(&tx->shared->starved, 1, memory_order_seq_cst);
        uint64_t head = atomic_load_explicit(&tx->shared->head, memory_order_seq_cst);
        if (head != tx->head_seen) {
            r = fq_shm_tx_has_room(tx, bytes);
        }
    }
    return r;
}

static void copy_in(struct fq_shm_tx *tx, uint64_t at, const void *bytes, size_t length)
{
    size_t start = (size_t)(at & MASK);
    size_t first = length < FQ_SHM_RING_BYTES - start ? length : FQ_SHM_RING_BYTES - start;
    memcpy(tx->bytes + start, bytes, first);
    memcpy(tx->bytes, (const uint8_t *)bytes + first, length - first);
}

void fq_shm_tx_put(struct fq_shm_tx *tx, enum fq_shm_kind kind, uint32_t imm, const void *bytes,
                   size_t length)
{
    uint64_t word = (uint32_t)kind | (uint64_t)length << 8 | (uint64_t)imm << 32;
    fq_store_le64(tx->bytes + (tx->tail & MASK), word);
    if (length > 0) {
        copy_in(tx, tx->tail + FQ_SHM_ENTRY_BYTES, bytes, length);
    }
    tx->tail += fq_shm_entry_bytes(length);
}

bool fq_shm_tx_publish(struct fq_shm_tx *tx)
{
    tx->published = tx->tail;
    /* Pairs with the consumer's loads of tail: bytes of windows and entries are visible before. */
    atomic_store_explicit(&tx->shared->tail, tx->tail, memory_order_seq_cst);
    return atomic_load_explicit(&tx->shared->awake, memory_order_seq_cst) == 0 &&
           atomic_exchange_explicit(&tx->shared->awake, 1, memory_order_seq_cst) == 0;
}

void fq_shm_rx_init(struct fq_shm_rx *rx, struct fq_shm_layout *layout, unsigned side)
{
    *rx = (struct fq_shm_rx){.shared = &layout->heads[side][0], .bytes = layout->bytes[side]};
}

int fq_shm_rx_peek(struct fq_shm_rx *rx, struct fq_shm_entry *ret)
{
    uint64_t tail = atomic_load_explicit(&rx->shared->tail, memory_order_acquire);
    if (tail == rx->head) {
        return 0;
    }
    uint64_t available = tail - rx->head;
    if (available > FQ_SHM_RING_BYTES || (tail & 7)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    uint64_t word; /* one copy; the peer may change the entry at any time */
    word = __atomic_load_n((const uint64_t *)(const void *)(rx->bytes + (rx->head & MASK)),
                           __ATOMIC_RELAXED);
    ret->kind = (uint32_t)(word & 0xff);
    ret->length = (uint32_t)(word >> 8) & 0xffffff;
    ret->imm = (uint32_t)(word >> 32);
    if (ret->length > LENGTH_MAX || fq_shm_entry_bytes(ret->length) > available) {
        return FLASHQ_ERR_PROTOCOL;
    }
    return 1;
}

bool fq_shm_rx_has_news(const struct fq_shm_rx *rx)
{
    /* Only whether to look: peek loads it again, with acquire, before it reads an entry. */
    return atomic_load_explicit(&rx->shared->tail, memory_order_relaxed) != rx->head;
}

void fq_shm_rx_take(struct fq_shm_rx *rx, const struct fq_shm_entry *entry, uint8_t *ret_bytes)
{
    if (ret_bytes) {
        size_t start = (size_t)((rx->head + FQ_SHM_ENTRY_BYTES) & MASK);
        size_t length = entry->length;
        size_t first = length < FQ_SHM_RING_BYTES - start ? length : FQ_SHM_RING_BYTES - start;
        memcpy(ret_bytes, rx->bytes + start, first);
        memcpy(ret_bytes + first, rx->bytes, length - first);
    }
    rx->head += fq_shm_entry_bytes(entry->length);
}

bool fq_shm_rx_release(struct fq_shm_rx *rx)
{
    if (rx->head == rx->head_published) {
        return false;
    }
    rx->head_published = rx->head;
    atomic_store_explicit(&rx->shared->head, rx->head, memory_order_seq_cst);
    return atomic_load_explicit(&rx->shared->starved, memory_order_seq_cst) != 0 &&
           atomic_exchange_explicit(&rx->shared->starved, 0, memory_order_seq_cst) != 0;
}

bool fq_shm_rx_sleep(struct fq_shm_rx *rx)
{
    atomic_store_explicit(&rx->shared->awake, 0, memory_order_seq_cst);
    if (atomic_load_explicit(&rx->shared->tail, memory_order_seq_cst) == rx->head) {
        return true;
    }
    fq_shm_rx_awake(rx);
    return false;
}

void fq_shm_rx_awake(struct fq_shm_rx *rx)
{
    atomic_store_explicit(&rx->shared->awake, 1, memory_order_relaxed);
}
