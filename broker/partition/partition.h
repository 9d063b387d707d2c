/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition on its shard: log + chunk index + producer states + high watermark + view. Takes
 * batches from hostile memory, makes them this broker's own, checks, stamps, appends, and says when
 * they are committed. Knows no connections: the session layer maps slots and readers to it.
 *
 * One thread: its shard. An append neither blocks nor allocates nor calls the system (but the log's
 * write on disks); a round allocates a few times per segment, for the chunk index. What may block
 * or take long waits for fq_partition_off_path_step, which the shard calls when it is idle, and
 * under load now and then while fq_partition_wants_off_path.
 */
#ifndef FQ_PARTITION_PARTITION_H
#define FQ_PARTITION_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/log.h"
#include "storage/store.h"
#include "timeindex/timeindex.h"
#include "wire/protocol.h"

struct fq_partition;

enum fq_durability { FQ_DURABILITY_PERSISTED = 0, FQ_DURABILITY_MEMORY = 1 };

struct fq_partition_config {
    uint64_t segment_bytes;
    uint64_t retention_bytes;       /* 0: unlimited */
    uint32_t message_max_bytes;     /* of one record: key + value + header names and values */
    int64_t timestamp_max_ahead_ms; /* -1: off */
    int64_t producer_expiration_ms; /* of producers that are not open; -1: never */
    uint32_t max_in_flight;         /* batches remembered per producer; <= FQ_LIMIT_MAX_IN_FLIGHT */
    enum fq_durability durability;
    bool is_direct; /* batches may be written in place; fixed when the partition is opened */
};

enum fq_calendar_cut {
    FQ_CALENDAR_TRIM,     /* fq_calendar_trim at offset */
    FQ_CALENDAR_TRUNCATE, /* fq_calendar_truncate at offset */
    FQ_CALENDAR_DROP      /* fq_calendar_drop: it was found wrong; it is fed anew */
};

/* What a shard gives its partitions. The calendar functions hand work to the housekeeper through a
 * ring and must neither block nor allocate; they return false when the ring is full, and are then
 * called again by a later round or off-path step. Requests of one partition must reach the calendar
 * in the order of the calls. */
struct fq_partition_host {
    uint8_t *scratch;     /* for one batch; shared by the shard's partitions */
    size_t scratch_bytes; /* = the largest batch that is taken (batch_max_bytes) */
    int64_t (*wall_ms)(void *context);
    /* `mark` NULL: only complete_to has advanced. Marks are of committed batches only. */
    bool (*calendar_mark)(void *context, struct fq_partition *partition,
                          const struct fq_calendar_mark *mark, int64_t complete_to);
    bool (*calendar_cut)(void *context, struct fq_partition *partition, enum fq_calendar_cut cut,
                         int64_t offset);
    void *context;
};

struct fq_partition_params {
    struct fq_store *store;
    const struct fq_partition_host *host; /* borrowed until close */
    struct fq_uuid topic_id;
    const char *topic;
    uint32_t index;
    struct fq_partition_config config;
    int32_t leader_epoch;      /* of this term; raised to the log's newest if that is above it */
    struct fq_view *view_line; /* 64-byte aligned, in memory that readers map or READ */
    uint32_t view_generation;  /* of that line; never used again for another partition */

    /* What the housekeeper has in meta.pool; each may be absent (NULL, 0) or damaged: then it is
     * rebuilt from the log. */
    const void *snapshot; /* fq_partition_snapshot_encode's bytes */
    size_t snapshot_bytes;
    int64_t calendar_complete_to; /* the calendar's; 0: empty. What lies between it and the end is
                                     fed again by off-path steps; what lies above the end is cut */
};

/* Recovers: opens the log, loads the chunks of sealed segments from their `.index` files (a missing
 * or damaged one is rebuilt by scanning that segment), scans the rest, rebuilds producer states
 * from the snapshot and the log after it (all of the log when there is no snapshot). The high
 * watermark is then what the log has durable. Blocks (disk). */
int fq_partition_open(const struct fq_partition_params *params, struct fq_partition **ret,
                      struct fq_err *err);
/* The last thing that readers see on the view line is SHUTTING_DOWN. NULL is fine. */
void fq_partition_close(struct fq_partition *partition, bool clean);
/* The topic was deleted: the last thing is UNKNOWN_TOPIC_ID. The files are left to
 * fq_store_delete_topic. NULL is fine. */
