/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm back end. A one-sided operation is a memcpy by the initiator into memory that both map; a
 * notify or message is an entry in a shared ring (ring.h); the socket wakes sleepers and passes
 * descriptors (shm_link.c).
 *
 * A connection is active or idle. The rings of active ones are looked at in every poll; one on
 * which nothing happened for a while, and every one when the fabric is armed, becomes idle: its
 * ring says so and its peer pays a system call to wake it. So a thousand quiet connections cost a
 * busy one nothing but an epoll_wait now and then, and an idle process sleeps. Posting makes active
 * again: an answer is likely.
 *
 * A peer whose ring or records lie is disconnected (PROTOCOL); nothing it does blocks or crashes
 * us.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/shm/shm.h"
#include "fabric/sock.h"

#define IDLE_AFTER_US     1000 /* an active connection without traffic becomes idle */
#define SOCKETS_EVERY_US  20   /* how often a busy poll looks at the sockets of the idle */
#define ALL_IDLE_EVERY_US 5    /* the same where all are: what keeps the poller awake is elsewhere */
#define SOCKET_EVENTS_MAX 64
#define ENTRIES_PER_POLL  4096
#define SYNCS_PER_POLL    64 /* of one connection: each costs a system call here, its peer nothing */
#define WRITABLE_BYTES    (FQ_SHM_RING_BYTES / 2 + 1024) /* room at which WRITABLE is told */

_Static_assert(WRITABLE_BYTES >= FQ_LIMIT_CONTROL_BYTES + 2 * FQ_SHM_ENTRY_BYTES,
               "after WRITABLE the largest message fits");

/* ---- active and idle ------------------------------------------------------------------------ */

static void leave_list(struct fq_shm_conn *conn)
{
    if (conn->is_active) {
        conn->is_active = false;
        fq_shm_fabric_of(conn->base.fabric)->active_count--;
    }
    fq_list_remove(&conn->link);
}

void fq_shm_activate(struct fq_shm_conn *conn)
{
    struct fq_shm_fabric *fabric = fq_shm_fabric_of(conn->base.fabric);
    conn->busy_us = 0; /* counted from the next poll on */
    if (!conn->is_active) {
        conn->is_active = true;
        fabric->active_count++;
        fq_list_append(&fabric->active, &conn->link);
        fq_shm_rx_awake(&conn->rx);
    }
}

/* false: there is something to do now. */
static bool try_sleep(struct fq_shm_conn *conn)
{
    if (conn->has_eof || !fq_shm_rx_sleep(&conn->rx)) {
        return false;
    }
    leave_list(conn);
    fq_list_append(&fq_shm_fabric_of(conn->base.fabric)->idle, &conn->link);
    return true;
}

/* ---- breaking ------------------------------------------------------------------------------- */

static void tell_close(const struct fq_shm_conn *conn, int code, const char *text)
{
    size_t length = strlen(text);
    uint8_t bytes[FQ_SHM_RECORD_BYTES + FQ_REASON_TEXT_BYTES] = {FQ_SHM_RECORD_CLOSE};
    uint16_t text_bytes = (uint16_t)length;
    int32_t wire_code = code;
    memcpy(bytes + 2, &text_bytes, sizeof text_bytes);
    memcpy(bytes + 36, &wire_code, sizeof wire_code);
    memcpy(bytes + FQ_SHM_RECORD_BYTES, text, length);
    (void)fq_sock_send(conn->fd, bytes, FQ_SHM_RECORD_BYTES + length);
}

