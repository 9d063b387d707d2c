/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people write for times, offsets, durations, sizes and rates. Each parser takes the whole
 * text or refuses it, and the complaint says what would have been taken.
 */
#ifndef FQ_TOOLS_PARSE_TIME_H
#define FQ_TOOLS_PARSE_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text.h"

/*
 * TIME, to milliseconds since 1970 (negative before):
 *   2026-11-30T12:00:00.5+05:30   RFC 3339, any zone, either case, a space for the T; second 60 is
 *                                 the first of the next minute
 *   1764504000                    10, 13, 16 or 19 digits: s, ms, us, ns
 *   -1h30m  +10m  now             relative to now_ms
 * What is finer than a millisecond rounds up, so that "first record at or after" stays true.
 */
int fq_parse_time(const char *text, int64_t now_ms, int64_t *ret_ms, struct fq_fault *fault);

/* "2026-11-30T12:00:00.500Z"; years outside 0..9999: the bare milliseconds. */
#define FQ_TIME_TEXT_BYTES 40
const char *fq_time_text(int64_t ms, char text[FQ_TIME_TEXT_BYTES]);

/* Days since 1970-01-01 of a date of the proleptic Gregorian calendar; month 1..12. */
int64_t fq_days_from_date(int64_t year, unsigned month, unsigned day);

enum fq_offset_kind {
    FQ_OFFSET_NONE,   /* not given */
    FQ_OFFSET_FIRST,  /* the log start, plus `value` */
    FQ_OFFSET_LAST,   /* the end, minus `value` */
    FQ_OFFSET_STORED, /* a group's committed position */
    FQ_OFFSET_NUMBER, /* `value` */
    FQ_OFFSET_TIME    /* the first record at or after `value` ms */
};

struct fq_offset_bound {
    enum fq_offset_kind kind;
    int64_t value;
};

struct fq_offset_range {
    struct fq_offset_bound from;
    struct fq_offset_bound to; /* exclusive; NONE: no bound */
};

/*
 * OFFSET: start|beginning|earliest|oldest, end|latest|newest, stored, N, -N, +N, @TIME, s@TIME,
 * e@TIME (an end only), and ranges A:B, A:, :B, A:end, @T1:T2. Only the sides that the text names
 * are set in ret (so `-o s@X -o e@Y` adds up); a plain OFFSET leaves `to` as it was.
 */
int fq_parse_offset(const char *text, int64_t now_ms, struct fq_offset_range *ret,
                    struct fq_fault *fault);

/* One bound for --until, --before, --to: N, end, start, -N, @TIME, or a TIME that cannot be taken for
 * an offset. */
int fq_parse_bound(const char *text, int64_t now_ms, struct fq_offset_bound *ret,
                   struct fq_fault *fault);

/* 1h30m, 250ms, 2d, 1.5s, 10us; "0". Units w d h m s ms us ns. */
int fq_parse_duration_ns(const char *text, int64_t *ret_ns, struct fq_fault *fault);
/* The same, rounded up to milliseconds. */
int fq_parse_duration_ms(const char *text, int64_t *ret_ms, struct fq_fault *fault);

/* 512, 1k, 64KiB, 1MB: k K M G T and KiB MiB GiB TiB are powers of 1024; kB KB MB GB TB of 1000. */
int fq_parse_size(const char *text, uint64_t *ret, struct fq_fault *fault);

/* 1000, 10k, 1.5M, optionally /s, /m or /h; max (as 0). Per second. */
int fq_parse_rate(const char *text, double *ret_per_second, struct fq_fault *fault);

/* How many: a plain decimal, or 10k, 1.5M, 1G (powers of 1000), in [low, high]. */
int fq_parse_count(const char *text, const char *what, int64_t low, int64_t high, int64_t *ret,
                   struct fq_fault *fault);

/* A plain decimal in [low, high]; `what` names it in the complaint. */
int fq_parse_whole(const char *text, const char *what, int64_t low, int64_t high, int64_t *ret,
                 struct fq_fault *fault);

/* 0,1,4-6: partitions, in the order written, without doubles. *ret is freed by the caller. */
int fq_parse_partitions(const char *text, int32_t **ret, size_t *ret_count,
                        struct fq_fault *fault);

#endif
