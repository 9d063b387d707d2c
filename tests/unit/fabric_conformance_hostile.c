/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that keep to the handshake and to nothing after it: raw sockets that speak tcp frames, and
 * raw processes with a mapping of the shm rings. Each gets a code and a text, is counted, and is
 * cut off; another connection of the same fabric goes on.
 */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "fabric/hello.h"
#include "fabric/shm/shm.h"
#include "fabric/sock.h"
#include "fabric/tcp/tcp.h"
#include "fabric_pair.h"

struct raw {
    struct pair pair;     /* pair.c and pair.s are the innocent connection */
    int fd;               /* the hostile one */
    struct fq_conn *conn; /* what the server has of it */
    struct fq_shm_layout *layout;
    int ring_fd;
};

static int raw_connect(const struct fq_endpoint *endpoint)
{
    int r, fd;
    if (endpoint->transport == FQ_TRANSPORT_TCP) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons(endpoint->port),
                                      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect(fd, (struct sockaddr *)&address, sizeof address);
    } else {
        struct sockaddr_un address;
        socklen_t length;
        cr_assert(fq_sock_unix_address(endpoint->path, &address, &length));
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect(fd, (struct sockaddr *)&address, length);
    }
    cr_assert_eq(r, 0);
    return fd;
}

static void say_hello(struct raw *raw, int ring_fd)
{
    const struct fq_hello_frame hello = {.transport = raw->pair.endpoint.transport,
                                         .ring_bytes = FQ_SHM_RING_BYTES};
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    size_t length = fq_hello_frame_encode(&hello, bytes);
    cr_assert_eq(fq_sock_send_fd(raw->fd, bytes, length, ring_fd), (ssize_t)length);
}

static void read_reply(struct raw *raw, struct fq_reply_frame *reply)
{
    struct fq_reply_reader reader = {.have = 0};
    struct pollfd fd = {.fd = raw->fd, .events = POLLIN};
    int r = 0;
    while (r == 0) {
        cr_assert_eq(poll(&fd, 1, 3000), 1);
        r = fq_reply_read(&reader, raw->fd, reply);
    }
    cr_assert_eq(r, 1);
}

static void raw_open(struct raw *raw, enum pair_backend backend)
{
    struct fq_err err = {0};
    memset(raw, 0, sizeof *raw);
    raw->ring_fd = -1;
    pair_open(&raw->pair, backend);
    pair_connect(&raw->pair);
    raw->fd = raw_connect(&raw->pair.endpoint);
    if (backend == PAIR_SHM) {
        raw->ring_fd = fq_memfd_create(sizeof *raw->layout, false, &err);
        cr_assert_eq(fcntl(raw->ring_fd, F_ADD_SEALS, FQ_MEMFD_SEALS), 0);
        cr_assert_eq(fq_shm_map_rings(raw->ring_fd, &raw->layout, &err), 0);
    }
    say_hello(raw, raw->ring_fd);
    struct fq_incoming *incoming = pair_incoming(&raw->pair);
    cr_assert_eq(
        fq_fabric_adopt(raw->pair.server.fabric, incoming, NULL, 0, NULL, &raw->conn, &err), 0,
        "%s", err.text);
    struct pair_event event = pair_wait(&raw->pair, raw->conn, FQ_EVENT_CONNECTED);
    pair_event_free(&event);
    struct fq_reply_frame reply;
    read_reply(raw, &reply);
    cr_assert_eq(reply.status, 0);
}

static void raw_close(struct raw *raw)
{
    cr_assert_eq(fq_conn_send(raw->pair.c, "alive", 5), 0);
    struct pair_event event = pair_wait(&raw->pair, raw->pair.s, FQ_EVENT_MESSAGE);
    pair_event_free(&event);
    if (raw->fd >= 0) {
        close(raw->fd);
    }
    if (raw->layout) {
        munmap(raw->layout, sizeof *raw->layout);
        close(raw->ring_fd);
    }
    pair_close(&raw->pair);
}

static void expect_cut(struct raw *raw, int code, const char *why)
{
    struct pair_event event = pair_wait(&raw->pair, raw->conn, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, code, "%s: %d %s", why, event.event.status, event.text);
    cr_assert_neq(event.text[0], '\0');
    pair_event_free(&event);
    fq_conn_close(raw->conn);
}

