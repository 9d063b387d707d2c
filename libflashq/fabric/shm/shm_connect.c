/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake over the unix socket. The initiator makes the memfd of the two rings, so a peer's
 * connection costs the acceptor a mapping and one descriptor. connect(2) on a unix socket is
 * immediate or finds the backlog full; then it is tried again until the deadline.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/listener.h"
#include "fabric/shm/shm.h"
#include "fabric/sock.h"

#define RETRY_US 5000

static int create_rings(struct fq_shm_conn *conn, struct fq_err *err)
{
    conn->ring_fd = fq_memfd_create(sizeof *conn->layout, false, err);
    if (conn->ring_fd < 0) {
        return conn->ring_fd;
    }
    if (fcntl(conn->ring_fd, F_ADD_SEALS, FQ_MEMFD_SEALS) < 0) {
        return fq_err_errno(err, FLASHQ_ERR_UNSUPPORTED, errno, "seal shared memory");
    }
    return fq_shm_map_rings(conn->ring_fd, &conn->layout, err);
}

/* 1: connected; 0: the backlog is full; negative: nobody is there. */
static int try_connect(struct fq_shm_conn *conn, struct fq_err *err)
{
    struct sockaddr_un address;
    socklen_t length;
    if (!fq_sock_unix_address(conn->endpoint.path, &address, &length)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "socket path \"%s\"", conn->endpoint.path);
    }
    int r;
    do {
        r = connect(conn->fd, (const struct sockaddr *)&address, length);
    } while (r < 0 && errno == EINTR);
    if (r == 0) {
        return 1;
    }
    if (fq_sock_would_block(errno)) {
        return 0;
    }
    int code =
        errno == EACCES || errno == EPERM ? FLASHQ_ERR_NOT_PERMITTED : FLASHQ_ERR_UNREACHABLE;
    return fq_err_set(err, code, "%s", strerror(errno)); /* who asked knows where */
}

static int send_hello(struct fq_shm_conn *conn, struct fq_err *err)
{
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    size_t length = fq_hello_frame_encode(&conn->hello, bytes);
    if (fq_sock_send_fd(conn->fd, bytes, length, conn->ring_fd) != (ssize_t)length) {
        return fq_err_errno(err, FLASHQ_ERR_UNREACHABLE, errno, "say hello to %s",
                            conn->endpoint.path);
    }
    close(conn->ring_fd);
    conn->ring_fd = -1;
    fq_peer_describe(conn->fd, FQ_TRANSPORT_SHM, conn->base.peer_name, &conn->base.peer_uid);
    int r = fq_epoll_add(conn->base.fabric->epoll_fd, conn->fd, EPOLLIN, conn);
    return r < 0 ? fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll") : 0;
}

static int advance_connect(struct fq_shm_conn *conn, struct fq_err *err)
{
    int r = try_connect(conn, err);
    if (r > 0) {
        conn->retry_us = INT64_MAX;
        return send_hello(conn, err);
    }
    conn->retry_us = fq_mono_us() + RETRY_US;
    return r;
}

static void init_conn(struct fq_shm_conn *conn)
{
    conn->fd = conn->ring_fd = -1;
    conn->retry_us = INT64_MAX;
    fq_list_init(&conn->link);
    fq_list_init(&conn->stuck);
    fq_list_init(&conn->records);
    fq_list_init(&conn->grants);
}

int fq_shm_conn_open(struct fq_conn *base, const struct fq_connect_params *params,
                     struct fq_err *err)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(base);
    init_conn(conn);
    conn->endpoint = *params->endpoint;
    conn->hello = (struct fq_hello_frame){.transport = FQ_TRANSPORT_SHM,
                                          .shard = params->shard,
                                          .ring_bytes = FQ_SHM_RING_BYTES,
                                          .hello_bytes = params->hello_bytes};
    if (params->hello_bytes > 0) {
        memcpy(conn->hello.hello, params->hello, params->hello_bytes);
    }
    int r = create_rings(conn, err);
    if (r < 0) {
        return r;
    }
    fq_shm_tx_init(&conn->tx, conn->layout, 0);
    fq_shm_rx_init(&conn->rx, conn->layout, 1);
    conn->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "socket");
    }
    r = advance_connect(conn, err);
    if (r == 0) {
        fq_list_append(&fq_shm_fabric_of(base->fabric)->connecting, &conn->link);
    }
    return r;
}

