/* SPDX-License-Identifier: Apache-2.0 */
/* Consuming against a whole broker in a thread of the test, over shm and tcp. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/random.h"
#include "live_broker.h"

static char transports[][12] = {"shm", "tcp", "shm+push", "tcp+push"};

#define over_both(suite, name)                                                                     \
    ParameterizedTestParameters(suite, name)                                                       \
    {                                                                                              \
        return cr_make_param_array(char[12], transports, 4);                                       \
    }                                                                                              \
    ParameterizedTest(char (*transport)[12], suite, name, .timeout = 60)

struct setup {
    struct live_broker b;
    flashq_client *client;
    flashq_producer *producer;
    flashq_consumer *consumer;
};

static void open_handles(struct setup *s)
{
    char text[512];
    cr_assert_eq(flashq_producer_open(s->client, "t", 10000, &s->producer, text, sizeof text), 0, "%s",
                 text);
    cr_assert_eq(flashq_consumer_open(s->client, &s->consumer, text, sizeof text), 0, "%s", text);
}

static void set_up(struct setup *s, const char *transport, int partitions)
{
    live_broker_begin(&s->b);
    s->client = live_client(&s->b, transport, NULL);
    live_topic(s->client, "t", partitions);
    open_handles(s);
}

static void tear_down(struct setup *s)
{
    cr_assert_eq(flashq_client_close(s->client, 2000), 0);
    live_broker_end(&s->b);
}

static void assign(struct setup *s, int32_t partition, int64_t offset)
{
    char text[512];
    int code = flashq_consumer_assign(s->consumer, "t", partition, offset, 10000, text, sizeof text);
    cr_assert_eq(code, 0, "%s", text);
}

static void send_numbers(struct setup *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = 1000 + 10 * i,
                                .value = &i, .value_length = sizeof i};
        cr_assert_eq(flashq_send(s->producer, &record, 10000), 0);
    }
    cr_assert_eq(flashq_flush(s->producer, 10000), 0);
}

/* Polls until `to`; every record must be the next number. */
static void expect_numbers(struct setup *s, int from, int to)
{
    char text[512];
    while (from < to) {
        const flashq_message *messages[50];
        int count = flashq_consumer_poll(s->consumer, messages, 50, 10000);
        cr_assert_gt(count, 0, "nothing after %d: %s", from,
                     (flashq_consumer_last_error(s->consumer, text, sizeof text), text));
        for (int i = 0; i < count; i++, from++) {
            int number;
            cr_assert_eq(messages[i]->status, 0, "%s", flashq_error_name(messages[i]->status));
            memcpy(&number, messages[i]->value, sizeof number);
            cr_assert_eq(number, from);
            cr_assert_eq(messages[i]->offset, from);
            cr_assert_eq(messages[i]->timestamp_ms, 1000 + 10 * from);
            cr_assert_lt(from, to);
        }
    }
}

static void expect_nothing(struct setup *s)
{
    const flashq_message *message;
    cr_assert_eq(flashq_consumer_poll(s->consumer, &message, 1, 20), 0);
}

over_both(consume, from_start_then_as_it_comes)
{
    struct setup s;
    int64_t lag = -1, position = -1;
    set_up(&s, *transport, 1);
    assign(&s, 0, FLASHQ_OFFSET_START); /* an empty partition: nothing was ever written */
    expect_nothing(&s);
    cr_assert_eq(flashq_lag(s.consumer, "t", 0, &lag), 0);
    cr_assert_eq(lag, 0);
    send_numbers(&s, 0, 500);
    expect_numbers(&s, 0, 500);
    expect_nothing(&s);
    for (int i = 500; i < 520; i++) { /* one at a time, to a sleeping consumer */
        send_numbers(&s, i, i + 1);
        expect_numbers(&s, i, i + 1);
    }
    cr_assert_eq(flashq_position(s.consumer, "t", 0, &position), 0);
    cr_assert_eq(position, 520);
    cr_assert_eq(flashq_lag(s.consumer, "t", 0, &lag), 0);
    cr_assert_eq(lag, 0);
    tear_down(&s);
}

static int64_t lag_of(struct setup *s)
{
    int64_t lag = -1;
    cr_assert_eq(flashq_lag(s->consumer, "t", 0, &lag), 0);
    cr_assert_geq(lag, 0, "a lag is never negative");
    return lag;
}

