/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers, scratches and segments; see source.h. Letting go of the last reference of a segment tells the
 * broker (SEGMENT_CLOSE), if the connection it came by is still there.
 */
#include "consumer/source.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define VIEW_ROOM 64u

/* ---- buffers -------------------------------------------------------------------------------- */

void fq_buffers_init(struct fq_buffers *buffers, size_t usual_bytes, size_t limit_bytes)
{
    *buffers = (struct fq_buffers){.usual_bytes = usual_bytes, .limit_bytes = limit_bytes};
    fq_chain_init(&buffers->spare);
    fq_chain_init(&buffers->scratches);
}

static void free_buffer(struct fq_buffer *buffer)
{
    fq_region_unref(buffer->region);
    free(buffer);
}

static void free_scratch(struct fq_scratch *scratch)
{
    fq_batch_scratch_fini(&scratch->scratch);
    free(scratch);
}

void fq_buffers_fini(struct fq_buffers *buffers)
{
    while (!fq_chain_is_empty(&buffers->spare)) {
        struct fq_buffer *buffer = fq_chain_item(buffers->spare.next, struct fq_buffer, node);
        fq_chain_remove(&buffer->node);
        free_buffer(buffer);
    }
    while (!fq_chain_is_empty(&buffers->scratches)) {
        struct fq_scratch *scratch = fq_chain_item(buffers->scratches.next, struct fq_scratch, node);
        fq_chain_remove(&scratch->node);
        free_scratch(scratch);
    }
}

static void release_buffer(struct fq_source *source)
{
    struct fq_buffer *buffer = fq_chain_item(source, struct fq_buffer, source);
    struct fq_buffers *buffers = buffer->buffers;
    if (buffers) {
        buffers->used--;
    }
    if (buffers && buffer->bytes == buffers->usual_bytes) {
        fq_chain_insert_after(&buffers->spare, &buffer->node);
        return;
    }
    if (buffers) {
        buffers->total_bytes -= buffer->bytes;
    }
    free_buffer(buffer);
}

int fq_buffers_get(struct fq_buffers *buffers, size_t bytes, struct fq_buffer **ret)
{
    struct fq_buffer *buffer;
    if (bytes <= buffers->usual_bytes && !fq_chain_is_empty(&buffers->spare)) {
        buffer = fq_chain_item(buffers->spare.next, struct fq_buffer, node);
        fq_chain_remove(&buffer->node);
        buffer->source.refs = 1;
        buffers->used++;
        *ret = buffer;
        return 0;
    }
    bytes = bytes > buffers->usual_bytes ? bytes : buffers->usual_bytes;
    if (buffers->total_bytes + bytes > buffers->limit_bytes && buffers->used > 0) {
        return FLASHQ_ERR_AGAIN;
    }
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    int code = fq_region_create(bytes + VIEW_ROOM, FQ_REGION_LOCAL, &buffer->region, NULL);
    if (code != 0) {
        free(buffer);
        return code;
    }
    buffer->source = (struct fq_source){.refs = 1, .release = release_buffer};
    fq_chain_init(&buffer->node);
    buffer->buffers = buffers;
    buffer->view = fq_region_base(buffer->region);
    buffer->data = buffer->view + VIEW_ROOM;
    buffer->bytes = bytes;
    buffers->total_bytes += bytes;
    buffers->used++;
    *ret = buffer;
    return 0;
}

bool fq_buffers_charge(struct fq_buffers *buffers, uint64_t bytes)
{
    uint64_t room = buffers->limit_bytes > buffers->usual_bytes
                        ? buffers->limit_bytes - buffers->usual_bytes
                        : 0;
    while (buffers->total_bytes + bytes > room && !fq_chain_is_empty(&buffers->spare)) {
        struct fq_buffer *buffer = fq_chain_item(buffers->spare.next, struct fq_buffer, node);
        fq_chain_remove(&buffer->node);
        buffers->total_bytes -= buffer->bytes;
        free_buffer(buffer);
    }
    if (bytes > room || buffers->total_bytes > room - bytes) {
        return false;
    }
    buffers->total_bytes += (size_t)bytes;
    return true;
}

