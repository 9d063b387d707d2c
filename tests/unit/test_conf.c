/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of keys: units, every key of flashqd, files with errors, and the commented reference file.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "conf/conf_yaml.h"
#include "conf/units.h"
#include "options.h"

static struct fq_err err;

/* ---- units ---------------------------------------------------------------------------------- */

Test(units, sizes_are_exact_or_refused)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"512B", 512},
                {"1K", 1024},
                {"1k", 1024},
                {"64KiB", 65536},
                {"64MiB", 67108864},
                {"1MB", 1000000},
                {"2kB", 2000},
                {"1G", 1073741824},
                {"-1", -1},
                {"1TiB", INT64_C(1099511627776)},
                {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"",
                                      "-",
                                      "K",
                                      "1X",
                                      "1 K",
                                      " 1",
                                      "1.5K",
                                      "1Ki",
                                      "1mib",
                                      "0x10",
                                      "1KK",
                                      "9223372036854775808",
                                      "9223372036854775807K",
                                      "8388608TiB"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_bytes(good[i].text, &value, &err), 0, "%s", good[i].text);
        cr_assert_eq(value, good[i].value, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_bytes(bad[i], &value, &err), FLASHQ_ERR_INVALID, "%s", bad[i]);
        cr_assert_eq(value, -2, "%s", bad[i]);
    }
}

Test(units, spans_are_exact_or_refused)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0", 0},           {"5", 5},           {"500ms", 500},   {"2s", 2000},
                {"1m", 60000},      {"1h30m", 5400000}, {"1d", 86400000}, {"1w", 604800000},
                {"1m500ms", 60500}, {"3000us", 3},      {"-1", -1},
                {"1.5s", 1500},     {"0.25m", 15000},   {"1h0.5m", 3630000}};
    static const char *const bad[] = {"",      "h",    "1x",  "1h5",   "5 s",
                                      "30m1h", "1s1s", ".5s", "1us",   "9223372036854775807w",
                                      "1hh",   "1min", "1.s", "0.1ms", "1.5.5s",
                                      "0.0000000000001s", "9223372036854775807.5s"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_duration(good[i].text, 1000, &value, &err), 0, "%s", good[i].text);
        cr_assert_eq(value, good[i].ms, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_duration(bad[i], 1000, &value, &err), FLASHQ_ERR_INVALID, "%s",
                     bad[i]);
        cr_assert_eq(value, -2, "%s", bad[i]);
    }
}

Test(units, a_fraction_of_a_millisecond_is_exact_or_refused)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {{"0", 0},        {"5", 5000},     {"0.1", 100},  {"0.1ms", 100}, {"0.001", 1},
                {"100us", 100},  {"1.250", 1250}, {"2ms5us", 2005}, {"0.5s", 500000}};
    static const char *const bad[] = {"0.0001", "0.5us", "1..5", "ms", "0.1 ms"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_duration_us(good[i].text, 1000, &value, &err), 0, "%s", good[i].text);
        cr_assert_eq(value, good[i].us, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = -2;
        cr_assert_eq(fq_parse_duration_us(bad[i], 1000, &value, &err), FLASHQ_ERR_INVALID, "%s",
                     bad[i]);
        cr_assert_eq(value, -2, "%s", bad[i]);
    }
}

Test(units, what_is_printed_is_read_back_as_the_same)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    for (int i = 0; i < 20000; i++) {
        char text[64];
        int64_t value = (int64_t)(fq_prng_next(&prng) >> (1 + fq_prng_below(&prng, 62))), back;
        value &= ~((INT64_C(1) << fq_prng_below(&prng, 40)) - 1); /* round ones too */
        cr_assert_eq(fq_parse_bytes(fq_format_bytes(value, text, sizeof text), &back, &err), 0);
        cr_assert_eq(back, value, "%s, seed %llu", text, (unsigned long long)seed);
        value %= INT64_MAX / 1000;
        cr_assert_eq(fq_parse_duration(fq_format_duration(value, 1000, text, sizeof text), 1000,
                                       &back, &err),
                     0, "%s, seed %llu", text, (unsigned long long)seed);
        cr_assert_eq(back, value, "%s, seed %llu", text, (unsigned long long)seed);
    }
}

