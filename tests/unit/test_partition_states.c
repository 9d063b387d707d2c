/* SPDX-License-Identifier: Apache-2.0 */
/* Producer states, snapshots, epoch history and the view line, without a log. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "partition/epochs.h"
#include "partition/producers.h"
#include "partition/snapshot.h"
#include "partition/view.h"

static struct fq_producer *must_ensure(struct fq_producers *producers, int64_t id, unsigned batches)
{
    struct fq_producer *producer = NULL;
    cr_assert_eq(fq_producers_ensure(producers, id, batches, &producer), 0);
    return producer;
}

Test(producers, a_batch_sent_again_is_answered_with_its_original_offset)
{
    struct fq_producers producers;
    struct fq_producer_batch original;
    fq_producers_init(&producers, 10);
    struct fq_producer *p = must_ensure(&producers, 77, 3);
    cr_assert_eq(fq_producer_last_sequence(p), -1);
    for (int i = 0; i < 5;
         i++) { /* batches of 2 at sequences 0, 2, ... and offsets 100, 110, ... */
        cr_assert_eq(fq_producer_check(p, 2 * i, 2, 3, &original), FQ_PRODUCER_NEXT);
        fq_producer_appended(p, 2 * i, 2, 100 + 10 * i, 0);
    }
    cr_assert_eq(fq_producer_last_sequence(p), 9);
    cr_assert_eq(p->last_offset, 141);
    for (int i = 2; i < 5; i++) {
        cr_assert_eq(fq_producer_check(p, 2 * i, 2, 3, &original), FQ_PRODUCER_DUPLICATE);
        cr_assert_eq(original.base_offset, 100 + 10 * i);
    }
    cr_assert_eq(fq_producer_check(p, 2, 2, 3, &original), FQ_PRODUCER_OUT_OF_ORDER, "forgotten");
    cr_assert_eq(fq_producer_check(p, 6, 1, 3, &original), FQ_PRODUCER_OUT_OF_ORDER, "other count");
    cr_assert_eq(fq_producer_check(p, 7, 2, 3, &original), FQ_PRODUCER_OUT_OF_ORDER, "other start");
    cr_assert_eq(fq_producer_check(p, 12, 2, 3, &original), FQ_PRODUCER_OUT_OF_ORDER, "a gap");
    cr_assert_eq(fq_producer_check(p, 6, 2, 1, &original), FQ_PRODUCER_OUT_OF_ORDER,
                 "a smaller max.in.flight looks back less far");
    fq_producers_fini(&producers);
}

Test(producers, sequences_wrap_from_the_greatest_int_to_zero)
{
    cr_assert_eq(fq_sequence_add(INT32_MAX, 1), 0);
    cr_assert_eq(fq_sequence_add(INT32_MAX - 1, 5), 3);
    struct fq_producers producers;
    struct fq_producer_batch original;
    fq_producers_init(&producers, 10);
    struct fq_producer *p = must_ensure(&producers, 1, 4);
    p->next_sequence = INT32_MAX - 1;
    fq_producer_appended(p, INT32_MAX - 1, 2, 0, 0);
    cr_assert_eq(p->next_sequence, 0);
    cr_assert_eq(fq_producer_last_sequence(p), INT32_MAX);
    cr_assert_eq(fq_producer_check(p, 0, 7, 4, &original), FQ_PRODUCER_NEXT);
    fq_producer_appended(p, 0, 7, 2, 0);
    cr_assert_eq(fq_producer_check(p, INT32_MAX - 1, 2, 4, &original), FQ_PRODUCER_DUPLICATE);
    fq_producers_fini(&producers);
}

