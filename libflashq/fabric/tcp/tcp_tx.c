/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output queue of a tcp connection. Headers and small payloads are copied into one buffer and
 * merge; large payloads stay where they are and hold a reference on their region until the kernel
 * has taken them. One doorbell is one sendmsg. Bounded in bytes and in stretches; what does not fit
 * is not taken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "fabric/sock.h"
#include "fabric/tcp/tcp.h"

#define IOV_MAX_HERE 64
#define BYTES_MAX    FQ_LIMIT_CONTROL_QUEUED_BYTES
#define ITEMS_SLACK                                                                                \
    (2 * FQ_TCP_OWED_MAX + 8) /* answers and last frames beyond the posters' bound */

bool fq_tcp_tx_is_empty(const struct fq_tcp_tx *tx)
{
    return tx->head == tx->tail;
}

static struct fq_tcp_out *item_at(const struct fq_tcp_tx *tx, uint64_t index)
{
    return &tx->items[index & (tx->items_capacity - 1)];
}

static bool reserve_items(struct fq_tcp_tx *tx, size_t more)
{
    size_t count = (size_t)(tx->tail - tx->head);
    if (count + more <= tx->items_capacity) {
        return true;
    }
    size_t capacity = tx->items_capacity ? 2 * tx->items_capacity : 16;
    if (capacity > 2 * (FQ_TCP_ITEMS_MAX + ITEMS_SLACK)) {
        return false;
    }
    struct fq_tcp_out *items = malloc(capacity * sizeof *items);
    if (!items) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = *item_at(tx, tx->head + i);
    }
    free(tx->items);
    tx->items = items;
    tx->items_capacity = capacity;
    tx->head = 0;
    tx->tail = count;
    return true;
}

static bool reserve_bytes(struct fq_tcp_tx *tx, size_t more)
{
    if (tx->begin == tx->end) {
        tx->begin = tx->end = 0;
    }
    if (tx->end + more <= tx->capacity) {
        return true;
    }
    size_t used = tx->end - tx->begin;
    if (used + more > tx->capacity || tx->begin < tx->capacity / 2) {
        /* Doubled also when little is free in front: else a full queue moves for each frame. */
        size_t capacity = tx->capacity ? 2 * tx->capacity : 4096;
        while (capacity < used + more) {
            capacity *= 2;
        }
        uint8_t *bytes = malloc(capacity);
        if (!bytes) {
            return false;
        }
        if (used > 0) {
            memcpy(bytes, tx->bytes + tx->begin, used);
        }
        free(tx->bytes);
        tx->bytes = bytes;
        tx->capacity = capacity;
    } else {
        memmove(tx->bytes, tx->bytes + tx->begin, used);
    }
    tx->begin = 0;
    tx->end = used;
    return true;
}

static void put_bytes(struct fq_tcp_tx *tx, const void *bytes, size_t length)
{
    if (length == 0) {
        return;
    }
    memcpy(tx->bytes + tx->end, bytes, length);
    tx->end += length;
    if (tx->tail != tx->head) {
        struct fq_tcp_out *last = item_at(tx, tx->tail - 1);
        if (!last->ref && !last->completes && !last->is_answer) {
            last->length += length;
            return;
        }
    }
    *item_at(tx, tx->tail++) = (struct fq_tcp_out){.length = length};
}

static void encode(const struct fq_tcp_frame *frame, uint8_t out[FQ_TCP_HEADER_BYTES])
{
    struct fq_writer w;
    fq_writer_init(&w, out, FQ_TCP_HEADER_BYTES);
    fq_write_u8(&w, frame->op);
    fq_write_u8(&w, 0);
    fq_write_u16(&w, 0);
    fq_write_u32(&w, frame->length);
    fq_write_u32(&w, frame->imm);
    fq_write_u32(&w, frame->window);
    fq_write_u64(&w, frame->key);
    fq_write_u64(&w, frame->offset);
}

bool fq_tcp_tx_frame(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame,
                     const void *payload, size_t length, struct fq_region *region)
{
    struct fq_tcp_tx *tx = &conn->tx;
    bool is_ref = region && length > FQ_TCP_INLINE_BYTES;
    uint8_t header[FQ_TCP_HEADER_BYTES];
    if (!reserve_items(tx, 3) || !reserve_bytes(tx, sizeof header + (is_ref ? 0 : length))) {
        return false;
    }
    encode(frame, header);
    put_bytes(tx, header, sizeof header);
    if (!is_ref) {
        put_bytes(tx, payload, length);
    } else {
        *item_at(tx, tx->tail++) =
            (struct fq_tcp_out){.ref = payload, .length = length, .region = fq_region_ref(region)};
    }
    return true;
}

