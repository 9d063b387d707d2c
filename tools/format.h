/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The percent language of -f: what a record looks like, for printing and for reading.
 *
 *   %t topic  %p partition  %o offset  %k key  %v %s value  %T timestamp (ms)  %d timestamp (text)
 *   %h headers  %K %V %S lengths of key and value (-1: null)  %H number of headers
 *   %R the value's length as 4 big-endian bytes  %% %{ %} themselves  \n \t \r \0 \\ \xNN
 *
 *   {modifier} after a verb.
 *     numbers: ascii (the default), hex, byte, big2 big4 big8 little2 little4 little8 (bytes, two's
 *              complement; big16 big32 big64 and little16.. are the same in bits)
 *     text:    raw (the default), hex, base64
 *     %d:      strftime[FORMAT] (UTC; printing only)
 *     %h:      a format for each header, in which %k %v %K %V are its name and value
 *
 * Reading goes by the same text: a key or value is as long as a length before it says, or ends
 * where the literal after it begins, or (last in the format) takes the rest of the input.
 */
#ifndef FQ_TOOLS_FORMAT_H
#define FQ_TOOLS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/record.h"
#include "tools/text.h"

struct fq_format;

/* Faults name the character of `text` at which it stops making sense, counted from 1. */
int fq_format_compile(const char *text, struct fq_format **ret, struct fq_fault *fault);
void fq_format_free(struct fq_format *format);
bool fq_format_has_headers(const struct fq_format *format);

/* Appends the record. Fails (and appends nothing) when a number does not fit its modifier. */
int fq_format_render(const struct fq_format *format, const struct fq_rec *rec, struct fq_buf *out,
                     struct fq_fault *fault);

/* Whether records in this format can be told apart again when read. */
int fq_format_check_readable(const struct fq_format *format, struct fq_fault *fault);

enum fq_format_result {
    FQ_FORMAT_MORE = 0,   /* needs more bytes */
    FQ_FORMAT_RECORD = 1, /* *ret_used bytes were a record */
    FQ_FORMAT_END = 2     /* the input ended where a record would begin */
};

/* A reader of one stream; keeps its place in a half-read record, so that every byte is looked at once. */
struct fq_format_reader;
struct fq_format_reader *fq_format_reader_create(const struct fq_format *format);
void fq_format_reader_destroy(struct fq_format_reader *reader);
/*
 * `data` begins at the current record. Until a result other than MORE, each call must show the same bytes
 * and more behind them. The record borrows from data (hex and base64 are decoded in place).
 * Returns an fq_format_result or a negative code.
 */
int fq_format_read(struct fq_format_reader *reader, uint8_t *data, size_t length, bool is_last,
                   size_t *ret_used, struct fq_rec *rec, struct fq_fault *fault);

#endif
