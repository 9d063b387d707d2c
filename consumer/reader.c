/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a partition being read; diagram and invariants in reader.h.
 *
 * Happy path: READER_OPEN, SEGMENT_OPEN at the position, then chunks are fetched (fetch.c) and walked
 * (walk.c) until the segment ends, then SEGMENT_OPEN at the next offset. At the high watermark the reader is
 * caught up: it arms a wake-up and does nothing until notified.
 * What can fail: the connection (everything is opened again at the next offset), the position (TRIMMED,
 * OUT_OF_RANGE), the bytes (CORRUPT: the damaged range is found, reported, passed over), the partition
 * (OFFLINE: tried again), the topic (UNKNOWN_TOPIC_ID: final).
 * Thread: any, under the client's lock.
 */
#include "consumer/reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "consumer/consumer.h"
#include "consumer/hub.h"
#include "consumer/push.h"

#define RETRY_FIRST_US 20000
#define RETRY_MOST_US 1000000

static const char *const state_names[] = {
    [FQ_READER_UNROUTED] = "unrouted", [FQ_READER_LINK] = "link",
    [FQ_READER_OPENING] = "opening",   [FQ_READER_SEEKING] = "seeking",
    [FQ_READER_READING] = "reading",   [FQ_READER_PUSH_OPENING] = "push opening",
    [FQ_READER_PUSHED] = "pushed",     [FQ_READER_PUSH_CLOSING] = "push closing",
    [FQ_READER_HALTED] = "halted"};

#define MAY(state) (1u << (state))
static const unsigned may_follow[] = {
    [FQ_READER_UNROUTED] = MAY(FQ_READER_LINK) | MAY(FQ_READER_HALTED),
    [FQ_READER_LINK] = MAY(FQ_READER_LINK) | MAY(FQ_READER_OPENING) | MAY(FQ_READER_HALTED),
    [FQ_READER_OPENING] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) | MAY(FQ_READER_PUSH_OPENING) |
                          MAY(FQ_READER_HALTED),
    [FQ_READER_SEEKING] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) | MAY(FQ_READER_READING) |
                          MAY(FQ_READER_PUSH_OPENING) | MAY(FQ_READER_HALTED),
    [FQ_READER_READING] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) | MAY(FQ_READER_PUSH_OPENING) |
                          MAY(FQ_READER_HALTED),
    [FQ_READER_PUSH_OPENING] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) | MAY(FQ_READER_PUSHED) |
                               MAY(FQ_READER_PUSH_CLOSING) | MAY(FQ_READER_HALTED),
    [FQ_READER_PUSHED] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) | MAY(FQ_READER_PUSH_CLOSING) |
                         MAY(FQ_READER_HALTED),
    [FQ_READER_PUSH_CLOSING] = MAY(FQ_READER_LINK) | MAY(FQ_READER_SEEKING) |
                               MAY(FQ_READER_PUSH_OPENING) | MAY(FQ_READER_HALTED),
    [FQ_READER_HALTED] = MAY(FQ_READER_LINK)};

void fq_pread_set_state(struct fq_pread *reader, enum fq_reader_state state)
{
    assert(may_follow[reader->state] & MAY(state));
    fq_journal_add(&reader->consumer->engine->journal, FLASHQ_LOG_DEBUG, "%s/%d: reader %s -> %s",
                   reader->rtopic->name, reader->index, state_names[reader->state],
                   state_names[state]);
    reader->state = state;
    fq_consumer_busy(reader->consumer, reader);
}

static void pause_then_retry(struct fq_pread *reader)
{
    int64_t pause = RETRY_FIRST_US << (reader->failures < 6 ? reader->failures : 6);
    reader->failures++;
    reader->retry_us =
        reader->consumer->engine->now_us + (pause < RETRY_MOST_US ? pause : RETRY_MOST_US);
}

/* ---- letting go ----------------------------------------------------------------------------- */

void fq_pread_drop_chunk(struct fq_chunk *chunk)
{
    fq_source_unref(chunk->source);
    *chunk = (struct fq_chunk){0};
}

void fq_pread_drop_bytes(struct fq_pread *reader)
{
    fq_pread_drop_chunk(&reader->chunk);
    fq_pread_drop_chunk(&reader->ready);
    fq_fetch_abandon(reader);
}

void fq_pread_drop_segment(struct fq_pread *reader)
{
    fq_pread_drop_bytes(reader);
    if (reader->segment) {
        fq_source_unref(&reader->segment->source);
        reader->segment = NULL;
    }
}

