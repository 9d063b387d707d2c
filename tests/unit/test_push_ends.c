/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a push, and what must not: trim, truncation, deletion, damage, shutdown, lies. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "push_reader.h"
#include "shard.h"

#define RING_MIN FQ_LIMIT_PUSH_RING_BYTES_MIN

static struct test_broker t;
static struct raw_client c; /* produces, and reads the log */
static struct raw_client s; /* is pushed to */
static struct fq_uuid topic;
static struct fq_err err;
static uint32_t slot;
static int32_t sequence;

static void begin_with(enum fq_transport transport)
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
    raw_connect(&s, &t, transport);
    raw_session(&s);
    cr_assert_eq(raw_push_setup(&s, 64, &err), 0, "%s", err.text);
}

static void begin(void)
{
    begin_with(FQ_TRANSPORT_SHM);
}

static void end(void)
{
    raw_close(&s);
    raw_close(&c);
    test_broker_end(&t);
}

static void produce_value(const char *value)
{
    raw_produce(&c, slot, 7, sequence++, 1, value);
    cr_assert_eq(raw_ack(&c).status, 0);
}

static void produce(size_t bytes)
{
    static char value[1 << 20];
    cr_assert_lt(bytes, sizeof value);
    memset(value, 'a' + sequence % 26, bytes);
    value[bytes] = '\0';
    produce_value(value);
}

static void expect_stopped(const struct push_reader *r, int reason, int64_t log_start, int64_t end_offset)
{
    struct fq_push_stopped stopped;
    const struct fq_msg *event = raw_next_event(r->c, FQ_MSG_PUSH_STOPPED);
    cr_assert(event, "no PUSH_STOPPED came");
    cr_assert_eq(fq_decode_push_stopped(event, &stopped, &err), 0);
    cr_assert_eq(stopped.reader, r->push.reader);
    cr_assert_eq(stopped.reason, reason, "%s", fq_err_name(stopped.reason));
    cr_assert_eq(stopped.log_start, log_start);
    cr_assert_eq(stopped.end, end_offset);
}

/* What came is a beginning of the log as it was. */
static void expect_beginning(const struct push_reader *r, const uint8_t *log, uint64_t length)
{
    cr_assert_leq(r->seen, length);
    cr_assert_eq(memcmp(r->bytes, log, r->seen), 0);
}

/* Steps the broker alone as if this much time had passed. */
static void later(int64_t seconds)
{
    for (int i = 0; i < 4; i++) {
        (void)fq_broker_step(t.broker, fq_mono_us() + seconds * 1000000);
    }
}

/* ---- the log takes away --------------------------------------------------------------------- */

Test(push_ends, a_position_that_is_trimmed_away_is_stopped_and_others_go_on, .init = begin,
     .fini = end)
{
    struct push_reader stalled, lively, again;
    int64_t start;
    uint64_t length;
    push_reader_open(&stalled, &s, &topic, 0, 0, 0, RING_MIN);
    push_reader_open(&lively, &s, &topic, 0, 1, 0, RING_MIN);
    for (int i = 0; i < 12; i++) {
        produce(700000);
    }
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    push_reader_until(&lively, length);
    (void)push_reader_take(&stalled);
    cr_assert_eq(raw_trim(&c, "t", 0, 9, &start, &err), 0, "%s", err.text);
    expect_stopped(&stalled, FLASHQ_ERR_TRIMMED, 9, 12);
    cr_assert_eq(push_reader_take(&stalled), 0);
    expect_beginning(&stalled, log, length);
    produce(10);
    push_reader_until(&lively, length + 10);
    cr_assert_eq(raw_counter(&c, "push.open"), 1);

    /* The line is free and the reader can be pushed to again. */
    again = (struct push_reader){.c = &s, .ring_bytes = RING_MIN};
    cr_assert_eq(raw_push_open(&s, stalled.push.reader, 0, 8, RING_MIN, &again.push, &err),
                 FLASHQ_ERR_TRIMMED);
    cr_assert_eq(raw_push_open(&s, stalled.push.reader, 0, 9, RING_MIN, &again.push, &err), 0, "%s",
                 err.text);
    free(log);
    log = raw_log_bytes(&c, &topic, 0, 9, &length);
    push_reader_until(&again, length);
    cr_assert_eq(memcmp(again.bytes, log, length), 0);
    free(log);
    push_reader_end(&stalled);
    push_reader_end(&lively);
    push_reader_end(&again);
}

