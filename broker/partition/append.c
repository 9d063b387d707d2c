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
#include "partition/state.h"

#define REFUSED_ATTRIBUTES                                                                         \
    (FQ_BATCH_ATTR_LOG_APPEND_TIME | FQ_BATCH_ATTR_TRANSACTIONAL | FQ_BATCH_ATTR_CONTROL |         \
     FQ_BATCH_ATTR_DELETE_HORIZON)

struct incoming {
    uint8_t *batch; /* our own copy */
    uint64_t bytes;
    uint32_t crc; /* computed while copying */
    struct fq_batch_header header;
    int64_t min_timestamp, max_timestamp;
    int64_t now_ms;
};

/* ---- bringing it in ---- */

/* Copies the header and believes its length if the bytes are there. The barrier keeps the compiler
 * from reading the ring a second time where the copy is meant. */
static int bring_header(struct fq_partition *p, const uint8_t *ring, uint64_t available,
                        struct incoming *in, struct fq_append_result *ret, struct fq_err *err)
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

static void bring_body(struct incoming *in, const uint8_t *ring)
{
    in->crc =
        fq_crc32c(0, in->batch + FQ_BATCH_ATTRIBUTES, FQ_BATCH_HEADER_BYTES - FQ_BATCH_ATTRIBUTES);
    in->crc = fq_crc32c_copy(in->crc, in->batch + FQ_BATCH_HEADER_BYTES,
                             ring + FQ_BATCH_HEADER_BYTES, in->bytes - FQ_BATCH_HEADER_BYTES);
}

/* ---- checking the copy ---- */

/* What a client may not say, and what the checksum does not cover. */
static int check_header(const struct incoming *in, int64_t producer_id, int16_t producer_epoch,
                        struct fq_err *err)
{
    const struct fq_batch_header *h = &in->header;
    if (h->crc != in->crc) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "batch checksum %08x, its bytes have %08x",
                          h->crc, in->crc);
    }
    if (h->base_offset != 0 || h->leader_epoch != -1) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "base offset %lld and epoch %d: from a client they are 0 and -1",
                          (long long)h->base_offset, h->leader_epoch);
    }
    if ((h->attributes & REFUSED_ATTRIBUTES) != 0) {
        return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "batch attributes 0x%04x: not from a client",
                          (unsigned)(uint16_t)h->attributes);
    }
    if (h->producer_id != producer_id || h->producer_epoch != producer_epoch) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "batch of producer %lld epoch %d in the slot of producer %lld epoch %d",
                          (long long)h->producer_id, h->producer_epoch, (long long)producer_id,
                          producer_epoch);
    }
    if (producer_id < 0 ? h->base_sequence != -1 : h->base_sequence < 0) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "base sequence %d of producer %lld",
                          h->base_sequence, (long long)producer_id);
    }
    return 0;
}

/* Compares with what the producer has sent. *ret_producer is NULL for batches without one. */
static int check_sequence(struct fq_partition *p, const struct incoming *in,
                          struct fq_producer **ret_producer, struct fq_append_result *ret,
                          struct fq_err *err)
{
    const struct fq_batch_header *h = &in->header;
    *ret_producer = NULL;
    if (h->producer_id < 0) {
        return 0;
    }
    struct fq_producer *producer = fq_producers_find(&p->producers, h->producer_id);
    if (producer == NULL) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "producer %lld is not open",
                          (long long)h->producer_id);
    }
    if (h->producer_epoch != producer->epoch) {
        return fq_err_set(err, FLASHQ_ERR_FENCED, "producer epoch %d, the newest opened is %d",
                          h->producer_epoch, producer->epoch);
    }
    struct fq_producer_batch original;
    switch (fq_producer_check(producer, h->base_sequence, h->records_count, p->config.max_in_flight,
                              &original)) {
    case FQ_PRODUCER_NEXT: *ret_producer = producer; return 0;
    case FQ_PRODUCER_DUPLICATE:
        ret->duplicate = true;
        ret->base_offset = original.base_offset;
        ret->end_offset = original.base_offset + original.records_count;
        return 0;
    case FQ_PRODUCER_OUT_OF_ORDER: break;
    }
    ret->detail = producer->next_sequence;
    return fq_err_set(err, FLASHQ_ERR_SEQUENCE, "sequence %d of %d records, expected is %d",
                      h->base_sequence, h->records_count, producer->next_sequence);
}

static int too_large(struct fq_append_result *ret, struct fq_err *err, const char *what,
                     uint64_t bytes, uint64_t limit)
{
    ret->detail = (int64_t)limit;
    return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "%s of %llu bytes, the limit is %llu", what,
                      (unsigned long long)bytes, (unsigned long long)limit);
}

/* What the user gave: key, value, header names and values. */
static uint64_t record_bytes(const struct fq_record *record)
{
    uint64_t bytes = record->key.length + record->value.length;
    if (record->headers_count > 0) {
        struct fq_headers_iter headers;
        struct fq_header header;
        fq_headers_iter_init(&headers, record);
        while (fq_headers_next(&headers, &header) > 0) {
            bytes += header.name.length + header.value.length;
        }
    }
    return bytes;
}

/* message.max.bytes holds for each record. A batch that is no larger cannot contain one that is; of
 * a compressed one no more can be said than that n records of the largest size would not be larger.
 */
