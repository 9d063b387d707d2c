/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of files that a peer may write to: appends in place. What was notified cannot be changed,
 * what was taken back cannot be reached, and who cannot enforce that does not grant it.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/random.h"
#include "fabric_pair.h"

#define FILE_BYTES (1u << 20)
#define AT         4096u /* of the window in the file */
#define WINDOW     (FILE_BYTES - AT - 100)

struct place {
    struct pair p;
    char path[128];
    int fd;
    uint8_t *map;
    bool is_released;
    struct fq_region *file, *local;
    uint8_t *bytes; /* of local: random */
    struct fq_window *window;
    struct fq_remote *remote;
};

static void on_release(void *context)
{
    *(bool *)context = true;
}

static void place_open(struct place *a, enum pair_backend backend)
{
    struct fq_err err = {0};
    memset(a, 0, sizeof *a);
    pair_open(&a->p, backend);
    pair_connect(&a->p);
    (void)snprintf(a->path, sizeof a->path, "%s/segment", a->p.directory);
    a->fd = open(a->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_eq(ftruncate(a->fd, FILE_BYTES), 0);
    (void)unlink(a->path);
    a->map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    cr_assert_eq(
        fq_region_wrap_file(a->fd, a->map, FILE_BYTES, on_release, &a->is_released, &a->file, &err),
        0);
    cr_assert_eq(fq_region_create(FILE_BYTES, FQ_REGION_LOCAL, &a->local, &err), 0);
    a->bytes = fq_region_base(a->local);
    fq_random_bytes(a->bytes, FILE_BYTES);
}

static void place_grant(struct place *a)
{
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES];
    fq_region_allow_writing(a->file);
    cr_assert_eq(
        fq_window_grant(a->p.s, a->file, AT, WINDOW, FQ_RIGHT_WRITE, &a->window, token, &err), 0,
        "%s", err.text);
    cr_assert_eq(fq_conn_send(a->p.s, token, sizeof token), 0);
    struct pair_event event = pair_wait(&a->p, a->p.c, FQ_EVENT_MESSAGE);
    cr_assert_eq(fq_remote_open(a->p.c, event.bytes, FQ_RIGHT_WRITE, &a->remote, &err), 0, "%s",
                 err.text);
    pair_event_free(&event);
    cr_assert_eq(fq_remote_bytes(a->remote), WINDOW);
    cr_assert_null(fq_remote_map(a->remote));
}

static void place_close(struct place *a)
{
    fq_region_unref(a->file);
    pair_close(&a->p);
    cr_assert(a->is_released);
    fq_region_unref(a->local);
    munmap(a->map, FILE_BYTES);
    close(a->fd);
}

static struct fq_op write_of(struct place *a, uint64_t offset, size_t length, size_t from)
{
    return (struct fq_op){.type = FQ_OP_WRITE_NOTIFY,
                          .remote = a->remote,
                          .remote_offset = offset,
                          .region = a->local,
                          .local = a->bytes + from,
                          .length = length,
                          .imm = 7};
}

static void notified(struct place *a)
{
    struct pair_event event = pair_wait(&a->p, a->p.s, FQ_EVENT_NOTIFY);
    cr_assert_eq(event.event.imm, 7);
}

static void put(struct place *a, uint64_t offset, size_t length, size_t from)
{
    struct fq_op op = write_of(a, offset, length, from);
    cr_assert_eq(fq_conn_post(a->p.c, &op, 1), 1);
}

static void cut_off(struct place *a, int code)
{
    struct pair_event event = pair_wait(&a->p, a->p.s, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, code, "%d %s", event.event.status, event.text);
    pair_event_free(&event);
}

static const enum pair_backend backends[] = {PAIR_TCP, PAIR_TCP_FAULTY};
#define FOR_BACKENDS(i) for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)

Test(in_place, only_the_owner_of_a_writable_file_grants_it_and_never_over_shm)
{
    for (int b = 0; b < PAIR_BACKENDS; b++) {
        struct place a;
        struct fq_err err = {0};
        struct fq_window *window;
        uint8_t token[FQ_TOKEN_BYTES];
        place_open(&a, (enum pair_backend)b);
        cr_assert_eq(
            fq_window_grant(a.p.s, a.file, AT, WINDOW, FQ_RIGHT_WRITE, &window, token, &err),
            FLASHQ_ERR_INVALID);
        fq_region_allow_writing(a.file);
        cr_assert_eq(
            fq_window_grant(a.p.c, a.file, AT, WINDOW, FQ_RIGHT_WRITE, &window, token, &err),
            pair_transport((enum pair_backend)b) == FQ_TRANSPORT_SHM ? FLASHQ_ERR_UNSUPPORTED
                                                                     : FLASHQ_ERR_INVALID,
            "the side that connected may not grant files");
        if (pair_transport((enum pair_backend)b) == FQ_TRANSPORT_SHM) {
            cr_assert_eq(
                fq_window_grant(a.p.s, a.file, AT, WINDOW, FQ_RIGHT_WRITE, &window, token, &err),
                FLASHQ_ERR_UNSUPPORTED);
            cr_assert(strstr(err.text, "taken back"));
        }
        place_close(&a);
    }
}

