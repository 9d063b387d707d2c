/* SPDX-License-Identifier: Apache-2.0 */
/* A log in a store, in both flush modes: appended, rolled, reopened, trimmed, truncated, read. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

#include "log_maker.h"

struct world {
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
                                           .batch_bytes_max = 4096};
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
    size_t length = log_maker_batch(expected, header->base_offset, 0, header->records_count,
                                    value_bytes, 7);
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
