/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of prepared segments: its files, what is wanted of which size, filling up. pool_supply.c
 * moves segments to logs and back. All of it runs on the housekeeper's thread.
 *
 * Failure: a file that cannot be made leaves nothing behind; the next try is a second later.
 *
 * Everything is zeroed before it is used again, always. That costs one background pass over the
 * file (which an unlinked and remade file would cost as well) and makes former lives impossible
 * instead of improbable: see MEDIA.md, "Former lives".
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
#include "storage/persist_files.h"
#include "storage/pool_impl.h"

#define ZERO_PIECE_BYTES (4u << 20)
#define RETRY_US         INT64_C(1000000)
#define PERIOD_US        INT64_C(10000000)
#define SURPLUS_FACTOR   2u /* files of a size kept beyond what is wanted of it */
#define WANT_MAX         8u

/* Numbers are random and never used again: were one reused, a rename that a crash keeps could
 * replace a file whose own renaming away from that name the crash has lost. */
void fq_pool_path(const struct fq_store *store, uint64_t number, char out[FQ_PATH_BYTES])
{
    (void)snprintf(out, FQ_PATH_BYTES, "%s/pool/%016llx.segment", store->dir,
                   (unsigned long long)number);
}

void fq_pool_folder(const struct fq_store *store, char out[FQ_PATH_BYTES])
{
    (void)snprintf(out, FQ_PATH_BYTES, "%s/pool", store->dir);
}

/* --- preparing -------------------------------------------------------------------------------- */

static int blank_header(struct fq_pfile *pf)
{
    const struct fq_segment_identity identity = {
        .base_offset = -1, .file_bytes = pf->bytes, .first_retention_ms = -1};
    static const uint8_t zeros[FQ_SEG_DATA];
    const struct fq_persist_ops *ops = pf->persist->ops;
    uint8_t encoded[FQ_SEG_IDENTITY_BYTES];
    fq_identity_encode(&identity, encoded);
    int r = ops->write(pf, 0, encoded, sizeof encoded);
    if (r == 0) {
        r = ops->write(pf, sizeof encoded, zeros, FQ_SEG_STATE - sizeof encoded);
    }
    return r < 0 ? r : ops->write(pf, FQ_SEG_STATE + 8, zeros, FQ_SEG_DATA - FQ_SEG_STATE - 8);
}

int fq_pool_prepare_piece(struct fq_pool_file *entry)
{
    struct fq_pfile *pf = &entry->file->pf;
    struct fq_segment segment = {.state = FQ_SEGMENT_FREE, .file = entry->file};
    uint64_t capacity = entry->bytes - FQ_SEG_DATA;
    uint64_t left = capacity - entry->zeroed;
    uint64_t piece = left < ZERO_PIECE_BYTES ? left : ZERO_PIECE_BYTES;
    int r = entry->zeroed == 0 ? blank_header(pf) : 0;
    r = r < 0 ? r : fq_segment_zero(&segment, entry->zeroed, entry->zeroed + piece);
    if (r < 0) {
        return r;
    }
    entry->zeroed += piece;
    if (entry->zeroed < capacity) {
        return 0;
    }
    r = pf->persist->ops->sync(pf);
    r = r < 0 ? r : fq_segment_set_state(&segment, FQ_SEGMENT_PREPARED);
    r = r < 0 ? r : pf->persist->ops->sync(pf);
    entry->is_ready = r == 0;
    return r;
}

struct fq_pool_file *fq_pool_add(struct fq_store *store, struct fq_segfile *file, uint64_t bytes,
                                 uint64_t number, bool is_ready)
{
    struct fq_pool_file *entry = calloc(1, sizeof *entry);
    if (entry) {
        *entry = (struct fq_pool_file){.next = store->pool.files,
                                       .file = file,
                                       .bytes = bytes,
                                       .number = number,
                                       .faulted = file ? bytes : 0,
                                       .is_ready = is_ready};
        store->pool.files = entry;
        fq_count(&store->prepared_count, 1);
        fq_count(&store->prepared_bytes, entry->bytes);
    }
    return entry;
}

void fq_pool_remove(struct fq_store *store, struct fq_pool_file *entry)
{
    struct fq_pool_file **at = &store->pool.files;
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    atomic_fetch_sub_explicit(&store->prepared_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->prepared_bytes, entry->bytes, memory_order_relaxed);
}

