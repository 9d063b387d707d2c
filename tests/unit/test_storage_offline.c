/* SPDX-License-Identifier: Apache-2.0 */
/* Segment files read without a broker: everything is counted, damage is named, nothing is changed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_maker.h"
#include "storage/layout.h"
#include "storage/offline.h"

static const struct fq_uuid topic_id = {{0x77}};

struct seen {
    int segments, ends, batches, damages;
    int64_t next, first_lost, next_lost;
    uint64_t records;
    char topic[256];
    int stop_after;
};

static int on_segment(void *context, const char *topic, const struct fq_offline_segment *segment)
{
    struct seen *seen = context;
    (void)snprintf(seen->topic, sizeof seen->topic, "%s", topic);
    cr_assert_eq(memcmp(&segment->topic_id, &topic_id, sizeof topic_id), 0);
    seen->segments++;
    return 0;
}

static int on_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                    uint64_t position)
{
    struct seen *seen = context;
    (void)position;
    cr_assert_geq(header->base_offset, seen->next);
    cr_assert(fq_batch_crc_ok(batch, fq_batch_total_bytes(header)));
    seen->next = header->base_offset + header->last_offset_delta + 1;
    return ++seen->batches == seen->stop_after ? 42 : 0;
}

static int on_damage(void *context, const struct fq_damage *damage)
{
    struct seen *seen = context;
    seen->damages++;
    seen->first_lost = damage->first_offset;
    seen->next_lost = damage->next_offset;
    return 0;
}

static int on_end(void *context, const char *topic, const struct fq_offline_segment *segment)
{
    struct seen *seen = context;
    (void)topic;
    seen->ends++;
    seen->records += segment->records_count;
    return 0;
}

static int walk(const char *path, struct seen *seen, int stop_after)
{
    struct fq_err err;
    const struct fq_offline_visitor visitor = {on_segment, on_batch, on_damage, on_end, seen};
    *seen = (struct seen){.stop_after = stop_after};
    return fq_offline_walk(path, &visitor, &err);
}

static char *make(int batches)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    char *folder = log_maker_folder();
    struct fq_store *store;
    struct fq_log *log;
    struct fq_err err;
    const struct fq_store_params params = {.data_dir = folder,
                                           .flush = FQ_FLUSH_SYNC,
                                           .segment_bytes_max = 32u << 10,
                                           .segment_bytes_first = 16u << 10,
                                           .batch_bytes_max = 4096};
    const struct fq_log_params log_params = {
        .topic_id = topic_id, .topic = "off-line", .segment_bytes = 32u << 10};
    cr_assert_eq(fq_store_open(&params, &store, &err), 0, "%s", err.text);
    cr_assert_eq(fq_log_open(store, &log_params, NULL, NULL, &log, &err), 0);
    for (int i = 0; i < batches; i++) {
        size_t length = log_maker_batch(batch, fq_log_end(log), 0, 2, 1000, 3);
        cr_assert_eq(log_maker_append(store, log, batch, length), 0);
        cr_assert_eq(log_maker_settle(store, log), 0);
    }
    log_maker_keep_house(store);
    fq_log_close(log, true);
    fq_store_close(store, true);
    return folder;
}

static void path_of(const char *folder, const char *rest, char out[4400])
{
    (void)snprintf(out, 4400, "%s/off-line-77000000000000000000000000000000%s", folder, rest);
}

Test(offline, every_kind_of_path_leads_to_the_batches)
{
    char *folder = make(30), path[4400];
    struct seen seen;
    cr_assert_eq(walk(folder, &seen, 0), 0);
    cr_assert_eq(seen.batches, 30);
    cr_assert_eq(seen.records, 60);
    cr_assert_eq(seen.damages, 0);
    cr_assert_gt(seen.segments, 2);
    cr_assert_eq(seen.segments, seen.ends);
    cr_assert_str_eq(seen.topic, "off-line");
    int segments = seen.segments;
    path_of(folder, "", path);
    cr_assert_eq(walk(path, &seen, 0), 0);
    cr_assert_eq(seen.batches, 30);
    path_of(folder, "/0", path);
    cr_assert_eq(walk(path, &seen, 0), 0);
    cr_assert_eq(seen.batches, 30);
    cr_assert_eq(seen.segments, segments);
    path_of(folder, "/0/00000000000000000000.log", path);
    cr_assert_eq(walk(path, &seen, 0), 0);
    cr_assert_eq(seen.segments, 1);
    cr_assert_eq(walk(folder, &seen, 7), 42, "the visitor's value ends the walk");
    cr_assert_eq(seen.batches, 7);
    log_maker_remove_tree(folder);
    free(folder);
}

Test(offline, damage_and_holes_are_named_and_nothing_is_written)
{
    char *folder = make(30), path[4400], command[9000];
    struct seen seen;
    uint8_t before[4096], after[4096];
    path_of(folder, "/0/00000000000000000000.log", path);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, before, 4096, FQ_SEG_DATA), 4096);
    before[2100] ^= 0x10; /* in the second batch */
    cr_assert_eq(pwrite(fd, before, 4096, FQ_SEG_DATA), 4096);
    cr_assert_eq(walk(folder, &seen, 0), 0);
    cr_assert_eq(seen.batches, 29);
    cr_assert_eq(seen.damages, 1);
    cr_assert_eq(seen.first_lost, 2);
    cr_assert_eq(seen.next_lost, 4);
    cr_assert_eq(pread(fd, after, 4096, FQ_SEG_DATA), 4096);
    cr_assert_eq(memcmp(before, after, 4096), 0);
    before[2100] ^= 0x10;
    cr_assert_eq(pwrite(fd, before, 4096, FQ_SEG_DATA), 4096);
    (void)close(fd);
    path_of(folder, "/0", path);
    (void)snprintf(command, sizeof command, "cd %s && rm $(ls 0*.log | sed -n 2p)", path);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(walk(folder, &seen, 0), 0);
    cr_assert_eq(seen.damages, 1);
    cr_assert_lt(seen.first_lost, seen.next_lost);
    cr_assert_eq(seen.batches, 30 - (seen.next_lost - seen.first_lost) / 2);
    log_maker_remove_tree(folder);
    free(folder);
}

Test(offline, what_holds_no_segments_is_said_so)
{
    struct seen seen;
    char *folder = log_maker_folder(), path[4400];
    cr_assert_eq(walk("/nonexistent", &seen, 0), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(walk(folder, &seen, 0), FLASHQ_ERR_INVALID);
    (void)snprintf(path, sizeof path, "%s/notes.txt", folder);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    for (int i = 0; i < 2000; i++) {
        (void)fputs("words\n", file);
    }
    (void)fclose(file);
    cr_assert_eq(walk(path, &seen, 0), FLASHQ_ERR_INVALID);
    log_maker_remove_tree(folder);
    free(folder);
}
