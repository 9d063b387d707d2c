/* SPDX-License-Identifier: Apache-2.0 */
/* Segment header blocks to and from bytes; layout.h describes them. Pure functions. */
#include "storage/layout.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"

static const char *const state_letters[] = {
    [FQ_SEGMENT_FREE] = "FREE....",
    [FQ_SEGMENT_PREPARED] = "PREPARED",
    [FQ_SEGMENT_OPEN] = "OPEN:-)>",
    [FQ_SEGMENT_SEALED] = "SEALED##",
};
static const char *const state_names[] = {
    [FQ_SEGMENT_FREE] = "free",     [FQ_SEGMENT_PREPARED] = "prepared", [FQ_SEGMENT_OPEN] = "open",
    [FQ_SEGMENT_SEALED] = "sealed", [FQ_SEGMENT_UNKNOWN] = "damaged",
};

void fq_identity_encode(const struct fq_segment_identity *identity,
                        uint8_t out[FQ_SEG_IDENTITY_BYTES])
{
    memset(out, 0, FQ_SEG_IDENTITY_BYTES);
    memcpy(out + FQ_SEG_MAGIC, FQ_SEGMENT_MAGIC, 8);
    fq_store_le32(out + FQ_SEG_VERSION, FQ_MEDIA_VERSION);
    fq_store_le32(out + FQ_SEG_HEADER_BYTES, FQ_SEG_DATA);
    memcpy(out + FQ_SEG_TOPIC_ID, identity->topic_id.bytes, FQ_UUID_BYTES);
    fq_store_le32(out + FQ_SEG_PARTITION, identity->partition);
    fq_store_le32(out + FQ_SEG_FIRST_EPOCH, (uint32_t)identity->first_epoch);
    fq_store_le64(out + FQ_SEG_BASE_OFFSET, (uint64_t)identity->base_offset);
    fq_store_le64(out + FQ_SEG_FILE_BYTES, identity->file_bytes);
    fq_store_le64(out + FQ_SEG_LIFE, identity->life);
    fq_store_le64(out + FQ_SEG_FIRST_RETENTION, (uint64_t)identity->first_retention_ms);
    fq_store_le32(out + FQ_SEG_IDENTITY_CRC, fq_crc32c(0, out, FQ_SEG_IDENTITY_CRC));
}

