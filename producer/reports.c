/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of reports; see reports.h. When it cannot grow for want of memory it drops as if it were full. */
#include "producer/reports.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 64

/* `at` below twice the capacity. A division for every record would show. */
static size_t wrap(const struct fq_reports *reports, size_t at)
{
    return at < reports->capacity ? at : at - reports->capacity;
}

void fq_reports_init(struct fq_reports *reports, size_t limit)
{
    *reports = (struct fq_reports){.limit = limit};
}

void fq_reports_fini(struct fq_reports *reports)
{
    free(reports->items);
    *reports = (struct fq_reports){0};
}

static void grow(struct fq_reports *reports)
{
    size_t capacity = reports->capacity ? reports->capacity * 2 : CAPACITY_FIRST;
    capacity = capacity < reports->limit ? capacity : reports->limit;
    if (capacity <= reports->capacity) {
        return;
    }
    flashq_report *items = malloc(capacity * sizeof *items);
    if (!items) {
        return;
    }
    for (size_t i = 0; i < reports->count; i++) {
        items[i] = reports->items[wrap(reports, reports->first + i)];
    }
    free(reports->items);
    reports->items = items;
    reports->capacity = capacity;
    reports->first = 0;
}

void fq_reports_push(struct fq_reports *reports, const flashq_report *report)
{
    if (reports->count == reports->capacity) {
        grow(reports);
    }
    if (reports->capacity == 0) {
        reports->dropped++;
        return;
    }
    if (reports->count == reports->capacity) {
        reports->first = wrap(reports, reports->first + 1);
        reports->count--;
        reports->dropped++;
    }
    size_t at = wrap(reports, reports->first + reports->count);
    reports->items[at] = *report;
    reports->items[at].struct_bytes = sizeof *report;
    reports->count++;
}

size_t fq_reports_pop(struct fq_reports *reports, flashq_report *out, size_t max)
{
    size_t taken = 0;
    for (; taken < max && reports->count > 0; taken++) {
        out[taken] = reports->items[reports->first];
        reports->first = wrap(reports, reports->first + 1);
        reports->count--;
    }
    if (reports->count == 0) {
        reports->first = 0; /* the next ones go where the cache is warm */
    }
    return taken;
}
