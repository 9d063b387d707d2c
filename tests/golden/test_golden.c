/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RecordBatch v2 against kafkajs, both ways, from committed bytes (README.md says how they were
 * made): we read what kafkajs wrote, and write the same bytes; kafkajs read what we wrote, and what
 * it made of it is what we meant. FQ_GOLDEN_VECTORS is the folder of the vectors.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ours.h"

struct file {
    uint8_t *bytes;
    size_t length;
};

static struct file load(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s/%s.bin", FQ_GOLDEN_VECTORS, folder, name);
    FILE *in = fopen(path, "rb");
    cr_assert(in, "%s", path);
    struct file file = {.bytes = malloc(GOLDEN_BATCH_BYTES_MAX)};
    cr_assert(file.bytes);
    file.length = fread(file.bytes, 1, GOLDEN_BATCH_BYTES_MAX, in);
    cr_assert_eq(fclose(in), 0);
    cr_assert_gt(file.length, FQ_BATCH_HEADER_BYTES, "%s", path);
    return file;
}

static json_t *load_json(const char *name)
{
    char path[4096];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/%s", FQ_GOLDEN_VECTORS, name);
    json_t *root = json_load_file(path, 0, &error);
    cr_assert(root && json_array_size(root) > 0, "%s:%d: %s", path, error.line, error.text);
    return root;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10)
                                 : (int64_t)json_integer_value(value);
}

/* ---- the bytes of the descriptions ---------------------------------------------------------- */

/* What a batch's slices point to; freed at once. */
static uint8_t *arena;
static size_t arena_used;
#define ARENA_BYTES (4u << 20)

static uint8_t digits(const char *at)
{
    const char pair[3] = {at[0], at[1], '\0'};
    return (uint8_t)strtoul(pair, NULL, 16);
}

/* null, "hex digits" or "hh*count". */
static struct fq_slice slice_of(const char *text)
{
    if (!text) {
        return (struct fq_slice){0};
    }
    const char *star = strchr(text, '*');
    size_t length = star ? strtoul(star + 1, NULL, 10) : strlen(text) / 2;
    cr_assert_leq(arena_used + length + 1, ARENA_BYTES);
    uint8_t *out = arena + arena_used;
    arena_used += length + 1; /* so that an empty one is not null either */
    for (size_t i = 0; i < length; i++) {
        out[i] = digits(star ? text : text + 2 * i);
    }
    return (struct fq_slice){.data = out, .length = length};
}

static struct fq_slice slice(const json_t *value)
{
    return slice_of(json_is_null(value) ? NULL : json_string_value(value));
}

