/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said over a link's connection: the session is opened (or, when the broker turns out to be on this
 * host, the connection exchanged for its socket), then messages find whom they are for.
 *
 * What can fail: the broker's answers, which are hostile until decoded; the link is failed then. An answer
 * that nobody claims any more must not leave anything open at the broker. Thread: any, under the lock.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/link_internal.h"
#include "client/request.h"

#define SOFTWARE "libflashq 0.1.0"

/* ---- opening ---------------------------------------------------------------------------- */

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
    fq_link_drop_connection(link, FLASHQ_ERR_CLOSED, "");
    fq_link_set_state(link, FQ_LINK_BACKOFF);
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
    if (status == 0 && link->is_beside &&
        (link->hello.broker_id != link->broker_id || memcmp(&session.cluster_id, &engine->control->session.cluster_id,
                                                            sizeof session.cluster_id) != 0)) {
        status = fq_err_set(&err, FLASHQ_ERR_UNREACHABLE, "another broker answers there");
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
    fq_link_set_state(link, FQ_LINK_UP);
    for (struct fq_chain *at = link->users.next, *next; at != &link->users; at = next) {
        next = at->next;
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        user->ops->on_up(user);
    }
    fq_engine_progress(engine);
}

void fq_link_open_session(struct fq_link *link, const struct fq_event *event)
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
    fq_link_set_state(link, FQ_LINK_OPENING);
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

/* ---- messages ------------------------------------------------------------------------------- */

/* What was opened for somebody who is gone, or who waited no longer, is closed again. */
static void close_unclaimed(struct fq_link *link, const struct fq_msg *msg)
{
    struct fq_reader_open_answer reader;
    struct fq_producer_open_answer producer;
    uint8_t buffer[128];
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = 0;
    if (msg->type == FQ_MSG_READER_OPEN && fq_decode_reader_open_answer(msg, &reader, NULL) == 0) {
        length = fq_encode_reader_close(buffer, sizeof buffer, correlation,
                                        &(struct fq_slot_ref){.slot = reader.reader});
    } else if (msg->type == FQ_MSG_PRODUCER_OPEN &&
               fq_decode_producer_open_answer(msg, &producer, NULL) == 0) {
        length = fq_encode_producer_close(buffer, sizeof buffer, correlation,
                                          &(struct fq_slot_ref){.slot = producer.slot});
    }
    if (length > 0) {
        (void)fq_link_send(link, buffer, length); /* its answer is unclaimed too, and opens nothing */
    }
}

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

void fq_link_message(struct fq_link *link, const struct fq_event *event)
{
    struct fq_msg msg;
    struct fq_err err = {0};
    if (fq_msg_decode(event->data, event->length, &msg, &err) != 0) {
        fq_link_fail(link, FLASHQ_ERR_PROTOCOL, err.text);
    } else if (msg.is_answer) {
        if (!fq_requests_answer(link, &msg) && msg.status == 0) {
            close_unclaimed(link, &msg);
        }
    } else if (link->state == FQ_LINK_UP) {
        unasked_message(link, &msg);
    }
}
