/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time queries. The broker answers FOUND, END, or, because it never decompresses, CANDIDATE: the batch at an
 * offset may hold the record. Then that batch is read and looked through here; if nothing in it fits, the
 * broker is asked again from behind it.
 * What can fail: the broker (see fq_call), reading the candidate, the deadline. Thread: any, under the lock.
 */
#include "consumer/time_query.h"

#include <string.h>

#include "client/link.h"
#include "client/metadata.h"
#include "client/request.h"
#include "consumer/consumer.h"

#define CANDIDATE_MESSAGES 256

static int64_t encode(void *out, size_t capacity, uint32_t correlation, const void *in)
{
    return fq_encode_time_query(out, capacity, correlation, in);
}

static int decode(const struct fq_msg *msg, void *out, struct fq_err *err)
{
    return fq_decode_time_query_answer(msg, out, err);
}

/* The log begins later than the broker's answer said: goes on there. */
static int skip_trimmed(struct fq_consumer *consumer, const flashq_message *message, int64_t deadline_us)
{
    struct fq_pread *reader = fq_consumer_find(consumer, message->topic, message->partition);
    return fq_consumer_seek(consumer, reader, message->condition_end, deadline_us);
}

/* Looks through [base, end) for the first record at or after the time. 1: found; 0: none. */
static int search(struct fq_consumer *consumer, int64_t end, int64_t timestamp_ms,
                  int64_t deadline_us, flashq_time_answer *ret)
{
    const flashq_message *messages[CANDIDATE_MESSAGES];
    for (;;) {
        int count = fq_consumer_poll(consumer, messages, CANDIDATE_MESSAGES, deadline_us);
        if (count <= 0) {
            return count < 0 ? count : FLASHQ_ERR_TIMED_OUT;
        }
        for (int i = 0; i < count; i++) {
            const flashq_message *message = messages[i];
            if (message->status == FLASHQ_ERR_TRIMMED && message->condition_end < end) {
                int code = skip_trimmed(consumer, message, deadline_us);
                if (code != 0) {
                    return code;
                }
                break; /* what follows in `messages` is from before the seek */
            }
            if (message->status != 0 && message->status != FLASHQ_ERR_TRIMMED) {
                return message->status;
            }
            if (message->status != 0 || message->offset >= end) {
                return 0;
            }
            if (message->timestamp_ms >= timestamp_ms) {
                ret->offset = message->offset;
                ret->timestamp_ms = message->timestamp_ms;
                return 1;
            }
            if (message->offset + 1 >= end) {
                return 0;
            }
        }
    }
}

static int look_into_candidate(struct fq_engine *engine, const char *topic, int32_t partition,
                               const struct fq_time_query_answer *candidate, int64_t timestamp_ms,
                               int64_t deadline_us, flashq_time_answer *ret, struct fq_err *err)
{
    struct fq_consumer *consumer;
    int code = fq_consumer_open(engine, &consumer, err);
    if (code != 0) {
        return code;
    }
    consumer->reset = FQ_RESET_NONE; /* the user's choice is not about this */
    code = fq_consumer_assign(consumer, topic, partition, candidate->offset, deadline_us, err);
    if (code == 0) {
        code = search(consumer, candidate->next_offset, timestamp_ms, deadline_us, ret);
        if (code < 0) {
            (void)fq_err_set(err, code, "reading the batch at offset %lld: %s",
                             (long long)candidate->offset, fq_err_describe(code));
        }
    }
    fq_consumer_close(consumer);
    return code;
}

static int ask(struct fq_engine *engine, struct fq_link *link, const struct fq_time_query *query,
               int64_t deadline_us, struct fq_time_query_answer *ret, struct fq_err *err)
{
    return fq_call(&(struct fq_call){.engine = engine, .link = link, .encode = encode, .in = query,
                                     .decode = decode, .out = ret, .deadline_us = deadline_us,
                                     .is_repeatable = true},
                   err);
}

static void nothing_up(struct fq_link_user *user)
{
    (void)user;
}
static void nothing_down(struct fq_link_user *user, int code, const char *text)
{
    (void)user, (void)code, (void)text;
}
static bool not_mine(struct fq_link_user *user, uint32_t imm)
{
    (void)user, (void)imm;
    return false;
}
static bool no_message(struct fq_link_user *user, const struct fq_msg *msg)
{
    (void)user, (void)msg;
    return false;
}
/* Keeps the partition's link in use for the time of a query. */
static const struct fq_link_user_ops holder_ops = {.on_up = nothing_up, .on_down = nothing_down,
                                                   .on_notify = not_mine, .on_message = no_message,
                                                   .on_writable = nothing_up};

static int query_on(struct fq_engine *engine, struct fq_link *link, const char *topic,
                    struct fq_time_query *query, int64_t deadline_us, flashq_time_answer *ret,
                    struct fq_err *err)
{
    for (;;) {
        struct fq_time_query_answer answer;
        int code = ask(engine, link, query, deadline_us, &answer, err);
        if (code != 0) {
            return code;
        }
        ret->cost_nodes += answer.cost_nodes;
        ret->cost_bytes += answer.cost_bytes;
        ret->end = answer.result == FQ_TIME_END;
        ret->offset = answer.offset;
        ret->timestamp_ms = answer.result == FQ_TIME_FOUND ? answer.timestamp_ms : -1;
        if (answer.result != FQ_TIME_CANDIDATE) {
            return 0;
        }
        if (answer.next_offset <= answer.offset || answer.next_offset <= query->from_offset) {
            return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the broker's candidate goes nowhere");
        }
        code = look_into_candidate(engine, topic, (int32_t)query->partition, &answer,
                                   query->timestamp_ms, deadline_us, ret, err);
        if (code != 0) {
            return code == 1 ? 0 : code;
        }
        query->from_offset = answer.next_offset;
    }
}

int fq_time_query(struct fq_engine *engine, const char *topic, int32_t partition,
                  int64_t timestamp_ms, int64_t deadline_us, flashq_time_answer *ret,
                  struct fq_err *err)
{
    struct fq_meta *meta;
    struct fq_link *link;
    int code = fq_metadata_get(engine, topic, deadline_us, &meta, err);
    if (code != 0) {
        return code;
    }
    const struct fq_meta_topic *described = &meta->topics[0];
    if (partition < 0 || (uint32_t)partition >= described->partitions_count) {
        code = fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "topic %s has partitions 0 to %d, no %d", topic,
                          (int)described->partitions_count - 1, partition);
        fq_meta_free(meta);
        return code;
    }
    struct fq_time_query query = {.topic_id = described->id, .partition = (uint32_t)partition,
                                  .timestamp_ms = timestamp_ms};
    code = fq_metadata_link(engine, meta, &described->partitions[partition], &link);
    fq_meta_free(meta);
    if (code != 0) {
        return fq_err_set(err, code, "%s/%d: %s", topic, partition, fq_err_describe(code));
    }
    struct fq_link_user holder = {.ops = &holder_ops};
    fq_link_add_user(link, &holder);
    code = query_on(engine, link, topic, &query, deadline_us, ret, err);
    fq_link_remove_user(&holder);
    return code;
}
