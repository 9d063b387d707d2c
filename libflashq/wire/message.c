/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of control messages, messages without a body, refusals, and the hello. A header that
 * is malformed means that the peer does not speak this protocol: the connection should end. No
 * state; any thread.
 */
#include <string.h>

#include "wire/body.h"
#include "wire/protocol_codec.h"

static const char *const names[FQ_MSG_TYPE_LAST + 1] = {
    [FQ_MSG_SESSION_OPEN] = "session_open",
    [FQ_MSG_METADATA] = "metadata",
    [FQ_MSG_TOPIC_CREATE] = "topic_create",
    [FQ_MSG_TOPIC_DELETE] = "topic_delete",
    [FQ_MSG_TOPIC_ALTER] = "topic_alter",
    [FQ_MSG_TOPIC_DESCRIBE] = "topic_describe",
    [FQ_MSG_PARTITIONS_ADD] = "partitions_add",
    [FQ_MSG_TRIM] = "trim",
    [FQ_MSG_RING_OPEN] = "ring_open",
    [FQ_MSG_PRODUCER_OPEN] = "producer_open",
    [FQ_MSG_PRODUCER_CLOSE] = "producer_close",
    [FQ_MSG_READER_OPEN] = "reader_open",
    [FQ_MSG_READER_CLOSE] = "reader_close",
    [FQ_MSG_SEGMENT_OPEN] = "segment_open",
    [FQ_MSG_SEGMENT_CLOSE] = "segment_close",
    [FQ_MSG_READER_ARM] = "reader_arm",
    [FQ_MSG_TIME_QUERY] = "time_query",
    [FQ_MSG_PARTITION_DESCRIBE] = "partition_describe",
    [FQ_MSG_INFO] = "info",
    [FQ_MSG_HEARTBEAT] = "heartbeat",
    [FQ_MSG_SEGMENT_RETIRING] = "segment_retiring",
    [FQ_MSG_GOODBYE] = "goodbye",
    [FQ_MSG_READER_RESET] = "reader_reset",
    [FQ_MSG_PUSH_SETUP] = "push_setup",
    [FQ_MSG_PUSH_OPEN] = "push_open",
    [FQ_MSG_PUSH_CLOSE] = "push_close",
    [FQ_MSG_PUSH_STOPPED] = "push_stopped",
    [FQ_MSG_DIRECT_WINDOW] = "direct_window",
    [FQ_MSG_SLOT_REVOKED] = "slot_revoked",
};

const char *fq_msg_name(uint16_t type)
{
    type = (uint16_t)(type & ~FQ_MSG_ANSWER);
    return type <= FQ_MSG_TYPE_LAST && names[type] ? names[type] : "unknown";
}

void fq_msg_header_write(struct fq_writer *w, uint16_t type, uint32_t correlation, int32_t status)
{
    fq_write_u16(w, type);
    fq_write_u16(w, FQ_PROTOCOL_VERSION_MAX);
    fq_write_u32(w, correlation);
    fq_write_u32(w, (uint32_t)status);
}

/* An answer that failed: its body is the text, and tagged fields of newer releases. */
static int read_error_text(struct fq_msg *msg, struct fq_err *err)
{
    static const struct fq_field text_field[] = {
        {.kind = FQ_FIELD_OPAQUE, .most = FQ_ERR_TEXT_BYTES - 1, .name = "text"},
    };
    static const struct fq_body text_body = {
        .name = "error", .fields_count = 1, .fields = text_field};
    struct fq_reader r;
    fq_reader_init(&r, msg->body, msg->body_length);
    return fq_body_read(&text_body, &r, &msg->error_text, err);
}

