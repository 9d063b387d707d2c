/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions of version, errors, configuration and client. Each checks its arguments, takes the
 * client's lock, calls one inner function and gives the lock back. No state of its own.
 */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/link.h"
#include "client/request.h"

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

/* ---- shared --------------------------------------------------------------------------------- */

int fq_api_give(const struct fq_err *err, int code, char *errtext, size_t errtext_bytes)
{
    if (errtext && errtext_bytes > 0) {
        const char *words = code == 0 ? "" : err && err->text[0] ? err->text : fq_err_describe(code);
        (void)snprintf(errtext, errtext_bytes, "%s", words);
    }
    return code;
}

int fq_api_enter(flashq_client *client)
{
    return client ? fq_engine_enter(client->engine) : FLASHQ_ERR_INVALID;
}

void fq_api_leave(flashq_client *client)
{
    fq_engine_leave(client->engine);
}

int fq_api_enter_member(struct fq_engine *engine, struct fq_member *member)
{
    int code = fq_engine_enter(engine);
    if (code == 0 && member->is_closing) {
        fq_engine_leave(engine);
        code = FLASHQ_ERR_CLOSED;
    }
    if (code == 0) {
        member->calls++;
    }
    return code;
}

void fq_api_leave_member(struct fq_engine *engine, struct fq_member *member)
{
    member->calls--;
    fq_engine_leave(engine);
}

/* ---- version, errors ------------------------------------------------------------------------ */

const char *flashq_version(void)
{
    return TEXT_OF(FLASHQ_VERSION_MAJOR) "." TEXT_OF(FLASHQ_VERSION_MINOR) "." TEXT_OF(
        FLASHQ_VERSION_PATCH);
}

const char *flashq_strerror(int code)
{
    return fq_err_describe(code);
}

const char *flashq_error_name(int code)
{
    return fq_err_name(code);
}

int flashq_is_retriable(int code)
{
    switch (code) {
    case FLASHQ_ERR_TIMED_OUT:
    case FLASHQ_ERR_AGAIN:
    case FLASHQ_ERR_UNREACHABLE:
    case FLASHQ_ERR_LIMIT:
    case FLASHQ_ERR_EXCLUSIVE:
    case FLASHQ_ERR_NOT_LEADER:
    case FLASHQ_ERR_BUSY:
    case FLASHQ_ERR_OFFLINE:
    case FLASHQ_ERR_NO_SPACE:
    case FLASHQ_ERR_SHUTTING_DOWN: return 1;
    default: return 0;
    }
}

int flashq_is_fatal(int code)
{
    switch (code) {
    case FLASHQ_ERR_CLOSED:
    case FLASHQ_ERR_FORKED:
    case FLASHQ_ERR_UNKNOWN_TOPIC_ID:
    case FLASHQ_ERR_VERSION: return 1;
    default: return 0;
    }
}

/* ---- configuration -------------------------------------------------------------------------- */

#define VALUE_BYTES (FQ_CLIENT_BROKERS_BYTES + 1)
#define KEYS_MAX 64

struct flashq_config {
    struct fq_client_config values;
    char *texts[KEYS_MAX]; /* what flashq_config_get lent, by key */
};

flashq_config *flashq_config_new(void)
{
    flashq_config *config = calloc(1, sizeof *config);
    if (config) {
        fq_conf_defaults(fq_client_keys(), &config->values);
    }
    return config;
}

void flashq_config_free(flashq_config *config)
{
    for (size_t i = 0; config && i < KEYS_MAX; i++) {
        free(config->texts[i]);
    }
    free(config);
}