void fq_partition_close_deleted(struct fq_partition *partition);
void fq_partition_configure(struct fq_partition *partition,
                            const struct fq_partition_config *config);

/* ---- producers ------------------------------------------------------------------------------ */

struct fq_producer_opened {
    int32_t last_sequence; /* of the last record appended; -1: none known */
    int64_t last_offset;   /* its offset; -1 */
    int16_t epoch;         /* the newest known, = the one asked for */
};
/* FENCED if a newer epoch of the producer is known (the text names it); LIMIT when the partition
 * has FQ_LIMIT_PRODUCERS_PER_PARTITION producers that are all open (closed ones give way, the
 * longest closed first); INVALID: negative epoch or sequence. Allocates. Sequences go on across
 * epochs. A negative producer id opens nothing and is not remembered: its batches carry -1 as id,
 * epoch and sequence and are never recognised as duplicates. */
int fq_partition_producer_open(struct fq_partition *partition, int64_t producer_id, int16_t epoch,
                               int32_t next_sequence, struct fq_producer_opened *ret,
                               struct fq_err *err);
/* Once per successful open, when the slot goes away. The state stays (until it expires). */
void fq_partition_producer_close(struct fq_partition *partition, int64_t producer_id);

/* ---- append --------------------------------------------------------------------------------- */

struct fq_append_result {
    int64_t base_offset;
    int64_t end_offset; /* committed once the high watermark reaches this */
    bool duplicate;     /* stored before; base_offset is the original's */
    int64_t detail;     /* see fq_ack_entry.detail */
    uint64_t bytes;     /* how much of the ring the batch took, also when refused. 0 with an
                           error: its length is a lie, the ring position is lost, and the
                           connection must be closed. 0 with STARVED: nothing taken */
    bool moved_on;      /* in place: the batch is the first of the next segment */
};
enum fq_append { FQ_APPEND_OK = 0, FQ_APPEND_STARVED = 1 };

/* Takes the batch at `ring` (hostile: it may change while being read; at most `available` bytes are
 * there). On FQ_APPEND_OK it is in the log (or was before: duplicate) and not yet durable. The
 * batch must carry the slot's producer id and epoch. Negative: refused with that code and text,
 * nothing appended:
 *
 *   PROTOCOL         not a batch a client may send: magic, base offset, epoch, counts, lengths
 *   UNSUPPORTED      a codec or attribute that is not supported
 *   LIMIT            more than FQ_LIMIT_BATCH_RECORDS records
 *   CORRUPT          its checksum does not fit
 *   TOO_LARGE        batch or record over its limit (detail: the limit)
 *   TIMESTAMP        negative, or later than the clock allows (detail: the latest one accepted)
 *   SEQUENCE         not the next sequence (detail: the expected one)
 *   FENCED           a newer epoch of this producer was opened
 *   OFFLINE          the partition takes nothing any more (see fq_partition_state)
 *   MAYBE_PERSISTED  the medium failed while writing this batch; the partition is offline now
 *
 * and what fq_log_reserve says (NO_SPACE). */
int fq_partition_append(struct fq_partition *partition, const uint8_t *ring, uint64_t available,
                        int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                        struct fq_err *err);

/* What a producer has been lent of the log (fq_log_lend), and how far it has written. */
struct fq_in_place {
    uint64_t written;               /* data position in the open segment */
    const struct fq_log_loan *next; /* NULL: not lent */
    uint64_t written_next;          /* in its data */
};
/* Takes the batch that the producer has stored right above the log's end, or, when there is none,
 * at the start of the next segment, which becomes the open one. Its bytes must not change any more.
 * As fq_partition_append, but never STARVED. A duplicate is recognised and not appended: it, and
 * what follows it, cannot stay where it is. */
int fq_partition_append_in_place(struct fq_partition *partition, const struct fq_in_place *where,
                                 int64_t producer_id, int16_t producer_epoch,
                                 struct fq_append_result *ret, struct fq_err *err);

/* End of a poll round: publishes tail words, advances the high watermark over what is durable (or,
 * for memory durability, appended), publishes the view, hands marks to the calendar. Returns the
 * high watermark. When the partition has gone offline the high watermark stands still for good:
 * batches with an end_offset above it are answered MAYBE_PERSISTED. */
int64_t fq_partition_commit_round(struct fq_partition *partition);
/* There is something that a round would publish, or that is appended and not yet committed. */
bool fq_partition_needs_round(const struct fq_partition *partition);

