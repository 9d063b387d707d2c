/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data directory: locked, checked, its housekeeper and flusher. pool.c prepares and recycles,
 * store_files.c keeps small files, topics and the quarantine.
 *
 * Happy path: open takes the lock, compares the version, chooses the persist ops, looks at the
 * pool. Then the housekeeper's thread calls step, the flusher's flush_step, shards hand both jobs.
 * Failure at open names the file and leaves the directory as it was.
 */
#include "storage/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "storage/store_impl.h"

#define FIRST_SEGMENT_BYTES (1u << 20)
#define ROUND_BYTES         4096u
#define FILES_RESERVE       256u /* sockets, logs, the pool */

uint64_t fq_store_random_life(void)
{
    return fq_random_u64() | 1;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int take_lock(struct fq_store *store, struct fq_err *err)
{
    char path[FQ_PATH_BYTES], pid[32] = "";
    (void)snprintf(path, sizeof path, "%s/lock", store->dir);
    store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock_fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        ssize_t got = pread(store->lock_fd, pid, sizeof pid - 1, 0);
        return fq_err_set(err, FLASHQ_ERR_BUSY, "%s is in use by process %.*s", store->dir,
                          got > 0 ? (int)strcspn(pid, "\n") : 1, got > 0 ? pid : "?");
    }
    /* For people only; on a full disk it may not fit, and the lock holds all the same. */
    (void)snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (pwrite(store->lock_fd, pid, strlen(pid), 0) > 0) {
        (void)!ftruncate(store->lock_fd, (off_t)strlen(pid));
    }
    return 0;
}

static int check_version(struct fq_store *store, struct fq_err *err)
{
    static const char ours[] = "flashq media 1";
    void *text = NULL;
    size_t length = 0;
    int r = fq_store_read_file(store, NULL, "version", &text, &length, err);
    if (r == FLASHQ_ERR_NOT_FOUND) {
        return fq_store_write_file(store, NULL, NULL, "version", ours, sizeof ours - 1, err);
    }
    if (r == FLASHQ_ERR_CORRUPT) { /* segments carry the version too */
        fq_error("%s/version is damaged: written anew", store->dir);
        return fq_store_write_file(store, NULL, NULL, "version", ours, sizeof ours - 1, err);
    }
    if (r == 0 && (length != sizeof ours - 1 || memcmp(text, ours, length) != 0)) {
        r = fq_err_set(err, FLASHQ_ERR_VERSION, "%s was written by another version (%.*s)",
                       store->dir, (int)(length < 64 ? length : 64), (const char *)text);
    }
    free(text);
    return r;
}

static int count_partitions(void *context, const char *name, const struct fq_uuid *id,
                            uint32_t partitions_count)
{
    (void)name;
    (void)id;
    *(uint64_t *)context += partitions_count;
    return 0;
}

static uint64_t mappings_max(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    unsigned long long value = 65530;
    if (file) {
        if (fscanf(file, "%llu", &value) != 1) {
            value = 65530;
        }
        (void)fclose(file);
    }
    return value;
}

/* Each partition keeps its open segment, the next one and a few sealed ones mapped. */
static int check_limits(struct fq_store *store, struct fq_err *err)
{
    uint64_t partitions = 0;
    int r = fq_store_visit_topics(store, count_partitions, &partitions, err);
    if (r < 0) {
        return r;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    uint64_t needed = 2 * partitions + FILES_RESERVE;
    if (files.rlim_cur < needed) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "open files are limited to %llu, %llu partitions need %llu "
                          "(ulimit -n, LimitNOFILE=)",
                          (unsigned long long)files.rlim_cur, (unsigned long long)partitions,
                          (unsigned long long)needed);
    }
    uint64_t mappings = mappings_max();
    if (mappings < needed) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "mappings are limited to %llu, %llu partitions need %llu "
                          "(sysctl vm.max_map_count)",
                          (unsigned long long)mappings, (unsigned long long)partitions,
                          (unsigned long long)needed);
    }
    return 0;
}

