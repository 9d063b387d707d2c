/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lz4 and zstd as Kafka clients write and read them: one frame each. Our lz4 frames have
 * independent blocks of at most 64 KiB, no sizes and no checksums but the header's (the batch has a
 * CRC); frames of others are read in any form liblz4 knows.
 *
 * What a frame claims about itself allocates nothing: the output buffer doubles only once it is
 * full of output. zstd decodes straight into it (no window of its own), starting again after each
 * doubling, which at most doubles the work; liblz4's context holds at most one block of 4 MiB.
 *
 * A failure leaves the scratch usable. Contexts belong to the caller's scratch or compressor; any
 * thread, one at a time for each.
 */
#include "wire/compress.h"

#include <stdlib.h>
#include <string.h>

#include <lz4.h>
#include <lz4frame.h>
#include <lz4hc.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/bytes.h"

#define SCRATCH_BYTES_MIN (64u << 10)
#define LZ4_BLOCK_BYTES   (64u << 10)
#define LZ4_BLOCK_STORED  0x80000000u /* in a block's length: its bytes are not compressed */

/* Magic, version 1 with independent blocks, blocks of 64 KiB, and the checksum of these two bytes.
 */
static const uint8_t lz4_frame_header[7] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};

void fq_batch_scratch_fini(struct fq_batch_scratch *scratch)
{
    free(scratch->data);
    (void)LZ4F_freeDecompressionContext(scratch->lz4);
    (void)ZSTD_freeDCtx(scratch->zstd);
    memset(scratch, 0, sizeof *scratch);
}

void fq_batch_compressor_fini(struct fq_batch_compressor *compressor)
{
    free(compressor->lz4);
    free(compressor->lz4_hc);
    (void)ZSTD_freeCCtx(compressor->zstd);
    memset(compressor, 0, sizeof *compressor);
}

/* ---- decompression -------------------------------------------------------------------------- */

static int grow(struct fq_batch_scratch *scratch, struct fq_err *err)
{
    if (scratch->capacity >= FQ_LIMIT_DECOMPRESSED_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE,
                          "a batch has more than %u bytes once decompressed, which is the limit",
                          FQ_LIMIT_DECOMPRESSED_BYTES);
    }
    size_t capacity = scratch->capacity > 0 ? 2 * scratch->capacity : SCRATCH_BYTES_MIN;
    if (capacity > FQ_LIMIT_DECOMPRESSED_BYTES) {
        capacity = FQ_LIMIT_DECOMPRESSED_BYTES;
    }
    uint8_t *data = realloc(scratch->data, capacity);
    if (!data) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory to decompress a batch (%zu bytes)",
                          capacity);
    }
    scratch->data = data;
    scratch->capacity = capacity;
    return 0;
}

static int malformed(struct fq_err *err, enum fq_codec codec, const char *what)
{
    return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the batch's %s frame is malformed: %s",
                      fq_codec_name(codec), what);
}

static int64_t lz4_decompress(const uint8_t *from, size_t length, struct fq_batch_scratch *scratch,
                              struct fq_err *err)
{
    if (!scratch->lz4) {
        LZ4F_dctx *made;
        if (LZ4F_isError(LZ4F_createDecompressionContext(&made, LZ4F_VERSION))) {
            return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for an lz4 context");
        }
        scratch->lz4 = made;
    }
    LZ4F_dctx *context = scratch->lz4;
    LZ4F_resetDecompressionContext(context);
    size_t used = 0;
    for (;;) {
        if (used == scratch->capacity) {
            int rc = grow(scratch, err);
            if (rc != 0) {
                return rc;
            }
        }
        size_t made = scratch->capacity - used, taken = length;
        size_t hint = LZ4F_decompress(context, scratch->data + used, &made, from, &taken, NULL);
        if (LZ4F_isError(hint)) {
            return malformed(err, FQ_CODEC_LZ4, LZ4F_getErrorName(hint));
        }
        used += made;
        from += taken;
        length -= taken;
        if (hint == 0) {
            return length == 0 ? (int64_t)used
                               : malformed(err, FQ_CODEC_LZ4, "bytes after its end");
        }
        if (made == 0 && taken == 0) {
            return malformed(err, FQ_CODEC_LZ4, "cut short");
        }
    }
}

