/* SPDX-License-Identifier: Apache-2.0 */
#include "log_maker.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "persist_recording.h"
#include "storage/segment.h"
#include "wire/record_batch.h"

static int64_t house_now_us = 1;

size_t log_maker_batch(uint8_t *out, int64_t base_offset, int32_t epoch, int records,
                       size_t value_bytes, uint64_t salt)
{
    struct fq_batch_builder builder;
    uint8_t value[4096];
    struct fq_prng prng;
    fq_prng_seed(&prng, salt * 1000003u + (uint64_t)base_offset);
    fq_batch_builder_init(&builder, out, LOG_MAKER_BATCH_MAX);
    for (int i = 0; i < records; i++) {
        for (size_t b = 0; b < value_bytes && b < sizeof value; b++) {
            value[b] = (uint8_t)fq_prng_next(&prng);
        }
        const struct fq_record_in record = {.timestamp_ms = 1000000 + base_offset + i,
                                            .value = {value, value_bytes}};
        if (fq_batch_builder_append(&builder, &record) < 0) {
            abort();
        }
    }
    const struct fq_batch_finish finish = {
        .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    int64_t length = fq_batch_builder_finish(&builder, &finish);
    if (length <= 0) {
        abort();
    }
    fq_batch_stamp(out, base_offset, epoch);
    return (size_t)length;
}

int log_maker_append(struct fq_store *store, struct fq_log *log, const uint8_t *batch,
                     size_t length)
{
    struct fq_batch_header header;
    struct fq_err err;
    int r = fq_batch_header_read(batch, length, &header, NULL);
    if (r < 0) {
        return r;
    }
    for (int tries = 0; tries < 100; tries++) {
        r = fq_log_reserve(log, length, header.base_offset, &err);
        if (r != FQ_RESERVE_STARVED) {
            break;
        }
        (void)fq_store_flush_step(store);
        (void)fq_store_step(store, house_now_us++);
    }
    if (r != FQ_RESERVE_OK) {
        return r;
    }
    r = fq_log_write(log, batch, length);
    return r < 0 ? r : fq_log_commit_batch(log, &header, NULL);
}

int log_maker_stream(struct fq_store *store, struct fq_log *log, const uint8_t *batch,
                     size_t length, struct fq_prng *prng, bool is_refused)
{
    static uint8_t copied[LOG_MAKER_BATCH_MAX];
    struct fq_batch_header header;
    struct fq_err err;
    int r = fq_batch_header_read(batch, length, &header, NULL);
    if (r < 0 || !fq_log_may_stream(log, length)) {
        return r < 0 || is_refused ? r : log_maker_append(store, log, batch, length);
    }
    r = fq_log_reserve(log, length, header.base_offset, &err);
    uint32_t crc =
        fq_crc32c(0, batch + FQ_BATCH_ATTRIBUTES, FQ_BATCH_HEADER_BYTES - FQ_BATCH_ATTRIBUTES);
    size_t at = FQ_BATCH_HEADER_BYTES;
    size_t stop = is_refused ? at + fq_prng_below(prng, length - at + 1) : length;
    while (r == 0 && at < stop) {
        size_t piece = 1 + fq_prng_below(prng, stop - at);
        r = fq_log_stream(log, at, copied + at, batch + at, piece, &crc);
        at += piece;
    }
    if (is_refused) {
        fq_log_abort_batch(log);
        return r;
    }
    bool is_whole =
        crc == header.crc && memcmp(copied + FQ_BATCH_HEADER_BYTES, batch + FQ_BATCH_HEADER_BYTES,
                                    length - FQ_BATCH_HEADER_BYTES) == 0;
    r = r < 0 || is_whole ? r : FLASHQ_ERR_CORRUPT;
    r = r < 0 ? r : fq_log_write_part(log, 0, batch, FQ_BATCH_HEADER_BYTES);
    return r < 0 ? r : fq_log_commit_batch(log, &header, NULL);
}

void log_maker_peer_store(struct fq_segment *segment, uint64_t position, const uint8_t *batch,
                          size_t length, bool is_stamped)
{
    static uint8_t bytes[LOG_MAKER_BATCH_MAX];
    memcpy(bytes, batch, length);
    if (!is_stamped) {
        fq_batch_stamp(bytes, 0, -1);
    }
    recording_peer_store(&segment->file->pf, FQ_SEG_DATA + position, bytes, length);
}

int log_maker_take_in_place(struct fq_log *log, const uint8_t *batch, size_t length)
{
    struct fq_batch_header header;
    struct fq_err err;
    int r = fq_batch_header_read(batch, length, &header, &err);
    r = r < 0 ? r : fq_log_reserve_in_place(log, length, &err);
    r = r < 0 ? r : fq_log_write_back(log, FQ_BATCH_HEADER_BYTES, length - FQ_BATCH_HEADER_BYTES);
    r = r < 0 ? r : fq_log_write_part(log, 0, batch, FQ_BATCH_HEADER_BYTES);
    return r < 0 ? r : fq_log_commit_batch(log, &header, NULL);
}

int log_maker_lend(struct fq_store *store, struct fq_log *log, bool is_next,
                   struct fq_log_loan *ret)
{
    struct fq_err err;
    int r = FQ_RESERVE_STARVED;
    for (int tries = 0; tries < 100 && r == FQ_RESERVE_STARVED; tries++) {
        r = is_next ? fq_log_lend_next(log, ret, &err) : fq_log_lend(log, ret, &err);
        (void)fq_store_step(store, house_now_us++);
    }
    return r;
}

int log_maker_settle(struct fq_store *store, struct fq_log *log)
{
    int r = fq_log_publish(log);
    while (r == 0 && fq_log_durable_end(log) < fq_log_end(log) && !fq_log_is_offline(log, NULL)) {
        if (fq_store_flush_step(store) == 0) {
            return FLASHQ_ERR_FAILED;
        }
    }
    return r;
}

void log_maker_keep_house(struct fq_store *store)
{
    while (fq_store_step(store, house_now_us++) > 0) {
    }
}

char *log_maker_folder(void)
{
    const char *parent = getenv("TMPDIR");
    char *path = malloc(4096);
    if (path) {
        (void)snprintf(path, 4096, "%s/flashq-test-XXXXXX", parent ? parent : "/dev/shm");
    }
    return path && mkdtemp(path) ? path : NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void log_maker_remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
