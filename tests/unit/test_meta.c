/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h, told once for both implementations: random transactions against a plain array as the model;
 * then what only the pool on libpmemobj has: it survives, it fills up, it gets damaged.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/random.h"
#include "storage/meta.h"
#include "timeindex/timeindex.h"

enum { POOL_BYTES = 16 << 20 };

/* ---- a place for pools ---------------------------------------------------------------------- */

static char directory[256], pool_path[300];

static void make_directory(void)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(directory, sizeof directory, "%s/fq-meta-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(pool_path, sizeof pool_path, "%s/meta.pool", directory);
}

static void remove_directory(void)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[600];
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(path) < 0) {
            (void)rmdir(path);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    (void)rmdir(directory);
}

static struct fq_meta *open_pool(int expected)
{
    struct fq_meta *meta = NULL;
    struct fq_err err = {0};
    int r = fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, &err);
    cr_assert_eq(r, expected, "open gave %d, not %d: %s", r, expected, err.text);
    return meta;
}

static bool exists(const char *suffix)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s%s", pool_path, suffix);
    struct stat st;
    return lstat(path, &st) == 0;
}

/* ---- the model ------------------------------------------------------------------------------ */

enum { MODEL_KEYS = 60, MODEL_VALUE_BYTES = 3000 };

struct model_entry {
    enum fq_meta_table table;
    struct fq_meta_key key;
    bool is_there;
    size_t length;
    uint8_t value[MODEL_VALUE_BYTES];
};

struct model {
    struct model_entry entries[MODEL_KEYS];
};

static int order_of(const struct model_entry *a, const struct model_entry *b)
{
    if (a->table != b->table) {
        return a->table < b->table ? -1 : 1;
    }
    int r = memcmp(a->key.topic_id.bytes, b->key.topic_id.bytes, FQ_UUID_BYTES);
    if (r == 0) {
        r = (a->key.partition > b->key.partition) - (a->key.partition < b->key.partition);
    }
    return r ? r : (a->key.node > b->key.node) - (a->key.node < b->key.node);
}

static int compare_entries(const void *a, const void *b)
{
    return order_of(a, b);
}

/* Distinct keys, sorted, with values of the fields at their extremes among them. */
static void model_init(struct model *model, struct fq_prng *prng)
{
    memset(model, 0, sizeof *model);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_entry *e = &model->entries[i];
        e->table = (enum fq_meta_table)fq_prng_below(prng, FQ_META_TABLES);
        e->key.topic_id.bytes[0] = (uint8_t)(fq_prng_below(prng, 2) * 0xff);
        e->key.topic_id.bytes[15] = (uint8_t)fq_prng_below(prng, 3);
        e->key.partition = fq_prng_below(prng, 3) ? (uint32_t)fq_prng_below(prng, 4) : UINT32_MAX;
        e->key.node = i + (fq_prng_below(prng, 3) ? 0 : UINT64_MAX - MODEL_KEYS);
    }
    qsort(model->entries, MODEL_KEYS, sizeof model->entries[0], compare_entries);
}

struct visit {
    const struct model *model;
    enum fq_meta_table table;
    size_t next;
    size_t seen, stop_after;
};

static int check_visited(void *context, const struct fq_meta_key *key, const void *value,
                         size_t length)
{
    struct visit *visit = context;
    const struct model_entry *e = &visit->model->entries[visit->next];
    while (visit->next < MODEL_KEYS && (e->table != visit->table || !e->is_there)) {
        e = &visit->model->entries[++visit->next];
    }
    cr_assert_lt(visit->next, MODEL_KEYS, "more keys than the model has");
    cr_assert_eq(memcmp(&e->key.topic_id, &key->topic_id, sizeof key->topic_id), 0);
    cr_assert_eq(e->key.partition, key->partition);
    cr_assert_eq(e->key.node, key->node);
    cr_assert_eq(e->length, length);
    cr_assert_eq(memcmp(e->value, value, length), 0);
    visit->next++;
    return ++visit->seen == visit->stop_after ? 77 : 0;
}

