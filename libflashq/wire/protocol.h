/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control protocol: small two-sided messages beside the one-sided data path. PROTOCOL.md is
 * the reference; this header is its C form.
 *
 * A message is {u16 type, u16 version, u32 correlation, i32 status, body}. A request has status 0;
 * its answer has the same type with the top bit set, the same correlation, and, if status is not 0,
 * an error text as body. The body is fixed fields followed by tagged optional fields {u16 tag, u16
 * length, bytes} in rising order of tag; unknown tags are skipped. Integers are little-endian;
 * strings are u16 length + bytes; lists u32 count + items. Record batches alone are big-endian,
 * because they are Kafka's.
 *
 * Decoded structs point into the message (strings are not terminated: struct fq_str); lists of a
 * decoded message are walked by *_next functions, so that decoding allocates nothing.
 */
#ifndef FQ_WIRE_PROTOCOL_H
#define FQ_WIRE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

#define FQ_PROTOCOL_VERSION_MIN 1
#define FQ_PROTOCOL_VERSION_MAX 1
#define FQ_TOKEN_WIRE_BYTES     32
#define FQ_UUID_BYTES           16

struct fq_uuid {
    uint8_t bytes[FQ_UUID_BYTES];
};

struct fq_str {
    const char *data;
    size_t length;
};

/* Encoded items, `count` of them in `length` bytes; what they are is said where one is used. Made
 * by the *_list functions of protocol_codec.h, walked by its *_next functions. */
struct fq_list {
    const uint8_t *bytes;
    size_t length;
    uint32_t count;
};

/* ---- hello: the fabric's private data, at most FQ_LIMIT_HELLO_BYTES -------------------------- */

struct fq_hello { /* client -> broker */
    uint16_t version_min, version_max;
    uint32_t flags;
};
struct fq_hello_reply { /* broker -> client */
    uint16_t version;   /* the agreed one */
    uint32_t broker_id;
    uint32_t shard; /* the shard that took the connection */
    uint32_t shards_count;
};

/* ---- message types ------------------------------------------------------------------------- */

enum fq_msg_type {
    FQ_MSG_SESSION_OPEN = 1, /* first on every connection */
    FQ_MSG_METADATA = 2,     /* topics -> ids, partitions -> (broker, shard); paged */
    FQ_MSG_TOPIC_CREATE = 3,
    FQ_MSG_TOPIC_DELETE = 4,
    FQ_MSG_TOPIC_ALTER = 5,
    FQ_MSG_TOPIC_DESCRIBE = 6, /* configuration with its source */
    FQ_MSG_PARTITIONS_ADD = 7,
    FQ_MSG_TRIM = 8,
    FQ_MSG_RING_OPEN = 9,      /* one producer window + ack ring per connection */
    FQ_MSG_PRODUCER_OPEN = 10, /* a slot for one partition in that ring */
    FQ_MSG_PRODUCER_CLOSE = 11,
    FQ_MSG_READER_OPEN = 12,
    FQ_MSG_READER_CLOSE = 13,
    FQ_MSG_SEGMENT_OPEN = 14, /* a read window on the segment that holds an offset */
    FQ_MSG_SEGMENT_CLOSE = 15,
    FQ_MSG_READER_ARM = 16, /* wake me (notify, imm = reader) when there is more than this; at
                               once if there is. Answered only when refused */
    FQ_MSG_TIME_QUERY = 17,
    FQ_MSG_PARTITION_DESCRIBE = 18,
    FQ_MSG_INFO = 19,             /* every counter; paged */
    FQ_MSG_HEARTBEAT = 20,        /* both ways, answered by the peer's CPU */
    FQ_MSG_SEGMENT_RETIRING = 21, /* broker -> client, no answer: close it by the deadline */
    FQ_MSG_GOODBYE = 22,          /* broker -> client, no answer: the broker is shutting down */
    FQ_MSG_READER_RESET = 23, /* broker -> client, no answer: the partition was truncated, trimmed
                                 below the reader, deleted or went offline; `reason` says which */
    FQ_MSG_PUSH_SETUP = 24,   /* once per connection: head lines and credit lines */
    FQ_MSG_PUSH_OPEN = 25,    /* from now on the log is written into the client's ring */
    FQ_MSG_PUSH_CLOSE = 26,   /* once answered, nothing more is written */
    FQ_MSG_PUSH_STOPPED = 27, /* broker -> client, no answer: nothing more is written; `reason` */
    FQ_MSG_DIRECT_WINDOW = 28, /* broker -> client, no answer: a window on log memory for a slot */
    FQ_MSG_SLOT_REVOKED = 29   /* broker -> client, no answer: the slot's windows are being taken
                                  back; nothing may be written there any more */
};
#define FQ_MSG_TYPE_LAST    29
#define FQ_MSG_ANSWER       0x8000u
#define FQ_MSG_HEADER_BYTES 12

