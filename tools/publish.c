/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: send, send, ... flush, close with nothing undelivered, exit 0.
 *
 * What can fail: a record by itself (too large, a partition that does not exist) is counted, the first
 * reason kept, and the next one sent. A queue that stays full, or a handle that is gone, ends the
 * run: nothing behind it could be sent either. However it ends, the counts and the first error are told
 * and the exit code is 1.
 */
#include "tools/publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REPORTS_MAX 256
#define POLL_EVERY 64
#define SLICE_MS 200        /* of waiting, between looks at reports and interrupts */
#define INTERRUPTED_MS 5000 /* how long an interrupted program still tries to deliver */
#define LIMIT_KEY "message.max.bytes"

static void keep_error(struct fq_publish *publish, int code, const char *text)
{
    if (publish->first_error == 0) {
        publish->first_error = code;
        (void)snprintf(publish->first_text, sizeof publish->first_text, "%s",
                       text && text[0] ? text : flashq_strerror(code));
    }
}

/* The topic's message.max.bytes; 0 if it cannot be had. */
static uint64_t topic_limit(const struct fq_publish *publish)
{
    flashq_config_entry *entries = NULL;
    size_t count = 0;
    uint64_t limit = 0;
    struct fq_cli *cli = publish->cli;
    if (flashq_topic_config(cli->client, publish->topic, cli->timeout_ms, &entries, &count, NULL,
                            0) != 0) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].key, LIMIT_KEY) == 0 &&
            fq_parse_size(entries[i].value, &limit, NULL) != 0) {
            limit = 0;
        }
    }
    flashq_free(entries);
    return limit;
}

static uint64_t client_limit(const struct fq_publish *publish)
{
    const char *value = flashq_config_get(publish->cli->config, LIMIT_KEY);
    uint64_t limit = 0;
    return value && fq_parse_size(value, &limit, NULL) == 0 ? limit : 0;
}

static bool is_client_limit_default(const struct fq_publish *publish)
{
    const char *key, *standard, *help, *value = flashq_config_get(publish->cli->config, LIMIT_KEY);
    for (size_t i = 0; flashq_config_describe(i, &key, &standard, &help) == 0; i++) {
        if (strcmp(key, LIMIT_KEY) == 0) {
            return value && strcmp(value, standard) == 0;
        }
    }
    return false;
}

/* A topic may take larger records than a client that was not told: connect again, told. */
static int adopt_topic_limit(struct fq_publish *publish)
{
    struct fq_cli *cli = publish->cli;
    uint64_t limit = topic_limit(publish);
    char text[24];
    if (limit <= client_limit(publish) || !is_client_limit_default(publish)) {
        return 0;
    }
    (void)snprintf(text, sizeof text, "%" PRIu64, limit);
    fq_cli_tell(cli);
    (void)flashq_client_close(cli->client, cli->timeout_ms);
    cli->client = NULL;
    int code = fq_cli_set(cli, LIMIT_KEY, text);
    return code == 0 ? fq_cli_connect(cli) : code;
}

int fq_publish_open(struct fq_publish *publish)
{
    struct fq_cli *cli = publish->cli;
    int code = adopt_topic_limit(publish);
    if (code != 0) {
        return code;
    }
    cli->errtext[0] = '\0';
    int result = flashq_producer_open(cli->client, publish->topic, cli->timeout_ms,
                                      &publish->producer, cli->errtext, sizeof cli->errtext);
    if (result != 0) {
        int status = fq_cli_fail(cli, result, cli->errtext, "%s", publish->topic);
        if (result == FLASHQ_ERR_NOT_FOUND) {
            fq_cli_warn("topics are made with: flashq topic create %s", publish->topic);
        }
        return status;
    }
    publish->started_ns = fq_now_ns();
    return 0;
}

static void print_report(struct fq_publish *publish, const flashq_report *report)
{
    fq_buf_printf(&publish->cli->out.buf,
                  "{\"index\":%" PRIu64 ",\"partition\":%" PRId32 ",\"offset\":%" PRId64
                  ",\"timestamp_ms\":%" PRId64 ",\"duplicate\":%s}\n",
                  (uint64_t)(uintptr_t)report->user, report->partition, report->offset,
                  report->timestamp_ms, report->duplicate ? "true" : "false");
}

