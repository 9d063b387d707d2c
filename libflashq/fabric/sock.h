/* SPDX-License-Identifier: Apache-2.0 */
/* Socket calls with the habits of this tree: no EINTR, no SIGPIPE, close-on-exec, non-blocking. */
#ifndef FQ_FABRIC_SOCK_H
#define FQ_FABRIC_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* As recv and sendmsg; -1 with errno (never EINTR). */
ssize_t fq_sock_recv(int fd, void *bytes, size_t length);
ssize_t fq_sock_send(int fd, const void *bytes, size_t length);
ssize_t fq_sock_sendmsg(int fd, const struct msghdr *message);
/* One descriptor along with the bytes; `passed_fd` -1 sends none. */
ssize_t fq_sock_send_fd(int fd, const void *bytes, size_t length, int passed_fd);
/* Bytes and at most one descriptor (else *ret_fd is -1). More than one, or one that this process
 * has no room for: all are closed and *ret_bad is set. */
ssize_t fq_sock_recv_fd(int fd, void *bytes, size_t length, int *ret_fd, bool *ret_bad);

bool fq_sock_would_block(int errnum);
/* SO_ERROR of a socket: 0 or an errno value. */
int fq_sock_error(int fd);

/* Epoll: `what` comes back in data.ptr. 0 or -errno. */
int fq_epoll_add(int epoll_fd, int fd, uint32_t events, void *what);
int fq_epoll_mod(int epoll_fd, int fd, uint32_t events, void *what);
void fq_epoll_del(int epoll_fd, int fd);

/* Fills the address; false: the path is empty or too long. */
bool fq_sock_unix_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_length);
/* Takes the socket from its epoll set, tells the peer, closes. Negative descriptors are fine. */
void fq_sock_close_from(int epoll_fd, int fd);

#endif
