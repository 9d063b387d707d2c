/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variable-length integers inside records: zigzag, seven bits a byte, lowest first. Only the
 * shortest form of a value is accepted, so equal records have equal bytes. Inside libflashq/wire
 * only.
 */
#ifndef FQ_WIRE_VARINT_H
#define FQ_WIRE_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FQ_VARINT_BYTES_MAX 10

static inline uint64_t fq_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int64_t fq_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static inline size_t fq_varint_bytes(int64_t value)
{
    unsigned bits = 64u - (unsigned)__builtin_clzll(fq_zigzag(value) | 1);
    return (bits * 9 + 64) >> 6; /* ceil(bits / 7) for 1 to 64 */
}

/* There must be room for fq_varint_bytes(value); returns what comes behind. */
static inline uint8_t *fq_varint_put(uint8_t *at, int64_t value)
{
    uint64_t left = fq_zigzag(value);
    while (left >= 0x80) {
        *at++ = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    *at++ = (uint8_t)left;
    return at;
}

/* The longer forms of fq_varint_get. */
bool fq_varint_get_long(const uint8_t **at, const uint8_t *end, int64_t *ret);

/* A 64-bit value; false: cut short, not canonical, or too long. Advances *at only on success. */
static inline bool fq_varint_get(const uint8_t **at, const uint8_t *end, int64_t *ret)
{
    if (*at < end && **at < 0x80) {
        *ret = fq_unzigzag(**at);
        (*at)++;
        return true;
    }
    return fq_varint_get_long(at, end, ret);
}

/* The same for what must fit 32 bits. */
static inline bool fq_varint_get32(const uint8_t **at, const uint8_t *end, int32_t *ret)
{
    const uint8_t *from = *at;
    int64_t value;
    if (!fq_varint_get(&from, end, &value) || value < INT32_MIN || value > INT32_MAX) {
        return false;
    }
    *at = from;
    *ret = (int32_t)value;
    return true;
}

#endif
