/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pushes of one link; states in push.h.
 *
 * Happy path: PUSH_SETUP once per connection, then per partition a ring, a window on it, PUSH_OPEN; the tail is
 * looked at in the head line, credit is written back when a quarter of the ring came free; PUSH_CLOSE.
 * What can fail: the broker refuses (pushing at all, or one partition): the reader pulls. A head that makes no
 * sense: the link is failed. The link, at any time: nothing is written any more, and the readers start over.
 */
#include "consumer/push.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "consumer/consumer.h"
#include "consumer/hub.h"

#define NO_DEADLINE INT64_MAX /* a broker that stands still may write when it goes on: the ring must wait */
#define LINE_BYTES ((uint64_t)sizeof(struct fq_push_head))

struct fq_rpush_port {
    struct fq_link_user user;
    bool is_ready;
    int refused;                 /* why the broker does not push at all; 0 */
    struct fq_region *heads;
    struct fq_window *window;
    struct fq_remote *credits;
    uint32_t lines;
    uint64_t used[FQ_LIMIT_PUSH_LINES / 64];
    struct fq_chain pushes;
};

static struct fq_rpush_port *port_of_user(struct fq_link_user *user)
{
    return fq_chain_item(user, struct fq_rpush_port, user);
}

static struct fq_rpush *push_at(struct fq_chain *node)
{
    return fq_chain_item(node, struct fq_rpush, node);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void release_push(struct fq_source *source)
{
    struct fq_rpush *push = fq_chain_item(source, struct fq_rpush, source);
    fq_region_unref(push->region);
    free(push);
}

/* What a poll hands out of the ring is one lease, until the next poll. */
static struct fq_source *lend(struct fq_source *source)
{
    struct fq_rpush *push = fq_chain_item(source, struct fq_rpush, source);
    if (push->lease.refs > 0) {
        return NULL; /* the running poll holds it already */
    }
    push->lease.refs = 1;
    (void)fq_source_ref(source);
    return &push->lease;
}

static void lease_ended(struct fq_source *lease)
{
    struct fq_rpush *push = fq_chain_item(lease, struct fq_rpush, lease);
    fq_rpush_settle(push);
    fq_source_unref(&push->source);
}

static uint64_t ring_bytes_for(const struct fq_link *link)
{
    const uint64_t page = 4096;
    uint64_t bytes = (uint64_t)link->engine->config.push_buffer_bytes;
    uint64_t batch = link->session.batch_max_bytes;
    bytes = bytes > batch ? bytes : batch;
    bytes = bytes < FQ_LIMIT_PUSH_RING_BYTES_MAX ? bytes : FQ_LIMIT_PUSH_RING_BYTES_MAX;
    return (bytes + page - 1) / page * page;
}

static int create(struct fq_link *link, struct fq_buffers *buffers, struct fq_rpush **ret)
{
    uint64_t bytes = ring_bytes_for(link);
    if (!fq_buffers_charge(buffers, bytes)) {
        return FLASHQ_ERR_AGAIN;
    }
    struct fq_rpush *push = calloc(1, sizeof *push);
    int code = push ? fq_region_create(bytes, FQ_REGION_MIRRORED, &push->region, NULL)
                    : FLASHQ_ERR_NO_MEMORY;
    if (code != 0) {
        fq_buffers_discharge(buffers, bytes);
        free(push);
        return code;
    }
    push->source = (struct fq_source){.refs = 1, .release = release_push, .lend = lend};
    push->lease = (struct fq_source){.release = lease_ended};
    fq_chain_init(&push->node);
    push->buffers = buffers;
    push->ring = fq_region_base(push->region);
    push->ring_bytes = fq_region_bytes(push->region);
    push->batch_max_bytes = link->session.batch_max_bytes;
    *ret = push;
    return 0;
}

static struct fq_push_head *head_of(const struct fq_rpush *push)
{
    return (struct fq_push_head *)fq_region_base(push->port->heads) + push->line;
}

/* The broker writes no more: gives up window, line and budget, and the memory unless messages are in it. */
static void detach(struct fq_rpush *push)
{
    struct fq_rpush_port *port = push->port;
    fq_link_cancel(port->user.link, push);
    fq_window_revoke(push->window);
    push->window = NULL;
    if (push->has_line) {
        port->used[push->line / 64] &= ~(UINT64_C(1) << push->line % 64);
    }
    if (push->buffers) {
        fq_buffers_discharge(push->buffers, push->ring_bytes);
        push->buffers = NULL;
    }
    if (push->reader) {
        push->reader->push = NULL;
        push->reader = NULL;
    }
    fq_chain_remove(&push->node);
    push->port = NULL;
    fq_source_unref(&push->source);
}

/* ---- opening -------------------------------------------------------------------------------- */

static bool take_line(struct fq_rpush *push)
{
    struct fq_rpush_port *port = push->port;
    for (uint32_t line = 0; line < port->lines; line++) {
        uint64_t bit = UINT64_C(1) << line % 64;
        if (!(port->used[line / 64] & bit)) {
            port->used[line / 64] |= bit;
            push->line = line;
            push->has_line = true;
            memset(head_of(push), 0, sizeof(struct fq_push_head));
            return true;
        }
    }
    return false;
}

/* Hands the outcome to the reader; a push that came to nothing is gone before. */
static void tell_opened(struct fq_rpush *push, int status, int64_t position_offset, const char *text)
{
    struct fq_pread *reader = push->reader;
    struct fq_engine *engine = push->port->user.link->engine;
    if (status != 0) {
        detach(push);
    }
    if (reader) {
        fq_pushed_opened(reader, status, position_offset, text);
    }
    fq_engine_progress(engine);
}

static void opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_rpush *push = context;
    struct fq_push_open_answer answer = {0};
    struct fq_err err = {0};
    if (!msg) { /* no answer in time: what the broker does with it is not known */
        struct fq_pread *reader = push->reader;
        if (status != FLASHQ_ERR_UNREACHABLE && reader) {
            fq_rpush_leave(reader);
            fq_pushed_opened(reader, status, -1, text);
        }
        return;
    }
    if (status == 0) {
        status = fq_decode_push_open_answer(msg, &answer, &err);
        if (status != 0) {
            fq_link_fail(push->port->user.link, status, err.text);
            return;
        }
    }
    tell_opened(push, status, answer.position_offset, text);
}

