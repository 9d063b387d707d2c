/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/parse_time.h"

#define NOW INT64_C(1764504000123)

static int64_t time_of(const char *text)
{
    int64_t ms = -42;
    struct fq_fault fault = {""};
    cr_assert_eq(fq_parse_time(text, NOW, &ms, &fault), 0, "%s: %s", text, fault.text);
    return ms;
}

static void refuses_time(const char *text, const char *why)
{
    int64_t ms = -42;
    struct fq_fault fault = {""};
    cr_assert_neq(fq_parse_time(text, NOW, &ms, &fault), 0, "%s", text);
    cr_assert(strstr(fault.text, why), "\"%s\" is refused with: %s", text, fault.text);
    cr_assert_eq(ms, -42, "a refused time leaves the result alone");
}

/* case 6 */
Test(time, rfc_3339_with_any_zone)
{
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-30T12:00:00Z", INT64_C(1796040000000)},
        {"2026-11-30t12:00:00z", INT64_C(1796040000000)},
        {"2026-11-30 12:00:00Z", INT64_C(1796040000000)},
        {"2026-11-30T17:30:00+05:30", INT64_C(1796040000000)},
        {"2026-11-30T11:30:00-00:30", INT64_C(1796040000000)},
        {"2026-11-30T12:00:00-00:00", INT64_C(1796040000000)},
        {"2026-12-01T11:59:00+23:59", INT64_C(1796040000000)},
        {"2000-02-29T23:59:59.999Z", INT64_C(951868799999)},
        {"1969-12-31T23:59:59.999Z", -1},
        {"1969-12-31T23:59:59.001-00:30", 1799001},
        {"1900-03-01T00:00:00Z", INT64_C(-2203891200000)},
        {"0001-01-01T00:00:00Z", INT64_C(-62135596800000)},
        {"9999-12-31T23:59:59Z", INT64_C(253402300799000)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(time_of(cases[i].text), cases[i].ms, "%s", cases[i].text);
    }
}

/* case 6 */
Test(time, second_60_is_the_first_of_the_next_minute)
{
    cr_assert_eq(time_of("2016-12-31T23:59:60Z"), time_of("2017-01-01T00:00:00Z"));
    cr_assert_eq(time_of("2016-12-31T23:59:60.5Z"), time_of("2017-01-01T00:00:00.5Z"));
    cr_assert_eq(time_of("1990-12-31T15:59:60-08:00"), time_of("1991-01-01T00:00:00Z"));
    refuses_time("2016-12-31T23:59:61Z", "not a time of day");
}

/* Finer than a millisecond rounds up, before 1970 too, so that nothing at or after is missed. */
Test(time, fractions_round_up)
{
    cr_assert_eq(time_of("1970-01-01T00:00:00.5Z"), 500);
    cr_assert_eq(time_of("1970-01-01T00:00:00.0001Z"), 1);
    cr_assert_eq(time_of("1970-01-01T00:00:00.001000000000000000000Z"), 1);
    cr_assert_eq(time_of("1970-01-01T00:00:00.001000000000000000001Z"), 2);
    cr_assert_eq(time_of("1970-01-01T00:00:00.9999Z"), 1000);
    cr_assert_eq(time_of("1969-12-31T23:59:59.9995Z"), 0);
    cr_assert_eq(time_of("1969-12-31T23:59:59,25Z"), -750);
}

/* case 5 */
Test(time, the_number_of_digits_tells_the_unit)
{
    cr_assert_eq(time_of("1764504000"), INT64_C(1764504000000));
    cr_assert_eq(time_of("1764504000123"), INT64_C(1764504000123));
    cr_assert_eq(time_of("1764504000123000"), INT64_C(1764504000123));
    cr_assert_eq(time_of("1764504000123001"), INT64_C(1764504000124));
    cr_assert_eq(time_of("1764504000123000000"), INT64_C(1764504000123));
    cr_assert_eq(time_of("1764504000123000001"), INT64_C(1764504000124));
    cr_assert_eq(time_of("9999999999999999999"), INT64_C(10000000000000), "more than INT64_MAX ns");
    cr_assert_eq(time_of("0000000000"), 0);
    char digits[40] = "";
    for (size_t count = 1; count < sizeof digits; count++) {
        digits[count - 1] = '1';
        digits[count] = '\0';
        if (count != 10 && count != 13 && count != 16 && count != 19) {
            char expected[64];
            (void)snprintf(expected, sizeof expected, "%zu digits do not tell the unit", count);
            refuses_time(digits, expected);
        }
    }
}

