/* SPDX-License-Identifier: Apache-2.0 */
/* Socket helpers; see sock.h. No state; any thread. */
#include "fabric/sock.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PASSED_MAX 8

ssize_t fq_sock_recv(int fd, void *bytes, size_t length)
{
    ssize_t n;
    do {
        n = recv(fd, bytes, length, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n;
}

ssize_t fq_sock_send(int fd, const void *bytes, size_t length)
{
    ssize_t n;
    do {
        n = send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
}

ssize_t fq_sock_sendmsg(int fd, const struct msghdr *message)
{
    ssize_t n;
    do {
        n = sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
}

ssize_t fq_sock_send_fd(int fd, const void *bytes, size_t length, int passed_fd)
{
    if (passed_fd < 0) {
        return fq_sock_send(fd, bytes, length);
    }
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &passed_fd, sizeof passed_fd);
    return fq_sock_sendmsg(fd, &message);
}

/* Keeps the first descriptor, closes the others. */
static void take_passed(struct msghdr *message, int *ret_fd, bool *ret_bad)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(h) + i * sizeof(int), sizeof passed);
            if (*ret_fd < 0) {
                *ret_fd = passed;
            } else {
                close(passed);
                *ret_bad = true;
            }
        }
    }
    if ((message->msg_flags & MSG_CTRUNC) || *ret_bad) {
        *ret_bad = true;
        if (*ret_fd >= 0) {
            close(*ret_fd);
            *ret_fd = -1;
        }
    }
}

ssize_t fq_sock_recv_fd(int fd, void *bytes, size_t length, int *ret_fd, bool *ret_bad)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(PASSED_MAX * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *ret_fd = -1;
    *ret_bad = false;
    ssize_t n;
    do {
        n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        take_passed(&message, ret_fd, ret_bad);
    }
    return n;
}

bool fq_sock_would_block(int errnum)
{
    return errnum == EAGAIN || errnum == EWOULDBLOCK;
}

int fq_sock_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 ? errno : error;
}

int fq_epoll_add(int epoll_fd, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data = {.ptr = what}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int fq_epoll_mod(int epoll_fd, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data = {.ptr = what}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 ? -errno : 0;
}

void fq_epoll_del(int epoll_fd, int fd)
{
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

bool fq_sock_unix_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_length)
{
    size_t length = strlen(path);
    memset(ret, 0, sizeof *ret);
    ret->sun_family = AF_UNIX;
    if (length == 0 || length >= sizeof ret->sun_path) {
        return false;
    }
    memcpy(ret->sun_path, path, length + 1);
    *ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
    return true;
}

void fq_sock_close_from(int epoll_fd, int fd)
{
    if (fd >= 0) {
        fq_epoll_del(epoll_fd, fd);
        (void)shutdown(fd, SHUT_RDWR); /* a forked child may hold the descriptor too */
        close(fd);
    }
}
