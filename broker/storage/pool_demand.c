/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pool is asked for, and so what it keeps. The housekeeper's thread.
 *
 * A log that takes a segment promises what it will want next: twice the size while it grows, the
 * same when it is grown. So the size that comes next is being made while the log fills this one,
 * and a log that passes through the small sizes leaves nothing behind in them. On top of the
 * promises comes what the rate of the last seconds takes in 50 ms, for a burst between two looks of
 * the housekeeper. Rates fall by half each second, promises end after ten seconds in which nobody
 * asked for the size; then only the floor is left (log.prepared.bytes): half of it in first
 * segments, half in one of each size that a growing log passes through, as far as that goes.
 */
#include "storage/pool_impl.h"

#define TICK_US        INT64_C(1000000)
#define QUIET_TICKS    10u
#define RATE_SHARE     20u /* of a second's files, kept ready */
#define WANT_MAX       8u
#define WANT_BYTES_MAX (UINT64_C(256) << 20) /* of one size, beyond two of them */
#define SURPLUS        2u /* files of a size beyond what is wanted, while it is in use: at least */
#define SURPLUS_BYTES                                                                              \
    (UINT64_C(64) << 20) /* or as many as these are: what a log holds varies by a few */
#define SURPLUS_MAX 8u

static struct fq_pool_demand *demand_of(struct fq_pool *pool, uint64_t bytes)
{
    struct fq_pool_demand *least = NULL;
    for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
        struct fq_pool_demand *d = &pool->demand[i];
        if (d->bytes == bytes) {
            return d;
        }
        if (d->floor == 0 && (!least || d->rate + d->promised < least->rate + least->promised)) {
            least = d;
        }
    }
    if (!least) { /* more sizes in the floor than there are classes: see fq_pool_set_floor */
        least = &pool->demand[FQ_POOL_CLASSES - 1];
    }
    *least = (struct fq_pool_demand){.bytes = bytes};
    return least;
}

static void begin_ticks(struct fq_store *store)
{
    if (store->pool.tick_us == INT64_MAX) {
        store->pool.tick_us = store->now_us + TICK_US;
    }
}

void fq_pool_note_demand(struct fq_store *store, uint64_t bytes, uint64_t after)
{
    struct fq_pool_demand *d = demand_of(&store->pool, bytes);
    d->taken++;
    d->rate = d->rate > d->taken ? d->rate : d->taken;
    d->promised -= d->promised > 0;
    d->quiet = 0;
    d = demand_of(&store->pool, after);
    d->promised++;
    d->quiet = 0;
    begin_ticks(store);
}

uint64_t fq_pool_wanted(struct fq_store *store, uint64_t bytes)
{
    const struct fq_pool_demand *d = demand_of(&store->pool, bytes);
    uint64_t most = WANT_BYTES_MAX / bytes;
    uint64_t want = d->promised + (d->rate + RATE_SHARE - 1) / RATE_SHARE;
    most = most < 2 ? 2 : most > WANT_MAX ? WANT_MAX : most;
    want = want < most ? want : most;
    return want > d->floor ? want : d->floor;
}

uint64_t fq_pool_kept_most(struct fq_store *store, uint64_t bytes)
{
    const struct fq_pool_demand *d = demand_of(&store->pool, bytes);
    bool is_in_use = d->rate > 0 || d->promised > 0;
    uint64_t surplus = SURPLUS_BYTES / bytes;
    surplus = surplus < SURPLUS ? SURPLUS : surplus > SURPLUS_MAX ? SURPLUS_MAX : surplus;
    return fq_pool_wanted(store, bytes) + (is_in_use ? surplus : 0);
}

bool fq_pool_is_quiet(struct fq_store *store, uint64_t bytes)
{
    return demand_of(&store->pool, bytes)->rate == 0;
}

void fq_pool_tick(struct fq_store *store)
{
    struct fq_pool *pool = &store->pool;
    if (pool->drop_from_us == INT64_MIN) { /* the first step after a start */
        pool->drop_from_us = store->now_us + (int64_t)QUIET_TICKS * TICK_US;
        begin_ticks(store);
    }
    if (store->now_us < pool->tick_us) {
        return;
    }
    bool is_settled = store->now_us >= pool->drop_from_us;
    for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
        struct fq_pool_demand *d = &pool->demand[i];
        d->rate = d->taken > d->rate / 2 ? d->taken : d->rate / 2;
        d->taken = 0;
        d->quiet += d->quiet < QUIET_TICKS;
        d->promised = d->quiet < QUIET_TICKS ? d->promised : 0;
        is_settled &= d->rate == 0 && d->promised == 0;
    }
    pool->tick_us = is_settled ? INT64_MAX : store->now_us + TICK_US;
}

void fq_pool_set_floor(struct fq_store *store)
{
    struct fq_pool *pool = &store->pool;
    uint64_t floor_bytes = store->params.prepared_bytes, ladder_bytes = 0;
    unsigned sizes = 0;
    for (uint64_t bytes = 2 * store->first_bytes;
         sizes < FQ_POOL_CLASSES / 2 && bytes <= store->params.segment_bytes_max &&
         ladder_bytes + bytes <= floor_bytes / 2;
         bytes *= 2, sizes++) {
        demand_of(pool, bytes)->floor = 1;
        ladder_bytes += bytes;
    }
    uint64_t first = (floor_bytes - ladder_bytes) / store->first_bytes;
    if (floor_bytes > 0 && first < store->params.shards_count) {
        first = store->params.shards_count;
    }
    demand_of(pool, store->first_bytes)->floor = first;
    pool->tick_us = INT64_MAX;
    pool->drop_from_us = INT64_MIN;
    pool->retry_at_us = INT64_MIN;
}
