/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends in place, from the wire to the bytes in the segments: whatever a producer does, the log
 * holds exactly the batches that were acknowledged, where and as they were written.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "direct_client.h"
#include "storage/layout.h"
#include "wire/record_batch.h"

#define BATCH_ROOM (2u << 20)

static struct test_broker t;
static struct raw_client admin; /* over shm */
static struct direct_client d;
static struct fq_uuid topic;
static struct fq_err err;
static uint8_t *batch;

/* ---- what the log must hold ----------------------------------------------------------------- */

/* The acknowledged batches, one after the other, stamped. */
static struct {
    uint8_t *bytes;
    size_t used, capacity;
    int64_t end;
    int32_t next_sequence;
} model;

static void model_add(const uint8_t *bytes, size_t length, int64_t base_offset)
{
    struct fq_batch_header header;
    cr_assert_eq(base_offset, model.end, "%lld", (long long)base_offset);
    cr_assert_eq(fq_batch_header_read(bytes, length, &header, &err), 0);
    if (model.used + length > model.capacity) {
        model.capacity = 2 * (model.used + length);
        model.bytes = realloc(model.bytes, model.capacity);
        cr_assert(model.bytes);
    }
    memcpy(model.bytes + model.used, bytes, length);
    fq_batch_stamp(model.bytes + model.used, base_offset, 0);
    model.used += length;
    model.end += header.records_count;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The one partition's folder below `dir`; its segments in order. */
static size_t list_segments(const char *dir, char *names[64])
{
    char path[8192];
    size_t count = 0;
    DIR *top = opendir(dir);
    cr_assert(top);
    path[0] = '\0';
    for (struct dirent *e; (e = readdir(top));) {
        if (strncmp(e->d_name, "t-", 2) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s/0", dir, e->d_name);
        }
    }
    closedir(top);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        size_t length = strlen(e->d_name);
        if (length == 24 && strcmp(e->d_name + 20, ".log") == 0) {
            names[count] = malloc(strlen(path) + 32);
            (void)sprintf(names[count++], "%s/%s", path, e->d_name);
        }
    }
    if (folder) {
        closedir(folder);
    }
    qsort(names, count, sizeof names[0], by_name);
    return count;
}

/* Byte by byte: each segment holds batches of the model, then, in the last one, nothing but zeros.
 */
static size_t check_files(const char *dir)
{
    char *names[64];
    size_t count = list_segments(dir, names), at = 0;
    for (size_t i = 0; i < count; i++) {
        struct stat st;
        int fd = open(names[i], O_RDONLY | O_CLOEXEC);
        cr_assert(fd >= 0 && fstat(fd, &st) == 0);
        const uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        size_t data = (size_t)st.st_size - FQ_SEG_DATA, position = 0;
        struct fq_segment_seal seal;
        struct fq_segment_identity identity;
        cr_assert_eq(fq_identity_decode(map, &identity), FQ_IDENTITY_OK);
        while (at < model.used) {
            size_t length = fq_load_be32(model.bytes + at + FQ_BATCH_LENGTH) + 12;
            if (length > data - position ||
                memcmp(map + FQ_SEG_DATA + position, model.bytes + at, length) != 0) {
                break;
            }
            at += length;
            position += length;
        }
        bool is_sealed = fq_state_read(fq_load_le64(map + FQ_SEG_STATE)) == FQ_SEGMENT_SEALED;
        if (is_sealed) {
            cr_assert(fq_seal_decode(&identity, map + FQ_SEG_SEAL, &seal));
            cr_assert_eq(seal.data_bytes, position, "%s", names[i]);
        }
        for (size_t k = position; k < data; k++) {
            cr_assert_eq(map[FQ_SEG_DATA + k], 0, "%s: something at %zu above the end %zu",
                         names[i], k, position);
        }
        munmap((void *)(uintptr_t)map, (size_t)st.st_size);
        close(fd);
        free(names[i]);
    }
    cr_assert_eq(at, model.used, "%zu of %zu bytes are in %zu segments", at, model.used, count);
    return count;
}

/* ---- the stage ------------------------------------------------------------------------------ */

