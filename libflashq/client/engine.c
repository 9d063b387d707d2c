/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: made once per client, driven by whoever calls. drive() polls the fabrics, hands each event to
 * the link it belongs to, then lets links and members do what is due.
 *
 * What can fail: a fabric (no descriptors, no memory) makes the connection attempt that wanted it fail;
 * a fabric whose poll reports a final error is destroyed with its links' connections and made anew at the
 * next attempt. Thread: any, under the lock.
 */
#include "client/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/link.h"
#include "client/metadata.h"

#define EVENTS_PER_POLL 64
#define POLLS_PER_DRIVE 8

/* ---- fork ----------------------------------------------------------------------------------- */

/* How many forks lie between this process and the first that used the library. */
static _Atomic unsigned forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

bool fq_engine_is_forked(const struct fq_engine *engine)
{
    return engine->fork_generation != atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- making --------------------------------------------------------------------------------- */

static int parse_brokers(struct fq_engine *engine, struct fq_err *err)
{
    enum { ENDPOINTS_MAX = 64 };
    engine->endpoints = calloc(ENDPOINTS_MAX, sizeof *engine->endpoints);
    if (!engine->endpoints) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the brokers' addresses");
    }
    const char *brokers = engine->config.brokers;
    if (brokers[0] == '\0') {
        struct fq_endpoint *local = &engine->endpoints[0];
        local->transport = FQ_TRANSPORT_SHM;
        (void)fq_endpoint_default_socket(local->path, sizeof local->path);
        engine->endpoints_count = 2;
        return fq_endpoint_parse("127.0.0.1", &engine->endpoints[1], err);
    }
    int count = fq_endpoint_parse_list(brokers, engine->endpoints, ENDPOINTS_MAX, err);
    if (count < 0) {
        (void)fq_err_prefix(err, "brokers: ");
        return count;
    }
    if (count == 0) {
        return fq_err_set(err, FLASHQ_ERR_CONFIG, "brokers: no address in \"%.200s\"", brokers);
    }
    engine->endpoints_count = (size_t)count;
    return 0;
}

static int open_waiting(struct fq_engine *engine, struct fq_err *err)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_cond_init(&engine->progress, &monotonic);
    (void)pthread_cond_init(&engine->io_cond, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);

    engine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->epoll_fd < 0 || engine->news_fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "cannot make a descriptor");
    }
    int code = fq_wake_init(&engine->kick);
    if (code != 0) {
        engine->kick.fd = -1;
        return fq_err_set(err, code, "cannot make a descriptor for waking");
    }
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fq_wake_fd(&engine->kick), &event) != 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "cannot watch a descriptor");
    }
    return 0;
}

/* What does not touch a broker: also for half-built engines and in a forked child. */
static void free_engine(struct fq_engine *engine)
{
    if (engine->kick.fd >= 0) {
        fq_wake_fini(&engine->kick);
    }
    if (engine->epoll_fd >= 0) {
        (void)close(engine->epoll_fd);
    }
    if (engine->news_fd >= 0) {
        (void)close(engine->news_fd);
    }
    fq_journal_fini(&engine->journal);
    free(engine->endpoints);
    free(engine);
}

static int create_plain_fabric(void *context, enum fq_transport transport,
                               const struct fq_fabric_params *params, struct fq_fabric **ret,
                               struct fq_err *err)
{
    (void)context;
    return fq_fabric_create(transport, params, ret, err);
}

