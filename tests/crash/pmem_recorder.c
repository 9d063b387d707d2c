/* SPDX-License-Identifier: Apache-2.0 */
#include "pmem_recorder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS_PER_LINE = 8, WORDS_PER_PAGE = 512, POINTS_MAX = 20000, WORDS_MAX = 4000000 };

/* libpmem's flags (libpmem.h, PMEM_F_MEM_...). */
enum { F_NODRAIN = 1, F_NOFLUSH = 1 << 5 };

struct shared {
    bool is_on, has_base_image;
    int tag;
    size_t points_count, words_count;
    size_t settled_from;            /* words that settled since the last point begin here */
    struct recorded_point points[POINTS_MAX];
    struct recorded_word words[WORDS_MAX];
};

static struct shared *shared;
static uint64_t *settled;           /* the medium, for sure */
static uint64_t *flushed;           /* lines as they were when flushed; settle at the next fence */
static uint64_t *first_image;
static uint32_t *flushed_lines;
static size_t flushed_count;
static size_t words_total;
static bool says_pmem;
static const uint64_t *pool;        /* where it is mapped in this process */

#define EXPORT __attribute__((visibility("default")))

static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        abort();
    }
    return memory;
}

void recorder_init(size_t pool_bytes, bool is_pmem)
{
    if (!shared) {
        words_total = pool_bytes / sizeof(uint64_t);
        shared = shared_memory(sizeof *shared);
        settled = shared_memory(pool_bytes);
        flushed = shared_memory(pool_bytes);
        first_image = shared_memory(pool_bytes);
        flushed_lines = shared_memory(pool_bytes / 64 * sizeof *flushed_lines);
    }
    says_pmem = is_pmem;
}

static void settle(const uint64_t *source, size_t from, size_t count);

/* A mapping is new: what it holds is what the medium has. */
static void take_image(void)
{
    if (shared->has_base_image) {
        settle(pool, 0, words_total);
    } else {
        memcpy(settled, pool, words_total * sizeof *settled);
        memcpy(first_image, settled, words_total * sizeof *settled);
        shared->has_base_image = true;
    }
    flushed_count = 0;
}

void recorder_start(void)
{
    shared->points_count = 0;
    shared->words_count = 0;
    shared->settled_from = 0;
    shared->has_base_image = false;
    shared->is_on = true;
    if (pool) {
        take_image();
    }
}

void recorder_stop(void)
{
    shared->is_on = false;
    pool = NULL;
}

void recorder_tag(int tag)
{
    shared->tag = tag;
}

static void point(void);
static bool is_recording(void);

void recorder_mark_point(void)
{
    if (is_recording()) {
        point();
    }
}

size_t recorder_words_count(void)
{
    return shared->words_count;
}

size_t recorder_points_count(void)
{
    return shared->points_count;
}

const struct recorded_point *recorder_point(size_t index)
{
    return &shared->points[index];
}

const struct recorded_word *recorder_words(size_t from)
{
    return &shared->words[from];
}

const uint64_t *recorder_first_image(void)
{
    return first_image;
}

/* ---- the model ------------------------------------------------------------------------------ */

static void note_word(size_t index, uint64_t value)
{
    if (shared->words_count == WORDS_MAX) {
        fprintf(stderr, "recorder: too many words\n");
        abort();
    }
    shared->words[shared->words_count++] =
        (struct recorded_word){.index = (uint32_t)index, .value = value};
}

/* Words [from, from + count) reach the medium with the values in `source`. */
static void settle(const uint64_t *source, size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++) {
        if (settled[i] != source[i]) {
            settled[i] = source[i];
            note_word(i, source[i]);
        }
    }
}

static bool is_recording(void)
{
    return shared && shared->is_on && pool;
}

static void point(void)
{
    if (shared->points_count == POINTS_MAX) {
        fprintf(stderr, "recorder: too many points\n");
        abort();
    }
    struct recorded_point *p = &shared->points[shared->points_count];
    p->settled_from = shared->settled_from;
    p->settled_count = shared->words_count - p->settled_from;
    p->pending_from = shared->words_count;
    p->tag = shared->tag;
    for (size_t page = 0; page < words_total; page += WORDS_PER_PAGE) {
        if (memcmp(pool + page, settled + page, WORDS_PER_PAGE * sizeof *pool) == 0) {
            continue;
        }
        for (size_t i = page; i < page + WORDS_PER_PAGE; i++) {
            if (pool[i] != settled[i]) {
                note_word(i, pool[i]);
            }
        }
    }
    p->pending_count = shared->words_count - p->pending_from;
    shared->settled_from = shared->words_count;
    shared->points_count++;
}

