/* SPDX-License-Identifier: Apache-2.0 */
/* Time behind an ops table, so that a simulation can own it. */
#ifndef FQ_BASE_CLOCK_H
#define FQ_BASE_CLOCK_H

#include <stdint.h>

struct fq_clock {
    int64_t (*mono_us)(void *context); /* never goes back; for deadlines and spins */
    int64_t (*boot_us)(void *context); /* as mono, and runs on while the host is suspended */
    int64_t (*wall_ms)(void *context); /* since 1970; may jump */
    void *context;
};

/* The system's clocks. Static; never freed. */
const struct fq_clock *fq_clock_system(void);

/* Shorthands for the system's clocks. */
int64_t fq_mono_us(void);
int64_t fq_mono_ns(void); /* the same clock, finer */
int64_t fq_wall_ms(void);

/* fq_wall_ms for who asks for every record: read anew only when the processor's counter has gone on by
 * FQ_WALL_RECENT_TICKS (4 to 20 us) since the last reading, which costs a third. Where there is no such counter, read each
 * time. Zero-initialise; owned by one thread or under its owner's lock. */
#define FQ_WALL_RECENT_TICKS 20000
struct fq_wall_recent {
    uint64_t ticks;
    int64_t ms;
};
int64_t fq_wall_recent_ms(struct fq_wall_recent *recent);

/* fq_mono_us in the same way: up to FQ_WALL_RECENT_TICKS late, and it never goes back. */
struct fq_mono_recent {
    uint64_t ticks;
    int64_t us;
};
int64_t fq_mono_recent_us(struct fq_mono_recent *recent);

/* now_us + timeout; a negative timeout_ms is "never" (INT64_MAX). */
int64_t fq_deadline_us(int64_t now_us, int64_t timeout_ms);
/* Milliseconds left for poll(2): rounded up, 0 when past, -1 when INT64_MAX, at most INT_MAX. */
int fq_deadline_poll_ms(int64_t now_us, int64_t deadline_us);

#endif
