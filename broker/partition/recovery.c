/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding what a partition knows beside its log.
 *
 * Happy path: the snapshot gives producer states and epochs as of some offset; index files give the
 * chunks of sealed segments; only the log after the snapshot and the open segment are read.
 *
 * A snapshot that is missing, damaged, or of an offset that the log does not hold (its tail was
 * lost, or it was trimmed beyond: then batches after the snapshot may be gone) costs a walk over
 * the whole log; an index file that is missing, damaged or of another state of the segment costs a
 * walk over that segment and is written again. Damaged log ranges are passed over (the log reports
 * them).
 *
 * Thread: whoever opens the partition; the shard for rescans.
 */
#include <stdlib.h>

#include "base/log.h"
#include "partition/snapshot.h"
#include "partition/state.h"

struct walk {
    struct fq_partition *partition;
    int64_t states_from; /* batches from here on count for producers and epochs */
    int64_t now_ms;
    bool add_chunks;
};

static int add_chunk(struct fq_partition *p, const struct fq_batch_header *header,
                     const uint8_t *batch, uint64_t segment_base, uint64_t position)
{
    uint64_t bytes = fq_batch_total_bytes(header);
    int64_t min_timestamp, max_timestamp;
    if (fq_batch_check_records(batch, bytes, &min_timestamp, &max_timestamp, NULL) < 0) {
        max_timestamp = header->max_timestamp; /* as readers will: by the header */
        min_timestamp =
            header->base_timestamp < max_timestamp ? header->base_timestamp : max_timestamp;
    }
    if (fq_chunks_wants_reserve(p->chunks)) {
        int rc = fq_chunks_reserve(p->chunks);
        if (rc < 0) {
            return rc;
        }
    }
    fq_chunks_add(p->chunks, (int64_t)segment_base, header->base_offset, position, bytes,
                  min_timestamp, max_timestamp);
    return 0;
}

static int add_states(struct walk *walk, const struct fq_batch_header *header)
{
    struct fq_partition *p = walk->partition;
    int rc = fq_epochs_reserve(&p->epochs);
    if (rc < 0) {
        return rc;
    }
    fq_epochs_assign(&p->epochs, header->leader_epoch, header->base_offset);
    return fq_producers_replay(&p->producers, header, p->config.max_in_flight, walk->now_ms);
}

static int visit(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                 uint64_t segment_base, uint64_t position)
{
    struct walk *walk = context;
    struct fq_partition *p = walk->partition;
    p->stats.scanned_bytes += fq_batch_total_bytes(header);
    int rc = 0;
    if (walk->add_chunks) {
        rc = add_chunk(p, header, batch, segment_base, position);
    }
    if (rc == 0 && header->base_offset >= walk->states_from) {
        p->snapshot_lag_bytes += fq_batch_total_bytes(header);
        rc = add_states(walk, header);
    }
    return rc;
}

/* true: the chunks of a sealed segment came from its index file. */
static bool load_index(struct fq_partition *p, struct fq_segment *segment)
{
    void *bytes;
    size_t length;
    int64_t base = fq_segment_base_offset(segment);
    int rc = fq_log_read_sidecar(p->log, segment, FQ_PARTITION_INDEX_SUFFIX, &bytes, &length);
    if (rc < 0) {
        if (rc != FLASHQ_ERR_NOT_FOUND) {
            fq_warn("%s/%u: index of segment %lld cannot be read (%s), built anew", p->topic,
                    p->index, (long long)base, fq_err_describe(rc));
        }
        return false;
    }
    struct fq_err why;
    rc = fq_chunks_load(p->chunks, &p->topic_id, p->index, base, fq_segment_end_offset(segment),
                        fq_segment_data_bytes(segment), bytes, length, &why);
    free(bytes);
    if (rc < 0) {
        fq_warn("%s/%u: index of segment %lld does not fit (%s), built anew", p->topic, p->index,
                (long long)base, why.text);
    }
    return rc == 0;
}

