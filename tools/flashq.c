/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq: publish, subscribe, replay, administer, measure. This file finds the command; the commands
 * are in cmd_*.c and bench_*.c. One thread, except in bench.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"

const struct fq_command *const fq_commands[] = {
    &fq_cmd_pub,
    &fq_cmd_sub,
    &fq_cmd_replay,
    &fq_cmd_query,
    &fq_cmd_topic_create,
    &fq_cmd_topic_list,
    &fq_cmd_topic_describe,
    &fq_cmd_topic_delete,
    &fq_cmd_topic_alter,
    &fq_cmd_topic_add_partitions,
    &fq_cmd_topic_trim,
    &fq_cmd_cluster_info,
    &fq_cmd_cluster_health,
    &fq_cmd_cluster_brokers,
    &fq_cmd_cluster_leaders,
    &fq_cmd_partition_describe,
    &fq_cmd_log_verify,
    &fq_cmd_log_dump,
    &fq_cmd_log_stat,
    &fq_cmd_bench_pub,
    &fq_cmd_bench_sub,
    &fq_cmd_bench_pull,
    &fq_cmd_bench_e2e,
    &fq_cmd_bench_limits,
    &fq_cmd_doctor,
    NULL,
};

/* What other releases have or other tools call so; told plainly instead of "unknown". */
static const struct {
    const char *name, *why;
} absent[] = {
    {"group", "consumer groups are not in this release"},
    {"cluster rebalance", "one broker only in this release: there is nothing to rebalance"},
    {"cluster move", "one broker only in this release: partitions cannot be moved"},
    {"cluster drain", "one broker only in this release: partitions cannot be moved"},
    {"partition repair", "replication is not in this release: there is nothing to repair from"},
    {"partition elect", "replication is not in this release: there is nobody to elect"},
};

/* ---- help ---------------------------------------------------------------------------------- */

static void help_overview(struct fq_buf *out)
{
    fq_buf_add_text(out, "flashq: publish to, read from and look after FlashQ topics\n\n"
                         "Usage: flashq [OPTION]... COMMAND [ARGUMENT]...\n\nCommands:\n");
    for (const struct fq_command *const *command = fq_commands; *command; command++) {
        fq_buf_printf(out, "  %-24s %s\n", (*command)->name, (*command)->summary);
    }
    fq_buf_add_text(out, "  help [COMMAND]           this text, or a command's\n"
                         "  version                  the versions of program and library\n\n"
                         "Options of every command:\n");
    fq_opt_describe(fq_common_options, out);
    fq_buf_add_text(
        out,
        "\nWithout -b and FLASHQ_BROKERS: the local socket, then 127.0.0.1:9640.\n"
        "Exit codes: 0 ok, 1 failed or partly failed, 2 usage, 3 cannot reach a broker, 4 not\n"
        "found, 5 exists, 6 not permitted, 7 corruption, 8 timed out.\n");
}

void fq_cli_help(struct fq_cli *cli, const struct fq_command *command)
{
    struct fq_buf *out = &cli->out.buf;
    if (!command) {
        help_overview(out);
        return;
    }
    fq_buf_printf(out, "Usage: flashq %s %s\n\n%s.\n", command->name, command->arguments,
                  command->summary);
    struct fq_buf own = {0};
    fq_opt_describe(command->options, &own);
    if (own.length > 0) {
        fq_buf_printf(out, "\nOptions:\n%s", fq_buf_text(&own));
    }
    fq_buf_fini(&own);
    fq_buf_add_text(out, "\nOptions of every command:\n");
    fq_opt_describe(fq_common_options, out);
    if (command->notes) {
        fq_buf_printf(out, "\n%s", command->notes);
    }
}

/* ---- finding the command ------------------------------------------------------------------- */

/* Words of `name` that argv begins with, or 0. */
static int match_words(const char *name, int argc, char *const *argv)
{
    int words = 0;
    while (name && *name) {
        size_t length = strcspn(name, " ");
        if (words >= argc || strlen(argv[words]) != length ||
            strncmp(argv[words], name, length) != 0) {
            return 0;
        }
        words++;
        name += length + (name[length] == ' ');
    }
    return words;
}

static const struct fq_command *find_command(int argc, char *const *argv, int *ret_words)
{
    for (const struct fq_command *const *command = fq_commands; *command; command++) {
        int words = match_words((*command)->name, argc, argv);
        words = words > 0 ? words : match_words((*command)->alias, argc, argv);
        if (words > 0) {
            *ret_words = words;
            return *command;
        }
    }
    return NULL;
}

