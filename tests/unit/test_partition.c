/* SPDX-License-Identifier: Apache-2.0 */
/* A partition's life: segments, view, restart, recovery of what is derived, offline, removal. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "partition_env.h"

#define PRODUCER INT64_C(42)

static struct fq_segment_open_answer must_open(struct env *env, int64_t offset,
                                               struct fq_segment **ret_segment)
{
    struct fq_segment_open_answer answer;
    struct fq_err err = {0};
    int rc = fq_partition_segment_open(env->partition, offset, ret_segment, &answer, &err);
    cr_assert_eq(rc, 0, "offset %lld: %s", (long long)offset, err.text);
    return answer;
}

static void check_view(const struct env *env)
{
    struct fq_view view = *env->view_line;
    cr_assert_eq(view.crc, fq_crc32c(0, &view, 60));
    cr_assert_eq(view.generation, 7);
    cr_assert_eq(view.high_watermark, fq_partition_high_watermark(env->partition));
    cr_assert_eq(view.log_start, fq_partition_log_start(env->partition));
}

/* One record of `bytes` per batch, at sequence = offset, so that few fill a segment. */
static void put_big(struct env *env, int64_t from, int64_t to, size_t bytes)
{
    char *value = malloc(bytes + 1);
    memset(value, 'v', bytes);
    value[bytes] = '\0';
    for (int64_t i = from; i < to; i++) {
        cr_assert_eq(env_put(env, PRODUCER, (int32_t)i, env->wall_ms + i, value), i);
        (void)fq_partition_commit_round(env->partition);
        (void)fq_partition_off_path_step(env->partition);
    }
    free(value);
    cr_assert_eq(env_commit(env), to);
}

/* Calls `what` for each file of the partition whose name ends in `suffix`; returns how many. */
static int each_file(const struct env *env, const char *suffix, void (*what)(const char *path))
{
    char command[256], path[1024];
    int count = 0;
    (void)snprintf(command, sizeof command, "find %s -name '*%s' | sort", env->dir, suffix);
    FILE *found = popen(command, "r");
    cr_assert_not_null(found);
    while (fgets(path, sizeof path, found) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        if (what != NULL) {
            what(path);
        }
        count++;
    }
    (void)pclose(found);
    return count;
}

Test(partition, before_the_first_append_there_is_no_segment_but_a_position)
{
    struct env env;
    struct fq_segment *segment;
    struct fq_err err = {0};
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    struct fq_segment_open_answer answer = must_open(&env, 0, &segment);
    cr_assert_null(segment);
    cr_assert_eq(answer.segment_id, 0);
    cr_assert_eq(answer.next_base_offset, -1);
    cr_assert_eq(answer.position_offset, 0);
    cr_assert_eq(fq_partition_segment_open(env.partition, 1, &segment, &answer, &err),
                 FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_not_null(strstr(err.text, "holds 0 to 0"), "%s", err.text);
    check_view(&env);
    cr_assert_eq(env.view_line->segment_id, 0);
    cr_assert_eq(env.view_line->version, 1);
    struct fq_time_query_answer end = env_time_query(&env, 0, 0);
    cr_assert_eq(end.result, FQ_TIME_END);
    cr_assert_eq(end.offset, 0);
    env_close(&env);
}

/* case 1 */
Test(partition, times_2_4_6_8_are_found_by_3_5_7_9)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    for (int32_t i = 0; i < 4; i++) {
        cr_assert_eq(env_put(&env, PRODUCER, i, 2 * (i + 1), "x"), i);
    }
    cr_assert_eq(env_time_query(&env, 0, 0).result, FQ_TIME_END, "nothing is committed yet");
    cr_assert_eq(env_commit(&env), 4);
    struct {
        int64_t at, offset;
    } asked[] = {{3, 1}, {5, 2}, {7, 3}, {2, 0}, {4, 1}, {8, 3}, {0, 0}, {-1, 0}, {INT64_MIN, 0}};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct fq_time_query_answer answer = env_time_query(&env, asked[i].at, 0);
        cr_assert_eq(answer.result, FQ_TIME_FOUND);
        cr_assert_eq(answer.offset, asked[i].offset, "time %lld", (long long)asked[i].at);
    }
    cr_assert_eq(env_time_query(&env, 9, 0).result, FQ_TIME_END);
    cr_assert_eq(env_time_query(&env, 9, 0).offset, 4);
    cr_assert_eq(env_time_query(&env, INT64_MAX, 0).result, FQ_TIME_END);
    env_close(&env);
}