/* ---- tcp ------------------------------------------------------------------------------------ */

static void put_frame(uint8_t out[FQ_TCP_HEADER_BYTES], const struct fq_tcp_frame *frame,
                      uint8_t flags)
{
    memset(out, 0, FQ_TCP_HEADER_BYTES);
    out[0] = frame->op;
    out[1] = flags;
    fq_store_le32(out + 4, frame->length);
    fq_store_le32(out + 8, frame->imm);
    fq_store_le32(out + 12, frame->window);
    fq_store_le64(out + 16, frame->key);
    fq_store_le64(out + 24, frame->offset);
}

/* Reads the ERROR frame and the end of the stream. */
static void expect_error_frame(struct raw *raw, int code)
{
    uint8_t bytes[FQ_TCP_HEADER_BYTES + FQ_REASON_TEXT_BYTES];
    size_t have = 0;
    int64_t end = fq_mono_us() + 3000000;
    while (have < sizeof bytes && fq_mono_us() < end) {
        ssize_t n = fq_sock_recv(raw->fd, bytes + have, sizeof bytes - have);
        if (n == 0) {
            break;
        }
        cr_assert(n > 0 || errno == EAGAIN, "%s", strerror(errno));
        have += n > 0 ? (size_t)n : 0;
        pair_poll(&raw->pair.server);
    }
    cr_assert_gt(have, FQ_TCP_HEADER_BYTES);
    cr_assert_eq(bytes[0], FQ_TCP_ERROR);
    cr_assert_eq((int32_t)fq_load_le32(bytes + 8), code);
    cr_assert_eq(fq_load_le32(bytes + 4), have - FQ_TCP_HEADER_BYTES);
}

enum { KEY = 1, RIGHTS, BOUNDS, MALFORMED };
static const struct {
    struct fq_tcp_frame frame;
    uint8_t flags;
    int code, counter;
} lying_frames[] = {
    {{.op = FQ_TCP_WRITE, .length = 8, .window = 0}, 0, FLASHQ_ERR_NOT_PERMITTED, KEY},
    {{.op = FQ_TCP_WRITE, .length = 8, .window = 2}, 0, FLASHQ_ERR_NOT_PERMITTED, KEY},
    {{.op = FQ_TCP_WRITE, .length = 8, .window = UINT32_MAX}, 0, FLASHQ_ERR_NOT_PERMITTED, KEY},
    {{.op = FQ_TCP_READ, .length = 8, .window = 7}, 0, FLASHQ_ERR_NOT_PERMITTED, KEY},
    {{.op = FQ_TCP_READ, .length = 8, .key = 1}, 0, FLASHQ_ERR_NOT_PERMITTED, RIGHTS},
    {{.op = FQ_TCP_WRITE, .length = 8, .window = 1, .key = 1}, 0, FLASHQ_ERR_NOT_PERMITTED, RIGHTS},
    {{.op = FQ_TCP_WRITE, .length = 4097, .key = 1}, 0, FLASHQ_ERR_OUT_OF_RANGE, BOUNDS},
    {{.op = FQ_TCP_WRITE, .length = 1, .offset = 4096, .key = 1},
     0,
     FLASHQ_ERR_OUT_OF_RANGE,
     BOUNDS},
    {{.op = FQ_TCP_WRITE_NOTIFY, .length = 8, .offset = UINT64_MAX - 3, .key = 1},
     0,
     FLASHQ_ERR_OUT_OF_RANGE,
     BOUNDS},
    {{.op = FQ_TCP_READ, .length = 2, .offset = 4095, .window = 1, .key = 1},
     0,
     FLASHQ_ERR_OUT_OF_RANGE,
     BOUNDS},
    {{.op = 0}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = 9}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = 255, .length = UINT32_MAX}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_SEND, .length = FQ_LIMIT_CONTROL_BYTES + 1}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_SEND, .length = UINT32_MAX}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_WRITE, .length = FQ_LIMIT_FABRIC_FRAME_BYTES + 1, .key = 1},
     0,
     FLASHQ_ERR_PROTOCOL,
     MALFORMED},
    {{.op = FQ_TCP_NOTIFY, .length = 1}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_READ_DATA, .length = 8}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_ERROR, .length = FQ_REASON_TEXT_BYTES + 1}, 0, FLASHQ_ERR_PROTOCOL, MALFORMED},
    {{.op = FQ_TCP_NOTIFY}, 1, FLASHQ_ERR_PROTOCOL, MALFORMED},
};

