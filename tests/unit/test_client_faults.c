/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client and broker over fabrics that misbehave by seed: whatever happens to connections, every record is
 * stored once, in order, at the offset that was acknowledged.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "live_broker.h"

enum { PARTITIONS = 3, RECORDS = 8000 };

struct fault_case {
    char transport[12];
    struct fq_fault_plan plan;   /* the client's */
    struct fq_fault_plan broker; /* the broker's */
};
static struct fault_case cases[] = {
    {.transport = "shm", .plan = {.drop = 50000}},
    {.transport = "tcp", .plan = {.drop = 50000}},
    {.transport = "shm", .plan = {.late_op = 100000, .torn_write = 100000, .delay_event = 100000}},
    {.transport = "tcp", .plan = {.late_op = 100000, .torn_write = 100000, .delay_event = 100000}},
    {.transport = "shm", .plan = {.drop = 20000, .late_op = 50000, .torn_write = 50000, .delay_event = 50000,
             .key_refused = 10000}},
    {.transport = "tcp", .plan = {.drop = 20000, .late_op = 50000, .torn_write = 50000, .delay_event = 50000,
             .key_refused = 10000}}};

struct sent {
    int64_t offset[PARTITIONS][RECORDS];
    int count[PARTITIONS];
};

static void take_reports(flashq_producer *producer, struct sent *sent, int *seen, int timeout_ms)
{
    flashq_report reports[64];
    int count;
    while ((count = flashq_producer_poll(producer, reports, 64, timeout_ms)) > 0) {
        for (int i = 0; i < count; i++) {
            int index = (int)(intptr_t)reports[i].user;
            cr_assert_eq(reports[i].status, 0, "%s", flashq_error_name(reports[i].status));
            sent->offset[reports[i].partition][index] = reports[i].offset;
            (*seen)++;
        }
    }
}

/* Reads a partition with a faultless client and compares it with what was acknowledged. */
static void verify(struct live_broker *b, const char *transport, const struct sent *sent)
{
    char text[512];
    flashq_consumer *consumer;
    flashq_client *client = live_client(b, transport, NULL);
    int next[PARTITIONS] = {0}, total = 0;
    cr_assert_eq(flashq_consumer_open(client, &consumer, text, sizeof text), 0);
    cr_assert_eq(flashq_consumer_assign(consumer, "t", -1, 0, 10000, text, sizeof text), 0, "%s", text);
    while (total < RECORDS) {
        const flashq_message *messages[100];
        int count = flashq_consumer_poll(consumer, messages, 100, 10000);
        cr_assert_gt(count, 0, "only %d of %d records are there", total, RECORDS);
        for (int i = 0; i < count; i++, total++) {
            const flashq_message *m = messages[i];
            int index;
            cr_assert_eq(m->status, 0);
            cr_assert_eq(m->value_length, sizeof index);
            memcpy(&index, m->value, sizeof index);
            cr_assert_eq(index, next[m->partition], "order, no gap, no duplicate");
            cr_assert_eq(m->offset, sent->offset[m->partition][index], "where it was acknowledged");
            next[m->partition]++;
        }
    }
    const flashq_message *more;
    cr_assert_eq(flashq_consumer_poll(consumer, &more, 1, 50), 0, "nothing was invented");
    (void)flashq_client_close(client, 1000);
}

ParameterizedTestParameters(faults, every_record_once_at_its_acknowledged_offset)
{
    return cr_make_param_array(struct fault_case, cases, sizeof cases / sizeof cases[0]);
}

