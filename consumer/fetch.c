/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing bytes: where the broker's memory can be seen (shm), a look at the view and a chunk of the segment
 * itself; elsewhere READ(view) and READ(data) posted together, one round trip, trimmed by the view. While
 * the application walks one chunk the next is fetched; with fetch.prefetch off nothing is, and every batch is
 * brought by itself: as much is asked for as the last one had.
 *
 * In doubt (is_sequential) the view is read first and the data only after it.
 * What can fail: the connection: the reader starts over; a view that does not come right in many tries: the
 * connection is failed. Thread: any, under the client's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "consumer/consumer.h"
#include "consumer/hub.h"
#include "consumer/reader.h"

#define LOOKS_MAX 1000           /* at a view that is being written */
#define READ_BYTES_MAX ((size_t)4 << 20) /* of one READ operation */
#define GUESS_FIRST ((size_t)16 << 10)
#define MAP_AHEAD_BYTES ((size_t)2 << 20) /* of memory that can be seen, at a time */

/* ---- the view ------------------------------------------------------------------------------- */

static bool view_is_good(const struct fq_view *view)
{
    return fq_crc32c(0, view, offsetof(struct fq_view, crc)) == view->crc;
}

/* Takes a view whose CRC is right. false: it leads elsewhere (condition or reopening). */
static bool take_view(struct fq_pread *reader, const struct fq_view *view)
{
    if (view->generation != reader->view_generation) {
        fq_pread_reopen(reader); /* the line is another partition's now */
        return false;
    }
    if (view->state == (uint32_t)-FLASHQ_ERR_SHUTTING_DOWN) {
        fq_pread_retry(reader); /* the connection ends presently, and the next one goes on here */
        return false;
    }
    if (view->state != 0) {
        fq_pread_set_condition(reader, -(int)(view->state & INT32_MAX), -1);
        return false;
    }
    if (view->high_watermark < reader->high_watermark && reader->has_view &&
        (int32_t)(view->version - reader->view.version) < 0) {
        return true; /* older than what was seen already */
    }
    reader->view = *view;
    reader->has_view = true;
    reader->high_watermark = view->high_watermark;
    if (view->log_start > reader->position && view->log_start > reader->next_offset) {
        fq_pread_set_condition(reader, FLASHQ_ERR_TRIMMED, view->log_start);
        return false;
    }
    return true;
}

/* Pairs with the broker's release of the line's last word: the data are looked at after their view. */
static void copy_view(struct fq_view *to, const uint8_t *line)
{
    uint64_t words[sizeof *to / sizeof(uint64_t)];
    const uint64_t *from = (const uint64_t *)(const void *)line; /* lines are 64-byte aligned */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    }
    memcpy(to, words, sizeof *to);
}

bool fq_fetch_look(struct fq_pread *reader)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    const uint8_t *lines = link->views ? fq_remote_map(link->views) : NULL;
    if (!lines) {
        return false;
    }
    for (int look = 0; look < LOOKS_MAX; look++) {
        struct fq_view view;
        copy_view(&view, lines + (size_t)reader->view_line * sizeof view);
        if (view_is_good(&view)) {
            return take_view(reader, &view);
        }
    }
    return false;
}

/* ---- how far ---------------------------------------------------------------------------------- */

/* Up to where data of the segment may be looked at. The view knows for the segment that holds the high
 * watermark; an earlier one is read to its end, which its last batch tells. */
static uint64_t limit_of(const struct fq_pread *reader)
{
    const struct fq_segment_open_answer *info = &reader->segment->info;
    if (reader->view.segment_id == info->segment_id) {
        return reader->view.committed_position < info->window_bytes ? reader->view.committed_position
                                                                    : info->window_bytes;
    }
    return info->is_sealed ? info->data_bytes : info->window_bytes;
}

/* Whether everything below the high watermark has been walked or is at hand. */
static bool is_at_end(const struct fq_pread *reader)
{
    return reader->next_offset >= reader->high_watermark;
}

/* ---- memory that can be seen ------------------------------------------------------------------ */

