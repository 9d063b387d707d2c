/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derived data beside a segment: `<base offset>.<suffix>`. Written by the housekeeper (temporary
 * name, then rename; no sync: whoever reads it checks it and can make it anew), removed with its
 * segment.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "storage/log_impl.h"

#define SIDECAR_BYTES_MAX (1u << 30)

struct sidecar_job {
    struct fq_job job;
    char *path;
    size_t length;
    uint8_t bytes[];
};

static char *sidecar_path(const struct fq_log *log, const struct fq_segment *segment,
                          const char *suffix)
{
    size_t room = strlen(log->shared->dir) + strlen(suffix) + 32;
    char *path = malloc(room);
    if (path) {
        (void)snprintf(path, room, "%s/%020lld.%s", log->shared->dir,
                       (long long)segment->identity.base_offset, suffix);
    }
    return path;
}

static int write_whole(struct fq_persist *persist, const char *path, const uint8_t *bytes,
                       size_t length)
{
    struct fq_pfile pf;
    (void)persist->ops->unlink(persist, path, NULL);
    int r = persist->ops->create(persist, path, length, &pf, NULL);
    if (r == 0) {
        r = persist->ops->write(&pf, 0, bytes, length);
        persist->ops->close(&pf);
    }
    return r;
}

static bool run_sidecar(struct fq_store *store, struct fq_job *job)
{
    struct sidecar_job *sidecar = (struct sidecar_job *)job; /* the job is its first member */
    char temporary[FQ_PATH_BYTES];
    struct fq_persist *persist = store->persist;
    (void)snprintf(temporary, sizeof temporary, "%s.tmp", sidecar->path);
    int r = store->is_abandoned ? FLASHQ_ERR_CLOSED
                                : write_whole(persist, temporary, sidecar->bytes, sidecar->length);
    if (r == 0) {
        r = persist->ops->rename(persist, temporary, sidecar->path, NULL);
    }
    if (r < 0 && r != FLASHQ_ERR_CLOSED) {
        (void)persist->ops->unlink(persist, temporary, NULL);
        fq_debug("%s not written: %s", sidecar->path, fq_err_describe(r));
    }
    free(sidecar->path);
    free(sidecar);
    return true;
}

int fq_log_write_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix,
                         const void *bytes, size_t length)
{
    if (length == 0) {
        return FLASHQ_ERR_INVALID;
    }
    struct sidecar_job *job = length <= SIDECAR_BYTES_MAX ? malloc(sizeof *job + length) : NULL;
    if (!job) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    job->path = sidecar_path(log, segment, suffix);
    if (!job->path) {
        free(job);
        return FLASHQ_ERR_NO_MEMORY;
    }
    job->job.run = run_sidecar;
    job->length = length;
    memcpy(job->bytes, bytes, length);
    fq_store_give(log->store, &job->job);
    return 0;
}

int fq_log_remove_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix)
{
    char *path = sidecar_path(log, segment, suffix);
    if (!path) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    int r = 0;
    if (access(path, F_OK) == 0) {
        r = log->persist->ops->unlink(log->persist, path, NULL);
        r = r < 0 ? r : log->persist->ops->sync_dir(log->persist, log->shared->dir, NULL);
    }
    free(path);
    return r;
}

int fq_log_read_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix,
                        void **ret, size_t *ret_length)
{
    char *path = sidecar_path(log, segment, suffix);
    if (!path) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int r = fd < 0 ? fq_err_from_errno(errno) : 0;
    free(path);
    struct stat st;
    uint8_t *bytes = NULL;
    size_t length = 0;
    if (r == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > SIDECAR_BYTES_MAX)) {
        r = FLASHQ_ERR_IO;
    }
    if (r == 0) {
        length = (size_t)st.st_size;
        bytes = malloc(length > 0 ? length : 1);
        r = !bytes                                           ? FLASHQ_ERR_NO_MEMORY
            : pread(fd, bytes, length, 0) != (ssize_t)length ? FLASHQ_ERR_IO
                                                             : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (r < 0) {
        free(bytes);
        return r;
    }
    *ret = bytes;
    *ret_length = length;
    return 0;
}
