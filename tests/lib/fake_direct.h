/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The direct appends of the fake broker: a log made of windows that the client writes, in the broker's thread. Aborts when
 * the client breaks the protocol: a batch in the wrong place, torn, out of sequence, or sent although it is
 * in the log and the open's answer said so.
 */
#ifndef FQ_TESTS_FAKE_DIRECT_H
#define FQ_TESTS_FAKE_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "wire/protocol_codec.h"

#define FAKE_DIRECT_BATCH_BYTES  (32u << 10) /* batch_max_bytes of the session */
#define FAKE_DIRECT_WINDOW_BYTES (64u << 10) /* of all windows but a slot's first, which is random */
#define FAKE_DIRECT_LOG_BYTES    (64u << 20)

enum fake_direct_lie {
    DIRECT_HONEST,
    DIRECT_NUMBER_AHEAD, /* the first window has number 1 */
    DIRECT_NUMBER_AGAIN, /* the first comes twice */
    DIRECT_THREE,        /* three at once */
    DIRECT_BYTES_OVER,   /* more bytes than the token grants */
    DIRECT_BYTES_NONE,
    DIRECT_SMALL_NEXT,   /* the second cannot take the largest batch */
    DIRECT_BAD_TOKEN,
    DIRECT_NOT_THERE,    /* a last sequence without an offset */
    DIRECT_LIES_COUNT
};

struct fake_direct {
    bool is_on;
    _Atomic int lie;
    _Atomic int refuse_opens;  /* a code: every open is refused with it */
    _Atomic int revoke;        /* a reason: the slot is revoked; 0 again once it was */
    _Atomic int withhold;      /* no next window is granted */
    _Atomic int ask_beat;      /* a heartbeat is asked for; 0 again once it was */
    _Atomic int opens;         /* asked for */
    _Atomic int batches;       /* appended */
    _Atomic int beats;         /* heartbeats answered */
    _Atomic int windows;       /* granted */
    uint64_t seed;             /* of the first windows' sizes */

    /* The broker's thread; the test, once it has ended. */
    uint8_t *log;              /* every batch appended, stamped */
    size_t log_bytes;
    int64_t end;               /* next offset */
    int64_t producer_id;       /* the one producer known, and its last record */
    int16_t epoch;
    int32_t last_sequence;
    int64_t last_offset;

    uint32_t last_slot;        /* numbers given out */
    bool has_slot, is_revoked;
    bool has_lied;             /* about a window of this slot: what comes may be anywhere */
    uint32_t slot, notifies;
    struct fq_region *regions[2];
    struct fq_window *grants[2]; /* current, next */
    uint64_t sizes[2], position;
    uint32_t windows_count;
};

void fake_direct_begin(struct fake_direct *d);
void fake_direct_end(struct fake_direct *d);
void fake_direct_open(struct fake_direct *d, struct fq_conn *conn, const struct fq_msg *msg);
void fake_direct_close(struct fake_direct *d, struct fq_conn *conn, const struct fq_msg *msg);
/* A notify came: appends its batch and fills the acknowledgement. */
void fake_direct_notify(struct fake_direct *d, struct fq_conn *conn, uint32_t imm,
                        struct fq_ack_entry *ret);
/* Does what the test asked for. */
void fake_direct_step(struct fake_direct *d, struct fq_conn *conn);
/* The connection is gone. */
void fake_direct_drop(struct fake_direct *d);

#endif