Test(hostile_tcp, frames_that_lie_are_refused_counted_and_answered)
{
    for (size_t i = 0; i < sizeof lying_frames / sizeof lying_frames[0]; i++) {
        struct raw raw;
        struct fq_region *plain, *view;
        struct fq_window *w0, *w1;
        struct fq_err err = {0};
        uint8_t token[FQ_TOKEN_BYTES], view_token[FQ_TOKEN_BYTES], bytes[FQ_TCP_HEADER_BYTES];
        raw_open(&raw, PAIR_TCP);
        cr_assert_eq(fq_region_create(4096, 0, &plain, &err), 0);
        cr_assert_eq(fq_region_create(4096, FQ_REGION_PEER_READS, &view, &err), 0);
        cr_assert_eq(fq_window_grant(raw.conn, plain, 0, 4096, FQ_RIGHT_WRITE, &w0, token, &err),
                     0);
        cr_assert_eq(fq_window_grant(raw.conn, view, 0, 4096, FQ_RIGHT_READ, &w1, view_token, &err),
                     0);
        struct fq_tcp_frame frame = lying_frames[i].frame;
        if (frame.key == 1) {
            frame.key = fq_load_le64((frame.window ? view_token : token) + 8);
        }
        put_frame(bytes, &frame, lying_frames[i].flags);
        cr_assert_eq(fq_sock_send(raw.fd, bytes, sizeof bytes), (ssize_t)sizeof bytes);
        expect_cut(&raw, lying_frames[i].code, "frame");
        expect_error_frame(&raw, lying_frames[i].code);
        struct fq_fabric_stats stats;
        fq_fabric_get_stats(raw.pair.server.fabric, &stats);
        cr_assert_eq(stats.refused_key, lying_frames[i].counter == KEY, "try %zu", i);
        cr_assert_eq(stats.refused_rights, lying_frames[i].counter == RIGHTS, "try %zu", i);
        cr_assert_eq(stats.refused_bounds, lying_frames[i].counter == BOUNDS, "try %zu", i);
        cr_assert_eq(stats.refused_malformed, lying_frames[i].counter == MALFORMED, "try %zu", i);
        for (size_t at = 0; at < 4096; at++) {
            cr_assert_eq(((uint8_t *)fq_region_base(plain))[at], 0);
        }
        fq_region_unref(plain);
        fq_region_unref(view);
        raw_close(&raw);
    }
}

/* The window goes while a payload is half there: the rest must not land. */
Test(hostile_tcp, a_payload_that_goes_on_after_the_revocation_is_refused)
{
    struct raw raw;
    struct fq_region *plain;
    struct fq_window *window;
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES], bytes[FQ_TCP_HEADER_BYTES];
    static uint8_t payload[100000];
    raw_open(&raw, PAIR_TCP);
    memset(payload, 7, sizeof payload);
    cr_assert_eq(fq_region_create(1 << 20, 0, &plain, &err), 0);
    cr_assert_eq(fq_window_grant(raw.conn, plain, 0, 1 << 20, FQ_RIGHT_WRITE, &window, token, &err),
                 0);
    const struct fq_tcp_frame frame = {
        .op = FQ_TCP_WRITE, .length = 200000, .key = fq_load_le64(token + 8)};
    put_frame(bytes, &frame, 0);
    (void)fq_sock_send(raw.fd, bytes, sizeof bytes);
    (void)fq_sock_send(raw.fd, payload, sizeof payload);
    const uint8_t *there = fq_region_base(plain);
    for (int i = 0; i < 10000 && there[sizeof payload - 1] != 7; i++) {
        pair_poll(&raw.pair.server);
    }
    cr_assert_eq(there[sizeof payload - 1], 7);
    fq_window_revoke(window);
    (void)fq_sock_send(raw.fd, payload, sizeof payload);
    expect_cut(&raw, FLASHQ_ERR_NOT_PERMITTED, "half a payload");
    cr_assert_eq(there[sizeof payload], 0);
    fq_region_unref(plain);
    raw_close(&raw);
}

/* The floor rises while a payload is half there (which no peer that posts in order can bring
 * about): the rest must not land. After a retirement it is swallowed. */
