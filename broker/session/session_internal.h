/* SPDX-License-Identifier: Apache-2.0 */
/* The session's inside, shared by the files of this folder and by nobody else. */
#ifndef FQ_SESSION_SESSION_INTERNAL_H
#define FQ_SESSION_SESSION_INTERNAL_H

#include "session/session.h"

#define FQ_READER_SEGMENTS_MAX      16 /* segments one reader may hold at a time */
#define FQ_SESSION_TASKS_MAX        64 /* requests of one session that other threads work on */
#define FQ_SESSION_UNSENT_BYTES_MAX (4 * FQ_LIMIT_CONTROL_BYTES)
#define FQ_ACK_HEAD_BYTES           sizeof(struct fq_ack_head)
#define FQ_ACK_ENTRY_BYTES          sizeof(struct fq_ack_entry)
#define FQ_RETIRING_MS              5000 /* how long a reader may keep a retired segment */

enum fq_session_state { FQ_SESSION_NEW, FQ_SESSION_OPEN, FQ_SESSION_ENDING, FQ_SESSION_DEAD };

/* A message that the fabric had no room for. */
struct fq_unsent {
    struct fq_unsent *next;
    size_t length;
    uint8_t bytes[];
};

/* A slot: one producer of one partition. Lives until it is closed and nothing of it is pending. */
struct fq_slot {
    struct fq_session *session;
    struct fq_hosted *hosted;     /* NULL once the partition is gone */
    struct fq_slot *next, **link; /* in hosted->slots */
    uint32_t handle;
    int64_t producer_id;
    int16_t producer_epoch;
    uint8_t acks;
    uint32_t notifies; /* taken so far: numbers the acknowledgements */
    uint32_t pending;  /* acknowledgements not written yet */
    int failed;        /* what later batches are answered with; 0: fine */
    bool is_closed;
    bool is_held;             /* within one pass over the pending: an earlier one waits */
    struct fq_direct *direct; /* append=direct; NULL: staged, or closed */
};

/* A batch that was taken from the ring and is to be acknowledged. */
struct fq_pending {
    struct fq_slot *slot; /* NULL: its slot is gone */
    struct fq_ack_entry entry;
    int64_t end_offset; /* committed when the high watermark reaches it; status 0 only */
};

/* The producer's side of a connection. */
struct fq_ring {
    bool is_opening;
    struct fq_region *region; /* mirrored; NULL until open */
    struct fq_window *window;
    const uint8_t *base;
    uint64_t bytes;    /* of the window */
    uint64_t consumed; /* bytes taken since open; position is this modulo bytes */

    uint32_t entries;   /* of the client's ring: its credits */
    uint32_t *notifies; /* slots notified and not taken yet: a ring of `entries` */
    uint32_t notifies_head, notifies_count;
    struct fq_pending *pending; /* in notify order */
    uint32_t pending_count;

    struct fq_remote *acks;    /* the client's ring */
    struct fq_region *staging; /* where entries are written from; entry i lies where it will lie
                                  in the client's ring, so it outlives its write */
    struct fq_ack_head head;   /* as of the next post */
    uint64_t posted_tail, posted_consumed;
    int64_t credit;  /* bytes that its turn still allows; below 0: it had more than its turn */
    bool is_starved; /* the first batch waits for a segment */
};

struct fq_held_segment {
    struct fq_segment *segment; /* pinned; NULL: free */
    struct fq_window *window;
    uint64_t id;
    uint64_t order;    /* of opening */
    int64_t cut_at_us; /* INT64_MAX: not retiring */
};

struct fq_remote_reader {
    struct fq_session *session;
    struct fq_hosted *hosted;              /* NULL once the partition is gone */
    struct fq_remote_reader *next, **link; /* in hosted->readers */
    uint32_t handle;
    struct fq_chain armed; /* in hosted->armed, or in none */
    int64_t armed_offset;
    struct fq_push *push; /* NULL: it reads by itself */
    bool is_wake_due;     /* the notify is to be posted */
    unsigned held_count;
    uint64_t opened; /* segments, so far */
    struct fq_held_segment held[FQ_READER_SEGMENTS_MAX];
};

struct fq_session {
    struct fq_session_host *host;
    struct fq_conn *conn;
    uint32_t handle;
    enum fq_session_state state;
    bool is_due;          /* in host->due */
    bool has_goodbye;     /* it was told that the broker stops */
    int64_t deadline_us;  /* NEW, ENDING: when it ends; INT64_MAX else */
    int64_t retire_at_us; /* earliest cut of a held segment; INT64_MAX: none */
    unsigned tasks;       /* with other threads */
    unsigned wakes_due;   /* readers with is_wake_due */
    char client_id[FQ_LIMIT_CLIENT_ID_BYTES + 1];
    uint64_t heard;            /* messages and notifies: its CPU is alive */
    unsigned heartbeats_asked; /* ours, not answered yet */

    struct fq_chain taking; /* in host->taking while there are batches to take */
    struct fq_window *views;
    struct fq_ring ring;
    struct fq_handles slots;
    struct fq_direct *directs; /* of its slots */
    unsigned directs_waiting;  /* for a segment */
    struct fq_handles readers;
    struct fq_pushes *pushes; /* NULL before PUSH_SETUP */

    struct fq_unsent *unsent, **unsent_end;
    size_t unsent_bytes;
};

/* ---- session.c ------------------------------------------------------------------------------ */
void fq_session_make_due(struct fq_session *session);
/* Sends, or keeps for later; ends the session when the peer does not read. */
void fq_session_send(struct fq_session *session, const void *bytes, size_t length);
/* Takes an encoder's result; one that is not a message ends the session. */
void fq_session_send_encoded(struct fq_session *session, const uint8_t *bytes, int64_t encoded);
void fq_session_refuse(struct fq_session *session, const struct fq_msg *msg, int code,
                       const char *text);
