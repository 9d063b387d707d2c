/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libflashq: the C API of the FlashQ message queue.
 *
 * General rules
 *   - Handles are opaque. A failed open leaves nothing to free; closing NULL does nothing; any other
 *     call on NULL returns FLASHQ_ERR_INVALID (or NULL, 0, -1 where the type says so).
 *   - Every call that can block takes `timeout_ms`: 0 does not block, -1 means the client key
 *     `timeout.ms`. It returns by then.
 *   - Errors are negative codes of <flashq/error.h>. `char *errtext, size_t errtext_bytes` may be
 *     NULL, 0; otherwise the text is always terminated.
 *   - Handles may be used from several threads; one call at a time works inside a client, others wait.
 *     Closing a handle ends calls that wait on it in other threads with FLASHQ_ERR_CLOSED; none may
 *     begin on it any more.
 *   - No callback ever runs on a thread of the library. Nothing is written to stdout or stderr.
 *   - Bytes are {data, length}: data NULL is null, length 0 with data is empty. Timestamps are int64
 *     milliseconds since 1970. Offsets are int64.
 *   - After fork() the child may only close handles (which frees what it safely can and leaves the
 *     parent's connections alone); every other call there returns FLASHQ_ERR_FORKED.
 */
#ifndef FLASHQ_H
#define FLASHQ_H

#include <stddef.h>
#include <stdint.h>

#include <flashq/error.h>

#define FLASHQ_VERSION_MAJOR 0
#define FLASHQ_VERSION_MINOR 1
#define FLASHQ_VERSION_PATCH 0

#if defined(__GNUC__)
#define FLASHQ_API __attribute__((visibility("default")))
#else
#define FLASHQ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashq_config flashq_config;
typedef struct flashq_client flashq_client;
typedef struct flashq_producer flashq_producer;
typedef struct flashq_consumer flashq_consumer;
typedef struct flashq_message flashq_message;

/* ---- version, errors ----------------------------------------------------------------------- */

FLASHQ_API const char *flashq_version(void);
FLASHQ_API const char *flashq_strerror(int code);   /* "timed out" */
FLASHQ_API const char *flashq_error_name(int code); /* "TIMED_OUT" */
/* 1 if the same call may succeed later. */
FLASHQ_API int flashq_is_retriable(int code);
/* 1 if the handle it came from will not work any more. */
FLASHQ_API int flashq_is_fatal(int code);

/* ---- configuration ------------------------------------------------------------------------- */

/* Keys: flashq-client(5). Kafka's names for the same thing are accepted. */
/* All defaults; NULL when there is no memory. */
FLASHQ_API flashq_config *flashq_config_new(void);
FLASHQ_API void flashq_config_free(flashq_config *config);
/* FLASHQ_ERR_CONFIG, with a text that names the limit or the key that was meant; nothing is changed. */
FLASHQ_API int flashq_config_set(flashq_config *config, const char *key, const char *value,
                                 char *errtext, size_t errtext_bytes);
/* The value in force for key; NULL if unknown. Borrowed until the next set or free. */
FLASHQ_API const char *flashq_config_get(const flashq_config *config, const char *key);
/* Enumerates keys: index 0..; returns 0, or FLASHQ_ERR_END past the last. */
FLASHQ_API int flashq_config_describe(size_t index, const char **key, const char **default_value,
                                      const char **help);

/* ---- client -------------------------------------------------------------------------------- */

/* Copies config (NULL: defaults). Never blocks: it connects in the background; flashq_client_wait waits for
 * it. CONFIG (an address in `brokers`), NO_MEMORY, or what the system says of a descriptor or thread. */
FLASHQ_API int flashq_client_open(const flashq_config *config, flashq_client **ret_client,
                                  char *errtext, size_t errtext_bytes);
/* Closes all its producers and consumers too (timeout_ms bounds the whole); returns the number of
 * records that were not delivered, or 0. */
FLASHQ_API int64_t flashq_client_close(flashq_client *client, int timeout_ms);
/* 0 once a broker answered; FLASHQ_ERR_UNREACHABLE or TIMED_OUT by the deadline. */
FLASHQ_API int flashq_client_wait(flashq_client *client, int timeout_ms, char *errtext,
                                  size_t errtext_bytes);
/* Readable as long as flashq_producer_poll or flashq_consumer_poll of any of the client's handles has something
 * (reports, messages), and not otherwise; for poll, select and level-triggered epoll. With `io.threads=0` nothing comes
 * in but by the application's calls: flashq_client_do_work once in a while, then look. -1: no such client. The
 * descriptor is the client's: valid until it is closed, only to be waited for, never read or closed by the caller. */
FLASHQ_API int flashq_client_fd(const flashq_client *client);
/* The endpoint in use ("shm:/run/flashq/flashq.sock", "tcp:127.0.0.1:9640") into buffer; 0, or
 * FLASHQ_ERR_UNREACHABLE and an empty text while there is none. */
FLASHQ_API int flashq_client_endpoint(flashq_client *client, char *buffer, size_t buffer_bytes);
/* Invoker mode (`io.threads=0`): does what the io thread would; returns the work done, >= 0. */
FLASHQ_API int flashq_client_do_work(flashq_client *client);

/* What the library has to tell a person: connections that come and go, records given up, damage. Nothing is
 * written anywhere: the newest 256 entries of the client key `log.level` (default "off") are kept until they
 * are taken. */
enum flashq_log_level {
    FLASHQ_LOG_ERROR = 1, /* records were given up, a partition cannot be read on */
    FLASHQ_LOG_WARN = 2,  /* a connection was lost, a call was refused */
    FLASHQ_LOG_INFO = 3,  /* connected; could not connect */
    FLASHQ_LOG_DEBUG = 4  /* every change of state */
};

typedef struct flashq_log_entry {
    size_t struct_bytes;
    int level;            /* enum flashq_log_level */
    int64_t timestamp_ms;
    uint64_t dropped;     /* older entries lost before this one because nobody took them */
    char text[480];       /* one line without control characters, terminated */
} flashq_log_entry;

/* Takes up to max entries, the oldest first; never waits. Returns how many, or an error. flashq_client_fd
 * does not speak of them. */
FLASHQ_API int flashq_client_log_poll(flashq_client *client, flashq_log_entry *entries, size_t max);

/* ---- producing ----------------------------------------------------------------------------- */

typedef struct flashq_header {
    const char *name;      /* terminated unless name_length is given */
    size_t name_length;    /* 0 with a non-NULL name: strlen(name) */
    const void *value;     /* NULL: null */
    size_t value_length;
} flashq_header;

#define FLASHQ_PARTITION_ANY (-1)
#define FLASHQ_TIMESTAMP_NOW INT64_MIN

typedef struct flashq_record {
    size_t struct_bytes;   /* sizeof(flashq_record) */
    int32_t partition;     /* or FLASHQ_PARTITION_ANY: by key (murmur2), else sticky */
    int64_t timestamp_ms;  /* or FLASHQ_TIMESTAMP_NOW */
    const void *key;
    size_t key_length;
    const void *value;
    size_t value_length;
    const flashq_header *headers;
    size_t headers_count;
    void *user;            /* comes back in the report */
} flashq_record;

/* What is known of a record: it is not stored; it was written to a broker whose answer did not come (or is not
 * waited for: `acks=none`), or is acknowledged in a topic with `durability=memory`; it is on the medium. */
enum flashq_persisted { FLASHQ_PERSISTED_NO = 0, FLASHQ_PERSISTED_MAYBE = 1, FLASHQ_PERSISTED_YES = 2 };

typedef struct flashq_report {
    size_t struct_bytes;
    int status;            /* 0 or an error code */
    int persisted;         /* enum flashq_persisted */
    int duplicate;         /* 1: the broker had it already from an earlier try */
    int32_t partition;
    int64_t offset;        /* -1 unless status is 0 */
    int64_t timestamp_ms;
    void *user;
} flashq_report;

/* A producer for one topic. The topic must exist: FLASHQ_ERR_NOT_FOUND otherwise. */
FLASHQ_API int flashq_producer_open(flashq_client *client, const char *topic, int timeout_ms,
                                    flashq_producer **ret_producer, char *errtext,
                                    size_t errtext_bytes);
/* Flushes up to the deadline, then frees the producer whatever came of it; *ret_undelivered (may be NULL)
 * counts records given up: neither acknowledged nor reported as failed. Always 0 but for a client that is
 * being closed by another thread (CLOSED: that thread frees it). */
FLASHQ_API int flashq_producer_close(flashq_producer *producer, int timeout_ms,
                                     int64_t *ret_undelivered);

/* Copies the record into the queue. When `queue.bytes` are used it blocks up to timeout_ms, then
 * returns FLASHQ_ERR_AGAIN. Refused, and never in the queue: INVALID, TOO_LARGE, LIMIT (headers),
 * TIMESTAMP, NOT_FOUND (no such partition), UNKNOWN_TOPIC_ID (the topic is gone): words in
 * flashq_producer_last_error. A batch is compressed by the call that sends it off, while other calls of the
 * same client wait; a second client compresses beside it. Delivery is reported by flashq_producer_poll if `reports` is not "none"
 * (default "errors"; "all"; "none"), and counted in flashq_producer_stats always. */
FLASHQ_API int flashq_send(flashq_producer *producer, const flashq_record *record, int timeout_ms);
/* Sends and waits for the acknowledgement of this record; returns the report's status. ret_report may be
 * NULL. What flashq_send refuses is refused here too, and *ret_report is then left alone. TIMED_OUT: the
 * record may still be delivered later (persisted is MAYBE, and it will be in no other report than those of
 * flashq_producer_poll). */
FLASHQ_API int flashq_send_sync(flashq_producer *producer, const flashq_record *record,
                                int timeout_ms, flashq_report *ret_report);
/* `count` records in one call: as many times flashq_send, but the lock is taken and the clock read once, and
 * they travel together. Returns how many were taken, from the first on: all of them, or fewer, and why the
 * next was not is in flashq_producer_last_error (what flashq_send says of it); if the first was not, that
 * code itself. timeout_ms bounds the whole call. */
FLASHQ_API int64_t flashq_sendv(flashq_producer *producer, const flashq_record *records, size_t count,
                                int timeout_ms);

/* Building a value where it stays. flashq_claim lends *ret_value, memory for up to value_bytes in the record's
 * final place: over shared memory in the broker's ring itself, elsewhere in the batch. Write the value there,
 * then flashq_commit with its length; flashq_abort gives it up. record->value is NULL (the value cannot be
 * null); everything else of the record holds, and is copied. Refused as flashq_send refuses, the size being
 * that of value_bytes; it waits for room in the queue likewise.
 *   One claim at a time per producer: until its end flashq_send, _send_sync, _sendv, _claim and flashq_flush
 * on that producer, from any thread, return FLASHQ_ERR_BUSY at once. The records that share its batch
 * wait too, and over shared memory whatever this client has for the same broker: fill it and commit.
 *   The memory is valid until commit, abort or close, whatever becomes of connection and broker. After a fork
 * the child must not write there. flashq_commit: the record is in the queue, as after flashq_send. INVALID: there is
 * no claim, or length > value_bytes (the claim stays open); any other error ends the claim, and the
 * record was never in the queue (UNKNOWN_TOPIC_ID: the topic is gone). Closing the producer aborts. */
FLASHQ_API int flashq_claim(flashq_producer *producer, const flashq_record *record,
                            size_t value_bytes, int timeout_ms, void **ret_value);
FLASHQ_API int flashq_commit(flashq_producer *producer, size_t length);
/* 0, or INVALID: there is no claim. */
FLASHQ_API int flashq_abort(flashq_producer *producer);

/* Waits until everything sent so far is acknowledged or failed; FLASHQ_ERR_TIMED_OUT otherwise.
 * 0 even if records failed: see reports and stats. */
FLASHQ_API int flashq_flush(flashq_producer *producer, int timeout_ms);
/* Takes up to max reports, waiting up to timeout_ms for the first; returns how many, or an error (CLOSED).
 * In the order of sending within a partition, but for records given up before their turn. */
FLASHQ_API int flashq_producer_poll(flashq_producer *producer, flashq_report *reports, size_t max,
                                    int timeout_ms);

typedef struct flashq_producer_stats {
    size_t struct_bytes;
    uint64_t records_sent, records_acked, records_failed, records_duplicate;
    uint64_t bytes_sent;           /* keys, values and headers of the records sent */
    uint64_t batches_sent, batch_bytes, batches_resent;
    uint64_t queue_bytes;          /* in the queue now */
    uint64_t reconnects;
    uint64_t reports_dropped;      /* the oldest, when `reports.max` were waiting to be polled */
} flashq_producer_stats;
/* ret->struct_bytes is set by the caller. */
FLASHQ_API int flashq_producer_get_stats(flashq_producer *producer, flashq_producer_stats *ret);
/* The latest failure of this producer (a send that was refused, a record that failed): its code, and
 * words that name the limit or the reason. 0 and an empty text if there was none. */
FLASHQ_API int flashq_producer_last_error(flashq_producer *producer, char *errtext,
                                          size_t errtext_bytes);
/* Of the topic, when the producer was opened; 0 for NULL. */
FLASHQ_API int32_t flashq_producer_partitions(flashq_producer *producer);

/* ---- consuming ----------------------------------------------------------------------------- */

#define FLASHQ_OFFSET_START INT64_C(-2)  /* the log start */
#define FLASHQ_OFFSET_END INT64_C(-1)    /* the high watermark when the position is resolved */

/* A consumer for any number of partitions of any topics. Fails only for want of memory: nothing is asked of
 * the broker. */
FLASHQ_API int flashq_consumer_open(flashq_client *client, flashq_consumer **ret_consumer,
                                    char *errtext, size_t errtext_bytes);
/* Frees the consumer and what is borrowed from it. Does not block, whatever timeout_ms is. */
FLASHQ_API int flashq_consumer_close(flashq_consumer *consumer, int timeout_ms);

/* Adds a partition at an offset (or FLASHQ_OFFSET_START, _END). partition -1: all of the topic. Waits
 * until the positions are known: what is published after it returned comes, also from the end. An offset
 * that the partition does not have is told by poll (TRIMMED, OUT_OF_RANGE). On an error nothing was
 * assigned; EXISTS if it is assigned already. */
FLASHQ_API int flashq_consumer_assign(flashq_consumer *consumer, const char *topic,
                                      int32_t partition, int64_t offset, int timeout_ms,
                                      char *errtext, size_t errtext_bytes);
/* partition -1: all of the topic. NOT_FOUND if nothing of it is assigned. Messages that the last poll lent
 * stay valid until the next. */
FLASHQ_API int flashq_consumer_unassign(flashq_consumer *consumer, const char *topic,
                                        int32_t partition);

/* A received record; borrowed until the next poll or close of this consumer, or kept with
 * flashq_message_ref. Everything in it is read-only. */
struct flashq_message {
    const char *topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms;
    const void *key;
    size_t key_length;
    const void *value;
    size_t value_length;
    size_t headers_count;
    int status;            /* 0: a record. Otherwise a condition of the partition at `offset`:
                              TRIMMED, CORRUPT (one damaged range is passed over after it is
                              reported), OFFLINE, UNKNOWN_TOPIC_ID, ... */
    int64_t condition_end; /* CORRUPT, TRIMMED: the next offset that can be read */
};

/* Fills up to max message pointers; waits up to timeout_ms for the first. Returns how many (0: none by
 * the deadline), or an error (CLOSED, NO_MEMORY); what becomes of connections and partitions is no error
 * of the poll but a message with a status. Order is kept per partition, and partitions take turns. What
 * the last poll of this consumer lent is given back, also if another thread polled. */
FLASHQ_API int flashq_consumer_poll(flashq_consumer *consumer, const flashq_message **messages,
                                    size_t max, int timeout_ms);
/* The latest condition or failure of this consumer: its code and words for a person. */
FLASHQ_API int flashq_consumer_last_error(flashq_consumer *consumer, char *errtext,
                                          size_t errtext_bytes);
/* A message that stays valid until unref, whatever happens to consumer and client: a copy when the
 * original is only borrowed, so use the pointer returned. NULL when there is no memory. Any thread may
 * ref and unref one that was returned here; a borrowed one only the thread that polled it. */
FLASHQ_API const flashq_message *flashq_message_ref(const flashq_message *message);
FLASHQ_API void flashq_message_unref(const flashq_message *message);
/* The index-th header; 0, or FLASHQ_ERR_END. Its name is not terminated: use name_length. */
FLASHQ_API int flashq_message_header(const flashq_message *message, size_t index,
                                     flashq_header *ret_header);

/* Seek is a barrier: nothing from before it is returned after it. An offset that the partition does not
 * have is told by the next poll, not here. NOT_FOUND: not assigned. TIMED_OUT: the position was set, but
 * the broker has not said yet what is there (poll goes on with it). */
FLASHQ_API int flashq_seek_offset(flashq_consumer *consumer, const char *topic, int32_t partition,
                                  int64_t offset, int timeout_ms);
/* To the first record at or after timestamp_ms (the end if there is none). On an error of the query (see
 * flashq_offset_for_time) the position is what it was. */
FLASHQ_API int flashq_seek_time(flashq_consumer *consumer, const char *topic, int32_t partition,
                                int64_t timestamp_ms, int timeout_ms);
/* Paused partitions keep their place and what was read ahead, as far as `fetch.buffer.bytes` has room for
 * the others; partition -1: all of the topic. NOT_FOUND if nothing of it is assigned. */
FLASHQ_API int flashq_pause(flashq_consumer *consumer, const char *topic, int32_t partition);
FLASHQ_API int flashq_resume(flashq_consumer *consumer, const char *topic, int32_t partition);
/* How records get here. PULL: this side reads them from the broker's memory, ahead of the application
 * (`fetch.prefetch`); PUSH: the broker writes them into a ring of this side (`push.buffer.bytes` for each
 * partition), as fast as the application gives room back by polling, and a partition that is not polled holds
 * nobody else up. In-bound one-sided reads are cheaper for the broker, so pull scales to more consumers; push
 * has the lowest latency. Partitions begin with the client key `fetch.mode` (pull). */
enum flashq_mode { FLASHQ_MODE_PULL = 0, FLASHQ_MODE_PUSH = 1 };
/* Changes how a partition (-1: all of the topic; topic NULL: all, and those assigned later) is read, from
 * exactly the place reached: no record is lost or repeated. Does not block. NOT_FOUND if nothing of the topic
 * is assigned. */
FLASHQ_API int flashq_set_mode(flashq_consumer *consumer, const char *topic, int32_t partition,
                               enum flashq_mode mode);
/* How it is read at this moment. A partition that is to be pushed is pulled while `fetch.buffer.bytes` has no
 * room for its ring, where the log is damaged or has a batch larger than the ring, and by a broker that does not
 * push. NOT_FOUND: not assigned. */
FLASHQ_API int flashq_mode(flashq_consumer *consumer, const char *topic, int32_t partition,
                           enum flashq_mode *ret_mode);
/* The next offset that poll will return. NOT_FOUND: not assigned; AGAIN: start or end, not resolved yet. */
FLASHQ_API int flashq_position(flashq_consumer *consumer, const char *topic, int32_t partition,
                               int64_t *ret_offset);
/* Records between the position and the high watermark as last seen; never negative. Asks no broker. Errors
 * as flashq_position. */
FLASHQ_API int flashq_lag(flashq_consumer *consumer, const char *topic, int32_t partition,
                          int64_t *ret_lag);

/* ---- asking -------------------------------------------------------------------------------- */

typedef struct flashq_time_answer {
    size_t struct_bytes;
    int end;               /* 1: no record at or after the time; offset is the end */
    int64_t offset;
    int64_t timestamp_ms;  /* of the record found */
    uint64_t cost_nodes;   /* index nodes the broker visited */
    uint64_t cost_bytes;   /* log bytes it scanned */
} flashq_time_answer;
/* The first record of the partition at or after timestamp_ms, exactly, whatever the order of timestamps;
 * a negative time is the start. ret->struct_bytes is set by the caller. NOT_FOUND (topic, partition), OFFLINE,
 * CORRUPT (a compressed batch that had to be looked into is damaged), UNREACHABLE, TIMED_OUT. */
FLASHQ_API int flashq_offset_for_time(flashq_client *client, const char *topic, int32_t partition,
                                      int64_t timestamp_ms, int timeout_ms, flashq_time_answer *ret,
                                      char *errtext, size_t errtext_bytes);

typedef struct flashq_partition_info {
    size_t struct_bytes;
    int32_t partition;
    int status;            /* 0, OFFLINE, ... */
    int32_t leader;
    int32_t shard;
    int32_t leader_epoch;
    int64_t start_offset;
    int64_t end_offset;    /* high watermark */
    uint64_t bytes;
    char medium[64];       /* "dir tmpfs, flush pmem (emulated)" */
} flashq_partition_info;

typedef struct flashq_topic_info {
    size_t struct_bytes;
    char name[256];
    char id[37];           /* as a UUID */
    int32_t partitions;
    int32_t replicas;
} flashq_topic_info;

typedef struct flashq_config_entry {
    size_t struct_bytes;
    char key[64];
    char value[256];
    char source[16];       /* "default", "broker", "topic" */
} flashq_config_entry;

/* Asking the broker. All block up to timeout_ms; UNREACHABLE (the text names the addresses tried), TIMED_OUT,
 * NOT_FOUND; on an error no result is written. Arrays come from the library, also with a count of 0; free
 * them with flashq_free. What a call only asks is asked again after a lost connection. */
FLASHQ_API int flashq_topic_list(flashq_client *client, int timeout_ms, flashq_topic_info **ret_topics,
                                 size_t *ret_count, char *errtext, size_t errtext_bytes);
FLASHQ_API int flashq_topic_describe(flashq_client *client, const char *topic, int timeout_ms,
                                     flashq_topic_info *ret_topic,
                                     flashq_partition_info **ret_partitions, size_t *ret_count,
                                     char *errtext, size_t errtext_bytes);
FLASHQ_API int flashq_topic_config(flashq_client *client, const char *topic, int timeout_ms,
                                   flashq_config_entry **ret_entries, size_t *ret_count,
                                   char *errtext, size_t errtext_bytes);

typedef struct flashq_pair {
    const char *key;
    const char *value;
} flashq_pair;

/* partitions, replicas 0: the broker's defaults. EXISTS, INVALID (a name: the text says which byte), CONFIG (a key or value). When the connection is lost
 * before the answer, the text says that it may have been done. */
FLASHQ_API int flashq_topic_create(flashq_client *client, const char *topic, int32_t partitions,
                                   int32_t replicas, const flashq_pair *configs,
                                   size_t configs_count, int timeout_ms, char *errtext,
                                   size_t errtext_bytes);
FLASHQ_API int flashq_topic_delete(flashq_client *client, const char *topic, int timeout_ms,
                                   char *errtext, size_t errtext_bytes);
/* An empty value resets a key to its default. */
FLASHQ_API int flashq_topic_alter(flashq_client *client, const char *topic,
                                  const flashq_pair *configs, size_t configs_count, int timeout_ms,
                                  char *errtext, size_t errtext_bytes);
FLASHQ_API int flashq_topic_add_partitions(flashq_client *client, const char *topic, int32_t total,
                                           int timeout_ms, char *errtext, size_t errtext_bytes);
/* Removes records below before_offset (FLASHQ_OFFSET_END: all); returns the new log start. */
FLASHQ_API int flashq_topic_trim(flashq_client *client, const char *topic, int32_t partition,
                                 int64_t before_offset, int timeout_ms, int64_t *ret_start,
                                 char *errtext, size_t errtext_bytes);

typedef struct flashq_broker_info {
    size_t struct_bytes;
    int32_t id;
    char host[256];
    int32_t port;
    int32_t shards;
    char storage[512];     /* of the broker the client is connected to: medium, flush mode, and what
                              an acknowledgement guarantees, in words; "" for the others */
} flashq_broker_info;
FLASHQ_API int flashq_cluster_brokers(flashq_client *client, int timeout_ms,
                                      flashq_broker_info **ret_brokers, size_t *ret_count,
                                      char *errtext, size_t errtext_bytes);

typedef struct flashq_counter {
    size_t struct_bytes;
    char name[64];
    int64_t value;
} flashq_counter;
/* Every counter of the broker the client is connected to. */
FLASHQ_API int flashq_cluster_counters(flashq_client *client, int timeout_ms,
                                       flashq_counter **ret_counters, size_t *ret_count,
                                       char *errtext, size_t errtext_bytes);

/* NULL is fine. */
FLASHQ_API void flashq_free(void *array);

#ifdef __cplusplus
}
#endif
#endif
