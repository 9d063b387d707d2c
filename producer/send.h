/* SPDX-License-Identifier: Apache-2.0 */
/* From the public record to a place in a batch: what send.c uses of the partitioner. */
#ifndef FQ_PRODUCER_SEND_H
#define FQ_PRODUCER_SEND_H

#include "producer/producer.h"

/* The partition for a record: the one asked for, by key as Kafka does (murmur2), or the sticky one, which
 * changes with every batch. FLASHQ_ERR_NOT_FOUND when the one asked for does not exist. */
int fq_producer_choose(struct fq_producer *producer, const flashq_record *record,
                       struct fq_ppart **ret);

#endif