void fq_buffers_discharge(struct fq_buffers *buffers, uint64_t bytes)
{
    buffers->total_bytes -= (size_t)bytes;
}

static void release_scratch(struct fq_source *source)
{
    struct fq_scratch *scratch = fq_chain_item(source, struct fq_scratch, source);
    fq_chain_insert_after(&scratch->buffers->scratches, &scratch->node);
}

struct fq_scratch *fq_buffers_scratch(struct fq_buffers *buffers)
{
    struct fq_scratch *scratch;
    if (fq_chain_is_empty(&buffers->scratches)) {
        scratch = calloc(1, sizeof *scratch);
        if (!scratch) {
            return NULL;
        }
        fq_chain_init(&scratch->node);
        scratch->buffers = buffers;
    } else {
        scratch = fq_chain_item(buffers->scratches.next, struct fq_scratch, node);
        fq_chain_remove(&scratch->node);
    }
    scratch->source = (struct fq_source){.refs = 1, .release = release_scratch};
    return scratch;
}

/* ---- segments ------------------------------------------------------------------------------- */

static void closed(void *context, int status, const struct fq_msg *msg, const char *text)
{
    (void)context, (void)status, (void)msg, (void)text; /* nobody waits for the answer */
}

static void tell_closed(struct fq_link *link, uint32_t reader_id, uint64_t segment_id)
{
    uint8_t buffer[128];
    uint32_t correlation = fq_link_correlation(link);
    struct fq_segment_close close = {.reader = reader_id, .segment_id = segment_id};
    int64_t length = fq_encode_segment_close(buffer, sizeof buffer, correlation, &close);
    (void)fq_link_request(link, buffer, length, correlation,
                          fq_deadline_us(link->engine->now_us, link->engine->config.timeout_ms),
                          closed, NULL);
}

void fq_rsegment_decline(struct fq_link *link, uint32_t reader_id,
                         const struct fq_segment_open_answer *info)
{
    if (info->segment_id != 0 || info->window_bytes != 0) {
        tell_closed(link, reader_id, info->segment_id);
    }
}

static void release_segment(struct fq_source *source)
{
    struct fq_rsegment *segment = fq_chain_item(source, struct fq_rsegment, source);
    fq_remote_close(segment->remote);
    if (segment->link->box == segment->box && fq_link_is_up(segment->link)) {
        tell_closed(segment->link, segment->reader_id, segment->info.segment_id);
    }
    fq_conn_box_unref(segment->box);
    free(segment);
}

int fq_rsegment_open(struct fq_link *link, uint32_t reader_id,
                     const struct fq_segment_open_answer *info, struct fq_rsegment **ret,
                     struct fq_err *err)
{
    struct fq_rsegment *segment = calloc(1, sizeof *segment);
    if (!segment) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a segment");
    }
    int code = fq_remote_open(fq_link_conn(link), info->token, FQ_RIGHT_READ, &segment->remote, err);
    if (code != 0) {
        free(segment);
        return code;
    }
    uint64_t window = fq_remote_bytes(segment->remote);
    if (info->window_offset > window || info->window_bytes > window - info->window_offset ||
        info->data_bytes > info->window_bytes || info->position > info->data_bytes ||
        info->base_offset < 0 || info->position_offset < info->base_offset) {
        fq_remote_close(segment->remote);
        free(segment);
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the broker's segment makes no sense");
    }
    const uint8_t *map = fq_remote_map(segment->remote);
    segment->source = (struct fq_source){.refs = 1, .release = release_segment};
    segment->link = link;
    segment->box = fq_conn_box_ref(link->box);
    segment->reader_id = reader_id;
    segment->info = *info;
    segment->map = map ? map + info->window_offset : NULL;
    segment->retire_us = INT64_MAX;
    *ret = segment;
    return 0;
}
