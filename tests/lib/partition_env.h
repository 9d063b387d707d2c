/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One partition on a real store in a directory of its own, driven by hand: the test is shard,
 * housekeeper and flusher at once. The clock stands still unless the test moves it.
 */
#ifndef FQ_TESTS_PARTITION_ENV_H
#define FQ_TESTS_PARTITION_ENV_H

#include "partition/partition.h"
#include "storage/meta.h"

#define ENV_BATCH_MAX (1u << 20)

struct env_params {
    enum fq_flush flush;
    enum fq_durability durability;
    uint64_t segment_bytes;       /* 0: 1 MiB */
    uint64_t segment_bytes_first; /* 0: segment_bytes */
    uint64_t retention_bytes;
    uint32_t message_max_bytes; /* 0: 1 MiB */
    uint32_t batch_max_bytes;   /* 0: ENV_BATCH_MAX */
    uint32_t max_in_flight;     /* 0: 5 */
    struct fq_persist *persist; /* NULL: a real one */
};

struct env {
    char dir[128];
    struct env_params params;
    struct fq_store *store;
    struct fq_partition_host host;
    struct fq_partition_config config;
    struct fq_view *view_line; /* 64-byte aligned, of this env */
    struct fq_partition *partition;
    struct fq_meta *meta; /* the calendar; survives restarts */
    struct fq_meta_key key;
    int64_t wall_ms;
    bool is_calendar_full; /* the housekeeper's ring takes nothing */
    uint64_t marks_count, cuts_count;
    int64_t calendar_complete_to;
    void *snapshot; /* given to the next open; NULL: none */
    size_t snapshot_bytes;
    int32_t leader_epoch;
    uint8_t *batch; /* for env_batch */
};

/* All of these end the process (and so fail the running test) when something fails that should not.
 */
void env_open(struct env *env, const struct env_params *params);
void env_close(struct env *env);   /* clean; removes the directory */
void env_restart(struct env *env); /* clean stop and start */
/* As after kill -9 now: what has reached the files stays, nothing more is written. */
void env_crash(struct env *env);
void env_take_snapshot(struct env *env); /* for the next open */
void env_drop_snapshot(struct env *env);
void env_lose_calendar(struct env *env); /* before a restart */

/* Housekeeper and flusher, until they have nothing to do. */
void env_step(struct env *env);
/* Rounds until everything appended is committed. */
int64_t env_commit(struct env *env);

/* A batch in env->batch; returns its length. */
struct env_record {
    int64_t timestamp_ms;
    const void *value;
    size_t value_bytes;
};
uint64_t env_batch(struct env *env, int64_t producer_id, int16_t epoch, int32_t sequence,
                   const struct env_record *records, size_t count);
/* Appends env->batch for a producer; steps the store while the log is starved. */
int env_append(struct env *env, uint64_t bytes, int64_t producer_id, int16_t epoch,
               struct fq_append_result *ret, struct fq_err *err);
/* Both, with one record of `value`; expects it to be taken. */
int64_t env_put(struct env *env, int64_t producer_id, int32_t sequence, int64_t timestamp_ms,
                const char *value);
void env_producer(struct env *env, int64_t producer_id); /* opens it with epoch 0, sequence 0 */

struct fq_time_query_answer env_time_query(struct env *env, int64_t timestamp_ms,
                                           int64_t from_offset);

#endif
