/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log: opening, appending, publishing. Reading is in log_read.c, removing in log_remove.c.
 *
 * Happy path of a batch: reserve finds room in the open segment; write or stream stores it; commit
 * counts it; publish, once a poll round, fences and stores the tail (memory) or queues the file
 * (disks). When the segment is full, reserve seals it and takes the prepared one that lies beside
 * it. That one is asked for when the open segment is a quarter full (a large one may be full soon
 * after), so a roll makes no system call on memory and one small pwrite on disks. Failure: an error
 * of a store or a sync is final (fq_log_fail): everything already appended stays readable, every
 * later append is OFFLINE. Nothing else leaves a trace.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "storage/log_impl.h"

#define LINE_BYTES 64u
#define ROUND_BYTES 4096u
#define TOUCH_AHEAD (4u << 20) /* one more fence each time so much has been appended */

/* --- what is shared with the other threads ---------------------------------------------------- */

struct fq_log_shared *fq_log_shared_create(struct fq_store *store, const struct fq_uuid *topic_id,
                                           const char *topic, uint32_t partition)
{
    struct fq_log_shared *shared = calloc(1, sizeof *shared);
    char folder[256], path[FQ_PATH_BYTES];
    if (!shared) {
        return NULL;
    }
    atomic_init(&shared->refs, 1);
    shared->store = store;
    fq_topic_dir_name(topic, topic_id, folder);
    (void)snprintf(path, sizeof path, "%s/%s", store->dir, folder);
    if (access(path, F_OK) < 0 && fq_topic_dir_find(store->dir, topic_id, path) < 0) {
        (void)snprintf(path, sizeof path, "%s/%s", store->dir, folder); /* at the first append */
    }
    shared->topic_dir = strdup(path);
    size_t length = strlen(path);
    (void)snprintf(path + length, sizeof path - length, "/%u", partition);
    shared->dir = strdup(path);
    if (!shared->topic_dir || !shared->dir) {
        fq_log_shared_unref(shared);
        return NULL;
    }
    return shared;
}

struct fq_log_shared *fq_log_shared_ref(struct fq_log_shared *shared)
{
    (void)atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    return shared;
}

void fq_log_shared_unref(struct fq_log_shared *shared)
{
    if (shared && atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1) {
        fq_segment_destroy(atomic_load(&shared->ready));
        free(shared->topic_dir);
        free(shared->dir);
        free(shared);
    }
}

void fq_log_shared_fail(struct fq_log_shared *shared, int code, const char *format, ...)
{
    int none = 0;
    char text[sizeof shared->why.text];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* Claimed first (1), so that only one thread writes `why`; readers wait for the code (release).
     */
    if (atomic_compare_exchange_strong(&shared->failed, &none, 1)) {
        (void)fq_err_set(&shared->why, FLASHQ_ERR_OFFLINE, "%s: %s: %s; offline until restart",
                         shared->dir, text, fq_err_describe(code));
        atomic_store_explicit(&shared->failed, code, memory_order_release);
        fq_error("%s", shared->why.text);
        fq_store_progressed(shared->store);
    }
}

int fq_log_fail(struct fq_log *log, int code, const char *what)
{
    fq_log_shared_fail(log->shared, code, "%s", what);
    return code;
}

bool fq_log_is_offline(const struct fq_log *log, struct fq_err *ret_why)
{
    int failed = atomic_load_explicit(&log->shared->failed, memory_order_acquire);
    if (failed == 0) {
        return false;
    }
    if (ret_why) {
        if (failed < 0) {
            *ret_why = log->shared->why;
        } else {
            (void)fq_err_set(ret_why, FLASHQ_ERR_OFFLINE, "%s is offline", log->shared->dir);
        }
    }
    return true;
}

/* --- opening and closing ---------------------------------------------------------------------- */

int fq_log_add_segment(struct fq_log *log, struct fq_segment *segment)
{
    if (log->segments_count == log->segments_capacity) {
        size_t capacity = log->segments_capacity ? 2 * log->segments_capacity : 16;
        struct fq_segment **grown = realloc(log->segments, capacity * sizeof *grown);
        if (!grown) {
            return FLASHQ_ERR_NO_MEMORY;
        }
        log->segments = grown;
        log->segments_capacity = capacity;
    }
    segment->log = log;
    log->segments[log->segments_count++] = segment;
    return 0;
}

