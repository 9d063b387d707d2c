/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches in the ring, by themselves: a ring of ordinary memory without a connection, partitions without a broker.
 * What the broker would say (consumed) and do (acknowledge) the tests say and do.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "client/engine.h"
#include "producer/inring.h"
#include "producer/producer.h"

enum { WINDOW = 1 << 18, BATCHES = 64, PARTS = 3 };

struct stand {
    struct fq_engine engine;
    struct fq_producer producer;
    struct fq_ring ring;
    struct fq_ppart pparts[PARTS];
    struct fq_ack_head *head; /* what the broker says */
    uint8_t *map;             /* the window twice in a row, as far as the tests look */
    struct fq_batch batches[BATCHES];
};

static struct stand *set_up(void)
{
    struct stand *s = calloc(1, sizeof *s);
    cr_assert_not_null(s);
    s->producer.engine = s->ring.engine = &s->engine;
    fq_pool_init(&s->producer.pool, 8 << 20);
    fq_chain_init(&s->ring.held);
    fq_chain_init(&s->ring.pparts);
    s->ring.state = FQ_RING_OPEN;
    s->ring.entries = 1000;
    s->ring.window_bytes = WINDOW;
    s->ring.map = s->map = malloc((size_t)2 * WINDOW);
    cr_assert_not_null(s->map);
    cr_assert_eq(fq_region_create(4096, FQ_REGION_LOCAL, &s->ring.ack_region, NULL), 0);
    s->head = fq_region_base(s->ring.ack_region);
    for (int i = 0; i < PARTS; i++) {
        fq_ppart_init(&s->pparts[i], &s->producer, i);
        s->pparts[i].state = FQ_PPART_OPEN;
        s->pparts[i].ring = &s->ring;
        s->pparts[i].max_in_flight = 1000;
    }
    return s;
}

/* Nothing may be left of the bytes that count. */
static void tear_down(struct stand *s)
{
    cr_assert_eq(s->producer.pool.used_bytes, 0);
    fq_pool_fini(&s->producer.pool);
    fq_region_unref(s->ring.ack_region);
    free(s->map);
    free(s);
}

static struct fq_batch *fresh(struct stand *s, int index, int part)
{
    struct fq_batch *batch = &s->batches[index];
    *batch = (struct fq_batch){.ppart = &s->pparts[part]};
    fq_chain_init(&batch->node);
    fq_chain_init(&batch->held_node);
    return batch;
}

static bool begin(struct fq_batch *batch, size_t least, size_t usual)
{
    if (!fq_inring_begin(batch->ppart, batch, least, usual)) {
        return false;
    }
    fq_batch_builder_init(&batch->builder, batch->block.data, batch->block.bytes);
    return true;
}

/* As the ring does, but for the connection. */
static void post(struct stand *s, struct fq_batch *batch, size_t length)
{
    batch->length = length;
    fq_inring_post(&s->ring, batch);
    s->ring.written += length;
    s->ring.posted++;
}

static void post_whole(struct stand *s, int index, size_t bytes)
{
    struct fq_batch *batch = fresh(s, index, 0);
    cr_assert(begin(batch, bytes, bytes));
    memset(batch->block.data, index + 1, bytes);
    post(s, batch, bytes);
}

static void end_batch(struct stand *s, struct fq_batch *batch)
{
    if (batch->home) {
        fq_inring_release(batch);
    }
    fq_pool_free(&s->producer.pool, &batch->block);
}

static void expect_bytes(const struct fq_batch *batch, int value)
{
    for (size_t i = 0; i < batch->length; i++) {
        cr_assert_eq(batch->block.data[i], value, "byte %zu", i);
    }
}

Test(inring, a_batch_is_charged_while_it_lies_there)
{
    struct stand *s = set_up();
    struct fq_batch *batch = fresh(s, 0, 0);
    cr_assert(begin(batch, 100, 5000));
    cr_assert_eq(s->producer.pool.used_bytes, 5000);
    cr_assert_eq(batch->block.data, s->ring.map);
    post(s, batch, 1234);
    cr_assert_eq(s->producer.pool.used_bytes, 1234, "what was not used is given back");
    cr_assert_null(s->ring.open);
    struct fq_batch *next = fresh(s, 1, 1);
    cr_assert(begin(next, 100, 5000));
    cr_assert_eq(next->block.data, s->ring.map + 1234, "right behind it");
    cr_assert_not(begin(fresh(s, 2, 2), 100, 100), "one is open at a time");
    end_batch(s, batch);
    end_batch(s, next);
    cr_assert_null(s->ring.open);
    tear_down(s);
}