int flashq_config_set(flashq_config *config, const char *key, const char *value, char *errtext,
                      size_t errtext_bytes)
{
    struct fq_err err = {0};
    if (!config || !key || !value) {
        return fq_api_give(NULL, FLASHQ_ERR_INVALID, errtext, errtext_bytes);
    }
    int code = fq_conf_set(fq_client_keys(), &config->values, key, value, &err);
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

const char *flashq_config_get(const flashq_config *config, const char *key)
{
    const struct fq_conf_table *table = fq_client_keys();
    const struct fq_conf_key *found = config && key ? fq_conf_find(table, key) : NULL;
    if (!found) {
        return NULL;
    }
    /* The text is a cache: the configuration itself does not change. */
    char **text = &((flashq_config *)(uintptr_t)config)->texts[found - table->keys];
    if (!*text) {
        *text = malloc(VALUE_BYTES);
    }
    return *text ? fq_conf_get(found, &config->values, *text, VALUE_BYTES) : NULL;
}

int flashq_config_describe(size_t index, const char **key, const char **default_value,
                           const char **help)
{
    const struct fq_conf_table *table = fq_client_keys();
    if (index >= table->keys_count) {
        return FLASHQ_ERR_END;
    }
    if (key) {
        *key = table->keys[index].name;
    }
    if (default_value) {
        *default_value = table->keys[index].default_value;
    }
    if (help) {
        *help = table->keys[index].help;
    }
    return 0;
}

/* ---- client --------------------------------------------------------------------------------- */

int flashq_client_open(const flashq_config *config, flashq_client **ret_client, char *errtext,
                       size_t errtext_bytes)
{
    struct fq_err err = {0};
    struct fq_client_config values;
    if (!ret_client) {
        return fq_api_give(NULL, FLASHQ_ERR_INVALID, errtext, errtext_bytes);
    }
    if (config) {
        values = config->values;
    } else {
        fq_conf_defaults(fq_client_keys(), &values);
    }
    flashq_client *client = calloc(1, sizeof *client);
    if (!client) {
        return fq_api_give(NULL, FLASHQ_ERR_NO_MEMORY, errtext, errtext_bytes);
    }
    int code = fq_engine_create(&values, NULL, &client->engine, &err);
    if (code != 0) {
        free(client);
        return fq_api_give(&err, code, errtext, errtext_bytes);
    }
    *ret_client = client;
    return fq_api_give(NULL, 0, errtext, errtext_bytes);
}

int64_t flashq_client_close(flashq_client *client, int timeout_ms)
{
    if (!client) {
        return 0;
    }
    int64_t undelivered =
        fq_engine_destroy(client->engine, fq_engine_deadline_us(client->engine, timeout_ms));
    free(client);
    return undelivered;
}

int flashq_client_wait(flashq_client *client, int timeout_ms, char *errtext, size_t errtext_bytes)
{
    struct fq_err err = {0};
    int code = fq_api_enter(client);
    if (code == 0) {
        code = fq_engine_wait_up(client->engine, fq_engine_deadline_us(client->engine, timeout_ms),
                                 &err);
        fq_api_leave(client);
    }
    return fq_api_give(&err, code, errtext, errtext_bytes);
}

int flashq_client_fd(const flashq_client *client)
{
    if (!client || fq_engine_enter(client->engine) != 0) {
        return -1;
    }
    client->engine->news_wanted = true;
    fq_engine_news(client->engine); /* what came before anybody asked */
    int fd = client->engine->news_fd;
    fq_engine_leave(client->engine);
    return fd;
}

int flashq_client_endpoint(flashq_client *client, char *buffer, size_t buffer_bytes)
{
    char text[FQ_LIMIT_HOST_BYTES + 32] = "";
    int code = buffer && buffer_bytes > 0 ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    struct fq_link *link = client->engine->control;
    if (fq_link_is_up(link)) {
        (void)fq_endpoint_format(&link->endpoint, text, sizeof text);
    } else {
        code = FLASHQ_ERR_UNREACHABLE;
    }
    fq_api_leave(client);
    (void)snprintf(buffer, buffer_bytes, "%s", text);
    return code;
}

int flashq_client_do_work(flashq_client *client)
{
    int code = fq_api_enter(client);
    if (code != 0) {
        return code;
    }
    code = fq_engine_drive(client->engine) ? 1 : 0;
    fq_api_leave(client);
    return code;
}

int flashq_client_log_poll(flashq_client *client, flashq_log_entry *entries, size_t max)
{
    int code = entries || max == 0 ? fq_api_enter(client) : FLASHQ_ERR_INVALID;
    if (code != 0) {
        return code;
    }
    int count = (int)fq_journal_take(&client->engine->journal, entries, max);
    fq_api_leave(client);
    return count;
}

void flashq_free(void *array)
{
    free(array);
}