static void make_topic(void)
{
    struct fq_config_pair pair = {.key = fq_str_of("append", 6), .value = fq_str_of("direct", 6)};
    raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
    raw_session(&admin);
    cr_assert_eq(raw_create_topic(&admin, "t", 1, &pair, 1, &topic, &err), 0, "%s", err.text);
}

static void begin_with(int64_t segment_bytes)
{
    batch = malloc(BATCH_ROOM);
    memset(&model, 0, sizeof model);
    test_broker_prepare(&t);
    t.options.log_segment_bytes = segment_bytes;
    test_broker_start(&t);
    make_topic();
    direct_connect(&d, &t, 77);
}

static void begin(void)
{
    begin_with(2 << 20);
}

static void open_first(void)
{
    cr_assert_eq(direct_open(&d, &topic, 0, 0, &err), 0, "%s", err.text);
    direct_wait_window(&d, 0);
}

/* A batch of the next sequence, put where it belongs; not waited for. */
static size_t put_next(struct direct_client *client, size_t value_bytes, uint8_t fill)
{
    size_t length = direct_batch(client, batch, BATCH_ROOM, model.next_sequence, value_bytes, fill);
    direct_put(client, batch, length);
    model.next_sequence++;
    return length;
}

static void put_acked(struct direct_client *client, size_t value_bytes, uint8_t fill)
{
    size_t length = put_next(client, value_bytes, fill);
    struct fq_ack_entry ack = raw_ack(&client->c);
    cr_assert_eq(ack.status, 0, "%s", fq_err_describe(ack.status));
    cr_assert_eq(ack.slot, client->opened.slot);
    cr_assert_eq(ack.flags, 0);
    model_add(batch, length, ack.base_offset);
}

static void end(void)
{
    direct_disconnect(&d);
    raw_close(&admin);
    test_broker_stop(&t);
    (void)check_files(t.options.data_dir);
    test_broker_end(&t);
    free(batch);
    free(model.bytes);
}

/* ---- tests ---------------------------------------------------------------------------------- */

Test(direct, batches_lie_in_the_log_as_they_were_written_over_many_segments)
{
    struct fq_prng prng;
    uint64_t seed = fq_random_u64();
    fq_prng_seed(&prng, seed);
    begin();
    open_first();
    cr_assert_eq(d.opened.last_sequence, -1);
    for (int i = 0; i < 200; i++) {
        put_acked(&d, fq_prng_below(&prng, i % 10 ? 100000 : 600000), (uint8_t)i);
    }
    cr_assert_geq(d.current.number, 4, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(raw_counter(&admin, "append.batches"), 200);
    cr_assert_eq(raw_counter(&admin, "append.direct.open"), 1);
    cr_assert_eq(direct_close(&d), 0);
    cr_assert_eq(raw_counter(&admin, "append.direct.open"), 0);
    end();
}

/* ---- who may have it ------------------------------------------------------------------------ */

Test(direct, mode_transport_and_holder_are_checked)
{
    struct direct_client other;
    struct fq_producer_open_answer opened;
    struct raw_client staged;
    begin();
    open_first();
    raw_connect(&staged, &t, FQ_TRANSPORT_TCP);
    raw_session(&staged);
    raw_ring(&staged, 8);
    cr_assert_eq(raw_producer_open(&staged, &topic, 0, 9, &opened, &err), FLASHQ_ERR_INVALID);
    cr_assert(strstr(err.text, "staged") && strstr(err.text, "append=direct"), "%s", err.text);
    raw_close(&staged);
    direct_connect(&other, &t, 78);
    cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), FLASHQ_ERR_EXCLUSIVE);
    cr_assert(strstr(err.text, "\"test\"") && strstr(err.text, "tcp 127.0.0.1"), "%s", err.text);
    cr_assert_eq(direct_close(&d), 0);
    cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), 0, "%s", err.text);
    put_acked(&other, 10, 1);
    direct_disconnect(&other);
    cr_assert_eq(direct_open(&d, &topic, 0, 1, &err), 0, "a connection's end frees it: %s",
                 err.text);
    model.next_sequence = 0; /* another producer's */
    put_acked(&d, 10, 1);
    uint8_t out[256];
    raw_ring(&admin, 8);
    struct fq_producer_open open = {.topic_id = topic, .producer_id = 5, .mode = FQ_APPEND_DIRECT};
    const struct fq_msg *answer =
        raw_ask(&admin, out, fq_encode_producer_open(out, sizeof out, ++admin.correlation, &open));
    cr_assert_eq(answer->status, FLASHQ_ERR_UNSUPPORTED);
    fq_msg_error(answer, &err);
    cr_assert(strstr(err.text, "taken back") && strstr(err.text, "tcp"), "%s", err.text);
    end();
}

