/* SPDX-License-Identifier: Apache-2.0 */
/* Between partition.c (batches: sending, acknowledgements, giving up) and slot.c (the slot they go to). */
#ifndef FQ_PRODUCER_PARTITION_INTERNAL_H
#define FQ_PRODUCER_PARTITION_INTERNAL_H

#include "producer/partition.h"

/* partition.c */
void fq_ppart_set_state(struct fq_ppart *ppart, enum fq_ppart_state state);
/* Not again before a pause that doubles. */
void fq_ppart_pause(struct fq_ppart *ppart);
/* Fails everything that waits; what was written once may be stored. */
void fq_ppart_fail_waiting(struct fq_ppart *ppart, int code);

/* slot.c */
/* Asks for a slot: OPENING; a refusal is dealt with. From RING, with the ring open. */
void fq_slot_open(struct fq_ppart *ppart, int64_t now_us);
/* Tells the broker that the slot is not used any more. Nobody waits for the answer. */
void fq_slot_close(struct fq_ppart *ppart);
/* Nothing more of the slot is heard. */
void fq_slot_forget(struct fq_ppart *ppart);
/* Whatever is not answered is known not to be stored: it is numbered anew. */
void fq_slot_next_epoch(struct fq_ppart *ppart);
/* Whether the batch has its sequence in this epoch. */
bool fq_slot_is_numbered(const struct fq_ppart *ppart, const struct fq_batch *batch);
/* Sequences count from 0 to INT32_MAX and go on at 0. */
int32_t fq_sequence_add(int32_t sequence, int32_t count);

#endif
