/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer's side of a session: taking batches and acknowledging them. Opening and closing are
 * in slots.c.
 *
 * Happy path: a notify names a slot, and its session takes turns with the others that have
 * something to take; the batch at the ring's position goes to the slot's partition; once the
 * partition's high watermark has reached its end, one entry is written into the client's ring, and
 * one notify per step tells of all entries written in it.
 *
 * Positions: every notify takes one batch from the ring, in notify order, whatever becomes of it;
 * the ring's position is the sum of the lengths modulo its size, so a length that cannot be
 * believed ends the connection. A batch that finds no prepared segment stays where it is, and so
 * does all behind it, until the store has made progress.
 *
 * Turns: each adds to the session's credit of bytes, and what it takes is drawn from it, also below
 * 0, which later turns make up for; so producers of large and of small batches, of many and of few,
 * get the same share while all have something to send. A session that finds no segment keeps its
 * place before all that came later.
 *
 * Credits: notifies not taken + batches not acknowledged + acknowledgements not posted never exceed
 * the entries of the client's ring, or the client is disconnected; so no entry is ever overwritten
 * before it was read, and nothing here is allocated per batch.
 *
 * Refusals: a refused batch fails its slot; what follows on the slot is taken from the ring and
 * answered SLOT_FAILED. Acknowledgements of one slot keep their order.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "session/direct.h"
#include "storage/log.h"
#include "wire/protocol_codec.h"
#include "wire/record_batch.h"

#define BATCH_BEFORE_LENGTH 12u        /* baseOffset and batchLength itself */
#define LINE_BYTES          64u
#define FETCH_EARLY_BYTES   1280u
#define TURN_BYTES          (64 << 10) /* what a session may take before the next one's turn */
#define ROUND_BYTES         (1 << 20)  /* and all of them before a round commits and acknowledges */

/* ---- taking batches ------------------------------------------------------------------------- */

/* The lines of a small batch lie in its producer's cache: they come all at once, while the session gets its turn, instead
 * of one by one when the batch is looked at. (The ring is mapped twice in a row.) */
static void fetch_early(const struct fq_ring *ring)
{
    const uint8_t *at = ring->base + ring->consumed % ring->bytes;
    for (size_t i = 0; i < FETCH_EARLY_BYTES; i += LINE_BYTES) {
        __builtin_prefetch(at + i);
    }
}

void fq_ring_on_notify(struct fq_session *session, uint32_t slot)
{
    struct fq_ring *ring = &session->ring;
    if (!ring->region) {
        fq_session_end(session, FQ_COUNT_BAD_NOTIFY, "a notify without a ring");
        return;
    }
    if (!fq_handles_get(&session->slots, slot) && !fq_handles_is_gone(&session->slots, slot)) {
        fq_session_end(session, FQ_COUNT_BAD_NOTIFY, "a notify for slot %u, which was never given",
                       slot);
        return;
    }
    uint64_t out =
        ring->notifies_count + ring->pending_count + (ring->head.tail - ring->posted_tail);
    if (out >= ring->entries) {
        fq_session_end(session, FQ_COUNT_BAD_CREDIT, "more than %u notifies in flight",
                       ring->entries);
        return;
    }
    if (fq_handles_kind(&session->slots, slot) == FQ_APPEND_DIRECT) {
        fq_direct_on_notify(session,
                            slot); /* nothing of it lies in the ring: it waits for nobody */
        return;
    }
    if (ring->notifies_count == 0) {
        fetch_early(ring);
    }
    ring->notifies[(ring->notifies_head + ring->notifies_count) % ring->entries] = slot;
    ring->notifies_count++;
    if (fq_chain_is_empty(&session->taking)) {
        fq_chain_append(&session->host->taking, &session->taking);
    }
}

