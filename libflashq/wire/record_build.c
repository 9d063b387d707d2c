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

/* The sizes of the record if it can be appended. */
static int measure(const struct fq_batch_builder *builder, const struct fq_record_in *record,
                   int64_t *ret_delta, size_t *ret_body)
{
    if (!delta_of(builder, record->timestamp_ms, ret_delta)) {
        return FLASHQ_ERR_TIMESTAMP;
    }
    if (builder->records_count >= FQ_LIMIT_BATCH_RECORDS ||
        record->headers_count > FQ_LIMIT_RECORD_HEADERS || builder->used > builder->capacity) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    *ret_body = body_bytes(builder, record, *ret_delta);
    bool fits = fq_varint_bytes((int64_t)*ret_body) + *ret_body <= builder->capacity - builder->used;
    return fits ? 0 : FLASHQ_ERR_TOO_LARGE;
}

/* What comes before the value. */
static uint8_t *front_put(const struct fq_batch_builder *builder, uint8_t *at,
                          const struct fq_record_in *record, int64_t delta)
{
    *at++ = 0; /* attributes */
    at = fq_varint_put(at, delta);
    at = fq_varint_put(at, builder->records_count);
    return slice_put(at, &record->key);
}

static void count_record(struct fq_batch_builder *builder, int64_t timestamp_ms)
{
    if (builder->records_count == 0) {
        builder->base_timestamp = builder->max_timestamp = timestamp_ms;
    } else if (timestamp_ms > builder->max_timestamp) {
        builder->max_timestamp = timestamp_ms;
    }
    builder->records_count++;
}

int fq_batch_builder_append(struct fq_batch_builder *builder, const struct fq_record_in *record)
{
    int64_t delta;
    size_t body;
    int code = measure(builder, record, &delta, &body);
    if (code != 0) {
        return code;
    }
    uint8_t *at = fq_varint_put(builder->buffer + builder->used, (int64_t)body);
    at = front_put(builder, at, record, delta);
    at = slice_put(at, &record->value);
    at = headers_put(at, record);
    builder->used = (size_t)(at - builder->buffer);
    count_record(builder, record->timestamp_ms);
    return 0;
}

int fq_batch_builder_claim(const struct fq_batch_builder *builder, const struct fq_record_in *record,
                           struct fq_batch_claim *ret)
{
    int64_t delta;
    size_t body;
    struct fq_record_in sized = *record;
    sized.value.data = builder->buffer; /* not null; never read */
    int code = measure(builder, &sized, &delta, &body);
    if (code != 0) {
        return code;
    }
    struct fq_batch_claim claim = {.record_at = builder->used, .value_bytes = record->value.length,
                                   .timestamp_ms = record->timestamp_ms};
    uint8_t *at = fq_varint_put(builder->buffer + builder->used, (int64_t)body);
    claim.body_at = (size_t)(at - builder->buffer);
    at = front_put(builder, at, record, delta);
    at = fq_varint_put(at, (int64_t)record->value.length);
    claim.value_at = (size_t)(at - builder->buffer);
    at = headers_put(at + record->value.length, record);
    claim.end = (size_t)(at - builder->buffer);
    *ret = claim;
    return 0;
}

void fq_batch_builder_commit(struct fq_batch_builder *builder, const struct fq_batch_claim *claim,
                             size_t length)
{
    uint8_t *buffer = builder->buffer;
    const uint8_t *headers = buffer + claim->value_at + claim->value_bytes;
    size_t front = claim->value_at - fq_varint_bytes((int64_t)claim->value_bytes) - claim->body_at;
    size_t behind = claim->end - (claim->value_at + claim->value_bytes);
    size_t body = front + fq_varint_bytes((int64_t)length) + length + behind;
    uint8_t *at = buffer + claim->record_at;
    if (length < claim->value_bytes) { /* each piece moves towards the front, or not at all */
        at = fq_varint_put(at, (int64_t)body);
        memmove(at, buffer + claim->body_at, front);
        at = fq_varint_put(at + front, (int64_t)length);
        memmove(at, buffer + claim->value_at, length);
        memmove(at + length, headers, behind);
    }
    builder->used = claim->record_at + fq_varint_bytes((int64_t)body) + body;
    count_record(builder, claim->timestamp_ms);
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
