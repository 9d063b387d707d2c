/* SPDX-License-Identifier: Apache-2.0 */
/* flashq sub: from topics to standard output. It never creates a topic. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/consume.h"
#include "tools/print_record.h"

enum {
    SUB_OFFSET = 1,
    SUB_END,
    SUB_COUNT,
    SUB_PARTITIONS,
    SUB_FORMAT,
    SUB_UNTIL,
    SUB_META,
    SUB_MAX_WAIT,
    SUB_MAX_WAIT_MS,
    SUB_FROM_BEGINNING,
    SUB_DELIMITER,
    SUB_TOPIC,
    SUB_GROUP,
    SUB_PUSH
};

static const struct fq_opt options[] = {
    {SUB_OFFSET, 'o', "offset", "OFFSET", "start [start], end, N, -N, +N, @TIME, A:B, @T1:T2"},
    {SUB_END, 'e', "exit", NULL, "exit at the end that the partitions have now"},
    {SUB_COUNT, 'n', "count", "N", "exit after N records"},
    {SUB_PARTITIONS, 'p', "partitions", "P,P", "only these partitions, such as 0,1 or 0-3"},
    {SUB_FORMAT, 'f', "format", "FMT", "how records are printed, such as '%o %k %v\\n'"},
    {SUB_DELIMITER, 'D', "delimiter", "DELIM", "what is printed after each value [\\n]"},
    {SUB_UNTIL, 0, "until", "BOUND", "end before this OFFSET or @TIME"},
    {SUB_PUSH, 0, "push", NULL, "the broker writes the records here (-X fetch.mode=push)"},
    {SUB_META, 0, "meta-only", NULL, "JSON lines without key, value and headers"},
    {SUB_MAX_WAIT, 0, "max-wait", "T", "end when no record came for so long"},
    {SUB_MAX_WAIT_MS, 0, "timeout-ms", "MS", NULL},
    {SUB_FROM_BEGINNING, 0, "from-beginning", NULL, NULL},
    {SUB_COUNT, 0, "max-messages", "N", NULL},
    {SUB_PARTITIONS, 0, "partition", "P", NULL},
    {SUB_TOPIC, 0, "topic", "TOPIC", NULL},
    {SUB_GROUP, 'g', "group", "GROUP", NULL},
    {0, 0, NULL, NULL, NULL},
};

struct sub {
    struct fq_cli *cli;
    const char **topics;
    size_t topics_count;
    int32_t *partitions;
    size_t partitions_count;
    struct fq_offset_range range;
    bool is_to_end, is_push;
    int64_t count; /* INT64_MAX: all */
    int64_t max_wait_ms;
    struct fq_printer printer;
};

static int take_until(struct sub *sub, const char *value, struct fq_fault *fault)
{
    return fq_parse_bound(value, sub->cli->now_ms, &sub->range.to, fault);
}

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct sub *sub = args;
    switch (id) {
    case FQ_OPT_ARGUMENT:
    case SUB_TOPIC:
        sub->topics = fq_realloc_array(sub->topics, sub->topics_count + 1, sizeof *sub->topics);
        sub->topics[sub->topics_count++] = value;
        return 0;
    case SUB_OFFSET: return fq_parse_offset(value, sub->cli->now_ms, &sub->range, fault);
    case SUB_FROM_BEGINNING: return fq_parse_offset("start", 0, &sub->range, fault);
    case SUB_END: sub->is_to_end = true; return 0;
    case SUB_COUNT: return fq_parse_whole(value, "count", 0, INT64_MAX, &sub->count, fault);
    case SUB_PARTITIONS:
        free(sub->partitions);
        sub->partitions = NULL;
        sub->partitions_count = 0;
        return fq_parse_partitions(value, &sub->partitions, &sub->partitions_count, fault);
    case SUB_FORMAT:
        fq_format_free(sub->printer.format);
        sub->printer.format = NULL;
        return fq_format_compile(value, &sub->printer.format, fault);
    case SUB_DELIMITER:
        sub->printer.delimiter.length = 0;
        return fq_unescape(&sub->printer.delimiter, value, fault);
    case SUB_UNTIL: return take_until(sub, value, fault);
    case SUB_META: sub->printer.is_meta_only = true; return 0;
    case SUB_MAX_WAIT: return fq_parse_duration_ms(value, &sub->max_wait_ms, fault);
    case SUB_MAX_WAIT_MS:
        return fq_parse_whole(value, "timeout-ms", 0, INT32_MAX, &sub->max_wait_ms, fault);
    case SUB_GROUP: return fq_fault_set(fault, "consumer groups are not in this release");
    case SUB_PUSH: sub->is_push = true; return 0;
    default: return FLASHQ_ERR_INVALID;
    }
}

