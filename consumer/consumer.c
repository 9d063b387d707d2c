/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer handle: assigning, polling, seeking, closing. How bytes get here is the readers' business.
 *
 * Happy path of a poll: let go of what the last one handed out, take records from the readers in turn, wait
 * when there are none. What can fail: assigning (no broker, no topic, not resolved by the deadline: nothing
 * is then assigned). Everything later is a condition in the stream. Thread: any, under the client's lock.
 */
#include "consumer/consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/link.h"
#include "consumer/hub.h"
#include "consumer/push.h"

#define REFRESH_PAUSE_US 100000
#define POLL_MESSAGES_MAX ((size_t)1 << 20)
/* Polls that find records waiting give the engine a turn once in so many: a turn costs more than a record. A
 * batch that is used up gives it one at once (there is no news then), and so does the io thread when the
 * application takes its time. */
#define DRIVE_EVERY_POLLS 64

static struct fq_consumer *consumer_of(struct fq_member *member)
{
    return fq_chain_item(member, struct fq_consumer, member);
}

static struct fq_pread *reader_at(struct fq_chain *node)
{
    return fq_chain_item(node, struct fq_pread, node);
}

void fq_consumer_busy(struct fq_consumer *consumer, struct fq_pread *reader)
{
    if (fq_chain_is_empty(&reader->busy_node)) {
        fq_chain_append(&consumer->busy, &reader->busy_node);
    }
}

void fq_consumer_note_error(struct fq_consumer *consumer, const struct fq_pread *reader, int code,
                            int64_t end)
{
    if (end >= 0) {
        (void)fq_err_set(&consumer->last_error, code, "%s/%d at offset %lld: %s (next: %lld)",
                         reader->rtopic->name, reader->index, (long long)reader->position,
                         fq_err_describe(code), (long long)end);
    } else {
        (void)fq_err_set(&consumer->last_error, code, "%s/%d: %s", reader->rtopic->name, reader->index,
                         fq_err_describe(code));
    }
    fq_journal_add(&consumer->engine->journal, FLASHQ_LOG_ERROR, "%.470s", consumer->last_error.text);
}

/* ---- metadata ------------------------------------------------------------------------------- */

void fq_consumer_drop_rtopic(struct fq_consumer *consumer, struct fq_rtopic *rtopic)
{
    if (--rtopic->refs == 0) {
        fq_chain_append(&consumer->parted, &rtopic->node);
    }
}

static void route(struct fq_consumer *consumer, struct fq_pread *reader, const struct fq_meta *meta)
{
    const struct fq_meta_topic *topic = meta->topics_count == 1 ? &meta->topics[0] : NULL;
    struct fq_link *link;
    bool is_gone = topic && (topic->status == FLASHQ_ERR_NOT_FOUND ||
                             (topic->status == 0 && memcmp(&topic->id, &reader->rtopic->id,
                                                           sizeof topic->id) != 0));
    if (is_gone) {
        fq_pread_set_condition(reader, FLASHQ_ERR_UNKNOWN_TOPIC_ID, -1);
        return;
    }
    if (!topic || topic->status != 0 || (uint32_t)reader->index >= topic->partitions_count) {
        return;
    }
    int code = fq_metadata_link(consumer->engine, meta, &topic->partitions[reader->index], &link);
    if (code == 0) {
        fq_pread_reroute(reader, link);
    } else if (code == FLASHQ_ERR_OFFLINE) {
        fq_pread_set_condition(reader, code, -1);
    }
}

static void refreshed(void *context, int code, struct fq_meta *meta, const char *text)
{
    struct fq_consumer *consumer = context;
    struct fq_rtopic *rtopic = consumer->refreshing;
    consumer->is_refreshing = false;
    consumer->refreshing = NULL;
    consumer->refresh_us = consumer->engine->now_us + REFRESH_PAUSE_US;
    if (code != 0) {
        (void)fq_err_set(&consumer->last_error, code, "%s", text ? text : fq_err_describe(code));
    }
    for (struct fq_chain *at = consumer->readers.next; code == 0 && at != &consumer->readers;
         at = at->next) {
        struct fq_pread *reader = reader_at(at);
        if (reader->rtopic == rtopic &&
            (reader->wants_reroute || reader->state == FQ_READER_UNROUTED)) {
            route(consumer, reader, meta);
        }
    }
    fq_meta_free(meta);
    fq_consumer_drop_rtopic(consumer, rtopic);
}