static void check_equals_model(struct fq_meta *meta, const struct model *model)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_entry *e = &model->entries[i];
        const void *value = NULL;
        size_t length = 0;
        int r = meta->ops->get(meta, e->table, &e->key, &value, &length);
        cr_assert_eq(r, e->is_there ? 0 : FLASHQ_ERR_NOT_FOUND);
        if (e->is_there) {
            cr_assert_eq(length, e->length);
            cr_assert_eq(memcmp(value, e->value, length), 0);
        }
    }
    for (unsigned table = 0; table < FQ_META_TABLES; table++) {
        struct visit visit = {.model = model, .table = (enum fq_meta_table)table};
        size_t expected = 0;
        for (size_t i = 0; i < MODEL_KEYS; i++) {
            expected += model->entries[i].table == visit.table && model->entries[i].is_there;
        }
        cr_assert_eq(meta->ops->visit(meta, visit.table, NULL, check_visited, &visit), 0);
        cr_assert_eq(visit.seen, expected);
    }
}

static void check_visit_from(struct fq_meta *meta, const struct model *model, struct fq_prng *prng)
{
    size_t from = (size_t)fq_prng_below(prng, MODEL_KEYS);
    const struct model_entry *e = &model->entries[from];
    struct visit visit = {.model = model, .table = e->table, .next = from, .stop_after = 2};
    int r = meta->ops->visit(meta, e->table, &e->key, check_visited, &visit);
    cr_assert_eq(r, visit.seen == 2 ? 77 : 0);
}

static void change_something(struct fq_meta *meta, struct model *model, struct fq_prng *prng)
{
    struct model_entry *e = &model->entries[fq_prng_below(prng, MODEL_KEYS)];
    if (fq_prng_below(prng, 3) == 0) {
        int r = meta->ops->remove(meta, e->table, &e->key);
        cr_assert_eq(r, e->is_there ? 0 : FLASHQ_ERR_NOT_FOUND);
        e->is_there = false;
        return;
    }
    e->length = (size_t)fq_prng_below(prng, MODEL_VALUE_BYTES + 1);
    for (size_t i = 0; i < e->length; i++) {
        e->value[i] = (uint8_t)fq_prng_next(prng);
    }
    struct fq_err err;
    int r = meta->ops->put(meta, e->table, &e->key, e->value, e->length, &err);
    cr_assert_eq(r, 0, "put: %s", err.text);
    e->is_there = true;
}

/* Transactions of 0 to 9 changes, a third of them aborted; `reopen` (or NULL) in between. */
static void run_against_model(struct fq_meta *meta, struct fq_meta *(*reopen)(struct fq_meta *meta),
                              uint64_t seed, unsigned transactions)
{
    fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    struct model *model = malloc(sizeof *model), *before = malloc(sizeof *before);
    cr_assert(model && before);
    model_init(model, &prng);
    for (unsigned i = 0; i < transactions; i++) {
        memcpy(before, model, sizeof *model);
        cr_assert_eq(meta->ops->begin(meta), 0);
        for (uint64_t changes = fq_prng_below(&prng, 10); changes > 0; changes--) {
            change_something(meta, model, &prng);
        }
        if (fq_prng_below(&prng, 8) == 0) {
            check_equals_model(meta, model);
        }
        if (fq_prng_below(&prng, 3) == 0) {
            meta->ops->abort(meta);
            memcpy(model, before, sizeof *model);
        } else {
            cr_assert_eq(meta->ops->commit(meta), 0);
        }
        check_visit_from(meta, model, &prng);
        if (reopen && fq_prng_below(&prng, 40) == 0) {
            meta = reopen(meta);
            check_equals_model(meta, model);
        }
    }
    check_equals_model(meta, model);
    meta->ops->close(meta);
    free(model);
    free(before);
}

static struct fq_meta *close_and_open(struct fq_meta *meta)
{
    meta->ops->close(meta);
    return open_pool(FQ_META_OPENED);
}

