/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life cycle and state of a partition.
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
    fq_partition_look_at_log(p);
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
                                       .retention_bytes = params->config.retention_bytes,
                                       .wants_zeros = params->config.is_direct};
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

static void close_for(struct fq_partition *p, int code, bool clean)
{
    if (p == NULL) {
        return;
    }
    publish_gone(p, code);
    fq_log_close(p->log, clean);
    destroy(p);
}

void fq_partition_close(struct fq_partition *p, bool clean)
{
    close_for(p, FLASHQ_ERR_SHUTTING_DOWN, clean);
}

void fq_partition_close_deleted(struct fq_partition *p)
{
    close_for(p, FLASHQ_ERR_UNKNOWN_TOPIC_ID, false);
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
