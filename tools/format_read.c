/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads records by a compiled format, from bytes that arrive in pieces. The place in a half-read
 * record is kept as distances from its first byte, since the bytes may move between two calls; a
 * delimiter is searched for from where the last search ended.
 *
 * The input may end early in one place only: in front of the format's last literal, so that a final
 * line without its newline is a record. Anywhere else the fault says at which byte of the input.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <flashq/error.h>

#include "tools/format_program.h"
#include "tools/parse_time.h"

#define LENGTH_UNKNOWN INT64_MIN
#define NUMBER_DIGITS_MAX 20
#define HEADERS_MAX 65536

enum slot { SLOT_KEY, SLOT_VALUE, SLOT_OTHER, SLOTS };

struct text_slot {
    int64_t length; /* LENGTH_UNKNOWN, -1 for null */
    size_t at, size;
    bool is_set, is_null;
};

struct fields {
    struct text_slot text[SLOTS];
    int64_t partition, timestamp_ms, headers_count;
};

struct fq_format_reader {
    const struct fq_format *format;
    uint64_t consumed;  /* bytes of the stream before this record */
    size_t element, at; /* where it stands in the format and in the record */
    size_t scanned;     /* from `at` on, without the delimiter's beginning */
    struct fields fields;
    size_t inner_element, header_index;
    struct fields header;
    struct fields *headers;
    size_t headers_capacity;
};

struct input {
    uint8_t *data;
    size_t length;
    bool is_last;
    struct fq_fault *fault;
};

static void fields_clear(struct fields *fields)
{
    *fields = (struct fields){.partition = FLASHQ_PARTITION_ANY,
                              .timestamp_ms = FLASHQ_TIMESTAMP_NOW};
    for (size_t i = 0; i < SLOTS; i++) {
        fields->text[i].length = LENGTH_UNKNOWN;
    }
}

static void begin_record(struct fq_format_reader *reader)
{
    reader->element = reader->at = reader->scanned = 0;
    reader->inner_element = reader->header_index = 0;
    fields_clear(&reader->fields);
    fields_clear(&reader->header);
}

struct fq_format_reader *fq_format_reader_create(const struct fq_format *format)
{
    struct fq_format_reader *reader = fq_alloc(sizeof *reader);
    reader->format = format;
    begin_record(reader);
    return reader;
}

void fq_format_reader_destroy(struct fq_format_reader *reader)
{
    if (reader) {
        free(reader->headers);
        free(reader);
    }
}

static int fault_at(const struct fq_format_reader *reader, const struct input *in,
                    const struct fq_fmt_element *element, const char *what)
{
    return fq_fault_set(in->fault,
                        "input, at byte %" PRIu64 " (character %zu of the format): %s",
                        reader->consumed + reader->at, element->position, what);
}

/* Not enough bytes: wait, or, if no more come, say so. */
static int need_more(const struct fq_format_reader *reader, const struct input *in,
                     const struct fq_fmt_element *element)
{
    if (in->is_last) {
        return fault_at(reader, in, element, "the input ends inside a record");
    }
    return in->length - reader->at > 2 * FQ_RECORD_BYTES_MAX
               ? fault_at(reader, in, element, "no end of the record within 128 MiB")
               : FQ_FORMAT_MORE;
}

