/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that say anything about pushes in any order, some of it true, against a broker that pushes to an honest one
 * meanwhile. The broker may refuse them or end their connections; the honest one gets every byte. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "push_reader.h"

#define RINGS_MAX 16u

static struct test_broker t;
static struct raw_client c; /* produces, and reads the log */
static struct raw_client s; /* is pushed to, honestly */
static struct raw_client h; /* hostile */
static struct fq_uuid topic;
static struct fq_err err;
static struct fq_prng prng;
static uint32_t slot;
static int32_t sequence;

/* What the hostile one has. */
static struct {
    struct fq_region *region;
    struct fq_window *window;
    uint8_t token[FQ_TOKEN_BYTES];
} rings[RINGS_MAX];
static size_t rings_count;
static uint32_t readers[8];
static size_t readers_count;
static unsigned lives, opened, refused;

static uint64_t below(uint64_t limit)
{
    return fq_prng_below(&prng, limit);
}

static bool rarely(void)
{
    return below(8) == 0;
}

static void produce(size_t bytes)
{
    static char value[100000];
    cr_assert_lt(bytes, sizeof value);
    memset(value, 'a' + sequence % 26, bytes);
    value[bytes] = '\0';
    raw_produce(&c, slot, 7, sequence++, 1, value);
    cr_assert_eq(raw_ack(&c).status, 0);
}

static void end_life(void)
{
    raw_close(&h);
    for (size_t i = 0; i < rings_count; i++) {
        fq_region_unref(rings[i].region);
    }
    rings_count = readers_count = 0;
}

static void begin_life(enum fq_transport transport)
{
    raw_connect(&h, &t, transport);
    raw_session(&h);
    lives++;
}

/* Memory to be written into, of a size that may be good for something. */
static size_t make_ring(void)
{
    static const size_t sizes[] = {4096, FQ_LIMIT_PUSH_RING_BYTES_MIN, 64u << 10, 256u << 10, 1u << 20};
    unsigned flags = rarely() ? 0 : FQ_REGION_MIRRORED;
    if (rings_count == RINGS_MAX) {
        return below(rings_count);
    }
    size_t at = rings_count++;
    memset(&rings[at], 0, sizeof rings[at]);
    cr_assert_eq(fq_region_create(sizes[below(5)], flags, &rings[at].region, &err), 0, "%s", err.text);
    int code = fq_window_grant(h.conn, rings[at].region, 0, fq_region_bytes(rings[at].region), FQ_RIGHT_WRITE,
                               &rings[at].window, rings[at].token, &err);
    if (code != 0) {
        fq_region_unref(rings[at].region);
        rings_count--;
        cr_assert(rings_count > 0 || code == FLASHQ_ERR_CLOSED, "%s", err.text);
        return 0;
    }
    return at;
}

static void random_token(uint8_t token[FQ_TOKEN_BYTES])
{
    if (rings_count > 0) {
        memcpy(token, rings[below(rings_count)].token, FQ_TOKEN_BYTES);
    }
    if (rings_count == 0 || below(40) == 0) {
        token[below(FQ_TOKEN_BYTES)] ^= (uint8_t)(1u << below(8));
    }
}

static uint32_t some_line(void)
{
    static const uint32_t odd[] = {8, 1023, 1024, 65534, 65535, 1u << 31, UINT32_MAX};
    return rarely() ? odd[below(7)] : (uint32_t)below(8);
}

static uint32_t some_reader(void)
{
    return readers_count > 0 && !rarely() ? readers[below(readers_count)] : (uint32_t)below(1u << 20);
}

static void count_answer(const struct fq_msg *answer)
{
    opened += answer && answer->type == FQ_MSG_PUSH_OPEN && answer->status == 0;
    refused += answer && answer->status != 0;
}

static void say_setup(void)
{
    static const uint32_t lines[] = {0, 1, 8, 64, 1024, 1025, UINT32_MAX};
    struct fq_push_setup setup = {.lines = rarely() ? lines[below(7)] : 8};
    uint8_t out[256];
    (void)make_ring();
    random_token(setup.heads_token);
    const struct fq_msg *answer =
        raw_ask(&h, out, fq_encode_push_setup(out, sizeof out, ++h.correlation, &setup));
    struct fq_push_setup_answer body;
    if (answer && answer->status == 0 && fq_decode_push_setup_answer(answer, &body, &err) == 0) {
        cr_assert_leq(body.lines, FQ_LIMIT_PUSH_LINES);
        cr_assert_leq(body.lines, setup.lines);
        h.pushes = body;
        cr_assert_eq(fq_remote_open(h.conn, body.credits_token, FQ_RIGHT_WRITE, &h.credits, &err), 0);
    }
    count_answer(answer);
}

