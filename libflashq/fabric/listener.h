/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the listener: its socket, and a connection that has said hello. */
#ifndef FQ_FABRIC_LISTENER_H
#define FQ_FABRIC_LISTENER_H

#include <sys/types.h>

#include "fabric/backend.h"
#include "fabric/hello.h"

struct fq_incoming {
    int fd;        /* non-blocking, nodelay */
    int passed_fd; /* shm: the rings' memfd; -1 elsewhere */
    struct fq_hello_frame hello;
    uint32_t uid;
    char peer_name[FQ_PEER_NAME_BYTES];
};

/* A listening socket and what is needed to take it away again. */
struct fq_listen_socket {
    int fd;
    int lock_fd; /* shm: flock on PATH.lock; -1 elsewhere */
    dev_t dev;   /* shm: the socket file is ours if these agree */
    ino_t ino;
};

/* listen_socket.c. Blocks shortly (resolving a name, the lock). `endpoint` gets the port chosen. */
int fq_listen_socket_open(struct fq_endpoint *endpoint, unsigned mode, struct fq_listen_socket *ret,
                          struct fq_err *err);
/* `is_child`: a forked child only closes descriptors. */
void fq_listen_socket_close(struct fq_listen_socket *socket, const struct fq_endpoint *endpoint,
                            bool is_child);

/* Sends a reply frame, best effort: it fits an empty socket buffer. 0 or an error. */
int fq_incoming_reply(const struct fq_incoming *incoming, int status, const void *reply,
                      size_t reply_bytes, const char *text);
/* Frees; keeps the descriptors open when they were taken (set to -1 before). */
void fq_incoming_free(struct fq_incoming *incoming);
/* "shm uid=1000 pid=77", "tcp 127.0.0.1:53112"; also the uid. */
void fq_peer_describe(int fd, enum fq_transport transport, char name[FQ_PEER_NAME_BYTES],
                      uint32_t *ret_uid);
/* Nodelay, keepalive: for every tcp socket. */
void fq_tcp_set_options(int fd, int64_t dead_after_us);

#endif
