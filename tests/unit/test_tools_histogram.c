/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "tools/histogram.h"
#include "tools/text.h"
#include "tools/time_prefix.h"

static struct fq_histogram h, other;

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Against the sorted values themselves. */
Test(histogram, percentiles_are_right_to_one_percent)
{
    enum { COUNT = 20000 };
    static uint64_t values[COUNT];
    const uint64_t seed = fq_random_u64();
    (void)fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    fq_histogram_clear(&h);
    double sum = 0;
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = fq_prng_next(&prng) >> fq_prng_below(&prng, 64);
        sum += (double)values[i];
        fq_histogram_record(&h, values[i]);
    }
    qsort(values, COUNT, sizeof *values, by_value);
    static const double percents[] = {1, 25, 50, 90, 99, 99.9, 99.99, 100};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        size_t rank = (size_t)(percents[i] / 100 * COUNT + 0.9999999) - 1;
        uint64_t exact = values[rank], got = fq_histogram_percentile(&h, percents[i]);
        cr_assert(got >= exact && (double)(got - exact) <= (double)exact / 100,
                  "p%g: %llu instead of %llu", percents[i], (unsigned long long)got,
                  (unsigned long long)exact);
    }
    cr_assert_eq(h.min, values[0]);
    cr_assert_eq(h.max, values[COUNT - 1]);
    cr_assert_float_eq(fq_histogram_mean(&h), sum / COUNT, sum / COUNT / 1e9);
}

Test(histogram, extremes_and_sums)
{
    fq_histogram_clear(&h);
    cr_assert_eq(fq_histogram_percentile(&h, 50), 0, "nothing recorded: no NaN");
    cr_assert_float_eq(fq_histogram_mean(&h), 0, 1e-12);
    fq_histogram_record(&h, UINT64_MAX);
    fq_histogram_clear(&other);
    fq_histogram_record(&other, 0);
    fq_histogram_add(&h, &other);
    cr_assert_eq(h.count, 2);
    cr_assert_eq(fq_histogram_percentile(&h, 50), 0);
    cr_assert_eq(fq_histogram_percentile(&h, 100), UINT64_MAX);
}

/* ---- times at the beginning of lines ------------------------------------------------------- */

static int64_t prefix(const char *format, const char *line)
{
    int64_t ms = INT64_MIN;
    (void)fq_time_prefix_read(format, line, strlen(line), &ms);
    return ms;
}

Test(time_prefix, lines_of_log_files)
{
    const char *dpkg = "%Y-%m-%d %H:%M:%S";
    cr_assert_eq(prefix(dpkg, "2026-11-30 12:00:00 startup archives unpack"), INT64_C(1796040000000));
    cr_assert_eq(prefix(dpkg, "2026-11-30 12:00:00.25 x"), INT64_C(1796040000250));
    cr_assert_eq(prefix(dpkg, "2026-11-30 12:00:00,0001 x"), INT64_C(1796040000001));
    cr_assert_eq(prefix(dpkg, "1969-12-31 23:59:59"), -1000);
    cr_assert_eq(prefix("[%d/%b/%Y:%H:%M:%S %z]", "[30/Nov/2026:17:30:00 +0530] GET"),
                 INT64_C(1796040000000));
    cr_assert_eq(prefix("rfc3339", "2026-11-30T12:00:00.5Z host unit: x"), INT64_C(1796040000500));
    cr_assert_eq(prefix(dpkg, "  continued"), INT64_MIN);
    cr_assert_eq(prefix("rfc3339", "1796040000 x"), INT64_MIN);
    cr_assert_eq(prefix(dpkg, ""), INT64_MIN);
}

Test(time_prefix, a_format_without_a_date_is_refused)
{
    struct fq_fault fault;
    cr_assert_eq(fq_time_prefix_check("%F %T", &fault), 0);
    cr_assert_eq(fq_time_prefix_check("rfc3339", &fault), 0);
    cr_assert_neq(fq_time_prefix_check("%H:%M:%S", &fault), 0);
    cr_assert_neq(fq_time_prefix_check("%b %d %H:%M:%S", &fault), 0, "no year");
    cr_assert_neq(fq_time_prefix_check("%s", &fault), 0);
}
