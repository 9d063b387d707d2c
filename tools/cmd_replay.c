/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq replay: the records of a time span, [FROM, TO), exactly: reading starts at the first record at
 * or after FROM, every record is compared with both bounds, and each partition ends at the end it had
 * when the command started. Partitions follow one another. To standard output or into a topic, as
 * fast as they come or at the pace of their timestamps.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/consume.h"
#include "tools/print_record.h"
#include "tools/publish.h"

enum { REPLAY_FROM = 1, REPLAY_TO, REPLAY_FOR, REPLAY_SPEED, REPLAY_INTO, REPLAY_FORMAT,
       REPLAY_PARTITIONS, REPLAY_DELIMITER, REPLAY_TOPIC };

static const struct fq_opt options[] = {
    {REPLAY_FROM, 0, "from", "TIME", "the first moment (needed)"},
    {REPLAY_TO, 0, "to", "TIME", "the end, not included"},
    {REPLAY_FOR, 0, "for", "T", "how long from FROM, such as 10m"},
    {REPLAY_SPEED, 0, "speed", "S", "max [max], 1x: as they were written, 10x, 0.5x"},
    {REPLAY_INTO, 0, "into", "TOPIC", "publish into this topic instead of printing"},
    {REPLAY_PARTITIONS, 'p', "partitions", "P,P", "only these partitions"},
    {REPLAY_FORMAT, 'f', "format", "FMT", "how records are printed"},
    {REPLAY_DELIMITER, 'D', "delimiter", "DELIM", "what is printed after each value [\\n]"},
    {REPLAY_PARTITIONS, 0, "partition", "P", NULL},
    {REPLAY_TOPIC, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

struct replay {
    struct fq_cli *cli;
    const char *topic, *into;
    int32_t *partitions;
    size_t partitions_count;
    bool has_from;
    int64_t from_ms, to_ms, for_ms; /* to: INT64_MAX; for: -1 */
    double speed;                   /* 0: max */
    struct fq_printer printer;
    struct fq_publish publish;
    int32_t into_partitions;
    int64_t first_ms, first_ns;     /* of the current partition's pace; ns -1: not begun */
    uint64_t records;
};

static int take_speed(struct replay *replay, const char *value, struct fq_fault *fault)
{
    char *end;
    if (strcmp(value, "max") == 0) {
        replay->speed = 0;
        return 0;
    }
    replay->speed = strtod(value, &end);
    if (end == value || strcmp(end, "x") != 0 || !(replay->speed >= 0.001 && replay->speed <= 1e6)) {
        return fq_fault_set(fault, "speed \"%.32s\": expected max, or 1x, 10x, 0.5x", value);
    }
    return 0;
}

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct replay *replay = args;
    int64_t now_ms = replay->cli->now_ms;
    switch (id) {
    case FQ_OPT_ARGUMENT:
        if (replay->topic) {
            return fq_fault_set(fault, "one topic at a time: \"%.64s\"", value);
        }
        replay->topic = value;
        return 0;
    case REPLAY_TOPIC: replay->topic = value; return 0;
    case REPLAY_FROM:
        replay->has_from = true;
        value += value[0] == '@';
        return fq_parse_time(value, now_ms, &replay->from_ms, fault);
    case REPLAY_TO:
        value += value[0] == '@';
        return fq_parse_time(value, now_ms, &replay->to_ms, fault);
    case REPLAY_FOR: return fq_parse_duration_ms(value, &replay->for_ms, fault);
    case REPLAY_SPEED: return take_speed(replay, value, fault);
    case REPLAY_INTO: replay->into = value; return 0;
    case REPLAY_PARTITIONS:
        free(replay->partitions);
        replay->partitions = NULL;
        return fq_parse_partitions(value, &replay->partitions, &replay->partitions_count, fault);
    case REPLAY_FORMAT:
        fq_format_free(replay->printer.format);
        replay->printer.format = NULL;
        return fq_format_compile(value, &replay->printer.format, fault);
    case REPLAY_DELIMITER:
        replay->printer.delimiter.length = 0;
        return fq_unescape(&replay->printer.delimiter, value, fault);
    default: return FLASHQ_ERR_INVALID;
    }
}

/* Waits until the record is due; out-of-order ones are due at once. */
static bool pace(struct replay *replay, int64_t timestamp_ms)
{
    if (replay->speed <= 0) {
        return true;
    }
    int64_t now_ns = fq_now_ns();
    if (replay->first_ns < 0) {
        replay->first_ns = now_ns;
        replay->first_ms = timestamp_ms;
    }
    double ahead_ms = (double)(timestamp_ms - replay->first_ms) / replay->speed;
    int64_t due_ns = replay->first_ns + (int64_t)(ahead_ms * 1e6);
    if (due_ns > now_ns) {
        (void)fq_out_flush(&replay->cli->out);
        if (replay->into) {
            fq_publish_poll(&replay->publish);
        }
    }
    return fq_sleep_until_ns(due_ns);
}

static int visit(void *context, const struct fq_rec *rec)
{
    struct replay *replay = context;
    if (rec->timestamp_ms < replay->from_ms || rec->timestamp_ms >= replay->to_ms) {
        return 0;
    }
    if (!pace(replay, rec->timestamp_ms)) {
        return FQ_EXIT_FAILED + 1;
    }
    replay->records++;
    if (!replay->into) {
        return fq_printer_print(&replay->printer, rec);
    }
    struct fq_rec copy = *rec; /* borrows everything */
    if (copy.partition >= replay->into_partitions) {
        copy.partition = FLASHQ_PARTITION_ANY;
    }
    return fq_publish_send(&replay->publish, &copy) == 0 ? 0 : FQ_EXIT_FAILED + 1;
}

static int replay_lanes(struct replay *replay, struct fq_lanes *lanes)
{
    int code = FQ_EXIT_OK, first = FQ_EXIT_OK;
    bool is_damaged = false;
    for (size_t i = 0; i < lanes->count && code == FQ_EXIT_OK && !fq_interrupted(); i++) {
        struct fq_consume consume = {.cli = replay->cli,
                                     .lanes = &lanes->lanes[i],
                                     .lanes_count = 1,
                                     .has_headers = replay->into ||
                                                    fq_printer_has_headers(&replay->printer),
                                     .max_records = INT64_MAX,
                                     .max_wait_ms = -1,
                                     .visit = visit,
                                     .context = replay};
        replay->first_ns = -1;
        code = fq_consume_run(&consume);
        is_damaged |= consume.damaged > 0;
        first = first != FQ_EXIT_OK ? first : consume.failed;
    }
    if (!fq_out_flush(&replay->cli->out) || fq_interrupted()) {
        return FQ_EXIT_FAILED;
    }
    return code != FQ_EXIT_OK ? code : is_damaged ? FQ_EXIT_CORRUPT : first;
}

static int check(struct replay *replay)
{
    struct fq_cli *cli = replay->cli;
    if (!replay->topic) {
        return fq_cli_usage(cli, "which topic?");
    }
    if (!replay->has_from) {
        return fq_cli_usage(cli, "from when? --from TIME is needed");
    }
    if (replay->for_ms >= 0) {
        if (replay->to_ms != INT64_MAX) {
            return fq_cli_usage(cli, "--to and --for exclude each other");
        }
        if (__builtin_add_overflow(replay->from_ms, replay->for_ms, &replay->to_ms)) {
            replay->to_ms = INT64_MAX;
        }
    }
    if (replay->to_ms < replay->from_ms) {
        return fq_cli_usage(cli, "the end is before the beginning");
    }
    if (replay->printer.format && (cli->output != FQ_OUTPUT_TABLE || replay->into)) {
        return fq_cli_usage(cli, "-f excludes -O json and --into");
    }
    if (replay->into && strcmp(replay->into, replay->topic) == 0) {
        return fq_cli_usage(cli, "--into must be another topic");
    }
    return replay->into ? fq_cli_set(cli, "reports", "errors") : 0;
}

static int run_prepared(struct replay *replay)
{
    const struct fq_offset_range range = {{FQ_OFFSET_TIME, replay->from_ms}, {FQ_OFFSET_NONE, 0}};
    struct fq_lanes lanes = {0};
    int code = check(replay);
    if (code == 0) {
        code = fq_cli_connect(replay->cli);
    }
    if (code == 0) {
        code = fq_lanes_add(replay->cli, &lanes, replay->topic, replay->partitions,
                            replay->partitions_count, &range, true);
    }
    if (code == 0 && replay->into) {
        replay->publish = (struct fq_publish){.cli = replay->cli, .topic = replay->into};
        code = fq_publish_open(&replay->publish);
    }
    if (code == 0) {
        replay->into_partitions =
            replay->into ? flashq_producer_partitions(replay->publish.producer) : 0;
        code = replay_lanes(replay, &lanes);
        code = code == 0 ? lanes.failed : code;
        if (replay->into) {
            int sent = fq_publish_finish(&replay->publish);
            code = code != 0 ? code : sent;
        }
        fq_cli_note("%s: %" PRIu64 " records replayed", replay->topic, replay->records);
    }
    fq_lanes_fini(&lanes);
    return code;
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    struct replay replay = {
        .cli = cli, .to_ms = INT64_MAX, .for_ms = -1, .printer = {.cli = cli}};
    fq_buf_add_text(&replay.printer.delimiter, "\n");
    int code = fq_cli_parse(cli, parser, take, &replay);
    if (code < 0) {
        code = run_prepared(&replay);
    }
    free(replay.partitions);
    fq_format_free(replay.printer.format);
    fq_buf_fini(&replay.printer.delimiter);
    return code;
}

const struct fq_command fq_cmd_replay = {
    .name = "replay",
    .arguments = "TOPIC --from TIME [--to TIME|--for T]",
    .summary = "print or publish again the records of a time span",
    .notes = "TIME is RFC 3339 with a zone, 10, 13, 16 or 19 digits, or relative (-1h30m). Partitions "
             "follow one\nanother; each ends at the end it had when the command started. --into keeps "
             "keys, values, headers and\ntimestamps, and the partition's number where that topic has "
             "it.\n",
    .options = options,
    .run = run,
};