/* Inside one segment, where the bytes would still be there. */
Test(push_ends, a_trim_within_its_segment_counts_too, .init = begin, .fini = end)
{
    struct push_reader behind, ahead;
    int64_t start;
    for (int i = 0; i < 10; i++) {
        produce(50000);
    }
    push_reader_open(&behind, &s, &topic, 0, 0, 2, RING_MIN);
    push_reader_open(&ahead, &s, &topic, 0, 1, 7, RING_MIN);
    RAW_UNTIL(&s, push_reader_take(&behind) + push_reader_take(&ahead) > 0 &&
                      behind.seen == RING_MIN && ahead.seen == RING_MIN);
    cr_assert_eq(raw_trim(&c, "t", 0, 7, &start, &err), 0, "%s", err.text);
    expect_stopped(&behind, FLASHQ_ERR_TRIMMED, 7, 10);
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 7, &length);
    push_reader_until(&ahead, length);
    cr_assert_eq(memcmp(ahead.bytes, log, length), 0);
    free(log);
    push_reader_end(&behind);
    push_reader_end(&ahead);
}

/* It has written the last byte of a segment, nothing more came, and the segment goes. */
Test(push_ends, retention_behind_an_idle_push_does_not_stop_it, .init = begin, .fini = end)
{
    struct push_reader r;
    int64_t start;
    push_reader_open(&r, &s, &topic, 0, 0, 0, 4 << 20);
    for (int i = 0; i < 20; i++) {
        uint64_t length;
        produce(700000);
        free(raw_log_bytes(&c, &topic, 0, i, &length));
        push_reader_until(&r, r.seen + length);
        cr_assert_eq(raw_trim(&c, "t", 0, i + 1, &start, &err), 0, "%s", err.text);
    }
    raw_pump(&s);
    cr_assert_eq(raw_counter(&c, "push.stopped"), 0);
    cr_assert_gt(r.seen, 20 * 700000);
    push_reader_end(&r);
}

