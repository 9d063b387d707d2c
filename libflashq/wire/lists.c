/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists inside messages, and answers in pages. The checks here run once, when a message is
 * decoded; the functions named _next read with the same bounds-checked cursor again, so a list of
 * unknown origin is safe too. Memory is the caller's; no state; any thread.
 */
#include <assert.h>
#include <string.h>

#include "wire/body.h"
#include "wire/protocol_codec.h"

#define CONFIG_KEY_BYTES   255
#define CONFIG_VALUE_BYTES 4096
#define COUNTER_NAME_BYTES 255
#define ITEM_HEADER_BYTES  3 /* u8 kind, u16 length */
#define PAGE_BYTES_MIN     2048
#define PAGE_END_BYTES     (2 + FQ_CURSOR_BYTES)

/* ---- strings and configuration -------------------------------------------------------------- */

int fq_strings_list(void *buffer, size_t capacity, const struct fq_str *items, size_t count,
                    struct fq_list *ret)
{
    struct fq_writer w;
    fq_writer_init(&w, buffer, capacity);
    for (size_t i = 0; i < count; i++) {
        fq_write_str(&w, items[i].data, items[i].length);
    }
    if (w.failed) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    *ret =
        (struct fq_list){.bytes = buffer, .length = fq_writer_used(&w), .count = (uint32_t)count};
    return 0;
}

int fq_config_pairs_list(void *buffer, size_t capacity, const struct fq_config_pair *items,
                         size_t count, struct fq_list *ret)
{
    struct fq_writer w;
    fq_writer_init(&w, buffer, capacity);
    for (size_t i = 0; i < count; i++) {
        fq_write_str(&w, items[i].key.data, items[i].key.length);
        fq_write_str(&w, items[i].value.data, items[i].value.length);
        fq_write_u8(&w, items[i].source);
    }
    if (w.failed) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    *ret =
        (struct fq_list){.bytes = buffer, .length = fq_writer_used(&w), .count = (uint32_t)count};
    return 0;
}

int fq_list_check_topic_name(struct fq_reader *r, unsigned *state, struct fq_err *err)
{
    (void)state;
    struct fq_str name = fq_read_str(r);
    return r->failed ? FLASHQ_ERR_PROTOCOL : fq_topic_name_check(name.data, name.length, err);
}

static int config_pair_read(struct fq_reader *r, struct fq_config_pair *ret)
{
    ret->key = fq_read_str(r);
    ret->value = fq_read_str(r);
    ret->source = fq_read_u8(r);
    bool ok = !r->failed && ret->key.length <= CONFIG_KEY_BYTES &&
              ret->value.length <= CONFIG_VALUE_BYTES &&
              fq_text_ok(ret->key.data, ret->key.length) &&
              fq_text_ok(ret->value.data, ret->value.length);
    return ok ? 0 : FLASHQ_ERR_PROTOCOL;
}

int fq_list_check_config_pair(struct fq_reader *r, unsigned *state, struct fq_err *err)
{
    (void)state;
    (void)err;
    struct fq_config_pair pair;
    return config_pair_read(r, &pair);
}

static int counter_read(struct fq_reader *r, struct fq_counter *ret)
{
    ret->name = fq_read_str(r);
    ret->value = (int64_t)fq_read_u64(r);
    bool ok = !r->failed && ret->name.length <= COUNTER_NAME_BYTES &&
              fq_text_ok(ret->name.data, ret->name.length);
    return ok ? 0 : FLASHQ_ERR_PROTOCOL;
}

int fq_list_check_counter(struct fq_reader *r, unsigned *state, struct fq_err *err)
{
    (void)state;
    (void)err;
    struct fq_counter counter;
    return counter_read(r, &counter);
}

/* ---- walking -------------------------------------------------------------------------------- */

static bool list_begin(const struct fq_list *rest, struct fq_reader *r)
{
    fq_reader_init(r, rest->bytes, rest->length);
    return rest->count > 0;
}

