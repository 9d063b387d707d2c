/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a batch in the caller's memory: records go behind the space for the header, each written
 * once where it stays; finish writes header and CRC. A record that does not fit changes nothing. No
 * state but the caller's; any thread.
 */
#include <string.h>

#include "base/bytes.h"
#include "wire/record_batch.h"
#include "wire/varint.h"

#define NULL_BYTES 1 /* the varint of -1 */

void fq_batch_builder_init(struct fq_batch_builder *builder, void *buffer, size_t capacity)
{
    *builder = (struct fq_batch_builder){
        .buffer = buffer,
        .capacity = capacity < INT32_MAX ? capacity : INT32_MAX,
        .used = FQ_BATCH_HEADER_BYTES,
    };
}

static size_t slice_bytes(const struct fq_slice *slice)
{
    return slice->data ? fq_varint_bytes((int64_t)slice->length) + slice->length : NULL_BYTES;
}

/* What the record's length field counts, for a timestamp that lies `delta` after the base. */
static size_t body_bytes(const struct fq_batch_builder *builder, const struct fq_record_in *record,
                         int64_t delta)
{
    size_t bytes = 1 + fq_varint_bytes(delta) + fq_varint_bytes(builder->records_count) +
                   slice_bytes(&record->key) + slice_bytes(&record->value) +
                   fq_varint_bytes((int64_t)record->headers_count);
    for (size_t i = 0; i < record->headers_count; i++) {
        const struct fq_header *header = &record->headers[i];
        bytes += fq_varint_bytes((int64_t)header->name.length) + header->name.length +
                 slice_bytes(&header->value);
    }
    return bytes;
}

static bool delta_of(const struct fq_batch_builder *builder, int64_t timestamp_ms, int64_t *ret)
{
    if (builder->records_count == 0) {
        *ret = 0;
        return true;
    }
    return !__builtin_sub_overflow(timestamp_ms, builder->base_timestamp, ret);
}

size_t fq_batch_builder_record_bytes(const struct fq_batch_builder *builder,
                                     const struct fq_record_in *record)
{
    int64_t delta;
    if (!delta_of(builder, record->timestamp_ms, &delta)) {
        delta = INT64_MAX; /* append refuses it; any size will do */
    }
    size_t body = body_bytes(builder, record, delta);
    return fq_varint_bytes((int64_t)body) + body;
}

static inline uint8_t *slice_put(uint8_t *at, const struct fq_slice *slice)
{
    if (!slice->data) {
        return fq_varint_put(at, -1);
    }
    at = fq_varint_put(at, (int64_t)slice->length);
    memcpy(at, slice->data, slice->length);
    return at + slice->length;
}

static uint8_t *headers_put(uint8_t *at, const struct fq_record_in *record)
{
    at = fq_varint_put(at, (int64_t)record->headers_count);
    for (size_t i = 0; i < record->headers_count; i++) {
        const struct fq_header *header = &record->headers[i];
        at = fq_varint_put(at, (int64_t)header->name.length);
        if (header->name.length > 0) {
            memcpy(at, header->name.data, header->name.length);
            at += header->name.length;
        }
        at = slice_put(at, &header->value);
    }
    return at;
}

/* Writes all but the value's bytes when `value_at` is asked for. */
static int append(struct fq_batch_builder *builder, const struct fq_record_in *record,
                  uint8_t **value_at)
{
    int64_t delta;
    if (!delta_of(builder, record->timestamp_ms, &delta)) {
        return FLASHQ_ERR_TIMESTAMP;
    }
    if (builder->records_count >= FQ_LIMIT_BATCH_RECORDS ||
        record->headers_count > FQ_LIMIT_RECORD_HEADERS || builder->used > builder->capacity) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    size_t body = body_bytes(builder, record, delta);
    if (fq_varint_bytes((int64_t)body) + body > builder->capacity - builder->used) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    uint8_t *at = fq_varint_put(builder->buffer + builder->used, (int64_t)body);
    *at++ = 0; /* attributes */
    at = fq_varint_put(at, delta);
    at = fq_varint_put(at, builder->records_count);
    at = slice_put(at, &record->key);
    if (value_at) {
        at = fq_varint_put(at, (int64_t)record->value.length);
        *value_at = at;
        at += record->value.length;
    } else {
        at = slice_put(at, &record->value);
    }
    at = headers_put(at, record);
    builder->used = (size_t)(at - builder->buffer);
    if (builder->records_count == 0) {
        builder->base_timestamp = builder->max_timestamp = record->timestamp_ms;
    } else if (record->timestamp_ms > builder->max_timestamp) {
        builder->max_timestamp = record->timestamp_ms;
    }
    builder->records_count++;
    return 0;
}

int fq_batch_builder_append(struct fq_batch_builder *builder, const struct fq_record_in *record)
{
    return append(builder, record, NULL);
}

int fq_batch_builder_claim(struct fq_batch_builder *builder, const struct fq_record_in *record,
                           uint8_t **ret_value)
{
    struct fq_record_in sized = *record;
    sized.value.data = builder->buffer; /* not null; never read */
    return append(builder, &sized, ret_value);
}

int64_t fq_batch_builder_finish(struct fq_batch_builder *builder, const struct fq_batch_finish *how)
{
    if (builder->records_count == 0) {
        return FLASHQ_ERR_INVALID;
    }
    struct fq_batch_header header = {
        .base_offset = 0,
        .batch_length = (int32_t)(builder->used - FQ_BATCH_LEADER_EPOCH),
        .leader_epoch = -1,
        .magic = 2,
        .attributes = (int16_t)(how->attributes & ~FQ_BATCH_ATTR_CODEC_MASK),
        .last_offset_delta = builder->records_count - 1,
        .base_timestamp = builder->base_timestamp,
        .max_timestamp = builder->max_timestamp,
        .producer_id = how->producer_id,
        .producer_epoch = how->producer_epoch,
        .base_sequence = how->base_sequence,
        .records_count = builder->records_count,
    };
    fq_batch_header_write(&header, builder->buffer);
    fq_batch_crc_store(builder->buffer, builder->used);
    return (int64_t)builder->used;
}
