/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing and stopping of pushes; what they write is in push.c.
 *
 * PUSH_SETUP gives a connection its lines: heads in the client's memory, credits in the broker's.
 * PUSH_OPEN finds the batch to begin with and maps the client's ring. A push ends by PUSH_CLOSE or
 * with its reader or connection, or it is stopped: the client is told why, and nothing is written
 * after that. An answer or PUSH_STOPPED is posted behind all writes of the push, and so arrives
 * after them, whatever still is under way then.
 *
 * What can fail: an open (nothing is left of it); a message that cannot be sent (the session keeps
 * it). A transport that reads a segment which the log has given up is waited for, but not for ever.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "session/push.h"
#include "storage/log.h"
#include "wire/protocol_codec.h"

#define RING_PAGE 4096u

/* ---- setup ---------------------------------------------------------------------------------- */

static void free_pushes(struct fq_pushes *pushes)
{
    fq_chain_remove(&pushes->link);
    fq_chain_remove(&pushes->flying);
    fq_window_revoke(pushes->window);
    fq_remote_close(pushes->heads);
    fq_region_unref(pushes->credits);
    free(pushes->by_line);
    free(pushes);
}

/* The credits are made here and not by the housekeeper, as windows are: 64 KiB at most, once a
 * connection, is less than taking the connection on has cost. */
static int open_lines(struct fq_pushes *pushes, const struct fq_push_setup *setup,
                      struct fq_push_setup_answer *answer, struct fq_err *err)
{
    struct fq_conn *conn = pushes->session->conn;
    size_t heads_bytes = pushes->lines * sizeof(struct fq_push_head);
    pushes->by_line = calloc(pushes->lines, sizeof *pushes->by_line);
    if (!pushes->by_line) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    int code = fq_remote_open(conn, setup->heads_token, FQ_RIGHT_WRITE, &pushes->heads, err);
    if (code == 0 && fq_remote_bytes(pushes->heads) < heads_bytes) {
        code = fq_err_set(err, FLASHQ_ERR_INVALID, "%u heads need %zu bytes, not %llu",
                          pushes->lines, heads_bytes,
                          (unsigned long long)fq_remote_bytes(pushes->heads));
    }
    if (code == 0) {
        code = fq_region_create(pushes->lines * sizeof(struct fq_push_credit), 0, &pushes->credits,
                                err);
    }
    if (code == 0) {
        code = fq_window_grant(conn, pushes->credits, 0, fq_region_bytes(pushes->credits),
                               FQ_RIGHT_WRITE, &pushes->window, answer->credits_token, err);
    }
    return code;
}

int fq_push_on_setup(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_push_setup setup;
    uint8_t bytes[256];
    int code = fq_decode_push_setup(msg, &setup, err);
    if (code != 0) {
        return code;
    }
    if (session->pushes) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "this connection has its push lines already");
    }
    if (setup.lines == 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "0 push lines");
    }
    struct fq_pushes *pushes = calloc(1, sizeof *pushes);
    if (!pushes) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    fq_chain_init(&pushes->link);
    fq_chain_init(&pushes->flying);
    fq_chain_init(&pushes->ready);
    pushes->session = session;
    pushes->lines = setup.lines < FQ_LIMIT_PUSH_LINES ? setup.lines : FQ_LIMIT_PUSH_LINES;
    pushes->cut_at_us = INT64_MAX;
    struct fq_push_setup_answer answer = {.lines = pushes->lines};
    code = open_lines(pushes, &setup, &answer, err);
    if (code != 0) {
        fq_count(session->host->counters, FQ_COUNT_BAD_WINDOW);
        free_pushes(pushes);
        return code;
    }
    session->pushes = pushes;
    fq_session_send_encoded(
        session, bytes,
        fq_encode_push_setup_answer(bytes, sizeof bytes, msg->correlation, &answer));
    return 0;
}

/* ---- open ----------------------------------------------------------------------------------- */

