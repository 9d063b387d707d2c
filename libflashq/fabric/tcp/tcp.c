/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp back end: one-sided operations are frames that the peer's fabric code carries out
 * straight into or out of its regions. Sockets are level-triggered in one epoll set, so nothing is
 * lost by sleeping; connections with received bytes that found no room in a poll wait in `ready`.
 *
 * Life and death: the kernel of a stopped peer still acknowledges, so a connection ends when it is
 * closed, when keepalive finds no host (idle), or when what was sent is retransmitted without any
 * acknowledgement for dead_after_us (busy). TCP_USER_TIMEOUT is not used: it also counts the time
 * that a living but stopped peer keeps its window closed.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/sock.h"
#include "fabric/tcp/tcp.h"

#define SOCKET_EVENTS_MAX 64
#define LINGER_US         1000000
#define HOT_STREAK        16 /* receipts in a row after which a connection counts as the only busy one */
#define SOCKETS_EVERY_US  20 /* how often epoll is asked all the same */

/* A socket whose connection failed here: it carries the ERROR frame away and reads on until the
 * peer closes, because a close with unread bytes would reset the connection and lose the frame. */
struct lingering {
    enum fq_tcp_source source;
    struct fq_list link;
    int fd;
    int64_t deadline_us;
};

/* ---- breaking ------------------------------------------------------------------------------- */

void fq_tcp_update_interest(struct fq_tcp_conn *conn)
{
    if (conn->is_blocked && conn->tx.owed <= FQ_TCP_OWED_MAX / 2) {
        conn->is_blocked = false;
        fq_list_append(&fq_tcp_fabric_of(conn->base.fabric)->ready, &conn->ready);
    }
    /* Also when a flush outside conn_event has made the room: the socket's event tells of it. */
    bool wants_output = !fq_tcp_tx_is_empty(&conn->tx) || fq_tcp_owes_writable(conn);
    uint32_t wanted =
        (conn->is_blocked ? 0 : (uint32_t)EPOLLIN) | (wants_output ? (uint32_t)EPOLLOUT : 0);
    if (wanted != conn->interest) {
        conn->interest = wanted;
        (void)fq_epoll_mod(conn->base.fabric->epoll_fd, conn->fd, wanted, &conn->source);
    }
}

static void drop_lingering(struct fq_fabric *fabric, struct lingering *lingering, bool is_child)
{
    fq_list_remove(&lingering->link);
    if (is_child) {
        close(lingering->fd);
    } else {
        fq_sock_close_from(fabric->epoll_fd, lingering->fd);
    }
    free(lingering);
}

static void begin_linger(struct fq_tcp_conn *conn)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(conn->base.fabric);
    struct lingering *lingering = malloc(sizeof *lingering);
    if (!lingering) {
        fq_sock_close_from(fabric->base.epoll_fd, conn->fd);
        return;
    }
    (void)shutdown(conn->fd, SHUT_WR);
    *lingering = (struct lingering){
        .source = FQ_TCP_SOURCE_LINGER, .fd = conn->fd, .deadline_us = fq_mono_us() + LINGER_US};
    fq_list_init(&lingering->link);
    fq_list_append(&fabric->lingering, &lingering->link);
    (void)fq_epoll_mod(fabric->base.epoll_fd, conn->fd, EPOLLIN, &lingering->source);
}

static void linger(struct fq_fabric *fabric, struct lingering *lingering)
{
    uint8_t waste[4096];
    for (int i = 0; i < 64; i++) {
        ssize_t n = fq_sock_recv(lingering->fd, waste, sizeof waste);
        if (n == 0 || (n < 0 && !fq_sock_would_block(errno))) {
            drop_lingering(fabric, lingering, false);
        }
        if (n <= 0) {
            return;
        }
    }
}

static void tell_error(struct fq_tcp_conn *conn, int code, const char *text)
{
    const struct fq_tcp_frame frame = {
        .op = FQ_TCP_ERROR, .length = (uint32_t)strlen(text), .imm = (uint32_t)code};
    if (fq_tcp_tx_frame(conn, &frame, text, strlen(text), NULL)) {
        fq_tcp_tx_flush(conn);
    }
    begin_linger(conn);
}

