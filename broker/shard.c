/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shard.h. One step: arrivals, tasks, fabrics, the batches they told of (in turns), one round
 * over the partitions that were appended to, then the sessions (acknowledgements, wake-ups), then
 * work off the path. Steps that do nothing are repeated for spin.us, if that has paid of late
 * (base/spin.h); then it sleeps.
 */
#include "shard.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "wire/protocol_codec.h"

#define ARRIVALS_MAX     256
#define EVENTS_PER_POLL  256
#define STOP_WITHIN_US   2000000
#define CALENDAR_WAKE_US 10000

/* ---- what partitions and sessions ask ------------------------------------------------------- */

static bool push_calendar(void *context, const struct fq_calendar_item *item)
{
    struct fq_shard *shard = context;
    if (!fq_spsc_push(shard->params.calendar, item)) {
        fq_wake_signal(shard->params.housekeeper_wake);
        return false;
    }
    if (shard->calendar_wake_at_us == INT64_MAX) { /* one wake-up for all items of a while */
        shard->calendar_wake_at_us = shard->now_us + CALENDAR_WAKE_US;
    }
    return true;
}

static void wake_for_calendar(struct fq_shard *shard)
{
    if (shard->now_us >= shard->calendar_wake_at_us) {
        shard->calendar_wake_at_us = INT64_MAX;
        fq_wake_signal(shard->params.housekeeper_wake);
    }
}

static void submit(void *context, struct fq_task *task)
{
    struct fq_shard *shard = context;
    task->shard = shard->params.index;
    fq_mailbox_send(shard->params.to_housekeeper, task);
}

