/* SPDX-License-Identifier: Apache-2.0 */
/* See fabric_pair.h. */
#include "fabric_pair.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/faulty.h"

#define WAIT_MS         5000
#define EVENTS_PER_POLL 32

#define die(...)                                                                                   \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__),                 \
     fprintf(stderr, "\n"), abort())

const char *pair_name(enum pair_backend backend)
{
    static const char *const names[] = {"shm", "tcp", "shm in faulty", "tcp in faulty"};
    return names[backend];
}

enum fq_transport pair_transport(enum pair_backend backend)
{
    return backend == PAIR_SHM || backend == PAIR_SHM_FAULTY ? FQ_TRANSPORT_SHM : FQ_TRANSPORT_TCP;
}

struct fq_fabric *pair_fabric(enum pair_backend backend, const struct fq_fabric_params *params)
{
    struct fq_fabric *fabric = NULL;
    struct fq_err err = {0};
    const struct fq_fault_plan plan = {.seed = 1}; /* no faults */
    int r = backend == PAIR_SHM_FAULTY || backend == PAIR_TCP_FAULTY
                ? fq_fabric_faulty_create(pair_transport(backend), params, &plan, &fabric, &err)
                : fq_fabric_create(pair_transport(backend), params, &fabric, &err);
    if (r < 0) {
        die("fabric: %s", err.text);
    }
    return fabric;
}

void pair_open(struct pair *pair, enum pair_backend backend)
{
    pair_open_with(pair, backend, NULL);
}

void pair_open_with(struct pair *pair, enum pair_backend backend,
                    const struct fq_fabric_params *params)
{
    struct fq_err err = {0};
    memset(pair, 0, sizeof *pair);
    pair->backend = backend;
    pair->endpoint.transport = pair_transport(backend);
    (void)snprintf(pair->directory, sizeof pair->directory, "/tmp/flashq-fabric-XXXXXX");
    if (!mkdtemp(pair->directory)) {
        die("mkdtemp");
    }
    (void)snprintf(pair->endpoint.host, sizeof pair->endpoint.host, "127.0.0.1");
    (void)snprintf(pair->endpoint.path, sizeof pair->endpoint.path, "%s/s", pair->directory);
    const struct fq_listen_params listen = {.endpoint = &pair->endpoint};
    if (fq_listener_open(&listen, &pair->listener, &err) < 0) {
        die("listen: %s", err.text);
    }
    pair->endpoint = *fq_listener_endpoint(pair->listener);
    pair->client.fabric = pair_fabric(backend, params);
    pair->server.fabric = pair_fabric(backend, params);
}

static void close_side(struct pair_side *side)
{
    fq_fabric_destroy(side->fabric);
    for (size_t i = 0; i < side->events_count; i++) {
        pair_event_free(&side->events[i]);
    }
    free(side->events);
}

void pair_close(struct pair *pair)
{
    close_side(&pair->client);
    close_side(&pair->server);
    fq_listener_close(pair->listener);
    if (rmdir(pair->directory) < 0) {
        die("the listener left something in %s", pair->directory);
    }
}

struct fq_incoming *pair_incoming(struct pair *pair)
{
    struct fq_incoming *incoming = NULL;
    int64_t end = fq_mono_us() + WAIT_MS * 1000;
    while (fq_mono_us() < end) {
        if (fq_listener_poll(pair->listener, &incoming) == 1) {
            return incoming;
        }
        pair_poll(&pair->client);
        usleep(100);
    }
    die("nobody came");
}

void pair_connect_more(struct pair *pair, struct fq_conn **ret_c, struct fq_conn **ret_s)
{
    struct fq_err err = {0};
    const struct fq_connect_params params = {.endpoint = &pair->endpoint,
                                             .deadline_us = fq_mono_us() + WAIT_MS * 1000};
    if (fq_conn_open(pair->client.fabric, &params, ret_c, &err) < 0) {
        die("connect: %s", err.text);
    }
    struct fq_incoming *incoming = pair_incoming(pair);
    if (fq_fabric_adopt(pair->server.fabric, incoming, NULL, 0, NULL, ret_s, &err) < 0) {
        die("adopt: %s", err.text);
    }
    struct pair_event event = pair_wait(pair, *ret_c, FQ_EVENT_CONNECTED);
    pair_event_free(&event);
    event = pair_wait(pair, *ret_s, FQ_EVENT_CONNECTED);
    pair_event_free(&event);
}

