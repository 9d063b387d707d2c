/* SPDX-License-Identifier: Apache-2.0 */
/* eventfd wake-ups that cost nothing while the other side is awake; see wake.h. */
#include "base/wake.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

int fq_wake_init(struct fq_wake *wake)
{
    atomic_init(&wake->armed, 0);
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->fd < 0 ? fq_err_from_errno(errno) : 0;
}

void fq_wake_fini(struct fq_wake *wake)
{
    if (wake->fd >= 0) {
        (void)close(wake->fd);
        wake->fd = -1;
    }
}

int fq_wake_fd(const struct fq_wake *wake)
{
    return wake->fd;
}

void fq_wake_arm(struct fq_wake *wake)
{
    atomic_store_explicit(&wake->armed, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with fq_wake_signal */
}

void fq_wake_disarm(struct fq_wake *wake)
{
    if (atomic_exchange_explicit(&wake->armed, 0, memory_order_seq_cst) == 0) {
        uint64_t count; /* somebody signalled: drain, so that the next sleep is a sleep */
        ssize_t ignored = read(wake->fd, &count, sizeof count);
        (void)ignored;
    }
}

void fq_wake_signal(struct fq_wake *wake)
{
    atomic_thread_fence(memory_order_seq_cst); /* pairs with fq_wake_arm */
    if (atomic_load_explicit(&wake->armed, memory_order_relaxed) != 0 &&
        atomic_exchange_explicit(&wake->armed, 0, memory_order_seq_cst) != 0) {
        uint64_t one = 1;
        ssize_t ignored = write(wake->fd, &one, sizeof one);
        (void)ignored;
    }
}
