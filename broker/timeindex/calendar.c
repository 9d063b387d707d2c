/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing the calendar of a partition in meta.pool. What it claims, for its marks (S1, O1), (S2,
 * O2), ... with S strictly and O not strictly increasing:
 *
 *   no record in [complete_from, Oi) is of a second > S(i-1)           (and none at all for i = 1)
 *   no record in [complete_from, complete_to) is of a second > S(last)
 *
 * apply keeps it by passing over marks of a second that is reached already and by moving a mark up
 * to the former complete_to, which the second claim allows. truncate and trim take marks away at
 * either end, which the claims allow too: at the front because complete_from moves up to the first
 * mark left.
 *
 * Everything happens within the caller's transaction: a failure leaves nothing half done once the
 * caller has aborted. The housekeeper's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "timeindex/calendar_node.h"
#include "timeindex/timeindex.h"

#define DAY_FIRST (-(INT64_C(1) << 40)) /* before any int64 of milliseconds */

static int damaged(struct fq_err *err)
{
    return fq_err_set(err, FLASHQ_ERR_CORRUPT, "calendar: nodes do not fit together");
}

/* A node that another one promises: missing is damage. */
static int promised(int code, struct fq_err *err)
{
    return code == FLASHQ_ERR_NOT_FOUND || code == FLASHQ_ERR_CORRUPT ? damaged(err) : code;
}

/* ---- walking the minutes -------------------------------------------------------------------- */

struct cursor {
    struct fq_meta *meta;
    const struct fq_meta_key *partition;
    int64_t day;
    struct fq_calendar_day node;
    unsigned hour, minute;
};

/* NOT_FOUND: no minute at all. */
static int cursor_first(struct cursor *cursor, struct fq_meta *meta,
                        const struct fq_meta_key *partition)
{
    cursor->meta = meta;
    cursor->partition = partition;
    int r = fq_calendar_day_from(meta, partition, DAY_FIRST, &cursor->day, &cursor->node);
    if (r == 0) {
        (void)fq_calendar_day_next(&cursor->node, 0, 0, &cursor->hour, &cursor->minute);
    }
    return r;
}

static int cursor_next(struct cursor *cursor)
{
    if (fq_calendar_day_next(&cursor->node, cursor->hour, cursor->minute + 1, &cursor->hour,
                             &cursor->minute)) {
        return 0;
    }
    int r = fq_calendar_day_from(cursor->meta, cursor->partition, cursor->day + 1, &cursor->day,
                                 &cursor->node);
    if (r == 0) {
        (void)fq_calendar_day_next(&cursor->node, 0, 0, &cursor->hour, &cursor->minute);
    }
    return r;
}

/* The first (smallest) offset in the minute at the cursor. */
static int cursor_offset(const struct cursor *cursor, int64_t *ret)
{
    struct fq_calendar_minute node;
    int r = fq_calendar_minute_get(cursor->meta, cursor->partition,
                                   fq_calendar_minute_of(cursor->day, cursor->hour, cursor->minute),
                                   &node);
    if (r == 0) {
        *ret = node.offsets[__builtin_ctzll(node.seconds)];
    }
    return r;
}

/* Removes the calendar's first minute, which is not its last, and moves complete_from up. */
static int remove_first_minute(struct fq_meta *meta, const struct fq_meta_key *partition,
                               struct fq_calendar_root *root, struct fq_err *err)
{
    struct cursor cursor;
    int r = cursor_first(&cursor, meta, partition);
    if (r < 0) {
        return promised(r, err);
    }
    const struct fq_meta_key key = fq_calendar_minute_key(
        partition, fq_calendar_minute_of(cursor.day, cursor.hour, cursor.minute));
    r = meta->ops->remove(meta, FQ_META_CALENDAR, &key);
    if (r < 0) {
        return promised(r, err);
    }
    fq_calendar_day_clear(&cursor.node, cursor.hour, cursor.minute);
    r = fq_calendar_day_put(meta, partition, cursor.day, &cursor.node, err);
    if (r < 0) {
        return r;
    }
    root->minutes_count--;
    r = cursor_first(&cursor, meta, partition);
    if (r == 0) {
        r = cursor_offset(&cursor, &root->complete_from);
    }
    return promised(r, err);
}

/* ---- apply ---------------------------------------------------------------------------------- */

/* The minute node being filled; written when another minute begins. */
struct open_minute {
    bool is_open, is_new;
    int64_t minute;
    struct fq_calendar_minute node;
};

