/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether to look again or to sleep. Being woken across cores costs more than everything else on the path of
 * one record, so a thread that has nothing to do looks for a bounded time before it sleeps: spin.us. But
 * where the peer has no core of its own (it waits for ours, or other programs are busy) looking only
 * keeps it from answering. So what came of it decides: a spin that ended without work is followed by
 * waits that sleep at once, 1, then 2, 4, ... up to 64 of them before the next try; one that found work
 * is followed by another.
 *
 * Owned by one thread, or under its owner's lock. Cannot fail.
 */
#ifndef FQ_BASE_SPIN_H
#define FQ_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct fq_spin {
    int64_t spin_us;  /* how long a wait may spin */
    int64_t since_us; /* the wait that is going on began here */
    bool is_spinning; /* it spins */
    unsigned sleeps;  /* waits in a row that sleep at once after a spin in vain */
    unsigned left;    /* how many of them are left */
};

void fq_spin_init(struct fq_spin *spin, int64_t spin_us);

/* Asked each time nothing was found: true: look again; false: sleep. `active_us` is when something was last
 * found or asked for; a new value begins a new wait. */
bool fq_spin_goes_on(struct fq_spin *spin, int64_t active_us, int64_t now_us);

/* Something was found, at `now_us`. */
void fq_spin_found(struct fq_spin *spin, int64_t now_us);

/* What to do between two looks, without a lock held: nothing at first; a wait that takes longer offers the core to
 * others. If the peer was waiting for it, it answers at once; and two threads that both want to run are what
 * the kernel spreads over cores, while two that wake each other in turn it keeps on one. */
void fq_spin_turn(int64_t waited_us);
bool fq_spin_yields(int64_t waited_us); /* whether that is offering the core */

/* The same for who can see by one load whether there is something, which is far less than a whole look: returns as
 * soon as `has_news` says so, with true. What a look costs then no longer adds to what is waited for. */
bool fq_spin_turn_looking(int64_t waited_us, bool (*has_news)(void *context), void *context);

#endif
