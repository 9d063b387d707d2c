/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric's parsers. The first byte chooses: a hello frame, a reply frame, a token, an endpoint
 * text, or a whole tcp connection that receives the rest as its peer's bytes, with windows granted
 * so that frames can be right as well.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fabric/backend.h"
#include "fabric/endpoint.h"
#include "fabric/hello.h"
#include "fabric/listener.h"
#include "fabric/tcp/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define check(what) ((what) ? (void)0 : abort())

static void try_hello(const uint8_t *data, size_t size)
{
    struct fq_hello_frame hello;
    int whole = fq_hello_frame_length(data, size);
    check(whole < 0 || (whole >= FQ_HELLO_HEADER_BYTES && whole <= FQ_HELLO_FRAME_BYTES));
    if (fq_hello_frame_decode(data, size, &hello) == 0) {
        uint8_t again[FQ_HELLO_FRAME_BYTES];
        check(fq_hello_frame_encode(&hello, again) == size && memcmp(again, data, size) == 0);
    }
}

static void try_reply(const uint8_t *data, size_t size)
{
    int pair[2];
    struct fq_reply_reader reader = {.have = 0};
    struct fq_reply_frame reply;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    size = size < 1000 ? size : 1000;
    check(size == 0 || write(pair[0], data, size) == (ssize_t)size);
    close(pair[0]);
    if (fq_reply_read(&reader, pair[1], &reply) == 1) {
        check(reply.status <= 0 && reply.reply_bytes <= FQ_LIMIT_HELLO_BYTES);
        check(strlen(reply.text) <= FQ_REPLY_TEXT_BYTES);
    }
    close(pair[1]);
}

static void try_token(const uint8_t *data, size_t size)
{
    struct fq_token token;
    uint8_t bytes[FQ_TOKEN_BYTES] = {0}, again[FQ_TOKEN_BYTES];
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (fq_token_decode(bytes, &token) == 0) {
        fq_token_encode(&token, again);
        check(memcmp(again, bytes, sizeof again) == 0);
    }
}

static void try_endpoint(const uint8_t *data, size_t size)
{
    char text[1024], canonical[1024];
    struct fq_endpoint list[4], again;
    size = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    int count = fq_endpoint_parse_list(text, list, 4, NULL);
    for (int i = 0; i < count; i++) {
        (void)fq_endpoint_format(&list[i], canonical, sizeof canonical);
        check(fq_endpoint_parse(canonical, &again, NULL) == 0 ||
              list[i].transport == FQ_TRANSPORT_SHM || list[i].transport == FQ_TRANSPORT_AUTO);
    }
}

#define FILE_BYTES 8192

/* A file that peers may write to, all zero. */
static struct fq_region *file_region(uint8_t **ret_map)
{
    struct fq_region *region;
    int fd = fq_memfd_create(FILE_BYTES, true, NULL);
    check(fd >= 0);
    *ret_map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(*ret_map != MAP_FAILED);
    check(fq_region_wrap_file(fd, *ret_map, FILE_BYTES, NULL, NULL, &region, NULL) == 0);
    close(fd);
    fq_region_allow_writing(region);
    return region;
}

/* Windows get fixed keys (1 to 4), so that a corpus can name them. */
static struct fq_window *grant(struct fq_conn *conn, struct fq_region *region,
                               enum fq_rights rights, uint64_t key)
{
    struct fq_window *window;
    uint8_t token[FQ_TOKEN_BYTES];
    check(fq_window_grant(conn, region, 0, fq_region_bytes(region), rights, &window, token, NULL) ==
          0);
    window->key = key;
    return window;
}

static void try_connection(const uint8_t *data, size_t size)
{
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_region *ring, *view, *file;
    uint8_t *map;
    int pair[2];
    struct fq_incoming *incoming = calloc(1, sizeof *incoming);
    check(incoming &&
          socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    incoming->fd = pair[0];
    incoming->passed_fd = -1;
    incoming->hello.transport = FQ_TRANSPORT_TCP;
    check(fq_fabric_create(FQ_TRANSPORT_TCP, NULL, &fabric, NULL) == 0);
    check(fq_fabric_adopt(fabric, incoming, NULL, 0, NULL, &conn, NULL) == 0);
    check(fq_region_create(8192, FQ_REGION_MIRRORED, &ring, NULL) == 0);
    check(fq_region_create(4096, FQ_REGION_PEER_READS, &view, NULL) == 0);
    (void)grant(conn, ring, FQ_RIGHT_WRITE, 1);
    (void)grant(conn, view, FQ_RIGHT_READ, 2);
    file = file_region(&map);
    struct fq_window *in_place = grant(conn, file, FQ_RIGHT_WRITE, 3);
    fq_window_retire(grant(conn, file, FQ_RIGHT_WRITE, 4));
    size_t sent = 0;
    bool is_alive = true;
    uint8_t notified[FILE_BYTES];
    uint64_t floor_bytes = 0;
    for (int i = 0; i < 64 && is_alive; i++) {
        struct fq_event events[8];
        size_t part = size - sent < 700 ? size - sent : 700;
        ssize_t n = part ? send(pair[1], data + sent, part, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        sent += n > 0 ? (size_t)n : 0;
        int count = fq_fabric_poll(fabric, events, 8);
        check(count >= 0);
        uint64_t written = is_alive ? fq_window_written(in_place) : 0;
        for (int k = 0; k < count; k++) {
            is_alive = is_alive && events[k].type != FQ_EVENT_DISCONNECTED;
            if (is_alive && events[k].type == FQ_EVENT_NOTIFY) { /* of what is there */
                floor_bytes = fq_window_written(in_place);
                memcpy(notified, map, floor_bytes);
                fq_window_set_floor(in_place, floor_bytes);
            }
        }
        check(memcmp(notified, map, floor_bytes) == 0);
        for (uint64_t at = written; is_alive && at < FILE_BYTES; at++) {
            check(map[at] == 0);
        }
        uint8_t waste[4096];
        (void)recv(pair[1], waste, sizeof waste, MSG_DONTWAIT);
    }
    fq_fabric_destroy(fabric);
    fq_region_unref(ring);
    fq_region_unref(view);
    fq_region_unref(file);
    munmap(map, FILE_BYTES);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    static void (*const tries[])(const uint8_t *, size_t) = {try_hello, try_reply, try_token,
                                                             try_endpoint, try_connection};
    tries[data[0] % 5](data + 1, size - 1);
    return 0;
}
