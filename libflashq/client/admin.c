/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admin calls: encode, send on the control link, wait, decode. What changes something is not repeated after
 * a lost connection (the error says that it may have been done); what only asks is.
 * Thread: any, under the lock.
 */
#include "client/admin.h"

#include <stdlib.h>
#include <string.h>

#include "client/link.h"
#include "client/request.h"

/* The codec's functions with the types fq_call knows. */
#define ENCODER(name, body)                                                                        \
    static int64_t encode_##name(void *out, size_t capacity, uint32_t correlation, const void *in) \
    {                                                                                              \
        return fq_encode_##name(out, capacity, correlation, (const struct body *)in);              \
    }
ENCODER(topic_create, fq_topic_create)
ENCODER(topic_delete, fq_topic_name)
ENCODER(topic_describe, fq_topic_name)
ENCODER(topic_alter, fq_topic_alter)
ENCODER(partitions_add, fq_partitions_add)
ENCODER(trim, fq_trim)
ENCODER(info, fq_info)

static struct fq_str str_of(const char *text)
{
    return fq_str_of(text, strlen(text));
}

static int check_name(const char *topic, struct fq_err *err)
{
    if (!topic) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "no topic name given");
    }
    return fq_topic_name_check(topic, strlen(topic), err);
}

/* Encodes the pairs; *ret_bytes is the caller's to free. */
static int encode_configs(const flashq_pair *configs, size_t count, uint8_t **ret_bytes,
                          struct fq_list *ret, struct fq_err *err)
{
    uint8_t *bytes = malloc(FQ_LIMIT_CONTROL_BYTES);
    struct fq_config_pair *pairs = calloc(count ? count : 1, sizeof *pairs);
    int code = bytes && pairs ? 0 : FLASHQ_ERR_NO_MEMORY;
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (!configs[i].key || !configs[i].value) {
            code = FLASHQ_ERR_INVALID;
        } else {
            pairs[i] = (struct fq_config_pair){.key = str_of(configs[i].key),
                                               .value = str_of(configs[i].value)};
        }
    }
    if (code == 0) {
        code = fq_config_pairs_list(bytes, FQ_LIMIT_CONTROL_BYTES, pairs, count, ret);
    }
    free(pairs);
    if (code != 0) {
        free(bytes);
        return fq_err_set(err, code, "the configuration of the topic: %s", fq_err_describe(code));
    }
    *ret_bytes = bytes;
    return 0;
}

static int decode_created(const struct fq_msg *msg, void *out, struct fq_err *err)
{
    return fq_decode_topic_create_answer(msg, out, err);
}

int fq_admin_topic_create(struct fq_engine *engine, const char *topic, int32_t partitions,
                          int32_t replicas, const flashq_pair *configs, size_t configs_count,
                          int64_t deadline_us, struct fq_err *err)
{
    uint8_t *bytes;
    struct fq_topic_create_answer answer;
    if (partitions < 0 || replicas < 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "%d partitions, %d replicas: not below 0",
                          partitions, replicas);
    }
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic_create in = {.name = str_of(topic), .partitions = (uint32_t)partitions,
                                 .replicas = (uint32_t)replicas};
    code = encode_configs(configs, configs_count, &bytes, &in.configs, err);
    if (code != 0) {
        return code;
    }
    code = fq_call(&(struct fq_call){.engine = engine, .encode = encode_topic_create, .in = &in,
                                     .decode = decode_created, .out = &answer,
                                     .deadline_us = deadline_us},
                   err);
    free(bytes);
    return code;
}

int fq_admin_topic_delete(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                          struct fq_err *err)
{
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic_name in = {.name = str_of(topic)};
    return fq_call(&(struct fq_call){.engine = engine, .encode = encode_topic_delete, .in = &in,
                                     .deadline_us = deadline_us},
                   err);
}

int fq_admin_topic_alter(struct fq_engine *engine, const char *topic, const flashq_pair *configs,
                         size_t configs_count, int64_t deadline_us, struct fq_err *err)
{
    uint8_t *bytes;
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic_alter in = {.name = str_of(topic)};
    code = encode_configs(configs, configs_count, &bytes, &in.configs, err);
    if (code != 0) {
        return code;
    }
    code = fq_call(&(struct fq_call){.engine = engine, .encode = encode_topic_alter, .in = &in,
                                     .deadline_us = deadline_us},
                   err);
    free(bytes);
    return code;
}

int fq_admin_add_partitions(struct fq_engine *engine, const char *topic, int32_t total,
                            int64_t deadline_us, struct fq_err *err)
{
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    if (total < 1) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "%d partitions: at least 1", total);
    }
    struct fq_partitions_add in = {.name = str_of(topic), .total = (uint32_t)total};
    return fq_call(&(struct fq_call){.engine = engine, .encode = encode_partitions_add, .in = &in,
                                     .deadline_us = deadline_us},
                   err);
}

static int decode_trimmed(const struct fq_msg *msg, void *out, struct fq_err *err)
{
    return fq_decode_trim_answer(msg, out, err);
}

