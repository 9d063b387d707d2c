/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread, and clients that speak to it by hand: the consumer's side. */
#include <criterion/criterion.h>
#include <string.h>

#include "raw_client.h"
#include "wire/record_batch.h"

static struct test_broker t;
static struct raw_client c;
static struct fq_uuid topic;
static struct fq_err err;
static uint32_t slot;
static int32_t sequence;

static void begin(void)
{
    struct fq_producer_open_answer opened;
    struct fq_config_pair small = {.key = fq_str_of("segment.bytes", 13),
                                   .value = fq_str_of("2MiB", 4)};
    test_broker_begin(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 2, &small, 1, &topic, &err), 0, "%s", err.text);
    raw_ring(&c, 64);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0, "%s", err.text);
    slot = opened.slot;
    sequence = 0;
}

static void end(void)
{
    raw_close(&c);
    test_broker_end(&t);
}

static void produce(const char *value)
{
    raw_produce(&c, slot, 7, sequence++, 1, value);
    cr_assert_eq(raw_ack(&c).status, 0);
}

static struct fq_reader_open_answer must_open_reader(void)
{
    struct fq_reader_open_answer reader;
    cr_assert_eq(raw_reader_open(&c, &topic, 0, &reader, &err), 0, "%s", err.text);
    return reader;
}

/* The value of the record at `offset`, read through the segment's window. */
static void expect_value(uint32_t reader, int64_t offset, const char *value)
{
    struct fq_segment_open_answer segment;
    struct fq_remote *remote;
    struct fq_batch_iter iter;
    struct fq_batch_scratch scratch = {.data = NULL};
    struct fq_record record;
    cr_assert_eq(raw_segment_open(&c, reader, offset, &segment, &err), 0, "%s", err.text);
    cr_assert_eq(fq_remote_open(c.conn, segment.token, FQ_RIGHT_READ, &remote, &err), 0, "%s",
                 err.text);
    const uint8_t *at =
        (const uint8_t *)fq_remote_map(remote) + segment.window_offset + segment.position;
    struct fq_batch_header header;
    cr_assert_eq(fq_batch_header_read(at, FQ_BATCH_HEADER_BYTES, &header, &err), 0, "%s", err.text);
    cr_assert_eq(header.base_offset, segment.position_offset);
    cr_assert_eq(fq_batch_iter_init(&iter, at, fq_batch_total_bytes(&header), &scratch, &err), 0);
    while (fq_batch_iter_next(&iter, &record) == 1 && record.offset < offset) {
    }
    cr_assert_eq(record.offset, offset);
    cr_assert_eq(record.value.length, strlen(value));
    cr_assert_eq(memcmp(record.value.data, value, strlen(value)), 0);
    fq_batch_scratch_fini(&scratch);
    fq_remote_close(remote);
    uint8_t out[64];
    struct fq_segment_close close_body = {.reader = reader, .segment_id = segment.segment_id};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_segment_close(out, sizeof out, ++c.correlation, &close_body));
    cr_assert_eq(answer->status, 0);
}

Test(readers, what_was_acknowledged_is_read_where_the_view_says, .init = begin, .fini = end)
{
    struct fq_segment_open_answer segment;
    struct fq_reader_open_answer reader = must_open_reader();
    cr_assert_eq(reader.end, 0);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err), 0);
    cr_assert_eq(segment.segment_id, 0, "nothing was ever appended");
    produce("one");
    produce("two");
    struct fq_view view = raw_view(&c, reader.view_line);
    cr_assert_eq(view.generation, reader.view_generation);
    cr_assert_eq(view.high_watermark, 2, "an acknowledged record is below the high watermark");
    cr_assert_eq(view.state, 0);
    expect_value(reader.reader, 0, "one");
    expect_value(reader.reader, 1, "two");
    cr_assert_eq(raw_segment_open(&c, reader.reader, 3, &segment, &err), FLASHQ_ERR_OUT_OF_RANGE);
}

