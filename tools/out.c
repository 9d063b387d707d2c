/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fq_out_flush(struct fq_out *out)
{
    size_t done = 0;
    while (!out->is_broken && done < out->buf.length) {
        ssize_t wrote = write(out->fd, out->buf.data + done, out->buf.length - done);
        if (wrote >= 0) {
            done += (size_t)wrote;
        } else if (errno != EINTR) {
            out->is_broken = true;
            if (errno != EPIPE) {
                (void)fprintf(stderr, "flashq: cannot write to standard output: %s\n",
                              strerror(errno));
            }
        }
    }
    out->buf.length = 0;
    return !out->is_broken;
}

bool fq_out_step(struct fq_out *out)
{
    return out->buf.length < FQ_OUT_FLUSH_BYTES ? !out->is_broken : fq_out_flush(out);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void add_cell(struct fq_table *table, char *text)
{
    if (table->cells_count == table->cells_capacity) {
        table->cells_capacity = table->cells_capacity > 0 ? 2 * table->cells_capacity : 64;
        table->cells = fq_realloc_array(table->cells, table->cells_capacity, sizeof *table->cells);
    }
    table->cells[table->cells_count++] = text;
}

void fq_table_init(struct fq_table *table, const char *const *headings)
{
    *table = (struct fq_table){0};
    for (; *headings; headings++) {
        add_cell(table, fq_strdup(*headings));
        table->columns++;
    }
}

void fq_table_add(struct fq_table *table, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        text = fq_strdup("");
    }
    va_end(args);
    add_cell(table, text);
}

static bool is_number_column(const struct fq_table *table, size_t column)
{
    for (size_t i = table->columns + column; i < table->cells_count; i += table->columns) {
        const char *cell = table->cells[i];
        if (cell[0] == '\0' || (strspn(cell, "0123456789.-") != strlen(cell))) {
            return false;
        }
    }
    return true;
}

void fq_table_finish(struct fq_table *table, struct fq_out *out)
{
    size_t columns = table->columns;
    for (size_t row = 0; row * columns < table->cells_count; row++) {
        for (size_t column = 0; column < columns; column++) {
            size_t width = 0;
            for (size_t i = column; i < table->cells_count; i += columns) {
                size_t length = strlen(table->cells[i]);
                width = length > width ? length : width;
            }
            bool is_last = column + 1 == columns, is_number = is_number_column(table, column);
            int pad = is_number ? (int)width : is_last ? 0 : -(int)width;
            fq_buf_printf(&out->buf, "%*s%s", pad, table->cells[row * columns + column],
                          is_last ? "\n" : "  ");
        }
    }
    fq_table_fini(table);
}

void fq_table_fini(struct fq_table *table)
{
    for (size_t i = 0; i < table->cells_count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    *table = (struct fq_table){0};
}
