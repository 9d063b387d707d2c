/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a partition's folder at recovery: which are segments of this log, which are unused,
 * which belong to somebody else. Reads headers only. Nothing is deleted: what holds no data goes to
 * the pool by the housekeeper, what is not ours to quarantine, what has another kind of name stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "storage/recovery_impl.h"

static bool is_zero(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static int read_header(const char *path, uint8_t header[FQ_SEG_DATA], uint64_t *ret_bytes,
                       struct fq_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t got = pread(fd, header, FQ_SEG_DATA, 0);
    int errnum = errno;
    (void)close(fd);
    if (got < 0) {
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "read %s", path);
    }
    memset(header + got, 0, FQ_SEG_DATA - (size_t)got);
    *ret_bytes = size > 0 ? (uint64_t)size : 0;
    return 0;
}

/* Where non-zero bytes end in [from, to). */
uint64_t fq_recovery_dirty_end(const struct fq_segment *segment, uint64_t from, uint64_t to)
{
    const uint8_t *data = fq_segment_bytes(segment);
    uint64_t at = to;
    while (at > from && at % 8 != 0 && data[at - 1] == 0) {
        at--;
    }
    while (at >= from + 8 && at % 8 == 0 && fq_load_le64(data + at - 8) == 0) {
        at -= 8;
    }
    while (at > from && data[at - 1] == 0) {
        at--;
    }
    return at;
}

/* Hands a file that holds no data of this log back to the pool. */
void fq_recovery_give_back(struct fq_log *log, struct fq_segment *segment)
{
    segment->log = NULL;
    segment->retire_job.run = fq_pool_retire;
    fq_store_give(log->store, &segment->retire_job);
}

static void load_epochs(struct fq_log *log, struct fq_found *f)
{
    struct fq_segment *segment = f->segment;
    for (unsigned i = 0; i < FQ_SEGMENT_EPOCHS; i++) {
        struct fq_segment_epoch epoch;
        enum fq_epoch_result r = fq_epoch_decode(
            &segment->identity, f->header + FQ_SEG_EPOCHS + i * FQ_SEG_EPOCH_BYTES, &epoch);
        if (r == FQ_EPOCH_NONE) {
            break;
        }
        if (r == FQ_EPOCH_DAMAGED) {
            fq_recovery_damage(log, segment, FQ_SEG_EPOCHS + i * FQ_SEG_EPOCH_BYTES,
                               FQ_SEG_EPOCH_BYTES, -1, -1, "an entry of the epoch table");
            segment->is_epochs_damaged = true;
            epoch = segment->epochs_count > 0
                        ? segment->epochs[segment->epochs_count - 1]
                        : (struct fq_segment_epoch){segment->identity.base_offset,
                                                    segment->identity.first_epoch};
        }
        segment->epochs[segment->epochs_count++] = epoch;
    }
}

/* Sorts one file into: another's (quarantine), unused (next, pool), a segment. */
static int classify(struct fq_recovery *r, struct fq_found *f, int64_t name_base, bool is_next_name)
{
    struct fq_log *log = r->log;
    struct fq_segment *segment = f->segment;
    struct fq_segment_identity identity;
    enum fq_identity_result result = fq_identity_decode(f->header, &identity);
    uint64_t file_bytes = segment->identity.file_bytes;
    enum fq_segment_state state = fq_state_read(fq_load_le64(f->header + FQ_SEG_STATE));
    if (result == FQ_IDENTITY_VERSION) {
        return fq_err_set(r->err, FLASHQ_ERR_VERSION, "%s has another media version",
                          segment->path);
    }
    /* PREPARED under a final name: the rename outlived the header. Nothing of it was acknowledged.
     */
    if (state == FQ_SEGMENT_FREE || state == FQ_SEGMENT_PREPARED) {
        segment->state = state;
        return 1;
    }
    f->identity_ok = result == FQ_IDENTITY_OK && identity.file_bytes == file_bytes &&
                     identity.base_offset >= 0 && identity.base_offset <= FQ_OFFSET_MAX;
    if (f->identity_ok && (memcmp(&identity.topic_id, &log->topic_id, sizeof log->topic_id) != 0 ||
                           identity.partition != log->partition)) {
        fq_recovery_damage(log, segment, 0, file_bytes, -1, -1,
                           "the file belongs to another partition");
        return 2;
    }
    if (!f->identity_ok) {
        fq_recovery_damage(log, segment, 0, FQ_SEG_IDENTITY_BYTES, -1, -1, "the segment's header");
        identity = (struct fq_segment_identity){.topic_id = log->topic_id,
                                                .partition = log->partition,
                                                .base_offset = name_base,
                                                .first_retention_ms = -1};
        identity.file_bytes = file_bytes;
    } else if (!is_next_name && name_base != identity.base_offset) {
        fq_recovery_damage(log, segment, 0, 0, -1, -1, "the file's name differs from its header");
    }
    segment->identity = identity;
    f->base_known = f->identity_ok || !is_next_name;
    if (state == FQ_SEGMENT_UNKNOWN) {
        fq_recovery_damage(log, segment, FQ_SEG_STATE, 8, -1, -1, "the state word");
        state = FQ_SEGMENT_OPEN;
    }
    segment->state = state;
    if (f->identity_ok) {
        load_epochs(log, f);
        f->seal_ok = state == FQ_SEGMENT_SEALED &&
                     fq_seal_decode(&segment->identity, f->header + FQ_SEG_SEAL, &f->seal) &&
                     f->seal.data_bytes <= fq_segment_capacity(segment);
        if (state == FQ_SEGMENT_SEALED && !f->seal_ok) {
            fq_recovery_damage(log, segment, FQ_SEG_SEAL, FQ_SEG_SEAL_BYTES, -1, -1, "the seal");
        }
        uint64_t start = fq_load_le64(f->header + FQ_SEG_START);
        if (start != 0 &&
            !fq_word_read(&segment->identity, FQ_WORD_START, start, &f->start_delta)) {
            fq_recovery_damage(log, segment, FQ_SEG_START, 8, -1, -1, "the word of the log start");
            f->start_delta = 0;
        }
    }
    return 0;
}

