/* SPDX-License-Identifier: Apache-2.0 */
/* See persist_recording.h. The files of the running process are real ones under `root`. */
#include "persist_recording_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "storage/persist_files.h"

_Noreturn void recording_die(const char *what)
{
    perror(what);
    abort();
}

static char *copy(const char *text)
{
    char *made = text ? strdup(text) : NULL;
    if (text && !made) {
        recording_die("strdup");
    }
    return made;
}

static struct recording *of(struct fq_persist *p)
{
    return (struct recording *)(void *)p;
}

static void crash_point(struct recording *r)
{
    if (r->hook && !r->is_in_hook && r->units_count + r->names_count > 0) {
        r->is_in_hook = true;
        r->hook(r->hook_context);
        r->is_in_hook = false;
    }
}

/* --- content ---------------------------------------------------------------------------------- */

uint64_t recording_unit_length(const struct recording *r, const struct rfile *f, uint64_t index)
{
    uint64_t at = index * r->unit_bytes;
    return f->bytes - at < r->unit_bytes ? f->bytes - at : r->unit_bytes;
}

static bool differs(const struct recording *r, const struct rfile *f, uint64_t index)
{
    uint64_t at = index * r->unit_bytes;
    return memcmp(f->map + at, f->durable + at, (size_t)recording_unit_length(r, f, index)) != 0;
}

static void add_unit(struct recording *r, struct rfile *f, uint64_t index)
{
    if (r->units_count == r->units_capacity) {
        r->units_capacity = r->units_capacity ? 2 * r->units_capacity : 256;
        r->units = realloc(r->units, r->units_capacity * sizeof *r->units);
        if (!r->units) {
            recording_die("realloc");
        }
    }
    r->units[r->units_count++] = (struct unit){f, index};
}

static void commit_unit(struct recording *r, const struct unit *u)
{
    struct rfile *f = u->file;
    if (u->index == SIZE_UNIT) {
        f->is_size_durable = true;
        return;
    }
    uint64_t at = u->index * r->unit_bytes;
    memcpy(f->durable + at, f->map + at, (size_t)recording_unit_length(r, f, u->index));
    f->is_pending[u->index] = false;
    f->is_late[u->index] = false;
    f->is_stray[u->index] = false;
}

static bool is_header(const struct recording *r, const struct unit *u)
{
    return u->index == SIZE_UNIT || u->index * r->unit_bytes < HEADER_BYTES;
}

/* Makes pending units durable: all, or one file's. */
static void commit(struct recording *r, const struct rfile *only)
{
    bool has_header = false;
    for (size_t i = 0; i < r->units_count; i++) {
        has_header |= is_header(r, &r->units[i]);
    }
    if ((r->fault == RECORDING_NO_DATA_FENCE && !has_header) || r->fault == RECORDING_SYNC_LIES) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < r->units_count; i++) {
        struct unit u = r->units[i];
        bool is_late =
            r->fault == RECORDING_HEADER_FIRST && !is_header(r, &u) && !u.file->is_late[u.index];
        if (is_late) {
            u.file->is_late[u.index] = true;
        }
        bool is_stray = u.index != SIZE_UNIT && u.file->is_stray[u.index];
        if ((only && u.file != only) || is_late || is_stray) {
            r->units[kept++] = u;
        } else {
            commit_unit(r, &u);
        }
    }
    r->units_count = kept;
}

static bool is_zeroing(const uint8_t *src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (src[i] != 0) {
            return false;
        }
    }
    return true;
}

static int recording_write(struct fq_pfile *pf, uint64_t pos, const void *src, size_t len)
{
    struct recording *r = of(pf->persist);
    struct rfile *f = pf->backend;
    if (len == 0 ||
        (r->fault == RECORDING_NO_ZEROS && pos >= HEADER_BYTES && is_zeroing(src, len))) {
        return 0;
    }
    if (pos > f->bytes || len > f->bytes - pos) {
        recording_die("a write past the end of a file");
    }
    uint64_t first = pos / r->unit_bytes, last = (pos + len - 1) / r->unit_bytes;
    bool overwrites = false;
    for (uint64_t i = first; i <= last; i++) {
        overwrites |= f->is_pending[i];
    }
    if (overwrites && memcmp(f->map + pos, src, len) != 0) {
        crash_point(r);
    }
    memcpy(f->map + pos, src, len);
    for (uint64_t i = first; i <= last; i++) {
        f->is_stray[i] = false;
        if (!f->is_pending[i] && differs(r, f, i)) {
            f->is_pending[i] = true;
            add_unit(r, f, i);
        }
    }
    return 0;
}

