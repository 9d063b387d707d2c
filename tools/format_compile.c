/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of a format to its elements; and whether a format can be read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/format_program.h"

struct compiler {
    const char *start;
    const char *at;
    bool is_inner; /* inside %h{...}: ends at the closing brace */
    struct fq_format *format;
    struct fq_fault *fault;
};

static const struct {
    char letter;
    enum fq_fmt_verb verb;
} verbs[] = {
    {'t', FQ_FMT_TOPIC},        {'p', FQ_FMT_PARTITION},     {'o', FQ_FMT_OFFSET},
    {'k', FQ_FMT_KEY},          {'v', FQ_FMT_VALUE},         {'s', FQ_FMT_VALUE},
    {'T', FQ_FMT_TIMESTAMP},    {'d', FQ_FMT_DATE},          {'h', FQ_FMT_HEADERS},
    {'K', FQ_FMT_KEY_LENGTH},   {'V', FQ_FMT_VALUE_LENGTH},  {'S', FQ_FMT_VALUE_LENGTH},
    {'R', FQ_FMT_VALUE_LENGTH}, {'H', FQ_FMT_HEADERS_COUNT},
};

static const struct {
    const char *name;
    bool for_numbers;
    enum fq_fmt_encoding encoding;
    unsigned width;
} modifiers[] = {
    {"ascii", true, FQ_FMT_PLAIN, 0},     {"hex", true, FQ_FMT_HEX, 0},
    {"byte", true, FQ_FMT_BIG, 1},        {"big1", true, FQ_FMT_BIG, 1},
    {"big2", true, FQ_FMT_BIG, 2},        {"big4", true, FQ_FMT_BIG, 4},
    {"big8", true, FQ_FMT_BIG, 8},        {"big16", true, FQ_FMT_BIG, 2},
    {"big32", true, FQ_FMT_BIG, 4},       {"big64", true, FQ_FMT_BIG, 8},
    {"little1", true, FQ_FMT_LITTLE, 1},  {"little2", true, FQ_FMT_LITTLE, 2},
    {"little4", true, FQ_FMT_LITTLE, 4},  {"little8", true, FQ_FMT_LITTLE, 8},
    {"little16", true, FQ_FMT_LITTLE, 2}, {"little32", true, FQ_FMT_LITTLE, 4},
    {"little64", true, FQ_FMT_LITTLE, 8}, {"raw", false, FQ_FMT_PLAIN, 0},
    {"hex", false, FQ_FMT_HEX, 0},        {"base64", false, FQ_FMT_BASE64, 0},
};

static int compile_all(struct compiler *c);

static size_t position(const struct compiler *c, const char *at)
{
    return (size_t)(at - c->start) + 1;
}

static struct fq_fmt_element *add(struct compiler *c, enum fq_fmt_verb verb, const char *at)
{
    struct fq_format *format = c->format;
    format->elements =
        fq_realloc_array(format->elements, format->count + 1, sizeof *format->elements);
    struct fq_fmt_element *element = &format->elements[format->count++];
    *element = (struct fq_fmt_element){.verb = verb, .position = position(c, at)};
    return element;
}

static void add_literal(struct compiler *c, uint8_t byte, const char *at)
{
    struct fq_format *format = c->format;
    struct fq_fmt_element *last =
        format->count > 0 ? &format->elements[format->count - 1] : NULL;
    if (!last || last->verb != FQ_FMT_LITERAL) {
        last = add(c, FQ_FMT_LITERAL, at);
    }
    fq_buf_add_byte(&last->literal, byte);
}

static int compile_escape(struct compiler *c)
{
    size_t length = c->at[1] == 'x' ? 4 : 2;
    char escape[5] = {0};
    struct fq_buf bytes = {0};
    memcpy(escape, c->at, strnlen(c->at, length));
    int result = fq_unescape(&bytes, escape, NULL);
    if (result == 0) {
        add_literal(c, bytes.data[0], c->at);
        c->at += strlen(escape);
    } else {
        result = fq_fault_set(c->fault,
                              "format, at character %zu: a backslash is followed by n, t, r, 0, \\ "
                              "or xNN with two hexadecimal digits",
                              position(c, c->at));
    }
    fq_buf_fini(&bytes);
    return result;
}

static int compile_inner(struct compiler *c, struct fq_fmt_element *element)
{
    struct compiler inner = {.start = c->start,
                             .at = c->at + 1,
                             .is_inner = true,
                             .format = fq_alloc(sizeof *inner.format),
                             .fault = c->fault};
    element->inner = inner.format;
    int result = compile_all(&inner);
    if (result == 0 && *inner.at != '}') {
        result = fq_fault_set(c->fault, "format, at character %zu: the brace of %%h{ is not closed",
                              position(c, c->at));
    }
    c->at = inner.at + (*inner.at == '}');
    return result;
}

