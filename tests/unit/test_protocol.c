/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: bytes on the wire, what decoders refuse, names, lists, pages, the hello. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/protocol_codec.h"

static struct fq_str str(const char *text)
{
    return fq_str_of(text, strlen(text));
}

static struct fq_msg decoded(const uint8_t *bytes, int64_t length)
{
    struct fq_msg msg;
    struct fq_err err = {0};
    cr_assert_gt(length, 0, "encode: %s", fq_err_name((int)length));
    cr_assert_eq(fq_msg_decode(bytes, (size_t)length, &msg, &err), 0, "%s", err.text);
    return msg;
}

Test(protocol, producer_open_has_the_documented_bytes)
{
    struct fq_producer_open in = {
        .topic_id = {.bytes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        .partition = 7,
        .producer_id = 0x1122334455667788,
        .producer_epoch = -2,
        .next_sequence = 9,
        .acks = FQ_ACKS_LEADER,
        .mode = 1,
    };
    static const uint8_t expected[] = {
        0x0a, 0x00, 0x01, 0x00, 0x78, 0x56, 0x34, 0x12, 0,    0,    0,    0, /* header */
        0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,
        12,   13,   14,   15,   7,    0,    0,    0,    0x88, 0x77, 0x66, 0x55,
        0x44, 0x33, 0x22, 0x11, 0xfe, 0xff, 9,    0,    0,    0,    1,    1,
    };
    uint8_t out[256];
    int64_t length = fq_encode_producer_open(out, sizeof out, 0x12345678, &in);
    cr_assert_eq(length, (int64_t)sizeof expected);
    cr_assert_arr_eq(out, expected, sizeof expected);

    struct fq_msg msg = decoded(out, length);
    cr_assert_eq(msg.type, FQ_MSG_PRODUCER_OPEN);
    cr_assert_not(msg.is_answer);
    cr_assert_eq(msg.correlation, 0x12345678u);
    struct fq_producer_open back;
    cr_assert_eq(fq_decode_producer_open(&msg, &back, NULL), 0);
    cr_assert_eq(back.producer_id, in.producer_id);
    cr_assert_eq(back.producer_epoch, in.producer_epoch);
    cr_assert_eq(back.next_sequence, in.next_sequence);
    cr_assert_arr_eq(back.topic_id.bytes, in.topic_id.bytes, FQ_UUID_BYTES);
    cr_assert_eq(fq_encode_producer_open(out, sizeof expected - 1, 1, &in), FLASHQ_ERR_TOO_LARGE);
}

Test(protocol, every_cut_of_a_message_is_refused)
{
    struct fq_session_open_answer in = {
        .heartbeat_ms = 1000,
        .views_count = 3,
        .software = str("flashqd 0.1.0"),
        .shm_path = str("/run/flashq/flashq.sock"),
    };
    uint8_t out[1024];
    int64_t length = fq_encode_session_open_answer(out, sizeof out, 1, &in);
    struct fq_msg msg = decoded(out, length);
    struct fq_session_open_answer back;
    cr_assert_eq(fq_decode_session_open_answer(&msg, &back, NULL), 0);
    cr_assert(fq_str_equal(back.shm_path, in.shm_path));
    cr_assert_eq(back.storage.length, 0, "not sent, not there");

    size_t without_tag = (size_t)length - 4 - 2 - in.shm_path.length;
    size_t accepted = 0;
    for (size_t cut = FQ_MSG_HEADER_BYTES; cut < (size_t)length; cut++) {
        msg = decoded(out, (int64_t)cut);
        if (fq_decode_session_open_answer(&msg, &back, NULL) == 0) {
            cr_assert_eq(cut, without_tag, "a cut at %zu was accepted", cut);
            cr_assert_eq(back.shm_path.length, 0);
            accepted++;
        }
    }
    cr_assert_eq(accepted, 1);
}

Test(protocol, unknown_tags_are_skipped_and_garbage_is_not)
{
    struct fq_slot_ref in = {.slot = 5};
    struct fq_slot_ref back;
    uint8_t out[64];
    int64_t length = fq_encode_producer_close(out, sizeof out, 1, &in);
    uint8_t *end = out + length;

    memcpy(end, (const uint8_t[]){9, 0, 2, 0, 'h', 'i', 10, 0, 0, 0}, 10);
    struct fq_msg msg = decoded(out, length + 10);
    cr_assert_eq(fq_decode_producer_close(&msg, &back, NULL), 0);
    cr_assert_eq(back.slot, 5u);

    const struct {
        uint8_t bytes[10];
        size_t length;
        const char *what;
    } bad[] = {
        {{1}, 1, "one byte of garbage"},
        {{9, 0, 3, 0, 'h', 'i'}, 6, "a tag that runs over the end"},
        {{9, 0, 0, 0, 9, 0, 0, 0}, 8, "the same tag twice"},
        {{9, 0, 0, 0, 8, 0, 0, 0}, 8, "falling tags"},
        {{0, 0, 0, 0}, 4, "tag 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(end, bad[i].bytes, bad[i].length);
        msg = decoded(out, length + (int64_t)bad[i].length);
        cr_assert_eq(fq_decode_producer_close(&msg, &back, NULL), FLASHQ_ERR_PROTOCOL, "%s",
                     bad[i].what);
    }
}

Test(protocol, headers_that_break_the_rules_are_refused)
{
    struct fq_msg msg;
    uint8_t out[64] = {0};
    cr_assert_eq(fq_msg_decode(out, 11, &msg, NULL), FLASHQ_ERR_PROTOCOL);
    static uint8_t huge[FQ_LIMIT_CONTROL_BYTES + 1];
    cr_assert_eq(fq_msg_decode(huge, sizeof huge, &msg, NULL), FLASHQ_ERR_PROTOCOL);

    int64_t length = fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, 3);
    fq_store_le32(out + 8, (uint32_t)FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_msg_decode(out, (size_t)length, &msg, NULL), FLASHQ_ERR_PROTOCOL,
                 "a request with a status");
    fq_store_le16(out, FQ_MSG_HEARTBEAT | FQ_MSG_ANSWER);
    fq_store_le32(out + 8, 1);
    cr_assert_eq(fq_msg_decode(out, (size_t)length, &msg, NULL), FLASHQ_ERR_PROTOCOL,
                 "a positive status");

    length = fq_encode_empty(out, sizeof out, 999, false, 3); /* of a newer release */
    cr_assert_eq(fq_msg_decode(out, (size_t)length, &msg, NULL), 0);
    cr_assert_str_eq(fq_msg_name(msg.type), "unknown");

    struct fq_trim trim = {.name = str("t")}, back;
    length = fq_encode_trim(out, sizeof out, 1, &trim);
    fq_store_le16(out + 2, FQ_PROTOCOL_VERSION_MAX + 1);
    msg = decoded(out, length);
    cr_assert_eq(fq_decode_trim(&msg, &back, NULL), FLASHQ_ERR_VERSION);
}

Test(protocol, errors_carry_status_and_text)
{
    uint8_t out[1024];
    struct fq_err err;
    int64_t length = fq_encode_error(out, sizeof out, FQ_MSG_TRIM, 8, FLASHQ_ERR_NOT_FOUND,
                                     "topic \"x\"\n\x1b[2J");
    struct fq_msg msg = decoded(out, length);
    cr_assert(msg.is_answer);
    cr_assert_eq(msg.correlation, 8u);
    cr_assert_eq(fq_msg_error(&msg, &err), FLASHQ_ERR_NOT_FOUND);
    cr_assert_str_eq(err.text, "topic \"x\"  [2J", "control characters never reach a terminal");
    struct fq_trim_answer answer;
    cr_assert_eq(fq_decode_trim_answer(&msg, &answer, &err), FLASHQ_ERR_PROTOCOL);

    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    length = fq_encode_error(out, sizeof out, FQ_MSG_TRIM, 8, FLASHQ_ERR_FAILED, text);
    msg = decoded(out, length);
    cr_assert_eq(msg.error_text.length, FQ_ERR_TEXT_BYTES - 1);
    length = fq_encode_error(out, sizeof out, FQ_MSG_TRIM, 8, FLASHQ_ERR_BUSY, NULL);
    msg = decoded(out, length);
    cr_assert_gt(msg.error_text.length, 0);
}

/* case 45 */
Test(protocol, topic_names_and_the_byte_that_spoils_them)
{
    char longest[251];
    memset(longest, 'a', 250);
    longest[250] = '\0';
    const char *good[] = {"a.b", "a_b", "a-b", "...", "..a", "-", "_", "__offsets", "A9"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_assert_eq(fq_topic_name_check(good[i], strlen(good[i]), NULL), 0, "%s", good[i]);
    }
    cr_assert_eq(fq_topic_name_check(longest, 249, NULL), 0);

    const struct {
        const char *name;
        size_t length;
        int code;
        const char *says;
    } bad[] = {
        {"", 0, FLASHQ_ERR_INVALID, "empty"},
        {".", 1, FLASHQ_ERR_INVALID, "0x2e '.' at position 1"},
        {"..", 2, FLASHQ_ERR_INVALID, "0x2e '.' at position 2"},
        {longest, 250, FLASHQ_ERR_TOO_LARGE, "0x61 at position 250"},
        {"a/b", 3, FLASHQ_ERR_INVALID, "0x2f '/' at position 2"},
        {"ab\0c", 4, FLASHQ_ERR_INVALID, "0x00 at position 3"},
        {"p\xd0\xb0y", 4, FLASHQ_ERR_INVALID, "0xd0 at position 2"}, /* a Cyrillic a */
        {"a b", 3, FLASHQ_ERR_INVALID, "0x20 at position 2"},
        {"a\x7f", 2, FLASHQ_ERR_INVALID, "0x7f at position 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fq_err err;
        cr_assert_eq(fq_topic_name_check(bad[i].name, bad[i].length, &err), bad[i].code, "%zu", i);
        cr_assert(strstr(err.text, bad[i].says), "\"%s\" should say \"%s\"", err.text, bad[i].says);
    }
}

/* case 45: the broker says the same about a client that does not check */
Test(protocol, a_bad_topic_name_in_a_request_is_an_answer_not_a_protocol_error)
{
    struct fq_topic_create in = {.name = str("a-b"), .partitions = 1};
    uint8_t out[256];
    int64_t length = fq_encode_topic_create(out, sizeof out, 1, &in);
    out[FQ_MSG_HEADER_BYTES + 3] = '/';
    struct fq_msg msg = decoded(out, length);
    struct fq_topic_create back;
    struct fq_err err;
    cr_assert_eq(fq_decode_topic_create(&msg, &back, &err), FLASHQ_ERR_INVALID);
    cr_assert(strstr(err.text, "0x2f '/' at position 2"), "%s", err.text);
    in.name = str("a/b");
    cr_assert_eq(fq_encode_topic_create(out, sizeof out, 1, &in), FLASHQ_ERR_INVALID);
}

Test(protocol, lists_round_trip_and_lying_counts_are_refused)
{
    const struct fq_config_pair pairs[] = {
        {.key = str("retention.bytes"), .value = str("1GiB"), .source = 2},
        {.key = str("segment.bytes"), .value = str(""), .source = 0},
    };
    uint8_t space[256], out[512];
    struct fq_topic_alter in = {.name = str("t"), .validate_only = true}, back;
    cr_assert_eq(fq_config_pairs_list(space, sizeof space, pairs, 2, &in.configs), 0);
    cr_assert_eq(fq_config_pairs_list(space, 10, pairs, 2, &in.configs), FLASHQ_ERR_TOO_LARGE);
    int64_t length = fq_encode_topic_alter(out, sizeof out, 1, &in);
    struct fq_msg msg = decoded(out, length);
    cr_assert_eq(fq_decode_topic_alter(&msg, &back, NULL), 0);
    cr_assert(back.validate_only);
    struct fq_config_pair pair;
    struct fq_list rest = back.configs;
    cr_assert_eq(fq_config_pairs_next(&rest, &pair), 1);
    cr_assert(fq_str_equal(pair.key, pairs[0].key) && fq_str_equal(pair.value, pairs[0].value));
    cr_assert_eq(pair.source, 2);
    cr_assert_eq(fq_config_pairs_next(&rest, &pair), 1);
    cr_assert_eq(pair.value.length, 0);
    cr_assert_eq(fq_config_pairs_next(&rest, &pair), 0);

    uint8_t *count = out + FQ_MSG_HEADER_BYTES + 3 + 1;
    cr_assert_eq(fq_load_le32(count), 2u);
    const uint32_t lies[] = {0, 1, 3, 1000, 0x7fffffff, UINT32_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fq_store_le32(count, lies[i]);
        cr_assert_eq(fq_decode_topic_alter(&msg, &back, NULL), FLASHQ_ERR_PROTOCOL, "count %u",
                     lies[i]);
    }
}

/* A message of `length` bytes in its only text, at `limit`; cases 31, 32 */
static void check_text_limit(int64_t (*encode)(uint8_t *out, size_t capacity, struct fq_str text),
                             int (*decode)(const struct fq_msg *msg), size_t limit,
                             const char *what)
{
    static uint8_t out[FQ_LIMIT_CONTROL_BYTES];
    static char text[FQ_LIMIT_CONTROL_BYTES];
    memset(text, 'x', sizeof text);
    for (size_t length = limit - 1; length <= limit + 1; length++) {
        int64_t encoded = encode(out, sizeof out, fq_str_of(text, length));
        if (length > limit) {
            cr_assert_eq(encoded, FLASHQ_ERR_INVALID, "%s of %zu", what, length);
            continue;
        }
        struct fq_msg msg = decoded(out, encoded);
        cr_assert_eq(decode(&msg), 0, "%s of %zu", what, length);
    }
    /* one more than we would send: the length is in front of the text, which is last in its message
     */
    int64_t encoded = encode(out, sizeof out, fq_str_of(text, limit));
    fq_store_le16(out + encoded - (int64_t)limit - 2, (uint16_t)(limit + 1));
    out[encoded] = 'x';
    struct fq_msg msg = decoded(out, encoded + 1);
    cr_assert_eq(decode(&msg), FLASHQ_ERR_PROTOCOL, "%s of %zu", what, limit + 1);
}

static int64_t encode_info(uint8_t *out, size_t capacity, struct fq_str text)
{
    return fq_encode_info(out, capacity, 1, &(struct fq_info){.cursor = text});
}

static int decode_info(const struct fq_msg *msg)
{
    struct fq_info back;
    return fq_decode_info(msg, &back, NULL);
}

static int64_t encode_goodbye(uint8_t *out, size_t capacity, struct fq_str text)
{
    return fq_encode_goodbye(out, capacity, 0, &(struct fq_goodbye){.text = text});
}

static int decode_goodbye(const struct fq_msg *msg)
{
    struct fq_goodbye back;
    return fq_decode_goodbye(msg, &back, NULL);
}

static int64_t encode_shm_path(uint8_t *out, size_t capacity, struct fq_str text)
{
    return fq_encode_session_open_answer(out, capacity, 1,
                                         &(struct fq_session_open_answer){.shm_path = text});
}

static int decode_shm_path(const struct fq_msg *msg)
{
    struct fq_session_open_answer back;
    return fq_decode_session_open_answer(msg, &back, NULL);
}

/* case 32 */
Test(protocol, texts_at_their_limits_and_one_byte_around)
{
    check_text_limit(encode_info, decode_info, FQ_CURSOR_BYTES, "cursor");
    check_text_limit(encode_goodbye, decode_goodbye, 255, "goodbye text");
    check_text_limit(encode_shm_path, decode_shm_path, FQ_LIMIT_PATH_BYTES, "shm path");
}

Test(protocol, texts_hold_no_control_characters_and_cursors_any_bytes)
{
    uint8_t out[256];
    const char *bad[] = {"a\nb", "\x1b[2J", "\x7f", "tab\t"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(encode_goodbye(out, sizeof out, str(bad[i])), FLASHQ_ERR_INVALID);
        int64_t length = encode_goodbye(out, sizeof out, str("1234"));
        memcpy(out + length - 4, bad[i], strlen(bad[i]) < 4 ? strlen(bad[i]) : 4);
        struct fq_msg msg = decoded(out, length);
        cr_assert_eq(decode_goodbye(&msg), FLASHQ_ERR_PROTOCOL, "%zu", i);
    }
    cr_assert_gt(encode_goodbye(out, sizeof out, str("\xc3\xbc is fine")), 0);
    struct fq_msg msg = decoded(out, encode_info(out, sizeof out, fq_str_of("t\0\1", 3)));
    cr_assert_eq(decode_info(&msg), 0);
}

static int64_t metadata_page(uint8_t *out, size_t capacity, uint32_t from, uint32_t partitions)
{
    struct fq_page page;
    cr_assert_eq(fq_metadata_answer_begin(&page, out, capacity, 77), 0);
    struct fq_broker_entry broker = {.id = 1, .host = str("h"), .port = 9640, .shards_count = 2};
    struct fq_topic_entry topic = {.name = str("t"), .partitions_total = partitions};
    if (from == 0) {
        cr_assert(fq_metadata_answer_add_broker(&page, &broker));
    }
    cr_assert(fq_metadata_answer_add_topic(&page, &topic));
    for (uint32_t i = from; i < partitions; i++) {
        struct fq_partition_entry entry = {
            .index = i, .end = 10 * (int64_t)i, .medium = str("dir")};
        if (!fq_metadata_answer_add_partition(&page, &entry)) {
            char cursor[16];
            memcpy(cursor, "t\0", 2);
            fq_store_le32(cursor + 2, i);
            return fq_metadata_answer_finish(&page, fq_str_of(cursor, 6));
        }
    }
    return fq_metadata_answer_finish(&page, str(""));
}

Test(protocol, metadata_goes_on_page_after_page)
{
    enum { PARTITIONS = 500 };
    static uint8_t out[4096];
    uint32_t next = 0, pages = 0, brokers = 0;
    for (;;) {
        int64_t length = metadata_page(out, sizeof out, next, PARTITIONS);
        struct fq_msg msg = decoded(out, length);
        struct fq_metadata_answer answer;
        struct fq_err err;
        cr_assert_eq(fq_decode_metadata_answer(&msg, &answer, &err), 0, "%s", err.text);
        struct fq_metadata_item item;
        while (fq_metadata_next(&answer.items, &item) == 1) {
            brokers += item.kind == FQ_METADATA_BROKER;
            if (item.kind == FQ_METADATA_PARTITION) {
                cr_assert_eq(item.partition.index, next);
                cr_assert_eq(item.partition.end, 10 * (int64_t)next);
                next++;
            }
        }
        pages++;
        if (answer.cursor.length == 0) {
            break;
        }
        cr_assert_eq(fq_load_le32(answer.cursor.data + 2), next);
    }
    cr_assert_eq(next, (uint32_t)PARTITIONS);
    cr_assert_eq(brokers, 1u);
    cr_assert_gt(pages, 5u);
}

Test(protocol, counters_fill_a_page_to_its_end)
{
    static uint8_t out[4096];
    struct fq_page page;
    cr_assert_eq(fq_info_answer_begin(&page, out, 100, 1), FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(fq_info_answer_begin(&page, out, sizeof out, 1), 0);
    int64_t added = 0;
    struct fq_counter counter = {.name = str("append.batches")};
    while (counter.value = -added, fq_info_answer_add(&page, &counter)) {
        added++;
    }
    char cursor[FQ_CURSOR_BYTES] = {1};
    int64_t length = fq_info_answer_finish(&page, fq_str_of(cursor, sizeof cursor));
    cr_assert_leq(length, (int64_t)sizeof out);
    struct fq_msg msg = decoded(out, length);
    struct fq_info_answer answer;
    cr_assert_eq(fq_decode_info_answer(&msg, &answer, NULL), 0);
    cr_assert_eq(answer.counters.count, (uint32_t)added);
    cr_assert_eq(answer.cursor.length, sizeof cursor);
    int64_t seen = 0;
    while (fq_counters_next(&answer.counters, &counter) == 1) {
        cr_assert_eq(counter.value, -seen);
        seen++;
    }
    cr_assert_eq(seen, added);
}

Test(protocol, nothing_at_all_is_handled)
{
    struct fq_list none = {0};
    struct fq_str name;
    struct fq_msg msg;
    struct fq_hello hello;
    cr_assert_eq(fq_strings_next(&none, &name), 0);
    cr_assert_eq(fq_strings_list(NULL, 0, NULL, 0, &none), 0);
    cr_assert_eq(fq_strings_list(NULL, 0, &(struct fq_str){0}, 1, &none), FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(fq_msg_decode(NULL, 0, &msg, NULL), FLASHQ_ERR_PROTOCOL);
    cr_assert_eq(fq_hello_decode(NULL, 0, &hello, NULL), FLASHQ_ERR_PROTOCOL);
    cr_assert_eq(fq_topic_name_check(NULL, 0, NULL), FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_encode_empty(NULL, 0, FQ_MSG_HEARTBEAT, false, 1), FLASHQ_ERR_TOO_LARGE);

    struct fq_metadata all = {0}, back;
    uint8_t out[64];
    msg = decoded(out, fq_encode_metadata(out, sizeof out, 1, &all));
    cr_assert_eq(fq_decode_metadata(&msg, &back, NULL), 0);
    cr_assert_eq(back.names.count, 0u);
    cr_assert_eq(back.cursor.length, 0);
}

Test(protocol, unknown_metadata_items_are_skipped_and_orphans_refused)
{
    uint8_t out[512];
    struct fq_metadata_answer answer;
    struct fq_metadata_item item;
    uint8_t items[] = {77, 3, 0, 'n', 'e', 'w'};
    struct fq_metadata_answer in = {.items = {items, sizeof items, 1}};
    struct fq_msg msg = decoded(out, fq_encode_metadata_answer(out, sizeof out, 1, &in));
    cr_assert_eq(fq_decode_metadata_answer(&msg, &answer, NULL), 0);
    cr_assert_eq(fq_metadata_next(&answer.items, &item), 0);

    uint8_t orphan[3 + 46] = {FQ_METADATA_PARTITION, 46}; /* 5 u32, 3 u64, an empty text */
    in.items = (struct fq_list){orphan, sizeof orphan, 1};
    msg = decoded(out, fq_encode_metadata_answer(out, sizeof out, 1, &in));
    cr_assert_eq(fq_decode_metadata_answer(&msg, &answer, NULL), FLASHQ_ERR_PROTOCOL);
}

Test(protocol, hello_fits_the_private_data_and_survives_padding)
{
    uint8_t bytes[FQ_LIMIT_HELLO_BYTES] = {0};
    struct fq_hello in = {.version_min = 1, .version_max = 3, .flags = 5}, out;
    fq_hello_encode(bytes, &in);
    cr_assert_arr_eq(bytes, "FLQ1\x10\0\x01\0\x03\0\0\0\x05\0\0\0", FQ_HELLO_WIRE_BYTES);
    cr_assert_eq(fq_hello_decode(bytes, sizeof bytes, &out, NULL), 0);
    cr_assert_eq(out.version_max, 3);
    cr_assert_eq(out.flags, 5u);
    uint16_t version = 0;
    cr_assert_eq(fq_hello_agree(&out, &version, NULL), 0);
    cr_assert_eq(version, 1);
    struct fq_err err;
    out.version_min = out.version_max = 9;
    cr_assert_eq(fq_hello_agree(&out, &version, &err), FLASHQ_ERR_VERSION);
    cr_assert(strstr(err.text, "9 to 9"), "%s", err.text);

    for (size_t cut = 0; cut < FQ_HELLO_WIRE_BYTES; cut++) {
        cr_assert_eq(fq_hello_decode(bytes, cut, &out, NULL), FLASHQ_ERR_PROTOCOL);
    }
    cr_assert_eq(fq_hello_decode("GET / HTTP/1.1\r\n\r\n", 18, &out, NULL), FLASHQ_ERR_PROTOCOL);

    struct fq_hello_reply reply = {.version = 1, .broker_id = 3, .shard = 1, .shards_count = 2},
                          got;
    memset(bytes, 0, sizeof bytes);
    fq_hello_reply_encode(bytes, &reply);
    cr_assert_eq(fq_hello_reply_decode(bytes, sizeof bytes, &got, NULL), 0);
    cr_assert_eq(got.broker_id, 3u);
    reply.shard = 2;
    fq_hello_reply_encode(bytes, &reply);
    cr_assert_eq(fq_hello_reply_decode(bytes, sizeof bytes, &got, NULL), FLASHQ_ERR_PROTOCOL);
}
