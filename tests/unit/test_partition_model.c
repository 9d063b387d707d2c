/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition beside a model of it: random producers, duplicates, gaps, refusals, rounds, trims,
 * truncations, clean restarts, crashes, lost calendars and snapshots; after each the partition says
 * what the model says, by offset, by producer and by time. A failure prints its seed;
 * FLASHQ_TEST_SEED replays it.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "partition_env.h"

enum { PRODUCERS = 4, WINDOW = 5, RECORDS_MAX = 60000 };

struct sent {
    int64_t base_offset;
    int32_t sequence, count;
    int64_t first_timestamp;
    uint64_t seed; /* of its content */
};

struct producer {
    int64_t id;
    int16_t epoch;
    int32_t next;
    struct sent window[WINDOW]; /* what the partition must remember, oldest first */
    int window_count;
};

struct record {
    int64_t timestamp_ms;
    uint32_t tag; /* the first four bytes of its value */
    int64_t batch_base;
    bool is_compressed;
};

struct model {
    struct env env;
    struct fq_prng prng;
    uint64_t seed;
    struct producer producers[PRODUCERS];
    struct producer at_snapshot[PRODUCERS]; /* as the last snapshot has them */
    struct sent *history;                   /* every batch stored, by offset; */
    int *history_producer;                  /* whose */
    int history_count;
    struct record *records; /* by offset */
    int64_t start, end, committed;
    int64_t snapshot_offset; /* -1: none */
    int step;
};

