/* SPDX-License-Identifier: Apache-2.0 */
/* Durations, sizes, rates, integers and lists of partitions: see parse_time.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <flashq/error.h>

#include "tools/parse_time.h"

#define PARTITION_MAX 1000000

struct unit {
    const char *name;
    uint64_t factor;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* value := value * factor + more; false when that is over the top. */
static bool scale(uint64_t *value, uint64_t factor, uint64_t more, uint64_t top)
{
    uint64_t product;
    if (__builtin_mul_overflow(*value, factor, &product) || product > top ||
        more > top - product) {
        return false;
    }
    *value = product + more;
    return true;
}

/*
 * "1.5": the whole part, and the fraction as numerator over denominator (at most 9 digits kept,
 * the rest must be zeros).
 */
static bool take_decimal(const char **at, uint64_t *whole, uint64_t *numerator,
                         uint64_t *denominator)
{
    *whole = *numerator = 0;
    *denominator = 1;
    const char *p = *at;
    if (!is_digit(*p)) {
        return false;
    }
    for (; is_digit(*p); p++) {
        if (!scale(whole, 10, (uint64_t)(*p - '0'), UINT64_MAX)) {
            return false;
        }
    }
    if (*p == '.') {
        if (!is_digit(*++p)) {
            return false;
        }
        for (; is_digit(*p); p++) {
            if (*denominator < 1000000000) {
                *numerator = *numerator * 10 + (uint64_t)(*p - '0');
                *denominator *= 10;
            } else if (*p != '0') {
                return false;
            }
        }
    }
    *at = p;
    return true;
}

static const struct unit *take_unit(const char **at, const struct unit *units)
{
    size_t length = 0;
    while (is_letter((*at)[length])) {
        length++;
    }
    for (; units->name; units++) {
        if (strlen(units->name) == length && strncmp(units->name, *at, length) == 0) {
            *at += length;
            return units;
        }
    }
    return NULL;
}

/* whole + numerator/denominator units, rounded up to the unit 1. */
static bool in_units(uint64_t whole, uint64_t numerator, uint64_t denominator, uint64_t factor,
                     uint64_t top, uint64_t *ret)
{
    /* numerator, denominator <= 10^9, so that nothing here overflows */
    uint64_t rest = numerator * (factor % denominator);
    uint64_t rounded = numerator * (factor / denominator) + (rest + denominator - 1) / denominator;
    *ret = whole;
    return scale(ret, factor, rounded, top);
}

int fq_parse_duration_ns(const char *text, int64_t *ret_ns, struct fq_fault *fault)
{
    static const struct unit units[] = {
        {"w", UINT64_C(604800000000000)}, {"d", UINT64_C(86400000000000)},
        {"h", UINT64_C(3600000000000)},   {"m", UINT64_C(60000000000)},
        {"s", UINT64_C(1000000000)},      {"ms", 1000000},
        {"us", 1000},                     {"ns", 1},
        {NULL, 0},
    };
    const char *at = text;
    uint64_t total = 0, last_factor = UINT64_MAX;
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    do {
        uint64_t whole, numerator, denominator, part;
        if (!take_decimal(&at, &whole, &numerator, &denominator)) {
            return fq_fault_set(fault, "duration \"%.64s\": expected one like 1h30m, 250ms or 2d",
                                text);
        }
        const struct unit *unit = take_unit(&at, units);
        if (!unit) {
            return fq_fault_set(fault,
                                "duration \"%.64s\": a number needs a unit: w, d, h, m, s, ms, us "
                                "or ns",
                                text);
        }
        if (unit->factor >= last_factor) {
            return fq_fault_set(fault, "duration \"%.64s\": units go from large to small, once each",
                                text);
        }
        last_factor = unit->factor;
        if (!in_units(whole, numerator, denominator, unit->factor, INT64_MAX, &part) ||
            !scale(&total, 1, part, INT64_MAX)) {
            return fq_fault_set(fault, "duration \"%.64s\": longer than 292 years", text);
        }
    } while (*at != '\0');
    *ret_ns = (int64_t)total;
    return 0;
}

int fq_parse_duration_ms(const char *text, int64_t *ret_ms, struct fq_fault *fault)
{
    int64_t ns;
    int result = fq_parse_duration_ns(text, &ns, fault);
    if (result == 0) {
        *ret_ms = ns / 1000000 + (ns % 1000000 != 0);
    }
    return result;
}

#define KILO(n) (UINT64_C(1000) * (n))
#define KIBI(n) (UINT64_C(1024) * (n))

/* As the configuration's sizes are written. */
static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"k", KIBI(1)},
    {"K", KIBI(1)},
    {"kB", KILO(1)},
    {"KB", KILO(1)},
    {"KiB", KIBI(1)},
    {"M", KIBI(KIBI(1))},
    {"MB", KILO(KILO(1))},
    {"MiB", KIBI(KIBI(1))},
    {"G", KIBI(KIBI(KIBI(1)))},
    {"GB", KILO(KILO(KILO(1)))},
    {"GiB", KIBI(KIBI(KIBI(1)))},
    {"T", KIBI(KIBI(KIBI(KIBI(1))))},
    {"TB", KILO(KILO(KILO(KILO(1))))},
    {"TiB", KIBI(KIBI(KIBI(KIBI(1))))},
    {NULL, 0},
};

