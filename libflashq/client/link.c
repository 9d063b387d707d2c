/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links: connecting, opening the session, keeping it, coming back after it was lost. The states and their
 * invariants are in link.h.
 *
 * What can fail: the connection at any moment. Then requests fail, users hear on_down, and after a pause that
 * doubles up to `reconnect.backoff.max.ms` (with jitter) the next try follows, for as long as anybody needs
 * the link. Thread: any, under the lock.
 */
#include "client/link.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/request.h"

#define SOFTWARE "libflashq 0.1.0"
#define BACKOFF_DOUBLINGS_MAX 16
#define SETTLED_US 1000000 /* what fails sooner after it came up goes on doubling the pause */

static const char *const state_names[] = {
    [FQ_LINK_IDLE] = "idle",       [FQ_LINK_CONNECTING] = "connecting",
    [FQ_LINK_OPENING] = "opening", [FQ_LINK_UP] = "up",
    [FQ_LINK_BACKOFF] = "back-off"};

/* Bit s of may_follow[x]: state s may come after x. */
#define MAY(state) (1u << (state))
static const unsigned may_follow[] = {
    [FQ_LINK_IDLE] = MAY(FQ_LINK_CONNECTING) | MAY(FQ_LINK_BACKOFF),
    [FQ_LINK_CONNECTING] = MAY(FQ_LINK_OPENING) | MAY(FQ_LINK_BACKOFF),
    [FQ_LINK_OPENING] = MAY(FQ_LINK_UP) | MAY(FQ_LINK_BACKOFF),
    [FQ_LINK_UP] = MAY(FQ_LINK_BACKOFF),
    [FQ_LINK_BACKOFF] = MAY(FQ_LINK_CONNECTING) | MAY(FQ_LINK_BACKOFF)};

static void set_state(struct fq_link *link, enum fq_link_state state)
{
    assert(may_follow[link->state] & MAY(state));
    fq_debug("link to shard %u: %s -> %s", link->shard, state_names[link->state],
             state_names[state]);
    link->state = state;
}

/* ---- connections that outlive their link ------------------------------------------------------ */

struct fq_conn_box *fq_conn_box_ref(struct fq_conn_box *box)
{
    box->refs++;
    return box;
}

void fq_conn_box_unref(struct fq_conn_box *box)
{
    if (box && --box->refs == 0) {
        fq_chain_append(&box->engine->closing, &box->node);
    }
}

void fq_conn_boxes_reap(struct fq_engine *engine)
{
    while (!fq_chain_is_empty(&engine->closing)) {
        struct fq_conn_box *box = fq_chain_item(engine->closing.next, struct fq_conn_box, node);
        fq_chain_remove(&box->node);
        fq_conn_close(box->conn);
        free(box);
    }
}

/* ---- sending -------------------------------------------------------------------------------- */

struct outgoing {
    struct fq_chain node;
    size_t length;
    uint8_t bytes[];
};

static void drop_outbox(struct fq_link *link)
{
    while (!fq_chain_is_empty(&link->outbox)) {
        struct outgoing *first = fq_chain_item(link->outbox.next, struct outgoing, node);
        fq_chain_remove(&first->node);
        free(first);
    }
    link->outbox_bytes = 0;
}

int fq_link_send(struct fq_link *link, const void *bytes, int64_t length)
{
    if (length < 0) {
        return (int)length;
    }
    if (!link->box) {
        return FLASHQ_ERR_UNREACHABLE;
    }
    if (fq_chain_is_empty(&link->outbox)) {
        int code = fq_conn_send(link->box->conn, bytes, (size_t)length);
        if (code == FLASHQ_ERR_CLOSED) {
            return FLASHQ_ERR_UNREACHABLE; /* broken already; the event that says so is on its way */
        }
        if (code != FLASHQ_ERR_AGAIN) {
            return code < 0 ? code : 0;
        }
    }
    if (link->outbox_bytes + (size_t)length > FQ_LIMIT_CONTROL_QUEUED_BYTES) {
        return FLASHQ_ERR_LIMIT;
    }
    struct outgoing *message = malloc(sizeof *message + (size_t)length);
    if (!message) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    message->length = (size_t)length;
    memcpy(message->bytes, bytes, (size_t)length);
    fq_chain_append(&link->outbox, &message->node);
    link->outbox_bytes += (size_t)length;
    return 0;
}

