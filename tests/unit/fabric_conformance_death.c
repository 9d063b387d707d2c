/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fabric when a peer dies, stops or forks, in every state of a connection, and what is left
 * behind after many connections. The peer is a forked process.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/listener.h"
#include "fabric/tcp/tcp.h"
#include "fabric_pair.h"

static enum pair_backend all_backends[] = {PAIR_SHM, PAIR_TCP, PAIR_SHM_FAULTY, PAIR_TCP_FAULTY};

#define for_each_backend(suite, name)                                                              \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(enum pair_backend, all_backends, PAIR_BACKENDS);                \
    }                                                                                              \
    ParameterizedTest(enum pair_backend *backend, suite, name)

enum peer_does { PEER_CONNECTS_ONLY, PEER_IDLES, PEER_SLEEPS_ARMED, PEER_FLOODS, PEER_HOLDS_BACK };

static void peer_wait(struct fq_fabric *fabric, enum fq_event_type type)
{
    struct fq_event event;
    while (fq_fabric_poll(fabric, &event, 1) != 1 || event.type != type) {
    }
}

/* The life of the peer process; it ends by being killed. */
static void peer_main(const struct pair *pair, enum peer_does what)
{
    struct fq_err err;
    struct fq_conn *conn;
    struct fq_fabric *fabric = pair_fabric(pair->backend, NULL);
    const struct fq_connect_params params = {.endpoint = &pair->endpoint, .deadline_us = INT64_MAX};
    alarm(30);
    if (fq_conn_open(fabric, &params, &conn, &err) < 0) {
        _exit(1);
    }
    static const uint8_t bytes[4000];
    if (what != PEER_CONNECTS_ONLY) {
        peer_wait(fabric, FQ_EVENT_CONNECTED);
    }
    while (what == PEER_FLOODS) { /* messages for ever, polling now and then */
        struct fq_event event;
        if (fq_conn_send(conn, bytes, sizeof bytes) < 0) {
            (void)fq_fabric_poll(fabric, &event, 1);
        }
    }
    if (what == PEER_IDLES || what == PEER_CONNECTS_ONLY) {
        struct fq_event events[8];
        for (;;) {
            (void)fq_fabric_poll(fabric, events, 8);
            usleep(1000);
        }
    }
    if (what == PEER_SLEEPS_ARMED) {
        while (fq_fabric_arm(fabric) != 0) {
            struct fq_event event;
            (void)fq_fabric_poll(fabric, &event, 1);
        }
    }
    for (;;) { /* PEER_HOLDS_BACK: never polls again */
        pause();
    }
}

static pid_t start_peer(const struct pair *pair, enum peer_does what)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        peer_main(pair, what);
        _exit(1);
    }
    return pid;
}

static void kill_peer(pid_t pid)
{
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void accept_peer(struct pair *p)
{
    struct fq_err err = {0};
    cr_assert_eq(fq_fabric_adopt(p->server.fabric, pair_incoming(p), NULL, 0, NULL, &p->s, &err),
                 0);
    struct pair_event event = pair_wait(p, p->s, FQ_EVENT_CONNECTED);
    pair_event_free(&event);
}

static void expect_death(struct pair *p)
{
    struct pair_event event = pair_wait(p, p->s, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_CLOSED, "%s: %d %s", pair_name(p->backend),
                 event.event.status, event.text);
    pair_event_free(&event);
    cr_assert_eq(fq_conn_send(p->s, "x", 1), FLASHQ_ERR_CLOSED);
    fq_conn_close(p->s);
}

for_each_backend(death, of_an_idle_armed_flooding_or_deaf_peer_is_noticed)
{
    for (enum peer_does what = PEER_IDLES; what <= PEER_HOLDS_BACK; what++) {
        struct pair p;
        pair_open(&p, *backend);
        pid_t pid = start_peer(&p, what);
        accept_peer(&p);
        static const uint8_t bytes[4000];
        for (int i = 0; i < 50; i++) {
            pair_poll(&p.server);
            if (what == PEER_HOLDS_BACK) {
                (void)fq_conn_send(p.s, bytes, sizeof bytes); /* in flight when it dies */
            }
            usleep(200);
        }
        kill_peer(pid);
        expect_death(&p);
        pair_close(&p);
    }
}

for_each_backend(death, wakes_a_side_that_sleeps)
{
    struct pair p;
    pair_open(&p, *backend);
    pid_t pid = start_peer(&p, PEER_SLEEPS_ARMED);
    accept_peer(&p);
    for (int i = 0; i < 20; i++) {
        pair_poll(&p.server);
    }
    while (fq_fabric_arm(p.server.fabric) != 0) {
        pair_poll(&p.server);
    }
    struct pollfd fd = {.fd = fq_fabric_fd(p.server.fabric), .events = POLLIN};
    cr_assert_eq(poll(&fd, 1, 20), 0, "%s: asleep while both are idle", pair_name(*backend));
    kill_peer(pid);
    cr_assert_eq(poll(&fd, 1, 3000), 1);
    expect_death(&p);
    pair_close(&p);
}

for_each_backend(death, while_connecting_leaves_nothing)
{
    struct pair p;
    pair_open(&p, *backend);
    size_t fds = count_fds();
    pid_t pid = start_peer(&p, PEER_CONNECTS_ONLY);
    struct fq_incoming *incoming = pair_incoming(&p);
    kill_peer(pid);
    struct fq_err err = {0};
    int r = fq_fabric_adopt(p.server.fabric, incoming, NULL, 0, NULL, &p.s, &err);
    if (r == 0) {
        struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_CONNECTED);
        pair_event_free(&event);
        expect_death(&p);
    }
    cr_assert_eq(count_fds(), fds);
    pair_close(&p);
}

