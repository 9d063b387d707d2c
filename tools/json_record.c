/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing is done by hand, since it is on the path of every record; reading by jansson, which
 * checks UTF-8 strictly and refuses numbers that do not fit.
 */
#include "tools/json_record.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- printing ------------------------------------------------------------------------------ */

/* "name":"bytes" or "name_b64":"..." or "name":null */
static void add_bytes(struct fq_buf *out, const char *name, const void *bytes, size_t length)
{
    bool is_text = !bytes || fq_utf8_is_valid(bytes, length);
    fq_buf_add_byte(out, '"');
    fq_buf_add_text(out, name);
    fq_buf_add_text(out, is_text ? "\":" : "_b64\":\"");
    if (!bytes) {
        fq_buf_add_text(out, "null");
    } else if (is_text) {
        fq_json_add_string(out, bytes, length);
    } else {
        fq_base64_encode(out, bytes, length);
        fq_buf_add_byte(out, '"');
    }
}

static void add_size(struct fq_buf *out, const char *name, const void *bytes, size_t length)
{
    if (bytes) {
        fq_buf_printf(out, ",\"%s\":%zu", name, length);
    } else {
        fq_buf_printf(out, ",\"%s\":null", name);
    }
}

static void add_headers(struct fq_buf *out, const struct fq_rec *rec)
{
    fq_buf_add_text(out, ",\"headers\":[");
    for (size_t i = 0; i < rec->headers_count; i++) {
        const flashq_header *header = &rec->headers[i];
        fq_buf_add_text(out, i > 0 ? ",{" : "{");
        add_bytes(out, "name", header->name, header->name_length);
        fq_buf_add_byte(out, ',');
        add_bytes(out, "value", header->value, header->value_length);
        fq_buf_add_byte(out, '}');
    }
    fq_buf_add_byte(out, ']');
}

void fq_json_add_record(struct fq_buf *out, const struct fq_rec *rec, bool has_content)
{
    fq_buf_add_byte(out, '{');
    add_bytes(out, "topic", rec->topic, rec->topic ? strlen(rec->topic) : 0);
    fq_buf_printf(out,
                  ",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"timestamp_ms\":%" PRId64,
                  rec->partition, rec->offset, rec->timestamp_ms);
    if (has_content) {
        fq_buf_add_byte(out, ',');
        add_bytes(out, "key", rec->key, rec->key_length);
        fq_buf_add_byte(out, ',');
        add_bytes(out, "value", rec->value, rec->value_length);
        add_headers(out, rec);
    } else {
        add_size(out, "key_bytes", rec->key, rec->key_length);
        add_size(out, "value_bytes", rec->value, rec->value_length);
    }
    fq_buf_add_text(out, "}\n");
}

/* ---- reading ------------------------------------------------------------------------------- */

struct fq_json_reader {
    json_t *root;          /* of the last line */
    struct fq_buf decoded; /* room for all its base64; never grows while a line is read */
};

struct fq_json_reader *fq_json_reader_create(void)
{
    return fq_alloc(sizeof(struct fq_json_reader));
}

void fq_json_reader_destroy(struct fq_json_reader *reader)
{
    if (reader) {
        json_decref(reader->root);
        fq_buf_fini(&reader->decoded);
        free(reader);
    }
}

struct bytes {
    const void *data;
    size_t length;
    bool is_given;
};

/* object[name] or object[name_b64]. */
static int get_bytes(struct fq_json_reader *reader, const json_t *object, const char *name,
                     const char *name_b64, struct bytes *ret, struct fq_fault *fault)
{
    json_t *text = json_object_get(object, name), *encoded = json_object_get(object, name_b64);
    *ret = (struct bytes){.is_given = text || encoded};
    if (text && encoded) {
        return fq_fault_set(fault, "\"%s\" and \"%s\" exclude each other", name, name_b64);
    }
    if (text && !json_is_null(text)) {
        if (!json_is_string(text)) {
            return fq_fault_set(fault, "\"%s\" must be a string or null", name);
        }
        ret->data = json_string_value(text);
        ret->length = json_string_length(text);
    } else if (encoded && !json_is_null(encoded)) {
        struct fq_buf *decoded = &reader->decoded;
        ptrdiff_t length =
            json_is_string(encoded)
                ? fq_base64_decode(decoded->data + decoded->length, json_string_value(encoded),
                                   json_string_length(encoded))
                : -1;
        if (length < 0) {
            return fq_fault_set(fault, "\"%s\" must be base64 (RFC 4648, padded) or null",
                                name_b64);
        }
        ret->data = decoded->data + decoded->length;
        ret->length = (size_t)length;
        decoded->length += (size_t)length;
    }
    return 0;
}