static void on_hosted(void *context, struct fq_hosted *hosted, enum fq_hosted_event event)
{
    struct fq_shard *shard = context;
    fq_sessions_on_hosted(&shard->sessions, hosted, event, shard->now_us);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int init_epoll(struct fq_shard *shard, struct fq_err *err)
{
    shard->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    int failed = shard->epoll_fd < 0 ||
                 epoll_ctl(shard->epoll_fd, EPOLL_CTL_ADD, fq_wake_fd(&shard->wake), &event) != 0;
    for (unsigned i = 0; i < shard->fabrics_count && !failed; i++) {
        failed = epoll_ctl(shard->epoll_fd, EPOLL_CTL_ADD, fq_fabric_fd(shard->fabrics[i]), &event);
    }
    return failed ? fq_err_errno(err, fq_err_from_errno(errno), errno, "epoll") : 0;
}

static int init_fabrics(struct fq_shard *shard, struct fq_err *err)
{
    for (unsigned i = 0; i < shard->params.transports_count; i++) {
        struct fq_fabric_params params = {.connections_max = 0};
        int code = fq_fabric_create(shard->params.transports[i], &params, &shard->fabrics[i], err);
        if (code != 0) {
            return code;
        }
        shard->fabrics_count++;
    }
    return fq_region_create(FQ_SHARD_VIEWS * sizeof(struct fq_view), FQ_REGION_PEER_READS,
                            &shard->views, err);
}

static int init_layers(struct fq_shard *shard)
{
    const struct fq_shard_params *params = &shard->params;
    struct fq_hosted_params hosted = {.store = params->store,
                                      .clock = params->clock,
                                      .counters = &shard->counters,
                                      .shard = params->index,
                                      .shards_count = params->shards_count,
                                      .views = fq_region_base(shard->views),
                                      .views_count = FQ_SHARD_VIEWS,
                                      .batch_max_bytes = params->batch_max_bytes,
                                      .max_in_flight = params->max_in_flight,
                                      .producer_expiration_ms = params->producer_expiration_ms,
                                      .calendar_push = push_calendar,
                                      .submit = submit,
                                      .on_event = on_hosted,
                                      .context = shard};
    shard->sessions = (struct fq_session_host){.hosted = &shard->hosted,
                                               .views = shard->views,
                                               .views_count = FQ_SHARD_VIEWS,
                                               .counters = &shard->counters,
                                               .shard = params->index,
                                               .submit = submit,
                                               .context = shard,
                                               .cluster_id = params->cluster_id,
                                               .boot_id = params->boot_id,
                                               .shm_path = params->shm_path,
                                               .window_bytes = params->window_bytes,
                                               .message_max_bytes = params->message_max_bytes,
                                               .batch_max_bytes = params->batch_max_bytes,
                                               .max_in_flight = params->max_in_flight};
    (void)snprintf(shard->sessions.storage, sizeof shard->sessions.storage, "%s, flush %s: %s",
                   fq_store_medium(params->store), fq_store_flush(params->store),
                   fq_store_guarantee(params->store));
    int code = fq_session_host_init(&shard->sessions);
    return code != 0 ? code : fq_hosted_table_init(&shard->hosted, &hosted);
}

int fq_shard_init(struct fq_shard *shard, const struct fq_shard_params *params, struct fq_err *err)
{
    memset(shard, 0, sizeof *shard);
    shard->params = *params;
    shard->epoll_fd = -1;
    shard->wake.fd = -1;
    fq_spin_init(&shard->spin, params->spin_us);
    shard->stop_at_us = shard->calendar_wake_at_us = INT64_MAX;
    int code = fq_wake_init(&shard->wake);
    if (code == 0) {
        code = fq_spsc_init(&shard->arrivals, sizeof(struct fq_arrival), ARRIVALS_MAX);
    }
    if (code != 0) {
        (void)fq_err_set(err, code, "shard %u: %s", params->index, fq_err_describe(code));
    } else {
        code = init_fabrics(shard, err);
    }
    if (code == 0) {
        code = init_epoll(shard, err);
    }
    if (code == 0) {
        code = init_layers(shard);
        if (code != 0) {
            (void)fq_err_set(err, code, "shard %u: out of memory", params->index);
        }
    }
    if (code != 0) {
        fq_shard_fini(shard);
    }
    return code;
}

void fq_shard_fini(struct fq_shard *shard)
{
    struct fq_arrival arrival;
    while (shard->arrivals.items && fq_spsc_pop(&shard->arrivals, &arrival)) {
        fq_incoming_reject(arrival.incoming, FLASHQ_ERR_SHUTTING_DOWN,
                           "the broker is shutting down");
    }
    fq_spsc_fini(&shard->arrivals);
    if (shard->sessions.hosted) {
        fq_session_host_fini(&shard->sessions);
        fq_hosted_table_fini(&shard->hosted, false);
    }
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        fq_fabric_destroy(shard->fabrics[i]);
    }
    fq_region_unref(shard->views);
    if (shard->epoll_fd >= 0) {
        (void)close(shard->epoll_fd);
    }
    fq_wake_fini(&shard->wake);
    memset(shard, 0, sizeof *shard);
    shard->epoll_fd = shard->wake.fd = -1;
}

/* ---- arrivals ------------------------------------------------------------------------------- */

bool fq_shard_arrive(struct fq_shard *shard, const struct fq_arrival *arrival)
{
    bool taken = fq_spsc_push(&shard->arrivals, arrival);
    fq_wake_signal(&shard->wake);
    return taken;
}

static struct fq_fabric *fabric_for(const struct fq_shard *shard, enum fq_transport transport)
{
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        if (fq_fabric_transport(shard->fabrics[i]) == transport) {
            return shard->fabrics[i];
        }
    }
    return NULL;
}

static void count_accepted(struct fq_shard *shard, enum fq_transport transport)
{
    switch (transport) {
    case FQ_TRANSPORT_SHM: fq_count(&shard->counters, FQ_COUNT_SESSIONS_ACCEPTED_SHM); break;
    case FQ_TRANSPORT_TCP: fq_count(&shard->counters, FQ_COUNT_SESSIONS_ACCEPTED_TCP); break;
    case FQ_TRANSPORT_VERBS: fq_count(&shard->counters, FQ_COUNT_SESSIONS_ACCEPTED_RDMA); break;
    case FQ_TRANSPORT_AUTO: break;
    }
}

