/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TIME and the calendar. All arithmetic is done on integers; text of any length is refused rather
 * than cut.
 */
#include "tools/parse_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <flashq/error.h>

#define MS_PER_SECOND INT64_C(1000)
#define MS_PER_MINUTE INT64_C(60000)
#define MS_PER_DAY INT64_C(86400000)

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits_at(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count])) {
        count++;
    }
    return count;
}

/* ---- the calendar -------------------------------------------------------------------------- */

int64_t fq_days_from_date(int64_t year, unsigned month, unsigned day)
{
    /* Years begin in March here, so that the leap day is a year's last. */
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * ((int64_t)month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void date_from_days(int64_t days, int64_t *year, unsigned *month, unsigned *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted = (5 * day_of_year + 2) / 153;
    *day = (unsigned)(day_of_year - (153 * shifted + 2) / 5 + 1);
    *month = (unsigned)(shifted < 10 ? shifted + 3 : shifted - 9);
    *year = year_of_era + era * 400 + (*month <= 2);
}

static unsigned days_in_month(int64_t year, unsigned month)
{
    static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (unsigned)(month == 2 && is_leap);
}

const char *fq_time_text(int64_t ms, char text[FQ_TIME_TEXT_BYTES])
{
    int64_t days = ms / MS_PER_DAY, rest = ms % MS_PER_DAY, year;
    if (rest < 0) {
        rest += MS_PER_DAY;
        days--;
    }
    unsigned month, day;
    date_from_days(days, &year, &month, &day);
    if (year < 0 || year > 9999) {
        (void)snprintf(text, FQ_TIME_TEXT_BYTES, "%" PRId64, ms);
    } else {
        (void)snprintf(text, FQ_TIME_TEXT_BYTES, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", (int)year,
                       month, day, (int)(rest / 3600000), (int)(rest / 60000 % 60),
                       (int)(rest / 1000 % 60), (int)(rest % 1000));
    }
    return text;
}

/* ---- RFC 3339 ------------------------------------------------------------------------------ */

/* Reads exactly `count` digits and moves on; false if they are not there. */
static bool take_digits(const char **at, size_t count, unsigned *ret)
{
    unsigned value = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_digit((*at)[i])) {
            return false;
        }
        value = value * 10 + (unsigned)((*at)[i] - '0');
    }
    *at += count;
    *ret = value;
    return true;
}

static bool take_char(const char **at, const char *allowed)
{
    if (**at == '\0' || !strchr(allowed, **at)) {
        return false;
    }
    (*at)++;
    return true;
}

/* The fraction after the point, in milliseconds, rounded up: 0..1000. */
static bool take_fraction(const char **at, int64_t *ret_ms)
{
    size_t count = digits_at(*at);
    if (count == 0) {
        return false;
    }
    int64_t ms = 0;
    bool has_rest = false;
    for (size_t i = 0; i < count || i < 3; i++) {
        int digit = i < count ? (*at)[i] - '0' : 0;
        if (i < 3) {
            ms = ms * 10 + digit;
        } else {
            has_rest |= digit != 0;
        }
    }
    *at += count;
    *ret_ms = ms + has_rest;
    return true;
}

/* Z or +HH:MM or -HH:MM, as milliseconds to subtract. */
static int take_zone(const char **at, int64_t *ret_ms, struct fq_fault *fault)
{
    unsigned hours, minutes;
    if (take_char(at, "Zz")) {
        *ret_ms = 0;
        return 0;
    }
    if (**at == '\0') {
        return fq_fault_set(fault, "the zone is missing: append Z or one like +05:30");
    }
    int64_t sign = **at == '-' ? -1 : 1;
    if (!take_char(at, "+-") || !take_digits(at, 2, &hours) || !take_char(at, ":") ||
        !take_digits(at, 2, &minutes) || hours > 23 || minutes > 59) {
        return fq_fault_set(fault, "the zone is not Z, +HH:MM or -HH:MM");
    }
    *ret_ms = sign * (hours * 60 + minutes) * MS_PER_MINUTE;
    return 0;
}

