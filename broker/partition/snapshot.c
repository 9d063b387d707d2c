/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot codec. Its input is a value from a pool that may be damaged in any way: the checksum is
 * looked at first, and every count against the bytes left all the same.
 */
#include "partition/snapshot.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/limits.h"

#define MAGIC          UINT32_C(0x4e535146) /* "FQSN" */
#define VERSION        1u
#define HEAD_BYTES     24u
#define EPOCH_BYTES    12u
#define PRODUCER_BYTES 32u
#define BATCH_BYTES    16u
#define CRC_BYTES      4u

size_t fq_snapshot_bytes(const struct fq_producers *producers, const struct fq_epochs *epochs)
{
    size_t bytes = HEAD_BYTES + epochs->count * EPOCH_BYTES + CRC_BYTES;
    for (struct fq_producer *p = NULL; (p = fq_producers_next(producers, p)) != NULL;) {
        bytes += PRODUCER_BYTES + p->batches_count * BATCH_BYTES;
    }
    return bytes;
}

static void write_producer(struct fq_writer *w, const struct fq_producer *producer)
{
    fq_write_u64(w, (uint64_t)producer->id);
    fq_write_u64(w, (uint64_t)producer->last_offset);
    fq_write_u64(w, (uint64_t)producer->used_ms);
    fq_write_u32(w, (uint32_t)producer->next_sequence);
    fq_write_u16(w, (uint16_t)producer->epoch);
    fq_write_u16(w, producer->batches_count);
    unsigned capacity = producer->batches_capacity;
    unsigned at = producer->batches_next + capacity - producer->batches_count;
    for (unsigned i = 0; i < producer->batches_count; i++) {
        const struct fq_producer_batch *batch = &producer->batches[(at + i) % capacity];
        fq_write_u64(w, (uint64_t)batch->base_offset);
        fq_write_u32(w, (uint32_t)batch->base_sequence);
        fq_write_u32(w, (uint32_t)batch->records_count);
    }
}

int64_t fq_snapshot_encode(int64_t offset, const struct fq_producers *producers,
                           const struct fq_epochs *epochs, void *out, size_t out_bytes)
{
    struct fq_writer w;
    fq_writer_init(&w, out, out_bytes);
    fq_write_u32(&w, MAGIC);
    fq_write_u16(&w, VERSION);
    fq_write_u16(&w, 0);
    fq_write_u64(&w, (uint64_t)offset);
    fq_write_u32(&w, (uint32_t)epochs->count);
    fq_write_u32(&w, (uint32_t)producers->count);
    for (size_t i = 0; i < epochs->count; i++) {
        fq_write_u32(&w, (uint32_t)epochs->entries[i].epoch);
        fq_write_u64(&w, (uint64_t)epochs->entries[i].start_offset);
    }
    for (struct fq_producer *p = NULL; (p = fq_producers_next(producers, p)) != NULL;) {
        write_producer(&w, p);
    }
    fq_write_u32(&w, w.failed ? 0 : fq_crc32c(0, w.start, fq_writer_used(&w)));
    return w.failed ? FLASHQ_ERR_TOO_LARGE : (int64_t)fq_writer_used(&w);
}

static int read_epochs(struct fq_reader *r, uint32_t count, int64_t end, struct fq_epochs *epochs)
{
    for (uint32_t i = 0; i < count; i++) {
        int32_t epoch = (int32_t)fq_read_u32(r);
        int64_t start = (int64_t)fq_read_u64(r);
        const struct fq_epoch *last =
            epochs->count > 0 ? &epochs->entries[epochs->count - 1] : NULL;
        if (r->failed || epoch < 0 || start < 0 || start >= end ||
            (last != NULL && (epoch <= last->epoch || start <= last->start_offset))) {
            return FLASHQ_ERR_CORRUPT;
        }
        int rc = fq_epochs_reserve(epochs);
        if (rc < 0) {
            return rc;
        }
        fq_epochs_assign(epochs, epoch, start);
    }
    return 0;
}

