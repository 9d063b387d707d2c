/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output: buffered, binary exact, and never silently short. The first failed write is told on
 * standard error (but a reader that went away is nobody's fault) and makes the program fail.
 */
#ifndef FQ_TOOLS_OUT_H
#define FQ_TOOLS_OUT_H

#include <stdbool.h>

#include "tools/text.h"

#define FQ_OUT_FLUSH_BYTES ((size_t)256 << 10)

struct fq_out {
    struct fq_buf buf; /* append here */
    int fd;
    bool is_broken;
};

/* Writes what is there; false once broken. */
bool fq_out_flush(struct fq_out *out);
/* Writes if there is much; false once broken. */
bool fq_out_step(struct fq_out *out);

/* Columns padded to their widest cell; two blanks between them. */
struct fq_table {
    size_t columns;
    char **cells;
    size_t cells_count, cells_capacity;
};
void fq_table_init(struct fq_table *table, const char *const *headings); /* NULL-terminated */
void fq_table_add(struct fq_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints and frees; numbers are aligned to the right. */
void fq_table_finish(struct fq_table *table, struct fq_out *out);

/* Frees without printing. */
void fq_table_fini(struct fq_table *table);

#endif
