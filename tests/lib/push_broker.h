/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker that follows a script: one topic "t" with one partition whose log is made by the test, read by
 * pulling and by pushing over a real fabric (tcp and shm), in a thread of its own. What it does wrong, or slowly,
 * the test says; what was asked of it, it counts.
 */
#ifndef FQ_TESTS_PUSH_BROKER_H
#define FQ_TESTS_PUSH_BROKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

enum push_lie {
    PUSH_HONEST,
    PUSH_TAIL_BACK,       /* the tail runs backwards */
    PUSH_TAIL_AHEAD,      /* ... is further than credit was given for */
    PUSH_TAIL_WRAPPED,    /* ... is near 2^64 */
    PUSH_FLIPPED,         /* one bit of a batch is another in the ring */
    PUSH_GAP,             /* a batch is left out */
    PUSH_TWICE,           /* a batch comes twice */
    PUSH_ZEROES,          /* nothing was written below the tail */
    PUSH_HUGE_LENGTH,     /* a batch says that it is larger than the ring */
    PUSH_TINY_LENGTH,     /* ... smaller than its header */
    PUSH_LOW_WATERMARK,   /* the head's high watermark stays 0 */
    PUSH_BAD_EPOCH,       /* the head's epoch is below the batches' */
    PUSH_OPEN_AHEAD,      /* begins behind the offset asked for */
    PUSH_OPEN_NEGATIVE,   /* begins at -7 */
    PUSH_BAD_CREDITS,     /* the credits' window is smaller than the lines agreed */
    PUSH_LINES_MORE,      /* more lines than asked for */
    PUSH_LINES_NONE,
    PUSH_STOPPED_GARBAGE, /* PUSH_STOPPED for readers there are not, with reasons that are none */
    PUSH_LIES_COUNT
};

struct push_broker {
    struct fq_listener *listener;
    enum fq_transport transport;
    char address[160];
    char directory[64];
    pthread_t thread;
    pthread_mutex_t lock;
    _Atomic int is_ending;
    _Atomic int lie;               /* enum push_lie */
    _Atomic int lie_after;         /* batches pushed honestly before it */
    _Atomic int lies_left;         /* lies told at most; then honest */
    _Atomic int refuse_setup, refuse_open; /* codes */
    _Atomic int stop_reason;       /* says PUSH_STOPPED once, with what is in the ring so far */
    _Atomic bool is_deaf;          /* answers nothing: messages wait */
    _Atomic bool holds_closes;     /* PUSH_CLOSE is answered later, and bytes are written until then */
    _Atomic bool is_stalled;       /* pushes nothing */
    _Atomic bool is_mute;          /* ... but tells the high watermark in its head */
    _Atomic bool kills;            /* drops the connection once */
    _Atomic uint64_t chunk;        /* bytes written at a time; 0: what there is room for */
    _Atomic int connections, setups, opens, closes, segment_opens, credits, stops;
    _Atomic uint64_t consumed;     /* the last credit */
    _Atomic bool broke_rules;      /* the client: credit backwards or ahead, a line in use, a head not cleared */
    /* the log: under the lock */
    struct fq_region *log;
    uint64_t log_bytes;
    int64_t end;
    struct {
        uint64_t position;
        int64_t offset;
    } batches[20000];
    size_t batches_count;
};

void push_broker_begin(struct push_broker *b, enum fq_transport transport);
void push_broker_end(struct push_broker *b);
/* Appends a batch of `count` records whose values are {offset as int64, then zeroes up to value_bytes}. */
void push_broker_append(struct push_broker *b, int count, size_t value_bytes);
/* Waits (10 s, then aborts) until the counter is at least `least`. */
void push_broker_await(_Atomic int *counter, int least);

#endif
