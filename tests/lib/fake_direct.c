/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_direct.h. */
#include "fake_direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/record_batch.h"

static void must(bool is_so, const char *what)
{
    if (!is_so) {
        (void)fprintf(stderr, "fake_direct: %s\n", what);
        abort();
    }
}

void fake_direct_begin(struct fake_direct *d)
{
    d->is_on = true;
    d->log = malloc(FAKE_DIRECT_LOG_BYTES);
    must(d->log != NULL, "no memory");
    d->producer_id = -1;
    d->last_sequence = -1;
    d->last_offset = -1;
    d->last_slot = 6;
    d->seed = d->seed ? d->seed : 1;
}

void fake_direct_end(struct fake_direct *d)
{
    free(d->log);
    d->log = NULL;
}

static uint64_t next_random(struct fake_direct *d)
{
    struct fq_prng prng;
    fq_prng_seed(&prng, d->seed++);
    return fq_prng_below(&prng, UINT64_MAX);
}

/* ---- windows -------------------------------------------------------------------------------- */

static void send_window(struct fake_direct *d, struct fq_conn *conn, uint32_t number, uint64_t bytes,
                        const uint8_t *token)
{
    uint8_t out[128];
    struct fq_direct_window window = {.slot = d->slot, .number = number, .window_bytes = bytes};
    memcpy(window.token, token, sizeof window.token);
    (void)fq_conn_send(conn, out, (size_t)fq_encode_direct_window(out, sizeof out, 0, &window));
}

static void grant(struct fake_direct *d, struct fq_conn *conn, int at)
{
    uint8_t token[FQ_TOKEN_BYTES];
    enum fake_direct_lie lie = (enum fake_direct_lie)atomic_load(&d->lie);
    uint32_t number = d->windows_count++;
    uint64_t bytes = number > 0 ? FAKE_DIRECT_WINDOW_BYTES
                                : 1 + next_random(d) % (FAKE_DIRECT_WINDOW_BYTES - 1);
    must(fq_region_create(bytes, 0, &d->regions[at], NULL) == 0, "region");
    must(fq_window_grant(conn, d->regions[at], 0, bytes, FQ_RIGHT_WRITE, &d->grants[at], token,
                         NULL) == 0,
         "grant");
    d->sizes[at] = bytes;
    d->has_lied |= lie != DIRECT_HONEST && lie != DIRECT_NOT_THERE;
    atomic_fetch_add(&d->windows, 1);
    switch (lie) {
    case DIRECT_NUMBER_AHEAD: number++; break;
    case DIRECT_BYTES_OVER: bytes++; break;
    case DIRECT_BYTES_NONE: bytes = 0; break;
    case DIRECT_SMALL_NEXT: bytes = number == 1 ? FAKE_DIRECT_BATCH_BYTES - 1 : bytes; break;
    case DIRECT_BAD_TOKEN: token[0] ^= 0xff; break;
    case DIRECT_HONEST:
    case DIRECT_NUMBER_AGAIN:
    case DIRECT_THREE:
    case DIRECT_NOT_THERE:
    case DIRECT_LIES_COUNT: break;
    }
    send_window(d, conn, number, bytes, token);
    if (lie == DIRECT_NUMBER_AGAIN) {
        send_window(d, conn, number, bytes, token);
    }
    for (uint32_t i = 1; lie == DIRECT_THREE && i < 3; i++) {
        send_window(d, conn, number + i, bytes, token);
    }
}

static void free_window(struct fake_direct *d, int at, bool is_connected)
{
    if (is_connected) {
        fq_window_revoke(d->grants[at]);
    }
    fq_region_unref(d->regions[at]);
    d->grants[at] = NULL;
    d->regions[at] = NULL;
    d->sizes[at] = 0;
}

static void end_slot(struct fake_direct *d, bool is_connected)
{
    free_window(d, 0, is_connected);
    free_window(d, 1, is_connected);
    d->has_slot = d->is_revoked = false;
    d->windows_count = 0;
}

