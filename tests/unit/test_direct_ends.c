/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct slots when the broker has no segment for them, no space, or a medium that fails, and when
 * their notifies come late: the producer hears of it, its connection lives, and the log holds what
 * was acknowledged. The store's step and the persist ops are taken between (-Wl,--wrap).
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "direct_client.h"
#include "push_reader.h"
#include "storage/persist.h"
#include "storage/store.h"
#include "wire/record_batch.h"

#define BATCH_ROOM (2u << 20)

static struct test_broker t;
static struct raw_client admin; /* over shm */
static struct direct_client d;
static struct fq_uuid topic;
static struct fq_err err;
static uint8_t batch[BATCH_ROOM];

/* ---- the medium ----------------------------------------------------------------------------- */

static bool is_dry;    /* the store prepares nothing */
static bool is_full;   /* no file can be made */
static bool is_broken; /* stores into the log fail */
static struct fq_persist_ops real_ops, ops;

int __real_fq_store_step(struct fq_store *store, int64_t now_us);
int __wrap_fq_store_step(struct fq_store *store, int64_t now_us);
int __real_fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *e);
static int store_words(struct fq_pfile *f, const uint64_t pos[2], const uint64_t values[2])
{
    return is_broken ? FLASHQ_ERR_IO : real_ops.words(f, pos, values);
}

int __wrap_fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *e);

int __wrap_fq_store_step(struct fq_store *store, int64_t now_us)
{
    return is_dry ? 0 : __real_fq_store_step(store, now_us);
}

static int create(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                  struct fq_err *e)
{
    return is_full ? fq_err_set(e, FLASHQ_ERR_NO_SPACE, "%s: full", path)
                   : real_ops.create(p, path, bytes, ret, e);
}

static int begin_file(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                      struct fq_err *e)
{
    return is_full ? fq_err_set(e, FLASHQ_ERR_NO_SPACE, "%s: full", path)
                   : real_ops.begin(p, path, bytes, ret, e);
}

static int write_back(struct fq_pfile *f, uint64_t pos, uint64_t length)
{
    return is_broken ? FLASHQ_ERR_IO : real_ops.write_back(f, pos, length);
}

static int store_word(struct fq_pfile *f, uint64_t pos, uint64_t value)
{
    return is_broken ? FLASHQ_ERR_IO : real_ops.word(f, pos, value);
}

int __wrap_fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *e)
{
    int code = __real_fq_persist_pmem_create(ret, e);
    if (code == 0) {
        ops = real_ops = *(*ret)->ops;
        ops.create = create;
        ops.begin = begin_file;
        ops.write_back = write_back;
        ops.word = store_word;
        ops.words = store_words;
        (*ret)->ops = &ops;
    }
    return code;
}

/* ---- the stage ------------------------------------------------------------------------------ */

/* What was acknowledged, as the log has it. */
static struct {
    uint8_t bytes[24 << 20];
    size_t used;
    int64_t end;
    int32_t next_sequence;
} model;

static void begin(uint32_t partitions)
{
    struct fq_config_pair pair = {.key = fq_str_of("append", 6), .value = fq_str_of("direct", 6)};
    model.used = 0;
    model.end = model.next_sequence = 0;
    is_dry = is_full = is_broken = false;
    test_broker_prepare(&t);
    t.options.log_segment_bytes = 4 << 20;
    t.options.log_prepared_bytes = 0;
    test_broker_start(&t);
    raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
    raw_session(&admin);
    cr_assert_eq(raw_create_topic(&admin, "t", partitions, &pair, 1, &topic, &err), 0, "%s",
                 err.text);
    direct_connect(&d, &t, 77);
}

static void open_slot(int16_t epoch)
{
    cr_assert_eq(direct_open(&d, &topic, 0, epoch, &err), 0, "%s", err.text);
    cr_assert_eq(d.opened.last_sequence, model.next_sequence - 1);
}

