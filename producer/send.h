/* SPDX-License-Identifier: Apache-2.0 */
/* From the public record to a place in a batch: what send.c uses of the partitioner, and claim.c of send.c. */
#ifndef FQ_PRODUCER_SEND_H
#define FQ_PRODUCER_SEND_H

#include "producer/producer.h"

/* The partition for a record: the one asked for, by key as Kafka does (murmur2), or the sticky one, which
 * changes with every batch. FLASHQ_ERR_NOT_FOUND when the one asked for does not exist. */
int fq_producer_choose(struct fq_producer *producer, const flashq_record *record,
                       struct fq_ppart **ret);

/* A call that puts records into the queue. */
struct fq_outgoing {
    struct fq_producer *producer;
    int64_t now_ms;             /* the clock, once */
    int timeout_ms;
    int64_t deadline_us;        /* 0: not needed yet */

    /* of the record that was queued last */
    const flashq_record *record;
    struct fq_record_in in;     /* its headers are gone */
    uint64_t bytes;             /* key, value and headers */
    struct fq_ppart *ppart;     /* in whose `filling` it is */
};
int64_t fq_outgoing_deadline_us(struct fq_outgoing *out);
/* Checks the record, takes it for one with a value of `value_length`, waits for room and appends it; with
 * `claim` everything but the value (fq_batch_builder_claim). */
int fq_outgoing_queue(struct fq_outgoing *out, const flashq_record *record, size_t value_length,
                      struct fq_batch_claim *claim);
/* The record last appended to the batch counts, and is reported with `user`. */
void fq_producer_count_record(struct fq_producer *producer, struct fq_batch *batch, void *user,
                              int64_t timestamp_ms, uint64_t bytes);
/* Sends what is due after a record. */
void fq_producer_after_append(struct fq_producer *producer, struct fq_ppart *ppart, int64_t now_ms);

#endif
