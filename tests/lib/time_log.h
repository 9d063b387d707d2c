/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log for the tests of the time index: real batches in memory, a chunk table fed as a partition does,
 * a calendar in the in-memory meta fed through the feeder, and the brute force to compare with.
 * Offsets begin at 0. Fails by abort() with a line on stderr.
 */
#ifndef FQ_TESTS_TIME_LOG_H
#define FQ_TESTS_TIME_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timeindex/timeindex.h"

struct time_log_batch {
    int64_t base_offset, segment_base;
    int32_t count;
    bool is_compressed;         /* says the header; the bytes are not */
    uint64_t position, bytes;   /* in the segment; bytes is at least length, to make chunks fill sooner */
    uint8_t *data;
    size_t length;
    int64_t min_timestamp, max_timestamp;
};

struct time_log {
    struct fq_chunks *chunks;
    int64_t *timestamps;        /* by offset */
    size_t timestamps_capacity;
    struct time_log_batch *batches;
    size_t batches_count, batches_capacity;
    int64_t log_start, end;
    int64_t committed;          /* what queries and the feeder see ends here; <= end */
    uint64_t segment_bytes;
    bool may_reserve;           /* as an attentive shard would; true at first */

    struct fq_meta *meta;
    struct fq_meta_key key;
    struct fq_calendar_feeder feeder;
    unsigned damage_count;      /* changes that found the calendar damaged and dropped it */
    unsigned refuse_in;         /* the next emits that go through before one is refused; 0: none is */
};

void time_log_init(struct time_log *log, uint64_t segment_bytes);
void time_log_fini(struct time_log *log);

/* Appends a batch and commits it. */
void time_log_append(struct time_log *log, const int64_t *timestamps, size_t count,
                     bool is_compressed, uint64_t bytes);
void time_log_trim(struct time_log *log, int64_t log_start);
/* Drops the batch that holds `offset` and all behind it; `tell` the calendar and the feeder, or not. */
void time_log_truncate(struct time_log *log, int64_t offset, bool tell);
/* A new chunk table: sealed segments from index bytes, the rest from the batches; a new feeder. */
void time_log_restart(struct time_log *log);
void time_log_drop_calendar(struct time_log *log);
/* Runs the feeder until it has nothing left. */
void time_log_feed(struct time_log *log);

int64_t time_log_brute_force(const struct time_log *log, int64_t timestamp_ms, int64_t from_offset);

struct time_log_cost {
    uint64_t nodes_max, bytes_max;  /* of one query */
    unsigned chunks_max;
    bool calendar_used, calendar_refuted; /* by any */
};
/* As a client would: on a candidate it looks into the batch and goes on. -1: END. `calendar` NULL: none. */
int64_t time_log_ask(const struct time_log *log, int64_t timestamp_ms, int64_t from_offset,
                     const struct fq_calendar_answer *calendar, struct time_log_cost *inout_cost);
/* Asks with what the calendar says. */
int64_t time_log_ask_calendar(struct time_log *log, int64_t timestamp_ms, int64_t from_offset,
                              struct time_log_cost *inout_cost);

#endif
