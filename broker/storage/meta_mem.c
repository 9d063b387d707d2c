/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-memory twin of meta.pool: the same results for the same calls, nothing survives close. A
 * value's handle is its own address.
 */
#include <stdlib.h>
#include <string.h>

#include "storage/meta_index.h"

struct memory_meta {
    struct fq_meta base;
    struct fq_meta_index index;
    bool in_transaction, has_failed;
};

/* A value of no bytes has an address too. */
struct memory_value {
    size_t length;
    uint8_t bytes[];
};

static struct memory_meta *memory_of(struct fq_meta *meta)
{
    return (struct memory_meta *)(void *)meta;
}

static void release(void *context, const struct fq_meta_value *value)
{
    (void)context;
    free((void *)(uintptr_t)value->handle);
}

static int memory_begin(struct fq_meta *meta)
{
    struct memory_meta *m = memory_of(meta);
    if (m->in_transaction) {
        return FLASHQ_ERR_BUSY;
    }
    m->in_transaction = true;
    m->has_failed = false;
    return 0;
}

static void memory_abort(struct fq_meta *meta)
{
    struct memory_meta *m = memory_of(meta);
    if (m->in_transaction) {
        fq_meta_index_abort(&m->index, release, NULL);
        m->in_transaction = false;
    }
}

static int memory_commit(struct fq_meta *meta)
{
    struct memory_meta *m = memory_of(meta);
    if (!m->in_transaction || m->has_failed) {
        memory_abort(meta);
        return FLASHQ_ERR_INVALID;
    }
    fq_meta_index_commit(&m->index, release, NULL);
    m->in_transaction = false;
    return 0;
}

static void replace(struct memory_meta *m, struct fq_meta_node *node,
                    const struct fq_meta_value *value)
{
    bool is_own;
    const struct fq_meta_value former = fq_meta_index_set(&m->index, node, value, &is_own);
    if (is_own) {
        release(NULL, &former);
    }
}

static int memory_put(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
                      const void *value, size_t length, struct fq_err *err)
{
    struct memory_meta *m = memory_of(meta);
    int r = fq_meta_check_arguments(table, key, value, length, err);
    if (r < 0) {
        return r;
    }
    if (!m->in_transaction || m->has_failed) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "meta: no transaction that can go on");
    }
    struct memory_value *copy = malloc(sizeof *copy + length);
    struct fq_meta_node *node;
    if (!copy || fq_meta_index_prepare(&m->index, table, key, &node) < 0) {
        free(copy);
        m->has_failed = true;
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "meta: no memory");
    }
    copy->length = length;
    if (length > 0) {
        memcpy(copy->bytes, value, length);
    }
    replace(m, node,
            &(struct fq_meta_value){
                .bytes = copy->bytes, .length = length, .handle = (uint64_t)(uintptr_t)copy});
    return 0;
}

static int memory_remove(struct fq_meta *meta, enum fq_meta_table table,
                         const struct fq_meta_key *key)
{
    struct memory_meta *m = memory_of(meta);
    int r = fq_meta_check_arguments(table, key, NULL, 0, NULL);
    if (r < 0 || !m->in_transaction || m->has_failed) {
        return FLASHQ_ERR_INVALID;
    }
    if (!fq_meta_index_get(&m->index, table, key)) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    struct fq_meta_node *node;
    if (fq_meta_index_prepare(&m->index, table, key, &node) < 0) {
        m->has_failed = true;
        return FLASHQ_ERR_NO_MEMORY;
    }
    replace(m, node, &(struct fq_meta_value){.handle = 0});
    return 0;
}

static int memory_get(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
                      const void **ret_value, size_t *ret_length)
{
    int r = fq_meta_check_arguments(table, key, NULL, 0, NULL);
    if (r < 0) {
        return r;
    }
    const struct fq_meta_value *value = fq_meta_index_get(&memory_of(meta)->index, table, key);
    if (!value) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    *ret_value = value->bytes;
    *ret_length = value->length;
    return 0;
}

static int memory_visit(struct fq_meta *meta, enum fq_meta_table table,
                        const struct fq_meta_key *from,
                        int (*visitor)(void *context, const struct fq_meta_key *key,
                                       const void *value, size_t length),
                        void *context)
{
    if ((unsigned)table >= FQ_META_TABLES) {
        return FLASHQ_ERR_INVALID;
    }
    int r = 0;
    const struct fq_meta_node *node = fq_meta_index_seek(&memory_of(meta)->index, table, from);
    for (; node && r == 0; node = fq_meta_index_next(node)) {
        const struct fq_meta_value *value = fq_meta_node_value(node);
        r = visitor(context, fq_meta_node_key(node), value->bytes, value->length);
    }
    return r;
}

static void memory_close(struct fq_meta *meta)
{
    if (!meta) {
        return;
    }
    struct memory_meta *m = memory_of(meta);
    memory_abort(meta);
    fq_meta_index_fini(&m->index, release, NULL);
    free(m);
}

static const struct fq_meta_ops memory_ops = {.close = memory_close,
                                              .begin = memory_begin,
                                              .put = memory_put,
                                              .remove = memory_remove,
                                              .commit = memory_commit,
                                              .abort = memory_abort,
                                              .get = memory_get,
                                              .visit = memory_visit};

int fq_meta_open_memory(struct fq_meta **ret)
{
    struct memory_meta *m = calloc(1, sizeof *m);
    if (!m) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    m->base.ops = &memory_ops;
    fq_meta_index_init(&m->index);
    *ret = &m->base;
    return FQ_META_CREATED;
}