Test(push_ends, a_truncation_stops_who_was_told_more, .init = begin, .fini = end)
{
    struct push_reader above, below, again;
    struct fq_hosted *hosted;
    uint64_t length;
    for (int i = 0; i < 12; i++) {
        produce(700000);
    }
    push_reader_open(&above, &s, &topic, 0, 0, 0, 16 << 20);
    push_reader_open(&below, &s, &topic, 0, 1, 0, RING_MIN);
    free(raw_log_bytes(&c, &topic, 0, 0, &length));
    push_reader_until(&above, length);
    struct fq_shard *shard = fq_broker_shard(t.broker, 0);
    cr_assert_eq(fq_hosted_find(&shard->hosted, &topic, 0, &hosted, &err), 0);
    cr_assert_eq(fq_hosted_truncate(hosted, 7, &err), 0, "%s", err.text);
    expect_stopped(&above, FLASHQ_ERR_OUT_OF_RANGE, 0, 7);
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    cr_assert_lt(length, above.seen);
    push_reader_until(&below, length);
    cr_assert_eq(memcmp(below.bytes, log, length), 0);
    again = (struct push_reader){.c = &s, .ring_bytes = RING_MIN};
    cr_assert_eq(raw_push_open(&s, above.push.reader, 0, 8, RING_MIN, &again.push, &err),
                 FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_eq(raw_push_open(&s, above.push.reader, 0, 7, RING_MIN, &again.push, &err), 0);
    free(log);
    push_reader_end(&above);
    push_reader_end(&below);
    push_reader_end(&again);
}

Test(push_ends, a_deleted_topic_is_told_before_its_reader_is_reset, .init = begin, .fini = end)
{
    struct push_reader r;
    struct fq_reader_reset reset;
    produce(1000);
    push_reader_open(&r, &s, &topic, 0, 0, 0, RING_MIN);
    push_reader_until(&r, 1000);
    cr_assert_eq(raw_delete_topic(&c, "t", &err), 0, "%s", err.text);
    expect_stopped(&r, FLASHQ_ERR_UNKNOWN_TOPIC_ID, 0, 1);
    const struct fq_msg *event = raw_next_event(&s, FQ_MSG_READER_RESET);
    cr_assert(event);
    cr_assert_eq(fq_decode_reader_reset(event, &reset, &err), 0);
    cr_assert_eq(reset.reason, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    struct raw_push again;
    cr_assert_eq(raw_push_open(&s, r.push.reader, 0, 0, RING_MIN, &again, &err),
                 FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(raw_push_close(&s, &r.push), 0, "as if it had closed it a moment earlier");
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    push_reader_end(&r);
}

Test(push_ends, a_stopping_broker_says_so_before_goodbye, .init = begin, .fini = end)
{
    struct push_reader r;
    produce(1000);
    push_reader_open(&r, &s, &topic, 0, 0, 0, RING_MIN);
    push_reader_until(&r, 1000);
    test_broker_stop(&t);
    RAW_UNTIL(&s, !s.conn);
    expect_stopped(&r, FLASHQ_ERR_SHUTTING_DOWN, 0, 1);
    cr_assert(raw_next_event(&s, FQ_MSG_GOODBYE));
    push_reader_end(&r);
}

/* ---- damage --------------------------------------------------------------------------------- */

static const char *marker;
static int damaged;

static int damage_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)ftw;
    const char *dot = strrchr(path, '.');
    if (flag != FTW_F || !dot || strcmp(dot, ".log") != 0) {
        return 0;
    }
    size_t bytes = (size_t)info->st_size;
    char *all = malloc(bytes);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, all, bytes, 0), (ssize_t)bytes);
    char *at = memmem(all, bytes, marker, strlen(marker));
    if (at) {
        cr_assert_eq(pwrite(fd, "X", 1, at - all), 1);
        damaged++;
    }
    (void)close(fd);
    free(all);
    return 0;
}

static void damage(const char *value)
{
    marker = value;
    damaged = 0;
    (void)nftw(t.dir, damage_one, 16, FTW_PHYS);
    cr_assert_eq(damaged, 1);
}

/* case 20 */
Test(push_ends, known_damage_is_not_pushed_and_what_is_before_it_is, .init = begin, .fini = end)
{
    struct fq_reader_open_answer reader;
    struct fq_segment_open_answer segment;
    struct push_reader fresh, stalled, after;
    uint64_t before;
    for (int i = 0; i < 4; i++) {
        produce(40000);
    }
    free(raw_log_bytes(&c, &topic, 0, 0, &before));
    produce_value("to be damaged");
    produce_value("good again");
    push_reader_open(&stalled, &s, &topic, 0, 1, 0, RING_MIN);
    RAW_UNTIL(&s, push_reader_take(&stalled) > 0 && stalled.seen == RING_MIN);
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    damage("to be damaged");
    /* Somebody stumbles over it. */
    cr_assert_eq(raw_reader_open(&c, &topic, 0, &reader, &err), 0);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 4, &segment, &err), FLASHQ_ERR_CORRUPT);
    push_reader_until(&stalled, before);
    expect_stopped(&stalled, FLASHQ_ERR_CORRUPT, 0, 6);
    cr_assert_eq(push_reader_take(&stalled), 0);
    cr_assert_eq(stalled.seen, before);
    expect_beginning(&stalled, log, length);
    push_reader_open(&fresh, &s, &topic, 0, 0, 0, 1 << 20);
    push_reader_until(&fresh, before);
    expect_stopped(&fresh, FLASHQ_ERR_CORRUPT, 0, 6);
    cr_assert_eq(fresh.seen, before);
    /* The client pulls around it, which for the broker is: it opens behind it. */
    struct raw_push refused;
    cr_assert_eq(raw_push_open(&s, fresh.push.reader, 0, 4, RING_MIN, &refused, &err),
                 FLASHQ_ERR_CORRUPT);
    cr_assert(strstr(err.text, "next readable offset is 5"), "%s", err.text);
    push_reader_open(&after, &s, &topic, 0, 2, 5, RING_MIN);
    push_reader_until(&after, 70);
    cr_assert_eq(after.push.position_offset, 5);
    cr_assert_eq(memcmp(after.bytes, log + length - after.seen, after.seen), 0);
    free(log);
    push_reader_end(&stalled);
    push_reader_end(&fresh);
    push_reader_end(&after);
}

