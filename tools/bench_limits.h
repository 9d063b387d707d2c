/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench limits: what its measurements share. Each pins its own threads to two named processors and takes
 * the calling thread back to where it was; -1 stands for what this machine or system cannot do.
 */
#ifndef FQ_TOOLS_BENCH_LIMITS_H
#define FQ_TOOLS_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fq_limits_run {
    int cores[2];     /* of the measuring thread, and of its peer */
    int64_t run_ns;   /* how long one measurement goes on */
    size_t size;      /* of one record */
    size_t write_size; /* of one write to a socket */
    const char *dir;  /* for the disk; NULL: none */
};

/* Runs self(context) on the first processor while peer(context) runs on the second; self must make peer
 * return. false: the threads could not be had or pinned. */
bool fq_duo_run(const struct fq_limits_run *run, void (*self)(void *context),
                void *(*peer)(void *context), void *context);
/* Runs self(context) pinned to the first processor. */
bool fq_solo_run(const struct fq_limits_run *run, void (*self)(void *context), void *context);

/* Runs `once` until the time is up or it returns another value than 0; the median in nanoseconds of what
 * `rounds_each` rounds of one call took each, -1 if there is none. */
double fq_limits_median_ns(const struct fq_limits_run *run, int (*once)(void *context), void *context,
                           unsigned rounds_each);

/* Shared memory whose pages are there already; NULL if there is none. Freed with munmap. */
uint8_t *fq_limits_prepared(size_t bytes);

/* bench_limits_stores_*.c: stores past the caches into the memory behind them, and the fence after which they
 * are there. Lengths are multiples of 64, dst lies on a line. */
void fq_store_past_caches(void *dst, const void *src, size_t length);
void fq_store_fence(void);
void fq_store_pause(void); /* in a spinning loop */

double fq_limits_memcpy_prepared(const struct fq_limits_run *run); /* GB/s */
double fq_limits_memcpy_fresh(const struct fq_limits_run *run);
double fq_limits_crc32c(const struct fq_limits_run *run);
double fq_limits_pipeline(const struct fq_limits_run *run);
double fq_limits_record_round_trip(const struct fq_limits_run *run); /* us */
double fq_limits_line(const struct fq_limits_run *run);              /* ns, one way */
double fq_limits_eventfd(const struct fq_limits_run *run);           /* us */
double fq_limits_tcp_blocking(const struct fq_limits_run *run);      /* us */
double fq_limits_tcp_spinning(const struct fq_limits_run *run);
double fq_limits_tcp_stream(const struct fq_limits_run *run);        /* GB/s, writes of write_size */
double fq_limits_small_sync(const struct fq_limits_run *run);        /* us, 4 KiB */
double fq_limits_large_sync(const struct fq_limits_run *run);        /* us, 1 MiB */

#endif