Test(hostile_tcp, a_payload_that_goes_on_below_the_floor_is_refused_and_one_retired_is_swallowed)
{
    for (int is_retired = 0; is_retired < 2; is_retired++) {
        struct raw raw;
        struct fq_region *plain;
        struct fq_window *window;
        struct fq_err err = {0};
        uint8_t token[FQ_TOKEN_BYTES], bytes[FQ_TCP_HEADER_BYTES];
        static uint8_t payload[100000];
        raw_open(&raw, PAIR_TCP);
        memset(payload, 7, sizeof payload);
        cr_assert_eq(fq_region_create(1 << 20, 0, &plain, &err), 0);
        cr_assert_eq(
            fq_window_grant(raw.conn, plain, 0, 1 << 20, FQ_RIGHT_WRITE, &window, token, &err), 0);
        const struct fq_tcp_frame frame = {.op = FQ_TCP_WRITE_NOTIFY,
                                           .length = 200000,
                                           .imm = 5,
                                           .offset = 10,
                                           .key = fq_load_le64(token + 8)};
        put_frame(bytes, &frame, 0);
        (void)fq_sock_send(raw.fd, bytes, sizeof bytes);
        (void)fq_sock_send(raw.fd, payload, sizeof payload);
        const uint8_t *there = fq_region_base(plain);
        for (int i = 0; i < 10000 && there[10 + sizeof payload - 1] != 7; i++) {
            pair_poll(&raw.pair.server);
        }
        cr_assert_eq(fq_window_written(window), 10 + sizeof payload, "what is there so far counts");
        if (is_retired) {
            fq_window_retire(window);
        } else {
            fq_window_set_floor(window, 11);
        }
        for (size_t sent = 0; sent < sizeof payload;) {
            ssize_t n = fq_sock_send(raw.fd, payload + sent, sizeof payload - sent);
            sent += n > 0 ? (size_t)n : 0;
            pair_poll(&raw.pair.server);
            if (!is_retired) {
                break;
            }
        }
        if (is_retired) {
            struct pair_event event = pair_wait(&raw.pair, raw.conn, FQ_EVENT_NOTIFY);
            cr_assert_eq(event.event.imm, 5);
            fq_conn_close(raw.conn);
        } else {
            expect_cut(&raw, FLASHQ_ERR_NOT_PERMITTED, "half a payload");
        }
        cr_assert_eq(there[10 + sizeof payload], 0);
        fq_region_unref(plain);
        raw_close(&raw);
    }
}

/* More reads than anybody answers, and the answers never fetched: bounded, and nobody else waits.
 */
Test(hostile_tcp, a_flood_of_reads_stops_being_received)
{
    struct raw raw;
    struct fq_region *view;
    struct fq_window *window;
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES], bytes[FQ_TCP_HEADER_BYTES];
    raw_open(&raw, PAIR_TCP);
    cr_assert_eq(fq_region_create(8 << 20, FQ_REGION_PEER_READS, &view, &err), 0);
    cr_assert_eq(fq_window_grant(raw.conn, view, 0, 8 << 20, FQ_RIGHT_READ, &window, token, &err),
                 0);
    const struct fq_tcp_frame frame = {
        .op = FQ_TCP_READ, .length = 8 << 20, .key = fq_load_le64(token + 8)};
    put_frame(bytes, &frame, 0);
    ssize_t sent = 0;
    for (int i = 0; i < 200000 && sent >= 0; i++) {
        sent = fq_sock_send(raw.fd, bytes, sizeof bytes);
        if (i % 16 == 0) {
            pair_poll(&raw.pair.server);
        }
    }
    struct fq_fabric_stats stats;
    fq_fabric_get_stats(raw.pair.server.fabric, &stats);
    cr_assert_leq(stats.reads_in, FQ_TCP_OWED_MAX + 8);
    cr_assert_eq(fq_fabric_arm(raw.pair.server.fabric), 0,
                 "it does not spin on what it will not read");
    struct pollfd fd = {.fd = fq_fabric_fd(raw.pair.server.fabric), .events = POLLIN};
    for (int i = 0; i < 10; i++) {
        pair_poll(&raw.pair.server);
    }
    cr_assert_eq(poll(&fd, 1, 20), 0);
    close(raw.fd); /* its death is noticed although nothing is received from it */
    raw.fd = -1;
    expect_cut(&raw, FLASHQ_ERR_CLOSED, "flood");
    fq_region_unref(view);
    raw_close(&raw);
}