static int compile_strftime(struct compiler *c, struct fq_fmt_element *element)
{
    static const char opening[] = "{strftime[";
    const char *body = c->at + strlen(opening);
    const char *end =
        strncmp(c->at, opening, strlen(opening)) == 0 ? strstr(body, "]}") : NULL;
    if (!end) {
        return fq_fault_set(c->fault, "format, at character %zu: %%d takes {strftime[FORMAT]}",
                            position(c, c->at));
    }
    element->encoding = FQ_FMT_STRFTIME;
    fq_buf_add(&element->literal, body, (size_t)(end - body));
    (void)fq_buf_text(&element->literal); /* terminated, for strftime */
    c->at = end + 2;
    return 0;
}

static int compile_modifier(struct compiler *c, struct fq_fmt_element *element)
{
    const char *name = c->at + 1, *end = strchr(name, '}');
    size_t length = end ? (size_t)(end - name) : 0;
    bool is_number = fq_fmt_is_number(element->verb);
    for (size_t i = 0; end && i < sizeof modifiers / sizeof *modifiers; i++) {
        if (modifiers[i].for_numbers == is_number && strlen(modifiers[i].name) == length &&
            strncmp(modifiers[i].name, name, length) == 0) {
            element->encoding = modifiers[i].encoding;
            element->width = modifiers[i].width;
            c->at = end + 1;
            return 0;
        }
    }
    if (!end) {
        return fq_fault_set(c->fault,
                            "format, at character %zu: the brace is not closed (a literal one is "
                            "written %%{)",
                            position(c, c->at));
    }
    return fq_fault_set(c->fault, "format, at character %zu: {%.*s} is no modifier of a %s: %s",
                        position(c, c->at), (int)(length < 20 ? length : 20), name,
                        is_number ? "number" : "text",
                        is_number ? "ascii, hex, byte, big2, big4, big8, little2, little4, little8"
                                  : "raw, hex, base64");
}

static int compile_verb(struct compiler *c)
{
    const char *at = c->at;
    char letter = at[1];
    if (letter == '%' || letter == '{' || letter == '}') {
        add_literal(c, (uint8_t)letter, at);
        c->at += 2;
        return 0;
    }
    const size_t verbs_count = sizeof verbs / sizeof *verbs;
    size_t i = 0;
    while (i < verbs_count && verbs[i].letter != letter) {
        i++;
    }
    if (i == verbs_count || letter == '\0') {
        char what[8] = "nothing";
        if (letter != '\0') {
            (void)snprintf(what, sizeof what, "%%%c", letter);
        }
        return fq_fault_set(c->fault,
                            "format, at character %zu: %s is not known: one of t p o k v s T d h K "
                            "V S H R %% follows a percent sign",
                            position(c, at), what);
    }
    if (c->is_inner && !strchr("kvsKVSR", letter)) {
        return fq_fault_set(c->fault,
                            "format, at character %zu: inside %%h{} there are only %%k %%v %%K %%V",
                            position(c, at));
    }
    struct fq_fmt_element *element = add(c, verbs[i].verb, at);
    c->at += 2;
    if (letter == 'R') {
        element->encoding = FQ_FMT_BIG;
        element->width = 4;
        return 0;
    }
    if (*c->at != '{') {
        return 0;
    }
    switch ((int)element->verb) {
    case FQ_FMT_HEADERS: return compile_inner(c, element);
    case FQ_FMT_DATE: return compile_strftime(c, element);
    default: return compile_modifier(c, element);
    }
}

static int compile_all(struct compiler *c)
{
    int result = 0;
    while (result == 0 && *c->at != '\0' && !(c->is_inner && *c->at == '}')) {
        if (*c->at == '%') {
            result = compile_verb(c);
        } else if (*c->at == '\\') {
            result = compile_escape(c);
        } else {
            add_literal(c, (uint8_t)*c->at, c->at);
            c->at++;
        }
    }
    return result;
}

int fq_format_compile(const char *text, struct fq_format **ret, struct fq_fault *fault)
{
    struct compiler c = {
        .start = text, .at = text, .format = fq_alloc(sizeof *c.format), .fault = fault};
    int result = compile_all(&c);
    if (result == 0 && c.format->count == 0) {
        result = fq_fault_set(fault, "format: it is empty");
    }
    if (result != 0) {
        fq_format_free(c.format);
        return result;
    }
    *ret = c.format;
    return 0;
}

