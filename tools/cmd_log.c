/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq log verify|dump|stat: segment files read without a broker and without changing a byte, through
 * broker/storage/offline.h. PATH is a file, a partition's or topic's folder, or a data directory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/offline.h"
#include "wire/record_batch.h"

#include "tools/print_record.h"

enum { LOG_FORMAT = 1, LOG_RECORDS, LOG_COUNT };

struct walk {
    struct fq_cli *cli;
    const char *path;
    struct fq_printer printer; /* dump */
    bool has_records;
    int64_t count;             /* records or batches left to print */
    struct fq_batch_scratch scratch;
    struct fq_rec rec;
    char topic[256];
    int32_t partition;
    bool has_table;
    struct fq_table table;
    json_t *segments, *damages; /* verify, stat in JSON */
    uint64_t segments_count, batches_count, records_count, damage_count, data_bytes;
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct walk *walk = args;
    switch (id) {
    case FQ_OPT_ARGUMENT:
        if (walk->path) {
            return fq_fault_set(fault, "unexpected \"%.64s\"", value);
        }
        walk->path = value;
        return 0;
    case LOG_RECORDS: walk->has_records = true; return 0;
    case LOG_FORMAT:
        fq_format_free(walk->printer.format);
        walk->printer.format = NULL;
        walk->has_records = true;
        return fq_format_compile(value, &walk->printer.format, fault);
    case LOG_COUNT: return fq_parse_whole(value, "count", 0, INT64_MAX, &walk->count, fault);
    default: return FLASHQ_ERR_INVALID;
    }
}

/* ---- what every walk counts ---------------------------------------------------------------- */

static int on_damage(void *context, const struct fq_damage *damage)
{
    struct walk *walk = context;
    walk->damage_count++;
    fq_cli_warn("%s: damage at byte %" PRIu64 ", %" PRIu64 " bytes, offsets %" PRId64 " to %" PRId64
                ": %s",
                damage->path, damage->position, damage->bytes, damage->first_offset,
                damage->next_offset - 1, damage->what);
    if (walk->damages) {
        (void)json_array_append_new(
            walk->damages,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "path", damage->path, "position",
                      (json_int_t)damage->position, "bytes", (json_int_t)damage->bytes,
                      "first_offset", (json_int_t)damage->first_offset, "next_offset",
                      (json_int_t)damage->next_offset, "what", damage->what));
    }
    return 0;
}

static const char *segment_state(const struct fq_offline_segment *s)
{
    if (!s->header_ok) {
        return "bad header";
    }
    return !s->tail_ok ? "bad tail" : s->damage_count > 0 ? "damaged" : "ok";
}

static json_t *segment_json(const char *topic, const struct fq_offline_segment *s)
{
    bool has_times = s->batches_count > 0;
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path", s->path,
        "topic", topic, "partition", (int)s->partition, "state", s->state, "check", segment_state(s),
        "base_offset", (json_int_t)s->base_offset, "end_offset", (json_int_t)s->end_offset,
        "file_bytes", (json_int_t)s->file_bytes, "data_bytes", (json_int_t)s->data_bytes,
        "batches", (json_int_t)s->batches_count, "records", (json_int_t)s->records_count,
        "damage_count", (json_int_t)s->damage_count, "above_tail_bytes",
        (json_int_t)s->above_tail_bytes);
    (void)json_object_set_new(object, "min_timestamp_ms",
                              has_times ? json_integer((json_int_t)s->min_timestamp_ms)
                                        : json_null());
    (void)json_object_set_new(object, "max_timestamp_ms",
                              has_times ? json_integer((json_int_t)s->max_timestamp_ms)
                                        : json_null());
    return object;
}

static void segment_row(struct walk *walk, const char *topic, const struct fq_offline_segment *s)
{
    fq_table_add(&walk->table, "%s", topic[0] ? topic : "-");
    fq_table_add(&walk->table, "%" PRIu32, s->partition);
    fq_table_add(&walk->table, "%" PRId64, s->base_offset);
    fq_table_add(&walk->table, "%" PRId64, s->end_offset);
    fq_table_add(&walk->table, "%" PRIu64, s->batches_count);
    fq_table_add(&walk->table, "%" PRIu64, s->records_count);
    fq_table_add(&walk->table, "%" PRIu64, s->data_bytes);
    fq_table_add(&walk->table, "%s", s->state);
    fq_table_add(&walk->table, "%s", segment_state(s));
    fq_table_add(&walk->table, "%s", s->path);
}

static int on_segment_end(void *context, const char *topic, const struct fq_offline_segment *s)
{
    struct walk *walk = context;
    walk->segments_count++;
    walk->batches_count += s->batches_count;
    walk->records_count += s->records_count;
    walk->data_bytes += s->data_bytes;
    if (walk->segments) {
        (void)json_array_append_new(walk->segments, segment_json(topic, s));
    } else if (walk->has_table) {
        segment_row(walk, topic, s);
    }
    return 0;
}

/* ---- verify: also what the batch's CRC cannot promise -------------------------------------- */

