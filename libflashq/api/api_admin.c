/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for asking and administering: arguments, lock, one inner call, arrays for the
 * caller. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "client/admin.h"
#include "client/metadata.h"

static int64_t deadline_of(const flashq_client *client, int timeout_ms)
{
    return fq_engine_deadline_us(client->engine, timeout_ms);
}

static void format_uuid(const struct fq_uuid *id, char out[37])
{
    const uint8_t *b = id->bytes;
    (void)snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                   b[13], b[14], b[15]);
}

static void fill_topic(const struct fq_meta_topic *from, flashq_topic_info *to)
{
    to->struct_bytes = sizeof *to;
    (void)snprintf(to->name, sizeof to->name, "%s", from->name);
    format_uuid(&from->id, to->id);
    to->partitions = (int32_t)from->partitions_count;
    to->replicas = 1;
}

static void fill_partition(const struct fq_meta_partition *from, int32_t index,
                           flashq_partition_info *to)
{
    *to = (flashq_partition_info){
        .struct_bytes = sizeof *to, .partition = index, .status = from->status,
        .leader = (int32_t)from->leader, .shard = (int32_t)from->shard,
        .leader_epoch = from->leader_epoch, .start_offset = from->log_start,
        .end_offset = from->end, .bytes = from->bytes};
    (void)snprintf(to->medium, sizeof to->medium, "%s", from->medium);
}

int flashq_topic_list(flashq_client *client, int timeout_ms, flashq_topic_info **ret_topics,
                      size_t *ret_count, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_meta *meta;
    int code = ret_topics && ret_count ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_metadata_get(client->engine, NULL, deadline_of(client, timeout_ms), &meta, &err);
    fq_api_leave(client);
    if (code == 0) {
        flashq_topic_info *topics = calloc(meta->topics_count + 1, sizeof *topics);
        for (size_t i = 0; topics && i < meta->topics_count; i++) {
            fill_topic(&meta->topics[i], &topics[i]);
        }
        code = topics ? 0 : FLASHQ_ERR_NO_MEMORY;
        if (topics) {
            *ret_topics = topics;
            *ret_count = meta->topics_count;
        }
        fq_meta_free(meta);
    }
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_describe(flashq_client *client, const char *topic, int timeout_ms,
                          flashq_topic_info *ret_topic, flashq_partition_info **ret_partitions,
                          size_t *ret_count, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_meta *meta;
    int code = topic ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_metadata_get(client->engine, topic, deadline_of(client, timeout_ms), &meta, &err);
    fq_api_leave(client);
    if (code != 0) {
        return fq_api_give(&err, code, errtext, errtext_bytes);
    }
    const struct fq_meta_topic *found = &meta->topics[0];
    flashq_partition_info *partitions = calloc(found->partitions_count + 1u, sizeof *partitions);
    if (!partitions) {
        fq_meta_free(meta);
        return fq_api_give(NULL, FLASHQ_ERR_NO_MEMORY, errtext, errtext_bytes);
    }
    for (uint32_t i = 0; i < found->partitions_count; i++) {
        fill_partition(&found->partitions[i], (int32_t)i, &partitions[i]);
    }
    if (ret_topic) {
        fill_topic(found, ret_topic);
    }
    if (ret_count) {
        *ret_count = found->partitions_count;
    }
    if (ret_partitions) {
        *ret_partitions = partitions;
    } else {
        free(partitions);
    }
    fq_meta_free(meta);
    return fq_api_give(NULL, 0, errtext, errtext_bytes);
}

int flashq_topic_config(flashq_client *client, const char *topic, int timeout_ms,
                        flashq_config_entry **ret_entries, size_t *ret_count, char *errtext,
                        size_t errtext_bytes)
{
    struct fq_err err = {0};
    uint32_t replicas;
    int code = topic && ret_entries && ret_count ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_topic_config(client->engine, topic, deadline_of(client, timeout_ms), ret_entries,
                                 ret_count, &replicas, &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_create(flashq_client *client, const char *topic, int32_t partitions,
                        int32_t replicas, const flashq_pair *configs, size_t configs_count,
                        int timeout_ms, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = topic && (configs || configs_count == 0) ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_topic_create(client->engine, topic, partitions, replicas, configs, configs_count,
                                 deadline_of(client, timeout_ms), &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_delete(flashq_client *client, const char *topic, int timeout_ms, char *errtext,
                        size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = topic ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_topic_delete(client->engine, topic, deadline_of(client, timeout_ms), &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_alter(flashq_client *client, const char *topic, const flashq_pair *configs,
                       size_t configs_count, int timeout_ms, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = topic && (configs || configs_count == 0) ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_topic_alter(client->engine, topic, configs, configs_count,
                                deadline_of(client, timeout_ms), &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_add_partitions(flashq_client *client, const char *topic, int32_t total,
                                int timeout_ms, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = topic ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_add_partitions(client->engine, topic, total, deadline_of(client, timeout_ms), &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_topic_trim(flashq_client *client, const char *topic, int32_t partition,
                      int64_t before_offset, int timeout_ms, int64_t *ret_start, char *errtext,
                      size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = topic ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_trim(client->engine, topic, partition, before_offset,
                         deadline_of(client, timeout_ms), ret_start, &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_cluster_brokers(flashq_client *client, int timeout_ms, flashq_broker_info **ret_brokers,
                           size_t *ret_count, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_meta *meta;
    int code = ret_brokers && ret_count ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_metadata_get(client->engine, NULL, deadline_of(client, timeout_ms), &meta, &err);
    const struct fq_link *control = client->engine->control;
    uint32_t connected_id = control->broker_id;
    char storage[sizeof control->storage];
    memcpy(storage, control->storage, sizeof storage);
    fq_api_leave(client);
    if (code != 0) {
        return fq_api_give(&err, code, errtext, errtext_bytes);
    }
    flashq_broker_info *brokers = calloc(meta->brokers_count + 1, sizeof *brokers);
    for (size_t i = 0; brokers && i < meta->brokers_count; i++) {
        const struct fq_meta_broker *from = &meta->brokers[i];
        brokers[i] = (flashq_broker_info){.struct_bytes = sizeof *brokers, .id = (int32_t)from->id,
                                          .port = from->port, .shards = (int32_t)from->shards_count};
        (void)snprintf(brokers[i].host, sizeof brokers[i].host, "%s", from->host);
        if (from->id == connected_id) {
            (void)snprintf(brokers[i].storage, sizeof brokers[i].storage, "%s", storage);
        }
    }
    code = brokers ? 0 : FLASHQ_ERR_NO_MEMORY;
    if (brokers) {
        *ret_brokers = brokers;
        *ret_count = meta->brokers_count;
    }
    fq_meta_free(meta);
    return fq_api_give(NULL, code, errtext, errtext_bytes);
}

int flashq_cluster_counters(flashq_client *client, int timeout_ms, flashq_counter **ret_counters,
                            size_t *ret_count, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = ret_counters && ret_count ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_admin_counters(client->engine, deadline_of(client, timeout_ms), ret_counters, ret_count,
                             &err);
    fq_api_leave(client);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}