void fq_pool_drop(struct fq_store *store, struct fq_pool_file *entry)
{
    char path[FQ_PATH_BYTES];
    fq_pool_remove(store, entry);
    fq_pool_path(store, entry->number, path);
    (void)store->persist->ops->unlink(store->persist, path, NULL);
    fq_count(&store->unlinked, 1);
    fq_segfile_unref(entry->file);
    free(entry);
}

int fq_pool_adopt(struct fq_store *store, struct fq_pool_file *entry)
{
    if (entry->file) {
        return 0;
    }
    char path[FQ_PATH_BYTES];
    struct fq_err err;
    fq_pool_path(store, entry->number, path);
    int r = fq_segfile_open(store->persist, path, &entry->file, &err);
    if (r == 0 && entry->file->pf.bytes != entry->bytes) {
        r = fq_err_set(&err, FLASHQ_ERR_CORRUPT, "%s has changed its size", path);
    }
    if (r < 0) {
        fq_error("segment pool: %s", err.text);
        fq_pool_remove(store, entry);
        fq_segfile_unref(entry->file);
        free(entry);
        return r;
    }
    return 0;
}

/* A new file in the pool, ready. NO_SPACE leaves nothing. */
int fq_pool_create(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                   struct fq_err *err)
{
    char path[FQ_PATH_BYTES], folder[FQ_PATH_BYTES];
    struct fq_segfile *file = NULL;
    uint64_t number = fq_random_u64();
    fq_pool_path(store, number, path);
    fq_pool_folder(store, folder);
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
    struct fq_pool_file *entry = r == 0 ? fq_pool_add(store, file, bytes, number, true) : NULL;
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

void fq_pool_note_demand(struct fq_store *store, uint64_t bytes)
{
    struct fq_pool *pool = &store->pool;
    demand_of(pool, bytes)->taken++;
    /* The log that took it will want the next size. */
    uint64_t after =
        2 * bytes < store->params.segment_bytes_max ? 2 * bytes : store->params.segment_bytes_max;
    if (after > bytes) {
        struct fq_pool_demand *d = demand_of(pool, after);
        d->taken = d->taken > 0 ? d->taken : 1;
    }
}

static uint64_t wanted(const struct fq_store *store, const struct fq_pool_demand *d)
{
    uint64_t rate = d->taken > d->taken_before ? d->taken : d->taken_before;
    uint64_t want = rate < 2 ? rate : 2 + rate / 8; /* a second one while the first is taken */
    want = want < WANT_MAX ? want : WANT_MAX;
    return d->bytes == store->first_bytes && want < store->pool.floor_count
               ? store->pool.floor_count
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

bool fq_pool_is_kept(struct fq_store *store, uint64_t bytes)
{
    return count_of(&store->pool, bytes) <
           SURPLUS_FACTOR * wanted(store, demand_of(&store->pool, bytes)) + 1;
}

static bool is_asked_for(struct fq_store *store, const struct fq_pool_file *file)
{
    return wanted(store, demand_of(&store->pool, file->bytes)) > 0;
}

/* One piece of a file that was found at start; false: it is all there. */
static bool fault_in_one(struct fq_store *store, struct fq_pool_file *f)
{
    if (f->faulted == f->bytes) {
        return false;
    }
    if (!f->file && fq_pool_adopt(store, f) < 0) {
        return true;
    }
    uint64_t left = f->bytes - f->faulted;
    uint64_t piece = left < FQ_POOL_FAULT_BYTES ? left : FQ_POOL_FAULT_BYTES;
    if (store->persist->ops->fault_in) {
        store->persist->ops->fault_in(&f->file->pf, f->faulted, f->faulted + piece);
    }
    f->faulted += piece;
    return true;
}

static uint64_t ready_of(const struct fq_pool *pool, uint64_t bytes)
{
    uint64_t count = 0;
    for (const struct fq_pool_file *f = pool->files; f; f = f->next) {
        count += f->bytes == bytes && f->is_ready && f->faulted == f->bytes;
    }
    return count;
}

/* What to work on next: of the size of which the fewest are ready, the one that is furthest. */
static struct fq_pool_file *most_urgent(struct fq_store *store)
{
    struct fq_pool_file *best = NULL;
    uint64_t best_ready = UINT64_MAX;
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        bool is_done = f->is_ready && f->faulted == f->bytes;
        if (is_done || (!f->file && !is_asked_for(store, f))) {
            continue; /* the latter: found at start, of no use yet */
        }
        uint64_t ready = ready_of(&store->pool, f->bytes);
        if (ready < best_ready || (ready == best_ready && f->zeroed > best->zeroed)) {
            best = f;
            best_ready = ready;
        }
    }
    return best;
}

/* A piece at a time, so that a log that asks never waits for the whole of another's segment. */
static int make_ready_a_piece(struct fq_store *store)
{
    struct fq_pool_file *f = most_urgent(store);
    if (!f) {
        return 0;
    }
    if (fault_in_one(store, f)) {
        return 1;
    }
    if (fq_pool_prepare_piece(f) < 0) {
        fq_error("%s: a retired segment could not be zeroed", store->dir);
        fq_pool_drop(store, f);
    } else if (f->is_ready) {
        fq_count(&store->recycled, 1);
    }
    return 1;
}

/* One file of a size that is no longer asked for: its space goes back to the medium. */
static int drop_surplus(struct fq_store *store)
{
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        uint64_t want = wanted(store, demand_of(&store->pool, f->bytes));
        if (count_of(&store->pool, f->bytes) > SURPLUS_FACTOR * want + 1) {
            fq_pool_drop(store, f);
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
    if (make_ready_a_piece(store) > 0) {
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
        if (fq_pool_create(store, d->bytes, &made, &err) < 0) {
            fq_count(&store->no_space, err.code == FLASHQ_ERR_NO_SPACE);
            fq_warn("segment pool: %s", err.text);
            pool->retry_at_us = store->now_us + RETRY_US;
            return 0;
        }
        return 1;
    }
    return 0;
}

/* --- start and stop --------------------------------------------------------------------------- */

/* Only looks: a file is opened for use by fq_pool_adopt, after the start. */
static int read_header(const char *path, uint8_t header[FQ_SEG_DATA], uint64_t *ret_bytes,
                       struct fq_err *err)
{
    int fd;
    int r = fq_file_open_whole(path, &fd, ret_bytes, err);
    if (r < 0) {
        return r;
    }
    ssize_t got = pread(fd, header, FQ_SEG_DATA, 0);
    int errnum = errno;
    (void)close(fd);
    if (got < 0) {
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "read %s", path);
    }
    return got == FQ_SEG_DATA && *ret_bytes > FQ_SEG_DATA ? 0 : FLASHQ_ERR_CORRUPT;
}

static int pool_find(struct fq_store *store, const char *name, struct fq_err *err)
{
    unsigned long long number;
    int used = 0;
    char path[FQ_PATH_BYTES];
    if (sscanf(name, "%16llx.segment%n", &number, &used) != 1 || name[used] != '\0' || used == 0) {
        fq_warn("%s/pool/%s is not ours: left alone", store->dir, name);
        return 0;
    }
    fq_pool_path(store, number, path);
    uint8_t header[FQ_SEG_DATA];
    uint64_t bytes = 0;
    struct fq_segment_identity identity;
    int r = read_header(path, header, &bytes, err);
    if (r == FLASHQ_ERR_CORRUPT) { /* cut short while it was made: holds nothing */
        return store->persist->ops->unlink(store->persist, path, err);
    }
    if (r < 0) {
        return r;
    }
    enum fq_identity_result result = fq_identity_decode(header, &identity);
    enum fq_segment_state state = fq_state_read(fq_load_le64(header + FQ_SEG_STATE));
    if (result == FQ_IDENTITY_BLANK ||
        (result == FQ_IDENTITY_OK && identity.base_offset < 0 && identity.file_bytes != bytes)) {
        /* half made: what is written first is its identity */
        return store->persist->ops->unlink(store->persist, path, err);
    }
    if (state != FQ_SEGMENT_FREE && state != FQ_SEGMENT_PREPARED &&
        !(result == FQ_IDENTITY_OK && identity.base_offset < 0)) {
        (void)snprintf(path, sizeof path, "pool/%s", name);
        return fq_store_quarantine(store, path, "a segment with data in the pool", err);
    }
    if (state == FQ_SEGMENT_UNKNOWN) { /* made, but its state word never got there */
        return store->persist->ops->unlink(store->persist, path, err);
    }
    return fq_pool_add(store, NULL, bytes, number, state == FQ_SEGMENT_PREPARED)
               ? 0
               : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the pool");
}

int fq_pool_open(struct fq_store *store, struct fq_err *err)
{
    char folder[FQ_PATH_BYTES];
    fq_pool_folder(store, folder);
    uint64_t by_bytes = store->params.prepared_bytes / store->first_bytes;
    store->pool.floor_count = store->params.prepared_bytes == 0       ? 0
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
        fq_pool_remove(store, entry);
        fq_segfile_unref(entry->file);
        free(entry);
    }
}
