/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from outside: bounds-checked cursors and unaligned loads and stores. A reader or writer
 * that once ran over its end has `failed` set, returns zeros (writes nothing) from then on, and is
 * checked once at the end.
 */
#ifndef FQ_BASE_BYTES_H
#define FQ_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FQ_DEFINE_LOAD_STORE(bits)                                                                 \
    static inline uint##bits##_t fq_load_le##bits(const void *at)                                  \
    {                                                                                              \
        uint##bits##_t value;                                                                      \
        memcpy(&value, at, sizeof value);                                                          \
        return value;                                                                              \
    }                                                                                              \
    static inline void fq_store_le##bits(void *at, uint##bits##_t value)                           \
    {                                                                                              \
        memcpy(at, &value, sizeof value);                                                          \
    }                                                                                              \
    static inline uint##bits##_t fq_load_be##bits(const void *at)                                  \
    {                                                                                              \
        return __builtin_bswap##bits(fq_load_le##bits(at));                                        \
    }                                                                                              \
    static inline void fq_store_be##bits(void *at, uint##bits##_t value)                           \
    {                                                                                              \
        fq_store_le##bits(at, __builtin_bswap##bits(value));                                       \
    }
FQ_DEFINE_LOAD_STORE(16)
FQ_DEFINE_LOAD_STORE(32)
FQ_DEFINE_LOAD_STORE(64)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "FlashQ's media are little-endian");

struct fq_reader {
    const uint8_t *at, *end;
    bool failed;
};

static inline void fq_reader_init(struct fq_reader *r, const void *bytes, size_t length)
{
    r->at = bytes;
    r->end = length > 0 ? r->at + length : r->at; /* bytes may be NULL then */
    r->failed = false;
}

static inline size_t fq_reader_left(const struct fq_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* `length` bytes in place, or NULL (and failed). */
static inline const uint8_t *fq_read_bytes(struct fq_reader *r, size_t length)
{
    if (r->failed || fq_reader_left(r) < length) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += length;
    return bytes;
}

static inline uint8_t fq_read_u8(struct fq_reader *r)
{
    const uint8_t *at = fq_read_bytes(r, 1);
    return at ? *at : 0;
}

static inline uint16_t fq_read_u16(struct fq_reader *r)
{
    const uint8_t *at = fq_read_bytes(r, 2);
    return at ? fq_load_le16(at) : 0;
}

static inline uint32_t fq_read_u32(struct fq_reader *r)
{
    const uint8_t *at = fq_read_bytes(r, 4);
    return at ? fq_load_le32(at) : 0;
}

static inline uint64_t fq_read_u64(struct fq_reader *r)
{
    const uint8_t *at = fq_read_bytes(r, 8);
    return at ? fq_load_le64(at) : 0;
}

struct fq_writer {
    uint8_t *start, *at, *end;
    bool failed;
};

static inline void fq_writer_init(struct fq_writer *w, void *bytes, size_t capacity)
{
    w->start = bytes;
    w->at = w->start;
    w->end = capacity > 0 ? w->start + capacity : w->start;
    w->failed = false;
}

static inline size_t fq_writer_used(const struct fq_writer *w)
{
    return (size_t)(w->at - w->start);
}

/* Room for `length` bytes, or NULL (and failed). */
static inline uint8_t *fq_write_room(struct fq_writer *w, size_t length)
{
    if (w->failed || (size_t)(w->end - w->at) < length) {
        w->failed = true;
        return NULL;
    }
    uint8_t *room = w->at;
    w->at += length;
    return room;
}

static inline void fq_write_bytes(struct fq_writer *w, const void *bytes, size_t length)
{
    uint8_t *room = fq_write_room(w, length);
    if (room && length > 0) {
        memcpy(room, bytes, length);
    }
}

static inline void fq_write_u8(struct fq_writer *w, uint8_t value)
{
    fq_write_bytes(w, &value, sizeof value);
}

static inline void fq_write_u16(struct fq_writer *w, uint16_t value)
{
    fq_write_bytes(w, &value, sizeof value);
}

static inline void fq_write_u32(struct fq_writer *w, uint32_t value)
{
    fq_write_bytes(w, &value, sizeof value);
}

static inline void fq_write_u64(struct fq_writer *w, uint64_t value)
{
    fq_write_bytes(w, &value, sizeof value);
}

#endif
