/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread: topics, metadata, counters, and what survives a restart. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw_client.h"

static struct test_broker t;
static struct raw_client c;
static struct fq_err err;

static void connect_client(void)
{
    raw_connect(&c, &t, FQ_TRANSPORT_TCP);
    raw_session(&c);
}

static void begin(void)
{
    test_broker_begin(&t);
    connect_client();
}

static void end(void)
{
    raw_close(&c);
    test_broker_end(&t);
}

static void restart(bool is_clean)
{
    if (is_clean) {
        test_broker_stop(&t);
    } else {
        test_broker_forget(&t);
    }
    RAW_UNTIL(&c, !c.conn);
    raw_close(&c);
    test_broker_start(&t);
    connect_client();
}

struct seen {
    unsigned brokers, topics, partitions, pages;
    int32_t last_topic_status;
    struct fq_broker_entry broker;
    struct fq_partition_entry last_partition;
    struct fq_uuid last_id;
};

/* All pages; an empty list of names asks for every topic. */
static struct seen metadata(const struct fq_str *names, size_t count)
{
    struct seen seen = {.brokers = 0};
    uint8_t out[8192], list[8192];
    char cursor[FQ_CURSOR_BYTES + 1] = "";
    size_t cursor_length = 0;
    do {
        struct fq_metadata body = {.cursor = fq_str_of(cursor, cursor_length)};
        struct fq_metadata_answer page;
        struct fq_metadata_item item;
        cr_assert_eq(fq_strings_list(list, sizeof list, names, count, &body.names), 0);
        const struct fq_msg *answer =
            raw_ask(&c, out, fq_encode_metadata(out, sizeof out, ++c.correlation, &body));
        cr_assert(answer);
        cr_assert_eq(answer->status, 0);
        cr_assert_eq(fq_decode_metadata_answer(answer, &page, &err), 0, "%s", err.text);
        uint32_t pending_total = 0;
        while (fq_metadata_next(&page.items, &item) == 1) {
            switch (item.kind) {
            case FQ_METADATA_BROKER:
                seen.brokers++;
                seen.broker = item.broker;
                break;
            case FQ_METADATA_TOPIC:
                seen.topics++;
                seen.last_topic_status = item.topic.status;
                seen.last_id = item.topic.id;
                pending_total = item.topic.partitions_total;
                break;
            case FQ_METADATA_PARTITION:
                cr_assert_lt(item.partition.index, pending_total);
                seen.partitions++;
                seen.last_partition = item.partition;
                break;
            }
        }
        seen.pages++;
        cr_assert(fq_str_copy(page.cursor, cursor, sizeof cursor));
        cursor_length = page.cursor.length;
    } while (cursor_length > 0);
    return seen;
}

static struct fq_str str(const char *text)
{
    return fq_str_of(text, strlen(text));
}

Test(admin, metadata_comes_in_pages_and_is_complete, .init = begin, .fini = end)
{
    cr_assert_eq(metadata(NULL, 0).topics, 0);
    for (int i = 0; i < 40; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "topic-%d", i);
        cr_assert_eq(raw_create_topic(&c, name, 100, NULL, 0, NULL, &err), 0, "%s", err.text);
    }
    struct seen all = metadata(NULL, 0);
    cr_assert_gt(all.pages, 1);
    cr_assert_eq(all.partitions, 4000);
    cr_assert_eq(all.topics, 40 + all.pages - 1, "a topic that goes on is named again");
    cr_assert_eq(all.brokers, 1);
    cr_assert_eq(all.broker.host.length, 0, "by default the address that the client used");
    cr_assert_neq(all.broker.port, 0);
    const struct fq_str names[] = {str("topic-3"), str("absent"), str("topic-9")};
    struct seen some = metadata(names, 3);
    cr_assert_eq(some.topics, 3);
    cr_assert_eq(some.partitions, 200);
}