/* case 18 */
over_both(consume, lag_counts_what_can_still_be_read_also_over_a_restart_and_a_trim)
{
    struct setup s;
    const flashq_message *messages[40];
    int64_t start = -1;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, 0);
    for (int seen = 0; seen < 40;) {
        int count = flashq_consumer_poll(s.consumer, messages, (size_t)(40 - seen), 10000);
        cr_assert_gt(count, 0);
        seen += count;
        cr_assert_eq(lag_of(&s), 100 - seen);
    }
    live_broker_stop(&s.b);
    cr_assert_eq(lag_of(&s), 60);
    live_broker_start_beside(&s.b, s.client);
    expect_numbers(&s, 40, 100);
    cr_assert_eq(lag_of(&s), 0);
    expect_nothing(&s);
    cr_assert_eq(lag_of(&s), 0);

    cr_assert_eq(flashq_topic_trim(s.client, "t", 0, 70, 10000, &start, NULL, 0), 0);
    cr_assert_eq(start, 70);
    expect_nothing(&s);
    cr_assert_eq(lag_of(&s), 0, "a trim below the position changes nothing");
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, 80, 10000), 0);
    cr_assert_eq(flashq_consumer_poll(s.consumer, messages, 1, 10000), 1);
    cr_assert_eq(messages[0]->offset, 80);
    cr_assert_eq(lag_of(&s), 19);
    cr_assert_eq(flashq_topic_trim(s.client, "t", 0, FLASHQ_OFFSET_END, 10000, &start, NULL, 0), 0);
    cr_assert_eq(start, 100);
    for (int64_t until = fq_mono_us() + 10000000; lag_of(&s) > 0 && fq_mono_us() < until;) {
        (void)flashq_consumer_poll(s.consumer, messages, 40, 100);
    }
    cr_assert_eq(lag_of(&s), 0, "nothing is left to read");
    tear_down(&s);
}

over_both(consume, end_means_only_what_comes_after_the_call)
{
    struct setup s;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, FLASHQ_OFFSET_END);
    send_numbers(&s, 100, 110);
    expect_numbers(&s, 100, 110);
    tear_down(&s);
}

over_both(consume, through_many_segments)
{
    static char value[20000];
    struct setup s;
    set_up(&s, *transport, 1);
    assign(&s, 0, 0);
    int64_t next = 0;
    for (int i = 0; i < 600; i++) { /* 12 MB in segments of at most 2 MiB */
        memcpy(value, &i, sizeof i);
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = i, .value = value,
                                .value_length = sizeof value};
        cr_assert_eq(flashq_send(s.producer, &record, 10000), 0);
    }
    cr_assert_eq(flashq_flush(s.producer, 20000), 0);
    while (next < 600) {
        const flashq_message *messages[10];
        int count = flashq_consumer_poll(s.consumer, messages, 10, 10000);
        cr_assert_gt(count, 0);
        for (int i = 0; i < count; i++, next++) {
            int number;
            memcpy(&number, messages[i]->value, sizeof number);
            cr_assert_eq(messages[i]->offset, next);
            cr_assert_eq(number, next);
            cr_assert_eq(messages[i]->value_length, sizeof value);
        }
    }
    tear_down(&s);
}

/* Connections that the broker accepted so far. */
static int64_t accepted(struct setup *s)
{
    flashq_counter *counters;
    size_t count;
    int64_t sum = 0;
    cr_assert_eq(flashq_cluster_counters(s->client, 10000, &counters, &count, NULL, 0), 0);
    for (size_t i = 0; i < count; i++) {
        sum += strncmp(counters[i].name, "connections.accepted.", 21) == 0 ? counters[i].value : 0;
    }
    flashq_free(counters);
    return sum;
}

/* case 15 */
over_both(positions, seeking_under_messages_in_hand_keeps_them_and_the_connection)
{
    struct setup s;
    const flashq_message *message, *next;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, 0);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    int64_t before = accepted(&s);
    for (int64_t offset = 99; offset >= 0; offset--) {
        const flashq_message *kept = flashq_message_ref(message);
        int64_t kept_offset = message->offset;
        cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, (offset + 50) % 100, 10000), 0);
        cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, offset, 10000), 0);
        cr_assert_eq(message->offset, kept_offset, "borrowed until the next poll");
        cr_assert_eq(flashq_consumer_poll(s.consumer, &next, 1, 10000), 1);
        cr_assert_eq(next->offset, offset);
        cr_assert_eq(kept->offset, kept_offset);
        flashq_message_unref(kept);
        message = next;
    }
    cr_assert_eq(accepted(&s), before, "no seek costs a connection");
    tear_down(&s);
}

