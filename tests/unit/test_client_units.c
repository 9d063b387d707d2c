/* SPDX-License-Identifier: Apache-2.0 */
/* The client's small parts: the table of keys, the map of numbers, memory, policy, reports. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "client/idmap.h"
#include "client/journal.h"
#include "flashq/flashq.h"
#include "producer/pool.h"
#include "producer/reports.h"

/* ---- configuration -------------------------------------------------------------------------- */

Test(config, kafka_names_mean_the_same)
{
    char text[256];
    flashq_config *config = flashq_config_new();
    static const char *const pairs[][4] = {
        {"bootstrap.servers", "h:1", "brokers", "h:1"},
        {"batch.size", "65536", "batch.max.bytes", "64KiB"},
        {"acks", "-1", "acks", "all"},
        {"acks", "1", "acks", "leader"},
        {"auto.offset.reset", "earliest", "auto.offset.reset", "start"},
        {"linger.ms", "5", "linger.ms", "5ms"},
        {"compression.type", "zstd", "compression.type", "zstd"},
        {"enable.idempotence", "true", "enable.idempotence", "true"},
        {"buffer.memory", "1048576", "queue.bytes", "1MiB"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_assert_eq(flashq_config_set(config, pairs[i][0], pairs[i][1], text, sizeof text), 0, "%s",
                     text);
        cr_assert_str_eq(flashq_config_get(config, pairs[i][2]), pairs[i][3]);
    }
    flashq_config_free(config);
}

Test(config, a_misspelt_key_gets_a_suggestion_and_a_bad_value_its_limits)
{
    char text[256];
    flashq_config *config = flashq_config_new();
    cr_assert_eq(flashq_config_set(config, "lingr.ms", "1", text, sizeof text), FLASHQ_ERR_CONFIG);
    cr_assert(strstr(text, "did you mean \"linger.ms\""), "%s", text);
    cr_assert_eq(flashq_config_set(config, "max.in.flight", "65", text, sizeof text),
                 FLASHQ_ERR_CONFIG);
    cr_assert(strstr(text, "64") && strstr(text, "max.in.flight"), "%s", text);
    cr_assert_str_eq(flashq_config_get(config, "max.in.flight"), "32", "unchanged");
    cr_assert_null(flashq_config_get(config, "nonsense"));
    flashq_config_free(config);
}

Test(config, every_key_describes_itself)
{
    const char *key, *value, *help;
    flashq_config *config = flashq_config_new();
    size_t count = 0;
    while (flashq_config_describe(count, &key, &value, &help) == 0) {
        char text[256];
        cr_assert_gt(strlen(help), 10, "%s", key);
        cr_assert_not_null(flashq_config_get(config, key));
        cr_assert_eq(flashq_config_set(config, key, value ? value : "", text, sizeof text), 0, "%s", text);
        count++;
    }
    cr_assert_gt(count, 20);
    flashq_config_free(config);
}

/* case 42: NULL never crashes. */
Test(config, null_is_refused_everywhere)
{
    char text[64];
    flashq_client *client = NULL;
    flashq_report report;
    const flashq_message *message;
    enum flashq_mode mode;
    flashq_config_free(NULL);
    cr_assert_eq(flashq_config_set(NULL, "acks", "all", text, sizeof text), FLASHQ_ERR_INVALID);
    cr_assert_null(flashq_config_get(NULL, "acks"));
    cr_assert_eq(flashq_client_open(NULL, NULL, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_client_close(NULL, 0), 0);
    cr_assert_eq(flashq_client_wait(NULL, 0, text, sizeof text), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_client_fd(NULL), -1);
    cr_assert_eq(flashq_client_do_work(NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_producer_open(NULL, "t", 0, NULL, text, sizeof text), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_producer_close(NULL, 0, NULL), 0);
    cr_assert_eq(flashq_send(NULL, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_send_sync(NULL, NULL, 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_flush(NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_producer_poll(NULL, &report, 1, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_producer_get_stats(NULL, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_producer_partitions(NULL), 0);
    cr_assert_eq(flashq_consumer_open(NULL, NULL, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_consumer_close(NULL, 0), 0);
    cr_assert_eq(flashq_consumer_assign(NULL, "t", 0, 0, 0, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_consumer_poll(NULL, &message, 1, 0), FLASHQ_ERR_INVALID);
    cr_assert_null(flashq_message_ref(NULL));
    flashq_message_unref(NULL);
    cr_assert_eq(flashq_message_header(NULL, 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_seek_offset(NULL, "t", 0, 0, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_seek_time(NULL, "t", 0, 0, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_pause(NULL, "t", 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_set_mode(NULL, "t", 0, FLASHQ_MODE_PUSH), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_mode(NULL, "t", 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_mode(NULL, "t", 0, &mode), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_position(NULL, "t", 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_lag(NULL, "t", 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_topic_list(NULL, 0, NULL, NULL, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_topic_create(NULL, NULL, 1, 1, NULL, 0, 0, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_topic_delete(client, "t", 0, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_topic_trim(NULL, "t", 0, 0, 0, NULL, NULL, 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(flashq_cluster_counters(NULL, 0, NULL, NULL, NULL, 0), FLASHQ_ERR_INVALID);
    flashq_free(NULL);
}

/* ---- the map of numbers ----------------------------------------------------------------------- */

Test(idmap, agrees_with_an_array)
{
    enum { IDS = 300, STEPS = 20000 };
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    struct fq_idmap map = {0};
    char things[IDS];
    bool is_in[IDS] = {false};
    (void)printf("# idmap seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    for (int step = 0; step < STEPS; step++) {
        size_t i = (size_t)fq_prng_below(&prng, IDS);
        uint32_t id = (uint32_t)(i * 0x01000193u); /* spread, and with collisions in the low bits */
        if (fq_prng_below(&prng, 2) == 0) {
            cr_assert_eq(fq_idmap_set(&map, id, &things[i]), 0);
            is_in[i] = true;
        } else {
            fq_idmap_remove(&map, id, &map); /* not what it stands for */
            fq_idmap_remove(&map, id, &things[i]);
            is_in[i] = false;
        }
        size_t other = (size_t)fq_prng_below(&prng, IDS);
        cr_assert_eq(fq_idmap_get(&map, (uint32_t)(other * 0x01000193u)),
                     is_in[other] ? &things[other] : NULL);
    }
    fq_idmap_clear(&map);
    cr_assert_null(fq_idmap_get(&map, 0));
    fq_idmap_fini(&map);
}

/* ---- memory --------------------------------------------------------------------------------- */

Test(pool, blocks_never_overlap_and_all_come_back)
{
    enum { BLOCKS = 64, STEPS = 5000 };
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    struct fq_pool pool;
    struct fq_block blocks[BLOCKS] = {0};
    (void)printf("# pool seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    fq_pool_init(&pool, (size_t)8 << 20);
    for (int step = 0; step < STEPS; step++) {
        struct fq_block *block = &blocks[fq_prng_below(&prng, BLOCKS)];
        if (block->chunk) {
            for (size_t at = 0; at < block->bytes; at += FQ_POOL_BLOCK_MIN) {
                cr_assert_eq(block->data[at + 64], (uint8_t)(block - blocks), "somebody wrote into it");
            }
            fq_pool_free(&pool, block);
            continue;
        }
        size_t bytes = (size_t)1 << fq_prng_below(&prng, 22);
        int code = fq_pool_alloc(&pool, bytes, block);
        cr_assert(code == 0 || code == FLASHQ_ERR_AGAIN);
        cr_assert_leq(pool.used_bytes, (size_t)8 << 20);
        if (code == 0) {
            cr_assert_geq(block->bytes, bytes);
            for (size_t at = 0; at < block->bytes; at += FQ_POOL_BLOCK_MIN) {
                block->data[at + 64] = (uint8_t)(block - blocks);
            }
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        fq_pool_free(&pool, &blocks[i]);
    }
    cr_assert_eq(pool.used_bytes, 0);
    struct fq_block whole;
    cr_assert_eq(fq_pool_alloc(&pool, (size_t)4 << 20, &whole), 0, "the buddies found each other");
    fq_pool_free(&pool, &whole);
    fq_pool_fini(&pool);
}

/* A record of more than a chunk finds room also after the pool has grown with small ones. */
Test(pool, room_that_small_blocks_took_serves_a_large_one_later)
{
    struct fq_pool pool;
    struct fq_block small[2], large, more;
    fq_pool_init(&pool, (size_t)16 << 20);
    for (size_t i = 0; i < 2; i++) { /* 4 + 4 MiB of chunks, 8 left */
        cr_assert_eq(fq_pool_alloc(&pool, (size_t)4 << 20, &small[i]), 0);
    }
    cr_assert_eq(fq_pool_alloc(&pool, (size_t)8 << 20, &large), 0);
    cr_assert_eq(fq_pool_alloc(&pool, 1, &more), FLASHQ_ERR_AGAIN, "the limit holds");
    fq_pool_free(&pool, &large);
    fq_pool_free(&pool, &small[0]);
    fq_pool_free(&pool, &small[1]);
    cr_assert_eq(fq_pool_alloc(&pool, (size_t)16 << 20, &large), 0, "all of it, in one block");
    cr_assert_eq(pool.grown_bytes, (size_t)16 << 20);
    cr_assert_eq(fq_pool_alloc(&pool, 1, &more), FLASHQ_ERR_AGAIN);
    fq_pool_free(&pool, &large);
    cr_assert_eq(fq_pool_alloc(&pool, 1, &more), 0);
    fq_pool_free(&pool, &more);
    fq_pool_fini(&pool);
}

/* ---- reports -------------------------------------------------------------------------------- */

/* case 40 */
Test(reports, the_oldest_are_dropped_when_nobody_polls_and_that_is_counted)
{
    struct fq_reports reports;
    flashq_report out[8];
    fq_reports_init(&reports, 100);
    for (int64_t i = 0; i < 250; i++) {
        fq_reports_push(&reports, &(flashq_report){.offset = i});
    }
    cr_assert_eq(reports.dropped, 150);
    for (int64_t next = 150; next < 250;) {
        size_t count = fq_reports_pop(&reports, out, 8);
        cr_assert_gt(count, 0);
        for (size_t i = 0; i < count; i++) {
            cr_assert_eq(out[i].offset, next++);
        }
    }
    cr_assert_eq(fq_reports_pop(&reports, out, 8), 0);
    fq_reports_fini(&reports);
}

/* ---- what there is to tell ---------------------------------------------------------------------- */

Test(journal, keeps_the_newest_of_its_level_and_counts_what_it_drops)
{
    struct fq_journal journal = {.level = FLASHQ_LOG_WARN};
    static flashq_log_entry entries[FQ_JOURNAL_ENTRIES + 1];
    fq_journal_add(&journal, FLASHQ_LOG_INFO, "not wanted");
    cr_assert_eq(fq_journal_take(&journal, entries, 1), 0);
    cr_assert_null(journal.items, "what is not wanted costs no memory");
    for (int i = 0; i < FQ_JOURNAL_ENTRIES + 5; i++) {
        fq_journal_add(&journal, i % 2 ? FLASHQ_LOG_WARN : FLASHQ_LOG_ERROR, "entry %d", i);
    }
    cr_assert_eq(fq_journal_take(&journal, entries, 1), 1);
    cr_assert_str_eq(entries[0].text, "entry 5");
    cr_assert_eq(entries[0].dropped, 5);
    cr_assert_eq(entries[0].level, FLASHQ_LOG_WARN);
    cr_assert_eq(entries[0].struct_bytes, sizeof entries[0]);
    cr_assert_eq(fq_journal_take(&journal, entries, FQ_JOURNAL_ENTRIES + 1), FQ_JOURNAL_ENTRIES - 1);
    cr_assert_str_eq(entries[0].text, "entry 6");
    cr_assert_eq(entries[0].dropped, 0, "told once");
    fq_journal_add(&journal, FLASHQ_LOG_ERROR, "%0600d", 7);
    cr_assert_eq(fq_journal_take(&journal, entries, 9), 1);
    cr_assert_eq(strlen(entries[0].text), sizeof entries[0].text - 1, "cut, and terminated");
    fq_journal_add(&journal, FLASHQ_LOG_ERROR, "broker: %s", "a\nb\r\x1b[2Jc\x7f \xc3\xa9");
    cr_assert_eq(fq_journal_take(&journal, entries, 9), 1);
    cr_assert_str_eq(entries[0].text, "broker: a?b??[2Jc? \xc3\xa9", "one line, whatever a broker says");
    fq_journal_fini(&journal);
}
