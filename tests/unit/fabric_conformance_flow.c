/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fabric must do when queues fill and sides sleep: back-pressure, waking, many idle
 * connections.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "fabric_pair.h"

static enum pair_backend all_backends[] = {PAIR_SHM, PAIR_TCP, PAIR_SHM_FAULTY, PAIR_TCP_FAULTY};

#define for_each_backend(suite, name)                                                              \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(enum pair_backend, all_backends, PAIR_BACKENDS);                \
    }                                                                                              \
    ParameterizedTest(enum pair_backend *backend, suite, name)

static void expect(struct pair *pair, struct fq_conn *conn, enum fq_event_type type, uint32_t imm)
{
    struct pair_event event = pair_wait(pair, conn, type);
    cr_assert_eq(event.event.imm, imm, "%s: imm %u", pair_name(pair->backend), event.event.imm);
    pair_event_free(&event);
}

/* The peer does not poll: posting ends in AGAIN after a bounded amount; once it polls, WRITABLE
 * comes and everything that was taken has arrived in order. */
for_each_backend(flow, a_peer_that_does_not_poll_gives_again_then_writable)
{
    struct pair p;
    static uint8_t bytes[8000];
    pair_open(&p, *backend);
    pair_connect(&p);
    uint32_t sent = 0, received = 0;
    for (int rounds = 0; rounds < 3; rounds++) {
        int r = 0;
        while (r == 0 && sent < 1000000) {
            memcpy(bytes, &sent, sizeof sent);
            r = fq_conn_send(p.c, bytes, sizeof bytes);
            sent += r == 0;
        }
        cr_assert_eq(r, FLASHQ_ERR_AGAIN);
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_WRITABLE);
        cr_assert_eq(fq_conn_send(p.c, bytes, 0), 0, "after WRITABLE there is room");
        bool has_more = true;
        while (has_more) {
            event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
            has_more = event.event.length > 0;
            if (has_more) {
                cr_assert_eq(memcmp(event.bytes, &received, sizeof received), 0);
                received++;
            }
            pair_event_free(&event);
        }
        cr_assert_eq(received, sent);
    }
    struct fq_fabric_stats stats;
    fq_fabric_get_stats(p.client.fabric, &stats);
    cr_assert_geq(stats.again, 3);
    cr_assert_eq(stats.sends, sent + 3);
    pair_close(&p);
}

/* What does not fit is refused even if the transport then takes all that was queued at once: there
 * may be no other event that the poster could wait for. */
for_each_backend(flow, a_post_that_is_taken_in_part_is_followed_by_writable)
{
    enum { OPS = 3000, BYTES = 1100 };
    struct pair p;
    struct fq_err err = {0};
    struct fq_region *target = NULL, *source = NULL;
    struct fq_window *window = NULL;
    struct fq_remote *remote = NULL;
    static struct fq_op ops[OPS];
    pair_open(&p, *backend);
    pair_connect(&p);
    cr_assert_eq(fq_region_create(BYTES, 0, &target, &err), 0, "%s", err.text);
    cr_assert_eq(fq_region_create(BYTES, FQ_REGION_LOCAL, &source, &err), 0, "%s", err.text);
    pair_window(&p, p.s, p.c, target, FQ_RIGHT_WRITE, &window, &remote);
    for (uint32_t i = 0; i < OPS; i++) {
        ops[i] = (struct fq_op){.type = FQ_OP_WRITE_NOTIFY,
                                .remote = remote,
                                .region = source,
                                .local = fq_region_base(source),
                                .length = BYTES,
                                .imm = i};
    }
    for (size_t taken = 0; taken < OPS;) {
        int r = fq_conn_post(p.c, ops + taken, OPS - taken);
        cr_assert(r > 0 || r == FLASHQ_ERR_AGAIN, "%d", r);
        taken += r > 0 ? (size_t)r : 0;
        if (taken < OPS) {
            expect(&p, p.c, FQ_EVENT_WRITABLE, 0);
        }
    }
    for (uint32_t i = 0; i < OPS; i++) {
        expect(&p, p.s, FQ_EVENT_NOTIFY, i);
    }
    fq_region_unref(target);
    fq_region_unref(source);
    pair_close(&p);
}