Test(meta, the_memory_twin_does_what_the_model_does)
{
    for (unsigned i = 0; i < 5; i++) {
        struct fq_meta *meta = NULL;
        cr_assert_eq(fq_meta_open_memory(&meta), FQ_META_CREATED);
        run_against_model(meta, NULL, fq_random_u64(), 400);
    }
}

Test(meta, the_pool_does_what_the_model_does_also_across_reopening)
{
    make_directory();
    run_against_model(open_pool(FQ_META_CREATED), close_and_open, fq_random_u64(), 250);
    remove_directory();
}

/* ---- rules of both -------------------------------------------------------------------------- */

static const struct fq_meta_key a_key = {.topic_id = {{1}}, .partition = 2, .node = 3};

static void check_transaction_rules(struct fq_meta *meta)
{
    const void *value;
    size_t length;
    struct fq_err err;
    cr_assert_eq(meta->ops->put(meta, FQ_META_EPOCHS, &a_key, "x", 1, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(meta->ops->remove(meta, FQ_META_EPOCHS, &a_key), FLASHQ_ERR_INVALID);
    cr_assert_eq(meta->ops->commit(meta), FLASHQ_ERR_INVALID);
    meta->ops->abort(meta);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->begin(meta), FLASHQ_ERR_BUSY);
    cr_assert_eq(meta->ops->put(meta, FQ_META_EPOCHS, &a_key, "one", 3, &err), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_EPOCHS, &a_key, "second", 6, &err), 0);
    cr_assert_eq(meta->ops->get(meta, FQ_META_EPOCHS, &a_key, &value, &length), 0);
    cr_assert(length == 6 && memcmp(value, "second", 6) == 0, "sees its own changes");
    cr_assert_eq(meta->ops->put(meta, FQ_META_TABLES, &a_key, "x", 1, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(meta->ops->put(meta, FQ_META_EPOCHS, &a_key, NULL, 1, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(meta->ops->commit(meta), 0, "a refused argument changes nothing");
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->remove(meta, FQ_META_EPOCHS, &a_key), 0);
    cr_assert_eq(meta->ops->remove(meta, FQ_META_EPOCHS, &a_key), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(meta->ops->put(meta, FQ_META_EPOCHS, &a_key, "third", 5, &err), 0);
    cr_assert_eq(meta->ops->remove(meta, FQ_META_EPOCHS, &a_key), 0);
    meta->ops->abort(meta);
    cr_assert_eq(meta->ops->get(meta, FQ_META_EPOCHS, &a_key, &value, &length), 0);
    cr_assert(length == 6 && memcmp(value, "second", 6) == 0, "as before the transaction");
}

static void check_value_sizes(struct fq_meta *meta)
{
    uint8_t *large = malloc(FQ_META_VALUE_BYTES_MAX + 1);
    cr_assert_not_null(large);
    memset(large, 0x5a, FQ_META_VALUE_BYTES_MAX + 1);
    struct fq_err err;
    const void *value;
    size_t length;
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_SYSTEM, &a_key, NULL, 0, &err), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_PRODUCERS, &a_key, large, FQ_META_VALUE_BYTES_MAX + 1,
                                &err),
                 FLASHQ_ERR_TOO_LARGE);
    cr_assert_not_null(strstr(err.text, "1048577"), "%s", err.text);
    cr_assert_eq(
        meta->ops->put(meta, FQ_META_PRODUCERS, &a_key, large, FQ_META_VALUE_BYTES_MAX, &err), 0);
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(meta->ops->get(meta, FQ_META_SYSTEM, &a_key, &value, &length), 0);
    cr_assert_eq(length, 0);
    cr_assert_eq(meta->ops->get(meta, FQ_META_PRODUCERS, &a_key, &value, &length), 0);
    cr_assert_eq(length, FQ_META_VALUE_BYTES_MAX);
    cr_assert_eq(memcmp(value, large, length), 0);
    free(large);
}

static int count_visited(void *context, const struct fq_meta_key *key, const void *value,
                         size_t length)
{
    (void)key;
    (void)value;
    (void)length;
    ++*(unsigned *)context;
    return 0;
}

static int count_sound(void *context, const struct fq_meta_key *key, const void *value, size_t length)
{
    (void)key;
    cr_assert(value || length == 0);
    *(unsigned *)context += value != NULL;
    return 0;
}

static unsigned count(struct fq_meta *meta, enum fq_meta_table table)
{
    unsigned n = 0;
    cr_assert_eq(meta->ops->visit(meta, table, NULL, count_visited, &n), 0);
    return n;
}

static void check_remove_all(struct fq_meta *meta)
{
    struct fq_err err;
    cr_assert_eq(meta->ops->begin(meta), 0);
    for (uint8_t topic = 1; topic <= 3; topic++) {
        for (uint32_t partition = 0; partition < 4; partition++) {
            for (uint64_t node = 0; node < 5; node++) {
                const struct fq_meta_key key = {
                    .topic_id = {{topic}}, .partition = partition, .node = node};
                cr_assert_eq(meta->ops->put(meta, FQ_META_CALENDAR, &key, "n", 1, &err), 0);
            }
        }
    }
    const struct fq_uuid topic = {{2}};
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_CALENDAR, &topic, 1), 0);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 55);
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_CALENDAR, &topic, UINT32_MAX), 0);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 40);
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 40);
}

