/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See housekeeper.h. Requests about topics are in admin.c; this file moves tasks, feeds the
 * calendar, keeps snapshots, and is the thread.
 *
 * Nothing that fails here is fatal: what meta.pool refuses is derived from the logs (the calendar
 * is dropped and grows again, a snapshot is taken again), and is counted.
 */
#include "housekeeper.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/background.h"
#include "base/log.h"
#include "fabric/fabric.h"
#include "timeindex/timeindex.h"

#define CALENDAR_BATCH 512

/* ---- to the shards -------------------------------------------------------------------------- */

void fq_housekeeper_send(struct fq_housekeeper *hk, unsigned shard, struct fq_task *task)
{
    assert(shard < hk->shards_count);
    fq_mailbox_send(hk->params.shards[shard].to, task);
}

void fq_housekeeper_answer(struct fq_housekeeper *hk, struct fq_task *task)
{
    task->type = FQ_TASK_ANSWER;
    fq_housekeeper_send(hk, task->shard, task);
}

static struct fq_task *spec_task(struct fq_housekeeper *hk, enum fq_task_type type,
                                 const struct fq_topic *topic)
{
    const struct fq_served *served = topic->context;
    struct fq_task *task = fq_task_create(type);
    struct fq_hosted_spec *spec = task ? calloc(1, sizeof *spec) : NULL;
    if (!spec) {
        fq_task_destroy(task);
        return NULL;
    }
    task->spec = spec;
    spec->topic_id = topic->id;
    memcpy(spec->name, topic->name, sizeof spec->name);
    fq_topic_settings_resolve(&topic->settings, &hk->topic_defaults, &spec->config);
    spec->first_shard = topic->first_shard;
    spec->partitions = topic->partitions;
    spec->gauges = calloc(topic->partitions, sizeof(struct fq_gauges *));
    if (!spec->gauges) {
        fq_task_destroy(task);
        return NULL;
    }
    memcpy(spec->gauges, served->gauges, topic->partitions * sizeof(struct fq_gauges *));
    return task;
}

/* One task for each shard, or none at all. */
static int broadcast(struct fq_housekeeper *hk, enum fq_task_type type,
                     const struct fq_topic *topic)
{
    struct fq_task *tasks[FQ_LIMIT_SHARDS];
    for (unsigned i = 0; i < hk->shards_count; i++) {
        tasks[i] = type == FQ_TASK_REMOVE ? fq_task_create(type) : spec_task(hk, type, topic);
        if (!tasks[i]) {
            while (i > 0) {
                fq_task_destroy(tasks[--i]);
            }
            return FLASHQ_ERR_NO_MEMORY;
        }
        tasks[i]->topic_id = topic->id;
    }
    for (unsigned i = 0; i < hk->shards_count; i++) {
        fq_housekeeper_send(hk, i, tasks[i]);
    }
    return 0;
}

static int grow_gauges(struct fq_topic *topic)
{
    struct fq_served *served = topic->context;
    if (!served) {
        served = topic->context = calloc(1, sizeof *served);
    }
    struct fq_gauges **grown =
        served ? realloc(served->gauges, topic->partitions * sizeof(struct fq_gauges *)) : NULL;
    if (!grown) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    served->gauges = grown;
    for (; served->count < topic->partitions; served->count++) {
        grown[served->count] = calloc(1, sizeof(struct fq_gauges));
        if (!grown[served->count]) {
            return FLASHQ_ERR_NO_MEMORY;
        }
    }
    return 0;
}

void fq_housekeeper_free_served(struct fq_topic *topic)
{
    struct fq_served *served = topic->context;
    if (!served) {
        return;
    }
    for (uint32_t i = 0; i < served->count; i++) {
        free(served->gauges[i]);
    }
    free(served->gauges);
    fq_task_destroy(served->deletion);
    free(served);
    topic->context = NULL;
}

