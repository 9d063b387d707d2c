/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fabric must do, tried on each: order, notify after bytes, bounds, rights, tokens,
 * revoked windows, mirrored rings, files, back-pressure, sleep and wake. One set of tests; the
 * parameter is the back end, plain and inside the fault-injecting decorator with no faults.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "fabric_pair.h"

#define MIB (1u << 20)

static enum pair_backend all_backends[] = {PAIR_SHM, PAIR_TCP, PAIR_SHM_FAULTY, PAIR_TCP_FAULTY};

#define for_each_backend(suite, name)                                                              \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(enum pair_backend, all_backends, PAIR_BACKENDS);                \
    }                                                                                              \
    ParameterizedTest(enum pair_backend *backend, suite, name)

static struct fq_region *region(size_t bytes, unsigned flags)
{
    struct fq_region *made = NULL;
    struct fq_err err = {0};
    cr_assert_eq(fq_region_create(bytes, flags, &made, &err), 0, "%s", err.text);
    return made;
}

static void expect(struct pair *pair, struct fq_conn *conn, enum fq_event_type type, uint32_t imm)
{
    struct pair_event event = pair_wait(pair, conn, type);
    cr_assert_eq(event.event.imm, imm, "%s: imm %u", pair_name(pair->backend), event.event.imm);
    pair_event_free(&event);
}

for_each_backend(conformance, hello_and_reply_are_carried_unchanged)
{
    struct pair p;
    struct fq_err err = {0};
    uint8_t hello[FQ_LIMIT_HELLO_BYTES], reply[FQ_LIMIT_HELLO_BYTES];
    pair_open(&p, *backend);
    fq_random_bytes(hello, sizeof hello);
    fq_random_bytes(reply, sizeof reply);
    const struct fq_connect_params params = {.endpoint = &p.endpoint,
                                             .shard = 7,
                                             .hello = hello,
                                             .hello_bytes = sizeof hello,
                                             .deadline_us = INT64_MAX};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    struct fq_incoming *incoming = pair_incoming(&p);
    size_t bytes = 0;
    cr_assert_eq(memcmp(fq_incoming_hello(incoming, &bytes), hello, sizeof hello), 0);
    cr_assert_eq(bytes, sizeof hello);
    cr_assert_eq(fq_incoming_shard(incoming), 7);
    cr_assert_eq(fq_incoming_transport(incoming), pair_transport(*backend));
    int context;
    cr_assert_eq(
        fq_fabric_adopt(p.server.fabric, incoming, reply, sizeof reply, &context, &p.s, &err), 0);
    cr_assert_eq(fq_conn_context(p.s), &context);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_CONNECTED);
    cr_assert_eq(event.event.length, sizeof reply);
    cr_assert_eq(memcmp(event.bytes, reply, sizeof reply), 0);
    pair_event_free(&event);
    expect(&p, p.s, FQ_EVENT_CONNECTED, 0);
    bool is_shm = pair_transport(*backend) == FQ_TRANSPORT_SHM;
    cr_assert_eq(fq_conn_peer_uid(p.s), is_shm ? getuid() : UINT32_MAX);
    cr_assert_eq(strncmp(fq_conn_peer_name(p.s), is_shm ? "shm uid=" : "tcp 127.0.0.1:", 8), 0);
    pair_close(&p);
}

for_each_backend(conformance, a_rejected_connection_says_why)
{
    struct pair p;
    struct fq_err err = {0};
    pair_open(&p, *backend);
    const struct fq_connect_params params = {.endpoint = &p.endpoint, .deadline_us = INT64_MAX};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    cr_assert_eq(fq_conn_send(p.c, "x", 1), FLASHQ_ERR_AGAIN, "not connected yet");
    fq_incoming_reject(pair_incoming(&p), FLASHQ_ERR_LIMIT, "connections: at most 3");
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_LIMIT);
    cr_assert_str_eq(event.text, "connections: at most 3");
    pair_event_free(&event);
    cr_assert_eq(fq_conn_send(p.c, "x", 1), FLASHQ_ERR_CLOSED);
    pair_close(&p);
}

