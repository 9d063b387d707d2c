/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a batch, its CRC, and what is changed in a finished batch: the broker's stamp, a
 * renumbering, compression. No state; any thread.
 */
#include "wire/record_batch.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/compress.h"

#define KNOWN_ATTRIBUTES                                                                           \
    (FQ_BATCH_ATTR_CODEC_MASK | FQ_BATCH_ATTR_LOG_APPEND_TIME | FQ_BATCH_ATTR_TRANSACTIONAL |      \
     FQ_BATCH_ATTR_CONTROL | FQ_BATCH_ATTR_DELETE_HORIZON)
#define LENGTH_MIN (FQ_BATCH_HEADER_BYTES - FQ_BATCH_LEADER_EPOCH) /* of batchLength */

_Static_assert(FQ_BATCH_HEADER_BYTES == FQ_LIMIT_BATCH_HEADER_BYTES, "one header, one length");
_Static_assert(FQ_BATCH_RECORDS_COUNT + 4 == FQ_BATCH_HEADER_BYTES, "the count is the last field");

static const char *const codec_names[] = {
    [FQ_CODEC_NONE] = "none", [FQ_CODEC_GZIP] = "gzip", [FQ_CODEC_SNAPPY] = "snappy",
    [FQ_CODEC_LZ4] = "lz4",   [FQ_CODEC_ZSTD] = "zstd",
};
#define CODECS_COUNT (sizeof codec_names / sizeof codec_names[0])

const char *fq_codec_name(enum fq_codec codec)
{
    return (unsigned)codec < CODECS_COUNT ? codec_names[codec] : "unknown";
}

int fq_codec_parse(const char *text, enum fq_codec *ret)
{
    static const enum fq_codec supported[] = {FQ_CODEC_NONE, FQ_CODEC_LZ4, FQ_CODEC_ZSTD};
    for (size_t i = 0; i < sizeof supported / sizeof supported[0]; i++) {
        if (strcmp(text, codec_names[supported[i]]) == 0) {
            *ret = supported[i];
            return 0;
        }
    }
    return FLASHQ_ERR_INVALID;
}

static void header_load(const uint8_t *at, struct fq_batch_header *ret)
{
    ret->base_offset = (int64_t)fq_load_be64(at + FQ_BATCH_BASE_OFFSET);
    ret->batch_length = (int32_t)fq_load_be32(at + FQ_BATCH_LENGTH);
    ret->leader_epoch = (int32_t)fq_load_be32(at + FQ_BATCH_LEADER_EPOCH);
    ret->magic = (int8_t)at[FQ_BATCH_MAGIC];
    ret->crc = fq_load_be32(at + FQ_BATCH_CRC);
    ret->attributes = (int16_t)fq_load_be16(at + FQ_BATCH_ATTRIBUTES);
    ret->last_offset_delta = (int32_t)fq_load_be32(at + FQ_BATCH_LAST_OFFSET_DELTA);
    ret->base_timestamp = (int64_t)fq_load_be64(at + FQ_BATCH_BASE_TIMESTAMP);
    ret->max_timestamp = (int64_t)fq_load_be64(at + FQ_BATCH_MAX_TIMESTAMP);
    ret->producer_id = (int64_t)fq_load_be64(at + FQ_BATCH_PRODUCER_ID);
    ret->producer_epoch = (int16_t)fq_load_be16(at + FQ_BATCH_PRODUCER_EPOCH);
    ret->base_sequence = (int32_t)fq_load_be32(at + FQ_BATCH_BASE_SEQUENCE);
    ret->records_count = (int32_t)fq_load_be32(at + FQ_BATCH_RECORDS_COUNT);
}

static int header_check(const struct fq_batch_header *h, struct fq_err *err)
{
    if (h->magic != 2) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the batch has magic %d; only 2 is known",
                          h->magic);
    }
    if (h->batch_length < LENGTH_MIN) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "the batch has length %d, less than its header's %d",
                          (int)h->batch_length, LENGTH_MIN);
    }
    if ((h->attributes & ~KNOWN_ATTRIBUTES) != 0) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the batch has unknown attributes 0x%04x",
                          (unsigned)(uint16_t)h->attributes);
    }
    enum fq_codec codec = fq_batch_codec(h);
    if (codec == FQ_CODEC_GZIP || codec == FQ_CODEC_SNAPPY) {
        return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED,
                          "the batch is compressed with %s; none, lz4 and zstd are supported",
                          fq_codec_name(codec));
    }
    if ((unsigned)codec >= CODECS_COUNT) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the batch has the unknown codec %d",
                          (int)codec);
    }
    if (h->records_count < 1 || h->last_offset_delta != h->records_count - 1) {
        return fq_err_set(
            err, FLASHQ_ERR_PROTOCOL,
            "the batch has %d records and last offset delta %d; at least 1 and one less "
            "than the count are wanted",
            (int)h->records_count, (int)h->last_offset_delta);
    }
    if (h->records_count > FQ_LIMIT_BATCH_RECORDS) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "the batch has %d records, over the limit of %d",
                          (int)h->records_count, FQ_LIMIT_BATCH_RECORDS);
    }
    return 0;
}

int fq_batch_header_read(const void *bytes, size_t length, struct fq_batch_header *ret,
                         struct fq_err *err)
{
    if (length < FQ_BATCH_HEADER_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%zu bytes are no batch: its header has %d",
                          length, FQ_BATCH_HEADER_BYTES);
    }
    struct fq_batch_header header;
    header_load(bytes, &header);
    int rc = header_check(&header, err);
    if (rc == 0) {
        *ret = header;
    }
    return rc;
}

