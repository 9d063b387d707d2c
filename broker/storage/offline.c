/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See offline.h. Opens read-only, maps, walks with the same walk as recovery, changes nothing.
 * Failure of the operating system ends the walk; bytes that make no sense are damage.
 */
#include "storage/offline.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "storage/layout.h"
#include "storage/store_impl.h"
#include "storage/walk.h"

struct offline {
    const struct fq_offline_visitor *visitor;
    const char *topic;
    struct fq_offline_segment *segment; /* the running one */
    struct fq_err *err;
};

struct mapped {
    const uint8_t *map;
    uint64_t bytes;
};

/* --- one file --------------------------------------------------------------------------------- */

static int map_file(const char *path, struct mapped *ret, struct fq_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int errnum = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "open %s", path);
    }
    *ret = (struct mapped){NULL, (uint64_t)st.st_size};
    void *map = ret->bytes < FQ_SEG_DATA
                    ? MAP_FAILED
                    : mmap(NULL, (size_t)ret->bytes, PROT_READ, MAP_SHARED, fd, 0);
    int errnum = errno;
    (void)close(fd);
    if (ret->bytes < FQ_SEG_DATA) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "%s is not a segment: shorter than its header",
                          path);
    }
    if (map == MAP_FAILED) {
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "map %s", path);
    }
    ret->map = map;
    return 0;
}

static int report(struct offline *o, uint64_t position, uint64_t bytes, int64_t first, int64_t next,
                  const char *what)
{
    struct fq_damage damage = {
        .position = position, .bytes = bytes, .first_offset = first, .next_offset = next};
    (void)snprintf(damage.path, sizeof damage.path, "%.255s", o->segment->path);
    (void)snprintf(damage.what, sizeof damage.what, "%s", what);
    o->segment->damage_count++;
    return o->visitor->damage ? o->visitor->damage(o->visitor->context, &damage) : 0;
}

/* The base offset of a segment whose header is damaged: what its name says, else its first batch. */
static int64_t guess_base_offset(const struct mapped *file, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct fq_batch_header first;
    int64_t base = -1;
    bool is_next;
    if (!fq_segment_name_parse(slash ? slash + 1 : path, &base, &is_next)) {
        base = fq_batch_header_read(file->map + FQ_SEG_DATA, (size_t)(file->bytes - FQ_SEG_DATA),
                                    &first, NULL) == 0 &&
                       first.base_offset >= 0
                   ? first.base_offset
                   : 0;
    }
    return base > FQ_OFFSET_MAX ? 0 : base;
}

static void read_identity(const struct mapped *file, const char *path, struct fq_segment *segment,
                          struct fq_offline_segment *out)
{
    segment->state = fq_state_read(fq_load_le64(file->map + FQ_SEG_STATE));
    out->state = fq_state_name(segment->state);
    out->header_ok = fq_identity_decode(file->map, &segment->identity) == FQ_IDENTITY_OK;
    bool is_unused = segment->state == FQ_SEGMENT_FREE || segment->state == FQ_SEGMENT_PREPARED;
    if (out->header_ok && !is_unused &&
        (segment->identity.base_offset < 0 || segment->identity.base_offset > FQ_OFFSET_MAX)) {
        out->header_ok = false;
    }
    if (!out->header_ok) {
        segment->identity =
            (struct fq_segment_identity){.base_offset = guess_base_offset(file, path)};
    }
    segment->identity.file_bytes = file->bytes;
    out->topic_id = segment->identity.topic_id;
    out->partition = segment->identity.partition;
    out->base_offset = segment->identity.base_offset;
    out->first_retention_ms = segment->identity.first_retention_ms;
}

/* Seal, tail and start. They are bound to the identity: without one they say nothing. */
static void read_words(const struct mapped *file, const struct fq_segment *segment,
                       struct fq_offline_segment *out)
{
    struct fq_segment_seal seal;
    uint64_t delta, capacity = file->bytes - FQ_SEG_DATA;
    out->seal_ok = out->header_ok && segment->state == FQ_SEGMENT_SEALED &&
                   fq_seal_decode(&segment->identity, file->map + FQ_SEG_SEAL, &seal) &&
                   seal.data_bytes <= capacity;
    out->tail_ok = out->header_ok &&
                   fq_word_read(&segment->identity, FQ_WORD_TAIL,
                                fq_load_le64(file->map + FQ_SEG_TAIL), &out->tail_position) &&
                   out->tail_position <= capacity;
    if (out->seal_ok) {
        out->seal_end_offset = seal.end_offset;
        out->last_retention_ms = seal.last_retention_ms;
        out->tail_position = seal.data_bytes;
    } else if (!out->tail_ok) {
        out->tail_position = 0;
    }
    if (out->header_ok &&
        fq_word_read(&segment->identity, FQ_WORD_START, fq_load_le64(file->map + FQ_SEG_START),
                     &delta) &&
        delta > 0) {
        out->start_offset = segment->identity.base_offset + (int64_t)delta - 1;
    }
}

