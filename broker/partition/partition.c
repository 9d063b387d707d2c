/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life cycle, state and rounds of a partition.
 *
 * Happy path: open recovers; the shard appends (append.c) and ends every poll round with
 * fq_partition_commit_round; between rounds it calls fq_partition_off_path_step; close.
 *
 * What can fail: the medium. The first error that the log reports takes the partition offline for
 * good; the view says so, appends are refused, the high watermark stays where it is.
 *
 * Thread: the partition's shard.
 */
#include "partition/partition.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "partition/state.h"
#include "partition/snapshot.h"
#include "partition/view.h"

#define ROUND_CHUNKS_MAX    8u /* fed to the calendar by one round */
#define OFF_PATH_CHUNKS_MAX 256u
#define OFF_PATH_EXPIRE_MAX 256u

/* ---- state ---- */

void fq_partition_go_offline(struct fq_partition *p, const struct fq_err *why)
{
    if (p->state == PARTITION_OFFLINE) {
        return;
    }
    p->state = PARTITION_OFFLINE;
    p->offline_why = *why;
    fq_error("%s/%u: offline until the broker is restarted: %s", p->topic, p->index, why->text);
}

/* The log may have been taken offline by the flusher. */
static void look_at_log(struct fq_partition *p)
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

/* The last thing readers see of this partition on its line. */
static void publish_gone(struct fq_partition *p, int code)
{
    p->view.state = (uint32_t)-code;
    fq_view_publish(p->view_line, &p->view);
}

/* ---- open and close ---- */

static void destroy(struct fq_partition *p)
{
    fq_chunks_destroy(p->chunks);
    fq_producers_fini(&p->producers);
    fq_epochs_fini(&p->epochs);
    free(p);
}

static unsigned clamp_in_flight(uint32_t max_in_flight)
{
    return max_in_flight == 0                       ? 1u
           : max_in_flight > FQ_LIMIT_MAX_IN_FLIGHT ? FQ_LIMIT_MAX_IN_FLIGHT
                                                    : (unsigned)max_in_flight;
}

static void set_config(struct fq_partition *p, const struct fq_partition_config *config)
{
    p->config = *config;
    p->config.max_in_flight = clamp_in_flight(config->max_in_flight);
}

/* What the calendar has above the end was lost with the log's tail; what it lacks below is fed. */
static void start_feeding(struct fq_partition *p, int64_t complete_to)
{
    int64_t end = fq_log_end(p->log);
    p->cut_truncate = complete_to > end ? end : -1;
    p->cut_trim = -1;
    fq_calendar_feeder_init(&p->feeder, complete_to > end ? end : complete_to);
    p->feeder_behind = true;
}

static int start(struct fq_partition *p, const struct fq_partition_params *params,
                 struct fq_err *err)
{
    int rc = fq_partition_recover(p, params->snapshot, params->snapshot_bytes, err);
    if (rc == 0) {
        rc = fq_epochs_reserve(&p->epochs);
    }
    if (rc == 0) {
        rc = fq_chunks_reserve(p->chunks);
    }
    if (rc < 0) {
        return rc;
    }
    int32_t newest = fq_epochs_newest(&p->epochs);
    p->leader_epoch = params->leader_epoch > newest ? params->leader_epoch : newest;
    p->published_end = fq_log_end(p->log);
    p->high_watermark = p->config.durability == FQ_DURABILITY_MEMORY ? fq_log_end(p->log)
                                                                     : fq_log_durable_end(p->log);
    start_feeding(p, params->calendar_complete_to);
    look_at_log(p);
    fq_partition_refresh_view(p);
    return 0;
}

int fq_partition_open(const struct fq_partition_params *params, struct fq_partition **ret,
                      struct fq_err *err)
{
    assert(params->host->scratch_bytes > FQ_BATCH_HEADER_BYTES);
    struct fq_partition *p = calloc(1, sizeof *p);
    if (p == NULL || fq_chunks_create(&p->chunks) < 0) {
        free(p);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a partition");
    }
    p->host = params->host;
    p->topic_id = params->topic_id;
    strncpy(p->topic, params->topic, sizeof p->topic - 1);
    p->index = params->index;
    set_config(p, &params->config);
    p->view_line = params->view_line;
    p->view.generation = params->view_generation;
    fq_producers_init(&p->producers, FQ_LIMIT_PRODUCERS_PER_PARTITION);
    fq_epochs_init(&p->epochs);

    struct fq_log_params log_params = {.topic_id = params->topic_id,
                                       .topic = p->topic,
                                       .partition = params->index,
                                       .segment_bytes = params->config.segment_bytes,
                                       .retention_bytes = params->config.retention_bytes};
    int rc = fq_log_open(params->store, &log_params, NULL, NULL, &p->log, err);
    if (rc < 0) {
        goto fail_log;
    }
    rc = start(p, params, err);
    if (rc < 0) {
        fq_err_prefix(err, "%s/%u: ", p->topic, p->index);
        goto fail_start;
    }
    *ret = p;
    return 0;

fail_start:
    fq_log_close(p->log, false);
fail_log:
    destroy(p);
    return rc;
}

void fq_partition_close(struct fq_partition *p, bool clean)
{
    if (p == NULL) {
        return;
    }
    publish_gone(p, FLASHQ_ERR_SHUTTING_DOWN);
    fq_log_close(p->log, clean);
    destroy(p);
}

