/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader that is pushed to: its states beside those of pulling (reader.h), and the bytes in its ring.
 *
 * Happy path: PUSH_OPEN at the offset to go on at, then batches are walked in the ring as the tail moves; a batch
 * that is not whole yet waits for its rest. A seek, or the wish to pull, closes the push first and goes on when
 * the broker has answered: nothing from before can be seen after it.
 * What can fail: the broker refuses or stops: the reader pulls (for good on this connection, until later, or
 * until the place that cannot be pushed is behind it, by the reason). Bytes that are not the batch that must be
 * there, a batch larger than the ring: the reader pulls at that offset, and is pushed to again after a number of
 * good batches that doubles with each failure. Thread: any, under the client's lock.
 */
#include "consumer/consumer.h"
#include "consumer/hub.h"
#include "consumer/push.h"
#include "consumer/reader.h"

#define HOLD_FIRST_BATCHES 4u
#define HOLD_DOUBLINGS_MAX 12u
#define GOOD_BATCHES 64u        /* after these a failure is long ago */
#define RETRY_BUSY_US 100000    /* no room, no line: others may have given theirs back */
#define RETRY_FIRST_US 20000
#define RETRY_DOUBLINGS_MAX 6u
#define REST_US 500000          /* what is owed, with credit for it, comes by then: else it is pulled */
#define LOOKS_MAX 1000          /* at a head that is being written */

/* ---- when ----------------------------------------------------------------------------------- */

/* The place reached must be pulled: pushing is tried again some batches later, or once caught up. */
void fq_pushed_hold_off(struct fq_pread *reader)
{
    unsigned doublings = reader->push_failures;
    reader->push_failures += reader->push_failures < HOLD_DOUBLINGS_MAX;
    reader->push_good = 0;
    reader->push_hold = HOLD_FIRST_BATCHES << doublings;
    doublings = doublings < RETRY_DOUBLINGS_MAX ? doublings : RETRY_DOUBLINGS_MAX;
    reader->push_retry_us = reader->consumer->engine->now_us + (RETRY_FIRST_US << doublings);
}

bool fq_pushed_is_due(struct fq_pread *reader)
{
    if (!reader->wants_push || reader->is_push_denied || reader->is_probing || reader->has_condition ||
        reader->is_paused) {
        return false;
    }
    bool is_time = reader->push_retry_us == 0 ||
                   reader->consumer->engine->now_us >= reader->push_retry_us;
    if (reader->push_hold > 0) {
        return is_time && reader->state == FQ_READER_READING && reader->is_caught_up;
    }
    return is_time;
}

/* ---- states --------------------------------------------------------------------------------- */

/* What a refusal of PUSH_OPEN means. */
static void refused(struct fq_pread *reader, int code, const char *text)
{
    int64_t offset = reader->asked_offset;
    switch (code) {
    case FLASHQ_ERR_AGAIN:
    case FLASHQ_ERR_BUSY:
    case FLASHQ_ERR_LIMIT:
    case FLASHQ_ERR_NO_MEMORY:
        reader->push_retry_us = reader->consumer->engine->now_us + RETRY_BUSY_US;
        fq_pread_ask_segment(reader, offset);
        break;
    case FLASHQ_ERR_CORRUPT:
    case FLASHQ_ERR_TOO_LARGE:
        fq_pushed_hold_off(reader);
        fq_pread_ask_segment(reader, offset);
        break;
    case FLASHQ_ERR_UNSUPPORTED:
    case FLASHQ_ERR_INVALID:
    case FLASHQ_ERR_NOT_PERMITTED:
    case FLASHQ_ERR_EXISTS:
        (void)fq_err_set(&reader->consumer->last_error, code, "%s/%d is pulled: the broker does not push: %s",
                         reader->rtopic->name, reader->index,
                         text && text[0] ? text : fq_err_describe(code));
        reader->is_push_denied = true;
        fq_pread_ask_segment(reader, offset);
        break;
    default: fq_pread_refused(reader, code, text); break;
    }
}