/* "topic" alone: which ones there are. */
static int which_of_family(const struct fq_cli *cli, const char *family)
{
    char names[256] = "";
    size_t first = strlen(family);
    for (const struct fq_command *const *command = fq_commands; *command; command++) {
        size_t used = strlen(names);
        if (strncmp((*command)->name, family, first) == 0 && (*command)->name[first] == ' ') {
            (void)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "",
                           (*command)->name + first + 1);
        }
    }
    return fq_cli_usage(cli, "%s: which command? one of %s", family, names);
}

static int no_command(const struct fq_cli *cli, int argc, char *const *argv)
{
    const char *names[64] = {NULL};
    size_t count = 0;
    bool is_family = false;
    char spelled[64];
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        if (match_words(absent[i].name, argc, argv) > 0) {
            return fq_cli_usage(cli, "%s: %s", absent[i].name, absent[i].why);
        }
    }
    for (const struct fq_command *const *command = fq_commands; *command && count < 62; command++) {
        size_t first = strcspn((*command)->name, " ");
        names[count++] = (*command)->name;
        is_family |= strlen(argv[0]) == first && strncmp((*command)->name, argv[0], first) == 0;
    }
    (void)snprintf(spelled, sizeof spelled, "%s%s%s", argv[0], is_family && argc > 1 ? " " : "",
                   is_family && argc > 1 ? argv[1] : "");
    const char *near = fq_closest(spelled, names);
    if (is_family && argc < 2) {
        return which_of_family(cli, argv[0]);
    }
    return fq_cli_usage(cli, "unknown command \"%s\"%s%s%s", spelled, near ? " (did you mean \"" : "",
                        near ? near : "", near ? "\"?)" : "");
}

/* "topic" alone with --help: its commands. False if there is no such family. */
static bool help_family(struct fq_cli *cli, const char *family)
{
    struct fq_buf *out = &cli->out.buf;
    bool is_family = false;
    for (const struct fq_command *const *command = fq_commands; *command; command++) {
        size_t first = strcspn((*command)->name, " ");
        if ((*command)->name[first] == '\0' || strlen(family) != first ||
            strncmp((*command)->name, family, first) != 0) {
            continue;
        }
        if (!is_family) {
            fq_buf_printf(out, "Usage: flashq %s COMMAND [OPTION]... [ARGUMENT]...\n\nCommands:\n",
                          family);
        }
        is_family = true;
        fq_buf_printf(out, "  %-24s %s\n", (*command)->name, (*command)->summary);
    }
    if (is_family) {
        fq_buf_printf(out, "\nSee \"flashq help %s COMMAND\".\n", family);
    }
    return is_family;
}

/* ---- built-in commands --------------------------------------------------------------------- */

static int run_help(struct fq_cli *cli, int argc, char *const *argv)
{
    int words;
    if (argc == 0) {
        fq_cli_help(cli, NULL);
        return FQ_EXIT_OK;
    }
    const struct fq_command *command = find_command(argc, argv, &words);
    if (!command) {
        return argc == 1 && help_family(cli, argv[0]) ? FQ_EXIT_OK : no_command(cli, argc, argv);
    }
    fq_cli_help(cli, command);
    return FQ_EXIT_OK;
}

static int run_version(struct fq_cli *cli)
{
    char header[32];
    (void)snprintf(header, sizeof header, "%d.%d.%d", FLASHQ_VERSION_MAJOR, FLASHQ_VERSION_MINOR,
                   FLASHQ_VERSION_PATCH);
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_buf_printf(&cli->out.buf, "flashq %s (libflashq %s)\n", header, flashq_version());
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:s, s:s}", "schema", "flashq.version/1", "flashq",
                                         header, "libflashq", flashq_version()));
    }
    return FQ_EXIT_OK;
}

/* For the shell: the words that can follow. `flashq complete [WORD]...` */
static int run_complete(struct fq_cli *cli, int argc, char *const *argv)
{
    int words;
    const struct fq_command *command = argc > 0 ? find_command(argc, argv, &words) : NULL;
    for (const struct fq_command *const *c = fq_commands; !command && *c; c++) {
        const char *rest = (*c)->name;
        size_t first = strcspn(rest, " ");
        if (argc == 0) {
            fq_buf_printf(&cli->out.buf, "%.*s\n", (int)first, rest);
        } else if (rest[first] == ' ' && strlen(argv[0]) == first &&
                   strncmp(rest, argv[0], first) == 0) {
            fq_buf_printf(&cli->out.buf, "%s\n", rest + first + 1);
        }
    }
    const struct fq_opt *tables[] = {command ? command->options : NULL, fq_common_options};
    for (size_t i = 0; i < 2; i++) {
        for (const struct fq_opt *opt = tables[i]; opt && opt->id != 0; opt++) {
            if (opt->name && opt->help) {
                fq_buf_printf(&cli->out.buf, "--%s\n", opt->name);
            }
        }
    }
    return FQ_EXIT_OK;
}