int fq_admin_trim(struct fq_engine *engine, const char *topic, int32_t partition,
                  int64_t before_offset, int64_t deadline_us, int64_t *ret_start,
                  struct fq_err *err)
{
    struct fq_trim_answer answer;
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    if (partition < 0 || before_offset < -1) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "partition %d, offset %lld: not below 0", partition,
                          (long long)before_offset);
    }
    struct fq_trim in = {.name = str_of(topic), .partition = (uint32_t)partition,
                         .before_offset = before_offset};
    code = fq_call(&(struct fq_call){.engine = engine, .encode = encode_trim, .in = &in,
                                     .decode = decode_trimmed, .out = &answer,
                                     .deadline_us = deadline_us, .is_repeatable = true},
                   err);
    if (code == 0 && ret_start) {
        *ret_start = answer.log_start;
    }
    return code;
}

/* ---- lists ---------------------------------------------------------------------------------- */

struct config_out {
    flashq_config_entry *entries;
    size_t count;
    uint32_t replicas;
};

static void copy_text(char *out, size_t capacity, struct fq_str from)
{
    size_t length = from.length < capacity - 1 ? from.length : capacity - 1;
    if (length > 0) {
        memcpy(out, from.data, length);
    }
    out[length] = '\0';
}

static int decode_config(const struct fq_msg *msg, void *out, struct fq_err *err)
{
    static const char *const sources[] = {"default", "broker", "topic"};
    struct config_out *result = out;
    struct fq_topic_describe_answer answer;
    struct fq_config_pair pair;
    int code = fq_decode_topic_describe_answer(msg, &answer, err);
    if (code != 0) {
        return code;
    }
    /* The decoder has checked the count against the bytes. */
    flashq_config_entry *entries = calloc(answer.configs.count + 1u, sizeof *entries);
    if (!entries) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the answer");
    }
    size_t limit = answer.configs.count, count = 0;
    while (count < limit && fq_config_pairs_next(&answer.configs, &pair) == 1) {
        flashq_config_entry *entry = &entries[count++];
        entry->struct_bytes = sizeof *entry;
        copy_text(entry->key, sizeof entry->key, pair.key);
        copy_text(entry->value, sizeof entry->value, pair.value);
        const char *source = pair.source < 3 ? sources[pair.source] : "other";
        copy_text(entry->source, sizeof entry->source, str_of(source));
    }
    *result = (struct config_out){.entries = entries, .count = count, .replicas = answer.replicas};
    return 0;
}

int fq_admin_topic_config(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                          flashq_config_entry **ret_entries, size_t *ret_count,
                          uint32_t *ret_replicas, struct fq_err *err)
{
    struct config_out out = {0};
    int code = check_name(topic, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic_name in = {.name = str_of(topic)};
    code = fq_call(&(struct fq_call){.engine = engine, .encode = encode_topic_describe, .in = &in,
                                     .decode = decode_config, .out = &out,
                                     .deadline_us = deadline_us, .is_repeatable = true},
                   err);
    if (code != 0) {
        free(out.entries);
        return code;
    }
    *ret_entries = out.entries;
    *ret_count = out.count;
    *ret_replicas = out.replicas;
    return 0;
}

struct info_out {
    flashq_counter *counters;
    size_t count;
    char cursor[FQ_CURSOR_BYTES];
    size_t cursor_length;
};

static int decode_info(const struct fq_msg *msg, void *out, struct fq_err *err)
{
    struct info_out *result = out;
    struct fq_info_answer answer;
    struct fq_counter counter;
    int code = fq_decode_info_answer(msg, &answer, err);
    if (code != 0) {
        return code;
    }
    size_t most = result->count + answer.counters.count;
    flashq_counter *counters = realloc(result->counters, (most + 1) * sizeof *counters);
    if (!counters) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for the answer");
    }
    result->counters = counters;
    while (result->count < most && fq_counters_next(&answer.counters, &counter) == 1) {
        flashq_counter *to = &counters[result->count++];
        memset(to, 0, sizeof *to);
        to->struct_bytes = sizeof *to;
        copy_text(to->name, sizeof to->name, counter.name);
        to->value = counter.value;
    }
    if (answer.cursor.length > sizeof result->cursor) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the cursor of the counters is too long");
    }
    result->cursor_length = answer.cursor.length;
    if (answer.cursor.length > 0) {
        memcpy(result->cursor, answer.cursor.data, answer.cursor.length);
    }
    return 0;
}

int fq_admin_counters(struct fq_engine *engine, int64_t deadline_us, flashq_counter **ret_counters,
                      size_t *ret_count, struct fq_err *err)
{
    struct info_out out = {0};
    int code;
    do {
        struct fq_info in = {.cursor = fq_str_of(out.cursor, out.cursor_length)};
        code = fq_call(&(struct fq_call){.engine = engine, .encode = encode_info, .in = &in,
                                         .decode = decode_info, .out = &out,
                                         .deadline_us = deadline_us, .is_repeatable = true},
                       err);
    } while (code == 0 && out.cursor_length > 0);
    if (code != 0) {
        free(out.counters);
        return code;
    }
    *ret_counters = out.counters;
    *ret_count = out.count;
    return 0;
}
