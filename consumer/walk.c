/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to records: opens the next batch of a reader's chunk, after checking everything that can be
 * checked, and walks its records. The bytes may lie in memory that the broker still writes, so each is used
 * as it was read once, and nothing follows a length that was not compared with what is there.
 * Thread: any, under the client's lock.
 */
#include <string.h>

#include "base/bytes.h"
#include "consumer/consumer.h"
#include "consumer/reader.h"

/* How many bytes the next fetch must bring for the batch that begins at `at` to be whole. */
static size_t bytes_wanted(const uint8_t *at, size_t left)
{
    if (left < FQ_BATCH_LENGTH + 4) {
        return FQ_BATCH_HEADER_BYTES;
    }
    return (size_t)fq_load_be32(at + FQ_BATCH_LENGTH) + 12;
}

static int check_header(const struct fq_pread *reader, const struct fq_batch_header *header)
{
    if (header->base_offset != reader->next_offset || header->leader_epoch < reader->last_epoch ||
        header->leader_epoch > reader->view.leader_epoch ||
        header->base_offset > reader->high_watermark - header->records_count) {
        return FLASHQ_ERR_CORRUPT;
    }
    return 0;
}

static int open_records(struct fq_pread *reader, const struct fq_batch_header *header,
                        const uint8_t *at, size_t total)
{
    struct fq_scratch *scratch = NULL;
    if (fq_batch_codec(header) != FQ_CODEC_NONE) {
        scratch = fq_buffers_scratch(&reader->consumer->buffers);
        if (!scratch) {
            return FLASHQ_ERR_NO_MEMORY;
        }
    }
    int code =
        fq_batch_iter_init(&reader->iter, at, total, scratch ? &scratch->scratch : NULL, NULL);
    if (code != 0) {
        fq_source_unref(scratch ? &scratch->source : NULL);
        return code == FLASHQ_ERR_NO_MEMORY ? code : FLASHQ_ERR_CORRUPT;
    }
    reader->batch_source = scratch ? &scratch->source : fq_source_ref(reader->chunk.source);
    return 0;
}

int fq_walk_open_batch(struct fq_pread *reader)
{
    struct fq_chunk *chunk = &reader->chunk;
    const uint8_t *at = chunk->data + chunk->used;
    size_t left = chunk->length - chunk->used;
    uint64_t below_limit = reader->limit_position - reader->next_position;
    struct fq_batch_header header;
    if (left == 0) {
        return 0;
    }
    size_t wanted = bytes_wanted(at, left);
    if (wanted > below_limit || wanted < FQ_BATCH_HEADER_BYTES || wanted > FQ_LIMIT_BATCH_BYTES) {
        return FLASHQ_ERR_CORRUPT; /* below the committed position every batch is whole */
    }
    if (wanted > left) {
        reader->want_bytes = wanted;
        return 0;
    }
    int code = fq_batch_header_read(at, left, &header, NULL);
    if (code != 0 || fq_batch_total_bytes(&header) != wanted) {
        return FLASHQ_ERR_CORRUPT;
    }
    code = check_header(reader, &header);
    if (code == 0 && reader->consumer->engine->config.verify_crc && !fq_batch_crc_ok(at, wanted)) {
        code = FLASHQ_ERR_CORRUPT;
    }
    if (code == 0) {
        code = open_records(reader, &header, at, wanted);
    }
    if (code != 0) {
        return code;
    }
    chunk->used += wanted;
    reader->batch_position = reader->next_position;
    reader->want_bytes = 0;
    if (!reader->consumer->engine->config.fetch_prefetch) {
        reader->guess_bytes = wanted; /* the next is likely as large */
    }
    reader->next_position += wanted;
    reader->next_offset = header.base_offset + header.records_count;
    reader->last_epoch = header.leader_epoch;
    reader->doubts = 0;
    reader->is_sequential = false;
    reader->has_batch = true;
    reader->is_pinned = false;
    return 1;
}

void fq_walk_cut_to_one(struct fq_chunk *chunk)
{
    size_t wanted = bytes_wanted(chunk->data, chunk->length);
    if (wanted >= FQ_BATCH_HEADER_BYTES && wanted < chunk->length) {
        chunk->length = wanted;
    }
}

size_t fq_walk_whole_bytes(const struct fq_chunk *chunk, size_t *ret_wanted)
{
    size_t at = chunk->used;
    *ret_wanted = 0;
    while (at < chunk->length) {
        size_t left = chunk->length - at, wanted = bytes_wanted(chunk->data + at, left);
        if (wanted > left || wanted < FQ_BATCH_HEADER_BYTES) {
            *ret_wanted = wanted <= FQ_LIMIT_BATCH_BYTES ? wanted : 0;
            break;
        }
        at += wanted;
    }
    return at - chunk->used;
}

static bool is_good_batch(const struct fq_pread *reader, const uint8_t *at, size_t left,
                          struct fq_batch_header *ret)
{
    return at[FQ_BATCH_MAGIC] == 2 && fq_batch_header_read(at, left, ret, NULL) == 0 &&
           ret->base_offset > reader->next_offset &&
           ret->base_offset <= reader->high_watermark - ret->records_count &&
           fq_batch_total_bytes(ret) <= left &&
           fq_batch_crc_ok(at, (size_t)fq_batch_total_bytes(ret));
}

bool fq_walk_find_next(struct fq_pread *reader, int64_t *ret_offset, uint64_t *ret_position)
{
    const struct fq_chunk *chunk = &reader->chunk;
    for (size_t skip = 1; chunk->used + skip + FQ_BATCH_HEADER_BYTES <= chunk->length; skip++) {
        struct fq_batch_header header;
        const uint8_t *at = chunk->data + chunk->used + skip;
        if (is_good_batch(reader, at, chunk->length - chunk->used - skip, &header)) {
            *ret_offset = header.base_offset;
            *ret_position = reader->next_position + skip;
            return true;
        }
    }
    return false;
}

/* ---- handing out ---------------------------------------------------------------------------- */

void fq_pread_poll_begins(struct fq_pread *reader)
{
    reader->is_pinned = false;
}

bool fq_pread_next(struct fq_pread *reader, struct fq_record *ret, struct fq_source **ret_new_source)
{
    *ret_new_source = NULL;
    while (reader->has_batch) {
        int found = fq_batch_iter_next(&reader->iter, ret);
        if (found == 1 && ret->offset < reader->position) {
            continue; /* before the position, in the batch that holds it */
        }
        if (found == 1) {
            if (!reader->is_pinned) {
                *ret_new_source = fq_source_lend(reader->batch_source);
                reader->is_pinned = true;
            }
            reader->position = ret->offset + 1;
            if (reader->position >= reader->next_offset) {
                fq_pread_drop_batch(reader);
            }
            return true;
        }
        fq_pread_drop_batch(reader);
        if (found < 0) { /* the CRC is right, the records make no sense: written so */
            fq_pread_set_condition(reader, FLASHQ_ERR_CORRUPT, reader->next_offset);
        } else {
            reader->position = reader->next_offset;
        }
        return false;
    }
    return false;
}
