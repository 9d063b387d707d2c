/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the tcp back end: frames, structs, and what its files call of each other.
 *
 * A frame is a header of 32 bytes, little-endian, and `length` bytes of payload:
 *   u8 op | u8 0 | u16 0 | u32 length | u32 imm | u32 window id | u64 key | u64 offset
 */
#ifndef FQ_FABRIC_TCP_TCP_H
#define FQ_FABRIC_TCP_TCP_H

#include <netinet/in.h>

#include "fabric/backend.h"
#include "fabric/hello.h"

#define FQ_TCP_HEADER_BYTES  32u
#define FQ_TCP_RX_BYTES      (FQ_LIMIT_CONTROL_BYTES + 4096u)
#define FQ_TCP_INLINE_BYTES  1024u /* payloads up to this are copied and coalesced */
#define FQ_TCP_ITEMS_MAX     1024u /* of an output queue */
#define FQ_TCP_READS_MAX     128u  /* of ours in flight */
#define FQ_TCP_OWED_MAX      256u /* answers queued for the peer's reads before we stop receiving */
#define FQ_TCP_ADDRESSES_MAX 8

enum fq_tcp_op {
    FQ_TCP_SEND = 1,
    FQ_TCP_WRITE = 2,
    FQ_TCP_WRITE_NOTIFY = 3,
    FQ_TCP_NOTIFY = 4,    /* imm only */
    FQ_TCP_READ = 5,      /* length: how much; no payload; imm: sequence */
    FQ_TCP_READ_DATA = 6, /* imm: sequence of the READ it answers; in order */
    FQ_TCP_REVOKE = 7,    /* window id, key */
    FQ_TCP_ERROR = 8      /* imm: code; payload: text; the last frame */
};

struct fq_tcp_frame {
    uint8_t op;
    uint32_t length, imm, window;
    uint64_t key, offset;
};

/* What an epoll event points at. */
enum fq_tcp_source { FQ_TCP_SOURCE_CONN, FQ_TCP_SOURCE_LINGER, FQ_TCP_SOURCE_RESOLVE };

struct fq_tcp_fabric {
    struct fq_fabric base;
    struct fq_list ready; /* connections with received bytes that were not looked at yet */
    struct fq_list connecting;
    struct fq_list unacked;   /* sent something: watched for a dead peer */
    struct fq_list lingering; /* sockets that carry a last frame away */
    int64_t sweep_us;         /* when `unacked` is looked at; INT64_MAX: never */
    uint64_t polls;
    /* While no other connection receives, the socket of one is read without asking epoll first. */
    struct fq_tcp_conn *hot; /* received last; NULL: none */
    unsigned hot_streak;     /* receipts in a row of this one */
    int64_t sockets_seen_us; /* when epoll was asked last */
    bool is_armed;           /* since the last poll: any socket may have ended the sleep */
};

/* One stretch of an output queue: bytes of tx->bytes, or the poster's memory. */
struct fq_tcp_out {
    const uint8_t *ref; /* NULL: the next `length` bytes of tx->bytes */
    size_t length;
    struct fq_region *region; /* held until sent */
    uint64_t cookie;
    bool completes; /* COMPLETED when sent */
    bool is_answer; /* ends an answer to a READ of the peer */
};

struct fq_tcp_tx {
    uint8_t *bytes;
    size_t begin, end, capacity;
    struct fq_tcp_out *items;
    size_t items_capacity; /* a power of two */
    uint64_t head, tail;
    size_t head_sent; /* of the first item */
    unsigned owed;    /* answers queued */
};

struct fq_tcp_read {
    uint8_t *local;
    uint32_t length;
    uint32_t sequence;
    struct fq_region *region;
    uint64_t cookie;
    bool completes;
};

struct fq_tcp_rx {
    uint8_t *bytes;
    size_t begin, end;
    bool has_frame; /* `frame` was checked, `done` bytes of its payload are in place */
    struct fq_tcp_frame frame;
    size_t done;
};

struct fq_tcp_resolve;

