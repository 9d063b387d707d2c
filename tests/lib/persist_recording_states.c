/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the states that a power cut could leave at this moment into a folder; see
 * persist_recording.h. Changes nothing of the recording. */
#include "persist_recording_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log_maker.h"

static void below(const struct recording *r, const char *path, const char *folder, char *out,
                  size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "%s%s", folder, path + strlen(r->root));
}

static void write_state_file(const struct recording *r, struct rfile *f, const bool *keep,
                             const char *path)
{
    uint8_t *image = malloc((size_t)f->bytes);
    if (!image) {
        recording_die("malloc");
    }
    memcpy(image, f->durable, (size_t)f->bytes);
    bool has_size = f->is_size_durable;
    for (size_t i = 0; i < r->units_count; i++) {
        const struct unit *u = &r->units[i];
        if (u->file != f || !keep[i]) {
            continue;
        }
        has_size = true; /* a sector can only be there if the file is */
        if (u->index != SIZE_UNIT) {
            uint64_t at = u->index * r->unit_bytes;
            memcpy(image + at, f->map + at, (size_t)recording_unit_length(r, f, u->index));
        }
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) { /* else its folder was lost, and the file with it */
        size_t length = has_size ? (size_t)f->bytes : 0;
        if (length > 0 && write(fd, image, length) != (ssize_t)length) {
            recording_die("write");
        }
        (void)close(fd);
    }
    free(image);
}

static int by_length(const void *a, const void *b)
{
    size_t left = strlen(*(char *const *)a), right = strlen(*(char *const *)b);
    return left < right ? -1 : left > right;
}

/* keep[]: units, then names. */
static void materialise(struct recording *r, const bool *keep, const char *folder)
{
    struct namespace n;
    char path[8192];
    recording_names_load(r, &n);
    for (size_t i = 0; i < r->names_count; i++) {
        if (keep[r->units_count + i]) {
            recording_names_apply(r, &n, &r->names[i]);
        }
    }
    if (mkdir(folder, 0700) < 0) {
        recording_die(folder);
    }
    qsort(n.folders, n.folders_count, sizeof n.folders[0], by_length); /* parents first */
    for (size_t i = 0; i < n.folders_count; i++) {
        below(r, n.folders[i], folder, path, sizeof path);
        (void)mkdir(path, 0700); /* fails when its parent was lost: it is lost too */
    }
    for (size_t i = 0; i < r->files_count; i++) {
        if (n.paths[i]) {
            below(r, n.paths[i], folder, path, sizeof path);
            write_state_file(r, r->files[i], keep, path);
        }
    }
    recording_names_free(r, &n);
}

static void choose(struct fq_prng *prng, uint64_t which, size_t count, bool is_exhaustive,
                   bool *keep)
{
    static const uint64_t odds[] = {2, 10, 50, 90, 98};
    uint64_t percent = odds[fq_prng_below(prng, 5)], one = fq_prng_below(prng, count);
    for (size_t i = 0; i < count; i++) {
        if (is_exhaustive) {
            keep[i] = (which >> i & 1) != 0;
        } else if (which < 2) {
            keep[i] = which == 1;
        } else if (which % 3 == 0) {
            keep[i] = fq_prng_below(prng, 100) < percent;
        } else {
            keep[i] = (i == one) == (which % 3 == 1);
        }
    }
}

bool recording_each_state(struct recording *r, struct fq_prng *prng, unsigned exhaustive_max,
                          unsigned samples, const char *folder,
                          bool (*check)(void *context, const char *folder), void *context,
                          uint64_t *inout_states)
{
    size_t count = r->units_count + r->names_count;
    bool is_exhaustive = count <= exhaustive_max;
    uint64_t states = is_exhaustive ? UINT64_C(1) << count : samples;
    bool *keep = calloc(count + 1, sizeof(bool)), is_good = true;
    if (!keep) {
        recording_die("calloc");
    }
    for (uint64_t i = 0; i < states && is_good; i++) {
        choose(prng, i, count, is_exhaustive, keep);
        materialise(r, keep, folder);
        is_good = check(context, folder);
        (*inout_states)++;
        log_maker_remove_tree(folder);
    }
    free(keep);
    return is_good;
}

void recording_describe(const struct recording *r, char *out, size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "%zu pending %s, %zu pending names", r->units_count,
                   r->model == RECORDING_MEMORY ? "words" : "sectors", r->names_count);
}