Test(meta, rules_of_the_memory_twin)
{
    struct fq_meta *meta = NULL;
    cr_assert_eq(fq_meta_open_memory(&meta), FQ_META_CREATED);
    check_transaction_rules(meta);
    check_value_sizes(meta);
    check_remove_all(meta);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_SYSTEM, &a_key, "x", 1, NULL), 0);
    meta->ops->close(meta);
}

Test(meta, rules_of_the_pool)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    check_transaction_rules(meta);
    check_value_sizes(meta);
    check_remove_all(meta);
    meta = close_and_open(meta);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 40);
    cr_assert_eq(count(meta, FQ_META_SYSTEM), 1);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_CALENDAR, &a_key.topic_id, UINT32_MAX), 0);
    meta = close_and_open(meta);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 40, "close aborts what was under way");
    meta->ops->close(meta);
    remove_directory();
}

/* ---- the pool alone ------------------------------------------------------------------------- */

static struct fq_meta_key numbered(uint64_t node)
{
    return (struct fq_meta_key){.topic_id = {{9}}, .partition = 0, .node = node};
}

static void put_committed(struct fq_meta *meta, uint64_t node, const char *text)
{
    const struct fq_meta_key key = numbered(node);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_CATALOGUE, &key, text, strlen(text), NULL), 0);
    cr_assert_eq(meta->ops->commit(meta), 0);
}

static bool has(struct fq_meta *meta, uint64_t node, const char *text)
{
    const struct fq_meta_key key = numbered(node);
    const void *value;
    size_t length;
    int r = meta->ops->get(meta, FQ_META_CATALOGUE, &key, &value, &length);
    return r == 0 && length == strlen(text) && memcmp(value, text, length) == 0;
}

Test(meta, a_full_pool_says_so_and_goes_on)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    put_committed(meta, UINT64_MAX, "kept");
    static uint8_t value[60000];
    struct fq_err err = {0};
    uint64_t committed = 0;
    int r = 0;
    while (r == 0) {
        cr_assert_eq(meta->ops->begin(meta), 0);
        for (unsigned i = 0; i < 3 && r == 0; i++) {
            const struct fq_meta_key key = numbered(committed + i);
            r = meta->ops->put(meta, FQ_META_CATALOGUE, &key, value, sizeof value, &err);
        }
        if (r == 0) {
            cr_assert_eq(meta->ops->commit(meta), 0);
            committed += 3;
        }
    }
    cr_assert_eq(r, FLASHQ_ERR_NO_SPACE, "%s", err.text);
    const struct fq_meta_key first = numbered(0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_CATALOGUE, &first, "x", 1, &err), FLASHQ_ERR_INVALID,
                 "only abort is left");
    cr_assert_eq(meta->ops->commit(meta), FLASHQ_ERR_INVALID, "and commit aborts");
    cr_assert_gt(committed, 60);
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), committed + 1);
    cr_assert(has(meta, UINT64_MAX, "kept"));
    meta = close_and_open(meta);
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), committed + 1);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->remove(meta, FQ_META_CATALOGUE, &first), 0, "removing needs no room");
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_CATALOGUE, &first, value, sizeof value, &err), 0,
                 "and makes room");
    cr_assert_eq(meta->ops->commit(meta), 0);
    meta->ops->close(meta);
    remove_directory();
}

