/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting: connections wait here, a bounded number for a bounded time, until their hello is
 * complete; then the caller gets an fq_incoming to adopt or reject. A peer that speaks something
 * else gets one line that says what this is, its bytes are thrown away until it closes or a second
 * has passed (a close with unread bytes would reset the connection and lose the line), and it is
 * counted. Too many open files: accepting pauses. Memory per waiting connection is fixed; no length
 * from a peer allocates.
 */
#include "fabric/listener.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "fabric/sock.h"

#define HELLO_DEADLINE_US 5000000
#define PENDING_MAX       256u
#define PAUSE_US          100000
#define LINGER_US         1000000
#define EVENTS_MAX        32
#define ACCEPTS_PER_POLL  64

struct pending {
    struct fq_list link; /* listener->pending (oldest first) or ->lingering */
    int fd;
    int passed_fd;
    bool is_lingering;
    int64_t deadline_us;
    size_t have;
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
};

struct fq_listener {
    struct fq_endpoint endpoint;
    struct fq_listen_socket socket;
    int epoll_fd;
    pid_t pid;
    int64_t hello_deadline_us;
    unsigned pending_max;
    unsigned pending_count;  /* both lists */
    int64_t paused_until_us; /* 0: accepting */
    uint64_t refused;
    struct fq_list pending, lingering;
    struct fq_list ready; /* hello complete */
};

/* ---- opening and closing -------------------------------------------------------------------- */

int fq_listener_open(const struct fq_listen_params *params, struct fq_listener **ret,
                     struct fq_err *err)
{
    if (!params || !params->endpoint || !ret) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "NULL argument");
    }
    struct fq_listener *listener = calloc(1, sizeof *listener);
    if (!listener) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "listener");
    }
    listener->endpoint = *params->endpoint;
    listener->pid = getpid();
    listener->hello_deadline_us =
        params->hello_deadline_us > 0 ? params->hello_deadline_us : HELLO_DEADLINE_US;
    listener->pending_max = params->pending_max ? params->pending_max : PENDING_MAX;
    fq_list_init(&listener->pending);
    fq_list_init(&listener->lingering);
    fq_list_init(&listener->ready);
    int r;
    listener->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (listener->epoll_fd < 0) {
        r = fq_err_errno(err, fq_err_from_errno(errno), errno, "epoll descriptor");
        goto free_listener;
    }
    r = fq_listen_socket_open(&listener->endpoint, params->mode, &listener->socket, err);
    if (r < 0) {
        goto close_epoll;
    }
    r = fq_epoll_add(listener->epoll_fd, listener->socket.fd, EPOLLIN, NULL);
    if (r < 0) {
        r = fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll");
        goto close_socket;
    }
    *ret = listener;
    return 0;

close_socket:
    fq_listen_socket_close(&listener->socket, &listener->endpoint, false);
close_epoll:
    close(listener->epoll_fd);
free_listener:
    free(listener);
    return r;
}

static void drop_pending(struct fq_listener *listener, struct pending *p)
{
    fq_list_remove(&p->link);
    if (p->fd >= 0) {
        if (listener->pid == getpid()) {
            fq_sock_close_from(listener->epoll_fd, p->fd);
        } else {
            close(p->fd);
        }
    }
    if (p->passed_fd >= 0) {
        close(p->passed_fd);
    }
    free(p);
    listener->pending_count--;
}

static void drop_all(struct fq_listener *listener, struct fq_list *list)
{
    while (!fq_list_is_empty(list)) {
        drop_pending(listener, fq_list_item(list->next, struct pending, link));
    }
}

void fq_listener_close(struct fq_listener *listener)
{
    if (!listener) {
        return;
    }
    drop_all(listener, &listener->pending);
    drop_all(listener, &listener->lingering);
    drop_all(listener, &listener->ready);
    bool is_child = listener->pid != getpid();
    if (!is_child) {
        fq_epoll_del(listener->epoll_fd, listener->socket.fd);
    }
    fq_listen_socket_close(&listener->socket, &listener->endpoint, is_child);
    close(listener->epoll_fd);
    free(listener);
}

int fq_listener_fd(const struct fq_listener *listener)
{
    return listener->epoll_fd;
}

const struct fq_endpoint *fq_listener_endpoint(const struct fq_listener *listener)
{
    return &listener->endpoint;
}

uint64_t fq_listener_refused(const struct fq_listener *listener)
{
    return listener->refused;
}

static int64_t first_deadline(const struct fq_list *list, int64_t than)
{
    if (!fq_list_is_empty(list)) { /* every list is in order of its deadlines */
        int64_t at = fq_list_item(list->next, struct pending, link)->deadline_us;
        return at < than ? at : than;
    }
    return than;
}