static void adopt(struct fq_shard *shard, const struct fq_arrival *arrival)
{
    enum fq_transport transport = fq_incoming_transport(arrival->incoming);
    struct fq_fabric *fabric = fabric_for(shard, transport);
    struct fq_hello_reply reply = {.version = arrival->version,
                                   .broker_id = shard->params.broker_id,
                                   .shard = shard->params.index,
                                   .shards_count = shard->params.shards_count};
    uint8_t bytes[FQ_HELLO_REPLY_WIRE_BYTES];
    struct fq_conn *conn;
    struct fq_err err;
    bool is_stopping = shard->stop_at_us != INT64_MAX;
    if (!fabric || is_stopping) {
        fq_incoming_reject(arrival->incoming,
                           is_stopping ? FLASHQ_ERR_SHUTTING_DOWN : FLASHQ_ERR_UNSUPPORTED,
                           is_stopping ? "the broker is shutting down" : "no such transport here");
        goto refused;
    }
    fq_hello_reply_encode(bytes, &reply);
    int code = fq_fabric_adopt(fabric, arrival->incoming, bytes, sizeof bytes, NULL, &conn, &err);
    if (code != 0) {
        fq_warn("shard %u: a connection could not be taken: %s", shard->params.index, err.text);
        goto refused;
    }
    if (!fq_session_create(&shard->sessions, conn, shard->now_us)) {
        fq_warn("%s: refused: no memory for another session", fq_conn_peer_name(conn));
        fq_conn_close(conn);
        goto refused;
    }
    count_accepted(shard, transport);
    fq_debug("%s: on shard %u", fq_conn_peer_name(conn), shard->params.index);
    return;
refused:
    fq_count(&shard->counters, FQ_COUNT_SESSIONS_REFUSED);
    (void)atomic_fetch_sub_explicit(shard->params.connections, 1, memory_order_relaxed);
}

