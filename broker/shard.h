/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard: one thread, the partitions it owns, the connections that asked for it. Everything it
 * does is in fq_shard_step; fq_shard_run adds the spinning and sleeping.
 *
 * Life: init, (serve and open tasks), run or step until is_finished, fini. Stopping: fq_shard_stop
 * from any thread; the shard says goodbye, finishes acknowledgements within STOP_WITHIN_US, closes
 * its partitions clean and hands their snapshots over; then it is finished.
 */
#ifndef FQ_BROKER_SHARD_H
#define FQ_BROKER_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/spin.h"
#include "base/spsc.h"
#include "base/wake.h"
#include "fabric/fabric.h"
#include "mailbox.h"
#include "session/hosted.h"
#include "session/session.h"

#define FQ_SHARD_VIEWS       16384u /* lines of the view region: open partitions per shard */
#define FQ_SHARD_FABRICS_MAX 3

/* What the acceptor hands over. */
struct fq_arrival {
    struct fq_incoming *incoming;
    uint16_t version; /* agreed */
};

struct fq_shard_params {
    unsigned index, shards_count;
    uint32_t broker_id;
    struct fq_store *store;
    const struct fq_clock *clock;
    const enum fq_transport *transports; /* one fabric each */
    unsigned transports_count;
    struct fq_mailbox *to_housekeeper, *from_housekeeper; /* the broker's */
    struct fq_spsc *calendar; /* of struct fq_calendar_item; the broker's */
    struct fq_wake *housekeeper_wake;
    _Atomic int *connections; /* of the whole broker; taken by the acceptor, given back here */
    struct fq_uuid cluster_id, boot_id;
    const char *shm_path;
    uint64_t window_bytes;
    uint32_t message_max_bytes, batch_max_bytes, max_in_flight;
    int64_t producer_expiration_ms;
    int64_t spin_us;
};

struct fq_shard {
    struct fq_shard_params params;
    struct fq_wake wake;
    struct fq_spsc arrivals; /* acceptor -> shard */
    _Atomic int stop;        /* any thread -> shard */
    struct fq_counters counters;
    /* the shard's own */
    struct fq_fabric *fabrics[FQ_SHARD_FABRICS_MAX];
    unsigned fabrics_count;
    struct fq_region *views;
    struct fq_hosted_table hosted;
    struct fq_session_host sessions;
    int epoll_fd;
    struct fq_spin spin;
    int64_t now_us;
    int64_t stop_at_us;          /* INT64_MAX until it stops */
    int64_t calendar_wake_at_us; /* INT64_MAX: nothing was pushed since the last */
    bool is_closed;              /* partitions are closed; snapshots may still wait to be sent */
    _Atomic int is_finished;
};

int fq_shard_init(struct fq_shard *shard, const struct fq_shard_params *params, struct fq_err *err);
/* The thread must have ended. Fine on a zeroed shard. */
void fq_shard_fini(struct fq_shard *shard);

/* Returns how much was done. Never blocks, but where recovery or a trim touches the disk. */
unsigned fq_shard_step(struct fq_shard *shard, int64_t now_us);
int64_t fq_shard_next_deadline_us(const struct fq_shard *shard);
/* The thread's body. */
void *fq_shard_run(void *shard);

/* From any thread. */
void fq_shard_stop(struct fq_shard *shard);
/* From the acceptor's thread; false: its ring is full. */
bool fq_shard_arrive(struct fq_shard *shard, const struct fq_arrival *arrival);

#endif
