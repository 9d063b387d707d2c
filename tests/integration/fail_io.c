/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into flashqd by tests: once the file named by FLASHQ_FAIL_IO exists, every fdatasync,
 * fsync (content "sync") or pwrite (content "write") on files below data directories fails with EIO; or every
 * fdatasync takes 20 ms longer (content "slow").
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_failing(const char *what, int fd)
{
    const char *switch_path = getenv("FLASHQ_FAIL_IO");
    char content[16] = "", link[64], target[512] = "";
    if (!switch_path) {
        return 0;
    }
    int file = open(switch_path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    ssize_t got = read(file, content, sizeof content - 1);
    (void)close(file);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    return got > 0 && strncmp(content, what, strlen(what)) == 0 && length > 4 &&
           strcmp(target + length - 4, ".log") == 0;
}

int fdatasync(int fd) __attribute__((visibility("default")));
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) __attribute__((visibility("default")));
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) __attribute__((visibility("default")));

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    }
    if (is_failing("sync", fd)) {
        errno = EIO;
        return -1;
    }
    if (is_failing("slow", fd)) {
        (void)usleep(20000);
    }
    return real(fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    }
    if (is_failing("write", fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    return pwrite64(fd, bytes, length, at);
}