static unsigned take_arrivals(struct fq_shard *shard)
{
    struct fq_arrival arrival;
    unsigned taken = 0;
    while (taken < ARRIVALS_MAX && fq_spsc_pop(&shard->arrivals, &arrival)) {
        adopt(shard, &arrival);
        taken++;
    }
    return taken;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static void open_at_start(struct fq_shard *shard, struct fq_task *task)
{
    struct fq_hosted *hosted;
    struct fq_err err;
    fq_err_clear(&err);
    task->status = fq_hosted_find(&shard->hosted, &task->topic_id, task->partition, &hosted, &err);
    if (task->status == 0) {
        task->status = fq_hosted_open(hosted, task, &err);
    }
    if (task->status != 0) {
        fq_error("%s", err.text);
    }
    submit(shard, task);
}

static int64_t describe(const struct fq_shard *shard, const struct fq_hosted *hosted, uint8_t *out,
                        size_t bytes, uint32_t correlation)
{
    struct fq_partition *partition = hosted->partition;
    struct fq_log *log = fq_partition_log(partition);
    struct fq_err why;
    fq_err_clear(&why);
    const char *state = fq_partition_state(partition, &why) == 0 ? "serving" : why.text;
    char state_words[FQ_WORDS_BYTES], medium_words[FQ_WORDS_BYTES];
    struct fq_partition_describe_answer answer = {
        .log_start = fq_partition_log_start(partition),
        .end = fq_partition_high_watermark(partition),
        .end_appended = fq_log_end(log),
        .leader_epoch = fq_partition_leader_epoch(partition),
        .leader = shard->params.broker_id,
        .shard = shard->params.index,
        .bytes = fq_log_bytes(log),
        .damage_count = fq_log_damage_count(log),
        .producers_count = (uint32_t)fq_partition_producers_count(partition),
        .medium = fq_words(fq_store_medium(shard->params.store), medium_words),
        .state = fq_words(state, state_words)};
    for (struct fq_segment *s = fq_log_segment_first(log); s; s = fq_segment_next(s)) {
        answer.segments_count++;
    }
    return fq_encode_partition_describe_answer(out, bytes, correlation, &answer);
}

/* A request about a partition of this shard, which came in on another one. */
static void serve_owner(struct fq_shard *shard, struct fq_task *task)
{
    struct fq_hosted *hosted;
    struct fq_err err;
    fq_err_clear(&err);
    int code = fq_hosted_find(&shard->hosted, &task->topic_id, task->partition, &hosted, &err);
    if (code == 0) {
        code = fq_hosted_open(hosted, NULL, &err);
    }
    if (code == 0 && task->msg_type == FQ_MSG_TRIM) {
        code = fq_hosted_trim(hosted, task->offset, &err);
    }
    size_t bytes = 2048;
    uint8_t *room = code == 0 ? fq_task_answer_room(task, bytes) : NULL;
    if (!room) {
        fq_task_fail(task, code != 0 ? code : FLASHQ_ERR_NO_MEMORY, err.text[0] ? err.text : NULL);
    } else if (task->msg_type == FQ_MSG_TRIM) {
        struct fq_trim_answer answer = {.log_start = fq_partition_log_start(hosted->partition)};
        fq_task_answered(task, fq_encode_trim_answer(room, bytes, task->correlation, &answer));
    } else {
        fq_task_answered(task, describe(shard, hosted, room, bytes, task->correlation));
    }
    task->type = FQ_TASK_ANSWER;
    fq_mailbox_send(shard->params.to_housekeeper, task); /* task->shard is where it came in */
}

static void take_task(struct fq_shard *shard, struct fq_task *task)
{
    switch (task->type) {
    case FQ_TASK_SERVE:
        if (fq_hosted_serve(&shard->hosted, task->spec) != 0) {
            fq_error("shard %u: no memory to serve topic %s", shard->params.index,
                     task->spec->name);
        }
        break;
    case FQ_TASK_CONFIGURE: fq_hosted_configure(&shard->hosted, task->spec); break;
    case FQ_TASK_OPEN: open_at_start(shard, task); return;
    case FQ_TASK_OWNER: serve_owner(shard, task); return;
    case FQ_TASK_REMOVE:
        fq_hosted_remove(&shard->hosted, &task->topic_id);
        submit(shard, task);
        return;
    case FQ_TASK_ANSWER:
    case FQ_TASK_RING:
    case FQ_TASK_CALENDAR: fq_sessions_on_task(&shard->sessions, task, shard->now_us); return;
    case FQ_TASK_REQUEST:
    case FQ_TASK_SNAPSHOT: break; /* never sent this way */
    }
    fq_task_destroy(task);
}

static unsigned take_tasks(struct fq_shard *shard)
{
    struct fq_task *task;
    unsigned taken = 0;
    while ((task = fq_mailbox_take(shard->params.from_housekeeper))) {
        take_task(shard, task);
        taken++;
    }
    return taken;
}

/* ---- the step ------------------------------------------------------------------------------- */

static unsigned poll_fabrics(struct fq_shard *shard)
{
    struct fq_event events[EVENTS_PER_POLL];
    unsigned seen = 0;
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        uint64_t received = fq_fabric_received(shard->fabrics[i]);
        int count = fq_fabric_poll(shard->fabrics[i], events, EVENTS_PER_POLL);
        if (count < 0) {
            fq_error("shard %u: the %s fabric failed: %s", shard->params.index,
                     fq_transport_name(fq_fabric_transport(shard->fabrics[i])),
                     fq_err_describe(count));
            abort(); /* nothing can be served over it any more; a restart can */
        }
        if (count > 0) {
            /* Once more: a topic that a peer knows of was told to this shard before, but maybe
             * since the tasks were taken. */
            seen += take_tasks(shard);
        }
        for (int e = 0; e < count; e++) {
            struct fq_session *session = fq_conn_context(events[e].conn);
            if (session) {
                fq_session_on_event(session, &events[e], shard->now_us);
            }
        }
        seen += (unsigned)count;
        /* READs are answered there without an event: whoever reads one record after the other would else find
         * a broker that believes itself idle, and sleeps. */
        seen += count == 0 && fq_fabric_received(shard->fabrics[i]) != received;
    }
    return seen;
}