struct fq_msg {
    uint16_t type; /* without FQ_MSG_ANSWER */
    bool is_answer;
    uint16_t version;
    uint32_t correlation;
    int32_t status;
    const uint8_t *body;
    size_t body_length;
    struct fq_str error_text; /* answers with status != 0 */
};

int fq_msg_decode(const void *bytes, size_t length, struct fq_msg *ret, struct fq_err *err);
const char *fq_msg_name(uint16_t type);

/* ---- bodies -------------------------------------------------------------------------------- */

struct fq_session_open {
    struct fq_str client_id;
    struct fq_str software; /* "libflashq 0.1.0" */
    uint32_t heartbeat_ms;  /* what the client would like; 0: none */
};
struct fq_session_open_answer {
    struct fq_uuid cluster_id;
    struct fq_uuid boot_id; /* the host's, for transport `auto` */
    uint32_t heartbeat_ms;
    uint32_t message_max_bytes;
    uint32_t batch_max_bytes; /* the largest batch the broker takes */
    uint32_t max_in_flight;
    uint32_t views_count; /* lines in the view window */
    uint8_t views_token[FQ_TOKEN_WIRE_BYTES];
    struct fq_str software;
    struct fq_str shm_path; /* optional: the broker's local socket */
    struct fq_str storage;  /* optional: medium, flush mode and guarantee, for people */
};

/* An empty list asks for all topics. Answer pages continue at `cursor` until it is empty. */
struct fq_metadata {
    struct fq_list names; /* topic names: fq_strings_list, fq_strings_next */
    struct fq_str cursor; /* empty at first, then as the last page gave it; opaque to clients,
                             at most FQ_CURSOR_BYTES */
};
#define FQ_CURSOR_BYTES 300
/* The items of an answer in their order: brokers (on the first page), then each topic followed by
 * its partitions. A topic that goes on on the next page is repeated there, before its next
 * partitions. */
struct fq_metadata_answer {
    struct fq_list items; /* fq_metadata_next */
    struct fq_str cursor; /* empty: this was the last page */
};
struct fq_broker_entry {
    uint32_t id;
    struct fq_str host; /* empty: the address the client used */
    uint16_t port;
    uint32_t shards_count;
};
enum fq_append_mode { FQ_APPEND_STAGED = 0, FQ_APPEND_DIRECT = 1 };
struct fq_topic_entry {
    int32_t status; /* NOT_FOUND ... per asked topic */
    struct fq_str name;
    struct fq_uuid id;
    uint32_t partitions_total;
    uint8_t append_mode; /* enum fq_append_mode */
    uint8_t durability;  /* 0 persisted, 1 memory */
};
struct fq_partition_entry {
    uint32_t index;
    int32_t status; /* 0 or OFFLINE ... */
    uint32_t leader;
    uint32_t shard;
    int32_t leader_epoch;
    int64_t log_start;
    int64_t end; /* high watermark */
    uint64_t bytes;
    struct fq_str medium; /* "dir(tmpfs) pmem", ... for people */
};

