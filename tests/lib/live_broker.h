/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole broker that one thread of the test steps, so that a client with blocking calls can be tried
 * against it: it can be halted as SIGSTOP would, killed, started again.
 */
#ifndef FQ_TESTS_LIVE_BROKER_H
#define FQ_TESTS_LIVE_BROKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "fabric/faulty.h"
#include "flashq/flashq.h"
#include "raw_client.h"

struct live_broker {
    struct test_broker t;
    pthread_t thread;
    _Atomic int wanted;   /* 0: end, 1: step, 2: stand still */
    _Atomic int standing;
    bool is_running;
    char brokers[160];    /* both endpoints, shm first */
    char shm[160], tcp[160];
};

/* Prepares; change b->t.options, then start. */
void live_broker_prepare(struct live_broker *b);
void live_broker_start(struct live_broker *b);
/* The same while the client's threads stand still: a broker that finds data forks (to look at its metadata), and
 * under AddressSanitizer the child stops for good if another thread was allocating. */
void live_broker_start_beside(struct live_broker *b, flashq_client *client);
void live_broker_begin(struct live_broker *b); /* both */
/* Stands still: connections stay open, nothing is answered. */
void live_broker_halt(struct live_broker *b);
void live_broker_go_on(struct live_broker *b);
/* As kill -9, or in order; start again with live_broker_start. The tcp port stays. */
void live_broker_kill(struct live_broker *b);
void live_broker_stop(struct live_broker *b);
void live_broker_end(struct live_broker *b);

/* A client of the broker over "shm" or "tcp" (consumers pull), "shm+push" or "tcp+push", with more keys: pairs, ended by NULL. Aborts on an error. */
flashq_client *live_client(struct live_broker *b, const char *transport, ...);
/* The same whose fabrics follow a fault plan; *ret_fabric (the last one made) for changing it. */
struct faulty_client {
    flashq_client *client;
    struct fq_fault_plan plan;
    struct fq_fabric *fabric;
};
void live_faulty_client(struct live_broker *b, const char *transport, struct faulty_client *f, ...);
void live_topic(flashq_client *client, const char *topic, int partitions);
/* Sends one value to a partition and waits; aborts unless it is acknowledged. Returns its offset. */
int64_t live_send(flashq_producer *producer, int32_t partition, const char *value);

#endif
