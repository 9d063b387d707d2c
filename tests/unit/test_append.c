/* SPDX-License-Identifier: Apache-2.0 */
/* What an append takes, what it refuses and with which words, and that a refusal changes nothing.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "partition_env.h"
#include "persist_recording.h"
#include "storage/persist.h"

#define PRODUCER INT64_C(4711)

static struct env env;

static void open_env(void)
{
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM,
                                        .message_max_bytes = 10000,
                                        .batch_max_bytes = 65536});
    env_producer(&env, PRODUCER);
}

static void close_env(void)
{
    env_close(&env);
}

TestSuite(append, .init = open_env, .fini = close_env);

static void fix_crc(uint64_t bytes)
{
    fq_store_be32(env.batch + FQ_BATCH_CRC,
                  fq_crc32c(0, env.batch + FQ_BATCH_ATTRIBUTES, bytes - FQ_BATCH_ATTRIBUTES));
}

/* One record at the current time. */
static uint64_t plain(int32_t sequence)
{
    struct env_record record = {env.wall_ms, "hello", 5};
    return env_batch(&env, PRODUCER, 0, sequence, &record, 1);
}

/* Expects env.batch to be refused, with `code`, `words` in the text, and nothing changed. */
static struct fq_append_result expect_refused_of(uint64_t available, int64_t producer,
                                                 int16_t epoch, int code, const char *words)
{
    struct fq_append_result result;
    struct fq_err err = {0};
    struct fq_partition_stats before, after;
    fq_partition_get_stats(env.partition, &before);
    int64_t end = fq_log_end(fq_partition_log(env.partition));
    int rc = env_append(&env, available, producer, epoch, &result, &err);
    cr_assert_eq(rc, code, "%s instead of %s: %s", fq_err_name(rc), fq_err_name(code), err.text);
    cr_assert_eq(err.code, code);
    cr_assert_not_null(strstr(err.text, words), "'%s' not in '%s'", words, err.text);
    cr_assert_eq(fq_log_end(fq_partition_log(env.partition)), end);
    fq_partition_get_stats(env.partition, &after);
    cr_assert_eq(after.refused, before.refused + 1);
    cr_assert_eq(after.batches, before.batches);
    return result;
}

static struct fq_append_result expect_refused(uint64_t available, int code, const char *words)
{
    return expect_refused_of(available, PRODUCER, 0, code, words);
}

static struct fq_append_result expect_taken(uint64_t bytes)
{
    struct fq_append_result result;
    struct fq_err err = {0};
    cr_assert_eq(env_append(&env, bytes, PRODUCER, 0, &result, &err), 0, "%s", err.text);
    cr_assert_eq(result.bytes, bytes);
    return result;
}

Test(append, stamps_offset_and_epoch_and_leaves_every_other_byte)
{
    uint64_t bytes = plain(0);
    uint8_t *sent = malloc(bytes);
    memcpy(sent, env.batch, bytes);
    struct fq_append_result result = expect_taken(bytes);
    cr_assert_eq(result.base_offset, 0);
    cr_assert_eq(result.end_offset, 1);
    cr_assert_not(result.duplicate);
    cr_assert_eq(expect_taken(plain(1)).base_offset, 1);

    struct fq_segment *segment = fq_log_segment_first(fq_partition_log(env.partition));
    const uint8_t *stored = fq_segment_data(segment) + bytes;
    plain(1);
    cr_assert_eq((int64_t)fq_load_be64(stored), 1);
    cr_assert_eq((int32_t)fq_load_be32(stored + FQ_BATCH_LEADER_EPOCH), 0);
    cr_assert_eq(memcmp(stored + 8, env.batch + 8, 4), 0);
    cr_assert_eq(memcmp(stored + 16, env.batch + 16, bytes - 16), 0);
    cr_assert(fq_batch_crc_ok(stored, bytes));
    free(sent);
}