/* ---- tables --------------------------------------------------------------------------------- */

static struct fq_options options;

static void defaults(void)
{
    memset(&options, 0, sizeof options);
    fq_conf_defaults(&fq_options_table, &options);
}

Test(conf, every_key_has_a_valid_default_and_takes_what_it_prints, .init = defaults)
{
    for (size_t i = 0; i < fq_options_table.keys_count; i++) {
        const struct fq_conf_key *key = &fq_options_table.keys[i];
        char value[512], again[512], accepts[256];
        struct fq_options copy = options;
        fq_conf_get(key, &options, value, sizeof value);
        cr_assert_eq(fq_conf_set(&fq_options_table, &copy, key->name, value, &err), 0, "%s=%s: %s",
                     key->name, value, err.text);
        cr_assert_str_eq(fq_conf_get(key, &copy, again, sizeof again), value);
        cr_assert_eq(memcmp(&copy, &options, sizeof copy), 0, "%s", key->name);
        cr_assert_gt(strlen(key->help), 10, "%s", key->name);
        cr_assert_neq(key->help[strlen(key->help) - 1], '.', "%s", key->name);
        cr_assert_gt(strlen(fq_conf_accepts(key, accepts, sizeof accepts)), 3, "%s", key->name);
    }
}

Test(conf, every_key_is_held_to_its_limits, .init = defaults)
{
    for (size_t i = 0; i < fq_options_table.keys_count; i++) {
        const struct fq_conf_key *key = &fq_options_table.keys[i];
        char value[32], expected[64];
        if (key->type == FQ_CONF_STRING || key->type == FQ_CONF_BOOL ||
            key->type == FQ_CONF_CHOICE) {
            continue;
        }
        cr_assert_lt(key->min, key->max, "%s", key->name);
        if (key->min > 1) {
            (void)snprintf(value, sizeof value, "%lld", (long long)key->min - 1);
            cr_assert_eq(fq_conf_set(&fq_options_table, &options, key->name, value, &err),
                         FLASHQ_ERR_CONFIG, "%s=%s", key->name, value);
            cr_assert(strstr(err.text, "below the limit of"), "%s", err.text);
        }
        if (key->max < INT64_MAX / 1000) {
            (void)snprintf(value, sizeof value, "%lld", (long long)key->max + 1);
            cr_assert_eq(fq_conf_set(&fq_options_table, &options, key->name, value, &err),
                         FLASHQ_ERR_CONFIG, "%s=%s", key->name, value);
            (void)snprintf(expected, sizeof expected, "%s: \"%s\" is above the limit of ",
                           key->name, value);
            cr_assert_eq(strncmp(err.text, expected, strlen(expected)), 0, "%s", err.text);
        }
        for (int64_t bound = 0; bound < 2; bound++) {
            (void)snprintf(value, sizeof value, "%lld", (long long)(bound ? key->max : key->min));
            cr_assert_eq(fq_conf_set(&fq_options_table, &options, key->name, value, &err), 0,
                         "%s: %s", key->name, err.text);
        }
        cr_assert_eq(fq_conf_set(&fq_options_table, &options, key->name, "nonsense", &err),
                     FLASHQ_ERR_CONFIG);
        cr_assert(strstr(err.text, key->name) && strstr(err.text, "nonsense"), "%s", err.text);
    }
}