int fq_housekeeper_serve(struct fq_housekeeper *hk, struct fq_topic *topic, struct fq_err *err)
{
    int code = grow_gauges(topic);
    if (code == 0) {
        code = broadcast(hk, FQ_TASK_SERVE, topic);
    }
    return code == 0 ? 0
                     : fq_err_set(err, code, "topic \"%s\": no memory to serve it", topic->name);
}

int fq_housekeeper_configure(struct fq_housekeeper *hk, struct fq_topic *topic, struct fq_err *err)
{
    int code = broadcast(hk, FQ_TASK_CONFIGURE, topic);
    return code == 0 ? 0 : fq_err_set(err, code, "topic \"%s\": out of memory", topic->name);
}

int fq_housekeeper_remove(struct fq_housekeeper *hk, struct fq_topic *topic)
{
    struct fq_served *served = topic->context;
    int code = broadcast(hk, FQ_TASK_REMOVE, topic);
    if (code == 0) {
        served->removals_left = hk->shards_count;
    }
    return code;
}

/* ---- at start ------------------------------------------------------------------------------- */

static void forget_the_deleting(struct fq_housekeeper *hk)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic *topic;
    for (size_t i = 0; (topic = coord->ops->deleting(coord, i));) {
        struct fq_err err;
        fq_info("topic %s: going on with its deletion", topic->name);
        if (coord->ops->topic_forget(coord, topic, &err) != 0) {
            fq_warn("topic %s: %s", topic->name, err.text);
            i++;
        }
    }
}

/* Puts the pieces of a snapshot together; absent or torn is no snapshot. */
static void load_snapshot(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_meta *meta = hk->params.meta;
    struct fq_meta_key key = {.topic_id = task->topic_id, .partition = task->partition};
    const void *piece;
    size_t length;
    while (meta->ops->get(meta, FQ_META_PRODUCERS, &key, &piece, &length) == 0) {
        uint8_t *grown = realloc(task->bytes, task->bytes_length + length + 1);
        if (!grown) {
            return;
        }
        memcpy(grown + task->bytes_length, piece, length);
        task->bytes = grown;
        task->bytes_length += length;
        key.node++;
        if (length < FQ_META_VALUE_BYTES_MAX) {
            return;
        }
    }
}

static int open_partitions(struct fq_housekeeper *hk, const struct fq_topic *topic)
{
    uint32_t count = topic->partitions_on_disk < topic->partitions ? topic->partitions_on_disk
                                                                   : topic->partitions;
    for (uint32_t i = 0; i < count; i++) {
        struct fq_task *task = fq_task_create(FQ_TASK_OPEN);
        if (!task) {
            return FLASHQ_ERR_NO_MEMORY;
        }
        struct fq_meta_key key = {.topic_id = topic->id, .partition = i};
        struct fq_calendar_state state;
        task->topic_id = topic->id;
        task->partition = i;
        if (fq_calendar_get_state(hk->params.meta, &key, &state) == 0) {
            task->calendar_complete_to = state.complete_to;
        }
        load_snapshot(hk, task);
        (void)atomic_fetch_add_explicit(&hk->opens_left, 1, memory_order_relaxed);
        fq_housekeeper_send(hk, fq_topic_shard(topic, i, hk->shards_count), task);
    }
    return 0;
}

int fq_housekeeper_distribute(struct fq_housekeeper *hk, struct fq_err *err)
{
    struct fq_coord *coord = hk->params.coord;
    const char *name = "";
    struct fq_topic *topic;
    forget_the_deleting(hk);
    while ((topic = coord->ops->next(coord, name))) {
        int code = fq_housekeeper_serve(hk, topic, err);
        if (code == 0 && open_partitions(hk, topic) != 0) {
            code = fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
        }
        if (code != 0) {
            return code;
        }
        fq_count(&hk->counters, FQ_COUNT_TOPICS);
        name = topic->name;
    }
    return 0;
}

static void on_opened(struct fq_housekeeper *hk)
{
    if (atomic_fetch_sub_explicit(&hk->opens_left, 1, memory_order_release) == 1) {
        fq_wake_signal(hk->params.started);
    }
}