static void flush_outbox(struct fq_link *link)
{
    while (!fq_chain_is_empty(&link->outbox)) {
        struct outgoing *first = fq_chain_item(link->outbox.next, struct outgoing, node);
        if (fq_conn_send(link->box->conn, first->bytes, first->length) == FLASHQ_ERR_AGAIN) {
            return;
        }
        link->outbox_bytes -= first->length;
        fq_chain_remove(&first->node);
        free(first);
    }
}

/* ---- going down ----------------------------------------------------------------------------- */

static int64_t backoff_us(struct fq_link *link)
{
    const struct fq_client_config *config = &link->engine->config;
    unsigned doublings = link->failures > 0 ? link->failures - 1 : 0;
    doublings = doublings < BACKOFF_DOUBLINGS_MAX ? doublings : BACKOFF_DOUBLINGS_MAX;
    int64_t pause = config->reconnect_backoff_ms * 1000 << doublings;
    int64_t most = config->reconnect_backoff_max_ms * 1000;
    pause = pause < most ? pause : most;
    return pause / 2 + (int64_t)fq_prng_below(&link->engine->prng, (uint64_t)pause / 2 + 1);
}

static void drop_connection(struct fq_link *link, int code, const char *text)
{
    if (link->state == FQ_LINK_UP) {
        for (struct fq_chain *at = link->users.next, *next; at != &link->users; at = next) {
            next = at->next;
            struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
            user->ops->on_down(user, code, text);
        }
    }
    if (link->box) {
        fq_remote_close(link->views);
        link->views = NULL;
        fq_conn_set_context(link->box->conn, NULL);
        fq_conn_box_unref(link->box);
        link->box = NULL;
    }
    drop_outbox(link);
}

void fq_link_fail(struct fq_link *link, int code, const char *text)
{
    struct fq_engine *engine = link->engine;
    char where[300], words[FQ_ERR_TEXT_BYTES];
    (void)snprintf(words, sizeof words, "%s", text ? text : fq_err_describe(code));
    (void)fq_endpoint_format(&link->endpoint, where, sizeof where);
    if (link->has_advertised && link->state != FQ_LINK_UP) {
        char used[300];
        (void)fq_endpoint_format(&engine->control->endpoint, used, sizeof used);
        (void)fq_err_set(&link->last_error, code, "%s (advertised by the broker at %s): %.300s", where,
                         used, words);
    } else {
        (void)fq_err_set(&link->last_error, code, "%s: %.400s", where, words);
    }
    bool was_upgrading = link->is_upgrading;
    if (link->state == FQ_LINK_UP) {
        bool had_settled = engine->now_us - link->up_us >= SETTLED_US;
        link->failures = had_settled ? 0 : link->failures;
        link->no_upgrade = false;
    } else if (was_upgrading) {
        link->no_upgrade = true;
    } else if (link == engine->control) {
        link->endpoint_index = (link->endpoint_index + 1) % engine->endpoints_count;
        link->shard = FQ_SHARD_ANY;
    }
    link->is_upgrading = false;
    drop_connection(link, code, link->last_error.text);
    if (link->state != FQ_LINK_BACKOFF) {
        set_state(link, FQ_LINK_BACKOFF);
    }
    /* A round over all endpoints counts as one failure; falling back from an upgrade as none. */
    bool is_round = link != engine->control || link->endpoint_index == 0;
    link->failures += !was_upgrading && is_round ? 1 : 0;
    link->retry_us = was_upgrading || (!is_round && link->failures == 0)
                         ? engine->now_us
                         : engine->now_us + backoff_us(link);
    fq_requests_fail(link, FLASHQ_ERR_UNREACHABLE, link->last_error.text);
    fq_engine_progress(engine);
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* Where this link goes now; false: nowhere yet. */
static bool choose_endpoint(struct fq_link *link)
{
    struct fq_engine *engine = link->engine;
    if (link->is_upgrading) {
        return true;
    }
    if (link == engine->control) {
        link->endpoint = engine->endpoints[link->endpoint_index];
    } else if (link->has_advertised) {
        link->endpoint = link->advertised;
    } else if (engine->control->endpoint.transport == FQ_TRANSPORT_AUTO ||
               !fq_link_is_up(engine->control)) {
        return false; /* follow the control link, once it is there */
    } else {
        link->endpoint = engine->control->endpoint;
    }
    if (link->endpoint.transport == FQ_TRANSPORT_AUTO) {
        link->endpoint.transport = FQ_TRANSPORT_TCP;
    }
    return true;
}

static void connect_now(struct fq_link *link, int64_t now_us)
{
    struct fq_engine *engine = link->engine;
    struct fq_err err = {0};
    struct fq_fabric *fabric;
    uint8_t hello[FQ_HELLO_WIRE_BYTES];
    fq_hello_encode(hello, &(struct fq_hello){.version_min = FQ_PROTOCOL_VERSION_MIN,
                                              .version_max = FQ_PROTOCOL_VERSION_MAX});
    link->open_deadline_us = now_us + engine->config.connect_timeout_ms * 1000;
    set_state(link, FQ_LINK_CONNECTING);

    struct fq_conn_box *box = calloc(1, sizeof *box);
    int code = box ? fq_engine_fabric(engine, link->endpoint.transport, &fabric, &err)
                   : FLASHQ_ERR_NO_MEMORY;
    if (code == 0) {
        struct fq_connect_params params = {.endpoint = &link->endpoint, .shard = link->shard,
                                           .hello = hello, .hello_bytes = sizeof hello,
                                           .deadline_us = link->open_deadline_us};
        code = fq_conn_open(fabric, &params, &box->conn, &err);
    }
    if (code != 0) {
        free(box);
        fq_link_fail(link, code, err.text[0] ? err.text : NULL);
        return;
    }
    box->refs = 1;
    box->engine = engine;
    fq_chain_init(&box->node);
    link->box = box;
    fq_conn_set_context(box->conn, link);
}

/* ---- the session ---------------------------------------------------------------------------- */

static bool is_this_host(const struct fq_uuid *boot_id)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    size_t nibbles = 0;
    uint8_t mine[FQ_UUID_BYTES] = {0};
    for (ssize_t i = 0; i < length && nibbles < 2 * FQ_UUID_BYTES; i++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, text[i]);
        if (digit && *digit) {
            mine[nibbles / 2] = (uint8_t)(mine[nibbles / 2] << 4 | (digit - digits));
            nibbles++;
        }
    }
    return nibbles == 2 * FQ_UUID_BYTES && memcmp(mine, boot_id->bytes, FQ_UUID_BYTES) == 0;
}