void fq_partition_write_index(struct fq_partition *p, struct fq_segment *segment)
{
    int64_t base = fq_segment_base_offset(segment);
    size_t length = fq_chunks_encoded_bytes(p->chunks, base);
    if (length == 0) {
        return; /* trimmed into, damaged, or built while memory was short: by a walk next time too
                 */
    }
    void *bytes = malloc(length);
    if (bytes != NULL &&
        fq_chunks_encode(p->chunks, &p->topic_id, p->index, base, bytes, length) == 0 &&
        fq_log_write_sidecar(p->log, segment, FQ_PARTITION_INDEX_SUFFIX, bytes, length) == 0) {
        p->stats.indexes_written++;
    }
    free(bytes);
}

/* Producer states and epochs of the snapshot. Returns the offset from which the log must be read.
 */
static int64_t load_snapshot(struct fq_partition *p, const void *bytes, size_t length,
                             int64_t now_ms)
{
    if (bytes == NULL || length == 0) {
        return 0;
    }
    struct fq_err why;
    int64_t offset;
    int rc = fq_snapshot_decode(bytes, length, p->config.max_in_flight, now_ms, &offset,
                                &p->producers, &p->epochs, &why);
    if (rc < 0) {
        fq_warn("%s/%u: %s: producer states are rebuilt from the log", p->topic, p->index,
                why.text);
        return 0;
    }
    if (offset < fq_log_start(p->log) || offset > fq_log_end(p->log)) {
        fq_warn(
            "%s/%u: snapshot at %lld, the log holds %lld to %lld: producer states are rebuilt from "
            "the log",
            p->topic, p->index, (long long)offset, (long long)fq_log_start(p->log),
            (long long)fq_log_end(p->log));
        size_t limit = p->producers.limit;
        fq_producers_fini(&p->producers);
        fq_producers_init(&p->producers, limit);
        fq_epochs_fini(&p->epochs);
        return 0;
    }
    return offset;
}

static int64_t max_offset(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int recover_segment(struct walk *walk, struct fq_segment *segment)
{
    struct fq_partition *p = walk->partition;
    int64_t base = fq_segment_base_offset(segment);
    int64_t end = fq_segment_end_offset(segment);
    bool is_sealed = fq_segment_is_sealed(segment);
    walk->add_chunks = !(is_sealed && load_index(p, segment));
    int64_t from = walk->add_chunks ? base : max_offset(base, walk->states_from);
    from = max_offset(from, fq_log_start(p->log));
    if (from < end) {
        int rc = fq_log_scan(p->log, from, end, visit, walk);
        if (rc < 0) {
            return rc;
        }
    }
    if (is_sealed) {
        if (walk->add_chunks) {
            p->stats.indexes_rebuilt++;
            fq_partition_write_index(p, segment);
        }
        p->index_next = end;
    }
    return 0;
}

int fq_partition_recover(struct fq_partition *p, const void *snapshot, size_t snapshot_bytes,
                         struct fq_err *err)
{
    struct walk walk = {.partition = p, .now_ms = p->host->wall_ms(p->host->context)};
    walk.states_from = load_snapshot(p, snapshot, snapshot_bytes, walk.now_ms);
    p->index_next = fq_log_start(p->log);
    for (struct fq_segment *segment = fq_log_segment_first(p->log); segment != NULL;
         segment = fq_segment_next(segment)) {
        int rc = recover_segment(&walk, segment);
        if (rc < 0) {
            return fq_err_set(err, rc, "segment %lld: %s",
                              (long long)fq_segment_base_offset(segment), fq_err_describe(rc));
        }
    }
    fq_epochs_trim(&p->epochs, fq_log_start(p->log));
    return 0;
}

int fq_partition_rescan_chunks(struct fq_partition *p, int64_t from, int64_t to)
{
    struct walk walk = {.partition = p, .states_from = INT64_MAX, .add_chunks = true};
    from = max_offset(from, fq_log_start(p->log));
    return from < to ? fq_log_scan(p->log, from, to, visit, &walk) : 0;
}