void recording_peer_store(struct fq_pfile *pf, uint64_t pos, const void *src, size_t len)
{
    struct recording *r = of(pf->persist);
    struct rfile *f = pf->backend;
    (void)recording_write(pf, pos, src, len);
    for (uint64_t i = pos / r->unit_bytes; i <= (pos + len - 1) / r->unit_bytes; i++) {
        f->is_stray[i] = f->is_pending[i];
    }
    crash_point(r);
}

static int recording_write_back(struct fq_pfile *pf, uint64_t pos, uint64_t len)
{
    struct recording *r = of(pf->persist);
    struct rfile *f = pf->backend;
    for (uint64_t i = pos / r->unit_bytes;
         r->fault != RECORDING_NO_WRITE_BACK && len > 0 && i <= (pos + len - 1) / r->unit_bytes;
         i++) {
        f->is_stray[i] = false;
    }
    return 0;
}

static int recording_stream(struct fq_pfile *pf, uint64_t pos, void *copied, const void *src,
                            size_t len, uint32_t *inout_crc)
{
    of(pf->persist)->streamed_bytes += len;
    *inout_crc = fq_crc32c_copy(*inout_crc, copied, src, len);
    return recording_write(pf, pos, copied, len);
}

static int recording_word(struct fq_pfile *pf, uint64_t pos, uint64_t value)
{
    if (pos % 8 != 0) {
        recording_die("a word that is not aligned");
    }
    return recording_write(pf, pos, &value, sizeof value);
}

static void recording_drain(struct fq_persist *p)
{
    struct recording *r = of(p);
    if (r->model == RECORDING_MEMORY && r->units_count > 0) {
        crash_point(r);
        commit(r, NULL);
    }
}

static int recording_sync(struct fq_pfile *pf)
{
    struct recording *r = of(pf->persist);
    if (r->model == RECORDING_MEMORY) {
        recording_drain(pf->persist);
        return 0;
    }
    crash_point(r);
    commit(r, pf->backend);
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool is_in_folder(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    return path && strncmp(path, dir, length) == 0 && path[length] == '/' &&
           !strchr(path + length + 1, '/');
}

/* `path`, or its part below `from`, after a rename; NULL: not concerned. Caller frees. */
static char *renamed(const char *path, const char *from, const char *to)
{
    size_t length = strlen(from);
    if (!path || strncmp(path, from, length) != 0 ||
        (path[length] != '\0' && path[length] != '/')) {
        return NULL;
    }
    size_t room = strlen(to) + strlen(path + length) + 1;
    char *made = malloc(room);
    if (!made) {
        recording_die("malloc");
    }
    (void)snprintf(made, room, "%s%s", to, path + length);
    return made;
}

static void replace(char **at, char *with)
{
    free(*at);
    *at = with;
}

static void add_name(struct recording *r, enum name_kind kind, struct rfile *file, const char *from,
                     const char *to)
{
    if (r->names_count == NAMES_MAX) {
        recording_die("too many pending names");
    }
    r->names[r->names_count++] = (struct name_op){kind, file, copy(from), copy(to)};
}

void recording_names_apply(struct recording *r, struct namespace *n, const struct name_op *op)
{
    for (size_t i = 0; i < r->files_count; i++) {
        if (op->kind == NAME_CREATE && r->files[i] == op->file) {
            replace(&n->paths[i], copy(op->to));
        } else if (op->kind == NAME_UNLINK && n->paths[i] && strcmp(n->paths[i], op->from) == 0) {
            replace(&n->paths[i], NULL);
        }
    }
    if (op->kind == NAME_RENAME) {
        bool is_there = false;
        for (size_t i = 0; i < r->files_count; i++) {
            is_there |= n->paths[i] && strcmp(n->paths[i], op->from) == 0;
        }
        for (size_t i = 0; i < r->files_count; i++) {
            if (is_there && n->paths[i] && strcmp(n->paths[i], op->to) == 0) {
                replace(&n->paths[i], NULL); /* what had the name before */
            }
            char *moved = renamed(n->paths[i], op->from, op->to);
            if (moved) {
                replace(&n->paths[i], moved);
            }
        }
        for (size_t i = 0; i < n->folders_count; i++) {
            char *moved = renamed(n->folders[i], op->from, op->to);
            if (moved) {
                replace(&n->folders[i], moved);
            }
        }
    }
    if (op->kind == NAME_MKDIR) {
        if (n->folders_count == FOLDERS_MAX) {
            recording_die("too many folders");
        }
        n->folders[n->folders_count++] = copy(op->to);
    }
}

void recording_names_load(const struct recording *r, struct namespace *n)
{
    for (size_t i = 0; i < r->files_count; i++) {
        n->paths[i] = copy(r->files[i]->durable_path);
    }
    for (size_t i = 0; i < r->folders_count; i++) {
        n->folders[i] = copy(r->folders[i]);
    }
    n->folders_count = r->folders_count;
}

void recording_names_free(const struct recording *r, struct namespace *n)
{
    for (size_t i = 0; i < r->files_count; i++) {
        free(n->paths[i]);
    }
    for (size_t i = 0; i < n->folders_count; i++) {
        free(n->folders[i]);
    }
}

static int recording_sync_dir(struct fq_persist *p, const char *dir, struct fq_err *err)
{
    struct recording *r = of(p);
    (void)err;
    crash_point(r);
    if (r->fault == RECORDING_DIR_SYNC_LIES) {
        return 0;
    }
    bool is_committed[NAMES_MAX] = {false};
    for (size_t i = r->names_count; i-- > 0;) {
        struct name_op *op = &r->names[i];
        if (is_in_folder(op->kind == NAME_UNLINK ? op->from : op->to, dir)) {
            is_committed[i] = true;
        }
        /* what it builds on: the op that gave its source the name */
        for (size_t j = i; is_committed[i] && op->from && j-- > 0;) {
            is_committed[j] |= r->names[j].to && strcmp(r->names[j].to, op->from) == 0;
        }
    }
    struct namespace n;
    recording_names_load(r, &n);
    size_t kept = 0;
    for (size_t i = 0; i < r->names_count; i++) {
        if (is_committed[i]) {
            recording_names_apply(r, &n, &r->names[i]);
            free(r->names[i].from);
            free(r->names[i].to);
        } else {
            r->names[kept++] = r->names[i];
        }
    }
    r->names_count = kept;
    for (size_t i = 0; i < r->files_count; i++) {
        replace(&r->files[i]->durable_path, copy(n.paths[i]));
    }
    for (size_t i = 0; i < r->folders_count; i++) {
        free(r->folders[i]);
    }
    for (size_t i = 0; i < n.folders_count; i++) {
        r->folders[i] = copy(n.folders[i]);
    }
    r->folders_count = n.folders_count;
    recording_names_free(r, &n);
    return 0;
}

static int recording_rename(struct fq_persist *p, const char *from, const char *to,
                            struct fq_err *err)
{
    struct recording *r = of(p);
    int result = fq_file_rename(p, from, to, err);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < r->files_count; i++) {
        if (r->files[i]->path && strcmp(r->files[i]->path, to) == 0) {
            replace(&r->files[i]->path, NULL);
        }
        char *moved = renamed(r->files[i]->path, from, to);
        if (moved) {
            replace(&r->files[i]->path, moved);
        }
    }
    add_name(r, NAME_RENAME, NULL, from, to);
    return 0;
}

