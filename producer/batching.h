/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch that is being filled is sent. The policy alone: no state but what is given, no clock, so that
 * it can be tested as a table. Full batches and batches to resend are not asked about: they go as soon as
 * there is room in flight.
 */
#ifndef FQ_PRODUCER_BATCHING_H
#define FQ_PRODUCER_BATCHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From here on a batch is worth sending while others are in flight: what a broker and a client on two cores
 * hand over best fits the second-level cache. */
#define FQ_BATCHING_GOOD_BYTES ((size_t)64 << 10)

struct fq_batching_question {
    size_t batch_bytes;     /* filled so far */
    unsigned in_flight;     /* batches on their way to this partition */
    unsigned max_in_flight;
    int64_t age_us;         /* since its first record */
    int64_t linger_us;
    bool is_hurried;        /* somebody flushes, waits for a record of it, or for its memory */
};
bool fq_batching_sends(const struct fq_batching_question *question);

#endif
