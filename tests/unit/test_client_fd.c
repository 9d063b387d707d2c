/* SPDX-License-Identifier: Apache-2.0 */
/* flashq_client_fd: readable exactly as long as a poll of one of the client's handles has something. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "live_broker.h"

enum { WAIT_MS = 20000 };

struct way {
    char transport[12]; /* as live_client takes it */
    char io_threads[4];
};
static struct way ways[] = {{"shm", "1"},      {"shm", "0"},      {"tcp", "1"},      {"tcp", "0"},
                            {"shm+push", "1"}, {"shm+push", "0"}, {"tcp+push", "1"}, {"tcp+push", "0"}};

#define each_way(name)                                                                             \
    ParameterizedTestParameters(client_fd, name)                                                   \
    {                                                                                              \
        return cr_make_param_array(struct way, ways, sizeof ways / sizeof ways[0]);                \
    }                                                                                              \
    ParameterizedTest(struct way *way, client_fd, name, .timeout = 120)

struct stage {
    struct live_broker b;
    flashq_client *client, *feeder; /* the feeder's descriptor is nobody's business */
    flashq_producer *producer;
    flashq_consumer *consumer;
    bool is_invoker;
    int fd;
};

static void set_up(struct stage *s, const struct way *way)
{
    char text[512];
    live_broker_begin(&s->b);
    s->feeder = live_client(&s->b, way->transport, NULL);
    live_topic(s->feeder, "t", 1);
    s->client = live_client(&s->b, way->transport, "reports", "all", "io.threads", way->io_threads,
                            "auto.offset.reset", "start", NULL);
    s->is_invoker = way->io_threads[0] == '0';
    cr_assert_eq(flashq_producer_open(s->client, "t", WAIT_MS, &s->producer, text, sizeof text), 0);
    cr_assert_eq(flashq_consumer_open(s->client, &s->consumer, text, sizeof text), 0);
    s->fd = flashq_client_fd(s->client);
    cr_assert_geq(s->fd, 0);
}

static void tear_down(struct stage *s)
{
    (void)flashq_client_close(s->client, 1000);
    (void)flashq_client_close(s->feeder, 1000);
    live_broker_end(&s->b);
}

static bool is_readable(const struct stage *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Waits as an application with its own loop does: asleep, or by turns in invoker mode. */
static void expect_readable(const struct stage *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    int64_t until = fq_mono_us() + INT64_C(1000) * WAIT_MS;
    while (poll(&p, 1, s->is_invoker ? 1 : WAIT_MS) != 1) {
        cr_assert_lt(fq_mono_us(), until, "nothing woke the application");
        if (s->is_invoker) {
            (void)flashq_client_do_work(s->client);
        }
    }
}

static void expect_quiet(const struct stage *s)
{
    for (int i = 0; i < 20; i++) {
        if (s->is_invoker) {
            (void)flashq_client_do_work(s->client);
        }
        (void)usleep(1000);
        cr_assert_not(is_readable(s));
    }
}

static void send_one(flashq_producer *producer)
{
    flashq_record record = {.struct_bytes = sizeof record, .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                            .value = "value", .value_length = 5};
    cr_assert_eq(flashq_send(producer, &record, WAIT_MS), 0);
}

static void feed(struct stage *s, int count)
{
    char text[512];
    flashq_producer *producer;
    cr_assert_eq(flashq_producer_open(s->feeder, "t", WAIT_MS, &producer, text, sizeof text), 0);
    for (int i = 0; i < count; i++) {
        send_one(producer);
    }
    cr_assert_eq(flashq_flush(producer, WAIT_MS), 0);
    (void)flashq_producer_close(producer, 1000, NULL);
}

static void assign(struct stage *s)
{
    char text[512];
    cr_assert_eq(flashq_consumer_assign(s->consumer, "t", 0, 0, WAIT_MS, text, sizeof text), 0, "%s", text);
}

static int take_reports(flashq_producer *producer, size_t most)
{
    flashq_report reports[16];
    return flashq_producer_poll(producer, reports, most, 0);
}

static int take_messages(struct stage *s, size_t most)
{
    const flashq_message *messages[16];
    return flashq_consumer_poll(s->consumer, messages, most, 0);
}

each_way(speaks_of_reports)
{
    struct stage s;
    set_up(&s, way);
    expect_quiet(&s);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            send_one(s.producer);
        }
        int taken = 0;
        while (taken < 3) {
            expect_readable(&s);
            int count = take_reports(s.producer, 1);
            cr_assert_eq(count, 1, "it said that there was one");
            taken += count;
        }
        expect_quiet(&s);
    }
    tear_down(&s);
}

