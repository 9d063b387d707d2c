/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, looking at and opening the pool file.
 *
 * libpmemobj trusts the bytes that it maps: a damaged heap can send it into a bad access, an
 * endless walk or abort(). So a child process opens an existing pool first, walks everything the
 * broker will walk and ends with a verdict; whatever kills it counts as damage. The child's
 * recovery of an interrupted transaction is the same that the broker would do, and doing it twice
 * changes nothing.
 *
 * Errors that do not come from the file's bytes (no memory, no permission, in use) are never taken
 * for damage.
 */
#include "storage/meta_pmem_pool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/limits.h"

enum { LOOK_SECONDS_MAX = 60, ASIDE_MAX = 10000 };

/* The child's exit status. */
enum { VERDICT_SOUND = 0, VERDICT_DAMAGED = 1, VERDICT_NEWER = 2, VERDICT_ERRNO = 10 };

static const char pool_signature[8] = "PMEMOBJ";

/* ---- contents ------------------------------------------------------------------------------- */

uint32_t fq_meta_pool_entry_crc(const struct fq_meta_pool_entry *entry)
{
    const uint8_t *covered = (const uint8_t *)entry + sizeof entry->crc;
    return fq_crc32c(0, covered, sizeof *entry - sizeof entry->crc + entry->length);
}

int fq_meta_pool_entry_check(const struct fq_meta_pool_entry *entry, size_t allocated)
{
    bool fits = allocated >= sizeof *entry && entry->length <= FQ_META_VALUE_BYTES_MAX &&
                entry->length <= allocated - sizeof *entry && entry->table < FQ_META_TABLES;
    return fits && entry->crc == fq_meta_pool_entry_crc(entry) ? 0 : FLASHQ_ERR_CORRUPT;
}

/* The finalizer of MurmurHash3: equal checksums of different lengths spread differently. */
uint64_t fq_meta_pool_entry_share(const struct fq_meta_pool_entry *entry)
{
    uint64_t mixed = (uint64_t)entry->length << 32 | entry->crc;
    mixed = (mixed ^ mixed >> 33) * UINT64_C(0xff51afd7ed558ccd);
    mixed = (mixed ^ mixed >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return mixed ^ mixed >> 33;
}

struct fq_meta_pool_root *fq_meta_pool_root_of(PMEMobjpool *pool)
{
    struct fq_meta_pool_root *root =
        pmemobj_direct(pmemobj_root(pool, sizeof(struct fq_meta_pool_root)));
    assert(root);
    return root;
}

uint32_t fq_meta_pool_root_crc(const struct fq_meta_pool_root *root)
{
    struct fq_meta_pool_root copy = *root;
    copy.crc = 0;
    return fq_crc32c(0, &copy, sizeof copy);
}

static int check_root(PMEMobjpool *pool, uint64_t file_bytes)
{
    if (pmemobj_root_size(pool) < sizeof(struct fq_meta_pool_root)) {
        return FLASHQ_ERR_CORRUPT;
    }
    const struct fq_meta_pool_root *root = fq_meta_pool_root_of(pool);
    if (root->magic != FQ_META_ROOT_MAGIC || root->crc != fq_meta_pool_root_crc(root)) {
        return FLASHQ_ERR_CORRUPT;
    }
    if (root->version > FQ_META_POOL_VERSION) {
        return FLASHQ_ERR_VERSION;
    }
    return root->file_bytes == file_bytes ? 0 : FLASHQ_ERR_CORRUPT;
}

static int check_entries(PMEMobjpool *pool)
{
    const struct fq_meta_pool_root *root = fq_meta_pool_root_of(pool);
    uint64_t count = 0, sum = 0, logs = 0;
    for (PMEMoid oid = pmemobj_first(pool); !OID_IS_NULL(oid); oid = pmemobj_next(oid)) {
        const struct fq_meta_pool_entry *entry = pmemobj_direct(oid);
        if (oid.off == root->log_offset && pmemobj_type_num(oid) == FQ_META_TYPE_LOG) {
            logs += pmemobj_alloc_usable_size(oid) >= FQ_META_LOG_BYTES;
            continue;
        }
        if (pmemobj_type_num(oid) != FQ_META_TYPE_ENTRY ||
            fq_meta_pool_entry_check(entry, pmemobj_alloc_usable_size(oid)) < 0) {
            return FLASHQ_ERR_CORRUPT;
        }
        count++;
        sum += fq_meta_pool_entry_share(entry);
    }
    bool adds_up = logs == 1 && count == root->entries_count && sum == root->entries_sum;
    return adds_up ? 0 : FLASHQ_ERR_CORRUPT;
}

/* ---- looking -------------------------------------------------------------------------------- */

static int verdict_of_errno(int errnum)
{
    return errnum == EINVAL || errnum == 0 ? VERDICT_DAMAGED : VERDICT_ERRNO + errnum;
}

static int judge(const char *path, uint64_t file_bytes)
{
    errno = 0;
    int consistent = pmemobj_check(path, FQ_META_LAYOUT);
    if (consistent != 1) {
        return consistent == 0 ? VERDICT_DAMAGED : verdict_of_errno(errno);
    }
    PMEMobjpool *pool = pmemobj_open(path, FQ_META_LAYOUT);
    if (!pool) {
        return verdict_of_errno(errno);
    }
    int r = check_root(pool, file_bytes);
    r = r == 0 ? check_entries(pool) : r;
    pmemobj_close(pool);
    return r == 0 ? VERDICT_SOUND : (r == FLASHQ_ERR_VERSION ? VERDICT_NEWER : VERDICT_DAMAGED);
}

/* The child: says nothing, leaves no core, ends by itself. */
static void look_in_child(const char *path, uint64_t file_bytes)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        (void)signal(fatal[i], SIG_DFL);
    }
    (void)prctl(PR_SET_DUMPABLE, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    (void)alarm(LOOK_SECONDS_MAX);
    _exit(judge(path, file_bytes));
}