/* A chunk is no longer than what is mapped ahead at a time, or than the batch it must hold. */
static size_t expect_reads(struct fq_pread *reader, uint64_t limit)
{
    struct fq_rsegment *segment = reader->segment;
    uint64_t position = reader->next_position, left = limit - position;
    uint64_t bytes = reader->want_bytes > MAP_AHEAD_BYTES ? reader->want_bytes : MAP_AHEAD_BYTES;
    bytes = bytes < left ? bytes : left;
    if (position + bytes > segment->expected_position) {
        uint64_t from = position > segment->expected_position ? position : segment->expected_position;
        uint64_t to = from + (bytes > MAP_AHEAD_BYTES ? bytes : MAP_AHEAD_BYTES);
        fq_remote_expect_reads(segment->remote, segment->info.window_offset + from, to - from);
        segment->expected_position = to;
    }
    return (size_t)bytes;
}

static int next_mapped(struct fq_pread *reader)
{
    if (!fq_fetch_look(reader)) {
        /* Elsewhere, or a view that does not come right: the broker's wake-up will tell. */
        reader->is_caught_up = reader->state == FQ_READER_READING;
        return 0;
    }
    if (is_at_end(reader)) {
        reader->is_caught_up = true;
        return 0;
    }
    uint64_t limit = limit_of(reader);
    if (reader->next_position >= limit) {
        fq_pread_find_segment(reader);
        return 0;
    }
    reader->limit_position = limit;
    reader->chunk = (struct fq_chunk){.source = fq_source_ref(&reader->segment->source),
                                      .data = reader->segment->map + reader->next_position,
                                      .length = expect_reads(reader, limit),
                                      .position = reader->next_position};
    if (!reader->consumer->engine->config.fetch_prefetch) {
        fq_walk_cut_to_one(&reader->chunk);
    }
    return 1;
}

/* ---- memory that is read ---------------------------------------------------------------------- */

static void free_fetch(struct fq_fetch *fetch)
{
    fq_chain_remove(&fetch->node);
    fq_source_unref(&fetch->buffer->source);
    free(fetch);
}

void fq_fetch_abandon(struct fq_pread *reader)
{
    struct fq_fetch *fetch = reader->fetch;
    reader->fetch = NULL;
    if (fetch && fetch->posted > 0) {
        fetch->reader = NULL; /* its memory stays until the transport is done with it */
    } else if (fetch) {
        free_fetch(fetch);
    }
}

void fq_fetch_lost(struct fq_fetch *fetch)
{
    if (fetch->reader) {
        fetch->reader->fetch = NULL;
    }
    free_fetch(fetch);
}

/* A fetch whose operations are all completed becomes the reader's next chunk. */
static void fetch_is_done(struct fq_fetch *fetch)
{
    struct fq_pread *reader = fetch->reader;
    struct fq_view view;
    if (!reader) {
        struct fq_hub *hub = fetch->hub;
        free_fetch(fetch);
        fq_hub_fetch_gone(hub);
        return;
    }
    fq_consumer_busy(reader->consumer, reader);
    reader->fetch = NULL;
    memcpy(&view, fetch->buffer->view, sizeof view);
    bool is_view_good = fetch->status == 0 && view_is_good(&view);
    reader->doubts += !is_view_good;
    if (fetch->status != 0 || reader->doubts > LOOKS_MAX) {
        int code = fetch->status ? fetch->status : FLASHQ_ERR_PROTOCOL;
        struct fq_link *link = fq_hub_link(reader->hub);
        free_fetch(fetch);
        fq_link_fail(link, code, "reading from the broker's memory failed");
        return;
    }
    /* The state may be another after take_view: then the bytes are not wanted any more. */
    if (!is_view_good || !take_view(reader, &view) || !reader->segment ||
        reader->state != FQ_READER_READING) {
        free_fetch(fetch);
        return;
    }
    uint64_t limit = limit_of(reader);
    if (fetch->is_view_only || is_at_end(reader) || fetch->position >= limit) {
        free_fetch(fetch); /* the next turn decides, with the view known */
        return;
    }
    uint64_t there = limit - fetch->position;
    size_t length = there < fetch->asked ? (size_t)there : fetch->asked;
    reader->limit_position = limit;
    bool is_ahead = reader->consumer->engine->config.fetch_prefetch;
    if (is_ahead) {
        reader->guess_bytes = length * 2 > GUESS_FIRST ? length * 2 : GUESS_FIRST;
    }
    fq_source_unref(reader->ready.source);
    reader->ready = (struct fq_chunk){.source = fq_source_ref(&fetch->buffer->source),
                                      .data = fetch->buffer->data, .length = length,
                                      .position = fetch->position};
    if (!is_ahead) {
        fq_walk_cut_to_one(&reader->ready);
    }
    free_fetch(fetch);
    fq_engine_progress(reader->consumer->engine);
}

