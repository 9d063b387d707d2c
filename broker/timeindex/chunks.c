/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of chunks of one partition: per segment an array of entries with a max-tree over it,
 * and a max-tree over the segments. The last entry of the last segment is open: batches widen it
 * until it would pass 64 KiB.
 *
 * Out of reserve: where a new entry or segment cannot be had, the last entry covers the new batch
 * too. An entry covers the offsets from its base to the next entry's, whatever segment they lie in,
 * so queries stay exact; the segments concerned are blurred, which keeps them from being encoded.
 *
 * The shard's thread.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "timeindex/chunk_table.h"

enum { ENTRIES_FIRST = 64, SEGMENTS_FIRST = 8 };

/* ---- memory --------------------------------------------------------------------------------- */

struct fq_chunk_segment *fq_chunk_segment_create(size_t capacity)
{
    struct fq_chunk_segment *segment = calloc(1, sizeof *segment);
    if (!segment) {
        return NULL;
    }
    fq_maxtree_init(&segment->maxima);
    if (fq_chunk_segment_reserve(segment, capacity) < 0) {
        fq_chunk_segment_destroy(segment);
        return NULL;
    }
    return segment;
}

void fq_chunk_segment_destroy(struct fq_chunk_segment *segment)
{
    if (!segment) {
        return;
    }
    fq_maxtree_fini(&segment->maxima);
    free(segment->entries);
    free(segment);
}

int fq_chunk_segment_reserve(struct fq_chunk_segment *segment, size_t capacity)
{
    if (capacity <= segment->capacity) {
        return 0;
    }
    int r = fq_maxtree_reserve(&segment->maxima, capacity);
    if (r < 0) {
        return r;
    }
    struct fq_chunk *entries = capacity <= SIZE_MAX / sizeof *entries
                                   ? realloc(segment->entries, capacity * sizeof *entries)
                                   : NULL;
    if (!entries) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    segment->entries = entries;
    segment->capacity = capacity;
    return 0;
}

void fq_chunk_segment_push(struct fq_chunk_segment *segment, const struct fq_chunk *chunk)
{
    assert(segment->count < segment->capacity);
    segment->entries[segment->count++] = *chunk;
    fq_maxtree_push(&segment->maxima, chunk->max_timestamp);
}

int fq_chunk_table_reserve(struct fq_chunks *chunks)
{
    if (chunks->count < chunks->capacity) {
        return 0;
    }
    size_t capacity = chunks->capacity ? chunks->capacity * 2 : SEGMENTS_FIRST;
    int r = fq_maxtree_reserve(&chunks->maxima, capacity);
    if (r < 0) {
        return r;
    }
    void *segments = realloc(chunks->segments, capacity * sizeof *chunks->segments);
    if (!segments) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    chunks->segments = segments;
    chunks->capacity = capacity;
    return 0;
}

int fq_chunks_create(struct fq_chunks **ret)
{
    struct fq_chunks *chunks = calloc(1, sizeof *chunks);
    if (!chunks) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    fq_maxtree_init(&chunks->maxima);
    chunks->last_batch_offset = -1;
    int r = fq_chunks_reserve(chunks);
    if (r < 0) {
        fq_chunks_destroy(chunks);
        return r;
    }
    *ret = chunks;
    return 0;
}

void fq_chunks_destroy(struct fq_chunks *chunks)
{
    if (!chunks) {
        return;
    }
    for (size_t i = 0; i < chunks->count; i++) {
        fq_chunk_segment_destroy(chunks->segments[i]);
    }
    fq_chunk_segment_destroy(chunks->spare);
    fq_maxtree_fini(&chunks->maxima);
    free(chunks->segments);
    free(chunks);
}

/* A quarter of the open segment's room is left: enough for what comes until somebody reserves. */
static bool is_nearly_full(const struct fq_chunk_segment *segment)
{
    return segment->capacity - segment->count < ENTRIES_FIRST / 4 ||
           segment->capacity - segment->count < segment->capacity / 8;
}

