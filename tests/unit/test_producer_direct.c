/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer of a direct topic against a broker in the test: each batch where the protocol says, whatever the sizes of
 * batches and windows; a slot that is revoked, refused or lost at any moment costs nothing and doubles
 * nothing; windows that make no sense cost the connection. The broker aborts the test when a batch is in the
 * wrong place, torn, out of sequence or sent again without need.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "fake_broker.h"
#include "flashq/flashq.h"
#include "wire/record_batch.h"

struct direct {
    struct fake_broker f;
    flashq_client *client;
    flashq_producer *producer;
    struct fq_prng prng;
    uint64_t seed;
    int64_t sent;
};

static void set(flashq_config *config, const char *key, const char *value)
{
    char text[512];
    cr_assert_eq(flashq_config_set(config, key, value, text, sizeof text), 0, "%s", text);
}

static void begin(struct direct *d, const char *key, const char *value)
{
    char text[512];
    const char *seed = getenv("FLASHQ_TEST_SEED");
    memset(d, 0, sizeof *d);
    d->seed = seed ? strtoull(seed, NULL, 0) : fq_random_u64();
    (void)printf("# direct seed %llu\n", (unsigned long long)d->seed);
    fq_prng_seed(&d->prng, d->seed);
    fake_broker_begin_direct(&d->f, d->seed);
    flashq_config *config = flashq_config_new();
    set(config, "brokers", d->f.address);
    set(config, "reconnect.backoff.ms", "5");
    set(config, "reconnect.backoff.max.ms", "10");
    set(config, "reports", "all");
    if (key) {
        set(config, key, value);
    }
    cr_assert_eq(flashq_client_open(config, &d->client, text, sizeof text), 0, "%s", text);
    flashq_config_free(config);
    cr_assert_eq(flashq_producer_open(d->client, "t", 5000, &d->producer, text, sizeof text), 0, "%s",
                 text);
}

static void end(struct direct *d)
{
    cr_expect_eq(flashq_client_close(d->client, 1000), 0);
    fake_broker_end(&d->f);
}

static const char *last_error(struct direct *d)
{
    static char text[512];
    (void)flashq_producer_last_error(d->producer, text, sizeof text);
    return text;
}

/* The n-th record: n in 8 bytes, then as many as its length says. */
static void send_one(struct direct *d, size_t length)
{
    static uint8_t value[1 << 16];
    memset(value, (int)(d->sent % 251), length);
    memcpy(value, &d->sent, sizeof d->sent);
    flashq_record record = {.struct_bytes = sizeof record, .partition = 0, .timestamp_ms = 1 + d->sent,
                            .value = value, .value_length = length, .user = (void *)(intptr_t)d->sent};
    cr_assert_eq(flashq_send(d->producer, &record, 5000), 0, "%s", last_error(d));
    d->sent++;
}

static size_t random_length(struct direct *d)
{
    uint64_t kind = fq_prng_below(&d->prng, 10);
    uint64_t most = kind < 6 ? 200 : kind < 9 ? 5000 : FAKE_DIRECT_BATCH_BYTES - 200;
    return 8 + (size_t)fq_prng_below(&d->prng, most - 8);
}

/* The log holds records 0 .. sent - 1, each once and in order, at offsets that count them. */
static void check_log(struct direct *d)
{
    struct fq_batch_iter iter;
    struct fq_record record;
    int64_t count = 0;
    fake_broker_stop(&d->f);
    const uint8_t *at = d->f.direct.log, *stop = at + d->f.direct.log_bytes;
    while (at < stop) {
        struct fq_batch_header header;
        cr_assert_eq(fq_batch_header_read(at, (size_t)(stop - at), &header, NULL), 0);
        size_t bytes = (size_t)fq_batch_total_bytes(&header);
        cr_assert_eq(fq_batch_iter_init(&iter, at, bytes, NULL, NULL), 0);
        while (fq_batch_iter_next(&iter, &record) == 1) {
            int64_t number;
            cr_assert_geq(record.value.length, sizeof number);
            memcpy(&number, record.value.data, sizeof number);
            cr_assert_eq(number, count, "record %lld lies at offset %lld", (long long)number,
                         (long long)count);
            cr_assert_eq(record.offset, count);
            cr_assert_eq(record.timestamp_ms, 1 + count);
            for (size_t i = sizeof number; i < record.value.length; i++) {
                cr_assert_eq(record.value.data[i], (uint8_t)(count % 251));
            }
            count++;
        }
        at += bytes;
    }
    cr_assert_eq(count, d->sent);
}

