/* SPDX-License-Identifier: Apache-2.0 */
/* A log in a store, in both flush modes: appended, rolled, reopened, trimmed, truncated, read. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_maker.h"
#include "persist_faulty.h"
#include "storage/persist.h"

struct world {
    struct persist_faulty faulty;
    bool is_faulty;
    char *folder;
    struct fq_store *store;
    struct fq_log *log;
    enum fq_flush flush;
    uint64_t retention_bytes;
};

static const struct fq_uuid topic_id = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

static void world_open_log(struct world *w)
{
    struct fq_err err;
    const struct fq_store_params params = {.data_dir = w->folder,
                                           .flush = w->flush,
                                           .shards_count = 1,
                                           .segment_bytes_max = 64u << 10,
                                           .segment_bytes_first = 16u << 10,
                                           .batch_bytes_max = 4096,
                                           .persist = w->is_faulty ? &w->faulty.persist : NULL};
    const struct fq_log_params log_params = {.topic_id = topic_id,
                                             .topic = "orders",
                                             .segment_bytes = 64u << 10,
                                             .retention_bytes = w->retention_bytes};
    cr_assert_eq(fq_store_open(&params, &w->store, &err), 0, "%s", err.text);
    cr_assert_eq(fq_log_open(w->store, &log_params, NULL, NULL, &w->log, &err), 0, "%s", err.text);
}

static void world_start(struct world *w, enum fq_flush flush)
{
    *w = (struct world){.folder = log_maker_folder(), .flush = flush};
    cr_assert_not_null(w->folder);
    world_open_log(w);
}

static void world_stop(struct world *w, bool clean)
{
    fq_log_close(w->log, clean);
    fq_store_close(w->store, clean);
    w->log = NULL;
    w->store = NULL;
}

static void world_restart(struct world *w, bool clean)
{
    world_stop(w, clean);
    world_open_log(w);
}

static void world_end(struct world *w)
{
    world_stop(w, true);
    log_maker_remove_tree(w->folder);
    free(w->folder);
}

static void append(struct world *w, int records, size_t value_bytes)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    size_t length = log_maker_batch(batch, fq_log_end(w->log), 0, records, value_bytes, 7);
    cr_assert_eq(log_maker_append(w->store, w->log, batch, length), 0);
}

struct tally {
    int64_t next;
    int batches;
};

static int check_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                       uint64_t segment_base, uint64_t position)
{
    static uint8_t expected[LOG_MAKER_BATCH_MAX];
    struct tally *tally = context;
    (void)segment_base;
    (void)position;
    cr_assert_eq(header->base_offset, tally->next);
    tally->next += header->last_offset_delta + 1;
    tally->batches++;
    size_t value_bytes = fq_batch_total_bytes(header) > 2000 ? 1000 : 100;
    size_t length =
        log_maker_batch(expected, header->base_offset, 0, header->records_count, value_bytes, 7);
    cr_assert_eq(length, fq_batch_total_bytes(header));
    cr_assert_eq(memcmp(batch, expected, length), 0, "bytes at offset %lld",
                 (long long)header->base_offset);
    return 0;
}

static void check_all(struct world *w, int64_t start, int64_t end, int batches)
{
    struct tally tally = {.next = start};
    cr_assert_eq(fq_log_start(w->log), start);
    cr_assert_eq(fq_log_end(w->log), end);
    cr_assert_eq(fq_log_scan(w->log, start, INT64_MAX, check_batch, &tally), 0);
    cr_assert_eq(tally.next, end);
    if (batches >= 0) {
        cr_assert_eq(tally.batches, batches);
    }
    cr_assert_eq(fq_log_damage_count(w->log), 0);
}

ParameterizedTestParameters(log, both_ways)
{
    static enum fq_flush ways[] = {FQ_FLUSH_PMEM, FQ_FLUSH_SYNC};
    return cr_make_param_array(enum fq_flush, ways, 2);
}

ParameterizedTest(enum fq_flush *flush, log, both_ways)
{
    struct world w;
    world_start(&w, *flush);
    cr_assert_eq(fq_log_end(w.log), 0);
    for (int i = 0; i < 100; i++) {
        append(&w, 3, i % 2 ? 100 : 1000);
        cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    }
    check_all(&w, 0, 300, 100);
    world_restart(&w, false); /* no farewell: as after kill -9 */
    check_all(&w, 0, 300, 100);
    append(&w, 3, 100);
    cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    world_restart(&w, true);
    check_all(&w, 0, 303, 101);
    world_end(&w);
}

