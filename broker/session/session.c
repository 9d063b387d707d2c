/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a session and its messages; see session.h for the states. Every path to DEAD goes through
 * kill(), which gives back all that the session holds; the object itself is freed by
 * fq_sessions_step, so that nobody up the stack holds a dangling pointer.
 */
#include "session/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "session/direct.h"
#include "session/push.h"
#include "wire/protocol_codec.h"

#define OPEN_WITHIN_US   5000000
#define ENDING_US        1000000
#define WARNING_PAUSE_US 100000
#define ENDING_COOKIE    UINT64_C(0x656e64)
#define SOFTWARE         "flashqd " FQ_VERSION

/* ---- the host ------------------------------------------------------------------------------- */

int fq_session_host_init(struct fq_session_host *host)
{
    fq_handles_init(&host->sessions, FQ_LIMIT_CONNECTIONS - 1);
    host->due = NULL;
    host->due_count = host->due_capacity = host->turn = 0;
    host->is_stopping = false;
    fq_chain_init(&host->taking);
    host->takes = 1;
    fq_chain_init(&host->pushing);
    fq_chain_init(&host->flying);
    return 0;
}

size_t fq_sessions_count(const struct fq_session_host *host)
{
    return host->sessions.count;
}

static int reserve_due(struct fq_session_host *host)
{
    size_t wanted = host->sessions.count + 1;
    if (wanted <= host->due_capacity) {
        return 0;
    }
    size_t capacity = host->due_capacity ? 2 * host->due_capacity : 16;
    struct fq_session **grown = realloc(host->due, capacity * sizeof(struct fq_session *));
    if (!grown) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    host->due = grown;
    host->due_capacity = capacity;
    return 0;
}

