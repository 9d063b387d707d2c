/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C against RFC 3720's examples and a bit-by-bit reference; hardware, software, copy equal.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/murmur2.h"
#include "base/random.h"

/* As the polynomial says, one bit at a time. */
static uint32_t reference(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint32_t carry = (crc ^ (uint32_t)(bytes[i] >> bit)) & 1u;
            crc = (crc >> 1) ^ (carry ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}

static void check_all(uint32_t start, const uint8_t *bytes, size_t length, uint32_t expected)
{
    static uint8_t target[1 << 20];
    cr_assert_leq(length, sizeof target);
    cr_assert_eq(fq_crc32c(start, bytes, length), expected, "fq_crc32c of %zu bytes", length);
    cr_assert_eq(fq_crc32c_software(start, bytes, length), expected, "software of %zu", length);
    if (fq_crc32c_hardware()) {
        cr_assert_eq(fq_crc32c_hardware()(start, bytes, length), expected, "hardware of %zu",
                     length);
    }
    memset(target, 0x5a, length);
    cr_assert_eq(fq_crc32c_copy(start, target, bytes, length), expected, "copy of %zu", length);
    cr_assert(length == 0 || memcmp(target, bytes, length) == 0);
    if (fq_crc32c_copy_hardware()) {
        memset(target, 0x5a, length);
        cr_assert_eq(fq_crc32c_copy_hardware()(start, target, bytes, length), expected);
        cr_assert(length == 0 || memcmp(target, bytes, length) == 0);
    }
    memset(target, 0x5a, length);
    cr_assert_eq(fq_crc32c_copy_software(start, target, bytes, length), expected);
    cr_assert(length == 0 || memcmp(target, bytes, length) == 0);
}

Test(crc32c, rfc_3720_examples)
{
    uint8_t bytes[32];
    memset(bytes, 0, sizeof bytes);
    check_all(0, bytes, 32, 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    check_all(0, bytes, 32, 0x62a8ab43u);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    check_all(0, bytes, 32, 0x46dd794eu);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    check_all(0, bytes, 32, 0x113fdb5cu);
    static const uint8_t read_command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02,
    };
    check_all(0, read_command, 48, 0xd9963a56u);
    check_all(0, (const uint8_t *)"123456789", 9, 0xe3069283u);
    check_all(0, NULL, 0, 0);
}

Test(crc32c, every_length_around_the_blocks_at_every_alignment)
{
    static uint8_t bytes[3 * 1344 + 600];
    struct fq_prng prng;
    fq_prng_seed(&prng, 1);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)fq_prng_next(&prng);
    }
    static const size_t around[] = {0, 8, 16, 384, 512, 768, 1024, 2048, 3 * 1344, 3 * 1344 + 384};
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        for (size_t length = around[i] > 9 ? around[i] - 9 : 0; length <= around[i] + 9; length++) {
            for (size_t align = 0; align < 9; align++) {
                check_all(0, bytes + align, length, reference(0, bytes + align, length));
            }
        }
    }
}

Test(crc32c, random_lengths_and_cuts)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    static uint8_t bytes[200000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)fq_prng_next(&prng);
    }
    for (int round = 0; round < 60; round++) {
        size_t length = fq_prng_below(&prng, round < 50 ? 12000 : 190000);
        size_t from = fq_prng_below(&prng, sizeof bytes - length);
        size_t cut = fq_prng_below(&prng, length + 1);
        uint32_t start = (uint32_t)fq_prng_next(&prng);
        uint32_t expected = reference(start, bytes + from, length);
        uint32_t first = fq_crc32c(start, bytes + from, cut);
        cr_assert_eq(fq_crc32c(first, bytes + from + cut, length - cut), expected,
                     "seed %llu: %zu bytes cut at %zu", (unsigned long long)seed, length, cut);
        check_all(start, bytes + from, length, expected);
    }
}

/* A peer that stores into the source while it is copied. */
struct scribbler {
    _Atomic bool stop;
    volatile uint8_t *bytes;
    size_t length;
};

static void *scribble(void *argument)
{
    struct scribbler *s = argument;
    uint8_t value = 0;
    while (!s->stop) {
        for (size_t i = 0; i < s->length; i += 7) {
            s->bytes[i] = value++;
        }
    }
    return NULL;
}

static uint32_t copy_and_stream(uint32_t crc, void *dst, const void *src, size_t length)
{
    static _Alignas(64) uint8_t away[20032];
    size_t lines = length - length % 64;
    crc = fq_crc32c_stream(crc, dst, away, src, lines);
    cr_assert_eq(memcmp(away, dst, lines), 0, "both have the same bytes");
    return fq_crc32c_copy(crc, (uint8_t *)dst + lines, (const uint8_t *)src + lines,
                          length - lines);
}

Test(crc32c, the_checksum_of_a_copy_is_that_of_the_bytes_stored)
{
    static uint8_t source[20000], target[20000];
    struct scribbler s = {.bytes = source, .length = sizeof source};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, scribble, &s), 0);
    for (int i = 0; i < 2000; i++) {
        fq_crc32c_copy_function copy = i % 2 ? fq_crc32c_copy : fq_crc32c_copy_software;
        if (i % 3 == 0 && fq_crc32c_can_stream()) {
            copy = copy_and_stream;
        }
        uint32_t crc = copy(0, target, source, sizeof source);
        cr_assert_eq(crc, fq_crc32c_software(0, target, sizeof target), "round %d", i);
    }
    s.stop = true;
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

/* Every number of lines, from sources at every place in a word, beside bytes that must stay. */
Test(crc32c, a_stream_stores_twice_what_it_checksums)
{
    if (!fq_crc32c_can_stream()) {
        cr_log_info("this CPU has no instructions for it: the caller copies in blocks");
        return;
    }
    static uint8_t source[4200], copy[4200];
    static _Alignas(64) uint8_t away[4096 + 128];
    struct fq_prng prng;
    fq_prng_seed(&prng, 3);
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)fq_prng_next(&prng);
    }
    for (size_t length = 0; length <= 4096; length += 64) {
        size_t from = length / 64 % 9;
        uint32_t start = (uint32_t)fq_prng_next(&prng);
        memset(copy, 0x5a, sizeof copy);
        memset(away, 0x5a, sizeof away);
        uint32_t crc = fq_crc32c_stream(start, copy + from, away + 64, source + from, length);
        cr_assert_eq(crc, reference(start, source + from, length), "%zu bytes", length);
        cr_assert_eq(memcmp(copy + from, source + from, length), 0);
        cr_assert_eq(memcmp(away + 64, source + from, length), 0);
        cr_assert(copy[from + length] == 0x5a && away[63] == 0x5a && away[64 + length] == 0x5a);
    }
}

/* Values from Kafka's own test of its Utils.murmur2 (org.apache.kafka.common.utils.UtilsTest). */
Test(murmur2, agrees_with_kafka)
{
    static const struct {
        const char *key;
        int32_t hash;
    } known[] = {
        {"21", -973932308},
        {"foobar", -790332482},
        {"a-little-bit-long-string", -985981536},
        {"a-little-bit-longer-string", -1486304829},
        {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
        {"abc", 479470107},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        cr_assert_eq((int32_t)fq_murmur2(known[i].key, strlen(known[i].key)), known[i].hash, "%s",
                     known[i].key);
    }
}
