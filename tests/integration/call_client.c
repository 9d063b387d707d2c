/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the public header that are judged here, in the process that makes them. Exits with 1 and
 * a line on stderr at the first thing that is not as flashq.h says. Signals interrupt it a thousand
 * times a second, without SA_RESTART.
 *
 *   call_client seek     BROKERS TOPIC pull|push|flip ROUNDS SEED   while others produce into
 * partition 0 call_client sizes    BROKERS TOPIC pull|push SEED               an empty topic of one
 * partition call_client close    BROKERS TOPIC PRODUCERS                    "ready", then a line on
 * stdin: the broker is gone call_client unpolled BROKERS TOPIC                              an
 * empty topic of one partition call_client fork     BROKERS TOPIC                              an
 * empty topic of one partition call_client deadline BROKERS TOPIC MILLISECONDS SEED while the
 * broker is stopped and continued call_client idle     BROKERS TOPIC PRODUCERS CONSUMERS "ready",
 * then nothing more
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <flashq/flashq.h>

#define ENOUGH_MS 60000

#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "call_client.c:%d: %s is false: ", __LINE__, #condition);        \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fprintf(stderr, " %s\n", text);                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char text[512];
static uint64_t random_state;
static const char *brokers, *topic;

static uint32_t next(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

static void on_alarm(int number)
{
    (void)number;
}

static void interrupt_often(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval every = {{0, 1000}, {0, 1000}};
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &every, NULL);
}

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static flashq_client *open_client(const char *const *settings)
{
    flashq_config *config = flashq_config_new();
    flashq_client *client;
    MUST(config && flashq_config_set(config, "brokers", brokers, text, sizeof text) == 0,
         "brokers");
    for (; settings && *settings; settings += 2) {
        MUST(flashq_config_set(config, settings[0], settings[1], text, sizeof text) == 0, "%s",
             settings[0]);
    }
    MUST(flashq_client_open(config, &client, text, sizeof text) == 0, "open");
    flashq_config_free(config);
    return client;
}

static flashq_producer *open_producer(flashq_client *client)
{
    flashq_producer *producer;
    int code = flashq_producer_open(client, topic, ENOUGH_MS, &producer, text, sizeof text);
    MUST(code == 0, "producer: %s", flashq_strerror(code));
    return producer;
}

static flashq_consumer *open_consumer(flashq_client *client, const char *how)
{
    flashq_consumer *consumer;
    MUST(flashq_consumer_open(client, &consumer, text, sizeof text) == 0, "consumer");
    if (strcmp(how, "push") == 0) {
        MUST(flashq_set_mode(consumer, NULL, -1, FLASHQ_MODE_PUSH) == 0, "mode");
    }
    int code = flashq_consumer_assign(consumer, topic, 0, FLASHQ_OFFSET_START, ENOUGH_MS, text,
                                      sizeof text);
    MUST(code == 0, "assign: %s", flashq_strerror(code));
    return consumer;
}

static flashq_record record_of(const void *value, size_t length)
{
    return (flashq_record){.struct_bytes = sizeof(flashq_record),
                           .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                           .value = value,
                           .value_length = length};
}

static void wait_for_a_line(void)
{
    char line[64];
    while (!fgets(line, sizeof line, stdin) && errno == EINTR) {
        clearerr(stdin);
        errno = 0;
    }
}

/* ---- seek ----------------------------------------------------------------------------------- */

/* case 15: at least `most` records from `expected` on, one after the other. Returns what comes
 * next. */
static int64_t take(flashq_consumer *consumer, int64_t expected, uint32_t most)
{
    const flashq_message *messages[100];
    int64_t until = now_ms() + ENOUGH_MS;
    for (uint32_t seen = 0; seen < most;) {
        int got = flashq_consumer_poll(consumer, messages, 1 + next(100), 100);
        MUST(got >= 0, "poll: %d", got);
        for (int i = 0; i < got; i++) {
            MUST(messages[i]->status == 0, "a condition at %lld: %s",
                 (long long)messages[i]->offset, flashq_strerror(messages[i]->status));
            MUST(messages[i]->offset == expected, "%lld came, not %lld",
                 (long long)messages[i]->offset, (long long)expected);
            expected++;
            seen++;
        }
        MUST(now_ms() < until, "nothing comes at %lld", (long long)expected);
    }
    return expected;
}

