/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kafka's RecordBatch v2 (magic 2), byte for byte: on the wire, in the log and in a replica.
 * The CRC-32C covers everything from `attributes` on, so the broker stamps baseOffset and
 * partitionLeaderEpoch afterwards without touching it. Field layout: PROTOCOL.md, "Record batch".
 *
 * Nothing here trusts its input: lengths are checked against the bytes left, varints must be
 * canonical and fit, counts are never used to allocate before the bytes have arrived. Malformed
 * bytes are FLASHQ_ERR_PROTOCOL everywhere here; a reader of a log, whose bytes were checked once,
 * calls it damage.
 */
#ifndef FQ_WIRE_RECORD_BATCH_H
#define FQ_WIRE_RECORD_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

/* Offsets of the fields (big-endian) in the 61-byte header. */
enum fq_batch_field {
    FQ_BATCH_BASE_OFFSET = 0,        /* int64 */
    FQ_BATCH_LENGTH = 8,             /* int32: bytes after this field */
    FQ_BATCH_LEADER_EPOCH = 12,      /* int32 */
    FQ_BATCH_MAGIC = 16,             /* int8: 2 */
    FQ_BATCH_CRC = 17,               /* uint32 */
    FQ_BATCH_ATTRIBUTES = 21,        /* int16; the CRC covers from here */
    FQ_BATCH_LAST_OFFSET_DELTA = 23, /* int32 */
    FQ_BATCH_BASE_TIMESTAMP = 27,    /* int64 */
    FQ_BATCH_MAX_TIMESTAMP = 35,     /* int64 */
    FQ_BATCH_PRODUCER_ID = 43,       /* int64 */
    FQ_BATCH_PRODUCER_EPOCH = 51,    /* int16 */
    FQ_BATCH_BASE_SEQUENCE = 53,     /* int32 */
    FQ_BATCH_RECORDS_COUNT = 57,     /* int32 */
    FQ_BATCH_HEADER_BYTES = 61
};

enum fq_codec {
    FQ_CODEC_NONE = 0,
    FQ_CODEC_GZIP = 1,   /* named in errors only */
    FQ_CODEC_SNAPPY = 2, /* likewise */
    FQ_CODEC_LZ4 = 3,
    FQ_CODEC_ZSTD = 4
};

#define FQ_BATCH_ATTR_CODEC_MASK      0x07
#define FQ_BATCH_ATTR_LOG_APPEND_TIME 0x08
#define FQ_BATCH_ATTR_TRANSACTIONAL   0x10
#define FQ_BATCH_ATTR_CONTROL         0x20
#define FQ_BATCH_ATTR_DELETE_HORIZON  0x40

struct fq_batch_header {
    int64_t base_offset;
    int32_t batch_length; /* as on the wire: total bytes - 12 */
    int32_t leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id; /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence; /* -1: none */
    int32_t records_count;
};

static inline uint64_t fq_batch_total_bytes(const struct fq_batch_header *h)
{
    return (uint64_t)(uint32_t)h->batch_length + 12u;
}

static inline enum fq_codec fq_batch_codec(const struct fq_batch_header *h)
{
    return (enum fq_codec)(h->attributes & FQ_BATCH_ATTR_CODEC_MASK);
}

/* Reads the header; `length` must be at least 61 or the result is FLASHQ_ERR_PROTOCOL. Checks only
 * what makes the other fields meaningful: magic is 2, batch_length >= 49, count >= 1,
 * last_offset_delta == count - 1, known attributes and codec (none, lz4, zstd). gzip and snappy are
 * FLASHQ_ERR_UNSUPPORTED, more than FQ_LIMIT_BATCH_RECORDS records FLASHQ_ERR_LIMIT, all else
 * FLASHQ_ERR_PROTOCOL. */
int fq_batch_header_read(const void *bytes, size_t length, struct fq_batch_header *ret,
                         struct fq_err *err);
/* Writes FQ_BATCH_HEADER_BYTES. */
void fq_batch_header_write(const struct fq_batch_header *header, uint8_t *bytes);

/* The broker's stamp: stores baseOffset and partitionLeaderEpoch into a finished batch. */
void fq_batch_stamp(uint8_t *batch, int64_t base_offset, int32_t leader_epoch);

/* Recomputes the CRC over a complete batch and compares. `length` is the batch's total. */
bool fq_batch_crc_ok(const uint8_t *batch, size_t length);
/* Makes the CRC of a complete batch what it should be. */
void fq_batch_crc_store(uint8_t *batch, size_t length);

/* ---- records ------------------------------------------------------------------------------- */

/* Bytes with a null: data == NULL is null, length 0 with data != NULL is empty. */
struct fq_slice {
    const uint8_t *data;
    size_t length;
};

struct fq_header {
    struct fq_slice name; /* never null */
    struct fq_slice value;
};

struct fq_record {
    int64_t offset; /* absolute */
    int64_t timestamp_ms;
    struct fq_slice key;
    struct fq_slice value;
    const uint8_t *headers_bytes; /* encoded; walk them with fq_headers_next */
    size_t headers_length;
    uint32_t headers_count;
};

struct fq_headers_iter {
    const uint8_t *at, *end;
    uint32_t left;
};
void fq_headers_iter_init(struct fq_headers_iter *iter, const struct fq_record *record);
/* 1: *ret is the next header; 0: no more; negative: malformed. */
int fq_headers_next(struct fq_headers_iter *iter, struct fq_header *ret);

/* ---- decoding ------------------------------------------------------------------------------ */

