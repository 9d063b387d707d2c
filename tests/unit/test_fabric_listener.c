/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners: strangers on the port, silent peers, floods, leftovers of dead owners, too many files.
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
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "fabric/hello.h"
#include "fabric/sock.h"
#include "fabric_pair.h"

static struct fq_endpoint endpoint_of(const char *text)
{
    struct fq_endpoint endpoint;
    struct fq_err err;
    cr_assert_eq(fq_endpoint_parse(text, &endpoint, &err), 0, "%s", err.text);
    return endpoint;
}

static struct fq_listener *listen_on(const struct fq_listen_params *params)
{
    struct fq_listener *listener;
    struct fq_err err = {0};
    cr_assert_eq(fq_listener_open(params, &listener, &err), 0, "%s", err.text);
    return listener;
}

static int connect_to(const struct fq_endpoint *endpoint)
{
    int fd, r;
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
    cr_assert_eq(r, 0, "%s", strerror(errno));
    return fd;
}

/* Polls until the peer's socket has ended; what it was told is in `text`. */
static size_t read_all(struct fq_listener *listener, int fd, char *text, size_t bytes)
{
    size_t have = 0;
    int64_t end = fq_mono_us() + 3000000;
    for (;;) {
        struct fq_incoming *incoming;
        cr_assert_eq(fq_listener_poll(listener, &incoming), 0, "a stranger reaches nobody");
        ssize_t n = fq_sock_recv(fd, text + have, bytes - 1 - have);
        cr_assert(n >= 0 || errno == EAGAIN, "%s", strerror(errno));
        if (n == 0) {
            break;
        }
        have += n > 0 ? (size_t)n : 0;
        cr_assert_lt(fq_mono_us(), end, "no answer");
        usleep(100);
    }
    text[have] = '\0';
    return have;
}

/* case 33 */
Test(listener, strangers_get_a_hint_and_a_close)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *told;
    } strangers[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, "does not speak HTTP"},
        {"POST /topics/t HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 54, "does not speak HTTP"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, "does not speak HTTP"},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, "does not speak TLS"},
        {"\x00\x00\x00\x2a\x00\x12\x00\x03", 8, "FlashQ broker"}, /* a Kafka client */
        {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, "FlashQ broker"},
        {"FQF1\x01\x00\xff\xff", 8, "FlashQ broker"}, /* a frame of 65535 bytes */
        {"FQF1\x01\x00\x07\x00", 8, "FlashQ broker"}, /* shorter than its header */
        {"FQF1\x01\x00\x51\x00", 8, "FlashQ broker"}, /* longer than a hello can be */
        {"INFO {\"x\":1}\r\n", 14, "FlashQ broker"},
    };
    char directory[] = "/tmp/flashq-listener-XXXXXX", shm[64];
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(shm, sizeof shm, "shm:%s/s", directory);
    const char *const where[] = {"tcp:127.0.0.1:0", shm};
    for (int w = 0; w < 2; w++) {
        const struct fq_endpoint endpoint = endpoint_of(where[w]);
        struct fq_listener *listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
        size_t fds = count_fds();
        for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
            char text[2048];
            int fd = connect_to(fq_listener_endpoint(listener));
            cr_assert_gt(fq_sock_send(fd, strangers[i].bytes, strangers[i].length), 0);
            size_t length = read_all(listener, fd, text, sizeof text);
            cr_assert_gt(length, 0);
            cr_assert_not_null(strstr(text, strangers[i].told), "stranger %zu was told: %s", i,
                               text);
            cr_assert_not_null(strstr(text, "flashq -b "), "%s", text);
            bool is_http = strstr(strangers[i].told, "HTTP") != NULL;
            cr_assert_eq(strncmp(text, "HTTP/1.1 400", 12) == 0, is_http);
            close(fd);
            cr_assert_eq(fq_listener_refused(listener), i + 1);
        }
        int64_t end = fq_mono_us() + 3000000;
        while (count_fds() > fds && fq_mono_us() < end) {
            struct fq_incoming *incoming;
            (void)fq_listener_poll(listener, &incoming);
        }
        cr_assert_eq(count_fds(), fds);
        fq_listener_close(listener);
    }
    cr_assert_eq(rmdir(directory), 0);
}

