/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heart of one client: its lock, its fabrics, its connections (links) and what uses them
 * (members: producers, consumers). Whoever calls into the library drives it: polls the fabrics and runs
 * what is due, inline. A thread of its own (io_thread.c) does so only while no caller does.
 *
 * Everything here is called with the lock held, but for create, destroy and enter.
 */
#ifndef FQ_CLIENT_ENGINE_H
#define FQ_CLIENT_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/random.h"
#include "base/spin.h"
#include "base/wake.h"
#include "client/chain.h"
#include "client/config.h"
#include "client/journal.h"
#include "fabric/fabric.h"

#define FQ_ENGINE_FABRICS 4 /* by enum fq_transport */

struct fq_engine;
struct fq_link;
struct fq_member;

/* What a producer or consumer gives the engine. Both run under the lock and never block. */
struct fq_member_ops {
    /* Does what is due; true if something happened. Called after every poll of the fabrics. */
    bool (*step)(struct fq_member *member, int64_t now_us);
    /* When step must run even if nothing arrives; INT64_MAX: never. */
    int64_t (*next_deadline_us)(struct fq_member *member);
    /* Before this side sleeps: asks the brokers for a wake-up. true: there is work now, do not sleep. */
    bool (*before_sleep)(struct fq_member *member);
    /* Takes what has come into this process's memory, without polling; true if there was any. NULL: nothing comes so. */
    bool (*look)(struct fq_member *member);
    /* Frees the member (client closing); returns the records it could not deliver. */
    int64_t (*destroy)(struct fq_member *member);
    /* Whether closing the client should wait for it: records still on their way. */
    bool (*is_busy)(struct fq_member *member);
    /* Whether a poll of the application would find something now. */
    bool (*has_news)(struct fq_member *member);
};

struct fq_member {
    const struct fq_member_ops *ops;
    struct fq_chain node;
    unsigned calls;               /* of the application, inside the library with this member */
    bool is_closing;              /* they return CLOSED */
};

/* What a test puts in the place of the system's: fabrics that misbehave. */
struct fq_engine_ops {
    int (*create_fabric)(void *context, enum fq_transport transport,
                         const struct fq_fabric_params *params, struct fq_fabric **ret,
                         struct fq_err *err);
    void *context;
};

struct fq_engine {
    struct fq_client_config config;
    struct fq_engine_ops ops;
    unsigned fork_generation;     /* see fq_engine_is_forked */

    pthread_mutex_t lock;
    _Atomic unsigned lock_wanted; /* threads that wait for it: who spins with it lets go (fq_engine_lock) */
    struct fq_fabric *fabrics[FQ_ENGINE_FABRICS];
    struct fq_chain links;
    struct fq_chain members;
    struct fq_chain metadata_ops; /* running metadata requests */
    struct fq_chain closing;      /* connections to close after this round of events */
    struct fq_link *control;      /* the link for metadata and admin; made with the engine */
    struct fq_endpoint *endpoints; /* what `brokers` says */
    size_t endpoints_count;
    struct fq_prng prng;          /* jitter, sticky partitions */
    struct fq_err round_error;    /* what each address said so far in this round */
    struct fq_err last_error;     /* why there is no broker: the last whole round */
    uint32_t correlation;
    bool is_closing;
    struct fq_journal journal;

    /* waiting: wait.c */
    int epoll_fd;                 /* the fabrics and `kick` */
    struct fq_wake kick;          /* wakes the sleeper */
    pthread_cond_t progress;      /* the waiters that are not the sleeper */
    unsigned waiters;             /* calls inside fq_engine_wait */
    unsigned cond_waiters;
    struct fq_member *looking;    /* whose call is in its turn of waiting */
    bool has_sleeper;             /* one thread sleeps on epoll_fd, with the fabrics armed */
    bool sleeper_is_io;
    bool was_polled;              /* ... and somebody polled (disarmed) since */
    bool is_kicked;
    int64_t sleeper_due_us;       /* when it wakes by itself */
    int64_t active_us;            /* when polling last found something, or somebody asked for something */
    struct fq_spin spin;
    int64_t now_us;               /* the clock at the last drive */

    /* the io thread: io_thread.c */
    pthread_t io_thread;
    pthread_cond_t io_cond;
    bool has_io_thread, io_stop, io_parked;
    uint64_t app_entries;

    /* flashq_client_fd: wait.c */
    int news_fd;
    bool news_wanted, news_set;
};

/* `ops` NULL: plain fabrics. */
int fq_engine_create(const struct fq_client_config *config, const struct fq_engine_ops *ops,
                     struct fq_engine **ret, struct fq_err *err);
/* Waits up to the deadline for what members have on their way, then frees everything; returns the
 * records given up. Not under the lock. */
int64_t fq_engine_destroy(struct fq_engine *engine, int64_t deadline_us);

/* True in a child of the process that made the engine: only closing is allowed there. No system call. */
bool fq_engine_is_forked(const struct fq_engine *engine);

/* Takes the lock; the thread that spins with it is told. */
void fq_engine_lock(struct fq_engine *engine);
/* Takes the lock for a call of the application: 0, FLASHQ_ERR_FORKED or FLASHQ_ERR_CLOSED. */
int fq_engine_enter(struct fq_engine *engine);
/* Gives it back; sees to it that a sleeper still sleeps armed. */
void fq_engine_leave(struct fq_engine *engine);

/* Polls every fabric and runs what is due. true if anything happened. Never blocks. */
bool fq_engine_drive(struct fq_engine *engine);
/* The earliest time at which drive must run though nothing arrives. */
int64_t fq_engine_next_deadline_us(struct fq_engine *engine);

/* The fabric for a transport, made on first use. */
int fq_engine_fabric(struct fq_engine *engine, enum fq_transport transport, struct fq_fabric **ret,
                     struct fq_err *err);

/* Drives until ready() or the deadline; 0 or FLASHQ_ERR_TIMED_OUT (CLOSED when the engine closes). The
 * lock is given up while sleeping, so anything may have changed on return. */
int fq_engine_wait(struct fq_engine *engine, int64_t deadline_us, bool (*ready)(void *context),
                   void *context);
/* The same for a call on a member: CLOSED as soon as another thread closes it. */
int fq_member_wait(struct fq_engine *engine, struct fq_member *member, int64_t deadline_us,
                   bool (*ready)(void *context), void *context);
/* Ends the other calls on a member that is about to be closed: on return there are none. */
void fq_member_quiesce(struct fq_engine *engine, struct fq_member *member);
/* Something happened that a waiter may be waiting for. */
void fq_engine_progress(struct fq_engine *engine);
/* What a poll of the application would find may have changed: if anybody asked for flashq_client_fd, it is made
 * readable, or not, by what all members have. Called after every drive. */
void fq_engine_news(struct fq_engine *engine);

/* now + timeout; a negative timeout_ms is the key timeout.ms. */
int64_t fq_engine_deadline_us(const struct fq_engine *engine, int timeout_ms);

void fq_engine_add(struct fq_engine *engine, struct fq_member *member);

/* io_thread.c */
int fq_io_thread_start(struct fq_engine *engine, struct fq_err *err);
void fq_io_thread_stop(struct fq_engine *engine);

/* wait.c, for the io thread: one turn of looking and sleeping. */
void fq_engine_sleep_turn(struct fq_engine *engine, int64_t deadline_us, bool is_io);

#endif
