/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/random.h"
#include "tools/format.h"
#include "tools/json_record.h"

static struct fq_rec sample(void)
{
    struct fq_rec rec = {0};
    fq_rec_clear(&rec);
    rec.topic = "logs";
    rec.partition = 3;
    rec.offset = INT64_C(4294967297);
    rec.timestamp_ms = INT64_C(1796040000123);
    rec.key = "k1";
    rec.key_length = 2;
    rec.value = "a\0b";
    rec.value_length = 3;
    fq_rec_add_header(&rec, "h", 1, "v", 1);
    fq_rec_add_header(&rec, "h", 1, NULL, 0);
    fq_rec_add_header(&rec, "", 0, "", 0);
    return rec;
}

static void renders(const char *text, const struct fq_rec *rec, const void *bytes, size_t length)
{
    struct fq_format *format = NULL;
    struct fq_buf out = {0};
    struct fq_fault fault = {""};
    cr_assert_eq(fq_format_compile(text, &format, &fault), 0, "%s: %s", text, fault.text);
    cr_assert_eq(fq_format_render(format, rec, &out, &fault), 0, "%s: %s", text, fault.text);
    cr_assert(out.length == length && memcmp(out.data, bytes, length) == 0, "%s gave %.*s", text,
              (int)out.length, (const char *)out.data);
    fq_buf_fini(&out);
    fq_format_free(format);
}

#define RENDERS(text, rec, expected) renders(text, rec, expected, sizeof expected - 1)

Test(format, every_verb_and_modifier)
{
    struct fq_rec rec = sample();
    RENDERS("%t[%p] %o %k %T\n", &rec, "logs[3] 4294967297 k1 1796040000123\n");
    RENDERS("%v|%s", &rec, "a\0b|a\0b");
    RENDERS("%K %V %S %H", &rec, "2 3 3 3");
    RENDERS("%R%v", &rec, "\0\0\0\3a\0b");
    RENDERS("%V{big4}%v", &rec, "\0\0\0\3a\0b");
    RENDERS("%V{big32}%V{little2}%V{byte}%V{little8}", &rec, "\0\0\0\3\3\0\3\3\0\0\0\0\0\0\0");
    RENDERS("%o{hex} %o{big8}", &rec, "100000001 \0\0\0\1\0\0\0\1");
    RENDERS("%v{hex} %v{base64} %k{raw} %p{ascii}", &rec, "610062 YQBi k1 3");
    RENDERS("%h", &rec, "h=v,h,=");
    RENDERS("%h{<%k:%v/%V>}", &rec, "<h:v/1><h:/-1><:/0>");
    RENDERS("%d", &rec, "2026-11-30T12:00:00.123Z");
    RENDERS("%d{strftime[%Y %j]}", &rec, "2026 334");
    RENDERS("100%% %{%}\\t\\r\\0\\\\\\x41", &rec, "100% {}\t\r\0\\A");
    RENDERS("plain", &rec, "plain");
    fq_rec_fini(&rec);
}

/* case 30, case 38 */
Test(format, null_is_minus_one_long_and_never_the_word)
{
    struct fq_rec rec = {0};
    fq_rec_clear(&rec);
    rec.value = "";
    RENDERS("[%k][%v] %K %V", &rec, "[][] -1 0");
    RENDERS("%K{big4}%V{big4}", &rec, "\xff\xff\xff\xff\0\0\0\0");
    RENDERS("%K{hex}%K{little2}", &rec, "-1\xff\xff");
}

Test(format, a_number_that_does_not_fit_is_an_error_and_prints_nothing)
{
    struct fq_rec rec = sample();
    struct fq_format *format = NULL;
    struct fq_buf out = {0};
    struct fq_fault fault;
    cr_assert_eq(fq_format_compile("x%o{big4}", &format, NULL), 0);
    cr_assert_neq(fq_format_render(format, &rec, &out, &fault), 0);
    cr_assert_eq(out.length, 0);
    cr_assert_str_eq(fault.text,
                     "format, at character 2: 4294967297 does not fit in 4 signed bytes");
    fq_format_free(format);
    fq_buf_fini(&out);
    fq_rec_fini(&rec);
}