void fq_consumer_refresh(struct fq_consumer *consumer, struct fq_rtopic *rtopic)
{
    struct fq_engine *engine = consumer->engine;
    if (consumer->is_refreshing || engine->now_us < consumer->refresh_us ||
        !fq_link_is_up(engine->control)) {
        return;
    }
    int64_t deadline = fq_deadline_us(engine->now_us, engine->config.timeout_ms);
    consumer->refresh_us = engine->now_us + REFRESH_PAUSE_US;
    if (fq_metadata_fetch(engine, rtopic->name, deadline, refreshed, consumer) == 0) {
        consumer->is_refreshing = true;
        consumer->refreshing = rtopic;
        rtopic->refs++;
    }
}

/* ---- the engine's calls --------------------------------------------------------------------- */

/* Nothing to be done for it until somebody calls fq_consumer_busy again. */
static bool is_quiet(const struct fq_pread *reader)
{
    switch (reader->state) {
    case FQ_READER_UNROUTED:
    case FQ_READER_LINK: return false;
    case FQ_READER_OPENING:
    case FQ_READER_SEEKING:
    case FQ_READER_PUSH_OPENING:
    case FQ_READER_PUSH_CLOSING: return true;
    case FQ_READER_PUSHED:
        return reader->has_batch || reader->has_condition || reader->is_paused ||
               (reader->is_caught_up && reader->rest_due_us == INT64_MAX);
    case FQ_READER_READING:
        if (reader->segment && reader->segment->retire_us != INT64_MAX) {
            return false; /* it must be given back in time, also if nobody polls */
        }
        return reader->has_batch || reader->has_condition || reader->fetch != NULL || reader->is_paused ||
               (reader->is_caught_up && reader->is_armed);
    case FQ_READER_HALTED: break;
    }
    return reader->has_condition || fq_pread_next_deadline_us(reader) == INT64_MAX;
}

static bool step(struct fq_member *member, int64_t now_us)
{
    struct fq_consumer *consumer = consumer_of(member);
    bool has_worked = false;
    for (struct fq_chain *at = consumer->busy.next, *next; at != &consumer->busy; at = next) {
        next = at->next;
        struct fq_pread *reader = fq_chain_item(at, struct fq_pread, busy_node);
        bool had_news = fq_pread_has_news(reader);
        fq_pread_prepare(reader, now_us);
        has_worked |= !had_news && fq_pread_has_news(reader);
        if (is_quiet(reader)) {
            fq_chain_remove(&reader->busy_node);
        }
    }
    if (has_worked) {
        fq_engine_progress(consumer->engine);
    }
    return has_worked;
}

static int64_t next_deadline_us(struct fq_member *member)
{
    struct fq_consumer *consumer = consumer_of(member);
    int64_t earliest = INT64_MAX;
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        struct fq_pread *reader = reader_at(at);
        int64_t due = fq_pread_next_deadline_us(reader);
        bool wants_metadata = reader->state == FQ_READER_UNROUTED ||
                              (reader->state == FQ_READER_LINK && reader->wants_reroute);
        if (wants_metadata) {
            bool can_ask = !consumer->is_refreshing && fq_link_is_up(consumer->engine->control);
            due = !can_ask ? INT64_MAX
                           : reader->retry_us > consumer->refresh_us ? reader->retry_us
                                                                     : consumer->refresh_us;
        }
        earliest = due < earliest ? due : earliest;
    }
    return earliest;
}

static bool before_sleep(struct fq_member *member)
{
    struct fq_consumer *consumer = consumer_of(member);
    bool has_work = false;
    for (struct fq_chain *at = consumer->busy.next, *next; at != &consumer->busy; at = next) {
        next = at->next;
        struct fq_pread *reader = fq_chain_item(at, struct fq_pread, busy_node);
        has_work |= fq_pread_arm(reader);
        if (is_quiet(reader)) {
            fq_chain_remove(&reader->busy_node);
        }
    }
    return has_work;
}

static bool is_busy(struct fq_member *member)
{
    (void)member;
    return false;
}

static bool has_news(void *context)
{
    struct fq_consumer *consumer = context;
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        if (fq_pread_has_news(reader_at(at))) {
            return true;
        }
    }
    return false;
}