int fq_engine_create(const struct fq_client_config *config, const struct fq_engine_ops *ops,
                     struct fq_engine **ret, struct fq_err *err)
{
    (void)pthread_once(&forks_once, watch_forks);
    struct fq_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a client");
    }
    engine->config = *config;
    engine->journal.level = (int)config->log_level;
    engine->ops = ops ? *ops : (struct fq_engine_ops){.create_fabric = create_plain_fabric};
    engine->fork_generation = atomic_load_explicit(&forks, memory_order_relaxed);
    engine->epoll_fd = engine->news_fd = engine->kick.fd = -1;
    fq_chain_init(&engine->links);
    fq_chain_init(&engine->members);
    fq_chain_init(&engine->metadata_ops);
    fq_chain_init(&engine->closing);
    fq_prng_seed(&engine->prng, fq_random_u64());
    fq_spin_init(&engine->spin, config->spin_us);

    int code = parse_brokers(engine, err);
    if (code == 0) {
        code = open_waiting(engine, err);
    }
    if (code == 0) {
        engine->now_us = fq_mono_us();
        code = fq_link_create(engine, FQ_BROKER_ANY, FQ_SHARD_ANY, &engine->control, err);
    }
    if (code != 0) {
        free_engine(engine);
        return code;
    }
    if (config->io_threads > 0) {
        code = fq_io_thread_start(engine, err);
        if (code != 0) {
            fq_link_destroy(engine->control);
            free_engine(engine);
            return code;
        }
    }
    *ret = engine;
    return 0;
}

/* ---- fabrics -------------------------------------------------------------------------------- */

int fq_engine_fabric(struct fq_engine *engine, enum fq_transport transport, struct fq_fabric **ret,
                     struct fq_err *err)
{
    struct fq_fabric **slot = &engine->fabrics[transport];
    if (!*slot) {
        struct fq_fabric *fabric = NULL;
        struct fq_fabric_params params = {.connections_max = 1024};
        int code = engine->ops.create_fabric(engine->ops.context, transport, &params, &fabric, err);
        if (code != 0) {
            return code;
        }
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fq_fabric_fd(fabric), &event) != 0) {
            code = fq_err_errno(err, fq_err_from_errno(errno), errno, "cannot watch a descriptor");
            fq_fabric_destroy(fabric);
            return code;
        }
        *slot = fabric;
    }
    *ret = *slot;
    return 0;
}

static void lose_fabric(struct fq_engine *engine, enum fq_transport transport, int code)
{
    struct fq_fabric *fabric = engine->fabrics[transport];
    for (struct fq_chain *at = engine->links.next, *next; at != &engine->links; at = next) {
        next = at->next;
        struct fq_link *link = fq_chain_item(at, struct fq_link, node);
        if (link->box && fq_conn_fabric(link->box->conn) == fabric) {
            fq_link_fail(link, code, "the transport failed");
        }
    }
    fq_conn_boxes_reap(engine);
    engine->fabrics[transport] = NULL;
    (void)epoll_ctl(engine->epoll_fd, EPOLL_CTL_DEL, fq_fabric_fd(fabric), NULL);
    fq_fabric_destroy(fabric);
}

/* ---- driving -------------------------------------------------------------------------------- */

static bool poll_fabrics(struct fq_engine *engine)
{
    struct fq_event events[EVENTS_PER_POLL];
    bool found = false;
    fq_conn_boxes_reap(engine); /* before polling: what they read into may be somebody else's by now */
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        for (int turn = 0; turn < POLLS_PER_DRIVE && engine->fabrics[t]; turn++) {
            uint64_t received = fq_fabric_received(engine->fabrics[t]);
            int count = fq_fabric_poll(engine->fabrics[t], events, EVENTS_PER_POLL);
            if (count < 0) {
                lose_fabric(engine, (enum fq_transport)t, count);
                break;
            }
            fq_links_dispatch(events, (size_t)count);
            fq_conn_boxes_reap(engine);
            found |= count > 0 || fq_fabric_received(engine->fabrics[t]) != received;
            if (count < EVENTS_PER_POLL) {
                break;
            }
        }
    }
    return found;
}

bool fq_engine_drive(struct fq_engine *engine)
{
    bool found = poll_fabrics(engine);
    int64_t now = fq_mono_us();
    engine->now_us = now;
    engine->was_polled = true;
    for (struct fq_chain *at = engine->links.next, *next; at != &engine->links; at = next) {
        next = at->next;
        fq_link_step(fq_chain_item(at, struct fq_link, node), now);
    }
    for (struct fq_chain *at = engine->members.next, *next; at != &engine->members; at = next) {
        next = at->next;
        struct fq_member *member = fq_chain_item(at, struct fq_member, node);
        found |= member->ops->step(member, now);
    }
    if (found) {
        engine->active_us = now;
        fq_spin_found(&engine->spin, now);
    }
    fq_engine_news(engine);
    return found;
}

