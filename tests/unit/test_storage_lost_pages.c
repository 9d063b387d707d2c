/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk whose kernel forgets: after a failed sync the pages look written to every reader, are not
 * on the disk, and no later sync writes them. What a log calls durable after a restart must be on
 * the disk all the same.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log_maker.h"
#include "storage/persist.h"

#define PAGE_BYTES  4096u
#define FILES_MAX   64u
#define VALUE_BYTES 700u

/* --- the disk --------------------------------------------------------------------------------- */

struct image {
    ino_t inode;
    int fd;
    uint64_t bytes;
    uint8_t *on_disk;
    bool *dirty; /* by page: written, and not yet by a sync */
};

struct forgetful {
    struct fq_persist persist; /* first */
    struct fq_persist_ops ops;
    struct fq_persist *inner;
    struct image images[FILES_MAX];
    unsigned count;
    bool fail_sync;
};

static struct forgetful *of(struct fq_persist *p)
{
    return (struct forgetful *)(void *)p;
}

static struct image *image_of(struct fq_pfile *pf)
{
    struct forgetful *d = of(pf->persist);
    struct stat st;
    cr_assert_eq(fstat(pf->fd, &st), 0);
    for (unsigned i = 0; i < d->count; i++) {
        if (d->images[i].inode == st.st_ino) {
            return &d->images[i];
        }
    }
    cr_assert_lt(d->count, FILES_MAX);
    struct image *image = &d->images[d->count++];
    *image = (struct image){.inode = st.st_ino, .fd = dup(pf->fd), .bytes = pf->bytes};
    image->on_disk = malloc(image->bytes);
    image->dirty = calloc(image->bytes / PAGE_BYTES + 1, sizeof(bool));
    cr_assert(image->on_disk && image->dirty && image->fd >= 0);
    memcpy(image->on_disk, pf->map, image->bytes); /* as made, which counts as durable */
    return image;
}

static void mark(struct image *image, uint64_t pos, size_t len)
{
    for (uint64_t page = pos / PAGE_BYTES; page <= (pos + len - 1) / PAGE_BYTES; page++) {
        image->dirty[page] = true;
    }
}

static int disk_write(struct fq_pfile *pf, uint64_t pos, const void *src, size_t len)
{
    struct image *image = image_of(pf);
    if (len > 0) {
        mark(image, pos, len);
    }
    return of(pf->persist)->inner->ops->write(pf, pos, src, len);
}

static int disk_word(struct fq_pfile *pf, uint64_t pos, uint64_t value)
{
    mark(image_of(pf), pos, sizeof value);
    return of(pf->persist)->inner->ops->word(pf, pos, value);
}

static int disk_sync(struct fq_pfile *pf)
{
    struct image *image = image_of(pf);
    bool fails = of(pf->persist)->fail_sync;
    for (uint64_t page = 0; page * PAGE_BYTES < image->bytes; page++) {
        uint64_t at = page * PAGE_BYTES;
        uint64_t left = image->bytes - at;
        if (image->dirty[page] && !fails) {
            memcpy(image->on_disk + at, pf->map + at, left < PAGE_BYTES ? left : PAGE_BYTES);
        }
        image->dirty[page] = false; /* written or given up: clean either way */
    }
    return fails ? FLASHQ_ERR_IO : 0;
}

static void disk_start(struct forgetful *d)
{
    *d = (struct forgetful){.fail_sync = false};
    cr_assert_eq(fq_persist_sync_create(&d->inner), 0);
    d->ops = *d->inner->ops;
    d->ops.write = disk_write;
    d->ops.word = disk_word;
    d->ops.sync = disk_sync;
    d->persist.ops = &d->ops;
}

static void disk_cut_power(struct forgetful *d)
{
    for (unsigned i = 0; i < d->count; i++) {
        struct image *image = &d->images[i];
        cr_assert_eq(pwrite(image->fd, image->on_disk, image->bytes, 0), (ssize_t)image->bytes);
        memset(image->dirty, 0, image->bytes / PAGE_BYTES + 1);
    }
}