static void begin_stop(struct fq_shard *shard)
{
    shard->stop_at_us = shard->now_us + STOP_WITHIN_US;
    fq_sessions_say_goodbye(&shard->sessions, shard->stop_at_us);
}

/* Once the sessions are gone: partitions closed, what they handed over sent. */
static void finish_stop(struct fq_shard *shard)
{
    if (fq_sessions_count(&shard->sessions) > 0) {
        return;
    }
    if (!shard->is_closed) {
        fq_hosted_table_fini(&shard->hosted, true);
        shard->is_closed = true;
    }
    if (fq_mailbox_flush(shard->params.to_housekeeper)) {
        atomic_store_explicit(&shard->is_finished, 1, memory_order_release);
    }
}

static void copy_fabric_counters(struct fq_shard *shard)
{
    struct fq_fabric_stats sum = {.connections = 0};
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        struct fq_fabric_stats s;
        fq_fabric_get_stats(shard->fabrics[i], &s);
        sum.messages_in += s.messages_in;
        sum.notifies_in += s.notifies_in;
        sum.write_bytes_in += s.write_bytes_in;
        sum.read_bytes_in += s.read_bytes_in;
        sum.wakes_paid += s.wakes_paid;
        sum.again += s.again;
        sum.refused_malformed += s.refused_malformed + s.refused_bounds + s.refused_rights +
                                 s.refused_key + s.refused_floor;
    }
    struct fq_counters *counters = &shard->counters;
    fq_count_set(counters, FQ_COUNT_FABRIC_MESSAGES_IN, (int64_t)sum.messages_in);
    fq_count_set(counters, FQ_COUNT_FABRIC_NOTIFIES_IN, (int64_t)sum.notifies_in);
    fq_count_set(counters, FQ_COUNT_FABRIC_WRITE_BYTES_IN, (int64_t)sum.write_bytes_in);
    fq_count_set(counters, FQ_COUNT_FABRIC_READ_BYTES_IN, (int64_t)sum.read_bytes_in);
    fq_count_set(counters, FQ_COUNT_FABRIC_WAKES_PAID, (int64_t)sum.wakes_paid);
    fq_count_set(counters, FQ_COUNT_FABRIC_AGAIN, (int64_t)sum.again);
    fq_count_set(counters, FQ_COUNT_BAD_FRAME, (int64_t)sum.refused_malformed);
}

unsigned fq_shard_step(struct fq_shard *shard, int64_t now_us)
{
    shard->now_us = now_us;
    if (shard->is_closed) {
        finish_stop(shard);
        return 0;
    }
    unsigned done = take_arrivals(shard) + take_tasks(shard);
    size_t sessions_before = fq_sessions_count(&shard->sessions);
    done += poll_fabrics(shard);
    done += fq_sessions_take(&shard->sessions);
    done += fq_hosted_rounds(&shard->hosted);
    done += fq_sessions_step(&shard->sessions, now_us);
    done += fq_hosted_off_path(&shard->hosted, now_us);
    size_t sessions_after = fq_sessions_count(&shard->sessions);
    if (sessions_after < sessions_before) {
        (void)atomic_fetch_sub_explicit(shard->params.connections,
                                        (int)(sessions_before - sessions_after),
                                        memory_order_relaxed);
    }
    (void)fq_mailbox_flush(shard->params.to_housekeeper);
    wake_for_calendar(shard);
    if (shard->stop_at_us == INT64_MAX) {
        if (atomic_load_explicit(&shard->stop, memory_order_acquire) != 0) {
            begin_stop(shard);
            done++;
        }
    } else {
        finish_stop(shard);
    }
    if (done > 0) {
        fq_count(&shard->counters, FQ_COUNT_STEPS_BUSY);
        copy_fabric_counters(shard);
    }
    return done;
}

