/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding and scanning in a log. Reads mapped memory only; a sealed segment is mapped on first use.
 * Damage met on the way is recorded and passed over; bytes that do not fit are never returned.
 * The sparse index of a recovered sealed segment is built as far as it is needed, once.
 */
#include <stdlib.h>
#include <string.h>

#include "storage/log_impl.h"
#include "storage/walk.h"

/* Index of the segment whose base is the greatest <= offset; segments_count when none. */
static size_t locate(const struct fq_log *log, int64_t offset)
{
    size_t low = 0, high = log->segments_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->segments[middle]->identity.base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? log->segments_count : low - 1;
}

struct fq_segment *fq_log_segment_first(struct fq_log *log)
{
    return log->segments_count > 0 ? log->segments[0] : NULL;
}

struct fq_segment *fq_log_segment_last(struct fq_log *log)
{
    return fq_log_last(log);
}

struct fq_segment *fq_log_segment_by_base(struct fq_log *log, int64_t base_offset)
{
    size_t i = locate(log, base_offset);
    return i < log->segments_count && log->segments[i]->identity.base_offset == base_offset
               ? log->segments[i]
               : NULL;
}

struct fq_segment *fq_segment_next(struct fq_segment *segment)
{
    struct fq_log *log = segment->log;
    if (!log || segment->is_retired) {
        return NULL;
    }
    size_t i = locate(log, segment->identity.base_offset);
    return i + 1 < log->segments_count ? log->segments[i + 1] : NULL;
}