static void world_start_faulty(struct world *w)
{
    struct fq_persist *sync;
    *w = (struct world){.folder = log_maker_folder(), .is_faulty = true};
    cr_assert_eq(fq_persist_sync_create(&sync), 0);
    persist_faulty_init(&w->faulty, sync);
    world_open_log(w);
}

static void append_many(struct world *w, int count)
{
    for (int i = 0; i < count; i++) {
        append(w, 3, 1000);
    }
    cr_assert_eq(log_maker_settle(w->store, w->log), 0);
}

static void folder_of(const struct world *w, char out[4300])
{
    (void)snprintf(out, 4300, "%s/orders-0102030405060708090a0b0c0d0e0f10/0", w->folder);
}

/* case 11 */
ParameterizedTestParameters(log, end_outlives_trims)
{
    static enum fq_flush ways[] = {FQ_FLUSH_PMEM, FQ_FLUSH_SYNC};
    return cr_make_param_array(enum fq_flush, ways, 2);
}

ParameterizedTest(enum fq_flush *flush, log, end_outlives_trims)
{
    struct world w;
    struct fq_err err;
    struct fq_log_place place;
    world_start(&w, *flush);
    append_many(&w, 50);
    cr_assert_eq(fq_log_trim(w.log, 75, &err), 0, "%s", err.text);
    world_restart(&w, false);
    cr_assert_eq(fq_log_start(w.log), 75);
    check_all(&w, 75, 150, -1);
    cr_assert_eq(fq_log_find(w.log, 74, &place), FLASHQ_ERR_TRIMMED);
    cr_assert_eq(fq_log_trim(w.log, 151, &err), FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_eq(fq_log_trim(w.log, 150, &err), 0);
    cr_assert_eq(fq_log_trim(w.log, 10, &err), 0, "the start never goes back");
    world_restart(&w, false);
    cr_assert_eq(fq_log_start(w.log), 150);
    cr_assert_eq(fq_log_end(w.log), 150);
    append_many(&w, 50);
    world_restart(&w, true);
    check_all(&w, 150, 300, 50);
    world_end(&w);
}

Test(log, retention_removes_whole_segments_and_the_end_stays)
{
    struct world w;
    world_start(&w, FQ_FLUSH_SYNC);
    append_many(&w, 100);
    fq_log_configure(w.log, 64u << 10, 60000);
    cr_assert_gt(fq_log_apply_retention(w.log), 0);
    cr_assert_leq(fq_log_bytes(w.log), 60000 + (64u << 10));
    int64_t start = fq_log_start(w.log);
    cr_assert_gt(start, 0);
    cr_assert_eq(fq_segment_base_offset(fq_log_segment_first(w.log)), start);
    log_maker_keep_house(w.store);
    world_restart(&w, false);
    check_all(&w, start, 300, -1);
    cr_assert_eq(fq_log_apply_retention(w.log), 0, "retention is off again");
    world_end(&w);
}

ParameterizedTestParameters(log, truncates_anywhere)
{
    static enum fq_flush ways[] = {FQ_FLUSH_PMEM, FQ_FLUSH_SYNC};
    return cr_make_param_array(enum fq_flush, ways, 2);
}

ParameterizedTest(enum fq_flush *flush, log, truncates_anywhere)
{
    for (int64_t at = 0; at <= 60; at++) { /* every offset of 20 batches in three segments */
        struct world w;
        struct fq_err err;
        world_start(&w, *flush);
        append_many(&w, 20);
        cr_assert_eq(fq_log_truncate(w.log, at, &err), 0, "%s", err.text);
        int64_t cut = at == 60 ? 60 : at / 3 * 3;
        check_all(&w, 0, cut, (int)(cut / 3));
        world_restart(&w, at % 2 == 0);
        check_all(&w, 0, cut, (int)(cut / 3));
        append_many(&w, 20);
        world_restart(&w, at % 3 == 0);
        check_all(&w, 0, cut + 60, (int)(cut / 3) + 20);
        world_end(&w);
    }
}

/* case 16 */
Test(log, a_reader_at_the_seam_is_led_into_the_next_segment)
{
    struct world w;
    struct fq_log_place place;
    world_start(&w, FQ_FLUSH_PMEM);
    append_many(&w, 20);
    struct fq_segment *first = fq_log_segment_first(w.log), *second = fq_segment_next(first);
    cr_assert(fq_segment_is_sealed(first));
    cr_assert_eq(fq_segment_end_offset(first), fq_segment_base_offset(second));
    cr_assert_eq(fq_log_find(w.log, fq_segment_end_offset(first), &place), 0);
    cr_assert_eq(place.segment, second);
    cr_assert_eq(place.position, 0);
    cr_assert_eq(fq_log_find(w.log, 60, &place), 0, "at the end: where the next batch will be");
    cr_assert_eq(place.segment, fq_log_segment_last(w.log));
    cr_assert_eq(place.position, fq_segment_data_bytes(place.segment));
    cr_assert_eq(fq_log_find(w.log, 61, &place), FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_null(fq_segment_next(fq_log_segment_last(w.log)));
    cr_assert_eq(fq_log_segment_by_base(w.log, fq_segment_base_offset(second)), second);
    world_end(&w);
}

/* case 16: a segment that was opened and got no batch; one that is prepared beside the log. */
Test(log, an_empty_last_segment_and_a_prepared_one_are_taken_up)
{
    struct world w;
    struct fq_err err;
    world_start(&w, FQ_FLUSH_PMEM);
    append_many(&w, 3);
    while (fq_log_segment_first(w.log) == fq_log_segment_last(w.log)) {
        int r = fq_log_reserve(w.log, 4096, fq_log_end(w.log), &err);
        if (r == FQ_RESERVE_OK && fq_segment_data_bytes(fq_log_segment_last(w.log)) > 0) {
            fq_log_abort_batch(w.log);
            append(&w, 3, 1000);
        }
        log_maker_keep_house(w.store);
    }
    cr_assert_eq(fq_segment_data_bytes(fq_log_segment_last(w.log)), 0);
    int64_t end = fq_log_end(w.log);
    world_restart(&w, false);
    check_all(&w, 0, end, -1);
    cr_assert_eq(fq_segment_data_bytes(fq_log_segment_last(w.log)), 0, "the empty one is the last");
    append_many(&w, 1);
    check_all(&w, 0, end + 3, -1);
    world_end(&w);
}

/* case 16: half made: the file beside the log is prepared but not zero, or its header is torn. */
Test(log, a_half_made_next_segment_is_never_believed)
{
    struct world w;
    char folder[4300], command[9000];
    world_start(&w, FQ_FLUSH_PMEM);
    append_many(&w, 3); /* past three quarters: the next segment lies beside the log */
    log_maker_keep_house(w.store);
    world_stop(&w, true);
    folder_of(&w, folder);
    (void)snprintf(command, sizeof command,
                   "set -e; cd %s; n=$(ls next-*.log | head -1); dd if=/dev/urandom of=$n bs=4096 "
                   "seek=1 count=1 conv=notrunc status=none; dd if=/dev/urandom of=$n bs=1 seek=20 "
                   "count=30 conv=notrunc status=none",
                   folder);
    cr_assert_eq(system(command), 0);
    world_open_log(&w);
    check_all(&w, 0, 9, 3);
    append_many(&w, 30);
    world_restart(&w, false);
    check_all(&w, 0, 99, 33);
    world_end(&w);
}

/* A file in the middle is gone: reported with its offsets, what follows is served. */
Test(log, a_missing_middle_segment_is_damage)
{
    struct world w;
    char folder[4300], path[4400];
    struct fq_log_place place;
    world_start(&w, FQ_FLUSH_SYNC);
    append_many(&w, 40);
    struct fq_segment *second = fq_segment_next(fq_log_segment_first(w.log));
    int64_t from = fq_segment_base_offset(second), to = fq_segment_end_offset(second);
    log_maker_keep_house(w.store);
    world_stop(&w, true);
    folder_of(&w, folder);
    (void)snprintf(path, sizeof path, "%s/%020lld.log", folder, (long long)from);
    cr_assert_eq(unlink(path), 0);
    world_open_log(&w);
    cr_assert_eq(fq_log_damage_count(w.log), 1);
    cr_assert_eq(fq_log_damage_at(w.log, 0)->first_offset, from);
    cr_assert_eq(fq_log_damage_at(w.log, 0)->next_offset, to);
    cr_assert_eq(fq_log_find(w.log, from, &place), FLASHQ_ERR_CORRUPT);
    cr_assert_eq(place.base_offset, to);
    cr_assert_eq(fq_log_find(w.log, to, &place), 0);
    cr_assert_eq(fq_log_find(w.log, 0, &place), 0);
    cr_assert_eq(fq_log_end(w.log), 120);
    append_many(&w, 1);
    world_end(&w);
}

Test(log, offsets_go_on_only_in_order_and_epochs_never_down)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    struct fq_err err;
    world_start(&w, FQ_FLUSH_PMEM);
    for (int epoch = 0; epoch < 40; epoch++) { /* more than one segment's table holds */
        size_t length = log_maker_batch(batch, fq_log_end(w.log), epoch, 1, 10, 7);
        cr_assert_eq(log_maker_append(w.store, w.log, batch, length), 0);
    }
    cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    cr_assert_eq(fq_log_reserve(w.log, 100, 41, &err), FLASHQ_ERR_INVALID);
    size_t length = log_maker_batch(batch, 40, 38, 1, 10, 7);
    cr_assert_eq(log_maker_append(w.store, w.log, batch, length), FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_log_end(w.log), 40);
    world_restart(&w, false);
    cr_assert_eq(fq_log_end(w.log), 40);
    cr_assert_eq(fq_log_damage_count(w.log), 0);
    cr_assert_eq(log_maker_append(w.store, w.log, batch, length), FLASHQ_ERR_INVALID);
    world_end(&w);
}

Test(log, a_follower_may_begin_anywhere)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    world_start(&w, FQ_FLUSH_SYNC);
    size_t length = log_maker_batch(batch, 5000, 3, 2, 10, 7);
    cr_assert_eq(log_maker_append(w.store, w.log, batch, length), 0);
    cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    world_restart(&w, false);
    cr_assert_eq(fq_log_start(w.log), 5000);
    cr_assert_eq(fq_log_end(w.log), 5002);
    world_end(&w);
}

