/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of every message: which members of its struct travel, in which order. PROTOCOL.md has
 * the same lists with their meaning. A field is added at the end with a tag of its own (OPTIONAL);
 * fixed fields change only with a new version of the protocol. Constant tables; any thread.
 */
#include "wire/body.h"
#include "wire/protocol_codec.h"

#define SIZE_OF(s, m) sizeof(((struct s *)0)->m)
/* clang-format off */
#define FIELD(k, s, m) \
    .kind = (k), .offset = offsetof(struct s, m), .size = SIZE_OF(s, m), .name = #m
#define INT(s, m) {FIELD(FQ_FIELD_INT, s, m)}
#define CHOICE(s, m, highest) {FIELD(FQ_FIELD_CHOICE, s, m), .most = (highest)}
#define BOOL(s, m) {FIELD(FQ_FIELD_BOOL, s, m)}
#define BYTES(s, m) {FIELD(FQ_FIELD_BYTES, s, m)}
#define TEXT(s, m, limit) {FIELD(FQ_FIELD_TEXT, s, m), .most = (limit)}
#define OPTIONAL_TEXT(number, s, m, limit) \
    {FIELD(FQ_FIELD_TEXT, s, m), .most = (limit), .tag = (number)}
#define TOPIC(s, m) {FIELD(FQ_FIELD_TOPIC, s, m)}
#define OPAQUE(s, m, limit) {FIELD(FQ_FIELD_OPAQUE, s, m), .most = (limit)}
#define LIST(s, m, check) {FIELD(FQ_FIELD_LIST, s, m), .list = (check)}
/* clang-format on */

#define SOFTWARE_BYTES 128
#define WORDS_BYTES    255 /* texts for people */

static const struct fq_field session_open_fields[] = {
    TEXT(fq_session_open, client_id, FQ_LIMIT_CLIENT_ID_BYTES),
    TEXT(fq_session_open, software, SOFTWARE_BYTES),
    INT(fq_session_open, heartbeat_ms),
};
static const struct fq_field session_open_answer_fields[] = {
    BYTES(fq_session_open_answer, cluster_id),
    BYTES(fq_session_open_answer, boot_id),
    INT(fq_session_open_answer, heartbeat_ms),
    INT(fq_session_open_answer, message_max_bytes),
    INT(fq_session_open_answer, batch_max_bytes),
    INT(fq_session_open_answer, max_in_flight),
    INT(fq_session_open_answer, views_count),
    BYTES(fq_session_open_answer, views_token),
    TEXT(fq_session_open_answer, software, SOFTWARE_BYTES),
    OPTIONAL_TEXT(1, fq_session_open_answer, shm_path, FQ_LIMIT_PATH_BYTES),
    OPTIONAL_TEXT(2, fq_session_open_answer, storage, FQ_LIMIT_STORAGE_TEXT_BYTES),
};

static const struct fq_field metadata_fields[] = {
    LIST(fq_metadata, names, fq_list_check_topic_name),
    OPAQUE(fq_metadata, cursor, FQ_CURSOR_BYTES),
};
static const struct fq_field metadata_answer_fields[] = {
    LIST(fq_metadata_answer, items, fq_list_check_metadata),
    OPAQUE(fq_metadata_answer, cursor, FQ_CURSOR_BYTES),
};
static const struct fq_field broker_entry_fields[] = {
    INT(fq_broker_entry, id),
    TEXT(fq_broker_entry, host, FQ_LIMIT_HOST_BYTES),
    INT(fq_broker_entry, port),
    INT(fq_broker_entry, shards_count),
};
static const struct fq_field topic_entry_fields[] = {
    INT(fq_topic_entry, status),
    TOPIC(fq_topic_entry, name),
    BYTES(fq_topic_entry, id),
    INT(fq_topic_entry, partitions_total),
    CHOICE(fq_topic_entry, append_mode, 1),
    CHOICE(fq_topic_entry, durability, 1),
};
static const struct fq_field partition_entry_fields[] = {
    INT(fq_partition_entry, index),
    INT(fq_partition_entry, status),
    INT(fq_partition_entry, leader),
    INT(fq_partition_entry, shard),
    INT(fq_partition_entry, leader_epoch),
    INT(fq_partition_entry, log_start),
    INT(fq_partition_entry, end),
    INT(fq_partition_entry, bytes),
    TEXT(fq_partition_entry, medium, WORDS_BYTES),
};

