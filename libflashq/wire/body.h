/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of control messages, driven by tables: one `struct fq_body` says in which order the
 * members of a struct travel, and the same table encodes and decodes. Inside libflashq/wire only.
 */
#ifndef FQ_WIRE_BODY_H
#define FQ_WIRE_BODY_H

#include "base/bytes.h"
#include "wire/protocol.h"

enum fq_field_kind {
    FQ_FIELD_INT,    /* size: 1, 2, 4 or 8 bytes, signed or not */
    FQ_FIELD_CHOICE, /* uint8_t; at most `most` */
    FQ_FIELD_BOOL,   /* 0 or 1 in one byte */
    FQ_FIELD_BYTES,  /* `size` bytes as they are: uuid, token */
    FQ_FIELD_TEXT,   /* fq_str of at most `most` bytes, no control characters */
    FQ_FIELD_TOPIC,  /* fq_str that fq_topic_name_check accepts */
    FQ_FIELD_OPAQUE, /* fq_str of at most `most` bytes, any bytes */
    FQ_FIELD_LIST    /* fq_list; `list` says of what */
};

/* Consumes one item at the reader; 0, FLASHQ_ERR_PROTOCOL, FLASHQ_ERR_INVALID. `state` is the
 * caller's, 0 at the first item. */
typedef int (*fq_list_check)(struct fq_reader *r, unsigned *state, struct fq_err *err);

struct fq_field {
    enum fq_field_kind kind;
    uint16_t tag; /* 0: fixed; else optional, absent when 0 or empty; in rising order, at the end */
    uint16_t offset;
    uint16_t size;
    uint16_t most;
    fq_list_check list;
    const char *name;
};

struct fq_body {
    const char *name;
    uint16_t type; /* with FQ_MSG_ANSWER; 0 for an item of a list */
    uint16_t fields_count;
    const struct fq_field *fields;
};

/* Encodes the fields: 0; FLASHQ_ERR_TOO_LARGE: no room; FLASHQ_ERR_INVALID: a value the decoder
 * would refuse. */
int fq_body_write(const struct fq_body *body, struct fq_writer *w, const void *in);
/* Decodes what the reader has left, all of it. */
int fq_body_read(const struct fq_body *body, struct fq_reader *r, void *ret, struct fq_err *err);

/* A whole message. */
int64_t fq_body_encode(const struct fq_body *body, void *out, size_t capacity, uint32_t correlation,
                       const void *in);
int fq_body_decode(const struct fq_body *body, const struct fq_msg *msg, void *ret,
                   struct fq_err *err);

void fq_msg_header_write(struct fq_writer *w, uint16_t type, uint32_t correlation, int32_t status);

/* For lists: whether `length` bytes are text without control characters. */
bool fq_text_ok(const char *data, size_t length);
void fq_write_str(struct fq_writer *w, const char *data, size_t length);
struct fq_str fq_read_str(struct fq_reader *r);

extern const struct fq_body fq_body_broker_entry, fq_body_topic_entry, fq_body_partition_entry;
int fq_list_check_topic_name(struct fq_reader *r, unsigned *state, struct fq_err *err);
int fq_list_check_config_pair(struct fq_reader *r, unsigned *state, struct fq_err *err);
int fq_list_check_counter(struct fq_reader *r, unsigned *state, struct fq_err *err);
int fq_list_check_metadata(struct fq_reader *r, unsigned *state, struct fq_err *err);

#endif