/* Down to the last free byte, in values of falling size; then thousands of removals in one transaction,
 * whose log needs room too. */
Test(meta, everything_can_be_removed_from_a_pool_without_a_free_byte, .timeout = 60)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    static uint8_t value[60000];
    struct fq_err err = {0};
    uint64_t node = 0;
    for (size_t length = sizeof value; length > 0; length /= 8) {
        int r = 0;
        while (r == 0) {
            const struct fq_meta_key key = numbered(node);
            cr_assert_eq(meta->ops->begin(meta), 0);
            r = meta->ops->put(meta, FQ_META_EPOCHS, &key, value, length, &err);
            if (r == 0) {
                cr_assert_eq(meta->ops->commit(meta), 0);
                node++;
            } else {
                cr_assert_eq(r, FLASHQ_ERR_NO_SPACE);
                meta->ops->abort(meta);
            }
        }
    }
    cr_assert_gt(node, 100);
    const struct fq_uuid topic = numbered(0).topic_id;
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_EPOCHS, &topic, 0), 0);
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(count(meta, FQ_META_EPOCHS), 0);
    put_committed(meta, 1, "room again");
    meta = close_and_open(meta);
    cr_assert(has(meta, 1, "room again"));
    meta->ops->close(meta);
    remove_directory();
}

Test(meta, calendars_leave_room_in_the_pool_to_the_others)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    static uint8_t value[5000];
    struct fq_err err = {0};
    uint64_t node = 0;
    for (int r = 0; r == 0; node++) {
        const struct fq_meta_key key = numbered(node);
        cr_assert_eq(meta->ops->begin(meta), 0);
        r = meta->ops->put(meta, FQ_META_CALENDAR, &key, value, sizeof value, &err);
        cr_assert(r == FLASHQ_ERR_NO_SPACE || meta->ops->commit(meta) == 0);
    }
    meta->ops->abort(meta);
    cr_assert_gt(node * sizeof value, POOL_BYTES / 4);
    for (uint64_t i = 0; i < 1000; i++) {
        const struct fq_meta_key key = numbered(i);
        cr_assert_eq(meta->ops->begin(meta), 0);
        cr_assert_eq(meta->ops->put(meta, FQ_META_CATALOGUE, &key, "topic", 5, &err), 0, "%s",
                     err.text);
        cr_assert_eq(meta->ops->commit(meta), 0);
    }
    meta = close_and_open(meta);
    const struct fq_meta_key key = numbered(node);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_CALENDAR, &key, value, sizeof value, &err),
                 FLASHQ_ERR_NO_SPACE, "also after reopening");
    meta->ops->abort(meta);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_CALENDAR, &key.topic_id, 0), 0);
    cr_assert_eq(meta->ops->put(meta, FQ_META_CALENDAR, &key, value, sizeof value, &err), 0, "%s",
                 err.text);
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), 1000);
    meta->ops->close(meta);
    remove_directory();
}

Test(meta, a_transaction_of_a_killed_process_never_happened)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    put_committed(meta, 1, "before");
    meta->ops->close(meta);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        if (fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, NULL) == FQ_META_OPENED &&
            meta->ops->begin(meta) == 0) {
            const struct fq_meta_key one = numbered(1), two = numbered(2);
            (void)meta->ops->put(meta, FQ_META_CATALOGUE, &one, "after", 5, NULL);
            (void)meta->ops->put(meta, FQ_META_CATALOGUE, &two, "new", 3, NULL);
            (void)kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    meta = open_pool(FQ_META_OPENED);
    cr_assert(has(meta, 1, "before"));
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), 1);
    meta->ops->close(meta);
    remove_directory();
}

