/* SPDX-License-Identifier: Apache-2.0 */
#include "partition_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Used by Criterion tests and by plain programs: a failure ends the process with words. */
#define EXPECT(condition, why) expect((condition), __LINE__, #condition, why)
#define META_CHECK(call)       EXPECT((call) == 0, "")

static void expect(bool is_so, int line, const char *condition, const char *why)
{
    if (!is_so) {
        (void)fprintf(stderr, "partition_env.c:%d: not so: %s %s\n", line, condition, why);
        abort();
    }
}

static int64_t host_wall_ms(void *context)
{
    struct env *env = context;
    return env->wall_ms;
}

static bool host_mark(void *context, struct fq_partition *partition,
                      const struct fq_calendar_mark *mark, int64_t complete_to)
{
    struct env *env = context;
    (void)partition;
    if (env->is_calendar_full) {
        return false;
    }
    EXPECT(env->partition == NULL || complete_to <= fq_partition_high_watermark(env->partition),
           "a mark above the watermark");
    META_CHECK(env->meta->ops->begin(env->meta));
    META_CHECK(fq_calendar_apply(env->meta, &env->key, mark, mark != NULL, complete_to, NULL));
    META_CHECK(env->meta->ops->commit(env->meta));
    env->calendar_complete_to = complete_to;
    env->marks_count += mark != NULL;
    return true;
}

static bool host_cut(void *context, struct fq_partition *partition, enum fq_calendar_cut cut,
                     int64_t offset)
{
    struct env *env = context;
    (void)partition;
    if (env->is_calendar_full) {
        return false;
    }
    META_CHECK(env->meta->ops->begin(env->meta));
    switch (cut) {
    case FQ_CALENDAR_TRIM: META_CHECK(fq_calendar_trim(env->meta, &env->key, offset, NULL)); break;
    case FQ_CALENDAR_TRUNCATE:
        META_CHECK(fq_calendar_truncate(env->meta, &env->key, offset, NULL));
        break;
    case FQ_CALENDAR_DROP: META_CHECK(fq_calendar_drop(env->meta, &env->key, NULL)); break;
    }
    META_CHECK(env->meta->ops->commit(env->meta));
    env->cuts_count++;
    return true;
}

static void start(struct env *env)
{
    struct fq_err err = {0};
    struct fq_store_params store = {
        .data_dir = env->dir,
        .flush = env->params.flush,
        .shards_count = 1,
        .segment_bytes_max = env->config.segment_bytes,
        .segment_bytes_first = env->params.segment_bytes_first,
        .prepared_bytes = env->config.segment_bytes,
        .batch_bytes_max = env->host.scratch_bytes,
        .persist = env->params.persist,
    };
    EXPECT(fq_store_open(&store, &env->store, &err) == 0, err.text);
    struct fq_calendar_state calendar;
    if (fq_calendar_get_state(env->meta, &env->key, &calendar) < 0) {
        calendar.complete_to = 0;
    }
    struct fq_partition_params params = {
        .store = env->store,
        .host = &env->host,
        .topic_id = env->key.topic_id,
        .topic = "orders",
        .index = env->key.partition,
        .config = env->config,
        .leader_epoch = env->leader_epoch,
        .view_line = env->view_line,
        .view_generation = 7,
        .snapshot = env->snapshot,
        .snapshot_bytes = env->snapshot_bytes,
        .calendar_complete_to = calendar.complete_to,
    };
    EXPECT(fq_partition_open(&params, &env->partition, &err) == 0, err.text);
}

void env_open(struct env *env, const struct env_params *params)
{
    memset(env, 0, sizeof *env);
    env->params = *params;
    const char *base = getenv("FLASHQ_TEST_DIR") != NULL ? getenv("FLASHQ_TEST_DIR") : "/dev/shm";
    (void)snprintf(env->dir, sizeof env->dir, "%s/fq-partition-XXXXXX", base);
    EXPECT(mkdtemp(env->dir) != NULL, "");
    env->wall_ms = 1700000000000;
    for (size_t i = 0; i < FQ_UUID_BYTES; i++) {
        env->key.topic_id.bytes[i] = (uint8_t)(i + 1);
    }
    env->key.partition = 3;
    env->config = (struct fq_partition_config){
        .segment_bytes = params->segment_bytes != 0 ? params->segment_bytes : 1u << 20,
        .retention_bytes = params->retention_bytes,
        .message_max_bytes = params->message_max_bytes != 0 ? params->message_max_bytes : 1u << 20,
        .timestamp_max_ahead_ms = 3600000,
        .producer_expiration_ms = 7 * INT64_C(86400000),
        .max_in_flight = params->max_in_flight != 0 ? params->max_in_flight : 5,
        .durability = params->durability,
    };
    size_t batch_max = params->batch_max_bytes != 0 ? params->batch_max_bytes : ENV_BATCH_MAX;
    env->host = (struct fq_partition_host){.scratch = malloc(batch_max),
                                           .scratch_bytes = batch_max,
                                           .wall_ms = host_wall_ms,
                                           .calendar_mark = host_mark,
                                           .calendar_cut = host_cut,
                                           .context = env};
    env->batch = calloc(1, 4u * ENV_BATCH_MAX);
    env->view_line = aligned_alloc(64, sizeof *env->view_line);
    EXPECT(env->host.scratch != NULL && env->batch != NULL && env->view_line != NULL, "");
    EXPECT(fq_meta_open_memory(&env->meta) >= 0, "");
    start(env);
}