static int ask_open(struct fq_rpush *push)
{
    struct fq_link *link = push->port->user.link;
    struct fq_push_open open = {.reader = push->reader_id, .offset = push->offset,
                                .ring_bytes = push->ring_bytes};
    uint8_t buffer[256];
    if (!take_line(push)) {
        return FLASHQ_ERR_AGAIN;
    }
    open.line = push->line;
    int code = fq_window_grant(fq_link_conn(link), push->region, 0, push->ring_bytes, FQ_RIGHT_WRITE,
                               &push->window, open.ring_token, NULL);
    if (code != 0) {
        return code;
    }
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_push_open(buffer, sizeof buffer, correlation, &open);
    code = fq_link_request(link, buffer, length, correlation,
                           fq_deadline_us(link->engine->now_us, link->engine->config.timeout_ms),
                           opened, push);
    push->is_asked = code == 0;
    return code;
}

/* ---- the port ------------------------------------------------------------------------------- */

static void port_ready(struct fq_rpush_port *port)
{
    for (struct fq_chain *at = port->pushes.next, *next; at != &port->pushes; at = next) {
        next = at->next;
        int code = ask_open(push_at(at));
        if (code != 0) {
            tell_opened(push_at(at), code, -1, NULL);
        }
    }
}

static void port_refused(struct fq_rpush_port *port, int code, const char *text)
{
    port->refused = code;
    while (!fq_chain_is_empty(&port->pushes)) {
        tell_opened(push_at(port->pushes.next), code, -1, text);
    }
}

static void set_up(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_rpush_port *port = context;
    struct fq_link *link = port->user.link;
    struct fq_push_setup_answer answer;
    struct fq_err err = {0};
    if (!msg) {
        return; /* the link is going down, and says so by itself */
    }
    if (status != 0) {
        port_refused(port, status, text);
        return;
    }
    int code = fq_decode_push_setup_answer(msg, &answer, &err);
    if (code == 0) {
        code = fq_remote_open(fq_link_conn(link), answer.credits_token, FQ_RIGHT_WRITE, &port->credits,
                              &err);
    }
    if (code == 0 && (answer.lines == 0 || answer.lines > port->lines ||
                      fq_remote_bytes(port->credits) < answer.lines * LINE_BYTES)) {
        code = fq_err_set(&err, FLASHQ_ERR_PROTOCOL, "the broker's lines for pushes make no sense");
    }
    if (code != 0) {
        fq_link_fail(link, code, err.text);
        return;
    }
    port->lines = answer.lines;
    port->is_ready = true;
    port_ready(port);
}