static int parse_rfc3339(const char *text, int64_t *ret_ms, struct fq_fault *fault)
{
    const char *at = text;
    unsigned year, month, day, hour, minute, second;
    int64_t fraction = 0, zone = 0;
    if (!take_digits(&at, 4, &year) || !take_char(&at, "-") || !take_digits(&at, 2, &month) ||
        !take_char(&at, "-") || !take_digits(&at, 2, &day)) {
        return fq_fault_set(fault, "the date is not YYYY-MM-DD");
    }
    if (month < 1 || month > 12) {
        return fq_fault_set(fault, "month %02u does not exist", month);
    }
    if (day < 1 || day > days_in_month(year, month)) {
        return fq_fault_set(fault, "%04u-%02u has no day %02u", year, month, day);
    }
    if (!take_char(&at, "Tt ") || !take_digits(&at, 2, &hour) || !take_char(&at, ":") ||
        !take_digits(&at, 2, &minute) || !take_char(&at, ":") || !take_digits(&at, 2, &second)) {
        return fq_fault_set(fault, "after the date comes a time: THH:MM:SS and a zone");
    }
    if (hour > 23 || minute > 59 || second > 60) {
        return fq_fault_set(fault, "%02u:%02u:%02u is not a time of day", hour, minute, second);
    }
    if (take_char(&at, ".,") && !take_fraction(&at, &fraction)) {
        return fq_fault_set(fault, "digits are missing after the decimal point");
    }
    int result = take_zone(&at, &zone, fault);
    if (result != 0) {
        return result;
    }
    if (*at != '\0') {
        return fq_fault_set(fault, "\"%s\" is left over at the end", at);
    }
    *ret_ms = fq_days_from_date(year, month, day) * MS_PER_DAY +
              (((int64_t)hour * 60 + minute) * 60 + second) * MS_PER_SECOND + fraction - zone;
    return 0;
}

/* ---- digits, relative times ---------------------------------------------------------------- */

static int parse_epoch(const char *text, size_t count, int64_t *ret_ms, struct fq_fault *fault)
{
    if (count != 10 && count != 13 && count != 16 && count != 19) {
        return fq_fault_set(fault,
                            "%zu digits do not tell the unit: write 10 (seconds), 13 "
                            "(milliseconds), 16 (microseconds) or 19 (nanoseconds), or RFC 3339",
                            count);
    }
    uint64_t value = 0; /* 19 digits fit */
    for (size_t i = 0; i < count; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (count == 10) {
        *ret_ms = (int64_t)value * MS_PER_SECOND;
    } else {
        uint64_t divisor = count == 13 ? 1 : count == 16 ? 1000 : 1000000;
        *ret_ms = (int64_t)(value / divisor + (value % divisor != 0));
    }
    return 0;
}

static int parse_relative(const char *text, int64_t now_ms, int64_t *ret_ms,
                          struct fq_fault *fault)
{
    int64_t ns;
    int result = fq_parse_duration_ns(text + 1, &ns, fault);
    if (result != 0) {
        return result;
    }
    /* Rounded up on the time line: down before now, up after it. */
    int64_t ms = ns / 1000000;
    int64_t moved = text[0] == '-' ? -ms : ms + (ns % 1000000 != 0);
    if (__builtin_add_overflow(now_ms, moved, ret_ms)) {
        return fq_fault_set(fault, "too far from now");
    }
    return 0;
}

int fq_parse_time(const char *text, int64_t now_ms, int64_t *ret_ms, struct fq_fault *fault)
{
    size_t count = digits_at(text);
    int64_t ms = now_ms;
    int result = 0;
    if (strcmp(text, "now") == 0) {
        result = 0;
    } else if (count > 0 && text[count] == '\0') {
        result = parse_epoch(text, count, &ms, fault);
    } else if (text[0] == '-' || text[0] == '+') {
        result = parse_relative(text, now_ms, &ms, fault);
    } else if (count > 0) {
        result = parse_rfc3339(text, &ms, fault);
    } else {
        result = fq_fault_set(fault, "expected RFC 3339 (2026-11-30T12:00:00Z), digits since "
                                     "1970, or a relative time (-1h30m)");
    }
    if (result != 0) {
        (void)fq_fault_prefix(fault, "time \"%.64s\": ", text);
        return result;
    }
    *ret_ms = ms;
    return 0;
}
