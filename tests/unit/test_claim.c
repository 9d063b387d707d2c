/* SPDX-License-Identifier: Apache-2.0 */
/* Values built in place (flashq_claim, _commit, _abort) and many records in one call (flashq_sendv), over shm
 * and tcp, with connections and brokers that come and go. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/random.h"
#include "live_broker.h"

static char transports[][8] = {"shm", "tcp"};

#define over_both(suite, name)                                                                     \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(char[8], transports, 2);                                        \
    }                                                                                              \
    ParameterizedTest(char (*transport)[8], suite, name, .timeout = 120)

static flashq_producer *open_producer(flashq_client *client, const char *topic)
{
    char text[512];
    flashq_producer *producer;
    int code = flashq_producer_open(client, topic, 30000, &producer, text, sizeof text);
    cr_assert_eq(code, 0, "%s", text);
    return producer;
}

static flashq_record record_to(int32_t partition)
{
    return (flashq_record){.struct_bytes = sizeof(flashq_record), .partition = partition,
                           .timestamp_ms = FLASHQ_TIMESTAMP_NOW};
}

static void *claim(flashq_producer *producer, int32_t partition, size_t bytes)
{
    flashq_record record = record_to(partition);
    void *value = NULL;
    int code = flashq_claim(producer, &record, bytes, 20000, &value);
    cr_assert_eq(code, 0, "%s", flashq_error_name(code));
    return value;
}

/* ---- a random history, and what must be read of it ---------------------------------------------- */

enum { PARTITIONS = 3, RECORDS = 6000, VALUE_MOST = 3000, BURST = 20 };

struct history {
    struct fq_prng prng;
    uint32_t seed_of[PARTITIONS][RECORDS];
    int count[PARTITIONS], total;
    int64_t offset[PARTITIONS][RECORDS];
    int reported;
};

/* Number `seed`'s value: its length and bytes follow from the seed alone. */
static size_t value_of(uint32_t seed, uint8_t *value)
{
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    size_t length = 4 + fq_prng_below(&prng, fq_prng_below(&prng, 4) ? 200 : VALUE_MOST - 3);
    memcpy(value, &seed, 4);
    memset(value + 4, (int)(seed & 0xff), length - 4);
    return length;
}

static uint32_t note(struct history *h, int32_t partition)
{
    uint32_t seed = (uint32_t)fq_prng_next(&h->prng);
    h->seed_of[partition][h->count[partition]++] = seed;
    h->total++;
    return seed;
}

static flashq_record next_record(struct history *h, int32_t partition, flashq_header *header)
{
    flashq_record record = record_to(partition);
    record.user = (void *)(intptr_t)h->count[partition];
    if (fq_prng_below(&h->prng, 2)) {
        record.key = "key";
        record.key_length = 3;
        *header = (flashq_header){.name = "h", .value = "value", .value_length = 5};
        record.headers = header;
        record.headers_count = 1;
    }
    return record;
}

static void one_claim(struct history *h, flashq_producer *producer, int32_t partition)
{
    flashq_header header;
    void *value;
    flashq_record record = next_record(h, partition, &header);
    if (fq_prng_below(&h->prng, 5) == 0) {
        cr_assert_eq(flashq_claim(producer, &record, 500, 30000, &value), 0);
        memset(value, 0xee, 500);
        cr_assert_eq(flashq_abort(producer), 0);
    }
    cr_assert_eq(flashq_claim(producer, &record, VALUE_MOST, 30000, &value), 0);
    size_t length = value_of(note(h, partition), value);
    if (fq_prng_below(&h->prng, 100) == 0) {
        (void)usleep(1000); /* the io thread drives meanwhile */
    }
    cr_assert_eq(flashq_commit(producer, length), 0);
}

static void one_sendv(struct history *h, flashq_producer *producer, int32_t partition)
{
    static uint8_t values[BURST][VALUE_MOST];
    flashq_record records[BURST];
    flashq_header headers[BURST];
    size_t count = 1 + fq_prng_below(&h->prng, BURST);
    for (size_t i = 0; i < count; i++) {
        int32_t to = fq_prng_below(&h->prng, 4) ? partition : (int32_t)fq_prng_below(&h->prng, PARTITIONS);
        records[i] = next_record(h, to, &headers[i]);
        records[i].value = values[i];
        records[i].value_length = value_of(note(h, to), values[i]);
    }
    cr_assert_eq(flashq_sendv(producer, records, count, 30000), (int64_t)count);
}

