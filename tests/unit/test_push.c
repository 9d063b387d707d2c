/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread, and subscribers that compare every byte of their rings with the
 * log. What ends a push is in test_push_ends.c. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/random.h"
#include "push_reader.h"
#include "wire/record_batch.h"

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
    cr_assert_eq(raw_create_topic(&c, "t", 4, &small, 1, &topic, &err), 0, "%s", err.text);
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

static void produce(size_t bytes)
{
    static char value[1 << 20];
    cr_assert_lt(bytes, sizeof value);
    memset(value, 'a' + sequence % 26, bytes);
    value[bytes] = '\0';
    raw_produce(&c, slot, 7, sequence++, 1, value);
    cr_assert_eq(raw_ack(&c).status, 0);
}

static void expect_log(const struct push_reader *r, int64_t from_offset)
{
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, from_offset, &length);
    cr_assert_eq(r->seen, length, "%llu of %llu bytes of log", (unsigned long long)r->seen,
                 (unsigned long long)length);
    for (uint64_t i = 0; i < length; i++) {
        cr_assert_eq(r->bytes[i], log[i], "byte %llu", (unsigned long long)i);
    }
    free(log);
}

/* The end of the last whole batch among the bytes taken. */
static int64_t end_of(const struct push_reader *r)
{
    struct fq_batch_header header;
    int64_t end = r->push.position_offset;
    for (uint64_t at = 0; r->seen - at >= FQ_BATCH_HEADER_BYTES; at += fq_batch_total_bytes(&header)) {
        cr_assert_eq(fq_batch_header_read(r->bytes + at, (size_t)(r->seen - at), &header, &err), 0,
                     "%s", err.text);
        if (fq_batch_total_bytes(&header) > r->seen - at) {
            break;
        }
        cr_assert_eq(header.base_offset, end);
        end += header.records_count;
    }
    return end;
}

/* ---- every byte ----------------------------------------------------------------------------- */

struct fabric_case {
    enum fq_transport transport;
    uint64_t ring_bytes;
};

ParameterizedTestParameters(push, the_ring_holds_the_log_whatever_the_credit)
{
    static struct fabric_case cases[] = {{FQ_TRANSPORT_SHM, RING_MIN},
                                         {FQ_TRANSPORT_TCP, RING_MIN},
                                         {FQ_TRANSPORT_SHM, 1 << 20},
                                         {FQ_TRANSPORT_TCP, 1 << 20}};
    return cr_make_param_array(struct fabric_case, cases, sizeof cases / sizeof cases[0]);
}

/* case 16: across some four segments, with batches up to a ring's size that wrap and straddle. */
ParameterizedTest(struct fabric_case *how, push, the_ring_holds_the_log_whatever_the_credit)
{
    struct fq_prng prng;
    struct push_reader r;
    uint64_t seed = (uint64_t)fq_mono_us();
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    begin_with(how->transport);
    produce(100);
    push_reader_open(&r, &s, &topic, 0, 3, 0, how->ring_bytes);
    cr_assert_eq(r.push.position_offset, 0);
    for (uint64_t produced = 0; produced < 7 << 20;) {
        size_t bytes = fq_prng_below(&prng, fq_prng_below(&prng, 4) == 0 ? 60000 : 500);
        produce(bytes);
        produced += bytes;
        for (uint64_t looks = fq_prng_below(&prng, 3); looks > 0; looks--) {
            raw_pump(&s);
            (void)push_reader_take(&r);
            cr_assert_geq(raw_push_head(&s, 3).high_watermark, end_of(&r));
            push_reader_credit(&r, fq_prng_below(&prng, 2) ? 0 : fq_prng_below(&prng, RING_MIN));
        }
    }
    uint64_t length;
    free(raw_log_bytes(&c, &topic, 0, 0, &length));
    push_reader_until(&r, length);
    cr_assert_eq(raw_push_head(&s, 3).high_watermark, sequence);
    expect_log(&r, 0);
    cr_assert_eq(raw_counter(&c, "push.bytes"), (int64_t)length);
    push_reader_end(&r);
    end();
}

Test(push, begins_at_the_batch_that_holds_the_offset, .init = begin, .fini = end)
{
    struct push_reader r;
    for (int i = 0; i < 6; i++) { /* offsets 3i, 3i + 1, 3i + 2 */
        raw_produce(&c, slot, 7, 3 * i, 3, "value");
        cr_assert_eq(raw_ack(&c).status, 0);
    }
    for (int64_t offset = 0; offset <= 18; offset++) {
        uint64_t length;
        push_reader_open(&r, &s, &topic, 0, 0, offset, RING_MIN);
        cr_assert_eq(r.push.position_offset, offset / 3 * 3);
        free(raw_log_bytes(&c, &topic, 0, offset, &length));
        push_reader_until(&r, length);
        expect_log(&r, offset);
        cr_assert_eq(raw_push_close(&s, &r.push), 0);
        push_reader_end(&r);
    }
}

