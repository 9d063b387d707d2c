/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments from the pool to a log and back. Jobs on the housekeeper's thread.
 *
 * Happy path: a log asks for a segment (fq_pool_supply); the pool has one of that size, moves it
 * beside the log and hands it over; if not, the pool makes one, a piece in each run of the job. A
 * retired segment becomes FREE, moves into the pool, is zeroed and is PREPARED again; on memory the
 * partition it was retired from may have it before it is zeroed.
 * Failure: no space for a new file: a smaller segment is supplied if there can be one; else the log
 * is told, and the request waits here and is tried again each second and after each retirement.
 * What cannot be retired stays where it is, FREE, for the next start.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "storage/pool_impl.h"

/* --- supply ----------------------------------------------------------------------------------- */

/* May this partition's log take the file as it is? */
static bool serves_as_it_is(const struct fq_log_shared *shared, const struct fq_pool_file *f)
{
    return f->is_ready ||
           (f->has_former && !shared->wants_zeros && f->former_partition == shared->partition &&
            memcmp(&f->former_topic, &shared->topic_id, sizeof f->former_topic) == 0);
}

/* The largest file of [least, bytes], and of those the one on which the least is left to do. */
static struct fq_pool_file *best_of(struct fq_store *store, const struct fq_log_shared *shared,
                                    uint64_t least, uint64_t bytes)
{
    struct fq_pool_file *best = NULL;
    uint64_t best_left = UINT64_MAX;
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        if (f->bytes < least || f->bytes > bytes) {
            continue;
        }
        /* ready is ready, but pages that are there are better than pages that are not */
        uint64_t left = serves_as_it_is(shared, f) ? 0 : fq_pool_left(f);
        left += f->bytes - f->faulted;
        if (!best || f->bytes > best->bytes || (f->bytes == best->bytes && left < best_left)) {
            best = f;
            best_left = left;
        }
    }
    return best;
}

static int make_ready(struct fq_store *store, const struct fq_log_shared *shared,
                      struct fq_pool_file *file, struct fq_err *err)
{
    int r = fq_pool_adopt(store, file);
    if (r < 0) {
        return fq_err_set(err, r, "a file of the pool cannot be opened");
    }
    while (r == 0 && !serves_as_it_is(shared, file)) {
        r = fq_pool_make_piece(store, file, err);
    }
    return r;
}

static int make_new(struct fq_store *store, const struct fq_log_shared *shared, uint64_t bytes,
                    struct fq_pool_file **ret, struct fq_err *err)
{
    int r = fq_pool_begin(store, bytes, ret, err);
    return r < 0 ? r : make_ready(store, shared, *ret, err);
}

/* On a full medium a smaller segment is better than none: what the pool has, then half sizes, then
 * what is too small is given up for one of the least size. All at once: somebody waits. */
static int take_smaller(struct fq_store *store, const struct fq_log_shared *shared,
                        struct fq_pool_file **ret, struct fq_err *err)
{
    uint64_t least = shared->least_bytes, bytes = shared->want_bytes;
    struct fq_pool_file *found = NULL;
    int r = FLASHQ_ERR_NO_SPACE;
    while (r == FLASHQ_ERR_NO_SPACE && (found = best_of(store, shared, least, UINT64_MAX))) {
        r = make_ready(store, shared, found, err); /* if it fails the file is gone */
    }
    for (bytes /= 2; r == FLASHQ_ERR_NO_SPACE && bytes >= least; bytes /= 2) {
        r = make_new(store, shared, bytes / FQ_SEG_DATA * FQ_SEG_DATA, &found, err);
    }
    while (r == FLASHQ_ERR_NO_SPACE && store->pool.files) {
        fq_pool_drop(store, store->pool.files);
        r = make_new(store, shared, least, &found, err);
    }
    if (r == 0) {
        *ret = found;
    }
    return r;
}

enum { MORE_TO_DO = 1 };

/* A piece of the way to a file that the log can take. */
static int pool_take(struct fq_store *store, const struct fq_log_shared *shared,
                     struct fq_pool_file **ret, struct fq_err *err)
{
    struct fq_pool_file *found = best_of(store, shared, shared->want_bytes, shared->want_bytes);
    int r = found ? fq_pool_adopt(store, found)
                  : fq_pool_begin(store, shared->want_bytes, &found, err);
    if (r < 0 && r != FLASHQ_ERR_NO_SPACE) {
        return found ? fq_err_set(err, r, "a file of the pool cannot be opened") : r;
    }
    if (r == 0 && !serves_as_it_is(shared, found)) {
        r = fq_pool_make_piece(store, found, err);
    }
    if (r == FLASHQ_ERR_NO_SPACE) {
        return take_smaller(store, shared, ret, err);
    }
    if (r == 0 && !serves_as_it_is(shared, found)) {
        return MORE_TO_DO;
    }
    if (r == 0) {
        *ret = found;
    }
    return r;
}

