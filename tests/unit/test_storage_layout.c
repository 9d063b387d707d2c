/* SPDX-License-Identifier: Apache-2.0 */
/* The segment header's bytes: golden, and every single-bit change of every block is noticed. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "storage/layout.h"
#include "storage/store_impl.h"

static const struct fq_segment_identity identity = {
    .topic_id = {{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
    .partition = 7,
    .first_epoch = 3,
    .base_offset = 0x1122334455,
    .file_bytes = 1u << 20,
    .life = 0x0123456789abcdef,
    .first_retention_ms = -1,
};

/* Written by hand from MEDIA.md, but for the CRC, which is computed by a bit-wise reference below.
 */
static const uint8_t golden_identity[76 - 4] = {
    'F',  'Q',  'S',  'E',  'G',  'M',  'N',  'T',  1,    0,    0,    0,    0,    0x10, 0,
    0,    0xa0, 1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,
    14,   15,   7,    0,    0,    0,    3,    0,    0,    0,    0x55, 0x44, 0x33, 0x22, 0x11,
    0,    0,    0,    0,    0,    0x10, 0,    0,    0,    0,    0,    0xef, 0xcd, 0xab, 0x89,
    0x67, 0x45, 0x23, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};

static uint32_t reference_crc(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        }
    }
    return ~crc;
}

Test(layout, identity_is_golden)
{
    uint8_t out[FQ_SEG_IDENTITY_BYTES];
    fq_identity_encode(&identity, out);
    cr_assert_eq(memcmp(out, golden_identity, sizeof golden_identity), 0);
    cr_assert_eq(fq_load_le32(out + 72), reference_crc(0, golden_identity, 72));
    cr_assert_eq(fq_load_le32(out + 76), 0);
}