static bool same(struct fq_slice a, struct fq_slice b)
{
    return (a.data == NULL) == (b.data == NULL) && a.length == b.length &&
           (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static void check_header(const json_t *described, const struct fq_batch_header *header)
{
    cr_assert_eq(header->base_offset, number(described, "baseOffset"));
    cr_assert_eq(header->leader_epoch, number(described, "leaderEpoch"));
    cr_assert_eq(header->producer_id, number(described, "producerId"));
    cr_assert_eq(header->producer_epoch, number(described, "producerEpoch"));
    cr_assert_eq(header->base_sequence, number(described, "baseSequence"));
    cr_assert_eq(header->base_timestamp, number(described, "baseTimestamp"));
    cr_assert_eq(header->max_timestamp, number(described, "maxTimestamp"));
    cr_assert_eq((int64_t)fq_batch_codec(header), number(described, "codec"));
    cr_assert_eq((size_t)header->records_count,
                 json_array_size(json_object_get(described, "records")));
}

static void check_record(const char *name, size_t index, const json_t *described,
                         const struct fq_record *record)
{
    cr_assert_eq(record->timestamp_ms, number(described, "timestamp"), "%s %zu", name, index);
    cr_assert(same(record->key, slice(json_object_get(described, "key"))), "%s %zu", name, index);
    cr_assert(same(record->value, slice(json_object_get(described, "value"))), "%s %zu", name,
              index);
}

/* ---- theirs --------------------------------------------------------------------------------- */

static void check_their_headers(const char *name, size_t index, const json_t *described,
                                const struct fq_record *record)
{
    const json_t *headers = json_object_get(described, "headers");
    cr_assert_eq(json_array_size(headers), record->headers_count, "%s %zu", name, index);
    struct fq_headers_iter iter;
    struct fq_header header;
    fq_headers_iter_init(&iter, record);
    for (size_t i = 0; i < record->headers_count; i++) {
        const json_t *pair = json_array_get(headers, i);
        cr_assert_eq(fq_headers_next(&iter, &header), 1);
        cr_assert(same(header.name, slice(json_array_get(pair, 0))), "%s %zu, header %zu", name,
                  index, i);
        cr_assert(same(header.value, slice(json_array_get(pair, 1))), "%s %zu, header %zu", name,
                  index, i);
    }
    cr_assert_eq(fq_headers_next(&iter, &header), 0);
}

static void read_theirs(const json_t *described, const char *name, const struct file *file)
{
    struct fq_err err = {0};
    struct fq_batch_iter iter;
    struct fq_batch_scratch scratch = {0};
    struct fq_record record;
    int64_t least, greatest;
    cr_assert(fq_batch_crc_ok(file->bytes, file->length), "%s", name);
    cr_assert_eq(fq_batch_check_records(file->bytes, file->length, &least, &greatest, &err), 0,
                 "%s: %s", name, err.text);
    cr_assert_eq(fq_batch_iter_init(&iter, file->bytes, file->length, &scratch, &err), 0, "%s: %s",
                 name, err.text);
    check_header(described, &iter.header);
    const json_t *records = json_object_get(described, "records");
    for (size_t i = 0; i < json_array_size(records); i++) {
        arena_used = 0;
        cr_assert_eq(fq_batch_iter_next(&iter, &record), 1, "%s %zu", name, i);
        check_record(name, i, json_array_get(records, i), &record);
        check_their_headers(name, i, json_array_get(records, i), &record);
    }
    cr_assert_eq(fq_batch_iter_next(&iter, &record), 0, "%s", name);
    fq_batch_scratch_fini(&scratch);
}

static void append_described(struct fq_batch_builder *builder, const json_t *described)
{
    static struct fq_header headers[512];
    const json_t *pairs = json_object_get(described, "headers");
    size_t count = json_array_size(pairs);
    cr_assert_leq(count, sizeof headers / sizeof headers[0]);
    for (size_t i = 0; i < count; i++) {
        headers[i].name = slice(json_array_get(json_array_get(pairs, i), 0));
        headers[i].value = slice(json_array_get(json_array_get(pairs, i), 1));
    }
    struct fq_record_in in = {
        .timestamp_ms = number(described, "timestamp"),
        .key = slice(json_object_get(described, "key")),
        .value = slice(json_object_get(described, "value")),
        .headers = headers,
        .headers_count = count,
    };
    cr_assert_eq(fq_batch_builder_append(builder, &in), 0);
}

static void write_theirs(const json_t *described, const char *name, const struct file *file)
{
    uint8_t *out = malloc(GOLDEN_BATCH_BYTES_MAX);
    cr_assert(out);
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, GOLDEN_BATCH_BYTES_MAX);
    const json_t *records = json_object_get(described, "records");
    for (size_t i = 0; i < json_array_size(records); i++) {
        arena_used = 0;
        append_described(&builder, json_array_get(records, i));
    }
    struct fq_batch_finish how = {
        .producer_id = number(described, "producerId"),
        .producer_epoch = (int16_t)number(described, "producerEpoch"),
        .base_sequence = (int32_t)number(described, "baseSequence"),
    };
    int64_t length = fq_batch_builder_finish(&builder, &how);
    fq_batch_stamp(out, number(described, "baseOffset"), (int32_t)number(described, "leaderEpoch"));
    cr_assert_eq(length, (int64_t)file->length, "%s", name);
    cr_assert_arr_eq(out, file->bytes, file->length, "%s", name);
    free(out);
}

Test(golden, we_read_what_kafkajs_wrote_and_write_the_same_bytes)
{
    arena = malloc(ARENA_BYTES);
    json_t *root = load_json("kafkajs.json");
    size_t read = 0, written = 0, refused = 0;
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *described = json_array_get(root, i);
        const char *name = json_string_value(json_object_get(described, "name"));
        struct file file = load("kafkajs", name);
        int64_t codec = number(described, "codec");
        if (codec == FQ_CODEC_GZIP) {
            struct fq_batch_header header;
            struct fq_err err;
            cr_assert_eq(fq_batch_header_read(file.bytes, file.length, &header, &err),
                         FLASHQ_ERR_UNSUPPORTED);
            cr_assert(strstr(err.text, "gzip"), "%s", err.text);
            refused++;
        } else {
            read_theirs(described, name, &file);
            read++;
        }
        if (codec == FQ_CODEC_NONE) {
            write_theirs(described, name, &file);
            written++;
        }
        free(file.bytes);
    }
    cr_assert_eq(read, 16);
    cr_assert_eq(written, 10);
    cr_assert_eq(refused, 1);
    json_decref(root);
    free(arena);
}

/* ---- ours ----------------------------------------------------------------------------------- */

