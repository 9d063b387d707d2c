/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RecordBatch v2: what goes in comes out, lies are found, hostile frames cost nothing. That the
 * bytes are Kafka's is shown by tests/golden.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/record_batch.h"
#include "wire/varint.h"

#define SLICE(text) ((struct fq_slice){.data = (const uint8_t *)(text), .length = sizeof(text) - 1})
static const struct fq_slice null_slice;

static const struct fq_batch_finish no_producer = {
    .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};

static size_t finish(struct fq_batch_builder *builder)
{
    int64_t length = fq_batch_builder_finish(builder, &no_producer);
    cr_assert_gt(length, FQ_BATCH_HEADER_BYTES);
    return (size_t)length;
}

static bool same(struct fq_slice a, struct fq_slice b)
{
    return (a.data == NULL) == (b.data == NULL) && a.length == b.length &&
           (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static size_t one_record_batch(uint8_t *out, size_t capacity, const struct fq_record_in *record)
{
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, capacity);
    cr_assert_eq(fq_batch_builder_append(&builder, record), 0);
    return finish(&builder);
}

static struct fq_record first_record(const uint8_t *batch, size_t length)
{
    struct fq_batch_iter iter;
    struct fq_batch_scratch scratch = {0};
    struct fq_record record;
    cr_assert_eq(fq_batch_iter_init(&iter, batch, length, &scratch, NULL), 0);
    cr_assert_eq(fq_batch_iter_next(&iter, &record), 1);
    fq_batch_scratch_fini(&scratch); /* not used: the batch is not compressed */
    return record;
}

/* Walks all; the last result: 0 or an error. */
static int walk(const uint8_t *batch, size_t length, struct fq_batch_scratch *scratch)
{
    struct fq_batch_iter iter;
    struct fq_record record;
    int rc = fq_batch_iter_init(&iter, batch, length, scratch, NULL);
    while (rc == 0 && (rc = fq_batch_iter_next(&iter, &record)) == 1) {
        rc = 0;
    }
    return rc;
}

/* ---- varints -------------------------------------------------------------------------------- */

Test(varint, round_trips_at_every_power_of_two)
{
    for (int bit = 0; bit < 64; bit++) {
        for (int near = -1; near <= 1; near++) {
            int64_t value = (int64_t)((UINT64_C(1) << bit) + (uint64_t)(int64_t)near);
            for (int sign = 0; sign < 2; sign++, value = (int64_t)(0 - (uint64_t)value)) {
                uint8_t bytes[FQ_VARINT_BYTES_MAX];
                size_t length = (size_t)(fq_varint_put(bytes, value) - bytes);
                cr_assert_eq(length, fq_varint_bytes(value), "%lld", (long long)value);
                const uint8_t *at = bytes;
                int64_t back;
                cr_assert(fq_varint_get(&at, bytes + length, &back));
                cr_assert_eq(back, value);
                cr_assert_eq(at, bytes + length);
                at = bytes;
                cr_assert_not(fq_varint_get(&at, bytes + length - 1, &back), "cut short");
                cr_assert_eq(at, bytes);
            }
        }
    }
}

Test(varint, only_the_shortest_form_is_accepted)
{
    const struct {
        uint8_t bytes[11];
        size_t length;
    } bad[] = {
        {{0x80, 0x00}, 2},
        {{0xff, 0x80, 0x00}, 3},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 10},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x00}, 11},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11},
        {{0x80}, 1},
        {{0}, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const uint8_t *at = bad[i].bytes;
        int64_t value;
        cr_assert_not(fq_varint_get(&at, at + bad[i].length, &value), "%zu", i);
    }
    uint8_t bytes[FQ_VARINT_BYTES_MAX];
    const uint8_t *at = bytes;
    int32_t small;
    uint8_t *end = fq_varint_put(bytes, INT64_C(1) << 31);
    cr_assert_not(fq_varint_get32(&at, end, &small));
    end = fq_varint_put(bytes, INT32_MIN);
    cr_assert(fq_varint_get32(&at, end, &small));
    cr_assert_eq(small, INT32_MIN);
}

/* ---- what goes in comes out ----------------------------------------------------------------- */

/* case 30 */
Test(record_batch, null_and_empty_keys_and_values_differ)
{
    const struct fq_slice kinds[] = {null_slice, SLICE(""), SLICE("x")};
    for (size_t k = 0; k < 3; k++) {
        for (size_t v = 0; v < 3; v++) {
            uint8_t out[256];
            struct fq_record_in in = {.timestamp_ms = 5, .key = kinds[k], .value = kinds[v]};
            size_t length = one_record_batch(out, sizeof out, &in);
            struct fq_record record = first_record(out, length);
            cr_assert(same(record.key, kinds[k]), "key %zu", k);
            cr_assert(same(record.value, kinds[v]), "value %zu", v);
            cr_assert_eq(record.headers_count, 0u);
        }
    }
}

