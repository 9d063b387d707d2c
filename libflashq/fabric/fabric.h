/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric: moves bytes between processes. One interface, shaped like RDMA verbs, with one back
 * end per transport (shm/, tcp/, verbs/) and a fault-injecting decorator (faulty.h).
 *
 * Vocabulary
 *   region    local memory prepared for remote access; gives nobody a right by itself
 *   window    a bounded, revocable grant (read or write) of part of a region to ONE connection
 *   token     the 32 opaque bytes that name a window to the peer; travels in a control message
 *   remote    the initiator's end of a window: what a token was opened to
 *   post      hand one or more operations to the transport with one doorbell
 *   notify    a 32-bit immediate that arrives after the bytes written before it
 *
 * Promises
 *   - send, write and write_notify of one connection take effect at the peer in post order; an
 *     event (message, notify) is delivered after all bytes written before it are visible.
 *   - Nothing else: no order of bytes inside one write, no atomicity but of an aligned 8-byte word
 *     (in a write or read of at most 64 bytes), no order between the bytes of two reads. Completion
 *     of a write is NOT persistence.
 *   - Every offset and length that comes from the peer is checked against the window; over shm the
 *     initiator maps the whole memfd, so there the owner must treat the memory as hostile anyway.
 *
 * Threads: a `struct fq_fabric` and all its connections, windows and remotes belong to the one
 * thread that polls it. Regions are reference counted and may be shared by threads. A listener
 * belongs to the thread that polls it; an `fq_incoming` may be handed to another thread.
 *
 * Errors: functions return 0 or a negative FLASHQ_ERR_ code. None blocks, but where said.
 */
#ifndef FQ_FABRIC_FABRIC_H
#define FQ_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"
#include "fabric/endpoint.h"

#define FQ_TOKEN_BYTES 32

struct fq_fabric;
struct fq_conn;
struct fq_region;
struct fq_window;
struct fq_remote;
struct fq_listener;
struct fq_incoming;

/* ---- regions ------------------------------------------------------------------------------- */

enum fq_region_flags {
    FQ_REGION_MIRRORED = 1 << 0,   /* mapped twice in a row: a ring of `bytes` may be accessed at
                                      [0, 2*bytes), so no batch in it ever wraps */
    FQ_REGION_PEER_READS = 1 << 1, /* peers only ever read it (views): sealed against new writable
                                      mappings once this process has mapped it */
    FQ_REGION_LOCAL = 1 << 2 /* never granted to a peer: source and target of own operations */
};

/* Allocates zeroed, faulted-in memory of `bytes` (rounded up to whole pages). Blocks shortly.
 * The region starts with one reference, the caller's. */
int fq_region_create(size_t bytes, unsigned flags, struct fq_region **ret, struct fq_err *err);

/* Wraps memory that is mapped already and backed by `fd` from offset 0 (a log segment). Peers can
 * only be granted reading. `fd` is duplicated read-only for them; the mapping stays the caller's
 * and must outlive the region. `release` (may be NULL) runs when the last reference goes. */
int fq_region_wrap_file(int fd, const void *base, size_t bytes, void (*release)(void *context),
                        void *context, struct fq_region **ret, struct fq_err *err);
/* The mapping of a wrapped file is writable, and windows of it may be granted for writing too,
 * where the transport can take them back (not shm). */
void fq_region_allow_writing(struct fq_region *region);

void *fq_region_base(struct fq_region *region);
size_t fq_region_bytes(const struct fq_region *region);
struct fq_region *fq_region_ref(struct fq_region *region);
void fq_region_unref(struct fq_region *region); /* NULL is fine */

/* ---- fabrics and events -------------------------------------------------------------------- */

struct fq_fabric_params {
    size_t connections_max;  /* 0: FQ_LIMIT_CONNECTIONS */
    unsigned notify_entries; /* receives posted per connection; 0: the default (verbs; shm and tcp
                                bound what is queued in bytes) */
    int64_t dead_after_us;   /* transport dead when the peer's kernel is silent this long; 0: 5 s */
    unsigned grants_max;     /* windows a peer may have granted that were not opened yet; more
                                break its connection; 0: 1024 */
};

