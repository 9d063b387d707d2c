/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One record into the queue: check, choose the partition, find room in its batch, append, send if the policy
 * says so.
 *
 * What can fail: a bad record (INVALID, TOO_LARGE, NOT_FOUND: the text is kept for
 * flashq_producer_last_error), a full queue (AGAIN by the deadline), a topic that is gone
 * (UNKNOWN_TOPIC_ID). A record refused here was never in the queue.
 * Thread: any, under the client's lock. No allocation and no system call per record once warm; the clock is
 * read once, if it was not a moment ago (a reading costs as much as encoding a small record does).
 */
#include "producer/send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "producer/claim.h"
#include "producer/inring.h"

#define DRIVE_EVERY_SENDS 64
#define LINGER_LOOKS_EVERY 8 /* records between two looks at the clock */
#define HEADERS_ON_STACK 16
#define SENT_FIRST 64 /* of what is kept of records, in a new batch */
#define PUMP_EVERY_RECORDS 32
#define PUMP_OTHERS 4

/* ---- checking ------------------------------------------------------------------------------- */

static int refuse(struct fq_producer *producer, int code, const char *text)
{
    fq_producer_note_error(producer, code, text);
    return code;
}

static int check_headers(struct fq_producer *producer, const flashq_record *record,
                         uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    if (record->headers_count > FQ_LIMIT_RECORD_HEADERS) {
        char text[128];
        (void)snprintf(text, sizeof text, "%zu headers exceed the limit of %d", record->headers_count,
                       FQ_LIMIT_RECORD_HEADERS);
        return refuse(producer, FLASHQ_ERR_LIMIT, text);
    }
    if (record->headers_count > 0 && !record->headers) {
        return refuse(producer, FLASHQ_ERR_INVALID, "headers are NULL, but their count is not 0");
    }
    for (size_t i = 0; i < record->headers_count; i++) {
        const flashq_header *header = &record->headers[i];
        if (!header->name || (!header->value && header->value_length > 0)) {
            return refuse(producer, FLASHQ_ERR_INVALID,
                          "a header's name is NULL, or its value is NULL with a length");
        }
        bytes += (header->name_length ? header->name_length : strlen(header->name));
        bytes += header->value_length;
    }
    *ret_bytes = bytes;
    return 0;
}

static int check_timestamp(struct fq_producer *producer, int64_t timestamp_ms, int64_t now_ms)
{
    if (timestamp_ms == FLASHQ_TIMESTAMP_NOW) {
        return 0;
    }
    if (timestamp_ms < 0) {
        return refuse(producer, FLASHQ_ERR_TIMESTAMP, "the timestamp is negative (before 1970)");
    }
    int64_t ahead = producer->timestamp_max_ahead_ms;
    if (ahead >= 0 && timestamp_ms - ahead > now_ms) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "timestamp %lld is more than timestamp.max.ahead (%lld ms) ahead of the clock",
                       (long long)timestamp_ms, (long long)ahead);
        return refuse(producer, FLASHQ_ERR_TIMESTAMP, text);
    }
    return 0;
}

/* Sets *ret_bytes to what counts against message.max.bytes: key, value (of value_length) and headers. */
static int check(struct fq_producer *producer, const flashq_record *record, size_t value_length,
                 int64_t now_ms, uint64_t *ret_bytes)
{
    uint64_t headers;
    if (!record || record->struct_bytes < sizeof *record) {
        return refuse(producer, FLASHQ_ERR_INVALID,
                      "no record, or its struct_bytes is not sizeof(flashq_record)");
    }
    if ((!record->key && record->key_length > 0) || (!record->value && record->value_length > 0)) {
        return refuse(producer, FLASHQ_ERR_INVALID, "a NULL key or value has a length");
    }
    int code = check_headers(producer, record, &headers);
    if (code != 0) {
        return code;
    }
    uint64_t limit = (uint64_t)producer->message_max_bytes;
    if (record->key_length > limit || value_length > limit || headers > limit ||
        record->key_length + value_length + headers > limit) {
        char text[160];
        (void)snprintf(text, sizeof text, "a record of %llu bytes exceeds message.max.bytes (%llu)",
                       (unsigned long long)record->key_length + value_length + headers,
                       (unsigned long long)limit);
        return refuse(producer, FLASHQ_ERR_TOO_LARGE, text);
    }
    code = check_timestamp(producer, record->timestamp_ms, now_ms);
    if (code != 0) {
        return code;
    }
    *ret_bytes = record->key_length + value_length + headers;
    return 0;
}