Test(inring, batches_begin_elsewhere_where_the_ring_is_not_theirs)
{
    struct stand *s = set_up();
    struct fq_batch *batch = fresh(s, 0, 0);
    cr_assert_not(begin(batch, WINDOW / 4 + 1, WINDOW), "a quarter at most");
    s->ring.map = NULL;
    cr_assert_not(begin(batch, 100, 100), "not seen from here");
    s->ring.map = s->map;
    s->producer.is_direct = true;
    cr_assert_not(begin(batch, 100, 100), "direct slots have windows of their own");
    s->producer.is_direct = false;
    s->engine.config.codec = FQ_CODEC_LZ4;
    cr_assert_not(begin(batch, 100, 100), "compressed into a block");
    s->engine.config.codec = FQ_CODEC_NONE;
    s->pparts[0].max_in_flight = 0;
    cr_assert_not(begin(batch, 100, 100), "it would wait");
    s->pparts[0].max_in_flight = 1;
    s->ring.posting = &s->batches[1];
    cr_assert_not(begin(batch, 100, 100), "`written` is not known yet");
    s->ring.posting = NULL;
    s->producer.pool.limit_bytes = 99;
    cr_assert_not(begin(batch, 100, 100), "queue.bytes");
    s->producer.pool.limit_bytes = 8 << 20;
    cr_assert(begin(batch, 100, WINDOW), "as much as may be");
    cr_assert_eq(batch->block.bytes, WINDOW / 4);
    end_batch(s, batch);
    tear_down(s);
}

/* Room is made of what the broker has consumed, oldest first, and of nothing else. */
Test(inring, room_is_made_of_what_was_consumed)
{
    enum { BYTES = WINDOW / 4 };
    struct stand *s = set_up();
    for (int i = 0; i < 4; i++) {
        post_whole(s, i, BYTES);
    }
    cr_assert_not(fq_inring_make_room(&s->ring, 1), "nothing was consumed");
    s->head->consumed = 2 * BYTES - 1;
    cr_assert(fq_inring_make_room(&s->ring, BYTES), "the first was");
    cr_assert_null(s->batches[0].home);
    cr_assert_eq(s->batches[1].home, &s->ring);
    cr_assert_not(fq_inring_make_room(&s->ring, BYTES + 1), "the second was not, all of it");
    cr_assert_eq(s->batches[1].home, &s->ring);
    s->head->consumed = 4 * BYTES;
    cr_assert(fq_inring_make_room(&s->ring, 2 * BYTES));
    cr_assert_null(s->batches[1].home);
    cr_assert_eq(s->batches[2].home, &s->ring, "no more than is needed");
    cr_assert_eq(fq_inring_floor(&s->ring), 2 * BYTES);
    memset(s->ring.map, 0xee, 2 * BYTES);
    for (int i = 0; i < 4; i++) {
        expect_bytes(&s->batches[i], i + 1);
    }
    s->head->consumed = 4 * BYTES + 1;
    cr_assert_not(fq_inring_make_room(&s->ring, 3 * BYTES) && s->ring.consumed > 4 * BYTES,
                  "more than was written is not believed");
    for (int i = 0; i < 4; i++) {
        end_batch(s, &s->batches[i]);
    }
    cr_assert_eq(fq_inring_floor(&s->ring), 4 * BYTES);
    tear_down(s);
}

Test(inring, a_ring_whose_batches_are_moved_rests_longer_each_time)
{
    struct stand *s = set_up();
    unsigned rest = 0;
    for (int i = 0; i < 10; i++) {
        struct fq_batch *batch = fresh(s, 0, 0);
        for (unsigned n = 0; n < rest; n++) {
            cr_assert_not(begin(batch, 100, 100), "%u of %u", n, rest);
        }
        cr_assert(begin(batch, 100, 100));
        cr_assert_eq(fq_inring_move_out(batch), 0);
        end_batch(s, batch);
        rest = rest * 2 + 1 < 64 ? rest * 2 + 1 : 64;
        cr_assert_eq(s->ring.rest, rest);
    }
    s->ring.rest = 0;
    for (unsigned left = 64; left > 0; left /= 2) { /* those that end where they were built shorten it */
        cr_assert_eq(s->ring.rest_next, left);
        struct fq_batch *batch = fresh(s, 0, 0);
        cr_assert(begin(batch, 100, 100));
        end_batch(s, batch);
    }
    cr_assert_eq(s->ring.rest_next, 0);
    s->ring.rest = s->ring.rest_next = 9;
    fq_inring_leave(&s->ring);
    cr_assert_eq(s->ring.rest + s->ring.rest_next, 0, "another connection, another try");
    tear_down(s);
}

