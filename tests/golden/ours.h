/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors FlashQ makes: shared by make_ours (which writes them) and test_golden. */
#ifndef FQ_TESTS_GOLDEN_OURS_H
#define FQ_TESTS_GOLDEN_OURS_H

#include "wire/record_batch.h"

#define GOLDEN_BATCH_BYTES_MAX (1u << 20)

struct golden_vector {
    const char *name;
    enum fq_codec codec;
    int64_t base_offset;
    int32_t leader_epoch;
    struct fq_batch_finish finish;
    /* Fills *ret with record `index`; false: there are no more. Points into static memory. */
    bool (*record)(size_t index, struct fq_record_in *ret);
};

extern const struct golden_vector golden_vectors[];
extern const size_t golden_vectors_count;

/* Encodes one; returns its length. Aborts when FlashQ cannot. */
size_t golden_encode(const struct golden_vector *vector, uint8_t *out, size_t capacity);

#endif
