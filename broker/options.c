/* SPDX-License-Identifier: Apache-2.0 */
/* The table of flashqd's keys, and the checks that concern more than one of them. No state. */
#include "options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "storage/store.h"

static const struct fq_conf_word auto_words[] = {{"auto", 0}, {NULL, 0}};
static const struct fq_conf_word unlimited_words[] = {{"unlimited", 0}, {NULL, 0}};
static const struct fq_conf_word off_words[] = {{"off", -1}, {NULL, 0}};
static const struct fq_conf_word never_words[] = {{"never", -1}, {NULL, 0}};
static const struct fq_conf_word flush_words[] = {
    {"auto", FQ_FLUSH_AUTO}, {"pmem", FQ_FLUSH_PMEM}, {"sync", FQ_FLUSH_SYNC}, {NULL, 0}};
static const struct fq_conf_word level_words[] = {{"error", FQ_LOG_ERROR},
                                                  {"warn", FQ_LOG_WARN},
                                                  {"info", FQ_LOG_INFO},
                                                  {"debug", FQ_LOG_DEBUG},
                                                  {NULL, 0}};

#define FIELD(name) .offset = offsetof(struct fq_options, name)
#define TEXT(name)  FIELD(name), .max = (int64_t)sizeof(((struct fq_options *)NULL)->name) - 1

