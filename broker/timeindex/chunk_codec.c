/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an `.index` file: the chunks of one sealed segment. All little-endian:
 *
 *      0  u64  magic "FQINDEX1"
 *      8  u32  version 1
 *     12  u32  partition
 *     16  u8   topic id [16]
 *     32  i64  base offset of the segment
 *     40  u64  bytes of data in the segment
 *     48  u32  count of entries
 *     52  u32  zero
 *     56  count entries: i64 base offset, u64 position, i64 min, i64 max timestamp
 *    ...  u32  CRC-32C of all bytes before it
 *
 * Entries begin at position 0 and the segment's base offset and go up strictly in both. The file is
 * derived: whatever is wrong with it, the segment is scanned instead.
 */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "timeindex/chunk_table.h"

enum { HEADER_BYTES = 56, ENTRY_BYTES = 32, CRC_BYTES = 4, VERSION = 1 };
static const char magic[8] = {'F', 'Q', 'I', 'N', 'D', 'E', 'X', '1'};

_Static_assert(sizeof(struct fq_chunk) == ENTRY_BYTES, "an entry is four words");

static const struct fq_chunk_segment *find_segment(const struct fq_chunks *chunks,
                                                   int64_t segment_base)
{
    uint64_t nodes = 0;
    if (chunks->count == 0) {
        return NULL;
    }
    size_t at = fq_chunk_table_segment_at(chunks, segment_base, &nodes);
    const struct fq_chunk_segment *segment = chunks->segments[at];
    bool is_whole = segment->base_offset == segment_base && !segment->is_blurred &&
                    segment->entries[0].base_offset == segment_base;
    return is_whole ? segment : NULL;
}

static size_t encoded_bytes(size_t count)
{
    return HEADER_BYTES + count * ENTRY_BYTES + CRC_BYTES;
}

size_t fq_chunks_encoded_bytes(const struct fq_chunks *chunks, int64_t segment_base)
{
    const struct fq_chunk_segment *segment = find_segment(chunks, segment_base);
    return segment ? encoded_bytes(segment->count) : 0;
}

int fq_chunks_encode(const struct fq_chunks *chunks, const struct fq_uuid *topic_id,
                     uint32_t partition, int64_t segment_base, void *out, size_t out_bytes)
{
    const struct fq_chunk_segment *segment = find_segment(chunks, segment_base);
    if (!segment) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    struct fq_writer w;
    fq_writer_init(&w, out, out_bytes);
    fq_write_bytes(&w, magic, sizeof magic);
    fq_write_u32(&w, VERSION);
    fq_write_u32(&w, partition);
    fq_write_bytes(&w, topic_id->bytes, sizeof topic_id->bytes);
    fq_write_u64(&w, (uint64_t)segment_base);
    fq_write_u64(&w, segment->data_end);
    fq_write_u32(&w, (uint32_t)segment->count);
    fq_write_u32(&w, 0);
    for (size_t i = 0; i < segment->count; i++) {
        const struct fq_chunk *entry = &segment->entries[i];
        fq_write_u64(&w, (uint64_t)entry->base_offset);
        fq_write_u64(&w, entry->position);
        fq_write_u64(&w, (uint64_t)entry->min_timestamp);
        fq_write_u64(&w, (uint64_t)entry->max_timestamp);
    }
    if (!w.failed) {
        fq_write_u32(&w, fq_crc32c(0, out, fq_writer_used(&w)));
    }
    return w.failed ? FLASHQ_ERR_TOO_LARGE : 0;
}

/* ---- decoding ------------------------------------------------------------------------------- */

struct expected {
    const struct fq_uuid *topic_id;
    uint32_t partition;
    int64_t segment_base, segment_end;
    uint64_t data_bytes;
};

static int corrupt(struct fq_err *err, const char *what)
{
    return fq_err_set(err, FLASHQ_ERR_CORRUPT, "index: %s", what);
}