static int64_t seek_somewhere(flashq_client *client, flashq_consumer *consumer, int64_t at)
{
    int64_t lag = 0;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    MUST(flashq_lag(consumer, topic, 0, &lag) == 0 && lag >= 0, "lag %lld", (long long)lag);
    int64_t to = (int64_t)next((uint32_t)(at + lag) + 1);
    if (next(4) != 0) {
        MUST(flashq_seek_offset(consumer, topic, 0, to, ENOUGH_MS) == 0, "seek %lld",
             (long long)to);
        return to;
    }
    int64_t when = (int64_t)time(NULL) * 1000 - (int64_t)next(3000);
    int code =
        flashq_offset_for_time(client, topic, 0, when, ENOUGH_MS, &answer, text, sizeof text);
    MUST(code == 0, "offset for time: %d", code);
    if (answer.end) {
        return at; /* it is not the end any more */
    }
    MUST(flashq_seek_time(consumer, topic, 0, when, ENOUGH_MS) == 0, "seek time");
    return answer.offset;
}

static void run_seek(const char *how, uint32_t rounds)
{
    flashq_client *client = open_client(NULL);
    flashq_consumer *consumer = open_consumer(client, how);
    int64_t at = take(consumer, 0, 10), position;
    for (uint32_t i = 0; i < rounds; i++) {
        const flashq_message *messages[100];
        switch (next(4)) {
        case 0: at = seek_somewhere(client, consumer, at); break;
        case 1:
            MUST(flashq_pause(consumer, topic, 0) == 0, "pause");
            for (int k = 0; k < 3; k++) {
                MUST(flashq_consumer_poll(consumer, messages, 100, 5) == 0, "paused");
            }
            if (next(2)) { /* while it is paused */
                at = seek_somewhere(client, consumer, at);
                MUST(flashq_consumer_poll(consumer, messages, 100, 5) == 0, "paused, after a seek");
            }
            MUST(flashq_resume(consumer, topic, 0) == 0, "resume");
            break;
        case 2:
            if (strcmp(how, "flip") == 0) {
                MUST(flashq_set_mode(consumer, topic, -1,
                                     next(2) ? FLASHQ_MODE_PUSH : FLASHQ_MODE_PULL) == 0,
                     "mode");
            }
            break;
        default: break;
        }
        MUST(flashq_position(consumer, topic, 0, &position) == 0 && position == at,
             "position %lld, not %lld", (long long)position, (long long)at);
        at = take(consumer, at, next(3) ? 1 + next(300) : 1);
    }
    (void)flashq_consumer_close(consumer, 1000);
    (void)flashq_client_close(client, 1000);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

#define RECORD_MOST (1u << 20)

/* case 32: 0 (taken), or what the call says. */
static int send_one(flashq_producer *producer, unsigned how, uint8_t *bytes, size_t length)
{
    flashq_record record = record_of(bytes, length);
    void *value;
    if (how == 0) {
        return flashq_send(producer, &record, ENOUGH_MS);
    }
    if (how == 1) {
        int64_t taken = flashq_sendv(producer, &record, 1, ENOUGH_MS);
        return taken == 1 ? 0 : (int)taken;
    }
    record.value = NULL;
    record.value_length = 0;
    int code = flashq_claim(producer, &record, length, ENOUGH_MS, &value);
    if (code == 0) {
        memcpy(value, bytes, length);
        code = flashq_commit(producer, length);
    }
    return code;
}

static void run_sizes(const char *how)
{
    static const size_t sizes[] = {0,           1,
                                   2,           63,
                                   64,          65,
                                   4095,        4096,
                                   4097,        65535,
                                   65536,       65537,
                                   131072,      262143,
                                   1000003,     RECORD_MOST - 1,
                                   RECORD_MOST, RECORD_MOST + 1};
    const char *small[] = {"fetch.max.bytes", "4096", "push.buffer.bytes", "64KiB", NULL};
    enum { SIZES = sizeof sizes / sizeof sizes[0], TURNS = 9 };
    size_t expected[SIZES * TURNS], count = 0;
    flashq_client *client = open_client(NULL), *reader = open_client(small);
    flashq_producer *producer = open_producer(client);
    flashq_consumer *consumer = open_consumer(reader, how);
    uint8_t *bytes = malloc(RECORD_MOST + 1);
    MUST(bytes, "memory");
    for (size_t i = 0; i <= RECORD_MOST; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < SIZES; i++) {
            size_t size =
                sizes[(i * (turn + 1) * 5) % SIZES]; /* in another order each time, some twice */
            int code = send_one(producer, turn % 3, bytes, size);
            if (size > RECORD_MOST) {
                MUST(code == FLASHQ_ERR_TOO_LARGE, "%zu bytes: %d", size, code);
                (void)flashq_producer_last_error(producer, text, sizeof text);
                MUST(strstr(text, "message.max.bytes") && strstr(text, "1048576"),
                     "the limit is not named");
            } else {
                MUST(code == 0, "%zu bytes: %s", size, flashq_strerror(code));
                expected[count++] = size;
            }
        }
    }
    MUST(flashq_flush(producer, ENOUGH_MS) == 0, "flush");
    for (size_t seen = 0; seen < count;) {
        const flashq_message *messages[16];
        int got = flashq_consumer_poll(consumer, messages, 16, ENOUGH_MS);
        MUST(got > 0, "%zu of %zu came: %d", seen, count, got);
        for (int i = 0; i < got; i++, seen++) {
            const flashq_message *m = messages[i];
            MUST(m->status == 0 && m->offset == (int64_t)seen, "status %d at %lld", m->status,
                 (long long)m->offset);
            MUST(m->value && m->value_length == expected[seen], "%zu bytes, not %zu",
                 m->value_length, expected[seen]);
            MUST(memcmp(m->value, bytes, m->value_length) == 0, "other bytes");
        }
    }
    free(bytes);
    MUST(flashq_client_close(client, ENOUGH_MS) == 0, "close");
    (void)flashq_client_close(reader, 1000);
}

