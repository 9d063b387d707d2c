/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer's partition; states and invariants in partition.h.
 *
 * Happy path: pump numbers the first waiting batch, posts it, moves it to `in_flight`; its ack reports its
 * records and frees it.
 * A refusal: the broker refuses everything later on the slot. The refused batch fails, the rest come back as
 * SLOT_FAILED; once all are answered, the slot is closed, the epoch raised, and they are sent again under new
 * sequences. A lost connection: what was in flight goes back to the front of `waiting`, under its old
 * sequences, and the broker recognises what it has.
 * Thread: any, under the client's lock.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/metadata.h"
#include "producer/batching.h"
#include "producer/inring.h"
#include "producer/partition_internal.h"
#include "producer/producer.h"

#define RETRY_FIRST_US 20000
#define RETRY_MOST_US 1000000
#define SEQUENCE_REFUSALS_MAX 3

static const char *const state_names[] = {
    [FQ_PPART_UNROUTED] = "unrouted", [FQ_PPART_RING] = "ring",         [FQ_PPART_OPENING] = "opening",
    [FQ_PPART_OPEN] = "open",         [FQ_PPART_DRAINING] = "draining", [FQ_PPART_DEAD] = "dead"};

#define MAY(state) (1u << (state))
static const unsigned may_follow[] = {
    [FQ_PPART_UNROUTED] = MAY(FQ_PPART_RING) | MAY(FQ_PPART_DEAD),
    [FQ_PPART_RING] = MAY(FQ_PPART_OPENING) | MAY(FQ_PPART_DEAD),
    [FQ_PPART_OPENING] = MAY(FQ_PPART_OPEN) | MAY(FQ_PPART_RING) | MAY(FQ_PPART_DEAD),
    [FQ_PPART_OPEN] = MAY(FQ_PPART_DRAINING) | MAY(FQ_PPART_RING) | MAY(FQ_PPART_DEAD),
    [FQ_PPART_DRAINING] = MAY(FQ_PPART_RING) | MAY(FQ_PPART_DEAD),
    [FQ_PPART_DEAD] = 0};

void fq_ppart_set_state(struct fq_ppart *ppart, enum fq_ppart_state state)
{
    assert(may_follow[ppart->state] & MAY(state));
    fq_journal_add(&ppart->producer->engine->journal, FLASHQ_LOG_DEBUG, "%s/%d: producer %s -> %s",
                   ppart->producer->topic, ppart->index, state_names[ppart->state],
                   state_names[state]);
    ppart->state = state;
}

void fq_ppart_init(struct fq_ppart *ppart, struct fq_producer *producer, int32_t index)
{
    *ppart = (struct fq_ppart){.producer = producer, .index = index,
                               .producer_id = producer->producer_id, .max_in_flight = 1,
                               .block_bytes = FQ_POOL_BLOCK_MIN};
    fq_chain_init(&ppart->active_node);
    fq_chain_init(&ppart->ring_node);
    fq_chain_init(&ppart->in_flight);
    fq_chain_init(&ppart->refused);
    fq_chain_init(&ppart->waiting);
}

bool fq_ppart_is_idle(const struct fq_ppart *ppart)
{
    return !ppart->filling && fq_chain_is_empty(&ppart->in_flight) &&
           fq_chain_is_empty(&ppart->waiting) && fq_chain_is_empty(&ppart->refused);
}

void fq_ppart_close_batch(struct fq_ppart *ppart)
{
    struct fq_batch *batch = ppart->filling;
    if (!batch) {
        return;
    }
    size_t used = batch->builder.used, most = (size_t)ppart->producer->batch_max_bytes;
    if (used * 2 > batch->block.bytes && ppart->block_bytes < most) {
        ppart->block_bytes *= 4; /* it filled up: the next may be larger */
        ppart->block_bytes = ppart->block_bytes < most ? ppart->block_bytes : most;
    } else if (used * 16 < batch->block.bytes && ppart->block_bytes > FQ_POOL_BLOCK_MIN) {
        ppart->block_bytes /= 4;
        ppart->block_bytes =
            ppart->block_bytes > FQ_POOL_BLOCK_MIN ? ppart->block_bytes : FQ_POOL_BLOCK_MIN;
    }
    if (ppart->ring) {
        ppart->ring->produced_bytes += used;
    }
    fq_chain_append(&ppart->waiting, &batch->node);
    ppart->filling = NULL;
}