void pair_connect(struct pair *pair)
{
    pair_connect_more(pair, &pair->c, &pair->s);
}

static void keep(struct pair_side *side, const struct fq_event *event)
{
    if (side->events_count == side->events_capacity) {
        side->events_capacity = side->events_capacity ? 2 * side->events_capacity : 64;
        side->events = realloc(side->events, side->events_capacity * sizeof *side->events);
        if (!side->events) {
            die("no memory");
        }
    }
    struct pair_event *kept = &side->events[side->events_count++];
    *kept = (struct pair_event){.event = *event};
    if (event->length > 0) {
        kept->bytes = malloc(event->length);
        memcpy(kept->bytes, event->data, event->length);
    }
    kept->text = event->text ? strdup(event->text) : NULL;
}

void pair_poll(struct pair_side *side)
{
    struct fq_event events[EVENTS_PER_POLL];
    int count = fq_fabric_poll(side->fabric, events, EVENTS_PER_POLL);
    if (count < 0) {
        die("poll: %d", count);
    }
    for (int i = 0; i < count; i++) {
        keep(side, &events[i]);
    }
}

bool pair_has(const struct pair_side *side, const struct fq_conn *conn, enum fq_event_type type)
{
    for (size_t i = 0; i < side->events_count; i++) {
        if (side->events[i].event.conn == conn && side->events[i].event.type == type) {
            return true;
        }
    }
    return false;
}

static bool take(struct pair_side *side, const struct fq_conn *conn, enum fq_event_type type,
                 struct pair_event *ret)
{
    for (size_t i = 0; i < side->events_count; i++) {
        if (side->events[i].event.conn == conn && side->events[i].event.type == type) {
            *ret = side->events[i];
            memmove(&side->events[i], &side->events[i + 1],
                    (side->events_count - i - 1) * sizeof side->events[0]);
            side->events_count--;
            return true;
        }
    }
    return false;
}

bool pair_wait_for(struct pair *pair, struct fq_conn *conn, enum fq_event_type type, int ms,
                   struct pair_event *ret)
{
    int64_t end = fq_mono_us() + (int64_t)ms * 1000;
    for (int i = 0;; i++) {
        pair_poll(&pair->client);
        pair_poll(&pair->server);
        if (take(&pair->client, conn, type, ret) || take(&pair->server, conn, type, ret)) {
            return true;
        }
        if (fq_mono_us() > end) {
            return false;
        }
        if (i > 100) {
            usleep(200);
        }
    }
}

struct pair_event pair_wait(struct pair *pair, struct fq_conn *conn, enum fq_event_type type)
{
    struct pair_event event;
    if (!pair_wait_for(pair, conn, type, WAIT_MS, &event)) {
        if (pair_wait_for(pair, conn, FQ_EVENT_DISCONNECTED, 0, &event)) {
            die("%s: waited for event %d, got disconnected: %d %s", pair_name(pair->backend), type,
                event.event.status, event.text);
        }
        die("%s: waited for event %d in vain", pair_name(pair->backend), type);
    }
    return event;
}

void pair_event_free(struct pair_event *event)
{
    free(event->bytes);
    free(event->text);
    event->bytes = NULL;
    event->text = NULL;
}

void pair_window(struct pair *pair, struct fq_conn *from, struct fq_conn *to,
                 struct fq_region *region, enum fq_rights rights, struct fq_window **ret_window,
                 struct fq_remote **ret_remote)
{
    uint8_t token[FQ_TOKEN_BYTES];
    struct fq_err err = {0};
    if (fq_window_grant(from, region, 0, fq_region_bytes(region), rights, ret_window, token, &err) <
            0 ||
        fq_conn_send(from, token, sizeof token) < 0) {
        die("grant: %s", err.text);
    }
    struct pair_event message = pair_wait(pair, to, FQ_EVENT_MESSAGE);
    if (fq_remote_open(to, message.bytes, rights, ret_remote, &err) < 0) {
        die("open: %s", err.text);
    }
    pair_event_free(&message);
}

size_t count_fds(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) {
        count++;
    }
    closedir(directory);
    return count;
}

size_t count_maps(void)
{
    size_t count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
        count += c == '\n';
    }
    (void)fclose(file);
    return count;
}
