/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker that lies. It speaks the control protocol over a real fabric in a thread of its own, knows one
 * topic "t" with one partition, takes batches and then does what the test asks for.
 */
#ifndef FQ_TESTS_FAKE_BROKER_H
#define FQ_TESTS_FAKE_BROKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "fake_direct.h"

enum fake_lie {
    FAKE_HONEST,           /* acknowledges everything, at offsets that follow each other */
    FAKE_SILENT,           /* takes batches, answers none */
    FAKE_TAIL_AHEAD,       /* more entries than notifies */
    FAKE_TAIL_BACK,        /* the tail runs backwards */
    FAKE_CONSUMED_AHEAD,   /* consumed more than was written */
    FAKE_WRONG_NOTIFY,     /* acknowledges a notify that was not the next */
    FAKE_POSITIVE_STATUS,  /* a status that is neither success nor an error */
    FAKE_NEGATIVE_OFFSET,  /* success at offset -5 */
    FAKE_GARBAGE_MESSAGE,  /* bytes that are no message */
    FAKE_GARBAGE_ANSWERS,  /* every answer cut short by one byte */
    FAKE_OFFLINE,          /* no lie: every batch is refused as OFFLINE */
    FAKE_ROOM_APART,       /* no lie: acknowledges, but tells of room only when it is honest again */
    FAKE_REFUSING,         /* nor this: every batch gets `status` */
    FAKE_DUPLICATE,        /* every batch was stored before, at FAKE_DUPLICATE_OFFSET */
    FAKE_LIES_COUNT
};

#define FAKE_DUPLICATE_OFFSET 4711

struct fake_broker {
    struct fq_listener *listener;
    char address[64];              /* tcp:127.0.0.1:PORT */
    pthread_t thread;
    _Atomic int is_ending;
    _Atomic int lie;               /* enum fake_lie; may change at any time */
    _Atomic int status;            /* of FAKE_REFUSING */
    _Atomic int opens_most;        /* of slots; then they are BUSY; 0: any number */
    _Atomic int connections;       /* taken so far */
    _Atomic int notifies;          /* batches that came */
    _Atomic int is_cut;            /* the connection is closed; 0 again once it was */
    _Atomic int lies_at_close;     /* a slot is closed: the tail is far ahead, unannounced, and the slot revoked */
    _Atomic int entries_most;      /* of the ack ring that are agreed; 0: what the client asks for */
    struct fake_direct direct;     /* in use if the topic's appends are */
};

void fake_broker_begin(struct fake_broker *f, enum fake_lie lie);
/* The same with a topic of direct appends. */
void fake_broker_begin_direct(struct fake_broker *f, uint64_t seed);
/* Stops; what it was told stays to be looked at. fake_broker_end does it by itself. */
void fake_broker_stop(struct fake_broker *f);
void fake_broker_end(struct fake_broker *f);

#endif
