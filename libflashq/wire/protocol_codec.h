/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages to bytes and back (structs: protocol.h; field by field: PROTOCOL.md).
 *
 * Encoders write one whole message into `out` and return its length, FLASHQ_ERR_TOO_LARGE when it
 * does not fit into `capacity` (FQ_LIMIT_CONTROL_BYTES always suffices for what is not paged), or
 * FLASHQ_ERR_INVALID for a value that the peer's decoder would refuse (a name, a length, control
 * characters in a text): check names with fq_topic_name_check first, for the words.
 * Decoders take what fq_msg_decode returned and check every byte of the body: lengths and counts
 * against the bytes left, limits, tags in order, nothing left over. They return 0 or
 *   FLASHQ_ERR_PROTOCOL  the bytes break the protocol: the connection should end,
 *   FLASHQ_ERR_VERSION   the message's version is not one of ours,
 *   FLASHQ_ERR_INVALID, FLASHQ_ERR_TOO_LARGE   the message is well formed but a topic name in it is
 *                        not a legal one; the text names the offending byte: answer with it.
 * A decoder of an answer must not be called when msg->status is not 0: the body is the error text.
 *
 * Nothing here allocates or keeps state; any thread.
 */
#ifndef FQ_WIRE_PROTOCOL_CODEC_H
#define FQ_WIRE_PROTOCOL_CODEC_H

#include "wire/protocol.h"

/* Each line declares an encoder and a decoder of the message NAME with the struct BODY. */
#define FQ_DECLARE_MESSAGE(name, body)                                                             \
    int64_t fq_encode_##name(void *out, size_t capacity, uint32_t correlation,                     \
                             const struct body *in);                                               \
    int fq_decode_##name(const struct fq_msg *msg, struct body *ret, struct fq_err *err);

FQ_DECLARE_MESSAGE(session_open, fq_session_open)
FQ_DECLARE_MESSAGE(session_open_answer, fq_session_open_answer)
FQ_DECLARE_MESSAGE(metadata, fq_metadata)
FQ_DECLARE_MESSAGE(metadata_answer, fq_metadata_answer) /* encode with the builder below */
FQ_DECLARE_MESSAGE(topic_create, fq_topic_create)
FQ_DECLARE_MESSAGE(topic_create_answer, fq_topic_create_answer)
FQ_DECLARE_MESSAGE(topic_delete, fq_topic_name)
FQ_DECLARE_MESSAGE(topic_alter, fq_topic_alter)
FQ_DECLARE_MESSAGE(topic_describe, fq_topic_name)
FQ_DECLARE_MESSAGE(topic_describe_answer, fq_topic_describe_answer)
FQ_DECLARE_MESSAGE(partitions_add, fq_partitions_add)
FQ_DECLARE_MESSAGE(trim, fq_trim)
FQ_DECLARE_MESSAGE(trim_answer, fq_trim_answer)
FQ_DECLARE_MESSAGE(ring_open, fq_ring_open)
FQ_DECLARE_MESSAGE(ring_open_answer, fq_ring_open_answer)
FQ_DECLARE_MESSAGE(producer_open, fq_producer_open)
FQ_DECLARE_MESSAGE(producer_open_answer, fq_producer_open_answer)
FQ_DECLARE_MESSAGE(producer_close, fq_slot_ref)
FQ_DECLARE_MESSAGE(reader_open, fq_reader_open)
FQ_DECLARE_MESSAGE(reader_open_answer, fq_reader_open_answer)
FQ_DECLARE_MESSAGE(reader_close, fq_slot_ref)
FQ_DECLARE_MESSAGE(segment_open, fq_segment_open)
FQ_DECLARE_MESSAGE(segment_open_answer, fq_segment_open_answer)
FQ_DECLARE_MESSAGE(segment_close, fq_segment_close)
FQ_DECLARE_MESSAGE(reader_arm, fq_reader_arm)
FQ_DECLARE_MESSAGE(time_query, fq_time_query)
FQ_DECLARE_MESSAGE(time_query_answer, fq_time_query_answer)
FQ_DECLARE_MESSAGE(partition_describe, fq_partition_ref)
FQ_DECLARE_MESSAGE(partition_describe_answer, fq_partition_describe_answer)
FQ_DECLARE_MESSAGE(info, fq_info)
FQ_DECLARE_MESSAGE(info_answer, fq_info_answer) /* encode with the builder below */
FQ_DECLARE_MESSAGE(push_setup, fq_push_setup)
FQ_DECLARE_MESSAGE(push_setup_answer, fq_push_setup_answer)
FQ_DECLARE_MESSAGE(push_open, fq_push_open)
FQ_DECLARE_MESSAGE(push_open_answer, fq_push_open_answer)
FQ_DECLARE_MESSAGE(push_close, fq_push_close)
/* From the broker, without an answer; correlation 0. */
FQ_DECLARE_MESSAGE(push_stopped, fq_push_stopped)
FQ_DECLARE_MESSAGE(direct_window, fq_direct_window)
FQ_DECLARE_MESSAGE(slot_revoked, fq_slot_revoked)
FQ_DECLARE_MESSAGE(segment_retiring, fq_segment_retiring)
FQ_DECLARE_MESSAGE(goodbye, fq_goodbye)
FQ_DECLARE_MESSAGE(reader_reset, fq_reader_reset)

/* A message without a body: HEARTBEAT both ways, and the answers of TOPIC_DELETE, TOPIC_ALTER,
 * PARTITIONS_ADD, PRODUCER_CLOSE, READER_CLOSE, SEGMENT_CLOSE, PUSH_CLOSE. */
