/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a topic is, beside its records: a name, an id, a number of partitions and the settings that
 * differ from the broker's. One text form serves as the catalogue's value in meta.pool and as the
 * file `topic` in the topic's directory:
 *
 *     flashq-topic 1
 *     name events
 *     id 0b7c2f36-9e0e-4a52-8a6d-0f3c5b7d9e11
 *     partitions 12
 *     replicas 1
 *     first-shard 3
 *     created-ms 1796000000000
 *     state active
 *     set retention.bytes 10GiB
 *     crc32c 1d2f3a4b
 *
 * The last line's checksum covers every byte before it. No state; any thread.
 */
#ifndef FQ_COORD_TOPIC_H
#define FQ_COORD_TOPIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"
#include "conf/conf.h"
#include "wire/protocol.h"

/* The keys of `topic create -c`, resolved: a topic's own value, else the broker's. */
struct fq_topic_config {
    int64_t timestamp_max_ahead_ms; /* -1: off */
    int64_t segment_bytes;
    int64_t retention_bytes; /* 0: unlimited */
    int64_t message_max_bytes;
    int64_t durability; /* 0 persisted, 1 memory, as on the wire */
    int64_t append;     /* enum fq_append_mode; fixed at creation */
};
extern const struct fq_conf_table fq_topic_config_table;

struct fq_topic_settings {
    struct fq_topic_config values;
    uint32_t set_mask; /* bit i: key i of the table is the topic's own */
};

/* Changes one key; an empty value resets it. CONFIG with a suggestion, LIMIT when message.max.bytes
 * is above the broker's. */
int fq_topic_settings_set(struct fq_topic_settings *settings, const struct fq_topic_config *broker,
                          const char *key, const char *value, struct fq_err *err);
/* The values in force: the topic's own over the broker's. */
void fq_topic_settings_resolve(const struct fq_topic_settings *settings,
                               const struct fq_topic_config *broker, struct fq_topic_config *ret);

struct fq_topic {
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_uuid id;
    uint32_t partitions, replicas;
    uint32_t first_shard; /* partition i lives on shard (first_shard + i) % shards */
    int64_t created_ms;
    bool is_deleting;
    struct fq_topic_settings settings;
    uint32_t
        partitions_on_disk; /* not stored: folders found at start, so lower ones may hold data */
    bool has_folder;        /* not stored */
    void *context;          /* not stored: the housekeeper's */
};

static inline uint32_t fq_topic_shard(const struct fq_topic *topic, uint32_t partition,
                                      uint32_t shards_count)
{
    return (topic->first_shard + partition) % shards_count;
}

#define FQ_TOPIC_TEXT_BYTES_MAX 4096

/* Writes the text form, returns its length. */
size_t fq_topic_encode(const struct fq_topic *topic, char out[FQ_TOPIC_TEXT_BYTES_MAX]);
/* Reads it back. CORRUPT with a text for anything that fq_topic_encode did not write; unknown lines
 * (a newer release's) are skipped. */
int fq_topic_decode(const void *bytes, size_t length, struct fq_topic *ret, struct fq_err *err);

#define FQ_UUID_TEXT_BYTES 37
/* "0b7c2f36-9e0e-4a52-8a6d-0f3c5b7d9e11" and back (lower case only). Format returns `out`. */
const char *fq_uuid_to_text(const struct fq_uuid *id, char out[FQ_UUID_TEXT_BYTES]);
bool fq_uuid_from_text(const char *text, size_t length, struct fq_uuid *ret);
/* A random one (version 4). */
struct fq_uuid fq_uuid_random(void);
static inline bool fq_uuid_equal(const struct fq_uuid *a, const struct fq_uuid *b)
{
    return __builtin_memcmp(a, b, sizeof *a) == 0;
}

#endif
