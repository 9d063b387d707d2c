/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.pool: what a broker remembers beside the logs. An ops table with two implementations:
 * meta_pmem.c (libpmemobj, transactions) and meta_mem.c (an in-memory twin for tests and
 * simulation).
 *
 * Owned by the housekeeper: no shard ever calls it (a transaction takes 5 to 200 us). libpmemobj
 * aborts the process on a failed msync. Everything here but the catalogue is derived from the log
 * and rebuilt when lost; the catalogue has a second home in the segment headers and `topic` files.
 *
 * Tables. Keys are small fixed structs, values are bytes; a table keeps its own order:
 *   catalogue   topic id                     -> name, partitions, configuration
 *   epochs      topic id, partition          -> leader epoch history
 *   producers   topic id, partition          -> snapshot of producer states at an offset
 *   calendar    topic id, partition, node    -> time index nodes
 *   system      zero                         -> what belongs to no topic
 */
#ifndef FQ_STORAGE_META_H
#define FQ_STORAGE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/protocol.h"

struct fq_meta;

enum fq_meta_table {
    FQ_META_CATALOGUE,
    FQ_META_EPOCHS,
    FQ_META_PRODUCERS,
    FQ_META_CALENDAR,
    FQ_META_SYSTEM,
    FQ_META_TABLES
};

struct fq_meta_key {
    struct fq_uuid topic_id;
    uint32_t partition; /* 0 for the catalogue */
    uint64_t node;      /* calendar: node number; producers: piece number; else 0 */
};

#define FQ_META_VALUE_BYTES_MAX (1u << 20)

struct fq_meta_ops {
    void (*close)(struct fq_meta *meta); /* aborts a transaction under way; NULL is fine */
    /* Transactions: all puts and removes between begin and commit happen together or not at all;
     * commit returns when that is durable. They do not nest (begin within one: BUSY), and belong to
     * the thread that began. put, remove and commit without begin: INVALID. get and visit see the
     * changes of the transaction under way. After a put that failed (NO_SPACE, NO_MEMORY) only
     * abort is possible; commit would refuse (INVALID) and abort. A refused argument (INVALID,
     * TOO_LARGE) changes nothing. */
    int (*begin)(struct fq_meta *meta);
    /* Adds or replaces. length 0 .. FQ_META_VALUE_BYTES_MAX; the bytes are copied. */
    int (*put)(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
               const void *value, size_t length, struct fq_err *err);
    int (*remove)(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key);
    int (*commit)(struct fq_meta *meta);
    void (*abort)(struct fq_meta *meta); /* without a transaction: nothing */
    /* The value, borrowed until the next put, remove, commit or abort; NOT_FOUND; CORRUPT if its
     * checksum fails. Inside or outside a transaction. */
    int (*get)(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
               const void **ret_value, size_t *ret_length);
    /* Visits the keys of a table in key order (topic id bytes, partition, node), from `from` (NULL:
     * the first) on; stops when the visitor returns non-zero and returns that. The visitor changes
     * nothing. A value whose checksum fails is shown as NULL: so what is damaged can still be
     * removed, and keeps nobody from its neighbours. */
    int (*visit)(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *from,
                 int (*visitor)(void *context, const struct fq_meta_key *key, const void *value,
                                size_t length),
                 void *context);
};

struct fq_meta {
    const struct fq_meta_ops *ops;
};

enum fq_meta_opened {
    FQ_META_OPENED = 0,
    FQ_META_CREATED = 1, /* there was none */
    FQ_META_REBUILT = 2  /* the old one was damaged: renamed to meta.pool.damaged-N, new one made */
};

/* Calendars get at most a third of the pool (NO_SPACE for a put beyond): they can be had again from
 * the log and must not keep a topic from being created.
 *
 * Opens or creates `path`; `bytes` (at least FQ_LIMIT_META_POOL_BYTES_MIN) only on creation: the
 * file is fully allocated and never grows. Positive results: enum fq_meta_opened; then *ret is set.
 * Whatever is at `path` and cannot be read as a meta pool is renamed, never removed. BUSY: another
 * process has it open; VERSION: made by a newer FlashQ (kept); NO_SPACE; other errors are the
 * system's. UNSUPPORTED: built without libpmemobj.
 *
 * A child process looks at an existing pool first, because libpmemobj trusts the bytes that it maps
 * and a damaged one can crash it: call this before threads are started. */
int fq_meta_open_pmem(const char *path, size_t bytes, struct fq_meta **ret, struct fq_err *err);
/* The in-memory twin. */
int fq_meta_open_memory(struct fq_meta **ret);

/* Removes every key of `table` with this topic id (and partition, unless UINT32_MAX: all of them),
 * within the caller's transaction. */
int fq_meta_remove_all(struct fq_meta *meta, enum fq_meta_table table,
                       const struct fq_uuid *topic_id, uint32_t partition);

#endif
