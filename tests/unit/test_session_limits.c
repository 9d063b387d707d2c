/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread: what is bounded by time or by number, and the small parts beside
 * it. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/random.h"
#include "mailbox.h"
#include "raw_client.h"
#include "session/counters.h"
#include "session/handles.h"

static struct test_broker t;
static struct raw_client c;
static struct fq_err err;

/* Steps the broker as if this much time had passed. */
static void later(int64_t seconds)
{
    for (int i = 0; i < 4; i++) {
        (void)fq_broker_step(t.broker, fq_mono_us() + seconds * 1000000);
    }
}

static void connect_client(struct raw_client *client)
{
    raw_connect(client, &t, FQ_TRANSPORT_SHM);
    raw_session(client);
}

Test(limits, who_does_not_open_a_session_is_disconnected)
{
    struct raw_client silent;
    test_broker_begin(&t);
    connect_client(&c);
    raw_connect(&silent, &t, FQ_TRANSPORT_TCP);
    later(4);
    raw_pump(&silent);
    cr_assert(silent.conn);
    later(6);
    RAW_UNTIL(&silent, !silent.conn);
    raw_pump(&c);
    cr_assert(c.conn, "the other one is none the worse");
    raw_close(&silent);
    raw_close(&c);
    test_broker_end(&t);
}

Test(limits, a_retired_segment_is_cut_when_its_reader_keeps_it)
{
    static char value[700001];
    struct fq_uuid topic;
    struct fq_producer_open_answer opened;
    struct fq_reader_open_answer reader;
    struct fq_segment_open_answer segment;
    int64_t start;
    test_broker_begin(&t);
    connect_client(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &topic, &err), 0);
    raw_ring(&c, 16);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0);
    memset(value, 'v', sizeof value - 1);
    for (int32_t i = 0; i < 6; i++) {
        raw_produce(&c, opened.slot, 7, i, 1, value);
        cr_assert_eq(raw_ack(&c).status, 0);
    }
    cr_assert_eq(raw_reader_open(&c, &topic, 0, &reader, &err), 0);
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err), 0);
    cr_assert_eq(raw_trim(&c, "t", 0, -1, &start, &err), 0);
    cr_assert_eq(start, 6);
    later(4);
    cr_assert_eq(raw_counter(&c, "readers.segments.held"), 1, "it has time");
    later(6);
    cr_assert_eq(raw_counter(&c, "readers.segments.held"), 0);
    cr_assert_eq(raw_counter(&c, "readers.segments.cut"), 1);
    raw_close(&c);
    test_broker_end(&t);
}

Test(limits, who_does_not_read_answers_is_disconnected_and_costs_bounded_memory)
{
    struct raw_client deaf;
    uint8_t out[64];
    int64_t length = fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, 1);
    test_broker_begin(&t);
    connect_client(&c);
    connect_client(&deaf);
    /* it writes and never polls */
    for (int i = 0; i < 200000 && raw_counter(&c, "bad_input.queue") == 0; i++) {
        for (int k = 0; k < 1000; k++) {
            if (fq_conn_send(deaf.conn, out, (size_t)length) < 0) {
                break;
            }
        }
    }
    later(2);
    cr_assert_eq(raw_counter(&c, "connections.open"), 1);
    raw_close(&deaf);
    raw_close(&c);
    test_broker_end(&t);
}

Test(limits, an_append_without_a_prepared_segment_waits_and_then_goes_on)
{
    static char value[600001];
    struct fq_uuid topic;
    struct fq_producer_open_answer opened;
    test_broker_prepare(&t);
    t.options.log_prepared_bytes = 0;
    t.options.log_segment_bytes = 16 << 20;
    test_broker_start(&t);
    connect_client(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &topic, &err), 0);
    raw_ring(&c, 16);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0);
    memset(value, 'v', sizeof value - 1);
    for (int32_t i = 0; i < 60; i++) {
        raw_produce(&c, opened.slot, 7, i, 1, value);
        struct fq_ack_entry ack = raw_ack(&c);
        cr_assert_eq(ack.status, 0);
        cr_assert_eq(ack.base_offset, i);
    }
    cr_assert_gt(raw_counter(&c, "segments_starved"), 0);
    raw_close(&c);
    test_broker_end(&t);
}

/* A batch of one large record, written and notified without a step of the broker: over shm its
 * bytes are there at once. Returns its length. */
static size_t post_large(struct raw_client *client, uint32_t slot, int64_t producer_id,
                         int32_t sequence)
{
    static char value[600001];
    memset(value, 'v', sizeof value - 1);
    uint8_t *source = fq_region_base(client->source);
    size_t length = raw_batch(source, fq_region_bytes(client->source), producer_id, sequence, 1,
                              fq_wall_ms(), value);
    struct fq_op ops[2] = {{.type = FQ_OP_WRITE,
                            .remote = client->window,
                            .remote_offset = client->written % client->ring.window_bytes,
                            .region = client->source,
                            .local = source,
                            .length = length},
                           {.type = FQ_OP_WRITE_NOTIFY, .imm = slot}};
    cr_assert_eq(fq_conn_post(client->conn, ops, 2), 2);
    client->written += length;
    return length;
}