struct fq_config_pair {
    struct fq_str key, value;
    uint8_t source; /* 0 default, 1 broker, 2 topic (describe only) */
};

struct fq_topic_create {
    struct fq_str name;
    uint32_t partitions; /* 0: the broker's default */
    uint32_t replicas;   /* 0: the broker's default */
    bool validate_only;
    struct fq_list configs; /* fq_config_pairs_list, fq_config_pairs_next; source unused */
};
struct fq_topic_create_answer {
    struct fq_uuid id;
    uint32_t partitions, replicas;
};
struct fq_topic_name { /* delete (its answer is empty), describe */
    struct fq_str name;
};
struct fq_topic_describe_answer {
    struct fq_uuid id;
    uint32_t partitions, replicas;
    int64_t created_ms;     /* wall clock */
    struct fq_list configs; /* every key with its value and source */
};
struct fq_topic_alter { /* its answer is empty */
    struct fq_str name;
    bool validate_only;
    struct fq_list configs; /* an empty value resets to the default */
};
struct fq_partitions_add { /* its answer is empty */
    struct fq_str name;
    uint32_t total;
};
struct fq_trim {
    struct fq_str name;
    uint32_t partition;
    int64_t before_offset; /* -1: the high watermark */
};
struct fq_trim_answer {
    int64_t log_start;
};

struct fq_ring_open {
    uint32_t entries; /* of the client's ack ring = notify credits */
    uint8_t ack_token[FQ_TOKEN_WIRE_BYTES];
};
struct fq_ring_open_answer {
    uint64_t window_bytes; /* the ring, mirrored: a batch starts anywhere and never wraps */
    uint32_t entries;      /* agreed (<= asked) */
    uint8_t window_token[FQ_TOKEN_WIRE_BYTES];
};

enum fq_acks { FQ_ACKS_ALL = 0, FQ_ACKS_LEADER = 1, FQ_ACKS_NONE = 2 };

struct fq_producer_open {
    struct fq_uuid topic_id;
    uint32_t partition;
    int64_t producer_id; /* 63 random bits */
    int16_t producer_epoch;
    int32_t next_sequence; /* where an unknown producer starts */
    uint8_t acks;
    uint8_t mode; /* enum fq_append_mode */
};
struct fq_producer_open_answer {
    uint32_t slot; /* the immediate of its notifies; never used again */
    int32_t leader_epoch;
    int32_t last_sequence; /* last sequence appended by this producer; -1: none known */
    int64_t last_offset;   /* offset of that sequence's record; -1 */
    int64_t end;           /* next offset of the log */
    uint32_t max_in_flight;
    uint32_t message_max_bytes; /* the topic's */
};
struct fq_slot_ref { /* PRODUCER_CLOSE (slot), READER_CLOSE (reader); answers are empty */
    uint32_t slot;
};

struct fq_reader_open {
    struct fq_uuid topic_id;
    uint32_t partition;
};
struct fq_reader_open_answer {
    uint32_t reader;          /* the immediate of its wake-ups; never used again */
    uint32_t view_line;       /* index in the view window */
    uint32_t view_generation; /* a line with another generation is not this partition's */
    int64_t log_start;
    int64_t end;
    int32_t leader_epoch;
};
struct fq_segment_open {
    uint32_t reader;
    int64_t offset; /* log_start <= offset <= end */
};
struct fq_segment_open_answer {
    uint64_t segment_id; /* unique on this broker for its life; 0: the partition has no
                            segment yet (arm at `offset`, then ask again) */
    int64_t base_offset;
    int64_t next_base_offset; /* of the following segment; -1 while this is the last */
    uint64_t data_bytes;      /* sealed: all its data; open: what is there now */
    uint64_t window_bytes;    /* the most data it can ever hold */
    uint64_t window_offset;   /* where data begins inside the window */
    uint64_t position;        /* of the batch that holds `offset`; data_bytes at the end */
    int64_t position_offset;  /* that batch's base offset */
    bool is_sealed;
    uint8_t token[FQ_TOKEN_WIRE_BYTES];
};
struct fq_segment_close { /* its answer is empty */
    uint32_t reader;
    uint64_t segment_id;
};
struct fq_segment_retiring {
    uint32_t reader;
    uint64_t segment_id;
    uint32_t within_ms;
};
struct fq_reader_arm {
    uint32_t reader;
    int64_t offset; /* wake when the high watermark is above this */
};
struct fq_reader_reset {
    uint32_t reader;
    int32_t reason; /* FLASHQ_ERR_TRIMMED, OFFLINE, UNKNOWN_TOPIC_ID, NOT_LEADER ... */
    int64_t log_start, end;
};

