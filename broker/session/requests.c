/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that need another thread: they go to the housekeeper as tasks that name the session by
 * its handle, and are answered whenever they come back, if the session is still there. A session
 * has at most FQ_SESSION_TASKS_MAX of them under way.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_internal.h"
#include "wire/protocol_codec.h"

int fq_request_task(struct fq_session *session, const struct fq_msg *msg, enum fq_task_type type,
                    struct fq_task **ret, struct fq_err *err)
{
    if (session->tasks >= FQ_SESSION_TASKS_MAX) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "%u requests of this connection are under way, which is the limit",
                          session->tasks);
    }
    struct fq_task *task = fq_task_create(type);
    if (!task) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    task->session = session->handle;
    task->shard = session->host->shard;
    task->msg_type = msg->type;
    task->correlation = msg->correlation;
    *ret = task;
    return 0;
}

void fq_request_submit(struct fq_session *session, struct fq_task *task)
{
    session->tasks++;
    session->host->submit(session->host->context, task);
}

int fq_request_forward(struct fq_session *session, const struct fq_msg *msg, const void *bytes,
                       size_t length, struct fq_err *err)
{
    struct fq_task *task = NULL;
    int code = fq_request_task(session, msg, FQ_TASK_REQUEST, &task, err);
    if (code != 0) {
        return code;
    }
    task->bytes = malloc(length);
    if (!task->bytes) {
        fq_task_destroy(task);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    memcpy(task->bytes, bytes, length);
    task->bytes_length = length;
    fq_request_submit(session, task);
    return 0;
}

/* ---- TIME_QUERY: the calendar's word first, then the partition's ----------------------------- */

int fq_request_time_query(struct fq_session *session, const struct fq_msg *msg, struct fq_err *err)
{
    struct fq_time_query query;
    struct fq_hosted *hosted;
    struct fq_task *task = NULL;
    int code = fq_decode_time_query(msg, &query, err);
    if (code == 0) {
        code =
            fq_hosted_find(session->host->hosted, &query.topic_id, query.partition, &hosted, err);
    }
    if (code == 0) {
        code = fq_hosted_open(hosted, NULL, err);
    }
    if (code == 0) {
        code = fq_request_task(session, msg, FQ_TASK_CALENDAR, &task, err);
    }
    if (code != 0) {
        return code;
    }
    fq_count(session->host->counters, FQ_COUNT_TIME_QUERIES);
    task->topic_id = query.topic_id;
    task->partition = query.partition;
    task->query = query;
    fq_request_submit(session, task);
    return 0;
}

void fq_request_on_calendar(struct fq_session *session, struct fq_task *task)
{
    struct fq_msg msg = {.type = FQ_MSG_TIME_QUERY, .correlation = task->correlation};
    struct fq_time_query_answer answer;
    struct fq_hosted *hosted;
    struct fq_err err;
    uint8_t bytes[256];
    fq_err_clear(&err);
    int code =
        fq_hosted_find(session->host->hosted, &task->topic_id, task->partition, &hosted, &err);
    if (code == 0) {
        code = fq_hosted_open(hosted, NULL, &err);
    }
    if (code == 0) { /* checks the log's bounds as they are now */
        code = fq_partition_time_query(
            hosted->partition, task->query.timestamp_ms, task->query.from_offset,
            task->calendar.found ? &task->calendar : NULL, &answer, &err);
    }
    if (code != 0) {
        fq_session_refuse(session, &msg, code, err.text[0] ? err.text : NULL);
        return;
    }
    fq_session_send_encoded(
        session, bytes,
        fq_encode_time_query_answer(bytes, sizeof bytes, task->correlation, &answer));
}