bool fq_chunks_wants_reserve(const struct fq_chunks *chunks)
{
    return !chunks->spare || chunks->count == chunks->capacity ||
           (chunks->count > 0 && is_nearly_full(chunks->segments[chunks->count - 1]));
}

/* The next segment is likely as large as the last ones. */
static size_t spare_capacity(const struct fq_chunks *chunks)
{
    size_t capacity = ENTRIES_FIRST;
    for (size_t back = 1; back <= 2 && back <= chunks->count; back++) {
        size_t last = chunks->segments[chunks->count - back]->capacity;
        capacity = last > capacity ? last : capacity;
    }
    return capacity;
}

int fq_chunks_reserve(struct fq_chunks *chunks)
{
    int r = fq_chunk_table_reserve(chunks);
    if (r < 0) {
        return r;
    }
    if (!chunks->spare) {
        chunks->spare = fq_chunk_segment_create(spare_capacity(chunks));
        if (!chunks->spare) {
            return FLASHQ_ERR_NO_MEMORY;
        }
    }
    if (chunks->count > 0) {
        struct fq_chunk_segment *last = chunks->segments[chunks->count - 1];
        if (is_nearly_full(last)) {
            return fq_chunk_segment_reserve(last, last->capacity * 2);
        }
    }
    return 0;
}

size_t fq_chunks_memory_bytes(const struct fq_chunks *chunks)
{
    size_t bytes = sizeof *chunks + chunks->capacity * sizeof *chunks->segments +
                   fq_maxtree_memory_bytes(&chunks->maxima);
    for (size_t i = 0; i <= chunks->count; i++) {
        const struct fq_chunk_segment *segment =
            i < chunks->count ? chunks->segments[i] : chunks->spare;
        if (segment) {
            bytes += sizeof *segment + segment->capacity * sizeof *segment->entries +
                     fq_maxtree_memory_bytes(&segment->maxima);
        }
    }
    return bytes;
}

/* ---- adding --------------------------------------------------------------------------------- */

static void widen(struct fq_chunks *chunks, int64_t min_timestamp, int64_t max_timestamp)
{
    struct fq_chunk_segment *segment = chunks->segments[chunks->count - 1];
    struct fq_chunk *last = &segment->entries[segment->count - 1];
    if (min_timestamp < last->min_timestamp) {
        last->min_timestamp = min_timestamp;
    }
    if (max_timestamp > last->max_timestamp) {
        last->max_timestamp = max_timestamp;
        fq_maxtree_raise_last(&segment->maxima, max_timestamp);
        fq_maxtree_raise_last(&chunks->maxima, max_timestamp);
    }
}

/* The first batch of a segment: the spare takes it, if there is one. */
static void add_segment(struct fq_chunks *chunks, int64_t segment_base,
                        const struct fq_chunk *chunk, uint64_t bytes)
{
    if (!chunks->spare || chunks->count == chunks->capacity) {
        assert(chunks->count > 0);
        chunks->segments[chunks->count - 1]->is_blurred = true;
        widen(chunks, chunk->min_timestamp, chunk->max_timestamp);
        return;
    }
    struct fq_chunk_segment *segment = chunks->spare;
    chunks->spare = NULL;
    segment->base_offset = segment_base;
    segment->data_end = chunk->position + bytes;
    segment->is_blurred = chunk->position != 0;
    fq_chunk_segment_push(segment, chunk);
    chunks->segments[chunks->count++] = segment;
    fq_maxtree_push(&chunks->maxima, chunk->max_timestamp);
}