int fq_parse_size(const char *text, uint64_t *ret, struct fq_fault *fault)
{
    const char *at = text;
    uint64_t whole = 0, numerator = 0, denominator = 1, size;
    const struct unit *unit =
        take_decimal(&at, &whole, &numerator, &denominator) ? take_unit(&at, size_units) : NULL;
    if (!unit || *at != '\0' ||
        !in_units(whole, numerator, denominator, unit->factor, INT64_MAX, &size)) {
        return fq_fault_set(fault,
                            "size \"%.64s\": expected bytes like 512, 64K or 64KiB (powers of 1024), "
                            "1kB or 1MB (of 1000)",
                            text);
    }
    *ret = size;
    return 0;
}

int fq_parse_rate(const char *text, double *ret_per_second, struct fq_fault *fault)
{
    static const struct unit units[] = {
        {"", 1}, {"k", KILO(1)}, {"K", KILO(1)}, {"M", KILO(KILO(1))}, {NULL, 0}};
    const char *at = text;
    uint64_t whole = 0, numerator = 0, denominator = 1, seconds = 1;
    if (strcmp(text, "max") == 0) {
        *ret_per_second = 0;
        return 0;
    }
    const struct unit *unit =
        take_decimal(&at, &whole, &numerator, &denominator) ? take_unit(&at, units) : NULL;
    if (unit && *at == '/') {
        seconds = at[1] == 's' ? 1 : at[1] == 'm' ? 60 : at[1] == 'h' ? 3600 : 0;
        at += at[1] != '\0' ? 2 : 1;
    }
    if (!unit || *at != '\0' || seconds == 0 || (whole == 0 && numerator == 0)) {
        return fq_fault_set(fault,
                            "rate \"%.64s\": expected one like 500, 10k, 600/m, or max", text);
    }
    *ret_per_second = ((double)whole + (double)numerator / (double)denominator) *
                      (double)unit->factor / (double)seconds;
    return 0;
}

int fq_parse_count(const char *text, const char *what, int64_t low, int64_t high, int64_t *ret,
                   struct fq_fault *fault)
{
    static const struct unit units[] = {{"", 1},          {"k", KILO(1)},       {"K", KILO(1)},
                                        {"M", KILO(KILO(1))}, {"G", KILO(KILO(KILO(1)))}, {NULL, 0}};
    const char *at = text;
    uint64_t whole = 0, numerator = 0, denominator = 1, count = 0;
    const struct unit *unit =
        take_decimal(&at, &whole, &numerator, &denominator) ? take_unit(&at, units) : NULL;
    if (!unit || *at != '\0' || numerator * (unit->factor % denominator) % denominator != 0 ||
        !in_units(whole, numerator, denominator, unit->factor, INT64_MAX, &count) ||
        (int64_t)count < low || (int64_t)count > high) {
        return fq_fault_set(fault,
                            "%s \"%.64s\": expected a whole number from %" PRId64 " to %" PRId64
                            ", or one like 10k, 1.5M, 1G (powers of 1000)",
                            what, text, low, high);
    }
    *ret = (int64_t)count;
    return 0;
}

int fq_parse_whole(const char *text, const char *what, int64_t low, int64_t high, int64_t *ret,
                 struct fq_fault *fault)
{
    bool is_negative = text[0] == '-';
    const char *p = text + is_negative;
    uint64_t value = 0, top = is_negative ? UINT64_C(1) << 63 : INT64_MAX;
    bool is_number = is_digit(*p);
    for (; is_number && *p; p++) {
        is_number = is_digit(*p) && scale(&value, 10, (uint64_t)(*p - '0'), top);
    }
    int64_t number = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    if (!is_number || number < low || number > high) {
        return fq_fault_set(fault,
                            "%s \"%.64s\": expected a whole number from %" PRId64 " to %" PRId64,
                            what, text, low, high);
    }
    *ret = number;
    return 0;
}

static void add_partition(int32_t **list, size_t *count, int32_t partition)
{
    for (size_t i = 0; i < *count; i++) {
        if ((*list)[i] == partition) {
            return;
        }
    }
    *list = fq_realloc_array(*list, *count + 1, sizeof **list);
    (*list)[(*count)++] = partition;
}

int fq_parse_partitions(const char *text, int32_t **ret, size_t *ret_count,
                        struct fq_fault *fault)
{
    int32_t *list = NULL;
    size_t count = 0;
    const char *p = text;
    for (;;) {
        char *end;
        if (!is_digit(*p)) {
            break;
        }
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (*end == '-' && is_digit(end[1])) {
            last = strtoul(end + 1, &end, 10);
        }
        if (first > last || last > PARTITION_MAX || last - first > 10000) {
            break;
        }
        for (unsigned long i = first; i <= last; i++) {
            add_partition(&list, &count, (int32_t)i);
        }
        if (*end == '\0') {
            *ret = list;
            *ret_count = count;
            return 0;
        }
        if (*end != ',') {
            break;
        }
        p = end + 1;
    }
    free(list);
    return fq_fault_set(fault, "partitions \"%.64s\": expected numbers like 0,1 or 0-3", text);
}
