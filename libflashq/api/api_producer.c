/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for producing: arguments, lock, one inner call. */
#include <stdio.h>

#include "api/api.h"
#include "producer/claim.h"

int flashq_producer_open(flashq_client *client, const char *topic, int timeout_ms,
                         flashq_producer **ret_producer, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_producer *producer;
    int code = topic && ret_producer ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_producer_open(client->engine, topic, fq_engine_deadline_us(client->engine, timeout_ms),
                            &producer, &err);
    fq_api_leave(client);
    if (code == 0) {
        *ret_producer = (flashq_producer *)(void *)producer;
    }
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_producer_close(flashq_producer *handle, int timeout_ms, int64_t *ret_undelivered)
{
    struct fq_producer *producer = fq_api_producer(handle);
    if (!producer) {
        return 0;
    }
    struct fq_engine *engine = producer->engine;
    int code = fq_engine_enter(engine);
    if (code != 0) {
        return code == FLASHQ_ERR_FORKED ? 0 : code;
    }
    int64_t undelivered =
        fq_producer_close(producer, fq_engine_deadline_us(engine, timeout_ms));
    fq_engine_news(engine); /* what was not polled is gone */
    fq_engine_leave(engine);
    if (ret_undelivered) {
        *ret_undelivered = undelivered;
    }
    return 0;
}

int flashq_send(flashq_producer *handle, const flashq_record *record, int timeout_ms)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_producer_send(producer, record, timeout_ms);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_send_sync(flashq_producer *handle, const flashq_record *record, int timeout_ms,
                     flashq_report *ret_report)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_producer_send_sync(producer, record, timeout_ms, ret_report);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int64_t flashq_sendv(flashq_producer *handle, const flashq_record *records, size_t count,
                     int timeout_ms)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer && (records || count == 0)
                   ? fq_api_enter_member(producer->engine, &producer->member)
                   : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    int64_t taken = fq_producer_sendv(producer, records, count, timeout_ms);
    fq_api_leave_member(producer->engine, &producer->member);
    return taken;
}

int flashq_claim(flashq_producer *handle, const flashq_record *record, size_t value_bytes,
                 int timeout_ms, void **ret_value)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer && ret_value && record && !record->value
                   ? fq_api_enter_member(producer->engine, &producer->member)
                   : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_claim_begin(producer, record, value_bytes, timeout_ms, ret_value);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_commit(flashq_producer *handle, size_t length)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_claim_commit(producer, length);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_abort(flashq_producer *handle)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_claim_abort(producer);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_flush(flashq_producer *handle, int timeout_ms)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_producer_flush(producer, fq_engine_deadline_us(producer->engine, timeout_ms));
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_producer_poll(flashq_producer *handle, flashq_report *reports, size_t max, int timeout_ms)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer && (reports || max == 0)
                   ? fq_api_enter_member(producer->engine, &producer->member)
                   : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    code = fq_producer_poll(producer, reports, max,
                            fq_engine_deadline_us(producer->engine, timeout_ms));
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int flashq_producer_get_stats(flashq_producer *handle, flashq_producer_stats *ret)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer && ret ? fq_api_enter_member(producer->engine, &producer->member)
                               : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    flashq_producer_stats stats = producer->stats;
    stats.queue_bytes = producer->pool.used_bytes;
    stats.reports_dropped = producer->reports.dropped;
    fq_api_leave_member(producer->engine, &producer->member);
    stats.struct_bytes = ret->struct_bytes;
    if (ret->struct_bytes < sizeof(size_t)) {
        return FLASHQ_ERR_INVALID;
    }
    memcpy(ret, &stats, ret->struct_bytes < sizeof stats ? ret->struct_bytes : sizeof stats);
    return 0;
}

int flashq_producer_last_error(flashq_producer *handle, char *errtext, size_t errtext_bytes)
{
    struct fq_producer *producer = fq_api_producer(handle);
    int code = producer ? fq_api_enter_member(producer->engine, &producer->member)
                        : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return fq_api_give(NULL, code, errtext, errtext_bytes);
    }
    code = fq_api_give(&producer->last_error, producer->last_error.code, errtext, errtext_bytes);
    fq_api_leave_member(producer->engine, &producer->member);
    return code;
}

int32_t flashq_producer_partitions(flashq_producer *handle)
{
    return handle ? fq_api_producer(handle)->pparts_count : 0; /* fixed for the handle's life */
}