static void remove_dir(const char *dir)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    EXPECT(system(command) == 0, "");
}

static void stop(struct env *env, bool clean)
{
    fq_partition_close(env->partition, clean);
    env->partition = NULL;
    if (env->store != NULL) {
        fq_store_close(env->store, clean);
        env->store = NULL;
    }
}

void env_close(struct env *env)
{
    stop(env, true);
    remove_dir(env->dir);
    env->meta->ops->close(env->meta);
    free(env->host.scratch);
    free(env->batch);
    free(env->view_line);
    free(env->snapshot);
}

void env_restart(struct env *env)
{
    env_commit(env);
    stop(env, true);
    start(env);
}

void env_crash(struct env *env)
{
    char copy[160], command[512];
    (void)snprintf(copy, sizeof copy, "%s-copy", env->dir);
    (void)snprintf(command, sizeof command, "cp -a '%s' '%s'", env->dir, copy);
    EXPECT(system(command) == 0, "");
    stop(env, false);
    remove_dir(env->dir);
    EXPECT(rename(copy, env->dir) == 0, "");
    start(env);
}

void env_take_snapshot(struct env *env)
{
    struct fq_err err = {0};
    env_drop_snapshot(env);
    size_t bytes = fq_partition_snapshot_bytes(env->partition);
    env->snapshot = malloc(bytes);
    EXPECT(fq_partition_snapshot_encode(env->partition, env->snapshot, bytes, &env->snapshot_bytes,
                                        &err) == 0,
           err.text);
    fq_partition_snapshot_taken(env->partition);
}

void env_drop_snapshot(struct env *env)
{
    free(env->snapshot);
    env->snapshot = NULL;
    env->snapshot_bytes = 0;
}

void env_lose_calendar(struct env *env)
{
    META_CHECK(env->meta->ops->begin(env->meta));
    META_CHECK(fq_calendar_drop(env->meta, &env->key, NULL));
    META_CHECK(env->meta->ops->commit(env->meta));
}

void env_step(struct env *env)
{
    while (fq_store_step(env->store, fq_mono_us()) + fq_store_flush_step(env->store) > 0) {
    }
}

int64_t env_commit(struct env *env)
{
    for (int round = 0; round < 100; round++) {
        (void)fq_partition_commit_round(env->partition);
        if (!fq_partition_needs_round(env->partition)) {
            break;
        }
        env_step(env);
    }
    return fq_partition_high_watermark(env->partition);
}

uint64_t env_batch(struct env *env, int64_t producer_id, int16_t epoch, int32_t sequence,
                   const struct env_record *records, size_t count)
{
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, env->batch, 4u * ENV_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        struct fq_record_in record = {
            .timestamp_ms = records[i].timestamp_ms,
            .value = {.data = records[i].value, .length = records[i].value_bytes}};
        EXPECT(fq_batch_builder_append(&builder, &record) == 0, "");
    }
    struct fq_batch_finish how = {
        .producer_id = producer_id, .producer_epoch = epoch, .base_sequence = sequence};
    int64_t bytes = fq_batch_builder_finish(&builder, &how);
    EXPECT(bytes > 0, "");
    return (uint64_t)bytes;
}

int env_append(struct env *env, uint64_t bytes, int64_t producer_id, int16_t epoch,
               struct fq_append_result *ret, struct fq_err *err)
{
    int rc = FQ_APPEND_STARVED;
    for (int attempt = 0; rc == FQ_APPEND_STARVED; attempt++) {
        EXPECT(attempt < 100, "starved for ever");
        rc = fq_partition_append(env->partition, env->batch, bytes, producer_id, epoch, ret, err);
        if (rc == FQ_APPEND_STARVED) {
            EXPECT(ret->bytes == 0, "");
            (void)fq_partition_commit_round(env->partition);
            env_step(env);
        }
    }
    return rc;
}

int64_t env_put(struct env *env, int64_t producer_id, int32_t sequence, int64_t timestamp_ms,
                const char *value)
{
    struct fq_append_result result;
    struct fq_err err = {0};
    struct env_record record = {timestamp_ms, value, strlen(value)};
    uint64_t bytes = env_batch(env, producer_id, 0, sequence, &record, 1);
    EXPECT(env_append(env, bytes, producer_id, 0, &result, &err) == 0, err.text);
    return result.base_offset;
}

void env_producer(struct env *env, int64_t producer_id)
{
    struct fq_producer_opened opened;
    struct fq_err err = {0};
    EXPECT(fq_partition_producer_open(env->partition, producer_id, 0, 0, &opened, &err) == 0,
           err.text);
}

struct fq_time_query_answer env_time_query(struct env *env, int64_t timestamp_ms,
                                           int64_t from_offset)
{
    struct fq_calendar_answer calendar;
    struct fq_time_query_answer answer;
    struct fq_err err = {0};
    META_CHECK(fq_calendar_query(env->meta, &env->key, timestamp_ms, &calendar));
    int rc = fq_partition_time_query(env->partition, timestamp_ms, from_offset, &calendar, &answer,
                                     &err);
    EXPECT(rc == 0, err.text);
    return answer;
}
