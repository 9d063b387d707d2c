/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection as its shard serves it: requests, a producer ring with slots, readers.
 *
 * States (one setter, set_state in session.c)
 *
 *   NEW --SESSION_OPEN--> OPEN --goodbye or misbehaviour--> ENDING --> DEAD (reaped)
 *    |                     |                                           ^
 *    +---------------------+------------- disconnected ---------------+
 *
 *   NEW     nothing granted; any other request is refused; ends by itself after a few seconds
 *   OPEN    the views are granted; everything works
 *   ENDING  a last message is on its way; nothing that arrives is looked at; ends by a deadline
 *   DEAD    windows revoked, segments unpinned, producers closed; freed at the end of the step
 *
 * What a peer sends is hostile: its messages are checked by the decoder, its notifies against the
 * credits and slots it was given, its ring by the partition. Whatever it does wrong costs only its
 * own connection.
 *
 * One thread: its shard's. The files: session.c life and messages, slots.c and ring.c the
 * producer's side, readers.c the consumer's side, requests.c what other threads answer.
 */
#ifndef FQ_SESSION_SESSION_H
#define FQ_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "fabric/fabric.h"
#include "session/counters.h"
#include "session/handles.h"
#include "session/hosted.h"
#include "session/task.h"
#include "wire/protocol.h"

struct fq_session;

/* What a shard gives its sessions. */
struct fq_session_host {
    struct fq_hosted_table *hosted;
    struct fq_region *views;
    uint32_t views_count;
    struct fq_counters *counters;
    struct fq_handles sessions; /* all of the shard's */
    struct fq_session **due;    /* those that fq_sessions_step looks at */
    size_t due_count, due_capacity;
    struct fq_chain pushing; /* connections whose pushes have something to write */
    struct fq_chain flying;  /* connections with writes of pushes under way */
    size_t turn;             /* of who comes first */
    struct fq_chain taking;  /* sessions with batches to take, who comes first first */
    uint64_t takes;          /* calls of fq_sessions_take */
    unsigned shard;
    /* Hands a task to the housekeeper. */
    void (*submit)(void *context, struct fq_task *task);
    void *context;

    struct fq_uuid cluster_id, boot_id;
    const char *shm_path;                          /* "": none */
    char storage[FQ_LIMIT_STORAGE_TEXT_BYTES + 1]; /* medium, flush, guarantee */
    uint64_t window_bytes;                         /* of a producer ring */
    uint32_t message_max_bytes, batch_max_bytes, max_in_flight;
    bool is_stopping;
    int64_t now_us;          /* of the running event or step */
    int64_t next_warning_us; /* a hostile peer may not flood the log */
};

int fq_session_host_init(struct fq_session_host *host);
void fq_session_host_fini(struct fq_session_host *host); /* kills all sessions */

/* A session for an adopted connection, which it owns from now on; it becomes the connection's
 * context. NULL: no memory or too many (the connection stays the caller's). */
struct fq_session *fq_session_create(struct fq_session_host *host, struct fq_conn *conn,
                                     int64_t now_us);

/* Any event of its connection. */
void fq_session_on_event(struct fq_session *session, const struct fq_event *event, int64_t now_us);

/* Takes batches that were notified, the sessions in turns, a bounded number of bytes. Returns how
 * many; more may be left. */
unsigned fq_sessions_take(struct fq_session_host *host);

/* Retries what is unsent, sends acknowledgements and wake-ups that are due, ends what is
 * late, frees the dead. Returns how much was done. */
unsigned fq_sessions_step(struct fq_session_host *host, int64_t now_us);
int64_t fq_sessions_next_deadline_us(const struct fq_session_host *host);

/* A finished task of a session of this shard; consumes it. */
void fq_sessions_on_task(struct fq_session_host *host, struct fq_task *task, int64_t now_us);

/* Something happened to a hosted partition. */
void fq_sessions_on_hosted(struct fq_session_host *host, struct fq_hosted *hosted,
                           enum fq_hosted_event event, int64_t now_us);

/* Shutting down: no batch is taken any more; each session ends when its last acknowledgement and a
 * GOODBYE are on their way, or at the deadline. */
void fq_sessions_say_goodbye(struct fq_session_host *host, int64_t deadline_us);
size_t fq_sessions_count(const struct fq_session_host *host);

#endif