/* case 15: nothing from before a seek comes after it; no duplicate on resume. */
over_both(positions, seek_is_a_barrier_and_pause_keeps_the_place)
{
    struct setup s;
    struct fq_prng prng;
    uint64_t seed = fq_random_u64();
    (void)printf("# seek seed %llu\n", (unsigned long long)seed);
    fq_prng_seed(&prng, seed);
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 1000);
    assign(&s, 0, 0);
    int at = 0;
    for (int round = 0; round < 60; round++) {
        int target = (int)fq_prng_below(&prng, 1001);
        switch (fq_prng_below(&prng, 3)) {
        case 0:
            cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, target, 10000), 0);
            at = target;
            break;
        case 1:
            cr_assert_eq(flashq_pause(s.consumer, "t", 0), 0);
            expect_nothing(&s);
            cr_assert_eq(flashq_resume(s.consumer, "t", 0), 0);
            break;
        default:
            cr_assert_eq(flashq_seek_time(s.consumer, "t", 0, 1000 + 10 * target - 5, 10000), 0);
            at = target;
            break;
        }
        int64_t position;
        cr_assert_eq(flashq_position(s.consumer, "t", 0, &position), 0);
        cr_assert_eq(position, at);
        int take = at < 1000 ? 1 : 0;
        expect_numbers(&s, at, at); /* nothing yet */
        if (take) {
            const flashq_message *message;
            char text[512];
            cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1, "nothing at %d in round %d: %s", at, round,
                         (flashq_consumer_last_error(s.consumer, text, sizeof text), text));
            cr_assert_eq(message->offset, at);
            at++;
        }
    }
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, FLASHQ_OFFSET_START, 10000), 0);
    expect_numbers(&s, 0, 1000);
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, FLASHQ_OFFSET_END, 10000), 0);
    expect_nothing(&s);
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 5, 0, 10000), FLASHQ_ERR_NOT_FOUND);
    tear_down(&s);
}

over_both(positions, below_the_log_start_is_told_and_reset_only_when_configured)
{
    struct setup s;
    char text[512];
    const flashq_message *message;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    cr_assert_eq(flashq_topic_trim(s.client, "t", 0, 40, 10000, NULL, text, sizeof text), 0, "%s", text);
    assign(&s, 0, 10);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->status, FLASHQ_ERR_TRIMMED);
    cr_assert_eq(message->offset, 10);
    cr_assert_eq(message->condition_end, 40);
    expect_nothing(&s);
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, 40, 10000), 0);
    expect_numbers(&s, 40, 100);
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, 1000, 10000), 0);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->status, FLASHQ_ERR_OUT_OF_RANGE);

    flashq_client *other = live_client(&s.b, *transport, "auto.offset.reset", "start", NULL);
    struct setup o = {.client = other};
    cr_assert_eq(flashq_consumer_open(other, &o.consumer, text, sizeof text), 0);
    assign(&o, 0, 10);
    expect_numbers(&o, 40, 100);
    (void)flashq_client_close(other, 1000);
    tear_down(&s);
}

/* cases 30, 31 */
over_both(records, null_and_empty_and_headers_come_back_as_they_were)
{
    static const char *const datas[] = {NULL, "", "x\0y"};
    static const size_t lengths[] = {0, 0, 3};
    flashq_header headers[40];
    struct setup s;
    set_up(&s, *transport, 1);
    for (size_t i = 0; i < 40; i++) {
        headers[i] = (flashq_header){.name = i % 2 ? "same" : "n\0l", .name_length = i % 2 ? 0 : 3,
                                     .value = datas[i % 3], .value_length = lengths[i % 3]};
    }
    for (size_t i = 0; i < 9; i++) {
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = INT64_C(1) << 40,
                                .key = datas[i / 3], .key_length = lengths[i / 3],
                                .value = datas[i % 3], .value_length = lengths[i % 3],
                                .headers = headers, .headers_count = i == 4 ? 40 : 0};
        record.timestamp_ms = 5;
        cr_assert_eq(flashq_send(s.producer, &record, 1000), 0);
    }
    cr_assert_eq(flashq_flush(s.producer, 10000), 0);
    assign(&s, 0, 0);
    for (size_t i = 0; i < 9; i++) {
        const flashq_message *m;
        flashq_header header;
        cr_assert_eq(flashq_consumer_poll(s.consumer, &m, 1, 10000), 1);
        cr_assert_eq(m->key == NULL, datas[i / 3] == NULL, "key of %zu", i);
        cr_assert_eq(m->value == NULL, datas[i % 3] == NULL, "value of %zu", i);
        cr_assert_eq(m->key_length, lengths[i / 3]);
        cr_assert_eq(m->value_length, lengths[i % 3]);
        cr_assert_eq(m->headers_count, i == 4 ? 40 : 0);
        for (size_t h = 0; h < m->headers_count; h++) {
            cr_assert_eq(flashq_message_header(m, h, &header), 0);
            cr_assert_eq(header.name_length, h % 2 ? 4 : 3);
            cr_assert_eq(memcmp(header.name, h % 2 ? "same" : "n\0l", header.name_length), 0);
            cr_assert_eq(header.value == NULL, datas[h % 3] == NULL);
            cr_assert_eq(header.value_length, lengths[h % 3]);
        }
        cr_assert_eq(flashq_message_header(m, m->headers_count, &header), FLASHQ_ERR_END);
    }
    tear_down(&s);
}

