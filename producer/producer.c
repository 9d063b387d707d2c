/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer handle: opening, sending, flushing, polling, closing. How batches get to the broker is
 * partition.c's and ring.c's business; record by record is send.c's.
 *
 * What can fail: opening (no broker, no topic); everything later ends in reports. Closing always succeeds by
 * its deadline and says how many records were given up.
 * Thread: any, under the client's lock.
 */
#include "producer/producer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/admin.h"
#include "client/link.h"
#include "conf/units.h"
#include "producer/claim.h"
#include "producer/inring.h"

#define REFRESH_PAUSE_US 100000
#define EXPIRE_PAUSE_US 10000

static struct fq_producer *producer_of(struct fq_member *member)
{
    return fq_chain_item(member, struct fq_producer, member);
}

void fq_producer_note_error(struct fq_producer *producer, int code, const char *text)
{
    (void)fq_err_set(&producer->last_error, code, "%s",
                     text && text[0] ? text : fq_err_describe(code));
    fq_journal_add(&producer->engine->journal, FLASHQ_LOG_WARN, "%s: %.400s", producer->topic,
                   producer->last_error.text);
}

/* ---- metadata ------------------------------------------------------------------------------- */

static void route_all(struct fq_producer *producer, const struct fq_meta *meta)
{
    const struct fq_meta_topic *topic = &meta->topics[0];
    for (int32_t i = 0; i < producer->pparts_count; i++) {
        struct fq_link *link;
        if ((uint32_t)i >= topic->partitions_count) {
            break;
        }
        const struct fq_meta_partition *partition = &topic->partitions[i];
        int code = producer->is_direct
                       ? fq_metadata_direct_link(producer->engine, meta, partition, &link)
                       : fq_metadata_link(producer->engine, meta, partition, &link);
        producer->pparts[i].refused_code = code;
        if (code == 0) {
            fq_ppart_reroute(&producer->pparts[i], link);
        } else {
            fq_producer_note_error(producer, code, NULL);
        }
    }
}

static void refreshed(void *context, int code, struct fq_meta *meta, const char *text)
{
    struct fq_producer *producer = context;
    producer->is_refreshing = false;
    producer->refresh_us = producer->engine->now_us + REFRESH_PAUSE_US;
    if (code != 0) {
        fq_producer_note_error(producer, code, text);
        return;
    }
    bool is_there = meta->topics_count == 1 && meta->topics[0].status == 0;
    bool is_gone = meta->topics_count == 1 && meta->topics[0].status == FLASHQ_ERR_NOT_FOUND;
    if (is_gone || (is_there && memcmp(&meta->topics[0].id, &producer->topic_id,
                                       sizeof producer->topic_id) != 0)) {
        for (int32_t i = 0; i < producer->pparts_count; i++) {
            fq_ppart_die(&producer->pparts[i], FLASHQ_ERR_UNKNOWN_TOPIC_ID);
        }
    } else if (is_there) {
        route_all(producer, meta);
    }
    fq_meta_free(meta);
}

void fq_producer_refresh(struct fq_producer *producer)
{
    struct fq_engine *engine = producer->engine;
    if (producer->is_refreshing || engine->now_us < producer->refresh_us ||
        !fq_link_is_up(engine->control)) {
        return;
    }
    int64_t deadline = fq_deadline_us(engine->now_us, engine->config.timeout_ms);
    int code = fq_metadata_fetch(engine, producer->topic, deadline, refreshed, producer);
    producer->is_refreshing = code == 0;
    producer->refresh_us = engine->now_us + REFRESH_PAUSE_US;
}

/* ---- the engine's calls --------------------------------------------------------------------- */

static void expire(struct fq_producer *producer, int64_t now_us)
{
    int64_t earliest = INT64_MAX;
    for (struct fq_chain *at = producer->active.next, *next; at != &producer->active; at = next) {
        next = at->next;
        int64_t due = fq_ppart_expire(fq_chain_item(at, struct fq_ppart, active_node), now_us);
        earliest = due < earliest ? due : earliest;
    }
    int64_t soonest = now_us + EXPIRE_PAUSE_US;
    producer->expire_us = earliest > soonest ? earliest : soonest;
}