Test(partition, nobody_sees_what_is_not_durable)
{
    struct env env;
    struct fq_segment *segment;
    struct fq_segment_open_answer answer;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_SYNC});
    env_producer(&env, PRODUCER);
    cr_assert_eq(env_put(&env, PRODUCER, 0, env.wall_ms, "first"), 0);
    cr_assert_eq(env_commit(&env), 1);
    uint64_t position = env.view_line->committed_position;
    cr_assert_gt(position, 61);

    cr_assert_eq(env_put(&env, PRODUCER, 1, env.wall_ms, "second"), 1);
    cr_assert_eq(fq_partition_commit_round(env.partition), 1, "the flusher has not run");
    cr_assert(fq_partition_needs_round(env.partition));
    cr_assert_eq(env.view_line->committed_position, position);
    cr_assert_eq(must_open(&env, 1, &segment).data_bytes, position);
    cr_assert_eq(fq_partition_segment_open(env.partition, 2, &segment, &answer, NULL),
                 FLASHQ_ERR_OUT_OF_RANGE);
    cr_assert_eq(env_time_query(&env, env.wall_ms, 1).result, FQ_TIME_END);
    struct fq_err err = {0};
    char out[4096];
    size_t length;
    cr_assert_eq(fq_partition_snapshot_encode(env.partition, out, sizeof out, &length, &err),
                 FLASHQ_ERR_AGAIN);
    env_step(&env);
    cr_assert_eq(fq_partition_commit_round(env.partition), 2);
    cr_assert_not(fq_partition_needs_round(env.partition));
    cr_assert_gt(env.view_line->committed_position, position);
    cr_assert_eq(env_time_query(&env, env.wall_ms, 1).offset, 1);
    check_view(&env);
    env_close(&env);
}

Test(partition, memory_durability_commits_without_waiting_for_the_disk)
{
    struct env env;
    env_open(&env,
             &(struct env_params){.flush = FQ_FLUSH_SYNC, .durability = FQ_DURABILITY_MEMORY});
    env_producer(&env, PRODUCER);
    cr_assert_eq(env_put(&env, PRODUCER, 0, env.wall_ms, "x"), 0);
    cr_assert_eq(fq_partition_commit_round(env.partition), 1);
    cr_assert_not(fq_partition_needs_round(env.partition));
    env_restart(&env);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 1);
    env_close(&env);
}

/* case 16 */
Test(partition, a_reader_at_the_seam_goes_on_in_the_next_segment)
{
    struct env env;
    struct fq_segment *segment, *other;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 7, 300000); /* three in each of 1 MiB */
    struct fq_segment_open_answer first = must_open(&env, 0, &segment);
    cr_assert(first.is_sealed);
    int64_t seam = first.next_base_offset;
    cr_assert_eq(seam, 3);
    cr_assert_eq(first.position, 0);
    struct fq_segment_open_answer last_of_first = must_open(&env, seam - 1, &other);
    cr_assert_eq(last_of_first.segment_id, first.segment_id);
    cr_assert_eq(last_of_first.position_offset, 2);
    struct fq_segment_open_answer second = must_open(&env, seam, &other);
    cr_assert_neq(second.segment_id, first.segment_id);
    cr_assert_eq(second.base_offset, seam);
    cr_assert_eq(second.position, 0);
    struct fq_segment_open_answer open = must_open(&env, 7, &other);
    cr_assert_not(open.is_sealed);
    cr_assert_eq(open.base_offset, 6);
    cr_assert_eq(open.position, open.data_bytes);
    cr_assert_eq(open.next_base_offset, -1);
    cr_assert_eq(env.view_line->segment_id, open.segment_id);
    cr_assert_eq(env.view_line->segment_base_offset, 6);
    cr_assert_eq(env.view_line->committed_position, open.data_bytes);

    /* Exactly at the end of the open one while it fills up, until the answer moves on. */
    int64_t at = 7;
    uint64_t id = open.segment_id;
    while (must_open(&env, at, &other).segment_id == id) {
        put_big(&env, at, at + 1, 300000);
        cr_assert_eq(must_open(&env, at, &other).position_offset, at);
        cr_assert_eq(env.view_line->segment_id,
                     fq_segment_id(fq_log_segment_last(fq_partition_log(env.partition))));
        at++;
        cr_assert_lt(at, 20);
    }
    struct fq_segment_open_answer moved = must_open(&env, at - 1, &other);
    cr_assert_eq(moved.position_offset, at - 1);
    env_close(&env);
}

