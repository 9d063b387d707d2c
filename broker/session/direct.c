/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends in place: slots of append=direct topics, whose producer window is the log's own memory.
 *
 * Happy path: PRODUCER_OPEN finds nobody else there; the rest of the open segment is lent and
 * granted as window 0. A notify: the batch lies right above the log's end, the partition checks it
 * there, and the window's floor rises above it. When three quarters are used, or less than the
 * largest batch is left, the next segment is lent and granted too; the first batch in it makes it
 * the open one, and the window on the former goes.
 *
 *            begin                 refused, duplicate, fenced, offline, deleted, no space
 *   (none) --------> HOLDING ---------------------------------------------> REVOKED
 *                       |                                                      |
 *                       +----------------------- close ------------------------+--> (none)
 *
 *   HOLDING  hosted->holder is the slot; the log is lent; windows[0] is set unless the slot waits
 * for its first segment, windows[1] when the next segment is lent REVOKED  the slot has failed; the
 * log is not lent (what was written above its end is wiped), the windows are retired: what is still
 * under way lands nowhere, and the connection lives
 *
 * What can fail: the store has no segment now (the producer waits; so counted) or the medium is
 * full (the slot is revoked with NO_SPACE when it may need one); a batch is refused (the slot
 * fails); the peer lies about a length or writes where it may not (its connection ends).
 *
 * Who may have the partition: the holder keeps it as long as its connection lives and, once
 * somebody else asks, its CPU answers. A heartbeat goes out with the first request of another; a
 * later one that finds 2 s gone without any sign revokes the silent slot and succeeds.
 *
 * Thread: the shard.
 */
#include "session/direct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "storage/log.h"
#include "wire/protocol_codec.h"

struct granted {
    struct fq_window *window; /* NULL: none */
    struct fq_log_loan loan;
    uint8_t token[FQ_TOKEN_BYTES];
};

struct fq_direct {
    struct fq_slot *slot;
    struct fq_direct *next, **link; /* in session->directs */
    struct granted windows[2];      /* the current one, the next one */
    uint32_t announced;             /* windows told of so far */
    bool is_answered;               /* PRODUCER_OPEN: before it nothing is told */
    bool is_holding;
    bool is_waiting; /* for a segment */
    bool is_asked;   /* for a sign of life, at asked_us, when `heard` was asked_heard */
    int64_t asked_us;
    uint64_t asked_heard;
};

/* ---- windows -------------------------------------------------------------------------------- */

/* The data position up to which the peer has written. */
static uint64_t written_in(const struct granted *granted)
{
    return granted->window ? granted->loan.position + fq_window_written(granted->window) : 0;
}

static uint64_t left_in(const struct granted *granted)
{
    uint64_t used = fq_segment_data_bytes(granted->loan.segment) - granted->loan.position;
    return granted->loan.bytes - used;
}

static void announce(struct fq_direct *direct, struct granted *granted)
{
    struct fq_session *session = direct->slot->session;
    struct fq_direct_window message = {.slot = direct->slot->handle,
                                       .number = direct->announced++,
                                       .window_bytes = granted->loan.bytes};
    uint8_t bytes[128];
    memcpy(message.token, granted->token, sizeof message.token);
    fq_session_send_encoded(session, bytes,
                            fq_encode_direct_window(bytes, sizeof bytes, 0, &message));
    fq_count(session->host->counters, FQ_COUNT_DIRECT_WINDOWS);
}

static int grant(struct fq_direct *direct, const struct fq_log_loan *loan, struct granted *ret,
                 struct fq_err *err)
{
    struct fq_region *region = fq_segment_region(loan->segment, err);
    if (!region) {
        return err && err->code != 0 ? err->code : FLASHQ_ERR_NO_MEMORY;
    }
    ret->loan = *loan;
    int code = fq_window_grant(direct->slot->session->conn, region,
                               FQ_LIMIT_SEGMENT_HEADER_BYTES + loan->position, loan->bytes,
                               FQ_RIGHT_WRITE, &ret->window, ret->token, err);
    if (code == 0 && direct->is_answered) {
        announce(direct, ret);
    }
    return code;
}