int fq_shm_fail(struct fq_shm_conn *conn, bool tell, int code, const char *format, ...)
{
    if (conn->base.state == FQ_CONN_BROKEN || conn->base.state == FQ_CONN_CLOSED) {
        return code;
    }
    char text[FQ_REASON_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    leave_list(conn);
    fq_list_remove(&conn->stuck);
    if (conn->fd >= 0) {
        if (tell) {
            tell_close(conn, code, text);
        }
        fq_sock_close_from(conn->base.fabric->epoll_fd, conn->fd);
        conn->fd = -1;
    }
    return fq_conn_fail(&conn->base, code, "%s", text);
}

static void conn_fini(struct fq_conn *base, bool is_child)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(base);
    leave_list(conn);
    fq_list_remove(&conn->stuck);
    fq_shm_link_fini(conn);
    if (conn->fd >= 0 && is_child) {
        close(conn->fd);
    } else {
        fq_sock_close_from(base->fabric->epoll_fd, conn->fd);
    }
    if (conn->ring_fd >= 0) {
        close(conn->ring_fd);
    }
    if (conn->layout) {
        munmap(conn->layout, sizeof *conn->layout);
    }
    conn->fd = conn->ring_fd = -1;
    conn->layout = NULL;
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* One entry; 1: go on, 0: no room for it in this poll, negative: broken. */
static int take_entry(struct fq_shm_conn *conn, const struct fq_shm_entry *entry)
{
    struct fq_fabric *fabric = conn->base.fabric;
    uint8_t *bytes;
    if (entry->kind != FQ_SHM_MESSAGE && entry->length != 0) {
        return FLASHQ_ERR_PROTOCOL;
    }
    switch (entry->kind) {
    case FQ_SHM_NOTIFY:
        fq_shm_rx_take(&conn->rx, entry, NULL);
        fq_emit_notify(&conn->base, entry->imm);
        return 1;
    case FQ_SHM_MESSAGE:
        bytes = fq_message_room(fabric, entry->length);
        if (!bytes) {
            return 0;
        }
        fq_shm_rx_take(&conn->rx, entry, bytes);
        fq_emit_message(&conn->base, bytes, entry->length);
        return 1;
    case FQ_SHM_SYNC:
        fq_shm_rx_take(&conn->rx, entry, NULL);
        return fq_shm_link_drain(conn) < 0 ? FLASHQ_ERR_CLOSED : 1;
    default: return FLASHQ_ERR_PROTOCOL;
    }
}

/* How many entries were taken, or negative: broken. */
static int drain_ring(struct fq_shm_conn *conn)
{
    int taken = 0, syncs = 0, r = 1;
    while (r > 0 && taken < ENTRIES_PER_POLL && syncs < SYNCS_PER_POLL &&
           fq_has_budget(conn->base.fabric)) {
        struct fq_shm_entry entry;
        r = fq_shm_rx_peek(&conn->rx, &entry);
        if (r > 0) {
            r = take_entry(conn, &entry);
            taken += r > 0;
            syncs += entry.kind == FQ_SHM_SYNC;
        }
    }
    if (conn->base.state != FQ_CONN_OPEN) {
        return FLASHQ_ERR_CLOSED;
    }
    if (r < 0) {
        conn->base.fabric->stats.refused_malformed++;
        return fq_shm_fail(conn, true, FLASHQ_ERR_PROTOCOL, "the peer's ring holds nonsense");
    }
    if (fq_shm_rx_release(&conn->rx)) {
        fq_shm_link_wake(conn);
    }
    return taken;
}

/* Tells WRITABLE when there is room; else the peer wakes us once there may be. */
static int check_writable(struct fq_shm_conn *conn)
{
    int r = fq_list_is_empty(&conn->records) ? 1 : fq_shm_link_flush(conn);
    if (r > 0) {
        r = fq_shm_tx_wait_room(&conn->tx, WRITABLE_BYTES);
        if (r == FLASHQ_ERR_PROTOCOL) {
            conn->base.fabric->stats.refused_malformed++;
            return fq_shm_fail(conn, true, r, "the peer's ring position is nonsense");
        }
    }
    if (r > 0) {
        fq_emit_writable(&conn->base);
    }
    return 0;
}

static void finish_eof(struct fq_shm_conn *conn)
{
    if (conn->close_code) {
        (void)fq_shm_fail(conn, false, conn->close_code, "%s", conn->close_text);
    } else {
        (void)fq_shm_fail(conn, false, FLASHQ_ERR_CLOSED, "the peer closed the connection or died");
    }
}

static void poll_conn(struct fq_shm_conn *conn, int64_t now_us)
{
    int taken = drain_ring(conn);
    if (taken < 0) {
        return;
    }
    if (conn->has_eof) { /* what it posted before is delivered, not what its child still posts */
        struct fq_shm_entry entry;
        if (conn->rx.head >= conn->eof_tail || fq_shm_rx_peek(&conn->rx, &entry) <= 0) {
            finish_eof(conn);
        }
        return;
    }
    if (conn->base.wants_writable && check_writable(conn) < 0) {
        return;
    }
    if (taken > 0 || conn->busy_us == 0) {
        conn->busy_us = now_us;
    } else if (now_us - conn->busy_us > IDLE_AFTER_US) {
        (void)try_sleep(conn);
    }
}

static void poll_rings(struct fq_shm_fabric *fabric, int64_t now_us)
{
    for (size_t n = fabric->active_count; n > 0 && fq_has_budget(&fabric->base); n--) {
        if (fq_list_is_empty(&fabric->active)) {
            return;
        }
        struct fq_shm_conn *conn = fq_list_item(fabric->active.next, struct fq_shm_conn, link);
        fq_list_append(&fabric->active, &conn->link); /* turns: nobody waits for a busy neighbour */
        poll_conn(conn, now_us);
    }
}

static void socket_event(struct fq_shm_conn *conn, uint32_t events)
{
    if (conn->base.state == FQ_CONN_CONNECTING) {
        fq_shm_connecting_event(conn);
        return;
    }
    if (conn->base.state != FQ_CONN_OPEN) {
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && fq_shm_link_drain(conn) < 0) {
        return;
    }
    if ((events & EPOLLOUT) && !conn->has_eof) {
        (void)fq_shm_link_flush(conn);
    }
    fq_shm_activate(conn);
}

static void poll_sockets(struct fq_shm_fabric *fabric)
{
    struct epoll_event events[SOCKET_EVENTS_MAX];
    int count = epoll_wait(fabric->base.epoll_fd, events, SOCKET_EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        socket_event(events[i].data.ptr, events[i].events);
    }
}

static int shm_poll(struct fq_fabric *base)
{
    struct fq_shm_fabric *fabric = fq_shm_fabric_of(base);
    if (fq_list_is_empty(&base->conns)) {
        return 0;
    }
    bool is_idle = fq_list_is_empty(&fabric->active);
    /* What has come is not to wait for an exact clock; none of the times here is short. */
    int64_t now_us = is_idle ? fq_mono_us() : fq_mono_recent_us(&fabric->clock);
    int64_t every_us = is_idle ? ALL_IDLE_EVERY_US : SOCKETS_EVERY_US;
    if (fabric->is_armed || now_us - fabric->sockets_seen_us >= every_us) {
        fabric->is_armed = false;
        fabric->sockets_seen_us = now_us;
        poll_sockets(fabric);
    }
    poll_rings(fabric, now_us);
    if (!fq_list_is_empty(&fabric->connecting)) {
        fq_shm_connecting_deadlines(fabric, now_us);
    }
    if (!fq_list_is_empty(&fabric->stuck)) {
        fq_shm_link_retry_stuck(fabric, now_us);
    }
    return 0;
}

static bool shm_has_news(const struct fq_fabric *base)
{
    const struct fq_shm_fabric *fabric = (const struct fq_shm_fabric *)(const void *)base;
    for (const struct fq_list *at = fabric->active.next; at != &fabric->active; at = at->next) {
        if (fq_shm_rx_has_news(&fq_list_item(at, struct fq_shm_conn, link)->rx)) {
            return true;
        }
    }
    return false;
}

/* ---- sleeping ------------------------------------------------------------------------------- */

static int shm_arm(struct fq_fabric *base)
{
    struct fq_shm_fabric *fabric = fq_shm_fabric_of(base);
    fabric->is_armed = true;
    while (!fq_list_is_empty(&fabric->active)) {
        struct fq_shm_conn *conn = fq_list_item(fabric->active.next, struct fq_shm_conn, link);
        if (!try_sleep(conn)) {
            return 1;
        }
        if (conn->base.wants_writable && fq_list_is_empty(&conn->records) &&
            fq_shm_tx_wait_room(&conn->tx, WRITABLE_BYTES) != 0) {
            fq_shm_activate(conn);
            return 1;
        }
    }
    return 0;
}

/* Connections stay idle until their peer or we use them. */
static void shm_disarm(struct fq_fabric *base)
{
    (void)base;
}

static int64_t shm_next_deadline(const struct fq_fabric *base)
{
    const struct fq_shm_fabric *fabric = (const struct fq_shm_fabric *)(const void *)base;
    int64_t due = fq_shm_connecting_next_us(fabric);
    bool is_stuck = !fq_list_is_empty(&fabric->stuck);
    return is_stuck && fabric->stuck_retry_us < due ? fabric->stuck_retry_us : due;
}

/* ---- posting -------------------------------------------------------------------------------- */

static uint64_t room_for(const struct fq_shm_conn *conn, const struct fq_op *op)
{
    uint64_t sync = conn->needs_sync ? FQ_SHM_ENTRY_BYTES : 0;
    switch (op->type) {
    case FQ_OP_SEND: return sync + fq_shm_entry_bytes(op->length);
    case FQ_OP_WRITE_NOTIFY: return sync + FQ_SHM_ENTRY_BYTES;
    case FQ_OP_WRITE:
    case FQ_OP_READ: break;
    }
    return 0;
}

static void copy_bytes(const struct fq_op *op)
{
    if (!op->remote || op->length == 0) {
        return;
    }
    uint8_t *there = op->remote->map + op->remote_offset;
    if (op->type == FQ_OP_READ) {
        fq_copy_words(op->local, there, op->length);
    } else if (op->local != there) {
        fq_copy_words(there, op->local, op->length);
    }
}

static void carry_out(struct fq_shm_conn *conn, const struct fq_op *op)
{
    copy_bytes(op);
    bool has_entry = op->type == FQ_OP_SEND || op->type == FQ_OP_WRITE_NOTIFY;
    if (has_entry && conn->needs_sync) {
        fq_shm_tx_put(&conn->tx, FQ_SHM_SYNC, 0, NULL, 0);
        conn->needs_sync = false;
    }
    if (op->type == FQ_OP_SEND) {
        fq_shm_tx_put(&conn->tx, FQ_SHM_MESSAGE, 0, op->local, op->length);
    } else if (op->type == FQ_OP_WRITE_NOTIFY) {
        fq_shm_tx_put(&conn->tx, FQ_SHM_NOTIFY, op->imm, NULL, 0);
    }
    if (op->signaled || op->type == FQ_OP_READ) {
        fq_emit_completed(&conn->base, op->cookie, 0);
    }
}

static int shm_post(struct fq_conn *base, const struct fq_op *ops, size_t ops_count)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(base);
    if (!fq_list_is_empty(&conn->records) && fq_shm_link_flush(conn) <= 0) {
        return 0; /* a descriptor goes first; what follows may speak of its window */
    }
    fq_shm_activate(conn);
    size_t taken = 0;
    int r = 1;
    while (taken < ops_count) {
        r = fq_shm_tx_has_room(&conn->tx, room_for(conn, &ops[taken]));
        if (r <= 0) {
            break;
        }
        carry_out(conn, &ops[taken++]);
    }
    if (r < 0) {
        base->fabric->stats.refused_malformed++;
        (void)fq_shm_fail(conn, true, FLASHQ_ERR_PROTOCOL, "the peer's ring position is nonsense");
        return taken > 0 ? (int)taken : FLASHQ_ERR_CLOSED;
    }
    if (conn->tx.tail != conn->tx.published && fq_shm_tx_publish(&conn->tx)) {
        fq_shm_link_wake(conn);
    }
    return (int)taken;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int shm_init(struct fq_fabric *base, struct fq_err *err)
{
    (void)err;
    struct fq_shm_fabric *fabric = fq_shm_fabric_of(base);
    fq_list_init(&fabric->active);
    fq_list_init(&fabric->idle);
    fq_list_init(&fabric->connecting);
    fq_list_init(&fabric->stuck);
    return 0;
}

static void shm_fini(struct fq_fabric *base)
{
    (void)base;
}

const struct fq_fabric_ops fq_shm_ops = {
    .transport = FQ_TRANSPORT_SHM,
    .fabric_bytes = sizeof(struct fq_shm_fabric),
    .conn_bytes = sizeof(struct fq_shm_conn),
    .init = shm_init,
    .fini = shm_fini,
    .poll = shm_poll,
    .has_news = shm_has_news,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .next_deadline = shm_next_deadline,
    .conn_open = fq_shm_conn_open,
    .conn_adopt = fq_shm_conn_adopt,
    .conn_fini = conn_fini,
    .grant = fq_shm_grant,
    .revoke = fq_shm_revoke,
    .remote_open = fq_shm_remote_open,
    .remote_fini = fq_shm_remote_fini,
    .post = shm_post,
};