Test(append, a_length_that_cannot_be_loses_the_ring_position)
{
    uint64_t bytes = plain(0);
    cr_assert_eq(expect_refused(60, FLASHQ_ERR_PROTOCOL, "60 bytes").bytes, 0);
    cr_assert_eq(expect_refused(0, FLASHQ_ERR_PROTOCOL, "0 bytes").bytes, 0);
    cr_assert_eq(expect_refused(bytes - 1, FLASHQ_ERR_PROTOCOL, "length").bytes, 0);
    static const int32_t lies[] = {0, -1, 48, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fq_store_be32(env.batch + FQ_BATCH_LENGTH, (uint32_t)lies[i]);
        cr_assert_eq(expect_refused(bytes, FLASHQ_ERR_PROTOCOL, "length").bytes, 0);
    }
    expect_taken(plain(0));
}

Test(append, every_flipped_bit_is_refused) /* nothing of a batch is believed that is not checked */
{
    struct env_record records[] = {{env.wall_ms, "ab", 2}, {env.wall_ms + 1, "", 0}};
    uint64_t bytes = env_batch(&env, PRODUCER, 0, 0, records, 2);
    for (uint64_t bit = 0; bit < bytes * 8; bit++) {
        struct fq_append_result result;
        struct fq_err err = {0};
        env.batch[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        int rc = env_append(&env, bytes, PRODUCER, 0, &result, &err);
        cr_assert_lt(rc, 0, "bit %llu", (unsigned long long)bit);
        cr_assert_gt(strlen(err.text), 10);
        env.batch[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    cr_assert_eq(fq_log_end(fq_partition_log(env.partition)), 0);
    cr_assert_eq(expect_taken(bytes).end_offset, 2, "whole again");
}

Test(append, a_wrong_checksum_is_corrupt_and_says_both)
{
    uint64_t bytes = plain(0);
    uint32_t right = fq_load_be32(env.batch + FQ_BATCH_CRC);
    char words[16];
    (void)snprintf(words, sizeof words, "%08x", right);
    fq_store_be32(env.batch + FQ_BATCH_CRC, right ^ 1u);
    cr_assert_eq(expect_refused(bytes, FLASHQ_ERR_CORRUPT, words).bytes, bytes);
}

Test(append, clients_may_not_say_what_only_brokers_say)
{
    uint64_t bytes = plain(0);
    fq_store_be64(env.batch + FQ_BATCH_BASE_OFFSET, 1);
    cr_assert_eq(expect_refused(bytes, FLASHQ_ERR_PROTOCOL, "base offset 1").bytes, bytes);
    plain(0);
    fq_store_be32(env.batch + FQ_BATCH_LEADER_EPOCH, 0);
    expect_refused(bytes, FLASHQ_ERR_PROTOCOL, "epoch 0");
    plain(0);
    env.batch[FQ_BATCH_MAGIC] = 1;
    expect_refused(bytes, FLASHQ_ERR_PROTOCOL, "");
    static const struct {
        uint16_t attributes;
        int code;
    } refused[] = {
        {0x01, FLASHQ_ERR_UNSUPPORTED}, {0x02, FLASHQ_ERR_UNSUPPORTED}, /* gzip, snappy */
        {0x08, FLASHQ_ERR_UNSUPPORTED}, {0x10, FLASHQ_ERR_UNSUPPORTED},
        {0x20, FLASHQ_ERR_UNSUPPORTED}, {0x40, FLASHQ_ERR_UNSUPPORTED},
        {0x05, FLASHQ_ERR_PROTOCOL},    {0x06, FLASHQ_ERR_PROTOCOL},
        {0x07, FLASHQ_ERR_PROTOCOL},    {0x80, FLASHQ_ERR_PROTOCOL},
        {0x8000, FLASHQ_ERR_PROTOCOL}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        plain(0);
        fq_store_be16(env.batch + FQ_BATCH_ATTRIBUTES, refused[i].attributes);
        fix_crc(bytes);
        expect_refused(bytes, refused[i].code, "");
    }
}

Test(append, counts_must_agree_with_each_other_and_with_the_records)
{
    uint64_t bytes = plain(0);
    struct {
        int32_t delta, count;
    } lies[] = {{0, 2},
                {1, 1},
                {1, 2},
                {-1, 0},
                {0, -1},
                {INT32_MAX, INT32_MIN},
                {INT32_MAX - 1, INT32_MAX}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fq_store_be32(env.batch + FQ_BATCH_LAST_OFFSET_DELTA, (uint32_t)lies[i].delta);
        fq_store_be32(env.batch + FQ_BATCH_RECORDS_COUNT, (uint32_t)lies[i].count);
        fix_crc(bytes);
        struct fq_append_result result;
        struct fq_err err;
        int rc = env_append(&env, bytes, PRODUCER, 0, &result, &err);
        cr_assert(rc == FLASHQ_ERR_PROTOCOL || rc == FLASHQ_ERR_LIMIT, "%zu: %d", i, rc);
        cr_assert_eq(result.bytes, bytes);
    }
    /* A compressed batch is not looked into: the limit on the count holds all the same. */
    plain(0);
    fq_store_be32(env.batch + FQ_BATCH_LAST_OFFSET_DELTA, FQ_LIMIT_BATCH_RECORDS);
    fq_store_be32(env.batch + FQ_BATCH_RECORDS_COUNT, FQ_LIMIT_BATCH_RECORDS + 1);
    fq_store_be16(env.batch + FQ_BATCH_ATTRIBUTES, FQ_CODEC_LZ4);
    fix_crc(bytes);
    expect_refused(bytes, FLASHQ_ERR_LIMIT, "1000001");
    plain(0);
    fq_store_be64(env.batch + FQ_BATCH_MAX_TIMESTAMP, (uint64_t)env.wall_ms + 1);
    fix_crc(bytes);
    expect_refused(bytes, FLASHQ_ERR_PROTOCOL, "");
}

Test(append, a_batch_belongs_to_the_producer_of_its_slot)
{
    uint64_t bytes = plain(0);
    expect_refused_of(bytes, PRODUCER + 1, 0, FLASHQ_ERR_PROTOCOL, "slot of producer 4712");
    expect_refused_of(bytes, PRODUCER, 1, FLASHQ_ERR_PROTOCOL, "epoch 1");
    expect_refused_of(bytes, -1, 0, FLASHQ_ERR_PROTOCOL, "producer -1");
    env_batch(&env, PRODUCER, 0, -1, &(struct env_record){env.wall_ms, "x", 1}, 1);
    expect_refused(bytes - 4, FLASHQ_ERR_PROTOCOL, "sequence -1");
    uint64_t other = env_batch(&env, 99, 0, 0, &(struct env_record){env.wall_ms, "x", 1}, 1);
    expect_refused_of(other, 99, 0, FLASHQ_ERR_PROTOCOL, "not open");
}

Test(append, without_a_producer_id_nothing_is_a_duplicate)
{
    struct fq_producer_opened opened;
    cr_assert_eq(fq_partition_producer_open(env.partition, -1, -1, -1, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, -1);
    uint64_t bytes = env_batch(&env, -1, -1, -1, &(struct env_record){env.wall_ms, "x", 1}, 1);
    struct fq_append_result result;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(env_append(&env, bytes, -1, -1, &result, NULL), 0);
        cr_assert_eq(result.base_offset, i);
        cr_assert_not(result.duplicate);
    }
    fq_partition_producer_close(env.partition, -1);
    cr_assert_eq(fq_partition_producers_count(env.partition), 1);
    env_batch(&env, -1, -1, 5, &(struct env_record){env.wall_ms, "x", 1}, 1);
    expect_refused_of(bytes, -1, -1, FLASHQ_ERR_PROTOCOL, "sequence 5");
}

/* case 27 */
Test(append, sent_again_is_stored_once_and_answered_with_the_original_offset)
{
    for (int32_t i = 0; i < 8; i++) {
        cr_assert_eq(expect_taken(plain(i)).base_offset, i);
    }
    env_commit(&env);
    for (int32_t i = 3; i < 8; i++) { /* max_in_flight 5 */
        struct fq_append_result result = expect_taken(plain(i));
        cr_assert(result.duplicate);
        cr_assert_eq(result.base_offset, i);
        cr_assert_eq(result.end_offset, i + 1);
    }
    cr_assert_eq(fq_log_end(fq_partition_log(env.partition)), 8);
    cr_assert_eq(expect_refused(plain(2), FLASHQ_ERR_SEQUENCE, "expected is 8").detail, 8);
    cr_assert_eq(expect_refused(plain(9), FLASHQ_ERR_SEQUENCE, "sequence 9").detail, 8);
    struct env_record two[] = {{env.wall_ms, "a", 1}, {env.wall_ms, "b", 1}};
    cr_assert_eq(
        expect_refused(env_batch(&env, PRODUCER, 0, 6, two, 2), FLASHQ_ERR_SEQUENCE, "2 records")
            .detail,
        8);
    /* Whether an older batch would be refused today does not matter to one that is stored. */
    env.wall_ms -= 7200000;
    uint64_t bytes =
        env_batch(&env, PRODUCER, 0, 7, &(struct env_record){env.wall_ms + 7200000, "hello", 5}, 1);
    cr_assert(expect_taken(bytes).duplicate);
}

Test(append, sequences_go_on_across_epochs_and_the_older_instance_is_fenced)
{
    expect_taken(plain(0));
    struct fq_producer_opened opened;
    struct fq_err err;
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 3, 77, &opened, &err), 0);
    cr_assert_eq(opened.last_sequence, 0);
    cr_assert_eq(opened.last_offset, 0);
    expect_refused(plain(1), FLASHQ_ERR_FENCED, "newest opened is 3");
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 2, 0, &opened, &err),
                 FLASHQ_ERR_FENCED);
    cr_assert_not_null(strstr(err.text, "epoch 3"));
    struct fq_append_result result;
    struct env_record record = {env.wall_ms, "hello", 5};
    uint64_t bytes = env_batch(&env, PRODUCER, 3, 0, &record, 1);
    cr_assert_eq(env_append(&env, bytes, PRODUCER, 3, &result, &err), 0);
    cr_assert(result.duplicate, "stored by the older instance");
    bytes = env_batch(&env, PRODUCER, 3, 1, &record, 1);
    cr_assert_eq(env_append(&env, bytes, PRODUCER, 3, &result, &err), 0);
    cr_assert_eq(result.base_offset, 1);
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, -1, 0, &opened, &err),
                 FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 4, -1, &opened, &err),
                 FLASHQ_ERR_INVALID);
}

