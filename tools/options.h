/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from tables: one table drives parsing, help and shell completion. Options and arguments may be
 * mixed; "--" ends options; "-" is an argument. -kVALUE, -k VALUE, --key=VALUE, --key VALUE; flags may
 * be gathered (-eZ). The next word after an option that takes a value is its value, whatever it
 * looks like.
 */
#ifndef FQ_TOOLS_OPTIONS_H
#define FQ_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/text.h"

struct fq_opt {
    int id;           /* from 1; several spellings may share one */
    char letter;      /* or 0 */
    const char *name; /* or NULL */
    const char *arg;  /* what the value is called; NULL: a flag */
    const char *help; /* NULL: understood, not advertised */
};

#define FQ_OPT_END 0
#define FQ_OPT_ARGUMENT (-1)
#define FQ_OPT_FAULT (-2)

struct fq_opt_parser {
    int argc;
    char **argv;
    const struct fq_opt *own;    /* ends with id 0 */
    const struct fq_opt *common; /* may be NULL */
    int index;
    const char *cluster; /* rest of a word of flags */
    bool is_over;        /* "--" was met */
};

/* The next option's id with its value, FQ_OPT_ARGUMENT with the argument, _END, or _FAULT. */
int fq_opt_next(struct fq_opt_parser *parser, const char **ret_value, bool *ret_is_common,
                struct fq_fault *fault);

/* Help lines of a table's advertised options. */
void fq_opt_describe(const struct fq_opt *table, struct fq_buf *out);

#endif
