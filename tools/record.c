/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/record.h"

#include <stdlib.h>

#include "tools/text.h"

void fq_rec_clear(struct fq_rec *rec)
{
    *rec = (struct fq_rec){.partition = FLASHQ_PARTITION_ANY,
                           .offset = -1,
                           .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                           .headers = rec->headers,
                           .headers_capacity = rec->headers_capacity};
}

void fq_rec_fini(struct fq_rec *rec)
{
    free(rec->headers);
    rec->headers = NULL;
    rec->headers_count = rec->headers_capacity = 0;
}

void fq_rec_add_header(struct fq_rec *rec, const void *name, size_t name_length, const void *value,
                       size_t value_length)
{
    if (rec->headers_count == rec->headers_capacity) {
        rec->headers_capacity = rec->headers_capacity > 0 ? 2 * rec->headers_capacity : 8;
        rec->headers = fq_realloc_array(rec->headers, rec->headers_capacity, sizeof *rec->headers);
    }
    rec->headers[rec->headers_count++] = (flashq_header){
        .name = name_length > 0 ? name : "", /* an empty name's length is taken by strlen */
        .name_length = name_length,
        .value = value,
        .value_length = value_length};
}
