/* SPDX-License-Identifier: Apache-2.0 */
/* See background.h: batch scheduling, and a long slice. Its end is when the thread has to have had
 * its turn, so of two threads with the same claim the one with the shorter slice goes first. */
#include "base/background.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POLICY_BATCH 3
#define SLICE_NS     UINT64_C(20000000) /* the usual: 0.7 to 3 ms */

struct attributes { /* sched_setattr(2), first version */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};
_Static_assert(sizeof(struct attributes) == 48, "as the kernel knows it");

void fq_background_begin(void)
{
    struct attributes wanted = {.size = sizeof wanted, .policy = POLICY_BATCH};
    struct attributes now = {.size = sizeof now};
    int saved = errno;
    if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) == 0) {
        wanted.nice = now.nice;
    }
    wanted.runtime_ns = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &wanted, 0);
    errno = saved;
}
