/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C: the software implementation (eight tables, eight bytes a step: M. E. Kounavis and
 * F. L. Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators",
 * 2005), and the choice of the fastest, made once before main. Tables are written then and never
 * again; any thread.
 */
#include "base/crc32c_impl.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL_REFLECTED 0x82f63b78u

static uint32_t tables[8][256];

static uint32_t step64(uint32_t raw, uint64_t word)
{
    word ^= raw;
    return tables[7][word & 0xff] ^ tables[6][(word >> 8) & 0xff] ^ tables[5][(word >> 16) & 0xff] ^
           tables[4][(word >> 24) & 0xff] ^ tables[3][(word >> 32) & 0xff] ^
           tables[2][(word >> 40) & 0xff] ^ tables[1][(word >> 48) & 0xff] ^ tables[0][word >> 56];
}

static uint32_t step8(uint32_t raw, uint8_t byte)
{
    return (raw >> 8) ^ tables[0][(raw ^ byte) & 0xff];
}

uint32_t fq_crc32c_software(uint32_t crc, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint32_t raw = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        raw = step64(raw, word);
    }
    for (; length > 0; at++, length--) {
        raw = step8(raw, *at);
    }
    return ~raw;
}

uint32_t fq_crc32c_copy_software(uint32_t crc, void *dst, const void *src, size_t length)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    uint32_t raw = ~crc;
    for (; length >= 8; from += 8, to += 8, length -= 8) {
        uint64_t word = fq_load_once64(from);
        memcpy(to, &word, sizeof word);
        raw = step64(raw, word);
    }
    for (; length > 0; from++, to++, length--) {
        uint8_t byte = fq_load_once8(from);
        *to = byte;
        raw = step8(raw, byte);
    }
    return ~raw;
}

static const struct fq_crc32c_ops software_ops = {
    .run = fq_crc32c_software,
    .copy = fq_crc32c_copy_software,
};
static const struct fq_crc32c_ops *machine_ops; /* NULL: none */
static const struct fq_crc32c_ops *best_ops = &software_ops;

__attribute__((constructor)) static void choose(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t raw = i;
        for (int bit = 0; bit < 8; bit++) {
            raw = (raw >> 1) ^ ((raw & 1) ? POLYNOMIAL_REFLECTED : 0);
        }
        tables[0][i] = raw;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int i = 0; i < 256; i++) {
            tables[slice][i] = step8(tables[slice - 1][i], 0);
        }
    }
    machine_ops = fq_crc32c_machine_ops();
    if (machine_ops) {
        best_ops = machine_ops;
    }
    const struct fq_crc32c_ops *wide_ops = fq_crc32c_wide_ops(machine_ops);
    if (wide_ops) {
        best_ops = wide_ops;
    }
}

uint32_t fq_crc32c(uint32_t crc, const void *bytes, size_t length)
{
    return best_ops->run(crc, bytes, length);
}

uint32_t fq_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t length)
{
    return best_ops->copy(crc, dst, src, length);
}

bool fq_crc32c_can_stream(void)
{
    return best_ops->stream != NULL;
}

uint32_t fq_crc32c_stream(uint32_t crc, void *dst, void *away, const void *src, size_t length)
{
    return best_ops->stream(crc, dst, away, src, length);
}

fq_crc32c_copy_function fq_crc32c_copy_hardware(void)
{
    return machine_ops ? machine_ops->copy : NULL;
}

fq_crc32c_function fq_crc32c_hardware(void)
{
    return machine_ops ? machine_ops->run : NULL;
}
