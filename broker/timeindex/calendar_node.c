/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec and keys of the calendar's nodes. Values come from meta.pool with their checksum confirmed;
 * what they say is checked all the same, so that a node of another layout is CORRUPT and never an
 * index out of bounds.
 */
#include "timeindex/calendar_node.h"

#include <string.h>

#include "base/bytes.h"
#include "timeindex/timeindex.h"

enum { ROOT_VERSION = 1 };

/* Node numbers: kind in the top byte, then the day or minute, moved up so that it is never
 * negative. |minute| < 2^48 for any int64 of milliseconds. */
#define KIND_DAY    (UINT64_C(1) << 56)
#define KIND_MINUTE (UINT64_C(2) << 56)
#define KIND_MASK   (UINT64_C(255) << 56)
#define BIAS        (INT64_C(1) << 50)

static int64_t floor_div(int64_t value, int64_t by)
{
    int64_t quotient = value / by;
    return value % by < 0 ? quotient - 1 : quotient;
}

int64_t fq_calendar_second(int64_t timestamp_ms)
{
    return floor_div(timestamp_ms, 1000);
}

struct fq_calendar_place fq_calendar_place_of(int64_t second)
{
    struct fq_calendar_place place;
    place.day = floor_div(second, 86400);
    place.minute = floor_div(second, 60);
    int64_t second_of_day = second - place.day * 86400;
    place.hour_of_day = (unsigned)(second_of_day / 3600);
    place.minute_of_hour = (unsigned)(second_of_day / 60 % 60);
    place.second_of_minute = (unsigned)(second_of_day % 60);
    return place;
}

