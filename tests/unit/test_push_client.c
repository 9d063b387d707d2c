/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer that is pushed to, against a broker that follows a script: slow, torn, lying, standing still. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/random.h"
#include "push_broker.h"

static enum fq_transport transports[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};

#define over_both(suite, name)                                                                     \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(enum fq_transport, transports, 2);                              \
    }                                                                                              \
    ParameterizedTest(enum fq_transport *transport, suite, name, .timeout = 120)

struct setup {
    struct push_broker *b;
    flashq_client *client;
    flashq_consumer *consumer;
    int64_t next;                /* the offset that must come next */
};

static void set_up(struct setup *s, enum fq_transport transport, const char *key, const char *value)
{
    char text[512];
    flashq_config *config = flashq_config_new();
    s->b = calloc(1, sizeof *s->b);
    cr_assert(s->b != NULL);
    push_broker_begin(s->b, transport);
    s->next = 0;
    const char *pairs[][2] = {{"brokers", s->b->address}, {"fetch.mode", "push"},
                              {"push.buffer.bytes", "64KiB"}, {"timeout.ms", "20s"},
                              {"reconnect.backoff.ms", "1ms"}, {key, value}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i][0]) {
            cr_assert_eq(flashq_config_set(config, pairs[i][0], pairs[i][1], text, sizeof text), 0, "%s",
                         text);
        }
    }
    cr_assert_eq(flashq_client_open(config, &s->client, text, sizeof text), 0, "%s", text);
    flashq_config_free(config);
    cr_assert_eq(flashq_consumer_open(s->client, &s->consumer, text, sizeof text), 0, "%s", text);
}

static void tear_down(struct setup *s)
{
    cr_assert_eq(flashq_client_close(s->client, 2000), 0);
    cr_assert(!atomic_load(&s->b->broke_rules), "the client broke the protocol");
    push_broker_end(s->b);
    free(s->b);
}

static void assign(struct setup *s, int64_t offset)
{
    char text[512];
    int code = flashq_consumer_assign(s->consumer, "t", 0, offset, 10000, text, sizeof text);
    cr_assert_eq(code, 0, "%s", text);
}

static void check(struct setup *s, const flashq_message *m)
{
    int64_t number;
    cr_assert_eq(m->status, 0, "%s at %lld", flashq_error_name(m->status), (long long)m->offset);
    cr_assert_eq(m->offset, s->next, "%lld, not %lld", (long long)m->offset, (long long)s->next);
    memcpy(&number, m->value, sizeof number);
    cr_assert_eq(number, s->next);
    cr_assert_eq(m->timestamp_ms, 1000 + number);
    for (size_t i = sizeof number; i < m->value_length; i++) {
        cr_assert_eq(((const uint8_t *)m->value)[i], 0);
    }
    s->next++;
}

/* Polls until `to`, `most` at a time. */
static void expect_until(struct setup *s, int64_t to, size_t most)
{
    const flashq_message *messages[64];
    char text[512];
    while (s->next < to) {
        int count = flashq_consumer_poll(s->consumer, messages, most, 10000);
        cr_assert_gt(count, 0, "nothing after %lld: %s", (long long)s->next,
                     (flashq_consumer_last_error(s->consumer, text, sizeof text), text));
        for (int i = 0; i < count; i++) {
            check(s, messages[i]);
        }
    }
    cr_assert_eq(s->next, to);
}

static enum flashq_mode mode_of(struct setup *s)
{
    enum flashq_mode mode = (enum flashq_mode)77;
    cr_assert_eq(flashq_mode(s->consumer, "t", 0, &mode), 0);
    return mode;
}

/* Polls, for nothing, until the partition is read so. */
static void await_mode(struct setup *s, enum flashq_mode mode)
{
    const flashq_message *message;
    for (int64_t until = fq_mono_us() + 10000000; mode_of(s) != mode && fq_mono_us() < until;) {
        cr_assert_eq(flashq_consumer_poll(s->consumer, &message, 1, 5), 0);
    }
    cr_assert_eq((int)mode_of(s), (int)mode);
}