#define CHECK(m, condition)                                                                        \
    cr_assert(condition, "seed %" PRIu64 " step %d: %s", (m)->seed, (m)->step, #condition)

static uint64_t below(struct model *m, uint64_t bound)
{
    return fq_prng_below(&m->prng, bound);
}

/* ---- sending --------------------------------------------------------------------------------- */

static int64_t some_timestamp(struct model *m)
{
    switch (below(m, 8)) {
    case 0: return (int64_t)below(m, (uint64_t)m->env.wall_ms); /* any time since 1970 */
    case 1: return m->env.wall_ms + (int64_t)below(m, 3600000); /* ahead, as far as is allowed */
    default: return m->env.wall_ms - (int64_t)below(m, 5000);
    }
}

/* The batch that `sent` describes, the same each time, in env.batch. */
static uint64_t make(struct model *m, const struct producer *p, const struct sent *sent,
                     struct record *ret_records)
{
    struct fq_prng content;
    fq_prng_seed(&content, sent->seed);
    static uint8_t values[300000];
    struct env_record records[32];
    bool is_compressed = fq_prng_below(&content, 4) == 0;
    uint64_t size = fq_prng_below(&content, 12) == 0 ? 9000 : 600;
    for (int32_t i = 0; i < sent->count; i++) {
        uint32_t tag = (uint32_t)fq_prng_next(&content);
        uint8_t *value = values + (size_t)i * 9000;
        size_t bytes = 4 + (size_t)fq_prng_below(&content, size);
        memset(value, (int)(tag & 0xff), bytes);
        memcpy(value, &tag, sizeof tag);
        int64_t jitter = i == 0 ? 0 : (int64_t)fq_prng_below(&content, 2000) - 1000;
        int64_t timestamp = sent->first_timestamp + jitter;
        timestamp = timestamp < 0 ? 0 : timestamp;
        timestamp = timestamp > sent->first_timestamp + 999 ? sent->first_timestamp : timestamp;
        records[i] = (struct env_record){timestamp, value, bytes};
        ret_records[i] =
            (struct record){.timestamp_ms = timestamp, .tag = tag, .is_compressed = is_compressed};
    }
    uint64_t bytes =
        env_batch(&m->env, p->id, p->epoch, sent->sequence, records, (size_t)sent->count);
    if (is_compressed) {
        static uint8_t out[400000];
        int64_t small =
            fq_batch_compress(NULL, m->env.batch, bytes, FQ_CODEC_LZ4, 0, out, sizeof out);
        for (int32_t i = 0; i < sent->count; i++) {
            ret_records[i].is_compressed = small > 0;
        }
        if (small > 0) {
            memcpy(m->env.batch, out, (size_t)small);
            bytes = (uint64_t)small;
        }
    }
    return bytes;
}

static void remember(struct producer *p, const struct sent *sent)
{
    if (p->window_count == WINDOW) {
        memmove(p->window, p->window + 1, (WINDOW - 1) * sizeof p->window[0]);
        p->window_count--;
    }
    p->window[p->window_count++] = *sent;
}

static void send_next(struct model *m, struct producer *p)
{
    struct record records[32];
    struct sent sent = {.sequence = p->next,
                        .count = 1 + (int32_t)below(m, 20),
                        .first_timestamp = some_timestamp(m),
                        .seed = fq_prng_next(&m->prng)};
    if (sent.first_timestamp > m->env.wall_ms + 3599000) {
        sent.first_timestamp = m->env.wall_ms;
    }
    if (m->end + sent.count > RECORDS_MAX) {
        return;
    }
    uint64_t bytes = make(m, p, &sent, records);
    struct fq_append_result result;
    struct fq_err err = {0};
    int rc = env_append(&m->env, bytes, p->id, p->epoch, &result, &err);
    cr_assert_eq(rc, 0, "seed %" PRIu64 " step %d: %s", m->seed, m->step, err.text);
    CHECK(m, !result.duplicate && result.base_offset == m->end);
    CHECK(m, result.end_offset == m->end + sent.count && result.bytes == bytes);
    sent.base_offset = m->end;
    for (int32_t i = 0; i < sent.count; i++) {
        records[i].batch_base = m->end;
        m->records[m->end + i] = records[i];
    }
    m->end += sent.count;
    m->history[m->history_count] = sent;
    m->history_producer[m->history_count++] = (int)(p - m->producers);
    p->next = (int32_t)(((int64_t)p->next + sent.count) & INT32_MAX);
    remember(p, &sent);
}

static void send_again(struct model *m, struct producer *p)
{
    if (p->window_count == 0) {
        return;
    }
    struct record records[32];
    const struct sent *sent = &p->window[below(m, (uint64_t)p->window_count)];
    uint64_t bytes = make(m, p, sent, records);
    struct fq_append_result result;
    struct fq_err err = {0};
    int rc = env_append(&m->env, bytes, p->id, p->epoch, &result, &err);
    cr_assert_eq(rc, 0, "seed %" PRIu64 " step %d: %s", m->seed, m->step, err.text);
    CHECK(m, result.duplicate && result.base_offset == sent->base_offset);
    CHECK(m, result.end_offset == sent->base_offset + sent->count);
}

static void send_wrong(struct model *m, struct producer *p)
{
    struct record records[32];
    struct sent sent = {.sequence = p->next,
                        .count = 2,
                        .first_timestamp = m->env.wall_ms,
                        .seed = fq_prng_next(&m->prng)};
    int expected = FLASHQ_ERR_SEQUENCE;
    uint64_t kind = below(m, 4);
    if (kind == 0) {
        sent.sequence = (int32_t)(((int64_t)p->next + 1 + (int64_t)below(m, 1000)) & INT32_MAX);
    } else if (kind == 1) { /* older than what is remembered */
        if (p->window_count < WINDOW || p->window[0].sequence < 2) {
            return;
        }
        sent.sequence = p->window[0].sequence - 2;
    } else if (kind == 2) {
        sent.first_timestamp = m->env.wall_ms + 3600001;
        expected = FLASHQ_ERR_TIMESTAMP;
    }
    uint64_t bytes = make(m, p, &sent, records);
    if (kind == 3) {
        m->env.batch[bytes - 1 - below(m, bytes - 21)] ^= 0x10;
        expected = FLASHQ_ERR_CORRUPT;
    }
    struct fq_append_result result;
    struct fq_err err = {0};
    int rc = env_append(&m->env, bytes, p->id, p->epoch, &result, &err);
    if (kind == 3 && rc < 0 && rc != expected) {
        expected = rc; /* it hit a header field that is looked at before the checksum */
    }
    cr_assert_eq(rc, expected, "seed %" PRIu64 " step %d: %d %s", m->seed, m->step, rc, err.text);
    CHECK(m, expected != FLASHQ_ERR_SEQUENCE || result.detail == p->next);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void check_state(struct model *m)
{
    struct fq_partition *p = m->env.partition;
    CHECK(m, fq_log_end(fq_partition_log(p)) == m->end);
    CHECK(m, fq_partition_log_start(p) == m->start);
    CHECK(m, fq_partition_high_watermark(p) == m->committed);
    const struct fq_view *view = m->env.view_line;
    CHECK(m, view->high_watermark == m->committed && view->log_start == m->start);
    CHECK(m, view->generation == 7 && view->state == 0);
}

static void commit(struct model *m)
{
    m->committed = env_commit(&m->env);
    CHECK(m, m->committed == m->end);
    check_state(m);
}

/* Reads as a client would after a seek to `from`: open the segment, take its bytes, follow to the
 * next; nothing from before, no gap, nothing twice. (case 15) */
static void read_all(struct model *m, int64_t from)
{
    struct fq_partition *p = m->env.partition;
    struct fq_batch_scratch scratch = {0};
    int64_t at = from;
    while (at < m->committed) {
        struct fq_segment *segment;
        struct fq_segment_open_answer answer;
        struct fq_err err = {0};
        int rc = fq_partition_segment_open(p, at, &segment, &answer, &err);
        cr_assert_eq(rc, 0, "seed %" PRIu64 " step %d offset %" PRId64 ": %s", m->seed, m->step, at,
                     err.text);
        CHECK(m, answer.position_offset == m->records[at].batch_base);
        CHECK(m, answer.position < answer.data_bytes && answer.data_bytes <= answer.window_bytes);
        uint64_t position = answer.position;
        const uint8_t *data = fq_segment_data(segment);
        while (position < answer.data_bytes) {
            struct fq_batch_header header;
            CHECK(m, fq_batch_header_read(data + position, answer.data_bytes - position, &header,
                                          NULL) == 0);
            uint64_t bytes = fq_batch_total_bytes(&header);
            CHECK(m,
                  position + bytes <= answer.data_bytes && fq_batch_crc_ok(data + position, bytes));
            CHECK(m, header.base_offset == m->records[at].batch_base);
            struct fq_batch_iter iter;
            struct fq_record record;
            CHECK(m, fq_batch_iter_init(&iter, data + position, bytes, &scratch, NULL) == 0);
            while (fq_batch_iter_next(&iter, &record) == 1) {
                if (record.offset >= at) {
                    CHECK(m, record.offset == at && at < m->committed);
                    CHECK(m, record.timestamp_ms == m->records[at].timestamp_ms);
                    CHECK(m, memcmp(record.value.data, &m->records[at].tag, 4) == 0);
                    at++;
                }
            }
            position += bytes;
        }
        CHECK(m, answer.next_base_offset == (answer.is_sealed && at < m->committed ? at : -1) ||
                     (answer.is_sealed && answer.next_base_offset == at));
    }
    fq_batch_scratch_fini(&scratch);
    CHECK(m, at == m->committed || from > m->committed);
}

static void check_edges(struct model *m)
{
    struct fq_segment *segment;
    struct fq_segment_open_answer answer;
    struct fq_err err = {0};
    struct fq_partition *p = m->env.partition;
    CHECK(m, fq_partition_segment_open(p, m->committed, &segment, &answer, &err) == 0);
    CHECK(m, answer.position == answer.data_bytes && answer.position_offset == m->committed);
    CHECK(m, fq_partition_segment_open(p, m->committed + 1, &segment, &answer, &err) ==
                 FLASHQ_ERR_OUT_OF_RANGE);
    CHECK(m, fq_partition_segment_open(p, m->start - 1, &segment, &answer, &err) ==
                 FLASHQ_ERR_TRIMMED);
}

static int64_t brute_force(const struct model *m, int64_t timestamp)
{
    for (int64_t i = m->start; i < m->committed; i++) {
        if (m->records[i].timestamp_ms >= timestamp) {
            return i;
        }
    }
    return -1;
}

static void check_time(struct model *m, int64_t timestamp)
{
    int64_t expected = brute_force(m, timestamp), from = 0;
    for (;;) {
        struct fq_time_query_answer answer = env_time_query(&m->env, timestamp, from);
        if (answer.result == FQ_TIME_END) {
            CHECK(m, expected == -1 && answer.offset == m->committed);
            return;
        }
        if (answer.result == FQ_TIME_FOUND) {
            CHECK(m, answer.offset == expected);
            CHECK(m, answer.timestamp_ms == m->records[expected].timestamp_ms);
            return;
        }
        CHECK(m, answer.result == FQ_TIME_CANDIDATE && answer.next_offset > answer.offset);
        int64_t end = answer.next_offset < m->committed ? answer.next_offset : m->committed;
        for (int64_t i = answer.offset < m->start ? m->start : answer.offset; i < end; i++) {
            if (m->records[i].timestamp_ms >= timestamp) {
                CHECK(m, i == expected);
                return;
            }
        }
        from = answer.next_offset;
    }
}

static void check_times(struct model *m, int count)
{
    check_time(m, -1);
    check_time(m, 0);
    check_time(m, INT64_MAX);
    for (int i = 0; i < count && m->committed > m->start; i++) {
        int64_t at = m->start + (int64_t)below(m, (uint64_t)(m->committed - m->start));
        check_time(m, m->records[at].timestamp_ms + (int64_t)below(m, 3) - 1);
    }
}

/* ---- changing -------------------------------------------------------------------------------- */

static void forget_above(struct model *m, int64_t end)
{
    m->end = end;
    m->committed = m->committed < end ? m->committed : end;
    while (m->history_count > 0 && m->history[m->history_count - 1].base_offset >= end) {
        m->history_count--;
    }
    for (int i = 0; i < PRODUCERS; i++) {
        struct producer *p = &m->producers[i];
        while (p->window_count > 0 && p->window[p->window_count - 1].base_offset >= end) {
            p->next = p->window[--p->window_count].sequence;
        }
    }
}

/* What recovery can know: the snapshot's windows, if it counts, and the log after it. */
static void recover_windows(struct model *m)
{
    bool has_snapshot = m->snapshot_offset >= m->start && m->snapshot_offset <= m->end;
    for (int i = 0; i < PRODUCERS; i++) {
        struct producer *p = &m->producers[i];
        p->window_count = has_snapshot ? m->at_snapshot[i].window_count : 0;
        memcpy(p->window, m->at_snapshot[i].window, sizeof p->window);
    }
    for (int i = 0; i < m->history_count; i++) {
        const struct sent *sent = &m->history[i];
        if (sent->base_offset + sent->count > m->start &&
            (!has_snapshot || sent->base_offset >= m->snapshot_offset)) {
            remember(&m->producers[m->history_producer[i]], sent);
        }
    }
}

static void reopen(struct model *m)
{
    int64_t log_end = fq_log_end(fq_partition_log(m->env.partition));
    CHECK(m, log_end >= m->committed && log_end <= m->end);
    CHECK(m, log_end == m->end || m->records[log_end].batch_base == log_end);
    forget_above(m, log_end);
    m->committed = m->end; /* whatever is found is committed */
    recover_windows(m);
    for (int i = 0; i < PRODUCERS; i++) {
        struct producer *p = &m->producers[i];
        if (p->window_count > 0) { /* a truncation may have gone below what was remembered */
            const struct sent *last = &p->window[p->window_count - 1];
            p->next = (int32_t)(((int64_t)last->sequence + last->count) & INT32_MAX);
        }
        struct fq_producer_opened opened;
        struct fq_err err = {0};
        p->epoch = (int16_t)(p->epoch + (int16_t)below(m, 2));
        int rc =
            fq_partition_producer_open(m->env.partition, p->id, p->epoch, p->next, &opened, &err);
        cr_assert_eq(rc, 0, "seed %" PRIu64 " step %d: %s", m->seed, m->step, err.text);
        if (p->window_count > 0) {
            const struct sent *last = &p->window[p->window_count - 1];
            CHECK(m, opened.last_sequence == ((p->next - 1) & INT32_MAX));
            CHECK(m, opened.last_offset == last->base_offset + last->count - 1);
        } else {
            CHECK(m, opened.last_sequence == -1 && opened.last_offset == -1);
        }
    }
    commit(m);
}

static void restart(struct model *m, bool crash)
{
    if (below(m, 4) == 0) {
        env_lose_calendar(&m->env);
    }
    if (below(m, 3) == 0) {
        env_drop_snapshot(&m->env);
        m->snapshot_offset = -1;
    }
    if (below(m, 6) == 0 && m->env.snapshot != NULL) {
        ((uint8_t *)m->env.snapshot)[below(m, m->env.snapshot_bytes)] ^= 1;
        m->snapshot_offset = -1;
    }
    if (crash) {
        env_crash(&m->env);
    } else {
        m->committed = m->end;
        env_restart(&m->env);
        CHECK(m, fq_log_end(fq_partition_log(m->env.partition)) == m->end);
    }
    reopen(m);
}

static void trim(struct model *m)
{
    int64_t to = m->start + (int64_t)below(m, (uint64_t)(m->committed - m->start) / 3 + 1);
    struct fq_err err = {0};
    CHECK(m, fq_partition_trim(m->env.partition, to, &err) == 0);
    m->start = to > m->start ? to : m->start;
    CHECK(m,
          fq_partition_trim(m->env.partition, m->committed + 1, &err) == FLASHQ_ERR_OUT_OF_RANGE);
    CHECK(m, fq_partition_trim(m->env.partition, m->start, &err) == 0);
    check_state(m);
}

static void truncate_some(struct model *m)
{
    int64_t span = m->end - m->start;
    if (span == 0) {
        return;
    }
    int64_t back =
        (int64_t)below(m, below(m, 4) == 0 ? (uint64_t)span : (uint64_t)(span < 60 ? span : 60));
    int64_t to = m->end - back;
    struct fq_err err = {0};
    int rc = fq_partition_truncate(m->env.partition, to, &err);
    cr_assert_eq(rc, 0, "seed %" PRIu64 " step %d: %s", m->seed, m->step, err.text);
    int64_t cut = to == m->end ? to : m->records[to].batch_base;
    if (cut < m->start) {
        cut = fq_log_end(fq_partition_log(m->env.partition)); /* the batch that the start lies in */
        CHECK(m, cut == m->start || cut == m->records[m->start].batch_base);
        m->start = m->start < cut ? m->start : cut;
    }
    forget_above(m, cut);
    m->snapshot_offset = m->snapshot_offset > cut ? -1 : m->snapshot_offset;
    if (m->snapshot_offset == -1) {
        env_drop_snapshot(&m->env);
    }
    m->start = fq_partition_log_start(m->env.partition);
    check_state(m);
}

static void one_step(struct model *m)
{
    int64_t committed = fq_partition_high_watermark(m->env.partition);
    CHECK(m, committed >= m->committed && committed <= m->end); /* a starved append makes a round */
    m->committed = committed;
    struct producer *p = &m->producers[below(m, PRODUCERS)];
    m->env.wall_ms += (int64_t)below(m, 2000);
    uint64_t dice = below(m, 1000);
    if (dice < 600) {
        send_next(m, p);
    } else if (dice < 700) {
        send_again(m, p);
    } else if (dice < 780) {
        send_wrong(m, p);
    } else if (dice < 880) {
        commit(m);
    } else if (dice < 920) {
        (void)fq_partition_off_path_step(m->env.partition);
        env_step(&m->env);
    } else if (dice < 940) {
        m->env.is_calendar_full = !m->env.is_calendar_full;
    } else if (dice < 960) {
        check_times(m, 5);
    } else if (dice < 975) {
        read_all(m, m->start + (int64_t)below(m, (uint64_t)(m->committed - m->start) + 1));
        check_edges(m);
    } else if (dice < 981) {
        commit(m);
        env_take_snapshot(&m->env);
        m->snapshot_offset = m->end;
        memcpy(m->at_snapshot, m->producers, sizeof m->at_snapshot);
    } else if (dice < 986) {
        trim(m);
    } else if (dice < 990) {
        truncate_some(m);
    } else if (dice < 995) {
        restart(m, false);
    } else {
        restart(m, true);
    }
}

static void run(enum fq_flush flush, int steps)
{
    static struct model model;
    struct model *m = &model;
    memset(m, 0, sizeof *m);
    const char *given = getenv("FLASHQ_TEST_SEED");
    m->seed = given != NULL ? strtoull(given, NULL, 10) : fq_random_u64();
    fq_prng_seed(&m->prng, m->seed);
    m->records = calloc(RECORDS_MAX, sizeof *m->records);
    m->history = calloc(RECORDS_MAX, sizeof *m->history);
    m->history_producer = calloc(RECORDS_MAX, sizeof *m->history_producer);
    m->snapshot_offset = -1;
    env_open(&m->env, &(struct env_params){
                          .flush = flush, .max_in_flight = WINDOW, .batch_max_bytes = 400000});
    for (int i = 0; i < PRODUCERS; i++) {
        struct fq_producer_opened opened;
        m->producers[i].id = (int64_t)(fq_prng_next(&m->prng) >> 1);
        m->producers[i].next = i == 0 ? INT32_MAX - 500 : 0; /* one wraps */
        cr_assert_eq(fq_partition_producer_open(m->env.partition, m->producers[i].id, 0,
                                                m->producers[i].next, &opened, NULL),
                     0);
    }
    for (m->step = 0; m->step < steps; m->step++) {
        one_step(m);
    }
    m->env.is_calendar_full = false;
    commit(m);
    read_all(m, m->start);
    while (fq_partition_off_path_step(m->env.partition) > 0) {
    }
    check_times(m, 300);
    restart(m, true);
    read_all(m, m->start);
    check_times(m, 100);
    env_close(&m->env);
    free(m->records);
    free(m->history);
    free(m->history_producer);
}

Test(partition_model, on_memory_that_persists)
{
    run(FQ_FLUSH_PMEM, 2500);
}

Test(partition_model, on_a_disk_that_is_synced)
{
    run(FQ_FLUSH_SYNC, 2500);
}