/* kafkajs groups the headers of a record by name; within a name the order is kept. */
static void check_our_headers(const char *name, size_t index, const json_t *described,
                              const struct fq_record_in *in)
{
    json_t *groups = json_object_get(described, "headers");
    const char *group_name;
    json_t *values;
    size_t seen = 0;
    json_object_foreach(groups, group_name, values)
    {
        struct fq_slice wanted = slice_of(group_name);
        size_t at = 0;
        for (size_t i = 0; i < in->headers_count; i++) {
            if (same(in->headers[i].name, wanted)) {
                cr_assert(same(in->headers[i].value, slice(json_array_get(values, at))),
                          "%s %zu, header %s", name, index, group_name);
                at++;
            }
        }
        cr_assert_eq(at, json_array_size(values), "%s %zu, header %s", name, index, group_name);
        seen += at;
    }
    cr_assert_eq(seen, in->headers_count, "%s %zu", name, index);
}

static void check_what_kafkajs_read(const json_t *described, const struct golden_vector *vector,
                                    const struct file *file)
{
    struct fq_batch_header header;
    struct fq_err err = {0};
    cr_assert_eq(fq_batch_header_read(file->bytes, file->length, &header, &err), 0, "%s", err.text);
    cr_assert_eq(header.base_offset, vector->base_offset);
    cr_assert_eq(header.producer_id, vector->finish.producer_id);
    check_header(described, &header);
    const json_t *records = json_object_get(described, "records");
    struct fq_record_in in;
    size_t count = 0;
    for (; vector->record(count, &in); count++) {
        const json_t *read = json_array_get(records, count);
        struct fq_record meant = {
            .timestamp_ms = in.timestamp_ms, .key = in.key, .value = in.value};
        arena_used = 0;
        check_record(vector->name, count, read, &meant);
        check_our_headers(vector->name, count, read, &in);
        cr_assert_eq(number(read, "offset"), vector->base_offset + (int64_t)count);
    }
    cr_assert_eq(count, json_array_size(records), "%s", vector->name);
}

/* Compressed bytes may change with the libraries; then frames must still say what was meant. */
static void check_still_made(const struct golden_vector *vector, const struct file *file)
{
    uint8_t *now = malloc(GOLDEN_BATCH_BYTES_MAX);
    cr_assert(now);
    size_t length = golden_encode(vector, now, GOLDEN_BATCH_BYTES_MAX);
    if (vector->codec == FQ_CODEC_NONE) {
        cr_assert_eq(length, file->length, "%s", vector->name);
        cr_assert_arr_eq(now, file->bytes, length, "%s", vector->name);
    } else {
        static const uint8_t lz4[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};
        static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
        bool is_lz4 = vector->codec == FQ_CODEC_LZ4;
        cr_assert_eq(memcmp(now + FQ_BATCH_HEADER_BYTES, is_lz4 ? lz4 : zstd,
                            is_lz4 ? sizeof lz4 : sizeof zstd),
                     0, "%s", vector->name);
        cr_assert_arr_eq(now + FQ_BATCH_LAST_OFFSET_DELTA, file->bytes + FQ_BATCH_LAST_OFFSET_DELTA,
                         FQ_BATCH_HEADER_BYTES - FQ_BATCH_LAST_OFFSET_DELTA);
    }
    struct fq_batch_iter iter;
    struct fq_batch_scratch scratch = {0};
    struct fq_record record;
    struct fq_record_in in;
    cr_assert(fq_batch_crc_ok(now, length));
    cr_assert_eq(fq_batch_iter_init(&iter, now, length, &scratch, NULL), 0);
    for (size_t i = 0; vector->record(i, &in); i++) {
        cr_assert_eq(fq_batch_iter_next(&iter, &record), 1);
        cr_assert(same(record.key, in.key) && same(record.value, in.value));
    }
    cr_assert_eq(fq_batch_iter_next(&iter, &record), 0);
    fq_batch_scratch_fini(&scratch);
    free(now);
}

Test(golden, kafkajs_read_what_we_wrote_and_we_still_write_it)
{
    arena = malloc(ARENA_BYTES);
    json_t *root = load_json("flashq.json");
    cr_assert_eq(json_array_size(root), golden_vectors_count);
    for (size_t v = 0; v < golden_vectors_count; v++) {
        const struct golden_vector *vector = &golden_vectors[v];
        const json_t *described = NULL;
        for (size_t i = 0; i < json_array_size(root); i++) {
            const json_t *candidate = json_array_get(root, i);
            if (strcmp(json_string_value(json_object_get(candidate, "name")), vector->name) == 0) {
                described = candidate;
            }
        }
        cr_assert(described, "%s", vector->name);
        struct file file = load("flashq", vector->name);
        check_what_kafkajs_read(described, vector, &file);
        check_still_made(vector, &file);
        free(file.bytes);
    }
    json_decref(root);
    free(arena);
}