static int check_headers(const struct fq_record *record)
{
    struct fq_headers_iter headers;
    struct fq_header one;
    int step;
    fq_headers_iter_init(&headers, record);
    do {
        step = fq_headers_next(&headers, &one);
    } while (step == 1);
    return step;
}

static int on_batch_verify(void *context, const struct fq_batch_header *header,
                           const uint8_t *batch, uint64_t position)
{
    struct walk *walk = context;
    size_t length = (size_t)fq_batch_total_bytes(header);
    struct fq_batch_iter iter;
    struct fq_record record;
    struct fq_err err;
    int result = fq_batch_iter_init(&iter, batch, length, &walk->scratch, &err);
    int more = result == 0 ? 1 : 0;
    while (result == 0 && more == 1) {
        more = fq_batch_iter_next(&iter, &record);
        result = more == 1 ? check_headers(&record) : more;
    }
    if (result < 0) {
        walk->damage_count++;
        fq_cli_warn("%s[%" PRId32 "]: batch at offset %" PRId64 ", byte %" PRIu64
                    " of the data: its records cannot be read: %s",
                    walk->topic, walk->partition, header->base_offset, position,
                    flashq_strerror(result));
    }
    return 0;
}

static int on_segment(void *context, const char *topic, const struct fq_offline_segment *segment)
{
    struct walk *walk = context;
    (void)snprintf(walk->topic, sizeof walk->topic, "%s", topic);
    walk->partition = (int32_t)segment->partition;
    return 0;
}

/* ---- dump ---------------------------------------------------------------------------------- */

static int dump_batch(struct walk *walk, const struct fq_batch_header *h, const uint8_t *batch,
                      uint64_t position)
{
    char first[FQ_TIME_TEXT_BYTES], last[FQ_TIME_TEXT_BYTES];
    bool crc_ok = fq_batch_crc_ok(batch, (size_t)fq_batch_total_bytes(h));
    if (walk->count-- <= 0) {
        return 1;
    }
    fq_buf_printf(&walk->cli->out.buf,
                  "%s[%" PRId32 "] offsets %" PRId64 "-%" PRId64 " at %" PRIu64 " bytes %" PRIu64
                  " records %" PRId32 " epoch %" PRId32 " codec %s crc %08" PRIx32 " %s producer "
                  "%" PRId64 " epoch %d sequence %" PRId32 " times %s to %s\n",
                  walk->topic, walk->partition, h->base_offset,
                  h->base_offset + h->last_offset_delta, position, fq_batch_total_bytes(h),
                  h->records_count, h->leader_epoch, fq_codec_name(fq_batch_codec(h)), h->crc,
                  crc_ok ? "ok" : "WRONG", h->producer_id, (int)h->producer_epoch,
                  h->base_sequence, fq_time_text(h->base_timestamp, first),
                  fq_time_text(h->max_timestamp, last));
    return fq_out_step(&walk->cli->out) ? 0 : 1;
}

static void fill_record(struct walk *walk, const struct fq_record *record)
{
    struct fq_rec *rec = &walk->rec;
    struct fq_headers_iter headers;
    struct fq_header header;
    fq_rec_clear(rec);
    rec->topic = walk->topic;
    rec->partition = walk->partition;
    rec->offset = record->offset;
    rec->timestamp_ms = record->timestamp_ms;
    rec->key = record->key.data;
    rec->key_length = record->key.length;
    rec->value = record->value.data;
    rec->value_length = record->value.length;
    fq_headers_iter_init(&headers, record);
    while (fq_headers_next(&headers, &header) == 1) {
        fq_rec_add_header(rec, header.name.data, header.name.length, header.value.data,
                          header.value.length);
    }
}

static int on_batch_dump(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                         uint64_t position)
{
    struct walk *walk = context;
    struct fq_batch_iter iter;
    struct fq_record record;
    struct fq_err err;
    if (!walk->has_records && walk->cli->output == FQ_OUTPUT_TABLE) {
        return dump_batch(walk, header, batch, position);
    }
    int result = fq_batch_iter_init(&iter, batch, (size_t)fq_batch_total_bytes(header),
                                    &walk->scratch, &err);
    while (result == 0 && (result = fq_batch_iter_next(&iter, &record)) == 1) {
        if (walk->count-- <= 0) {
            return 1;
        }
        fill_record(walk, &record);
        if (fq_printer_print(&walk->printer, &walk->rec) != 0) {
            return 1;
        }
        result = 0;
    }
    if (result < 0) {
        walk->damage_count++;
        fq_cli_warn("%s[%" PRId32 "]: batch at offset %" PRId64 ": its records cannot be read",
                    walk->topic, walk->partition, header->base_offset);
    }
    return 0;
}

/* ---- the commands -------------------------------------------------------------------------- */

static int exit_code(struct walk *walk, int result, const struct fq_err *err)
{
    if (result < 0) {
        return fq_cli_fail(walk->cli, result, err->text, "%s", walk->path);
    }
    if (!fq_out_flush(&walk->cli->out)) {
        return FQ_EXIT_FAILED;
    }
    return walk->damage_count > 0 ? FQ_EXIT_CORRUPT : FQ_EXIT_OK;
}