Test(conf, a_misspelt_key_is_answered_with_the_one_that_was_meant, .init = defaults)
{
    static const char *const pairs[][2] = {{"log.segmnt.bytes", "log.segment.bytes"},
                                           {"log.segment.byte", "log.segment.bytes"},
                                           {"lsiten.tcp", "listen.tcp"},
                                           {"shard", "shards"},
                                           {"flus", "flush"},
                                           {"data-dir", "data.dir"},
                                           {"message.max", "message.max.bytes"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char expected[256];
        cr_assert_eq(fq_conf_set(&fq_options_table, &options, pairs[i][0], "1", &err),
                     FLASHQ_ERR_CONFIG);
        (void)snprintf(expected, sizeof expected, "unknown key \"%s\" (did you mean \"%s\"?)",
                       pairs[i][0], pairs[i][1]);
        if (i + 1 < sizeof pairs / sizeof pairs[0]) {
            cr_assert_str_eq(err.text, expected);
        }
    }
    cr_assert_eq(fq_conf_set(&fq_options_table, &options, "zzzz", "1", &err), FLASHQ_ERR_CONFIG);
    cr_assert_str_eq(err.text, "unknown key \"zzzz\"");
}

Test(conf, words_and_aliases_and_pairs, .init = defaults)
{
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "timestamp.max.ahead=off", &err), 0);
    cr_assert_eq(options.timestamp_max_ahead_ms, -1);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "timestamp.max.ahead=-1", &err), 0);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "timestamp.max.ahead=-2", &err),
                 FLASHQ_ERR_CONFIG);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "num.partitions=5", &err), 0);
    cr_assert_eq(options.partitions_default, 5);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "flush=fsync", &err),
                 FLASHQ_ERR_CONFIG);
    cr_assert(strstr(err.text, "auto | pmem | sync"), "%s", err.text);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "data.dir=/a=b", &err), 0);
    cr_assert_str_eq(options.data_dir, "/a=b");
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "data.dir", &err),
                 FLASHQ_ERR_CONFIG);
    cr_assert_eq(fq_conf_set_pair(&fq_options_table, &options, "data.dir=", &err),
                 FLASHQ_ERR_CONFIG);
}

/* ---- files ---------------------------------------------------------------------------------- */

static int load(const char *text)
{
    return fq_conf_load_bytes(&fq_options_table, &options, "f.yaml", text, strlen(text), &err);
}

Test(conf_yaml, dotted_and_nested_keys_are_the_same, .init = defaults)
{
    cr_assert_eq(load("log:\n  segment:\n    bytes: 32MiB\n  prepared.bytes: 8MiB\nshards: 3\n"
                      "listen: {tcp: \"\", shm: /x}\n"),
                 0, "%s", err.text);
    cr_assert_eq(options.log_segment_bytes, 32 << 20);
    cr_assert_eq(options.log_prepared_bytes, 8 << 20);
    cr_assert_eq(options.shards, 3);
    cr_assert_str_eq(options.listen_tcp, "");
    cr_assert_str_eq(options.listen_shm, "/x");
    cr_assert_eq(load(""), 0);
    cr_assert_eq(load("# nothing\n"), 0);
    cr_assert_eq(load("{}\n"), 0);
}

Test(conf_yaml, every_error_names_its_line, .init = defaults)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"shards: 1\n\nlog.segmnt.bytes: 1MiB\n",
         "f.yaml:3: unknown key \"log.segmnt.bytes\" (did you mean \"log.segment.bytes\"?)"},
        {"log:\n  segment:\n    byts: 1MiB\n",
         "f.yaml:3: unknown key \"log.segment.byts\" (did you mean \"log.segment.bytes\"?)"},
        {"shards: 65\n", "f.yaml:1: shards: \"65\" is above the limit of 64"},
        {"shards: 1\nshards: 2\n", "f.yaml:2: shards was set on line 1 already"},
        {"shards: 1\nlog: {segment.bytes: 2MiB}\nlog.segment.bytes: 2MiB\n",
         "f.yaml:3: log.segment.bytes was set on line 2 already"},
        {"shards: [1, 2]\n", "f.yaml:1: a list, where one value is expected"},
        {"shards: &a 1\n", "f.yaml:1: anchors and tags are not used here"},
        {"shards: !!int 1\n", "f.yaml:1: anchors and tags are not used here"},
        {"shards: *a\n", "f.yaml:1: anchors and tags are not used here"},
        {"shards: 1\n---\nshards: 2\n", "f.yaml:2: a second document"},
        {"shards\n", "f.yaml:1: expected KEY: VALUE"},
        {"- shards\n", "f.yaml:1: a list, where one value is expected"},
        {"{a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}}\n", "f.yaml:1: nested too deep"},
        {"shards:\n  threads: 2\n", "f.yaml:2: unknown key \"shards.threads\""},
        {"listen.insecure: maybe\n",
         "f.yaml:1: listen.insecure: \"maybe\" is not accepted (true | false)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(load(bad[i].text), FLASHQ_ERR_CONFIG, "%s", bad[i].text);
        cr_assert_str_eq(err.text, bad[i].message);
    }
    cr_assert_eq(load("a: [\n"), FLASHQ_ERR_CONFIG);
    cr_assert_eq(strncmp(err.text, "f.yaml:", 7), 0, "%s", err.text);
    cr_assert_eq(fq_conf_load_file(&fq_options_table, &options, "/nowhere.yaml", &err),
                 FLASHQ_ERR_CONFIG);
    cr_assert_str_eq(err.text, "/nowhere.yaml: No such file or directory");
}