Test(direct, a_disk_medium_cannot)
{
    struct fq_config_pair pair = {.key = fq_str_of("append", 6), .value = fq_str_of("direct", 6)};
    test_broker_prepare(&t);
    t.options.flush = 2; /* sync */
    test_broker_start(&t);
    raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
    raw_session(&admin);
    cr_assert_eq(raw_create_topic(&admin, "t", 1, &pair, 1, &topic, &err), FLASHQ_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "pmem") && strstr(err.text, "sync"), "%s", err.text);
    raw_close(&admin);
    test_broker_end(&t);
}

/* The holder's CPU is asked; two seconds without any sign, and it loses the partition. */
Test(direct, a_silent_holder_is_fenced_and_a_live_one_is_not)
{
    struct direct_client other;
    begin();
    open_first();
    put_acked(&d, 1000, 1);
    direct_connect(&other, &t, 78);
    for (int i = 0; i < 5; i++) { /* a live, idle one answers each time */
        uint8_t out[64];
        cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), FLASHQ_ERR_EXCLUSIVE);
        const struct fq_msg *asked = raw_next_event(&d.c, FQ_MSG_HEARTBEAT);
        cr_assert(asked);
        raw_send(
            &d.c, out,
            (size_t)fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, true, asked->correlation));
        raw_pump(&d.c);
        t.ahead_us += 3000000;
    }
    put_acked(&d, 1000, 2);
    cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), FLASHQ_ERR_EXCLUSIVE, "asks");
    t.ahead_us += 1900000;
    cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), FLASHQ_ERR_EXCLUSIVE, "not yet");
    t.ahead_us += 101000;
    cr_assert_eq(direct_open(&other, &topic, 0, 0, &err), 0, "%s", err.text);
    cr_assert_eq(raw_counter(&admin, "append.direct.fenced"), 1);
    model.next_sequence = 0;
    put_acked(&other, 2000, 3);
    /* The holder wakes up with a batch under way: it lands nowhere and is refused. */
    size_t length = direct_batch(&d, batch, BATCH_ROOM, 2, 5000, 9);
    direct_store(&d, d.current.remote, d.at, batch, length, true);
    cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
    direct_listen(&d);
    cr_assert_eq(d.revoked, FLASHQ_ERR_FENCED);
    cr_assert(d.c.conn, "it keeps its connection");
    put_acked(&other, 2000, 4);
    cr_assert_eq(direct_close(&d), 0);
    direct_disconnect(&other);
    end();
}

