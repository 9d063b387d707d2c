/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a producer keeps is bounded, whatever the broker does: it stands still, acknowledges nothing, has a small ring,
 * many partitions, large records. A full queue blocks up to the deadline, then says AGAIN and names its
 * limit; nothing that was taken is dropped.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_broker.h"
#include "flashq/flashq.h"
#include "live_broker.h"

#define MIB (1 << 20)

/* One test for each transport. */
#define over_both(name)                                                                            \
    static void name(const char *transport);                                                       \
    Test(flow, name##_over_shm, .timeout = 120)                                                    \
    {                                                                                              \
        name("shm");                                                                               \
    }                                                                                              \
    Test(flow, name##_over_tcp, .timeout = 120)                                                    \
    {                                                                                              \
        name("tcp");                                                                               \
    }                                                                                              \
    static void name(const char *transport)

static const char *last_error(flashq_producer *producer)
{
    static char text[512];
    (void)flashq_producer_last_error(producer, text, sizeof text);
    return text;
}

static flashq_producer *open_producer(flashq_client *client)
{
    char text[512];
    flashq_producer *producer;
    cr_assert_eq(flashq_producer_open(client, "t", 10000, &producer, text, sizeof text), 0, "%s", text);
    return producer;
}

static flashq_client *fake_client(const struct fake_broker *f, const char *const *pairs)
{
    char text[512];
    flashq_client *client;
    flashq_config *config = flashq_config_new();
    cr_assert_eq(flashq_config_set(config, "brokers", f->address, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_config_set(config, "reconnect.backoff.ms", "5", text, sizeof text), 0);
    for (; *pairs; pairs += 2) {
        cr_assert_eq(flashq_config_set(config, pairs[0], pairs[1], text, sizeof text), 0, "%s", text);
    }
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0, "%s", text);
    flashq_config_free(config);
    return client;
}

static int send_bytes(flashq_producer *producer, int32_t partition, size_t length, int timeout_ms)
{
    static const uint8_t zeros[2 * MIB];
    flashq_record record = {.struct_bytes = sizeof record, .partition = partition, .timestamp_ms = 1,
                            .value = zeros, .value_length = length};
    return flashq_send(producer, &record, timeout_ms);
}

static flashq_producer_stats stats_of(flashq_producer *producer)
{
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    return stats;
}

/* Sends records of `length` until the queue is full; returns how many. */
static int64_t fill(flashq_producer *producer, size_t length)
{
    int64_t count = 0;
    int code;
    while ((code = send_bytes(producer, FLASHQ_PARTITION_ANY, length, 0)) == 0) {
        count++;
        cr_assert_lt(count, 100000000);
    }
    cr_assert_eq(code, FLASHQ_ERR_AGAIN, "%s", last_error(producer));
    return count;
}

/* ---- acknowledgements that do not come --------------------------------------------------------- */

static void full_queue(size_t record_bytes)
{
    struct fake_broker f;
    const char *pairs[] = {"queue.bytes", "2MiB", "message.max.bytes", "64KiB", NULL};
    fake_broker_begin(&f, FAKE_SILENT);
    flashq_client *client = fake_client(&f, pairs);
    flashq_producer *producer = open_producer(client);
    int64_t taken = fill(producer, record_bytes);
    cr_assert_leq(taken * (int64_t)record_bytes, 2 * MIB);
    cr_assert(strstr(last_error(producer), "queue.bytes (2097152)"), "%s", last_error(producer));
    cr_assert_leq(stats_of(producer).queue_bytes, 2 * MIB);

    int64_t begun_us = fq_mono_us();
    cr_assert_eq(send_bytes(producer, 0, record_bytes, 300), FLASHQ_ERR_AGAIN);
    cr_assert_geq(fq_mono_us() - begun_us, 300000, "it waits up to the deadline");
    cr_assert_eq(flashq_is_retriable(FLASHQ_ERR_AGAIN), 1);

    atomic_store(&f.is_cut, 1); /* a new connection, and an honest broker */
    atomic_store(&f.lie, FAKE_HONEST);
    cr_assert_eq(send_bytes(producer, 0, record_bytes, 10000), 0, "%s", last_error(producer));
    cr_assert_eq(flashq_flush(producer, 10000), 0, "%s", last_error(producer));
    flashq_producer_stats stats = stats_of(producer);
    cr_assert_eq(stats.records_acked, (uint64_t)taken + 1, "what was taken is delivered, and no more");
    cr_assert_eq(stats.records_failed, 0);
    cr_assert_eq(stats.queue_bytes, 0);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

Test(flow, a_queue_full_of_small_records_says_again, .timeout = 60)
{
    full_queue(10);
}

Test(flow, a_queue_full_of_middling_records_says_again, .timeout = 60)
{
    full_queue(3000);
}

Test(flow, a_queue_full_of_the_largest_records_says_again, .timeout = 60)
{
    full_queue(64 << 10);
}

Test(flow, a_small_ring_of_acknowledgements_bounds_what_is_in_flight, .timeout = 60)
{
    static const int sizes[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct fake_broker f;
        const char *pairs[] = {"queue.bytes", "4MiB", "message.max.bytes", "64KiB", NULL};
        fake_broker_begin(&f, FAKE_SILENT);
        atomic_store(&f.entries_most, sizes[i]);
        flashq_client *client = fake_client(&f, pairs);
        flashq_producer *producer = open_producer(client);
        int64_t taken = fill(producer, 5000);
        cr_assert_eq(flashq_flush(producer, 200), FLASHQ_ERR_TIMED_OUT);
        cr_assert_eq(atomic_load(&f.notifies), sizes[i], "%d of %d", atomic_load(&f.notifies), sizes[i]);
        atomic_store(&f.lie, FAKE_HONEST);
        atomic_store(&f.is_cut, 1);
        cr_assert_eq(flashq_flush(producer, 10000), 0, "%s", last_error(producer));
        cr_assert_eq(stats_of(producer).records_acked, (uint64_t)taken);
        cr_assert_eq(flashq_client_close(client, 1000), 0);
        fake_broker_end(&f);
    }
}

/* Everything is answered, but the ring looks full: room is told later, by itself. What waits for it goes then,
 * whether or not anybody sends, waits or flushes meanwhile. */
static void room_comes_alone(const char *batching, int how)
{
    enum { FULL = 10, BYTES = 100000 }; /* of 1 MiB */
    struct fake_broker f;
    const char *pairs[] = {"message.max.bytes", "512KiB", "batch.max.bytes", "256KiB", "batching", batching,
                           "linger.ms", "0", NULL};
    fake_broker_begin(&f, FAKE_ROOM_APART);
    flashq_client *client = fake_client(&f, pairs);
    flashq_producer *producer = open_producer(client);
    for (int i = 0; i < FULL; i++) {
        cr_assert_eq(send_bytes(producer, 0, BYTES, 10000), 0, "%s", last_error(producer));
        cr_assert_eq(flashq_flush(producer, 10000), 0, "%d: %s", i, last_error(producer));
    }
    cr_assert_eq(send_bytes(producer, 0, BYTES, 10000), 0, "%s", last_error(producer));
    cr_assert_eq(flashq_flush(producer, 50), FLASHQ_ERR_TIMED_OUT, "%d records fill the ring", FULL);
    cr_assert_eq(atomic_load(&f.notifies), FULL);
    atomic_store(&f.lie, FAKE_HONEST);
    if (how == 0) {
        cr_assert_eq(flashq_flush(producer, 10000), 0, "%s", last_error(producer));
    }
    for (int i = 0; how == 1 && i < 5000 && stats_of(producer).records_acked < FULL + 1; i++) {
        (void)usleep(2000);
    }
    for (int i = 0; how == 2 && i < 5000 && atomic_load(&f.notifies) < FULL + 1; i++) {
        (void)usleep(2000); /* nobody calls */
    }
    cr_assert_eq(atomic_load(&f.notifies), FULL + 1, "%s, %d: the last one never went", batching, how);
    cr_assert_eq(flashq_flush(producer, 10000), 0, "%s", last_error(producer));
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

Test(flow, room_that_is_told_apart_from_acknowledgements_brings_on_what_waits, .timeout = 120)
{
    for (int how = 0; how < 3; how++) {
        room_comes_alone("adaptive", how);
        room_comes_alone("fixed", how);
    }
}

Test(flow, a_send_that_waits_ends_when_its_producer_is_closed, .timeout = 30)
{
    struct fake_broker f;
    int64_t undelivered;
    const char *pairs[] = {"queue.bytes", "1MiB", "message.max.bytes", "64KiB", NULL};
    fake_broker_begin(&f, FAKE_SILENT);
    flashq_client *client = fake_client(&f, pairs);
    flashq_producer *producer = open_producer(client);
    int64_t taken = fill(producer, 1000);
    cr_assert_eq(flashq_producer_close(producer, 100, &undelivered), 0); /* case 39 */
    cr_assert_eq(undelivered, taken);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    fake_broker_end(&f);
}

/* ---- memory that is measured ------------------------------------------------------------------- */

static size_t resident_bytes(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    cr_assert(file);
    while (fgets(line, sizeof line, file)) {
        (void)sscanf(line, "VmRSS: %zu", &kib);
    }
    (void)fclose(file);
    return kib << 10;
}

/* Sanitizers keep freed memory, and shadows of all of it: there only the count of records is looked at. */
#if defined(__SANITIZE_ADDRESS__)
#define IS_MEASURED 0
#elif defined(__has_feature)
#define IS_MEASURED (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define IS_MEASURED 1
#endif

/* What a full queue of the smallest records costs the process: each of them is remembered for its report. */
Test(flow, a_queue_full_of_empty_records_takes_no_more_memory_than_it_may, .timeout = 120)
{
    struct fake_broker f;
    const char *pairs[] = {"queue.bytes", "32MiB", "message.max.bytes", "64KiB", NULL};
    fake_broker_begin(&f, FAKE_SILENT);
    flashq_client *client = fake_client(&f, pairs);
    flashq_producer *producer = open_producer(client);
    size_t before = resident_bytes();
    int64_t taken = fill(producer, 0);
    size_t grown = resident_bytes() - before;
    (void)printf("# %lld empty records: %zu KiB\n", (long long)taken, grown >> 10);
    cr_assert_gt(taken, 100000);
    cr_assert_leq(taken, 32 * MIB / 16, "each is remembered in 16 bytes");
    cr_assert(!IS_MEASURED || grown <= (size_t)(32 + 4) * MIB, "%zu KiB for %lld", grown >> 10, (long long)taken);
    (void)flashq_client_close(client, 0);
    fake_broker_end(&f);
}

/* ---- a real broker ----------------------------------------------------------------------------- */

over_both(a_thousand_partitions_with_one_record_each_share_a_small_queue)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, transport, "queue.bytes", "1MiB", "message.max.bytes",
                                        "64KiB", NULL);
    live_topic(client, "t", 1000);
    flashq_producer *producer = open_producer(client);
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t i = 0; i < 1000; i++) {
            cr_assert_eq(send_bytes(producer, i, 100, 20000), 0, "%d: %s", i, last_error(producer));
            cr_assert_leq(stats_of(producer).queue_bytes, MIB);
        }
    }
    cr_assert_eq(flashq_flush(producer, 20000), 0, "%s", last_error(producer));
    cr_assert_eq(stats_of(producer).records_acked, 3000);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

over_both(the_largest_records_pass_through_the_smallest_queue)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, transport, "queue.bytes", "1MiB", NULL);
    live_topic(client, "t", 3);
    flashq_producer *producer = open_producer(client);
    for (int i = 0; i < 60; i++) {
        size_t length = i % 3 == 2 ? 100 : MIB;
        cr_assert_eq(send_bytes(producer, FLASHQ_PARTITION_ANY, length, 20000), 0, "%s",
                     last_error(producer));
        cr_assert_leq(stats_of(producer).queue_bytes, 4 * MIB, "room for two of the largest");
    }
    cr_assert_eq(flashq_flush(producer, 20000), 0, "%s", last_error(producer));
    cr_assert_eq(stats_of(producer).records_acked, 60);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* case 28 */
