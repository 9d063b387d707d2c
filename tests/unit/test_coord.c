/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded coordinator on a real store and the in-memory twin of meta.pool: what each of the
 * catalogue's homes restores when another is lost, damaged or one step behind.
 */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "coord/coord.h"
#include "storage/meta.h"
#include "storage/store.h"

static char dir[64], data[80];
static struct fq_store *store;
static struct fq_meta *meta;
static struct fq_coord *coord;
static struct fq_err err;

static void open_store(void)
{
    struct fq_store_params params = {.data_dir = data,
                                     .flush = FQ_FLUSH_PMEM,
                                     .shards_count = 1,
                                     .segment_bytes_max = 2 << 20,
                                     .batch_bytes_max = 1 << 20};
    cr_assert_eq(fq_store_open(&params, &store, &err), 0, "%s", err.text);
}

static void open_coord(void)
{
    struct fq_embedded_params params = {.meta = meta, .store = store, .shards_count = 4};
    cr_assert_eq(fq_coord_open_embedded(&params, &coord, &err), 0, "%s", err.text);
}

/* Everything but what a disk keeps; meta is kept unless it is to be lost. */
static void reopen(bool is_meta_lost)
{
    coord->ops->close(coord);
    for (int i = 0; i < 100 && fq_store_step(store, fq_mono_us()) > 0; i++) {
    }
    fq_store_close(store, true);
    if (is_meta_lost) {
        meta->ops->close(meta);
        cr_assert_geq(fq_meta_open_memory(&meta), 0);
    }
    open_store();
    open_coord();
}

