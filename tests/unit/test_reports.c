/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a delivery report says (status, persisted, duplicate, offset), for each way a record can go and each thing that
 * can become of it, against a broker that does as it is told.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_broker.h"
#include "flashq/flashq.h"
#include "live_broker.h"

enum how { BY_SEND, BY_SEND_SYNC, BY_SENDV, BY_CLAIM, HOWS };
enum then { STAYS, OPENS_ONCE, CUT, STOPPED, STOPPED_BEFORE }; /* what the broker does after it got the record */

struct row {
    char what[56];
    char acks[8], timeout[8];
    enum fake_lie first;
    int first_status;       /* of FAKE_REFUSING */
    enum then then;
    enum fake_lie second;   /* from then on */
    int second_status;
    int status, persisted, duplicate;
    int64_t offset;
};

#define OK(p, dup, off) .status = 0, .persisted = FLASHQ_PERSISTED_##p, .duplicate = dup, .offset = off
#define FAILS(code, p) .status = FLASHQ_ERR_##code, .persisted = FLASHQ_PERSISTED_##p, .offset = -1
#define REFUSES(code) FAKE_REFUSING, FLASHQ_ERR_##code

static struct row rows[] = {
    {"acknowledged, all", "all", "1m", FAKE_HONEST, 0, STAYS, FAKE_HONEST, 0, OK(YES, 0, 0)},
    {"acknowledged, leader", "leader", "1m", FAKE_HONEST, 0, STAYS, FAKE_HONEST, 0, OK(YES, 0, 0)},
    {"nobody is asked", "none", "1m", FAKE_HONEST, 0, STAYS, FAKE_HONEST, 0, OK(MAYBE, 0, -1)},
    {"nobody is asked, nobody answers", "none", "1m", FAKE_SILENT, 0, CUT, FAKE_SILENT, 0, OK(MAYBE, 0, -1)},
    {"a duplicate at once", "all", "1m", FAKE_DUPLICATE, 0, STAYS, FAKE_HONEST, 0,
     OK(YES, 1, FAKE_DUPLICATE_OFFSET)},
    {"lost before the answer, was stored", "all", "1m", FAKE_SILENT, 0, CUT, FAKE_DUPLICATE, 0,
     OK(YES, 1, FAKE_DUPLICATE_OFFSET)},
    {"lost before the answer, was not stored", "leader", "1m", FAKE_SILENT, 0, CUT, FAKE_HONEST, 0, OK(YES, 0, 1)},
    {"refused for what it is", "all", "1m", REFUSES(TOO_LARGE), STAYS, FAKE_HONEST, 0, FAILS(TOO_LARGE, NO)},
    {"refused for its time", "leader", "1m", REFUSES(TIMESTAMP), STAYS, FAKE_HONEST, 0, FAILS(TIMESTAMP, NO)},
    {"refused before anybody looked", "all", "1m", REFUSES(OFFLINE), STAYS, FAKE_HONEST, 0, FAILS(OFFLINE, NO)},
    {"lost, then refused before anybody looked", "all", "1m", FAKE_SILENT, 0, CUT, REFUSES(OFFLINE),
     FAILS(OFFLINE, MAYBE)},
    {"lost, then refused for what it is", "all", "1m", FAKE_SILENT, 0, CUT, REFUSES(TOO_LARGE),
     FAILS(TOO_LARGE, NO)},
    {"the broker does not know", "all", "1m", REFUSES(MAYBE_PERSISTED), STAYS, FAKE_HONEST, 0,
     FAILS(MAYBE_PERSISTED, MAYBE)},
    {"busy, then not", "all", "1m", REFUSES(BUSY), STAYS, FAKE_HONEST, 0, OK(YES, 0, 1)},
    {"busy to the end of its time", "all", "500ms", REFUSES(BUSY), OPENS_ONCE, REFUSES(BUSY), FAILS(TIMED_OUT, NO)},
    {"no answer in its time", "all", "300ms", FAKE_SILENT, 0, STAYS, FAKE_SILENT, 0, FAILS(TIMED_OUT, MAYBE)},
    {"lost, and nobody there again", "leader", "500ms", FAKE_SILENT, 0, STOPPED, FAKE_SILENT, 0,
     FAILS(TIMED_OUT, MAYBE)},
    {"nobody there from the first", "all", "300ms", FAKE_HONEST, 0, STOPPED_BEFORE, FAKE_HONEST, 0,
     FAILS(TIMED_OUT, NO)},
};

struct play {
    const struct row *row;
    struct fake_broker f;
    int before; /* batches that came before the record */
};

/* The broker's part after the record came. */
static void *act(void *context)
{
    struct play *p = context;
    while (atomic_load(&p->f.notifies) == p->before) {
        (void)usleep(100);
    }
    if (p->row->then == STOPPED) {
        fake_broker_stop(&p->f);
        return NULL;
    }
    if (p->row->first == FAKE_REFUSING || p->row->then == CUT) {
        atomic_store(&p->f.status, p->row->second_status);
        atomic_store(&p->f.lie, p->row->second);
    }
    if (p->row->then == CUT) {
        atomic_store(&p->f.is_cut, 1);
    }
    return NULL;
}