static int keep_found(struct fq_recovery *r, struct fq_found *f)
{
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        struct fq_found **grown = realloc(r->found, capacity * sizeof *grown);
        if (!grown) {
            return FLASHQ_ERR_NO_MEMORY;
        }
        r->found = grown;
        r->capacity = capacity;
    }
    r->found[r->count++] = f;
    return 0;
}

/* A segment whose header and name both say nothing: its first batch knows. */
static bool base_from_data(struct fq_found *f)
{
    struct fq_batch_header header;
    if (fq_segment_map(f->segment, NULL) < 0 ||
        fq_batch_header_read(fq_segment_bytes(f->segment), (size_t)fq_segment_capacity(f->segment),
                             &header, NULL) < 0 ||
        header.base_offset < 0 || header.base_offset > FQ_OFFSET_MAX) {
        return false;
    }
    f->segment->identity.base_offset = header.base_offset;
    return true;
}

bool fq_recovery_may_have_former(const struct fq_log *log)
{
    return !log->persist->ops->needs_sync && !log->shared->wants_zeros;
}

/* Has the life of a prepared file not begun? On memory the identity of a life is durable before its
 * first byte of data, so the header knows; on disks it need not be, so all of the file is read. */
static bool is_untouched(const struct fq_log *log, const struct fq_segment *segment,
                         const uint8_t header[FQ_SEG_DATA])
{
    struct fq_segment_identity identity;
    if (log->persist->ops->needs_sync) {
        return fq_recovery_dirty_end(segment, 0, fq_segment_capacity(segment)) == 0 &&
               is_zero(header + FQ_SEG_EPOCHS, FQ_SEG_DATA - FQ_SEG_EPOCHS);
    }
    return fq_identity_decode(header, &identity) == FQ_IDENTITY_OK && identity.base_offset < 0 &&
           identity.file_bytes == segment->identity.file_bytes &&
           is_zero(header + FQ_SEG_STATE + 8, FQ_SEG_DATA - FQ_SEG_STATE - 8);
}

/* A prepared file beside the log: ready to be used if its life never began, else for the pool to
 * zero. */
static int keep_unused(struct fq_recovery *r, struct fq_segment *segment,
                       const uint8_t header[FQ_SEG_DATA])
{
    struct fq_log *log = r->log;
    if (segment->state == FQ_SEGMENT_PREPARED && !log->next &&
        fq_segment_prepare_names(segment, log->shared->dir) == 0) {
        int result = fq_segment_map(segment, r->err);
        if (result < 0) {
            fq_segment_destroy(segment);
            return result;
        }
        if (is_untouched(log, segment, header)) {
            segment->has_former = fq_recovery_may_have_former(log);
            log->next = segment;
            return 0;
        }
    }
    fq_recovery_give_back(log, segment);
    return 0;
}

static int take_file(struct fq_recovery *r, const char *name)
{
    struct fq_log *log = r->log;
    int64_t base = -1;
    bool is_next = false;
    bool is_based = fq_segment_name_parse(name, &base, &is_next);
    if ((!is_based && !is_next) || base > FQ_OFFSET_MAX) {
        return 0; /* sidecars and what others put here: left alone */
    }
    struct fq_found *f = calloc(1, sizeof *f);
    char path[FQ_PATH_BYTES];
    uint64_t bytes = 0;
    if (!f) {
        return fq_err_set(r->err, FLASHQ_ERR_NO_MEMORY, "no memory for recovery");
    }
    (void)snprintf(path, sizeof path, "%s/%s", log->shared->dir, name);
    int result = read_header(path, f->header, &bytes, r->err);
    if (result == 0) {
        f->segment = fq_segment_create(log->store, bytes > FQ_SEG_DATA ? bytes : FQ_SEG_DATA);
        result = f->segment && (f->segment->path = strdup(path)) ? 0 : FLASHQ_ERR_NO_MEMORY;
    }
    if (result == 0 && bytes <= FQ_SEG_DATA) {
        fq_recovery_damage(log, f->segment, 0, bytes, -1, -1,
                           "the file is shorter than a segment's header");
        result = 2;
    } else if (result == 0) {
        f->segment->log = log;
        result = classify(r, f, base, is_next);
    }
    if (result == 0 && !f->base_known && !base_from_data(f)) {
        result = 2;
    }
    if (result == 0) {
        result = keep_found(r, f);
        if (result == 0) {
            return 0;
        }
    }
    if (result == 1) {
        result = keep_unused(r, f->segment, f->header);
        f->segment = NULL;
    } else if (result == 2) { /* data of somebody: never deleted */
        char relative[FQ_PATH_BYTES];
        size_t skip = strlen(fq_store_data_dir(log->store)) + 1;
        (void)snprintf(relative, sizeof relative, "%s", path + skip);
        result = fq_store_quarantine(log->store, relative, "not this partition's", NULL);
        result = 0;
    }
    fq_segment_destroy(f->segment);
    free(f);
    return result;
}

int fq_recovery_list(struct fq_recovery *r)
{
    DIR *folder = opendir(r->log->shared->dir);
    if (!folder) {
        return errno == ENOENT ? 0
                               : fq_err_errno(r->err, fq_err_from_errno(errno), errno, "open %s",
                                              r->log->shared->dir);
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(folder)) != NULL;) {
        result = take_file(r, entry->d_name);
    }
    (void)closedir(folder);
    return result;
}