/* ---- what is under way ---------------------------------------------------------------------- */

/* A subscriber over tcp that reads nothing, and many bytes that wait for it in the broker. */
static void fill_the_socket(struct push_reader *r)
{
    begin_with(FQ_TRANSPORT_TCP);
    push_reader_open(r, &s, &topic, 0, 0, 0, 64 << 20);
    for (int i = 0; i < 30; i++) {
        produce(1000000);
    }
    cr_assert_lt(raw_counter(&c, "push.bytes"), 30000000, "the socket took everything");
}

Test(push_ends, a_close_while_bytes_are_under_way_is_answered_after_them)
{
    struct push_reader r;
    struct raw_push again;
    uint8_t out[64];
    fill_the_socket(&r);
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    struct fq_push_close body = {.reader = r.push.reader};
    uint32_t asked = ++s.correlation;
    int64_t bytes = fq_encode_push_close(out, sizeof out, asked, &body);
    raw_send(&s, out, (size_t)bytes);
    for (int i = 0; i < 50; i++) {
        later(0);
    }
    cr_assert_eq(raw_counter(&c, "push.open"), 0, "it is closed there");
    /* The next answer comes behind that one. */
    const struct fq_msg *beat =
        raw_ask(&s, out, fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, ++s.correlation));
    cr_assert(beat);
    (void)push_reader_take(&r);
    expect_beginning(&r, log, length);
    uint8_t *ring = fq_region_base(r.push.ring);
    cr_assert_eq(memcmp(ring, log, r.seen), 0);
    memset(ring, 0, r.ring_bytes);
    produce(1000000);
    for (int i = 0; i < 50; i++) {
        raw_pump(&s);
    }
    for (uint64_t i = 0; i < r.ring_bytes; i++) {
        cr_assert_eq(ring[i], 0, "byte %llu was written after the answer", (unsigned long long)i);
    }
    cr_assert_eq(raw_push_open(&s, r.push.reader, 0, 30, RING_MIN, &again, &err), 0, "%s", err.text);
    raw_push_end(&again);
    free(log);
    push_reader_end(&r);
    end();
}

/* The log gives the segments up, and others are written meanwhile: recycled, if one could. */
Test(push_ends, bytes_under_way_stay_what_they_were_when_their_segment_goes)
{
    struct push_reader r;
    int64_t start;
    fill_the_socket(&r);
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    cr_assert_eq(raw_trim(&c, "t", 0, -1, &start, &err), 0, "%s", err.text);
    for (int i = 0; i < 30; i++) {
        produce(1000000);
    }
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    expect_stopped(&r, FLASHQ_ERR_TRIMMED, 30, 30);
    (void)push_reader_take(&r);
    cr_assert_gt(r.seen, 1 << 20);
    expect_beginning(&r, log, length);
    later(8);
    raw_pump(&s);
    cr_assert(s.conn, "it has taken them in time");
    cr_assert_eq(raw_counter(&c, "push.cut"), 0);
    free(log);
    push_reader_end(&r);
    end();
}