/* cases 27, 28: cut off between write and ack, again and again. */
ParameterizedTest(struct fault_case *c, faults, every_record_once_at_its_acknowledged_offset,
                  .timeout = 120)
{
    struct live_broker b;
    char text[512];
    static struct sent sent;
    struct faulty_client faulty = {.plan = c->plan};
    flashq_producer *producer;
    int seen = 0;
    faulty.plan.seed = fq_random_u64();
    (void)printf("# %s fault seed %llu\n", c->transport, (unsigned long long)faulty.plan.seed);
    live_broker_begin(&b);
    flashq_client *plain = live_client(&b, c->transport, NULL);
    live_topic(plain, "t", PARTITIONS);
    (void)flashq_client_close(plain, 1000);
    live_faulty_client(&b, c->transport, &faulty, "reports", "all", "reconnect.backoff.ms", "1",
                       "reconnect.backoff.max.ms", "5", "batch.max.bytes", "1024", NULL);
    cr_assert_eq(flashq_producer_open(faulty.client, "t", 30000, &producer, text, sizeof text), 0, "%s",
                 text);
    for (int i = 0; i < RECORDS; i++) {
        int32_t partition = i % PARTITIONS;
        int index = sent.count[partition]++;
        flashq_record record = {.struct_bytes = sizeof record, .partition = partition,
                                .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .value = &index,
                                .value_length = sizeof index, .user = (void *)(intptr_t)index};
        cr_assert_eq(flashq_send(producer, &record, 30000), 0);
        if (i % 50 == 0) {
            take_reports(producer, &sent, &seen, 0);
        }
    }
    cr_assert_eq(flashq_flush(producer, 60000), 0, "%s",
                 (flashq_producer_last_error(producer, text, sizeof text), text));
    take_reports(producer, &sent, &seen, 0);
    cr_assert_eq(seen, RECORDS);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    (void)flashq_producer_get_stats(producer, &stats);
    struct fq_fault_counts counts;
    fq_fabric_faulty_counts(faulty.fabric, &counts);
    (void)printf("# %llu batches, %llu drops, %llu late, %llu torn, %llu refused; reconnects %llu, "
                 "batches sent again %llu, records known before %llu\n",
                 (unsigned long long)stats.batches_sent, (unsigned long long)counts.dropped,
                 (unsigned long long)counts.late, (unsigned long long)counts.torn,
                 (unsigned long long)counts.refused, (unsigned long long)stats.reconnects, (unsigned long long)stats.batches_resent,
                 (unsigned long long)stats.records_duplicate);
    (void)flashq_client_close(faulty.client, 1000);
    verify(&b, c->transport, &sent);
    live_broker_end(&b);
}

#define HARMLESS {.late_op = 100000, .torn_write = 100000, .delay_event = 100000}
#define BREAKING                                                                                                \
    {.drop = 10000, .late_op = 50000, .torn_write = 50000, .delay_event = 50000, .key_refused = 2000,           \
     .borrows = true}
static struct fault_case reading[] = {
    {"shm", {.drop = 50000}, {0}},      {"tcp", {.drop = 50000}, {0}},
    {"shm", HARMLESS, {0}},             {"tcp", HARMLESS, {0}},
    {"shm", BREAKING, {0}},             {"tcp", BREAKING, {0}},
    {"shm", {0}, BREAKING},             {"tcp", {0}, BREAKING},
    {"shm+push", {.drop = 50000}, {0}}, {"tcp+push", {.drop = 50000}, {0}},
    {"shm+push", HARMLESS, {0}},        {"tcp+push", HARMLESS, {0}},
    {"shm+push", {0}, HARMLESS},        {"tcp+push", {0}, HARMLESS},
    {"shm+push", {0}, {.drop = 20000}}, {"tcp+push", {0}, {.drop = 20000}},
    {"shm+push", BREAKING, BREAKING},   {"tcp+push", BREAKING, BREAKING}};

ParameterizedTestParameters(faults, a_consumer_gets_every_record_once_and_in_order)
{
    return cr_make_param_array(struct fault_case, reading, sizeof reading / sizeof reading[0]);
}