bool fq_pushed_begin(struct fq_pread *reader, int64_t offset)
{
    int code = fq_rpush_open(reader, offset);
    if (code == 0) {
        fq_pread_drop_segment(reader);
        reader->asked_offset = offset;
        reader->push_hold = 0;
        fq_pread_set_state(reader, FQ_READER_PUSH_OPENING);
        return true;
    }
    if (code == FLASHQ_ERR_AGAIN || code == FLASHQ_ERR_NO_MEMORY) {
        reader->push_retry_us = reader->consumer->engine->now_us + RETRY_BUSY_US;
    } else {
        reader->is_push_denied = true; /* asked already, for another partition of this connection */
    }
    return false;
}

/* Closes the push; goes on at `offset` when the broker has answered. */
static void close_push(struct fq_pread *reader, int64_t offset)
{
    reader->asked_offset = offset;
    fq_pread_drop_bytes(reader);
    if (reader->state != FQ_READER_PUSH_CLOSING) {
        fq_pread_set_state(reader, FQ_READER_PUSH_CLOSING);
        fq_rpush_close(reader);
    }
}

void fq_pushed_opened(struct fq_pread *reader, int status, int64_t position_offset, const char *text)
{
    if (reader->state != FQ_READER_PUSH_OPENING) {
        return;
    }
    if (status != 0) {
        refused(reader, status, text);
        return;
    }
    reader->push_retry_us = 0;
    if (position_offset < 0 || position_offset > reader->asked_offset) {
        fq_pushed_hold_off(reader);
        close_push(reader, reader->asked_offset);
        return;
    }
    reader->next_position = 0;
    reader->next_offset = position_offset;
    reader->limit_position = UINT64_MAX; /* a batch may go on beyond the tail */
    reader->last_epoch = -1;
    reader->want_bytes = 0;
    reader->rest_due_us = INT64_MAX;
    reader->is_caught_up = reader->is_sequential = false;
    reader->doubts = reader->failures = 0;
    reader->reported = 0;
    fq_pread_set_state(reader, FQ_READER_PUSHED);
}

void fq_pushed_closed(struct fq_pread *reader)
{
    if (reader->state != FQ_READER_PUSH_CLOSING) {
        return;
    }
    if (reader->asked_offset < 0) {
        fq_pread_reopen(reader); /* what start and end are, opening says */
    } else {
        fq_pread_begin_at(reader, reader->asked_offset);
    }
}

void fq_pushed_go_to(struct fq_pread *reader, int64_t offset)
{
    close_push(reader, offset);
}

