/* SPDX-License-Identifier: Apache-2.0 */
/* The time index told as stories, and what a query may cost. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/random.h"
#include "time_log.h"
#include "timeindex/calendar_node.h"

enum { NODES_MAX = 64 };

static const int64_t now = INT64_C(1700000000000);

static void append_one(struct time_log *log, int64_t timestamp)
{
    time_log_append(log, &timestamp, 1, false, 0);
}

static int64_t ask(struct time_log *log, int64_t timestamp)
{
    struct time_log_cost cost = {0};
    time_log_feed(log);
    int64_t without = time_log_ask(log, timestamp, 0, NULL, &cost);
    int64_t with = time_log_ask_calendar(log, timestamp, 0, &cost);
    cr_assert_eq(without, with);
    cr_assert_eq(with, time_log_brute_force(log, timestamp, 0));
    return with;
}

Test(timeindex, first_record_at_or_after) /* cases 1, 4, 7 */
{
    static const struct {
        int64_t timestamp, offset;
    } asked[] = {{3, 1}, {5, 2}, {7, 3},  {9, -1}, {2, 0},         {4, 1},         {6, 2},
                 {8, 3}, {0, 0}, {-1, 0}, {1, 0},  {INT64_MAX, -1}, {INT64_MIN, 0}};
    struct time_log log;
    time_log_init(&log, 1 << 20);
    cr_assert_eq(ask(&log, 0), -1, "an empty log");
    for (int64_t t = 2; t <= 8; t += 2) {
        append_one(&log, t);
    }
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        cr_assert_eq(ask(&log, asked[i].timestamp), asked[i].offset, "T = %lld",
                     (long long)asked[i].timestamp);
    }
    time_log_fini(&log);
}

Test(timeindex, the_record_inside_the_batch_not_the_batch) /* case 2 */
{
    static const int64_t timestamps[] = {100, 200, 300, 250, 400};
    for (int compressed = 0; compressed < 2; compressed++) {
        struct time_log log;
        time_log_init(&log, 1 << 20);
        append_one(&log, 50);
        time_log_append(&log, timestamps, 5, compressed, 0);
        append_one(&log, 500);
        cr_assert_eq(ask(&log, 100), 1);
        cr_assert_eq(ask(&log, 101), 2);
        cr_assert_eq(ask(&log, 201), 3);
        cr_assert_eq(ask(&log, 301), 5);
        cr_assert_eq(ask(&log, 401), 6);
        struct time_log_cost cost = {0};
        cr_assert_eq(time_log_ask(&log, 220, 4, NULL, &cost), 4, "from the middle of the batch");
        time_log_fini(&log);
    }
}

