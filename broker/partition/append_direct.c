/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a batch that its producer has stored where it stays: right above the log's end.
 *
 * Happy path: the 61 header bytes are copied; length, fields and sequence are checked on the copy,
 * checksum and records in place; the body is written back, the stamped header stored last; then the
 * log counts it, and index, epoch history and producer state follow. Nothing is copied but the
 * header.
 *
 * Where: at the log's end if something was stored there, else at the start of the next segment,
 * which then becomes the open one. Only after all checks, so a refused batch changes nothing; it is
 * still lying there, and whoever lent the memory takes it back and wipes it.
 *
 * Nobody may change the bytes during the call: over tcp the window's floor sees to that.
 *
 * Thread: the shard. No allocation, no system call, no lock.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "partition/incoming.h"

struct spot {
    struct fq_segment *segment;
    const uint8_t *bytes; /* the batch, if there is one */
    uint64_t available;   /* written from there on */
    bool is_next;
};

static bool has_header(const struct spot *spot)
{
    static const uint8_t nothing[FQ_BATCH_HEADER_BYTES];
    return spot->available >= FQ_BATCH_HEADER_BYTES &&
           memcmp(spot->bytes, nothing, FQ_BATCH_HEADER_BYTES) != 0;
}

static void look_at(struct spot *ret, struct fq_segment *segment, uint64_t position,
                    uint64_t written, bool is_next)
{
    *ret = (struct spot){segment, fq_segment_data(segment) + position,
                         written > position ? written - position : 0, is_next};
}

static int find(struct fq_partition *p, const struct fq_in_place *where, struct spot *ret,
                struct fq_err *err)
{
    struct fq_segment *last = fq_log_segment_last(p->log);
    look_at(ret, last, fq_segment_data_bytes(last), where->written, false);
    if (!has_header(ret) && where->next) {
        look_at(ret, where->next->segment, 0, where->written_next, true);
    }
    return has_header(ret) ? 0
                           : fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                                        "no batch lies where the next one was to be written");
}

/* Copies the header and believes its length if so much was written. */
static int bring_header(struct fq_partition *p, const struct spot *spot, struct fq_incoming *in,
                        struct fq_append_result *ret, struct fq_err *err)
{
    memcpy(p->host->scratch, spot->bytes, FQ_BATCH_HEADER_BYTES);
    int32_t length = (int32_t)fq_load_be32(p->host->scratch + FQ_BATCH_LENGTH);
    uint64_t bytes = (uint64_t)(uint32_t)length + 12u;
    if (length < FQ_BATCH_HEADER_BYTES - 12 || bytes > spot->available) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "batch length %d: at least %d, and %llu bytes were written", length,
                          FQ_BATCH_HEADER_BYTES - 12, (unsigned long long)spot->available);
    }
    ret->bytes = in->bytes = bytes;
    in->batch = (uint8_t *)(uintptr_t)spot->bytes; /* only read */
    return 0;
}

static uint32_t crc_of(const struct fq_partition *p, const struct fq_incoming *in)
{
    uint32_t crc = fq_crc32c(0, p->host->scratch + FQ_BATCH_ATTRIBUTES,
                             FQ_BATCH_HEADER_BYTES - FQ_BATCH_ATTRIBUTES);
    return fq_crc32c(crc, in->batch + FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES);
}

static int check(struct fq_partition *p, struct fq_incoming *in, int64_t producer_id,
                 int16_t producer_epoch, struct fq_producer **ret_producer,
                 struct fq_append_result *ret, struct fq_err *err)
{
    if (p->state == PARTITION_OFFLINE) {
        return fq_err_set(err, FLASHQ_ERR_OFFLINE, "%s", p->offline_why.text);
    }
    if (in->bytes > p->host->scratch_bytes) {
        return fq_incoming_too_large(ret, err, "batch", in->bytes, p->host->scratch_bytes);
    }
    int rc = fq_batch_header_read(p->host->scratch, FQ_BATCH_HEADER_BYTES, &in->header, err);
    if (rc < 0) {
        return rc;
    }
    in->crc = crc_of(p, in);
    rc = fq_incoming_check_header(in, producer_id, producer_epoch, err);
    rc = rc < 0 ? rc : fq_incoming_check_sequence(p, in, ret_producer, ret, err);
    return rc < 0 || ret->duplicate ? rc : fq_incoming_check_content(p, in, ret, err);
}

/* Body first, stamped header last. */
static int keep(struct fq_partition *p, struct fq_incoming *in, struct fq_log_place *ret_place,
                struct fq_err *err)
{
    int64_t base = fq_log_end(p->log);
    uint8_t *header = p->host->scratch;
    int rc = base > INT64_MAX - in->header.records_count
                 ? fq_err_set(err, FLASHQ_ERR_LIMIT, "offsets are used up")
                 : fq_log_reserve_in_place(p->log, in->bytes, err);
    if (rc < 0) {
        return rc;
    }
    in->header.base_offset = base;
    in->header.leader_epoch = p->leader_epoch;
    fq_batch_stamp(header, base, p->leader_epoch);
    rc = fq_log_write_back(p->log, FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES);
    rc = rc < 0 ? rc : fq_log_write_part(p->log, 0, header, FQ_BATCH_HEADER_BYTES);
    rc = rc < 0 ? rc : fq_log_commit_batch(p->log, &in->header, ret_place);
    return rc < 0 ? fq_incoming_medium_failed(p, rc, err) : 0;
}

static int take(struct fq_partition *p, const struct fq_in_place *where, int64_t producer_id,
                int16_t producer_epoch, struct fq_append_result *ret, struct fq_err *err)
{
    struct fq_incoming in = {.now_ms = p->host->wall_ms(p->host->context)};
    struct fq_producer *producer = NULL;
    struct fq_log_place place;
    struct spot spot;
    int rc = find(p, where, &spot, err);
    rc = rc < 0 ? rc : bring_header(p, &spot, &in, ret, err);
    rc = rc < 0 ? rc : check(p, &in, producer_id, producer_epoch, &producer, ret, err);
    if (rc < 0 || ret->duplicate) {
        p->stats.duplicates += rc == 0;
        return rc;
    }
    if (spot.is_next) {
        rc = fq_log_move_on(p->log, where->written);
        if (rc < 0) {
            return fq_incoming_medium_failed(p, rc, err);
        }
        ret->moved_on = true;
    }
    rc = keep(p, &in, &place, err);
    if (rc < 0) {
        return rc;
    }
    fq_incoming_remember(p, &in, &place, producer);
    ret->base_offset = in.header.base_offset;
    ret->end_offset = in.header.base_offset + in.header.records_count;
    return 0;
}

int fq_partition_append_in_place(struct fq_partition *p, const struct fq_in_place *where,
                                 int64_t producer_id, int16_t producer_epoch,
                                 struct fq_append_result *ret, struct fq_err *err)
{
    static const int16_t no_epoch = -1;
    bool has_producer = producer_id >= 0;
    *ret = (struct fq_append_result){.base_offset = -1, .end_offset = -1};
    int rc = take(p, where, has_producer ? producer_id : -1,
                  has_producer ? producer_epoch : no_epoch, ret, err);
    p->stats.refused += rc < 0;
    return rc;
}
