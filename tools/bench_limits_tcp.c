/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TCP over loopback can do: `size` bytes there and back, sleeping in the kernel or looking again and
 * again, and a stream of writes of one size that the other side reads as fast as it can.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/bench_limits.h"

#define READ_BYTES ((size_t)1 << 20)

struct sockets {
    const struct fq_limits_run *run;
    int fds[2];      /* the measuring side's, the peer's */
    int flags;       /* of every recv: MSG_DONTWAIT to spin */
    uint8_t *buffers[2];
    double result;
};

/* A connected pair over loopback TCP; false if the system will not. */
static bool tcp_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = -1;
    bool is_up = listener >= 0 && fds[0] >= 0 &&
                 bind(listener, (struct sockaddr *)&address, length) == 0 &&
                 listen(listener, 1) == 0 &&
                 getsockname(listener, (struct sockaddr *)&address, &length) == 0 &&
                 connect(fds[0], (struct sockaddr *)&address, length) == 0;
    if (is_up) {
        fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        (void)setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (listener >= 0) {
        (void)close(listener);
    }
    return is_up && fds[1] >= 0;
}

/* All of it, or false. */
static bool send_all(int fd, const uint8_t *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, uint8_t *bytes, size_t length, int flags)
{
    while (length > 0) {
        ssize_t received = recv(fd, bytes, length, flags);
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            continue; /* spinning is what is measured */
        }
        if (received <= 0) {
            return false;
        }
        bytes += received;
        length -= (size_t)received;
    }
    return true;
}

/* ---- there and back ------------------------------------------------------------------------ */

static void *answer(void *context)
{
    struct sockets *s = context;
    while (receive_all(s->fds[1], s->buffers[1], s->run->size, s->flags) &&
           send_all(s->fds[1], s->buffers[1], s->run->size)) {
    }
    return NULL;
}

static int ask_once(void *context)
{
    struct sockets *s = context;
    return send_all(s->fds[0], s->buffers[0], s->run->size) &&
                   receive_all(s->fds[0], s->buffers[0], s->run->size, s->flags)
               ? 0
               : -1;
}

static void ask(void *context)
{
    struct sockets *s = context;
    s->result = fq_limits_median_ns(s->run, ask_once, s, 1) / 1e3;
    (void)shutdown(s->fds[0], SHUT_RDWR);
}

/* ---- a stream ------------------------------------------------------------------------------ */

static void *drain(void *context)
{
    struct sockets *s = context;
    while (recv(s->fds[1], s->buffers[1], READ_BYTES, 0) > 0) {
    }
    return NULL;
}

static void pour(void *context)
{
    struct sockets *s = context;
    int64_t began = fq_now_ns(), now = began;
    uint64_t done = 0;
    while (now - began < s->run->run_ns && send_all(s->fds[0], s->buffers[0], s->run->write_size)) {
        done += s->run->write_size;
        now = fq_now_ns();
    }
    s->result = now > began ? (double)done / (double)(now - began) : -1;
    (void)shutdown(s->fds[0], SHUT_RDWR);
}

/* ---- the interface ------------------------------------------------------------------------- */

static double with_sockets(const struct fq_limits_run *run, int flags, void (*self)(void *),
                           void *(*peer)(void *))
{
    struct sockets s = {.run = run, .flags = flags, .result = -1};
    size_t bytes = run->size > run->write_size ? run->size : run->write_size;
    bytes = bytes > READ_BYTES ? bytes : READ_BYTES;
    for (int i = 0; i < 2; i++) {
        s.buffers[i] = fq_alloc(bytes);
        fq_bench_fill(s.buffers[i], bytes, (unsigned)i); /* every page is there */
    }
    double result = tcp_pair(s.fds) && fq_duo_run(run, self, peer, &s) ? s.result : -1;
    for (int i = 0; i < 2; i++) {
        if (s.fds[i] >= 0) {
            (void)close(s.fds[i]);
        }
        free(s.buffers[i]);
    }
    return result;
}

double fq_limits_tcp_blocking(const struct fq_limits_run *run)
{
    return with_sockets(run, 0, ask, answer);
}

double fq_limits_tcp_spinning(const struct fq_limits_run *run)
{
    return with_sockets(run, MSG_DONTWAIT, ask, answer);
}

double fq_limits_tcp_stream(const struct fq_limits_run *run)
{
    return with_sockets(run, 0, pour, drain);
}
