/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See text.h. Decoders are strict on purpose: what one of them accepts, the matching encoder writes
 * back byte for byte.
 */
#include "tools/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flashq/error.h>

/* ---- complaints ---------------------------------------------------------------------------- */

int fq_fault_set(struct fq_fault *fault, const char *format, ...)
{
    if (fault) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(fault->text, sizeof fault->text, format, args);
        va_end(args);
    }
    return FLASHQ_ERR_INVALID;
}

int fq_fault_prefix(struct fq_fault *fault, const char *format, ...)
{
    if (fault) {
        char old[FQ_FAULT_TEXT_BYTES];
        memcpy(old, fault->text, sizeof old);
        va_list args;
        va_start(args, format);
        int used = vsnprintf(fault->text, sizeof fault->text, format, args);
        va_end(args);
        if (used >= 0 && (size_t)used < sizeof fault->text) {
            (void)snprintf(fault->text + used, sizeof fault->text - (size_t)used, "%s", old);
        }
    }
    return FLASHQ_ERR_INVALID;
}

/* ---- memory -------------------------------------------------------------------------------- */

static void out_of_memory(void)
{
    (void)fputs("flashq: out of memory\n", stderr);
    exit(1);
}

void *fq_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (!memory) {
        out_of_memory();
    }
    return memory;
}

void *fq_realloc_array(void *old, size_t count, size_t size)
{
    void *memory = reallocarray(old, count > 0 ? count : 1, size);
    if (!memory) {
        out_of_memory();
    }
    return memory;
}

char *fq_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = fq_alloc(bytes);
    memcpy(copy, text, bytes);
    return copy;
}

void fq_buf_fini(struct fq_buf *buf)
{
    free(buf->data);
    *buf = (struct fq_buf){0};
}

void fq_buf_reserve(struct fq_buf *buf, size_t more)
{
    if (more <= buf->capacity - buf->length && buf->data) {
        return;
    }
    if (more > SIZE_MAX / 4 - buf->length) {
        out_of_memory();
    }
    size_t capacity = buf->capacity > 0 ? buf->capacity : 256;
    while (capacity - buf->length < more) {
        capacity *= 2;
    }
    buf->data = fq_realloc_array(buf->data, capacity, 1);
    buf->capacity = capacity;
}

void fq_buf_add(struct fq_buf *buf, const void *bytes, size_t length)
{
    if (length > 0) {
        fq_buf_reserve(buf, length);
        memcpy(buf->data + buf->length, bytes, length);
        buf->length += length;
    }
}

void fq_buf_add_byte(struct fq_buf *buf, uint8_t byte)
{
    fq_buf_add(buf, &byte, 1);
}

void fq_buf_add_text(struct fq_buf *buf, const char *text)
{
    fq_buf_add(buf, text, strlen(text));
}

void fq_buf_printf(struct fq_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) {
        out_of_memory();
    }
    fq_buf_add(buf, text, (size_t)length);
    free(text);
}

