/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing of the producer's side: the ring with its two windows, and the slots. What
 * happens in between is in ring.c.
 *
 * RING_OPEN is answered when the housekeeper has made the ring's memory (zeroing megabytes is not
 * for a shard). A slot is closed by its client, by the end of the connection, or by the deletion of
 * its topic; it lives on until the last of its batches is acknowledged.
 */
#include <assert.h>
#include <stdlib.h>

#include "session/direct.h"
#include "storage/log.h"
#include "wire/protocol_codec.h"

/* ---- opening -------------------------------------------------------------------------------- */

int fq_ring_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_ring *ring = &session->ring;
    struct fq_ring_open open;
    struct fq_task *task;
    int code = fq_decode_ring_open(msg, &open, err);
    if (code != 0) {
        return code;
    }
    if (ring->region || ring->is_opening) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "this connection has its ring already");
    }
    uint32_t entries =
        open.entries < FQ_LIMIT_ACK_RING_ENTRIES ? open.entries : FQ_LIMIT_ACK_RING_ENTRIES;
    if (entries == 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "an acknowledgement ring of 0 entries");
    }
    code = fq_remote_open(session->conn, open.ack_token, FQ_RIGHT_WRITE, &ring->acks, err);
    if (code == 0 &&
        fq_remote_bytes(ring->acks) < FQ_ACK_HEAD_BYTES + entries * FQ_ACK_ENTRY_BYTES) {
        code = fq_err_set(err, FLASHQ_ERR_INVALID,
                          "an acknowledgement ring of %u entries needs %zu bytes, not %llu",
                          entries, FQ_ACK_HEAD_BYTES + entries * FQ_ACK_ENTRY_BYTES,
                          (unsigned long long)fq_remote_bytes(ring->acks));
    }
    if (code == 0) {
        code = fq_request_task(session, msg, FQ_TASK_RING, &task, err);
    }
    if (code != 0) {
        fq_count(session->host->counters, FQ_COUNT_BAD_WINDOW);
        fq_remote_close(ring->acks);
        ring->acks = NULL;
        return code;
    }
    ring->entries = entries;
    ring->is_opening = true;
    task->region_bytes = session->host->window_bytes;
    fq_request_submit(session, task);
    return 0;
}

static void free_buffers(struct fq_ring *ring)
{
    free(ring->notifies);
    free(ring->pending);
    fq_region_unref(ring->staging);
    fq_region_unref(ring->region);
    ring->notifies = NULL;
    ring->pending = NULL;
    ring->staging = ring->region = NULL;
}

/* Takes over the task's region; 0 or an error that leaves the ring closed. */
static int open_ring(struct fq_session *session, struct fq_task *task,
                     struct fq_ring_open_answer *answer, struct fq_err *err)
{
    struct fq_ring *ring = &session->ring;
    ring->region = task->region;
    task->region = NULL;
    ring->bytes = fq_region_bytes(ring->region);
    ring->base = fq_region_base(ring->region);
    ring->notifies = calloc(ring->entries, sizeof *ring->notifies);
    ring->pending = calloc(ring->entries, sizeof *ring->pending);
    int code = ring->notifies && ring->pending
                   ? fq_region_create(ring->entries * FQ_ACK_ENTRY_BYTES, FQ_REGION_LOCAL,
                                      &ring->staging, err)
                   : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    if (code == 0) {
        code = fq_window_grant(session->conn, ring->region, 0, ring->bytes, FQ_RIGHT_WRITE,
                               &ring->window, answer->window_token, err);
    }
    if (code != 0) {
        free_buffers(ring);
        return code;
    }
    answer->window_bytes = ring->bytes;
    answer->entries = ring->entries;
    fq_count(session->host->counters, FQ_COUNT_RINGS_OPEN);
    return 0;
}

void fq_ring_on_region(struct fq_session *session, struct fq_task *task)
{
    struct fq_msg msg = {.type = FQ_MSG_RING_OPEN, .correlation = task->correlation};
    struct fq_ring *ring = &session->ring;
    struct fq_ring_open_answer answer = {.entries = 0};
    struct fq_err err;
    uint8_t bytes[256];
    fq_err_clear(&err);
    ring->is_opening = false;
    int code = task->region
                   ? open_ring(session, task, &answer, &err)
                   : fq_err_set(&err, task->status != 0 ? task->status : FLASHQ_ERR_NO_MEMORY,
                                "no memory for a producer window of %llu bytes",
                                (unsigned long long)task->region_bytes);
    if (code != 0) {
        fq_remote_close(ring->acks);
        ring->acks = NULL;
        task->status = 0; /* refuse counts it */
        fq_session_refuse(session, &msg, code, err.text);
        return;
    }
    fq_session_send_encoded(
        session, bytes,
        fq_encode_ring_open_answer(bytes, sizeof bytes, task->correlation, &answer));
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void unlink_slot(struct fq_slot *slot)
{
    if (slot->hosted) {
        *slot->link = slot->next;
        if (slot->next) {
            slot->next->link = slot->link;
        }
        slot->hosted = NULL;
    }
}

static void link_slot(struct fq_slot *slot, struct fq_hosted *hosted)
{
    slot->hosted = hosted;
    slot->next = hosted->slots;
    slot->link = &hosted->slots;
    if (slot->next) {
        slot->next->link = &slot->next;
    }
    hosted->slots = slot;
}

static void close_slot(struct fq_session *session, struct fq_slot *slot)
{
    fq_direct_close(slot);
    if (slot->hosted && slot->hosted->partition) {
        fq_partition_producer_close(slot->hosted->partition, slot->producer_id);
    }
    fq_handles_remove(&session->slots, slot->handle);
    fq_count_add(session->host->counters, FQ_COUNT_PRODUCERS_OPEN, -1);
    slot->is_closed = true;
}

void fq_slot_free_if_done(struct fq_slot *slot)
{
    if (slot->is_closed && slot->pending == 0) {
        unlink_slot(slot);
        free(slot);
    }
}

/* Everything that may be wrong with the request, then the partition's word. */
static int open_producer(struct fq_session *session, const struct fq_producer_open *open,
                         struct fq_hosted **ret_hosted, struct fq_producer_opened *ret,
                         struct fq_err *err)
{
    if (!session->ring.region) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "PRODUCER_OPEN before RING_OPEN");
    }
    if (open->acks > FQ_ACKS_NONE) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "acks %u is none of all (0), leader (1), none (2)", open->acks);
    }
    int code =
        fq_hosted_find(session->host->hosted, &open->topic_id, open->partition, ret_hosted, err);
    if (code == 0) {
        code = fq_hosted_open(*ret_hosted, NULL, err);
    }
    if (code == 0) {
        code = fq_partition_state((*ret_hosted)->partition, err);
    }
    if (code == 0) {
        code = fq_direct_check_open(session, *ret_hosted, open, err);
    }
    return code != 0
               ? code
               : fq_partition_producer_open((*ret_hosted)->partition, open->producer_id,
                                            open->producer_epoch, open->next_sequence, ret, err);
}

