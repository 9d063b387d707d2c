/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links: connecting, keeping the connection, coming back after it was lost. The states and their invariants
 * are in link.h; what is said over the connection is session.c's business.
 *
 * What can fail: the connection at any moment. Then requests fail, users hear on_down, and after a pause that
 * doubles up to `reconnect.backoff.max.ms` (with jitter) the next try follows, for as long as anybody needs
 * the link. Thread: any, under the lock.
 */
#include "client/link.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/link_internal.h"
#include "client/request.h"

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

void fq_link_set_state(struct fq_link *link, enum fq_link_state state)
{
    assert(may_follow[link->state] & MAY(state));
    struct fq_journal *journal = &link->engine->journal;
    fq_journal_add(journal, FLASHQ_LOG_DEBUG, "link to shard %u: %s -> %s", link->shard,
                   state_names[link->state], state_names[state]);
    link->state = state;
    if (state == FQ_LINK_UP && fq_journal_wants(journal, FLASHQ_LOG_INFO)) {
        char where[300];
        (void)fq_endpoint_format(&link->endpoint, where, sizeof where);
        fq_journal_add(journal, FLASHQ_LOG_INFO, "connected to %s, shard %u", where, link->shard);
    }
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

void fq_link_drop_connection(struct fq_link *link, int code, const char *text)
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

/* Why there is no broker: what each of `brokers` said, in one text. Before the next index is set. */
static void note_round(struct fq_link *link)
{
    struct fq_engine *engine = link->engine;
    struct fq_err *round = &engine->round_error;
    if (link->state == FQ_LINK_UP) {
        fq_err_clear(round);
        fq_err_clear(&engine->last_error);
        return;
    }
    size_t used = link->endpoint_index > 0 && round->code != 0 ? strlen(round->text) : 0;
    int n = snprintf(round->text + used, sizeof round->text - used, "%s%s", used > 0 ? "; " : "",
                     link->last_error.text);
    if (n < 0 || (size_t)n >= sizeof round->text - used) {
        round->text[used > 0 ? used : sizeof round->text - 1] = '\0';
    }
    round->code = link->last_error.code;
    if (link->endpoint_index + 1 == engine->endpoints_count) {
        engine->last_error = *round;
    }
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
    bool was_up = link->state == FQ_LINK_UP;
    fq_journal_add(&engine->journal, was_up ? FLASHQ_LOG_WARN : FLASHQ_LOG_INFO, "%s: %s",
                   was_up ? "connection lost" : "no connection", link->last_error.text);
    if (link == engine->control && !was_upgrading) {
        note_round(link);
    }
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
    fq_link_drop_connection(link, code, link->last_error.text);
    if (link->state != FQ_LINK_BACKOFF) {
        fq_link_set_state(link, FQ_LINK_BACKOFF);
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
    fq_link_set_state(link, FQ_LINK_CONNECTING);

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

/* ---- events --------------------------------------------------------------------------------- */

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
        case FQ_EVENT_CONNECTED: fq_link_open_session(link, event); break;
        case FQ_EVENT_DISCONNECTED:
            fq_link_fail(link, event->status ? event->status : FLASHQ_ERR_CLOSED, event->text);
            break;
        case FQ_EVENT_MESSAGE: fq_link_message(link, event); break;
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
    fq_link_drop_connection(link, FLASHQ_ERR_CLOSED, "the client is closing");
    fq_requests_fail(link, FLASHQ_ERR_CLOSED, "the client is closing");
    fq_chain_remove(&link->node);
    free(link);
}

static int find_or_make(struct fq_engine *engine, uint32_t broker_id, uint32_t shard, bool is_beside,
                        struct fq_link **ret)
{
    for (struct fq_chain *at = engine->links.next; at != &engine->links; at = at->next) {
        struct fq_link *link = fq_chain_item(at, struct fq_link, node);
        if (link->broker_id == broker_id && link->shard == shard && link->is_beside == is_beside) {
            *ret = link;
            return 0;
        }
    }
    int code = fq_link_create(engine, broker_id, shard, ret, NULL);
    if (code == 0) {
        (*ret)->is_beside = is_beside;
    }
    return code;
}

int fq_link_for(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                const struct fq_endpoint *advertised, struct fq_link **ret)
{
    int code = find_or_make(engine, broker_id, shard, false, ret);
    if (code == 0 && advertised) {
        (*ret)->advertised = *advertised;
        (*ret)->has_advertised = true;
    }
    return code;
}

int fq_link_beside(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                   const struct fq_endpoint *address, struct fq_link **ret)
{
    int code = find_or_make(engine, broker_id, shard, true, ret);
    if (code == 0) {
        (*ret)->advertised = *address;
        (*ret)->has_advertised = true;
    }
    return code;
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