Test(timeindex, out_of_order_and_far_apart) /* case 3 */
{
    static const int64_t orders[][6] = {{2, 1, 3, 5, 4, 6},
                                        {0, INT64_C(1) << 33, 1, INT64_C(1) << 34, 2, 3},
                                        {INT64_C(1700000000000), INT64_C(1690000000000),
                                         INT64_C(1700000000001), 0, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct time_log log;
        time_log_init(&log, 1 << 20);
        for (size_t j = 0; j < 6; j++) {
            time_log_append(&log, &orders[i][j], 1, false, 70000); /* a chunk each */
        }
        for (size_t j = 0; j < 6; j++) {
            (void)ask(&log, orders[i][j] - 1); /* ask compares with the brute force */
            (void)ask(&log, orders[i][j]);
            if (orders[i][j] < INT64_MAX) {
                (void)ask(&log, orders[i][j] + 1);
            }
        }
        time_log_fini(&log);
    }
}

/* One record ten years ahead: queries stay exact and bounded, the calendar cannot help; once the record is
 * trimmed away the calendar starts again. */
Test(timeindex, one_record_far_in_the_future_does_not_freeze_the_index) /* case 8 */
{
    struct time_log log;
    struct time_log_cost cost = {0};
    time_log_init(&log, 1 << 20);
    append_one(&log, now + INT64_C(3650) * 86400000);
    for (int64_t i = 0; i < 5000; i++) {
        const int64_t t = now + i * 1000;
        time_log_append(&log, &t, 1, false, 5000);
    }
    time_log_feed(&log);
    cr_assert_eq(time_log_ask_calendar(&log, now + 4000 * 1000, 1, &cost), 4001);
    cr_assert(!cost.calendar_used && !cost.calendar_refuted);
    cr_assert_leq(cost.nodes_max, NODES_MAX);
    cr_assert_leq(cost.chunks_max, 2);
    time_log_trim(&log, 100);
    time_log_feed(&log);
    cr_assert_eq(time_log_ask_calendar(&log, now + 4000 * 1000, 0, &cost), 4001);
    cr_assert(cost.calendar_used, "the running maximum started again");
    time_log_fini(&log);
}

Test(timeindex, a_lost_or_wrong_calendar_is_only_slower_and_is_fed_again) /* cases 21, 22 */
{
    struct time_log log;
    struct time_log_cost cost = {0};
    time_log_init(&log, 1 << 20);
    for (int64_t i = 0; i < 3000; i++) {
        const int64_t t = now + i * 1000;
        time_log_append(&log, &t, 1, false, 5000);
    }
    cr_assert_eq(time_log_ask_calendar(&log, now + 2000 * 1000, 0, &cost), 2000, "never fed");
    cr_assert(!cost.calendar_used);
    const struct fq_calendar_answer wrong = {.found = true, .offset = 2500, .complete_to = 3000};
    cr_assert_eq(time_log_ask(&log, now + 2000 * 1000, 0, &wrong, &cost), 2000);
    cr_assert(cost.calendar_refuted);
    time_log_restart(&log);
    time_log_feed(&log);
    cost = (struct time_log_cost){0};
    cr_assert_eq(time_log_ask_calendar(&log, now + 2000 * 1000, 0, &cost), 2000);
    cr_assert(cost.calendar_used && !cost.calendar_refuted);
    time_log_fini(&log);
}

Test(timeindex, a_refused_mark_is_offered_again_and_none_is_lost)
{
    struct time_log log;
    time_log_init(&log, 1 << 20);
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t t = now + i * 1000;
        time_log_append(&log, &t, 1, false, 70000);
        log.refuse_in = 1 + (unsigned)(i % 3);
        time_log_feed(&log);
    }
    struct fq_calendar_state state;
    cr_assert_eq(fq_calendar_get_state(log.meta, &log.key, &state), 0);
    cr_assert_eq(state.complete_from, 0);
    cr_assert_eq(state.complete_to, 999, "all but the last chunk");
    cr_assert_eq(state.last_second, now / 1000 + 998);
    for (int64_t i = 0; i < 1000; i++) {
        struct fq_calendar_answer answer;
        cr_assert_eq(fq_calendar_query(log.meta, &log.key, now + i * 1000, &answer), 0);
        cr_assert(answer.found && answer.offset == i, "every second is there, offset %lld",
                  (long long)i);
    }
    time_log_fini(&log);
}

/* ---- the calendar by itself ----------------------------------------------------------------- */

static void apply(struct fq_meta *meta, const struct fq_meta_key *key, int64_t second, int64_t offset)
{
    const struct fq_calendar_mark mark = {.second = second, .offset = offset};
    struct fq_err err = {0};
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_calendar_apply(meta, key, &mark, 1, offset + 1, &err), 0, "%s", err.text);
    cr_assert_eq(meta->ops->commit(meta), 0);
}

Test(calendar, keeps_a_bounded_number_of_minutes_and_forgets_the_oldest)
{
    struct fq_meta *meta;
    cr_assert_eq(fq_meta_open_memory(&meta), FQ_META_CREATED);
    const struct fq_meta_key key = {.partition = 1};
    const int64_t minutes = FQ_LIMIT_CALENDAR_MINUTES + 500;
    for (int64_t i = 0; i < minutes; i++) {
        apply(meta, &key, 1000000 + i * 60, i);
    }
    struct fq_calendar_state state;
    cr_assert_eq(fq_calendar_get_state(meta, &key, &state), 0);
    cr_assert_eq(state.minutes_count, FQ_LIMIT_CALENDAR_MINUTES);
    cr_assert_eq(state.complete_from, 500);
    struct fq_calendar_answer answer;
    cr_assert_eq(fq_calendar_query(meta, &key, (1000000 + 600 * 60) * INT64_C(1000), &answer), 0);
    cr_assert(answer.found && answer.offset == 600 && answer.complete_from == 500);
    meta->ops->close(meta);
}

