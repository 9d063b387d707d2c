/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and text for the CLI: growable buffers, UTF-8, base64, hexadecimal, backslash escapes, and
 * the caller-owned text of a parser's complaint. Nothing here knows of messages or brokers.
 *
 * A process that is out of memory ends: the buffers below never return a failure.
 */
#ifndef FQ_TOOLS_TEXT_H
#define FQ_TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FQ_FAULT_TEXT_BYTES 512

/* Why something was refused; what a person reads. */
struct fq_fault {
    char text[FQ_FAULT_TEXT_BYTES];
};

/* Sets the text (fault may be NULL); returns FLASHQ_ERR_INVALID, so that `return fq_fault_set(...)`
 * reads well. */
int fq_fault_set(struct fq_fault *fault, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts words in front of the text that is there. */
int fq_fault_prefix(struct fq_fault *fault, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void *fq_alloc(size_t bytes);                    /* zeroed; never NULL */
void *fq_realloc_array(void *old, size_t count, size_t size);
char *fq_strdup(const char *text);

struct fq_buf {
    uint8_t *data;
    size_t length;
    size_t capacity;
};

void fq_buf_fini(struct fq_buf *buf);
void fq_buf_reserve(struct fq_buf *buf, size_t more); /* room for `more` bytes after length */
void fq_buf_add(struct fq_buf *buf, const void *bytes, size_t length);
void fq_buf_add_byte(struct fq_buf *buf, uint8_t byte);
void fq_buf_add_text(struct fq_buf *buf, const char *text);
void fq_buf_printf(struct fq_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Terminates without counting the NUL; the pointer is good until the next add. */
const char *fq_buf_text(struct fq_buf *buf);

/* RFC 3629: no surrogates, nothing overlong, nothing above U+10FFFF. */
bool fq_utf8_is_valid(const void *bytes, size_t length);

void fq_base64_encode(struct fq_buf *out, const void *bytes, size_t length);
void fq_hex_encode(struct fq_buf *out, const void *bytes, size_t length);
/* RFC 4648, padding required, nothing else between. out may be text itself: the result is shorter.
 * Returns the number of bytes, or -1. */
ptrdiff_t fq_base64_decode(void *out, const char *text, size_t length);
ptrdiff_t fq_hex_decode(void *out, const char *text, size_t length);

/* Appends text with \n \t \r \0 \\ \xNN replaced. */
int fq_unescape(struct fq_buf *out, const char *text, struct fq_fault *fault);

/* A JSON string with its quotes; the bytes must be valid UTF-8. */
void fq_json_add_string(struct fq_buf *out, const void *bytes, size_t length);

/* The candidate closest to word (NULL-terminated list), or NULL if none is near. */
const char *fq_closest(const char *word, const char *const *candidates);

#endif
