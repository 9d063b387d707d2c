/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside broker/storage: handing work to the housekeeper and the flusher. A job is a node embedded
 * in what it concerns, so that handing over allocates nothing and can never find a ring full.
 * Pushing is lock-free from any thread; one thread takes all jobs at once and runs them in the
 * order pushed (per pushing thread).
 */
#ifndef FQ_STORAGE_JOBS_H
#define FQ_STORAGE_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct fq_store;

struct fq_job {
    struct fq_job *next;
    /* On the taking thread. false: not possible now (no space), run me again later. */
    bool (*run)(struct fq_store *store, struct fq_job *job);
};

struct fq_inbox {
    _Atomic(struct fq_job *) newest;
};

static inline void fq_inbox_push(struct fq_inbox *inbox, struct fq_job *job)
{
    struct fq_job *newest = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    do {
        job->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&inbox->newest, &newest, job,
                                                    memory_order_release, memory_order_relaxed));
}

/* All jobs, oldest first. */
static inline struct fq_job *fq_inbox_take(struct fq_inbox *inbox)
{
    struct fq_job *job = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
    struct fq_job *oldest = NULL;
    while (job) {
        struct fq_job *next = job->next;
        job->next = oldest;
        oldest = job;
        job = next;
    }
    return oldest;
}

#endif