Test(meta, a_pool_in_use_is_busy_and_left_alone)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    struct fq_meta *other = NULL;
    struct fq_err err = {0};
    int r = fq_meta_open_pmem(pool_path, POOL_BYTES, &other, &err);
    cr_assert_eq(r, FLASHQ_ERR_BUSY, "%d: %s", r, err.text);
    cr_assert(!exists(".damaged-1"));
    put_committed(meta, 1, "still works");
    meta = close_and_open(meta);
    cr_assert(has(meta, 1, "still works"));
    meta->ops->close(meta);
    remove_directory();
}

Test(meta, no_room_for_a_new_pool_is_an_error_and_leaves_nothing)
{
    make_directory();
    (void)signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 1u << 20, .rlim_max = RLIM_INFINITY};
    const struct rlimit unlimited = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct fq_meta *meta = NULL;
    struct fq_err err = {0};
    cr_assert_lt(fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, &err), 0);
    cr_assert_neq(err.text[0], '\0');
    cr_assert(!exists("") && !exists(".new"));
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    cr_assert_eq(fq_meta_open_pmem(pool_path, FQ_LIMIT_META_POOL_BYTES_MIN - 1, &meta, &err), FLASHQ_ERR_INVALID);
    meta = open_pool(FQ_META_CREATED);
    meta->ops->close(meta);
    remove_directory();
}

static void mark_minutes(struct fq_meta *meta, int64_t from, int64_t to)
{
    const struct fq_meta_key key = {.topic_id = {{4}}};
    struct fq_err err = {0};
    cr_assert_eq(meta->ops->begin(meta), 0);
    for (int64_t i = from; i < to; i++) {
        const struct fq_calendar_mark mark = {.second = i * 61, .offset = i};
        cr_assert_eq(fq_calendar_apply(meta, &key, &mark, 1, i + 1, &err), 0, "%s", err.text);
    }
    cr_assert_eq(meta->ops->commit(meta), 0);
}

/* Many marks in one transaction rewrite the root and the days again and again. */
Test(meta, a_calendar_is_kept_in_the_pool_and_found_after_reopening)
{
    make_directory();
    const struct fq_meta_key key = {.topic_id = {{4}}};
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    for (int64_t i = 0; i < 3000; i += 100) {
        mark_minutes(meta, i, i + 100);
    }
    meta = close_and_open(meta);
    struct fq_calendar_answer answer;
    for (int64_t i = 0; i < 3000; i++) {
        cr_assert_eq(fq_calendar_query(meta, &key, i * 61000, &answer), 0);
        cr_assert(answer.found && answer.offset == i && answer.complete_to == 3000);
    }
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_calendar_truncate(meta, &key, 2000, NULL), 0);
    cr_assert_eq(fq_calendar_trim(meta, &key, 1000, NULL), 0);
    cr_assert_eq(meta->ops->commit(meta), 0);
    meta = close_and_open(meta);
    struct fq_calendar_state state;
    cr_assert_eq(fq_calendar_get_state(meta, &key, &state), 0);
    cr_assert(state.complete_from == 1000 && state.complete_to == 2000 &&
              state.last_second == 1999 * 61 && state.minutes_count == 1000);
    cr_assert_eq(count(meta, FQ_META_CALENDAR), 1 + 1000 + 2,
                 "the root, the minutes, and the days 0 and 1");
    meta->ops->close(meta);
    remove_directory();
}

/* ---- damage (case 21) ----------------------------------------------------------------------- */

static void write_file(const char *path, const void *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, length), (ssize_t)length);
    cr_assert_eq(close(fd), 0);
}

static uint8_t *read_pool(void)
{
    uint8_t *bytes = malloc(POOL_BYTES);
    int fd = open(pool_path, O_RDONLY);
    cr_assert(bytes && fd >= 0);
    cr_assert_eq(read(fd, bytes, POOL_BYTES), POOL_BYTES);
    cr_assert_eq(close(fd), 0);
    return bytes;
}

