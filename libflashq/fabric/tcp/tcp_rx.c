/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input of a tcp connection. Small frames are batched through one buffer; the payload of a
 * large WRITE or READ_DATA is received straight into the region. Every frame is hostile: op,
 * length, key, rights and bounds are checked before a byte of payload moves, and the window is
 * looked up again whenever a payload goes on in a later poll, since it may be gone by then. A wrong
 * frame ends the connection.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "fabric/sock.h"
#include "fabric/tcp/tcp.h"

#define BATCH_BYTES       (16u << 10) /* received at a time while no large payload is under way */
#define DIRECT_BYTES      (4u << 10)  /* payload still missing from which it is received in place */
#define RECEIVES_PER_POLL 16

enum step { STEP_MORE, STEP_NEED_BYTES, STEP_NO_ROOM, STEP_BROKEN };

static size_t have(const struct fq_tcp_rx *rx)
{
    return rx->end - rx->begin;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void refuse_malformed(struct fq_tcp_conn *conn, const char *what, unsigned value)
{
    conn->base.fabric->stats.refused_malformed++;
    (void)fq_tcp_fail(conn, true, FLASHQ_ERR_PROTOCOL, "%s (%u)", what, value);
}

/* The window that the frame may use as it asks; NULL: refused, the connection is broken. */
static struct fq_window *window_of(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame,
                                   unsigned right)
{
    struct fq_fabric_stats *stats = &conn->base.fabric->stats;
    struct fq_window *window = fq_window_find(&conn->base, frame->window, frame->key);
    if (!window || (fq_window_is_retired(window) && right == FQ_RIGHT_READ)) {
        stats->refused_key++;
        (void)fq_tcp_fail(conn, true, FLASHQ_ERR_NOT_PERMITTED,
                          "no such window: wrong key, or revoked");
        return NULL;
    }
    if (!(window->rights & right)) {
        stats->refused_rights++;
        (void)fq_tcp_fail(conn, true, FLASHQ_ERR_NOT_PERMITTED, "the window does not grant %s",
                          right == FQ_RIGHT_READ ? "reading" : "writing");
        return NULL;
    }
    if (!fq_window_covers(window, frame->offset, frame->length)) {
        stats->refused_bounds++;
        (void)fq_tcp_fail(conn, true, FLASHQ_ERR_OUT_OF_RANGE,
                          "%u bytes at %llu are outside the window of %llu", frame->length,
                          (unsigned long long)frame->offset, (unsigned long long)window->bytes);
        return NULL;
    }
    if (right == FQ_RIGHT_WRITE && !fq_window_may_begin(window, frame->offset)) {
        stats->refused_floor++;
        (void)fq_tcp_fail(conn, true, FLASHQ_ERR_NOT_PERMITTED,
                          "a write at %llu of a window that is written from %llu on without a gap, "
                          "up to %llu now",
                          (unsigned long long)frame->offset, (unsigned long long)window->floor,
                          (unsigned long long)window->written);
        return NULL;
    }
    return window;
}

/* Where the payload of a frame that has one goes. */
struct target {
    uint8_t *at;              /* NULL: nowhere */
    struct fq_window *window; /* NULL: the answer to a read */
};

/* false: refused, the connection is broken. */
static bool find_target(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame,
                        struct target *ret)
{
    if (frame->op != FQ_TCP_READ_DATA) {
        struct fq_window *window = window_of(conn, frame, FQ_RIGHT_WRITE);
        if (!window) {
            return false;
        }
        bool is_dropped = fq_window_is_retired(window);
        *ret = (struct target){
            is_dropped ? NULL : fq_window_at(window, frame->offset, frame->length), window};
        return true;
    }
    const struct fq_tcp_read *read = &conn->reads[conn->reads_head % FQ_TCP_READS_MAX];
    if (conn->reads_head == conn->reads_tail || read->sequence != frame->imm ||
        read->length != frame->length) {
        refuse_malformed(conn, "an answer to no read", frame->imm);
        return false;
    }
    *ret = (struct target){read->local, NULL};
    return true;
}

/* `part` more bytes of the running payload are in place. */
static void note_placed(struct fq_tcp_rx *rx, const struct target *target, size_t part)
{
    rx->done += part;
    if (target->window && target->at && part > 0) {
        fq_window_note_written(target->window, rx->frame.offset + rx->done);
    }
}

static bool check_header(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame, uint8_t flags,
                         uint16_t zero)
{
    const char *wrong = NULL;
    size_t length_max = 0;
    switch (frame->op) {
    case FQ_TCP_SEND: length_max = FQ_LIMIT_CONTROL_BYTES; break;
    case FQ_TCP_WRITE:
    case FQ_TCP_WRITE_NOTIFY:
    case FQ_TCP_READ:
    case FQ_TCP_READ_DATA: length_max = FQ_LIMIT_FABRIC_FRAME_BYTES; break;
    case FQ_TCP_ERROR: length_max = FQ_REASON_TEXT_BYTES; break;
    case FQ_TCP_NOTIFY:
    case FQ_TCP_REVOKE: break;
    default: wrong = "unknown operation";
    }
    if (!wrong && (flags || zero)) {
        wrong = "unknown flags";
    }
    if (wrong) {
        refuse_malformed(conn, wrong, frame->op);
        return false;
    }
    if (frame->length > length_max) {
        refuse_malformed(conn, "a frame longer than it may be", frame->length);
        return false;
    }
    return true;
}

/* ---- carrying out --------------------------------------------------------------------------- */

static enum step answer_read(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame)
{
    if (conn->tx.owed >= FQ_TCP_OWED_MAX) {
        conn->is_blocked = true; /* flushing unblocks */
        return STEP_NO_ROOM;
    }
    const struct fq_window *window = window_of(conn, frame, FQ_RIGHT_READ);
    if (!window) {
        return STEP_BROKEN;
    }
    const uint8_t *at = fq_window_at(window, frame->offset, frame->length);
    uint8_t small[FQ_ATOMIC_COPY_BYTES];
    if (frame->length <= sizeof small) {
        fq_copy_words(small, at, frame->length);
        at = small;
    }
    const struct fq_tcp_frame answer = {
        .op = FQ_TCP_READ_DATA, .length = frame->length, .imm = frame->imm};
    if (!fq_tcp_tx_frame(conn, &answer, at, frame->length, window->region)) {
        (void)fq_tcp_fail(conn, true, FLASHQ_ERR_NO_MEMORY, "no memory to answer a read");
        return STEP_BROKEN;
    }
    fq_tcp_tx_mark(conn, false, 0, true);
    conn->base.fabric->stats.reads_in++;
    conn->base.fabric->stats.read_bytes_in += frame->length;
    return STEP_MORE;
}

static void emit_notify(struct fq_tcp_conn *conn, uint32_t imm)
{
    conn->notified_in = fq_tcp_fabric_of(conn->base.fabric)->polls;
    fq_emit_notify(&conn->base, imm);
}

static void finish_read(struct fq_tcp_conn *conn)
{
    struct fq_tcp_read *read = &conn->reads[conn->reads_head++ % FQ_TCP_READS_MAX];
    fq_region_unref(read->region);
    if (read->completes) {
        fq_emit_completed(&conn->base, read->cookie, 0);
    }
}

static void finish_payload(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame,
                           bool is_dropped)
{
    struct fq_fabric_stats *stats = &conn->base.fabric->stats;
    if (frame->op == FQ_TCP_READ_DATA) {
        finish_read(conn);
        return;
    }
    stats->writes_in++;
    stats->write_bytes_in += frame->length;
    stats->writes_dropped += is_dropped;
    if (frame->op == FQ_TCP_WRITE_NOTIFY) {
        emit_notify(conn, frame->imm);
    }
}

/* WRITE, WRITE_NOTIFY, READ_DATA: moves what is in the buffer into place. */
static enum step take_payload(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    const struct fq_tcp_frame *frame = &rx->frame;
    struct target target;
    if (!find_target(conn, frame, &target)) {
        return STEP_BROKEN;
    }
    size_t left = frame->length - rx->done;
    size_t part = have(rx) < left ? have(rx) : left;
    if (frame->length <= FQ_ATOMIC_COPY_BYTES && part < left) {
        return STEP_NEED_BYTES; /* whole, so that its words are not torn */
    }
    if (part > 0 && target.at) {
        fq_copy_words(target.at + rx->done, rx->bytes + rx->begin, part);
    }
    rx->begin += part;
    note_placed(rx, &target, part);
    if (rx->done < frame->length) {
        return STEP_NEED_BYTES;
    }
    rx->has_frame = false;
    finish_payload(conn, frame, target.at == NULL);
    return STEP_MORE;
}

static enum step take_message(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    size_t length = rx->frame.length;
    if (have(rx) < length) {
        return STEP_NEED_BYTES;
    }
    uint8_t *room = fq_message_room(conn->base.fabric, length);
    if (!room) {
        return STEP_NO_ROOM;
    }
    memcpy(room, rx->bytes + rx->begin, length);
    rx->begin += length;
    rx->has_frame = false;
    fq_emit_message(&conn->base, room, length);
    return STEP_MORE;
}

static enum step take_error(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    if (have(rx) < rx->frame.length) {
        return STEP_NEED_BYTES;
    }
    char text[FQ_REASON_TEXT_BYTES + 1];
    size_t length = rx->frame.length;
    for (size_t i = 0; i < length; i++) {
        uint8_t c = rx->bytes[rx->begin + i];
        text[i] = c < ' ' ? ' ' : (char)c;
    }
    text[length] = '\0';
    int code = (int32_t)rx->frame.imm;
    (void)fq_tcp_fail(conn, false, code < 0 ? code : FLASHQ_ERR_PROTOCOL, "%s", text);
    return STEP_BROKEN;
}

static enum step take_frame(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    switch ((enum fq_tcp_op)rx->frame.op) {
    case FQ_TCP_SEND: return take_message(conn);
    case FQ_TCP_WRITE:
    case FQ_TCP_WRITE_NOTIFY:
    case FQ_TCP_READ_DATA: return take_payload(conn);
    case FQ_TCP_READ: {
        enum step step = answer_read(conn, &rx->frame);
        rx->has_frame = step != STEP_MORE;
        return step;
    }
    case FQ_TCP_NOTIFY:
        rx->has_frame = false;
        emit_notify(conn, rx->frame.imm);
        return STEP_MORE;
    case FQ_TCP_REVOKE:
        rx->has_frame = false;
        fq_remotes_revoked(&conn->base, rx->frame.window, rx->frame.key);
        return STEP_MORE;
    case FQ_TCP_ERROR: return take_error(conn);
    }
    return STEP_BROKEN;
}

static enum step next_frame(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    if (!fq_has_budget(conn->base.fabric)) {
        return STEP_NO_ROOM;
    }
    if (rx->has_frame) {
        return take_frame(conn);
    }
    if (have(rx) < FQ_TCP_HEADER_BYTES) {
        return STEP_NEED_BYTES;
    }
    if (conn->base.in_place_windows > 0 &&
        conn->notified_in == fq_tcp_fabric_of(conn->base.fabric)->polls) {
        return STEP_NO_ROOM; /* first the owner moves the floor of what was notified */
    }
    struct fq_reader r;
    fq_reader_init(&r, rx->bytes + rx->begin, FQ_TCP_HEADER_BYTES);
    struct fq_tcp_frame *frame = &rx->frame;
    frame->op = fq_read_u8(&r);
    uint8_t flags = fq_read_u8(&r);
    uint16_t zero = fq_read_u16(&r);
    frame->length = fq_read_u32(&r);
    frame->imm = fq_read_u32(&r);
    frame->window = fq_read_u32(&r);
    frame->key = fq_read_u64(&r);
    frame->offset = fq_read_u64(&r);
    if (!check_header(conn, frame, flags, zero)) {
        return STEP_BROKEN;
    }
    rx->begin += FQ_TCP_HEADER_BYTES;
    rx->has_frame = true;
    rx->done = 0;
    return take_frame(conn);
}

static enum step take_frames(struct fq_tcp_conn *conn)
{
    enum step step;
    do {
        step = next_frame(conn);
    } while (step == STEP_MORE);
    return step;
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Receives into the region first, then into the (empty) buffer. */
static ssize_t receive_direct(struct fq_tcp_conn *conn, const struct target *target, size_t left,
                              size_t *ret_wanted)
{
    struct fq_tcp_rx *rx = &conn->rx;
    struct iovec iov[2] = {{.iov_base = target->at + rx->done, .iov_len = left},
                           {.iov_base = rx->bytes, .iov_len = BATCH_BYTES}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n;
    do {
        n = recvmsg(conn->fd, &message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    *ret_wanted = left + BATCH_BYTES;
    if (n > 0) {
        size_t in_place = (size_t)n < left ? (size_t)n : left;
        note_placed(rx, target, in_place);
        rx->begin = 0;
        rx->end = (size_t)n - in_place;
    }
    return n;
}

static ssize_t receive_batch(struct fq_tcp_conn *conn, size_t *ret_wanted)
{
    struct fq_tcp_rx *rx = &conn->rx;
    size_t used = have(rx);
    if (rx->begin > 0) {
        memmove(rx->bytes, rx->bytes + rx->begin, used);
        rx->begin = 0;
        rx->end = used;
    }
    size_t room = FQ_TCP_RX_BYTES - used;
    bool is_message = rx->has_frame && rx->frame.op == FQ_TCP_SEND;
    *ret_wanted = is_message || room < BATCH_BYTES ? room : BATCH_BYTES;
    ssize_t n = fq_sock_recv(conn->fd, rx->bytes + used, *ret_wanted);
    rx->end += n > 0 ? (size_t)n : 0;
    return n;
}

static bool is_direct(const struct fq_tcp_rx *rx)
{
    uint8_t op = rx->frame.op;
    return rx->has_frame &&
           (op == FQ_TCP_WRITE || op == FQ_TCP_WRITE_NOTIFY || op == FQ_TCP_READ_DATA) &&
           have(rx) == 0 && rx->frame.length - rx->done >= DIRECT_BYTES;
}

static void note_received(struct fq_tcp_conn *conn, size_t bytes)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(conn->base.fabric);
    fabric->hot_streak = fabric->hot == conn ? fabric->hot_streak + 1 : 0;
    fabric->hot = conn;
    fabric->base.received += bytes;
}

/* 1: go on, 0: nothing more there now, negative: broken. */
static int receive_some(struct fq_tcp_conn *conn)
{
    struct fq_tcp_rx *rx = &conn->rx;
    struct target target = {NULL, NULL};
    size_t wanted = 0;
    if (is_direct(rx) && !find_target(conn, &rx->frame, &target)) {
        return FLASHQ_ERR_CLOSED;
    }
    ssize_t n = target.at ? receive_direct(conn, &target, rx->frame.length - rx->done, &wanted)
                          : receive_batch(conn, &wanted);
    if (n > 0) {
        note_received(conn, (size_t)n);
        return (size_t)n == wanted;
    }
    if (n < 0 && fq_sock_would_block(errno)) {
        return 0;
    }
    if (n == 0 || errno == ECONNRESET || errno == EPIPE) {
        return fq_tcp_fail(conn, false, FLASHQ_ERR_CLOSED,
                           "the peer closed the connection or died");
    }
    return fq_tcp_fail(conn, false, FLASHQ_ERR_CLOSED, "the connection broke: %s", strerror(errno));
}

void fq_tcp_receive(struct fq_tcp_conn *conn)
{
    struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(conn->base.fabric);
    enum step step = take_frames(conn);
    for (int i = 0; step == STEP_NEED_BYTES && i < RECEIVES_PER_POLL; i++) {
        int r = receive_some(conn);
        if (r < 0) {
            return;
        }
        step = take_frames(conn);
        if (r == 0) {
            break;
        }
    }
    if (step == STEP_BROKEN || conn->base.state != FQ_CONN_OPEN) {
        return;
    }
    bool is_queued = !fq_list_is_empty(&conn->ready); /* then it keeps its place */
    if (step == STEP_NO_ROOM && !conn->is_blocked && !is_queued) {
        fq_list_append(&fabric->ready,
                       &conn->ready); /* epoll does not know what is in the buffer */
    }
    if (!fq_tcp_tx_is_empty(&conn->tx)) {
        fq_tcp_tx_flush(conn);
    } else {
        fq_tcp_update_interest(conn);
    }
}