int64_t fq_listener_next_deadline_us(const struct fq_listener *listener)
{
    if (!fq_list_is_empty(&listener->ready)) {
        return 0;
    }
    int64_t at = listener->paused_until_us ? listener->paused_until_us : INT64_MAX;
    return first_deadline(&listener->lingering, first_deadline(&listener->pending, at));
}

/* ---- strangers ------------------------------------------------------------------------------ */

static bool is_http(const uint8_t *bytes, size_t length)
{
    static const char *const words[] = {"GET ", "POST", "PUT ", "HEAD", "DELE",
                                        "OPTI", "PATC", "TRAC", "CONN", "PRI "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (length >= 4 && memcmp(bytes, words[i], 4) == 0) {
            return true;
        }
    }
    return false;
}

static void hint(const struct fq_listener *listener, const struct pending *p, int why)
{
    char where[FQ_LIMIT_HOST_BYTES + 128], text[1024];
    const char *is = "these bytes are not its protocol";
    const char *head = "";
    (void)fq_endpoint_format(&listener->endpoint, where, sizeof where);
    if (is_http(p->bytes, p->have)) {
        is = "it does not speak HTTP";
        head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
    } else if (p->have >= 2 && p->bytes[0] == 0x16 && p->bytes[1] == 0x03) {
        is = "it does not speak TLS";
    } else if (why == FLASHQ_ERR_VERSION) {
        is = "it speaks version 1 of the fabric's handshake";
    }
    int length = snprintf(text, sizeof text,
                          "%sThis is a FlashQ broker; %s. Use: flashq -b %s cluster info\r\n", head,
                          is, where);
    if (why == FLASHQ_ERR_VERSION) {
        struct fq_incoming answer = {.fd = p->fd};
        (void)fq_incoming_reply(&answer, why, NULL, 0, text);
        return;
    }
    (void)fq_sock_send(p->fd, text, (size_t)length);
}

static void refuse(struct fq_listener *listener, struct pending *p, int why, int64_t now_us)
{
    listener->refused++;
    hint(listener, p, why);
    (void)shutdown(p->fd, SHUT_WR);
    if (p->passed_fd >= 0) {
        close(p->passed_fd);
        p->passed_fd = -1;
    }
    p->is_lingering = true;
    p->deadline_us = now_us + LINGER_US;
    fq_list_append(&listener->lingering, &p->link);
}

static void linger(struct fq_listener *listener, struct pending *p)
{
    uint8_t waste[4096];
    for (int i = 0; i < 16; i++) {
        ssize_t n = fq_sock_recv(p->fd, waste, sizeof waste);
        if (n > 0) {
            continue;
        }
        if (n == 0 || !fq_sock_would_block(errno)) {
            drop_pending(listener, p);
        }
        return;
    }
}

/* ---- hellos --------------------------------------------------------------------------------- */

static ssize_t receive(struct pending *p, size_t wanted, bool *ret_bad)
{
    int passed = -1;
    ssize_t n = fq_sock_recv_fd(p->fd, p->bytes + p->have, wanted, &passed, ret_bad);
    if (passed >= 0 && p->passed_fd >= 0) {
        close(passed);
        *ret_bad = true;
    } else if (passed >= 0) {
        p->passed_fd = passed;
    }
    return n;
}

