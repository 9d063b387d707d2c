/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The percent language. Input: a format, a NUL, then bytes that are read by it. Whatever is read is
 * printed by the same format and must then be read back to the same record.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/format.h"
#include "tools/json_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static int same_bytes(const void *a, size_t a_length, const void *b, size_t b_length)
{
    return !a == !b && a_length == b_length && (a_length == 0 || memcmp(a, b, a_length) == 0);
}

static void check_same(const struct fq_rec *a, const struct fq_rec *b)
{
    check(same_bytes(a->key, a->key_length, b->key, b->key_length));
    check(same_bytes(a->value, a->value_length, b->value, b->value_length));
    check(a->headers_count == b->headers_count);
    for (size_t i = 0; i < a->headers_count; i++) {
        check(same_bytes(a->headers[i].name, a->headers[i].name_length, b->headers[i].name,
                         b->headers[i].name_length));
    }
}

static void through_json(struct fq_rec *rec)
{
    struct fq_json_reader *reader = fq_json_reader_create();
    struct fq_buf line = {0};
    struct fq_rec back = {0};
    if (rec->timestamp_ms == FLASHQ_TIMESTAMP_NOW) {
        rec->timestamp_ms = 0; /* as the broker would have given it one */
    }
    fq_json_add_record(&line, rec, true);
    check(fq_json_read(reader, line.data, line.length, &back, NULL) == 0);
    check_same(rec, &back);
    fq_rec_fini(&back);
    fq_buf_fini(&line);
    fq_json_reader_destroy(reader);
}

/* Half of what is there first, then all of it. */
static void read_records(const struct fq_format *format, uint8_t *bytes, size_t length)
{
    struct fq_format_reader *reader = fq_format_reader_create(format);
    struct fq_rec rec = {0};
    struct fq_buf out = {0};
    size_t at = 0, used = 0;
    for (;;) {
        int result = fq_format_read(reader, bytes + at, (length - at) / 2, 0, &used, &rec, NULL);
        if (result == FQ_FORMAT_MORE) {
            result = fq_format_read(reader, bytes + at, length - at, 1, &used, &rec, NULL);
        }
        if (result != FQ_FORMAT_RECORD) {
            break;
        }
        check(used > 0 && used <= length - at);
        at += used;
        through_json(&rec);
        out.length = 0;
        (void)fq_format_render(format, &rec, &out, NULL);
    }
    fq_buf_fini(&out);
    fq_rec_fini(&rec);
    fq_format_reader_destroy(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    struct fq_format *format = NULL;
    struct fq_fault fault;
    char *text = strndup((const char *)data, size);
    if (fq_format_compile(text, &format, &fault) == 0) {
        if (fq_format_check_readable(format, &fault) == 0 && nul) {
            size_t length = size - (size_t)(nul - data) - 1;
            uint8_t *bytes = malloc(length + 1);
            memcpy(bytes, nul + 1, length);
            read_records(format, bytes, length);
            free(bytes);
        }
        fq_format_free(format);
    }
    free(text);
    return 0;
}
