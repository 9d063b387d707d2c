/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole broker, put together from its parts. main.c runs it with threads; tests step it in one.
 *
 *   fq_broker_open    store, meta.pool, coordinator, shards, listeners; nothing runs yet
 *   fq_broker_start   threads; or call fq_broker_step instead, again and again
 *   is_ready          the partitions that hold data are open: from here on connections are taken
 *   fq_broker_stop    goodbye to clients, last acknowledgements, partitions closed clean
 *   fq_broker_close   the rest
 */
#ifndef FQ_BROKER_BROKER_H
#define FQ_BROKER_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wake.h"
#include "fabric/endpoint.h"
#include "options.h"

struct fq_broker;
struct fq_shard;

/* `options` have been checked, and are copied. Logs what is in force. */
int fq_broker_open(const struct fq_options *options, const struct fq_clock *clock,
                   struct fq_broker **ret, struct fq_err *err);
int fq_broker_start(struct fq_broker *broker, struct fq_err *err);
bool fq_broker_is_ready(const struct fq_broker *broker);

/* The main thread's share: takes connections once ready. Returns how much was done. */
unsigned fq_broker_accept_step(struct fq_broker *broker);
/* Sleeps until there is something to accept, `fd` (-1: none) is readable, or the broker became
 * ready and the caller does not know it yet. */
void fq_broker_accept_sleep(struct fq_broker *broker, int fd, bool knows_ready);

/* Without threads: one step of everything. */
unsigned fq_broker_step(struct fq_broker *broker, int64_t now_us);

/* Without threads: what is inside, for tests of what no client can ask for. */
struct fq_shard *fq_broker_shard(struct fq_broker *broker, unsigned index);

/* Stops in order; bounded by a few seconds. */
void fq_broker_stop(struct fq_broker *broker);
void fq_broker_close(struct fq_broker *broker); /* NULL is fine */

/* Where it listens in fact: index 0..; NULL past the last. */
const struct fq_endpoint *fq_broker_endpoint(const struct fq_broker *broker, unsigned index);

#endif