static int visit(void *context, const struct fq_rec *rec)
{
    return fq_printer_print(context, rec);
}

static void idle(void *context)
{
    const struct fq_printer *printer = context;
    (void)fq_out_flush(&printer->cli->out);
}

/* The exit code of a run that ended by itself. */
static int judge(const struct sub *sub, const struct fq_consume *consume)
{
    bool has_aim = sub->count != INT64_MAX || sub->is_to_end || sub->range.to.kind != FQ_OFFSET_NONE;
    if (sub->cli->out.is_broken) {
        return FQ_EXIT_FAILED;
    }
    if (consume->damaged > 0) {
        return FQ_EXIT_CORRUPT;
    }
    if (consume->failed != 0) {
        return consume->failed;
    }
    if (consume->is_timed_out && has_aim) {
        fq_cli_warn("no record for %" PRId64 " ms; %" PRIu64 " were read", sub->max_wait_ms,
                    consume->records);
        return FQ_EXIT_TIMED_OUT;
    }
    return fq_interrupted() && has_aim ? FQ_EXIT_FAILED : FQ_EXIT_OK;
}

static int consume_all(struct sub *sub, struct fq_lanes *lanes)
{
    struct fq_consume consume = {.cli = sub->cli,
                                 .lanes = lanes->lanes,
                                 .lanes_count = lanes->count,
                                 .has_headers = fq_printer_has_headers(&sub->printer),
                                 .max_records = sub->count,
                                 .max_wait_ms = sub->max_wait_ms,
                                 .visit = visit,
                                 .idle = idle,
                                 .context = &sub->printer};
    int code = fq_consume_run(&consume);
    (void)fq_out_flush(&sub->cli->out);
    return code == 0 ? judge(sub, &consume) : code;
}

static int run_prepared(struct sub *sub)
{
    struct fq_lanes lanes = {0};
    if (sub->topics_count == 0) {
        return fq_cli_usage(sub->cli, "which topic?");
    }
    if (sub->printer.format && (sub->printer.is_meta_only || sub->cli->output != FQ_OUTPUT_TABLE)) {
        return fq_cli_usage(sub->cli, "-f and -O json exclude each other");
    }
    int code = sub->is_push ? fq_cli_set(sub->cli, "fetch.mode", "push") : 0;
    code = code == 0 ? fq_cli_connect(sub->cli) : code;
    for (size_t i = 0; i < sub->topics_count && code == 0; i++) {
        code = fq_lanes_add(sub->cli, &lanes, sub->topics[i], sub->partitions,
                            sub->partitions_count, &sub->range, sub->is_to_end);
    }
    if (code == 0) {
        code = consume_all(sub, &lanes);
        code = code == 0 ? lanes.failed : code;
    }
    fq_lanes_fini(&lanes);
    return code;
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    struct sub sub = {
        .cli = cli, .count = INT64_MAX, .max_wait_ms = -1, .printer = {.cli = cli}};
    fq_buf_add_text(&sub.printer.delimiter, "\n");
    int code = fq_cli_parse(cli, parser, take, &sub);
    if (code < 0) {
        code = run_prepared(&sub);
    }
    free(sub.topics);
    free(sub.partitions);
    fq_format_free(sub.printer.format);
    fq_buf_fini(&sub.printer.delimiter);
    return code;
}

const struct fq_command fq_cmd_sub = {
    .name = "sub",
    .alias = "consume",
    .arguments = "TOPIC...",
    .summary = "print the records of topics",
    .notes = "Prints each value and a newline; -f or -O jsonl print more. Ends of ranges are not "
             "included. A\nnumber as OFFSET with several partitions needs -p. Damaged records are told "
             "on standard error, the\nothers printed, and the exit code is 7.\n",
    .options = options,
    .run = run,
};