/* ---- room ----------------------------------------------------------------------------------- */

static struct fq_batch *spare_batch(struct fq_producer *producer)
{
    struct fq_batch *batch;
    if (fq_chain_is_empty(&producer->spare)) {
        batch = calloc(1, sizeof *batch);
        if (!batch) {
            return NULL;
        }
    } else {
        batch = fq_chain_item(producer->spare.next, struct fq_batch, node);
        fq_chain_remove(&batch->node);
        struct fq_sent *sent = batch->sent;
        size_t capacity = batch->sent_capacity;
        *batch = (struct fq_batch){.sent = sent, .sent_capacity = capacity};
    }
    fq_chain_init(&batch->node);
    fq_chain_init(&batch->order);
    fq_chain_init(&batch->syncs);
    fq_chain_init(&batch->held_node);
    return batch;
}

/* Takes what spare batches keep for the next; true if they had anything. */
static bool strip_spares(struct fq_producer *producer)
{
    size_t bytes = 0;
    for (struct fq_chain *at = producer->spare.next; at != &producer->spare; at = at->next) {
        struct fq_batch *batch = fq_chain_item(at, struct fq_batch, node);
        bytes += batch->sent_capacity * sizeof *batch->sent;
        free(batch->sent);
        batch->sent = NULL;
        batch->sent_capacity = 0;
    }
    fq_pool_discharge_heap(&producer->pool, bytes);
    return bytes > 0;
}

/* Where the batch is built: in the ring, or in a block that is copied there. The ring is for what the application
 * builds itself: small records encoded one by one into lines that the broker's core read last cost more than
 * the one copy of a whole batch that they save. */
static int find_memory(struct fq_ppart *ppart, struct fq_batch *batch, size_t least, bool is_claim)
{
    struct fq_pool *pool = &ppart->producer->pool;
    size_t usual = ppart->block_bytes;
    usual = usual < ppart->plan.close_bytes ? usual : ppart->plan.close_bytes;
    usual = usual > least ? usual : least;
    if (is_claim && fq_inring_begin(ppart, batch, least, usual)) {
        return 0;
    }
    int code = fq_pool_alloc(pool, usual, &batch->block);
    if (code == FLASHQ_ERR_AGAIN && usual > least) {
        code = fq_pool_alloc(pool, least, &batch->block);
    }
    return code;
}

/* A new batch with room for `record_bytes`. AGAIN when there is no memory for it now. */
static int begin_batch(struct fq_ppart *ppart, size_t record_bytes, bool is_claim)
{
    struct fq_producer *producer = ppart->producer;
    int64_t now_ns = fq_mono_ns();
    size_t least = record_bytes + FQ_BATCH_HEADER_BYTES;
    fq_ppart_plan(ppart, now_ns);
    struct fq_batch *batch = spare_batch(producer);
    if (!batch) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    batch->ppart = ppart;
    int code = find_memory(ppart, batch, least, is_claim);
    if (code == FLASHQ_ERR_AGAIN && strip_spares(producer)) {
        code = find_memory(ppart, batch, least, is_claim);
    }
    if (code != 0) {
        fq_chain_insert_after(&producer->spare, &batch->node);
        return code;
    }
    /* One record may be larger than batch.max.bytes; more than one may not. */
    size_t most = (size_t)producer->batch_max_bytes > least ? (size_t)producer->batch_max_bytes : least;
    batch->id = ++producer->last_batch_id;
    batch->began_ns = now_ns;
    batch->created_us = now_ns / 1000;
    batch->began_after = ppart->ring ? ppart->ring->posted : 0;
    fq_batch_builder_init(&batch->builder, batch->block.data,
                          batch->block.bytes < most ? batch->block.bytes : most);
    fq_chain_append(&producer->outstanding, &batch->order);
    ppart->filling = batch;
    if (fq_chain_is_empty(&producer->active)) {
        producer->expire_us = batch->created_us; /* nobody looked while there was nothing */
    }
    if (fq_chain_is_empty(&ppart->active_node)) {
        fq_chain_append(&producer->active, &ppart->active_node);
    }
    return 0;
}

