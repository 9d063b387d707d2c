/* SPDX-License-Identifier: Apache-2.0 */
/* See spin.h. */
#include "base/spin.h"

#include <sched.h>

#define SLEEPS_MAX 64u
#define YIELD_AFTER_US 2
#define PAUSES 8
#define LOOKS 16

void fq_spin_init(struct fq_spin *spin, int64_t spin_us)
{
    *spin = (struct fq_spin){.spin_us = spin_us, .since_us = INT64_MIN};
}

static void begin_wait(struct fq_spin *spin, int64_t active_us, int64_t now_us)
{
    spin->since_us = active_us;
    spin->is_spinning = false;
    if (now_us - active_us >= spin->spin_us) {
        return; /* quiet for long already: says nothing about spinning */
    }
    spin->is_spinning = spin->left == 0;
    spin->left -= spin->left > 0;
}

static void was_in_vain(struct fq_spin *spin)
{
    spin->is_spinning = false;
    spin->sleeps = spin->sleeps == 0 ? 1 : 2 * spin->sleeps;
    spin->sleeps = spin->sleeps < SLEEPS_MAX ? spin->sleeps : SLEEPS_MAX;
    spin->left = spin->sleeps;
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
    was_in_vain(spin);
    return false;
}

void fq_spin_found(struct fq_spin *spin, int64_t now_us)
{
    if (!spin->is_spinning) {
        return;
    }
    if (now_us - spin->since_us >= spin->spin_us) {
        was_in_vain(spin); /* others had the core meanwhile: a sleeper would have been woken earlier */
        return;
    }
    spin->is_spinning = false;
    spin->sleeps = 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

bool fq_spin_yields(int64_t waited_us)
{
    return waited_us >= YIELD_AFTER_US;
}

void fq_spin_turn(int64_t waited_us)
{
    if (fq_spin_yields(waited_us)) {
        (void)sched_yield();
        return;
    }
    for (int i = 0; i < PAUSES; i++) {
        relax();
    }
}

bool fq_spin_turn_looking(int64_t waited_us, bool (*has_news)(void *context), void *context)
{
    if (fq_spin_yields(waited_us)) {
        (void)sched_yield();
        return false;
    }
    for (int i = 0; i < LOOKS; i++) {
        if (has_news(context)) {
            return true;
        }
        relax();
    }
    return false;
}