void fq_session_make_due(struct fq_session *session)
{
    struct fq_session_host *host = session->host;
    if (!session->is_due) {
        assert(host->due_count < host->due_capacity); /* reserve_due made room for every session */
        session->is_due = true;
        host->due[host->due_count++] = session;
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void set_state(struct fq_session *session, enum fq_session_state state)
{
    static const char *const names[] = {"NEW", "OPEN", "ENDING", "DEAD"};
    assert(state > session->state || (state == FQ_SESSION_NEW && session->state == FQ_SESSION_NEW));
    fq_debug("session %08x (%s): %s -> %s", session->handle, fq_conn_peer_name(session->conn),
             names[session->state], names[state]);
    session->state = state;
}

struct fq_session *fq_session_create(struct fq_session_host *host, struct fq_conn *conn,
                                     int64_t now_us)
{
    struct fq_session *session = calloc(1, sizeof *session);
    if (!session || reserve_due(host) != 0) {
        free(session);
        return NULL;
    }
    session->handle = fq_handles_add(&host->sessions, 0, session);
    if (session->handle == FQ_HANDLE_NONE) {
        free(session);
        return NULL;
    }
    session->host = host;
    session->conn = conn;
    session->deadline_us = now_us + OPEN_WITHIN_US;
    session->retire_at_us = INT64_MAX;
    fq_chain_init(&session->taking);
    session->unsent_end = &session->unsent;
    fq_handles_init(&session->slots, FQ_LIMIT_SLOTS_PER_CONNECTION - 1);
    fq_handles_init(&session->readers, FQ_LIMIT_READERS_PER_CONNECTION - 1);
    fq_conn_set_context(conn, session);
    fq_count(host->counters, FQ_COUNT_SESSIONS_OPEN);
    fq_session_make_due(session);
    return session;
}

static void drop_unsent(struct fq_session *session)
{
    while (session->unsent) {
        struct fq_unsent *next = session->unsent->next;
        free(session->unsent);
        session->unsent = next;
    }
    session->unsent_end = &session->unsent;
    session->unsent_bytes = 0;
}

/* Gives everything back. The connection goes last: windows and remotes belong to it. */
static void kill_session(struct fq_session *session)
{
    if (session->state == FQ_SESSION_DEAD) {
        return;
    }
    fq_chain_remove(&session->taking);
    fq_ring_close(session);
    fq_pushes_fini(session);
    fq_readers_close(session);
    drop_unsent(session);
    if (session->views) {
        fq_window_revoke(session->views);
        session->views = NULL;
    }
    set_state(session, FQ_SESSION_DEAD);
    fq_conn_set_context(session->conn, NULL);
    fq_conn_close(session->conn);
    session->conn = NULL;
    fq_pushes_free(session);
    fq_handles_remove(&session->host->sessions, session->handle);
    fq_count_add(session->host->counters, FQ_COUNT_SESSIONS_OPEN, -1);
    fq_count(session->host->counters, FQ_COUNT_SESSIONS_CLOSED);
    fq_session_make_due(session); /* to be freed */
}

static void free_session(struct fq_session *session)
{
    fq_handles_fini(&session->slots);
    fq_handles_fini(&session->readers);
    free(session);
}

/* A last message, then the end: when it is on its way, or a second later. */
static void send_last(struct fq_session *session, const struct fq_goodbye *goodbye)
{
    uint8_t bytes[FQ_MSG_HEADER_BYTES + FQ_WORDS_BYTES + 64];
    int64_t length = fq_encode_goodbye(bytes, sizeof bytes, 0, goodbye);
    assert(length > 0);
    struct fq_op op = {.type = FQ_OP_SEND,
                       .local = bytes,
                       .length = (size_t)length,
                       .cookie = ENDING_COOKIE,
                       .signaled = true};
    set_state(session, FQ_SESSION_ENDING);
    fq_session_make_due(session);
    if (session->unsent || fq_conn_post(session->conn, &op, 1) != 1) {
        session->deadline_us = 0; /* a peer that does not read hears nothing */
    }
}

void fq_session_end(struct fq_session *session, enum fq_counter_id why, const char *format, ...)
{
    char text[FQ_ERR_TEXT_BYTES];
    va_list args;
    if (session->state >= FQ_SESSION_ENDING) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int64_t now_us = fq_mono_us();
    bool is_loud = now_us >= session->host->next_warning_us;
    if (is_loud) {
        session->host->next_warning_us = now_us + WARNING_PAUSE_US;
    }
    fq_logf(is_loud ? FQ_LOG_WARN : FQ_LOG_DEBUG, "%s: connection closed: %s",
            fq_conn_peer_name(session->conn), text);
    fq_count(session->host->counters, why);
    char words[FQ_WORDS_BYTES];
    struct fq_goodbye goodbye = {.within_ms = 0, .text = fq_words(text, words)};
    session->deadline_us = INT64_MAX;
    send_last(session, &goodbye);
    if (session->deadline_us == INT64_MAX) {
        session->deadline_us = now_us + ENDING_US;
    }
}

/* ---- sending -------------------------------------------------------------------------------- */

static void keep_unsent(struct fq_session *session, const void *bytes, size_t length)
{
    struct fq_unsent *unsent = NULL;
    if (session->unsent_bytes + length <= FQ_SESSION_UNSENT_BYTES_MAX) {
        unsent = malloc(sizeof *unsent + length);
    }
    if (!unsent) {
        fq_session_end(session, FQ_COUNT_BAD_QUEUE,
                       "%zu bytes of answers wait for a peer that does not read (limit %u)",
                       session->unsent_bytes + length, FQ_SESSION_UNSENT_BYTES_MAX);
        return;
    }
    unsent->next = NULL;
    unsent->length = length;
    memcpy(unsent->bytes, bytes, length);
    *session->unsent_end = unsent;
    session->unsent_end = &unsent->next;
    session->unsent_bytes += length;
}

void fq_session_send(struct fq_session *session, const void *bytes, size_t length)
{
    if (session->state >= FQ_SESSION_ENDING) {
        return;
    }
    int code = session->unsent ? FLASHQ_ERR_AGAIN : fq_conn_send(session->conn, bytes, length);
    if (code == FLASHQ_ERR_AGAIN) {
        keep_unsent(session, bytes, length);
    } else if (code < 0) {
        fq_debug("%s: send: %s", fq_conn_peer_name(session->conn), fq_err_describe(code));
    }
}

void fq_session_send_encoded(struct fq_session *session, const uint8_t *bytes, int64_t encoded)
{
    if (encoded <= 0) { /* a configured text that the protocol cannot carry */
        fq_session_end(session, FQ_COUNT_REQUESTS_FAILED, "an answer cannot be encoded: %s",
                       fq_err_describe((int)encoded));
        return;
    }
    fq_session_send(session, bytes, (size_t)encoded);
}

static void flush_unsent(struct fq_session *session)
{
    while (session->unsent && session->state < FQ_SESSION_ENDING) {
        struct fq_unsent *first = session->unsent;
        if (fq_conn_send(session->conn, first->bytes, first->length) == FLASHQ_ERR_AGAIN) {
            return; /* WRITABLE follows */
        }
        session->unsent = first->next;
        if (!session->unsent) {
            session->unsent_end = &session->unsent;
        }
        session->unsent_bytes -= first->length;
        free(first);
    }
}

void fq_session_refuse(struct fq_session *session, const struct fq_msg *msg, int code,
                       const char *text)
{
    uint8_t bytes[1024];
    fq_count(session->host->counters, FQ_COUNT_REQUESTS_FAILED);
    fq_session_send_encoded(
        session, bytes,
        fq_encode_error(bytes, sizeof bytes, msg->type, msg->correlation, code, text));
}

/* ---- messages ------------------------------------------------------------------------------- */

static int on_session_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_session_host *host = session->host;
    struct fq_session_open open;
    uint8_t bytes[1024 + FQ_LIMIT_PATH_BYTES + FQ_LIMIT_STORAGE_TEXT_BYTES];
    int code = fq_decode_session_open(msg, &open, err);
    if (code != 0) {
        return code;
    }
    struct fq_session_open_answer answer = {
        .cluster_id = host->cluster_id,
        .boot_id = host->boot_id,
        .heartbeat_ms = open.heartbeat_ms,
        .message_max_bytes = host->message_max_bytes,
        .batch_max_bytes = host->batch_max_bytes,
        .max_in_flight = host->max_in_flight,
        .views_count = host->views_count,
        .software = fq_str_of(SOFTWARE, sizeof SOFTWARE - 1),
        .shm_path = fq_str_of(host->shm_path, strlen(host->shm_path)),
        .storage = fq_str_of(host->storage, strlen(host->storage))};
    code = fq_window_grant(session->conn, host->views, 0, fq_region_bytes(host->views),
                           FQ_RIGHT_READ, &session->views, answer.views_token, err);
    if (code != 0) {
        return code;
    }
    (void)fq_str_copy(open.client_id, session->client_id, sizeof session->client_id);
    set_state(session, FQ_SESSION_OPEN);
    session->deadline_us = INT64_MAX;
    fq_session_send_encoded(
        session, bytes,
        fq_encode_session_open_answer(bytes, sizeof bytes, msg->correlation, &answer));
    return 0;
}

static int on_heartbeat(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    uint8_t bytes[64];
    int code = fq_decode_empty(msg, err);
    if (code == 0) {
        fq_count(session->host->counters, FQ_COUNT_HEARTBEATS);
        fq_session_send_encoded(
            session, bytes,
            fq_encode_empty(bytes, sizeof bytes, FQ_MSG_HEARTBEAT, true, msg->correlation));
    }
    return code;
}

/* An open session's request. */
static int dispatch(struct fq_session *session, const struct fq_msg *msg, const void *bytes,
                    size_t length, struct fq_err *err)
{
    switch (msg->type) {
    case FQ_MSG_SESSION_OPEN:
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the session is open already");
    case FQ_MSG_HEARTBEAT: return on_heartbeat(session, msg, err);
    case FQ_MSG_RING_OPEN: return fq_ring_on_open(session, msg, err);
    case FQ_MSG_PRODUCER_OPEN: return fq_ring_on_producer_open(session, msg, err);
    case FQ_MSG_PRODUCER_CLOSE: return fq_ring_on_producer_close(session, msg, err);
    case FQ_MSG_READER_OPEN: return fq_reader_on_open(session, msg, err);
    case FQ_MSG_READER_CLOSE: return fq_reader_on_close(session, msg, err);
    case FQ_MSG_SEGMENT_OPEN: return fq_reader_on_segment_open(session, msg, err);
    case FQ_MSG_SEGMENT_CLOSE: return fq_reader_on_segment_close(session, msg, err);
    case FQ_MSG_READER_ARM: return fq_reader_on_arm(session, msg, err);
    case FQ_MSG_PUSH_SETUP: return fq_push_on_setup(session, msg, err);
    case FQ_MSG_PUSH_OPEN: return fq_push_on_open(session, msg, err);
    case FQ_MSG_PUSH_CLOSE: return fq_push_on_close(session, msg, err);
    case FQ_MSG_TIME_QUERY: return fq_request_time_query(session, msg, err);
    case FQ_MSG_METADATA:
    case FQ_MSG_TOPIC_CREATE:
    case FQ_MSG_TOPIC_DELETE:
    case FQ_MSG_TOPIC_ALTER:
    case FQ_MSG_TOPIC_DESCRIBE:
    case FQ_MSG_PARTITIONS_ADD:
    case FQ_MSG_TRIM:
    case FQ_MSG_PARTITION_DESCRIBE:
    case FQ_MSG_INFO: return fq_request_forward(session, msg, bytes, length, err);
    default: break;
    }
    fq_count(session->host->counters, FQ_COUNT_BAD_TYPE);
    return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "this broker has no request of type %u",
                      msg->type);
}

