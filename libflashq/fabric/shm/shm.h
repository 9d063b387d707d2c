/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the shm back end: its structs, and what its files call of each other. */
#ifndef FQ_FABRIC_SHM_SHM_H
#define FQ_FABRIC_SHM_SHM_H

#include "base/clock.h"
#include "fabric/backend.h"
#include "fabric/hello.h"
#include "fabric/shm/ring.h"

#define FQ_SHM_RECORD_BYTES 48
#define FQ_SHM_PASSED_MAX   2
#define FQ_SHM_RECORDS_MAX  8192 /* waiting for room in a socket */

/* What travels over the socket once the handshake is done. */
enum fq_shm_record_type {
    FQ_SHM_RECORD_WAKE = 1,
    FQ_SHM_RECORD_GRANT = 2, /* with a descriptor */
    FQ_SHM_RECORD_REVOKE = 3,
    FQ_SHM_RECORD_CLOSE = 4 /* code, text; the last one */
};

struct fq_shm_record {
    uint8_t type;
    uint8_t flags;       /* FQ_SHM_GRANT_* */
    uint16_t text_bytes; /* CLOSE: how much text follows */
    uint32_t id;
    uint64_t key, offset, bytes;
    uint32_t rights;
    int32_t code;
};
#define FQ_SHM_GRANT_MIRRORED 1u
#define FQ_SHM_GRANT_FILE     2u

struct fq_shm_fabric {
    struct fq_fabric base;
    struct fq_list active; /* connections whose ring is looked at in every poll */
    struct fq_list idle;   /* connections whose peer wakes us through the socket */
    struct fq_list connecting;
    struct fq_list stuck; /* a descriptor cannot be sent now, and no event will tell when */
    int64_t stuck_retry_us;
    size_t active_count;
    bool is_armed; /* the caller may have slept: look at the sockets in the next poll */
    int64_t sockets_seen_us;
    struct fq_mono_recent clock;
};

struct fq_shm_conn {
    struct fq_conn base;
    struct fq_list link; /* fabric's active, idle or connecting */
    struct fq_list stuck;
    bool is_active;
    bool has_eof;      /* the peer is gone: deliver what is in the ring, then disconnect */
    bool needs_sync;   /* a record was sent since the last ring entry */
    bool wants_output; /* EPOLLOUT is on */
    int fd;
    int ring_fd;       /* initiator, until the hello is sent; else -1 */
    uint64_t eof_tail; /* how far the ring went when the peer was gone */
    int64_t busy_us;   /* when something last arrived or was posted */
    int64_t retry_us;  /* connecting: the backlog was full */
    int close_code;    /* from a CLOSE record */
    char close_text[FQ_REASON_TEXT_BYTES];
    struct fq_shm_layout *layout;
    struct fq_shm_tx tx;
    struct fq_shm_rx rx;
    struct fq_list records; /* waiting for room in the socket */
    unsigned records_count;
    struct fq_list grants; /* received and not opened */
    unsigned grants_count;
    int passed[FQ_SHM_PASSED_MAX];
    unsigned passed_count;
    size_t in_have;
    uint8_t in[4 * FQ_SHM_RECORD_BYTES + FQ_REASON_TEXT_BYTES];
    struct fq_hello_frame hello;
    struct fq_reply_reader reply;
    struct fq_endpoint endpoint;
};

struct fq_shm_grant {
    struct fq_list link;
    struct fq_shm_record record;
    int fd;
};

static inline struct fq_shm_conn *fq_shm_conn_of(struct fq_conn *conn)
{
    return (struct fq_shm_conn *)(void *)conn;
}

static inline struct fq_shm_fabric *fq_shm_fabric_of(struct fq_fabric *fabric)
{
    return (struct fq_shm_fabric *)(void *)fabric;
}

/* shm.c */
void fq_shm_activate(struct fq_shm_conn *conn);
/* Breaks the connection; with `tell` the peer gets code and text first. Returns `code`. */
int fq_shm_fail(struct fq_shm_conn *conn, bool tell, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
extern const struct fq_fabric_ops fq_shm_ops;

/* shm_connect.c */
int fq_shm_conn_open(struct fq_conn *base, const struct fq_connect_params *params,
                     struct fq_err *err);
int fq_shm_conn_adopt(struct fq_conn *base, struct fq_incoming *incoming, const void *reply,
                      size_t reply_bytes, struct fq_err *err);
void fq_shm_connecting_event(struct fq_shm_conn *conn);
void fq_shm_connecting_deadlines(struct fq_shm_fabric *fabric, int64_t now_us);
int64_t fq_shm_connecting_next_us(const struct fq_shm_fabric *fabric);

/* shm_link.c: records over the socket */
/* Queues what the socket has no room for. 0, AGAIN (FQ_SHM_RECORDS_MAX wait already), NO_MEMORY, or
 * CLOSED (the next poll tells). `region` is referenced while its descriptor waits; NULL sends none.
 */
int fq_shm_link_send(struct fq_shm_conn *conn, const struct fq_shm_record *record,
                     struct fq_region *region);
void fq_shm_link_wake(struct fq_shm_conn *conn);
void fq_shm_link_retry_stuck(struct fq_shm_fabric *fabric, int64_t now_us);
/* Sends what waits; 1: all sent, 0: not yet, negative: broken. */
int fq_shm_link_flush(struct fq_shm_conn *conn);
/* Reads and carries out all records that are there. Negative: broken. */
int fq_shm_link_drain(struct fq_shm_conn *conn);
void fq_shm_link_fini(struct fq_shm_conn *conn);

/* shm_map.c: memory of peers */
int fq_shm_map_rings(int fd, struct fq_shm_layout **ret, struct fq_err *err);
int fq_shm_grant(struct fq_window *window, uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err);
void fq_shm_revoke(struct fq_window *window);
int fq_shm_remote_open(struct fq_remote *remote, const uint8_t token[FQ_TOKEN_BYTES],
                       struct fq_err *err);
void fq_shm_remote_fini(struct fq_remote *remote);

#endif
