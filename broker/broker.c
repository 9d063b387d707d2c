/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composition root: which parts there are, in which order they come up and go down. Each open_
 * function brings up one part; close takes them down in reverse and is fine with a broker that is
 * half open.
 */
#include "broker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acceptor.h"
#include "base/log.h"
#include "coord/coord.h"
#include "flusher.h"
#include "host.h"
#include "housekeeper.h"
#include "shard.h"
#include "storage/meta.h"
#include "storage/store.h"

#define CALENDAR_ITEMS 4096

struct thread {
    pthread_t id;
    bool is_running;
};

struct fq_broker {
    struct fq_options options;
    const struct fq_clock *clock;
    struct fq_store *store;
    struct fq_meta *meta;
    struct fq_coord *coord;

    unsigned shards_count; /* that are up */
    struct fq_shard *shards;
    struct fq_mailbox *to_shards, *from_shards;
    struct fq_spsc *calendars;
    struct fq_shard_link *links;
    _Atomic int connections;

    struct fq_housekeeper housekeeper;
    struct fq_flusher flusher;
    struct fq_acceptor acceptor;
    struct fq_wake started; /* the housekeeper wakes the main thread */

    struct thread *shard_threads, housekeeper_thread, flusher_thread;
};

/* ---- parts ---------------------------------------------------------------------------------- */

static int open_store(struct fq_broker *broker, struct fq_err *err)
{
    const struct fq_options *o = &broker->options;
    struct fq_store_params params = {.data_dir = o->data_dir,
                                     .flush = (enum fq_flush)o->flush,
                                     .shards_count = (unsigned)o->shards,
                                     .segment_bytes_max = (uint64_t)o->log_segment_bytes,
                                     .prepared_bytes = (uint64_t)o->log_prepared_bytes,
                                     .batch_bytes_max = fq_options_batch_max_bytes(o)};
    int code = fq_store_open(&params, &broker->store, err);
    if (code == 0) {
        fq_info("data: %s: medium %s, flush %s", o->data_dir, fq_store_medium(broker->store),
                fq_store_flush(broker->store));
        fq_info("guarantee: %s", fq_store_guarantee(broker->store));
        return 0;
    }
    (void)fq_err_prefix(err, "data.dir: ");
    if (code == FLASHQ_ERR_NOT_PERMITTED) {
        const struct fq_err why = *err;
        return fq_err_set(err, code, "%.400s (another place: --set data.dir=DIR)", why.text);
    }
    return code;
}