/* A reader's segment outlives its retirement, and is not recycled under it. */
Test(log, a_pinned_segment_stays_as_it_is)
{
    struct world w;
    struct fq_err err;
    struct fq_store_stats stats;
    world_start(&w, FQ_FLUSH_PMEM);
    append_many(&w, 30);
    struct fq_segment *first = fq_log_segment_first(w.log);
    uint64_t bytes = fq_segment_data_bytes(first);
    uint8_t *copy = malloc(bytes);
    memcpy(copy, fq_segment_data(first), bytes);
    fq_segment_pin(first);
    cr_assert_eq(fq_log_trim(w.log, 90, &err), 0);
    log_maker_keep_house(w.store);
    append_many(&w, 30);
    cr_assert_eq(memcmp(copy, fq_segment_data(first), bytes), 0);
    fq_store_get_stats(w.store, &stats);
    uint64_t before = stats.recycled + stats.unlinked;
    fq_segment_unpin(first);
    log_maker_keep_house(w.store);
    fq_store_get_stats(w.store, &stats);
    cr_assert_gt(stats.recycled + stats.unlinked, before);
    first = fq_log_segment_first(w.log);
    fq_segment_pin(first); /* and outlives its log */
    fq_log_close(w.log, true);
    w.log = NULL;
    cr_assert_not_null(fq_segment_data(first));
    fq_segment_unpin(first);
    free(copy);
    world_end(&w);
}

