/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of struct fq_chunks: shared by chunks.c, chunk_search.c and chunk_codec.c. */
#ifndef FQ_TIMEINDEX_CHUNK_TABLE_H
#define FQ_TIMEINDEX_CHUNK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timeindex/maxtree.h"
#include "timeindex/timeindex.h"

struct fq_chunk_segment {
    int64_t base_offset; /* of the segment */
    struct fq_chunk *entries;
    size_t count, capacity;   /* count > 0 once it is in the table */
    struct fq_maxtree maxima; /* of the entries */
    uint64_t data_end;        /* position behind the last batch */
    bool is_blurred;          /* a chunk of it covers another segment's batches too, or the first
                                 batches are covered elsewhere: not to be encoded */
};

struct fq_chunks {
    struct fq_chunk_segment **segments; /* by base offset; no two alike */
    size_t count, capacity;
    struct fq_maxtree maxima;       /* of the segments */
    struct fq_chunk_segment *spare; /* for the next roll; count > 0 or a spare: always */
    int64_t last_batch_offset;      /* base of the last batch; -1: none */
};

/* A segment without entries, with room for `capacity`; NULL: no memory. */
struct fq_chunk_segment *fq_chunk_segment_create(size_t capacity);
void fq_chunk_segment_destroy(struct fq_chunk_segment *segment);
int fq_chunk_segment_reserve(struct fq_chunk_segment *segment, size_t capacity);
void fq_chunk_segment_push(struct fq_chunk_segment *segment, const struct fq_chunk *chunk);
/* Room for one segment more in the table. */
int fq_chunk_table_reserve(struct fq_chunks *chunks);

/* Index of the last segment (entry) that begins at or below `offset`; 0 when none does. */
size_t fq_chunk_table_segment_at(const struct fq_chunks *chunks, int64_t offset,
                                 uint64_t *inout_nodes);
size_t fq_chunk_segment_entry_at(const struct fq_chunk_segment *segment, int64_t offset,
                                 uint64_t *inout_nodes);
/* Fills a hit for an entry. */
void fq_chunk_table_hit(const struct fq_chunks *chunks, size_t segment_index, size_t entry_index,
                        struct fq_chunk_hit *ret);

#endif