struct fq_tcp_conn {
    struct fq_conn base;
    enum fq_tcp_source source;
    struct fq_list link; /* connecting */
    struct fq_list ready;
    struct fq_list unacked;
    int fd;
    uint32_t interest;    /* epoll events asked for */
    bool is_blocked;      /* not receiving: too many answers are owed */
    uint64_t notified_in; /* the poll that brought its last notify */
    bool has_hello_sent;
    struct fq_tcp_tx tx;
    struct fq_tcp_rx rx;
    struct fq_tcp_read reads[FQ_TCP_READS_MAX];
    uint32_t reads_head, reads_tail;
    /* connecting */
    struct fq_tcp_resolve *resolve;
    int64_t attempt_us; /* when the next address is tried */
    struct sockaddr_storage addresses[FQ_TCP_ADDRESSES_MAX];
    size_t addresses_count, addresses_next;
    struct fq_hello_frame hello;
    struct fq_reply_reader reply;
    char where[FQ_LIMIT_HOST_BYTES + 32];
    char last_error[128];
};

static inline struct fq_tcp_conn *fq_tcp_conn_of(struct fq_conn *conn)
{
    return (struct fq_tcp_conn *)(void *)conn;
}

static inline struct fq_tcp_fabric *fq_tcp_fabric_of(struct fq_fabric *fabric)
{
    return (struct fq_tcp_fabric *)(void *)fabric;
}

/* tcp.c */
/* Breaks the connection; with `tell` the peer gets an ERROR frame. Returns `code`. */
int fq_tcp_fail(struct fq_tcp_conn *conn, bool tell, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void fq_tcp_update_interest(struct fq_tcp_conn *conn);

/* tcp_tx.c */
bool fq_tcp_tx_is_empty(const struct fq_tcp_tx *tx);
/* Header and payload; a payload over FQ_TCP_INLINE_BYTES of a region is referenced, others are
 * copied. false: no memory or over a limit; nothing was queued. */
bool fq_tcp_tx_frame(struct fq_tcp_conn *conn, const struct fq_tcp_frame *frame,
                     const void *payload, size_t length, struct fq_region *region);
/* Marks the last thing queued: COMPLETED(cookie) once sent; end of an answer. */
void fq_tcp_tx_mark(struct fq_tcp_conn *conn, bool completes, uint64_t cookie, bool is_answer);
/* Sends what the socket takes. A dead socket is noticed when receiving. */
void fq_tcp_tx_flush(struct fq_tcp_conn *conn);
int fq_tcp_post(struct fq_conn *base, const struct fq_op *ops, size_t ops_count);
/* A poster waits for WRITABLE and there is room again. */
bool fq_tcp_owes_writable(const struct fq_tcp_conn *conn);
/* Completes what is outstanding with `status` (writes, then reads) and frees. */
void fq_tcp_tx_abandon(struct fq_tcp_conn *conn, int status);

/* tcp_rx.c */
/* Carries out what has arrived, within the poll's budget. */
void fq_tcp_receive(struct fq_tcp_conn *conn);

/* tcp_connect.c */
int fq_tcp_conn_open(struct fq_conn *base, const struct fq_connect_params *params,
                     struct fq_err *err);
int fq_tcp_conn_adopt(struct fq_conn *base, struct fq_incoming *incoming, const void *reply,
                      size_t reply_bytes, struct fq_err *err);
void fq_tcp_connecting_event(struct fq_tcp_conn *conn);
void fq_tcp_connecting_deadlines(struct fq_tcp_fabric *fabric, int64_t now_us);
int64_t fq_tcp_connecting_next_us(const struct fq_tcp_fabric *fabric);
/* The resolver's descriptor became readable. */
void fq_tcp_resolved(struct fq_tcp_conn *conn);

/* tcp_resolve.c */
/* Numeric addresses and "localhost" at once (returns 0, *ret NULL); other names in a thread of
 * their own: *ret's descriptor is readable when it is done. */
int fq_tcp_resolve_start(const struct fq_endpoint *endpoint, struct sockaddr_storage *addresses,
                         size_t *ret_count, struct fq_tcp_resolve **ret, struct fq_err *err);
int fq_tcp_resolve_fd(const struct fq_tcp_resolve *resolve);
/* 1: done, addresses filled; 0: not yet; negative: no such host. */
int fq_tcp_resolve_take(struct fq_tcp_resolve *resolve, struct sockaddr_storage *addresses,
                        size_t *ret_count, struct fq_err *err);
void fq_tcp_resolve_free(struct fq_tcp_resolve *resolve, bool is_child);

#endif
