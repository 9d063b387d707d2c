/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of one link; see ring.h for its states and invariants.
 *
 * Happy path of a batch: fq_ring_post copies it to `written % window_bytes` (the window is mapped twice in a
 * row at the broker, so it never wraps) and notifies; the broker writes an ack entry, then the tail, then
 * notifies; fq_ring_take_acks hands each entry to its partition.
 * What can fail: the link, at any time: partitions take back what is in flight and send it again later. A
 * broker that breaks the rules: the link is failed. Thread: any, under the client's lock.
 */
#include "producer/ring.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "producer/inring.h"
#include "producer/partition.h"

#define POST_BYTES_MAX ((size_t)4 << 20) /* of one write; below FQ_LIMIT_FABRIC_FRAME_BYTES */
#define RING_OPEN_RETRY_US 100000

static struct fq_ring *ring_of_user(struct fq_link_user *user)
{
    return fq_chain_item(user, struct fq_ring, user);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void close_connection_side(struct fq_ring *ring)
{
    fq_inring_leave(ring);
    fq_remote_close(ring->window);
    ring->window = NULL;
    if (ring->ack_window) {
        fq_window_revoke(ring->ack_window);
        ring->ack_window = NULL;
    }
    fq_region_unref(ring->ack_region);
    ring->ack_region = NULL;
    fq_idmap_clear(&ring->slots);
    ring->posting = NULL;
    ring->state = FQ_RING_CLOSED;
}

static void ring_opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_ring *ring = context;
    struct fq_ring_open_answer answer;
    struct fq_err err = {0};
    if (!msg || ring->state != FQ_RING_OPENING) {
        return; /* the link is going down and says so by itself, or it took too long */
    }
    if (status != 0) {
        close_connection_side(ring);
        ring->retry_us = ring->engine->now_us + RING_OPEN_RETRY_US;
        (void)fq_err_set(&ring->why_closed, status, "%s",
                         text && text[0] ? text : fq_err_describe(status));
        fq_ppart_ring_refused(ring, status, text);
        return;
    }
    struct fq_link *link = ring->user.link;
    int code = fq_decode_ring_open_answer(msg, &answer, &err);
    if (code == 0) {
        code = fq_remote_open(fq_link_conn(link), answer.window_token, FQ_RIGHT_WRITE, &ring->window,
                              &err);
    }
    if (code == 0 && (answer.entries == 0 || answer.entries > ring->entries ||
                      answer.window_bytes < FQ_BATCH_HEADER_BYTES ||
                      answer.window_bytes > FQ_LIMIT_PRODUCER_WINDOW_BYTES_MAX ||
                      fq_remote_bytes(ring->window) < answer.window_bytes)) {
        code = fq_err_set(&err, FLASHQ_ERR_PROTOCOL, "the broker's producer window makes no sense");
    }
    if (code != 0) {
        fq_link_fail(link, code, err.text);
        return;
    }
    ring->entries = answer.entries;
    ring->window_bytes = answer.window_bytes;
    ring->map = fq_remote_map(ring->window);
    ring->state = FQ_RING_OPEN;
    fq_err_clear(&ring->why_closed);
    fq_ppart_ring_up(ring);
}

static int ask_open(struct fq_ring *ring, struct fq_err *err)
{
    struct fq_link *link = ring->user.link;
    struct fq_ring_open open = {.entries = FQ_LIMIT_ACK_RING_ENTRIES};
    uint8_t buffer[256];
    size_t bytes = sizeof(struct fq_ack_head) + open.entries * sizeof(struct fq_ack_entry);
    int code = fq_region_create(bytes, 0, &ring->ack_region, err);
    if (code == 0) {
        code = fq_window_grant(fq_link_conn(link), ring->ack_region, 0,
                               fq_region_bytes(ring->ack_region), FQ_RIGHT_WRITE, &ring->ack_window,
                               open.ack_token, err);
    }
    if (code != 0) {
        return code;
    }
    ring->entries = open.entries;
    ring->posted = ring->acked = ring->written = ring->consumed = 0;
    ring->state = FQ_RING_OPENING;
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_ring_open(buffer, sizeof buffer, correlation, &open);
    return fq_link_request(link, buffer, length, correlation,
                           fq_deadline_us(ring->engine->now_us, ring->engine->config.timeout_ms),
                           ring_opened, ring);
}

static void try_open(struct fq_ring *ring)
{
    struct fq_err err = {0};
    int code = ask_open(ring, &err);
    if (code != 0) {
        close_connection_side(ring);
        ring->retry_us = ring->engine->now_us + RING_OPEN_RETRY_US;
        ring->why_closed = err;
        fq_ppart_ring_refused(ring, code, err.text);
    }
}

static void on_up(struct fq_link_user *user)
{
    try_open(ring_of_user(user));
}

static void free_ring(struct fq_ring *ring)
{
    fq_link_remove_user(&ring->user);
    fq_idmap_fini(&ring->slots);
    free(ring);
}

