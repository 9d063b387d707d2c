/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The partitions that one shard hosts: found by (topic id, index), opened on first use, given a
 * line of the view region, driven through their rounds. Sessions hang their slots and readers on a
 * hosted partition and are told when it advances, goes offline or goes away.
 *
 * States of a hosted partition
 *   KNOWN    partition is NULL: nothing of it was used yet; costs some 300 bytes
 *   OPEN     partition is set, it has a view line
 *   OFFLINE  OPEN, and `offline` is a code: takes no batches, its readable data is still read
 *
 * One thread: its shard's. Only the gauges are read by others.
 */
#ifndef FQ_SESSION_HOSTED_H
#define FQ_SESSION_HOSTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "partition/partition.h"
#include "session/chain.h"
#include "session/counters.h"
#include "session/task.h"

/* A partition's figures for answers given elsewhere (METADATA): written by its shard with relaxed
 * stores after each round, before anything was acknowledged; read by the housekeeper. */
struct fq_gauges {
    _Atomic int64_t log_start, end;
    _Atomic uint64_t bytes;
    _Atomic int32_t state; /* 0, or a FLASHQ_ERR_ code */
    _Atomic int32_t leader_epoch;
};

struct fq_slot;
struct fq_remote_reader;
struct fq_hosted;

struct fq_hosted_topic {
    struct fq_uuid id;
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_topic_config config;
    uint32_t partitions;
    struct fq_hosted **hosted; /* by index; NULL: another shard's */
};

struct fq_hosted {
    struct fq_hosted_topic *topic;
    uint32_t index;
    struct fq_gauges *gauges;
    struct fq_partition *partition;
    struct fq_partition_host host;
    struct fq_hosted_table *table;
    uint32_t view_line, view_generation;
    int64_t high_watermark; /* as of the last round */
    uint64_t starved_in;    /* the turn of fq_sessions_take that found no segment */
    int offline;
    bool is_active;         /* in table->active */
    bool is_restless;       /* in table->restless */
    struct fq_slot *slots;  /* lists of the sessions' objects */
    struct fq_slot *holder; /* append=direct: who has been lent the log's memory; NULL: nobody */
    struct fq_remote_reader *readers;
    struct fq_chain armed;       /* readers that wait for the high watermark */
    struct fq_chain pushes_idle; /* pushes that wait for it */
};

/* What happens to a hosted partition, told to the session layer. */
enum fq_hosted_event {
    FQ_HOSTED_ADVANCED,  /* the high watermark rose */
    FQ_HOSTED_OFFLINE,   /* `offline` was set */
    FQ_HOSTED_TRIMMED,   /* the log start rose: segments below it are to be given back */
    FQ_HOSTED_TRUNCATED, /* the end fell */
    FQ_HOSTED_REMOVED    /* about to be closed and freed: let go of it */
};

/* One item for the calendar, in order per partition. */
enum fq_calendar_item_kind {
    FQ_CALENDAR_ITEM_MARK,
    FQ_CALENDAR_ITEM_ADVANCE,
    FQ_CALENDAR_ITEM_CUT
};
struct fq_calendar_item {
    struct fq_uuid topic_id;
    uint32_t partition;
    enum fq_calendar_item_kind kind;
    enum fq_calendar_cut cut;
    struct fq_calendar_mark mark;
    int64_t offset; /* complete_to, or where to cut */
};

struct fq_hosted_params {
    struct fq_store *store;
    const struct fq_clock *clock;
    struct fq_counters *counters;
    unsigned shard, shards_count;
    struct fq_view *views; /* zeroed */
    uint32_t views_count;
    uint32_t batch_max_bytes; /* the largest batch taken */
    uint32_t max_in_flight;
    int64_t producer_expiration_ms;
    /* false: no room now. */
    bool (*calendar_push)(void *context, const struct fq_calendar_item *item);
    /* Consumes the task. */
    void (*submit)(void *context, struct fq_task *task);
    void (*on_event)(void *context, struct fq_hosted *hosted, enum fq_hosted_event event);
    void *context;
};

struct fq_hosted_list {
    struct fq_hosted **items;
    size_t count, capacity;
};

struct fq_hosted_table {
    struct fq_hosted_params params;
    uint8_t *scratch;
    struct fq_hosted_topic **topics; /* sorted by id */
    size_t topics_count, topics_capacity;
    struct fq_hosted_list open;     /* all that are OPEN; bounds the capacity of the others */
    struct fq_hosted_list active;   /* wants rounds */
    struct fq_hosted_list restless; /* wants work off the path */
    uint32_t *free_lines;           /* a stack of view lines */
    uint32_t free_lines_count;
    uint32_t next_generation;
    int64_t next_sweep_us; /* when all open ones are asked for work off the path */
    int64_t next_off_path_us;
    struct fq_wall_recent wall;
};

int fq_hosted_table_init(struct fq_hosted_table *table, const struct fq_hosted_params *params);
/* Closes all partitions; `clean` hands their snapshots over first. */
void fq_hosted_table_fini(struct fq_hosted_table *table, bool clean);

/* Begins to serve the topic's partitions that are this shard's, or those added since. */
int fq_hosted_serve(struct fq_hosted_table *table, const struct fq_hosted_spec *spec);
void fq_hosted_configure(struct fq_hosted_table *table, const struct fq_hosted_spec *spec);
/* Tells FQ_HOSTED_REMOVED for each, closes and forgets them; unknown is fine. */
void fq_hosted_remove(struct fq_hosted_table *table, const struct fq_uuid *topic_id);

/* UNKNOWN_TOPIC_ID, NOT_FOUND (no such partition), NOT_LEADER (another shard has it; the text says
 * which). Never opens. */
int fq_hosted_find(struct fq_hosted_table *table, const struct fq_uuid *topic_id, uint32_t index,
                   struct fq_hosted **ret, struct fq_err *err);
/* OPEN from here on. Blocks when there is data to recover; `task` (may be NULL) has the snapshot.
 */
int fq_hosted_open(struct fq_hosted *hosted, const struct fq_task *task, struct fq_err *err);

/* It was appended to: it gets rounds until it needs none. */
void fq_hosted_touch(struct fq_hosted *hosted);
/* One round for each active partition; returns how many advanced. */
unsigned fq_hosted_rounds(struct fq_hosted_table *table);
/* Work off the path, snapshots, retention: a bounded amount, at most once in 100 ms per call.
 * Returns how much was done. */
unsigned fq_hosted_off_path(struct fq_hosted_table *table, int64_t now_us);
/* When fq_hosted_off_path wants to run next; INT64_MAX: not before something is appended. */
int64_t fq_hosted_next_deadline_us(const struct fq_hosted_table *table);

/* Trims and tells FQ_HOSTED_TRIMMED. */
int fq_hosted_trim(struct fq_hosted *hosted, int64_t before_offset, struct fq_err *err);
/* Drops everything at and above the offset, and tells FQ_HOSTED_TRUNCATED. */
int fq_hosted_truncate(struct fq_hosted *hosted, int64_t offset, struct fq_err *err);

#endif
