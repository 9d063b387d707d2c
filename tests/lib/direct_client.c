/* SPDX-License-Identifier: Apache-2.0 */
/* See direct_client.h. */
#include "direct_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wire/record_batch.h"

static void die(const char *what)
{
    (void)fprintf(stderr, "direct_client: %s\n", what);
    abort();
}

void direct_connect(struct direct_client *d, struct test_broker *t, int64_t producer_id)
{
    memset(d, 0, sizeof *d);
    raw_connect(&d->c, t, FQ_TRANSPORT_TCP);
    raw_session(&d->c);
    raw_ring(&d->c, 64);
    d->producer_id = producer_id;
}

void direct_disconnect(struct direct_client *d)
{
    raw_close(&d->c);
}

int direct_open(struct direct_client *d, const struct fq_uuid *topic, uint32_t partition,
                int16_t epoch, struct fq_err *err)
{
    uint8_t out[512];
    struct fq_producer_open open = {.topic_id = *topic,
                                    .partition = partition,
                                    .producer_id = d->producer_id,
                                    .producer_epoch = epoch,
                                    .mode = FQ_APPEND_DIRECT};
    const struct fq_msg *answer =
        raw_ask(&d->c, out, fq_encode_producer_open(out, sizeof out, ++d->c.correlation, &open));
    if (!answer) {
        return FLASHQ_ERR_CLOSED;
    }
    int code = answer->status != 0 ? fq_msg_error(answer, err)
                                   : fq_decode_producer_open_answer(answer, &d->opened, err);
    if (code == 0) {
        d->epoch = epoch;
        d->current = d->next = (struct direct_window){.remote = NULL};
        d->at = 0;
        d->windows = 0;
        d->revoked = 0;
    }
    return code;
}

int direct_close(struct direct_client *d)
{
    uint8_t out[64];
    struct fq_slot_ref ref = {.slot = d->opened.slot};
    const struct fq_msg *answer =
        raw_ask(&d->c, out, fq_encode_producer_close(out, sizeof out, ++d->c.correlation, &ref));
    return answer ? answer->status : FLASHQ_ERR_CLOSED;
}

static struct raw_message *take(struct raw_client *c, uint16_t type)
{
    for (struct raw_message **at = &c->inbox; *at; at = &(*at)->next) {
        struct raw_message *m = *at;
        if (!m->msg.is_answer && m->msg.type == type) {
            *at = m->next;
            return m;
        }
    }
    return NULL;
}

void direct_listen(struct direct_client *d)
{
    struct raw_message *m;
    struct fq_err err;
    while ((m = take(&d->c, FQ_MSG_DIRECT_WINDOW))) {
        struct fq_direct_window window;
        struct direct_window *to = d->current.remote ? &d->next : &d->current;
        if (fq_decode_direct_window(&m->msg, &window, &err) != 0) {
            die(err.text);
        }
        free(m);
        if (window.slot != d->opened.slot) {
            continue;
        }
        if (to->remote || window.number != d->windows++) {
            die("a third window, or one out of order");
        }
        *to = (struct direct_window){.number = window.number, .bytes = window.window_bytes};
        memcpy(to->token, window.token, sizeof to->token);
        if (d->c.conn &&
            fq_remote_open(d->c.conn, window.token, FQ_RIGHT_WRITE, &to->remote, &err) != 0) {
            die(err.text);
        }
        if (d->c.conn && fq_remote_bytes(to->remote) != window.window_bytes) {
            die("a window that is not as large as it says");
        }
    }
    while ((m = take(&d->c, FQ_MSG_SLOT_REVOKED))) {
        struct fq_slot_revoked revoked;
        if (fq_decode_slot_revoked(&m->msg, &revoked, &err) != 0) {
            die(err.text);
        }
        free(m);
        d->revoked = revoked.slot == d->opened.slot ? revoked.reason : d->revoked;
    }
}

struct fq_remote *direct_reopen(struct direct_client *d, const struct direct_window *window)
{
    struct fq_remote *remote;
    struct fq_err err;
    if (fq_remote_open(d->c.conn, window->token, FQ_RIGHT_WRITE, &remote, &err) != 0) {
        die(err.text);
    }
    return remote;
}

void direct_wait_window(struct direct_client *d, uint32_t number)
{
    for (int tries = 0; direct_listen(d), d->windows <= number && d->c.conn; tries++) {
        raw_pump_or_abort(&d->c, tries, "a direct window");
    }
}

size_t direct_batch(const struct direct_client *d, uint8_t *out, size_t capacity, int32_t sequence,
                    size_t value_bytes, uint8_t fill)
{
    struct fq_batch_builder builder;
    uint8_t *value = malloc(value_bytes + 1);
    if (!value) {
        die("memory");
    }
    memset(value, fill, value_bytes);
    fq_batch_builder_init(&builder, out, capacity);
    struct fq_record_in record = {.timestamp_ms = fq_wall_ms(),
                                  .value = {.data = value, .length = value_bytes}};
    if (fq_batch_builder_append(&builder, &record) != 0) {
        die("a batch that does not fit");
    }
    struct fq_batch_finish how = {
        .producer_id = d->producer_id, .producer_epoch = d->epoch, .base_sequence = sequence};
    free(value);
    return (size_t)fq_batch_builder_finish(&builder, &how);
}

void direct_store(struct direct_client *d, struct fq_remote *remote, uint64_t at, const void *bytes,
                  size_t length, bool notifies)
{
    uint8_t *source = fq_region_base(d->c.source);
    memcpy(source, bytes, length);
    struct fq_op op = {.type = notifies ? FQ_OP_WRITE_NOTIFY : FQ_OP_WRITE,
                       .remote = remote,
                       .remote_offset = at,
                       .region = d->c.source,
                       .local = source,
                       .length = length,
                       .imm = d->opened.slot};
    for (int posted = 0; posted == 0 && d->c.conn;) {
        posted = fq_conn_post(d->c.conn, &op, 1);
        posted = posted == FLASHQ_ERR_AGAIN ? 0 : posted;
        if (posted < 0) {
            die(fq_err_describe(posted));
        }
        for (int i = 0; i < 4; i++) {
            raw_pump(&d->c); /* the source is used again for the next */
        }
    }
}

void direct_put(struct direct_client *d, const void *batch, size_t length)
{
    direct_wait_window(d, 0);
    if (d->current.bytes - d->at < length) {
        direct_wait_window(d, d->current.number + 1);
        fq_remote_close(d->current.remote);
        d->current = d->next;
        d->next = (struct direct_window){.remote = NULL};
        d->at = 0;
    }
    direct_store(d, d->current.remote, d->at, batch, length, true);
    d->at += length;
    direct_listen(d);
}

bool direct_was_cut(struct direct_client *d)
{
    for (int i = 0; i < 200 && d->c.conn; i++) {
        raw_pump(&d->c);
    }
    return !d->c.conn;
}
