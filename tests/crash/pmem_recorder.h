/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records what libpmemobj stores. It reaches persistent memory through libpmem's shared library only
 * (pmem_flush, pmem_drain, pmem_persist, pmem_memcpy, pmem_memmove, pmem_memset, pmem_msync,
 * pmem_is_pmem), so a program that defines these symbols itself sees every flush and every fence.
 * Nothing is written back for real.
 *
 * The model: a store is in the mapping at once; it may reach the medium at any moment from then on,
 * word by word in any order; it has reached it once its cache line was flushed after it and a fence
 * followed (is_pmem), or pmem_msync returned (pages). Each call that flushes or fences is a point: the
 * state before it is what the medium surely has, plus any subset of the words that differ.
 *
 * The tables are in shared memory, so that a forked child's stores are recorded too.
 */
#ifndef FQ_TESTS_PMEM_RECORDER_H
#define FQ_TESTS_PMEM_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recorded_word {
    uint32_t index;      /* in the pool, in words of 8 bytes */
    uint64_t value;
};

struct recorded_point {
    size_t settled_from, settled_count;  /* words: what reached the medium since the last point */
    size_t pending_from, pending_count;  /* words: stored, may or may not have */
    int tag;                             /* recorder_tag at that time */
};

/* Memory for a pool of `pool_bytes`; `is_pmem` is what libpmem will say of it. */
void recorder_init(size_t pool_bytes, bool is_pmem);
/* From now on: the pool that is mapped (or, when none is, each one when it gets mapped). What is in memory
 * at that moment counts as settled. Forgets earlier points. */
void recorder_start(void);
void recorder_stop(void);
/* Goes with the points from now on. */
void recorder_tag(int tag);

/* A point of the caller's own. */
void recorder_mark_point(void);

size_t recorder_points_count(void);
size_t recorder_words_count(void);
const struct recorded_point *recorder_point(size_t index);
const struct recorded_word *recorder_words(size_t from);
/* The settled image when recording started. */
const uint64_t *recorder_first_image(void);

#endif