static void set_waiting(struct fq_direct *direct, bool is_waiting)
{
    struct fq_session *session = direct->slot->session;
    if (direct->is_waiting == is_waiting) {
        return;
    }
    direct->is_waiting = is_waiting;
    if (is_waiting) {
        session->directs_waiting++;
        fq_count(session->host->counters, FQ_COUNT_SEGMENTS_STARVED);
        fq_session_make_due(session);
    } else {
        session->directs_waiting--;
    }
}

/* The largest batch may not fit any more, or most is used. */
static bool wants_next(const struct fq_direct *direct)
{
    const struct granted *current = &direct->windows[0];
    uint64_t left = left_in(current);
    return !direct->windows[1].window &&
           (left <= current->loan.bytes / 4 || left < direct->slot->session->host->batch_max_bytes);
}

/* Whether the producer can go on for now without another window. */
static bool has_room(const struct fq_direct *direct)
{
    return direct->windows[0].window &&
           left_in(&direct->windows[0]) >= direct->slot->session->host->batch_max_bytes;
}

/* Grants what is due and can be had. 0 also when it has to wait; an error: nothing is coming. */
static int provide(struct fq_direct *direct, struct fq_err *err)
{
    struct fq_log *log = fq_partition_log(direct->slot->hosted->partition);
    struct fq_log_loan loan;
    int code = FQ_RESERVE_OK;
    if (!direct->windows[0].window) {
        code = fq_log_lend(log, &loan, err);
        code = code == FQ_RESERVE_OK ? grant(direct, &loan, &direct->windows[0], err) : code;
    }
    if (code == FQ_RESERVE_OK && wants_next(direct)) {
        code = fq_log_lend_next(log, &loan, err);
        code = code == FQ_RESERVE_OK ? grant(direct, &loan, &direct->windows[1], err) : code;
    }
    bool is_full = code == FLASHQ_ERR_NO_SPACE && has_room(direct); /* it may have space later */
    set_waiting(direct, code == FQ_RESERVE_STARVED || is_full);
    return code < 0 && !is_full ? code : 0;
}

/* ---- giving back ---------------------------------------------------------------------------- */

/* The log has its memory again. The windows stay, retired. */
static void let_go(struct fq_direct *direct)
{
    struct fq_slot *slot = direct->slot;
    uint64_t written = written_in(&direct->windows[0]);
    uint64_t written_next = written_in(&direct->windows[1]);
    if (!direct->is_holding) {
        return;
    }
    direct->is_holding = false;
    set_waiting(direct, false);
    for (unsigned i = 0; i < 2; i++) {
        if (direct->windows[i].window) {
            fq_window_retire(direct->windows[i].window);
        }
    }
    assert(slot->hosted && slot->hosted->holder == slot);
    slot->hosted->holder = NULL;
    fq_log_take_back(fq_partition_log(slot->hosted->partition), written, written_next);
    fq_hosted_touch(slot->hosted); /* its state may have changed */
    fq_count_add(slot->session->host->counters, FQ_COUNT_DIRECT_OPEN, -1);
}

void fq_direct_revoke(struct fq_slot *slot, int reason)
{
    struct fq_direct *direct = slot->direct;
    struct fq_session *session = slot->session;
    uint8_t bytes[64];
    if (!direct || !direct->is_holding) {
        return;
    }
    let_go(direct);
    slot->failed = slot->failed != 0 ? slot->failed : FLASHQ_ERR_SLOT_FAILED;
    const struct fq_slot_revoked message = {.slot = slot->handle, .reason = reason};
    fq_session_send_encoded(session, bytes,
                            fq_encode_slot_revoked(bytes, sizeof bytes, 0, &message));
    fq_count(session->host->counters, FQ_COUNT_DIRECT_REVOKED);
    fq_debug("%s: slot %u revoked: %s", fq_conn_peer_name(session->conn), slot->handle,
             fq_err_describe(reason));
}