static const struct fq_conf_key keys[] = {
    {.name = "data.dir",
     .type = FQ_CONF_STRING,
     .default_value = "/var/lib/flashq",
     TEXT(data_dir),
     .min = 1,
     .help = "directory of the logs and of meta.pool; made if its parent exists"},
    {.name = "broker.id",
     .type = FQ_CONF_INT,
     .default_value = "1",
     .min = 0,
     .max = 1000000,
     FIELD(broker_id),
     .help = "number of this broker in metadata"},
    {.name = "listen.tcp",
     .type = FQ_CONF_STRING,
     .default_value = "127.0.0.1:9640",
     TEXT(listen_tcp),
     .help = "HOST:PORT for clients over TCP; empty: off; port 0: any free one"},
    {.name = "listen.insecure",
     .type = FQ_CONF_BOOL,
     .default_value = "false",
     FIELD(listen_insecure),
     .help = "allow listen.tcp on an address that is not loopback, open to anybody who reaches it"},
    {.name = "listen.shm",
     .type = FQ_CONF_STRING,
     .default_value = "auto",
     TEXT(listen_shm),
     .help = "socket for clients on this host over shared memory; empty: off; auto: "
             "$XDG_RUNTIME_DIR/flashq.sock, else /run/flashq/flashq.sock"},
    {.name = "advertised.host",
     .type = FQ_CONF_STRING,
     .default_value = "",
     TEXT(advertised_host),
     .help = "host that metadata names; empty: the address the client used"},
    {.name = "connections.max",
     .type = FQ_CONF_INT,
     .default_value = "10000",
     .min = 1,
     .max = FQ_LIMIT_CONNECTIONS - 1,
     FIELD(connections_max),
     .help = "connections open at a time"},
    {.name = "shards",
     .type = FQ_CONF_INT,
     .default_value = "auto",
     .min = 1,
     .max = FQ_LIMIT_SHARDS,
     .words = auto_words,
     FIELD(shards),
     .help = "threads that own partitions; auto: one per core"},
    {.name = "spin.us",
     .type = FQ_CONF_DURATION_US,
     .default_value = "50",
     .min = 0,
     .max = FQ_LIMIT_SPIN_US_MAX,
     FIELD(spin_us),
     .help = "how long a shard looks for more work before it sleeps"},
    {.name = "flush",
     .type = FQ_CONF_CHOICE,
     .default_value = "auto",
     .words = flush_words,
     FIELD(flush),
     .help = "how records become durable; auto: pmem on persistent memory, sync elsewhere"},
    {.name = "log.segment.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "64MiB",
     .aliases = "log.segment.size",
     .min = FQ_LIMIT_SEGMENT_BYTES_MIN,
     .max = (int64_t)FQ_LIMIT_SEGMENT_BYTES_MAX,
     FIELD(log_segment_bytes),
     .help = "the most a segment of a log grows to"},
    {.name = "log.prepared.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "64MiB",
     .min = 0,
     .max = INT64_C(1) << 40,
     FIELD(log_prepared_bytes),
     .help = "segments kept ready ahead of appends, at least"},
    {.name = "meta.pool.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "32MiB",
     .min = FQ_LIMIT_META_POOL_BYTES_MIN,
     .max = INT64_C(1) << 36,
     FIELD(meta_pool_bytes),
     .help = "size of meta.pool when it is made; it does not grow later"},
    {.name = "retention.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "unlimited",
     .aliases = "log.retention.bytes",
     .min = 0,
     .max = INT64_MAX,
     .words = unlimited_words,
     FIELD(retention_bytes),
     .help = "size of a partition above which its oldest segments are removed"},
    {.name = "message.max.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "1MiB",
     .min = FQ_LIMIT_MESSAGE_MAX_BYTES_MIN,
     .max = FQ_LIMIT_MESSAGE_MAX_BYTES_MAX,
     FIELD(message_max_bytes),
     .help = "the largest record: key, value and headers"},
    {.name = "producer.window.bytes",
     .type = FQ_CONF_BYTES,
     .default_value = "4MiB",
     .min = FQ_LIMIT_PRODUCER_WINDOW_BYTES_MIN,
     .max = FQ_LIMIT_PRODUCER_WINDOW_BYTES_MAX,
     FIELD(producer_window_bytes),
     .help = "memory that one producing connection may fill"},
    {.name = "producer.id.expiration.ms",
     .type = FQ_CONF_DURATION_MS,
     .default_value = "1d",
     .min = 1000,
     .max = INT64_MAX / 1000,
     .words = never_words,
     FIELD(producer_expiration_ms),
     .help = "how long a producer that is gone is remembered, to recognise what it sends again"},
    {.name = "max.in.flight",
     .type = FQ_CONF_INT,
     .default_value = "32",
     .min = 1,
     .max = FQ_LIMIT_MAX_IN_FLIGHT,
     FIELD(max_in_flight),
     .help = "batches of one producer that may be unacknowledged"},
    {.name = "timestamp.max.ahead",
     .type = FQ_CONF_DURATION_MS,
     .default_value = "1h",
     .min = 0,
     .max = INT64_MAX / 1000,
     .words = off_words,
     FIELD(timestamp_max_ahead_ms),
     .help = "how far a record's timestamp may be ahead of the broker's clock"},
    {.name = "partitions.default",
     .type = FQ_CONF_INT,
     .default_value = "1",
     .aliases = "num.partitions",
     .min = 1,
     .max = FQ_LIMIT_PARTITIONS_PER_TOPIC,
     FIELD(partitions_default),
     .help = "partitions of a topic that is created without a number"},
    {.name = "topic.auto.create",
     .type = FQ_CONF_BOOL,
     .default_value = "false",
     .aliases = "auto.create.topics.enable",
     FIELD(topic_auto_create),
     .help = "create topics when they are first named; must be false in this release"},
    {.name = "log.level",
     .type = FQ_CONF_CHOICE,
     .default_value = "info",
     .words = level_words,
     FIELD(log_level),
     .help = "the most verbose messages that are written to stderr"},
};
const struct fq_conf_table fq_options_table = {keys, sizeof keys / sizeof keys[0]};

int fq_options_tcp_endpoint(const struct fq_options *options, struct fq_endpoint *ret,
                            struct fq_err *err)
{
    char text[sizeof options->listen_tcp + 8];
    if (options->listen_tcp[0] == '\0' || strcmp(options->listen_tcp, "off") == 0) {
        return 0;
    }
    bool has_prefix = strncmp(options->listen_tcp, "tcp:", 4) == 0;
    (void)snprintf(text, sizeof text, "%s%s", has_prefix ? "" : "tcp:", options->listen_tcp);
    int code = fq_endpoint_parse(text, ret, err);
    if (code != 0) {
        (void)fq_err_prefix(err, "listen.tcp: ");
        return code;
    }
    return 1;
}

