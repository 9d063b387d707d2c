/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of prepared segments: its files, and filling up. pool_demand.c says how many of which
 * size, pool_make.c makes them ready, pool_supply.c moves them to logs and back. All of it runs on
 * the housekeeper's thread.
 *
 * Failure: a file that cannot be made leaves nothing behind; the next try is a second later.
 *
 * A file is zeroed before it is used again, but for one case: see MEDIA.md, "Former lives".
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

#define RETRY_US INT64_C(1000000)

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

/* --- the list ------------------------------------------------------------------------------------
 */

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
                                       .grown = bytes,
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

/* --- filling up ----------------------------------------------------------------------------------
 */

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
    return count_of(&store->pool, bytes) < fq_pool_kept_most(store, bytes);
}

static uint64_t ready_of(const struct fq_pool *pool, uint64_t bytes)
{
    uint64_t count = 0;
    for (const struct fq_pool_file *f = pool->files; f; f = f->next) {
        count += f->bytes == bytes && f->is_ready && f->faulted == f->bytes;
    }
    return count;
}

/* Is there work on it that is not better left? A file found at start of a size that nobody wants;
 * one that its partition may take as it is, while that size is in use. */
static bool is_to_do(struct fq_store *store, const struct fq_pool_file *f)
{
    if (f->is_ready && f->faulted == f->bytes) {
        return false;
    }
    return (f->file || fq_pool_wanted(store, f->bytes) > 0) &&
           (!f->has_former || fq_pool_is_quiet(store, f->bytes));
}

/* Of the size of which the fewest are ready, the one that is furthest. */
static struct fq_pool_file *most_urgent(struct fq_store *store)
{
    struct fq_pool_file *best = NULL;
    uint64_t best_ready = UINT64_MAX;
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        if (!is_to_do(store, f)) {
            continue;
        }
        uint64_t ready = ready_of(&store->pool, f->bytes);
        if (ready < best_ready || (ready == best_ready && fq_pool_left(f) < fq_pool_left(best))) {
            best = f;
            best_ready = ready;
        }
    }
    return best;
}

static void failed(struct fq_store *store, const struct fq_err *err)
{
    fq_count(&store->no_space, err->code == FLASHQ_ERR_NO_SPACE);
    fq_warn("segment pool: %s", err->text);
    store->pool.retry_at_us = store->now_us + RETRY_US;
}

/* One file of a size that is no longer asked for: its space goes back to the medium. */
static int drop_surplus(struct fq_store *store)
{
    if (store->now_us < store->pool.drop_from_us) {
        return 0;
    }
    for (struct fq_pool_file *f = store->pool.files; f; f = f->next) {
        if (count_of(&store->pool, f->bytes) > fq_pool_kept_most(store, f->bytes)) {
            fq_pool_drop(store, f);
            return 1;
        }
    }
    return 0;
}

/* The smallest size of which there are too few: it is there soonest, and the larger ones come after
 * it in a growing log's life too. */
static uint64_t size_missing(struct fq_store *store)
{
    uint64_t missing = 0;
    for (unsigned i = 0; i < FQ_POOL_CLASSES; i++) {
        uint64_t bytes = store->pool.demand[i].bytes;
        if (bytes > 0 && (missing == 0 || bytes < missing) &&
            count_of(&store->pool, bytes) < fq_pool_wanted(store, bytes)) {
            missing = bytes;
        }
    }
    return missing;
}

int fq_pool_top_up(struct fq_store *store)
{
    struct fq_pool_file *f;
    struct fq_err err;
    fq_pool_tick(store);
    if (drop_surplus(store) > 0) {
        return 1;
    }
    f = most_urgent(store);
    if (f) {
        if (fq_pool_make_piece(store, f, &err) < 0) {
            failed(store, &err);
        }
        return 1;
    }
    uint64_t missing = store->now_us < store->pool.retry_at_us ? 0 : size_missing(store);
    if (missing == 0) {
        return 0;
    }
    if (fq_pool_begin(store, missing, &f, &err) < 0) {
        failed(store, &err);
        return 0;
    }
    return 1;
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
    fq_pool_set_floor(store);
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
