/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking away: from below (trim, retention) and from above (truncate).
 *
 * The log goes first, and its removal is durable when it returns; then follow the chunk index,
 * epoch history, producer states (truncation alone: producers outlive the records they sent), the
 * view, and the calendar. When the log refuses, nothing has changed. Block (disk).
 *
 * Thread: the shard.
 */
#include "base/log.h"
#include "partition/state.h"

static void follow_log_start(struct fq_partition *p)
{
    int64_t start = fq_log_start(p->log);
    fq_chunks_trim(p->chunks, start);
    fq_epochs_trim(&p->epochs, start);
    if (p->high_watermark < start) {
        p->high_watermark = start;
    }
    p->cut_trim = start;
    p->feeder_behind = true;
    fq_partition_forget_places(p);
    fq_partition_refresh_view(p);
}

int fq_partition_trim(struct fq_partition *p, int64_t before_offset, struct fq_err *err)
{
    int64_t start = fq_log_start(p->log), end = p->high_watermark;
    if (before_offset == -1) {
        before_offset = end;
    }
    if (before_offset < 0 || before_offset > end) {
        return fq_err_set(err, FLASHQ_ERR_OUT_OF_RANGE,
                          "trim before offset %lld: the log holds %lld to %lld",
                          (long long)before_offset, (long long)start, (long long)end);
    }
    if (before_offset <= start) {
        return 0;
    }
    int rc = fq_log_trim(p->log, before_offset, err);
    if (rc == 0) {
        follow_log_start(p);
    }
    return rc;
}

bool fq_partition_is_retention_due(const struct fq_partition *p)
{
    return p->is_retention_due;
}

int fq_partition_apply_retention(struct fq_partition *p)
{
    p->is_retention_due = false;
    int retired = fq_log_apply_retention(p->log);
    if (retired > 0) {
        follow_log_start(p);
    }
    return retired;
}

/* An index file that outlived the cut could fit what is appended instead, if that has the same
 * lengths: it goes first. */
static int remove_indexes(struct fq_partition *p, int64_t offset, struct fq_err *err)
{
    for (struct fq_segment *segment = fq_log_segment_first(p->log); segment != NULL;
         segment = fq_segment_next(segment)) {
        if (!fq_segment_is_sealed(segment) || fq_segment_end_offset(segment) <= offset) {
            continue;
        }
        int rc = fq_log_remove_sidecar(p->log, segment, FQ_PARTITION_INDEX_SUFFIX);
        if (rc < 0) {
            return fq_err_set(err, rc, "removing the index of segment %lld: %s",
                              (long long)fq_segment_base_offset(segment), fq_err_describe(rc));
        }
    }
    return 0;
}

int fq_partition_truncate(struct fq_partition *p, int64_t offset, struct fq_err *err)
{
    int rc = remove_indexes(p, offset, err);
    if (rc == 0) {
        rc = fq_log_truncate(p->log, offset, err);
    }
    if (rc < 0) {
        return rc;
    }
    int64_t end = fq_log_end(p->log);
    fq_producers_truncate(&p->producers, end);
    fq_epochs_truncate(&p->epochs, end);
    if (p->high_watermark > end) {
        p->high_watermark = end;
    }
    if (p->published_end > end) {
        p->published_end = end;
    }
    if (p->cut_truncate < 0 || p->cut_truncate > end) {
        p->cut_truncate = end;
    }
    fq_calendar_feeder_init(&p->feeder, p->feeder.next_offset < end ? p->feeder.next_offset : end);
    p->feeder_behind = true;
    struct fq_segment *last = fq_log_segment_last(p->log);
    if (last != NULL && p->index_next > fq_segment_base_offset(last)) {
        p->index_next = fq_segment_base_offset(last);
        /* One that was still queued for the segment comes to nothing. */
        (void)fq_log_write_sidecar(p->log, last, FQ_PARTITION_INDEX_SUFFIX, "", 0);
    }
    fq_partition_forget_places(p);
    rc = fq_partition_rescan_chunks(p, fq_chunks_truncate(p->chunks, end), end);
    fq_partition_refresh_view(p);
    if (rc < 0) {
        return fq_err_set(err, rc, "indexing what is left below %lld: %s", (long long)end,
                          fq_err_describe(rc));
    }
    return 0;
}
