/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waking a thread that may sleep, for one system call only when it does sleep.
 * The sleeper: fq_wake_arm, look at all its work once more, sleep on fq_wake_fd, fq_wake_disarm.
 * A waker: make work visible, then fq_wake_signal. The two full fences (arm, signal) pair, so either
 * the sleeper sees the work or the waker sees it armed.
 */
#ifndef FQ_BASE_WAKE_H
#define FQ_BASE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

struct fq_wake {
    int fd; /* eventfd */
    _Atomic int armed;
    /* The sleeper's: */
    bool was_armed;
    uint64_t writes_owed; /* signals seen whose write to the eventfd was not read yet */
};

int fq_wake_init(struct fq_wake *wake); /* 0, or an error: no descriptor left */
void fq_wake_fini(struct fq_wake *wake);
int fq_wake_fd(const struct fq_wake *wake);
void fq_wake_arm(struct fq_wake *wake);
void fq_wake_disarm(struct fq_wake *wake); /* also drains the eventfd of what was signalled */
void fq_wake_signal(struct fq_wake *wake);

#endif
