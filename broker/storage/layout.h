/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The media format of a segment file: 4 KiB of header, then record batches without padding.
 * MEDIA.md says why each block is where it is. Little-endian.
 *
 * The first 512 bytes are one disk sector: whatever mixture of old and new sectors a power cut
 * leaves, identity, state, tail, start and seal belong together. On memory every block is either
 * one 8-byte word with a check of its own, or has a CRC and counts only once the state word says
 * so.
 *
 *   sector 0   line 0-1  identity   written once in each life of the file, before the state word
 *              line 2    state      one word; which of the other blocks count
 *              line 3    tail, end  two words; the only line stored to while appending
 *              line 4    start      one word; the log start, if it lies in this segment
 *              line 5    seal       written before the state word says SEALED
 *   sector 1   epochs               changes of the leader epoch inside this segment
 *   sector 8   data
 */
#ifndef FQ_STORAGE_LAYOUT_H
#define FQ_STORAGE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "wire/protocol.h"

#define FQ_MEDIA_VERSION  1u
#define FQ_SEGMENT_MAGIC  "FQSEGMNT"
#define FQ_SECTOR_BYTES   512u
#define FQ_SEGMENT_EPOCHS 32u
#define FQ_OFFSET_MAX     (INT64_C(1) << 62) /* leaves room for sums of what a file may claim */
#define FQ_WORD_VALUE_MAX ((UINT64_C(1) << 40) - 1)

enum fq_segment_field {
    FQ_SEG_MAGIC = 0,            /* 8 bytes */
    FQ_SEG_VERSION = 8,          /* u32 */
    FQ_SEG_HEADER_BYTES = 12,    /* u32: 4096 */
    FQ_SEG_TOPIC_ID = 16,        /* 16 bytes */
    FQ_SEG_PARTITION = 32,       /* u32 */
    FQ_SEG_FIRST_EPOCH = 36,     /* i32: holds from the base offset on */
    FQ_SEG_BASE_OFFSET = 40,     /* i64; -1 while not in use */
    FQ_SEG_FILE_BYTES = 48,      /* u64 */
    FQ_SEG_LIFE = 56,            /* u64: random, new each time the file is taken into use */
    FQ_SEG_FIRST_RETENTION = 64, /* i64 ms; -1 unknown */
    FQ_SEG_IDENTITY_CRC = 72,    /* u32 over [0, 72), then u32 zero */
    FQ_SEG_IDENTITY_BYTES = 80,
    FQ_SEG_STATE = 128,   /* u64: eight letters */
    FQ_SEG_TAIL = 192,    /* word: data bytes published */
    FQ_SEG_END = 200,     /* word: next offset - base offset, stored before the tail */
    FQ_SEG_START = 256,   /* word: log start - base offset + 1; all zero: not here */
    FQ_SEG_TOUCHED = 264, /* word: above this data position all is zero; absent: unknown */
    FQ_SEG_SEAL = 320,    /* i64 end offset, u64 data bytes, i64 last retention, u32 crc, u32 0 */
    FQ_SEG_SEAL_BYTES = 32,
    FQ_SEG_EPOCHS = 512, /* 32 x {i64 from offset, i32 epoch, u32 crc}; second word 0: unused */
    FQ_SEG_EPOCH_BYTES = 16,
    FQ_SEG_DATA = FQ_LIMIT_SEGMENT_HEADER_BYTES
};
_Static_assert(FQ_SEG_IDENTITY_BYTES <= FQ_SEG_STATE, "identity ends before the state word");
_Static_assert(FQ_SEG_TAIL % 64 == 0 && FQ_SEG_END == FQ_SEG_TAIL + 8, "the tail has a line");
_Static_assert(FQ_SEG_START / 64 != FQ_SEG_TAIL / 64 && FQ_SEG_STATE / 64 != FQ_SEG_TAIL / 64,
               "nothing else shares the tail's line");
_Static_assert(FQ_SEG_SEAL + FQ_SEG_SEAL_BYTES <= FQ_SECTOR_BYTES, "sector 0 holds it all");
_Static_assert(FQ_SEG_EPOCHS + FQ_SEGMENT_EPOCHS * FQ_SEG_EPOCH_BYTES <= 2 * FQ_SECTOR_BYTES,
               "epochs are one sector");

/* A file's state on the medium. See segment.h for the machine. */
enum fq_segment_state {
    FQ_SEGMENT_FREE,     /* anything may be in it; nothing of it is data */
    FQ_SEGMENT_PREPARED, /* zero but for identity and state */
    FQ_SEGMENT_OPEN,     /* data up to the tail; the log's last, or about to be sealed */
    FQ_SEGMENT_SEALED,   /* data up to the seal's end */
    FQ_SEGMENT_UNKNOWN   /* the state word is none of these: damaged */
};

struct fq_segment_identity {
    struct fq_uuid topic_id;
    uint32_t partition;
    int32_t first_epoch;
    int64_t base_offset;
    uint64_t file_bytes;
    uint64_t life;
    int64_t first_retention_ms;
};

struct fq_segment_seal {
    int64_t end_offset;
    uint64_t data_bytes;
    int64_t last_retention_ms;
};

struct fq_segment_epoch {
    int64_t from_offset;
    int32_t epoch;
};

void fq_identity_encode(const struct fq_segment_identity *identity,
                        uint8_t out[FQ_SEG_IDENTITY_BYTES]);
enum fq_identity_result {
    FQ_IDENTITY_OK = 0,
    FQ_IDENTITY_BLANK = 1,   /* all zero: never finished */
    FQ_IDENTITY_DAMAGED = 2, /* magic, length or CRC wrong */
    FQ_IDENTITY_VERSION = 3  /* another media version, intact */
};
enum fq_identity_result fq_identity_decode(const uint8_t header[FQ_SEG_DATA],
                                           struct fq_segment_identity *ret);

uint64_t fq_state_word(enum fq_segment_state state);
enum fq_segment_state fq_state_read(uint64_t word);
const char *fq_state_name(enum fq_segment_state state);

/* Publish words: 40 bits of value, 24 of check. The check is bound to the kind and to the identity
 * (life, topic, partition, base offset), so a word of a former life fails. */
enum fq_word_kind { FQ_WORD_TAIL = 1, FQ_WORD_END = 2, FQ_WORD_START = 3, FQ_WORD_TOUCHED = 4 };
uint64_t fq_word_make(const struct fq_segment_identity *identity, enum fq_word_kind kind,
                      uint64_t value);
bool fq_word_read(const struct fq_segment_identity *identity, enum fq_word_kind kind, uint64_t word,
                  uint64_t *ret_value);

void fq_seal_encode(const struct fq_segment_identity *identity, const struct fq_segment_seal *seal,
                    uint8_t out[FQ_SEG_SEAL_BYTES]);
bool fq_seal_decode(const struct fq_segment_identity *identity, const uint8_t in[FQ_SEG_SEAL_BYTES],
                    struct fq_segment_seal *ret);

void fq_epoch_encode(const struct fq_segment_identity *identity,
                     const struct fq_segment_epoch *epoch, uint8_t out[FQ_SEG_EPOCH_BYTES]);
enum fq_epoch_result { FQ_EPOCH_OK = 0, FQ_EPOCH_NONE = 1, FQ_EPOCH_DAMAGED = 2 };
enum fq_epoch_result fq_epoch_decode(const struct fq_segment_identity *identity,
                                     const uint8_t in[FQ_SEG_EPOCH_BYTES],
                                     struct fq_segment_epoch *ret);

#endif