over_both(a_broker_that_stands_still_holds_up_and_loses_nothing)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, transport, "queue.bytes", "1MiB", "message.max.bytes",
                                        "64KiB", NULL);
    live_topic(client, "t", 4);
    flashq_producer *producer = open_producer(client);
    int64_t taken = 0;
    for (int turn = 0; turn < 5; turn++) {
        live_broker_halt(&b);
        taken += fill(producer, 700);
        cr_assert_leq(stats_of(producer).queue_bytes, MIB);
        live_broker_go_on(&b);
        cr_assert_eq(send_bytes(producer, FLASHQ_PARTITION_ANY, 700, 20000), 0, "%s",
                     last_error(producer));
        taken++;
    }
    cr_assert_eq(flashq_flush(producer, 20000), 0, "%s", last_error(producer));
    flashq_producer_stats stats = stats_of(producer);
    cr_assert_eq(stats.records_acked, (uint64_t)taken);
    cr_assert_eq(stats.records_duplicate, 0);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* Requests that are given up on leave their bytes behind while the broker takes none. */
Test(flow, requests_to_a_broker_that_stands_still_are_bounded, .timeout = 120)
{
    enum { PAIRS = 14, VALUE = 4000 };
    static char value[VALUE + 1], text[512];
    static flashq_pair pairs[PAIRS];
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, "tcp", NULL);
    live_topic(client, "t", 1);
    memset(value, 'x', VALUE);
    for (int i = 0; i < PAIRS; i++) {
        pairs[i] = (flashq_pair){.key = "nothing", .value = value};
    }
    live_broker_halt(&b);
    size_t before = mallinfo2().uordblks;
    int code = FLASHQ_ERR_TIMED_OUT, calls = 0;
    while (code == FLASHQ_ERR_TIMED_OUT) {
        code = flashq_topic_alter(client, "t", pairs, PAIRS, 1, text, sizeof text);
        cr_assert_lt(++calls, 3000);
    }
    cr_assert_eq(code, FLASHQ_ERR_LIMIT, "%s", text);
    cr_assert(strstr(text, "limit 4194304"), "%s", text);
    cr_assert_leq(mallinfo2().uordblks - before, 10 * MIB);
    (void)printf("# %d requests of %d bytes\n", calls, PAIRS * VALUE);
    live_broker_go_on(&b);
    pairs[0] = (flashq_pair){.key = "message.max.bytes", .value = "5000"};
    for (int i = 0; i < 500 && code != 0; i++) { /* the backlog goes first */
        code = flashq_topic_alter(client, "t", pairs, 1, 10000, text, sizeof text);
        (void)usleep(10000);
    }
    cr_assert_eq(code, 0, "%s", text);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}