int64_t fq_encode_empty(void *out, size_t capacity, uint16_t type, bool is_answer,
                        uint32_t correlation);
int fq_decode_empty(const struct fq_msg *msg, struct fq_err *err);

/* The answer to a request of `type` that failed: status (negative) and a text, cut at
 * FQ_ERR_TEXT_BYTES - 1. `text` NULL: the words for the code. Fits into 1 KiB. */
int64_t fq_encode_error(void *out, size_t capacity, uint16_t type, uint32_t correlation, int status,
                        const char *text);

/* fq_msg_decode (protocol.h) checks the header and, in an answer with a status, the error text. It
 * accepts types and versions it does not know, so that they can be refused by an answer. */

/* Copies the status and text of a failed answer; returns the status. */
int fq_msg_error(const struct fq_msg *msg, struct fq_err *err);

/* ---- hello ---------------------------------------------------------------------------------- */

#define FQ_HELLO_WIRE_BYTES       16
#define FQ_HELLO_REPLY_WIRE_BYTES 20

/* Both fit FQ_LIMIT_HELLO_BYTES. What follows the known bytes is ignored: a newer peer's fields, or
 * the padding that librdmacm adds. Decoders: 0 or FLASHQ_ERR_PROTOCOL. */
void fq_hello_encode(uint8_t out[FQ_HELLO_WIRE_BYTES], const struct fq_hello *in);
int fq_hello_decode(const void *bytes, size_t length, struct fq_hello *ret, struct fq_err *err);
void fq_hello_reply_encode(uint8_t out[FQ_HELLO_REPLY_WIRE_BYTES], const struct fq_hello_reply *in);
int fq_hello_reply_decode(const void *bytes, size_t length, struct fq_hello_reply *ret,
                          struct fq_err *err);
/* The highest version both sides speak, or FLASHQ_ERR_VERSION with a text that names both ranges.
 */
int fq_hello_agree(const struct fq_hello *hello, uint16_t *ret_version, struct fq_err *err);

/* ---- names ---------------------------------------------------------------------------------- */

/* [a-zA-Z0-9._-]{1,249}, not "." or "..". FLASHQ_ERR_INVALID or FLASHQ_ERR_TOO_LARGE (over 249
 * bytes) with a text that names the offending byte and its position. */
int fq_topic_name_check(const char *data, size_t length, struct fq_err *err);

static inline struct fq_str fq_str_of(const char *data, size_t length)
{
    return (struct fq_str){.data = data, .length = length};
}
bool fq_str_equal(struct fq_str a, struct fq_str b);
/* Copies and terminates; false (and an empty string) when it does not fit. */
bool fq_str_copy(struct fq_str from, char *out, size_t capacity);

/* ---- lists ---------------------------------------------------------------------------------- */

/* Encode items into `buffer`; *ret points into it. 0 or FLASHQ_ERR_TOO_LARGE. */
int fq_strings_list(void *buffer, size_t capacity, const struct fq_str *items, size_t count,
                    struct fq_list *ret);
int fq_config_pairs_list(void *buffer, size_t capacity, const struct fq_config_pair *items,
                         size_t count, struct fq_list *ret);

/* Walking: `*rest` starts as a copy of the decoded list and shrinks. 1: *ret is the next item; 0:
 * no more; FLASHQ_ERR_PROTOCOL: malformed (never for a list that a decoder returned). */
int fq_strings_next(struct fq_list *rest, struct fq_str *ret);
int fq_config_pairs_next(struct fq_list *rest, struct fq_config_pair *ret);
int fq_counters_next(struct fq_list *rest, struct fq_counter *ret);

enum fq_metadata_kind { FQ_METADATA_BROKER = 1, FQ_METADATA_TOPIC = 2, FQ_METADATA_PARTITION = 3 };
struct fq_metadata_item {
    enum fq_metadata_kind kind;
    union {
        struct fq_broker_entry broker;
        struct fq_topic_entry topic;
        struct fq_partition_entry partition; /* of the last topic before it */
    };
};
/* Skips kinds it does not know. The decoder has checked that partitions follow a topic. */
int fq_metadata_next(struct fq_list *rest, struct fq_metadata_item *ret);

/* ---- pages ---------------------------------------------------------------------------------- */

/* Builds an answer that may go on on a next page. Space for the end of the page is kept aside, so
 * finish always works. */
struct fq_page {
    uint8_t *out;
    size_t capacity, used;
    uint32_t count;
};

/* 0, or FLASHQ_ERR_TOO_LARGE when `capacity` is under 2 KiB. `out` stays the caller's. */
int fq_metadata_answer_begin(struct fq_page *page, void *out, size_t capacity,
                             uint32_t correlation);
int fq_info_answer_begin(struct fq_page *page, void *out, size_t capacity, uint32_t correlation);
/* true: added; false: does not fit, nothing changed: finish this page with a cursor. Any one item
 * fits an empty page. */
bool fq_metadata_answer_add_broker(struct fq_page *page, const struct fq_broker_entry *entry);
bool fq_metadata_answer_add_topic(struct fq_page *page, const struct fq_topic_entry *entry);
bool fq_metadata_answer_add_partition(struct fq_page *page, const struct fq_partition_entry *entry);
bool fq_info_answer_add(struct fq_page *page, const struct fq_counter *counter);
/* `cursor`: at most FQ_CURSOR_BYTES; empty on the last page. Returns the message's length. */
int64_t fq_metadata_answer_finish(struct fq_page *page, struct fq_str cursor);
int64_t fq_info_answer_finish(struct fq_page *page, struct fq_str cursor);

#endif
