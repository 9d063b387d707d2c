/* SPDX-License-Identifier: Apache-2.0 */
/* File system calls with FlashQ's errors; see persist_files.h. Any thread; all may block. */
#include "storage/persist_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int fq_file_create_allocated(const char *path, uint64_t bytes, int *ret_fd, struct fq_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "create %s", path);
    }
    int errnum = posix_fallocate(fd, 0, (off_t)bytes);
    if (errnum != 0) {
        (void)close(fd);
        (void)unlink(path);
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "allocate %llu bytes for %s",
                            (unsigned long long)bytes, path);
    }
    *ret_fd = fd;
    return 0;
}

int fq_file_create_sparse(const char *path, uint64_t bytes, int *ret_fd, struct fq_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "create %s", path);
    }
    if (ftruncate(fd, (off_t)bytes) < 0) {
        int errnum = errno;
        (void)close(fd);
        (void)unlink(path);
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "size %s", path);
    }
    *ret_fd = fd;
    return 0;
}

int fq_file_allocate(int fd, uint64_t from, uint64_t to, struct fq_err *err)
{
    int errnum = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
    return errnum == 0 ? 0
                       : fq_err_errno(err, fq_err_from_errno(errnum), errnum, "allocate %llu bytes",
                                      (unsigned long long)(to - from));
}

int fq_file_open_whole(const char *path, int *ret_fd, uint64_t *ret_bytes, struct fq_err *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    if (fstat(fd, &st) < 0) {
        int errnum = errno;
        (void)close(fd);
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "stat %s", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_size <= 0) {
        (void)close(fd);
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s is %s", path,
                          S_ISREG(st.st_mode) ? "empty" : "not a file");
    }
    *ret_fd = fd;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

void fq_file_unmap_close(struct fq_pfile *f)
{
    if (f->map) {
        (void)munmap((void *)(uintptr_t)f->map, (size_t)f->bytes);
        f->map = NULL;
    }
    if (f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
    }
}

int fq_file_rename(struct fq_persist *p, const char *from, const char *to, struct fq_err *err)
{
    (void)p;
    if (rename(from, to) < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "rename %.200s to %.200s", from,
                            to);
    }
    return 0;
}

int fq_file_unlink(struct fq_persist *p, const char *path, struct fq_err *err)
{
    (void)p;
    if (unlink(path) < 0 && errno != ENOENT) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "unlink %s", path);
    }
    return 0;
}

int fq_file_mkdir(struct fq_persist *p, const char *path, struct fq_err *err)
{
    (void)p;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "make folder %s", path);
    }
    return 0;
}

int fq_file_sync_dir(struct fq_persist *p, const char *dir, struct fq_err *err)
{
    (void)p;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open folder %s", dir);
    }
    if (fsync(fd) < 0) {
        int errnum = errno;
        (void)close(fd);
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "sync folder %s", dir);
    }
    (void)close(fd);
    return 0;
}