/* ---- push: the broker streams a partition's committed bytes into the client's ring ---- */

struct fq_push_setup {
    uint32_t lines;                          /* at most FQ_LIMIT_PUSH_LINES */
    uint8_t heads_token[FQ_TOKEN_WIRE_BYTES]; /* `lines` struct fq_push_head in client memory */
};
struct fq_push_setup_answer {
    uint32_t lines;                            /* agreed (<= asked) */
    uint8_t credits_token[FQ_TOKEN_WIRE_BYTES]; /* `lines` struct fq_push_credit in broker memory */
};
struct fq_push_open {
    uint32_t reader;
    uint32_t line;       /* chosen by the client; one per open push */
    int64_t offset;      /* log_start <= offset <= end */
    uint64_t ring_bytes; /* mirrored: whatever lies in it is contiguous */
    uint8_t ring_token[FQ_TOKEN_WIRE_BYTES];
};
struct fq_push_open_answer {
    int64_t position_offset; /* base offset of the first batch that will be written */
};
struct fq_push_close { /* its answer is empty */
    uint32_t reader;
};
struct fq_push_stopped {
    uint32_t reader;
    int32_t reason; /* FLASHQ_ERR_TRIMMED, OFFLINE, UNKNOWN_TOPIC_ID, CORRUPT, ... */
    int64_t log_start, end;
};

/* ---- direct appends: the producer's window is the log's own memory ---- */

struct fq_direct_window {
    uint32_t slot;
    uint32_t number;       /* of the slot's windows, from 0, in order */
    uint64_t window_bytes; /* of log, from the place of the next batch on */
    uint8_t token[FQ_TOKEN_WIRE_BYTES];
};
struct fq_slot_revoked {
    uint32_t slot;
    int32_t reason; /* FLASHQ_ERR_FENCED, UNKNOWN_TOPIC_ID, OFFLINE, ... */
};

struct fq_time_query {
    struct fq_uuid topic_id;
    uint32_t partition;
    int64_t timestamp_ms;
    int64_t from_offset; /* go on from here (after a compressed candidate); 0 at first */
};
enum fq_time_result { FQ_TIME_FOUND = 0, FQ_TIME_CANDIDATE = 1, FQ_TIME_END = 2 };
struct fq_time_query_answer {
    uint8_t result;       /* CANDIDATE: the batch at `offset` may hold it (compressed) */
    int64_t offset;       /* FOUND: the record; CANDIDATE: the batch's base; END: the end */
    int64_t timestamp_ms; /* FOUND: the record's */
    int64_t next_offset;  /* CANDIDATE: ask again from here if none fits */
    uint64_t cost_nodes;  /* index nodes visited */
    uint64_t cost_bytes;  /* log bytes scanned */
};

struct fq_partition_ref {
    struct fq_str topic;
    uint32_t partition;
};
struct fq_partition_describe_answer {
    int64_t log_start, end, end_appended;
    int32_t leader_epoch;
    uint32_t leader, shard;
    uint32_t segments_count;
    uint64_t bytes;
    uint64_t damage_count; /* damaged ranges known */
    uint32_t producers_count;
    struct fq_str medium, state;
};