static int check_sizes(const struct fq_partition *p, const struct incoming *in,
                       struct fq_append_result *ret, struct fq_err *err)
{
    uint64_t record_max = p->config.message_max_bytes;
    if (in->bytes <= record_max) {
        return 0;
    }
    if (fq_batch_codec(&in->header) != FQ_CODEC_NONE) {
        uint64_t all_max =
            (record_max + FQ_LIMIT_RECORD_OVERHEAD_BYTES) * (uint64_t)in->header.records_count +
            FQ_LIMIT_BATCH_OVERHEAD_BYTES;
        return in->bytes <= all_max
                   ? 0
                   : too_large(ret, err, "compressed batch", in->bytes, record_max);
    }
    struct fq_batch_iter records;
    struct fq_record record;
    int rc = fq_batch_iter_init(&records, in->batch, in->bytes, NULL, err);
    while (rc == 0 && (rc = fq_batch_iter_next(&records, &record)) > 0) {
        uint64_t bytes = record_bytes(&record);
        rc = bytes <= record_max ? 0 : too_large(ret, err, "record", bytes, record_max);
    }
    return rc;
}

static int check_timestamps(const struct fq_partition *p, const struct incoming *in,
                            struct fq_append_result *ret, struct fq_err *err)
{
    int64_t ahead = p->config.timestamp_max_ahead_ms;
    int64_t latest = ahead < 0 || in->now_ms > INT64_MAX - ahead ? INT64_MAX : in->now_ms + ahead;
    if (in->min_timestamp < 0 || in->max_timestamp < 0) {
        int64_t worst =
            in->min_timestamp < in->max_timestamp ? in->min_timestamp : in->max_timestamp;
        ret->detail = latest;
        return fq_err_set(err, FLASHQ_ERR_TIMESTAMP, "timestamp %lld is negative",
                          (long long)worst);
    }
    if (in->max_timestamp > latest) {
        ret->detail = latest;
        return fq_err_set(err, FLASHQ_ERR_TIMESTAMP,
                          "timestamp %lld is more than %lld ms (timestamp.max.ahead) after the "
                          "broker's clock",
                          (long long)in->max_timestamp, (long long)ahead);
    }
    if (in->max_timestamp < in->min_timestamp) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "maximum timestamp %lld is below the first %lld",
                          (long long)in->max_timestamp, (long long)in->min_timestamp);
    }
    return 0;
}

static int check_content(const struct fq_partition *p, struct incoming *in,
                         struct fq_append_result *ret, struct fq_err *err)
{
    int rc =
        fq_batch_check_records(in->batch, in->bytes, &in->min_timestamp, &in->max_timestamp, err);
    if (rc == 0) {
        rc = check_timestamps(p, in, ret, err);
    }
    if (rc == 0) {
        rc = check_sizes(p, in, ret, err);
    }
    return rc;
}

/* ---- storing it ---- */

/* The log is offline now, and nobody can say whether a restart will find the batch. */
static int medium_failed(struct fq_partition *p, int code, struct fq_err *err)
{
    struct fq_err why;
    fq_err_set(&why, code, "writing a batch: %s", fq_err_describe(code));
    (void)fq_log_is_offline(p->log, &why);
    fq_partition_go_offline(p, &why);
    return fq_err_set(err, FLASHQ_ERR_MAYBE_PERSISTED, "%s", why.text);
}

static int store(struct fq_partition *p, struct incoming *in, struct fq_log_place *ret_place,
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
    return rc < 0 ? medium_failed(p, rc, err) : 0;
}

static void remember(struct fq_partition *p, const struct incoming *in,
                     const struct fq_log_place *place, struct fq_producer *producer)
{
    const struct fq_batch_header *h = &in->header;
    int64_t segment_base = fq_segment_base_offset(place->segment);
    fq_chunks_add(p->chunks, segment_base, h->base_offset, place->position, in->bytes,
                  in->min_timestamp, in->max_timestamp);
    if (place->position == 0) {
        p->index_wanted = true; /* a new segment: the one before it is sealed */
    }
    fq_epochs_assign(&p->epochs, h->leader_epoch, h->base_offset);
    if (producer != NULL) {
        fq_producer_appended(producer, h->base_sequence, h->records_count, h->base_offset,
                             in->now_ms);
    }
    p->stats.batches++;
    p->stats.records += (uint64_t)h->records_count;
    p->stats.bytes += in->bytes;
    p->snapshot_lag_bytes += in->bytes;
}

/* ---- the whole ---- */

static int take(struct fq_partition *p, struct incoming *in, struct fq_append_result *ret,
                struct fq_err *err)
{
    struct fq_producer *producer;
    int rc = check_sequence(p, in, &producer, ret, err);
    if (rc < 0 || ret->duplicate) {
        p->stats.duplicates += ret->duplicate;
        return rc;
    }
    rc = check_content(p, in, ret, err);
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
    remember(p, in, &place, producer);
    ret->base_offset = in->header.base_offset;
    ret->end_offset = in->header.base_offset + in->header.records_count;
    return 0;
}

static int bring_and_take(struct fq_partition *p, const uint8_t *ring, uint64_t available,
                          int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                          struct fq_err *err)
{
    struct incoming in = {.now_ms = p->host->wall_ms(p->host->context)};
    int rc = bring_header(p, ring, available, &in, ret, err);
    if (rc < 0) {
        return rc;
    }
    if (p->state == PARTITION_OFFLINE) {
        return fq_err_set(err, FLASHQ_ERR_OFFLINE, "%s", p->offline_why.text);
    }
    if (in.bytes > p->host->scratch_bytes) {
        return too_large(ret, err, "batch", in.bytes, p->host->scratch_bytes);
    }
    rc = fq_batch_header_read(in.batch, FQ_BATCH_HEADER_BYTES, &in.header, err);
    if (rc < 0) {
        return rc;
    }
    bring_body(&in, ring);
    rc = check_header(&in, producer_id, producer_epoch, err);
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
