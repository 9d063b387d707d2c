/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq pub: from arguments, files or standard input to a topic. Records are streamed: each is sent
 * as soon as it is read, and while there is nothing to read, reports are taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"
#include "tools/format.h"
#include "tools/publish.h"
#include "tools/record.h"
#include "tools/source.h"
#include "tools/time_prefix.h"

enum {
    PUB_KEY = 1,
    PUB_HEADER,
    PUB_PARTITION,
    PUB_TIMESTAMP,
    PUB_DELIMITER,
    PUB_KEY_DELIMITER,
    PUB_FORMAT,
    PUB_IN,
    PUB_FILE,
    PUB_CODEC,
    PUB_ACKS,
    PUB_COUNT,
    PUB_RATE,
    PUB_REPORT,
    PUB_NULL,
    PUB_TIME_PREFIX,
    PUB_TOPIC
};

static const struct fq_opt options[] = {
    {PUB_KEY, 'k', "key", "KEY", "the key of every record"},
    {PUB_HEADER, 'H', "header", "NAME=VALUE", "a header of every record; NAME= empty, NAME null"},
    {PUB_PARTITION, 'p', "partition", "P", "the partition; else by key, or any"},
    {PUB_TIMESTAMP, 't', "timestamp", "TIME", "the timestamp of every record"},
    {PUB_TIME_PREFIX, 0, "time-prefix", "FORMAT",
     "each line begins with its timestamp: strptime's FORMAT (UTC), or rfc3339"},
    {PUB_DELIMITER, 'D', "delimiter", "DELIM", "what ends a record [\\n]; '' takes all as one"},
    {PUB_KEY_DELIMITER, 'K', "key-delimiter", "DELIM", "what ends the key of a line"},
    {PUB_FORMAT, 'f', "format", "FMT", "how records are written, such as '%V{big4}%v'"},
    {PUB_IN, 0, "in", "FORM", "jsonl: what \"sub -O jsonl\" prints; lines"},
    {PUB_FILE, 0, "file", "FILE", "a file that is one record (repeat; arguments are files too)"},
    {PUB_CODEC, 'z', "compression", "CODEC", "none, lz4 or zstd"},
    {PUB_ACKS, 0, "acks", "ACKS", "all, leader or none"},
    {PUB_COUNT, 'n', "count", "N", "send each record N times"},
    {PUB_RATE, 0, "rate", "R", "records a second, such as 500 or 10k"},
    {PUB_REPORT, 0, "report", NULL, "print a JSON line for each acknowledged record"},
    {PUB_NULL, 'Z', "null-empty", NULL, "an empty value is null"},
    {PUB_PARTITION, 0, "partitions", "P", NULL},
    {PUB_TOPIC, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

struct pub {
    struct fq_cli *cli;
    struct fq_publish publish;
    const char **words; /* arguments after the topic */
    size_t words_count;
    bool has_files;
    struct fq_rec fixed; /* key, headers, partition, timestamp of every record */
    struct fq_buf delimiter, key_delimiter;
    struct fq_format *format;
    bool has_delimiter, is_jsonl, is_null_empty;
    int64_t count;
    const char *time_prefix;
    int64_t line_time;   /* of the last line that had one */
    const char *codec, *acks;
};

static int take_header(struct pub *pub, const char *value, struct fq_fault *fault)
{
    const char *equals = strchr(value, '=');
    size_t name_length = equals ? (size_t)(equals - value) : strlen(value);
    if (name_length == 0) {
        return fq_fault_set(fault, "header \"%.64s\": expected NAME=VALUE", value);
    }
    fq_rec_add_header(&pub->fixed, value, name_length, equals ? equals + 1 : NULL,
                      equals ? strlen(equals + 1) : 0);
    return 0;
}

static int take_number(const char *value, const char *what, int64_t low, int64_t high, int64_t *ret,
                       struct fq_fault *fault)
{
    return fq_parse_whole(value, what, low, high, ret, fault);
}

static int take_word(struct pub *pub, const char *value)
{
    if (!pub->publish.topic) {
        pub->publish.topic = value;
    } else {
        pub->words = fq_realloc_array(pub->words, pub->words_count + 1, sizeof *pub->words);
        pub->words[pub->words_count++] = value;
    }
    return 0;
}

static int take_format(struct pub *pub, const char *value, struct fq_fault *fault)
{
    fq_format_free(pub->format);
    pub->format = NULL;
    int result = fq_format_compile(value, &pub->format, fault);
    return result == 0 ? fq_format_check_readable(pub->format, fault) : result;
}

static int take_delimiter(struct fq_buf *into, const char *value, struct fq_fault *fault)
{
    into->length = 0;
    int result = fq_unescape(into, value, fault);
    return result == 0 ? 0 : fq_fault_prefix(fault, "delimiter \"%.64s\": ", value);
}

static int take_in(struct pub *pub, const char *value, struct fq_fault *fault)
{
    pub->is_jsonl = strcmp(value, "jsonl") == 0 || strcmp(value, "json") == 0;
    return pub->is_jsonl || strcmp(value, "lines") == 0
               ? 0
               : fq_fault_set(fault, "--in %.32s: expected jsonl or lines", value);
}

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct pub *pub = args;
    int64_t number = 0;
    int result = 0;
    switch (id) {
    case FQ_OPT_ARGUMENT: return take_word(pub, value);
    case PUB_TOPIC: pub->publish.topic = value; return 0;
    case PUB_FILE: pub->has_files = true; return take_word(pub, value);
    case PUB_KEY:
        pub->fixed.key = value;
        pub->fixed.key_length = strlen(value);
        return 0;
    case PUB_HEADER: return take_header(pub, value, fault);
    case PUB_PARTITION:
        result = take_number(value, "partition", -1, INT32_MAX, &number, fault);
        pub->fixed.partition = (int32_t)number;
        return result;
    case PUB_TIMESTAMP:
        return fq_parse_time(value, pub->cli->now_ms, &pub->fixed.timestamp_ms, fault);
    case PUB_TIME_PREFIX:
        pub->time_prefix = value;
        return fq_time_prefix_check(value, fault);
    case PUB_DELIMITER:
        pub->has_delimiter = true;
        return take_delimiter(&pub->delimiter, value, fault);
    case PUB_KEY_DELIMITER: return take_delimiter(&pub->key_delimiter, value, fault);
    case PUB_FORMAT: return take_format(pub, value, fault);
    case PUB_IN: return take_in(pub, value, fault);
    case PUB_CODEC: pub->codec = value; return 0;
    case PUB_ACKS: pub->acks = value; return 0;
    case PUB_COUNT: return take_number(value, "count", 1, INT64_MAX, &pub->count, fault);
    case PUB_RATE: return fq_parse_rate(value, &pub->publish.rate, fault);
    case PUB_REPORT: pub->publish.has_report = true; return 0;
    case PUB_NULL: pub->is_null_empty = true; return 0;
    default: return FLASHQ_ERR_INVALID;
    }
}

/* ---- from records to the producer ---------------------------------------------------------- */

static int take_line_time(struct pub *pub, struct fq_rec *rec)
{
    int64_t ms;
    if (fq_time_prefix_read(pub->time_prefix, rec->value ? rec->value : "", rec->value_length,
                            &ms) == 0) {
        pub->line_time = ms;
    } else if (pub->line_time == FLASHQ_TIMESTAMP_NOW) {
        char text[192];
        (void)snprintf(text, sizeof text,
                       "record %" PRIu64 " does not begin with a time as \"%.64s\" has it",
                       pub->publish.taken + 1, pub->time_prefix);
        fq_publish_refuse(&pub->publish, text);
        return FQ_EXIT_FAILED;
    }
    rec->timestamp_ms = pub->line_time; /* a line without one belongs to the line before */
    return 0;
}

/* What was given on the command line is for every record, whatever the input says. */
static int send_record(struct pub *pub, struct fq_rec *rec)
{
    const struct fq_rec *fixed = &pub->fixed;
    if (fixed->key) {
        rec->key = fixed->key;
        rec->key_length = fixed->key_length;
    }
    if (fixed->partition != FLASHQ_PARTITION_ANY) {
        rec->partition = fixed->partition;
    }
    if (fixed->timestamp_ms != FLASHQ_TIMESTAMP_NOW) {
        rec->timestamp_ms = fixed->timestamp_ms;
    }
    for (size_t i = 0; i < fixed->headers_count; i++) {
        const flashq_header *header = &fixed->headers[i];
        fq_rec_add_header(rec, header->name, header->name_length, header->value,
                          header->value_length);
    }
    if (pub->is_null_empty && rec->value_length == 0) {
        rec->value = NULL;
    }
    int stop = pub->time_prefix ? take_line_time(pub, rec) : 0;
    for (int64_t i = 0; i < pub->count && stop == 0 && !fq_interrupted(); i++) {
        stop = fq_publish_send(&pub->publish, rec);
    }
    return stop;
}

/* Waits for input, an interrupt, or reports. */
static int wait_for_input(void *context, int fd)
{
    struct pub *pub = context;
    for (;;) {
        struct pollfd fds[] = {
            {.fd = fd, .events = POLLIN},
            {.fd = fq_interrupt_fd(), .events = POLLIN},
            {.fd = flashq_client_fd(pub->cli->client), .events = POLLIN},
        };
        if (poll(fds, 3, -1) < 0 && errno != EINTR) {
            return -1;
        }
        if (fq_interrupted()) {
            return -1;
        }
        if (fds[0].revents != 0) {
            return 0;
        }
        if (fds[2].revents != 0) {
            fq_publish_poll(&pub->publish);
        }
    }
}

static int send_source(struct pub *pub, struct fq_source *source)
{
    struct fq_rec rec = {0};
    struct fq_fault fault;
    int result, stop = 0;
    while (stop == 0 && !fq_interrupted() &&
           (result = fq_source_next(source, &rec, &fault)) != 0) {
        if (result < 0) {
            fq_publish_refuse(&pub->publish, fault.text);
            stop = FQ_EXIT_FAILED;
        } else {
            stop = send_record(pub, &rec);
        }
    }
    fq_rec_fini(&rec);
    return stop;
}

static struct fq_source_params source_params(struct pub *pub)
{
    struct fq_source_params params = {.mode = FQ_SOURCE_LINES,
                                      .delimiter = pub->delimiter,
                                      .key_delimiter = pub->key_delimiter,
                                      .format = pub->format,
                                      .wait = wait_for_input,
                                      .wait_context = pub};
    if (pub->format) {
        params.mode = FQ_SOURCE_FORMAT;
    } else if (pub->is_jsonl) {
        params.mode = FQ_SOURCE_JSONL;
    } else if (pub->delimiter.length == 0) {
        params.mode = FQ_SOURCE_WHOLE;
    }
    return params;
}

static int send_stdin(struct pub *pub)
{
    const struct fq_source_params params = source_params(pub);
    struct fq_source *source = fq_source_create(&params, STDIN_FILENO, "standard input");
    int stop = send_source(pub, source);
    fq_source_destroy(source);
    return stop;
}

static int send_file(struct pub *pub, const char *path)
{
    const struct fq_source_params params = {.mode = FQ_SOURCE_WHOLE};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        char text[FQ_ERRTEXT_BYTES];
        (void)snprintf(text, sizeof text, "%.300s: %s", path, strerror(errno));
        fq_publish_refuse(&pub->publish, text);
        return 0; /* the other files are still sent */
    }
    struct fq_source *source = fq_source_create(&params, fd, path);
    int stop = send_source(pub, source);
    fq_source_destroy(source);
    (void)close(fd);
    return stop;
}

