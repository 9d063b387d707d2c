/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's slot at the broker: opening and closing it, and what its sequences and epochs mean.
 *
 * Happy path: PRODUCER_OPEN says where the producer ended; what waits is sent from there.
 * A refusal to open may pass (tried again after a pause), or be final for what waits, or for the partition.
 * A sequence that the broker does not expect means that something before it was given up and is not stored:
 * the next epoch numbers everything anew. Thread: any, under the client's lock.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/random.h"
#include "client/link.h"
#include "producer/partition_internal.h"
#include "producer/producer.h"

#define EPOCH_MAX INT16_MAX

/* ---- numbers -------------------------------------------------------------------------------- */

/* Sequences count from 0 to INT32_MAX and go on at 0, as Kafka's do. */
int32_t fq_sequence_add(int32_t sequence, int32_t count)
{
    return (int32_t)(((uint32_t)sequence + (uint32_t)count) & INT32_MAX);
}

/* How far `a` is ahead of `b`; negative when it is behind. */
static int32_t sequence_ahead(int32_t a, int32_t b)
{
    uint32_t distance = ((uint32_t)a - (uint32_t)b) & INT32_MAX;
    return distance <= INT32_MAX / 2 ? (int32_t)distance : (int32_t)distance - INT32_MAX - 1;
}

/* Whatever is not answered is known not to be stored: it is numbered anew in the next epoch, from where the
 * broker's answer to the next opening says that the producer ended. */
void fq_slot_next_epoch(struct fq_ppart *ppart)
{
    if (ppart->epoch == EPOCH_MAX) {
        ppart->producer_id = (int64_t)(fq_random_u64() >> 1);
        ppart->epoch = 0;
    } else {
        ppart->epoch++;
    }
    ppart->next_sequence = 0;
    ppart->was_opened = false;
}

bool fq_slot_is_numbered(const struct fq_ppart *ppart, const struct fq_batch *batch)
{
    return batch->length != 0 && batch->epoch == ppart->epoch &&
           batch->producer_id == ppart->producer_id;
}

/* The first sequence that will be sent on a slot opened now. */
static int32_t first_sequence(const struct fq_ppart *ppart)
{
    if (!fq_chain_is_empty(&ppart->waiting)) {
        const struct fq_batch *first = fq_chain_item(ppart->waiting.next, struct fq_batch, node);
        if (fq_slot_is_numbered(ppart, first)) {
            return first->base_sequence;
        }
    }
    return ppart->next_sequence;
}

/* ---- closing -------------------------------------------------------------------------------- */

void fq_slot_forget(struct fq_ppart *ppart)
{
    fq_direct_end(&ppart->direct);
    if (ppart->ring) {
        fq_idmap_remove(&ppart->ring->slots, ppart->slot, ppart);
        if (ppart->ring->user.link) {
            fq_link_cancel(ppart->ring->user.link, ppart);
        }
    }
}

static void slot_closed(void *context, int status, const struct fq_msg *msg, const char *text)
{
    (void)context, (void)status, (void)msg, (void)text;
}