/* A broker written as HOST:PORT turned out to be on this host: go on over its socket. */
static bool begin_upgrade(struct fq_link *link, const struct fq_session_open_answer *session)
{
    struct fq_engine *engine = link->engine;
    struct fq_endpoint shm = {.transport = FQ_TRANSPORT_SHM};
    bool is_auto = link == engine->control &&
                   engine->endpoints[link->endpoint_index].transport == FQ_TRANSPORT_AUTO;
    if (!is_auto || link->endpoint.transport != FQ_TRANSPORT_TCP || link->no_upgrade ||
        engine->config.transport == FQ_CHOICE_TCP || session->shm_path.length == 0 ||
        !fq_str_copy(session->shm_path, shm.path, sizeof shm.path) ||
        !is_this_host(&session->boot_id)) {
        return false;
    }
    drop_connection(link, FLASHQ_ERR_CLOSED, "");
    set_state(link, FQ_LINK_BACKOFF);
    link->is_upgrading = true;
    link->endpoint = shm;
    link->retry_us = 0;
    return true;
}

static void session_opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_link *link = context;
    struct fq_engine *engine = link->engine;
    struct fq_err err = {0};
    struct fq_session_open_answer session;
    if (!msg && link->state != FQ_LINK_OPENING) {
        return; /* failed already: this is its echo */
    }
    if (status == 0) {
        status = fq_decode_session_open_answer(msg, &session, &err);
    } else {
        (void)fq_err_set(&err, status, "%s", text && text[0] ? text : fq_err_describe(status));
    }
    if (status == 0 && begin_upgrade(link, &session)) {
        return;
    }
    if (status == 0 && engine->config.transport == FQ_CHOICE_SHM &&
        link->endpoint.transport != FQ_TRANSPORT_SHM) {
        status = fq_err_set(&err, FLASHQ_ERR_UNREACHABLE,
                            "transport is shm, but the broker is on another host or has no socket");
    }
    if (status == 0 && session.views_count > 0) {
        status = fq_remote_open(link->box->conn, session.views_token, FQ_RIGHT_READ, &link->views,
                                &err);
    }
    if (status != 0) {
        fq_link_fail(link, status, err.text);
        return;
    }
    link->session = session;
    (void)fq_str_copy(session.storage, link->storage, sizeof link->storage);
    link->session.software = link->session.shm_path = link->session.storage = (struct fq_str){0};
    link->is_upgrading = false;
    link->up_us = engine->now_us;
    link->broker_id = link->hello.broker_id;
    link->shard = link->hello.shard;
    fq_err_clear(&link->last_error);
    set_state(link, FQ_LINK_UP);
    for (struct fq_chain *at = link->users.next, *next; at != &link->users; at = next) {
        next = at->next;
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        user->ops->on_up(user);
    }
    fq_engine_progress(engine);
}