/* Every report says success, and the offset that the record has. Returns how many were duplicates. */
static int64_t check_reports(struct direct *d)
{
    flashq_report reports[64];
    int64_t count = 0, duplicates = 0;
    int n;
    while ((n = flashq_producer_poll(d->producer, reports, 64, 0)) > 0) {
        for (int i = 0; i < n; i++) {
            cr_assert_eq(reports[i].status, 0, "%s", flashq_strerror(reports[i].status));
            cr_assert_eq(reports[i].persisted, FLASHQ_PERSISTED_YES);
            cr_assert_eq(reports[i].offset, (int64_t)(intptr_t)reports[i].user);
            duplicates += reports[i].duplicate;
            count++;
        }
    }
    cr_assert_eq(count, d->sent);
    return duplicates;
}

static void wait_until_revoked(struct direct *d)
{
    for (int i = 0; atomic_load(&d->f.direct.revoke) != 0; i++) {
        cr_assert_lt(i, 10000, "nothing was revoked");
        (void)usleep(1000);
    }
}

static void wait_for(_Atomic int *value, int least)
{
    for (int i = 0; atomic_load(value) < least; i++) {
        cr_assert_lt(i, 10000, "%d where %d was waited for", atomic_load(value), least);
        (void)usleep(1000);
    }
}

/* ---- positions -------------------------------------------------------------------------------- */

Test(direct, batches_of_random_sizes_fill_windows_without_a_gap_in_the_records, .timeout = 60)
{
    struct direct d;
    begin(&d, NULL, NULL);
    for (int i = 0; i < 5000; i++) {
        send_one(&d, random_length(&d));
        if (fq_prng_below(&d.prng, 50) == 0) {
            cr_assert_eq(flashq_flush(d.producer, 5000), 0, "%s", last_error(&d));
        }
    }
    cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    cr_assert_gt(atomic_load(&d.f.direct.windows), 20);
    cr_assert_eq(atomic_load(&d.f.connections), 1);
    cr_assert_eq(atomic_load(&d.f.direct.opens), 1);
    cr_assert_eq(check_reports(&d), 0);
    check_log(&d);
    end(&d);
}

/* case 32 */
Test(direct, a_batch_larger_than_any_window_is_refused_alone, .timeout = 30)
{
    struct direct d;
    flashq_report report;
    static uint8_t value[FAKE_DIRECT_BATCH_BYTES + 1];
    begin(&d, NULL, NULL);
    send_one(&d, 100);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    flashq_record record = {.struct_bytes = sizeof record, .partition = 0, .timestamp_ms = 5,
                            .value = value, .value_length = sizeof value};
    cr_assert_eq(flashq_send_sync(d.producer, &record, 5000, &report), FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_NO);
    cr_assert(strstr(last_error(&d), "32768"), "%s", last_error(&d));
    for (size_t more = 70; more < 90; more++) { /* around the very last that fits */
        record.value_length = FAKE_DIRECT_BATCH_BYTES - more;
        int code = flashq_send_sync(d.producer, &record, 5000, &report);
        /* 61 of header; length, attributes, two deltas, null key, value length, no headers: 3+1+1+1+1+3+1 */
        cr_assert_eq(code, more < 61 + 11 ? FLASHQ_ERR_TOO_LARGE : 0, "%zu less", more);
    }
    cr_assert_eq(atomic_load(&d.f.connections), 1);
    end(&d);
}

