/* SPDX-License-Identifier: Apache-2.0 */
/* See flusher.h. A failed sync takes its partitions offline (storage's business); the thread goes
 * on. */
#include "flusher.h"

#include <poll.h>
#include <stdatomic.h>

int fq_flusher_init(struct fq_flusher *flusher, struct fq_store *store)
{
    flusher->store = store;
    atomic_init(&flusher->stop, 0);
    return fq_wake_init(&flusher->wake);
}

void fq_flusher_fini(struct fq_flusher *flusher)
{
    if (flusher->store) {
        fq_wake_fini(&flusher->wake);
        flusher->store = NULL;
    }
}

unsigned fq_flusher_step(struct fq_flusher *flusher)
{
    int synced = fq_store_flush_step(flusher->store);
    return synced > 0 ? (unsigned)synced : 0;
}

static void sleep_until_work(struct fq_flusher *flusher)
{
    struct pollfd fds[2] = {{.fd = fq_store_flush_fd(flusher->store), .events = POLLIN},
                            {.fd = fq_wake_fd(&flusher->wake), .events = POLLIN}};
    fq_wake_arm(&flusher->wake);
    fq_store_flush_arm(flusher->store);
    if (fq_flusher_step(flusher) == 0 &&
        atomic_load_explicit(&flusher->stop, memory_order_acquire) == 0) {
        (void)poll(fds, 2, -1);
    }
    fq_store_flush_disarm(flusher->store);
    fq_wake_disarm(&flusher->wake);
}

void *fq_flusher_run(void *context)
{
    struct fq_flusher *flusher = context;
    for (;;) {
        bool is_stopping = atomic_load_explicit(&flusher->stop, memory_order_acquire) != 0;
        if (fq_flusher_step(flusher) > 0) {
            continue;
        }
        if (is_stopping) {
            return NULL;
        }
        sleep_until_work(flusher);
    }
}

void fq_flusher_stop(struct fq_flusher *flusher)
{
    atomic_store_explicit(&flusher->stop, 1, memory_order_release); /* pairs with fq_flusher_run */
    fq_wake_signal(&flusher->wake);
}