/* case 46 */
Test(admin, asking_never_creates_a_topic, .init = begin, .fini = end)
{
    const struct fq_str name = str("absent");
    struct seen seen = metadata(&name, 1);
    cr_assert_eq(seen.last_topic_status, FLASHQ_ERR_NOT_FOUND);
    cr_assert_eq(metadata(NULL, 0).topics, 0);
}

/* TOPIC_CREATE as an encoder that checks nothing would write it: any bytes as the name. */
static int create_with_bytes(const char *name, size_t length)
{
    uint8_t good[256], out[1024];
    struct fq_topic_create create = {.name = str("x"), .partitions = 1};
    int64_t good_length = fq_encode_topic_create(good, sizeof good, ++c.correlation, &create);
    cr_assert_gt(good_length, 15);
    cr_assert(good[12] == 1 && good[14] == 'x', "the name comes first in the body");
    memcpy(out, good, 12);
    out[12] = (uint8_t)length;
    out[13] = (uint8_t)(length >> 8);
    memcpy(out + 14, name, length);
    memcpy(out + 14 + length, good + 15, (size_t)good_length - 15);
    const struct fq_msg *answer = raw_ask(&c, out, good_length - 1 + (int64_t)length);
    cr_assert(answer);
    return fq_msg_error(answer, &err);
}

/* case 45 */
Test(admin, names_that_look_alike_coexist_and_bad_ones_are_explained, .init = begin, .fini = end)
{
    char longest[251];
    memset(longest, 'n', sizeof longest - 1);
    longest[249] = '\0';
    const char *good[] = {"a.b", "a_b", "a-b", "A.b", "...", longest};
    for (size_t i = 0; i < 6; i++) {
        cr_assert_eq(raw_create_topic(&c, good[i], 1, NULL, 0, NULL, &err), 0, "%s: %s", good[i],
                     err.text);
    }
    longest[249] = 'n';
    longest[250] = '\0';
    cr_assert_eq(create_with_bytes("", 0), FLASHQ_ERR_INVALID);
    cr_assert_eq(create_with_bytes(".", 1), FLASHQ_ERR_INVALID);
    cr_assert_eq(create_with_bytes("..", 2), FLASHQ_ERR_INVALID);
    cr_assert_eq(create_with_bytes(longest, 250), FLASHQ_ERR_TOO_LARGE);
    cr_assert(strstr(err.text, "249"), "the limit is named: %s", err.text);
    cr_assert_eq(create_with_bytes("a/b", 3), FLASHQ_ERR_INVALID);
    cr_assert(strstr(err.text, "/"), "the offending byte is named: %s", err.text);
    cr_assert_eq(create_with_bytes("a\0b", 3), FLASHQ_ERR_INVALID);
    cr_assert(strstr(err.text, "00"), "the offending byte is named: %s", err.text);
    cr_assert_eq(create_with_bytes("\xd0\xb0", 2), FLASHQ_ERR_INVALID, "a Cyrillic a");
    cr_assert(strstr(err.text, "d0") || strstr(err.text, "D0"), "%s", err.text);
    cr_assert_eq(raw_create_topic(&c, "a.b", 1, NULL, 0, NULL, &err), FLASHQ_ERR_EXISTS);
    restart(true);
    cr_assert_eq(metadata(NULL, 0).topics, 6);
}

