/* SPDX-License-Identifier: Apache-2.0 */
/* flashq cluster info|health|brokers|leaders, flashq partition describe. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

enum { CLUSTER_WAIT = 1, CLUSTER_TOPIC };

struct cluster {
    struct fq_cli *cli;
    int64_t wait_ms; /* -1: do not */
    const char *words[2];
    size_t words_count;
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct cluster *cluster = args;
    if (id == CLUSTER_WAIT) {
        return fq_parse_duration_ms(value, &cluster->wait_ms, fault);
    }
    if (cluster->words_count == 2) {
        return fq_fault_set(fault, "unexpected \"%.64s\"", value);
    }
    cluster->words[cluster->words_count++] = value;
    return 0;
}

/* Parses, connects and works; for commands with `words` arguments. */
static int run_cluster(struct fq_cli *cli, struct fq_opt_parser *parser, size_t words,
                       int (*work)(struct cluster *cluster))
{
    struct cluster cluster = {.cli = cli, .wait_ms = -1};
    int code = fq_cli_parse(cli, parser, take, &cluster);
    if (code >= 0) {
        return code;
    }
    if (cluster.words_count != words) {
        return cluster.words_count < words
                   ? fq_cli_usage(cli, "something is missing: %s", cli->command->arguments)
                   : fq_cli_usage(cli, "unexpected \"%.64s\"", cluster.words[words]);
    }
    code = fq_cli_connect(cli);
    cli->errtext[0] = '\0';
    return code == 0 ? work(&cluster) : code;
}

/* ---- info, brokers ------------------------------------------------------------------------- */

static json_t *brokers_json(const flashq_broker_info *brokers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_pack("{s:i, s:s, s:i, s:i}", "id",
                                                    (int)brokers[i].id, "host", brokers[i].host,
                                                    "port", (int)brokers[i].port, "shards",
                                                    (int)brokers[i].shards));
    }
    return list;
}

static void brokers_table(struct fq_cli *cli, const flashq_broker_info *brokers, size_t count)
{
    static const char *const headings[] = {"BROKER", "HOST", "PORT", "SHARDS", NULL};
    struct fq_table table;
    fq_table_init(&table, headings);
    for (size_t i = 0; i < count; i++) {
        fq_table_add(&table, "%" PRId32, brokers[i].id);
        fq_table_add(&table, "%s", brokers[i].host[0] ? brokers[i].host : "-");
        fq_table_add(&table, "%" PRId32, brokers[i].port);
        fq_table_add(&table, "%" PRId32, brokers[i].shards);
    }
    fq_table_finish(&table, &cli->out);
}

static int work_brokers(struct cluster *cluster)
{
    struct fq_cli *cli = cluster->cli;
    flashq_broker_info *brokers = NULL;
    size_t count = 0;
    int result = flashq_cluster_brokers(cli->client, cli->timeout_ms, &brokers, &count,
                                        cli->errtext, sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "cannot list the brokers");
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        brokers_table(cli, brokers, count);
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:o}", "schema", "flashq.cluster.brokers/1",
                                         "brokers", brokers_json(brokers, count)));
    }
    flashq_free(brokers);
    return FQ_EXIT_OK;
}

static void info_print(struct fq_cli *cli, const flashq_broker_info *brokers, size_t brokers_count,
                       const flashq_counter *counters, size_t counters_count)
{
    static const char *const headings[] = {"COUNTER", "VALUE", NULL};
    if (cli->output == FQ_OUTPUT_TABLE) {
        struct fq_table table;
        brokers_table(cli, brokers, brokers_count);
        fq_buf_add_text(&cli->out.buf, "\n");
        fq_table_init(&table, headings);
        for (size_t i = 0; i < counters_count; i++) {
            fq_table_add(&table, "%s", counters[i].name);
            fq_table_add(&table, "%" PRId64, counters[i].value);
        }
        fq_table_finish(&table, &cli->out);
        return;
    }
    json_t *object = json_object();
    for (size_t i = 0; i < counters_count; i++) {
        (void)json_object_set_new(object, counters[i].name,
                                  json_integer((json_int_t)counters[i].value));
    }
    fq_cli_print_json(cli, json_pack("{s:s, s:o, s:o}", "schema", "flashq.cluster.info/1",
                                     "brokers", brokers_json(brokers, brokers_count), "counters",
                                     object));
}