static bool member_has_news(struct fq_member *member)
{
    return has_news(consumer_of(member));
}

static int64_t destroy(struct fq_member *member)
{
    fq_consumer_close(consumer_of(member)); /* nobody calls any more: see fq_engine_destroy */
    return 0;
}

static const struct fq_member_ops consumer_ops = {.step = step,
                                                  .next_deadline_us = next_deadline_us,
                                                  .before_sleep = before_sleep,
                                                  .destroy = destroy,
                                                  .is_busy = is_busy,
                                                  .has_news = member_has_news};

/* ---- opening, closing ----------------------------------------------------------------------- */

int fq_consumer_open(struct fq_engine *engine, struct fq_consumer **ret, struct fq_err *err)
{
    struct fq_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a consumer");
    }
    consumer->engine = engine;
    consumer->member.ops = &consumer_ops;
    consumer->reset = engine->config.reset;
    consumer->wants_push = engine->config.fetch_mode == FQ_FETCH_PUSH;
    fq_chain_init(&consumer->readers);
    fq_chain_init(&consumer->busy);
    fq_chain_init(&consumer->parted);
    fq_buffers_init(&consumer->buffers, (size_t)engine->config.fetch_max_bytes,
                    (size_t)engine->config.fetch_buffer_bytes);
    fq_engine_add(engine, &consumer->member);
    *ret = consumer;
    return 0;
}

/* Gives up what the messages of the last poll point into. */
static void let_go(struct fq_consumer *consumer)
{
    for (size_t i = 0; i < consumer->pins_count; i++) {
        fq_source_unref(consumer->pins[i]);
    }
    consumer->pins_count = 0;
    while (!fq_chain_is_empty(&consumer->parted)) {
        struct fq_rtopic *rtopic = fq_chain_item(consumer->parted.next, struct fq_rtopic, node);
        fq_chain_remove(&rtopic->node);
        free(rtopic);
    }
}

void fq_consumer_close(struct fq_consumer *consumer)
{
    fq_member_quiesce(consumer->engine, &consumer->member);
    fq_metadata_cancel(consumer->engine, consumer);
    if (consumer->refreshing) {
        fq_consumer_drop_rtopic(consumer, consumer->refreshing);
    }
    while (!fq_chain_is_empty(&consumer->readers)) {
        fq_pread_destroy(reader_at(consumer->readers.next));
    }
    let_go(consumer);
    fq_hubs_forget(consumer);
    fq_rpushes_forget(consumer);
    fq_buffers_fini(&consumer->buffers);
    fq_chain_remove(&consumer->member.node);
    free(consumer->messages);
    free(consumer->pins);
    free(consumer);
}

/* ---- assigning ------------------------------------------------------------------------------ */

struct fq_pread *fq_consumer_find(struct fq_consumer *consumer, const char *topic, int32_t partition)
{
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        struct fq_pread *reader = reader_at(at);
        if (reader->index == partition && strcmp(reader->rtopic->name, topic) == 0) {
            return reader;
        }
    }
    return NULL;
}

int fq_consumer_unassign(struct fq_consumer *consumer, const char *topic, int32_t partition)
{
    int code = FLASHQ_ERR_NOT_FOUND;
    for (struct fq_chain *at = consumer->readers.next, *next; at != &consumer->readers; at = next) {
        next = at->next;
        struct fq_pread *reader = reader_at(at);
        if ((partition == -1 || reader->index == partition) &&
            strcmp(reader->rtopic->name, topic) == 0) {
            consumer->turn = NULL;
            fq_pread_destroy(reader);
            code = 0;
        }
    }
    return code;
}

int fq_consumer_pause(struct fq_consumer *consumer, const char *topic, int32_t partition,
                      bool is_paused)
{
    int code = FLASHQ_ERR_NOT_FOUND;
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        struct fq_pread *reader = reader_at(at);
        if ((partition == -1 || reader->index == partition) &&
            strcmp(reader->rtopic->name, topic) == 0) {
            reader->is_paused = is_paused;
            fq_consumer_busy(consumer, reader);
            code = 0;
        }
    }
    return code;
}