Test(admin, settings_are_checked_kept_and_changed_while_serving, .init = begin, .fini = end)
{
    struct fq_config_pair pair = {.key = str("retention.byte"), .value = str("1GiB")};
    cr_assert_eq(raw_create_topic(&c, "t", 1, &pair, 1, NULL, &err), FLASHQ_ERR_CONFIG);
    cr_assert(strstr(err.text, "did you mean \"retention.bytes\""), "%s", err.text);
    pair = (struct fq_config_pair){.key = str("append"), .value = str("direct")};
    cr_assert_eq(raw_create_topic(&c, "direct", 1, &pair, 1, NULL, &err), 0, "%s", err.text);
    pair = (struct fq_config_pair){.key = str("message.max.bytes"), .value = str("2MiB")};
    cr_assert_eq(raw_create_topic(&c, "t", 1, &pair, 1, NULL, &err), FLASHQ_ERR_LIMIT);
    pair = (struct fq_config_pair){.key = str("durability"), .value = str("memory")};
    cr_assert_eq(raw_create_topic(&c, "t", 1, &pair, 1, NULL, &err), 0, "%s", err.text);
    for (int round = 0; round < 2; round++) {
        uint8_t out[256];
        struct fq_topic_describe_answer described;
        struct fq_topic_name body = {.name = str("t")};
        unsigned found = 0;
        const struct fq_msg *answer =
            raw_ask(&c, out, fq_encode_topic_describe(out, sizeof out, ++c.correlation, &body));
        cr_assert_eq(answer->status, 0);
        cr_assert_eq(fq_decode_topic_describe_answer(answer, &described, &err), 0);
        while (fq_config_pairs_next(&described.configs, &pair) == 1) {
            if (fq_str_equal(pair.key, str("durability"))) {
                cr_assert(fq_str_equal(pair.value, str("memory")));
                cr_assert_eq(pair.source, 2);
                found++;
            } else if (fq_str_equal(pair.key, str("segment.bytes"))) {
                cr_assert(fq_str_equal(pair.value, str("2MiB")));
                cr_assert_eq(pair.source, 1, "the broker's configuration");
                found++;
            } else if (fq_str_equal(pair.key, str("timestamp.max.ahead"))) {
                cr_assert_eq(pair.source, 0);
                found++;
            }
        }
        cr_assert_eq(found, 3);
        restart(true);
    }
}

static int produce_one(const struct fq_uuid *topic, uint32_t partition, int32_t sequence)
{
    struct fq_producer_open_answer opened;
    if (!c.acks) {
        raw_ring(&c, 16);
    }
    int code = raw_producer_open(&c, topic, partition, 7, &opened, &err);
    if (code == 0) {
        raw_produce(&c, opened.slot, 7, sequence, 1, "v");
        code = raw_ack(&c).status;
    }
    return code;
}

Test(admin, partitions_are_added_and_then_used, .init = begin, .fini = end)
{
    struct fq_uuid topic;
    uint8_t out[256];
    cr_assert_eq(raw_create_topic(&c, "t", 2, NULL, 0, &topic, &err), 0);
    cr_assert_eq(produce_one(&topic, 4, 0), FLASHQ_ERR_NOT_FOUND);
    struct fq_partitions_add add = {.name = str("t"), .total = 5};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_partitions_add(out, sizeof out, ++c.correlation, &add));
    cr_assert_eq(answer->status, 0);
    cr_assert_eq(produce_one(&topic, 4, 0), 0);
    add.total = 5;
    answer = raw_ask(&c, out, fq_encode_partitions_add(out, sizeof out, ++c.correlation, &add));
    cr_assert_eq(answer->status, FLASHQ_ERR_INVALID, "their number can only grow");
    restart(true);
    struct seen seen = metadata(NULL, 0);
    cr_assert_eq(seen.partitions, 5);
    cr_assert_eq(seen.last_partition.end, 1);
}

/* cases 10, 19 */
Test(admin, what_was_acknowledged_is_there_after_any_end, .init = begin, .fini = end)
{
    struct fq_uuid topic;
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &topic, &err), 0);
    for (int32_t i = 0; i < 6; i++) {
        cr_assert_eq(produce_one(&topic, 0, i), 0, "%s", err.text);
        restart(i % 2 == 0);
        struct seen seen = metadata(NULL, 0);
        cr_assert_eq(seen.last_partition.end, i + 1);
        cr_assert_eq(memcmp(&seen.last_id, &topic, sizeof topic), 0);
    }
}

