/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies over time: a histogram for each stretch of time, all of them made before the measurement begins and
 * none touched by the allocator during it. Percentiles are right to 4 %. What comes after the last stretch
 * counts there. One thread records; series of one shape are added up afterwards.
 */
#ifndef FQ_TOOLS_BENCH_SERIES_H
#define FQ_TOOLS_BENCH_SERIES_H

#include <stdint.h>
#include <stdio.h>

struct fq_series;

/* `stretches` of stretch_ns each, from began_ns on; every page is there when it returns. */
struct fq_series *fq_series_create(int64_t stretch_ns, unsigned stretches);
void fq_series_destroy(struct fq_series *series);
void fq_series_begin(struct fq_series *series, int64_t began_ns);
/* A latency in nanoseconds that was known at now_ns; what was known before the beginning is left out. */
void fq_series_record(struct fq_series *series, int64_t now_ns, uint64_t latency_ns);
void fq_series_add(struct fq_series *series, const struct fq_series *other);
/* CSV: "seconds,count,p50_us,p99_us,p999_us,max_us", a line a stretch up to the last that has any; the time is
 * that of its beginning. Empty stretches have a count of 0 and nothing behind it. */
void fq_series_write(const struct fq_series *series, FILE *file);

#endif
