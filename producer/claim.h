/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record whose value the application writes where it stays: in the batch, which over shared memory lies in the
 * broker's ring itself. One per producer at a time; between claim and its end the batch does not move, and
 * nothing is appended to it.
 */
#ifndef FQ_PRODUCER_CLAIM_H
#define FQ_PRODUCER_CLAIM_H

#include "producer/producer.h"

static inline bool fq_claim_is_open(const struct fq_producer *producer)
{
    return producer->claim.batch != NULL;
}
/* What other calls return meanwhile. */
int fq_claim_busy(struct fq_producer *producer);

/* Room for a value of up to `bytes`; the record's own value is not looked at. */
int fq_claim_begin(struct fq_producer *producer, const flashq_record *record, size_t bytes,
                   int timeout_ms, void **ret_value);
/* INVALID without a claim or with a larger length; else the claim is over, whatever is returned: 0, or why
 * the partition takes no record any more. */
int fq_claim_commit(struct fq_producer *producer, size_t length);
int fq_claim_abort(struct fq_producer *producer);

#endif
