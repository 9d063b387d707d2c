/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: which sizes it keeps, that it lets go of them again, that nobody waits for the whole of
 * another's segment, and what a recycled segment may still hold, for whom.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_maker.h"
#include "storage/layout.h"

#define SECOND_US INT64_C(1000000)

struct pool_world {
    char *folder;
    struct fq_store *store;
    struct fq_log *logs[2];
    struct fq_store_params params;
    int64_t now_us;
};

static void open_store(struct pool_world *w)
{
    struct fq_err err;
    cr_assert_eq(fq_store_open(&w->params, &w->store, &err), 0, "%s", err.text);
}

static void open_log(struct pool_world *w, unsigned i, uint64_t segment_bytes, bool wants_zeros)
{
    struct fq_err err;
    const struct fq_log_params params = {.topic_id = {{(uint8_t)(i + 1)}},
                                         .topic = i == 0 ? "left" : "right",
                                         .segment_bytes = segment_bytes,
                                         .wants_zeros = wants_zeros};
    cr_assert_eq(fq_log_open(w->store, &params, NULL, NULL, &w->logs[i], &err), 0, "%s", err.text);
}

static void start(struct pool_world *w, uint64_t first_bytes, uint64_t max_bytes,
                  uint64_t prepared_bytes)
{
    *w = (struct pool_world){.folder = log_maker_folder(), .now_us = 1};
    cr_assert_not_null(w->folder);
    w->params = (struct fq_store_params){.data_dir = w->folder,
                                         .flush = FQ_FLUSH_PMEM,
                                         .shards_count = 1,
                                         .segment_bytes_max = max_bytes,
                                         .segment_bytes_first = first_bytes,
                                         .prepared_bytes = prepared_bytes,
                                         .batch_bytes_max = 4096};
    open_store(w);
}

static void end(struct pool_world *w)
{
    fq_log_close(w->logs[0], true);
    fq_log_close(w->logs[1], true);
    fq_store_close(w->store, true);
    log_maker_remove_tree(w->folder);
    free(w->folder);
}

static struct fq_store_stats stats_of(const struct pool_world *w)
{
    struct fq_store_stats stats;
    fq_store_get_stats(w->store, &stats);
    return stats;
}

static void rest(struct pool_world *w)
{
    while (fq_store_step(w->store, w->now_us) > 0) {
    }
}

/* One batch of some 1.1 KB; appends as a shard does, and counts how often it had to wait. */
static unsigned append(struct pool_world *w, unsigned i)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct fq_batch_header header;
    struct fq_log *log = w->logs[i];
    struct fq_err err;
    unsigned waits = 0;
    int64_t base = fq_log_end(log);
    size_t length = log_maker_batch(batch, base, 0, 1, 1000, 5);
    int r;
    cr_assert_eq(fq_batch_header_read(batch, length, &header, NULL), 0);
    while ((r = fq_log_reserve(log, length, base, &err)) == FQ_RESERVE_STARVED) {
        waits++;
        (void)fq_store_step(w->store, w->now_us);
    }
    cr_assert_eq(r, 0, "%s", err.text);
    cr_assert_eq(fq_log_write(log, batch, length), 0);
    cr_assert_eq(fq_log_commit_batch(log, &header, NULL), 0);
    cr_assert_eq(fq_log_publish(log), 0);
    return waits;
}

/* Until the log has opened `count` more segments; the housekeeper has time in between. */
static unsigned append_segments(struct pool_world *w, unsigned i, unsigned count)
{
    unsigned waits = 0;
    const struct fq_segment *last = fq_log_segment_last(w->logs[i]);
    while (count > 0) {
        waits += append(w, i);
        rest(w);
        if (fq_log_segment_last(w->logs[i]) != last) {
            last = fq_log_segment_last(w->logs[i]);
            count--;
        }
    }
    return waits;
}

static void retain(struct pool_world *w, unsigned i, uint64_t segment_bytes, unsigned segments)
{
    fq_log_configure(w->logs[i], segment_bytes, segments * segment_bytes);
    (void)fq_log_apply_retention(w->logs[i]);
    rest(w);
}

/* ---- sizes ---- */

Test(pool, a_log_that_grows_finds_every_size_prepared)
{
    struct pool_world w;
    start(&w, 16u << 10, 256u << 10, 512u << 10);
    rest(&w);
    struct fq_store_stats at_rest = stats_of(&w);
    cr_assert_leq(at_rest.prepared_bytes, 512u << 10);
    cr_assert_geq(at_rest.prepared_bytes, 496u << 10, "the floor, in first segments and a ladder");
    open_log(&w, 0, 256u << 10, false);
    for (uint64_t bytes = 16u << 10; bytes <= 64u << 10; bytes *= 2) {
        uint64_t created = stats_of(&w).created;
        (void)append(&w, 0); /* opens one; the housekeeper has only handed over what was there */
        cr_assert_eq(stats_of(&w).created, created, "%llu bytes", (unsigned long long)bytes);
        struct fq_segment *segment = fq_log_segment_last(w.logs[0]);
        cr_assert_eq(fq_segment_capacity(segment) + FQ_SEG_DATA, bytes);
        while (fq_segment_capacity(segment) - fq_segment_data_bytes(segment) > 1200) {
            cr_assert_eq(append(&w, 0), 0);
            created += stats_of(&w).created - created;
            rest(&w);
        }
    }
    end(&w);
}

