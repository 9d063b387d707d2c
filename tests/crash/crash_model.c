/* SPDX-License-Identifier: Apache-2.0 */
#include "crash_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_add(struct model *model, const uint8_t *bytes, size_t length, int64_t base, int64_t next)
{
    struct model_batch *batch = &model->batches[model->count++];
    *batch = (struct model_batch){base, next, malloc(length), length};
    if (!batch->bytes || model->count == MODEL_BATCHES_MAX) {
        abort();
    }
    memcpy(batch->bytes, bytes, length);
}

void model_cut(struct model *model, int64_t offset, bool is_done)
{
    int64_t cut = offset;
    for (size_t i = 0; i < model->count; i++) {
        if (model->batches[i].base <= offset && offset < model->batches[i].next) {
            cut = model->batches[i].base;
        }
    }
    model->acked_end = model->acked_end < cut ? model->acked_end : cut;
    while (is_done && model->count > 0 && model->batches[model->count - 1].base >= cut) {
        free(model->batches[--model->count].bytes);
    }
}

void model_fini(struct model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        free(model->batches[i].bytes);
    }
    model->count = 0;
}

struct scan {
    const struct model *model;
    size_t next;    /* index of the batch that must come */
    int64_t offset; /* its base */
    const char *wrong;
};

static int see(void *context, const struct fq_batch_header *header, const uint8_t *batch,
               uint64_t segment_base, uint64_t position)
{
    struct scan *scan = context;
    const struct model *model = scan->model;
    (void)segment_base;
    (void)position;
    while (scan->next < model->count && model->batches[scan->next].base < header->base_offset) {
        scan->next++;
    }
    const struct model_batch *expected = &model->batches[scan->next];
    if (scan->offset >= 0 && header->base_offset != scan->offset) {
        scan->wrong = "a batch is missing between others";
    } else if (scan->next == model->count || expected->base != header->base_offset) {
        scan->wrong = "a batch was invented";
    } else if (expected->length != fq_batch_total_bytes(header) ||
               memcmp(expected->bytes, batch, expected->length) != 0) {
        scan->wrong = "a batch has other bytes";
    }
    scan->offset = header->base_offset + header->last_offset_delta + 1;
    return scan->wrong ? 1 : 0;
}

static const char *compare(const struct model *model, struct fq_log *log)
{
    int64_t start = fq_log_start(log), end = fq_log_end(log);
    struct scan scan = {.model = model, .offset = -1};
    if (fq_log_damage_count(log) > 0) {
        return fq_log_damage_at(log, 0)->what;
    }
    if (end < model->acked_end) {
        return "acknowledged batches are missing at the end";
    }
    if (start < model->start_low || start > model->start_high) {
        return "the log start is wrong";
    }
    if (start == end) {
        return NULL;
    }
    if (fq_log_scan(log, start, end, see, &scan) != 0) {
        return scan.wrong ? scan.wrong : "the scan failed";
    }
    if (fq_log_damage_count(log) > 0) {
        return fq_log_damage_at(log, 0)->what;
    }
    if (scan.offset != end) {
        return "the end is not where the batches end";
    }
    struct fq_log_place place;
    return fq_log_find(log, start, &place) == 0 && place.base_offset <= start
               ? NULL
               : "the first batch is not found";
}

struct lookup {
    const struct fq_uuid *id;
    bool is_there;
};

static int look_up(void *context, const char *name, const struct fq_uuid *id,
                   uint32_t partitions_count)
{
    struct lookup *lookup = context;
    (void)name;
    (void)partitions_count;
    lookup->is_there |= memcmp(id, lookup->id, sizeof *id) == 0;
    return 0;
}

const char *model_check(const struct model *model, struct fq_store *store, int64_t *ret_start,
                        int64_t *ret_end)
{
    static char wrong[600];
    struct fq_err err;
    struct lookup lookup = {&model->topic_id, false};
    *ret_start = *ret_end = 0;
    if (model->may_be_gone || model->is_gone) {
        if (fq_store_visit_topics(store, look_up, &lookup, &err) != 0) {
            return "the topics cannot be listed";
        }
        if (!lookup.is_there || model->is_gone) {
            return lookup.is_there ? "a deleted topic is back" : NULL;
        }
    }
    const struct fq_log_params params = {
        .topic_id = model->topic_id, .topic = model->topic, .segment_bytes = 16u << 10};
    struct fq_log *log;
    if (fq_log_open(store, &params, NULL, NULL, &log, &err) < 0) {
        (void)snprintf(wrong, sizeof wrong, "opening: %s", err.text);
        return wrong;
    }
    const char *what = compare(model, log);
    if (what) {
        (void)snprintf(
            wrong, sizeof wrong, "%s: %s (start %lld in [%lld, %lld], end %lld, acked %lld)",
            model->topic, what, (long long)fq_log_start(log), (long long)model->start_low,
            (long long)model->start_high, (long long)fq_log_end(log), (long long)model->acked_end);
        what = wrong;
    }
    *ret_start = fq_log_start(log);
    *ret_end = fq_log_end(log);
    fq_log_close(log, false);
    return what;
}
