/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which segment the next bytes are in, and what is done about bytes that are not what they must be.
 *
 * Happy path: SEGMENT_OPEN at an offset, its answer, READING. Bytes that do not fit are read again, then the
 * segment is asked for again, and only then they are damage: its end is looked for in the bytes at hand, else
 * with the broker's help by galloping up and halving; the range is reported and passed over.
 * What can fail: what reader.c says of refusals. In SEEKING exactly one SEGMENT_OPEN is under way.
 * Thread: any, under the client's lock.
 */
#include "base/clock.h"
#include "consumer/consumer.h"
#include "consumer/hub.h"
#include "consumer/reader.h"

#define DOUBTS_BEFORE_ASKING 2
#define GUESS_FIRST ((size_t)16 << 10)

/* ---- the end of damage ---------------------------------------------------------------------- */

/* One answer in the search for the end of a damaged range: gallop up, then halve. true: found. */
static bool probe_goes_on(struct fq_pread *reader, bool is_good, int64_t good_offset)
{
    if (is_good) {
        reader->probe_high = good_offset;
    } else {
        reader->probe_low = reader->asked_offset;
    }
    int64_t next;
    if (reader->probe_high < 0) {
        reader->probe_step *= 2;
        next = reader->probe_low + reader->probe_step;
        next = next < reader->high_watermark ? next : reader->high_watermark;
    } else {
        next = reader->probe_low + (reader->probe_high - reader->probe_low) / 2;
    }
    if (reader->probe_high >= 0 && next <= reader->probe_low) {
        return false;
    }
    if (next <= reader->probe_low) { /* the high watermark itself is damaged: cannot be */
        reader->probe_high = reader->high_watermark;
        return false;
    }
    fq_pread_ask_segment(reader, next);
    return true;
}

/* The range [from, next readable) is damaged: tell, and go on behind it. */
static void report_damage(struct fq_pread *reader, int64_t next_readable)
{
    reader->is_probing = false;
    reader->doubts = 0;
    reader->is_sequential = false;
    fq_pread_set_condition(reader, FLASHQ_ERR_CORRUPT, next_readable);
}

static void begin_probing(struct fq_pread *reader, int64_t damaged_offset)
{
    reader->is_probing = true;
    reader->next_offset = damaged_offset;
    reader->probe_low = damaged_offset;
    reader->probe_high = -1;
    reader->probe_step = 1;
    int64_t next = damaged_offset + 1;
    fq_pread_ask_segment(reader, next < reader->high_watermark ? next : reader->high_watermark);
}

/* ---- the segment ---------------------------------------------------------------------------- */

/* ---- segments ------------------------------------------------------------------------------- */

static void begin_reading(struct fq_pread *reader, uint64_t position, int64_t offset)
{
    reader->next_position = position;
    reader->next_offset = offset;
    reader->last_epoch = -1;
    reader->want_bytes = 0;
    reader->guess_bytes = GUESS_FIRST;
    reader->is_caught_up = false;
    reader->wants_view = true;
    reader->failures = 0;
    reader->reported = 0;
    fq_pread_set_state(reader, FQ_READER_READING);
}

static void segment_given(struct fq_pread *reader, const struct fq_segment_open_answer *answer)
{
    struct fq_err err = {0};
    struct fq_link *link = fq_hub_link(reader->hub);
    bool is_damaged = reader->is_probing || answer->position_offset > reader->asked_offset;
    bool is_beyond = !reader->is_probing || answer->position_offset > reader->next_offset;
    if (reader->is_probing && probe_goes_on(reader, is_beyond, answer->position_offset)) {
        fq_rsegment_decline(link, reader->id, answer);
        return;
    }
    if (reader->is_probing && (!is_beyond || answer->position_offset != reader->probe_high)) {
        reader->is_probing = false; /* the last answer was not the one to go on with: ask for that */
        reader->probe_step = 0;
        int64_t good = reader->probe_high;
        fq_rsegment_decline(link, reader->id, answer);
        report_damage(reader, good);
        fq_pread_ask_segment(reader, good);
        return;
    }
    if (answer->segment_id != 0 || answer->window_bytes != 0) {
        int code = fq_rsegment_open(link, reader->id, answer, &reader->segment, &err);
        if (code != 0) {
            fq_link_fail(link, code, err.text);
            return;
        }
    }
    if (is_damaged) {
        report_damage(reader, answer->position_offset);
    }
    bool was_told = reader->has_condition;
    int reported = reader->reported;
    begin_reading(reader, answer->position, answer->position_offset);
    reader->reported = was_told ? reported : 0;
}

