/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct appends: where the batches of a slot go when the window is the log's own memory (PROTOCOL.md 2.6, 3.6).
 *
 * A slot has a current window and at most one that comes after it. A batch goes right behind the one before it, or,
 * if it does not fit whole, to the front of the next window, which is the current one from then on. Until
 * that one has come, the batch waits.
 *
 * Everything the broker says of windows is checked: numbers in order, never more than two at a time, a token for
 * exactly the bytes that are named, room for the largest batch in all but the first.
 * Thread: any, under the client's lock.
 */
#ifndef FQ_PRODUCER_DIRECT_H
#define FQ_PRODUCER_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "wire/protocol.h"

struct fq_direct_place {
    struct fq_remote *remote;
    uint64_t offset;
};

struct fq_direct {
    struct fq_remote *current, *next; /* NULL: none (yet) */
    struct fq_remote *former;         /* kept while what was posted to it may not have arrived */
    uint64_t current_bytes, next_bytes;
    uint64_t position;                /* in the current one: where the next batch goes */
    uint32_t windows_count;           /* that came so far: the number the next one must have */
};

/* Takes a window that was granted. PROTOCOL when it cannot be: the connection is to be ended. */
int fq_direct_take(struct fq_direct *direct, struct fq_conn *conn, const struct fq_direct_window *window,
                   uint32_t batch_max_bytes, struct fq_err *err);
/* Where a batch of `length` goes, and steps over it; AGAIN while the window for it has not come. */
int fq_direct_next(struct fq_direct *direct, size_t length, struct fq_direct_place *ret);
/* Lets go of the windows: the slot is closed, or the connection about to end. */
void fq_direct_end(struct fq_direct *direct);

#endif
