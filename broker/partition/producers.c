/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producer states: a hash table of pointers and a list of those that are not open.
 *
 * On the path of a batch there are a lookup, a walk over at most FQ_LIMIT_MAX_IN_FLIGHT remembered
 * batches and one store. Whatever fails (only memory can) leaves the table as it was.
 *
 * Thread: the partition's shard.
 */
#include "partition/producers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/random.h"

#define SLOTS_COUNT_MIN 16u

/* The finaliser of splitmix64 (https://prng.di.unimi.it/splitmix64.c) over the seeded id. */
static size_t home_slot(const struct fq_producers *producers, int64_t id)
{
    uint64_t z = (uint64_t)id ^ producers->seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (size_t)z & (producers->slots_count - 1);
}

/* The slot of `id`, or the empty one where it would go. */
static size_t find_slot(const struct fq_producers *producers, int64_t id)
{
    size_t at = home_slot(producers, id);
    while (producers->slots[at] != NULL && producers->slots[at]->id != id) {
        at = (at + 1) & (producers->slots_count - 1);
    }
    return at;
}

static int grow(struct fq_producers *producers)
{
    struct fq_producer **old = producers->slots;
    size_t old_count = producers->slots_count;
    size_t new_count = old_count == 0 ? SLOTS_COUNT_MIN : old_count * 2;
    struct fq_producer **slots = calloc(new_count, sizeof(struct fq_producer *));
    if (slots == NULL) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    producers->slots = slots;
    producers->slots_count = new_count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] != NULL) {
            slots[find_slot(producers, old[i]->id)] = old[i];
        }
    }
    free(old);
    return 0;
}

/* Empties a slot and moves up what had been pushed past it (Knuth 6.4, algorithm R). */
static void empty_slot(struct fq_producers *producers, size_t hole)
{
    size_t mask = producers->slots_count - 1;
    producers->slots[hole] = NULL;
    for (size_t at = (hole + 1) & mask; producers->slots[at] != NULL; at = (at + 1) & mask) {
        size_t home = home_slot(producers, producers->slots[at]->id);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            producers->slots[hole] = producers->slots[at];
            producers->slots[at] = NULL;
            hole = at;
        }
    }
}

/* ---- the list of those not open ---- */

static void list_append(struct fq_producers *producers, struct fq_producer *producer)
{
    producer->older = producers->newest;
    producer->newer = NULL;
    *(producers->newest != NULL ? &producers->newest->newer : &producers->oldest) = producer;
    producers->newest = producer;
}

static void list_remove(struct fq_producers *producers, struct fq_producer *producer)
{
    *(producer->older != NULL ? &producer->older->newer : &producers->oldest) = producer->newer;
    *(producer->newer != NULL ? &producer->newer->older : &producers->newest) = producer->older;
    producer->older = producer->newer = NULL;
}

static void forget(struct fq_producers *producers, struct fq_producer *producer)
{
    assert(producer->opens_count == 0);
    list_remove(producers, producer);
    empty_slot(producers, find_slot(producers, producer->id));
    producers->count--;
    free(producer);
}

/* ---- the remembered batches ---- */

/* The batch `back` steps before the newest (0). */
static const struct fq_producer_batch *batch_at(const struct fq_producer *producer, unsigned back)
{
    unsigned capacity = producer->batches_capacity;
    return &producer->batches[(producer->batches_next + capacity - 1u - back) % capacity];
}

static void remember(struct fq_producer *producer, int32_t base_sequence, int32_t records_count,
                     int64_t base_offset)
{
    producer->batches[producer->batches_next] = (struct fq_producer_batch){
        .base_offset = base_offset, .base_sequence = base_sequence, .records_count = records_count};
    producer->batches_next = (uint16_t)((producer->batches_next + 1u) % producer->batches_capacity);
    if (producer->batches_count < producer->batches_capacity) {
        producer->batches_count++;
    }
    producer->next_sequence = fq_sequence_add(base_sequence, records_count);
    producer->last_offset = base_offset + records_count - 1;
}