int64_t fq_calendar_minute_of(int64_t day, unsigned hour_of_day, unsigned minute_of_hour)
{
    return day * 1440 + (int64_t)hour_of_day * 60 + (int64_t)minute_of_hour;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static struct fq_meta_key key_of(const struct fq_meta_key *partition, uint64_t kind, int64_t number)
{
    struct fq_meta_key key = *partition;
    key.node = kind | (uint64_t)(number + BIAS);
    return key;
}

struct fq_meta_key fq_calendar_root_key(const struct fq_meta_key *partition)
{
    struct fq_meta_key key = *partition;
    key.node = 0;
    return key;
}

struct fq_meta_key fq_calendar_day_key(const struct fq_meta_key *partition, int64_t day)
{
    return key_of(partition, KIND_DAY, day);
}

struct fq_meta_key fq_calendar_minute_key(const struct fq_meta_key *partition, int64_t minute)
{
    return key_of(partition, KIND_MINUTE, minute);
}

bool fq_calendar_key_is_day(const struct fq_meta_key *partition, const struct fq_meta_key *key,
                            int64_t *ret_day)
{
    if (key->partition != partition->partition || (key->node & KIND_MASK) != KIND_DAY ||
        memcmp(&key->topic_id, &partition->topic_id, sizeof key->topic_id) != 0) {
        return false;
    }
    *ret_day = (int64_t)(key->node & ~KIND_MASK) - BIAS;
    return true;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static int get(struct fq_meta *meta, const struct fq_meta_key *key, struct fq_reader *ret)
{
    const void *value = "";
    size_t length = 0;
    int r = meta->ops->get(meta, FQ_META_CALENDAR, key, &value, &length);
    fq_reader_init(ret, value, length);
    return r;
}

static bool is_done(const struct fq_reader *r)
{
    return !r->failed && fq_reader_left(r) == 0;
}

int fq_calendar_root_get(struct fq_meta *meta, const struct fq_meta_key *partition,
                         struct fq_calendar_root *ret)
{
    const struct fq_meta_key key = fq_calendar_root_key(partition);
    struct fq_reader r;
    int code = get(meta, &key, &r);
    if (code < 0) {
        return code;
    }
    uint32_t version = fq_read_u32(&r);
    uint32_t zero = fq_read_u32(&r);
    struct fq_calendar_root root;
    root.complete_from = (int64_t)fq_read_u64(&r);
    root.complete_to = (int64_t)fq_read_u64(&r);
    root.last_second = (int64_t)fq_read_u64(&r);
    root.last_offset = (int64_t)fq_read_u64(&r);
    root.minutes_count = fq_read_u64(&r);
    if (!is_done(&r) || version != ROOT_VERSION || zero != 0 || root.complete_from < 0 ||
        root.complete_to < root.complete_from || root.last_offset < root.complete_from ||
        root.last_offset > root.complete_to || root.minutes_count == 0) {
        return FLASHQ_ERR_CORRUPT;
    }
    *ret = root;
    return 0;
}

static int decode_day(struct fq_reader *r, struct fq_calendar_day *ret)
{
    ret->hours = fq_read_u32(r);
    uint32_t zero = fq_read_u32(r);
    uint32_t hours = 0;
    uint64_t excess = 0;
    for (unsigned hour = 0; hour < FQ_CALENDAR_HOURS; hour++) {
        ret->minutes[hour] = fq_read_u64(r);
        hours |= (uint32_t)(ret->minutes[hour] != 0) << hour;
        excess |= ret->minutes[hour] >> FQ_CALENDAR_MINUTES;
    }
    bool is_sound = is_done(r) && zero == 0 && excess == 0 && hours != 0 && hours == ret->hours;
    return is_sound ? 0 : FLASHQ_ERR_CORRUPT;
}

int fq_calendar_day_get(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                        struct fq_calendar_day *ret)
{
    const struct fq_meta_key key = fq_calendar_day_key(partition, day);
    struct fq_reader r;
    int code = get(meta, &key, &r);
    return code < 0 ? code : decode_day(&r, ret);
}

int fq_calendar_minute_get(struct fq_meta *meta, const struct fq_meta_key *partition,
                           int64_t minute, struct fq_calendar_minute *ret)
{
    const struct fq_meta_key key = fq_calendar_minute_key(partition, minute);
    struct fq_reader r;
    int code = get(meta, &key, &r);
    if (code < 0) {
        return code;
    }
    memset(ret, 0, sizeof *ret);
    ret->seconds = fq_read_u64(&r);
    if (ret->seconds == 0 || ret->seconds >> FQ_CALENDAR_SECONDS != 0) {
        return FLASHQ_ERR_CORRUPT;
    }
    int64_t previous = 0;
    for (unsigned second = 0; second < FQ_CALENDAR_SECONDS; second++) {
        if (ret->seconds >> second & 1) {
            ret->offsets[second] = (int64_t)fq_read_u64(&r);
            if (ret->offsets[second] < previous) {
                return FLASHQ_ERR_CORRUPT;
            }
            previous = ret->offsets[second];
        }
    }
    return is_done(&r) ? 0 : FLASHQ_ERR_CORRUPT;
}

struct day_search {
    const struct fq_meta_key *partition;
    int64_t day;
    struct fq_calendar_day node;
    int result;
};

static int take_first_day(void *context, const struct fq_meta_key *key, const void *value,
                          size_t length)
{
    struct day_search *search = context;
    if (fq_calendar_key_is_day(search->partition, key, &search->day)) {
        struct fq_reader r;
        fq_reader_init(&r, value, length);
        search->result = decode_day(&r, &search->node);
    }
    return 1;
}

int fq_calendar_day_from(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                         int64_t *ret_day, struct fq_calendar_day *ret)
{
    const struct fq_meta_key from = fq_calendar_day_key(partition, day);
    struct day_search search = {.partition = partition, .result = FLASHQ_ERR_NOT_FOUND};
    int r = meta->ops->visit(meta, FQ_META_CALENDAR, &from, take_first_day, &search);
    if (r < 0 || search.result < 0) {
        return r < 0 ? r : search.result;
    }
    *ret_day = search.day;
    *ret = search.node;
    return 0;
}

/* ---- encoding ------------------------------------------------------------------------------- */

static int put(struct fq_meta *meta, const struct fq_meta_key *key, const struct fq_writer *w,
               struct fq_err *err)
{
    return meta->ops->put(meta, FQ_META_CALENDAR, key, w->start, fq_writer_used(w), err);
}

int fq_calendar_root_put(struct fq_meta *meta, const struct fq_meta_key *partition,
                         const struct fq_calendar_root *root, struct fq_err *err)
{
    const struct fq_meta_key key = fq_calendar_root_key(partition);
    uint8_t bytes[FQ_CALENDAR_ROOT_BYTES];
    struct fq_writer w;
    fq_writer_init(&w, bytes, sizeof bytes);
    fq_write_u32(&w, ROOT_VERSION);
    fq_write_u32(&w, 0);
    fq_write_u64(&w, (uint64_t)root->complete_from);
    fq_write_u64(&w, (uint64_t)root->complete_to);
    fq_write_u64(&w, (uint64_t)root->last_second);
    fq_write_u64(&w, (uint64_t)root->last_offset);
    fq_write_u64(&w, root->minutes_count);
    return put(meta, &key, &w, err);
}

int fq_calendar_day_put(struct fq_meta *meta, const struct fq_meta_key *partition, int64_t day,
                        const struct fq_calendar_day *node, struct fq_err *err)
{
    const struct fq_meta_key key = fq_calendar_day_key(partition, day);
    if (node->hours == 0) {
        return meta->ops->remove(meta, FQ_META_CALENDAR, &key);
    }
    uint8_t bytes[FQ_CALENDAR_DAY_BYTES];
    struct fq_writer w;
    fq_writer_init(&w, bytes, sizeof bytes);
    fq_write_u32(&w, node->hours);
    fq_write_u32(&w, 0);
    for (unsigned hour = 0; hour < FQ_CALENDAR_HOURS; hour++) {
        fq_write_u64(&w, node->minutes[hour]);
    }
    return put(meta, &key, &w, err);
}

int fq_calendar_minute_put(struct fq_meta *meta, const struct fq_meta_key *partition,
                           int64_t minute, const struct fq_calendar_minute *node,
                           struct fq_err *err)
{
    const struct fq_meta_key key = fq_calendar_minute_key(partition, minute);
    if (node->seconds == 0) {
        return meta->ops->remove(meta, FQ_META_CALENDAR, &key);
    }
    uint8_t bytes[FQ_CALENDAR_MINUTE_BYTES_MAX];
    struct fq_writer w;
    fq_writer_init(&w, bytes, sizeof bytes);
    fq_write_u64(&w, node->seconds);
    for (unsigned second = 0; second < FQ_CALENDAR_SECONDS; second++) {
        if (node->seconds >> second & 1) {
            fq_write_u64(&w, (uint64_t)node->offsets[second]);
        }
    }
    return put(meta, &key, &w, err);
}

/* ---- bitmaps -------------------------------------------------------------------------------- */

bool fq_calendar_day_next(const struct fq_calendar_day *node, unsigned hour, unsigned minute,
                          unsigned *ret_hour, unsigned *ret_minute)
{
    for (; hour < FQ_CALENDAR_HOURS; hour++, minute = 0) {
        uint64_t left = minute < FQ_CALENDAR_MINUTES ? node->minutes[hour] >> minute << minute : 0;
        if (left != 0) {
            *ret_hour = hour;
            *ret_minute = (unsigned)__builtin_ctzll(left);
            return true;
        }
    }
    return false;
}

bool fq_calendar_day_last(const struct fq_calendar_day *node, unsigned *ret_hour,
                          unsigned *ret_minute)
{
    if (node->hours == 0) {
        return false;
    }
    *ret_hour = 31u - (unsigned)__builtin_clz(node->hours);
    *ret_minute = 63u - (unsigned)__builtin_clzll(node->minutes[*ret_hour]);
    return true;
}

void fq_calendar_day_set(struct fq_calendar_day *node, unsigned hour, unsigned minute)
{
    node->minutes[hour] |= UINT64_C(1) << minute;
    node->hours |= UINT32_C(1) << hour;
}

void fq_calendar_day_clear(struct fq_calendar_day *node, unsigned hour, unsigned minute)
{
    node->minutes[hour] &= ~(UINT64_C(1) << minute);
    if (node->minutes[hour] == 0) {
        node->hours &= ~(UINT32_C(1) << hour);
    }
}
