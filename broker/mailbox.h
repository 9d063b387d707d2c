/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of tasks between two threads: a single-producer ring, a list on the sender's side
 * for what the ring has no room for, and the receiver's wake-up. Sending never fails and never
 * blocks.
 */
#ifndef FQ_BROKER_MAILBOX_H
#define FQ_BROKER_MAILBOX_H

#include "base/spsc.h"
#include "base/wake.h"
#include "session/task.h"

struct fq_mailbox {
    struct fq_spsc ring;
    struct fq_wake *receiver;               /* borrowed */
    struct fq_task *waiting, **waiting_end; /* the sender's */
};

int fq_mailbox_init(struct fq_mailbox *box, struct fq_wake *receiver);
void fq_mailbox_fini(struct fq_mailbox *box); /* destroys what nobody took */

/* Sender. The task is the receiver's from here on. */
void fq_mailbox_send(struct fq_mailbox *box, struct fq_task *task);
/* Moves what waits into the ring; false: some of it still waits. */
bool fq_mailbox_flush(struct fq_mailbox *box);

/* Receiver. NULL: none. */
struct fq_task *fq_mailbox_take(struct fq_mailbox *box);
bool fq_mailbox_is_empty(struct fq_mailbox *box);

#endif