int fq_options_shm_endpoint(const struct fq_options *options, struct fq_endpoint *ret,
                            struct fq_err *err)
{
    char text[sizeof options->listen_shm + 8];
    if (options->listen_shm[0] == '\0' || strcmp(options->listen_shm, "off") == 0) {
        return 0;
    }
    bool has_prefix = strncmp(options->listen_shm, "shm:", 4) == 0;
    (void)snprintf(text, sizeof text, "%s%s", has_prefix ? "" : "shm:", options->listen_shm);
    int code = fq_endpoint_parse(text, ret, err);
    if (code != 0) {
        (void)fq_err_prefix(err, "listen.shm: ");
        return code;
    }
    return 1;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static int check_listeners(const struct fq_options *options, struct fq_err *err)
{
    struct fq_endpoint endpoint;
    int has_tcp = fq_options_tcp_endpoint(options, &endpoint, err);
    if (has_tcp < 0) {
        return FLASHQ_ERR_CONFIG;
    }
    if (has_tcp && !is_loopback(endpoint.host) && !options->listen_insecure) {
        return fq_err_set(
            err, FLASHQ_ERR_CONFIG,
            "listen.tcp: %s is not a loopback address, and whoever reaches it may read and "
            "write everything: set listen.insecure: true if that is meant",
            options->listen_tcp);
    }
    int has_shm = fq_options_shm_endpoint(options, &endpoint, err);
    if (has_shm < 0) {
        return FLASHQ_ERR_CONFIG;
    }
    return has_tcp || has_shm
               ? 0
               : fq_err_set(err, FLASHQ_ERR_CONFIG,
                            "listen.tcp and listen.shm are both off: nobody could connect");
}

int fq_options_check(struct fq_options *options, struct fq_err *err)
{
    if (strcmp(options->listen_shm, "auto") == 0) {
        (void)fq_endpoint_default_socket(options->listen_shm, sizeof options->listen_shm);
    }
    int code = check_listeners(options, err);
    if (code != 0) {
        return code;
    }
    if (options->topic_auto_create) {
        return fq_err_set(err, FLASHQ_ERR_CONFIG,
                          "topic.auto.create: true is not in this release; create topics with "
                          "`flashq topic create`");
    }
    if (options->shards == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        options->shards = cores < 1 ? 1 : cores > FQ_LIMIT_SHARDS ? FQ_LIMIT_SHARDS : cores;
    }
    int64_t batch_max = fq_options_batch_max_bytes(options);
    int64_t segment_min = batch_max + FQ_LIMIT_SEGMENT_HEADER_BYTES;
    if (options->log_segment_bytes < segment_min) { /* the largest batch must fit */
        options->log_segment_bytes = (segment_min + 4095) / 4096 * 4096;
    }
    if (options->producer_window_bytes < batch_max) { /* at least one batch must fit */
        options->producer_window_bytes = batch_max;
    }
    return 0;
}

uint32_t fq_options_batch_max_bytes(const struct fq_options *options)
{
    int64_t record = options->message_max_bytes > FQ_LIMIT_BATCH_MAX_BYTES_DEFAULT
                         ? options->message_max_bytes
                         : FQ_LIMIT_BATCH_MAX_BYTES_DEFAULT;
    return (uint32_t)(record + FQ_LIMIT_BATCH_OVERHEAD_BYTES);
}

void fq_options_topic_config(const struct fq_options *options, struct fq_topic_config *ret)
{
    fq_conf_defaults(&fq_topic_config_table, ret);
    ret->timestamp_max_ahead_ms = options->timestamp_max_ahead_ms;
    ret->segment_bytes = options->log_segment_bytes;
    ret->retention_bytes = options->retention_bytes;
    ret->message_max_bytes = options->message_max_bytes;
}