/* The batches of one producer: their sequences follow each other, their offsets rise. */
static int read_batches(struct fq_reader *r, unsigned count, int64_t end,
                        struct fq_producer *producer)
{
    for (unsigned i = 0; i < count; i++) {
        int64_t base_offset = (int64_t)fq_read_u64(r);
        int32_t base_sequence = (int32_t)fq_read_u32(r);
        int32_t records = (int32_t)fq_read_u32(r);
        if (r->failed || base_sequence < 0 || records < 1 || base_offset <= producer->last_offset ||
            base_offset > end - records) {
            return FLASHQ_ERR_CORRUPT;
        }
        fq_producer_appended(producer, base_sequence, records, base_offset, producer->used_ms);
    }
    return 0;
}

static int read_producer(struct fq_reader *r, unsigned batches, int64_t now_ms, int64_t end,
                         struct fq_producers *producers)
{
    int64_t id = (int64_t)fq_read_u64(r);
    int64_t last_offset = (int64_t)fq_read_u64(r);
    int64_t used_ms = (int64_t)fq_read_u64(r);
    int32_t next_sequence = (int32_t)fq_read_u32(r);
    int16_t epoch = (int16_t)fq_read_u16(r);
    unsigned count = fq_read_u16(r);
    if (r->failed || id < 0 || epoch < 0 || next_sequence < 0 || count > FQ_LIMIT_MAX_IN_FLIGHT ||
        fq_producers_find(producers, id) != NULL) {
        return FLASHQ_ERR_CORRUPT;
    }
    struct fq_producer *producer;
    int rc = fq_producers_ensure(producers, id, count > batches ? count : batches, &producer);
    if (rc < 0) {
        return rc;
    }
    producer->epoch = epoch;
    producer->used_ms = used_ms < now_ms ? used_ms : now_ms;
    rc = read_batches(r, count, end, producer);
    if (rc < 0) {
        return rc;
    }
    if (producer->last_offset != last_offset ||
        (count > 0 && producer->next_sequence != next_sequence)) {
        return FLASHQ_ERR_CORRUPT;
    }
    producer->next_sequence = next_sequence;
    return 0;
}

static int read_all(struct fq_reader *r, unsigned batches, int64_t now_ms, int64_t *ret_offset,
                    struct fq_producers *producers, struct fq_epochs *epochs)
{
    int64_t offset = (int64_t)fq_read_u64(r);
    uint32_t epochs_count = fq_read_u32(r);
    uint32_t producers_count = fq_read_u32(r);
    if (r->failed || offset < 0 || epochs_count > fq_reader_left(r) / EPOCH_BYTES ||
        producers_count > fq_reader_left(r) / PRODUCER_BYTES) {
        return FLASHQ_ERR_CORRUPT;
    }
    int rc = read_epochs(r, epochs_count, offset, epochs);
    for (uint32_t i = 0; rc == 0 && i < producers_count; i++) {
        rc = read_producer(r, batches, now_ms, offset, producers);
    }
    if (rc == 0 && fq_reader_left(r) != 0) {
        rc = FLASHQ_ERR_CORRUPT;
    }
    if (rc == 0) {
        *ret_offset = offset;
    }
    return rc;
}

int fq_snapshot_decode(const void *bytes, size_t length, unsigned batches, int64_t now_ms,
                       int64_t *ret_offset, struct fq_producers *producers,
                       struct fq_epochs *epochs, struct fq_err *err)
{
    if (length < HEAD_BYTES + CRC_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "snapshot of %zu bytes", length);
    }
    const uint8_t *at = bytes;
    size_t body = length - CRC_BYTES;
    uint32_t stored = fq_load_le32(at + body), computed = fq_crc32c(0, at, body);
    if (stored != computed) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "snapshot: checksum %08x, computed %08x", stored,
                          computed);
    }
    struct fq_reader r;
    fq_reader_init(&r, bytes, body);
    if (fq_read_u32(&r) != MAGIC) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "snapshot: wrong magic");
    }
    unsigned version = fq_read_u16(&r);
    (void)fq_read_u16(&r);
    if (version != VERSION) {
        return fq_err_set(err, FLASHQ_ERR_VERSION, "snapshot: version %u, known is %u", version,
                          VERSION);
    }
    size_t limit = producers->limit;
    int rc = read_all(&r, batches, now_ms, ret_offset, producers, epochs);
    if (rc < 0) {
        fq_producers_fini(producers);
        fq_producers_init(producers, limit);
        fq_epochs_fini(epochs);
        return fq_err_set(err, rc, "snapshot: %s", fq_err_describe(rc));
    }
    return 0;
}