int fq_consumer_set_push(struct fq_consumer *consumer, const char *topic, int32_t partition,
                         bool wants_push)
{
    int code = topic ? FLASHQ_ERR_NOT_FOUND : 0;
    if (!topic) {
        consumer->wants_push = wants_push;
    }
    for (struct fq_chain *at = consumer->readers.next; at != &consumer->readers; at = at->next) {
        struct fq_pread *reader = reader_at(at);
        if (!topic || ((partition == -1 || reader->index == partition) &&
                       strcmp(reader->rtopic->name, topic) == 0)) {
            fq_pushed_set(reader, wants_push);
            code = 0;
        }
    }
    return code;
}

struct resolving {
    struct fq_consumer *consumer;
    struct fq_rtopic *rtopic;
    int32_t partition;
};

static bool all_resolved(void *context)
{
    struct resolving *resolving = context;
    struct fq_chain *head = &resolving->consumer->readers;
    for (struct fq_chain *at = head->next; at != head; at = at->next) {
        struct fq_pread *reader = reader_at(at);
        bool is_meant = reader->rtopic == resolving->rtopic &&
                        (resolving->partition == -1 || reader->index == resolving->partition);
        if (is_meant && !fq_pread_is_resolved(reader)) {
            return false;
        }
    }
    return true;
}

static int add_readers(struct fq_consumer *consumer, struct fq_rtopic *rtopic,
                       const struct fq_meta *meta, int32_t partition, int64_t offset,
                       struct fq_err *err)
{
    int32_t count = (int32_t)meta->topics[0].partitions_count;
    int32_t first = partition == -1 ? 0 : partition, last = partition == -1 ? count - 1 : partition;
    if (partition < -1 || partition >= count) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "topic %s has partitions 0 to %d, no %d",
                          rtopic->name, count - 1, partition);
    }
    for (int32_t i = first; i <= last; i++) {
        if (fq_consumer_find(consumer, rtopic->name, i)) {
            return fq_err_set(err, FLASHQ_ERR_EXISTS, "%s/%d is assigned already", rtopic->name, i);
        }
    }
    for (int32_t i = first; i <= last; i++) {
        struct fq_pread *reader;
        int code = fq_pread_create(consumer, rtopic, i, offset, &reader);
        if (code != 0) {
            return fq_err_set(err, code, "no memory for a partition");
        }
        route(consumer, reader, meta);
    }
    return 0;
}

static void remove_readers(struct fq_consumer *consumer, const struct fq_rtopic *rtopic)
{
    for (struct fq_chain *at = consumer->readers.next, *next; at != &consumer->readers; at = next) {
        next = at->next;
        if (reader_at(at)->rtopic == rtopic) {
            consumer->turn = NULL;
            fq_pread_destroy(reader_at(at));
        }
    }
}

int fq_consumer_assign(struct fq_consumer *consumer, const char *topic, int32_t partition,
                       int64_t offset, int64_t deadline_us, struct fq_err *err)
{
    struct fq_meta *meta;
    if (offset < FLASHQ_OFFSET_START) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "offset %lld is no offset", (long long)offset);
    }
    int code = fq_metadata_get(consumer->engine, topic, deadline_us, &meta, err);
    if (code != 0) {
        return code;
    }
    struct fq_rtopic *rtopic = calloc(1, sizeof *rtopic);
    if (!rtopic) {
        fq_meta_free(meta);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a topic");
    }
    rtopic->refs = 1;
    fq_chain_init(&rtopic->node);
    rtopic->id = meta->topics[0].id;
    memcpy(rtopic->name, meta->topics[0].name, sizeof rtopic->name);
    code = add_readers(consumer, rtopic, meta, partition, offset, err);
    fq_meta_free(meta);
    if (code == 0) {
        struct resolving resolving = {.consumer = consumer, .rtopic = rtopic, .partition = -1};
        code = fq_member_wait(consumer->engine, &consumer->member, deadline_us, all_resolved, &resolving);
        if (code != 0) {
            (void)fq_err_set(err, code, "topic %s: the position was not found in time (%s)", topic,
                             consumer->last_error.code ? consumer->last_error.text
                                                       : fq_err_describe(code));
        }
    }
    if (code != 0) {
        remove_readers(consumer, rtopic);
    }
    fq_consumer_drop_rtopic(consumer, rtopic);
    return code;
}

