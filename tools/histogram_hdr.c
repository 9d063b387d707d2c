/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram as HdrHistogram's tools print percentile distributions, which its plotter reads: a line for
 * each of five steps on the way from one power of two of 1/(1-percentile) to the next.
 */
#include <inttypes.h>
#include <math.h>

#include "tools/histogram.h"

#define TICKS_PER_HALF 5.0

/* The next percentile to print: each half of what is left to 100 is passed in the same number of steps. */
static double next_percentile(double percent)
{
    double halves = floor(log2(100.0 / (100.0 - percent))) + 1;
    return percent + 100.0 / (TICKS_PER_HALF * exp2(halves));
}

static uint64_t count_up_to(const struct fq_histogram *histogram, uint64_t value)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < FQ_HISTOGRAM_BUCKETS && fq_histogram_bucket_low(i) <= value; i++) {
        seen += histogram->counts[i];
    }
    return seen;
}

static double deviation(const struct fq_histogram *histogram)
{
    double mean = fq_histogram_mean(histogram), sum = 0;
    for (unsigned i = 0; i < FQ_HISTOGRAM_BUCKETS; i++) {
        if (histogram->counts[i] > 0) {
            double low = (double)fq_histogram_bucket_low(i), high = (double)fq_histogram_bucket_top(i);
            double off = low + (high - low) / 2 - mean;
            sum += (double)histogram->counts[i] * off * off;
        }
    }
    return histogram->count > 0 ? sqrt(sum / (double)histogram->count) : 0;
}

void fq_histogram_write_hdr(const struct fq_histogram *histogram, double unit, FILE *file)
{
    (void)fprintf(file, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    double percent = 0;
    uint64_t seen = 0;
    while (histogram->count > 0 && seen < histogram->count) {
        uint64_t value = fq_histogram_percentile(histogram, percent);
        seen = count_up_to(histogram, value);
        if (seen < histogram->count) {
            (void)fprintf(file, "%12.3f %14.12f %10" PRIu64 " %14.2f\n", (double)value / unit,
                          percent / 100, seen, 100 / (100 - percent));
            percent = next_percentile(percent);
        }
    }
    if (histogram->count > 0) {
        (void)fprintf(file, "%12.3f %14.12f %10" PRIu64 "\n", (double)histogram->max / unit, 1.0,
                      histogram->count);
    }
    (void)fprintf(file, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n",
                  fq_histogram_mean(histogram) / unit, deviation(histogram) / unit);
    (void)fprintf(file, "#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n",
                  (double)histogram->max / unit, histogram->count);
    (void)fprintf(file, "#[Buckets = %12d, SubBuckets     = %12d]\n", 64 - FQ_HISTOGRAM_SUB_BITS,
                  1 << (FQ_HISTOGRAM_SUB_BITS + 1));
}
