/* SPDX-License-Identifier: Apache-2.0 */
/* Producing and administering against a whole broker in a thread of the test, over shm and tcp. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/murmur2.h"
#include "live_broker.h"

static char transports[][8] = {"shm", "tcp"};

#define over_both(suite, name)                                                                     \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(char[8], transports, 2);                                        \
    }                                                                                              \
    ParameterizedTest(char (*transport)[8], suite, name, .timeout = 60)

static flashq_producer *open_producer(flashq_client *client, const char *topic)
{
    char text[512];
    flashq_producer *producer;
    int code = flashq_producer_open(client, topic, 10000, &producer, text, sizeof text);
    cr_assert_eq(code, 0, "%s", text);
    return producer;
}

static flashq_record record_of(const void *value, size_t length)
{
    return (flashq_record){.struct_bytes = sizeof(flashq_record), .partition = FLASHQ_PARTITION_ANY,
                           .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .value = value,
                           .value_length = length};
}

over_both(produce, offsets_follow_each_other_and_stats_add_up)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    for (int64_t i = 0; i < 100; i++) {
        cr_assert_eq(live_send(producer, 0, "value"), i);
    }
    flashq_record record = record_of("12345", 5);
    for (int i = 0; i < 5000; i++) {
        cr_assert_eq(flashq_send(producer, &record, 10000), 0);
    }
    cr_assert_eq(flashq_flush(producer, 20000), 0);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_producer_get_stats(producer, &stats), 0);
    cr_assert_eq(stats.records_sent, 5100);
    cr_assert_eq(stats.records_acked, 5100);
    cr_assert_eq(stats.records_failed + stats.records_duplicate, 0);
    cr_assert_eq(stats.bytes_sent, 5100 * 5);
    cr_assert_eq(stats.queue_bytes, 0);
    cr_assert_eq(live_send(producer, 0, "last"), 5100);
    int64_t undelivered = -1;
    cr_assert_eq(flashq_producer_close(producer, 1000, &undelivered), 0);
    cr_assert_eq(undelivered, 0);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* case 32: max-1, max, max+1; the error names limit and value. */
