/* SPDX-License-Identifier: Apache-2.0 */
/* Topics as settings and as text; see topic.h. Every byte that is read back is distrusted. */
#include "coord/topic.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "conf/units.h"
#include "wire/protocol_codec.h"

/* ---- settings ------------------------------------------------------------------------------- */

static const struct fq_conf_word ahead_words[] = {{"off", -1}, {NULL, 0}};
static const struct fq_conf_word unlimited_words[] = {{"unlimited", 0}, {NULL, 0}};
static const struct fq_conf_word durability_words[] = {{"persisted", 0}, {"memory", 1}, {NULL, 0}};
static const struct fq_conf_word append_words[] = {
    {"staged", FQ_APPEND_STAGED}, {"direct", FQ_APPEND_DIRECT}, {NULL, 0}};

static const struct fq_conf_key keys[] = {
    {.name = "timestamp.max.ahead",
     .type = FQ_CONF_DURATION_MS,
     .default_value = "1h",
     .min = 0,
     .max = INT64_MAX / 1000,
     .words = ahead_words,
     .offset = offsetof(struct fq_topic_config, timestamp_max_ahead_ms),
     .help = "how far a record's timestamp may be ahead of the broker's clock"},
    {.name = "segment.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "64MiB",
     .min = FQ_LIMIT_SEGMENT_BYTES_MIN,
     .max = (int64_t)FQ_LIMIT_SEGMENT_BYTES_MAX,
     .offset = offsetof(struct fq_topic_config, segment_bytes),
     .help = "the most a segment of the log grows to"},
    {.name = "retention.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "unlimited",
     .min = 0,
     .max = INT64_MAX,
     .words = unlimited_words,
     .offset = offsetof(struct fq_topic_config, retention_bytes),
     .help = "the size of a partition above which its oldest segments are removed"},
    {.name = "message.max.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "1MiB",
     .aliases = "max.message.bytes",
     .min = FQ_LIMIT_MESSAGE_MAX_BYTES_MIN,
     .max = FQ_LIMIT_MESSAGE_MAX_BYTES_MAX,
     .offset = offsetof(struct fq_topic_config, message_max_bytes),
     .help = "the largest record: key, value and headers"},
    {.name = "durability",
     .type = FQ_CONF_CHOICE,
     .default_value = "persisted",
     .words = durability_words,
     .offset = offsetof(struct fq_topic_config, durability),
     .help = "what an acknowledgement means: persisted, or in the broker's memory only"},
    {.name = "append",
     .type = FQ_CONF_CHOICE,
     .default_value = "staged",
     .words = append_words,
     .offset = offsetof(struct fq_topic_config, append),
     .help = "how batches reach the log; fixed at creation"},
};
#define KEYS_COUNT (sizeof keys / sizeof keys[0])
const struct fq_conf_table fq_topic_config_table = {keys, KEYS_COUNT};

int fq_topic_settings_set(struct fq_topic_settings *settings, const struct fq_topic_config *broker,
                          const char *key, const char *value, struct fq_err *err)
{
    struct fq_topic_settings changed = *settings;
    const struct fq_conf_key *found = fq_conf_find(&fq_topic_config_table, key);
    if (found && *value == '\0') {
        settings->set_mask &= ~(1u << (found - keys));
        return 0;
    }
    int code = fq_conf_set(&fq_topic_config_table, &changed.values, key, value, err);
    if (code != 0) {
        return code;
    }
    changed.set_mask |= 1u << (found - keys);
    if (strcmp(found->name, "message.max.bytes") == 0 &&
        changed.values.message_max_bytes > broker->message_max_bytes) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "message.max.bytes: %s is above the broker's message.max.bytes of %lld",
                          value, (long long)broker->message_max_bytes);
    }
    *settings = changed;
    return 0;
}

void fq_topic_settings_resolve(const struct fq_topic_settings *settings,
                               const struct fq_topic_config *broker, struct fq_topic_config *ret)
{
    *ret = *broker;
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        if ((settings->set_mask & 1u << i) != 0) {
            memcpy((char *)ret + keys[i].offset, (const char *)&settings->values + keys[i].offset,
                   sizeof(int64_t));
        }
    }
    if (ret->message_max_bytes > broker->message_max_bytes) { /* the broker's was lowered since */
        ret->message_max_bytes = broker->message_max_bytes;
    }
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char first_line[] = "flashq-topic 1\n";
static const char crc_word[] = "crc32c ";
#define CRC_LINE_BYTES (sizeof crc_word - 1 + 8 + 1)

size_t fq_topic_encode(const struct fq_topic *topic, char out[FQ_TOPIC_TEXT_BYTES_MAX])
{
    char id[FQ_UUID_TEXT_BYTES], value[64];
    size_t used = (size_t)snprintf(
        out, FQ_TOPIC_TEXT_BYTES_MAX,
        "%sname %s\nid %s\npartitions %u\nreplicas %u\nfirst-shard %u\ncreated-ms %lld\nstate %s\n",
        first_line, topic->name, fq_uuid_to_text(&topic->id, id), topic->partitions,
        topic->replicas, topic->first_shard, (long long)topic->created_ms,
        topic->is_deleting ? "deleting" : "active");
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        if ((topic->settings.set_mask & 1u << i) != 0) {
            used += (size_t)snprintf(
                out + used, FQ_TOPIC_TEXT_BYTES_MAX - used, "set %s %s\n", keys[i].name,
                fq_conf_get(&keys[i], &topic->settings.values, value, sizeof value));
        }
    }
    used += (size_t)snprintf(out + used, FQ_TOPIC_TEXT_BYTES_MAX - used, "%s%08x\n", crc_word,
                             fq_crc32c(0, out, used));
    assert(used < FQ_TOPIC_TEXT_BYTES_MAX); /* names and values are bounded far below it */
    return used;
}