int64_t fq_engine_next_deadline_us(struct fq_engine *engine)
{
    int64_t earliest = INT64_MAX;
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        if (engine->fabrics[t]) {
            int64_t at = fq_fabric_next_deadline_us(engine->fabrics[t]);
            earliest = at < earliest ? at : earliest;
        }
    }
    for (struct fq_chain *at = engine->links.next; at != &engine->links; at = at->next) {
        int64_t due = fq_link_next_deadline_us(fq_chain_item(at, struct fq_link, node));
        earliest = due < earliest ? due : earliest;
    }
    for (struct fq_chain *at = engine->members.next; at != &engine->members; at = at->next) {
        struct fq_member *member = fq_chain_item(at, struct fq_member, node);
        int64_t due = member->ops->next_deadline_us(member);
        earliest = due < earliest ? due : earliest;
    }
    return earliest;
}

/* ---- entering, closing ---------------------------------------------------------------------- */

int fq_engine_enter(struct fq_engine *engine)
{
    if (fq_engine_is_forked(engine)) {
        return FLASHQ_ERR_FORKED;
    }
    fq_engine_lock(engine);
    if (engine->is_closing) {
        (void)pthread_mutex_unlock(&engine->lock);
        return FLASHQ_ERR_CLOSED;
    }
    engine->app_entries++;
    return 0;
}

int64_t fq_engine_deadline_us(const struct fq_engine *engine, int timeout_ms)
{
    return fq_deadline_us(fq_mono_us(), timeout_ms < 0 ? engine->config.timeout_ms : timeout_ms);
}

void fq_engine_add(struct fq_engine *engine, struct fq_member *member)
{
    fq_chain_append(&engine->members, &member->node);
}

static bool nobody_is_busy(void *context)
{
    struct fq_engine *engine = context;
    for (struct fq_chain *at = engine->members.next; at != &engine->members; at = at->next) {
        struct fq_member *member = fq_chain_item(at, struct fq_member, node);
        if (member->ops->is_busy(member)) {
            return false;
        }
    }
    return true;
}

int64_t fq_engine_destroy(struct fq_engine *engine, int64_t deadline_us)
{
    if (fq_engine_is_forked(engine)) {
        free_engine(engine); /* the fabrics' shared memory is the parent's: not even a goodbye */
        return 0;
    }
    (void)pthread_mutex_lock(&engine->lock);
    (void)fq_engine_wait(engine, deadline_us, nobody_is_busy, engine);
    engine->is_closing = true;
    fq_engine_progress(engine);
    while (engine->waiters > 0) { /* other threads' calls return CLOSED */
        fq_engine_progress(engine);
        (void)pthread_mutex_unlock(&engine->lock);
        (void)usleep(100);
        (void)pthread_mutex_lock(&engine->lock);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    fq_io_thread_stop(engine);

    int64_t undelivered = 0;
    while (!fq_chain_is_empty(&engine->members)) {
        struct fq_member *member = fq_chain_item(engine->members.next, struct fq_member, node);
        undelivered += member->ops->destroy(member);
    }
    fq_metadata_cancel_all(engine);
    while (!fq_chain_is_empty(&engine->links)) {
        fq_link_destroy(fq_chain_item(engine->links.next, struct fq_link, node));
    }
    fq_conn_boxes_reap(engine);
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        fq_fabric_destroy(engine->fabrics[t]);
    }
    (void)pthread_mutex_destroy(&engine->lock);
    (void)pthread_cond_destroy(&engine->progress);
    (void)pthread_cond_destroy(&engine->io_cond);
    free_engine(engine);
    return undelivered;
}