static const char *file_system_name(const char *dir)
{
    struct statfs fs;
    if (statfs(dir, &fs) < 0) {
        return "?";
    }
    switch ((unsigned long)fs.f_type) {
    case 0xEF53: return "ext4";
    case 0x01021994: return "tmpfs";
    case 0x58465342: return "xfs";
    case 0x9123683EUL: return "btrfs";
    case 0x794c7630: return "overlayfs";
    case 0x6969: return "nfs";
    case 0x2FC12FC1: return "zfs";
    default: return "other";
    }
}

static int choose_persist(struct fq_store *store, struct fq_err *err)
{
    const char *fs = file_system_name(store->dir);
    bool is_volatile = strcmp(fs, "tmpfs") == 0;
    (void)snprintf(store->medium, sizeof store->medium, "dir %s", fs);
    int r = 0;
    bool is_dax = false;
    if (store->params.persist) {
        store->persist = store->params.persist;
    } else {
        is_dax = store->params.flush != FQ_FLUSH_SYNC && fq_persist_pmem_probe(store->dir) > 0;
        bool use_pmem = is_dax || store->params.flush == FQ_FLUSH_PMEM;
        r = use_pmem ? fq_persist_pmem_create(&store->persist, err)
                     : fq_persist_sync_create(&store->persist);
        store->owns_persist = r == 0;
    }
    if (r < 0) {
        return r;
    }
    const char *power = "an acknowledged record survives power loss and a crash of the host";
    const char *process = "an acknowledged record survives a crash of the broker, "
                          "not of the host, and not power loss";
    if (store->persist->ops->needs_sync) {
        (void)snprintf(store->flush, sizeof store->flush, "%s", store->persist->ops->name);
        (void)snprintf(store->guarantee, sizeof store->guarantee, "%s%s",
                       is_volatile ? process : power,
                       is_volatile ? " (tmpfs is memory)"
                                   : ", as far as the disk keeps what it "
                                     "says it has synced");
    } else {
        (void)snprintf(store->flush, sizeof store->flush, "%s%s", store->persist->ops->name,
                       is_dax ? "" : " (emulated: not DAX)");
        (void)snprintf(store->guarantee, sizeof store->guarantee, "%s", is_dax ? power : process);
    }
    return 0;
}

static int make_folders(struct fq_store *store, struct fq_err *err)
{
    static const char *const folders[] = {"pool", "quarantine", "deleted"};
    char path[FQ_PATH_BYTES];
    bool is_new = false;
    for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", store->dir, folders[i]);
        if (access(path, F_OK) < 0) {
            int r = store->persist->ops->mkdir(store->persist, path, err);
            if (r < 0) {
                return r;
            }
            is_new = true;
        }
    }
    return is_new ? store->persist->ops->sync_dir(store->persist, store->dir, err) : 0;
}

static uint64_t first_segment_bytes(const struct fq_store_params *params)
{
    uint64_t bytes =
        params->segment_bytes_first ? params->segment_bytes_first : FIRST_SEGMENT_BYTES;
    uint64_t least = params->batch_bytes_max + FQ_SEG_DATA;
    bytes = bytes > least ? bytes : least;
    return (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
}

/* Says what lies in the data directory and is not ours; it is left alone. */
static void report_strangers(const struct fq_store *store)
{
    static const char *const ours[] = {".",       "..",   "pool",    "quarantine",
                                       "deleted", "lock", "version", "lost+found"};
    DIR *folder = opendir(store->dir);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        struct fq_uuid id;
        char name[256];
        bool is_ours = fq_topic_dir_parse(entry->d_name, name, &id) ||
                       strncmp(entry->d_name, "meta.pool", 9) == 0;
        for (unsigned i = 0; i < sizeof ours / sizeof ours[0]; i++) {
            is_ours |= strcmp(entry->d_name, ours[i]) == 0;
        }
        if (!is_ours) {
            fq_warn("%s/%s is not ours: left alone", store->dir, entry->d_name);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
}

static int open_inside(struct fq_store *store, struct fq_err *err)
{
    int r = take_lock(store, err);
    r = r < 0 ? r : choose_persist(store, err);
    r = r < 0 ? r : make_folders(store, err);
    r = r < 0 ? r : check_version(store, err);
    r = r < 0 ? r : check_limits(store, err);
    r = r < 0 ? r : fq_wake_init(&store->keeper_wake);
    r = r < 0 ? r : fq_wake_init(&store->flush_wake);
    report_strangers(store);
    return r < 0 ? r : fq_pool_open(store, err);
}

int fq_store_open(const struct fq_store_params *params, struct fq_store **ret, struct fq_err *err)
{
    fq_err_clear(err);
    if (strlen(params->data_dir) > FQ_LIMIT_PATH_BYTES - 512) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "data.dir is longer than %u bytes",
                          FQ_LIMIT_PATH_BYTES - 512);
    }
    if (mkdir(params->data_dir, 0700) < 0 && errno != EEXIST) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "make %s", params->data_dir);
    }
    struct fq_store *store = calloc(1, sizeof *store);
    if (!store) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a store");
    }
    store->params = *params;
    store->lock_fd = store->keeper_wake.fd = store->flush_wake.fd = -1;
    store->dir = strdup(params->data_dir);
    store->first_bytes = first_segment_bytes(params);
    atomic_store(&store->purge_due, true); /* what an earlier run left there */
    int r = store->dir ? open_inside(store, err) : FLASHQ_ERR_NO_MEMORY;
    if (r < 0) {
        fq_store_close(store, false);
        return err && err->code < 0
                   ? err->code
                   : fq_err_set(err, r, "open %s: %s", params->data_dir, fq_err_describe(r));
    }
    store->params.data_dir = store->dir;
    *ret = store;
    return 0;
}

