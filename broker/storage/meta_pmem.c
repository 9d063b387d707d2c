/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.pool on libpmemobj. A put allocates a new object with the value and frees the former one, in
 * the transaction under way; nothing is changed in place. libpmemobj undoes a transaction that did
 * not commit when the pool is next opened; the volatile index undoes it through its journal.
 *
 * Calendars, which can be had again from the log and would grow to any size, get a third of the
 * pool at most.
 *
 * Failure: an allocation that does not fit is NO_SPACE, the transaction can then only be aborted,
 * and the pool is as before it. A value whose checksum fails is CORRUPT. libpmemobj aborts the
 * process when an msync fails.
 *
 * The housekeeper's thread: libpmemobj's transactions belong to the thread that begins them.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "storage/meta_index.h"
#include "storage/meta_pmem_pool.h"

struct pmem_meta {
    struct fq_meta base;
    struct fq_meta_index index;
    PMEMobjpool *pool;
    uint64_t pool_uuid_lo;
    bool in_transaction, has_failed;
    bool has_log;            /* the transaction uses the log's reserve */
    uint64_t calendar_bytes; /* of the pool, taken by calendars; the transaction's share: */
    uint64_t calendar_delta; /* modulo 2^64 */
    uint64_t calendar_bytes_max;
    uint64_t count_delta, sum_delta; /* of the transaction, modulo 2^64: what the root will say */
};

static struct pmem_meta *pmem_of(struct fq_meta *meta)
{
    return (struct pmem_meta *)(void *)meta;
}

static PMEMoid oid_of(const struct pmem_meta *m, uint64_t handle)
{
    return (PMEMoid){.pool_uuid_lo = m->pool_uuid_lo, .off = handle};
}

static struct fq_meta_pool_entry *entry_of(PMEMoid oid)
{
    struct fq_meta_pool_entry *entry = pmemobj_direct(oid);
    assert(entry);
    return entry;
}

static struct fq_meta_value value_of(const struct fq_meta_pool_entry *entry, PMEMoid oid)
{
    return (struct fq_meta_value){
        .bytes = entry->value, .length = entry->length, .handle = oid.off};
}

/* ---- transactions --------------------------------------------------------------------------- */

static void pmem_abort(struct fq_meta *meta)
{
    struct pmem_meta *m = pmem_of(meta);
    if (!m->in_transaction) {
        return;
    }
    if (pmemobj_tx_stage() == TX_STAGE_WORK) {
        pmemobj_tx_abort(ECANCELED);
    }
    (void)pmemobj_tx_end();
    fq_meta_index_abort(&m->index, NULL, NULL);
    m->in_transaction = false;
}

static int pmem_begin(struct fq_meta *meta)
{
    struct pmem_meta *m = pmem_of(meta);
    if (m->in_transaction) {
        return FLASHQ_ERR_BUSY;
    }
    if (pmemobj_tx_begin(m->pool, NULL, TX_PARAM_NONE) != 0) {
        (void)pmemobj_tx_end();
        return FLASHQ_ERR_FAILED;
    }
    m->in_transaction = true;
    m->has_failed = false;
    m->has_log = false;
    m->calendar_delta = 0;
    m->count_delta = 0;
    m->sum_delta = 0;
    /* Now, while there is room for its snapshot: the commit will change it. */
    int errnum = pmemobj_tx_xadd_range_direct(fq_meta_pool_root_of(m->pool),
                                              sizeof(struct fq_meta_pool_root), POBJ_XADD_NO_ABORT);
    if (errnum != 0) {
        pmem_abort(meta);
        return fq_err_from_errno(errnum);
    }
    return 0;
}

static int pmem_commit(struct fq_meta *meta)
{
    struct pmem_meta *m = pmem_of(meta);
    if (!m->in_transaction || m->has_failed) {
        pmem_abort(meta);
        return FLASHQ_ERR_INVALID;
    }
    struct fq_meta_pool_root *root = fq_meta_pool_root_of(m->pool);
    root->entries_count += m->count_delta;
    root->entries_sum += m->sum_delta;
    root->crc = fq_meta_pool_root_crc(root);
    pmemobj_tx_commit();
    int errnum = pmemobj_tx_end();
    m->in_transaction = false;
    if (errnum != 0) {
        fq_meta_index_abort(&m->index, NULL, NULL);
        return fq_err_from_errno(errnum);
    }
    fq_meta_index_commit(&m->index, NULL, NULL);
    m->calendar_bytes += m->calendar_delta;
    return 0;
}