int fq_msg_decode(const void *bytes, size_t length, struct fq_msg *ret, struct fq_err *err)
{
    if (length < FQ_MSG_HEADER_BYTES || length > FQ_LIMIT_CONTROL_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "a control message of %zu bytes; it has %d to %u bytes", length,
                          FQ_MSG_HEADER_BYTES, FQ_LIMIT_CONTROL_BYTES);
    }
    struct fq_reader r;
    fq_reader_init(&r, bytes, length);
    unsigned type = fq_read_u16(&r);
    struct fq_msg msg = {
        .type = (uint16_t)(type & ~FQ_MSG_ANSWER),
        .is_answer = (type & FQ_MSG_ANSWER) != 0,
        .version = fq_read_u16(&r),
    };
    msg.correlation = fq_read_u32(&r);
    msg.status = (int32_t)fq_read_u32(&r);
    msg.body = r.at;
    msg.body_length = fq_reader_left(&r);
    if (msg.status > 0 || (msg.status != 0 && !msg.is_answer)) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s%s with status %d", fq_msg_name(msg.type),
                          msg.is_answer ? "_answer" : "", (int)msg.status);
    }
    if (msg.status != 0) {
        int rc = read_error_text(&msg, err);
        if (rc != 0) {
            return rc;
        }
    }
    *ret = msg;
    return 0;
}

int64_t fq_encode_empty(void *out, size_t capacity, uint16_t type, bool is_answer,
                        uint32_t correlation)
{
    struct fq_body body = {.type = (uint16_t)(type | (is_answer ? FQ_MSG_ANSWER : 0))};
    return fq_body_encode(&body, out, capacity, correlation, out);
}

int fq_decode_empty(const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_body body = {
        .name = fq_msg_name(msg->type),
        .type = (uint16_t)(msg->type | (msg->is_answer ? FQ_MSG_ANSWER : 0)),
    };
    uint8_t nothing;
    return fq_body_decode(&body, msg, &nothing, err);
}

int64_t fq_encode_error(void *out, size_t capacity, uint16_t type, uint32_t correlation, int status,
                        const char *text)
{
    if (!text) {
        text = fq_err_describe(status);
    }
    struct fq_writer w;
    fq_writer_init(&w, out, capacity);
    fq_msg_header_write(&w, (uint16_t)(type | FQ_MSG_ANSWER), correlation,
                        status < 0 ? status : FLASHQ_ERR_FAILED);
    fq_write_str(&w, text, strnlen(text, FQ_ERR_TEXT_BYTES - 1));
    return w.failed ? FLASHQ_ERR_TOO_LARGE : (int64_t)fq_writer_used(&w);
}

int fq_msg_error(const struct fq_msg *msg, struct fq_err *err)
{
    char text[FQ_ERR_TEXT_BYTES];
    size_t length = msg->error_text.length < sizeof text ? msg->error_text.length : sizeof text - 1;
    for (size_t i = 0; i < length; i++) { /* a terminal will show it */
        char c = msg->error_text.data[i];
        text[i] = fq_text_ok(&c, 1) ? c : ' ';
    }
    text[length] = '\0';
    return fq_err_set(err, msg->status, "%s", length > 0 ? text : fq_err_describe(msg->status));
}

/* ---- hello ---------------------------------------------------------------------------------- */

static const uint8_t hello_magic[4] = {'F', 'L', 'Q', '1'};

_Static_assert(FQ_HELLO_WIRE_BYTES <= FQ_LIMIT_HELLO_BYTES, "a hello fits the private data");
_Static_assert(FQ_HELLO_REPLY_WIRE_BYTES <= FQ_LIMIT_HELLO_BYTES, "a reply fits the private data");

static void hello_begin(uint8_t *out, size_t length)
{
    memcpy(out, hello_magic, sizeof hello_magic);
    fq_store_le16(out + 4, (uint16_t)length);
}

