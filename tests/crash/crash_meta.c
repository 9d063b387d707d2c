/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss at every flush and fence of meta.pool. A seeded run of transactions is recorded
 * (pmem_recorder.h); then, for each point, the pool file is made as it could have been left: what was
 * settled, plus subsets of the pending words (all of them while they are few, samples beyond). Each such file
 * is opened by a child process, which requires that
 *
 *   the pool opens, and is not taken for damaged;
 *   its content is that before or after the transaction under way, and after one whose commit returned;
 *   opening it again changes nothing, and it takes another transaction;
 *   power loss during that recovery leaves the same choice (sampled).
 *
 * Three times: as persistent memory (flush and fence, by cache line), as a disk file (msync, by page),
 * and as persistent memory without a free byte from which everything is removed in one transaction.
 *
 * usage: crash_meta [seed [words of which every subset is tried, at most 12]]
 * FLASHQ_CRASH_WORDS gives the words too; tools/test.sh sets it to 12, which takes minutes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/random.h"
#include "pmem_recorder.h"
#include "storage/meta.h"
#include "storage/meta_pmem_pool.h"

enum {
    POOL_BYTES = 10 << 20,
    POOL_WORDS = POOL_BYTES / 8,
    KEYS = 10,
    TRANSACTIONS = 9,
    ALL_SUBSETS_MAX = 12,
    SAMPLES = 10,
    NESTED_SAMPLES = 5
};

/* Pending words of which every subset is tried; one state takes some milliseconds. */
static size_t all_subsets_max = 5;

static char folder[256], pool_path[300];

static void fail(const char *what)
{
    fprintf(stderr, "crash_meta: %s\n", what);
    exit(1);
}

/* ---- the content, as the test knows it ------------------------------------------------------ */

struct content {
    uint16_t length[KEYS];     /* of the value + 1; 0: no such key */
    uint8_t salt[KEYS];
};

static struct content contents[TRANSACTIONS + 1];

/* The third run has nothing but filler: all of it or none. */
static const struct fq_uuid filler_topic = {{0x77}};
static unsigned filler_count;
static bool is_filler_run;

static struct fq_meta_key key_of(size_t i)
{
    return (struct fq_meta_key){
        .topic_id = {{(uint8_t)(i % 3)}}, .partition = (uint32_t)(i % 2), .node = i};
}

static enum fq_meta_table table_of(size_t i)
{
    return (enum fq_meta_table)(i % FQ_META_TABLES);
}

static size_t value_of(const struct content *content, size_t i, uint8_t *out)
{
    size_t length = (size_t)content->length[i] - 1;
    for (size_t b = 0; b < length; b++) {
        out[b] = (uint8_t)(content->salt[i] + b * 7 + i);
    }
    return length;
}

static bool has_content(struct fq_meta *meta, const struct content *content)
{
    uint8_t expected[8192];
    for (size_t i = 0; i < KEYS; i++) {
        const struct fq_meta_key key = key_of(i);
        const void *value = NULL;
        size_t length = 0;
        int r = meta->ops->get(meta, table_of(i), &key, &value, &length);
        if (content->length[i] == 0) {
            if (r != FLASHQ_ERR_NOT_FOUND) {
                return false;
            }
            continue;
        }
        size_t expected_length = value_of(content, i, expected);
        if (r < 0 || length != expected_length || memcmp(value, expected, length) != 0) {
            return false;
        }
    }
    return true;
}

static struct fq_meta *open_pool(int expected)
{
    struct fq_meta *meta = NULL;
    struct fq_err err = {0};
    int r = fq_meta_open_pmem(pool_path, POOL_BYTES, &meta, &err);
    if (r != expected) {
        fprintf(stderr, "crash_meta: open gave %d, not %d: %s\n", r, expected, err.text);
        exit(1);
    }
    return meta;
}

/* As open_pool for one that is there, but in this process alone: what is opened thousands of times. */
static struct fq_meta *reopen_pool(void)
{
    struct fq_meta *meta = NULL;
    struct fq_err err = {0};
    int r = fq_meta_open_pmem_trusting(pool_path, &meta, &err);
    if (r < 0) {
        fprintf(stderr, "crash_meta: open gave %d: %s\n", r, err.text);
        exit(1);
    }
    return meta;
}

/* ---- the recorded run ----------------------------------------------------------------------- */