/* What is kept of each record counts in queue.bytes: with records of a few bytes it is the most of it. TOO_LARGE: the
 * batch has to do with those it has. */
static int room_for_sent(struct fq_producer *producer, struct fq_batch *batch)
{
    size_t count = (size_t)batch->builder.records_count;
    if (count < batch->sent_capacity) {
        return 0;
    }
    size_t more = batch->sent_capacity ? batch->sent_capacity : SENT_FIRST;
    size_t bytes = more * sizeof *batch->sent;
    while (fq_pool_charge_heap(&producer->pool, bytes, count == 0) != 0) {
        if (!strip_spares(producer)) {
            return FLASHQ_ERR_TOO_LARGE;
        }
    }
    struct fq_sent *sent = realloc(batch->sent, (count + more) * sizeof *sent);
    if (!sent) {
        fq_pool_discharge_heap(&producer->pool, bytes);
        return FLASHQ_ERR_NO_MEMORY;
    }
    batch->sent = sent;
    batch->sent_capacity = count + more;
    return 0;
}

/* ---- appending ------------------------------------------------------------------------------ */

/* Into the batch being filled, or a new one; with `claim` only as far as its value. */
static int try_append(struct fq_ppart *ppart, const struct fq_record_in *in,
                      struct fq_batch_claim *claim)
{
    for (int turn = 0; turn < 2; turn++) {
        struct fq_batch *batch = ppart->filling;
        if (batch) {
            int code = room_for_sent(ppart->producer, batch);
            if (code == 0) {
                code = claim ? fq_batch_builder_claim(&batch->builder, in, claim)
                             : fq_batch_builder_append(&batch->builder, in);
            }
            if (code != FLASHQ_ERR_TOO_LARGE) {
                return code;
            }
            fq_ppart_close_batch(ppart);
            (void)fq_ppart_pump(ppart, fq_mono_us());
        }
        struct fq_batch_builder empty;
        fq_batch_builder_init(&empty, NULL, 0);
        int code = begin_batch(ppart, fq_batch_builder_record_bytes(&empty, in), claim != NULL);
        if (code != 0) {
            return code;
        }
    }
    return FLASHQ_ERR_FAILED; /* a batch made for the record has no room for it: cannot be */
}

static struct fq_slice slice(const void *data, size_t length)
{
    return (struct fq_slice){.data = data, .length = length};
}

struct memory_wait {
    struct fq_producer *producer;
    size_t used_bytes;
};

static bool has_memory(void *context)
{
    struct memory_wait *wait = context;
    return wait->producer->pool.used_bytes < wait->used_bytes;
}

static int wait_for_memory(struct fq_producer *producer, int64_t deadline_us)
{
    struct memory_wait wait = {.producer = producer, .used_bytes = producer->pool.used_bytes};
    producer->starved++;
    int code = fq_member_wait(producer->engine, &producer->member, deadline_us, has_memory, &wait);
    producer->starved--;
    if (code == FLASHQ_ERR_TIMED_OUT) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "the queue is full: %zu of queue.bytes (%zu) wait for an acknowledgement",
                       producer->pool.used_bytes, producer->pool.limit_bytes);
        return refuse(producer, FLASHQ_ERR_AGAIN, text);
    }
    return code;
}