static void append_some(struct setup *s, int batches, uint64_t *random)
{
    struct fq_prng prng;
    fq_prng_seed(&prng, *random);
    for (int i = 0; i < batches; i++) {
        push_broker_append(s->b, 1 + (int)fq_prng_below(&prng, 20), fq_prng_below(&prng, 300));
    }
    *random = fq_prng_next(&prng);
}

/* ---- honest ----------------------------------------------------------------------------------- */

over_both(push_client, every_record_once_however_the_bytes_are_cut)
{
    static const uint64_t chunks[] = {0, 1, 7, 61, 500, 4096, 65536};
    uint64_t random = 5;
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        struct setup s;
        set_up(&s, *transport, NULL, NULL);
        atomic_store(&s.b->chunk, chunks[c]);
        append_some(&s, chunks[c] == 1 ? 20 : 300, &random);
        assign(&s, FLASHQ_OFFSET_START);
        expect_until(&s, s.b->end, 1 + c);
        cr_assert_eq((int)mode_of(&s), FLASHQ_MODE_PUSH);
        for (int i = 0; i < 20; i++) { /* as they come, to one that sleeps */
            append_some(&s, 1, &random);
            expect_until(&s, s.b->end, 64);
        }
        cr_assert_eq(atomic_load(&s.b->opens), 1);
        cr_assert_eq(atomic_load(&s.b->segment_opens), 0, "nothing was pulled");
        tear_down(&s);
    }
}

over_both(push_client, credit_is_given_by_quarters_of_the_ring_and_lent_memory_is_not_written_over)
{
    enum { BATCHES = 600 };
    struct setup s;
    const flashq_message *messages[64];
    set_up(&s, *transport, NULL, NULL);
    for (int i = 0; i < BATCHES; i++) {
        push_broker_append(s.b, 4, 250);
    }
    assign(&s, 0);
    while (s.next < s.b->end) {
        int count = flashq_consumer_poll(s.consumer, messages, 64, 10000);
        cr_assert_gt(count, 0);
        int64_t first = s.next;
        for (int pass = 0; pass < 3; pass++) { /* meanwhile the broker writes what it has credit for */
            s.next = first;
            for (int i = 0; i < count; i++) {
                check(&s, messages[i]);
            }
            (void)usleep(pass == 0 ? 500 : 0);
        }
    }
    uint64_t quarters = s.b->log_bytes / (16 << 10);
    cr_assert_leq(atomic_load(&s.b->credits), (int)quarters + 1, "%d notifies for %d quarters",
                  atomic_load(&s.b->credits), (int)quarters);
    cr_assert_geq(atomic_load(&s.b->consumed), s.b->log_bytes - (64 << 10));
    tear_down(&s);
}

/* case 32 */
over_both(push_client, batches_up_to_the_ring_are_pushed_and_larger_ones_pulled)
{
    struct setup s;
    const size_t overhead = 61 + 20;
    const size_t sizes[] = {65536 - overhead - 8, 10, 65536 - 12, 65536, 200000, 10, 30000, 100000, 10};
    set_up(&s, *transport, NULL, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        push_broker_append(s.b, 1, sizes[i]);
        push_broker_append(s.b, 2, 100);
    }
    assign(&s, 0);
    expect_until(&s, s.b->end, 3);
    cr_assert_geq(atomic_load(&s.b->segment_opens), 1);
    await_mode(&s, FLASHQ_MODE_PUSH);
    push_broker_append(s.b, 3, 100);
    expect_until(&s, s.b->end, 3);
    tear_down(&s);
}

/* ---- a broker that does not push ---------------------------------------------------------------- */

