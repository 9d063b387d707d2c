/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a broker sends: the reply to a hello, and a control message decoded as every
 * answer and every message the broker sends by itself.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

CONTROL_CHECK(session_open_answer, fq_session_open_answer)
CONTROL_CHECK(metadata_answer, fq_metadata_answer)
CONTROL_CHECK(topic_create_answer, fq_topic_create_answer)
CONTROL_CHECK(topic_describe_answer, fq_topic_describe_answer)
CONTROL_CHECK(trim_answer, fq_trim_answer)
CONTROL_CHECK(ring_open_answer, fq_ring_open_answer)
CONTROL_CHECK(producer_open_answer, fq_producer_open_answer)
CONTROL_CHECK(reader_open_answer, fq_reader_open_answer)
CONTROL_CHECK(segment_open_answer, fq_segment_open_answer)
CONTROL_CHECK(time_query_answer, fq_time_query_answer)
CONTROL_CHECK(partition_describe_answer, fq_partition_describe_answer)
CONTROL_CHECK(info_answer, fq_info_answer)
CONTROL_CHECK(segment_retiring, fq_segment_retiring)
CONTROL_CHECK(goodbye, fq_goodbye)
CONTROL_CHECK(reader_reset, fq_reader_reset)
CONTROL_CHECK(push_setup_answer, fq_push_setup_answer)
CONTROL_CHECK(push_open_answer, fq_push_open_answer)
CONTROL_CHECK(push_stopped, fq_push_stopped)
CONTROL_CHECK(direct_window, fq_direct_window)
CONTROL_CHECK(slot_revoked, fq_slot_revoked)

static void (*const checks[])(const struct fq_msg *msg) = {
    check_session_open_answer,
    check_metadata_answer,
    check_topic_create_answer,
    check_topic_describe_answer,
    check_trim_answer,
    check_ring_open_answer,
    check_producer_open_answer,
    check_reader_open_answer,
    check_segment_open_answer,
    check_time_query_answer,
    check_partition_describe_answer,
    check_info_answer,
    check_segment_retiring,
    check_goodbye,
    check_reader_reset,
    check_push_setup_answer,
    check_push_open_answer,
    check_push_stopped,
    check_direct_window,
    check_slot_revoked,
};

static void walk_lists(const struct fq_msg *msg)
{
    struct fq_metadata_answer metadata;
    struct fq_metadata_item item;
    struct fq_info_answer info;
    struct fq_counter counter;
    bool has_topic = false;
    if (fq_decode_metadata_answer(msg, &metadata, NULL) == 0) {
        int rc;
        while ((rc = fq_metadata_next(&metadata.items, &item)) == 1) {
            has_topic = has_topic || item.kind == FQ_METADATA_TOPIC;
            must(item.kind != FQ_METADATA_PARTITION || has_topic);
        }
        must(rc == 0);
    }
    if (fq_decode_info_answer(msg, &info, NULL) == 0) {
        for (uint32_t i = 0, count = info.counters.count; i <= count; i++) {
            must(fq_counters_next(&info.counters, &counter) == (i < count ? 1 : 0));
        }
    }
}

/* A list nobody decoded: the walkers must cope with any bytes. */
static void walk_anything(const uint8_t *data, size_t size)
{
    struct fq_list list = {.bytes = data, .length = size, .count = UINT32_MAX};
    struct fq_metadata_item item;
    struct fq_counter counter;
    struct fq_str string;
    while (fq_metadata_next(&list, &item) == 1) {
    }
    list = (struct fq_list){.bytes = data, .length = size, .count = UINT32_MAX};
    while (fq_counters_next(&list, &counter) == 1) {
    }
    list = (struct fq_list){.bytes = data, .length = size, .count = UINT32_MAX};
    while (fq_strings_next(&list, &string) == 1) {
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fq_err err;
    struct fq_hello_reply reply;
    (void)fq_hello_reply_decode(data, size, &reply, &err);
    walk_anything(data, size);
    struct fq_msg msg;
    if (fq_msg_decode(data, size, &msg, &err) != 0) {
        return 0;
    }
    if (msg.status != 0) {
        must(fq_msg_error(&msg, &err) == msg.status && strlen(err.text) > 0);
    }
    (void)fq_decode_empty(&msg, &err);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        checks[i](&msg);
    }
    walk_lists(&msg);
    return 0;
}
