/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch on the client: being filled, waiting, in flight, done. Its bytes are kept until it is
 * acknowledged, because they may have to be sent again.
 */
#ifndef FQ_PRODUCER_BATCH_H
#define FQ_PRODUCER_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/chain.h"
#include "flashq/flashq.h"
#include "producer/pool.h"
#include "wire/record_batch.h"

struct fq_ppart;
struct fq_ring;

/* What a report needs to know about a record. */
struct fq_sent {
    void *user;
    int64_t timestamp_ms;
};

/* A call that waits for one record of a batch (on its stack). */
struct fq_sync {
    struct fq_chain node;
    int32_t index;
    bool is_done;
    flashq_report report;
};

struct fq_batch {
    struct fq_chain node;       /* of the partition's `waiting` or `in_flight`, or the spare ones */
    struct fq_chain order;      /* of the producer's `outstanding`, by id */
    struct fq_chain syncs;
    struct fq_ppart *ppart;
    uint64_t id;                /* rises with creation */

    struct fq_block block;
    struct fq_ring *home;       /* `block` lies in this ring (inring.c) ... */
    struct fq_chain held_node;  /* ... in its `held`, or it is its `open` one */
    uint64_t position;          /* ... from here on */
    struct fq_batch_builder builder;
    size_t length;              /* once numbered; 0: not yet */
    int32_t base_sequence;      /* in the bytes, with `epoch` and `producer_id` */
    int16_t epoch;
    int64_t producer_id;

    struct fq_sent *sent;       /* one per record; kept when the batch is reused */
    size_t sent_capacity;
    uint64_t payload_bytes;
    int64_t created_us;         /* first record */
    bool is_claimed;            /* the application writes into it: it stays `filling`, where it is */
    int64_t began_ns, posted_ns;
    uint64_t began_after;       /* notifies of the ring that were posted before its first record */
    bool was_alone;             /* nothing else was in flight on the ring when it was posted */
    bool was_written;           /* on some connection */
    bool may_be_stored;         /* ... which ended before the answer */
    bool is_reported;           /* its records were reported already (acks none, or given up) */
    unsigned refusals;          /* for its sequence */
};

/* How a batch is finished, and its place in the producer's sequence. */
struct fq_batch_numbering {
    int64_t producer_id;
    int16_t epoch;
    int32_t base_sequence;
    enum fq_codec codec;
    int level;
    struct fq_batch_compressor *compressor;
    struct fq_pool *pool;       /* for the compressed bytes */
};
/* Puts the sequence into the bytes: finishes and compresses the batch the first time, renumbers it later. */
int fq_batch_number(struct fq_batch *batch, const struct fq_batch_numbering *how);

#endif