/* By the rule of PROTOCOL.md 3.6. */
static void grant_next_if_due(struct fake_direct *d, struct fq_conn *conn)
{
    uint64_t left = d->sizes[0] - d->position;
    if (!d->has_slot || d->is_revoked || d->grants[1] || atomic_load(&d->withhold)) {
        return;
    }
    if (d->position * 4 >= d->sizes[0] * 3 || left < FAKE_DIRECT_BATCH_BYTES) {
        grant(d, conn, 1);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

void fake_direct_open(struct fake_direct *d, struct fq_conn *conn, const struct fq_msg *msg)
{
    uint8_t out[256];
    struct fq_producer_open open;
    must(fq_decode_producer_open(msg, &open, NULL) == 0, "producer_open");
    must(open.mode == FQ_APPEND_DIRECT, "a direct topic is opened in mode 1");
    must(!d->has_slot, "the former slot is closed first");
    atomic_fetch_add(&d->opens, 1);
    int code = atomic_load(&d->refuse_opens);
    if (code != 0) {
        (void)fq_conn_send(conn, out,
                           (size_t)fq_encode_error(out, sizeof out, msg->type, msg->correlation, code,
                                                   "held by somebody in particular"));
        return;
    }
    bool is_known = open.producer_id == d->producer_id && open.producer_epoch == d->epoch;
    if (!is_known) {
        must(open.producer_id != d->producer_id || open.producer_epoch > d->epoch, "epochs rise");
        d->producer_id = open.producer_id;
        d->epoch = open.producer_epoch;
        d->last_sequence = -1;
        d->last_offset = -1;
    }
    d->slot = ++d->last_slot;
    d->has_slot = true;
    d->is_revoked = d->has_lied = false;
    d->notifies = 0;
    d->position = 0;
    struct fq_producer_open_answer answer = {.slot = d->slot, .last_sequence = d->last_sequence,
                                             .last_offset = d->last_offset, .end = d->end,
                                             .max_in_flight = 8, .message_max_bytes = 1u << 20};
    if (atomic_load(&d->lie) == DIRECT_NOT_THERE && d->last_sequence >= 0) {
        answer.last_offset = -1;
    }
    (void)fq_conn_send(conn, out, (size_t)fq_encode_producer_open_answer(out, sizeof out,
                                                                         msg->correlation, &answer));
    grant(d, conn, 0);
    grant_next_if_due(d, conn);
}

void fake_direct_close(struct fake_direct *d, struct fq_conn *conn, const struct fq_msg *msg)
{
    uint8_t out[64];
    struct fq_slot_ref ref;
    must(fq_decode_producer_close(msg, &ref, NULL) == 0, "producer_close");
    must(d->has_slot && ref.slot == d->slot, "the slot that is open is closed");
    end_slot(d, true);
    (void)fq_conn_send(conn, out, (size_t)fq_encode_empty(out, sizeof out, msg->type, true,
                                                          msg->correlation));
}

void fake_direct_drop(struct fake_direct *d)
{
    end_slot(d, false);
}

void fake_direct_step(struct fake_direct *d, struct fq_conn *conn)
{
    uint8_t out[64];
    int reason = atomic_load(&d->revoke);
    if (reason != 0 && d->has_slot) {
        struct fq_slot_revoked revoked = {.slot = d->slot, .reason = reason};
        d->is_revoked = true;
        (void)fq_conn_send(conn, out,
                           (size_t)fq_encode_slot_revoked(out, sizeof out, 0, &revoked));
        atomic_store(&d->revoke, 0);
    }
    if (atomic_load(&d->ask_beat)) {
        (void)fq_conn_send(conn, out,
                           (size_t)fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, 77));
        atomic_store(&d->ask_beat, 0);
    }
    grant_next_if_due(d, conn);
}

/* ---- batches ---------------------------------------------------------------------------------- */

static bool is_batch_at(const struct fake_direct *d, int window, uint64_t position,
                        struct fq_batch_header *ret)
{
    if (!d->regions[window] || d->sizes[window] - position < FQ_BATCH_HEADER_BYTES) {
        return false;
    }
    const uint8_t *at = (const uint8_t *)fq_region_base(d->regions[window]) + position;
    return fq_batch_header_read(at, FQ_BATCH_HEADER_BYTES, ret, NULL) == 0 &&
           fq_batch_total_bytes(ret) <= d->sizes[window] - position;
}

static const uint8_t *find_batch(struct fake_direct *d, struct fq_batch_header *ret)
{
    if (!is_batch_at(d, 0, d->position, ret)) {
        must(is_batch_at(d, 1, 0, ret), "a batch is where it must be");
        must(fq_batch_total_bytes(ret) > d->sizes[0] - d->position, "it would not have fitted before");
        free_window(d, 0, true);
        d->regions[0] = d->regions[1];
        d->grants[0] = d->grants[1];
        d->sizes[0] = d->sizes[1];
        d->regions[1] = NULL;
        d->grants[1] = NULL;
        d->position = 0;
    }
    return (const uint8_t *)fq_region_base(d->regions[0]) + d->position;
}

void fake_direct_notify(struct fake_direct *d, struct fq_conn *conn, uint32_t imm,
                        struct fq_ack_entry *ret)
{
    struct fq_batch_header header;
    must(d->has_slot && imm == d->slot, "a notify is for the open slot");
    *ret = (struct fq_ack_entry){.slot = d->slot, .notify = d->notifies++, .base_offset = -1};
    if (d->is_revoked || d->has_lied) {
        ret->status = FLASHQ_ERR_SLOT_FAILED;
        return;
    }
    const uint8_t *batch = find_batch(d, &header);
    size_t bytes = (size_t)fq_batch_total_bytes(&header);
    must(fq_batch_crc_ok(batch, bytes), "the checksum is right");
    must(header.producer_id == d->producer_id && header.producer_epoch == d->epoch,
         "the batch is the producer's");
    int32_t expected = (int32_t)(((uint32_t)d->last_sequence + 1) & INT32_MAX);
    must(header.base_sequence == (d->last_sequence < 0 ? 0 : expected), "the sequence goes on");
    must(d->log_bytes + bytes <= FAKE_DIRECT_LOG_BYTES, "the fake log has room");
    memcpy(d->log + d->log_bytes, batch, bytes);
    fq_batch_stamp(d->log + d->log_bytes, d->end, 0);
    d->log_bytes += bytes;
    d->position += bytes;
    ret->base_offset = d->end;
    d->end += header.records_count;
    d->last_sequence = (int32_t)(((uint32_t)header.base_sequence + (uint32_t)header.records_count - 1) & INT32_MAX);
    d->last_offset = d->end - 1;
    atomic_fetch_add(&d->batches, 1);
    grant_next_if_due(d, conn);
}