over_both(push_client, a_refusal_means_that_records_are_pulled)
{
    static const int codes[] = {FLASHQ_ERR_UNSUPPORTED, FLASHQ_ERR_LIMIT, FLASHQ_ERR_NO_MEMORY,
                                FLASHQ_ERR_INVALID, FLASHQ_ERR_EXISTS, FLASHQ_ERR_CORRUPT};
    uint64_t random = 6;
    for (size_t i = 0; i < 2 * sizeof codes / sizeof codes[0]; i++) {
        struct setup s;
        bool is_setup = i % 2 == 0;
        set_up(&s, *transport, NULL, NULL);
        atomic_store(is_setup ? &s.b->refuse_setup : &s.b->refuse_open, codes[i / 2]);
        append_some(&s, 50, &random);
        assign(&s, 0);
        expect_until(&s, s.b->end, 10);
        append_some(&s, 50, &random);
        expect_until(&s, s.b->end, 10);
        cr_assert_eq((int)mode_of(&s), FLASHQ_MODE_PULL);
        cr_assert_leq(atomic_load(&s.b->setups), 1);
        cr_assert_leq(atomic_load(&s.b->opens), 5, "it is not asked again and again");
        tear_down(&s);
    }
}

/* ---- lies ------------------------------------------------------------------------------------- */

over_both(push_client, one_lie_costs_time_and_no_record)
{
    uint64_t random = 7;
    for (int lie = PUSH_HONEST + 1; lie < PUSH_LIES_COUNT; lie++) {
        struct setup s;
        set_up(&s, *transport, NULL, NULL);
        atomic_store(&s.b->lie, lie);
        atomic_store(&s.b->lie_after, 10);
        append_some(&s, 60, &random);
        if (lie == PUSH_LOW_WATERMARK || lie == PUSH_BAD_EPOCH) {
            atomic_store(&s.b->lies_left, 1000000);
        }
        assign(&s, 0);
        expect_until(&s, s.b->end, 7);
        atomic_store(&s.b->lies_left, 0);
        for (int i = 0; i < 100; i++) {
            append_some(&s, 1, &random);
            expect_until(&s, s.b->end, 7);
        }
        await_mode(&s, FLASHQ_MODE_PUSH);
        bool is_fatal = lie == PUSH_TAIL_AHEAD || lie == PUSH_TAIL_WRAPPED ||
                        lie == PUSH_BAD_CREDITS || lie == PUSH_LINES_MORE || lie == PUSH_LINES_NONE;
        int connections = atomic_load(&s.b->connections);
        bool may_be_missed = lie == PUSH_TAIL_BACK; /* if nobody looked at the head before */
        cr_assert(connections == (is_fatal ? 2 : 1) || (may_be_missed && connections == 2), "lie %d", lie);
        tear_down(&s);
    }
}

over_both(push_client, one_who_always_lies_is_asked_ever_more_rarely)
{
    static const int lies[] = {PUSH_FLIPPED, PUSH_TWICE, PUSH_TINY_LENGTH, PUSH_LOW_WATERMARK,
                               PUSH_OPEN_AHEAD};
    uint64_t random = 8;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct setup s;
        set_up(&s, *transport, NULL, NULL);
        atomic_store(&s.b->lie, lies[i]);
        atomic_store(&s.b->lies_left, 1000000);
        append_some(&s, 2000, &random);
        assign(&s, 0);
        expect_until(&s, s.b->end, 20);
        cr_assert_leq(atomic_load(&s.b->opens), 14, "lie %d: %d times", lies[i], atomic_load(&s.b->opens));
        cr_assert_eq(atomic_load(&s.b->connections), 1);
        tear_down(&s);
    }
}

over_both(push_client, records_told_of_and_never_written_are_pulled)
{
    struct setup s;
    uint64_t random = 13;
    set_up(&s, *transport, NULL, NULL);
    append_some(&s, 20, &random);
    assign(&s, 0);
    expect_until(&s, s.b->end, 7);
    cr_assert_eq(atomic_load(&s.b->segment_opens), 0);
    for (int i = 0; i < 2; i++) {
        await_mode(&s, FLASHQ_MODE_PUSH);
        push_broker_await(&s.b->opens, i + 1);
        atomic_store(&s.b->is_mute, true);
        append_some(&s, 3, &random);
        expect_until(&s, s.b->end, 7);
        cr_assert_geq(atomic_load(&s.b->segment_opens), i + 1);
        atomic_store(&s.b->is_mute, false);
        for (int batch = 0; batch < 100; batch++) { /* after enough good ones it is pushed to again */
            append_some(&s, 1, &random);
            expect_until(&s, s.b->end, 7);
        }
    }
    await_mode(&s, FLASHQ_MODE_PUSH);
    append_some(&s, 20, &random);
    expect_until(&s, s.b->end, 7);
    cr_assert_eq(atomic_load(&s.b->connections), 1);
    tear_down(&s);
}