static void *unref_elsewhere(void *message)
{
    flashq_message_unref(message);
    return NULL;
}

over_both(records, a_kept_message_outlives_everything)
{
    struct setup s;
    const flashq_message *m, *kept[20];
    pthread_t thread;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 20);
    assign(&s, 0, 0);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(flashq_consumer_poll(s.consumer, &m, 1, 10000), 1);
        kept[i] = flashq_message_ref(m);
        cr_assert_eq(flashq_message_ref(kept[i]), kept[i]);
    }
    tear_down(&s);
    for (int i = 0; i < 20; i++) {
        int number;
        memcpy(&number, kept[i]->value, sizeof number);
        cr_assert_eq(number, i);
        cr_assert_str_eq(kept[i]->topic, "t");
        flashq_message_unref(kept[i]);
        cr_assert_eq(pthread_create(&thread, NULL, unref_elsewhere, (void *)(uintptr_t)kept[i]), 0);
        cr_assert_eq(pthread_join(thread, NULL), 0);
    }
}

/* Borrowed messages stay readable though the connection they came by is gone. */
over_both(records, borrowed_messages_survive_the_loss_of_the_broker)
{
    struct setup s;
    const flashq_message *messages[100];
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, 0);
    int count = flashq_consumer_poll(s.consumer, messages, 100, 10000);
    cr_assert_gt(count, 0);
    live_broker_kill(&s.b);
    (void)usleep(100000); /* the io thread notices */
    for (int i = 0; i < count; i++) {
        int number;
        memcpy(&number, messages[i]->value, sizeof number);
        cr_assert_eq(number, i);
    }
    live_broker_start_beside(&s.b, s.client);
    expect_numbers(&s, count, 100);
    tear_down(&s);
}

/* case 17 */
over_both(restarts, a_waiting_consumer_goes_on)
{
    struct setup s;
    set_up(&s, *transport, 1);
    assign(&s, 0, 0);
    for (int round = 0; round < 3; round++) {
        send_numbers(&s, round * 10, round * 10 + 10);
        expect_numbers(&s, round * 10, round * 10 + 10);
        expect_nothing(&s);
        if (round % 2) {
            live_broker_stop(&s.b);
        } else {
            live_broker_kill(&s.b);
        }
        live_broker_start_beside(&s.b, s.client);
    }
    tear_down(&s);
}

/* case 2: the answer is the record, not the batch; also in a compressed one. */
over_both(times, the_first_record_inside_a_batch_is_found)
{
    static const char *const codecs[] = {"none", "lz4", "zstd"};
    for (size_t c = 0; c < 3; c++) {
        struct setup s;
        char text[512];
        live_broker_begin(&s.b);
        s.client = live_client(&s.b, *transport, "compression.type", codecs[c], "linger.ms", "20", NULL);
        live_topic(s.client, "t", 1);
        open_handles(&s);
        for (int batch = 0; batch < 4; batch++) {
            send_numbers(&s, batch * 200, batch * 200 + 200);
        }
        for (int i = 0; i <= 800; i += 61) {
            flashq_time_answer answer = {.struct_bytes = sizeof answer};
            int code = flashq_offset_for_time(s.client, "t", 0, 1000 + 10 * i - 3, 10000, &answer, text,
                                              sizeof text);
            cr_assert_eq(code, 0, "%s", text);
            cr_assert_eq(answer.end, i >= 800);
            cr_assert_eq(answer.offset, i < 800 ? i : 800, "%s: %d", codecs[c], i);
        }
        assign(&s, 0, 0);
        expect_numbers(&s, 0, 800);
        tear_down(&s);
    }
}

/* The log start may lie inside a batch that the broker does not look into. */
over_both(times, a_log_that_begins_inside_a_compressed_batch)
{
    struct setup s;
    char text[512];
    live_broker_begin(&s.b);
    s.client = live_client(&s.b, *transport, "compression.type", "lz4", "linger.ms", "1000",
                           "auto.offset.reset", "end", NULL);
    live_topic(s.client, "t", 1);
    open_handles(&s);
    send_numbers(&s, 0, 100); /* one batch */
    cr_assert_eq(flashq_topic_trim(s.client, "t", 0, 50, 10000, NULL, text, sizeof text), 0, "%s", text);
    for (int number = 0; number < 100; number += 5) {
        flashq_time_answer answer = {.struct_bytes = sizeof answer};
        cr_assert_eq(flashq_offset_for_time(s.client, "t", 0, 1000 + 10 * number, 10000, &answer, text,
                                            sizeof text),
                     0, "%s", text);
        cr_assert_eq(answer.end, 0);
        cr_assert_eq(answer.offset, number < 50 ? 50 : number);
        cr_assert_eq(answer.timestamp_ms, 1000 + 10 * answer.offset);
    }
    tear_down(&s);
}

