/* SPDX-License-Identifier: Apache-2.0 */
/* Finishing and renumbering of a batch's bytes; see batch.h. Compression that finds no memory or gains nothing
 * leaves the batch uncompressed. Thread: under the client's lock. */
#include "producer/batch.h"

static void compress(struct fq_batch *batch, const struct fq_batch_numbering *how)
{
    struct fq_block smaller;
    if (how->codec == FQ_CODEC_NONE || fq_pool_alloc(how->pool, batch->length, &smaller) != 0) {
        return;
    }
    int64_t length = fq_batch_compress(how->compressor, batch->block.data, batch->length, how->codec,
                                       how->level, smaller.data, smaller.bytes);
    if (length <= 0) {
        fq_pool_free(how->pool, &smaller);
        return;
    }
    fq_pool_free(how->pool, &batch->block);
    batch->block = smaller;
    batch->length = (size_t)length;
}

int fq_batch_number(struct fq_batch *batch, const struct fq_batch_numbering *how)
{
    if (batch->length == 0) {
        struct fq_batch_finish finish = {.producer_id = how->producer_id,
                                         .producer_epoch = how->epoch,
                                         .base_sequence = how->base_sequence};
        int64_t length = fq_batch_builder_finish(&batch->builder, &finish);
        if (length < 0) {
            return (int)length;
        }
        batch->length = (size_t)length;
        compress(batch, how);
    } else {
        fq_batch_renumber(batch->block.data, batch->length, how->producer_id, how->epoch,
                          how->base_sequence);
    }
    batch->producer_id = how->producer_id;
    batch->epoch = how->epoch;
    batch->base_sequence = how->base_sequence;
    return 0;
}
