/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the records of a batch. Each record is {varint length, i8 attributes (0), varlong
 * timestamp delta, varint offset delta, key, value, varint headers count, headers}; key, value and
 * a header's value are {varint length or -1 for null, bytes}. Every length is checked against its
 * record, every record against the batch; what a producer says about itself (count, offset deltas,
 * timestamps) is compared with what is there. Malformed bytes are FLASHQ_ERR_PROTOCOL. No state but
 * the caller's; any thread.
 */
#include <string.h>

#include "base/bytes.h"
#include "wire/compress.h"
#include "wire/varint.h"

#define RECORD_BYTES_MIN 7 /* each of its parts at their shortest */
#define HEADER_BYTES_MIN 2

bool fq_varint_get_long(const uint8_t **at, const uint8_t *end, int64_t *ret)
{
    const uint8_t *from = *at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && from < end; shift += 7) {
        uint64_t byte = *from++;
        if (shift == 63 && byte > 1) {
            return false; /* more than 64 bits */
        }
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0) {
                return false; /* a shorter form exists */
            }
            *at = from;
            *ret = fq_unzigzag(value);
            return true;
        }
    }
    return false;
}

/* {varint length, bytes}; a length of -1 is null where `may_be_null`. */
static bool slice_get(const uint8_t **at, const uint8_t *end, bool may_be_null,
                      struct fq_slice *ret)
{
    int32_t length;
    if (!fq_varint_get32(at, end, &length)) {
        return false;
    }
    if (length < 0) {
        *ret = (struct fq_slice){0};
        return length == -1 && may_be_null;
    }
    if ((size_t)length > (size_t)(end - *at)) {
        return false;
    }
    *ret = (struct fq_slice){.data = *at, .length = (size_t)length};
    *at += length;
    return true;
}

static bool header_get(const uint8_t **at, const uint8_t *end, struct fq_header *ret)
{
    return slice_get(at, end, false, &ret->name) && slice_get(at, end, true, &ret->value);
}

void fq_headers_iter_init(struct fq_headers_iter *iter, const struct fq_record *record)
{
    iter->at = record->headers_bytes;
    iter->end = record->headers_bytes + record->headers_length;
    iter->left = record->headers_count;
}

int fq_headers_next(struct fq_headers_iter *iter, struct fq_header *ret)
{
    if (iter->left == 0) {
        return iter->at == iter->end ? 0 : FLASHQ_ERR_PROTOCOL;
    }
    if (!header_get(&iter->at, iter->end, ret)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    iter->left--;
    return 1;
}

/* What one record says, deltas as they are. */
struct parsed {
    int64_t timestamp_delta;
    int32_t offset_delta;
    struct fq_record record; /* key, value, headers */
};

static bool headers_ok(const struct fq_record *record)
{
    const uint8_t *at = record->headers_bytes, *end = at + record->headers_length;
    if (record->headers_count > record->headers_length / HEADER_BYTES_MIN) {
        return false;
    }
    struct fq_header header;
    for (uint32_t i = 0; i < record->headers_count; i++) {
        if (!header_get(&at, end, &header)) {
            return false;
        }
    }
    return at == end;
}

static inline bool record_parse(const uint8_t **at, const uint8_t *end, struct parsed *ret)
{
    int32_t length, headers_count;
    if (!fq_varint_get32(at, end, &length) || length < RECORD_BYTES_MIN - 1 ||
        (size_t)length > (size_t)(end - *at)) {
        return false;
    }
    const uint8_t *in = *at;
    const uint8_t *record_end = in + length;
    if (*in++ != 0 || !fq_varint_get(&in, record_end, &ret->timestamp_delta) ||
        !fq_varint_get32(&in, record_end, &ret->offset_delta) ||
        !slice_get(&in, record_end, true, &ret->record.key) ||
        !slice_get(&in, record_end, true, &ret->record.value) ||
        !fq_varint_get32(&in, record_end, &headers_count) || headers_count < 0 ||
        headers_count > FQ_LIMIT_RECORD_HEADERS) {
        return false;
    }
    ret->record.headers_bytes = in;
    ret->record.headers_length = (size_t)(record_end - in);
    ret->record.headers_count = (uint32_t)headers_count;
    *at = record_end;
    return headers_count == 0 ? in == record_end : headers_ok(&ret->record);
}

/* ---- walking -------------------------------------------------------------------------------- */

/* Header, total length, and that the offsets of the records are numbers. */
static int open_batch(const uint8_t *batch, size_t length, struct fq_batch_header *ret,
                      struct fq_err *err)
{
    int rc = fq_batch_header_read(batch, length, ret, err);
    if (rc != 0) {
        return rc;
    }
    if (fq_batch_total_bytes(ret) != length) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "the batch says it has %llu bytes; %zu are there",
                          (unsigned long long)fq_batch_total_bytes(ret), length);
    }
    if (ret->base_offset < 0 || ret->base_offset > INT64_MAX - ret->records_count) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the batch has base offset %lld",
                          (long long)ret->base_offset);
    }
    return 0;
}