Test(listener, another_version_is_told_so)
{
    const struct fq_endpoint endpoint = endpoint_of("tcp:127.0.0.1:0");
    struct fq_listener *listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
    int fd = connect_to(fq_listener_endpoint(listener));
    static const uint8_t hello[] = {'F', 'Q', 'F', '1', 2, 0, 24, 0};
    (void)fq_sock_send(fd, hello, sizeof hello);
    struct fq_reply_reader reader = {.have = 0};
    struct fq_reply_frame reply;
    int r = 0;
    for (int i = 0; i < 10000 && r == 0; i++) {
        struct fq_incoming *incoming;
        cr_assert_eq(fq_listener_poll(listener, &incoming), 0);
        r = fq_reply_read(&reader, fd, &reply);
        usleep(100);
    }
    cr_assert_eq(r, 1);
    cr_assert_eq(reply.status, FLASHQ_ERR_VERSION);
    cr_assert_not_null(strstr(reply.text, "version 1"));
    close(fd);
    fq_listener_close(listener);
}

Test(listener, random_bytes_in_random_pieces_never_reach_the_caller)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    const struct fq_endpoint endpoint = endpoint_of("tcp:127.0.0.1:0");
    struct fq_listener *listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
    for (int i = 0; i < 200; i++) {
        uint8_t bytes[200];
        int fd = connect_to(fq_listener_endpoint(listener));
        for (size_t at = 0; at < sizeof bytes; at++) {
            bytes[at] = (uint8_t)fq_prng_next(&prng);
        }
        if (i & 1) {
            memcpy(bytes, "FQF1\x01", 6);
        }
        bytes[8] = (uint8_t)(fq_prng_below(&prng, 2) ? 200 : 0); /* never a transport of ours */
        for (size_t at = 0; at < sizeof bytes;) {
            size_t part = 1 + (size_t)fq_prng_below(&prng, sizeof bytes - at);
            (void)fq_sock_send(fd, bytes + at, part);
            at += part;
            struct fq_incoming *incoming;
            cr_assert_eq(fq_listener_poll(listener, &incoming), 0, "seed %llu",
                         (unsigned long long)seed);
        }
        close(fd);
    }
    fq_listener_close(listener);
}

Test(listener, a_silent_peer_goes_at_its_deadline_and_a_flood_of_them_is_bounded)
{
    const struct fq_endpoint endpoint = endpoint_of("tcp:127.0.0.1:0");
    struct fq_listener *listener = listen_on(&(struct fq_listen_params){
        .endpoint = &endpoint, .hello_deadline_us = 200000, .pending_max = 10});
    struct fq_incoming *incoming;
    size_t fds = count_fds();
    int silent[40];
    for (int i = 0; i < 40; i++) {
        silent[i] = connect_to(fq_listener_endpoint(listener));
        cr_assert_eq(fq_listener_poll(listener, &incoming), 0);
    }
    cr_assert_leq(count_fds(), fds + 40 + 10, "the oldest go");
    cr_assert_geq(fq_listener_refused(listener), 30);
    /* One that says hello gets through the flood. */
    const struct fq_hello_frame hello = {.transport = FQ_TRANSPORT_TCP, .shard = 3};
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    size_t length = fq_hello_frame_encode(&hello, bytes);
    int good = connect_to(fq_listener_endpoint(listener));
    for (size_t i = 0; i < length; i++) { /* a byte at a time */
        (void)fq_sock_send(good, bytes + i, 1);
        int r = fq_listener_poll(listener, &incoming);
        cr_assert_eq(r, i + 1 == length, "byte %zu of %zu", i, length);
    }
    cr_assert_eq(fq_incoming_shard(incoming), 3);
    fq_incoming_reject(incoming, FLASHQ_ERR_BUSY, "x");
    cr_assert_lt(fq_listener_next_deadline_us(listener), fq_mono_us() + 200001);
    int64_t end = fq_mono_us() + 3000000;
    while (count_fds() > fds + 41 && fq_mono_us() < end) {
        cr_assert_eq(fq_listener_poll(listener, &incoming), 0);
        usleep(1000);
    }
    cr_assert_eq(count_fds(), fds + 41);
    cr_assert_eq(fq_listener_refused(listener), 40);
    cr_assert_eq(fq_listener_next_deadline_us(listener), INT64_MAX);
    for (int i = 0; i < 40; i++) {
        close(silent[i]);
    }
    close(good);
    fq_listener_close(listener);
}