/* Folders of the partition, durable before anything is put there. */
static int make_folders(struct fq_store *store, const struct fq_log_shared *shared,
                        struct fq_err *err)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    if (access(shared->dir, F_OK) == 0) {
        return 0;
    }
    int r = ops->mkdir(store->persist, shared->topic_dir, err);
    r = r < 0 ? r : ops->sync_dir(store->persist, store->dir, err);
    r = r < 0 ? r : ops->mkdir(store->persist, shared->dir, err);
    return r < 0 ? r : ops->sync_dir(store->persist, shared->topic_dir, err);
}

static int move_beside_log(struct fq_store *store, struct fq_log_shared *shared,
                           struct fq_pool_file *entry, struct fq_segment **ret, struct fq_err *err)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    char from[FQ_PATH_BYTES], to[FQ_PATH_BYTES], folder[FQ_PATH_BYTES];
    fq_pool_path(store, entry->number, from);
    fq_pool_folder(store, folder);
    (void)snprintf(to, sizeof to, "%s/next-%016llx.log", shared->dir,
                   (unsigned long long)entry->number);
    struct fq_segment *segment = fq_segment_create(store, entry->bytes);
    if (!segment || !(segment->path = strdup(to)) ||
        fq_segment_prepare_names(segment, shared->dir) < 0) {
        fq_segment_destroy(segment);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a segment");
    }
    int r = make_folders(store, shared, err);
    r = r < 0 ? r : ops->rename(store->persist, from, to, err);
    r = r < 0 ? r : ops->sync_dir(store->persist, shared->dir, err);
    r = r < 0 ? r : ops->sync_dir(store->persist, folder, err);
    if (r < 0) {
        fq_segment_destroy(segment);
        return r;
    }
    segment->state = entry->is_ready ? FQ_SEGMENT_PREPARED : FQ_SEGMENT_FREE;
    segment->file = fq_segfile_ref(entry->file);
    segment->file->shared = fq_log_shared_ref(shared);
    if (!entry->is_ready) { /* beside its own partition it may say so; in the pool it might not */
        segment->has_former = true;
        r = fq_pool_prepare_former(segment);
    }
    fq_pool_remove(store, entry);
    fq_segfile_unref(entry->file);
    free(entry);
    if (r < 0) { /* FREE: the next start gives it back to the pool */
        fq_segment_destroy(segment);
        return fq_err_set(err, r, "prepare %s: %s", to, fq_err_describe(r));
    }
    *ret = segment;
    return 0;
}

bool fq_pool_supply(struct fq_store *store, struct fq_job *supply_job)
{
    struct fq_log_shared *shared =
        (struct fq_log_shared *)(void *)((char *)supply_job -
                                         offsetof(struct fq_log_shared, supply_job));
    struct fq_pool_file *entry = NULL;
    struct fq_segment *segment = NULL;
    struct fq_err err;
    if (atomic_load(&shared->is_closed) || store->is_abandoned) {
        fq_log_shared_unref(shared);
        return true;
    }
    if (!shared->is_noted) {
        shared->is_noted = true;
        fq_pool_note_demand(store, shared->want_bytes, shared->after_bytes);
    }
    int r = pool_take(store, shared, &entry, &err);
    if (r == MORE_TO_DO) {
        fq_store_give(store, supply_job); /* others in between */
        return true;
    }
    r = r < 0 ? r : move_beside_log(store, shared, entry, &segment, &err);
    if (r == FLASHQ_ERR_NO_SPACE) {
        fq_count(&store->no_space, 1);
        if (atomic_exchange(&shared->supply, FQ_SUPPLY_NO_SPACE) != FQ_SUPPLY_NO_SPACE) {
            fq_error("%s: %s", shared->dir, err.text);
            fq_store_progressed(store);
        }
        return false;
    }
    if (r < 0) {
        fq_error("%s: no segment: %s", shared->dir, err.text);
        atomic_store_explicit(&shared->supply, FQ_SUPPLY_FAILED, memory_order_release);
    } else {
        atomic_store(&shared->ready, segment);
        atomic_store_explicit(&shared->supply, FQ_SUPPLY_NONE, memory_order_release);
        if (atomic_load(
                &shared->is_closed)) { /* meanwhile: see log_free, which looks after is_closed */
            fq_segment_destroy(atomic_exchange(&shared->ready, NULL));
        }
    }
    fq_store_progressed(store);
    fq_log_shared_unref(shared);
    return true;
}

/* --- retire ----------------------------------------------------------------------------------- */

static void remove_sidecars(struct fq_store *store, const struct fq_segment *segment)
{
    static const char *const suffixes[] = {"index"};
    char path[FQ_PATH_BYTES];
    size_t length = strlen(segment->path);
    for (unsigned i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (length > 4 && length < FQ_PATH_BYTES - 16) {
            (void)snprintf(path, sizeof path, "%.*s.%s", (int)(length - 4), segment->path,
                           suffixes[i]);
            (void)store->persist->ops->unlink(store->persist, path, NULL);
        }
    }
}