static bool is_blank(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

enum fq_identity_result fq_identity_decode(const uint8_t header[FQ_SEG_DATA],
                                           struct fq_segment_identity *ret)
{
    if (is_blank(header, FQ_SEG_IDENTITY_BYTES)) {
        return FQ_IDENTITY_BLANK;
    }
    if (memcmp(header + FQ_SEG_MAGIC, FQ_SEGMENT_MAGIC, 8) != 0 ||
        fq_load_le32(header + FQ_SEG_IDENTITY_CRC) != fq_crc32c(0, header, FQ_SEG_IDENTITY_CRC) ||
        fq_load_le32(header + FQ_SEG_IDENTITY_CRC + 4) != 0) {
        return FQ_IDENTITY_DAMAGED;
    }
    if (fq_load_le32(header + FQ_SEG_VERSION) != FQ_MEDIA_VERSION) {
        return FQ_IDENTITY_VERSION;
    }
    if (fq_load_le32(header + FQ_SEG_HEADER_BYTES) != FQ_SEG_DATA) {
        return FQ_IDENTITY_DAMAGED;
    }
    memcpy(ret->topic_id.bytes, header + FQ_SEG_TOPIC_ID, FQ_UUID_BYTES);
    ret->partition = fq_load_le32(header + FQ_SEG_PARTITION);
    ret->first_epoch = (int32_t)fq_load_le32(header + FQ_SEG_FIRST_EPOCH);
    ret->base_offset = (int64_t)fq_load_le64(header + FQ_SEG_BASE_OFFSET);
    ret->file_bytes = fq_load_le64(header + FQ_SEG_FILE_BYTES);
    ret->life = fq_load_le64(header + FQ_SEG_LIFE);
    ret->first_retention_ms = (int64_t)fq_load_le64(header + FQ_SEG_FIRST_RETENTION);
    return FQ_IDENTITY_OK;
}

uint64_t fq_state_word(enum fq_segment_state state)
{
    return fq_load_le64(state_letters[state]);
}

enum fq_segment_state fq_state_read(uint64_t word)
{
    for (unsigned i = 0; i < sizeof state_letters / sizeof state_letters[0]; i++) {
        if (word == fq_load_le64(state_letters[i])) {
            return (enum fq_segment_state)i;
        }
    }
    return FQ_SEGMENT_UNKNOWN;
}

const char *fq_state_name(enum fq_segment_state state)
{
    return state_names[state];
}

/* CRC-32C over what binds a block to one life of one file, its kind and its content. */
static uint32_t bound_crc(const struct fq_segment_identity *identity, uint32_t kind,
                          const void *content, size_t length)
{
    uint8_t binding[40];
    fq_store_le64(binding, identity->life);
    memcpy(binding + 8, identity->topic_id.bytes, FQ_UUID_BYTES);
    fq_store_le32(binding + 24, identity->partition);
    fq_store_le64(binding + 28, (uint64_t)identity->base_offset);
    fq_store_le32(binding + 36, kind);
    return fq_crc32c(fq_crc32c(0, binding, sizeof binding), content, length);
}

uint64_t fq_word_make(const struct fq_segment_identity *identity, enum fq_word_kind kind,
                      uint64_t value)
{
    uint8_t content[8];
    fq_store_le64(content, value);
    uint64_t check = bound_crc(identity, (uint32_t)kind, content, sizeof content) & 0xffffffu;
    return (value & FQ_WORD_VALUE_MAX) | (check << 40);
}

bool fq_word_read(const struct fq_segment_identity *identity, enum fq_word_kind kind, uint64_t word,
                  uint64_t *ret_value)
{
    uint64_t value = word & FQ_WORD_VALUE_MAX;
    if (fq_word_make(identity, kind, value) != word) {
        return false;
    }
    *ret_value = value;
    return true;
}

enum { SEAL_KIND = 4, EPOCH_KIND = 5 };

void fq_seal_encode(const struct fq_segment_identity *identity, const struct fq_segment_seal *seal,
                    uint8_t out[FQ_SEG_SEAL_BYTES])
{
    fq_store_le64(out, (uint64_t)seal->end_offset);
    fq_store_le64(out + 8, seal->data_bytes);
    fq_store_le64(out + 16, (uint64_t)seal->last_retention_ms);
    fq_store_le32(out + 24, bound_crc(identity, SEAL_KIND, out, 24));
    fq_store_le32(out + 28, 0);
}

bool fq_seal_decode(const struct fq_segment_identity *identity, const uint8_t in[FQ_SEG_SEAL_BYTES],
                    struct fq_segment_seal *ret)
{
    if (fq_load_le32(in + 24) != bound_crc(identity, SEAL_KIND, in, 24) ||
        fq_load_le32(in + 28) != 0) {
        return false;
    }
    ret->end_offset = (int64_t)fq_load_le64(in);
    ret->data_bytes = fq_load_le64(in + 8);
    ret->last_retention_ms = (int64_t)fq_load_le64(in + 16);
    return ret->end_offset >= identity->base_offset &&
           (uint64_t)ret->end_offset - (uint64_t)identity->base_offset <= FQ_WORD_VALUE_MAX;
}

void fq_epoch_encode(const struct fq_segment_identity *identity,
                     const struct fq_segment_epoch *epoch, uint8_t out[FQ_SEG_EPOCH_BYTES])
{
    fq_store_le64(out, (uint64_t)epoch->from_offset);
    fq_store_le32(out + 8, (uint32_t)epoch->epoch);
    fq_store_le32(out + 12, bound_crc(identity, EPOCH_KIND, out, 12));
}

enum fq_epoch_result fq_epoch_decode(const struct fq_segment_identity *identity,
                                     const uint8_t in[FQ_SEG_EPOCH_BYTES],
                                     struct fq_segment_epoch *ret)
{
    if (is_blank(in + 8, 8)) { /* the second word is stored last and cleared first */
        return FQ_EPOCH_NONE;
    }
    if (fq_load_le32(in + 12) != bound_crc(identity, EPOCH_KIND, in, 12)) {
        return FQ_EPOCH_DAMAGED;
    }
    ret->from_offset = (int64_t)fq_load_le64(in);
    ret->epoch = (int32_t)fq_load_le32(in + 8);
    return FQ_EPOCH_OK;
}