/* cases 10 and 17 */
Test(partition, a_reader_across_a_restart_sees_no_gap_and_wakes_up)
{
    struct env env;
    struct fq_segment *segment;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    int64_t next = 0;
    for (int life = 0; life < 6; life++) {
        int64_t reader = next; /* caught up, armed at the end */
        put_big(&env, next, next + 2, 200000);
        next += 2;
        cr_assert_gt(env.view_line->high_watermark, reader, "what a waiting reader is woken for");
        for (int64_t at = reader; at < next; at++) {
            struct fq_segment_open_answer answer = must_open(&env, at, &segment);
            cr_assert_eq(answer.position_offset, at);
            cr_assert_eq((int64_t)fq_load_be64(fq_segment_data(segment) + answer.position), at);
        }
        if (life % 2 == 0) {
            env_restart(&env);
        } else {
            env_crash(&env);
        }
        cr_assert_eq(fq_partition_high_watermark(env.partition), next);
        check_view(&env);
        cr_assert_eq(must_open(&env, next, &segment).position_offset, next);
        struct fq_producer_opened opened;
        cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 0, 0, &opened, NULL), 0);
        cr_assert_eq(opened.last_sequence, next - 1);
        cr_assert_eq(opened.last_offset, next - 1);
    }
    env_close(&env);
}

/* case 27, with the broker's death between write and acknowledgement */
Test(partition, a_resend_after_a_crash_is_answered_with_the_original_offset)
{
    struct env env;
    struct fq_producer_opened opened;
    struct fq_append_result result;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    for (int32_t i = 0; i < 9; i++) {
        cr_assert_eq(env_put(&env, PRODUCER, i, env.wall_ms, "x"), i);
    }
    env_commit(&env);
    env_crash(&env);
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 1, 0, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, 8);
    for (int32_t i = 4; i < 9; i++) {
        uint64_t bytes =
            env_batch(&env, PRODUCER, 1, i, &(struct env_record){env.wall_ms, "x", 1}, 1);
        cr_assert_eq(env_append(&env, bytes, PRODUCER, 1, &result, NULL), 0);
        cr_assert(result.duplicate);
        cr_assert_eq(result.base_offset, i);
        cr_assert_leq(result.end_offset, fq_partition_high_watermark(env.partition));
    }
    cr_assert_eq(fq_partition_high_watermark(env.partition), 9);
    env_close(&env);
}

/* ---- what is derived ------------------------------------------------------------------------- */

static void flip_a_bit(const char *path)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;
    cr_assert_eq(pread(fd, &byte, 1, 70), 1);
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, 70), 1);
    (void)close(fd);
}

static void remove_file(const char *path)
{
    cr_assert_eq(unlink(path), 0);
}

static struct fq_partition_stats stats_of(const struct env *env)
{
    struct fq_partition_stats stats;
    fq_partition_get_stats(env->partition, &stats);
    return stats;
}

static void work_off(struct env *env)
{
    while (fq_partition_off_path_step(env->partition) > 0) {
    }
    env_step(env);
}

static void check_times(struct env *env, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        struct fq_time_query_answer answer = env_time_query(env, 1700000000000 + i, 0);
        cr_assert_eq(answer.result, FQ_TIME_FOUND);
        cr_assert_eq(answer.offset, i);
    }
}

