/* SPDX-License-Identifier: Apache-2.0 */
/* See spin.h. */
#include "base/spin.h"

#include <sched.h>

#define SLEEPS_MAX 64u
#define YIELD_AFTER_US 2
#define PAUSES 8

void fq_spin_init(struct fq_spin *spin, int64_t spin_us)
{
    *spin = (struct fq_spin){.spin_us = spin_us, .since_us = INT64_MIN};
}

static void begin_wait(struct fq_spin *spin, int64_t active_us, int64_t now_us)
{
    if (spin->is_spinning) { /* the wait before this one found what it looked for */
        spin->sleeps = 0;
    }
    spin->since_us = active_us;
    spin->is_spinning = false;
    if (now_us - active_us >= spin->spin_us) {
        return; /* quiet for long already: says nothing about spinning */
    }
    spin->is_spinning = spin->left == 0;
    spin->left -= spin->left > 0;
}

bool fq_spin_goes_on(struct fq_spin *spin, int64_t active_us, int64_t now_us)
{
    if (spin->since_us != active_us) {
        begin_wait(spin, active_us, now_us);
    }
    if (!spin->is_spinning) {
        return false;
    }
    if (now_us - active_us < spin->spin_us) {
        return true;
    }
    spin->is_spinning = false;
    spin->sleeps = spin->sleeps == 0 ? 1 : 2 * spin->sleeps;
    spin->sleeps = spin->sleeps < SLEEPS_MAX ? spin->sleeps : SLEEPS_MAX;
    spin->left = spin->sleeps;
    return false;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

void fq_spin_turn(int64_t waited_us)
{
    if (waited_us >= YIELD_AFTER_US) {
        (void)sched_yield();
        return;
    }
    for (int i = 0; i < PAUSES; i++) {
        relax();
    }
}
