/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A skip list ordered by (table, topic id, partition, node). Nodes that a transaction adds stay in
 * the list until it ends; one that it removes stays too, without a value. So abort only puts values
 * back.
 */
#include "storage/meta_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct fq_meta_node {
    enum fq_meta_table table;
    struct fq_meta_key key;
    struct fq_meta_value value;
    size_t journal_at; /* index in the journal + 1; 0: not changed by the transaction */
    unsigned height;
    struct fq_meta_node *next[];
};

static int compare(const struct fq_meta_node *node, enum fq_meta_table table,
                   const struct fq_meta_key *key)
{
    if (node->table != table) {
        return node->table < table ? -1 : 1;
    }
    int order = memcmp(&node->key.topic_id, &key->topic_id, sizeof key->topic_id);
    if (order != 0) {
        return order;
    }
    if (node->key.partition != key->partition) {
        return node->key.partition < key->partition ? -1 : 1;
    }
    return (node->key.node > key->node) - (node->key.node < key->node);
}

void fq_meta_index_init(struct fq_meta_index *index)
{
    memset(index, 0, sizeof *index);
    fq_prng_seed(&index->prng, 1);
}

void fq_meta_index_fini(struct fq_meta_index *index,
                        void (*release)(void *context, const struct fq_meta_value *value),
                        void *context)
{
    assert(index->journal_count == 0);
    struct fq_meta_node *node = index->heads[0];
    while (node) {
        struct fq_meta_node *next = node->next[0];
        if (release) {
            release(context, &node->value);
        }
        free(node);
        node = next;
    }
    free(index->journal);
    fq_meta_index_init(index);
}

/* Fills, for each height, the link that leads to the first node at or after the key. */
static struct fq_meta_node *find_links(struct fq_meta_index *index, enum fq_meta_table table,
                                       const struct fq_meta_key *key,
                                       struct fq_meta_node **links[FQ_META_INDEX_HEIGHT])
{
    struct fq_meta_node *previous = NULL;
    for (unsigned height = FQ_META_INDEX_HEIGHT; height-- > 0;) {
        struct fq_meta_node **link = previous ? &previous->next[height] : &index->heads[height];
        while (*link && compare(*link, table, key) < 0) {
            previous = *link;
            link = &previous->next[height];
        }
        links[height] = link;
    }
    return *links[0];
}

static const struct fq_meta_node *find(const struct fq_meta_index *index, enum fq_meta_table table,
                                       const struct fq_meta_key *key)
{
    const struct fq_meta_node *previous = NULL;
    const struct fq_meta_node *at = NULL;
    for (unsigned height = FQ_META_INDEX_HEIGHT; height-- > 0;) {
        at = previous ? previous->next[height] : index->heads[height];
        while (at && compare(at, table, key) < 0) {
            previous = at;
            at = at->next[height];
        }
    }
    return at;
}

static struct fq_meta_node *insert(struct fq_meta_index *index, enum fq_meta_table table,
                                   const struct fq_meta_key *key,
                                   struct fq_meta_node **links[FQ_META_INDEX_HEIGHT])
{
    unsigned height = 1;
    while (height < FQ_META_INDEX_HEIGHT && fq_prng_below(&index->prng, 4) == 0) {
        height++;
    }
    struct fq_meta_node *node = calloc(1, sizeof *node + height * sizeof(struct fq_meta_node *));
    if (!node) {
        return NULL;
    }
    node->table = table;
    node->key = *key;
    node->height = height;
    for (unsigned i = 0; i < height; i++) {
        node->next[i] = *links[i];
        *links[i] = node;
    }
    index->count++;
    return node;
}

static void unlink_node(struct fq_meta_index *index, struct fq_meta_node *node)
{
    struct fq_meta_node **links[FQ_META_INDEX_HEIGHT];
    struct fq_meta_node *found = find_links(index, node->table, &node->key, links);
    assert(found == node);
    for (unsigned i = 0; i < found->height; i++) {
        *links[i] = found->next[i];
    }
    index->count--;
    free(found);
}

const struct fq_meta_value *fq_meta_index_get(const struct fq_meta_index *index,
                                              enum fq_meta_table table,
                                              const struct fq_meta_key *key)
{
    const struct fq_meta_node *node = find(index, table, key);
    bool is_there = node && compare(node, table, key) == 0 && node->value.handle != 0;
    return is_there ? &node->value : NULL;
}

int fq_meta_index_load(struct fq_meta_index *index, enum fq_meta_table table,
                       const struct fq_meta_key *key, const struct fq_meta_value *value)
{
    struct fq_meta_node **links[FQ_META_INDEX_HEIGHT];
    struct fq_meta_node *node = find_links(index, table, key, links);
    if (node && compare(node, table, key) == 0) {
        return FLASHQ_ERR_EXISTS;
    }
    node = insert(index, table, key, links);
    if (!node) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    node->value = *value;
    return 0;
}

