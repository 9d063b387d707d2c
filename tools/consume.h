/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading partitions from where to where: what `sub`, `replay` and the bench share. A lane is one
 * partition with its bounds; ends are pinned before reading starts, so that "exit at the end" ends
 * even while others write, and at once on an empty partition.
 */
#ifndef FQ_TOOLS_CONSUME_H
#define FQ_TOOLS_CONSUME_H

#include "tools/cli.h"
#include "tools/parse_time.h"
#include "tools/record.h"

#define FQ_STOP_NEVER INT64_MAX

struct fq_lane {
    char *topic;
    int32_t partition;
    int64_t start;   /* first offset to read */
    int64_t stop;    /* read offsets below this; FQ_STOP_NEVER */
    int64_t stop_ms; /* ends at the first record at or after this; INT64_MAX: no such end */
    bool is_done;
    bool is_left;    /* done, and to be unassigned when the messages in hand are used up */
    int64_t seek_to; /* likewise; -1 */
};

struct fq_lanes {
    struct fq_lane *lanes;
    size_t count;
    int failed; /* exit code of the first partition that cannot be read at all, already told */
};

/*
 * Adds the topic's partitions (all of them if partitions_count is 0) with the range resolved;
 * `is_to_end` pins the present end where the range has none. Complains; 0 or an exit code.
 */
int fq_lanes_add(struct fq_cli *cli, struct fq_lanes *lanes, const char *topic,
                 const int32_t *partitions, size_t partitions_count,
                 const struct fq_offset_range *range, bool is_to_end);
void fq_lanes_fini(struct fq_lanes *lanes);

struct fq_consume {
    struct fq_cli *cli;
    struct fq_lane *lanes;
    size_t lanes_count;
    bool has_headers;     /* the visitor wants them */
    int64_t max_records;  /* ends after so many; INT64_MAX */
    int64_t max_wait_ms;  /* ends after so long without a record; -1: never */
    /* Returns 0, or an exit code + 1 to end with it. */
    int (*visit)(void *context, const struct fq_rec *rec);
    /* Nothing came for a moment. May be NULL. */
    void (*idle)(void *context);
    void *context;

    uint64_t records;
    uint64_t damaged;     /* ranges met */
    bool is_timed_out;    /* ended by max_wait_ms */
    int failed;           /* exit code of the first lane that had to be given up */
};

/* Reads until every lane is done, max_records, max_wait_ms, an interrupt or the visitor's wish. Complains;
 * returns an exit code (0: some end was reached; see the fields). */
int fq_consume_run(struct fq_consume *consume);

#endif