/* ---- calendar ------------------------------------------------------------------------------- */

struct calendar_run { /* consecutive items of one partition */
    struct fq_meta_key key;
    struct fq_calendar_mark marks[CALENDAR_BATCH];
    size_t marks_count;
    int64_t complete_to; /* -1: nothing to declare */
};

static int calendar_change(struct fq_housekeeper *hk, const struct calendar_run *run,
                           const struct fq_calendar_item *cut)
{
    struct fq_meta *meta = hk->params.meta;
    int code = meta->ops->begin(meta);
    if (code != 0) {
        return code;
    }
    if (!cut) {
        code = fq_calendar_apply(meta, &run->key, run->marks, run->marks_count, run->complete_to,
                                 NULL);
    } else {
        switch (cut->cut) {
        case FQ_CALENDAR_TRIM: code = fq_calendar_trim(meta, &run->key, cut->offset, NULL); break;
        case FQ_CALENDAR_TRUNCATE:
            code = fq_calendar_truncate(meta, &run->key, cut->offset, NULL);
            break;
        case FQ_CALENDAR_DROP: code = fq_calendar_drop(meta, &run->key, NULL); break;
        }
    }
    if (code != 0) {
        meta->ops->abort(meta);
        return code;
    }
    return meta->ops->commit(meta);
}

/* A calendar that cannot be changed is dropped: it starts again with the next mark, and queries go
 * by the chunks until then. */
static void calendar_apply(struct fq_housekeeper *hk, const struct calendar_run *run,
                           const struct fq_calendar_item *cut)
{
    fq_count_add(&hk->counters, FQ_COUNT_CALENDAR_MARKS, (int64_t)run->marks_count);
    int code = calendar_change(hk, run, cut);
    if (code == 0) {
        return;
    }
    struct fq_calendar_item drop = {.cut = FQ_CALENDAR_DROP};
    fq_count(&hk->counters, FQ_COUNT_CALENDAR_ERRORS);
    if (calendar_change(hk, run, &drop) != 0) {
        fq_warn("a time calendar can neither be changed nor dropped: %s", fq_err_describe(code));
    }
}

static void flush_run(struct fq_housekeeper *hk, struct calendar_run *run)
{
    if (run->complete_to >= 0) {
        calendar_apply(hk, run, NULL);
    }
    run->marks_count = 0;
    run->complete_to = -1;
}

static void add_item(struct fq_housekeeper *hk, struct calendar_run *run,
                     const struct fq_calendar_item *item)
{
    bool is_same =
        fq_uuid_equal(&run->key.topic_id, &item->topic_id) && run->key.partition == item->partition;
    if (!is_same || run->marks_count == CALENDAR_BATCH || item->kind == FQ_CALENDAR_ITEM_CUT) {
        flush_run(hk, run);
    }
    run->key = (struct fq_meta_key){.topic_id = item->topic_id, .partition = item->partition};
    if (item->kind == FQ_CALENDAR_ITEM_CUT) {
        calendar_apply(hk, run, item);
        return;
    }
    if (item->kind == FQ_CALENDAR_ITEM_MARK) {
        run->marks[run->marks_count++] = item->mark;
    }
    run->complete_to = item->offset;
}