for_each_backend(conformance, a_full_fabric_tells_the_peer_and_goes_on)
{
    struct pair p;
    struct fq_conn *extra;
    struct fq_err err = {0};
    const struct fq_fabric_params full = {.connections_max = 1};
    pair_open_with(&p, *backend, &full);
    pair_connect(&p);
    const struct fq_connect_params params = {.endpoint = &p.endpoint, .deadline_us = INT64_MAX};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &extra, &err), FLASHQ_ERR_LIMIT);
    cr_assert_not_null(strstr(err.text, "at most 1"), "the limit and its value: %s", err.text);
    struct pair_side client = p.client;
    p.client = (struct pair_side){.fabric = pair_fabric(*backend, NULL)};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &extra, &err), 0);
    struct fq_conn *adopted;
    cr_assert_eq(fq_fabric_adopt(p.server.fabric, pair_incoming(&p), NULL, 0, NULL, &adopted, &err),
                 FLASHQ_ERR_LIMIT);
    struct pair_event event = pair_wait(&p, extra, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_LIMIT);
    cr_assert_str_eq(event.text, "connections: at most 1");
    pair_event_free(&event);
    fq_fabric_destroy(p.client.fabric);
    free(p.client.events);
    p.client = client;
    cr_assert_eq(fq_conn_send(p.c, "x", 1), 0);
    event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    pair_close(&p);
}

for_each_backend(conformance, what_was_done_is_counted)
{
    struct pair p;
    struct fq_window *window, *view_window;
    struct fq_remote *remote, *view_remote;
    struct fq_fabric_stats c, s;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(4096, 0), *view = region(4096, FQ_REGION_PEER_READS);
    struct fq_region *local = region(4096, FQ_REGION_LOCAL);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &view_window, &view_remote);
    void *here = fq_region_base(local);
    const struct fq_op ops[] = {
        {.type = FQ_OP_WRITE, .remote = remote, .region = local, .local = here, .length = 1000},
        {.type = FQ_OP_WRITE_NOTIFY,
         .remote = remote,
         .region = local,
         .local = here,
         .length = 24},
        {.type = FQ_OP_WRITE_NOTIFY},
        {.type = FQ_OP_READ, .remote = view_remote, .region = local, .local = here, .length = 300},
        {.type = FQ_OP_SEND, .local = here, .length = 50}};
    cr_assert_eq(fq_conn_post(p.c, ops, 5), 5);
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    fq_fabric_get_stats(p.client.fabric, &c);
    fq_fabric_get_stats(p.server.fabric, &s);
    cr_assert_eq(c.connections, 1);
    cr_assert_eq(c.writes, 2);
    cr_assert_eq(c.write_bytes, 1024);
    cr_assert_eq(c.notifies, 2);
    cr_assert_eq(c.reads, 1);
    cr_assert_eq(c.read_bytes, 300);
    cr_assert_eq(c.sends, 1);
    cr_assert_eq(c.send_bytes, 50);
    cr_assert_eq(c.messages_in, 2);
    cr_assert_eq(s.notifies_in, 2);
    cr_assert_eq(s.messages_in, 1);
    cr_assert_eq(s.message_bytes_in, 50);
    if (*backend == PAIR_TCP) {
        cr_assert_eq(s.writes_in, 2);
        cr_assert_eq(s.write_bytes_in, 1024);
        cr_assert_eq(s.reads_in, 1);
        cr_assert_eq(s.read_bytes_in, 300);
    }
    fq_region_unref(ring);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

for_each_backend(conformance, nobody_there_is_unreachable_by_the_deadline)
{
    struct pair p;
    struct fq_err err = {0};
    pair_open(&p, *backend);
    fq_listener_close(p.listener);
    const struct fq_connect_params params = {.endpoint = &p.endpoint,
                                             .deadline_us = fq_mono_us() + 2000000};
    int r = fq_conn_open(p.client.fabric, &params, &p.c, &err);
    if (r == 0) {
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
        r = event.event.status;
        pair_event_free(&event);
    }
    cr_assert_eq(r, FLASHQ_ERR_UNREACHABLE);
    const struct fq_listen_params listen = {.endpoint = &p.endpoint};
    cr_assert_eq(fq_listener_open(&listen, &p.listener, &err), 0, "%s", err.text);
    pair_close(&p);
}

