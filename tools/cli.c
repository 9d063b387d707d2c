/* SPDX-License-Identifier: Apache-2.0 */
/* See cli.h. The only state that is not in struct fq_cli is what a signal handler must reach. */
#include "tools/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long to try for a broker without --timeout: somebody is waiting for an answer. */
#define CONNECT_MS 5000
#define SLICE_MS 200
#define TOLD_AT_ONCE 16

enum { COMMON_BROKERS = 1, COMMON_OUTPUT, COMMON_TIMEOUT, COMMON_TIMEOUT_MS, COMMON_KEY, COMMON_VERBOSE, COMMON_HELP };

const struct fq_opt fq_common_options[] = {
    {COMMON_BROKERS, 'b', "brokers", "BROKERS",
     "HOST:PORT, tcp:HOST:PORT or shm:SOCKET, separated by commas [FLASHQ_BROKERS]"},
    {COMMON_BROKERS, 0, "bootstrap-server", "BROKERS", NULL},
    {COMMON_OUTPUT, 'O', "output", "FORM", "table, json or jsonl"},
    {COMMON_TIMEOUT, 0, "timeout", "T", "how long a request may take, such as 5s"},
    {COMMON_TIMEOUT_MS, 0, "timeout-ms", "MS", NULL},
    {COMMON_KEY, 'X', NULL, "KEY=VALUE", "sets a key of the client, see flashq-client(5)"},
    {COMMON_VERBOSE, 'v', NULL, NULL, "tells of connections and failures; -vv of every change of state"},
    {COMMON_HELP, 'h', "help", NULL, "this text"},
    {0, 0, NULL, NULL, NULL},
};

/* ---- complaints ---------------------------------------------------------------------------- */

int fq_exit_of(int code)
{
    switch (code) {
    case FLASHQ_OK: return FQ_EXIT_OK;
    case FLASHQ_ERR_INVALID:
    case FLASHQ_ERR_CONFIG: return FQ_EXIT_USAGE;
    case FLASHQ_ERR_UNREACHABLE: return FQ_EXIT_UNREACHABLE;
    case FLASHQ_ERR_NOT_FOUND:
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID: return FQ_EXIT_NOT_FOUND;
    case FLASHQ_ERR_EXISTS: return FQ_EXIT_EXISTS;
    case FLASHQ_ERR_NOT_PERMITTED: return FQ_EXIT_NOT_PERMITTED;
    case FLASHQ_ERR_CORRUPT: return FQ_EXIT_CORRUPT;
    case FLASHQ_ERR_TIMED_OUT: return FQ_EXIT_TIMED_OUT;
    default: return FQ_EXIT_FAILED;
    }
}

int fq_cli_fail(const struct fq_cli *cli, int code, const char *text, const char *format, ...)
{
    char context[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(context, sizeof context, format, args);
    va_end(args);
    (void)cli;
    const char *why = text && text[0] ? text : flashq_strerror(code);
    bool is_named = strstr(why, context) != NULL; /* the library's text says it already */
    (void)fprintf(stderr, "flashq: %s%s%s\n", is_named ? "" : context, is_named ? "" : ": ", why);
    return fq_exit_of(code);
}

int fq_cli_usage(const struct fq_cli *cli, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *name = cli->command ? cli->command->name : "";
    (void)fprintf(stderr, "flashq%s%s: %s\nTry \"flashq help%s%s\".\n", name[0] ? " " : "", name, text,
                  name[0] ? " " : "", name);
    return FQ_EXIT_USAGE;
}

void fq_cli_warn(const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fprintf(stderr, "flashq: %s\n", text);
}

void fq_cli_note(const char *format, ...)
{
    if (isatty(STDERR_FILENO)) {
        va_list args;
        va_start(args, format);
        (void)vfprintf(stderr, format, args);
        va_end(args);
        (void)fputc('\n', stderr);
    }
}

/* ---- options ------------------------------------------------------------------------------- */

static int take_output(struct fq_cli *cli, const char *value, struct fq_fault *fault)
{
    static const char *const names[] = {"table", "json", "jsonl", NULL};
    for (int i = 0; names[i]; i++) {
        if (strcmp(value, names[i]) == 0) {
            cli->output = (enum fq_output)i;
            return 0;
        }
    }
    return fq_fault_set(fault, "output \"%.32s\": expected table, json or jsonl", value);
}

static int take_pair(struct fq_cli *cli, const char *pair, struct fq_fault *fault)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair) {
        return fq_fault_set(fault, "-X %.64s: expected KEY=VALUE", pair);
    }
    char *key = fq_strdup(pair);
    key[equals - pair] = '\0';
    int result =
        flashq_config_set(cli->config, key, equals + 1, cli->errtext, sizeof cli->errtext);
    if (result != 0) {
        result = fq_fault_set(fault, "-X %.64s: %.300s", pair,
                              cli->errtext[0] ? cli->errtext : flashq_strerror(result));
    }
    free(key);
    return result;
}

