/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time index against the brute force: random lives of a partition (append, trim, truncate, restart,
 * a calendar lost, damaged, stale, or slow) with timestamps in every order one could fear.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/random.h"
#include "time_log.h"
#include "timeindex/calendar_node.h"

enum { RECORDS_PER_BATCH_MAX = 12, NODES_MAX = 64 };

enum order {
    ORDER_SORTED,
    ORDER_REVERSED,
    ORDER_SAW_TOOTH,
    ORDER_CONSTANT,
    ORDER_SECONDS,        /* one second a record */
    ORDER_FUTURE_FIRST,   /* one record far ahead, then sorted */
    ORDER_MONTHS_OLD,     /* sorted, with strays of months ago */
    ORDER_RANDOM_NARROW,
    ORDER_RANDOM_WIDE,    /* more than 2^32 ms apart, before 1970 too */
    ORDER_EXTREMES,
    ORDER_DAYS,           /* a day or more between records */
    ORDERS
};

static const int64_t now = INT64_C(1700000000000);

static int64_t timestamp_of(enum order order, int64_t offset, struct fq_prng *prng)
{
    static const int64_t extremes[] = {0,    -1,   1,         INT64_MAX, INT64_MAX - 1, 999,
                                       1000, 1001, INT64_MIN, 59999,     60000,         86400000};
    switch (order) {
    case ORDER_SORTED:
        return now + offset * 137;
    case ORDER_REVERSED:
        return now - offset * 911;
    case ORDER_SAW_TOOTH:
        return now + (offset % 97) * 1500 + offset * 20;
    case ORDER_CONSTANT:
        return now;
    case ORDER_SECONDS:
        return now + offset * 1000;
    case ORDER_FUTURE_FIRST:
        return offset == 0 ? now + INT64_C(10) * 365 * 86400000 : now + offset * 500;
    case ORDER_MONTHS_OLD:
        return fq_prng_below(prng, 10) == 0
                   ? now - INT64_C(86400000) * (int64_t)fq_prng_below(prng, 200)
                   : now + offset * 700;
    case ORDER_RANDOM_NARROW:
        return now + (int64_t)fq_prng_below(prng, 5000);
    case ORDER_RANDOM_WIDE:
        return (int64_t)(fq_prng_next(prng) >> 3) - (INT64_C(1) << 60);
    case ORDER_EXTREMES:
        return extremes[fq_prng_below(prng, sizeof extremes / sizeof extremes[0])];
    case ORDER_DAYS:
        return offset * INT64_C(86400000) + (int64_t)fq_prng_below(prng, 200000000);
    case ORDERS:
    default:
        abort();
    }
}

/* Around what is in the log, and around the borders of the calendar's nodes. */
static int64_t some_time(const struct time_log *log, struct fq_prng *prng)
{
    static const int64_t steps[] = {-86400000, -3600000, -60000, -1000, -1, 0,
                                    1,         1000,     60000,  3600000};
    if (log->end == 0 || fq_prng_below(prng, 12) == 0) {
        static const int64_t fixed[] = {INT64_MIN, -1, 0, 1, INT64_MAX, INT64_C(1) << 32};
        return fixed[fq_prng_below(prng, sizeof fixed / sizeof fixed[0])];
    }
    int64_t t = log->timestamps[fq_prng_below(prng, (uint64_t)log->end)];
    if (fq_prng_below(prng, 4) == 0) {
        t -= t % 1000;
    }
    int64_t step = steps[fq_prng_below(prng, sizeof steps / sizeof steps[0])];
    int64_t moved;
    return __builtin_add_overflow(t, step, &moved) ? t : moved;
}

struct life {
    struct time_log log;
    struct fq_prng prng;
    enum order order;
    uint64_t seed;
    bool tells_lies;        /* hints that nobody could have given */
    struct time_log_cost cost;
};

static void ask_something(struct life *life)
{
    struct time_log *log = &life->log;
    int64_t t = some_time(log, &life->prng);
    int64_t from = fq_prng_below(&life->prng, 3)
                       ? 0
                       : (int64_t)fq_prng_below(&life->prng, (uint64_t)log->end + 3);
    int64_t expected = time_log_brute_force(log, t, from);
    struct fq_calendar_answer lie = {.found = true,
                                     .offset = (int64_t)fq_prng_below(&life->prng, (uint64_t)log->end + 3),
                                     .complete_from = 0,
                                     .complete_to = log->end};
    int64_t plain = time_log_ask(log, t, from, NULL, &life->cost);
    int64_t hinted = time_log_ask_calendar(log, t, from, &life->cost);
    int64_t misled = time_log_ask(log, t, from, &lie, &life->cost);
    cr_assert(plain == expected && hinted == expected && misled == expected,
              "T %lld from %lld: brute force %lld, chunks %lld, calendar %lld, lie %lld; order %d "
              "seed %llu",
              (long long)t, (long long)from, (long long)expected, (long long)plain,
              (long long)hinted, (long long)misled, (int)life->order,
              (unsigned long long)life->seed);
}

/* The claims of calendar.c, looked at one by one: what the calendar says of a log that it was told
 * everything about is true, not only harmless. */
static void check_claim(struct life *life)
{
    struct time_log *log = &life->log;
    struct fq_calendar_answer answer;
    int64_t t = some_time(log, &life->prng);
    cr_assert_eq(fq_calendar_query(log->meta, &log->key, t, &answer), 0);
    int64_t from = answer.complete_from > log->log_start ? answer.complete_from : log->log_start;
    for (int64_t o = from; answer.found && o < answer.offset && o < log->end; o++) {
        cr_assert_lt(log->timestamps[o], t, "offset %lld, hint %lld, T %lld, order %d seed %llu",
                     (long long)o, (long long)answer.offset, (long long)t, (int)life->order,
                     (unsigned long long)life->seed);
    }
}