static bool is_fixed(const struct fq_ppart *ppart)
{
    return ppart->producer->engine->config.batching == FQ_BATCHING_FIXED;
}

void fq_ppart_plan(struct fq_ppart *ppart, int64_t now_ns)
{
    size_t most = (size_t)ppart->producer->batch_max_bytes;
    struct fq_ring *ring = ppart->ring;
    if (is_fixed(ppart) || !ring) {
        ppart->plan = (struct fq_estimate_plan){.batch_bytes = most, .close_bytes = most,
                                                .in_flight = ppart->max_in_flight};
        return;
    }
    fq_estimate_produced(&ring->estimate, now_ns, ring->produced_bytes);
    ring->produced_bytes = 0;
    ppart->plan = fq_estimate_plan(&ring->estimate, most, ring->entries);
}

/* ---- the end ---------------------------------------------------------------------------------- */

void fq_ppart_fini(struct fq_ppart *ppart)
{
    if (!ppart->ring) {
        return;
    }
    const struct fq_estimate *path = &ppart->ring->estimate;
    fq_journal_add(&ppart->producer->engine->journal, FLASHQ_LOG_DEBUG,
                   "%s/%d: %.0f MB/s are produced for its connection; a batch costs %.0f ns and %.3f ns "
                   "a byte, the path takes %.0f ns",
                   ppart->producer->topic, ppart->index, path->rate * 1000, path->batch_ns,
                   path->byte_ns, path->latency_ns);
    fq_ring_leave(ppart->ring, &ppart->ring_node);
    ppart->ring = NULL;
}

void fq_ppart_pause(struct fq_ppart *ppart)
{
    int64_t pause = RETRY_FIRST_US << (ppart->failures < 6 ? ppart->failures : 6);
    ppart->failures++;
    ppart->retry_us = ppart->producer->engine->now_us +
                      (pause < RETRY_MOST_US ? pause : RETRY_MOST_US);
}

/* A batch that the application writes into stays: its records are reported, and the claim fails. */
static void fail_claimed(struct fq_ppart *ppart, int code)
{
    struct fq_batch *batch = ppart->filling;
    if (!batch->is_reported) {
        fq_producer_batch_done(ppart->producer, batch, code, FLASHQ_PERSISTED_NO, -1, false, true);
    }
    ppart->producer->claim.code = code;
}

/* What was written on a connection that ended may be stored; what was refused, or never left, is not. */
static int persisted_of_waiting(const struct fq_batch *batch)
{
    return batch->may_be_stored ? FLASHQ_PERSISTED_MAYBE : FLASHQ_PERSISTED_NO;
}

/* Fails everything that waits. */
void fq_ppart_fail_waiting(struct fq_ppart *ppart, int code)
{
    if (ppart->filling && ppart->filling->is_claimed) {
        fail_claimed(ppart, code);
    } else {
        fq_ppart_close_batch(ppart);
    }
    while (!fq_chain_is_empty(&ppart->waiting)) {
        struct fq_batch *batch = fq_chain_item(ppart->waiting.next, struct fq_batch, node);
        fq_chain_remove(&batch->node);
        fq_producer_batch_done(ppart->producer, batch, code, persisted_of_waiting(batch), -1, false,
                               false);
    }
}

void fq_ppart_take_back(struct fq_ppart *ppart)
{
    if (ppart->in_flight_count > 0 && ppart->ring && fq_link_is_up(ppart->ring->user.link)) {
        fq_link_fail(ppart->ring->user.link, FLASHQ_ERR_CLOSED, "closed with records in flight");
    }
}