/* Nothing but abort is possible from here on. */
static int fail(struct pmem_meta *m, struct fq_err *err, int code, const char *what)
{
    m->has_failed = true;
    return fq_err_set(err, code, "meta: %s", what);
}

static int fail_of_pool(struct pmem_meta *m, struct fq_err *err, int errnum)
{
    m->has_failed = true;
    if (errnum == ENOMEM) {
        return fq_err_set(err, FLASHQ_ERR_NO_SPACE,
                          "meta: the pool is full (its size was set when it was made)");
    }
    return fq_err_set(err, FLASHQ_ERR_FAILED, "meta: %s", pmemobj_errormsg());
}

static uint64_t calendar_share(const struct fq_meta_pool_entry *entry, PMEMoid oid)
{
    return entry->table == FQ_META_CALENDAR ? pmemobj_alloc_usable_size(oid) : 0;
}

/* Removing must not fail for want of room: what the removal has to note then goes into the reserve.
 */
static int free_entry(struct pmem_meta *m, PMEMoid oid)
{
    int errnum = pmemobj_tx_xfree(oid, POBJ_XFREE_NO_ABORT);
    if (errnum != ENOMEM || m->has_log) {
        return errnum;
    }
    m->has_log = true;
    void *log = pmemobj_direct(oid_of(m, fq_meta_pool_root_of(m->pool)->log_offset));
    errnum = pmemobj_tx_xlog_append_buffer(TX_LOG_TYPE_INTENT, log, FQ_META_LOG_BYTES,
                                           POBJ_XLOG_APPEND_BUFFER_NO_ABORT);
    return errnum != 0 ? errnum : pmemobj_tx_xfree(oid, POBJ_XFREE_NO_ABORT);
}

/* Puts `value` (handle 0: none) in the place of what the key has. */
static int replace(struct pmem_meta *m, struct fq_meta_node *node,
                   const struct fq_meta_value *value, struct fq_err *err)
{
    bool is_own;
    const struct fq_meta_value former = fq_meta_index_set(&m->index, node, value, &is_own);
    if (value->handle != 0) {
        const PMEMoid made = oid_of(m, value->handle);
        m->count_delta++;
        m->sum_delta += fq_meta_pool_entry_share(entry_of(made));
        m->calendar_delta += calendar_share(entry_of(made), made);
    }
    if (former.handle == 0) {
        return 0;
    }
    const PMEMoid oid = oid_of(m, former.handle);
    m->count_delta--;
    m->sum_delta -= fq_meta_pool_entry_share(entry_of(oid));
    m->calendar_delta -= calendar_share(entry_of(oid), oid);
    int errnum = free_entry(m, oid);
    return errnum == 0 ? 0 : fail_of_pool(m, err, errnum);
}

static int pmem_put(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
                    const void *value, size_t length, struct fq_err *err)
{
    struct pmem_meta *m = pmem_of(meta);
    int r = fq_meta_check_arguments(table, key, value, length, err);
    if (r < 0) {
        return r;
    }
    if (!m->in_transaction || m->has_failed) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "meta: no transaction that can go on");
    }
    if (table == FQ_META_CALENDAR &&
        m->calendar_bytes + m->calendar_delta + length > m->calendar_bytes_max) {
        return fail(m, err, FLASHQ_ERR_NO_SPACE, "calendars have their third of the pool already");
    }
    struct fq_meta_node *node;
    if (fq_meta_index_prepare(&m->index, table, key, &node) < 0) {
        return fail(m, err, FLASHQ_ERR_NO_MEMORY, "no memory");
    }
    errno = 0;
    PMEMoid oid = pmemobj_tx_xalloc(sizeof(struct fq_meta_pool_entry) + length, FQ_META_TYPE_ENTRY,
                                    POBJ_XALLOC_NO_ABORT);
    if (OID_IS_NULL(oid)) {
        return fail_of_pool(m, err, errno);
    }
    struct fq_meta_pool_entry *entry = entry_of(oid);
    entry->length = (uint32_t)length;
    entry->table = (uint32_t)table;
    entry->partition = key->partition;
    entry->node = key->node;
    memcpy(entry->topic_id, key->topic_id.bytes, sizeof entry->topic_id);
    if (length > 0) {
        memcpy(entry->value, value, length);
    }
    entry->crc = fq_meta_pool_entry_crc(entry);
    const struct fq_meta_value made = value_of(entry, oid);
    return replace(m, node, &made, err);
}