static void change(struct fq_meta *meta, struct content *content, size_t i, struct fq_prng *prng)
{
    static const uint16_t lengths[] = {1, 9, 48, 200, 528, 700, 5000};
    const struct fq_meta_key key = key_of(i);
    if (content->length[i] > 0 && fq_prng_below(prng, 4) == 0) {
        if (meta->ops->remove(meta, table_of(i), &key) < 0) {
            fail("remove");
        }
        content->length[i] = 0;
        return;
    }
    uint8_t value[8192];
    content->length[i] = lengths[fq_prng_below(prng, sizeof lengths / sizeof lengths[0])];
    content->salt[i] = (uint8_t)fq_prng_next(prng);
    size_t length = value_of(content, i, value);
    if (meta->ops->put(meta, table_of(i), &key, value, length, NULL) < 0) {
        fail("put");
    }
}

/* Tags: 2 i while transaction i is under way, 2 i + 1 once its commit or abort has returned. */
static void run(struct fq_meta *meta, struct fq_prng *prng)
{
    memset(contents, 0, sizeof contents);
    for (int t = 0; t < TRANSACTIONS; t++) {
        recorder_tag(2 * t);
        contents[t + 1] = contents[t];
        if (meta->ops->begin(meta) < 0) {
            fail("begin");
        }
        /* The last but one changes every key: more than libpmemobj's logs hold at first. */
        uint64_t changes = t == TRANSACTIONS - 2 ? 3 * KEYS : 1 + fq_prng_below(prng, 3);
        for (uint64_t c = 0; c < changes; c++) {
            change(meta, &contents[t + 1], (size_t)fq_prng_below(prng, KEYS), prng);
        }
        if (t % 4 == 3) {
            meta->ops->abort(meta);
            contents[t + 1] = contents[t];
        } else if (meta->ops->commit(meta) < 0) {
            fail("commit");
        }
        recorder_tag(2 * t + 1);
        recorder_mark_point();
    }
}

/* ---- the run on a full pool ----------------------------------------------------------------- */

static void fill(struct fq_meta *meta)
{
    static uint8_t value[60000];
    struct fq_meta_key key = {.topic_id = filler_topic};
    for (size_t length = sizeof value; length > 0; length /= 8) {
        for (int r = 0; r == 0;) {
            if (meta->ops->begin(meta) < 0) {
                fail("begin");
            }
            key.node = filler_count;
            r = meta->ops->put(meta, FQ_META_EPOCHS, &key, value, length, NULL);
            if (r < 0) {
                meta->ops->abort(meta);
            } else if (meta->ops->commit(meta) < 0) {
                fail("commit");
            } else {
                filler_count++;
            }
        }
    }
}

static void remove_everything(struct fq_meta *meta)
{
    recorder_tag(0);
    if (meta->ops->begin(meta) < 0 ||
        fq_meta_remove_all(meta, FQ_META_EPOCHS, &filler_topic, 0) < 0 ||
        meta->ops->commit(meta) < 0) {
        fail("removing everything");
    }
    recorder_tag(1);
    recorder_mark_point();
}

static int count_key(void *context, const struct fq_meta_key *key, const void *value, size_t length)
{
    (void)key;
    (void)value;
    (void)length;
    ++*(unsigned *)context;
    return 0;
}

static bool has_filler(struct fq_meta *meta, unsigned expected)
{
    unsigned count = 0;
    return meta->ops->visit(meta, FQ_META_EPOCHS, NULL, count_key, &count) == 0 &&
           count == expected;
}

static bool is_allowed(struct fq_meta *meta, int tag)
{
    int transaction = tag / 2;
    if (is_filler_run) {
        return has_filler(meta, 0) || (tag == 0 && has_filler(meta, filler_count));
    }
    if (tag % 2 == 1) {
        return has_content(meta, &contents[transaction + 1]);
    }
    return has_content(meta, &contents[transaction]) || has_content(meta, &contents[transaction + 1]);
}

/* ---- possible states ------------------------------------------------------------------------ */

/* A copy of a recording, since the recorder is used again for what happens in recovery. */
struct recording {
    struct recorded_point *points;
    struct recorded_word *words;
    size_t points_count;
    uint64_t *image;
};

static void *copy_of(const void *bytes, size_t length)
{
    void *copy = malloc(length ? length : 1);
    if (!copy) {
        fail("memory");
    }
    return memcpy(copy, bytes, length);
}

static struct recording take_recording(void)
{
    struct recording r = {.points_count = recorder_points_count()};
    r.points = copy_of(recorder_point(0), r.points_count * sizeof *r.points);
    r.words = copy_of(recorder_words(0), recorder_words_count() * sizeof *r.words);
    r.image = copy_of(recorder_first_image(), POOL_BYTES);
    return r;
}

static void free_recording(struct recording *r)
{
    free(r->points);
    free(r->words);
    free(r->image);
}

static void advance(struct recording *r, const struct recorded_point *point)
{
    for (size_t i = 0; i < point->settled_count; i++) {
        const struct recorded_word *word = &r->words[point->settled_from + i];
        r->image[word->index] = word->value;
    }
}

