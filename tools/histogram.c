/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/histogram.h"

#include <math.h>
#include <string.h>

#define SUB_COUNT (UINT64_C(1) << FQ_HISTOGRAM_SUB_BITS)

/* Values below 2^7 have a bucket each; above, the top 8 bits choose it. */
static unsigned bucket_of(uint64_t value)
{
    if (value < SUB_COUNT) {
        return (unsigned)value;
    }
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - FQ_HISTOGRAM_SUB_BITS;
    return (unsigned)(((uint64_t)shift << FQ_HISTOGRAM_SUB_BITS) + (value >> shift));
}

uint64_t fq_histogram_bucket_top(unsigned bucket)
{
    if (bucket < SUB_COUNT) {
        return bucket;
    }
    unsigned shift = (bucket >> FQ_HISTOGRAM_SUB_BITS) - 1;
    uint64_t base = bucket - ((uint64_t)shift << FQ_HISTOGRAM_SUB_BITS);
    return ((base + 1) << shift) - 1; /* the last bucket's wraps to UINT64_MAX, as it should */
}

uint64_t fq_histogram_bucket_low(unsigned bucket)
{
    return bucket == 0 ? 0 : fq_histogram_bucket_top(bucket - 1) + 1;
}

void fq_histogram_clear(struct fq_histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->min = UINT64_MAX;
}

void fq_histogram_record(struct fq_histogram *histogram, uint64_t value)
{
    histogram->counts[bucket_of(value)]++;
    histogram->count++;
    histogram->sum += (double)value;
    histogram->min = value < histogram->min ? value : histogram->min;
    histogram->max = value > histogram->max ? value : histogram->max;
}

void fq_histogram_add(struct fq_histogram *histogram, const struct fq_histogram *other)
{
    for (unsigned i = 0; i < FQ_HISTOGRAM_BUCKETS; i++) {
        histogram->counts[i] += other->counts[i];
    }
    histogram->count += other->count;
    histogram->sum += other->sum;
    histogram->min = other->min < histogram->min ? other->min : histogram->min;
    histogram->max = other->max > histogram->max ? other->max : histogram->max;
}

uint64_t fq_histogram_percentile(const struct fq_histogram *histogram, double percent)
{
    /* a little less, so that 99.9 % of 20000 is 19980 and not, by rounding, a rank more */
    double wanted = ceil(percent / 100.0 * (double)histogram->count * (1 - 1e-12));
    uint64_t seen = 0;
    for (unsigned i = 0; i < FQ_HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        seen += histogram->counts[i];
        if (seen > 0 && (double)seen >= wanted) {
            uint64_t top = fq_histogram_bucket_top(i);
            return top < histogram->max ? top : histogram->max;
        }
    }
    return histogram->count > 0 ? histogram->max : 0;
}

double fq_histogram_mean(const struct fq_histogram *histogram)
{
    return histogram->count > 0 ? histogram->sum / (double)histogram->count : 0;
}