static void list_advance(struct fq_list *rest, const struct fq_reader *r)
{
    rest->bytes = r->at;
    rest->length = fq_reader_left(r);
    rest->count--;
}

int fq_strings_next(struct fq_list *rest, struct fq_str *ret)
{
    struct fq_reader r;
    if (!list_begin(rest, &r)) {
        return 0;
    }
    struct fq_str item = fq_read_str(&r);
    if (r.failed) {
        return FLASHQ_ERR_PROTOCOL;
    }
    list_advance(rest, &r);
    *ret = item;
    return 1;
}

int fq_config_pairs_next(struct fq_list *rest, struct fq_config_pair *ret)
{
    struct fq_reader r;
    if (!list_begin(rest, &r)) {
        return 0;
    }
    struct fq_config_pair item;
    int rc = config_pair_read(&r, &item);
    if (rc != 0) {
        return rc;
    }
    list_advance(rest, &r);
    *ret = item;
    return 1;
}

int fq_counters_next(struct fq_list *rest, struct fq_counter *ret)
{
    struct fq_reader r;
    if (!list_begin(rest, &r)) {
        return 0;
    }
    struct fq_counter item;
    int rc = counter_read(&r, &item);
    if (rc != 0) {
        return rc;
    }
    list_advance(rest, &r);
    *ret = item;
    return 1;
}

/* ---- metadata items ------------------------------------------------------------------------- */

/* 1: a known item; 0: of a kind this side does not know; negative: malformed. */
static int metadata_read(struct fq_reader *r, struct fq_metadata_item *ret, struct fq_err *err)
{
    unsigned kind = fq_read_u8(r);
    size_t length = fq_read_u16(r);
    const uint8_t *bytes = fq_read_bytes(r, length);
    if (!bytes) {
        return FLASHQ_ERR_PROTOCOL;
    }
    struct fq_reader inner;
    fq_reader_init(&inner, bytes, length);
    memset(ret, 0, sizeof *ret);
    int rc = 0;
    switch (kind) {
    case FQ_METADATA_BROKER:
        rc = fq_body_read(&fq_body_broker_entry, &inner, &ret->broker, err);
        break;
    case FQ_METADATA_TOPIC:
        rc = fq_body_read(&fq_body_topic_entry, &inner, &ret->topic, err);
        break;
    case FQ_METADATA_PARTITION:
        rc = fq_body_read(&fq_body_partition_entry, &inner, &ret->partition, err);
        break;
    default: return 0;
    }
    ret->kind = (enum fq_metadata_kind)kind;
    return rc == 0 ? 1 : FLASHQ_ERR_PROTOCOL;
}

int fq_list_check_metadata(struct fq_reader *r, unsigned *state, struct fq_err *err)
{
    struct fq_metadata_item item;
    int rc = metadata_read(r, &item, err);
    if (rc <= 0) {
        return rc;
    }
    if (item.kind == FQ_METADATA_TOPIC) {
        *state = 1; /* partitions may follow */
    }
    return item.kind == FQ_METADATA_PARTITION && *state == 0 ? FLASHQ_ERR_PROTOCOL : 0;
}

int fq_metadata_next(struct fq_list *rest, struct fq_metadata_item *ret)
{
    struct fq_reader r;
    while (list_begin(rest, &r)) {
        struct fq_metadata_item item;
        int rc = metadata_read(&r, &item, NULL);
        if (rc < 0) {
            return rc;
        }
        list_advance(rest, &r);
        if (rc == 1) {
            *ret = item;
            return 1;
        }
    }
    return 0;
}

/* ---- pages ---------------------------------------------------------------------------------- */