void fq_pread_drop_batch(struct fq_pread *reader)
{
    fq_source_unref(reader->batch_source);
    reader->batch_source = NULL;
    reader->has_batch = false;
}

static void ignore_answer(void *context, int status, const struct fq_msg *msg, const char *text)
{
    (void)context, (void)status, (void)msg, (void)text;
}

/* Tells the broker that the reader's number is not used any more. A number that is still to come is closed as
 * an unclaimed answer (client/session.c). */
static void close_reader(struct fq_pread *reader)
{
    struct fq_link *link = reader->hub ? fq_hub_link(reader->hub) : NULL;
    uint8_t buffer[128];
    if (!link) {
        return;
    }
    fq_link_cancel(link, reader);
    fq_rpush_leave(reader);
    if (reader->is_open && fq_link_is_up(link)) {
        uint32_t correlation = fq_link_correlation(link);
        int64_t length = fq_encode_reader_close(buffer, sizeof buffer, correlation,
                                                &(struct fq_slot_ref){.slot = reader->id});
        (void)fq_link_request(link, buffer, length, correlation,
                              fq_deadline_us(link->engine->now_us, link->engine->config.timeout_ms),
                              ignore_answer, NULL);
    }
    if (reader->is_open) {
        fq_idmap_remove(&reader->hub->ids, reader->id, reader);
    }
    reader->is_open = reader->is_armed = reader->is_caught_up = reader->has_view = false;
    reader->is_superseded = false;
}

/* ---- conditions ----------------------------------------------------------------------------- */

static bool resets_itself(struct fq_pread *reader, int code)
{
    int64_t reset = reader->consumer->reset;
    if (reset == FQ_RESET_NONE || (code != FLASHQ_ERR_TRIMMED && code != FLASHQ_ERR_OUT_OF_RANGE)) {
        return false;
    }
    reader->position = reset == FQ_RESET_START ? FLASHQ_OFFSET_START : FLASHQ_OFFSET_END;
    reader->next_offset = -1;
    fq_pread_reopen(reader);
    return true;
}