static int look(const char *path, uint64_t file_bytes, struct fq_err *err)
{
    pid_t child = fork();
    if (child < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s: fork", path);
    }
    if (child == 0) {
        look_in_child(path, file_bytes);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return fq_err_errno(err, FLASHQ_ERR_FAILED, errno, "%s: waiting for its check", path);
        }
    }
    if (!WIFEXITED(status)) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s: its check died of signal %d", path,
                          WTERMSIG(status));
    }
    int verdict = WEXITSTATUS(status);
    if (verdict == VERDICT_SOUND) {
        return 0;
    }
    if (verdict == VERDICT_NEWER) {
        return fq_err_set(err, FLASHQ_ERR_VERSION, "%s: made by a newer FlashQ", path);
    }
    if (verdict == VERDICT_ERRNO + EAGAIN) {
        return fq_err_set(err, FLASHQ_ERR_BUSY, "%s: another process has it open", path);
    }
    if (verdict > VERDICT_ERRNO) {
        int errnum = verdict - VERDICT_ERRNO;
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "%s: cannot open it", path);
    }
    return fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s: damaged", path);
}

/* What can be seen without libpmemobj, which would take a text file that begins with the right word
 * for a list of other files to open. */
static int look_at_file(const char *path, uint64_t *ret_bytes, struct fq_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0) {
        return errno == ENOENT ? FLASHQ_ERR_NOT_FOUND
                               : fq_err_errno(err, fq_err_from_errno(errno), errno, "%s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s: not a regular file", path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s: open", path);
    }
    char signature[sizeof pool_signature] = {0};
    ssize_t got = pread(fd, signature, sizeof signature, 0);
    int errnum = errno;
    (void)close(fd);
    if (got < 0) {
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "%s: read", path);
    }
    if (memcmp(signature, pool_signature, sizeof signature) != 0 ||
        (uint64_t)st.st_size < PMEMOBJ_MIN_POOL) {
        return fq_err_set(err, FLASHQ_ERR_CORRUPT, "%s: not a pool of libpmemobj", path);
    }
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