void fq_tcp_tx_mark(struct fq_tcp_conn *conn, bool completes, uint64_t cookie, bool is_answer)
{
    struct fq_tcp_out *last = item_at(&conn->tx, conn->tx.tail - 1);
    last->completes = completes;
    last->cookie = cookie;
    last->is_answer = is_answer;
    conn->tx.owed += is_answer;
}

/* ---- sending -------------------------------------------------------------------------------- */

static size_t gather(const struct fq_tcp_tx *tx, struct iovec *iov, size_t *ret_bytes)
{
    size_t count = 0, at = tx->begin, skip = tx->head_sent;
    *ret_bytes = 0;
    for (uint64_t i = tx->head; i != tx->tail && count < IOV_MAX_HERE; i++) {
        const struct fq_tcp_out *item = item_at(tx, i);
        size_t left = item->length - skip;
        const uint8_t *from = item->ref ? item->ref + skip : tx->bytes + at;
        at += item->ref ? 0 : left;
        skip = 0;
        iov[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)from, .iov_len = left};
        *ret_bytes += left;
    }
    return count;
}

static void advance(struct fq_tcp_conn *conn, size_t sent)
{
    struct fq_tcp_tx *tx = &conn->tx;
    while (tx->head != tx->tail) {
        struct fq_tcp_out *item = item_at(tx, tx->head);
        size_t left = item->length - tx->head_sent;
        size_t step = sent < left ? sent : left;
        tx->begin += item->ref ? 0 : step;
        sent -= step;
        if (step < left) {
            tx->head_sent += step;
            return;
        }
        if (item->completes) {
            fq_emit_completed(&conn->base, item->cookie, 0);
        }
        tx->owed -= item->is_answer;
        fq_region_unref(item->region);
        tx->head++;
        tx->head_sent = 0;
    }
}

void fq_tcp_tx_flush(struct fq_tcp_conn *conn)
{
    struct fq_tcp_tx *tx = &conn->tx;
    struct iovec iov[IOV_MAX_HERE];
    while (!fq_tcp_tx_is_empty(tx)) {
        size_t wanted;
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = gather(tx, iov, &wanted)};
        ssize_t n = fq_sock_sendmsg(conn->fd, &message);
        if (n < 0) {
            break; /* full, or dead: then receiving finds out, after the peer's last words */
        }
        struct fq_tcp_fabric *fabric = fq_tcp_fabric_of(conn->base.fabric);
        if (fq_list_is_empty(&conn->unacked)) {
            fq_list_append(&fabric->unacked, &conn->unacked);
            if (fabric->sweep_us == INT64_MAX) {
                fabric->sweep_us = fq_mono_us() + fabric->base.params.dead_after_us / 4;
            }
        }
        advance(conn, (size_t)n);
        if ((size_t)n < wanted) {
            break;
        }
    }
    fq_tcp_update_interest(conn);
}

/* ---- posting -------------------------------------------------------------------------------- */

static struct fq_tcp_frame frame_for(const struct fq_op *op, enum fq_tcp_op kind)
{
    struct fq_tcp_frame frame = {
        .op = (uint8_t)kind, .length = (uint32_t)op->length, .imm = op->imm};
    if (op->remote) {
        frame.window = op->remote->id;
        frame.key = op->remote->key;
        frame.offset = op->remote_offset;
    }
    return frame;
}

static size_t frames_for(size_t length)
{
    return length ? (length + FQ_LIMIT_FABRIC_FRAME_BYTES - 1) / FQ_LIMIT_FABRIC_FRAME_BYTES : 1;
}

static bool has_room(const struct fq_tcp_conn *conn, const struct fq_op *op)
{
    const struct fq_tcp_tx *tx = &conn->tx;
    size_t frames = frames_for(op->length);
    size_t copied = op->type == FQ_OP_READ || op->length > FQ_TCP_INLINE_BYTES ? 0 : op->length;
    copied = op->type == FQ_OP_SEND ? op->length : copied;
    if (op->type == FQ_OP_READ && conn->reads_tail - conn->reads_head + frames > FQ_TCP_READS_MAX) {
        return false;
    }
    return tx->tail - tx->head + 2 * frames <= FQ_TCP_ITEMS_MAX &&
           tx->end - tx->begin + copied + frames * FQ_TCP_HEADER_BYTES <= BYTES_MAX;
}