/* What was posted before an orderly close arrives before DISCONNECTED. */
for_each_backend(death, comes_after_what_was_sent_before_it)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(fq_conn_send(p.c, &i, sizeof i), 0);
    }
    fq_conn_close(p.c);
    for (uint32_t i = 0; i < 100; i++) {
        struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
        cr_assert_eq(memcmp(event.bytes, &i, sizeof i), 0);
        cr_assert_not(i < 99 && pair_has(&p.server, p.s, FQ_EVENT_DISCONNECTED) &&
                      !pair_has(&p.server, p.s, FQ_EVENT_MESSAGE));
        pair_event_free(&event);
    }
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_DISCONNECTED);
    pair_event_free(&event);
    pair_close(&p);
}

for_each_backend(death, completes_the_reads_in_flight_before_it_is_told)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    struct fq_region *view, *local;
    struct fq_err err = {0};
    pair_open(&p, *backend);
    pair_connect(&p);
    cr_assert_eq(fq_region_create(1 << 20, FQ_REGION_PEER_READS, &view, &err), 0);
    cr_assert_eq(fq_region_create(1 << 20, FQ_REGION_LOCAL, &local, &err), 0);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &window, &remote);
    for (uint64_t i = 0; i < 10; i++) {
        const struct fq_op op = {.type = FQ_OP_READ,
                                 .remote = remote,
                                 .region = local,
                                 .local = fq_region_base(local),
                                 .length = 1 << 20,
                                 .cookie = i};
        cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    }
    fq_conn_close(p.s);
    for (uint64_t i = 0; i < 10; i++) {
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
        cr_assert_eq(event.event.cookie, i);
        bool is_shm = pair_transport(*backend) == FQ_TRANSPORT_SHM;
        cr_assert_eq(event.event.status, is_shm ? 0 : FLASHQ_ERR_CLOSED);
    }
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    pair_event_free(&event);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

/* case 28: a stopped process is not a dead one. Its kernel still answers, and what is posted
 * meanwhile (here until the queue is full) arrives when it continues. */
for_each_backend(death, is_not_what_a_stopped_peer_is)
{
    struct pair p;
    const struct fq_fabric_params params = {.dead_after_us = 300000};
    pair_open_with(&p, *backend, &params);
    pid_t pid = start_peer(&p, PEER_IDLES);
    accept_peer(&p);
    kill(pid, SIGSTOP);
    static const uint8_t bytes[60000];
    int r = 0;
    int64_t end = fq_mono_us() + 1200000;
    while (fq_mono_us() < end) {
        r = fq_conn_send(p.s, bytes, sizeof bytes);
        pair_poll(&p.server);
        cr_assert_not(pair_has(&p.server, p.s, FQ_EVENT_DISCONNECTED), "%s", pair_name(*backend));
        usleep(1000);
    }
    cr_assert_eq(r, FLASHQ_ERR_AGAIN);
    kill(pid, SIGCONT);
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_WRITABLE);
    pair_event_free(&event);
    kill_peer(pid);
    expect_death(&p);
    pair_close(&p);
}

/* case 42: the child frees and goes; the parent's connection does not notice. */
for_each_backend(death, of_a_forked_child_that_destroys_its_copy_changes_nothing)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    pid_t pid = fork();
    if (pid == 0) {
        fq_conn_close(p.s);
        fq_fabric_destroy(p.client.fabric);
        fq_fabric_destroy(p.server.fabric);
        fq_listener_close(p.listener);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        struct fq_conn *from = i & 1 ? p.c : p.s, *to = i & 1 ? p.s : p.c;
        cr_assert_eq(fq_conn_send(from, &i, sizeof i), 0);
        struct pair_event event = pair_wait(&p, to, FQ_EVENT_MESSAGE);
        pair_event_free(&event);
    }
    struct fq_conn *c2, *s2;
    pair_connect_more(&p, &c2, &s2);
    pair_close(&p);
}