static void completed(struct fq_fetch *fetch, int status)
{
    fetch->status = fetch->status ? fetch->status : status;
    if (--fetch->posted == 0) {
        fetch_is_done(fetch);
    }
}

static void view_completed(struct fq_completion *completion, int status)
{
    completed(fq_chain_item(completion, struct fq_fetch, view_read), status);
}

static void data_completed(struct fq_completion *completion, int status)
{
    completed(fq_chain_item(completion, struct fq_fetch, data_read), status);
}

/* How much to ask for: what the view says is there, or a guess; 0: look at the view only. */
static size_t bytes_to_ask(const struct fq_pread *reader, uint64_t position, size_t wanted)
{
    const struct fq_segment_open_answer *info = &reader->segment->info;
    uint64_t window = info->window_bytes - position;
    const struct fq_client_config *config = &reader->consumer->engine->config;
    size_t most = config->fetch_prefetch ? (size_t)config->fetch_max_bytes : reader->guess_bytes;
    most = most > wanted ? most : wanted;
    uint64_t limit = reader->has_view ? limit_of(reader) : 0;
    size_t ask = reader->guess_bytes;
    if (reader->is_sequential && !reader->has_view) {
        return 0;
    }
    if (limit > position) {
        uint64_t there = limit - position;
        ask = there < most ? (size_t)there : most;
    } else if (reader->is_sequential) {
        return 0;
    }
    ask = ask < most ? ask : most;
    return ask < window ? ask : (size_t)window;
}

static int post_reads(struct fq_pread *reader, struct fq_fetch *fetch)
{
    struct fq_op ops[24];
    struct fq_link *link = fq_hub_link(reader->hub);
    size_t count = 0, done = 0;
    ops[count++] = (struct fq_op){.type = FQ_OP_READ, .remote = link->views,
                                  .remote_offset = (uint64_t)reader->view_line * sizeof(struct fq_view),
                                  .region = fetch->buffer->region, .local = fetch->buffer->view,
                                  .length = sizeof(struct fq_view), .signaled = true,
                                  .cookie = (uint64_t)(uintptr_t)&fetch->view_read};
    while (done < fetch->asked && count < sizeof ops / sizeof ops[0]) {
        size_t part = fetch->asked - done < READ_BYTES_MAX ? fetch->asked - done : READ_BYTES_MAX;
        ops[count++] = (struct fq_op){.type = FQ_OP_READ, .remote = reader->segment->remote,
                                      .remote_offset = reader->segment->info.window_offset +
                                                       fetch->position + done,
                                      .region = fetch->buffer->region,
                                      .local = fetch->buffer->data + done, .length = part,
                                      .signaled = true,
                                      .cookie = (uint64_t)(uintptr_t)&fetch->data_read};
        done += part;
    }
    int posted = fq_conn_post(fq_link_conn(link), ops, count);
    if (posted > 0) {
        fetch->posted = (unsigned)posted;
        fetch->asked = posted == 1 ? 0 : done < fetch->asked ? done : fetch->asked;
        if ((size_t)posted < count) { /* only what was taken comes */
            size_t part = (size_t)(posted - 1) * READ_BYTES_MAX;
            fetch->asked = part < fetch->asked ? part : fetch->asked;
        }
        fetch->is_view_only |= posted == 1;
    }
    return posted;
}

