/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashqd: arguments, configuration, signals. The main thread accepts connections until SIGTERM or
 * SIGINT, then stops the broker in order; a second signal ends the process at once.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "broker.h"
#include "conf/conf_yaml.h"
#include "host.h"
#include "options.h"

enum { EXIT_USAGE = 2 };
enum { OPTION_SET = 256, OPTION_CHECK, OPTION_VERSION };

struct arguments {
    bool check_config;
    struct fq_options options;
};

static void print_help(void)
{
    struct fq_options defaults;
    char accepts[256], value[256];
    (void)printf("Usage: flashqd [OPTION]...\n"
                 "The FlashQ broker.\n\n"
                 "  -c, --config FILE      read keys from a YAML file\n"
                 "      --set KEY=VALUE    set one key; may be repeated and comes after the file\n"
                 "      --check-config     check the configuration and exit\n"
                 "      --version          print the version and exit\n"
                 "  -h, --help             print this help and exit\n\n"
                 "Keys:\n");
    fq_conf_defaults(&fq_options_table, &defaults);
    for (size_t i = 0; i < fq_options_table.keys_count; i++) {
        const struct fq_conf_key *key = &fq_options_table.keys[i];
        (void)printf("  %s (%s; default %s)\n      %s\n", key->name,
                     fq_conf_accepts(key, accepts, sizeof accepts),
                     fq_conf_get(key, &defaults, value, sizeof value)[0] ? value : "empty",
                     key->help);
    }
}

/* -1: go on; else the exit code. */
static int parse_arguments(int argc, char **argv, struct arguments *args)
{
    static const struct option known[] = {{"config", required_argument, NULL, 'c'},
                                          {"set", required_argument, NULL, OPTION_SET},
                                          {"check-config", no_argument, NULL, OPTION_CHECK},
                                          {"version", no_argument, NULL, OPTION_VERSION},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const char *file = NULL;
    struct fq_err err;
    int option;
    while ((option = getopt_long(argc, argv, "c:h", known, NULL)) != -1) {
        switch (option) {
        case 'c': file = optarg; break;
        case OPTION_SET: break; /* after the file */
        case OPTION_CHECK: args->check_config = true; break;
        case OPTION_VERSION: (void)printf("flashqd %s\n", FQ_VERSION); return EXIT_SUCCESS;
        case 'h': print_help(); return EXIT_SUCCESS;
        default: (void)fprintf(stderr, "Try 'flashqd --help'.\n"); return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "flashqd: unexpected argument \"%s\"\nTry 'flashqd --help'.\n",
                      argv[optind]);
        return EXIT_USAGE;
    }
    fq_conf_defaults(&fq_options_table, &args->options);
    int code = file ? fq_conf_load_file(&fq_options_table, &args->options, file, &err) : 0;
    optind = 1;
    while (code == 0 && (option = getopt_long(argc, argv, "c:h", known, NULL)) != -1) {
        if (option == OPTION_SET) {
            code = fq_conf_set_pair(&fq_options_table, &args->options, optarg, &err);
            if (code != 0) {
                (void)fq_err_prefix(&err, "--set %s: ", optarg);
            }
        }
    }
    if (code == 0) {
        code = fq_options_check(&args->options, &err);
    }
    if (code != 0) {
        (void)fprintf(stderr, "flashqd: %s\n", err.text);
        return EXIT_USAGE;
    }
    return -1;
}

/* SIGTERM and SIGINT as a descriptor; blocked, so that they are only ever read. */
static int open_signals(void)
{
    sigset_t mask;
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGTERM);
    (void)sigaddset(&mask, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &mask, NULL);
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int take_signal(int fd)
{
    struct signalfd_siginfo info;
    ssize_t got = read(fd, &info, sizeof info);
    return got == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

/* When the first signal came; for the handler below. */
static int64_t stopping_since_us;

/* `timeout` and service managers may send the first signal twice, to the process and to its group:
 * what follows at once is the same signal. */
#define SAME_SIGNAL_US 200000

static void end_at_once(int signal_number)
{
    if (fq_mono_us() - stopping_since_us < SAME_SIGNAL_US) {
        return;
    }
    static const char text[] = "flashqd: second signal: ending at once\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(128 + signal_number);
}

/* From here on the default action of a second signal is to end the process. */
static void let_second_signal_through(void)
{
    struct sigaction action = {.sa_handler = end_at_once, .sa_flags = SA_RESTART};
    sigset_t mask;
    stopping_since_us = fq_mono_us();
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGTERM);
    (void)sigaddset(&mask, SIGINT);
    (void)pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
}

static void say_ready(const struct fq_broker *broker)
{
    char line[1024] = "", text[512];
    size_t used = 0;
    const struct fq_endpoint *endpoint;
    for (unsigned i = 0; (endpoint = fq_broker_endpoint(broker, i)) && used < sizeof line; i++) {
        int length = snprintf(line + used, sizeof line - used, " %s",
                              fq_endpoint_format(endpoint, text, sizeof text));
        used += length > 0 ? (size_t)length : 0;
    }
    (void)fprintf(stderr, "flashqd: ready%s\n", line);
    fq_host_notify_ready("serving");
}

static int serve(struct fq_broker *broker, int signals)
{
    bool has_said_ready = false;
    int number;
    while ((number = take_signal(signals)) == 0) {
        if (!has_said_ready && fq_broker_is_ready(broker)) {
            say_ready(broker);
            has_said_ready = true;
        }
        if (fq_broker_accept_step(broker) == 0) {
            fq_broker_accept_sleep(broker, signals, has_said_ready);
        }
    }
    fq_info("%s: shutting down", strsignal(number));
    fq_host_notify_stopping();
    let_second_signal_through();
    fq_broker_stop(broker);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct arguments args = {.check_config = false};
    struct fq_broker *broker;
    struct fq_err err;
    int exit_code = parse_arguments(argc, argv, &args);
    if (exit_code >= 0) {
        return exit_code;
    }
    if (args.check_config) {
        (void)printf("flashqd: the configuration is good\n");
        return EXIT_SUCCESS;
    }
    fq_log_set_sink(fq_log_to_stderr, NULL, (enum fq_log_level)args.options.log_level);
    int signals = open_signals();
    fq_info("flashqd %s: %lld shards", FQ_VERSION, (long long)args.options.shards);
    fq_host_prepare();
    if (signals < 0 || fq_broker_open(&args.options, fq_clock_system(), &broker, &err) != 0) {
        (void)fprintf(stderr, "flashqd: %s\n", signals < 0 ? strerror(errno) : err.text);
        return EXIT_FAILURE;
    }
    if (fq_broker_start(broker, &err) != 0) {
        (void)fprintf(stderr, "flashqd: %s\n", err.text);
        return EXIT_FAILURE; /* threads may run: the process is all there is to end */
    }
    exit_code = serve(broker, signals);
    fq_broker_close(broker);
    (void)close(signals);
    fq_info("flashqd: stopped");
    return exit_code;
}