int fq_batch_iter_init(struct fq_batch_iter *iter, const uint8_t *batch, size_t length,
                       struct fq_batch_scratch *scratch, struct fq_err *err)
{
    struct fq_batch_iter it = {.greatest = INT64_MIN};
    int rc = open_batch(batch, length, &it.header, err);
    if (rc != 0) {
        return rc;
    }
    it.at = batch + FQ_BATCH_HEADER_BYTES;
    it.end = batch + length;
    if (fq_batch_codec(&it.header) != FQ_CODEC_NONE) {
        int64_t made = fq_decompress(fq_batch_codec(&it.header), it.at, (size_t)(it.end - it.at),
                                     scratch, err);
        if (made < 0) {
            return (int)made;
        }
        it.at = scratch->data;
        it.end = it.at + made;
    }
    if ((size_t)it.header.records_count > (size_t)(it.end - it.at) / RECORD_BYTES_MIN) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%d records do not fit the batch's %zu bytes",
                          (int)it.header.records_count, (size_t)(it.end - it.at));
    }
    *iter = it;
    return 0;
}

static bool has_append_time(const struct fq_batch_header *header)
{
    return (header->attributes & FQ_BATCH_ATTR_LOG_APPEND_TIME) != 0;
}

int fq_batch_iter_next(struct fq_batch_iter *iter, struct fq_record *ret)
{
    const struct fq_batch_header *header = &iter->header;
    if (iter->index == header->records_count) {
        bool agrees = iter->at == iter->end &&
                      (has_append_time(header) || iter->greatest == header->max_timestamp);
        return agrees ? 0 : FLASHQ_ERR_PROTOCOL;
    }
    struct parsed parsed;
    int64_t timestamp;
    const uint8_t *at = iter->at;
    if (!record_parse(&at, iter->end, &parsed) || parsed.offset_delta != iter->index ||
        __builtin_add_overflow(header->base_timestamp, parsed.timestamp_delta, &timestamp)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    iter->at = at;
    iter->greatest = timestamp > iter->greatest ? timestamp : iter->greatest;
    parsed.record.offset = header->base_offset + iter->index;
    parsed.record.timestamp_ms = has_append_time(header) ? header->max_timestamp : timestamp;
    iter->index++;
    *ret = parsed.record;
    return 1;
}

/* ---- checking ------------------------------------------------------------------------------- */

struct walk {
    int64_t least, greatest; /* timestamps */
};

/* What nearly all records look like: no headers, lengths and timestamp delta of at most two bytes,
 * key below 64 bytes. Read without a call and with one compare for the offset delta: a number has
 * one canonical form. */
#define PLAIN_ROOM      16u /* bytes that may be looked at without asking further */
#define PLAIN_DELTA_MAX 8192

/* The offset delta that comes next, as it is written. */
struct expected {
    uint32_t bytes, mask;
    unsigned length;
};

static inline struct expected expect(uint32_t delta)
{
    uint32_t v = 2 * delta; /* zigzag of what is not negative; below 2^21 */
    if (v < 1u << 7) {
        return (struct expected){v, 0xff, 1};
    }
    if (v < 1u << 14) {
        return (struct expected){(v & 0x7f) | 0x80 | (v >> 7) << 8, 0xffff, 2};
    }
    return (struct expected){(v & 0x7f) | 0x80 | ((v >> 7 & 0x7f) | 0x80) << 8 | (v >> 14) << 16,
                             0xffffff, 3};
}
_Static_assert(FQ_LIMIT_BATCH_RECORDS <= 1u << 20, "three bytes are enough for any offset delta");

/* One or two bytes at `at`, both readable, as they are (zigzag); how many, or 0: neither. */
static inline unsigned short_varint(const uint8_t *at, uint32_t *ret)
{
    uint32_t low = at[0], high = at[1];
    if (low < 0x80) {
        *ret = low;
        return 1;
    }
    *ret = (low & 0x7f) | high << 7;
    return high - 1 < 0x7f ? 2 : 0;
}

/* How long the record at `at` is with its length; 0: it may be good or bad, but it is not plain. */
static inline size_t plain_record(const uint8_t *at, size_t left, uint32_t index,
                                  int64_t *ret_delta)
{
    uint32_t length, delta, value;
    unsigned n;
    if (left < PLAIN_ROOM || (n = short_varint(at, &length)) == 0 || (length & 1) != 0 ||
        length / 2 > left - n || at[n] != 0) {
        return 0;
    }
    size_t end = n + length / 2, pos = n + 1;
    n = short_varint(at + pos, &delta); /* at most at byte 3 */
    pos += n;
    const struct expected expected = expect(index);
    if (n == 0 ||
        ((fq_load_le32(at + pos) ^ expected.bytes) & expected.mask) != 0) { /* at most at 5 */
        return 0;
    }
    pos += expected.length;
    uint32_t key = at[pos++]; /* at most at 9 */
    if (key != 1) {
        if ((key & 0x81) != 0) {
            return 0;
        }
        pos += key / 2;
    }
    if (pos + 2 > end) {
        return 0;
    }
    n = short_varint(at + pos, &value);
    if (n == 0 || (value != 1 && (value & 1) != 0)) {
        return 0;
    }
    pos += n + value / 2; /* null, which is 1, has none */
    if (pos + 1 != end || at[pos] != 0) {
        return 0;
    }
    *ret_delta = fq_unzigzag(delta);
    return end;
}

static int careful_record(const struct fq_batch_header *header, const uint8_t **at,
                          const uint8_t *end, int32_t index, int64_t *ret_delta, struct fq_err *err)
{
    struct parsed parsed;
    int64_t timestamp;
    if (!record_parse(at, end, &parsed)) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "record %d of the batch is malformed",
                          (int)index);
    }
    if (parsed.offset_delta != index) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "record %d of the batch has offset delta %d",
                          (int)index, (int)parsed.offset_delta);
    }
    if (__builtin_add_overflow(header->base_timestamp, parsed.timestamp_delta, &timestamp) ||
        (index == 0 && parsed.timestamp_delta != 0)) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "record %d of the batch has timestamp delta %lld", (int)index,
                          (long long)parsed.timestamp_delta);
    }
    *ret_delta = parsed.timestamp_delta;
    return 0;
}