Test(format, faults_name_the_character)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        {"", "it is empty"},
        {"ab%", "character 3: nothing is not known"},
        {"%q", "character 1: %q is not known"},
        {"%v{big4}", "character 3: {big4} is no modifier of a text"},
        {"%V{base64}", "character 3: {base64} is no modifier of a number"},
        {"%V{big3}", "character 3: {big3}"},
        {"%V{big4", "character 3: the brace is not closed"},
        {"a\\q", "character 2: a backslash"},
        {"\\x4", "character 1: a backslash"},
        {"\\", "character 1: a backslash"},
        {"%h{%k", "character 3: the brace of %h{ is not closed"},
        {"%h{%o}", "character 4: inside %h{}"},
        {"%h{%v{nope}}", "character 6: {nope}"},
        {"%d{hex}", "character 3: %d takes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fq_format *format = NULL;
        struct fq_fault fault = {""};
        cr_assert_neq(fq_format_compile(cases[i].text, &format, &fault), 0, "%s", cases[i].text);
        cr_assert(strstr(fault.text, cases[i].where), "%s: %s", cases[i].text, fault.text);
    }
}

Test(format, what_cannot_be_told_apart_is_not_readable)
{
    static const struct {
        const char *text, *why; /* NULL: readable */
    } cases[] = {
        {"%v\n", NULL},
        {"%v", NULL},
        {"%k\t%v\n", NULL},
        {"%V{big4}%v", NULL},
        {"%V:%v,", NULL},
        {"%K{byte}%V{little4}%k%v", NULL},
        {"%T %v{hex}\n", NULL},
        {"%d %v\n", NULL},
        {"%H{big4}%h{%K{big4}%k%V{big4}%v}%v\n", NULL},
        {"%k%v\n", "character 1: nothing tells where this ends"},
        {"%V%v", "character 1: nothing tells where this number ends"},
        {"%V1%v", "character 1: nothing tells where this number ends"},
        {"%V{hex}a%v", "character 1: nothing tells where this number ends"},
        {"%v%V{big4}", "character 1: nothing tells where this ends"},
        {"%v %v\n", "character 4: this was there before"},
        {"%h %v\n", "character 1: to be read, headers need"},
        {"%H{big4}%h{%k}%v\n", "character 12: nothing tells"},
        {"%d{strftime[%Y]} %v\n", "strftime is for printing only"},
        {"%o\n", "neither a key nor a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fq_format *format = NULL;
        struct fq_fault fault = {""};
        cr_assert_eq(fq_format_compile(cases[i].text, &format, &fault), 0, "%s", fault.text);
        int result = fq_format_check_readable(format, &fault);
        if (cases[i].why) {
            cr_assert_neq(result, 0, "%s", cases[i].text);
            cr_assert(strstr(fault.text, cases[i].why), "%s: %s", cases[i].text, fault.text);
        } else {
            cr_assert_eq(result, 0, "%s: %s", cases[i].text, fault.text);
        }
        fq_format_free(format);
    }
}

/* ---- reading back -------------------------------------------------------------------------- */

static uint64_t new_seed(void)
{
    uint64_t seed = 0;
    const char *given = getenv("FLASHQ_TEST_SEED");
    if (given) {
        seed = strtoull(given, NULL, 0);
    } else {
        cr_assert_eq(getrandom(&seed, sizeof seed, 0), (ssize_t)sizeof seed);
    }
    (void)fprintf(stderr, "# FLASHQ_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

#define POOL_BYTES 4096

struct generator {
    struct fq_prng prng;
    uint8_t pool[POOL_BYTES];
};

static const void *random_bytes(struct generator *g, size_t *length, bool may_be_null)
{
    uint64_t kind = fq_prng_below(&g->prng, 8);
    if (kind == 0 && may_be_null) {
        *length = 0;
        return NULL;
    }
    *length = kind == 1 ? 0 : (size_t)fq_prng_below(&g->prng, kind == 2 ? 300 : 12);
    return g->pool + fq_prng_below(&g->prng, POOL_BYTES - 300);
}

static void random_record(struct generator *g, struct fq_rec *rec)
{
    fq_rec_clear(rec);
    rec->partition = (int32_t)fq_prng_below(&g->prng, 1000);
    rec->offset = (int64_t)(fq_prng_next(&g->prng) >> 1);
    rec->timestamp_ms = (int64_t)(fq_prng_next(&g->prng) >> 1);
    rec->key = random_bytes(g, &rec->key_length, true);
    rec->value = random_bytes(g, &rec->value_length, true);
    for (uint64_t n = fq_prng_below(&g->prng, 4); n > 0; n--) {
        size_t name_length, value_length;
        const void *name = random_bytes(g, &name_length, false);
        const void *value = random_bytes(g, &value_length, true);
        fq_rec_add_header(rec, name, name_length, value, value_length);
    }
}

static void generator_init(struct generator *g, uint64_t seed)
{
    fq_prng_seed(&g->prng, seed);
    for (size_t i = 0; i < POOL_BYTES; i++) {
        /* half text, half anything: both branches of the JSON printer */
        uint64_t bits = fq_prng_next(&g->prng);
        g->pool[i] = (uint8_t)(i < POOL_BYTES / 2 ? ' ' + bits % 95 : bits);
    }
}

static bool same_bytes(const void *a, size_t a_length, const void *b, size_t b_length)
{
    return !a == !b && a_length == b_length && (!a || memcmp(a, b, a_length) == 0);
}

static void assert_same(const struct fq_rec *a, const struct fq_rec *b, bool has_headers)
{
    cr_assert(same_bytes(a->key, a->key_length, b->key, b->key_length));
    cr_assert(same_bytes(a->value, a->value_length, b->value, b->value_length));
    if (!has_headers) {
        return;
    }
    cr_assert_eq(a->headers_count, b->headers_count);
    for (size_t i = 0; i < a->headers_count; i++) {
        const flashq_header *x = &a->headers[i], *y = &b->headers[i];
        cr_assert(same_bytes(x->name, x->name_length, y->name, y->name_length));
        cr_assert(same_bytes(x->value, x->value_length, y->value, y->value_length));
    }
}

/* Feeds `stream` in random pieces, as a pipe would, and checks each record against its like. */
static void read_all(struct generator *g, const struct fq_format *format, const struct fq_buf *stream,
                     const struct fq_rec *expected, size_t count, bool has_headers)
{
    struct fq_format_reader *reader = fq_format_reader_create(format);
    struct fq_rec rec = {0};
    struct fq_fault fault = {""};
    uint8_t *data = malloc(stream->length + 1);
    memcpy(data, stream->data, stream->length);
    size_t at = 0, seen = 0, records = 0;
    for (;;) {
        size_t used = 0;
        int result = fq_format_read(reader, data + at, seen - at, seen == stream->length, &used,
                                    &rec, &fault);
        cr_assert_geq(result, 0, "%s", fault.text);
        if (result == FQ_FORMAT_MORE) {
            size_t left = stream->length - seen;
            seen += 1 + (size_t)fq_prng_below(&g->prng, left < 40 ? left : 40);
        } else if (result == FQ_FORMAT_RECORD) {
            cr_assert_lt(records, count);
            assert_same(&rec, &expected[records++], has_headers);
            at += used;
        } else {
            break;
        }
    }
    cr_assert_eq(records, count);
    free(data);
    fq_rec_fini(&rec);
    fq_format_reader_destroy(reader);
}

/* case 30, 31, 34: nulls, empties, duplicate headers and all byte values survive */
Test(format, random_records_come_back_whatever_the_pieces)
{
    static const struct {
        const char *text;
        bool has_headers;
    } formats[] = {
        {"%K{big4}%V{big4}%k%v", false},
        {"%K{little2}%k%V{little8}%v\n", false},
        {"<%K/%V>%k%v", false},
        {"%K{hex} %k{hex} %V %v{base64}\n", false},
        {"%p %o %T %K{big4}%k%V{big4}%v%H{big2}%h{%K{big2}%k%V{big4}%v}", true},
        {"%H:%h{%K,%V,%k{hex}%v{base64};}%K{big2}%V{big2}%k%v", true},
    };
    struct generator g;
    generator_init(&g, new_seed());
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct fq_format *format = NULL;
        struct fq_fault fault = {""};
        cr_assert_eq(fq_format_compile(formats[f].text, &format, &fault), 0, "%s", fault.text);
        cr_assert_eq(fq_format_check_readable(format, &fault), 0, "%s", fault.text);
        struct fq_rec records[50] = {{0}};
        struct fq_buf stream = {0};
        for (size_t i = 0; i < 50; i++) {
            random_record(&g, &records[i]);
            cr_assert_eq(fq_format_render(format, &records[i], &stream, &fault), 0, "%s",
                         fault.text);
        }
        read_all(&g, format, &stream, records, 50, formats[f].has_headers);
        for (size_t i = 0; i < 50; i++) {
            fq_rec_fini(&records[i]);
        }
        fq_buf_fini(&stream);
        fq_format_free(format);
    }
}

/* Reads `input` by `text`; the values joined by '|', or the fault. */
static const char *values_of(const char *text, const char *input, size_t length)
{
    static char out[600];
    struct fq_format *format = NULL;
    struct fq_fault fault = {""};
    struct fq_rec rec = {0};
    cr_assert_eq(fq_format_compile(text, &format, &fault), 0, "%s", fault.text);
    struct fq_format_reader *reader = fq_format_reader_create(format);
    uint8_t *data = malloc(length + 1);
    memcpy(data, input, length);
    size_t at = 0, used = 0;
    int result;
    out[0] = '\0';
    while ((result = fq_format_read(reader, data + at, length - at, true, &used, &rec, &fault)) ==
           FQ_FORMAT_RECORD) {
        size_t have = strlen(out);
        (void)snprintf(out + have, sizeof out - have, "%.*s=%.*s|", (int)rec.key_length,
                       (const char *)rec.key, (int)rec.value_length, (const char *)rec.value);
        at += used;
    }
    if (result < 0) {
        (void)snprintf(out, sizeof out, "%s", fault.text);
    }
    free(data);
    fq_rec_fini(&rec);
    fq_format_reader_destroy(reader);
    fq_format_free(format);
    return out;
}

/* case 34 */
Test(format, a_final_line_without_its_newline_is_a_record)
{
    cr_assert_str_eq(values_of("%v\n", "a\n\nb", 4), "=a|=|=b|");
    cr_assert_str_eq(values_of("%v\n", "a\n", 2), "=a|");
    cr_assert_str_eq(values_of("%k\t%v\n", "k\tv\nk2\tv\r", 10), "k=v|k2=v\r|");
    cr_assert_str_eq(values_of("%v<>", "a<b<>c<", 7), "=a<b|=c<|");
    cr_assert_str_eq(values_of("%V %v\n", "1 a\n2 bc", 8), "=a|=bc|");
    cr_assert_str_eq(values_of("%v", "all\nof it", 9), "=all\nof it|");
}

Test(format, input_that_does_not_fit_names_the_byte)
{
    cr_assert_str_eq(values_of("%V{big4}%v", "\0\0\0\1a\0\0\0\5abc", 12),
                     "input, at byte 9 (character 9 of the format): the input ends inside a record");
    cr_assert_str_eq(values_of("%k\t%v\n", "k\tv\nlost\n", 9),
                     "input, at byte 4 (character 1 of the format): the input ends inside a record");
    cr_assert_str_eq(values_of("%V,%v\n", "3;abc\n", 6),
                     "input, at byte 1 (character 3 of the format): the input is not what the "
                     "format says");
    cr_assert_str_eq(values_of("%V{big4}%v", "\x7f\xff\xff\xff", 4),
                     "input, at byte 0 (character 1 of the format): a length is from -1 (null) to "
                     "67108864, the most a record can have");
    cr_assert_str_eq(values_of("%v{hex}\n", "6g\n", 3),
                     "input, at byte 0 (character 1 of the format): the text is not in the encoding "
                     "the format says");
    cr_assert_str_eq(values_of("%T,%v\n", "x,\n", 3),
                     "input, at byte 0 (character 1 of the format): expected a number");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* case 30, 31, 38 */
Test(json, random_records_come_back)
{
    struct generator g;
    generator_init(&g, new_seed());
    struct fq_json_reader *reader = fq_json_reader_create();
    struct fq_rec rec = {0}, back = {0};
    struct fq_buf line = {0};
    struct fq_fault fault = {""};
    for (size_t i = 0; i < 2000; i++) {
        random_record(&g, &rec);
        rec.topic = "t";
        line.length = 0;
        fq_json_add_record(&line, &rec, true);
        cr_assert_eq(line.data[line.length - 1], '\n');
        cr_assert_null(memchr(line.data, '\n', line.length - 1), "one line");
        cr_assert(fq_utf8_is_valid(line.data, line.length));
        cr_assert_eq(fq_json_read(reader, line.data, line.length, &back, &fault), 0, "%s in %s",
                     fault.text, fq_buf_text(&line));
        assert_same(&rec, &back, true);
        cr_assert_eq(back.partition, rec.partition);
        cr_assert_eq(back.timestamp_ms, rec.timestamp_ms);
    }
    fq_rec_fini(&rec);
    fq_rec_fini(&back);
    fq_buf_fini(&line);
    fq_json_reader_destroy(reader);
}

static void prints_json(const struct fq_rec *rec, bool has_content, const char *expected)
{
    struct fq_buf line = {0};
    fq_json_add_record(&line, rec, has_content);
    cr_assert_str_eq(fq_buf_text(&line), expected);
    fq_buf_fini(&line);
}

Test(json, what_a_line_looks_like)
{
    struct fq_rec rec = sample();
    prints_json(&rec, true,
                "{\"topic\":\"logs\",\"partition\":3,\"offset\":4294967297,"
                "\"timestamp_ms\":1796040000123,\"key\":\"k1\",\"value\":\"a\\u0000b\","
                "\"headers\":[{\"name\":\"h\",\"value\":\"v\"},{\"name\":\"h\",\"value\":null},"
                "{\"name\":\"\",\"value\":\"\"}]}\n");
    prints_json(&rec, false,
                "{\"topic\":\"logs\",\"partition\":3,\"offset\":4294967297,"
                "\"timestamp_ms\":1796040000123,\"key_bytes\":2,\"value_bytes\":3}\n");
    fq_rec_fini(&rec);
    fq_rec_clear(&rec);
    rec.topic = "t";
    rec.key = "\xc0\x80";
    rec.key_length = 2;
    rec.value = "\"\\\b\f\n\r\t\x01\x7f\xc3\xa9";
    rec.value_length = 11;
    rec.timestamp_ms = INT64_MAX;
    rec.offset = INT64_MAX;
    prints_json(&rec, true,
                "{\"topic\":\"t\",\"partition\":-1,\"offset\":9223372036854775807,"
                "\"timestamp_ms\":9223372036854775807,\"key_b64\":\"wIA=\","
                "\"value\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007f\xc3\xa9\",\"headers\":[]}\n");
}

static const char *json_fault(const char *line)
{
    static struct fq_fault fault;
    struct fq_json_reader *reader = fq_json_reader_create();
    struct fq_rec rec = {0};
    (void)snprintf(fault.text, sizeof fault.text, "taken");
    (void)fq_json_read(reader, line, strlen(line), &rec, &fault);
    fq_rec_fini(&rec);
    fq_json_reader_destroy(reader);
    return fault.text;
}

Test(json, what_is_no_record_is_refused_with_the_reason)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"{\"value\":\"x\"}", "taken"},
        {"{\"value\":null,\"new_field\":[1,{}]}", "taken"},
        {"{\"value\":\"x\",\"timestamp_ms\":9223372036854775807}", "taken"},
        {"{\"value\":\"x\",\"offset\":\"whatever\",\"topic\":7}", "taken"},
        {"{}", "\"value\" or \"value_b64\" is missing"},
        {"{\"val\":\"x\"}", "\"value\" or \"value_b64\" is missing"},
        {"[]", "a record is a JSON object"},
        {"\"x\"", "a record is a JSON object"},
        {"{\"value\":5}", "\"value\" must be a string or null"},
        {"{\"value\":\"x\",\"value_b64\":\"eA==\"}", "exclude each other"},
        {"{\"value_b64\":\"eA=\"}", "must be base64"},
        {"{\"value_b64\":\"eB==\"}", "must be base64"},
        {"{\"value_b64\":\"e A==\"}", "must be base64"},
        {"{\"value\":\"x\",\"timestamp_ms\":1.5}", "whole number"},
        {"{\"value\":\"x\",\"timestamp_ms\":9223372036854775808}", "big integer"},
        {"{\"value\":\"x\",\"partition\":2147483648}", "whole number"},
        {"{\"value\":\"x\",\"headers\":{}}", "must be an array"},
        {"{\"value\":\"x\",\"headers\":[{\"name\":\"a\"}]}", "header 1: \"value\" is missing"},
        {"{\"value\":\"x\",\"headers\":[{\"value\":\"a\"}]}", "header 1: \"name\" is missing"},
        {"{\"value\":\"x\",\"headers\":[7]}", "header 1: it must be an object"},
        {"{\"value\":\"x\",\"value\":\"y\"}", "duplicate"},
        {"{\"value\":\"\xff\"}", "at character"},
        {"{\"value\":\"\\ud800\"}", "at character"},
        {"{\"value\":\"x\"} trailing", "at character"},
        {"", "at character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = json_fault(cases[i].line);
        cr_assert(strstr(got, cases[i].why), "%s: %s", cases[i].line, got);
    }
}

Test(text, utf8_is_strict)
{
    static const struct {
        const char *bytes;
        bool is_valid;
    } cases[] = {
        {"", true},
        {"plain", true},
        {"\xc2\x80\xdf\xbf", true},
        {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", true},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", true},
        {"\x80", false},
        {"\xc0\x80", false},
        {"\xc1\xbf", false},
        {"\xc2", false},
        {"\xe0\x9f\xbf", false},
        {"\xed\xa0\x80", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"\xe2\x82", false},
        {"\xff", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(fq_utf8_is_valid(cases[i].bytes, strlen(cases[i].bytes)), cases[i].is_valid,
                     "case %zu", i);
    }
}

/* RFC 4648, section 10 */
Test(text, base64_vectors_and_every_length)
{
    static const char *const vectors[][2] = {
        {"", ""},         {"f", "Zg=="},         {"fo", "Zm8="},         {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct fq_buf out = {0};
        char back[16];
        fq_base64_encode(&out, vectors[i][0], strlen(vectors[i][0]));
        cr_assert_str_eq(fq_buf_text(&out), vectors[i][1]);
        ptrdiff_t length = fq_base64_decode(back, vectors[i][1], strlen(vectors[i][1]));
        cr_assert_eq(length, (ptrdiff_t)strlen(vectors[i][0]));
        cr_assert_eq(memcmp(back, vectors[i][0], (size_t)length), 0);
        fq_buf_fini(&out);
    }
    char out[16];
    static const char *const bad[] = {"A", "A===", "====", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z\ng="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(fq_base64_decode(out, bad[i], strlen(bad[i])), -1, "%s", bad[i]);
    }
    cr_assert_eq(fq_hex_decode(out, "00fFaB", 6), 3);
    cr_assert_eq(memcmp(out, "\x00\xff\xab", 3), 0);
    cr_assert_eq(fq_hex_decode(out, "0", 1), -1);
    cr_assert_eq(fq_hex_decode(out, "0x", 2), -1);
}
