/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows over shm: the grant passes the region's descriptor, opening maps it. Before a memfd of a
 * peer is mapped: it is on the kernel's own tmpfs, sealed against shrinking, growing and unsealing,
 * exactly as long as announced and fully allocated; so touching it raises no SIGBUS. The size of a
 * file cannot be sealed, so only the side that accepted the connection (the broker, whom its
 * clients trust with their data anyway) may grant one.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fabric/shm/shm.h"

static int check_sealed(int fd, uint64_t bytes, bool is_allocated, struct fq_err *err)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & FQ_MEMFD_SEALS) != FQ_MEMFD_SEALS) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the peer's memory is not sealed");
    }
    if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &st) < 0) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the peer's memory is not a memfd");
    }
    if (st.st_size < 0 || (uint64_t)st.st_size != bytes) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "the peer's memory has another size than it said");
    }
    if (is_allocated && (uint64_t)st.st_blocks * 512 < bytes) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the peer's memory is not allocated");
    }
    return 0;
}

int fq_shm_map_rings(int fd, struct fq_shm_layout **ret, struct fq_err *err)
{
    int r = check_sealed(fd, sizeof **ret, false, err);
    if (r < 0) {
        return r;
    }
    void *at = mmap(NULL, sizeof **ret, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "map the rings");
    }
    *ret = at;
    return 0;
}

/* ---- granting ------------------------------------------------------------------------------- */

int fq_shm_grant(struct fq_window *window, uint8_t token[FQ_TOKEN_BYTES], struct fq_err *err)
{
    const struct fq_region *region = window->region;
    if (!region->is_file && (window->offset != 0 || window->bytes != region->bytes)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "over shm a window is a whole region: the peer maps all of it");
    }
    struct fq_token parsed = fq_window_token(window, FQ_TRANSPORT_SHM);
    const struct fq_shm_record record = {
        .type = FQ_SHM_RECORD_GRANT,
        .flags = (uint8_t)((parsed.is_mirrored ? FQ_SHM_GRANT_MIRRORED : 0) |
                           (parsed.is_file ? FQ_SHM_GRANT_FILE : 0)),
        .id = window->id,
        .key = window->key,
        .offset = window->offset,
        .bytes = window->bytes,
        .rights = window->rights};
    int r = fq_shm_link_send(fq_shm_conn_of(window->conn), &record, window->region);
    if (r < 0) {
        return fq_err_set(err, r,
                          r == FLASHQ_ERR_AGAIN
                              ? "windows that wait to be sent to one peer: at most 8192"
                              : "the window's descriptor cannot be sent");
    }
    fq_token_encode(&parsed, token);
    return 0;
}

void fq_shm_revoke(struct fq_window *window)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(window->conn);
    const struct fq_shm_record record = {
        .type = FQ_SHM_RECORD_REVOKE, .id = window->id, .key = window->key};
    int r = fq_shm_link_send(conn, &record, NULL);
    if (r == FLASHQ_ERR_NO_MEMORY || r == FLASHQ_ERR_AGAIN) { /* who cannot be told is cut off */
        (void)fq_shm_fail(conn, true, r == FLASHQ_ERR_AGAIN ? FLASHQ_ERR_LIMIT : r,
                          "a window cannot be revoked: %s",
                          r == FLASHQ_ERR_AGAIN ? "the peer does not read its socket"
                                                : "no memory");
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static struct fq_shm_grant *find_grant(struct fq_shm_conn *conn, const struct fq_token *token)
{
    for (struct fq_list *at = conn->grants.next; at != &conn->grants; at = at->next) {
        struct fq_shm_grant *grant = fq_list_item(at, struct fq_shm_grant, link);
        if (grant->record.id == token->id && grant->record.key == token->key) {
            return grant;
        }
    }
    return NULL;
}

static int check_grant(const struct fq_remote *remote, const struct fq_shm_grant *grant,
                       struct fq_err *err)
{
    const struct fq_shm_record *record = &grant->record;
    bool is_file = record->flags & FQ_SHM_GRANT_FILE;
    if (remote->rights & ~record->rights) {
        return fq_err_set(err, FLASHQ_ERR_NOT_PERMITTED, "the window does not grant that right");
    }
    if (record->bytes == 0 || record->bytes > UINT64_MAX / 4 || record->offset > INT64_MAX / 2) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "a window of an impossible size");
    }
    if (!is_file) {
        return record->offset == 0
                   ? check_sealed(grant->fd, record->bytes, true, err)
                   : fq_err_set(err, FLASHQ_ERR_PROTOCOL, "a window into the middle of a memfd");
    }
    struct stat st;
    if (!remote->conn->is_initiator || (record->flags & FQ_SHM_GRANT_MIRRORED) ||
        (remote->rights & FQ_RIGHT_WRITE)) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "a file window is not accepted here");
    }
    if (fstat(grant->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 0 ||
        (uint64_t)st.st_size < record->offset + record->bytes) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "the file is shorter than its window");
    }
    return 0;
}

