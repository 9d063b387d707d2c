/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors inside FlashQ: the public negative codes plus a caller-owned text.
 *
 * A function that can fail returns 0 or a negative FLASHQ_ERR_ code (positive values are documented
 * outcomes of one module). One that knows more than the code takes a `struct fq_err *`, which may
 * be NULL. Libraries fill it; programs print it, once.
 */
#ifndef FQ_BASE_ERROR_H
#define FQ_BASE_ERROR_H

#include <stdarg.h>

#include "flashq/error.h"

#define FQ_ERR_TEXT_BYTES 512

struct fq_err {
    int code;
    char text[FQ_ERR_TEXT_BYTES];
};

/* Sets code and text; returns code, so that `return fq_err_set(...)` reads well. */
int fq_err_set(struct fq_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As fq_err_set, with ": " and the text of the errno value appended. */
int fq_err_errno(struct fq_err *err, int code, int errnum, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts words in front of the text that is there ("topic x: ..."); returns the code that is there. */
int fq_err_prefix(struct fq_err *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void fq_err_clear(struct fq_err *err);

/* The name of a code: "TIMED_OUT"; the sentence for it: "timed out". Never NULL. */
const char *fq_err_name(int code);
const char *fq_err_describe(int code);

/* The closest code for an errno value (ENOSPC -> NO_SPACE, EACCES -> NOT_PERMITTED, ...). */
int fq_err_from_errno(int errnum);

#endif
