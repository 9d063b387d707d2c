/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer for one topic: chooses the partition, fills batches, keeps them until acknowledged, reports.
 * Everything is called with the client's lock held (fq_engine_enter).
 */
#ifndef FQ_PRODUCER_PRODUCER_H
#define FQ_PRODUCER_PRODUCER_H

#include "base/clock.h"
#include "client/engine.h"
#include "client/metadata.h"
#include "flashq/flashq.h"
#include "producer/partition.h"
#include "producer/pool.h"
#include "producer/reports.h"

/* The record being built by the application: claim.c. */
struct fq_claim {
    struct fq_batch *batch;       /* NULL: none */
    struct fq_batch_claim place;  /* in it */
    uint8_t *memory;              /* what `place` counts from, where the application writes */
    struct fq_mapping mapping;    /* of a connection that ended meanwhile; `memory` lies there */
    void *user;
    uint64_t other_bytes;         /* key and headers */
    int code;                     /* why it cannot be committed any more */
};

struct fq_producer {
    struct fq_member member;
    struct fq_engine *engine;
    char topic[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_uuid topic_id;
    bool is_direct;               /* the topic's append mode */
    int persisted;                /* what an acknowledgement says: the topic's durability */
    int64_t producer_id;          /* 63 random bits */

    struct fq_ppart *pparts;
    int32_t pparts_count;
    struct fq_chain active;       /* pparts with work */
    int32_t sticky;               /* the partition of records without a key */
    bool sticky_is_new;           /* chosen, nothing put in yet */

    struct fq_claim claim;
    struct fq_pool pool;
    struct fq_batch_compressor compressor;
    struct fq_chain outstanding;  /* batches, by id */
    struct fq_chain spare;        /* batch structs without memory */
    uint64_t last_batch_id;
    uint64_t hurry_to_id;         /* a flush waits for batches up to this */
    unsigned starved;             /* sends that wait for memory */

    int64_t message_max_bytes;    /* the smaller of the client's and the topic's */
    int64_t batch_max_bytes;      /* likewise with the broker's */
    int64_t timestamp_max_ahead_ms; /* the topic's; -1: none known */
    struct fq_reports reports;
    struct fq_err last_error;
    flashq_producer_stats stats;

    bool is_refreshing;           /* metadata asked */
    int64_t refresh_us;           /* not again before */
    int64_t expire_us;            /* when the next batch may be too old */
    unsigned sends_since_drive;
    struct fq_wall_recent wall;
    int64_t posting_ns; /* what a call that posts at once has read the clock as; 0: nothing has */
    int64_t driven_ms; /* wall clock of the last turn a send gave the engine */
};

int fq_producer_open(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                     struct fq_producer **ret, struct fq_err *err);
/* Flushes up to the deadline, frees; returns the records given up. */
int64_t fq_producer_close(struct fq_producer *producer, int64_t deadline_us);

int fq_producer_send(struct fq_producer *producer, const flashq_record *record, int timeout_ms);
/* How many were taken: fewer than `count` with the reason in last_error, or that alone if none was. */
int64_t fq_producer_sendv(struct fq_producer *producer, const flashq_record *records, size_t count,
                          int timeout_ms);
int fq_producer_send_sync(struct fq_producer *producer, const flashq_record *record, int timeout_ms,
                          flashq_report *ret_report);
int fq_producer_flush(struct fq_producer *producer, int64_t deadline_us);
int fq_producer_poll(struct fq_producer *producer, flashq_report *reports, size_t max,
                     int64_t deadline_us);

/* Called by partitions. */

/* The batch is done: reports its records (status, and offsets from base_offset on) and frees it, or only
 * reports if `keeps` (it is still in flight). */
void fq_producer_batch_done(struct fq_producer *producer, struct fq_batch *batch, int status,
                            int persisted, int64_t base_offset, bool is_duplicate, bool keeps);
/* Forgets a batch that was reported before. */
void fq_producer_batch_free(struct fq_producer *producer, struct fq_batch *batch);
/* Asks for metadata soon, because a broker does not lead what we thought. */
void fq_producer_refresh(struct fq_producer *producer);
void fq_producer_note_error(struct fq_producer *producer, int code, const char *text);

#endif