/* case 7 */
Test(time, beyond_2038_and_2_to_the_40)
{
    cr_assert_eq(time_of("2038-01-19T03:14:08Z"), (INT64_C(1) << 31) * 1000);
    cr_assert_eq(time_of("2106-02-07T06:28:16Z"), (INT64_C(1) << 32) * 1000);
    cr_assert_eq(time_of("2004-11-03T19:53:47.776Z"), INT64_C(1) << 40);
    cr_assert_eq(time_of("9999999999999"), INT64_C(9999999999999));
}

Test(time, relative_to_now)
{
    cr_assert_eq(time_of("now"), NOW);
    cr_assert_eq(time_of("-1h30m"), NOW - 5400000);
    cr_assert_eq(time_of("+250ms"), NOW + 250);
    cr_assert_eq(time_of("-1us"), NOW);
    cr_assert_eq(time_of("+1us"), NOW + 1);
    refuses_time("-5", "needs a unit");
    refuses_time("-", "duration");
    refuses_time("-1764504000", "needs a unit");
}

Test(time, what_is_no_time_is_refused_with_the_reason)
{
    refuses_time("", "expected RFC 3339");
    refuses_time("yesterday", "expected RFC 3339");
    refuses_time("2026-11-30T12:00:00", "the zone is missing");
    refuses_time("2026-11-30", "after the date comes a time");
    refuses_time("2026-13-01T00:00:00Z", "month 13 does not exist");
    refuses_time("2026-00-01T00:00:00Z", "month 00 does not exist");
    refuses_time("2026-02-29T00:00:00Z", "2026-02 has no day 29");
    refuses_time("1900-02-29T00:00:00Z", "1900-02 has no day 29");
    refuses_time("2026-04-31T00:00:00Z", "2026-04 has no day 31");
    refuses_time("2026-11-30T24:00:00Z", "not a time of day");
    refuses_time("2026-11-30T12:60:00Z", "not a time of day");
    refuses_time("2026-11-30T12:00:00.Z", "digits are missing");
    refuses_time("2026-11-30T12:00:00+24:00", "the zone is not");
    refuses_time("2026-11-30T12:00:00+05", "the zone is not");
    refuses_time("2026-11-30T12:00:00+0530", "the zone is not");
    refuses_time("2026-11-30T12:00:00Z ", "left over");
    refuses_time("26-11-30T12:00:00Z", "the date is not");
    refuses_time(" 1764504000", "expected RFC 3339");
}

