/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about topics and about the broker as a whole, on the housekeeper's thread. Each handler fills the
 * task's answer, or returns an error that becomes the answer; TRIM and PARTITION_DESCRIBE go on to the
 * shard that owns the partition, TOPIC_DELETE is answered when the shards have let go.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conf/conf.h"
#include "housekeeper.h"
#include "wire/protocol_codec.h"

#define PAIRS_MAX 64

/* ---- helpers -------------------------------------------------------------------------------- */

static int find_topic(struct fq_housekeeper *hk, struct fq_str name, struct fq_topic **ret,
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
        if (!fq_str_copy(pair.key, key, sizeof key) || !fq_str_copy(pair.value, value, sizeof value)) {
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
    struct fq_topic_create_answer answer = {.partitions = spec.partitions, .replicas = spec.replicas};
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
        code = find_topic(hk, body.name, &topic, err);
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
        code = find_topic(hk, alter.name, &topic, err);
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
        code = find_topic(hk, add.name, &topic, err);
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
        code = find_topic(hk, body.name, &topic, err);
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
    fq_task_answered(task, fq_encode_topic_describe_answer(room, room_bytes, task->correlation,
                                                           &answer));
    return 0;
}

/* ---- one partition -------------------------------------------------------------------------- */

/* Sends the request on to the shard that owns the partition. Returns 1: answered later. */
static int send_to_owner(struct fq_housekeeper *hk, struct fq_task *task, struct fq_str name,
                         uint32_t partition, int64_t offset, struct fq_err *err)
{
    struct fq_topic *topic;
    int code = find_topic(hk, name, &topic, err);
    if (code != 0) {
        return code;
    }
    if (partition >= topic->partitions) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "topic \"%s\" has %u partitions, 0 to %u, not %u",
                          topic->name, topic->partitions, topic->partitions - 1, partition);
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

/* ---- metadata ------------------------------------------------------------------------------- */

/* Where a page goes on: a topic (its name, or its index in the list that was asked for) and the
 * partition. As text: "NAME_OR_INDEX/PARTITION"; a topic's name has no slash. */
struct place {
    char topic[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    uint32_t partition;
};

static bool place_parse(struct fq_str cursor, struct place *ret)
{
    char text[FQ_CURSOR_BYTES + 1];
    *ret = (struct place){.partition = 0};
    if (cursor.length == 0) {
        return true;
    }
    char *slash = fq_str_copy(cursor, text, sizeof text) ? strchr(text, '/') : NULL;
    if (!slash || slash - text > FQ_LIMIT_TOPIC_NAME_BYTES) {
        return false;
    }
    *slash = '\0';
    memcpy(ret->topic, text, (size_t)(slash - text) + 1);
    ret->partition = (uint32_t)strtoul(slash + 1, NULL, 10);
    return true;
}

static struct fq_str place_format(const char *topic, uint32_t partition, char out[FQ_CURSOR_BYTES])
{
    int length = snprintf(out, FQ_CURSOR_BYTES, "%s/%u", topic, partition);
    return fq_str_of(out, (size_t)length);
}

static bool add_topic_entry(struct fq_page *page, const struct fq_topic *topic,
                            const struct fq_topic_config *config)
{
    struct fq_topic_entry entry = {.name = fq_str_of(topic->name, strlen(topic->name)),
                                   .id = topic->id,
                                   .partitions_total = topic->partitions,
                                   .append_mode = (uint8_t)config->append,
                                   .durability = (uint8_t)config->durability};
    return fq_metadata_answer_add_topic(page, &entry);
}

static bool add_partition_entry(struct fq_housekeeper *hk, struct fq_page *page,
                                const struct fq_topic *topic, uint32_t index, const char *medium)
{
    const struct fq_gauges *gauges = ((const struct fq_served *)topic->context)->gauges[index];
    struct fq_partition_entry entry = {
        .index = index,
        .status = atomic_load_explicit(&gauges->state, memory_order_relaxed),
        .leader = (uint32_t)hk->params.options->broker_id,
        .shard = fq_topic_shard(topic, index, hk->shards_count),
        .leader_epoch = atomic_load_explicit(&gauges->leader_epoch, memory_order_relaxed),
        .end = atomic_load_explicit(&gauges->end, memory_order_relaxed),
        .log_start = atomic_load_explicit(&gauges->log_start, memory_order_relaxed),
        .bytes = atomic_load_explicit(&gauges->bytes, memory_order_relaxed),
        .medium = fq_str_of(medium, strlen(medium))};
    return fq_metadata_answer_add_partition(page, &entry);
}

/* Adds the topic and its partitions from `from` on. true: all; false: the page is full, *ret_from is
 * the first that did not fit. */
static bool add_topic(struct fq_housekeeper *hk, struct fq_page *page, const struct fq_topic *topic,
                      uint32_t from, uint32_t *ret_from)
{
    struct fq_topic_config config;
    char medium[128];
    (void)snprintf(medium, sizeof medium, "%s, flush %s", fq_store_medium(hk->params.store),
                   fq_store_flush(hk->params.store));
    fq_topic_settings_resolve(&topic->settings, &hk->topic_defaults, &config);
    *ret_from = from;
    if (!add_topic_entry(page, topic, &config)) {
        return false;
    }
    for (; *ret_from < topic->partitions; (*ret_from)++) {
        if (!add_partition_entry(hk, page, topic, *ret_from, medium)) {
            return false;
        }
    }
    return true;
}

static struct fq_str add_all(struct fq_housekeeper *hk, struct fq_page *page,
                             const struct place *place, char cursor[FQ_CURSOR_BYTES])
{
    struct fq_coord *coord = hk->params.coord;
    uint32_t from = place->partition;
    struct fq_topic *topic = place->topic[0] ? coord->ops->find(coord, place->topic) : NULL;
    if (!topic) { /* the first page, or the topic was deleted between two */
        topic = coord->ops->next(coord, place->topic);
        from = 0;
    }
    for (; topic; topic = coord->ops->next(coord, topic->name)) {
        if (!add_topic(hk, page, topic, from, &from)) {
            return place_format(topic->name, from, cursor);
        }
        from = 0;
    }
    return fq_str_of("", 0);
}

static struct fq_str add_named(struct fq_housekeeper *hk, struct fq_page *page, struct fq_list names,
                               const struct place *place, char cursor[FQ_CURSOR_BYTES])
{
    unsigned long first = strtoul(place->topic, NULL, 10);
    struct fq_str name;
    for (unsigned long i = 0; fq_strings_next(&names, &name) == 1; i++) {
        struct fq_topic *topic;
        uint32_t from = i == first ? place->partition : 0;
        bool has_room;
        if (i < first) {
            continue;
        }
        if (find_topic(hk, name, &topic, NULL) == 0) {
            has_room = add_topic(hk, page, topic, from, &from);
        } else {
            struct fq_topic_entry entry = {.status = FLASHQ_ERR_NOT_FOUND, .name = name};
            has_room = fq_metadata_answer_add_topic(page, &entry);
        }
        if (!has_room) {
            char index[24];
            (void)snprintf(index, sizeof index, "%lu", i);
            return place_format(index, from, cursor);
        }
    }
    return fq_str_of("", 0);
}

static int metadata(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                    struct fq_err *err)
{
    struct fq_metadata body;
    struct place place;
    struct fq_page page;
    char cursor[FQ_CURSOR_BYTES];
    int code = fq_decode_metadata(msg, &body, err);
    if (code != 0) {
        return code;
    }
    if (!place_parse(body.cursor, &place)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "the cursor is not one of this broker");
    }
    uint8_t *room = fq_task_answer_room(task, FQ_LIMIT_CONTROL_BYTES);
    if (!room) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    code = fq_metadata_answer_begin(&page, room, FQ_LIMIT_CONTROL_BYTES, task->correlation);
    if (code != 0) {
        return code;
    }
    if (body.cursor.length == 0) {
        const char *host = hk->params.options->advertised_host;
        struct fq_broker_entry broker = {.id = (uint32_t)hk->params.options->broker_id,
                                         .host = fq_str_of(host, strlen(host)),
                                         .port = hk->params.tcp_port,
                                         .shards_count = hk->shards_count};
        (void)fq_metadata_answer_add_broker(&page, &broker); /* fits an empty page */
    }
    struct fq_str next = body.names.count == 0 ? add_all(hk, &page, &place, cursor)
                                               : add_named(hk, &page, body.names, &place, cursor);
    fq_task_answered(task, fq_metadata_answer_finish(&page, next));
    return 0;
}

/* ---- counters ------------------------------------------------------------------------------- */

static int64_t sum_counter(const struct fq_housekeeper *hk, size_t index)
{
    int64_t sum = fq_counters_get(&hk->counters, index) +
                  fq_counters_get(hk->params.acceptor_counters, index);
    for (unsigned i = 0; i < hk->shards_count; i++) {
        sum += fq_counters_get(hk->params.shards[i].counters, index);
    }
    if (index == FQ_COUNT_BAD_HELLO || index == FQ_COUNT_SESSIONS_REFUSED) {
        sum += (int64_t)atomic_load_explicit(hk->params.refused_hellos, memory_order_relaxed);
    }
    return sum;
}

struct named_value {
    const char *name;
    uint64_t value;
};
#define STORE_COUNTERS 12

static void store_counters(const struct fq_housekeeper *hk, struct named_value out[STORE_COUNTERS])
{
    struct fq_store_stats s;
    fq_store_get_stats(hk->params.store, &s);
    const struct named_value values[STORE_COUNTERS] = {
        {"store.prepared.count", s.prepared_count}, {"store.prepared.bytes", s.prepared_bytes},
        {"store.recycled", s.recycled},             {"store.created", s.created},
        {"store.unlinked", s.unlinked},             {"store.starved", s.starved},
        {"store.roll_waits", s.roll_waits},         {"store.no_space", s.no_space},
        {"store.syncs", s.syncs},                   {"store.sync_errors", s.sync_errors},
        {"store.quarantined", s.quarantined},       {"store.damage", s.damage}};
    memcpy(out, values, sizeof values);
}

static int info(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                struct fq_err *err)
{
    struct named_value store[STORE_COUNTERS];
    struct fq_info body;
    struct fq_page page;
    char text[32] = "";
    int code = fq_decode_info(msg, &body, err);
    if (code == 0 && !fq_str_copy(body.cursor, text, sizeof text)) {
        code = fq_err_set(err, FLASHQ_ERR_INVALID, "the cursor is not one of this broker");
    }
    uint8_t *room = code == 0 ? fq_task_answer_room(task, FQ_LIMIT_CONTROL_BYTES) : NULL;
    if (!room) {
        return code != 0 ? code : FLASHQ_ERR_NO_MEMORY;
    }
    code = fq_info_answer_begin(&page, room, FQ_LIMIT_CONTROL_BYTES, task->correlation);
    if (code != 0) {
        return code;
    }
    store_counters(hk, store);
    size_t at = strtoul(text, NULL, 10);
    text[0] = '\0';
    for (; at < FQ_COUNTERS + STORE_COUNTERS; at++) {
        char buffer[64];
        bool is_own = at < FQ_COUNTERS;
        const char *name = is_own ? fq_counter_name(at, buffer, sizeof buffer)
                                  : store[at - FQ_COUNTERS].name;
        if (!name) {
            continue;
        }
        struct fq_counter counter = {.name = fq_str_of(name, strlen(name)),
                                     .value = is_own ? sum_counter(hk, at)
                                                     : (int64_t)store[at - FQ_COUNTERS].value};
        if (!fq_info_answer_add(&page, &counter)) {
            (void)snprintf(text, sizeof text, "%zu", at);
            break;
        }
    }
    fq_task_answered(task, fq_info_answer_finish(&page, fq_str_of(text, strlen(text))));
    return 0;
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static int handle(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                  struct fq_err *err)
{
    switch (msg->type) {
    case FQ_MSG_METADATA: return metadata(hk, task, msg, err);
    case FQ_MSG_TOPIC_CREATE: return topic_create(hk, task, msg, err);
    case FQ_MSG_TOPIC_DELETE: return topic_delete(hk, task, msg, err);
    case FQ_MSG_TOPIC_ALTER: return topic_alter(hk, task, msg, err);
    case FQ_MSG_TOPIC_DESCRIBE: return topic_describe(hk, task, msg, err);
    case FQ_MSG_PARTITIONS_ADD: return partitions_add(hk, task, msg, err);
    case FQ_MSG_TRIM: return trim(hk, task, msg, err);
    case FQ_MSG_PARTITION_DESCRIBE: return partition_describe(hk, task, msg, err);
    case FQ_MSG_INFO: return info(hk, task, msg, err);
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
