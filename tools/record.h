/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record as the CLI reads and prints it. Borrowed bytes throughout: data NULL is null, length 0 with
 * data is empty. Headers always carry name_length; name is never NULL.
 */
#ifndef FQ_TOOLS_RECORD_H
#define FQ_TOOLS_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include <flashq/flashq.h>

/* The most bytes one record can have: the upper bound of message.max.bytes. What is read from a file
 * or a pipe in search of a record's end never grows beyond it by more than one read. */
#define FQ_RECORD_BYTES_MAX ((size_t)64 << 20)

struct fq_rec {
    const char *topic;     /* NULL: unknown */
    int32_t partition;     /* FLASHQ_PARTITION_ANY: not given */
    int64_t offset;        /* -1: not given */
    int64_t timestamp_ms;  /* FLASHQ_TIMESTAMP_NOW: not given */
    const void *key;
    size_t key_length;
    const void *value;
    size_t value_length;
    flashq_header *headers; /* owned array of borrowed bytes; fq_rec_fini frees it */
    size_t headers_count;
    size_t headers_capacity;
};

/* All "not given"; keeps the memory of the headers' array. */
void fq_rec_clear(struct fq_rec *rec);
void fq_rec_fini(struct fq_rec *rec);
void fq_rec_add_header(struct fq_rec *rec, const void *name, size_t name_length, const void *value,
                       size_t value_length);

#endif
