/* SPDX-License-Identifier: Apache-2.0 */
/* See live_broker.h. Aborts with a line on stderr when something that must work does not. */
#include "live_broker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"

#define START_MOST_US 20000000

/* Criterion 2.4.1 itself now and then leaves a small block behind when it runs parameterized tests with a
 * timeout; what our own code leaks is still found. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"), used)) const char *__lsan_default_suppressions(void)
{
    return "leak:libcriterion.so\n";
}

static void die(const char *what, const char *text)
{
    (void)fprintf(stderr, "live_broker: %s: %s\n", what, text);
    abort();
}

static void *run(void *context)
{
    struct live_broker *b = context;
    int wanted;
    while ((wanted = atomic_load(&b->wanted)) != 0) {
        if (wanted == 2) {
            atomic_store(&b->standing, 1);
            (void)usleep(200);
        } else if (fq_broker_step(b->t.broker, fq_mono_us()) == 0) {
            (void)usleep(20);
        }
    }
    return NULL;
}

void live_broker_prepare(struct live_broker *b)
{
    memset(b, 0, sizeof *b);
    test_broker_prepare(&b->t);
}

/* The port of the last life may be somebody's for a moment: connections of other programs take such ports. */
static void start_broker(struct live_broker *b)
{
    struct fq_err err;
    int64_t until_us = fq_mono_us() + START_MOST_US;
    while (test_broker_try_start(&b->t, &err) != 0) {
        if (fq_mono_us() > until_us) {
            die("start", err.text);
        }
        (void)usleep(10000);
    }
}

void live_broker_start(struct live_broker *b)
{
    char text[200];
    start_broker(b);
    for (unsigned i = 0; i < 2; i++) {
        const struct fq_endpoint *endpoint = fq_broker_endpoint(b->t.broker, i);
        if (!endpoint) {
            break;
        }
        (void)fq_endpoint_format(endpoint, text, sizeof text);
        bool is_shm = endpoint->transport == FQ_TRANSPORT_SHM;
        (void)snprintf(is_shm ? b->shm : b->tcp, sizeof b->shm, "%.159s", text);
        if (!is_shm) { /* the next life has the same port */
            (void)snprintf(b->t.options.listen_tcp, sizeof b->t.options.listen_tcp, "127.0.0.1:%u",
                           endpoint->port);
        }
    }
    (void)snprintf(b->brokers, sizeof b->brokers, "%.79s,%.79s", b->shm, b->tcp);
    atomic_store(&b->wanted, 1);
    if (pthread_create(&b->thread, NULL, run, b) != 0) {
        die("thread", "cannot be started");
    }
    b->is_running = true;
}

void live_broker_start_beside(struct live_broker *b, flashq_client *client)
{
    (void)pthread_mutex_lock(&client->engine->lock);
    live_broker_start(b);
    (void)pthread_mutex_unlock(&client->engine->lock);
}

void live_broker_begin(struct live_broker *b)
{
    live_broker_prepare(b);
    live_broker_start(b);
}

void live_broker_halt(struct live_broker *b)
{
    atomic_store(&b->standing, 0);
    atomic_store(&b->wanted, 2);
    while (!atomic_load(&b->standing)) {
        (void)usleep(100);
    }
}

void live_broker_go_on(struct live_broker *b)
{
    atomic_store(&b->wanted, 1);
}

static void end_thread(struct live_broker *b)
{
    if (b->is_running) {
        atomic_store(&b->wanted, 0);
        (void)pthread_join(b->thread, NULL);
        b->is_running = false;
    }
}

void live_broker_kill(struct live_broker *b)
{
    end_thread(b);
    test_broker_forget(&b->t);
}

void live_broker_stop(struct live_broker *b)
{
    end_thread(b);
    test_broker_stop(&b->t);
}

void live_broker_end(struct live_broker *b)
{
    end_thread(b);
    test_broker_end(&b->t);
}

/* ---- clients -------------------------------------------------------------------------------- */

static flashq_config *config_of(struct live_broker *b, const char *transport, va_list pairs)
{
    char text[512];
    flashq_config *config = flashq_config_new();
    const char *brokers = strncmp(transport, "shm", 3) == 0 ? b->shm : b->tcp;
    if (strstr(transport, "+push") && flashq_config_set(config, "fetch.mode", "push", text, sizeof text) != 0) {
        die("fetch.mode", text);
    }
    if (flashq_config_set(config, "brokers", brokers, text, sizeof text) != 0) {
        die("brokers", text);
    }
    for (const char *key = va_arg(pairs, const char *); key; key = va_arg(pairs, const char *)) {
        if (flashq_config_set(config, key, va_arg(pairs, const char *), text, sizeof text) != 0) {
            die(key, text);
        }
    }
    return config;
}

flashq_client *live_client(struct live_broker *b, const char *transport, ...)
{
    char text[512];
    va_list pairs;
    flashq_client *client;
    va_start(pairs, transport);
    flashq_config *config = config_of(b, transport, pairs);
    va_end(pairs);
    if (flashq_client_open(config, &client, text, sizeof text) != 0) {
        die("client", text);
    }
    flashq_config_free(config);
    return client;
}

static int create_faulty(void *context, enum fq_transport transport,
                         const struct fq_fabric_params *params, struct fq_fabric **ret,
                         struct fq_err *err)
{
    struct faulty_client *f = context;
    int code = fq_fabric_faulty_create(transport, params, &f->plan, ret, err);
    f->fabric = code == 0 ? *ret : NULL;
    return code;
}

/* The beginning of the public handle's configuration is the table's struct: copied key by key. */
void live_faulty_client(struct live_broker *b, const char *transport, struct faulty_client *f, ...)
{
    struct fq_client_config values;
    struct fq_err err;
    va_list pairs;
    va_start(pairs, f);
    flashq_config *config = config_of(b, transport, pairs);
    va_end(pairs);
    fq_conf_defaults(fq_client_keys(), &values);
    for (size_t i = 0; i < fq_client_keys()->keys_count; i++) {
        const char *name = fq_client_keys()->keys[i].name;
        if (fq_conf_set(fq_client_keys(), &values, name, flashq_config_get(config, name), &err) != 0) {
            die(name, err.text);
        }
    }
    flashq_config_free(config);
    struct fq_engine_ops ops = {.create_fabric = create_faulty, .context = f};
    f->client = calloc(1, sizeof *f->client);
    if (!f->client || fq_engine_create(&values, &ops, &f->client->engine, &err) != 0) {
        die("client", err.text);
    }
}

void live_topic(flashq_client *client, const char *topic, int partitions)
{
    char text[512];
    if (flashq_topic_create(client, topic, partitions, 0, NULL, 0, 10000, text, sizeof text) != 0) {
        die(topic, text);
    }
}

int64_t live_send(flashq_producer *producer, int32_t partition, const char *value)
{
    flashq_record record = {.struct_bytes = sizeof record, .partition = partition,
                            .timestamp_ms = FLASHQ_TIMESTAMP_NOW, .value = value,
                            .value_length = strlen(value)};
    flashq_report report;
    int code = flashq_send_sync(producer, &record, 20000, &report);
    if (code != 0) {
        die(value, flashq_strerror(code));
    }
    return report.offset;
}
