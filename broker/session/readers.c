/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's side of a session: readers, the segments they hold, their wake-ups.
 *
 * A reader reads by itself: the view line and the windows on segments are all it needs. The broker
 * hears of it when it opens or closes a segment and when it is about to sleep. A held segment is
 * pinned, so it is neither recycled nor unmapped; when the log retires it the reader is told, and
 * after FQ_RETIRING_MS it is cut. Memory that a peer maps cannot be cut: unless the peer itself
 * gave the segment back, its application may still look at records there, so its bytes stay what
 * they are for as long as anybody maps them. A wake-up is one notify per arming, so what a client
 * gets never exceeds what it asked for.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "session/session_internal.h"
#include "storage/log.h"
#include "wire/protocol_codec.h"

/* ---- readers -------------------------------------------------------------------------------- */

static void unlink_reader(struct fq_remote_reader *reader)
{
    fq_chain_remove(&reader->armed);
    if (reader->hosted) {
        *reader->link = reader->next;
        if (reader->next) {
            reader->next->link = reader->link;
        }
        reader->hosted = NULL;
    }
}

static void link_reader(struct fq_remote_reader *reader, struct fq_hosted *hosted)
{
    reader->hosted = hosted;
    reader->next = hosted->readers;
    reader->link = &hosted->readers;
    if (reader->next) {
        reader->next->link = &reader->next;
    }
    hosted->readers = reader;
}

static void release(struct fq_remote_reader *reader, struct fq_held_segment *held)
{
    struct fq_counters *counters = reader->session->host->counters;
    fq_window_revoke(held->window);
    fq_segment_unpin(held->segment);
    fq_count_add(counters, FQ_COUNT_SEGMENTS_HELD, -1);
    if (held->cut_at_us != INT64_MAX) {
        fq_count_add(counters, FQ_COUNT_SEGMENTS_RETIRING, -1);
    }
    *held = (struct fq_held_segment){.segment = NULL, .cut_at_us = INT64_MAX};
    reader->held_count--;
}

/* Releases what the reader did not give back. */
static void take_back(struct fq_remote_reader *reader, struct fq_held_segment *held)
{
    if (fq_fabric_transport(fq_conn_fabric(reader->session->conn)) == FQ_TRANSPORT_SHM) {
        fq_segment_forbid_recycling(held->segment); /* it may still be mapped there */
    }
    release(reader, held);
}

static void take_back_all(struct fq_remote_reader *reader)
{
    for (size_t i = 0; i < FQ_READER_SEGMENTS_MAX; i++) {
        if (reader->held[i].segment) {
            take_back(reader, &reader->held[i]);
        }
    }
}

static void close_reader(struct fq_remote_reader *reader)
{
    struct fq_session *session = reader->session;
    fq_push_close_of(reader);
    take_back_all(reader);
    unlink_reader(reader);
    session->wakes_due -= reader->is_wake_due;
    fq_handles_remove(&session->readers, reader->handle);
    fq_count_add(session->host->counters, FQ_COUNT_READERS_OPEN, -1);
    free(reader);
}

int fq_reader_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_reader_open open;
    struct fq_hosted *hosted;
    uint8_t bytes[256];
    int code = fq_decode_reader_open(msg, &open, err);
    if (code == 0) {
        code = fq_hosted_find(session->host->hosted, &open.topic_id, open.partition, &hosted, err);
    }
    if (code == 0) {
        code = fq_hosted_open(hosted, NULL, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_remote_reader *reader = calloc(1, sizeof *reader);
    uint32_t handle = reader ? fq_handles_add(&session->readers, 0, reader) : FQ_HANDLE_NONE;
    if (handle == FQ_HANDLE_NONE) {
        free(reader);
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "no more readers on this connection (limit %u)",
                          FQ_LIMIT_READERS_PER_CONNECTION - 1);
    }
    reader->session = session;
    reader->handle = handle;
    fq_chain_init(&reader->armed);
    for (size_t i = 0; i < FQ_READER_SEGMENTS_MAX; i++) {
        reader->held[i].cut_at_us = INT64_MAX;
    }
    link_reader(reader, hosted);
    fq_count(session->host->counters, FQ_COUNT_READERS_OPEN);
    struct fq_reader_open_answer answer = {.reader = handle,
                                           .view_line = hosted->view_line,
                                           .view_generation = hosted->view_generation,
                                           .log_start = fq_partition_log_start(hosted->partition),
                                           .end = fq_partition_high_watermark(hosted->partition),
                                           .leader_epoch =
                                               fq_partition_leader_epoch(hosted->partition)};
    fq_session_send_encoded(
        session, bytes,
        fq_encode_reader_open_answer(bytes, sizeof bytes, msg->correlation, &answer));
    return 0;
}

int fq_reader_find(struct fq_session *session, uint32_t handle, struct fq_remote_reader **ret,
                   struct fq_err *err)
{
    *ret = fq_handles_get(&session->readers, handle);
    if (!*ret) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "no reader has the number %u", handle);
    }
    return 0;
}

