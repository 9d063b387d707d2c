/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of prepared segments. All of it runs on the housekeeper's thread.
 *
 * Happy path: a log asks for a segment (fq_pool_supply); the pool has one of that size, moves it beside
 * the log and hands it over; afterwards the pool tops itself up by what was asked for lately.
 * A retired segment becomes FREE, moves into the pool, is zeroed and is PREPARED again.
 * Failure: no space for a new file: first what the pool keeps of other sizes is given up, then the log
 * is told, and the request waits here and is tried again each second and after each retirement.
 *
 * Everything is zeroed before it is used again, always. That costs one background pass over the file
 * (which an unlinked and remade file would cost as well) and makes former lives impossible instead of
 * improbable: see MEDIA.md, "Former lives".
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/random.h"
#include "storage/store_impl.h"

#define RETRY_US         INT64_C(1000000)
#define PERIOD_US        INT64_C(10000000)
#define SURPLUS_FACTOR   2u /* files of a size kept beyond what is wanted of it */
#define WANT_MAX         8u

/* Numbers are random and never used again: were one reused, a rename that a crash keeps could replace
 * a file whose own renaming away from that name the crash has lost. */
static void pool_path(const struct fq_store *store, uint64_t number, char out[FQ_PATH_BYTES])
{
    (void)snprintf(out, FQ_PATH_BYTES, "%s/pool/%016llx.segment", store->dir,
                   (unsigned long long)number);
}

static void pool_folder(const struct fq_store *store, char out[FQ_PATH_BYTES])
{
    (void)snprintf(out, FQ_PATH_BYTES, "%s/pool", store->dir);
}

/* --- preparing -------------------------------------------------------------------------------- */

/* FREE -> zero -> PREPARED, durably; each state word follows what it claims. */
static int prepare_file(struct fq_segfile *file)
{
    struct fq_segment segment = {.state = FQ_SEGMENT_FREE,
                                 .file = file,
                                 .identity = {.base_offset = -1,
                                              .file_bytes = file->pf.bytes,
                                              .first_retention_ms = -1}};
    static const uint8_t zeros[FQ_SEG_DATA];
    struct fq_pfile *pf = &file->pf;
    const struct fq_persist_ops *ops = pf->persist->ops;
    uint8_t identity[FQ_SEG_IDENTITY_BYTES];
    fq_identity_encode(&segment.identity, identity);
    int r = ops->write(pf, 0, identity, sizeof identity);
    if (r == 0) {
        r = ops->write(pf, sizeof identity, zeros, FQ_SEG_STATE - sizeof identity);
    }
    if (r == 0) {
        r = ops->write(pf, FQ_SEG_STATE + 8, zeros, FQ_SEG_DATA - FQ_SEG_STATE - 8);
    }
    if (r == 0) {
        r = fq_segment_zero(&segment, 0, pf->bytes - FQ_SEG_DATA);
    }
    if (r == 0) {
        r = ops->sync(pf);
    }
    if (r == 0) {
        r = fq_segment_set_state(&segment, FQ_SEGMENT_PREPARED);
    }
    return r < 0 ? r : ops->sync(pf);
}

static struct fq_pool_file *pool_add(struct fq_store *store, struct fq_segfile *file,
                                     uint64_t number, bool is_ready)
{
    struct fq_pool_file *entry = calloc(1, sizeof *entry);
    if (entry) {
        *entry = (struct fq_pool_file){store->pool.files, file, file->pf.bytes, number, is_ready};
        store->pool.files = entry;
        fq_count(&store->prepared_count, 1);
        fq_count(&store->prepared_bytes, entry->bytes);
    }
    return entry;
}

static void pool_remove(struct fq_store *store, struct fq_pool_file *entry)
{
    struct fq_pool_file **at = &store->pool.files;
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    atomic_fetch_sub_explicit(&store->prepared_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->prepared_bytes, entry->bytes, memory_order_relaxed);
}

static void pool_drop(struct fq_store *store, struct fq_pool_file *entry)
{
    char path[FQ_PATH_BYTES];
    pool_remove(store, entry);
    pool_path(store, entry->number, path);
    (void)store->persist->ops->unlink(store->persist, path, NULL);
    fq_count(&store->unlinked, 1);
    fq_segfile_unref(entry->file);
    free(entry);
}

