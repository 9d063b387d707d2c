/* SPDX-License-Identifier: Apache-2.0 */
/* How `sub` and `replay` print a record: the value and a newline, a format, or a JSON line. */
#ifndef FQ_TOOLS_PRINT_RECORD_H
#define FQ_TOOLS_PRINT_RECORD_H

#include "tools/cli.h"
#include "tools/format.h"
#include "tools/record.h"

struct fq_printer {
    struct fq_cli *cli;
    struct fq_format *format; /* NULL: value and newline, or JSON by -O */
    bool is_meta_only;        /* JSON without content */
    struct fq_buf delimiter;  /* for values */
};

bool fq_printer_has_headers(const struct fq_printer *printer);
/* 0, or exit code + 1, as a visitor of fq_consume returns it. */
int fq_printer_print(const struct fq_printer *printer, const struct fq_rec *rec);

#endif