static void connected(struct fq_link *link, const struct fq_event *event)
{
    uint8_t buffer[1024];
    struct fq_err err = {0};
    struct fq_client_config *config = &link->engine->config;
    if (fq_hello_reply_decode(event->data, event->length, &link->hello, &err) != 0) {
        fq_link_fail(link, FLASHQ_ERR_PROTOCOL, err.text);
        return;
    }
    if (link->shard != FQ_SHARD_ANY && link->hello.shard != link->shard) {
        fq_link_fail(link, FLASHQ_ERR_PROTOCOL, "the broker put the connection on another shard");
        return;
    }
    set_state(link, FQ_LINK_OPENING);
    struct fq_session_open open = {
        .client_id = fq_str_of(config->client_id, strlen(config->client_id)),
        .software = fq_str_of(SOFTWARE, sizeof SOFTWARE - 1)};
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_session_open(buffer, sizeof buffer, correlation, &open);
    int code = fq_link_request(link, buffer, length, correlation, link->open_deadline_us,
                               session_opened, link);
    if (code != 0) {
        fq_link_fail(link, code, NULL);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void unasked_message(struct fq_link *link, const struct fq_msg *msg)
{
    uint8_t buffer[64];
    if (msg->type == FQ_MSG_HEARTBEAT) {
        (void)fq_link_send(link, buffer,
                           fq_encode_empty(buffer, sizeof buffer, FQ_MSG_HEARTBEAT, true,
                                           msg->correlation));
        return;
    }
    struct fq_goodbye goodbye;
    if (msg->type == FQ_MSG_GOODBYE && fq_decode_goodbye(msg, &goodbye, NULL) == 0) {
        (void)fq_err_set(&link->last_error, FLASHQ_ERR_SHUTTING_DOWN, "the broker says goodbye: %.*s",
                         (int)(goodbye.text.length < 200 ? goodbye.text.length : 200),
                         goodbye.text.data ? goodbye.text.data : "");
        return;
    }
    for (struct fq_chain *at = link->users.next, *next; at != &link->users; at = next) {
        next = at->next;
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        if (user->ops->on_message(user, msg)) {
            return;
        }
    }
}

static void message(struct fq_link *link, const struct fq_event *event)
{
    struct fq_msg msg;
    struct fq_err err = {0};
    if (fq_msg_decode(event->data, event->length, &msg, &err) != 0) {
        fq_link_fail(link, FLASHQ_ERR_PROTOCOL, err.text);
    } else if (msg.is_answer) {
        fq_requests_answer(link, &msg);
    } else if (link->state == FQ_LINK_UP) {
        unasked_message(link, &msg);
    }
}

static void notify(struct fq_link *link, uint32_t imm)
{
    for (struct fq_chain *at = link->users.next, *next; at != &link->users; at = next) {
        next = at->next;
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        if (user->ops->on_notify(user, imm)) {
            return;
        }
    }
}

static void writable(struct fq_link *link)
{
    flush_outbox(link);
    /* A user whose posting fails takes the link down, and users with it. */
    for (struct fq_chain *at = link->users.next, *next;
         at != &link->users && link->state == FQ_LINK_UP; at = next) {
        next = at->next;
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        user->ops->on_writable(user);
    }
}

static void completed(const struct fq_event *event)
{
    struct fq_completion *completion = (struct fq_completion *)(uintptr_t)event->cookie;
    if (completion) {
        completion->done(completion, event->status);
    }
}

void fq_links_dispatch(const struct fq_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct fq_event *event = &events[i];
        struct fq_link *link = event->conn ? fq_conn_context(event->conn) : NULL;
        if (!link || !link->box || link->box->conn != event->conn) {
            continue; /* of a connection that was given up in this very round */
        }
        switch (event->type) {
        case FQ_EVENT_CONNECTED: connected(link, event); break;
        case FQ_EVENT_DISCONNECTED:
            fq_link_fail(link, event->status ? event->status : FLASHQ_ERR_CLOSED, event->text);
            break;
        case FQ_EVENT_MESSAGE: message(link, event); break;
        case FQ_EVENT_NOTIFY: notify(link, event->imm); break;
        case FQ_EVENT_COMPLETED: completed(event); break;
        case FQ_EVENT_WRITABLE: writable(link); break;
        }
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool is_needed(const struct fq_link *link)
{
    return link == link->engine->control || !fq_chain_is_empty(&link->users);
}

void fq_link_step(struct fq_link *link, int64_t now_us)
{
    switch (link->state) {
    case FQ_LINK_IDLE:
    case FQ_LINK_BACKOFF:
        if (is_needed(link) && now_us >= link->retry_us && choose_endpoint(link)) {
            connect_now(link, now_us);
        }
        break;
    case FQ_LINK_CONNECTING:
        if (now_us >= link->open_deadline_us) {
            fq_link_fail(link, FLASHQ_ERR_TIMED_OUT, "no connection in time");
        }
        break;
    case FQ_LINK_OPENING:
    case FQ_LINK_UP: fq_requests_expire(link, now_us); break;
    }
}

int64_t fq_link_next_deadline_us(const struct fq_link *link)
{
    switch (link->state) {
    case FQ_LINK_IDLE:
    case FQ_LINK_BACKOFF:
        if (!is_needed(link)) {
            return INT64_MAX;
        }
        /* A follower of the control link is looked at again when that one has come up. */
        return link != link->engine->control && !link->has_advertised &&
                       !fq_link_is_up(link->engine->control)
                   ? INT64_MAX
                   : link->retry_us;
    case FQ_LINK_CONNECTING: return link->open_deadline_us;
    case FQ_LINK_OPENING:
    case FQ_LINK_UP: break;
    }
    return fq_requests_deadline_us(link);
}

/* ---- making and finding --------------------------------------------------------------------- */

int fq_link_create(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                   struct fq_link **ret, struct fq_err *err)
{
    struct fq_link *link = calloc(1, sizeof *link);
    if (!link) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a connection");
    }
    link->engine = engine;
    link->broker_id = broker_id;
    link->shard = shard;
    fq_chain_init(&link->users);
    fq_chain_init(&link->requests);
    fq_chain_init(&link->outbox);
    fq_chain_append(&engine->links, &link->node);
    *ret = link;
    return 0;
}

void fq_link_destroy(struct fq_link *link)
{
    if (!link) {
        return;
    }
    drop_connection(link, FLASHQ_ERR_CLOSED, "the client is closing");
    fq_requests_fail(link, FLASHQ_ERR_CLOSED, "the client is closing");
    fq_chain_remove(&link->node);
    free(link);
}

int fq_link_for(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                const struct fq_endpoint *advertised, struct fq_link **ret)
{
    for (struct fq_chain *at = engine->links.next; at != &engine->links; at = at->next) {
        struct fq_link *link = fq_chain_item(at, struct fq_link, node);
        if (link->broker_id == broker_id && link->shard == shard) {
            *ret = link;
            return 0;
        }
    }
    struct fq_link *link;
    int code = fq_link_create(engine, broker_id, shard, &link, NULL);
    if (code != 0) {
        return code;
    }
    if (advertised) {
        link->advertised = *advertised;
        link->has_advertised = true;
    }
    *ret = link;
    return 0;
}

void fq_link_add_user(struct fq_link *link, struct fq_link_user *user)
{
    user->link = link;
    fq_chain_append(&link->users, &user->node);
    if (fq_link_is_up(link)) {
        user->ops->on_up(user);
    }
}

void fq_link_remove_user(struct fq_link_user *user)
{
    if (user->link) {
        fq_chain_remove(&user->node);
        user->link = NULL;
    }
}

struct fq_link_user *fq_link_find_user(struct fq_link *link, const struct fq_link_user_ops *ops)
{
    for (struct fq_chain *at = link->users.next; at != &link->users; at = at->next) {
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        if (user->ops == ops) {
            return user;
        }
    }
    return NULL;
}