Test(layout, every_bit_of_the_identity_counts)
{
    uint8_t header[FQ_SEG_DATA] = {0};
    struct fq_segment_identity decoded;
    fq_identity_encode(&identity, header);
    cr_assert_eq(fq_identity_decode(header, &decoded), FQ_IDENTITY_OK);
    cr_assert_eq(decoded.base_offset, identity.base_offset);
    cr_assert_eq(decoded.life, identity.life);
    cr_assert_eq(decoded.partition, 7);
    cr_assert_eq(decoded.first_epoch, 3);
    for (unsigned bit = 0; bit < 8 * FQ_SEG_IDENTITY_BYTES; bit++) {
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(fq_identity_decode(header, &decoded), FQ_IDENTITY_DAMAGED, "bit %u", bit);
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    memset(header, 0, sizeof header);
    cr_assert_eq(fq_identity_decode(header, &decoded), FQ_IDENTITY_BLANK);
}

Test(layout, another_media_version_is_told_from_damage)
{
    uint8_t header[FQ_SEG_DATA] = {0};
    struct fq_segment_identity decoded;
    fq_identity_encode(&identity, header);
    fq_store_le32(header + FQ_SEG_VERSION, 2);
    fq_store_le32(header + FQ_SEG_IDENTITY_CRC, reference_crc(0, header, 72));
    cr_assert_eq(fq_identity_decode(header, &decoded), FQ_IDENTITY_VERSION);
}

Test(layout, words_are_golden_and_every_bit_counts)
{
    const uint64_t value = 0x12345678;
    uint8_t bound[48];
    fq_store_le64(bound, identity.life);
    memcpy(bound + 8, identity.topic_id.bytes, 16);
    fq_store_le32(bound + 24, 7);
    fq_store_le64(bound + 28, (uint64_t)identity.base_offset);
    fq_store_le32(bound + 36, 1);
    fq_store_le64(bound + 40, value);
    uint64_t word = fq_word_make(&identity, FQ_WORD_TAIL, value);
    cr_assert_eq(word & FQ_WORD_VALUE_MAX, value);
    cr_assert_eq(word >> 40, reference_crc(0, bound, sizeof bound) & 0xffffff);

    const uint64_t values[] = {0, 1, 61, 0xfff, 0x12345678, FQ_WORD_VALUE_MAX};
    for (unsigned v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (enum fq_word_kind kind = FQ_WORD_TAIL; kind <= FQ_WORD_START; kind++) {
            uint64_t made = fq_word_make(&identity, kind, values[v]), read;
            cr_assert(fq_word_read(&identity, kind, made, &read));
            cr_assert_eq(read, values[v]);
            for (unsigned bit = 0; bit < 64; bit++) {
                cr_assert_not(fq_word_read(&identity, kind, made ^ UINT64_C(1) << bit, &read));
            }
        }
    }
}

Test(layout, a_word_of_another_life_or_kind_fails)
{
    struct fq_segment_identity other = identity;
    uint64_t word = fq_word_make(&identity, FQ_WORD_TAIL, 4711), read;
    cr_assert_not(fq_word_read(&identity, FQ_WORD_END, word, &read));
    other.life++;
    cr_assert_not(fq_word_read(&other, FQ_WORD_TAIL, word, &read));
    other = identity;
    other.partition++;
    cr_assert_not(fq_word_read(&other, FQ_WORD_TAIL, word, &read));
    other = identity;
    other.base_offset++;
    cr_assert_not(fq_word_read(&other, FQ_WORD_TAIL, word, &read));
    other = identity;
    other.topic_id.bytes[15] ^= 1;
    cr_assert_not(fq_word_read(&other, FQ_WORD_TAIL, word, &read));
}

Test(layout, seal_and_epoch_entries_notice_every_bit)
{
    const struct fq_segment_seal seal = {identity.base_offset + 100, 5000, 1700000000000};
    const struct fq_segment_epoch epoch = {identity.base_offset + 10, 4};
    struct fq_segment_seal seal_read;
    struct fq_segment_epoch epoch_read;
    uint8_t sealed[FQ_SEG_SEAL_BYTES], entry[FQ_SEG_EPOCH_BYTES];
    fq_seal_encode(&identity, &seal, sealed);
    fq_epoch_encode(&identity, &epoch, entry);
    cr_assert(fq_seal_decode(&identity, sealed, &seal_read));
    cr_assert_eq(seal_read.end_offset, seal.end_offset);
    cr_assert_eq(fq_epoch_decode(&identity, entry, &epoch_read), FQ_EPOCH_OK);
    cr_assert_eq(epoch_read.epoch, 4);
    for (unsigned bit = 0; bit < 8 * sizeof sealed; bit++) {
        sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_not(fq_seal_decode(&identity, sealed, &seal_read), "bit %u", bit);
        sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (unsigned bit = 0; bit < 8 * sizeof entry; bit++) {
        entry[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(fq_epoch_decode(&identity, entry, &epoch_read), FQ_EPOCH_DAMAGED, "bit %u",
                     bit);
        entry[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

Test(layout, no_bit_turns_one_state_into_another)
{
    for (enum fq_segment_state state = FQ_SEGMENT_FREE; state <= FQ_SEGMENT_SEALED; state++) {
        uint64_t word = fq_state_word(state);
        cr_assert_eq(fq_state_read(word), state);
        for (unsigned bit = 0; bit < 64; bit++) {
            cr_assert_eq(fq_state_read(word ^ UINT64_C(1) << bit), FQ_SEGMENT_UNKNOWN);
        }
    }
    cr_assert_eq(
        memcmp("FREE....PREPAREDOPEN:-)>SEALED##",
               (uint64_t[]){fq_state_word(FQ_SEGMENT_FREE), fq_state_word(FQ_SEGMENT_PREPARED),
                            fq_state_word(FQ_SEGMENT_OPEN), fq_state_word(FQ_SEGMENT_SEALED)},
               32),
        0);
}

Test(paths, topic_folders_round_trip_and_long_names_fit)
{
    char folder[256], name[256], long_name[250];
    struct fq_uuid id;
    fq_topic_dir_name("a.b_c-d", &identity.topic_id, folder);
    cr_assert_str_eq(folder, "a.b_c-d-a00102030405060708090a0b0c0d0e0f");
    cr_assert(fq_topic_dir_parse(folder, name, &id));
    cr_assert_str_eq(name, "a.b_c-d");
    cr_assert_eq(memcmp(&id, &identity.topic_id, sizeof id), 0);
    memset(long_name, 'n', 249);
    long_name[249] = '\0';
    fq_topic_dir_name(long_name, &identity.topic_id, folder);
    cr_assert_leq(strlen(folder), 255, "NAME_MAX");
    cr_assert(fq_topic_dir_parse(folder, name, &id));
    cr_assert_eq(name[200], '~', "a cut name is marked by what no name may contain");
    cr_assert_not(fq_topic_dir_parse("lost+found", name, &id));
    cr_assert_not(fq_topic_dir_parse("t-A00102030405060708090a0b0c0d0e0f", name, &id));
}

Test(paths, segment_names)
{
    int64_t base;
    bool is_next;
    cr_assert(fq_segment_name_parse("00000000000000000123.log", &base, &is_next));
    cr_assert_eq(base, 123);
    cr_assert(fq_segment_name_parse("09223372036854775807.log", &base, &is_next));
    cr_assert_eq(base, INT64_MAX);
    cr_assert_not(fq_segment_name_parse("09223372036854775808.log", &base, &is_next));
    cr_assert_not(fq_segment_name_parse("0000000000000000123.log", &base, &is_next));
    cr_assert_not(fq_segment_name_parse("00000000000000000123.index", &base, &is_next));
    cr_assert_not(fq_segment_name_parse("next-00aa.log", &base, &is_next));
    cr_assert(is_next);
}