/* `is_former`: what is in it lies below the start of its log, for good. */
static int into_pool(struct fq_store *store, struct fq_segment *segment, bool is_former)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    char to[FQ_PATH_BYTES], folder[FQ_PATH_BYTES];
    uint64_t number = fq_random_u64();
    fq_pool_path(store, number, to);
    fq_pool_folder(store, folder);
    int r = ops->rename(store->persist, segment->path, to, NULL);
    if (r < 0) {
        return r;
    }
    char *slash = strrchr(segment->path, '/');
    *slash = '\0';
    r = ops->sync_dir(store->persist, folder, NULL);
    r = r < 0 ? r : ops->sync_dir(store->persist, segment->path, NULL);
    *slash = '/';
    struct fq_pool_file *entry =
        r == 0 ? fq_pool_add(store, segment->file, segment->file->pf.bytes, number, false) : NULL;
    if (r == 0 && !entry) {
        r = FLASHQ_ERR_NO_MEMORY;
    }
    if (r == 0) {
        struct fq_log_shared *shared = segment->file->shared;
        if (shared) {
            entry->has_former = is_former;
            entry->former_topic = shared->topic_id;
            entry->former_partition = shared->partition;
            fq_log_shared_unref(shared);
            segment->file->shared = NULL;
        }
        segment->file = NULL; /* the pool's now */
        fq_count(&store->recycled, 1);
        store->pool.retry_at_us = INT64_MIN;
    }
    return r;
}

bool fq_pool_retire(struct fq_store *store, struct fq_job *retire_job)
{
    struct fq_segment *segment =
        (struct fq_segment *)(void *)((char *)retire_job - offsetof(struct fq_segment, retire_job));
    const struct fq_persist_ops *ops = store->persist->ops;
    int r = store->is_abandoned ? FLASHQ_ERR_CLOSED : 0;
    if (r == 0 && segment->retire_after) {
        r = fq_segfile_sync(segment->retire_after, "syncing the log start");
    }
    r = r < 0 ? r : fq_segment_map(segment, NULL);
    /* Removed from the start: a truncation makes what it cuts FREE itself. */
    bool is_former = segment->state == FQ_SEGMENT_SEALED && !ops->needs_sync;
    bool is_shared = r == 0 && atomic_load(&segment->file->refs) > 1;
    if (r == 0 && segment->state != FQ_SEGMENT_FREE) {
        r = fq_segment_set_state(segment, FQ_SEGMENT_FREE);
        r = r < 0 ? r : ops->sync(&segment->file->pf);
    }
    if (r == 0) {
        remove_sidecars(store, segment);
        if (is_shared || segment->unlink_only || !fq_pool_is_kept(store, segment->file->pf.bytes) ||
            into_pool(store, segment, is_former) < 0) {
            (void)ops->unlink(store->persist, segment->path, NULL);
            fq_count(&store->unlinked, 1);
            store->pool.retry_at_us = INT64_MIN;
        }
    } else if (r != FLASHQ_ERR_CLOSED && r != FLASHQ_ERR_NOT_FOUND) {
        fq_error("%s: not removed: %s", segment->path, fq_err_describe(r));
    }
    fq_segment_destroy(segment);
    return true;
}

bool fq_pool_rename(struct fq_store *store, struct fq_job *rename_job)
{
    struct fq_rename_job *job = (struct fq_rename_job *)(void *)rename_job;
    struct fq_err err;
    int r = store->is_abandoned
                ? 0
                : store->persist->ops->rename(store->persist, job->from, job->to, &err);
    if (r < 0 && r != FLASHQ_ERR_NOT_FOUND) { /* it may have gone with its topic */
        fq_warn("%s", err.text); /* the header says what it is; the next start tries again */
    }
    fq_rename_job_destroy(job);
    return true;
}

/* --- faulting in ------------------------------------------------------------------------------ */

struct fault_job {
    struct fq_job job;
    struct fq_log_shared *shared;
    struct fq_segfile *file;
    uint64_t from;
};

static bool fault_in_piece(struct fq_store *store, struct fq_job *given)
{
    struct fault_job *job = (struct fault_job *)(void *)given;
    struct fq_pfile *pf = &job->file->pf;
    bool is_wanted = !store->is_abandoned && !atomic_load(&job->shared->is_closed);
    if (is_wanted && job->from < pf->bytes) {
        uint64_t left = pf->bytes - job->from;
        uint64_t piece = left < FQ_POOL_FAULT_BYTES ? left : FQ_POOL_FAULT_BYTES;
        store->persist->ops->fault_in(pf, job->from, job->from + piece);
        job->from += piece;
        fq_store_give(store, &job->job);
        return true;
    }
    fq_segfile_unref(job->file);
    fq_log_shared_unref(job->shared);
    free(job);
    return true;
}

void fq_pool_fault_in_later(struct fq_log_shared *shared, struct fq_segfile *file, uint64_t from)
{
    struct fault_job *job = shared->store->persist->ops->fault_in ? calloc(1, sizeof *job) : NULL;
    if (job) {
        *job = (struct fault_job){.job.run = fault_in_piece,
                                  .shared = fq_log_shared_ref(shared),
                                  .file = fq_segfile_ref(file),
                                  .from = from};
        fq_store_give(shared->store, &job->job);
    }
}