void fq_log_bind(struct fq_log *log, struct fq_segment *segment)
{
    if (segment && segment->file && !segment->file->shared) {
        segment->file->shared = fq_log_shared_ref(log->shared);
    }
}

/* Lets go of a segment that stays on the medium. */
static void forget(struct fq_segment *segment)
{
    segment->log = NULL;
    if (segment->pins == 0) {
        fq_segment_destroy(segment);
    }
}

static void log_free(struct fq_log *log)
{
    for (size_t i = 0; i < log->segments_count; i++) {
        forget(log->segments[i]);
    }
    for (size_t i = 0; i < log->zombies_count; i++) {
        forget(log->zombies[i]);
    }
    fq_segment_destroy(log->next);
    if (log->shared) {
        atomic_store(&log->shared->is_closed, true);
        /* Supplied and never used: its file refers back to shared, so nobody else would free it. */
        fq_segment_destroy(atomic_exchange(&log->shared->ready, NULL));
    }
    fq_log_shared_unref(log->shared);
    free(log->segments);
    free(log->zombies);
    free(log->damage);
    free(log);
}

/* What the next appends will touch is faulted in by the housekeeper: opening waits for no page. */
static void fault_in_later(struct fq_log *log, struct fq_segment *segment)
{
    if (segment && segment->file && segment->state != FQ_SEGMENT_SEALED) {
        fq_pool_fault_in_later(log->shared, segment->file, FQ_SEG_DATA + segment->data_bytes);
    }
}

int fq_log_open(struct fq_store *store, const struct fq_log_params *params, fq_log_visitor visitor,
                void *context, struct fq_log **ret, struct fq_err *err)
{
    struct fq_log *log = calloc(1, sizeof *log);
    if (!log) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a log");
    }
    log->store = store;
    log->persist = store->persist;
    log->topic_id = params->topic_id;
    log->partition = params->partition;
    fq_log_configure(log, params->segment_bytes, params->retention_bytes);
    log->shared = fq_log_shared_create(store, &params->topic_id, params->topic, params->partition);
    if (log->shared) {
        log->shared->topic_id = params->topic_id;
        log->shared->partition = params->partition;
        log->shared->wants_zeros = params->wants_zeros;
    }
    int r = log->shared ? fq_log_recover(log, visitor, context, err)
                        : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a log");
    if (r < 0) {
        log_free(log);
        return r;
    }
    fq_log_bind(log, fq_log_last(log));
    log->published_end = log->end;
    atomic_store(&log->shared->durable_end, log->end);
    log->is_ask_due = true;
    fault_in_later(log, fq_log_last(log));
    fault_in_later(log, log->next);
    *ret = log;
    return 0;
}

void fq_log_configure(struct fq_log *log, uint64_t segment_bytes, uint64_t retention_bytes)
{
    uint64_t least = log->store->first_bytes;
    log->segment_bytes = segment_bytes > least ? segment_bytes : least;
    log->retention_bytes = retention_bytes;
}

/* Everything appended durable, and the tail word moved to the end. Blocks. */
static int settle(struct fq_log *log)
{
    struct fq_segment *last = fq_log_last(log);
    if (!last || !last->file || last->state != FQ_SEGMENT_OPEN ||
        last->published_bytes == last->data_bytes) {
        return fq_log_publish(log);
    }
    const struct fq_persist_ops *ops = log->persist->ops;
    fq_log_end_data(log);
    int r = fq_log_durable_end(log) < log->end ? fq_segfile_sync(last->file, "closing") : 0;
    /* On disks not synced: were it lost, recovery would find the same end by walking. */
    r = r < 0 ? r : fq_segment_store_tail(last, last->data_bytes, log->end);
    ops->drain(log->persist);
    return r;
}

void fq_log_close(struct fq_log *log, bool clean)
{
    if (!log) {
        return;
    }
    if (clean && !fq_log_is_offline(log, NULL)) {
        int r = settle(log);
        struct fq_segment *last = fq_log_last(log);
        bool is_marked = !log->persist->ops->needs_sync && log->reserved_bytes == 0 &&
                         !log->is_lent && last && last->file && last->state == FQ_SEGMENT_OPEN;
        r = r < 0 || !is_marked ? r : fq_segment_store_touched(last, last->data_bytes);
        if (r < 0) {
            (void)fq_log_fail(log, r, "closing");
        }
    }
    log_free(log);
}

int fq_log_delete(struct fq_log *log, struct fq_err *err)
{
    struct fq_log_shared *shared = fq_log_shared_ref(log->shared);
    log_free(log);
    int r = fq_store_discard(shared->store, shared->dir, err);
    fq_log_shared_unref(shared);
    return r;
}