/* What was decided when the batch began holds: batch.max.bytes is below the block that it moves to. */
Test(inring, a_moved_batch_takes_no_more_than_it_would_have)
{
    struct stand *s = set_up();
    struct fq_batch *batch = fresh(s, 0, 0);
    s->pparts[0].block_bytes = 100 << 10;
    s->pparts[0].filling = batch;
    cr_assert(begin(batch, 100, 10000));
    batch->builder.capacity = 8192;
    memset(batch->block.data, 1, 3000);
    batch->builder.used = 3000;
    cr_assert_eq(fq_inring_move_out(batch), 0);
    cr_assert_eq(batch->builder.capacity, 8192);
    cr_assert_geq(batch->block.bytes, 8192);
    cr_assert_eq(batch->builder.buffer, batch->block.data);
    cr_assert_eq(batch->block.data[2999], 1);
    end_batch(s, batch);
    tear_down(s);
}

/* The connection ends with batches posted and one open: they are all here, whole, and nothing is in the ring. */
Test(inring, everything_leaves_with_the_connection)
{
    struct stand *s = set_up();
    s->producer.pool.limit_bytes = 4 * 20000; /* beyond it, if need be */
    for (int i = 0; i < 3; i++) {
        post_whole(s, i, 20000);
    }
    struct fq_batch *open = fresh(s, 3, 1);
    cr_assert(begin(open, 10000, 10000));
    memset(open->block.data, 4, 500);
    open->builder.used = 500;
    fq_inring_leave(&s->ring);
    memset(s->map, 0xee, WINDOW);
    cr_assert_null(s->ring.open);
    cr_assert(fq_chain_is_empty(&s->ring.held));
    cr_assert_null(s->ring.map);
    open->length = 500;
    for (int i = 0; i < 4; i++) {
        cr_assert_null(s->batches[i].home);
        expect_bytes(&s->batches[i], i + 1);
        end_batch(s, &s->batches[i]);
    }
    tear_down(s);
}

/* ---- at random ----------------------------------------------------------------------------------- */

struct play {
    struct stand *s;
    struct fq_prng prng;
    int used[BATCHES]; /* 0: free, 1: open, 2: posted */
    uint8_t value[BATCHES];
    uint64_t begins, moves, ends[3];
};

static int find(const struct play *p, int state)
{
    for (int i = 0; i < BATCHES; i++) {
        if (p->used[i] == state) {
            return i;
        }
    }
    return -1;
}

static void play_begin_or_post(struct play *p)
{
    int open = find(p, 1), index = open >= 0 ? open : find(p, 0);
    if (index < 0) {
        return;
    }
    struct fq_batch *batch = &p->s->batches[index];
    if (open < 0) {
        size_t bytes = 100 + fq_prng_below(&p->prng, WINDOW / 5);
        batch = fresh(p->s, index, (int)fq_prng_below(&p->prng, PARTS));
        if (begin(batch, bytes, bytes)) {
            p->value[index] = (uint8_t)fq_prng_next(&p->prng);
            memset(batch->block.data, p->value[index], bytes);
            batch->builder.used = bytes;
            p->used[index] = 1;
            p->begins++;
        }
    } else {
        post(p->s, batch, 100 + fq_prng_below(&p->prng, (uint32_t)batch->block.bytes - 99));
        p->used[index] = 2;
    }
}

static void play_once(struct play *p)
{
    struct stand *s = p->s;
    int index = (int)fq_prng_below(&p->prng, BATCHES);
    struct fq_batch *batch = &s->batches[index];
    switch (fq_prng_below(&p->prng, 8)) {
    case 0: /* any that is consumed is answered */
        if (p->used[index] == 2 && batch->position + batch->length <= s->ring.consumed) {
            expect_bytes(batch, p->value[index]);
            end_batch(s, batch);
            p->used[index] = 0;
        }
        break;
    case 1:
        s->head->consumed += fq_prng_below(&p->prng, (uint32_t)(s->ring.written - s->head->consumed) + 1);
        break;
    case 2:
        p->moves += fq_inring_make_room(&s->ring, 1 + fq_prng_below(&p->prng, WINDOW));
        break;
    case 3:
        s->ring.rest = 0;
        break;
    default: play_begin_or_post(p); break;
    }
}

/* However batches come and go, each keeps its bytes to its end, and every byte of the queue is given back. */
Test(inring, nobody_writes_where_another_lies)
{
    struct stand *s = set_up();
    struct play *p = calloc(1, sizeof *p);
    uint64_t seed = fq_random_u64();
    cr_assert_not_null(p);
    (void)printf("# seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&p->prng, seed);
    p->s = s;
    for (int i = 0; i < 20000; i++) {
        play_once(p);
        cr_assert_leq(s->ring.written - fq_inring_floor(&s->ring), WINDOW);
    }
    cr_assert_gt(p->begins, 500);
    cr_assert_gt(p->moves, 50);
    for (int i = 0; i < BATCHES; i++) {
        if (p->used[i]) {
            expect_bytes(&s->batches[i], p->value[i]);
            end_batch(s, &s->batches[i]);
        }
    }
    free(p);
    tear_down(s);
}
