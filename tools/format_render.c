/* SPDX-License-Identifier: Apache-2.0 */
/* Prints records by a compiled format. Null text prints as nothing; its length is -1. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "tools/format_program.h"
#include "tools/parse_time.h"

static int render_number(const struct fq_fmt_element *element, int64_t value, struct fq_buf *out,
                         struct fq_fault *fault)
{
    if (element->encoding == FQ_FMT_PLAIN) {
        fq_buf_printf(out, "%" PRId64, value);
        return 0;
    }
    if (element->encoding == FQ_FMT_HEX) {
        fq_buf_printf(out, value < 0 ? "-%" PRIx64 : "%" PRIx64,
                      value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
        return 0;
    }
    unsigned bits = 8 * element->width;
    if (bits < 64 && (value < -(INT64_C(1) << (bits - 1)) || value >= INT64_C(1) << (bits - 1))) {
        return fq_fault_set(fault,
                            "format, at character %zu: %" PRId64 " does not fit in %u signed bytes",
                            element->position, value, element->width);
    }
    for (unsigned i = 0; i < element->width; i++) {
        unsigned byte = element->encoding == FQ_FMT_BIG ? element->width - 1 - i : i;
        fq_buf_add_byte(out, (uint8_t)((uint64_t)value >> (8 * byte)));
    }
    return 0;
}

static void render_text(const struct fq_fmt_element *element, const void *data, size_t length,
                        struct fq_buf *out)
{
    if (element->encoding == FQ_FMT_HEX) {
        fq_hex_encode(out, data, length);
    } else if (element->encoding == FQ_FMT_BASE64) {
        fq_base64_encode(out, data, length);
    } else {
        fq_buf_add(out, data, length);
    }
}

static void render_date(const struct fq_fmt_element *element, int64_t ms, struct fq_buf *out)
{
    char text[512];
    _Static_assert(sizeof text >= FQ_TIME_TEXT_BYTES, "a time fits");
    if (element->encoding != FQ_FMT_STRFTIME) {
        fq_buf_add_text(out, fq_time_text(ms, text));
        return;
    }
    time_t seconds = (time_t)(ms / 1000 - (ms % 1000 < 0));
    struct tm parts;
    if (gmtime_r(&seconds, &parts)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fq_buf_add(out, text, strftime(text, sizeof text, (const char *)element->literal.data, &parts));
#pragma GCC diagnostic pop
    }
}

/* As -H writes them: name=value, a bare name for null; separated by commas. */
static void render_headers_plain(const struct fq_rec *rec, struct fq_buf *out)
{
    for (size_t i = 0; i < rec->headers_count; i++) {
        const flashq_header *header = &rec->headers[i];
        if (i > 0) {
            fq_buf_add_byte(out, ',');
        }
        fq_buf_add(out, header->name, header->name_length);
        if (header->value) {
            fq_buf_add_byte(out, '=');
            fq_buf_add(out, header->value, header->value_length);
        }
    }
}

static int render_all(const struct fq_format *format, const struct fq_rec *rec,
                      struct fq_buf *out, struct fq_fault *fault);

static int render_headers(const struct fq_fmt_element *element, const struct fq_rec *rec,
                          struct fq_buf *out, struct fq_fault *fault)
{
    int result = 0;
    if (!element->inner) {
        render_headers_plain(rec, out);
        return 0;
    }
    for (size_t i = 0; result == 0 && i < rec->headers_count; i++) {
        const flashq_header *header = &rec->headers[i];
        struct fq_rec as_record = {.key = header->name,
                                   .key_length = header->name_length,
                                   .value = header->value,
                                   .value_length = header->value_length};
        result = render_all(element->inner, &as_record, out, fault);
    }
    return result;
}

static int64_t number_of(enum fq_fmt_verb verb, const struct fq_rec *rec)
{
    switch ((int)verb) {
    case FQ_FMT_PARTITION: return rec->partition;
    case FQ_FMT_OFFSET: return rec->offset;
    case FQ_FMT_TIMESTAMP: return rec->timestamp_ms;
    case FQ_FMT_KEY_LENGTH: return rec->key ? (int64_t)rec->key_length : -1;
    case FQ_FMT_VALUE_LENGTH: return rec->value ? (int64_t)rec->value_length : -1;
    default: return (int64_t)rec->headers_count;
    }
}

static int render_all(const struct fq_format *format, const struct fq_rec *rec,
                      struct fq_buf *out, struct fq_fault *fault)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < format->count; i++) {
        const struct fq_fmt_element *element = &format->elements[i];
        switch ((int)element->verb) {
        case FQ_FMT_LITERAL:
            fq_buf_add(out, element->literal.data, element->literal.length);
            break;
        case FQ_FMT_TOPIC:
            render_text(element, rec->topic, rec->topic ? strlen(rec->topic) : 0, out);
            break;
        case FQ_FMT_KEY: render_text(element, rec->key, rec->key ? rec->key_length : 0, out); break;
        case FQ_FMT_VALUE:
            render_text(element, rec->value, rec->value ? rec->value_length : 0, out);
            break;
        case FQ_FMT_DATE: render_date(element, rec->timestamp_ms, out); break;
        case FQ_FMT_HEADERS: result = render_headers(element, rec, out, fault); break;
        default: result = render_number(element, number_of(element->verb, rec), out, fault); break;
        }
    }
    return result;
}

int fq_format_render(const struct fq_format *format, const struct fq_rec *rec, struct fq_buf *out,
                     struct fq_fault *fault)
{
    size_t before = out->length;
    int result = render_all(format, rec, out, fault);
    if (result != 0) {
        out->length = before;
    }
    return result;
}
