/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks the protocol well enough to be let in, and then misbehaves:
 *
 *   hostile_peer ENDPOINT TOPIC SEED MODE
 *     flip      sends good batches while a second thread rewrites the ring that they lie in
 *     garbage   notifies random bytes as batches, on right and wrong slots
 *     flood     notifies without waiting for any acknowledgement, far beyond its credits
 *     messages  sends control messages with random changes
 *     tokens    opens rings with random and foreign tokens
 *
 * Prints one line "accepted N refused N disconnected N". Exit 0 however the broker treated it; 1 when it
 * could not even begin. Over tcp `flip` cannot reach the broker's memory and is refused as usage.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>

#include "base/clock.h"
#include "base/random.h"
#include "fabric/fabric.h"
#include "wire/protocol_codec.h"
#include "wire/record_batch.h"

#define ENTRIES 64u
#define RUN_US 1500000

struct peer {
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_region *acks, *source;
    struct fq_window *acks_window;
    struct fq_remote *ring;
    struct fq_uuid topic;
    struct fq_prng prng;
    uint64_t ring_bytes, position, sent, acked;
    uint32_t slot;
    int32_t sequence;
    bool is_connected, is_gone;
    uint8_t answer[FQ_LIMIT_CONTROL_BYTES];
    size_t answer_bytes;
    unsigned accepted, refused, disconnected;
};

static _Atomic bool is_over;

/* Moves events for at most `for_us`; stops early when an answer came or the peer is gone. */
static void turn(struct peer *p, int64_t for_us)
{
    int64_t until = fq_mono_us() + for_us;
    p->answer_bytes = 0;
    do {
        struct fq_event events[16];
        int count = fq_fabric_poll(p->fabric, events, 16);
        for (int i = 0; i < count; i++) {
            if (events[i].type == FQ_EVENT_CONNECTED) {
                p->is_connected = true;
            } else if (events[i].type == FQ_EVENT_DISCONNECTED) {
                p->is_gone = true;
            } else if (events[i].type == FQ_EVENT_MESSAGE && events[i].length <= sizeof p->answer) {
                memcpy(p->answer, events[i].data, events[i].length);
                p->answer_bytes = events[i].length;
            }
        }
        if (p->acks) {
            const struct fq_ack_head *head = fq_region_base(p->acks);
            const struct fq_ack_entry *entries = (const void *)(head + 1);
            uint64_t tail = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&head->tail,
                                                 memory_order_acquire);
            for (; p->acked < tail; p->acked++) {
                if (entries[p->acked % ENTRIES].status == 0) {
                    p->accepted++;
                } else {
                    p->refused++;
                }
            }
        }
    } while (!p->is_gone && p->answer_bytes == 0 && fq_mono_us() < until);
}

/* Sends a request of `length` bytes and waits for an answer with status 0. */
static bool ask(struct peer *p, const void *message, int64_t length, struct fq_msg *ret)
{
    if (length < 0 || fq_conn_send(p->conn, message, (size_t)length) < 0) {
        return false;
    }
    turn(p, 2000000);
    return p->answer_bytes > 0 && fq_msg_decode(p->answer, p->answer_bytes, ret, NULL) == 0 &&
           ret->status == 0;
}

static void hang_up(struct peer *p)
{
    fq_remote_close(p->ring);
    p->ring = NULL;
    fq_conn_close(p->conn);
    p->conn = NULL;
    p->acks_window = NULL;
}

static bool connect_to(struct peer *p, const struct fq_endpoint *endpoint)
{
    uint8_t hello[FQ_HELLO_WIRE_BYTES], out[1024];
    struct fq_msg msg;
    fq_hello_encode(hello, &(struct fq_hello){.version_min = FQ_PROTOCOL_VERSION_MIN,
                                              .version_max = FQ_PROTOCOL_VERSION_MAX});
    struct fq_connect_params params = {.endpoint = endpoint, .shard = 0, .hello = hello,
                                       .hello_bytes = sizeof hello,
                                       .deadline_us = fq_mono_us() + 5000000};
    memset(fq_region_base(p->acks), 0, fq_region_bytes(p->acks)); /* the last connection's count */
    p->is_gone = p->is_connected = false;
    p->sent = p->acked = p->position = 0;
    p->sequence = 0;
    memset(fq_region_base(p->acks), 0, fq_region_bytes(p->acks)); /* of the last connection */
    if (fq_conn_open(p->fabric, &params, &p->conn, NULL) != 0) {
        return false;
    }
    for (int i = 0; i < 500 && !p->is_connected && !p->is_gone; i++) {
        turn(p, 10000);
    }
    struct fq_session_open session = {.client_id = {"hostile", 7}, .software = {"test", 4}};
    return p->is_connected && ask(p, out, fq_encode_session_open(out, sizeof out, 1, &session), &msg);
}