static int work_info(struct cluster *cluster)
{
    struct fq_cli *cli = cluster->cli;
    flashq_broker_info *brokers = NULL;
    flashq_counter *counters = NULL;
    size_t brokers_count = 0, counters_count = 0;
    int result = flashq_cluster_brokers(cli->client, cli->timeout_ms, &brokers, &brokers_count,
                                        cli->errtext, sizeof cli->errtext);
    if (result == 0) {
        result = flashq_cluster_counters(cli->client, cli->timeout_ms, &counters, &counters_count,
                                         cli->errtext, sizeof cli->errtext);
    }
    if (result == 0) {
        info_print(cli, brokers, brokers_count, counters, counters_count);
    }
    flashq_free(brokers);
    flashq_free(counters);
    return result == 0 ? FQ_EXIT_OK
                       : fq_cli_fail(cli, result, cli->errtext, "cannot ask the broker");
}

/* ---- every partition: leaders, health ------------------------------------------------------ */

typedef void (*partition_visitor)(void *context, const char *topic,
                                  const flashq_partition_info *info);

/* 0 or a code of the library. */
static int visit_partitions(struct fq_cli *cli, int timeout_ms, partition_visitor visit,
                            void *context)
{
    flashq_topic_info *topics = NULL;
    size_t topics_count = 0;
    int result = flashq_topic_list(cli->client, timeout_ms, &topics, &topics_count, cli->errtext,
                                   sizeof cli->errtext);
    for (size_t i = 0; i < topics_count && result == 0; i++) {
        flashq_topic_info info = {.struct_bytes = sizeof info};
        flashq_partition_info *partitions = NULL;
        size_t count = 0;
        result = flashq_topic_describe(cli->client, topics[i].name, timeout_ms, &info, &partitions,
                                       &count, cli->errtext, sizeof cli->errtext);
        if (result == FLASHQ_ERR_NOT_FOUND) {
            result = 0; /* deleted in between */
        }
        for (size_t p = 0; p < count; p++) {
            visit(context, topics[i].name, &partitions[p]);
        }
        flashq_free(partitions);
    }
    flashq_free(topics);
    return result;
}

struct leaders {
    struct fq_cli *cli;
    struct fq_table table;
    json_t *list;
};

static void add_leader(void *context, const char *topic, const flashq_partition_info *info)
{
    struct leaders *leaders = context;
    if (leaders->list) {
        json_t *entry = fq_partition_json(info);
        (void)json_object_set_new(entry, "topic", json_string(topic));
        (void)json_array_append_new(leaders->list, entry);
        return;
    }
    fq_table_add(&leaders->table, "%s", topic);
    fq_table_add(&leaders->table, "%" PRId32, info->partition);
    fq_table_add(&leaders->table, "%" PRId32, info->leader);
    fq_table_add(&leaders->table, "%" PRId32, info->shard);
    fq_table_add(&leaders->table, "%s", info->status == 0 ? "ok" : flashq_strerror(info->status));
}

static int work_leaders(struct cluster *cluster)
{
    static const char *const headings[] = {"TOPIC", "PARTITION", "LEADER", "SHARD", "STATUS", NULL};
    struct fq_cli *cli = cluster->cli;
    bool is_table = cli->output == FQ_OUTPUT_TABLE;
    struct leaders leaders = {.cli = cli, .list = is_table ? NULL : json_array()};
    if (is_table) {
        fq_table_init(&leaders.table, headings);
    }
    int result = visit_partitions(cli, cli->timeout_ms, add_leader, &leaders);
    if (result != 0) {
        json_decref(leaders.list);
        fq_table_fini(&leaders.table);
        return fq_cli_fail(cli, result, cli->errtext, "cannot list the partitions");
    }
    if (is_table) {
        fq_table_finish(&leaders.table, &cli->out);
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:o}", "schema", "flashq.cluster.leaders/1",
                                         "partitions", leaders.list));
    }
    return FQ_EXIT_OK;
}

