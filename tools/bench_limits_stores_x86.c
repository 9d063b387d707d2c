/* SPDX-License-Identifier: Apache-2.0 */
/* Stores past the caches, as the best instructions of this x86 do them. */
#include <immintrin.h>

#include "tools/bench_limits.h"

#define LINE ((size_t)64)

__attribute__((target("avx512f"))) static void store_512(uint8_t *dst, const uint8_t *src, size_t length)
{
    for (size_t at = 0; at < length; at += LINE) {
        _mm512_stream_si512((void *)(dst + at), _mm512_loadu_si512((const void *)(src + at)));
    }
}

static void store_128(uint8_t *dst, const uint8_t *src, size_t length)
{
    for (size_t at = 0; at < length; at += 16) {
        _mm_stream_si128((__m128i *)(void *)(dst + at),
                         _mm_loadu_si128((const __m128i *)(const void *)(src + at)));
    }
}

void fq_store_past_caches(void *dst, const void *src, size_t length)
{
    if (__builtin_cpu_supports("avx512f")) {
        store_512(dst, src, length);
    } else {
        store_128(dst, src, length);
    }
}

void fq_store_fence(void)
{
    _mm_sfence();
}

void fq_store_pause(void)
{
    _mm_pause();
}