static flashq_client *client_of(struct play *p)
{
    char text[512];
    flashq_client *client;
    const char *pairs[][2] = {{"brokers", p->f.address},         {"reports", "all"},
                              {"acks", p->row->acks},            {"delivery.timeout.ms", p->row->timeout},
                              {"reconnect.backoff.ms", "5"},     {"reconnect.backoff.max.ms", "10"}};
    flashq_config *config = flashq_config_new();
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_assert_eq(flashq_config_set(config, pairs[i][0], pairs[i][1], text, sizeof text), 0, "%s", text);
    }
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0, "%s", text);
    flashq_config_free(config);
    return client;
}

/* Puts one record on its way; with send_sync its report comes too. */
static void put(flashq_producer *producer, enum how how, void *user, flashq_report *ret)
{
    void *value;
    flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = 123456, .user = user};
    if (how == BY_CLAIM) {
        cr_assert_eq(flashq_claim(producer, &record, 10, 10000, &value), 0);
        memcpy(value, "value", 5);
        cr_assert_eq(flashq_commit(producer, 5), 0);
        return;
    }
    record.value = "value";
    record.value_length = 5;
    if (how == BY_SEND) {
        cr_assert_eq(flashq_send(producer, &record, 10000), 0);
    } else if (how == BY_SENDV) {
        cr_assert_eq(flashq_sendv(producer, &record, 1, 10000), 1);
    } else {
        (void)flashq_send_sync(producer, &record, 20000, ret);
    }
}

static void expect(const struct row *row, enum how how, const flashq_report *report, void *user)
{
    cr_assert_eq(report->status, row->status, "%s, way %d: %s", row->what, (int)how,
                 flashq_error_name(report->status));
    cr_assert_eq(report->persisted, row->persisted, "%s, way %d: persisted %d", row->what, (int)how,
                 report->persisted);
    cr_assert_eq(report->duplicate, row->duplicate, "%s, way %d: duplicate", row->what, (int)how);
    cr_assert_eq(report->offset, row->offset, "%s, way %d: offset %lld", row->what, (int)how,
                 (long long)report->offset);
    cr_assert_eq(report->partition, 0);
    cr_assert_eq(report->timestamp_ms, 123456);
    cr_assert_eq(report->user, user);
}

static void play(const struct row *row, enum how how)
{
    char text[512];
    struct play p = {.row = row};
    pthread_t actor;
    flashq_producer *producer;
    flashq_report report, again, sync = {.status = 99};
    fake_broker_begin(&p.f, row->first);
    atomic_store(&p.f.status, row->first_status);
    atomic_store(&p.f.opens_most, row->then == OPENS_ONCE ? 1 : 0);
    flashq_client *client = client_of(&p);
    cr_assert_eq(flashq_producer_open(client, "t", 10000, &producer, text, sizeof text), 0, "%s", text);
    if (row->then == STOPPED_BEFORE) {
        fake_broker_stop(&p.f);
    } else {
        cr_assert_eq(pthread_create(&actor, NULL, act, &p), 0);
    }
    put(producer, how, &p, &sync);
    cr_assert_eq(flashq_producer_poll(producer, &report, 1, 20000), 1, "%s: a report", row->what);
    expect(row, how, &report, &p);
    if (how == BY_SEND_SYNC) {
        expect(row, how, &sync, &p);
    }
    cr_assert_eq(flashq_producer_poll(producer, &again, 1, 20), 0, "%s: one report", row->what);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    cr_assert_eq(stats.records_acked, row->status == 0 ? 1 : 0);
    cr_assert_eq(stats.records_failed, row->status == 0 ? 0 : 1);
    cr_assert_eq(stats.records_duplicate, (uint64_t)row->duplicate);
    if (row->then != STOPPED_BEFORE) {
        (void)pthread_join(actor, NULL);
    }
    (void)flashq_client_close(client, 100);
    fake_broker_end(&p.f);
}

ParameterizedTestParameters(reports, say_what_became_of_the_record)
{
    return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, reports, say_what_became_of_the_record, .timeout = 120)
{
    for (int how = 0; how < HOWS; how++) {
        play(row, (enum how)how);
    }
}

/* A topic whose acknowledgements do not wait for the medium is not said to be on it. */
Test(reports, a_topic_in_memory_is_maybe_persisted, .timeout = 60)
{
    struct live_broker b;
    char text[512];
    flashq_pair memory = {"durability", "memory"};
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, "shm", "reports", "all", NULL);
    cr_assert_eq(flashq_topic_create(client, "memory", 1, 0, &memory, 1, 10000, text, sizeof text), 0, "%s", text);
    live_topic(client, "medium", 1);
    for (int i = 0; i < 2; i++) {
        flashq_producer *producer;
        flashq_report report;
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = 5, .value = "v", .value_length = 1};
        cr_assert_eq(flashq_producer_open(client, i ? "medium" : "memory", 10000, &producer, text, sizeof text), 0);
        cr_assert_eq(flashq_send_sync(producer, &record, 10000, &report), 0);
        cr_assert_eq(report.persisted, i ? FLASHQ_PERSISTED_YES : FLASHQ_PERSISTED_MAYBE);
        cr_assert_eq(report.offset, 0);
    }
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}
