/* SPDX-License-Identifier: Apache-2.0 */
/* The system's clocks; see clock.h. No state; any thread. */
#include "base/clock.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t system_mono_us(void *context)
{
    (void)context;
    return read_ns(CLOCK_MONOTONIC) / 1000;
}

static int64_t system_boot_us(void *context)
{
    (void)context;
    return read_ns(CLOCK_BOOTTIME) / 1000;
}

static int64_t system_wall_ms(void *context)
{
    (void)context;
    return read_ns(CLOCK_REALTIME) / 1000000;
}

const struct fq_clock *fq_clock_system(void)
{
    static const struct fq_clock clock = {system_mono_us, system_boot_us, system_wall_ms, NULL};
    return &clock;
}

int64_t fq_mono_us(void)
{
    return system_mono_us(NULL);
}

int64_t fq_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t fq_wall_ms(void)
{
    return system_wall_ms(NULL);
}

/* Whether a reading made at `*ticks` will do; otherwise one is made now. */
static bool is_recent(uint64_t *ticks)
{
#if defined(__x86_64__)
    uint64_t now = __builtin_ia32_rdtsc();
    if (now - *ticks < FQ_WALL_RECENT_TICKS) { /* a counter that fell counts as far ahead */
        return true;
    }
    *ticks = now;
#else
    (void)ticks;
#endif
    return false;
}

int64_t fq_wall_recent_ms(struct fq_wall_recent *recent)
{
    if (!is_recent(&recent->ticks)) {
        recent->ms = fq_wall_ms();
    }
    return recent->ms;
}

int64_t fq_mono_recent_us(struct fq_mono_recent *recent)
{
    if (!is_recent(&recent->ticks)) {
        recent->us = fq_mono_us();
    }
    return recent->us;
}

int64_t fq_deadline_us(int64_t now_us, int64_t timeout_ms)
{
    if (timeout_ms < 0 || timeout_ms > (INT64_MAX - now_us) / 1000) {
        return INT64_MAX;
    }
    return now_us + timeout_ms * 1000;
}

int fq_deadline_poll_ms(int64_t now_us, int64_t deadline_us)
{
    if (deadline_us == INT64_MAX) {
        return -1;
    }
    if (deadline_us <= now_us) {
        return 0;
    }
    int64_t left_ms = (deadline_us - now_us + 999) / 1000;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