/* Appends, waiting for memory if need be. The partition is chosen anew after a wait. */
static int append(struct fq_outgoing *out, struct fq_batch_claim *claim)
{
    struct fq_producer *producer = out->producer;
    for (;;) {
        struct fq_ppart *ppart;
        if (fq_claim_is_open(producer)) { /* by another thread, perhaps while this one waited */
            return fq_claim_busy(producer);
        }
        int code = fq_producer_choose(producer, out->record, &ppart);
        if (code != 0) {
            return code;
        }
        if (ppart->state == FQ_PPART_DEAD) {
            return refuse(producer, ppart->dead_code, NULL);
        }
        code = try_append(ppart, &out->in, claim);
        if (code == 0) {
            out->ppart = ppart;
        }
        if (code != FLASHQ_ERR_AGAIN) {
            return code;
        }
        code = wait_for_memory(producer, fq_outgoing_deadline_us(out));
        if (code != 0) {
            return code;
        }
    }
}

/* What the engine's last turn knew of the time is good enough, but for lingering and for deadlines. */
static int64_t pump_time_us(const struct fq_ppart *ppart)
{
    const struct fq_engine *engine = ppart->producer->engine;
    bool is_lingering = engine->config.linger_us > 0 && ppart->filling &&
                        ppart->filling->builder.records_count % LINGER_LOOKS_EVERY == 1;
    bool is_exact = ppart->state != FQ_PPART_OPEN || is_lingering;
    return is_exact ? fq_mono_us() : engine->now_us;
}

/* Acknowledgements may bring on the batches of other partitions: some get their turn, the next time others. */
static void pump_some(struct fq_producer *producer)
{
    struct fq_chain *active = &producer->active;
    for (int i = 0; i < PUMP_OTHERS && active->next->next != active; i++) {
        struct fq_chain *first = active->next;
        fq_chain_remove(first);
        fq_chain_append(active, first);
        (void)fq_ppart_pump(fq_chain_item(first, struct fq_ppart, active_node), producer->engine->now_us);
    }
}

/* Sends what is due. Everything else of the client gets its turn once in so many records, and once in a
 * millisecond at least while records come. */
void fq_producer_after_append(struct fq_producer *producer, struct fq_ppart *ppart, int64_t now_ms)
{
    bool has_news = ppart->ring && fq_ring_take_acks(ppart->ring);
    (void)fq_ppart_pump(ppart, pump_time_us(ppart));
    if (has_news) {
        pump_some(producer);
    }
    if (++producer->sends_since_drive >= DRIVE_EVERY_SENDS || now_ms != producer->driven_ms) {
        producer->sends_since_drive = 0;
        producer->driven_ms = now_ms;
        (void)fq_engine_drive(producer->engine);
    }
}

int64_t fq_outgoing_deadline_us(struct fq_outgoing *out)
{
    if (out->deadline_us == 0) { /* the clock is read when it has to wait, not before */
        out->deadline_us = fq_engine_deadline_us(out->producer->engine, out->timeout_ms);
    }
    return out->deadline_us;
}