static const struct fq_field topic_create_fields[] = {
    TOPIC(fq_topic_create, name),
    INT(fq_topic_create, partitions),
    INT(fq_topic_create, replicas),
    BOOL(fq_topic_create, validate_only),
    LIST(fq_topic_create, configs, fq_list_check_config_pair),
};
static const struct fq_field topic_create_answer_fields[] = {
    BYTES(fq_topic_create_answer, id),
    INT(fq_topic_create_answer, partitions),
    INT(fq_topic_create_answer, replicas),
};
static const struct fq_field topic_name_fields[] = {
    TOPIC(fq_topic_name, name),
};
static const struct fq_field topic_describe_answer_fields[] = {
    BYTES(fq_topic_describe_answer, id),
    INT(fq_topic_describe_answer, partitions),
    INT(fq_topic_describe_answer, replicas),
    INT(fq_topic_describe_answer, created_ms),
    LIST(fq_topic_describe_answer, configs, fq_list_check_config_pair),
};
static const struct fq_field topic_alter_fields[] = {
    TOPIC(fq_topic_alter, name),
    BOOL(fq_topic_alter, validate_only),
    LIST(fq_topic_alter, configs, fq_list_check_config_pair),
};
static const struct fq_field partitions_add_fields[] = {
    TOPIC(fq_partitions_add, name),
    INT(fq_partitions_add, total),
};
static const struct fq_field trim_fields[] = {
    TOPIC(fq_trim, name),
    INT(fq_trim, partition),
    INT(fq_trim, before_offset),
};
static const struct fq_field trim_answer_fields[] = {
    INT(fq_trim_answer, log_start),
};

static const struct fq_field ring_open_fields[] = {
    INT(fq_ring_open, entries),
    BYTES(fq_ring_open, ack_token),
};
static const struct fq_field ring_open_answer_fields[] = {
    INT(fq_ring_open_answer, window_bytes),
    INT(fq_ring_open_answer, entries),
    BYTES(fq_ring_open_answer, window_token),
};
static const struct fq_field producer_open_fields[] = {
    BYTES(fq_producer_open, topic_id),    INT(fq_producer_open, partition),
    INT(fq_producer_open, producer_id),   INT(fq_producer_open, producer_epoch),
    INT(fq_producer_open, next_sequence), CHOICE(fq_producer_open, acks, FQ_ACKS_NONE),
    CHOICE(fq_producer_open, mode, 1),
};
static const struct fq_field producer_open_answer_fields[] = {
    INT(fq_producer_open_answer, slot),
    INT(fq_producer_open_answer, leader_epoch),
    INT(fq_producer_open_answer, last_sequence),
    INT(fq_producer_open_answer, last_offset),
    INT(fq_producer_open_answer, end),
    INT(fq_producer_open_answer, max_in_flight),
    INT(fq_producer_open_answer, message_max_bytes),
};
static const struct fq_field slot_ref_fields[] = {
    INT(fq_slot_ref, slot),
};

static const struct fq_field reader_open_fields[] = {
    BYTES(fq_reader_open, topic_id),
    INT(fq_reader_open, partition),
};
static const struct fq_field reader_open_answer_fields[] = {
    INT(fq_reader_open_answer, reader),
    INT(fq_reader_open_answer, view_line),
    INT(fq_reader_open_answer, view_generation),
    INT(fq_reader_open_answer, log_start),
    INT(fq_reader_open_answer, end),
    INT(fq_reader_open_answer, leader_epoch),
};
static const struct fq_field segment_open_fields[] = {
    INT(fq_segment_open, reader),
    INT(fq_segment_open, offset),
};
static const struct fq_field segment_open_answer_fields[] = {
    INT(fq_segment_open_answer, segment_id),       INT(fq_segment_open_answer, base_offset),
    INT(fq_segment_open_answer, next_base_offset), INT(fq_segment_open_answer, data_bytes),
    INT(fq_segment_open_answer, window_bytes),     INT(fq_segment_open_answer, window_offset),
    INT(fq_segment_open_answer, position),         INT(fq_segment_open_answer, position_offset),
    BOOL(fq_segment_open_answer, is_sealed),       BYTES(fq_segment_open_answer, token),
};
static const struct fq_field segment_close_fields[] = {
    INT(fq_segment_close, reader),
    INT(fq_segment_close, segment_id),
};
static const struct fq_field segment_retiring_fields[] = {
    INT(fq_segment_retiring, reader),
    INT(fq_segment_retiring, segment_id),
    INT(fq_segment_retiring, within_ms),
};
static const struct fq_field reader_arm_fields[] = {
    INT(fq_reader_arm, reader),
    INT(fq_reader_arm, offset),
};
static const struct fq_field reader_reset_fields[] = {
    INT(fq_reader_reset, reader),
    INT(fq_reader_reset, reason),
    INT(fq_reader_reset, log_start),
    INT(fq_reader_reset, end),
};