static void on_message(struct fq_session *session, const void *bytes, size_t length)
{
    struct fq_msg msg;
    struct fq_err err;
    fq_err_clear(&err);
    if (fq_msg_decode(bytes, length, &msg, &err) != 0) {
        fq_session_end(session, FQ_COUNT_BAD_MESSAGE, "%s", err.text);
        return;
    }
    session->heard++;
    if (msg.is_answer && msg.type == FQ_MSG_HEARTBEAT && session->heartbeats_asked > 0) {
        session->heartbeats_asked--; /* that it came is all there is to know */
        return;
    }
    if (msg.is_answer) { /* only HEARTBEAT goes both ways */
        fq_session_end(session, FQ_COUNT_BAD_ORDER, "an answer to nothing (type %u)", msg.type);
        return;
    }
    fq_count(session->host->counters, FQ_COUNT_REQUESTS);
    int code;
    if (session->state == FQ_SESSION_NEW) {
        code = msg.type == FQ_MSG_SESSION_OPEN
                   ? on_session_open(session, &msg, &err)
                   : fq_err_set(&err, FLASHQ_ERR_PROTOCOL, "%s before SESSION_OPEN",
                                fq_msg_name(msg.type));
    } else {
        code = dispatch(session, &msg, bytes, length, &err);
    }
    if (code != 0) {
        fq_session_refuse(session, &msg, code, err.text[0] ? err.text : NULL);
        if (code == FLASHQ_ERR_PROTOCOL) {
            fq_session_end(session, FQ_COUNT_BAD_MESSAGE, "%s: %s", fq_msg_name(msg.type),
                           err.text);
        }
    }
}