static int recording_unlink(struct fq_persist *p, const char *path, struct fq_err *err)
{
    struct recording *r = of(p);
    bool was_there = access(path, F_OK) == 0;
    int result = fq_file_unlink(p, path, err);
    if (result == 0 && was_there) {
        for (size_t i = 0; i < r->files_count; i++) {
            if (r->files[i]->path && strcmp(r->files[i]->path, path) == 0) {
                replace(&r->files[i]->path, NULL);
            }
        }
        add_name(r, NAME_UNLINK, NULL, path, NULL);
    }
    return result;
}

static int recording_mkdir(struct fq_persist *p, const char *path, struct fq_err *err)
{
    bool was_there = access(path, F_OK) == 0;
    int result = fq_file_mkdir(p, path, err);
    if (result == 0 && !was_there) {
        add_name(of(p), NAME_MKDIR, NULL, NULL, path);
    }
    return result;
}

/* --- files ------------------------------------------------------------------------------------ */

static struct rfile *add_file(struct recording *r, int fd, const char *path, uint64_t bytes)
{
    struct rfile *f = calloc(1, sizeof *f);
    if (!f || r->files_count == FILES_MAX) {
        recording_die("too many files");
    }
    size_t units = (size_t)(bytes / r->unit_bytes + 1);
    f->fd = fd;
    f->path = copy(path);
    f->bytes = bytes;
    f->map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    f->durable = calloc(1, (size_t)bytes);
    f->is_pending = calloc(units, sizeof(bool));
    f->is_late = calloc(units, sizeof(bool));
    f->is_stray = calloc(units, sizeof(bool));
    if (f->map == MAP_FAILED || !f->durable || !f->is_pending || !f->is_late || !f->is_stray) {
        recording_die("mmap");
    }
    r->files[r->files_count++] = f;
    return f;
}

static void fill(struct recording *r, struct rfile *f, struct fq_pfile *ret)
{
    *ret = (struct fq_pfile){&r->persist, f->fd, f->map, f->bytes, f};
}