static bool step(struct fq_member *member, int64_t now_us)
{
    struct fq_producer *producer = producer_of(member);
    bool has_worked = false;
    if (fq_chain_is_empty(&producer->active)) {
        return false;
    }
    if (now_us >= producer->expire_us) {
        expire(producer, now_us);
    }
    for (struct fq_chain *at = producer->active.next, *next; at != &producer->active; at = next) {
        next = at->next;
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, active_node);
        if (ppart->ring) {
            has_worked |= fq_ring_take_acks(ppart->ring);
        }
        if (fq_ppart_pump(ppart, now_us)) {
            has_worked = true;
            fq_chain_remove(at); /* the others come first the next time */
            fq_chain_append(&producer->active, at);
        }
    }
    for (struct fq_chain *at = producer->active.next, *next; at != &producer->active; at = next) {
        next = at->next;
        if (fq_ppart_is_idle(fq_chain_item(at, struct fq_ppart, active_node))) {
            fq_chain_remove(at);
        }
    }
    return has_worked;
}

static int64_t next_deadline_us(struct fq_member *member)
{
    struct fq_producer *producer = producer_of(member);
    int64_t earliest = INT64_MAX;
    bool wants_metadata = false;
    for (struct fq_chain *at = producer->active.next; at != &producer->active; at = at->next) {
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, active_node);
        int64_t due = fq_ppart_next_deadline_us(ppart);
        earliest = due < earliest ? due : earliest;
        earliest = producer->expire_us < earliest ? producer->expire_us : earliest;
        wants_metadata |= ppart->wants_reroute || ppart->state == FQ_PPART_UNROUTED;
    }
    if (wants_metadata && !producer->is_refreshing && producer->refresh_us < earliest &&
        fq_link_is_up(producer->engine->control)) {
        earliest = producer->refresh_us;
    }
    return earliest;
}

static bool before_sleep(struct fq_member *member)
{
    struct fq_producer *producer = producer_of(member);
    bool has_worked = false;
    for (struct fq_chain *at = producer->active.next, *next; at != &producer->active; at = next) {
        next = at->next;
        struct fq_ppart *ppart = fq_chain_item(at, struct fq_ppart, active_node);
        has_worked |= ppart->ring && fq_ring_take_acks(ppart->ring);
    }
    return has_worked;
}

static bool is_busy(struct fq_member *member)
{
    struct fq_producer *producer = producer_of(member);
    if (fq_claim_is_open(producer)) {
        (void)fq_claim_abort(producer); /* the client is closing */
    }
    return !fq_chain_is_empty(&producer->outstanding);
}

static bool has_reports(void *context)
{
    return ((struct fq_producer *)context)->reports.count > 0;
}

static bool has_news(struct fq_member *member)
{
    return has_reports(producer_of(member));
}

/* ---- batches that are done ------------------------------------------------------------------ */

void fq_producer_batch_free(struct fq_producer *producer, struct fq_batch *batch)
{
    fq_chain_remove(&batch->order);
    if (batch->home) {
        fq_inring_release(batch);
    }
    fq_pool_free(&producer->pool, &batch->block);
    fq_chain_insert_after(&producer->spare, &batch->node); /* taken from the front: still in the cache */
}

static void fill_report(const struct fq_batch *batch, int32_t index, flashq_report *report)
{
    if (report->offset >= 0) {
        report->offset += index;
    }
    report->user = batch->sent[index].user;
    report->timestamp_ms = batch->sent[index].timestamp_ms;
}

static void report_records(struct fq_producer *producer, struct fq_batch *batch,
                           const flashq_report *all)
{
    int64_t kind = producer->engine->config.reports;
    if (kind == FQ_REPORTS_ALL || (kind == FQ_REPORTS_ERRORS && all->status != 0)) {
        for (int32_t i = 0; i < batch->builder.records_count; i++) {
            flashq_report report = *all;
            fill_report(batch, i, &report);
            fq_reports_push(&producer->reports, &report);
        }
        fq_engine_news(producer->engine);
    }
    while (!fq_chain_is_empty(&batch->syncs)) {
        struct fq_sync *sync = fq_chain_item(batch->syncs.next, struct fq_sync, node);
        fq_chain_remove(&sync->node);
        sync->report = *all;
        fill_report(batch, sync->index, &sync->report);
        sync->is_done = true;
    }
}