static void one_send(struct history *h, flashq_producer *producer, int32_t partition)
{
    static uint8_t value[VALUE_MOST];
    flashq_header header;
    flashq_record record = next_record(h, partition, &header);
    record.value = value;
    record.value_length = value_of(note(h, partition), value);
    cr_assert_eq(flashq_send(producer, &record, 30000), 0);
}

static void take_reports(struct history *h, flashq_producer *producer)
{
    flashq_report reports[64];
    int count;
    while ((count = flashq_producer_poll(producer, reports, 64, 0)) > 0) {
        for (int i = 0; i < count; i++, h->reported++) {
            cr_assert_eq(reports[i].status, 0, "%s", flashq_error_name(reports[i].status));
            cr_assert_eq(reports[i].persisted, FLASHQ_PERSISTED_YES);
            h->offset[reports[i].partition][(intptr_t)reports[i].user] = reports[i].offset;
        }
    }
}

static void make_history(struct history *h, flashq_producer *producer, int records)
{
    for (int until = h->total + records; h->total < until - BURST;) {
        int32_t partition = (int32_t)fq_prng_below(&h->prng, PARTITIONS);
        switch (fq_prng_below(&h->prng, 4)) {
        case 0: one_sendv(h, producer, partition); break;
        case 1: one_send(h, producer, partition); break;
        default: one_claim(h, producer, partition); break;
        }
        if (fq_prng_below(&h->prng, 30) == 0) {
            take_reports(h, producer);
        }
    }
}

/* Everything once, in order, where it was acknowledged, with its own bytes; nothing else. */
static void verify(struct live_broker *b, const char *transport, const struct history *h)
{
    static uint8_t value[VALUE_MOST];
    char text[512];
    flashq_consumer *consumer;
    flashq_client *client = live_client(b, transport, NULL);
    int next[PARTITIONS] = {0}, total = 0;
    cr_assert_eq(h->reported, h->total);
    cr_assert_eq(flashq_consumer_open(client, &consumer, text, sizeof text), 0);
    cr_assert_eq(flashq_consumer_assign(consumer, "t", -1, 0, 10000, text, sizeof text), 0, "%s", text);
    while (total < h->total) {
        const flashq_message *messages[100];
        int count = flashq_consumer_poll(consumer, messages, 100, 10000);
        cr_assert_gt(count, 0, "only %d of %d records are there", total, h->total);
        for (int i = 0; i < count; i++, total++) {
            const flashq_message *m = messages[i];
            int at = next[m->partition]++;
            cr_assert_eq(m->status, 0);
            cr_assert_lt(at, h->count[m->partition], "nothing was invented");
            size_t length = value_of(h->seed_of[m->partition][at], value);
            cr_assert_eq(m->value_length, length, "record %d of partition %d", at, m->partition);
            cr_assert_arr_eq(m->value, value, length);
            cr_assert_eq(m->offset, h->offset[m->partition][at], "where it was acknowledged");
            cr_assert_eq(m->headers_count, m->key ? 1 : 0);
        }
    }
    const flashq_message *more;
    cr_assert_eq(flashq_consumer_poll(consumer, &more, 1, 50), 0, "nothing was invented");
    (void)flashq_client_close(client, 1000);
}

static struct history *new_history(const char *what)
{
    struct history *h = calloc(1, sizeof *h);
    uint64_t seed = fq_random_u64();
    cr_assert_not_null(h);
    fq_prng_seed(&h->prng, seed);
    (void)printf("# %s: seed %llu\n", what, (unsigned long long)seed);
    return h;
}

over_both(claim, whatever_way_records_go_each_is_stored_once_in_order)
{
    struct live_broker b;
    live_broker_begin(&b);
    struct history *h = new_history(*transport);
    flashq_client *client = live_client(&b, *transport, "reports", "all", NULL);
    live_topic(client, "t", PARTITIONS);
    flashq_producer *producer = open_producer(client, "t");
    make_history(h, producer, RECORDS);
    cr_assert_eq(flashq_flush(producer, 20000), 0);
    take_reports(h, producer);
    (void)flashq_client_close(client, 1000);
    verify(&b, *transport, h);
    free(h);
    live_broker_end(&b);
}