/* case 31 */
Test(record_batch, headers_keep_order_duplicates_null_empty_and_nul_bytes)
{
    const struct fq_header headers[] = {
        {SLICE("a"), SLICE("1")},      {SLICE("a"), null_slice},         {SLICE("a"), SLICE("")},
        {SLICE(""), SLICE("no name")}, {SLICE("n\0l"), SLICE("\0\0\0")}, {SLICE("b"), SLICE("2")},
        {SLICE("a"), SLICE("1")},
    };
    enum { COUNT = sizeof headers / sizeof headers[0] };
    uint8_t out[512];
    struct fq_record_in in = {.headers = headers, .headers_count = COUNT};
    struct fq_record record = first_record(out, one_record_batch(out, sizeof out, &in));
    cr_assert_eq(record.headers_count, (uint32_t)COUNT);
    struct fq_headers_iter iter;
    struct fq_header header;
    fq_headers_iter_init(&iter, &record);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(fq_headers_next(&iter, &header), 1);
        cr_assert(same(header.name, headers[i].name) && same(header.value, headers[i].value), "%zu",
                  i);
    }
    cr_assert_eq(fq_headers_next(&iter, &header), 0);
}

/* cases 31, 32 */
Test(record_batch, as_many_headers_as_the_limit_and_one_more)
{
    enum { MOST = FQ_LIMIT_RECORD_HEADERS };
    struct fq_header *headers = calloc(MOST + 1, sizeof *headers);
    size_t capacity = 4u << 20;
    uint8_t *out = malloc(capacity);
    cr_assert(headers && out);
    for (size_t i = 0; i <= MOST; i++) {
        headers[i] = (struct fq_header){SLICE("h"), SLICE("v")};
    }
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, capacity);
    struct fq_record_in in = {.headers = headers, .headers_count = MOST + 1};
    cr_assert_eq(fq_batch_builder_append(&builder, &in), FLASHQ_ERR_TOO_LARGE);
    in.headers_count = MOST;
    struct fq_record record = first_record(out, one_record_batch(out, capacity, &in));
    cr_assert_eq(record.headers_count, (uint32_t)MOST);
    free(headers);
    free(out);
}

/* case 32 */
Test(record_batch, as_many_records_as_the_limit_and_one_more)
{
    size_t capacity = 16u << 20;
    uint8_t *out = malloc(capacity);
    cr_assert(out);
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, capacity);
    struct fq_record_in in = {.timestamp_ms = 1};
    for (int32_t i = 0; i < FQ_LIMIT_BATCH_RECORDS; i++) {
        cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    }
    cr_assert_eq(fq_batch_builder_append(&builder, &in), FLASHQ_ERR_TOO_LARGE);
    size_t length = finish(&builder);
    int64_t least, greatest;
    cr_assert_eq(fq_batch_check_records(out, length, &least, &greatest, NULL), 0);
    free(out);
}

/* case 32 */
Test(record_batch, a_record_fits_to_the_last_byte_and_not_one_further)
{
    static uint8_t out[4096];
    static const uint8_t value[2000];
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    for (int round = 0; round < 2000; round++) {
        struct fq_record_in in = {
            .timestamp_ms = (int64_t)(fq_prng_next(&prng) >> fq_prng_below(&prng, 63)),
            .key = {value, fq_prng_below(&prng, 200)},
            .value = {value, fq_prng_below(&prng, sizeof value)},
        };
        struct fq_batch_builder builder, before;
        fq_batch_builder_init(&builder, out, sizeof out);
        struct fq_record_in first = {.timestamp_ms = 1000, .value = SLICE("first")};
        cr_assert_eq(fq_batch_builder_append(&builder, &first), 0);
        size_t needs = fq_batch_builder_record_bytes(&builder, &in);
        builder.capacity = builder.used + needs - 1;
        before = builder;
        cr_assert_eq(fq_batch_builder_append(&builder, &in), FLASHQ_ERR_TOO_LARGE);
        cr_assert_eq(memcmp(&before, &builder, sizeof before), 0, "an error changes nothing");
        builder.capacity++;
        cr_assert_eq(fq_batch_builder_append(&builder, &in), 0, "seed %llu",
                     (unsigned long long)seed);
        cr_assert_eq(builder.used, before.used + needs, "seed %llu", (unsigned long long)seed);
    }
}

/* Committed with any length, a claimed record has the bytes that append gives it; what was claimed and
 * given up leaves nothing. Lengths on both sides of every varint's growth. */
