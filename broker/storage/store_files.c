/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files, topic folders, quarantine, deletion. Not for shards: everything here blocks.
 * A small file is {magic, length, CRC-32C, bytes}, written beside, synced, renamed into place, the
 * folder synced: after any crash it is the old one or the new one.
 * Deleting is one durable rename into `deleted/`; the housekeeper unlinks what is there.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "storage/store_impl.h"

#define FILE_MAGIC        "FQFILE01"
#define FILE_HEADER_BYTES 16u
#define PURGED_PER_STEP   16u

/* --- small files ------------------------------------------------------------------------------ */

static int write_and_sync(struct fq_store *store, const char *path, const void *bytes,
                          size_t length, struct fq_err *err)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    uint8_t header[FILE_HEADER_BYTES];
    struct fq_pfile pf;
    memcpy(header, FILE_MAGIC, 8);
    fq_store_le32(header + 8, (uint32_t)length);
    fq_store_le32(header + 12, fq_crc32c(fq_crc32c(0, header, 12), bytes, length));
    (void)ops->unlink(store->persist, path, NULL); /* left by a crash */
    int r = ops->create(store->persist, path, FILE_HEADER_BYTES + length, &pf, err);
    if (r < 0) {
        return r;
    }
    r = ops->write(&pf, 0, header, sizeof header);
    r = r < 0 || length == 0 ? r : ops->write(&pf, FILE_HEADER_BYTES, bytes, length);
    r = r < 0 ? r : ops->sync(&pf);
    ops->close(&pf);
    return r < 0 ? fq_err_set(err, r, "write %s: %s", path, fq_err_describe(r)) : 0;
}

int fq_store_write_file(struct fq_store *store, const char *topic, const struct fq_uuid *id,
                        const char *name, const void *bytes, size_t length, struct fq_err *err)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    char folder[FQ_PATH_BYTES], path[FQ_PATH_BYTES + 64], temporary[FQ_PATH_BYTES + 64];
    int r = 0;
    if (length > FQ_STORE_FILE_BYTES_MAX) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "%s has %zu bytes, the limit is %u", name,
                          length, FQ_STORE_FILE_BYTES_MAX);
    }
    if (!id) {
        (void)snprintf(folder, sizeof folder, "%s", store->dir);
    } else if (fq_topic_dir_find(store->dir, id, folder) < 0) {
        char dir_name[256];
        fq_topic_dir_name(topic, id, dir_name);
        (void)snprintf(folder, sizeof folder, "%s/%s", store->dir, dir_name);
        r = ops->mkdir(store->persist, folder, err);
        r = r < 0 ? r : ops->sync_dir(store->persist, store->dir, err);
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)snprintf(temporary, sizeof temporary, "%s/%s.tmp", folder, name);
    r = r < 0 ? r : write_and_sync(store, temporary, bytes, length, err);
    r = r < 0 ? r : ops->rename(store->persist, temporary, path, err);
    return r < 0 ? r : ops->sync_dir(store->persist, folder, err);
}

int fq_store_read_file(struct fq_store *store, const struct fq_uuid *id, const char *name,
                       void **ret, size_t *ret_length, struct fq_err *err)
{
    char folder[FQ_PATH_BYTES], path[FQ_PATH_BYTES + 64];
    (void)snprintf(folder, sizeof folder, "%s", store->dir);
    int r = id ? fq_topic_dir_find(store->dir, id, folder) : 0;
    if (r < 0) {
        return fq_err_set(err, r, "the topic's folder: %s", fq_err_describe(r));
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    uint8_t header[FILE_HEADER_BYTES], *bytes = NULL;
    size_t got = fread(header, 1, sizeof header, file), length = 0;
    r = FLASHQ_ERR_CORRUPT;
    if (got == sizeof header && memcmp(header, FILE_MAGIC, 8) == 0 &&
        fq_load_le32(header + 8) <= FQ_STORE_FILE_BYTES_MAX) {
        length = fq_load_le32(header + 8);
        bytes = malloc(length + 1);
        r = bytes ? r : FLASHQ_ERR_NO_MEMORY;
        if (bytes && fread(bytes, 1, length, file) == length &&
            fq_crc32c(fq_crc32c(0, header, 12), bytes, length) == fq_load_le32(header + 12)) {
            r = 0;
        }
    }
    (void)fclose(file);
    if (r < 0) {
        free(bytes);
        return fq_err_set(err, r, "%s: %s", path, fq_err_describe(r));
    }
    *ret = bytes;
    *ret_length = length;
    return 0;
}

/* --- topics ----------------------------------------------------------------------------------- */

static uint32_t partitions_in(const char *path)
{
    DIR *folder = opendir(path);
    uint32_t count = 0;
    if (!folder) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *end;
        unsigned long index = strtoul(entry->d_name, &end, 10);
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && *end == '\0' &&
            index < FQ_LIMIT_PARTITIONS && index + 1 > count) {
            count = (uint32_t)index + 1;
        }
    }
    (void)closedir(folder);
    return count;
}

