/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer's end of one partition: its batches, its slot at the broker, its sequence.
 *
 *              a link is known      ring is up           slot given
 *   UNROUTED ------------------> RING ----------> OPENING ------------> OPEN
 *                                 ^  ^               |  refused           |  a batch is refused
 *                                 |  +---------------+  (after a pause)   v
 *                                 +------------- all answered --------- DRAINING
 *
 * The ring is lost: from OPENING, OPEN and DRAINING back to RING. The topic is gone: from any to DEAD,
 * which is final. Moved to another broker or shard: in RING, by joining another ring.
 *
 * Invariants: `in_flight` is empty but in OPEN and DRAINING, and in order of sequence. A batch keeps its
 * sequence while its outcome is unknown; it gets a new one (in the next epoch) only when everything with
 * the old one is known not to be stored.
 */
#ifndef FQ_PRODUCER_PARTITION_H
#define FQ_PRODUCER_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "producer/batch.h"
#include "producer/direct.h"
#include "producer/estimate.h"
#include "producer/ring.h"

struct fq_producer;

enum fq_ppart_state {
    FQ_PPART_UNROUTED,
    FQ_PPART_RING,
    FQ_PPART_OPENING,
    FQ_PPART_OPEN,
    FQ_PPART_DRAINING,
    FQ_PPART_DEAD
};

struct fq_ppart {
    struct fq_producer *producer;
    struct fq_chain active_node;  /* in producer->active while there is something to send or in flight */
    int32_t index;
    enum fq_ppart_state state;
    struct fq_ring *ring;
    struct fq_chain ring_node;
    bool wants_reroute;           /* the broker says that it does not lead: metadata first */
    int64_t retry_us;
    unsigned failures;            /* of opening, in a row */
    int dead_code;
    int refused_code;             /* why it cannot be opened now, as the broker says; 0: it may be */

    uint32_t slot;
    unsigned max_in_flight;
    int64_t producer_id;          /* of the current numbering */
    int16_t epoch;
    int32_t next_sequence;
    bool was_opened;              /* in this epoch: next_sequence is the broker's word, or follows it */
    uint32_t notifies_posted, notifies_acked; /* of this slot */
    struct fq_direct direct;      /* its windows, if the topic's appends are direct */
    bool was_fenced;              /* somebody else got the partition while we were silent */

    struct fq_chain in_flight;    /* written and notified, not answered */
    unsigned in_flight_count;
    struct fq_chain refused;      /* DRAINING: answered SLOT_FAILED, to be sent again */
    bool keeps_numbers;           /* DRAINING: sent again under the same sequences */
    struct fq_chain waiting;      /* closed, not written (or to be written again) */
    struct fq_batch *filling;     /* takes records */
    size_t block_bytes;           /* for the next batch */
    struct fq_estimate_plan plan; /* made with each batch, from what the ring knows of its path */
};

void fq_ppart_init(struct fq_ppart *ppart, struct fq_producer *producer, int32_t index);
/* Detaches; closes the slot at the broker if there is one. The batches were taken away before. */
void fq_ppart_fini(struct fq_ppart *ppart);

/* Sends what may be sent and goes on with opening; true if something was sent. */
bool fq_ppart_pump(struct fq_ppart *ppart, int64_t now_us);
int64_t fq_ppart_next_deadline_us(const struct fq_ppart *ppart);
/* Moves the batch being filled to those that wait. */
void fq_ppart_close_batch(struct fq_ppart *ppart);
/* What the policy wants of the batch that begins now. */
void fq_ppart_plan(struct fq_ppart *ppart, int64_t now_ns);
bool fq_ppart_is_idle(const struct fq_ppart *ppart);
/* New metadata: where the partition lives now. */
void fq_ppart_reroute(struct fq_ppart *ppart, struct fq_link *link);
/* Ends the connection if batches are in flight on it: the transport may still read their memory. */
void fq_ppart_take_back(struct fq_ppart *ppart);
void fq_ppart_die(struct fq_ppart *ppart, int code);
/* Gives up batches older than the delivery timeout; returns when the next one is due. */
int64_t fq_ppart_expire(struct fq_ppart *ppart, int64_t now_us);

/* Called by the ring. */
bool fq_ppart_acked(struct fq_ppart *ppart, const struct fq_ack_entry *entry); /* false: nonsense */
/* A direct slot got a window; PROTOCOL: one that makes no sense. */
int fq_ppart_direct_window(struct fq_ppart *ppart, const struct fq_direct_window *window,
                           struct fq_err *err);
/* ... or may not be written to any more. */
void fq_ppart_revoked(struct fq_ppart *ppart, int reason);
/* There was no memory to keep the bytes of a batch that was in the ring, whose connection ends. */
void fq_ppart_lost(struct fq_batch *batch, int code);
void fq_ppart_ring_up(struct fq_ring *ring);
void fq_ppart_ring_down(struct fq_ring *ring, int code, const char *text);
void fq_ppart_ring_refused(struct fq_ring *ring, int code, const char *text);

#endif