/* case 47: no descriptor left: the peer waits, nothing spins, and it goes on when there is one
 * again. */
Test(listener, too_many_open_files_pauses_accepting)
{
    const struct fq_endpoint endpoint = endpoint_of("tcp:127.0.0.1:0");
    struct fq_listener *listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
    struct fq_incoming *incoming = NULL;
    struct rlimit before, none;
    int fd = connect_to(fq_listener_endpoint(listener));
    const struct fq_hello_frame hello = {.transport = FQ_TRANSPORT_TCP};
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    (void)fq_sock_send(fd, bytes, fq_hello_frame_encode(&hello, bytes));
    int next = dup(0);
    close(next);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    cr_assert_eq(fq_listener_poll(listener, &incoming), 0);
    cr_assert_eq(fq_listener_refused(listener), 1);
    struct pollfd poll_fd = {.fd = fq_listener_fd(listener), .events = POLLIN};
    cr_assert_eq(poll(&poll_fd, 1, 10), 0, "paused: the descriptor is quiet");
    cr_assert_lt(fq_listener_next_deadline_us(listener), INT64_MAX);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    int r = 0;
    int64_t end = fq_mono_us() + 3000000;
    while (r == 0 && fq_mono_us() < end) {
        r = fq_listener_poll(listener, &incoming);
        usleep(1000);
    }
    cr_assert_eq(r, 1);
    fq_incoming_reject(incoming, FLASHQ_ERR_BUSY, "x");
    close(fd);
    fq_listener_close(listener);
}

/* case 25 */
Test(listener, leftovers_of_a_killed_owner_do_not_stop_the_next)
{
    char directory[] = "/tmp/flashq-listener-XXXXXX", text[64], lock[160];
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(text, sizeof text, "shm:%s/s", directory);
    const struct fq_endpoint endpoint = endpoint_of(text);
    const struct fq_listen_params params = {.endpoint = &endpoint};
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct fq_listener *listener;
        _exit(fq_listener_open(&params, &listener, NULL) < 0 || write(ready[1], "x", 1) != 1 ||
              pause() == 0);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    struct fq_listener *listener;
    struct fq_err err = {0};
    cr_assert_eq(fq_listener_open(&params, &listener, &err), FLASHQ_ERR_EXISTS, "it lives");
    cr_assert_not_null(strstr(err.text, "in use"), "%s", err.text);
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_assert_eq(access(endpoint.path, F_OK), 0, "the dead one left its socket");
    listener = listen_on(&params);
    struct stat st;
    cr_assert_eq(stat(endpoint.path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(fq_listener_open(&params, &listener, &err), FLASHQ_ERR_EXISTS,
                 "in one process too");
    fq_listener_close(listener);
    cr_assert_neq(access(endpoint.path, F_OK), 0);
    (void)snprintf(lock, sizeof lock, "%s.lock", endpoint.path);
    cr_assert_neq(access(lock, F_OK), 0);
    cr_assert_eq(rmdir(directory), 0);
    close(ready[0]);
    close(ready[1]);
}

Test(listener, two_starts_at_once_on_a_stale_socket_give_one_owner)
{
    char directory[] = "/tmp/flashq-listener-XXXXXX", text[64];
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(text, sizeof text, "shm:%s/s", directory);
    const struct fq_endpoint endpoint = endpoint_of(text);
    for (int round = 0; round < 20; round++) {
        int go[2], done[2];
        cr_assert_eq(pipe(go), 0);
        cr_assert_eq(pipe(done), 0);
        struct sockaddr_un address;
        socklen_t length;
        (void)fq_sock_unix_address(endpoint.path, &address, &length);
        int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(stale, (struct sockaddr *)&address, length), 0, "%s", strerror(errno));
        close(stale);
        pid_t pids[4];
        for (int i = 0; i < 4; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                struct fq_listener *listener;
                char byte;
                close(go[1]);
                (void)!read(go[0], &byte, 1);
                int r = fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint},
                                         &listener, NULL);
                (void)!write(done[1], r == 0 ? "1" : r == FLASHQ_ERR_EXISTS ? "0" : "?", 1);
                pause();
                _exit(0);
            }
        }
        close(go[1]);
        int owners = 0;
        for (int i = 0; i < 4; i++) {
            char byte = 0;
            cr_assert_eq(read(done[0], &byte, 1), 1);
            cr_assert_neq(byte, '?');
            owners += byte == '1';
        }
        cr_assert_eq(owners, 1, "round %d", round);
        for (int i = 0; i < 4; i++) {
            kill(pids[i], SIGKILL);
            cr_assert_eq(waitpid(pids[i], NULL, 0), pids[i]);
        }
        cr_assert_eq(unlink(endpoint.path), 0);
        close(go[0]);
        close(done[0]);
        close(done[1]);
    }
    (void)snprintf(text, sizeof text, "%s/s.lock", directory);
    (void)unlink(text);
    cr_assert_eq(rmdir(directory), 0);
}