static int64_t zstd_decompress(const uint8_t *from, size_t length, struct fq_batch_scratch *scratch,
                               struct fq_err *err)
{
    size_t frame_bytes = ZSTD_findFrameCompressedSize(from, length);
    if (ZSTD_isError(frame_bytes)) {
        return malformed(err, FQ_CODEC_ZSTD, ZSTD_getErrorName(frame_bytes));
    }
    if (frame_bytes != length) {
        return malformed(err, FQ_CODEC_ZSTD, "bytes after its end");
    }
    if (!scratch->zstd && !(scratch->zstd = ZSTD_createDCtx())) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a zstd context");
    }
    for (;;) {
        if (scratch->capacity > 0) {
            size_t made =
                ZSTD_decompressDCtx(scratch->zstd, scratch->data, scratch->capacity, from, length);
            if (!ZSTD_isError(made)) {
                return (int64_t)made;
            }
            if (ZSTD_getErrorCode(made) != ZSTD_error_dstSize_tooSmall) {
                return malformed(err, FQ_CODEC_ZSTD, ZSTD_getErrorName(made));
            }
        }
        int rc = grow(scratch, err);
        if (rc != 0) {
            return rc;
        }
    }
}

int64_t fq_decompress(enum fq_codec codec, const uint8_t *from, size_t length,
                      struct fq_batch_scratch *scratch, struct fq_err *err)
{
    return codec == FQ_CODEC_LZ4 ? lz4_decompress(from, length, scratch, err)
                                 : zstd_decompress(from, length, scratch, err);
}

/* ---- compression ---------------------------------------------------------------------------- */

static void *state_of(void **state, int bytes)
{
    if (!*state) {
        *state = malloc((size_t)bytes);
    }
    return *state;
}

/* One block's bytes, at most `capacity`; 0: does not fit. */
static int lz4_block(struct fq_batch_compressor *compressor, int level, const uint8_t *from,
                     int length, uint8_t *out, int capacity)
{
    return level < LZ4HC_CLEVEL_MIN
               ? LZ4_compress_fast_extState(compressor->lz4, (const char *)from, (char *)out,
                                            length, capacity, 1)
               : LZ4_compress_HC_extStateHC(compressor->lz4_hc, (const char *)from, (char *)out,
                                            length, capacity, level);
}

static int64_t lz4_compress(int level, const uint8_t *from, size_t length, uint8_t *out,
                            size_t capacity, struct fq_batch_compressor *compressor)
{
    bool has_state = level < LZ4HC_CLEVEL_MIN
                         ? state_of(&compressor->lz4, LZ4_sizeofState()) != NULL
                         : state_of(&compressor->lz4_hc, LZ4_sizeofStateHC()) != NULL;
    if (!has_state) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    struct fq_writer w;
    fq_writer_init(&w, out, capacity);
    fq_write_bytes(&w, lz4_frame_header, sizeof lz4_frame_header);
    while (length > 0 && !w.failed) {
        size_t block = length < LZ4_BLOCK_BYTES ? length : LZ4_BLOCK_BYTES;
        uint8_t *block_header = fq_write_room(&w, 4);
        size_t room = (size_t)(w.end - w.at);
        size_t most = room < block ? room : block - 1; /* else it is stored as it is */
        int made = most > 0 && block_header
                       ? lz4_block(compressor, level, from, (int)block, w.at, (int)most)
                       : 0;
        if (made > 0) {
            fq_store_le32(block_header, (uint32_t)made);
            (void)fq_write_room(&w, (size_t)made);
        } else if (block_header) {
            fq_store_le32(block_header, (uint32_t)block | LZ4_BLOCK_STORED);
            fq_write_bytes(&w, from, block);
        }
        from += block;
        length -= block;
    }
    fq_write_u32(&w, 0);
    return w.failed ? 0 : (int64_t)fq_writer_used(&w);
}

static int64_t zstd_compress(int level, const uint8_t *from, size_t length, uint8_t *out,
                             size_t capacity, struct fq_batch_compressor *compressor)
{
    if (!compressor->zstd && !(compressor->zstd = ZSTD_createCCtx())) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    size_t made = ZSTD_compressCCtx(compressor->zstd, out, capacity, from, length,
                                    level != 0 ? level : ZSTD_CLEVEL_DEFAULT);
    if (!ZSTD_isError(made)) {
        return (int64_t)made;
    }
    return ZSTD_getErrorCode(made) == ZSTD_error_dstSize_tooSmall ? 0 : FLASHQ_ERR_NO_MEMORY;
}

int64_t fq_compress(enum fq_codec codec, int level, const uint8_t *from, size_t length,
                    uint8_t *out, size_t capacity, struct fq_batch_compressor *compressor)
{
    if (codec == FQ_CODEC_LZ4) {
        return lz4_compress(level, from, length, out, capacity, compressor);
    }
    if (codec == FQ_CODEC_ZSTD) {
        return zstd_compress(level, from, length, out, capacity, compressor);
    }
    return FLASHQ_ERR_INVALID;
}