static void say_open(void)
{
    uint8_t out[256];
    size_t ring = make_ring();
    if (rings_count == 0) {
        return;
    }
    struct fq_push_open open = {.reader = some_reader(),
                                .line = some_line(),
                                .offset = (int64_t)below((uint64_t)sequence + 2),
                                .ring_bytes = fq_region_bytes(rings[ring].region)};
    memcpy(open.ring_token, rings[ring].token, FQ_TOKEN_BYTES);
    if (rarely()) {
        random_token(open.ring_token);
    }
    if (rarely()) {
        open.ring_bytes = fq_prng_next(&prng) >> below(64);
    }
    if (rarely()) {
        open.offset = (int64_t)(fq_prng_next(&prng) >> below(64));
    }
    count_answer(raw_ask(&h, out, fq_encode_push_open(out, sizeof out, ++h.correlation, &open)));
}

static void say_close(void)
{
    uint8_t out[64];
    struct fq_push_close body = {.reader = some_reader()};
    count_answer(raw_ask(&h, out, fq_encode_push_close(out, sizeof out, ++h.correlation, &body)));
}

static void open_reader(void)
{
    struct fq_reader_open_answer reader;
    if (readers_count < 8 && raw_reader_open(&h, &topic, 0, &reader, &err) == 0) {
        readers[readers_count++] = reader.reader;
    }
}

static void close_reader(void)
{
    uint8_t out[64];
    struct fq_slot_ref ref = {.slot = some_reader()};
    (void)raw_ask(&h, out, fq_encode_reader_close(out, sizeof out, ++h.correlation, &ref));
}

static void give_credit(void)
{
    uint32_t line = some_line();
    if (!h.credits || line >= h.pushes.lines || rarely()) {
        raw_notify(&h, below(4) ? FQ_PUSH_CREDIT_IMM(line) : (uint32_t)fq_prng_next(&prng));
    } else {
        raw_push_credit(&h, line, rarely() ? fq_prng_next(&prng) >> below(64) : below(4) * 1000);
    }
}

static void take_ring_back(void)
{
    if (rings_count > 0) {
        size_t at = below(rings_count);
        fq_window_revoke(rings[at].window);
        rings[at].window = NULL;
    }
}

/* Credit is seldom wrong: most of it ends the connection, and then nothing else is tried. */
static void do_something(void)
{
    switch (below(12)) {
    case 0: say_setup(); break;
    case 1:
    case 2:
    case 3:
    case 4: say_open(); break;
    case 5:
    case 6: open_reader(); break;
    case 7: say_close(); break;
    case 8: close_reader(); break;
    case 9: give_credit(); break;
    case 10: take_ring_back(); break;
    default: raw_pump(&h); break;
    }
}

ParameterizedTestParameters(push_hostile, anything_in_any_order_costs_nobody_else_a_byte)
{
    static enum fq_transport cases[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    return cr_make_param_array(enum fq_transport, cases, 2);
}

ParameterizedTest(enum fq_transport *transport, push_hostile, anything_in_any_order_costs_nobody_else_a_byte,
                  .timeout = 120)
{
    struct fq_producer_open_answer producer;
    struct push_reader honest;
    uint64_t length, seed = fq_random_u64();
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    test_broker_begin(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &topic, &err), 0, "%s", err.text);
    raw_ring(&c, 64);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &producer, &err), 0, "%s", err.text);
    slot = producer.slot;
    raw_connect(&s, &t, *transport);
    raw_session(&s);
    cr_assert_eq(raw_push_setup(&s, 1, &err), 0, "%s", err.text);
    push_reader_open(&honest, &s, &topic, 0, 0, 0, FQ_LIMIT_PUSH_RING_BYTES_MIN);
    begin_life(*transport);
    say_setup();
    for (int i = 0; i < 2500; i++) {
        if (!h.conn || below(200) == 0) {
            end_life();
            begin_life(*transport);
            say_setup();
            open_reader();
        }
        do_something();
        if (below(4) == 0) {
            produce(below(4) == 0 ? below(30000) : below(500));
            (void)push_reader_take(&honest);
            push_reader_credit(&honest, 0);
        }
    }
    end_life();
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    push_reader_until(&honest, length);
    cr_assert_eq(honest.seen, length);
    cr_assert_eq(memcmp(honest.bytes, log, length), 0);
    RAW_UNTIL(&c, raw_counter(&c, "connections.open") == 2);
    cr_assert_eq(raw_counter(&c, "push.open"), 1, "what it left open is gone with it");
    cr_assert_eq(raw_counter(&c, "readers.open"), 1, "the honest one's");
    (void)fprintf(stderr, "%u connections, %u pushes, %u refusals\n", lives, opened, refused);
    cr_assert_gt(opened, 20);
    cr_assert_gt(refused, 100);
    free(log);
    push_reader_end(&honest);
    raw_close(&s);
    raw_close(&c);
    test_broker_end(&t);
}
