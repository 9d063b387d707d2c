/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for consuming: arguments, lock, one inner call. */
#include "api/api.h"

#include "consumer/time_query.h"

static int enter(struct fq_consumer *consumer)
{
    return consumer ? fq_api_enter_member(consumer->engine, &consumer->member) : FLASHQ_ERR_INVALID;
}

static void leave(struct fq_consumer *consumer)
{
    fq_engine_news(consumer->engine); /* taken, or not wanted any more */
    fq_api_leave_member(consumer->engine, &consumer->member);
}

int flashq_consumer_open(flashq_client *client, flashq_consumer **ret_consumer, char *errtext,
                         size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_consumer *consumer;
    int code = ret_consumer ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_consumer_open(client->engine, &consumer, &err);
    fq_api_leave(client);
    if (code == 0) {
        *ret_consumer = (flashq_consumer *)(void *)consumer;
    }
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_consumer_close(flashq_consumer *handle, int timeout_ms)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    (void)timeout_ms; /* nothing to wait for: closing takes no answer of the broker */
    if (!consumer) {
        return 0;
    }
    struct fq_engine *engine = consumer->engine;
    int code = fq_engine_enter(engine);
    if (code != 0) {
        return code == FLASHQ_ERR_FORKED ? 0 : code;
    }
    fq_consumer_close(consumer);
    fq_engine_news(engine);
    fq_engine_leave(engine);
    return 0;
}

int flashq_consumer_assign(flashq_consumer *handle, const char *topic, int32_t partition,
                           int64_t offset, int timeout_ms, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_consumer *consumer = fq_api_consumer(handle);
    int code = topic ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_consumer_assign(consumer, topic, partition, offset,
                              fq_engine_deadline_us(consumer->engine, timeout_ms), &err);
    leave(consumer);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_consumer_unassign(flashq_consumer *handle, const char *topic, int32_t partition)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    int code = topic ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_consumer_unassign(consumer, topic, partition);
    leave(consumer);
    return code;
}

int flashq_consumer_poll(flashq_consumer *handle, const flashq_message **messages, size_t max,
                         int timeout_ms)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    int code = messages || max == 0 ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    int64_t deadline = timeout_ms == 0 ? 0 : fq_engine_deadline_us(consumer->engine, timeout_ms);
    code = max == 0 ? 0 : fq_consumer_poll(consumer, messages, max, deadline);
    leave(consumer);
    return code;
}

int flashq_consumer_last_error(flashq_consumer *handle, char *errtext, size_t errtext_bytes)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    int code = enter(consumer);
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_api_give(&consumer->last_error, consumer->last_error.code, errtext, errtext_bytes);
    leave(consumer);
    return code;
}

const flashq_message *flashq_message_ref(const flashq_message *message)
{
    return message ? fq_message_keep(message) : NULL;
}

void flashq_message_unref(const flashq_message *message)
{
    if (message) {
        fq_message_drop(message);
    }
}

int flashq_message_header(const flashq_message *message, size_t index, flashq_header *ret_header)
{
    return message && ret_header ? fq_message_header(message, index, ret_header)
                                 : FLASHQ_ERR_INVALID;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Enters and finds the partition; on success the caller leaves. */
static int enter_partition(struct fq_consumer *consumer, const char *topic, int32_t partition,
                           struct fq_pread **ret)
{
    int code = topic ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    *ret = fq_consumer_find(consumer, topic, partition);
    if (!*ret) {
        leave(consumer);
        return FLASHQ_ERR_NOT_FOUND;
    }
    return 0;
}

int flashq_seek_offset(flashq_consumer *handle, const char *topic, int32_t partition, int64_t offset,
                       int timeout_ms)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    struct fq_pread *reader;
    int code = enter_partition(consumer, topic, partition, &reader);
    if (code != 0) {
        return code;
    }
    code = fq_consumer_seek(consumer, reader, offset,
                            fq_engine_deadline_us(consumer->engine, timeout_ms));
    leave(consumer);
    return code;
}