/* false: not the pool's. Rounds to units of `unit` words. */
static bool range_of(const void *addr, size_t length, size_t unit, size_t *ret_from, size_t *ret_count)
{
    uintptr_t start = (uintptr_t)pool, at = (uintptr_t)addr;
    if (at < start || at >= start + words_total * sizeof *pool || length == 0) {
        return false;
    }
    size_t from = (at - start) / sizeof *pool / unit * unit;
    size_t end = ((at - start + length - 1) / sizeof *pool / unit + 1) * unit;
    *ret_from = from;
    *ret_count = (end < words_total ? end : words_total) - from;
    return true;
}

static void flush_lines(const void *addr, size_t length)
{
    size_t from, count;
    if (!range_of(addr, length, WORDS_PER_LINE, &from, &count)) {
        return;
    }
    point();
    for (size_t word = from; word < from + count; word += WORDS_PER_LINE) {
        memcpy(flushed + word, pool + word, WORDS_PER_LINE * sizeof *pool);
        if (flushed_count < words_total / WORDS_PER_LINE) {
            flushed_lines[flushed_count++] = (uint32_t)(word / WORDS_PER_LINE);
        } else {
            abort();
        }
    }
}

static void fence(void)
{
    point();
    for (size_t i = 0; i < flushed_count; i++) {
        settle(flushed, (size_t)flushed_lines[i] * WORDS_PER_LINE, WORDS_PER_LINE);
    }
    flushed_count = 0;
}

/* ---- libpmem's symbols ---------------------------------------------------------------------- */

EXPORT int pmem_is_pmem(const void *addr, size_t length);
EXPORT void pmem_flush(const void *addr, size_t length);
EXPORT void pmem_drain(void);
EXPORT void pmem_persist(const void *addr, size_t length);
EXPORT int pmem_msync(const void *addr, size_t length);
EXPORT int pmem_deep_flush(const void *addr, size_t length);
EXPORT void *pmem_memcpy(void *to, const void *from, size_t length, unsigned flags);
EXPORT void *pmem_memmove(void *to, const void *from, size_t length, unsigned flags);
EXPORT void *pmem_memset(void *to, int byte, size_t length, unsigned flags);

int pmem_is_pmem(const void *addr, size_t length)
{
    if (shared && length >= words_total * sizeof *pool) {
        pool = addr;
        if (shared->is_on) {
            take_image();
        }
    }
    return says_pmem;
}

void pmem_flush(const void *addr, size_t length)
{
    if (is_recording()) {
        flush_lines(addr, length);
    }
}

void pmem_drain(void)
{
    if (is_recording()) {
        fence();
    }
}

void pmem_persist(const void *addr, size_t length)
{
    if (is_recording()) {
        flush_lines(addr, length);
        fence();
    }
}

int pmem_msync(const void *addr, size_t length)
{
    size_t from, count;
    if (is_recording() && range_of(addr, length, WORDS_PER_PAGE, &from, &count)) {
        point();
        settle(pool, from, count);
    }
    return 0;
}

int pmem_deep_flush(const void *addr, size_t length)
{
    pmem_flush(addr, length);
    return 0;
}

static void *finish(void *to, size_t length, unsigned flags)
{
    if (is_recording() && !(flags & F_NOFLUSH)) {
        flush_lines(to, length);
        if (!(flags & F_NODRAIN)) {
            fence();
        }
    }
    return to;
}

void *pmem_memcpy(void *to, const void *from, size_t length, unsigned flags)
{
    memcpy(to, from, length);
    return finish(to, length, flags);
}

void *pmem_memmove(void *to, const void *from, size_t length, unsigned flags)
{
    memmove(to, from, length);
    return finish(to, length, flags);
}

void *pmem_memset(void *to, int byte, size_t length, unsigned flags)
{
    memset(to, byte, length);
    return finish(to, length, flags);
}