static void make_pool_with(const char *text)
{
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    put_committed(meta, 1, text);
    meta->ops->close(meta);
}

static void check_rebuilt(const char *aside)
{
    struct fq_meta *meta = open_pool(FQ_META_REBUILT);
    cr_assert(exists(aside), "%s is kept", aside);
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), 0);
    put_committed(meta, 5, "new life");
    meta = close_and_open(meta);
    cr_assert(has(meta, 5, "new life"));
    meta->ops->close(meta);
}

Test(meta, what_is_no_pool_is_set_aside_and_a_new_one_made) /* case 21 */
{
    make_directory();
    write_file(pool_path, "", 0);
    check_rebuilt(".damaged-1");
    write_file(pool_path, "a shopping list\n", 16);
    check_rebuilt(".damaged-2");
    static const char pool_set[] = "PMEMPOOLSET\n8M /tmp/somebody-elses-file\n";
    write_file(pool_path, pool_set, sizeof pool_set - 1);
    check_rebuilt(".damaged-3");
    cr_assert_eq(unlink(pool_path), 0);
    cr_assert_eq(mkdir(pool_path, 0700), 0);
    check_rebuilt(".damaged-4");
    cr_assert_eq(unlink(pool_path), 0);
    cr_assert_eq(mkfifo(pool_path, 0600), 0);
    check_rebuilt(".damaged-5");
    cr_assert_eq(truncate(pool_path, 0), 0);
    cr_assert_eq(truncate(pool_path, POOL_BYTES), 0);
    check_rebuilt(".damaged-6");
    remove_directory();
}

Test(meta, a_cut_pool_is_set_aside) /* case 21 */
{
    make_directory();
    static const long cuts[] = {1, 8, 4095, 4096, 8192, POOL_BYTES / 2, POOL_BYTES - 1};
    make_pool_with("was here");
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        cr_assert_eq(truncate(pool_path, cuts[i]), 0);
        char aside[32];
        (void)snprintf(aside, sizeof aside, ".damaged-%zu", i + 1);
        check_rebuilt(aside);
    }
    cr_assert_eq(truncate(pool_path, POOL_BYTES * 2), 0);
    check_rebuilt(".damaged-8");
    remove_directory();
}

/* Whatever single bit is wrong: the content is as it was, or the pool is set aside. */
Test(meta, a_flipped_bit_is_found_or_harmless, .timeout = 100) /* case 21 */
{
    make_directory();
    const uint64_t seed = fq_random_u64();
    fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    make_pool_with("precious");
    uint8_t *sound = read_pool();
    unsigned rebuilt = 0;
    for (unsigned i = 0; i < 60; i++) {
        uint64_t position = fq_prng_below(&prng, POOL_BYTES);
        while (sound[position] == 0) {
            position = (position + 1) % POOL_BYTES;
        }
        write_file(pool_path, sound, POOL_BYTES);
        uint8_t flipped = (uint8_t)(sound[position] ^ (1u << fq_prng_below(&prng, 8)));
        int fd = open(pool_path, O_WRONLY);
        cr_assert_eq(pwrite(fd, &flipped, 1, (off_t)position), 1);
        cr_assert_eq(close(fd), 0);
        struct fq_meta *meta = NULL;
        struct fq_err err = {0};
        int r = fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, &err);
        cr_assert(r == FQ_META_OPENED || r == FQ_META_REBUILT, "byte %llu: %d %s",
                  (unsigned long long)position, r, err.text);
        cr_assert(r == FQ_META_REBUILT || has(meta, 1, "precious"), "byte %llu",
                  (unsigned long long)position);
        rebuilt += r == FQ_META_REBUILT;
        meta->ops->close(meta);
    }
    cr_assert_gt(rebuilt, 0);
    free(sound);
    remove_directory();
}

