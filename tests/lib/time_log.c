/* SPDX-License-Identifier: Apache-2.0 */
#include "time_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "wire/record_batch.h"

static const struct fq_uuid topic_id = {{7, 7, 7}};

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "time_log: %s\n", what);
        abort();
    }
}

static void *more(void *old, size_t *inout_capacity, size_t needed, size_t item_bytes)
{
    if (needed <= *inout_capacity) {
        return old;
    }
    *inout_capacity = needed * 2;
    void *grown = realloc(old, *inout_capacity * item_bytes);
    require(grown != NULL, "memory");
    return grown;
}

void time_log_init(struct time_log *log, uint64_t segment_bytes)
{
    memset(log, 0, sizeof *log);
    log->segment_bytes = segment_bytes;
    log->may_reserve = true;
    require(fq_chunks_create(&log->chunks) == 0, "chunks");
    require(fq_meta_open_memory(&log->meta) == FQ_META_CREATED, "meta");
    log->key = (struct fq_meta_key){.topic_id = topic_id, .partition = 3};
    fq_calendar_feeder_init(&log->feeder, 0);
}

void time_log_fini(struct time_log *log)
{
    for (size_t i = 0; i < log->batches_count; i++) {
        free(log->batches[i].data);
    }
    free(log->batches);
    free(log->timestamps);
    fq_chunks_destroy(log->chunks);
    log->meta->ops->close(log->meta);
}

/* ---- changes -------------------------------------------------------------------------------- */

static void build(struct time_log_batch *batch, const int64_t *timestamps, size_t count)
{
    size_t capacity = 128 + 40 * count;
    batch->data = malloc(capacity);
    require(batch->data != NULL, "memory");
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, batch->data, capacity);
    batch->min_timestamp = INT64_MAX;
    batch->max_timestamp = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        const struct fq_record_in record = {.timestamp_ms = timestamps[i],
                                            .value = {(const uint8_t *)"v", 1}};
        require(fq_batch_builder_append(&builder, &record) == 0, "append to a batch");
        batch->min_timestamp =
            timestamps[i] < batch->min_timestamp ? timestamps[i] : batch->min_timestamp;
        batch->max_timestamp =
            timestamps[i] > batch->max_timestamp ? timestamps[i] : batch->max_timestamp;
    }
    const struct fq_batch_finish finish = {
        .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    int64_t length = fq_batch_builder_finish(&builder, &finish);
    require(length > 0, "finish a batch");
    batch->length = (size_t)length;
    fq_batch_stamp(batch->data, batch->base_offset, 1);
}

static void add_to_chunks(struct time_log *log, const struct time_log_batch *batch)
{
    if (log->may_reserve && fq_chunks_wants_reserve(log->chunks)) {
        require(fq_chunks_reserve(log->chunks) == 0, "reserve");
    }
    fq_chunks_add(log->chunks, batch->segment_base, batch->base_offset, batch->position, batch->bytes,
                  batch->min_timestamp, batch->max_timestamp);
}

void time_log_append(struct time_log *log, const int64_t *timestamps, size_t count,
                     bool is_compressed, uint64_t bytes)
{
    struct time_log_batch batch = {.base_offset = log->end,
                                   .segment_base = log->end,
                                   .count = (int32_t)count,
                                   .is_compressed = is_compressed};
    build(&batch, timestamps, count);
    batch.bytes = bytes > batch.length ? bytes : batch.length;
    if (log->batches_count > 0) {
        const struct time_log_batch *last = &log->batches[log->batches_count - 1];
        if (last->position + last->bytes + batch.bytes <= log->segment_bytes) {
            batch.segment_base = last->segment_base;
            batch.position = last->position + last->bytes;
        }
    }
    log->timestamps = more(log->timestamps, &log->timestamps_capacity, (size_t)log->end + count,
                           sizeof *log->timestamps);
    memcpy(log->timestamps + log->end, timestamps, count * sizeof *timestamps);
    log->batches = more(log->batches, &log->batches_capacity, log->batches_count + 1,
                        sizeof *log->batches);
    log->batches[log->batches_count++] = batch;
    log->end += (int64_t)count;
    log->committed = log->end;
    add_to_chunks(log, &batch);
}

static void in_transaction(struct time_log *log,
                           int (*change)(struct fq_meta *meta, const struct fq_meta_key *partition,
                                         int64_t offset, struct fq_err *err),
                           int64_t offset)
{
    struct fq_err err = {0};
    require(log->meta->ops->begin(log->meta) == 0, "begin");
    if (change(log->meta, &log->key, offset, &err) < 0) {
        log->meta->ops->abort(log->meta);
        log->damage_count++;
        time_log_drop_calendar(log);
        return;
    }
    require(log->meta->ops->commit(log->meta) == 0, "commit");
}

static int drop(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t offset,
                struct fq_err *err)
{
    (void)offset;
    return fq_calendar_drop(meta, partition, err);
}