int fq_ring_on_producer_open(struct fq_session *session, const struct fq_msg *msg,
                             struct fq_err *err)
{
    struct fq_producer_open open;
    struct fq_producer_opened opened;
    struct fq_hosted *hosted;
    uint8_t bytes[256];
    int code = fq_decode_producer_open(msg, &open, err);
    if (code == 0) {
        code = open_producer(session, &open, &hosted, &opened, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_slot *slot = calloc(1, sizeof *slot);
    uint32_t handle = slot ? fq_handles_add(&session->slots, open.mode, slot) : FQ_HANDLE_NONE;
    if (handle == FQ_HANDLE_NONE) {
        fq_partition_producer_close(hosted->partition, open.producer_id);
        free(slot);
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "no more producers on this connection (limit %u)",
                          FQ_LIMIT_SLOTS_PER_CONNECTION - 1);
    }
    slot->session = session;
    slot->handle = handle;
    slot->producer_id = open.producer_id;
    slot->producer_epoch = open.producer_epoch;
    slot->acks = open.acks;
    link_slot(slot, hosted);
    fq_count(session->host->counters, FQ_COUNT_PRODUCERS_OPEN);
    code = open.mode == FQ_APPEND_DIRECT ? fq_direct_begin(slot, err) : 0;
    if (code != 0) {
        close_slot(session, slot);
        fq_slot_free_if_done(slot);
        return code;
    }
    struct fq_producer_open_answer answer = {
        .slot = handle,
        .leader_epoch = fq_partition_leader_epoch(hosted->partition),
        .last_sequence = opened.last_sequence,
        .last_offset = opened.last_offset,
        .end = fq_log_end(fq_partition_log(hosted->partition)),
        .max_in_flight = session->host->max_in_flight,
        .message_max_bytes = (uint32_t)hosted->topic->config.message_max_bytes};
    fq_session_send_encoded(
        session, bytes,
        fq_encode_producer_open_answer(bytes, sizeof bytes, msg->correlation, &answer));
    fq_direct_announce(slot);
    return 0;
}

int fq_ring_on_producer_close(struct fq_session *session, const struct fq_msg *msg,
                              struct fq_err *err)
{
    struct fq_slot_ref ref;
    uint8_t bytes[64];
    int code = fq_decode_producer_close(msg, &ref, err);
    if (code != 0) {
        return code;
    }
    struct fq_slot *slot = fq_handles_get(&session->slots, ref.slot);
    if (!slot) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "no producer has slot %u", ref.slot);
    }
    fq_ring_drain_all(session); /* what it notified before counts; may end the session */
    slot = fq_handles_get(&session->slots, ref.slot);
    if (!slot || session->state != FQ_SESSION_OPEN) {
        return 0;
    }
    close_slot(session, slot);
    fq_slot_free_if_done(slot);
    fq_session_send_encoded(
        session, bytes,
        fq_encode_empty(bytes, sizeof bytes, FQ_MSG_PRODUCER_CLOSE, true, msg->correlation));
    return 0;
}

/* ---- going away ----------------------------------------------------------------------------- */

void fq_ring_on_hosted_gone(struct fq_slot *slot)
{
    if (slot->failed == 0) {
        slot->failed = FLASHQ_ERR_UNKNOWN_TOPIC_ID;
    }
    fq_direct_revoke(slot, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    unlink_slot(slot);
    fq_session_make_due(slot->session);
}

void fq_ring_close(struct fq_session *session)
{
    struct fq_ring *ring = &session->ring;
    for (uint32_t i = 0; i < ring->pending_count; i++) {
        struct fq_slot *slot = ring->pending[i].slot;
        if (slot) {
            slot->pending--;
            fq_slot_free_if_done(slot);
        }
    }
    ring->pending_count = 0;
    for (uint32_t i = 0; i < session->slots.used; i++) {
        struct fq_slot *slot = fq_handles_at(&session->slots, i);
        if (slot) {
            close_slot(session, slot);
            fq_slot_free_if_done(slot);
        }
    }
    if (ring->window) {
        fq_window_revoke(ring->window);
        ring->window = NULL;
        fq_count_add(session->host->counters, FQ_COUNT_RINGS_OPEN, -1);
    }
    fq_remote_close(ring->acks);
    ring->acks = NULL;
    free_buffers(ring);
}
