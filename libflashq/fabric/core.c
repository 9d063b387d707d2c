/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all back ends share: fabrics, the life of connections, and the checks of operations at the
 * initiator. Happy path: post -> checks -> the back end's post; poll -> the back end queues events
 * -> they are handed out. A connection that breaks stays, BROKEN, until it is closed; a closed one
 * is freed at the next poll, because the caller may still hold events of it. One thread per fabric.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/backend.h"

#define OUTSTANDING_MAX (1u << 20)

/* ---- fabrics -------------------------------------------------------------------------------- */

int fq_fabric_create(enum fq_transport transport, const struct fq_fabric_params *params,
                     struct fq_fabric **ret, struct fq_err *err)
{
    const struct fq_fabric_ops *ops = NULL;
    switch (transport) {
    case FQ_TRANSPORT_SHM: ops = &fq_shm_ops; break;
    case FQ_TRANSPORT_TCP: ops = &fq_tcp_ops; break;
    case FQ_TRANSPORT_VERBS: ops = fq_verbs_ops(); break;
    case FQ_TRANSPORT_AUTO: break;
    }
    if (!ops) {
        return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "transport %s is not in this build",
                          fq_transport_name(transport));
    }
    return fq_fabric_create_with(ops, params, ret, err);
}

int fq_fabric_create_with(const struct fq_fabric_ops *ops, const struct fq_fabric_params *params,
                          struct fq_fabric **ret, struct fq_err *err)
{
    if (!ret) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "NULL argument");
    }
    struct fq_fabric *fabric = calloc(1, ops->fabric_bytes);
    if (!fabric) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "fabric");
    }
    fabric->ops = ops;
    fabric->pid = getpid();
    if (params) {
        fabric->params = *params;
    }
    struct fq_fabric_params *p = &fabric->params;
    p->connections_max = p->connections_max ? p->connections_max : FQ_LIMIT_CONNECTIONS;
    p->notify_entries = p->notify_entries ? p->notify_entries : FQ_LIMIT_NOTIFY_RING_ENTRIES;
    p->dead_after_us = p->dead_after_us > 0 ? p->dead_after_us : 5000000;
    p->grants_max = p->grants_max ? p->grants_max : 1024;
    fq_list_init(&fabric->conns);
    fq_list_init(&fabric->closed);
    int r = FLASHQ_ERR_NO_MEMORY;
    fabric->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (fabric->epoll_fd < 0) {
        r = fq_err_errno(err, fq_err_from_errno(errno), errno, "epoll descriptor");
        goto free_fabric;
    }
    fabric->arena = malloc(FQ_ARENA_BYTES);
    if (!fabric->arena || !fq_events_reserve(fabric, 0, 0)) {
        (void)fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "event queue");
        goto free_memory;
    }
    r = ops->init(fabric, err);
    if (r < 0) {
        goto free_memory;
    }
    *ret = fabric;
    return 0;

free_memory:
    free(fabric->queue.items);
    free(fabric->arena);
    close(fabric->epoll_fd);
free_fabric:
    free(fabric);
    return r;
}

static void free_closed(struct fq_fabric *fabric)
{
    while (!fq_list_is_empty(&fabric->closed)) {
        struct fq_conn *conn = fq_list_item(fabric->closed.next, struct fq_conn, link);
        fq_list_remove(&conn->link);
        free(conn);
    }
}

void fq_fabric_destroy(struct fq_fabric *fabric)
{
    if (!fabric) {
        return;
    }
    while (!fq_list_is_empty(&fabric->conns)) {
        fq_conn_close(fq_list_item(fabric->conns.next, struct fq_conn, link));
    }
    free_closed(fabric);
    fabric->ops->fini(fabric);
    close(fabric->epoll_fd);
    free(fabric->queue.items);
    free(fabric->arena);
    free(fabric);
}

enum fq_transport fq_fabric_transport(const struct fq_fabric *fabric)
{
    return fabric->ops->transport;
}

void fq_fabric_get_stats(const struct fq_fabric *fabric, struct fq_fabric_stats *ret)
{
    *ret = fabric->stats;
}

int fq_fabric_poll(struct fq_fabric *fabric, struct fq_event *events, size_t events_max)
{
    if (!fabric || (!events && events_max > 0)) {
        return FLASHQ_ERR_INVALID;
    }
    free_closed(fabric);
    fabric->arena_used = 0;
    events_max = events_max < FQ_POLL_EVENTS_MAX ? events_max : FQ_POLL_EVENTS_MAX;
    size_t waiting = fq_events_count(&fabric->queue);
    if (waiting <
        events_max) { /* what arrives now is handed out now: the arena's bytes end with it */
        fabric->budget = events_max - waiting;
        int r = fabric->ops->poll(fabric);
        fabric->budget = 0;
        if (r < 0) {
            return r;
        }
    }
    return (int)fq_events_take(fabric, events, events_max);
}

