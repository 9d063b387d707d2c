/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits that flip, files that are cut, files that vanish: nothing acknowledged goes silently,
 * nothing wrong comes back, what is undamaged is readable.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_maker.h"
#include "persist_recording.h"
#include "storage/layout.h"

#define BATCHES       6
#define SEGMENT_BYTES (8u << 10)

static const struct fq_uuid topic_id = {{9, 9}};

struct small {
    char *folder, file[4200];
    uint8_t image[SEGMENT_BYTES]; /* the undamaged file */
    uint64_t data_bytes;
    uint8_t batches[BATCHES][512];
    size_t lengths[BATCHES];
    int64_t bases[BATCHES + 1];
};

static struct fq_store *open_store(const char *folder, struct fq_persist *persist)
{
    struct fq_store *store;
    struct fq_err err;
    const struct fq_store_params params = {.data_dir = folder,
                                           .shards_count = 1,
                                           .segment_bytes_max = SEGMENT_BYTES,
                                           .segment_bytes_first = SEGMENT_BYTES,
                                           .batch_bytes_max = 2048,
                                           .persist = persist};
    cr_assert_eq(fq_store_open(&params, &store, &err), 0, "%s", err.text);
    return store;
}

static struct fq_log *open_log(struct fq_store *store)
{
    struct fq_log *log;
    struct fq_err err;
    const struct fq_log_params params = {
        .topic_id = topic_id, .topic = "t", .segment_bytes = SEGMENT_BYTES};
    cr_assert_eq(fq_log_open(store, &params, NULL, NULL, &log, &err), 0, "%s", err.text);
    return log;
}

static void read_file(const char *path, uint8_t *out, size_t bytes)
{
    int fd = open(path, O_RDONLY);
    cr_assert_eq(pread(fd, out, bytes, 0), (ssize_t)bytes);
    (void)close(fd);
}

static void write_file(const char *path, const uint8_t *bytes, size_t length)
{
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, bytes, length, 0), (ssize_t)length);
    (void)close(fd);
}

/* A log of six batches, cleanly closed; two leader epochs; then the image of its one file. */
static void make_small(struct small *s, struct fq_persist *persist)
{
    s->folder = log_maker_folder();
    struct fq_store *store = open_store(s->folder, persist);
    struct fq_log *log = open_log(store);
    for (int i = 0; i < BATCHES; i++) {
        static uint8_t batch[LOG_MAKER_BATCH_MAX];
        s->bases[i] = fq_log_end(log);
        s->lengths[i] = log_maker_batch(batch, s->bases[i], i < 3 ? 1 : 2, 1 + i % 3, 10, 5);
        memcpy(s->batches[i], batch, s->lengths[i]);
        s->data_bytes += s->lengths[i];
        cr_assert_eq(log_maker_append(store, log, batch, s->lengths[i]), 0);
        cr_assert_eq(log_maker_settle(store, log), 0);
    }
    s->bases[BATCHES] = fq_log_end(log);
    log_maker_keep_house(store);
    fq_log_close(log, true);
    fq_store_close(store, true);
    (void)snprintf(s->file, sizeof s->file, "%s/t-09090000000000000000000000000000/0/%020d.log",
                   s->folder, 0);
    read_file(s->file, s->image, sizeof s->image);
}

static void end_small(struct small *s)
{
    log_maker_remove_tree(s->folder);
    free(s->folder);
}

struct seen {
    const struct small *small;
    bool batch[BATCHES];
    const char *wrong;
};

static int see(void *context, const struct fq_batch_header *header, const uint8_t *batch,
               uint64_t segment_base, uint64_t position)
{
    struct seen *seen = context;
    (void)segment_base;
    (void)position;
    for (int i = 0; i < BATCHES; i++) {
        if (seen->small->bases[i] == header->base_offset &&
            fq_batch_total_bytes(header) == seen->small->lengths[i] &&
            memcmp(batch, seen->small->batches[i], seen->small->lengths[i]) == 0) {
            seen->batch[i] = true;
            return 0;
        }
    }
    seen->wrong = "a batch that was never written";
    return 1;
}

static bool is_reported(const struct fq_log *log, int64_t first, int64_t next)
{
    for (size_t i = 0; i < fq_log_damage_count(log); i++) {
        const struct fq_damage *d = fq_log_damage_at(log, i);
        if (d->first_offset <= first && next <= d->next_offset) {
            return true;
        }
    }
    return false;
}

