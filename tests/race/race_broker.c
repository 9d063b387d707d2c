/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker with all its threads under ThreadSanitizer: two shards, clients on both transports that
 * produce, read, are pushed to, ask for counters and metadata, create and delete topics at the same time, then a
 * stop with a client connected. Exits 0 when every acknowledged batch was counted and nothing
 * raced.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "push_reader.h"
#include "wire/record_batch.h"

#define PRODUCERS   4
#define SUBSCRIBERS 4
#define BATCHES     400

static struct test_broker t;
static struct fq_uuid topic;
static _Atomic int accepting = 1;
static _Atomic int failures;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition);         \
            atomic_fetch_add(&failures, 1);                                                        \
        }                                                                                          \
    } while (0)

/* The main thread's share of a broker. */
static void *accept_connections(void *context)
{
    (void)context;
    while (atomic_load(&accepting)) {
        if (fq_broker_accept_step(t.broker) == 0) {
            (void)sched_yield();
        }
    }
    return NULL;
}

/* A session on the shard that owns the partition: connections go to the shards in turn. */
static void connect_to(struct raw_client *c, enum fq_transport transport, uint32_t partition,
                       struct fq_producer_open_answer *opened, int64_t producer_id)
{
    struct fq_err err;
    for (;;) {
        raw_connect(c, &t, transport);
        raw_session(c);
        raw_ring(c, 16);
        if (raw_producer_open(c, &topic, partition, producer_id, opened, &err) == 0) {
            return;
        }
        EXPECT(err.code == FLASHQ_ERR_NOT_LEADER);
        raw_close(c);
    }
}

static void *produce(void *context)
{
    uint32_t number = *(const uint32_t *)context, partition = number % 2;
    int64_t id = 100 + number, last = -1;
    struct raw_client c;
    struct fq_producer_open_answer opened;
    struct fq_reader_open_answer reader;
    struct fq_err err;
    connect_to(&c, number < 2 ? FQ_TRANSPORT_SHM : FQ_TRANSPORT_TCP, partition, &opened, id);
    EXPECT(raw_reader_open(&c, &topic, partition, &reader, &err) == 0);
    for (int32_t i = 0; i < BATCHES; i++) {
        uint8_t batch[1024];
        size_t length = raw_batch(batch, sizeof batch, id, i, 1, 1000 * (1 + i), "value");
        raw_write(&c, opened.slot, batch, length);
        struct fq_ack_entry ack = raw_ack(&c);
        EXPECT(ack.status == 0 && ack.base_offset > last);
        last = ack.base_offset;
        if (i % 50 == 0) {
            raw_arm(&c, reader.reader, 0);
            RAW_UNTIL(&c, raw_was_notified(&c, reader.reader));
        }
    }
    raw_close(&c);
    return NULL;
}

/* The offset after the last whole batch among the bytes that came. */
static int64_t pushed_end(const struct push_reader *r, uint64_t *at)
{
    static _Thread_local int64_t end;
    struct fq_batch_header header;
    end = *at == 0 ? 0 : end;
    while (r->seen - *at >= FQ_BATCH_HEADER_BYTES) {
        int code = fq_batch_header_read(r->bytes + *at, (size_t)(r->seen - *at), &header, NULL);
        EXPECT(code == 0 && header.base_offset == end);
        if (code != 0 || fq_batch_total_bytes(&header) > r->seen - *at) {
            break;
        }
        *at += fq_batch_total_bytes(&header);
        end += header.records_count;
    }
    return end;
}

/* Is pushed all that two producers append meanwhile, into the smallest ring. */
static void *subscribe(void *context)
{
    uint32_t number = *(const uint32_t *)context, partition = number % 2;
    struct raw_client c;
    struct fq_reader_open_answer reader;
    struct push_reader r;
    struct fq_err err;
    int64_t end = 0;
    uint64_t at = 0;
    for (;;) {
        raw_connect(&c, &t, number < 2 ? FQ_TRANSPORT_SHM : FQ_TRANSPORT_TCP);
        raw_session(&c);
        if (raw_reader_open(&c, &topic, partition, &reader, &err) == 0) {
            break;
        }
        EXPECT(err.code == FLASHQ_ERR_NOT_LEADER);
        raw_close(&c);
    }
    EXPECT(raw_push_setup(&c, 2, &err) == 0);
    push_reader_open(&r, &c, &topic, partition, 1, 0, FQ_LIMIT_PUSH_RING_BYTES_MIN);
    for (int tries = 0; end < PRODUCERS / 2 * BATCHES && atomic_load(&failures) == 0; tries++) {
        tries = push_reader_take(&r) > 0 ? 0 : tries;
        end = pushed_end(&r, &at);
        push_reader_credit(&r, 0);
        raw_pump_or_abort(&c, tries, "pushed records");
    }
    EXPECT(end == PRODUCERS / 2 * BATCHES);
    push_reader_end(&r);
    raw_close(&c);
    return NULL;
}

static void *administer(void *context)
{
    struct raw_client c;
    struct fq_err err;
    (void)context;
    raw_connect(&c, &t, FQ_TRANSPORT_TCP);
    raw_session(&c);
    for (int i = 0; i < 20; i++) {
        char name[16];
        int64_t start;
        (void)snprintf(name, sizeof name, "topic-%d", i % 3);
        EXPECT(raw_create_topic(&c, name, 4, NULL, 0, NULL, &err) == 0);
        EXPECT(raw_trim(&c, name, (uint32_t)i % 4, -1, &start, &err) == 0);
        EXPECT(raw_counter(&c, "topics") >= 1);
        EXPECT(raw_delete_topic(&c, name, &err) == 0);
    }
    raw_close(&c);
    return NULL;
}

static void create_topic(void)
{
    struct raw_client c;
    struct fq_err err;
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    EXPECT(raw_create_topic(&c, "events", 2, NULL, 0, &topic, &err) == 0);
    raw_close(&c);
}

int main(void)
{
    pthread_t acceptor, producers[PRODUCERS], subscribers[SUBSCRIBERS], admin;
    uint32_t numbers[PRODUCERS];
    struct raw_client c;
    test_broker_prepare(&t);
    t.options.shards = 2;
    t.options.flush = 2; /* sync: the flusher has its part too */
    t.has_threads = true;
    test_broker_start(&t);
    (void)pthread_create(&acceptor, NULL, accept_connections, NULL);
    create_topic();
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        numbers[i] = i;
        (void)pthread_create(&producers[i], NULL, produce, &numbers[i]);
    }
    for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
        (void)pthread_create(&subscribers[i], NULL, subscribe, &numbers[i]);
    }
    (void)pthread_create(&admin, NULL, administer, NULL);
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        (void)pthread_join(producers[i], NULL);
    }
    for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
        (void)pthread_join(subscribers[i], NULL);
    }
    (void)pthread_join(admin, NULL);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    EXPECT(raw_counter(&c, "append.batches") == PRODUCERS * BATCHES);
    EXPECT(raw_counter(&c, "topics") == 1);
    EXPECT(raw_counter(&c, "push.bytes") == 2 * raw_counter(&c, "append.bytes"));
    EXPECT(raw_counter(&c, "push.open") == 0);
    atomic_store(&accepting, 0);
    (void)pthread_join(acceptor, NULL);
    test_broker_stop(&t); /* with a client connected */
    raw_close(&c);
    test_broker_end(&t);
    (void)printf("%d failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
