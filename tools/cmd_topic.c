/* SPDX-License-Identifier: Apache-2.0 */
/* flashq topic ...: create, list, describe, delete, alter, add-partitions, trim. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

enum {
    TOPIC_PARTITIONS = 1,
    TOPIC_REPLICAS,
    TOPIC_CONFIG,
    TOPIC_IF_NOT_EXISTS,
    TOPIC_IF_EXISTS,
    TOPIC_TOTAL,
    TOPIC_PARTITION,
    TOPIC_BEFORE,
    TOPIC_NAME
};

struct topic {
    struct fq_cli *cli;
    const char **names;
    size_t names_count;
    flashq_pair *configs;
    size_t configs_count;
    int64_t partitions, replicas, total, partition;
    bool is_if_not_exists, is_if_exists, has_before;
    struct fq_offset_bound before;
};

static int take_config(struct topic *topic, const char *value, struct fq_fault *fault)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value) {
        return fq_fault_set(fault, "-c %.64s: expected KEY=VALUE", value);
    }
    char *key = fq_strdup(value);
    key[equals - value] = '\0';
    topic->configs =
        fq_realloc_array(topic->configs, topic->configs_count + 1, sizeof *topic->configs);
    topic->configs[topic->configs_count++] = (flashq_pair){key, equals + 1};
    return 0;
}

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct topic *topic = args;
    switch (id) {
    case FQ_OPT_ARGUMENT:
    case TOPIC_NAME:
        topic->names = fq_realloc_array(topic->names, topic->names_count + 1, sizeof *topic->names);
        topic->names[topic->names_count++] = value;
        return 0;
    case TOPIC_CONFIG: return take_config(topic, value, fault);
    case TOPIC_PARTITIONS:
        return fq_parse_whole(value, "partitions", 1, INT32_MAX, &topic->partitions, fault);
    case TOPIC_REPLICAS:
        return fq_parse_whole(value, "replicas", 1, INT32_MAX, &topic->replicas, fault);
    case TOPIC_TOTAL: return fq_parse_whole(value, "total", 1, INT32_MAX, &topic->total, fault);
    case TOPIC_PARTITION:
        return fq_parse_whole(value, "partition", 0, INT32_MAX, &topic->partition, fault);
    case TOPIC_BEFORE:
        topic->has_before = true;
        return fq_parse_bound(value, topic->cli->now_ms, &topic->before, fault);
    case TOPIC_IF_NOT_EXISTS: topic->is_if_not_exists = true; return 0;
    case TOPIC_IF_EXISTS: topic->is_if_exists = true; return 0;
    default: return FLASHQ_ERR_INVALID;
    }
}

/* Parses, checks the number of names, connects, works. */
static int run_topic(struct fq_cli *cli, struct fq_opt_parser *parser, size_t names_min,
                     size_t names_max, int (*work)(struct topic *topic))
{
    struct topic topic = {.cli = cli, .partition = -1};
    int code = fq_cli_parse(cli, parser, take, &topic);
    if (code < 0 && topic.names_count < names_min) {
        code = fq_cli_usage(cli, "which topic?");
    } else if (code < 0 && topic.names_count > names_max) {
        code = fq_cli_usage(cli, "unexpected \"%.64s\"", topic.names[names_max]);
    }
    if (code < 0) {
        code = fq_cli_connect(cli);
        cli->errtext[0] = '\0';
        code = code == 0 ? work(&topic) : code;
    }
    for (size_t i = 0; i < topic.configs_count; i++) {
        free((void *)(uintptr_t)topic.configs[i].key);
    }
    free(topic.configs);
    free(topic.names);
    return code;
}

/* ---- create, delete: several names, each on its own ---------------------------------------- */