static int read_literal(struct fq_format_reader *reader, const struct input *in,
                        const struct fq_fmt_element *element, bool may_lack)
{
    size_t left = in->length - reader->at, want = element->literal.length;
    if (left == 0 && in->is_last && may_lack) {
        return FQ_FORMAT_RECORD;
    }
    size_t have = left < want ? left : want;
    if (memcmp(in->data + reader->at, element->literal.data, have) != 0) {
        return fault_at(reader, in, element, "the input is not what the format says");
    }
    if (have < want) {
        return need_more(reader, in, element);
    }
    reader->at += want;
    return FQ_FORMAT_RECORD;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static int store_number(struct fq_format_reader *reader, const struct input *in,
                        const struct fq_fmt_element *element, struct fields *fields, int64_t value)
{
    switch ((int)element->verb) {
    case FQ_FMT_PARTITION:
        if (value < -1 || value > INT32_MAX) {
            return fault_at(reader, in, element, "a partition is a number from 0");
        }
        fields->partition = (int32_t)value;
        break;
    case FQ_FMT_TIMESTAMP: fields->timestamp_ms = value; break;
    case FQ_FMT_HEADERS_COUNT:
        if (value < 0 || value > HEADERS_MAX) {
            return fault_at(reader, in, element, "a record has 0 to 65536 headers");
        }
        fields->headers_count = value;
        break;
    case FQ_FMT_KEY_LENGTH:
    case FQ_FMT_VALUE_LENGTH:
        if (value < -1 || value > (int64_t)FQ_RECORD_BYTES_MAX) {
            return fault_at(reader, in, element,
                            "a length is from -1 (null) to 67108864, the most a record can have");
        }
        fields->text[element->verb == FQ_FMT_KEY_LENGTH ? SLOT_KEY : SLOT_VALUE].length = value;
        break;
    default: break; /* an offset is read over */
    }
    return FQ_FORMAT_RECORD;
}

static int read_binary(struct fq_format_reader *reader, const struct input *in,
                       const struct fq_fmt_element *element, struct fields *fields)
{
    unsigned width = element->width;
    if (in->length - reader->at < width) {
        return need_more(reader, in, element);
    }
    const uint8_t *p = in->data + reader->at;
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) {
        value = value << 8 | p[element->encoding == FQ_FMT_BIG ? i : width - 1 - i];
    }
    unsigned shift = 64 - 8 * width; /* extends the sign */
    int result =
        store_number(reader, in, element, fields, (int64_t)(value << shift) >> shift);
    reader->at += result == FQ_FORMAT_RECORD ? width : 0;
    return result;
}

static int read_digits(struct fq_format_reader *reader, const struct input *in,
                       const struct fq_fmt_element *element, struct fields *fields)
{
    const char *digits =
        element->encoding == FQ_FMT_HEX ? "0123456789abcdefABCDEF" : "0123456789";
    const char *text = (const char *)in->data + reader->at;
    size_t left = in->length - reader->at, length = left > 0 && text[0] == '-';
    while (length < left && text[length] != '\0' && strchr(digits, text[length])) {
        length++;
    }
    if (length > NUMBER_DIGITS_MAX) {
        return fault_at(reader, in, element, "the number has too many digits");
    }
    if (length == left && !in->is_last) {
        return FQ_FORMAT_MORE;
    }
    char copy[NUMBER_DIGITS_MAX + 1] = {0};
    memcpy(copy, text, length);
    int64_t value;
    if (element->encoding == FQ_FMT_HEX) {
        bool is_negative = copy[0] == '-';
        uint64_t magnitude = strtoull(copy + is_negative, NULL, 16);
        if (length == (size_t)is_negative || length > 16 || magnitude > INT64_MAX) {
            return fault_at(reader, in, element, "expected a hexadecimal number");
        }
        value = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    } else if (fq_parse_whole(copy, "", INT64_MIN, INT64_MAX, &value, NULL) != 0) {
        return fault_at(reader, in, element, "expected a number");
    }
    int result = store_number(reader, in, element, fields, value);
    reader->at += result == FQ_FORMAT_RECORD ? length : 0;
    return result;
}

/* ---- text ---------------------------------------------------------------------------------- */

static struct text_slot *slot_of(struct fields *fields, enum fq_fmt_verb verb)
{
    return &fields->text[verb == FQ_FMT_KEY     ? SLOT_KEY
                         : verb == FQ_FMT_VALUE ? SLOT_VALUE
                                                : SLOT_OTHER];
}