static void begin(void)
{
    (void)snprintf(dir, sizeof dir, "/dev/shm/flashq-coord-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void)snprintf(data, sizeof data, "%s/data", dir);
    cr_assert_geq(fq_meta_open_memory(&meta), 0);
    open_store();
    open_coord();
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void end(void)
{
    coord->ops->close(coord);
    fq_store_close(store, true);
    meta->ops->close(meta);
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct fq_topic *create(const char *name, uint32_t partitions)
{
    struct fq_topic *topic;
    struct fq_topic_spec spec = {
        .name = name, .partitions = partitions, .replicas = 1, .now_ms = 5};
    struct fq_topic_config broker;
    fq_conf_defaults(&fq_topic_config_table, &broker);
    spec.settings.values = broker;
    cr_assert_eq(fq_topic_settings_set(&spec.settings, &broker, "retention.bytes", "1GiB", &err),
                 0);
    cr_assert_eq(coord->ops->topic_create(coord, &spec, &topic, &err), 0, "%s", err.text);
    return topic;
}

static void expect_topic(const char *name, const struct fq_uuid *id, uint32_t partitions)
{
    struct fq_topic *topic = coord->ops->find(coord, name);
    cr_assert(topic, "%s", name);
    cr_assert(fq_uuid_equal(&topic->id, id));
    cr_assert_eq(topic->partitions, partitions);
    cr_assert_eq(topic->settings.values.retention_bytes, 1 << 30);
    cr_assert_neq(topic->settings.set_mask, 0);
}

Test(coord, topics_are_found_in_order_of_their_names, .init = begin, .fini = end)
{
    static const char *const names[] = {"m", "a", "z", "b-", "b.", "b_"};
    static const char *const sorted[] = {"a", "b-", "b.", "b_", "m", "z"};
    for (size_t i = 0; i < 6; i++) {
        (void)create(names[i], 1);
    }
    const char *name = "";
    for (size_t i = 0; i < 6; i++) {
        struct fq_topic *topic = coord->ops->next(coord, name);
        cr_assert_str_eq(topic->name, sorted[i]);
        name = topic->name;
    }
    cr_assert(!coord->ops->next(coord, name));
    cr_assert_str_eq(coord->ops->next(coord, "c")->name, "m",
                     "also after a name that is not there");
}

Test(coord, partitions_go_round_the_shards, .init = begin, .fini = end)
{
    unsigned per_shard[4] = {0};
    for (int i = 0; i < 7; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%d", i);
        struct fq_topic *topic = create(name, 3);
        for (uint32_t p = 0; p < 3; p++) {
            per_shard[fq_topic_shard(topic, p, 4)]++;
        }
    }
    for (int i = 0; i < 4; i++) { /* 21 over 4 */
        cr_assert(per_shard[i] == 5 || per_shard[i] == 6, "shard %d has %u", i, per_shard[i]);
    }
}

/* case 21 */
Test(coord, each_home_restores_the_other, .init = begin, .fini = end)
{
    struct fq_uuid a = create("a", 3)->id, b = create("b", 1)->id;
    reopen(false);
    expect_topic("a", &a, 3);
    reopen(true); /* meta.pool is lost: the files tell */
    expect_topic("a", &a, 3);
    expect_topic("b", &b, 1);
    reopen(false); /* and it was told again */
    expect_topic("b", &b, 1);

    cr_assert_eq(fq_store_write_file(store, "a", &a, "topic", "damaged", 7, &err), 0);
    reopen(false); /* the file is lost: meta.pool tells */
    expect_topic("a", &a, 3);
    reopen(true); /* and it was written again */
    expect_topic("a", &a, 3);
}

Test(coord, with_both_homes_lost_the_folder_still_tells_name_and_id, .init = begin, .fini = end)
{
    struct fq_uuid a = create("a", 3)->id;
    cr_assert_eq(fq_store_write_file(store, "a", &a, "topic", "damaged", 7, &err), 0);
    reopen(true);
    struct fq_topic *topic = coord->ops->find(coord, "a");
    cr_assert(topic);
    cr_assert(fq_uuid_equal(&topic->id, &a));
    cr_assert_geq(topic->partitions, 1);
}

Test(coord, changes_are_kept_in_both_homes, .init = begin, .fini = end)
{
    struct fq_topic *topic = create("a", 3);
    struct fq_uuid a = topic->id;
    cr_assert_eq(coord->ops->partitions_add(coord, topic, 3, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(coord->ops->partitions_add(coord, topic, 5, &err), 0);
    cr_assert_eq(coord->ops->partitions_add(coord, topic, FQ_LIMIT_PARTITIONS_PER_TOPIC + 1, &err),
                 FLASHQ_ERR_LIMIT);
    reopen(false);
    expect_topic("a", &a, 5);
    reopen(true);
    expect_topic("a", &a, 5);
}

Test(coord, a_deletion_cut_short_goes_on_at_the_next_start, .init = begin, .fini = end)
{
    struct fq_topic *topic = create("a", 3), *dying;
    struct fq_uuid a = topic->id;
    (void)create("b", 1);
    cr_assert_eq(coord->ops->topic_delete(coord, topic, &err), 0);
    cr_assert(!coord->ops->find(coord, "a"));
    struct fq_uuid again = create("a", 1)->id; /* its name is free at once */
    reopen(false);
    expect_topic("a", &again, 1);
    cr_assert_eq(coord->ops->topics_count(coord), 2);
    dying = coord->ops->deleting(coord, 0);
    cr_assert(dying, "still to be finished");
    cr_assert(fq_uuid_equal(&dying->id, &a));
    cr_assert_eq(coord->ops->topic_forget(coord, dying, &err), 0, "%s", err.text);
    cr_assert(!coord->ops->deleting(coord, 0));
    reopen(false);
    cr_assert(!coord->ops->deleting(coord, 0));
    reopen(true); /* nor do the files bring it back */
    cr_assert(!coord->ops->deleting(coord, 0));
    cr_assert_eq(coord->ops->topics_count(coord), 2);
    expect_topic("a", &again, 1);
}

Test(coord, what_cannot_be_created_leaves_nothing, .init = begin, .fini = end)
{
    struct fq_topic *topic;
    struct fq_topic_spec spec = {.name = "a", .partitions = 1, .replicas = 1};
    fq_conf_defaults(&fq_topic_config_table, &spec.settings.values);
    (void)create("a", 1);
    cr_assert_eq(coord->ops->topic_create(coord, &spec, &topic, &err), FLASHQ_ERR_EXISTS);
    spec.name = "b";
    spec.replicas = 2;
    cr_assert_eq(coord->ops->topic_create(coord, &spec, &topic, &err), FLASHQ_ERR_UNSUPPORTED);
    spec.replicas = 1;
    spec.partitions = FQ_LIMIT_PARTITIONS_PER_TOPIC + 1;
    cr_assert_eq(coord->ops->topic_create(coord, &spec, &topic, &err), FLASHQ_ERR_LIMIT);
    cr_assert(strstr(err.text, "10000"), "%s", err.text);
    reopen(false);
    cr_assert_eq(coord->ops->topics_count(coord), 1);
}

Test(coord, the_cluster_keeps_its_id, .init = begin, .fini = end)
{
    struct fq_uuid id = coord->ops->cluster_id(coord);
    reopen(false);
    struct fq_uuid same = coord->ops->cluster_id(coord);
    cr_assert(fq_uuid_equal(&id, &same));
}

/* ---- the text form -------------------------------------------------------------------------- */

Test(topic, no_flipped_bit_and_no_cut_is_taken_for_a_description)
{
    struct fq_topic topic = {.name = "events",
                             .id = fq_uuid_random(),
                             .partitions = 12,
                             .replicas = 1,
                             .first_shard = 3,
                             .created_ms = 1796000000000};
    struct fq_topic_config broker;
    struct fq_topic read;
    char text[FQ_TOPIC_TEXT_BYTES_MAX];
    fq_conf_defaults(&fq_topic_config_table, &broker);
    topic.settings.values = broker;
    cr_assert_eq(
        fq_topic_settings_set(&topic.settings, &broker, "timestamp.max.ahead", "off", &err), 0);
    size_t length = fq_topic_encode(&topic, text);
    cr_assert_eq(fq_topic_decode(text, length, &read, &err), 0, "%s", err.text);
    char again[FQ_TOPIC_TEXT_BYTES_MAX];
    cr_assert_eq(fq_topic_encode(&read, again), length);
    cr_assert_eq(memcmp(again, text, length), 0);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        cr_assert_eq(fq_topic_decode(text, length, &read, &err), FLASHQ_ERR_CORRUPT, "bit %zu",
                     bit);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++) {
        cr_assert_eq(fq_topic_decode(text, cut, &read, &err), FLASHQ_ERR_CORRUPT, "cut at %zu",
                     cut);
    }
}

Test(topic, the_broker_answers_where_the_topic_has_no_word_of_its_own)
{
    struct fq_topic_config broker, resolved;
    struct fq_topic_settings settings = {.set_mask = 0};
    fq_conf_defaults(&fq_topic_config_table, &broker);
    settings.values = broker;
    broker.retention_bytes = 77;
    broker.message_max_bytes = 4096;
    cr_assert_eq(fq_topic_settings_set(&settings, &broker, "segment.bytes", "2MiB", &err), 0);
    cr_assert_eq(fq_topic_settings_set(&settings, &broker, "message.max.bytes", "4097", &err),
                 FLASHQ_ERR_LIMIT);
    cr_assert(strstr(err.text, "4096"), "%s", err.text);
    cr_assert_eq(fq_topic_settings_set(&settings, &broker, "max.message.bytes", "2048", &err), 0);
    fq_topic_settings_resolve(&settings, &broker, &resolved);
    cr_assert_eq(resolved.segment_bytes, 2 << 20);
    cr_assert_eq(resolved.retention_bytes, 77);
    cr_assert_eq(resolved.message_max_bytes, 2048);
    cr_assert_eq(fq_topic_settings_set(&settings, &broker, "segment.bytes", "", &err), 0);
    fq_topic_settings_resolve(&settings, &broker, &resolved);
    cr_assert_eq(resolved.segment_bytes, 64 << 20, "an empty value resets");
    broker.message_max_bytes = 1024;
    fq_topic_settings_resolve(&settings, &broker, &resolved);
    cr_assert_eq(resolved.message_max_bytes, 1024, "never above the broker's");
}

Test(uuid, only_its_own_spelling_is_read)
{
    struct fq_uuid id = fq_uuid_random(), back;
    char text[FQ_UUID_TEXT_BYTES];
    cr_assert(fq_uuid_from_text(fq_uuid_to_text(&id, text), 36, &back));
    cr_assert(fq_uuid_equal(&id, &back));
    cr_assert_eq(text[14], '4');
    for (size_t i = 0; i < 36; i++) {
        char wrong = text[i] == '-' ? '0' : '-', kept = text[i];
        text[i] = wrong;
        cr_assert(!fq_uuid_from_text(text, 36, &back));
        text[i] = kept;
    }
    cr_assert(!fq_uuid_from_text(text, 35, &back));
}
