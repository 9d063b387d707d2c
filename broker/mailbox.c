/* SPDX-License-Identifier: Apache-2.0 */
/* See mailbox.h. What waits keeps its order: the ring is not used while the list is not empty. */
#include "mailbox.h"

#define RING_ITEMS 1024

int fq_mailbox_init(struct fq_mailbox *box, struct fq_wake *receiver)
{
    box->receiver = receiver;
    box->waiting = NULL;
    box->waiting_end = &box->waiting;
    return fq_spsc_init(&box->ring, sizeof(struct fq_task *), RING_ITEMS);
}

void fq_mailbox_fini(struct fq_mailbox *box)
{
    struct fq_task *task;
    if (!box->ring.items) {
        return;
    }
    while ((task = fq_mailbox_take(box))) {
        fq_task_destroy(task);
    }
    while (box->waiting) {
        task = box->waiting;
        box->waiting = task->next;
        fq_task_destroy(task);
    }
    fq_spsc_fini(&box->ring);
}

void fq_mailbox_send(struct fq_mailbox *box, struct fq_task *task)
{
    task->next = NULL;
    if (box->waiting || !fq_spsc_push(&box->ring, &task)) {
        *box->waiting_end = task;
        box->waiting_end = &task->next;
    }
    fq_wake_signal(box->receiver);
}

bool fq_mailbox_flush(struct fq_mailbox *box)
{
    bool has_moved = false;
    while (box->waiting) {
        struct fq_task *task = box->waiting;
        struct fq_task *next = task->next; /* the task is the receiver's once pushed */
        if (!fq_spsc_push(&box->ring, &task)) {
            break;
        }
        box->waiting = next;
        has_moved = true;
    }
    if (!box->waiting) {
        box->waiting_end = &box->waiting;
    }
    if (has_moved) {
        fq_wake_signal(box->receiver);
    }
    return !box->waiting;
}

struct fq_task *fq_mailbox_take(struct fq_mailbox *box)
{
    struct fq_task *task;
    return fq_spsc_pop(&box->ring, &task) ? task : NULL;
}

bool fq_mailbox_is_empty(struct fq_mailbox *box)
{
    return fq_spsc_is_empty(&box->ring);
}
