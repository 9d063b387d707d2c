/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault-injecting decorator: its own fabric, connections, windows and remotes, each holding the
 * one of the wrapped fabric. Operations that are held back wait in a list per connection and later
 * ones wait behind them; events that are held back wait in one list per fabric; so no order that a
 * fabric promises is changed. While anything waits, arming says that there is something to do.
 *
 * Every completion that is owed is remembered, so that a dropped connection completes what was in
 * flight as a real one does. For tests and simulations; it allocates freely. The fabric's thread.
 */
#include "fabric/faulty.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/random.h"
#include "fabric/backend.h"
#include "fabric/listener.h"
#include "fabric/sock.h"

#define HELD_OPS_MAX     256
#define PARTS_MAX        4
#define INNER_EVENTS_MAX 64
#define WORD_BYTES       UINT64_C(8)
#define WHOLE_WORDS_BYTES 64u /* of a write at most this long, aligned words are never seen in parts */

struct faulty_fabric {
    struct fq_fabric base;
    struct fq_fabric *inner;
    struct fq_prng prng;
    struct fq_fault_plan plan;
    struct fq_fault_counts counts;
    uint64_t polls;
    struct fq_list held_events;
    struct fq_list holding; /* connections with held operations */
};

struct faulty_conn {
    struct fq_conn base;
    struct fq_conn *inner; /* NULL once it is dropped */
    struct fq_list link;   /* fabric->holding */
    struct fq_list ops;
    size_t ops_count;
    struct fq_list owed; /* completions */
};

struct held_op {
    struct fq_list link;
    struct fq_op op; /* remote: the inner one */
    uint64_t due;      /* in polls */
    bool holds_region; /* a reference */
    struct fq_remote *closes; /* the inner one, which was closed meanwhile: goes with the last of its writes */
    uint8_t bytes[];   /* SEND and small writes: copied, as a fabric does */
};

struct held_event {
    struct fq_list link;
    struct fq_event event; /* conn: ours */
    uint64_t due;
    char text[FQ_REASON_TEXT_BYTES];
    uint8_t bytes[];
};

struct owed {
    struct fq_list link;
    uint64_t cookie;
};

static struct faulty_conn *conn_of(struct fq_conn *base)
{
    return (struct faulty_conn *)(void *)base;
}

static struct faulty_fabric *fabric_of(struct fq_fabric *base)
{
    return (struct faulty_fabric *)(void *)base;
}

static bool roll(struct faulty_fabric *fabric, uint32_t per_million)
{
    return per_million > 0 && fq_prng_below(&fabric->prng, FQ_FAULT_CERTAIN) < per_million;
}

static uint64_t some_polls_later(struct faulty_fabric *fabric)
{
    uint32_t max = fabric->plan.delay_polls_max ? fabric->plan.delay_polls_max : 8;
    return fabric->polls + 1 + fq_prng_below(&fabric->prng, max);
}

/* ---- completions that are owed -------------------------------------------------------------- */

static bool owe(struct faulty_conn *conn, const struct fq_op *op)
{
    if (!op->signaled && op->type != FQ_OP_READ) {
        return true;
    }
    struct owed *owed = malloc(sizeof *owed);
    if (owed) {
        owed->cookie = op->cookie;
        fq_list_init(&owed->link);
        fq_list_append(&conn->owed, &owed->link);
    }
    return owed != NULL;
}

static void free_owed(struct owed *owed)
{
    fq_list_remove(&owed->link);
    free(owed);
}

static void pay(struct faulty_conn *conn, uint64_t cookie, int status)
{
    for (struct fq_list *at = conn->owed.next; at != &conn->owed; at = at->next) {
        struct owed *owed = fq_list_item(at, struct owed, link);
        if (owed->cookie == cookie) {
            free_owed(owed);
            fq_emit_completed(&conn->base, cookie, status);
            return;
        }
    }
}

static void free_held_op(struct faulty_conn *conn, struct held_op *held)
{
    fq_list_remove(&held->link);
    if (held->holds_region) {
        fq_region_unref(held->op.region);
    }
    if (conn->inner) {
        fq_remote_close(held->closes); /* else it went with its connection */
    }
    conn->ops_count--;
    free(held);
}

