/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hand-made producer that appends in place (append=direct), over tcp: it writes what it is told
 * to where the protocol, or the test, says. Aborts when something that must work does not.
 */
#ifndef FQ_TESTS_DIRECT_CLIENT_H
#define FQ_TESTS_DIRECT_CLIENT_H

#include "raw_client.h"

struct direct_window {
    uint32_t number;
    uint64_t bytes;
    struct fq_remote *remote;
    uint8_t token[FQ_TOKEN_BYTES];
};

struct direct_client {
    struct raw_client c;
    struct fq_producer_open_answer opened; /* of the last direct_open */
    int64_t producer_id;
    int16_t epoch;
    struct direct_window current, next; /* remote NULL: none yet */
    uint64_t at;                        /* where the next batch goes in the current one */
    uint32_t windows;                   /* told of so far */
    int revoked;                        /* reason; 0: not */
};

/* Connection, session, ring. */
void direct_connect(struct direct_client *d, struct test_broker *t, int64_t producer_id);
void direct_disconnect(struct direct_client *d);
/* PRODUCER_OPEN with mode 1. */
int direct_open(struct direct_client *d, const struct fq_uuid *topic, uint32_t partition,
                int16_t epoch, struct fq_err *err);
int direct_close(struct direct_client *d);
/* The window once more, by its token, as if nobody had said that it was taken back. */
struct fq_remote *direct_reopen(struct direct_client *d, const struct direct_window *window);
/* Takes over what windows and revocations have arrived. */
void direct_listen(struct direct_client *d);
/* Waits for window number `number`. */
void direct_wait_window(struct direct_client *d, uint32_t number);

/* A batch of one record with `value_bytes` of value, in d's epoch. Returns its length. */
size_t direct_batch(const struct direct_client *d, uint8_t *out, size_t capacity, int32_t sequence,
                    size_t value_bytes, uint8_t fill);
/* Stores bytes, and notifies if asked to; nothing is waited for. */
void direct_store(struct direct_client *d, struct fq_remote *remote, uint64_t at, const void *bytes,
                  size_t length, bool notifies);
/* Where the protocol says the batch goes; waits for the next window if it has to. */
void direct_put(struct direct_client *d, const void *batch, size_t length);
/* Until the connection ends or so many pumps went by; whether it ended. */
bool direct_was_cut(struct direct_client *d);

#endif