void fq_store_close(struct fq_store *store, bool clean)
{
    if (!store) {
        return;
    }
    while (clean && (fq_store_flush_step(store) > 0 || fq_store_run_jobs(store) > 0)) {
    }
    store->is_abandoned = true; /* jobs only free what they hold */
    store->pool.retry_at_us = INT64_MIN;
    (void)fq_store_run_jobs(store);
    (void)fq_store_flush_step(store);
    fq_pool_close(store);
    fq_wake_fini(&store->keeper_wake);
    fq_wake_fini(&store->flush_wake);
    if (store->owns_persist) {
        store->persist->ops->destroy(store->persist);
    }
    if (store->lock_fd >= 0) {
        (void)close(store->lock_fd);
    }
    free(store->dir);
    free(store);
}

/* --- housekeeper ------------------------------------------------------------------------------ */

void fq_store_give(struct fq_store *store, struct fq_job *job)
{
    fq_inbox_push(&store->keeper_inbox, job);
    fq_wake_signal(&store->keeper_wake);
}

static struct fq_job **end_of(struct fq_job **list)
{
    while (*list) {
        list = &(*list)->next;
    }
    return list;
}

int fq_store_run_jobs(struct fq_store *store)
{
    int done = 0;
    struct fq_job *job = fq_inbox_take(&store->keeper_inbox);
    if (store->waiting && store->now_us >= store->pool.retry_at_us) {
        /* they have waited longest, but what is new may make space: run it first */
        *end_of(&job) = store->waiting;
        store->waiting = NULL;
    }
    while (job) {
        struct fq_job *next = job->next;
        job->next = NULL;
        if (job->run(store, job)) {
            done++;
        } else {
            *end_of(&store->waiting) = job;
            store->pool.retry_at_us = store->now_us + INT64_C(1000000);
        }
        job = next;
    }
    return done;
}

int fq_store_step(struct fq_store *store, int64_t now_us)
{
    store->now_us = now_us;
    int done = fq_store_run_jobs(store);
    if (done == 0) {
        done = fq_store_purge_some(store);
    }
    return done > 0 ? done : fq_pool_top_up(store);
}

int64_t fq_store_next_deadline_us(const struct fq_store *store)
{
    int64_t retry_us =
        store->pool.retry_at_us > store->now_us ? store->pool.retry_at_us : INT64_MAX;
    return retry_us < store->pool.tick_us ? retry_us : store->pool.tick_us;
}

/* --- flusher ---------------------------------------------------------------------------------- */