for_each_backend(conformance, a_listener_that_never_answers_ends_by_the_deadline)
{
    struct pair p;
    struct fq_err err = {0};
    pair_open(&p, *backend);
    int64_t begin = fq_mono_us();
    const struct fq_connect_params params = {.endpoint = &p.endpoint, .deadline_us = begin + 50000};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    cr_assert_leq(fq_fabric_next_deadline_us(p.client.fabric), begin + 50000);
    struct pair_event event =
        pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED); /* nobody polls the listener */
    cr_assert_eq(event.event.status, FLASHQ_ERR_TIMED_OUT);
    cr_assert_geq(fq_mono_us(), begin + 50000);
    pair_event_free(&event);
    pair_close(&p);
}

for_each_backend(conformance, messages_of_all_sizes_arrive_in_order_and_whole)
{
    struct pair p;
    struct fq_prng prng;
    static uint8_t bytes[FQ_LIMIT_CONTROL_BYTES + 1];
    uint64_t seed = fq_random_u64();
    static const size_t edges[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, 65535, FQ_LIMIT_CONTROL_BYTES};
    pair_open(&p, *backend);
    pair_connect(&p);
    fq_prng_seed(&prng, seed);
    for (unsigned i = 0; i < 300; i++) {
        size_t length =
            i < 10 ? edges[i] : (size_t)fq_prng_below(&prng, i % 7 ? 200 : sizeof bytes);
        memset(bytes, (int)i, length);
        struct fq_conn *from = i & 1 ? p.c : p.s, *to = i & 1 ? p.s : p.c;
        cr_assert_eq(fq_conn_send(from, bytes, length), 0);
        struct pair_event event = pair_wait(&p, to, FQ_EVENT_MESSAGE);
        cr_assert_eq(event.event.length, length, "%s: seed %llu", pair_name(*backend),
                     (unsigned long long)seed);
        cr_assert(length == 0 || memcmp(event.bytes, bytes, length) == 0, "seed %llu",
                  (unsigned long long)seed);
        pair_event_free(&event);
    }
    cr_assert_eq(fq_conn_send(p.c, bytes, sizeof bytes), FLASHQ_ERR_TOO_LARGE);
    pair_close(&p);
}

/* Each write stamps a counter; when notify i is delivered, everything up to i must be there, and
 * the notifies and messages come in the order they were posted. */
for_each_backend(conformance, a_notify_comes_after_the_bytes_written_before_it)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(MIB, FQ_REGION_MIRRORED), *local = region(MIB, FQ_REGION_LOCAL);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    const uint8_t *there = fq_region_base(ring);
    uint8_t *here = fq_region_base(local);
    static const size_t sizes[] = {8, 100, 5000, 200000};
    uint32_t notified = 0, messages = 0;
    for (uint32_t i = 0; i < 200; i++) {
        size_t length = sizes[i % 4];
        memset(here + i % 4 * (MIB / 4), (int)i, length);
        const struct fq_op ops[] = {{.type = FQ_OP_WRITE,
                                     .remote = remote,
                                     .remote_offset = i % 4 * (MIB / 4),
                                     .region = local,
                                     .local = here + i % 4 * (MIB / 4),
                                     .length = length},
                                    {.type = FQ_OP_WRITE_NOTIFY,
                                     .remote = remote,
                                     .remote_offset = MIB - 8,
                                     .local = &i,
                                     .length = 4,
                                     .imm = i,
                                     .signaled = true,
                                     .cookie = i},
                                    {.type = FQ_OP_SEND, .local = &i, .length = 4}};
        cr_assert_eq(fq_conn_post(p.c, ops, 3), 3);
        while (messages <= i) {
            struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_NOTIFY);
            cr_assert_eq(event.event.imm, notified++);
            cr_assert_eq(there[i % 4 * (MIB / 4)], (uint8_t)i);
            cr_assert_eq(there[i % 4 * (MIB / 4) + length - 1], (uint8_t)i);
            uint32_t last;
            memcpy(&last, there + MIB - 8, 4);
            cr_assert_eq(last, i);
            event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
            cr_assert_eq(memcmp(event.bytes, &messages, 4), 0);
            messages++;
            pair_event_free(&event);
        }
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
        cr_assert_eq(event.event.cookie, i);
        cr_assert_eq(event.event.status, 0);
    }
    fq_region_unref(ring);
    fq_region_unref(local);
    pair_close(&p);
}

