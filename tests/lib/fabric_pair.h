/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two fabrics of one back end in one process, a listener, and connections between them: what the
 * conformance suite runs on. Every wait is bounded; a wait that fails aborts the test with its
 * place.
 */
#ifndef FQ_TESTS_FABRIC_PAIR_H
#define FQ_TESTS_FABRIC_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

enum pair_backend { PAIR_SHM, PAIR_TCP, PAIR_SHM_FAULTY, PAIR_TCP_FAULTY, PAIR_BACKENDS };

/* An event with its bytes copied, so that it outlives polls. */
struct pair_event {
    struct fq_event event;
    uint8_t *bytes;
    char *text;
};

struct pair_side {
    struct fq_fabric *fabric;
    struct pair_event *events;
    size_t events_count, events_capacity;
};

struct pair {
    enum pair_backend backend;
    struct fq_listener *listener;
    struct fq_endpoint endpoint;
    struct pair_side client, server;
    struct fq_conn *c, *s; /* after pair_connect */
    char directory[64];
};

const char *pair_name(enum pair_backend backend);
enum fq_transport pair_transport(enum pair_backend backend);
void pair_open(struct pair *pair, enum pair_backend backend);
void pair_open_with(struct pair *pair, enum pair_backend backend,
                    const struct fq_fabric_params *params);
struct fq_fabric *pair_fabric(enum pair_backend backend, const struct fq_fabric_params *params);
void pair_close(struct pair *pair);
/* Connects pair->c and pair->s; both CONNECTED events are consumed. */
void pair_connect(struct pair *pair);
/* Another connection. */
void pair_connect_more(struct pair *pair, struct fq_conn **ret_c, struct fq_conn **ret_s);

/* Polls one side once, keeping its events. */
void pair_poll(struct pair_side *side);
/* Polls both sides until the connection has such an event and takes it; false after `ms`. */
bool pair_wait_for(struct pair *pair, struct fq_conn *conn, enum fq_event_type type, int ms,
                   struct pair_event *ret);
/* As above within 5 s or abort. The event's bytes belong to the caller (pair_event_free). */
struct pair_event pair_wait(struct pair *pair, struct fq_conn *conn, enum fq_event_type type);
void pair_event_free(struct pair_event *event);
/* Whether such an event is waiting already. */
bool pair_has(const struct pair_side *side, const struct fq_conn *conn, enum fq_event_type type);
/* Waits for an incoming connection. */
struct fq_incoming *pair_incoming(struct pair *pair);

/* Grants from `from` and carries the token to the other end, which opens it. */
void pair_window(struct pair *pair, struct fq_conn *from, struct fq_conn *to,
                 struct fq_region *region, enum fq_rights rights, struct fq_window **ret_window,
                 struct fq_remote **ret_remote);

/* Open descriptors and lines of /proc/self/maps of this process. */
size_t count_fds(void);
size_t count_maps(void);

#endif
