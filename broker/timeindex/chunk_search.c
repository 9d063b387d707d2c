/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding chunks: by offset (binary search over segments, then entries) and by time (max-trees).
 * Every probe of a binary search and every tree group looked at counts as a node visited.
 */
#include "timeindex/chunk_table.h"

size_t fq_chunk_table_segment_at(const struct fq_chunks *chunks, int64_t offset,
                                 uint64_t *inout_nodes)
{
    size_t low = 0, high = chunks->count; /* the answer + 1 lies in [low, high] */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        ++*inout_nodes;
        if (chunks->segments[middle]->entries[0].base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? low - 1 : 0;
}

size_t fq_chunk_segment_entry_at(const struct fq_chunk_segment *segment, int64_t offset,
                                 uint64_t *inout_nodes)
{
    size_t low = 0, high = segment->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        ++*inout_nodes;
        if (segment->entries[middle].base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? low - 1 : 0;
}

void fq_chunk_table_hit(const struct fq_chunks *chunks, size_t segment_index, size_t entry_index,
                        struct fq_chunk_hit *ret)
{
    const struct fq_chunk_segment *segment = chunks->segments[segment_index];
    ret->segment_base = segment->base_offset;
    ret->chunk = segment->entries[entry_index];
    ret->end_offset = INT64_MAX;
    ret->end_position = UINT64_MAX;
    if (entry_index + 1 < segment->count) {
        ret->end_offset = segment->entries[entry_index + 1].base_offset;
        ret->end_position = segment->entries[entry_index + 1].position;
    } else if (segment_index + 1 < chunks->count) {
        ret->end_offset = chunks->segments[segment_index + 1]->entries[0].base_offset;
    }
}

bool fq_chunks_locate(const struct fq_chunks *chunks, int64_t offset, int64_t *ret_segment_base,
                      struct fq_chunk *ret)
{
    if (chunks->count == 0 || offset < chunks->segments[0]->entries[0].base_offset) {
        return false;
    }
    uint64_t nodes = 0;
    size_t at = fq_chunk_table_segment_at(chunks, offset, &nodes);
    const struct fq_chunk_segment *segment = chunks->segments[at];
    *ret = segment->entries[fq_chunk_segment_entry_at(segment, offset, &nodes)];
    *ret_segment_base = segment->base_offset;
    return true;
}

bool fq_chunks_search(const struct fq_chunks *chunks, int64_t from_offset, int64_t to_offset,
                      int64_t timestamp_ms, struct fq_chunk_hit *ret, uint64_t *inout_nodes)
{
    if (chunks->count == 0 || from_offset >= to_offset) {
        return false;
    }
    size_t at = fq_chunk_table_segment_at(chunks, from_offset, inout_nodes);
    size_t entry = fq_chunk_segment_entry_at(chunks->segments[at], from_offset, inout_nodes);
    size_t found = fq_maxtree_find(&chunks->segments[at]->maxima, entry, timestamp_ms, inout_nodes);
    if (found == FQ_MAXTREE_NONE) {
        at = fq_maxtree_find(&chunks->maxima, at + 1, timestamp_ms, inout_nodes);
        if (at == FQ_MAXTREE_NONE) {
            return false;
        }
        found = fq_maxtree_find(&chunks->segments[at]->maxima, 0, timestamp_ms, inout_nodes);
    }
    if (chunks->segments[at]->entries[found].base_offset >= to_offset) {
        return false;
    }
    fq_chunk_table_hit(chunks, at, found, ret);
    return true;
}