/* The peer broke the protocol: counts, logs, and ends the connection, with a GOODBYE that says why.
 */
void fq_session_end(struct fq_session *session, enum fq_counter_id why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- slots.c -------------------------------------------------------------------------------- */
int fq_ring_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
void fq_ring_on_region(struct fq_session *session, struct fq_task *task);
int fq_ring_on_producer_open(struct fq_session *session, const struct fq_msg *msg,
                             struct fq_err *err);
int fq_ring_on_producer_close(struct fq_session *session, const struct fq_msg *msg,
                              struct fq_err *err);
/* Frees a closed slot of which nothing is pending any more. */
void fq_slot_free_if_done(struct fq_slot *slot);
void fq_ring_on_hosted_gone(struct fq_slot *slot);
void fq_ring_close(struct fq_session *session);

/* ---- ring.c --------------------------------------------------------------------------------- */
void fq_ring_on_notify(struct fq_session *session, uint32_t slot);
/* Takes what was notified; stops when starved. Returns the batches taken. */
/* Out of turn, before what would leave the batches without their slot. */
void fq_ring_drain_all(struct fq_session *session);
/* Writes the acknowledgements that are due, then posts them. Returns how many were written. */
unsigned fq_ring_acknowledge(struct fq_session *session);
/* Something is taken and not acknowledged, or acknowledged and not posted. */
bool fq_ring_is_waiting(const struct fq_session *session);

/* The slot's next acknowledgement, to be written when its outcome is known; status 0 needs
 * end_offset. `slot` NULL: gone. */
struct fq_pending *fq_ring_add_pending(struct fq_ring *ring, struct fq_slot *slot, uint32_t handle,
                                       int status);
/* What became of a batch that a partition was given for the slot: acknowledgement, counters, and,
 * unless `code` is 0, the end of the slot. Negative: its length is a lie, the session ends. */
int fq_ring_note_outcome(struct fq_slot *slot, int code, const struct fq_append_result *result,
                         const struct fq_err *err);

/* ---- readers.c ------------------------------------------------------------------------------ */
int fq_reader_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
int fq_reader_on_close(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
int fq_reader_on_segment_open(struct fq_session *session, const struct fq_msg *msg,
                              struct fq_err *err);
int fq_reader_on_segment_close(struct fq_session *session, const struct fq_msg *msg,
                               struct fq_err *err);
int fq_reader_on_arm(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
int fq_reader_find(struct fq_session *session, uint32_t handle, struct fq_remote_reader **ret,
                   struct fq_err *err);
/* Those that are armed below the high watermark are woken. */
void fq_readers_on_advanced(struct fq_hosted *hosted);
void fq_reader_on_trimmed(struct fq_remote_reader *reader, int64_t now_us);
void fq_reader_on_reset(struct fq_remote_reader *reader, int reason, bool is_gone);
/* Posts the wake-ups that are due; returns how many. */
unsigned fq_readers_wake(struct fq_session *session);
/* Takes back the segments whose time is over. */
unsigned fq_readers_cut(struct fq_session *session, int64_t now_us);
void fq_readers_close(struct fq_session *session);

/* ---- push.c, push_open.c -------------------------------------------------------------------- */
int fq_push_on_setup(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
int fq_push_on_open(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
int fq_push_on_close(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
void fq_push_close_of(struct fq_remote_reader *reader); /* without a word; none is fine */
/* A bounded amount for each of the host's pushes that have something to write. Returns how many had
 * a turn. */
unsigned fq_pushes_step(struct fq_session_host *host);
void fq_pushes_on_credit(struct fq_session *session, uint32_t imm);
void fq_pushes_on_writable(struct fq_session *session);
void fq_pushes_on_completed(struct fq_session *session); /* the oldest write */
void fq_pushes_on_advanced(struct fq_hosted *hosted);
void fq_pushes_on_trimmed(struct fq_hosted *hosted);
void fq_pushes_on_truncated(struct fq_hosted *hosted);
void fq_push_on_offline(struct fq_remote_reader *reader);
void fq_push_on_removed(struct fq_remote_reader *reader);
/* The host's writes that are under way from segments the partition no longer has get their time. */
void fq_pushes_on_taken_away(struct fq_session_host *host, const struct fq_hosted *hosted,
                             bool is_removed, int64_t now_us);
/* Ends the session when that is over. */
bool fq_pushes_cut(struct fq_session *session, int64_t now_us);
void fq_pushes_stop(struct fq_session *session, int reason); /* all of the session */
int64_t fq_pushes_cut_at_us(const struct fq_session *session);
/* Ends them without a word; what is under way stays pinned. */
void fq_pushes_fini(struct fq_session *session);
/* Once the connection is closed, so that nothing is under way. */
void fq_pushes_free(struct fq_session *session);

/* ---- requests.c ----------------------------------------------------------------------------- */
/* Sends the message on to the housekeeper. */
int fq_request_forward(struct fq_session *session, const struct fq_msg *msg, const void *bytes,
                       size_t length, struct fq_err *err);
int fq_request_time_query(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err);
void fq_request_on_calendar(struct fq_session *session, struct fq_task *task);
/* LIMIT when the session has too many under way; else a task that names it. */
int fq_request_task(struct fq_session *session, const struct fq_msg *msg, enum fq_task_type type,
                    struct fq_task **ret, struct fq_err *err);
/* Hands it to the housekeeper. */
void fq_request_submit(struct fq_session *session, struct fq_task *task);

#endif