/* Checks magic and length; leaves the reader behind them. */
static int hello_check(struct fq_reader *r, const void *bytes, size_t length, size_t known,
                       struct fq_err *err)
{
    fq_reader_init(r, bytes, length);
    const uint8_t *magic = fq_read_bytes(r, sizeof hello_magic);
    size_t claimed = fq_read_u16(r);
    if (r->failed || !magic || memcmp(magic, hello_magic, sizeof hello_magic) != 0) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the hello is not FlashQ's: no magic \"FLQ1\"");
    }
    if (claimed < known || claimed > length) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "the hello claims %zu bytes; at least %zu are needed, %zu came", claimed,
                          known, length);
    }
    return 0;
}

void fq_hello_encode(uint8_t out[FQ_HELLO_WIRE_BYTES], const struct fq_hello *in)
{
    hello_begin(out, FQ_HELLO_WIRE_BYTES);
    fq_store_le16(out + 6, in->version_min);
    fq_store_le16(out + 8, in->version_max);
    fq_store_le16(out + 10, 0);
    fq_store_le32(out + 12, in->flags);
}

int fq_hello_decode(const void *bytes, size_t length, struct fq_hello *ret, struct fq_err *err)
{
    struct fq_reader r;
    int rc = hello_check(&r, bytes, length, FQ_HELLO_WIRE_BYTES, err);
    if (rc != 0) {
        return rc;
    }
    struct fq_hello hello = {.version_min = fq_read_u16(&r)};
    hello.version_max = fq_read_u16(&r);
    (void)fq_read_u16(&r);
    hello.flags = fq_read_u32(&r);
    if (hello.version_min == 0 || hello.version_min > hello.version_max) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the hello offers versions %u to %u",
                          (unsigned)hello.version_min, (unsigned)hello.version_max);
    }
    *ret = hello;
    return 0;
}

int fq_hello_agree(const struct fq_hello *hello, uint16_t *ret_version, struct fq_err *err)
{
    if (hello->version_min > FQ_PROTOCOL_VERSION_MAX ||
        hello->version_max < FQ_PROTOCOL_VERSION_MIN) {
        return fq_err_set(err, FLASHQ_ERR_VERSION,
                          "the peer speaks protocol versions %u to %u, this side %d to %d",
                          (unsigned)hello->version_min, (unsigned)hello->version_max,
                          FQ_PROTOCOL_VERSION_MIN, FQ_PROTOCOL_VERSION_MAX);
    }
    *ret_version =
        hello->version_max < FQ_PROTOCOL_VERSION_MAX ? hello->version_max : FQ_PROTOCOL_VERSION_MAX;
    return 0;
}

void fq_hello_reply_encode(uint8_t out[FQ_HELLO_REPLY_WIRE_BYTES], const struct fq_hello_reply *in)
{
    hello_begin(out, FQ_HELLO_REPLY_WIRE_BYTES);
    fq_store_le16(out + 6, in->version);
    fq_store_le32(out + 8, in->broker_id);
    fq_store_le32(out + 12, in->shard);
    fq_store_le32(out + 16, in->shards_count);
}

int fq_hello_reply_decode(const void *bytes, size_t length, struct fq_hello_reply *ret,
                          struct fq_err *err)
{
    struct fq_reader r;
    int rc = hello_check(&r, bytes, length, FQ_HELLO_REPLY_WIRE_BYTES, err);
    if (rc != 0) {
        return rc;
    }
    struct fq_hello_reply reply = {.version = fq_read_u16(&r)};
    reply.broker_id = fq_read_u32(&r);
    reply.shard = fq_read_u32(&r);
    reply.shards_count = fq_read_u32(&r);
    if (reply.version < FQ_PROTOCOL_VERSION_MIN || reply.version > FQ_PROTOCOL_VERSION_MAX) {
        return fq_err_set(err, FLASHQ_ERR_VERSION, "the broker chose protocol version %u",
                          (unsigned)reply.version);
    }
    if (reply.shards_count > FQ_LIMIT_SHARDS || reply.shard >= reply.shards_count) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the hello's reply names shard %u of %u",
                          (unsigned)reply.shard, (unsigned)reply.shards_count);
    }
    *ret = reply;
    return 0;
}
