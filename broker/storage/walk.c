/* SPDX-License-Identifier: Apache-2.0 */
/* See walk.h. No state but the caller's; never reads at or above walk->limit. */
#include "storage/walk.h"

#include <string.h>

#include "base/bytes.h"

#define RECORD_BYTES_MIN 7u /* of an uncompressed record: seven one-byte fields */

void fq_walk_init(struct fq_walk *walk, const struct fq_segment *segment, const uint8_t *data,
                  uint64_t limit)
{
    *walk = (struct fq_walk){
        .segment = segment,
        .data = data,
        .limit = limit,
        .offset = segment->identity.base_offset,
        .epoch = segment->identity.first_epoch,
        .any_epoch = segment->is_epochs_damaged,
        .offset_limit = INT64_MAX,
    };
}

static bool epoch_fits(const struct fq_walk *walk, const struct fq_batch_header *h)
{
    return walk->any_epoch ? h->leader_epoch >= walk->epoch
                           : h->leader_epoch == fq_segment_epoch_at(walk->segment, h->base_offset);
}

/* Everything but the CRC of the batch at `position`. */
static const char *header_misfit(const struct fq_walk *walk, uint64_t position, int64_t offset,
                                 bool is_exact, struct fq_batch_header *ret)
{
    if (fq_batch_header_read(walk->data + position, (size_t)(walk->limit - position), ret, NULL) <
        0) {
        return "no batch header";
    }
    if (fq_batch_total_bytes(ret) > walk->limit - position) {
        return "batch length beyond the end";
    }
    if (is_exact ? ret->base_offset != offset
                 : ret->base_offset < offset || ret->base_offset > FQ_OFFSET_MAX) {
        return "wrong base offset";
    }
    if (ret->base_offset > walk->offset_limit - 1 - ret->last_offset_delta) {
        return "offsets beyond the end";
    }
    return epoch_fits(walk, ret) ? NULL : "wrong leader epoch";
}

enum fq_walk_result fq_walk_look(const struct fq_walk *walk, struct fq_batch_header *ret,
                                 const char **ret_why)
{
    if (walk->position >= walk->limit) {
        return FQ_WALK_END;
    }
    const char *why =
        header_misfit(walk, walk->position, walk->offset, !walk->is_after_damage, ret);
    /* Always: a header whose length is wrong would lead past good batches. */
    if (!why && !fq_batch_crc_ok(walk->data + walk->position, (size_t)fq_batch_total_bytes(ret))) {
        why = "wrong CRC";
    }
    if (why) {
        if (ret_why) {
            *ret_why = why;
        }
        return FQ_WALK_NO_FIT;
    }
    return FQ_WALK_FIT;
}

void fq_walk_advance(struct fq_walk *walk, const struct fq_batch_header *header)
{
    walk->position += fq_batch_total_bytes(header);
    walk->offset = header->base_offset + header->last_offset_delta + 1;
    walk->epoch = header->leader_epoch;
    walk->is_after_damage = false;
}

/* Is the walk at home at `position`? One batch there that fits and is followed by the limit, by
 * another header that continues it, or by nothing at all: a batch image inside a record's value is
 * followed by more of the value. */
static bool is_at_home(const struct fq_walk *walk, uint64_t position, int64_t offset_min,
                       struct fq_batch_header *ret)
{
    static const uint8_t nothing[FQ_BATCH_HEADER_BYTES];
    struct fq_batch_header after;
    if (header_misfit(walk, position, offset_min, false, ret) ||
        !fq_batch_crc_ok(walk->data + position, (size_t)fq_batch_total_bytes(ret))) {
        return false;
    }
    uint64_t end = position + fq_batch_total_bytes(ret);
    uint64_t left = walk->limit - end;
    if (left == 0) {
        return true;
    }
    if (!header_misfit(walk, end, ret->base_offset + ret->last_offset_delta + 1, true, &after)) {
        return true;
    }
    return memcmp(walk->data + end, nothing,
                  left < sizeof nothing ? (size_t)left : sizeof nothing) == 0;
}

/* How many offsets the damaged batch at the very end may have held, at least one. */
static int64_t offsets_at_most(const struct fq_walk *walk, uint64_t from)
{
    uint64_t bytes = walk->limit - from;
    if (bytes < FQ_BATCH_HEADER_BYTES) {
        return 1;
    }
    const uint8_t *at = walk->data + from;
    int64_t by_delta = (int64_t)(int32_t)fq_load_be32(at + FQ_BATCH_LAST_OFFSET_DELTA) + 1;
    int64_t by_count = (int32_t)fq_load_be32(at + FQ_BATCH_RECORDS_COUNT);
    int64_t by_bytes = (int64_t)((bytes - FQ_BATCH_HEADER_BYTES) / RECORD_BYTES_MIN);
    int64_t most = by_delta > by_count ? by_delta : by_count;
    return most < 1 ? 1 : most > by_bytes && by_bytes > 0 ? by_bytes : most;
}

uint64_t fq_walk_resync(struct fq_walk *walk)
{
    uint64_t from = walk->position;
    struct fq_batch_header found, damaged;
    int64_t offset_min = walk->offset + 1; /* a damaged batch held at least one record */
    walk->is_after_damage = true;

    /* The damaged batch's own length, if it leads somewhere. */
    if (fq_batch_header_read(walk->data + from, (size_t)(walk->limit - from), &damaged, NULL) ==
            0 &&
        fq_batch_total_bytes(&damaged) < walk->limit - from &&
        is_at_home(walk, from + fq_batch_total_bytes(&damaged), offset_min, &found)) {
        walk->position = from + fq_batch_total_bytes(&damaged);
        walk->offset = found.base_offset;
        return from;
    }
    for (uint64_t at = from + 1; at + FQ_BATCH_HEADER_BYTES < walk->limit; at++) {
        if (walk->data[at + FQ_BATCH_MAGIC] == 2 && is_at_home(walk, at, offset_min, &found)) {
            walk->position = at;
            walk->offset = found.base_offset;
            return from;
        }
    }
    walk->position = walk->limit;
    walk->offset += offsets_at_most(walk, from);
    return from;
}
