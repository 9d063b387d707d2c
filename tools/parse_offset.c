/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OFFSET, in the words of all the tools people come from. A time always stands behind an @ here,
 * because a row of digits is an offset; and since times contain colons, a range of times is split
 * at the colon that leaves a time on its left.
 */
#include <stdlib.h>
#include <string.h>

#include <flashq/error.h>

#include "tools/parse_time.h"

#define TIME_TEXT_MAX 128

struct word {
    const char *text;
    enum fq_offset_kind kind;
};

static const struct word words[] = {
    {"start", FQ_OFFSET_FIRST},    {"beginning", FQ_OFFSET_FIRST}, {"earliest", FQ_OFFSET_FIRST},
    {"oldest", FQ_OFFSET_FIRST},   {"end", FQ_OFFSET_LAST},        {"latest", FQ_OFFSET_LAST},
    {"newest", FQ_OFFSET_LAST},    {"stored", FQ_OFFSET_STORED},   {"committed", FQ_OFFSET_STORED},
};

/* A word or a number, without @. `length` bytes of text. */
static bool parse_plain(const char *text, size_t length, struct fq_offset_bound *ret)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].text) == length && strncmp(words[i].text, text, length) == 0) {
            *ret = (struct fq_offset_bound){words[i].kind, 0};
            return true;
        }
    }
    char copy[24];
    bool has_sign = length > 0 && (text[0] == '-' || text[0] == '+');
    if (length <= has_sign || length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text + has_sign, length - has_sign);
    copy[length - has_sign] = '\0';
    int64_t value;
    if (fq_parse_whole(copy, "offset", 0, INT64_MAX, &value, NULL) != 0 || copy[0] == '-') {
        return false;
    }
    enum fq_offset_kind signed_kind = text[0] == '-' ? FQ_OFFSET_LAST : FQ_OFFSET_FIRST;
    *ret = (struct fq_offset_bound){has_sign ? signed_kind : FQ_OFFSET_NUMBER, value};
    return true;
}

static int parse_time_part(const char *text, size_t length, int64_t now_ms,
                           struct fq_offset_bound *ret, struct fq_fault *fault)
{
    char copy[TIME_TEXT_MAX];
    int64_t ms;
    if (length >= sizeof copy) {
        return fq_fault_set(fault, "a time of %zu characters", length);
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    int result = fq_parse_time(copy, now_ms, &ms, fault);
    if (result == 0) {
        *ret = (struct fq_offset_bound){FQ_OFFSET_TIME, ms};
    }
    return result;
}

/* The right side of a range: empty, a word, @TIME, or (after a time) TIME. */
static int parse_right(const char *text, bool after_time, int64_t now_ms,
                       struct fq_offset_bound *ret, struct fq_fault *fault)
{
    if (*text == '\0') {
        return 0;
    }
    if (*text == '@') {
        return parse_time_part(text + 1, strlen(text + 1), now_ms, ret, fault);
    }
    struct fq_offset_bound bound;
    if (parse_plain(text, strlen(text), &bound) && bound.kind != FQ_OFFSET_STORED &&
        !(after_time && bound.kind != FQ_OFFSET_LAST) && !(after_time && bound.value != 0)) {
        *ret = bound;
        return 0;
    }
    if (after_time) {
        return parse_time_part(text, strlen(text), now_ms, ret, fault);
    }
    return fq_fault_set(fault, "\"%.64s\" is not where a range can end", text);
}

/* @T, @T1:T2, @T1:, @T1:end */
static int parse_at(const char *text, int64_t now_ms, struct fq_offset_range *ret,
                    struct fq_fault *fault)
{
    struct fq_offset_bound from = {0}, to = ret->to;
    struct fq_fault first_fault;
    int result = parse_time_part(text, strlen(text), now_ms, &from, &first_fault);
    for (const char *colon = strchr(text, ':'); result != 0 && colon;
         colon = strchr(colon + 1, ':')) {
        if (parse_time_part(text, (size_t)(colon - text), now_ms, &from, NULL) == 0) {
            result = parse_right(colon + 1, true, now_ms, &to, &first_fault);
            if (result != 0) {
                break; /* only one colon leaves a time on its left */
            }
        }
    }
    if (result != 0) {
        return fq_fault_set(fault, "%s", first_fault.text);
    }
    *ret = (struct fq_offset_range){from, to};
    return 0;
}

static int parse_range(const char *text, const char *colon, int64_t now_ms,
                       struct fq_offset_range *ret, struct fq_fault *fault)
{
    struct fq_offset_bound from = {FQ_OFFSET_FIRST, 0}, to = ret->to;
    if (colon != text && !parse_plain(text, (size_t)(colon - text), &from)) {
        return fq_fault_set(fault, "the part before the colon is neither a number nor a word");
    }
    int result = parse_right(colon + 1, false, now_ms, &to, fault);
    if (result != 0) {
        return result;
    }
    if (from.kind == FQ_OFFSET_NUMBER && to.kind == FQ_OFFSET_NUMBER && from.value > to.value) {
        return fq_fault_set(fault, "the range ends before it starts");
    }
    *ret = (struct fq_offset_range){from, to};
    return 0;
}

int fq_parse_offset(const char *text, int64_t now_ms, struct fq_offset_range *ret,
                    struct fq_fault *fault)
{
    struct fq_offset_range range = *ret;
    const char *colon = strchr(text, ':');
    int result = 0;
    if (text[0] == '@') {
        result = parse_at(text + 1, now_ms, &range, fault);
    } else if (strncmp(text, "s@", 2) == 0) {
        result = parse_time_part(text + 2, strlen(text + 2), now_ms, &range.from, fault);
    } else if (strncmp(text, "e@", 2) == 0) {
        result = parse_time_part(text + 2, strlen(text + 2), now_ms, &range.to, fault);
    } else if (colon) {
        result = parse_range(text, colon, now_ms, &range, fault);
    } else if (!parse_plain(text, strlen(text), &range.from)) {
        result = fq_fault_set(fault,
                              "expected start, end, a number N, -N (before the end), +N "
                              "(after the start), A:B or @TIME");
    }
    if (result != 0) {
        return fq_fault_prefix(fault, "offset \"%.64s\": ", text);
    }
    *ret = range;
    return 0;
}

int fq_parse_bound(const char *text, int64_t now_ms, struct fq_offset_bound *ret,
                   struct fq_fault *fault)
{
    struct fq_offset_bound bound;
    if (parse_plain(text, strlen(text), &bound)) {
        if (bound.kind == FQ_OFFSET_STORED) {
            return fq_fault_set(fault, "\"stored\" is no bound");
        }
        *ret = bound;
        return 0;
    }
    const char *time = text[0] == '@' ? text + 1 : text;
    int result = parse_time_part(time, strlen(time), now_ms, ret, fault);
    if (result != 0 && time == text) {
        (void)fq_fault_prefix(fault, "neither an offset (N, -N, start, end) nor a time: ");
    }
    return result;
}