/* cases 21, 22 */
Test(admin, a_lost_meta_pool_is_rebuilt_from_the_topics_folders, .init = begin, .fini = end)
{
    struct fq_uuid topics[3];
    char path[512];
    struct fq_config_pair pair = {.key = str("retention.bytes"), .value = str("1GiB")};
    for (int i = 0; i < 3; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%d", i);
        cr_assert_eq(raw_create_topic(&c, name, 2, &pair, 1, &topics[i], &err), 0);
        cr_assert_eq(produce_one(&topics[i], 1, 0), 0, "%s", err.text);
    }
    test_broker_stop(&t);
    RAW_UNTIL(&c, !c.conn);
    raw_close(&c);
    (void)snprintf(path, sizeof path, "%s/data/meta.pool", t.dir);
    cr_assert_eq(truncate(path, 100), 0);
    test_broker_start(&t);
    connect_client();
    struct seen seen = metadata(NULL, 0);
    cr_assert_eq(seen.topics, 3);
    cr_assert_eq(seen.partitions, 6);
    cr_assert_eq(seen.last_partition.end, 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(produce_one(&topics[i], 1, 1), 0, "the same ids, and sequences known: %s",
                     err.text);
    }
}

Test(admin, a_deleted_topic_stays_deleted_and_its_name_is_free, .init = begin, .fini = end)
{
    struct fq_uuid first, second;
    cr_assert_eq(raw_create_topic(&c, "t", 2, NULL, 0, &first, &err), 0);
    cr_assert_eq(produce_one(&first, 0, 0), 0);
    cr_assert_eq(raw_delete_topic(&c, "t", &err), 0, "%s", err.text);
    cr_assert_eq(raw_delete_topic(&c, "t", &err), FLASHQ_ERR_NOT_FOUND);
    restart(false);
    cr_assert_eq(metadata(NULL, 0).topics, 0);
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &second, &err), 0, "%s", err.text);
    cr_assert_eq(metadata(NULL, 0).last_partition.end, 0);
}

Test(admin, two_shards_each_serve_their_own)
{
    struct fq_uuid topic;
    struct fq_producer_open_answer opened;
    test_broker_prepare(&t);
    t.options.shards = 2;
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM); /* the first in turn: shard 0 */
    raw_session(&c);
    raw_ring(&c, 16);
    cr_assert_eq(raw_create_topic(&c, "t", 4, NULL, 0, &topic, &err), 0);
    for (uint32_t i = 0; i < 4; i++) {
        int code = raw_producer_open(&c, &topic, i, 7, &opened, &err);
        cr_assert_eq(code, i % 2 == 0 ? 0 : FLASHQ_ERR_NOT_LEADER, "partition %u: %d", i, code);
    }
    cr_assert(strstr(err.text, "shard"), "%s", err.text);
    /* a request about a partition elsewhere is passed on */
    int64_t start;
    cr_assert_eq(raw_trim(&c, "t", 1, -1, &start, &err), 0, "%s", err.text);
    struct fq_partition_ref ref = {.topic = str("t"), .partition = 3};
    struct fq_partition_describe_answer described;
    uint8_t out[256];
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_partition_describe(out, sizeof out, ++c.correlation, &ref));
    cr_assert_eq(answer->status, 0);
    cr_assert_eq(fq_decode_partition_describe_answer(answer, &described, &err), 0);
    cr_assert_eq(described.shard, 1);
    end();
}

/* case 25 */
Test(admin, a_second_broker_on_the_same_directory_is_refused, .init = begin, .fini = end)
{
    struct fq_options options = t.options;
    struct fq_broker *second;
    (void)snprintf(options.listen_shm, sizeof options.listen_shm, "%s/s2", t.dir);
    cr_assert_eq(fq_broker_open(&options, fq_clock_system(), &second, &err), FLASHQ_ERR_BUSY);
    cr_assert(strstr(err.text, t.dir), "%s", err.text);
    options = t.options;
    (void)snprintf(options.data_dir, sizeof options.data_dir, "%s/data2", t.dir);
    cr_assert_eq(fq_broker_open(&options, fq_clock_system(), &second, &err), FLASHQ_ERR_EXISTS);
    cr_assert(strstr(err.text, "/s"), "%s", err.text);
}