int fq_shm_conn_adopt(struct fq_conn *base, struct fq_incoming *incoming, const void *reply,
                      size_t reply_bytes, struct fq_err *err)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(base);
    init_conn(conn);
    int r = incoming->hello.ring_bytes == FQ_SHM_RING_BYTES
                ? fq_shm_map_rings(incoming->passed_fd, &conn->layout, err)
                : fq_err_set(err, FLASHQ_ERR_VERSION, "rings of %u bytes where %u are spoken",
                             incoming->hello.ring_bytes, FQ_SHM_RING_BYTES);
    if (r < 0) {
        fq_incoming_reject(incoming, r, err->text);
        return r;
    }
    fq_shm_tx_init(&conn->tx, conn->layout, 1);
    fq_shm_rx_init(&conn->rx, conn->layout, 0);
    r = fq_epoll_add(base->fabric->epoll_fd, incoming->fd, EPOLLIN, conn);
    if (r < 0) {
        r = fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll");
        fq_incoming_reject(incoming, r, err->text);
        return r;
    }
    /* If the peer is gone already the socket says so at the next poll. */
    (void)fq_incoming_reply(incoming, 0, reply, reply_bytes, NULL);
    conn->fd = incoming->fd;
    incoming->fd = -1;
    base->peer_uid = incoming->uid;
    memcpy(base->peer_name, incoming->peer_name, sizeof base->peer_name);
    fq_incoming_free(incoming);
    fq_shm_activate(conn);
    return 0;
}

void fq_shm_connecting_event(struct fq_shm_conn *conn)
{
    struct fq_reply_frame reply;
    int r = fq_reply_read(&conn->reply, conn->fd, &reply);
    if (r == 0) {
        return;
    }
    if (r == FLASHQ_ERR_CLOSED || r == FLASHQ_ERR_IO) {
        (void)fq_shm_fail(conn, false, FLASHQ_ERR_UNREACHABLE,
                          "%s closed the connection before it answered", conn->endpoint.path);
    } else if (r < 0) {
        (void)fq_shm_fail(conn, false, r, "%s does not speak FlashQ's protocol",
                          conn->endpoint.path);
    } else if (reply.status < 0) {
        (void)fq_shm_fail(conn, false, reply.status, "%s", reply.text);
    } else {
        memcpy(conn->base.reply, reply.reply, reply.reply_bytes);
        conn->base.reply_bytes = reply.reply_bytes;
        fq_list_remove(&conn->link);
        fq_emit_connected(&conn->base);
        fq_shm_activate(conn);
    }
}

void fq_shm_connecting_deadlines(struct fq_shm_fabric *fabric, int64_t now_us)
{
    struct fq_list *next;
    for (struct fq_list *at = fabric->connecting.next; at != &fabric->connecting; at = next) {
        struct fq_shm_conn *conn = fq_list_item(at, struct fq_shm_conn, link);
        struct fq_err err;
        next = at->next;
        if (now_us >= conn->base.deadline_us) {
            (void)fq_shm_fail(conn, false, FLASHQ_ERR_TIMED_OUT, "%s did not answer in time",
                              conn->endpoint.path);
        } else if (now_us >= conn->retry_us && advance_connect(conn, &err) < 0) {
            (void)fq_shm_fail(conn, false, err.code, "%s", err.text);
        }
    }
}

int64_t fq_shm_connecting_next_us(const struct fq_shm_fabric *fabric)
{
    int64_t first = INT64_MAX;
    for (struct fq_list *at = fabric->connecting.next; at != &fabric->connecting; at = at->next) {
        const struct fq_shm_conn *conn = fq_list_item(at, struct fq_shm_conn, link);
        int64_t due =
            conn->base.deadline_us < conn->retry_us ? conn->base.deadline_us : conn->retry_us;
        first = due < first ? due : first;
    }
    return first;
}