Test(record_batch, a_claimed_value_is_written_where_it_stays)
{
    enum { MOST = 70000 };
    static const size_t lengths[] = {0, 1, 55, 63, 64, 65, 120, 127, 128, 8100, 8191, 8192, 8193, MOST};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0] };
    static uint8_t by_append[3 * MOST], by_claim[3 * MOST], content[MOST];
    const struct fq_header headers[] = {{SLICE("h"), SLICE("v")}, {SLICE("h"), null_slice}};
    struct fq_prng prng;
    uint64_t seed = fq_random_u64();
    fq_prng_seed(&prng, seed);
    for (size_t i = 0; i < MOST; i++) {
        content[i] = (uint8_t)fq_prng_next(&prng);
    }
    for (size_t i = 0; i < LENGTHS * LENGTHS; i++) {
        size_t claimed = lengths[i / LENGTHS], length = lengths[i % LENGTHS];
        if (length > claimed) {
            continue;
        }
        struct fq_record_in in = {.timestamp_ms = 7, .key = {content, i % 3 * 60},
                                  .headers = headers, .headers_count = i % 3};
        struct fq_batch_builder appended, builder;
        struct fq_batch_claim claim;
        fq_batch_builder_init(&appended, by_append, sizeof by_append);
        fq_batch_builder_init(&builder, by_claim, sizeof by_claim);
        for (int turn = 0; turn < 2; turn++, in.timestamp_ms += 100) {
            in.value = (struct fq_slice){NULL, claimed};
            cr_assert_eq(fq_batch_builder_claim(&builder, &in, &claim), 0);
            cr_assert_eq(fq_batch_builder_claim(&builder, &in, &claim), 0, "given up, and again");
            memcpy(by_claim + claim.value_at, content, length);
            fq_batch_builder_commit(&builder, &claim, length);
            in.value = (struct fq_slice){content, length};
            cr_assert_eq(fq_batch_builder_append(&appended, &in), 0);
        }
        size_t total = finish(&appended);
        cr_assert_eq(finish(&builder), total, "%zu of %zu", length, claimed);
        cr_assert_arr_eq(by_claim, by_append, total, "%zu of %zu, seed %llu", length, claimed,
                         (unsigned long long)seed);
    }
    struct fq_batch_builder small;
    struct fq_batch_claim claim;
    struct fq_record_in in = {.value = {NULL, 100}};
    fq_batch_builder_init(&small, by_claim, FQ_BATCH_HEADER_BYTES + 100);
    cr_assert_eq(fq_batch_builder_claim(&small, &in, &claim), FLASHQ_ERR_TOO_LARGE);
}

struct made {
    uint8_t *bytes;
    size_t length;
    struct fq_record_in records[300];
    struct fq_header headers[16];
    size_t count;
    uint8_t content[4096];
};

static void make_random(struct made *made, struct fq_prng *prng, uint8_t *space, size_t capacity)
{
    for (size_t i = 0; i < sizeof made->content; i++) {
        made->content[i] = (uint8_t)(fq_prng_below(prng, 4) ? 'a' + i % 5 : fq_prng_next(prng));
    }
    for (size_t i = 0; i < 16; i++) {
        made->headers[i].name = (struct fq_slice){made->content + i, fq_prng_below(prng, 5)};
        made->headers[i].value = fq_prng_below(prng, 4)
                                     ? (struct fq_slice){made->content, fq_prng_below(prng, 90)}
                                     : null_slice;
    }
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, space, capacity);
    made->count = 1 + fq_prng_below(prng, 300);
    for (size_t i = 0; i < made->count; i++) {
        struct fq_record_in *in = &made->records[i];
        *in = (struct fq_record_in){
            .timestamp_ms = (int64_t)fq_prng_next(prng) >> (1 + fq_prng_below(prng, 60)),
            .headers = made->headers,
            .headers_count = fq_prng_below(prng, 3) ? 0 : fq_prng_below(prng, 17),
        };
        if (fq_prng_below(prng, 3)) {
            in->key = (struct fq_slice){made->content, fq_prng_below(prng, 100)};
        }
        if (fq_prng_below(prng, 5)) {
            in->value = (struct fq_slice){made->content, fq_prng_below(prng, sizeof made->content)};
        }
        cr_assert_eq(fq_batch_builder_append(&builder, in), 0);
    }
    made->bytes = space;
    made->length = finish(&builder);
}