static size_t encoded_length(const struct fq_fmt_element *element, size_t length)
{
    switch ((int)element->encoding) {
    case FQ_FMT_HEX: return 2 * length;
    case FQ_FMT_BASE64: return (length + 2) / 3 * 4;
    default: return length;
    }
}

/* Takes `size` bytes of input as this text, and decodes them where they are. */
static int store_text(struct fq_format_reader *reader, const struct input *in,
                      const struct fq_fmt_element *element, struct fields *fields, size_t size)
{
    struct text_slot *slot = slot_of(fields, element->verb);
    char *text = (char *)in->data + reader->at;
    ptrdiff_t decoded = (ptrdiff_t)size;
    if (element->encoding == FQ_FMT_HEX) {
        decoded = fq_hex_decode(text, text, size);
    } else if (element->encoding == FQ_FMT_BASE64) {
        decoded = fq_base64_decode(text, text, size);
    }
    if (decoded < 0 || (slot->length >= 0 && decoded != slot->length)) {
        return fault_at(reader, in, element, "the text is not in the encoding the format says");
    }
    if ((size_t)decoded > FQ_RECORD_BYTES_MAX) {
        return fault_at(reader, in, element, "a record can have 67108864 bytes at most");
    }
    if (element->verb == FQ_FMT_DATE) {
        char copy[FQ_TIME_TEXT_BYTES * 2] = {0};
        if (size >= sizeof copy || memchr(text, 0, size)) {
            return fault_at(reader, in, element, "expected a time in RFC 3339");
        }
        memcpy(copy, text, size);
        struct fq_fault why;
        if (fq_parse_time(copy, 0, &fields->timestamp_ms, &why) != 0) {
            return fault_at(reader, in, element, why.text);
        }
    }
    slot->is_set = true;
    slot->is_null = false;
    slot->at = reader->at;
    slot->size = (size_t)decoded;
    reader->at += size;
    reader->scanned = 0;
    return FQ_FORMAT_RECORD;
}

static int read_delimited(struct fq_format_reader *reader, const struct input *in,
                          const struct fq_fmt_element *element, struct fields *fields,
                          const struct fq_buf *delimiter, bool may_lack)
{
    const uint8_t *start = in->data + reader->at;
    size_t left = in->length - reader->at;
    const uint8_t *found = left > reader->scanned
                               ? memmem(start + reader->scanned, left - reader->scanned,
                                        delimiter->data, delimiter->length)
                               : NULL;
    if (found) {
        return store_text(reader, in, element, fields, (size_t)(found - start));
    }
    if (in->is_last && may_lack) {
        return store_text(reader, in, element, fields, left);
    }
    /* The delimiter may have begun in the last bytes seen. */
    reader->scanned = left >= delimiter->length ? left - delimiter->length + 1 : 0;
    return need_more(reader, in, element);
}

static int read_text(struct fq_format_reader *reader, const struct input *in,
                     const struct fq_format *format, size_t index, struct fields *fields)
{
    const struct fq_fmt_element *element = &format->elements[index];
    struct text_slot *slot = slot_of(fields, element->verb);
    size_t left = in->length - reader->at;
    if (element->verb != FQ_FMT_TOPIC && element->verb != FQ_FMT_DATE &&
        slot->length != LENGTH_UNKNOWN) {
        if (slot->length < 0) {
            slot->is_set = slot->is_null = true;
            return FQ_FORMAT_RECORD;
        }
        size_t size = encoded_length(element, (size_t)slot->length);
        return left < size ? need_more(reader, in, element)
                           : store_text(reader, in, element, fields, size);
    }
    if (index + 1 < format->count) {
        /* Only the last literal of the outermost format may be missing at the end. */
        bool may_lack = format == reader->format && index + 2 == format->count;
        return read_delimited(reader, in, element, fields, &format->elements[index + 1].literal,
                              may_lack);
    }
    return in->is_last ? store_text(reader, in, element, fields, left)
                       : need_more(reader, in, element);
}

