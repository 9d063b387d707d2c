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
    *wake = (struct fq_wake){.fd = -1};
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

/* A waker that found `armed` set owes one write to the eventfd. */
static void set_armed(struct fq_wake *wake, bool is_armed)
{
    int before = atomic_exchange_explicit(&wake->armed, is_armed, memory_order_seq_cst);
    wake->writes_owed += wake->was_armed && before == 0;
    wake->was_armed = is_armed;
}

void fq_wake_arm(struct fq_wake *wake)
{
    set_armed(wake, true);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with fq_wake_signal */
}

void fq_wake_disarm(struct fq_wake *wake)
{
    set_armed(wake, false);
    uint64_t count;
    /* The waker may not have come to its write yet; then a later disarm reads it, or each sleep
     * from then on would end at once. */
    if (wake->writes_owed > 0 && read(wake->fd, &count, sizeof count) == (ssize_t)sizeof count) {
        wake->writes_owed -= count;
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
