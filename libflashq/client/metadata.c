/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata requests, page by page. Everything in an answer is hostile until checked: partitions must come in
 * order from 0, and no more memory is taken than the pages that arrived justify.
 * Fails with the link (the asker tries again) and for want of memory. Thread: any, under the lock.
 */
#include "client/metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/link.h"
#include "client/request.h"

#define PAGES_MAX 100000

struct metadata_op {
    struct fq_engine *engine;
    struct fq_chain node;
    char topic[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    bool is_all;
    int64_t deadline_us;
    fq_metadata_done done;
    void *context;
    struct fq_meta *meta;
    unsigned pages;
};

void fq_meta_free(struct fq_meta *meta)
{
    if (!meta) {
        return;
    }
    for (size_t i = 0; i < meta->topics_count; i++) {
        free(meta->topics[i].partitions);
    }
    free(meta->topics);
    free(meta->brokers);
    free(meta);
}

/* Makes room for one more item; NULL without memory. Capacity is the next power of two. */
static void *one_more(void **items, size_t count, size_t item_bytes)
{
    if ((count & (count - 1)) == 0) {
        void *bigger = realloc(*items, (count ? count * 2 : 1) * item_bytes);
        if (!bigger) {
            return NULL;
        }
        *items = bigger;
    }
    void *item = (char *)*items + count * item_bytes;
    memset(item, 0, item_bytes);
    return item;
}

static int take_broker(struct fq_meta *meta, const struct fq_broker_entry *entry)
{
    void *items = meta->brokers;
    struct fq_meta_broker *broker = one_more(&items, meta->brokers_count, sizeof *broker);
    meta->brokers = items;
    if (!broker) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    broker->id = entry->id;
    broker->port = entry->port;
    broker->shards_count = entry->shards_count;
    if (!fq_str_copy(entry->host, broker->host, sizeof broker->host)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    meta->brokers_count++;
    return 0;
}

static int take_topic(struct fq_meta *meta, const struct fq_topic_entry *entry)
{
    if (meta->topics_count > 0) { /* a topic that goes on on this page is named again */
        struct fq_meta_topic *last = &meta->topics[meta->topics_count - 1];
        if (fq_str_equal(entry->name, fq_str_of(last->name, strlen(last->name)))) {
            return memcmp(&entry->id, &last->id, sizeof last->id) == 0 ? 0 : FLASHQ_ERR_AGAIN;
        }
    }
    void *items = meta->topics;
    struct fq_meta_topic *topic = one_more(&items, meta->topics_count, sizeof *topic);
    meta->topics = items;
    if (!topic) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    topic->status = entry->status;
    topic->id = entry->id;
    topic->append_mode = entry->append_mode;
    if (!fq_str_copy(entry->name, topic->name, sizeof topic->name)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    meta->topics_count++;
    return 0;
}

static int take_partition(struct fq_meta *meta, const struct fq_partition_entry *entry)
{
    struct fq_meta_topic *topic =
        meta->topics_count > 0 ? &meta->topics[meta->topics_count - 1] : NULL;
    if (!topic || entry->index != topic->partitions_count ||
        entry->index >= FQ_LIMIT_PARTITIONS_PER_TOPIC) {
        return FLASHQ_ERR_PROTOCOL;
    }
    void *items = topic->partitions;
    struct fq_meta_partition *partition =
        one_more(&items, topic->partitions_count, sizeof *partition);
    topic->partitions = items;
    if (!partition) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    *partition = (struct fq_meta_partition){
        .status = entry->status, .leader = entry->leader, .shard = entry->shard,
        .leader_epoch = entry->leader_epoch, .log_start = entry->log_start, .end = entry->end,
        .bytes = entry->bytes};
    size_t length = entry->medium.length < sizeof partition->medium - 1
                        ? entry->medium.length
                        : sizeof partition->medium - 1;
    if (length > 0) {
        memcpy(partition->medium, entry->medium.data, length);
    }
    topic->partitions_count++;
    return 0;
}

static int take_page(struct fq_meta *meta, struct fq_list items)
{
    struct fq_metadata_item item;
    int code;
    while ((code = fq_metadata_next(&items, &item)) == 1) {
        switch (item.kind) {
        case FQ_METADATA_BROKER: code = take_broker(meta, &item.broker); break;
        case FQ_METADATA_TOPIC: code = take_topic(meta, &item.topic); break;
        case FQ_METADATA_PARTITION: code = take_partition(meta, &item.partition); break;
        }
        if (code != 0) {
            return code;
        }
    }
    return code;
}

/* ---- the request ---------------------------------------------------------------------------- */

static void op_free(struct metadata_op *op)
{
    fq_chain_remove(&op->node);
    fq_meta_free(op->meta);
    free(op);
}

static void op_end(struct metadata_op *op, int code, const char *text)
{
    struct fq_meta *meta = code == 0 ? op->meta : NULL;
    fq_metadata_done done = op->done;
    void *context = op->context;
    if (code == 0) {
        op->meta = NULL;
    }
    op_free(op);
    done(context, code, meta, text);
}

static void page_came(void *context, int status, const struct fq_msg *msg, const char *text);

static int ask_page(struct metadata_op *op, struct fq_str cursor)
{
    uint8_t names[FQ_LIMIT_TOPIC_NAME_BYTES + 16], buffer[1024];
    struct fq_metadata ask = {.cursor = cursor};
    struct fq_str name = fq_str_of(op->topic, strlen(op->topic));
    int code = fq_strings_list(names, sizeof names, &name, op->is_all ? 0 : 1, &ask.names);
    if (code != 0) {
        return code;
    }
    struct fq_link *link = op->engine->control;
    if (!fq_link_is_up(link)) {
        return FLASHQ_ERR_UNREACHABLE;
    }
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_metadata(buffer, sizeof buffer, correlation, &ask);
    return fq_link_request(link, buffer, length, correlation, op->deadline_us, page_came, op);
}

static void page_came(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct metadata_op *op = context;
    struct fq_err err = {0};
    struct fq_metadata_answer page;
    if (status == 0) {
        status = fq_decode_metadata_answer(msg, &page, &err);
        text = err.text;
    }
    if (status == 0) {
        status = take_page(op->meta, page.items);
        text = "the broker's metadata make no sense";
    }
    if (status == 0 && page.cursor.length > 0) {
        status = ++op->pages < PAGES_MAX ? ask_page(op, page.cursor) : FLASHQ_ERR_PROTOCOL;
        if (status == 0) {
            return;
        }
    }
    op_end(op, status, status == 0 ? NULL : text);
}

int fq_metadata_fetch(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                      fq_metadata_done done, void *context)
{
    struct metadata_op *op = calloc(1, sizeof *op);
    struct fq_meta *meta = calloc(1, sizeof *meta);
    if (!op || !meta) {
        free(op);
        free(meta);
        return FLASHQ_ERR_NO_MEMORY;
    }
    op->engine = engine;
    op->meta = meta;
    op->deadline_us = deadline_us;
    op->done = done;
    op->context = context;
    op->is_all = topic == NULL;
    if (topic) {
        (void)fq_str_copy(fq_str_of(topic, strlen(topic)), op->topic, sizeof op->topic);
    }
    fq_chain_append(&engine->metadata_ops, &op->node);
    int code = ask_page(op, (struct fq_str){0});
    if (code != 0) {
        op_free(op);
    }
    return code;
}

static void cancel_op(struct metadata_op *op)
{
    fq_link_cancel(op->engine->control, op);
    op_free(op);
}

void fq_metadata_cancel(struct fq_engine *engine, void *context)
{
    for (struct fq_chain *at = engine->metadata_ops.next, *next; at != &engine->metadata_ops; at = next) {
        next = at->next;
        struct metadata_op *op = fq_chain_item(at, struct metadata_op, node);
        if (op->context == context) {
            cancel_op(op);
        }
    }
}

void fq_metadata_cancel_all(struct fq_engine *engine)
{
    while (!fq_chain_is_empty(&engine->metadata_ops)) {
        cancel_op(fq_chain_item(engine->metadata_ops.next, struct metadata_op, node));
    }
}

/* ---- waiting for it ------------------------------------------------------------------------- */

struct waiting {
    struct fq_engine *engine;
    bool is_done;
    struct fq_meta *meta;
    struct fq_err err;
};

static void waiting_done(void *context, int code, struct fq_meta *meta, const char *text)
{
    struct waiting *waiting = context;
    waiting->is_done = true;
    waiting->meta = meta;
    (void)fq_err_set(&waiting->err, code, "%s", text && text[0] ? text : fq_err_describe(code));
    fq_engine_progress(waiting->engine);
}

static bool is_done(void *context)
{
    return ((struct waiting *)context)->is_done;
}

static int get_once(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                    struct fq_meta **ret, struct fq_err *err)
{
    struct waiting waiting = {.engine = engine};
    int code = fq_engine_wait_up(engine, deadline_us, err);
    if (code != 0) {
        return code;
    }
    code = fq_metadata_fetch(engine, topic, deadline_us, waiting_done, &waiting);
    if (code != 0) {
        (void)fq_engine_drive(engine); /* a broken connection is noticed before the next try */
        return fq_err_set(err, code, "cannot ask for metadata: %s", fq_err_describe(code));
    }
    code = fq_engine_wait(engine, deadline_us, is_done, &waiting);
    if (!waiting.is_done) {
        fq_metadata_cancel(engine, &waiting);
        return fq_err_set(err, code, "no metadata from the broker: %s", fq_err_describe(code));
    }
    if (waiting.err.code != 0) {
        return fq_err_set(err, waiting.err.code, "%s", waiting.err.text);
    }
    *ret = waiting.meta;
    return 0;
}

int fq_metadata_get(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                    struct fq_meta **ret, struct fq_err *err)
{
    struct fq_err local = {0};
    struct fq_meta *meta = NULL;
    int code = topic ? fq_topic_name_check(topic, strlen(topic), err) : 0;
    if (code != 0) {
        return code;
    }
    do { /* a connection lost on the way, or a topic made anew between two pages */
        code = get_once(engine, topic, deadline_us, &meta, &local);
    } while ((code == FLASHQ_ERR_UNREACHABLE || code == FLASHQ_ERR_AGAIN) &&
             fq_mono_us() < deadline_us);
    if (code != 0) {
        return fq_err_set(err, code, "%s", local.text);
    }
    if (topic && (meta->topics_count != 1 || meta->topics[0].status != 0)) {
        code = meta->topics_count == 1 ? meta->topics[0].status : FLASHQ_ERR_NOT_FOUND;
        fq_meta_free(meta);
        return fq_err_set(err, code, "topic %s: %s", topic, fq_err_describe(code));
    }
    *ret = meta;
    return 0;
}

static const struct fq_meta_broker *broker_of(const struct fq_meta *meta, uint32_t id)
{
    for (size_t i = 0; i < meta->brokers_count; i++) {
        if (meta->brokers[i].id == id) {
            return &meta->brokers[i];
        }
    }
    return NULL;
}

int fq_metadata_link(struct fq_engine *engine, const struct fq_meta *meta,
                     const struct fq_meta_partition *partition, struct fq_link **ret)
{
    struct fq_endpoint advertised = {.transport = FQ_TRANSPORT_TCP};
    if (partition->status != 0) {
        return partition->status;
    }
    if (partition->leader == engine->control->broker_id) {
        return fq_link_for(engine, partition->leader, partition->shard, NULL, ret);
    }
    const struct fq_meta_broker *broker = broker_of(meta, partition->leader);
    if (!broker || broker->host[0] == '\0') {
        return FLASHQ_ERR_NOT_LEADER;
    }
    memcpy(advertised.host, broker->host, sizeof advertised.host);
    advertised.port = broker->port;
    return fq_link_for(engine, broker->id, partition->shard, &advertised, ret);
}

/* Whether the user leaves the transport open: something else than sockets is listed, or nothing at all. */
static bool may_use_tcp(const struct fq_engine *engine)
{
    bool is_shm_only = true;
    for (size_t i = 0; i < engine->endpoints_count; i++) {
        is_shm_only &= engine->endpoints[i].transport == FQ_TRANSPORT_SHM;
    }
    return engine->config.transport != FQ_CHOICE_SHM && !is_shm_only;
}

int fq_metadata_direct_link(struct fq_engine *engine, const struct fq_meta *meta,
                            const struct fq_meta_partition *partition, struct fq_link **ret)
{
    const struct fq_link *control = engine->control;
    const struct fq_endpoint *written = &engine->endpoints[control->endpoint_index];
    const struct fq_meta_broker *broker = broker_of(meta, partition->leader);
    struct fq_endpoint address = *written;
    bool is_own = partition->leader == control->broker_id;
    bool has_tcp = written->transport != FQ_TRANSPORT_SHM || (broker && broker->port != 0);
    if (partition->status != 0 || !is_own || written->transport == FQ_TRANSPORT_TCP ||
        !may_use_tcp(engine) || !has_tcp) {
        return fq_metadata_link(engine, meta, partition, ret);
    }
    if (written->transport == FQ_TRANSPORT_SHM) {
        bool has_host = broker->host[0] != '\0';
        (void)snprintf(address.host, sizeof address.host, "%s", has_host ? broker->host : "127.0.0.1");
        address.port = broker->port;
    }
    address.transport = FQ_TRANSPORT_TCP;
    return fq_link_beside(engine, partition->leader, partition->shard, &address, ret);
}