struct health {
    uint64_t partitions, offline;
};

static void count_partition(void *context, const char *topic, const flashq_partition_info *info)
{
    struct health *health = context;
    (void)topic;
    health->partitions++;
    health->offline += info->status != 0;
}

/* Asks once, waiting at most timeout_ms for each answer. */
static int ask_health(struct fq_cli *cli, int timeout_ms, struct health *health)
{
    int result = 0;
    *health = (struct health){0};
    cli->errtext[0] = '\0';
    if (!cli->client) {
        result =
            flashq_client_open(cli->config, &cli->client, cli->errtext, sizeof cli->errtext);
    }
    if (result == 0) {
        result = flashq_client_wait(cli->client, timeout_ms, cli->errtext, sizeof cli->errtext);
        result = result == FLASHQ_ERR_TIMED_OUT ? FLASHQ_ERR_UNREACHABLE : result;
    }
    return result == 0 ? visit_partitions(cli, timeout_ms, count_partition, health) : result;
}

static int tell_health(struct fq_cli *cli, int result, const struct health *health, bool did_wait)
{
    bool is_healthy = result == 0 && health->offline == 0;
    if (cli->output != FQ_OUTPUT_TABLE) {
        fq_cli_print_json(
            cli, json_pack("{s:s, s:b, s:b, s:I, s:I, s:s?}", "schema", "flashq.cluster.health/1",
                           "healthy", is_healthy, "reachable", result == 0, "partitions",
                           (json_int_t)health->partitions, "offline_partitions",
                           (json_int_t)health->offline, "error",
                           result == 0 ? NULL : flashq_error_name(result)));
    } else if (result == 0) {
        fq_buf_printf(&cli->out.buf, "%s: %" PRIu64 " partition%s, %" PRIu64 " offline\n",
                      is_healthy ? "healthy" : "unhealthy", health->partitions,
                      health->partitions == 1 ? "" : "s", health->offline);
    }
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "cannot ask for the health");
    }
    return is_healthy ? FQ_EXIT_OK : did_wait ? FQ_EXIT_TIMED_OUT : FQ_EXIT_FAILED;
}

static int run_health(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    struct cluster cluster = {.cli = cli, .wait_ms = -1};
    struct health health;
    int code = fq_cli_parse(cli, parser, take, &cluster);
    if (code >= 0) {
        return code;
    }
    if (cluster.words_count > 0) {
        return fq_cli_usage(cli, "unexpected \"%.64s\"", cluster.words[0]);
    }
    bool did_wait = cluster.wait_ms >= 0;
    int64_t deadline_ns = fq_now_ns() + (did_wait ? cluster.wait_ms * 1000000 : 0);
    for (;;) {
        int64_t left_ms = (deadline_ns - fq_now_ns()) / 1000000;
        int timeout_ms = cli->timeout_ms;
        if (did_wait && (timeout_ms < 0 || left_ms < timeout_ms)) {
            timeout_ms = left_ms > INT32_MAX ? INT32_MAX : left_ms < 1 ? 1 : (int)left_ms;
        }
        int result = ask_health(cli, timeout_ms, &health);
        bool is_healthy = result == 0 && health.offline == 0;
        bool is_final = result == FLASHQ_ERR_INVALID || result == FLASHQ_ERR_CONFIG;
        if (is_healthy || is_final || !did_wait || fq_now_ns() >= deadline_ns ||
            !fq_sleep_until_ns(fq_now_ns() + 50000000)) {
            return tell_health(cli, result, &health, did_wait);
        }
    }
}

/* ---- partition describe -------------------------------------------------------------------- */

