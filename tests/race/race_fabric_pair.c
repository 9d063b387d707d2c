/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads of one process, each with a fabric of its own, exchange writes, notifies and messages
 * through shm and tcp, sleeping on their descriptors. Regions are shared by reference count, an
 * incoming connection is handed from the listening thread to the other. Under ThreadSanitizer the
 * shared rings must show no race, and no wake-up may be lost. A third thread looks at an aligned
 * word that is written all the time: it is never seen half written.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/fabric.h"

#define ROUNDS     3000u
#define RING_BYTES (64u << 10)
#define WORD_AT    (RING_BYTES - 64)

#define check(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct shared {
    enum fq_transport transport;
    struct fq_endpoint endpoint;
    struct fq_incoming *incoming; /* written before the server's thread starts */
    struct fq_region *ring;
    _Atomic bool is_over;
};

static void *observer_main(void *argument)
{
    struct shared *shared = argument;
    uint64_t *words = (void *)((uint8_t *)fq_region_base(shared->ring) + WORD_AT);
    while (!shared->is_over) {
        for (int i = 0; i < 8; i++) {
            uint64_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
            check(word == (word & 0xff) * UINT64_C(0x0101010101010101));
        }
        usleep(10);
    }
    return NULL;
}

/* The next event, asleep until there is one. */
static struct fq_event next_event(struct fq_fabric *fabric)
{
    struct fq_event event;
    int64_t end = fq_mono_us() + 20000000;
    for (;;) {
        int count = fq_fabric_poll(fabric, &event, 1);
        check(count >= 0);
        if (count == 1 && event.type != FQ_EVENT_WRITABLE) {
            return event;
        }
        if (count == 0 && fq_fabric_arm(fabric) == 0) {
            struct pollfd fd = {.fd = fq_fabric_fd(fabric), .events = POLLIN};
            int64_t due = fq_fabric_next_deadline_us(fabric);
            (void)poll(&fd, 1, fq_deadline_poll_ms(fq_mono_us(), due < end ? due : end));
        }
        check(fq_mono_us() < end);
    }
}

static struct fq_event expect(struct fq_fabric *fabric, enum fq_event_type type)
{
    struct fq_event event = next_event(fabric);
    if (event.type != type) {
        fprintf(stderr, "event %d instead of %d: %s\n", event.type, type,
                event.text ? event.text : "");
        abort();
    }
    return event;
}

static void *server_main(void *argument)
{
    struct shared *shared = argument;
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_window *window;
    uint8_t token[FQ_TOKEN_BYTES];
    check(fq_fabric_create(shared->transport, NULL, &fabric, NULL) == 0);
    check(fq_fabric_adopt(fabric, shared->incoming, NULL, 0, NULL, &conn, NULL) == 0);
    (void)expect(fabric, FQ_EVENT_CONNECTED);
    struct fq_region *ring = fq_region_ref(shared->ring);
    check(fq_window_grant(conn, ring, 0, RING_BYTES, FQ_RIGHT_WRITE, &window, token, NULL) == 0);
    check(fq_conn_send(conn, token, sizeof token) == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        check(expect(fabric, FQ_EVENT_NOTIFY).imm == i);
        check(fq_conn_send(conn, &i, sizeof i) == 0);
    }
    (void)expect(fabric, FQ_EVENT_DISCONNECTED);
    fq_region_unref(ring);
    fq_fabric_destroy(fabric);
    return NULL;
}

static void client_main(struct fq_fabric *fabric, struct fq_conn *conn)
{
    struct fq_remote *remote;
    struct fq_region *local;
    struct fq_event event = expect(fabric, FQ_EVENT_MESSAGE);
    check(fq_remote_open(conn, event.data, FQ_RIGHT_WRITE, &remote, NULL) == 0);
    check(fq_region_create(RING_BYTES, FQ_REGION_LOCAL, &local, NULL) == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t words[8];
        memset(words, (int)(i & 0xff), sizeof words);
        const struct fq_op ops[] = {{.type = FQ_OP_WRITE,
                                     .remote = remote,
                                     .remote_offset = WORD_AT,
                                     .local = words,
                                     .length = sizeof words},
                                    {.type = FQ_OP_WRITE_NOTIFY,
                                     .remote = remote,
                                     .region = local,
                                     .local = fq_region_base(local),
                                     .length = i % 5000,
                                     .imm = i}};
        check(fq_conn_post(conn, ops, 2) == 2);
        event = expect(fabric, FQ_EVENT_MESSAGE);
        check(memcmp(event.data, &i, sizeof i) == 0);
    }
    fq_region_unref(local);
}

static void run(enum fq_transport transport, const char *where)
{
    struct shared shared = {.transport = transport};
    struct fq_listener *listener;
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_event event;
    pthread_t thread, observer;
    check(fq_endpoint_parse(where, &shared.endpoint, NULL) == 0);
    const struct fq_listen_params listen = {.endpoint = &shared.endpoint};
    check(fq_listener_open(&listen, &listener, NULL) == 0);
    check(fq_region_create(RING_BYTES, 0, &shared.ring, NULL) == 0);
    check(fq_fabric_create(transport, NULL, &fabric, NULL) == 0);
    const struct fq_connect_params params = {.endpoint = fq_listener_endpoint(listener),
                                             .deadline_us = INT64_MAX};
    check(fq_conn_open(fabric, &params, &conn, NULL) == 0);
    while (fq_listener_poll(listener, &shared.incoming) == 0) {
        check(fq_fabric_poll(fabric, &event, 1) == 0);
    }
    check(pthread_create(&thread, NULL, server_main, &shared) == 0);
    check(pthread_create(&observer, NULL, observer_main, &shared) == 0);
    (void)expect(fabric, FQ_EVENT_CONNECTED);
    client_main(fabric, conn);
    fq_fabric_destroy(fabric);
    check(pthread_join(thread, NULL) == 0);
    shared.is_over = true;
    check(pthread_join(observer, NULL) == 0);
    fq_region_unref(shared.ring);
    fq_listener_close(listener);
}

int main(void)
{
    char directory[] = "/tmp/flashq-race-XXXXXX", where[64];
    check(mkdtemp(directory) != NULL);
    (void)snprintf(where, sizeof where, "shm:%s/s", directory);
    run(FQ_TRANSPORT_SHM, where);
    check(rmdir(directory) == 0);
    run(FQ_TRANSPORT_TCP, "tcp:127.0.0.1:0");
    return 0;
}