static int run_command(struct fq_cli *cli, int argc, char **argv)
{
    int words = 0;
    const struct fq_command *command = find_command(argc, argv, &words);
    if (!command) {
        bool is_help =
            argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        return is_help && help_family(cli, argv[0]) ? FQ_EXIT_OK : no_command(cli, argc, argv);
    }
    struct fq_opt_parser parser = {.argc = argc,
                                   .argv = argv,
                                   .index = words,
                                   .own = command->options,
                                   .common = fq_common_options};
    cli->command = command;
    int code = command->run(cli, &parser);
    fq_cli_tell(cli);
    if (cli->client) {
        (void)flashq_client_close(cli->client, cli->timeout_ms);
    }
    return code;
}

/* ---- the program --------------------------------------------------------------------------- */

static const struct fq_opt top_options[] = {
    {1, 'V', "version", NULL, "the versions"},
    {0, 0, NULL, NULL, NULL},
};

static int take_top(void *args, int id, const char *value, struct fq_fault *fault)
{
    bool *is_version = args;
    if (id == FQ_OPT_ARGUMENT) {
        return fq_fault_set(fault, "unexpected \"%.64s\"", value);
    }
    *is_version = true;
    return 0;
}

/* The number of leading words that are options of every command and their values. */
static int count_leading(int argc, char **argv)
{
    struct fq_opt_parser parser = {
        .argc = argc, .argv = argv, .own = top_options, .common = fq_common_options};
    for (;;) {
        struct fq_fault fault;
        const char *value;
        bool is_common;
        int id = fq_opt_next(&parser, &value, &is_common, &fault);
        if (id == FQ_OPT_ARGUMENT) {
            return parser.index - 1;
        }
        if (id == FQ_OPT_END || id == FQ_OPT_FAULT) {
            return argc;
        }
    }
}

static int run(struct fq_cli *cli, int argc, char **argv)
{
    bool is_version = false;
    int leading = count_leading(argc, argv);
    struct fq_opt_parser parser = {
        .argc = leading, .argv = argv, .own = top_options, .common = fq_common_options};
    int stop = fq_cli_parse(cli, &parser, take_top, &is_version);
    if (stop >= 0) {
        return stop;
    }
    argc -= leading;
    argv += leading;
    if (is_version || (argc > 0 && strcmp(argv[0], "version") == 0)) {
        return run_version(cli);
    }
    if (argc == 0) {
        return fq_cli_usage(cli, "which command? one of pub, sub, replay, query, topic, cluster, "
                                 "partition, log, bench, doctor, help, version");
    }
    if (strcmp(argv[0], "help") == 0) {
        return run_help(cli, argc - 1, argv + 1);
    }
    if (strcmp(argv[0], "complete") == 0) {
        return run_complete(cli, argc - 1, argv + 1);
    }
    return run_command(cli, argc, argv);
}

/* A socket must never become what the program prints to: a closed descriptor stays unusable. */
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv)
{
    struct fq_cli cli = {.argc = argc, .argv = argv, .timeout_ms = -1, .out.fd = STDOUT_FILENO};
    hold_standard_descriptors();
    fq_interrupt_install();
    cli.now_ms = fq_wall_now_ms();
    cli.config = flashq_config_new();
    if (!cli.config) {
        fq_cli_warn("out of memory");
        return FQ_EXIT_FAILED;
    }
    const char *brokers = getenv("FLASHQ_BROKERS");
    int code = FQ_EXIT_OK;
    if (brokers && brokers[0] != '\0') {
        code = fq_cli_set(&cli, "brokers", brokers);
    }
    code = code == FQ_EXIT_OK ? run(&cli, argc - 1, argv + 1) : code;
    if (!fq_out_flush(&cli.out) && code == FQ_EXIT_OK) {
        code = FQ_EXIT_FAILED;
    }
    fq_buf_fini(&cli.out.buf);
    flashq_config_free(cli.config);
    return code;
}