static int page_begin(struct fq_page *page, void *out, size_t capacity, uint16_t type,
                      uint32_t correlation)
{
    if (capacity < PAGE_BYTES_MIN) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    if (capacity > FQ_LIMIT_CONTROL_BYTES) {
        capacity = FQ_LIMIT_CONTROL_BYTES;
    }
    struct fq_writer w;
    fq_writer_init(&w, out, capacity);
    fq_msg_header_write(&w, (uint16_t)(type | FQ_MSG_ANSWER), correlation, 0);
    fq_write_u32(&w, 0); /* the count, stored by finish */
    *page = (struct fq_page){.out = out, .capacity = capacity, .used = fq_writer_used(&w)};
    return 0;
}

/* The room for the next item: what is left without the end of the page. */
static void page_room(const struct fq_page *page, struct fq_writer *w)
{
    fq_writer_init(w, page->out + page->used, page->capacity - page->used - PAGE_END_BYTES);
}

static bool page_take(struct fq_page *page, const struct fq_writer *w)
{
    if (w->failed) {
        return false;
    }
    page->used += fq_writer_used(w);
    page->count++;
    return true;
}

static bool metadata_add(struct fq_page *page, enum fq_metadata_kind kind,
                         const struct fq_body *body, const void *entry)
{
    struct fq_writer w;
    page_room(page, &w);
    uint8_t *header = fq_write_room(&w, ITEM_HEADER_BYTES);
    if (!header) {
        return false;
    }
    int rc = fq_body_write(body, &w, entry);
    assert(rc != FLASHQ_ERR_INVALID); /* the entries are our own */
    if (rc != 0) {
        return false;
    }
    header[0] = (uint8_t)kind;
    fq_store_le16(header + 1, (uint16_t)(fq_writer_used(&w) - ITEM_HEADER_BYTES));
    return page_take(page, &w);
}

static int64_t page_finish(struct fq_page *page, struct fq_str cursor)
{
    assert(cursor.length <= FQ_CURSOR_BYTES);
    struct fq_writer w;
    fq_writer_init(&w, page->out + page->used, page->capacity - page->used);
    fq_write_str(&w, cursor.data, cursor.length);
    fq_store_le32(page->out + FQ_MSG_HEADER_BYTES, page->count);
    page->used += fq_writer_used(&w);
    return (int64_t)page->used;
}

int fq_metadata_answer_begin(struct fq_page *page, void *out, size_t capacity, uint32_t correlation)
{
    return page_begin(page, out, capacity, FQ_MSG_METADATA, correlation);
}

bool fq_metadata_answer_add_broker(struct fq_page *page, const struct fq_broker_entry *entry)
{
    return metadata_add(page, FQ_METADATA_BROKER, &fq_body_broker_entry, entry);
}

bool fq_metadata_answer_add_topic(struct fq_page *page, const struct fq_topic_entry *entry)
{
    return metadata_add(page, FQ_METADATA_TOPIC, &fq_body_topic_entry, entry);
}

bool fq_metadata_answer_add_partition(struct fq_page *page, const struct fq_partition_entry *entry)
{
    return metadata_add(page, FQ_METADATA_PARTITION, &fq_body_partition_entry, entry);
}

int64_t fq_metadata_answer_finish(struct fq_page *page, struct fq_str cursor)
{
    return page_finish(page, cursor);
}

int fq_info_answer_begin(struct fq_page *page, void *out, size_t capacity, uint32_t correlation)
{
    return page_begin(page, out, capacity, FQ_MSG_INFO, correlation);
}

bool fq_info_answer_add(struct fq_page *page, const struct fq_counter *counter)
{
    assert(counter->name.length <= COUNTER_NAME_BYTES);
    struct fq_writer w;
    page_room(page, &w);
    fq_write_str(&w, counter->name.data, counter->name.length);
    fq_write_u64(&w, (uint64_t)counter->value);
    return page_take(page, &w);
}

int64_t fq_info_answer_finish(struct fq_page *page, struct fq_str cursor)
{
    return page_finish(page, cursor);
}