void fq_format_free(struct fq_format *format)
{
    if (!format) {
        return;
    }
    for (size_t i = 0; i < format->count; i++) {
        fq_buf_fini(&format->elements[i].literal);
        fq_format_free(format->elements[i].inner);
    }
    free(format->elements);
    free(format);
}

bool fq_format_has_headers(const struct fq_format *format)
{
    for (size_t i = 0; i < format->count; i++) {
        if (format->elements[i].verb == FQ_FMT_HEADERS ||
            format->elements[i].verb == FQ_FMT_HEADERS_COUNT) {
            return true;
        }
    }
    return false;
}

/* ---- can it be read? ----------------------------------------------------------------------- */

static bool has_before(const struct fq_format *format, size_t end, enum fq_fmt_verb verb)
{
    for (size_t i = 0; i < end; i++) {
        if (format->elements[i].verb == verb) {
            return true;
        }
    }
    return false;
}

static bool starts_like_number(const struct fq_fmt_element *number,
                               const struct fq_fmt_element *next)
{
    if (next->verb != FQ_FMT_LITERAL) {
        return true; /* anything may come */
    }
    const char *digits =
        number->encoding == FQ_FMT_HEX ? "0123456789abcdefABCDEF" : "0123456789";
    return next->literal.data[0] != 0 && strchr(digits, next->literal.data[0]);
}

static int check_text(const struct fq_format *format, size_t index, bool is_inner,
                      struct fq_fault *fault)
{
    const struct fq_fmt_element *element = &format->elements[index];
    enum fq_fmt_verb length_verb = element->verb == FQ_FMT_KEY     ? FQ_FMT_KEY_LENGTH
                                   : element->verb == FQ_FMT_VALUE ? FQ_FMT_VALUE_LENGTH
                                                                   : FQ_FMT_LITERAL;
    bool is_end = index + 1 == format->count;
    if (element->encoding == FQ_FMT_STRFTIME) {
        return fq_fault_set(fault, "format, at character %zu: strftime is for printing only",
                            element->position);
    }
    if (length_verb != FQ_FMT_LITERAL && has_before(format, index, length_verb)) {
        return 0;
    }
    if (is_end ? !is_inner : format->elements[index + 1].verb == FQ_FMT_LITERAL) {
        return 0;
    }
    return fq_fault_set(fault,
                        "format, at character %zu: nothing tells where this ends when it is read: "
                        "put a length before it (%%V{big4}%%v) or a delimiter behind it",
                        element->position);
}

static int check_element(const struct fq_format *format, size_t index, bool is_inner,
                         struct fq_fault *fault)
{
    const struct fq_fmt_element *element = &format->elements[index];
    if (has_before(format, index, element->verb) && element->verb != FQ_FMT_LITERAL) {
        return fq_fault_set(fault, "format, at character %zu: this was there before",
                            element->position);
    }
    if (fq_fmt_is_text(element->verb)) {
        return check_text(format, index, is_inner, fault);
    }
    if (fq_fmt_is_number(element->verb) && element->width == 0 &&
        (index + 1 < format->count ? starts_like_number(element, &format->elements[index + 1])
                                   : is_inner)) {
        return fq_fault_set(fault,
                            "format, at character %zu: nothing tells where this number ends when it "
                            "is read: put a literal that is no digit behind it, or use {big4}",
                            element->position);
    }
    if (element->verb == FQ_FMT_HEADERS &&
        (!element->inner || !has_before(format, index, FQ_FMT_HEADERS_COUNT))) {
        return fq_fault_set(fault,
                            "format, at character %zu: to be read, headers need their number first "
                            "and a format: %%H{big4}%%h{%%K{big4}%%k%%V{big4}%%v}",
                            element->position);
    }
    return 0;
}

static int check_readable(const struct fq_format *format, bool is_inner, struct fq_fault *fault)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < format->count; i++) {
        result = check_element(format, i, is_inner, fault);
        if (result == 0 && format->elements[i].inner) {
            result = check_readable(format->elements[i].inner, true, fault);
        }
    }
    return result;
}

int fq_format_check_readable(const struct fq_format *format, struct fq_fault *fault)
{
    int result = check_readable(format, false, fault);
    if (result == 0 && !has_before(format, format->count, FQ_FMT_VALUE) &&
        !has_before(format, format->count, FQ_FMT_KEY)) {
        result = fq_fault_set(fault, "format: it holds neither a key nor a value to read");
    }
    return result;
}
