/* SPDX-License-Identifier: Apache-2.0 */
/* What passing something on between two processors costs: a cache line, a sleeping thread's wake-up. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/bench_limits.h"

#define LINE_ROUNDS 100

struct line {
    /* each word on a line of its own */
    _Alignas(64) _Atomic uint64_t ping;
    _Alignas(64) _Atomic uint64_t pong;
    _Alignas(64) _Atomic int is_over;
    const struct fq_limits_run *run;
    uint64_t round;
    double median;
};

static void *bounce_line(void *context)
{
    struct line *line = context;
    uint64_t seen = 0;
    while (!atomic_load_explicit(&line->is_over, memory_order_relaxed)) {
        uint64_t value = atomic_load_explicit(&line->ping, memory_order_acquire);
        if (value != seen) {
            seen = value;
            atomic_store_explicit(&line->pong, value, memory_order_release);
        }
    }
    return NULL;
}

static int line_rounds(void *context)
{
    struct line *line = context;
    for (int i = 0; i < LINE_ROUNDS; i++) {
        line->round++;
        atomic_store_explicit(&line->ping, line->round, memory_order_release);
        while (atomic_load_explicit(&line->pong, memory_order_acquire) != line->round) {
        }
    }
    return 0;
}

static void bounce_lines(void *context)
{
    struct line *line = context;
    line->median = fq_limits_median_ns(line->run, line_rounds, line, LINE_ROUNDS) / 2;
    atomic_store(&line->is_over, 1);
}

double fq_limits_line(const struct fq_limits_run *run)
{
    struct line *line = aligned_alloc(64, sizeof *line);
    if (!line) {
        return -1;
    }
    memset(line, 0, sizeof *line);
    line->run = run;
    double median = fq_duo_run(run, bounce_lines, bounce_line, line) ? line->median : -1;
    free(line);
    return median;
}

/* ---- eventfd ------------------------------------------------------------------------------- */

#define EVENT_OVER 1000u

struct events {
    const struct fq_limits_run *run;
    int there, back;
    double median;
};

static void *bounce_event(void *context)
{
    struct events *events = context;
    uint64_t value;
    while (read(events->there, &value, sizeof value) == (ssize_t)sizeof value && value < EVENT_OVER) {
        (void)!write(events->back, &(uint64_t){1}, sizeof value);
    }
    return NULL;
}

static int event_once(void *context)
{
    struct events *events = context;
    uint64_t value = 1;
    return write(events->there, &value, sizeof value) == (ssize_t)sizeof value &&
                   read(events->back, &value, sizeof value) == (ssize_t)sizeof value
               ? 0
               : -1;
}

static void bounce_events(void *context)
{
    struct events *events = context;
    events->median = fq_limits_median_ns(events->run, event_once, events, 1) / 1e3;
    (void)!write(events->there, &(uint64_t){EVENT_OVER}, sizeof(uint64_t));
}

double fq_limits_eventfd(const struct fq_limits_run *run)
{
    struct events events = {.run = run, .there = eventfd(0, EFD_CLOEXEC), .back = eventfd(0, EFD_CLOEXEC)};
    double median = -1;
    if (events.there >= 0 && events.back >= 0 && fq_duo_run(run, bounce_events, bounce_event, &events)) {
        median = events.median;
    }
    if (events.there >= 0) {
        (void)close(events.there);
    }
    if (events.back >= 0) {
        (void)close(events.back);
    }
    return median;
}
