/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/print_record.h"

#include "tools/json_record.h"

static bool is_json(const struct fq_printer *printer)
{
    return !printer->format &&
           (printer->is_meta_only || printer->cli->output != FQ_OUTPUT_TABLE);
}

bool fq_printer_has_headers(const struct fq_printer *printer)
{
    return printer->format ? fq_format_has_headers(printer->format)
                           : is_json(printer) && !printer->is_meta_only;
}

int fq_printer_print(const struct fq_printer *printer, const struct fq_rec *rec)
{
    struct fq_out *out = &printer->cli->out;
    struct fq_fault fault;
    if (printer->format) {
        if (fq_format_render(printer->format, rec, &out->buf, &fault) != 0) {
            fq_cli_warn("%s", fault.text);
            return FQ_EXIT_FAILED + 1;
        }
    } else if (is_json(printer)) {
        fq_json_add_record(&out->buf, rec, !printer->is_meta_only);
    } else {
        fq_buf_add(&out->buf, rec->value, rec->value ? rec->value_length : 0);
        fq_buf_add(&out->buf, printer->delimiter.data, printer->delimiter.length);
    }
    return fq_out_step(out) ? 0 : FQ_EXIT_FAILED + 1;
}