Test(listener, what_is_in_the_way_and_no_stale_socket_is_kept)
{
    char directory[] = "/tmp/flashq-listener-XXXXXX", text[64];
    struct fq_listener *listener;
    struct fq_err err = {0};
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(text, sizeof text, "shm:%s/s", directory);
    const struct fq_endpoint endpoint = endpoint_of(text);
    const struct fq_listen_params params = {.endpoint = &endpoint};
    int fd = open(endpoint.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, "data", 4), 4);
    close(fd);
    cr_assert_eq(fq_listener_open(&params, &listener, &err), FLASHQ_ERR_EXISTS);
    cr_assert_not_null(strstr(err.text, "not a socket"), "%s", err.text);
    struct stat st;
    cr_assert_eq(stat(endpoint.path, &st), 0);
    cr_assert_eq(st.st_size, 4);
    cr_assert_eq(unlink(endpoint.path), 0);
    if (geteuid() == 0) { /* another user's leftovers; only root can make them here */
        struct sockaddr_un address;
        socklen_t length;
        (void)fq_sock_unix_address(endpoint.path, &address, &length);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(fd, (struct sockaddr *)&address, length), 0);
        cr_assert_eq(chown(endpoint.path, 65534, 65534), 0);
        cr_assert_eq(fq_listener_open(&params, &listener, &err), FLASHQ_ERR_NOT_PERMITTED);
        cr_assert_not_null(strstr(err.text, "65534"), "it says whose: %s", err.text);
        cr_assert_eq(access(endpoint.path, F_OK), 0);
        close(fd);
        (void)unlink(endpoint.path);
    } else {
        cr_log_warn("not root: another user's socket was not tried");
    }
    cr_assert_eq(rmdir(directory), 0);
}