over_both(produce, a_record_over_the_limit_is_refused_alone_with_both_numbers)
{
    static char value[65536 + 1];
    struct live_broker b;
    char text[512];
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    flashq_pair limit = {"message.max.bytes", "65536"};
    cr_assert_eq(flashq_topic_create(client, "t", 1, 0, &limit, 1, 10000, text, sizeof text), 0, "%s",
                 text);
    flashq_producer *producer = open_producer(client, "t");
    for (size_t length = 65535; length <= 65537; length++) {
        flashq_record record = record_of(value, length);
        flashq_report report;
        int code = flashq_send_sync(producer, &record, 10000, &report);
        cr_assert_eq(code, length <= 65536 ? 0 : FLASHQ_ERR_TOO_LARGE, "%zu: %d", length, code);
    }
    cr_assert_eq(flashq_producer_last_error(producer, text, sizeof text), FLASHQ_ERR_TOO_LARGE);
    cr_assert(strstr(text, "65537") && strstr(text, "message.max.bytes") && strstr(text, "65536"), "%s",
              text);
    flashq_record record = record_of("x", 1);
    record.key = value;
    record.key_length = 65536;
    cr_assert_eq(flashq_send(producer, &record, 0), FLASHQ_ERR_TOO_LARGE, "the key counts too");
    cr_assert_eq(live_send(producer, 0, "after"), 2, "nothing else was harmed");
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(produce, a_key_goes_where_kafka_sends_it)
{
    enum { PARTITIONS = 7, KEYS = 50 };
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "reports", "all", NULL);
    live_topic(client, "t", PARTITIONS);
    flashq_producer *producer = open_producer(client, "t");
    cr_assert_eq(flashq_producer_partitions(producer), PARTITIONS);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        flashq_report report;
        flashq_record record = record_of("v", 1);
        record.key_length = (size_t)snprintf(key, sizeof key, "key-%d", i);
        record.key = key;
        cr_assert_eq(flashq_send_sync(producer, &record, 10000, &report), 0);
        cr_assert_eq(report.partition,
                     (int32_t)((fq_murmur2(key, record.key_length) & 0x7fffffffu) % PARTITIONS));
    }
    flashq_record record = record_of("v", 1);
    record.partition = PARTITIONS;
    cr_assert_eq(flashq_send(producer, &record, 0), FLASHQ_ERR_NOT_FOUND);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(produce, reports_come_back_with_the_users_pointer_in_order)
{
    enum { COUNT = 1000 };
    struct live_broker b;
    flashq_report reports[64];
    int seen = 0;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "reports", "all", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    for (intptr_t i = 0; i < COUNT; i++) {
        flashq_record record = record_of(&i, sizeof i);
        record.user = (void *)i;
        record.timestamp_ms = 1000 + i;
        cr_assert_eq(flashq_send(producer, &record, 10000), 0);
    }
    while (seen < COUNT) {
        int count = flashq_producer_poll(producer, reports, 64, 10000);
        cr_assert_gt(count, 0);
        for (int i = 0; i < count; i++, seen++) {
            cr_assert_eq(reports[i].status, 0);
            cr_assert_eq(reports[i].persisted, FLASHQ_PERSISTED_YES);
            cr_assert_eq(reports[i].offset, seen);
            cr_assert_eq((intptr_t)reports[i].user, seen);
            cr_assert_eq(reports[i].timestamp_ms, 1000 + seen);
        }
    }
    cr_assert_eq(flashq_producer_poll(producer, reports, 64, 0), 0);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* case 40: with the smallest queue and nobody polling, sending goes on for ever. */
over_both(produce, the_queue_never_fills_because_nobody_polled)
{
    static char value[4000];
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "reports", "all", "reports.max", "16",
                                        "queue.bytes", "1MiB", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    flashq_record record = record_of(value, sizeof value);
    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(flashq_send(producer, &record, 20000), 0);
    }
    cr_assert_eq(flashq_flush(producer, 20000), 0);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    (void)flashq_producer_get_stats(producer, &stats);
    cr_assert_eq(stats.records_acked, 3000);
    cr_assert_eq(stats.reports_dropped, 3000 - 16);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* case 39: flush and close end at the deadline, with a count. */
over_both(produce, a_broker_that_stands_still_costs_no_more_than_the_deadline)
{
    static char value[100000];
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "queue.bytes", "1MiB", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    live_broker_halt(&b);
    flashq_record record = record_of(value, sizeof value);
    int64_t queued = 0;
    while (flashq_send(producer, &record, 50) == 0) {
        queued++;
    }
    cr_assert_eq(flashq_send(producer, &record, 0), FLASHQ_ERR_AGAIN);
    cr_assert_gt(queued, 3);
    int64_t begun = fq_mono_us(), undelivered = 0;
    cr_assert_eq(flashq_flush(producer, 100), FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_producer_close(producer, 100, &undelivered), 0);
    cr_assert_geq(fq_mono_us() - begun, 200000, "both used their time");
    cr_assert_eq(undelivered, queued);
    (void)flashq_client_close(client, 100);
    live_broker_go_on(&b);
    live_broker_end(&b);
}

/* case 43: every call that asks ends by its deadline though nobody answers. */
over_both(calls, end_by_their_deadline_when_nobody_answers)
{
    struct live_broker b;
    char text[512];
    flashq_topic_info *topics;
    flashq_counter *counters;
    flashq_producer *producer;
    flashq_consumer *consumer;
    size_t count;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    cr_assert_eq(flashq_consumer_open(client, &consumer, text, sizeof text), 0);
    live_broker_halt(&b);
    cr_assert_eq(flashq_topic_list(client, 50, &topics, &count, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    cr_assert_gt(strlen(text), 5);
    cr_assert_eq(flashq_topic_create(client, "u", 1, 0, NULL, 0, 50, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_topic_delete(client, "t", 50, text, sizeof text), FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_cluster_counters(client, 50, &counters, &count, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_producer_open(client, "t", 50, &producer, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_consumer_assign(consumer, "t", 0, 0, 50, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(flashq_offset_for_time(client, "t", 0, 0, 50, &answer, text, sizeof text),
                 FLASHQ_ERR_TIMED_OUT);
    (void)flashq_client_close(client, 100);
    live_broker_go_on(&b);
    live_broker_end(&b);
}

Test(calls, say_why_there_is_no_broker, .timeout = 30)
{
    char text[512];
    flashq_client *client;
    flashq_config *config = flashq_config_new();
    flashq_topic_info *topics;
    size_t count;
    (void)flashq_config_set(config, "brokers", "shm:/nonexistent/sock,tcp:127.0.0.1:1", NULL, 0);
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0);
    flashq_config_free(config);
    cr_assert_eq(flashq_client_wait(client, 200, text, sizeof text), FLASHQ_ERR_UNREACHABLE);
    cr_assert(strstr(text, "/nonexistent/sock") && strstr(text, "127.0.0.1:1"), "all that were tried: %s", text);
    cr_assert_eq(flashq_topic_list(client, 50, &topics, &count, text, sizeof text),
                 FLASHQ_ERR_UNREACHABLE);
    char endpoint[64];
    cr_assert_eq(flashq_client_endpoint(client, endpoint, sizeof endpoint), FLASHQ_ERR_UNREACHABLE);
    cr_assert_eq(flashq_client_close(client, 100), 0);
}

/* A broker written as HOST:PORT on this host is reached over its socket. */
Test(calls, auto_finds_the_shared_memory_of_the_same_host, .timeout = 30)
{
    struct live_broker b;
    char text[512], endpoint[256];
    flashq_client *client;
    live_broker_begin(&b);
    flashq_config *config = flashq_config_new();
    (void)flashq_config_set(config, "brokers", b.tcp + 4, NULL, 0);
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0);
    cr_assert_eq(flashq_client_wait(client, 10000, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_client_endpoint(client, endpoint, sizeof endpoint), 0);
    cr_assert_str_eq(endpoint, b.shm);
    (void)flashq_client_close(client, 1000);
    (void)flashq_config_set(config, "transport", "tcp", NULL, 0);
    cr_assert_eq(flashq_client_open(config, &client, text, sizeof text), 0);
    cr_assert_eq(flashq_client_wait(client, 10000, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_client_endpoint(client, endpoint, sizeof endpoint), 0);
    cr_assert_str_eq(endpoint, b.tcp);
    (void)flashq_client_close(client, 1000);
    flashq_config_free(config);
    live_broker_end(&b);
}

over_both(handles, of_a_topic_made_anew_say_so)
{
    struct live_broker b;
    char text[512];
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "old");
    cr_assert_eq(flashq_topic_delete(client, "t", 10000, text, sizeof text), 0, "%s", text);
    live_topic(client, "t", 1);
    flashq_record record = record_of("new", 3);
    flashq_report report = {0};
    int code = flashq_send_sync(producer, &record, 10000, &report);
    cr_assert_eq(code, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "%s", flashq_error_name(code));
    flashq_producer *fresh = open_producer(client, "t");
    cr_assert_eq(live_send(fresh, 0, "new"), 0, "the new topic has only its own data");
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* case 28 */
over_both(produce, goes_on_by_itself_after_the_broker_stood_still_or_was_killed)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    int64_t sent = 0;
    for (int round = 0; round < 4; round++) {
        flashq_record record = record_of("value", 5);
        for (int i = 0; i < 200; i++, sent++) {
            cr_assert_eq(flashq_send(producer, &record, 10000), 0);
        }
        if (round % 2 == 0) {
            live_broker_halt(&b);
            (void)usleep(50000);
            live_broker_go_on(&b);
        } else {
            live_broker_kill(&b);
            live_broker_start_beside(&b, client);
        }
        cr_assert_eq(live_send(producer, 0, "check"), sent, "no gap, no duplicate");
        sent++;
    }
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* case 42: the child may close, and the parent does not notice. */
over_both(handles, a_forked_child_may_close_them)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "before");
    pid_t child = fork();
    if (child == 0) {
        flashq_record record = record_of("child", 5);
        int code = flashq_send(producer, &record, 100);
        (void)flashq_producer_close(producer, 100, NULL);
        (void)flashq_client_close(client, 100);
        _exit(code == FLASHQ_ERR_FORKED ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(live_send(producer, 0, "after"), 1);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* Invoker mode: the application does the io thread's work. */
over_both(handles, without_an_io_thread_the_application_drives)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "io.threads", "0", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    flashq_record record = record_of("value", 5);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    cr_assert_eq(flashq_send(producer, &record, 1000), 0);
    for (int i = 0; i < 100000 && stats.records_acked == 0; i++) {
        cr_assert_geq(flashq_client_do_work(client), 0);
        (void)flashq_producer_get_stats(producer, &stats);
        (void)usleep(10);
    }
    cr_assert_eq(stats.records_acked, 1);
    cr_assert_eq(flashq_client_close(client, 1000), 0);
    live_broker_end(&b);
}

/* case 41: CPU time, not wall time: a client whose broker is gone sleeps. */
over_both(handles, a_client_without_its_broker_costs_no_cpu)
{
    struct live_broker b;
    struct timespec used[2];
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "x");
    live_broker_kill(&b);
    flashq_record record = record_of("value", 5);
    cr_assert_eq(flashq_send(producer, &record, 0), 0);
    (void)usleep(300000); /* the quick first attempts */
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
    (void)usleep(1000000);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
    int64_t us = (used[1].tv_sec - used[0].tv_sec) * 1000000 +
                 (used[1].tv_nsec - used[0].tv_nsec) / 1000;
    cr_assert_lt(us, 30000, "%lld us of CPU in a second", (long long)us);
    live_broker_start_beside(&b, client);
    cr_assert_eq(live_send(producer, 0, "back"), 2);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

over_both(admin, topics_are_listed_described_altered_trimmed)
{
    struct live_broker b;
    char text[512];
    flashq_topic_info *topics, topic;
    flashq_partition_info *partitions;
    flashq_config_entry *entries;
    flashq_counter *counters;
    size_t count;
    int64_t start = -1;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "a.b", 2);
    live_topic(client, "a-b", 1);
    cr_assert_eq(flashq_topic_create(client, "a-b", 1, 0, NULL, 0, 10000, text, sizeof text),
                 FLASHQ_ERR_EXISTS);
    cr_assert_eq(flashq_topic_create(client, "a/b", 1, 0, NULL, 0, 10000, text, sizeof text),
                 FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_topic_list(client, 10000, &topics, &count, text, sizeof text), 0, "%s", text);
    cr_assert_eq(count, 2);
    flashq_free(topics);
    flashq_producer *producer = open_producer(client, "a.b");
    for (int i = 0; i < 10; i++) {
        (void)live_send(producer, 1, "v");
    }
    cr_assert_eq(flashq_topic_trim(client, "a.b", 1, 4, 10000, &start, text, sizeof text), 0, "%s", text);
    cr_assert_eq(start, 4);
    cr_assert_eq(flashq_topic_describe(client, "a.b", 10000, &topic, &partitions, &count, text,
                                       sizeof text),
                 0, "%s", text);
    cr_assert_eq(count, 2);
    cr_assert_eq(partitions[1].start_offset, 4);
    cr_assert_eq(partitions[1].end_offset, 10);
    cr_assert_eq(strlen(topic.id), 36);
    flashq_free(partitions);
    flashq_pair pair = {"retention.bytes", "1GiB"};
    cr_assert_eq(flashq_topic_alter(client, "a.b", &pair, 1, 10000, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_topic_config(client, "a.b", 10000, &entries, &count, text, sizeof text), 0);
    bool is_altered = false;
    for (size_t i = 0; i < count; i++) {
        is_altered |= strcmp(entries[i].key, "retention.bytes") == 0 &&
                      strcmp(entries[i].value, "1GiB") == 0 && strcmp(entries[i].source, "topic") == 0;
    }
    cr_assert(is_altered);
    flashq_free(entries);
    cr_assert_eq(flashq_topic_add_partitions(client, "a.b", 3, 10000, text, sizeof text), 0, "%s", text);
    cr_assert_eq(flashq_cluster_counters(client, 10000, &counters, &count, text, sizeof text), 0);
    cr_assert_gt(count, 5);
    flashq_free(counters);
    cr_assert_eq(flashq_producer_open(client, "absent", 10000, &producer, text, sizeof text),
                 FLASHQ_ERR_NOT_FOUND);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* A batch that the broker refuses fails alone; what was behind it in flight is numbered anew and sent again. */
over_both(produce, a_refused_batch_costs_nobody_else_anything)
{
    enum { COUNT = 2000 };
    static int64_t offsets[COUNT];
    struct live_broker b;
    char text[512];
    flashq_report reports[64];
    flashq_consumer *consumer;
    int seen = 0, failed = 0;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "reports", "all", "batch.max.bytes", "1024", NULL);
    flashq_pair off = {"timestamp.max.ahead", "-1"}, hour = {"timestamp.max.ahead", "1h"};
    cr_assert_eq(flashq_topic_create(client, "t", 1, 0, &off, 1, 10000, text, sizeof text), 0, "%s", text);
    flashq_producer *producer = open_producer(client, "t");
    cr_assert_eq(flashq_topic_alter(client, "t", &hour, 1, 10000, text, sizeof text), 0, "%s", text);
    for (intptr_t i = 0; i < COUNT; i++) {
        char value[600]; /* one record a batch */
        int number = (int)i;
        memset(value, 'v', sizeof value);
        memcpy(value, &number, sizeof number);
        flashq_record record = record_of(value, sizeof value);
        record.user = (void *)i;
        record.timestamp_ms = i % 50 == 7 ? fq_wall_ms() + 3 * 3600 * 1000 : 1000 + i;
        cr_assert_eq(flashq_send(producer, &record, 10000), 0);
    }
    while (seen < COUNT) {
        int count = flashq_producer_poll(producer, reports, 64, 10000);
        cr_assert_gt(count, 0, "%d of %d", seen, COUNT);
        for (int i = 0; i < count; i++, seen++) {
            intptr_t number = (intptr_t)reports[i].user;
            offsets[number] = reports[i].offset;
            if (number % 50 == 7) {
                cr_assert_eq(reports[i].status, FLASHQ_ERR_TIMESTAMP);
                cr_assert_eq(reports[i].persisted, FLASHQ_PERSISTED_NO);
                failed++;
            } else {
                cr_assert_eq(reports[i].status, 0, "%d: %s", (int)number,
                             flashq_error_name(reports[i].status));
            }
        }
    }
    cr_assert_eq(failed, COUNT / 50);
    cr_assert_eq(flashq_producer_last_error(producer, text, sizeof text), FLASHQ_ERR_TIMESTAMP);
    cr_assert_eq(flashq_consumer_open(client, &consumer, text, sizeof text), 0);
    cr_assert_eq(flashq_consumer_assign(consumer, "t", 0, 0, 10000, text, sizeof text), 0, "%s", text);
    int64_t expected = 0;
    for (int number = 0; number < COUNT;) {
        const flashq_message *message;
        int stored;
        if (number % 50 == 7) {
            number++;
            continue;
        }
        cr_assert_eq(flashq_consumer_poll(consumer, &message, 1, 10000), 1);
        memcpy(&stored, message->value, sizeof stored);
        cr_assert_eq(stored, number, "in order, none lost, none twice");
        cr_assert_eq(message->offset, expected);
        cr_assert_eq(offsets[number], expected, "where it was acknowledged");
        expected++;
        number++;
    }
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* A record that was written and never answered is reported as maybe stored. */
over_both(produce, a_record_given_up_after_it_was_written_may_be_stored)
{
    struct live_broker b;
    flashq_report report = {0};
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "delivery.timeout.ms", "100", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    (void)live_send(producer, 0, "first");
    live_broker_halt(&b);
    flashq_record record = record_of("given up", 8);
    cr_assert_eq(flashq_send_sync(producer, &record, 10000, &report), FLASHQ_ERR_TIMED_OUT);
    cr_assert_eq(report.persisted, FLASHQ_PERSISTED_MAYBE);
    cr_assert_eq(report.offset, -1);
    live_broker_go_on(&b);
    cr_assert_eq(live_send(producer, 0, "after"), 2, "it was stored after all, and nothing is confused");
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* Numbers of slots begin anew with every connection: an old one must not take away what has it now. */
over_both(handles, a_producer_idle_since_the_restart_takes_nothing_from_the_others)
{
    struct live_broker b;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    live_topic(client, "t", 1);
    flashq_producer *idle = open_producer(client, "t"), *busy = open_producer(client, "t");
    cr_assert_eq(live_send(idle, 0, "first slot"), 0);
    cr_assert_eq(live_send(busy, 0, "second slot"), 1);
    live_broker_kill(&b);
    live_broker_start_beside(&b, client);
    cr_assert_eq(live_send(busy, 0, "first slot of the new connection"), 2);
    cr_assert_eq(flashq_producer_close(idle, 1000, NULL), 0);
    cr_assert_eq(live_send(busy, 0, "still heard"), 3);
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* Sequences count to INT32_MAX and go on at 0: in the middle of a batch, over a restart, and again. */
over_both(numbers, sequences_wrap_around)
{
    struct live_broker b;
    flashq_report report;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, "linger.ms", "20", "reports", "all", NULL);
    live_topic(client, "t", 1);
    flashq_producer *producer = open_producer(client, "t");
    struct fq_ppart *ppart = &fq_api_producer(producer)->pparts[0];
    ppart->next_sequence = INT32_MAX - 5; /* nothing was sent: it opens with this */
    flashq_record record = record_of("value", 5);
    for (int64_t i = 0; i < 20; i += 4) {
        for (int j = 0; j < 3; j++) {
            cr_assert_eq(flashq_send(producer, &record, 1000), 0);
        }
        cr_assert_eq(flashq_send_sync(producer, &record, 10000, &report), 0); /* a batch of 4 */
        cr_assert_eq(report.offset, i + 3);
        cr_assert_eq(report.duplicate, 0);
        if (i == 4) { /* the broker recovers a sequence that wrapped */
            live_broker_kill(&b);
            live_broker_start_beside(&b, client);
        }
    }
    cr_assert_eq(ppart->next_sequence, 20 - 6, "INT32_MAX - 5 to INT32_MAX are six");
    cr_assert_eq(ppart->epoch, 0, "and nothing had to be numbered anew");
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}

/* A refusal raises the epoch; after the last one the producer goes on under another number. */
over_both(numbers, epochs_run_out)
{
    struct live_broker b;
    char text[512];
    flashq_report report;
    live_broker_begin(&b);
    flashq_client *client = live_client(&b, *transport, NULL);
    flashq_pair off = {"timestamp.max.ahead", "-1"}, hour = {"timestamp.max.ahead", "1h"};
    cr_assert_eq(flashq_topic_create(client, "t", 1, 0, &off, 1, 10000, text, sizeof text), 0, "%s", text);
    flashq_producer *producer = open_producer(client, "t");
    cr_assert_eq(flashq_topic_alter(client, "t", &hour, 1, 10000, text, sizeof text), 0, "%s", text);
    struct fq_ppart *ppart = &fq_api_producer(producer)->pparts[0];
    int64_t first_id = ppart->producer_id;
    ppart->epoch = INT16_MAX - 1;
    for (int64_t i = 0; i < 4; i++) {
        cr_assert_eq(live_send(producer, 0, "taken"), i);
        flashq_record record = record_of("refused", 7);
        record.timestamp_ms = fq_wall_ms() + 3 * 3600 * 1000;
        cr_assert_eq(flashq_send_sync(producer, &record, 10000, &report), FLASHQ_ERR_TIMESTAMP);
    }
    cr_assert_neq(ppart->producer_id, first_id);
    cr_assert_eq(ppart->epoch, 2, "after the first two epochs: 0, 1, 2");
    (void)flashq_client_close(client, 1000);
    live_broker_end(&b);
}
