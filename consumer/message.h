/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as the application sees it, and what the library needs beside it. A borrowed one points into a
 * poll's memory; a kept one (flashq_message_ref) is a copy in one allocation with a counter, which needs
 * neither lock nor client any more.
 */
#ifndef FQ_CONSUMER_MESSAGE_H
#define FQ_CONSUMER_MESSAGE_H

#include <stdint.h>

#include "flashq/flashq.h"
#include "wire/record_batch.h"

struct fq_message {
    struct flashq_message pub;     /* first: the application's pointer is ours */
    const uint8_t *headers_bytes;  /* encoded */
    size_t headers_length;
    _Atomic unsigned refs;         /* 0: borrowed */
};

void fq_message_set_record(struct fq_message *message, const char *topic, int32_t partition,
                           const struct fq_record *record);
void fq_message_set_condition(struct fq_message *message, const char *topic, int32_t partition,
                              int code, int64_t offset, int64_t end);

const flashq_message *fq_message_keep(const flashq_message *message);
void fq_message_drop(const flashq_message *message);
int fq_message_header(const flashq_message *message, size_t index, flashq_header *ret);

#endif