/* Tells the broker that the slot is not used any more. Nobody waits for the answer. */
void fq_slot_close(struct fq_ppart *ppart)
{
    struct fq_link *link = ppart->ring->user.link;
    uint8_t buffer[128];
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_producer_close(buffer, sizeof buffer, correlation,
                                              &(struct fq_slot_ref){.slot = ppart->slot});
    (void)fq_link_request(link, buffer, length, correlation,
                          fq_deadline_us(link->engine->now_us, link->engine->config.timeout_ms),
                          slot_closed, NULL);
    fq_slot_forget(ppart);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What a refusal to open means. */
static void open_refused(struct fq_ppart *ppart, int code, const char *text)
{
    struct fq_producer *producer = ppart->producer;
    ppart->refused_code = code;
    /* The broker's words for a topic that is gone have its id only. */
    fq_producer_note_error(producer, code, code == FLASHQ_ERR_UNKNOWN_TOPIC_ID ? NULL : text);
    switch (code) {
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID:
    case FLASHQ_ERR_NOT_FOUND:
        fq_ppart_die(ppart, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
        return;
    case FLASHQ_ERR_NOT_LEADER:
        ppart->wants_reroute = true;
        fq_producer_refresh(producer);
        break;
    case FLASHQ_ERR_UNREACHABLE:
    case FLASHQ_ERR_CLOSED:
    case FLASHQ_ERR_TIMED_OUT:
    case FLASHQ_ERR_AGAIN:
    case FLASHQ_ERR_BUSY:
    case FLASHQ_ERR_SHUTTING_DOWN:
    case FLASHQ_ERR_NO_MEMORY: break; /* may pass: the delivery timeout bounds it */
    case FLASHQ_ERR_EXCLUSIVE:
        if (ppart->was_fenced) { /* whoever took it over has it: what waits does not fight for it */
            char words[FQ_ERR_TEXT_BYTES];
            (void)snprintf(words, sizeof words, "another producer has taken the partition over: %.400s",
                           text ? text : "");
            fq_producer_note_error(producer, FLASHQ_ERR_FENCED, words);
            fq_ppart_fail_waiting(ppart, FLASHQ_ERR_FENCED);
            ppart->was_fenced = false;
        }
        break; /* otherwise it may pass as well */
    case FLASHQ_ERR_FENCED:           /* somebody else drew our number */
        fq_ppart_fail_waiting(ppart, code);
        ppart->producer_id = (int64_t)(fq_random_u64() >> 1);
        ppart->epoch = 0;
        ppart->next_sequence = 0;
        ppart->was_opened = false;
        break;
    default: fq_ppart_fail_waiting(ppart, code); break;
    }
    fq_ppart_pause(ppart);
}

/* A direct slot cannot take what is in the log already: a batch lies where it was written. The answer says which
 * those are, and where: they follow each other up to the last. */
static bool settle_appended(struct fq_ppart *ppart, const struct fq_producer_open_answer *answer)
{
    while (!fq_chain_is_empty(&ppart->waiting)) {
        struct fq_batch *batch = fq_chain_item(ppart->waiting.next, struct fq_batch, node);
        int32_t count = batch->builder.records_count;
        if (!fq_slot_is_numbered(ppart, batch) || !batch->may_be_stored ||
            sequence_ahead(fq_sequence_add(batch->base_sequence, count - 1), answer->last_sequence) > 0) {
            return true;
        }
        int64_t base_offset =
            answer->last_offset - sequence_ahead(answer->last_sequence, batch->base_sequence);
        if (base_offset < 0) {
            return false;
        }
        fq_chain_remove(&batch->node);
        fq_producer_batch_done(ppart->producer, batch, 0, ppart->producer->persisted, base_offset, true, false);
    }
    return true;
}

static void slot_opened(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_ppart *ppart = context;
    struct fq_producer_open_answer answer;
    struct fq_producer *producer = ppart->producer;
    struct fq_err err = {0};
    if (!msg && status == FLASHQ_ERR_UNREACHABLE) {
        return; /* the ring tells */
    }
    if (status == 0) {
        status = fq_decode_producer_open_answer(msg, &answer, &err);
        text = err.text;
    }
    if (status != 0) {
        fq_ppart_set_state(ppart, FQ_PPART_RING);
        open_refused(ppart, status, text);
        return;
    }
    bool is_known = answer.last_sequence >= 0;
    if (producer->is_direct && is_known && !settle_appended(ppart, &answer)) {
        fq_link_fail(ppart->ring->user.link, FLASHQ_ERR_PROTOCOL,
                     "the broker's last sequence and offset make no sense");
        return;
    }
    int32_t broker_next = is_known ? fq_sequence_add(answer.last_sequence, 1) : ppart->next_sequence;
    if (!ppart->was_opened) {
        ppart->next_sequence = broker_next; /* nothing is numbered in this epoch yet */
    } else if (is_known && sequence_ahead(first_sequence(ppart), broker_next) > 0) {
        /* A batch given up before was not stored, so none after it was: number them anew. */
        ppart->slot = answer.slot;
        fq_slot_close(ppart);
        fq_slot_next_epoch(ppart);
        fq_ppart_set_state(ppart, FQ_PPART_RING);
        return;
    }
    if (fq_idmap_set(&ppart->ring->slots, answer.slot, ppart) != 0) {
        fq_ppart_set_state(ppart, FQ_PPART_RING);
        open_refused(ppart, FLASHQ_ERR_NO_MEMORY, NULL);
        return;
    }
    unsigned most = (unsigned)producer->engine->config.max_in_flight;
    ppart->slot = answer.slot;
    ppart->max_in_flight = answer.max_in_flight > 0 && answer.max_in_flight < most
                               ? answer.max_in_flight
                               : most;
    if (answer.message_max_bytes > 0 && answer.message_max_bytes < producer->message_max_bytes) {
        producer->message_max_bytes = answer.message_max_bytes;
    }
    ppart->notifies_posted = ppart->notifies_acked = 0;
    ppart->was_opened = true;
    ppart->was_fenced = false;
    ppart->failures = 0;
    ppart->refused_code = 0;
    fq_ppart_set_state(ppart, FQ_PPART_OPEN);
    (void)fq_ppart_pump(ppart, producer->engine->now_us);
}

void fq_slot_open(struct fq_ppart *ppart, int64_t now_us)
{
    struct fq_producer *producer = ppart->producer;
    struct fq_link *link = ppart->ring->user.link;
    uint8_t buffer[256];
    struct fq_producer_open open = {
        .topic_id = producer->topic_id, .partition = (uint32_t)ppart->index,
        .producer_id = ppart->producer_id, .producer_epoch = ppart->epoch,
        .next_sequence = first_sequence(ppart), .acks = (uint8_t)producer->engine->config.acks,
        .mode = producer->is_direct ? FQ_APPEND_DIRECT : FQ_APPEND_STAGED};
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = fq_encode_producer_open(buffer, sizeof buffer, correlation, &open);
    int code = fq_link_request(link, buffer, length, correlation,
                               fq_deadline_us(now_us, producer->engine->config.timeout_ms),
                               slot_opened, ppart);
    if (code == 0) {
        fq_ppart_set_state(ppart, FQ_PPART_OPENING);
    } else {
        /* The queue of messages is full: there will be room, or no connection. */
        open_refused(ppart, code == FLASHQ_ERR_LIMIT ? FLASHQ_ERR_AGAIN : code, NULL);
    }
}