static void check_equal(const struct made *made, const uint8_t *batch, size_t length,
                        struct fq_batch_scratch *scratch)
{
    struct fq_batch_iter iter;
    struct fq_record record;
    struct fq_err err = {0};
    cr_assert(fq_batch_crc_ok(batch, length));
    cr_assert_eq(fq_batch_iter_init(&iter, batch, length, scratch, &err), 0, "%s", err.text);
    for (size_t i = 0; i < made->count; i++) {
        const struct fq_record_in *in = &made->records[i];
        cr_assert_eq(fq_batch_iter_next(&iter, &record), 1);
        cr_assert_eq(record.offset, (int64_t)i);
        cr_assert_eq(record.timestamp_ms, in->timestamp_ms);
        cr_assert(same(record.key, in->key) && same(record.value, in->value));
        cr_assert_eq(record.headers_count, in->headers_count);
        struct fq_headers_iter headers;
        struct fq_header header;
        fq_headers_iter_init(&headers, &record);
        for (size_t h = 0; h < in->headers_count; h++) {
            cr_assert_eq(fq_headers_next(&headers, &header), 1);
            cr_assert(same(header.name, in->headers[h].name) &&
                      same(header.value, in->headers[h].value));
        }
        cr_assert_eq(fq_headers_next(&headers, &header), 0);
    }
    cr_assert_eq(fq_batch_iter_next(&iter, &record), 0);
}

Test(record_batch, random_batches_round_trip_through_every_codec)
{
    uint64_t seed = fq_random_u64();
    cr_log_info("seed %llu", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    size_t capacity = 2u << 20;
    uint8_t *space = malloc(capacity), *packed = malloc(capacity);
    struct made *made = calloc(1, sizeof *made);
    struct fq_batch_scratch scratch = {0};
    struct fq_batch_compressor compressor = {0};
    cr_assert(space && packed && made);
    for (int round = 0; round < 40; round++) {
        make_random(made, &prng, space, capacity);
        check_equal(made, made->bytes, made->length, &scratch);
        int64_t least, greatest;
        cr_assert_eq(fq_batch_check_records(made->bytes, made->length, &least, &greatest, NULL), 0);
        for (size_t i = 0; i < made->count; i++) {
            cr_assert(least <= made->records[i].timestamp_ms &&
                      made->records[i].timestamp_ms <= greatest);
        }
        static const struct {
            enum fq_codec codec;
            int level;
        } ways[] = {{FQ_CODEC_LZ4, 0}, {FQ_CODEC_LZ4, 9}, {FQ_CODEC_ZSTD, 0}, {FQ_CODEC_ZSTD, 9}};
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            int64_t length =
                fq_batch_compress(w % 2 ? &compressor : NULL, made->bytes, made->length,
                                  ways[w].codec, ways[w].level, packed, capacity);
            cr_assert_geq(length, 0);
            if (length > 0) {
                cr_assert_lt(length, (int64_t)made->length);
                check_equal(made, packed, (size_t)length, &scratch);
                int64_t again =
                    fq_batch_compress(&compressor, made->bytes, made->length, ways[w].codec,
                                      ways[w].level, packed, (size_t)length - 1);
                cr_assert(again >= 0 && again < length, "never past the capacity, seed %llu",
                          (unsigned long long)seed);
            }
        }
    }
    fq_batch_scratch_fini(&scratch);
    fq_batch_compressor_fini(&compressor);
    free(made);
    free(packed);
    free(space);
}

Test(record_batch, what_does_not_shrink_is_left_alone)
{
    uint8_t noise[300], out[512], packed[512];
    fq_random_bytes(noise, sizeof noise);
    struct fq_record_in in = {.value = {noise, sizeof noise}};
    size_t length = one_record_batch(out, sizeof out, &in);
    cr_assert_eq(fq_batch_compress(NULL, out, length, FQ_CODEC_LZ4, 0, packed, sizeof packed), 0);
    cr_assert_eq(fq_batch_compress(NULL, out, length, FQ_CODEC_ZSTD, 0, packed, sizeof packed), 0);
    cr_assert_eq(fq_batch_compress(NULL, out, length, FQ_CODEC_GZIP, 0, packed, sizeof packed),
                 FLASHQ_ERR_INVALID);
}

/* ---- the header ----------------------------------------------------------------------------- */

Test(record_batch, the_stamp_leaves_the_crc_true_and_a_renumbering_makes_it_anew)
{
    uint8_t out[256];
    struct fq_record_in in = {.timestamp_ms = 1, .value = SLICE("v")};
    size_t length = one_record_batch(out, sizeof out, &in);
    struct fq_batch_header header;
    cr_assert_eq(fq_batch_header_read(out, length, &header, NULL), 0);
    cr_assert_eq(header.base_offset, 0);
    cr_assert_eq(header.leader_epoch, -1);
    cr_assert_eq(header.producer_id, -1);
    uint32_t crc = header.crc;

    fq_batch_stamp(out, INT64_C(1) << 40, 9);
    cr_assert_eq(fq_batch_header_read(out, length, &header, NULL), 0);
    cr_assert_eq(header.base_offset, INT64_C(1) << 40);
    cr_assert_eq(header.leader_epoch, 9);
    cr_assert_eq(header.crc, crc);
    cr_assert(fq_batch_crc_ok(out, length));
    cr_assert_eq(first_record(out, length).offset, INT64_C(1) << 40);

    fq_batch_renumber(out, length, 77, 3, 500);
    cr_assert(fq_batch_crc_ok(out, length));
    cr_assert_eq(fq_batch_header_read(out, length, &header, NULL), 0);
    cr_assert_neq(header.crc, crc);
    cr_assert_eq(header.producer_id, 77);
    cr_assert_eq(header.producer_epoch, 3);
    cr_assert_eq(header.base_sequence, 500);

    uint8_t again[FQ_BATCH_HEADER_BYTES];
    fq_batch_header_write(&header, again);
    cr_assert_arr_eq(again, out, sizeof again);
}

