/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a poll round, and what waits for quieter times.
 *
 * Happy path: the tail word is published, the high watermark follows what is durable, the view
 * follows the high watermark, the calendar is fed; off the path indexes are written and producers
 * expire.
 *
 * What can fail: the medium (the partition goes offline, the high watermark stands still), a full
 * ring to the housekeeper (the calendar's share waits), memory (chunks grow coarser).
 *
 * Thread: the partition's shard.
 */
#include <string.h>

#include "partition/state.h"
#include "partition/view.h"

#define ROUND_CHUNKS_MAX    8u /* fed to the calendar by one round */
#define OFF_PATH_CHUNKS_MAX 256u
#define OFF_PATH_EXPIRE_MAX 256u

/* The log may have been taken offline by the flusher. */
void fq_partition_look_at_log(struct fq_partition *p)
{
    struct fq_err why;
    if (p->state == PARTITION_SERVING && fq_log_is_offline(p->log, &why)) {
        fq_partition_go_offline(p, &why);
    }
}

/* ---- where the high watermark lies ---- */

bool fq_partition_walk(struct fq_segment *segment, int64_t target, uint64_t *position,
                       int64_t *offset)
{
    const uint8_t *data = fq_segment_data(segment);
    uint64_t bytes = fq_segment_data_bytes(segment);
    uint64_t at = *position;
    int64_t base = *offset;
    while (data != NULL && base < target && at < bytes) {
        struct fq_batch_header header;
        if (fq_batch_header_read(data + at, bytes - at, &header, NULL) < 0 ||
            header.base_offset != base || fq_batch_total_bytes(&header) > bytes - at) {
            return false;
        }
        int64_t next = base + header.records_count;
        if (target < next) {
            break;
        }
        at += fq_batch_total_bytes(&header);
        base = next;
    }
    if (data == NULL || base > target || (base < target && at >= bytes)) {
        return false;
    }
    *position = at;
    *offset = base;
    return true;
}

/* Begins the search again from the chunk index. */
static void look_up_high_watermark(struct fq_partition *p)
{
    int64_t segment_base;
    struct fq_chunk chunk;
    p->hw_segment = NULL;
    if (fq_chunks_locate(p->chunks, p->high_watermark, &segment_base, &chunk)) {
        p->hw_segment = fq_log_segment_by_base(p->log, segment_base);
        p->hw_position = chunk.position;
        p->hw_placed = chunk.base_offset;
    }
    if (p->hw_segment == NULL) {
        p->hw_segment = fq_log_segment_first(p->log);
        p->hw_position = 0;
        p->hw_placed = p->hw_segment == NULL ? 0 : fq_segment_base_offset(p->hw_segment);
    }
}

static void place_high_watermark(struct fq_partition *p)
{
    if (p->hw_segment == NULL) {
        look_up_high_watermark(p);
        if (p->hw_segment == NULL) {
            p->hw_position = 0;
            return;
        }
    }
    for (struct fq_segment *next = fq_segment_next(p->hw_segment);
         next != NULL && fq_segment_base_offset(next) <= p->high_watermark;
         next = fq_segment_next(next)) {
        p->hw_segment = next;
        p->hw_position = 0;
        p->hw_placed = fq_segment_base_offset(next);
    }
    if (p->high_watermark >= fq_segment_end_offset(p->hw_segment)) {
        p->hw_position = fq_segment_data_bytes(p->hw_segment);
        p->hw_placed = p->high_watermark;
        return;
    }
    if (!fq_partition_walk(p->hw_segment, p->high_watermark, &p->hw_position, &p->hw_placed)) {
        struct fq_log_place place; /* damage on the way: the log knows how to pass it */
        if (fq_log_find(p->log, p->high_watermark, &place) == 0) {
            p->hw_segment = place.segment;
            p->hw_position = place.position;
            p->hw_placed = place.base_offset;
        }
    }
}

void fq_partition_forget_places(struct fq_partition *p)
{
    p->hw_segment = NULL;
}

void fq_partition_refresh_view(struct fq_partition *p)
{
    place_high_watermark(p);
    struct fq_segment *segment = p->hw_segment;
    struct fq_view view = {
        .generation = p->view.generation,
        .leader_epoch = p->leader_epoch,
        .segment_id = segment == NULL ? 0 : fq_segment_id(segment),
        .segment_base_offset =
            segment == NULL ? fq_log_end(p->log) : fq_segment_base_offset(segment),
        .committed_position = p->hw_position,
        .high_watermark = p->high_watermark,
        .log_start = fq_log_start(p->log),
        .version = p->view.version,
        .state = p->state == PARTITION_SERVING ? 0 : (uint32_t)-FLASHQ_ERR_OFFLINE,
        .crc = p->view.crc,
    };
    if (p->view.version == 0 || memcmp(&view, &p->view, sizeof view) != 0) {
        fq_view_publish(p->view_line, &view);
        p->view = view;
    }
}

/* ---- rounds ---- */

int64_t fq_partition_commit_round(struct fq_partition *p)
{
    if (p->state == PARTITION_SERVING && fq_log_end(p->log) != p->published_end) {
        int rc = fq_log_publish(p->log);
        if (rc < 0) {
            struct fq_err why;
            fq_err_set(&why, rc, "publishing the tail: %s", fq_err_describe(rc));
            (void)fq_log_is_offline(p->log, &why);
            fq_partition_go_offline(p, &why);
        } else {
            p->published_end = fq_log_end(p->log);
        }
    }
    fq_partition_look_at_log(p);
    int64_t committed = p->high_watermark;
    if (p->config.durability == FQ_DURABILITY_PERSISTED) {
        committed = fq_log_durable_end(p->log);
    } else if (p->state == PARTITION_SERVING) {
        committed = fq_log_end(p->log);
    }
    if (committed > p->high_watermark) {
        p->high_watermark = committed;
    }
    fq_partition_refresh_view(p);
    fq_partition_feed_calendar(p, ROUND_CHUNKS_MAX);
    if (fq_chunks_wants_reserve(p->chunks)) {
        (void)fq_chunks_reserve(p->chunks); /* a few times a segment, after the round's work */
    }
    return p->high_watermark;
}

bool fq_partition_needs_round(const struct fq_partition *p)
{
    if (p->state == PARTITION_OFFLINE) {
        return false;
    }
    int64_t end = fq_log_end(p->log);
    return end != p->published_end || end > p->high_watermark || fq_log_is_offline(p->log, NULL);
}

/* ---- calendar ---- */

/* Cuts come before marks: the marks of what was appended after a cut lie above it. */
static bool hand_over_cuts(struct fq_partition *p)
{
    const struct fq_partition_host *host = p->host;
    if (p->cut_drop) {
        if (!host->calendar_cut(host->context, p, FQ_CALENDAR_DROP, 0)) {
            return false;
        }
        p->cut_drop = false;
    }
    if (p->cut_truncate >= 0) {
        if (!host->calendar_cut(host->context, p, FQ_CALENDAR_TRUNCATE, p->cut_truncate)) {
            return false;
        }
        p->cut_truncate = -1;
    }
    if (p->cut_trim >= 0) {
        if (!host->calendar_cut(host->context, p, FQ_CALENDAR_TRIM, p->cut_trim)) {
            return false;
        }
        fq_calendar_feeder_trim(&p->feeder, p->cut_trim);
        p->cut_trim = -1;
    }
    return true;
}

static bool emit_mark(void *context, const struct fq_calendar_mark *mark, int64_t complete_to)
{
    struct fq_partition *p = context;
    return p->host->calendar_mark(p->host->context, p, mark, complete_to);
}

void fq_partition_feed_calendar(struct fq_partition *p, unsigned chunks_max)
{
    if (p->host->calendar_mark == NULL) {
        p->feeder_behind = false;
        return;
    }
    if (!hand_over_cuts(p)) {
        p->feeder_behind = true;
        return;
    }
    p->feeder_behind = fq_calendar_feeder_step(&p->feeder, p->chunks, p->high_watermark, chunks_max,
                                               emit_mark, p) > 0;
}

/* ---- off the path ---- */

static int write_indexes(struct fq_partition *p)
{
    int written = 0;
    struct fq_segment *segment = fq_log_segment_by_base(p->log, p->index_next);
    if (segment == NULL) {
        segment = fq_log_segment_first(p->log); /* that one was retired */
    }
    for (; segment != NULL && fq_segment_is_sealed(segment); segment = fq_segment_next(segment)) {
        if (fq_segment_base_offset(segment) >= p->index_next) {
            fq_partition_write_index(p, segment);
            p->index_next = fq_segment_end_offset(segment);
            written++;
        }
    }
    p->index_wanted = false;
    return written;
}

int fq_partition_off_path_step(struct fq_partition *p)
{
    int done = 0;
    if (fq_chunks_wants_reserve(p->chunks) && fq_chunks_reserve(p->chunks) == 0) {
        done++;
    }
    if (p->index_wanted) {
        done += write_indexes(p);
    }
    if (p->feeder_behind) {
        int64_t before = p->feeder.next_offset;
        fq_partition_feed_calendar(p, OFF_PATH_CHUNKS_MAX);
        done += p->feeder.next_offset != before;
    }
    done += (int)fq_producers_expire(&p->producers, p->host->wall_ms(p->host->context),
                                     p->config.producer_expiration_ms, OFF_PATH_EXPIRE_MAX);
    return done;
}

bool fq_partition_wants_off_path(const struct fq_partition *p)
{
    return p->index_wanted || p->feeder_behind || fq_chunks_wants_reserve(p->chunks) ||
           fq_producers_wants_expire(&p->producers, p->host->wall_ms(p->host->context),
                                     p->config.producer_expiration_ms);
}
