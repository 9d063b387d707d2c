/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about topics, on the housekeeper's thread. Each handler fills the task's answer, or
 * returns an error that becomes the answer; TRIM and PARTITION_DESCRIBE go on to the shard that
 * owns the partition, TOPIC_DELETE is answered when the shards have let go. Answers in pages are in
 * admin_pages.c.
 */
#include <assert.h>
#include <string.h>

#include "admin.h"
#include "base/log.h"
#include "conf/conf.h"
#include "housekeeper.h"
#include "wire/protocol_codec.h"

#define PAIRS_MAX 64

/* ---- helpers -------------------------------------------------------------------------------- */

int fq_admin_find_topic(struct fq_housekeeper *hk, struct fq_str name, struct fq_topic **ret,
                        struct fq_err *err)
{
    char text[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_coord *coord = hk->params.coord;
    *ret = fq_str_copy(name, text, sizeof text) ? coord->ops->find(coord, text) : NULL;
    if (!*ret) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "no topic is named \"%.*s\"", (int)name.length,
                          name.data);
    }
    return 0;
}

/* Takes over every pair of the list. */
static int apply_settings(struct fq_housekeeper *hk, struct fq_topic_settings *settings,
                          struct fq_list pairs, bool is_creation, struct fq_err *err)
{
    struct fq_config_pair pair;
    while (fq_config_pairs_next(&pairs, &pair) == 1) {
        char key[128], value[256];
        if (!fq_str_copy(pair.key, key, sizeof key) ||
            !fq_str_copy(pair.value, value, sizeof value)) {
            return fq_err_set(err, FLASHQ_ERR_CONFIG, "a key or value is too long (%zu, %zu bytes)",
                              pair.key.length, pair.value.length);
        }
        if (!is_creation && strcmp(key, "append") == 0) {
            return fq_err_set(err, FLASHQ_ERR_CONFIG, "append: is fixed when a topic is created");
        }
        int code = fq_topic_settings_set(settings, &hk->topic_defaults, key, value, err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static int check_append(struct fq_housekeeper *hk, const struct fq_topic_settings *settings,
                        struct fq_err *err)
{
    struct fq_topic_config config;
    fq_topic_settings_resolve(settings, &hk->topic_defaults, &config);
    if (config.append == FQ_APPEND_DIRECT && fq_store_needs_flusher(hk->params.store)) {
        return fq_err_set(
            err, FLASHQ_ERR_UNSUPPORTED,
            "append=direct needs a log in memory (flush: pmem): this broker's is on %s, "
            "flush %s, and is written by system calls",
            fq_store_medium(hk->params.store), fq_store_flush(hk->params.store));
    }
    return 0;
}

static int answer_empty(struct fq_task *task)
{
    uint8_t *room = fq_task_answer_room(task, 64);
    if (!room) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    fq_task_answered(task, fq_encode_empty(room, 64, task->msg_type, true, task->correlation));
    return 0;
}

/* ---- topics --------------------------------------------------------------------------------- */

static int topic_create(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                        struct fq_err *err)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic_create create;
    struct fq_topic *topic = NULL;
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    uint8_t *room = fq_task_answer_room(task, 256);
    int code = fq_decode_topic_create(msg, &create, err);
    if (code != 0 || !room) {
        return code != 0 ? code : FLASHQ_ERR_NO_MEMORY;
    }
    (void)fq_str_copy(create.name, name, sizeof name);
    struct fq_topic_spec spec = {
        .name = name,
        .partitions = create.partitions ? create.partitions
                                        : (uint32_t)hk->params.options->partitions_default,
        .replicas = create.replicas ? create.replicas : 1,
        .now_ms = hk->params.clock->wall_ms(hk->params.clock->context)};
    fq_conf_defaults(&fq_topic_config_table, &spec.settings.values);
    code = apply_settings(hk, &spec.settings, create.configs, true, err);
    code = code != 0 ? code : check_append(hk, &spec.settings, err);
    if (code == 0 && create.validate_only) {
        code = coord->ops->check(coord, &spec, err);
    } else if (code == 0) {
        code = coord->ops->topic_create(coord, &spec, &topic, err);
    }
    if (code == 0 && topic) {
        code = fq_housekeeper_serve(hk, topic, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_topic_create_answer answer = {.partitions = spec.partitions,
                                            .replicas = spec.replicas};
    if (topic) {
        answer.id = topic->id;
        fq_count(&hk->counters, FQ_COUNT_TOPICS);
        fq_count(&hk->counters, FQ_COUNT_TOPICS_CREATED);
        fq_info("topic %s created: %u partitions", topic->name, topic->partitions);
    }
    fq_task_answered(task, fq_encode_topic_create_answer(room, 256, task->correlation, &answer));
    return 0;
}

/* Returns 1: answered later. */
static int topic_delete(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                        struct fq_err *err)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic_name body;
    struct fq_topic *topic;
    int code = fq_decode_topic_delete(msg, &body, err);
    if (code == 0) {
        code = fq_admin_find_topic(hk, body.name, &topic, err);
    }
    if (code == 0) {
        code = coord->ops->topic_delete(coord, topic, err);
    }
    if (code == 0) {
        fq_count_add(&hk->counters, FQ_COUNT_TOPICS, -1);
        code = fq_housekeeper_remove(hk, topic);
    }
    if (code != 0) {
        return code;
    }
    ((struct fq_served *)topic->context)->deletion = task;
    return 1;
}

void fq_admin_finish_delete(struct fq_housekeeper *hk, struct fq_topic *topic)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_served *served = topic->context;
    struct fq_task *task = served->deletion;
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_err err;
    memcpy(name, topic->name, sizeof name);
    served->deletion = NULL;
    fq_housekeeper_free_served(topic);
    int code = coord->ops->topic_forget(coord, topic, &err);
    if (code != 0) {
        fq_error("topic %s: its files stay until the next start: %s", name, err.text);
        fq_task_fail(task, code, err.text);
    } else {
        fq_info("topic %s deleted", name);
        fq_count(&hk->counters, FQ_COUNT_TOPICS_DELETED);
        if (answer_empty(task) != 0) {
            fq_task_fail(task, FLASHQ_ERR_NO_MEMORY, NULL);
        }
    }
    fq_housekeeper_answer(hk, task);
}

static int topic_alter(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                       struct fq_err *err)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_topic_alter alter;
    struct fq_topic *topic;
    int code = fq_decode_topic_alter(msg, &alter, err);
    if (code == 0) {
        code = fq_admin_find_topic(hk, alter.name, &topic, err);
    }
    if (code != 0) {
        return code;
    }
    struct fq_topic_settings settings = topic->settings;
    code = apply_settings(hk, &settings, alter.configs, false, err);
    if (code == 0 && !alter.validate_only) {
        code = coord->ops->topic_alter(coord, topic, &settings, err);
        if (code == 0) {
            code = fq_housekeeper_configure(hk, topic, err);
        }
    }
    return code != 0 ? code : answer_empty(task);
}

static int partitions_add(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                          struct fq_err *err)
{
    struct fq_coord *coord = hk->params.coord;
    struct fq_partitions_add add;
    struct fq_topic *topic;
    int code = fq_decode_partitions_add(msg, &add, err);
    if (code == 0) {
        code = fq_admin_find_topic(hk, add.name, &topic, err);
    }
    if (code == 0) {
        code = coord->ops->partitions_add(coord, topic, add.total, err);
    }
    if (code == 0) {
        code = fq_housekeeper_serve(hk, topic, err);
    }
    return code != 0 ? code : answer_empty(task);
}

/* Where a value in force comes from: 2 the topic, 1 the broker's configuration, 0 the default. */
static uint8_t source_of(const struct fq_housekeeper *hk, const struct fq_topic *topic, size_t key)
{
    const struct fq_conf_key *k = &fq_topic_config_table.keys[key];
    struct fq_topic_config builtin;
    if ((topic->settings.set_mask & 1u << key) != 0) {
        return 2;
    }
    fq_conf_defaults(&fq_topic_config_table, &builtin);
    return memcmp((const char *)&builtin + k->offset, (const char *)&hk->topic_defaults + k->offset,
                  sizeof(int64_t)) != 0;
}

static int topic_describe(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                          struct fq_err *err)
{
    struct fq_topic_name body;
    struct fq_topic *topic;
    struct fq_topic_config config;
    struct fq_config_pair pairs[PAIRS_MAX];
    char values[PAIRS_MAX][64], list[PAIRS_MAX * 160];
    size_t count = fq_topic_config_table.keys_count, room_bytes = sizeof list + 512;
    int code = fq_decode_topic_describe(msg, &body, err);
    if (code == 0) {
        code = fq_admin_find_topic(hk, body.name, &topic, err);
    }
    if (code != 0) {
        return code;
    }
    assert(count <= PAIRS_MAX);
    fq_topic_settings_resolve(&topic->settings, &hk->topic_defaults, &config);
    for (size_t i = 0; i < count; i++) {
        const struct fq_conf_key *key = &fq_topic_config_table.keys[i];
        const char *value = fq_conf_get(key, &config, values[i], sizeof values[i]);
        pairs[i] = (struct fq_config_pair){.key = fq_str_of(key->name, strlen(key->name)),
                                           .value = fq_str_of(value, strlen(value)),
                                           .source = source_of(hk, topic, i)};
    }
    struct fq_topic_describe_answer answer = {.id = topic->id,
                                              .partitions = topic->partitions,
                                              .replicas = topic->replicas,
                                              .created_ms = topic->created_ms};
    code = fq_config_pairs_list(list, sizeof list, pairs, count, &answer.configs);
    uint8_t *room = code == 0 ? fq_task_answer_room(task, room_bytes) : NULL;
    if (!room) {
        return code != 0 ? code : FLASHQ_ERR_NO_MEMORY;
    }
    fq_task_answered(task,
                     fq_encode_topic_describe_answer(room, room_bytes, task->correlation, &answer));
    return 0;
}

/* ---- one partition -------------------------------------------------------------------------- */

/* Sends the request on to the shard that owns the partition. Returns 1: answered later. */
static int send_to_owner(struct fq_housekeeper *hk, struct fq_task *task, struct fq_str name,
                         uint32_t partition, int64_t offset, struct fq_err *err)
{
    struct fq_topic *topic;
    int code = fq_admin_find_topic(hk, name, &topic, err);
    if (code != 0) {
        return code;
    }
    if (partition >= topic->partitions) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND,
                          "topic \"%s\" has %u partitions, 0 to %u, not %u", topic->name,
                          topic->partitions, topic->partitions - 1, partition);
    }
    task->type = FQ_TASK_OWNER;
    task->topic_id = topic->id;
    task->partition = partition;
    task->offset = offset;
    fq_housekeeper_send(hk, fq_topic_shard(topic, partition, hk->shards_count), task);
    return 1;
}