/* Length, checksum and header; leaves the reader at the entries. */
static int check_header(struct fq_reader *r, const struct expected *expected, size_t *ret_count,
                        struct fq_err *err)
{
    const uint8_t *bytes = r->at;
    size_t length = fq_reader_left(r);
    if (length < encoded_bytes(1) || (length - encoded_bytes(0)) % ENTRY_BYTES != 0) {
        return corrupt(err, "not a possible length");
    }
    if (memcmp(fq_read_bytes(r, sizeof magic), magic, sizeof magic) != 0) {
        return corrupt(err, "not an index file");
    }
    if (fq_load_le32(bytes + length - CRC_BYTES) != fq_crc32c(0, bytes, length - CRC_BYTES)) {
        return corrupt(err, "checksum does not fit");
    }
    uint32_t version = fq_read_u32(r);
    if (version != VERSION) {
        return fq_err_set(err, FLASHQ_ERR_VERSION, "index: version %" PRIu32 ", known is %d",
                          version, VERSION);
    }
    uint32_t partition = fq_read_u32(r);
    const uint8_t *topic_id = fq_read_bytes(r, FQ_UUID_BYTES);
    int64_t segment_base = (int64_t)fq_read_u64(r);
    uint64_t data_bytes = fq_read_u64(r);
    uint32_t count = fq_read_u32(r);
    uint32_t zero = fq_read_u32(r);
    if (partition != expected->partition || segment_base != expected->segment_base ||
        memcmp(topic_id, expected->topic_id->bytes, FQ_UUID_BYTES) != 0) {
        return corrupt(err, "belongs to another segment");
    }
    if (data_bytes != expected->data_bytes) {
        return corrupt(err, "made for another length of the segment");
    }
    if (zero != 0 || encoded_bytes(count) != length) {
        return corrupt(err, "count does not fit the length");
    }
    *ret_count = count;
    return 0;
}

static bool fits_behind(const struct fq_chunk *entry, const struct fq_chunk *previous,
                        const struct expected *expected)
{
    if (entry->min_timestamp > entry->max_timestamp || entry->position >= expected->data_bytes ||
        entry->base_offset >= expected->segment_end) {
        return false;
    }
    if (!previous) {
        return entry->position == 0 && entry->base_offset == expected->segment_base;
    }
    return entry->position > previous->position && entry->base_offset > previous->base_offset;
}

static int read_entries(struct fq_reader *r, const struct expected *expected, size_t count,
                        struct fq_chunk_segment *into, struct fq_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct fq_chunk entry;
        entry.base_offset = (int64_t)fq_read_u64(r);
        entry.position = fq_read_u64(r);
        entry.min_timestamp = (int64_t)fq_read_u64(r);
        entry.max_timestamp = (int64_t)fq_read_u64(r);
        if (!fits_behind(&entry, i ? &into->entries[i - 1] : NULL, expected)) {
            return corrupt(err, "entries out of order or out of range");
        }
        fq_chunk_segment_push(into, &entry);
    }
    return r->failed ? corrupt(err, "too short") : 0;
}

int fq_chunks_load(struct fq_chunks *chunks, const struct fq_uuid *topic_id, uint32_t partition,
                   int64_t segment_base, int64_t segment_end, uint64_t data_bytes,
                   const void *bytes, size_t length, struct fq_err *err)
{
    const struct expected expected = {topic_id, partition, segment_base, segment_end, data_bytes};
    if (segment_base <= chunks->last_batch_offset) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "index: segment %" PRId64 " is not behind the last one", segment_base);
    }
    struct fq_reader r;
    fq_reader_init(&r, bytes, length);
    size_t count = 0;
    int code = check_header(&r, &expected, &count, err);
    if (code < 0) {
        return code;
    }
    struct fq_chunk_segment *segment = fq_chunk_segment_create(count);
    if (!segment || fq_chunk_table_reserve(chunks) < 0) {
        fq_chunk_segment_destroy(segment);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "index: no memory for %zu chunks", count);
    }
    code = read_entries(&r, &expected, count, segment, err);
    if (code < 0) {
        fq_chunk_segment_destroy(segment);
        return code;
    }
    segment->base_offset = segment_base;
    segment->data_end = data_bytes;
    chunks->segments[chunks->count++] = segment;
    fq_maxtree_push(&chunks->maxima, fq_maxtree_max(&segment->maxima));
    chunks->last_batch_offset = segment_end - 1;
    return 0;
}