/* --- the next segment ------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
}

/* The least file that holds a batch of `length`, and any usual one. */
static uint64_t least_file_bytes(const struct fq_log *log, uint64_t length)
{
    uint64_t bytes = length + FQ_SEG_DATA;
    return round_up(bytes > log->store->first_bytes ? bytes : log->store->first_bytes);
}

static uint64_t next_file_bytes(const struct fq_log *log, uint64_t length)
{
    const struct fq_segment *last = fq_log_last(log);
    uint64_t bytes = last ? 2 * last->identity.file_bytes : log->store->first_bytes;
    bytes = round_up(bytes < log->segment_bytes ? bytes : log->segment_bytes);
    uint64_t least = least_file_bytes(log, length);
    return bytes > least ? bytes : least;
}

static uint64_t bytes_after(const struct fq_log *log, uint64_t bytes)
{
    uint64_t most = round_up(log->segment_bytes);
    return 2 * bytes < most ? 2 * bytes : bytes > most ? bytes : most;
}

static void ask_for_next(struct fq_log *log, uint64_t length)
{
    struct fq_log_shared *shared = log->shared;
    log->is_ask_due = false;
    if (log->next ||
        atomic_load_explicit(&shared->supply, memory_order_acquire) == FQ_SUPPLY_ASKED ||
        atomic_load_explicit(&shared->supply, memory_order_acquire) == FQ_SUPPLY_NO_SPACE ||
        atomic_load_explicit(&shared->ready, memory_order_acquire)) {
        return;
    }
    shared->want_bytes = next_file_bytes(log, length);
    shared->least_bytes = least_file_bytes(log, length);
    shared->after_bytes = bytes_after(log, shared->want_bytes);
    shared->is_noted = false;
    atomic_store_explicit(&shared->supply, FQ_SUPPLY_ASKED, memory_order_relaxed);
    shared->supply_job.run = fq_pool_supply;
    (void)fq_log_shared_ref(shared); /* the job's */
    fq_store_give(log->store, &shared->supply_job);
}

/* The prepared segment, if it is here and large enough. */
int fq_log_take_next(struct fq_log *log, uint64_t length, struct fq_err *err)
{
    struct fq_log_shared *shared = log->shared;
    if (!log->next) {
        log->next = atomic_exchange_explicit(&shared->ready, NULL, memory_order_acquire);
    }
    if (log->next && fq_segment_capacity(log->next) < length) {
        log->next->retire_job.run = fq_pool_retire;
        fq_store_give(log->store, &log->next->retire_job);
        log->next = NULL;
    }
    if (log->next) {
        return FQ_RESERVE_OK;
    }
    ask_for_next(log, length);
    int supply = atomic_load_explicit(&shared->supply, memory_order_acquire);
    if (supply == FQ_SUPPLY_NO_SPACE) {
        return fq_err_set(err, FLASHQ_ERR_NO_SPACE, "no space for a segment of %llu bytes in %s",
                          (unsigned long long)shared->want_bytes, fq_store_data_dir(log->store));
    }
    if (supply == FQ_SUPPLY_FAILED) {
        atomic_store(&shared->supply, FQ_SUPPLY_NONE); /* the next call asks again */
        return fq_err_set(err, FLASHQ_ERR_IO, "no segment could be prepared in %s; see the log",
                          fq_store_data_dir(log->store));
    }
    fq_count(&log->store->starved, 1);
    return FQ_RESERVE_STARVED;
}

/* Seals the full segment and opens the prepared one. */
static int change_segment(struct fq_log *log)
{
    struct fq_segment *last = fq_log_last(log), *next = log->next;
    const struct fq_segment_identity identity = {
        .topic_id = log->topic_id,
        .partition = log->partition,
        .first_epoch = log->last_epoch,
        .base_offset = log->end,
        .file_bytes = next->file->pf.bytes,
        .life = fq_store_random_life(),
        .first_retention_ms = -1,
    };
    int r = 0;
    if (last && last->state == FQ_SEGMENT_OPEN) {
        r = last->published_bytes == last->data_bytes
                ? 0
                : fq_segment_store_tail(last, last->data_bytes, log->end);
        r = r < 0 ? r : fq_segment_store_seal(last, -1);
        if (log->persist->ops->needs_sync) {
            fq_store_flush_file(log->store, last->file);
        }
    }
    if (r == 0) {
        next->identity.file_bytes = identity.file_bytes;
        r = fq_log_add_segment(log, next);
    }
    if (r < 0) {
        return fq_log_fail(log, r, "sealing a segment");
    }
    log->next = NULL;
    log->is_lent = log->is_next_lent; /* as it is only when the next was lent */
    log->is_next_lent = false;
    fq_log_bind(log, next);
    atomic_store(&next->file->wanted_end, log->end);
    next->is_index_whole = true;
    r = fq_segment_take_into_use(next, &identity);
    if (r < 0) {
        return fq_log_fail(log, r, "opening a segment");
    }
    fq_segment_use_final_name(next);
    log->is_ask_due = true;
    return FQ_RESERVE_OK;
}

