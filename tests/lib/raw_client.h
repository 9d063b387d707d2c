/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker and clients in one thread: the broker is stepped, the client speaks the control protocol
 * and the fabric by hand, so that a test can say every wrong thing too. Aborts (with a line on
 * stderr) when something that must work does not.
 */
#ifndef FQ_TESTS_RAW_CLIENT_H
#define FQ_TESTS_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker.h"
#include "fabric/faulty.h"
#include "options.h"
#include "wire/protocol_codec.h"

struct test_broker {
    char dir[64]; /* below /dev/shm; removed by test_broker_end */
    struct fq_options options;
    struct fq_broker *broker; /* NULL while stopped */
    int64_t ahead_us; /* its clock of steps, before the real one: a test may move it on */
    bool has_threads; /* set before the start: the broker runs by itself and is not stepped */
    /* Set before the start: the shards' fabrics follow this plan (not with has_threads). */
    const struct fq_fault_plan *faults;
    struct fq_fabric *faulty[2]; /* the first shard's, shm and tcp: for changing the plan */
};

/* A fresh directory, options for tests (one shard, pmem, both listeners on throw-away addresses)
 * and a running broker. */
void test_broker_begin(struct test_broker *t);
void test_broker_prepare(
    struct test_broker *t); /* without starting it: change t->options, then start */
void test_broker_start(struct test_broker *t);
int test_broker_try_start(struct test_broker *t, struct fq_err *err);
void test_broker_stop(struct test_broker *t);
/* As a kill would leave it: nothing is closed in order. Leaks what the process would have lost. */
void test_broker_forget(struct test_broker *t);
void test_broker_end(struct test_broker *t);

struct raw_message {
    struct raw_message *next;
    struct fq_msg msg; /* points into bytes */
    size_t length;
    uint8_t bytes[];
};

struct raw_client {
    struct test_broker *t;
    struct fq_fabric *fabric;
    struct fq_conn *conn; /* NULL once disconnected */
    struct raw_message *inbox;
    struct raw_message *last; /* the answer that raw_ask returned; kept until the next */
    uint32_t correlation;
    uint32_t notifies[4096]; /* immediates received */
    size_t notifies_count;
    int disconnect_status;
    char disconnect_text[512];
    bool is_connected;

    /* after raw_session */
    struct fq_session_open_answer session;
    struct fq_remote *views;
    /* after raw_ring */
    struct fq_ring_open_answer ring;
    struct fq_remote *window;
    struct fq_region *acks, *source;
    struct fq_window *acks_window;
    uint64_t written; /* bytes put into the ring */
    uint64_t acks_seen;
    uint32_t entries;
    /* after raw_push_setup */
    struct fq_push_setup_answer pushes;
    struct fq_region *heads;
    struct fq_window *heads_window;
    struct fq_remote *credits;
};

/* A push as its client sees it. */
struct raw_push {
    uint32_t reader, line;
    struct fq_region *ring;
    struct fq_window *window;
    uint64_t consumed;
    int64_t position_offset;
};

void raw_connect(struct raw_client *c, struct test_broker *t, enum fq_transport transport);
void raw_close(struct raw_client *c);
/* Steps broker and client a few times. */
void raw_pump(struct raw_client *c);
/* Until the condition holds; aborts after a few seconds of that. */
#define RAW_UNTIL(client, condition)                                                               \
    for (int raw_tries = 0; !(condition); raw_tries++) {                                           \
        raw_pump_or_abort(client, raw_tries, #condition);                                          \
    }
void raw_pump_or_abort(struct raw_client *c, int tries, const char *what);

uint32_t raw_send(struct raw_client *c, const void *bytes, size_t length); /* as it is */
/* Sends an encoded request and waits for its answer; NULL when the connection ended instead. */
const struct fq_msg *raw_ask(struct raw_client *c, const uint8_t *bytes, int64_t length);
/* The next message that is not an answer of the given type, if it came. */
const struct fq_msg *raw_next_event(struct raw_client *c, uint16_t type);

void raw_session(struct raw_client *c); /* SESSION_OPEN */
int raw_create_topic(struct raw_client *c, const char *name, uint32_t partitions,
                     const struct fq_config_pair *pairs, size_t pairs_count, struct fq_uuid *ret,
                     struct fq_err *err);
int raw_delete_topic(struct raw_client *c, const char *name, struct fq_err *err);
void raw_ring(struct raw_client *c, uint32_t entries); /* RING_OPEN */
int raw_producer_open(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                      int64_t producer_id, struct fq_producer_open_answer *ret, struct fq_err *err);
/* Builds a batch of `count` records into the ring; `sequence` -1 without producer fields. */
size_t raw_batch(uint8_t *out, size_t capacity, int64_t producer_id, int32_t sequence, int count,
                 int64_t timestamp_ms, const char *value);
/* Writes bytes at the ring's position and notifies. */
void raw_write(struct raw_client *c, uint32_t slot, const void *bytes, size_t length);
void raw_produce(struct raw_client *c, uint32_t slot, int64_t producer_id, int32_t sequence,
                 int count, const char *value);
/* The next acknowledgement, waited for. */
struct fq_ack_entry raw_ack(struct raw_client *c);
uint64_t raw_consumed(const struct raw_client *c);

/* ---- consuming */
int raw_reader_open(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                    struct fq_reader_open_answer *ret, struct fq_err *err);
int raw_segment_open(struct raw_client *c, uint32_t reader, int64_t offset,
                     struct fq_segment_open_answer *ret, struct fq_err *err);
void raw_arm(struct raw_client *c, uint32_t reader, int64_t offset);
/* Whether a notify with this immediate has come since the last call for it. */
bool raw_was_notified(struct raw_client *c, uint32_t imm);
/* The view line, read over shm (its CRC is checked). */
struct fq_view raw_view(struct raw_client *c, uint32_t line);
int raw_trim(struct raw_client *c, const char *topic, uint32_t partition, int64_t before,
             int64_t *ret_start, struct fq_err *err);

/* ---- being pushed to */
int raw_push_setup(struct raw_client *c, uint32_t lines, struct fq_err *err);
/* A ring of its own, and a push into it; raw_push_end frees the ring. */
int raw_push_open(struct raw_client *c, uint32_t reader, uint32_t line, int64_t offset,
                  uint64_t ring_bytes, struct raw_push *ret, struct fq_err *err);
int raw_push_close(struct raw_client *c, struct raw_push *push); /* PUSH_CLOSE; its status */
void raw_push_end(struct raw_push *push);
struct fq_push_head raw_push_head(const struct raw_client *c, uint32_t line);
/* Writes the word and notifies. */
void raw_push_credit(struct raw_client *c, uint32_t line, uint64_t consumed);
void raw_notify(struct raw_client *c, uint32_t imm);

/* The counter's value, by INFO. */
int64_t raw_counter(struct raw_client *c, const char *name);

#endif