int fq_reader_on_close(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_slot_ref ref;
    struct fq_remote_reader *reader;
    uint8_t bytes[64];
    int code = fq_decode_reader_close(msg, &ref, err);
    if (code == 0) {
        code = fq_reader_find(session, ref.slot, &reader, err);
    }
    if (code != 0) {
        return code;
    }
    close_reader(reader);
    fq_session_send_encoded(
        session, bytes,
        fq_encode_empty(bytes, sizeof bytes, FQ_MSG_READER_CLOSE, true, msg->correlation));
    return 0;
}

/* ---- segments ------------------------------------------------------------------------------- */

/* The one that was opened first, if it is held more than once. */
static struct fq_held_segment *find_held(struct fq_remote_reader *reader, uint64_t id)
{
    struct fq_held_segment *first = NULL;
    for (size_t i = 0; i < FQ_READER_SEGMENTS_MAX; i++) {
        struct fq_held_segment *held = &reader->held[i];
        if (held->segment && held->id == id && (!first || held->order < first->order)) {
            first = held;
        }
    }
    return first;
}

static struct fq_held_segment *find_free(struct fq_remote_reader *reader)
{
    for (size_t i = 0; i < FQ_READER_SEGMENTS_MAX; i++) {
        if (!reader->held[i].segment) {
            return &reader->held[i];
        }
    }
    return NULL;
}

/* Pins the segment and grants a window on it; one that the reader holds already once more, since a token
 * is opened once only. */
static int hold(struct fq_remote_reader *reader, struct fq_segment *segment, uint64_t id,
                uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err)
{
    struct fq_held_segment *held = find_free(reader);
    if (!held) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "a reader may hold %d segments: close one first",
                          FQ_READER_SEGMENTS_MAX);
    }
    struct fq_region *region = fq_segment_region(segment, err);
    if (!region) {
        return err && err->code != 0 ? err->code : FLASHQ_ERR_NO_MEMORY;
    }
    int code = fq_window_grant(reader->session->conn, region, 0, fq_region_bytes(region),
                               FQ_RIGHT_READ, &held->window, token, err);
    if (code != 0) {
        return code;
    }
    fq_segment_pin(segment);
    held->segment = segment;
    held->id = id;
    held->order = reader->opened++;
    reader->held_count++;
    fq_count(reader->session->host->counters, FQ_COUNT_SEGMENTS_HELD);
    return 0;
}

int fq_reader_on_segment_open(struct fq_session *session, const struct fq_msg *msg,
                              struct fq_err *err)
{
    struct fq_segment_open open;
    struct fq_segment_open_answer answer;
    struct fq_segment *segment = NULL;
    struct fq_remote_reader *reader;
    uint8_t bytes[256];
    memset(&answer, 0, sizeof answer);
    int code = fq_decode_segment_open(msg, &open, err);
    if (code == 0) {
        code = fq_reader_find(session, open.reader, &reader, err);
    }
    if (code == 0 && !reader->hosted) {
        code = fq_err_set(err, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "the topic was deleted");
    }
    if (code == 0) {
        code = fq_partition_segment_open(reader->hosted->partition, open.offset, &segment, &answer,
                                         err);
    }
    if (code == 0 && segment) {
        code = hold(reader, segment, answer.segment_id, answer.token, err);
    }
    if (code != 0) {
        return code;
    }
    fq_session_send_encoded(
        session, bytes,
        fq_encode_segment_open_answer(bytes, sizeof bytes, msg->correlation, &answer));
    return 0;
}

