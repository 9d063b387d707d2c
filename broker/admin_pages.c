/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that may be longer than a message: METADATA and INFO, in pages that go on at a cursor. A
 * page reflects the catalogue as it is when it is asked for; what changes between two pages may be
 * in either.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "wire/protocol_codec.h"

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
                                const struct fq_topic *topic, uint32_t index, struct fq_str medium)
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
        .medium = medium};
    return fq_metadata_answer_add_partition(page, &entry);
}

/* Adds the topic and its partitions from `from` on. true: all; false: the page is full, *ret_from
 * is the first that did not fit. */
static bool add_topic(struct fq_housekeeper *hk, struct fq_page *page, const struct fq_topic *topic,
                      uint32_t from, uint32_t *ret_from)
{
    struct fq_topic_config config;
    char text[FQ_WORDS_BYTES + 1], words[FQ_WORDS_BYTES];
    (void)snprintf(text, sizeof text, "%s, flush %s", fq_store_medium(hk->params.store),
                   fq_store_flush(hk->params.store));
    struct fq_str medium = fq_words(text, words);
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

static struct fq_str add_named(struct fq_housekeeper *hk, struct fq_page *page,
                               struct fq_list names, const struct place *place,
                               char cursor[FQ_CURSOR_BYTES])
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
        if (fq_admin_find_topic(hk, name, &topic, NULL) == 0) {
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

int fq_admin_metadata(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
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
#define STORE_COUNTERS 13

static void store_counters(const struct fq_housekeeper *hk, struct named_value out[STORE_COUNTERS])
{
    struct fq_store_stats s;
    fq_store_get_stats(hk->params.store, &s);
    const struct named_value values[STORE_COUNTERS] = {{"store.prepared.count", s.prepared_count},
                                                       {"store.prepared.bytes", s.prepared_bytes},
                                                       {"store.recycled", s.recycled},
                                                       {"store.created", s.created},
                                                       {"store.unlinked", s.unlinked},
                                                       {"store.starved", s.starved},
                                                       {"store.roll_waits", s.roll_waits},
                                                       {"store.no_space", s.no_space},
                                                       {"store.syncs", s.syncs},
                                                       {"store.sync_errors", s.sync_errors},
                                                       {"store.quarantined", s.quarantined},
                                                       {"store.damage", s.damage},
                                                       {"process.pid", (uint64_t)getpid()}};
    memcpy(out, values, sizeof values);
}

int fq_admin_info(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
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
        const char *name =
            is_own ? fq_counter_name(at, buffer, sizeof buffer) : store[at - FQ_COUNTERS].name;
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
