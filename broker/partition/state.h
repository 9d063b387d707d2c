/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a partition consists of, for the files of this folder only.
 *
 *            fq_partition_open                       any write or sync error
 *   (none) ---------------------> SERVING ---------------------------------> OFFLINE
 *                                    |                                          |
 *                                    +------------- close, delete -------------+--> (none)
 *
 *   SERVING  appends, commits, reads
 *   OFFLINE  refuses appends; the high watermark stands still; reads go on below it. Final
 *            until the broker is started again.
 */
#ifndef FQ_PARTITION_STATE_H
#define FQ_PARTITION_STATE_H

#include "partition/epochs.h"
#include "partition/partition.h"
#include "partition/producers.h"

#define FQ_PARTITION_INDEX_SUFFIX "index"

enum partition_state { PARTITION_SERVING, PARTITION_OFFLINE };

struct fq_partition {
    const struct fq_partition_host *host;
    struct fq_uuid topic_id;
    char topic[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    uint32_t index;
    struct fq_partition_config config;
    enum partition_state state; /* set by fq_partition_go_offline alone */
    struct fq_err offline_why;

    struct fq_log *log;
    struct fq_chunks *chunks;
    struct fq_producers producers;
    struct fq_epochs epochs; /* always with room for leader_epoch's entry */
    int32_t leader_epoch;

    int64_t published_end; /* log end at the last fq_log_publish */
    int64_t high_watermark;
    struct fq_segment *hw_segment; /* where it lies; NULL: not known (look it up), or no segment */
    uint64_t hw_position;          /* in hw_segment */
    int64_t hw_placed;             /* the offset that hw_segment and hw_position are of */
    struct fq_view *view_line;
    struct fq_view view; /* as last published */

    struct fq_calendar_feeder feeder;
    bool feeder_behind;   /* it said that there is more to do */
    bool cut_drop;        /* requests to the calendar that still have to be handed over, */
    int64_t cut_truncate; /* in this order; -1: none */
    int64_t cut_trim;

    int64_t index_next;          /* segments that begin below it have their index file */
    bool index_wanted;           /* one was sealed since */
    bool is_retention_due;       /* likewise */
    uint64_t snapshot_lag_bytes; /* of log that the last snapshot does not cover */
    struct fq_partition_stats stats;
};

void fq_partition_go_offline(struct fq_partition *partition, const struct fq_err *why);
/* The flusher may have taken the log offline: the partition follows. */
void fq_partition_look_at_log(struct fq_partition *partition);
/* Finds the segment and position of the high watermark and publishes the view if anything in it has
 * changed. */
void fq_partition_refresh_view(struct fq_partition *partition);
/* After segments may have gone: what points to them is looked up again. */
void fq_partition_forget_places(struct fq_partition *partition);

/* The calendar's share of a round: at most `chunks_max` chunks are fed. */
void fq_partition_feed_calendar(struct fq_partition *partition, unsigned chunks_max);

/* Chunks, producer states and epochs of everything the log has. `snapshot` as in the params. */
int fq_partition_recover(struct fq_partition *partition, const void *snapshot,
                         size_t snapshot_bytes, struct fq_err *err);
/* Adds the log's batches in [from, to) to the chunk index. */
int fq_partition_rescan_chunks(struct fq_partition *partition, int64_t from, int64_t to);
/* Encodes a sealed segment's chunks and queues them for its index file. */
void fq_partition_write_index(struct fq_partition *partition, struct fq_segment *segment);

/* Walks batch headers from the batch boundary (*position, *offset) to the batch that holds
 * `target`, or to the boundary at `target`. false: the headers do not lead there. */
bool fq_partition_walk(struct fq_segment *segment, int64_t target, uint64_t *position,
                       int64_t *offset);

#endif