static int open_meta(struct fq_broker *broker, struct fq_err *err)
{
    char path[FQ_LIMIT_PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/meta.pool", broker->options.data_dir);
    int code = fq_meta_open_pmem(path, (size_t)broker->options.meta_pool_bytes, &broker->meta, err);
    if (code == FLASHQ_ERR_UNSUPPORTED || code == FLASHQ_ERR_NO_SPACE) {
        fq_warn("%s; until the next start metadata lives in memory, after that it is rebuilt from "
                "the logs",
                code == FLASHQ_ERR_NO_SPACE ? err->text : "built without libpmemobj");
        code = fq_meta_open_memory(&broker->meta);
    } else if (code == FQ_META_CREATED) {
        fq_info("meta.pool: made");
    } else if (code == FQ_META_REBUILT) {
        fq_warn("meta.pool was damaged; it was set aside and is rebuilt from the logs");
    }
    return code < 0 ? code : 0;
}

static int open_coord(struct fq_broker *broker, struct fq_err *err)
{
    struct fq_embedded_params params = {.meta = broker->meta,
                                        .store = broker->store,
                                        .shards_count = (uint32_t)broker->options.shards};
    int code = fq_coord_open_embedded(&params, &broker->coord, err);
    if (code == 0) {
        fq_info("catalogue: %zu topics", broker->coord->ops->topics_count(broker->coord));
    }
    return code;
}

static int open_listener(struct fq_broker *broker, const struct fq_endpoint *endpoint,
                         struct fq_err *err)
{
    struct fq_listen_params params = {.endpoint = endpoint, .mode = 0600};
    struct fq_listener *listener;
    char text[512];
    int code = fq_listener_open(&params, &listener, err);
    if (code == 0) {
        fq_acceptor_add(&broker->acceptor, listener);
        fq_info("listener: %s",
                fq_endpoint_format(fq_listener_endpoint(listener), text, sizeof text));
    }
    return code;
}

static int open_acceptor(struct fq_broker *broker, struct fq_err *err)
{
    struct fq_endpoint endpoint;
    broker->acceptor.shards = broker->shards;
    broker->acceptor.shards_count = (unsigned)broker->options.shards;
    broker->acceptor.connections = &broker->connections;
    broker->acceptor.connections_max = (int)broker->options.connections_max;
    broker->acceptor.own_uid = geteuid();
    int code = fq_options_shm_endpoint(&broker->options, &endpoint, err);
    if (code == 1) {
        code = open_listener(broker, &endpoint, err);
        if (code < 0) {
            (void)fq_err_prefix(err, "listen.shm: ");
        }
    }
    if (code >= 0) {
        code = fq_options_tcp_endpoint(&broker->options, &endpoint, err);
    }
    if (code == 1) {
        code = open_listener(broker, &endpoint, err);
        if (code < 0) {
            (void)fq_err_prefix(err, "listen.tcp: ");
        }
        if (code == 0 && broker->options.listen_insecure) {
            fq_warn("listen.insecure: whoever reaches the tcp port may read and write everything");
        }
    }
    return code < 0 ? code : 0;
}

static struct fq_shard_params shard_params(struct fq_broker *broker, unsigned index)
{
    static const enum fq_transport transports[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    const struct fq_options *o = &broker->options;
    struct fq_endpoint shm;
    bool has_shm = fq_options_shm_endpoint(o, &shm, NULL) == 1;
    return (struct fq_shard_params){.index = index,
                                    .shards_count = (unsigned)o->shards,
                                    .broker_id = (uint32_t)o->broker_id,
                                    .store = broker->store,
                                    .clock = broker->clock,
                                    .transports = transports,
                                    .transports_count = sizeof transports / sizeof transports[0],
                                    .to_housekeeper = &broker->from_shards[index],
                                    .from_housekeeper = &broker->to_shards[index],
                                    .calendar = &broker->calendars[index],
                                    .housekeeper_wake = &broker->housekeeper.wake,
                                    .connections = &broker->connections,
                                    .cluster_id = broker->coord->ops->cluster_id(broker->coord),
                                    .boot_id = fq_host_boot_id(),
                                    .shm_path = has_shm ? o->listen_shm : "",
                                    .window_bytes = (uint64_t)o->producer_window_bytes,
                                    .message_max_bytes = (uint32_t)o->message_max_bytes,
                                    .batch_max_bytes = fq_options_batch_max_bytes(o),
                                    .max_in_flight = (uint32_t)o->max_in_flight,
                                    .producer_expiration_ms = o->producer_expiration_ms,
                                    .spin_us = o->spin_us};
}

static int allocate_shards(struct fq_broker *broker)
{
    size_t count = (size_t)broker->options.shards;
    broker->shards = aligned_alloc(64, count * sizeof *broker->shards);
    broker->to_shards = aligned_alloc(64, count * sizeof *broker->to_shards);
    broker->from_shards = aligned_alloc(64, count * sizeof *broker->from_shards);
    broker->calendars = aligned_alloc(64, count * sizeof *broker->calendars);
    broker->links = calloc(count, sizeof *broker->links);
    broker->shard_threads = calloc(count, sizeof *broker->shard_threads);
    if (!broker->shards || !broker->to_shards || !broker->from_shards || !broker->calendars ||
        !broker->links || !broker->shard_threads) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    memset(broker->shards, 0, count * sizeof *broker->shards);
    memset(broker->to_shards, 0, count * sizeof *broker->to_shards);
    memset(broker->from_shards, 0, count * sizeof *broker->from_shards);
    memset(broker->calendars, 0, count * sizeof *broker->calendars);
    return 0;
}

static int open_shards(struct fq_broker *broker, struct fq_err *err)
{
    for (unsigned i = 0; i < (unsigned)broker->options.shards; i++) {
        struct fq_shard_params params = shard_params(broker, i);
        int code = fq_mailbox_init(&broker->to_shards[i], &broker->shards[i].wake);
        if (code == 0) {
            code = fq_mailbox_init(&broker->from_shards[i], &broker->housekeeper.wake);
        }
        if (code == 0) {
            code = fq_spsc_init(&broker->calendars[i], sizeof(struct fq_calendar_item),
                                CALENDAR_ITEMS);
        }
        if (code != 0) {
            return fq_err_set(err, code, "shard %u: out of memory", i);
        }
        code = fq_shard_init(&broker->shards[i], &params, err);
        if (code != 0) {
            return code;
        }
        broker->shards_count++;
        broker->links[i] = (struct fq_shard_link){.to = &broker->to_shards[i],
                                                  .from = &broker->from_shards[i],
                                                  .calendar = &broker->calendars[i],
                                                  .counters = &broker->shards[i].counters};
    }
    return 0;
}

static uint16_t tcp_port(const struct fq_broker *broker)
{
    for (unsigned i = 0; i < broker->acceptor.listeners_count; i++) {
        const struct fq_endpoint *endpoint = fq_listener_endpoint(broker->acceptor.listeners[i]);
        if (endpoint->transport == FQ_TRANSPORT_TCP) {
            return endpoint->port;
        }
    }
    return 0;
}

static int open_housekeeper(struct fq_broker *broker, struct fq_err *err)
{
    struct fq_housekeeper_params params = {.options = &broker->options,
                                           .clock = broker->clock,
                                           .store = broker->store,
                                           .meta = broker->meta,
                                           .coord = broker->coord,
                                           .shards = broker->links,
                                           .acceptor_counters = &broker->acceptor.counters,
                                           .refused_hellos = &broker->acceptor.refused_hellos,
                                           .tcp_port = tcp_port(broker),
                                           .started = &broker->started};
    return fq_housekeeper_init(&broker->housekeeper, &params, err);
}

/* The store has made progress: whoever is starved or waits for a sync goes on. */
static void wake_shards(void *context)
{
    struct fq_broker *broker = context;
    for (unsigned i = 0; i < broker->shards_count; i++) {
        fq_wake_signal(&broker->shards[i].wake);
    }
}

/* ---- up and down ---------------------------------------------------------------------------- */

static int open_parts(struct fq_broker *broker, struct fq_err *err)
{
    int code = open_store(broker, err);
    code = code != 0 ? code : open_meta(broker, err);
    code = code != 0 ? code : open_coord(broker, err);
    code = code != 0 ? code : allocate_shards(broker);
    code = code != 0 ? code : open_acceptor(broker, err);
    code = code != 0 ? code : open_housekeeper(broker, err);
    code = code != 0 ? code : open_shards(broker, err);
    code = code != 0 ? code : fq_flusher_init(&broker->flusher, broker->store);
    return code != 0 ? code : fq_housekeeper_distribute(&broker->housekeeper, err);
}

int fq_broker_open(const struct fq_options *options, const struct fq_clock *clock,
                   struct fq_broker **ret, struct fq_err *err)
{
    struct fq_err own;
    err = err ? err : &own;
    struct fq_broker *broker = aligned_alloc(64, (sizeof *broker + 63) / 64 * 64);
    if (!broker) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    memset(broker, 0, sizeof *broker);
    broker->options = *options;
    broker->clock = clock;
    fq_err_clear(err);
    int code = fq_wake_init(&broker->started);
    if (code == 0) {
        code = open_parts(broker, err);
    }
    if (code != 0) {
        if (err->text[0] == '\0') {
            (void)fq_err_set(err, code, "%s", fq_err_describe(code));
        }
        fq_broker_close(broker);
        return code;
    }
    fq_store_on_progress(broker->store, wake_shards, broker);
    *ret = broker;
    return 0;
}

bool fq_broker_is_ready(const struct fq_broker *broker)
{
    return atomic_load_explicit(&broker->housekeeper.opens_left, memory_order_acquire) == 0;
}

const struct fq_endpoint *fq_broker_endpoint(const struct fq_broker *broker, unsigned index)
{
    return index < broker->acceptor.listeners_count
               ? fq_listener_endpoint(broker->acceptor.listeners[index])
               : NULL;
}

static int start_thread(struct thread *thread, const char *name, void *(*run)(void *),
                        void *context, struct fq_err *err)
{
    int errnum = pthread_create(&thread->id, NULL, run, context);
    if (errnum != 0) {
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "thread %s", name);
    }
    (void)pthread_setname_np(thread->id, name);
    thread->is_running = true;
    return 0;
}

static void join(struct thread *thread)
{
    if (thread->is_running) {
        (void)pthread_join(thread->id, NULL);
        thread->is_running = false;
    }
}

/* Signals are the main thread's: the others inherit a mask that blocks them all. */
int fq_broker_start(struct fq_broker *broker, struct fq_err *err)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = start_thread(&broker->housekeeper_thread, "housekeeper", fq_housekeeper_run,
                            &broker->housekeeper, err);
    if (code == 0 && fq_store_needs_flusher(broker->store)) {
        code =
            start_thread(&broker->flusher_thread, "flusher", fq_flusher_run, &broker->flusher, err);
    }
    for (unsigned i = 0; code == 0 && i < broker->shards_count; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "shard-%u", i);
        code = start_thread(&broker->shard_threads[i], name, fq_shard_run, &broker->shards[i], err);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

unsigned fq_broker_accept_step(struct fq_broker *broker)
{
    return fq_broker_is_ready(broker) ? fq_acceptor_step(&broker->acceptor) : 0;
}

void fq_broker_accept_sleep(struct fq_broker *broker, int fd, bool knows_ready)
{
    struct pollfd fds[FQ_LISTENERS_MAX + 2] = {
        {.fd = fd, .events = POLLIN}, {.fd = fq_wake_fd(&broker->started), .events = POLLIN}};
    nfds_t count = 2;
    int64_t deadline_us = INT64_MAX;
    if (knows_ready) {
        for (unsigned i = 0; i < broker->acceptor.listeners_count; i++) {
            fds[count++] = (struct pollfd){.fd = fq_listener_fd(broker->acceptor.listeners[i]),
                                           .events = POLLIN};
        }
        deadline_us = fq_acceptor_next_deadline_us(&broker->acceptor);
    }
    fq_wake_arm(&broker->started);
    if (fq_broker_is_ready(broker) == knows_ready) {
        (void)poll(fds, count, fq_deadline_poll_ms(fq_mono_us(), deadline_us));
    }
    fq_wake_disarm(&broker->started);
}

struct fq_shard *fq_broker_shard(struct fq_broker *broker, unsigned index)
{
    return index < broker->shards_count ? &broker->shards[index] : NULL;
}

unsigned fq_broker_step(struct fq_broker *broker, int64_t now_us)
{
    unsigned done = fq_broker_accept_step(broker);
    for (unsigned i = 0; i < broker->shards_count; i++) {
        done += fq_shard_step(&broker->shards[i], now_us);
    }
    done += fq_housekeeper_step(&broker->housekeeper, now_us);
    return done + fq_flusher_step(&broker->flusher);
}

static bool are_shards_finished(const struct fq_broker *broker)
{
    for (unsigned i = 0; i < broker->shards_count; i++) {
        if (atomic_load_explicit(&broker->shards[i].is_finished, memory_order_acquire) == 0) {
            return false;
        }
    }
    return true;
}

/* Without threads somebody must drive the shards to their end. */
static void step_to_the_end(struct fq_broker *broker)
{
    while (!are_shards_finished(broker)) {
        if (fq_broker_step(broker, fq_mono_us()) == 0) {
            (void)poll(NULL, 0, 1);
        }
    }
    while (fq_housekeeper_step(&broker->housekeeper, fq_mono_us()) > 0) {
    }
}

void fq_broker_stop(struct fq_broker *broker)
{
    fq_acceptor_close(&broker->acceptor);
    for (unsigned i = 0; i < broker->shards_count; i++) {
        fq_shard_stop(&broker->shards[i]);
    }
    if (!broker->housekeeper_thread.is_running) {
        step_to_the_end(broker);
        return;
    }
    for (unsigned i = 0; i < broker->shards_count; i++) {
        join(&broker->shard_threads[i]);
    }
    if (broker->flusher_thread.is_running) {
        fq_flusher_stop(&broker->flusher);
        join(&broker->flusher_thread);
    }
    fq_housekeeper_stop(&broker->housekeeper);
    join(&broker->housekeeper_thread);
}

void fq_broker_close(struct fq_broker *broker)
{
    if (!broker) {
        return;
    }
    bool is_clean = broker->shards_count > 0 && are_shards_finished(broker);
    fq_acceptor_close(&broker->acceptor);
    for (unsigned i = 0; i < broker->shards_count; i++) {
        fq_shard_fini(&broker->shards[i]);
    }
    fq_housekeeper_fini(&broker->housekeeper);
    for (int64_t i = 0; i < broker->options.shards && broker->calendars; i++) {
        fq_mailbox_fini(&broker->to_shards[i]);
        fq_mailbox_fini(&broker->from_shards[i]);
        fq_spsc_fini(&broker->calendars[i]);
    }
    fq_flusher_fini(&broker->flusher);
    if (broker->coord) {
        broker->coord->ops->close(broker->coord);
    }
    if (broker->meta) {
        broker->meta->ops->close(broker->meta);
    }
    if (broker->store) {
        fq_store_close(broker->store, is_clean);
    }
    fq_wake_fini(&broker->started);
    free(broker->shards);
    free(broker->to_shards);
    free(broker->from_shards);
    free(broker->calendars);
    free(broker->links);
    free(broker->shard_threads);
    free(broker);
}