struct fq_pending *fq_ring_add_pending(struct fq_ring *ring, struct fq_slot *slot, uint32_t handle,
                                       int status)
{
    struct fq_pending *pending = &ring->pending[ring->pending_count++];
    *pending = (struct fq_pending){.slot = slot,
                                   .entry = {.slot = handle, .status = status, .base_offset = -1}};
    if (slot) {
        pending->entry.notify = slot->notifies++;
        slot->pending++;
    }
    return pending;
}

static const uint8_t *ring_at(const struct fq_ring *ring)
{
    return ring->base + ring->consumed % ring->bytes;
}

/* The length of a batch that nobody wants; 0: not to be believed. */
static uint64_t unwanted_bytes(const struct fq_session *session)
{
    uint64_t length =
        (uint64_t)fq_load_be32(ring_at(&session->ring) + FQ_BATCH_LENGTH) + BATCH_BEFORE_LENGTH;
    return length >= FQ_BATCH_HEADER_BYTES && length <= session->ring.bytes ? length : 0;
}

static void count_append(struct fq_counters *counters, const struct fq_append_result *result)
{
    if (result->duplicate) {
        fq_count(counters, FQ_COUNT_APPEND_DUPLICATES);
        return;
    }
    fq_count(counters, FQ_COUNT_APPEND_BATCHES);
    fq_count_add(counters, FQ_COUNT_APPEND_BYTES, (int64_t)result->bytes);
    fq_count_add(counters, FQ_COUNT_APPEND_RECORDS, result->end_offset - result->base_offset);
}

int fq_ring_note_outcome(struct fq_slot *slot, int code, const struct fq_append_result *result,
                         const struct fq_err *err)
{
    struct fq_session *session = slot->session;
    struct fq_counters *counters = session->host->counters;
    if (code == 0) {
        struct fq_pending *pending = fq_ring_add_pending(&session->ring, slot, slot->handle, 0);
        pending->entry.base_offset = result->base_offset;
        pending->entry.flags = result->duplicate ? FQ_ACK_DUPLICATE : 0;
        pending->end_offset = result->end_offset;
        fq_hosted_touch(slot->hosted);
        count_append(counters, result);
        return 0;
    }
    fq_count_refusal(counters, code);
    fq_debug("%s: batch refused by partition %u of \"%s\": %s", fq_conn_peer_name(session->conn),
             slot->hosted->index, slot->hosted->topic->name, err->text);
    if (result->bytes == 0) {
        fq_session_end(session, FQ_COUNT_BAD_BATCH, "%s", err->text);
        return code;
    }
    fq_hosted_touch(slot->hosted); /* its state may have changed */
    slot->failed = FLASHQ_ERR_SLOT_FAILED;
    fq_ring_add_pending(&session->ring, slot, slot->handle, code)->entry.detail = result->detail;
    return 0;
}

/* A batch for a slot in order. 1: taken, *ret_bytes long; 0: starved; negative: the ring is lost.
 */
static int append(struct fq_session *session, struct fq_slot *slot, uint64_t *ret_bytes)
{
    struct fq_ring *ring = &session->ring;
    struct fq_append_result result = {.bytes = 0};
    struct fq_err err;
    fq_err_clear(&err);
    if (slot->hosted->starved_in == session->host->takes) {
        return 0; /* whoever waited there before comes first, also if a segment came meanwhile */
    }
    int code = fq_partition_append(slot->hosted->partition, ring_at(ring), ring->bytes,
                                   slot->producer_id, slot->producer_epoch, &result, &err);
    if (code == FQ_APPEND_STARVED) {
        slot->hosted->starved_in = session->host->takes;
        return 0;
    }
    code = fq_ring_note_outcome(slot, code, &result, &err);
    *ret_bytes = result.bytes;
    return code < 0 ? code : 1;
}