static int close_minute(struct fq_meta *meta, const struct fq_meta_key *partition,
                        struct fq_calendar_root *root, struct open_minute *open, struct fq_err *err)
{
    if (!open->is_open) {
        return 0;
    }
    open->is_open = false;
    int r = fq_calendar_minute_put(meta, partition, open->minute, &open->node, err);
    if (r < 0 || !open->is_new) {
        return r;
    }
    const struct fq_calendar_place place = fq_calendar_place_of(open->minute * 60);
    struct fq_calendar_day day;
    r = fq_calendar_day_get(meta, partition, place.day, &day);
    if (r == FLASHQ_ERR_NOT_FOUND) {
        memset(&day, 0, sizeof day);
    } else if (r < 0) {
        return promised(r, err);
    }
    fq_calendar_day_set(&day, place.hour_of_day, place.minute_of_hour);
    root->minutes_count++;
    return fq_calendar_day_put(meta, partition, place.day, &day, err);
}

static int set_mark(struct fq_meta *meta, const struct fq_meta_key *partition,
                    struct fq_calendar_root *root, struct open_minute *open,
                    const struct fq_calendar_mark *mark, struct fq_err *err)
{
    const struct fq_calendar_place place = fq_calendar_place_of(mark->second);
    if (!open->is_open || open->minute != place.minute) {
        int r = close_minute(meta, partition, root, open, err);
        if (r < 0) {
            return r;
        }
        r = fq_calendar_minute_get(meta, partition, place.minute, &open->node);
        if (r < 0 && r != FLASHQ_ERR_NOT_FOUND) {
            return promised(r, err);
        }
        open->is_new = r == FLASHQ_ERR_NOT_FOUND;
        open->is_open = true;
        open->minute = place.minute;
        if (open->is_new) {
            memset(&open->node, 0, sizeof open->node);
        }
    }
    open->node.seconds |= UINT64_C(1) << place.second_of_minute;
    open->node.offsets[place.second_of_minute] = mark->offset;
    root->last_second = mark->second;
    root->last_offset = mark->offset;
    return 0;
}

/* The root, or an empty one that begins with the first mark. */
static int get_or_begin(struct fq_meta *meta, const struct fq_meta_key *partition,
                        const struct fq_calendar_mark *first, struct fq_calendar_root *ret,
                        struct fq_err *err)
{
    int r = fq_calendar_root_get(meta, partition, ret);
    if (r == FLASHQ_ERR_NOT_FOUND && first) {
        *ret = (struct fq_calendar_root){.complete_from = first->offset,
                                         .complete_to = first->offset,
                                         .last_second = INT64_MIN,
                                         .last_offset = first->offset};
        return 0;
    }
    return r == FLASHQ_ERR_CORRUPT ? damaged(err) : r;
}

int fq_calendar_apply(struct fq_meta *meta, const struct fq_meta_key *partition,
                      const struct fq_calendar_mark *marks, size_t marks_count, int64_t complete_to,
                      struct fq_err *err)
{
    struct fq_calendar_root root;
    int r = get_or_begin(meta, partition, marks_count ? &marks[0] : NULL, &root, err);
    if (r < 0) {
        return r == FLASHQ_ERR_NOT_FOUND ? 0 : r;
    }
    int64_t offset_min = root.complete_to;
    struct open_minute open = {.is_open = false};
    for (size_t i = 0; i < marks_count; i++) {
        struct fq_calendar_mark mark = marks[i];
        if (mark.second <= root.last_second) {
            continue;
        }
        offset_min = mark.offset > offset_min ? mark.offset : offset_min;
        mark.offset = offset_min;
        r = set_mark(meta, partition, &root, &open, &mark, err);
        if (r < 0) {
            return r;
        }
    }
    r = close_minute(meta, partition, &root, &open, err);
    if (r < 0) {
        return r;
    }
    complete_to = complete_to > offset_min ? complete_to : offset_min;
    root.complete_to = complete_to > root.complete_to ? complete_to : root.complete_to;
    while (root.minutes_count > FQ_LIMIT_CALENDAR_MINUTES) {
        r = remove_first_minute(meta, partition, &root, err);
        if (r < 0) {
            return r;
        }
    }
    return fq_calendar_root_put(meta, partition, &root, err);
}

/* ---- drop, trim ----------------------------------------------------------------------------- */

int fq_calendar_drop(struct fq_meta *meta, const struct fq_meta_key *partition, struct fq_err *err)
{
    int r = fq_meta_remove_all(meta, FQ_META_CALENDAR, &partition->topic_id, partition->partition);
    return r < 0 ? fq_err_set(err, r, "calendar: cannot drop it: %s", fq_err_describe(r)) : 0;
}