/* The producer's words for a failure if its latest is this one, else the code's. */
static void describe(struct fq_publish *publish, int code, char *text, size_t text_bytes)
{
    if (flashq_producer_last_error(publish->producer, text, text_bytes) != code || !text[0]) {
        (void)snprintf(text, text_bytes, "%s", flashq_strerror(code));
    }
}

static void take_report(struct fq_publish *publish, const flashq_report *report)
{
    if (report->status == 0) {
        if (publish->has_report) {
            print_report(publish, report);
        }
        return;
    }
    char why[FQ_ERRTEXT_BYTES - 96], text[FQ_ERRTEXT_BYTES];
    describe(publish, report->status, why, sizeof why);
    (void)snprintf(text, sizeof text, "%s%s", why,
                   report->persisted == FLASHQ_PERSISTED_MAYBE
                       ? " (the record may or may not be stored)"
                       : "");
    keep_error(publish, report->status, text);
    publish->failed++;
}

void fq_publish_poll(struct fq_publish *publish)
{
    flashq_report reports[REPORTS_MAX];
    int count;
    do {
        for (size_t i = 0; i < REPORTS_MAX; i++) {
            reports[i].struct_bytes = sizeof reports[i];
        }
        count = flashq_producer_poll(publish->producer, reports, REPORTS_MAX, 0);
        for (int i = 0; i < count; i++) {
            take_report(publish, &reports[i]);
        }
    } while (count == REPORTS_MAX);
    fq_cli_tell(publish->cli);
    (void)fq_out_flush(&publish->cli->out);
}

static size_t record_bytes(const struct fq_rec *rec)
{
    size_t bytes = rec->key_length + rec->value_length;
    for (size_t i = 0; i < rec->headers_count; i++) {
        bytes += rec->headers[i].name_length + rec->headers[i].value_length;
    }
    return bytes;
}

static void refuse_too_large(struct fq_publish *publish, const struct fq_rec *rec)
{
    char text[FQ_ERRTEXT_BYTES];
    if (publish->first_error == 0) {
        uint64_t topic = topic_limit(publish), client = client_limit(publish);
        (void)snprintf(text, sizeof text,
                       "record %" PRIu64 " has %zu bytes (key, value and headers): over the limit "
                       "message.max.bytes = %" PRIu64 " of the %s",
                       publish->taken, record_bytes(rec),
                       topic > 0 && topic <= client ? topic : client,
                       topic > 0 && topic <= client ? "topic" : "client");
        keep_error(publish, FLASHQ_ERR_TOO_LARGE, text);
    }
    publish->failed++;
}

void fq_publish_refuse(struct fq_publish *publish, const char *text)
{
    publish->taken++;
    publish->failed++;
    keep_error(publish, FLASHQ_ERR_INVALID, text);
}

/* Whether acknowledgements still come, or came not too long ago: as long as --timeout says, else until
 * the library gives records up itself; after an interrupt only briefly. */
static bool may_wait_on(struct fq_publish *publish)
{
    flashq_producer_stats stats = {.struct_bytes = sizeof stats};
    int64_t now_ns = fq_now_ns();
    (void)flashq_producer_get_stats(publish->producer, &stats);
    if (stats.records_acked + stats.records_failed != publish->settled) {
        publish->settled = stats.records_acked + stats.records_failed;
        publish->progress_ns = now_ns;
    }
    int64_t limit_ms = publish->cli->timeout_ms;
    if (fq_interrupted() && (limit_ms < 0 || limit_ms > INTERRUPTED_MS)) {
        limit_ms = INTERRUPTED_MS;
    }
    return limit_ms < 0 || now_ns - publish->progress_ns < limit_ms * 1000000;
}

/* Sends, waiting for room in the queue as long as that may come. */
static int send_when_there_is_room(struct fq_publish *publish, const flashq_record *record)
{
    int result = flashq_send(publish->producer, record, SLICE_MS);
    if (result == FLASHQ_ERR_AGAIN) {
        publish->progress_ns = fq_now_ns();
    }
    while (result == FLASHQ_ERR_AGAIN && may_wait_on(publish)) {
        fq_publish_poll(publish);
        result = flashq_send(publish->producer, record, SLICE_MS);
    }
    return result;
}