Test(direct, a_window_that_does_not_come_holds_the_producer_up_and_loses_nothing, .timeout = 60)
{
    struct direct d;
    begin(&d, NULL, NULL);
    atomic_store(&d.f.direct.withhold, 1);
    for (int i = 0; i < 40; i++) {
        send_one(&d, 9000);
    }
    cr_assert_eq(flashq_flush(d.producer, 200), FLASHQ_ERR_TIMED_OUT);
    cr_assert_leq(atomic_load(&d.f.direct.windows), 1);
    atomic_store(&d.f.direct.revoke, FLASHQ_ERR_NO_SPACE); /* while it waits for one */
    wait_for(&d.f.direct.opens, 2);
    cr_assert_eq(flashq_flush(d.producer, 100), FLASHQ_ERR_TIMED_OUT);
    atomic_store(&d.f.lie, FAKE_GARBAGE_MESSAGE); /* the connection ends with the next batch */
    atomic_store(&d.f.direct.withhold, 0);
    wait_for(&d.f.connections, 2);
    atomic_store(&d.f.lie, FAKE_HONEST);
    cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    (void)check_reports(&d);
    check_log(&d);
    end(&d);
}

/* ---- windows that make no sense ---------------------------------------------------------------- */

ParameterizedTestParameters(direct, a_window_that_makes_no_sense_costs_the_connection_only)
{
    static enum fake_direct_lie lies[] = {DIRECT_NUMBER_AHEAD, DIRECT_NUMBER_AGAIN, DIRECT_THREE,
                                          DIRECT_BYTES_OVER,   DIRECT_BYTES_NONE,   DIRECT_SMALL_NEXT,
                                          DIRECT_BAD_TOKEN};
    return cr_make_param_array(enum fake_direct_lie, lies, sizeof lies / sizeof lies[0]);
}

ParameterizedTest(enum fake_direct_lie *lie, direct,
                  a_window_that_makes_no_sense_costs_the_connection_only, .timeout = 60)
{
    struct direct d;
    begin(&d, NULL, NULL);
    send_one(&d, 300);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    atomic_store(&d.f.direct.lie, *lie);
    atomic_store(&d.f.direct.revoke, FLASHQ_ERR_NO_SPACE);
    for (int i = 0; i < 20; i++) {
        send_one(&d, 9000);
    }
    wait_for(&d.f.connections, 3);
    cr_assert_neq(flashq_flush(d.producer, 0), 0);
    cr_assert(strstr(last_error(&d), "window") || strstr(last_error(&d), "token"), "%s", last_error(&d));
    atomic_store(&d.f.direct.lie, DIRECT_HONEST);
    cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    (void)check_reports(&d);
    check_log(&d);
    end(&d);
}

/* ---- slots that fail --------------------------------------------------------------------------- */

/* case 27 */
Test(direct, cut_off_between_write_and_acknowledgement_is_stored_once_and_told_so, .timeout = 60)
{
    struct direct d;
    begin(&d, NULL, NULL);
    int64_t duplicates = 0;
    for (int round = 0; round < 20; round++) {
        int before = atomic_load(&d.f.connections);
        atomic_store(&d.f.lie, FAKE_GARBAGE_MESSAGE);
        for (uint64_t i = 1 + fq_prng_below(&d.prng, 30); i > 0; i--) {
            send_one(&d, random_length(&d));
        }
        wait_for(&d.f.connections, before + 1);
        atomic_store(&d.f.lie, FAKE_HONEST);
        cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    }
    duplicates = check_reports(&d);
    cr_assert_geq(duplicates, 20);
    check_log(&d);
    end(&d);
}

Test(direct, an_offset_that_makes_no_sense_settles_nothing, .timeout = 30)
{
    struct direct d;
    begin(&d, NULL, NULL);
    atomic_store(&d.f.lie, FAKE_GARBAGE_MESSAGE);
    atomic_store(&d.f.direct.lie, DIRECT_NOT_THERE);
    send_one(&d, 300);
    wait_for(&d.f.connections, 4);
    cr_assert_eq(flashq_flush(d.producer, 0), FLASHQ_ERR_TIMED_OUT);
    atomic_store(&d.f.lie, FAKE_HONEST);
    atomic_store(&d.f.direct.lie, DIRECT_HONEST);
    cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    cr_assert_eq(check_reports(&d), 1);
    check_log(&d);
    end(&d);
}