int fq_calendar_trim(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t log_start,
                     struct fq_err *err)
{
    struct fq_calendar_root root;
    int r = fq_calendar_root_get(meta, partition, &root);
    if (r < 0) {
        return r == FLASHQ_ERR_NOT_FOUND ? 0 : promised(r, err);
    }
    if (root.last_offset < log_start) {
        /* The record that made the running maximum is gone, so the maximum starts again; the feeder
         * does the same (fq_calendar_feeder_trim). */
        return fq_calendar_drop(meta, partition, err);
    }
    const uint64_t minutes_before = root.minutes_count;
    while (root.minutes_count > 1) {
        struct cursor cursor;
        int64_t second_offset = 0;
        r = cursor_first(&cursor, meta, partition);
        r = r < 0 ? r : cursor_next(&cursor);
        r = r < 0 ? r : cursor_offset(&cursor, &second_offset);
        if (r < 0) {
            return promised(r, err);
        }
        if (second_offset > log_start) {
            break;
        }
        r = remove_first_minute(meta, partition, &root, err);
        if (r < 0) {
            return r;
        }
    }
    return root.minutes_count == minutes_before ? 0
                                                : fq_calendar_root_put(meta, partition, &root, err);
}

/* ---- truncate ------------------------------------------------------------------------------- */

struct day_list {
    const struct fq_meta_key *partition;
    int64_t *days;
    size_t count, capacity;
};

static int add_day(void *context, const struct fq_meta_key *key, const void *value, size_t length)
{
    (void)value;
    (void)length;
    struct day_list *list = context;
    int64_t day;
    if (!fq_calendar_key_is_day(list->partition, key, &day)) {
        return 1;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        int64_t *days = realloc(list->days, capacity * sizeof *days);
        if (!days) {
            return FLASHQ_ERR_NO_MEMORY;
        }
        list->days = days;
        list->capacity = capacity;
    }
    list->days[list->count++] = day;
    return 0;
}

/* Takes the marks >= offset away from a day's end. Returns 1 when a mark is left, which is now the
 * calendar's last; 0 when the day is gone. */
static int cut_day(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                   int64_t offset, struct fq_calendar_root *root, struct fq_err *err)
{
    struct fq_calendar_day node;
    unsigned hour = 0, minute_of_hour = 0;
    int r = fq_calendar_day_get(meta, partition, day, &node);
    while (r == 0 && fq_calendar_day_last(&node, &hour, &minute_of_hour)) {
        int64_t minute = fq_calendar_minute_of(day, hour, minute_of_hour);
        struct fq_calendar_minute marks;
        r = fq_calendar_minute_get(meta, partition, minute, &marks);
        if (r < 0) {
            break;
        }
        const uint64_t seconds_before = marks.seconds;
        unsigned top = 0;
        while (marks.seconds != 0) {
            top = 63u - (unsigned)__builtin_clzll(marks.seconds);
            if (marks.offsets[top] < offset) {
                break;
            }
            marks.seconds &= ~(UINT64_C(1) << top);
        }
        if (marks.seconds != seconds_before) {
            r = fq_calendar_minute_put(meta, partition, minute, &marks, err);
        }
        if (r == 0 && marks.seconds != 0) {
            root->last_second = minute * 60 + (int64_t)top;
            root->last_offset = marks.offsets[top];
            r = fq_calendar_day_put(meta, partition, day, &node, err);
            return r < 0 ? r : 1;
        }
        fq_calendar_day_clear(&node, hour, minute_of_hour);
        root->minutes_count--;
    }
    return r < 0 ? promised(r, err) : fq_calendar_day_put(meta, partition, day, &node, err);
}

int fq_calendar_truncate(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t offset,
                         struct fq_err *err)
{
    struct fq_calendar_root root;
    int r = fq_calendar_root_get(meta, partition, &root);
    if (r < 0) {
        return r == FLASHQ_ERR_NOT_FOUND ? 0 : promised(r, err);
    }
    if (offset >= root.complete_to) {
        return 0;
    }
    if (offset <= root.complete_from) {
        return fq_calendar_drop(meta, partition, err);
    }
    struct day_list list = {.partition = partition};
    const struct fq_meta_key from = fq_calendar_day_key(partition, DAY_FIRST);
    r = meta->ops->visit(meta, FQ_META_CALENDAR, &from, add_day, &list);
    for (r = r < 0 ? r : 0; r == 0 && list.count > 0; list.count--) {
        r = cut_day(meta, partition, list.days[list.count - 1], offset, &root, err);
    }
    free(list.days);
    if (r != 1) {
        return r < 0 ? r : damaged(err); /* the first mark is at complete_from, below offset */
    }
    root.complete_to = offset;
    return fq_calendar_root_put(meta, partition, &root, err);
}