static void on_down(struct fq_link_user *user, int code, const char *text)
{
    struct fq_ring *ring = ring_of_user(user);
    fq_link_cancel(user->link, ring);
    ring->is_going_down = true;
    (void)fq_ring_take_acks(ring); /* what was acknowledged before the end counts */
    ring->is_going_down = false;
    close_connection_side(ring);
    if (fq_chain_is_empty(&ring->pparts)) {
        free_ring(ring);
        return;
    }
    (void)fq_err_set(&ring->why_closed, code, "%s", text);
    fq_ppart_ring_down(ring, code, text);
}

void fq_ring_step(struct fq_ring *ring, int64_t now_us)
{
    if (ring->state == FQ_RING_CLOSED && fq_link_is_up(ring->user.link) && now_us >= ring->retry_us) {
        try_open(ring);
    }
}

/* ---- posting -------------------------------------------------------------------------------- */

bool fq_ring_has_notify(const struct fq_ring *ring)
{
    return ring->state == FQ_RING_OPEN && !ring->posting &&
           ring->posted - ring->acked < ring->entries;
}

static bool take_consumed(struct fq_ring *ring, const struct fq_ack_head *head)
{
    /* Any order of this load and the entries' is fine: it only grows, and only room follows from it. */
    uint64_t consumed = __atomic_load_n(&head->consumed, __ATOMIC_ACQUIRE);
    if (consumed < ring->consumed || consumed > ring->written) {
        return false;
    }
    ring->consumed = consumed;
    return true;
}

static bool fits(const struct fq_ring *ring, size_t length)
{
    return ring->written - fq_inring_floor(ring) + length <= ring->window_bytes;
}

/* What the broker consumed is read when it matters: a value that makes no sense is met with the next
 * acknowledgements. */
bool fq_ring_has_room(struct fq_ring *ring, size_t length)
{
    return fq_ring_has_notify(ring) &&
           (fits(ring, length) ||
            (take_consumed(ring, fq_region_base(ring->ack_region)) && fits(ring, length)));
}

bool fq_ring_could_have_room(struct fq_ring *ring, size_t length)
{
    return fq_ring_has_notify(ring) &&
           (ring->written - ring->consumed + length <= ring->window_bytes ||
            (take_consumed(ring, fq_region_base(ring->ack_region)) &&
             ring->written - ring->consumed + length <= ring->window_bytes));
}

static void go_on_posting(struct fq_ring *ring)
{
    struct fq_batch *batch = ring->posting;
    while (ring->posting_done < batch->length) {
        size_t left = batch->length - ring->posting_done;
        bool is_last = left <= POST_BYTES_MAX;
        struct fq_op op = {.type = is_last ? FQ_OP_WRITE_NOTIFY : FQ_OP_WRITE,
                           .remote = ring->posting_at.remote,
                           .remote_offset = ring->posting_at.offset + ring->posting_done,
                           .region = batch->block.region,
                           .local = batch->block.data + ring->posting_done,
                           .length = is_last ? left : POST_BYTES_MAX,
                           .imm = ring->posting_slot};
        int count = fq_conn_post(fq_link_conn(ring->user.link), &op, 1);
        if (count == 0 || count == FLASHQ_ERR_AGAIN) {
            return; /* WRITABLE goes on */
        }
        if (count < 0) {
            ring->posting = NULL;
            fq_link_fail(ring->user.link, count, "a batch could not be written");
            return;
        }
        ring->posting_done += op.length;
    }
    ring->written += ring->posting_at.remote == ring->window ? batch->length : 0;
    ring->posted++;
    ring->posting = NULL;
}

void fq_ring_post_direct(struct fq_ring *ring, uint32_t slot, struct fq_batch *batch,
                         const struct fq_direct_place *place)
{
    ring->posting = batch;
    ring->posting_slot = slot;
    ring->posting_at = *place;
    ring->posting_done = 0;
    go_on_posting(ring);
}

void fq_ring_post(struct fq_ring *ring, uint32_t slot, struct fq_batch *batch)
{
    struct fq_direct_place place = {.remote = ring->window,
                                    .offset = ring->written % ring->window_bytes};
    if (batch == ring->open) {
        fq_inring_post(ring, batch);
    }
    fq_ring_post_direct(ring, slot, batch, &place);
}

struct fq_batch *fq_ring_abandon(struct fq_ring *ring, uint32_t slot)
{
    struct fq_batch *batch = ring->posting && ring->posting_slot == slot ? ring->posting : NULL;
    if (batch) {
        ring->posting = NULL;
    }
    return batch;
}

static void on_writable(struct fq_link_user *user)
{
    struct fq_ring *ring = ring_of_user(user);
    if (ring->state == FQ_RING_OPEN && ring->posting) {
        go_on_posting(ring);
    }
}