Test(limits, producers_of_one_partition_take_turns_when_segments_are_scarce)
{
    struct raw_client greedy, modest;
    struct fq_uuid topic;
    struct fq_producer_open_answer of_greedy, of_modest;
    test_broker_prepare(&t);
    t.options.log_prepared_bytes = 0;
    t.options.log_segment_bytes = 1 << 20; /* room for one of the batches */
    test_broker_start(&t);
    connect_client(&greedy);
    connect_client(&modest);
    cr_assert_eq(raw_create_topic(&greedy, "t", 1, NULL, 0, &topic, &err), 0);
    raw_ring(&greedy, 16);
    raw_ring(&modest, 16);
    cr_assert_eq(raw_producer_open(&greedy, &topic, 0, 1, &of_greedy, &err), 0);
    cr_assert_eq(raw_producer_open(&modest, &topic, 0, 2, &of_modest, &err), 0);
    int32_t written[2] = {0, 0};
    size_t length = 0;
    while (written[0] < 5) {
        length = post_large(&greedy, of_greedy.slot, 1, written[0]++);
    }
    for (int i = 0; i < 40; i++) { /* a segment a step, which has room for one batch */
        (void)fq_broker_step(t.broker, fq_mono_us());
        while (raw_consumed(&greedy) >= length * (uint64_t)(written[0] - 4)) {
            (void)post_large(&greedy, of_greedy.slot, 1, written[0]++); /* always five in flight */
        }
        if (raw_consumed(&modest) >= length * (uint64_t)written[1]) {
            (void)post_large(&modest, of_modest.slot, 2, written[1]++); /* one at a time */
        }
    }
    cr_assert(written[0] - 5 > 8 && written[1] > 8, "%d and %d batches were taken", written[0] - 5,
              written[1] - 1);
    cr_assert_gt(raw_counter(&modest, "segments_starved"), 0);
    raw_close(&greedy);
    raw_close(&modest);
    test_broker_end(&t);
}

/* Producers that always have as much in flight as they may, with batches of their own size and
 * number, on one partition: while all have something to send, none gets less than half its share of
 * the bytes. */
#define MANY 8

struct producer_of_many {
    struct raw_client *client;
    uint32_t slot;
    int32_t written;
    size_t value_bytes, unacked_max;
};

static size_t post_one(struct producer_of_many *p, int64_t id)
{
    static char value[200001];
    memset(value, 'v', p->value_bytes);
    value[p->value_bytes] = '\0';
    uint8_t *source = fq_region_base(p->client->source);
    size_t length = raw_batch(source, fq_region_bytes(p->client->source), id, p->written++, 1,
                              fq_wall_ms(), value);
    struct fq_op ops[2] = {{.type = FQ_OP_WRITE,
                            .remote = p->client->window,
                            .remote_offset = p->client->written % p->client->ring.window_bytes,
                            .region = p->client->source,
                            .local = source,
                            .length = length},
                           {.type = FQ_OP_WRITE_NOTIFY, .imm = p->slot}};
    cr_assert_eq(fq_conn_post(p->client->conn, ops, 2), 2);
    p->client->written += length;
    return length;
}

Test(limits, producers_of_one_partition_get_equal_shares)
{
    struct raw_client clients[MANY];
    struct producer_of_many producers[MANY];
    static const size_t sizes[MANY] = {200000, 1000, 100000, 60000, 200, 150000, 30000, 1000};
    static const size_t in_flight[MANY] = {8, 12, 12, 12, 12, 1, 12, 12};
    struct fq_uuid topic;
    test_broker_prepare(&t);
    test_broker_start(&t);
    for (unsigned i = 0; i < MANY; i++) {
        struct fq_producer_open_answer opened;
        connect_client(&clients[i]);
        if (i == 0) {
            cr_assert_eq(raw_create_topic(&clients[0], "t", 1, NULL, 0, &topic, &err), 0);
        }
        raw_ring(&clients[i], 16);
        cr_assert_eq(raw_producer_open(&clients[i], &topic, 0, i + 1, &opened, &err), 0);
        producers[i] = (struct producer_of_many){.client = &clients[i],
                                                 .slot = opened.slot,
                                                 .value_bytes = sizes[i],
                                                 .unacked_max = in_flight[i]};
    }
    uint64_t taken[MANY] = {0}, total = 0;
    unsigned rounds = 0;
    while (rounds < 60) {
        bool is_full = true;
        for (unsigned i = 0; i < MANY; i++) { /* each fills its ring before the broker moves */
            uint64_t length = producers[i].value_bytes + 64; /* or a little more */
            while (clients[i].written - raw_consumed(&clients[i]) + length <=
                       producers[i].unacked_max * length &&
                   clients[i].written - raw_consumed(&clients[i]) + length < (3u << 20)) {
                (void)post_one(&producers[i], i + 1);
            }
            is_full &= clients[i].written > raw_consumed(&clients[i]);
        }
        cr_assert(is_full);
        (void)fq_broker_step(t.broker, fq_mono_us());
        rounds++;
    }
    for (unsigned i = 0; i < MANY; i++) {
        taken[i] = raw_consumed(&clients[i]);
        total += taken[i];
    }
    /* Of those that could fill a turn every time. */
    uint64_t least = UINT64_MAX, most = 0;
    for (unsigned i = 0; i < MANY; i++) {
        bool has_backlog = sizes[i] * in_flight[i] >= 300000;
        least = has_backlog && taken[i] < least ? taken[i] : least;
        most = taken[i] > most ? taken[i] : most;
        cr_assert_gt(taken[i], 0, "producer %u", i);
    }
    cr_log_info("least %llu, most %llu of %llu bytes", (unsigned long long)least,
                (unsigned long long)most, (unsigned long long)total);
    cr_assert_gt(2 * least, most, "%llu and %llu bytes", (unsigned long long)least,
                 (unsigned long long)most);
    for (unsigned i = 0; i < MANY; i++) {
        raw_close(&clients[i]);
    }
    test_broker_end(&t);
}