void fq_session_on_event(struct fq_session *session, const struct fq_event *event, int64_t now_us)
{
    session->host->now_us = now_us;
    if (event->type == FQ_EVENT_DISCONNECTED) {
        fq_debug("%s: disconnected: %s", fq_conn_peer_name(session->conn),
                 event->text ? event->text : fq_err_describe(event->status));
        fq_ring_drain_all(session); /* what it notified before counts */
        kill_session(session);
        return;
    }
    if (session->state == FQ_SESSION_ENDING) {
        if (event->type == FQ_EVENT_COMPLETED && event->cookie == ENDING_COOKIE) {
            session->deadline_us = 0; /* the last message is on its way */
        }
        return;
    }
    switch (event->type) {
    case FQ_EVENT_MESSAGE: on_message(session, event->data, event->length); break;
    case FQ_EVENT_NOTIFY:
        session->heard++;
        if (FQ_PUSH_IS_CREDIT_IMM(event->imm)) {
            fq_pushes_on_credit(session, event->imm);
        } else {
            fq_ring_on_notify(session, event->imm);
        }
        break;
    case FQ_EVENT_WRITABLE:
        fq_session_make_due(session);
        fq_pushes_on_writable(session);
        break;
    case FQ_EVENT_COMPLETED:
        if (event->cookie == FQ_PUSH_COOKIE) {
            fq_pushes_on_completed(session);
        }
        break;
    case FQ_EVENT_CONNECTED:
    case FQ_EVENT_DISCONNECTED: break;
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* What is to be done for one session; true: look at it again in the next step. */
static bool step(struct fq_session *session, int64_t now_us, unsigned *done)
{
    if (session->state == FQ_SESSION_ENDING || session->state == FQ_SESSION_NEW) {
        if (now_us >= session->deadline_us) {
            if (session->state == FQ_SESSION_NEW) {
                fq_session_end(session, FQ_COUNT_BAD_ORDER, "no SESSION_OPEN within %d s",
                               OPEN_WITHIN_US / 1000000);
                return true;
            }
            kill_session(session);
            (*done)++;
        }
        return true;
    }
    if (session->host->is_stopping && now_us >= session->deadline_us) {
        kill_session(session); /* its acknowledgements did not get through in time */
        return true;
    }
    flush_unsent(session);
    if (session->state == FQ_SESSION_OPEN) {
        *done += fq_direct_step(session);
        *done += fq_ring_acknowledge(session);
        *done += fq_readers_wake(session);
        *done += fq_readers_cut(session, now_us);
        *done += fq_pushes_cut(session, now_us);
    }
    if (session->host->is_stopping) {
        fq_pushes_stop(session, FLASHQ_ERR_SHUTTING_DOWN);
    }
    if (session->host->is_stopping && session->state == FQ_SESSION_OPEN &&
        !fq_ring_is_waiting(session) && !session->unsent) {
        static const char text[] = "the broker is shutting down";
        send_last(session, &(struct fq_goodbye){.text = fq_str_of(text, sizeof text - 1)});
        (*done)++;
        return true;
    }
    return session->state != FQ_SESSION_OPEN || session->unsent || session->directs_waiting > 0 ||
           fq_ring_is_waiting(session) || session->wakes_due > 0 ||
           session->retire_at_us != INT64_MAX || fq_pushes_cut_at_us(session) != INT64_MAX;
}

/* Another session comes first each time: while segments are scarce, the first takes what there is.
 */
static void change_turns(struct fq_session_host *host)
{
    if (host->due_count > 1) {
        size_t turn = host->turn++ % host->due_count;
        struct fq_session *session = host->due[turn];
        host->due[turn] = host->due[0];
        host->due[0] = session;
    }
}

unsigned fq_sessions_step(struct fq_session_host *host, int64_t now_us)
{
    unsigned done = 0;
    host->now_us = now_us;
    change_turns(host);
    for (size_t i = 0; i < host->due_count;) {
        struct fq_session *session = host->due[i];
        bool stays = session->state != FQ_SESSION_DEAD && step(session, now_us, &done);
        if (session->state == FQ_SESSION_DEAD) {
            host->due[i] = host->due[--host->due_count];
            free_session(session);
        } else if (!stays) {
            session->is_due = false;
            host->due[i] = host->due[--host->due_count];
        } else {
            i++;
        }
    }
    return done + fq_pushes_step(host);
}

int64_t fq_sessions_next_deadline_us(const struct fq_session_host *host)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < host->due_count; i++) {
        const struct fq_session *session = host->due[i];
        next = session->deadline_us < next ? session->deadline_us : next;
        next = session->retire_at_us < next ? session->retire_at_us : next;
        int64_t cut_at_us = fq_pushes_cut_at_us(session);
        next = cut_at_us < next ? cut_at_us : next;
    }
    return next;
}