static bool find_topic(struct peer *p, const char *topic)
{
    uint8_t out[1024], names[512];
    struct fq_msg msg;
    struct fq_str name = {topic, strlen(topic)};
    struct fq_metadata metadata = {.cursor = {"", 0}};
    struct fq_metadata_answer answer;
    struct fq_metadata_item item;
    if (fq_strings_list(names, sizeof names, &name, 1, &metadata.names) != 0 ||
        !ask(p, out, fq_encode_metadata(out, sizeof out, 2, &metadata), &msg) ||
        fq_decode_metadata_answer(&msg, &answer, NULL) != 0) {
        return false;
    }
    while (fq_metadata_next(&answer.items, &item) > 0) {
        if (item.kind == FQ_METADATA_TOPIC && item.topic.status == 0) {
            p->topic = item.topic.id;
            return true;
        }
    }
    return false;
}

static bool open_ring(struct peer *p)
{
    uint8_t out[1024];
    struct fq_msg msg;
    struct fq_ring_open ring = {.entries = ENTRIES};
    struct fq_ring_open_answer answer;
    if (fq_window_grant(p->conn, p->acks, 0, fq_region_bytes(p->acks), FQ_RIGHT_WRITE, &p->acks_window,
                        ring.ack_token, NULL) != 0 ||
        !ask(p, out, fq_encode_ring_open(out, sizeof out, 3, &ring), &msg) ||
        fq_decode_ring_open_answer(&msg, &answer, NULL) != 0) {
        return false;
    }
    p->ring_bytes = answer.window_bytes;
    return fq_remote_open(p->conn, answer.window_token, FQ_RIGHT_WRITE, &p->ring, NULL) == 0;
}

static bool open_slot(struct peer *p, int64_t producer_id)
{
    uint8_t out[1024];
    struct fq_msg msg;
    struct fq_producer_open open = {.topic_id = p->topic, .producer_id = producer_id};
    struct fq_producer_open_answer answer;
    if (!ask(p, out, fq_encode_producer_open(out, sizeof out, 4, &open), &msg) ||
        fq_decode_producer_open_answer(&msg, &answer, NULL) != 0) {
        return false;
    }
    p->slot = answer.slot;
    p->sequence = 0;
    return true;
}

static size_t make_batch(struct peer *p, int64_t producer_id)
{
    struct fq_batch_builder builder;
    char value[300];
    size_t length = (size_t)fq_prng_below(&p->prng, sizeof value);
    memset(value, 'h', sizeof value);
    fq_batch_builder_init(&builder, fq_region_base(p->source), fq_region_bytes(p->source));
    for (int i = 0; i < 4; i++) {
        struct fq_record_in record = {.timestamp_ms = fq_wall_ms(),
                                      .value = {(const uint8_t *)value, length}};
        (void)fq_batch_builder_append(&builder, &record);
    }
    struct fq_batch_finish how = {.producer_id = producer_id, .base_sequence = p->sequence};
    p->sequence += 4;
    return (size_t)fq_batch_builder_finish(&builder, &how);
}

static bool post(struct peer *p, uint32_t slot, size_t length)
{
    struct fq_op ops[2] = {
        {.type = FQ_OP_WRITE, .remote = p->ring, .remote_offset = p->position % p->ring_bytes,
         .region = p->source, .local = fq_region_base(p->source), .length = length},
        {.type = FQ_OP_WRITE_NOTIFY, .imm = slot},
    };
    int taken = fq_conn_post(p->conn, ops, 2);
    if (taken == 2) {
        p->position += length;
        p->sent++;
    }
    return taken == 2;
}

/* ---- modes ---------------------------------------------------------------------------------- */

struct flipper {
    uint8_t *ring;
    uint64_t bytes, seed;
};

static void *flip(void *argument)
{
    struct flipper *f = argument;
    struct fq_prng prng;
    fq_prng_seed(&prng, f->seed);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        volatile uint8_t *byte = f->ring + fq_prng_below(&prng, 16384) % f->bytes;
        uint8_t before = *byte;
        *byte = (uint8_t)fq_prng_next(&prng);
        *byte = before;
    }
    return NULL;
}

static bool begin(struct peer *p, const struct fq_endpoint *endpoint, const char *topic, int64_t id)
{
    return connect_to(p, endpoint) && find_topic(p, topic) && open_ring(p) && open_slot(p, id);
}