Test(record_batch, headers_that_cannot_be_are_refused_with_the_reason)
{
    uint8_t good[256], bad[256];
    struct fq_record_in in = {.value = SLICE("v")};
    size_t length = one_record_batch(good, sizeof good, &in);
    const struct {
        size_t at;
        uint8_t value;
        int code;
        const char *says;
    } changes[] = {
        {FQ_BATCH_MAGIC, 1, FLASHQ_ERR_PROTOCOL, "magic 1"},
        {FQ_BATCH_LENGTH, 0x80, FLASHQ_ERR_PROTOCOL, "length -"},
        {FQ_BATCH_LENGTH + 3, 48, FLASHQ_ERR_PROTOCOL, "less than"},
        {FQ_BATCH_ATTRIBUTES, 1, FLASHQ_ERR_PROTOCOL, "attributes 0x0100"},
        {FQ_BATCH_ATTRIBUTES + 1, 0x80, FLASHQ_ERR_PROTOCOL, "attributes 0x0080"},
        {FQ_BATCH_ATTRIBUTES + 1, 1, FLASHQ_ERR_UNSUPPORTED, "gzip"},
        {FQ_BATCH_ATTRIBUTES + 1, 2, FLASHQ_ERR_UNSUPPORTED, "snappy"},
        {FQ_BATCH_ATTRIBUTES + 1, 5, FLASHQ_ERR_PROTOCOL, "codec 5"},
        {FQ_BATCH_RECORDS_COUNT + 3, 0, FLASHQ_ERR_PROTOCOL, "0 records"},
        {FQ_BATCH_RECORDS_COUNT + 3, 2, FLASHQ_ERR_PROTOCOL, "2 records"},
        {FQ_BATCH_LAST_OFFSET_DELTA + 3, 7, FLASHQ_ERR_PROTOCOL, "delta 7"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, length);
        bad[changes[i].at] = changes[i].value;
        struct fq_batch_header header;
        struct fq_err err;
        cr_assert_eq(fq_batch_header_read(bad, length, &header, &err), changes[i].code, "%zu", i);
        cr_assert(strstr(err.text, changes[i].says), "%s", err.text);
    }
    struct fq_batch_header header;
    cr_assert_eq(fq_batch_header_read(good, 60, &header, NULL), FLASHQ_ERR_PROTOCOL);
    cr_assert_eq(fq_batch_header_read(good, 61, &header, NULL), 0);
    cr_assert_eq(fq_batch_total_bytes(&header), length);

    memcpy(bad, good, length);
    fq_store_be32(bad + FQ_BATCH_RECORDS_COUNT, FQ_LIMIT_BATCH_RECORDS + 1);
    fq_store_be32(bad + FQ_BATCH_LAST_OFFSET_DELTA, FQ_LIMIT_BATCH_RECORDS);
    cr_assert_eq(fq_batch_header_read(bad, length, &header, NULL), FLASHQ_ERR_LIMIT);
}

/* ---- lies ----------------------------------------------------------------------------------- */

static size_t three_records(uint8_t *out, size_t capacity)
{
    struct fq_batch_builder builder;
    const struct fq_header headers[] = {{SLICE("name"), SLICE("value")}};
    fq_batch_builder_init(&builder, out, capacity);
    struct fq_record_in in = {.timestamp_ms = 1000,
                              .key = SLICE("key"),
                              .value = SLICE("value"),
                              .headers = headers,
                              .headers_count = 1};
    cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    in.timestamp_ms = 3000;
    cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    in.timestamp_ms = 500;
    cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    return finish(&builder);
}

static int check(const uint8_t *batch, size_t length, struct fq_err *err)
{
    int64_t least, greatest;
    return fq_batch_check_records(batch, length, &least, &greatest, err);
}