/* ---- the reference file --------------------------------------------------------------------- */

static char *read_reference(void)
{
    FILE *file = fopen(FQ_SOURCE_ROOT "/config/flashqd.yaml", "r");
    cr_assert(file);
    char *text = calloc(1, 65536);
    cr_assert_gt(fread(text, 1, 65535, file), 0);
    (void)fclose(file);
    return text;
}

Test(reference, names_every_key_with_its_default_and_nothing_else, .init = defaults)
{
    char *text = read_reference();
    struct fq_options loaded = options;
    cr_assert_eq(load(text), 0, "as it is: %s", err.text);
    cr_assert_eq(memcmp(&loaded, &options, sizeof loaded), 0, "everything is commented out");
    for (size_t i = 0; i < fq_options_table.keys_count; i++) {
        const struct fq_conf_key *key = &fq_options_table.keys[i];
        char line[256];
        bool is_empty = !key->default_value || key->default_value[0] == '\0';
        (void)snprintf(line, sizeof line, "\n#%s: %s\n", key->name,
                       is_empty ? "\"\"" : key->default_value);
        cr_assert(strstr(text, line), "config/flashqd.yaml has no line \"%s\"", line + 1);
    }
    /* With the keys' lines uncommented it loads, so no other key is there either. */
    for (char *at = text; (at = strstr(at, "\n#")); at++) {
        if (at[2] >= 'a' && at[2] <= 'z') {
            at[1] = ' ';
            memmove(at + 1, at + 2, strlen(at + 1));
        }
    }
    cr_assert_eq(load(text), 0, "%s", err.text);
    cr_assert_eq(memcmp(&loaded, &options, sizeof loaded), 0);
    free(text);
}

Test(options, what_must_fit_each_other_is_checked, .init = defaults)
{
    struct fq_options changed = options;
    cr_assert_eq(fq_options_check(&changed, &err), 0, "%s", err.text);
    cr_assert_geq(changed.shards, 1);
    cr_assert_str_neq(changed.listen_shm, "auto");
    (void)strcpy(changed.listen_tcp, "0.0.0.0:9640");
    cr_assert_eq(fq_options_check(&changed, &err), FLASHQ_ERR_CONFIG);
    cr_assert(strstr(err.text, "listen.insecure"), "%s", err.text);
    changed.listen_insecure = true;
    cr_assert_eq(fq_options_check(&changed, &err), 0, "%s", err.text);
    changed.message_max_bytes = 64 << 20;
    cr_assert_eq(fq_options_check(&changed, &err), 0, "%s", err.text);
    cr_assert_geq(changed.producer_window_bytes, changed.message_max_bytes,
                  "one batch fits a ring");
    cr_assert_geq(changed.log_segment_bytes, changed.message_max_bytes, "and a segment");
    changed = options;
    changed.listen_tcp[0] = changed.listen_shm[0] = '\0';
    cr_assert_eq(fq_options_check(&changed, &err), FLASHQ_ERR_CONFIG);
    changed = options;
    changed.topic_auto_create = true;
    cr_assert_eq(fq_options_check(&changed, &err), FLASHQ_ERR_CONFIG);
    changed = options;
    (void)strcpy(changed.listen_tcp, "localhost:notaport");
    cr_assert_eq(fq_options_check(&changed, &err), FLASHQ_ERR_CONFIG);
    cr_assert(strstr(err.text, "listen.tcp"), "%s", err.text);
}