void fq_pushed_set(struct fq_pread *reader, bool wants_push)
{
    if (reader->wants_push == wants_push) {
        return;
    }
    reader->wants_push = wants_push;
    reader->push_hold = reader->push_failures = 0;
    reader->push_retry_us = 0;
    if (!wants_push && reader->state == FQ_READER_PUSH_OPENING) {
        close_push(reader, reader->asked_offset);
    } else if (!wants_push && reader->state == FQ_READER_PUSHED) {
        close_push(reader, reader->next_offset);
    } else if (wants_push && reader->state == FQ_READER_READING && fq_pushed_is_due(reader)) {
        (void)fq_pushed_begin(reader, reader->next_offset);
    }
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pushed_stopped(struct fq_pread *reader, const struct fq_push_stopped *msg)
{
    if (reader->state == FQ_READER_PUSHED) { /* else it is being closed, and the answer to that counts */
        fq_rpush_stop(reader, msg->reason);
        fq_pread_notified(reader);
    }
}

/* Stopped, and what had been written is walked: what the reason means. */
static void stopped(struct fq_pread *reader)
{
    struct fq_reader_reset reset = {.reader = reader->id, .reason = reader->push->stopped};
    fq_rpush_drop(reader);
    switch (reset.reason) {
    case FLASHQ_ERR_NOT_LEADER:
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID:
    case FLASHQ_ERR_NOT_FOUND:
    case FLASHQ_ERR_OFFLINE:
    case FLASHQ_ERR_TRIMMED:
    case FLASHQ_ERR_OUT_OF_RANGE: fq_pread_reset(reader, &reset); break;
    case FLASHQ_ERR_SHUTTING_DOWN: fq_pread_retry(reader); break;
    default: /* damage, a batch that does not fit, ...: by pulling it is found out, or passed */
        fq_pushed_hold_off(reader);
        fq_pread_ask_segment(reader, reader->next_offset);
        break;
    }
    fq_engine_progress(reader->consumer->engine);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Pulls what stands at next_offset. */
static void pull_instead(struct fq_pread *reader)
{
    fq_pushed_hold_off(reader);
    close_push(reader, reader->next_offset);
}

/* What must come next, the broker has room for and has promised: the rest of a batch that has begun, or a batch
 * below the high watermark that its head told. */
static bool is_owed(const struct fq_pread *reader, uint64_t there)
{
    const struct fq_rpush *push = reader->push;
    uint64_t room = push->credited + push->ring_bytes - reader->next_position;
    if (there > 0) {
        return reader->want_bytes <= room;
    }
    uint64_t largest = push->batch_max_bytes < push->ring_bytes ? push->batch_max_bytes : push->ring_bytes;
    return push->high_watermark > reader->next_offset && room >= largest;
}

/* The ring is dry. What is owed is on its way, or it is not (a batch's length is damaged, the broker tells of
 * records and writes none): then the tail stands still. true: it is given up. */
static bool gives_up(struct fq_pread *reader, uint64_t there)
{
    int64_t now = reader->consumer->engine->now_us;
    if (there == 0 && !is_owed(reader, there)) {
        reader->rest_due_us = INT64_MAX;
        return false;
    }
    if (reader->rest_due_us == INT64_MAX || reader->rest_tail != reader->push->tail || !is_owed(reader, there)) {
        reader->rest_tail = reader->push->tail;
        reader->rest_due_us = now + REST_US;
        return false;
    }
    return now >= reader->rest_due_us;
}

/* The part of the ring that was not looked at; false: nothing new, or a batch that is not whole. */
static bool next_chunk(struct fq_pread *reader)
{
    struct fq_rpush *push = reader->push;
    if (reader->want_bytes > push->ring_bytes) {
        pull_instead(reader);
        return false;
    }
    if (!fq_rpush_look(push)) {
        return false;
    }
    uint64_t there = push->tail - reader->next_position;
    bool is_dry = there < (reader->want_bytes ? reader->want_bytes : 1);
    if (is_dry && push->stopped != 0) {
        stopped(reader);
        return false;
    }
    if (is_dry && gives_up(reader, there)) {
        pull_instead(reader);
        return false;
    }
    if (is_dry) {
        reader->is_caught_up = true; /* the notify tells */
        return false;
    }
    reader->rest_due_us = INT64_MAX;
    reader->chunk = (struct fq_chunk){.source = fq_source_ref(&push->source),
                                      .data = push->ring + reader->next_position % push->ring_bytes,
                                      .length = (size_t)there, .position = reader->next_position};
    return true;
}

/* The head is not whole but word by word: its watermark and epoch may be a moment older than its tail. */
static bool look_again(struct fq_pread *reader)
{
    int64_t high_watermark = reader->high_watermark;
    int32_t epoch = reader->view.leader_epoch;
    for (int look = 0; look < LOOKS_MAX; look++) {
        if (!fq_rpush_look(reader->push)) {
            return true; /* the link is gone, and the reader's state another */
        }
        if (reader->high_watermark != high_watermark || reader->view.leader_epoch != epoch) {
            return true;
        }
    }
    return false;
}

void fq_pushed_read(struct fq_pread *reader)
{
    while (reader->state == FQ_READER_PUSHED && !reader->has_batch && !reader->has_condition) {
        if (!reader->chunk.source && (reader->is_paused || !next_chunk(reader))) {
            break;
        }
        int found = fq_walk_open_batch(reader);
        if (found == 0) {
            fq_pread_drop_chunk(&reader->chunk);
        } else if (found == FLASHQ_ERR_NO_MEMORY) {
            break;
        } else if (found < 0 && !look_again(reader)) {
            pull_instead(reader);
        } else if (found == 1 && reader->push_failures > 0 && ++reader->push_good >= GOOD_BATCHES) {
            reader->push_failures = 0;
        }
    }
    if (reader->state == FQ_READER_PUSHED) {
        fq_rpush_settle(reader->push);
    }
}