void fq_ppart_die(struct fq_ppart *ppart, int code)
{
    fq_ppart_take_back(ppart);
    if (ppart->state != FQ_PPART_DEAD) {
        bool has_slot = ppart->state == FQ_PPART_OPEN || ppart->state == FQ_PPART_DRAINING;
        ppart->dead_code = code;
        fq_chain_splice_front(&ppart->waiting, &ppart->refused);
        for (struct fq_chain *at = ppart->in_flight.next; at != &ppart->in_flight; at = at->next) {
            fq_chain_item(at, struct fq_batch, node)->may_be_stored = true;
        }
        fq_chain_splice_front(&ppart->waiting, &ppart->in_flight);
        ppart->in_flight_count = 0;
        if (has_slot) { /* nothing is in flight on it: what was has cost the connection */
            fq_slot_close(ppart);
        } else {
            fq_slot_forget(ppart);
        }
        fq_ppart_set_state(ppart, FQ_PPART_DEAD);
    }
    fq_ppart_fail_waiting(ppart, code);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Whether the batch would go now if it were closed. One that can never go does not wait for room: it is to fail. */
static bool has_room(const struct fq_ppart *ppart, const struct fq_batch *batch)
{
    struct fq_ring *ring = ppart->ring;
    size_t bytes = batch->builder.used;
    bool is_elsewhere = ppart->producer->is_direct || batch->home == ring || bytes > ring->window_bytes;
    return is_elsewhere ? fq_ring_has_notify(ring) : fq_ring_could_have_room(ring, bytes);
}

/* Adaptive: whatever its size. */
static bool may_go_small(const struct fq_ppart *ppart)
{
    return fq_ring_in_flight(ppart->ring) == 0 || ppart->ring->acked >= ppart->filling->began_after;
}

/* The next batch to send, or NULL: the first that waits, else the one being filled if it should go. */
static struct fq_batch *next_batch(struct fq_ppart *ppart, int64_t now_us)
{
    struct fq_producer *producer = ppart->producer;
    struct fq_batch *batch = ppart->filling;
    bool may_close = batch && !batch->is_claimed && batch->builder.records_count > 0;
    if (fq_chain_is_empty(&ppart->waiting) && may_close && has_room(ppart, batch)) {
        struct fq_batching_question question = {
            .batch_bytes = batch->builder.used, .wanted_bytes = ppart->plan.batch_bytes,
            .in_flight = fq_ring_in_flight(ppart->ring), .wanted_in_flight = ppart->plan.in_flight,
            .slot_in_flight = ppart->in_flight_count, .max_in_flight = ppart->max_in_flight,
            .has_waited = ppart->ring->acked >= batch->began_after, .age_us = now_us - batch->created_us,
            .linger_us = producer->engine->config.linger_us, .is_fixed = is_fixed(ppart),
            .is_hurried = batch->id <= producer->hurry_to_id || producer->starved > 0 ||
                          !fq_chain_is_empty(&batch->syncs)};
        if (fq_batching_sends(&question)) {
            fq_ppart_close_batch(ppart);
        }
    }
    return fq_chain_is_empty(&ppart->waiting)
               ? NULL
               : fq_chain_item(ppart->waiting.next, struct fq_batch, node);
}

/* Gives the batch its sequence, if it has none in this epoch. */
static void number(struct fq_ppart *ppart, struct fq_batch *batch)
{
    struct fq_producer *producer = ppart->producer;
    const struct fq_client_config *config = &producer->engine->config;
    if (fq_slot_is_numbered(ppart, batch)) {
        return;
    }
    int32_t count = batch->builder.records_count;
    struct fq_batch_numbering how = {
        .producer_id = ppart->producer_id, .epoch = ppart->epoch,
        .base_sequence = ppart->next_sequence, .codec = (enum fq_codec)config->codec,
        .level = (int)config->compression_level, .compressor = &producer->compressor,
        .pool = &producer->pool};
    int code = fq_batch_number(batch, &how);
    assert(code == 0); /* a batch with records always finishes */
    ppart->next_sequence = fq_sequence_add(ppart->next_sequence, count);
}

static bool has_place_in_ring(struct fq_ring *ring, struct fq_batch *batch);

/* Where the batch goes; AGAIN: nowhere yet, TOO_LARGE: nowhere ever. */
static int find_place(struct fq_ppart *ppart, struct fq_batch *batch, struct fq_direct_place *ret)
{
    struct fq_ring *ring = ppart->ring;
    bool is_direct = ppart->producer->is_direct;
    unsigned long long most = is_direct ? ring->user.link->session.batch_max_bytes
                                        : ring->window_bytes;
    char text[160];
    if (batch->length > most) {
        (void)snprintf(text, sizeof text, "a batch of %zu bytes exceeds the broker's %s (%llu)",
                       batch->length, is_direct ? "largest batch" : "producer.window.bytes", most);
        fq_producer_note_error(ppart->producer, FLASHQ_ERR_TOO_LARGE, text);
        return FLASHQ_ERR_TOO_LARGE;
    }
    if (is_direct) {
        return fq_ring_has_notify(ring) ? fq_direct_next(&ppart->direct, batch->length, ret)
                                        : FLASHQ_ERR_AGAIN;
    }
    return has_place_in_ring(ring, batch) ? 0 : FLASHQ_ERR_AGAIN;
}

static void fail_too_large(struct fq_ppart *ppart, struct fq_batch *batch)
{
    fq_chain_remove(&batch->node);
    ppart->next_sequence = batch->base_sequence; /* it was the last numbered */
    fq_producer_batch_done(ppart->producer, batch, FLASHQ_ERR_TOO_LARGE,
                           batch->may_be_stored ? FLASHQ_PERSISTED_MAYBE : FLASHQ_PERSISTED_NO, -1,
                           false, false);
}

static void post(struct fq_ppart *ppart, struct fq_batch *batch, const struct fq_direct_place *place)
{
    struct fq_producer *producer = ppart->producer;
    fq_chain_remove(&batch->node);
    fq_chain_append(&ppart->in_flight, &batch->node);
    batch->was_alone = fq_ring_in_flight(ppart->ring) == 0;
    batch->posted_ns = producer->posting_ns != 0 ? producer->posting_ns : fq_mono_ns();
    ppart->in_flight_count++;
    ppart->notifies_posted++;
    producer->stats.batches_resent += batch->was_written;
    producer->stats.batches_sent++;
    producer->stats.batch_bytes += batch->length;
    batch->was_written = true;
    if (producer->is_direct) {
        fq_ring_post_direct(ppart->ring, ppart->slot, batch, place);
    } else {
        fq_ring_post(ppart->ring, ppart->slot, batch);
    }
    /* Where posting cost the connection the batch waits again, or is gone. */
    if (producer->engine->config.acks == FQ_ACKS_NONE && ppart->state == FQ_PPART_OPEN &&
        !batch->is_reported) {
        fq_producer_batch_done(producer, batch, 0, FLASHQ_PERSISTED_MAYBE, -1, false, true);
    }
}

/* The ring's open batch is where another one goes. It goes first if it may and is worth it, else it moves; but for
 * one that the application writes into. */
static bool make_way(struct fq_ring *ring)
{
    struct fq_batch *open = ring->open;
    struct fq_ppart *ppart = open->ppart;
    if (open->is_claimed) {
        return false;
    }
    bool is_first = fq_chain_is_empty(&ppart->waiting) ||
                    fq_chain_item(ppart->waiting.next, struct fq_batch, node) == open;
    bool may_go = ppart->state == FQ_PPART_OPEN && ppart->ring == ring && is_first &&
                  ppart->in_flight_count < ppart->max_in_flight;
    bool is_worth_it = open != ppart->filling || open->builder.used >= ppart->plan.batch_bytes;
    if (!may_go || !is_worth_it) {
        return fq_inring_move_out(open) == 0;
    }
    if (open == ppart->filling) {
        fq_ppart_close_batch(ppart);
    }
    number(ppart, open);
    post(ppart, open, NULL);
    return true;
}

static bool has_place_in_ring(struct fq_ring *ring, struct fq_batch *batch)
{
    if (!fq_ring_has_notify(ring)) {
        return false;
    }
    if (batch == ring->open) {
        return true;
    }
    if (batch->home && fq_inring_move_out(batch) != 0) { /* it was sent from there before */
        return false;
    }
    return (!ring->open || make_way(ring)) && fq_inring_make_room(ring, batch->length);
}

static bool send_batches(struct fq_ppart *ppart, int64_t now_us)
{
    bool has_sent = false;
    struct fq_batch *batch;
    while (ppart->state == FQ_PPART_OPEN && ppart->in_flight_count < ppart->max_in_flight &&
           (batch = next_batch(ppart, now_us)) != NULL) {
        struct fq_direct_place place;
        number(ppart, batch);
        int code = find_place(ppart, batch, &place);
        if (code == FLASHQ_ERR_TOO_LARGE) {
            fail_too_large(ppart, batch);
            continue;
        }
        if (code != 0) {
            break;
        }
        post(ppart, batch, &place);
        has_sent = true;
    }
    return has_sent;
}

bool fq_ppart_pump(struct fq_ppart *ppart, int64_t now_us)
{
    switch (ppart->state) {
    case FQ_PPART_OPEN: return send_batches(ppart, now_us);
    case FQ_PPART_RING:
        if (ppart->wants_reroute) {
            fq_producer_refresh(ppart->producer);
        } else if (ppart->ring->state == FQ_RING_OPEN && now_us >= ppart->retry_us) {
            fq_slot_open(ppart, now_us);
        } else {
            fq_ring_step(ppart->ring, now_us);
        }
        break;
    case FQ_PPART_UNROUTED: fq_producer_refresh(ppart->producer); break;
    case FQ_PPART_OPENING:
    case FQ_PPART_DRAINING: break;
    case FQ_PPART_DEAD: fq_ppart_fail_waiting(ppart, ppart->dead_code); break;
    }
    return false;
}

int64_t fq_ppart_next_deadline_us(const struct fq_ppart *ppart)
{
    if (ppart->state == FQ_PPART_RING && ppart->ring->state == FQ_RING_OPEN) {
        return ppart->retry_us;
    }
    if (ppart->state == FQ_PPART_RING && fq_link_is_up(ppart->ring->user.link) &&
        ppart->ring->state == FQ_RING_CLOSED) {
        return ppart->ring->retry_us;
    }
    if (ppart->state == FQ_PPART_OPEN && ppart->filling && !ppart->filling->is_claimed &&
        fq_chain_is_empty(&ppart->waiting) && ppart->in_flight_count < ppart->max_in_flight &&
        (is_fixed(ppart) || may_go_small(ppart)) &&
        has_room(ppart, ppart->filling)) { /* without, an acknowledgement or the end of a claim brings it on */
        return ppart->filling->created_us + ppart->producer->engine->config.linger_us;
    }
    return INT64_MAX;
}

/* They count on one ring, from when it was opened. */
static void forget_notifies(struct fq_ppart *ppart)
{
    if (ppart->filling) {
        ppart->filling->began_after = 0;
    }
}

void fq_ppart_reroute(struct fq_ppart *ppart, struct fq_link *link)
{
    struct fq_ring *ring;
    if (ppart->state != FQ_PPART_UNROUTED && ppart->state != FQ_PPART_RING) {
        return; /* it works where it is, or says so itself */
    }
    ppart->wants_reroute = false;
    if (ppart->ring && ppart->ring->user.link == link) {
        return;
    }
    if (fq_ring_of(link, &ring) != 0) {
        ppart->wants_reroute = true;
        return;
    }
    if (ppart->ring) {
        fq_ring_leave(ppart->ring, &ppart->ring_node);
    }
    ppart->ring = ring;
    forget_notifies(ppart);
    fq_ring_join(ring, &ppart->ring_node);
    if (ppart->state == FQ_PPART_UNROUTED) {
        fq_ppart_set_state(ppart, FQ_PPART_RING);
    }
}

/* ---- acknowledgements ----------------------------------------------------------------------- */

/* Whether the broker refused a batch before it looked whether it has it already: then nothing is known of
 * what an earlier try under the same sequence came to. */
static bool is_indefinite(int status)
{
    switch (status) {
    case FLASHQ_ERR_OFFLINE:
    case FLASHQ_ERR_FENCED:
    case FLASHQ_ERR_NOT_LEADER:
    case FLASHQ_ERR_BUSY:
    case FLASHQ_ERR_SHUTTING_DOWN:
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID: return true;
    default: return false;
    }
}

/* After a refusal nothing later on the slot was stored: new numbers; but not where an earlier try may have
 * been, for only the old numbers tell the broker so. */
static void renumber_refused(struct fq_ppart *ppart)
{
    if (!ppart->keeps_numbers) {
        fq_slot_next_epoch(ppart);
    }
    ppart->keeps_numbers = false;
}

static void all_answered(struct fq_ppart *ppart)
{
    fq_slot_close(ppart);
    renumber_refused(ppart);
    fq_chain_splice_front(&ppart->waiting, &ppart->refused);
    fq_ppart_set_state(ppart, FQ_PPART_RING);
}

/* The first refusal of a slot, or what follows it. The batch has left `in_flight`. */
static void refused(struct fq_ppart *ppart, struct fq_batch *batch, const struct fq_ack_entry *entry)
{
    struct fq_producer *producer = ppart->producer;
    char text[160];
    int status = entry->status;
    bool again = status == FLASHQ_ERR_SLOT_FAILED || status == FLASHQ_ERR_BUSY ||
                 status == FLASHQ_ERR_SHUTTING_DOWN || status == FLASHQ_ERR_NOT_LEADER;
    if (status == FLASHQ_ERR_SEQUENCE && batch->refusals++ < SEQUENCE_REFUSALS_MAX) {
        again = true; /* something before it was given up and is not stored */
    }
    ppart->keeps_numbers |= is_indefinite(status);
    if (status == FLASHQ_ERR_NOT_LEADER) {
        ppart->wants_reroute = true;
        fq_producer_refresh(producer);
    }
    if (again && !batch->is_reported) {
        if (status != FLASHQ_ERR_SLOT_FAILED && status != FLASHQ_ERR_SEQUENCE) {
            fq_ppart_pause(ppart);
        }
        fq_chain_append(&ppart->refused, &batch->node);
        return;
    }
    if (!again) {
        if (status == FLASHQ_ERR_TOO_LARGE || status == FLASHQ_ERR_TIMESTAMP) {
            (void)snprintf(text, sizeof text, "refused by the broker: %s (limit %lld)",
                           fq_err_describe(status), (long long)entry->detail);
        } else {
            (void)snprintf(text, sizeof text, "refused by the broker: %s", fq_err_describe(status));
        }
        fq_producer_note_error(producer, status, text);
    }
    bool is_maybe = status == FLASHQ_ERR_MAYBE_PERSISTED ||
                    (batch->may_be_stored && is_indefinite(status));
    fq_producer_batch_done(producer, batch, status,
                           is_maybe ? FLASHQ_PERSISTED_MAYBE : FLASHQ_PERSISTED_NO, -1, false, false);
}

bool fq_ppart_acked(struct fq_ppart *ppart, const struct fq_ack_entry *entry)
{
    bool is_expected = ppart->state == FQ_PPART_OPEN || ppart->state == FQ_PPART_DRAINING;
    if (!is_expected || entry->notify != ppart->notifies_acked ||
        ppart->notifies_acked == ppart->notifies_posted || entry->status > 0 ||
        (entry->status == 0 && (entry->base_offset < 0 || ppart->state == FQ_PPART_DRAINING))) {
        return false;
    }
    struct fq_batch *batch = fq_chain_item(ppart->in_flight.next, struct fq_batch, node);
    fq_chain_remove(&batch->node);
    ppart->in_flight_count--;
    ppart->notifies_acked++;
    fq_estimate_answered(&ppart->ring->estimate, ppart->ring->looked_ns, batch->posted_ns, batch->length,
                         batch->was_alone);
    if (entry->status == 0) {
        fq_producer_batch_done(ppart->producer, batch, 0, ppart->producer->persisted, entry->base_offset,
                               (entry->flags & FQ_ACK_DUPLICATE) != 0, false);
    } else {
        if (ppart->state == FQ_PPART_OPEN) {
            fq_ppart_set_state(ppart, FQ_PPART_DRAINING);
        }
        refused(ppart, batch, entry);
    }
    if (ppart->state == FQ_PPART_DRAINING && ppart->in_flight_count == 0) {
        all_answered(ppart);
    }
    return true;
}

/* ---- direct slots ----------------------------------------------------------------------------- */

int fq_ppart_direct_window(struct fq_ppart *ppart, const struct fq_direct_window *window,
                           struct fq_err *err)
{
    struct fq_link *link = ppart->ring->user.link;
    if (!ppart->producer->is_direct) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "a direct window for a slot that is not direct");
    }
    if (ppart->state != FQ_PPART_OPEN) {
        return 0; /* nothing more is sent on this slot */
    }
    int code = fq_direct_take(&ppart->direct, fq_link_conn(link), window,
                              link->session.batch_max_bytes, err);
    if (code == 0) {
        (void)fq_ppart_pump(ppart, ppart->producer->engine->now_us);
    }
    return code;
}