Test(listener, unusual_modes_missing_folders_and_busy_ports)
{
    char directory[] = "/tmp/flashq-listener-XXXXXX", text[64];
    struct fq_listener *listener, *other;
    struct fq_err err = {0};
    struct stat st;
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(text, sizeof text, "shm:%s/s", directory);
    struct fq_endpoint endpoint = endpoint_of(text);
    mode_t mask = umask(077);
    listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint, .mode = 0666});
    (void)umask(mask);
    cr_assert_eq(stat(endpoint.path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0666);
    fq_listener_close(listener);
    cr_assert_eq(rmdir(directory), 0); /* the socket's own folder is made, one above it is not */
    listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
    fq_listener_close(listener);
    cr_assert_eq(rmdir(directory), 0);
    (void)snprintf(text, sizeof text, "shm:%s/a/s", directory);
    endpoint = endpoint_of(text);
    cr_assert_eq(
        fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint}, &listener, &err),
        FLASHQ_ERR_NOT_FOUND);
    cr_assert_not_null(strstr(err.text, "make /tmp/flashq-listener-"), "%s", err.text);
    endpoint = endpoint_of("tcp:127.0.0.1:0");
    listener = listen_on(&(struct fq_listen_params){.endpoint = &endpoint});
    cr_assert_neq(fq_listener_endpoint(listener)->port, 0);
    const struct fq_endpoint busy = *fq_listener_endpoint(listener);
    cr_assert_eq(fq_listener_open(&(struct fq_listen_params){.endpoint = &busy}, &other, &err),
                 FLASHQ_ERR_EXISTS);
    cr_assert_not_null(strstr(err.text, "127.0.0.1"), "%s", err.text);
    fq_listener_close(listener);
    endpoint = endpoint_of("rdma:127.0.0.1:1");
    cr_assert_eq(
        fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint}, &listener, &err),
        FLASHQ_ERR_UNSUPPORTED);
    cr_assert_eq(fq_listener_open(NULL, &listener, &err), FLASHQ_ERR_INVALID);
    fq_listener_close(NULL);
    fq_incoming_reject(NULL, 0, NULL);
}

/* Names are resolved beside the fabric's thread; none blocks it. */
Test(listener, names_resolve_or_fail_as_events)
{
    struct pair p;
    struct fq_err err = {0};
    pair_open(&p, PAIR_TCP);
    struct fq_endpoint endpoint = p.endpoint;
    (void)snprintf(endpoint.host, sizeof endpoint.host, "localhost");
    const struct fq_connect_params params = {.endpoint = &endpoint,
                                             .deadline_us = fq_mono_us() + 3000000};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    fq_incoming_reject(pair_incoming(&p), FLASHQ_ERR_BUSY, "busy");
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_BUSY);
    pair_event_free(&event);
    (void)snprintf(endpoint.host, sizeof endpoint.host, "no-such-host.invalid");
    size_t fds = count_fds();
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    fq_conn_close(p.c); /* while it resolves */
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert(event.event.status == FLASHQ_ERR_UNREACHABLE ||
              event.event.status == FLASHQ_ERR_TIMED_OUT);
    cr_assert_neq(event.text[0], '\0');
    pair_event_free(&event);
    for (int i = 0; i < 3000 && count_fds() > fds; i++) {
        pair_poll(&p.client);
        usleep(1000);
    }
    cr_assert_eq(count_fds(), fds);
    pair_close(&p);
}

/* Many good ones at once: all get through, and those that wait to be taken are bounded too. */
Test(listener, a_crowd_is_accepted_as_fast_as_it_is_taken)
{
    const struct fq_endpoint endpoint = endpoint_of("tcp:127.0.0.1:0");
    struct fq_listener *listener =
        listen_on(&(struct fq_listen_params){.endpoint = &endpoint, .pending_max = 8});
    struct fq_incoming *incoming;
    const struct fq_hello_frame hello = {.transport = FQ_TRANSPORT_TCP};
    uint8_t bytes[FQ_HELLO_FRAME_BYTES];
    size_t length = fq_hello_frame_encode(&hello, bytes);
    int crowd[300], taken = 0;
    for (int i = 0; i < 300; i++) {
        crowd[i] = connect_to(fq_listener_endpoint(listener));
        (void)fq_sock_send(crowd[i], bytes, length);
    }
    size_t fds = count_fds();
    for (int i = 0; i < 2000 && taken < 300; i++) {
        if (fq_listener_poll(listener, &incoming) == 1) {
            fq_incoming_reject(incoming, FLASHQ_ERR_BUSY, "busy");
            taken++;
        }
        cr_assert_leq(count_fds(), fds + 80);
    }
    cr_assert_eq(taken, 300);
    cr_assert_eq(fq_listener_refused(listener), 0);
    for (int i = 0; i < 300; i++) {
        close(crowd[i]);
    }
    fq_listener_close(listener);
}

