/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD: counts a process's allocations and system calls without slowing it down, as
 * tracing does, into the file FLASHQ_COUNT_FILE: two 64-bit numbers in the machine's order. System
 * calls are those made through the C library's functions below: all that the broker and the client
 * make on a data path, but for futex (the client's lock, when two threads want it).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static struct counts {
    _Atomic uint64_t allocations, calls;
} here, *counts = &here;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static void count(_Atomic uint64_t *counter)
{
    (void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FLASHQ_COUNT_FILE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && ftruncate(fd, sizeof here) == 0) {
        void *map = mmap(NULL, sizeof here, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counts = map == MAP_FAILED ? &here : map;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void *malloc(size_t bytes)
{
    count(&counts->allocations);
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    count(&counts->allocations);
    return __libc_calloc(number, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count(&counts->allocations);
    return __libc_realloc(old, bytes);
}

#define COUNTED(type, name, parameters, arguments)                                                 \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*real) parameters;                                                             \
        if (!real) {                                                                               \
            *(void **)(void *)&real = dlsym(RTLD_NEXT, #name);                                     \
        }                                                                                          \
        count(&counts->calls);                                                                     \
        return real arguments;                                                                     \
    }

COUNTED(int, epoll_wait, (int fd, struct epoll_event *events, int most, int timeout),
        (fd, events, most, timeout))
COUNTED(int, epoll_ctl, (int fd, int op, int other, struct epoll_event *event),
        (fd, op, other, event))
COUNTED(int, sched_yield, (void), ())
COUNTED(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes))
COUNTED(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes))
COUNTED(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at))
COUNTED(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
COUNTED(ssize_t, readv, (int fd, const struct iovec *to, int number), (fd, to, number))
COUNTED(ssize_t, writev, (int fd, const struct iovec *from, int number), (fd, from, number))
COUNTED(ssize_t, recv, (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags))
COUNTED(ssize_t, send, (int fd, const void *from, size_t bytes, int flags),
        (fd, from, bytes, flags))
COUNTED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
COUNTED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
COUNTED(void *, mmap, (void *at, size_t bytes, int rights, int flags, int fd, off_t from),
        (at, bytes, rights, flags, fd, from))
COUNTED(int, munmap, (void *at, size_t bytes), (at, bytes))
COUNTED(int, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))
COUNTED(int, msync, (void *at, size_t bytes, int flags), (at, bytes, flags))
COUNTED(int, fsync, (int fd), (fd))
COUNTED(int, fdatasync, (int fd), (fd))
COUNTED(int, rename, (const char *from, const char *to), (from, to))
COUNTED(int, unlink, (const char *path), (path))
COUNTED(int, close, (int fd), (fd))