int flashq_seek_time(flashq_consumer *handle, const char *topic, int32_t partition,
                     int64_t timestamp_ms, int timeout_ms)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    struct fq_pread *reader;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    int code = enter_partition(consumer, topic, partition, &reader);
    if (code != 0) {
        return code;
    }
    int64_t deadline = fq_engine_deadline_us(consumer->engine, timeout_ms);
    code = fq_time_query(consumer->engine, topic, partition, timestamp_ms, deadline, &answer,
                         &consumer->last_error);
    /* Another thread may have unassigned it meanwhile. */
    reader = code == 0 ? fq_consumer_find(consumer, topic, partition) : NULL;
    if (code == 0) {
        code = reader ? fq_consumer_seek(consumer, reader, answer.offset, deadline)
                      : FLASHQ_ERR_NOT_FOUND;
    }
    leave(consumer);
    return code;
}

static int set_paused(flashq_consumer *handle, const char *topic, int32_t partition, bool is_paused)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    int code = topic ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_consumer_pause(consumer, topic, partition, is_paused);
    leave(consumer);
    return code;
}

int flashq_pause(flashq_consumer *handle, const char *topic, int32_t partition)
{
    return set_paused(handle, topic, partition, true);
}

int flashq_resume(flashq_consumer *handle, const char *topic, int32_t partition)
{
    return set_paused(handle, topic, partition, false);
}

int flashq_set_mode(flashq_consumer *handle, const char *topic, int32_t partition,
                    enum flashq_mode mode)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    bool is_mode = mode == FLASHQ_MODE_PULL || mode == FLASHQ_MODE_PUSH;
    int code = is_mode ? enter(consumer) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_consumer_set_push(consumer, topic, partition, mode == FLASHQ_MODE_PUSH);
    leave(consumer);
    return code;
}

int flashq_mode(flashq_consumer *handle, const char *topic, int32_t partition,
                enum flashq_mode *ret_mode)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    struct fq_pread *reader;
    int code = ret_mode ? enter_partition(consumer, topic, partition, &reader) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    *ret_mode = reader->state == FQ_READER_PUSHED ? FLASHQ_MODE_PUSH : FLASHQ_MODE_PULL;
    leave(consumer);
    return code;
}

int flashq_position(flashq_consumer *handle, const char *topic, int32_t partition,
                    int64_t *ret_offset)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    struct fq_pread *reader;
    int code = ret_offset ? enter_partition(consumer, topic, partition, &reader) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    if (reader->position < 0) {
        code = FLASHQ_ERR_AGAIN; /* start or end, not resolved yet */
    } else {
        *ret_offset = reader->position;
    }
    leave(consumer);
    return code;
}

int flashq_lag(flashq_consumer *handle, const char *topic, int32_t partition, int64_t *ret_lag)
{
    struct fq_consumer *consumer = fq_api_consumer(handle);
    struct fq_pread *reader;
    int code = ret_lag ? enter_partition(consumer, topic, partition, &reader) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    if (reader->position < 0 || reader->high_watermark < 0) {
        code = FLASHQ_ERR_AGAIN;
    } else {
        int64_t lag = reader->high_watermark - reader->position;
        *ret_lag = lag > 0 ? lag : 0;
    }
    leave(consumer);
    return code;
}

int flashq_offset_for_time(flashq_client *client, const char *topic, int32_t partition,
                           int64_t timestamp_ms, int timeout_ms, flashq_time_answer *ret,
                           char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    flashq_time_answer answer = {.offset = -1, .timestamp_ms = -1};
    int code = topic && ret && ret->struct_bytes >= sizeof(size_t) ? fq_api_enter(client)
                                                                   : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_time_query(client->engine, topic, partition, timestamp_ms,
                         fq_engine_deadline_us(client->engine, timeout_ms), &answer, &err);
    fq_api_leave(client);
    if (code == 0) {
        answer.struct_bytes = ret->struct_bytes;
        memcpy(ret, &answer, ret->struct_bytes < sizeof answer ? ret->struct_bytes : sizeof answer);
    }
    return fq_api_give(&err, code, errtext, errtext_bytes);
}