/* Opens a damaged log; returns how many batches could not be read. */
static int check_damaged(const struct small *s, struct fq_log *log, const char *what, unsigned bit)
{
    struct seen seen = {.small = s};
    int lost = 0;
    cr_assert_eq(fq_log_scan(log, fq_log_start(log), INT64_MAX, see, &seen), 0, "%s bit %u: %s",
                 what, bit, seen.wrong);
    cr_assert_geq(fq_log_end(log), s->bases[BATCHES], "%s bit %u: an offset could be given twice",
                  what, bit);
    for (int i = 0; i < BATCHES; i++) {
        struct fq_log_place place;
        int r = fq_log_find(log, s->bases[i], &place);
        if (seen.batch[i]) {
            cr_assert_eq(r, 0, "%s bit %u: batch %d is there and not found: %d, %lld", what, bit, i,
                         r, (long long)place.base_offset);
            continue;
        }
        lost++;
        cr_assert_eq(r, FLASHQ_ERR_CORRUPT, "%s bit %u: batch %d: %d", what, bit, i, r);
        cr_assert_geq(place.base_offset, s->bases[i + 1]);
        cr_assert(is_reported(log, s->bases[i], s->bases[i + 1]),
                  "%s bit %u: batch %d is lost in silence", what, bit, i);
    }
    return lost;
}

/* Every bit of header blocks and data, in one model. */
static void flip_every_bit(enum recording_model model)
{
    struct small s = {0};
    struct fq_persist *persist = recording_plain_create(model);
    make_small(&s, persist);
    uint8_t *image = malloc(sizeof s.image);
    unsigned lost_total = 0, bits = 8 * (FQ_SEG_DATA + (unsigned)s.data_bytes);
    for (unsigned bit = 0; bit < bits; bit++) {
        bool is_block =
            bit / 8 < 352 || (bit / 8 >= 512 && bit / 8 < 544) || bit / 8 >= FQ_SEG_DATA;
        if (!is_block) {
            bit += 7; /* bytes that mean nothing: one bit of each is enough */
        }
        memcpy(image, s.image, sizeof s.image);
        image[bit / 8] ^= (uint8_t)(1u << bit % 8);
        write_file(s.file, image, sizeof s.image);
        struct fq_store *store = open_store(s.folder, persist);
        struct fq_log *log = open_log(store);
        int lost = check_damaged(&s, log, model == RECORDING_MEMORY ? "memory" : "disk", bit);
        cr_assert_leq(lost, 1, "bit %u: one flipped bit costs one batch, not %d", bit, lost);
        if (bit / 8 >= FQ_SEG_DATA) {
            cr_assert_eq(lost, 1, "bit %u of the data was not noticed", bit);
        }
        lost_total += (unsigned)lost;
        /* what is appended now is kept, whatever the damage */
        if (bit % 61 == 0) {
            static uint8_t batch[LOG_MAKER_BATCH_MAX];
            int64_t base = fq_log_end(log);
            size_t length = log_maker_batch(batch, base, 2, 1, 5, 77);
            struct fq_log_place place;
            cr_assert_eq(log_maker_append(store, log, batch, length), 0);
            cr_assert_eq(log_maker_settle(store, log), 0);
            fq_log_close(log, false);
            log = open_log(store);
            cr_assert_eq(fq_log_find(log, base, &place), 0, "bit %u: appended after damage, gone",
                         bit);
        }
        fq_log_close(log, true);
        fq_store_close(store, true);
    }
    cr_assert_gt(lost_total, 0);
    free(image);
    persist->ops->destroy(persist);
    end_small(&s);
}

/* case 20 */
Test(damage, a_flipped_bit_is_found_reported_and_costs_one_batch_on_memory, .timeout = 100)
{
    flip_every_bit(RECORDING_MEMORY);
}

Test(damage, a_flipped_bit_is_found_reported_and_costs_one_batch_on_disks, .timeout = 100)
{
    flip_every_bit(RECORDING_DISK);
}

/* case 23: the tail torn at every byte of the last three batches, none of them below the tail word.
 */
Test(damage, a_torn_tail_is_cut_cleanly_and_never_revived, .timeout = 100)
{
    struct small s = {0};
    struct fq_persist *persist = recording_plain_create(RECORDING_DISK);
    make_small(&s, persist);
    struct fq_segment_identity identity;
    uint8_t image[SEGMENT_BYTES], *cut_at = image + FQ_SEG_DATA;
    cr_assert_eq(fq_identity_decode(s.image, &identity), FQ_IDENTITY_OK);
    uint64_t three = s.lengths[0] + s.lengths[1] + s.lengths[2];
    uint64_t tail = fq_word_make(&identity, FQ_WORD_TAIL, three);
    uint64_t end = fq_word_make(&identity, FQ_WORD_END, (uint64_t)s.bases[3]);
    for (uint64_t at = three; at <= s.data_bytes; at++) {
        memcpy(image, s.image, sizeof image);
        memcpy(image + FQ_SEG_TAIL, &tail, 8);
        memcpy(image + FQ_SEG_END, &end, 8);
        memset(cut_at + at, 0xaa,
               sizeof image - FQ_SEG_DATA - at); /* what a torn write may leave */
        if (at % 3 == 0) {
            memset(cut_at + at, 0, sizeof image - FQ_SEG_DATA - at);
        }
        write_file(s.file, image, sizeof image);
        uint64_t whole = three;
        int expected = 3;
        while (expected < BATCHES && whole + s.lengths[expected] <= at) {
            whole += s.lengths[expected++];
        }
        for (int round = 0; round < 2; round++) {
            struct seen seen = {.small = &s};
            struct fq_store *store = open_store(s.folder, persist);
            struct fq_log *log = open_log(store);
            cr_assert_eq(fq_log_end(log), s.bases[expected], "cut at %lu", (unsigned long)at);
            cr_assert_eq(fq_log_damage_count(log), 0, "a torn tail is no damage");
            cr_assert_eq(fq_log_scan(log, 0, INT64_MAX, see, &seen), 0);
            fq_log_close(log, false);
            fq_store_close(store, false);
        }
        read_file(s.file, image, sizeof image);
        for (uint64_t i = whole; i < sizeof image - FQ_SEG_DATA; i++) {
            cr_assert_eq(cut_at[i], 0, "byte %lu above the cut at %lu could be revived",
                         (unsigned long)i, (unsigned long)at);
        }
    }
    persist->ops->destroy(persist);
    end_small(&s);
}