/* Forgets held operations and completes everything owed with `status`. */
static void abandon(struct faulty_conn *conn, int status)
{
    while (!fq_list_is_empty(&conn->ops)) {
        free_held_op(conn, fq_list_item(conn->ops.next, struct held_op, link));
    }
    fq_list_remove(&conn->link);
    while (!fq_list_is_empty(&conn->owed)) {
        struct owed *owed = fq_list_item(conn->owed.next, struct owed, link);
        fq_emit_completed(&conn->base, owed->cookie, status);
        free_owed(owed);
    }
}

/* The inner connection goes, with its remotes; what they mapped stays until ours are closed. */
static void keep_mappings(struct faulty_conn *conn)
{
    for (struct fq_list *at = conn->base.remotes.next; at != &conn->base.remotes; at = at->next) {
        struct fq_remote *remote = fq_list_item(at, struct fq_remote, link);
        struct fq_remote *inner = remote->inner;
        if (inner) {
            remote->map_base = inner->map_base;
            remote->map_bytes = inner->map_bytes;
            inner->map_base = NULL;
            remote->inner = NULL;
        }
    }
}

static int break_conn(struct faulty_conn *conn, int code, const char *text)
{
    if (conn->base.state == FQ_CONN_BROKEN) {
        return FLASHQ_ERR_CLOSED;
    }
    keep_mappings(conn);
    fq_conn_close(conn->inner); /* with its windows and remotes */
    conn->inner = NULL;
    abandon(conn, code);
    (void)fq_conn_fail(&conn->base, code, "%s", text);
    return FLASHQ_ERR_CLOSED;
}

/* ---- events --------------------------------------------------------------------------------- */

/* false: the arena has no room for the message in this poll. */
static bool deliver(const struct fq_event *event, const char *text)
{
    struct faulty_conn *conn = conn_of(event->conn);
    uint8_t *room;
    if (conn->base.state == FQ_CONN_BROKEN || conn->base.state == FQ_CONN_CLOSED) {
        return true;
    }
    switch (event->type) {
    case FQ_EVENT_CONNECTED:
        if (conn->base.is_initiator) {
            memcpy(conn->base.reply, event->data, event->length);
            conn->base.reply_bytes = event->length;
            conn->base.peer_uid = conn->inner->peer_uid;
            memcpy(conn->base.peer_name, conn->inner->peer_name, sizeof conn->base.peer_name);
            fq_emit_connected(&conn->base);
        }
        break;
    case FQ_EVENT_DISCONNECTED:
        abandon(conn, event->status);
        (void)fq_conn_fail(&conn->base, event->status, "%s", text);
        break;
    case FQ_EVENT_MESSAGE:
        room = fq_message_room(conn->base.fabric, event->length);
        if (!room) {
            return false;
        }
        memcpy(room, event->data, event->length);
        fq_emit_message(&conn->base, room, event->length);
        break;
    case FQ_EVENT_NOTIFY: fq_emit_notify(&conn->base, event->imm); break;
    case FQ_EVENT_COMPLETED: pay(conn, event->cookie, event->status); break;
    case FQ_EVENT_WRITABLE:
        if (fq_list_is_empty(&conn->ops)) {
            fq_emit_writable(&conn->base);
        }
        break;
    }
    return true;
}

static void hold_event(struct faulty_fabric *fabric, const struct fq_event *event, uint64_t due)
{
    struct held_event *held = calloc(1, sizeof *held + event->length);
    if (!held) {
        (void)break_conn(conn_of(event->conn), FLASHQ_ERR_NO_MEMORY, "no memory to hold an event");
        return;
    }
    held->event = *event;
    held->due = due;
    if (event->length > 0) {
        memcpy(held->bytes, event->data, event->length);
    }
    held->event.data = held->bytes;
    if (event->text) {
        memcpy(held->text, event->text, strnlen(event->text, sizeof held->text - 1));
    }
    fq_list_init(&held->link);
    fq_list_append(&fabric->held_events, &held->link);
}

static void free_held_event(struct held_event *held)
{
    fq_list_remove(&held->link);
    free(held);
}

