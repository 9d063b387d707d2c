/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending in place: memory of the log is lent to one peer, whose stores land where they stay.
 *
 * Happy path: lend the rest of the open segment; the peer stores a batch right above the log's end
 * and says so; reserve_in_place, the stamped header, write_back of the rest, commit, publish as for
 * any batch. Before the segment is full the next one is lent as well, and move_on makes it the open
 * one with the first batch in it. When the peer goes, take_back wipes what it left above the end.
 *
 * What a crash can leave: the peer's stores, any of them, above the tail of the open segment and in
 * a segment that is FREE. Neither is data: on memory nothing above a tail exists (recovery zeroes
 * it: the touched word covers all that is lent), and a FREE segment is zeroed before it is used.
 * That is why the next segment must not be PREPARED, which promises zeros, while it is lent.
 *
 * Invariant: above the end of the open segment all bytes are zero unless it is lent, so a byte that
 * nobody stored is never taken for a batch, nor a batch of somebody who has gone.
 *
 * Thread: the log's shard. Failure: only the medium's (fq_log_fail).
 */
#include <assert.h>

#include "storage/log_impl.h"

#define LEND_BYTES_MIN 4096u /* less is not worth a window */

int fq_log_may_lend(const struct fq_log *log, struct fq_err *err)
{
    return log->persist->ops->write_back
               ? 0
               : fq_err_set(err, FLASHQ_ERR_UNSUPPORTED,
                            "appends in place need memory (flush: pmem); %s is written by system "
                            "calls (flush: %s)",
                            fq_store_data_dir(log->store), fq_store_flush(log->store));
}

/* Zeros from the data position `from` on, durable before anything else is stored there. */
static int wipe(struct fq_log *log, struct fq_segment *segment, uint64_t from, uint64_t written)
{
    if (written <= from) {
        return 0;
    }
    int r = fq_segment_zero(segment, from, written);
    log->persist->ops->drain(log->persist);
    return r < 0 ? fq_log_fail(log, r, "wiping what a producer left") : 0;
}

/* A log that was not opened to be lent may have been given a segment back as it is. */
static int clear(struct fq_log *log, struct fq_segment *segment, uint64_t from)
{
    int r = segment->has_former ? wipe(log, segment, from, fq_segment_capacity(segment)) : 0;
    segment->has_former = false;
    return r;
}

int fq_log_lend(struct fq_log *log, struct fq_log_loan *ret, struct fq_err *err)
{
    int r = fq_log_may_lend(log, err);
    r = r < 0 ? r : fq_log_refuse_offline(log, err);
    if (r < 0) {
        return r;
    }
    assert(!log->is_lent && !log->is_next_lent);
    log->reserved_bytes = 0;
    if (!fq_log_fits(log, fq_log_last(log), LEND_BYTES_MIN)) {
        r = fq_log_roll(log, 0, err);
        if (r != FQ_RESERVE_OK) {
            return r;
        }
    }
    struct fq_segment *last = fq_log_last(log);
    assert(last);
    uint64_t capacity = fq_segment_capacity(last);
    if (last->touched_bytes < capacity) {
        r = fq_segment_store_touched(last, capacity);
        if (r < 0) {
            return fq_log_fail(log, r, "storing how far a segment is written");
        }
    }
    r = clear(log, last, last->data_bytes);
    if (r < 0) {
        return r;
    }
    log->is_lent = true;
    *ret = (struct fq_log_loan){last, last->data_bytes, capacity - last->data_bytes};
    return FQ_RESERVE_OK;
}

int fq_log_lend_next(struct fq_log *log, struct fq_log_loan *ret, struct fq_err *err)
{
    assert(log->is_lent && !log->is_next_lent);
    int r = fq_log_refuse_offline(log, err);
    r = r < 0 ? r : fq_log_take_next(log, 0, err);
    if (r != FQ_RESERVE_OK) {
        return r;
    }
    if (log->next->state == FQ_SEGMENT_PREPARED) { /* else it was lent before, and wiped */
        r = fq_segment_set_state(log->next, FQ_SEGMENT_FREE);
        log->persist->ops->drain(log->persist);
        if (r < 0) {
            return fq_log_fail(log, r, "lending a segment");
        }
    }
    r = clear(log, log->next, 0);
    if (r < 0) {
        return r;
    }
    log->is_next_lent = true;
    *ret = (struct fq_log_loan){log->next, 0, fq_segment_capacity(log->next)};
    return FQ_RESERVE_OK;
}

int fq_log_move_on(struct fq_log *log, uint64_t written)
{
    struct fq_segment *last = fq_log_last(log);
    assert(log->is_lent && log->is_next_lent && last);
    int r = wipe(log, last, last->data_bytes, written);
    r = r < 0 ? r : fq_log_roll(log, 0, NULL);
    assert(r != FQ_RESERVE_STARVED); /* the next is here, and memory waits for no flusher */
    return r;
}

int fq_log_reserve_in_place(struct fq_log *log, uint64_t length, struct fq_err *err)
{
    struct fq_segment *last = fq_log_last(log);
    assert(log->is_lent && last);
    log->reserved_bytes = 0;
    int r = fq_log_refuse_offline(log, err);
    if (r < 0) {
        return r;
    }
    if (log->end > FQ_OFFSET_MAX || !fq_log_fits(log, last, length)) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "the segment takes no further batch");
    }
    log->reserved_bytes = length;
    return FQ_RESERVE_OK;
}

int fq_log_write_back(struct fq_log *log, uint64_t at, uint64_t length)
{
    struct fq_segment *last = fq_log_last(log);
    assert(at <= log->reserved_bytes && length <= log->reserved_bytes - at);
    int r =
        log->persist->ops->write_back(&last->file->pf, FQ_SEG_DATA + last->data_bytes + at, length);
    return r < 0 ? fq_log_fail(log, r, "writing back a batch") : 0;
}

void fq_log_take_back(struct fq_log *log, uint64_t written, uint64_t written_next)
{
    if (log->is_next_lent && !fq_log_is_offline(log, NULL)) {
        (void)wipe(log, log->next, 0, written_next);
    }
    struct fq_segment *last = fq_log_last(log);
    if (log->is_lent && last && !fq_log_is_offline(log, NULL)) {
        (void)wipe(log, last, last->data_bytes, written);
    }
    log->is_next_lent = false;
    log->is_lent = fq_log_is_offline(log, NULL) && log->is_lent; /* then it may be dirty */
    log->reserved_bytes = 0;
}