/* The events that a closed connection still has in the queue leave it, or many that come and go
 * between two polls would fill it. */
Test(flow, connections_that_are_closed_before_a_poll_leave_nothing_in_the_queue)
{
    struct fq_err err = {0};
    struct fq_fabric *fabric = pair_fabric(PAIR_TCP, NULL);
    const struct fq_endpoint nowhere = {
        .transport = FQ_TRANSPORT_TCP, .host = "255.255.255.255", .port = 1};
    const struct fq_connect_params params = {.endpoint = &nowhere, .deadline_us = INT64_MAX};
    for (int i = 0; i < 9000; i++) {
        struct fq_conn *conn = NULL; /* refused at once: DISCONNECTED is queued */
        cr_assert_eq(fq_conn_open(fabric, &params, &conn, &err), 0, "%s", err.text);
        fq_conn_close(conn);
    }
    cr_assert_neq(fq_fabric_next_deadline_us(fabric), 0, "no event waits");
    fq_fabric_destroy(fabric);
}

/* ---- sleep and wake ------------------------------------------------------------------------- */

static bool is_readable(const struct fq_fabric *fabric, int ms)
{
    struct pollfd fd = {.fd = fq_fabric_fd(fabric), .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

static void settle(struct pair *p)
{
    for (int i = 0; i < 20; i++) {
        pair_poll(&p->client);
        pair_poll(&p->server);
    }
}

for_each_backend(flow, an_armed_side_is_woken_and_an_idle_one_stays_asleep)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    settle(&p);
    cr_assert_eq(fq_fabric_arm(p.server.fabric), 0);
    cr_assert_not(is_readable(p.server.fabric, 20), "nothing happened");
    const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = 5};
    cr_assert_eq(fq_conn_post(p.c, &notify, 1), 1);
    cr_assert(is_readable(p.server.fabric, 2000), "%s: a post wakes", pair_name(*backend));
    pair_poll(&p.server);
    expect(&p, p.s, FQ_EVENT_NOTIFY, 5);
    cr_assert_eq(fq_conn_post(p.c, &notify, 1), 1);
    int64_t end = fq_mono_us() + 2000000;
    while (fq_fabric_arm(p.server.fabric) == 0 && fq_mono_us() < end) {
        cr_assert(is_readable(p.server.fabric, 2000));
        break;
    }
    pair_poll(&p.server);
    expect(&p, p.s, FQ_EVENT_NOTIFY, 5);
    pair_close(&p);
}

/* Every side sleeps at random moments; a wake-up that is lost stops the ping-pong. */
for_each_backend(flow, no_wake_up_is_lost_in_a_ping_pong_with_random_sleeping)
{
    struct pair p;
    struct fq_prng prng;
    uint64_t seed = fq_random_u64();
    bool is_shm = pair_transport(*backend) == FQ_TRANSPORT_SHM;
    uint32_t rounds = is_shm ? 100000 : 20000;
    pair_open(&p, *backend);
    pair_connect(&p);
    fq_prng_seed(&prng, seed);
    struct fq_event event;
    for (uint32_t i = 0; i < rounds; i++) {
        struct fq_conn *from = i & 1 ? p.c : p.s;
        struct fq_fabric *to = i & 1 ? p.server.fabric : p.client.fabric;
        uint64_t dice = fq_prng_next(&prng);
        bool is_armed = (dice & 3) == 0 && fq_fabric_arm(to) == 0;
        const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = i};
        cr_assert_eq(fq_conn_post(from, &notify, 1), 1);
        if (is_armed) {
            cr_assert(is_readable(to, 2000), "%s: lost in round %u, seed %llu", pair_name(*backend),
                      i, (unsigned long long)seed);
        }
        int count = 0;
        int64_t end = fq_mono_us() + 2000000;
        while (count == 0 && fq_mono_us() < end) {
            count = fq_fabric_poll(to, &event, 1);
            if (count == 0 && (dice & 4) && fq_fabric_arm(to) == 0) {
                cr_assert(is_readable(to, 2000), "%s: lost in round %u, seed %llu",
                          pair_name(*backend), i, (unsigned long long)seed);
            }
        }
        cr_assert_eq(count, 1, "round %u, seed %llu", i, (unsigned long long)seed);
        cr_assert_eq(event.type, FQ_EVENT_NOTIFY);
        cr_assert_eq(event.imm, i);
    }
    pair_close(&p);
}

