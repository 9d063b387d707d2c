/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: memory that peers may be granted windows on. Happy path: memfd, full allocation, one or
 * two mappings in a row, seals; the last reference unmaps. On failure nothing is left. Any thread
 * may ref and unref; creation blocks while pages are faulted in.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/backend.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define REGION_BYTES_MAX (UINT64_C(1) << 46)

static size_t round_to_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

int fq_memfd_create(size_t bytes, bool is_allocated, struct fq_err *err)
{
    int fd = memfd_create("flashq", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) { /* before Linux 6.3 */
        fd = memfd_create("flashq", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "shared memory");
    }
    int r;
    do {
        r = is_allocated ? fallocate(fd, 0, 0, (off_t)bytes) : ftruncate(fd, (off_t)bytes);
    } while (r < 0 && errno == EINTR);
    if (r < 0) {
        int code =
            fq_err_errno(err, errno == ENOSPC ? FLASHQ_ERR_NO_MEMORY : fq_err_from_errno(errno),
                         errno, "shared memory of %zu bytes", bytes);
        close(fd);
        return code;
    }
    return fd;
}

/* Maps `fd` (or anonymous memory) `times` times in a row; MAP_FAILED with errno. */
static uint8_t *map_in_a_row(int fd, size_t bytes, unsigned times)
{
    if (times == 1) {
        int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
    }
    uint8_t *base = mmap(NULL, times * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; base != MAP_FAILED && i < times; i++) {
        if (mmap(base + i * bytes, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED) {
            int saved = errno;
            munmap(base, times * bytes);
            errno = saved;
            base = MAP_FAILED;
        }
    }
    return base;
}

static unsigned mappings_of(unsigned flags)
{
    return flags & FQ_REGION_MIRRORED ? 2 : 1;
}

static int map_and_seal(struct fq_region *region, struct fq_err *err)
{
    uint8_t *base = map_in_a_row(region->fd, region->bytes, mappings_of(region->flags));
    if (base == MAP_FAILED) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "map %zu bytes", region->bytes);
    }
    region->base = base;
    if (region->fd < 0) {
        return 0;
    }
    int seals = FQ_MEMFD_SEALS;
    if (region->flags & FQ_REGION_PEER_READS) {
        seals |=
            F_SEAL_FUTURE_WRITE; /* after our own mapping: from now on nobody maps it writable */
    }
    if (fcntl(region->fd, F_ADD_SEALS, seals) < 0) {
        int code = fq_err_errno(err, FLASHQ_ERR_UNSUPPORTED, errno, "seal shared memory");
        munmap(base, mappings_of(region->flags) * region->bytes);
        region->base = NULL;
        return code;
    }
    return 0;
}

int fq_region_create(size_t bytes, unsigned flags, struct fq_region **ret, struct fq_err *err)
{
    const unsigned known = FQ_REGION_MIRRORED | FQ_REGION_PEER_READS | FQ_REGION_LOCAL;
    if (!ret || bytes == 0 || bytes > REGION_BYTES_MAX || (flags & ~known)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "region of %zu bytes, flags %#x", bytes, flags);
    }
    struct fq_region *region = calloc(1, sizeof *region);
    if (!region) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "region");
    }
    region->bytes = round_to_pages(bytes);
    region->flags = flags;
    region->fd = -1;
    atomic_init(&region->refs, 1);
    int r = 0;
    if (!(flags & FQ_REGION_LOCAL) || (flags & FQ_REGION_MIRRORED)) {
        region->fd = fq_memfd_create(region->bytes, true, err);
        r = region->fd < 0 ? region->fd : 0;
    }
    if (r == 0) {
        r = map_and_seal(region, err);
    }
    if (r < 0) {
        if (region->fd >= 0) {
            close(region->fd);
        }
        free(region);
        return r;
    }
    *ret = region;
    return 0;
}

int fq_region_wrap_file(int fd, const void *base, size_t bytes, void (*release)(void *context),
                        void *context, struct fq_region **ret, struct fq_err *err)
{
    if (!ret || fd < 0 || !base || bytes == 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "file region of %zu bytes", bytes);
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return fq_err_errno(err, FLASHQ_ERR_IO, errno, "file region");
    }
    if (st.st_size < 0 || (uint64_t)st.st_size < bytes) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "file of %lld bytes wrapped as %zu",
                          (long long)st.st_size, bytes);
    }
    struct fq_region *region = calloc(1, sizeof *region);
    if (!region) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "region");
    }
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    region->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (region->fd < 0) {
        int code = fq_err_errno(err, fq_err_from_errno(errno), errno, "reopen a file read-only");
        free(region);
        return code;
    }
    region->base = (uint8_t *)(uintptr_t)base; /* stored to if fq_region_allow_writing says so */
    region->bytes = bytes;
    region->flags = FQ_REGION_PEER_READS;
    region->is_file = true;
    region->release = release;
    region->context = context;
    atomic_init(&region->refs, 1);
    *ret = region;
    return 0;
}

void fq_region_allow_writing(struct fq_region *region)
{
    region->is_file_writable = region->is_file;
}

void *fq_region_base(struct fq_region *region)
{
    return region->base;
}

size_t fq_region_bytes(const struct fq_region *region)
{
    return region->bytes;
}

struct fq_region *fq_region_ref(struct fq_region *region)
{
    if (region) {
        atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
    }
    return region;
}

void fq_region_unref(struct fq_region *region)
{
    /* The release half orders our accesses before, the acquire half (of the last) after the
     * others'. */
    if (!region || atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (!region->is_file) {
        munmap(region->base, mappings_of(region->flags) * region->bytes);
    }
    if (region->fd >= 0) {
        close(region->fd);
    }
    if (region->release) {
        region->release(region->context);
    }
    free(region);
}
