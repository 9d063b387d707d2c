/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker's counters. Each thread counts in a set of its own (one writer, relaxed stores, no
 * shared line), whoever is asked adds the sets up. Names are dotted and append-only: dashboards
 * live on them.
 */
#ifndef FQ_SESSION_COUNTERS_H
#define FQ_SESSION_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "flashq/error.h"

/* X(symbol, name) */
#define FQ_COUNTER_LIST(X)                                                                         \
    X(SESSIONS_OPEN, "connections.open") /* goes down again */                                     \
    X(SESSIONS_ACCEPTED_SHM, "connections.accepted.shm")                                           \
    X(SESSIONS_ACCEPTED_TCP, "connections.accepted.tcp")                                           \
    X(SESSIONS_ACCEPTED_RDMA, "connections.accepted.rdma")                                         \
    X(SESSIONS_REFUSED, "connections.refused")                                                     \
    X(SESSIONS_CLOSED, "connections.closed")                                                       \
    X(REQUESTS, "requests")                                                                        \
    X(REQUESTS_FAILED, "requests.failed")                                                          \
    X(HEARTBEATS, "heartbeats")                                                                    \
    X(APPEND_BATCHES, "append.batches")                                                            \
    X(APPEND_BYTES, "append.bytes")                                                                \
    X(APPEND_RECORDS, "append.records")                                                            \
    X(APPEND_DUPLICATES, "append.duplicates")                                                      \
    X(APPEND_REFUSED, "append.refused")                                                            \
    X(DIRECT_OPEN, "append.direct.open") /* slots that hold a partition */                         \
    X(DIRECT_WINDOWS, "append.direct.windows")                                                     \
    X(DIRECT_REVOKED, "append.direct.revoked")                                                     \
    X(DIRECT_FENCED, "append.direct.fenced")                                                       \
    X(APPEND_MAYBE, "append.maybe_persisted")                                                      \
    X(SEGMENTS_STARVED, "segments_starved")                                                        \
    X(ACKS, "acks")                                                                                \
    X(ACK_ROUNDS, "acks.rounds")                                                                   \
    X(PRODUCERS_OPEN, "producers.open")                                                            \
    X(RINGS_OPEN, "producers.rings.open")                                                          \
    X(READERS_OPEN, "readers.open")                                                                \
    X(READERS_WOKEN, "readers.woken")                                                              \
    X(READERS_RESET, "readers.reset")                                                              \
    X(SEGMENTS_HELD, "readers.segments.held")                                                      \
    X(SEGMENTS_RETIRING, "readers.segments.retiring")                                              \
    X(SEGMENTS_CUT, "readers.segments.cut")                                                        \
    X(PUSHES_OPEN, "push.open")                                                                    \
    X(PUSH_BYTES, "push.bytes")                                                                    \
    X(PUSH_HEADS, "push.heads")       /* told of: one notify each */                               \
    X(PUSH_CREDITS, "push.credits")   /* notifies with credit */                                   \
    X(PUSH_STALLED, "push.stalled")   /* times that one ran out of credit */                       \
    X(PUSH_BLOCKED, "push.blocked")   /* times that a connection's queue was full */               \
    X(PUSH_STOPPED, "push.stopped")                                                                \
    X(PUSH_CUT, "push.cut") /* connections that did not take bytes of a retired segment */         \
    X(PARTITIONS_OPEN, "partitions.open")                                                          \
    X(PARTITIONS_OFFLINE, "partitions.offline")                                                    \
    X(TOPICS, "topics")                                                                            \
    X(TOPICS_CREATED, "topics.created")                                                            \
    X(TOPICS_DELETED, "topics.deleted")                                                            \
    X(TIME_QUERIES, "time.queries")                                                                \
    X(CALENDAR_MARKS, "time.calendar.marks")                                                       \
    X(CALENDAR_ERRORS, "time.calendar.errors")                                                     \
    X(RETENTION_SEGMENTS, "retention.segments")                                                    \
    X(META_SNAPSHOTS, "meta.snapshots")                                                            \
    X(BAD_HELLO, "bad_input.hello")                                                                \
    X(BAD_MESSAGE, "bad_input.message")                                                            \
    X(BAD_ORDER, "bad_input.order")                                                                \
    X(BAD_TYPE, "bad_input.type")                                                                  \
    X(BAD_NOTIFY, "bad_input.notify")                                                              \
    X(BAD_BATCH, "bad_input.batch")                                                                \
    X(BAD_CREDIT, "bad_input.credit")                                                              \
    X(BAD_WINDOW, "bad_input.window")                                                              \
    X(BAD_QUEUE, "bad_input.queue") /* peers that do not read their answers */                     \
    X(BAD_FRAME, "bad_input.frame") /* outside a window, without the right, malformed */           \
    X(FABRIC_MESSAGES_IN, "fabric.messages_in")                                                    \
    X(FABRIC_NOTIFIES_IN, "fabric.notifies_in")                                                    \
    X(FABRIC_WRITE_BYTES_IN, "fabric.write_bytes_in") /* tcp: over shm the peer writes itself */   \
    X(FABRIC_READ_BYTES_IN, "fabric.read_bytes_in")                                                \
    X(FABRIC_WAKES_PAID, "fabric.wakes_paid")                                                      \
    X(FABRIC_AGAIN, "fabric.again")                                                                \
    X(WAKES, "wakes")                                                                              \
    X(STEPS_BUSY, "steps.busy")

enum fq_counter_id {
#define FQ_COUNTER_ENUM(symbol, name) FQ_COUNT_##symbol,
    FQ_COUNTER_LIST(FQ_COUNTER_ENUM)
#undef FQ_COUNTER_ENUM
        FQ_COUNT_NAMED
};

/* Refused batches by reason follow the named ones: "append.refused.timestamp", ...; the last is
 * "other". */
#define FQ_COUNT_REASONS 13
#define FQ_COUNTERS      (FQ_COUNT_NAMED + FQ_COUNT_REASONS)

struct fq_counters {
    _Alignas(64) _Atomic int64_t values[FQ_COUNTERS];
};

/* By the owning thread only. */
void fq_count_add(struct fq_counters *counters, enum fq_counter_id id, int64_t delta);
/* For what is counted elsewhere. */
void fq_count_set(struct fq_counters *counters, enum fq_counter_id id, int64_t value);
static inline void fq_count(struct fq_counters *counters, enum fq_counter_id id)
{
    fq_count_add(counters, id, 1);
}
/* Counts APPEND_REFUSED and the reason's own counter; `code` is a FLASHQ_ERR_ value. */
void fq_count_refusal(struct fq_counters *counters, int code);

/* By any thread. */
int64_t fq_counters_get(const struct fq_counters *counters, size_t index);
/* "append.refused.timestamp": writes into `buffer` and returns it. */
const char *fq_counter_name(size_t index, char *buffer, size_t bytes);

#endif