void fq_sessions_say_goodbye(struct fq_session_host *host, int64_t deadline_us)
{
    host->is_stopping = true;
    for (uint32_t i = 0; i < host->sessions.used; i++) {
        struct fq_session *session = fq_handles_at(&host->sessions, i);
        if (session) {
            session->deadline_us =
                session->deadline_us < deadline_us ? session->deadline_us : deadline_us;
            fq_session_make_due(session);
        }
    }
}

void fq_session_host_fini(struct fq_session_host *host)
{
    for (uint32_t i = 0; i < host->sessions.used; i++) {
        struct fq_session *session = fq_handles_at(&host->sessions, i);
        if (session) {
            kill_session(session);
        }
    }
    for (size_t i = 0; i < host->due_count; i++) {
        if (host->due[i]->state == FQ_SESSION_DEAD) {
            free_session(host->due[i]);
        }
    }
    free(host->due);
    fq_handles_fini(&host->sessions);
}

/* ---- from outside --------------------------------------------------------------------------- */

void fq_sessions_on_task(struct fq_session_host *host, struct fq_task *task, int64_t now_us)
{
    struct fq_session *session = fq_handles_get(&host->sessions, task->session);
    (void)now_us;
    if (session) {
        session->tasks--;
    }
    if (session && session->state == FQ_SESSION_OPEN) {
        if (task->type == FQ_TASK_RING) {
            fq_ring_on_region(session, task);
        } else if (task->type == FQ_TASK_CALENDAR) {
            fq_request_on_calendar(session, task);
        } else if (task->answer_length > 0) {
            fq_session_send(session, task->answer, task->answer_length);
        }
        if (task->status != 0) {
            fq_count(host->counters, FQ_COUNT_REQUESTS_FAILED);
        }
    }
    fq_task_destroy(task);
}