void fq_direct_close(struct fq_slot *slot)
{
    struct fq_direct *direct = slot->direct;
    if (!direct) {
        return;
    }
    let_go(direct);
    fq_window_revoke(direct->windows[0].window);
    fq_window_revoke(direct->windows[1].window);
    *direct->link = direct->next;
    if (direct->next) {
        direct->next->link = direct->link;
    }
    slot->direct = NULL;
    free(direct);
}

/* ---- opening -------------------------------------------------------------------------------- */

static const char *mode_name(unsigned mode)
{
    return mode == FQ_APPEND_DIRECT ? "direct" : "staged";
}

/* Asks the holder for a sign of life, once. */
static void ask(struct fq_direct *direct, int64_t now_us)
{
    struct fq_session *session = direct->slot->session;
    uint8_t bytes[64];
    direct->is_asked = true;
    direct->asked_us = now_us;
    direct->asked_heard = session->heard;
    session->heartbeats_asked++;
    fq_session_send_encoded(session, bytes,
                            fq_encode_empty(bytes, sizeof bytes, FQ_MSG_HEARTBEAT, false, 0));
}

/* True: the holder has given way. */
static bool gives_way(struct fq_slot *holder, const struct fq_producer_open *open, int64_t now_us)
{
    struct fq_direct *direct = holder->direct;
    bool is_same = holder->producer_id >= 0 && holder->producer_id == open->producer_id &&
                   open->producer_epoch > holder->producer_epoch;
    bool is_silent = direct->is_asked && holder->session->heard == direct->asked_heard;
    if (holder->session->state >= FQ_SESSION_ENDING || is_same ||
        (is_silent && now_us - direct->asked_us >= FQ_LIMIT_DIRECT_SILENT_MS * INT64_C(1000))) {
        fq_count(holder->session->host->counters, FQ_COUNT_DIRECT_FENCED);
        fq_direct_revoke(holder, FLASHQ_ERR_FENCED);
        return true;
    }
    if (!is_silent) {
        ask(direct, now_us);
    }
    return false;
}

int fq_direct_check_open(struct fq_session *session, struct fq_hosted *hosted,
                         const struct fq_producer_open *open, struct fq_err *err)
{
    unsigned mode =
        hosted->topic->config.append == FQ_APPEND_DIRECT ? FQ_APPEND_DIRECT : FQ_APPEND_STAGED;
    if (open->mode != mode) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "a %s producer was asked for, topic \"%s\" has append=%s",
                          mode_name(open->mode), hosted->topic->name, mode_name(mode));
    }
    if (mode == FQ_APPEND_STAGED) {
        return 0;
    }
    if (fq_fabric_transport(fq_conn_fabric(session->conn)) == FQ_TRANSPORT_SHM) {
        return fq_err_set(
            err, FLASHQ_ERR_UNSUPPORTED,
            "topic \"%s\" has append=direct, which shared memory cannot do: a mapping "
            "cannot be taken back from a client; connect over tcp",
            hosted->topic->name);
    }
    int code = fq_log_may_lend(fq_partition_log(hosted->partition), err);
    struct fq_slot *holder = hosted->holder;
    if (code != 0 || !holder || gives_way(holder, open, session->host->now_us)) {
        return code;
    }
    return fq_err_set(err, FLASHQ_ERR_EXCLUSIVE,
                      "partition %u of \"%s\" is held by client \"%s\" (%s)", hosted->index,
                      hosted->topic->name, holder->session->client_id,
                      fq_conn_peer_name(holder->session->conn));
}

