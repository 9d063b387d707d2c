/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What threads of the broker ask of each other: small heap objects that travel through rings, off
 * the path of a record. Exactly one thread holds a task at a time; who finishes it frees it. All go
 * by way of the housekeeper: shard -> housekeeper -> shard, never shard -> shard.
 *
 *   type             from         to           and then
 *   REQUEST          shard        housekeeper  handled there, or sent on to the owning shard
 *   OWNER            housekeeper  owner shard  fills in the answer, sends it back as ANSWER
 *   ANSWER           any          origin shard the session, if it is still there, sends the answer
 *   RING             shard        housekeeper  makes the region; comes back as RING
 *   CALENDAR         shard        housekeeper  asks the calendar; comes back as CALENDAR
 *   SNAPSHOT         shard        housekeeper  stored in meta.pool; freed there
 *   SERVE            housekeeper  shard        partitions [from, to) of a topic are served from now
 * on OPEN             housekeeper  shard        at start: open this partition, with its snapshot;
 *                                              comes back as OPEN
 *   CONFIGURE        housekeeper  shard        new settings of a topic
 *   REMOVE           housekeeper  shard        close a topic's partitions; comes back as REMOVE
 */
#ifndef FQ_SESSION_TASK_H
#define FQ_SESSION_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "coord/topic.h"
#include "timeindex/timeindex.h"
#include "wire/protocol.h"

struct fq_region;
struct fq_gauges;

enum fq_task_type {
    FQ_TASK_REQUEST,
    FQ_TASK_OWNER,
    FQ_TASK_ANSWER,
    FQ_TASK_RING,
    FQ_TASK_CALENDAR,
    FQ_TASK_SNAPSHOT,
    FQ_TASK_SERVE,
    FQ_TASK_OPEN,
    FQ_TASK_CONFIGURE,
    FQ_TASK_REMOVE
};

struct fq_task {
    enum fq_task_type type;
    struct fq_task *next; /* while it waits in a list of its holder */

    unsigned shard;   /* where it came from */
    uint32_t session; /* the session's handle there */
    uint16_t msg_type;
    uint32_t correlation;
    int status; /* outcome, where `answer` does not say it */

    struct fq_uuid topic_id;
    uint32_t partition;
    int64_t offset;             /* OWNER of a TRIM */
    struct fq_time_query query; /* CALENDAR */
    struct fq_calendar_answer calendar;
    int64_t calendar_complete_to; /* OPEN */

    struct fq_region *region; /* RING; the holder's reference */
    uint64_t region_bytes;

    struct fq_hosted_spec *spec; /* SERVE, CONFIGURE; owned */

    uint8_t *bytes; /* REQUEST: the message; SNAPSHOT, OPEN: the snapshot; owned */
    size_t bytes_length;
    uint8_t *answer; /* the encoded answer; owned */
    size_t answer_length;
};

/* What a shard must know of a topic. */
struct fq_hosted_spec {
    struct fq_uuid topic_id;
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_topic_config config; /* resolved */
    uint32_t first_shard;
    uint32_t partitions;       /* now */
    struct fq_gauges **gauges; /* one per partition; the housekeeper's, valid until REMOVE came
                                  back; the array itself is copied */
};

struct fq_task *fq_task_create(enum fq_task_type type); /* NULL: no memory */
void fq_task_destroy(struct fq_task *task);             /* with all it owns; NULL is fine */

/* Encodes a failure as the task's answer, or nothing when there is no memory. */
void fq_task_fail(struct fq_task *task, int code, const char *text);
/* Room for an answer of at most `bytes`; NULL: no memory. */
uint8_t *fq_task_answer_room(struct fq_task *task, size_t bytes);
/* Takes the encoder's result: a length, or an error that becomes the answer. */
void fq_task_answered(struct fq_task *task, int64_t encoded);

/* A text as the protocol carries it: cut at FQ_WORDS_BYTES, control characters replaced. `buffer`
 * must live as long as the result. */
#define FQ_WORDS_BYTES 255
struct fq_str fq_words(const char *text, char buffer[FQ_WORDS_BYTES]);

#endif
