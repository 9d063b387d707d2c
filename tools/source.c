/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One buffer between read(2) and the records. [taken, length) is unread input; a record that was
 * handed out lies below `taken` and is dropped at the next call.
 */
#include "tools/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flashq/error.h>

#include "tools/json_record.h"

#define READ_BYTES ((size_t)256 << 10)
/* A JSON line may be much longer than its record (\u0000 is six characters a byte). */
#define LINE_BYTES_MAX (8 * FQ_RECORD_BYTES_MAX)

struct fq_source {
    struct fq_source_params params;
    int fd;
    const char *name;
    struct fq_buf buf;
    size_t taken;
    size_t scanned; /* from taken on, without the delimiter's beginning */
    bool is_ended;  /* the input is */
    bool is_done;   /* no more records */
    uint64_t line;
    struct fq_format_reader *format_reader;
    struct fq_json_reader *json_reader;
};

struct fq_source *fq_source_create(const struct fq_source_params *params, int fd,
                                   const char *name)
{
    struct fq_source *source = fq_alloc(sizeof *source);
    source->params = *params;
    source->fd = fd;
    source->name = name;
    fq_buf_reserve(&source->buf, READ_BYTES); /* never NULL */
    if (params->mode == FQ_SOURCE_FORMAT) {
        source->format_reader = fq_format_reader_create(params->format);
    } else if (params->mode == FQ_SOURCE_JSONL) {
        source->json_reader = fq_json_reader_create();
    }
    return source;
}

void fq_source_destroy(struct fq_source *source)
{
    if (source) {
        fq_buf_fini(&source->buf);
        fq_format_reader_destroy(source->format_reader);
        fq_json_reader_destroy(source->json_reader);
        free(source);
    }
}

/* Reads some more, or sets is_ended. */
static int fill(struct fq_source *source, struct fq_fault *fault)
{
    struct fq_buf *buf = &source->buf;
    size_t left = buf->length - source->taken;
    if (source->taken > 0 && (left == 0 || source->taken >= READ_BYTES)) {
        memmove(buf->data, buf->data + source->taken, left);
        buf->length = left;
        source->taken = 0;
    }
    fq_buf_reserve(buf, READ_BYTES);
    ssize_t got;
    do {
        if (source->params.wait &&
            source->params.wait(source->params.wait_context, source->fd) != 0) {
            source->is_ended = source->is_done = true; /* interrupted: what is half read is not sent */
            return 0;
        }
        got = read(source->fd, buf->data + buf->length, buf->capacity - buf->length);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        (void)fq_fault_set(fault, "%s: cannot read: %s", source->name, strerror(errno));
        return FLASHQ_ERR_IO;
    }
    buf->length += (size_t)got;
    source->is_ended = got == 0;
    return 0;
}

/* Finds the end of a line; 1 with its length (without delimiter), 0 at the end, or negative. */
static int next_line(struct fq_source *source, const struct fq_buf *delimiter, size_t line_max,
                     const uint8_t **ret, size_t *ret_length, struct fq_fault *fault)
{
    for (;;) {
        const uint8_t *start = source->buf.data + source->taken;
        size_t left = source->buf.length - source->taken;
        const uint8_t *found =
            left > source->scanned ? memmem(start + source->scanned, left - source->scanned,
                                            delimiter->data, delimiter->length)
                                   : NULL;
        if (found || (source->is_ended && left > 0 && !source->is_done)) {
            *ret = start;
            *ret_length = found ? (size_t)(found - start) : left;
            source->taken += *ret_length + (found ? delimiter->length : 0);
            source->scanned = 0;
            source->line++;
            return 1;
        }
        if (source->is_ended || source->is_done) {
            return 0;
        }
        source->scanned = left >= delimiter->length ? left - delimiter->length + 1 : 0;
        if (left > line_max) {
            return fq_fault_set(fault, "%s: record %" PRIu64 " has no end within %zu bytes",
                                source->name, source->line + 1, line_max);
        }
        int result = fill(source, fault);
        if (result != 0) {
            return result;
        }
    }
}

static int next_of_lines(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault)
{
    const uint8_t *line = NULL;
    size_t length = 0;
    int result = next_line(source, &source->params.delimiter, FQ_RECORD_BYTES_MAX, &line, &length,
                           fault);
    if (result != 1) {
        return result;
    }
    const struct fq_buf *split = &source->params.key_delimiter;
    const uint8_t *at =
        split->length > 0 ? memmem(line, length, split->data, split->length) : NULL;
    fq_rec_clear(rec);
    if (at) {
        rec->key = line;
        rec->key_length = (size_t)(at - line);
        rec->value = at + split->length;
        rec->value_length = length - rec->key_length - split->length;
    } else {
        rec->value = line;
        rec->value_length = length;
    }
    return 1;
}

static int next_of_jsonl(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault)
{
    uint8_t newline[] = "\n";
    const struct fq_buf delimiter = {.data = newline, .length = 1};
    for (;;) {
        const uint8_t *line = NULL;
        size_t length = 0;
        int result = next_line(source, &delimiter, LINE_BYTES_MAX, &line, &length, fault);
        if (result != 1) {
            return result;
        }
        size_t blank = 0;
        while (blank < length && strchr(" \t\r", line[blank]) && line[blank] != '\0') {
            blank++;
        }
        if (blank == length) {
            continue;
        }
        result = fq_json_read(source->json_reader, line, length, rec, fault);
        if (result != 0) {
            (void)fq_fault_prefix(fault, "%s: line %" PRIu64 ": ", source->name, source->line);
            return result;
        }
        return 1;
    }
}

static int next_of_whole(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault)
{
    static const uint8_t nothing[1];
    while (!source->is_ended) {
        int result = fill(source, fault);
        if (result != 0) {
            return result;
        }
        if (source->buf.length > FQ_RECORD_BYTES_MAX) {
            return fq_fault_set(fault, "%s: more than %zu bytes, the most a record can have",
                                source->name, FQ_RECORD_BYTES_MAX);
        }
    }
    if (source->is_done) {
        return 0;
    }
    source->is_done = true;
    fq_rec_clear(rec);
    rec->value = source->buf.length > 0 ? source->buf.data : nothing;
    rec->value_length = source->buf.length;
    return 1;
}

static int next_of_format(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault)
{
    for (;;) {
        size_t used;
        if (source->is_done) {
            return 0;
        }
        int result = fq_format_read(source->format_reader, source->buf.data + source->taken,
                                    source->buf.length - source->taken, source->is_ended, &used,
                                    rec, fault);
        if (result == FQ_FORMAT_RECORD) {
            source->taken += used;
            return 1;
        }
        if (result != FQ_FORMAT_MORE) {
            source->is_done = true;
            if (result < 0) {
                (void)fq_fault_prefix(fault, "%s: ", source->name);
            }
            return result == FQ_FORMAT_END ? 0 : result;
        }
        result = fill(source, fault);
        if (result != 0) {
            return result;
        }
    }
}

int fq_source_next(struct fq_source *source, struct fq_rec *rec, struct fq_fault *fault)
{
    switch (source->params.mode) {
    case FQ_SOURCE_LINES: return next_of_lines(source, rec, fault);
    case FQ_SOURCE_WHOLE: return next_of_whole(source, rec, fault);
    case FQ_SOURCE_JSONL: return next_of_jsonl(source, rec, fault);
    case FQ_SOURCE_FORMAT: return next_of_format(source, rec, fault);
    default: return FLASHQ_ERR_INVALID;
    }
}