/* The slot has failed. What was notified is still answered; what was not goes back. */
void fq_ppart_revoked(struct fq_ppart *ppart, int reason)
{
    struct fq_batch *part = fq_ring_abandon(ppart->ring, ppart->slot);
    if (part) { /* the last one in flight */
        fq_chain_remove(&part->node);
        fq_chain_append(&ppart->refused, &part->node);
        ppart->in_flight_count--;
        ppart->notifies_posted--;
    }
    if (ppart->state == FQ_PPART_OPEN) {
        ppart->keeps_numbers = true;
        ppart->was_fenced = reason == FLASHQ_ERR_FENCED;
        fq_producer_note_error(ppart->producer, reason,
                               ppart->was_fenced ? "this producer was silent, and another one has taken "
                                                   "the partition over"
                                                 : NULL);
        fq_ppart_set_state(ppart, FQ_PPART_DRAINING);
    }
    if (ppart->in_flight_count == 0) {
        all_answered(ppart);
    }
}

/* ---- the ring comes and goes ------------------------------------------------------------------ */

void fq_ppart_ring_up(struct fq_ring *ring)
{
    for (struct fq_chain *at = ring->pparts.next, *next; at != &ring->pparts; at = next) {
        next = at->next;
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, ring_node);
        ppart->retry_us = 0;
        if (!fq_ppart_is_idle(ppart)) {
            (void)fq_ppart_pump(ppart, ring->engine->now_us);
        }
    }
}

