/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persist ops for disks: pwrite into blocks that were written before, fdatasync by the flusher,
 * a read-only mapping for reading (a store through a mapping would fault on every page after each
 * writeback). An error of write or sync is final for the caller: the kernel may have dropped the
 * pages, so nothing here tries again.
 *
 * Files are fully allocated and zero-written when they are made: a full disk shows there, never as
 * SIGBUS or ENOSPC in the middle of a log.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "storage/persist.h"
#include "storage/persist_files.h"

#define ZERO_BLOCK_BYTES (256u << 10)
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; glibc names it since 2.35 */
#endif

static int write_all(int fd, uint64_t pos, const uint8_t *src, size_t len)
{
    while (len > 0) {
        ssize_t wrote = pwrite(fd, src, len, (off_t)pos);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return fq_err_from_errno(wrote < 0 ? errno : ENOSPC);
        }
        pos += (uint64_t)wrote;
        src += wrote;
        len -= (size_t)wrote;
    }
    return 0;
}

static int write_zeros(int fd, uint64_t pos, uint64_t to)
{
    static const uint8_t zeros[ZERO_BLOCK_BYTES];
    while (pos < to) {
        size_t piece = to - pos < sizeof zeros ? (size_t)(to - pos) : sizeof zeros;
        int r = write_all(fd, pos, zeros, piece);
        if (r < 0) {
            return r;
        }
        pos += piece;
    }
    return 0;
}

static int map_for_reading(const char *path, struct fq_pfile *f, int flags, struct fq_err *err)
{
    void *map = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_SHARED | flags, f->fd, 0);
    if (map == MAP_FAILED) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "map %s", path);
    }
    f->map = map;
    return 0;
}

static int sync_create(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                       struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1, .bytes = bytes};
    int r = fq_file_create_allocated(path, bytes, &f.fd, err);
    if (r < 0) {
        return r;
    }
    r = write_zeros(f.fd, 0, bytes);
    if (r < 0) {
        (void)fq_err_set(err, r, "write %s: %s", path, fq_err_describe(r));
    } else {
        r = map_for_reading(path, &f, MAP_POPULATE, err);
    }
    if (r < 0) {
        (void)close(f.fd);
        (void)unlink(path);
        return r;
    }
    *ret = f;
    return 0;
}

static int sync_begin_file(struct fq_persist *p, const char *path, uint64_t bytes,
                           struct fq_pfile *ret, struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1, .bytes = bytes};
    int r = fq_file_create_sparse(path, bytes, &f.fd, err);
    if (r < 0) {
        return r;
    }
    r = map_for_reading(path, &f, 0, err);
    if (r < 0) {
        (void)close(f.fd);
        (void)unlink(path);
        return r;
    }
    *ret = f;
    return 0;
}

static int sync_grow(struct fq_pfile *f, uint64_t from, uint64_t to, struct fq_err *err)
{
    int r = fq_file_allocate(f->fd, from, to, err);
    if (r == 0) {
        r = write_zeros(f->fd, from, to);
        if (r < 0) {
            (void)fq_err_set(err, r, "write zeros: %s", fq_err_describe(r));
        }
    }
    if (r == 0) { /* for reading; only a hint */
        (void)madvise((uint8_t *)(uintptr_t)f->map + from, (size_t)(to - from), MADV_POPULATE_READ);
    }
    return r;
}

static int sync_open(struct fq_persist *p, const char *path, struct fq_pfile *ret,
                     struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1};
    int r = fq_file_open_whole(path, &f.fd, &f.bytes, err);
    if (r < 0) {
        return r;
    }
    r = map_for_reading(path, &f, 0, err);
    if (r < 0) {
        (void)close(f.fd);
        return r;
    }
    *ret = f;
    return 0;
}

static void sync_close(struct fq_pfile *f)
{
    fq_file_unmap_close(f);
}

static int sync_write(struct fq_pfile *f, uint64_t pos, const void *src, size_t len)
{
    return write_all(f->fd, pos, src, len);
}

static int sync_word(struct fq_pfile *f, uint64_t pos, uint64_t value)
{
    uint8_t bytes[8];
    fq_store_le64(bytes, value);
    return write_all(f->fd, pos, bytes, sizeof bytes);
}

static void sync_drain(struct fq_persist *p)
{
    (void)p;
}

static int sync_sync(struct fq_pfile *f)
{
    return fdatasync(f->fd) == 0 ? 0 : fq_err_from_errno(errno);
}

static void sync_begin(struct fq_pfile *f)
{
    (void)!sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static void sync_destroy(struct fq_persist *p)
{
    free(p);
}

static const struct fq_persist_ops sync_ops = {
    .name = "sync",
    .needs_sync = true,
    .create = sync_create,
    .begin = sync_begin_file,
    .grow = sync_grow,
    .open = sync_open,
    .close = sync_close,
    .rename = fq_file_rename,
    .unlink = fq_file_unlink,
    .mkdir = fq_file_mkdir,
    .sync_dir = fq_file_sync_dir,
    .write = sync_write,
    .word = sync_word,
    .drain = sync_drain,
    .sync = sync_sync,
    .begin_sync = sync_begin,
    .destroy = sync_destroy,
};

int fq_persist_sync_create(struct fq_persist **ret)
{
    struct fq_persist *p = calloc(1, sizeof *p);
    if (!p) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    p->ops = &sync_ops;
    *ret = p;
    return 0;
}