over_both(handles, the_descriptor_is_readable_when_there_is_something)
{
    struct setup s;
    set_up(&s, *transport, 1);
    int fd = flashq_client_fd(s.client);
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    cr_assert_geq(fd, 0);
    assign(&s, 0, 0);
    expect_nothing(&s);
    cr_assert_eq(poll(&waiting, 1, 50), 0);
    for (int i = 0; i < 5; i++) {
        send_numbers(&s, i, i + 1);
        cr_assert_eq(poll(&waiting, 1, 5000), 1);
        expect_numbers(&s, i, i + 1);
        expect_nothing(&s);
        cr_assert_eq(poll(&waiting, 1, 20), 0);
    }
    tear_down(&s);
}

over_both(handles, of_a_topic_made_anew_never_get_its_data)
{
    struct setup s;
    char text[512];
    const flashq_message *message;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 5);
    assign(&s, 0, 0);
    expect_numbers(&s, 0, 5);
    cr_assert_eq(flashq_topic_delete(s.client, "t", 10000, text, sizeof text), 0, "%s", text);
    live_topic(s.client, "t", 1);
    flashq_producer *producer;
    cr_assert_eq(flashq_producer_open(s.client, "t", 10000, &producer, text, sizeof text), 0);
    (void)live_send(producer, 0, "new");
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->status, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "%s", flashq_error_name(message->status));
    expect_nothing(&s);
    tear_down(&s);
}

/* ---- damage --------------------------------------------------------------------------------- */

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char segment_path[600];

static void find_segment_below(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        char path[600];
        struct stat info;
        (void)snprintf(path, sizeof path, "%.300s/%.250s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &info) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode)) {
            find_segment_below(path);
        } else if (strstr(entry->d_name, "0.log")) {
            (void)snprintf(segment_path, sizeof segment_path, "%s", path);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
}

/* Flips one bit of the log behind the broker's back, at the n-th place where `mark` stands. */
static void flip_bit_at(struct setup *s, const char *mark, int nth, int back)
{
    segment_path[0] = '\0';
    find_segment_below(s->b.t.options.data_dir);
    cr_assert_neq(segment_path[0], '\0', "a segment file below %s", s->b.t.options.data_dir);
    int fd = open(segment_path, O_RDWR);
    struct stat info;
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &info), 0);
    size_t bytes = (size_t)info.st_size;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(map, MAP_FAILED);
    char *at = map;
    for (int i = 0; i <= nth; i++) {
        at = memmem(at + (i > 0), bytes - (size_t)(at - map) - 1, mark, strlen(mark));
        cr_assert_not_null(at);
    }
    at[-back] ^= 0x10;
    (void)munmap(map, bytes);
    (void)close(fd);
}

/* case 20: the damaged range is told with its place, everything else comes. */
static void damage_story(const char *transport, int back)
{
    struct setup s;
    char text[512];
    int64_t expected = 0;
    set_up(&s, transport, 1);
    for (int i = 0; i < 50; i++) {
        char value[32];
        (void)snprintf(value, sizeof value, "MARK-%04d", i);
        cr_assert_eq(live_send(s.producer, 0, value), i); /* one record a batch */
    }
    flip_bit_at(&s, "MARK-0020", 0, back);
    assign(&s, 0, 0);
    bool was_told = false;
    while (expected < 50) {
        const flashq_message *m;
        cr_assert_eq(flashq_consumer_poll(s.consumer, &m, 1, 10000), 1, "stuck at %d: %s", (int)expected,
                     (flashq_consumer_last_error(s.consumer, text, sizeof text), text));
        cr_assert_eq(m->offset, expected);
        if (m->status != 0) {
            cr_assert_eq(m->status, FLASHQ_ERR_CORRUPT);
            cr_assert_eq(m->offset, 20);
            cr_assert_eq(m->condition_end, 21);
            was_told = true;
            expected = m->condition_end;
            continue;
        }
        char value[32];
        (void)snprintf(value, sizeof value, "MARK-%04d", (int)expected);
        cr_assert_eq(m->value_length, strlen(value));
        cr_assert_eq(memcmp(m->value, value, strlen(value)), 0, "never wrong bytes");
        expected++;
    }
    cr_assert(was_told);
    tear_down(&s);
}

