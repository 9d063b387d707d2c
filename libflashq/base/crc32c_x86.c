/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C with the crc32 instruction of SSE4.2. One instruction takes three cycles but a new one
 * can start each cycle, so three thirds of a block run side by side. They are joined by carry-less
 * multiplication: moving a CRC over n zero bytes multiplies it by x^(8n) modulo the polynomial. A
 * product of two reflected 32-bit values comes out one bit low, and reducing it with the crc32
 * instruction multiplies by x^32 more; so the constants are x^(8n - 33), reflected. (V. Gopal et
 * al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011.)
 *
 * Checksum and copy are one body: each byte is loaded once, stored if asked, and checksummed from
 * the register. Any thread.
 */
#include "base/crc32c_impl.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define TARGET        __attribute__((target("sse4.2,pclmul")))
#define TARGET_INLINE __attribute__((target("sse4.2,pclmul"), always_inline)) static inline

/* A third of a block in bytes, and x^(8 * third - 33), x^(16 * third - 33). */
struct block {
    size_t third;
    uint32_t over_one, over_two;
};
static const struct block long_block = {1344, 0xc9c8b782, 0x889774e1};
static const struct block short_block = {128, 0x0d3b6092, 0xb9e02b86};

TARGET_INLINE uint64_t take64(uint64_t raw, uint8_t *to, const uint8_t *from, bool is_copy)
{
    uint64_t word = fq_load_once64(from);
    if (is_copy) {
        memcpy(to, &word, sizeof word);
    }
    return _mm_crc32_u64(raw, word);
}

TARGET_INLINE uint64_t move_over(uint64_t raw, uint32_t constant)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)(uint32_t)raw),
                                           _mm_cvtsi64_si128((long long)constant), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

TARGET_INLINE uint64_t take_block(uint64_t raw, uint8_t *to, const uint8_t *from,
                                  const struct block *block, bool is_copy)
{
    const size_t third = block->third;
    uint64_t a = raw, b = 0, c = 0;
    for (size_t i = 0; i < third; i += 8) {
        a = take64(a, to + i, from + i, is_copy);
        b = take64(b, to + third + i, from + third + i, is_copy);
        c = take64(c, to + 2 * third + i, from + 2 * third + i, is_copy);
    }
    return move_over(a, block->over_two) ^ move_over(b, block->over_one) ^ c;
}

TARGET_INLINE uint32_t take(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length,
                            bool is_copy)
{
    uint64_t raw = ~crc;
    size_t at = 0;
    for (; length - at >= 3 * long_block.third; at += 3 * long_block.third) {
        raw = take_block(raw, to + at, from + at, &long_block, is_copy);
    }
    for (; length - at >= 3 * short_block.third; at += 3 * short_block.third) {
        raw = take_block(raw, to + at, from + at, &short_block, is_copy);
    }
    for (; length - at >= 8; at += 8) {
        raw = take64(raw, to + at, from + at, is_copy);
    }
    for (; at < length; at++) {
        uint8_t byte = fq_load_once8(from + at);
        if (is_copy) {
            to[at] = byte;
        }
        raw = _mm_crc32_u8((uint32_t)raw, byte);
    }
    return ~(uint32_t)raw;
}

TARGET static uint32_t run(uint32_t crc, const void *bytes, size_t length)
{
    /* `to` is not stored to; a real pointer keeps the arithmetic on it defined */
    return take(crc, (uint8_t *)(uintptr_t)bytes, bytes, length, false);
}

TARGET static uint32_t copy(uint32_t crc, void *dst, const void *src, size_t length)
{
    return take(crc, dst, src, length, true);
}

const struct fq_crc32c_ops *fq_crc32c_machine_ops(void)
{
    static const struct fq_crc32c_ops ops = {.run = run, .copy = copy};
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? &ops : NULL;
}