/* ---- headers, records ---------------------------------------------------------------------- */

static int read_element(struct fq_format_reader *reader, const struct input *in,
                        const struct fq_format *format, size_t index, struct fields *fields)
{
    const struct fq_fmt_element *element = &format->elements[index];
    if (element->verb == FQ_FMT_LITERAL) {
        bool may_lack = format == reader->format && index > 0 && index + 1 == format->count &&
                        fq_fmt_is_text(format->elements[index - 1].verb);
        return read_literal(reader, in, element, may_lack);
    }
    if (fq_fmt_is_text(element->verb)) {
        return read_text(reader, in, format, index, fields);
    }
    return element->width > 0 ? read_binary(reader, in, element, fields)
                              : read_digits(reader, in, element, fields);
}

static void keep_header(struct fq_format_reader *reader)
{
    if (reader->header_index == reader->headers_capacity) {
        reader->headers_capacity = reader->headers_capacity > 0 ? 2 * reader->headers_capacity : 8;
        reader->headers =
            fq_realloc_array(reader->headers, reader->headers_capacity, sizeof *reader->headers);
    }
    reader->headers[reader->header_index++] = reader->header;
    fields_clear(&reader->header);
    reader->inner_element = 0;
}

static int read_headers(struct fq_format_reader *reader, const struct input *in,
                        const struct fq_format *inner)
{
    while ((int64_t)reader->header_index < reader->fields.headers_count) {
        for (; reader->inner_element < inner->count; reader->inner_element++) {
            int result =
                read_element(reader, in, inner, reader->inner_element, &reader->header);
            if (result != FQ_FORMAT_RECORD) {
                return result;
            }
        }
        keep_header(reader);
    }
    return FQ_FORMAT_RECORD;
}

static const void *slot_data(const struct text_slot *slot, const uint8_t *data)
{
    return slot->is_set && !slot->is_null ? data + slot->at : NULL;
}

static void fill_record(const struct fq_format_reader *reader, const uint8_t *data,
                        struct fq_rec *rec)
{
    const struct text_slot *key = &reader->fields.text[SLOT_KEY];
    const struct text_slot *value = &reader->fields.text[SLOT_VALUE];
    fq_rec_clear(rec);
    rec->partition = (int32_t)reader->fields.partition;
    rec->timestamp_ms = reader->fields.timestamp_ms;
    rec->key = slot_data(key, data);
    rec->key_length = rec->key ? key->size : 0;
    rec->value = slot_data(value, data);
    rec->value_length = rec->value ? value->size : 0;
    for (size_t i = 0; i < reader->header_index; i++) {
        const struct text_slot *name = &reader->headers[i].text[SLOT_KEY];
        const struct text_slot *content = &reader->headers[i].text[SLOT_VALUE];
        const void *bytes = slot_data(content, data);
        fq_rec_add_header(rec, slot_data(name, data), name->is_null ? 0 : name->size, bytes,
                          bytes ? content->size : 0);
    }
}

int fq_format_read(struct fq_format_reader *reader, uint8_t *data, size_t length, bool is_last,
                   size_t *ret_used, struct fq_rec *rec, struct fq_fault *fault)
{
    struct input in = {data, length, is_last, fault};
    if (length == 0) {
        return is_last ? FQ_FORMAT_END : FQ_FORMAT_MORE;
    }
    for (; reader->element < reader->format->count; reader->element++) {
        const struct fq_fmt_element *element = &reader->format->elements[reader->element];
        int result = element->verb == FQ_FMT_HEADERS
                         ? read_headers(reader, &in, element->inner)
                         : read_element(reader, &in, reader->format, reader->element,
                                        &reader->fields);
        if (result != FQ_FORMAT_RECORD) {
            return result;
        }
    }
    fill_record(reader, data, rec);
    *ret_used = reader->at;
    reader->consumed += reader->at;
    begin_record(reader);
    return FQ_FORMAT_RECORD;
}
