/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One segment: its file, its state machine, its publish words. segment.h has the diagram. Functions
 * that store return persist errors only; the order of their stores is argued in MEDIA.md.
 */
#include "storage/segment.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fabric/fabric.h"
#include "storage/log_impl.h"

/* --- files ---------------------------------------------------------------------------------- */

static struct fq_segfile *segfile_new(void)
{
    struct fq_segfile *file = calloc(1, sizeof *file);
    if (file) {
        atomic_init(&file->refs, 1);
        atomic_init(&file->wanted_end, 0);
        atomic_init(&file->queued, false);
        atomic_init(&file->is_flushing, false);
        (void)pthread_mutex_init(&file->sync_lock, NULL); /* of default attributes: cannot fail */
    }
    return file;
}

static void segfile_free(struct fq_segfile *file)
{
    (void)pthread_mutex_destroy(&file->sync_lock);
    free(file);
}

int fq_segfile_open(struct fq_persist *persist, const char *path, struct fq_segfile **ret,
                    struct fq_err *err)
{
    struct fq_segfile *file = segfile_new();
    if (!file) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for %s", path);
    }
    int r = persist->ops->open(persist, path, &file->pf, err);
    if (r == 0 && file->pf.bytes <= FQ_SEG_DATA) {
        persist->ops->close(&file->pf);
        r = fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s is shorter than a segment's header", path);
    }
    if (r < 0) {
        segfile_free(file);
        return r;
    }
    *ret = file;
    return 0;
}

int fq_segfile_create(struct fq_persist *persist, const char *path, uint64_t bytes,
                      struct fq_segfile **ret, struct fq_err *err)
{
    struct fq_segfile *file = segfile_new();
    if (!file) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for %s", path);
    }
    int r = persist->ops->begin ? persist->ops->begin(persist, path, bytes, &file->pf, err)
                                : persist->ops->create(persist, path, bytes, &file->pf, err);
    if (r < 0) {
        segfile_free(file);
        return r;
    }
    *ret = file;
    return 0;
}