/* case 17 */
Test(readers, an_armed_reader_is_woken_once_also_after_a_restart, .init = begin, .fini = end)
{
    struct fq_reader_open_answer reader = must_open_reader();
    raw_arm(&c, reader.reader, 0);
    cr_assert(!raw_was_notified(&c, reader.reader));
    produce("one");
    RAW_UNTIL(&c, raw_was_notified(&c, reader.reader));
    produce("two");
    raw_pump(&c);
    cr_assert(!raw_was_notified(&c, reader.reader), "one arming, one wake-up");
    raw_arm(&c, reader.reader, 1);
    RAW_UNTIL(&c, raw_was_notified(&c, reader.reader)); /* there is more than 1 already */

    test_broker_stop(&t);
    RAW_UNTIL(&c, !c.conn);
    raw_close(&c);
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    raw_ring(&c, 64);
    reader = must_open_reader();
    cr_assert_eq(reader.end, 2);
    expect_value(reader.reader, 1, "two");
    raw_arm(&c, reader.reader, 2);
    struct fq_producer_open_answer opened;
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0);
    cr_assert_eq(opened.last_sequence, 1, "known from before");
    cr_assert_eq(opened.last_offset, 1);
    slot = opened.slot;
    produce("three");
    RAW_UNTIL(&c, raw_was_notified(&c, reader.reader));
    expect_value(reader.reader, 2, "three");
}

static void fill(int segments)
{
    static char value[700001];
    memset(value, 'v', sizeof value - 1);
    for (int i = 0; i < 2 * segments; i++) {
        produce(value);
    }
}