over_both(damage, one_bit_of_a_value)
{
    damage_story(*transport, 0);
}

/* The value begins 61 bytes of header and 6 of the record after the batch: its length, magic, base offset. */
over_both(damage, one_bit_of_a_batch_header)
{
    static const int header_bytes[] = {67 - 8, 67 - 11, 67 - 16, 67 - 7, 67 - 60};
    for (size_t i = 0; i < sizeof header_bytes / sizeof header_bytes[0]; i++) {
        damage_story(*transport, header_bytes[i]);
    }
}

/* Numbers of readers begin anew with every connection: an old one must not take away what has it now. */
over_both(positions, a_partition_that_was_halted_before_the_restart_takes_nothing_from_the_others)
{
    struct setup s;
    const flashq_message *message;
    set_up(&s, *transport, 2);
    assign(&s, 1, 1000); /* the first reader of the connection */
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->status, FLASHQ_ERR_OUT_OF_RANGE);
    assign(&s, 0, 0);
    send_numbers(&s, 0, 10);
    expect_numbers(&s, 0, 10);
    live_broker_kill(&s.b);
    live_broker_start_beside(&s.b, s.client);
    send_numbers(&s, 10, 20);
    expect_numbers(&s, 10, 20); /* partition 0 has the number that partition 1 had */
    cr_assert_eq(flashq_consumer_unassign(s.consumer, "t", 1), 0);
    expect_nothing(&s);
    send_numbers(&s, 20, 30);
    expect_numbers(&s, 20, 30);
    tear_down(&s);
}

/* The view says SHUTTING_DOWN before the connection ends: that passes, so no message tells of it. */
over_both(positions, restarts_of_the_broker_are_not_told_as_errors)
{
    struct setup s;
    set_up(&s, *transport, 1);
    assign(&s, 0, 0);
    for (int round = 0; round < 5; round++) {
        send_numbers(&s, 10 * round, 10 * round + 10);
        expect_numbers(&s, 10 * round, 10 * round + 10);
        live_broker_stop(&s.b);
        live_broker_start_beside(&s.b, s.client);
    }
    expect_nothing(&s);
    tear_down(&s);
}

/* The header: borrowed until the next poll or close, whatever else is called. */
over_both(records, borrowed_messages_survive_unassign_and_seek)
{
    struct setup s;
    const flashq_message *messages[100];
    char text[512];
    set_up(&s, *transport, 1);
    live_topic(s.client, "u", 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, 0);
    int count = flashq_consumer_poll(s.consumer, messages, 100, 10000);
    cr_assert_gt(count, 0);
    cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, 0, 10000), 0);
    cr_assert_eq(flashq_consumer_unassign(s.consumer, "t", -1), 0);
    cr_assert_eq(flashq_consumer_assign(s.consumer, "u", 0, 0, 10000, text, sizeof text), 0, "%s", text);
    for (int i = 0; i < count; i++) {
        int number;
        memcpy(&number, messages[i]->value, sizeof number);
        cr_assert_eq(number, i);
        cr_assert_str_eq(messages[i]->topic, "t");
    }
    tear_down(&s);
}

static int64_t counter(flashq_client *client, const char *name)
{
    char text[512];
    flashq_counter *counters;
    size_t count;
    int64_t value = -1;
    cr_assert_eq(flashq_cluster_counters(client, 10000, &counters, &count, text, sizeof text), 0, "%s", text);
    for (size_t i = 0; i < count; i++) {
        value = strcmp(counters[i].name, name) == 0 ? counters[i].value : value;
    }
    flashq_free(counters);
    return value;
}

/* Whatever a call that gave up had asked for is closed again when the answer comes. */
over_both(positions, calls_that_gave_up_leave_nothing_open_at_the_broker)
{
    struct setup s;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 100);
    assign(&s, 0, 0);
    expect_numbers(&s, 0, 100);
    for (int i = 0; i < 20; i++) {
        live_broker_halt(&s.b);
        for (int j = 0; j < 3; j++) { /* each of them while the one before is under way */
            (void)flashq_seek_offset(s.consumer, "t", 0, j == 1 ? FLASHQ_OFFSET_START : 10 * j, 0);
        }
        live_broker_go_on(&s.b);
        cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, 40, 10000), 0);
        expect_numbers(&s, 40, 100);
        live_broker_halt(&s.b);
        (void)flashq_seek_offset(s.consumer, "t", 0, FLASHQ_OFFSET_START, 0); /* a new reader */
        cr_assert_eq(flashq_consumer_unassign(s.consumer, "t", 0), 0);
        live_broker_go_on(&s.b);
        assign(&s, 0, 90);
        expect_numbers(&s, 90, 100);
    }
    flashq_client *other = live_client(&s.b, "tcp", NULL);
    for (int i = 0; i < 1000 && counter(other, "readers.open") > 1; i++) {
        (void)usleep(2000);
    }
    cr_assert_eq(counter(other, "readers.open"), 1);
    cr_assert_leq(counter(other, "readers.segments.held"), 1);
    (void)flashq_client_close(other, 1000);
    tear_down(&s);
}

