/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times, offsets, durations, sizes, rates, partitions and JSON records, all from the same text. A time
 * that is taken must survive being printed and read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_record.h"
#include "tools/parse_time.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW INT64_C(1764504000123)

static void times(const char *text)
{
    struct fq_fault fault;
    char printed[FQ_TIME_TEXT_BYTES];
    int64_t ms, again;
    if (fq_parse_time(text, NOW, &ms, &fault) == 0 && ms >= INT64_C(-62167219200000) &&
        ms <= INT64_C(253402300799999) &&
        (fq_parse_time(fq_time_text(ms, printed), NOW, &again, &fault) != 0 || again != ms)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct fq_fault fault;
    struct fq_offset_range range = {{FQ_OFFSET_NONE, 0}, {FQ_OFFSET_NONE, 0}};
    struct fq_offset_bound bound;
    int64_t number;
    uint64_t bytes;
    double rate;
    int32_t *partitions = NULL;
    size_t count;
    times(text);
    (void)fq_parse_offset(text, NOW, &range, &fault);
    (void)fq_parse_bound(text, NOW, &bound, &fault);
    (void)fq_parse_duration_ns(text, &number, &fault);
    (void)fq_parse_size(text, &bytes, &fault);
    (void)fq_parse_rate(text, &rate, &fault);
    (void)fq_parse_whole(text, "number", INT64_MIN, INT64_MAX, &number, &fault);
    if (fq_parse_partitions(text, &partitions, &count, &fault) == 0) {
        free(partitions);
    }
    struct fq_json_reader *reader = fq_json_reader_create();
    struct fq_rec rec = {0};
    (void)fq_json_read(reader, data, size, &rec, &fault);
    fq_rec_fini(&rec);
    fq_json_reader_destroy(reader);
    free(text);
    return 0;
}