for_each_backend(conformance, a_bare_notify_needs_no_window)
{
    struct pair p;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_op ops[50];
    for (uint32_t i = 0; i < 50; i++) {
        ops[i] = (struct fq_op){.type = FQ_OP_WRITE_NOTIFY, .imm = UINT32_MAX - i};
    }
    cr_assert_eq(fq_conn_post(p.s, ops, 50), 50);
    for (uint32_t i = 0; i < 50; i++) {
        expect(&p, p.c, FQ_EVENT_NOTIFY, UINT32_MAX - i);
    }
    pair_close(&p);
}

for_each_backend(conformance, reads_bring_the_bytes_of_all_sizes)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *view = region(4 * MIB, FQ_REGION_PEER_READS);
    struct fq_region *local = region(4 * MIB, FQ_REGION_LOCAL);
    fq_random_bytes(fq_region_base(view), 4 * MIB);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &window, &remote);
    cr_assert_eq(fq_remote_bytes(remote), 4 * MIB);
    static const size_t at[][2] = {{0, 1},       {8, 64},          {100, 4096}, {1, 4 * MIB - 1},
                                   {0, 4 * MIB}, {4 * MIB - 1, 1}, {4 * MIB, 0}};
    uint8_t *here = fq_region_base(local);
    const uint8_t *there = fq_region_base(view);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        memset(here, 0, 4 * MIB);
        const struct fq_op op = {.type = FQ_OP_READ,
                                 .remote = remote,
                                 .remote_offset = at[i][0],
                                 .region = local,
                                 .local = here,
                                 .length = at[i][1],
                                 .cookie = i};
        cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
        cr_assert_eq(event.event.cookie, i);
        cr_assert_eq(event.event.status, 0);
        cr_assert_eq(memcmp(here, there + at[i][0], at[i][1]), 0);
    }
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

for_each_backend(conformance, several_reads_in_flight_complete_with_their_own_bytes)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *view = region(MIB, FQ_REGION_PEER_READS),
                     *local = region(MIB, FQ_REGION_LOCAL);
    fq_random_bytes(fq_region_base(view), MIB);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &window, &remote);
    struct fq_op ops[64];
    uint8_t *here = fq_region_base(local);
    for (size_t i = 0; i < 64; i++) {
        ops[i] = (struct fq_op){.type = FQ_OP_READ,
                                .remote = remote,
                                .remote_offset = i * 16384,
                                .region = local,
                                .local = here + i * 16384,
                                .length = 16384,
                                .cookie = i};
    }
    cr_assert_eq(fq_conn_post(p.c, ops, 64), 64);
    for (size_t i = 0; i < 64; i++) {
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
        cr_assert_eq(event.event.status, 0);
        cr_assert_eq(event.event.cookie, i);
    }
    cr_assert_eq(memcmp(here, fq_region_base(view), MIB), 0);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