static int send_value(struct pub *pub, const char *value)
{
    struct fq_rec rec = {0};
    fq_rec_clear(&rec);
    rec.value = value;
    rec.value_length = strlen(value);
    int stop = send_record(pub, &rec);
    fq_rec_fini(&rec);
    return stop;
}

static int send_all(struct pub *pub)
{
    int stop = 0;
    if (pub->words_count == 0) {
        return send_stdin(pub);
    }
    for (size_t i = 0; i < pub->words_count && stop == 0 && !fq_interrupted(); i++) {
        if (strcmp(pub->words[i], "-") == 0) {
            stop = send_stdin(pub);
        } else {
            stop = pub->has_files ? send_file(pub, pub->words[i]) : send_value(pub, pub->words[i]);
        }
    }
    return stop;
}

/* ---- the command --------------------------------------------------------------------------- */

static int check(struct pub *pub)
{
    struct fq_cli *cli = pub->cli;
    if (!pub->publish.topic) {
        return fq_cli_usage(cli, "which topic?");
    }
    if ((pub->format != NULL) + pub->is_jsonl + (pub->has_delimiter || pub->key_delimiter.length > 0) >
        1) {
        return fq_cli_usage(cli, "-f, --in jsonl and the delimiters -D, -K exclude each other");
    }
    if (pub->key_delimiter.length > 0 && pub->delimiter.length == 0) {
        return fq_cli_usage(cli, "-K needs records that end: -D must not be empty");
    }
    if (pub->time_prefix && pub->fixed.timestamp_ms != FLASHQ_TIMESTAMP_NOW) {
        return fq_cli_usage(cli, "-t and --time-prefix exclude each other");
    }
    int code = fq_cli_set(cli, "reports", pub->publish.has_report ? "all" : "errors");
    if (code == 0 && pub->codec) {
        code = fq_cli_set(cli, "compression.type", pub->codec);
    }
    if (code == 0 && pub->acks) {
        code = fq_cli_set(cli, "acks", pub->acks);
    }
    return code;
}

