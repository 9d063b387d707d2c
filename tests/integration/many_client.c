/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producers with connections of their own, and consumers that are pulled, pushed to, or change
 * between both: what they are told is printed, a line each, for a test to compare.
 *
 *   many_client produce BROKERS TOPIC PRODUCERS COUNT PARTITION SEED [KEY=VALUE...]
 *     PARTITION -1: producer n writes partition n. Records come by flashq_send, flashq_sendv and
 *     flashq_claim in turns; $MANY_PACE_US is slept after each call.
 *       A PRODUCER NUMBER PARTITION OFFSET DUPLICATE   acknowledged
 *       F PRODUCER NUMBER STATUS PERSISTED             given up or refused
 *       X PRODUCER STATUS TEXT                         a call failed, and this producer ends
 *       E PRODUCER TAKEN ACKED FAILED UNDELIVERED      after closing
 *   many_client consume BROKERS TOPIC pull|push|flip COUNT SEED [KEY=VALUE...]
 *     from the start, until COUNT records came
 *       R PARTITION OFFSET PRODUCER NUMBER             a record whose bytes are as they were sent
 *       B PARTITION OFFSET                             one whose bytes are not
 *       C PARTITION OFFSET STATUS END                  a condition; TRIMMED: it goes on at END
 *       M PARTITION MODE                               before the first record and after the last
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flashq/flashq.h>

#define VALUE_MOST    40000u
#define TOGETHER_MOST 32u
#define FOREVER_MS    120000

struct random {
    uint64_t state;
};

static uint32_t next(struct random *r, uint32_t below)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((r->state >> 33) % below);
}

static void die(const char *what, const char *text)
{
    (void)fprintf(stderr, "many_client: %s: %s\n", what, text);
    exit(2);
}

/* ---- values: who, which, and bytes that follow from both ------------------------------------ */

static size_t value_length(uint32_t producer, uint32_t number)
{
    uint32_t n = (producer * 7919u + number) % 100;
    return 8 + (n == 99 ? number * 31 % (VALUE_MOST - 8) : n == 50 ? 0 : n * 3);
}

static uint8_t value_byte(uint32_t producer, uint32_t number, size_t at)
{
    return (uint8_t)(producer * 131u + number * 17u + at);
}

static size_t make_value(uint8_t *out, uint32_t producer, uint32_t number)
{
    size_t length = value_length(producer, number);
    memcpy(out, &producer, 4);
    memcpy(out + 4, &number, 4);
    for (size_t i = 8; i < length; i++) {
        out[i] = value_byte(producer, number, i);
    }
    return length;
}

static int is_right(const uint8_t *value, size_t length)
{
    uint32_t producer, number;
    if (length < 8) {
        return 0;
    }
    memcpy(&producer, value, 4);
    memcpy(&number, value + 4, 4);
    for (size_t i = 8; i < length; i++) {
        if (value[i] != value_byte(producer, number, i)) {
            return 0;
        }
    }
    return length == value_length(producer, number);
}

static flashq_config *configure(const char *brokers, int argc, char **argv)
{
    char text[512];
    flashq_config *config = flashq_config_new();
    if (!config || flashq_config_set(config, "brokers", brokers, text, sizeof text) != 0) {
        die("brokers", text);
    }
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) {
            die(argv[i], "not KEY=VALUE");
        }
        *value = '\0';
        if (flashq_config_set(config, argv[i], value + 1, text, sizeof text) != 0) {
            die("configuration", text);
        }
        *value = '=';
    }
    return config;
}

/* ---- producing ------------------------------------------------------------------------------ */

static const char *topic;
static uint32_t count;
static useconds_t pace_us;

struct producer {
    flashq_client *client;
    flashq_producer *producer;
    uint32_t index;
    int32_t partition;
    struct random random;
    uint64_t acked, failed;
    pthread_t thread;
    uint8_t values[TOGETHER_MOST][VALUE_MOST];
};

static void take_reports(struct producer *p, int timeout_ms)
{
    flashq_report reports[256];
    for (int got = 256; got == 256;) {
        got = flashq_producer_poll(p->producer, reports, 256, timeout_ms);
        for (int i = 0; i < got; i++) {
            uint32_t number = (uint32_t)((uintptr_t)reports[i].user - 1);
            if (reports[i].status == 0) {
                p->acked++;
                (void)printf("A %u %u %d %lld %d\n", p->index, number, reports[i].partition,
                             (long long)reports[i].offset, reports[i].duplicate);
            } else {
                p->failed++;
                (void)printf("F %u %u %d %d\n", p->index, number, reports[i].status,
                             reports[i].persisted);
            }
        }
    }
    (void)fflush(stdout);
}