static void disk_end(struct forgetful *d)
{
    for (unsigned i = 0; i < d->count; i++) {
        (void)close(d->images[i].fd);
        free(d->images[i].on_disk);
        free(d->images[i].dirty);
    }
    d->inner->ops->destroy(d->inner);
}

/* --- a log on it ------------------------------------------------------------------------------ */

struct world {
    struct forgetful disk;
    char *folder;
    struct fq_store *store;
    struct fq_log *log;
};

static void start(struct world *w)
{
    struct fq_err err;
    const struct fq_store_params params = {.data_dir = w->folder,
                                           .shards_count = 1,
                                           .segment_bytes_max = 64u << 10,
                                           .segment_bytes_first = 16u << 10,
                                           .batch_bytes_max = 4096,
                                           .persist = &w->disk.persist};
    const struct fq_log_params log_params = {
        .topic_id = {{7}}, .topic = "orders", .segment_bytes = 64u << 10};
    cr_assert_eq(fq_store_open(&params, &w->store, &err), 0, "%s", err.text);
    cr_assert_eq(fq_log_open(w->store, &log_params, NULL, NULL, &w->log, &err), 0, "%s", err.text);
}

static void stop(struct world *w)
{
    fq_log_close(w->log, false);
    fq_store_close(w->store, false);
}

static void append(struct world *w)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    size_t length = log_maker_batch(batch, fq_log_end(w->log), 0, 3, VALUE_BYTES, 7);
    cr_assert_eq(log_maker_append(w->store, w->log, batch, length), 0);
}

static int check_batch(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                       uint64_t segment_base, uint64_t position)
{
    static uint8_t expected[LOG_MAKER_BATCH_MAX];
    int64_t *next = context;
    (void)segment_base;
    (void)position;
    cr_assert_eq(header->base_offset, *next);
    *next += header->records_count;
    size_t length =
        log_maker_batch(expected, header->base_offset, 0, header->records_count, VALUE_BYTES, 7);
    cr_assert_eq(length, fq_batch_total_bytes(header));
    cr_assert_eq(memcmp(batch, expected, length), 0, "bytes at %lld",
                 (long long)header->base_offset);
    return 0;
}

/* `durable` batches get through, then a sync fails under one more; the broker is started again,
 * appends `later` batches which are durable, and the power goes. */
static void lose_pages(int durable, int later)
{
    struct world w = {.folder = log_maker_folder()};
    cr_assert_not_null(w.folder);
    disk_start(&w.disk);
    start(&w);
    for (int i = 0; i < durable; i++) {
        append(&w);
        cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    }
    append(&w);
    w.disk.fail_sync = true;
    cr_assert_eq(fq_log_publish(w.log), 0);
    (void)fq_store_flush_step(w.store);
    w.disk.fail_sync = false;
    cr_assert(fq_log_is_offline(w.log, NULL));
    stop(&w);

    start(&w);
    for (int i = 0; i < later; i++) {
        append(&w);
        cr_assert_eq(log_maker_settle(w.store, w.log), 0);
    }
    int64_t promised = fq_log_durable_end(w.log), next = 0;
    cr_assert_geq(promised, 3 * (durable + later));
    stop(&w);
    disk_cut_power(&w.disk);

    start(&w);
    cr_assert_geq(fq_log_end(w.log), promised, "%d durable, %d later: %lld of %lld", durable, later,
                  (long long)fq_log_end(w.log), (long long)promised);
    cr_assert_eq(fq_log_scan(w.log, 0, INT64_MAX, check_batch, &next), 0);
    cr_assert_geq(next, promised);
    cr_assert_eq(fq_log_damage_count(w.log), 0);
    stop(&w);
    disk_end(&w.disk);
    log_maker_remove_tree(w.folder);
    free(w.folder);
}

Test(lost_pages, what_a_failed_sync_left_is_on_the_disk_before_it_counts)
{
    lose_pages(2, 0);
    lose_pages(2, 1);
}

Test(lost_pages, the_header_of_a_segment_whose_first_sync_failed_too)
{
    lose_pages(0, 0);
    lose_pages(0, 2);
}