static int run_prepared(struct pub *pub)
{
    int code = check(pub);
    if (code == 0) {
        code = fq_cli_connect(pub->cli);
    }
    if (code == 0) {
        code = fq_publish_open(&pub->publish);
    }
    if (code != 0) {
        return code;
    }
    (void)send_all(pub);
    return fq_publish_finish(&pub->publish);
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    struct pub pub = {.cli = cli,
                      .publish = {.cli = cli},
                      .count = 1,
                      .line_time = FLASHQ_TIMESTAMP_NOW};
    fq_rec_clear(&pub.fixed);
    fq_buf_add_text(&pub.delimiter, "\n");
    int code = fq_cli_parse(cli, parser, take, &pub);
    if (code < 0) {
        code = run_prepared(&pub);
    }
    free(pub.words);
    fq_rec_fini(&pub.fixed);
    fq_buf_fini(&pub.delimiter);
    fq_buf_fini(&pub.key_delimiter);
    fq_format_free(pub.format);
    return code;
}

const struct fq_command fq_cmd_pub = {
    .name = "pub",
    .alias = "produce",
    .arguments = "TOPIC [VALUE...|-]",
    .summary = "publish records from arguments, files or standard input",
    .notes = "Without VALUE, each line of standard input is a record (the newline is not part of it; "
             "a last\nline without one counts). The exit code is 1 if any record was not "
             "acknowledged.\n",
    .options = options,
    .run = run,
};
