/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies in nanoseconds, in buckets whose width is 1/128 of their value: every percentile is right
 * to better than 1 %, whatever the range. One thread records; histograms are added up afterwards.
 */
#ifndef FQ_TOOLS_HISTOGRAM_H
#define FQ_TOOLS_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

#define FQ_HISTOGRAM_SUB_BITS 7
#define FQ_HISTOGRAM_BUCKETS ((65 - FQ_HISTOGRAM_SUB_BITS) << FQ_HISTOGRAM_SUB_BITS)

struct fq_histogram {
    uint64_t counts[FQ_HISTOGRAM_BUCKETS];
    uint64_t count, min, max;
    double sum;
};

void fq_histogram_clear(struct fq_histogram *histogram);
void fq_histogram_record(struct fq_histogram *histogram, uint64_t value);
void fq_histogram_add(struct fq_histogram *histogram, const struct fq_histogram *other);
/* The value below or at which `percent` of the recorded ones lie (the bucket's top, at most max); 0 when
 * empty. */
uint64_t fq_histogram_percentile(const struct fq_histogram *histogram, double percent);
double fq_histogram_mean(const struct fq_histogram *histogram);

/* The values that a bucket counts, both ends included. */
uint64_t fq_histogram_bucket_low(unsigned bucket);
uint64_t fq_histogram_bucket_top(unsigned bucket);

/* histogram_hdr.c: as HdrHistogram's percentile distributions, values divided by `unit` (1000: in us). */
void fq_histogram_write_hdr(const struct fq_histogram *histogram, double unit, FILE *file);

#endif
