/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producers' side of one connection: the window into the broker's ring, where the next batch goes in it,
 * and the ack ring in this process's memory, where the answers come. One per link, shared by all partitions
 * of all producers of the client on that link.
 *
 *   CLOSED --link up--> OPENING --answer--> OPEN --link down--> CLOSED
 *
 * In OPEN: posted - acked <= entries (notify credits), written - consumed <= window_bytes. What the broker
 * writes into the ack ring is checked against both; a broker that breaks them loses the connection.
 */
#ifndef FQ_PRODUCER_RING_H
#define FQ_PRODUCER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/idmap.h"
#include "client/link.h"
#include "producer/batch.h"
#include "producer/direct.h"
#include "producer/estimate.h"

enum fq_ring_state { FQ_RING_CLOSED, FQ_RING_OPENING, FQ_RING_OPEN };

struct fq_ring {
    struct fq_link_user user;
    struct fq_engine *engine;
    enum fq_ring_state state;
    struct fq_chain pparts;        /* that use it */
    struct fq_idmap slots;         /* slot -> struct fq_ppart */

    struct fq_region *ack_region;  /* struct fq_ack_head, then entries */
    struct fq_window *ack_window;
    uint32_t entries;
    uint64_t posted, acked;        /* notifies */
    int64_t looked_ns;             /* when the acks that are being handed out were found */
    struct fq_estimate estimate;   /* of the path, and of what all partitions together produce for it */
    size_t produced_bytes;         /* of batches closed since the estimate was told */

    struct fq_remote *window;
    uint64_t window_bytes;
    uint64_t written, consumed;    /* bytes since the ring was opened */
    uint8_t *map;                  /* the window itself, if it can be seen; then, by inring.c: */
    struct fq_batch *open;         /* built at `written` */
    struct fq_chain held;          /* built there, posted, not answered; in order of position */
    unsigned rest, rest_next;      /* batches to be built elsewhere first */

    struct fq_batch *posting;      /* handed to the transport in part */
    uint32_t posting_slot;
    struct fq_direct_place posting_at;
    size_t posting_done;
    int64_t retry_us;              /* after a refused RING_OPEN */
    struct fq_err why_closed;      /* the latest reason; code 0 while it is open */
    bool is_going_down;            /* inside on_down: the link fails already */
};

/* The ring of a link, made on first use. */
int fq_ring_of(struct fq_link *link, struct fq_ring **ret);
/* A partition joins (it is told through fq_ppart_ring_*) or leaves; without partitions and without a
 * connection the ring is freed. */
void fq_ring_join(struct fq_ring *ring, struct fq_chain *ppart_node);
void fq_ring_leave(struct fq_ring *ring, struct fq_chain *ppart_node);

/* Whether a batch of `length` can be posted now. */
bool fq_ring_has_room(struct fq_ring *ring, size_t length);
/* The same, if batches that lie there and were consumed made way (inring.h). */
bool fq_ring_could_have_room(struct fq_ring *ring, size_t length);
/* Batches posted and not answered. */
static inline unsigned fq_ring_in_flight(const struct fq_ring *ring)
{
    return (unsigned)(ring->posted - ring->acked);
}
/* Writes a batch and its notify. There must be room. */
void fq_ring_post(struct fq_ring *ring, uint32_t slot, struct fq_batch *batch);
/* The same outside the ring's own window: whether there is a notify for it; at a place of a direct slot; what the
 * slot had not been notified of yet, and now never will (NULL: nothing). */
bool fq_ring_has_notify(const struct fq_ring *ring);
void fq_ring_post_direct(struct fq_ring *ring, uint32_t slot, struct fq_batch *batch,
                         const struct fq_direct_place *place);
struct fq_batch *fq_ring_abandon(struct fq_ring *ring, uint32_t slot);
/* Takes the acknowledgements that have come; true if there were any. Cheap when there are none. */
bool fq_ring_take_acks(struct fq_ring *ring);
/* Retries what could not be opened. */
void fq_ring_step(struct fq_ring *ring, int64_t now_us);

#endif
