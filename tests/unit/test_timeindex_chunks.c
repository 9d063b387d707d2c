/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk table, its max-tree, and the bytes of an index file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/random.h"
#include "timeindex/maxtree.h"
#include "timeindex/timeindex.h"

/* ---- max-tree ------------------------------------------------------------------------------- */

static size_t first_at_least(const int64_t *values, size_t count, size_t from, int64_t threshold)
{
    while (from < count && values[from] < threshold) {
        from++;
    }
    return from < count ? from : FQ_MAXTREE_NONE;
}

Test(maxtree, finds_what_a_scan_finds)
{
    const uint64_t seed = fq_random_u64();
    fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    enum { VALUES_MAX = 40000 };
    static int64_t values[VALUES_MAX];
    for (int round = 0; round < 30; round++) {
        struct fq_maxtree tree;
        fq_maxtree_init(&tree);
        size_t count = 0, limit = 1 + (size_t)fq_prng_below(&prng, round % 3 ? 1100 : VALUES_MAX);
        const uint64_t range = 1 + fq_prng_below(&prng, 1000);
        while (count < limit) {
            if (count == tree.capacity) {
                cr_assert_eq(fq_maxtree_reserve(&tree, count + 1 + count / 2), 0);
            }
            values[count] = (int64_t)fq_prng_below(&prng, range * (count % 7 ? 1 : 3));
            fq_maxtree_push(&tree, values[count++]);
            if (fq_prng_below(&prng, 9) == 0) {
                values[count - 1] += (int64_t)fq_prng_below(&prng, range);
                fq_maxtree_raise_last(&tree, values[count - 1]);
            }
            if (fq_prng_below(&prng, 900) == 0) {
                count = (size_t)fq_prng_below(&prng, count + 1);
                fq_maxtree_truncate(&tree, count);
                limit -= limit > 100 ? 50 : 0;
            }
        }
        for (int i = 0; i < 400; i++) {
            size_t from = (size_t)fq_prng_below(&prng, count + 2);
            int64_t threshold = (int64_t)fq_prng_below(&prng, range * 4);
            uint64_t nodes = 0;
            cr_assert_eq(fq_maxtree_find(&tree, from, threshold, &nodes),
                         first_at_least(values, count, from, threshold));
            cr_assert_leq(nodes, 2 * tree.levels_count);
        }
        int64_t max = INT64_MIN;
        for (size_t i = 0; i < count; i++) {
            max = values[i] > max ? values[i] : max;
        }
        cr_assert_eq(fq_maxtree_max(&tree), max);
        fq_maxtree_fini(&tree);
    }
}

/* ---- chunks --------------------------------------------------------------------------------- */

static const struct fq_uuid topic_id = {{0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x1f}};

static void reserve(struct fq_chunks *chunks)
{
    if (fq_chunks_wants_reserve(chunks)) {
        cr_assert_eq(fq_chunks_reserve(chunks), 0);
    }
}

/* Segment 100 with three chunks: two batches of 30 KiB, one of 70 KiB, one of 1 KiB. */
static struct fq_chunks *make_segment(void)
{
    struct fq_chunks *chunks;
    cr_assert_eq(fq_chunks_create(&chunks), 0);
    fq_chunks_add(chunks, 100, 100, 0, 30 << 10, 1000, 2000);
    fq_chunks_add(chunks, 100, 110, 30 << 10, 30 << 10, 500, 1500);
    fq_chunks_add(chunks, 100, 120, 60 << 10, 70 << 10, 3000, 3000);
    fq_chunks_add(chunks, 100, 130, 130 << 10, 1 << 10, -5, INT64_MAX);
    return chunks;
}

Test(chunks, are_64_kib_or_one_batch)
{
    struct fq_chunks *chunks = make_segment();
    cr_assert_eq(fq_chunks_count(chunks), 3);
    int64_t segment_base;
    struct fq_chunk chunk;
    cr_assert(!fq_chunks_locate(chunks, 99, &segment_base, &chunk));
    cr_assert(fq_chunks_locate(chunks, 119, &segment_base, &chunk));
    cr_assert(segment_base == 100 && chunk.base_offset == 100 && chunk.min_timestamp == 500 &&
              chunk.max_timestamp == 2000);
    cr_assert(fq_chunks_locate(chunks, 120, &segment_base, &chunk));
    cr_assert(chunk.base_offset == 120 && chunk.position == 60 << 10);
    cr_assert(fq_chunks_locate(chunks, 5000, &segment_base, &chunk));
    cr_assert_eq(chunk.base_offset, 130);
    struct fq_chunk_hit hit;
    uint64_t nodes = 0;
    cr_assert(fq_chunks_search(chunks, 0, INT64_MAX, 2001, &hit, &nodes));
    cr_assert(hit.chunk.base_offset == 120 && hit.end_offset == 130 &&
              hit.end_position == 130 << 10);
    cr_assert(fq_chunks_search(chunks, 121, INT64_MAX, 3001, &hit, &nodes));
    cr_assert(hit.chunk.base_offset == 130 && hit.end_offset == INT64_MAX &&
              hit.end_position == UINT64_MAX);
    cr_assert(!fq_chunks_search(chunks, 0, 130, 3001, &hit, &nodes), "only below to_offset");
    fq_chunks_destroy(chunks);
    fq_chunks_destroy(NULL);
}