Test(pool, what_a_burst_took_goes_back_within_seconds)
{
    struct pool_world w;
    start(&w, 16u << 10, 64u << 10, 64u << 10);
    rest(&w);
    uint64_t at_rest = stats_of(&w).prepared_bytes;
    open_log(&w, 0, 64u << 10, false);
    for (int i = 0; i < 60; i++) {
        (void)append_segments(&w, 0, 1);
        retain(&w, 0, 64u << 10, 2);
        w.now_us += 5000; /* 200 segments a second */
    }
    struct fq_store_stats busy = stats_of(&w);
    cr_assert_gt(busy.recycled, 50);
    cr_assert_leq(busy.prepared_bytes, at_rest + (10u + 1u) * (64u << 10),
                  "bounded while it lasts");
    int ticks = 0;
    while (fq_store_next_deadline_us(w.store) != INT64_MAX) {
        cr_assert_lt(++ticks, 30, "the housekeeper comes to rest");
        w.now_us = fq_store_next_deadline_us(w.store);
        rest(&w);
    }
    cr_assert_eq(stats_of(&w).prepared_bytes, at_rest);
    cr_assert_eq(fq_store_step(w.store, w.now_us + 3600 * SECOND_US), 0, "and stays there");
    end(&w);
}

/* Retention takes one for each that is opened: then nothing is created any more, and no append
 * waits. */
Test(pool, a_log_with_retention_lives_on_its_own_segments)
{
    struct pool_world w;
    start(&w, 16u << 10, 64u << 10, 64u << 10);
    open_log(&w, 0, 64u << 10, false);
    for (int i = 0; i < 100; i++) { /* two seconds: the pool has learnt the rate */
        (void)append_segments(&w, 0, 1);
        retain(&w, 0, 64u << 10, 3);
        w.now_us += 20000;
    }
    struct fq_store_stats before = stats_of(&w);
    unsigned waits = 0;
    for (int i = 0; i < 100; i++) {
        waits += append_segments(&w, 0, 1);
        retain(&w, 0, 64u << 10, 3);
        w.now_us += 20000;
    }
    cr_assert_eq(waits, 0);
    cr_assert_eq(stats_of(&w).created, before.created);
    cr_assert_eq(stats_of(&w).unlinked, before.unlinked);
    end(&w);
}

/* ---- pieces ---- */

/* A log that has a segment ready gets it while the housekeeper makes a large one for another. */
Test(pool, nobody_waits_for_the_whole_of_anothers_segment)
{
    struct pool_world w;
    struct fq_err err;
    start(&w, 16u << 10, 32u << 20, 16u << 10);
    rest(&w);
    open_log(&w, 0, 16u << 10, false);
    open_log(&w, 1, 16u << 10, false);
    int64_t none = 0;
    /* room for a batch of 30 MiB: none such is in the pool */
    cr_assert_eq(fq_log_reserve(w.logs[0], 30u << 20, none, &err), FQ_RESERVE_STARVED);
    (void)fq_store_step(w.store, w.now_us);
    cr_assert_eq(fq_log_reserve(w.logs[0], 30u << 20, none, &err), FQ_RESERVE_STARVED);
    unsigned waits = append(&w, 1);
    cr_assert_leq(waits, 2);
    cr_assert_eq(fq_log_reserve(w.logs[0], 30u << 20, none, &err), FQ_RESERVE_STARVED,
                 "which is still being made");
    unsigned steps = 0;
    while (fq_log_reserve(w.logs[0], 30u << 20, none, &err) == FQ_RESERVE_STARVED) {
        (void)fq_store_step(w.store, w.now_us);
        cr_assert_lt(++steps, 20);
    }
    cr_assert_geq(steps, 4, "in pieces");
    end(&w);
}

/* ---- former lives ---- */

static bool is_zero(const uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool has_former_bytes(struct fq_log *log)
{
    struct fq_segment *last = fq_log_segment_last(log);
    uint64_t from = fq_segment_data_bytes(last);
    return !is_zero(fq_segment_data(last) + from, fq_segment_capacity(last) - from);
}

static int count_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                       uint64_t segment_base, uint64_t position)
{
    static uint8_t expected[LOG_MAKER_BATCH_MAX];
    int64_t *next = context;
    (void)segment_base;
    (void)position;
    cr_assert_eq(header->base_offset, *next);
    size_t length = log_maker_batch(expected, *next, 0, 1, 1000, 5);
    cr_assert_eq(memcmp(batch, expected, length), 0);
    (*next)++;
    return 0;
}