int64_t fq_shard_next_deadline_us(const struct fq_shard *shard)
{
    int64_t next = fq_sessions_next_deadline_us(&shard->sessions);
    int64_t hosted = fq_hosted_next_deadline_us(&shard->hosted);
    next = hosted < next ? hosted : next;
    next = shard->calendar_wake_at_us < next ? shard->calendar_wake_at_us : next;
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        int64_t fabric = fq_fabric_next_deadline_us(shard->fabrics[i]);
        next = fabric < next ? fabric : next;
    }
    return next;
}

/* ---- the thread ----------------------------------------------------------------------------- */

void fq_shard_stop(struct fq_shard *shard)
{
    atomic_store_explicit(&shard->stop, 1, memory_order_release); /* pairs with fq_shard_step */
    fq_wake_signal(&shard->wake);
}

static bool has_work(struct fq_shard *shard)
{
    return !fq_spsc_is_empty(&shard->arrivals) ||
           !fq_mailbox_is_empty(shard->params.from_housekeeper) ||
           shard->params.to_housekeeper->waiting != NULL ||
           (shard->stop_at_us == INT64_MAX &&
            atomic_load_explicit(&shard->stop, memory_order_acquire) != 0);
}

static void sleep_until_work(struct fq_shard *shard)
{
    fq_wake_arm(&shard->wake);
    /* Once more, now that a signal cannot be missed: what a starved or syncing partition waits for
     * may have come just before. (A poll disarms the fabrics, so those are armed after it.) */
    bool can_sleep = fq_shard_step(shard, fq_mono_us()) == 0;
    for (unsigned i = 0; i < shard->fabrics_count && can_sleep; i++) {
        can_sleep &= fq_fabric_arm(shard->fabrics[i]) == 0;
    }
    if (can_sleep && !has_work(shard) &&
        atomic_load_explicit(&shard->is_finished, memory_order_relaxed) == 0) {
        struct epoll_event events[FQ_SHARD_FABRICS_MAX + 1];
        int64_t deadline_us =
            shard->is_closed ? shard->now_us + 1000 : fq_shard_next_deadline_us(shard);
        int timeout_ms = fq_deadline_poll_ms(fq_mono_us(), deadline_us);
        (void)epoll_wait(shard->epoll_fd, events, FQ_SHARD_FABRICS_MAX + 1, timeout_ms);
        fq_count(&shard->counters, FQ_COUNT_WAKES);
    }
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        fq_fabric_disarm(shard->fabrics[i]);
    }
    fq_wake_disarm(&shard->wake);
}

static bool has_news(void *context)
{
    const struct fq_shard *shard = context;
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        if (fq_fabric_has_news(shard->fabrics[i])) {
            return true;
        }
    }
    return false;
}

void *fq_shard_run(void *context)
{
    struct fq_shard *shard = context;
    int64_t last_busy_us = fq_mono_us();
    bool was_busy = false, has_come = false;
    int64_t now_us = last_busy_us;
    while (atomic_load_explicit(&shard->is_finished, memory_order_relaxed) == 0) {
        bool is_fresh = !has_come; /* what has come is not to wait for a clock that was read just before; but once */
        now_us = is_fresh ? fq_mono_us() : now_us;
        has_come = false;
        last_busy_us = was_busy ? now_us : last_busy_us; /* a wait begins when the work before it ends */
        was_busy = fq_shard_step(shard, now_us) > 0;
        if (was_busy) {
            fq_spin_found(&shard->spin, now_us);
        } else if (fq_spin_goes_on(&shard->spin, last_busy_us, now_us)) {
            has_come = fq_spin_turn_looking(now_us - last_busy_us, has_news, shard) && is_fresh;
        } else {
            sleep_until_work(shard);
            last_busy_us = fq_mono_us();
        }
    }
    return NULL;
}
