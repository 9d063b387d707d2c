/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two rings of an shm connection, in one memfd that both sides map: one producer and one
 * consumer process each. Both sides are hostile to each other: positions are kept privately, what
 * is read from the shared head is checked, entries are copied before they are looked at.
 *
 *   [0, 2048)      head of the initiator's ring (initiator produces)
 *   [2048, 4096)   head of the acceptor's ring
 *   [4096, ...)    the initiator's bytes, then the acceptor's bytes
 *
 * An entry is {u32 kind | length << 8, u32 imm} and then `length` bytes, padded to 8; it may wrap.
 */
#ifndef FQ_FABRIC_SHM_RING_H
#define FQ_FABRIC_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FQ_SHM_RING_BYTES  (128u << 10) /* a power of two; more than the largest message */
#define FQ_SHM_ENTRY_BYTES 8u

/* The four words are written by: producer, consumer, both, both. */
struct fq_shm_ring_head {
    _Alignas(64) _Atomic uint64_t tail;    /* bytes ever produced */
    _Alignas(64) _Atomic uint64_t head;    /* bytes ever consumed */
    _Alignas(64) _Atomic uint32_t awake;   /* 0: the consumer sleeps and wants a wake-up */
    _Alignas(64) _Atomic uint32_t starved; /* 1: the producer wants a wake-up when there is room */
};
_Static_assert(sizeof(struct fq_shm_ring_head) == 256, "layout shared between processes");
_Static_assert(offsetof(struct fq_shm_ring_head, starved) == 192, "layout");

struct fq_shm_layout {
    struct fq_shm_ring_head heads[2][8]; /* [i][0] is used; 2 KiB each */
    uint8_t bytes[2][FQ_SHM_RING_BYTES];
};
_Static_assert(sizeof(struct fq_shm_layout) == 4096 + 2 * FQ_SHM_RING_BYTES, "layout");

enum fq_shm_kind {
    FQ_SHM_NOTIFY = 1,
    FQ_SHM_MESSAGE = 2,
    FQ_SHM_SYNC = 3 /* read the socket's records before going on: one was sent before this */
};

struct fq_shm_tx {
    struct fq_shm_ring_head *shared;
    uint8_t *bytes;
    uint64_t tail, published, head_seen;
};

struct fq_shm_rx {
    struct fq_shm_ring_head *shared;
    const uint8_t *bytes;
    uint64_t head, head_published;
};

struct fq_shm_entry {
    uint32_t kind, length, imm;
};

static inline uint64_t fq_shm_entry_bytes(size_t length)
{
    return FQ_SHM_ENTRY_BYTES + ((length + 7) & ~(size_t)7);
}

void fq_shm_tx_init(struct fq_shm_tx *tx, struct fq_shm_layout *layout, unsigned side);
/* 1: `bytes` fit; 0: they do not yet; PROTOCOL: the peer's head lies. */
int fq_shm_tx_has_room(struct fq_shm_tx *tx, uint64_t bytes);
/* As has_room, and if there is none asks for a wake-up. */
int fq_shm_tx_wait_room(struct fq_shm_tx *tx, uint64_t bytes);
/* There must be room. Not visible to the peer until publish. */
void fq_shm_tx_put(struct fq_shm_tx *tx, enum fq_shm_kind kind, uint32_t imm, const void *bytes,
                   size_t length);
/* Makes what was put visible; true: the peer sleeps and must be woken. */
bool fq_shm_tx_publish(struct fq_shm_tx *tx);

void fq_shm_rx_init(struct fq_shm_rx *rx, struct fq_shm_layout *layout, unsigned side);
/* 1: an entry; 0: none; PROTOCOL: the peer's tail or the entry lies. */
int fq_shm_rx_peek(struct fq_shm_rx *rx, struct fq_shm_entry *ret);
/* Whether peek would not say 0. */
bool fq_shm_rx_has_news(const struct fq_shm_rx *rx);
/* Copies the payload of the entry peeked at (NULL: drops it) and goes past it. */
void fq_shm_rx_take(struct fq_shm_rx *rx, const struct fq_shm_entry *entry, uint8_t *ret_bytes);
/* Gives the room back; true: the peer waits for it and must be woken. */
bool fq_shm_rx_release(struct fq_shm_rx *rx);
/* false: there is something; true: from now on the peer wakes us. */
bool fq_shm_rx_sleep(struct fq_shm_rx *rx);
void fq_shm_rx_awake(struct fq_shm_rx *rx);

#endif