void fq_chunks_add(struct fq_chunks *chunks, int64_t segment_base, int64_t base_offset,
                   uint64_t position, uint64_t bytes, int64_t min_timestamp, int64_t max_timestamp)
{
    assert(base_offset > chunks->last_batch_offset);
    assert(min_timestamp <= max_timestamp);
    const struct fq_chunk chunk = {.base_offset = base_offset,
                                   .position = position,
                                   .min_timestamp = min_timestamp,
                                   .max_timestamp = max_timestamp};
    chunks->last_batch_offset = base_offset;
    struct fq_chunk_segment *last = chunks->count ? chunks->segments[chunks->count - 1] : NULL;
    if (!last || last->base_offset != segment_base) {
        assert(!last || segment_base > last->base_offset);
        add_segment(chunks, segment_base, &chunk, bytes);
        return;
    }
    const struct fq_chunk *open = &last->entries[last->count - 1];
    assert(position >= last->data_end);
    last->data_end = position + bytes;
    bool fits = position + bytes - open->position <= FQ_LIMIT_CHUNK_BYTES;
    if (fits || last->count == last->capacity) {
        widen(chunks, min_timestamp, max_timestamp);
        return;
    }
    fq_chunk_segment_push(last, &chunk);
    fq_maxtree_raise_last(&chunks->maxima, max_timestamp);
}

/* ---- removing ------------------------------------------------------------------------------- */

/* Keeps the invariant that there is a spare when the table is empty. */
static void retire(struct fq_chunks *chunks, struct fq_chunk_segment *segment)
{
    if (chunks->spare) {
        fq_chunk_segment_destroy(segment);
        return;
    }
    segment->count = 0;
    fq_maxtree_truncate(&segment->maxima, 0);
    chunks->spare = segment;
}

void fq_chunks_trim(struct fq_chunks *chunks, int64_t log_start)
{
    size_t keep_from = 0;
    while (keep_from + 1 < chunks->count &&
           chunks->segments[keep_from + 1]->entries[0].base_offset <= log_start) {
        keep_from++;
    }
    if (keep_from == 0) {
        return;
    }
    for (size_t i = 0; i < keep_from; i++) {
        retire(chunks, chunks->segments[i]);
    }
    chunks->count -= keep_from;
    memmove(chunks->segments, chunks->segments + keep_from,
            chunks->count * sizeof(*chunks->segments));
    fq_maxtree_truncate(&chunks->maxima, 0);
    for (size_t i = 0; i < chunks->count; i++) {
        fq_maxtree_push(&chunks->maxima, fq_maxtree_max(&chunks->segments[i]->maxima));
    }
}

/* Takes the last entry away, and its segment with the last of them; returns its base offset. */
static int64_t pop_entry(struct fq_chunks *chunks)
{
    struct fq_chunk_segment *segment = chunks->segments[chunks->count - 1];
    const struct fq_chunk *entry = &segment->entries[--segment->count];
    int64_t base_offset = entry->base_offset;
    segment->data_end = entry->position;
    fq_maxtree_truncate(&segment->maxima, segment->count);
    fq_maxtree_truncate(&chunks->maxima, chunks->count - 1);
    if (segment->count == 0) {
        chunks->count--;
        retire(chunks, segment);
    } else {
        fq_maxtree_push(&chunks->maxima, fq_maxtree_max(&segment->maxima));
    }
    return base_offset;
}

int64_t fq_chunks_truncate(struct fq_chunks *chunks, int64_t offset)
{
    int64_t covered = INT64_MAX; /* the entries that are left end here */
    while (chunks->count > 0 && covered != offset) {
        const struct fq_chunk_segment *last = chunks->segments[chunks->count - 1];
        bool reaches_over = last->entries[last->count - 1].base_offset < offset;
        covered = pop_entry(chunks);
        if (reaches_over) {
            break;
        }
    }
    if (covered < offset) {
        offset = covered;
    }
    chunks->last_batch_offset = offset - 1;
    return offset;
}

size_t fq_chunks_count(const struct fq_chunks *chunks)
{
    size_t count = 0;
    for (size_t i = 0; i < chunks->count; i++) {
        count += chunks->segments[i]->count;
    }
    return count;
}

size_t fq_chunks_segments_count(const struct fq_chunks *chunks)
{
    return chunks->count;
}
