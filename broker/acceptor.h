/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The acceptor: both listeners, on the main thread. A connection that has said a proper hello goes
 * to the shard it asked for (or the next in turn); everything else is refused with a reason, and
 * counted.
 */
#ifndef FQ_BROKER_ACCEPTOR_H
#define FQ_BROKER_ACCEPTOR_H

#include <stdint.h>

#include "fabric/fabric.h"
#include "session/counters.h"
#include "shard.h"

#define FQ_LISTENERS_MAX 2

struct fq_acceptor {
    struct fq_listener *listeners[FQ_LISTENERS_MAX];
    unsigned listeners_count;
    struct fq_shard *shards;
    unsigned shards_count;
    int connections_max;
    _Atomic int *connections; /* of the whole broker */
    unsigned next_shard;
    uint32_t own_uid;
    int64_t next_warning_us; /* refusals may not flood the log */
    struct fq_counters counters;
    _Atomic uint64_t refused_hellos; /* as the listeners count them */
};

/* Takes the listener over. */
void fq_acceptor_add(struct fq_acceptor *acceptor, struct fq_listener *listener);
unsigned fq_acceptor_step(struct fq_acceptor *acceptor);
int64_t fq_acceptor_next_deadline_us(const struct fq_acceptor *acceptor);
/* Stops listening: sockets are closed and the local one is removed. */
void fq_acceptor_close(struct fq_acceptor *acceptor);

#endif