/* An empty partition, then one whose last segment is full and sealed, then one that goes on. */
Test(push, waits_at_an_empty_log_and_at_a_seam, .init = begin, .fini = end)
{
    struct push_reader r, late;
    push_reader_open(&r, &s, &topic, 0, 0, 0, 1 << 20);
    raw_pump(&s);
    cr_assert_eq(push_reader_take(&r), 0);
    for (int i = 0; i < 12; i++) { /* two or three of them to a segment */
        produce(700000);
        push_reader_open(&late, &s, &topic, 0, 1, sequence, RING_MIN);
        cr_assert_eq(late.push.position_offset, sequence);
        push_reader_until(&r, (uint64_t)(i + 1) * 700000);
        produce(10);
        uint64_t length;
        free(raw_log_bytes(&c, &topic, 0, sequence - 1, &length));
        push_reader_until(&late, length);
        expect_log(&late, sequence - 1);
        cr_assert_eq(raw_push_close(&s, &late.push), 0);
        push_reader_end(&late);
    }
    uint64_t length;
    free(raw_log_bytes(&c, &topic, 0, 0, &length));
    push_reader_until(&r, length);
    expect_log(&r, 0);
    push_reader_end(&r);
}

/* ---- who does work and when ----------------------------------------------------------------- */

Test(push, one_publish_is_one_head_and_one_notify_to_each_of_the_partition, .init = begin,
     .fini = end)
{
    struct push_reader here, there;
    push_reader_open(&here, &s, &topic, 0, 0, 0, RING_MIN);
    push_reader_open(&there, &s, &topic, 1, 1, 0, RING_MIN);
    for (int i = 1; i <= 20; i++) {
        produce(200);
        RAW_UNTIL(&s, push_reader_take(&here) > 0);
        cr_assert_eq(end_of(&here), i);
        cr_assert_eq(raw_counter(&c, "push.heads"), i);
        RAW_UNTIL(&s, raw_was_notified(&s, here.push.reader));
        cr_assert_not(raw_was_notified(&s, here.push.reader));
        cr_assert_not(raw_was_notified(&s, there.push.reader));
    }
    cr_assert_eq(push_reader_take(&there), 0);
    push_reader_end(&here);
    push_reader_end(&there);
}

/* The head tells of bytes at once, the acknowledgement comes in the same step. */
Test(push, what_is_acknowledged_is_pushed_in_the_same_step, .init = begin, .fini = end)
{
    static uint8_t batch[1024];
    struct push_reader r;
    push_reader_open(&r, &s, &topic, 0, 0, 0, RING_MIN);
    for (int i = 0; i < 50; i++) {
        size_t length = raw_batch(batch, sizeof batch, 7, sequence++, 1, 1000, "value");
        struct fq_ack_head *acks = fq_region_base(c.acks);
        uint64_t acknowledged = acks->tail, pushed = r.seen;
        memcpy(fq_region_base(c.source), batch, length);
        struct fq_op ops[2] = {{.type = FQ_OP_WRITE,
                                .remote = c.window,
                                .remote_offset = c.written % c.ring.window_bytes,
                                .region = c.source,
                                .local = fq_region_base(c.source),
                                .length = length},
                               {.type = FQ_OP_WRITE_NOTIFY, .imm = slot}};
        cr_assert_eq(fq_conn_post(c.conn, ops, 2), 2);
        c.written += length;
        for (int steps = 0; acks->tail == acknowledged; steps++) {
            cr_assert_lt(steps, 1000);
            cr_assert_eq(push_reader_take(&r), 0, "before the acknowledgement");
            (void)fq_broker_step(t.broker, fq_mono_us());
        }
        cr_assert_gt(push_reader_take(&r), 0, "after the step that acknowledged");
        cr_assert_eq(r.seen, pushed + length);
        push_reader_credit(&r, 0);
        cr_assert_eq(raw_ack(&c).status, 0);
    }
    push_reader_end(&r);
}

