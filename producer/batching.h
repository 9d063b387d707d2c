/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch that is being filled goes. A pure function: no state but what is given, no clock, so that
 * it can be tested as a table. Batches to resend are not asked about: they go as soon as there is room.
 *
 * Adaptive: at once while nothing is in flight, so that a record that meets an idle broker waits for nobody. While
 * something is, as soon as the batch has the size that the estimates (estimate.h) call for, unless as many are in
 * flight as are of use; and in any case when everything that went before it began has been answered, so that busy
 * partitions do not keep back the others of their connection.
 * Fixed, for comparison: when it is full or linger_us old; with linger_us 0, whenever there is room in flight.
 */
#ifndef FQ_PRODUCER_BATCHING_H
#define FQ_PRODUCER_BATCHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fq_batching_question {
    size_t batch_bytes;     /* filled so far */
    size_t wanted_bytes;    /* adaptive: the size that goes while others are in flight */
    unsigned in_flight;     /* batches on their way on this connection, to whatever partition */
    unsigned wanted_in_flight; /* adaptive: as many as are of use */
    unsigned slot_in_flight;   /* to this partition */
    unsigned max_in_flight;    /* of those */
    bool has_waited;        /* adaptive: what was in flight when it began has been answered */
    int64_t age_us;         /* since its first record */
    int64_t linger_us;
    bool is_fixed;
    bool is_hurried;        /* somebody flushes, waits for a record of it, or for its memory */
};
bool fq_batching_sends(const struct fq_batching_question *question);

#endif