/* case 24 */
Test(log, no_space_is_said_and_ends_by_itself)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    struct fq_err err;
    world_start_faulty(&w);
    append_many(&w, 4);
    w.faulty.fail_create = FLASHQ_ERR_NO_SPACE;
    int r = 0;
    int64_t end = 0;
    while (r == 0) {
        end = fq_log_end(w.log);
        size_t length = log_maker_batch(batch, end, 0, 3, 1000, 7);
        r = log_maker_append(w.store, w.log, batch, length);
        (void)fq_log_publish(w.log);
    }
    cr_assert_eq(r, FLASHQ_ERR_NO_SPACE);
    cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    check_all(&w, 0, end, -1); /* reads go on */
    cr_assert_not(fq_log_is_offline(w.log, NULL));
    world_restart(&w, false); /* and a restart needs no free byte */
    w.faulty.fail_mkdir = FLASHQ_ERR_NO_SPACE;
    check_all(&w, 0, end, -1);
    r = FQ_RESERVE_STARVED;
    for (int i = 0; i < 10 && r == FQ_RESERVE_STARVED; i++) {
        r = fq_log_reserve(w.log, 4000, end, &err);
        (void)fq_store_step(w.store, i);
    }
    cr_assert_eq(r, FLASHQ_ERR_NO_SPACE, "%d", r);
    w.faulty.fail_create = w.faulty.fail_mkdir = 0; /* somebody made room */
    (void)fq_store_step(w.store, 5000000);
    cr_assert_eq(fq_log_reserve(w.log, 4000, end, &err), 0);
    fq_log_abort_batch(w.log);
    append_many(&w, 20);
    check_all(&w, 0, end + 60, -1);
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

