/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/spin.h"
#include "base/spsc.h"
#include "base/wake.h"

Test(error, every_code_has_a_name_and_words_of_its_own)
{
    for (int code = FLASHQ_ERR_END; code <= FLASHQ_OK; code++) {
        cr_assert_str_neq(fq_err_name(code), "UNKNOWN", "code %d", code);
        for (int other = FLASHQ_ERR_END; other < code; other++) {
            cr_assert_str_neq(fq_err_name(code), fq_err_name(other));
            cr_assert_str_neq(fq_err_describe(code), fq_err_describe(other));
        }
    }
    cr_assert_str_eq(fq_err_name(1), "UNKNOWN");
}

Test(error, text_is_cut_at_its_bound_and_prefix_keeps_what_fits)
{
    struct fq_err err;
    char long_text[2 * FQ_ERR_TEXT_BYTES];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    cr_assert_eq(fq_err_set(&err, FLASHQ_ERR_IO, "%s", long_text), FLASHQ_ERR_IO);
    cr_assert_eq(strlen(err.text), FQ_ERR_TEXT_BYTES - 1);
    cr_assert_eq(fq_err_prefix(&err, "topic t: "), FLASHQ_ERR_IO);
    cr_assert_eq(strncmp(err.text, "topic t: xxx", 12), 0);
    cr_assert_eq(strlen(err.text), FQ_ERR_TEXT_BYTES - 1);
    fq_err_errno(&err, FLASHQ_ERR_IO, ENOSPC, "write %s", "f");
    cr_assert_str_eq(err.text, "write f: No space left on device");
}

Test(bytes, a_reader_that_ran_over_its_end_fails_for_good)
{
    const uint8_t bytes[] = {1, 2, 3, 4, 5};
    struct fq_reader r;
    fq_reader_init(&r, bytes, sizeof bytes);
    cr_assert_eq(fq_read_u32(&r), 0x04030201u);
    cr_assert_eq(fq_read_u16(&r), 0);
    cr_assert(r.failed);
    cr_assert_eq(fq_read_u8(&r), 0, "a byte is left, but the reader has failed");
}

Test(bytes, a_writer_never_passes_its_end)
{
    uint8_t out[5] = {0, 0, 0, 0, 0xee};
    struct fq_writer w;
    fq_writer_init(&w, out, 4);
    fq_write_u16(&w, 0x0201);
    fq_write_u32(&w, 0xffffffff);
    cr_assert(w.failed);
    fq_write_u16(&w, 0xffff);
    cr_assert_eq(fq_writer_used(&w), 2);
    cr_assert_eq(memcmp(out, "\x01\x02\x00\x00\xee", 5), 0);
}

Test(spsc, full_and_empty_are_told_apart_over_many_laps)
{
    struct fq_spsc ring;
    cr_assert_eq(fq_spsc_init(&ring, sizeof(int), 3), 0);
    int value, next_in = 0, next_out = 0;
    for (int lap = 0; lap < 1000; lap++) {
        while (fq_spsc_push(&ring, &next_in)) {
            next_in++;
        }
        cr_assert_eq(next_in - next_out, 4, "3 is rounded up to 4");
        for (int i = 0; i < 1 + lap % 4; i++) {
            cr_assert(fq_spsc_pop(&ring, &value));
            cr_assert_eq(value, next_out++);
        }
    }
    while (fq_spsc_pop(&ring, &value)) {
        cr_assert_eq(value, next_out++);
    }
    cr_assert_eq(next_in, next_out);
    fq_spsc_fini(&ring);
}