uint64_t fq_fabric_received(const struct fq_fabric *fabric)
{
    return fabric->received;
}

bool fq_fabric_has_news(const struct fq_fabric *fabric)
{
    return fabric->ops->has_news && fabric->ops->has_news(fabric);
}

int fq_fabric_fd(const struct fq_fabric *fabric)
{
    return fabric->epoll_fd;
}

int fq_fabric_arm(struct fq_fabric *fabric)
{
    return fq_events_count(&fabric->queue) > 0 ? 1 : fabric->ops->arm(fabric);
}

void fq_fabric_disarm(struct fq_fabric *fabric)
{
    fabric->ops->disarm(fabric);
}

int64_t fq_fabric_next_deadline_us(const struct fq_fabric *fabric)
{
    return fq_events_count(&fabric->queue) > 0 ? 0 : fabric->ops->next_deadline(fabric);
}

/* ---- connections ---------------------------------------------------------------------------- */

static struct fq_conn *new_conn(struct fq_fabric *fabric, struct fq_err *err)
{
    if (fabric->conns_count >= fabric->params.connections_max) {
        (void)fq_err_set(err, FLASHQ_ERR_LIMIT, "connections: at most %zu",
                         fabric->params.connections_max);
        return NULL;
    }
    struct fq_conn *conn = calloc(1, fabric->ops->conn_bytes);
    if (!conn || !fq_events_reserve(fabric, fabric->conns_count + 1, fabric->outstanding)) {
        free(conn);
        (void)fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "connection");
        return NULL;
    }
    conn->fabric = fabric;
    conn->peer_uid = UINT32_MAX;
    conn->deadline_us = INT64_MAX;
    fq_list_init(&conn->link);
    fq_list_init(&conn->remotes);
    fq_list_append(&fabric->conns, &conn->link);
    fabric->conns_count++;
    return conn;
}

int fq_conn_open(struct fq_fabric *fabric, const struct fq_connect_params *params,
                 struct fq_conn **ret, struct fq_err *err)
{
    struct fq_err unused = {0};
    err = err ? err : &unused;
    if (!fabric || !params || !params->endpoint || !ret ||
        params->hello_bytes > FQ_LIMIT_HELLO_BYTES || (!params->hello && params->hello_bytes > 0)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "wrong argument");
    }
    enum fq_transport wanted = params->endpoint->transport;
    if (wanted != FQ_TRANSPORT_AUTO && wanted != fabric->ops->transport) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "a %s endpoint on a %s fabric",
                          fq_transport_name(wanted), fq_transport_name(fabric->ops->transport));
    }
    struct fq_conn *conn = new_conn(fabric, err);
    if (!conn) {
        return err->code;
    }
    conn->is_initiator = true;
    conn->deadline_us = params->deadline_us;
    int r = fabric->ops->conn_open(conn, params, err);
    if (r < 0) {
        fq_conn_close(conn);
        return r;
    }
    fabric->stats.connections++;
    *ret = conn;
    return 0;
}

int fq_fabric_adopt(struct fq_fabric *fabric, struct fq_incoming *incoming, const void *reply,
                    size_t reply_bytes, void *context, struct fq_conn **ret, struct fq_err *err)
{
    struct fq_err unused = {0};
    err = err ? err : &unused;
    if (!incoming) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "NULL argument");
    }
    if (!fabric || !ret || reply_bytes > FQ_LIMIT_HELLO_BYTES || (!reply && reply_bytes > 0) ||
        fq_incoming_transport(incoming) != fabric->ops->transport) {
        fq_incoming_reject(incoming, FLASHQ_ERR_FAILED, "internal error of the broker");
        return fq_err_set(err, FLASHQ_ERR_INVALID, "wrong argument");
    }
    struct fq_conn *conn = new_conn(fabric, err);
    if (!conn) {
        fq_incoming_reject(incoming, err->code, err->text);
        return err->code;
    }
    conn->context = context;
    int r = fabric->ops->conn_adopt(conn, incoming, reply, reply_bytes, err);
    if (r < 0) {
        fq_conn_close(conn);
        return r;
    }
    fabric->stats.connections++;
    fq_emit_connected(conn);
    *ret = conn;
    return 0;
}

void fq_conn_close(struct fq_conn *conn)
{
    if (!conn || conn->state == FQ_CONN_CLOSED) {
        return;
    }
    struct fq_fabric *fabric = conn->fabric;
    bool is_child = fabric->pid != getpid();
    fabric->ops->conn_fini(conn, is_child);
    conn->state = FQ_CONN_CLOSED;
    conn->context = NULL;
    fq_conn_free_windows(conn);
    fq_events_forget(fabric, conn);
    fabric->conns_count--;
    fq_list_append(&fabric->closed, &conn->link);
}

void fq_conn_set_context(struct fq_conn *conn, void *context)
{
    conn->context = context;
}

void *fq_conn_context(const struct fq_conn *conn)
{
    return conn->context;
}