int fq_consumer_seek(struct fq_consumer *consumer, struct fq_pread *reader, int64_t offset,
                     int64_t deadline_us)
{
    if (offset < FLASHQ_OFFSET_START) {
        return FLASHQ_ERR_INVALID;
    }
    struct resolving resolving = {.consumer = consumer, .rtopic = reader->rtopic,
                                  .partition = reader->index};
    reader->rtopic->refs++;
    fq_pread_seek(reader, offset);
    int code = fq_member_wait(consumer->engine, &consumer->member, deadline_us, all_resolved, &resolving);
    fq_consumer_drop_rtopic(consumer, resolving.rtopic);
    return code;
}

/* ---- polling -------------------------------------------------------------------------------- */

static bool make_room(struct fq_consumer *consumer, size_t max)
{
    if (consumer->messages_capacity < max) {
        struct fq_message *messages = realloc(consumer->messages, max * sizeof *messages);
        if (!messages) {
            return false;
        }
        consumer->messages = messages;
        consumer->messages_capacity = max;
    }
    return true;
}

static bool room_for_pin(struct fq_consumer *consumer)
{
    if (consumer->pins_count == consumer->pins_capacity) {
        size_t capacity = consumer->pins_capacity ? consumer->pins_capacity * 2 : 16;
        struct fq_source **pins = realloc(consumer->pins, capacity * sizeof(struct fq_source *));
        if (!pins) {
            return false;
        }
        consumer->pins = pins;
        consumer->pins_capacity = capacity;
    }
    return true;
}

/* Takes what one reader has, up to `max`; returns how many. */
static size_t take_from(struct fq_consumer *consumer, struct fq_pread *reader, size_t from, size_t max)
{
    size_t count = from;
    fq_pread_poll_begins(reader);
    while (count < max && !reader->is_paused) {
        struct fq_record record;
        struct fq_source *source;
        struct fq_message *message = &consumer->messages[count];
        if (!reader->has_batch && !reader->has_condition) {
            fq_pread_prepare(reader, consumer->engine->now_us);
        }
        if (!room_for_pin(consumer) || !fq_pread_has_news(reader)) {
            break;
        }
        if (reader->has_batch) {
            if (!fq_pread_next(reader, &record, &source)) {
                continue;
            }
            if (source) {
                consumer->pins[consumer->pins_count++] = source;
            }
            fq_message_set_record(message, reader->rtopic->name, reader->index, &record);
        } else {
            int code;
            int64_t offset, end;
            fq_pread_take_condition(reader, &code, &offset, &end);
            fq_message_set_condition(message, reader->rtopic->name, reader->index, code, offset, end);
        }
        count++;
    }
    fq_consumer_busy(consumer, reader);
    return count - from;
}

/* One round over the readers, beginning where the last one ended. */
static size_t take_from_all(struct fq_consumer *consumer, size_t max)
{
    size_t count = 0;
    if (fq_chain_is_empty(&consumer->readers)) {
        return 0;
    }
    struct fq_chain *start = consumer->turn ? &consumer->turn->node : consumer->readers.next;
    struct fq_chain *at = start;
    do {
        if (at != &consumer->readers) {
            struct fq_pread *reader = reader_at(at);
            bool has_some = fq_pread_has_news(reader) || !fq_chain_is_empty(&reader->busy_node);
            count += has_some ? take_from(consumer, reader, count, max) : 0;
        }
        at = at->next;
    } while (at != start && count < max);
    consumer->turn = at == &consumer->readers ? NULL : reader_at(at);
    return count;
}

int fq_consumer_poll(struct fq_consumer *consumer, const flashq_message **messages, size_t max,
                     int64_t deadline_us)
{
    max = max < POLL_MESSAGES_MAX ? max : POLL_MESSAGES_MAX;
    let_go(consumer);
    if (!make_room(consumer, max)) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    if (!has_news(consumer)) {
        int code = fq_member_wait(consumer->engine, &consumer->member, deadline_us, has_news, consumer);
        if (code != 0 && code != FLASHQ_ERR_TIMED_OUT) {
            return code;
        }
    } else if (++consumer->polls_since_drive >= DRIVE_EVERY_POLLS) {
        consumer->polls_since_drive = 0;
        (void)fq_engine_drive(consumer->engine);
    }
    let_go(consumer); /* another thread's poll may have come in between */
    size_t count = take_from_all(consumer, max);
    for (size_t i = 0; i < count; i++) {
        messages[i] = &consumer->messages[i].pub;
    }
    return (int)count;
}