int fq_log_roll(struct fq_log *log, uint64_t length, struct fq_err *err)
{
    struct fq_segment *last = fq_log_last(log);
    int r = fq_log_publish(log);
    if (r < 0) {
        return r;
    }
    if (last && last->state == FQ_SEGMENT_OPEN && fq_log_durable_end(log) < log->end) {
        /* A file is opened only when everything below it is durable: see MEDIA.md, "Roll". */
        ask_for_next(log, length);
        fq_count(&log->store->roll_waits, 1);
        return FQ_RESERVE_STARVED;
    }
    r = fq_log_take_next(log, length, err);
    return r != FQ_RESERVE_OK ? r : change_segment(log);
}

/* --- append ----------------------------------------------------------------------------------- */

/* Memory: a word says up to where the open segment may have been written, so that recovery need not
 * look for the rest of a batch in all of it. */
static int touch(struct fq_log *log, struct fq_segment *last, uint64_t length)
{
    uint64_t end = last->data_bytes + length;
    if (end <= last->touched_bytes) {
        return FQ_RESERVE_OK;
    }
    uint64_t capacity = fq_segment_capacity(last);
    int r =
        fq_segment_store_touched(last, capacity - end < TOUCH_AHEAD ? capacity : end + TOUCH_AHEAD);
    return r < 0 ? fq_log_fail(log, r, "storing how far a segment is written") : FQ_RESERVE_OK;
}

bool fq_log_fits(const struct fq_log *log, const struct fq_segment *last, uint64_t length)
{
    return last && last->state == FQ_SEGMENT_OPEN &&
           length <= fq_segment_capacity(last) - last->data_bytes &&
           last->epochs_count < FQ_SEGMENT_EPOCHS &&
           (uint64_t)(log->end - last->identity.base_offset) < FQ_WORD_VALUE_MAX / 2;
}

int fq_log_reserve(struct fq_log *log, uint64_t length, int64_t base_offset, struct fq_err *err)
{
    log->reserved_bytes = 0;
    int offline = fq_log_refuse_offline(log, err);
    if (offline < 0) {
        return offline;
    }
    if (base_offset != log->end || base_offset > FQ_OFFSET_MAX) {
        if (base_offset > FQ_OFFSET_MAX || log->segments_count > 0 || base_offset < log->end) {
            return fq_err_set(err, FLASHQ_ERR_INVALID, "offset %lld given, the log ends at %lld",
                              (long long)base_offset, (long long)log->end);
        }
        log->start = log->end = log->published_end = base_offset;
        atomic_store(&log->shared->durable_end, base_offset);
    }
    if (length < FQ_BATCH_HEADER_BYTES || length > FQ_WORD_VALUE_MAX / 2) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "a batch of %llu bytes",
                          (unsigned long long)length);
    }
    struct fq_segment *last = fq_log_last(log);
    int r = fq_log_fits(log, last, length) ? FQ_RESERVE_OK : fq_log_roll(log, length, err);
    last = fq_log_last(log);
    if (r == FQ_RESERVE_OK && last && !log->persist->ops->needs_sync) {
        r = touch(log, last, length);
    }
    if (r == FQ_RESERVE_OK) {
        log->reserved_bytes = length;
    }
    return r;
}

bool fq_log_may_stream(const struct fq_log *log, uint64_t length)
{
    return log->persist->ops->stream && fq_log_fits(log, fq_log_last(log), length);
}

