/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer of any number of partitions: the handle behind flashq_consumer. Everything is called with the
 * client's lock held.
 */
#ifndef FQ_CONSUMER_CONSUMER_H
#define FQ_CONSUMER_CONSUMER_H

#include "client/engine.h"
#include "client/metadata.h"
#include "consumer/message.h"
#include "consumer/reader.h"
#include "consumer/source.h"
#include "flashq/flashq.h"

struct fq_consumer {
    struct fq_member member;
    struct fq_engine *engine;
    struct fq_chain readers;
    struct fq_chain busy;         /* readers for which something is to be done */
    struct fq_chain parted;       /* topics without partitions, named in what the last poll handed out */
    struct fq_buffers buffers;
    struct fq_err last_error;
    bool wants_push;              /* what partitions assigned from now on begin with */
    int64_t reset;                /* FQ_RESET_*: what to do about an offset that is not there */

    /* what the last poll handed out */
    struct fq_message *messages;
    size_t messages_capacity;
    struct fq_source **pins;      /* the memory behind them */
    size_t pins_count, pins_capacity;
    unsigned polls_since_drive;
    struct fq_pread *turn;        /* who comes first at the next poll; NULL: the first reader */

    bool is_refreshing;
    struct fq_rtopic *refreshing; /* the topic asked about; holds a reference */
    int64_t refresh_us;
};

int fq_consumer_open(struct fq_engine *engine, struct fq_consumer **ret, struct fq_err *err);
void fq_consumer_close(struct fq_consumer *consumer);

int fq_consumer_assign(struct fq_consumer *consumer, const char *topic, int32_t partition,
                       int64_t offset, int64_t deadline_us, struct fq_err *err);
int fq_consumer_unassign(struct fq_consumer *consumer, const char *topic, int32_t partition);
/* Paused partitions keep their place and what was read ahead; poll passes over them. */
int fq_consumer_pause(struct fq_consumer *consumer, const char *topic, int32_t partition,
                      bool is_paused);
/* Pulled or pushed to, from exactly the place reached. topic NULL: all, also those assigned later. */
int fq_consumer_set_push(struct fq_consumer *consumer, const char *topic, int32_t partition,
                         bool wants_push);
int fq_consumer_poll(struct fq_consumer *consumer, const flashq_message **messages, size_t max,
                     int64_t deadline_us);

/* The reader of an assigned partition, or NULL. */
struct fq_pread *fq_consumer_find(struct fq_consumer *consumer, const char *topic, int32_t partition);
/* Moves a partition and waits until its position is known (or is a condition, which poll tells). */
int fq_consumer_seek(struct fq_consumer *consumer, struct fq_pread *reader, int64_t offset,
                     int64_t deadline_us);

/* Called by readers. */
void fq_consumer_drop_rtopic(struct fq_consumer *consumer, struct fq_rtopic *rtopic);
void fq_consumer_busy(struct fq_consumer *consumer, struct fq_pread *reader);
void fq_consumer_refresh(struct fq_consumer *consumer, struct fq_rtopic *rtopic);
void fq_consumer_note_error(struct fq_consumer *consumer, const struct fq_pread *reader, int code,
                            int64_t end);

#endif
