/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking data out of a log: trim (from the start), retention (whole segments from the start),
 * truncate (from the end), and retiring the files. MEDIA.md, "Removing", argues the orders of
 * stores.
 *
 * Trim and truncate block on disks and are durable when they return; they are rare and asked for by
 * people or by replication. Retention never blocks: the housekeeper does its syncs.
 * Failure of a store or sync takes the log offline; what was to be removed may be there after a
 * restart, and nothing else has changed.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/fabric.h"
#include "storage/log_impl.h"
#include "storage/walk.h"

/* --- retiring --------------------------------------------------------------------------------- */

/* Hands a segment that nobody here holds to the housekeeper. A peer may still map its region: then
 * the file is unlinked and its pages go when the last mapping does. */
static void hand_over(struct fq_log *log, struct fq_segment *segment)
{
    fq_region_unref(segment->region);
    segment->region = NULL;
    segment->log = NULL;
    segment->retire_job.run = fq_pool_retire;
    fq_store_give(log->store, &segment->retire_job);
}

static void retire(struct fq_log *log, struct fq_segment *segment)
{
    segment->is_retired = true;
    log->bytes -= segment->data_bytes;
    if (segment->pins == 0) {
        hand_over(log, segment);
        return;
    }
    if (log->zombies_count == log->zombies_capacity) {
        size_t capacity = log->zombies_capacity ? 2 * log->zombies_capacity : 8;
        struct fq_segment **grown = realloc(log->zombies, capacity * sizeof *grown);
        if (!grown) { /* its readers free it; the file stays until the next start finds it trimmed
                       */
            segment->log = NULL;
            return;
        }
        log->zombies = grown;
        log->zombies_capacity = capacity;
    }
    log->zombies[log->zombies_count++] = segment;
}

void fq_log_retire_unpinned(struct fq_segment *segment)
{
    struct fq_log *log = segment->log;
    for (size_t i = 0; i < log->zombies_count; i++) {
        if (log->zombies[i] == segment) {
            log->zombies[i] = log->zombies[--log->zombies_count];
            break;
        }
    }
    hand_over(log, segment);
}

void fq_log_retire_first(struct fq_log *log, size_t count, struct fq_segment *after)
{
    for (size_t i = 0; i < count; i++) {
        struct fq_segment *segment = log->segments[i];
        segment->retire_after = after ? fq_segfile_ref(after->file) : NULL;
        retire(log, segment);
    }
    log->segments_count -= count;
    memmove(log->segments, log->segments + count, log->segments_count * sizeof log->segments[0]);
}

/* --- from the start --------------------------------------------------------------------------- */

static size_t segment_holding(const struct fq_log *log, int64_t offset)
{
    size_t i = log->segments_count - 1;
    while (i > 0 && log->segments[i]->identity.base_offset > offset) {
        i--;
    }
    return i;
}

int fq_log_refuse_offline(struct fq_log *log, struct fq_err *err)
{
    struct fq_err why;
    return fq_log_is_offline(log, &why) ? fq_err_set(err, FLASHQ_ERR_OFFLINE, "%s", why.text) : 0;
}

int fq_log_trim(struct fq_log *log, int64_t offset, struct fq_err *err)
{
    int r = fq_log_refuse_offline(log, err);
    if (r < 0 || offset <= log->start) {
        return r;
    }
    if (offset > log->end) {
        return fq_err_set(err, FLASHQ_ERR_OUT_OF_RANGE, "offset %lld is above the end, %lld",
                          (long long)offset, (long long)log->end);
    }
    size_t i = segment_holding(log, offset);
    struct fq_segment *segment = log->segments[i];
    r = fq_segment_map(segment, err);
    if (r < 0) {
        return r;
    }
    /* 1. The start may not pass what is durable, or a crash would leave a start above the end. */
    r = fq_log_publish(log);
    if (r == 0) {
        r = fq_segfile_sync(segment->file, "trimming");
    }
    /* 2. This word moves the start. */
    if (r == 0) {
        r = fq_segment_store_start(segment, offset);
    }
    if (r == 0) {
        r = fq_segfile_sync(segment->file, "trimming");
    }
    if (r < 0) {
        return fq_err_set(err, fq_log_fail(log, r, "trimming"), "trim: %s", fq_err_describe(r));
    }
    log->start = offset;
    fq_log_retire_first(log, i, NULL);
    return 0;
}

int fq_log_apply_retention(struct fq_log *log)
{
    size_t count = 0;
    uint64_t left = log->bytes;
    if (log->retention_bytes == 0 || fq_log_is_offline(log, NULL)) {
        return 0;
    }
    while (count + 1 < log->segments_count && left > log->retention_bytes) {
        left -= log->segments[count]->data_bytes;
        count++;
    }
    if (count == 0 || fq_segment_map(log->segments[count], NULL) < 0) {
        return 0;
    }
    struct fq_segment *first = log->segments[count];
    if (log->start < first->identity.base_offset) {
        int r = fq_segment_store_start(first, first->identity.base_offset);
        if (r < 0) {
            (void)fq_log_fail(log, r, "moving the log start");
            return 0;
        }
        log->persist->ops->drain(log->persist);
        log->start = first->identity.base_offset;
    }
    fq_log_retire_first(log, count, first);
    return (int)count;
}

