/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a record batch. Nothing may be read outside them; what the append-time check accepts
 * must decode to the end, and encoding what was decoded must give a batch that decodes equal: byte
 * for byte for an uncompressed one, and through each codec.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/record_batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADERS_MAX 4096
#define SMALL_BYTES (256u << 10) /* larger ones are only read: they make the fuzzer slow */

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static bool same(struct fq_slice a, struct fq_slice b)
{
    return (a.data == NULL) == (b.data == NULL) && a.length == b.length &&
           (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static uint32_t sum_of(struct fq_slice slice)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < slice.length; i++) {
        sum += slice.data[i]; /* so that each byte is touched */
    }
    return sum;
}

/* Reads all; appends to the builder unless NULL. 0, or what stopped it. */
static int read_all(const uint8_t *batch, size_t length, struct fq_batch_scratch *scratch,
                    struct fq_batch_builder *builder)
{
    static struct fq_header headers[HEADERS_MAX];
    static volatile uint32_t sum;
    struct fq_batch_iter iter;
    struct fq_record record;
    int rc = fq_batch_iter_init(&iter, batch, length, scratch, NULL);
    while (rc == 0 && (rc = fq_batch_iter_next(&iter, &record)) == 1) {
        struct fq_headers_iter in;
        struct fq_header header;
        size_t count = 0;
        fq_headers_iter_init(&in, &record);
        while ((rc = fq_headers_next(&in, &header)) == 1) {
            sum = sum + sum_of(header.name) + sum_of(header.value);
            headers[count % HEADERS_MAX] = header;
            count++;
        }
        must(rc == 0 && count == record.headers_count);
        sum = sum + sum_of(record.key) + sum_of(record.value);
        if (builder && count <= HEADERS_MAX) {
            struct fq_record_in again = {.timestamp_ms = record.timestamp_ms,
                                         .key = record.key,
                                         .value = record.value,
                                         .headers = headers,
                                         .headers_count = count};
            size_t bytes = fq_batch_builder_record_bytes(builder, &again), used = builder->used;
            int appended = fq_batch_builder_append(builder, &again);
            must(appended != 0 || builder->used == used + bytes);
        }
        rc = 0;
    }
    return rc;
}

static void must_read_equal(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length)
{
    struct fq_batch_scratch a_scratch = {0}, b_scratch = {0};
    struct fq_batch_iter a_iter, b_iter;
    struct fq_record x, y;
    must(fq_batch_iter_init(&a_iter, a, a_length, &a_scratch, NULL) == 0);
    must(fq_batch_iter_init(&b_iter, b, b_length, &b_scratch, NULL) == 0);
    int rc;
    do {
        rc = fq_batch_iter_next(&a_iter, &x);
        must(rc >= 0 && fq_batch_iter_next(&b_iter, &y) == rc);
        must(rc == 0 || (same(x.key, y.key) && same(x.value, y.value) && x.offset == y.offset &&
                         x.timestamp_ms == y.timestamp_ms && x.headers_length == y.headers_length &&
                         memcmp(x.headers_bytes, y.headers_bytes, x.headers_length) == 0));
    } while (rc == 1);
    fq_batch_scratch_fini(&a_scratch);
    fq_batch_scratch_fini(&b_scratch);
}

static void must_compress_equal(const uint8_t *batch, size_t length)
{
    static const enum fq_codec codecs[] = {FQ_CODEC_LZ4, FQ_CODEC_ZSTD};
    uint8_t *packed = malloc(length);
    must(packed != NULL);
    for (size_t i = 0; i < 2; i++) {
        int64_t made = fq_batch_compress(NULL, batch, length, codecs[i], 0, packed, length);
        must(made >= 0 && made < (int64_t)length);
        if (made > 0) {
            must(fq_batch_crc_ok(packed, (size_t)made));
            must_read_equal(batch, length, packed, (size_t)made);
        }
    }
    free(packed);
}

/* `batch` was read to its end: build it again. */
static void rebuild(const uint8_t *batch, size_t length, const struct fq_batch_header *header)
{
    struct fq_batch_scratch scratch = {0};
    size_t capacity = SMALL_BYTES + length;
    uint8_t *again = malloc(capacity);
    must(again != NULL);
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, again, capacity);
    must(read_all(batch, length, &scratch, &builder) == 0);
    if (builder.records_count == header->records_count) {
        struct fq_batch_finish how = {.producer_id = header->producer_id,
                                      .producer_epoch = header->producer_epoch,
                                      .base_sequence = header->base_sequence,
                                      .attributes = header->attributes};
        int64_t made = fq_batch_builder_finish(&builder, &how);
        must(made > 0);
        fq_batch_stamp(again, header->base_offset, header->leader_epoch);
        int64_t least, greatest;
        if (fq_batch_codec(header) == FQ_CODEC_NONE &&
            fq_batch_check_records(batch, length, &least, &greatest, NULL) == 0) {
            must((size_t)made == length);
            must(memcmp(again + FQ_BATCH_ATTRIBUTES, batch + FQ_BATCH_ATTRIBUTES,
                        length - FQ_BATCH_ATTRIBUTES) == 0);
        }
        if ((header->attributes & ~FQ_BATCH_ATTR_CODEC_MASK) == 0) {
            must_read_equal(batch, length, again, (size_t)made);
            must_compress_equal(again, (size_t)made);
        }
    }
    free(again);
    fq_batch_scratch_fini(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fq_err err;
    struct fq_batch_header header;
    struct fq_batch_scratch scratch = {0};
    int64_t least, greatest;
    (void)fq_batch_crc_ok(data, size);
    if (fq_batch_header_read(data, size, &header, &err) != 0) {
        return 0;
    }
    uint8_t bytes[FQ_BATCH_HEADER_BYTES];
    fq_batch_header_write(&header, bytes);
    must(memcmp(bytes, data, sizeof bytes) == 0);
    int checked = fq_batch_check_records(data, size, &least, &greatest, &err);
    int read = read_all(data, size, &scratch, NULL);
    must(checked != 0 || fq_batch_codec(&header) != FQ_CODEC_NONE ||
         (read == 0 && least <= greatest));
    if (read == 0 && scratch.capacity <= SMALL_BYTES && size <= SMALL_BYTES) {
        rebuild(data, size, &header);
    }
    fq_batch_scratch_fini(&scratch);
    return 0;
}
