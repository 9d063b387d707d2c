/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a file of the pool ready, a piece at a time, so that nobody who wants something else of
 * the housekeeper waits for all of it: a new one is allocated and its pages made; one that was
 * found at start is faulted in; one that had a life is zeroed. Each is PREPARED, durably, after
 * what the word claims. The housekeeper's thread.
 *
 * Failure: NO_SPACE, IO, ...: the file leaves the pool and the medium.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/random.h"
#include "storage/pool_impl.h"

#define PIECE_BYTES (4u << 20)

/* What a piece of zeroing takes, as a share of making new pages (measured: 0.7 to 40 ms for 64
 * MiB). */
#define MAKE_TO_ZERO 32u

static int store_identity(struct fq_pfile *pf)
{
    const struct fq_segment_identity identity = {
        .base_offset = -1, .file_bytes = pf->bytes, .first_retention_ms = -1};
    uint8_t encoded[FQ_SEG_IDENTITY_BYTES];
    fq_identity_encode(&identity, encoded);
    return pf->persist->ops->write(pf, 0, encoded, sizeof encoded);
}

/* All of a header but its state. */
static int blank_header(struct fq_pfile *pf)
{
    static const uint8_t zeros[FQ_SEG_DATA];
    const struct fq_persist_ops *ops = pf->persist->ops;
    int r = store_identity(pf);
    if (r == 0) {
        r = ops->write(pf, FQ_SEG_IDENTITY_BYTES, zeros, FQ_SEG_STATE - FQ_SEG_IDENTITY_BYTES);
    }
    return r < 0 ? r : ops->write(pf, FQ_SEG_STATE + 8, zeros, FQ_SEG_DATA - FQ_SEG_STATE - 8);
}

/* The word, between two syncs: what it claims first. */
static int say_prepared(struct fq_segment *segment)
{
    struct fq_pfile *pf = &segment->file->pf;
    int r = pf->persist->ops->sync(pf);
    r = r < 0 ? r : fq_segment_set_state(segment, FQ_SEGMENT_PREPARED);
    return r < 0 ? r : pf->persist->ops->sync(pf);
}

/* --- one that had a life ---------------------------------------------------------------------- */

static int zero_piece(struct fq_pool_file *entry)
{
    struct fq_segment segment = {.state = FQ_SEGMENT_FREE, .file = entry->file};
    uint64_t capacity = entry->bytes - FQ_SEG_DATA;
    uint64_t left = capacity - entry->zeroed;
    uint64_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    entry->has_former = false;
    int r = entry->zeroed == 0 ? blank_header(&entry->file->pf) : 0;
    r = r < 0 ? r : fq_segment_zero(&segment, entry->zeroed, entry->zeroed + piece);
    if (r < 0) {
        return r;
    }
    entry->zeroed += piece;
    if (entry->zeroed < capacity) {
        return 0;
    }
    r = say_prepared(&segment);
    entry->is_ready = r == 0;
    return r;
}

int fq_pool_prepare_former(struct fq_segment *segment)
{
    uint64_t capacity = segment->file->pf.bytes - FQ_SEG_DATA;
    int r = blank_header(&segment->file->pf);
    r = r < 0 ? r : fq_segment_zero(segment, 0, capacity < FQ_SEG_DATA ? capacity : FQ_SEG_DATA);
    return r < 0 ? r : say_prepared(segment);
}

/* --- a new one -------------------------------------------------------------------------------- */

static int finish_new(struct fq_store *store, struct fq_pool_file *entry, struct fq_err *err)
{
    struct fq_segment segment = {.state = FQ_SEGMENT_FREE, .file = entry->file};
    char folder[FQ_PATH_BYTES];
    fq_pool_folder(store, folder);
    int r = store_identity(&entry->file->pf);
    r = r < 0 ? r : say_prepared(&segment);
    if (r < 0) {
        return fq_err_set(err, r, "prepare a segment: %s", fq_err_describe(r));
    }
    r = store->persist->ops->sync_dir(store->persist, folder, err);
    entry->is_ready = r == 0;
    fq_count(&store->created, r == 0);
    return r;
}

static int grow_piece(struct fq_store *store, struct fq_pool_file *entry, struct fq_err *err)
{
    uint64_t left = entry->bytes - entry->grown;
    uint64_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    int r = store->persist->ops->grow(&entry->file->pf, entry->grown, entry->grown + piece, err);
    if (r < 0) {
        return fq_err_prefix(err, "a segment in %s: ", store->dir);
    }
    entry->grown += piece;
    return entry->grown < entry->bytes ? 0 : finish_new(store, entry, err);
}

int fq_pool_begin(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                  struct fq_err *err)
{
    char path[FQ_PATH_BYTES];
    struct fq_segfile *file = NULL;
    uint64_t number = fq_random_u64();
    fq_pool_path(store, number, path);
    int r = fq_segfile_create(store->persist, path, bytes, &file, err);
    if (r < 0) {
        return r;
    }
    struct fq_pool_file *entry = fq_pool_add(store, file, bytes, number, false);
    if (!entry) {
        (void)store->persist->ops->unlink(store->persist, path, NULL);
        fq_segfile_unref(file);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the pool");
    }
    entry->zeroed = bytes - FQ_SEG_DATA; /* as it is made */
    entry->grown = store->persist->ops->grow ? 0 : bytes;
    if (entry->grown == bytes) {
        r = finish_new(store, entry, err);
        if (r < 0) {
            fq_pool_drop(store, entry);
            return r;
        }
    }
    *ret = entry;
    return 0;
}

/* --- any -------------------------------------------------------------------------------------- */

static void fault_in_piece(struct fq_store *store, struct fq_pool_file *entry)
{
    uint64_t left = entry->bytes - entry->faulted;
    uint64_t piece = left < FQ_POOL_FAULT_BYTES ? left : FQ_POOL_FAULT_BYTES;
    if (store->persist->ops->fault_in) {
        store->persist->ops->fault_in(&entry->file->pf, entry->faulted, entry->faulted + piece);
    }
    entry->faulted += piece;
}

int fq_pool_make_piece(struct fq_store *store, struct fq_pool_file *entry, struct fq_err *err)
{
    int r = fq_pool_adopt(store, entry);
    if (r < 0) {
        return fq_err_set(err, r, "a file of the pool cannot be opened");
    }
    if (entry->grown < entry->bytes) {
        r = grow_piece(store, entry, err);
    } else if (entry->faulted < entry->bytes) {
        fault_in_piece(store, entry);
    } else if (!entry->is_ready) {
        r = zero_piece(entry);
        if (r < 0) {
            (void)fq_err_set(err, r, "a retired segment could not be zeroed: %s",
                             fq_err_describe(r));
        }
    }
    if (r < 0) {
        fq_pool_drop(store, entry);
    }
    return r;
}

uint64_t fq_pool_left(const struct fq_pool_file *entry)
{
    return entry->is_ready ? 0
                           : MAKE_TO_ZERO * (entry->bytes - entry->grown) +
                                 (entry->bytes - FQ_SEG_DATA - entry->zeroed) + 1;
}