/* Checks the record and appends it, or claims room for it. */
int fq_outgoing_queue(struct fq_outgoing *out, const flashq_record *record, size_t value_length,
                      struct fq_batch_claim *claim)
{
    struct fq_header on_stack[HEADERS_ON_STACK], *headers = on_stack;
    struct fq_producer *producer = out->producer;
    int code = check(producer, record, value_length, out->now_ms, &out->bytes);
    if (code != 0) {
        return code;
    }
    if (record->headers_count > HEADERS_ON_STACK) {
        headers = malloc(record->headers_count * sizeof *headers);
        if (!headers) {
            return FLASHQ_ERR_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < record->headers_count; i++) {
        const flashq_header *from = &record->headers[i];
        headers[i].name = slice(from->name, from->name_length ? from->name_length : strlen(from->name));
        headers[i].value = slice(from->value, from->value_length);
    }
    bool is_now = record->timestamp_ms == FLASHQ_TIMESTAMP_NOW;
    out->record = record;
    out->in = (struct fq_record_in){.timestamp_ms = is_now ? out->now_ms : record->timestamp_ms,
                                    .key = slice(record->key, record->key_length),
                                    .value = slice(claim ? "" : record->value, value_length),
                                    .headers = headers, .headers_count = record->headers_count};
    code = append(out, claim);
    if (headers != on_stack) {
        free(headers);
    }
    return code;
}

void fq_producer_count_record(struct fq_producer *producer, struct fq_batch *batch, void *user,
                              int64_t timestamp_ms, uint64_t bytes)
{
    int32_t index = batch->builder.records_count - 1;
    batch->sent[index] = (struct fq_sent){.user = user, .timestamp_ms = timestamp_ms};
    batch->payload_bytes += bytes;
    producer->stats.records_sent++;
    producer->stats.bytes_sent += bytes;
}

static int queue_record(struct fq_outgoing *out, const flashq_record *record)
{
    int code = fq_outgoing_queue(out, record, record ? record->value_length : 0, NULL);
    if (code == 0) {
        fq_producer_count_record(out->producer, out->ppart->filling, record->user,
                                 out->in.timestamp_ms, out->bytes);
    }
    return code;
}

int fq_producer_send(struct fq_producer *producer, const flashq_record *record, int timeout_ms)
{
    struct fq_outgoing out = {.producer = producer, .now_ms = fq_wall_recent_ms(&producer->wall),
                              .timeout_ms = timeout_ms};
    int code = queue_record(&out, record);
    if (code == 0) {
        fq_producer_after_append(producer, out.ppart, out.now_ms);
    }
    return code;
}

/* What is in a batch when it goes is decided between records, as with single sends, but less often. */
int64_t fq_producer_sendv(struct fq_producer *producer, const flashq_record *records, size_t count,
                          int timeout_ms)
{
    struct fq_outgoing out = {.producer = producer, .now_ms = fq_wall_recent_ms(&producer->wall),
                              .timeout_ms = timeout_ms};
    size_t stride = records ? records->struct_bytes : 0, taken = 0;
    int code = 0;
    struct fq_ppart *last = NULL;
    while (taken < count) {
        const char *at = (const char *)records + taken * stride;
        code = queue_record(&out, (const flashq_record *)(const void *)at);
        if (code != 0) {
            break;
        }
        taken++;
        if (last && (last != out.ppart || taken % PUMP_EVERY_RECORDS == 0)) {
            (void)fq_ppart_pump(last, pump_time_us(last));
        }
        last = out.ppart;
    }
    if (last) {
        fq_producer_after_append(producer, last, out.now_ms);
    }
    return taken > 0 || count == 0 ? (int64_t)taken : code;
}

static bool sync_is_done(void *context)
{
    return ((struct fq_sync *)context)->is_done;
}

int fq_producer_send_sync(struct fq_producer *producer, const flashq_record *record, int timeout_ms,
                          flashq_report *ret_report)
{
    struct fq_sync sync = {.is_done = false};
    fq_chain_init(&sync.node);
    struct fq_outgoing out = {.producer = producer, .now_ms = fq_wall_recent_ms(&producer->wall),
                              .timeout_ms = timeout_ms};
    uint64_t last_batch_id = producer->last_batch_id;
    int code = queue_record(&out, record);
    if (code != 0) {
        return code;
    }
    struct fq_batch *batch = out.ppart->filling;
    sync.index = batch->builder.records_count - 1;
    fq_chain_append(&batch->syncs, &sync.node);
    bool has_begun = sync.index == 0 && batch->id > last_batch_id;
    producer->posting_ns = has_begun ? batch->began_ns : 0; /* the clock of a moment ago will do */
    fq_producer_after_append(producer, out.ppart, out.now_ms);
    producer->posting_ns = 0;
    producer->engine->active_us = fq_mono_us(); /* an answer will come: worth spinning for */
    code = sync.is_done ? 0
                        : fq_member_wait(producer->engine, &producer->member,
                                         fq_outgoing_deadline_us(&out), sync_is_done, &sync);
    if (!sync.is_done) {
        fq_chain_remove(&sync.node);
        sync.report = (flashq_report){.struct_bytes = sizeof sync.report, .status = code,
                                      .persisted = FLASHQ_PERSISTED_MAYBE, .partition = -1,
                                      .offset = -1, .user = record->user};
    }
    if (ret_report) {
        *ret_report = sync.report;
    }
    return sync.report.status;
}