/* Nobody reserves: chunks grow coarser, nothing is lost, no segment pretends to be whole. */
Test(chunks, without_reserve_grow_coarser_and_stay_right)
{
    struct fq_chunks *chunks;
    cr_assert_eq(fq_chunks_create(&chunks), 0);
    for (int64_t i = 0; i < 1000; i++) {
        fq_chunks_add(chunks, i / 250 * 250, i, (uint64_t)(i % 250) * 70000, 70000, i, i);
    }
    cr_assert_eq(fq_chunks_segments_count(chunks), 1, "one spare, taken by the first segment");
    cr_assert_leq(fq_chunks_count(chunks), 64);
    for (int64_t t = 0; t < 1000; t++) {
        struct fq_chunk_hit hit;
        uint64_t nodes = 0;
        cr_assert(fq_chunks_search(chunks, 0, INT64_MAX, t, &hit, &nodes));
        cr_assert(hit.chunk.base_offset <= t && t < hit.end_offset);
    }
    cr_assert_eq(fq_chunks_encoded_bytes(chunks, 0), 0, "it covers what is not its own");
    cr_assert_eq(fq_chunks_encoded_bytes(chunks, 250), 0);
    reserve(chunks);
    for (int64_t i = 1000; i < 1010; i++) {
        fq_chunks_add(chunks, 1000, i, (uint64_t)(i - 1000) * 70000, 70000, i, i);
    }
    cr_assert_eq(fq_chunks_segments_count(chunks), 2);
    cr_assert_gt(fq_chunks_encoded_bytes(chunks, 1000), 0);
    fq_chunks_destroy(chunks);
}

Test(chunks, hold_a_bounded_amount_of_memory_after_trims)
{
    struct fq_chunks *chunks;
    cr_assert_eq(fq_chunks_create(&chunks), 0);
    size_t most = 0;
    for (int64_t i = 0; i < 200000; i++) {
        reserve(chunks);
        fq_chunks_add(chunks, i / 100 * 100, i, (uint64_t)(i % 100) * 70000, 70000, i, i);
        if (i % 100 == 99) {
            fq_chunks_trim(chunks, i - 500);
            size_t bytes = fq_chunks_memory_bytes(chunks);
            most = bytes > most ? bytes : most;
        }
    }
    cr_assert_leq(fq_chunks_segments_count(chunks), 7);
    cr_assert_leq(most, 200000);
    fq_chunks_destroy(chunks);
}

/* ---- index file ----------------------------------------------------------------------------- */

static const uint8_t golden[] = {
    'F', 'Q', 'I', 'N', 'D', 'E', 'X', '1', 1, 0, 0, 0, 7, 0, 0, 0, /* magic, version, partition */
    0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x1f,      /* topic id */
    100, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x0c, 0x02, 0, 0, 0, 0, 0,      /* base offset, 131 KiB */
    3, 0, 0, 0, 0, 0, 0, 0,                                         /* count, zero */
    100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0xf4, 0x01, 0, 0, 0, 0, 0, 0, 0xd0, 0x07, 0, 0, 0, 0, 0, 0,     /* 500, 2000 */
    120, 0, 0, 0, 0, 0, 0, 0, 0x00, 0xf0, 0, 0, 0, 0, 0, 0,
    0xb8, 0x0b, 0, 0, 0, 0, 0, 0, 0xb8, 0x0b, 0, 0, 0, 0, 0, 0,     /* 3000, 3000 */
    130, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x08, 0x02, 0, 0, 0, 0, 0,
    0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,                 /* -5 */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,                 /* INT64_MAX */
};

enum { GOLDEN_BYTES = sizeof golden + 4 };

static void golden_with_crc(uint8_t out[GOLDEN_BYTES])
{
    memcpy(out, golden, sizeof golden);
    fq_store_le32(out + sizeof golden, fq_crc32c(0, golden, sizeof golden));
}

static int load(const uint8_t *bytes, size_t length)
{
    struct fq_chunks *chunks;
    cr_assert_eq(fq_chunks_create(&chunks), 0);
    int r = fq_chunks_load(chunks, &topic_id, 7, 100, 140, 131 << 10, bytes, length, NULL);
    cr_assert_eq(fq_chunks_segments_count(chunks), r == 0 ? 1 : 0, "all or nothing");
    fq_chunks_destroy(chunks);
    return r;
}