static const struct fq_field push_setup_fields[] = {
    INT(fq_push_setup, lines),
    BYTES(fq_push_setup, heads_token),
};
static const struct fq_field push_setup_answer_fields[] = {
    INT(fq_push_setup_answer, lines),
    BYTES(fq_push_setup_answer, credits_token),
};
static const struct fq_field push_open_fields[] = {
    INT(fq_push_open, reader), INT(fq_push_open, line),        INT(fq_push_open, offset),
    INT(fq_push_open, ring_bytes), BYTES(fq_push_open, ring_token),
};
static const struct fq_field push_open_answer_fields[] = {
    INT(fq_push_open_answer, position_offset),
};
static const struct fq_field push_close_fields[] = {
    INT(fq_push_close, reader),
};
static const struct fq_field push_stopped_fields[] = {
    INT(fq_push_stopped, reader),
    INT(fq_push_stopped, reason),
    INT(fq_push_stopped, log_start),
    INT(fq_push_stopped, end),
};
static const struct fq_field direct_window_fields[] = {
    INT(fq_direct_window, slot),
    INT(fq_direct_window, number),
    INT(fq_direct_window, window_bytes),
    BYTES(fq_direct_window, token),
};
static const struct fq_field slot_revoked_fields[] = {
    INT(fq_slot_revoked, slot),
    INT(fq_slot_revoked, reason),
};

static const struct fq_field time_query_fields[] = {
    BYTES(fq_time_query, topic_id),
    INT(fq_time_query, partition),
    INT(fq_time_query, timestamp_ms),
    INT(fq_time_query, from_offset),
};
static const struct fq_field time_query_answer_fields[] = {
    CHOICE(fq_time_query_answer, result, FQ_TIME_END),
    INT(fq_time_query_answer, offset),
    INT(fq_time_query_answer, timestamp_ms),
    INT(fq_time_query_answer, next_offset),
    INT(fq_time_query_answer, cost_nodes),
    INT(fq_time_query_answer, cost_bytes),
};
static const struct fq_field partition_ref_fields[] = {
    TOPIC(fq_partition_ref, topic),
    INT(fq_partition_ref, partition),
};
static const struct fq_field partition_describe_answer_fields[] = {
    INT(fq_partition_describe_answer, log_start),
    INT(fq_partition_describe_answer, end),
    INT(fq_partition_describe_answer, end_appended),
    INT(fq_partition_describe_answer, leader_epoch),
    INT(fq_partition_describe_answer, leader),
    INT(fq_partition_describe_answer, shard),
    INT(fq_partition_describe_answer, segments_count),
    INT(fq_partition_describe_answer, bytes),
    INT(fq_partition_describe_answer, damage_count),
    INT(fq_partition_describe_answer, producers_count),
    TEXT(fq_partition_describe_answer, medium, WORDS_BYTES),
    TEXT(fq_partition_describe_answer, state, WORDS_BYTES),
};
static const struct fq_field info_fields[] = {
    OPAQUE(fq_info, cursor, FQ_CURSOR_BYTES),
};
static const struct fq_field info_answer_fields[] = {
    LIST(fq_info_answer, counters, fq_list_check_counter),
    OPAQUE(fq_info_answer, cursor, FQ_CURSOR_BYTES),
};
static const struct fq_field goodbye_fields[] = {
    INT(fq_goodbye, within_ms),
    TEXT(fq_goodbye, text, WORDS_BYTES),
};

#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])
#define ITEM(item)                                                                                 \
    const struct fq_body fq_body_##item = {                                                        \
        .name = #item, .fields = item##_fields, .fields_count = COUNT_OF(item##_fields)};
ITEM(broker_entry)
ITEM(topic_entry)
ITEM(partition_entry)