/* ---- stopped ---------------------------------------------------------------------------------- */

over_both(push_client, what_was_told_of_before_a_stop_still_comes)
{
    static const int reasons[] = {FLASHQ_ERR_TRIMMED, FLASHQ_ERR_CORRUPT, FLASHQ_ERR_OUT_OF_RANGE,
                                  FLASHQ_ERR_SHUTTING_DOWN, FLASHQ_ERR_LIMIT, FLASHQ_ERR_NOT_LEADER, -9999, 5};
    uint64_t random = 9;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        struct setup s;
        const flashq_message *message;
        set_up(&s, *transport, NULL, NULL);
        append_some(&s, 20, &random);
        assign(&s, 0);
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
        check(&s, message);
        atomic_store(&s.b->stop_reason, reasons[i]);
        push_broker_await(&s.b->stops, 1);
        int opened = atomic_load(&s.b->segment_opens) + atomic_load(&s.b->opens);
        expect_until(&s, s.b->end - 1, 1);
        cr_assert_eq(atomic_load(&s.b->segment_opens) + atomic_load(&s.b->opens), opened,
                     "it was in the ring already");
        append_some(&s, 20, &random);
        expect_until(&s, s.b->end, 5);
        await_mode(&s, FLASHQ_MODE_PUSH);
        append_some(&s, 20, &random);
        expect_until(&s, s.b->end, 5);
        tear_down(&s);
    }
}

/* ---- seeking ---------------------------------------------------------------------------------- */

/* case 15 */
over_both(push_client, nothing_from_before_a_seek_comes_after_it_however_late_it_is_written)
{
    struct setup s;
    uint64_t random = 10;
    const flashq_message *message;
    set_up(&s, *transport, NULL, NULL);
    append_some(&s, 2000, &random);
    assign(&s, 0);
    for (int i = 0; i < 50; i++) {
        int64_t target = (i * 7919) % (s.b->end - 100);
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
        s.next = message->offset;
        check(&s, message);
        int64_t lent = s.next - 1, number;
        atomic_store(&s.b->holds_closes, i % 2 == 1); /* it goes on writing for a while */
        int code = flashq_seek_offset(s.consumer, "t", 0, target, i % 2 == 1 ? 2 : 10000);
        cr_assert(code == 0 || (i % 2 == 1 && code == FLASHQ_ERR_TIMED_OUT), "%s", flashq_error_name(code));
        memcpy(&number, message->value, sizeof number);
        cr_assert_eq(number, lent, "what was lent stays until the next poll");
        if (i % 2 == 1) {
            cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 2), 0);
            atomic_store(&s.b->holds_closes, false);
        }
        s.next = target;
        expect_until(&s, target + 30, 1);
    }
    cr_assert_eq((int)mode_of(&s), FLASHQ_MODE_PUSH);
    tear_down(&s);
}

over_both(push_client, a_paused_partition_takes_no_more_than_its_ring)
{
    struct setup s;
    uint64_t random = 11;
    const flashq_message *message;
    set_up(&s, *transport, NULL, NULL);
    append_some(&s, 1000, &random);
    assign(&s, 0);
    expect_until(&s, 20, 1);
    cr_assert_eq(flashq_pause(s.consumer, "t", 0), 0);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 50), 0);
    uint64_t consumed = atomic_load(&s.b->consumed);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 50), 0);
    cr_assert_eq(atomic_load(&s.b->consumed), consumed, "no credit while nothing is read");
    cr_assert_eq(flashq_resume(s.consumer, "t", 0), 0);
    expect_until(&s, s.b->end, 64);
    tear_down(&s);
}

/* ---- everything together ---------------------------------------------------------------------- */