/* A subset of a point's pending words: a mask while they are few, else drawn from a seed. */
static bool is_chosen(const struct recorded_point *point, uint64_t subset, size_t i)
{
    if (point->pending_count <= all_subsets_max) {
        return subset >> i & 1;
    }
    if (subset < 2) {
        return subset == 1; /* none, all */
    }
    struct fq_prng prng;
    fq_prng_seed(&prng, subset * 1000003 + i);
    return fq_prng_below(&prng, 8) < subset % 8;
}

static uint64_t subsets_count(const struct recorded_point *point)
{
    return point->pending_count <= all_subsets_max ? UINT64_C(1) << point->pending_count : SAMPLES;
}

static void write_state(const struct recording *r, const struct recorded_point *point,
                        uint64_t subset)
{
    static uint64_t *file;
    static char mapped[300];
    if (!file || strcmp(mapped, pool_path) != 0) {
        int fd = open(pool_path, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, POOL_BYTES) < 0) {
            fail("state file");
        }
        file = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        (void)close(fd);
        if (file == MAP_FAILED) {
            fail("map of the state file");
        }
        (void)snprintf(mapped, sizeof mapped, "%s", pool_path);
    }
    memcpy(file, r->image, POOL_BYTES);
    for (size_t i = 0; i < point->pending_count; i++) {
        if (is_chosen(point, subset, i)) {
            const struct recorded_word *word = &r->words[point->pending_from + i];
            file[word->index] = word->value;
        }
    }
}