Test(push_ends, who_does_not_take_bytes_of_a_segment_that_went_is_disconnected_in_time)
{
    struct push_reader r;
    int64_t start;
    fill_the_socket(&r);
    later(30);
    cr_assert_eq(raw_counter(&c, "connections.open"), 2, "to be slow is no crime");
    cr_assert_eq(raw_trim(&c, "t", 0, -1, &start, &err), 0, "%s", err.text);
    later(4);
    cr_assert_eq(raw_counter(&c, "connections.open"), 2, "it has time");
    later(6);
    later(8);
    cr_assert_eq(raw_counter(&c, "connections.open"), 1);
    cr_assert_eq(raw_counter(&c, "push.cut"), 1);
    produce(100);
    push_reader_end(&r);
    end();
}

/* ---- lies ----------------------------------------------------------------------------------- */

static void ends_with(const char *what)
{
    char text[512];
    struct fq_goodbye body;
    RAW_UNTIL(&s, !s.conn);
    const struct fq_msg *goodbye = raw_next_event(&s, FQ_MSG_GOODBYE);
    cr_assert(goodbye, "the broker says why");
    cr_assert_eq(fq_decode_goodbye(goodbye, &body, &err), 0);
    cr_assert(fq_str_copy(body.text, text, sizeof text));
    cr_assert(strstr(text, what), "\"%s\" does not speak of \"%s\"", text, what);
    produce(100); /* and nobody else notices */
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
}

struct lie {
    uint64_t first, second; /* consumed, as of 10,000 or so that were told */
    uint32_t line;
    const char *word, *counter;
    bool is_honest;
};

static const struct lie lies[] = {
    {5000, 4999, 2, "4999 bytes", "bad_input.credit", false},
    {5000, 0, 2, "0 bytes", "bad_input.credit", false},
    {0, 1u << 20, 2, "1048576 bytes", "bad_input.credit", false},
    {0, UINT64_MAX, 2, "18446744073709551615 bytes", "bad_input.credit", false},
    {5000, UINT64_MAX - 5000, 2, "after 5000", "bad_input.credit", false},
    {5000, 5000, 2, NULL, NULL, true},
    {5000, 10000, 2, NULL, NULL, true},
    {UINT64_MAX, UINT64_MAX, 3, NULL, NULL, true}, /* a line nobody is pushed to by */
    {0, 0, 64, "line 64", "bad_input.notify", false},
    {0, 0, 65534, "line 65534", "bad_input.notify", false},
};

ParameterizedTestParameters(push_ends, credits_are_checked)
{
    static size_t numbers[sizeof lies / sizeof lies[0]];
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        numbers[i] = i;
    }
    return cr_make_param_array(size_t, numbers, sizeof lies / sizeof lies[0]);
}

ParameterizedTest(size_t *number, push_ends, credits_are_checked)
{
    const struct lie *lie = &lies[*number];
    struct push_reader r;
    begin();
    push_reader_open(&r, &s, &topic, 0, 2, 0, RING_MIN);
    produce(10000);
    RAW_UNTIL(&s, push_reader_take(&r) > 0);
    if (lie->line < 64) {
        raw_push_credit(&s, lie->line, lie->first);
        raw_pump(&s);
        cr_assert(s.conn);
        raw_push_credit(&s, lie->line, lie->second);
    } else {
        raw_notify(&s, FQ_PUSH_CREDIT_IMM(lie->line));
    }
    if (lie->is_honest) {
        for (int i = 0; i < 10; i++) {
            raw_pump(&s);
        }
        cr_assert(s.conn);
        uint64_t length;
        produce(60000);
        free(raw_log_bytes(&c, &topic, 0, 0, &length));
        r.push.consumed = lie->line == 2 ? lie->second : 0;
        push_reader_until(&r, length);
    } else {
        ends_with(lie->word);
        cr_assert_eq(raw_counter(&c, lie->counter), 1);
    }
    push_reader_end(&r);
    end();
}