void fq_ppart_lost(struct fq_batch *batch, int code)
{
    struct fq_ppart *ppart = batch->ppart;
    if (batch->is_claimed) {
        fail_claimed(ppart, code);
        return;
    }
    if (batch == ppart->filling) {
        fq_ppart_close_batch(ppart);
    }
    for (struct fq_chain *at = ppart->in_flight.next; at != &ppart->in_flight; at = at->next) {
        ppart->in_flight_count -= at == &batch->node;
    }
    fq_chain_remove(&batch->node);
    fq_producer_batch_done(ppart->producer, batch, code,
                           batch->was_written ? FLASHQ_PERSISTED_MAYBE : FLASHQ_PERSISTED_NO, -1,
                           false, false);
}

/* What was in flight goes back to be sent again, but for what nobody waits for any more. */
static void take_back(struct fq_ppart *ppart)
{
    for (struct fq_chain *at = ppart->in_flight.next, *next; at != &ppart->in_flight; at = next) {
        next = at->next;
        struct fq_batch *batch = fq_chain_item(at, struct fq_batch, node);
        batch->may_be_stored = true;
        if (batch->is_reported) {
            fq_chain_remove(&batch->node);
            fq_producer_batch_free(ppart->producer, batch);
        }
    }
    fq_chain_splice_front(&ppart->waiting, &ppart->in_flight);
    ppart->in_flight_count = 0;
}

