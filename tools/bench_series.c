/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench_series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text.h"

/* 32 cells for each power of two, up to 2^37 ns (137 s); what is longer counts in the last. */
#define SUB_BITS 5u
#define SUB_COUNT (1u << SUB_BITS)
#define TOP_BITS 37u
#define CELLS ((TOP_BITS - SUB_BITS + 1) << SUB_BITS)

struct stretch {
    uint32_t cells[CELLS];
    uint64_t count, max;
};

struct fq_series {
    int64_t began_ns, stretch_ns;
    unsigned stretches;
    struct stretch at[];
};

static unsigned cell_of(uint64_t value)
{
    value = value < UINT64_C(1) << TOP_BITS ? value : (UINT64_C(1) << TOP_BITS) - 1;
    if (value < SUB_COUNT) {
        return (unsigned)value;
    }
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return (shift << SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t top_of(unsigned cell)
{
    if (cell < SUB_COUNT) {
        return cell;
    }
    unsigned shift = (cell >> SUB_BITS) - 1;
    return ((uint64_t)(cell - (shift << SUB_BITS)) + 1) << shift;
}

struct fq_series *fq_series_create(int64_t stretch_ns, unsigned stretches)
{
    size_t bytes = sizeof(struct fq_series) + stretches * sizeof(struct stretch);
    struct fq_series *series = fq_alloc(bytes);
    memset(series, 1, bytes); /* zeroed memory may be pages that are not there yet */
    memset(series, 0, bytes);
    series->began_ns = INT64_MAX;
    series->stretch_ns = stretch_ns;
    series->stretches = stretches;
    return series;
}

void fq_series_destroy(struct fq_series *series)
{
    free(series);
}

void fq_series_begin(struct fq_series *series, int64_t began_ns)
{
    series->began_ns = began_ns;
}

void fq_series_record(struct fq_series *series, int64_t now_ns, uint64_t latency_ns)
{
    if (now_ns < series->began_ns) {
        return;
    }
    uint64_t index = (uint64_t)(now_ns - series->began_ns) / (uint64_t)series->stretch_ns;
    struct stretch *stretch = &series->at[index < series->stretches ? index : series->stretches - 1];
    stretch->cells[cell_of(latency_ns)]++;
    stretch->count++;
    stretch->max = latency_ns > stretch->max ? latency_ns : stretch->max;
}

void fq_series_add(struct fq_series *series, const struct fq_series *other)
{
    for (unsigned i = 0; i < series->stretches && i < other->stretches; i++) {
        struct stretch *to = &series->at[i];
        const struct stretch *from = &other->at[i];
        for (unsigned cell = 0; cell < CELLS; cell++) {
            to->cells[cell] += from->cells[cell];
        }
        to->count += from->count;
        to->max = from->max > to->max ? from->max : to->max;
    }
}

/* In thousandths of the count, rounded up to a whole record. */
static double percentile_us(const struct stretch *stretch, uint64_t thousandths)
{
    uint64_t wanted = (stretch->count * thousandths + 999) / 1000, seen = 0;
    for (unsigned cell = 0; cell < CELLS; cell++) {
        seen += stretch->cells[cell];
        if (seen >= wanted && seen > 0) {
            uint64_t top = top_of(cell);
            return (double)(top < stretch->max ? top : stretch->max) / 1e3;
        }
    }
    return (double)stretch->max / 1e3;
}

void fq_series_write(const struct fq_series *series, FILE *file)
{
    unsigned used = series->stretches;
    while (used > 0 && series->at[used - 1].count == 0) {
        used--;
    }
    (void)fputs("seconds,count,p50_us,p99_us,p999_us,max_us\n", file);
    for (unsigned i = 0; i < used; i++) {
        const struct stretch *stretch = &series->at[i];
        double seconds = (double)series->stretch_ns / 1e9 * i;
        if (stretch->count == 0) {
            (void)fprintf(file, "%.6f,0,,,,\n", seconds);
            continue;
        }
        (void)fprintf(file, "%.6f,%" PRIu64 ",%.3f,%.3f,%.3f,%.3f\n", seconds, stretch->count,
                      percentile_us(stretch, 500), percentile_us(stretch, 990),
                      percentile_us(stretch, 999), (double)stretch->max / 1e3);
    }
}