struct fq_info {
    struct fq_str cursor; /* as in fq_metadata */
};
struct fq_info_answer {
    struct fq_list counters; /* fq_counters_next */
    struct fq_str cursor;
};
struct fq_counter {
    struct fq_str name; /* dotted, lower case: "append.batches" */
    int64_t value;
};

struct fq_goodbye {
    uint32_t within_ms; /* when the broker closes the connection by itself */
    struct fq_str text; /* for a person; may be empty */
};

/* Encoders write a whole message into `out` and return its length, or FLASHQ_ERR_TOO_LARGE when it
 * does not fit. Decoders take a decoded fq_msg and check every byte. The list of functions is in
 * protocol_codec.h. */

/* ---- shared memory words that are not messages ---------------------------------------------- */

/* The ack ring in the client's memory: one 64-byte head line, then entries of 32 bytes. */
struct fq_ack_head {
    uint64_t tail;     /* entries written since the ring was opened; stored last, aligned, atomic */
    uint64_t consumed; /* bytes of the producer window consumed so far, in notify order */
    uint64_t reserved[6];
};
struct fq_ack_entry {
    uint32_t slot;
    int32_t status; /* 0, or a FLASHQ_ERR_ code: the slot has failed */
    int64_t base_offset;
    uint32_t notify; /* counts this slot's notifies from 0 */
    uint32_t flags;  /* FQ_ACK_DUPLICATE */
    int64_t detail;  /* SEQUENCE: the expected one; TIMESTAMP, TOO_LARGE: the limit */
};
#define FQ_ACK_DUPLICATE  1u
#define FQ_ACK_NOTIFY_IMM 0xffffffffu /* the immediate of the notify that follows acks */
_Static_assert(sizeof(struct fq_ack_head) == 64, "ack head is one line");
_Static_assert(sizeof(struct fq_ack_entry) == 32, "ack entries are half a line");

/* A push's head, in client memory: written by the broker after the bytes it tells of, in one write.
 * Each word is whole; `high_watermark` is at least the end of all that lies below `tail`. */
struct fq_push_head {
    uint64_t tail; /* bytes written since PUSH_OPEN; byte n lies at n % ring_bytes of the ring */
    int64_t high_watermark;
    int64_t log_start;
    int64_t leader_epoch;
    uint64_t reserved[4];
};
/* A push's credit, in broker memory: written by the client, then a notify with
 * FQ_PUSH_CREDIT_IMM(line). tail - consumed never exceeds ring_bytes. */
struct fq_push_credit {
    uint64_t consumed; /* bytes of the ring that may be written over */
    uint64_t reserved[7];
};
/* No slot has this number: an index of slots is below 0xffff. */
#define FQ_PUSH_CREDIT_IMM(line)   (((uint32_t)(line) << 16) | 0xffffu)
#define FQ_PUSH_IS_CREDIT_IMM(imm) (((imm)&0xffffu) == 0xffffu && (imm) != FQ_ACK_NOTIFY_IMM)
#define FQ_PUSH_CREDIT_LINE(imm)   ((imm) >> 16)
_Static_assert(sizeof(struct fq_push_head) == 64, "a push head is one line");
_Static_assert(sizeof(struct fq_push_credit) == 64, "a push credit is one line");

/* One partition's view: a 64-byte line in broker memory that readers READ. */
struct fq_view {
    uint32_t generation;
    int32_t leader_epoch;
    uint64_t segment_id; /* the segment the high watermark lies in: the open one, except just
                            after a roll; 0: the partition has no segment yet. Segments with
                            a lower base offset are committed to their last byte */
    int64_t segment_base_offset;
    uint64_t committed_position; /* bytes of data in that segment below the high watermark */
    int64_t high_watermark;
    int64_t log_start;
    uint32_t version; /* changes with each publication */
    uint32_t state;   /* 0 serving; else -FLASHQ_ERR_ code */
    uint32_t reserved;
    uint32_t crc; /* CRC-32C of the 60 bytes before it */
};
_Static_assert(sizeof(struct fq_view) == 64, "a view is one line");

#endif