static struct fq_producer *make(int64_t id, unsigned batches)
{
    struct fq_producer *producer =
        calloc(1, sizeof *producer + batches * sizeof(struct fq_producer_batch));
    if (producer != NULL) {
        producer->id = id;
        producer->last_offset = -1;
        producer->batches_capacity = (uint16_t)batches;
    }
    return producer;
}

/* A copy of `old` with room for more batches, in its place in table and list. */
static int enlarge(struct fq_producers *producers, struct fq_producer *old, unsigned batches,
                   struct fq_producer **ret)
{
    struct fq_producer *producer = make(old->id, batches);
    if (producer == NULL) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    producer->used_ms = old->used_ms;
    producer->epoch = old->epoch;
    producer->opens_count = old->opens_count;
    for (unsigned back = old->batches_count; back-- > 0;) {
        const struct fq_producer_batch *batch = batch_at(old, back);
        remember(producer, batch->base_sequence, batch->records_count, batch->base_offset);
    }
    producer->next_sequence = old->next_sequence;
    producer->last_offset = old->last_offset;
    producers->slots[find_slot(producers, old->id)] = producer;
    if (old->opens_count == 0) {
        producer->older = old->older;
        producer->newer = old->newer;
        *(old->older != NULL ? &old->older->newer : &producers->oldest) = producer;
        *(old->newer != NULL ? &old->newer->older : &producers->newest) = producer;
    }
    free(old);
    *ret = producer;
    return 0;
}

/* ---- for the partition ---- */

void fq_producers_init(struct fq_producers *producers, size_t limit)
{
    *producers = (struct fq_producers){.limit = limit, .seed = fq_random_u64()};
}

void fq_producers_fini(struct fq_producers *producers)
{
    for (size_t i = 0; i < producers->slots_count; i++) {
        free(producers->slots[i]);
    }
    free(producers->slots);
    *producers = (struct fq_producers){0};
}

struct fq_producer *fq_producers_find(const struct fq_producers *producers, int64_t id)
{
    return producers->slots_count == 0 ? NULL : producers->slots[find_slot(producers, id)];
}

int fq_producers_ensure(struct fq_producers *producers, int64_t id, unsigned batches,
                        struct fq_producer **ret)
{
    assert(batches > 0 && batches <= FQ_LIMIT_MAX_IN_FLIGHT);
    struct fq_producer *producer = fq_producers_find(producers, id);
    if (producer != NULL) {
        if (producer->batches_capacity < batches) {
            return enlarge(producers, producer, batches, ret);
        }
        *ret = producer;
        return 0;
    }
    if (producers->count >= producers->limit && producers->oldest == NULL) {
        return FLASHQ_ERR_LIMIT;
    }
    if ((producers->count + 1) * 2 > producers->slots_count) {
        int rc = grow(producers);
        if (rc < 0) {
            return rc;
        }
    }
    producer = make(id, batches);
    if (producer == NULL) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    if (producers->count >= producers->limit) {
        forget(producers, producers->oldest);
        producers->evicted++;
    }
    producers->slots[find_slot(producers, id)] = producer;
    producers->count++;
    list_append(producers, producer);
    *ret = producer;
    return 0;
}

void fq_producers_opened(struct fq_producers *producers, struct fq_producer *producer,
                         int64_t now_ms)
{
    if (producer->opens_count++ == 0) {
        list_remove(producers, producer);
    }
    producer->used_ms = now_ms;
}

void fq_producers_closed(struct fq_producers *producers, struct fq_producer *producer,
                         int64_t now_ms)
{
    assert(producer->opens_count > 0);
    producer->used_ms = now_ms;
    if (--producer->opens_count == 0) {
        list_append(producers, producer);
    }
}