struct fault_case {
    char transport[8];
    struct fq_fault_plan plan;
};
static struct fault_case fault_cases[] = {
    {"shm", {.drop = 50000}},
    {"tcp", {.drop = 50000}},
    {"shm", {.late_op = 100000, .torn_write = 100000, .delay_event = 100000}},
    {"shm", {.drop = 20000, .late_op = 50000, .torn_write = 50000, .delay_event = 50000,
             .key_refused = 10000}}};

ParameterizedTestParameters(claim, faults_lose_and_repeat_nothing)
{
    return cr_make_param_array(struct fault_case, fault_cases,
                               sizeof fault_cases / sizeof fault_cases[0]);
}

/* cases 27, 28, with records built in place. */
ParameterizedTest(struct fault_case *c, claim, faults_lose_and_repeat_nothing, .timeout = 120)
{
    struct live_broker b;
    live_broker_begin(&b);
    struct history *h = new_history(c->transport);
    struct faulty_client faulty = {.plan = c->plan};
    faulty.plan.seed = fq_prng_next(&h->prng);
    flashq_client *plain = live_client(&b, c->transport, NULL);
    live_topic(plain, "t", PARTITIONS);
    (void)flashq_client_close(plain, 1000);
    live_faulty_client(&b, c->transport, &faulty, "reports", "all", "reconnect.backoff.ms", "1",
                       "reconnect.backoff.max.ms", "5", "batch.max.bytes", "8192", NULL);
    flashq_producer *producer = open_producer(faulty.client, "t");
    make_history(h, producer, RECORDS);
    cr_assert_eq(flashq_flush(producer, 60000), 0);
    take_reports(h, producer);
    (void)flashq_client_close(faulty.client, 1000);
    verify(&b, c->transport, h);
    free(h);
    live_broker_end(&b);
}

/* Ten lives of the broker, killed under load and at any point of a claim. */
over_both(claim, brokers_come_and_go)
{
    struct live_broker b;
    live_broker_begin(&b);
    struct history *h = new_history(*transport);
    flashq_client *client = live_client(&b, *transport, "reports", "all", "reconnect.backoff.ms", "1",
                                        "reconnect.backoff.max.ms", "5", NULL);
    live_topic(client, "t", PARTITIONS);
    flashq_producer *producer = open_producer(client, "t");
    for (int life = 0; life < 10; life++) {
        make_history(h, producer, RECORDS / 10);
        int32_t partition = life % PARTITIONS;
        flashq_record record = record_to(partition);
        void *value;
        record.user = (void *)(intptr_t)h->count[partition];
        cr_assert_eq(flashq_claim(producer, &record, VALUE_MOST, 30000, &value), 0);
        uint32_t seed = note(h, partition);
        if (life % 2) {
            live_broker_kill(&b);
        } else {
            live_broker_stop(&b);
        }
        (void)usleep(3000);
        size_t length = value_of(seed, value); /* the memory is still there */
        if (life % 3 == 0) {
            live_broker_start_beside(&b, client);
            (void)usleep(5000);
            cr_assert_eq(memcmp(value, &seed, 4), 0);
        }
        cr_assert_eq(flashq_commit(producer, length), 0);
        if (life % 3 != 0) {
            live_broker_start_beside(&b, client);
        }
    }
    cr_assert_eq(flashq_flush(producer, 30000), 0);
    take_reports(h, producer);
    (void)flashq_client_close(client, 1000);
    verify(&b, *transport, h);
    free(h);
    live_broker_end(&b);
}

/* ---- the rules of a claim ------------------------------------------------------------------------- */