static void tell_reader(struct fq_remote_reader *reader, enum fq_hosted_event event, int64_t now_us)
{
    switch (event) {
    case FQ_HOSTED_ADVANCED: break;
    case FQ_HOSTED_TRIMMED: fq_reader_on_trimmed(reader, now_us); break;
    case FQ_HOSTED_TRUNCATED: fq_reader_on_reset(reader, FLASHQ_ERR_OUT_OF_RANGE, false); break;
    case FQ_HOSTED_OFFLINE:
        fq_push_on_offline(reader);
        fq_reader_on_reset(reader, reader->hosted->offline, false);
        break;
    case FQ_HOSTED_REMOVED:
        fq_push_on_removed(reader);
        fq_reader_on_reset(reader, FLASHQ_ERR_UNKNOWN_TOPIC_ID, true);
        break;
    }
}

void fq_sessions_on_hosted(struct fq_session_host *host, struct fq_hosted *hosted,
                           enum fq_hosted_event event, int64_t now_us)
{
    for (struct fq_slot *slot = hosted->slots, *next; slot; slot = next) {
        next = slot->next;
        if (event == FQ_HOSTED_REMOVED) {
            fq_ring_on_hosted_gone(slot);
        } else if (event == FQ_HOSTED_OFFLINE && slot->direct) {
            fq_direct_revoke(slot, FLASHQ_ERR_OFFLINE);
            fq_session_make_due(slot->session);
        } else if (slot->pending > 0) {
            fq_session_make_due(slot->session);
        }
    }
    switch (event) {
    case FQ_HOSTED_ADVANCED:
        fq_readers_on_advanced(hosted);
        fq_pushes_on_advanced(hosted);
        return;
    case FQ_HOSTED_TRIMMED: fq_pushes_on_trimmed(hosted); break;
    case FQ_HOSTED_TRUNCATED: fq_pushes_on_truncated(hosted); break;
    case FQ_HOSTED_OFFLINE:
    case FQ_HOSTED_REMOVED: break;
    }
    for (struct fq_remote_reader *reader = hosted->readers, *next; reader; reader = next) {
        next = reader->next;
        tell_reader(reader, event, now_us);
    }
    if (event != FQ_HOSTED_OFFLINE) {
        fq_pushes_on_taken_away(host, hosted, event == FQ_HOSTED_REMOVED, now_us);
    }
}