static flashq_record record_of(struct producer *p, uint32_t number)
{
    return (flashq_record){.struct_bytes = sizeof(flashq_record),
                           .partition = p->partition,
                           .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                           .user = (void *)(uintptr_t)(number + 1)};
}

/* Built in place, at times slowly, at times given up first. 1: taken. */
static int64_t send_built(struct producer *p, uint32_t number)
{
    flashq_record record = record_of(p, number);
    size_t most = value_length(p->index, number) + next(&p->random, 100);
    void *value;
    int code = flashq_claim(p->producer, &record, most, 1000, &value);
    if (code == 0 && next(&p->random, 10) == 0) {
        memset(value, 0xdd, most);
        code = flashq_abort(p->producer);
        code = code == 0 ? flashq_claim(p->producer, &record, most, 1000, &value) : code;
    }
    if (code != 0) {
        return code;
    }
    size_t length = make_value(value, p->index, number);
    if (next(&p->random, 50) == 0) {
        (void)usleep(next(&p->random, 30000));
        length = make_value(value, p->index, number);
    }
    code = flashq_commit(p->producer, length);
    return code == 0 ? 1 : code;
}

static int64_t send_some(struct producer *p, uint32_t number)
{
    flashq_record records[TOGETHER_MOST];
    uint32_t together = 1 + next(&p->random, TOGETHER_MOST);
    uint32_t how = next(&p->random, 3);
    if (how == 0) {
        return send_built(p, number);
    }
    together = how == 1 ? 1 : together < count - number ? together : count - number;
    for (uint32_t i = 0; i < together; i++) {
        records[i] = record_of(p, number + i);
        records[i].value = p->values[i];
        records[i].value_length = make_value(p->values[i], p->index, number + i);
    }
    if (how == 1) {
        int code = flashq_send(p->producer, records, 1000);
        return code == 0 ? 1 : code;
    }
    return flashq_sendv(p->producer, records, together, 1000);
}

static void *produce(void *context)
{
    struct producer *p = context;
    char text[512];
    int64_t undelivered = 0;
    uint32_t number = 0;
    while (number < count) {
        int64_t taken = send_some(p, number);
        if (taken > 0) {
            number += (uint32_t)taken;
        } else if (taken != FLASHQ_ERR_AGAIN) {
            int code = flashq_producer_last_error(p->producer, text, sizeof text);
            (void)printf("X %u %d %s (%d)\n", p->index, (int)taken, text, code);
            break;
        }
        take_reports(p, 0);
        if (pace_us) {
            (void)usleep(pace_us);
        }
    }
    (void)flashq_flush(p->producer, FOREVER_MS);
    take_reports(p, 0);
    (void)flashq_producer_close(p->producer, 1000, &undelivered);
    (void)printf("E %u %u %llu %llu %lld\n", p->index, number, (unsigned long long)p->acked,
                 (unsigned long long)p->failed, (long long)undelivered);
    (void)flashq_client_close(p->client, 1000);
    (void)fflush(stdout);
    return NULL;
}

static int run_producers(int argc, char **argv)
{
    uint32_t producers = (uint32_t)strtoul(argv[4], NULL, 10);
    int32_t partition = (int32_t)strtol(argv[6], NULL, 10);
    const char *pace = getenv("MANY_PACE_US");
    flashq_config *config = configure(argv[2], argc - 8, argv + 8);
    struct producer *all = calloc(producers, sizeof *all);
    char text[512] = "";
    topic = argv[3];
    count = (uint32_t)strtoul(argv[5], NULL, 10);
    pace_us = pace ? (useconds_t)strtoul(pace, NULL, 10) : 0;
    if (!all || flashq_config_set(config, "reports", "all", text, sizeof text) != 0) {
        die("producers", text);
    }
    for (uint32_t i = 0; i < producers; i++) {
        struct producer *p = &all[i];
        p->index = i;
        p->partition = partition < 0 ? (int32_t)i : partition;
        p->random.state = strtoull(argv[7], NULL, 10) * 1000 + i;
        if (flashq_client_open(config, &p->client, text, sizeof text) != 0 ||
            flashq_producer_open(p->client, topic, FOREVER_MS, &p->producer, text, sizeof text) !=
                0) {
            die("open", text);
        }
    }
    flashq_config_free(config);
    for (uint32_t i = 0; i < producers; i++) {
        (void)pthread_create(&all[i].thread, NULL, produce, &all[i]);
    }
    for (uint32_t i = 0; i < producers; i++) {
        (void)pthread_join(all[i].thread, NULL);
    }
    free(all);
    return 0;
}

