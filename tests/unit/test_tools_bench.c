/* SPDX-License-Identifier: Apache-2.0 */
/* What flashq bench says about records that are missing, came twice, came late or are damaged; its series; and its
 * HdrHistogram file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tools/bench_series.h"
#include "tools/bench_verify.h"
#include "tools/histogram.h"

#define SIZE 100
#define RUN 7

static uint8_t value[SIZE];

static void make(uint32_t run, uint32_t client, uint64_t sequence, enum fq_bench_body body)
{
    struct fq_bench_stamp stamp = {
        .run = run, .client = client, .body = body, .sequence = sequence, .sent_ns = 12345};
    fq_bench_fill(value, SIZE, client);
    fq_bench_seal(&stamp);
    memcpy(value, &stamp, sizeof stamp);
    if (body == FQ_BENCH_BODY_RECORD) {
        fq_bench_fill_record(value, SIZE, client, sequence);
    }
}

static const char *take(struct fq_verifier *v, uint32_t partition, uint32_t client, uint64_t sequence)
{
    make(RUN, client, sequence, (enum fq_bench_body)(sequence % 2));
    return fq_verifier_take(v, partition, value, SIZE);
}

static void check_counts(const struct fq_verifier *v, uint64_t records, uint64_t missing,
                         uint64_t duplicates, uint64_t reordered, uint64_t corrupt)
{
    const struct fq_verify_counts *c = fq_verifier_counts(v);
    cr_expect_eq(c->records, records, "%llu records", (unsigned long long)c->records);
    cr_expect_eq(c->missing, missing, "%llu missing", (unsigned long long)c->missing);
    cr_expect_eq(c->duplicates, duplicates, "%llu duplicates", (unsigned long long)c->duplicates);
    cr_expect_eq(c->reordered, reordered, "%llu reordered", (unsigned long long)c->reordered);
    cr_expect_eq(c->corrupt, corrupt, "%llu corrupt", (unsigned long long)c->corrupt);
    cr_expect_eq(fq_verify_faults(c), missing + duplicates + reordered + corrupt);
}

/* Sequences of one client in one partition, and what is to be said of them. */
static void check_one(const uint64_t *sequences, size_t count, uint64_t missing, uint64_t duplicates,
                      uint64_t reordered)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 1, 0, true);
    size_t told = 0;
    for (size_t i = 0; i < count; i++) {
        told += take(v, 0, 3, sequences[i]) != NULL;
    }
    cr_expect_eq(told, duplicates + reordered, "what is wrong is told when it comes");
    fq_verifier_finish(v, true);
    check_counts(v, count, missing, duplicates, reordered, 0);
    fq_verifier_destroy(v);
}

#define CHECK_ONE(missing, duplicates, reordered, ...)                                             \
    check_one((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8, missing, \
              duplicates, reordered)

Test(bench_verify, sequences_of_one_sender)
{
    CHECK_ONE(0, 0, 0, 0, 1, 2, 3);
    CHECK_ONE(1, 0, 0, 0, 1, 3, 4);
    CHECK_ONE(2, 0, 0, 2, 3);          /* the first two */
    CHECK_ONE(0, 1, 0, 0, 1, 1, 2);
    CHECK_ONE(0, 2, 0, 0, 1, 2, 0, 1); /* a batch stored twice */
    CHECK_ONE(0, 0, 1, 0, 2, 1, 3);
    CHECK_ONE(1, 1, 1, 0, 3, 3, 2);
    CHECK_ONE(0, 0, 0, 0);
    CHECK_ONE(40000000 - 1, 0, 0, 0, 40000000); /* farther than it remembers */
}

Test(bench_verify, senders_and_runs_are_told_apart)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 1, 0, true);
    for (uint64_t i = 0; i < 100; i++) {
        cr_expect_null(take(v, 0, (uint32_t)(i % 5), i / 5));
    }
    make(RUN + 1, 0, 0, FQ_BENCH_BODY_SENDER); /* a new run begins anew */
    cr_expect_null(fq_verifier_take(v, 0, value, SIZE));
    fq_verifier_finish(v, true);
    check_counts(v, 101, 0, 0, 0, 0);
    fq_verifier_destroy(v);

    v = fq_verifier_create(SIZE, 1, RUN, true);
    make(RUN + 1, 0, 77, FQ_BENCH_BODY_SENDER);
    cr_expect_null(fq_verifier_take(v, 0, value, SIZE), "another run's record is nobody's business");
    cr_expect_null(take(v, 0, 0, 0));
    fq_verifier_finish(v, true);
    check_counts(v, 1, 0, 0, 0, 0);
    fq_verifier_destroy(v);
}

