/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: the connection to one shard of one broker, with its session, its outstanding requests and its
 * reconnecting. Producers' rings and consumers' readers are its users: they hear when it comes up, when it
 * goes down and what arrives for them.
 *
 *            connect                CONNECTED              answer to SESSION_OPEN
 *   IDLE ---------------> CONNECTING ---------> OPENING -----------------------> UP
 *       needed                |  DISCONNECTED      |  refused, deadline          |  DISCONNECTED,
 *                             v                    v                             v  broken protocol
 *                          BACKOFF <---------------+-----------------------------+
 *                             |  needed, and the pause is over: CONNECTING (the control link: to the next
 *                             |  endpoint of `brokers`)
 *
 * Invariants: `box` is set in CONNECTING, OPENING and UP only; requests exist in OPENING and UP only; users
 * have been told on_up exactly in UP.
 */
#ifndef FQ_CLIENT_LINK_H
#define FQ_CLIENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/chain.h"
#include "client/engine.h"
#include "fabric/fabric.h"
#include "wire/protocol_codec.h"

#define FQ_BROKER_ANY UINT32_MAX

enum fq_link_state { FQ_LINK_IDLE, FQ_LINK_CONNECTING, FQ_LINK_OPENING, FQ_LINK_UP, FQ_LINK_BACKOFF };

struct fq_link_user;
struct fq_link_user_ops {
    void (*on_up)(struct fq_link_user *user);
    /* The connection is gone: its remotes and windows go with it after this returns. */
    void (*on_down)(struct fq_link_user *user, int code, const char *text);
    /* A notify; true if it was for this user. */
    bool (*on_notify)(struct fq_link_user *user, uint32_t imm);
    /* A message that is no answer; true if it was for this user. */
    bool (*on_message)(struct fq_link_user *user, const struct fq_msg *msg);
    /* Posting may work again. */
    void (*on_writable)(struct fq_link_user *user);
};
struct fq_link_user {
    const struct fq_link_user_ops *ops;
    struct fq_link *link;
    struct fq_chain node;
};

/* A connection that outlives its link's interest in it while somebody still reads memory mapped through
 * it. */
struct fq_conn_box {
    struct fq_conn *conn;
    struct fq_engine *engine;
    unsigned refs;
    struct fq_chain node;          /* in engine->closing, once refs is 0 */
};

/* A posted operation that gives a COMPLETED event: the cookie is its address. */
struct fq_completion {
    void (*done)(struct fq_completion *completion, int status);
};

/* What becomes of a request. `msg` is NULL when there was no answer (`status` says why, `text` may say
 * more); otherwise msg->status == status. */
typedef void (*fq_request_done)(void *context, int status, const struct fq_msg *msg, const char *text);

struct fq_link {
    struct fq_engine *engine;
    struct fq_chain node;
    enum fq_link_state state;
    uint32_t broker_id, shard;     /* wanted; FQ_BROKER_ANY, FQ_SHARD_ANY for the control link at first */
    struct fq_endpoint advertised; /* of another broker than the control link's */
    bool has_advertised;
    bool is_beside;                /* over tcp, although another link serves the same shard */

    struct fq_conn_box *box;
    struct fq_endpoint endpoint;   /* in use or tried */
    size_t endpoint_index;         /* of the control link's next try */
    bool is_upgrading;             /* tcp said: the same host, try its socket */
    bool no_upgrade;               /* tried and failed since the last time it was lost */
    unsigned failures;             /* in a row */
    int64_t retry_us, open_deadline_us;
    int64_t up_us;                 /* when it came up the last time */
    uint64_t reconnects;

    struct fq_hello_reply hello;   /* valid in OPENING, UP */
    struct fq_session_open_answer session; /* valid in UP; its strings are not */
    char storage[FQ_LIMIT_STORAGE_TEXT_BYTES + 1]; /* what the broker says of its medium */
    struct fq_remote *views;
    struct fq_err last_error;

    struct fq_chain users;
    struct fq_chain requests;
    struct fq_chain outbox;        /* messages the transport had no room for */
    size_t outbox_bytes;
};

int fq_link_create(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                   struct fq_link **ret, struct fq_err *err);
void fq_link_destroy(struct fq_link *link);
/* The link to a shard, made if need be. The control link serves its own shard. */
int fq_link_for(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                const struct fq_endpoint *advertised, struct fq_link **ret);

/* The same over tcp, at `address`, whatever the others use. It must turn out to be the control link's cluster. */
int fq_link_beside(struct fq_engine *engine, uint32_t broker_id, uint32_t shard,
                   const struct fq_endpoint *address, struct fq_link **ret);

void fq_link_add_user(struct fq_link *link, struct fq_link_user *user);
void fq_link_remove_user(struct fq_link_user *user);
/* The user with these ops, or NULL: a link has at most one ring. */
struct fq_link_user *fq_link_find_user(struct fq_link *link, const struct fq_link_user_ops *ops);

static inline bool fq_link_is_up(const struct fq_link *link)
{
    return link->state == FQ_LINK_UP;
}
static inline struct fq_conn *fq_link_conn(const struct fq_link *link)
{
    return link->box->conn;
}

/* Ends the connection (the peer broke the protocol, ...); reconnects after the back-off. */
void fq_link_fail(struct fq_link *link, int code, const char *text);

/* Sends a message: at once or, when the transport is full, as soon as it has room. UNREACHABLE: the connection
 * is broken, and the event that says so comes. */
int fq_link_send(struct fq_link *link, const void *bytes, int64_t length);

/* Sends a request that was encoded with the correlation of fq_link_correlation. `done` is called once,
 * from driving, or not at all if fq_link_cancel comes first. Only when UP. */
uint32_t fq_link_correlation(struct fq_link *link);
int fq_link_request(struct fq_link *link, const void *bytes, int64_t length, uint32_t correlation,
                    int64_t deadline_us, fq_request_done done, void *context);
/* Forgets the requests of `context`. */
void fq_link_cancel(struct fq_link *link, void *context);

/* Called by the engine. */
void fq_link_step(struct fq_link *link, int64_t now_us);
int64_t fq_link_next_deadline_us(const struct fq_link *link);
void fq_links_dispatch(const struct fq_event *events, size_t count);

struct fq_conn_box *fq_conn_box_ref(struct fq_conn_box *box);
void fq_conn_box_unref(struct fq_conn_box *box); /* NULL is fine */
/* Closes those nobody refers to: between rounds, when no event of theirs is about. */
void fq_conn_boxes_reap(struct fq_engine *engine);

#endif
