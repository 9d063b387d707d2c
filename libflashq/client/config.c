/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the client's keys: names, Kafka's names for the same, defaults, limits, help. Nothing
 * runs here; conf/conf.h does the work. */
#include "client/config.h"

#include <stddef.h>

#include "flashq/flashq.h"
#include "wire/protocol.h"
#include "wire/record_batch.h"

#define FIELD(name) .offset = offsetof(struct fq_client_config, name)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define DAY_MS INT64_C(86400000)

static const struct fq_conf_word transports[] = {
    {"auto", FQ_CHOICE_AUTO}, {"shm", FQ_CHOICE_SHM}, {"tcp", FQ_CHOICE_TCP}, {NULL, 0}};
static const struct fq_conf_word acks_words[] = {
    {"all", FQ_ACKS_ALL},   {"-1", FQ_ACKS_ALL},   {"leader", FQ_ACKS_LEADER}, {"1", FQ_ACKS_LEADER},
    {"none", FQ_ACKS_NONE}, {"0", FQ_ACKS_NONE}, {NULL, 0}};
static const struct fq_conf_word codecs[] = {
    {"none", FQ_CODEC_NONE}, {"lz4", FQ_CODEC_LZ4}, {"zstd", FQ_CODEC_ZSTD}, {NULL, 0}};
static const struct fq_conf_word batchings[] = {
    {"adaptive", FQ_BATCHING_ADAPTIVE}, {"fixed", FQ_BATCHING_FIXED}, {NULL, 0}};
static const struct fq_conf_word reports_words[] = {
    {"none", FQ_REPORTS_NONE}, {"errors", FQ_REPORTS_ERRORS}, {"all", FQ_REPORTS_ALL}, {NULL, 0}};
static const struct fq_conf_word resets[] = {
    {"none", FQ_RESET_NONE}, {"start", FQ_RESET_START}, {"earliest", FQ_RESET_START},
    {"end", FQ_RESET_END},   {"latest", FQ_RESET_END},  {NULL, 0}};

static const struct fq_conf_word fetch_modes[] = {
    {"pull", FQ_FETCH_PULL}, {"push", FQ_FETCH_PUSH}, {NULL, 0}};

static const struct fq_conf_word log_levels[] = {
    {"off", 0},  {"error", FLASHQ_LOG_ERROR}, {"warn", FLASHQ_LOG_WARN},
    {"info", FLASHQ_LOG_INFO}, {"debug", FLASHQ_LOG_DEBUG}, {NULL, 0}};