int fq_direct_begin(struct fq_slot *slot, struct fq_err *err)
{
    struct fq_session *session = slot->session;
    struct fq_direct *direct = calloc(1, sizeof *direct);
    if (!direct) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a producer");
    }
    assert(!slot->hosted->holder);
    direct->slot = slot;
    direct->is_holding = true;
    direct->next = session->directs;
    direct->link = &session->directs;
    if (direct->next) {
        direct->next->link = &direct->next;
    }
    session->directs = direct;
    slot->direct = direct;
    slot->hosted->holder = slot;
    fq_count(session->host->counters, FQ_COUNT_DIRECT_OPEN);
    int code = provide(direct, err);
    fq_hosted_touch(slot->hosted); /* a segment may have been sealed, or the log be offline */
    if (code < 0) {
        fq_direct_close(slot);
    }
    return code;
}

void fq_direct_announce(struct fq_slot *slot)
{
    struct fq_direct *direct = slot->direct;
    if (!direct) {
        return;
    }
    direct->is_answered = true;
    for (unsigned i = 0; i < 2; i++) {
        if (direct->windows[i].window) {
            announce(direct, &direct->windows[i]);
        }
    }
}

/* ---- batches -------------------------------------------------------------------------------- */

/* The first batch in the next window was taken: nothing is under way to the former. */
static void move_on(struct fq_direct *direct)
{
    fq_window_revoke(direct->windows[0].window);
    direct->windows[0] = direct->windows[1];
    direct->windows[1] = (struct granted){.window = NULL};
}

static void raise_floor(struct granted *current)
{
    fq_window_set_floor(current->window,
                        fq_segment_data_bytes(current->loan.segment) - current->loan.position);
}

static int append(struct fq_direct *direct, struct fq_append_result *result, struct fq_err *err)
{
    struct fq_slot *slot = direct->slot;
    struct granted *current = &direct->windows[0], *next = &direct->windows[1];
    if (!current->window) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "a batch before there was a window");
    }
    const struct fq_in_place where = {.written = written_in(current),
                                      .next = next->window ? &next->loan : NULL,
                                      .written_next = written_in(next)};
    int code = fq_partition_append_in_place(slot->hosted->partition, &where, slot->producer_id,
                                            slot->producer_epoch, result, err);
    if (result->moved_on) {
        move_on(direct);
    }
    return code;
}

void fq_direct_on_notify(struct fq_session *session, uint32_t handle)
{
    struct fq_slot *slot = fq_handles_get(&session->slots, handle);
    struct fq_direct *direct = slot ? slot->direct : NULL;
    struct fq_append_result result = {.bytes = 0};
    struct fq_err err;
    fq_err_clear(&err);
    fq_session_make_due(session);
    if (!slot || slot->failed != 0 || !direct->is_holding) { /* closed or revoked: it is late */
        int code = slot ? slot->failed : FLASHQ_ERR_SLOT_FAILED;
        fq_count_refusal(session->host->counters, code);
        (void)fq_ring_add_pending(&session->ring, slot, handle, code);
        return;
    }
    if (session->host->is_stopping) {
        return; /* as what lies in a ring: it has no outcome */
    }
    int code = append(direct, &result, &err);
    if (fq_ring_note_outcome(slot, code, &result, &err) < 0) {
        return; /* the session ends */
    }
    if (code != 0 || result.duplicate) {
        fq_direct_revoke(slot, code != 0 ? code : FLASHQ_ERR_SEQUENCE);
        return;
    }
    raise_floor(&direct->windows[0]);
    code = provide(direct, &err);
    if (code < 0) {
        fq_direct_revoke(slot, code);
    }
}

unsigned fq_direct_step(struct fq_session *session)
{
    unsigned done = 0;
    for (struct fq_direct *direct = session->directs; direct && session->directs_waiting > 0;
         direct = direct->next) {
        struct fq_err err;
        fq_err_clear(&err);
        uint32_t before = direct->announced;
        int code = direct->is_waiting ? provide(direct, &err) : 0;
        if (code < 0) {
            fq_direct_revoke(direct->slot, code);
        }
        done += direct->announced != before;
    }
    return done;
}