/* Counters of one fabric since it was created; read by its thread. */
struct fq_fabric_stats {
    uint64_t connections;  /* opened or adopted */
    uint64_t disconnected; /* DISCONNECTED events */
    uint64_t sends, send_bytes, writes, write_bytes, notifies, reads, read_bytes; /* posted here */
    uint64_t messages_in, message_bytes_in, notifies_in;                          /* arrived */
    uint64_t writes_in, write_bytes_in, reads_in, read_bytes_in; /* carried out for peers (tcp) */
    uint64_t wakes_paid; /* system calls made to wake a sleeping peer */
    uint64_t again;      /* posts that found the queue full */
    uint64_t refused_bounds, refused_rights, refused_key, refused_malformed; /* peers' frames */
    uint64_t refused_floor;  /* writes below a window's floor, or that leave a gap */
    uint64_t writes_dropped; /* frames thrown away after fq_window_retire */
};

int fq_fabric_create(enum fq_transport transport, const struct fq_fabric_params *params,
                     struct fq_fabric **ret, struct fq_err *err);
/* Closes all connections, frees their windows and remotes. NULL is fine. */
void fq_fabric_destroy(struct fq_fabric *fabric);
enum fq_transport fq_fabric_transport(const struct fq_fabric *fabric);
void fq_fabric_get_stats(const struct fq_fabric *fabric, struct fq_fabric_stats *ret);

enum fq_event_type {
    FQ_EVENT_CONNECTED,    /* an own connect succeeded, or an adopted connection is ready */
    FQ_EVENT_DISCONNECTED, /* last event of a connection; it must be freed with fq_conn_close */
    FQ_EVENT_MESSAGE,      /* data/length: valid until the next poll of this fabric */
    FQ_EVENT_NOTIFY,       /* imm */
    FQ_EVENT_COMPLETED,    /* cookie, status: a posted operation with signaled set is done */
    FQ_EVENT_WRITABLE      /* after FLASHQ_ERR_AGAIN: posting may work again */
};

struct fq_event {
    enum fq_event_type type;
    struct fq_conn *conn;
    uint32_t imm;
    int status; /* COMPLETED: 0 or an error; DISCONNECTED: the reason */
    uint64_t cookie;
    const uint8_t *data; /* MESSAGE; CONNECTED (initiator): the acceptor's private data */
    size_t length;
    const char *text; /* DISCONNECTED: words for a person; valid until the next poll */
};

/* Operations still in flight when a connection breaks are COMPLETED with the reason's code before
 * its DISCONNECTED.
 *
 * Moves bytes, then fills up to `events_max` events; returns how many (>= 0) or an error that is
 * final for the fabric. Never blocks. */
int fq_fabric_poll(struct fq_fabric *fabric, struct fq_event *events, size_t events_max);
/* Grows with whatever polls received, also what no event tells of: READs that were answered here, parts of
 * payloads (tcp; over shm the peer moves bytes by itself). A side that serves those is not idle. */
uint64_t fq_fabric_received(const struct fq_fabric *fabric);

/* Whether something has arrived in memory that poll would find: a load per connection that is in use. For who
 * spins between two polls; false says nothing where only poll can tell (tcp), nor of what else poll looks after. */
bool fq_fabric_has_news(const struct fq_fabric *fabric);

/* A level-triggered epoll-able descriptor: readable when there may be something to poll, provided
 * fq_fabric_arm was called after the last poll. Arm returns 1 when something is there already (do
 * not sleep), 0 when it is safe to sleep on the descriptor. Peers pay a system call to wake an
 * armed side only. Disarm after waking (poll disarms too). */
int fq_fabric_fd(const struct fq_fabric *fabric);
int fq_fabric_arm(struct fq_fabric *fabric);
void fq_fabric_disarm(struct fq_fabric *fabric);

/* The earliest monotonic time (us) at which poll must run even if the descriptor stays quiet
 * (connect deadlines, probes); INT64_MAX when none. */
int64_t fq_fabric_next_deadline_us(const struct fq_fabric *fabric);

/* ---- connections --------------------------------------------------------------------------- */

struct fq_connect_params {
    const struct fq_endpoint *endpoint;
    uint32_t shard;    /* which shard of the broker; FQ_SHARD_ANY lets it choose */
    const void *hello; /* private data, at most FQ_LIMIT_HELLO_BYTES */
    size_t hello_bytes;
    int64_t deadline_us; /* monotonic; after it DISCONNECTED(TIMED_OUT) */
};
#define FQ_SHARD_ANY UINT32_MAX

/* Begins to connect; CONNECTED or DISCONNECTED follows as an event. An error here leaves nothing.
 */
int fq_conn_open(struct fq_fabric *fabric, const struct fq_connect_params *params,
                 struct fq_conn **ret, struct fq_err *err);