Test(record_batch, check_finds_what_the_crc_does_not)
{
    uint8_t good[512], bad[512];
    size_t length = three_records(good, sizeof good);
    struct fq_err err;
    int64_t least, greatest;
    cr_assert_eq(fq_batch_check_records(good, length, &least, &greatest, NULL), 0);
    cr_assert_eq(least, 500);
    cr_assert_eq(greatest, 3000);

    memcpy(bad, good, length);
    fq_store_be64(bad + FQ_BATCH_MAX_TIMESTAMP, 2999);
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);
    cr_assert(strstr(err.text, "the greatest is 3000"), "%s", err.text);
    struct fq_batch_scratch scratch = {0};
    cr_assert_eq(walk(bad, length, &scratch), FLASHQ_ERR_PROTOCOL);

    memcpy(bad, good, length);
    fq_store_be32(bad + FQ_BATCH_RECORDS_COUNT, 2);
    fq_store_be32(bad + FQ_BATCH_LAST_OFFSET_DELTA, 1);
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);
    cr_assert(strstr(err.text, "follow the batch's last record"), "%s", err.text);

    fq_store_be32(bad + FQ_BATCH_RECORDS_COUNT, 4);
    fq_store_be32(bad + FQ_BATCH_LAST_OFFSET_DELTA, 3);
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);

    memcpy(bad, good, length);
    bad[FQ_BATCH_HEADER_BYTES + 3] = 2; /* the first record's offset delta */
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);
    cr_assert(strstr(err.text, "record 0 of the batch has offset delta 1"), "%s", err.text);
    cr_assert_eq(walk(bad, length, &scratch), FLASHQ_ERR_PROTOCOL);

    memcpy(bad, good, length);
    bad[FQ_BATCH_HEADER_BYTES + 2] = 2; /* its timestamp delta */
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);

    memcpy(bad, good, length);
    bad[FQ_BATCH_HEADER_BYTES + 1] = 1; /* its attributes */
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_PROTOCOL);

    memcpy(bad, good, length);
    bad[FQ_BATCH_ATTRIBUTES + 1] = FQ_BATCH_ATTR_CONTROL;
    cr_assert_eq(check(bad, length, &err), FLASHQ_ERR_UNSUPPORTED);
    cr_assert_eq(check(good, length - 1, &err), FLASHQ_ERR_PROTOCOL);
    fq_batch_scratch_fini(&scratch);
}

/* The check goes a shorter way over what most records look like; the iterator, which knows one way only, must
 * agree with it about every batch that is one byte away from a good one. */
static bool is_good_one_by_one(const uint8_t *batch, size_t length, struct fq_batch_scratch *scratch)
{
    struct fq_batch_iter iter;
    struct fq_record record;
    if (fq_batch_iter_init(&iter, batch, length, scratch, NULL) != 0) {
        return false;
    }
    int rc = fq_batch_iter_next(&iter, &record);
    bool is_good = rc == 1 && record.timestamp_ms == iter.header.base_timestamp;
    while (rc == 1) {
        rc = fq_batch_iter_next(&iter, &record);
    }
    return is_good && rc == 0;
}

static size_t plain_records(uint8_t *out, size_t capacity, int count, size_t value_bytes)
{
    static const uint8_t zeros[9000];
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, capacity);
    for (int i = 0; i < count; i++) {
        struct fq_record_in in = {.timestamp_ms = 1000 + (i * 37) % 300,
                                  .value = {zeros, value_bytes}};
        if (i % 5 == 3) {
            in.key = (struct fq_slice){zeros, (size_t)(i % 70)};
        }
        cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    }
    return finish(&builder);
}

Test(record_batch, check_and_iterator_agree_a_byte_away_from_good)
{
    static const struct {
        int count;
        size_t value_bytes;
    } shapes[] = {{3, 0}, {70, 1}, {140, 5}, {30, 63}, {20, 64}, {4, 8180}, {9000, 0}};
    static const uint8_t flips[] = {0x01, 0x02, 0x03, 0x80, 0x81, 0xff};
    size_t capacity = 256u << 10, good = 0;
    uint8_t *batch = malloc(capacity);
    struct fq_batch_scratch scratch = {0};
    cr_assert(batch);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        size_t length = plain_records(batch, capacity, shapes[s].count, shapes[s].value_bytes);
        cr_assert_eq(check(batch, length, NULL), 0);
        size_t step = length > 20000 ? 997 : length > 2000 ? 7 : 1;
        for (size_t at = FQ_BATCH_HEADER_BYTES; at < length; at += step) {
            for (size_t f = 0; f < sizeof flips; f++) {
                batch[at] ^= flips[f];
                bool expected = is_good_one_by_one(batch, length, &scratch);
                cr_assert_eq(check(batch, length, NULL) == 0, expected, "shape %zu byte %zu flip %x",
                             s, at, (unsigned)flips[f]);
                good += expected;
                batch[at] ^= flips[f];
            }
        }
    }
    cr_assert_gt(good, 100); /* flips inside of values */
    fq_batch_scratch_fini(&scratch);
    free(batch);
}