Test(producers, at_the_limit_the_longest_closed_gives_way_and_an_open_one_never)
{
    struct fq_producers producers;
    fq_producers_init(&producers, 3);
    struct fq_producer *extra;
    for (int64_t id = 1; id <= 3; id++) {
        fq_producers_opened(&producers, must_ensure(&producers, id, 2), 0);
    }
    cr_assert_eq(fq_producers_ensure(&producers, 4, 2, &extra), FLASHQ_ERR_LIMIT);
    cr_assert_eq(producers.count, 3);
    fq_producers_closed(&producers, fq_producers_find(&producers, 2), 0);
    fq_producers_closed(&producers, fq_producers_find(&producers, 1), 0);
    must_ensure(&producers, 4, 2);
    cr_assert_null(fq_producers_find(&producers, 2), "closed before 1");
    cr_assert_not_null(fq_producers_find(&producers, 1));
    cr_assert_not_null(fq_producers_find(&producers, 3));
    cr_assert_eq(producers.evicted, 1);
    fq_producers_fini(&producers);
}

Test(producers, only_closed_and_long_unused_ones_expire)
{
    struct fq_producers producers;
    fq_producers_init(&producers, 100);
    for (int64_t id = 0; id < 10; id++) {
        struct fq_producer *p = must_ensure(&producers, id, 2);
        fq_producers_opened(&producers, p, 1000);
        if (id != 3) {
            fq_producers_closed(&producers, p, 1000 + id);
        }
    }
    cr_assert_eq(fq_producers_expire(&producers, 2004, 1000, 100), 3,
                 "1000, 1001, 1002 (3 is open)");
    cr_assert_eq(fq_producers_expire(&producers, 2004, 1000, 100), 0);
    cr_assert_not(fq_producers_wants_expire(&producers, 2004, 1000));
    cr_assert(fq_producers_wants_expire(&producers, 2005, 1000));
    cr_assert_eq(fq_producers_expire(&producers, INT64_MAX, -1, 100), 0, "-1 is never");
    cr_assert_eq(fq_producers_expire(&producers, 0, 0, 100), 0, "a clock set back expires nothing");
    cr_assert_eq(fq_producers_expire(&producers, INT64_MAX, 1000, 2), 2, "at most what was asked");
    cr_assert_eq(fq_producers_expire(&producers, INT64_MAX, 1000, 100), 4);
    cr_assert_eq(producers.count, 1);
    cr_assert_not_null(fq_producers_find(&producers, 3));
    fq_producers_fini(&producers);
}

