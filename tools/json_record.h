/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as JSON, one object a line:
 *   {"topic","partition","offset","timestamp_ms","key","value","headers":[{"name","value"}]}
 * Bytes that are not UTF-8 stand in key_b64, value_b64, name_b64 instead; null is null and "" is
 * empty. What is printed is read back to the same record.
 */
#ifndef FQ_TOOLS_JSON_RECORD_H
#define FQ_TOOLS_JSON_RECORD_H

#include <stdbool.h>

#include "tools/record.h"
#include "tools/text.h"

/* Appends one object and a newline. Without content: key_bytes and value_bytes, and no headers. */
void fq_json_add_record(struct fq_buf *out, const struct fq_rec *rec, bool has_content);

struct fq_json_reader;
struct fq_json_reader *fq_json_reader_create(void);
void fq_json_reader_destroy(struct fq_json_reader *reader);
/* Reads one line. "value" or "value_b64" must be there; topic and offset are not used, and fields it
 * does not know are passed over. rec borrows from the reader until the next call. */
int fq_json_read(struct fq_json_reader *reader, const void *line, size_t length,
                 struct fq_rec *rec, struct fq_fault *fault);

#endif
