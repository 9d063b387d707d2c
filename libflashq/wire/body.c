/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table-driven encoder and decoder of bodies; see body.h. A decoder reads the fixed fields in
 * order, then tagged fields until the body ends. Whatever is wrong with a body is said with the
 * message's and the field's name. No state; any thread.
 */
#include "wire/body.h"

#include <string.h>

#include "wire/protocol_codec.h"

#define TAG_HEADER_BYTES 4

bool fq_text_ok(const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return true;
}

void fq_write_str(struct fq_writer *w, const char *data, size_t length)
{
    if (length > UINT16_MAX) {
        w->failed = true;
        return;
    }
    fq_write_u16(w, (uint16_t)length);
    fq_write_bytes(w, data, length);
}

struct fq_str fq_read_str(struct fq_reader *r)
{
    size_t length = fq_read_u16(r);
    const uint8_t *data = fq_read_bytes(r, length);
    return fq_str_of((const char *)data, data ? length : 0);
}

/* ---- encoding ------------------------------------------------------------------------------- */

static bool is_absent(const struct fq_field *field, const void *at)
{
    static const uint8_t zeros[64];
    switch (field->kind) {
    case FQ_FIELD_TEXT:
    case FQ_FIELD_TOPIC:
    case FQ_FIELD_OPAQUE: return ((const struct fq_str *)at)->length == 0;
    case FQ_FIELD_LIST: return ((const struct fq_list *)at)->count == 0;
    case FQ_FIELD_INT:
    case FQ_FIELD_CHOICE:
    case FQ_FIELD_BOOL:
    case FQ_FIELD_BYTES: break;
    }
    return field->size <= sizeof zeros && memcmp(at, zeros, field->size) == 0;
}

static int write_str_field(const struct fq_field *field, struct fq_writer *w,
                           const struct fq_str *str)
{
    bool ok = field->kind == FQ_FIELD_TOPIC
                  ? fq_topic_name_check(str->data, str->length, NULL) == 0
                  : str->length <= field->most &&
                        (field->kind == FQ_FIELD_OPAQUE || fq_text_ok(str->data, str->length));
    if (!ok) {
        return FLASHQ_ERR_INVALID;
    }
    fq_write_str(w, str->data, str->length);
    return 0;
}

static int write_field(const struct fq_field *field, struct fq_writer *w, const void *at)
{
    switch (field->kind) {
    case FQ_FIELD_INT:
    case FQ_FIELD_BYTES: fq_write_bytes(w, at, field->size); return 0;
    case FQ_FIELD_BOOL: fq_write_u8(w, *(const bool *)at ? 1 : 0); return 0;
    case FQ_FIELD_CHOICE:
        fq_write_bytes(w, at, 1);
        return *(const uint8_t *)at <= field->most ? 0 : FLASHQ_ERR_INVALID;
    case FQ_FIELD_TEXT:
    case FQ_FIELD_TOPIC:
    case FQ_FIELD_OPAQUE: return write_str_field(field, w, at);
    case FQ_FIELD_LIST: {
        const struct fq_list *list = at;
        fq_write_u32(w, list->count);
        fq_write_bytes(w, list->bytes, list->length);
        return 0;
    }
    }
    return FLASHQ_ERR_INVALID;
}

static int write_tagged(const struct fq_field *field, struct fq_writer *w, const void *at)
{
    if (is_absent(field, at)) {
        return 0;
    }
    uint8_t *header = fq_write_room(w, TAG_HEADER_BYTES);
    size_t before = fq_writer_used(w);
    int rc = write_field(field, w, at);
    size_t length = fq_writer_used(w) - before;
    if (rc != 0 || !header || w->failed || length > UINT16_MAX) {
        return rc != 0 ? rc : FLASHQ_ERR_TOO_LARGE;
    }
    fq_store_le16(header, field->tag);
    fq_store_le16(header + 2, (uint16_t)length);
    return 0;
}

int fq_body_write(const struct fq_body *body, struct fq_writer *w, const void *in)
{
    for (size_t i = 0; i < body->fields_count; i++) {
        const struct fq_field *field = &body->fields[i];
        const void *at = (const uint8_t *)in + field->offset;
        int rc = field->tag == 0 ? write_field(field, w, at) : write_tagged(field, w, at);
        if (rc != 0) {
            return rc;
        }
    }
    return w->failed ? FLASHQ_ERR_TOO_LARGE : 0;
}

int64_t fq_body_encode(const struct fq_body *body, void *out, size_t capacity, uint32_t correlation,
                       const void *in)
{
    struct fq_writer w;
    fq_writer_init(&w, out, capacity < FQ_LIMIT_CONTROL_BYTES ? capacity : FQ_LIMIT_CONTROL_BYTES);
    fq_msg_header_write(&w, body->type, correlation, 0);
    int rc = fq_body_write(body, &w, in);
    return rc != 0 ? rc : (int64_t)fq_writer_used(&w);
}

/* ---- decoding ------------------------------------------------------------------------------- */

static int cut_short(const struct fq_body *body, const struct fq_field *field, struct fq_err *err)
{
    return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s: the message ends inside %s", body->name,
                      field->name);
}