/* Like every write to a window, a large one arrives in parts; the notify comes with the last. */
static bool post_write(struct fq_tcp_conn *conn, const struct fq_op *op)
{
    size_t done = 0;
    do {
        size_t left = op->length - done;
        bool is_last = left <= FQ_LIMIT_FABRIC_FRAME_BYTES;
        size_t part = is_last ? left : FQ_LIMIT_FABRIC_FRAME_BYTES;
        enum fq_tcp_op kind = op->type == FQ_OP_WRITE || !is_last ? FQ_TCP_WRITE
                              : op->remote                        ? FQ_TCP_WRITE_NOTIFY
                                                                  : FQ_TCP_NOTIFY;
        struct fq_tcp_frame frame = frame_for(op, kind);
        frame.length = (uint32_t)part;
        frame.offset += done;
        const uint8_t *from = part ? (const uint8_t *)op->local + done : NULL;
        if (!fq_tcp_tx_frame(conn, &frame, from, part, op->region)) {
            return false;
        }
        done += part;
    } while (done < op->length);
    return true;
}

static bool post_read(struct fq_tcp_conn *conn, const struct fq_op *op)
{
    size_t done = 0;
    do {
        size_t left = op->length - done;
        bool is_last = left <= FQ_LIMIT_FABRIC_FRAME_BYTES;
        size_t part = is_last ? left : FQ_LIMIT_FABRIC_FRAME_BYTES;
        struct fq_tcp_frame frame = frame_for(op, FQ_TCP_READ);
        frame.length = (uint32_t)part;
        frame.offset += done;
        frame.imm = conn->reads_tail;
        if (!fq_tcp_tx_frame(conn, &frame, NULL, 0, NULL)) {
            return false;
        }
        conn->reads[conn->reads_tail % FQ_TCP_READS_MAX] =
            (struct fq_tcp_read){.local = (uint8_t *)op->local + done,
                                 .length = (uint32_t)part,
                                 .sequence = conn->reads_tail,
                                 .region = fq_region_ref(op->region),
                                 .cookie = op->cookie,
                                 .completes = is_last};
        conn->reads_tail++;
        done += part;
    } while (done < op->length);
    return true;
}

static bool post_one(struct fq_tcp_conn *conn, const struct fq_op *op)
{
    bool is_taken = false;
    switch (op->type) {
    case FQ_OP_SEND: {
        struct fq_tcp_frame frame = {.op = FQ_TCP_SEND, .length = (uint32_t)op->length};
        is_taken = fq_tcp_tx_frame(conn, &frame, op->local, op->length, NULL);
        break;
    }
    case FQ_OP_WRITE:
    case FQ_OP_WRITE_NOTIFY: is_taken = post_write(conn, op); break;
    case FQ_OP_READ: return post_read(conn, op);
    }
    if (is_taken && op->signaled) {
        fq_tcp_tx_mark(conn, true, op->cookie, false);
    }
    return is_taken;
}

int fq_tcp_post(struct fq_conn *base, const struct fq_op *ops, size_t ops_count)
{
    struct fq_tcp_conn *conn = fq_tcp_conn_of(base);
    size_t taken = 0;
    do { /* what is refused finds a queue that waits for the socket, which tells when it has room */
        while (taken < ops_count && has_room(conn, &ops[taken])) {
            if (!post_one(conn, &ops[taken])) {
                (void)fq_tcp_fail(conn, false, FLASHQ_ERR_NO_MEMORY, "no memory to send");
                return taken > 0 ? (int)taken : FLASHQ_ERR_NO_MEMORY;
            }
            taken++;
        }
        fq_tcp_tx_flush(conn);
    } while (taken < ops_count && has_room(conn, &ops[taken]));
    return (int)taken;
}

bool fq_tcp_owes_writable(const struct fq_tcp_conn *conn)
{
    const struct fq_tcp_tx *tx = &conn->tx;
    return conn->base.wants_writable && tx->tail - tx->head <= FQ_TCP_ITEMS_MAX / 2 &&
           tx->end - tx->begin <= BYTES_MAX / 2 &&
           conn->reads_tail - conn->reads_head <= FQ_TCP_READS_MAX / 2;
}

void fq_tcp_tx_abandon(struct fq_tcp_conn *conn, int status)
{
    struct fq_tcp_tx *tx = &conn->tx;
    for (; tx->head != tx->tail; tx->head++) {
        struct fq_tcp_out *item = item_at(tx, tx->head);
        if (item->completes) {
            fq_emit_completed(&conn->base, item->cookie, status);
        }
        fq_region_unref(item->region);
    }
    for (; conn->reads_head != conn->reads_tail; conn->reads_head++) {
        struct fq_tcp_read *read = &conn->reads[conn->reads_head % FQ_TCP_READS_MAX];
        if (read->completes) {
            fq_emit_completed(&conn->base, read->cookie, status);
        }
        fq_region_unref(read->region);
    }
    free(tx->bytes);
    free(tx->items);
    *tx = (struct fq_tcp_tx){0};
}