Test(hostile_tcp, random_bytes_after_the_hello)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    for (int i = 0; i < 100; i++) {
        struct raw raw;
        uint8_t bytes[3000];
        raw_open(&raw, PAIR_TCP);
        for (size_t at = 0; at < sizeof bytes; at++) {
            bytes[at] = (uint8_t)fq_prng_next(&prng);
        }
        if (i & 1) { /* near misses: mostly valid headers */
            bytes[0] = (uint8_t)(1 + fq_prng_below(&prng, 8));
            memset(bytes + 1, 0, 3);
            memset(bytes + 5, 0, 3);
        }
        size_t length = 32 + (size_t)fq_prng_below(&prng, sizeof bytes - 32);
        (void)fq_sock_send(raw.fd, bytes, length);
        (void)shutdown(raw.fd, SHUT_WR);
        struct pair_event event = pair_wait(&raw.pair, raw.conn, FQ_EVENT_DISCONNECTED);
        cr_assert_lt(event.event.status, 0, "seed %llu", (unsigned long long)seed);
        for (const char *c = event.text; *c; c++) {
            cr_assert_geq((unsigned char)*c, ' ', "no control characters reach a terminal");
        }
        pair_event_free(&event);
        raw_close(&raw);
    }
}

/* ---- shm ------------------------------------------------------------------------------------ */