/* ---- acknowledgements ----------------------------------------------------------------------- */

static void break_link(struct fq_ring *ring, const char *text)
{
    if (!ring->is_going_down) {
        fq_link_fail(ring->user.link, FLASHQ_ERR_PROTOCOL, text);
    }
}

bool fq_ring_take_acks(struct fq_ring *ring)
{
    if (ring->state != FQ_RING_OPEN) {
        return false;
    }
    const struct fq_ack_head *head = fq_region_base(ring->ack_region);
    /* Pairs with the broker's release of the tail after the entries below it. */
    uint64_t tail = __atomic_load_n(&head->tail, __ATOMIC_ACQUIRE);
    if (tail == ring->acked) {
        return false;
    }
    if (tail < ring->acked || tail > ring->posted || !take_consumed(ring, head)) {
        break_link(ring, "the broker's ack ring makes no sense");
        return true;
    }
    ring->looked_ns = fq_mono_ns();
    const struct fq_ack_entry *entries = (const struct fq_ack_entry *)(const void *)(head + 1);
    while (ring->acked < tail) {
        struct fq_ack_entry entry = entries[ring->acked % ring->entries];
        struct fq_ppart *ppart = fq_idmap_get(&ring->slots, entry.slot);
        ring->acked++;
        if (ppart && !fq_ppart_acked(ppart, &entry)) {
            break_link(ring, "the broker acknowledged what was not sent");
            return true;
        }
    }
    fq_engine_progress(ring->engine);
    return true;
}

static bool on_notify(struct fq_link_user *user, uint32_t imm)
{
    if (imm != FQ_ACK_NOTIFY_IMM) {
        return false;
    }
    (void)fq_ring_take_acks(ring_of_user(user));
    return true;
}

/* What is said of a slot that is not used any more is not for anybody. */
static bool on_direct_window(struct fq_ring *ring, const struct fq_msg *msg)
{
    struct fq_direct_window window;
    struct fq_err err = {0};
    int code = fq_decode_direct_window(msg, &window, &err);
    struct fq_ppart *ppart = code == 0 ? fq_idmap_get(&ring->slots, window.slot) : NULL;
    if (ppart) {
        code = fq_ppart_direct_window(ppart, &window, &err);
    }
    if (code != 0) {
        fq_link_fail(ring->user.link, code, err.text);
    }
    return true;
}

static bool on_slot_revoked(struct fq_ring *ring, const struct fq_msg *msg)
{
    struct fq_link *link = ring->user.link;
    struct fq_slot_revoked revoked;
    struct fq_err err = {0};
    int code = fq_decode_slot_revoked(msg, &revoked, &err);
    if (code != 0) {
        fq_link_fail(link, code, err.text);
        return true;
    }
    (void)fq_ring_take_acks(ring); /* those before it count */
    if (!fq_link_is_up(link)) {
        return true; /* they made no sense; a ring that nobody used is gone with the connection */
    }
    struct fq_ppart *ppart = fq_idmap_get(&ring->slots, revoked.slot);
    if (ppart) {
        fq_ppart_revoked(ppart, revoked.reason);
    }
    return true;
}

static bool on_message(struct fq_link_user *user, const struct fq_msg *msg)
{
    struct fq_ring *ring = ring_of_user(user);
    switch (msg->type) {
    case FQ_MSG_DIRECT_WINDOW: return on_direct_window(ring, msg);
    case FQ_MSG_SLOT_REVOKED: return on_slot_revoked(ring, msg);
    default: return false;
    }
}

/* ---- making --------------------------------------------------------------------------------- */

static const struct fq_link_user_ops ring_ops = {.on_up = on_up, .on_down = on_down,
                                                 .on_notify = on_notify, .on_message = on_message,
                                                 .on_writable = on_writable};

int fq_ring_of(struct fq_link *link, struct fq_ring **ret)
{
    struct fq_link_user *user = fq_link_find_user(link, &ring_ops);
    if (user) {
        *ret = ring_of_user(user);
        return 0;
    }
    struct fq_ring *ring = calloc(1, sizeof *ring);
    if (!ring) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    ring->engine = link->engine;
    ring->user.ops = &ring_ops;
    fq_chain_init(&ring->pparts);
    fq_chain_init(&ring->held);
    fq_estimate_init(&ring->estimate);
    fq_link_add_user(link, &ring->user);
    *ret = ring;
    return 0;
}

void fq_ring_join(struct fq_ring *ring, struct fq_chain *ppart_node)
{
    fq_chain_append(&ring->pparts, ppart_node);
}

void fq_ring_leave(struct fq_ring *ring, struct fq_chain *ppart_node)
{
    fq_chain_remove(ppart_node);
    /* A connection has one ring for its life: an unused one waits for the next partition. */
    if (fq_chain_is_empty(&ring->pparts) && !fq_link_is_up(ring->user.link)) {
        free_ring(ring);
    }
}
