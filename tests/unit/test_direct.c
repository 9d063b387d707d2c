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