static void read_epochs(const struct mapped *file, struct fq_segment *segment)
{
    for (unsigned i = 0; i < FQ_SEGMENT_EPOCHS; i++) {
        struct fq_segment_epoch epoch;
        enum fq_epoch_result result = fq_epoch_decode(
            &segment->identity, file->map + FQ_SEG_EPOCHS + i * FQ_SEG_EPOCH_BYTES, &epoch);
        if (result == FQ_EPOCH_OK) {
            segment->epochs[segment->epochs_count++] = epoch;
        }
        segment->is_epochs_damaged |= result == FQ_EPOCH_DAMAGED;
    }
}

/* What the header says; damage is reported later, once the segment has been announced. */
static void read_header(const struct mapped *file, const char *path, struct fq_segment *segment,
                        struct fq_offline_segment *out)
{
    *out = (struct fq_offline_segment){.file_bytes = file->bytes,
                                       .first_retention_ms = -1,
                                       .last_retention_ms = -1,
                                       .start_offset = -1,
                                       .min_timestamp_ms = INT64_MAX,
                                       .max_timestamp_ms = INT64_MIN};
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    read_identity(file, path, segment, out);
    read_words(file, segment, out);
    if (out->header_ok) {
        read_epochs(file, segment);
    }
}

static int report_header(struct offline *o, const struct fq_segment *segment,
                         const struct mapped *file)
{
    const struct fq_offline_segment *s = o->segment;
    int r = 0;
    if (!s->header_ok) {
        r = report(o, 0, FQ_SEG_IDENTITY_BYTES, -1, -1, "the segment's header");
    }
    if (r == 0 && segment->state == FQ_SEGMENT_UNKNOWN) {
        r = report(o, FQ_SEG_STATE, 8, -1, -1, "the state word");
    }
    if (r == 0 && s->header_ok && segment->state == FQ_SEGMENT_SEALED && !s->seal_ok) {
        r = report(o, FQ_SEG_SEAL, FQ_SEG_SEAL_BYTES, -1, -1, "the seal");
    }
    if (r == 0 && s->header_ok && !s->tail_ok) {
        r = report(o, FQ_SEG_TAIL, 8, -1, -1, "the tail word");
    }
    if (r == 0 && s->header_ok && s->start_offset < 0 &&
        fq_load_le64(file->map + FQ_SEG_START) != 0) {
        r = report(o, FQ_SEG_START, 8, -1, -1, "the word of the log start");
    }
    struct fq_segment_epoch epoch;
    for (unsigned i = 0; r == 0 && s->header_ok && i < FQ_SEGMENT_EPOCHS; i++) {
        uint64_t at = FQ_SEG_EPOCHS + i * (uint64_t)FQ_SEG_EPOCH_BYTES;
        if (fq_epoch_decode(&segment->identity, file->map + at, &epoch) == FQ_EPOCH_DAMAGED) {
            r = report(o, at, FQ_SEG_EPOCH_BYTES, -1, -1, "an entry of the epoch table");
        }
    }
    return r;
}

static int take_batch(struct offline *o, struct fq_walk *walk, const struct fq_batch_header *header)
{
    struct fq_offline_segment *s = o->segment;
    s->batches_count++;
    s->records_count += (uint64_t)header->records_count;
    s->min_timestamp_ms =
        header->base_timestamp < s->min_timestamp_ms ? header->base_timestamp : s->min_timestamp_ms;
    s->max_timestamp_ms =
        header->max_timestamp > s->max_timestamp_ms ? header->max_timestamp : s->max_timestamp_ms;
    int r = o->visitor->batch ? o->visitor->batch(o->visitor->context, header,
                                                  walk->data + walk->position, walk->position)
                              : 0;
    fq_walk_advance(walk, header);
    return r;
}