static int change_each(struct topic *topic, const char *verb, const char *done,
                       int (*change)(const struct topic *topic, const char *name), int tolerated)
{
    struct fq_cli *cli = topic->cli;
    json_t *results = json_array();
    int code = FQ_EXIT_OK;
    for (size_t i = 0; i < topic->names_count; i++) {
        const char *name = topic->names[i];
        cli->errtext[0] = '\0';
        int result = change(topic, name);
        bool is_noop = tolerated != 0 && result == tolerated;
        if (result != 0 && !is_noop) {
            int failure = fq_cli_fail(cli, result, cli->errtext, "%s", name);
            /* several different failures are "partly failed" */
            code = code == FQ_EXIT_OK || code == failure ? failure : FQ_EXIT_FAILED;
        } else if (cli->output == FQ_OUTPUT_TABLE) {
            fq_cli_note("%s: %s", name, is_noop ? "nothing to do" : done);
        }
        (void)json_array_append_new(
            results, json_pack("{s:s, s:s, s:s?}", "name", name, "status",
                               result == 0 ? "OK" : flashq_error_name(result), "error",
                               result == 0 || is_noop ? NULL
                               : cli->errtext[0]      ? cli->errtext
                                                      : flashq_strerror(result)));
    }
    if (cli->output != FQ_OUTPUT_TABLE) {
        char schema[64];
        (void)snprintf(schema, sizeof schema, "flashq.topic.%s/1", verb);
        fq_cli_print_json(cli, json_pack("{s:s, s:o}", "schema", schema, "topics", results));
    } else {
        json_decref(results);
    }
    return code;
}

static int create_one(const struct topic *topic, const char *name)
{
    struct fq_cli *cli = topic->cli;
    return flashq_topic_create(cli->client, name, (int32_t)topic->partitions,
                               (int32_t)topic->replicas, topic->configs, topic->configs_count,
                               cli->timeout_ms, cli->errtext, sizeof cli->errtext);
}

static int work_create(struct topic *topic)
{
    return change_each(topic, "create", "created", create_one,
                       topic->is_if_not_exists ? FLASHQ_ERR_EXISTS : 0);
}

static int delete_one(const struct topic *topic, const char *name)
{
    struct fq_cli *cli = topic->cli;
    return flashq_topic_delete(cli->client, name, cli->timeout_ms, cli->errtext,
                               sizeof cli->errtext);
}

static int work_delete(struct topic *topic)
{
    return change_each(topic, "delete", "deleted", delete_one,
                       topic->is_if_exists ? FLASHQ_ERR_NOT_FOUND : 0);
}

/* ---- list ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const flashq_topic_info *)a)->name, ((const flashq_topic_info *)b)->name);
}

static json_t *topic_json(const flashq_topic_info *info)
{
    return json_pack("{s:s, s:s, s:i, s:i}", "name", info->name, "id", info->id, "partitions",
                     (int)info->partitions, "replicas", (int)info->replicas);
}

static int work_list(struct topic *topic)
{
    static const char *const headings[] = {"NAME", "PARTITIONS", "REPLICAS", "ID", NULL};
    struct fq_cli *cli = topic->cli;
    flashq_topic_info *infos = NULL;
    size_t count = 0;
    int result = flashq_topic_list(cli->client, cli->timeout_ms, &infos, &count, cli->errtext,
                                   sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "cannot list topics");
    }
    if (count > 0) {
        qsort(infos, count, sizeof *infos, by_name);
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        struct fq_table table;
        fq_table_init(&table, headings);
        for (size_t i = 0; i < count; i++) {
            fq_table_add(&table, "%s", infos[i].name);
            fq_table_add(&table, "%" PRId32, infos[i].partitions);
            fq_table_add(&table, "%" PRId32, infos[i].replicas);
            fq_table_add(&table, "%s", infos[i].id);
        }
        fq_table_finish(&table, &cli->out);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++) {
            (void)json_array_append_new(list, topic_json(&infos[i]));
        }
        fq_cli_print_json(cli,
                          json_pack("{s:s, s:o}", "schema", "flashq.topic.list/1", "topics", list));
    }
    flashq_free(infos);
    return FQ_EXIT_OK;
}

/* ---- describe ------------------------------------------------------------------------------ */

struct description {
    flashq_topic_info info;
    flashq_partition_info *partitions;
    size_t partitions_count;
    flashq_config_entry *configs;
    size_t configs_count;
};