static int get_int(const json_t *object, const char *name, int64_t low, int64_t high,
                   int64_t *value, struct fq_fault *fault)
{
    const json_t *number = json_object_get(object, name);
    if (!number || json_is_null(number)) {
        return 0;
    }
    if (!json_is_integer(number) || json_integer_value(number) < low ||
        json_integer_value(number) > high) {
        return fq_fault_set(fault,
                            "\"%s\" must be a whole number from %" PRId64 " to %" PRId64, name,
                            low, high);
    }
    *value = json_integer_value(number);
    return 0;
}

static int get_headers(struct fq_json_reader *reader, const json_t *root, struct fq_rec *rec,
                       struct fq_fault *fault)
{
    const json_t *headers = json_object_get(root, "headers");
    if (!headers || json_is_null(headers)) {
        return 0;
    }
    if (!json_is_array(headers)) {
        return fq_fault_set(fault, "\"headers\" must be an array of {\"name\", \"value\"}");
    }
    for (size_t i = 0; i < json_array_size(headers); i++) {
        const json_t *header = json_array_get(headers, i);
        struct bytes name, value;
        int result = json_is_object(header) ? 0
                                            : fq_fault_set(fault, "it must be an object with "
                                                                  "\"name\" and \"value\"");
        if (result == 0) {
            result = get_bytes(reader, header, "name", "name_b64", &name, fault);
        }
        if (result == 0) {
            result = get_bytes(reader, header, "value", "value_b64", &value, fault);
        }
        if (result == 0 && (!name.data || !value.is_given)) {
            result = fq_fault_set(fault, "\"%s\" is missing", !name.data ? "name" : "value");
        }
        if (result != 0) {
            return fq_fault_prefix(fault, "header %zu: ", i + 1);
        }
        fq_rec_add_header(rec, name.data, name.length, value.data, value.length);
    }
    return 0;
}

static int fill(struct fq_json_reader *reader, struct fq_rec *rec, struct fq_fault *fault)
{
    const json_t *root = reader->root;
    struct bytes key, value;
    int64_t partition = FLASHQ_PARTITION_ANY;
    if (!json_is_object(root)) {
        return fq_fault_set(fault, "a record is a JSON object");
    }
    int result = get_bytes(reader, root, "key", "key_b64", &key, fault);
    if (result == 0) {
        result = get_bytes(reader, root, "value", "value_b64", &value, fault);
    }
    if (result == 0 && !value.is_given) {
        result = fq_fault_set(fault, "\"value\" or \"value_b64\" is missing (null is written out)");
    }
    if (result == 0) {
        result = get_int(root, "partition", -1, INT32_MAX, &partition, fault);
    }
    if (result == 0) {
        result =
            get_int(root, "timestamp_ms", INT64_MIN + 1, INT64_MAX, &rec->timestamp_ms, fault);
    }
    if (result == 0) {
        result = get_headers(reader, root, rec, fault);
    }
    if (result == 0) {
        rec->partition = (int32_t)partition;
        rec->key = key.data;
        rec->key_length = key.length;
        rec->value = value.data;
        rec->value_length = value.length;
    }
    return result;
}

int fq_json_read(struct fq_json_reader *reader, const void *line, size_t length,
                 struct fq_rec *rec, struct fq_fault *fault)
{
    json_error_t error;
    json_decref(reader->root);
    reader->decoded.length = 0;
    fq_buf_reserve(&reader->decoded, length + 1);
    reader->root =
        json_loadb(line, length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!reader->root) {
        return fq_fault_set(fault, "at character %d: %.200s", error.column, error.text);
    }
    fq_rec_clear(rec);
    return fill(reader, rec, fault);
}
