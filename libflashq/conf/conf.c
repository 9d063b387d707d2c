/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys at work: text -> field, field -> text, and what to say when it does not fit.
 * Fails only on what a user wrote; a wrong table is a bug and asserts. No state; any thread.
 */
#include "conf/conf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "conf/units.h"

#define NAME_BYTES_MAX 128

/* ---- names ---------------------------------------------------------------------------------- */

static bool has_alias(const struct fq_conf_key *key, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = key->aliases; at && *at != '\0';) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0) {
            return true;
        }
        at += word + (at[word] == ' ');
    }
    return false;
}

const struct fq_conf_key *fq_conf_find(const struct fq_conf_table *table, const char *name)
{
    for (size_t i = 0; i < table->keys_count; i++) {
        if (strcmp(table->keys[i].name, name) == 0 || has_alias(&table->keys[i], name)) {
            return &table->keys[i];
        }
    }
    return NULL;
}

/* Optimal string alignment distance: insert, delete, change, swap of neighbours. Three rows. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    size_t rows[3][NAME_BYTES_MAX + 1];
    if (la > NAME_BYTES_MAX || lb > NAME_BYTES_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= lb; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= la; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < best) {
                best = above2[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[la % 3][lb];
}

const char *fq_conf_suggest(const struct fq_conf_table *table, const char *name)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 3 + 1; /* further away is no misspelling */
    for (size_t i = 0; i < table->keys_count; i++) {
        size_t d = distance(name, table->keys[i].name);
        if (d <= best_distance) {
            best_distance = d > 0 ? d - 1 : 0;
            best = table->keys[i].name;
        }
    }
    return best;
}

/* ---- values --------------------------------------------------------------------------------- */

static int64_t *number_field(const struct fq_conf_key *key, void *config)
{
    return (int64_t *)(void *)((char *)config + key->offset);
}

static int64_t number_value(const struct fq_conf_key *key, const void *config)
{
    int64_t value;
    memcpy(&value, (const char *)config + key->offset, sizeof value);
    return value;
}

static const char *format_number(const struct fq_conf_key *key, int64_t value, char *buffer,
                                 size_t bytes)
{
    switch (key->type) {
    case FQ_CONF_BYTES: return fq_format_bytes(value, buffer, bytes);
    case FQ_CONF_DURATION_MS: return fq_format_duration(value, 1000, buffer, bytes);
    case FQ_CONF_DURATION_US:
    case FQ_CONF_DURATION_MS_FINE: return fq_format_duration(value, 1, buffer, bytes);
    case FQ_CONF_STRING:
    case FQ_CONF_BOOL:
    case FQ_CONF_INT:
    case FQ_CONF_CHOICE: break;
    }
    (void)snprintf(buffer, bytes, "%lld", (long long)value);
    return buffer;
}

static int parse_number(const struct fq_conf_key *key, const char *text, int64_t *ret,
                        struct fq_err *err)
{
    switch (key->type) {
    case FQ_CONF_BYTES: return fq_parse_bytes(text, ret, err);
    case FQ_CONF_DURATION_MS: return fq_parse_duration(text, 1000, ret, err);
    case FQ_CONF_DURATION_US: return fq_parse_duration(text, 1, ret, err);
    case FQ_CONF_DURATION_MS_FINE: return fq_parse_duration_us(text, 1000, ret, err);
    case FQ_CONF_STRING:
    case FQ_CONF_BOOL:
    case FQ_CONF_INT:
    case FQ_CONF_CHOICE: break;
    }
    return fq_parse_int(text, ret, err);
}

const char *fq_conf_accepts(const struct fq_conf_key *key, char *buffer, size_t bytes)
{
    static const char *const nouns[] = {
        [FQ_CONF_STRING] = "text", [FQ_CONF_BOOL] = "true | false", [FQ_CONF_INT] = "number",
        [FQ_CONF_BYTES] = "size",  [FQ_CONF_DURATION_MS] = "time",  [FQ_CONF_DURATION_US] = "time",
        [FQ_CONF_DURATION_MS_FINE] = "time", [FQ_CONF_CHOICE] = ""};
    char low[32], high[32];
    int used = 0;
    size_t at = 0;
    if (key->type == FQ_CONF_STRING || key->type == FQ_CONF_BOOL || key->type == FQ_CONF_CHOICE) {
        used = snprintf(buffer, bytes, "%s", nouns[key->type]);
    } else {
        used = snprintf(buffer, bytes, "%s, %s to %s", nouns[key->type],
                        format_number(key, key->min, low, sizeof low),
                        format_number(key, key->max, high, sizeof high));
    }
    at = used > 0 ? (size_t)used : 0;
    for (const struct fq_conf_word *word = key->words; word && word->word && at < bytes; word++) {
        used = snprintf(buffer + at, bytes - at, "%s%s",
                        at == 0                       ? ""
                        : key->type == FQ_CONF_CHOICE ? " | "
                                                      : " or ",
                        word->word);
        at += used > 0 ? (size_t)used : 0;
    }
    return buffer;
}

static int refuse(const struct fq_conf_key *key, const char *value, struct fq_err *err)
{
    char accepts[256];
    return fq_err_set(err, FLASHQ_ERR_CONFIG, "%s: \"%.64s\" is not accepted (%s)", key->name,
                      value, fq_conf_accepts(key, accepts, sizeof accepts));
}