/* The next batch, put where it belongs. */
static size_t put(size_t value_bytes)
{
    size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, value_bytes, 0x61);
    direct_put(&d, batch, length);
    return length;
}

/* The acknowledgement of the batch that was put last. */
static void take_ack(size_t length)
{
    struct fq_ack_entry ack = raw_ack(&d.c);
    cr_assert_eq(ack.status, 0, "%s", fq_err_describe(ack.status));
    cr_assert_eq(ack.base_offset, model.end);
    cr_assert_leq(model.used + length, sizeof model.bytes);
    memcpy(model.bytes + model.used, batch, length);
    fq_batch_stamp(model.bytes + model.used, model.end, 0);
    model.used += length;
    model.end++;
    model.next_sequence++;
}

static void put_acked(size_t value_bytes)
{
    take_ack(put(value_bytes));
}

static void pump(void)
{
    for (int i = 0; i < 50; i++) {
        raw_pump(&d.c);
    }
    direct_listen(&d);
}

/* Until what is left takes no further batch of 900,000 bytes. */
static void fill_window(void)
{
    while (d.current.bytes - d.at > 901000) {
        put_acked(900000);
    }
}

static void check_log(void)
{
    uint64_t length;
    uint8_t *log = raw_log_bytes(&admin, &topic, 0, 0, &length);
    cr_assert_eq(length, model.used);
    cr_assert_eq(memcmp(log, model.bytes, length), 0);
    free(log);
}

/* The log holds what it must, now and after a restart. */
static void end(void)
{
    direct_disconnect(&d);
    check_log();
    raw_close(&admin);
    test_broker_stop(&t);
    is_dry = is_full = is_broken = false;
    test_broker_start(&t);
    raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
    raw_session(&admin);
    check_log();
    raw_close(&admin);
    test_broker_end(&t);
}

/* ---- late notifies -------------------------------------------------------------------------- */

/* A notify for a slot that was closed is late, and nothing else: it takes nothing from the ring
 * that staged batches of the same connection lie in, and it is answered. */
Test(direct_ends, a_notify_for_a_closed_slot_is_late)
{
    struct fq_uuid staged_topic;
    struct fq_producer_open_answer staged;
    begin(1);
    cr_assert_eq(raw_create_topic(&admin, "staged", 1, NULL, 0, &staged_topic, &err), 0);
    open_slot(0);
    put_acked(1000);
    uint32_t closed = d.opened.slot;
    cr_assert_eq(direct_close(&d), 0);
    cr_assert_eq(raw_producer_open(&d.c, &staged_topic, 0, 5, &staged, &err), 0, "%s", err.text);
    cr_assert_neq(staged.slot, closed);
    for (int i = 0; i < 10; i++) {
        raw_notify(&d.c, closed);
        struct fq_ack_entry ack = raw_ack(&d.c);
        cr_assert_eq(ack.slot, closed);
        cr_assert_eq(ack.status, FLASHQ_ERR_SLOT_FAILED);
        raw_produce(&d.c, staged.slot, 5, i, 1, "staged");
        ack = raw_ack(&d.c);
        cr_assert_eq(ack.slot, staged.slot);
        cr_assert_eq(ack.status, 0, "%s", fq_err_describe(ack.status));
        cr_assert_eq(ack.base_offset, i);
    }
    open_slot(1);
    put_acked(1000);
    raw_notify(&d.c, closed);
    cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
    put_acked(1000);
    cr_assert(d.c.conn, "it keeps its connection");
    end();
}

