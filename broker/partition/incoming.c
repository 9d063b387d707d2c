/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked of a batch, and what follows from one that was appended; see incoming.h. */
#include "partition/incoming.h"

#define REFUSED_ATTRIBUTES                                                                         \
    (FQ_BATCH_ATTR_LOG_APPEND_TIME | FQ_BATCH_ATTR_TRANSACTIONAL | FQ_BATCH_ATTR_CONTROL |         \
     FQ_BATCH_ATTR_DELETE_HORIZON)

/* ---- what the batch says ---- */

int fq_incoming_check_crc(const struct fq_incoming *in, struct fq_err *err)
{
    return in->header.crc == in->crc
               ? 0
               : fq_err_set(err, FLASHQ_ERR_CORRUPT, "batch checksum %08x, its bytes have %08x",
                            in->header.crc, in->crc);
}

int fq_incoming_check_fields(const struct fq_incoming *in, int64_t producer_id,
                             int16_t producer_epoch, struct fq_err *err)
{
    const struct fq_batch_header *h = &in->header;
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

int fq_incoming_check_header(const struct fq_incoming *in, int64_t producer_id,
                             int16_t producer_epoch, struct fq_err *err)
{
    int rc = fq_incoming_check_crc(in, err);
    return rc < 0 ? rc : fq_incoming_check_fields(in, producer_id, producer_epoch, err);
}

/* Compares with what the producer has sent. *ret_producer is NULL for batches without one. */
int fq_incoming_check_sequence(struct fq_partition *p, const struct fq_incoming *in,
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

int fq_incoming_too_large(struct fq_append_result *ret, struct fq_err *err, const char *what,
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
static int check_sizes(const struct fq_partition *p, const struct fq_incoming *in,
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
                   : fq_incoming_too_large(ret, err, "compressed batch", in->bytes, record_max);
    }
    struct fq_batch_iter records;
    struct fq_record record;
    int rc = fq_batch_iter_init(&records, in->batch, in->bytes, NULL, err);
    while (rc == 0 && (rc = fq_batch_iter_next(&records, &record)) > 0) {
        uint64_t bytes = record_bytes(&record);
        rc = bytes <= record_max ? 0 : fq_incoming_too_large(ret, err, "record", bytes, record_max);
    }
    return rc;
}

static int check_timestamps(const struct fq_partition *p, const struct fq_incoming *in,
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

int fq_incoming_check_content(const struct fq_partition *p, struct fq_incoming *in,
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

/* ---- what becomes of it ---- */

/* The log is offline now, and nobody can say whether a restart will find the batch. */
int fq_incoming_medium_failed(struct fq_partition *p, int code, struct fq_err *err)
{
    struct fq_err why;
    fq_err_set(&why, code, "writing a batch: %s", fq_err_describe(code));
    (void)fq_log_is_offline(p->log, &why);
    fq_partition_go_offline(p, &why);
    return fq_err_set(err, FLASHQ_ERR_MAYBE_PERSISTED, "%s", why.text);
}

void fq_incoming_remember(struct fq_partition *p, const struct fq_incoming *in,
                          const struct fq_log_place *place, struct fq_producer *producer)
{
    const struct fq_batch_header *h = &in->header;
    int64_t segment_base = fq_segment_base_offset(place->segment);
    fq_chunks_add(p->chunks, segment_base, h->base_offset, place->position, in->bytes,
                  in->min_timestamp, in->max_timestamp);
    if (place->position == 0) {
        p->index_wanted = true; /* a new segment: the one before it is sealed */
        p->is_retention_due = true;
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
