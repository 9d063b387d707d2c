/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from a file or a pipe: lines (any delimiter), the whole input as one record, JSON lines, or
 * a format. Streams: a record is handed out as soon as its last byte is there, and memory is
 * bounded by the largest record.
 */
#ifndef FQ_TOOLS_SOURCE_H
#define FQ_TOOLS_SOURCE_H

#include <stdbool.h>

#include "tools/format.h"
#include "tools/record.h"
#include "tools/text.h"

enum fq_source_mode { FQ_SOURCE_LINES, FQ_SOURCE_WHOLE, FQ_SOURCE_JSONL, FQ_SOURCE_FORMAT };

struct fq_source_params {
    enum fq_source_mode mode;
    struct fq_buf delimiter;        /* LINES; borrowed, as all of this */
    struct fq_buf key_delimiter;    /* LINES: empty for no keys */
    const struct fq_format *format; /* FORMAT */
    /* Called before each read; returns 0 when fd is readable, else the source ends. May be NULL. */
    int (*wait)(void *context, int fd);
    void *wait_context;
};

struct fq_source;

/* `name` is for complaints. fd stays the caller's. */
struct fq_source *fq_source_create(const struct fq_source_params *params, int fd,
                                   const char *name);
void fq_source_destroy(struct fq_source *source);

/* 1: *rec is filled and borrowed until the next call; 0: the end; negative: see the fault. */
int fq_source_next(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault);

#endif