/* ---- transactions --------------------------------------------------------------------------- */

static int reserve_journal(struct fq_meta_index *index)
{
    if (index->journal_count < index->journal_capacity) {
        return 0;
    }
    size_t capacity = index->journal_capacity ? index->journal_capacity * 2 : 64;
    void *journal = realloc(index->journal, capacity * sizeof *index->journal);
    if (!journal) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    index->journal = journal;
    index->journal_capacity = capacity;
    return 0;
}

int fq_meta_index_prepare(struct fq_meta_index *index, enum fq_meta_table table,
                          const struct fq_meta_key *key, struct fq_meta_node **ret)
{
    int r = reserve_journal(index);
    if (r < 0) {
        return r;
    }
    struct fq_meta_node **links[FQ_META_INDEX_HEIGHT];
    struct fq_meta_node *node = find_links(index, table, key, links);
    if (!node || compare(node, table, key) != 0) {
        node = insert(index, table, key, links);
        if (!node) {
            return FLASHQ_ERR_NO_MEMORY;
        }
    }
    if (node->journal_at == 0) {
        index->journal[index->journal_count++] =
            (struct fq_meta_change){.node = node, .before = node->value};
        node->journal_at = index->journal_count;
    }
    *ret = node;
    return 0;
}

struct fq_meta_value fq_meta_index_set(struct fq_meta_index *index, struct fq_meta_node *node,
                                       const struct fq_meta_value *value, bool *ret_is_own)
{
    assert(node->journal_at > 0);
    const struct fq_meta_value former = node->value;
    const struct fq_meta_value *before = &index->journal[node->journal_at - 1].before;
    *ret_is_own = former.handle != 0 && former.handle != before->handle;
    node->value = *value;
    return former;
}

void fq_meta_index_commit(struct fq_meta_index *index,
                          void (*release)(void *context, const struct fq_meta_value *value),
                          void *context)
{
    for (size_t i = 0; i < index->journal_count; i++) {
        const struct fq_meta_change *change = &index->journal[i];
        change->node->journal_at = 0;
        bool is_replaced = change->before.handle != change->node->value.handle;
        if (release && is_replaced && change->before.handle != 0) {
            release(context, &change->before);
        }
        if (change->node->value.handle == 0) {
            unlink_node(index, change->node);
        }
    }
    index->journal_count = 0;
}

void fq_meta_index_abort(struct fq_meta_index *index,
                         void (*release)(void *context, const struct fq_meta_value *value),
                         void *context)
{
    for (size_t i = 0; i < index->journal_count; i++) {
        const struct fq_meta_change *change = &index->journal[i];
        const struct fq_meta_value made = change->node->value;
        change->node->journal_at = 0;
        change->node->value = change->before;
        if (release && made.handle != 0 && made.handle != change->before.handle) {
            release(context, &made);
        }
        if (change->before.handle == 0) {
            unlink_node(index, change->node);
        }
    }
    index->journal_count = 0;
}

/* ---- walking -------------------------------------------------------------------------------- */

static const struct fq_meta_node *skip_removed(const struct fq_meta_node *node,
                                               enum fq_meta_table table)
{
    while (node && node->table == table && node->value.handle == 0) {
        node = node->next[0];
    }
    return node && node->table == table ? node : NULL;
}

const struct fq_meta_node *fq_meta_index_seek(const struct fq_meta_index *index,
                                              enum fq_meta_table table,
                                              const struct fq_meta_key *from)
{
    static const struct fq_meta_key least;
    return skip_removed(find(index, table, from ? from : &least), table);
}

const struct fq_meta_node *fq_meta_index_next(const struct fq_meta_node *node)
{
    return skip_removed(node->next[0], node->table);
}

const struct fq_meta_key *fq_meta_node_key(const struct fq_meta_node *node)
{
    return &node->key;
}

const struct fq_meta_value *fq_meta_node_value(const struct fq_meta_node *node)
{
    return &node->value;
}

/* ---- arguments ------------------------------------------------------------------------------ */

int fq_meta_check_arguments(enum fq_meta_table table, const struct fq_meta_key *key,
                            const void *value, size_t length, struct fq_err *err)
{
    if ((unsigned)table >= FQ_META_TABLES || !key || (!value && length > 0)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "meta: no such table, or no key or value");
    }
    if (length > FQ_META_VALUE_BYTES_MAX) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE,
                          "meta: a value of %zu bytes, FQ_META_VALUE_BYTES_MAX is %u", length,
                          FQ_META_VALUE_BYTES_MAX);
    }
    return 0;
}