/* What a paused partition has read ahead gives way when fetch.buffer.bytes are used, and comes again. */
over_both(positions, a_paused_partition_starves_nobody)
{
    enum { COUNT = 2000 };
    struct setup s;
    int next[2] = {0, 0};
    live_broker_begin(&s.b);
    s.client = live_client(&s.b, *transport, "fetch.max.bytes", "1MiB", "fetch.buffer.bytes", "1MiB", NULL);
    live_topic(s.client, "t", 2);
    open_handles(&s);
    for (int i = 0; i < 2 * COUNT; i++) {
        int number = i / 2;
        flashq_record record = {.struct_bytes = sizeof record, .partition = i % 2, .timestamp_ms = 1,
                                .value = &number, .value_length = sizeof number};
        cr_assert_eq(flashq_send(s.producer, &record, 10000), 0);
    }
    cr_assert_eq(flashq_flush(s.producer, 10000), 0);
    assign(&s, -1, 0);
    for (int turn = 0; next[0] < COUNT || next[1] < COUNT; turn++) {
        const flashq_message *message;
        int paused = turn / 20 % 2; /* one is paused while the other is polled, by turns */
        cr_assert_eq(flashq_resume(s.consumer, "t", 1 - paused), 0);
        cr_assert_eq(flashq_pause(s.consumer, "t", paused), 0);
        if (next[1 - paused] == COUNT) {
            continue;
        }
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1, "turn %d", turn);
        int number;
        memcpy(&number, message->value, sizeof number);
        cr_assert_eq(message->partition, 1 - paused);
        cr_assert_eq(number, next[message->partition]++, "none lost, none twice");
    }
    tear_down(&s);
}

/* ---- what the broker says unasked ------------------------------------------------------------- */

static struct fq_pread *reader_of(struct setup *s)
{
    struct fq_consumer *consumer = fq_api_consumer(s->consumer);
    cr_assert_eq(fq_api_enter(s->client), 0);
    struct fq_pread *reader = fq_consumer_find(consumer, "t", 0);
    cr_assert_not_null(reader);
    return reader; /* until fq_api_leave */
}

static void reset_by_broker(struct setup *s, int32_t reason)
{
    fq_pread_reset(reader_of(s), &(struct fq_reader_reset){.reason = reason});
    fq_api_leave(s->client);
}

/* Moved or truncated: the reader is opened anew where it was, nothing is missing, nothing comes twice. */
over_both(resets, cost_no_record)
{
    static const int32_t reasons[] = {FLASHQ_ERR_NOT_LEADER, FLASHQ_ERR_TRIMMED, FLASHQ_ERR_OUT_OF_RANGE};
    struct setup s;
    set_up(&s, *transport, 1);
    send_numbers(&s, 0, 50);
    assign(&s, 0, 0);
    for (int i = 0; i < 30; i++) {
        const flashq_message *message;
        int number;
        reset_by_broker(&s, reasons[i % 3]);
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
        cr_assert_eq(message->status, 0);
        memcpy(&number, message->value, sizeof number);
        cr_assert_eq(number, i);
    }
    expect_numbers(&s, 30, 50);
    tear_down(&s);
}

/* OFFLINE is told once, at the place; when the partition serves again the records simply go on. */
over_both(resets, an_offline_partition_is_told_once_and_comes_back)
{
    struct setup s;
    const flashq_message *message;
    set_up(&s, *transport, 1);
    assign(&s, 0, 0);
    for (int i = 0; i < 3; i++) {
        send_numbers(&s, 10 * i, 10 * i + 10);
        expect_numbers(&s, 10 * i, 10 * i + 10);
        live_broker_halt(&s.b); /* it stays away until the condition was seen */
        reset_by_broker(&s, FLASHQ_ERR_OFFLINE);
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 1000), 1);
        cr_assert_eq(message->status, FLASHQ_ERR_OFFLINE);
        cr_assert_eq(message->offset, 10 * i + 10);
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 50), 0, "told once");
        live_broker_go_on(&s.b);
    }
    send_numbers(&s, 30, 40);
    expect_numbers(&s, 30, 40);
    tear_down(&s);
}