/* Work that may allocate or touch files: memory for the chunk index, index files of sealed
 * segments, feeding the calendar what it lacks, expiry of producers. A bounded amount per call (at
 * most about 1 MiB of log is scanned); returns how much it did, 0: nothing to do. */
int fq_partition_off_path_step(struct fq_partition *partition);
bool fq_partition_wants_off_path(const struct fq_partition *partition);

/* ---- state, reading ------------------------------------------------------------------------- */
struct fq_log *fq_partition_log(struct fq_partition *partition);
int64_t fq_partition_high_watermark(const struct fq_partition *partition);
int64_t fq_partition_log_start(const struct fq_partition *partition);
int32_t fq_partition_leader_epoch(const struct fq_partition *partition);
size_t fq_partition_producers_count(const struct fq_partition *partition);
/* 0 serving, or the code (OFFLINE, ...) with its reason. */
int fq_partition_state(const struct fq_partition *partition, struct fq_err *ret_why);

struct fq_partition_stats {
    uint64_t batches, records, bytes; /* appended since open */
    uint64_t duplicates, refused, starved;
    uint64_t producers_evicted; /* gave way at the limit */
    uint64_t indexes_rebuilt, indexes_written;
    uint64_t scanned_bytes; /* of the log, by recovery */
};
void fq_partition_get_stats(const struct fq_partition *partition, struct fq_partition_stats *ret);

/* What readers see ends at the high watermark: a segment that is sealed in the log counts as open
 * here while the high watermark lies in it. TRIMMED, OUT_OF_RANGE (the texts name log start and
 * end), CORRUPT (the text names the next readable offset, which ret->position_offset carries). A
 * partition that has no segment yet (nothing was ever appended) answers 0 with segment_id 0 and
 * *ret_segment NULL: arm, and ask again. The segment is not pinned; region and token are the
 * session's to fill in. */
int fq_partition_segment_open(struct fq_partition *partition, int64_t offset,
                              struct fq_segment **ret_segment, struct fq_segment_open_answer *ret,
                              struct fq_err *err);
/* Where the committed bytes end, as the view says it: whole segments with lower base offsets, and
 * the part of this one below the position. Its segment is NULL while there is none. Holds until the
 * next round or cut. */
void fq_partition_committed_end(const struct fq_partition *partition, struct fq_log_place *ret);
/* before_offset -1: the high watermark; OUT_OF_RANGE above it; at or below the log start: nothing.
 */
int fq_partition_trim(struct fq_partition *partition, int64_t before_offset, struct fq_err *err);
int fq_partition_truncate(struct fq_partition *partition, int64_t offset, struct fq_err *err);
/* Returns the number of segments retired. */
int fq_partition_apply_retention(struct fq_partition *partition);
/* A segment was sealed since: applied now, the file that goes is the one that is needed next. */
bool fq_partition_is_retention_due(const struct fq_partition *partition);

/* Finishes a time query; `calendar` is what the calendar said (NULL: none). See timeindex.h. */
int fq_partition_time_query(struct fq_partition *partition, int64_t timestamp_ms,
                            int64_t from_offset, const struct fq_calendar_answer *calendar,
                            struct fq_time_query_answer *ret, struct fq_err *err);

/* ---- for meta.pool -------------------------------------------------------------------------- */

/* Producer states and leader epoch history as of the log's end. AGAIN while something is appended
 * and not committed (a snapshot must not run ahead of what a restart will find). Taken by the
 * shard, off the path; stored by the housekeeper under FQ_META_PRODUCERS in pieces of at most
 * FQ_META_VALUE_BYTES_MAX (node = piece number), all in one transaction that also removes pieces
 * that are no longer needed, and put together again for fq_partition_params.snapshot. Worth taking
 * after a clean stop, and whenever fq_partition_snapshot_lag has grown by some tens of MiB: that
 * much log is what the next start has to read. */
size_t fq_partition_snapshot_bytes(const struct fq_partition *partition);
/* The caller says so when what fq_partition_snapshot_encode gave was stored or will be. */
int fq_partition_snapshot_encode(const struct fq_partition *partition, void *out, size_t out_bytes,
                                 size_t *ret_length, struct fq_err *err);
void fq_partition_snapshot_taken(struct fq_partition *partition);
/* Bytes appended since the snapshot this partition was opened with or fq_partition_snapshot_taken.
 */
uint64_t fq_partition_snapshot_lag(const struct fq_partition *partition);

#endif