static unsigned drain_calendar(struct fq_housekeeper *hk, struct fq_spsc *ring)
{
    struct calendar_run run = {.complete_to = -1};
    struct fq_calendar_item item;
    unsigned taken = 0;
    while (taken < 8 * CALENDAR_BATCH && fq_spsc_pop(ring, &item)) {
        add_item(hk, &run, &item);
        taken++;
    }
    flush_run(hk, &run);
    return taken;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static int store_pieces(struct fq_meta *meta, const struct fq_task *task)
{
    struct fq_meta_key key = {.topic_id = task->topic_id, .partition = task->partition};
    int code = fq_meta_remove_all(meta, FQ_META_PRODUCERS, &task->topic_id, task->partition);
    for (size_t at = 0; code == 0 && at < task->bytes_length; key.node++) {
        size_t left = task->bytes_length - at;
        size_t piece = left < FQ_META_VALUE_BYTES_MAX ? left : FQ_META_VALUE_BYTES_MAX;
        code = meta->ops->put(meta, FQ_META_PRODUCERS, &key, task->bytes + at, piece, NULL);
        at += piece;
    }
    return code;
}

static void store_snapshot(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_meta *meta = hk->params.meta;
    int code = meta->ops->begin(meta);
    if (code == 0) {
        code = store_pieces(meta, task);
        if (code != 0) {
            meta->ops->abort(meta);
        } else {
            code = meta->ops->commit(meta);
        }
    }
    if (code != 0) {
        fq_warn(
            "meta.pool: a snapshot of producers is not kept (%s); the next start reads more log",
            fq_err_describe(code));
    } else {
        fq_count(&hk->counters, FQ_COUNT_META_SNAPSHOTS);
    }
    fq_task_destroy(task);
}

static void make_ring(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_err err;
    task->status = fq_region_create(task->region_bytes, FQ_REGION_MIRRORED, &task->region, &err);
    if (task->status != 0) {
        fq_warn("a producer window of %llu bytes: %s", (unsigned long long)task->region_bytes,
                err.text);
    }
    fq_housekeeper_send(hk, task->shard, task);
}

static void ask_calendar(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_meta_key key = {.topic_id = task->topic_id, .partition = task->partition};
    (void)fq_calendar_query(hk->params.meta, &key, task->query.timestamp_ms, &task->calendar);
    fq_housekeeper_send(hk, task->shard, task);
}

static void on_removed(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic *topic;
    for (size_t i = 0; (topic = coord->ops->deleting(coord, i)); i++) {
        struct fq_served *served = topic->context;
        if (fq_uuid_equal(&topic->id, &task->topic_id)) {
            if (--served->removals_left == 0) {
                fq_admin_finish_delete(hk, topic);
            }
            break;
        }
    }
    fq_task_destroy(task);
}

static void take_task(struct fq_housekeeper *hk, struct fq_task *task)
{
    switch (task->type) {
    case FQ_TASK_REQUEST: fq_admin_handle(hk, task); return;
    case FQ_TASK_ANSWER: fq_housekeeper_answer(hk, task); return;
    case FQ_TASK_RING: make_ring(hk, task); return;
    case FQ_TASK_CALENDAR: ask_calendar(hk, task); return;
    case FQ_TASK_SNAPSHOT: store_snapshot(hk, task); return;
    case FQ_TASK_REMOVE: on_removed(hk, task); return;
    case FQ_TASK_OPEN: on_opened(hk); break;
    case FQ_TASK_OWNER:
    case FQ_TASK_SERVE:
    case FQ_TASK_CONFIGURE: break; /* never sent this way */
    }
    fq_task_destroy(task);
}

/* ---- the step ------------------------------------------------------------------------------- */

unsigned fq_housekeeper_step(struct fq_housekeeper *hk, int64_t now_us)
{
    unsigned done = 0;
    for (unsigned i = 0; i < hk->shards_count; i++) {
        const struct fq_shard_link *shard = &hk->params.shards[i];
        struct fq_task *task;
        (void)fq_mailbox_flush(shard->to);
        done += drain_calendar(hk, shard->calendar); /* before the queries that follow it */
        while ((task = fq_mailbox_take(shard->from))) {
            take_task(hk, task);
            done++;
        }
    }
    /* At the end nothing is prepared any more; jobs that are left fq_store_close finishes. */
    bool is_stopping = atomic_load_explicit(&hk->stop, memory_order_acquire) != 0;
    int store = is_stopping ? 0 : fq_store_step(hk->params.store, now_us);
    return done + (store > 0 ? (unsigned)store : 0);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static bool has_mail(struct fq_housekeeper *hk)
{
    for (unsigned i = 0; i < hk->shards_count; i++) {
        const struct fq_shard_link *shard = &hk->params.shards[i];
        if (!fq_mailbox_is_empty(shard->from) || !fq_spsc_is_empty(shard->calendar)) {
            return true;
        }
    }
    return false;
}

static bool has_waiting(struct fq_housekeeper *hk)
{
    for (unsigned i = 0; i < hk->shards_count; i++) {
        if (hk->params.shards[i].to->waiting) {
            return true;
        }
    }
    return false;
}

static void sleep_until_work(struct fq_housekeeper *hk)
{
    struct epoll_event events[2];
    fq_wake_arm(&hk->wake);
    fq_store_wake_arm(hk->params.store);
    bool is_idle = fq_store_step(hk->params.store, fq_mono_us()) == 0 && !has_mail(hk) &&
                   atomic_load_explicit(&hk->stop, memory_order_acquire) == 0;
    if (is_idle) {
        int64_t now_us = fq_mono_us();
        int64_t deadline_us =
            has_waiting(hk) ? now_us + 1000 : fq_store_next_deadline_us(hk->params.store);
        (void)epoll_wait(hk->epoll_fd, events, 2, fq_deadline_poll_ms(now_us, deadline_us));
    }
    fq_store_wake_disarm(hk->params.store);
    fq_wake_disarm(&hk->wake);
}

void *fq_housekeeper_run(void *context)
{
    struct fq_housekeeper *hk = context;
    fq_background_begin(); /* also on the core of a shard it keeps no batch waiting */
    for (;;) {
        /* Read first: what was sent before stop is then seen by the step. */
        bool is_stopping = atomic_load_explicit(&hk->stop, memory_order_acquire) != 0;
        if (fq_housekeeper_step(hk, fq_mono_us()) > 0) {
            continue;
        }
        if (is_stopping) {
            return NULL;
        }
        sleep_until_work(hk);
    }
}

void fq_housekeeper_stop(struct fq_housekeeper *hk)
{
    atomic_store_explicit(&hk->stop, 1, memory_order_release); /* pairs with fq_housekeeper_run */
    fq_wake_signal(&hk->wake);
}

int fq_housekeeper_init(struct fq_housekeeper *hk, const struct fq_housekeeper_params *params,
                        struct fq_err *err)
{
    memset(hk, 0, sizeof *hk);
    hk->params = *params;
    hk->shards_count = (unsigned)params->options->shards;
    fq_options_topic_config(params->options, &hk->topic_defaults);
    hk->wake.fd = -1;
    hk->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int code = hk->epoll_fd < 0 ? fq_err_from_errno(errno) : fq_wake_init(&hk->wake);
    struct epoll_event event = {.events = EPOLLIN};
    if (code == 0 &&
        (epoll_ctl(hk->epoll_fd, EPOLL_CTL_ADD, fq_wake_fd(&hk->wake), &event) != 0 ||
         epoll_ctl(hk->epoll_fd, EPOLL_CTL_ADD, fq_store_wake_fd(params->store), &event) != 0)) {
        code = fq_err_from_errno(errno);
    }
    if (code != 0) {
        fq_housekeeper_fini(hk);
        return fq_err_set(err, code, "housekeeper: %s", fq_err_describe(code));
    }
    return 0;
}

void fq_housekeeper_fini(struct fq_housekeeper *hk)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic *topic;
    if (!coord) {
        return;
    }
    for (const char *name = ""; (topic = coord->ops->next(coord, name)); name = topic->name) {
        fq_housekeeper_free_served(topic);
    }
    for (size_t i = 0; (topic = coord->ops->deleting(coord, i)); i++) {
        fq_housekeeper_free_served(topic);
    }
    if (hk->epoll_fd >= 0) {
        (void)close(hk->epoll_fd);
    }
    fq_wake_fini(&hk->wake);
    hk->params.coord = NULL;
}