for_each_backend(conformance, one_byte_outside_the_window_is_refused_here)
{
    struct pair p;
    struct fq_window *windows[3];
    struct fq_remote *plain, *ring, *view;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *regions[] = {region(8192, 0), region(8192, FQ_REGION_MIRRORED),
                                   region(8192, FQ_REGION_PEER_READS),
                                   region(MIB, FQ_REGION_LOCAL)};
    pair_window(&p, p.s, p.c, regions[0], FQ_RIGHT_WRITE, &windows[0], &plain);
    pair_window(&p, p.s, p.c, regions[1], FQ_RIGHT_WRITE, &windows[1], &ring);
    pair_window(&p, p.s, p.c, regions[2], FQ_RIGHT_READ, &windows[2], &view);
    const struct {
        struct fq_remote *remote;
        enum fq_op_type type;
        uint64_t offset;
        size_t length;
        int expected;
    } tries[] = {
        {plain, FQ_OP_WRITE, 0, 8192, 1},
        {plain, FQ_OP_WRITE, 0, 8193, FLASHQ_ERR_OUT_OF_RANGE},
        {plain, FQ_OP_WRITE, 1, 8192, FLASHQ_ERR_OUT_OF_RANGE},
        {plain, FQ_OP_WRITE, 8191, 1, 1},
        {plain, FQ_OP_WRITE, 8192, 1, FLASHQ_ERR_OUT_OF_RANGE},
        {plain, FQ_OP_WRITE, UINT64_MAX, 1, FLASHQ_ERR_OUT_OF_RANGE},
        {plain, FQ_OP_WRITE, UINT64_MAX - 7, 8192, FLASHQ_ERR_OUT_OF_RANGE},
        {ring, FQ_OP_WRITE, 8192, 8192, 1},
        {ring, FQ_OP_WRITE, 8193, 8192, FLASHQ_ERR_OUT_OF_RANGE},
        {ring, FQ_OP_WRITE, 0, 8193, FLASHQ_ERR_OUT_OF_RANGE},
        {view, FQ_OP_READ, 8191, 2, FLASHQ_ERR_OUT_OF_RANGE},
        {view, FQ_OP_READ, 0, 8192, 1},
        {plain, FQ_OP_READ, 0, 8, FLASHQ_ERR_NOT_PERMITTED},
        {view, FQ_OP_WRITE, 0, 8, FLASHQ_ERR_NOT_PERMITTED},
        {view, FQ_OP_WRITE_NOTIFY, 0, 0, FLASHQ_ERR_NOT_PERMITTED},
        {NULL, FQ_OP_WRITE, 0, 8, FLASHQ_ERR_INVALID},
        {NULL, FQ_OP_WRITE_NOTIFY, 0, 8, FLASHQ_ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        const struct fq_op op = {.type = tries[i].type,
                                 .remote = tries[i].remote,
                                 .remote_offset = tries[i].offset,
                                 .region = regions[3],
                                 .local = fq_region_base(regions[3]),
                                 .length = tries[i].length};
        cr_assert_eq(fq_conn_post(p.c, &op, 1), tries[i].expected, "%s: try %zu",
                     pair_name(*backend), i);
    }
    struct fq_op foreign = {.type = FQ_OP_WRITE,
                            .remote = plain,
                            .region = regions[0],
                            .local = (uint8_t *)fq_region_base(regions[3]),
                            .length = 100};
    cr_assert_eq(fq_conn_post(p.c, &foreign, 1), FLASHQ_ERR_INVALID, "local is not in its region");
    cr_assert_eq(fq_conn_post(p.s, &foreign, 1), FLASHQ_ERR_INVALID, "another connection's window");
    cr_assert_eq(fq_conn_send(p.c, "alive", 5), 0);
    struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    for (size_t i = 0; i < 4; i++) {
        fq_region_unref(regions[i]);
    }
    pair_close(&p);
}

for_each_backend(conformance, what_may_not_be_granted_is_refused)
{
    struct pair p;
    struct fq_window *window;
    uint8_t token[FQ_TOKEN_BYTES];
    struct fq_err err = {0};
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *plain = region(8192, 0), *view = region(8192, FQ_REGION_PEER_READS);
    struct fq_region *local = region(8192, FQ_REGION_LOCAL);
    const struct {
        struct fq_region *region;
        uint64_t offset, bytes;
        unsigned rights;
    } tries[] = {{plain, 0, 8193, FQ_RIGHT_WRITE},
                 {plain, 8192, 1, FQ_RIGHT_WRITE},
                 {plain, 0, 0, FQ_RIGHT_WRITE},
                 {plain, UINT64_MAX, 2, FQ_RIGHT_WRITE},
                 {plain, 0, 8192, 0},
                 {plain, 0, 8192, 4},
                 {plain, 0, 8192, FQ_RIGHT_READ},
                 {view, 0, 8192, FQ_RIGHT_WRITE},
                 {view, 0, 8192, FQ_RIGHT_READ | FQ_RIGHT_WRITE},
                 {local, 0, 8192, FQ_RIGHT_WRITE}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        cr_assert_eq(fq_window_grant(p.s, tries[i].region, tries[i].offset, tries[i].bytes,
                                     (enum fq_rights)tries[i].rights, &window, token, &err),
                     FLASHQ_ERR_INVALID, "%s: try %zu", pair_name(*backend), i);
    }
    fq_region_unref(plain);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

/* A token that was made up, belongs to another connection or asks for more opens nothing, or what
 * it opens breaks the connection at its first use and touches no byte. */
for_each_backend(conformance, foreign_and_random_tokens_give_nothing)
{
    struct pair p;
    struct fq_conn *c2, *s2;
    struct fq_window *window;
    struct fq_remote *remote;
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES], random_token[FQ_TOKEN_BYTES];
    pair_open(&p, *backend);
    pair_connect(&p);
    pair_connect_more(&p, &c2, &s2);
    struct fq_region *plain = region(4096, 0);
    cr_assert_eq(fq_window_grant(p.s, plain, 0, 4096, FQ_RIGHT_WRITE, &window, token, &err), 0);
    fq_random_bytes(random_token, sizeof random_token);
    cr_assert_lt(fq_remote_open(p.c, random_token, FQ_RIGHT_WRITE, &remote, &err), 0);
    memset(random_token, 0, sizeof random_token);
    cr_assert_lt(fq_remote_open(p.c, random_token, FQ_RIGHT_WRITE, &remote, &err), 0);
    pair_poll(&p.client);
    cr_assert_eq(fq_remote_open(p.c, token, FQ_RIGHT_READ, &remote, &err),
                 FLASHQ_ERR_NOT_PERMITTED);
    for (int i = 0; i < 2; i++) {
        struct fq_conn *conn = i ? p.c : c2;
        if (i) {
            token[8] ^= 1; /* the key */
        }
        int r = fq_remote_open(conn, token, FQ_RIGHT_WRITE, &remote, &err);
        if (r == 0) {
            uint64_t word = UINT64_MAX;
            const struct fq_op op = {
                .type = FQ_OP_WRITE, .remote = remote, .local = &word, .length = 8};
            cr_assert_eq(fq_conn_post(conn, &op, 1), 1);
            struct pair_event event = pair_wait(&p, conn, FQ_EVENT_DISCONNECTED);
            r = event.event.status;
            cr_assert_str_eq(event.text, "no such window: wrong key, or revoked");
            pair_event_free(&event);
            cr_assert_eq(r, FLASHQ_ERR_NOT_PERMITTED);
        } else {
            cr_assert_eq(r, FLASHQ_ERR_NOT_FOUND);
        }
    }
    cr_assert_eq(*(uint64_t *)fq_region_base(plain), 0);
    fq_region_unref(plain);
    pair_close(&p);
}

for_each_backend(conformance, a_revoked_window_fails_at_the_initiator)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(4096, 0);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    fq_window_revoke(window);
    cr_assert_eq(fq_conn_send(p.s, "revoked", 7), 0);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_MESSAGE); /* the revocation came before */
    pair_event_free(&event);
    uint64_t word = 1;
    const struct fq_op op = {.type = FQ_OP_WRITE, .remote = remote, .local = &word, .length = 8};
    cr_assert_eq(fq_conn_post(p.c, &op, 1), FLASHQ_ERR_NOT_PERMITTED);
    cr_assert_eq(fq_conn_send(p.c, "alive", 5), 0, "the connection lives on");
    event = pair_wait(&p, p.s, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    fq_region_unref(ring);
    pair_close(&p);
}

