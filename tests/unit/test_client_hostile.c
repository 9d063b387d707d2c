/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client against a broker that lies: it drops the connection, keeps its records, comes back, ends every
 * call in time, and is as good as new once the broker is honest.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake_broker.h"
#include "flashq/flashq.h"

static flashq_client *client_of(const struct fake_broker *f)
{
    static const char *const pairs[][2] = {{"reconnect.backoff.ms", "5"},
                                           {"reconnect.backoff.max.ms", "10"},
                                           {"connect.timeout.ms", "300"}};
    char text[512];
    flashq_client *client;
    flashq_config *config = flashq_config_new();
    cr_assert_eq(flashq_config_set(config, "brokers", f->address, text, sizeof text), 0, "%s", text);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_assert_eq(flashq_config_set(config, pairs[i][0], pairs[i][1], text, sizeof text), 0, "%s", text);
    }
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0, "%s", text);
    flashq_config_free(config);
    return client;
}

static flashq_record record_of(const char *value)
{
    return (flashq_record){.struct_bytes = sizeof(flashq_record), .timestamp_ms = 1,
                           .value = value, .value_length = strlen(value)};
}

ParameterizedTestParameters(hostile, acknowledgements_that_make_no_sense_cost_the_connection_only)
{
    static enum fake_lie lies[] = {FAKE_TAIL_AHEAD,   FAKE_TAIL_BACK,       FAKE_CONSUMED_AHEAD,
                                   FAKE_WRONG_NOTIFY, FAKE_POSITIVE_STATUS, FAKE_NEGATIVE_OFFSET,
                                   FAKE_GARBAGE_MESSAGE};
    return cr_make_param_array(enum fake_lie, lies, sizeof lies / sizeof lies[0]);
}

ParameterizedTest(enum fake_lie *lie, hostile,
                  acknowledgements_that_make_no_sense_cost_the_connection_only, .timeout = 30)
{
    struct fake_broker f;
    char text[512];
    flashq_producer *producer;
    flashq_report report = {0};
    fake_broker_begin(&f, FAKE_HONEST);
    flashq_client *client = client_of(&f);
    cr_assert_eq(flashq_producer_open(client, "t", 5000, &producer, text, sizeof text), 0, "%s", text);
    flashq_record record = record_of("honest");
    cr_assert_eq(flashq_send_sync(producer, &record, 5000, &report), 0);
    cr_assert_eq(report.offset, 0);
    int before = atomic_load(&f.connections);
    atomic_store(&f.lie, *lie);
    record = record_of("lied to");
    cr_assert_eq(flashq_send_sync(producer, &record, 300, &report), FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_MAYBE);
    cr_assert_gt(atomic_load(&f.connections), before + 1, "it went away and came back, again and again");
    atomic_store(&f.lie, FAKE_HONEST);
    cr_assert_eq(flashq_flush(producer, 5000), 0, "%s",
                 (flashq_producer_last_error(producer, text, sizeof text), text));
    record = record_of("honest again");
    cr_assert_eq(flashq_send_sync(producer, &record, 5000, &report), 0);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    cr_assert_eq(stats.records_acked, 3);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

Test(hostile, answers_cut_short_never_satisfy_a_call, .timeout = 30)
{
    struct fake_broker f;
    char text[512];
    flashq_producer *producer;
    fake_broker_begin(&f, FAKE_GARBAGE_ANSWERS);
    flashq_client *client = client_of(&f);
    cr_assert_lt(flashq_producer_open(client, "t", 500, &producer, text, sizeof text), 0);
    cr_assert_gt(strlen(text), 10);
    atomic_store(&f.lie, FAKE_HONEST);
    cr_assert_eq(flashq_producer_open(client, "t", 5000, &producer, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

/* The connection has a ring that no producer uses, and goes because of what is found in it. */
Test(hostile, a_revocation_behind_a_tail_that_makes_no_sense_finds_nobody, .timeout = 30)
{
    struct fake_broker f;
    char text[512];
    flashq_producer *producer;
    fake_broker_begin(&f, FAKE_HONEST);
    atomic_store(&f.lies_at_close, 1);
    flashq_client *client = client_of(&f);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(flashq_producer_open(client, "t", 5000, &producer, text, sizeof text), 0, "%s", text);
        flashq_record record = record_of("honest");
        cr_assert_eq(flashq_send_sync(producer, &record, 5000, NULL), 0);
        int before = atomic_load(&f.connections);
        cr_assert_eq(flashq_producer_close(producer, 1000, NULL), 0);
        while (atomic_load(&f.connections) == before) {
            (void)usleep(1000); /* until it went away and came back; the test's own time bounds it */
        }
    }
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

/* case 39 */
Test(hostile, a_broker_that_never_acknowledges_is_left_with_a_count, .timeout = 30)
{
    struct fake_broker f;
    char text[512];
    flashq_producer *producer;
    int64_t undelivered = 0;
    fake_broker_begin(&f, FAKE_SILENT);
    flashq_client *client = client_of(&f);
    cr_assert_eq(flashq_producer_open(client, "t", 5000, &producer, text, sizeof text), 0, "%s", text);
    flashq_record record = record_of("unheard");
    for (int i = 0; i < 500; i++) {
        cr_assert_eq(flashq_send(producer, &record, 0), 0);
    }
    cr_assert_eq(flashq_flush(producer, 100), FLASHQ_ERR_TIMED_OUT);
    cr_assert_gt(atomic_load(&f.notifies), 0);
    cr_assert_eq(flashq_producer_close(producer, 100, &undelivered), 0);
    cr_assert_eq(undelivered, 500);
    cr_assert_eq(flashq_client_close(client, 100), 0);
    fake_broker_end(&f);
}

/* What an earlier connection may have stored is never reported as not stored, whoever refuses it later. */
Test(refusals, of_what_may_be_stored_already_say_maybe, .timeout = 30)
{
    struct fake_broker f;
    char text[512];
    flashq_producer *producer;
    flashq_report report = {0};
    fake_broker_begin(&f, FAKE_HONEST);
    flashq_client *client = client_of(&f);
    cr_assert_eq(flashq_producer_open(client, "t", 5000, &producer, text, sizeof text), 0, "%s", text);
    flashq_record record = record_of("never written before");
    atomic_store(&f.lie, FAKE_OFFLINE);
    cr_assert_eq(flashq_send_sync(producer, &record, 5000, &report), FLASHQ_ERR_OFFLINE);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_NO);
    cr_assert_eq(flashq_producer_poll(producer, &report, 1, 5000), 1, "the same, once more");

    atomic_store(&f.lie, FAKE_GARBAGE_MESSAGE); /* taken, and the connection ends before the answer */
    int before = atomic_load(&f.notifies);
    cr_assert_eq(flashq_send(producer, &record, 0), 0);
    while (atomic_load(&f.notifies) < before + 2) {
        (void)usleep(1000);
    }
    atomic_store(&f.lie, FAKE_OFFLINE);
    cr_assert_eq(flashq_producer_poll(producer, &report, 1, 5000), 1);
    cr_assert_eq(report.status, FLASHQ_ERR_OFFLINE);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_MAYBE);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}