Test(partition, indexes_are_written_off_the_path_and_rebuilt_when_lost)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 13, 300000); /* 4 sealed, 1 open */
    work_off(&env);
    cr_assert_not(fq_partition_wants_off_path(env.partition));
    cr_assert_eq(stats_of(&env).indexes_written, 4);
    env_take_snapshot(&env);
    env_restart(&env);
    cr_assert_eq(each_file(&env, ".index", NULL), 4);
    cr_assert_eq(stats_of(&env).indexes_rebuilt, 0);
    cr_assert_lt(stats_of(&env).scanned_bytes, 1u << 20, "the open segment alone was read");
    check_times(&env, 0, 13);

    each_file(&env, ".index", flip_a_bit);
    env_restart(&env);
    cr_assert_eq(stats_of(&env).indexes_rebuilt, 4);
    check_times(&env, 0, 13);
    work_off(&env);
    each_file(&env, ".index", remove_file);
    env_restart(&env);
    cr_assert_eq(stats_of(&env).indexes_rebuilt, 4);
    check_times(&env, 0, 13);
    work_off(&env);
    env_restart(&env);
    cr_assert_eq(stats_of(&env).indexes_rebuilt, 0, "they were written again");
    env_close(&env);
}

Test(partition, the_snapshot_saves_reading_the_log)
{
    struct env env;
    struct fq_producer_opened opened;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 13, 300000);
    work_off(&env);
    cr_assert_gt(fq_partition_snapshot_lag(env.partition), 13 * 300000);
    env_take_snapshot(&env);
    cr_assert_eq(fq_partition_snapshot_lag(env.partition), 0);
    env_restart(&env);
    uint64_t with = stats_of(&env).scanned_bytes;
    cr_assert_eq(fq_partition_snapshot_lag(env.partition), 0);
    env_drop_snapshot(&env);
    env_restart(&env);
    uint64_t without = stats_of(&env).scanned_bytes;
    cr_assert_gt(fq_partition_snapshot_lag(env.partition), 13 * 300000, "worth taking again");
    cr_assert_lt(with, 600000);
    cr_assert_gt(without, 13 * 300000);
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 0, 0, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, 12);
    env_close(&env);
}

Test(partition, a_snapshot_that_the_log_does_not_reach_is_not_believed)
{
    struct env env;
    struct fq_producer_opened opened;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 10, 1000);
    env_take_snapshot(&env);
    cr_assert_eq(fq_partition_truncate(env.partition, 6, NULL), 0);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 6);
    env_restart(&env);
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 0, 0, &opened, NULL), 0);
    cr_assert_eq(opened.last_sequence, 5);
    cr_assert_eq(env_put(&env, PRODUCER, 6, env.wall_ms, "again"), 6);
    env_close(&env);
}

Test(partition, a_full_calendar_ring_loses_no_mark)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    env.is_calendar_full = true;
    for (int32_t i = 0; i < 50; i++) {
        cr_assert_eq(env_put(&env, PRODUCER, i, 1000 * i, "x"), i);
        env_commit(&env);
    }
    put_big(&env, 50, 51, 250000); /* a chunk of its own: the one before it is closed */
    cr_assert_eq(env.marks_count, 0);
    (void)fq_partition_off_path_step(env.partition);
    cr_assert(fq_partition_wants_off_path(env.partition));
    cr_assert_eq(fq_partition_off_path_step(env.partition), 0, "nothing can be done now");
    env.is_calendar_full = false;
    work_off(&env);
    cr_assert_gt(env.marks_count, 0);
    cr_assert_eq(env.marks_count, 1, "one closed chunk, one mark");
    for (int64_t i = 0; i < 50; i++) {
        cr_assert_eq(env_time_query(&env, 1000 * i, 0).offset, i);
    }
    env_close(&env);
}

Test(partition, a_lost_calendar_is_fed_again_and_one_that_is_ahead_is_cut)
{
    struct env env;
    struct fq_calendar_state state;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 9, 250000);
    work_off(&env);
    uint64_t marks = env.marks_count;
    cr_assert_gt(marks, 0);
    env_lose_calendar(&env);
    cr_assert_eq(fq_calendar_get_state(env.meta, &env.key, &state), FLASHQ_ERR_NOT_FOUND);
    env_restart(&env);
    work_off(&env);
    cr_assert_eq(fq_calendar_get_state(env.meta, &env.key, &state), 0);
    cr_assert_eq(env.marks_count, 2 * marks, "the same again");

    cr_assert_eq(env.meta->ops->begin(env.meta), 0); /* as if the log had lost its last records */
    cr_assert_eq(fq_calendar_apply(env.meta, &env.key, &(struct fq_calendar_mark){1800000000, 11},
                                   1, 20, NULL),
                 0);
    cr_assert_eq(env.meta->ops->commit(env.meta), 0);
    uint64_t cuts = env.cuts_count;
    env_restart(&env);
    work_off(&env);
    cr_assert_eq(env.cuts_count, cuts + 1);
    cr_assert_eq(fq_calendar_get_state(env.meta, &env.key, &state), 0);
    cr_assert_leq(state.complete_to, 9);
    check_times(&env, 0, 9);
    env_close(&env);
}