static int recording_file_create(struct fq_persist *p, const char *path, uint64_t bytes,
                                 struct fq_pfile *ret, struct fq_err *err)
{
    struct recording *r = of(p);
    int fd;
    int result = fq_file_create_allocated(path, bytes, &fd, err);
    if (result < 0) {
        return result;
    }
    struct rfile *f = add_file(r, fd, path, bytes);
    add_name(r, NAME_CREATE, f, NULL, path);
    add_unit(r, f, SIZE_UNIT);
    fill(r, f, ret);
    return 0;
}

static int recording_file_open(struct fq_persist *p, const char *path, struct fq_pfile *ret,
                               struct fq_err *err)
{
    struct recording *r = of(p);
    for (size_t i = 0; i < r->files_count; i++) {
        if (r->files[i]->path && strcmp(r->files[i]->path, path) == 0) {
            fill(r, r->files[i], ret);
            return 0;
        }
    }
    int fd;
    uint64_t bytes;
    int result = fq_file_open_whole(path, &fd, &bytes, err);
    if (result < 0) {
        return result;
    }
    struct rfile *f = add_file(r, fd, path, bytes);
    f->durable_path = copy(path);
    f->is_size_durable = true;
    memcpy(f->durable, f->map, (size_t)bytes);
    fill(r, f, ret);
    return 0;
}

static void recording_file_close(struct fq_pfile *pf)
{
    pf->map = NULL; /* the file stays recorded until the recording ends */
}

static void recording_nothing(struct fq_persist *p)
{
    (void)p;
}

#define RECORDING_OPS(flag, slot, back)                                                            \
    {                                                                                              \
        .name = "recording", .needs_sync = flag, .create = recording_file_create,                  \
        .open = recording_file_open, .close = recording_file_close, .rename = recording_rename,    \
        .unlink = recording_unlink, .mkdir = recording_mkdir, .sync_dir = recording_sync_dir,      \
        .write = recording_write, .word = recording_word, .drain = recording_drain,                \
        .stream = slot, .write_back = back, .sync = recording_sync, .destroy = recording_nothing,  \
    }
static const struct fq_persist_ops memory_ops =
    RECORDING_OPS(false, recording_stream, recording_write_back);
static const struct fq_persist_ops disk_ops = RECORDING_OPS(true, NULL, NULL);

/* --- start and stop --------------------------------------------------------------------------- */

/* Everything below `path` that is there already is durable. */
static void adopt(struct recording *r, const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        recording_die(path);
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char inner[8192];
        struct stat st;
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(inner, &st) < 0) {
            continue;
        }
        struct fq_pfile ignored;
        if (S_ISDIR(st.st_mode)) {
            r->folders[r->folders_count++] = copy(inner);
            adopt(r, inner);
        } else if (st.st_size > 0) {
            (void)recording_file_open(&r->persist, inner, &ignored, NULL);
        }
    }
    (void)closedir(folder);
}

struct recording *recording_create(const char *root, enum recording_model model,
                                   enum recording_fault fault)
{
    struct recording *r = calloc(1, sizeof *r);
    if (!r) {
        recording_die("calloc");
    }
    r->persist.ops = model == RECORDING_MEMORY ? &memory_ops : &disk_ops;
    r->root = copy(root);
    r->model = model;
    r->fault = fault;
    r->unit_bytes = model == RECORDING_MEMORY ? 8 : 512;
    adopt(r, root);
    return r;
}

void recording_destroy(struct recording *r)
{
    for (size_t i = 0; r && i < r->files_count; i++) {
        struct rfile *f = r->files[i];
        (void)munmap(f->map, (size_t)f->bytes);
        (void)close(f->fd);
        free(f->durable);
        free(f->is_pending);
        free(f->is_late);
        free(f->is_stray);
        free(f->path);
        free(f->durable_path);
        free(f);
    }
    for (size_t i = 0; r && i < r->names_count; i++) {
        free(r->names[i].from);
        free(r->names[i].to);
    }
    for (size_t i = 0; r && i < r->folders_count; i++) {
        free(r->folders[i]);
    }
    if (r) {
        free(r->units);
        free(r->root);
        free(r);
    }
}

struct fq_persist *recording_persist(struct recording *r)
{
    return &r->persist;
}

uint64_t recording_streamed_bytes(const struct recording *r)
{
    return r->streamed_bytes;
}

void recording_set_hook(struct recording *r, void (*hook)(void *context), void *context)
{
    r->hook = hook;
    r->hook_context = context;
}

/* --- without recording ------------------------------------------------------------------------ */

static struct fq_persist_ops plain_memory_ops;

struct fq_persist *recording_plain_create(enum recording_model model)
{
    struct fq_persist *p;
    if (fq_persist_sync_create(&p) < 0) {
        recording_die("plain");
    }
    if (model == RECORDING_MEMORY) {
        plain_memory_ops = *p->ops;
        plain_memory_ops.needs_sync = false;
        p->ops = &plain_memory_ops;
    }
    return p;
}
