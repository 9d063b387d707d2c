/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting: resolve, try the addresses one after the other (each gets its share of the time
 * left), say hello, read the reply. Everything is asynchronous and ends at the caller's deadline.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/listener.h"
#include "fabric/sock.h"
#include "fabric/tcp/tcp.h"

static int init_conn(struct fq_tcp_conn *conn, struct fq_err *err)
{
    conn->source = FQ_TCP_SOURCE_CONN;
    conn->fd = -1;
    conn->attempt_us = INT64_MAX;
    fq_list_init(&conn->link);
    fq_list_init(&conn->ready);
    fq_list_init(&conn->unacked);
    conn->rx.bytes = malloc(FQ_TCP_RX_BYTES);
    return conn->rx.bytes ? 0 : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "receive buffer");
}

static void give_up_attempt(struct fq_tcp_conn *conn)
{
    if (conn->fd >= 0) {
        fq_sock_close_from(conn->base.fabric->epoll_fd, conn->fd);
        conn->fd = -1;
        conn->interest = 0;
    }
}

static socklen_t address_length(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* Begins with the next address; false: it failed at once (last_error says why). */
static bool begin_attempt(struct fq_tcp_conn *conn)
{
    const struct sockaddr_storage *address = &conn->addresses[conn->addresses_next++];
    conn->fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = conn->fd < 0
                ? -1
                : connect(conn->fd, (const struct sockaddr *)address, address_length(address));
    if (r == 0 || errno == EINPROGRESS || errno == EINTR) { /* after EINTR it goes on by itself */
        fq_tcp_set_options(conn->fd, conn->base.fabric->params.dead_after_us);
        conn->interest = EPOLLOUT;
        r = fq_epoll_add(conn->base.fabric->epoll_fd, conn->fd, EPOLLOUT, &conn->source);
        if (r == 0) {
            return true;
        }
        errno = -r;
    }
    (void)snprintf(conn->last_error, sizeof conn->last_error, "%s", strerror(errno));
    give_up_attempt(conn);
    return false;
}

static void next_attempt(struct fq_tcp_conn *conn)
{
    give_up_attempt(conn);
    while (conn->addresses_next < conn->addresses_count) {
        int64_t now_us = fq_mono_us();
        int64_t left = conn->base.deadline_us == INT64_MAX ? INT64_C(30000000)
                                                           : conn->base.deadline_us - now_us;
        int64_t share = left / (int64_t)(conn->addresses_count - conn->addresses_next);
        conn->attempt_us = now_us + (share > 0 ? share : 0);
        if (begin_attempt(conn)) {
            return;
        }
    }
    (void)fq_tcp_fail(conn, false, FLASHQ_ERR_UNREACHABLE, "%s", conn->last_error);
}

int fq_tcp_conn_open(struct fq_conn *base, const struct fq_connect_params *params,
                     struct fq_err *err)
{
    struct fq_tcp_conn *conn = fq_tcp_conn_of(base);
    int r = init_conn(conn, err);
    if (r < 0) {
        return r;
    }
    conn->hello = (struct fq_hello_frame){
        .transport = FQ_TRANSPORT_TCP, .shard = params->shard, .hello_bytes = params->hello_bytes};
    if (params->hello_bytes > 0) {
        memcpy(conn->hello.hello, params->hello, params->hello_bytes);
    }
    (void)fq_endpoint_format(params->endpoint, conn->where, sizeof conn->where);
    (void)snprintf(base->peer_name, sizeof base->peer_name, "tcp %.100s:%u", params->endpoint->host,
                   (unsigned)params->endpoint->port);
    r = fq_tcp_resolve_start(params->endpoint, conn->addresses, &conn->addresses_count,
                             &conn->resolve, err);
    if (r < 0) {
        return r;
    }
    fq_list_append(&fq_tcp_fabric_of(base->fabric)->connecting, &conn->link);
    if (!conn->resolve) {
        next_attempt(conn); /* a refusal is told as an event, as later ones are */
        return 0;
    }
    conn->source = FQ_TCP_SOURCE_RESOLVE;
    r = fq_epoll_add(base->fabric->epoll_fd, fq_tcp_resolve_fd(conn->resolve), EPOLLIN,
                     &conn->source);
    return r < 0 ? fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll") : 0;
}

void fq_tcp_resolved(struct fq_tcp_conn *conn)
{
    struct fq_err err;
    int r = fq_tcp_resolve_take(conn->resolve, conn->addresses, &conn->addresses_count, &err);
    if (r == 0) {
        return;
    }
    fq_epoll_del(conn->base.fabric->epoll_fd, fq_tcp_resolve_fd(conn->resolve));
    fq_tcp_resolve_free(conn->resolve, false);
    conn->resolve = NULL;
    conn->source = FQ_TCP_SOURCE_CONN;
    if (r < 0) {
        (void)fq_tcp_fail(conn, false, err.code, "%s", err.text);
        return;
    }
    next_attempt(conn);
}

static void say_hello(struct fq_tcp_conn *conn)
{
    int error = fq_sock_error(conn->fd);
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    size_t length = fq_hello_frame_encode(&conn->hello, bytes);
    if (error == 0 && fq_sock_send(conn->fd, bytes, length) != (ssize_t)length) {
        error = errno;
    }
    if (error != 0) {
        (void)snprintf(conn->last_error, sizeof conn->last_error, "%s", strerror(error));
        next_attempt(conn);
        return;
    }
    conn->has_hello_sent = true;
    conn->attempt_us = INT64_MAX;
    conn->interest = EPOLLIN;
    (void)fq_epoll_mod(conn->base.fabric->epoll_fd, conn->fd, EPOLLIN, &conn->source);
}

void fq_tcp_connecting_event(struct fq_tcp_conn *conn)
{
    if (!conn->has_hello_sent) {
        say_hello(conn);
        return;
    }
    struct fq_reply_frame reply;
    int r = fq_reply_read(&conn->reply, conn->fd, &reply);
    if (r == 0) {
        return;
    }
    if (r == FLASHQ_ERR_CLOSED || r == FLASHQ_ERR_IO) {
        (void)fq_tcp_fail(conn, false, FLASHQ_ERR_UNREACHABLE,
                          "%s closed the connection before it answered", conn->where);
    } else if (r < 0) {
        (void)fq_tcp_fail(conn, false, r, "%s does not speak FlashQ's protocol", conn->where);
    } else if (reply.status < 0) {
        (void)fq_tcp_fail(conn, false, reply.status, "%s", reply.text);
    } else {
        memcpy(conn->base.reply, reply.reply, reply.reply_bytes);
        conn->base.reply_bytes = reply.reply_bytes;
        fq_list_remove(&conn->link);
        fq_peer_describe(conn->fd, FQ_TRANSPORT_TCP, conn->base.peer_name, &conn->base.peer_uid);
        fq_emit_connected(&conn->base);
    }
}

int fq_tcp_conn_adopt(struct fq_conn *base, struct fq_incoming *incoming, const void *reply,
                      size_t reply_bytes, struct fq_err *err)
{
    struct fq_tcp_conn *conn = fq_tcp_conn_of(base);
    int r = init_conn(conn, err);
    if (r == 0) {
        r = fq_epoll_add(base->fabric->epoll_fd, incoming->fd, EPOLLIN, &conn->source);
        r = r < 0 ? fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll") : 0;
    }
    if (r < 0) {
        fq_incoming_reject(incoming, r, "the broker has no room for the connection");
        return r;
    }
    conn->fd = incoming->fd;
    conn->interest = EPOLLIN;
    fq_tcp_set_options(conn->fd, base->fabric->params.dead_after_us);
    (void)fq_incoming_reply(incoming, 0, reply, reply_bytes, NULL);
    incoming->fd = -1;
    memcpy(base->peer_name, incoming->peer_name, sizeof base->peer_name);
    fq_incoming_free(incoming);
    return 0;
}

void fq_tcp_connecting_deadlines(struct fq_tcp_fabric *fabric, int64_t now_us)
{
    struct fq_list *next;
    for (struct fq_list *at = fabric->connecting.next; at != &fabric->connecting; at = next) {
        struct fq_tcp_conn *conn = fq_list_item(at, struct fq_tcp_conn, link);
        next = at->next;
        if (now_us >= conn->base.deadline_us) {
            (void)fq_tcp_fail(conn, false, FLASHQ_ERR_TIMED_OUT, "%s did not answer in time",
                              conn->where);
        } else if (now_us >= conn->attempt_us) {
            (void)snprintf(conn->last_error, sizeof conn->last_error, "no answer");
            next_attempt(conn);
        }
    }
}

int64_t fq_tcp_connecting_next_us(const struct fq_tcp_fabric *fabric)
{
    int64_t first = INT64_MAX;
    for (struct fq_list *at = fabric->connecting.next; at != &fabric->connecting; at = at->next) {
        const struct fq_tcp_conn *conn = fq_list_item(at, struct fq_tcp_conn, link);
        int64_t due =
            conn->base.deadline_us < conn->attempt_us ? conn->base.deadline_us : conn->attempt_us;
        first = due < first ? due : first;
    }
    return first;
}