/* Nobody waits for the name any more. */
static void drop_resolve(struct fq_tcp_conn *conn, bool is_child)
{
    if (conn->resolve) {
        if (!is_child) {
            fq_epoll_del(conn->base.fabric->epoll_fd, fq_tcp_resolve_fd(conn->resolve));
        }
        fq_tcp_resolve_free(conn->resolve, is_child);
        conn->resolve = NULL;
    }
}

static void leave_lists(struct fq_tcp_conn *conn)
{
    fq_list_remove(&conn->link);
    fq_list_remove(&conn->ready);
    fq_list_remove(&conn->unacked);
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(conn->base.fabric);
    if (fabric->hot == conn) {
        fabric->hot = NULL;
    }
}

int fq_tcp_fail(struct fq_tcp_conn *conn, bool tell, int code, const char *format, ...)
{
    if (conn->base.state == FQ_CONN_BROKEN || conn->base.state == FQ_CONN_CLOSED) {
        return code;
    }
    char text[FQ_REASON_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (tell && conn->fd >= 0) {
        tell_error(conn, code, text);
    } else {
        fq_sock_close_from(conn->base.fabric->epoll_fd, conn->fd);
    }
    conn->fd = -1;
    leave_lists(conn);
    drop_resolve(conn, false);
    fq_tcp_tx_abandon(conn, code);
    return fq_conn_fail(&conn->base, code, "%s", text);
}

static void conn_fini(struct fq_conn *base, bool is_child)
{
    struct fq_tcp_conn *conn = fq_tcp_conn_of(base);
    leave_lists(conn);
    if (is_child && conn->fd >= 0) {
        close(conn->fd);
    } else {
        fq_sock_close_from(base->fabric->epoll_fd, conn->fd);
    }
    conn->fd = -1;
    drop_resolve(conn, is_child);
    fq_tcp_tx_abandon(conn, FLASHQ_ERR_CLOSED);
    free(conn->rx.bytes);
    conn->rx.bytes = NULL;
}

/* ---- dead peers ----------------------------------------------------------------------------- */

static void check_alive(struct fq_tcp_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) {
        return;
    }
    if (info.tcpi_unacked == 0 && fq_tcp_tx_is_empty(&conn->tx)) {
        fq_list_remove(&conn->unacked);
        return;
    }
    int64_t silent_us = (int64_t)info.tcpi_last_ack_recv * 1000;
    bool is_unanswered = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
    if (is_unanswered && silent_us > conn->base.fabric->params.dead_after_us) {
        (void)fq_tcp_fail(conn, false, FLASHQ_ERR_UNREACHABLE,
                          "no sign of life from the peer's host for %lld ms",
                          (long long)(silent_us / 1000));
    }
}

static void sweep(struct fq_tcp_fabric *fabric, int64_t now_us)
{
    if (now_us < fabric->sweep_us) {
        return;
    }
    struct fq_list *next;
    for (struct fq_list *at = fabric->unacked.next; at != &fabric->unacked; at = next) {
        next = at->next;
        check_alive(fq_list_item(at, struct fq_tcp_conn, unacked));
    }
    bool is_quiet = fq_list_is_empty(&fabric->unacked);
    fabric->sweep_us = is_quiet ? INT64_MAX : now_us + fabric->base.params.dead_after_us / 4;
}

static void expire_lingering(struct fq_tcp_fabric *fabric, int64_t now_us)
{
    while (!fq_list_is_empty(&fabric->lingering)) {
        struct lingering *first = fq_list_item(fabric->lingering.next, struct lingering, link);
        if (first->deadline_us > now_us) {
            return;
        }
        drop_lingering(&fabric->base, first, false);
    }
}

/* ---- polling -------------------------------------------------------------------------------- */