/* Closes at once and frees the connection, its windows and remotes; no event follows. What was
 * posted and not completed may or may not have happened. NULL is fine. Events of it that the last
 * poll returned and the caller has not looked at yet may still be read until the next poll: its
 * context is NULL then. */
void fq_conn_close(struct fq_conn *conn);

void fq_conn_set_context(struct fq_conn *conn, void *context);
void *fq_conn_context(const struct fq_conn *conn);
struct fq_fabric *fq_conn_fabric(const struct fq_conn *conn);
/* "shm uid=1000 pid=77" or "tcp 127.0.0.1:53112": for logs. Lives as long as the connection. */
const char *fq_conn_peer_name(const struct fq_conn *conn);
/* The peer's uid over shm, (uint32_t)-1 elsewhere. */
uint32_t fq_conn_peer_uid(const struct fq_conn *conn);

/* ---- listening ----------------------------------------------------------------------------- */

struct fq_listen_params {
    const struct fq_endpoint *endpoint; /* tcp port 0: the system chooses */
    unsigned mode;                      /* shm: the socket's permission bits, 0600 by default */
    int64_t hello_deadline_us;          /* how long a peer may take to say hello (a span); 0: 5 s */
    unsigned pending_max;               /* connections that have not said hello yet; 0: 256 */
};

/* A stale socket left by a dead owner is replaced; one that answers is FLASHQ_ERR_EXISTS; another
 * user's is FLASHQ_ERR_NOT_PERMITTED with a text that says whose. */
int fq_listener_open(const struct fq_listen_params *params, struct fq_listener **ret,
                     struct fq_err *err);
void fq_listener_close(struct fq_listener *listener);
int fq_listener_fd(const struct fq_listener *listener);
/* Where it listens in fact (the port chosen). */
const struct fq_endpoint *fq_listener_endpoint(const struct fq_listener *listener);
int64_t fq_listener_next_deadline_us(const struct fq_listener *listener);

/* Accepts and reads hellos; returns 1 with *ret set, 0 when there is none now, negative on a final
 * error. A peer that speaks HTTP or TLS or sends nonsense gets a hint and a close, is counted in
 * fq_listener_refused, and never reaches the caller. */
int fq_listener_poll(struct fq_listener *listener, struct fq_incoming **ret);
uint64_t fq_listener_refused(const struct fq_listener *listener);

enum fq_transport fq_incoming_transport(const struct fq_incoming *incoming);
uint32_t fq_incoming_shard(const struct fq_incoming *incoming);
const void *fq_incoming_hello(const struct fq_incoming *incoming, size_t *ret_bytes);
uint32_t fq_incoming_uid(const struct fq_incoming *incoming);
/* Sends the refusal to the peer (its DISCONNECTED carries code and text) and frees. */
void fq_incoming_reject(struct fq_incoming *incoming, int code, const char *text);

/* Makes the connection part of `fabric` (same transport) and answers the peer with `reply` (at most
 * FQ_LIMIT_HELLO_BYTES). Consumes `incoming` whatever happens. CONNECTED follows as an event. */
int fq_fabric_adopt(struct fq_fabric *fabric, struct fq_incoming *incoming, const void *reply,
                    size_t reply_bytes, void *context, struct fq_conn **ret, struct fq_err *err);

/* ---- windows ------------------------------------------------------------------------------- */

enum fq_rights { FQ_RIGHT_READ = 1, FQ_RIGHT_WRITE = 2 };

/* Grants the peer of `conn` `rights` on [offset, offset+bytes) of the region (for a mirrored region
 * granted whole: accesses may run on to 2*bytes). Holds a reference on the region. Over shm a
 * window must be a whole memfd (offset 0, all bytes) or a wrapped file. Reading alone is granted on
 * FQ_REGION_PEER_READS regions and wrapped files, writing on all others and, where
 * fq_region_allow_writing was called, on wrapped files (over shm UNSUPPORTED: what a peer has
 * mapped cannot be taken back); LOCAL regions never. Fills `token` for the peer, who can open it as
 * soon as a message posted after this reaches it. Only the side that accepted a connection may
 * grant files: their size cannot be sealed. */
int fq_window_grant(struct fq_conn *conn, struct fq_region *region, uint64_t offset, uint64_t bytes,
                    enum fq_rights rights, struct fq_window **ret, uint8_t token[FQ_TOKEN_BYTES],
                    struct fq_err *err);
/* Later accesses by the peer fail (over shm: the owner never looks at that memory again); one that
 * is on its way breaks the connection, so tell a live peer first. Frees. NULL is fine. */
