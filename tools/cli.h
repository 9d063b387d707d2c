/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command of `flashq` shares: the global options, the connection, exit codes, complaints,
 * standard output, interrupts. A command is one entry of a table; its function returns the exit
 * code. Commands run on the main thread.
 */
#ifndef FQ_TOOLS_CLI_H
#define FQ_TOOLS_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <flashq/flashq.h>

#include "tools/options.h"
#include "tools/out.h"
#include "tools/parse_time.h"
#include "tools/text.h"

enum fq_exit {
    FQ_EXIT_OK = 0,
    FQ_EXIT_FAILED = 1, /* or partly failed */
    FQ_EXIT_USAGE = 2,
    FQ_EXIT_UNREACHABLE = 3,
    FQ_EXIT_NOT_FOUND = 4,
    FQ_EXIT_EXISTS = 5,
    FQ_EXIT_NOT_PERMITTED = 6,
    FQ_EXIT_CORRUPT = 7,
    FQ_EXIT_TIMED_OUT = 8
};

enum fq_output { FQ_OUTPUT_TABLE, FQ_OUTPUT_JSON, FQ_OUTPUT_JSONL };

struct fq_cli;

struct fq_command {
    const char *name;      /* "pub", "topic create" */
    const char *alias;     /* or NULL */
    const char *arguments; /* "TOPIC [VALUE...|-]" */
    const char *summary;   /* one line */
    const char *notes;     /* more lines of help, or NULL */
    const struct fq_opt *options;
    int (*run)(struct fq_cli *cli, struct fq_opt_parser *parser);
};

#define FQ_ERRTEXT_BYTES 512

struct fq_cli {
    const struct fq_command *command; /* the one that runs */
    int argc;
    char **argv;
    enum fq_output output;
    int timeout_ms; /* -1: the library's */
    bool is_verbose; /* what the client has to tell is told: fq_cli_tell */
    flashq_config *config;
    flashq_client *client; /* after fq_cli_connect */
    struct fq_out out;
    int64_t now_ms;        /* when the program started: "now" in every TIME */
    char errtext[FQ_ERRTEXT_BYTES]; /* for calls of the library */
};

/* The exit code for an error code of the library. */
int fq_exit_of(int code);

/* "flashq: ..." on standard error; returns the exit code for `code`. A text that is "" is replaced by the
 * code's own words. */
int fq_cli_fail(const struct fq_cli *cli, int code, const char *text, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A complaint about how the command was called, with where to look; returns FQ_EXIT_USAGE. */
int fq_cli_usage(const struct fq_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fq_cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For people at a terminal only. */
void fq_cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Reads all options and arguments of a command. `take` gets those of the command's own table (id > 0)
 * and the arguments (FQ_OPT_ARGUMENT) and returns 0, or fills the fault. Returns -1 to go on, or an
 * exit code (also after --help).
 */
typedef int (*fq_take)(void *args, int id, const char *value, struct fq_fault *fault);
int fq_cli_parse(struct fq_cli *cli, struct fq_opt_parser *parser, fq_take take, void *args);

/* Sets a key of the client; returns 0 or an exit code, having complained. */
int fq_cli_set(struct fq_cli *cli, const char *key, const char *value);
/* With -v: prints what the client had to tell since the last time. Called whenever a command has waited, and at its
 * end. */
void fq_cli_tell(struct fq_cli *cli);
/* Opens the client and waits for a broker; 0 or an exit code, having complained. */
int fq_cli_connect(struct fq_cli *cli);

/* Prints a document (and drops the reference): indented for json, one line for jsonl. */
void fq_cli_print_json(struct fq_cli *cli, json_t *document);

/* A partition as every document has it. */
json_t *fq_partition_json(const flashq_partition_info *partition);

/* SIGINT and SIGTERM set a flag; the second one ends the process. */
void fq_interrupt_install(void);
bool fq_interrupted(void);
int fq_interrupt_fd(void); /* readable once interrupted */
/* Sleeps until a CLOCK_MONOTONIC time; false if interrupted. */
bool fq_sleep_until_ns(int64_t mono_ns);
int64_t fq_now_ns(void); /* CLOCK_MONOTONIC */
int64_t fq_wall_now_ms(void);

/* The table of commands (flashq.c); ends with a NULL name. */
extern const struct fq_command *const fq_commands[];
extern const struct fq_opt fq_common_options[];
void fq_cli_help(struct fq_cli *cli, const struct fq_command *command);

extern const struct fq_command fq_cmd_pub, fq_cmd_sub, fq_cmd_replay, fq_cmd_query;
extern const struct fq_command fq_cmd_topic_create, fq_cmd_topic_list, fq_cmd_topic_describe,
    fq_cmd_topic_delete, fq_cmd_topic_alter, fq_cmd_topic_add_partitions, fq_cmd_topic_trim;
extern const struct fq_command fq_cmd_cluster_info, fq_cmd_cluster_health, fq_cmd_cluster_brokers,
    fq_cmd_cluster_leaders, fq_cmd_partition_describe;
extern const struct fq_command fq_cmd_log_verify, fq_cmd_log_dump, fq_cmd_log_stat;
extern const struct fq_command fq_cmd_bench_pub, fq_cmd_bench_sub, fq_cmd_bench_pull,
    fq_cmd_bench_e2e, fq_cmd_bench_limits;
extern const struct fq_command fq_cmd_doctor;

#endif