ParameterizedTestParameters(direct, a_slot_revoked_at_any_moment_loses_and_doubles_nothing)
{
    static int reasons[] = {FLASHQ_ERR_FENCED, FLASHQ_ERR_OFFLINE, FLASHQ_ERR_NO_SPACE,
                            FLASHQ_ERR_SEQUENCE, 0x7fffffff, -1000};
    return cr_make_param_array(int, reasons, sizeof reasons / sizeof reasons[0]);
}

ParameterizedTest(int *reason, direct, a_slot_revoked_at_any_moment_loses_and_doubles_nothing,
                  .timeout = 60)
{
    struct direct d;
    begin(&d, NULL, NULL);
    for (int round = 0; round < 60; round++) {
        uint64_t moment = fq_prng_below(&d.prng, 40);
        for (uint64_t i = 0; i < 40; i++) {
            send_one(&d, random_length(&d));
            if (i == moment) {
                atomic_store(&d.f.direct.revoke, *reason);
            }
        }
        wait_until_revoked(&d);
        if (fq_prng_below(&d.prng, 4) == 0) {
            cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
        }
    }
    cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
    cr_assert_gt(atomic_load(&d.f.direct.opens), 10);
    cr_assert_eq(atomic_load(&d.f.connections), 1, "the connection stays");
    cr_assert_eq(check_reports(&d), 0);
    check_log(&d);
    end(&d);
}

Test(direct, a_slot_revoked_while_nothing_waits_is_opened_by_the_next_record, .timeout = 30)
{
    struct direct d;
    begin(&d, NULL, NULL);
    send_one(&d, 10);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    atomic_store(&d.f.direct.revoke, FLASHQ_ERR_FENCED);
    wait_until_revoked(&d);
    (void)usleep(50000);
    cr_assert_eq(atomic_load(&d.f.direct.opens), 1, "nobody fights for a partition without need");
    send_one(&d, 10);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0, "%s", last_error(&d));
    cr_assert_eq(atomic_load(&d.f.direct.opens), 2);
    (void)check_reports(&d);
    check_log(&d);
    end(&d);
}

/* ---- somebody else has it ---------------------------------------------------------------------- */

Test(direct, a_fenced_producer_does_not_fight_for_a_partition_that_is_held, .timeout = 30)
{
    struct direct d;
    flashq_report report;
    begin(&d, "delivery.timeout.ms", "20s");
    send_one(&d, 10);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    cr_assert_eq(flashq_producer_poll(d.producer, &report, 1, 0), 1);
    atomic_store(&d.f.direct.refuse_opens, FLASHQ_ERR_EXCLUSIVE);
    atomic_store(&d.f.direct.revoke, FLASHQ_ERR_FENCED);
    wait_until_revoked(&d);
    d.sent = 1;
    send_one(&d, 10);
    cr_assert_eq(flashq_producer_poll(d.producer, &report, 1, 5000), 1);
    cr_assert_eq(report.status, FLASHQ_ERR_FENCED);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_NO);
    cr_assert(strstr(last_error(&d), "held by somebody in particular"), "%s", last_error(&d));
    /* What is sent from now on waits for its turn, as anybody's records do. */
    d.sent = 1;
    send_one(&d, 10);
    wait_for(&d.f.direct.opens, 5);
    cr_assert_eq(flashq_flush(d.producer, 0), FLASHQ_ERR_TIMED_OUT);
    atomic_store(&d.f.direct.refuse_opens, 0);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0, "%s", last_error(&d));
    cr_assert_eq(flashq_producer_poll(d.producer, &report, 1, 0), 1);
    cr_assert_eq(report.status, 0);
    cr_assert_eq(report.offset, 1);
    check_log(&d);
    end(&d);
}

Test(direct, a_held_partition_is_waited_for_and_the_holder_is_named_in_the_end, .timeout = 30)
{
    struct direct d;
    flashq_report report;
    begin(&d, "delivery.timeout.ms", "400ms");
    atomic_store(&d.f.direct.refuse_opens, FLASHQ_ERR_EXCLUSIVE);
    send_one(&d, 10);
    cr_assert_eq(flashq_producer_poll(d.producer, &report, 1, 5000), 1);
    cr_assert_eq(report.status, FLASHQ_ERR_EXCLUSIVE);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_NO);
    cr_assert(flashq_is_retriable(report.status));
    cr_assert_geq(atomic_load(&d.f.direct.opens), 3);
    cr_assert(strstr(last_error(&d), "held by somebody in particular"), "%s", last_error(&d));
    end(&d);
}