int fq_reader_on_segment_close(struct fq_session *session, const struct fq_msg *msg,
                               struct fq_err *err)
{
    struct fq_segment_close close_body;
    struct fq_remote_reader *reader;
    uint8_t bytes[64];
    int code = fq_decode_segment_close(msg, &close_body, err);
    if (code == 0) {
        code = fq_reader_find(session, close_body.reader, &reader, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_held_segment *held = find_held(reader, close_body.segment_id);
    if (held) { /* it may have been cut meanwhile */
        release(reader, held);
    }
    fq_session_send_encoded(
        session, bytes,
        fq_encode_empty(bytes, sizeof bytes, FQ_MSG_SEGMENT_CLOSE, true, msg->correlation));
    return 0;
}

/* ---- waking --------------------------------------------------------------------------------- */

static void make_wake_due(struct fq_remote_reader *reader)
{
    fq_chain_remove(&reader->armed);
    if (!reader->is_wake_due) {
        reader->is_wake_due = true;
        reader->session->wakes_due++;
        fq_session_make_due(reader->session);
    }
}

int fq_reader_on_arm(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_reader_arm arm;
    struct fq_remote_reader *reader;
    int code = fq_decode_reader_arm(msg, &arm, err);
    if (code == 0) {
        code = fq_reader_find(session, arm.reader, &reader, err);
    }
    if (code == 0 && !reader->hosted) {
        code = fq_err_set(err, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "the topic was deleted");
    }
    if (code != 0) {
        return code;
    }
    if (reader->hosted->high_watermark > arm.offset) {
        make_wake_due(reader);
    } else {
        fq_chain_append(&reader->hosted->armed, &reader->armed);
        reader->armed_offset = arm.offset;
    }
    return 0;
}

void fq_readers_on_advanced(struct fq_hosted *hosted)
{
    for (struct fq_chain *at = hosted->armed.next, *next; at != &hosted->armed; at = next) {
        struct fq_remote_reader *reader = fq_chain_item(at, struct fq_remote_reader, armed);
        next = at->next;
        if (hosted->high_watermark > reader->armed_offset) {
            make_wake_due(reader);
        }
    }
}

unsigned fq_readers_wake(struct fq_session *session)
{
    unsigned woken = 0;
    for (uint32_t i = 0; session->wakes_due > 0 && i < session->readers.used; i++) {
        struct fq_remote_reader *reader = fq_handles_at(&session->readers, i);
        if (!reader || !reader->is_wake_due) {
            continue;
        }
        struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .imm = reader->handle};
        if (fq_conn_post(session->conn, &op, 1) != 1) {
            break; /* WRITABLE follows */
        }
        reader->is_wake_due = false;
        session->wakes_due--;
        woken++;
    }
    fq_count_add(session->host->counters, FQ_COUNT_READERS_WOKEN, woken);
    return woken;
}

/* ---- taking back ---------------------------------------------------------------------------- */

void fq_reader_on_trimmed(struct fq_remote_reader *reader, int64_t now_us)
{
    struct fq_session *session = reader->session;
    int64_t log_start = fq_partition_log_start(reader->hosted->partition);
    for (size_t i = 0; i < FQ_READER_SEGMENTS_MAX; i++) {
        struct fq_held_segment *held = &reader->held[i];
        if (!held->segment || held->cut_at_us != INT64_MAX ||
            fq_segment_end_offset(held->segment) > log_start) {
            continue;
        }
        uint8_t bytes[128];
        struct fq_segment_retiring retiring = {
            .reader = reader->handle, .segment_id = held->id, .within_ms = FQ_RETIRING_MS};
        held->cut_at_us = now_us + FQ_RETIRING_MS * INT64_C(1000);
        if (held->cut_at_us < session->retire_at_us) {
            session->retire_at_us = held->cut_at_us;
        }
        fq_count(session->host->counters, FQ_COUNT_SEGMENTS_RETIRING);
        fq_session_make_due(session);
        fq_session_send_encoded(session, bytes,
                                fq_encode_segment_retiring(bytes, sizeof bytes, 0, &retiring));
    }
}

unsigned fq_readers_cut(struct fq_session *session, int64_t now_us)
{
    unsigned cut = 0;
    if (now_us < session->retire_at_us) {
        return 0;
    }
    session->retire_at_us = INT64_MAX;
    for (uint32_t i = 0; i < session->readers.used; i++) {
        struct fq_remote_reader *reader = fq_handles_at(&session->readers, i);
        for (size_t j = 0; reader && j < FQ_READER_SEGMENTS_MAX; j++) {
            struct fq_held_segment *held = &reader->held[j];
            if (held->segment && held->cut_at_us <= now_us) {
                fq_info("%s: a retired segment was not given back within %d ms and is cut",
                        fq_conn_peer_name(session->conn), FQ_RETIRING_MS);
                take_back(reader, held);
                fq_count(session->host->counters, FQ_COUNT_SEGMENTS_CUT);
                cut++;
            } else if (held->segment && held->cut_at_us < session->retire_at_us) {
                session->retire_at_us = held->cut_at_us;
            }
        }
    }
    return cut;
}

void fq_reader_on_reset(struct fq_remote_reader *reader, int reason, bool is_gone)
{
    struct fq_session *session = reader->session;
    struct fq_partition *partition = reader->hosted->partition;
    uint8_t bytes[128];
    struct fq_reader_reset reset = {.reader = reader->handle,
                                    .reason = reason,
                                    .log_start = partition ? fq_partition_log_start(partition) : 0,
                                    .end = partition ? fq_partition_high_watermark(partition) : 0};
    fq_count(session->host->counters, FQ_COUNT_READERS_RESET);
    fq_session_send_encoded(session, bytes, fq_encode_reader_reset(bytes, sizeof bytes, 0, &reset));
    if (is_gone) {
        take_back_all(reader);
        unlink_reader(reader);
    }
}

void fq_readers_close(struct fq_session *session)
{
    for (uint32_t i = 0; i < session->readers.used; i++) {
        struct fq_remote_reader *reader = fq_handles_at(&session->readers, i);
        if (reader) {
            close_reader(reader);
        }
    }
    session->retire_at_us = INT64_MAX;
}
