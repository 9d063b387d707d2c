/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes on one link: the broker writes batches into rings of ours (PROTOCOL.md, 2.5 and 3.5). The port is the
 * connection's part (head lines, credit lines); a push is one partition's ring. What a reader makes of them is
 * pushed.c's business. Thread: any, under the client's lock.
 *
 *            fq_rpush_open            answer to PUSH_OPEN       fq_rpush_close, fq_rpush_leave    answered
 *   (none) --------------> waiting ---------------------> open --------------------> closing ----------> (none)
 *                             |  refused                    |  PUSH_STOPPED: stopped    |  connection lost
 *                             +-----------------------------+---------------------------+--------> (none)
 *
 * The broker may write into the ring until it has answered PUSH_CLOSE, has said PUSH_STOPPED or has lost the
 * connection: so long the push stays in its port's list with its window, whatever became of its reader and its
 * consumer. The memory stays longer if the application was lent messages in it.
 */
#ifndef FQ_CONSUMER_PUSH_H
#define FQ_CONSUMER_PUSH_H

#include "client/link.h"
#include "consumer/source.h"

struct fq_consumer;
struct fq_pread;
struct fq_rpush_port;

struct fq_rpush {
    struct fq_source source;     /* the ring's memory */
    struct fq_source lease;      /* what the last poll handed out of it; refs 0: nothing */
    struct fq_chain node;        /* in port->pushes */
    struct fq_rpush_port *port;   /* NULL: the broker writes no more */
    struct fq_pread *reader;     /* NULL: nobody wants it any more */
    struct fq_buffers *buffers;  /* charged for the ring; NULL: no more */
    struct fq_region *region;
    struct fq_window *window;
    const uint8_t *ring;         /* mapped twice in a row */
    uint64_t ring_bytes;
    uint32_t line, reader_id;
    int64_t offset;              /* asked for */
    bool has_line, is_asked, is_closing;
    int stopped;                 /* PUSH_STOPPED came with this reason: `port` is NULL, `tail` the end */
    uint64_t tail;               /* the last seen: bytes since the push was opened */
    int64_t high_watermark;      /* the last that a head of this push told */
    uint64_t credited;           /* told the broker that it may write over */
    uint64_t batch_max_bytes;    /* what the broker takes as one batch; credit never keeps less room */
};

/* Asks the broker to push the reader's partition from `offset` on; fq_pushed_opened tells. AGAIN: no room in
 * fetch.buffer.bytes, or no line, now. Else the code with which the broker refused pushing at all, or what
 * making a ring failed with. */
int fq_rpush_open(struct fq_pread *reader, int64_t offset);
/* Asks the broker to stop; fq_pushed_closed tells, maybe before this returns. */
void fq_rpush_close(struct fq_pread *reader);
/* The reader goes away or starts over: the push is closed behind its back. */
void fq_rpush_leave(struct fq_pread *reader);
/* The broker said that it writes no more: what it told of before is still to be walked. */
void fq_rpush_stop(struct fq_pread *reader, int reason);
/* Nobody writes any more, and nobody wants what is there. */
void fq_rpush_drop(struct fq_pread *reader);
/* The consumer is closing. */
void fq_rpushes_forget(struct fq_consumer *consumer);

/* Looks at the head: push->tail, and the reader's high watermark and epoch. false: the head was a lie, and the
 * connection (with this push) is gone. */
bool fq_rpush_look(struct fq_rpush *push);
/* Gives credit for what came free, if it is worth a notify. */
void fq_rpush_settle(struct fq_rpush *push);

#endif