int fq_store_visit_topics(struct fq_store *store,
                          int (*visitor)(void *context, const char *name, const struct fq_uuid *id,
                                         uint32_t partitions_count),
                          void *context, struct fq_err *err)
{
    DIR *folder = opendir(store->dir);
    if (!folder) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", store->dir);
    }
    int r = 0;
    for (struct dirent *entry; r == 0 && (entry = readdir(folder)) != NULL;) {
        struct fq_uuid id;
        char name[256], path[FQ_PATH_BYTES];
        if (fq_topic_dir_parse(entry->d_name, name, &id)) {
            (void)snprintf(path, sizeof path, "%s/%s", store->dir, entry->d_name);
            r = visitor(context, name, &id, partitions_in(path));
        }
    }
    (void)closedir(folder);
    return r;
}

/* --- moving away ------------------------------------------------------------------------------ */

/* Renames `path` to `<data>/<folder>/<number>-<its name>`, durably. */
static int move_away(struct fq_store *store, const char *path, const char *folder,
                     struct fq_err *err)
{
    const struct fq_persist_ops *ops = store->persist->ops;
    char to[FQ_PATH_BYTES], into[FQ_PATH_BYTES], from_folder[FQ_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    (void)snprintf(into, sizeof into, "%s/%s", store->dir, folder);
    (void)snprintf(from_folder, sizeof from_folder, "%.*s", (int)(name - path - 1), path);
    do {
        uint64_t number = atomic_fetch_add(&store->quarantine_number, 1);
        if (snprintf(to, sizeof to, "%s/%llu-%.200s", into, (unsigned long long)number, name) >=
            (int)sizeof to) {
            return fq_err_set(err, FLASHQ_ERR_LIMIT, "the path of %s is too long", name);
        }
    } while (access(to, F_OK) == 0);
    int r = ops->rename(store->persist, path, to, err);
    r = r < 0 ? r : ops->sync_dir(store->persist, into, err);
    return r < 0 ? r : ops->sync_dir(store->persist, from_folder, err);
}

int fq_store_discard(struct fq_store *store, const char *path, struct fq_err *err)
{
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        return 0;
    }
    int r = move_away(store, path, "deleted", err);
    atomic_store(&store->purge_due, true);
    fq_wake_signal(&store->keeper_wake);
    return r;
}

int fq_store_delete_topic(struct fq_store *store, const struct fq_uuid *id, struct fq_err *err)
{
    char path[FQ_PATH_BYTES];
    int r = fq_topic_dir_find(store->dir, id, path);
    return r == FLASHQ_ERR_NOT_FOUND ? 0
           : r < 0                   ? fq_err_set(err, r, "find a topic's folder in %s", store->dir)
                                     : fq_store_discard(store, path, err);
}

int fq_store_quarantine(struct fq_store *store, const char *relative, const char *why,
                        struct fq_err *err)
{
    char path[FQ_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", store->dir, relative);
    int r = move_away(store, path, "quarantine", err);
    if (r == 0) {
        fq_count(&store->quarantined, 1);
        fq_error("%s: moved to quarantine: %s", path, why);
    }
    return r;
}

/* --- purging ---------------------------------------------------------------------------------- */

/* Stops when it has unlinked as many files as the budget has. */
static void remove_tree(struct fq_store *store, const char *path, unsigned depth, unsigned *budget)
{
    struct stat st;
    if (*budget == 0 || lstat(path, &st) < 0) {
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        if (store->persist->ops->unlink(store->persist, path, NULL) == 0) {
            fq_count(&store->unlinked, 1);
            --*budget;
        }
        return;
    }
    DIR *folder = depth > 0 ? opendir(path) : NULL;
    if (!folder) {
        return;
    }
    for (struct dirent *entry; *budget > 0 && (entry = readdir(folder)) != NULL;) {
        char inner[FQ_PATH_BYTES];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner) {
            remove_tree(store, inner, depth - 1, budget);
        }
    }
    (void)closedir(folder);
    (void)rmdir(path); /* unless something is left in it */
}

int fq_store_purge_some(struct fq_store *store)
{
    unsigned budget = PURGED_PER_STEP;
    char path[FQ_PATH_BYTES], inner[FQ_PATH_BYTES];
    if (!atomic_exchange(&store->purge_due, false)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/deleted", store->dir);
    DIR *folder = opendir(path);
    int done = 0;
    for (struct dirent *entry; folder && budget > 0 && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.' &&
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner) {
            remove_tree(store, inner, 4, &budget);
            done++;
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    if (budget == 0) {
        atomic_store(&store->purge_due, true);
    }
    if (done > 0) {
        store->pool.retry_at_us = INT64_MIN; /* there is space again */
    }
    return done;
}