struct fq_segfile *fq_segfile_ref(struct fq_segfile *file)
{
    (void)atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void fq_segfile_unref(struct fq_segfile *file)
{
    /* acq_rel: the thread that unmaps sees every other holder's last use before it */
    if (file && atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1) {
        file->pf.persist->ops->close(&file->pf);
        if (file->shared) {
            fq_log_shared_unref(file->shared);
        }
        segfile_free(file);
    }
}

int fq_segfile_sync(struct fq_segfile *file, const char *what)
{
    (void)pthread_mutex_lock(&file->sync_lock);
    int r = file->pf.persist->ops->sync(&file->pf);
    if (r < 0 && file->shared) {
        fq_log_shared_fail(file->shared, r, "%s", what);
    } else if (r == 0 && file->shared && atomic_load(&file->shared->failed) != 0) {
        r = FLASHQ_ERR_OFFLINE;
    }
    (void)pthread_mutex_unlock(&file->sync_lock);
    return r;
}

void fq_segfile_retract(struct fq_segfile *file, int64_t end)
{
    /* seq_cst on both sides: the flusher raises is_flushing, then reads wanted_end */
    atomic_store(&file->wanted_end, end);
    while (atomic_load(&file->is_flushing)) {
        (void)usleep(50);
    }
}

void fq_rename_job_destroy(struct fq_rename_job *job)
{
    if (job) {
        free(job->from);
        free(job->to);
        free(job);
    }
}

/* --- memory --------------------------------------------------------------------------------- */

struct fq_segment *fq_segment_create(struct fq_store *store, uint64_t file_bytes)
{
    struct fq_segment *segment = calloc(1, sizeof *segment);
    if (!segment) {
        return NULL;
    }
    uint64_t chunks = (file_bytes - FQ_SEG_DATA) / FQ_LIMIT_CHUNK_BYTES + 1;
    segment->index = calloc((size_t)chunks, sizeof segment->index[0]);
    if (!segment->index) {
        free(segment);
        return NULL;
    }
    segment->index_capacity = (uint32_t)chunks;
    segment->store = store;
    segment->id = fq_store_next_id(store);
    segment->state = FQ_SEGMENT_FREE;
    segment->identity.file_bytes = file_bytes;
    return segment;
}

void fq_segment_destroy(struct fq_segment *segment)
{
    if (!segment) {
        return;
    }
    fq_region_unref(segment->region);
    fq_segfile_unref(segment->file);
    fq_segfile_unref(segment->retire_after);
    fq_rename_job_destroy(segment->rename_job);
    free(segment->index);
    free(segment->path);
    free(segment);
}

int fq_segment_prepare_names(struct fq_segment *segment, const char *dir)
{
    size_t room = strlen(dir) + 64; /* "/<20 digits>.log" or "/next-<20 digits>.log" */
    struct fq_rename_job *job = calloc(1, sizeof *job);
    char *path = malloc(room);
    if (job) {
        job->job.run = fq_pool_rename;
        job->from = strdup(segment->path);
        job->to = malloc(room);
    }
    if (!job || !path || !job->from || !job->to) {
        fq_rename_job_destroy(job);
        free(path);
        return FLASHQ_ERR_NO_MEMORY;
    }
    (void)snprintf(job->to, room, "%s/", dir);
    (void)snprintf(path, room, "%s", segment->path);
    free(segment->path);
    segment->path = path;
    segment->rename_job = job;
    return 0;
}

void fq_segment_use_final_name(struct fq_segment *segment)
{
    struct fq_rename_job *job = segment->rename_job;
    segment->rename_job = NULL;
    size_t length = strlen(job->to);
    (void)snprintf(job->to + length, 26, "%020lld.log", (long long)segment->identity.base_offset);
    (void)snprintf(segment->path, length + 26, "%s", job->to);
    if (strcmp(job->from, job->to) == 0) {
        fq_rename_job_destroy(job);
    } else {
        fq_store_give(segment->store, &job->job);
    }
}

int fq_segment_map(struct fq_segment *segment, struct fq_err *err)
{
    if (segment->file) {
        return 0;
    }
    int r = fq_segfile_open(fq_store_persist(segment->store), segment->path, &segment->file, err);
    if (r == 0 && segment->file->pf.bytes < FQ_SEG_DATA + segment->data_bytes) {
        fq_segfile_unref(segment->file);
        segment->file = NULL;
        r = fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s is shorter than its seal says", segment->path);
    }
    return r;
}

/* --- states --------------------------------------------------------------------------------- */

static const bool transitions[4][4] = {
    [FQ_SEGMENT_FREE] = {[FQ_SEGMENT_PREPARED] = true, [FQ_SEGMENT_OPEN] = true},
    [FQ_SEGMENT_PREPARED] = {[FQ_SEGMENT_OPEN] = true, [FQ_SEGMENT_FREE] = true},
    [FQ_SEGMENT_OPEN] = {[FQ_SEGMENT_SEALED] = true, [FQ_SEGMENT_FREE] = true},
    [FQ_SEGMENT_SEALED] = {[FQ_SEGMENT_OPEN] = true, [FQ_SEGMENT_FREE] = true},
};

int fq_segment_set_state(struct fq_segment *segment, enum fq_segment_state next)
{
    assert(segment->state < FQ_SEGMENT_UNKNOWN && next < FQ_SEGMENT_UNKNOWN);
    assert(transitions[segment->state][next]);
    struct fq_pfile *pf = &segment->file->pf;
    int r = pf->persist->ops->word(pf, FQ_SEG_STATE, fq_state_word(next));
    if (r == 0) {
        segment->state = next;
    }
    return r;
}

/* --- words and blocks ------------------------------------------------------------------------ */

static int store_word(struct fq_segment *segment, uint64_t at, enum fq_word_kind kind,
                      uint64_t value)
{
    struct fq_pfile *pf = &segment->file->pf;
    return pf->persist->ops->word(pf, at, fq_word_make(&segment->identity, kind, value));
}

int fq_segment_store_tail(struct fq_segment *segment, uint64_t position, int64_t end_offset)
{
    /* The end is a hint for when the last batch is damaged; it may be newer than the tail. */
    uint64_t delta = (uint64_t)(end_offset - segment->identity.base_offset);
    struct fq_pfile *pf = &segment->file->pf;
    const struct fq_persist_ops *ops = pf->persist->ops;
    const uint64_t at[2] = {FQ_SEG_END, FQ_SEG_TAIL};
    const uint64_t words[2] = {fq_word_make(&segment->identity, FQ_WORD_END, delta),
                               fq_word_make(&segment->identity, FQ_WORD_TAIL, position)};
    int r = ops->words ? ops->words(pf, at, words) : ops->word(pf, at[0], words[0]);
    if (r == 0 && !ops->words) {
        r = ops->word(pf, at[1], words[1]);
    }
    if (r == 0) {
        segment->published_bytes = position;
    }
    return r;
}

int fq_segment_take_into_use(struct fq_segment *segment, const struct fq_segment_identity *identity)
{
    struct fq_pfile *pf = &segment->file->pf;
    const struct fq_persist_ops *ops = pf->persist->ops;
    uint8_t bytes[FQ_SEG_IDENTITY_BYTES];
    assert(segment->state == FQ_SEGMENT_PREPARED || segment->state == FQ_SEGMENT_FREE);
    segment->identity = *identity;
    segment->epochs_count = 0;
    segment->data_bytes = 0;
    segment->end_offset = identity->base_offset;
    segment->index_next = (struct fq_index_entry){identity->base_offset, 0};
    fq_identity_encode(identity, bytes);
    int r = ops->write(pf, 0, bytes, sizeof bytes);
    if (r == 0) {
        r = fq_segment_store_tail(segment, 0, identity->base_offset);
    }
    ops->drain(pf->persist);
    /* This word makes the segment exist; the first batch's fence makes it durable. */
    return r < 0 ? r : fq_segment_set_state(segment, FQ_SEGMENT_OPEN);
}

int fq_segment_store_seal(struct fq_segment *segment, int64_t last_retention_ms)
{
    struct fq_pfile *pf = &segment->file->pf;
    const struct fq_segment_seal seal = {segment->end_offset, segment->data_bytes,
                                         last_retention_ms};
    uint8_t bytes[FQ_SEG_SEAL_BYTES];
    fq_seal_encode(&segment->identity, &seal, bytes);
    int r = pf->persist->ops->write(pf, FQ_SEG_SEAL, bytes, sizeof bytes);
    pf->persist->ops->drain(pf->persist);
    return r < 0 ? r : fq_segment_set_state(segment, FQ_SEGMENT_SEALED);
}

int fq_segment_store_start(struct fq_segment *segment, int64_t start_offset)
{
    uint64_t delta = (uint64_t)(start_offset - segment->identity.base_offset);
    return store_word(segment, FQ_SEG_START, FQ_WORD_START, delta + 1);
}

int fq_segment_store_touched(struct fq_segment *segment, uint64_t position)
{
    struct fq_persist *persist = segment->file->pf.persist;
    persist->ops->drain(
        persist); /* when it is lowered: zeros that wiped a refused batch come first */
    int r = store_word(segment, FQ_SEG_TOUCHED, FQ_WORD_TOUCHED, position);
    persist->ops->drain(persist);
    segment->touched_bytes = position;
    return r;
}

int32_t fq_segment_epoch_at(const struct fq_segment *segment, int64_t offset)
{
    int32_t epoch = segment->identity.first_epoch;
    for (uint32_t i = 0; i < segment->epochs_count && segment->epochs[i].from_offset <= offset;
         i++) {
        epoch = segment->epochs[i].epoch;
    }
    return epoch;
}

int fq_segment_add_epoch(struct fq_segment *segment, int64_t from_offset, int32_t epoch)
{
    assert(segment->epochs_count < FQ_SEGMENT_EPOCHS);
    struct fq_pfile *pf = &segment->file->pf;
    const struct fq_segment_epoch entry = {from_offset, epoch};
    uint8_t bytes[FQ_SEG_EPOCH_BYTES];
    fq_epoch_encode(&segment->identity, &entry, bytes);
    uint64_t at = FQ_SEG_EPOCHS + segment->epochs_count * (uint64_t)FQ_SEG_EPOCH_BYTES;
    segment->epochs[segment->epochs_count++] = entry;
    int r = pf->persist->ops->word(pf, at, fq_load_le64(bytes));
    pf->persist->ops->drain(pf->persist);
    /* This word, which holds epoch and CRC, makes the entry exist. */
    return r < 0 ? r : pf->persist->ops->word(pf, at + 8, fq_load_le64(bytes + 8));
}

int fq_segment_drop_epochs(struct fq_segment *segment, int64_t from_offset)
{
    struct fq_pfile *pf = &segment->file->pf;
    int r = 0;
    while (r == 0 && segment->epochs_count > 0 &&
           segment->epochs[segment->epochs_count - 1].from_offset >= from_offset) {
        segment->epochs_count--;
        uint64_t at = FQ_SEG_EPOCHS + segment->epochs_count * (uint64_t)FQ_SEG_EPOCH_BYTES;
        r = pf->persist->ops->word(pf, at + 8, 0);
    }
    return r;
}

int fq_segment_zero(struct fq_segment *segment, uint64_t from, uint64_t to)
{
    static const uint8_t zeros[64u << 10];
    struct fq_pfile *pf = &segment->file->pf;
    int r = 0;
    while (r == 0 && from < to) {
        size_t piece = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        r = pf->persist->ops->write(pf, FQ_SEG_DATA + from, zeros, piece);
        from += piece;
    }
    return r;
}

void fq_segment_index_add(struct fq_segment *segment, int64_t base_offset, uint64_t position)
{
    bool begins_chunk =
        segment->index_count == 0 ||
        position / FQ_LIMIT_CHUNK_BYTES >
            segment->index[segment->index_count - 1].position / FQ_LIMIT_CHUNK_BYTES;
    if (begins_chunk && segment->index_count < segment->index_capacity) {
        segment->index[segment->index_count++] = (struct fq_index_entry){base_offset, position};
    }
}

/* --- as readers see it ----------------------------------------------------------------------- */

uint64_t fq_segment_id(const struct fq_segment *segment)
{
    return segment->id;
}

int64_t fq_segment_base_offset(const struct fq_segment *segment)
{
    return segment->identity.base_offset;
}

int64_t fq_segment_end_offset(const struct fq_segment *segment)
{
    return segment->end_offset;
}

bool fq_segment_is_sealed(const struct fq_segment *segment)
{
    return segment->state == FQ_SEGMENT_SEALED;
}

const uint8_t *fq_segment_data(struct fq_segment *segment)
{
    return fq_segment_map(segment, NULL) == 0 ? fq_segment_bytes(segment) : NULL;
}

uint64_t fq_segment_data_bytes(const struct fq_segment *segment)
{
    return segment->data_bytes;
}

uint64_t fq_segment_capacity(const struct fq_segment *segment)
{
    return segment->identity.file_bytes - FQ_SEG_DATA;
}

static void region_released(void *context)
{
    fq_segfile_unref(context);
}

struct fq_region *fq_segment_region(struct fq_segment *segment, struct fq_err *err)
{
    if (!segment->region && fq_segment_map(segment, err) == 0) {
        struct fq_segfile *file = fq_segfile_ref(segment->file);
        if (fq_region_wrap_file(file->pf.fd, file->pf.map, (size_t)file->pf.bytes, region_released,
                                file, &segment->region, err) < 0) {
            segment->region = NULL;
            fq_segfile_unref(file);
        } else if (!file->pf.persist->ops->needs_sync) {
            fq_region_allow_writing(segment->region); /* what is lent: log_lend.c */
        }
    }
    return segment->region;
}

void fq_segment_pin(struct fq_segment *segment)
{
    segment->pins++;
}

bool fq_segment_is_retired(const struct fq_segment *segment)
{
    return segment->is_retired;
}

void fq_segment_forbid_recycling(struct fq_segment *segment)
{
    segment->unlink_only = true;
}

void fq_segment_unpin(struct fq_segment *segment)
{
    assert(segment->pins > 0);
    if (--segment->pins > 0) {
        return;
    }
    if (!segment->log) {
        fq_segment_destroy(segment);
    } else if (segment->is_retired) {
        fq_log_retire_unpinned(segment);
    }
}
