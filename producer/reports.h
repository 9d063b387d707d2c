/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivery reports waiting to be polled: a ring that grows to `reports.max` and then drops its oldest, so
 * that nothing ever waits for a poll. Thread: under the client's lock.
 */
#ifndef FQ_PRODUCER_REPORTS_H
#define FQ_PRODUCER_REPORTS_H

#include <stddef.h>
#include <stdint.h>

#include "flashq/flashq.h"

struct fq_reports {
    flashq_report *items;
    size_t capacity, first, count, limit;
    uint64_t dropped;
};

void fq_reports_init(struct fq_reports *reports, size_t limit);
void fq_reports_fini(struct fq_reports *reports);
void fq_reports_push(struct fq_reports *reports, const flashq_report *report);
size_t fq_reports_pop(struct fq_reports *reports, flashq_report *out, size_t max);

#endif