static int check_open(struct fq_session *session, const struct fq_push_open *open,
                      const struct fq_remote_reader *reader, struct fq_err *err)
{
    const struct fq_pushes *pushes = session->pushes;
    if (session->host->is_stopping) {
        return fq_err_set(err, FLASHQ_ERR_SHUTTING_DOWN, "the broker is shutting down");
    }
    if (!pushes) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "PUSH_OPEN before PUSH_SETUP");
    }
    if (!reader->hosted) {
        return fq_err_set(err, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "the topic was deleted");
    }
    if (reader->push) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "reader %u is pushed to already", reader->handle);
    }
    if (open->line >= pushes->lines) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "push line %u: this connection has %u (limit %u)", open->line,
                          pushes->lines, FQ_LIMIT_PUSH_LINES);
    }
    if (pushes->by_line[open->line]) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "push line %u is in use", open->line);
    }
    if (open->ring_bytes < FQ_LIMIT_PUSH_RING_BYTES_MIN ||
        open->ring_bytes > FQ_LIMIT_PUSH_RING_BYTES_MAX || open->ring_bytes % RING_PAGE != 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "a push ring of %llu bytes: %u to %u, in whole pages of %u",
                          (unsigned long long)open->ring_bytes, FQ_LIMIT_PUSH_RING_BYTES_MIN,
                          FQ_LIMIT_PUSH_RING_BYTES_MAX, RING_PAGE);
    }
    return 0;
}

static int open_ring(struct fq_session *session, const struct fq_push_open *open,
                     struct fq_push *push, struct fq_err *err)
{
    int code = fq_remote_open(session->conn, open->ring_token, FQ_RIGHT_WRITE, &push->ring, err);
    if (code == 0 && (fq_remote_bytes(push->ring) != open->ring_bytes ||
                      fq_remote_span(push->ring) != 2 * open->ring_bytes)) {
        code = fq_err_set(err, FLASHQ_ERR_INVALID,
                          "a push ring of %llu bytes whose window has %llu, to be accessed up to "
                          "%llu",
                          (unsigned long long)open->ring_bytes,
                          (unsigned long long)fq_remote_bytes(push->ring),
                          (unsigned long long)fq_remote_span(push->ring));
    }
    if (code != 0) {
        fq_count(session->host->counters, FQ_COUNT_BAD_WINDOW);
        fq_remote_close(push->ring);
    }
    return code;
}

/* In the client's window: its word begins anew with the push. */
static void clear_credit(const struct fq_pushes *pushes, uint32_t line)
{
    struct fq_push_credit *lines = fq_region_base(pushes->credits);
    __atomic_store_n(&lines[line].consumed, 0, __ATOMIC_RELEASE);
}

/* A push that begins at the place, and has no state yet. */
static int create_push(struct fq_remote_reader *reader, const struct fq_push_open *open,
                       struct fq_segment *segment, const struct fq_segment_open_answer *place,
                       struct fq_err *err)
{
    struct fq_session *session = reader->session;
    struct fq_push *push = calloc(1, sizeof *push);
    if (!push) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    int code = open_ring(session, open, push, err);
    if (code != 0) {
        free(push);
        return code;
    }
    push->reader = reader;
    push->pushes = session->pushes;
    push->line = open->line;
    push->ring_bytes = open->ring_bytes;
    push->stop_reason = reader->hosted->offline;
    push->from_offset = place->position_offset;
    fq_chain_init(&push->link);
    clear_credit(session->pushes, open->line);
    session->pushes->by_line[open->line] = push;
    session->pushes->open_count++;
    reader->push = push;
    if (segment) {
        fq_push_enter(push, segment, place->position);
    }
    fq_count(session->host->counters, FQ_COUNT_PUSHES_OPEN);
    return 0;
}