each_way(speaks_of_messages)
{
    struct stage s;
    set_up(&s, way);
    assign(&s);
    expect_quiet(&s);
    for (int round = 0; round < 3; round++) {
        feed(&s, 10);
        for (int taken = 0; taken < 10;) {
            expect_readable(&s);
            int count = take_messages(&s, 3);
            cr_assert_gt(count, 0, "it said that there was one");
            taken += count;
        }
        expect_quiet(&s);
    }
    tear_down(&s);
}

/* One handle's last does not silence another's. */
each_way(speaks_for_every_handle)
{
    struct stage s;
    char text[512];
    flashq_producer *second;
    set_up(&s, way);
    cr_assert_eq(flashq_producer_open(s.client, "t", WAIT_MS, &second, text, sizeof text), 0);
    assign(&s);
    send_one(s.producer);
    send_one(second);
    cr_assert_eq(flashq_flush(s.producer, WAIT_MS), 0);
    cr_assert_eq(flashq_flush(second, WAIT_MS), 0);
    for (int taken = 0; taken < 2;) { /* what was sent comes back */
        expect_readable(&s);
        taken += take_messages(&s, 16);
    }
    cr_assert(is_readable(&s));
    cr_assert_eq(take_messages(&s, 16), 0);
    cr_assert(is_readable(&s));
    cr_assert_eq(take_reports(second, 16), 1);
    cr_assert_eq(take_reports(second, 16), 0);
    cr_assert(is_readable(&s), "the first has one as well");
    cr_assert_eq(take_reports(s.producer, 16), 1);
    cr_assert_not(is_readable(&s));
    tear_down(&s);
}

/* What nobody can poll any more is no news: closed, taken off, paused. */
each_way(says_nothing_of_what_cannot_be_polled)
{
    struct stage s;
    set_up(&s, way);
    send_one(s.producer);
    expect_readable(&s);
    cr_assert_eq(flashq_producer_close(s.producer, WAIT_MS, NULL), 0);
    cr_assert_not(is_readable(&s));
    assign(&s);
    expect_readable(&s);
    cr_assert_eq(flashq_pause(s.consumer, "t", 0), 0);
    cr_assert_not(is_readable(&s));
    cr_assert_eq(flashq_resume(s.consumer, "t", 0), 0);
    expect_readable(&s);
    cr_assert_eq(flashq_consumer_unassign(s.consumer, "t", 0), 0);
    expect_quiet(&s);
    assign(&s);
    expect_readable(&s);
    cr_assert_eq(flashq_consumer_close(s.consumer, 1000), 0);
    expect_quiet(&s);
    tear_down(&s);
}

/* Asked for late; by level-triggered epoll; and what a record given up leaves is news too. */
each_way(is_a_level_and_is_right_from_the_first_call)
{
    struct stage s;
    char text[512];
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    set_up(&s, way);
    flashq_client *late = live_client(&s.b, way->transport, "reports", "errors", "io.threads", way->io_threads,
                                      "delivery.timeout.ms", "100", NULL);
    flashq_producer *producer;
    cr_assert_eq(flashq_producer_open(late, "t", WAIT_MS, &producer, text, sizeof text), 0);
    live_broker_halt(&s.b);
    send_one(producer);
    cr_assert_eq(flashq_flush(producer, WAIT_MS), 0, "given up in time");
    s.fd = flashq_client_fd(late);
    cr_assert(is_readable(&s), "from before anybody asked");
    cr_assert_eq(epoll_ctl(epoll, EPOLL_CTL_ADD, s.fd, &event), 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(epoll_wait(epoll, &event, 1, 0), 1);
    }
    cr_assert_eq(take_reports(producer, 16), 1);
    cr_assert_eq(epoll_wait(epoll, &event, 1, 0), 0);
    live_broker_go_on(&s.b);
    (void)flashq_client_close(late, 1000);
    cr_assert_eq(flashq_client_fd(NULL), -1);
    (void)close(epoll);
    tear_down(&s);
}