/* --- from the end ------------------------------------------------------------------------------
 */

/* Where in the segment the batch that holds `offset` begins; damage there is cut whole. */
static struct fq_index_entry find_cut(const struct fq_segment *segment, int64_t offset)
{
    struct fq_walk walk;
    struct fq_batch_header header;
    fq_walk_init(&walk, segment, fq_segment_bytes(segment), segment->data_bytes);
    for (;;) {
        enum fq_walk_result look = fq_walk_look(&walk, &header, NULL);
        if (look == FQ_WALK_END ||
            (look == FQ_WALK_FIT && header.base_offset + header.last_offset_delta >= offset)) {
            return (struct fq_index_entry){walk.offset, walk.position};
        }
        if (look == FQ_WALK_FIT) {
            fq_walk_advance(&walk, &header);
            continue;
        }
        struct fq_index_entry before = {walk.offset, walk.position};
        (void)fq_walk_resync(&walk);
        if (walk.position == walk.limit || walk.offset > offset) {
            return before;
        }
    }
}

/* A whole segment above the cut: FREE, durably, before the next older one is touched. */
static int drop_last_segment(struct fq_log *log)
{
    struct fq_segment *segment = fq_log_last(log);
    int r = fq_segment_map(segment, NULL);
    if (r == 0) {
        fq_segfile_retract(segment->file, INT64_MIN);
        r = fq_segment_set_state(segment, FQ_SEGMENT_FREE);
    }
    if (r == 0) {
        r = fq_segfile_sync(segment->file, "truncating");
    }
    if (r == 0) {
        log->segments_count--;
        retire(log, segment);
    }
    return r;
}

static int cut_segment(struct fq_log *log, struct fq_segment *segment, struct fq_index_entry cut)
{
    struct fq_segfile *file = segment->file;
    uint64_t old_bytes = segment->data_bytes;
    /* What stays, first: no tail may cover what is not durable. */
    int r = fq_segfile_sync(file, "truncating");
    fq_segfile_retract(segment->file, cut.base_offset);
    if (r == 0 && segment->state == FQ_SEGMENT_SEALED) {
        r = fq_segment_set_state(segment, FQ_SEGMENT_OPEN);
    }
    if (r == 0) {
        r = fq_segment_store_tail(segment, cut.position, cut.base_offset);
    }
    if (r == 0 && cut.base_offset < log->start) {
        r = fq_segment_store_start(segment, cut.base_offset);
    }
    if (r == 0) {
        r = fq_segfile_sync(file, "truncating"); /* before zeros: below a tail they are damage */
    }
    if (r == 0) {
        r = fq_segment_zero(segment, cut.position, old_bytes);
    }
    if (r == 0) {
        r = fq_segment_drop_epochs(segment, cut.base_offset);
    }
    return r < 0 ? r : fq_segfile_sync(file, "truncating");
}

static void forget_above(struct fq_log *log, struct fq_segment *segment, struct fq_index_entry cut)
{
    log->bytes -= segment->data_bytes - cut.position;
    segment->data_bytes = cut.position;
    segment->end_offset = cut.base_offset;
    while (segment->index_count > 0 &&
           segment->index[segment->index_count - 1].position >= cut.position) {
        segment->index_count--;
    }
    if (segment->is_index_whole || segment->index_next.position > cut.position) {
        segment->index_next = cut;
    }
    log->end = log->published_end = cut.base_offset;
    log->start = log->start < log->end ? log->start : log->end;
    log->last_epoch = fq_segment_epoch_at(segment, INT64_MAX);
    log->late_segment = NULL;
    log->reserved_bytes = 0;
    atomic_store(&log->shared->durable_end, log->end);
}

int fq_log_truncate(struct fq_log *log, int64_t offset, struct fq_err *err)
{
    int r = fq_log_refuse_offline(log, err);
    if (r < 0 || offset >= log->end) {
        return r;
    }
    if (log->is_lent || log->is_next_lent) {
        return fq_err_set(err, FLASHQ_ERR_BUSY, "a producer is appending in place");
    }
    if (offset < log->start) {
        return fq_err_set(err, FLASHQ_ERR_TRIMMED, "offset %lld is below the log start, %lld",
                          (long long)offset, (long long)log->start);
    }
    fq_log_end_data(log);
    size_t keep = segment_holding(log, offset) + 1;
    while (r == 0 && log->segments_count > keep) {
        r = drop_last_segment(log);
    }
    struct fq_segment *segment = fq_log_last(log);
    struct fq_index_entry cut = {0, 0};
    if (r == 0) {
        r = fq_segment_map(segment, err);
    }
    if (r == 0) {
        fq_log_bind(log, segment);
        cut = find_cut(segment, offset);
        r = cut_segment(log, segment, cut);
    }
    if (r < 0) {
        return fq_err_set(err, fq_log_fail(log, r, "truncating"), "truncate: %s",
                          fq_err_describe(r));
    }
    forget_above(log, segment, cut);
    return 0;
}
