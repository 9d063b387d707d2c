/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survivor ADDRESS COUNT: numbered records to topic "t" by claim, sendv and send in turn, while a signal without
 * SA_RESTART arrives every millisecond and a child is forked half way. Whatever happens to the broker meanwhile: exits 0
 * when every record was acknowledged, and says so; 1 with the call that failed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <flashq/flashq.h>

enum { BURST = 7, VALUE_BYTES = 9, PAUSE_US = 200, WAIT_MS = 120000 };

static void on_signal(int number)
{
    (void)number;
}

static void check(long long code, const char *what)
{
    if (code < 0) {
        (void)fprintf(stderr, "survivor: %s: %s\n", what, flashq_strerror((int)code));
        exit(1);
    }
}

static void signal_every_millisecond(void)
{
    struct sigaction action;
    struct itimerval every = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* no SA_RESTART */
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &every, NULL);
}

static void write_number(char *to, long number)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%0*ld", VALUE_BYTES, number);
    memcpy(to, text, VALUE_BYTES);
}

/* One turn: one record, or BURST of them; returns how many. */
static long put(flashq_producer *producer, long number)
{
    static char values[BURST][VALUE_BYTES];
    flashq_record records[BURST];
    void *value;
    for (int i = 0; i < BURST; i++) {
        write_number(values[i], number + i);
        records[i] = (flashq_record){.struct_bytes = sizeof records[i], .timestamp_ms = FLASHQ_TIMESTAMP_NOW,
                                     .value = values[i], .value_length = VALUE_BYTES};
    }
    if (number % 3 == 0) {
        records[0].value = NULL;
        records[0].value_length = 0;
        check(flashq_claim(producer, &records[0], 1000, WAIT_MS, &value), "claim");
        (void)usleep(PAUSE_US); /* the application takes its time */
        memcpy(value, values[0], VALUE_BYTES);
        check(flashq_commit(producer, VALUE_BYTES), "commit");
        return 1;
    }
    if (number % 3 == 1) {
        long long taken = flashq_sendv(producer, records, BURST, WAIT_MS);
        check(taken, "sendv");
        return (long)taken;
    }
    check(flashq_send(producer, &records[0], WAIT_MS), "send");
    return 1;
}

static long take_reports(flashq_producer *producer, long *duplicates, int timeout_ms)
{
    flashq_report reports[64];
    int count = flashq_producer_poll(producer, reports, 64, timeout_ms);
    check(count, "poll");
    for (int i = 0; i < count; i++) {
        check(reports[i].status, "a record");
        *duplicates += reports[i].duplicate;
    }
    return count;
}

static void fork_once(flashq_client *client, flashq_producer *producer)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        (void)flashq_producer_close(producer, 100, NULL);
        (void)flashq_client_close(client, 100);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    check(child > 0 && status == 0 ? 0 : FLASHQ_ERR_FAILED, "the child");
}

int main(int argc, char **argv)
{
    char text[512] = "";
    flashq_client *client;
    flashq_producer *producer;
    long count = argc == 3 ? strtol(argv[2], NULL, 10) : 0, sent = 0, acked = 0, duplicates = 0;
    const char *pairs[][2] = {{"brokers", argc == 3 ? argv[1] : ""}, {"reports", "all"},
                              {"delivery.timeout.ms", "3m"},         {"reconnect.backoff.ms", "5"},
                              {"reconnect.backoff.max.ms", "50"}};
    flashq_config *config = flashq_config_new();
    signal_every_millisecond();
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        check(flashq_config_set(config, pairs[i][0], pairs[i][1], text, sizeof text), text);
    }
    check(flashq_client_open(config, &client, text, sizeof text), text);
    flashq_config_free(config);
    check(flashq_producer_open(client, "t", WAIT_MS, &producer, text, sizeof text), text);
    int has_forked = 0;
    while (sent < count) {
        sent += put(producer, sent);
        acked += take_reports(producer, &duplicates, 0);
        if (!has_forked && sent > count / 2) {
            fork_once(client, producer);
            has_forked = 1;
        }
        (void)usleep(PAUSE_US);
    }
    check(flashq_flush(producer, WAIT_MS), "flush");
    while (acked < sent) {
        long more = take_reports(producer, &duplicates, WAIT_MS);
        check(more > 0 ? 0 : FLASHQ_ERR_FAILED, "a report is missing");
        acked += more;
    }
    check(flashq_client_close(client, 10000), "close");
    (void)printf("%ld acknowledged, %ld of them after they were sent again\n", acked, duplicates);
    return 0;
}