Test(direct, a_producer_takes_the_place_of_its_older_self)
{
    struct direct_client again;
    begin();
    open_first();
    put_acked(&d, 1000, 1);
    direct_connect(&again, &t, 77);
    cr_assert_eq(direct_open(&again, &topic, 0, 0, &err), FLASHQ_ERR_EXCLUSIVE, "same epoch");
    cr_assert_eq(direct_open(&again, &topic, 0, 1, &err), 0, "%s", err.text);
    cr_assert_eq(again.opened.last_sequence, 0);
    put_acked(&again, 1000, 2);
    raw_pump(&d.c);
    direct_listen(&d);
    cr_assert_eq(d.revoked, FLASHQ_ERR_FENCED);
    direct_disconnect(&again);
    end();
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* A refused batch fails the slot; the bytes of it and of what followed are gone, the connection
 * lives, and the producer goes on in a new slot. */
Test(direct, a_refused_batch_fails_the_slot_and_leaves_nothing)
{
    static const struct {
        int at, value, status;
    } wrong[] = {{80, 0x55, FLASHQ_ERR_CORRUPT},
                 {16, 1, FLASHQ_ERR_PROTOCOL},
                 {7, 1, FLASHQ_ERR_PROTOCOL},
                 {52, 9, FLASHQ_ERR_CORRUPT},
                 {22, 0x10, FLASHQ_ERR_CORRUPT},
                 {-1, 0, FLASHQ_ERR_SEQUENCE},
                 {-2, 0, FLASHQ_ERR_SEQUENCE /* a duplicate */}};
    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_eq(direct_open(&d, &topic, 0, (int16_t)i, &err), 0, "%s", err.text);
        put_acked(&d, 3000, (uint8_t)i);
        int32_t sequence = model.next_sequence + (wrong[i].at == -1 ? 5 : 0);
        sequence -= wrong[i].at == -2 ? 1 : 0;
        size_t length = direct_batch(&d, batch, BATCH_ROOM, sequence, 4000, 7);
        if (wrong[i].at >= 0) {
            batch[wrong[i].at] ^= (uint8_t)(wrong[i].value ? wrong[i].value : 1);
        }
        direct_put(&d, batch, length);
        length = direct_batch(&d, batch, BATCH_ROOM, sequence + 1, 200, 7);
        if (!d.revoked) {
            direct_put(&d, batch, length); /* was under way already */
        } else {
            direct_store(&d, d.current.remote, d.at, batch, length, true);
        }
        struct fq_ack_entry ack = raw_ack(&d.c);
        if (wrong[i].at == -2) {
            cr_assert_eq(ack.status, 0);
            cr_assert_eq(ack.flags, FQ_ACK_DUPLICATE);
            cr_assert_eq(ack.base_offset, model.end - 1);
        } else {
            cr_assert_eq(ack.status, wrong[i].status, "%zu: %s", i, fq_err_describe(ack.status));
        }
        cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_SLOT_FAILED);
        direct_listen(&d);
        cr_assert_eq(d.revoked, wrong[i].status, "%zu: %d", i, d.revoked);
        cr_assert_eq(direct_close(&d), 0);
    }
    end();
}

/* Each ends the connection, and changes nothing that was notified. */
Test(direct, writes_where_they_may_not_go_end_the_connection)
{
    begin();
    for (int i = 0; i < 8; i++) {
        struct direct_client bad;
        direct_connect(&bad, &t, 100 + i);
        cr_assert_eq(direct_open(&bad, &topic, 0, 0, &err), 0, "%s", err.text);
        model.next_sequence = 0;
        put_acked(&bad, 50000, 1);
        uint8_t byte = 0xee;
        size_t length = direct_batch(&bad, batch, BATCH_ROOM, 1, 5000, 7);
        struct fq_remote *former = bad.current.remote;
        switch (i) {
        case 0: direct_store(&bad, former, bad.at - 1, &byte, 1, false); break;
        case 1: direct_store(&bad, former, 0, batch, length, true); break;
        case 2: direct_store(&bad, former, bad.at + 1, &byte, 1, false); break;
        case 3: direct_store(&bad, former, bad.current.bytes - 1, &byte, 1, false); break;
        case 4: /* a length that lies */
            fq_store_be32(batch + FQ_BATCH_LENGTH, (uint32_t)length);
            direct_store(&bad, former, bad.at, batch, length, true);
            break;
        case 5: /* a notify of nothing */ direct_store(&bad, former, bad.at, batch, 0, true); break;
        case 6: /* the slot was closed */
            cr_assert_eq(direct_close(&bad), 0);
            former = direct_reopen(&bad, &bad.current); /* whatever it was told */
            direct_store(&bad, former, bad.at, batch, length, false);
            break;
        default: /* the former window, after moving on */
            direct_wait_window(&bad, bad.current.number + 1);
            direct_store(&bad, bad.next.remote, 0, batch, length, true);
            cr_assert_eq(raw_ack(&bad.c).status, 0);
            model_add(batch, length, model.end);
            former = direct_reopen(&bad, &bad.current);
            direct_store(&bad, former, bad.at, batch, length, false);
            break;
        }
        cr_assert(direct_was_cut(&bad), "%d", i);
        direct_disconnect(&bad);
    }
    end();
}

