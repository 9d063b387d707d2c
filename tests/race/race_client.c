/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client used by many threads at once, with its io thread, against a broker in a thread of its own: two
 * send through one producer, one polls its reports, one consumes, one opens and closes handles, one asks.
 * Exits 0 when every record came back once; ThreadSanitizer judges the rest.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "live_broker.h"

enum { RECORDS = 3000, SENDERS = 2 };

static flashq_client *client;
static flashq_producer *producer;
static _Atomic int senders_left = SENDERS, reports_seen;

static void check(int condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "race_client: %s\n", what);
        exit(1);
    }
}

static void *send_records(void *context)
{
    for (int i = 0; i < RECORDS; i++) {
        int value = i * SENDERS + (int)(intptr_t)context;
        flashq_record record = {.struct_bytes = sizeof record, .partition = FLASHQ_PARTITION_ANY,
                                .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .value = &value,
                                .value_length = sizeof value};
        check(flashq_send(producer, &record, 20000) == 0, "a record was not taken");
        if (i % 500 == 0) {
            check(flashq_send_sync(producer, &record, 20000, NULL) == 0, "a record was not stored");
        }
        if (i % 700 == 0) {
            check(flashq_flush(producer, 20000) == 0, "not flushed");
        }
    }
    atomic_fetch_sub(&senders_left, 1);
    return NULL;
}

static int total(void)
{
    return SENDERS * (RECORDS + RECORDS / 500);
}

static void *poll_reports(void *context)
{
    flashq_report reports[32];
    (void)context;
    while (atomic_load(&reports_seen) < total()) {
        int count = flashq_producer_poll(producer, reports, 32, 20);
        check(count >= 0, "polling reports failed");
        for (int i = 0; i < count; i++) {
            check(reports[i].status == 0, "a record failed");
        }
        atomic_fetch_add(&reports_seen, count);
    }
    return NULL;
}

static void *consume(void *context)
{
    char text[256];
    flashq_consumer *consumer;
    int seen = 0;
    (void)context;
    check(flashq_consumer_open(client, &consumer, text, sizeof text) == 0, text);
    check(flashq_consumer_assign(consumer, "t", -1, FLASHQ_OFFSET_START, 20000, text, sizeof text) == 0,
          text);
    const flashq_message *kept = NULL;
    while (seen < total()) {
        const flashq_message *messages[64];
        int count = flashq_consumer_poll(consumer, messages, 64, 20000);
        check(count > 0, "no message came");
        flashq_message_unref(kept);
        kept = flashq_message_ref(messages[0]);
        seen += count;
    }
    (void)flashq_consumer_close(consumer, 1000);
    flashq_message_unref(kept);
    return NULL;
}

static void *come_and_go(void *context)
{
    char text[256];
    (void)context;
    while (atomic_load(&senders_left) > 0) {
        flashq_producer *other;
        flashq_topic_info *topics;
        flashq_producer_stats stats = {.struct_bytes = sizeof stats};
        size_t count;
        check(flashq_producer_open(client, "u", 20000, &other, text, sizeof text) == 0, text);
        (void)live_send(other, 0, "x");
        check(flashq_producer_close(other, 20000, NULL) == 0, "not closed");
        check(flashq_topic_list(client, 20000, &topics, &count, text, sizeof text) == 0, text);
        flashq_free(topics);
        check(flashq_producer_get_stats(producer, &stats) == 0, "no stats");
        (void)usleep(500);
    }
    return NULL;
}

static void run(struct live_broker *b, const char *transport)
{
    char text[256];
    pthread_t threads[SENDERS + 3];
    client = live_client(b, transport, "reports", "all", "queue.bytes", "1MiB", NULL);
    atomic_store(&senders_left, SENDERS);
    atomic_store(&reports_seen, 0);
    live_topic(client, "t", 2);
    live_topic(client, "u", 1);
    check(flashq_producer_open(client, "t", 20000, &producer, text, sizeof text) == 0, text);
    for (intptr_t i = 0; i < SENDERS; i++) {
        check(pthread_create(&threads[i], NULL, send_records, (void *)i) == 0, "thread");
    }
    check(pthread_create(&threads[SENDERS], NULL, poll_reports, NULL) == 0, "thread");
    check(pthread_create(&threads[SENDERS + 1], NULL, consume, NULL) == 0, "thread");
    check(pthread_create(&threads[SENDERS + 2], NULL, come_and_go, NULL) == 0, "thread");
    for (size_t i = 0; i < SENDERS + 3; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    check(flashq_topic_delete(client, "t", 20000, text, sizeof text) == 0, text);
    check(flashq_topic_delete(client, "u", 20000, text, sizeof text) == 0, text);
    check(flashq_client_close(client, 5000) == 0, "something was left undelivered");
}

/* A call that waits while another thread closes the client ends with CLOSED. */
static void *wait_for_ever(void *context)
{
    const flashq_message *message;
    int code = flashq_consumer_poll(context, &message, 1, 60000);
    check(code == FLASHQ_ERR_CLOSED, "the waiting call did not end with CLOSED");
    return NULL;
}

static void close_under_a_waiter(struct live_broker *b)
{
    char text[256];
    pthread_t waiter;
    flashq_consumer *consumer;
    client = live_client(b, "shm", NULL);
    check(flashq_client_wait(client, 20000, text, sizeof text) == 0, text);
    check(flashq_consumer_open(client, &consumer, text, sizeof text) == 0, text);
    check(pthread_create(&waiter, NULL, wait_for_ever, consumer) == 0, "thread");
    (void)usleep(50000);
    (void)flashq_client_close(client, 1000);
    (void)pthread_join(waiter, NULL);
}

int main(void)
{
    static struct live_broker b;
    live_broker_begin(&b);
    run(&b, "shm");
    run(&b, "tcp");
    close_under_a_waiter(&b);
    live_broker_end(&b);
    return 0;
}
