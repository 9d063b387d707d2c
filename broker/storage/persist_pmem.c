/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persist ops for memory that keeps its content: stores go to the shared mapping by libpmem's
 * non-temporal copies, write-back and fence. On a DAX file system the mapping is the medium
 * (MAP_SYNC makes even the file's block map durable before a store). Elsewhere (tmpfs, a page
 * cache) the same instructions run, and what they promise is only what that memory promises: the
 * store says so.
 *
 * Nothing here fails once a file is mapped: the bytes are allocated, so no store can hit a hole.
 */
#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "storage/persist.h"
#include "storage/persist_files.h"

#define PROBE_BYTES        4096u
#define PAGE_BYTES         4096u
#define FAULT_BYTES        (4u << 20)
#define LINE_BYTES         64u
#define STREAM_BLOCK_BYTES 4096u
#define STREAM_BYTES_MIN   512u /* below it whole lines gain nothing */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; glibc names it since 2.35 */
#endif

static uint8_t *writable(const struct fq_pfile *f, uint64_t pos)
{
    return (uint8_t *)(uintptr_t)f->map + pos;
}

static int map_for_storing(const char *path, struct fq_pfile *f, struct fq_err *err)
{
    void *map = mmap(NULL, (size_t)f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC,
                     f->fd, 0);
    if (map == MAP_FAILED) { /* not DAX */
        map = mmap(NULL, (size_t)f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    }
    if (map == MAP_FAILED) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "map %s", path);
    }
    f->map = map;
    return 0;
}

/* Faulting a page in for storing makes the file system zero it. (MAP_POPULATE would only read, and
 * on DAX the first store would fault again.) */
static void make_pages(const struct fq_pfile *f, uint64_t from, uint64_t to)
{
    if (madvise(writable(f, from), (size_t)(to - from), MADV_POPULATE_WRITE) < 0) {
        pmem_memset(writable(f, from), 0, (size_t)(to - from), PMEM_F_MEM_NONTEMPORAL);
    }
}

static int pmem_create(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                       struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1, .bytes = bytes};
    int r = fq_file_create_allocated(path, bytes, &f.fd, err);
    if (r < 0) {
        return r;
    }
    r = map_for_storing(path, &f, err);
    if (r < 0) {
        (void)close(f.fd);
        (void)unlink(path);
        return r;
    }
    make_pages(&f, 0, bytes);
    *ret = f;
    return 0;
}

static int pmem_begin(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                      struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1, .bytes = bytes};
    int r = fq_file_create_sparse(path, bytes, &f.fd, err);
    if (r < 0) {
        return r;
    }
    r = map_for_storing(path, &f, err);
    if (r < 0) {
        (void)close(f.fd);
        (void)unlink(path);
        return r;
    }
    *ret = f;
    return 0;
}

static int pmem_grow(struct fq_pfile *f, uint64_t from, uint64_t to, struct fq_err *err)
{
    int r = fq_file_allocate(f->fd, from, to, err);
    if (r == 0) {
        make_pages(f, from, to);
    }
    return r;
}

static int pmem_open(struct fq_persist *p, const char *path, struct fq_pfile *ret,
                     struct fq_err *err)
{
    struct fq_pfile f = {.persist = p, .fd = -1};
    int r = fq_file_open_whole(path, &f.fd, &f.bytes, err);
    if (r < 0) {
        return r;
    }
    r = map_for_storing(path, &f, err);
    if (r < 0) {
        (void)close(f.fd);
        return r;
    }
    *ret = f;
    return 0;
}

/* In pieces, so that a thread that needs the address space for a moment gets it. */
static void pmem_fault_in(struct fq_pfile *f, uint64_t from, uint64_t to)
{
    from -= from % PAGE_BYTES;
    while (from < to) {
        size_t piece = to - from < FAULT_BYTES ? (size_t)(to - from) : FAULT_BYTES;
        if (madvise(writable(f, from), piece, MADV_POPULATE_WRITE) < 0) {
            return; /* an old kernel: appends fault */
        }
        from += piece;
    }
}

static void pmem_close(struct fq_pfile *f)
{
    fq_file_unmap_close(f);
}

static int pmem_write(struct fq_pfile *f, uint64_t pos, const void *src, size_t len)
{
    pmem_memcpy(writable(f, pos), src, len,
                PMEM_F_MEM_NODRAIN | (len >= 256 ? PMEM_F_MEM_NONTEMPORAL : 0u));
    return 0;
}

/* A line is written back once, by whoever stores to it last: a store to a line that is on its way waits until it is
 * there. */
static uint32_t stream_end(struct fq_pfile *f, uint64_t pos, uint8_t *copy, const uint8_t *src,
                           size_t len, uint32_t crc)
{
    crc = fq_crc32c_copy(crc, copy, src, len);
    memcpy(writable(f, pos), copy, len);
    return crc;
}