/* One sender spread over partitions that are read at different speeds: no order among them, none missing. */
Test(bench_verify, partitions_have_no_common_order)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 3, 0, true);
    for (uint32_t p = 0; p < 3; p++) {
        for (uint64_t i = p; i < 300; i += 3) {
            cr_expect_null(take(v, p, 1, i));
        }
    }
    cr_expect_not_null(take(v, 1, 1, 4), "twice");
    fq_verifier_finish(v, true);
    check_counts(v, 301, 0, 1, 0, 0);
    fq_verifier_destroy(v);

    /* read in part: 0, 3, 6 of the first, 1 of the second, 2, 5 of the third: 4 may still come */
    v = fq_verifier_create(SIZE, 3, 0, true);
    static const uint64_t read[][2] = {{0, 0}, {0, 3}, {0, 6}, {1, 1}, {2, 2}, {2, 5}};
    for (size_t i = 0; i < 6; i++) {
        cr_expect_null(take(v, (uint32_t)read[i][0], 1, read[i][1]));
    }
    fq_verifier_finish(v, false);
    check_counts(v, 6, 0, 0, 0, 0);
    fq_verifier_destroy(v);
}

Test(bench_verify, a_log_that_was_cut_begins_where_it_begins)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 2, 0, false);
    /* partition 0 begins at 50, partition 1 (with the odd ones) at 31 */
    for (uint64_t i = 50; i < 100; i += 2) {
        cr_expect_null(take(v, 0, 1, i));
    }
    for (uint64_t i = 31; i < 100; i += 2) {
        if (i != 71) {
            cr_expect_null(take(v, 1, 1, i), "%llu", (unsigned long long)i);
        }
    }
    fq_verifier_finish(v, true);
    check_counts(v, 25 + 34, 1, 0, 0, 0);
    fq_verifier_destroy(v);
}

/* The sender's part of a third partition ended before that was cut: nobody can say what was in it. */
Test(bench_verify, a_partition_that_shows_nothing_of_a_sender_may_have_had_what_is_not_seen)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 3, 0, false);
    for (uint64_t i = 50; i < 100; i += i % 2 == 0 ? 1 : 9) {
        cr_expect_null(take(v, (uint32_t)(i % 2), 1, i));
    }
    fq_verifier_finish(v, true);
    check_counts(v, 10, 0, 0, 0, 0);
    fq_verifier_destroy(v);
}

/* Whatever byte changes, whatever the body. */
Test(bench_verify, every_damaged_byte_is_seen)
{
    struct fq_verifier *v = fq_verifier_create(SIZE, 1, 0, true);
    for (size_t at = 0; at < 2 * SIZE; at++) {
        make(RUN, 2, 0, at < SIZE ? FQ_BENCH_BODY_SENDER : FQ_BENCH_BODY_RECORD);
        value[at % SIZE] ^= 0x10;
        cr_expect_not_null(fq_verifier_take(v, 0, value, SIZE), "byte %zu", at);
    }
    make(RUN, 2, 0, FQ_BENCH_BODY_SENDER);
    cr_expect_not_null(fq_verifier_take(v, 0, value, SIZE - 1), "shorter");
    cr_expect_not_null(fq_verifier_take(v, 0, NULL, 0), "null");
    cr_expect_not_null(fq_verifier_take(v, 1, value, SIZE), "a partition that is not there");
    memset(value, 'x', SIZE);
    cr_expect_not_null(fq_verifier_take(v, 0, value, SIZE), "somebody else's");
    /* the body of another record of the same sender */
    make(RUN, 2, 8, FQ_BENCH_BODY_RECORD);
    fq_bench_fill_record(value, SIZE, 2, 7);
    cr_expect_not_null(fq_verifier_take(v, 0, value, SIZE), "another's body");
    fq_verifier_finish(v, true);
    check_counts(v, 2 * SIZE + 5, 0, 0, 0, 2 * SIZE + 5);
    fq_verifier_destroy(v);
}

/* Against a set: random drops, repeats and swaps of one partition. */
Test(bench_verify, agrees_with_a_brute_force)
{
    enum { COUNT = 3000 };
    const uint64_t seed = fq_random_u64();
    (void)fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    struct fq_verifier *v = fq_verifier_create(SIZE, 1, 0, true);
    static bool seen[COUNT];
    uint64_t records = 0, duplicates = 0, reordered = 0, top = 0, missing = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t back = fq_prng_below(&prng, 10) == 0 ? fq_prng_below(&prng, 20) : 0;
        uint64_t sequence = back > i ? 0 : i - back;
        if (fq_prng_below(&prng, 20) == 0) {
            continue;
        }
        records++;
        duplicates += seen[sequence];
        reordered += !seen[sequence] && sequence < top;
        seen[sequence] = true;
        top = sequence + 1 > top ? sequence + 1 : top;
        (void)take(v, 0, 9, sequence);
    }
    for (uint64_t i = 0; i < top; i++) {
        missing += !seen[i];
    }
    fq_verifier_finish(v, true);
    check_counts(v, records, missing, duplicates, reordered, 0);
    fq_verifier_destroy(v);
}

/* ---- series -------------------------------------------------------------------------------- */