static struct fq_index_entry nearest(const struct fq_segment *segment, int64_t offset)
{
    size_t low = 0, high = segment->index_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (segment->index[middle].base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? (struct fq_index_entry){segment->identity.base_offset, 0}
                    : segment->index[low - 1];
}

static void init_walk(struct fq_walk *walk, const struct fq_segment *segment,
                      struct fq_index_entry from)
{
    fq_walk_init(walk, segment, fq_segment_bytes(segment), segment->data_bytes);
    walk->offset_limit = segment->end_offset;
    walk->position = from.position;
    walk->offset = from.base_offset;
}

/* Keeps the index of a segment that was not walked at recovery growing behind the walk. */
static void note(struct fq_segment *segment, const struct fq_walk *walk,
                 const struct fq_batch_header *header)
{
    if (!segment->is_index_whole && walk->position == segment->index_next.position) {
        fq_segment_index_add(segment, header->base_offset, walk->position);
        segment->index_next =
            (struct fq_index_entry){header->base_offset + header->last_offset_delta + 1,
                                    walk->position + fq_batch_total_bytes(header)};
    }
}

/* Passes over what does not fit; records it. */
static void pass_damage(struct fq_log *log, struct fq_segment *segment, struct fq_walk *walk,
                        const char *why)
{
    int64_t first = walk->offset;
    uint64_t from = fq_walk_resync(walk);
    if (walk->position == walk->limit) {
        walk->offset = segment->end_offset;
    }
    fq_log_add_damage(log,
                      &(struct fq_log_damage_at){segment->path, FQ_SEG_DATA + from,
                                                 walk->position - from, first, walk->offset, why});
}

static int find_in(struct fq_log *log, struct fq_segment *segment, int64_t offset,
                   struct fq_index_entry from, struct fq_log_place *ret)
{
    struct fq_walk walk;
    struct fq_batch_header header;
    const char *why = "";
    init_walk(&walk, segment, from);
    for (;;) {
        enum fq_walk_result look = fq_walk_look(&walk, &header, &why);
        if (look == FQ_WALK_END) {
            *ret = (struct fq_log_place){segment, walk.position, segment->end_offset};
            return FLASHQ_ERR_CORRUPT;
        }
        if (look == FQ_WALK_NO_FIT) {
            pass_damage(log, segment, &walk, why);
            if (walk.offset > offset) {
                *ret = (struct fq_log_place){segment, walk.position, walk.offset};
                return FLASHQ_ERR_CORRUPT;
            }
            continue;
        }
        if (header.base_offset + header.last_offset_delta >= offset) {
            *ret = (struct fq_log_place){segment, walk.position, header.base_offset};
            return header.base_offset > offset ? FLASHQ_ERR_CORRUPT : 0;
        }
        note(segment, &walk, &header);
        fq_walk_advance(&walk, &header);
    }
}

static int find_from(struct fq_log *log, int64_t offset, const struct fq_index_entry *hint,
                     int64_t hint_base, struct fq_log_place *ret)
{
    if (offset < log->start) {
        return FLASHQ_ERR_TRIMMED;
    }
    if (offset > log->end) {
        return FLASHQ_ERR_OUT_OF_RANGE;
    }
    struct fq_segment *last = fq_log_last(log);
    if (offset == log->end) {
        *ret = (struct fq_log_place){last, last ? last->data_bytes : 0, offset};
        return 0;
    }
    size_t i = locate(log, offset);
    if (i ==
        log->segments_count) { /* below the first segment, above the start: a file is missing */
        *ret = (struct fq_log_place){log->segments[0], 0, log->segments[0]->identity.base_offset};
        return FLASHQ_ERR_CORRUPT;
    }
    struct fq_segment *segment = log->segments[i];
    if (offset >= segment->end_offset) { /* in a hole between two segments */
        struct fq_segment *next = log->segments[i + 1];
        *ret = (struct fq_log_place){next, 0, next->identity.base_offset};
        return FLASHQ_ERR_CORRUPT;
    }
    struct fq_err err;
    int r = fq_segment_map(segment, &err);
    if (r == FLASHQ_ERR_CORRUPT || r == FLASHQ_ERR_NOT_FOUND) {
        fq_log_add_damage(log, &(struct fq_log_damage_at){segment->path, 0, segment->data_bytes,
                                                          segment->identity.base_offset,
                                                          segment->end_offset, "the file is cut"});
        *ret = (struct fq_log_place){segment, segment->data_bytes, segment->end_offset};
        return FLASHQ_ERR_CORRUPT;
    }
    if (r < 0) {
        return r;
    }
    struct fq_index_entry from = nearest(segment, offset);
    if (hint && hint_base == segment->identity.base_offset && hint->base_offset <= offset &&
        hint->base_offset > from.base_offset && hint->position < segment->data_bytes) {
        from = *hint;
    }
    return find_in(log, segment, offset, from, ret);
}

int fq_log_find(struct fq_log *log, int64_t offset, struct fq_log_place *ret)
{
    return find_from(log, offset, NULL, 0, ret);
}

int fq_log_find_near(struct fq_log *log, int64_t offset, int64_t segment_base, uint64_t position,
                     struct fq_log_place *ret)
{
    struct fq_segment *segment = fq_log_segment_by_base(log, segment_base);
    struct fq_batch_header header;
    struct fq_index_entry hint = {-1, position};
    if (segment && position < segment->data_bytes && fq_segment_map(segment, NULL) == 0 &&
        fq_batch_header_read(fq_segment_bytes(segment) + position,
                             (size_t)(segment->data_bytes - position), &header, NULL) == 0) {
        hint.base_offset = header.base_offset;
        /* Only a batch that fits where it claims to be may lead the way. */
        struct fq_walk walk;
        init_walk(&walk, segment, hint);
        if (fq_walk_look(&walk, &header, NULL) == FQ_WALK_FIT) {
            return find_from(log, offset, &hint, segment_base, ret);
        }
    }
    return find_from(log, offset, NULL, 0, ret);
}

static int scan_segment(struct fq_log *log, struct fq_segment *segment, struct fq_index_entry start,
                        int64_t from_offset, int64_t to_offset, fq_log_visitor visitor,
                        void *context)
{
    struct fq_walk walk;
    struct fq_batch_header header;
    const char *why = "";
    init_walk(&walk, segment, start);
    for (;;) {
        enum fq_walk_result look = fq_walk_look(&walk, &header, &why);
        if (look == FQ_WALK_END) {
            return 0;
        }
        if (look == FQ_WALK_NO_FIT) {
            pass_damage(log, segment, &walk, why);
            continue;
        }
        if (header.base_offset >= to_offset) {
            return 0;
        }
        if (header.base_offset + header.last_offset_delta >= from_offset) {
            int r = visitor(context, &header, walk.data + walk.position,
                            (uint64_t)segment->identity.base_offset, walk.position);
            if (r != 0) {
                return r;
            }
        }
        note(segment, &walk, &header);
        fq_walk_advance(&walk, &header);
    }
}

int fq_log_scan(struct fq_log *log, int64_t from_offset, int64_t to_offset, fq_log_visitor visitor,
                void *context)
{
    from_offset = from_offset > log->start ? from_offset : log->start;
    size_t i = locate(log, from_offset);
    for (i = i == log->segments_count ? 0 : i; i < log->segments_count; i++) {
        struct fq_segment *segment = log->segments[i];
        if (segment->identity.base_offset >= to_offset) {
            break;
        }
        int r = fq_segment_map(segment, NULL);
        if (r == FLASHQ_ERR_CORRUPT || r == FLASHQ_ERR_NOT_FOUND) {
            fq_log_add_damage(log,
                              &(struct fq_log_damage_at){segment->path, 0, segment->data_bytes,
                                                         segment->identity.base_offset,
                                                         segment->end_offset, "the file is cut"});
            continue;
        }
        if (r == 0) {
            r = scan_segment(log, segment, nearest(segment, from_offset), from_offset, to_offset,
                             visitor, context);
        }
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int fq_log_scan_near(struct fq_log *log, int64_t from_offset, int64_t to_offset,
                     int64_t segment_base, uint64_t position, fq_log_visitor visitor, void *context)
{
    struct fq_log_place place = {.segment = NULL};
    int r = fq_log_find_near(log, from_offset, segment_base, position, &place);
    if ((r < 0 && r != FLASHQ_ERR_CORRUPT) || !place.segment ||
        fq_segment_map(place.segment, NULL) < 0) {
        return fq_log_scan(log, from_offset, to_offset, visitor, context);
    }
    int64_t segment_end = place.segment->end_offset;
    r = scan_segment(log, place.segment, (struct fq_index_entry){place.base_offset, place.position},
                     from_offset, to_offset, visitor, context);
    if (r != 0 || segment_end >= to_offset) {
        return r;
    }
    return fq_log_scan(log, segment_end, to_offset, visitor, context);
}