/* On memory nothing above the tail exists, whatever is there. */
Test(damage, above_the_tail_of_memory_there_is_nothing)
{
    struct small s = {0};
    struct fq_persist *persist = recording_plain_create(RECORDING_MEMORY);
    make_small(&s, persist);
    struct fq_segment_identity identity;
    cr_assert_eq(fq_identity_decode(s.image, &identity), FQ_IDENTITY_OK);
    uint64_t three = s.lengths[0] + s.lengths[1] + s.lengths[2];
    uint64_t tail = fq_word_make(&identity, FQ_WORD_TAIL, three);
    memcpy(s.image + FQ_SEG_TAIL, &tail, 8);
    write_file(s.file, s.image, sizeof s.image);
    struct fq_store *store = open_store(s.folder, persist);
    struct fq_log *log = open_log(store);
    cr_assert_eq(fq_log_end(log), s.bases[3]);
    cr_assert_eq(fq_log_damage_count(log), 0);
    fq_log_close(log, true);
    fq_store_close(store, true);
    persist->ops->destroy(persist);
    end_small(&s);
}

/* A batch image inside a damaged batch's value must not be taken for a batch. */
Test(damage, a_batch_inside_a_value_is_not_served)
{
    static uint8_t inner[LOG_MAKER_BATCH_MAX], outer[LOG_MAKER_BATCH_MAX];
    struct fq_persist *persist = recording_plain_create(RECORDING_MEMORY);
    char *folder = log_maker_folder(), file[4300];
    struct fq_store *store = open_store(folder, persist);
    struct fq_log *log = open_log(store);
    size_t inner_length = log_maker_batch(inner, 2, 0, 1, 20, 1);
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, outer, sizeof outer);
    const struct fq_record_in record = {.timestamp_ms = 1, .value = {inner, inner_length}};
    cr_assert_eq(fq_batch_builder_append(&builder, &record), 0);
    const struct fq_record_in second = {.timestamp_ms = 1, .value = {inner, 3}};
    cr_assert_eq(fq_batch_builder_append(&builder, &second), 0);
    const struct fq_batch_finish finish = {-1, -1, -1, 0};
    size_t outer_length = (size_t)fq_batch_builder_finish(&builder, &finish);
    fq_batch_stamp(outer, 0, 0);
    cr_assert_eq(log_maker_append(store, log, outer, outer_length), 0);
    size_t last_length = log_maker_batch(inner, 2, 0, 1, 30, 9);
    cr_assert_eq(log_maker_append(store, log, inner, last_length), 0);
    cr_assert_eq(log_maker_settle(store, log), 0);
    log_maker_keep_house(store);
    fq_log_close(log, true);
    fq_store_close(store, true);
    (void)snprintf(file, sizeof file, "%s/t-09090000000000000000000000000000/0/%020d.log", folder,
                   0);
    int fd = open(file, O_RDWR);
    cr_assert_eq(pwrite(fd, "\xff\xff", 2, FQ_SEG_DATA + FQ_BATCH_LENGTH + 1), 2);
    (void)close(fd);
    store = open_store(folder, persist);
    log = open_log(store);
    struct fq_log_place place;
    cr_assert_eq(fq_log_find(log, 0, &place), FLASHQ_ERR_CORRUPT);
    cr_assert_eq(place.base_offset, 2);
    cr_assert_eq(fq_log_find(log, 2, &place), 0);
    cr_assert_eq(place.position, outer_length, "the real batch 2, not the image of one");
    fq_log_close(log, true);
    fq_store_close(store, true);
    persist->ops->destroy(persist);
    log_maker_remove_tree(folder);
    free(folder);
}
