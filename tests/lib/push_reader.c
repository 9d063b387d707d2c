/* SPDX-License-Identifier: Apache-2.0 */
/* See push_reader.h. */
#include "push_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    (void)fprintf(stderr, "push_reader: %s\n", what);
    abort();
}

void push_reader_open(struct push_reader *r, struct raw_client *c, const struct fq_uuid *topic,
                      uint32_t partition, uint32_t line, int64_t offset, uint64_t ring_bytes)
{
    struct fq_reader_open_answer reader;
    struct fq_err err;
    *r = (struct push_reader){.c = c, .ring_bytes = ring_bytes};
    if (raw_reader_open(c, topic, partition, &reader, &err) != 0 ||
        raw_push_open(c, reader.reader, line, offset, ring_bytes, &r->push, &err) != 0) {
        die(err.text);
    }
}

void push_reader_end(struct push_reader *r)
{
    raw_push_end(&r->push);
    free(r->bytes);
    r->bytes = NULL;
}

uint64_t push_reader_take(struct push_reader *r)
{
    uint64_t tail = raw_push_head(r->c, r->push.line).tail;
    if (tail < r->seen || tail - r->push.consumed > r->ring_bytes) {
        die("a tail that runs back, or over what was not consumed");
    }
    uint64_t more = tail - r->seen;
    if (tail > r->capacity) {
        r->capacity = 2 * tail;
        r->bytes = realloc(r->bytes, r->capacity);
        if (!r->bytes) {
            die("memory");
        }
    }
    if (more > 0) {
        const uint8_t *ring = fq_region_base(r->push.ring);
        memcpy(r->bytes + r->seen, ring + r->seen % r->ring_bytes, more);
    }
    r->seen = tail;
    return more;
}

void push_reader_credit(struct push_reader *r, uint64_t keep)
{
    uint64_t consumed = r->seen > keep ? r->seen - keep : 0;
    if (consumed > r->push.consumed) {
        r->push.consumed = consumed;
        raw_push_credit(r->c, r->push.line, consumed);
    }
}

void push_reader_until(struct push_reader *r, uint64_t bytes)
{
    for (int tries = 0; r->seen < bytes; tries++) {
        tries = push_reader_take(r) > 0 ? 0 : tries;
        push_reader_credit(r, 0);
        raw_pump_or_abort(r->c, tries, "bytes of a push");
    }
}

/* One segment's share; the base offset of the next one, or -1. */
static int64_t copy_segment(struct raw_client *c, uint32_t reader, int64_t offset, uint8_t **bytes,
                            uint64_t *length)
{
    struct fq_segment_open_answer segment;
    struct fq_remote *remote;
    struct fq_err err;
    uint8_t out[64];
    if (raw_segment_open(c, reader, offset, &segment, &err) != 0) {
        die(err.text);
    }
    if (segment.segment_id == 0) {
        return -1;
    }
    if (fq_remote_open(c->conn, segment.token, FQ_RIGHT_READ, &remote, &err) != 0) {
        die(err.text);
    }
    uint64_t more = segment.data_bytes - segment.position;
    *bytes = realloc(*bytes, *length + more + 1);
    const uint8_t *data = (const uint8_t *)fq_remote_map(remote) + segment.window_offset;
    memcpy(*bytes + *length, data + segment.position, more);
    *length += more;
    fq_remote_close(remote);
    struct fq_segment_close body = {.reader = reader, .segment_id = segment.segment_id};
    (void)raw_ask(c, out, fq_encode_segment_close(out, sizeof out, ++c->correlation, &body));
    return segment.next_base_offset;
}

uint8_t *raw_log_bytes(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                       int64_t offset, uint64_t *ret_bytes)
{
    struct fq_reader_open_answer reader;
    struct fq_err err;
    uint8_t out[64], *bytes = NULL;
    *ret_bytes = 0;
    if (raw_reader_open(c, topic, partition, &reader, &err) != 0) {
        die(err.text);
    }
    while (offset >= 0) {
        offset = copy_segment(c, reader.reader, offset, &bytes, ret_bytes);
    }
    struct fq_slot_ref ref = {.slot = reader.reader};
    (void)raw_ask(c, out, fq_encode_reader_close(out, sizeof out, ++c->correlation, &ref));
    return bytes;
}
