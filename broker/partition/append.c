/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a batch from a ring that its owner may be writing to at this very moment.
 *
 * Happy path: copy the 61 header bytes; what they say (length, producer, sequence) is checked on
 * the copy. Then, in one pass over the rest, each word is loaded once: stored into the copy,
 * checksummed, and, on memory, stored at its place in the log as well. From then on only the copy
 * is looked at: checksum and records are checked (PROTOCOL.md, "Record batch"), offset and epoch
 * stamped, and the header stored last; then index, epoch history and producer state follow. Until
 * its header is there and a tail word covers it, nothing in the log is a batch. Disks, and a batch
 * that needs a new segment, are written after the checks.
 *
 * A refused batch changes nothing: if some of it is in the log it is wiped. A batch that the medium
 * fails on takes the partition offline. Whatever is decided, ret->bytes says how far the ring may
 * be consumed: 0 only when the length itself cannot be believed.
 *
 * Thread: the shard. No allocation, no system call, no lock.
 */
#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "partition/incoming.h"

/* ---- bringing it in ---- */

/* Copies the header and believes its length if the bytes are there. The barrier keeps the compiler
 * from reading the ring a second time where the copy is meant. */
static int bring_header(struct fq_partition *p, const uint8_t *ring, uint64_t available,
                        struct fq_incoming *in, struct fq_append_result *ret, struct fq_err *err)
{
    if (available < FQ_BATCH_HEADER_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%llu bytes are no batch, its header has %d",
                          (unsigned long long)available, FQ_BATCH_HEADER_BYTES);
    }
    in->batch = p->host->scratch;
    memcpy(in->batch, ring, FQ_BATCH_HEADER_BYTES);
    __asm__ volatile("" : : "r"(in->batch) : "memory");
    int32_t length = (int32_t)fq_load_be32(in->batch + FQ_BATCH_LENGTH);
    uint64_t bytes = (uint64_t)(uint32_t)length + 12u;
    if (length < FQ_BATCH_HEADER_BYTES - 12 || bytes > available) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "batch length %d: at least %d, and at most %llu bytes can be there",
                          length, FQ_BATCH_HEADER_BYTES - 12, (unsigned long long)available);
    }
    ret->bytes = bytes;
    in->bytes = bytes;
    return 0;
}

static void begin_crc(struct fq_incoming *in)
{
    in->crc =
        fq_crc32c(0, in->batch + FQ_BATCH_ATTRIBUTES, FQ_BATCH_HEADER_BYTES - FQ_BATCH_ATTRIBUTES);
}

static void bring_body(struct fq_incoming *in, const uint8_t *ring)
{
    begin_crc(in);
    in->crc = fq_crc32c_copy(in->crc, in->batch + FQ_BATCH_HEADER_BYTES,
                             ring + FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES);
}

/* ---- storing it ---- */

/* Room at the log's end, and the batch's place in the numbering. */
static int reserve(struct fq_partition *p, struct fq_incoming *in, struct fq_err *err)
{
    int64_t base = fq_log_end(p->log);
    if (base > INT64_MAX - in->header.records_count) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "offsets are used up");
    }
    return fq_log_reserve(p->log, in->bytes, base, err);
}

static void stamp(struct fq_partition *p, struct fq_incoming *in)
{
    in->header.base_offset = fq_log_end(p->log);
    in->header.leader_epoch = p->leader_epoch;
    fq_batch_stamp(in->batch, in->header.base_offset, in->header.leader_epoch);
}

/* Checked first, then written. */
static int store_whole(struct fq_partition *p, struct fq_incoming *in, struct fq_append_result *ret,
                       struct fq_log_place *ret_place, struct fq_err *err)
{
    int rc = fq_incoming_check_content(p, in, ret, err);
    if (rc < 0) {
        return rc;
    }
    rc = reserve(p, in, err);
    if (rc != FQ_RESERVE_OK) {
        return rc;
    }
    stamp(p, in);
    rc = fq_log_write(p->log, in->batch, in->bytes);
    rc = rc < 0 ? rc : fq_log_commit_batch(p->log, &in->header, ret_place);
    return rc < 0 ? fq_incoming_medium_failed(p, rc, err) : 0;
}