int fq_partition_delete(struct fq_partition *p, struct fq_err *err)
{
    publish_gone(p, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    int rc = fq_log_delete(p->log, err);
    destroy(p);
    return rc;
}

void fq_partition_configure(struct fq_partition *p, const struct fq_partition_config *config)
{
    set_config(p, config);
    fq_log_configure(p->log, config->segment_bytes, config->retention_bytes);
}

/* ---- producers ---- */

int fq_partition_producer_open(struct fq_partition *p, int64_t producer_id, int16_t epoch,
                               int32_t next_sequence, struct fq_producer_opened *ret,
                               struct fq_err *err)
{
    if (producer_id < 0) {
        *ret = (struct fq_producer_opened){.last_sequence = -1, .last_offset = -1, .epoch = -1};
        return 0;
    }
    if (epoch < 0 || next_sequence < 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "producer epoch %d, next sequence %d: negative",
                          epoch, next_sequence);
    }
    struct fq_producer *producer = fq_producers_find(&p->producers, producer_id);
    if (producer != NULL && epoch < producer->epoch) {
        return fq_err_set(err, FLASHQ_ERR_FENCED,
                          "producer epoch %d: epoch %d of this producer was opened since", epoch,
                          producer->epoch);
    }
    int rc = fq_producers_ensure(&p->producers, producer_id, p->config.max_in_flight, &producer);
    if (rc == FLASHQ_ERR_LIMIT) {
        return fq_err_set(err, rc, "%s/%u has %zu open producers, the limit of a partition is %d",
                          p->topic, p->index, p->producers.count, FQ_LIMIT_PRODUCERS_PER_PARTITION);
    }
    if (rc < 0) {
        return fq_err_set(err, rc, "no memory for a producer");
    }
    producer->epoch = epoch;
    if (producer->batches_count == 0) {
        producer->next_sequence = next_sequence;
    }
    fq_producers_opened(&p->producers, producer, p->host->wall_ms(p->host->context));
    *ret = (struct fq_producer_opened){.last_sequence = fq_producer_last_sequence(producer),
                                       .last_offset = producer->last_offset,
                                       .epoch = epoch};
    return 0;
}

void fq_partition_producer_close(struct fq_partition *p, int64_t producer_id)
{
    struct fq_producer *producer =
        producer_id < 0 ? NULL : fq_producers_find(&p->producers, producer_id);
    if (producer != NULL && producer->opens_count > 0) {
        fq_producers_closed(&p->producers, producer, p->host->wall_ms(p->host->context));
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
    look_at_log(p);
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

/* ---- snapshots ---- */

size_t fq_partition_snapshot_bytes(const struct fq_partition *p)
{
    return fq_snapshot_bytes(&p->producers, &p->epochs);
}

int fq_partition_snapshot_encode(const struct fq_partition *p, void *out, size_t out_bytes,
                                 size_t *ret_length, struct fq_err *err)
{
    if (fq_log_end(p->log) != fq_log_durable_end(p->log)) {
        return fq_err_set(err, FLASHQ_ERR_AGAIN,
                          "records up to %lld are durable, appended up to %lld",
                          (long long)fq_log_durable_end(p->log), (long long)fq_log_end(p->log));
    }
    int64_t length =
        fq_snapshot_encode(fq_log_end(p->log), &p->producers, &p->epochs, out, out_bytes);
    if (length < 0) {
        return fq_err_set(err, (int)length, "a snapshot of %zu bytes does not fit into %zu",
                          fq_partition_snapshot_bytes(p), out_bytes);
    }
    *ret_length = (size_t)length;
    return 0;
}

void fq_partition_snapshot_taken(struct fq_partition *p)
{
    p->snapshot_lag_bytes = 0;
}

uint64_t fq_partition_snapshot_lag(const struct fq_partition *p)
{
    return p->snapshot_lag_bytes;
}

/* ---- getters ---- */

const struct fq_uuid *fq_partition_topic_id(const struct fq_partition *p)
{
    return &p->topic_id;
}

const char *fq_partition_topic(const struct fq_partition *p)
{
    return p->topic;
}

uint32_t fq_partition_index(const struct fq_partition *p)
{
    return p->index;
}

struct fq_log *fq_partition_log(struct fq_partition *p)
{
    return p->log;
}

int64_t fq_partition_high_watermark(const struct fq_partition *p)
{
    return p->high_watermark;
}

int64_t fq_partition_log_start(const struct fq_partition *p)
{
    return fq_log_start(p->log);
}

int32_t fq_partition_leader_epoch(const struct fq_partition *p)
{
    return p->leader_epoch;
}

size_t fq_partition_producers_count(const struct fq_partition *p)
{
    return p->producers.count;
}

int fq_partition_state(const struct fq_partition *p, struct fq_err *ret_why)
{
    if (p->state == PARTITION_SERVING) {
        return 0;
    }
    if (ret_why != NULL) {
        *ret_why = p->offline_why;
        ret_why->code = FLASHQ_ERR_OFFLINE;
    }
    return FLASHQ_ERR_OFFLINE;
}

void fq_partition_get_stats(const struct fq_partition *p, struct fq_partition_stats *ret)
{
    *ret = p->stats;
    ret->producers_evicted = p->producers.evicted;
}