Test(push_ends, a_credit_before_push_setup_ends_the_connection, .init = begin, .fini = end)
{
    raw_close(&s);
    raw_connect(&s, &t, FQ_TRANSPORT_TCP);
    raw_session(&s);
    raw_notify(&s, FQ_PUSH_CREDIT_IMM(0));
    ends_with("line 0, of 0");
}

/* It takes its ring back without a word. */
Test(push_ends, a_ring_that_is_gone_ends_the_connection, .init = begin, .fini = end)
{
    struct push_reader r;
    push_reader_open(&r, &s, &topic, 0, 0, 0, RING_MIN);
    fq_window_revoke(r.push.window);
    raw_pump(&s);
    produce(1000);
    RAW_UNTIL(&s, !s.conn);
    produce(1000);
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    push_reader_end(&r);
}

/* ---- limits and order ----------------------------------------------------------------------- */

static void expect_refused(uint32_t reader, uint32_t line, int64_t offset, uint64_t ring_bytes,
                           int code, const char *word)
{
    struct raw_push push;
    cr_assert_eq(raw_push_open(&s, reader, line, offset, ring_bytes, &push, &err), code, "%s",
                 fq_err_name(err.code));
    cr_assert(strstr(err.text, word), "\"%s\" does not speak of \"%s\"", err.text, word);
}

Test(push_ends, refusals_name_their_limits, .init = begin, .fini = end)
{
    struct push_reader r;
    struct fq_reader_open_answer reader;
    produce(100);
    cr_assert_eq(raw_reader_open(&s, &topic, 0, &reader, &err), 0);
    expect_refused(reader.reader, 64, 0, RING_MIN, FLASHQ_ERR_INVALID, "limit 1024");
    expect_refused(reader.reader, 0, 0, RING_MIN - 4096, FLASHQ_ERR_INVALID, "65536");
    expect_refused(reader.reader, 0, 0, FQ_LIMIT_PUSH_RING_BYTES_MAX + 4096, FLASHQ_ERR_INVALID,
                   "268435456");
    expect_refused(reader.reader, 0, 2, RING_MIN, FLASHQ_ERR_OUT_OF_RANGE, "0 to 1");
    expect_refused(reader.reader, 0, -1, RING_MIN, FLASHQ_ERR_TRIMMED, "0 to 1");
    expect_refused(reader.reader + 77, 0, 0, RING_MIN, FLASHQ_ERR_NOT_FOUND, "no reader");
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    push_reader_open(&r, &s, &topic, 0, 5, 0, RING_MIN);
    push_reader_until(&r, 100);
    expect_refused(r.push.reader, 0, 0, RING_MIN, FLASHQ_ERR_EXISTS, "pushed to already");
    expect_refused(reader.reader, 5, 0, RING_MIN, FLASHQ_ERR_EXISTS, "line 5");
    cr_assert_eq(raw_push_setup(&s, 4, &err), FLASHQ_ERR_EXISTS);
    push_reader_end(&r);
}