/* A trimmed segment is given back in time, also by a consumer that nobody polls. */
over_both(resets, a_retiring_segment_is_given_back)
{
    static char value[100000];
    struct setup s;
    char text[512];
    const flashq_message *message;
    set_up(&s, *transport, 1);
    for (int i = 0; i < 60; i++) { /* 6 MB: several segments */
        flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = i, .value = value,
                                .value_length = sizeof value};
        cr_assert_eq(flashq_send(s.producer, &record, 10000), 0);
    }
    cr_assert_eq(flashq_flush(s.producer, 20000), 0);
    assign(&s, 0, 0);
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->offset, 0);
    cr_assert_eq(flashq_topic_trim(s.client, "t", 0, 55, 10000, NULL, text, sizeof text), 0, "%s", text);
    for (int i = 0; i < 1000 && counter(s.client, "readers.segments.retiring") > 0; i++) {
        (void)usleep(10000);
    }
    cr_assert_eq(counter(s.client, "readers.segments.retiring"), 0);
    if (strcmp(*transport, "shm") != 0) { /* over shm the borrowed message lies in it */
        cr_assert_eq(counter(s.client, "readers.segments.cut"), 0, "it did not have to be taken away");
    }
    int64_t at = 1;
    while (at < 55) { /* what was read ahead still comes, then the trim is told */
        cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
        cr_assert_eq(message->offset, at);
        if (message->status == 0) {
            at++;
            continue;
        }
        cr_assert_eq(message->status, FLASHQ_ERR_TRIMMED);
        cr_assert_eq(message->condition_end, 55);
        at = 55;
        cr_assert_eq(flashq_seek_offset(s.consumer, "t", 0, at, 10000), 0);
    }
    cr_assert_eq(flashq_consumer_poll(s.consumer, &message, 1, 10000), 1);
    cr_assert_eq(message->status, 0);
    cr_assert_eq(message->offset, 55);
    tear_down(&s);
}

/* Damage that is longer than what one fetch brings: its end is searched for with the broker's help. The
 * ranges told cover what was damaged and nothing else. */
static void long_damage_story(const char *transport, int back)
{
    enum { RECORDS = 80, FROM = 20, TO = 37, BYTES = 2000 };
    struct setup s;
    char text[512];
    int64_t expected = 0, damaged = 0;
    live_broker_begin(&s.b);
    s.client = live_client(&s.b, transport, "fetch.max.bytes", "4096", NULL);
    live_topic(s.client, "t", 1);
    open_handles(&s);
    for (int i = 0; i < RECORDS; i++) {
        char value[BYTES + 1];
        (void)snprintf(value, sizeof value, "MARK-%04d%0*d", i, BYTES - 9, 0);
        cr_assert_eq(live_send(s.producer, 0, value), i);
    }
    for (int i = FROM; i < TO; i++) {
        char mark[16];
        (void)snprintf(mark, sizeof mark, "MARK-%04d", i);
        flip_bit_at(&s, mark, 0, back);
    }
    assign(&s, 0, 0);
    while (expected < RECORDS) {
        const flashq_message *m;
        cr_assert_eq(flashq_consumer_poll(s.consumer, &m, 1, 10000), 1, "stuck at %d: %s", (int)expected,
                     (flashq_consumer_last_error(s.consumer, text, sizeof text), text));
        cr_assert_eq(m->offset, expected, "%lld, not %lld", (long long)m->offset, (long long)expected);
        if (m->status != 0) {
            cr_assert_eq(m->status, FLASHQ_ERR_CORRUPT);
            cr_assert(m->offset >= FROM && m->condition_end <= TO && m->condition_end > m->offset,
                      "[%lld, %lld)", (long long)m->offset, (long long)m->condition_end);
            damaged += m->condition_end - m->offset;
            expected = m->condition_end;
            continue;
        }
        (void)snprintf(text, sizeof text, "MARK-%04d", (int)expected);
        cr_assert_eq(memcmp(m->value, text, 9), 0, "never wrong bytes");
        expected++;
    }
    cr_assert_eq(damaged, TO - FROM);
    tear_down(&s);
}

over_both(damage, of_many_values_in_a_row)
{
    long_damage_story(*transport, 0);
}

/* The value begins 61 bytes of header and 7 of the record after the batch. */
over_both(damage, of_many_headers_in_a_row)
{
    static const int header_bytes[] = {68 - 8, 68 - 11, 68 - 16, 68 - 7};
    for (size_t i = 0; i < sizeof header_bytes / sizeof header_bytes[0]; i++) {
        long_damage_story(*transport, header_bytes[i]);
    }
}