/* The memory of a memfd is there already; mapping it whole now spares the data path its faults. */
static int map_memfd(struct fq_remote *remote, const struct fq_shm_grant *grant)
{
    size_t bytes = (size_t)grant->record.bytes;
    size_t times = grant->record.flags & FQ_SHM_GRANT_MIRRORED ? 2 : 1;
    int prot = remote->rights & FQ_RIGHT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    uint8_t *base = mmap(NULL, times * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return -errno;
    }
    for (size_t i = 0; i < times; i++) {
        if (mmap(base + i * bytes, bytes, prot, MAP_SHARED | MAP_FIXED | MAP_POPULATE, grant->fd,
                 0) == MAP_FAILED) {
            int saved = errno;
            munmap(base, times * bytes);
            return -saved;
        }
    }
    remote->map = remote->map_base = base;
    remote->map_bytes = times * bytes;
    return 0;
}

static int map_file(struct fq_remote *remote, const struct fq_shm_grant *grant)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t skip = grant->record.offset % page;
    size_t bytes = (size_t)(skip + grant->record.bytes);
    uint8_t *base =
        mmap(NULL, bytes, PROT_READ, MAP_SHARED, grant->fd, (off_t)(grant->record.offset - skip));
    if (base == MAP_FAILED) {
        return -errno;
    }
    remote->map_base = base;
    remote->map_bytes = bytes;
    remote->map = base + skip;
    return 0;
}

int fq_shm_remote_open(struct fq_remote *remote, const uint8_t token[FQ_TOKEN_BYTES],
                       struct fq_err *err)
{
    struct fq_shm_conn *conn = fq_shm_conn_of(remote->conn);
    struct fq_token parsed;
    if (fq_token_decode(token, &parsed) < 0 || parsed.transport != FQ_TRANSPORT_SHM) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "not a token of an shm window");
    }
    struct fq_shm_grant *grant = find_grant(conn, &parsed);
    if (!grant && !conn->has_eof) {
        int r = fq_shm_link_drain(conn);
        if (r < 0) {
            return fq_err_set(err, r, "%s", conn->base.reason_text);
        }
        grant = find_grant(conn, &parsed);
    }
    if (!grant) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND,
                          "no such window: never granted here, revoked, or opened already");
    }
    int r = check_grant(remote, grant, err);
    if (r < 0) {
        return r;
    }
    r = grant->record.flags & FQ_SHM_GRANT_FILE ? map_file(remote, grant)
                                                : map_memfd(remote, grant);
    if (r < 0) {
        return fq_err_errno(err, fq_err_from_errno(-r), -r, "map a window of %llu bytes",
                            (unsigned long long)grant->record.bytes);
    }
    remote->id = grant->record.id;
    remote->key = grant->record.key;
    remote->bytes = grant->record.bytes;
    remote->span = grant->record.flags & FQ_SHM_GRANT_MIRRORED ? 2 * remote->bytes : remote->bytes;
    fq_list_remove(&grant->link);
    close(grant->fd);
    free(grant);
    conn->grants_count--;
    return 0;
}

void fq_shm_remote_fini(struct fq_remote *remote)
{
    if (remote->map_base) { /* else somebody keeps it: fq_remote_close_mapped */
        munmap(remote->map_base, remote->map_bytes);
    }
}