void fq_producer_batch_done(struct fq_producer *producer, struct fq_batch *batch, int status,
                            int persisted, int64_t base_offset, bool is_duplicate, bool keeps)
{
    if (!batch->is_reported) {
        uint64_t count = (uint64_t)batch->builder.records_count;
        flashq_report all = {.struct_bytes = sizeof all, .status = status, .persisted = persisted,
                             .duplicate = is_duplicate, .partition = batch->ppart->index,
                             .offset = status == 0 ? base_offset : -1};
        if (status == 0) {
            producer->stats.records_acked += count;
            producer->stats.records_duplicate += is_duplicate ? count : 0;
        } else {
            producer->stats.records_failed += count;
            if (producer->last_error.code != status) {
                fq_producer_note_error(producer, status, NULL);
            }
            fq_journal_add(&producer->engine->journal, FLASHQ_LOG_ERROR,
                           "%s/%d: %llu records failed: %.300s", producer->topic, batch->ppart->index,
                           (unsigned long long)count, producer->last_error.text);
        }
        report_records(producer, batch, &all);
        batch->is_reported = true;
    }
    if (keeps) {
        fq_chain_remove(&batch->order); /* nobody waits for it any more */
    } else {
        fq_producer_batch_free(producer, batch);
    }
    fq_engine_progress(producer->engine);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void learn_limit(struct fq_producer *producer, const flashq_config_entry *entry)
{
    int64_t value;
    if (strcmp(entry->key, "message.max.bytes") == 0 &&
        fq_parse_bytes(entry->value, &value, NULL) == 0 && value > 0 &&
        value < producer->message_max_bytes) {
        producer->message_max_bytes = value;
    }
    if (strcmp(entry->key, "durability") == 0 && strcmp(entry->value, "memory") == 0) {
        producer->persisted = FLASHQ_PERSISTED_MAYBE;
    }
    if (strcmp(entry->key, "timestamp.max.ahead") == 0 &&
        fq_parse_duration(entry->value, 1000, &value, NULL) == 0 && value >= 0) {
        producer->timestamp_max_ahead_ms = value;
    }
}

/* The topic's own limits, if the broker tells: a record over one is refused here, alone, instead of by the
 * broker with its whole batch. */
static void learn_limits(struct fq_producer *producer, int64_t deadline_us)
{
    flashq_config_entry *entries = NULL;
    size_t count = 0;
    uint32_t replicas;
    int64_t limit;
    producer->timestamp_max_ahead_ms = -1;
    producer->persisted = FLASHQ_PERSISTED_YES;
    if (fq_admin_topic_config(producer->engine, producer->topic, deadline_us, &entries, &count,
                              &replicas, NULL) == 0) {
        for (size_t i = 0; i < count; i++) {
            learn_limit(producer, &entries[i]);
        }
    }
    free(entries);
    limit = producer->engine->control->session.batch_max_bytes;
    if (limit > FQ_BATCH_HEADER_BYTES && limit < producer->batch_max_bytes) {
        producer->batch_max_bytes = limit;
    }
}

static int64_t destroy(struct fq_member *member)
{
    struct fq_producer *producer = producer_of(member);
    int64_t undelivered = 0;
    fq_metadata_cancel(producer->engine, producer);
    if (fq_claim_is_open(producer)) {
        (void)fq_claim_abort(producer);
    }
    for (int32_t i = 0; i < producer->pparts_count; i++) {
        fq_ppart_take_back(&producer->pparts[i]);
    }
    fq_conn_boxes_reap(producer->engine);
    for (struct fq_chain *at = producer->outstanding.next; at != &producer->outstanding;
         at = at->next) {
        struct fq_batch *batch = fq_chain_item(at, struct fq_batch, order);
        undelivered += batch->builder.records_count;
    }
    for (int32_t i = 0; i < producer->pparts_count; i++) {
        fq_ppart_die(&producer->pparts[i], FLASHQ_ERR_CLOSED);
        fq_ppart_fini(&producer->pparts[i]);
    }
    while (!fq_chain_is_empty(&producer->spare)) {
        struct fq_batch *batch = fq_chain_item(producer->spare.next, struct fq_batch, node);
        fq_chain_remove(&batch->node);
        free(batch->sent);
        free(batch);
    }
    fq_chain_remove(&producer->member.node);
    fq_reports_fini(&producer->reports);
    fq_pool_fini(&producer->pool);
    fq_batch_compressor_fini(&producer->compressor);
    free(producer->pparts);
    free(producer);
    return undelivered;
}

static const struct fq_member_ops producer_ops = {.step = step,
                                                  .next_deadline_us = next_deadline_us,
                                                  .before_sleep = before_sleep,
                                                  .look = before_sleep,
                                                  .destroy = destroy,
                                                  .is_busy = is_busy,
                                                  .has_news = has_news};

/* Memory for at least two of the largest records, whatever queue.bytes says. */
static size_t pool_limit(const struct fq_producer *producer)
{
    size_t largest = FQ_POOL_BLOCK_MIN;
    size_t record = (size_t)producer->engine->config.message_max_bytes + FQ_LIMIT_BATCH_OVERHEAD_BYTES;
    while (largest < record) {
        largest *= 2;
    }
    size_t limit = (size_t)producer->engine->config.queue_bytes;
    return limit > 2 * largest ? limit : 2 * largest;
}

int fq_producer_open(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                     struct fq_producer **ret, struct fq_err *err)
{
    struct fq_meta *meta;
    int code = fq_metadata_get(engine, topic, deadline_us, &meta, err);
    if (code != 0) {
        return code;
    }
    uint32_t count = meta->topics[0].partitions_count;
    struct fq_producer *producer = calloc(1, sizeof *producer);
    struct fq_ppart *pparts = calloc(count ? count : 1, sizeof *pparts);
    if (!producer || !pparts || count == 0) {
        free(producer);
        free(pparts);
        fq_meta_free(meta);
        return count == 0 ? fq_err_set(err, FLASHQ_ERR_PROTOCOL, "topic %s has no partition", topic)
                          : fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a producer");
    }
    producer->engine = engine;
    producer->member.ops = &producer_ops;
    (void)fq_str_copy(fq_str_of(topic, strlen(topic)), producer->topic, sizeof producer->topic);
    producer->topic_id = meta->topics[0].id;
    producer->is_direct = meta->topics[0].append_mode == FQ_APPEND_DIRECT;
    producer->producer_id = (int64_t)(fq_random_u64() >> 1);
    producer->pparts = pparts;
    producer->pparts_count = (int32_t)count;
    producer->message_max_bytes = engine->config.message_max_bytes;
    producer->batch_max_bytes = engine->config.batch_max_bytes;
    producer->sticky = (int32_t)fq_prng_below(&engine->prng, count);
    producer->sticky_is_new = true;
    fq_chain_init(&producer->active);
    fq_chain_init(&producer->outstanding);
    fq_chain_init(&producer->spare);
    fq_reports_init(&producer->reports, (size_t)engine->config.reports_max);
    fq_pool_init(&producer->pool, pool_limit(producer));
    for (uint32_t i = 0; i < count; i++) {
        fq_ppart_init(&pparts[i], producer, (int32_t)i);
    }
    fq_engine_add(engine, &producer->member);
    route_all(producer, meta);
    fq_meta_free(meta);
    learn_limits(producer, deadline_us);
    *ret = producer;
    return 0;
}

/* ---- flush, poll, close --------------------------------------------------------------------- */

struct flushing {
    struct fq_producer *producer;
    uint64_t to_id;
};

static bool is_flushed(void *context)
{
    struct flushing *flushing = context;
    struct fq_producer *producer = flushing->producer;
    if (fq_chain_is_empty(&producer->outstanding)) {
        return true;
    }
    return fq_chain_item(producer->outstanding.next, struct fq_batch, order)->id > flushing->to_id;
}

int fq_producer_flush(struct fq_producer *producer, int64_t deadline_us)
{
    struct flushing flushing = {.producer = producer, .to_id = producer->last_batch_id};
    if (fq_claim_is_open(producer)) {
        return fq_claim_busy(producer);
    }
    producer->hurry_to_id = producer->last_batch_id;
    return fq_member_wait(producer->engine, &producer->member, deadline_us, is_flushed, &flushing);
}

int fq_producer_poll(struct fq_producer *producer, flashq_report *reports, size_t max,
                     int64_t deadline_us)
{
    if (producer->reports.count == 0) {
        int code = fq_member_wait(producer->engine, &producer->member, deadline_us, has_reports, producer);
        if (code != 0 && code != FLASHQ_ERR_TIMED_OUT) {
            return code;
        }
    }
    max = max < INT32_MAX ? max : INT32_MAX;
    size_t count = fq_reports_pop(&producer->reports, reports, max);
    fq_engine_news(producer->engine);
    return (int)count;
}

int64_t fq_producer_close(struct fq_producer *producer, int64_t deadline_us)
{
    if (fq_claim_is_open(producer)) {
        (void)fq_claim_abort(producer);
    }
    (void)fq_producer_flush(producer, deadline_us);
    fq_member_quiesce(producer->engine, &producer->member);
    return destroy(&producer->member);
}