int fq_log_stream(struct fq_log *log, uint64_t at, void *copy, const void *src, uint64_t length,
                  uint32_t *inout_crc)
{
    struct fq_segment *last = fq_log_last(log);
    assert(at <= log->reserved_bytes && length <= log->reserved_bytes - at);
    if (at > FQ_BATCH_HEADER_BYTES) { /* the line between two pieces */
        (void)log->persist->ops->write_back(&last->file->pf, FQ_SEG_DATA + last->data_bytes + at - 1, 1);
    }
    int r = log->persist->ops->stream(&last->file->pf, FQ_SEG_DATA + last->data_bytes + at, copy,
                                      src, (size_t)length, inout_crc);
    return r < 0 ? fq_log_fail(log, r, "writing a batch") : 0;
}

int fq_log_write_part(struct fq_log *log, uint64_t at, const void *bytes, uint64_t length)
{
    struct fq_segment *last = fq_log_last(log);
    assert(at <= log->reserved_bytes && length <= log->reserved_bytes - at);
    int r = log->persist->ops->write(&last->file->pf, FQ_SEG_DATA + last->data_bytes + at, bytes,
                                     (size_t)length);
    return r < 0 ? fq_log_fail(log, r, "writing a batch") : 0;
}

int fq_log_write(struct fq_log *log, const void *stamped_batch, uint64_t length)
{
    const uint8_t *batch = stamped_batch;
    assert(length == log->reserved_bytes);
    if (log->persist->ops->needs_sync) {
        return fq_log_write_part(log, 0, batch, length);
    }
    int r = fq_log_write_part(log, FQ_BATCH_HEADER_BYTES, batch + FQ_BATCH_HEADER_BYTES,
                              length - FQ_BATCH_HEADER_BYTES);
    return r < 0 ? r : fq_log_write_part(log, 0, batch, FQ_BATCH_HEADER_BYTES);
}

void fq_log_abort_batch(struct fq_log *log)
{
    struct fq_segment *last = fq_log_last(log);
    if (log->reserved_bytes > 0) {
        int r = fq_segment_zero(last, last->data_bytes, last->data_bytes + log->reserved_bytes);
        log->persist->ops->drain(log->persist); /* before other bytes in their place */
        if (r < 0) {
            (void)fq_log_fail(log, r, "wiping a refused batch");
        }
        log->reserved_bytes = 0;
    }
}

/* Memory: what follows the last batch must not look like one that goes on, nor like more of a
 * record (walk.c), whatever an earlier life left there; the next batch overwrites it. And the last
 * line of the batch, which streaming left to this, is written back. Once per round, before its
 * first fence: a line that is stored to while it is being written back costs more than all others. */
void fq_log_end_data(struct fq_log *log)
{
    static const uint8_t nothing[FQ_BATCH_HEADER_BYTES];
    struct fq_segment *last = fq_log_last(log);
    const struct fq_persist_ops *ops = log->persist->ops;
    if (!log->is_end_due) {
        return;
    }
    log->is_end_due = false;
    uint64_t room = fq_segment_capacity(last) - last->data_bytes;
    if (last->has_former && room > 0) {
        (void)ops->write(&last->file->pf, FQ_SEG_DATA + last->data_bytes, nothing,
                         room < sizeof nothing ? (size_t)room : sizeof nothing);
    }
    bool is_covered = last->has_former && room > 0 && (last->data_bytes % LINE_BYTES) != 0;
    if (!is_covered && ops->write_back) {
        (void)ops->write_back(&last->file->pf, FQ_SEG_DATA + last->data_bytes - 1, 1);
    }
}

int fq_log_commit_batch(struct fq_log *log, const struct fq_batch_header *header,
                        struct fq_log_place *ret_place)
{
    struct fq_segment *last = fq_log_last(log);
    assert(log->reserved_bytes > 0 && fq_batch_total_bytes(header) == log->reserved_bytes);
    assert(header->base_offset == log->end);
    if (header->leader_epoch < log->last_epoch) {
        fq_log_abort_batch(log);
        return FLASHQ_ERR_INVALID;
    }
    if (header->leader_epoch != fq_segment_epoch_at(last, header->base_offset)) {
        int r = fq_segment_add_epoch(last, header->base_offset, header->leader_epoch);
        if (r < 0) {
            return fq_log_fail(log, r, "recording a leader epoch");
        }
    }
    fq_segment_index_add(last, header->base_offset, last->data_bytes);
    if (ret_place) {
        *ret_place = (struct fq_log_place){last, last->data_bytes, header->base_offset};
    }
    last->data_bytes += log->reserved_bytes;
    log->is_end_due = !log->persist->ops->needs_sync;
    log->bytes += log->reserved_bytes;
    log->end += header->last_offset_delta + 1;
    last->end_offset = log->end;
    last->index_next = (struct fq_index_entry){log->end, last->data_bytes};
    log->last_epoch = header->leader_epoch;
    log->reserved_bytes = 0;
    if (log->is_ask_due && last->data_bytes > fq_segment_capacity(last) / 4) {
        ask_for_next(log, 0);
    }
    return 0;
}