static void print_summary(struct walk *walk, const char *schema)
{
    struct fq_cli *cli = walk->cli;
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_table_finish(&walk->table, &cli->out);
        fq_buf_printf(&cli->out.buf,
                      "\n%" PRIu64 " segments, %" PRIu64 " batches, %" PRIu64 " records, %" PRIu64
                      " bytes of data, %" PRIu64 " damaged ranges\n",
                      walk->segments_count, walk->batches_count, walk->records_count,
                      walk->data_bytes, walk->damage_count);
        return;
    }
    fq_cli_print_json(
        cli, json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:O, s:O}", "schema", schema, "path",
                       walk->path, "clean", walk->damage_count == 0,
                       "batches", (json_int_t)walk->batches_count, "records",
                       (json_int_t)walk->records_count, "data_bytes",
                       (json_int_t)walk->data_bytes, "segments", walk->segments, "damages",
                       walk->damages));
}

static int summarise(struct walk *walk, const char *schema, bool is_verify)
{
    static const char *const headings[] = {"TOPIC", "PARTITION", "BASE", "END", "BATCHES",
                                           "RECORDS", "BYTES", "STATE", "CHECK", "PATH", NULL};
    struct fq_err err = {0};
    const struct fq_offline_visitor visitor = {.segment = on_segment,
                                               .batch = is_verify ? on_batch_verify : NULL,
                                               .damage = on_damage,
                                               .segment_end = on_segment_end,
                                               .context = walk};
    walk->has_table = walk->cli->output == FQ_OUTPUT_TABLE;
    if (walk->has_table) {
        fq_table_init(&walk->table, headings);
    } else {
        walk->segments = json_array();
        walk->damages = json_array();
    }
    int result = fq_offline_walk(walk->path, &visitor, &err);
    if (result >= 0) {
        print_summary(walk, schema);
    }
    fq_table_fini(&walk->table); /* not printed after a failure */
    json_decref(walk->segments);
    json_decref(walk->damages);
    return exit_code(walk, result, &err);
}

static int dump(struct walk *walk)
{
    struct fq_err err = {0};
    const struct fq_offline_visitor visitor = {.segment = on_segment,
                                               .batch = on_batch_dump,
                                               .damage = on_damage,
                                               .segment_end = on_segment_end,
                                               .context = walk};
    int result = fq_offline_walk(walk->path, &visitor, &err);
    return exit_code(walk, result, &err);
}

static int run_log(struct fq_cli *cli, struct fq_opt_parser *parser, char which)
{
    struct walk walk = {.cli = cli, .printer = {.cli = cli}, .count = INT64_MAX};
    fq_buf_add_text(&walk.printer.delimiter, "\n");
    int code = fq_cli_parse(cli, parser, take, &walk);
    if (code < 0 && !walk.path) {
        code = fq_cli_usage(cli, "which file or folder?");
    }
    if (code < 0) {
        code = which == 'd'   ? dump(&walk)
               : which == 'v' ? summarise(&walk, "flashq.log.verify/1", true)
                              : summarise(&walk, "flashq.log.stat/1", false);
    }
    fq_format_free(walk.printer.format);
    fq_buf_fini(&walk.printer.delimiter);
    fq_rec_fini(&walk.rec);
    fq_batch_scratch_fini(&walk.scratch);
    return code;
}

static int run_verify(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_log(cli, parser, 'v');
}

static int run_dump(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_log(cli, parser, 'd');
}

static int run_stat(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    return run_log(cli, parser, 's');
}

static const struct fq_opt no_options[] = {{0, 0, NULL, NULL, NULL}};

static const struct fq_opt dump_options[] = {
    {LOG_RECORDS, 0, "records", NULL, "print the records' values, not the batches"},
    {LOG_FORMAT, 'f', "format", "FMT", "print the records by this format"},
    {LOG_COUNT, 'n', "count", "N", "stop after N lines"},
    {0, 0, NULL, NULL, NULL},
};

#define LOG_NOTES \
    "PATH is a segment file, a partition's folder, a topic's folder or a data directory. Nothing is " \
    "changed.\nExit code 7: damage was found (and told, with its place).\n"

const struct fq_command fq_cmd_log_verify = {
    .name = "log verify", .arguments = "PATH",
    .summary = "check every batch and record of a log, offline", .notes = LOG_NOTES,
    .options = no_options, .run = run_verify};
const struct fq_command fq_cmd_log_dump = {
    .name = "log dump", .arguments = "PATH",
    .summary = "print the batches or (-O jsonl, -f, --records) the records of a log, offline",
    .notes = LOG_NOTES, .options = dump_options, .run = run_dump};
const struct fq_command fq_cmd_log_stat = {
    .name = "log stat", .arguments = "PATH", .summary = "the segments of a log, offline",
    .notes = LOG_NOTES, .options = no_options, .run = run_stat};