static void one_step(struct setup *s, struct fq_prng *prng, uint64_t *random, bool *is_paused)
{
    static const int reasons[] = {FLASHQ_ERR_TRIMMED, FLASHQ_ERR_CORRUPT, FLASHQ_ERR_LIMIT,
                                  FLASHQ_ERR_SHUTTING_DOWN};
    const flashq_message *messages[64];
    switch (fq_prng_below(prng, 14)) {
    case 0: append_some(s, 1 + (int)fq_prng_below(prng, 3), random); break;
    case 1:
        s->next = (int64_t)fq_prng_below(prng, (uint64_t)s->b->end + 1);
        (void)flashq_seek_offset(s->consumer, "t", 0, s->next, (int)fq_prng_below(prng, 3));
        break;
    case 2:
        *is_paused = !*is_paused;
        cr_assert_eq(*is_paused ? flashq_pause(s->consumer, "t", 0) : flashq_resume(s->consumer, "t", 0), 0);
        break;
    case 3:
    case 4:
        cr_assert_eq(flashq_set_mode(s->consumer, "t", 0, (enum flashq_mode)fq_prng_below(prng, 2)), 0);
        break;
    case 5: atomic_store(&s->b->kills, fq_prng_below(prng, 4) == 0); break;
    case 6: atomic_store(&s->b->stop_reason, reasons[fq_prng_below(prng, 4)]); break;
    case 7: atomic_store(&s->b->is_stalled, fq_prng_below(prng, 4) == 0); break;
    case 8: atomic_store(&s->b->holds_closes, fq_prng_below(prng, 2) == 0); break;
    case 9: atomic_store(&s->b->is_deaf, fq_prng_below(prng, 4) == 0); break;
    case 10: atomic_store(&s->b->chunk, fq_prng_below(prng, 3) * 777); break;
    default: {
        int count = flashq_consumer_poll(s->consumer, messages, 1 + fq_prng_below(prng, 63),
                                         (int)fq_prng_below(prng, 3));
        cr_assert_geq(count, 0);
        for (int i = 0; i < count; i++) {
            cr_assert(!*is_paused);
            check(s, messages[i]);
        }
        break;
    }
    }
}

over_both(push_client, seek_pause_switch_kill_and_stop_in_any_order)
{
    struct setup s;
    struct fq_prng prng;
    uint64_t seed = fq_random_u64(), random = seed;
    const char *given = getenv("FLASHQ_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : seed;
    (void)fprintf(stderr, "# push seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    set_up(&s, *transport, NULL, NULL);
    append_some(&s, 100, &random);
    assign(&s, 0);
    for (int round = 0; round < 25; round++) {
        bool is_paused = false;
        for (int i = 0; i < 200 && s.b->batches_count < 19000; i++) {
            one_step(&s, &prng, &random, &is_paused);
        }
        atomic_store(&s.b->is_stalled, false);
        atomic_store(&s.b->holds_closes, false);
        atomic_store(&s.b->is_deaf, false);
        cr_assert_eq(flashq_resume(s.consumer, "t", 0), 0);
        expect_until(&s, s.b->end, 64);
    }
    tear_down(&s);
}

/* ---- going away ------------------------------------------------------------------------------- */

over_both(push_client, handles_close_in_every_state_also_while_the_broker_stands_still)
{
    uint64_t random = 12;
    for (int i = 0; i < 16; i++) {
        struct setup s;
        const flashq_message *message;
        set_up(&s, *transport, NULL, NULL);
        append_some(&s, 200, &random);
        assign(&s, 0);
        if (i & 1) {
            cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
        }
        atomic_store(&s.b->is_deaf, (i & 2) != 0);
        if (i & 4) {
            (void)flashq_seek_offset(s.consumer, "t", 0, 50, 1);
        }
        if (i & 8) {
            cr_assert_eq(flashq_consumer_unassign(s.consumer, "t", 0), 0);
            if (i & 1) {
                int64_t number;
                memcpy(&number, message->value, sizeof number);
                cr_assert_eq(number, 0, "lent until the next poll");
            }
            (void)flashq_consumer_poll(s.consumer, &message, 1, 2);
        }
        cr_assert_eq(flashq_consumer_close(s.consumer, 0), 0);
        atomic_store(&s.b->is_deaf, false);
        (void)usleep((unsigned)i % 3 * 1000);
        tear_down(&s);
    }
}