void time_log_drop_calendar(struct time_log *log)
{
    in_transaction(log, drop, 0);
    fq_calendar_feeder_init(&log->feeder, 0);
}

void time_log_trim(struct time_log *log, int64_t log_start)
{
    if (log_start <= log->log_start) {
        return;
    }
    log->log_start = log_start;
    fq_chunks_trim(log->chunks, log_start);
    in_transaction(log, fq_calendar_trim, log_start);
    fq_calendar_feeder_trim(&log->feeder, log_start);
}

static int64_t batch_end(const struct time_log_batch *batch)
{
    return batch->base_offset + batch->count;
}

void time_log_truncate(struct time_log *log, int64_t offset, bool tell)
{
    while (log->batches_count > 0 && batch_end(&log->batches[log->batches_count - 1]) > offset) {
        free(log->batches[--log->batches_count].data);
    }
    log->end = log->batches_count ? batch_end(&log->batches[log->batches_count - 1]) : 0;
    log->committed = log->committed < log->end ? log->committed : log->end;
    int64_t covered = fq_chunks_truncate(log->chunks, log->end);
    require(covered <= log->end, "truncate keeps too much");
    for (size_t i = 0; i < log->batches_count; i++) {
        if (log->batches[i].base_offset >= covered) {
            add_to_chunks(log, &log->batches[i]);
        }
    }
    if (tell) {
        in_transaction(log, fq_calendar_truncate, log->end);
        fq_calendar_feeder_init(&log->feeder, log->end < log->feeder.next_offset
                                                  ? log->end
                                                  : log->feeder.next_offset);
    }
}

/* The end of the segment that batch `first` begins: *ret_next is the next segment's first batch. */
static int64_t segment_end(const struct time_log *log, size_t first, size_t *ret_next,
                           uint64_t *ret_bytes)
{
    size_t next = first;
    while (next < log->batches_count &&
           log->batches[next].segment_base == log->batches[first].segment_base) {
        next++;
    }
    *ret_next = next;
    *ret_bytes = log->batches[next - 1].position + log->batches[next - 1].bytes;
    return batch_end(&log->batches[next - 1]);
}

/* true: the segment's chunks went through the bytes of an index file. */
static bool reload(struct time_log *log, struct fq_chunks *old, size_t first, int64_t end,
                   uint64_t data_bytes)
{
    int64_t base = log->batches[first].segment_base;
    size_t length = fq_chunks_encoded_bytes(old, base);
    if (length == 0) {
        return false;
    }
    struct fq_err err;
    void *bytes = malloc(length);
    require(bytes != NULL, "memory");
    require(fq_chunks_encode(old, &topic_id, 3, base, bytes, length) == 0, "encode");
    int r = fq_chunks_load(log->chunks, &topic_id, 3, base, end, data_bytes, bytes, length, &err);
    free(bytes);
    require(r == 0, "load");
    return true;
}

void time_log_restart(struct time_log *log)
{
    struct fq_chunks *old = log->chunks;
    require(fq_chunks_create(&log->chunks) == 0, "chunks");
    size_t next = 0;
    for (size_t first = 0; first < log->batches_count; first = next) {
        uint64_t data_bytes;
        int64_t end = segment_end(log, first, &next, &data_bytes);
        bool is_sealed = next < log->batches_count;
        if (end <= log->log_start || (is_sealed && reload(log, old, first, end, data_bytes))) {
            continue;
        }
        for (size_t i = first; i < next; i++) {
            add_to_chunks(log, &log->batches[i]);
        }
    }
    fq_chunks_destroy(old);
    struct fq_calendar_state state = {.complete_to = 0};
    (void)fq_calendar_get_state(log->meta, &log->key, &state);
    fq_calendar_feeder_init(&log->feeder, state.complete_to);
    if (state.complete_to > log->end) {
        in_transaction(log, fq_calendar_truncate, log->end);
        fq_calendar_feeder_init(&log->feeder, log->end);
    }
}

/* ---- feeding -------------------------------------------------------------------------------- */

static bool emit(void *context, const struct fq_calendar_mark *mark, int64_t complete_to)
{
    struct time_log *log = context;
    if (log->refuse_in > 0 && --log->refuse_in == 0) {
        return false;
    }
    struct fq_err err = {0};
    require(log->meta->ops->begin(log->meta) == 0, "begin");
    int r = fq_calendar_apply(log->meta, &log->key, mark, mark ? 1 : 0, complete_to, &err);
    if (r < 0) {
        log->meta->ops->abort(log->meta);
        log->damage_count++;
        require(log->meta->ops->begin(log->meta) == 0, "begin");
        require(fq_calendar_drop(log->meta, &log->key, &err) == 0, "drop");
    }
    require(log->meta->ops->commit(log->meta) == 0, "commit");
    return true;
}