Test(push_ends, lines_are_agreed_on_and_heads_must_have_room, .init = begin, .fini = end)
{
    raw_close(&s);
    raw_connect(&s, &t, FQ_TRANSPORT_SHM);
    raw_session(&s);
    struct fq_reader_open_answer reader;
    cr_assert_eq(raw_reader_open(&s, &topic, 0, &reader, &err), 0);
    expect_refused(reader.reader, 0, 0, RING_MIN, FLASHQ_ERR_INVALID, "before PUSH_SETUP");
    cr_assert_eq(raw_push_setup(&s, 0, &err), FLASHQ_ERR_INVALID);
    raw_close(&s);
    raw_connect(&s, &t, FQ_TRANSPORT_SHM);
    raw_session(&s);
    cr_assert_eq(raw_push_setup(&s, 5000, &err), 0, "%s", err.text);
    cr_assert_eq(s.pushes.lines, FQ_LIMIT_PUSH_LINES);
    raw_close(&s);
    raw_connect(&s, &t, FQ_TRANSPORT_TCP);
    raw_session(&s);
    uint8_t out[128];
    struct fq_push_setup setup = {.lines = 1000};
    struct fq_region *heads;
    struct fq_window *window;
    cr_assert_eq(fq_region_create(4096, 0, &heads, &err), 0);
    cr_assert_eq(fq_window_grant(s.conn, heads, 0, 4096, FQ_RIGHT_WRITE, &window,
                                 setup.heads_token, &err),
                 0);
    const struct fq_msg *answer =
        raw_ask(&s, out, fq_encode_push_setup(out, sizeof out, ++s.correlation, &setup));
    cr_assert_eq(answer->status, FLASHQ_ERR_INVALID);
    (void)fq_msg_error(answer, &err);
    cr_assert(strstr(err.text, "64000 bytes, not 4096"), "%s", err.text);
    fq_region_unref(heads);
}

/* A ring that is not mapped twice would be written past its end. */
Test(push_ends, a_ring_must_be_mapped_twice, .init = begin, .fini = end)
{
    uint8_t out[128];
    struct fq_reader_open_answer reader;
    struct fq_region *ring;
    struct fq_window *window;
    struct fq_push_open open = {.ring_bytes = RING_MIN};
    cr_assert_eq(raw_reader_open(&s, &topic, 0, &reader, &err), 0);
    open.reader = reader.reader;
    cr_assert_eq(fq_region_create(RING_MIN, 0, &ring, &err), 0);
    cr_assert_eq(
        fq_window_grant(s.conn, ring, 0, RING_MIN, FQ_RIGHT_WRITE, &window, open.ring_token, &err),
        0);
    const struct fq_msg *answer =
        raw_ask(&s, out, fq_encode_push_open(out, sizeof out, ++s.correlation, &open));
    cr_assert_eq(answer->status, FLASHQ_ERR_INVALID);
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    fq_region_unref(ring);
}

/* Pull, push, pull, push: the position is the client's, and nothing is lost or doubled. */
Test(push_ends, closed_and_opened_again_it_goes_on_at_the_offset_asked_for, .init = begin,
     .fini = end)
{
    struct push_reader r;
    struct fq_reader_open_answer reader;
    uint8_t out[64];
    push_reader_open(&r, &s, &topic, 0, 0, 0, RING_MIN);
    for (int i = 0; i < 10; i++) {
        uint64_t length;
        produce(2000);
        uint8_t *log = raw_log_bytes(&c, &topic, 0, i, &length);
        push_reader_until(&r, length);
        cr_assert_eq(memcmp(r.bytes, log, length), 0);
        free(log);
        uint32_t number = r.push.reader;
        cr_assert_eq(raw_push_close(&s, &r.push), 0);
        push_reader_end(&r);
        r = (struct push_reader){.c = &s, .ring_bytes = RING_MIN};
        cr_assert_eq(raw_push_open(&s, number, 0, i + 1, RING_MIN, &r.push, &err), 0, "%s",
                     err.text);
        cr_assert_eq(raw_push_head(&s, 0).tail, 0);
    }
    /* A reader takes its push with it. */
    struct fq_slot_ref ref = {.slot = r.push.reader};
    raw_ask(&s, out, fq_encode_reader_close(out, sizeof out, ++s.correlation, &ref));
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    cr_assert_eq(raw_push_close(&s, &r.push), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(raw_reader_open(&s, &topic, 0, &reader, &err), 0);
    produce(2000);
    push_reader_end(&r);
}