static const char *text_of(void (*print)(FILE *file))
{
    static char text[1 << 16];
    FILE *file = fmemopen(text, sizeof text, "w");
    cr_assert_not_null(file);
    print(file);
    cr_assert_eq(fclose(file), 0);
    return text;
}

static struct fq_series *series;

static void print_series(FILE *file)
{
    fq_series_write(series, file);
}

Test(bench_series, stretches_of_time)
{
    series = fq_series_create(1000000, 4);
    struct fq_series *other = fq_series_create(1000000, 4);
    fq_series_record(series, 5, 1); /* before the beginning */
    fq_series_begin(series, 1000);
    fq_series_begin(other, 2000);
    fq_series_record(series, 999, 1);
    for (uint64_t i = 1; i <= 1000; i++) {
        fq_series_record(i % 2 ? series : other, 3000, i * 1000);
    }
    fq_series_record(other, 2000 + 2500000, UINT64_MAX);
    fq_series_record(series, 1000 + 100000000, 7000); /* after the last */
    fq_series_add(series, other);
    const char *text = text_of(print_series);
    double seconds, p50, p99, p999, max;
    unsigned long count;
    cr_assert_eq(sscanf(text, "seconds,count,p50_us,p99_us,p999_us,max_us\n%lf,%lu,%lf,%lf,%lf,%lf",
                        &seconds, &count, &p50, &p99, &p999, &max), 6, "%s", text);
    cr_expect_eq(count, 1000);
    cr_expect(p50 >= 500 && p50 <= 520, "%f", p50);
    cr_expect(p99 >= 990 && p99 <= 1000, "%f", p99);
    cr_expect(p999 >= 999 && p999 <= 1000, "%f", p999);
    cr_expect_float_eq(max, 1000, 0.001);
    cr_expect_not_null(strstr(text, "\n0.001000,0,,,,\n"), "%s", text);
    cr_expect_not_null(strstr(text, "\n0.002000,1,"), "%s", text);
    cr_expect_not_null(strstr(text, "\n0.003000,1,7.000,7.000,7.000,7.000\n"), "%s", text);
    fq_series_destroy(other);
    fq_series_destroy(series);
}

/* ---- HdrHistogram -------------------------------------------------------------------------- */

static struct fq_histogram histogram;

static void print_hdr(FILE *file)
{
    fq_histogram_write_hdr(&histogram, 1000, file);
}

/* What the plotter relies on: four columns that grow, three on the last line, and the trailer. */
Test(bench_hdr, columns_and_trailer)
{
    fq_histogram_clear(&histogram);
    for (uint64_t i = 1; i <= 100000; i++) {
        fq_histogram_record(&histogram, i * 10);
    }
    const char *text = text_of(print_hdr);
    cr_assert_eq(strncmp(text, "       Value     Percentile TotalCount 1/(1-Percentile)\n\n", 57), 0, "%s",
                 text);
    double value_before = -1, percent_before = -1;
    unsigned long count_before = 0, lines = 0, count = 0;
    const char *at = strchr(text, '\n') + 2;
    for (; *at != '#'; at = strchr(at, '\n') + 1, lines++) {
        double v, percent, inverse;
        int fields = sscanf(at, "%lf %lf %lu %lf", &v, &percent, &count, &inverse);
        cr_assert(v >= value_before && percent > percent_before && count >= count_before, "%.80s", at);
        if (fields == 4 && strchr(at, '\n') - at > 44) {
            cr_expect_float_eq(inverse, 1 / (1 - percent), inverse / 100);
            /* the values are uniform: the percentile's is known */
            cr_expect(v >= percent * 1000 - 0.01 && v <= percent * 1000 * 1.01 + 0.02, "%f at %f", v,
                      percent);
            cr_expect((double)count >= percent * 100000 - 1, "%.80s", at);
        } else {
            cr_expect_float_eq(percent, 1, 1e-9);
        }
        value_before = v;
        percent_before = percent;
        count_before = count;
    }
    cr_expect_eq(count, 100000);
    cr_expect(lines > 50 && lines < 120, "%lu lines", lines);
    double mean, deviation, max;
    cr_assert_eq(sscanf(at, "#[Mean = %lf, StdDeviation = %lf]\n#[Max = %lf, Total count = %lu]", &mean,
                        &deviation, &max, &count), 4, "%s", at);
    cr_expect_float_eq(mean, 500.005, 0.001);
    cr_expect_float_eq(deviation, 288.675, 3);
    cr_expect_float_eq(max, 1000, 0.001);
    cr_expect_eq(count, 100000);
    cr_expect_not_null(strstr(at, "#[Buckets = "));
}

Test(bench_hdr, nothing_recorded)
{
    fq_histogram_clear(&histogram);
    const char *text = text_of(print_hdr);
    cr_expect_not_null(strstr(text, "Total count    =            0]"), "%s", text);
    cr_expect_null(strstr(text, "nan"));
}