Test(index_file, has_these_bytes)
{
    struct fq_chunks *chunks = make_segment();
    uint8_t expected[GOLDEN_BYTES], bytes[GOLDEN_BYTES];
    golden_with_crc(expected);
    cr_assert_eq(fq_chunks_encoded_bytes(chunks, 100), GOLDEN_BYTES);
    cr_assert_eq(fq_chunks_encode(chunks, &topic_id, 7, 100, bytes, sizeof bytes), 0);
    cr_assert_eq(memcmp(bytes, expected, sizeof bytes), 0);
    cr_assert_eq(fq_chunks_encode(chunks, &topic_id, 7, 100, bytes, sizeof bytes - 1),
                 FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(fq_chunks_encode(chunks, &topic_id, 7, 101, bytes, sizeof bytes),
                 FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(load(expected, sizeof expected), 0);
    fq_chunks_destroy(chunks);
}

Test(index_file, any_flipped_bit_or_cut_is_found) /* case 22 */
{
    uint8_t bytes[GOLDEN_BYTES];
    golden_with_crc(bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(load(bytes, sizeof bytes), FLASHQ_ERR_CORRUPT, "bit %zu", bit);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t length = 0; length < sizeof bytes; length++) {
        cr_assert_eq(load(bytes, length), FLASHQ_ERR_CORRUPT);
    }
}

static void check_lie(size_t at, uint8_t value, int expected, const char *what)
{
    uint8_t bytes[GOLDEN_BYTES];
    golden_with_crc(bytes);
    bytes[at] = value;
    fq_store_le32(bytes + sizeof golden, fq_crc32c(0, bytes, sizeof golden));
    cr_assert_eq(load(bytes, sizeof bytes), expected, "%s", what);
}

Test(index_file, whose_checksum_holds_is_not_believed_either)
{
    check_lie(8, 2, FLASHQ_ERR_VERSION, "a version to come");
    check_lie(12, 8, FLASHQ_ERR_CORRUPT, "another partition");
    check_lie(20, 0, FLASHQ_ERR_CORRUPT, "another topic");
    check_lie(32, 99, FLASHQ_ERR_CORRUPT, "another segment");
    check_lie(40, 1, FLASHQ_ERR_CORRUPT, "another length of the segment");
    check_lie(48, 2, FLASHQ_ERR_CORRUPT, "fewer entries than bytes");
    check_lie(51, 0x80, FLASHQ_ERR_CORRUPT, "far more entries than bytes");
    check_lie(52, 1, FLASHQ_ERR_CORRUPT, "what is to be zero");
    check_lie(56, 101, FLASHQ_ERR_CORRUPT, "the first entry is not at the base");
    check_lie(64, 1, FLASHQ_ERR_CORRUPT, "nor at position 0");
    check_lie(88, 100, FLASHQ_ERR_CORRUPT, "offsets that stand still");
    check_lie(120, 120, FLASHQ_ERR_CORRUPT, "offsets that go back");
    check_lie(120, 140, FLASHQ_ERR_CORRUPT, "an offset behind the segment");
    check_lie(130, 0x03, FLASHQ_ERR_CORRUPT, "a position behind the data");
    check_lie(119, 0x80, FLASHQ_ERR_CORRUPT, "a maximum below the minimum");
}

Test(index_file, is_only_taken_behind_what_is_there)
{
    uint8_t bytes[GOLDEN_BYTES];
    golden_with_crc(bytes);
    struct fq_chunks *chunks;
    cr_assert_eq(fq_chunks_create(&chunks), 0);
    cr_assert_eq(
        fq_chunks_load(chunks, &topic_id, 7, 100, 140, 131 << 10, bytes, sizeof bytes, NULL), 0);
    cr_assert_eq(
        fq_chunks_load(chunks, &topic_id, 7, 100, 140, 131 << 10, bytes, sizeof bytes, NULL),
        FLASHQ_ERR_INVALID);
    fq_chunks_add(chunks, 140, 140, 0, 100, 1, 1);
    cr_assert_eq(fq_chunks_segments_count(chunks), 2);
    cr_assert_eq(fq_chunks_truncate(chunks, 125), 120, "a loaded segment can be cut");
    fq_chunks_add(chunks, 100, 120, 60 << 10, 100, 7, 8);
    struct fq_chunk_hit hit;
    uint64_t nodes = 0;
    cr_assert(!fq_chunks_search(chunks, 0, INT64_MAX, 2001, &hit, &nodes));
    fq_chunks_destroy(chunks);
}
