/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/options.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 96

static const struct fq_opt *find_letter(const struct fq_opt_parser *parser, char letter)
{
    const struct fq_opt *tables[] = {parser->own, parser->common};
    for (size_t i = 0; i < 2; i++) {
        for (const struct fq_opt *opt = tables[i]; opt && opt->id != 0; opt++) {
            if (opt->letter != '\0' && opt->letter == letter) {
                return opt;
            }
        }
    }
    return NULL;
}

static const struct fq_opt *find_name(const struct fq_opt_parser *parser, const char *name,
                                      size_t length)
{
    const struct fq_opt *tables[] = {parser->own, parser->common};
    for (size_t i = 0; i < 2; i++) {
        for (const struct fq_opt *opt = tables[i]; opt && opt->id != 0; opt++) {
            if (opt->name && strlen(opt->name) == length &&
                strncmp(opt->name, name, length) == 0) {
                return opt;
            }
        }
    }
    return NULL;
}

static bool is_in(const struct fq_opt *table, const struct fq_opt *opt)
{
    for (; table && table->id != 0; table++) {
        if (table == opt) {
            return true;
        }
    }
    return false;
}

static int unknown_name(const struct fq_opt_parser *parser, const char *name, size_t length,
                        struct fq_fault *fault)
{
    const struct fq_opt *tables[] = {parser->own, parser->common};
    const char *names[NAMES_MAX + 1] = {NULL};
    char word[64] = {0};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        for (const struct fq_opt *opt = tables[i]; opt && opt->id != 0; opt++) {
            if (opt->name && opt->help && count < NAMES_MAX) {
                names[count++] = opt->name;
            }
        }
    }
    memcpy(word, name, length < sizeof word - 1 ? length : sizeof word - 1);
    const char *near = fq_closest(word, names);
    (void)fq_fault_set(fault, "unknown option --%s%s%s%s", word, near ? " (did you mean --" : "",
                       near ? near : "", near ? "?)" : "");
    return FQ_OPT_FAULT;
}

static int take_value(struct fq_opt_parser *parser, const char *spelled, const char **ret_value,
                      const struct fq_opt *opt, struct fq_fault *fault)
{
    if (parser->index >= parser->argc) {
        (void)fq_fault_set(fault, "option %s needs a value: %s", spelled, opt->arg);
        return FQ_OPT_FAULT;
    }
    *ret_value = parser->argv[parser->index++];
    return opt->id;
}

static int next_long(struct fq_opt_parser *parser, const char *word, const char **ret_value,
                     bool *ret_is_common, struct fq_fault *fault)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct fq_opt *opt = find_name(parser, name, length);
    if (!opt) {
        return unknown_name(parser, name, length, fault);
    }
    *ret_is_common = is_in(parser->common, opt);
    if (!opt->arg) {
        if (equals) {
            (void)fq_fault_set(fault, "option --%s takes no value", opt->name);
            return FQ_OPT_FAULT;
        }
        return opt->id;
    }
    if (equals) {
        *ret_value = equals + 1;
        return opt->id;
    }
    return take_value(parser, word, ret_value, opt, fault);
}

static int next_letter(struct fq_opt_parser *parser, const char **ret_value,
                       bool *ret_is_common, struct fq_fault *fault)
{
    char letter = *parser->cluster++;
    const char spelled[] = {'-', letter, '\0'};
    const struct fq_opt *opt = find_letter(parser, letter);
    if (!opt) {
        (void)fq_fault_set(fault, "unknown option %s", spelled);
        return FQ_OPT_FAULT;
    }
    *ret_is_common = is_in(parser->common, opt);
    if (opt->arg && *parser->cluster != '\0') {
        *ret_value = parser->cluster;
        parser->cluster = NULL;
        return opt->id;
    }
    if (*parser->cluster == '\0') {
        parser->cluster = NULL;
    }
    return opt->arg ? take_value(parser, spelled, ret_value, opt, fault) : opt->id;
}

int fq_opt_next(struct fq_opt_parser *parser, const char **ret_value, bool *ret_is_common,
                struct fq_fault *fault)
{
    *ret_value = NULL;
    *ret_is_common = false;
    if (parser->cluster) {
        return next_letter(parser, ret_value, ret_is_common, fault);
    }
    if (parser->index >= parser->argc) {
        return FQ_OPT_END;
    }
    const char *word = parser->argv[parser->index++];
    if (!parser->is_over && strcmp(word, "--") == 0) {
        parser->is_over = true;
        return fq_opt_next(parser, ret_value, ret_is_common, fault);
    }
    if (parser->is_over || word[0] != '-' || word[1] == '\0') {
        *ret_value = word;
        return FQ_OPT_ARGUMENT;
    }
    if (word[1] == '-') {
        return next_long(parser, word, ret_value, ret_is_common, fault);
    }
    parser->cluster = word + 1;
    return next_letter(parser, ret_value, ret_is_common, fault);
}

void fq_opt_describe(const struct fq_opt *table, struct fq_buf *out)
{
    for (const struct fq_opt *opt = table; opt && opt->id != 0; opt++) {
        char left[64];
        if (!opt->help) {
            continue;
        }
        const char letter[] = {'-', opt->letter, '\0'};
        (void)snprintf(left, sizeof left, "%s%s%s%s%s%s", opt->letter ? letter : "   ",
                       opt->name ? (opt->letter ? ", " : " ") : "", opt->name ? "--" : "",
                       opt->name ? opt->name : "", opt->arg ? " " : "", opt->arg ? opt->arg : "");
        fq_buf_printf(out, "  %-30s %s\n", left, opt->help);
    }
}