/* Opening, closing and forgetting thousands, compared with a plain array. */
Test(producers, the_table_finds_what_a_plain_array_finds)
{
    enum { IDS = 600 };
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    struct fq_producers producers;
    fq_producers_init(&producers, IDS);
    bool there[IDS] = {false};
    int64_t used[IDS] = {0}, now = 0;
    for (int step = 0; step < 20000; step++) {
        int64_t id = (int64_t)fq_prng_below(&prng, IDS);
        now += (int64_t)fq_prng_below(&prng, 4);
        if (fq_prng_below(&prng, 3) > 0) {
            struct fq_producer *p =
                must_ensure(&producers, id, 1 + (unsigned)fq_prng_below(&prng, 9));
            fq_producers_opened(&producers, p, now);
            fq_producers_closed(&producers, p, now);
            there[id] = true;
            used[id] = now;
        } else {
            fq_producers_expire(&producers, now, 300, SIZE_MAX);
            for (int i = 0; i < IDS; i++) {
                there[i] = there[i] && now - used[i] <= 300;
            }
        }
        cr_assert_eq(fq_producers_find(&producers, id) != NULL, there[id], "seed %llu step %d",
                     (unsigned long long)seed, step);
    }
    size_t count = 0, walked = 0;
    for (int i = 0; i < IDS; i++) {
        count += there[i];
    }
    for (struct fq_producer *p = NULL; (p = fq_producers_next(&producers, p)) != NULL;) {
        cr_assert(there[p->id]);
        walked++;
    }
    cr_assert_eq(producers.count, count, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(walked, count);
    fq_producers_fini(&producers);
}

Test(producers, truncation_forgets_the_batches_above_the_cut)
{
    struct fq_producers producers;
    struct fq_producer_batch original;
    fq_producers_init(&producers, 10);
    struct fq_producer *p = must_ensure(&producers, 5, 4);
    for (int i = 0; i < 6; i++) {
        fq_producer_appended(p, 3 * i, 3, 10 * i, 0);
    }
    fq_producers_truncate(&producers, 40);
    cr_assert_eq(p->next_sequence, 12);
    cr_assert_eq(p->last_offset, 32);
    cr_assert_eq(fq_producer_check(p, 12, 3, 4, &original), FQ_PRODUCER_NEXT);
    cr_assert_eq(fq_producer_check(p, 9, 3, 4, &original), FQ_PRODUCER_DUPLICATE);
    fq_producers_truncate(&producers, 0);
    cr_assert_eq(fq_producer_last_sequence(p), -1);
    cr_assert_eq(p->last_offset, -1);
    cr_assert_eq(p->next_sequence, 6, "the oldest that was remembered comes first again");
    fq_producers_fini(&producers);
}

Test(producers, replay_passes_over_what_the_snapshot_had)
{
    struct fq_producers producers;
    fq_producers_init(&producers, 10);
    struct fq_batch_header header = {.producer_id = 9,
                                     .producer_epoch = 2,
                                     .base_sequence = 40,
                                     .records_count = 5,
                                     .last_offset_delta = 4,
                                     .base_offset = 1000};
    cr_assert_eq(fq_producers_replay(&producers, &header, 8, 0), 0);
    cr_assert_eq(fq_producers_replay(&producers, &header, 8, 0), 0, "again");
    struct fq_producer *p = fq_producers_find(&producers, 9);
    cr_assert_eq(p->batches_count, 1);
    cr_assert_eq(p->next_sequence, 45);
    cr_assert_eq(p->last_offset, 1004);
    cr_assert_eq(p->epoch, 2);
    header.producer_id = -1;
    cr_assert_eq(fq_producers_replay(&producers, &header, 8, 0), 0);
    cr_assert_eq(producers.count, 1, "batches without a producer leave no state");
    fq_producers_fini(&producers);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static void fill_random(struct fq_producers *producers, struct fq_epochs *epochs,
                        struct fq_prng *prng)
{
    for (int i = 0; i < 40; i++) {
        int64_t id = (int64_t)(fq_prng_next(prng) >> 1);
        struct fq_producer *p = must_ensure(producers, id, 1 + (unsigned)fq_prng_below(prng, 64));
        p->epoch = (int16_t)fq_prng_below(prng, INT16_MAX);
        p->next_sequence = (int32_t)(fq_prng_next(prng) & INT32_MAX);
        int64_t offset = 0;
        for (uint64_t batches = fq_prng_below(prng, 100); batches > 0; batches--) {
            int32_t count = 1 + (int32_t)fq_prng_below(prng, 1000);
            fq_producer_appended(p, p->next_sequence, count, offset,
                                 (int64_t)fq_prng_below(prng, 5000));
            offset += count + (int64_t)fq_prng_below(prng, 50);
        }
        if (i % 3 == 0) {
            fq_producers_opened(producers, p, 5000);
        }
    }
    for (int32_t epoch = 0; epoch < 9; epoch++) {
        cr_assert_eq(fq_epochs_reserve(epochs), 0);
        fq_epochs_assign(epochs, epoch * 2, epoch * 100);
    }
}

static void assert_same(const struct fq_producer *a, const struct fq_producer *b)
{
    struct fq_producer_batch x, y;
    cr_assert_eq(a->epoch, b->epoch);
    cr_assert_eq(a->next_sequence, b->next_sequence);
    cr_assert_eq(a->last_offset, b->last_offset);
    cr_assert_eq(a->used_ms, b->used_ms);
    cr_assert_eq(a->batches_count, b->batches_count);
    for (unsigned i = 0; i < a->batches_capacity; i++) {
        const struct fq_producer_batch *batch = &a->batches[i];
        if (batch->records_count == 0) {
            continue;
        }
        cr_assert_eq(fq_producer_check(a, batch->base_sequence, batch->records_count, 64, &x),
                     fq_producer_check(b, batch->base_sequence, batch->records_count, 64, &y));
        cr_assert_eq(memcmp(&x, &y, sizeof x), 0);
    }
}

Test(snapshot, gives_back_every_state_and_refuses_every_flipped_bit)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    struct fq_producers before, after;
    struct fq_epochs epochs, epochs_after;
    fq_producers_init(&before, 1000);
    fq_epochs_init(&epochs);
    fq_producers_init(&after, 1000);
    fq_epochs_init(&epochs_after);
    fill_random(&before, &epochs, &prng);

    size_t bytes = fq_snapshot_bytes(&before, &epochs);
    uint8_t *out = malloc(bytes);
    cr_assert_eq(fq_snapshot_encode(1000000, &before, &epochs, out, bytes - 1),
                 FLASHQ_ERR_TOO_LARGE);
    cr_assert_eq(fq_snapshot_encode(1000000, &before, &epochs, out, bytes), (int64_t)bytes);
    int64_t offset = 0;
    cr_assert_eq(fq_snapshot_decode(out, bytes, 4, 10000, &offset, &after, &epochs_after, NULL), 0,
                 "seed %llu", (unsigned long long)seed);
    cr_assert_eq(offset, 1000000);
    cr_assert_eq(after.count, before.count);
    for (struct fq_producer *p = NULL; (p = fq_producers_next(&before, p)) != NULL;) {
        struct fq_producer *other = fq_producers_find(&after, p->id);
        cr_assert_not_null(other);
        assert_same(p, other);
        cr_assert_eq(other->opens_count, 0, "after a restart nobody has it open");
    }
    cr_assert_eq(epochs_after.count, epochs.count);
    cr_assert_eq(
        memcmp(epochs.entries, epochs_after.entries, epochs.count * sizeof *epochs.entries), 0);

    fq_producers_fini(&after);
    fq_epochs_fini(&epochs_after);
    fq_producers_init(&after, 1000);
    for (int i = 0; i < 2000; i++) {
        size_t bit = (size_t)fq_prng_below(&prng, bytes * 8);
        out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        cr_assert_eq(fq_snapshot_decode(out, bytes, 4, 0, &offset, &after, &epochs_after, NULL),
                     FLASHQ_ERR_CORRUPT);
        out[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    for (size_t length = 0; length < bytes; length += 1 + bytes / 300) {
        cr_assert_eq(fq_snapshot_decode(out, length, 4, 0, &offset, &after, &epochs_after, NULL),
                     FLASHQ_ERR_CORRUPT);
    }
    cr_assert_eq(after.count, 0);
    free(out);
    fq_producers_fini(&before);
    fq_producers_fini(&after);
    fq_epochs_fini(&epochs);
    fq_epochs_fini(&epochs_after);
}

/* Whoever can write the pool can also write a fitting checksum. */
Test(snapshot, random_changes_under_a_fitting_checksum_never_get_past_the_checks)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    struct fq_producers before;
    struct fq_epochs epochs;
    fq_producers_init(&before, 1000);
    fq_epochs_init(&epochs);
    fill_random(&before, &epochs, &prng);
    size_t bytes = fq_snapshot_bytes(&before, &epochs);
    uint8_t *whole = malloc(bytes), *bad = malloc(bytes);
    cr_assert_eq(fq_snapshot_encode(1000000, &before, &epochs, whole, bytes), (int64_t)bytes);
    for (int i = 0; i < 2000; i++) {
        memcpy(bad, whole, bytes);
        for (uint64_t changes = 1 + fq_prng_below(&prng, 3); changes > 0; changes--) {
            bad[fq_prng_below(&prng, bytes - 4)] = (uint8_t)fq_prng_next(&prng);
        }
        size_t length =
            fq_prng_below(&prng, 4) == 0 ? 28 + (size_t)fq_prng_below(&prng, bytes - 28) : bytes;
        fq_store_le32(bad + length - 4, fq_crc32c(0, bad, length - 4));
        struct fq_producers after;
        struct fq_epochs epochs_after;
        int64_t offset;
        fq_producers_init(&after, 1000);
        fq_epochs_init(&epochs_after);
        int rc = fq_snapshot_decode(bad, length, 4, 10000, &offset, &after, &epochs_after, NULL);
        cr_assert(rc == 0 || after.count == 0, "seed %llu", (unsigned long long)seed);
        cr_assert(rc == 0 || epochs_after.count == 0);
        for (struct fq_producer *p = NULL; (p = fq_producers_next(&after, p)) != NULL;) {
            cr_assert(p->id >= 0 && p->epoch >= 0 && p->next_sequence >= 0);
            cr_assert(p->last_offset < offset);
        }
        fq_producers_fini(&after);
        fq_epochs_fini(&epochs_after);
    }
    free(whole);
    free(bad);
    fq_producers_fini(&before);
    fq_epochs_fini(&epochs);
}

Test(snapshot, an_epoch_that_begins_where_nothing_was_appended_is_not_believed)
{
    struct fq_producers none;
    struct fq_epochs epochs, after;
    uint8_t out[256];
    int64_t offset;
    fq_producers_init(&none, 10);
    fq_epochs_init(&epochs);
    fq_epochs_init(&after);
    cr_assert_eq(fq_epochs_reserve(&epochs), 0);
    fq_epochs_assign(&epochs, 3, 800);
    int64_t bytes = fq_snapshot_encode(801, &none, &epochs, out, sizeof out);
    cr_assert_eq(fq_snapshot_decode(out, (size_t)bytes, 4, 0, &offset, &none, &after, NULL), 0);
    bytes = fq_snapshot_encode(800, &none, &epochs, out, sizeof out);
    cr_assert_eq(fq_snapshot_decode(out, (size_t)bytes, 4, 0, &offset, &none, &after, NULL),
                 FLASHQ_ERR_CORRUPT);
    fq_producers_fini(&none);
    fq_epochs_fini(&epochs);
    fq_epochs_fini(&after);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

Test(epochs, answer_as_a_line_per_offset_would)
{
    struct fq_epochs epochs;
    fq_epochs_init(&epochs);
    static const int32_t stamped[] = {0, 0, 0, 4, 4, 5, 9, 9, 9, 9}; /* by offset, from 100 on */
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(fq_epochs_reserve(&epochs), 0);
        fq_epochs_assign(&epochs, stamped[i], 100 + i);
    }
    cr_assert_eq(epochs.count, 4);
    cr_assert_eq(fq_epochs_newest(&epochs), 9);
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(fq_epochs_at(&epochs, 100 + i), stamped[i]);
    }
    cr_assert_eq(fq_epochs_at(&epochs, 99), -1);
    cr_assert_eq(fq_epochs_at(&epochs, INT64_MAX), 9);
    fq_epochs_trim(&epochs, 104);
    cr_assert_eq(epochs.count, 3);
    cr_assert_eq(fq_epochs_at(&epochs, 104), 4);
    fq_epochs_truncate(&epochs, 105);
    cr_assert_eq(fq_epochs_newest(&epochs), 4);
    fq_epochs_truncate(&epochs, 0);
    cr_assert_eq(fq_epochs_newest(&epochs), -1);
    fq_epochs_fini(&epochs);
}

/* ---- view ------------------------------------------------------------------------------------ */

Test(view, any_mixture_of_two_publications_fails_the_checksum)
{
    _Alignas(64) struct fq_view line;
    struct fq_view view = {.generation = 3,
                           .leader_epoch = 1,
                           .segment_id = 5,
                           .high_watermark = 10,
                           .committed_position = 700};
    fq_view_publish(&line, &view);
    uint64_t first[8], second[8], mixed[8];
    memcpy(first, &line, sizeof first);
    view.high_watermark = 12;
    view.committed_position = 900;
    fq_view_publish(&line, &view);
    memcpy(second, &line, sizeof second);
    cr_assert_eq(line.high_watermark, 12);
    cr_assert_eq(line.version, 2);
    for (unsigned mask = 0; mask < 256; mask++) {
        for (unsigned word = 0; word < 8; word++) {
            mixed[word] = (mask >> word & 1u) != 0 ? second[word] : first[word];
        }
        bool is_whole = memcmp(mixed, first, 64) == 0 || memcmp(mixed, second, 64) == 0;
        bool fits = fq_crc32c(0, mixed, 60) == (uint32_t)(mixed[7] >> 32);
        cr_assert_eq(fits, is_whole, "mixture %02x", mask);
    }
}
