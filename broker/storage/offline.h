/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading segment files without a broker and without changing a byte: for `flashq log
 * verify|dump|stat`. Works on a copy, on read-only media, and beside a running broker (what is
 * being appended then may show as a tail that does not fit, never as damage).
 */
#ifndef FQ_STORAGE_OFFLINE_H
#define FQ_STORAGE_OFFLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/log.h"

struct fq_offline_segment {
    char path[FQ_LIMIT_PATH_BYTES];
    bool header_ok;    /* false: what follows comes from the file's name and data */
    const char *state; /* "open", "sealed", "prepared", "free", "damaged" */
    struct fq_uuid topic_id;
    uint32_t partition;
    int64_t base_offset;
    uint64_t file_bytes;
    bool tail_ok;
    uint64_t tail_position; /* data bytes below the tail word (sealed: all data) */
    bool seal_ok;           /* sealed segments */
    int64_t seal_end_offset;
    int64_t first_retention_ms, last_retention_ms; /* -1: not known */
    int64_t start_offset;                          /* log start recorded here; -1: none */
    /* after the walk */
    int64_t end_offset;
    uint64_t data_bytes; /* readable data, damage inside included */
    uint64_t batches_count, records_count, damage_count;
    int64_t min_timestamp_ms, max_timestamp_ms; /* INT64_MAX, INT64_MIN without batches */
    uint64_t above_tail_bytes; /* accepted above the tail word (disks after a crash) */
};

struct fq_offline_visitor {
    /* Each may be NULL; non-zero stops the walk and is returned. `topic` is the topic folder's name
     * without its id ("" when a bare file is read). segment: before its batches; segment_end:
     * after, with the counts filled in. */
    int (*segment)(void *context, const char *topic, const struct fq_offline_segment *segment);
    int (*batch)(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                 uint64_t position);
    int (*damage)(void *context, const struct fq_damage *damage);
    int (*segment_end)(void *context, const char *topic, const struct fq_offline_segment *segment);
    void *context;
};

/* `path`: a segment file, a partition folder, a topic folder, or a data directory. Segments come in
 * order; a hole between two of one partition is a damage call. Returns 0 (also with damage), the
 * visitor's value, NOT_FOUND, INVALID (none of the four), IO. */
int fq_offline_walk(const char *path, const struct fq_offline_visitor *visitor, struct fq_err *err);

#endif