/* Recycled until the open segment, a few batches long, lies over an earlier life. */
static void come_to_a_former_life(struct pool_world *w, unsigned i)
{
    for (int turn = 0; turn < 12; turn++) {
        (void)append_segments(w, i, 1);
        retain(w, i, 64u << 10, 2);
    }
    (void)append(w, i);
    (void)append(w, i);
}

/* Damages bytes of the last segment's file and opens it all again. */
static void damage_and_reopen(struct pool_world *w, uint64_t position, size_t length)
{
    char path[4400];
    uint8_t bytes[64];
    struct fq_segment *last = fq_log_segment_last(w->logs[0]);
    (void)snprintf(path, sizeof path, "%s/left-01000000000000000000000000000000/0/%020lld.log",
                   w->folder, (long long)fq_segment_base_offset(last));
    rest(w);
    fq_log_close(w->logs[0], false);
    fq_store_close(w->store, true);
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pread(fd, bytes, length, (off_t)position), (ssize_t)length);
    for (size_t i = 0; i < length; i++) {
        bytes[i] ^= 0x55;
    }
    cr_assert_eq(pwrite(fd, bytes, length, (off_t)position), (ssize_t)length);
    (void)close(fd);
    open_store(w);
    open_log(w, 0, 64u << 10, false);
}

Test(pool, the_same_partition_gets_its_segment_back_as_it_is_and_nothing_of_it)
{
    struct pool_world w;
    start(&w, 64u << 10, 64u << 10, 0);
    open_log(&w, 0, 64u << 10, false);
    come_to_a_former_life(&w, 0);
    cr_assert(has_former_bytes(w.logs[0]), "which is what this is about");
    int64_t first = fq_log_start(w.logs[0]), next = first, last = fq_log_end(w.logs[0]);
    cr_assert_gt(first, 100);

    damage_and_reopen(&w, FQ_SEG_TAIL, 8);
    cr_assert_eq(fq_log_end(w.logs[0]), last, "found by the batches alone");
    cr_assert_eq(fq_log_start(w.logs[0]), first);
    cr_assert_eq(fq_log_scan(w.logs[0], first, INT64_MAX, count_batch, &next), 0);
    cr_assert_eq(next, last);
    cr_assert_eq(fq_log_damage_count(w.logs[0]), 1, "the word");

    (void)append(&w, 0);
    (void)append(&w, 0);
    last = fq_log_end(w.logs[0]);
    next = first;
    damage_and_reopen(&w, 0, 8); /* its identity: the name says where it begins */
    cr_assert_eq(fq_log_end(w.logs[0]), last);
    cr_assert_eq(fq_log_scan(w.logs[0], first, INT64_MAX, count_batch, &next), 0);
    cr_assert_eq(next, last);
    end(&w);
}

/* The tail word and a batch before the last one, both: the last one is followed by nothing that
 * could be taken for more of it, so it is found. */
Test(pool, behind_the_last_batch_an_end_looks_like_an_end)
{
    struct pool_world w;
    start(&w, 64u << 10, 64u << 10, 0);
    open_log(&w, 0, 64u << 10, false);
    come_to_a_former_life(&w, 0);
    cr_assert(has_former_bytes(w.logs[0]));
    struct fq_segment *segment = fq_log_segment_last(w.logs[0]);
    int64_t last = fq_log_end(w.logs[0]);
    uint64_t bytes = fq_segment_data_bytes(segment);
    uint64_t batch = bytes / (uint64_t)(last - fq_segment_base_offset(segment));
    cr_assert_eq(bytes % batch, 0, "all of a length");
    damage_and_reopen(&w, FQ_SEG_DATA + bytes - 2 * batch + 200, 8);
    cr_assert_eq(fq_log_end(w.logs[0]), last, "the tail word is good");
    damage_and_reopen(&w, FQ_SEG_TAIL, 8);
    cr_assert_eq(fq_log_end(w.logs[0]), last);
    struct fq_log_place place;
    cr_assert_eq(fq_log_find(w.logs[0], last - 1, &place), 0);
    cr_assert_eq(fq_log_find(w.logs[0], last - 2, &place), FLASHQ_ERR_CORRUPT);
    end(&w);
}

Test(pool, another_partition_or_one_that_wants_zeros_gets_zeros)
{
    for (int wants_zeros = 0; wants_zeros < 2; wants_zeros++) {
        struct pool_world w;
        start(&w, 64u << 10, 64u << 10, 0);
        open_log(&w, 0, 64u << 10, wants_zeros);
        open_log(&w, 1, 64u << 10, false);
        for (int turn = 0; turn < 12; turn++) {
            (void)append_segments(&w, 0, 1);
            retain(&w, 0, 64u << 10, 2);
            (void)append(&w, 0);
            cr_assert(!wants_zeros || !has_former_bytes(w.logs[0]));
        }
        uint64_t created = stats_of(&w).created;
        (void)append_segments(&w, 1, 2);
        cr_assert_not(has_former_bytes(w.logs[1]));
        cr_assert_leq(stats_of(&w).created, created + 3);
        end(&w);
    }
}