/* A new file in the pool, ready. NO_SPACE leaves nothing. */
static int pool_create(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                       struct fq_err *err)
{
    char path[FQ_PATH_BYTES], folder[FQ_PATH_BYTES];
    struct fq_segfile *file = NULL;
    uint64_t number = fq_random_u64();
    pool_path(store, number, path);
    pool_folder(store, folder);
    int r = fq_segfile_create(store->persist, path, bytes, &file, err);
    if (r < 0) {
        return r;
    }
    const struct fq_segment_identity identity = {
        .base_offset = -1, .file_bytes = bytes, .first_retention_ms = -1};
    uint8_t encoded[FQ_SEG_IDENTITY_BYTES];
    fq_identity_encode(&identity, encoded);
    r = store->persist->ops->write(&file->pf, 0, encoded, sizeof encoded);
    if (r == 0) { /* the file is zero: durable as such before it says so */
        r = store->persist->ops->sync(&file->pf);
    }
    if (r == 0) {
        r = store->persist->ops->word(&file->pf, FQ_SEG_STATE, fq_state_word(FQ_SEGMENT_PREPARED));
    }
    if (r == 0) {
        r = store->persist->ops->sync(&file->pf);
    }
    if (r == 0) {
        r = store->persist->ops->sync_dir(store->persist, folder, err);
    } else {
        (void)fq_err_set(err, r, "prepare %s: %s", path, fq_err_describe(r));
    }
    struct fq_pool_file *entry = r == 0 ? pool_add(store, file, number, true) : NULL;
    if (!entry) {
        (void)store->persist->ops->unlink(store->persist, path, NULL);
        fq_segfile_unref(file);
        return r < 0 ? r : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the pool");
    }
    fq_count(&store->created, 1);
    *ret = entry;
    return 0;
}

/* --- demand ----------------------------------------------------------------------------------- */

static struct fq_pool_demand *demand_of(struct fq_pool *pool, uint64_t bytes)
{
    struct fq_pool_demand *least = &pool->demand[0];
    for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
        struct fq_pool_demand *d = &pool->demand[i];
        if (d->bytes == bytes) {
            return d;
        }
        if (d->taken + d->taken_before < least->taken + least->taken_before) {
            least = d;
        }
    }
    *least = (struct fq_pool_demand){.bytes = bytes};
    return least;
}

static void note_demand(struct fq_store *store, uint64_t bytes)
{
    struct fq_pool *pool = &store->pool;
    demand_of(pool, bytes)->taken++;
    /* The log that took it will want the next size. */
    uint64_t after = 2 * bytes < store->params.segment_bytes_max ? 2 * bytes
                                                                 : store->params.segment_bytes_max;
    if (after > bytes) {
        struct fq_pool_demand *d = demand_of(pool, after);
        d->taken = d->taken > 0 ? d->taken : 1;
    }
}

static uint64_t wanted(const struct fq_store *store, const struct fq_pool_demand *d)
{
    uint64_t rate = d->taken > d->taken_before ? d->taken : d->taken_before;
    uint64_t want = rate == 0 ? 0 : 1 + rate / 8;
    want = want < WANT_MAX ? want : WANT_MAX;
    return d->bytes == store->first_bytes && want < store->pool.floor_count ? store->pool.floor_count
                                                                            : want;
}

static uint64_t count_of(const struct fq_pool *pool, uint64_t bytes)
{
    uint64_t count = 0;
    for (const struct fq_pool_file *f = pool->files; f; f = f->next) {
        count += f->bytes == bytes;
    }
    return count;
}

static bool is_kept(struct fq_store *store, uint64_t bytes)
{
    return count_of(&store->pool, bytes) <
           SURPLUS_FACTOR * wanted(store, demand_of(&store->pool, bytes)) + 1;
}

static int make_one_ready(struct fq_store *store)
{
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        if (!f->is_ready) {
            if (prepare_file(f->file) < 0) {
                fq_error("%s: a retired segment could not be zeroed", store->dir);
                pool_drop(store, f);
            } else {
                f->is_ready = true;
                fq_count(&store->recycled, 1);
            }
            return 1;
        }
    }
    return 0;
}