static int print_partition(struct fq_cli *cli, const char *topic, const flashq_partition_info *p)
{
    if (cli->output != FQ_OUTPUT_TABLE) {
        json_t *document = json_pack("{s:s, s:s}", "schema", "flashq.partition.describe/1",
                                     "topic", topic);
        (void)json_object_update_missing_new(document, fq_partition_json(p));
        fq_cli_print_json(cli, document);
        return FQ_EXIT_OK;
    }
    static const char *const headings[] = {"FIELD", "VALUE", NULL};
    struct fq_table table;
    fq_table_init(&table, headings);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"partition", p->partition},       {"leader", p->leader},
                   {"shard", p->shard},               {"leader epoch", p->leader_epoch},
                   {"start offset", p->start_offset}, {"end offset", p->end_offset},
                   {"bytes", (int64_t)p->bytes}};
    fq_table_add(&table, "status");
    fq_table_add(&table, "%s", p->status == 0 ? "ok" : flashq_strerror(p->status));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fq_table_add(&table, "%s", numbers[i].name);
        fq_table_add(&table, "%" PRId64, numbers[i].value);
    }
    fq_table_add(&table, "medium");
    fq_table_add(&table, "%s", p->medium);
    fq_table_finish(&table, &cli->out);
    return FQ_EXIT_OK;
}

static int work_partition(struct cluster *cluster)
{
    struct fq_cli *cli = cluster->cli;
    flashq_topic_info info = {.struct_bytes = sizeof info};
    flashq_partition_info *partitions = NULL;
    size_t count = 0, i = 0;
    int64_t wanted;
    struct fq_fault fault;
    const char *topic = cluster->words[0];
    if (fq_parse_whole(cluster->words[1], "partition", 0, INT32_MAX, &wanted, &fault) != 0) {
        return fq_cli_usage(cli, "%s", fault.text);
    }
    int result = flashq_topic_describe(cli->client, topic, cli->timeout_ms, &info, &partitions,
                                       &count, cli->errtext, sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "%s", topic);
    }
    while (i < count && partitions[i].partition != wanted) {
        i++;
    }
    int code = i < count ? print_partition(cli, topic, &partitions[i])
                         : fq_cli_fail(cli, FLASHQ_ERR_NOT_FOUND, NULL,
                                       "%s[%" PRId64 "]: the topic has %zu partitions", topic,
                                       wanted, count);
    flashq_free(partitions);
    return code;
}

/* ---- the table ----------------------------------------------------------------------------- */

static int run_info(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_cluster(cli, parser, 0, work_info);
}

static int run_brokers(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_cluster(cli, parser, 0, work_brokers);
}

static int run_leaders(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_cluster(cli, parser, 0, work_leaders);
}

static int run_partition(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_cluster(cli, parser, 2, work_partition);
}

static const struct fq_opt no_options[] = {{0, 0, NULL, NULL, NULL}};

static const struct fq_opt health_options[] = {
    {CLUSTER_WAIT, 0, "wait", "T", "wait so long for it to be healthy, such as 10s"},
    {0, 0, NULL, NULL, NULL},
};

const struct fq_command fq_cmd_cluster_info = {
    .name = "cluster info", .arguments = "", .summary = "the brokers and every counter",
    .options = no_options, .run = run_info};
const struct fq_command fq_cmd_cluster_health = {
    .name = "cluster health", .arguments = "[--wait T]",
    .summary = "whether the broker answers and every partition is served",
    .options = health_options, .run = run_health,
    .notes = "Exit code 0: healthy; 1: not; 3: no broker reached; 8: not healthy within --wait.\n"};
const struct fq_command fq_cmd_cluster_brokers = {
    .name = "cluster brokers", .arguments = "", .summary = "the brokers and their addresses",
    .options = no_options, .run = run_brokers};
const struct fq_command fq_cmd_cluster_leaders = {
    .name = "cluster leaders", .arguments = "", .summary = "who leads each partition",
    .options = no_options, .run = run_leaders};
const struct fq_command fq_cmd_partition_describe = {
    .name = "partition describe", .arguments = "TOPIC P", .summary = "one partition",
    .options = no_options, .run = run_partition};