Test(handles, no_number_is_given_twice)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    struct fq_handles handles;
    static uint32_t live[100];
    static bool was_given[1 << 22];
    size_t count = 0;
    fq_prng_seed(&prng, seed);
    fq_handles_init(&handles, 100);
    cr_assert(!fq_handles_is_gone(&handles, 0));
    for (int i = 0; i < 5000; i++) {
        if (count < 100 && (count == 0 || fq_prng_below(&prng, 2) == 0)) {
            uint32_t handle = fq_handles_add(&handles, 0, &live[count]);
            uint32_t key = (handle & 0x7f) | (handle >> 16) << 7; /* at most 100 indices here */
            cr_assert_neq(handle, FQ_HANDLE_NONE);
            cr_assert(!was_given[key], "%08x twice, seed %llu", handle, (unsigned long long)seed);
            was_given[key] = true;
            live[count++] = handle;
        } else {
            size_t which = fq_prng_below(&prng, count);
            cr_assert(fq_handles_get(&handles, live[which]));
            fq_handles_remove(&handles, live[which]);
            cr_assert(!fq_handles_get(&handles, live[which]));
            cr_assert(fq_handles_is_gone(&handles, live[which]));
            live[which] = live[--count];
        }
    }
    while (count < 100) {
        live[count] = fq_handles_add(&handles, 0, &live[count]);
        count++;
    }
    cr_assert_eq(fq_handles_add(&handles, 0, live), FQ_HANDLE_NONE, "the limit");
    fq_handles_fini(&handles);
}

Test(mailbox, order_is_kept_when_the_ring_is_full)
{
    struct fq_wake wake;
    struct fq_mailbox box;
    uint32_t next = 0;
    cr_assert_eq(fq_wake_init(&wake), 0);
    cr_assert_eq(fq_mailbox_init(&box, &wake), 0);
    for (uint32_t i = 0; i < 5000; i++) {
        struct fq_task *task = fq_task_create(FQ_TASK_ANSWER);
        task->correlation = i;
        fq_mailbox_send(&box, task);
    }
    for (int round = 0; round < 100 && next < 4000; round++) {
        struct fq_task *task;
        while ((task = fq_mailbox_take(&box))) {
            cr_assert_eq(task->correlation, next++);
            fq_task_destroy(task);
        }
        cr_assert_eq(fq_mailbox_flush(&box), next + 1024 >= 5000);
    }
    fq_mailbox_fini(&box); /* with some still in it */
    fq_wake_fini(&wake);
}

Test(counters, every_counter_has_a_name_of_its_own)
{
    char names[FQ_COUNTERS][64];
    for (size_t i = 0; i < FQ_COUNTERS; i++) {
        cr_assert(fq_counter_name(i, names[i], sizeof names[i]));
        cr_assert_lt(strlen(names[i]), 63);
        for (size_t j = 0; j < i; j++) {
            cr_assert_str_neq(names[i], names[j]);
        }
    }
    static struct fq_counters set;
    fq_count_refusal(&set, FLASHQ_ERR_TIMESTAMP);
    fq_count_refusal(&set, FLASHQ_ERR_BUSY);
    cr_assert_eq(fq_counters_get(&set, FQ_COUNT_APPEND_REFUSED), 2);
    cr_assert_eq(fq_counters_get(&set, FQ_COUNTERS - 1), 1, "other");
}

Test(words, what_the_protocol_cannot_carry_is_cut_and_replaced)
{
    char buffer[FQ_WORDS_BYTES], text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[1] = '\n';
    struct fq_str words = fq_words(text, buffer);
    cr_assert_eq(words.length, FQ_WORDS_BYTES);
    cr_assert_eq(words.data[1], ' ');
}
