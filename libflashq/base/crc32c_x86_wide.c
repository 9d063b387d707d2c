/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C with 512-bit carry-less multiplication. Four registers of 64 bytes hold a remainder of
 * what was read; each step moves them over the 256 bytes that follow (a multiplication by x^2048
 * modulo the polynomial, each 64-bit half by itself) and adds those. At the end the four are moved
 * onto each other, and the crc32 instruction reduces the last 64 bytes. In a lane the first byte's
 * lowest bit has the highest power, and a product of two reflected halves comes out one bit low; so
 * the constants for a distance of d bits are x^(d + 63) and x^(d - 1), reflected, in the upper 32
 * bits. (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel,
 * 2009.)
 *
 * The same loop copies, and streams the bytes past the cache: a register that was loaded once is
 * stored where it is wanted. Short pieces and ends go to the crc32 instruction (crc32c_x86.c).
 */
#include "base/crc32c_impl.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,vpclmulqdq,sse4.2")))
#define TARGET_INLINE                                                                              \
    __attribute__((target("avx512f,vpclmulqdq,sse4.2"), always_inline)) static inline

#define LINE  64u
#define STEP  (4 * LINE)
#define LEAST (2 * STEP) /* below it the crc32 instruction is as fast */

enum mode { RUN, COPY, STREAM };

/* For the two halves of each lane. */
struct distance {
    uint64_t high, low;
};
static const struct distance step_bits = {0x1426a81500000000, 0xe9a5d8be00000000}; /* 2048 */
static const struct distance line_bits = {0x75bba45b00000000, 0x1c19243b00000000}; /* 512 */

static const struct fq_crc32c_ops *narrow;

/* Loads once, as fq_load_once64. */
TARGET_INLINE __m512i load_once(const uint8_t *from)
{
    struct line {
        uint8_t bytes[LINE];
    };
    __m512i line;
    __asm__ volatile("vmovdqu64 %1, %0" : "=v"(line) : "m"(*(const struct line *)from));
    return line;
}

TARGET_INLINE __m512i take_line(uint8_t *to, uint8_t *away, const uint8_t *from, enum mode mode)
{
    __m512i line = load_once(from);
    if (mode != RUN) {
        _mm512_storeu_si512(to, line);
    }
    if (mode == STREAM) {
        _mm512_stream_si512((void *)away, line);
    }
    return line;
}

TARGET_INLINE __m512i constants_of(const struct distance *d)
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)d->high, (long long)d->low));
}

TARGET_INLINE __m512i move_over(__m512i remainder, __m512i constants, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(remainder, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(remainder, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor of the three */
}

TARGET_INLINE uint32_t reduce(uint32_t raw, __m512i line)
{
    uint64_t words[LINE / 8];
    uint64_t crc = raw;
    _mm512_storeu_si512(words, line);
    for (unsigned i = 0; i < LINE / 8; i++) {
        crc = _mm_crc32_u64(crc, words[i]);
    }
    return (uint32_t)crc;
}

/* `length` is a multiple of STEP and not 0. */
TARGET_INLINE uint32_t take_steps(uint32_t raw, uint8_t *to, uint8_t *away, const uint8_t *from,
                                  size_t length, enum mode mode)
{
    const __m512i over_step = constants_of(&step_bits);
    const __m512i over_line = constants_of(&line_bits);
    __m512i a = take_line(to, away, from, mode);
    __m512i b = take_line(to + LINE, away + LINE, from + LINE, mode);
    __m512i c = take_line(to + 2 * LINE, away + 2 * LINE, from + 2 * LINE, mode);
    __m512i d = take_line(to + 3 * LINE, away + 3 * LINE, from + 3 * LINE, mode);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)raw)));
    for (size_t at = STEP; at < length; at += STEP) {
        a = move_over(a, over_step, take_line(to + at, away + at, from + at, mode));
        b = move_over(b, over_step,
                      take_line(to + at + LINE, away + at + LINE, from + at + LINE, mode));
        c = move_over(
            c, over_step,
            take_line(to + at + 2 * LINE, away + at + 2 * LINE, from + at + 2 * LINE, mode));
        d = move_over(
            d, over_step,
            take_line(to + at + 3 * LINE, away + at + 3 * LINE, from + at + 3 * LINE, mode));
    }
    b = move_over(a, over_line, b);
    c = move_over(b, over_line, c);
    d = move_over(c, over_line, d);
    return reduce(0, d);
}

TARGET static uint32_t run(uint32_t crc, const void *bytes, size_t length)
{
    if (length < LEAST) {
        return narrow->run(crc, bytes, length);
    }
    size_t steps = length - length % STEP;
    /* `to` and `away` are not stored to; a real pointer keeps the arithmetic on them defined */
    uint8_t *none = (uint8_t *)(uintptr_t)bytes;
    crc = ~take_steps(~crc, none, none, bytes, steps, RUN);
    return narrow->run(crc, (const uint8_t *)bytes + steps, length - steps);
}

TARGET static uint32_t copy(uint32_t crc, void *dst, const void *src, size_t length)
{
    if (length < LEAST) {
        return narrow->copy(crc, dst, src, length);
    }
    size_t steps = length - length % STEP;
    crc = ~take_steps(~crc, dst, dst, src, steps, COPY);
    return narrow->copy(crc, (uint8_t *)dst + steps, (const uint8_t *)src + steps, length - steps);
}

TARGET static uint32_t stream(uint32_t crc, void *dst, void *away, const void *src, size_t length)
{
    size_t steps = length - length % STEP;
    uint32_t raw = ~crc;
    if (steps > 0) {
        raw = take_steps(raw, dst, away, src, steps, STREAM);
    }
    for (size_t at = steps; at < length; at += LINE) {
        raw = reduce(raw, take_line((uint8_t *)dst + at, (uint8_t *)away + at,
                                    (const uint8_t *)src + at, STREAM));
    }
    return ~raw;
}

const struct fq_crc32c_ops *fq_crc32c_wide_ops(const struct fq_crc32c_ops *machine_ops)
{
    static const struct fq_crc32c_ops ops = {.run = run, .copy = copy, .stream = stream};
    __builtin_cpu_init();
    if (!machine_ops || !__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("vpclmulqdq")) {
        return NULL;
    }
    narrow = machine_ops;
    return &ops;
}