static int trim(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                struct fq_err *err)
{
    struct fq_trim body;
    int code = fq_decode_trim(msg, &body, err);
    return code != 0 ? code
                     : send_to_owner(hk, task, body.name, body.partition, body.before_offset, err);
}

static int partition_describe(struct fq_housekeeper *hk, struct fq_task *task,
                              const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_partition_ref body;
    int code = fq_decode_partition_describe(msg, &body, err);
    return code != 0 ? code : send_to_owner(hk, task, body.topic, body.partition, 0, err);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static int handle(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                  struct fq_err *err)
{
    switch (msg->type) {
    case FQ_MSG_METADATA: return fq_admin_metadata(hk, task, msg, err);
    case FQ_MSG_TOPIC_CREATE: return topic_create(hk, task, msg, err);
    case FQ_MSG_TOPIC_DELETE: return topic_delete(hk, task, msg, err);
    case FQ_MSG_TOPIC_ALTER: return topic_alter(hk, task, msg, err);
    case FQ_MSG_TOPIC_DESCRIBE: return topic_describe(hk, task, msg, err);
    case FQ_MSG_PARTITIONS_ADD: return partitions_add(hk, task, msg, err);
    case FQ_MSG_TRIM: return trim(hk, task, msg, err);
    case FQ_MSG_PARTITION_DESCRIBE: return partition_describe(hk, task, msg, err);
    case FQ_MSG_INFO: return fq_admin_info(hk, task, msg, err);
    default: break;
    }
    return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "no request of type %u", msg->type);
}

void fq_admin_handle(struct fq_housekeeper *hk, struct fq_task *task)
{
    struct fq_msg msg;
    struct fq_err err;
    fq_err_clear(&err);
    int code = fq_msg_decode(task->bytes, task->bytes_length, &msg, &err);
    if (code == 0) {
        code = handle(hk, task, &msg, &err);
    }
    if (code > 0) {
        return; /* somebody else holds the task */
    }
    if (code < 0) {
        fq_task_fail(task, code, err.text[0] ? err.text : NULL);
    }
    fq_housekeeper_answer(hk, task);
}