void fq_ppart_ring_down(struct fq_ring *ring, int code, const char *text)
{
    for (struct fq_chain *at = ring->pparts.next, *next; at != &ring->pparts; at = next) {
        next = at->next;
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, ring_node);
        if (ppart->state == FQ_PPART_DEAD) {
            continue;
        }
        fq_producer_note_error(ppart->producer, code, text);
        ppart->wants_reroute |= ppart->producer->is_direct; /* the broker may have come back elsewhere */
        if (ppart->state == FQ_PPART_RING) {
            continue;
        }
        fq_direct_end(&ppart->direct);
        ppart->producer->stats.reconnects++;
        forget_notifies(ppart);
        bool was_draining = ppart->state == FQ_PPART_DRAINING;
        take_back(ppart);
        fq_chain_splice_front(&ppart->waiting, &ppart->refused);
        if (was_draining) {
            renumber_refused(ppart);
        }
        fq_link_cancel(ring->user.link, ppart);
        fq_ppart_set_state(ppart, FQ_PPART_RING);
    }
}

void fq_ppart_ring_refused(struct fq_ring *ring, int code, const char *text)
{
    for (struct fq_chain *at = ring->pparts.next, *next; at != &ring->pparts; at = next) {
        next = at->next;
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, ring_node);
        fq_producer_note_error(ppart->producer, code, text);
    }
}

