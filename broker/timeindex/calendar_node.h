/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calendar's nodes as they are kept in meta.pool, table FQ_META_CALENDAR, and as structs. A
 * partition has one root, a day node per day with marks (24 hours of 60 minute bits), a minute node
 * per minute with marks (60 second bits and the offset of each). Bytes are little-endian.
 *
 *   root    u32 version 1, u32 zero, i64 complete_from, complete_to, last_second, last_offset,
 *           u64 minutes_count
 *   day     u32 hours bitmap, u32 zero, u64 minutes bitmap [24]
 *   minute  u64 seconds bitmap, i64 offset for each set bit in order
 *
 * complete_from is the first mark's offset. An hour's bit is set if and only if its minutes bitmap
 * is not zero, a minute's if and only if the minute node exists; no bitmap of a stored node is all
 * zero.
 */
#ifndef FQ_TIMEINDEX_CALENDAR_NODE_H
#define FQ_TIMEINDEX_CALENDAR_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/meta.h"

enum { FQ_CALENDAR_HOURS = 24, FQ_CALENDAR_MINUTES = 60, FQ_CALENDAR_SECONDS = 60 };

enum {
    FQ_CALENDAR_ROOT_BYTES = 48,
    FQ_CALENDAR_DAY_BYTES = 8 + 8 * FQ_CALENDAR_HOURS,
    FQ_CALENDAR_MINUTE_BYTES_MAX = 8 + 8 * FQ_CALENDAR_SECONDS
};

struct fq_calendar_root {
    int64_t complete_from, complete_to;
    int64_t last_second, last_offset; /* of the last mark; there is always one */
    uint64_t minutes_count;           /* minute nodes; > 0 */
};

struct fq_calendar_day {
    uint32_t hours;
    uint64_t minutes[FQ_CALENDAR_HOURS];
};

struct fq_calendar_minute {
    uint64_t seconds;
    int64_t offsets[FQ_CALENDAR_SECONDS]; /* by second of the minute; where the bit is set */
};

/* Where a second lies. Floor divisions, so that every int64 timestamp has its place. */
struct fq_calendar_place {
    int64_t day, minute; /* since the epoch */
    unsigned hour_of_day, minute_of_hour, second_of_minute;
};
struct fq_calendar_place fq_calendar_place_of(int64_t second);
/* The minute since the epoch of a day's hour and minute. */
int64_t fq_calendar_minute_of(int64_t day, unsigned hour_of_day, unsigned minute_of_hour);

/* Keys: nodes of a kind sort by time. */
struct fq_meta_key fq_calendar_root_key(const struct fq_meta_key *partition);
struct fq_meta_key fq_calendar_day_key(const struct fq_meta_key *partition, int64_t day);
struct fq_meta_key fq_calendar_minute_key(const struct fq_meta_key *partition, int64_t minute);
/* true and the day if `key` is a day node of `partition`. */
bool fq_calendar_key_is_day(const struct fq_meta_key *partition, const struct fq_meta_key *key,
                            int64_t *ret_day);

/* 0, NOT_FOUND, CORRUPT (the value is not what the layout above says). */
int fq_calendar_root_get(struct fq_meta *meta, const struct fq_meta_key *partition,
                         struct fq_calendar_root *ret);
int fq_calendar_day_get(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                        struct fq_calendar_day *ret);
int fq_calendar_minute_get(struct fq_meta *meta, const struct fq_meta_key *partition,
                           int64_t minute, struct fq_calendar_minute *ret);
/* The first day node at or after `day`. */
int fq_calendar_day_from(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                         int64_t *ret_day, struct fq_calendar_day *ret);

int fq_calendar_root_put(struct fq_meta *meta, const struct fq_meta_key *partition,
                         const struct fq_calendar_root *root, struct fq_err *err);
/* A node without marks is removed instead. */
int fq_calendar_day_put(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                        const struct fq_calendar_day *node, struct fq_err *err);
int fq_calendar_minute_put(struct fq_meta *meta, const struct fq_meta_key *partition,
                           int64_t minute, const struct fq_calendar_minute *node,
                           struct fq_err *err);

/* The first set minute at or after (hour, minute); false: none in this day. */
bool fq_calendar_day_next(const struct fq_calendar_day *node, unsigned hour, unsigned minute,
                          unsigned *ret_hour, unsigned *ret_minute);
bool fq_calendar_day_last(const struct fq_calendar_day *node, unsigned *ret_hour,
                          unsigned *ret_minute);
void fq_calendar_day_set(struct fq_calendar_day *node, unsigned hour, unsigned minute);
void fq_calendar_day_clear(struct fq_calendar_day *node, unsigned hour, unsigned minute);

#endif