/* Whoever polls may have learnt to look at the busy one only: not after it slept. */
for_each_backend(flow, a_quiet_one_is_heard_beside_a_busy_one)
{
    struct pair p;
    struct fq_conn *quiet_c, *quiet_s;
    pair_open(&p, *backend);
    pair_connect(&p);
    pair_connect_more(&p, &quiet_c, &quiet_s);
    settle(&p);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 50; i++) {
            const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = i};
            cr_assert_eq(fq_conn_post(p.c, &notify, 1), 1);
            expect(&p, p.s, FQ_EVENT_NOTIFY, i);
        }
        const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = 1000 + round};
        settle(&p);
        while (round % 2 == 0 && fq_fabric_arm(p.server.fabric) != 0) {
            pair_poll(&p.server);
        }
        cr_assert_eq(fq_conn_post(quiet_c, &notify, 1), 1);
        if (round % 2 == 0) {
            cr_assert(is_readable(p.server.fabric, 2000), "%s", pair_name(*backend));
            fq_fabric_disarm(p.server.fabric);
            pair_poll(&p.server);
            pair_poll(&p.server); /* the decorator hands on in the next one */
            cr_assert(pair_has(&p.server, quiet_s, FQ_EVENT_NOTIFY), "%s: what ended the sleep is there",
                      pair_name(*backend));
        }
        expect(&p, quiet_s, FQ_EVENT_NOTIFY, 1000 + round);
    }
    fq_conn_close(p.s); /* the busy one, by either side */
    p.s = NULL;
    settle(&p);
    const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = 1};
    cr_assert_eq(fq_conn_post(quiet_c, &notify, 1), 1);
    expect(&p, quiet_s, FQ_EVENT_NOTIFY, 1);
    pair_close(&p);
}

/* READs make no event where they are served; who would sleep after every one of them has to know. */
for_each_backend(flow, serving_a_read_counts_as_something_received)
{
    struct pair p;
    struct fq_err err = {0};
    struct fq_region *memory, *target;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    cr_assert_eq(fq_region_create(4096, FQ_REGION_PEER_READS, &memory, &err), 0);
    cr_assert_eq(fq_region_create(4096, FQ_REGION_LOCAL, &target, &err), 0);
    pair_window(&p, p.s, p.c, memory, FQ_RIGHT_READ, &window, &remote);
    settle(&p);
    uint64_t received = fq_fabric_received(p.server.fabric);
    settle(&p);
    cr_assert_eq(fq_fabric_received(p.server.fabric), received, "nothing happened");
    const struct fq_op read = {.type = FQ_OP_READ, .remote = remote, .region = target,
                               .local = fq_region_base(target), .length = 100, .cookie = 9};
    cr_assert_eq(fq_conn_post(p.c, &read, 1), 1);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    pair_event_free(&event);
    bool is_served_here = pair_transport(*backend) != FQ_TRANSPORT_SHM;
    cr_assert_eq(fq_fabric_received(p.server.fabric) > received, is_served_here, "%s",
                 pair_name(*backend));
    fq_region_unref(memory);
    fq_region_unref(target);
    pair_close(&p);
}