/* The last place: libpmemobj's undo log, which may have a copy, comes before the objects. */
static uint64_t find_in_pool(const uint8_t *bytes, const void *what, size_t length)
{
    const uint8_t *at = NULL, *next = bytes;
    while ((next = memmem(next, (size_t)(bytes + POOL_BYTES - next), what, length))) {
        at = next++;
    }
    cr_assert_not_null(at);
    return (uint64_t)(at - bytes);
}

Test(meta, a_value_damaged_behind_our_back_is_corrupt_not_wrong)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    put_committed(meta, 1, "a value to be damaged");
    put_committed(meta, 2, "another");
    uint8_t *bytes = read_pool();
    uint64_t at = find_in_pool(bytes, "a value to be damaged", 21);
    free(bytes);
    int fd = open(pool_path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "A", 1, (off_t)at), 1);
    cr_assert_eq(close(fd), 0);
    const struct fq_meta_key one = numbered(1);
    const void *value;
    size_t length;
    unsigned n = 0;
    cr_assert_eq(meta->ops->get(meta, FQ_META_CATALOGUE, &one, &value, &length), FLASHQ_ERR_CORRUPT);
    cr_assert_eq(meta->ops->visit(meta, FQ_META_CATALOGUE, NULL, count_sound, &n), 0);
    cr_assert_eq(n, 1, "the damaged one is shown without a value");
    cr_assert(has(meta, 2, "another"));
    meta->ops->close(meta);
    check_rebuilt(".damaged-1");
    remove_directory();
}

/* Otherwise a topic could not be deleted, or a calendar not be dropped, because of what is damaged in
 * it or merely lies behind it. */
Test(meta, what_is_damaged_can_be_removed_and_the_pool_is_sound_again)
{
    make_directory();
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    put_committed(meta, 1, "a value to be damaged");
    put_committed(meta, 2, "another");
    uint8_t *bytes = read_pool();
    uint64_t at = find_in_pool(bytes, "a value to be damaged", 21);
    free(bytes);
    int fd = open(pool_path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "A", 1, (off_t)at), 1);
    cr_assert_eq(close(fd), 0);
    const struct fq_meta_key key = numbered(1);
    cr_assert_eq(meta->ops->begin(meta), 0);
    cr_assert_eq(fq_meta_remove_all(meta, FQ_META_CATALOGUE, &key.topic_id, UINT32_MAX), 0);
    cr_assert_eq(meta->ops->commit(meta), 0);
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), 0);
    put_committed(meta, 3, "goes on");
    meta->ops->close(meta);
    meta = open_pool(FQ_META_OPENED);
    cr_assert(has(meta, 3, "goes on"));
    cr_assert_eq(count(meta, FQ_META_CATALOGUE), 1);
    meta->ops->close(meta);
    remove_directory();
}

/* Root object: magic, version at 8, CRC-32C at 12, 64 bytes. */
Test(meta, a_pool_of_a_newer_version_is_refused_and_kept)
{
    make_directory();
    make_pool_with("from the future");
    uint8_t *bytes = read_pool();
    uint8_t root[64];
    uint64_t at = find_in_pool(bytes, "FQMETA1", 8);
    memcpy(root, bytes + at, sizeof root);
    free(bytes);
    fq_store_le32(root + 8, 2);
    fq_store_le32(root + 12, 0);
    fq_store_le32(root + 12, fq_crc32c(0, root, sizeof root));
    int fd = open(pool_path, O_WRONLY);
    cr_assert_eq(pwrite(fd, root, sizeof root, (off_t)at), sizeof root);
    cr_assert_eq(close(fd), 0);
    struct fq_meta *meta = NULL;
    struct fq_err err = {0};
    cr_assert_eq(fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, &err), FLASHQ_ERR_VERSION, "%s",
                 err.text);
    cr_assert(exists("") && !exists(".damaged-1"));
    remove_directory();
}

Test(meta, a_half_made_pool_is_made_again)
{
    make_directory();
    char path[320];
    (void)snprintf(path, sizeof path, "%s.new", pool_path);
    write_file(path, "half", 4);
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    cr_assert(!exists(".new"));
    meta->ops->close(meta);
    remove_directory();
}