static void conn_event(struct fq_tcp_conn *conn, uint32_t events)
{
    if (conn->base.state == FQ_CONN_CONNECTING) {
        fq_tcp_connecting_event(conn);
        return;
    }
    if (conn->is_blocked && (events & (EPOLLHUP | EPOLLERR))) { /* its answers will never leave */
        (void)fq_tcp_fail(conn, false, FLASHQ_ERR_CLOSED, "the peer closed the connection or died");
    }
    if (conn->base.state == FQ_CONN_OPEN && (events & EPOLLOUT)) {
        fq_tcp_tx_flush(conn);
    }
    if (conn->base.state == FQ_CONN_OPEN && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        fq_tcp_receive(conn);
    }
    if (conn->base.state == FQ_CONN_OPEN && fq_tcp_owes_writable(conn)) {
        fq_emit_writable(&conn->base);
        fq_tcp_update_interest(conn);
    }
}

static void socket_event(struct fq_fabric *fabric, enum fq_tcp_source *source, uint32_t events)
{
    switch (*source) {
    case FQ_TCP_SOURCE_LINGER:
        linger(fabric, fq_list_item(source, struct lingering, source));
        break;
    case FQ_TCP_SOURCE_RESOLVE:
        fq_tcp_resolved(fq_list_item(source, struct fq_tcp_conn, source));
        break;
    case FQ_TCP_SOURCE_CONN:
        conn_event(fq_list_item(source, struct fq_tcp_conn, source), events);
        break;
    }
}

static void move_all(struct fq_list *from, struct fq_list *to)
{
    while (!fq_list_is_empty(from)) {
        fq_list_append(to, from->next);
    }
}

/* Each in its turn; who got none when the budget ends goes before those that had theirs. */
static void poll_ready(struct fq_tcp_fabric *fabric)
{
    struct fq_list turn;
    fq_list_init(&turn);
    move_all(&fabric->ready, &turn);
    while (!fq_list_is_empty(&turn) && fq_has_budget(&fabric->base)) {
        struct fq_tcp_conn *conn = fq_list_item(turn.next, struct fq_tcp_conn, ready);
        fq_list_remove(&conn->ready);
        fq_tcp_receive(conn); /* puts itself into `ready` when it could not finish */
    }
    move_all(&fabric->ready, &turn);
    move_all(&turn, &fabric->ready);
}

/* One system call brings what has come, and one finds that nothing has, as long as only one connection is
 * busy. Two that take turns end the streak. Returns whether there is such a one; *ret_found: it had bytes. */
static bool poll_hot(struct fq_tcp_fabric *fabric, bool *ret_found)
{
    struct fq_tcp_conn *conn = fabric->hot;
    if (!conn || fabric->hot_streak < HOT_STREAK || conn->interest != EPOLLIN) {
        return false;
    }
    uint64_t before = fabric->base.received;
    if (fq_list_is_empty(&conn->ready) && fq_has_budget(&fabric->base)) {
        fq_tcp_receive(conn);
    }
    *ret_found = fabric->base.received != before;
    return true;
}

static void poll_sockets(struct fq_tcp_fabric *fabric)
{
    struct epoll_event events[SOCKET_EVENTS_MAX];
    int count = epoll_wait(fabric->base.epoll_fd, events, SOCKET_EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        socket_event(&fabric->base, events[i].data.ptr, events[i].events);
    }
}

static int tcp_poll(struct fq_fabric *base)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(base);
    if (fq_list_is_empty(&base->conns) && fq_list_is_empty(&fabric->lingering)) {
        return 0; /* no sockets: a thread that spins on other fabrics makes no system call here */
    }
    fabric->polls++;
    poll_ready(fabric);
    int64_t now_us = fq_mono_us();
    bool found = false;
    bool is_hot = poll_hot(fabric, &found);
    bool is_slept = fabric->is_armed && !found;
    fabric->is_armed = false;
    if (!is_hot || is_slept || now_us - fabric->sockets_seen_us >= SOCKETS_EVERY_US) {
        fabric->sockets_seen_us = now_us;
        poll_sockets(fabric);
    }
    bool is_quiet = fq_list_is_empty(&fabric->connecting) && fq_list_is_empty(&fabric->unacked) &&
                    fq_list_is_empty(&fabric->lingering);
    if (!is_quiet) {
        fq_tcp_connecting_deadlines(fabric, now_us);
        sweep(fabric, now_us);
        expire_lingering(fabric, now_us);
    }
    return 0;
}