static void describe_table(struct fq_cli *cli, const struct description *d)
{
    static const char *const partition_headings[] = {
        "PARTITION", "STATUS", "LEADER", "SHARD", "EPOCH", "START", "END", "BYTES", "MEDIUM", NULL};
    static const char *const config_headings[] = {"KEY", "VALUE", "SOURCE", NULL};
    struct fq_table table;
    fq_buf_printf(&cli->out.buf, "%s: id %s, %" PRId32 " partition%s, %" PRId32 " replica%s\n\n",
                  d->info.name, d->info.id, d->info.partitions, d->info.partitions == 1 ? "" : "s",
                  d->info.replicas, d->info.replicas == 1 ? "" : "s");
    fq_table_init(&table, partition_headings);
    for (size_t i = 0; i < d->partitions_count; i++) {
        const flashq_partition_info *p = &d->partitions[i];
        fq_table_add(&table, "%" PRId32, p->partition);
        fq_table_add(&table, "%s", p->status == 0 ? "ok" : flashq_strerror(p->status));
        fq_table_add(&table, "%" PRId32, p->leader);
        fq_table_add(&table, "%" PRId32, p->shard);
        fq_table_add(&table, "%" PRId32, p->leader_epoch);
        fq_table_add(&table, "%" PRId64, p->start_offset);
        fq_table_add(&table, "%" PRId64, p->end_offset);
        fq_table_add(&table, "%" PRIu64, p->bytes);
        fq_table_add(&table, "%s", p->medium);
    }
    fq_table_finish(&table, &cli->out);
    fq_buf_add_text(&cli->out.buf, "\n");
    fq_table_init(&table, config_headings);
    for (size_t i = 0; i < d->configs_count; i++) {
        fq_table_add(&table, "%s", d->configs[i].key);
        fq_table_add(&table, "%s", d->configs[i].value);
        fq_table_add(&table, "%s", d->configs[i].source);
    }
    fq_table_finish(&table, &cli->out);
}

json_t *fq_partition_json(const flashq_partition_info *p)
{
    return json_pack("{s:i, s:s, s:i, s:[i], s:[i], s:i, s:i, s:I, s:I, s:I, s:s}", "partition",
                     (int)p->partition, "status",
                     p->status == 0 ? "OK" : flashq_error_name(p->status), "leader",
                     (int)p->leader, "replicas", (int)p->leader, "isr", (int)p->leader, "shard",
                     (int)p->shard, "leader_epoch", (int)p->leader_epoch, "start",
                     (json_int_t)p->start_offset, "end", (json_int_t)p->end_offset, "bytes",
                     (json_int_t)p->bytes, "medium", p->medium);
}

static void describe_json(struct fq_cli *cli, const struct description *d)
{
    json_t *partitions = json_array(), *configs = json_array();
    for (size_t i = 0; i < d->partitions_count; i++) {
        (void)json_array_append_new(partitions, fq_partition_json(&d->partitions[i]));
    }
    for (size_t i = 0; i < d->configs_count; i++) {
        const flashq_config_entry *entry = &d->configs[i];
        (void)json_array_append_new(configs, json_pack("{s:s, s:s, s:s}", "key", entry->key,
                                                       "value", entry->value, "source",
                                                       entry->source));
    }
    fq_cli_print_json(cli, json_pack("{s:s, s:s, s:s, s:i, s:o, s:o}", "schema",
                                     "flashq.topic.describe/1", "name", d->info.name, "id",
                                     d->info.id, "replicas", (int)d->info.replicas, "partitions",
                                     partitions, "configs", configs));
}

static int describe_one(struct fq_cli *cli, const char *name)
{
    struct description d = {.info.struct_bytes = sizeof d.info};
    int result = flashq_topic_describe(cli->client, name, cli->timeout_ms, &d.info, &d.partitions,
                                       &d.partitions_count, cli->errtext, sizeof cli->errtext);
    if (result == 0) {
        result = flashq_topic_config(cli->client, name, cli->timeout_ms, &d.configs,
                                     &d.configs_count, cli->errtext, sizeof cli->errtext);
    }
    if (result == 0 && cli->output == FQ_OUTPUT_TABLE) {
        describe_table(cli, &d);
    } else if (result == 0) {
        describe_json(cli, &d);
    }
    flashq_free(d.partitions);
    flashq_free(d.configs);
    return result == 0 ? 0 : fq_cli_fail(cli, result, cli->errtext, "%s", name);
}