/* One file of a size that is no longer asked for: its space goes back to the medium. */
static int drop_surplus(struct fq_store *store)
{
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        uint64_t want = wanted(store, demand_of(&store->pool, f->bytes));
        if (count_of(&store->pool, f->bytes) > SURPLUS_FACTOR * want + 1) {
            pool_drop(store, f);
            return 1;
        }
    }
    return 0;
}

int fq_pool_top_up(struct fq_store *store)
{
    struct fq_pool *pool = &store->pool;
    if (store->now_us >= pool->period_end_us) {
        pool->period_end_us = store->now_us + PERIOD_US;
        for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
            pool->demand[i].taken_before = pool->demand[i].taken;
            pool->demand[i].taken = 0;
        }
    }
    if (make_one_ready(store) > 0) {
        return 1;
    }
    if (drop_surplus(store) > 0) {
        return 1;
    }
    if (store->now_us < pool->retry_at_us) {
        return 0;
    }
    for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
        struct fq_pool_demand *d = &pool->demand[i];
        struct fq_pool_file *made;
        struct fq_err err;
        if (d->bytes == 0 || count_of(pool, d->bytes) >= wanted(store, d)) {
            continue;
        }
        if (pool_create(store, d->bytes, &made, &err) < 0) {
            fq_count(&store->no_space, err.code == FLASHQ_ERR_NO_SPACE);
            fq_warn("segment pool: %s", err.text);
            pool->retry_at_us = store->now_us + RETRY_US;
            return 0;
        }
        return 1;
    }
    return 0;
}

/* --- supply ----------------------------------------------------------------------------------- */