ParameterizedTestParameters(push, who_gives_no_credit_holds_nobody_up)
{
    static enum fq_transport transports[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    return cr_make_param_array(enum fq_transport, transports, 2);
}

ParameterizedTest(enum fq_transport *transport, push, who_gives_no_credit_holds_nobody_up)
{
    struct push_reader silent, lively;
    begin_with(*transport);
    push_reader_open(&silent, &s, &topic, 0, 0, 0, RING_MIN);
    push_reader_open(&lively, &s, &topic, 0, 1, 0, RING_MIN);
    for (int i = 0; i < 400; i++) {
        produce(3000);
        raw_pump(&s);
        (void)push_reader_take(&lively);
        push_reader_credit(&lively, 0);
        (void)push_reader_take(&silent); /* which dies when the ring is run over */
    }
    uint64_t length;
    free(raw_log_bytes(&c, &topic, 0, 0, &length));
    push_reader_until(&lively, length);
    expect_log(&lively, 0);
    cr_assert_eq(raw_counter(&c, "append.batches"), 400, "the producer's progress");
    cr_assert_eq(silent.seen, RING_MIN, "exactly its credit");
    cr_assert_leq(raw_counter(&c, "push.stalled"), 402, "once, and when the other had none");
    int64_t stalled = raw_counter(&c, "push.stalled");
    produce(100);
    for (int i = 0; i < 100; i++) {
        raw_pump(&s);
    }
    cr_assert_leq(raw_counter(&c, "push.stalled"), stalled + 1, "nobody looks at it meanwhile");
    push_reader_until(&silent, length); /* and it goes on where it was */
    cr_assert_eq(memcmp(silent.bytes, lively.bytes, length), 0);
    push_reader_end(&silent);
    push_reader_end(&lively);
    end();
}

/* A subscriber that does not even look at its notifies: the connection's queue is full. */
ParameterizedTestParameters(push, a_full_queue_is_waited_for)
{
    static enum fq_transport transports[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    return cr_make_param_array(enum fq_transport, transports, 2);
}

ParameterizedTest(enum fq_transport *transport, push, a_full_queue_is_waited_for)
{
    bool is_shm = *transport == FQ_TRANSPORT_SHM;
    int batches = is_shm ? 17000 : 6000; /* notifies that fill a ring; bytes that fill a socket */
    struct push_reader r;
    begin_with(*transport);
    push_reader_open(&r, &s, &topic, 0, 0, 0, 16 << 20);
    for (int i = 0; i < batches; i++) {
        produce(is_shm ? 10 : 2000);
    }
    int64_t heads = raw_counter(&c, "push.heads");
    cr_assert_lt(heads, batches, "they did not all find room");
    uint64_t length;
    free(raw_log_bytes(&c, &topic, 0, 0, &length));
    push_reader_until(&r, length);
    expect_log(&r, 0);
    cr_assert_gt(raw_counter(&c, "push.heads"), heads, "the rest was told of later");
    cr_assert(!is_shm || raw_counter(&c, "push.blocked") > 0);
    push_reader_end(&r);
    end();
}

/* ---- many ----------------------------------------------------------------------------------- */

Test(push, a_hundred_subscribers_of_one_partition, .init = begin, .fini = end)
{
    enum { CONNECTIONS = 4, EACH = 25, BATCHES = 60 };
    static struct raw_client clients[CONNECTIONS];
    static struct push_reader readers[CONNECTIONS][EACH];
    for (int i = 0; i < CONNECTIONS; i++) {
        raw_connect(&clients[i], &t, i % 2 ? FQ_TRANSPORT_TCP : FQ_TRANSPORT_SHM);
        raw_session(&clients[i]);
        cr_assert_eq(raw_push_setup(&clients[i], EACH, &err), 0, "%s", err.text);
        for (uint32_t j = 0; j < EACH; j++) {
            push_reader_open(&readers[i][j], &clients[i], &topic, 0, j, 0, RING_MIN);
        }
    }
    cr_assert_eq(raw_counter(&c, "push.open"), CONNECTIONS * EACH);
    for (int b = 0; b < BATCHES; b++) {
        produce(5000);
        for (int i = 0; i < CONNECTIONS; i++) {
            raw_pump(&clients[i]);
            for (int j = 0; j < EACH; j++) {
                (void)push_reader_take(&readers[i][j]);
                push_reader_credit(&readers[i][j], 0);
            }
        }
    }
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    for (int i = 0; i < CONNECTIONS; i++) {
        for (int j = 0; j < EACH; j++) {
            push_reader_until(&readers[i][j], length);
            cr_assert_eq(readers[i][j].seen, length);
            cr_assert_eq(memcmp(readers[i][j].bytes, log, length), 0, "subscriber %d of %d", j, i);
            push_reader_end(&readers[i][j]);
        }
        raw_close(&clients[i]);
    }
    free(log);
    cr_assert_eq(raw_counter(&c, "push.bytes"), CONNECTIONS * EACH * (int64_t)length);
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
}

/* Far more pushes of a connection than go out with one doorbell. */
Test(push, as_many_of_one_connection_as_there_are_lines, .init = begin, .fini = end)
{
    enum { LINES = FQ_LIMIT_PUSH_LINES };
    static struct push_reader readers[LINES];
    struct raw_client many;
    struct raw_push one_more;
    struct fq_reader_open_answer reader;
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max; /* a ring is a file here, and another in the broker */
    (void)setrlimit(RLIMIT_NOFILE, &files);
    raw_connect(&many, &t, FQ_TRANSPORT_SHM);
    raw_session(&many);
    cr_assert_eq(raw_push_setup(&many, LINES, &err), 0, "%s", err.text);
    for (uint32_t i = 0; i < LINES; i++) {
        push_reader_open(&readers[i], &many, &topic, 0, i, 0, RING_MIN);
    }
    cr_assert_eq(raw_reader_open(&many, &topic, 0, &reader, &err), 0);
    cr_assert_eq(raw_push_open(&many, reader.reader, LINES, 0, RING_MIN, &one_more, &err),
                 FLASHQ_ERR_INVALID);
    cr_assert(strstr(err.text, "1024"), "%s", err.text);
    for (int b = 0; b < 5; b++) {
        produce(100);
    }
    uint64_t length;
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    for (int i = 0; i < LINES; i++) {
        push_reader_until(&readers[i], length);
        cr_assert_eq(memcmp(readers[i].bytes, log, length), 0);
        push_reader_end(&readers[i]);
    }
    free(log);
    raw_close(&many);
}