/* A scratch area for decompression, kept from batch to batch. Zero-initialise. */
struct fq_batch_scratch {
    uint8_t *data;
    size_t capacity;
    void *lz4, *zstd; /* the libraries' contexts */
};
void fq_batch_scratch_fini(struct fq_batch_scratch *scratch);

struct fq_batch_iter {
    struct fq_batch_header header;
    const uint8_t *at, *end;
    int64_t greatest; /* timestamp so far */
    int32_t index;
};

/* Prepares to walk a complete batch whose CRC has been checked (or is not wanted); `length` is its
 * total. Compressed ones are decompressed into `scratch`, which grows as output arrives, up to
 * FQ_LIMIT_DECOMPRESSED_BYTES (beyond: FLASHQ_ERR_TOO_LARGE). Slices point into the batch or the
 * scratch, and live until the scratch is used again. */
int fq_batch_iter_init(struct fq_batch_iter *iter, const uint8_t *batch, size_t length,
                       struct fq_batch_scratch *scratch, struct fq_err *err);
/* 1: *ret is the next record; 0: no more (and count, length and greatest timestamp agreed with the
 * header); negative: malformed. */
int fq_batch_iter_next(struct fq_batch_iter *iter, struct fq_record *ret);

/* What the CRC cannot promise, checked when a batch is appended. For an uncompressed batch: walks
 * the records, confirms count, lengths, offset deltas 0..count-1, that the greatest timestamp is
 * max_timestamp and that the first record's is base_timestamp. Returns min and max timestamp. For
 * compressed batches min is base_timestamp and max the header's. Attributes other than the codec
 * are FLASHQ_ERR_UNSUPPORTED. */
int fq_batch_check_records(const uint8_t *batch, size_t length, int64_t *ret_min_timestamp,
                           int64_t *ret_max_timestamp, struct fq_err *err);

/* ---- encoding ------------------------------------------------------------------------------ */

struct fq_record_in {
    int64_t timestamp_ms;
    struct fq_slice key;
    struct fq_slice value;
    const struct fq_header *headers;
    size_t headers_count;
};

/* Builds one batch in caller's memory. */
struct fq_batch_builder {
    uint8_t *buffer;
    size_t capacity;
    size_t used; /* includes the header space */
    int32_t records_count;
    int64_t base_timestamp;
    int64_t max_timestamp;
};

void fq_batch_builder_init(struct fq_batch_builder *builder, void *buffer, size_t capacity);

/* The encoded size of a record if appended now (exact). */
size_t fq_batch_builder_record_bytes(const struct fq_batch_builder *builder,
                                     const struct fq_record_in *record);

/* 0; FLASHQ_ERR_TOO_LARGE when it does not fit, or the batch has FQ_LIMIT_BATCH_RECORDS or the
 * record more than FQ_LIMIT_RECORD_HEADERS; FLASHQ_ERR_TIMESTAMP when it is 2^63 ms from the first.
 * An error changes nothing. */
int fq_batch_builder_append(struct fq_batch_builder *builder, const struct fq_record_in *record);
/* A record whose value the caller writes where it stays: claimed with the most it may be, committed with
 * what it became. Until then it is not in the batch: the builder is as it was, and nothing may be appended. */
struct fq_batch_claim {
    size_t record_at, body_at, value_at, end; /* in the buffer: from here to here the claim may write */
    size_t value_bytes;                       /* claimed */
    int64_t timestamp_ms;
};
/* Like append with a value of record->value.length bytes (its data is not looked at): writes all but
 * the value, which goes to builder->buffer + ret->value_at. The same errors. */
int fq_batch_builder_claim(const struct fq_batch_builder *builder, const struct fq_record_in *record,
                           struct fq_batch_claim *ret);
/* Makes the claimed record part of the batch with a value of `length` <= claim->value_bytes: the one that
 * append would have made, so bytes move where a length became shorter. */
void fq_batch_builder_commit(struct fq_batch_builder *builder, const struct fq_batch_claim *claim,
                             size_t length);

struct fq_batch_finish {
    int64_t producer_id; /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence;
    int16_t attributes; /* without codec bits */
};

/* Writes header and CRC of an uncompressed batch in place: baseOffset 0, epoch -1. Returns the
 * total length (>= 61 + 1) or a negative code (no record). */
int64_t fq_batch_builder_finish(struct fq_batch_builder *builder,
                                const struct fq_batch_finish *how);

/* The libraries' contexts, kept from batch to batch. Zero-initialise. */
struct fq_batch_compressor {
    void *lz4, *lz4_hc, *zstd;
};
void fq_batch_compressor_fini(struct fq_batch_compressor *compressor);

/* Compresses a finished uncompressed batch into `out` (CRC and length made anew). Returns the total
 * length; 0 when the result would not be smaller or does not fit (send the original); negative on
 * an error. `level` 0: the codec's default; lz4 from 3 on is its slow, denser form. `compressor`
 * NULL: made for this call alone. */
int64_t fq_batch_compress(struct fq_batch_compressor *compressor, const uint8_t *batch,
                          size_t length, enum fq_codec codec, int level, void *out,
                          size_t out_capacity);

/* Changes producer fields of a finished batch (renumbering after a definite refusal) and its CRC.
 */
void fq_batch_renumber(uint8_t *batch, size_t length, int64_t producer_id, int16_t producer_epoch,
                       int32_t base_sequence);

/* "none", "lz4", "zstd" <-> enum; parse returns FLASHQ_ERR_INVALID for others. */
const char *fq_codec_name(enum fq_codec codec);
int fq_codec_parse(const char *text, enum fq_codec *ret);

#endif