static int pool_take(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                     struct fq_err *err)
{
    struct fq_pool_file *found = NULL;
    for (struct fq_pool_file *f = store->pool.files; f && !(found && found->is_ready); f = f->next) {
        found = f->bytes == bytes && (f->is_ready || !found) ? f : found;
    }
    if (found && !found->is_ready) {
        int r = prepare_file(found->file);
        if (r < 0) {
            pool_drop(store, found);
            return fq_err_set(err, r, "a retired segment could not be zeroed");
        }
        found->is_ready = true;
        fq_count(&store->recycled, 1);
    }
    int r = found ? 0 : pool_create(store, bytes, &found, err);
    while (r == FLASHQ_ERR_NO_SPACE && store->pool.files) { /* other sizes are worth less now */
        pool_drop(store, store->pool.files);
        r = pool_create(store, bytes, &found, err);
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
    pool_path(store, entry->number, from);
    pool_folder(store, folder);
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
    segment->state = FQ_SEGMENT_PREPARED;
    segment->file = fq_segfile_ref(entry->file);
    segment->file->shared = fq_log_shared_ref(shared);
    pool_remove(store, entry);
    fq_segfile_unref(entry->file);
    free(entry);
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
    note_demand(store, shared->want_bytes);
    int r = pool_take(store, shared->want_bytes, &entry, &err);
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
        if (atomic_load(&shared->is_closed)) { /* meanwhile: see log_free, which looks after is_closed */
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

static int into_pool(struct fq_store *store, struct fq_segment *segment)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    char to[FQ_PATH_BYTES], folder[FQ_PATH_BYTES];
    uint64_t number = fq_random_u64();
    pool_path(store, number, to);
    pool_folder(store, folder);
    int r = ops->rename(store->persist, segment->path, to, NULL);
    if (r < 0) {
        return r;
    }
    char *slash = strrchr(segment->path, '/');
    *slash = '\0';
    r = ops->sync_dir(store->persist, folder, NULL);
    r = r < 0 ? r : ops->sync_dir(store->persist, segment->path, NULL);
    *slash = '/';
    if (r == 0 && !pool_add(store, segment->file, number, false)) {
        r = FLASHQ_ERR_NO_MEMORY;
    }
    if (r == 0) {
        if (segment->file->shared) {
            fq_log_shared_unref(segment->file->shared);
            segment->file->shared = NULL;
        }
        segment->file = NULL; /* the pool's now */
        store->pool.retry_at_us = INT64_MIN;
    }
    return r;
}

bool fq_pool_retire(struct fq_store *store, struct fq_job *retire_job)
{
    struct fq_segment *segment = (struct fq_segment *)(void *)((char *)retire_job -
                                                      offsetof(struct fq_segment, retire_job));
    const struct fq_persist_ops *ops = store->persist->ops;
    int r = store->is_abandoned ? FLASHQ_ERR_CLOSED : 0;
    if (r == 0 && segment->retire_after) {
        r = ops->sync(&segment->retire_after->pf);
        if (r < 0 && segment->retire_after->shared) {
            fq_log_shared_fail(segment->retire_after->shared, r, "syncing the log start");
        }
    }
    r = r < 0 ? r : fq_segment_map(segment, NULL);
    bool is_shared = r == 0 && atomic_load(&segment->file->refs) > 1;
    if (r == 0 && segment->state != FQ_SEGMENT_FREE) {
        r = fq_segment_set_state(segment, FQ_SEGMENT_FREE);
        r = r < 0 ? r : ops->sync(&segment->file->pf);
    }
    if (r == 0) {
        remove_sidecars(store, segment);
        if (is_shared || !is_kept(store, segment->file->pf.bytes) || into_pool(store, segment) < 0) {
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
    if (!store->is_abandoned &&
        store->persist->ops->rename(store->persist, job->from, job->to, &err) < 0) {
        fq_warn("%s", err.text); /* the header says what it is; the next start tries again */
    }
    fq_rename_job_destroy(job);
    return true;
}

/* --- start and stop --------------------------------------------------------------------------- */

static int pool_find(struct fq_store *store, const char *name, struct fq_err *err)
{
    unsigned long long number;
    int used = 0;
    char path[FQ_PATH_BYTES];
    if (sscanf(name, "%16llx.segment%n", &number, &used) != 1 || name[used] != '\0' || used == 0) {
        fq_warn("%s/pool/%s is not ours: left alone", store->dir, name);
        return 0;
    }
    pool_path(store, number, path);
    struct fq_segfile *file = NULL;
    struct fq_segment_identity identity;
    int r = fq_segfile_open(store->persist, path, &file, err);
    if (r == FLASHQ_ERR_CORRUPT) { /* cut short while it was made: holds nothing */
        return store->persist->ops->unlink(store->persist, path, err);
    }
    if (r < 0) {
        return r;
    }
    enum fq_identity_result result = fq_identity_decode(file->pf.map, &identity);
    enum fq_segment_state state = fq_state_read(fq_load_le64(file->pf.map + FQ_SEG_STATE));
    if (result == FQ_IDENTITY_BLANK || (result == FQ_IDENTITY_OK && identity.base_offset < 0 &&
                                        identity.file_bytes != file->pf.bytes)) {
        fq_segfile_unref(file); /* half made: what is written first is its identity */
        return store->persist->ops->unlink(store->persist, path, err);
    }
    if (state != FQ_SEGMENT_FREE && state != FQ_SEGMENT_PREPARED &&
        !(result == FQ_IDENTITY_OK && identity.base_offset < 0)) {
        fq_segfile_unref(file);
        (void)snprintf(path, sizeof path, "pool/%s", name);
        return fq_store_quarantine(store, path, "a segment with data in the pool", err);
    }
    if (state == FQ_SEGMENT_UNKNOWN) { /* made, but its state word never got there */
        fq_segfile_unref(file);
        return store->persist->ops->unlink(store->persist, path, err);
    }
    if (!pool_add(store, file, number, state == FQ_SEGMENT_PREPARED)) {
        fq_segfile_unref(file);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the pool");
    }
    return 0;
}

int fq_pool_open(struct fq_store *store, struct fq_err *err)
{
    char folder[FQ_PATH_BYTES];
    pool_folder(store, folder);
    uint64_t by_bytes = store->params.prepared_bytes / store->first_bytes;
    store->pool.floor_count = store->params.prepared_bytes == 0 ? 0
                              : by_bytes > store->params.shards_count ? by_bytes
                                                                      : store->params.shards_count;
    demand_of(&store->pool, store->first_bytes)->bytes = store->first_bytes;
    store->pool.retry_at_us = INT64_MIN;
    DIR *dir = opendir(folder);
    if (!dir) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", folder);
    }
    int r = 0;
    for (struct dirent *entry; r == 0 && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            r = pool_find(store, entry->d_name, err);
        }
    }
    (void)closedir(dir);
    return r;
}

void fq_pool_close(struct fq_store *store)
{
    while (store->pool.files) {
        struct fq_pool_file *entry = store->pool.files;
        pool_remove(store, entry);
        fq_segfile_unref(entry->file);
        free(entry);
    }
}