static int sealed_memfd(size_t bytes, bool is_allocated, int seals)
{
    struct fq_err err = {0};
    int fd = fq_memfd_create(bytes, is_allocated, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    cr_assert(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

Test(hostile_shm, rings_that_could_fault_are_not_mapped)
{
    size_t good = sizeof(struct fq_shm_layout);
    for (int i = 0; i < 5; i++) {
        struct raw raw = {.fd = -1};
        struct fq_err err = {0};
        struct fq_conn *conn;
        pair_open(&raw.pair, PAIR_SHM);
        int fd = i == 0   ? sealed_memfd(good, true, 0)
                 : i == 1 ? sealed_memfd(good, true, F_SEAL_SHRINK | F_SEAL_GROW)
                 : i == 2 ? sealed_memfd(good - 4096, true, FQ_MEMFD_SEALS)
                 : i == 3 ? sealed_memfd(good + 4096, true, FQ_MEMFD_SEALS)
                          : open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        raw.fd = raw_connect(&raw.pair.endpoint);
        say_hello(&raw, fd);
        cr_assert_eq(fq_fabric_adopt(raw.pair.server.fabric, pair_incoming(&raw.pair), NULL, 0,
                                     NULL, &conn, &err),
                     FLASHQ_ERR_PROTOCOL, "try %d", i);
        struct fq_reply_frame reply;
        read_reply(&raw, &reply);
        cr_assert_eq(reply.status, FLASHQ_ERR_PROTOCOL);
        close(fd);
        close(raw.fd);
        pair_close(&raw.pair);
    }
}

Test(hostile_shm, a_hello_without_the_rings_never_reaches_the_caller)
{
    struct raw raw = {.fd = -1};
    struct fq_incoming *incoming;
    pair_open(&raw.pair, PAIR_SHM);
    raw.fd = raw_connect(&raw.pair.endpoint);
    say_hello(&raw, -1);
    for (int i = 0; i < 50; i++) {
        cr_assert_eq(fq_listener_poll(raw.pair.listener, &incoming), 0);
        usleep(200);
    }
    cr_assert_eq(fq_listener_refused(raw.pair.listener), 1);
    close(raw.fd);
    pair_close(&raw.pair);
}

Test(hostile_shm, rings_that_lie_cut_the_connection)
{
    for (int i = 0; i < 9; i++) {
        struct raw raw;
        raw_open(&raw, PAIR_SHM);
        struct fq_shm_ring_head *head = &raw.layout->heads[0][0];
        uint8_t *bytes = raw.layout->bytes[0];
        uint64_t tail = 8;
        switch (i) {
        case 0: tail = 4; break;                     /* not a multiple of 8 */
        case 1: tail = FQ_SHM_RING_BYTES + 8; break; /* more than fits */
        case 2: tail = UINT64_MAX - 7; break;        /* it went back */
        case 3: fq_store_le64(bytes, 99); break;     /* unknown kind */
        case 4: fq_store_le64(bytes, 0); break;
        case 5:
            fq_store_le64(bytes, FQ_SHM_NOTIFY | 8 << 8);
            tail = 16;
            break; /* with a payload */
        case 6:
            fq_store_le64(bytes, FQ_SHM_MESSAGE | 9 << 8);
            tail = 16;
            break; /* longer than there is */
        case 7: fq_store_le64(bytes, FQ_SHM_MESSAGE | 0xffffffu << 8); break;
        default:
            fq_store_le64(bytes, FQ_SHM_MESSAGE | (FQ_LIMIT_CONTROL_BYTES + 1) << 8);
            tail = FQ_SHM_RING_BYTES;
            break;
        }
        atomic_store(&head->tail, tail);
        expect_cut(&raw, FLASHQ_ERR_PROTOCOL, "ring");
        struct fq_fabric_stats stats;
        fq_fabric_get_stats(raw.pair.server.fabric, &stats);
        cr_assert_eq(stats.refused_malformed, 1, "try %d", i);
        uint8_t record[FQ_SHM_RECORD_BYTES + FQ_REASON_TEXT_BYTES];
        cr_assert_gt(fq_sock_recv(raw.fd, record, sizeof record), FQ_SHM_RECORD_BYTES);
        cr_assert_eq(record[0], FQ_SHM_RECORD_CLOSE, "it is told why");
        raw_close(&raw);
    }
}

Test(hostile_shm, a_lying_consumer_position_cuts_the_connection)
{
    struct raw raw;
    static const uint8_t bytes[30000];
    raw_open(&raw, PAIR_SHM);
    atomic_store(&raw.layout->heads[1][0].head, 1u << 30); /* beyond what was ever produced */
    int r = 0;
    for (int i = 0; i < 10 && r == 0; i++) {
        r = fq_conn_send(raw.conn, bytes, sizeof bytes);
    }
    cr_assert_eq(r, FLASHQ_ERR_CLOSED);
    expect_cut(&raw, FLASHQ_ERR_PROTOCOL, "head");
    raw_close(&raw);
}

/* Each of these makes the server look at the socket, at no cost for the peer. */
Test(hostile_shm, a_flood_of_syncs_takes_a_bounded_share_of_a_poll)
{
    struct raw raw;
    raw_open(&raw, PAIR_SHM);
    pair_poll(&raw.pair.server);
    struct fq_shm_ring_head *head = &raw.layout->heads[0][0];
    const uint64_t flood = FQ_SHM_RING_BYTES - FQ_SHM_ENTRY_BYTES;
    for (uint64_t at = 0; at < flood; at += FQ_SHM_ENTRY_BYTES) {
        fq_store_le64(raw.layout->bytes[0] + at, FQ_SHM_SYNC);
    }
    fq_store_le64(raw.layout->bytes[0] + flood, FQ_SHM_NOTIFY | (uint64_t)77 << 32);
    atomic_store(&head->tail, flood + FQ_SHM_ENTRY_BYTES);
    struct fq_event event;
    int polls = 0;
    while (fq_fabric_poll(raw.pair.server.fabric, &event, 1) == 0) {
        uint64_t before = (uint64_t)polls * 64 * FQ_SHM_ENTRY_BYTES;
        cr_assert_leq(atomic_load(&head->head), before + 64 * FQ_SHM_ENTRY_BYTES);
        cr_assert_lt(++polls, 10000);
    }
    cr_assert_eq(event.type, FQ_EVENT_NOTIFY, "all the same in order");
    cr_assert_eq(event.imm, 77);
    raw_close(&raw);
}

/* Every byte of the rings' heads and entries changes while the server reads them. */
Test(hostile_shm, memory_that_keeps_changing_never_crashes_the_reader)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    for (int i = 0; i < 30; i++) {
        struct raw raw;
        raw_open(&raw, PAIR_SHM);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(5);
            struct fq_shm_ring_head *head = &raw.layout->heads[0][0];
            for (uint64_t tail = 0;; tail += 8 * fq_prng_below(&prng, 300)) {
                uint64_t kind = 1 + fq_prng_below(&prng, 2);
                for (size_t k = 0; k < 40; k++) {
                    size_t at = 8 * (size_t)fq_prng_below(&prng, FQ_SHM_RING_BYTES / 8);
                    __atomic_store_n((uint64_t *)(void *)(raw.layout->bytes[0] + at),
                                     kind | fq_prng_below(&prng, 200) << 8, __ATOMIC_RELAXED);
                }
                atomic_store(&head->tail, tail);
                atomic_store(&head->awake, (uint32_t)fq_prng_next(&prng));
                atomic_store(&head->starved, (uint32_t)fq_prng_next(&prng));
                atomic_store(&raw.layout->heads[1][0].head, tail & ~UINT64_C(7));
                (void)fq_sock_send(raw.fd, "", 1);
            }
        }
        for (int k = 0; k < 300; k++) {
            (void)fq_conn_send(raw.conn, &k, sizeof k);
            pair_poll(&raw.pair.server);
            usleep(20);
        }
        kill(pid, SIGKILL);
        struct pair_event event = pair_wait(&raw.pair, raw.conn, FQ_EVENT_DISCONNECTED);
        cr_assert_lt(event.event.status, 0, "seed %llu", (unsigned long long)seed);
        pair_event_free(&event);
        raw_close(&raw);
    }
}

static void send_grant(struct raw *raw, int fd, uint64_t key, uint64_t bytes, uint8_t flags)
{
    uint8_t record[FQ_SHM_RECORD_BYTES] = {FQ_SHM_RECORD_GRANT, flags};
    fq_store_le64(record + 8, key);
    fq_store_le64(record + 24, bytes);
    fq_store_le32(record + 32, FQ_RIGHT_READ | FQ_RIGHT_WRITE);
    cr_assert_eq(fq_sock_send_fd(raw->fd, record, sizeof record, fd), (ssize_t)sizeof record);
}

Test(hostile_shm, windows_that_could_fault_are_not_opened)
{
    struct raw raw;
    raw_open(&raw, PAIR_SHM);
    int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const struct {
        int fd;
        uint64_t bytes;
        uint8_t flags;
    } tries[] = {{sealed_memfd(8192, true, 0), 8192, 0},
                 {sealed_memfd(8192, true, F_SEAL_SHRINK | F_SEAL_GROW), 8192, 0},
                 {sealed_memfd(4096, true, FQ_MEMFD_SEALS), 8192, 0},
                 {sealed_memfd(8192, true, FQ_MEMFD_SEALS), UINT64_MAX, 0},
                 {sealed_memfd(8192, true, FQ_MEMFD_SEALS), 0, 0},
                 {sealed_memfd((size_t)1 << 40, false, FQ_MEMFD_SEALS), (uint64_t)1 << 40, 0},
                 {exe, 4096, 0},
                 {exe, 4096, FQ_SHM_GRANT_FILE}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct fq_remote *remote;
        struct fq_err err = {0};
        uint8_t token[FQ_TOKEN_BYTES];
        send_grant(&raw, tries[i].fd, 1000 + i, tries[i].bytes, tries[i].flags);
        const struct fq_token parsed = {
            .transport = FQ_TRANSPORT_SHM, .rights = FQ_RIGHT_READ, .key = 1000 + i, .bytes = 8192};
        fq_token_encode(&parsed, token);
        cr_assert_eq(fq_remote_open(raw.conn, token, FQ_RIGHT_READ, &remote, &err),
                     FLASHQ_ERR_PROTOCOL, "try %zu: %s", i, err.text);
        if (tries[i].fd != exe || i == 7) {
            close(tries[i].fd);
        }
    }
    raw_close(&raw);
}

Test(hostile_shm, records_that_lie_cut_the_connection)
{
    for (int i = 0; i < 4; i++) {
        struct raw raw;
        raw_open(&raw, PAIR_SHM);
        uint8_t record[FQ_SHM_RECORD_BYTES] = {i == 0 ? 77 : FQ_SHM_RECORD_CLOSE};
        int fd = sealed_memfd(4096, true, FQ_MEMFD_SEALS);
        if (i < 2) {
            memset(record + 2, 0xff, 2); /* CLOSE with 65535 bytes of text */
            cr_assert_gt(fq_sock_send(raw.fd, record, sizeof record), 0);
        } else if (i == 2) {
            send_grant(&raw, -1, 1, 4096, 0); /* no descriptor */
        } else {
            for (int k = 0; k < 100 && fq_sock_send_fd(raw.fd, "", 1, fd) > 0; k++) {
            } /* descriptors that nothing announced */
        }
        expect_cut(&raw, FLASHQ_ERR_PROTOCOL, "record");
        close(fd);
        raw_close(&raw);
    }
}

Test(hostile_shm, grants_that_nobody_opens_are_bounded)
{
    struct raw raw;
    raw_open(&raw, PAIR_SHM);
    size_t fds = count_fds();
    int fd = sealed_memfd(4096, true, FQ_MEMFD_SEALS);
    bool is_cut = false;
    for (uint64_t i = 0; i < 2000 && !is_cut; i++) {
        uint8_t record[FQ_SHM_RECORD_BYTES] = {FQ_SHM_RECORD_GRANT};
        fq_store_le64(record + 8, i);
        (void)fq_sock_send_fd(raw.fd, record, sizeof record, fd);
        pair_poll(&raw.pair.server);
        cr_assert_leq(count_fds(), fds + 1030);
        is_cut = pair_has(&raw.pair.server, raw.conn, FQ_EVENT_DISCONNECTED);
    }
    expect_cut(&raw, FLASHQ_ERR_PROTOCOL, "grants");
    close(fd);
    cr_assert_eq(count_fds(), fds - 1, "all are closed again");
    raw_close(&raw);
}

/* What a peer gets of memory that it may only read: no way to change it, its size or its seals. */
Test(hostile_shm, read_only_memory_really_is)
{
    struct raw raw;
    struct fq_region *view;
    struct fq_window *window;
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES], record[FQ_SHM_RECORD_BYTES];
    char path[64];
    raw_open(&raw, PAIR_SHM);
    cr_assert_eq(fq_region_create(8192, FQ_REGION_PEER_READS, &view, &err), 0);
    cr_assert_eq(fq_window_grant(raw.conn, view, 0, 8192, FQ_RIGHT_READ, &window, token, &err), 0);
    int fd;
    bool is_bad;
    cr_assert_eq(fq_sock_recv_fd(raw.fd, record, sizeof record, &fd, &is_bad),
                 (ssize_t)sizeof record);
    cr_assert_geq(fd, 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reopened = open(path, O_RDWR | O_CLOEXEC);
    const int tries[] = {fd, reopened >= 0 ? reopened : fd};
    for (int i = 0; i < 2; i++) {
        cr_assert_lt(ftruncate(tries[i], 0), 0);
        cr_assert_lt(ftruncate(tries[i], 1 << 20), 0);
        cr_assert_lt(pwrite(tries[i], "x", 1, 0), 0);
        cr_assert_lt(fallocate(tries[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        cr_assert_eq(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, tries[i], 0), MAP_FAILED);
        void *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, tries[i], 0);
        cr_assert_neq(map, MAP_FAILED);
        cr_assert_lt(mprotect(map, 8192, PROT_READ | PROT_WRITE), 0);
        munmap(map, 8192);
        cr_assert_lt(fcntl(tries[i], F_ADD_SEALS, F_SEAL_WRITE), 0);
    }
    *(uint64_t *)fq_region_base(view) = 1; /* the owner still can */
    close(fd);
    close(reopened);
    fq_region_unref(view);
    raw_close(&raw);
}

Test(hostile_shm, writable_memory_cannot_be_shrunk)
{
    struct raw raw;
    struct fq_region *ring;
    struct fq_window *window;
    struct fq_err err = {0};
    uint8_t token[FQ_TOKEN_BYTES], record[FQ_SHM_RECORD_BYTES];
    raw_open(&raw, PAIR_SHM);
    cr_assert_eq(fq_region_create(8192, FQ_REGION_MIRRORED, &ring, &err), 0);
    cr_assert_eq(fq_window_grant(raw.conn, ring, 0, 8192, FQ_RIGHT_WRITE, &window, token, &err), 0);
    int fd;
    bool is_bad;
    cr_assert_eq(fq_sock_recv_fd(raw.fd, record, sizeof record, &fd, &is_bad),
                 (ssize_t)sizeof record);
    cr_assert_lt(ftruncate(fd, 0), 0);
    cr_assert_lt(ftruncate(fd, 1 << 20), 0);
    /* A hole gives zeroes, not a fault: the owner reads on. */
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192);
    cr_assert_eq(*(uint64_t *)fq_region_base(ring), 0);
    close(fd);
    fq_region_unref(ring);
    raw_close(&raw);
}