Test(calendar, holds_any_second_there_is)
{
    struct fq_meta *meta;
    cr_assert_eq(fq_meta_open_memory(&meta), FQ_META_CREATED);
    const struct fq_meta_key key = {.partition = 1};
    static const int64_t times[] = {INT64_MIN, -INT64_C(86400001), -1, 0, 999, 1000, 86399999,
                                    INT64_C(1) << 41, INT64_MAX - 1000, INT64_MAX};
    int64_t previous = INT64_MIN;
    int64_t offset = 0;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++, offset += 10) {
        apply(meta, &key, fq_calendar_second(times[i]), offset);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct fq_calendar_answer answer;
        cr_assert_eq(fq_calendar_query(meta, &key, times[i], &answer), 0);
        cr_assert(answer.found);
        cr_assert_leq(answer.nodes, FQ_CALENDAR_QUERY_NODES_MAX);
        cr_assert_geq(answer.offset, previous);
        previous = answer.offset;
    }
    cr_assert_eq(fq_calendar_second(-1), -1);
    cr_assert_eq(fq_calendar_second(-1000), -1);
    cr_assert_eq(fq_calendar_second(-1001), -2);
    meta->ops->close(meta);
}

/* ---- cost ----------------------------------------------------------------------------------- */

/* Ten million records in real batches would take too much memory: here a batch is made when it is
 * scanned. Timestamps go up by 3 ms a record, shuffled within some seconds, with strays of days ago. */
enum { RECORDS_PER_BATCH = 160, BATCH_BYTES = 17000, SEGMENT_BATCHES = 4000 };

struct large {
    struct fq_chunks *chunks;
    int64_t *running_max; /* by offset */
    int64_t count;
};

static int64_t large_timestamp(int64_t offset)
{
    uint64_t x = (uint64_t)offset * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    return x % 1000 == 0 ? now + offset * 3 - INT64_C(400000000) : now + offset * 3 + (int64_t)(x % 5000);
}