static void append_something(struct life *life)
{
    int64_t timestamps[RECORDS_PER_BATCH_MAX];
    struct time_log *log = &life->log;
    size_t count = 1 + (size_t)fq_prng_below(&life->prng, RECORDS_PER_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        timestamps[i] = timestamp_of(life->order, log->end + (int64_t)i, &life->prng);
        int64_t delta;
        if (__builtin_sub_overflow(timestamps[i], timestamps[0], &delta)) {
            timestamps[i] = timestamps[0]; /* no batch can hold both */
        }
    }
    uint64_t bytes = fq_prng_below(&life->prng, 5) ? fq_prng_below(&life->prng, 30000)
                                                   : fq_prng_below(&life->prng, 150000);
    time_log_append(log, timestamps, count, fq_prng_below(&life->prng, 4) == 0, bytes);
    if (fq_prng_below(&life->prng, 5) == 0 && log->batches_count > 1) {
        log->committed = log->batches[log->batches_count - 1].base_offset;
    }
}

/* A node whose checksum holds and that says nonsense. */
static void damage_calendar(struct life *life)
{
    struct time_log *log = &life->log;
    struct fq_calendar_root root;
    if (fq_calendar_root_get(log->meta, &log->key, &root) < 0) {
        return;
    }
    const struct fq_calendar_place place = fq_calendar_place_of(root.last_second);
    const struct fq_meta_key keys[] = {fq_calendar_root_key(&log->key),
                                       fq_calendar_day_key(&log->key, place.day),
                                       fq_calendar_minute_key(&log->key, place.minute)};
    const struct fq_meta_key *key = &keys[fq_prng_below(&life->prng, 3)];
    const void *value;
    size_t length;
    cr_assert_eq(log->meta->ops->begin(log->meta), 0);
    if (fq_prng_below(&life->prng, 3) == 0) {
        (void)log->meta->ops->remove(log->meta, FQ_META_CALENDAR, key);
    } else if (log->meta->ops->get(log->meta, FQ_META_CALENDAR, key, &value, &length) == 0) {
        uint8_t bytes[FQ_CALENDAR_MINUTE_BYTES_MAX];
        memcpy(bytes, value, length);
        bytes[fq_prng_below(&life->prng, length)] ^= (uint8_t)(1u << fq_prng_below(&life->prng, 8));
        length -= fq_prng_below(&life->prng, 4) == 0;
        cr_assert_eq(log->meta->ops->put(log->meta, FQ_META_CALENDAR, key, bytes, length, NULL), 0);
    }
    cr_assert_eq(log->meta->ops->commit(log->meta), 0);
}

static void do_something(struct life *life)
{
    struct time_log *log = &life->log;
    uint64_t what = fq_prng_below(&life->prng, 100);
    if (what < 70) {
        append_something(life);
    } else if (what < 80) {
        log->refuse_in = (unsigned)fq_prng_below(&life->prng, 4);
        time_log_feed(log);
    } else if (what < 84) {
        int64_t room = log->committed - log->log_start;
        time_log_trim(log, log->log_start + (int64_t)fq_prng_below(&life->prng, (uint64_t)room / 3 + 1));
    } else if (what < 88) {
        int64_t room = log->end - log->log_start;
        int64_t back = (int64_t)fq_prng_below(&life->prng, (uint64_t)(room < 60 ? room : 60) + 1);
        bool tell = !life->tells_lies || fq_prng_below(&life->prng, 2);
        time_log_truncate(log, log->end - back, tell);
        log->log_start = log->log_start < log->end ? log->log_start : log->end;
    } else if (what < 91) {
        time_log_restart(log);
    } else if (what < 92) {
        time_log_drop_calendar(log);
    } else if (what < 94 && life->tells_lies) {
        damage_calendar(life);
    } else if (what < 96) {
        log->may_reserve = !log->may_reserve;
    }
}

static void live(enum order order, bool tells_lies, unsigned steps)
{
    struct life life = {.order = order, .seed = fq_random_u64(), .tells_lies = tells_lies};
    fprintf(stderr, "# order %d seed %llu\n", (int)order, (unsigned long long)life.seed);
    fq_prng_seed(&life.prng, life.seed);
    time_log_init(&life.log, 400000);
    ask_something(&life);
    for (unsigned i = 0; i < steps; i++) {
        do_something(&life);
        ask_something(&life);
        if (!tells_lies) {
            check_claim(&life);
        }
    }
    cr_assert(tells_lies || life.log.damage_count == 0, "seed %llu", (unsigned long long)life.seed);
    cr_assert_leq(life.cost.nodes_max, NODES_MAX, "%llu nodes, seed %llu",
                  (unsigned long long)life.cost.nodes_max, (unsigned long long)life.seed);
    cr_assert_leq(life.cost.chunks_max, 2, "seed %llu", (unsigned long long)life.seed);
    time_log_fini(&life.log);
}

Test(timeindex, equals_the_brute_force_in_every_order) /* cases 1, 2, 3 */
{
    for (int order = 0; order < ORDERS; order++) {
        for (unsigned i = 0; i < 4; i++) {
            live((enum order)order, false, 400);
        }
    }
}

Test(timeindex, equals_the_brute_force_whatever_the_calendar_says) /* cases 21, 22 */
{
    for (int order = 0; order < ORDERS; order++) {
        for (unsigned i = 0; i < 4; i++) {
            live((enum order)order, true, 400);
        }
    }
}
