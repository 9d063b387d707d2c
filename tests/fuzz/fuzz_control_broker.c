/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a client sends: the hello, and a control message decoded as every request. A
 * message that its own decoder accepts must give the same values when encoded and decoded again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

CONTROL_CHECK(session_open, fq_session_open)
CONTROL_CHECK(metadata, fq_metadata)
CONTROL_CHECK(topic_create, fq_topic_create)
CONTROL_CHECK(topic_delete, fq_topic_name)
CONTROL_CHECK(topic_alter, fq_topic_alter)
CONTROL_CHECK(topic_describe, fq_topic_name)
CONTROL_CHECK(partitions_add, fq_partitions_add)
CONTROL_CHECK(trim, fq_trim)
CONTROL_CHECK(ring_open, fq_ring_open)
CONTROL_CHECK(producer_open, fq_producer_open)
CONTROL_CHECK(producer_close, fq_slot_ref)
CONTROL_CHECK(reader_open, fq_reader_open)
CONTROL_CHECK(reader_close, fq_slot_ref)
CONTROL_CHECK(segment_open, fq_segment_open)
CONTROL_CHECK(segment_close, fq_segment_close)
CONTROL_CHECK(reader_arm, fq_reader_arm)
CONTROL_CHECK(time_query, fq_time_query)
CONTROL_CHECK(partition_describe, fq_partition_ref)
CONTROL_CHECK(info, fq_info)
CONTROL_CHECK(push_setup, fq_push_setup)
CONTROL_CHECK(push_open, fq_push_open)
CONTROL_CHECK(push_close, fq_push_close)

static void (*const checks[])(const struct fq_msg *msg) = {
    check_session_open, check_metadata,           check_topic_create,   check_topic_delete,
    check_topic_alter,  check_topic_describe,     check_partitions_add, check_trim,
    check_ring_open,    check_producer_open,      check_producer_close, check_reader_open,
    check_reader_close, check_segment_open,       check_segment_close,  check_reader_arm,
    check_time_query,   check_partition_describe, check_info,           check_push_setup,
    check_push_open,    check_push_close,
};

static void walk_lists(const struct fq_msg *msg)
{
    struct fq_metadata metadata;
    struct fq_topic_create create;
    struct fq_topic_alter alter;
    struct fq_str name;
    struct fq_config_pair pair;
    if (fq_decode_metadata(msg, &metadata, NULL) == 0) {
        for (uint32_t i = 0, count = metadata.names.count; i <= count; i++) {
            must(fq_strings_next(&metadata.names, &name) == (i < count ? 1 : 0));
        }
    }
    if (fq_decode_topic_create(msg, &create, NULL) == 0) {
        must(fq_topic_name_check(create.name.data, create.name.length, NULL) == 0);
        for (uint32_t i = 0, count = create.configs.count; i <= count; i++) {
            must(fq_config_pairs_next(&create.configs, &pair) == (i < count ? 1 : 0));
        }
    }
    if (fq_decode_topic_alter(msg, &alter, NULL) == 0) {
        while (fq_config_pairs_next(&alter.configs, &pair) == 1) {
            must(pair.key.length <= UINT16_MAX);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fq_err err;
    struct fq_hello hello;
    uint16_t version;
    if (fq_hello_decode(data, size, &hello, &err) == 0) {
        (void)fq_hello_agree(&hello, &version, &err);
    }
    (void)fq_topic_name_check((const char *)data, size, &err);
    struct fq_msg msg;
    if (fq_msg_decode(data, size, &msg, &err) != 0) {
        return 0;
    }
    (void)fq_decode_empty(&msg, &err);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        checks[i](&msg);
    }
    walk_lists(&msg);
    return 0;
}