static int scan_large(void *context, int64_t from_offset, int64_t to_offset, int64_t segment_base,
                      uint64_t position, fq_log_visitor visitor, void *visitor_context)
{
    (void)segment_base;
    (void)position;
    (void)context;
    static uint8_t bytes[BATCH_BYTES * 2];
    static uint8_t value[90];
    for (int64_t base = from_offset / RECORDS_PER_BATCH * RECORDS_PER_BATCH; base < to_offset;
         base += RECORDS_PER_BATCH) {
        struct fq_batch_builder builder;
        fq_batch_builder_init(&builder, bytes, sizeof bytes);
        for (int64_t i = 0; i < RECORDS_PER_BATCH; i++) {
            const struct fq_record_in record = {.timestamp_ms = large_timestamp(base + i),
                                                .value = {value, sizeof value}};
            cr_assert_eq(fq_batch_builder_append(&builder, &record), 0);
        }
        const struct fq_batch_finish finish = {.producer_id = -1, .base_sequence = -1};
        int64_t length = fq_batch_builder_finish(&builder, &finish);
        cr_assert(length > 0 && length <= BATCH_BYTES);
        fq_batch_stamp(bytes, base, 0);
        struct fq_batch_header header;
        cr_assert_eq(fq_batch_header_read(bytes, (size_t)length, &header, NULL), 0);
        int r = visitor(visitor_context, &header, bytes, 0, 0);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static void fill_large(struct large *large, int64_t count)
{
    cr_assert_eq(fq_chunks_create(&large->chunks), 0);
    large->running_max = malloc((size_t)count * sizeof *large->running_max);
    cr_assert_not_null(large->running_max);
    large->count = count;
    int64_t running_max = INT64_MIN;
    for (int64_t base = 0; base < count; base += RECORDS_PER_BATCH) {
        int64_t min = INT64_MAX, max = INT64_MIN;
        for (int64_t o = base; o < base + RECORDS_PER_BATCH; o++) {
            int64_t t = large_timestamp(o);
            min = t < min ? t : min;
            max = t > max ? t : max;
            running_max = t > running_max ? t : running_max;
            large->running_max[o] = running_max;
        }
        int64_t batch = base / RECORDS_PER_BATCH;
        if (fq_chunks_wants_reserve(large->chunks)) {
            cr_assert_eq(fq_chunks_reserve(large->chunks), 0);
        }
        fq_chunks_add(large->chunks, batch / SEGMENT_BATCHES * SEGMENT_BATCHES * RECORDS_PER_BATCH,
                      base, (uint64_t)(batch % SEGMENT_BATCHES) * BATCH_BYTES, BATCH_BYTES, min, max);
    }
}

struct calendar_sink {
    struct fq_meta *meta;
    struct fq_meta_key key;
};

static bool into_calendar(void *context, const struct fq_calendar_mark *mark, int64_t complete_to)
{
    struct calendar_sink *sink = context;
    cr_assert_eq(
        fq_calendar_apply(sink->meta, &sink->key, mark, mark ? 1 : 0, complete_to, NULL), 0);
    return true;
}

/* The first record of the whole log at or after T is the first whose running maximum is. */
static int64_t first_by_running_max(const struct large *large, int64_t timestamp)
{
    int64_t low = 0, high = large->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (large->running_max[middle] < timestamp) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < large->count ? low : -1;
}

static void check_costs(int64_t count, uint64_t *ret_nodes, uint64_t *ret_bytes)
{
    struct large large;
    fill_large(&large, count);
    struct calendar_sink sink = {.key = {.partition = 0}};
    cr_assert_eq(fq_meta_open_memory(&sink.meta), FQ_META_CREATED);
    struct fq_calendar_feeder feeder;
    fq_calendar_feeder_init(&feeder, 0);
    cr_assert_eq(sink.meta->ops->begin(sink.meta), 0);
    cr_assert_eq(fq_calendar_feeder_step(&feeder, large.chunks, count, 1000000, into_calendar, &sink),
                 0);
    cr_assert_eq(sink.meta->ops->commit(sink.meta), 0);
    struct fq_prng prng;
    fq_prng_seed(&prng, 1);
    *ret_nodes = 0;
    *ret_bytes = 0;
    for (int i = 0; i < 1000; i++) {
        int64_t t = now - 10000 + (int64_t)fq_prng_below(&prng, (uint64_t)count * 3 + 20000);
        struct fq_calendar_answer hint;
        cr_assert_eq(fq_calendar_query(sink.meta, &sink.key, t, &hint), 0);
        const struct fq_timeindex_query query = {.chunks = large.chunks,
                                                 .calendar = &hint,
                                                 .timestamp_ms = t,
                                                 .end = count,
                                                 .scan = scan_large};
        struct fq_timeindex_result result;
        cr_assert_eq(fq_timeindex_query(&query, &result, NULL), 0);
        int64_t expected = first_by_running_max(&large, t);
        cr_assert_eq(result.answer.result, expected < 0 ? FQ_TIME_END : FQ_TIME_FOUND);
        cr_assert_eq(result.answer.offset, expected < 0 ? count : expected);
        cr_assert_leq(result.chunks_scanned, 1);
        cr_assert(!result.calendar_refuted);
        *ret_nodes = result.answer.cost_nodes > *ret_nodes ? result.answer.cost_nodes : *ret_nodes;
        *ret_bytes = result.answer.cost_bytes > *ret_bytes ? result.answer.cost_bytes : *ret_bytes;
    }
    sink.meta->ops->close(sink.meta);
    fq_chunks_destroy(large.chunks);
    free(large.running_max);
}

Test(timeindex, a_query_costs_the_same_bound_for_few_and_for_ten_million_records, .timeout = 100)
{
    uint64_t nodes, bytes;
    check_costs(RECORDS_PER_BATCH, &nodes, &bytes);
    cr_assert_leq(nodes, NODES_MAX);
    cr_assert_leq(bytes, FQ_LIMIT_CHUNK_BYTES);
    check_costs(10000000, &nodes, &bytes);
    cr_assert_leq(nodes, NODES_MAX, "%llu nodes", (unsigned long long)nodes);
    cr_assert_leq(bytes, FQ_LIMIT_CHUNK_BYTES, "%llu bytes", (unsigned long long)bytes);
}