static int work_describe(struct topic *topic)
{
    int code = FQ_EXIT_OK;
    for (size_t i = 0; i < topic->names_count; i++) {
        topic->cli->errtext[0] = '\0';
        int one = describe_one(topic->cli, topic->names[i]);
        code = code == FQ_EXIT_OK ? one : code;
    }
    return code;
}

/* ---- alter, add-partitions, trim ----------------------------------------------------------- */

static int changed(struct topic *topic, const char *verb, int result, json_t *document)
{
    struct fq_cli *cli = topic->cli;
    if (result != 0) {
        json_decref(document);
        return fq_cli_fail(cli, result, cli->errtext, "%s", topic->names[0]);
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        json_decref(document);
        fq_cli_note("%s: done", topic->names[0]);
        return FQ_EXIT_OK;
    }
    char schema[64];
    (void)snprintf(schema, sizeof schema, "flashq.topic.%s/1", verb);
    json_t *whole = json_pack("{s:s, s:s}", "schema", schema, "name", topic->names[0]);
    (void)json_object_update_missing_new(whole, document);
    fq_cli_print_json(cli, whole);
    return FQ_EXIT_OK;
}

static int work_alter(struct topic *topic)
{
    struct fq_cli *cli = topic->cli;
    if (topic->configs_count == 0) {
        return fq_cli_usage(cli, "what shall change? -c KEY=VALUE is needed");
    }
    int result =
        flashq_topic_alter(cli->client, topic->names[0], topic->configs, topic->configs_count,
                           cli->timeout_ms, cli->errtext, sizeof cli->errtext);
    return changed(topic, "alter", result, json_object());
}

static int work_add_partitions(struct topic *topic)
{
    struct fq_cli *cli = topic->cli;
    if (topic->total == 0) {
        return fq_cli_usage(cli, "how many in all? -n N is needed");
    }
    int result =
        flashq_topic_add_partitions(cli->client, topic->names[0], (int32_t)topic->total,
                                    cli->timeout_ms, cli->errtext, sizeof cli->errtext);
    return changed(topic, "add-partitions", result,
                   json_pack("{s:i}", "partitions", (int)topic->total));
}

/* The offset that --before means; 0 or a code of the library. */
static int resolve_before(struct topic *topic, int64_t *ret)
{
    struct fq_cli *cli = topic->cli;
    const struct fq_offset_bound *before = &topic->before;
    flashq_time_answer answer = {.struct_bytes = sizeof answer};
    int result = 0;
    if (before->kind == FQ_OFFSET_TIME) {
        result = flashq_offset_for_time(cli->client, topic->names[0], (int32_t)topic->partition,
                                        before->value, cli->timeout_ms, &answer, cli->errtext,
                                        sizeof cli->errtext);
        *ret = answer.end ? FLASHQ_OFFSET_END : answer.offset;
    } else {
        *ret = before->kind == FQ_OFFSET_NUMBER ? before->value : FLASHQ_OFFSET_END;
    }
    return result;
}

static int work_trim(struct topic *topic)
{
    struct fq_cli *cli = topic->cli;
    int64_t before = 0, start = 0;
    bool is_plain_end = topic->before.kind == FQ_OFFSET_LAST && topic->before.value == 0;
    if (topic->partition < 0 || !topic->has_before) {
        return fq_cli_usage(cli, "-p P and --before BOUND are needed");
    }
    if (topic->before.kind == FQ_OFFSET_FIRST ||
        (topic->before.kind == FQ_OFFSET_LAST && !is_plain_end)) {
        return fq_cli_usage(cli, "--before takes an offset, end, or a time");
    }
    int result = resolve_before(topic, &before);
    if (result == 0) {
        result = flashq_topic_trim(cli->client, topic->names[0], (int32_t)topic->partition, before,
                                   cli->timeout_ms, &start, cli->errtext, sizeof cli->errtext);
    }
    return changed(topic, "trim", result,
                   json_pack("{s:i, s:I}", "partition", (int)topic->partition, "start",
                             (json_int_t)start));
}