/* For what is too short for whole lines, and where the CPU cannot do it in one go: the block that
 * was copied is still in the first-level cache. */
static uint32_t stream_blocks(struct fq_pfile *f, uint64_t pos, uint8_t *copy, const uint8_t *src,
                              size_t len, uint32_t crc)
{
    for (size_t piece; len > 0; pos += piece, copy += piece, src += piece, len -= piece) {
        piece = len < STREAM_BLOCK_BYTES ? len : STREAM_BLOCK_BYTES;
        crc = fq_crc32c_copy(crc, copy, src, piece);
        (void)pmem_write(f, pos, copy, piece);
    }
    return crc;
}

/* Non-temporal stores beat cached ones with a write-back of each line by 4 to 1 here (40 against 10
 * GB/s): they do not fetch what they overwrite. The ends, which share a line with a neighbour, are
 * stored and written back. */
static int pmem_stream(struct fq_pfile *f, uint64_t pos, void *copy, const void *src, size_t len,
                       uint32_t *inout_crc)
{
    uint8_t *to = copy;
    const uint8_t *from = src;
    size_t head = (size_t)(-(uintptr_t)writable(f, pos) % LINE_BYTES);
    head = head < len ? head : len;
    size_t lines = (len - head) / LINE_BYTES * LINE_BYTES;
    size_t end = head + lines;
    uint32_t crc = stream_end(f, pos, to, from, head, *inout_crc);
    if (lines < STREAM_BYTES_MIN || !fq_crc32c_can_stream()) {
        crc = stream_blocks(f, pos + head, to + head, from + head, lines, crc);
    } else {
        crc = fq_crc32c_stream(crc, to + head, writable(f, pos + head), from + head, lines);
    }
    *inout_crc = stream_end(f, pos + end, to + end, from + end, len - end, crc);
    return 0;
}

static int pmem_write_back(struct fq_pfile *f, uint64_t pos, uint64_t len)
{
    pmem_flush(writable(f, pos), (size_t)len);
    return 0;
}

static int pmem_word(struct fq_pfile *f, uint64_t pos, uint64_t value)
{
    /* Pairs with the acquire of readers in other processes; one aligned store cannot tear. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)writable(f, pos), value,
                          memory_order_release);
    pmem_flush(writable(f, pos), sizeof value);
    return 0;
}

static int pmem_words(struct fq_pfile *f, const uint64_t pos[2], const uint64_t values[2])
{
    for (int i = 0; i < 2; i++) { /* as pmem_word; stores to one line become durable in their order */
        atomic_store_explicit((_Atomic uint64_t *)(void *)writable(f, pos[i]), values[i],
                              memory_order_release);
    }
    pmem_flush(writable(f, pos[0] - pos[0] % LINE_BYTES), LINE_BYTES);
    return 0;
}

static void drain(struct fq_persist *p)
{
    (void)p;
    pmem_drain();
}

static int pmem_sync(struct fq_pfile *f)
{
    (void)f;
    pmem_drain();
    return 0;
}

static void pmem_destroy(struct fq_persist *p)
{
    free(p);
}

static const struct fq_persist_ops pmem_ops = {
    .name = "pmem",
    .needs_sync = false,
    .create = pmem_create,
    .begin = pmem_begin,
    .grow = pmem_grow,
    .open = pmem_open,
    .fault_in = pmem_fault_in,
    .close = pmem_close,
    .rename = fq_file_rename,
    .unlink = fq_file_unlink,
    .mkdir = fq_file_mkdir,
    .sync_dir = fq_file_sync_dir,
    .write = pmem_write,
    .word = pmem_word,
    .words = pmem_words,
    .stream = pmem_stream,
    .write_back = pmem_write_back,
    .drain = drain,
    .sync = pmem_sync,
    .destroy = pmem_destroy,
};

int fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *err)
{
    struct fq_persist *p = calloc(1, sizeof *p);
    if (!p) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory");
    }
    p->ops = &pmem_ops;
    *ret = p;
    return 0;
}

int fq_persist_pmem_probe(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/probe.tmp", dir) >= (int)sizeof path) {
        return 0;
    }
    /* A file of an earlier start does as well, and needs no free byte. */
    char version[4096];
    size_t mapped = 0;
    int is_pmem = 0;
    (void)snprintf(version, sizeof version, "%s/version", dir);
    void *map = pmem_map_file(version, 0, 0, 0, &mapped, &is_pmem);
    if (!map) {
        map = pmem_map_file(path, PROBE_BYTES, PMEM_FILE_CREATE, 0600, &mapped, &is_pmem);
        (void)unlink(path);
    }
    if (map) {
        (void)pmem_unmap(map, mapped);
    }
    return map && is_pmem ? 1 : 0;
}