/* A child that lives on holds copies of the descriptors; closing must still reach the peer. */
for_each_backend(death, is_noticed_although_a_child_holds_the_descriptors)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        pause();
        _exit(0);
    }
    fq_conn_close(p.c);
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_DISCONNECTED);
    pair_event_free(&event);
    kill_peer(pid);
    pair_close(&p);
}

for_each_backend(death, many_connections_leave_no_descriptor_and_no_mapping)
{
    struct pair p;
    struct fq_region *ring, *view;
    struct fq_err err = {0};
    pair_open(&p, *backend);
    cr_assert_eq(fq_region_create(8192, FQ_REGION_MIRRORED, &ring, &err), 0);
    cr_assert_eq(fq_region_create(8192, FQ_REGION_PEER_READS, &view, &err), 0);
    size_t fds = 0, maps = 0;
    for (int i = 0; i < 1000; i++) {
        struct fq_window *w1, *w2;
        struct fq_remote *r1, *r2;
        pair_connect(&p);
        pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &w1, &r1);
        pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &w2, &r2);
        if (i % 3 == 0) {
            fq_remote_close(r1);
            fq_window_revoke(w2);
        }
        struct fq_conn *first = i & 1 ? p.c : p.s, *second = i & 1 ? p.s : p.c;
        fq_conn_close(first);
        struct pair_event event = pair_wait(&p, second, FQ_EVENT_DISCONNECTED);
        pair_event_free(&event);
        fq_conn_close(second);
        if (i == 10) {
            fds = count_fds();
            maps = count_maps();
        }
    }
    cr_assert_eq(count_fds(), fds, "%s", pair_name(*backend));
    cr_assert_leq(count_maps(), maps + 2, "%s: %zu -> %zu", pair_name(*backend), maps,
                  count_maps());
    fq_region_unref(ring);
    fq_region_unref(view);
    pair_close(&p);
}

for_each_backend(death, a_closed_connection_gives_no_more_events)
{
    struct pair p;
    struct fq_event events[16];
    int context;
    pair_open(&p, *backend);
    pair_connect(&p);
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(fq_conn_send(p.c, "x", 1), 0);
    }
    fq_conn_set_context(p.s, &context);
    int count = 0;
    while (count == 0) {
        count = fq_fabric_poll(p.server.fabric, events, 2);
    }
    fq_conn_close(p.s); /* while an event of it is still in our hands */
    cr_assert_null(fq_conn_context(events[count - 1].conn));
    fq_conn_close(events[0].conn);
    for (int i = 0; i < 50; i++) {
        cr_assert_eq(fq_fabric_poll(p.server.fabric, events, 16), 0);
    }
    pair_close(&p);
}

/* ---- a network that has gone silent (tcp) --------------------------------------------------- */

/* Every packet that arrives for the socket is thrown away, as behind a cable that was pulled. */
static void pull_cable(int fd)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {.len = 1, .filter = &drop};
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

/* case 43 */
Test(silence, ends_a_busy_connection_within_its_bound)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    struct fq_region *view, *local;
    const struct fq_fabric_params params = {.dead_after_us = 400000};
    pair_open_with(&p, PAIR_TCP, &params);
    pair_connect(&p);
    cr_assert_eq(fq_region_create(4096, FQ_REGION_PEER_READS, &view, NULL), 0);
    cr_assert_eq(fq_region_create(4096, FQ_REGION_LOCAL, &local, NULL), 0);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &window, &remote);
    pull_cable(fq_tcp_conn_of(p.c)->fd);
    pull_cable(fq_tcp_conn_of(p.s)->fd);
    const struct fq_op op = {.type = FQ_OP_READ,
                             .remote = remote,
                             .region = local,
                             .local = fq_region_base(local),
                             .length = 100,
                             .cookie = 5};
    int64_t begin = fq_mono_us();
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    cr_assert_leq(fq_fabric_next_deadline_us(p.client.fabric), begin + 1000000);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    cr_assert_eq(event.event.cookie, 5);
    cr_assert_eq(event.event.status, FLASHQ_ERR_UNREACHABLE);
    event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(event.text, "no sign of life"), "%s", event.text);
    cr_assert_geq(fq_mono_us() - begin, 400000);
    pair_event_free(&event);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

Test(silence, ends_an_idle_connection_too)
{
    struct pair p;
    const struct fq_fabric_params params = {.dead_after_us = 1000000};
    pair_open_with(&p, PAIR_TCP, &params);
    pair_connect(&p);
    pull_cable(fq_tcp_conn_of(p.c)->fd);
    pull_cable(fq_tcp_conn_of(p.s)->fd);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_lt(event.event.status, 0);
    pair_event_free(&event);
    pair_close(&p);
}
