/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition on its shard: log + chunk index + producer states + high watermark + view. Takes
 * batches from hostile memory, makes them this broker's own, checks, stamps, appends, and says when
 * they are committed. Knows no connections: the session layer maps slots and readers to it.
 *
 * One thread: its shard. Nothing here blocks or allocates on the path of a batch.
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
    uint64_t retention_bytes;         /* 0: unlimited */
    uint32_t message_max_bytes;
    int64_t timestamp_max_ahead_ms;   /* -1: off */
    int64_t producer_expiration_ms;
    uint32_t max_in_flight;
    enum fq_durability durability;
};

/* What a shard gives its partitions: scratch for one batch, the wall clock, a line for the view. */
struct fq_partition_host {
    uint8_t *scratch;                 /* fq batch_bytes_max + FQ_LIMIT_BATCH_OVERHEAD_BYTES bytes */
    size_t scratch_bytes;
    int64_t (*wall_ms)(void *context);
    void (*calendar_mark)(void *context, struct fq_partition *partition,
                          const struct fq_calendar_mark *mark, int64_t complete_to);
    void *context;
};

int fq_partition_open(struct fq_store *store, const struct fq_partition_host *host,
                      const struct fq_uuid *topic_id, const char *topic, uint32_t index,
                      const struct fq_partition_config *config, struct fq_view *view_line,
                      uint32_t view_generation, struct fq_partition **ret, struct fq_err *err);
void fq_partition_close(struct fq_partition *partition, bool clean);
int fq_partition_delete(struct fq_partition *partition, struct fq_err *err); /* closes too */
void fq_partition_configure(struct fq_partition *partition, const struct fq_partition_config *config);

/* ---- producers ------------------------------------------------------------------------------ */

struct fq_producer_opened {
    int32_t last_sequence;   /* -1: none known */
    int64_t last_offset;
    int16_t epoch;
};
/* FENCED if a newer epoch of the producer is known; LIMIT when the partition has too many. */
int fq_partition_producer_open(struct fq_partition *partition, int64_t producer_id, int16_t epoch,
                               int32_t next_sequence, struct fq_producer_opened *ret,
                               struct fq_err *err);

/* ---- append --------------------------------------------------------------------------------- */

struct fq_append_result {
    int64_t base_offset;
    int64_t end_offset;      /* committed once the high watermark reaches this */
    bool duplicate;          /* stored before; base_offset is the original's */
    int64_t detail;          /* see fq_ack_entry.detail */
    uint64_t bytes;          /* how much of the ring the batch took, also on most refusals */
};
enum fq_append { FQ_APPEND_OK = 0, FQ_APPEND_STARVED = 1 };

/* Takes the batch at `ring` (hostile: it may change while being read; at most `available` bytes are
 * there). On FQ_APPEND_OK it is in the log and not yet durable. Negative: refused with that code and
 * text, nothing appended. The batch must carry the slot's producer id and epoch. */
int fq_partition_append(struct fq_partition *partition, const uint8_t *ring, uint64_t available,
                        int64_t producer_id, int16_t producer_epoch, struct fq_append_result *ret,
                        struct fq_err *err);

/* End of a poll round: publishes tail words, advances the high watermark over what is durable (or, for
 * memory durability, appended), publishes the view. Returns the high watermark. */
int64_t fq_partition_commit_round(struct fq_partition *partition);
bool fq_partition_needs_round(const struct fq_partition *partition);

/* ---- state, reading ------------------------------------------------------------------------- */
const struct fq_uuid *fq_partition_topic_id(const struct fq_partition *partition);
const char *fq_partition_topic(const struct fq_partition *partition);
uint32_t fq_partition_index(const struct fq_partition *partition);
struct fq_log *fq_partition_log(struct fq_partition *partition);
int64_t fq_partition_high_watermark(const struct fq_partition *partition);
int32_t fq_partition_leader_epoch(const struct fq_partition *partition);
size_t fq_partition_producers_count(const struct fq_partition *partition);
/* 0 serving, or the code (OFFLINE, ...) with its reason. */
int fq_partition_state(const struct fq_partition *partition, struct fq_err *ret_why);

int fq_partition_segment_open(struct fq_partition *partition, int64_t offset,
                              struct fq_segment **ret_segment, struct fq_segment_open_answer *ret,
                              struct fq_err *err);
int fq_partition_trim(struct fq_partition *partition, int64_t before_offset, struct fq_err *err);
int fq_partition_truncate(struct fq_partition *partition, int64_t offset, struct fq_err *err);
int fq_partition_apply_retention(struct fq_partition *partition);

/* Finishes a time query; `calendar` is what the calendar said (NULL: none). See timeindex.h. */
int fq_partition_time_query(struct fq_partition *partition, int64_t timestamp_ms, int64_t from_offset,
                            const struct fq_calendar_answer *calendar,
                            struct fq_time_query_answer *ret, struct fq_err *err);

#endif