/* ---- what a producer leaves behind ---------------------------------------------------------- */

/* A whole, valid batch that was never notified, and half of one, when the writer dies: the next one
 * writes shorter ones over them, and nothing of them is ever read. */
Test(direct, unnotified_bytes_never_come_back)
{
    begin();
    for (int i = 0; i < 6; i++) {
        struct direct_client gone;
        direct_connect(&gone, &t, 200 + i);
        cr_assert_eq(direct_open(&gone, &topic, 0, 0, &err), 0, "%s", err.text);
        model.next_sequence = 0;
        put_acked(&gone, 1000, 1);
        size_t length = direct_batch(&gone, batch, BATCH_ROOM, 1, 30000, 7);
        fq_batch_stamp(batch, model.end, 0); /* as a log would have it */
        direct_store(&gone, gone.current.remote, gone.at, batch, i % 2 ? length / 2 : length,
                     false);
        direct_listen(&gone);
        if (gone.next.remote) {
            direct_store(&gone, gone.next.remote, 0, batch, length, false);
        }
        direct_disconnect(&gone);
    }
    end();
}

/* As after kill -9: the files as they are at some moment, with a stamped batch that nobody
 * notified. */
Test(direct, a_restart_finds_what_was_acknowledged_and_nothing_above)
{
    char command[8300];
    struct test_broker copy;
    struct raw_client reader;
    struct fq_reader_open_answer opened;
    begin();
    open_first();
    for (int i = 0; i < 30; i++) {
        put_acked(&d, 100000, (uint8_t)i);
    }
    size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, 3000, 7);
    fq_batch_stamp(batch, model.end, 0);
    direct_store(&d, d.current.remote, d.at, batch, length, false);
    test_broker_prepare(&copy);
    (void)snprintf(command, sizeof command, "cp -r %s %s", t.options.data_dir,
                   copy.options.data_dir);
    cr_assert_eq(system(command), 0);
    /* one process cannot have two; it is made anew from the log */
    (void)snprintf(command, sizeof command, "%s/meta.pool", copy.options.data_dir);
    cr_assert_eq(unlink(command), 0);
    test_broker_start(&copy);
    raw_connect(&reader, &copy, FQ_TRANSPORT_SHM);
    raw_session(&reader);
    cr_assert_eq(raw_reader_open(&reader, &topic, 0, &opened, &err), 0, "%s", err.text);
    cr_assert_eq(opened.end, model.end);
    raw_close(&reader);
    struct direct_client next;
    direct_connect(&next, &copy, 77);
    cr_assert_eq(direct_open(&next, &topic, 0, 1, &err), 0, "%s", err.text);
    cr_assert_eq(next.opened.last_sequence, model.next_sequence - 1);
    size_t used = model.used;
    int64_t model_end = model.end;
    put_acked(&next, 100, 1);
    direct_disconnect(&next);
    test_broker_stop(&copy);
    (void)check_files(copy.options.data_dir);
    test_broker_end(&copy);
    model.used = used; /* the first broker has not got that one */
    model.end = model_end;
    end();
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* case 32 */
Test(direct, batches_fill_windows_exactly_and_sizes_end_at_the_limit)
{
    begin();
    open_first();
    /* to the last byte */
    for (int i = 0; i < 3; i++) {
        size_t left = (size_t)(d.current.bytes - d.at);
        while (left > 700000) {
            put_acked(&d, 300000, 3);
            left = (size_t)(d.current.bytes - d.at);
        }
        size_t overhead = direct_batch(&d, batch, BATCH_ROOM, 0, left - 100, 1) - (left - 100);
        put_acked(&d, left - overhead, 4);
        cr_assert_eq(d.at, d.current.bytes);
        put_acked(&d, 10, 5);
    }
    uint32_t max = d.c.session.batch_max_bytes;
    size_t overhead = direct_batch(&d, batch, BATCH_ROOM, 0, max - 100, 1) - (max - 100);
    for (int more = -1; more <= 1; more++) {
        size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence,
                                     max - overhead + (size_t)more, 6);
        cr_assert_eq(length, max + (size_t)more);
        direct_put(&d, batch, length);
        struct fq_ack_entry ack = raw_ack(&d.c);
        bool is_refused = ack.status != 0; /* the record, or the batch, is too large */
        cr_assert_eq(is_refused ? ack.status : FLASHQ_ERR_TOO_LARGE, FLASHQ_ERR_TOO_LARGE);
        cr_assert(more < 1 || is_refused);
        if (is_refused) {
            cr_assert_eq(direct_close(&d), 0);
            cr_assert_eq(direct_open(&d, &topic, 0, (int16_t)(more + 2), &err), 0);
        } else {
            model_add(batch, length, ack.base_offset);
            model.next_sequence++;
        }
    }
    end();
}

