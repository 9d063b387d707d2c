/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the calendar: the mark with the smallest second at or above the query's. By the claims in
 * calendar.c no record from complete_from up to that mark's offset is of the query's second or a
 * later one, so none is late enough. Without such a mark the same holds up to complete_to.
 */
#include "timeindex/calendar_node.h"
#include "timeindex/timeindex.h"

int fq_calendar_get_state(struct fq_meta *meta, const struct fq_meta_key *partition,
                          struct fq_calendar_state *ret)
{
    struct fq_calendar_root root;
    int r = fq_calendar_root_get(meta, partition, &root);
    if (r < 0) {
        return r;
    }
    ret->complete_from = root.complete_from;
    ret->complete_to = root.complete_to;
    ret->last_second = root.last_second;
    ret->minutes_count = root.minutes_count;
    return 0;
}

/* The first mark of the minute at or after `second`. */
static int find_in_minute(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t minute,
                          unsigned second, int64_t *ret_offset, uint64_t *inout_nodes)
{
    struct fq_calendar_minute node;
    ++*inout_nodes;
    int r = fq_calendar_minute_get(meta, partition, minute, &node);
    if (r < 0) {
        return FLASHQ_ERR_CORRUPT;
    }
    uint64_t left = node.seconds >> second << second;
    if (left == 0) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    *ret_offset = node.offsets[__builtin_ctzll(left)];
    return 0;
}

/* The first mark at or after the place; the caller knows that there is one. */
static int find_mark(struct fq_meta *meta, const struct fq_meta_key *partition,
                     const struct fq_calendar_place *place, int64_t *ret_offset,
                     uint64_t *inout_nodes)
{
    struct fq_calendar_day node;
    unsigned hour = place->hour_of_day, minute = place->minute_of_hour;
    int64_t day = place->day;
    ++*inout_nodes;
    int r = fq_calendar_day_get(meta, partition, day, &node);
    if (r == 0 && node.minutes[hour] >> minute & 1) {
        r = find_in_minute(meta, partition, place->minute, place->second_of_minute, ret_offset,
                           inout_nodes);
        if (r != FLASHQ_ERR_NOT_FOUND) {
            return r;
        }
        minute++;
        r = 0;
    }
    bool is_here = r == 0 && fq_calendar_day_next(&node, hour, minute, &hour, &minute);
    if (!is_here) {
        ++*inout_nodes;
        if ((r < 0 && r != FLASHQ_ERR_NOT_FOUND) ||
            fq_calendar_day_from(meta, partition, place->day + 1, &day, &node) < 0) {
            return FLASHQ_ERR_CORRUPT;
        }
        (void)fq_calendar_day_next(&node, 0, 0, &hour, &minute);
    }
    r = find_in_minute(meta, partition, fq_calendar_minute_of(day, hour, minute), 0, ret_offset,
                       inout_nodes);
    return r < 0 ? FLASHQ_ERR_CORRUPT : 0;
}

int fq_calendar_query(struct fq_meta *meta, const struct fq_meta_key *partition,
                      int64_t timestamp_ms, struct fq_calendar_answer *ret)
{
    struct fq_calendar_root root;
    *ret = (struct fq_calendar_answer){.nodes = 1};
    int r = fq_calendar_root_get(meta, partition, &root);
    if (r < 0) {
        return 0;
    }
    int64_t second = fq_calendar_second(timestamp_ms);
    int64_t offset = root.complete_to;
    if (second <= root.last_second) {
        const struct fq_calendar_place place = fq_calendar_place_of(second);
        if (find_mark(meta, partition, &place, &offset, &ret->nodes) < 0) {
            return 0;
        }
    }
    ret->found = offset >= root.complete_from && offset <= root.complete_to;
    ret->offset = offset;
    ret->complete_from = root.complete_from;
    ret->complete_to = root.complete_to;
    return 0;
}