/* One that was on its way: over tcp the peer refuses it and the connection breaks, as a queue pair
 * does; over shm it lands in memory that the owner never looks at again. */
for_each_backend(conformance, a_write_that_crosses_a_revocation_reaches_nothing_of_the_owner)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(4096, 0);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    uint64_t word = 1;
    const struct fq_op op = {.type = FQ_OP_WRITE, .remote = remote, .local = &word, .length = 8};
    fq_window_revoke(window);
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1, "it cannot know yet");
    if (pair_transport(*backend) == FQ_TRANSPORT_TCP) {
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
        cr_assert_eq(event.event.status, FLASHQ_ERR_NOT_PERMITTED);
        pair_event_free(&event);
        event = pair_wait(&p, p.s, FQ_EVENT_DISCONNECTED);
        cr_assert_eq(event.event.status, FLASHQ_ERR_NOT_PERMITTED);
        pair_event_free(&event);
        cr_assert_eq(*(uint64_t *)fq_region_base(ring), 0);
    }
    fq_region_unref(ring);
    pair_close(&p);
}

for_each_backend(conformance, a_mirrored_ring_takes_batches_across_its_end)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    pair_open(&p, *backend);
    pair_connect(&p);
    const size_t bytes = 64 << 10;
    struct fq_region *ring = region(bytes, FQ_REGION_MIRRORED),
                     *local = region(bytes, FQ_REGION_LOCAL);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    const uint8_t *there = fq_region_base(ring);
    uint8_t *here = fq_region_base(local);
    struct fq_prng prng;
    fq_prng_seed(&prng, 11);
    uint64_t position = 0;
    for (uint32_t i = 0; i < 200; i++) {
        size_t length = 1 + (size_t)fq_prng_below(&prng, 30000);
        fq_random_bytes(here, length);
        const struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY,
                                 .remote = remote,
                                 .remote_offset = position % bytes,
                                 .region = local,
                                 .local = here,
                                 .length = length,
                                 .imm = i};
        cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
        expect(&p, p.s, FQ_EVENT_NOTIFY, i);
        cr_assert_eq(memcmp(there + position % bytes, here, length), 0);
        position += length;
    }
    fq_region_unref(ring);
    fq_region_unref(local);
    pair_close(&p);
}