static int walk_records(const struct fq_batch_header *header, const uint8_t *at, const uint8_t *end,
                        struct walk *ret, struct fq_err *err)
{
    int64_t least = INT64_MAX, greatest = INT64_MIN; /* deltas: none of them passes 64 bits */
    bool may_be_plain = header->base_timestamp >= INT64_MIN + PLAIN_DELTA_MAX &&
                        header->base_timestamp <= INT64_MAX - PLAIN_DELTA_MAX;
    for (int32_t i = 0; i < header->records_count; i++) {
        int64_t delta = 0;
        size_t bytes = may_be_plain ? plain_record(at, (size_t)(end - at), (uint32_t)i, &delta) : 0;
        at += bytes;
        if (bytes == 0 || (i == 0 && delta != 0)) {
            at -= bytes;
            int rc = careful_record(header, &at, end, i, &delta, err);
            if (rc != 0) {
                return rc;
            }
        }
        least = delta < least ? delta : least;
        greatest = delta > greatest ? delta : greatest;
    }
    if (at != end) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%zu bytes follow the batch's last record",
                          (size_t)(end - at));
    }
    *ret = (struct walk){header->base_timestamp + least, header->base_timestamp + greatest};
    return 0;
}

int fq_batch_check_records(const uint8_t *batch, size_t length, int64_t *ret_min_timestamp,
                           int64_t *ret_max_timestamp, struct fq_err *err)
{
    struct fq_batch_header header;
    int rc = open_batch(batch, length, &header, err);
    if (rc != 0) {
        return rc;
    }
    if ((header.attributes & ~FQ_BATCH_ATTR_CODEC_MASK) != 0) {
        return fq_err_set(
            err, FLASHQ_ERR_UNSUPPORTED,
            "the batch has attributes 0x%02x; append time, transactions, control records "
            "and delete horizons are not supported",
            (unsigned)header.attributes);
    }
    struct walk walk = {.least = header.base_timestamp, .greatest = header.max_timestamp};
    if (fq_batch_codec(&header) == FQ_CODEC_NONE) {
        rc = walk_records(&header, batch + FQ_BATCH_HEADER_BYTES, batch + length, &walk, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (walk.greatest != header.max_timestamp || header.base_timestamp > header.max_timestamp) {
        return fq_err_set(
            err, FLASHQ_ERR_PROTOCOL,
            "the batch says its timestamps run from %lld to at most %lld; the greatest is "
            "%lld",
            (long long)header.base_timestamp, (long long)header.max_timestamp,
            (long long)walk.greatest);
    }
    *ret_min_timestamp = walk.least;
    *ret_max_timestamp = walk.greatest;
    return 0;
}