static int tcp_arm(struct fq_fabric *base)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(base);
    fabric->is_armed = true;
    return !fq_list_is_empty(&fabric->ready);
}

static void tcp_disarm(struct fq_fabric *base)
{
    (void)base;
}

static int64_t tcp_next_deadline(const struct fq_fabric *base)
{
    const struct fq_tcp_fabric *fabric = (const struct fq_tcp_fabric *)(const void *)base;
    int64_t first = fq_tcp_connecting_next_us(fabric);
    if (!fq_list_is_empty(&fabric->lingering)) {
        int64_t due = fq_list_item(fabric->lingering.next, struct lingering, link)->deadline_us;
        first = due < first ? due : first;
    }
    if (!fq_list_is_empty(&fabric->unacked)) {
        first = fabric->sweep_us < first ? fabric->sweep_us : first;
    }
    return first;
}

/* ---- windows -------------------------------------------------------------------------------- */

static int tcp_grant(struct fq_window *window, uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err)
{
    (void)err;
    struct fq_token parsed = fq_window_token(window, FQ_TRANSPORT_TCP);
    fq_token_encode(&parsed, token);
    return 0;
}

static void tcp_revoke(struct fq_window *window)
{
    struct fq_tcp_conn *conn = fq_tcp_conn_of(window->conn);
    const struct fq_tcp_frame frame = {
        .op = FQ_TCP_REVOKE, .window = window->id, .key = window->key};
    bool is_over = conn->tx.end - conn->tx.begin > 2 * (size_t)FQ_LIMIT_CONTROL_QUEUED_BYTES;
    if (!is_over && fq_tcp_tx_frame(conn, &frame, NULL, 0, NULL)) {
        fq_tcp_tx_flush(conn);
    } else { /* who cannot be told is cut off */
        (void)fq_tcp_fail(conn, false, is_over ? FLASHQ_ERR_LIMIT : FLASHQ_ERR_NO_MEMORY,
                          "a window cannot be revoked: %s",
                          is_over ? "the peer does not receive" : "no memory");
    }
}

static int tcp_remote_open(struct fq_remote *remote, const uint8_t token[FQ_TOKEN_BYTES],
                           struct fq_err *err)
{
    struct fq_token parsed;
    if (fq_token_decode(token, &parsed) < 0 || parsed.transport != FQ_TRANSPORT_TCP) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "not a token of a tcp window");
    }
    if (remote->rights & ~parsed.rights) {
        return fq_err_set(err, FLASHQ_ERR_NOT_PERMITTED, "the window does not grant that right");
    }
    remote->id = parsed.id;
    remote->key = parsed.key;
    remote->bytes = parsed.bytes;
    remote->span = parsed.is_mirrored ? 2 * parsed.bytes : parsed.bytes;
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int tcp_init(struct fq_fabric *base, struct fq_err *err)
{
    (void)err;
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(base);
    fq_list_init(&fabric->ready);
    fq_list_init(&fabric->connecting);
    fq_list_init(&fabric->unacked);
    fq_list_init(&fabric->lingering);
    fabric->sweep_us = INT64_MAX;
    return 0;
}

static void tcp_fini(struct fq_fabric *base)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(base);
    bool is_child = base->pid != getpid();
    while (!fq_list_is_empty(&fabric->lingering)) {
        drop_lingering(base, fq_list_item(fabric->lingering.next, struct lingering, link),
                       is_child);
    }
}

const struct fq_fabric_ops fq_tcp_ops = {
    .transport = FQ_TRANSPORT_TCP,
    .fabric_bytes = sizeof(struct fq_tcp_fabric),
    .conn_bytes = sizeof(struct fq_tcp_conn),
    .init = tcp_init,
    .fini = tcp_fini,
    .poll = tcp_poll,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .next_deadline = tcp_next_deadline,
    .conn_open = fq_tcp_conn_open,
    .conn_adopt = fq_tcp_conn_adopt,
    .conn_fini = conn_fini,
    .grant = tcp_grant,
    .revoke = tcp_revoke,
    .remote_open = tcp_remote_open,
    .post = fq_tcp_post,
};
