/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a partition remembers of its producers: epoch, next sequence, and the last batches, so that
 * a batch sent again is recognised and answered with its original offset.
 *
 * Sequences number records and wrap from INT32_MAX to 0. They go on across epochs: an epoch only
 * says which of several instances of a producer is the living one.
 *
 * Allocation happens in fq_producers_ensure (open, recovery) alone. A producer that is not open
 * gives way when the table is at its limit (the longest closed first) or when it expires; an open
 * one never.
 */
#ifndef FQ_PARTITION_PRODUCERS_H
#define FQ_PARTITION_PRODUCERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/record_batch.h"

struct fq_producer_batch {
    int64_t base_offset;
    int32_t base_sequence;
    int32_t records_count;
};

struct fq_producer {
    int64_t id;
    int64_t last_offset;   /* of the last record appended; -1: none remembered */
    int64_t used_ms;       /* wall clock at the last open, append or close */
    int32_t next_sequence; /* expected next */
    int16_t epoch;
    uint16_t batches_capacity; /* a ring: */
    uint16_t batches_count;
    uint16_t batches_next; /* where the next one goes */
    uint32_t opens_count;
    struct fq_producer *older, *newer; /* among those not open, in the order of closing */
    struct fq_producer_batch batches[];
};

struct fq_producers {
    struct fq_producer *
        *slots; /* open addressing, linear probing, power of two, at most half full */
    size_t slots_count;
    size_t count;
    size_t limit;
    uint64_t seed;                       /* ids come from peers: they must not choose their slots */
    struct fq_producer *oldest, *newest; /* not open */
    uint64_t evicted;
};

/* The sequence `records` after `sequence`. */
static inline int32_t fq_sequence_add(int32_t sequence, int32_t records)
{
    return (int32_t)(((uint32_t)sequence + (uint32_t)records) & INT32_MAX);
}

/* The last sequence appended; -1 when no batch is remembered. */
static inline int32_t fq_producer_last_sequence(const struct fq_producer *producer)
{
    return producer->batches_count == 0 ? -1 : fq_sequence_add(producer->next_sequence, INT32_MAX);
}

void fq_producers_init(struct fq_producers *producers, size_t limit);
void fq_producers_fini(struct fq_producers *producers);

struct fq_producer *fq_producers_find(const struct fq_producers *producers, int64_t id);

/* Finds or makes the state of `id`, with room for `batches` (more when it has more). The state may
 * move: pointers to it from before are void. LIMIT: all are open; NO_MEMORY. */
int fq_producers_ensure(struct fq_producers *producers, int64_t id, unsigned batches,
                        struct fq_producer **ret);

void fq_producers_opened(struct fq_producers *producers, struct fq_producer *producer,
                         int64_t now_ms);
void fq_producers_closed(struct fq_producers *producers, struct fq_producer *producer,
                         int64_t now_ms);

enum fq_producer_verdict {
    FQ_PRODUCER_NEXT,        /* append it */
    FQ_PRODUCER_DUPLICATE,   /* *ret_original is what was stored */
    FQ_PRODUCER_OUT_OF_ORDER /* expected is producer->next_sequence */
};
enum fq_producer_verdict fq_producer_check(const struct fq_producer *producer,
                                           int32_t base_sequence, int32_t records_count,
                                           unsigned max_in_flight,
                                           struct fq_producer_batch *ret_original);
void fq_producer_appended(struct fq_producer *producer, int32_t base_sequence,
                          int32_t records_count, int64_t base_offset, int64_t now_ms);

/* Recovery: a batch found in the log, in offset order. NO_MEMORY. Batches without a producer id are
 * ignored; at the limit the longest unused state gives way. */
int fq_producers_replay(struct fq_producers *producers, const struct fq_batch_header *header,
                        unsigned batches, int64_t now_ms);

/* Forgets batches at and above `offset`. What is left of a producer's window is enough: a client
 * has at most that many batches in flight, and those that were cut come first when it sends again.
 */
void fq_producers_truncate(struct fq_producers *producers, int64_t offset);

/* Forgets up to `at_most` producers that are not open and were last used more than expiration_ms
 * before now; returns how many. */
size_t fq_producers_expire(struct fq_producers *producers, int64_t now_ms, int64_t expiration_ms,
                           size_t at_most);
bool fq_producers_wants_expire(const struct fq_producers *producers, int64_t now_ms,
                               int64_t expiration_ms);

/* Each once: those not open from the longest closed on, then the open ones. `at` starts NULL. */
struct fq_producer *fq_producers_next(const struct fq_producers *producers,
                                      const struct fq_producer *at);

#endif