static int ask_set_up(struct fq_rpush_port *port)
{
    struct fq_link *link = port->user.link;
    struct fq_push_setup setup = {.lines = FQ_LIMIT_PUSH_LINES};
    uint8_t buffer[128];
    size_t bytes = FQ_LIMIT_PUSH_LINES * (size_t)LINE_BYTES;
    port->lines = FQ_LIMIT_PUSH_LINES;
    int code = fq_region_create(bytes, 0, &port->heads, NULL);
    if (code == 0) {
        code = fq_window_grant(fq_link_conn(link), port->heads, 0, fq_region_bytes(port->heads),
                               FQ_RIGHT_WRITE, &port->window, setup.heads_token, NULL);
    }
    if (code != 0) {
        return code;
    }
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_push_setup(buffer, sizeof buffer, correlation, &setup);
    return fq_link_request(link, buffer, length, correlation, NO_DEADLINE, set_up, port);
}

static void free_port(struct fq_rpush_port *port)
{
    fq_link_remove_user(&port->user);
    fq_remote_close(port->credits);
    fq_window_revoke(port->window);
    fq_region_unref(port->heads);
    free(port);
}

/* A port lives as long as its connection: PUSH_SETUP is said once. */
static void on_down(struct fq_link_user *user, int code, const char *text)
{
    struct fq_rpush_port *port = port_of_user(user);
    (void)code, (void)text;
    fq_link_cancel(user->link, port);
    while (!fq_chain_is_empty(&port->pushes)) {
        detach(push_at(port->pushes.next)); /* their readers hear it from the hub */
    }
    free_port(port);
}

static void on_up(struct fq_link_user *user)
{
    (void)user; /* a port is made on a link that is up */
}

static bool on_notify(struct fq_link_user *user, uint32_t imm)
{
    (void)user, (void)imm;
    return false;
}

static bool on_message(struct fq_link_user *user, const struct fq_msg *msg)
{
    (void)user, (void)msg;
    return false;
}

static void on_writable(struct fq_link_user *user)
{
    struct fq_rpush_port *port = port_of_user(user);
    for (struct fq_chain *at = port->pushes.next; at != &port->pushes; at = at->next) {
        fq_rpush_settle(push_at(at));
    }
}

static const struct fq_link_user_ops port_ops = {.on_up = on_up, .on_down = on_down,
                                                 .on_notify = on_notify, .on_message = on_message,
                                                 .on_writable = on_writable};

static int port_on(struct fq_link *link, struct fq_rpush_port **ret)
{
    struct fq_link_user *user = fq_link_find_user(link, &port_ops);
    if (user) {
        *ret = port_of_user(user);
        return 0;
    }
    struct fq_rpush_port *port = calloc(1, sizeof *port);
    if (!port) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    port->user.ops = &port_ops;
    fq_chain_init(&port->pushes);
    fq_link_add_user(link, &port->user);
    int code = ask_set_up(port);
    if (code != 0) {
        free_port(port);
        return code;
    }
    *ret = port;
    return 0;
}

/* ---- what readers call ------------------------------------------------------------------------ */

int fq_rpush_open(struct fq_pread *reader, int64_t offset)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    struct fq_rpush_port *port;
    struct fq_rpush *push;
    int code = port_on(link, &port);
    code = code == 0 ? port->refused : code;
    code = code == 0 ? create(link, &reader->consumer->buffers, &push) : code;
    if (code != 0) {
        return code;
    }
    push->port = port;
    push->reader_id = reader->id;
    push->offset = offset;
    fq_chain_append(&port->pushes, &push->node);
    code = port->is_ready ? ask_open(push) : 0;
    if (code != 0) {
        detach(push);
        return code;
    }
    push->reader = reader;
    reader->push = push;
    return 0;
}

static void closed(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_rpush *push = context;
    struct fq_pread *reader = push->reader;
    struct fq_engine *engine = push->port->user.link->engine;
    (void)status, (void)msg, (void)text; /* refused: it had stopped by itself */
    detach(push);
    if (reader) {
        fq_pushed_closed(reader);
    }
    fq_engine_progress(engine);
}

/* true: the answer will come. */
static bool ask_close(struct fq_rpush *push)
{
    struct fq_link *link = push->port->user.link;
    uint8_t buffer[128];
    if (!push->is_asked) {
        return false; /* the broker knows nothing of it */
    }
    if (push->is_closing) {
        return true;
    }
    fq_link_cancel(link, push); /* an answer to PUSH_OPEN that is still to come means nothing any more */
    push->is_closing = true;
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_push_close(buffer, sizeof buffer, correlation,
                                          &(struct fq_push_close){.reader = push->reader_id});
    int code = fq_link_request(link, buffer, length, correlation, NO_DEADLINE, closed, push);
    if (code != 0 && code != FLASHQ_ERR_UNREACHABLE) {
        fq_link_fail(link, code, "a push could not be closed");
    }
    return true; /* or the connection is gone, which the reader hears */
}