/* A batch of a slot that has failed or is gone: only its room in the ring counts. */
static int skip(struct fq_session *session, struct fq_slot *slot, uint32_t handle,
                uint64_t *ret_bytes)
{
    *ret_bytes = unwanted_bytes(session);
    if (*ret_bytes == 0) {
        fq_session_end(session, FQ_COUNT_BAD_BATCH, "a batch whose length cannot be true");
        return FLASHQ_ERR_PROTOCOL;
    }
    int code = slot ? slot->failed : FLASHQ_ERR_SLOT_FAILED;
    fq_count_refusal(session->host->counters, code);
    (void)fq_ring_add_pending(&session->ring, slot, handle, code);
    return 1;
}

/* Takes batches while the session's credit lasts; it may end below 0. */
static unsigned drain(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    unsigned taken = 0;
    bool was_starved = ring->is_starved;
    ring->is_starved = false;
    while (ring->notifies_count > 0 && ring->credit > 0 && session->state == FQ_SESSION_OPEN) {
        uint32_t handle = ring->notifies[ring->notifies_head];
        struct fq_slot *slot = fq_handles_get(&session->slots, handle);
        uint64_t bytes = 0;
        int result = slot && slot->failed == 0 ? append(session, slot, &bytes)
                                               : skip(session, slot, handle, &bytes);
        if (result < 0) {
            break;
        }
        if (result == 0) {
            ring->is_starved = true;
            if (!was_starved) {
                fq_count(session->host->counters, FQ_COUNT_SEGMENTS_STARVED);
            }
            break;
        }
        ring->consumed += bytes;
        ring->credit -= (int64_t)bytes;
        ring->notifies_head = (ring->notifies_head + 1) % ring->entries;
        ring->notifies_count--;
        taken++;
    }
    if (ring->pending_count > 0) {
        fq_session_make_due(session);
    }
    return taken;
}

void fq_ring_drain_all(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    if (ring->notifies_count > 0 && !ring->is_starved && !session->host->is_stopping) {
        int64_t credit = ring->credit;
        ring->credit = INT64_MAX;
        (void)drain(session);
        ring->credit = credit - (INT64_MAX - ring->credit);
    }
}

unsigned fq_sessions_take(struct fq_session_host *host)
{
    struct fq_chain starved;
    unsigned taken = 0;
    int64_t left = host->is_stopping ? 0 : ROUND_BYTES;
    fq_chain_init(&starved);
    host->takes++;
    while (left > 0 && !fq_chain_is_empty(&host->taking)) {
        struct fq_session *session = fq_chain_item(host->taking.next, struct fq_session, taking);
        struct fq_ring *ring = &session->ring;
        int64_t credit = ring->credit += TURN_BYTES;
        taken += drain(session);
        left -= credit - ring->credit;
        if (ring->is_starved) {
            ring->credit -= TURN_BYTES; /* who waits does not save up */
            fq_chain_append(&starved, &session->taking);
        } else if (ring->notifies_count > 0 && session->state == FQ_SESSION_OPEN) {
            fq_chain_append(&host->taking, &session->taking);
        } else {
            ring->credit = ring->credit < 0 ? ring->credit : 0;
            fq_chain_remove(&session->taking);
        }
    }
    fq_chain_append_all(&starved, &host->taking); /* first again, in their order */
    fq_chain_append_all(&host->taking, &starved);
    return taken;
}

/* ---- acknowledging -------------------------------------------------------------------------- */

/* Whether the batch's outcome is known, in entry.status. */
static bool is_decided(struct fq_pending *pending)
{
    struct fq_slot *slot = pending->slot;
    if (pending->entry.status != 0 || !slot || slot->acks == FQ_ACKS_NONE) {
        return true;
    }
    struct fq_hosted *hosted = slot->hosted;
    if (!hosted || !hosted->partition) { /* deleted under it */
        pending->entry.status = FLASHQ_ERR_MAYBE_PERSISTED;
        return true;
    }
    if (pending->end_offset <= hosted->high_watermark) {
        return true;
    }
    if (hosted->offline != 0) {
        pending->entry.status = FLASHQ_ERR_MAYBE_PERSISTED;
        return true;
    }
    return slot->acks == FQ_ACKS_LEADER &&
           fq_log_durable_end(fq_partition_log(hosted->partition)) >= pending->end_offset;
}

