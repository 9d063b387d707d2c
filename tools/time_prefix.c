/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/time_prefix.h"

#include <string.h>
#include <time.h>

#include <flashq/error.h>

#include "tools/parse_time.h"

#define PREFIX_BYTES 128

int fq_time_prefix_check(const char *format, struct fq_fault *fault)
{
    static const char *const day_verbs[] = {"%d", "%e", "%j", "%D", "%F", "%c", "%x"};
    static const char *const year_verbs[] = {"%Y", "%y", "%D", "%F", "%G", "%c", "%x"};
    bool has_day = false, has_year = false;
    if (strcmp(format, "rfc3339") == 0) {
        return 0;
    }
    if (strstr(format, "%s")) {
        return fq_fault_set(fault, "time prefix \"%.64s\": %%s is not supported", format);
    }
    for (size_t i = 0; i < sizeof day_verbs / sizeof *day_verbs; i++) {
        has_day |= strstr(format, day_verbs[i]) != NULL;
        has_year |= strstr(format, year_verbs[i]) != NULL;
    }
    if (!has_day || !has_year) {
        return fq_fault_set(fault,
                            "time prefix \"%.64s\": it must have a year and a day, as "
                            "%%Y-%%m-%%d %%H:%%M:%%S has, or be rfc3339",
                            format);
    }
    return 0;
}

static int read_rfc3339(const char *text, int64_t *ret_ms)
{
    char word[PREFIX_BYTES];
    size_t length = strcspn(text, " \t");
    memcpy(word, text, length);
    word[length] = '\0';
    return word[0] >= '0' && word[0] <= '9' && strchr(word, '-')
               ? fq_parse_time(word, 0, ret_ms, NULL)
               : FLASHQ_ERR_INVALID;
}

/* ".25" in milliseconds, rounded up. */
static int64_t read_fraction(const char *text)
{
    int64_t ms = 0, scale = 100;
    bool has_rest = false;
    if (text[0] != '.' && text[0] != ',') {
        return 0;
    }
    for (text++; *text >= '0' && *text <= '9'; text++) {
        ms += (*text - '0') * scale;
        has_rest |= scale == 0 && *text != '0';
        scale /= 10;
    }
    return ms + has_rest;
}

int fq_time_prefix_read(const char *format, const void *line, size_t length, int64_t *ret_ms)
{
    char text[PREFIX_BYTES];
    size_t taken = length < sizeof text - 1 ? length : sizeof text - 1;
    memcpy(text, line, taken);
    text[taken] = '\0';
    if (strcmp(format, "rfc3339") == 0) {
        return read_rfc3339(text, ret_ms);
    }
    struct tm parts = {.tm_mday = 1};
    const char *end = strptime(text, format, &parts);
    if (!end) {
        return FLASHQ_ERR_INVALID;
    }
    int64_t days = fq_days_from_date(parts.tm_year + 1900, (unsigned)parts.tm_mon + 1,
                                     (unsigned)parts.tm_mday);
    int64_t seconds = ((int64_t)parts.tm_hour * 60 + parts.tm_min) * 60 + parts.tm_sec;
    *ret_ms = (days * 86400 + seconds - parts.tm_gmtoff) * 1000 + read_fraction(end);
    return 0;
}