static bool run_batches(struct peer *p, const struct fq_endpoint *endpoint, const char *topic,
                        const char *mode)
{
    int64_t until = fq_mono_us() + RUN_US;
    bool has_begun = false;
    while (fq_mono_us() < until) {
        int64_t id = (int64_t)(fq_prng_next(&p->prng) >> 1);
        if (!begin(p, endpoint, topic, id)) {
            hang_up(p);
            p->disconnected++;
            continue;
        }
        has_begun = true;
        pthread_t thread;
        struct flipper flipper = {fq_remote_map(p->ring), p->ring_bytes, fq_prng_next(&p->prng)};
        bool flips = strcmp(mode, "flip") == 0;
        atomic_store(&is_over, false);
        if (flips && (!flipper.ring || pthread_create(&thread, NULL, flip, &flipper) != 0)) {
            return false;
        }
        for (int i = 0; i < 400 && !p->is_gone; i++) {
            size_t length = make_batch(p, id);
            if (strcmp(mode, "garbage") == 0) {
                fq_random_bytes(fq_region_base(p->source), length);
            }
            uint32_t slot = strcmp(mode, "garbage") == 0 && i % 3 == 0
                                ? (uint32_t)fq_prng_next(&p->prng) : p->slot;
            (void)post(p, slot, length);
            while (strcmp(mode, "flood") != 0 && p->sent - p->acked >= ENTRIES / 2 && !p->is_gone &&
                   fq_mono_us() < until) {
                turn(p, 1000);
            }
        }
        turn(p, 20000);
        p->disconnected += p->is_gone;
        atomic_store(&is_over, true);
        if (flips) {
            (void)pthread_join(thread, NULL);
        }
        hang_up(p);
    }
    return has_begun;
}

static bool run_messages(struct peer *p, const struct fq_endpoint *endpoint, const char *topic)
{
    int64_t until = fq_mono_us() + RUN_US;
    bool has_begun = false;
    while (fq_mono_us() < until) {
        if (!begin(p, endpoint, topic, 1)) {
            return has_begun;
        }
        has_begun = true;
        for (int i = 0; i < 200 && !p->is_gone; i++) {
            uint8_t out[2048];
            struct fq_topic_create create = {.name = {"bad", 3}, .partitions = 1};
            int64_t length = i % 2 ? fq_encode_topic_create(out, sizeof out, 9, &create)
                                   : fq_encode_segment_open(out, sizeof out, 9,
                                                            &(struct fq_segment_open){.reader = 7});
            out[fq_prng_below(&p->prng, 2)] = (uint8_t)fq_prng_below(&p->prng, 32);
            for (uint64_t n = fq_prng_below(&p->prng, 4); n > 0; n--) {
                out[fq_prng_below(&p->prng, (uint64_t)length)] = (uint8_t)fq_prng_next(&p->prng);
            }
            length = fq_prng_below(&p->prng, 4) == 0
                         ? (int64_t)fq_prng_below(&p->prng, (uint64_t)length + 1) : length;
            (void)fq_conn_send(p->conn, out, (size_t)length);
            turn(p, 2000);
            p->refused++;
        }
        p->disconnected += p->is_gone;
        hang_up(p);
    }
    return has_begun;
}

static bool run_tokens(struct peer *p, const struct fq_endpoint *endpoint)
{
    for (int i = 0; i < 50; i++) {
        uint8_t out[1024];
        struct fq_msg msg;
        struct fq_ring_open ring = {.entries = i % 2 ? ENTRIES : UINT32_MAX};
        if (!connect_to(p, endpoint)) {
            return false;
        }
        fq_random_bytes(ring.ack_token, sizeof ring.ack_token);
        if (!ask(p, out, fq_encode_ring_open(out, sizeof out, 3, &ring), &msg)) {
            p->refused++;
        }
        p->disconnected += p->is_gone;
        hang_up(p);
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct peer p;
    struct fq_endpoint endpoint;
    struct fq_err err;
    if (argc != 5 || fq_endpoint_parse(argv[1], &endpoint, &err) != 0) {
        (void)fprintf(stderr, "usage: hostile_peer ENDPOINT TOPIC SEED flip|garbage|flood|messages|tokens\n");
        return 2;
    }
    fq_prng_seed(&p.prng, strtoull(argv[3], NULL, 10));
    if (fq_fabric_create(endpoint.transport, NULL, &p.fabric, &err) != 0 ||
        fq_region_create(64 + ENTRIES * 32, 0, &p.acks, &err) != 0 ||
        fq_region_create(65536, FQ_REGION_LOCAL, &p.source, &err) != 0) {
        (void)fprintf(stderr, "hostile_peer: %s\n", err.text);
        return 1;
    }
    bool has_begun = strcmp(argv[4], "messages") == 0 ? run_messages(&p, &endpoint, argv[2])
                     : strcmp(argv[4], "tokens") == 0 ? run_tokens(&p, &endpoint)
                                                      : run_batches(&p, &endpoint, argv[2], argv[4]);
    (void)printf("accepted %u refused %u disconnected %u\n", p.accepted, p.refused, p.disconnected);
    fq_fabric_destroy(p.fabric);
    fq_region_unref(p.acks);
    fq_region_unref(p.source);
    return has_begun ? 0 : 1;
}