void fq_window_revoke(struct fq_window *window);

/* For windows of files granted for writing (an append in place). They are written from start to
 * end: a write that begins above the highest byte written so far breaks the connection, so a peer
 * leaves no more behind than it has sent. And while a connection has one, a poll carries out
 * nothing that the peer posted after a notify: so who moves the floor when it sees a notify can be
 * sure that no byte below was changed since the peer sent that.
 *
 * From now on a write that begins below `offset` (of the window) breaks the connection, also one of
 * which a part has arrived. Never lowered. */
void fq_window_set_floor(struct fq_window *window, uint64_t offset);
/* The end of the highest byte that the peer has written, also by a payload that is half there. */
uint64_t fq_window_written(const struct fq_window *window);
/* Takes the window back from a peer that may have writes under way: they are received and thrown
 * away (counted), the connection stays, and the region is let go. fq_window_revoke follows when the
 * peer has said that nothing is under way any more. */
void fq_window_retire(struct fq_window *window);

/* Opens a token that the peer sent. Over shm this maps the memory (checked: seals, size). */
int fq_remote_open(struct fq_conn *conn, const uint8_t token[FQ_TOKEN_BYTES], enum fq_rights rights,
                   struct fq_remote **ret, struct fq_err *err);
void fq_remote_close(struct fq_remote *remote); /* NULL is fine */
uint64_t fq_remote_bytes(const struct fq_remote *remote);
/* Where accesses must end: its bytes, or twice that if the peer mapped it twice in a row. */
uint64_t fq_remote_span(const struct fq_remote *remote);
/* The memory itself where the transport can show it (shm), else NULL. For writable windows a record
 * can be built in place; for read windows data can be parsed in place. */
void *fq_remote_map(struct fq_remote *remote);
/* Bytes [offset, offset + bytes) of a read window will be read through its map soon: has them mapped now, in
 * one call instead of a fault for every few pages. May wait for a disk, as reading them would. Does nothing
 * where there is no map, and nothing about bytes outside of the window; only a matter of speed. */
void fq_remote_expect_reads(struct fq_remote *remote, uint64_t offset, uint64_t bytes);
/* Closes the remote but keeps its mapping (base NULL: it has none) for whoever still writes there:
 * it stays valid, whatever becomes of the connection, until fq_mapping_unmap. */
struct fq_mapping {
    void *base;
    size_t bytes;
};
void fq_remote_close_mapped(struct fq_remote *remote, struct fq_mapping *ret);
void fq_mapping_unmap(struct fq_mapping *mapping); /* an empty one is fine */

/* ---- operations ---------------------------------------------------------------------------- */

#define FQ_OP_BYTES_MAX (UINT64_C(64) * FQ_LIMIT_FABRIC_FRAME_BYTES) /* one operation: 512 MiB */

enum fq_op_type { FQ_OP_SEND, FQ_OP_WRITE, FQ_OP_WRITE_NOTIFY, FQ_OP_READ };

struct fq_op {
    enum fq_op_type type;
    struct fq_remote *remote; /* WRITE, WRITE_NOTIFY (NULL: notify only), READ */
    uint64_t remote_offset;
    struct fq_region *region; /* where `local` lies; SEND, or at most 64 bytes: may be NULL */
    void *local;              /* source, or target of READ; stays the poster's until COMPLETED;
                                 a SEND or a write without a region is copied when posted */
    size_t length;
    uint32_t imm;    /* WRITE_NOTIFY */
    uint64_t cookie; /* returned in COMPLETED */
    bool signaled;   /* whether COMPLETED is wanted; READ always gives one */
};

/* Posts `ops_count` operations in order with one doorbell. Returns how many were taken (the first
 * n); fewer than asked means the queue is full (a WRITABLE event follows); none is
 * FLASHQ_ERR_AGAIN. Negative: nothing was taken. Before CONNECTED it is AGAIN, after DISCONNECTED
 * it is CLOSED. An operation outside its remote's bounds is FLASHQ_ERR_OUT_OF_RANGE here, locally,
 * one against its rights or on a window known to be revoked FLASHQ_ERR_NOT_PERMITTED; one refused
 * by the peer breaks the connection, as a queue pair does. A write whose bytes are in the remote
 * already (built in place) has local == the mapped address and is not copied. */
int fq_conn_post(struct fq_conn *conn, const struct fq_op *ops, size_t ops_count);

/* One control message; shorthand for a posted SEND. */
int fq_conn_send(struct fq_conn *conn, const void *bytes, size_t length);

#endif