void fq_store_flush_file(struct fq_store *store, struct fq_segfile *file)
{
    /* seq_cst: wanted_end is stored before `queued` is looked at; the flusher the other way round
     */
    if (!atomic_exchange(&file->queued, true)) {
        (void)fq_segfile_ref(file);
        fq_inbox_push(&store->flush_inbox, &file->flush_job);
        fq_wake_signal(&store->flush_wake);
    }
}

static void flush_one(struct fq_store *store, struct fq_segfile *file)
{
    atomic_store(&file->is_flushing, true);
    atomic_store(&file->queued, false);
    int64_t wanted = atomic_load(&file->wanted_end);
    int r = store->is_abandoned ? FLASHQ_ERR_CLOSED : fq_segfile_sync(file, "sync");
    if (r == 0) {
        fq_count(&store->syncs, 1);
        if (file->shared && wanted > atomic_load(&file->shared->durable_end)) {
            atomic_store_explicit(&file->shared->durable_end, wanted, memory_order_release);
        }
    } else if (r != FLASHQ_ERR_CLOSED && r != FLASHQ_ERR_OFFLINE) {
        fq_count(&store->sync_errors, 1);
    }
    atomic_store(&file->is_flushing, false);
    fq_segfile_unref(file);
}

static struct fq_segfile *queued_file(struct fq_job *job)
{
    return (struct fq_segfile *)(void *)((char *)job - offsetof(struct fq_segfile, flush_job));
}

/* Each file is made known as soon as it is durable: the others may take much longer. */
int fq_store_flush_step(struct fq_store *store)
{
    int done = 0;
    struct fq_job *job = fq_inbox_take(&store->flush_inbox);
    bool begins = job && job->next && store->persist->ops->begin_sync && !store->is_abandoned;
    for (struct fq_job *each = job; begins && each; each = each->next) {
        store->persist->ops->begin_sync(&queued_file(each)->pf);
    }
    while (job) {
        struct fq_segfile *file = queued_file(job);
        job = job->next; /* from here on a shard may queue the file again */
        flush_one(store, file);
        fq_store_progressed(store);
        done++;
    }
    return done;
}

/* --- words, wakes, numbers -------------------------------------------------------------------- */

void fq_store_progressed(struct fq_store *store)
{
    if (store->on_progress) {
        store->on_progress(store->progress_context);
    }
}

void fq_store_on_progress(struct fq_store *store, void (*wake)(void *context), void *context)
{
    store->on_progress = wake;
    store->progress_context = context;
}

int fq_store_wake_fd(struct fq_store *store)
{
    return fq_wake_fd(&store->keeper_wake);
}

void fq_store_wake_arm(struct fq_store *store)
{
    fq_wake_arm(&store->keeper_wake);
}

void fq_store_wake_disarm(struct fq_store *store)
{
    fq_wake_disarm(&store->keeper_wake);
}

int fq_store_flush_fd(struct fq_store *store)
{
    return fq_wake_fd(&store->flush_wake);
}

void fq_store_flush_arm(struct fq_store *store)
{
    fq_wake_arm(&store->flush_wake);
}

void fq_store_flush_disarm(struct fq_store *store)
{
    fq_wake_disarm(&store->flush_wake);
}

const char *fq_store_medium(const struct fq_store *store)
{
    return store->medium;
}

const char *fq_store_flush(const struct fq_store *store)
{
    return store->flush;
}

const char *fq_store_guarantee(const struct fq_store *store)
{
    return store->guarantee;
}

const char *fq_store_data_dir(const struct fq_store *store)
{
    return store->dir;
}

bool fq_store_needs_flusher(const struct fq_store *store)
{
    return store->persist->ops->needs_sync;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

void fq_store_get_stats(const struct fq_store *store, struct fq_store_stats *ret)
{
    *ret = (struct fq_store_stats){
        .prepared_count = load(&store->prepared_count),
        .prepared_bytes = load(&store->prepared_bytes),
        .recycled = load(&store->recycled),
        .created = load(&store->created),
        .unlinked = load(&store->unlinked),
        .starved = load(&store->starved),
        .roll_waits = load(&store->roll_waits),
        .no_space = load(&store->no_space),
        .syncs = load(&store->syncs),
        .sync_errors = load(&store->sync_errors),
        .quarantined = load(&store->quarantined),
        .damage = load(&store->damage),
    };
}