struct fq_fabric *fq_conn_fabric(const struct fq_conn *conn)
{
    return conn->fabric;
}

const char *fq_conn_peer_name(const struct fq_conn *conn)
{
    return conn->peer_name;
}

uint32_t fq_conn_peer_uid(const struct fq_conn *conn)
{
    return conn->peer_uid;
}

/* ---- operations ----------------------------------------------------------------------------- */

static bool lies_in_region(const struct fq_op *op)
{
    if (!op->region) {
        return op->length <= FQ_ATOMIC_COPY_BYTES;
    }
    const struct fq_region *region = op->region;
    size_t span = region->flags & FQ_REGION_MIRRORED ? 2 * region->bytes : region->bytes;
    uintptr_t at = (uintptr_t)op->local, base = (uintptr_t)region->base;
    return at >= base && op->length <= span && at - base <= span - op->length;
}

static int check_remote(const struct fq_conn *conn, const struct fq_op *op, unsigned right)
{
    const struct fq_remote *remote = op->remote;
    if (!remote || remote->conn != conn || (op->length > 0 && !op->local)) {
        return FLASHQ_ERR_INVALID;
    }
    if (op->length > FQ_OP_BYTES_MAX) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    if (remote->is_revoked || !(remote->rights & right)) {
        return FLASHQ_ERR_NOT_PERMITTED;
    }
    if (op->length > remote->bytes || op->remote_offset > remote->span - op->length) {
        return FLASHQ_ERR_OUT_OF_RANGE;
    }
    bool is_in_place = remote->map && op->local == remote->map + op->remote_offset;
    return is_in_place || lies_in_region(op) ? 0 : FLASHQ_ERR_INVALID;
}

static int check_op(const struct fq_conn *conn, const struct fq_op *op)
{
    switch (op->type) {
    case FQ_OP_SEND:
        if (!op->local && op->length > 0) {
            return FLASHQ_ERR_INVALID;
        }
        return op->length <= FQ_LIMIT_CONTROL_BYTES ? 0 : FLASHQ_ERR_TOO_LARGE;
    case FQ_OP_WRITE_NOTIFY:
        if (!op->remote) {
            return op->length == 0 ? 0 : FLASHQ_ERR_INVALID;
        }
        return check_remote(conn, op, FQ_RIGHT_WRITE);
    case FQ_OP_WRITE: return check_remote(conn, op, FQ_RIGHT_WRITE);
    case FQ_OP_READ: return check_remote(conn, op, FQ_RIGHT_READ);
    }
    return FLASHQ_ERR_INVALID;
}

static void count_posted(struct fq_fabric_stats *stats, const struct fq_op *op)
{
    switch (op->type) {
    case FQ_OP_SEND:
        stats->sends++;
        stats->send_bytes += op->length;
        break;
    case FQ_OP_WRITE_NOTIFY: stats->notifies++; /* fall through */
    case FQ_OP_WRITE:
        stats->writes += op->remote != NULL;
        stats->write_bytes += op->length;
        break;
    case FQ_OP_READ:
        stats->reads++;
        stats->read_bytes += op->length;
        break;
    }
}

int fq_conn_post(struct fq_conn *conn, const struct fq_op *ops, size_t ops_count)
{
    if (!conn || (!ops && ops_count > 0) || ops_count > OUTSTANDING_MAX) {
        return FLASHQ_ERR_INVALID;
    }
    if (conn->state != FQ_CONN_OPEN) {
        return conn->state == FQ_CONN_CONNECTING ? FLASHQ_ERR_AGAIN : FLASHQ_ERR_CLOSED;
    }
    for (size_t i = 0; i < ops_count; i++) {
        int r = check_op(conn, &ops[i]);
        if (r < 0) {
            return r;
        }
    }
    struct fq_fabric *fabric = conn->fabric;
    int taken = 0;
    if (fabric->outstanding + ops_count <= OUTSTANDING_MAX &&
        fq_events_reserve(fabric, fabric->conns_count, fabric->outstanding + ops_count)) {
        fabric->outstanding += ops_count; /* the most it can become; corrected below */
        taken = fabric->ops->post(conn, ops, ops_count);
        fabric->outstanding -= ops_count;
    }
    for (int i = 0; i < taken; i++) {
        fabric->outstanding += ops[i].signaled || ops[i].type == FQ_OP_READ;
        count_posted(&fabric->stats, &ops[i]);
    }
    if (taken >= 0 && (size_t)taken < ops_count) {
        conn->wants_writable = true;
        fabric->stats.again++;
        return taken > 0 ? taken : FLASHQ_ERR_AGAIN;
    }
    return taken;
}

int fq_conn_send(struct fq_conn *conn, const void *bytes, size_t length)
{
    const struct fq_op op = {
        .type = FQ_OP_SEND, .local = (void *)(uintptr_t)bytes, .length = length};
    int r = fq_conn_post(conn, &op, 1);
    return r < 0 ? r : 0;
}