/* Disks: a tail word may cover only what is durable, so it follows one group behind. */
static int store_late_tail(struct fq_log *log, struct fq_segment *last)
{
    int r = 0;
    if (log->late_segment == last && fq_log_durable_end(log) >= log->late_end) {
        r = fq_segment_store_tail(last, log->late_bytes, log->late_end);
        log->late_segment = NULL;
    }
    if (log->late_segment != last) {
        log->late_segment = last;
        log->late_end = log->end;
        log->late_bytes = last->data_bytes;
    }
    return r;
}

int fq_log_publish(struct fq_log *log)
{
    struct fq_segment *last = fq_log_last(log);
    if (log->published_end == log->end) {
        return 0;
    }
    if (atomic_load_explicit(&log->shared->failed, memory_order_relaxed) != 0) {
        return FLASHQ_ERR_OFFLINE;
    }
    int r;
    if (log->persist->ops->needs_sync) {
        r = store_late_tail(log, last);
        if (r == 0) {
            atomic_store(&last->file->wanted_end, log->end);
            fq_store_flush_file(log->store, last->file);
        }
    } else {
        fq_log_end_data(log);
        log->persist->ops->drain(
            log->persist); /* batches are durable before any tail covers them */
        r = fq_segment_store_tail(last, last->data_bytes, log->end);
        log->persist->ops->drain(log->persist); /* acknowledged from here on */
        atomic_store_explicit(&log->shared->durable_end, log->end, memory_order_relaxed);
    }
    if (r < 0) {
        return fq_log_fail(log, r, "publishing");
    }
    log->published_end = log->end;
    return 0;
}

/* --- state ------------------------------------------------------------------------------------ */

int64_t fq_log_start(const struct fq_log *log)
{
    return log->start;
}

int64_t fq_log_end(const struct fq_log *log)
{
    return log->end;
}

int64_t fq_log_durable_end(const struct fq_log *log)
{
    return atomic_load_explicit(&log->shared->durable_end, memory_order_acquire);
}

uint64_t fq_log_bytes(const struct fq_log *log)
{
    return log->bytes;
}

uint64_t fq_log_cut_bytes(const struct fq_log *log)
{
    return log->cut_bytes;
}

/* --- damage ----------------------------------------------------------------------------------- */

void fq_log_add_damage(struct fq_log *log, const struct fq_log_damage_at *at)
{
    for (size_t i = 0; i < log->damage_count; i++) {
        const struct fq_damage *known = &log->damage[i];
        if (known->position == at->position && known->first_offset == at->first_offset &&
            strcmp(known->what, at->what) == 0 && strncmp(known->path, at->path, 255) == 0) {
            return;
        }
    }
    fq_count(&log->store->damage, 1);
    fq_error("%s: damaged at %llu (%llu bytes, offsets [%lld, %lld)): %s", at->path,
             (unsigned long long)at->position, (unsigned long long)at->bytes,
             (long long)at->first_offset, (long long)at->next_offset, at->what);
    if (log->damage_count == FQ_LOG_DAMAGE_MAX) {
        return;
    }
    if (log->damage_count == log->damage_capacity) {
        size_t capacity = log->damage_capacity ? 2 * log->damage_capacity : 8;
        struct fq_damage *grown = realloc(log->damage, capacity * sizeof *grown);
        if (!grown) {
            return; /* counted and logged */
        }
        log->damage = grown;
        log->damage_capacity = capacity;
    }
    struct fq_damage *entry = &log->damage[log->damage_count++];
    *entry = (struct fq_damage){.position = at->position,
                                .bytes = at->bytes,
                                .first_offset = at->first_offset,
                                .next_offset = at->next_offset};
    (void)snprintf(entry->path, sizeof entry->path, "%s", at->path);
    (void)snprintf(entry->what, sizeof entry->what, "%s", at->what);
}

size_t fq_log_damage_count(const struct fq_log *log)
{
    return log->damage_count;
}

const struct fq_damage *fq_log_damage_at(const struct fq_log *log, size_t index)
{
    return index < log->damage_count ? &log->damage[index] : NULL;
}
