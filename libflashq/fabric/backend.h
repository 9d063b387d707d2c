/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a back end implements and what core.c gives it. Only files under fabric/ include this.
 *
 * core.c owns: argument, bounds and rights checks at the initiator, the event queue, the window
 * table, the life of connections. A back end embeds struct fq_fabric and struct fq_conn as the
 * first member of its own structs and moves bytes. Everything runs on the fabric's thread.
 */
#ifndef FQ_FABRIC_BACKEND_H
#define FQ_FABRIC_BACKEND_H

#include <sys/types.h>

#include "fabric/fabric.h"
#include "fabric/list.h"

#define FQ_REASON_TEXT_BYTES 200
#define FQ_PEER_NAME_BYTES   128
#define FQ_ATOMIC_COPY_BYTES 64

struct fq_region {
    _Atomic unsigned refs;
    uint8_t *base;
    size_t bytes;
    unsigned flags; /* enum fq_region_flags */
    int fd;         /* memfd or read-only file; -1: LOCAL */
    bool is_file;
    bool is_file_writable; /* fq_region_allow_writing */
    void (*release)(void *context);
    void *context;
};

struct fq_window {
    struct fq_conn *conn;
    struct fq_region *region; /* NULL: retired */
    uint64_t offset, bytes;
    uint64_t floor;   /* writes begin at or above it */
    uint64_t written; /* end of the highest byte written by the peer */
    unsigned rights;
    uint32_t id; /* index in conn->windows */
    uint64_t key;
    void *inner; /* faulty: the wrapped window */
};

/* The parsed token. Which back end made it is part of it, so one never reads another's. */
struct fq_token {
    uint8_t transport;
    bool is_mirrored, is_file;
    unsigned rights;
    uint32_t id;
    uint64_t key;
    uint64_t bytes;
};

struct fq_remote {
    struct fq_conn *conn;
    struct fq_list link; /* conn->remotes */
    uint32_t id;
    uint64_t key;
    uint64_t bytes;  /* of the window */
    uint64_t span;   /* accesses end at or below this: bytes, or twice that if mirrored */
    unsigned rights; /* those it was opened with */
    bool is_revoked;
    uint8_t *map;   /* shm: byte 0 of the window */
    void *map_base; /* shm: what munmap gets */
    size_t map_bytes;
    void *inner; /* faulty: the wrapped remote */
};

/*
 *   CONNECTING --connected--> OPEN --fail--> BROKEN --close--> CLOSED (freed at the next poll)
 *       |  \_______________fail_____________/                    ^
 *       \_________________________close_________________________/
 * BROKEN: DISCONNECTED is queued or delivered; the back end's descriptors are still open.
 */
enum fq_conn_state { FQ_CONN_CONNECTING, FQ_CONN_OPEN, FQ_CONN_BROKEN, FQ_CONN_CLOSED };

struct fq_conn {
    struct fq_fabric *fabric;
    struct fq_list link; /* fabric->conns or fabric->closed */
    enum fq_conn_state state;
    bool is_initiator;
    bool wants_writable; /* a post returned less than asked */
    uint32_t peer_uid;
    void *context;
    struct fq_window **windows;
    size_t windows_capacity;
    size_t windows_free_hint;
    unsigned in_place_windows; /* that grant writing to a file and are not retired */
    struct fq_list remotes;
    int64_t deadline_us;                 /* CONNECTING */
    uint8_t reply[FQ_LIMIT_HELLO_BYTES]; /* the acceptor's private data */
    size_t reply_bytes;
    char peer_name[FQ_PEER_NAME_BYTES];
    char reason_text[FQ_REASON_TEXT_BYTES];
};

struct fq_event_queue {
    struct fq_event *items;
    size_t capacity; /* a power of two */
    uint64_t head, tail;
};

struct fq_fabric {
    const struct fq_fabric_ops *ops;
    struct fq_fabric_params params;
    pid_t pid; /* a forked child only frees */
    int epoll_fd;
    struct fq_list conns, closed;
    size_t conns_count;
    size_t outstanding; /* completions owed: posted signaled, not delivered yet */
    size_t budget;      /* events the running poll may still queue for arrivals */
    struct fq_event_queue queue;
    uint8_t *arena; /* bytes of MESSAGE events, until the next poll */
    size_t arena_used;
    uint64_t received; /* see fq_fabric_received */
    struct fq_fabric_stats stats;
};

#define FQ_ARENA_BYTES (4 * FQ_LIMIT_CONTROL_BYTES)

/* One table per back end; every slot runs on the fabric's thread, never blocks, and is called with
 * arguments core.c has checked. */
