/* SPDX-License-Identifier: Apache-2.0 */
/* See murmur2.h. No state; any thread. */
#include "base/murmur2.h"

#include "base/bytes.h"

uint32_t fq_murmur2(const void *bytes, size_t length)
{
    const uint32_t multiplier = 0x5bd1e995u;
    const uint8_t *at = bytes;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)length;
    size_t left = length;
    for (; left >= 4; at += 4, left -= 4) {
        uint32_t word = fq_load_le32(at) * multiplier;
        word ^= word >> 24;
        hash = (hash * multiplier) ^ (word * multiplier);
    }
    if (left > 0) {
        for (size_t i = 0; i < left; i++) {
            hash ^= (uint32_t)at[i] << (8 * i);
        }
        hash *= multiplier;
    }
    hash ^= hash >> 13;
    hash *= multiplier;
    return hash ^ (hash >> 15);
}