const char *fq_buf_text(struct fq_buf *buf)
{
    fq_buf_reserve(buf, 1);
    buf->data[buf->length] = 0;
    return (const char *)buf->data;
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

/* The length of the well-formed sequence at p (Unicode 15, table 3-7), or 0. */
static size_t utf8_sequence(const uint8_t *p, size_t left)
{
    uint8_t lead = p[0];
    if (lead < 0x80) {
        return 1;
    }
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || left < length) {
        return 0;
    }
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

bool fq_utf8_is_valid(const void *bytes, size_t length)
{
    const uint8_t *p = bytes;
    while (length > 0) {
        size_t step = utf8_sequence(p, length);
        if (step == 0) {
            return false;
        }
        p += step;
        length -= step;
    }
    return true;
}

/* ---- base64, hexadecimal ------------------------------------------------------------------- */

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char hex_digits[] = "0123456789abcdef";

void fq_base64_encode(struct fq_buf *out, const void *bytes, size_t length)
{
    const uint8_t *p = bytes;
    fq_buf_reserve(out, length / 3 * 4 + 4);
    while (length > 0) {
        size_t take = length < 3 ? length : 3;
        uint32_t bits = (uint32_t)p[0] << 16;
        bits |= take > 1 ? (uint32_t)p[1] << 8 : 0;
        bits |= take > 2 ? p[2] : 0;
        char quad[4] = {base64_digits[bits >> 18], base64_digits[bits >> 12 & 63], '=', '='};
        if (take > 1) {
            quad[2] = base64_digits[bits >> 6 & 63];
        }
        if (take > 2) {
            quad[3] = base64_digits[bits & 63];
        }
        fq_buf_add(out, quad, sizeof quad);
        p += take;
        length -= take;
    }
}

static int base64_value(char digit)
{
    const char *at = digit != '\0' ? strchr(base64_digits, digit) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

ptrdiff_t fq_base64_decode(void *out, const char *text, size_t length)
{
    uint8_t *to = out;
    if (length % 4 != 0) {
        return -1;
    }
    for (size_t i = 0; i < length; i += 4) {
        bool is_last = i + 4 == length;
        size_t padding = is_last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        uint32_t bits = 0;
        for (size_t j = 0; j < 4 - padding; j++) {
            int value = base64_value(text[i + j]);
            if (value < 0) {
                return -1;
            }
            bits |= (uint32_t)value << (18 - 6 * j);
        }
        if ((padding == 1 && (bits & 0xff) != 0) || (padding == 2 && (bits & 0xffff) != 0)) {
            return -1; /* bits that no encoder writes */
        }
        for (size_t j = 0; j < 3 - padding; j++) {
            *to++ = (uint8_t)(bits >> (16 - 8 * j));
        }
    }
    return to - (uint8_t *)out;
}

void fq_hex_encode(struct fq_buf *out, const void *bytes, size_t length)
{
    const uint8_t *p = bytes;
    fq_buf_reserve(out, length * 2);
    for (size_t i = 0; i < length; i++) {
        out->data[out->length++] = (uint8_t)hex_digits[p[i] >> 4];
        out->data[out->length++] = (uint8_t)hex_digits[p[i] & 15];
    }
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    int lower = digit | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

ptrdiff_t fq_hex_decode(void *out, const char *text, size_t length)
{
    uint8_t *to = out;
    if (length % 2 != 0) {
        return -1;
    }
    for (size_t i = 0; i < length; i += 2) {
        int high = hex_value(text[i]), low = hex_value(text[i + 1]);
        if (high < 0 || low < 0) {
            return -1;
        }
        *to++ = (uint8_t)(high << 4 | low);
    }
    return to - (uint8_t *)out;
}

/* ---- escapes ------------------------------------------------------------------------------- */

int fq_unescape(struct fq_buf *out, const char *text, struct fq_fault *fault)
{
    static const char names[] = "ntr0\\";
    static const char values[] = "\n\t\r\0\\";
    for (const char *p = text; *p; p++) {
        if (*p != '\\') {
            fq_buf_add_byte(out, (uint8_t)*p);
            continue;
        }
        p++;
        uint8_t byte;
        const char *known = *p ? strchr(names, *p) : NULL;
        if (known) {
            fq_buf_add_byte(out, (uint8_t)values[known - names]);
        } else if (*p == 'x' && p[1] && p[2] && fq_hex_decode(&byte, p + 1, 2) == 1) {
            fq_buf_add_byte(out, byte);
            p += 2;
        } else {
            return fq_fault_set(fault,
                                "at character %zu: a backslash is followed by n, t, r, 0, \\ or "
                                "xNN with two hexadecimal digits",
                                (size_t)(p - text));
        }
    }
    return 0;
}

void fq_json_add_string(struct fq_buf *out, const void *bytes, size_t length)
{
    const uint8_t *p = bytes;
    size_t plain = 0; /* start of the run that needs no escape */
    fq_buf_reserve(out, length + 2);
    fq_buf_add_byte(out, '"');
    for (size_t i = 0; i < length; i++) {
        if (p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7f) {
            continue;
        }
        fq_buf_add(out, p + plain, i - plain);
        plain = i + 1;
        static const char short_names[] = "\"\\\b\f\n\r\t", short_values[] = "\"\\bfnrt";
        const char *known = p[i] ? strchr(short_names, p[i]) : NULL;
        if (known) {
            fq_buf_add_byte(out, '\\');
            fq_buf_add_byte(out, (uint8_t)short_values[known - short_names]);
        } else {
            fq_buf_printf(out, "\\u%04x", (unsigned)p[i]);
        }
    }
    fq_buf_add(out, p + plain, length - plain);
    fq_buf_add_byte(out, '"');
}

/* ---- suggestions --------------------------------------------------------------------------- */

#define CLOSEST_BYTES 48

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[CLOSEST_BYTES + 1], b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[b_length];
}

const char *fq_closest(const char *word, const char *const *candidates)
{
    size_t length = strlen(word), best_distance = SIZE_MAX;
    const char *best = NULL;
    for (; *candidates && length <= CLOSEST_BYTES; candidates++) {
        if (strlen(*candidates) > CLOSEST_BYTES) {
            continue;
        }
        size_t distance = edit_distance(word, *candidates);
        if (distance < best_distance) {
            best_distance = distance;
            best = *candidates;
        }
    }
    return best && best_distance <= (length < 4 ? 1 : 2) ? best : NULL;
}