/* The other way round: what is late for a staged slot lies in the ring. */
Test(direct_ends, numbers_of_closed_slots_keep_their_mode)
{
    struct fq_uuid staged_topic;
    struct fq_producer_open_answer staged;
    uint8_t bytes[512], out[64];
    begin(1);
    cr_assert_eq(raw_create_topic(&admin, "staged", 1, NULL, 0, &staged_topic, &err), 0);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(raw_producer_open(&d.c, &staged_topic, 0, 100 + i, &staged, &err), 0);
        struct fq_slot_ref ref = {.slot = staged.slot};
        cr_assert_eq(
            raw_ask(&d.c, out, fq_encode_producer_close(out, sizeof out, ++d.c.correlation, &ref))
                ->status,
            0);
        open_slot((int16_t)i);
        put_acked(1000);
        size_t length = raw_batch(bytes, sizeof bytes, 100 + i, 0, 1, fq_wall_ms(), "late");
        raw_write(&d.c, staged.slot, bytes, length);
        cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
        put_acked(1000);
        cr_assert_eq(direct_close(&d), 0);
        raw_notify(&d.c, d.opened.slot);
        cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
        RAW_UNTIL(&d.c, raw_consumed(&d.c) == d.c.written);
    }
    cr_assert_eq(raw_counter(&admin, "append.records"), 10);
    end();
}

/* ---- no segment yet ------------------------------------------------------------------------- */

Test(direct_ends, a_producer_waits_for_its_first_window_and_for_the_next)
{
    begin(1);
    is_dry = true;
    open_slot(0);
    pump();
    cr_assert_eq(d.windows, 0);
    cr_assert_gt(raw_counter(&admin, "segments_starved"), 0);
    is_dry = false;
    direct_wait_window(&d, 0);
    for (int turn = 0; turn < 4; turn++) {
        is_dry = true;
        fill_window();
        for (pump(); d.next.remote; pump()) { /* what was prepared before */
            put_acked(900000);
            fill_window();
        }
        int64_t starved = raw_counter(&admin, "segments_starved");
        pump();
        cr_assert_eq(d.revoked, 0);
        cr_assert_null(d.next.remote);
        cr_assert_eq(raw_counter(&admin, "segments_starved"), starved, "counted once a wait");
        is_dry = false;
        put_acked(900000); /* waits for it */
    }
    cr_assert_eq(direct_close(&d), 0);
    end();
}