static void read_hello(struct fq_listener *listener, struct pending *p, int64_t now_us)
{
    for (;;) {
        int whole = fq_hello_frame_length(p->bytes, p->have);
        if (whole < 0) {
            refuse(listener, p, whole, now_us);
            return;
        }
        if (p->have >= 8 && p->have == (size_t)whole) {
            fq_list_append(&listener->ready, &p->link);
            fq_epoll_del(listener->epoll_fd, p->fd);
            return;
        }
        bool is_bad = false;
        ssize_t n = receive(p, (size_t)whole - p->have, &is_bad);
        if (n < 0 && fq_sock_would_block(errno)) {
            return;
        }
        if (n <= 0) {
            listener->refused += p->have > 0 || n < 0;
            drop_pending(listener, p);
            return;
        }
        p->have += (size_t)n;
        if (is_bad) {
            refuse(listener, p, FLASHQ_ERR_PROTOCOL, now_us);
            return;
        }
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void pause_accepting(struct fq_listener *listener, int64_t now_us)
{
    listener->paused_until_us = now_us + PAUSE_US;
    (void)fq_epoll_mod(listener->epoll_fd, listener->socket.fd, 0, NULL);
}

/* A waiting connection more than may be: the one that has been silent for longest goes. */
static void make_room(struct fq_listener *listener)
{
    if (listener->pending_count < listener->pending_max) {
        return;
    }
    struct fq_list *list =
        fq_list_is_empty(&listener->lingering) ? &listener->pending : &listener->lingering;
    if (!fq_list_is_empty(list)) {
        listener->refused += list == &listener->pending;
        drop_pending(listener, fq_list_item(list->next, struct pending, link));
    }
}

static void add_pending(struct fq_listener *listener, int fd, int64_t now_us)
{
    make_room(listener);
    struct pending *p = calloc(1, sizeof *p);
    if (!p || fq_epoll_add(listener->epoll_fd, fd, EPOLLIN, p) < 0) {
        listener->refused++;
        free(p);
        close(fd);
        return;
    }
    p->fd = fd;
    p->passed_fd = -1;
    p->deadline_us = now_us + listener->hello_deadline_us;
    fq_list_init(&p->link);
    fq_list_append(&listener->pending, &p->link);
    listener->pending_count++;
    read_hello(listener, p, now_us);
}

static void accept_some(struct fq_listener *listener, int64_t now_us)
{
    for (int i = 0; i < ACCEPTS_PER_POLL; i++) {
        int fd = accept4(listener->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            if (listener->endpoint.transport == FQ_TRANSPORT_TCP) {
                fq_tcp_set_options(fd, HELLO_DEADLINE_US);
            }
            add_pending(listener, fd, now_us);
        } else if (errno == EINTR || errno == ECONNABORTED) {
            continue;
        } else if (fq_sock_would_block(errno)) {
            return;
        } else { /* EMFILE, ENFILE, ENOBUFS, ENOMEM: the peer waits in the backlog meanwhile */
            listener->refused++;
            pause_accepting(listener, now_us);
            return;
        }
    }
}

static void expire(struct fq_listener *listener, struct fq_list *list, int64_t now_us)
{
    while (!fq_list_is_empty(list)) {
        struct pending *p = fq_list_item(list->next, struct pending, link);
        if (p->deadline_us > now_us) {
            return;
        }
        listener->refused += list == &listener->pending;
        drop_pending(listener, p);
    }
}

/* Turns the oldest complete hello into an incoming; NULL: it was not good after all. */
static struct fq_incoming *take_ready(struct fq_listener *listener, struct pending *p)
{
    struct fq_incoming *incoming = calloc(1, sizeof *incoming);
    bool is_shm = listener->endpoint.transport == FQ_TRANSPORT_SHM;
    if (!incoming || fq_hello_frame_decode(p->bytes, p->have, &incoming->hello) < 0 ||
        incoming->hello.transport != listener->endpoint.transport ||
        is_shm != (p->passed_fd >= 0)) {
        free(incoming);
        refuse(listener, p, FLASHQ_ERR_PROTOCOL, fq_mono_us());
        (void)fq_epoll_add(listener->epoll_fd, p->fd, EPOLLIN, p);
        return NULL;
    }
    incoming->fd = p->fd;
    incoming->passed_fd = p->passed_fd;
    fq_peer_describe(p->fd, incoming->hello.transport, incoming->peer_name, &incoming->uid);
    p->fd = p->passed_fd = -1;
    drop_pending(listener, p);
    return incoming;
}

static void look_at_sockets(struct fq_listener *listener, int64_t now_us)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(listener->epoll_fd, events, EVENTS_MAX, 0);
    bool has_new = false;
    for (int i = 0; i < count; i++) {
        struct pending *p = events[i].data.ptr;
        if (!p) {
            has_new = true;
        } else if (p->is_lingering) {
            linger(listener, p);
        } else {
            read_hello(listener, p, now_us);
        }
    }
    if (has_new) { /* last: it may drop a waiting connection that an event above names */
        accept_some(listener, now_us);
    }
}

int fq_listener_poll(struct fq_listener *listener, struct fq_incoming **ret)
{
    if (!listener || !ret) {
        return FLASHQ_ERR_INVALID;
    }
    int64_t now_us = fq_mono_us();
    if (listener->paused_until_us && now_us >= listener->paused_until_us) {
        listener->paused_until_us = 0;
        (void)fq_epoll_mod(listener->epoll_fd, listener->socket.fd, EPOLLIN, NULL);
    }
    if (fq_list_is_empty(&listener->ready)) { /* the caller takes those before more are accepted */
        look_at_sockets(listener, now_us);
    }
    expire(listener, &listener->pending, now_us);
    expire(listener, &listener->lingering, now_us);
    while (!fq_list_is_empty(&listener->ready)) {
        struct fq_incoming *incoming =
            take_ready(listener, fq_list_item(listener->ready.next, struct pending, link));
        if (incoming) {
            *ret = incoming;
            return 1;
        }
    }
    return 0;
}
