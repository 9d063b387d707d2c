/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: one table of keys per program turns text into a plain struct, and the same table
 * prints the help, checks the reference file and answers "which value is in force".
 *
 *     struct my_config { char data_dir[FQ_LIMIT_PATH_BYTES]; int64_t shards; bool insecure; };
 *     static const struct fq_conf_key keys[] = {
 *         {.name = "data.dir", .type = FQ_CONF_STRING, .default_value = "/var/lib/flashq",
 *          .min = 1, .max = FQ_LIMIT_PATH_BYTES - 1, .offset = offsetof(struct my_config,
 * data_dir), .help = "where the logs are kept"},
 *
 * The struct is plain data and may be copied by assignment. Errors name the key, the value, the
 * limit and, for a misspelt key, the closest known one; those of a file are preceded by "FILE:LINE:
 * ". No state; any thread (on different structs).
 */
#ifndef FQ_CONF_CONF_H
#define FQ_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What the key's field is declared as. */
enum fq_conf_type {
    FQ_CONF_STRING,      /* char[max + 1]; min and max bound its length in bytes */
    FQ_CONF_BOOL,        /* bool; true/false, yes/no, on/off */
    FQ_CONF_INT,         /* int64_t */
    FQ_CONF_BYTES,       /* int64_t; units of units.h */
    FQ_CONF_DURATION_MS, /* int64_t in milliseconds */
    FQ_CONF_DURATION_US, /* int64_t in microseconds */
    FQ_CONF_DURATION_MS_FINE, /* int64_t in microseconds, but a bare number counts in milliseconds */
    FQ_CONF_CHOICE       /* int64_t; one of `words` and nothing else */
};

/* A word that stands for a value: all of a CHOICE's, or what a number accepts beside digits ("auto"
 * is 0, "off" is -1). A number's words may lie outside [min, max]. A list ends with word NULL. */
struct fq_conf_word {
    const char *word;
    int64_t value;
};

struct fq_conf_key {
    const char *name; /* dotted, lower case */
    enum fq_conf_type type;
    const char *default_value; /* as a user would write it; NULL is "" */
    int64_t min, max;          /* inclusive; both 0 for a BOOL and a CHOICE */
    const struct fq_conf_word *words;
    const char *aliases; /* other names accepted (Kafka's), separated by one space; NULL: none */
    size_t offset;       /* of the field in the struct */
    const char *help;    /* one sentence, no final stop */
};

struct fq_conf_table {
    const struct fq_conf_key *keys;
    size_t keys_count;
};

/* Sets every field to its default. Asserts that the table's own defaults are valid. */
void fq_conf_defaults(const struct fq_conf_table *table, void *config);

/* The key of that name or alias, or NULL. */
const struct fq_conf_key *fq_conf_find(const struct fq_conf_table *table, const char *name);
/* The known name closest to a misspelt one, or NULL when nothing is close. */
const char *fq_conf_suggest(const struct fq_conf_table *table, const char *name);

/* CONFIG, with a text, for an unknown key or a bad value; the struct is then unchanged. */
int fq_conf_set(const struct fq_conf_table *table, void *config, const char *name,
                const char *value, struct fq_err *err);
/* The same from one "key=value". */
int fq_conf_set_pair(const struct fq_conf_table *table, void *config, const char *pair,
                     struct fq_err *err);

/* Writes the value in force as a user would write it and returns `buffer`. */
const char *fq_conf_get(const struct fq_conf_key *key, const void *config, char *buffer,
                        size_t bytes);
/* "size, 1MiB to 512GiB" or "auto | pmem | sync": what the key accepts. Returns `buffer`. */
const char *fq_conf_accepts(const struct fq_conf_key *key, char *buffer, size_t bytes);

#endif