/* Whatever ends the wait, nothing is left that waits, and the partition can be had again. */
Test(direct_ends, a_wait_for_a_segment_ends_with_the_slot_the_connection_or_the_topic)
{
    begin(1);
    for (int16_t turn = 0; turn < 6; turn++) {
        open_slot(turn);
        direct_wait_window(&d, 0);
        put_acked(1000);
        is_dry = d.next.remote == NULL; /* what had to be granted early is there already */
        fill_window();
        pump();
        if (turn % 3 == 0) {
            cr_assert_eq(direct_close(&d), 0);
        } else {
            direct_disconnect(&d);
            direct_connect(&d, &t, 77);
        }
        pump();
        cr_assert_eq(raw_counter(&admin, "append.direct.open"), 0);
        is_dry = turn % 2;
    }
    is_dry = false;
    check_log();
    open_slot(20);
    direct_wait_window(&d, 0);
    is_dry = true;
    fill_window();
    pump();
    cr_assert_eq(raw_delete_topic(&admin, "t", &err), 0, "%s", err.text);
    pump();
    cr_assert_eq(d.revoked, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(raw_counter(&admin, "append.direct.open"), 0);
    is_dry = false;
    cr_assert_eq(direct_close(&d), 0);
    cr_assert(d.c.conn);
    direct_disconnect(&d);
    raw_close(&admin);
    test_broker_end(&t);
}

/* ---- no space ------------------------------------------------------------------------------- */

/* case 24 */
Test(direct_ends, without_space_an_open_is_refused_and_a_slot_is_revoked_when_it_needs_some)
{
    begin(1);
    open_slot(0);
    direct_wait_window(&d, 0);
    put_acked(1000);
    is_full = true;
    int most = 200;
    while (d.revoked == 0 && most-- > 0) {
        size_t left = (size_t)(d.current.bytes - d.at);
        if (left < 101000 && !d.next.remote) {
            pump();
            cr_assert_neq(d.revoked, 0, "it cannot go on, and is not told");
            break;
        }
        put_acked(100000);
        pump();
    }
    cr_assert_eq(d.revoked, FLASHQ_ERR_NO_SPACE);
    cr_assert(d.c.conn);
    check_log();
    cr_assert_eq(direct_close(&d), 0);
    /* what is left of the segment is smaller than the largest batch */
    int code = direct_open(&d, &topic, 0, 1, &err);
    cr_assert_eq(code, FLASHQ_ERR_NO_SPACE, "%s", err.text);
    cr_assert(strstr(err.text, "space"), "%s", err.text);
    cr_assert_eq(raw_counter(&admin, "append.direct.open"), 0);
    is_full = false;
    for (int i = 0; code == FLASHQ_ERR_NO_SPACE && i < 2000; i++) {
        t.ahead_us += 100000;
        pump();
        code = direct_open(&d, &topic, 0, 1, &err);
    }
    cr_assert_eq(code, 0, "%s", err.text);
    cr_assert_eq(d.opened.last_sequence, model.next_sequence - 1);
    for (int i = 0; i < 8; i++) {
        put_acked(900000);
    }
    end();
}

/* A full medium may get space again before the slot needs it: it is never told then. */
Test(direct_ends, space_that_comes_back_in_time_is_used)
{
    begin(1);
    open_slot(0);
    direct_wait_window(&d, 0);
    while (d.current.bytes < (2u << 20)) { /* one that has room beyond the largest batch at 3/4 */
        fill_window();
        put_acked(900000);
    }
    for (int i = 0; i < 4; i++) {
        is_full = true;
        put_acked(100000);
        pump();
        cr_assert_eq(d.revoked, 0);
        is_full = false;
        t.ahead_us += 2000000;
        pump();
        fill_window();
        put_acked(900000);
    }
    end();
}

/* ---- a medium that fails -------------------------------------------------------------------- */

/* The partition of a holder goes offline: by its own batch, or by something else. */
Test(direct_ends, offline_under_a_holder_is_told_and_costs_no_connection)
{
    for (int by_trim = 0; by_trim < 2; by_trim++) {
        struct direct_client other;
        int64_t start;
        begin(2);
        open_slot(0);
        direct_wait_window(&d, 0);
        put_acked(5000);
        put_acked(5000);
        direct_connect(&other, &t, 78);
        cr_assert_eq(direct_open(&other, &topic, 1, 0, &err), 0, "%s", err.text);
        is_broken = true;
        if (by_trim) {
            cr_assert_neq(raw_trim(&admin, "t", 0, 1, &start, &err), 0);
        } else {
            (void)put(5000);
            int status = raw_ack(&d.c).status;
            cr_assert(status == FLASHQ_ERR_MAYBE_PERSISTED || status == FLASHQ_ERR_IO ||
                          status == FLASHQ_ERR_OFFLINE,
                      "%s", fq_err_describe(status));
        }
        pump();
        is_broken = false;
        cr_assert_neq(d.revoked, 0, "%s", by_trim ? "by a trim" : "by a batch");
        cr_assert(d.c.conn);
        cr_assert_eq(raw_counter(&admin, "partitions.offline"), 1);
        size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, 100, 1);
        direct_store(&d, d.current.remote, d.at, batch, length, true);
        cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
        cr_assert_eq(direct_close(&d), 0);
        cr_assert_eq(direct_open(&d, &topic, 0, 1, &err), FLASHQ_ERR_OFFLINE, "%s", err.text);
        length = direct_batch(&other, batch, BATCH_ROOM, 0, 100, 1);
        direct_put(&other, batch, length);
        cr_assert_eq(raw_ack(&other.c).status, 0, "the other partition is none the worse");
        direct_disconnect(&other);
        if (by_trim) {
            check_log();
        }
        direct_disconnect(&d);
        raw_close(&admin);
        test_broker_stop(&t);
        test_broker_start(&t);
        direct_connect(&d, &t, 77);
        raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
        raw_session(&admin);
        open_slot(2); /* a restart brings it back, with what was acknowledged */
        check_log();
        direct_wait_window(&d, 0);
        put_acked(5000);
        end();
    }
}