Test(in_place, bytes_land_in_the_file_and_how_far_is_known)
{
    FOR_BACKENDS(i)
    {
        struct place a;
        place_open(&a, backends[i]);
        place_grant(&a);
        cr_assert_eq(fq_window_written(a.window), 0);
        put(&a, 0, 300000, 5);
        notified(&a);
        cr_assert_eq(fq_window_written(a.window), 300000);
        put(&a, 0, 50, 1);
        notified(&a);
        cr_assert_eq(fq_window_written(a.window), 300000, "the highest counts");
        put(&a, 299990, WINDOW - 299990, 9);
        notified(&a);
        cr_assert_eq(fq_window_written(a.window), WINDOW);
        cr_assert_eq(memcmp(a.map + AT, a.bytes + 1, 50), 0);
        cr_assert_eq(memcmp(a.map + AT + 50, a.bytes + 55, 299940), 0);
        cr_assert_eq(memcmp(a.map + AT + 299990, a.bytes + 9, WINDOW - 299990), 0);
        cr_assert_eq(a.map[AT - 1], 0);
        cr_assert_eq(a.map[AT + WINDOW], 0);
        place_close(&a);
    }
}

Test(in_place, a_write_below_the_floor_or_after_a_gap_breaks_the_connection_and_changes_nothing)
{
    static const struct {
        uint64_t offset;
        size_t length;
    } wrong[] = {{0, 1}, {999, 1}, {0, 5000}, {999, 100000}, {500, 0}, {71001, 1}, {WINDOW - 1, 1}};
    FOR_BACKENDS(i)
    {
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            struct place a;
            struct fq_fabric_stats stats;
            place_open(&a, backends[i]);
            place_grant(&a);
            put(&a, 0, 1000, 0);
            notified(&a);
            fq_window_set_floor(a.window, 1000);
            fq_window_set_floor(a.window, 10); /* never lowered */
            put(&a, 1000, 70000, 1000);        /* at the floor is right */
            notified(&a);
            struct fq_op op = write_of(&a, wrong[k].offset, wrong[k].length, 200000);
            cr_assert_eq(fq_conn_post(a.p.c, &op, 1), 1);
            cut_off(&a, FLASHQ_ERR_NOT_PERMITTED);
            fq_fabric_get_stats(a.p.server.fabric, &stats);
            if (backends[i] == PAIR_TCP) { /* the decorator's are its own */
                cr_assert_eq(stats.refused_floor, 1);
            }
            cr_assert_eq(memcmp(a.map + AT, a.bytes, 71000), 0);
            cr_assert_eq(a.map[AT + 71001] | a.map[AT + WINDOW - 1], 0);
            place_close(&a);
        }
    }
}

/* The peer posts a batch, its notify, and another content for the same bytes in one go. */
Test(in_place, nothing_after_a_notify_happens_before_its_owner_could_move_the_floor)
{
    FOR_BACKENDS(i)
    {
        struct place a;
        place_open(&a, backends[i]);
        place_grant(&a);
        uint64_t at = 0;
        for (size_t length = 10; length < 100000; at += 2 * length, length *= 5) {
            struct fq_op ops[2] = {write_of(&a, at, length, 0),
                                   write_of(&a, at + length, length, 1)};
            cr_assert_eq(fq_conn_post(a.p.c, ops, 2), 2);
            notified(&a);
            cr_assert_eq(a.map[AT + at + length], 0, "%zu: the next waits", length);
            fq_window_set_floor(a.window, at + length);
            notified(&a);
            cr_assert_eq(memcmp(a.map + AT + at + length, a.bytes + 1, length), 0);
        }
        struct fq_op ops[2] = {write_of(&a, at, 60000, 0), write_of(&a, at, 60000, 1)};
        cr_assert_eq(fq_conn_post(a.p.c, ops, 2), 2);
        notified(&a);
        fq_window_set_floor(a.window, at + 60000);
        cut_off(&a, FLASHQ_ERR_NOT_PERMITTED);
        cr_assert_eq(memcmp(a.map + AT + at, a.bytes, 60000), 0);
        place_close(&a);
    }
}

Test(in_place, what_comes_after_a_retirement_is_thrown_away_until_the_revocation)
{
    FOR_BACKENDS(i)
    {
        struct place a;
        struct fq_fabric_stats stats;
        place_open(&a, backends[i]);
        place_grant(&a);
        put(&a, 0, 1000, 0);
        notified(&a);
        fq_region_unref(a.file);
        a.file = NULL;
        fq_window_retire(a.window);
        fq_window_retire(a.window); /* once is enough */
        cr_assert(a.is_released);
        munmap(a.map, FILE_BYTES); /* nothing may touch it */
        put(&a, 0, 1000, 1);       /* not even the floor counts */
        notified(&a);
        put(&a, 5000, 500000, 1);
        notified(&a);
        cr_assert_eq(fq_window_written(a.window), 1000);
        fq_fabric_get_stats(a.p.server.fabric, &stats);
        if (backends[i] == PAIR_TCP) {
            cr_assert_eq(stats.writes_dropped, 2);
        }
        fq_window_revoke(a.window);
        put(&a, 5000, 100, 1);
        cut_off(&a, FLASHQ_ERR_NOT_PERMITTED);
        a.map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
        cr_assert_eq(memcmp(a.map + AT, a.bytes, 1000), 0);
        cr_assert_eq(a.map[AT + 5000], 0);
        place_close(&a);
    }
}