/* ---- consuming ------------------------------------------------------------------------------ */

static void take_message(flashq_consumer *consumer, const flashq_message *m,
                         uint32_t *inout_records)
{
    uint32_t who[2] = {0, 0};
    if (m->status != 0) {
        (void)printf("C %d %lld %d %lld\n", m->partition, (long long)m->offset, m->status,
                     (long long)m->condition_end);
        if (m->status == FLASHQ_ERR_TRIMMED) {
            (void)flashq_seek_offset(consumer, topic, m->partition, m->condition_end, 1000);
        }
        return;
    }
    ++*inout_records;
    if (!is_right(m->value, m->value_length)) {
        (void)printf("B %d %lld\n", m->partition, (long long)m->offset);
        return;
    }
    memcpy(who, m->value, sizeof who);
    (void)printf("R %d %lld %u %u\n", m->partition, (long long)m->offset, who[0], who[1]);
}

static void print_modes(flashq_consumer *consumer)
{
    enum flashq_mode mode;
    for (int32_t p = 0; flashq_mode(consumer, topic, p, &mode) == 0; p++) {
        (void)printf("M %d %s\n", p, mode == FLASHQ_MODE_PUSH ? "push" : "pull");
    }
    (void)fflush(stdout);
}

static int run_consumer(int argc, char **argv)
{
    flashq_config *config = configure(argv[2], argc - 7, argv + 7);
    const char *how = argv[4];
    uint32_t most = (uint32_t)strtoul(argv[5], NULL, 10), records = 0, polls = 0;
    struct random random = {strtoull(argv[6], NULL, 10)};
    flashq_client *client;
    flashq_consumer *consumer = NULL;
    char text[512] = "";
    topic = argv[3];
    if (flashq_client_open(config, &client, text, sizeof text) != 0 ||
        flashq_consumer_open(client, &consumer, text, sizeof text) != 0) {
        die("open", text);
    }
    flashq_config_free(config);
    if (strcmp(how, "push") == 0) {
        (void)flashq_set_mode(consumer, NULL, -1, FLASHQ_MODE_PUSH);
    }
    if (flashq_consumer_assign(consumer, topic, -1, FLASHQ_OFFSET_START, FOREVER_MS, text,
                               sizeof text) != 0) {
        die("assign", text);
    }
    print_modes(consumer);
    while (records < most) {
        const flashq_message *messages[256];
        int got = flashq_consumer_poll(consumer, messages, 1 + next(&random, 256), 500);
        if (got < 0) {
            die("poll", flashq_strerror(got));
        }
        for (int i = 0; i < got; i++) {
            take_message(consumer, messages[i], &records);
        }
        if (got > 0) {
            (void)fflush(stdout);
        }
        if (strcmp(how, "flip") == 0 && next(&random, 4) == 0) {
            (void)flashq_set_mode(consumer, topic, -1,
                                  polls++ % 2 ? FLASHQ_MODE_PULL : FLASHQ_MODE_PUSH);
        }
    }
    print_modes(consumer);
    (void)flashq_consumer_close(consumer, 1000);
    (void)flashq_client_close(client, 1000);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 8 && strcmp(argv[1], "produce") == 0) {
        return run_producers(argc, argv);
    }
    if (argc >= 7 && strcmp(argv[1], "consume") == 0) {
        return run_consumer(argc, argv);
    }
    (void)fprintf(
        stderr,
        "usage: many_client produce BROKERS TOPIC PRODUCERS COUNT PARTITION SEED [KEY=VALUE...]\n"
        "       many_client consume BROKERS TOPIC pull|push|flip COUNT SEED [KEY=VALUE...]\n");
    return 2;
}
