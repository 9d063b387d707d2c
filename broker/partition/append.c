/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a batch from a ring that its owner may be writing to at this very moment.
 *
 * Happy path: copy the 61 header bytes, take the length from the copy, copy the rest while
 * computing the checksum of what was stored; from then on only the copy is looked at. Check it
 * (PROTOCOL.md, "Record batch"), compare its sequence with the producer's, stamp offset and epoch,
 * and hand it to the log; then index, epoch history and producer state follow.
 *
 * A refused batch changes nothing. A batch that the medium fails on takes the partition offline.
 * Whatever is decided, ret->bytes says how far the ring may be consumed: 0 only when the length
 * itself cannot be believed.
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

static void bring_body(struct fq_incoming *in, const uint8_t *ring)
{
    in->crc =
        fq_crc32c(0, in->batch + FQ_BATCH_ATTRIBUTES, FQ_BATCH_HEADER_BYTES - FQ_BATCH_ATTRIBUTES);
    in->crc = fq_crc32c_copy(in->crc, in->batch + FQ_BATCH_HEADER_BYTES,
                             ring + FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES);
}

/* ---- storing it ---- */

static int store(struct fq_partition *p, struct fq_incoming *in, struct fq_log_place *ret_place,
                 struct fq_err *err)
{
    int64_t base = fq_log_end(p->log);
    if (base > INT64_MAX - in->header.records_count) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "offsets are used up");
    }
    int rc = fq_log_reserve(p->log, in->bytes, base, err);
    if (rc != FQ_RESERVE_OK) {
        return rc;
    }
    fq_batch_stamp(in->batch, base, p->leader_epoch);
    in->header.base_offset = base;
    in->header.leader_epoch = p->leader_epoch;
    rc = fq_log_write(p->log, in->batch, in->bytes);
    if (rc == 0) {
        rc = fq_log_commit_batch(p->log, &in->header, ret_place);
    }
    return rc < 0 ? fq_incoming_medium_failed(p, rc, err) : 0;
}

/* ---- the whole ---- */

static int take(struct fq_partition *p, struct fq_incoming *in, struct fq_append_result *ret,
                struct fq_err *err)
{
    struct fq_producer *producer;
    int rc = fq_incoming_check_sequence(p, in, &producer, ret, err);
    if (rc < 0 || ret->duplicate) {
        p->stats.duplicates += ret->duplicate;
        return rc;
    }
    rc = fq_incoming_check_content(p, in, ret, err);
    if (rc < 0) {
        return rc;
    }
    struct fq_log_place place;
    rc = store(p, in, &place, err);
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
    if (rc < 0) {
        return rc;
    }
    bring_body(&in, ring);
    rc = fq_incoming_check_header(&in, producer_id, producer_epoch, err);
    return rc < 0 ? rc : take(p, &in, ret, err);
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