int fq_meta_pool_open(const char *path, bool has_look, PMEMobjpool **ret, struct fq_err *err)
{
    uint64_t file_bytes = 0;
    int r = look_at_file(path, &file_bytes, err);
    if (r == 0 && has_look) {
        r = look(path, file_bytes, err);
    }
    if (r < 0) {
        return r;
    }
    PMEMobjpool *pool = pmemobj_open(path, FQ_META_LAYOUT);
    if (!pool) {
        return fq_err_set(err, fq_err_from_errno(errno), "%s: %s", path, pmemobj_errormsg());
    }
    *ret = pool;
    return 0;
}

/* ---- making and setting aside --------------------------------------------------------------- */

static int sync_path(const char *path, int flags, struct fq_err *err)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0) {
        int errnum = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return fq_err_errno(err, fq_err_from_errno(errnum), errnum, "%s: fsync", path);
    }
    (void)close(fd);
    return 0;
}

static int sync_parent(const char *path, struct fq_err *err)
{
    char copy[FQ_LIMIT_PATH_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", path);
    return sync_path(dirname(copy), O_RDONLY | O_DIRECTORY, err);
}

static int write_root(PMEMobjpool *pool, uint64_t file_bytes, struct fq_err *err)
{
    PMEMoid oid = pmemobj_root(pool, sizeof(struct fq_meta_pool_root));
    PMEMoid log;
    if (OID_IS_NULL(oid) ||
        pmemobj_alloc(pool, &log, FQ_META_LOG_BYTES, FQ_META_TYPE_LOG, NULL, NULL) != 0) {
        return fq_err_set(err, FLASHQ_ERR_FAILED, "meta: first objects: %s", pmemobj_errormsg());
    }
    struct fq_meta_pool_root root = {.magic = FQ_META_ROOT_MAGIC,
                                     .version = FQ_META_POOL_VERSION,
                                     .file_bytes = file_bytes,
                                     .log_offset = log.off};
    root.crc = fq_meta_pool_root_crc(&root);
    (void)pmemobj_memcpy_persist(pool, pmemobj_direct(oid), &root, sizeof root);
    return 0;
}

int fq_meta_pool_create(const char *path, size_t bytes, PMEMobjpool **ret, struct fq_err *err)
{
    char making[FQ_LIMIT_PATH_BYTES];
    int length = snprintf(making, sizeof making, "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof making) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "%s: longer than FQ_LIMIT_PATH_BYTES, %d",
                          path, FQ_LIMIT_PATH_BYTES);
    }
    if (unlink(making) < 0 && errno != ENOENT) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s: unlink", making);
    }
    PMEMobjpool *pool = pmemobj_create(making, FQ_META_LAYOUT, bytes, 0600);
    if (!pool) {
        int code = fq_err_from_errno(errno);
        code = fq_err_set(err, code, "%s: %s", making, pmemobj_errormsg());
        (void)unlink(making);
        return code;
    }
    int r = write_root(pool, bytes, err);
    r = r < 0 ? r : sync_path(making, O_RDONLY, err);
    if (r == 0 && rename(making, path) < 0) {
        r = fq_err_errno(err, fq_err_from_errno(errno), errno, "%s: rename to %s", making, path);
    }
    if (r < 0) {
        pmemobj_close(pool);
        (void)unlink(making);
        return r;
    }
    r = sync_parent(path, err);
    if (r < 0) {
        pmemobj_close(pool);
        return r;
    }
    *ret = pool;
    return 0;
}

int fq_meta_pool_set_aside(const char *path, struct fq_err *err)
{
    for (unsigned n = 1; n <= ASIDE_MAX; n++) {
        char aside[FQ_LIMIT_PATH_BYTES];
        int length = snprintf(aside, sizeof aside, "%s.damaged-%u", path, n);
        if (length < 0 || (size_t)length >= sizeof aside) {
            return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "%s: longer than FQ_LIMIT_PATH_BYTES, %d",
                              path, FQ_LIMIT_PATH_BYTES);
        }
        struct stat st;
        if (lstat(aside, &st) == 0) {
            continue;
        }
        if (rename(path, aside) < 0) {
            return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s: rename to %s", path,
                                aside);
        }
        return sync_parent(path, err);
    }
    return fq_err_set(err, FLASHQ_ERR_LIMIT, "%s: %d damaged ones are there already: remove some",
                      path, ASIDE_MAX);
}