/* ---- giving up ------------------------------------------------------------------------------ */

/* What a batch fails with that waited here to the end of its time, and the words for it. */
static int expiry_code(const struct fq_ppart *ppart)
{
    struct fq_producer *producer = ppart->producer;
    char text[FQ_ERR_TEXT_BYTES];
    if (ppart->refused_code == FLASHQ_ERR_OFFLINE || ppart->refused_code == FLASHQ_ERR_EXCLUSIVE) {
        return ppart->refused_code; /* its reason is the producer's latest error */
    }
    const struct fq_err *why = NULL;
    if (ppart->ring && ppart->ring->state != FQ_RING_OPEN) {
        const struct fq_link *link = ppart->ring->user.link;
        why = link->last_error.code != 0 ? &link->last_error : &ppart->ring->why_closed;
    }
    if (why && why->code != 0) {
        (void)snprintf(text, sizeof text, "no acknowledgement within the timeout: %.400s", why->text);
        fq_producer_note_error(producer, FLASHQ_ERR_TIMED_OUT, text);
    }
    return FLASHQ_ERR_TIMED_OUT;
}

int64_t fq_ppart_expire(struct fq_ppart *ppart, int64_t now_us)
{
    struct fq_producer *producer = ppart->producer;
    int64_t span = producer->engine->config.delivery_timeout_ms * 1000;
    for (struct fq_chain *at = ppart->in_flight.next; at != &ppart->in_flight; at = at->next) {
        struct fq_batch *batch = fq_chain_item(at, struct fq_batch, node);
        if (batch->is_reported) {
            continue;
        }
        if (batch->created_us + span > now_us) {
            return batch->created_us + span;
        }
        /* Its memory stays until the answer or the end of the connection: it may still be written. */
        fq_producer_batch_done(producer, batch, FLASHQ_ERR_TIMED_OUT, FLASHQ_PERSISTED_MAYBE, -1,
                               false, true);
    }
    bool is_claimed = ppart->filling && ppart->filling->is_claimed; /* its time comes afterwards */
    if (fq_chain_is_empty(&ppart->waiting) && ppart->filling && !is_claimed &&
        ppart->filling->created_us + span <= now_us) {
        fq_ppart_close_batch(ppart);
    }
    while (!fq_chain_is_empty(&ppart->waiting)) {
        struct fq_batch *batch = fq_chain_item(ppart->waiting.next, struct fq_batch, node);
        if (batch->created_us + span > now_us) {
            return batch->created_us + span;
        }
        fq_chain_remove(&batch->node);
        fq_producer_batch_done(producer, batch, batch->was_written ? FLASHQ_ERR_TIMED_OUT
                                                                   : expiry_code(ppart),
                               persisted_of_waiting(batch), -1, false, false);
    }
    return ppart->filling && !is_claimed ? ppart->filling->created_us + span : INT64_MAX;
}