/* Whoever spins asks that between polls: it may not miss what a poll of memory would find. */
for_each_backend(flow, news_in_memory_are_seen_without_a_poll)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    settle(&p);
    cr_assert(!fq_fabric_has_news(p.server.fabric), "nothing was posted");
    const struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .imm = 7};
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    bool is_seen = fq_fabric_has_news(p.server.fabric);
    cr_assert(!is_seen || pair_transport(*backend) == FQ_TRANSPORT_SHM, "%s", pair_name(*backend));
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_NOTIFY);
    cr_assert_eq(event.event.imm, 7);
    pair_event_free(&event);
    settle(&p);
    cr_assert(!fq_fabric_has_news(p.server.fabric), "it was taken");
    pair_close(&p);
}

/* A blocked poster sleeps too: room must wake it. */
for_each_backend(flow, room_wakes_a_poster_that_sleeps)
{
    struct pair p;
    static uint8_t bytes[8000];
    pair_open(&p, *backend);
    pair_connect(&p);
    settle(&p);
    while (fq_conn_send(p.c, bytes, sizeof bytes) == 0) {
    }
    struct fq_event event;
    while (fq_fabric_poll(p.client.fabric, &event, 1) > 0) {
    }
    cr_assert_eq(fq_fabric_arm(p.client.fabric), 0);
    bool is_woken = false;
    for (int i = 0; i < 20000 && !is_woken; i++) {
        pair_poll(&p.server);
        is_woken = is_readable(p.client.fabric, 0) && (pair_poll(&p.client), true) &&
                   pair_has(&p.client, p.c, FQ_EVENT_WRITABLE);
        if (!is_woken && fq_fabric_arm(p.client.fabric) == 1) {
            pair_poll(&p.client);
            is_woken = pair_has(&p.client, p.c, FQ_EVENT_WRITABLE);
        }
    }
    cr_assert(is_woken, "%s", pair_name(*backend));
    pair_close(&p);
}

for_each_backend(flow, one_busy_connection_among_hundreds_of_idle_ones)
{
    struct pair p;
    pair_open(&p, *backend);
    struct fq_conn *c[200], *s[200];
    for (int i = 0; i < 200; i++) {
        pair_connect_more(&p, &c[i], &s[i]);
    }
    settle(&p);
    cr_assert_eq(fq_fabric_arm(p.server.fabric), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = i};
        int which = i < 900 ? 17 : (int)(i % 200);
        cr_assert_eq(fq_conn_post(c[which], &notify, 1), 1);
        expect(&p, s[which], FQ_EVENT_NOTIFY, i);
    }
    struct fq_fabric_stats stats;
    fq_fabric_get_stats(p.client.fabric, &stats);
    cr_assert_leq(stats.wakes_paid, 120, "%s: %llu wake-ups for 1000 posts", pair_name(*backend),
                  (unsigned long long)stats.wakes_paid);
    pair_close(&p);
}

/* All have more waiting than one poll hands out; nobody starves behind a busy neighbour. */
for_each_backend(flow, everybody_gets_a_turn)
{
    struct pair p;
    struct fq_conn *c[5], *s[5];
    unsigned got[5] = {0}, total = 0;
    pair_open(&p, *backend);
    for (int i = 0; i < 5; i++) {
        pair_connect_more(&p, &c[i], &s[i]);
    }
    for (uint32_t k = 0; k < 400; k++) {
        for (int i = 0; i < 5; i++) {
            const struct fq_op notify = {.type = FQ_OP_WRITE_NOTIFY, .imm = k};
            cr_assert_eq(fq_conn_post(c[i], &notify, 1), 1);
        }
    }
    int64_t end = fq_mono_us() + 3000000;
    while (total < 200 && fq_mono_us() < end) {
        struct fq_event events[8];
        int count = fq_fabric_poll(p.server.fabric, events, 8);
        for (int k = 0; k < count; k++) {
            for (int i = 0; i < 5; i++) {
                got[i] += events[k].conn == s[i] && events[k].type == FQ_EVENT_NOTIFY;
            }
        }
        total += (unsigned)count;
    }
    for (int i = 0; i < 5; i++) {
        cr_assert_geq(got[i], 20, "%s: connection %d got %u of %u", pair_name(*backend), i, got[i],
                      total);
    }
    pair_close(&p);
}