/* Defines the layout, the encoder and the decoder of one message. */
#define MESSAGE(name_, type_, layout)                                                              \
    static const struct fq_body name_##_body = {.name = #name_,                                    \
                                                .type = (type_),                                   \
                                                .fields = layout##_fields,                         \
                                                .fields_count = COUNT_OF(layout##_fields)};        \
    int64_t fq_encode_##name_(void *out, size_t capacity, uint32_t correlation,                    \
                              const struct fq_##layout *in)                                        \
    {                                                                                              \
        return fq_body_encode(&name_##_body, out, capacity, correlation, in);                      \
    }                                                                                              \
    int fq_decode_##name_(const struct fq_msg *msg, struct fq_##layout *ret, struct fq_err *err)   \
    {                                                                                              \
        struct fq_##layout decoded;                                                                \
        memset(&decoded, 0, sizeof decoded);                                                       \
        int rc = fq_body_decode(&name_##_body, msg, &decoded, err);                                \
        if (rc == 0) {                                                                             \
            *ret = decoded;                                                                        \
        }                                                                                          \
        return rc;                                                                                 \
    }

MESSAGE(session_open, FQ_MSG_SESSION_OPEN, session_open)
MESSAGE(session_open_answer, FQ_MSG_SESSION_OPEN | FQ_MSG_ANSWER, session_open_answer)
MESSAGE(metadata, FQ_MSG_METADATA, metadata)
MESSAGE(metadata_answer, FQ_MSG_METADATA | FQ_MSG_ANSWER, metadata_answer)
MESSAGE(topic_create, FQ_MSG_TOPIC_CREATE, topic_create)
MESSAGE(topic_create_answer, FQ_MSG_TOPIC_CREATE | FQ_MSG_ANSWER, topic_create_answer)
MESSAGE(topic_delete, FQ_MSG_TOPIC_DELETE, topic_name)
MESSAGE(topic_alter, FQ_MSG_TOPIC_ALTER, topic_alter)
MESSAGE(topic_describe, FQ_MSG_TOPIC_DESCRIBE, topic_name)
MESSAGE(topic_describe_answer, FQ_MSG_TOPIC_DESCRIBE | FQ_MSG_ANSWER, topic_describe_answer)
MESSAGE(partitions_add, FQ_MSG_PARTITIONS_ADD, partitions_add)
MESSAGE(trim, FQ_MSG_TRIM, trim)
MESSAGE(trim_answer, FQ_MSG_TRIM | FQ_MSG_ANSWER, trim_answer)
MESSAGE(ring_open, FQ_MSG_RING_OPEN, ring_open)
MESSAGE(ring_open_answer, FQ_MSG_RING_OPEN | FQ_MSG_ANSWER, ring_open_answer)
MESSAGE(producer_open, FQ_MSG_PRODUCER_OPEN, producer_open)
MESSAGE(producer_open_answer, FQ_MSG_PRODUCER_OPEN | FQ_MSG_ANSWER, producer_open_answer)
MESSAGE(producer_close, FQ_MSG_PRODUCER_CLOSE, slot_ref)
MESSAGE(reader_open, FQ_MSG_READER_OPEN, reader_open)
MESSAGE(reader_open_answer, FQ_MSG_READER_OPEN | FQ_MSG_ANSWER, reader_open_answer)
MESSAGE(reader_close, FQ_MSG_READER_CLOSE, slot_ref)
MESSAGE(segment_open, FQ_MSG_SEGMENT_OPEN, segment_open)
MESSAGE(segment_open_answer, FQ_MSG_SEGMENT_OPEN | FQ_MSG_ANSWER, segment_open_answer)
MESSAGE(segment_close, FQ_MSG_SEGMENT_CLOSE, segment_close)
MESSAGE(reader_arm, FQ_MSG_READER_ARM, reader_arm)
MESSAGE(time_query, FQ_MSG_TIME_QUERY, time_query)
MESSAGE(time_query_answer, FQ_MSG_TIME_QUERY | FQ_MSG_ANSWER, time_query_answer)
MESSAGE(partition_describe, FQ_MSG_PARTITION_DESCRIBE, partition_ref)
MESSAGE(partition_describe_answer, FQ_MSG_PARTITION_DESCRIBE | FQ_MSG_ANSWER,
        partition_describe_answer)
MESSAGE(info, FQ_MSG_INFO, info)
MESSAGE(info_answer, FQ_MSG_INFO | FQ_MSG_ANSWER, info_answer)
MESSAGE(segment_retiring, FQ_MSG_SEGMENT_RETIRING, segment_retiring)
MESSAGE(goodbye, FQ_MSG_GOODBYE, goodbye)
MESSAGE(reader_reset, FQ_MSG_READER_RESET, reader_reset)
MESSAGE(push_setup, FQ_MSG_PUSH_SETUP, push_setup)
MESSAGE(push_setup_answer, FQ_MSG_PUSH_SETUP | FQ_MSG_ANSWER, push_setup_answer)
MESSAGE(push_open, FQ_MSG_PUSH_OPEN, push_open)
MESSAGE(push_open_answer, FQ_MSG_PUSH_OPEN | FQ_MSG_ANSWER, push_open_answer)
MESSAGE(push_close, FQ_MSG_PUSH_CLOSE, push_close)
MESSAGE(push_stopped, FQ_MSG_PUSH_STOPPED, push_stopped)
MESSAGE(direct_window, FQ_MSG_DIRECT_WINDOW, direct_window)
MESSAGE(slot_revoked, FQ_MSG_SLOT_REVOKED, slot_revoked)
