/* SPDX-License-Identifier: Apache-2.0 */
/* A broker that pushes over fabrics which hold back, tear and delay by seed, and keep nothing of what they were given
 * but pointers. Subscribers compare every byte. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "push_reader.h"
#include "shard.h"
#include "storage/store.h"

static struct test_broker t;
static struct raw_client c; /* produces, and reads the log */
static struct raw_client s; /* is pushed to */
static struct fq_uuid topic;
static struct fq_err err;
static uint32_t slot;
static int32_t sequence;

static const struct fq_fault_plan none = {.borrows = true};

static void begin(enum fq_transport transport)
{
    struct fq_producer_open_answer opened;
    struct fq_config_pair small[] = {
        {.key = fq_str_of("segment.bytes", 13), .value = fq_str_of("2MiB", 4)},
        {.key = fq_str_of("retention.bytes", 15), .value = fq_str_of("8MiB", 4)}};
    test_broker_prepare(&t);
    t.faults = &none;
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 1, small, 2, &topic, &err), 0, "%s", err.text);
    raw_ring(&c, 64);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0, "%s", err.text);
    slot = opened.slot;
    sequence = 0;
    raw_connect(&s, &t, transport);
    raw_session(&s);
    cr_assert_eq(raw_push_setup(&s, 8, &err), 0, "%s", err.text);
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

ParameterizedTestParameters(push_faults, every_byte_whatever_happens_to_operations)
{
    static enum fq_transport cases[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    return cr_make_param_array(enum fq_transport, cases, 2);
}

/* Small rings and small segments: writes end and begin anywhere, and trims follow the subscribers. */
ParameterizedTest(enum fq_transport *transport, push_faults, every_byte_whatever_happens_to_operations)
{
    struct fq_fault_plan plan = {.late_op = 200000, .torn_write = 200000, .delay_event = 200000,
                                 .borrows = true, .seed = fq_random_u64()};
    struct push_reader readers[3];
    struct fq_prng prng;
    uint64_t length;
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)plan.seed);
    fq_prng_seed(&prng, plan.seed);
    begin(*transport);
    for (size_t i = 0; i < 2; i++) {
        fq_fabric_faulty_set_plan(t.faulty[i], &plan);
    }
    for (uint32_t i = 0; i < 3; i++) {
        push_reader_open(&readers[i], &s, &topic, 0, i, 0,
                         i == 0 ? FQ_LIMIT_PUSH_RING_BYTES_MIN : 1 << 20);
    }
    for (uint64_t produced = 0; produced < 5 << 20;) {
        size_t bytes = fq_prng_below(&prng, fq_prng_below(&prng, 4) == 0 ? 60000 : 500);
        produce(bytes);
        produced += bytes;
        struct push_reader *r = &readers[fq_prng_below(&prng, 3)];
        raw_pump(&s);
        (void)push_reader_take(r);
        push_reader_credit(r, fq_prng_below(&prng, 2) ? 0 : fq_prng_below(&prng, 50000));
    }
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    for (uint32_t i = 0; i < 3; i++) {
        push_reader_until(&readers[i], length);
        cr_assert_eq(readers[i].seen, length);
        cr_assert_eq(memcmp(readers[i].bytes, log, length), 0, "subscriber %u", i);
        push_reader_end(&readers[i]);
    }
    struct fq_fault_counts counts;
    fq_fabric_faulty_counts(t.faulty[*transport == FQ_TRANSPORT_TCP], &counts);
    cr_assert_gt(counts.torn, 50);
    cr_assert_gt(counts.late, 50);
    free(log);
    end();
}

static uint64_t recycled(void)
{
    struct fq_store_stats stats;
    fq_store_get_stats(fq_broker_shard(t.broker, 0)->params.store, &stats);
    return stats.recycled;
}

/* Writes wait where nothing but the push's pin holds their segment (no peer has mapped it, and the fabric keeps no
 * reference). The log gives it up, and fills segments that were used before. */
Test(push_faults, a_pin_alone_keeps_bytes_under_way_what_they_were)
{
    struct fq_fault_plan hold = {.late_op = FQ_FAULT_CERTAIN, .delay_polls_max = 8000, .borrows = true,
                                 .seed = fq_random_u64()};
    struct push_reader r, witness;
    struct raw_client w;
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)hold.seed);
    begin(FQ_TRANSPORT_TCP);
    raw_connect(&w, &t, FQ_TRANSPORT_SHM);
    raw_session(&w);
    cr_assert_eq(raw_push_setup(&w, 1, &err), 0, "%s", err.text);
    for (int i = 0; i < 30; i++) { /* from here on a roll takes what retention has just given up */
        produce(1000000);
    }
    push_reader_open(&witness, &w, &topic, 0, 0, sequence, 64 << 20);
    push_reader_open(&r, &s, &topic, 0, 0, sequence, 64 << 20);
    fq_fabric_faulty_set_plan(t.faulty[1], &hold);
    produce(1000000);
    push_reader_until(&witness, 1000000);
    uint64_t before = recycled(), under_way = 1000000;
    for (int i = 0; i < 30; i++) {
        produce(1000000);
    }
    cr_assert_gt(recycled(), before + 8, "those that nobody held were");
    cr_assert_eq(push_reader_take(&r), 0, "still under way");
    push_reader_until(&r, under_way);
    (void)push_reader_take(&witness);
    cr_assert_leq(r.seen, witness.seen);
    cr_assert_eq(memcmp(r.bytes, witness.bytes, r.seen), 0, "bytes that were written there later");
    push_reader_end(&r);
    push_reader_end(&witness);
    raw_close(&w);
    end();
}
