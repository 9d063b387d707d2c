/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The volatile part that both meta implementations share: all keys of all tables in one ordered
 * list, with a journal of what the transaction under way has changed, so that an abort needs no
 * memory.
 *
 * Values are owned by the implementation; the index knows a pointer, a length and a handle.
 */
#ifndef FQ_STORAGE_META_INDEX_H
#define FQ_STORAGE_META_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "storage/meta.h"

struct fq_meta_value {
    const void *bytes;
    size_t length;
    uint64_t handle; /* the implementation's; 0: no value */
};

struct fq_meta_node;

struct fq_meta_change {
    struct fq_meta_node *node;
    struct fq_meta_value before; /* the transaction */
};

#define FQ_META_INDEX_HEIGHT 20u

struct fq_meta_index {
    struct fq_meta_node *heads[FQ_META_INDEX_HEIGHT];
    size_t count;        /* nodes */
    struct fq_prng prng; /* heights; seeded alike in every run */
    struct fq_meta_change *journal;
    size_t journal_count, journal_capacity;
};

void fq_meta_index_init(struct fq_meta_index *index);
/* The journal must be empty (commit or abort came first). `release` (may be NULL) gets every value.
 */
void fq_meta_index_fini(struct fq_meta_index *index,
                        void (*release)(void *context, const struct fq_meta_value *value),
                        void *context);

/* NULL: not there (or removed by the transaction under way). */
const struct fq_meta_value *fq_meta_index_get(const struct fq_meta_index *index,
                                              enum fq_meta_table table,
                                              const struct fq_meta_key *key);

/* Outside transactions: what is there when the pool is opened. EXISTS, NO_MEMORY. */
int fq_meta_index_load(struct fq_meta_index *index, enum fq_meta_table table,
                       const struct fq_meta_key *key, const struct fq_meta_value *value);

/* Makes room for a change of this key: a node and a place in the journal. After it
 * fq_meta_index_set cannot fail. NO_MEMORY. */
int fq_meta_index_prepare(struct fq_meta_index *index, enum fq_meta_table table,
                          const struct fq_meta_key *key, struct fq_meta_node **ret);
/* Sets the node's value (handle 0: removes it). Returns the former value; *ret_is_own tells whether
 * this transaction made that one (else it comes back at commit or abort). */
struct fq_meta_value fq_meta_index_set(struct fq_meta_index *index, struct fq_meta_node *node,
                                       const struct fq_meta_value *value, bool *ret_is_own);

/* Ends the transaction; `release` (may be NULL) gets the values that nothing refers to any more. */
void fq_meta_index_commit(struct fq_meta_index *index,
                          void (*release)(void *context, const struct fq_meta_value *value),
                          void *context);
void fq_meta_index_abort(struct fq_meta_index *index,
                         void (*release)(void *context, const struct fq_meta_value *value),
                         void *context);

/* The first node of `table` at or after `from` (NULL: the first of the table) that has a value. */
const struct fq_meta_node *fq_meta_index_seek(const struct fq_meta_index *index,
                                              enum fq_meta_table table,
                                              const struct fq_meta_key *from);
/* The next one of the same table, or NULL. */
const struct fq_meta_node *fq_meta_index_next(const struct fq_meta_node *node);
const struct fq_meta_key *fq_meta_node_key(const struct fq_meta_node *node);
const struct fq_meta_value *fq_meta_node_value(const struct fq_meta_node *node);

/* Arguments of the ops, checked alike by both: INVALID, TOO_LARGE. */
int fq_meta_check_arguments(enum fq_meta_table table, const struct fq_meta_key *key,
                            const void *value, size_t length, struct fq_err *err);

#endif
