/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches built in the ring itself, where its window is mapped (shared memory): sending one is a notify, no byte is
 * copied here.
 *
 *   elsewhere --begin--> open --post--> held --acknowledged--> gone
 *       ^                  |             |
 *       +---- moved out ---+-------------+
 *
 * The open batch lies where the next one goes (ring->written), so a ring has one at most, and it goes, or
 * makes way, before another is posted. A held one keeps its bytes until its outcome is known, for they may have to be
 * sent again; its place is not given to others (fq_inring_floor). Whatever needs the place, or the connection's end,
 * moves it out to memory of the producer. Its bytes count in `queue.bytes` wherever they are.
 *
 * The broker can write there too. What comes back from the ring is only ever sent again, never looked at.
 */
#ifndef FQ_PRODUCER_INRING_H
#define FQ_PRODUCER_INRING_H

#include "producer/partition.h"

/* Gives the batch room for at least `least` bytes, `usual` if it can be, in its partition's ring; false: it must
 * be built elsewhere. */
bool fq_inring_begin(struct fq_ppart *ppart, struct fq_batch *batch, size_t least, size_t usual);
/* The open batch is being posted. */
void fq_inring_post(struct fq_ring *ring, struct fq_batch *batch);
/* The batch is done. */
void fq_inring_release(struct fq_batch *batch);
/* Copies the batch to memory of its producer, beyond `queue.bytes` if need be. NO_MEMORY: it is where it was. */
int fq_inring_move_out(struct fq_batch *batch);

/* Ring bytes below this may be written again, as far as this side is concerned. */
uint64_t fq_inring_floor(const struct fq_ring *ring);
/* Moves out what the broker has consumed and keeps `bytes` from fitting; false: there is no room yet. */
bool fq_inring_make_room(struct fq_ring *ring, size_t bytes);
/* The connection is about to end: moves everything out. The mapping goes to a claim that is open in it. */
void fq_inring_leave(struct fq_ring *ring);

#endif