static const struct fq_conf_key keys[] = {
    {.name = "brokers", .aliases = "bootstrap.servers metadata.broker.list", .type = FQ_CONF_STRING,
     .default_value = "", .min = 0, .max = FQ_CLIENT_BROKERS_BYTES, FIELD(brokers),
     .help = "where brokers are: HOST:PORT, tcp:HOST:PORT or shm:SOCKET, separated by commas; empty is "
             "the default local socket, then 127.0.0.1:9640"},
    {.name = "client.id", .type = FQ_CONF_STRING, .default_value = "flashq", .min = 0,
     .max = FQ_LIMIT_CLIENT_ID_BYTES, FIELD(client_id),
     .help = "a name for this client in the broker's log and counters"},
    {.name = "transport", .type = FQ_CONF_CHOICE, .default_value = "auto", .words = transports,
     FIELD(transport),
     .help = "for brokers written as HOST:PORT: shared memory on the same host, else tcp, or always one"},
    {.name = "timeout.ms", .aliases = "request.timeout.ms default.api.timeout.ms",
     .type = FQ_CONF_DURATION_MS, .default_value = "30s", .min = 1, .max = DAY_MS, FIELD(timeout_ms),
     .help = "what a timeout of -1 means in every call that waits"},
    {.name = "connect.timeout.ms", .aliases = "socket.connection.setup.timeout.ms",
     .type = FQ_CONF_DURATION_MS, .default_value = "5s", .min = 10, .max = 600000,
     FIELD(connect_timeout_ms), .help = "how long one attempt to connect may take"},
    {.name = "reconnect.backoff.ms", .type = FQ_CONF_DURATION_MS, .default_value = "50ms", .min = 1,
     .max = 60000, FIELD(reconnect_backoff_ms),
     .help = "the pause before the second attempt to connect; doubles, with jitter"},
    {.name = "reconnect.backoff.max.ms", .type = FQ_CONF_DURATION_MS, .default_value = "1s", .min = 1,
     .max = 600000, FIELD(reconnect_backoff_max_ms), .help = "the longest pause between attempts"},
    {.name = "io.threads", .type = FQ_CONF_INT, .default_value = "1", .min = 0, .max = 1,
     FIELD(io_threads),
     .help = "1: a thread works while the application does not; 0: only calls into the library work"},
    {.name = "spin.us", .type = FQ_CONF_DURATION_US, .default_value = "50us", .min = 0,
     .max = FQ_LIMIT_SPIN_US_MAX, FIELD(spin_us),
     .help = "how long a waiting call looks for news after the last before it sleeps"},
    {.name = "log.level", .type = FQ_CONF_CHOICE, .default_value = "off", .words = log_levels,
     FIELD(log_level), .help = "what is kept for flashq_client_log_poll: nothing, or entries up to this level"},
    {.name = "queue.bytes", .aliases = "buffer.memory", .type = FQ_CONF_BYTES,
     .default_value = "32MiB", .min = MIB, .max = 64 * GIB, FIELD(queue_bytes),
     .help = "memory of one producer for records that are not acknowledged"},
    {.name = "batch.max.bytes", .aliases = "batch.size", .type = FQ_CONF_BYTES,
     .default_value = "1MiB", .min = 64, .max = 64 * MIB, FIELD(batch_max_bytes),
     .help = "the largest batch of several records (one larger record still goes alone)"},
    {.name = "batching", .type = FQ_CONF_CHOICE, .default_value = "adaptive", .words = batchings,
     FIELD(batching),
     .help = "adaptive: the size of batches and the number in flight follow from rates and round trips "
             "as measured; fixed: a batch goes when it has batch.max.bytes or is linger.ms old, or with "
             "linger.ms 0 as soon as there is room in flight"},
    {.name = "linger.ms", .aliases = "queue.buffering.max.ms", .type = FQ_CONF_DURATION_MS_FINE,
     .default_value = "0ms", .min = 0, .max = 600000000, FIELD(linger_us),
     .help = "how long a record waits for company even when nothing is in flight; may be a fraction, as "
             "in 0.1ms"},
    {.name = "max.in.flight", .aliases = "max.in.flight.requests.per.connection", .type = FQ_CONF_INT,
     .default_value = "32", .min = 1, .max = FQ_LIMIT_MAX_IN_FLIGHT, FIELD(max_in_flight),
     .help = "batches on their way to one partition"},
    {.name = "message.max.bytes", .aliases = "max.request.size", .type = FQ_CONF_BYTES,
     .default_value = "1MiB", .min = FQ_LIMIT_MESSAGE_MAX_BYTES_MIN,
     .max = FQ_LIMIT_MESSAGE_MAX_BYTES_MAX, FIELD(message_max_bytes),
     .help = "the largest record (key, value and headers); the topic's limit holds too"},
    {.name = "delivery.timeout.ms", .aliases = "message.timeout.ms", .type = FQ_CONF_DURATION_MS,
     .default_value = "2m", .min = 1, .max = DAY_MS, FIELD(delivery_timeout_ms),
     .help = "after this a record that is not acknowledged is given up and reported"},
    {.name = "acks", .aliases = "request.required.acks", .type = FQ_CONF_CHOICE,
     .default_value = "all", .words = acks_words, FIELD(acks),
     .help = "whose word makes a record delivered: all in-sync replicas, the leader, nobody"},
    {.name = "compression.type", .aliases = "compression.codec", .type = FQ_CONF_CHOICE,
     .default_value = "none", .words = codecs, FIELD(codec), .help = "how batches are compressed"},
    {.name = "compression.level", .type = FQ_CONF_INT, .default_value = "0", .min = -100, .max = 22,
     FIELD(compression_level), .help = "the codec's level; 0 is its default"},
    {.name = "reports", .type = FQ_CONF_CHOICE, .default_value = "errors", .words = reports_words,
     FIELD(reports), .help = "which records flashq_producer_poll tells about"},
    {.name = "reports.max", .type = FQ_CONF_INT, .default_value = "1000000", .min = 16,
     .max = 100000000, FIELD(reports_max),
     .help = "reports kept for polling; beyond it the oldest are dropped and counted"},
    {.name = "enable.idempotence", .type = FQ_CONF_BOOL, .default_value = "true",
     FIELD(enable_idempotence),
     .help = "accepted for compatibility: producers are always idempotent, whatever it says"},
    {.name = "fetch.max.bytes", .aliases = "fetch.bytes max.partition.fetch.bytes fetch.message.max.bytes",
     .type = FQ_CONF_BYTES, .default_value = "1MiB", .min = 4096, .max = 8 * MIB,
     FIELD(fetch_max_bytes),
     .help = "how much is read from a partition at once (a larger batch still comes)"},
    {.name = "fetch.buffer.bytes", .aliases = "queued.max.bytes", .type = FQ_CONF_BYTES,
     .default_value = "64MiB", .min = MIB, .max = 64 * GIB, FIELD(fetch_buffer_bytes),
     .help = "memory of one consumer for what was read ahead or pushed"},
    {.name = "fetch.mode", .type = FQ_CONF_CHOICE, .default_value = "pull", .words = fetch_modes,
     FIELD(fetch_mode),
     .help = "pull: consumers read from the broker's memory; push: the broker writes into theirs"},
    {.name = "push.buffer.bytes", .type = FQ_CONF_BYTES, .default_value = "4MiB",
     .min = FQ_LIMIT_PUSH_RING_BYTES_MIN, .max = FQ_LIMIT_PUSH_RING_BYTES_MAX,
     FIELD(push_buffer_bytes),
     .help = "the ring of a partition that is pushed (at least the broker's largest batch)"},
    {.name = "fetch.prefetch", .type = FQ_CONF_BOOL, .default_value = "true", FIELD(fetch_prefetch),
     .help = "whether what follows is read while the application works; false: pulling brings one batch "
             "at a time, when it is asked for"},
    {.name = "auto.offset.reset", .type = FQ_CONF_CHOICE, .default_value = "none", .words = resets,
     FIELD(reset), .help = "where to go on when the position was trimmed away; none reports it"},
    {.name = "verify.crc", .aliases = "check.crcs", .type = FQ_CONF_BOOL, .default_value = "true",
     FIELD(verify_crc), .help = "whether consumers check every batch's CRC-32C"},
};

static const struct fq_conf_table table = {.keys = keys, .keys_count = sizeof keys / sizeof keys[0]};

const struct fq_conf_table *fq_client_keys(void)
{
    return &table;
}
