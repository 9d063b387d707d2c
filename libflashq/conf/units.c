/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of sizes and spans; see units.h. Every overflow is an error. */
#include "conf/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", INT64_C(1) << 10},
    {"KiB", INT64_C(1) << 10},
    {"k", INT64_C(1) << 10},
    {"M", INT64_C(1) << 20},
    {"MiB", INT64_C(1) << 20},
    {"G", INT64_C(1) << 30},
    {"GiB", INT64_C(1) << 30},
    {"T", INT64_C(1) << 40},
    {"TiB", INT64_C(1) << 40},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", INT64_C(1000000000)},
    {"TB", INT64_C(1000000000000)},
};

/* Longest first, as fq_format_duration wants them; in microseconds. */
static const struct unit time_units[] = {
    {"w", INT64_C(604800000000)},
    {"d", INT64_C(86400000000)},
    {"h", INT64_C(3600000000)},
    {"m", 60000000},
    {"s", 1000000},
    {"ms", 1000},
    {"us", 1},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Reads digits at *at, moving it; false when there are none or they do not fit. */
static bool read_digits(const char **at, int64_t *ret)
{
    const char *p = *at;
    int64_t value = 0;
    if (*p < '0' || *p > '9') {
        return false;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value)) {
            return false;
        }
    }
    *at = p;
    *ret = value;
    return true;
}

int fq_parse_int(const char *text, int64_t *ret, struct fq_err *err)
{
    bool negative = *text == '-';
    const char *at = text + negative;
    int64_t value;
    if (!read_digits(&at, &value) || *at != '\0') {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "\"%.64s\" is not a whole number", text);
    }
    *ret = negative ? -value : value;
    return 0;
}

int fq_parse_bytes(const char *text, int64_t *ret, struct fq_err *err)
{
    bool negative = *text == '-';
    const char *at = text + negative;
    int64_t value;
    if (read_digits(&at, &value)) {
        for (size_t i = 0; i < COUNT(size_units); i++) {
            if (strcmp(at, size_units[i].name) == 0) {
                if (__builtin_mul_overflow(value, size_units[i].factor, &value)) {
                    break;
                }
                *ret = negative ? -value : value;
                return 0;
            }
        }
    }
    return fq_err_set(
        err, FLASHQ_ERR_INVALID,
        "\"%.64s\" is not a size (a number, then B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB)", text);
}

static const struct unit *time_unit(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT(time_units); i++) {
        if (strlen(time_units[i].name) == length && memcmp(time_units[i].name, name, length) == 0) {
            return &time_units[i];
        }
    }
    return NULL;
}

enum { FRACTION_DIGITS_MAX = 12 };

/* What follows the point in "0.1ms": the digits, and the power of ten they are parts of. */
static bool read_fraction(const char **at, int64_t *ret, int64_t *ret_parts)
{
    *ret = 0;
    *ret_parts = 1;
    if (**at != '.') {
        return true;
    }
    const char *first = ++*at;
    if (!read_digits(at, ret) || *at - first > FRACTION_DIGITS_MAX) {
        return false;
    }
    for (; first < *at; first++) {
        *ret_parts *= 10;
    }
    return true;
}

/* value.fraction units in microseconds; false when they do not fit, or are finer than one. */
static bool scale(int64_t value, int64_t fraction, int64_t parts, int64_t factor, int64_t *ret_us)
{
    int64_t rest;
    if (__builtin_mul_overflow(value, factor, &value) ||
        __builtin_mul_overflow(fraction, factor, &rest) || rest % parts != 0) {
        return false;
    }
    return !__builtin_add_overflow(value, rest / parts, ret_us);
}

/* Sums the groups into microseconds; false when the text is not a span. */
static bool read_span(const char *at, int64_t unit_us, int64_t *ret_us)
{
    int64_t total = 0, last_factor = INT64_MAX;
    if (*at == '\0') {
        return false;
    }
    while (*at != '\0') {
        int64_t value, fraction, parts, factor;
        if (!read_digits(&at, &value) || !read_fraction(&at, &fraction, &parts)) {
            return false;
        }
        size_t letters = strcspn(at, "0123456789");
        if (letters == 0) { /* a bare number: only alone */
            factor = unit_us;
            if (last_factor != INT64_MAX) {
                return false;
            }
        } else {
            const struct unit *unit = time_unit(at, letters);
            if (!unit || unit->factor >= last_factor) {
                return false;
            }
            factor = unit->factor;
        }
        if (!scale(value, fraction, parts, factor, &value) ||
            __builtin_add_overflow(total, value, &total)) {
            return false;
        }
        last_factor = factor;
        at += letters;
    }
    *ret_us = total;
    return true;
}

int fq_parse_duration_us(const char *text, int64_t bare_us, int64_t *ret_us, struct fq_err *err)
{
    bool negative = *text == '-';
    int64_t total_us;
    if (!read_span(text + negative, bare_us, &total_us)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "\"%.64s\" is not a span of time (like 500ms, 30s, 1h30m, 7d)", text);
    }
    *ret_us = negative ? -total_us : total_us;
    return 0;
}

int fq_parse_duration(const char *text, int64_t unit_us, int64_t *ret, struct fq_err *err)
{
    int64_t total_us;
    int code = fq_parse_duration_us(text, unit_us, &total_us, err);
    if (code != 0) {
        return code;
    }
    if (total_us % unit_us != 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "\"%.64s\" is finer than one %s", text,
                          unit_us == 1000 ? "millisecond" : "microsecond");
    }
    *ret = total_us / unit_us;
    return 0;
}

const char *fq_format_bytes(int64_t value, char *buffer, size_t bytes)
{
    static const struct unit binary[] = {{"TiB", INT64_C(1) << 40},
                                         {"GiB", INT64_C(1) << 30},
                                         {"MiB", INT64_C(1) << 20},
                                         {"KiB", INT64_C(1) << 10}};
    for (size_t i = 0; i < COUNT(binary); i++) {
        if (value >= binary[i].factor && value % binary[i].factor == 0) {
            (void)snprintf(buffer, bytes, "%lld%s", (long long)(value / binary[i].factor),
                           binary[i].name);
            return buffer;
        }
    }
    (void)snprintf(buffer, bytes, "%lld", (long long)value);
    return buffer;
}

const char *fq_format_duration(int64_t value, int64_t unit_us, char *buffer, size_t bytes)
{
    int64_t value_us;
    if (value > 0 && !__builtin_mul_overflow(value, unit_us, &value_us)) {
        for (size_t i = 0; i < COUNT(time_units); i++) {
            if (value_us >= time_units[i].factor && value_us % time_units[i].factor == 0) {
                (void)snprintf(buffer, bytes, "%lld%s",
                               (long long)(value_us / time_units[i].factor), time_units[i].name);
                return buffer;
            }
        }
    }
    (void)snprintf(buffer, bytes, "%lld", (long long)value);
    return buffer;
}
