/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that has said hello and waits to be adopted or rejected, and what is known of its
 * peer. May be handed from the listener's thread to another.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/listener.h"
#include "fabric/sock.h"

void fq_peer_describe(int fd, enum fq_transport transport, char name[FQ_PEER_NAME_BYTES],
                      uint32_t *ret_uid)
{
    *ret_uid = UINT32_MAX;
    if (transport == FQ_TRANSPORT_SHM) {
        struct ucred who = {0};
        socklen_t length = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0) {
            *ret_uid = who.uid;
        }
        (void)snprintf(name, FQ_PEER_NAME_BYTES, "shm uid=%u pid=%d", (unsigned)who.uid, who.pid);
        return;
    }
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN + 20], port[16];
    if (getpeername(fd, (struct sockaddr *)&address, &length) < 0 ||
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        (void)snprintf(name, FQ_PEER_NAME_BYTES, "tcp");
        return;
    }
    (void)snprintf(name, FQ_PEER_NAME_BYTES, strchr(host, ':') ? "tcp [%s]:%s" : "tcp %s:%s", host,
                   port);
}

/* A stopped peer's kernel still answers probes, so only a dead host or network ends a connection.
 */
void fq_tcp_set_options(int fd, int64_t dead_after_us)
{
    int on = 1;
    int seconds = (int)(dead_after_us / 1000000);
    int idle = seconds / 2 > 1 ? seconds / 2 : 1;
    int interval = seconds / 6 > 1 ? seconds / 6 : 1;
    int count = (seconds - idle) / interval > 1 ? (seconds - idle) / interval : 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

enum fq_transport fq_incoming_transport(const struct fq_incoming *incoming)
{
    return incoming->hello.transport;
}

uint32_t fq_incoming_shard(const struct fq_incoming *incoming)
{
    return incoming->hello.shard;
}

const void *fq_incoming_hello(const struct fq_incoming *incoming, size_t *ret_bytes)
{
    *ret_bytes = incoming->hello.hello_bytes;
    return incoming->hello.hello;
}

uint32_t fq_incoming_uid(const struct fq_incoming *incoming)
{
    return incoming->uid;
}

int fq_incoming_reply(const struct fq_incoming *incoming, int status, const void *reply,
                      size_t reply_bytes, const char *text)
{
    struct fq_reply_frame frame = {.status = status, .reply_bytes = reply_bytes};
    uint8_t bytes[FQ_REPLY_FRAME_BYTES];
    if (reply_bytes > 0) {
        memcpy(frame.reply, reply, reply_bytes);
    }
    (void)snprintf(frame.text, sizeof frame.text, "%s", text ? text : "");
    size_t length = fq_reply_encode(&frame, bytes);
    return fq_sock_send(incoming->fd, bytes, length) == (ssize_t)length ? 0 : FLASHQ_ERR_CLOSED;
}

void fq_incoming_free(struct fq_incoming *incoming)
{
    if (incoming->fd >= 0) {
        (void)shutdown(incoming->fd, SHUT_RDWR);
        close(incoming->fd);
    }
    if (incoming->passed_fd >= 0) {
        close(incoming->passed_fd);
    }
    free(incoming);
}

void fq_incoming_reject(struct fq_incoming *incoming, int code, const char *text)
{
    if (incoming) {
        (void)fq_incoming_reply(incoming, code < 0 ? code : FLASHQ_ERR_NOT_PERMITTED, NULL, 0,
                                text ? text : "refused");
        fq_incoming_free(incoming);
    }
}
