/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event queue of a fabric. Back ends queue (fq_emit_*), core.c hands out. Memory is reserved
 * where it can fail (a connection is made, operations are posted), so queueing an event cannot. The
 * bytes of messages lie in an arena that the next poll starts anew. The fabric's thread.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/backend.h"

#define EVENTS_PER_CONNECTION 3 /* CONNECTED, WRITABLE, DISCONNECTED: at most one of each waits */

size_t fq_events_count(const struct fq_event_queue *queue)
{
    return (size_t)(queue->tail - queue->head);
}

static bool queue_reserve(struct fq_event_queue *queue, size_t capacity)
{
    if (capacity <= queue->capacity) {
        return true;
    }
    size_t rounded = queue->capacity ? queue->capacity : 64;
    while (rounded < capacity) {
        rounded *= 2;
    }
    struct fq_event *items = malloc(rounded * sizeof *items);
    if (!items) {
        return false;
    }
    size_t count = fq_events_count(queue);
    for (size_t i = 0; i < count; i++) {
        items[i] = queue->items[(queue->head + i) & (queue->capacity - 1)];
    }
    free(queue->items);
    *queue = (struct fq_event_queue){.items = items, .capacity = rounded, .tail = count};
    return true;
}

bool fq_events_reserve(struct fq_fabric *fabric, size_t conns, size_t outstanding)
{
    return queue_reserve(&fabric->queue,
                         EVENTS_PER_CONNECTION * conns + outstanding + FQ_POLL_EVENTS_MAX);
}

static struct fq_event *queue_push(struct fq_conn *conn, enum fq_event_type type)
{
    struct fq_event_queue *queue = &conn->fabric->queue;
    if (fq_events_count(queue) == queue->capacity) {
        abort(); /* fq_events_reserve's sum is wrong: a bug of ours, never a peer's doing */
    }
    struct fq_event *event = &queue->items[queue->tail++ & (queue->capacity - 1)];
    *event = (struct fq_event){.type = type, .conn = conn};
    return event;
}

void fq_events_forget(struct fq_fabric *fabric, const struct fq_conn *conn)
{
    struct fq_event_queue *queue = &fabric->queue;
    uint64_t kept = queue->head;
    for (uint64_t i = queue->head; i != queue->tail; i++) {
        const struct fq_event *event = &queue->items[i & (queue->capacity - 1)];
        if (event->conn != conn) {
            queue->items[kept++ & (queue->capacity - 1)] = *event;
        } else if (event->type == FQ_EVENT_COMPLETED) {
            fabric->outstanding--;
        }
    }
    queue->tail = kept;
}

size_t fq_events_take(struct fq_fabric *fabric, struct fq_event *events, size_t events_max)
{
    struct fq_event_queue *queue = &fabric->queue;
    size_t count = 0;
    while (count < events_max && queue->head != queue->tail) {
        const struct fq_event *event = &queue->items[queue->head++ & (queue->capacity - 1)];
        if (event->type == FQ_EVENT_COMPLETED) {
            fabric->outstanding--;
        }
        events[count++] = *event;
    }
    return count;
}

void fq_emit_connected(struct fq_conn *conn)
{
    conn->state = FQ_CONN_OPEN;
    struct fq_event *event = queue_push(conn, FQ_EVENT_CONNECTED);
    if (conn->is_initiator) {
        event->data = conn->reply;
        event->length = conn->reply_bytes;
    }
}

static void spend_budget(struct fq_fabric *fabric)
{
    if (fabric->budget > 0) {
        fabric->budget--;
    }
}

void fq_emit_notify(struct fq_conn *conn, uint32_t imm)
{
    spend_budget(conn->fabric);
    conn->fabric->stats.notifies_in++;
    queue_push(conn, FQ_EVENT_NOTIFY)->imm = imm;
}

void fq_emit_completed(struct fq_conn *conn, uint64_t cookie, int status)
{
    struct fq_event *event = queue_push(conn, FQ_EVENT_COMPLETED);
    event->cookie = cookie;
    event->status = status;
}

void fq_emit_writable(struct fq_conn *conn)
{
    if (conn->wants_writable && conn->state == FQ_CONN_OPEN) {
        conn->wants_writable = false;
        queue_push(conn, FQ_EVENT_WRITABLE);
    }
}

uint8_t *fq_message_room(struct fq_fabric *fabric, size_t length)
{
    return fabric->arena_used + length <= FQ_ARENA_BYTES ? fabric->arena + fabric->arena_used
                                                         : NULL;
}

void fq_emit_message(struct fq_conn *conn, const uint8_t *data, size_t length)
{
    struct fq_fabric *fabric = conn->fabric;
    spend_budget(fabric);
    fabric->arena_used += (length + 15) & ~(size_t)15;
    fabric->stats.messages_in++;
    fabric->stats.message_bytes_in += length;
    struct fq_event *event = queue_push(conn, FQ_EVENT_MESSAGE);
    event->data = data;
    event->length = length;
}

int fq_conn_fail(struct fq_conn *conn, int code, const char *format, ...)
{
    if (conn->state == FQ_CONN_BROKEN || conn->state == FQ_CONN_CLOSED) {
        return code;
    }
    conn->state = FQ_CONN_BROKEN;
    conn->wants_writable = false;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(conn->reason_text, sizeof conn->reason_text, format, args);
    va_end(args);
    conn->fabric->stats.disconnected++;
    struct fq_event *event = queue_push(conn, FQ_EVENT_DISCONNECTED);
    event->status = code;
    event->text = conn->reason_text;
    return code;
}