static void release_events(struct faulty_fabric *fabric)
{
    while (!fq_list_is_empty(&fabric->held_events) && fq_has_budget(&fabric->base)) {
        struct held_event *held = fq_list_item(fabric->held_events.next, struct held_event, link);
        if (held->due > fabric->polls || !deliver(&held->event, held->text)) {
            return;
        }
        free_held_event(held);
    }
}

static void take_event(struct faulty_fabric *fabric, const struct fq_event *event)
{
    struct fq_conn *conn = fq_conn_context(event->conn);
    if (!conn) {
        return; /* dropped while this poll's events were handled */
    }
    struct fq_event ours = *event;
    ours.conn = conn;
    bool is_delayed = roll(fabric, fabric->plan.delay_event);
    fabric->counts.delayed += is_delayed;
    if (is_delayed) {
        hold_event(fabric, &ours, some_polls_later(fabric));
    } else if (!fq_list_is_empty(&fabric->held_events) || !deliver(&ours, event->text)) {
        hold_event(fabric, &ours, fabric->polls);
    }
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Queues [done, done + length) of a write, or a whole operation. */
static bool hold_op(struct faulty_conn *conn, const struct fq_op *op, uint64_t due)
{
    bool is_in_place = op->remote && op->remote->map && op->local == op->remote->map + op->remote_offset;
    bool is_copied = op->type == FQ_OP_SEND ||
                     (op->type != FQ_OP_READ && !op->region && op->length > 0 && !is_in_place);
    struct fq_region *region = fabric_of(conn->base.fabric)->plan.borrows ? NULL : op->region;
    struct held_op *held = malloc(sizeof *held + (is_copied ? op->length : 0));
    if (!held) {
        return false;
    }
    held->op = *op;
    held->due = due;
    held->closes = NULL;
    if (is_copied && op->length > 0) {
        memcpy(held->bytes, op->local, op->length);
        held->op.local = held->bytes;
    }
    held->holds_region = region && fq_region_ref(region);
    fq_list_init(&held->link);
    fq_list_append(&conn->ops, &held->link);
    fq_list_append(&fabric_of(conn->base.fabric)->holding, &conn->link);
    conn->ops_count++;
    return true;
}

/* How much of what is left goes with the next piece. In a small write aligned words stay whole, as fabric.h
 * promises: it is cut between them. */
static size_t cut(struct faulty_fabric *fabric, const struct fq_op *op, size_t done)
{
    size_t left = op->length - done;
    size_t part = left == 1 ? 1 : 1 + (size_t)fq_prng_below(&fabric->prng, left - 1);
    if (op->length <= WHOLE_WORDS_BYTES) {
        uint64_t at = op->remote_offset + done;
        part = (size_t)(((at + part + WORD_BYTES - 1) & ~(WORD_BYTES - 1)) - at);
    }
    return part < left ? part : left;
}

static bool tear(struct faulty_conn *conn, const struct fq_op *op)
{
    struct faulty_fabric *fabric = fabric_of(conn->base.fabric);
    size_t parts = 2 + (size_t)fq_prng_below(&fabric->prng, PARTS_MAX - 1);
    size_t done = 0;
    for (size_t i = 0; i < parts && done < op->length; i++) {
        size_t part = i + 1 == parts ? op->length - done : cut(fabric, op, done);
        bool is_last = done + part == op->length;
        struct fq_op piece = *op;
        piece.local = (uint8_t *)op->local + done;
        piece.remote_offset = op->remote_offset + done;
        piece.length = part;
        piece.type = is_last ? op->type : FQ_OP_WRITE;
        piece.signaled = is_last && op->signaled;
        if (!hold_op(conn, &piece, some_polls_later(fabric))) {
            return false;
        }
        done += part;
    }
    return true;
}

/* 1: taken; 0: no room; negative: broken. `op` is in terms of the inner fabric. */
static int post_one(struct faulty_conn *conn, const struct fq_op *op)
{
    struct faulty_fabric *fabric = fabric_of(conn->base.fabric);
    bool is_write = (op->type == FQ_OP_WRITE || op->type == FQ_OP_WRITE_NOTIFY) && op->remote;
    if (conn->ops_count + PARTS_MAX > HELD_OPS_MAX) {
        return 0;
    }
    if (roll(fabric, fabric->plan.drop)) {
        fabric->counts.dropped++;
        return break_conn(conn, FLASHQ_ERR_UNREACHABLE, "dropped by the fault plan");
    }
    if (op->remote && roll(fabric, fabric->plan.key_refused)) {
        fabric->counts.refused++;
        return break_conn(conn, FLASHQ_ERR_NOT_PERMITTED, "key refused by the fault plan");
    }
    bool is_torn = is_write && op->length > 1 && roll(fabric, fabric->plan.torn_write);
    bool is_late = !is_torn && roll(fabric, fabric->plan.late_op);
    fabric->counts.torn += is_torn;
    fabric->counts.late += is_late;
    if (is_torn || is_late || conn->ops_count > 0) {
        bool is_held =
            is_torn ? tear(conn, op) : hold_op(conn, op, is_late ? some_polls_later(fabric) : 0);
        return is_held && owe(conn, op)
                   ? 1
                   : break_conn(conn, FLASHQ_ERR_NO_MEMORY, "no memory to hold an operation");
    }
    int r = fq_conn_post(conn->inner, op, 1);
    if (r == FLASHQ_ERR_AGAIN) {
        return 0;
    }
    if (r == 1 && !owe(conn, op)) {
        return break_conn(conn, FLASHQ_ERR_NO_MEMORY, "no memory to remember an operation");
    }
    return r;
}

static int faulty_post(struct fq_conn *base, const struct fq_op *ops, size_t ops_count)
{
    struct faulty_conn *conn = conn_of(base);
    size_t taken = 0;
    while (taken < ops_count) {
        struct fq_op op = ops[taken];
        op.remote = op.remote ? op.remote->inner : NULL;
        int r = post_one(conn, &op);
        if (r < 0) {
            return taken > 0 ? (int)taken : r;
        }
        if (r == 0) {
            break;
        }
        taken++;
    }
    return (int)taken;
}

/* Posts what is due; false: the rest has to wait. */
static bool release_ops(struct faulty_conn *conn, uint64_t polls)
{
    while (!fq_list_is_empty(&conn->ops)) {
        struct held_op *held = fq_list_item(conn->ops.next, struct held_op, link);
        if (held->due > polls) {
            return false;
        }
        int r = fq_conn_post(conn->inner, &held->op, 1);
        if (r == FLASHQ_ERR_AGAIN) {
            return false;
        }
        if (r < 0) {
            if (r !=
                FLASHQ_ERR_CLOSED) { /* revoked meanwhile; CLOSED is told by the inner fabric */
                (void)break_conn(conn, r, "refused when its turn came");
            }
            return false;
        }
        free_held_op(conn, held);
    }
    return true;
}

static void release_all_ops(struct faulty_fabric *fabric)
{
    struct fq_list turn;
    fq_list_init(&turn);
    while (!fq_list_is_empty(&fabric->holding)) {
        fq_list_append(&turn, fabric->holding.next);
    }
    while (!fq_list_is_empty(&turn)) {
        struct faulty_conn *conn = fq_list_item(turn.next, struct faulty_conn, link);
        fq_list_remove(&conn->link);
        if (release_ops(conn, fabric->polls)) {
            fq_emit_writable(&conn->base);
        } else if (!fq_list_is_empty(&conn->ops)) {
            fq_list_append(&fabric->holding, &conn->link);
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static int faulty_init(struct fq_fabric *base, struct fq_err *err)
{
    struct faulty_fabric *fabric = fabric_of(base);
    fq_list_init(&fabric->held_events);
    fq_list_init(&fabric->holding);
    int r = fq_fabric_create(base->ops->transport, &base->params, &fabric->inner, err);
    if (r < 0) {
        return r;
    }
    r = fq_epoll_add(base->epoll_fd, fq_fabric_fd(fabric->inner), EPOLLIN, NULL);
    if (r < 0) {
        fq_fabric_destroy(fabric->inner);
        return fq_err_errno(err, FLASHQ_ERR_FAILED, -r, "epoll");
    }
    return 0;
}

static void faulty_fini(struct fq_fabric *base)
{
    struct faulty_fabric *fabric = fabric_of(base);
    while (!fq_list_is_empty(&fabric->held_events)) {
        free_held_event(fq_list_item(fabric->held_events.next, struct held_event, link));
    }
    fq_fabric_destroy(fabric->inner);
}

static int faulty_poll(struct fq_fabric *base)
{
    struct faulty_fabric *fabric = fabric_of(base);
    fabric->polls++;
    release_events(fabric);
    struct fq_event events[INNER_EVENTS_MAX];
    size_t max = base->budget < INNER_EVENTS_MAX ? base->budget : INNER_EVENTS_MAX;
    int count = max > 0 ? fq_fabric_poll(fabric->inner, events, max) : 0;
    base->received = fq_fabric_received(fabric->inner);
    for (int i = 0; i < count; i++) {
        take_event(fabric, &events[i]);
    }
    release_all_ops(fabric);
    return count < 0 ? count : 0;
}

static int faulty_arm(struct fq_fabric *base)
{
    struct faulty_fabric *fabric = fabric_of(base);
    if (!fq_list_is_empty(&fabric->held_events) || !fq_list_is_empty(&fabric->holding)) {
        return 1;
    }
    return fq_fabric_arm(fabric->inner);
}

static void faulty_disarm(struct fq_fabric *base)
{
    fq_fabric_disarm(fabric_of(base)->inner);
}

static int64_t faulty_next_deadline(const struct fq_fabric *base)
{
    const struct faulty_fabric *fabric = (const struct faulty_fabric *)(const void *)base;
    bool is_waiting =
        !fq_list_is_empty(&fabric->held_events) || !fq_list_is_empty(&fabric->holding);
    return is_waiting ? 0 : fq_fabric_next_deadline_us(fabric->inner);
}

static void init_conn(struct faulty_conn *conn)
{
    fq_list_init(&conn->link);
    fq_list_init(&conn->ops);
    fq_list_init(&conn->owed);
}

static int faulty_conn_open(struct fq_conn *base, const struct fq_connect_params *params,
                            struct fq_err *err)
{
    struct faulty_conn *conn = conn_of(base);
    init_conn(conn);
    int r = fq_conn_open(fabric_of(base->fabric)->inner, params, &conn->inner, err);
    if (r == 0) {
        fq_conn_set_context(conn->inner, conn);
    }
    return r;
}

static int faulty_conn_adopt(struct fq_conn *base, struct fq_incoming *incoming, const void *reply,
                             size_t reply_bytes, struct fq_err *err)
{
    struct faulty_conn *conn = conn_of(base);
    init_conn(conn);
    base->peer_uid = incoming->uid;
    memcpy(base->peer_name, incoming->peer_name, sizeof base->peer_name);
    return fq_fabric_adopt(fabric_of(base->fabric)->inner, incoming, reply, reply_bytes, conn,
                           &conn->inner, err);
}

static void faulty_conn_fini(struct fq_conn *base, bool is_child)
{
    (void)is_child; /* the inner fabric knows by itself */
    struct faulty_conn *conn = conn_of(base);
    struct faulty_fabric *fabric = fabric_of(base->fabric);
    keep_mappings(conn);
    fq_conn_close(conn->inner);
    conn->inner = NULL;
    abandon(conn, FLASHQ_ERR_CLOSED);
    struct fq_list *next;
    for (struct fq_list *at = fabric->held_events.next; at != &fabric->held_events; at = next) {
        struct held_event *held = fq_list_item(at, struct held_event, link);
        next = at->next;
        if (held->event.conn == base) {
            free_held_event(held);
        }
    }
}

static int faulty_grant(struct fq_window *window, uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err)
{
    struct fq_window *inner = NULL;
    int r = fq_window_grant(conn_of(window->conn)->inner, window->region, window->offset,
                            window->bytes, (enum fq_rights)window->rights, &inner, token, err);
    window->inner = inner;
    return r;
}

static void faulty_window_fini(struct fq_window *window)
{
    if (conn_of(window->conn)->inner) {
        fq_window_revoke(window->inner);
    }
    window->inner = NULL;
}

static int faulty_remote_open(struct fq_remote *remote, const uint8_t token[FQ_TOKEN_BYTES],
                              struct fq_err *err)
{
    struct fq_remote *inner = NULL;
    int r = fq_remote_open(conn_of(remote->conn)->inner, token, (enum fq_rights)remote->rights,
                           &inner, err);
    if (r < 0) {
        return r;
    }
    remote->inner = inner;
    remote->bytes = inner->bytes;
    remote->span = inner->span;
    remote->map = inner->map;
    return 0;
}

/* Writes that wait are still carried out, as they are on their way in any other fabric; but not into a mapping that
 * is somebody else's from now on. Reads that wait are CLOSED. */
static void faulty_remote_fini(struct fq_remote *remote)
{
    struct faulty_conn *conn = conn_of(remote->conn);
    struct fq_remote *inner = remote->inner;
    bool is_taken = inner && inner->map && !inner->map_base;
    struct held_op *last = NULL;
    struct fq_list *next;
    for (struct fq_list *at = conn->ops.next; at != &conn->ops; at = next) {
        struct held_op *held = fq_list_item(at, struct held_op, link);
        next = at->next;
        if (!inner || held->op.remote != inner) {
            continue;
        }
        if (held->op.type != FQ_OP_READ && !is_taken) {
            last = held;
            continue;
        }
        if (held->op.signaled || held->op.type == FQ_OP_READ) {
            pay(conn, held->op.cookie, FLASHQ_ERR_CLOSED);
        }
        free_held_op(conn, held);
    }
    if (last) {
        last->closes = inner;
    } else {
        fq_remote_close(inner);
    }
    remote->inner = NULL;
    struct fq_mapping kept = {.base = remote->map_base, .bytes = remote->map_bytes};
    fq_mapping_unmap(&kept);
}

#define FAULTY_OPS(of)                                                                             \
    {                                                                                              \
        .transport = (of), .fabric_bytes = sizeof(struct faulty_fabric),                           \
        .conn_bytes = sizeof(struct faulty_conn), .init = faulty_init, .fini = faulty_fini,        \
        .poll = faulty_poll, .arm = faulty_arm, .disarm = faulty_disarm,                           \
        .next_deadline = faulty_next_deadline, .conn_open = faulty_conn_open,                      \
        .conn_adopt = faulty_conn_adopt, .conn_fini = faulty_conn_fini, .grant = faulty_grant,     \
        .revoke = faulty_window_fini, .window_fini = faulty_window_fini,                           \
        .remote_open = faulty_remote_open, .remote_fini = faulty_remote_fini, .post = faulty_post, \
    }

static const struct fq_fabric_ops faulty_ops[] = {
    FAULTY_OPS(FQ_TRANSPORT_SHM), FAULTY_OPS(FQ_TRANSPORT_TCP), FAULTY_OPS(FQ_TRANSPORT_VERBS)};

int fq_fabric_faulty_create(enum fq_transport inner, const struct fq_fabric_params *params,
                            const struct fq_fault_plan *plan, struct fq_fabric **ret,
                            struct fq_err *err)
{
    for (size_t i = 0; i < sizeof faulty_ops / sizeof faulty_ops[0]; i++) {
        if (faulty_ops[i].transport == inner && plan && ret) {
            int r = fq_fabric_create_with(&faulty_ops[i], params, ret, err);
            if (r == 0) {
                fabric_of(*ret)->plan = *plan;
                fq_prng_seed(&fabric_of(*ret)->prng, plan->seed);
            }
            return r;
        }
    }
    return fq_err_set(err, FLASHQ_ERR_INVALID, "no fabric of transport %s to wrap",
                      fq_transport_name(inner));
}

void fq_fabric_faulty_set_plan(struct fq_fabric *fabric, const struct fq_fault_plan *plan)
{
    fabric_of(fabric)->plan = *plan;
}

void fq_fabric_faulty_counts(const struct fq_fabric *fabric, struct fq_fault_counts *ret)
{
    *ret = ((const struct faulty_fabric *)(const void *)fabric)->counts;
}