/* Twice: more of it. */
static int take_verbose(struct fq_cli *cli)
{
    const char *level = cli->is_verbose ? "debug" : "info";
    cli->is_verbose = true;
    return flashq_config_set(cli->config, "log.level", level, NULL, 0);
}

static int take_timeout(struct fq_cli *cli, int64_t ms)
{
    char text[24];
    cli->timeout_ms = ms > INT32_MAX ? INT32_MAX : (int)ms;
    (void)snprintf(text, sizeof text, "%d", cli->timeout_ms);
    /* the library's own waiting (reconnects, flushes) goes by the same bound */
    (void)flashq_config_set(cli->config, "timeout.ms", text, NULL, 0);
    return 0;
}

static int take_common(struct fq_cli *cli, int id, const char *value, struct fq_fault *fault)
{
    int64_t ms;
    int result;
    switch (id) {
    case COMMON_BROKERS:
        if (flashq_config_set(cli->config, "brokers", value, cli->errtext, sizeof cli->errtext)) {
            return fq_fault_set(fault, "brokers \"%.100s\": %.300s", value, cli->errtext);
        }
        return 0;
    case COMMON_OUTPUT: return take_output(cli, value, fault);
    case COMMON_TIMEOUT:
        result = fq_parse_duration_ms(value, &ms, fault);
        return result == 0 ? take_timeout(cli, ms) : result;
    case COMMON_TIMEOUT_MS:
        result = fq_parse_whole(value, "timeout-ms", 0, INT32_MAX, &ms, fault);
        return result == 0 ? take_timeout(cli, ms) : result;
    case COMMON_VERBOSE: return take_verbose(cli);
    case COMMON_KEY: return take_pair(cli, value, fault);
    default: return fq_fault_set(fault, "option %d", id);
    }
}

int fq_cli_parse(struct fq_cli *cli, struct fq_opt_parser *parser, fq_take take, void *args)
{
    for (;;) {
        struct fq_fault fault = {""};
        const char *value;
        bool is_common;
        int id = fq_opt_next(parser, &value, &is_common, &fault);
        if (id == FQ_OPT_END) {
            return -1;
        }
        if (is_common && id == COMMON_HELP) {
            fq_cli_help(cli, cli->command);
            return FQ_EXIT_OK;
        }
        if (id == FQ_OPT_FAULT || (is_common ? take_common(cli, id, value, &fault)
                                             : take(args, id, value, &fault)) != 0) {
            return fq_cli_usage(cli, "%s", fault.text);
        }
    }
}

/* ---- the library --------------------------------------------------------------------------- */

int fq_cli_set(struct fq_cli *cli, const char *key, const char *value)
{
    int result = flashq_config_set(cli->config, key, value, cli->errtext, sizeof cli->errtext);
    return result == 0 ? 0 : fq_cli_fail(cli, result, cli->errtext, "%s", key);
}

