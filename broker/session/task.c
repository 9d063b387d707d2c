/* SPDX-License-Identifier: Apache-2.0 */
/* Making, answering and freeing tasks; see task.h. */
#include "session/task.h"

#include <stdlib.h>
#include <string.h>

#include "fabric/fabric.h"
#include "wire/protocol_codec.h"

#define ERROR_BYTES 1024

struct fq_task *fq_task_create(enum fq_task_type type)
{
    struct fq_task *task = calloc(1, sizeof *task);
    if (task) {
        task->type = type;
    }
    return task;
}

void fq_task_destroy(struct fq_task *task)
{
    if (!task) {
        return;
    }
    fq_region_unref(task->region);
    if (task->spec) {
        free(task->spec->gauges);
        free(task->spec);
    }
    free(task->bytes);
    free(task->answer);
    free(task);
}

uint8_t *fq_task_answer_room(struct fq_task *task, size_t bytes)
{
    free(task->answer);
    task->answer = malloc(bytes);
    task->answer_length = 0;
    return task->answer;
}

void fq_task_fail(struct fq_task *task, int code, const char *text)
{
    task->status = code;
    uint8_t *room = fq_task_answer_room(task, ERROR_BYTES);
    int64_t length =
        room ? fq_encode_error(room, ERROR_BYTES, task->msg_type, task->correlation, code, text)
             : 0;
    task->answer_length = length > 0 ? (size_t)length : 0;
}

void fq_task_answered(struct fq_task *task, int64_t encoded)
{
    if (encoded < 0) {
        fq_task_fail(task, (int)encoded, NULL);
        return;
    }
    task->answer_length = (size_t)encoded;
}

struct fq_str fq_words(const char *text, char buffer[FQ_WORDS_BYTES])
{
    size_t length = strnlen(text, FQ_WORDS_BYTES);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        buffer[i] = c < 0x20 || c == 0x7f ? ' ' : text[i];
    }
    return fq_str_of(buffer, length);
}