ParameterizedTestParameters(direct, a_final_refusal_is_told_at_once_with_the_brokers_words)
{
    static int codes[] = {FLASHQ_ERR_UNSUPPORTED, FLASHQ_ERR_INVALID, FLASHQ_ERR_NO_SPACE,
                          FLASHQ_ERR_OFFLINE};
    return cr_make_param_array(int, codes, sizeof codes / sizeof codes[0]);
}

ParameterizedTest(int *code, direct, a_final_refusal_is_told_at_once_with_the_brokers_words,
                  .timeout = 30)
{
    struct direct d;
    flashq_report report;
    begin(&d, NULL, NULL);
    atomic_store(&d.f.direct.refuse_opens, *code);
    flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = 1, .value = "v",
                            .value_length = 1};
    cr_assert_eq(flashq_send_sync(d.producer, &record, 5000, &report), *code);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_NO);
    cr_assert(strstr(last_error(&d), "held by somebody in particular"), "%s", last_error(&d));
    end(&d);
}

/* ---- signs of life ----------------------------------------------------------------------------- */

/* The broker aborts the test if a slot is opened before the former one was closed. */
Test(direct, a_closed_producer_gives_its_partition_back, .timeout = 30)
{
    struct direct d;
    char text[512];
    begin(&d, NULL, NULL);
    for (int round = 1; round <= 3; round++) {
        int64_t undelivered = -1;
        send_one(&d, 300);
        cr_assert_eq(flashq_flush(d.producer, 10000), 0, "%s", last_error(&d));
        cr_assert_eq(atomic_load(&d.f.direct.opens), round);
        cr_assert_eq(flashq_producer_close(d.producer, 1000, &undelivered), 0);
        cr_assert_eq(undelivered, 0);
        cr_assert_eq(flashq_producer_open(d.client, "t", 5000, &d.producer, text, sizeof text), 0, "%s",
                     text);
    }
    cr_assert_eq(atomic_load(&d.f.connections), 1);
    check_log(&d);
    end(&d);
}

Test(direct, heartbeats_are_answered_while_the_application_does_nothing, .timeout = 30)
{
    struct direct d;
    begin(&d, NULL, NULL);
    send_one(&d, 10);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    for (int i = 1; i <= 3; i++) {
        (void)usleep(20000);
        atomic_store(&d.f.direct.ask_beat, 1);
        wait_for(&d.f.direct.beats, i);
    }
    end(&d);
}

/* case 40 */
Test(direct, work_goes_on_under_an_application_that_only_looks_at_counters, .timeout = 30)
{
    struct direct d;
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    begin(&d, NULL, NULL);
    send_one(&d, 10);
    int64_t begun_us = fq_mono_us(), asked_us = begun_us + 20000;
    while (stats.records_acked < 1 || atomic_load(&d.f.direct.beats) < 1) {
        cr_assert_eq(flashq_producer_get_stats(d.producer, &stats), 0);
        if (asked_us != 0 && fq_mono_us() > asked_us) {
            atomic_store(&d.f.direct.ask_beat, 1);
            asked_us = 0;
        }
        cr_assert_lt(fq_mono_us(), begun_us + 10000000);
    }
    end(&d);
}

Test(direct, heartbeats_are_answered_without_a_thread_by_calls_alone, .timeout = 30)
{
    struct direct d;
    flashq_report report;
    begin(&d, "io.threads", "0");
    send_one(&d, 10);
    cr_assert_eq(flashq_flush(d.producer, 5000), 0);
    cr_assert_eq(flashq_producer_poll(d.producer, &report, 1, 0), 1);
    atomic_store(&d.f.direct.ask_beat, 1);
    (void)flashq_producer_poll(d.producer, &report, 1, 200);
    wait_for(&d.f.direct.beats, 1);
    end(&d);
}
