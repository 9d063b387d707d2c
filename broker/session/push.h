/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes: the committed log of a partition, written into a ring of the client as a stream of bytes.
 *
 *                          written to the end
 *                     .-----------------------> IDLE     in hosted->pushes_idle
 *                     |   <--------------------          the high watermark rose
 *     opened --> READY
 *                     |   <--------------------          the client gave credit
 *                     '-----------------------> STALLED  in no list
 *                          no credit is left
 *
 *   READY    in pushes->ready: there are bytes to write, or a head to tell of them
 *   IDLE     all that is committed is written and told of
 *   STALLED  the ring is full; nobody looks at it until a credit comes
 *
 * A push that stops or is closed is freed; its reader and its line stay.
 *
 * Bytes go from the mapped segment to the client's ring without a copy in between, so the transport
 * may read the segment long after the step: each write is a flight, which pins its segment until it
 * is COMPLETED. A segment that the log has given up is not waited for longer than FQ_RETIRING_MS.
 *
 * One thread: the shard's. push.c writes; push_open.c opens, closes and stops.
 */
#ifndef FQ_SESSION_PUSH_H
#define FQ_SESSION_PUSH_H

#include "session/chain.h"
#include "session/session_internal.h"

/* Of one push and of all pushes of a shard in one step: what a batch that arrives meanwhile waits
 * for is a copy of so many bytes. (Draining a stored log over shm: anything from 128 to 512 KiB a step is
 * as fast within the noise of a busy machine; 1 MiB a run and step, with 2 MiB under way, 20 % slower with
 * records of 64 B, 44 % with 1 KB, though a quarter faster over tcp.) */
#define FQ_PUSH_RUN_BYTES  (256u << 10)
#define FQ_PUSH_STEP_BYTES (512u << 10)
/* Of one connection: what an acknowledgement on it may have to wait behind. */
#define FQ_PUSH_FLIGHTS      64u
#define FQ_PUSH_FLIGHT_BYTES (1u << 20)

#define FQ_PUSH_COOKIE UINT64_C(0x70757368)

enum fq_push_state { FQ_PUSH_READY, FQ_PUSH_IDLE, FQ_PUSH_STALLED };

struct fq_push {
    struct fq_remote_reader *reader;
    struct fq_pushes *pushes;
    struct fq_chain link; /* by state */
    enum fq_push_state state;
    uint32_t line;
    int stop_reason; /* once everything committed is told of; 0: none */

    /* Where the next byte comes from. */
    struct fq_segment *segment; /* pinned; NULL: the partition has none yet */
    uint64_t position;          /* in its data */
    uint64_t damage_at;         /* in its data: where the first damage known begins; UINT64_MAX */
    size_t damage_count;        /* of the log, when damage_at was looked up */
    int64_t from_offset;        /* while there is no segment */

    /* Where it goes to. */
    struct fq_remote *ring;
    uint64_t ring_bytes;
    uint64_t tail;            /* bytes the fabric has taken; told <= tail <= consumed + ring_bytes */
    uint64_t told;            /* of them, what a head has told of */
    uint64_t consumed;        /* the client's last word */
    struct fq_push_head head; /* as it is written: its bytes are the fabric's to read */
};

struct fq_flight {
    struct fq_segment *segment; /* pinned */
    struct fq_hosted *hosted;   /* to compare with only: it may be gone */
    uint64_t bytes;
    int64_t cut_at_us; /* INT64_MAX: the log still has the segment */
};

/* The pushes of one connection. */
struct fq_pushes {
    struct fq_session *session;
    struct fq_chain link;   /* host->pushing, while something can be written */
    struct fq_chain flying; /* host->flying, while there are flights */
    struct fq_chain ready;
    bool is_blocked; /* the connection's queue is full: until WRITABLE */

    uint32_t lines, open_count;
    struct fq_push **by_line;
    struct fq_remote *heads;
    struct fq_region *credits;
    struct fq_window *window;

    struct fq_flight flights[FQ_PUSH_FLIGHTS]; /* in post order, a ring */
    uint32_t flights_head, flights_count;
    uint64_t flights_bytes;
    int64_t cut_at_us; /* the earliest of the flights'; INT64_MAX: none */
};

/* ---- push.c --------------------------------------------------------------------------------- */
void fq_push_make_ready(struct fq_push *push);
/* Its place in one of the states, or stopped and gone. */
void fq_push_settle(struct fq_push *push);
/* Goes on at a position of another segment. */
void fq_push_enter(struct fq_push *push, struct fq_segment *segment, uint64_t position);

/* Forgets what is under way. */
void fq_pushes_land_all(struct fq_pushes *pushes);

/* ---- push_open.c ---------------------------------------------------------------------------- */
/* Tells the client, and frees. */
void fq_push_stop(struct fq_push *push, int reason);

#endif