static int walk_data(struct offline *o, const struct fq_segment *segment, const struct mapped *file)
{
    struct fq_offline_segment *s = o->segment;
    struct fq_walk walk;
    struct fq_batch_header header;
    const char *why = "";
    int r = 0;
    fq_walk_init(&walk, segment, file->map + FQ_SEG_DATA, s->tail_position);
    walk.any_epoch |= !s->header_ok;
    for (enum fq_walk_result look;
         r == 0 && (look = fq_walk_look(&walk, &header, &why)) != FQ_WALK_END;) {
        if (look == FQ_WALK_FIT) {
            r = take_batch(o, &walk, &header);
            continue;
        }
        int64_t first = walk.offset;
        uint64_t from = fq_walk_resync(&walk);
        r = report(o, FQ_SEG_DATA + from, walk.position - from, first, walk.offset, why);
    }
    if (!s->seal_ok) {
        walk.limit = file->bytes - FQ_SEG_DATA;
        for (enum fq_walk_result look;
             r == 0 && (look = fq_walk_look(&walk, &header, &why)) != FQ_WALK_END;) {
            if (look == FQ_WALK_FIT) {
                r = take_batch(o, &walk, &header);
                continue;
            }
            struct fq_walk beyond = walk;
            if (s->tail_ok || (fq_walk_resync(&beyond), beyond.position == beyond.limit)) {
                break;
            }
            r = report(o, FQ_SEG_DATA + walk.position, beyond.position - walk.position, walk.offset,
                       beyond.offset, why);
            walk = beyond;
        }
        s->above_tail_bytes = s->tail_ok ? walk.position - s->tail_position : 0;
    }
    s->data_bytes = walk.position;
    s->end_offset = s->seal_ok ? s->seal_end_offset : walk.offset;
    return r;
}

static int walk_segment(struct offline *o, const char *path, int64_t *ret_end)
{
    struct fq_segment *segment = calloc(1, sizeof *segment);
    struct fq_offline_segment *out = calloc(1, sizeof *out);
    struct mapped file = {NULL, 0};
    int r = segment && out ? map_file(path, &file, o->err)
                           : fq_err_set(o->err, FLASHQ_ERR_NO_MEMORY, "no memory");
    if (r == 0) {
        const struct fq_offline_visitor *v = o->visitor;
        read_header(&file, path, segment, out);
        o->segment = out;
        r = v->segment ? v->segment(v->context, o->topic, out) : 0;
        bool has_data = segment->state != FQ_SEGMENT_FREE && segment->state != FQ_SEGMENT_PREPARED;
        if (r == 0 && has_data) {
            r = report_header(o, segment, &file);
            r = r == 0 ? walk_data(o, segment, &file) : r;
        }
        if (r == 0 && v->segment_end) {
            r = v->segment_end(v->context, o->topic, out);
        }
        *ret_end = out->end_offset;
        (void)munmap((void *)(uintptr_t)file.map, (size_t)file.bytes);
    }
    o->segment = NULL;
    free(segment);
    free(out);
    return r;
}

/* --- folders ---------------------------------------------------------------------------------- */

struct listed {
    int64_t base;
    int64_t start; /* -1: none */
    char name[64];
};

static int by_base(const void *a, const void *b)
{
    int64_t l = ((const struct listed *)a)->base, r = ((const struct listed *)b)->base;
    return l < r ? -1 : l > r;
}

/* Header of one file of a partition; false: holds no data, or is no segment. */
static bool list_one(const char *folder, const char *name, struct listed *ret)
{
    char path[FQ_PATH_BYTES];
    bool is_next = false;
    int64_t base = -1;
    if ((!fq_segment_name_parse(name, &base, &is_next) && !is_next) || strlen(name) > 60 ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return false;
    }
    struct mapped file;
    if (map_file(path, &file, NULL) < 0) {
        return false;
    }
    struct fq_segment *segment = calloc(1, sizeof *segment);
    struct fq_offline_segment *out = calloc(1, sizeof *out);
    bool has_data = false;
    if (segment && out) {
        read_header(&file, path, segment, out);
        has_data = segment->state != FQ_SEGMENT_FREE && segment->state != FQ_SEGMENT_PREPARED;
        *ret = (struct listed){.base = out->base_offset, .start = out->start_offset};
        (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    }
    (void)munmap((void *)(uintptr_t)file.map, (size_t)file.bytes);
    free(segment);
    free(out);
    return has_data;
}

static int list_partition(const char *path, struct listed **ret, size_t *ret_count,
                          struct fq_err *err)
{
    DIR *folder = opendir(path);
    struct listed *list = NULL;
    size_t count = 0, capacity = 0;
    if (!folder) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct listed one;
        if (!list_one(path, entry->d_name, &one)) {
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            struct listed *grown = realloc(list, capacity * sizeof *list);
            if (!grown) {
                free(list);
                (void)closedir(folder);
                return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory");
            }
            list = grown;
        }
        list[count++] = one;
    }
    (void)closedir(folder);
    if (count > 1) {
        qsort(list, count, sizeof *list, by_base);
    }
    *ret = list;
    *ret_count = count;
    return 0;
}