/* ---- the table ----------------------------------------------------------------------------- */

static int run_create(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, SIZE_MAX, work_create);
}

static int run_list(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 0, 0, work_list);
}

static int run_describe(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, SIZE_MAX, work_describe);
}

static int run_delete(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, SIZE_MAX, work_delete);
}

static int run_alter(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, 1, work_alter);
}

static int run_add_partitions(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, 1, work_add_partitions);
}

static int run_trim(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_topic(cli, parser, 1, 1, work_trim);
}

static const struct fq_opt no_options[] = {
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

static const struct fq_opt create_options[] = {
    {TOPIC_PARTITIONS, 'p', "partitions", "N", "how many partitions [the broker's default]"},
    {TOPIC_REPLICAS, 'r', "replicas", "N", "how many replicas (1 in this release)"},
    {TOPIC_REPLICAS, 0, "replication-factor", "N", NULL},
    {TOPIC_CONFIG, 'c', "config", "KEY=VALUE", "a setting of the topic (repeat)"},
    {TOPIC_IF_NOT_EXISTS, 0, "if-not-exists", NULL, "a topic that is there is no failure"},
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

static const struct fq_opt delete_options[] = {
    {TOPIC_IF_EXISTS, 0, "if-exists", NULL, "a topic that is not there is no failure"},
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

static const struct fq_opt alter_options[] = {
    {TOPIC_CONFIG, 'c', "config", "KEY=VALUE", "a setting (repeat); KEY= is the default again"},
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

static const struct fq_opt add_options[] = {
    {TOPIC_TOTAL, 'n', "total", "N", "how many there will be in all (needed)"},
    {TOPIC_TOTAL, 0, "partitions", "N", NULL},
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

static const struct fq_opt trim_options[] = {
    {TOPIC_PARTITION, 'p', "partition", "P", "the partition (needed)"},
    {TOPIC_BEFORE, 0, "before", "BOUND", "the first record to keep: OFFSET, end, @TIME (needed)"},
    {TOPIC_NAME, 0, "topic", "TOPIC", NULL},
    {0, 0, NULL, NULL, NULL},
};

const struct fq_command fq_cmd_topic_create = {
    .name = "topic create", .arguments = "TOPIC... [-p N] [-c KEY=VALUE]...",
    .summary = "create topics", .options = create_options, .run = run_create,
    .notes = "Settings: timestamp.max.ahead, segment.bytes, retention.bytes, durability, "
             "message.max.bytes.\n"};
const struct fq_command fq_cmd_topic_list = {
    .name = "topic list", .alias = "topic ls", .arguments = "", .summary = "list the topics",
    .options = no_options, .run = run_list};
const struct fq_command fq_cmd_topic_describe = {
    .name = "topic describe", .arguments = "TOPIC...",
    .summary = "a topic's partitions, offsets and settings", .options = no_options,
    .run = run_describe};
const struct fq_command fq_cmd_topic_delete = {
    .name = "topic delete", .arguments = "TOPIC...", .summary = "delete topics and their records",
    .options = delete_options, .run = run_delete};
const struct fq_command fq_cmd_topic_alter = {
    .name = "topic alter", .arguments = "TOPIC -c KEY=VALUE...",
    .summary = "change a topic's settings", .options = alter_options, .run = run_alter};
const struct fq_command fq_cmd_topic_add_partitions = {
    .name = "topic add-partitions", .arguments = "TOPIC -n N",
    .summary = "raise the number of partitions", .options = add_options,
    .run = run_add_partitions,
    .notes = "Records with keys go to other partitions than before afterwards.\n"};
const struct fq_command fq_cmd_topic_trim = {
    .name = "topic trim", .arguments = "TOPIC -p P --before BOUND",
    .summary = "remove the oldest records of a partition", .options = trim_options,
    .run = run_trim,
    .notes = "A time stands for the first record at or after it; what is before that record goes.\n"};