/* What paused partitions have read ahead gives way to one that is polled; they read it again when resumed. */
static void take_from_paused(struct fq_consumer *consumer)
{
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        struct fq_pread *reader = fq_chain_item(at, struct fq_pread, node);
        bool has_buffers = reader->chunk.source || reader->ready.source || reader->fetch ||
                           reader->batch_source;
        if (reader->is_paused && has_buffers && !reader->has_condition &&
            reader->state == FQ_READER_READING && reader->segment && !reader->segment->map) {
            fq_pread_seek(reader, reader->position);
        }
    }
}

static int start_fetch(struct fq_pread *reader, uint64_t position, size_t wanted)
{
    struct fq_consumer *consumer = reader->consumer;
    struct fq_fetch *fetch = calloc(1, sizeof *fetch);
    size_t ask = bytes_to_ask(reader, position, wanted);
    if (!fetch) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    int code = fq_buffers_get(&consumer->buffers, ask, &fetch->buffer);
    if (code == FLASHQ_ERR_AGAIN && !reader->is_paused) {
        take_from_paused(consumer);
        code = fq_buffers_get(&consumer->buffers, ask, &fetch->buffer);
    }
    if (code != 0) {
        free(fetch);
        return code;
    }
    fetch->view_read.done = view_completed;
    fetch->data_read.done = data_completed;
    fetch->reader = reader;
    fetch->position = position;
    fetch->asked = ask;
    fetch->is_view_only = ask == 0;
    fq_chain_init(&fetch->node);
    code = post_reads(reader, fetch);
    if (code <= 0) {
        free_fetch(fetch);
        return code == 0 ? FLASHQ_ERR_AGAIN : code;
    }
    reader->fetch = fetch;
    fetch->hub = reader->hub;
    fq_hub_add_fetch(reader->hub, &fetch->node);
    return 0;
}

/* While the new chunk is walked, what follows it is fetched. */
static void prefetch(struct fq_pread *reader)
{
    size_t wanted;
    uint64_t after = reader->chunk.position + fq_walk_whole_bytes(&reader->chunk, &wanted);
    if (reader->consumer->engine->config.fetch_prefetch && !reader->fetch && !reader->is_paused && after > reader->chunk.position && after < limit_of(reader)) {
        (void)start_fetch(reader, after, wanted); /* no room for it now: fetched when it is needed */
    }
}

static int next_read(struct fq_pread *reader)
{
    if (reader->ready.source && reader->ready.position == reader->next_position) {
        reader->chunk = reader->ready;
        reader->ready = (struct fq_chunk){0};
        prefetch(reader);
        return 1;
    }
    fq_source_unref(reader->ready.source);
    reader->ready = (struct fq_chunk){0};
    if (reader->fetch && reader->fetch->position == reader->next_position) {
        return 0;
    }
    fq_fetch_abandon(reader);
    bool knows = reader->has_view && !reader->wants_view;
    if (knows && is_at_end(reader)) {
        reader->is_caught_up = true;
        return 0;
    }
    if (knows && reader->next_position >= limit_of(reader)) {
        fq_pread_find_segment(reader);
        return 0;
    }
    reader->wants_view = false;
    int code = start_fetch(reader, reader->next_position, reader->want_bytes);
    if (code != 0 && code != FLASHQ_ERR_AGAIN && code != FLASHQ_ERR_NO_MEMORY) {
        fq_link_fail(fq_hub_link(reader->hub), code, "reading could not be posted");
    }
    return 0;
}

int fq_fetch_next(struct fq_pread *reader)
{
    struct fq_link *link = fq_hub_link(reader->hub);
    if (!link->views || reader->view_line >= link->session.views_count) {
        fq_link_fail(link, FLASHQ_ERR_PROTOCOL, "the broker gave no view for a reader");
        return 0;
    }
    if (!reader->segment) { /* nothing was ever written: wait for the first batch */
        reader->is_caught_up = true;
        return 0;
    }
    return reader->segment->map ? next_mapped(reader) : next_read(reader);
}