Test(record_batch, the_greatest_timestamps_do_not_overflow)
{
    uint8_t out[256];
    struct fq_record_in in = {.timestamp_ms = INT64_MAX, .value = SLICE("v")};
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, sizeof out);
    cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    in.timestamp_ms = -2;
    cr_assert_eq(fq_batch_builder_append(&builder, &in), FLASHQ_ERR_TIMESTAMP);
    in.timestamp_ms = 0;
    cr_assert_eq(fq_batch_builder_append(&builder, &in), 0);
    size_t length = finish(&builder);
    cr_assert_eq(check(out, length, NULL), 0);

    fq_store_be64(out + FQ_BATCH_BASE_TIMESTAMP,
                  (uint64_t)INT64_MIN); /* base + delta < INT64_MIN */
    struct fq_batch_scratch scratch = {0};
    cr_assert_eq(check(out, length, NULL), FLASHQ_ERR_PROTOCOL);
    cr_assert_eq(walk(out, length, &scratch), FLASHQ_ERR_PROTOCOL);
    fq_batch_stamp(out, INT64_MAX - 1, 0); /* two records from here are past the last offset */
    cr_assert_eq(walk(out, length, &scratch), FLASHQ_ERR_PROTOCOL);
    fq_batch_scratch_fini(&scratch);
}

Test(record_batch, every_cut_and_every_flipped_bit_is_found)
{
    uint8_t good[512];
    size_t length = three_records(good, sizeof good);
    struct fq_batch_scratch scratch = {0};
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *exact =
            malloc(cut ? cut : 1); /* so that AddressSanitizer sees a read past the end */
        cr_assert(exact);
        memcpy(exact, good, cut);
        cr_assert_neq(walk(exact, cut, &scratch), 0);
        cr_assert_neq(check(exact, cut, NULL), 0);
        if (cut >= FQ_BATCH_HEADER_BYTES) { /* the same with a header that tells of the cut */
            fq_store_be32(exact + FQ_BATCH_LENGTH, (uint32_t)(cut - FQ_BATCH_LEADER_EPOCH));
            cr_assert_neq(walk(exact, cut, &scratch), 0, "cut at %zu", cut);
            cr_assert_neq(check(exact, cut, NULL), 0, "cut at %zu", cut);
        }
        free(exact);
    }
    for (size_t bit = 8 * FQ_BATCH_CRC; bit < 8 * length; bit++) {
        good[bit / 8] = (uint8_t)(good[bit / 8] ^ (1u << bit % 8));
        cr_assert_not(fq_batch_crc_ok(good, length), "bit %zu", bit);
        (void)walk(good, length, &scratch);
        (void)check(good, length, NULL);
        good[bit / 8] = (uint8_t)(good[bit / 8] ^ (1u << bit % 8));
    }
    fq_batch_scratch_fini(&scratch);
}

/* ---- compressed frames ---------------------------------------------------------------------- */

/* A batch with `payload` as its compressed records. */
static size_t compressed_batch(uint8_t *out, enum fq_codec codec, const void *payload,
                               size_t length, int32_t records_count)
{
    struct fq_batch_header header = {
        .batch_length = (int32_t)(FQ_BATCH_HEADER_BYTES + length - FQ_BATCH_LEADER_EPOCH),
        .magic = 2,
        .attributes = (int16_t)codec,
        .records_count = records_count,
        .last_offset_delta = records_count - 1,
        .producer_id = -1,
    };
    fq_batch_header_write(&header, out);
    memcpy(out + FQ_BATCH_HEADER_BYTES, payload, length);
    return FQ_BATCH_HEADER_BYTES + length;
}

Test(record_batch, a_frame_that_claims_much_allocates_little)
{
    /* zstd, one segment of claimed 2^62 bytes, one raw block of one byte */
    static const uint8_t claims[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0,  0,
                                     0,    0,    0,    0x40, 0x09, 0, 0, 'x'};
    uint8_t out[256];
    size_t length = compressed_batch(out, FQ_CODEC_ZSTD, claims, sizeof claims, 1);
    struct fq_batch_scratch scratch = {0};
    struct fq_err err = {0};
    struct fq_batch_iter iter;
    cr_assert_eq(fq_batch_iter_init(&iter, out, length, &scratch, &err), FLASHQ_ERR_PROTOCOL, "%s",
                 err.text);
    cr_assert_leq(scratch.capacity, 64u << 10);
    fq_batch_scratch_fini(&scratch);
}