struct fq_fabric_ops {
    enum fq_transport transport;
    size_t fabric_bytes, conn_bytes; /* of the structs that embed fq_fabric and fq_conn */
    /* The base is initialised (epoll_fd too). On failure the base is undone by core. */
    int (*init)(struct fq_fabric *fabric, struct fq_err *err);
    void (*fini)(struct fq_fabric *fabric); /* all connections are gone */
    /* Moves bytes; queues events with fq_emit_* while fq_has_budget. */
    int (*poll)(struct fq_fabric *fabric);
    /* See fq_fabric_has_news; NULL: only poll can tell. */
    bool (*has_news)(const struct fq_fabric *fabric);
    int (*arm)(struct fq_fabric *fabric); /* 1: something is there; 0: safe to sleep */
    void (*disarm)(struct fq_fabric *fabric);
    int64_t (*next_deadline)(const struct fq_fabric *fabric);
    /* The zeroed conn's base is initialised; on failure core frees it, after conn_fini. */
    int (*conn_open)(struct fq_conn *conn, const struct fq_connect_params *params,
                     struct fq_err *err);
    int (*conn_adopt)(struct fq_conn *conn, struct fq_incoming *incoming, const void *reply,
                      size_t reply_bytes, struct fq_err *err);
    /* Ends the transport and frees what the back end holds. In a forked child (`is_child`) it only
     * closes descriptors and frees memory. Also for half-built connections. */
    void (*conn_fini)(struct fq_conn *conn, bool is_child);
    /* `window` is filled; writes the token. May refuse. */
    int (*grant)(struct fq_window *window, uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err);
    void (*revoke)(struct fq_window *window); /* not called for broken connections or in children */
    void (*window_fini)(struct fq_window *window);
    /* Fills `remote` (bytes, span, id, key, map ...); rights are set. */
    int (*remote_open)(struct fq_remote *remote, const uint8_t token[FQ_TOKEN_BYTES],
                       struct fq_err *err);
    void (*remote_fini)(struct fq_remote *remote);
    /* Takes the first n of the checked operations; 0: no room. Negative: the connection is broken.
     */
    int (*post)(struct fq_conn *conn, const struct fq_op *ops, size_t ops_count);
};

extern const struct fq_fabric_ops fq_shm_ops;
extern const struct fq_fabric_ops fq_tcp_ops;
/* NULL where the build has no verbs. */
const struct fq_fabric_ops *fq_verbs_ops(void);

/* ---- core.c --------------------------------------------------------------------------------- */

int fq_fabric_create_with(const struct fq_fabric_ops *ops, const struct fq_fabric_params *params,
                          struct fq_fabric **ret, struct fq_err *err);

/* ---- events.c, for core.c ------------------------------------------------------------------- */

#define FQ_POLL_EVENTS_MAX 4096u /* handed out by one poll */

size_t fq_events_count(const struct fq_event_queue *queue);
/* Room for what is owed: completions of posted operations, the single events of `conns` connections
 * and the arrivals of one poll. false: no memory. */
bool fq_events_reserve(struct fq_fabric *fabric, size_t conns, size_t outstanding);
/* Hands out the oldest; returns how many. */
size_t fq_events_take(struct fq_fabric *fabric, struct fq_event *events, size_t events_max);
/* The connection is closed: its events leave the queue. */
void fq_events_forget(struct fq_fabric *fabric, const struct fq_conn *conn);

/* ---- events.c, for back ends ---------------------------------------------------------------- */

static inline bool fq_has_budget(const struct fq_fabric *fabric)
{
    return fabric->budget > 0;
}

void fq_emit_connected(struct fq_conn *conn);
void fq_emit_notify(struct fq_conn *conn, uint32_t imm);
void fq_emit_completed(struct fq_conn *conn, uint64_t cookie, int status);
void fq_emit_writable(struct fq_conn *conn); /* only when conn->wants_writable; clears it */
/* A place for a message of `length` bytes (<= FQ_LIMIT_CONTROL_BYTES), NULL when this poll has no
 * room left; then fq_emit_message with it. */
uint8_t *fq_message_room(struct fq_fabric *fabric, size_t length);
void fq_emit_message(struct fq_conn *conn, const uint8_t *data, size_t length);
/* The first call makes the connection BROKEN and queues DISCONNECTED; later ones do nothing. The
 * back end completes outstanding operations before it calls this. Returns `code`. */
int fq_conn_fail(struct fq_conn *conn, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- region.c ------------------------------------------------------------------------------- */

#define FQ_MEMFD_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* A new memfd without seals, its pages allocated or not; the descriptor or an error. */
int fq_memfd_create(size_t bytes, bool is_allocated, struct fq_err *err);

/* ---- window.c ------------------------------------------------------------------------------- */

void fq_token_encode(const struct fq_token *token, uint8_t out[FQ_TOKEN_BYTES]);
int fq_token_decode(const uint8_t in[FQ_TOKEN_BYTES], struct fq_token *ret);
struct fq_token fq_window_token(const struct fq_window *window, enum fq_transport transport);
/* The window that a frame names, or NULL: no such id or another key. */
struct fq_window *fq_window_find(const struct fq_conn *conn, uint32_t id, uint64_t key);
static inline bool fq_window_is_retired(const struct fq_window *window)
{
    return window->region == NULL;
}
/* The peer has written up to `end`. */
static inline void fq_window_note_written(struct fq_window *window, uint64_t end)
{
    window->written = end > window->written ? end : window->written;
}
/* Whether a write may begin there: at or above the floor, and in a file without leaving a gap. */
bool fq_window_may_begin(const struct fq_window *window, uint64_t offset);
bool fq_window_covers(const struct fq_window *window, uint64_t offset, uint64_t length);
/* Where in this process [offset, offset + length) of a window that is not retired is, or NULL: out
 * of its bounds. */
uint8_t *fq_window_at(const struct fq_window *window, uint64_t offset, uint64_t length);
/* The peer revoked: marks what was opened from that window. */
void fq_remotes_revoked(struct fq_conn *conn, uint32_t id, uint64_t key);
void fq_conn_free_windows(struct fq_conn *conn);

/* Copies at most FQ_ATOMIC_COPY_BYTES so that aligned 8-byte words are never torn; longer by
 * memcpy. */
void fq_copy_words(void *dst, const void *src, size_t length);

#endif