static void write_entry(struct fq_session *session, struct fq_pending *pending)
{
    struct fq_ring *ring = &session->ring;
    uint8_t *staging = fq_region_base(ring->staging);
    if (pending->entry.status == FLASHQ_ERR_MAYBE_PERSISTED) {
        pending->entry.base_offset = -1;
        fq_count(session->host->counters, FQ_COUNT_APPEND_MAYBE);
    }
    memcpy(staging + ring->head.tail % ring->entries * FQ_ACK_ENTRY_BYTES, &pending->entry,
           FQ_ACK_ENTRY_BYTES);
    ring->head.tail++;
    if (pending->slot) {
        pending->slot->pending--;
    }
}

/* Moves what is decided from the pending to the staged entries, each slot's in order. */
static unsigned settle(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ring->pending_count; i++) {
        struct fq_pending *pending = &ring->pending[i];
        struct fq_slot *slot = pending->slot;
        if ((slot && slot->is_held) || !is_decided(pending)) {
            slot->is_held = true; /* without a slot everything is decided */
            ring->pending[kept++] = *pending;
            continue;
        }
        write_entry(session, pending);
        if (slot) {
            fq_slot_free_if_done(slot);
        }
    }
    unsigned settled = ring->pending_count - kept;
    ring->pending_count = kept;
    for (uint32_t i = 0; i < kept; i++) {
        ring->pending[i].slot->is_held = false;
    }
    fq_count_add(session->host->counters, FQ_COUNT_ACKS, settled);
    return settled;
}

/* Entries, then the head with its notify; all of it again next time if the fabric is full. */
static void post(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    struct fq_op ops[3];
    size_t count = 0;
    uint64_t from = ring->posted_tail, left = ring->head.tail - from;
    uint8_t *staging = fq_region_base(ring->staging);
    while (left > 0) { /* one piece, or two around the ring's end */
        uint64_t at = from % ring->entries;
        uint64_t run = ring->entries - at < left ? ring->entries - at : left;
        ops[count++] = (struct fq_op){.type = FQ_OP_WRITE,
                                      .remote = ring->acks,
                                      .remote_offset = FQ_ACK_HEAD_BYTES + at * FQ_ACK_ENTRY_BYTES,
                                      .region = ring->staging,
                                      .local = staging + at * FQ_ACK_ENTRY_BYTES,
                                      .length = run * FQ_ACK_ENTRY_BYTES};
        from += run;
        left -= run;
    }
    ops[count++] = (struct fq_op){.type = FQ_OP_WRITE_NOTIFY,
                                  .remote = ring->acks,
                                  .local = &ring->head,
                                  .length = 2 * sizeof(uint64_t),
                                  .imm = FQ_ACK_NOTIFY_IMM};
    if (fq_conn_post(session->conn, ops, count) == (int)count) {
        ring->posted_tail = ring->head.tail;
        ring->posted_consumed = ring->head.consumed;
        fq_count(session->host->counters, FQ_COUNT_ACK_ROUNDS);
    }
}

unsigned fq_ring_acknowledge(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    if (!ring->region) {
        return 0;
    }
    unsigned settled = ring->pending_count > 0 ? settle(session) : 0;
    ring->head.consumed = ring->consumed;
    /* Room alone is told when a quarter of the ring came back: a producer may wait for it while its
     * batches are being synced. */
    if (ring->head.tail != ring->posted_tail ||
        ring->head.consumed - ring->posted_consumed >= ring->bytes / 4) {
        post(session);
    }
    return settled;
}

bool fq_ring_is_waiting(const struct fq_session *session)
{
    const struct fq_ring *ring = &session->ring;
    return ring->pending_count > 0 || ring->head.tail != ring->posted_tail;
}