static int read_str_field(const struct fq_body *body, const struct fq_field *field,
                          struct fq_reader *r, struct fq_str *ret, struct fq_err *err)
{
    struct fq_str str = fq_read_str(r);
    if (r->failed) {
        return cut_short(body, field, err);
    }
    if (field->kind == FQ_FIELD_TOPIC) {
        int rc = fq_topic_name_check(str.data, str.length, err);
        if (rc != 0) {
            return rc;
        }
    } else if (str.length > field->most) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s: %s has %zu bytes, over the limit of %u",
                          body->name, field->name, str.length, (unsigned)field->most);
    } else if (field->kind == FQ_FIELD_TEXT && !fq_text_ok(str.data, str.length)) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s: %s contains a control character",
                          body->name, field->name);
    }
    *ret = str;
    return 0;
}

static int read_list_field(const struct fq_body *body, const struct fq_field *field,
                           struct fq_reader *r, struct fq_list *ret, struct fq_err *err)
{
    uint32_t count = fq_read_u32(r);
    const uint8_t *start = r->at;
    if (r->failed || count > fq_reader_left(r)) { /* an item has at least one byte */
        return cut_short(body, field, err);
    }
    unsigned state = 0;
    for (uint32_t i = 0; i < count; i++) {
        int rc = field->list(r, &state, err);
        if (rc == FLASHQ_ERR_PROTOCOL) {
            return fq_err_set(err, rc, "%s: item %u of %s is malformed", body->name, (unsigned)i,
                              field->name);
        }
        if (rc != 0) {
            return rc;
        }
    }
    *ret = (struct fq_list){.bytes = start, .length = (size_t)(r->at - start), .count = count};
    return 0;
}

static int read_field(const struct fq_body *body, const struct fq_field *field, struct fq_reader *r,
                      void *ret, struct fq_err *err)
{
    switch (field->kind) {
    case FQ_FIELD_TEXT:
    case FQ_FIELD_TOPIC:
    case FQ_FIELD_OPAQUE: return read_str_field(body, field, r, ret, err);
    case FQ_FIELD_LIST: return read_list_field(body, field, r, ret, err);
    case FQ_FIELD_INT:
    case FQ_FIELD_BYTES:
    case FQ_FIELD_CHOICE:
    case FQ_FIELD_BOOL: break;
    }
    const uint8_t *bytes = fq_read_bytes(r, field->size);
    if (!bytes) {
        return cut_short(body, field, err);
    }
    unsigned most = field->kind == FQ_FIELD_CHOICE ? field->most : 1;
    if ((field->kind == FQ_FIELD_CHOICE || field->kind == FQ_FIELD_BOOL) && bytes[0] > most) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s: %s is %u, at most %u is known", body->name,
                          field->name, (unsigned)bytes[0], most);
    }
    if (field->kind == FQ_FIELD_BOOL) {
        *(bool *)ret = bytes[0] != 0;
    } else {
        memcpy(ret, bytes, field->size);
    }
    return 0;
}

static const struct fq_field *tagged_field(const struct fq_body *body, unsigned tag)
{
    for (size_t i = 0; i < body->fields_count; i++) {
        if (body->fields[i].tag == tag) {
            return &body->fields[i];
        }
    }
    return NULL;
}

static int read_tagged_fields(const struct fq_body *body, struct fq_reader *r, void *ret,
                              struct fq_err *err)
{
    unsigned last = 0;
    while (fq_reader_left(r) > 0) {
        unsigned tag = fq_read_u16(r);
        size_t length = fq_read_u16(r);
        const uint8_t *bytes = fq_read_bytes(r, length);
        if (!bytes || tag <= last) {
            return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                              "%s: what follows the fixed fields is not a list of tagged fields",
                              body->name);
        }
        last = tag;
        const struct fq_field *field = tagged_field(body, tag);
        if (!field) {
            continue; /* of a newer release */
        }
        struct fq_reader inner;
        fq_reader_init(&inner, bytes, length);
        int rc = read_field(body, field, &inner, (uint8_t *)ret + field->offset, err);
        if (rc != 0) {
            return rc;
        }
        if (fq_reader_left(&inner) > 0) {
            return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s: %zu bytes too many in %s", body->name,
                              fq_reader_left(&inner), field->name);
        }
    }
    return 0;
}

int fq_body_read(const struct fq_body *body, struct fq_reader *r, void *ret, struct fq_err *err)
{
    for (size_t i = 0; i < body->fields_count && body->fields[i].tag == 0; i++) {
        const struct fq_field *field = &body->fields[i];
        int rc = read_field(body, field, r, (uint8_t *)ret + field->offset, err);
        if (rc != 0) {
            return rc;
        }
    }
    return read_tagged_fields(body, r, ret, err);
}

int fq_body_decode(const struct fq_body *body, const struct fq_msg *msg, void *ret,
                   struct fq_err *err)
{
    unsigned type = msg->type | (msg->is_answer ? FQ_MSG_ANSWER : 0);
    if (type != body->type || msg->status != 0) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "%s expected, got %s%s with status %d",
                          body->name, fq_msg_name(msg->type), msg->is_answer ? "_answer" : "",
                          (int)msg->status);
    }
    if (msg->version < FQ_PROTOCOL_VERSION_MIN || msg->version > FQ_PROTOCOL_VERSION_MAX) {
        return fq_err_set(err, FLASHQ_ERR_VERSION, "%s: version %u, this side speaks %d to %d",
                          body->name, (unsigned)msg->version, FQ_PROTOCOL_VERSION_MIN,
                          FQ_PROTOCOL_VERSION_MAX);
    }
    struct fq_reader r;
    fq_reader_init(&r, msg->body, msg->body_length);
    return fq_body_read(body, &r, ret, err);
}