/* ---- removal --------------------------------------------------------------------------------- */

Test(partition, trimming_moves_the_start_and_keeps_the_rest)
{
    struct env env;
    struct fq_segment *segment;
    struct fq_segment_open_answer answer;
    struct fq_err err = {0};
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 10, 300000);
    cr_assert_eq(fq_partition_trim(env.partition, 5, &err), 0, "%s", err.text);
    check_view(&env);
    cr_assert_eq(fq_partition_log_start(env.partition), 5);
    cr_assert_eq(fq_partition_segment_open(env.partition, 4, &segment, &answer, &err),
                 FLASHQ_ERR_TRIMMED);
    cr_assert_not_null(strstr(err.text, "holds 5 to 10"), "%s", err.text);
    cr_assert_eq(must_open(&env, 5, &segment).position_offset, 5);
    cr_assert_eq(env_time_query(&env, 0, 0).offset, 5, "a time before the start is the start");
    check_times(&env, 5, 10);
    env_restart(&env);
    cr_assert_eq(fq_partition_log_start(env.partition), 5);
    check_times(&env, 5, 10);
    cr_assert_eq(fq_partition_trim(env.partition, -1, &err), 0, "to the high watermark");
    cr_assert_eq(fq_partition_log_start(env.partition), 10);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 10);
    cr_assert_eq(must_open(&env, 10, &segment).position_offset, 10);
    cr_assert_eq(env_time_query(&env, 0, 0).result, FQ_TIME_END);
    struct fq_producer_opened opened;
    cr_assert_eq(fq_partition_producer_open(env.partition, PRODUCER, 0, 10, &opened, NULL), 0);
    put_big(&env, 10, 12, 300000);
    check_times(&env, 10, 12);
    env_close(&env);
}

Test(partition, retention_by_size_removes_whole_segments_from_everywhere)
{
    struct env env;
    struct fq_segment *segment;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM, .retention_bytes = 2000000});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 20, 300000);
    cr_assert_gt(fq_partition_apply_retention(env.partition), 0);
    int64_t start = fq_partition_log_start(env.partition);
    cr_assert_gt(start, 3);
    cr_assert_lt(start, 20);
    check_view(&env);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 20);
    cr_assert_eq(must_open(&env, start, &segment).position, 0);
    check_times(&env, start, 20);
    env_restart(&env);
    cr_assert_eq(fq_partition_log_start(env.partition), start);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 20);
    env_close(&env);
}

Test(partition, an_index_from_before_a_truncation_is_not_believed)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 4, 300000); /* 0 to 2 sealed */
    work_off(&env);
    cr_assert_eq(each_file(&env, ".index", NULL), 1);
    cr_assert_eq(fq_partition_truncate(env.partition, 1, NULL), 0);
    env.wall_ms += 1000000; /* the same sizes again, at later times */
    char *value = calloc(1, 300001);
    memset(value, 'v', 300000);
    for (int32_t i = 1; i < 4; i++) {
        cr_assert_eq(env_put(&env, PRODUCER, i, env.wall_ms + i, value), i);
    }
    free(value);
    cr_assert_eq(env_commit(&env), 4);
    env_lose_calendar(&env);
    env_crash(&env); /* nobody wrote the new index */
    for (int64_t i = 1; i < 4; i++) {
        cr_assert_eq(env_time_query(&env, 1700001000000 + i, 0).offset, i);
    }
    env_close(&env);
}

static void damage_at_4200(const char *path)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;
    off_t at = FQ_LIMIT_SEGMENT_HEADER_BYTES + 104; /* in the value of the first record */
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