/* ---- other ends ----------------------------------------------------------------------------- */

Test(direct, trimming_everything_leaves_the_window_and_deletion_takes_it)
{
    int64_t start;
    begin();
    open_first();
    for (int i = 0; i < 5; i++) {
        put_acked(&d, 10000, 1);
    }
    cr_assert_eq(raw_trim(&admin, "t", 0, -1, &start, &err), 0, "%s", err.text);
    cr_assert_eq(start, 5);
    put_acked(&d, 10000, 2);
    cr_assert_eq(raw_delete_topic(&admin, "t", &err), 0, "%s", err.text);
    raw_pump(&d.c);
    direct_listen(&d);
    cr_assert_eq(d.revoked, FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, 100, 1);
    direct_store(&d, d.current.remote, d.at, batch, length, true);
    cr_assert_neq(raw_ack(&d.c).status, 0);
    cr_assert(d.c.conn);
    model.used = 0;
    end();
}

/* ---- at random ------------------------------------------------------------------------------ */

/* Producers come and go, leave things behind, send what is refused; the broker is stopped and
 * started; at the end, and after each stop, the files hold the model and nothing else. */
Test(direct, random_producers_against_a_model)
{
    struct fq_prng prng;
    uint64_t seed = fq_random_u64();
    int16_t epoch = 0;
    fq_prng_seed(&prng, seed);
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    begin();
    open_first();
    for (int i = 0; i < 250; i++) {
        uint64_t dice = fq_prng_below(&prng, 100);
        size_t value = fq_prng_below(&prng, dice % 7 ? 5000 : 500000);
        if (dice < 75) {
            put_acked(&d, value, (uint8_t)i);
            continue;
        }
        if (dice < 80) { /* refused */
            size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, value, 7);
            batch[length - 1] ^= 1;
            direct_put(&d, batch, length);
            cr_assert_eq(raw_ack(&d.c).status, FLASHQ_ERR_CORRUPT);
            cr_assert_eq(direct_close(&d), 0);
        } else if (dice < 90) { /* goes, and leaves something */
            size_t length = direct_batch(&d, batch, BATCH_ROOM, model.next_sequence, value, 7);
            length = length < d.current.bytes - d.at ? length : (size_t)(d.current.bytes - d.at);
            direct_store(&d, d.current.remote, d.at, batch, length, false);
            if (dice < 85) {
                cr_assert_eq(direct_close(&d), 0);
            } else {
                direct_disconnect(&d);
                direct_connect(&d, &t, 77);
            }
        } else if (dice < 98) {
            cr_assert_eq(direct_close(&d), 0);
        } else {
            direct_disconnect(&d);
            raw_close(&admin);
            test_broker_stop(&t);
            (void)check_files(t.options.data_dir);
            test_broker_start(&t);
            raw_connect(&admin, &t, FQ_TRANSPORT_SHM);
            raw_session(&admin);
            direct_connect(&d, &t, 77);
        }
        cr_assert_eq(direct_open(&d, &topic, 0, ++epoch, &err), 0, "%s", err.text);
        cr_assert_eq(d.opened.end, model.end);
        cr_assert_eq(d.opened.last_sequence, model.next_sequence - 1);
        direct_wait_window(&d, 0);
    }
    end();
}