Test(readers, a_trimmed_segment_is_asked_back, .init = begin, .fini = end)
{
    struct fq_segment_open_answer segment;
    struct fq_segment_retiring retiring;
    struct fq_reader_open_answer reader = must_open_reader();
    int64_t start;
    uint8_t out[64];
    fill(4);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err), 0);
    cr_assert_eq(raw_counter(&c, "readers.segments.held"), 1);
    cr_assert_eq(raw_trim(&c, "t", 0, 6, &start, &err), 0, "%s", err.text);
    cr_assert_eq(start, 6);
    const struct fq_msg *event = raw_next_event(&c, FQ_MSG_SEGMENT_RETIRING);
    cr_assert(event);
    cr_assert_eq(fq_decode_segment_retiring(event, &retiring, &err), 0);
    cr_assert_eq(retiring.segment_id, segment.segment_id);
    cr_assert_eq(retiring.reader, reader.reader);
    struct fq_segment_close close_body = {.reader = reader.reader,
                                          .segment_id = segment.segment_id};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_segment_close(out, sizeof out, ++c.correlation, &close_body));
    cr_assert_eq(answer->status, 0);
    cr_assert_eq(raw_counter(&c, "readers.segments.held"), 0);
    cr_assert_eq(raw_counter(&c, "readers.segments.retiring"), 0);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 5, &segment, &err), FLASHQ_ERR_TRIMMED);
    cr_assert_eq(raw_view(&c, reader.view_line).log_start, 6);
    cr_assert_eq(raw_trim(&c, "t", 0, 1000, &start, &err), FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_eq(raw_trim(&c, "t", 9, 0, &start, &err), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(raw_trim(&c, "u", 0, 0, &start, &err), FLASHQ_ERR_NOT_FOUND);
}

enum giving_back { CLOSES_ITS_READER, CLOSES_ONE_OF_TWO_OPENS, CLOSES_ALL };

/* Trims away a segment that is mapped here, lets the broker go on writing, and returns whether the
 * mapped bytes are still what they were. */
static bool mapped_bytes_stay(enum giving_back how)
{
    enum { LOOK_BYTES = 4096, GROWN = 6 }; /* in a segment as large as those that come later */
    struct fq_segment_open_answer segment;
    struct fq_remote *again, *remote;
    uint8_t out[64], before[LOOK_BYTES];
    int64_t start;
    struct fq_reader_open_answer reader = must_open_reader();
    struct fq_slot_ref ref = {.slot = reader.reader};
    fill(4);
    /* What the pool keeps of several at once is its choice: the smaller ones go before, alone. */
    cr_assert_eq(raw_trim(&c, "t", 0, GROWN, &start, &err), 0, "%s", err.text);
    fill(4);
    cr_assert_eq(raw_segment_open(&c, reader.reader, GROWN, &segment, &err), 0);
    cr_assert_eq(fq_remote_open(c.conn, segment.token, FQ_RIGHT_READ, &again, &err), 0, "%s",
                 err.text);
    cr_assert_eq(raw_segment_open(&c, reader.reader, GROWN, &segment, &err), 0);
    cr_assert_eq(fq_remote_open(c.conn, segment.token, FQ_RIGHT_READ, &remote, &err), 0, "%s",
                 err.text);
    fq_remote_close(again);
    const uint8_t *map = (const uint8_t *)fq_remote_map(remote) + segment.window_offset;
    memcpy(before, map, LOOK_BYTES);
    cr_assert_eq(raw_trim(&c, "t", 0, segment.base_offset + 2, &start, &err), 0, "%s", err.text);
    struct fq_segment_close close_body = {.reader = reader.reader,
                                          .segment_id = segment.segment_id};
    for (int closes = how == CLOSES_ALL ? 2 : how == CLOSES_ONE_OF_TWO_OPENS; closes > 0;
         closes--) {
        raw_ask(&c, out, fq_encode_segment_close(out, sizeof out, ++c.correlation, &close_body));
    }
    if (how == CLOSES_ITS_READER) {
        raw_ask(&c, out, fq_encode_reader_close(out, sizeof out, ++c.correlation, &ref));
    }
    fill(8);
    bool stay = memcmp(before, map, LOOK_BYTES) == 0;
    fq_remote_close(remote);
    return stay;
}

Test(readers, what_a_reader_did_not_give_back_is_never_written_again, .init = begin, .fini = end)
{
    cr_assert(mapped_bytes_stay(CLOSES_ITS_READER));
}

Test(readers, a_segment_opened_twice_is_given_back_by_the_second_close, .init = begin, .fini = end)
{
    cr_assert(mapped_bytes_stay(CLOSES_ONE_OF_TWO_OPENS));
}

Test(readers, what_a_reader_gave_back_is_used_again, .init = begin, .fini = end)
{
    cr_assert_not(mapped_bytes_stay(CLOSES_ALL), "or the tests above prove nothing");
}

Test(readers, retention_keeps_the_newest, .init = begin, .fini = end)
{
    uint8_t out[512], list[256];
    struct fq_config_pair pair = {.key = fq_str_of("retention.bytes", 15),
                                  .value = fq_str_of("4MiB", 4)};
    struct fq_topic_alter alter = {.name = fq_str_of("t", 1)};
    struct fq_reader_open_answer reader = must_open_reader();
    fill(8);
    cr_assert_eq(raw_view(&c, reader.view_line).log_start, 0, "unlimited is the default");
    cr_assert_eq(fq_config_pairs_list(list, sizeof list, &pair, 1, &alter.configs), 0);
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_topic_alter(out, sizeof out, ++c.correlation, &alter));
    cr_assert_eq(answer->status, 0);
    RAW_UNTIL(&c, raw_view(&c, reader.view_line).log_start > 8);
    cr_assert_eq(raw_view(&c, reader.view_line).high_watermark, 16);
}

