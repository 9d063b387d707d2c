/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch on its way into the log, whichever way it comes: copied out of a producer's ring
 * (append.c), or written in place into the segment (append_direct.c). The checks and what follows
 * from an append are the same. For the files of this folder only.
 *
 * `batch` points to bytes that nobody else can change any more; a refusal changes nothing.
 */
#ifndef FQ_PARTITION_INCOMING_H
#define FQ_PARTITION_INCOMING_H

#include "partition/state.h"

struct fq_incoming {
    uint8_t *batch;
    uint64_t bytes;
    uint32_t crc; /* computed over the bytes from `attributes` on */
    struct fq_batch_header header;
    int64_t min_timestamp, max_timestamp; /* filled by fq_incoming_check_content */
    int64_t now_ms;
};

/* That the checksum is that of the bytes; what a client may not say, and what the checksum does not
 * cover; both, in this order. */
int fq_incoming_check_crc(const struct fq_incoming *in, struct fq_err *err);
int fq_incoming_check_fields(const struct fq_incoming *in, int64_t producer_id,
                             int16_t producer_epoch, struct fq_err *err);
int fq_incoming_check_header(const struct fq_incoming *in, int64_t producer_id,
                             int16_t producer_epoch, struct fq_err *err);
/* Compares with what the producer has sent; fills ret->duplicate with the original's offsets, or
 * ret->detail. *ret_producer is NULL for batches without one. */
int fq_incoming_check_sequence(struct fq_partition *partition, const struct fq_incoming *in,
                               struct fq_producer **ret_producer, struct fq_append_result *ret,
                               struct fq_err *err);
/* Records, timestamps, sizes. */
int fq_incoming_check_content(const struct fq_partition *partition, struct fq_incoming *in,
                              struct fq_append_result *ret, struct fq_err *err);
int fq_incoming_too_large(struct fq_append_result *ret, struct fq_err *err, const char *what,
                          uint64_t bytes, uint64_t limit);

/* The log is offline now; returns MAYBE_PERSISTED. */
int fq_incoming_medium_failed(struct fq_partition *partition, int code, struct fq_err *err);
/* It is in the log at `place`: chunk index, epoch history, producer (may be NULL) and figures. */
void fq_incoming_remember(struct fq_partition *partition, const struct fq_incoming *in,
                          const struct fq_log_place *place, struct fq_producer *producer);

#endif
