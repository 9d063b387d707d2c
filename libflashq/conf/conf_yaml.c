/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml's events -> fq_conf_set; see conf_yaml.h. Keeps the dotted path of the mapping it is in
 * and the line where each key was set. Everything libyaml or the table refuses ends the load with
 * "FILE:LINE: ". Depth, length and count are bounded, so a hostile file costs little.
 */
#include "conf/conf_yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#define DEPTH_MAX  8
#define PATH_BYTES 256

struct loader {
    const struct fq_conf_table *table;
    void *config;
    const char *name;
    struct fq_err *err;
    size_t *lines;         /* per key: where it was set, 0: not yet */
    char path[PATH_BYTES]; /* "log.segment." while inside those mappings */
    size_t path_lengths[DEPTH_MAX];
    unsigned depth; /* mappings entered */
    bool has_key;   /* a key was read, its value is next */
    unsigned documents;
    size_t line;
};

static int fail(struct loader *l, const char *what)
{
    return fq_err_set(l->err, FLASHQ_ERR_CONFIG, "%s:%zu: %s", l->name, l->line, what);
}

/* Appends the key to the path; false when it is too long or has a NUL in it. */
static bool push_key(struct loader *l, const char *key, size_t length)
{
    size_t used = l->path_lengths[l->depth - 1];
    if (used + length + 2 > sizeof l->path || memchr(key, '\0', length)) {
        return false;
    }
    memcpy(l->path + used, key, length);
    l->path[used + length] = '\0';
    l->has_key = true;
    return true;
}

static int set_scalar(struct loader *l, const char *value, size_t length)
{
    if (memchr(value, '\0', length)) {
        return fail(l, "a value contains a NUL byte");
    }
    const struct fq_conf_key *key = fq_conf_find(l->table, l->path);
    if (key) {
        size_t *line = &l->lines[key - l->table->keys];
        if (*line != 0) {
            return fq_err_set(l->err, FLASHQ_ERR_CONFIG, "%s:%zu: %s was set on line %zu already",
                              l->name, l->line, key->name, *line);
        }
        *line = l->line;
    }
    int code = fq_conf_set(l->table, l->config, l->path, value, l->err);
    if (code != 0) {
        (void)fq_err_prefix(l->err, "%s:%zu: ", l->name, l->line);
        return code;
    }
    l->has_key = false;
    return 0;
}

static int on_scalar(struct loader *l, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (event->data.scalar.anchor || event->data.scalar.tag) {
        return fail(l, "anchors and tags are not used here");
    }
    if (l->depth == 0) { /* the whole document is a scalar: nothing at all, or not a mapping */
        return length == 0 ? 0 : fail(l, "expected KEY: VALUE");
    }
    if (l->has_key) {
        return set_scalar(l, text, length);
    }
    return push_key(l, text, length) ? 0 : fail(l, "a key is too long");
}

static int on_mapping_start(struct loader *l, const yaml_event_t *event)
{
    if (event->data.mapping_start.anchor || event->data.mapping_start.tag) {
        return fail(l, "anchors and tags are not used here");
    }
    if (l->depth > 0 && !l->has_key) {
        return fail(l, "a mapping cannot be a key");
    }
    if (l->depth == DEPTH_MAX) {
        return fail(l, "nested too deep");
    }
    size_t used = 0;
    if (l->depth > 0) {
        used = strlen(l->path);
        l->path[used++] = '.'; /* push_key left room */
        l->path[used] = '\0';
    }
    l->path_lengths[l->depth++] = used;
    l->has_key = false;
    return 0;
}

static int on_event(struct loader *l, const yaml_event_t *event)
{
    l->line = event->start_mark.line + 1;
    switch (event->type) {
    case YAML_SCALAR_EVENT: return on_scalar(l, event);
    case YAML_MAPPING_START_EVENT: return on_mapping_start(l, event);
    case YAML_MAPPING_END_EVENT:
        l->depth--;
        l->has_key = false;
        return 0;
    case YAML_DOCUMENT_START_EVENT: return l->documents++ == 0 ? 0 : fail(l, "a second document");
    case YAML_SEQUENCE_START_EVENT: return fail(l, "a list, where one value is expected");
    case YAML_ALIAS_EVENT: return fail(l, "anchors and tags are not used here");
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: break;
    }
    return 0;
}

static int parse(struct loader *l, yaml_parser_t *parser)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            l->line = parser->problem_mark.line + 1;
            return fail(l, parser->problem ? parser->problem : "not YAML");
        }
        bool is_last = event.type == YAML_STREAM_END_EVENT;
        int code = on_event(l, &event);
        yaml_event_delete(&event);
        if (code != 0 || is_last) {
            return code;
        }
    }
}

int fq_conf_load_bytes(const struct fq_conf_table *table, void *config, const char *name,
                       const void *bytes, size_t length, struct fq_err *err)
{
    struct fq_err own;
    struct loader l = {.table = table, .config = config, .name = name, .err = err ? err : &own};
    if (length > FQ_CONF_FILE_BYTES_MAX) {
        return fq_err_set(err, FLASHQ_ERR_CONFIG, "%s: %zu bytes are above the limit of %u", name,
                          length, FQ_CONF_FILE_BYTES_MAX);
    }
    l.lines = calloc(table->keys_count + 1, sizeof *l.lines);
    yaml_parser_t parser;
    if (!l.lines || !yaml_parser_initialize(&parser)) {
        free(l.lines);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "%s: out of memory", name);
    }
    yaml_parser_set_input_string(&parser, bytes, length);
    int code = parse(&l, &parser);
    yaml_parser_delete(&parser);
    free(l.lines);
    return code;
}

int fq_conf_load_file(const struct fq_conf_table *table, void *config, const char *path,
                      struct fq_err *err)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return fq_err_errno(err, FLASHQ_ERR_CONFIG, errno, "%s", path);
    }
    int code;
    char *bytes = malloc(FQ_CONF_FILE_BYTES_MAX + 1);
    size_t length = bytes ? fread(bytes, 1, FQ_CONF_FILE_BYTES_MAX + 1, file) : 0;
    if (!bytes) {
        code = fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "%s: out of memory", path);
    } else if (ferror(file)) {
        code = fq_err_errno(err, FLASHQ_ERR_CONFIG, errno, "%s", path);
    } else {
        code = fq_conf_load_bytes(table, config, path, bytes, length, err);
    }
    free(bytes);
    (void)fclose(file);
    return code;
}
