/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The housekeeper: one thread for everything that may take its time. It drives the store (prepared
 * segments, recycling, unlinking), owns meta.pool, the coordinator and the calendar, answers
 * requests about topics, and passes tasks on between shards.
 *
 * Before the threads start, fq_housekeeper_distribute tells the shards what they serve and has them
 * open the partitions that hold data; `opens_left` counts down as they report.
 */
#ifndef FQ_BROKER_HOUSEKEEPER_H
#define FQ_BROKER_HOUSEKEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/spsc.h"
#include "base/wake.h"
#include "coord/coord.h"
#include "mailbox.h"
#include "options.h"
#include "session/counters.h"
#include "session/hosted.h"
#include "storage/meta.h"
#include "storage/store.h"

/* One shard as the housekeeper knows it. */
struct fq_shard_link {
    struct fq_mailbox *to, *from;
    struct fq_spsc *calendar;
    const struct fq_counters *counters; /* read only */
};

struct fq_housekeeper_params {
    const struct fq_options *options;
    const struct fq_clock *clock;
    struct fq_store *store;
    struct fq_meta *meta;
    struct fq_coord *coord;
    const struct fq_shard_link *shards; /* options->shards of them */
    const struct fq_counters *acceptor_counters;
    const _Atomic uint64_t *refused_hellos; /* by the listeners */
    uint16_t tcp_port;                      /* 0: no tcp listener */
    struct fq_wake *started;                /* signalled when opens_left reaches 0 */
};

struct fq_housekeeper {
    struct fq_housekeeper_params params;
    struct fq_wake wake;
    struct fq_counters counters;
    struct fq_topic_config topic_defaults;
    unsigned shards_count;
    int epoll_fd;
    _Atomic int stop;
    _Atomic int opens_left;
};

int fq_housekeeper_init(struct fq_housekeeper *hk, const struct fq_housekeeper_params *params,
                        struct fq_err *err);
void fq_housekeeper_fini(struct fq_housekeeper *hk);

/* Goes on with deletions that a stop cut short, then hands all topics to the shards. */
int fq_housekeeper_distribute(struct fq_housekeeper *hk, struct fq_err *err);

unsigned fq_housekeeper_step(struct fq_housekeeper *hk, int64_t now_us);
/* The thread's body; ends after fq_housekeeper_stop when all that was sent to it is done. */
void *fq_housekeeper_run(void *hk);
void fq_housekeeper_stop(struct fq_housekeeper *hk);

/* ---- between housekeeper.c and admin.c ------------------------------------------------------- */

/* A topic's run-time half, at fq_topic.context. */
struct fq_served {
    struct fq_gauges **gauges; /* one per partition */
    uint32_t count;
    unsigned removals_left;   /* shards that have not closed it yet */
    struct fq_task *deletion; /* the request that waits for that; may be NULL */
};

/* admin.c: answers, or sends on, a request. Consumes the task. */
void fq_admin_handle(struct fq_housekeeper *hk, struct fq_task *task);
/* admin.c: all shards have closed the topic. */
void fq_admin_finish_delete(struct fq_housekeeper *hk, struct fq_topic *topic);

/* housekeeper.c: to the shard that it names as its origin. */
void fq_housekeeper_answer(struct fq_housekeeper *hk, struct fq_task *task);
void fq_housekeeper_send(struct fq_housekeeper *hk, unsigned shard, struct fq_task *task);
/* Gauges for partitions up to topic->partitions, then SERVE to every shard. */
int fq_housekeeper_serve(struct fq_housekeeper *hk, struct fq_topic *topic, struct fq_err *err);
int fq_housekeeper_configure(struct fq_housekeeper *hk, struct fq_topic *topic, struct fq_err *err);
/* REMOVE to every shard. */
int fq_housekeeper_remove(struct fq_housekeeper *hk, struct fq_topic *topic);
void fq_housekeeper_free_served(struct fq_topic *topic);

#endif
