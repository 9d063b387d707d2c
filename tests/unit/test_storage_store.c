/* SPDX-License-Identifier: Apache-2.0 */
/* A data directory: lock, version, small files, topics, quarantine, pool, words for people. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log_maker.h"
#include "storage/store.h"

static const struct fq_uuid id_a = {{0xaa}}, id_b = {{0xbb}};

static int try_open(const char *folder, struct fq_store **ret, struct fq_err *err)
{
    const struct fq_store_params params = {.data_dir = folder,
                                           .flush = FQ_FLUSH_SYNC,
                                           .shards_count = 2,
                                           .segment_bytes_max = 64u << 10,
                                           .segment_bytes_first = 16u << 10,
                                           .prepared_bytes = 48u << 10,
                                           .batch_bytes_max = 4096};
    return fq_store_open(&params, ret, err);
}

static struct fq_store *must_open(const char *folder)
{
    struct fq_store *store;
    struct fq_err err;
    cr_assert_eq(try_open(folder, &store, &err), 0, "%s", err.text);
    return store;
}

static void end(char *folder)
{
    log_maker_remove_tree(folder);
    free(folder);
}

/* case 25 */
Test(store, a_live_holder_is_named_and_a_dead_one_does_not_matter)
{
    char *folder = log_maker_folder(), pid[32];
    struct fq_store *store = must_open(folder), *second;
    struct fq_err err;
    cr_assert_eq(try_open(folder, &second, &err), FLASHQ_ERR_BUSY);
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    cr_assert_not_null(strstr(err.text, pid), "%s", err.text);
    fq_store_close(store, true);
    pid_t child = fork();
    if (child == 0) { /* dies without a farewell */
        _exit(try_open(folder, &second, NULL) == 0 ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    fq_store_close(must_open(folder), true);
    end(folder);
}

Test(store, another_media_version_is_refused)
{
    char *folder = log_maker_folder();
    struct fq_store *store = must_open(folder);
    struct fq_err err;
    cr_assert_eq(fq_store_write_file(store, NULL, NULL, "version", "flashq media 2", 14, &err), 0);
    fq_store_close(store, true);
    cr_assert_eq(try_open(folder, &store, &err), FLASHQ_ERR_VERSION);
    cr_assert_not_null(strstr(err.text, "flashq media 2"), "%s", err.text);
    end(folder);
}

Test(store, a_data_directory_that_cannot_be_made_is_an_error_with_its_name)
{
    struct fq_store *store;
    struct fq_err err;
    cr_assert_neq(try_open("/nonexistent-parent/data", &store, &err), 0);
    cr_assert_not_null(strstr(err.text, "/nonexistent-parent/data"), "%s", err.text);
}

Test(store, small_files_are_whole_or_said_to_be_damaged)
{
    char *folder = log_maker_folder(), path[4300];
    struct fq_store *store = must_open(folder);
    struct fq_err err;
    void *bytes;
    size_t length;
    cr_assert_eq(fq_store_read_file(store, &id_a, "topic", &bytes, &length, &err),
                 FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(fq_store_write_file(store, "a", &id_a, "topic", "first", 5, &err), 0);
    cr_assert_eq(fq_store_write_file(store, "a", &id_a, "topic", "second one", 10, &err), 0);
    cr_assert_eq(fq_store_read_file(store, &id_a, "topic", &bytes, &length, &err), 0);
    cr_assert_eq(length, 10);
    cr_assert_eq(memcmp(bytes, "second one", 10), 0);
    free(bytes);
    cr_assert_eq(fq_store_write_file(store, "a", &id_a, "empty", "", 0, &err), 0);
    cr_assert_eq(fq_store_read_file(store, &id_a, "empty", &bytes, &length, &err), 0);
    cr_assert_eq(length, 0);
    free(bytes);
    (void)snprintf(path, sizeof path, "%s/a-aa000000000000000000000000000000/topic", folder);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        int fd = open(path, O_RDWR);
        uint8_t byte, flipped;
        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        flipped = (uint8_t)(byte ^ 4);
        cr_assert_eq(pwrite(fd, &flipped, 1, at), 1);
        cr_assert_eq(fq_store_read_file(store, &id_a, "topic", &bytes, &length, &err),
                     FLASHQ_ERR_CORRUPT);
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
        (void)close(fd);
    }
    fq_store_close(store, true);
    end(folder);
}

struct topics {
    int count;
    uint32_t partitions;
    char names[256];
};

static int see_topic(void *context, const char *name, const struct fq_uuid *id,
                     uint32_t partitions_count)
{
    struct topics *topics = context;
    cr_assert(id->bytes[0] == 0xaa || id->bytes[0] == 0xbb);
    topics->count++;
    topics->partitions += partitions_count;
    (void)strncat(topics->names, name, sizeof topics->names - strlen(topics->names) - 1);
    return 0;
}

static struct fq_log *open_log(struct fq_store *store, const char *topic, const struct fq_uuid *id,
                               uint32_t partition)
{
    struct fq_log *log;
    struct fq_err err;
    const struct fq_log_params params = {
        .topic_id = *id, .topic = topic, .partition = partition, .segment_bytes = 64u << 10};
    cr_assert_eq(fq_log_open(store, &params, NULL, NULL, &log, &err), 0, "%s", err.text);
    return log;
}

static void append(struct fq_store *store, struct fq_log *log, int count)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    for (int i = 0; i < count; i++) {
        size_t length = log_maker_batch(batch, fq_log_end(log), 0, 3, 1000, 1);
        cr_assert_eq(log_maker_append(store, log, batch, length), 0);
    }
    cr_assert_eq(log_maker_settle(store, log), 0);
}

/* case 21: what the catalogue forgot can be found again from the folders. */
Test(store, topics_are_found_from_their_folders)
{
    char *folder = log_maker_folder(), path[4300];
    struct fq_store *store = must_open(folder);
    struct fq_err err;
    struct topics topics = {0};
    struct fq_log *one = open_log(store, "a-b.c_d", &id_a, 0),
                  *two = open_log(store, "x", &id_b, 6);
    append(store, one, 1);
    append(store, two, 1);
    (void)snprintf(path, sizeof path, "%s/lost+found", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(fq_store_visit_topics(store, see_topic, &topics, &err), 0);
    cr_assert_eq(topics.count, 2);
    cr_assert_eq(topics.partitions, 1 + 7);
    cr_assert_not_null(strstr(topics.names, "a-b.c_d"));
    fq_log_close(one, true);
    fq_log_close(two, true);
    fq_store_close(store, true);
    store = must_open(folder);
    cr_assert_eq(access(path, F_OK), 0, "what is not ours is left alone");
    fq_store_close(store, true);
    end(folder);
}

Test(store, a_deleted_topic_is_gone_at_once_and_its_files_soon)
{
    char *folder = log_maker_folder(), command[4400];
    struct fq_store *store = must_open(folder);
    struct fq_err err;
    struct topics topics = {0};
    struct fq_log *log = open_log(store, "t", &id_a, 0), *other = open_log(store, "t", &id_b, 0);
    append(store, log, 20);
    append(store, other, 20);
    fq_log_close(log, true);
    cr_assert_eq(fq_store_delete_topic(store, &id_a, &err), 0);
    cr_assert_eq(fq_store_delete_topic(store, &id_a, &err), 0, "once more is fine");
    cr_assert_eq(fq_store_visit_topics(store, see_topic, &topics, &err), 0);
    cr_assert_eq(topics.count, 1);
    cr_assert_eq(fq_log_delete(other, &err), 0);
    log_maker_keep_house(store);
    (void)snprintf(command, sizeof command, "test -z \"$(find %s -name '0*.log')\"", folder);
    cr_assert_eq(system(command), 0);
    log = open_log(store, "t", &id_a, 0);
    cr_assert_eq(fq_log_end(log), 0);
    append(store, log, 20);
    fq_log_close(log, true);
    fq_store_close(store, true);
    end(folder);
}

Test(store, deleting_many_files_keeps_no_append_waiting_for_long)
{
    enum { FILES = 100 };
    char *folder = log_maker_folder(), path[4300];
    struct fq_store *store = must_open(folder);
    struct fq_store_stats before, after;
    struct fq_err err;
    struct fq_log *log = open_log(store, "t", &id_a, 0);
    append(store, log, 1);
    fq_log_close(log, true);
    log_maker_keep_house(store);
    cr_assert_eq(fq_store_delete_topic(store, &id_a, &err), 0);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "%s/deleted/%03d", folder, i);
        cr_assert_eq(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    }
    fq_store_get_stats(store, &before);
    for (uint64_t last = before.unlinked; fq_store_step(store, 0) > 0; last = after.unlinked) {
        fq_store_get_stats(store, &after);
        cr_assert_leq(after.unlinked - last, FILES / 4, "in one step");
    }
    cr_assert_geq(after.unlinked - before.unlinked, FILES + 1);
    (void)snprintf(path, sizeof path, "test -z \"$(ls %s/deleted)\"", folder);
    cr_assert_eq(system(path), 0);
    fq_store_close(store, true);
    end(folder);
}

/* case 21 */
Test(store, a_file_of_another_partition_is_quarantined_never_deleted)
{
    char *folder = log_maker_folder(), command[9000];
    struct fq_store *store = must_open(folder);
    struct fq_store_stats stats;
    struct fq_log *log = open_log(store, "t", &id_a, 0), *other = open_log(store, "u", &id_b, 0);
    append(store, log, 2);
    append(store, other, 2);
    log_maker_keep_house(store);
    fq_log_close(log, true);
    fq_log_close(other, true);
    fq_store_close(store, true);
    (void)snprintf(
        command, sizeof command,
        "cd %s && cp u-*/0/00000000000000000000.log $(echo t-*)/0/00000000000000000777.log",
        folder);
    cr_assert_eq(system(command), 0);
    store = must_open(folder);
    log = open_log(store, "t", &id_a, 0);
    cr_assert_eq(fq_log_end(log), 6);
    cr_assert_eq(fq_log_damage_count(log), 1);
    fq_store_get_stats(store, &stats);
    cr_assert_eq(stats.quarantined, 1);
    (void)snprintf(command, sizeof command, "test -f %s/quarantine/*00777.log", folder);
    cr_assert_eq(system(command), 0);
    fq_log_close(log, true);
    fq_store_close(store, true);
    end(folder);
}

Test(store, the_pool_is_filled_kept_over_a_restart_and_used)
{
    char *folder = log_maker_folder();
    struct fq_store *store = must_open(folder);
    struct fq_store_stats stats;
    struct fq_err err;
    fq_store_get_stats(store, &stats);
    cr_assert_eq(stats.prepared_count, 0, "opening does not wait for it");
    log_maker_keep_house(store);
    fq_store_get_stats(store, &stats);
    cr_assert_eq(stats.prepared_count, 3, "48 KiB in segments of 16");
    fq_store_close(store, true);
    store = must_open(folder);
    fq_store_get_stats(store, &stats);
    cr_assert_eq(stats.prepared_count, 3);
    struct fq_log *log = open_log(store, "t", &id_a, 0);
    cr_assert_eq(fq_log_reserve(log, 3000, 0, &err), FQ_RESERVE_STARVED);
    cr_assert_gt(fq_store_step(store, 1), 0);
    fq_store_get_stats(store, &stats);
    cr_assert_eq(stats.created, 0, "it came from the pool");
    cr_assert_eq(stats.starved, 1);
    cr_assert_eq(fq_log_reserve(log, 3000, 0, &err), FQ_RESERVE_OK);
    fq_log_abort_batch(log);
    append(store, log, 100);
    cr_assert_eq(fq_log_trim(log, 300, &err), 0);
    log_maker_keep_house(store);
    fq_store_get_stats(store, &stats);
    cr_assert_gt(stats.recycled, 0);
    fq_log_close(log, true);
    fq_store_close(store, true);
    end(folder);
}

Test(store, words_for_people_say_what_is_in_force)
{
    char *folder = log_maker_folder();
    struct fq_store *store = must_open(folder);
    cr_assert_str_eq(fq_store_flush(store), "sync");
    cr_assert(fq_store_needs_flusher(store));
    cr_assert_eq(strncmp(fq_store_medium(store), "dir ", 4), 0);
    cr_assert_not_null(strstr(fq_store_guarantee(store), "survives"));
    fq_store_close(store, true);
    const struct fq_store_params params = {.data_dir = folder,
                                           .flush = FQ_FLUSH_PMEM,
                                           .segment_bytes_max = 1u << 20,
                                           .batch_bytes_max = 1000};
    struct fq_err err;
    if (fq_store_open(&params, &store, &err) == 0) { /* not built without libpmem */
        cr_assert_str_eq(fq_store_flush(store), "pmem (emulated: not DAX)");
        cr_assert_not_null(strstr(fq_store_guarantee(store), "not power loss"));
        fq_store_close(store, true);
    } else {
        cr_assert_eq(err.code, FLASHQ_ERR_UNSUPPORTED);
    }
    end(folder);
}

/* case 47 */
Test(store, too_few_open_files_are_said_at_the_start_with_numbers)
{
    char *folder = log_maker_folder();
    fq_store_close(must_open(folder), true);
    const struct rlimit few = {100, 100};
    struct fq_store *store;
    struct fq_err err;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0); /* each test is a process of its own */
    cr_assert_eq(try_open(folder, &store, &err), FLASHQ_ERR_LIMIT);
    cr_assert_not_null(strstr(err.text, "100"), "%s", err.text);
    cr_assert_not_null(strstr(err.text, "ulimit -n"), "%s", err.text);
    end(folder);
}