Test(readers, a_reader_may_hold_so_many_segments, .init = begin, .fini = end)
{
    struct fq_segment_open_answer segment;
    struct fq_reader_open_answer reader = must_open_reader();
    int code = 0;
    fill(20);
    for (int64_t offset = 0; offset < 40 && code == 0; offset++) {
        code = raw_segment_open(&c, reader.reader, offset, &segment, &err);
    }
    cr_assert_eq(code, FLASHQ_ERR_LIMIT);
    cr_assert(strstr(err.text, "16"), "%s", err.text);
    raw_close(&c);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    RAW_UNTIL(&c, raw_counter(&c, "readers.segments.held") == 0);
}

Test(readers, deleting_a_topic_ends_its_readers_and_producers, .init = begin, .fini = end)
{
    struct fq_reader_open_answer reader = must_open_reader();
    struct fq_segment_open_answer segment;
    struct fq_reader_reset reset;
    struct fq_uuid again;
    produce("one");
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err), 0);
    cr_assert_eq(raw_delete_topic(&c, "t", &err), 0, "%s", err.text);
    const struct fq_msg *event = raw_next_event(&c, FQ_MSG_READER_RESET);
    cr_assert(event);
    cr_assert_eq(fq_decode_reader_reset(event, &reset, &err), 0);
    cr_assert_eq(reset.reason, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(reset.reader, reader.reader);
    struct fq_view view = raw_view(&c, reader.view_line);
    cr_assert_eq(view.generation, reader.view_generation);
    cr_assert_eq(view.state, (uint32_t)-FLASHQ_ERR_UNKNOWN_TOPIC_ID, "not: shutting down");
    cr_assert_eq(raw_counter(&c, "readers.segments.held"), 0);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err),
                 FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    raw_produce(&c, slot, 7, sequence++, 1, "to a topic that is gone");
    cr_assert_eq(raw_ack(&c).status, FLASHQ_ERR_UNKNOWN_TOPIC_ID);

    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &again, &err), 0, "%s", err.text);
    cr_assert_neq(memcmp(&again, &topic, sizeof again), 0, "another topic of the same name");
    cr_assert_eq(raw_reader_open(&c, &topic, 0, &reader, &err), FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(raw_reader_open(&c, &again, 0, &reader, &err), 0);
    cr_assert_eq(reader.end, 0);
}

static struct fq_time_query_answer ask_time(int64_t timestamp_ms)
{
    uint8_t out[256];
    struct fq_time_query_answer found;
    struct fq_time_query query = {.topic_id = topic, .timestamp_ms = timestamp_ms};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_time_query(out, sizeof out, ++c.correlation, &query));
    cr_assert(answer);
    cr_assert_eq(answer->status, 0);
    cr_assert_eq(fq_decode_time_query_answer(answer, &found, &err), 0);
    return found;
}

/* case 1 */
Test(readers, a_time_is_found_also_by_the_calendar, .init = begin, .fini = end)
{
    static uint8_t batch[128 << 10];
    static char value[80 << 10]; /* more than a chunk each: the calendar hears of closed ones */
    memset(value, 'v', sizeof value - 1);
    for (int i = 0; i < 4; i++) {
        size_t length = raw_batch(batch, sizeof batch, 7, i, 1, 2000 + 2000 * i, value);
        raw_write(&c, slot, batch, length);
        cr_assert_eq(raw_ack(&c).status, 0);
    }
    RAW_UNTIL(&c, raw_counter(&c, "time.calendar.marks") > 0);
    static const int64_t asked[] = {-1, 0, 2000, 3000, 5000, 7000, 8000},
                         offsets[] = {0, 0, 0, 1, 2, 3, 3};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct fq_time_query_answer found = ask_time(asked[i]);
        cr_assert_eq(found.result, FQ_TIME_FOUND);
        cr_assert_eq(found.offset, offsets[i], "at %lld", (long long)asked[i]);
    }
    cr_assert_eq(ask_time(8001).result, FQ_TIME_END);
    cr_assert_eq(ask_time(INT64_MAX).result, FQ_TIME_END);
    cr_assert_eq(ask_time(8001).offset, 4);
}
