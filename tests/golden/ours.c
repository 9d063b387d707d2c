/* SPDX-License-Identifier: Apache-2.0 */
/* See ours.h. Each vector is a function from an index to a record, so that it can be made again. */
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE(text)                                                                                \
    {                                                                                              \
        .data = (const uint8_t *)(text), .length = sizeof(text) - 1                                \
    }
#define NOW         INT64_C(1764500000000)
#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])

static struct fq_slice text_of(char *space, size_t capacity, const char *words, size_t number)
{
    int length = snprintf(space, capacity, "%s%zu", words, number);
    return (struct fq_slice){.data = (const uint8_t *)space, .length = (size_t)length};
}

static bool null_and_empty(size_t index, struct fq_record_in *ret)
{
    static const struct fq_slice kinds[] = {{0}, SLICE(""), SLICE("x")};
    *ret = (struct fq_record_in){
        .timestamp_ms = NOW, .key = kinds[index / 3 % 3], .value = kinds[index % 3]};
    return index < 9;
}

static bool headers(size_t index, struct fq_record_in *ret)
{
    static const struct fq_header few[] = {
        {SLICE("a"), SLICE("1")},           {SLICE("b"), SLICE("")},    {SLICE("a"), {0}},
        {SLICE("n\0l"), SLICE("\0\0\1")},   {SLICE(""), SLICE("none")}, {SLICE("a"), SLICE("2")},
        {SLICE("\xc3\xbc"), SLICE("\xff")},
    };
    static struct fq_header many[300];
    static char names[300][8];
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        many[i].name = text_of(names[i], sizeof names[i], "h", i);
        many[i].value = many[i].name;
    }
    *ret = index == 0 ? (struct fq_record_in){.timestamp_ms = NOW,
                                              .value = SLICE("v"),
                                              .headers = few,
                                              .headers_count = COUNT_OF(few)}
                      : (struct fq_record_in){.timestamp_ms = NOW,
                                              .key = SLICE("k"),
                                              .headers = many,
                                              .headers_count = COUNT_OF(many)};
    return index < 2;
}

static bool timestamps(size_t index, struct fq_record_in *ret)
{
    static const int64_t times[] = {NOW,
                                    NOW - 1,
                                    0,
                                    NOW - 86400000,
                                    NOW + 63,
                                    NOW + 64,
                                    INT64_C(1) << 31,
                                    INT64_C(1) << 40,
                                    (INT64_C(1) << 62) + 12345};
    *ret =
        (struct fq_record_in){.timestamp_ms = times[index % COUNT_OF(times)], .value = SLICE("t")};
    return index < COUNT_OF(times);
}

static bool sizes(size_t index, struct fq_record_in *ret)
{
    static const size_t lengths[] = {0, 1, 57, 58, 59, 63, 64, 8191, 8192};
    static uint8_t bytes[8192];
    memset(bytes, 'v', sizeof bytes);
    struct fq_slice slice = {.data = bytes, .length = lengths[index % COUNT_OF(lengths)]};
    *ret = (struct fq_record_in){.timestamp_ms = NOW, .key = slice, .value = slice};
    return index < COUNT_OF(lengths);
}

static bool many(size_t index, struct fq_record_in *ret)
{
    static char value[16];
    *ret = (struct fq_record_in){.timestamp_ms = NOW + (int64_t)index,
                                 .value = text_of(value, sizeof value, "", index)};
    return index < 200;
}

static bool lines(size_t index, struct fq_record_in *ret)
{
    static char key[32], value[64];
    *ret = (struct fq_record_in){
        .timestamp_ms = NOW + 7 * (int64_t)index,
        .key = text_of(key, sizeof key, "key-", index % 4),
        .value = text_of(value, sizeof value, "a line of text, number ", index),
    };
    return index < 40;
}

/* More than two lz4 blocks of 64 KiB. */
static bool large(size_t index, struct fq_record_in *ret)
{
    static uint8_t bytes[9000];
    memset(bytes, 'a' + (int)index, sizeof bytes);
    *ret = (struct fq_record_in){.timestamp_ms = NOW, .value = {bytes, sizeof bytes}};
    return index < 20;
}

#define NO_PRODUCER                                                                                \
    {                                                                                              \
        .producer_id = -1, .producer_epoch = -1, .base_sequence = -1                               \
    }

const struct golden_vector golden_vectors[] = {
    {"null_and_empty", FQ_CODEC_NONE, 0, -1, NO_PRODUCER, null_and_empty},
    {"headers", FQ_CODEC_NONE, 0, -1, NO_PRODUCER, headers},
    {"timestamps", FQ_CODEC_NONE, 0, -1, NO_PRODUCER, timestamps},
    {"sizes", FQ_CODEC_NONE, 0, -1, NO_PRODUCER, sizes},
    {"many", FQ_CODEC_NONE, 0, -1, NO_PRODUCER, many},
    {"stamped",
     FQ_CODEC_NONE,
     (INT64_C(1) << 53) + 1,
     77,
     {.producer_id = (INT64_C(1) << 62) + 987654321,
      .producer_epoch = INT16_MAX,
      .base_sequence = INT32_MAX},
     lines},
    {"lz4",
     FQ_CODEC_LZ4,
     12345,
     3,
     {.producer_id = 1, .producer_epoch = 0, .base_sequence = 0},
     lines},
    {"lz4_large", FQ_CODEC_LZ4, 0, -1, NO_PRODUCER, large},
    {"zstd",
     FQ_CODEC_ZSTD,
     12345,
     3,
     {.producer_id = 1, .producer_epoch = 0, .base_sequence = 0},
     lines},
    {"zstd_large", FQ_CODEC_ZSTD, 0, -1, NO_PRODUCER, large},
};
const size_t golden_vectors_count = COUNT_OF(golden_vectors);

static void must(bool ok, const char *what, const char *name)
{
    if (!ok) {
        (void)fprintf(stderr, "golden vector %s: cannot %s\n", name, what);
        abort();
    }
}

size_t golden_encode(const struct golden_vector *vector, uint8_t *out, size_t capacity)
{
    uint8_t *plain = malloc(GOLDEN_BATCH_BYTES_MAX);
    must(plain != NULL, "allocate", vector->name);
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, plain, GOLDEN_BATCH_BYTES_MAX);
    struct fq_record_in record;
    for (size_t i = 0; vector->record(i, &record); i++) {
        must(fq_batch_builder_append(&builder, &record) == 0, "append", vector->name);
    }
    int64_t length = fq_batch_builder_finish(&builder, &vector->finish);
    must(length > 0 && (size_t)length <= capacity, "finish", vector->name);
    if (vector->codec == FQ_CODEC_NONE) {
        memcpy(out, plain, (size_t)length);
    } else {
        length = fq_batch_compress(NULL, plain, (size_t)length, vector->codec, 0, out, capacity);
        must(length > 0, "compress", vector->name);
    }
    free(plain);
    fq_batch_stamp(out, vector->base_offset, vector->leader_epoch);
    return (size_t)length;
}
