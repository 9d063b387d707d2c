/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled format, as format_compile.c makes it and format_render.c and format_read.c run it. */
#ifndef FQ_TOOLS_FORMAT_PROGRAM_H
#define FQ_TOOLS_FORMAT_PROGRAM_H

#include "tools/format.h"

enum fq_fmt_verb {
    FQ_FMT_LITERAL,
    FQ_FMT_TOPIC,
    FQ_FMT_KEY, /* in a header: its name */
    FQ_FMT_VALUE,
    FQ_FMT_DATE,
    FQ_FMT_HEADERS,
    FQ_FMT_PARTITION,
    FQ_FMT_OFFSET,
    FQ_FMT_TIMESTAMP,
    FQ_FMT_KEY_LENGTH,
    FQ_FMT_VALUE_LENGTH,
    FQ_FMT_HEADERS_COUNT
};

enum fq_fmt_encoding {
    FQ_FMT_PLAIN, /* raw or ascii */
    FQ_FMT_HEX,
    FQ_FMT_BASE64,
    FQ_FMT_BIG,
    FQ_FMT_LITTLE,
    FQ_FMT_STRFTIME
};

struct fq_fmt_element {
    enum fq_fmt_verb verb;
    enum fq_fmt_encoding encoding;
    unsigned width;              /* bytes of BIG and LITTLE */
    size_t position;             /* in the format's text, from 1 */
    struct fq_buf literal;       /* LITERAL; the strftime format */
    struct fq_format *inner;     /* HEADERS with a format of their own */
};

struct fq_format {
    struct fq_fmt_element *elements;
    size_t count;
};

static inline bool fq_fmt_is_number(enum fq_fmt_verb verb)
{
    return verb >= FQ_FMT_PARTITION;
}

static inline bool fq_fmt_is_text(enum fq_fmt_verb verb)
{
    return verb >= FQ_FMT_TOPIC && verb <= FQ_FMT_DATE;
}

#endif