int fq_push_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_push_open open;
    struct fq_remote_reader *reader;
    struct fq_segment_open_answer place;
    struct fq_segment *segment = NULL;
    uint8_t bytes[64];
    memset(&place, 0, sizeof place);
    int code = fq_decode_push_open(msg, &open, err);
    if (code == 0) {
        code = fq_reader_find(session, open.reader, &reader, err);
    }
    if (code == 0) {
        code = check_open(session, &open, reader, err);
    }
    if (code == 0) {
        code = fq_partition_segment_open(reader->hosted->partition, open.offset, &segment, &place,
                                         err);
    }
    if (code == 0) {
        code = create_push(reader, &open, segment, &place, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_push_open_answer answer = {.position_offset = place.position_offset};
    fq_session_send_encoded(
        session, bytes,
        fq_encode_push_open_answer(bytes, sizeof bytes, msg->correlation, &answer));
    fq_push_settle(reader->push);
    return 0;
}

/* ---- the end of one ------------------------------------------------------------------------- */

static void close_push(struct fq_push *push)
{
    struct fq_pushes *pushes = push->pushes;
    fq_chain_remove(&push->link);
    pushes->by_line[push->line] = NULL;
    pushes->open_count--;
    push->reader->push = NULL;
    if (push->segment) {
        fq_segment_unpin(push->segment);
    }
    fq_remote_close(push->ring);
    fq_count_add(pushes->session->host->counters, FQ_COUNT_PUSHES_OPEN, -1);
    free(push);
}

void fq_push_stop(struct fq_push *push, int reason)
{
    struct fq_session *session = push->pushes->session;
    struct fq_partition *partition = push->reader->hosted->partition;
    uint8_t bytes[64];
    struct fq_push_stopped stopped = {.reader = push->reader->handle,
                                      .reason = reason,
                                      .log_start = fq_partition_log_start(partition),
                                      .end = fq_partition_high_watermark(partition)};
    fq_count(session->host->counters, FQ_COUNT_PUSH_STOPPED);
    close_push(push);
    fq_session_send_encoded(session, bytes,
                            fq_encode_push_stopped(bytes, sizeof bytes, 0, &stopped));
}

int fq_push_on_close(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_push_close body;
    struct fq_remote_reader *reader;
    uint8_t bytes[64];
    int code = fq_decode_push_close(msg, &body, err);
    if (code == 0) {
        code = fq_reader_find(session, body.reader, &reader, err);
    }
    if (code != 0) {
        return code;
    }
    fq_push_close_of(reader);
    fq_session_send_encoded(
        session, bytes,
        fq_encode_empty(bytes, sizeof bytes, FQ_MSG_PUSH_CLOSE, true, msg->correlation));
    return 0;
}

void fq_push_close_of(struct fq_remote_reader *reader)
{
    if (reader->push) {
        close_push(reader->push);
    }
}

/* ---- what happens to the partition ---------------------------------------------------------- */

/* The log begins later, at `first`, whose readable part begins at `position`. */
static void follow_trim(struct fq_push *push, struct fq_segment *first, uint64_t position)
{
    if (push->segment && fq_segment_is_retired(push->segment)) {
        bool is_at_end = push->position == fq_segment_data_bytes(push->segment) &&
                         fq_segment_end_offset(push->segment) == fq_segment_base_offset(first);
        if (!is_at_end) {
            fq_push_stop(push, FLASHQ_ERR_TRIMMED);
            return;
        }
        fq_push_enter(push, first, 0);
    }
    if (push->segment == first && push->position < position) {
        fq_push_stop(push, FLASHQ_ERR_TRIMMED);
    }
}

void fq_pushes_on_trimmed(struct fq_hosted *hosted)
{
    struct fq_log *log = fq_partition_log(hosted->partition);
    struct fq_segment *first = fq_log_segment_first(log), *holds = NULL;
    struct fq_segment_open_answer place;
    if (!first) {
        return;
    }
    /* Damage at the new start hides where it lies: then only what is gone counts. */
    int code = fq_partition_segment_open(hosted->partition, fq_log_start(log), &holds, &place, NULL);
    uint64_t position = code == 0 && holds == first ? place.position : 0;
    for (struct fq_remote_reader *reader = hosted->readers; reader; reader = reader->next) {
        if (reader->push) {
            follow_trim(reader->push, first, position);
        }
    }
}

void fq_pushes_on_truncated(struct fq_hosted *hosted)
{
    struct fq_log_place end;
    fq_partition_committed_end(hosted->partition, &end);
    for (struct fq_remote_reader *reader = hosted->readers; reader; reader = reader->next) {
        struct fq_push *push = reader->push;
        if (push && push->segment &&
            (!end.segment || fq_segment_is_retired(push->segment) ||
             (push->segment == end.segment && push->position > end.position))) {
            fq_push_stop(push, FLASHQ_ERR_OUT_OF_RANGE);
        }
    }
}

void fq_push_on_offline(struct fq_remote_reader *reader)
{
    struct fq_push *push = reader->push;
    if (push) {
        push->stop_reason = reader->hosted->offline;
        if (push->state == FQ_PUSH_IDLE) {
            fq_push_settle(push);
        }
    }
}

void fq_push_on_removed(struct fq_remote_reader *reader)
{
    if (reader->push) {
        fq_push_stop(reader->push, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    }
}

void fq_pushes_stop(struct fq_session *session, int reason)
{
    struct fq_pushes *pushes = session->pushes;
    for (uint32_t line = 0; pushes && pushes->open_count > 0 && line < pushes->lines; line++) {
        if (pushes->by_line[line]) {
            fq_push_stop(pushes->by_line[line], reason);
        }
    }
}

/* ---- segments that the log has given up ------------------------------------------------------ */

static int64_t least_us(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void fq_pushes_on_taken_away(struct fq_session_host *host, const struct fq_hosted *hosted,
                             bool is_removed, int64_t now_us)
{
    int64_t cut_at_us = now_us + FQ_RETIRING_MS * INT64_C(1000);
    for (struct fq_chain *at = host->flying.next; at != &host->flying; at = at->next) {
        struct fq_pushes *pushes = fq_chain_item(at, struct fq_pushes, flying);
        for (uint32_t i = 0; i < pushes->flights_count; i++) {
            struct fq_flight *flight =
                &pushes->flights[(pushes->flights_head + i) % FQ_PUSH_FLIGHTS];
            if (flight->hosted == hosted && flight->cut_at_us == INT64_MAX &&
                (is_removed || fq_segment_is_retired(flight->segment))) {
                flight->cut_at_us = cut_at_us;
                pushes->cut_at_us = least_us(pushes->cut_at_us, cut_at_us);
                fq_session_make_due(pushes->session);
            }
        }
    }
}

int64_t fq_pushes_cut_at_us(const struct fq_session *session)
{
    return session->pushes ? session->pushes->cut_at_us : INT64_MAX;
}

bool fq_pushes_cut(struct fq_session *session, int64_t now_us)
{
    struct fq_pushes *pushes = session->pushes;
    if (!pushes || now_us < pushes->cut_at_us) {
        return false;
    }
    pushes->cut_at_us = INT64_MAX;
    for (uint32_t i = 0; i < pushes->flights_count; i++) {
        struct fq_flight *flight = &pushes->flights[(pushes->flights_head + i) % FQ_PUSH_FLIGHTS];
        pushes->cut_at_us = least_us(pushes->cut_at_us, flight->cut_at_us);
    }
    if (now_us < pushes->cut_at_us) {
        return false; /* that one has landed */
    }
    fq_session_end(session, FQ_COUNT_PUSH_CUT,
                   "pushed bytes of a retired segment were not taken within %d ms", FQ_RETIRING_MS);
    return true;
}

/* ---- the end of all ------------------------------------------------------------------------- */

void fq_pushes_fini(struct fq_session *session)
{
    struct fq_pushes *pushes = session->pushes;
    if (pushes) {
        for (uint32_t line = 0; line < pushes->lines; line++) {
            if (pushes->by_line[line]) {
                close_push(pushes->by_line[line]);
            }
        }
        fq_chain_remove(&pushes->link);
    }
}

void fq_pushes_free(struct fq_session *session)
{
    struct fq_pushes *pushes = session->pushes;
    if (pushes) {
        fq_pushes_land_all(pushes);
        pushes->window = NULL; /* they went with the connection */
        pushes->heads = NULL;
        free_pushes(pushes);
        session->pushes = NULL;
    }
}