Test(record_batch, output_is_bounded_whatever_the_input)
{
    /* zstd: blocks of 128 KiB of one byte repeated, four bytes each, more of them than the limit */
    enum { BLOCKS = (FQ_LIMIT_DECOMPRESSED_BYTES >> 17) + 1 };
    static uint8_t frame[6 + 4 * BLOCKS], out[FQ_BATCH_HEADER_BYTES + sizeof frame];
    memcpy(frame, (const uint8_t[]){0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38},
           6); /* a window of 128 KiB */
    for (size_t i = 0; i < BLOCKS; i++) {
        uint32_t header = (UINT32_C(1) << 17) << 3 | 1u << 1 | (i + 1 == BLOCKS);
        memcpy(frame + 6 + 4 * i, &header, 3);
    }
    size_t length = compressed_batch(out, FQ_CODEC_ZSTD, frame, sizeof frame, 1);
    struct fq_batch_scratch scratch = {0};
    struct fq_err err = {0};
    struct fq_batch_iter iter;
    cr_assert_eq(fq_batch_iter_init(&iter, out, length, &scratch, &err), FLASHQ_ERR_TOO_LARGE, "%s",
                 err.text);
    cr_assert(strstr(err.text, "268435456"), "the limit is named: %s", err.text);
    fq_batch_scratch_fini(&scratch);
}

Test(record_batch, frames_cut_short_or_followed_by_more_are_refused)
{
    static uint8_t plain[4096], packed[4096], changed[8192];
    static const uint8_t value[3000];
    struct fq_record_in in = {.value = {value, sizeof value}};
    size_t plain_length = one_record_batch(plain, sizeof plain, &in);
    struct fq_batch_scratch scratch = {0};
    const enum fq_codec codecs[] = {FQ_CODEC_LZ4, FQ_CODEC_ZSTD};
    for (size_t c = 0; c < 2; c++) {
        int64_t made =
            fq_batch_compress(NULL, plain, plain_length, codecs[c], 0, packed, sizeof packed);
        cr_assert_gt(made, 0);
        size_t length = (size_t)made;
        cr_assert_eq(walk(packed, length, &scratch), 0);
        for (size_t other = FQ_BATCH_HEADER_BYTES; other < length + 10; other++) {
            memset(changed, 0, sizeof changed);
            memcpy(changed, packed, length);
            fq_store_be32(changed + FQ_BATCH_LENGTH, (uint32_t)(other - FQ_BATCH_LEADER_EPOCH));
            cr_assert_eq(walk(changed, other, &scratch), other == length ? 0 : FLASHQ_ERR_PROTOCOL,
                         "%s of %zu as %zu", fq_codec_name(codecs[c]), length, other);
        }
        for (size_t bit = 8 * FQ_BATCH_HEADER_BYTES; bit < 8 * length; bit++) {
            packed[bit / 8] = (uint8_t)(packed[bit / 8] ^ (1u << bit % 8));
            (void)walk(packed, length, &scratch);
            packed[bit / 8] = (uint8_t)(packed[bit / 8] ^ (1u << bit % 8));
        }
        cr_assert_eq(walk(packed, length, &scratch), 0, "the scratch is fine after all that");
    }
    fq_batch_scratch_fini(&scratch);
}

Test(record_batch, readers_find_what_the_append_cannot_see_in_a_compressed_batch)
{
    static uint8_t plain[4096], packed[4096];
    static const uint8_t value[3000];
    struct fq_record_in in = {.timestamp_ms = 1000, .value = {value, sizeof value}};
    size_t length = one_record_batch(plain, sizeof plain, &in);
    int64_t made =
        fq_batch_compress(NULL, plain, length, FQ_CODEC_LZ4, 0, packed, sizeof packed);
    cr_assert_gt(made, 0);
    struct fq_batch_scratch scratch = {0};
    cr_assert_eq(walk(packed, (size_t)made, &scratch), 0);

    fq_store_be64(packed + FQ_BATCH_MAX_TIMESTAMP, 1001);
    fq_batch_crc_store(packed, (size_t)made);
    cr_assert(fq_batch_crc_ok(packed, (size_t)made));
    cr_assert_eq(check(packed, (size_t)made, NULL), 0);
    cr_assert_eq(walk(packed, (size_t)made, &scratch), FLASHQ_ERR_PROTOCOL);

    fq_store_be64(packed + FQ_BATCH_MAX_TIMESTAMP, 999); /* below the base */
    cr_assert_eq(check(packed, (size_t)made, NULL), FLASHQ_ERR_PROTOCOL);
    fq_batch_scratch_fini(&scratch);
}

Test(record_batch, codecs_have_names)
{
    enum fq_codec codec;
    cr_assert_eq(fq_codec_parse("lz4", &codec), 0);
    cr_assert_eq(codec, FQ_CODEC_LZ4);
    cr_assert_eq(fq_codec_parse("zstd", &codec), 0);
    cr_assert_eq(fq_codec_parse("none", &codec), 0);
    cr_assert_eq(codec, FQ_CODEC_NONE);
    cr_assert_eq(fq_codec_parse("gzip", &codec), FLASHQ_ERR_INVALID);
    cr_assert_str_eq(fq_codec_name(FQ_CODEC_SNAPPY), "snappy");
    cr_assert_str_eq(fq_codec_name((enum fq_codec)7), "unknown");
}
