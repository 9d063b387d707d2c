/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of whatever a segment file may hold. Input: byte 0 flags, then either the whole file
 * (flag 1) or edits of a sound one, each {u16 position, u8 length, bytes}. Flag 2: memory instead
 * of disk; 4: the identity's CRC is made right again after the edits; 8: a second, sound segment
 * follows; 16: the file is called next-*.log. Whatever it is: opening does not crash, offsets are
 * in order, batches have right CRCs, recovering again gives the same log, and what is appended
 * afterwards is there.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "log_maker.h"
#include "persist_recording.h"
#include "storage/layout.h"
#include "storage/offline.h"

#define SEGMENT_BYTES (8u << 10)
#define SECOND_BASE   6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sound[2][SEGMENT_BYTES]; /* bases 0 and SECOND_BASE */
static const struct fq_uuid topic_id = {{0xfe}};

static void make_sound(uint8_t *image, int64_t base)
{
    const struct fq_segment_identity identity = {.topic_id = topic_id,
                                                 .base_offset = base,
                                                 .file_bytes = SEGMENT_BYTES,
                                                 .life = 77,
                                                 .first_retention_ms = -1};
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    uint64_t position = 0;
    int64_t offset = base;
    fq_identity_encode(&identity, image);
    fq_store_le64(image + FQ_SEG_STATE, fq_state_word(FQ_SEGMENT_OPEN));
    for (int records = 1; records <= 3; records++) {
        size_t length = log_maker_batch(batch, offset, 0, records, 30, 1);
        memcpy(image + FQ_SEG_DATA + position, batch, length);
        position += length;
        offset += records;
    }
    fq_store_le64(image + FQ_SEG_TAIL, fq_word_make(&identity, FQ_WORD_TAIL, position));
    fq_store_le64(image + FQ_SEG_END,
                  fq_word_make(&identity, FQ_WORD_END, (uint64_t)(offset - base)));
}

static void edit(uint8_t *image, const uint8_t *data, size_t size)
{
    struct fq_reader r;
    fq_reader_init(&r, data, size);
    while (!r.failed && fq_reader_left(&r) > 0) {
        uint16_t position = fq_read_u16(&r);
        size_t length = fq_read_u8(&r);
        length = length < fq_reader_left(&r) ? length : fq_reader_left(&r);
        const uint8_t *bytes = fq_read_bytes(&r, length);
        if (bytes && position < SEGMENT_BYTES && length <= SEGMENT_BYTES - position) {
            memcpy(image + position, bytes, length);
        }
    }
}

static void put(const char *folder, const char *name, const uint8_t *bytes, size_t length)
{
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || (length > 0 && write(fd, bytes, length) != (ssize_t)length)) {
        abort();
    }
    (void)close(fd);
}

struct scan {
    int64_t next;
    uint64_t batches;
};

static int see(void *context, const struct fq_batch_header *header, const uint8_t *batch,
               uint64_t segment_base, uint64_t position)
{
    struct scan *scan = context;
    (void)segment_base;
    (void)position;
    assert(header->base_offset >= scan->next);
    assert(fq_batch_crc_ok(batch, fq_batch_total_bytes(header)));
    scan->next = header->base_offset + header->last_offset_delta + 1;
    scan->batches++;
    return 0;
}

static int ignore_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                        uint64_t position)
{
    (void)header;
    (void)position;
    *(uint8_t *)context ^= batch[0];
    return 0;
}

static struct fq_store *open_store(const char *folder, struct fq_persist *persist)
{
    struct fq_store *store = NULL;
    const struct fq_store_params params = {.data_dir = folder,
                                           .segment_bytes_max = SEGMENT_BYTES,
                                           .segment_bytes_first = SEGMENT_BYTES,
                                           .batch_bytes_max = 1024,
                                           .persist = persist};
    if (fq_store_open(&params, &store, NULL) < 0) {
        abort();
    }
    return store;
}

static struct fq_log *open_log(struct fq_store *store)
{
    struct fq_log *log = NULL;
    const struct fq_log_params params = {
        .topic_id = topic_id, .topic = "f", .segment_bytes = SEGMENT_BYTES};
    return fq_log_open(store, &params, NULL, NULL, &log, NULL) == 0 ? log : NULL;
}

static void recover(const char *folder, struct fq_persist *persist)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct scan first = {0}, second = {0};
    struct fq_store *store = open_store(folder, persist);
    struct fq_log *log = open_log(store);
    if (!log) { /* another media version */
        fq_store_close(store, true);
        return;
    }
    int64_t start = fq_log_start(log), end = fq_log_end(log);
    assert(start <= end && start >= 0);
    (void)fq_log_scan(log, start, INT64_MAX, see, &first);
    assert(first.next <= end);
    fq_log_close(log, false);
    log = open_log(store);
    assert(log && fq_log_start(log) == start && fq_log_end(log) == end);
    (void)fq_log_scan(log, start, INT64_MAX, see, &second);
    assert(second.batches == first.batches && second.next == first.next);
    if (end < INT64_MAX / 2) {
        struct fq_log_place place;
        size_t length = log_maker_batch(batch, end, INT32_MAX, 1, 10, 5);
        if (log_maker_append(store, log, batch, length) == 0) {
            assert(log_maker_settle(store, log) == 0);
            fq_log_close(log, false);
            log = open_log(store);
            assert(log && fq_log_end(log) == end + 1);
            assert(fq_log_find(log, end, &place) == 0);
        }
    }
    fq_log_close(log, true);
    fq_store_close(store, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fq_persist *persists[2];
    if (!persists[0]) {
        persists[0] = recording_plain_create(RECORDING_DISK);
        persists[1] = recording_plain_create(RECORDING_MEMORY);
        make_sound(sound[0], 0);
        make_sound(sound[1], SECOND_BASE);
    }
    if (size == 0) {
        return 0;
    }
    uint8_t flags = data[0], image[SEGMENT_BYTES], sum = 0;
    size_t length = SEGMENT_BYTES;
    if (flags & 1) {
        length = size - 1 < SEGMENT_BYTES ? size - 1 : SEGMENT_BYTES;
        memcpy(image, data + 1, length);
    } else {
        memcpy(image, sound[0], sizeof image);
        edit(image, data + 1, size - 1);
        if (flags & 4) {
            fq_store_le32(image + FQ_SEG_IDENTITY_CRC, fq_crc32c(0, image, FQ_SEG_IDENTITY_CRC));
        }
    }
    char *folder = log_maker_folder(), path[4300];
    const char *const parts[] = {"f-fe000000000000000000000000000000",
                                 "f-fe000000000000000000000000000000/0"};
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        if (mkdir(path, 0700) < 0) {
            abort();
        }
    }
    put(path, flags & 16 ? "next-0000000000000001.log" : "00000000000000000000.log", image, length);
    if (flags & 8) {
        put(path, "00000000000000000006.log", sound[1], SEGMENT_BYTES);
    }
    const struct fq_offline_visitor visitor = {.batch = ignore_batch, .context = &sum};
    (void)fq_offline_walk(path, &visitor, NULL);
    recover(folder, persists[flags & 2 ? 1 : 0]);
    log_maker_remove_tree(folder);
    free(folder);
    return 0;
}