/* ---- close ---------------------------------------------------------------------------------- */

/* case 39: what was sent is acknowledged, failed, or counted as undelivered; by the deadline. */
static void run_close(uint32_t producers)
{
    static const char *const settings[] = {"reports", "all", NULL};
    enum { MANY = 64, BEFORE = 20, AFTER = 50 };
    flashq_client *clients[MANY];
    flashq_producer *all[MANY];
    flashq_record record = record_of("value", 5);
    MUST(producers <= MANY, "at most %d", MANY);
    for (uint32_t i = 0; i < producers; i++) {
        clients[i] = open_client(settings);
        all[i] = open_producer(clients[i]);
        record.partition = (int32_t)i % flashq_producer_partitions(all[i]);
        for (int k = 0; k < BEFORE; k++) {
            MUST(flashq_send(all[i], &record, ENOUGH_MS) == 0, "send");
        }
        MUST(flashq_flush(all[i], ENOUGH_MS) == 0, "flush");
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    wait_for_a_line();
    for (uint32_t i = 0; i < producers; i++) {
        flashq_report reports[BEFORE + AFTER + 1];
        int64_t undelivered = 0;
        record.partition = (int32_t)i % flashq_producer_partitions(all[i]);
        for (int k = 0; k < AFTER; k++) {
            MUST(flashq_send(all[i], &record, 1000) == 0, "there is room in the queue");
        }
        int64_t begun = now_ms();
        MUST(flashq_flush(all[i], 100) == FLASHQ_ERR_TIMED_OUT, "nobody is there");
        int got = flashq_producer_poll(all[i], reports, BEFORE + AFTER + 1, 0);
        MUST(got == BEFORE, "%d reports, not %d", got, BEFORE);
        if (i % 2) {
            MUST(flashq_producer_close(all[i], 100, &undelivered) == 0, "close");
            MUST(flashq_client_close(clients[i], 100) == 0, "counted already");
        } else {
            undelivered = flashq_client_close(clients[i], 100);
        }
        MUST(undelivered == AFTER, "%lld undelivered, not %d", (long long)undelivered, AFTER);
        MUST(now_ms() - begun < 10000, "far beyond its deadline");
    }
}

/* ---- never polled --------------------------------------------------------------------------- */

/* case 40 */
static void run_unpolled(void)
{
    static const char *const settings[] = {
        "reports", "all",         "queue.bytes", "1MiB", "message.max.bytes",
        "64KiB",   "reports.max", "1000",        NULL};
    static const char *const small[] = {"push.buffer.bytes", "64KiB", NULL};
    enum { RECORDS = 30000 };
    static uint8_t value[1000];
    flashq_client *client = open_client(settings), *reader = open_client(small);
    flashq_consumer *pushed = open_consumer(reader, "push"),
                    *pulled = open_consumer(reader, "pull");
    flashq_producer *producer = open_producer(client);
    flashq_record record = record_of(value, sizeof value);
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    for (int i = 0; i < RECORDS; i++) {
        int code = flashq_send(producer, &record, ENOUGH_MS);
        MUST(code == 0, "record %d: %s", i, flashq_strerror(code));
    }
    MUST(flashq_flush(producer, ENOUGH_MS) == 0, "flush");
    MUST(flashq_producer_get_stats(producer, &stats) == 0 && stats.records_acked == RECORDS,
         "%llu acknowledged", (unsigned long long)stats.records_acked);
    MUST(stats.reports_dropped == RECORDS - 1000, "%llu reports dropped",
         (unsigned long long)stats.reports_dropped);
    MUST(take(pushed, 0, RECORDS) == RECORDS && take(pulled, 0, RECORDS) == RECORDS, "not all");
    MUST(flashq_client_close(client, ENOUGH_MS) == 0, "close");
    (void)flashq_client_close(reader, 1000);
}

/* ---- fork ----------------------------------------------------------------------------------- */

static void be_the_child(flashq_client *client, flashq_producer *producer,
                         flashq_consumer *consumer, unsigned how)
{
    flashq_record record = record_of("child", 5);
    const flashq_message *messages[4];
    flashq_report report;
    void *value;
    MUST(flashq_send(producer, &record, 100) == FLASHQ_ERR_FORKED, "send");
    MUST(flashq_send_sync(producer, &record, 100, NULL) == FLASHQ_ERR_FORKED, "send_sync");
    MUST(flashq_sendv(producer, &record, 1, 100) == FLASHQ_ERR_FORKED, "sendv");
    record.value = NULL;
    MUST(flashq_claim(producer, &record, 5, 100, &value) == FLASHQ_ERR_FORKED, "claim");
    MUST(flashq_commit(producer, 1) == FLASHQ_ERR_FORKED, "commit");
    MUST(flashq_flush(producer, 100) == FLASHQ_ERR_FORKED, "flush");
    MUST(flashq_producer_poll(producer, &report, 1, 100) == FLASHQ_ERR_FORKED, "reports");
    MUST(flashq_consumer_poll(consumer, messages, 4, 100) == FLASHQ_ERR_FORKED, "poll");
    MUST(flashq_seek_offset(consumer, topic, 0, 0, 100) == FLASHQ_ERR_FORKED, "seek");
    MUST(flashq_set_mode(consumer, topic, -1, FLASHQ_MODE_PULL) == FLASHQ_ERR_FORKED, "mode");
    if (how % 3 == 0) {
        (void)flashq_client_close(client, 1000);
    } else if (how % 3 == 1) {
        (void)flashq_consumer_close(consumer, 1000);
        (void)flashq_producer_close(producer, 1000, NULL);
        (void)flashq_client_close(client, 1000);
    }
    _exit(0); /* or just so */
}

/* case 42 */
static void run_fork(void)
{
    enum { FORKS = 9, EACH = 500 };
    int64_t at = 0;
    flashq_client *client = open_client(NULL);
    flashq_producer *producer = open_producer(client);
    flashq_consumer *consumer = open_consumer(client, "push");
    for (unsigned how = 0; how < FORKS; how++) {
        flashq_record record = record_of("parent", 6), claimed = record_of(NULL, 0);
        void *value;
        for (int i = 0; i < EACH; i++) {
            MUST(flashq_send(producer, &record, ENOUGH_MS) == 0, "send");
        }
        MUST(flashq_claim(producer, &claimed, 100, ENOUGH_MS, &value) == 0, "claim");
        memcpy(value, "par", 3);
        pid_t child = fork();
        if (child == 0) {
            be_the_child(client, producer, consumer, how);
        }
        memcpy((char *)value + 3, "ent", 3);
        MUST(flashq_commit(producer, 6) == 0, "commit");
        if (how % 2) { /* while the child is there, or when it is gone */
            at = take(consumer, at, EACH + 1);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x",
             (unsigned)status);
        at = how % 2 ? at : take(consumer, at, EACH + 1);
        MUST(at == (int64_t)(how + 1) * (EACH + 1), "%lld records", (long long)at);
        MUST(flashq_flush(producer, ENOUGH_MS) == 0, "flush");
    }
    MUST(flashq_client_close(client, ENOUGH_MS) == 0, "close");
}

/* ---- deadlines ------------------------------------------------------------------------------ */

#define DEADLINE_MS 150
#define GRACE_MS    3000 /* a machine with other things to do */

struct bound {
    flashq_client *client;
    flashq_producer *producer;
    flashq_consumer *consumer;
};

enum { CALLS = 16 };

static int64_t call(struct bound *b, unsigned which)
{
    flashq_record record = record_of("value", 5), claimed = record_of(NULL, 0);
    const flashq_message *messages[64];
    flashq_report reports[64];
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    flashq_topic_info *topics = NULL, one;
    flashq_partition_info *partitions = NULL;
    flashq_broker_info *infos = NULL;
    flashq_consumer *other;
    flashq_producer *more;
    void *value;
    size_t count;
    int64_t code = 0;
    switch (which) {
    case 0: return flashq_send(b->producer, &record, DEADLINE_MS);
    case 1: return flashq_send_sync(b->producer, &record, DEADLINE_MS, NULL);
    case 2: return flashq_sendv(b->producer, &record, 1, DEADLINE_MS);
    case 3:
        code = flashq_claim(b->producer, &claimed, 500, DEADLINE_MS, &value);
        if (code == 0) {
            memset(value, 'v', 500);
            code = flashq_commit(b->producer, 500);
        }
        return code;
    case 4: return flashq_flush(b->producer, DEADLINE_MS);
    case 5: return flashq_producer_poll(b->producer, reports, 64, DEADLINE_MS);
    case 6: return flashq_consumer_poll(b->consumer, messages, 64, DEADLINE_MS);
    case 7: return flashq_seek_offset(b->consumer, topic, 0, FLASHQ_OFFSET_START, DEADLINE_MS);
    case 8: return flashq_seek_time(b->consumer, topic, 0, 1000, DEADLINE_MS);
    case 9:
        return flashq_offset_for_time(b->client, topic, 0, 1000, DEADLINE_MS, &answer, text,
                                      sizeof text);
    case 10:
        code = flashq_topic_list(b->client, DEADLINE_MS, &topics, &count, text, sizeof text);
        break;
    case 11:
        one.struct_bytes = sizeof one;
        code = flashq_topic_describe(b->client, topic, DEADLINE_MS, &one, &partitions, &count, text,
                                     sizeof text);
        break;
    case 12:
        code = flashq_cluster_brokers(b->client, DEADLINE_MS, &infos, &count, text, sizeof text);
        break;
    case 13:
        return flashq_set_mode(b->consumer, topic, -1,
                               next(2) ? FLASHQ_MODE_PUSH : FLASHQ_MODE_PULL);
    case 14:
        code = flashq_consumer_open(b->client, &other, text, sizeof text);
        code = code == 0 ? flashq_consumer_assign(other, topic, 0, FLASHQ_OFFSET_START, DEADLINE_MS,
                                                  text, sizeof text)
                         : code;
        (void)flashq_consumer_close(other, DEADLINE_MS);
        return code;
    default:
        code = flashq_producer_open(b->client, topic, DEADLINE_MS / 2, &more, text, sizeof text);
        if (code == 0) {
            (void)flashq_producer_close(more, DEADLINE_MS / 2, NULL);
        }
        return code;
    }
    if (code == 0) {
        flashq_free(topics);
        flashq_free(partitions);
        flashq_free(infos);
    }
    return code;
}

/* case 43 */
static void run_deadline(int64_t for_ms)
{
    struct bound b = {.client = open_client(NULL)};
    int64_t until = now_ms() + for_ms, fine = 0, late = 0, longest = 0;
    b.producer = open_producer(b.client);
    b.consumer = open_consumer(b.client, "push");
    while (now_ms() < until) {
        unsigned which = next(CALLS);
        int64_t begun = now_ms();
        int64_t code = call(&b, which);
        int64_t took = now_ms() - begun;
        MUST(took < DEADLINE_MS + GRACE_MS, "call %u took %lld ms", which, (long long)took);
        MUST(code >= 0 || code == FLASHQ_ERR_TIMED_OUT || code == FLASHQ_ERR_AGAIN ||
                 code == FLASHQ_ERR_UNREACHABLE,
             "call %u: %s", which, flashq_strerror((int)code));
        fine += code >= 0;
        late += code < 0;
        longest = took > longest ? took : longest;
    }
    int64_t begun = now_ms();
    (void)flashq_client_close(b.client, DEADLINE_MS);
    MUST(now_ms() - begun < DEADLINE_MS + GRACE_MS, "close");
    (void)printf("%lld calls went well, %lld did not, the longest took %lld ms\n", (long long)fine,
                 (long long)late, (long long)longest);
}

/* ---- idle ----------------------------------------------------------------------------------- */

static void run_idle(uint32_t producers, uint32_t consumers)
{
    flashq_record record = record_of("value", 5);
    for (uint32_t i = 0; i < producers; i++) {
        flashq_producer *producer = open_producer(open_client(NULL));
        record.partition = (int32_t)i % flashq_producer_partitions(producer);
        MUST(flashq_send(producer, &record, ENOUGH_MS) == 0 &&
                 flashq_flush(producer, ENOUGH_MS) == 0,
             "send");
    }
    for (uint32_t i = 0; i < consumers; i++) {
        (void)take(open_consumer(open_client(NULL), i % 2 ? "pull" : "push"), 0, 1);
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    wait_for_a_line();
    exit(0);
}

int main(int argc, char **argv)
{
    const char *what = argc >= 4 ? argv[1] : "";
    uint32_t number = argc >= 5 ? (uint32_t)strtoul(argv[argc >= 6 ? 5 : 4], NULL, 10) : 0;
    brokers = argc >= 3 ? argv[2] : "";
    topic = argc >= 4 ? argv[3] : "";
    random_state = argc >= 6 ? strtoull(argv[argc - 1], NULL, 10) : 1;
    if (strcmp(what, "idle") != 0) {
        interrupt_often();
    }
    if (strcmp(what, "seek") == 0 && argc == 7) {
        run_seek(argv[4], number);
    } else if (strcmp(what, "sizes") == 0 && argc == 6) {
        run_sizes(argv[4]);
    } else if (strcmp(what, "close") == 0 && argc == 5) {
        run_close(number);
    } else if (strcmp(what, "unpolled") == 0 && argc == 4) {
        run_unpolled();
    } else if (strcmp(what, "fork") == 0 && argc == 4) {
        run_fork();
    } else if (strcmp(what, "deadline") == 0 && argc == 6) {
        run_deadline(strtol(argv[4], NULL, 10));
    } else if (strcmp(what, "idle") == 0 && argc == 6) {
        run_idle((uint32_t)strtoul(argv[4], NULL, 10), number);
    } else {
        (void)fprintf(stderr, "usage: see the top of call_client.c\n");
        return 2;
    }
    return 0;
}
