/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches in the ring; states and invariants in inring.h.
 *
 * Moving a batch out costs what building it elsewhere would have cost. A ring whose batches are often moved (many
 * partitions that fill at once; a medium that is slow to sync, so that the ring is consumed long before its batches
 * are acknowledged) rests: the next batches begin elsewhere, twice as many after each time.
 * Thread: any, under the client's lock.
 */
#include "producer/inring.h"

#include <string.h>

#include "producer/producer.h"

#define REST_MOST 64
#define RING_PART 4 /* a batch takes at most this part of the ring */

/* ---- beginning and ending ----------------------------------------------------------------------- */

static bool may_begin(const struct fq_ppart *ppart)
{
    const struct fq_ring *ring = ppart->ring;
    return ppart->state == FQ_PPART_OPEN && !ppart->producer->is_direct && ring->map && !ring->open &&
           !ring->posting && ppart->producer->engine->config.codec == FQ_CODEC_NONE &&
           fq_chain_is_empty(&ppart->waiting) && ppart->in_flight_count < ppart->max_in_flight;
}

bool fq_inring_begin(struct fq_ppart *ppart, struct fq_batch *batch, size_t least, size_t usual)
{
    struct fq_ring *ring = ppart->ring;
    if (!may_begin(ppart)) {
        return false;
    }
    if (ring->rest > 0) {
        ring->rest--;
        return false;
    }
    size_t most = ring->window_bytes / RING_PART;
    size_t bytes = usual < most ? usual : most;
    bytes = bytes > least ? bytes : least;
    if (bytes > most || !fq_ring_has_room(ring, bytes) ||
        fq_pool_charge(&ppart->producer->pool, bytes) != 0) {
        return false;
    }
    batch->block = (struct fq_block){.data = ring->map + ring->written % ring->window_bytes,
                                     .bytes = bytes};
    batch->home = ring;
    batch->position = ring->written;
    ring->open = batch;
    return true;
}

void fq_inring_post(struct fq_ring *ring, struct fq_batch *batch)
{
    fq_pool_discharge(&batch->ppart->producer->pool, batch->block.bytes - batch->length);
    batch->block.bytes = batch->length;
    fq_chain_append(&ring->held, &batch->held_node);
    ring->open = NULL;
}

static void leave_place(struct fq_batch *batch)
{
    struct fq_ring *ring = batch->home;
    fq_pool_discharge(&batch->ppart->producer->pool, batch->block.bytes);
    if (ring->open == batch) {
        ring->open = NULL;
    }
    fq_chain_remove(&batch->held_node);
    batch->home = NULL;
    batch->block = (struct fq_block){0};
}

void fq_inring_release(struct fq_batch *batch)
{
    batch->home->rest_next /= 2;
    leave_place(batch);
}

/* ---- moving out --------------------------------------------------------------------------------- */

int fq_inring_move_out(struct fq_batch *batch)
{
    struct fq_ppart *ppart = batch->ppart;
    struct fq_producer *producer = ppart->producer;
    struct fq_ring *ring = batch->home;
    struct fq_block block;
    size_t bytes = batch->length != 0 ? batch->length : batch->builder.used;
    size_t wanted = bytes;
    if (batch == ppart->filling) { /* it goes on there */
        size_t capacity = batch->block.bytes;
        wanted = ppart->block_bytes < capacity ? ppart->block_bytes : capacity;
        wanted = wanted > bytes ? wanted : bytes;
        if (batch->is_claimed && wanted < producer->claim.place.end) {
            wanted = producer->claim.place.end;
        }
    }
    int code = fq_pool_alloc_beyond(&producer->pool, wanted, &block);
    if (code != 0) {
        return code;
    }
    memcpy(block.data, batch->block.data, bytes);
    leave_place(batch);
    batch->block = block;
    batch->builder.buffer = block.data;
    if (batch->builder.capacity > block.bytes) { /* never more than before: batch.max.bytes was seen to then */
        batch->builder.capacity = block.bytes;
    }
    ring->rest_next = ring->rest_next < REST_MOST / 2 ? ring->rest_next * 2 + 1 : REST_MOST;
    ring->rest = ring->rest_next;
    return 0;
}

uint64_t fq_inring_floor(const struct fq_ring *ring)
{
    if (fq_chain_is_empty(&ring->held)) {
        return ring->consumed;
    }
    const struct fq_batch *first = fq_chain_item(ring->held.next, struct fq_batch, held_node);
    return first->position < ring->consumed ? first->position : ring->consumed;
}

bool fq_inring_make_room(struct fq_ring *ring, size_t bytes)
{
    while (!fq_ring_has_room(ring, bytes)) {
        struct fq_batch *first = fq_chain_item(ring->held.next, struct fq_batch, held_node);
        if (fq_chain_is_empty(&ring->held) || first->position + first->length > ring->consumed ||
            fq_inring_move_out(first) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- the end of the connection ------------------------------------------------------------------ */

static void leave(struct fq_ring *ring, struct fq_batch *batch)
{
    struct fq_producer *producer = batch->ppart->producer;
    bool is_claimed = batch->is_claimed;
    int code = fq_inring_move_out(batch);
    if (is_claimed) { /* the application may be writing at this moment */
        fq_remote_close_mapped(ring->window, &producer->claim.mapping);
        ring->window = NULL;
    }
    if (code != 0) {
        leave_place(batch);
        fq_ppart_lost(batch, code);
    }
}

void fq_inring_leave(struct fq_ring *ring)
{
    while (!fq_chain_is_empty(&ring->held)) {
        leave(ring, fq_chain_item(ring->held.next, struct fq_batch, held_node));
    }
    if (ring->open) {
        leave(ring, ring->open);
    }
    ring->map = NULL;
    ring->rest = ring->rest_next = 0;
}