/* Every day of 0..9999 against the C library, and back through the text. */
Test(time, the_calendar_agrees_with_the_system)
{
    int64_t day = fq_days_from_date(0, 1, 1), last = fq_days_from_date(9999, 12, 31);
    for (; day <= last; day += 17) {
        time_t seconds = (time_t)(day * 86400 + 86399);
        struct tm parts;
        char expected[FQ_TIME_TEXT_BYTES * 2], text[FQ_TIME_TEXT_BYTES];
        cr_assert_not_null(gmtime_r(&seconds, &parts));
        (void)snprintf(expected, sizeof expected, "%04d-%02d-%02dT23:59:59.007Z",
                       parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
        int64_t ms = (int64_t)seconds * 1000 + 7;
        cr_assert_str_eq(fq_time_text(ms, text), expected);
        cr_assert_eq(time_of(text), ms);
    }
    char text[FQ_TIME_TEXT_BYTES];
    cr_assert_str_eq(fq_time_text(-1, text), "1969-12-31T23:59:59.999Z");
    cr_assert_str_eq(fq_time_text(INT64_MAX, text), "9223372036854775807");
    cr_assert_str_eq(fq_time_text(INT64_MIN, text), "-9223372036854775808");
}

/* ---- offsets ------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"none", "first", "last", "stored", "number", "time"};

static const char *range_text(const char *text)
{
    static char out[128];
    struct fq_offset_range range = {{FQ_OFFSET_NONE, 0}, {FQ_OFFSET_NONE, 0}};
    struct fq_fault fault = {""};
    if (fq_parse_offset(text, NOW, &range, &fault) != 0) {
        cr_assert(strncmp(fault.text, "offset \"", 8) == 0, "%s", fault.text);
        return "refused";
    }
    (void)snprintf(out, sizeof out, "%s %" PRId64 " %s %" PRId64, kind_names[range.from.kind],
                   range.from.value, kind_names[range.to.kind], range.to.value);
    return out;
}

Test(offset, every_spelling)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"start", "first 0 none 0"},
        {"beginning", "first 0 none 0"},
        {"earliest", "first 0 none 0"},
        {"oldest", "first 0 none 0"},
        {"end", "last 0 none 0"},
        {"latest", "last 0 none 0"},
        {"newest", "last 0 none 0"},
        {"stored", "stored 0 none 0"},
        {"0", "number 0 none 0"},
        {"1764504000", "number 1764504000 none 0"},
        {"9223372036854775807", "number 9223372036854775807 none 0"},
        {"-5", "last 5 none 0"},
        {"+5", "first 5 none 0"},
        {"3:7", "number 3 number 7"},
        {"3:", "number 3 none 0"},
        {":7", "first 0 number 7"},
        {":end", "first 0 last 0"},
        {"3:end", "number 3 last 0"},
        {"-10:end", "last 10 last 0"},
        {"start:-1", "first 0 last 1"},
        {"@1764504000", "time 1764504000000 none 0"},
        {"@2026-11-30T12:00:00+05:30", "time 1796020200000 none 0"},
        {"@2026-11-30T12:00:00+05:30:2026-11-30T12:00:01+05:30",
         "time 1796020200000 time 1796020201000"},
        {"@2026-11-30T12:00:00Z:@1796040001", "time 1796040000000 time 1796040001000"},
        {"@-1h:", "time 1764500400123 none 0"},
        {"@-1h:end", "time 1764500400123 last 0"},
        {"@-1h:-30m", "time 1764500400123 time 1764502200123"},
        {"@1764504000:1764504001", "time 1764504000000 time 1764504001000"},
        {"s@1764504000123", "time 1764504000123 none 0"},
        {"e@1764504000123", "none 0 time 1764504000123"},
        {"", "refused"},
        {"first", "refused"},
        {"--5", "refused"},
        {"-+5", "refused"},
        {"+", "refused"},
        {"9223372036854775808", "refused"},
        {"1.5", "refused"},
        {"7:3", "refused"},
        {"1:2:3", "refused"},
        {"a:5", "refused"},
        {"0:stored", "refused"},
        {"@", "refused"},
        {"@12345", "refused"},
        {"@-1h:nonsense", "refused"},
        {"s@", "refused"},
        {"0x10", "refused"},
        {" 5", "refused"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = range_text(cases[i].text);
        cr_assert_str_eq(got, cases[i].expected, "\"%s\" gave %s, not %s", cases[i].text, got,
                         cases[i].expected);
    }
}

Test(offset, kcats_two_ends_add_up)
{
    struct fq_offset_range range = {{FQ_OFFSET_NONE, 0}, {FQ_OFFSET_NONE, 0}};
    cr_assert_eq(fq_parse_offset("s@1764504000123", NOW, &range, NULL), 0);
    cr_assert_eq(fq_parse_offset("e@1764504000456", NOW, &range, NULL), 0);
    cr_assert_eq(range.from.value, INT64_C(1764504000123));
    cr_assert_eq(range.to.value, INT64_C(1764504000456));
}

Test(offset, a_bound_is_an_offset_where_it_can_be)
{
    static const struct {
        const char *text;
        int kind;
        int64_t value;
    } cases[] = {
        {"1764504000", FQ_OFFSET_NUMBER, 1764504000},
        {"@1764504000", FQ_OFFSET_TIME, INT64_C(1764504000000)},
        {"2026-11-30T12:00:00Z", FQ_OFFSET_TIME, INT64_C(1796040000000)},
        {"-1h", FQ_OFFSET_TIME, NOW - 3600000},
        {"-1", FQ_OFFSET_LAST, 1},
        {"end", FQ_OFFSET_LAST, 0},
    };
    struct fq_offset_bound bound;
    struct fq_fault fault;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(fq_parse_bound(cases[i].text, NOW, &bound, &fault), 0, "%s", cases[i].text);
        cr_assert_eq((int)bound.kind, cases[i].kind, "%s", cases[i].text);
        cr_assert_eq(bound.value, cases[i].value, "%s", cases[i].text);
    }
    cr_assert_neq(fq_parse_bound("stored", NOW, &bound, &fault), 0);
    cr_assert_neq(fq_parse_bound("soon", NOW, &bound, &fault), 0);
    cr_assert(strstr(fault.text, "neither an offset"));
}

/* ---- durations, sizes, rates --------------------------------------------------------------- */

Test(duration, units_from_large_to_small)
{
    static const struct {
        const char *text;
        int64_t ns; /* -1: refused */
    } cases[] = {
        {"0", 0},
        {"250ms", 250000000},
        {"1h30m", INT64_C(5400000000000)},
        {"2d", INT64_C(172800000000000)},
        {"1w2d3h4m5s6ms7us8ns", INT64_C(788645006007008)},
        {"1.5s", 1500000000},
        {"0.1ns", 1},
        {"292w", INT64_C(176601600000000000)},
        {"9223372036854775807ns", INT64_MAX},
        {"9223372036854775808ns", -1},
        {"99999999999w", -1},
        {"1m1h", -1},
        {"1s1s", -1},
        {"10", -1},
        {"1 s", -1},
        {"s", -1},
        {"", -1},
        {"-1s", -1},
        {"1.s", -1},
        {"1y", -1},
        {"1h30", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ns = -1;
        (void)fq_parse_duration_ns(cases[i].text, &ns, NULL);
        cr_assert_eq(ns, cases[i].ns, "%s gave %" PRId64, cases[i].text, ns);
    }
    int64_t ms;
    cr_assert_eq(fq_parse_duration_ms("1us", &ms, NULL), 0);
    cr_assert_eq(ms, 1, "rounded up");
}

Test(size, powers_of_1000_and_of_1024)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* UINT64_MAX: refused */
    } cases[] = {
        {"0", 0},          {"512", 512},
        {"512B", 512},     {"1k", 1024},
        {"1KB", 1000},     {"1MB", 1000000},
        {"64KiB", 65536},  {"1.5KiB", 1536},
        {"1GiB", 1 << 30}, {"2TB", UINT64_C(2000000000000)},
        {"", UINT64_MAX},  {"k", UINT64_MAX},
        {"-1", UINT64_MAX}, {"1kk", UINT64_MAX},
        {"1 k", UINT64_MAX}, {"99999999999TB", UINT64_MAX},
        {"1e3", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = UINT64_MAX;
        (void)fq_parse_size(cases[i].text, &bytes, NULL);
        cr_assert_eq(bytes, cases[i].bytes, "%s gave %" PRIu64, cases[i].text, bytes);
    }
}

Test(rate, per_second_minute_hour)
{
    double rate;
    cr_assert_eq(fq_parse_rate("500", &rate, NULL), 0);
    cr_assert_float_eq(rate, 500, 1e-9);
    cr_assert_eq(fq_parse_rate("1.5M/s", &rate, NULL), 0);
    cr_assert_float_eq(rate, 1.5e6, 1e-3);
    cr_assert_eq(fq_parse_rate("600/m", &rate, NULL), 0);
    cr_assert_float_eq(rate, 10, 1e-9);
    cr_assert_eq(fq_parse_rate("max", &rate, NULL), 0);
    cr_assert_float_eq(rate, 0, 1e-9);
    static const char *const bad[] = {"", "0", "-1", "5/", "5/d", "5/ss", "fast"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_neq(fq_parse_rate(bad[i], &rate, NULL), 0, "%s", bad[i]);
    }
}

Test(numbers, partitions_keep_their_order_and_lose_doubles)
{
    int32_t *list = NULL;
    size_t count = 0;
    cr_assert_eq(fq_parse_partitions("3,0-2,1", &list, &count, NULL), 0);
    cr_assert_eq(count, 4);
    const int32_t expected[] = {3, 0, 1, 2};
    cr_assert_eq(memcmp(list, expected, sizeof expected), 0);
    free(list);
    static const char *const bad[] = {"", ",", "1,", "-1", "2-1", "a", "1 ,2", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_neq(fq_parse_partitions(bad[i], &list, &count, NULL), 0, "%s", bad[i]);
    }
}

Test(numbers, counts_have_suffixes_of_1000)
{
    static const struct {
        const char *text;
        int64_t count; /* -1: refused */
    } cases[] = {{"1", 1},         {"100000", 100000}, {"10k", 10000},   {"10K", 10000},
                 {"1M", 1000000},  {"1.5M", 1500000},  {"2G", 2000000000}, {"0.001k", 1},
                 {"1.0", 1},       {"0", -1},          {"0k", -1},       {"1.5", -1},
                 {"0.0001k", -1},  {"", -1},           {"k", -1},        {"-1", -1},
                 {"1m", -1},       {"1MB", -1},        {"1MiB", -1},     {"1 M", -1},
                 {"1M ", -1},      {"5G", 5000000000}, {"5.1G", -1},     {"99999999999999999999", -1},
                 {"18446744073709551615G", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t count = -1;
        (void)fq_parse_count(cases[i].text, "msgs", 1, 5000000000, &count, NULL);
        cr_assert_eq(count, cases[i].count, "\"%s\" gave %" PRId64, cases[i].text, count);
    }
}

Test(numbers, an_integer_is_all_of_the_text)
{
    int64_t value;
    cr_assert_eq(fq_parse_whole("-9223372036854775808", "x", INT64_MIN, INT64_MAX, &value, NULL), 0);
    cr_assert_eq(value, INT64_MIN);
    struct fq_fault fault;
    cr_assert_neq(fq_parse_whole("12a", "x", 0, 100, &value, &fault), 0);
    cr_assert_neq(fq_parse_whole("-9223372036854775809", "x", INT64_MIN, INT64_MAX, &value, NULL), 0);
    cr_assert_neq(fq_parse_whole("101", "the count", 0, 100, &value, &fault), 0);
    cr_assert_str_eq(fault.text, "the count \"101\": expected a whole number from 0 to 100");
}
