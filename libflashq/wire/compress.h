/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to liblz4 and libzstd: the record part of a batch, compressed and back. */
#ifndef FQ_WIRE_COMPRESS_H
#define FQ_WIRE_COMPRESS_H

#include "wire/record_batch.h"

/* Decompresses exactly one frame, all of `from`, into the scratch, which grows as output arrives
 * (never because the frame claims a size), up to FQ_LIMIT_DECOMPRESSED_BYTES. Returns the bytes, or
 * FLASHQ_ERR_PROTOCOL, TOO_LARGE, NO_MEMORY. */
int64_t fq_decompress(enum fq_codec codec, const uint8_t *from, size_t length,
                      struct fq_batch_scratch *scratch, struct fq_err *err);

/* Returns the compressed bytes; 0 when they do not fit `capacity`; FLASHQ_ERR_NO_MEMORY, INVALID.
 */
int64_t fq_compress(enum fq_codec codec, int level, const uint8_t *from, size_t length,
                    uint8_t *out, size_t capacity, struct fq_batch_compressor *compressor);

#endif