/* Checked while it is written. */
static int store_streaming(struct fq_partition *p, const uint8_t *ring, struct fq_incoming *in,
                           struct fq_append_result *ret, struct fq_log_place *ret_place,
                           struct fq_err *err)
{
    int rc = reserve(p, in, err);
    if (rc != FQ_RESERVE_OK) {
        return rc;
    }
    begin_crc(in);
    rc = fq_log_stream(p->log, FQ_BATCH_HEADER_BYTES, in->batch + FQ_BATCH_HEADER_BYTES,
                       ring + FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES, &in->crc);
    if (rc < 0) {
        return fq_incoming_medium_failed(p, rc, err);
    }
    rc = fq_incoming_check_crc(in, err);
    rc = rc < 0 ? rc : fq_incoming_check_content(p, in, ret, err);
    if (rc < 0) {
        fq_log_abort_batch(p->log);
        return rc;
    }
    stamp(p, in);
    rc = fq_log_write_part(p->log, 0, in->batch, FQ_BATCH_HEADER_BYTES);
    rc = rc < 0 ? rc : fq_log_commit_batch(p->log, &in->header, ret_place);
    return rc < 0 ? fq_incoming_medium_failed(p, rc, err) : 0;
}

/* ---- the whole ---- */

/* What the header alone decides. */
static int look_at_header(struct fq_partition *p, const struct fq_incoming *in, int64_t producer_id,
                          int16_t producer_epoch, struct fq_producer **ret_producer,
                          struct fq_append_result *ret, struct fq_err *err)
{
    int rc = fq_incoming_check_fields(in, producer_id, producer_epoch, err);
    return rc < 0 ? rc : fq_incoming_check_sequence(p, in, ret_producer, ret, err);
}

static int take(struct fq_partition *p, const uint8_t *ring, struct fq_incoming *in,
                int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                struct fq_err *err)
{
    struct fq_producer *producer = NULL;
    struct fq_log_place place;
    int rc = look_at_header(p, in, producer_id, producer_epoch, &producer, ret, err);
    bool is_wanted = rc == 0 && !ret->duplicate;
    if (is_wanted && fq_log_may_stream(p->log, in->bytes)) {
        rc = store_streaming(p, ring, in, ret, &place, err);
    } else {
        /* Of a header that the checksum contradicts nothing is believed, least of all "duplicate".
         */
        bring_body(in, ring);
        if (fq_incoming_check_crc(in, err) < 0) {
            *ret =
                (struct fq_append_result){.bytes = in->bytes, .base_offset = -1, .end_offset = -1};
            return FLASHQ_ERR_CORRUPT;
        }
        if (!is_wanted) {
            p->stats.duplicates += rc == 0;
            return rc;
        }
        rc = store_whole(p, in, ret, &place, err);
    }
    if (rc == FQ_RESERVE_STARVED) {
        p->stats.starved++;
        ret->bytes = 0;
        return FQ_APPEND_STARVED;
    }
    if (rc < 0) {
        return rc;
    }
    fq_incoming_remember(p, in, &place, producer);
    ret->base_offset = in->header.base_offset;
    ret->end_offset = in->header.base_offset + in->header.records_count;
    return 0;
}

static int bring_and_take(struct fq_partition *p, const uint8_t *ring, uint64_t available,
                          int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                          struct fq_err *err)
{
    struct fq_incoming in = {.now_ms = p->host->wall_ms(p->host->context)};
    int rc = bring_header(p, ring, available, &in, ret, err);
    if (rc < 0) {
        return rc;
    }
    if (p->state == PARTITION_OFFLINE) {
        return fq_err_set(err, FLASHQ_ERR_OFFLINE, "%s", p->offline_why.text);
    }
    if (in.bytes > p->host->scratch_bytes) {
        return fq_incoming_too_large(ret, err, "batch", in.bytes, p->host->scratch_bytes);
    }
    rc = fq_batch_header_read(in.batch, FQ_BATCH_HEADER_BYTES, &in.header, err);
    return rc < 0 ? rc : take(p, ring, &in, producer_id, producer_epoch, ret, err);
}

int fq_partition_append(struct fq_partition *p, const uint8_t *ring, uint64_t available,
                        int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                        struct fq_err *err)
{
    *ret = (struct fq_append_result){.base_offset = -1, .end_offset = -1};
    static const int16_t no_epoch = -1;
    bool has_producer = producer_id >= 0;
    int rc = bring_and_take(p, ring, available, has_producer ? producer_id : -1,
                            has_producer ? producer_epoch : no_epoch, ret, err);
    p->stats.refused += rc < 0;
    return rc;
}