/* To where the application wants to be, from READING or SEEKING. */
void fq_pread_go_to_position(struct fq_pread *reader)
{
    if (reader->position >= 0) {
        fq_pread_begin_at(reader, reader->position);
    } else {
        fq_pread_reopen(reader); /* what start and end are, opening says */
    }
}

static void segment_opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_pread *reader = context;
    struct fq_segment_open_answer answer;
    struct fq_err err = {0};
    if (!msg && status == FLASHQ_ERR_UNREACHABLE) {
        return;
    }
    if (status == 0) {
        status = fq_decode_segment_open_answer(msg, &answer, &err);
        text = err.text;
    }
    if (reader->is_superseded && msg) {
        reader->is_superseded = false;
        if (status == 0) {
            fq_rsegment_decline(fq_hub_link(reader->hub), reader->id, &answer);
        }
        fq_pread_go_to_position(reader);
    } else if (status == 0) {
        segment_given(reader, &answer);
    } else if (status == FLASHQ_ERR_CORRUPT && reader->is_probing) {
        if (!probe_goes_on(reader, false, -1)) {
            int64_t good = reader->probe_high;
            report_damage(reader, good);
            fq_pread_ask_segment(reader, good);
        }
    } else if (status == FLASHQ_ERR_CORRUPT) {
        begin_probing(reader, reader->asked_offset);
    } else {
        fq_pread_refused(reader, status, text);
    }
    fq_engine_progress(reader->consumer->engine);
}

void fq_pread_ask_segment(struct fq_pread *reader, int64_t offset)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    uint8_t buffer[128];
    fq_pread_drop_segment(reader);
    reader->asked_offset = offset;
    struct fq_segment_open open = {.reader = reader->id, .offset = offset};
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_segment_open(buffer, sizeof buffer, correlation, &open);
    fq_pread_set_state(reader, FQ_READER_SEEKING);
    int code = fq_link_request(link, buffer, length, correlation,
                               fq_deadline_us(link->engine->now_us, link->engine->config.timeout_ms),
                               segment_opened, reader);
    if (code != 0) {
        fq_pread_refused(reader, code, NULL);
    }
}

void fq_pread_find_segment(struct fq_pread *reader)
{
    fq_pread_ask_segment(reader, reader->next_offset);
}

/* ---- doubt ---------------------------------------------------------------------------------- */

/* What stands at next_position is not the batch that must be there. */
void fq_pread_doubt(struct fq_pread *reader)
{
    int64_t offset;
    uint64_t position;
    bool is_earlier_segment = reader->segment->info.segment_id != reader->view.segment_id &&
                              !reader->segment->info.is_sealed;
    reader->doubts++;
    if (reader->doubts <= DOUBTS_BEFORE_ASKING && !is_earlier_segment) {
        fq_pread_drop_bytes(reader);
        reader->is_sequential = true;
        reader->has_view = false;
        return;
    }
    if (reader->doubts <= DOUBTS_BEFORE_ASKING + 1) {
        reader->doubts = DOUBTS_BEFORE_ASKING + 1;
        fq_pread_find_segment(reader); /* the end of an earlier segment looks like this */
        return;
    }
    if (fq_walk_find_next(reader, &offset, &position)) {
        fq_pread_drop_bytes(reader);
        reader->next_offset = offset;
        reader->next_position = position;
        report_damage(reader, offset);
        return;
    }
    begin_probing(reader, reader->next_offset);
}