static int walk_partition(struct offline *o, const char *path)
{
    struct listed *list = NULL;
    size_t count = 0, first = 0;
    char file[FQ_PATH_BYTES];
    int64_t end = -1;
    int r = list_partition(path, &list, &count, o->err);
    for (size_t i = 0; i < count; i++) {
        first = list[i].start >= 0 ? i : first; /* what is below a recorded start is trimmed */
    }
    for (size_t i = first; r == 0 && i < count; i++) {
        (void)snprintf(file, sizeof file, "%s/%s", path, list[i].name);
        if (i > first && end < list[i].base && o->visitor->damage) {
            struct fq_damage hole = {.first_offset = end, .next_offset = list[i].base};
            (void)snprintf(hole.path, sizeof hole.path, "%.225s/%020lld.log", path, (long long)end);
            (void)snprintf(hole.what, sizeof hole.what, "records between two segments are missing");
            r = o->visitor->damage(o->visitor->context, &hole);
        }
        r = r == 0 ? walk_segment(o, file, &end) : r;
    }
    free(list);
    return r;
}

/* Calls `inside` for each entry whose name satisfies `is_wanted`; *ret_found counts them. */
static int walk_folder(struct offline *o, const char *path, bool (*is_wanted)(const char *name),
                       int (*inside)(struct offline *o, const char *path, const char *name),
                       size_t *ret_found)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, versionsort);
    int r = count < 0 ? fq_err_errno(o->err, fq_err_from_errno(errno), errno, "open %s", path) : 0;
    *ret_found = 0;
    for (int i = 0; i < count; i++) {
        char inner[FQ_PATH_BYTES];
        if (r == 0 && is_wanted(entries[i]->d_name) &&
            snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name) < (int)sizeof inner) {
            (*ret_found)++;
            r = inside(o, inner, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return r;
}

static bool is_partition_name(const char *name)
{
    return name[0] != '\0' && strspn(name, "0123456789") == strlen(name);
}

static bool is_segment_name(const char *name)
{
    int64_t base;
    bool is_next;
    return fq_segment_name_parse(name, &base, &is_next) || is_next;
}

static bool is_topic_name(const char *name)
{
    char topic[256];
    struct fq_uuid id;
    return fq_topic_dir_parse(name, topic, &id);
}

static int inside_partition(struct offline *o, const char *path, const char *name)
{
    (void)name;
    return walk_partition(o, path);
}

static int inside_topic(struct offline *o, const char *path, const char *name)
{
    char topic[256];
    struct fq_uuid id;
    size_t found;
    (void)fq_topic_dir_parse(name, topic, &id);
    o->topic = topic;
    int r = walk_folder(o, path, is_partition_name, inside_partition, &found);
    o->topic = "";
    return r;
}

static int ignore(struct offline *o, const char *path, const char *name)
{
    (void)o;
    (void)path;
    (void)name;
    return 0;
}

/* By its magic or by its name: a damaged one still has the other. */
static bool looks_like_segment(const char *path)
{
    struct mapped file;
    const char *slash = strrchr(path, '/');
    if (is_segment_name(slash ? slash + 1 : path)) {
        return true;
    }
    if (map_file(path, &file, NULL) < 0) {
        return false;
    }
    bool is_magic = memcmp(file.map, FQ_SEGMENT_MAGIC, 8) == 0;
    (void)munmap((void *)(uintptr_t)file.map, (size_t)file.bytes);
    return is_magic;
}

int fq_offline_walk(const char *path, const struct fq_offline_visitor *visitor, struct fq_err *err)
{
    struct offline o = {.visitor = visitor, .topic = "", .err = err};
    struct stat st;
    size_t found = 0;
    int64_t end;
    if (stat(path, &st) < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "open %s", path);
    }
    if (S_ISREG(st.st_mode)) {
        if (!looks_like_segment(path)) {
            return fq_err_set(err, FLASHQ_ERR_INVALID, "%s is not a segment", path);
        }
        return walk_segment(&o, path, &end);
    }
    if (!S_ISDIR(st.st_mode)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "%s is neither a file nor a folder", path);
    }
    int r = walk_folder(&o, path, is_segment_name, ignore, &found);
    if (r == 0 && found > 0) {
        return walk_partition(&o, path);
    }
    r = r == 0 ? walk_folder(&o, path, is_topic_name, inside_topic, &found) : r;
    if (r == 0 && found == 0) {
        r = walk_folder(&o, path, is_partition_name, inside_partition, &found);
    }
    if (r == 0 && found == 0) {
        char version[FQ_PATH_BYTES];
        if (snprintf(version, sizeof version, "%s/version", path) >= (int)sizeof version ||
            access(version, F_OK) < 0) { /* an empty data directory is fine */
            return fq_err_set(
                err, FLASHQ_ERR_INVALID,
                "%s holds no segments: give a segment, a partition, a topic or a data "
                "directory",
                path);
        }
    }
    return r;
}