static uint64_t mix(uint64_t index, uint64_t value)
{
    uint64_t x = value ^ (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Changes with any change of the state, and is the same for the same state. */
static uint64_t hash_of(const struct recording *r, uint64_t image_hash,
                        const struct recorded_point *point, uint64_t subset)
{
    uint64_t hash = image_hash;
    for (size_t i = 0; i < point->pending_count; i++) {
        if (is_chosen(point, subset, i)) {
            const struct recorded_word *word = &r->words[point->pending_from + i];
            hash ^= mix(word->index, r->image[word->index]) ^ mix(word->index, word->value);
        }
    }
    return hash * 31 + (uint64_t)point->tag;
}

enum { SEEN_SLOTS = 1 << 18 };
static uint64_t seen[SEEN_SLOTS];

static bool is_new(uint64_t hash)
{
    hash = hash ? hash : 1;
    size_t slot = hash % SEEN_SLOTS;
    for (size_t tries = 0; tries < SEEN_SLOTS; tries++, slot = (slot + 1) % SEEN_SLOTS) {
        if (seen[slot] == hash) {
            return false;
        }
        if (seen[slot] == 0) {
            seen[slot] = hash;
            return true;
        }
    }
    fail("too many states");
    return false;
}

/* ---- checking one state --------------------------------------------------------------------- */

static void check_state(int tag, bool thoroughly)
{
    struct fq_meta *meta = thoroughly ? open_pool(FQ_META_OPENED) : reopen_pool();
    if (!is_allowed(meta, tag)) {
        fail("a transaction was torn or lost");
    }
    if (!thoroughly || is_filler_run) {
        meta->ops->close(meta);
        return;
    }
    const bool is_after = has_content(meta, &contents[tag / 2 + 1]);
    meta->ops->close(meta);
    meta = reopen_pool();
    if (!has_content(meta, &contents[tag / 2 + (is_after ? 1 : 0)])) {
        fail("opening again changed the content");
    }
    const struct fq_meta_key key = {.topic_id = {{0xee}}};
    const void *value;
    size_t length;
    if (meta->ops->begin(meta) < 0 ||
        meta->ops->put(meta, FQ_META_SYSTEM, &key, "more", 4, NULL) < 0 ||
        meta->ops->commit(meta) < 0 ||
        meta->ops->get(meta, FQ_META_SYSTEM, &key, &value, &length) < 0 || length != 4) {
        fail("it takes no more transactions");
    }
    meta->ops->close(meta);
}

/* Power loss while the state is being recovered. */
static unsigned check_recovery(int tag, struct fq_prng *prng)
{
    recorder_stop(); /* no pool is mapped now */
    recorder_start();
    recorder_tag(tag);
    struct fq_meta *meta = reopen_pool();
    recorder_stop();
    meta->ops->close(meta);
    struct recording r = take_recording();
    unsigned checked = 0;
    for (size_t i = 0; i < r.points_count; i++) {
        advance(&r, &r.points[i]);
        if (fq_prng_below(prng, r.points_count) < NESTED_SAMPLES) {
            write_state(&r, &r.points[i], fq_prng_below(prng, subsets_count(&r.points[i])));
            check_state(tag, false);
            checked++;
        }
    }
    free_recording(&r);
    return checked;
}

struct totals {
    size_t points, states, recoveries, exhaustive_points;
    size_t pending_max;
};

/* The child of one point: its states that were not seen before. */
static void check_point(const struct recording *r, size_t index, const uint64_t *subsets,
                        size_t count, struct totals *shared_totals)
{
    const struct recorded_point *point = &r->points[index];
    struct fq_prng prng;
    fq_prng_seed(&prng, index);
    for (size_t i = 0; i < count; i++) {
        write_state(r, point, subsets[i]);
        check_state(point->tag, fq_prng_below(&prng, 8) == 0);
        if (fq_prng_below(&prng, 40) == 0) {
            write_state(r, point, subsets[i]);
            shared_totals->recoveries += check_recovery(point->tag, &prng);
        }
    }
    _exit(0);
}

static void explore(struct recording *r, struct totals *totals)
{
    uint64_t image_hash = 0;
    for (size_t i = 0; i < POOL_WORDS; i++) {
        image_hash ^= mix(i, r->image[i]);
    }
    static uint64_t subsets[1 << ALL_SUBSETS_MAX];
    for (size_t p = 0; p < r->points_count; p++) {
        const struct recorded_point *point = &r->points[p];
        for (size_t i = 0; i < point->settled_count; i++) {
            const struct recorded_word *word = &r->words[point->settled_from + i];
            image_hash ^= mix(word->index, r->image[word->index]) ^ mix(word->index, word->value);
            r->image[word->index] = word->value;
        }
        size_t count = 0;
        for (uint64_t subset = 0; subset < subsets_count(point); subset++) {
            if (is_new(hash_of(r, image_hash, point, subset))) {
                subsets[count++] = subset;
            }
        }
        totals->points++;
        totals->states += count;
        totals->exhaustive_points += point->pending_count <= all_subsets_max;
        totals->pending_max =
            point->pending_count > totals->pending_max ? point->pending_count : totals->pending_max;
        if (count == 0) {
            continue;
        }
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            check_point(r, p, subsets, count, totals);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) {
            fail("fork");
        }
        if (status != 0) {
            fprintf(stderr, "crash_meta: point %zu of %zu, tag %d, %zu pending words: status %x\n", p,
                    r->points_count, point->tag, point->pending_count, (unsigned)status);
            exit(1);
        }
    }
}

/* ---- main ----------------------------------------------------------------------------------- */

static void crash(const char *name, bool is_pmem, uint64_t seed)
{
    struct totals *totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) {
        fail("memory");
    }
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    recorder_init(POOL_BYTES, is_pmem);
    (void)snprintf(pool_path, sizeof pool_path, "%s/%s.pool", folder, name);
    struct fq_meta *meta = open_pool(FQ_META_CREATED);
    if (is_filler_run) {
        memset(contents, 0, sizeof contents);
        fill(meta);
        recorder_start();
        remove_everything(meta);
    } else {
        recorder_start();
        run(meta, &prng);
    }
    recorder_stop();
    meta->ops->close(meta);
    struct recording r = take_recording();
    if (r.points_count < 20) {
        fail("libpmemobj no longer goes through libpmem's symbols");
    }
    (void)snprintf(pool_path, sizeof pool_path, "%s/state.pool", folder);
    recorder_init(POOL_BYTES, true); /* recovery in the children: as persistent memory, faster */
    memset(seen, 0, sizeof seen);
    explore(&r, totals);
    printf("# %s: %zu points (%zu with every subset), up to %zu pending words, %zu states, "
           "%zu states of recovery\n",
           name, totals->points, totals->exhaustive_points, totals->pending_max, totals->states,
           totals->recoveries);
    free_recording(&r);
    (void)munmap(totals, sizeof *totals);
}

static void remove_files(void)
{
    static const char *const names[] = {"pmem.pool", "msync.pool", "full.pool", "state.pool"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[300];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : fq_random_u64();
    const char *words = argc > 2 ? argv[2] : getenv("FLASHQ_CRASH_WORDS");
    if (words) {
        all_subsets_max = strtoull(words, NULL, 0);
        if (all_subsets_max > ALL_SUBSETS_MAX) {
            fail("at most 12");
        }
    }
    printf("# seed %llu\n", (unsigned long long)seed);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/fq-crash-meta-XXXXXX", base);
    if (!mkdtemp(folder)) {
        fail("folder");
    }
    crash("pmem", true, seed);
    crash("msync", false, seed);
    is_filler_run = true;
    crash("full", true, seed);
    remove_files();
    return 0;
}
