/* SPDX-License-Identifier: Apache-2.0 */
/* Messages; see message.h. Keeping fails for want of memory. Threads: a borrowed message belongs to the thread
 * that polled it, a kept one to any. */
#include "consumer/message.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void fq_message_set_record(struct fq_message *message, const char *topic, int32_t partition,
                           const struct fq_record *record)
{
    message->pub = (struct flashq_message){
        .topic = topic, .partition = partition, .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .key = record->key.data, .key_length = record->key.length,
        .value = record->value.data, .value_length = record->value.length,
        .headers_count = record->headers_count, .condition_end = -1};
    message->headers_bytes = record->headers_bytes;
    message->headers_length = record->headers_length;
    atomic_init(&message->refs, 0);
}

void fq_message_set_condition(struct fq_message *message, const char *topic, int32_t partition,
                              int code, int64_t offset, int64_t end)
{
    message->pub = (struct flashq_message){.topic = topic, .partition = partition, .offset = offset,
                                           .timestamp_ms = -1, .status = code,
                                           .condition_end = end};
    message->headers_bytes = NULL;
    message->headers_length = 0;
    atomic_init(&message->refs, 0);
}

static struct fq_message *inner(const flashq_message *message)
{
    return (struct fq_message *)(uintptr_t)message;
}

/* Copies `length` bytes to *at and moves it on; null stays null. */
static const void *put(uint8_t **at, const void *from, size_t length)
{
    uint8_t *to = *at;
    if (!from) {
        return NULL;
    }
    if (length > 0) {
        memcpy(to, from, length);
    }
    *at += length;
    return to;
}

static struct fq_message *copy(const struct fq_message *from)
{
    size_t topic_bytes = strlen(from->pub.topic) + 1;
    size_t bytes = topic_bytes + from->pub.key_length + from->pub.value_length + from->headers_length;
    struct fq_message *to = malloc(sizeof *to + bytes + 1);
    if (!to) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)(to + 1);
    to->pub = from->pub;
    to->pub.topic = put(&at, from->pub.topic, topic_bytes);
    to->pub.key = put(&at, from->pub.key, from->pub.key_length);
    to->pub.value = put(&at, from->pub.value, from->pub.value_length);
    to->headers_bytes = put(&at, from->headers_bytes, from->headers_length);
    to->headers_length = from->headers_length;
    atomic_init(&to->refs, 1);
    return to;
}

const flashq_message *fq_message_keep(const flashq_message *message)
{
    struct fq_message *mine = inner(message);
    if (atomic_load_explicit(&mine->refs, memory_order_relaxed) == 0) {
        struct fq_message *kept = copy(mine);
        return kept ? &kept->pub : NULL;
    }
    atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
    return message;
}

void fq_message_drop(const flashq_message *message)
{
    struct fq_message *mine = inner(message);
    /* Release: what this thread did with it; acquire: before it is freed, what the others did. */
    if (atomic_load_explicit(&mine->refs, memory_order_relaxed) != 0 &&
        atomic_fetch_sub_explicit(&mine->refs, 1, memory_order_acq_rel) == 1) {
        free(mine);
    }
}

int fq_message_header(const flashq_message *message, size_t index, flashq_header *ret)
{
    const struct fq_message *mine = inner(message);
    struct fq_record record = {.headers_bytes = mine->headers_bytes,
                               .headers_length = mine->headers_length,
                               .headers_count = (uint32_t)message->headers_count};
    struct fq_headers_iter iter;
    struct fq_header header;
    if (index >= message->headers_count) {
        return FLASHQ_ERR_END;
    }
    fq_headers_iter_init(&iter, &record);
    for (size_t i = 0; i <= index; i++) {
        if (fq_headers_next(&iter, &header) != 1) {
            return FLASHQ_ERR_CORRUPT;
        }
    }
    *ret = (flashq_header){.name = (const char *)header.name.data, .name_length = header.name.length,
                           .value = header.value.data, .value_length = header.value.length};
    return 0;
}