void fq_cli_tell(struct fq_cli *cli)
{
    static const char *const levels[] = {
        [FLASHQ_LOG_ERROR] = "error", [FLASHQ_LOG_WARN] = "warning", [FLASHQ_LOG_INFO] = "info",
        [FLASHQ_LOG_DEBUG] = "debug"};
    flashq_log_entry entries[TOLD_AT_ONCE];
    int count = cli->is_verbose && cli->client ? TOLD_AT_ONCE : 0;
    while (count == TOLD_AT_ONCE) {
        count = flashq_client_log_poll(cli->client, entries, TOLD_AT_ONCE);
        for (int i = 0; i < count; i++) {
            if (entries[i].dropped > 0) {
                fq_cli_warn("%" PRIu64 " entries of the log were lost", entries[i].dropped);
            }
            fq_cli_warn("%s: %s", levels[entries[i].level], entries[i].text);
        }
    }
}

/* In slices, so that an interrupt is heard. */
static int wait_for_broker(struct fq_cli *cli)
{
    int left_ms = cli->timeout_ms >= 0 ? cli->timeout_ms : CONNECT_MS;
    for (;;) {
        int slice_ms = left_ms < SLICE_MS ? left_ms : SLICE_MS;
        int result =
            flashq_client_wait(cli->client, slice_ms, cli->errtext, sizeof cli->errtext);
        fq_cli_tell(cli);
        bool is_waiting = result == FLASHQ_ERR_TIMED_OUT || result == FLASHQ_ERR_UNREACHABLE;
        left_ms -= slice_ms;
        if (!is_waiting || left_ms <= 0 || fq_interrupted()) {
            return result;
        }
    }
}

int fq_cli_connect(struct fq_cli *cli)
{
    cli->errtext[0] = '\0';
    int result =
        flashq_client_open(cli->config, &cli->client, cli->errtext, sizeof cli->errtext);
    if (result == 0) {
        result = wait_for_broker(cli);
        /* No answer at all is "cannot reach a broker", however it came about. */
        result = result == FLASHQ_ERR_TIMED_OUT ? FLASHQ_ERR_UNREACHABLE : result;
    }
    if (result == FLASHQ_ERR_UNREACHABLE) {
        fq_cli_warn("cannot connect: %s", cli->errtext[0] ? cli->errtext : flashq_strerror(result));
        fq_cli_warn("is flashqd running? -b or FLASHQ_BROKERS says where");
        return fq_exit_of(result);
    }
    return result == 0 ? 0 : fq_cli_fail(cli, result, cli->errtext, "cannot connect");
}

void fq_cli_print_json(struct fq_cli *cli, json_t *document)
{
    size_t flags = cli->output == FQ_OUTPUT_JSON ? JSON_INDENT(2) : JSON_COMPACT;
    char *text = json_dumps(document, flags);
    if (text) {
        fq_buf_add_text(&cli->out.buf, text);
        fq_buf_add_byte(&cli->out.buf, '\n');
    } else {
        fq_cli_warn("cannot print the answer as JSON");
        cli->out.is_broken = true;
    }
    free(text);
    json_decref(document);
}

/* ---- interrupts, time ---------------------------------------------------------------------- */

static volatile sig_atomic_t is_interrupted;
static int interrupt_pipe[2] = {-1, -1};

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    is_interrupted = 1;
    (void)!write(interrupt_pipe[1], "", 1);
    errno = saved;
}

void fq_interrupt_install(void)
{
    if (pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        fq_cli_warn("cannot make a pipe: %s", strerror(errno));
        exit(FQ_EXIT_FAILED);
    }
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action = (struct sigaction){.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &action, NULL);
}

bool fq_interrupted(void)
{
    return is_interrupted != 0;
}

int fq_interrupt_fd(void)
{
    return interrupt_pipe[0];
}

int64_t fq_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t fq_wall_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool fq_sleep_until_ns(int64_t mono_ns)
{
    while (!fq_interrupted()) {
        int64_t left = mono_ns - fq_now_ns();
        if (left <= 0) {
            return true;
        }
        struct pollfd wake = {.fd = interrupt_pipe[0], .events = POLLIN};
        struct timespec wait = {left / 1000000000, left % 1000000000};
        (void)ppoll(&wake, 1, &wait, NULL);
    }
    return false;
}