void fq_batch_header_write(const struct fq_batch_header *h, uint8_t *at)
{
    fq_store_be64(at + FQ_BATCH_BASE_OFFSET, (uint64_t)h->base_offset);
    fq_store_be32(at + FQ_BATCH_LENGTH, (uint32_t)h->batch_length);
    fq_store_be32(at + FQ_BATCH_LEADER_EPOCH, (uint32_t)h->leader_epoch);
    at[FQ_BATCH_MAGIC] = (uint8_t)h->magic;
    fq_store_be32(at + FQ_BATCH_CRC, h->crc);
    fq_store_be16(at + FQ_BATCH_ATTRIBUTES, (uint16_t)h->attributes);
    fq_store_be32(at + FQ_BATCH_LAST_OFFSET_DELTA, (uint32_t)h->last_offset_delta);
    fq_store_be64(at + FQ_BATCH_BASE_TIMESTAMP, (uint64_t)h->base_timestamp);
    fq_store_be64(at + FQ_BATCH_MAX_TIMESTAMP, (uint64_t)h->max_timestamp);
    fq_store_be64(at + FQ_BATCH_PRODUCER_ID, (uint64_t)h->producer_id);
    fq_store_be16(at + FQ_BATCH_PRODUCER_EPOCH, (uint16_t)h->producer_epoch);
    fq_store_be32(at + FQ_BATCH_BASE_SEQUENCE, (uint32_t)h->base_sequence);
    fq_store_be32(at + FQ_BATCH_RECORDS_COUNT, (uint32_t)h->records_count);
}

void fq_batch_stamp(uint8_t *batch, int64_t base_offset, int32_t leader_epoch)
{
    fq_store_be64(batch + FQ_BATCH_BASE_OFFSET, (uint64_t)base_offset);
    fq_store_be32(batch + FQ_BATCH_LEADER_EPOCH, (uint32_t)leader_epoch);
}

static uint32_t crc_of(const uint8_t *batch, size_t length)
{
    return fq_crc32c(0, batch + FQ_BATCH_ATTRIBUTES, length - FQ_BATCH_ATTRIBUTES);
}

bool fq_batch_crc_ok(const uint8_t *batch, size_t length)
{
    return length >= FQ_BATCH_HEADER_BYTES &&
           crc_of(batch, length) == fq_load_be32(batch + FQ_BATCH_CRC);
}

void fq_batch_crc_store(uint8_t *batch, size_t length)
{
    fq_store_be32(batch + FQ_BATCH_CRC, crc_of(batch, length));
}

void fq_batch_renumber(uint8_t *batch, size_t length, int64_t producer_id, int16_t producer_epoch,
                       int32_t base_sequence)
{
    fq_store_be64(batch + FQ_BATCH_PRODUCER_ID, (uint64_t)producer_id);
    fq_store_be16(batch + FQ_BATCH_PRODUCER_EPOCH, (uint16_t)producer_epoch);
    fq_store_be32(batch + FQ_BATCH_BASE_SEQUENCE, (uint32_t)base_sequence);
    fq_batch_crc_store(batch, length);
}

static int64_t compress_with(struct fq_batch_compressor *compressor, const uint8_t *batch,
                             size_t length, enum fq_codec codec, int level, uint8_t *out,
                             size_t out_capacity)
{
    size_t smaller = length - 1 < out_capacity ? length - 1 : out_capacity;
    if (smaller <= FQ_BATCH_HEADER_BYTES) {
        return 0;
    }
    int64_t made =
        fq_compress(codec, level, batch + FQ_BATCH_HEADER_BYTES, length - FQ_BATCH_HEADER_BYTES,
                    out + FQ_BATCH_HEADER_BYTES, smaller - FQ_BATCH_HEADER_BYTES, compressor);
    if (made <= 0) {
        return made;
    }
    size_t total = (size_t)made + FQ_BATCH_HEADER_BYTES;
    uint16_t attributes = fq_load_be16(batch + FQ_BATCH_ATTRIBUTES);
    memcpy(out, batch, FQ_BATCH_HEADER_BYTES);
    fq_store_be16(out + FQ_BATCH_ATTRIBUTES, (uint16_t)(attributes | (uint16_t)codec));
    fq_store_be32(out + FQ_BATCH_LENGTH, (uint32_t)(total - FQ_BATCH_LEADER_EPOCH));
    fq_batch_crc_store(out, total);
    return (int64_t)total;
}

int64_t fq_batch_compress(struct fq_batch_compressor *compressor, const uint8_t *batch,
                          size_t length, enum fq_codec codec, int level, void *out,
                          size_t out_capacity)
{
    struct fq_batch_header header = {0};
    int rc = fq_batch_header_read(batch, length, &header, NULL);
    if (rc != 0 || fq_batch_total_bytes(&header) != length ||
        fq_batch_codec(&header) != FQ_CODEC_NONE) {
        return FLASHQ_ERR_INVALID;
    }
    if (compressor) {
        return compress_with(compressor, batch, length, codec, level, out, out_capacity);
    }
    struct fq_batch_compressor own = {0};
    int64_t made = compress_with(&own, batch, length, codec, level, out, out_capacity);
    fq_batch_compressor_fini(&own);
    return made;
}