static int set_string(const struct fq_conf_key *key, void *config, const char *value,
                      struct fq_err *err)
{
    size_t length = strlen(value);
    if (length < (size_t)key->min || length > (size_t)key->max) {
        return fq_err_set(err, FLASHQ_ERR_CONFIG,
                          "%s: \"%.64s\" has %zu bytes (%lld to %lld are allowed)", key->name,
                          value, length, (long long)key->min, (long long)key->max);
    }
    memcpy((char *)config + key->offset, value, length + 1);
    return 0;
}

static int set_bool(const struct fq_conf_key *key, void *config, const char *value,
                    struct fq_err *err)
{
    static const char *const words[2][4] = {{"false", "no", "off", "0"},
                                            {"true", "yes", "on", "1"}};
    for (int truth = 0; truth < 2; truth++) {
        for (size_t i = 0; i < 4; i++) {
            if (strcmp(value, words[truth][i]) == 0) {
                *(bool *)((char *)config + key->offset) = truth != 0;
                return 0;
            }
        }
    }
    return refuse(key, value, err);
}

static int set_number(const struct fq_conf_key *key, void *config, const char *value,
                      struct fq_err *err)
{
    char limit[32];
    int64_t number;
    for (const struct fq_conf_word *word = key->words; word && word->word; word++) {
        if (strcmp(value, word->word) == 0) {
            *number_field(key, config) = word->value;
            return 0;
        }
    }
    if (key->type == FQ_CONF_CHOICE) {
        return refuse(key, value, err);
    }
    if (parse_number(key, value, &number, err) != 0) {
        if (key->words) {
            return refuse(key, value, err);
        }
        (void)fq_err_prefix(err, "%s: ", key->name);
        return err ? (err->code = FLASHQ_ERR_CONFIG) : FLASHQ_ERR_CONFIG;
    }
    for (const struct fq_conf_word *word = key->words; word && word->word; word++) {
        if (number == word->value) { /* -1 for "off", though the range begins at 0 */
            *number_field(key, config) = number;
            return 0;
        }
    }
    if (number < key->min || number > key->max) {
        bool is_low = number < key->min;
        return fq_err_set(err, FLASHQ_ERR_CONFIG, "%s: \"%.64s\" is %s the limit of %s", key->name,
                          value, is_low ? "below" : "above",
                          format_number(key, is_low ? key->min : key->max, limit, sizeof limit));
    }
    *number_field(key, config) = number;
    return 0;
}

static int set_value(const struct fq_conf_key *key, void *config, const char *value,
                     struct fq_err *err)
{
    switch (key->type) {
    case FQ_CONF_STRING: return set_string(key, config, value, err);
    case FQ_CONF_BOOL: return set_bool(key, config, value, err);
    case FQ_CONF_INT:
    case FQ_CONF_BYTES:
    case FQ_CONF_DURATION_MS:
    case FQ_CONF_DURATION_US:
    case FQ_CONF_DURATION_MS_FINE:
    case FQ_CONF_CHOICE: break;
    }
    return set_number(key, config, value, err);
}

/* ---- the interface -------------------------------------------------------------------------- */

void fq_conf_defaults(const struct fq_conf_table *table, void *config)
{
    for (size_t i = 0; i < table->keys_count; i++) {
        const struct fq_conf_key *key = &table->keys[i];
        int code = set_value(key, config, key->default_value ? key->default_value : "", NULL);
        assert(code == 0);
        (void)code;
    }
}

int fq_conf_set(const struct fq_conf_table *table, void *config, const char *name,
                const char *value, struct fq_err *err)
{
    const struct fq_conf_key *key = fq_conf_find(table, name);
    if (!key) {
        const char *close_one = fq_conf_suggest(table, name);
        return close_one
                   ? fq_err_set(err, FLASHQ_ERR_CONFIG,
                                "unknown key \"%.128s\" (did you mean \"%s\"?)", name, close_one)
                   : fq_err_set(err, FLASHQ_ERR_CONFIG, "unknown key \"%.128s\"", name);
    }
    return set_value(key, config, value, err);
}

int fq_conf_set_pair(const struct fq_conf_table *table, void *config, const char *pair,
                     struct fq_err *err)
{
    char name[NAME_BYTES_MAX + 1];
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair || equals - pair > NAME_BYTES_MAX) {
        return fq_err_set(err, FLASHQ_ERR_CONFIG, "\"%.128s\" is not KEY=VALUE", pair);
    }
    memcpy(name, pair, (size_t)(equals - pair));
    name[equals - pair] = '\0';
    return fq_conf_set(table, config, name, equals + 1, err);
}

const char *fq_conf_get(const struct fq_conf_key *key, const void *config, char *buffer,
                        size_t bytes)
{
    if (key->type == FQ_CONF_STRING) {
        (void)snprintf(buffer, bytes, "%s", (const char *)config + key->offset);
        return buffer;
    }
    if (key->type == FQ_CONF_BOOL) {
        bool truth = *(const bool *)((const char *)config + key->offset);
        (void)snprintf(buffer, bytes, "%s", truth ? "true" : "false");
        return buffer;
    }
    int64_t value = number_value(key, config);
    for (const struct fq_conf_word *word = key->words; word && word->word; word++) {
        if (word->value == value) {
            (void)snprintf(buffer, bytes, "%s", word->word);
            return buffer;
        }
    }
    return format_number(key, value, buffer, bytes);
}