/* case 20, as a reader meets it */
Test(partition, a_damaged_record_is_named_and_the_rest_is_served)
{
    struct env env;
    struct fq_segment *segment;
    struct fq_segment_open_answer answer;
    struct fq_err err = {0};
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, PRODUCER);
    put_big(&env, 0, 7, 300000);
    env_restart(&env);
    char pattern[64];
    (void)snprintf(pattern, sizeof pattern, "%020lld.log", 3LL);
    cr_assert_eq(each_file(&env, pattern, damage_at_4200), 1);
    env_restart(&env);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 7);
    cr_assert_eq(fq_partition_segment_open(env.partition, 3, &segment, &answer, &err),
                 FLASHQ_ERR_CORRUPT);
    cr_assert_eq(answer.position_offset, 4);
    cr_assert_not_null(strstr(err.text, "next readable offset is 4"), "%s", err.text);
    for (int64_t at = 0; at < 7; at++) {
        if (at != 3) {
            cr_assert_eq(must_open(&env, at, &segment).position_offset, at);
        }
    }
    env_close(&env);
}

/* A batch that no append would take, with a checksum that fits: bytes from a disk are never trusted
 * with the life of the broker. */
Test(partition, a_batch_whose_timestamps_contradict_each_other_does_not_stop_the_start)
{
    struct env env;
    struct fq_log_place place;
    struct fq_batch_header header;
    struct fq_err err = {0};
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    const struct env_record record = {.timestamp_ms = 1000, .value = "x", .value_bytes = 1};
    uint64_t bytes = env_batch(&env, -1, -1, -1, &record, 1);
    fq_store_be64(env.batch + FQ_BATCH_BASE_TIMESTAMP, 2000);
    fq_batch_crc_store(env.batch, bytes);
    fq_batch_stamp(env.batch, 0, fq_partition_leader_epoch(env.partition));
    cr_assert_eq(fq_batch_header_read(env.batch, bytes, &header, NULL), 0);
    struct fq_log *log = fq_partition_log(env.partition);
    int rc = fq_log_reserve(log, bytes, 0, &err);
    for (int i = 0; rc == FQ_RESERVE_STARVED && i < 100; i++) {
        env_step(&env);
        rc = fq_log_reserve(log, bytes, 0, &err);
    }
    cr_assert_eq(rc, FQ_RESERVE_OK);
    cr_assert_eq(fq_log_write(log, env.batch, bytes), 0);
    cr_assert_eq(fq_log_commit_batch(log, &header, &place), 0);
    cr_assert_eq(env_commit(&env), 1);
    env_crash(&env);
    cr_assert_eq(fq_partition_high_watermark(env.partition), 1);
    env_producer(&env, PRODUCER);
    cr_assert_eq(env_put(&env, PRODUCER, 0, 3000, "y"), 1);
    cr_assert_eq(env_commit(&env), 2);
    struct fq_time_query_answer answer = env_time_query(&env, 2500, 0);
    cr_assert_eq(answer.result, FQ_TIME_FOUND);
    cr_assert_eq(answer.offset, 1);
    env_close(&env);
}

Test(partition, closing_and_deleting_are_the_last_words_on_the_view_line)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    fq_partition_close(env.partition, true);
    env.partition = NULL;
    cr_assert_eq(env.view_line->state, (uint32_t)-FLASHQ_ERR_SHUTTING_DOWN);
    cr_assert_eq(env.view_line->crc, fq_crc32c(0, env.view_line, 60));
    env_close(&env);
    struct env fresh;
    env_open(&fresh, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&fresh, PRODUCER);
    put_big(&fresh, 0, 4, 300000);
    fq_partition_close_deleted(fresh.partition);
    fresh.partition = NULL;
    cr_assert_eq(fresh.view_line->state, (uint32_t)-FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(fresh.view_line->crc, fq_crc32c(0, fresh.view_line, 60));
    env_close(&fresh);
}

Test(partition, producers_that_are_closed_and_unused_expire)
{
    struct env env;
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM});
    env_producer(&env, 1);
    env_producer(&env, 2);
    fq_partition_producer_close(env.partition, 2);
    env.wall_ms += 7 * INT64_C(86400000);
    cr_assert_not(fq_partition_wants_off_path(env.partition) &&
                  fq_partition_off_path_step(env.partition) > 1);
    cr_assert_eq(fq_partition_producers_count(env.partition), 2);
    env.wall_ms += 1;
    cr_assert(fq_partition_wants_off_path(env.partition));
    cr_assert_gt(fq_partition_off_path_step(env.partition), 0);
    cr_assert_eq(fq_partition_producers_count(env.partition), 1, "2 is gone, 1 is open");
    env_close(&env);
}