static int pace(struct fq_publish *publish)
{
    if (publish->rate <= 0) {
        return 0;
    }
    int64_t due =
        publish->started_ns + (int64_t)((double)publish->taken / publish->rate * 1000000000.0);
    if (due > fq_now_ns()) {
        fq_publish_poll(publish);
    }
    return fq_sleep_until_ns(due) ? 0 : FQ_EXIT_FAILED;
}

int fq_publish_send(struct fq_publish *publish, const struct fq_rec *rec)
{
    const flashq_record record = {.struct_bytes = sizeof record,
                                  .partition = rec->partition,
                                  .timestamp_ms = rec->timestamp_ms,
                                  .key = rec->key,
                                  .key_length = rec->key_length,
                                  .value = rec->value,
                                  .value_length = rec->value_length,
                                  .headers = rec->headers,
                                  .headers_count = rec->headers_count,
                                  .user = (void *)(uintptr_t)publish->taken};
    if (pace(publish) != 0) {
        return FQ_EXIT_FAILED;
    }
    publish->taken++;
    int result = send_when_there_is_room(publish, &record);
    if (publish->taken % POLL_EVERY == 0 || result != 0) {
        fq_publish_poll(publish);
    }
    if (publish->cli->out.is_broken) {
        return FQ_EXIT_FAILED;
    }
    switch (result) {
    case 0: return 0;
    case FLASHQ_ERR_TOO_LARGE: refuse_too_large(publish, rec); return 0;
    case FLASHQ_ERR_INVALID:
    case FLASHQ_ERR_NOT_FOUND:
    case FLASHQ_ERR_OFFLINE:
    case FLASHQ_ERR_TIMESTAMP: {
        char why[FQ_ERRTEXT_BYTES - 96], text[FQ_ERRTEXT_BYTES];
        describe(publish, result, why, sizeof why);
        (void)snprintf(text, sizeof text, "record %" PRIu64 ": %s", publish->taken, why);
        keep_error(publish, result, text);
        publish->failed++;
        return 0;
    }
    case FLASHQ_ERR_AGAIN:
        keep_error(publish, result,
                   "the queue is full and nothing was acknowledged within the timeout");
        break;
    default: keep_error(publish, result, NULL); break;
    }
    publish->failed++;
    return FQ_EXIT_FAILED;
}

static void keep_timeout(struct fq_publish *publish)
{
    char why[FQ_ERRTEXT_BYTES - 96], text[FQ_ERRTEXT_BYTES];
    int code = flashq_producer_last_error(publish->producer, why, sizeof why);
    (void)snprintf(text, sizeof text, "no acknowledgement within the timeout%s%s%s",
                   code != 0 ? " (the latest failure: " : "", code != 0 ? why : "",
                   code != 0 ? ")" : "");
    keep_error(publish, FLASHQ_ERR_TIMED_OUT, text);
}

/* Waits until everything is acknowledged or given up (by the library, after delivery.timeout.ms). */
static void flush(struct fq_publish *publish)
{
    int result;
    publish->progress_ns = fq_now_ns();
    while ((result = flashq_flush(publish->producer, SLICE_MS)) == FLASHQ_ERR_TIMED_OUT &&
           may_wait_on(publish)) {
        fq_publish_poll(publish);
    }
    fq_publish_poll(publish);
    if (result == FLASHQ_ERR_TIMED_OUT) {
        keep_timeout(publish);
    } else if (result != 0) {
        keep_error(publish, result, NULL);
    }
}

int fq_publish_finish(struct fq_publish *publish)
{
    int64_t undelivered = 0;
    flush(publish);
    int result =
        flashq_producer_close(publish->producer, publish->cli->timeout_ms, &undelivered);
    publish->producer = NULL;
    if (undelivered > 0) {
        keep_error(publish, result != 0 ? result : FLASHQ_ERR_TIMED_OUT, NULL);
        publish->failed += (uint64_t)undelivered;
    }
    if (publish->first_error != 0 || publish->failed > 0) {
        fq_cli_warn("%s: %" PRIu64 " of %" PRIu64 " records were not delivered: %s", publish->topic,
                    publish->failed, publish->taken, publish->first_text);
        return FQ_EXIT_FAILED;
    }
    fq_cli_note("%s: %" PRIu64 " records acknowledged in %.3f s", publish->topic, publish->taken,
                (double)(fq_now_ns() - publish->started_ns) / 1e9);
    return publish->cli->out.is_broken ? FQ_EXIT_FAILED : FQ_EXIT_OK;
}