/* A unix socket whose backlog is full refuses for the moment only: it is tried again, then it ends.
 */
Test(listener, a_full_backlog_is_waited_for_until_the_deadline)
{
    struct pair p;
    struct fq_err err = {0};
    struct sockaddr_un address;
    socklen_t length;
    pair_open(&p, PAIR_SHM);
    struct fq_endpoint endpoint = p.endpoint;
    (void)snprintf(endpoint.path, sizeof endpoint.path, "%s/full", p.directory);
    cr_assert(fq_sock_unix_address(endpoint.path, &address, &length));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    cr_assert_eq(listen(fd, 0), 0);
    int first = connect_to(&endpoint); /* takes the only place */
    const struct fq_connect_params params = {.endpoint = &endpoint,
                                             .deadline_us = fq_mono_us() + 60000};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0, "%s", err.text);
    cr_assert_leq(fq_fabric_next_deadline_us(p.client.fabric), fq_mono_us() + 5000);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_TIMED_OUT);
    pair_event_free(&event);
    const struct fq_connect_params again = {.endpoint = &endpoint, .deadline_us = INT64_MAX};
    cr_assert_eq(fq_conn_open(p.client.fabric, &again, &p.c, &err), 0);
    pair_poll(&p.client);
    close(accept(fd, NULL, NULL)); /* the first one */
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int64_t end = fq_mono_us() + 3000000;
    while (poll(&poll_fd, 1, 1) == 0 && fq_mono_us() < end) {
        pair_poll(&p.client);
    }
    int peer = accept(fd, NULL, NULL);
    uint8_t hello[4];
    cr_assert_eq(recv(peer, hello, 4, MSG_WAITALL), 4);
    cr_assert_eq(memcmp(hello, "FQF1", 4), 0);
    close(peer);
    event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_UNREACHABLE);
    pair_event_free(&event);
    close(first);
    close(fd);
    (void)unlink(endpoint.path);
    pair_close(&p);
}

Test(listener, addresses_of_version_6)
{
    struct fq_endpoint endpoint = endpoint_of("tcp:[::1]:0");
    struct fq_listener *listener;
    struct fq_err err = {0};
    if (fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint}, &listener, &err) < 0) {
        cr_log_warn("no IPv6 on this machine, not tried: %s", err.text);
        cr_assert_not_null(strstr(err.text, "[::1]"), "%s", err.text);
        return;
    }
    struct pair p;
    pair_open(&p, PAIR_TCP);
    fq_listener_close(p.listener);
    p.listener = listener;
    p.endpoint = *fq_listener_endpoint(listener);
    pair_connect(&p);
    cr_assert_eq(strncmp(fq_conn_peer_name(p.s), "tcp [::1]:", 10), 0, "%s",
                 fq_conn_peer_name(p.s));
    pair_close(&p);
}

/* A server that is something else: its words are not taken for a reply. */
Test(listener, a_client_that_meets_another_server_says_so)
{
    struct pair p;
    struct fq_err err = {0};
    pair_open(&p, PAIR_TCP);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    cr_assert_eq(listen(fd, 1), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    struct fq_endpoint endpoint = p.endpoint;
    endpoint.port = ntohs(address.sin_port);
    const struct fq_connect_params params = {.endpoint = &endpoint,
                                             .deadline_us = fq_mono_us() + 3000000};
    cr_assert_eq(fq_conn_open(p.client.fabric, &params, &p.c, &err), 0);
    int peer = accept(fd, NULL, NULL);
    (void)fq_sock_send(peer, "SSH-2.0-x\r\n", 11);
    struct pair_event event = pair_wait(&p, p.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_PROTOCOL);
    cr_assert_not_null(strstr(event.text, "does not speak FlashQ"));
    pair_event_free(&event);
    close(peer);
    close(fd);
    pair_close(&p);
}