static int released;
static void note_release(void *context)
{
    released += *(int *)context;
}

for_each_backend(conformance, a_file_is_read_through_its_window_and_never_written)
{
    struct pair p;
    struct fq_window *window;
    struct fq_remote *remote;
    struct fq_err err = {0};
    struct fq_region *file_region, *local = region(3 * MIB, FQ_REGION_LOCAL);
    uint8_t token[FQ_TOKEN_BYTES];
    char path[128];
    int one = 1;
    pair_open(&p, *backend);
    pair_connect(&p);
    (void)snprintf(path, sizeof path, "%s/segment", p.directory);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_eq(ftruncate(fd, 3 * MIB), 0);
    uint8_t *map = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    fq_random_bytes(map, 3 * MIB);
    released = 0;
    cr_assert_eq(fq_region_wrap_file(fd, map, 3 * MIB, note_release, &one, &file_region, &err), 0);
    cr_assert_eq(fq_window_grant(p.c, file_region, 0, 4096, FQ_RIGHT_READ, &window, token, &err),
                 FLASHQ_ERR_INVALID, "the side that connected may not grant files");
    cr_assert_eq(
        fq_window_grant(p.s, file_region, 4096, 2 * MIB + 100, FQ_RIGHT_READ, &window, token, &err),
        0, "%s", err.text);
    cr_assert_eq(fq_conn_send(p.s, token, sizeof token), 0);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_MESSAGE);
    cr_assert_eq(fq_remote_open(p.c, event.bytes, FQ_RIGHT_WRITE, &remote, &err),
                 FLASHQ_ERR_NOT_PERMITTED);
    cr_assert_eq(fq_remote_open(p.c, event.bytes, FQ_RIGHT_READ, &remote, &err), 0, "%s", err.text);
    pair_event_free(&event);
    map[4096] = 77; /* the owner appends after the peer has mapped it */
    const struct fq_op op = {.type = FQ_OP_READ,
                             .remote = remote,
                             .region = local,
                             .local = fq_region_base(local),
                             .length = 2 * MIB + 100};
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    cr_assert_eq(memcmp(fq_region_base(local), map + 4096, 2 * MIB + 100), 0);
    fq_region_unref(file_region);
    cr_assert_eq(released, 0, "the window holds it");
    fq_window_revoke(window);
    for (int i = 0; i < 100 && released == 0; i++) {
        pair_poll(&p.server);
    }
    cr_assert_eq(released, 1);
    (void)unlink(path);
    close(fd);
    munmap(map, 3 * MIB);
    fq_region_unref(local);
    pair_close(&p);
}