Test(log, trimming_makes_room_when_there_is_no_space)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    struct fq_err err;
    world_start_faulty(&w);
    append_many(&w, 60);
    log_maker_keep_house(w.store);
    w.faulty.fail_create = FLASHQ_ERR_NO_SPACE;
    int r = 0;
    while (r == 0) {
        size_t length = log_maker_batch(batch, fq_log_end(w.log), 0, 3, 1000, 7);
        r = log_maker_append(w.store, w.log, batch, length);
    }
    cr_assert_eq(r, FLASHQ_ERR_NO_SPACE);
    cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    cr_assert_eq(fq_log_trim(w.log, fq_log_end(w.log), &err), 0);
    log_maker_keep_house(w.store);
    append_many(&w, 1);
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

Test(log, a_failed_sync_is_final_and_nothing_is_called_durable)
{
    struct world w;
    struct fq_err err;
    struct fq_log_place place;
    world_start_faulty(&w);
    append_many(&w, 2);
    append(&w, 3, 1000);
    w.faulty.fail_sync = FLASHQ_ERR_IO;
    cr_assert_eq(fq_log_publish(w.log), 0);
    cr_assert_eq(fq_store_flush_step(w.store), 1);
    w.faulty.fail_sync = 0;
    cr_assert_eq(fq_log_durable_end(w.log), 6);
    cr_assert(fq_log_is_offline(w.log, &err));
    cr_assert_not_null(strstr(err.text, "sync"), "%s", err.text);
    cr_assert_eq(fq_log_reserve(w.log, 100, 9, &err), FLASHQ_ERR_OFFLINE);
    cr_assert_eq(fq_log_trim(w.log, 3, &err), FLASHQ_ERR_OFFLINE);
    (void)fq_store_flush_step(w.store);
    cr_assert_eq(fq_log_durable_end(w.log), 6, "no second try makes it durable");
    cr_assert_eq(fq_log_find(w.log, 0, &place), 0, "reads go on");
    world_restart(&w, true);
    cr_assert_not(fq_log_is_offline(w.log, NULL));
    append_many(&w, 1);
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

struct two_logs {
    struct world *w;
    int syncs, known; /* durable logs that were made known so far */
};

static void on_progress(void *context)
{
    ((struct two_logs *)context)->known++;
}

static void at_sync(void *context)
{
    struct two_logs *two = context;
    cr_assert_eq(two->w->faulty.begun, 2, "both files are on their way before one is waited for");
    cr_assert_eq(two->known, two->syncs, "what is durable is known before the next is waited for");
    two->syncs++;
}

Test(log, files_are_synced_together_and_each_is_known_at_once)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    struct fq_err err;
    struct fq_log *other;
    struct two_logs two = {.w = &w};
    const struct fq_log_params params = {
        .topic_id = topic_id, .topic = "orders", .partition = 1, .segment_bytes = 64u << 10};
    world_start_faulty(&w);
    cr_assert_eq(fq_log_open(w.store, &params, NULL, NULL, &other, &err), 0, "%s", err.text);
    append(&w, 3, 100);
    size_t length = log_maker_batch(batch, 0, 0, 3, 100, 7);
    cr_assert_eq(log_maker_append(w.store, other, batch, length), 0);
    cr_assert_eq(fq_log_publish(w.log), 0);
    cr_assert_eq(fq_log_publish(other), 0);
    fq_store_on_progress(w.store, on_progress, &two);
    w.faulty.on_sync = at_sync;
    w.faulty.context = &two;
    cr_assert_eq(fq_store_flush_step(w.store), 2);
    w.faulty.on_sync = NULL;
    fq_store_on_progress(w.store, NULL, NULL);
    cr_assert_eq(two.known, 2);
    cr_assert_eq(fq_log_durable_end(w.log), 3);
    cr_assert_eq(fq_log_durable_end(other), 3);
    fq_log_close(other, true);
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

static void *trim_to_3(void *context)
{
    struct world *w = context;
    struct fq_err err;
    (void)fq_log_trim(w->log, 3, &err);
    return NULL;
}

/* The kernel tells of a failed write-back once. Here the thread that trims is told, and is slow to
 * act on it; the flusher, which syncs the same file meanwhile, is told that all is well. */
Test(log, an_error_told_to_another_thread_makes_nothing_durable)
{
    struct world w;
    pthread_t trimmer;
    world_start_faulty(&w);
    append_many(&w, 2);
    append(&w, 3, 1000);
    cr_assert_eq(fq_log_publish(w.log), 0); /* queued for the flusher */
    w.faulty.fail_sync_slowly = FLASHQ_ERR_IO;
    cr_assert_eq(pthread_create(&trimmer, NULL, trim_to_3, &w), 0);
    while (atomic_load(&w.faulty.slow_syncs) == 0) {
        (void)usleep(1000);
    }
    (void)fq_store_flush_step(w.store);
    cr_assert_eq(fq_log_durable_end(w.log), 6);
    cr_assert_eq(pthread_join(trimmer, NULL), 0);
    cr_assert(fq_log_is_offline(w.log, NULL));
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

Test(log, a_failed_write_is_final)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct world w;
    world_start_faulty(&w);
    append_many(&w, 2);
    w.faulty.fail_write = FLASHQ_ERR_IO;
    size_t length = log_maker_batch(batch, 6, 0, 3, 1000, 7);
    cr_assert_eq(log_maker_append(w.store, w.log, batch, length), FLASHQ_ERR_IO);
    w.faulty.fail_write = 0;
    cr_assert_eq(log_maker_append(w.store, w.log, batch, length), FLASHQ_ERR_OFFLINE);
    cr_assert_eq(fq_log_end(w.log), 6);
    world_end(&w);
    persist_faulty_fini(&w.faulty);
}

Test(log, sidecars_come_back_and_go_with_their_segment)
{
    struct world w;
    struct fq_err err;
    char folder[4300], path[4400];
    void *bytes;
    size_t length;
    world_start(&w, FQ_FLUSH_SYNC);
    append_many(&w, 20);
    struct fq_segment *first = fq_log_segment_first(w.log);
    cr_assert_eq(fq_log_read_sidecar(w.log, first, "index", &bytes, &length), FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(fq_log_write_sidecar(w.log, first, "index", "abc", 3), 0);
    log_maker_keep_house(w.store);
    cr_assert_eq(fq_log_read_sidecar(w.log, first, "index", &bytes, &length), 0);
    cr_assert_eq(length, 3);
    cr_assert_eq(memcmp(bytes, "abc", 3), 0);
    free(bytes);
    folder_of(&w, folder);
    (void)snprintf(path, sizeof path, "%s/%020d.index", folder, 0);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_eq(fq_log_trim(w.log, 60, &err), 0);
    log_maker_keep_house(w.store);
    cr_assert_neq(access(path, F_OK), 0);
    world_end(&w);
}

/* A partition costs nothing until its first append. */
Test(log, an_empty_log_has_no_file)
{
    struct world w;
    char folder[4300];
    world_start(&w, FQ_FLUSH_SYNC);
    log_maker_keep_house(w.store);
    folder_of(&w, folder);
    cr_assert_neq(access(folder, F_OK), 0);
    world_restart(&w, true);
    cr_assert_eq(fq_log_end(w.log), 0);
    world_end(&w);
}

static bool is_zero(const uint8_t *bytes, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* What a peer leaves in lent memory is gone when it is taken back, and after a kill -9. */
Test(log, lent_memory_comes_in_time_and_comes_back_clean)
{
    struct world w;
    struct fq_err err;
    struct fq_log_loan rest, next;
    world_start(&w, FQ_FLUSH_PMEM);
    cr_assert_eq(fq_log_lend(w.log, &rest, &err), FQ_RESERVE_STARVED, "no segment yet, no waiting");
    log_maker_keep_house(w.store);
    cr_assert_eq(fq_log_lend(w.log, &rest, &err), 0, "%s", err.text);
    cr_assert_eq(rest.position, 0);
    cr_assert_eq(rest.bytes, fq_segment_capacity(rest.segment));
    cr_assert_eq(fq_log_lend_next(w.log, &next, &err), FQ_RESERVE_STARVED);
    cr_assert_eq(fq_log_lend_next(w.log, &next, &err), FQ_RESERVE_STARVED, "asked for once");
    fq_log_take_back(w.log, 0, 0);
    append_many(&w, 2); /* staged ones go on where it ends */
    cr_assert_eq(fq_log_lend(w.log, &rest, &err), 0);
    log_maker_keep_house(w.store);
    cr_assert_eq(fq_log_lend_next(w.log, &next, &err), 0, "%s", err.text);
    cr_assert_eq(fq_log_truncate(w.log, 0, &err), FLASHQ_ERR_BUSY, "not under a producer's hands");
    for (int round = 0; round < 2; round++) {
        uint8_t *bytes = (uint8_t *)(uintptr_t)fq_segment_data(rest.segment);
        uint8_t *next_bytes = (uint8_t *)(uintptr_t)fq_segment_data(next.segment);
        int64_t end = fq_log_end(w.log);
        memset(bytes + rest.position, 0xab, 500);
        memset(next_bytes, 0xcd, 700);
        if (round == 0) {
            fq_log_take_back(w.log, rest.position + 500, 700);
            cr_assert(is_zero(bytes, rest.position, rest.position + rest.bytes));
            cr_assert(is_zero(next_bytes, 0, next.bytes));
        } else {
            world_restart(&w, false);
            cr_assert_eq(fq_log_end(w.log), end);
            cr_assert_eq(fq_log_damage_count(w.log), 0);
        }
        check_all(&w, 0, end, -1);
        cr_assert_eq(fq_log_lend(w.log, &rest, &err), 0);
        log_maker_keep_house(w.store);
        int r = fq_log_lend_next(w.log, &next, &err);
        log_maker_keep_house(w.store);
        r = r == FQ_RESERVE_STARVED ? fq_log_lend_next(w.log, &next, &err) : r;
        cr_assert_eq(r, 0);
        cr_assert(
            is_zero(fq_segment_data(rest.segment), rest.position, rest.position + rest.bytes));
        cr_assert(is_zero(fq_segment_data(next.segment), 0, next.bytes));
    }
    fq_log_take_back(w.log, 0, 0);
    append_many(&w, 4);
    world_restart(&w, true);
    world_end(&w);
}

Test(log, a_disk_lends_nothing)
{
    struct world w;
    struct fq_err err;
    struct fq_log_loan rest;
    world_start(&w, FQ_FLUSH_SYNC);
    cr_assert_eq(fq_log_may_lend(w.log, &err), FLASHQ_ERR_UNSUPPORTED);
    cr_assert_eq(fq_log_lend(w.log, &rest, &err), FLASHQ_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "pmem"), "%s", err.text);
    world_end(&w);
}