void fq_pread_set_condition(struct fq_pread *reader, int code, int64_t end)
{
    fq_consumer_note_error(reader->consumer, reader, code, end);
    if (reader->reported != code) {
        reader->reported = code;
        reader->condition = code;
        reader->condition_end = end;
        reader->has_condition = !resets_itself(reader, code);
        fq_engine_progress(reader->consumer->engine);
        if (!reader->has_condition) {
            reader->reported = 0;
            return;
        }
    }
    if (code != FLASHQ_ERR_CORRUPT) {
        fq_pread_drop_segment(reader);
        close_reader(reader);
        if (reader->state != FQ_READER_HALTED) {
            fq_pread_set_state(reader, FQ_READER_HALTED);
        }
        pause_then_retry(reader);
    }
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pread_take_condition(struct fq_pread *reader, int *ret_code, int64_t *ret_offset,
                             int64_t *ret_end)
{
    *ret_code = reader->condition;
    *ret_offset = reader->position;
    *ret_end = reader->condition_end;
    reader->has_condition = false;
    if (reader->condition == FLASHQ_ERR_CORRUPT) {
        reader->reported = 0; /* the next damage is another one */
        reader->position = reader->condition_end > reader->position ? reader->condition_end
                                                                    : reader->position;
    }
    fq_consumer_busy(reader->consumer, reader);
}

/* Halted by something that may pass by itself. */
static bool may_recover(const struct fq_pread *reader)
{
    switch (reader->condition) {
    case FLASHQ_ERR_TRIMMED:
    case FLASHQ_ERR_OUT_OF_RANGE:
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID:
    case FLASHQ_ERR_NOT_FOUND: return false;
    default: return true;
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The offset to go on at: behind the batch that is being handed out. */
static int64_t resume_offset(const struct fq_pread *reader)
{
    return reader->has_batch ? reader->next_offset : reader->position;
}

void fq_pread_reopen(struct fq_pread *reader)
{
    fq_pread_drop_segment(reader);
    close_reader(reader);
    reader->is_probing = false;
    if (reader->state != FQ_READER_UNROUTED) {
        fq_pread_set_state(reader, FQ_READER_LINK);
    }
}

void fq_pread_retry(struct fq_pread *reader)
{
    fq_pread_reopen(reader);
    pause_then_retry(reader);
}

/* What a refusal means, of READER_OPEN and of SEGMENT_OPEN. */
void fq_pread_refused(struct fq_pread *reader, int code, const char *text)
{
    (void)fq_err_set(&reader->consumer->last_error, code, "%s/%d: %s", reader->rtopic->name,
                     reader->index, text && text[0] ? text : fq_err_describe(code));
    switch (code) {
    case FLASHQ_ERR_NOT_LEADER:
        reader->wants_reroute = true;
        fq_pread_retry(reader);
        break;
    case FLASHQ_ERR_UNREACHABLE:
    case FLASHQ_ERR_CLOSED:
    case FLASHQ_ERR_TIMED_OUT:
    case FLASHQ_ERR_BUSY:
    case FLASHQ_ERR_AGAIN:
    case FLASHQ_ERR_NO_MEMORY:
    case FLASHQ_ERR_LIMIT:
    case FLASHQ_ERR_SHUTTING_DOWN:
    case FLASHQ_ERR_TRIMMED:      /* of SEGMENT_OPEN: opening anew says exactly where the log begins */
    case FLASHQ_ERR_OUT_OF_RANGE: fq_pread_retry(reader); break;
    case FLASHQ_ERR_NOT_FOUND:
        fq_pread_set_condition(reader, FLASHQ_ERR_UNKNOWN_TOPIC_ID, -1);
        break;
    default: fq_pread_set_condition(reader, code, -1); break;
    }
}

static void reader_opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_pread *reader = context;
    struct fq_reader_open_answer answer;
    struct fq_err err = {0};
    if (!msg && status == FLASHQ_ERR_UNREACHABLE) {
        return; /* the hub tells */
    }
    if (status == 0) {
        status = fq_decode_reader_open_answer(msg, &answer, &err);
        text = err.text;
    }
    if (status != 0) {
        fq_pread_refused(reader, status, text);
        return;
    }
    if (fq_idmap_set(&reader->hub->ids, answer.reader, reader) != 0) {
        fq_pread_refused(reader, FLASHQ_ERR_NO_MEMORY, NULL);
        return;
    }
    reader->id = answer.reader;
    reader->is_open = true;
    reader->view_line = answer.view_line;
    reader->view_generation = answer.view_generation;
    reader->view = (struct fq_view){.leader_epoch = answer.leader_epoch};
    reader->has_view = false;
    reader->high_watermark = answer.end;
    if (reader->position == FLASHQ_OFFSET_START || reader->position == FLASHQ_OFFSET_END) {
        reader->position = reader->position == FLASHQ_OFFSET_START ? answer.log_start : answer.end;
    }
    int64_t offset = resume_offset(reader);
    if (offset < answer.log_start) {
        fq_pread_set_condition(reader, FLASHQ_ERR_TRIMMED, answer.log_start);
    } else if (offset > answer.end) {
        fq_pread_set_condition(reader, FLASHQ_ERR_OUT_OF_RANGE, answer.end);
    } else {
        fq_pread_begin_at(reader, offset);
    }
    fq_engine_progress(reader->consumer->engine);
}

void fq_pread_begin_at(struct fq_pread *reader, int64_t offset)
{
    if (!fq_pushed_is_due(reader) || !fq_pushed_begin(reader, offset)) {
        fq_pread_ask_segment(reader, offset);
    }
}

static void open_reader(struct fq_pread *reader, int64_t now_us)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    uint8_t buffer[256];
    struct fq_reader_open open = {.topic_id = reader->rtopic->id, .partition = (uint32_t)reader->index};
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_reader_open(buffer, sizeof buffer, correlation, &open);
    fq_pread_set_state(reader, FQ_READER_OPENING);
    int code = fq_link_request(link, buffer, length, correlation,
                               fq_deadline_us(now_us, link->engine->config.timeout_ms), reader_opened,
                               reader);
    if (code != 0) {
        fq_pread_refused(reader, code, NULL);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static void arm(struct fq_pread *reader)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    uint8_t buffer[128];
    struct fq_reader_arm arm_message = {.reader = reader->id, .offset = reader->next_offset};
    int64_t length =
        fq_encode_reader_arm(buffer, sizeof buffer, fq_link_correlation(link), &arm_message);
    reader->is_armed = fq_link_send(link, buffer, length) == 0;
}

/* Nothing is there: true if there may be something again. */
static bool look_again(struct fq_pread *reader)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    if (reader->is_armed) {
        return false;
    }
    bool can_see = link->views && fq_remote_map(link->views);
    if (can_see && fq_fetch_look(reader) && reader->high_watermark > reader->next_offset) {
        reader->is_caught_up = false;
        if (!reader->segment) {
            fq_pread_find_segment(reader); /* the first batch came */
        }
        return true;
    }
    if (!can_see) {
        arm(reader);
    }
    return false;
}

static void read_on(struct fq_pread *reader)
{
    while (reader->state == FQ_READER_READING && !reader->has_batch && !reader->has_condition) {
        if (fq_pushed_is_due(reader) && fq_pushed_begin(reader, reader->next_offset)) {
            return;
        }
        if (reader->is_caught_up && !look_again(reader)) {
            return;
        }
        if (reader->state != FQ_READER_READING || reader->is_caught_up) {
            continue;
        }
        if (!reader->chunk.source && reader->is_paused) {
            return; /* it keeps what was read ahead, and reads nothing more */
        }
        if (!reader->chunk.source && fq_fetch_next(reader) == 0) {
            if (reader->state == FQ_READER_READING && reader->is_caught_up && !reader->is_armed) {
                continue; /* arm, where the view cannot be seen */
            }
            return;
        }
        int found = fq_walk_open_batch(reader);
        if (found == 0) {
            fq_pread_drop_chunk(&reader->chunk);
        } else if (found == FLASHQ_ERR_NO_MEMORY) {
            return;
        } else if (found < 0) {
            fq_pread_doubt(reader);
        } else if (reader->push_hold > 0 && --reader->push_hold == 0) {
            reader->push_retry_us = 0; /* the place that could not be pushed is behind it */
        }
    }
}

void fq_pread_prepare(struct fq_pread *reader, int64_t now_us)
{
    if (reader->segment && now_us >= reader->segment->retire_us &&
        reader->state == FQ_READER_READING) {
        fq_pread_ask_segment(reader, reader->next_offset);
    }
    switch (reader->state) {
    case FQ_READER_UNROUTED: fq_consumer_refresh(reader->consumer, reader->rtopic); break;
    case FQ_READER_LINK:
        if (now_us < reader->retry_us) {
            break;
        }
        if (reader->wants_reroute) {
            fq_consumer_refresh(reader->consumer, reader->rtopic);
        } else if (fq_link_is_up(fq_hub_link(reader->hub))) {
            open_reader(reader, now_us);
        }
        break;
    case FQ_READER_OPENING:
    case FQ_READER_SEEKING:
    case FQ_READER_PUSH_OPENING:
    case FQ_READER_PUSH_CLOSING: break;
    case FQ_READER_READING: read_on(reader); break;
    case FQ_READER_PUSHED: fq_pushed_read(reader); break;
    case FQ_READER_HALTED:
        if (!reader->has_condition && may_recover(reader) && now_us >= reader->retry_us) {
            reader->wants_reroute = true;
            fq_pread_set_state(reader, FQ_READER_LINK);
        }
        break;
    }
}

bool fq_pread_arm(struct fq_pread *reader)
{
    if (reader->state != FQ_READER_READING || !reader->is_caught_up || reader->is_armed ||
        reader->has_condition) {
        return false;
    }
    arm(reader);
    return false;
}

int64_t fq_pread_next_deadline_us(const struct fq_pread *reader)
{
    if (reader->segment && reader->state == FQ_READER_READING) {
        return reader->segment->retire_us;
    }
    if (reader->state == FQ_READER_PUSHED && !reader->is_paused) {
        return reader->rest_due_us;
    }
    bool waits = reader->state == FQ_READER_LINK && reader->hub &&
                 fq_link_is_up(fq_hub_link(reader->hub));
    waits |= reader->state == FQ_READER_HALTED && !reader->has_condition && may_recover(reader);
    return waits ? reader->retry_us : INT64_MAX;
}

/* ---- handing out ---------------------------------------------------------------------------- */

bool fq_pread_has_news(const struct fq_pread *reader)
{
    return !reader->is_paused && (reader->has_batch || reader->has_condition);
}

bool fq_pread_is_resolved(const struct fq_pread *reader)
{
    return reader->state == FQ_READER_READING || reader->state == FQ_READER_PUSHED ||
           reader->has_condition || reader->state == FQ_READER_HALTED;
}

/* ---- seeking, coming and going ---------------------------------------------------------------- */

void fq_pread_seek(struct fq_pread *reader, int64_t offset)
{
    fq_pread_drop_batch(reader);
    reader->has_condition = reader->is_probing = reader->is_sequential = false;
    reader->reported = 0;
    reader->condition = 0;
    reader->doubts = 0;
    reader->retry_us = 0;
    reader->position = offset;
    switch (reader->state) {
    case FQ_READER_UNROUTED:
    case FQ_READER_LINK:
    case FQ_READER_OPENING: break; /* the position is looked at once the reader is open */
    case FQ_READER_SEEKING: reader->is_superseded = true; break;
    case FQ_READER_READING: fq_pread_go_to_position(reader); break;
    case FQ_READER_PUSH_OPENING:
    case FQ_READER_PUSHED:
    case FQ_READER_PUSH_CLOSING: fq_pushed_go_to(reader, offset); break;
    case FQ_READER_HALTED:
        reader->wants_reroute |= reader->hub == NULL;
        fq_pread_set_state(reader, FQ_READER_LINK);
        break;
    }
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pread_reroute(struct fq_pread *reader, struct fq_link *link)
{
    struct fq_hub *hub;
    reader->wants_reroute = false;
    if (reader->hub && fq_hub_link(reader->hub) == link) {
        return;
    }
    if (fq_hub_of(reader->consumer, link, &hub) != 0) {
        reader->wants_reroute = true;
        return;
    }
    if (reader->hub) {
        fq_pread_drop_segment(reader);
        close_reader(reader);
        fq_hub_leave(reader);
    }
    fq_hub_join(hub, reader);
    if (reader->state != FQ_READER_HALTED) {
        fq_pread_set_state(reader, FQ_READER_LINK);
    }
}

void fq_pread_link_up(struct fq_pread *reader)
{
    reader->retry_us = reader->push_retry_us = 0;
    reader->is_push_denied = false; /* another broker, or a newer one */
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pread_link_down(struct fq_pread *reader, int code, const char *text)
{
    (void)fq_err_set(&reader->consumer->last_error, code, "%s", text);
    fq_link_cancel(fq_hub_link(reader->hub), reader);
    fq_rpush_drop(reader);
    reader->is_open = false;
    fq_pread_drop_segment(reader);
    close_reader(reader);
    reader->is_probing = false;
    if (reader->state != FQ_READER_HALTED && reader->state != FQ_READER_UNROUTED) {
        fq_pread_set_state(reader, FQ_READER_LINK);
    }
}

void fq_pread_notified(struct fq_pread *reader)
{
    reader->is_armed = false;
    reader->is_caught_up = false;
    reader->wants_view = true;
    if (!reader->segment && reader->state == FQ_READER_READING) {
        fq_pread_find_segment(reader);
    }
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pread_retiring(struct fq_pread *reader, const struct fq_segment_retiring *msg)
{
    if (!reader->segment || reader->segment->info.segment_id != msg->segment_id) {
        return;
    }
    int64_t span_us = (int64_t)msg->within_ms * 1000;
    reader->segment->retire_us = reader->consumer->engine->now_us + span_us / 2;
    fq_consumer_busy(reader->consumer, reader);
}

void fq_pread_reset(struct fq_pread *reader, const struct fq_reader_reset *msg)
{
    switch (msg->reason) {
    case FLASHQ_ERR_NOT_LEADER:
        reader->wants_reroute = true;
        fq_pread_reopen(reader);
        break;
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID:
    case FLASHQ_ERR_NOT_FOUND:
        fq_pread_set_condition(reader, FLASHQ_ERR_UNKNOWN_TOPIC_ID, -1);
        break;
    case FLASHQ_ERR_OFFLINE: fq_pread_set_condition(reader, FLASHQ_ERR_OFFLINE, -1); break;
    default: /* trimmed or truncated: opening anew tells where it stands now */
        fq_pread_reopen(reader);
        break;
    }
}

/* ---- making --------------------------------------------------------------------------------- */

int fq_pread_create(struct fq_consumer *consumer, struct fq_rtopic *rtopic, int32_t index,
                    int64_t offset, struct fq_pread **ret)
{
    struct fq_pread *reader = calloc(1, sizeof *reader);
    if (!reader) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    reader->consumer = consumer;
    reader->rtopic = rtopic;
    rtopic->refs++;
    reader->index = index;
    reader->wants_push = consumer->wants_push;
    reader->position = offset;
    reader->next_offset = -1;
    reader->high_watermark = -1;
    fq_chain_init(&reader->hub_node);
    fq_chain_init(&reader->busy_node);
    fq_chain_append(&consumer->readers, &reader->node);
    fq_consumer_busy(consumer, reader);
    *ret = reader;
    return 0;
}

void fq_pread_destroy(struct fq_pread *reader)
{
    fq_pread_drop_batch(reader);
    fq_pread_drop_segment(reader);
    close_reader(reader);
    fq_hub_leave(reader);
    fq_chain_remove(&reader->busy_node);
    fq_chain_remove(&reader->node);
    fq_consumer_drop_rtopic(reader->consumer, reader->rtopic);
    free(reader);
}