static bool parse_u32(const char *text, uint32_t max, uint32_t *ret)
{
    int64_t value;
    if (fq_parse_int(text, &value, NULL) != 0 || value < 0 || value > max) {
        return false;
    }
    *ret = (uint32_t)value;
    return true;
}

static bool decode_setting(struct fq_topic *topic, char *rest)
{
    char *value = strchr(rest, ' ');
    if (!value) {
        return false;
    }
    *value++ = '\0';
    const struct fq_conf_key *key = fq_conf_find(&fq_topic_config_table, rest);
    if (!key) {
        return true; /* a newer release's key */
    }
    topic->settings.set_mask |= 1u << (key - keys);
    return fq_conf_set(&fq_topic_config_table, &topic->settings.values, rest, value, NULL) == 0;
}

/* One "word rest" line into the topic. */
static bool decode_line(struct fq_topic *topic, char *line)
{
    char *rest = strchr(line, ' ');
    if (!rest) {
        return false;
    }
    *rest++ = '\0';
    if (strcmp(line, "name") == 0) {
        size_t length = strlen(rest);
        bool is_good = fq_topic_name_check(rest, length, NULL) == 0;
        if (is_good) {
            memcpy(topic->name, rest, length + 1);
        }
        return is_good;
    }
    if (strcmp(line, "id") == 0) {
        return fq_uuid_from_text(rest, strlen(rest), &topic->id);
    }
    if (strcmp(line, "partitions") == 0) {
        return parse_u32(rest, FQ_LIMIT_PARTITIONS_PER_TOPIC, &topic->partitions);
    }
    if (strcmp(line, "replicas") == 0) {
        return parse_u32(rest, UINT32_MAX, &topic->replicas);
    }
    if (strcmp(line, "first-shard") == 0) {
        return parse_u32(rest, UINT32_MAX / 2, &topic->first_shard);
    }
    if (strcmp(line, "created-ms") == 0) {
        return fq_parse_int(rest, &topic->created_ms, NULL) == 0;
    }
    if (strcmp(line, "state") == 0) {
        topic->is_deleting = strcmp(rest, "deleting") == 0;
        return topic->is_deleting || strcmp(rest, "active") == 0;
    }
    return strcmp(line, "set") == 0 ? decode_setting(topic, rest) : true;
}

int fq_topic_decode(const void *bytes, size_t length, struct fq_topic *ret, struct fq_err *err)
{
    char text[FQ_TOPIC_TEXT_BYTES_MAX], crc[16];
    struct fq_topic topic = {.name = ""};
    if (length >= sizeof text || length < sizeof first_line - 1 + CRC_LINE_BYTES ||
        memchr(bytes, '\0', length) || memcmp(bytes, first_line, sizeof first_line - 1) != 0) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "not a topic description");
    }
    memcpy(text, bytes, length);
    size_t covered = length - CRC_LINE_BYTES;
    (void)snprintf(crc, sizeof crc, "%08x\n", fq_crc32c(0, text, covered));
    if (memcmp(text + covered, crc_word, sizeof crc_word - 1) != 0 ||
        memcmp(text + covered + sizeof crc_word - 1, crc, 9) != 0) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "topic description: its checksum does not fit");
    }
    text[covered] = '\0';
    fq_conf_defaults(&fq_topic_config_table, &topic.settings.values);
    for (char *line = text + sizeof first_line - 1, *end; (end = strchr(line, '\n'));
         line = end + 1) {
        *end = '\0';
        if (!decode_line(&topic, line)) {
            return fq_err_set(err, FLASHQ_ERR_CORRUPT, "topic description: wrong line \"%.80s\"",
                              line);
        }
    }
    if (topic.name[0] == '\0' || topic.partitions == 0 || topic.replicas == 0) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "topic description: incomplete");
    }
    *ret = topic;
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------ */

const char *fq_uuid_to_text(const struct fq_uuid *id, char out[FQ_UUID_TEXT_BYTES])
{
    const uint8_t *b = id->bytes;
    (void)snprintf(out, FQ_UUID_TEXT_BYTES,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
    return out;
}

bool fq_uuid_from_text(const char *text, size_t length, struct fq_uuid *ret)
{
    static const char digits[] = "0123456789abcdef";
    struct fq_uuid id = {{0}};
    if (length != FQ_UUID_TEXT_BYTES - 1) {
        return false;
    }
    for (size_t i = 0, nibble = 0; i < length; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i] != '-') {
                return false;
            }
            continue;
        }
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) {
            return false;
        }
        id.bytes[nibble / 2] = (uint8_t)(id.bytes[nibble / 2] << 4 | (digit - digits));
        nibble++;
    }
    *ret = id;
    return true;
}

struct fq_uuid fq_uuid_random(void)
{
    struct fq_uuid id;
    fq_random_bytes(&id, sizeof id);
    id.bytes[6] = (uint8_t)((id.bytes[6] & 0x0f) | 0x40);
    id.bytes[8] = (uint8_t)((id.bytes[8] & 0x3f) | 0x80);
    return id;
}