static bool would_wake(struct fq_wake *wake)
{
    struct pollfd fd = {.fd = fq_wake_fd(wake), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

Test(wake, a_signal_wakes_an_armed_sleeper_once_and_costs_nothing_else)
{
    struct fq_wake wake;
    cr_assert_eq(fq_wake_init(&wake), 0);
    fq_wake_signal(&wake);
    cr_assert_not(would_wake(&wake), "nobody sleeps");
    fq_wake_arm(&wake);
    cr_assert_not(would_wake(&wake));
    fq_wake_signal(&wake);
    fq_wake_signal(&wake);
    cr_assert(would_wake(&wake));
    fq_wake_disarm(&wake);
    fq_wake_arm(&wake);
    cr_assert_not(would_wake(&wake), "the next sleep is a sleep");
    fq_wake_signal(&wake);
    fq_wake_arm(&wake); /* armed again without a disarm between */
    cr_assert(would_wake(&wake));
    fq_wake_disarm(&wake);
    cr_assert_not(would_wake(&wake));
    fq_wake_fini(&wake);
}

/* A waker is two steps: it takes `armed`, then it writes. The sleeper may wake for another reason
 * between them; what is written afterwards must not end every later sleep. */
Test(wake, a_waker_that_is_late_with_its_write_does_not_make_the_sleeper_spin)
{
    struct fq_wake wake;
    const uint64_t one = 1;
    cr_assert_eq(fq_wake_init(&wake), 0);
    fq_wake_arm(&wake);
    cr_assert_eq(atomic_exchange(&wake.armed, 0), 1);
    fq_wake_disarm(&wake);
    cr_assert_eq(write(fq_wake_fd(&wake), &one, sizeof one), (ssize_t)sizeof one);
    fq_wake_arm(&wake);
    cr_assert(would_wake(&wake));
    fq_wake_disarm(&wake);
    fq_wake_arm(&wake);
    cr_assert_not(would_wake(&wake), "the late write was read");
    fq_wake_signal(&wake);
    cr_assert(would_wake(&wake));
    fq_wake_disarm(&wake);
    fq_wake_fini(&wake);
}

Test(clock, the_recent_wall_clock_is_never_ahead_and_goes_on)
{
    struct fq_wall_recent recent = {0};
    for (int i = 0; i < 1000; i++) {
        cr_assert_leq(fq_wall_recent_ms(&recent), fq_wall_ms());
    }
    for (int i = 0; i < 3; i++) { /* slept through: much longer than a reading is kept */
        int64_t before_ms = fq_wall_ms();
        struct timespec nap = {.tv_nsec = 5000000};
        (void)nanosleep(&nap, NULL);
        cr_assert_geq(fq_wall_recent_ms(&recent), before_ms);
    }
}

Test(clock, the_recent_monotonic_clock_is_never_ahead_never_back_and_goes_on)
{
    struct fq_mono_recent recent = {0};
    int64_t last_us = 0;
    for (int i = 0; i < 100000; i++) {
        int64_t us = fq_mono_recent_us(&recent);
        cr_assert_leq(us, fq_mono_us());
        cr_assert_geq(us, last_us);
        last_us = us;
    }
    for (int i = 0; i < 3; i++) {
        int64_t before_us = fq_mono_us();
        struct timespec nap = {.tv_nsec = 5000000};
        (void)nanosleep(&nap, NULL);
        cr_assert_geq(fq_mono_recent_us(&recent), before_us);
    }
}

Test(clock, deadlines_do_not_overflow)
{
    cr_assert_eq(fq_deadline_us(10, -1), INT64_MAX);
    cr_assert_eq(fq_deadline_us(10, INT64_MAX), INT64_MAX);
    cr_assert_eq(fq_deadline_us(10, 2), 2010);
    cr_assert_eq(fq_deadline_poll_ms(10, INT64_MAX), -1);
    cr_assert_eq(fq_deadline_poll_ms(10, 10), 0);
    cr_assert_eq(fq_deadline_poll_ms(10, 11), 1, "rounded up, or poll would spin");
}

Test(random, xoshiro_matches_the_authors_reference)
{
    /* First outputs of xoshiro256** with state {1, 2, 3, 4}. */
    struct fq_prng prng = {{1, 2, 3, 4}};
    const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(fq_prng_next(&prng), expected[i]);
    }
}

/* How many of `waits` waits without work begin with a spin; each ends `quiet_us` after it began. */
static unsigned spins_in_vain(struct fq_spin *spin, unsigned waits, int64_t *at_us)
{
    unsigned spins = 0;
    for (unsigned i = 0; i < waits; i++) {
        int64_t active_us = *at_us;
        spins += fq_spin_goes_on(spin, active_us, active_us + 1);
        cr_assert(!fq_spin_goes_on(spin, active_us, active_us + 50));
        cr_assert(!fq_spin_goes_on(spin, active_us, active_us + 51), "a wait that slept sleeps on");
        *at_us += 60;
    }
    return spins;
}

Test(spin, in_vain_becomes_rare_and_one_success_makes_it_the_rule_again)
{
    struct fq_spin spin;
    int64_t at_us = 1000;
    fq_spin_init(&spin, 50);
    cr_assert_eq(spins_in_vain(&spin, 127, &at_us), 7, "after 0, 1, 2, 4, 8, 16, 32 sleeps");
    cr_assert_eq(spins_in_vain(&spin, 65, &at_us), 1);
    cr_assert_eq(spins_in_vain(&spin, 65, &at_us), 1, "once in 65 at the least");
    (void)spins_in_vain(&spin, 71, &at_us);
    cr_assert_eq(spin.left, 1);
    for (unsigned i = 0; i < 100; i++) { /* work comes after 10 us */
        cr_assert_eq(fq_spin_goes_on(&spin, at_us, at_us + 1), i > 0);
        at_us += 10;
        fq_spin_found(&spin, at_us);
    }
    cr_assert_eq(spins_in_vain(&spin, 3, &at_us), 2, "the count began anew");
    fq_spin_init(&spin, 50);
    cr_assert(fq_spin_goes_on(&spin, at_us, at_us + 1));
    fq_spin_found(&spin, at_us + 3000);
    cr_assert(!fq_spin_goes_on(&spin, at_us + 3000, at_us + 3001), "found too late: in vain");
}

Test(spin, a_wait_that_begins_late_or_without_a_spin_says_nothing)
{
    struct fq_spin spin;
    fq_spin_init(&spin, 50);
    for (int64_t active_us = 0; active_us < 1000; active_us += 100) {
        cr_assert(!fq_spin_goes_on(&spin, active_us, active_us + 50));
    }
    cr_assert(fq_spin_goes_on(&spin, 1000, 1001));
    fq_spin_init(&spin, 0);
    cr_assert(!fq_spin_goes_on(&spin, 0, 0), "0 turns it off");
}
