/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/spsc.h"

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
