/* SPDX-License-Identifier: Apache-2.0 */
/* One writer per set, any number of readers; see counters.h. */
#include "session/counters.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/error.h"

static const char *const names[FQ_COUNT_NAMED] = {
#define FQ_COUNTER_NAME(symbol, name) [FQ_COUNT_##symbol] = name,
    FQ_COUNTER_LIST(FQ_COUNTER_NAME)
#undef FQ_COUNTER_NAME
};

static const int reasons[FQ_COUNT_REASONS - 1] = {
    FLASHQ_ERR_PROTOCOL,  FLASHQ_ERR_CORRUPT,         FLASHQ_ERR_TOO_LARGE,
    FLASHQ_ERR_TIMESTAMP, FLASHQ_ERR_SEQUENCE,        FLASHQ_ERR_SLOT_FAILED,
    FLASHQ_ERR_FENCED,    FLASHQ_ERR_OFFLINE,         FLASHQ_ERR_NO_SPACE,
    FLASHQ_ERR_IO,        FLASHQ_ERR_MAYBE_PERSISTED, FLASHQ_ERR_UNKNOWN_TOPIC_ID};

static void add(struct fq_counters *counters, size_t index, int64_t delta)
{
    _Atomic int64_t *value = &counters->values[index];
    atomic_store_explicit(value, atomic_load_explicit(value, memory_order_relaxed) + delta,
                          memory_order_relaxed);
}

void fq_count_add(struct fq_counters *counters, enum fq_counter_id id, int64_t delta)
{
    add(counters, (size_t)id, delta);
}

void fq_count_set(struct fq_counters *counters, enum fq_counter_id id, int64_t value)
{
    atomic_store_explicit(&counters->values[id], value, memory_order_relaxed);
}

void fq_count_refusal(struct fq_counters *counters, int code)
{
    size_t reason = 0;
    while (reason < FQ_COUNT_REASONS - 1 && reasons[reason] != code) {
        reason++;
    }
    add(counters, FQ_COUNT_APPEND_REFUSED, 1);
    add(counters, FQ_COUNT_NAMED + reason, 1);
}

int64_t fq_counters_get(const struct fq_counters *counters, size_t index)
{
    return atomic_load_explicit(&counters->values[index], memory_order_relaxed);
}

const char *fq_counter_name(size_t index, char *buffer, size_t bytes)
{
    if (index < FQ_COUNT_NAMED) {
        (void)snprintf(buffer, bytes, "%s", names[index]);
        return buffer;
    }
    size_t reason = index - FQ_COUNT_NAMED;
    int used = snprintf(buffer, bytes, "append.refused.%s",
                        reason < FQ_COUNT_REASONS - 1 ? fq_err_name(reasons[reason]) : "other");
    for (int i = 0; i < used && (size_t)i + 1 < bytes; i++) {
        buffer[i] = (char)tolower((unsigned char)buffer[i]);
    }
    return buffer;
}