static int pmem_remove(struct fq_meta *meta, enum fq_meta_table table,
                       const struct fq_meta_key *key)
{
    struct pmem_meta *m = pmem_of(meta);
    int r = fq_meta_check_arguments(table, key, NULL, 0, NULL);
    if (r < 0 || !m->in_transaction || m->has_failed) {
        return FLASHQ_ERR_INVALID;
    }
    if (!fq_meta_index_get(&m->index, table, key)) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    struct fq_meta_node *node;
    if (fq_meta_index_prepare(&m->index, table, key, &node) < 0) {
        return fail(m, NULL, FLASHQ_ERR_NO_MEMORY, "no memory");
    }
    return replace(m, node, &(struct fq_meta_value){.handle = 0}, NULL);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What is in the pool may have been damaged since it was opened. */
static int check_value(const struct pmem_meta *m, const struct fq_meta_value *value)
{
    const PMEMoid oid = oid_of(m, value->handle);
    const struct fq_meta_pool_entry *entry = entry_of(oid);
    if (entry->length != value->length) {
        return FLASHQ_ERR_CORRUPT;
    }
    return fq_meta_pool_entry_check(entry, pmemobj_alloc_usable_size(oid));
}

static int pmem_get(struct fq_meta *meta, enum fq_meta_table table, const struct fq_meta_key *key,
                    const void **ret_value, size_t *ret_length)
{
    const struct pmem_meta *m = pmem_of(meta);
    int r = fq_meta_check_arguments(table, key, NULL, 0, NULL);
    if (r < 0) {
        return r;
    }
    const struct fq_meta_value *value = fq_meta_index_get(&m->index, table, key);
    if (!value) {
        return FLASHQ_ERR_NOT_FOUND;
    }
    r = check_value(m, value);
    if (r == 0) {
        *ret_value = value->bytes;
        *ret_length = value->length;
    }
    return r;
}

static int pmem_visit(struct fq_meta *meta, enum fq_meta_table table,
                      const struct fq_meta_key *from,
                      int (*visitor)(void *context, const struct fq_meta_key *key,
                                     const void *value, size_t length),
                      void *context)
{
    const struct pmem_meta *m = pmem_of(meta);
    if ((unsigned)table >= FQ_META_TABLES) {
        return FLASHQ_ERR_INVALID;
    }
    int r = 0;
    const struct fq_meta_node *node = fq_meta_index_seek(&m->index, table, from);
    for (; node && r == 0; node = fq_meta_index_next(node)) {
        const struct fq_meta_value *value = fq_meta_node_value(node);
        bool is_sound = check_value(m, value) == 0;
        r = visitor(context, fq_meta_node_key(node), is_sound ? value->bytes : NULL,
                    is_sound ? value->length : 0);
    }
    return r;
}

/* ---- open, close ---------------------------------------------------------------------------- */

static void pmem_close(struct fq_meta *meta)
{
    if (!meta) {
        return;
    }
    struct pmem_meta *m = pmem_of(meta);
    pmem_abort(meta);
    fq_meta_index_fini(&m->index, NULL, NULL);
    if (m->pool) {
        pmemobj_close(m->pool);
    }
    free(m);
}

static const struct fq_meta_ops pmem_ops = {.close = pmem_close,
                                            .begin = pmem_begin,
                                            .put = pmem_put,
                                            .remove = pmem_remove,
                                            .commit = pmem_commit,
                                            .abort = pmem_abort,
                                            .get = pmem_get,
                                            .visit = pmem_visit};

static int load_entry(struct pmem_meta *m, PMEMoid oid)
{
    if (pmemobj_type_num(oid) == FQ_META_TYPE_LOG) {
        return 0;
    }
    const struct fq_meta_pool_entry *entry = entry_of(oid);
    if (pmemobj_type_num(oid) != FQ_META_TYPE_ENTRY ||
        fq_meta_pool_entry_check(entry, pmemobj_alloc_usable_size(oid)) < 0) {
        return FLASHQ_ERR_CORRUPT;
    }
    struct fq_meta_key key = {.partition = entry->partition, .node = entry->node};
    memcpy(key.topic_id.bytes, entry->topic_id, sizeof key.topic_id.bytes);
    const struct fq_meta_value value = value_of(entry, oid);
    m->calendar_bytes += calendar_share(entry, oid);
    int r = fq_meta_index_load(&m->index, (enum fq_meta_table)entry->table, &key, &value);
    return r == FLASHQ_ERR_EXISTS ? FLASHQ_ERR_CORRUPT : r; /* one key twice */
}

static int load_entries(struct pmem_meta *m, const char *path, struct fq_err *err)
{
    m->pool_uuid_lo = pmemobj_root(m->pool, sizeof(struct fq_meta_pool_root)).pool_uuid_lo;
    m->calendar_bytes = 0;
    m->calendar_bytes_max = fq_meta_pool_root_of(m->pool)->file_bytes / 3;
    for (PMEMoid oid = pmemobj_first(m->pool); !OID_IS_NULL(oid); oid = pmemobj_next(oid)) {
        int r = load_entry(m, oid);
        if (r < 0) {
            return fq_err_set(err, r, "%s: reading its entries", path);
        }
    }
    return 0;
}

static int open_existing(struct pmem_meta *m, const char *path, bool has_look, struct fq_err *err)
{
    int r = fq_meta_pool_open(path, has_look, &m->pool, err);
    r = r < 0 ? r : load_entries(m, path, err);
    if (r < 0 && m->pool) {
        fq_meta_index_fini(&m->index, NULL, NULL);
        pmemobj_close(m->pool);
        m->pool = NULL;
    }
    return r;
}

static int open_or_make(struct pmem_meta *m, const char *path, size_t bytes, struct fq_err *err)
{
    int r = open_existing(m, path, true, err);
    if (r != FLASHQ_ERR_NOT_FOUND && r != FLASHQ_ERR_CORRUPT) {
        return r;
    }
    int outcome = r == FLASHQ_ERR_CORRUPT ? FQ_META_REBUILT : FQ_META_CREATED;
    r = outcome == FQ_META_REBUILT ? fq_meta_pool_set_aside(path, err) : 0;
    r = r < 0 ? r : fq_meta_pool_create(path, bytes, &m->pool, err);
    r = r < 0 ? r : load_entries(m, path, err);
    return r < 0 ? r : outcome;
}

static struct pmem_meta *create(void)
{
    struct pmem_meta *m = calloc(1, sizeof *m);
    if (m) {
        m->base.ops = &pmem_ops;
        fq_meta_index_init(&m->index);
    }
    return m;
}

/* Hands it over, or closes it when `result` is an error. */
static int finish_open(struct pmem_meta *m, int result, struct fq_meta **ret)
{
    if (result < 0) {
        pmem_close(&m->base);
    } else {
        *ret = &m->base;
    }
    return result;
}

int fq_meta_open_pmem(const char *path, size_t bytes, struct fq_meta **ret, struct fq_err *err)
{
    if (bytes < FQ_LIMIT_META_POOL_BYTES_MIN) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "%s: %zu bytes asked for, FQ_LIMIT_META_POOL_BYTES_MIN is %u", path,
                          bytes, FQ_LIMIT_META_POOL_BYTES_MIN);
    }
    struct pmem_meta *m = create();
    if (!m) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "%s: no memory", path);
    }
    return finish_open(m, open_or_make(m, path, bytes, err), ret);
}

int fq_meta_open_pmem_trusting(const char *path, struct fq_meta **ret, struct fq_err *err)
{
    struct pmem_meta *m = create();
    if (!m) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "%s: no memory", path);
    }
    return finish_open(m, open_existing(m, path, false, err), ret);
}
