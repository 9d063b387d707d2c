/* SPDX-License-Identifier: Apache-2.0 */
/* flashq query: where a moment is. One line (or JSON object) a partition. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/consume.h"

enum { QUERY_AT = 1, QUERY_PARTITIONS, QUERY_TOPIC };

static const struct fq_opt options[] = {
    {QUERY_AT, 0, "at", "TIME", "the moment (needed)"},
    {QUERY_PARTITIONS, 'p', "partitions", "P,P", "only these partitions"},
    {QUERY_PARTITIONS, 0, "partition", "P", NULL},
    {QUERY_TOPIC, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

struct query {
    struct fq_cli *cli;
    const char *topic;
    bool has_at;
    int64_t at_ms;
    int32_t *partitions;
    size_t partitions_count;
    struct fq_table table;
    json_t *list; /* -O json */
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct query *query = args;
    switch (id) {
    case FQ_OPT_ARGUMENT:
        if (query->topic) {
            return fq_fault_set(fault, "one topic at a time: \"%.64s\"", value);
        }
        query->topic = value;
        return 0;
    case QUERY_TOPIC: query->topic = value; return 0;
    case QUERY_AT:
        query->has_at = true;
        value += value[0] == '@';
        return fq_parse_time(value, query->cli->now_ms, &query->at_ms, fault);
    case QUERY_PARTITIONS:
        free(query->partitions);
        query->partitions = NULL;
        return fq_parse_partitions(value, &query->partitions, &query->partitions_count, fault);
    default: return FLASHQ_ERR_INVALID;
    }
}

static json_t *answer_json(int32_t partition, const flashq_time_answer *answer)
{
    json_t *object = json_pack("{s:i, s:b}", "partition", (int)partition, "end", answer->end != 0);
    (void)json_object_set_new(object, "offset",
                              answer->end ? json_null() : json_integer((json_int_t)answer->offset));
    (void)json_object_set_new(object, "timestamp_ms",
                              answer->end ? json_null()
                                          : json_integer((json_int_t)answer->timestamp_ms));
    (void)json_object_set_new(object, "cost",
                              json_pack("{s:I, s:I}", "nodes", (json_int_t)answer->cost_nodes,
                                        "bytes", (json_int_t)answer->cost_bytes));
    return object;
}

/* jsonl: a line a partition; json: gathered in one document. */
static void print_json(struct query *query, int32_t partition, const flashq_time_answer *answer)
{
    json_t *object = answer_json(partition, answer);
    if (query->list) {
        (void)json_array_append_new(query->list, object);
        return;
    }
    (void)json_object_set_new(object, "topic", json_string(query->topic));
    fq_cli_print_json(query->cli, object);
}

static void add_row(struct query *query, int32_t partition, const flashq_time_answer *answer)
{
    char text[FQ_TIME_TEXT_BYTES];
    fq_table_add(&query->table, "%" PRId32, partition);
    if (answer->end) {
        fq_table_add(&query->table, "end");
        fq_table_add(&query->table, "-");
        fq_table_add(&query->table, "-");
    } else {
        fq_table_add(&query->table, "%" PRId64, answer->offset);
        fq_table_add(&query->table, "%" PRId64, answer->timestamp_ms);
        fq_table_add(&query->table, "%s", fq_time_text(answer->timestamp_ms, text));
    }
}

static int ask(struct query *query, int32_t partition)
{
    struct fq_cli *cli = query->cli;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    cli->errtext[0] = '\0';
    int result = flashq_offset_for_time(cli->client, query->topic, partition, query->at_ms,
                                        cli->timeout_ms, &answer, cli->errtext,
                                        sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "%s[%" PRId32 "]", query->topic, partition);
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        add_row(query, partition, &answer);
    } else {
        print_json(query, partition, &answer);
    }
    return 0;
}

static int ask_all(struct query *query)
{
    static const char *const headings[] = {"PARTITION", "OFFSET", "TIMESTAMP_MS", "TIMESTAMP",
                                           NULL};
    const struct fq_offset_range whole = {{FQ_OFFSET_FIRST, 0}, {FQ_OFFSET_NONE, 0}};
    struct fq_lanes lanes = {0};
    int code = fq_lanes_add(query->cli, &lanes, query->topic, query->partitions,
                            query->partitions_count, &whole, false);
    bool is_table = query->cli->output == FQ_OUTPUT_TABLE;
    if (is_table) {
        fq_table_init(&query->table, headings);
    } else if (query->cli->output == FQ_OUTPUT_JSON) {
        query->list = json_array();
    }
    for (size_t i = 0; i < lanes.count && code == 0; i++) {
        code = ask(query, lanes.lanes[i].partition);
    }
    if (is_table) {
        fq_table_finish(&query->table, &query->cli->out); /* also what was found before a failure */
    }
    code = code == 0 ? lanes.failed : code;
    if (query->list) {
        fq_cli_print_json(query->cli,
                          json_pack("{s:s, s:s, s:I, s:o}", "schema", "flashq.query.at/1", "topic",
                                    query->topic, "at_ms", (json_int_t)query->at_ms, "partitions",
                                    query->list));
    }
    fq_lanes_fini(&lanes);
    return code;
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    struct query query = {.cli = cli};
    int code = fq_cli_parse(cli, parser, take, &query);
    if (code < 0 && !query.topic) {
        code = fq_cli_usage(cli, "which topic?");
    } else if (code < 0 && !query.has_at) {
        code = fq_cli_usage(cli, "when? --at TIME is needed");
    }
    if (code < 0) {
        code = fq_cli_connect(cli);
        code = code == 0 ? ask_all(&query) : code;
    }
    free(query.partitions);
    return code;
}

const struct fq_command fq_cmd_query = {
    .name = "query",
    .arguments = "TOPIC --at TIME",
    .summary = "the first record at or after a time, in each partition",
    .notes = "Past the last record the offset is \"end\" (null with \"end\": true in JSON) and the exit "
             "code 0.\nJSON adds what the answer cost the broker: index nodes visited and log bytes "
             "scanned.\n",
    .options = options,
    .run = run,
};