enum fq_producer_verdict fq_producer_check(const struct fq_producer *producer,
                                           int32_t base_sequence, int32_t records_count,
                                           unsigned max_in_flight,
                                           struct fq_producer_batch *ret_original)
{
    if (base_sequence == producer->next_sequence) {
        return FQ_PRODUCER_NEXT;
    }
    unsigned remembered =
        producer->batches_count < max_in_flight ? producer->batches_count : max_in_flight;
    for (unsigned back = 0; back < remembered; back++) {
        const struct fq_producer_batch *batch = batch_at(producer, back);
        if (batch->base_sequence == base_sequence && batch->records_count == records_count) {
            *ret_original = *batch;
            return FQ_PRODUCER_DUPLICATE;
        }
    }
    return FQ_PRODUCER_OUT_OF_ORDER;
}

void fq_producer_appended(struct fq_producer *producer, int32_t base_sequence,
                          int32_t records_count, int64_t base_offset, int64_t now_ms)
{
    remember(producer, base_sequence, records_count, base_offset);
    producer->used_ms = now_ms;
}

int fq_producers_replay(struct fq_producers *producers, const struct fq_batch_header *header,
                        unsigned batches, int64_t now_ms)
{
    if (header->producer_id < 0) {
        return 0;
    }
    struct fq_producer *producer;
    int rc = fq_producers_ensure(producers, header->producer_id, batches, &producer);
    if (rc < 0) {
        return rc;
    }
    if (producer->last_offset >= header->base_offset) {
        return 0; /* the snapshot had it */
    }
    producer->epoch = header->producer_epoch;
    fq_producer_appended(producer, header->base_sequence, header->records_count,
                         header->base_offset, now_ms);
    if (producer->opens_count == 0) {
        list_remove(producers, producer);
        list_append(producers, producer);
    }
    return 0;
}

void fq_producers_truncate(struct fq_producers *producers, int64_t offset)
{
    for (size_t i = 0; i < producers->slots_count; i++) {
        struct fq_producer *producer = producers->slots[i];
        if (producer == NULL) {
            continue;
        }
        while (producer->batches_count > 0 && batch_at(producer, 0)->base_offset >= offset) {
            producer->next_sequence = batch_at(producer, 0)->base_sequence;
            producer->batches_next =
                (uint16_t)((producer->batches_next + producer->batches_capacity - 1u) %
                           producer->batches_capacity);
            producer->batches_count--;
        }
        if (producer->batches_count == 0) {
            producer->last_offset = -1;
        } else {
            const struct fq_producer_batch *last = batch_at(producer, 0);
            producer->last_offset = last->base_offset + last->records_count - 1;
        }
    }
}

static bool is_expired(const struct fq_producer *producer, int64_t now_ms, int64_t expiration_ms)
{
    return producer != NULL && expiration_ms >= 0 && now_ms > producer->used_ms &&
           now_ms - producer->used_ms > expiration_ms;
}

size_t fq_producers_expire(struct fq_producers *producers, int64_t now_ms, int64_t expiration_ms,
                           size_t at_most)
{
    size_t forgotten = 0;
    while (forgotten < at_most && is_expired(producers->oldest, now_ms, expiration_ms)) {
        forget(producers, producers->oldest);
        forgotten++;
    }
    return forgotten;
}

bool fq_producers_wants_expire(const struct fq_producers *producers, int64_t now_ms,
                               int64_t expiration_ms)
{
    return is_expired(producers->oldest, now_ms, expiration_ms);
}

/* The first open producer in a slot from `at` on. */
static struct fq_producer *next_open(const struct fq_producers *producers, size_t at)
{
    for (; at < producers->slots_count; at++) {
        if (producers->slots[at] != NULL && producers->slots[at]->opens_count > 0) {
            return producers->slots[at];
        }
    }
    return NULL;
}

struct fq_producer *fq_producers_next(const struct fq_producers *producers,
                                      const struct fq_producer *at)
{
    if (at == NULL && producers->oldest != NULL) {
        return producers->oldest;
    }
    if (at != NULL && at->opens_count == 0 && at->newer != NULL) {
        return at->newer;
    }
    bool among_open = at != NULL && at->opens_count > 0;
    return next_open(producers, among_open ? find_slot(producers, at->id) + 1 : 0);
}
