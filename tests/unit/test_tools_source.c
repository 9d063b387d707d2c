/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/options.h"
#include "tools/source.h"

/* Runs the bytes through a pipe and a source; the records as "key=value|", null as "~". */
static const char *records_of(const struct fq_source_params *params, const char *bytes,
                              size_t length)
{
    static struct fq_buf out;
    int ends[2];
    struct fq_rec rec = {0};
    struct fq_fault fault = {""};
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], bytes, length), (ssize_t)length);
    (void)close(ends[1]);
    struct fq_source *source = fq_source_create(params, ends[0], "standard input");
    out.length = 0;
    int result;
    while ((result = fq_source_next(source, &rec, &fault)) == 1) {
        if (rec.key) {
            fq_buf_add(&out, rec.key, rec.key_length);
        } else {
            fq_buf_add_text(&out, "~");
        }
        fq_buf_add_text(&out, "=");
        if (rec.value) {
            fq_buf_add(&out, rec.value, rec.value_length);
        } else {
            fq_buf_add_text(&out, "~");
        }
        fq_buf_add_text(&out, "|");
    }
    if (result < 0) {
        fq_buf_add_text(&out, fault.text);
    }
    fq_source_destroy(source);
    fq_rec_fini(&rec);
    (void)close(ends[0]);
    return fq_buf_text(&out);
}

static const char *lines_of(const char *delimiter, const char *key_delimiter, const char *text)
{
    struct fq_source_params params = {.mode = FQ_SOURCE_LINES};
    fq_buf_add_text(&params.delimiter, delimiter);
    fq_buf_add_text(&params.key_delimiter, key_delimiter);
    const char *result = records_of(&params, text, strlen(text));
    fq_buf_fini(&params.delimiter);
    fq_buf_fini(&params.key_delimiter);
    return result;
}

/* case 34 */
Test(source, the_final_newline_is_neither_added_nor_lost)
{
    cr_assert_str_eq(lines_of("\n", "", "a\nb\n"), "~=a|~=b|");
    cr_assert_str_eq(lines_of("\n", "", "a\nb"), "~=a|~=b|");
    cr_assert_str_eq(lines_of("\n", "", "\n\n"), "~=|~=|");
    cr_assert_str_eq(lines_of("\n", "", ""), "");
    cr_assert_str_eq(lines_of("\n", "", "a\r\nb\r\n"), "~=a\r|~=b\r|", "CR is kept");
}

/* case 34 */
Test(source, delimiters_of_several_bytes)
{
    cr_assert_str_eq(lines_of("--\n", "", "a-\nb--\nc---\nd"), "~=a-\nb|~=c-|~=d|");
    cr_assert_str_eq(lines_of("ab", "", "aabab"), "~=a|~=|");
    cr_assert_str_eq(lines_of("\n", "::", "k::v::w\nplain\n::\n"), "k=v::w|~=plain|=|");
}

/* case 34: all byte values, as one record and in lines */
Test(source, all_256_byte_values)
{
    char bytes[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
    }
    struct fq_source_params params = {.mode = FQ_SOURCE_WHOLE};
    const char *got = records_of(&params, bytes, sizeof bytes);
    cr_assert_eq(memcmp(got, "~=", 2), 0);
    cr_assert_eq(memcmp(got + 2, bytes, sizeof bytes), 0);
    cr_assert_str_eq(got + 258, "|");
    cr_assert_str_eq(records_of(&params, "", 0), "~=|", "nothing at all is one empty record");
}

Test(source, json_lines_name_the_line)
{
    struct fq_source_params params = {.mode = FQ_SOURCE_JSONL};
    const char good[] = "{\"value\":\"a\"}\n\n \r\n{\"key\":\"k\",\"value\":null}";
    cr_assert_str_eq(records_of(&params, good, strlen(good)), "~=a|k=~|");
    const char bad[] = "{\"value\":\"a\"}\n\n{\"value\":7}\n";
    cr_assert_str_eq(records_of(&params, bad, strlen(bad)),
                     "~=a|standard input: line 3: \"value\" must be a string or null");
}

Test(source, a_format_over_a_pipe)
{
    struct fq_source_params params = {.mode = FQ_SOURCE_FORMAT};
    struct fq_format *format = NULL;
    cr_assert_eq(fq_format_compile("%K{byte}%V{byte}%k%v", &format, NULL), 0);
    params.format = format;
    cr_assert_str_eq(records_of(&params, "\1\2kvv\xff\0\0\xff", 9), "k=vv|~=|=~|");
    fq_format_free(format);
}

/* ---- options ------------------------------------------------------------------------------- */

static const struct fq_opt own[] = {
    {1, 'e', "exit", NULL, "x"},   {2, 'o', "offset", "OFFSET", "x"},
    {3, 'Z', "null", NULL, "x"},   {2, 0, "from", "OFFSET", NULL},
    {4, 'n', NULL, "N", "x"},      {0, 0, NULL, NULL, NULL},
};
static const struct fq_opt common[] = {
    {1, 'b', "brokers", "BROKERS", "x"},
    {2, 'h', "help", NULL, "x"},
    {0, 0, NULL, NULL, NULL},
};

static const char *parsed(const char *const *words)
{
    static char out[1024];
    int argc = 0;
    char *argv[16];
    for (; words[argc]; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc];
    }
    struct fq_opt_parser parser = {.argc = argc, .argv = argv, .own = own, .common = common};
    struct fq_fault fault;
    const char *value;
    bool is_common;
    int id;
    out[0] = '\0';
    while ((id = fq_opt_next(&parser, &value, &is_common, &fault)) != FQ_OPT_END) {
        size_t used = strlen(out);
        if (id == FQ_OPT_FAULT) {
            (void)snprintf(out + used, sizeof out - used, "%s", fault.text);
            break;
        }
        (void)snprintf(out + used, sizeof out - used, "%s%d:%s ", is_common ? "c" : "", id,
                       value ? value : "");
    }
    return out;
}

#define PARSED(...) parsed((const char *const[]){__VA_ARGS__, NULL})

Test(options, every_way_to_write_them)
{
    cr_assert_str_eq(PARSED("t", "-e", "-o", "5", "u"), "-1:t 1: 2:5 -1:u ");
    cr_assert_str_eq(PARSED("-o-5", "-o", "-5", "--offset=-5", "--offset", "--x"),
                     "2:-5 2:-5 2:-5 2:--x ");
    cr_assert_str_eq(PARSED("-eZn7", "-eZ"), "1: 3: 4:7 1: 3: ");
    cr_assert_str_eq(PARSED("-", "--", "-e", "--", "-"), "-1:- -1:-e -1:-- -1:- ");
    cr_assert_str_eq(PARSED("--from", "end", "-b", "x:1", "--help"), "2:end c1:x:1 c2: ");
    cr_assert_str_eq(PARSED("--offset="), "2: ");
}

Test(options, what_is_wrong_is_named)
{
    cr_assert_str_eq(PARSED("--ofset", "5"), "unknown option --ofset (did you mean --offset?)");
    cr_assert_str_eq(PARSED("--frobnicate"), "unknown option --frobnicate");
    cr_assert_str_eq(PARSED("-ex"), "1: unknown option -x");
    cr_assert_str_eq(PARSED("-o"), "option -o needs a value: OFFSET");
    cr_assert_str_eq(PARSED("--exit=1"), "option --exit takes no value");
}
