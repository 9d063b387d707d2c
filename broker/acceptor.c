/* SPDX-License-Identifier: Apache-2.0 */
/* See acceptor.h. Over shared memory only the broker's own user and root are let in. */
#include "acceptor.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "wire/protocol_codec.h"

#define ACCEPTED_PER_STEP 64
#define WARNING_PAUSE_US  100000

void fq_acceptor_add(struct fq_acceptor *acceptor, struct fq_listener *listener)
{
    acceptor->listeners[acceptor->listeners_count++] = listener;
}

static void refuse(struct fq_acceptor *acceptor, struct fq_incoming *incoming, int code,
                   const char *text)
{
    fq_count(&acceptor->counters, FQ_COUNT_SESSIONS_REFUSED);
    int64_t now_us = fq_mono_us();
    bool is_loud = now_us >= acceptor->next_warning_us;
    if (is_loud) {
        acceptor->next_warning_us = now_us + WARNING_PAUSE_US;
    }
    fq_logf(is_loud ? FQ_LOG_WARN : FQ_LOG_DEBUG, "a connection over %s was refused: %s",
            fq_transport_name(fq_incoming_transport(incoming)), text);
    fq_incoming_reject(incoming, code, text);
}

/* 0 and the agreed version, or a code and text. */
static int examine(struct fq_acceptor *acceptor, const struct fq_incoming *incoming,
                   uint16_t *ret_version, struct fq_err *err)
{
    struct fq_hello hello;
    size_t bytes;
    const void *data = fq_incoming_hello(incoming, &bytes);
    int code = fq_hello_decode(data, bytes, &hello, err);
    if (code == 0) {
        code = fq_hello_agree(&hello, ret_version, err);
    }
    if (code != 0) {
        fq_count(&acceptor->counters, FQ_COUNT_BAD_HELLO);
        return code;
    }
    uint32_t uid = fq_incoming_uid(incoming);
    if (fq_incoming_transport(incoming) == FQ_TRANSPORT_SHM && uid != acceptor->own_uid &&
        uid != 0) {
        return fq_err_set(err, FLASHQ_ERR_NOT_PERMITTED,
                          "user %u may not use the shared memory of user %u's broker", uid,
                          acceptor->own_uid);
    }
    uint32_t shard = fq_incoming_shard(incoming);
    if (shard != FQ_SHARD_ANY && shard >= acceptor->shards_count) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "there is no shard %u: the broker has %u",
                          shard, acceptor->shards_count);
    }
    if (atomic_load_explicit(acceptor->connections, memory_order_relaxed) >=
        acceptor->connections_max) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "connections.max: the limit of %d is reached",
                          acceptor->connections_max);
    }
    return 0;
}

static void place(struct fq_acceptor *acceptor, struct fq_incoming *incoming)
{
    struct fq_arrival arrival = {.incoming = incoming};
    struct fq_err err;
    int code = examine(acceptor, incoming, &arrival.version, &err);
    if (code != 0) {
        refuse(acceptor, incoming, code, err.text);
        return;
    }
    uint32_t shard = fq_incoming_shard(incoming);
    if (shard == FQ_SHARD_ANY) {
        shard = acceptor->next_shard;
        acceptor->next_shard = (acceptor->next_shard + 1) % acceptor->shards_count;
    }
    (void)atomic_fetch_add_explicit(acceptor->connections, 1, memory_order_relaxed);
    if (!fq_shard_arrive(&acceptor->shards[shard], &arrival)) {
        (void)atomic_fetch_sub_explicit(acceptor->connections, 1, memory_order_relaxed);
        refuse(acceptor, incoming, FLASHQ_ERR_BUSY,
               "too many connections arrive at once; try again");
    }
}

/* 0, or the listener's final error. */
static int accept_from(struct fq_acceptor *acceptor, struct fq_listener *listener, unsigned *done)
{
    for (unsigned n = 0; n < ACCEPTED_PER_STEP; n++, (*done)++) {
        struct fq_incoming *incoming;
        int result = fq_listener_poll(listener, &incoming);
        if (result <= 0) {
            return result;
        }
        place(acceptor, incoming);
    }
    return 0;
}

unsigned fq_acceptor_step(struct fq_acceptor *acceptor)
{
    unsigned done = 0;
    uint64_t refused = 0;
    for (unsigned i = 0; i < acceptor->listeners_count;) {
        int result = accept_from(acceptor, acceptor->listeners[i], &done);
        refused += fq_listener_refused(acceptor->listeners[i]);
        if (result < 0) { /* final; the other one and the connections there are go on */
            fq_error("a listener failed and is closed: %s", fq_err_describe(result));
            fq_listener_close(acceptor->listeners[i]);
            acceptor->listeners[i] = acceptor->listeners[--acceptor->listeners_count];
        } else {
            i++;
        }
    }
    atomic_store_explicit(&acceptor->refused_hellos, refused, memory_order_relaxed);
    return done;
}

int64_t fq_acceptor_next_deadline_us(const struct fq_acceptor *acceptor)
{
    int64_t next = INT64_MAX;
    for (unsigned i = 0; i < acceptor->listeners_count; i++) {
        int64_t deadline = fq_listener_next_deadline_us(acceptor->listeners[i]);
        next = deadline < next ? deadline : next;
    }
    return next;
}

void fq_acceptor_close(struct fq_acceptor *acceptor)
{
    for (unsigned i = 0; i < acceptor->listeners_count; i++) {
        fq_listener_close(acceptor->listeners[i]);
    }
    acceptor->listeners_count = 0;
}