void time_log_feed(struct time_log *log)
{
    unsigned refusals = 0;
    while (fq_calendar_feeder_step(&log->feeder, log->chunks, log->committed, 7, emit, log) > 0) {
        require(++refusals < 100000000, "the feeder comes to an end");
    }
}

/* ---- asking --------------------------------------------------------------------------------- */

int64_t time_log_brute_force(const struct time_log *log, int64_t timestamp_ms, int64_t from_offset)
{
    int64_t offset = from_offset > log->log_start ? from_offset : log->log_start;
    for (; offset < log->committed; offset++) {
        if (log->timestamps[offset] >= timestamp_ms) {
            return offset;
        }
    }
    return -1;
}

static size_t batch_at(const struct time_log *log, int64_t offset)
{
    size_t low = 0, high = log->batches_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (batch_end(&log->batches[middle]) <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Begins where the hint says, like fq_log_scan_near, and requires that the hint holds. */
static int scan(void *context, int64_t from_offset, int64_t to_offset, int64_t segment_base,
                uint64_t position, fq_log_visitor visitor, void *visitor_context)
{
    const struct time_log *log = context;
    size_t i = batch_at(log, from_offset);
    while (i > 0 && i < log->batches_count && (log->batches[i].segment_base != segment_base ||
                                               log->batches[i].position > position)) {
        i--;
    }
    require(i < log->batches_count && log->batches[i].segment_base == segment_base &&
                log->batches[i].position == position,
            "a chunk begins where no batch does");
    for (; i < log->batches_count && log->batches[i].base_offset < to_offset; i++) {
        const struct time_log_batch *batch = &log->batches[i];
        struct fq_batch_header header;
        require(fq_batch_header_read(batch->data, batch->length, &header, NULL) == 0, "header");
        if (batch_end(batch) <= from_offset) {
            continue;
        }
        if (batch->is_compressed) {
            header.attributes |= FQ_CODEC_LZ4;
        }
        int r = visitor(visitor_context, &header, batch->data, (uint64_t)batch->segment_base,
                        batch->position);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static void account(struct time_log_cost *cost, const struct fq_timeindex_result *result)
{
    const struct fq_time_query_answer *answer = &result->answer;
    cost->nodes_max = answer->cost_nodes > cost->nodes_max ? answer->cost_nodes : cost->nodes_max;
    cost->bytes_max = answer->cost_bytes > cost->bytes_max ? answer->cost_bytes : cost->bytes_max;
    cost->chunks_max =
        result->chunks_scanned > cost->chunks_max ? result->chunks_scanned : cost->chunks_max;
    cost->calendar_used |= result->calendar_used;
    cost->calendar_refuted |= result->calendar_refuted;
}

int64_t time_log_ask(const struct time_log *log, int64_t timestamp_ms, int64_t from_offset,
                     const struct fq_calendar_answer *calendar, struct time_log_cost *inout_cost)
{
    struct fq_timeindex_query query = {.chunks = log->chunks,
                                       .calendar = calendar,
                                       .timestamp_ms = timestamp_ms,
                                       .from_offset = from_offset,
                                       .log_start = log->log_start,
                                       .end = log->committed,
                                       .scan = scan,
                                       .scan_context = (void *)(uintptr_t)log};
    for (;;) {
        struct fq_timeindex_result result;
        require(fq_timeindex_query(&query, &result, NULL) == 0, "query");
        account(inout_cost, &result);
        const struct fq_time_query_answer *answer = &result.answer;
        if (answer->result == FQ_TIME_END) {
            require(answer->offset == log->committed, "END carries the end");
            return -1;
        }
        if (answer->result == FQ_TIME_FOUND) {
            require(answer->timestamp_ms == log->timestamps[answer->offset], "its timestamp");
            return answer->offset;
        }
        const struct time_log_batch *batch = &log->batches[batch_at(log, answer->offset)];
        require(batch->is_compressed && batch->base_offset == answer->offset, "a candidate");
        int64_t low = query.from_offset > log->log_start ? query.from_offset : log->log_start;
        for (int64_t o = answer->offset; o < answer->offset + batch->count; o++) {
            if (o >= low && log->timestamps[o] >= timestamp_ms) {
                return o;
            }
        }
        require(answer->next_offset == batch_end(batch), "goes on behind the batch");
        query.from_offset = answer->next_offset;
    }
}

int64_t time_log_ask_calendar(struct time_log *log, int64_t timestamp_ms, int64_t from_offset,
                              struct time_log_cost *inout_cost)
{
    struct fq_calendar_answer answer;
    require(fq_calendar_query(log->meta, &log->key, timestamp_ms, &answer) == 0, "calendar");
    require(answer.nodes <= FQ_CALENDAR_QUERY_NODES_MAX, "nodes of the calendar");
    return time_log_ask(log, timestamp_ms, from_offset, &answer, inout_cost);
}