ParameterizedTest(struct fault_case *c, faults, a_consumer_gets_every_record_once_and_in_order,
                  .timeout = 120)
{
    struct live_broker b;
    char text[512];
    struct faulty_client faulty = {.plan = c->plan};
    flashq_producer *producer;
    flashq_consumer *consumer;
    int next = 0;
    struct fq_fault_plan none = {.seed = fq_random_u64()};
    faulty.plan.seed = none.seed;
    (void)printf("# %s fault seed %llu\n", c->transport, (unsigned long long)faulty.plan.seed);
    live_broker_prepare(&b);
    b.t.faults = &none;
    live_broker_start(&b);
    flashq_client *plain = live_client(&b, c->transport, "batch.max.bytes", "1024", "reconnect.backoff.ms", "1",
                                       "reconnect.backoff.max.ms", "5", NULL);
    live_topic(plain, "t", 1);
    live_broker_halt(&b);
    for (size_t i = 0; i < 2; i++) {
        fq_fabric_faulty_set_plan(b.t.faulty[i], &c->broker);
    }
    live_broker_go_on(&b);
    cr_assert_eq(flashq_producer_open(plain, "t", 10000, &producer, text, sizeof text), 0, "%s", text);
    live_faulty_client(&b, c->transport, &faulty, "reconnect.backoff.ms", "1",
                       "reconnect.backoff.max.ms", "5", "fetch.max.bytes", "4096", NULL);
    cr_assert_eq(flashq_consumer_open(faulty.client, &consumer, text, sizeof text), 0);
    cr_assert_eq(flashq_consumer_assign(consumer, "t", 0, 0, 30000, text, sizeof text), 0, "%s", text);
    for (int i = 0; i < RECORDS; i++) {
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                                .value = &i, .value_length = sizeof i};
        cr_assert_eq(flashq_send(producer, &record, 10000), 0);
    }
    while (next < RECORDS) {
        const flashq_message *messages[100];
        int count = flashq_consumer_poll(consumer, messages, 100, 30000);
        cr_assert_gt(count, 0, "stuck at %d: %s", next,
                     (flashq_consumer_last_error(consumer, text, sizeof text), text));
        for (int i = 0; i < count; i++, next++) {
            int index;
            cr_assert_eq(messages[i]->status, 0, "%s", flashq_error_name(messages[i]->status));
            memcpy(&index, messages[i]->value, sizeof index);
            cr_assert_eq(index, next);
            cr_assert_eq(messages[i]->offset, next);
        }
    }
    (void)flashq_client_close(faulty.client, 1000);
    (void)flashq_client_close(plain, 1000);
    live_broker_end(&b);
}

ParameterizedTestParameters(faults, no_call_ends_because_a_connection_did)
{
    return cr_make_param_array(struct fault_case, cases, 2);
}

/* Every request meets a connection that breaks as it is sent, now and then. */
ParameterizedTest(struct fault_case *c, faults, no_call_ends_because_a_connection_did, .timeout = 120)
{
    struct live_broker b;
    char text[512];
    struct faulty_client faulty = {.plan = {.drop = 200000}};
    struct fq_fault_counts counts;
    faulty.plan.seed = fq_random_u64();
    (void)printf("# %s fault seed %llu\n", c->transport, (unsigned long long)faulty.plan.seed);
    live_broker_begin(&b);
    flashq_client *plain = live_client(&b, c->transport, NULL);
    live_topic(plain, "t", 2);
    (void)flashq_client_close(plain, 1000);
    live_faulty_client(&b, c->transport, &faulty, "reconnect.backoff.ms", "1",
                       "reconnect.backoff.max.ms", "5", NULL);
    for (int i = 0; i < 200; i++) {
        flashq_producer *producer;
        flashq_topic_info topic = {.struct_bytes = sizeof topic};
        flashq_partition_info *partitions;
        size_t count;
        cr_assert_eq(flashq_producer_open(faulty.client, "t", 30000, &producer, text, sizeof text), 0,
                     "%s", text);
        (void)flashq_producer_close(producer, 0, NULL);
        cr_assert_eq(flashq_topic_describe(faulty.client, "t", 30000, &topic, &partitions, &count, text,
                                           sizeof text),
                     0, "%s", text);
        cr_assert_eq(count, 2);
        flashq_free(partitions);
    }
    fq_fabric_faulty_counts(faulty.fabric, &counts);
    cr_assert_gt(counts.dropped, 0);
    (void)flashq_client_close(faulty.client, 1000);
    live_broker_end(&b);
}