over_both(claim, is_one_at_a_time_and_others_are_told)
{
    struct live_broker b;
    char text[256];
    flashq_report report;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t"), *other = open_producer(client, "t");
    flashq_record record = record_to(0);
    void *value, *second;
    cr_assert_eq(flashq_commit(producer, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_abort(producer), FLASHQ_ERR_INVALID);
    value = claim(producer, 0, 10);
    record.value = "v";
    record.value_length = 1;
    cr_assert_eq(flashq_send(producer, &record, 1000), FLASHQ_ERR_BUSY);
    cr_assert_eq(flashq_sendv(producer, &record, 1, 1000), FLASHQ_ERR_BUSY);
    cr_assert_eq(flashq_send_sync(producer, &record, 1000, &report), FLASHQ_ERR_BUSY);
    cr_assert_eq(flashq_flush(producer, 1000), FLASHQ_ERR_BUSY);
    cr_assert_eq(flashq_producer_last_error(producer, text, sizeof text), FLASHQ_ERR_BUSY);
    cr_assert(strstr(text, "flashq_commit"), "%s", text);
    cr_assert_eq(flashq_claim(producer, &record, 1, 0, &second), FLASHQ_ERR_INVALID,
                 "a claimed record has no value of its own");
    record.value = NULL;
    record.value_length = 0;
    cr_assert_eq(flashq_claim(producer, &record, 1, 0, &second), FLASHQ_ERR_BUSY);
    cr_assert_eq(flashq_producer_poll(producer, &report, 1, 0), 0, "polling goes on");
    cr_assert_eq(flashq_commit(producer, 11), FLASHQ_ERR_INVALID, "more than was claimed");
    memcpy(value, "0123456789", 10);
    cr_assert_eq(flashq_commit(producer, 10), 0, "the claim was still open");
    cr_assert_eq(flashq_flush(producer, 10000), 0);
    cr_assert_eq(live_send(other, 0, "of another producer"), 1);
    (void)claim(producer, 0, 10);
    cr_assert_eq(flashq_commit(producer, 0), 0, "an empty value, not null");
    cr_assert_eq(live_send(producer, 0, "after"), 3);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* Others of the same ring wait while the application writes: asleep (case 41), and not for longer than that. */
Test(claim, others_wait_for_its_place_without_spinning, .timeout = 60)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, "shm", "linger.ms", "0", NULL);
    live_topic(client, "t", 2);
    flashq_producer *producer = open_producer(client, "t"), *other = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    (void)live_send(other, 1, "first");
    (void)claim(producer, 0, 100);
    flashq_record record = record_to(1);
    record.value = "waits";
    record.value_length = 5;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(flashq_send(other, &record, 1000), 0);
    }
    cr_assert_eq(flashq_flush(other, 50), FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(fq_engine_enter(client->engine), 0);
    int64_t due_us = fq_engine_next_deadline_us(client->engine);
    cr_assert_gt(due_us, fq_mono_us() + 1000, "nothing can be done before the end of the claim");
    fq_engine_leave(client->engine);
    cr_assert_eq(flashq_abort(producer), 0);
    cr_assert_eq(flashq_flush(other, 10000), 0);
    cr_assert_eq(live_send(other, 1, "last"), 4);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* case 32: at the limit and one beyond; what was committed counts, not what was claimed. */
over_both(claim, has_the_limits_of_a_record)
{
    enum { LIMIT = 65536 };
    struct live_broker b;
    char text[512];
    void *value;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    flashq_pair limit = {"message.max.bytes", "65536"};
    cr_assert_eq(flashq_topic_create(client, "t", 1, 0, &limit, 1, 10000, text, sizeof text), 0);
    flashq_producer *producer = open_producer(client, "t");
    flashq_record record = record_to(0);
    record.key = "k";
    record.key_length = 1;
    cr_assert_eq(flashq_claim(producer, &record, LIMIT, 0, &value), FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(flashq_claim(producer, &record, SIZE_MAX, 0, &value), FLASHQ_ERR_TOO_LARGE);
    for (size_t length = LIMIT - 3; length < LIMIT; length++) {
        cr_assert_eq(flashq_claim(producer, &record, LIMIT - 1, 10000, &value), 0);
        memset(value, 'x', length);
        cr_assert_eq(flashq_commit(producer, length), 0);
    }
    record.partition = 1;
    cr_assert_eq(flashq_claim(producer, &record, 1, 0, &value), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(flashq_flush(producer, 10000), 0);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    cr_assert_eq(stats.records_acked, 3);
    cr_assert_eq(stats.bytes_sent, 3 * LIMIT - 3);
    cr_assert_eq(stats.queue_bytes, 0);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* cases 39, 43: with the broker standing still a claim waits its time for room, and closing does not. */
over_both(claim, waits_for_room_until_its_deadline)
{
    struct live_broker b;
    int64_t queued = 0, undelivered = 0;
    int code;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "queue.bytes", "1MiB", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    live_broker_halt(&b);
    flashq_record record = record_to(0);
    void *value;
    while ((code = flashq_claim(producer, &record, 100000, 50, &value)) == 0) {
        memset(value, 'x', 100000);
        cr_assert_eq(flashq_commit(producer, 100000), 0);
        cr_assert_lt(++queued, 200, "queue.bytes bounds it");
    }
    cr_assert_eq(code, FLASHQ_ERR_AGAIN);
    cr_assert_gt(queued, 3);
    int64_t begun = fq_mono_us();
    cr_assert_eq(flashq_claim(producer, &record, 100000, 100, &value), FLASHQ_ERR_AGAIN);
    cr_assert_geq(fq_mono_us() - begun, 100000);
    cr_assert_eq(flashq_producer_close(producer, 100, &undelivered), 0);
    cr_assert_eq(undelivered, queued);
    (void)flashq_client_close(client, 100);
    live_broker_go_on(&b);
    live_broker_end(&b);
}

over_both(claim, is_given_up_by_closing)
{
    struct live_broker b;
    int64_t undelivered = -1;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t"), *other = open_producer(client, "t");
    flashq_record record = record_to(0);
    record.value = "before";
    record.value_length = 6;
    cr_assert_eq(flashq_send(producer, &record, 1000), 0);
    (void)claim(producer, 0, 1000);
    cr_assert_eq(flashq_producer_close(producer, 10000, &undelivered), 0);
    cr_assert_eq(undelivered, 0, "what came before it was delivered");
    (void)claim(other, 0, 1000);
    int64_t begun = fq_mono_us();
    cr_assert_eq(flashq_client_close(client, 10000), 0);
    cr_assert_lt(fq_mono_us() - begun, 9000000, "nobody waited for the claim");
    client = live_client(&b, *transport, NULL);
    producer = open_producer(client, "t");
    cr_assert_eq(live_send(producer, 0, "after"), 1);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(claim, fails_with_its_topic)
{
    struct live_broker b;
    char text[512];
    flashq_report reports[4];
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "reports", "all", "linger.ms", "60s", NULL);
    flashq_client *admin = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    (void)flashq_producer_poll(producer, reports, 4, 1000);
    flashq_record record = record_to(0);
    record.value = "gathered";
    record.value_length = 8;
    cr_assert_eq(flashq_send(producer, &record, 1000), 0);
    memset(claim(producer, 0, 100), 'x', 100);
    cr_assert_eq(flashq_topic_delete(admin, "t", 10000, text, sizeof text), 0, "%s", text);
    live_topic(admin, "t", 1);
    live_broker_stop(&b); /* when it comes back, the producer looks for its topic */
    live_broker_start_beside(&b, client);
    int count = flashq_producer_poll(producer, reports, 4, 20000);
    cr_assert_eq(count, 1);
    cr_assert_eq(reports[0].status, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(reports[0].persisted, FLASHQ_PERSISTED_NO);
    cr_assert_eq(flashq_commit(producer, 100), FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(flashq_commit(producer, 100), FLASHQ_ERR_INVALID, "it is over");
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    cr_assert_eq(stats.records_failed, 1);
    cr_assert_eq(stats.queue_bytes, 0);
    (void)flashq_client_close(client, 1000);
    (void)flashq_client_close(admin, 1000);
    live_broker_end(&b);
}

/* case 42: the child may free; the parent's claim is as it was. */
over_both(claim, survives_a_fork)
{
    struct live_broker b;
    int status;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    char *value = claim(producer, 0, 5);
    memcpy(value, "right", 5);
    pid_t child = fork();
    if (child == 0) {
        flashq_record record = record_to(0);
        void *room;
        bool is_forked = flashq_commit(producer, 5) == FLASHQ_ERR_FORKED &&
                         flashq_abort(producer) == FLASHQ_ERR_FORKED &&
                         flashq_sendv(producer, &record, 1, 100) == FLASHQ_ERR_FORKED &&
                         flashq_claim(producer, &record, 5, 100, &room) == FLASHQ_ERR_FORKED;
        (void)flashq_producer_close(producer, 100, NULL);
        (void)flashq_client_close(client, 100);
        _exit(is_forked ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(memcmp(value, "right", 5), 0);
    cr_assert_eq(flashq_commit(producer, 5), 0);
    cr_assert_eq(live_send(producer, 0, "after"), 1);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* ---- sendv ---------------------------------------------------------------------------------------- */

over_both(sendv, takes_records_up_to_the_first_that_is_refused)
{
    struct live_broker b;
    char text[512];
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 2);
    flashq_producer *producer = open_producer(client, "t");
    flashq_record records[100];
    for (int i = 0; i < 100; i++) {
        records[i] = record_to(i % 2);
        records[i].value = "value";
        records[i].value_length = 5;
    }
    cr_assert_eq(flashq_sendv(producer, records, 100, 10000), 100);
    cr_assert_eq(flashq_sendv(producer, records, 0, 0), 0);
    cr_assert_eq(flashq_sendv(producer, NULL, 0, 0), 0);
    cr_assert_eq(flashq_sendv(producer, NULL, 1, 0), FLASHQ_ERR_INVALID);
    records[7].partition = 2;
    cr_assert_eq(flashq_sendv(producer, records, 100, 10000), 7);
    cr_assert_eq(flashq_producer_last_error(producer, text, sizeof text), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(flashq_sendv(producer, records + 7, 93, 10000), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(flashq_flush(producer, 10000), 0);
    cr_assert_eq(live_send(producer, 0, "after"), 50 + 4);
    cr_assert_eq(live_send(producer, 1, "after"), 50 + 3);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(sendv, takes_what_the_queue_has_room_for)
{
    enum { COUNT = 100 };
    static char value[50000];
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "queue.bytes", "1MiB", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    live_broker_halt(&b);
    flashq_record records[COUNT];
    for (int i = 0; i < COUNT; i++) {
        records[i] = record_to(0);
        records[i].value = value;
        records[i].value_length = sizeof value;
    }
    int64_t begun = fq_mono_us(), taken = flashq_sendv(producer, records, COUNT, 100);
    cr_assert_geq(fq_mono_us() - begun, 100000);
    cr_assert_gt(taken, 3);
    cr_assert_lt(taken, COUNT);
    cr_assert_eq(flashq_producer_last_error(producer, NULL, 0), FLASHQ_ERR_AGAIN);
    cr_assert_eq(flashq_sendv(producer, records, COUNT, 0), FLASHQ_ERR_AGAIN);
    live_broker_go_on(&b);
    for (int64_t more; taken < COUNT; taken += more) {
        more = flashq_sendv(producer, records + taken, (size_t)(COUNT - taken), 20000);
        cr_assert_gt(more, 0);
    }
    cr_assert_eq(live_send(producer, 0, "after"), 1 + COUNT);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(told, that_the_connection_went_and_came_back)
{
    struct live_broker b;
    flashq_log_entry entries[16];
    bool was_lost = false, is_back = false;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "log.level", "info", "reconnect.backoff.ms", "1",
                                        NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "before");
    live_broker_stop(&b);
    live_broker_start_beside(&b, client);
    (void)live_send(producer, 0, "after");
    for (int count; (count = flashq_client_log_poll(client, entries, 16)) > 0;) {
        for (int i = 0; i < count; i++) {
            is_back |= was_lost && strstr(entries[i].text, "connected to") != NULL;
            was_lost |= entries[i].level == FLASHQ_LOG_WARN && strstr(entries[i].text, "lost") != NULL;
        }
    }
    cr_assert(was_lost && is_back);
    cr_assert_eq(flashq_client_log_poll(client, NULL, 1), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_client_log_poll(NULL, entries, 1), FLASHQ_ERR_INVALID);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

Test(claim, null_handles_are_refused)
{
    void *value;
    flashq_record record = record_to(0);
    cr_assert_eq(flashq_claim(NULL, &record, 1, 0, &value), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_commit(NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_abort(NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_sendv(NULL, &record, 1, 0), FLASHQ_ERR_INVALID);
}