void fq_rpush_drop(struct fq_pread *reader)
{
    struct fq_rpush *push = reader->push;
    if (push && push->port) {
        detach(push);
    } else if (push) { /* stopped: the reader's reference is the last but for what is lent */
        reader->push = NULL;
        push->reader = NULL;
        fq_source_unref(&push->source);
    }
}

void fq_rpush_close(struct fq_pread *reader)
{
    struct fq_rpush *push = reader->push;
    if (!push || !push->port || !ask_close(push)) {
        fq_rpush_drop(reader);
        fq_pushed_closed(reader);
    }
}

void fq_rpush_leave(struct fq_pread *reader)
{
    struct fq_rpush *push = reader->push;
    if (!push || !push->port) {
        fq_rpush_drop(reader);
        return;
    }
    reader->push = NULL;
    push->reader = NULL;
    if (!ask_close(push)) {
        detach(push);
    }
}

void fq_rpush_stop(struct fq_pread *reader, int reason)
{
    struct fq_rpush *push = reader->push;
    if (push && push->port && fq_rpush_look(push)) {
        (void)fq_source_ref(&push->source);
        detach(push);
        push->stopped = reason < 0 ? reason : FLASHQ_ERR_PROTOCOL;
        push->reader = reader;
        reader->push = push;
    }
}

void fq_rpushes_forget(struct fq_consumer *consumer)
{
    struct fq_engine *engine = consumer->engine;
    for (struct fq_chain *l = engine->links.next; l != &engine->links; l = l->next) {
        struct fq_link_user *user =
            fq_link_find_user(fq_chain_item(l, struct fq_link, node), &port_ops);
        struct fq_chain *pushes = user ? &port_of_user(user)->pushes : NULL;
        for (struct fq_chain *at = pushes ? pushes->next : NULL; at != pushes; at = at->next) {
            if (push_at(at)->buffers == &consumer->buffers) {
                push_at(at)->buffers = NULL;
            }
        }
    }
}

/* ---- heads and credits ------------------------------------------------------------------------ */

bool fq_rpush_look(struct fq_rpush *push)
{
    struct fq_pread *reader = push->reader;
    if (!push->port) {
        return true; /* stopped: the tail is what it was */
    }
    struct fq_push_head *head = head_of(push);
    /* Pairs with the broker's write of the head, which follows its bytes: they are looked at after it. */
    uint64_t tail = __atomic_load_n(&head->tail, __ATOMIC_ACQUIRE);
    int64_t high_watermark = __atomic_load_n(&head->high_watermark, __ATOMIC_RELAXED);
    int64_t epoch = __atomic_load_n(&head->leader_epoch, __ATOMIC_RELAXED);
    if (tail < push->tail || tail - push->credited > push->ring_bytes) {
        fq_pushed_hold_off(reader); /* the next connection begins by pulling */
        fq_link_fail(push->port->user.link, FLASHQ_ERR_PROTOCOL,
                     "the broker's tail of a push makes no sense");
        return false;
    }
    push->tail = tail;
    push->high_watermark = high_watermark;
    if (high_watermark > reader->high_watermark) {
        reader->high_watermark = high_watermark;
    }
    if (epoch >= 0 && epoch <= INT32_MAX) {
        reader->view.leader_epoch = (int32_t)epoch;
    }
    return true;
}

/* Up to where nothing in the ring is needed any more. */
static uint64_t free_bytes(const struct fq_rpush *push)
{
    const struct fq_pread *reader = push->reader;
    bool is_in_ring = reader->has_batch && reader->batch_source == &push->source;
    return is_in_ring ? reader->batch_position : reader->next_position;
}

void fq_rpush_settle(struct fq_rpush *push)
{
    struct fq_pread *reader = push->reader;
    if (!reader || !push->port || push->is_closing || push->lease.refs > 0 ||
        reader->state != FQ_READER_PUSHED) {
        return;
    }
    uint64_t free_to = free_bytes(push), came_free = free_to - push->credited;
    uint64_t quarter = push->ring_bytes / 4;
    uint64_t spare = push->ring_bytes > push->batch_max_bytes ? push->ring_bytes - push->batch_max_bytes
                                                              : 0;
    /* The rest of a batch that has begun needs the room. */
    bool is_stuck = reader->next_position + reader->want_bytes > push->credited + push->ring_bytes;
    if (came_free == 0 || (came_free < quarter && came_free < spare && !is_stuck)) {
        return;
    }
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .remote = push->port->credits,
                       .remote_offset = push->line * LINE_BYTES, .local = &free_to,
                       .length = sizeof free_to, .imm = FQ_PUSH_CREDIT_IMM(push->line)};
    if (fq_conn_post(fq_link_conn(push->port->user.link), &op, 1) == 1) {
        push->credited = free_to;
    } /* else there is no room now, and on_writable comes back; or the link is broken, and says so */
}