Test(append, an_unknown_producer_starts_where_its_open_says_and_sequences_wrap)
{
    struct fq_producer_opened opened;
    cr_assert_eq(fq_partition_producer_open(env.partition, 12, 0, INT32_MAX - 1, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, -1);
    cr_assert_eq(opened.last_offset, -1);
    struct env_record three[] = {
        {env.wall_ms, "a", 1}, {env.wall_ms, "b", 1}, {env.wall_ms, "c", 1}};
    struct fq_append_result result;
    uint64_t bytes = env_batch(&env, 12, 0, 0, three, 3);
    expect_refused_of(bytes, 12, 0, FLASHQ_ERR_SEQUENCE, "expected is 2147483646");
    bytes = env_batch(&env, 12, 0, INT32_MAX - 1, three, 3);
    cr_assert_eq(env_append(&env, bytes, 12, 0, &result, NULL), 0);
    bytes = env_batch(&env, 12, 0, 1, three, 3);
    cr_assert_eq(env_append(&env, bytes, 12, 0, &result, NULL), 0, "after the greatest comes 0");
    cr_assert_eq(result.base_offset, 3);
    cr_assert_eq(fq_partition_producer_open(env.partition, 12, 0, 9, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, 3);
    cr_assert_eq(opened.last_offset, 5);
}

Test(append, timestamps_are_neither_negative_nor_too_far_ahead)
{
    int64_t latest = env.wall_ms + 3600000;
    struct env_record record = {latest, "x", 1};
    uint64_t bytes = env_batch(&env, PRODUCER, 0, 0, &record, 1);
    expect_taken(bytes);
    record.timestamp_ms = latest + 1;
    struct fq_append_result result;
    result = expect_refused(env_batch(&env, PRODUCER, 0, 1, &record, 1), FLASHQ_ERR_TIMESTAMP,
                            "timestamp.max.ahead");
    cr_assert_eq(result.detail, latest);
    record.timestamp_ms = INT64_MAX;
    expect_refused(env_batch(&env, PRODUCER, 0, 1, &record, 1), FLASHQ_ERR_TIMESTAMP, "ahead");
    struct env_record below[] = {{5, "x", 1}, {-1, "y", 1}, {9, "z", 1}};
    expect_refused(env_batch(&env, PRODUCER, 0, 1, below, 3), FLASHQ_ERR_TIMESTAMP,
                   "-1 is negative");
    record.timestamp_ms = INT64_MIN;
    expect_refused(env_batch(&env, PRODUCER, 0, 1, &record, 1), FLASHQ_ERR_TIMESTAMP, "negative");
    env.config.timestamp_max_ahead_ms = -1;
    fq_partition_configure(env.partition, &env.config);
    record.timestamp_ms = INT64_MAX;
    expect_taken(env_batch(&env, PRODUCER, 0, 1, &record, 1));
    record.timestamp_ms = 0;
    expect_taken(env_batch(&env, PRODUCER, 0, 2, &record, 1));
}

/* case 32 */
Test(append, a_record_may_have_exactly_message_max_bytes)
{
    char *value = calloc(1, 20000);
    int32_t sequence = 0;
    for (size_t count = 1; count <= 3; count += 2) {
        for (size_t bytes = 9999; bytes <= 10001; bytes++) {
            struct env_record records[] = {
                {env.wall_ms, value, bytes}, {env.wall_ms, "a", 1}, {env.wall_ms, "b", 1}};
            uint64_t length = env_batch(&env, PRODUCER, 0, sequence, records, count);
            if (bytes <= 10000) {
                expect_taken(length);
                sequence += (int32_t)count;
            } else {
                struct fq_append_result result;
                result = expect_refused(length, FLASHQ_ERR_TOO_LARGE, "record of 10001 bytes");
                cr_assert_eq(result.detail, 10000);
            }
        }
    }
    free(value);
}

/* case 32 */
Test(append, keys_and_headers_count_towards_the_size_of_a_record)
{
    char *bytes = calloc(1, 10000);
    for (size_t over = 0; over < 2; over++) {
        struct fq_header headers[] = {{{(const uint8_t *)"name", 4}, {(const uint8_t *)"val", 3}},
                                      {{(const uint8_t *)"none", 4}, {NULL, 0}}};
        struct fq_record_in record = {.timestamp_ms = env.wall_ms,
                                      .key = {(const uint8_t *)"key", 3},
                                      .value = {(const uint8_t *)bytes, 10000 - 3 - 7 - 4 + over},
                                      .headers = headers,
                                      .headers_count = 2};
        struct fq_batch_builder builder;
        fq_batch_builder_init(&builder, env.batch, ENV_BATCH_MAX);
        cr_assert_eq(fq_batch_builder_append(&builder, &record), 0);
        struct fq_batch_finish how = {.producer_id = PRODUCER, .base_sequence = (int32_t)over};
        uint64_t length = (uint64_t)fq_batch_builder_finish(&builder, &how);
        if (over == 0) {
            expect_taken(length);
        } else {
            expect_refused(length, FLASHQ_ERR_TOO_LARGE, "record of 10001 bytes");
        }
    }
    free(bytes);
}

/* case 32 */
Test(append, a_batch_may_have_exactly_batch_max_bytes)
{
    char *value = calloc(1, 10000);
    struct env_record records[8];
    for (size_t i = 0; i < 8; i++) {
        records[i] = (struct env_record){env.wall_ms, value, 9000};
    }
    records[7].value_bytes = 0;
    uint64_t rest = 65536 - env_batch(&env, PRODUCER, 0, 0, records, 8);
    cr_assert_lt(rest, 9000);
    records[7].value_bytes = (size_t)rest - 4; /* two length fields grew by up to two bytes each */
    while (env_batch(&env, PRODUCER, 0, 0, records, 8) < 65536) {
        records[7].value_bytes++;
    }
    cr_assert_eq(env_batch(&env, PRODUCER, 0, 0, records, 8), 65536);
    expect_taken(65536);
    records[7].value_bytes++;
    struct fq_append_result result;
    result =
        expect_refused(env_batch(&env, PRODUCER, 0, 8, records, 8), FLASHQ_ERR_TOO_LARGE, "65537");
    cr_assert_eq(result.detail, 65536);
    cr_assert_eq(result.bytes, 65537, "its length is believed: the ring goes on behind it");
    free(value);
}

Test(append, compressed_batches_are_stored_as_they_are)
{
    char value[3000];
    memset(value, 'a', sizeof value);
    enum fq_codec codecs[] = {FQ_CODEC_LZ4, FQ_CODEC_ZSTD};
    for (int32_t i = 0; i < 2; i++) {
        uint8_t *out = malloc(8192);
        uint64_t bytes = env_batch(&env, PRODUCER, 0, i,
                                   &(struct env_record){env.wall_ms, value, sizeof value}, 1);
        int64_t small = fq_batch_compress(NULL, env.batch, bytes, codecs[i], 0, out, 8192);
        cr_assert_gt(small, 61);
        cr_assert_lt(small, 3000);
        memcpy(env.batch, out, (size_t)small);
        cr_assert_eq(expect_taken((uint64_t)small).base_offset, i);
        struct fq_log_place place;
        cr_assert_eq(fq_log_find(fq_partition_log(env.partition), i, &place), 0);
        cr_assert_eq(memcmp(fq_segment_data(place.segment) + place.position + 16, out + 16,
                            (size_t)small - 16),
                     0);
        free(out);
    }
}

Test(append, a_compressed_batch_is_no_larger_than_its_records_may_be)
{
    /* 20,000 bytes that pretend to be one compressed record of at most 10,000. */
    uint64_t bytes = 20000;
    plain(0);
    memset(env.batch + 61, 7, bytes - 61);
    fq_store_be32(env.batch + FQ_BATCH_LENGTH, (uint32_t)bytes - 12);
    fq_store_be16(env.batch + FQ_BATCH_ATTRIBUTES, FQ_CODEC_ZSTD);
    fix_crc(bytes);
    cr_assert_eq(expect_refused(bytes, FLASHQ_ERR_TOO_LARGE, "20000").detail, 10000);
    fq_store_be32(env.batch + FQ_BATCH_LAST_OFFSET_DELTA, 1);
    fq_store_be32(env.batch + FQ_BATCH_RECORDS_COUNT, 2);
    fix_crc(bytes);
    expect_taken(bytes); /* two could be */
}

Test(append, too_many_producers_are_a_limit_only_while_all_are_open)
{
    struct fq_producer_opened opened;
    struct fq_err err;
    for (int64_t id = 0; id < FQ_LIMIT_PRODUCERS_PER_PARTITION - 1; id++) {
        cr_assert_eq(fq_partition_producer_open(env.partition, 1000000 + id, 0, 0, &opened, &err),
                     0);
    }
    cr_assert_eq(fq_partition_producer_open(env.partition, 5, 0, 0, &opened, &err),
                 FLASHQ_ERR_LIMIT);
    cr_assert_not_null(strstr(err.text, "10000"), "%s", err.text);
    fq_partition_producer_close(env.partition, 1000007);
    cr_assert_eq(fq_partition_producer_open(env.partition, 5, 0, 0, &opened, &err), 0);
    struct fq_partition_stats stats;
    fq_partition_get_stats(env.partition, &stats);
    cr_assert_eq(stats.producers_evicted, 1);
    cr_assert_eq(fq_partition_producers_count(env.partition), FQ_LIMIT_PRODUCERS_PER_PARTITION);
}

/* ---- while it is being written --------------------------------------------------------------- */

static uint64_t streamed_of(const struct recording *recording, struct env *e, uint64_t bytes,
                            int expected)
{
    struct fq_append_result result;
    struct fq_err err = {0};
    uint64_t before = recording_streamed_bytes(recording);
    int rc = env_append(e, bytes, PRODUCER, 0, &result, &err);
    cr_assert_eq(rc, expected, "%s instead of %s: %s", fq_err_name(rc), fq_err_name(expected),
                 err.text);
    return recording_streamed_bytes(recording) - before;
}

static bool is_zero_above_end(struct env *e)
{
    struct fq_segment *last = fq_log_segment_last(fq_partition_log(e->partition));
    const uint8_t *data = fq_segment_data(last);
    for (uint64_t at = fq_segment_data_bytes(last); at < fq_segment_capacity(last); at++) {
        if (data[at] != 0) {
            return false;
        }
    }
    return true;
}

/* On memory a batch is in the log before it is known to be good; what is not good leaves no trace,
 * and what the header gives away is not written at all. */
Test(append_streaming, only_wanted_batches_are_written_and_refused_ones_are_wiped)
{
    struct env e;
    char *root = strdup("/dev/shm/fq-append-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    struct recording *recording = recording_create(root, RECORDING_MEMORY, RECORDING_SOUND);
    env_open(&e,
             &(struct env_params){.flush = FQ_FLUSH_PMEM, .persist = recording_persist(recording)});
    env_producer(&e, PRODUCER);
    cr_assert_eq(env_put(&e, PRODUCER, 0, e.wall_ms, "the first one opens a segment"), 0);
    cr_assert_eq(recording_streamed_bytes(recording), 0, "and is checked before");

    static char value[5000];
    struct env_record records[2] = {{e.wall_ms, value, sizeof value}, {e.wall_ms, value, 700}};
    uint64_t bytes = env_batch(&e, PRODUCER, 0, 1, records, 2);
    cr_assert_eq(streamed_of(recording, &e, bytes, 0), bytes - FQ_BATCH_HEADER_BYTES);
    cr_assert_eq(streamed_of(recording, &e, bytes, 0), 0, "a duplicate");
    e.batch[bytes / 2] ^= 1;
    cr_assert_eq(streamed_of(recording, &e, bytes, FLASHQ_ERR_CORRUPT), 0,
                 "said to be a duplicate, and damaged");

    bytes = env_batch(&e, PRODUCER, 0, 9, records, 2);
    cr_assert_eq(streamed_of(recording, &e, bytes, FLASHQ_ERR_SEQUENCE), 0);
    bytes = env_batch(&e, PRODUCER, 3, 3, records, 2);
    cr_assert_eq(streamed_of(recording, &e, bytes, FLASHQ_ERR_PROTOCOL), 0);
    cr_assert(is_zero_above_end(&e));

    bytes = env_batch(&e, PRODUCER, 0, 3, records, 2);
    e.batch[bytes - 300] ^= 1;
    cr_assert_eq(streamed_of(recording, &e, bytes, FLASHQ_ERR_CORRUPT),
                 bytes - FQ_BATCH_HEADER_BYTES);
    cr_assert(is_zero_above_end(&e));
    records[1].timestamp_ms = -5;
    bytes = env_batch(&e, PRODUCER, 0, 3, records, 2);
    cr_assert_gt(streamed_of(recording, &e, bytes, FLASHQ_ERR_TIMESTAMP), 0);
    cr_assert(is_zero_above_end(&e));
    records[1].timestamp_ms = e.wall_ms;
    bytes = env_batch(&e, PRODUCER, 0, 3, records, 2);
    cr_assert_gt(streamed_of(recording, &e, bytes, 0), 0, "and the next good one is taken");
    cr_assert_eq(env_commit(&e), 5);
    env_restart(&e);
    cr_assert_eq(fq_log_end(fq_partition_log(e.partition)), 5);
    env_close(&e);
    recording_destroy(recording);
    cr_assert_eq(rmdir(root), 0);
    free(root);
}

/* Every length and place around the lines and blocks of the real medium. */
Test(append_streaming, what_is_stored_is_what_was_sent_at_every_place)
{
    struct env e;
    static char value[9000];
    struct fq_prng prng;
    fq_prng_seed(&prng, 11);
    for (size_t i = 0; i < sizeof value; i++) {
        value[i] = (char)fq_prng_next(&prng);
    }
    env_open(&e, &(struct env_params){.flush = FQ_FLUSH_PMEM, .segment_bytes = 8u << 20});
    env_producer(&e, PRODUCER);
    static const size_t around[] = {1, 60, 400, 500, 512, 640, 2048, 4096, 8200};
    int32_t sequence = 0;
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        for (size_t more = 0; more < 67; more++) {
            struct env_record record = {e.wall_ms, value, around[i] + more};
            uint64_t bytes = env_batch(&e, PRODUCER, 0, sequence++, &record, 1);
            struct fq_append_result result;
            struct fq_err err = {0};
            cr_assert_eq(env_append(&e, bytes, PRODUCER, 0, &result, &err), 0, "%s", err.text);
            struct fq_segment *last = fq_log_segment_last(fq_partition_log(e.partition));
            const uint8_t *end = fq_segment_data(last) + fq_segment_data_bytes(last);
            cr_assert(fq_batch_crc_ok(end - bytes, (size_t)bytes), "%zu", around[i] + more);
            cr_assert_eq(memcmp(end - bytes + FQ_BATCH_CRC, e.batch + FQ_BATCH_CRC,
                                (size_t)bytes - FQ_BATCH_CRC),
                         0);
        }
    }
    cr_assert_eq(env_commit(&e), sequence);
    cr_assert(is_zero_above_end(&e));
    env_close(&e);
}

/* ---- a medium that fails --------------------------------------------------------------------- */

static const struct fq_persist_ops *real_ops;
static bool is_write_failing, is_sync_failing;

static int failing_write(struct fq_pfile *f, uint64_t pos, const void *src, size_t len)
{
    return is_write_failing ? FLASHQ_ERR_IO : real_ops->write(f, pos, src, len);
}

static int failing_sync(struct fq_pfile *f)
{
    return is_sync_failing ? FLASHQ_ERR_IO : real_ops->sync(f);
}

static struct fq_persist_ops failing_ops;

static void open_failing(struct env *e)
{
    struct fq_persist *persist;
    cr_assert_eq(fq_persist_sync_create(&persist), 0);
    real_ops = persist->ops;
    failing_ops = *real_ops;
    failing_ops.write = failing_write;
    failing_ops.sync = failing_sync;
    persist->ops = &failing_ops;
    env_open(e, &(struct env_params){.flush = FQ_FLUSH_SYNC, .persist = persist});
    env_producer(e, PRODUCER);
    cr_assert_eq(env_put(e, PRODUCER, 0, e->wall_ms, "before"), 0);
    cr_assert_eq(env_commit(e), 1);
}

static void close_failing(struct env *e)
{
    struct fq_persist *persist = e->params.persist;
    is_write_failing = is_sync_failing = false;
    env_close(e);
    persist->ops = real_ops;
    real_ops->destroy(persist);
}

static void expect_offline(struct env *e)
{
    struct fq_err why = {0};
    cr_assert_eq(fq_partition_state(e->partition, &why), FLASHQ_ERR_OFFLINE);
    cr_assert_eq(why.code, FLASHQ_ERR_OFFLINE);
    cr_assert_gt(strlen(why.text), 5);
    cr_assert_eq(fq_partition_commit_round(e->partition), 1, "the high watermark stands still");
    cr_assert_eq(e->view_line->state, (uint32_t)-FLASHQ_ERR_OFFLINE);
    cr_assert_eq(e->view_line->high_watermark, 1);
    cr_assert_not(fq_partition_needs_round(e->partition));
    struct fq_append_result result;
    struct fq_err err = {0};
    uint64_t bytes = env_batch(e, PRODUCER, 0, 1, &(struct env_record){e->wall_ms, "x", 1}, 1);
    cr_assert_eq(env_append(e, bytes, PRODUCER, 0, &result, &err), FLASHQ_ERR_OFFLINE);
    cr_assert_eq(result.bytes, bytes);
    struct fq_segment *segment;
    struct fq_segment_open_answer answer;
    cr_assert_eq(fq_partition_segment_open(e->partition, 0, &segment, &answer, &err), 0,
                 "what is committed can still be read");
}

Test(append_failing, a_failed_write_says_maybe_and_takes_the_partition_offline)
{
    struct env e;
    open_failing(&e);
    is_write_failing = true;
    struct fq_append_result result;
    struct fq_err err = {0};
    uint64_t bytes = env_batch(&e, PRODUCER, 0, 1, &(struct env_record){e.wall_ms, "x", 1}, 1);
    cr_assert_eq(env_append(&e, bytes, PRODUCER, 0, &result, &err), FLASHQ_ERR_MAYBE_PERSISTED);
    is_write_failing = false;
    expect_offline(&e);
    close_failing(&e);
}

Test(append_failing, a_failed_sync_never_becomes_an_acknowledgement)
{
    struct env e;
    open_failing(&e);
    cr_assert_eq(env_put(&e, PRODUCER, 1, e.wall_ms, "lost"), 1);
    is_sync_failing = true;
    cr_assert_eq(fq_partition_commit_round(e.partition), 1);
    env_step(&e);
    is_sync_failing = false;
    cr_assert(fq_partition_needs_round(e.partition), "to learn of it");
    cr_assert_eq(fq_partition_commit_round(e.partition), 1);
    env_step(&e);
    expect_offline(&e);
    close_failing(&e);
}