/* Larger than one frame may be: it arrives whole, and the notify after its last byte. */
for_each_backend(conformance, operations_larger_than_a_frame)
{
    struct pair p;
    struct fq_window *window, *view_window;
    struct fq_remote *remote, *view_remote;
    const size_t bytes = 2 * FQ_LIMIT_FABRIC_FRAME_BYTES + 5 * 4096;
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(bytes, 0), *local = region(bytes, FQ_REGION_LOCAL);
    struct fq_region *view = region(bytes, FQ_REGION_PEER_READS);
    pair_window(&p, p.s, p.c, ring, FQ_RIGHT_WRITE, &window, &remote);
    pair_window(&p, p.s, p.c, view, FQ_RIGHT_READ, &view_window, &view_remote);
    fq_random_bytes(fq_region_base(local), bytes);
    fq_random_bytes(fq_region_base(view), bytes);
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY,
                       .remote = remote,
                       .remote_offset = 1,
                       .region = local,
                       .local = fq_region_base(local),
                       .length = bytes - 1,
                       .imm = 3,
                       .cookie = 1,
                       .signaled = true};
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    expect(&p, p.s, FQ_EVENT_NOTIFY, 3);
    cr_assert_eq(memcmp((uint8_t *)fq_region_base(ring) + 1, fq_region_base(local), bytes - 1), 0);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    op = (struct fq_op){.type = FQ_OP_READ,
                        .remote = view_remote,
                        .region = local,
                        .local = fq_region_base(local),
                        .length = bytes,
                        .cookie = 2};
    cr_assert_eq(fq_conn_post(p.c, &op, 1), 1);
    event = pair_wait(&p, p.c, FQ_EVENT_COMPLETED);
    cr_assert_eq(event.event.cookie, 2);
    cr_assert_eq(memcmp(fq_region_base(view), fq_region_base(local), bytes), 0);
    cr_assert_not(pair_has(&p.client, p.c, FQ_EVENT_COMPLETED), "one completion an operation");
    fq_region_unref(ring);
    fq_region_unref(view);
    fq_region_unref(local);
    pair_close(&p);
}

/* More windows than a socket holds descriptors for, to a peer that does not poll meanwhile: each
 * token can be opened when it arrives, and what is revoked cannot. */
for_each_backend(conformance, many_windows_granted_at_once)
{
    struct pair p;
    struct fq_err err = {0};
    enum { COUNT = 900 };
    static struct fq_window *windows[COUNT];
    static struct fq_remote *remotes[COUNT];
    uint8_t token[FQ_TOKEN_BYTES];
    pair_open(&p, *backend);
    pair_connect(&p);
    struct fq_region *ring = region(4096, 0);
    size_t fds = count_fds();
    for (uint32_t i = 0; i < COUNT; i++) {
        cr_assert_eq(fq_window_grant(p.s, ring, 0, 4096, FQ_RIGHT_WRITE, &windows[i], token, &err),
                     0, "%u: %s", i, err.text);
        int r = fq_conn_send(p.s, token, sizeof token);
        while (r == FLASHQ_ERR_AGAIN) {
            struct pair_event event = pair_wait(&p, p.s, FQ_EVENT_WRITABLE);
            pair_event_free(&event);
            r = fq_conn_send(p.s, token, sizeof token);
        }
        cr_assert_eq(r, 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_MESSAGE);
        cr_assert_eq(fq_remote_open(p.c, event.bytes, FQ_RIGHT_WRITE, &remotes[i], &err), 0,
                     "%u: %s", i, err.text);
        pair_event_free(&event);
    }
    cr_assert_eq(count_fds(), fds, "an opened window keeps no descriptor");
    for (uint32_t i = 0; i < COUNT; i += 2) {
        fq_window_revoke(windows[i]);
    }
    int r = fq_conn_send(p.s, "revoked", 7);
    while (r == FLASHQ_ERR_AGAIN) {
        struct pair_event writable = pair_wait(&p, p.s, FQ_EVENT_WRITABLE);
        pair_event_free(&writable);
        r = fq_conn_send(p.s, "revoked", 7);
    }
    cr_assert_eq(r, 0);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    for (uint64_t i = 0; i < COUNT; i++) {
        const struct fq_op op = {
            .type = FQ_OP_WRITE, .remote = remotes[i], .local = &i, .length = 8};
        cr_assert_eq(fq_conn_post(p.c, &op, 1), i % 2 ? 1 : FLASHQ_ERR_NOT_PERMITTED, "%u",
                     (unsigned)i);
    }
    fq_region_unref(ring);
    pair_close(&p);
}
