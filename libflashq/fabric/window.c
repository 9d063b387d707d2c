/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows (what we granted), remotes (what we were granted) and the tokens that name them. A window
 * is found by its index in the connection's table and must show its 64 random bits. Runs on the
 * fabric's thread; revoking frees at once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/random.h"
#include "fabric/backend.h"

#define TOKEN_MAGIC    0xf7u
#define TOKEN_MIRRORED 1u
#define TOKEN_FILE     2u

void fq_token_encode(const struct fq_token *token, uint8_t out[FQ_TOKEN_BYTES])
{
    struct fq_writer w;
    fq_writer_init(&w, out, FQ_TOKEN_BYTES);
    fq_write_u8(&w, TOKEN_MAGIC);
    fq_write_u8(&w, token->transport);
    fq_write_u8(&w, (uint8_t)((token->is_mirrored ? TOKEN_MIRRORED : 0) |
                              (token->is_file ? TOKEN_FILE : 0)));
    fq_write_u8(&w, (uint8_t)token->rights);
    fq_write_u32(&w, token->id);
    fq_write_u64(&w, token->key);
    fq_write_u64(&w, token->bytes);
    fq_write_u64(&w, 0);
}

int fq_token_decode(const uint8_t in[FQ_TOKEN_BYTES], struct fq_token *ret)
{
    struct fq_reader r;
    fq_reader_init(&r, in, FQ_TOKEN_BYTES);
    uint8_t magic = fq_read_u8(&r);
    uint8_t transport = fq_read_u8(&r);
    uint8_t flags = fq_read_u8(&r);
    uint8_t rights = fq_read_u8(&r);
    uint32_t id = fq_read_u32(&r);
    uint64_t key = fq_read_u64(&r);
    uint64_t bytes = fq_read_u64(&r);
    uint64_t zero = fq_read_u64(&r);
    if (magic != TOKEN_MAGIC || (flags & ~(TOKEN_MIRRORED | TOKEN_FILE)) || rights == 0 ||
        (rights & ~(unsigned)(FQ_RIGHT_READ | FQ_RIGHT_WRITE)) || bytes == 0 ||
        bytes > UINT64_MAX / 4 || zero != 0) {
        return FLASHQ_ERR_INVALID;
    }
    *ret = (struct fq_token){.transport = transport,
                             .is_mirrored = flags & TOKEN_MIRRORED,
                             .is_file = flags & TOKEN_FILE,
                             .rights = rights,
                             .id = id,
                             .key = key,
                             .bytes = bytes};
    return 0;
}

static bool is_mirrored_whole(const struct fq_window *window)
{
    return window->region && (window->region->flags & FQ_REGION_MIRRORED) && window->offset == 0 &&
           window->bytes == window->region->bytes;
}

struct fq_token fq_window_token(const struct fq_window *window, enum fq_transport transport)
{
    return (struct fq_token){.transport = (uint8_t)transport,
                             .is_mirrored = is_mirrored_whole(window),
                             .is_file = window->region->is_file,
                             .rights = window->rights,
                             .id = window->id,
                             .key = window->key,
                             .bytes = window->bytes};
}

struct fq_window *fq_window_find(const struct fq_conn *conn, uint32_t id, uint64_t key)
{
    struct fq_window *window = id < conn->windows_capacity ? conn->windows[id] : NULL;
    return window && window->key == key ? window : NULL;
}

bool fq_window_covers(const struct fq_window *window, uint64_t offset, uint64_t length)
{
    uint64_t span = is_mirrored_whole(window) ? 2 * window->bytes : window->bytes;
    return length <= window->bytes && offset <= span - length;
}

uint8_t *fq_window_at(const struct fq_window *window, uint64_t offset, uint64_t length)
{
    return fq_window_covers(window, offset, length) ? window->region->base + window->offset + offset
                                                    : NULL;
}

/* Puts the window into a free slot of the table; its id is the slot. */
static int take_slot(struct fq_conn *conn, struct fq_window *window)
{
    size_t i = conn->windows_free_hint;
    while (i < conn->windows_capacity && conn->windows[i]) {
        i++;
    }
    if (i == conn->windows_capacity) {
        if (i >= FQ_LIMIT_WINDOWS_PER_CONNECTION) {
            return FLASHQ_ERR_LIMIT;
        }
        size_t capacity = i ? 2 * i : 8;
        struct fq_window **table = realloc(conn->windows, capacity * sizeof(*table));
        if (!table) {
            return FLASHQ_ERR_NO_MEMORY;
        }
        memset(table + i, 0, (capacity - i) * sizeof(*table));
        conn->windows = table;
        conn->windows_capacity = capacity;
    }
    conn->windows[i] = window;
    conn->windows_free_hint = i + 1;
    window->id = (uint32_t)i;
    return 0;
}

static bool is_in_place(const struct fq_window *window)
{
    return window->region && window->region->is_file && (window->rights & FQ_RIGHT_WRITE);
}

bool fq_window_may_begin(const struct fq_window *window, uint64_t offset)
{
    return !window->region ||
           (offset >= window->floor && (!is_in_place(window) || offset <= window->written));
}

static void free_window(struct fq_window *window)
{
    struct fq_conn *conn = window->conn;
    conn->in_place_windows -= is_in_place(window);
    if (conn->windows_free_hint > window->id) {
        conn->windows_free_hint = window->id;
    }
    conn->windows[window->id] = NULL;
    fq_region_unref(window->region);
    free(window);
}

static int check_grant(const struct fq_conn *conn, const struct fq_region *region, uint64_t offset,
                       uint64_t bytes, unsigned rights, struct fq_err *err)
{
    if (bytes == 0 || bytes > region->bytes || offset > region->bytes - bytes || rights == 0 ||
        (rights & ~(unsigned)(FQ_RIGHT_READ | FQ_RIGHT_WRITE))) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "window of %llu bytes at %llu in a region of %zu",
                          (unsigned long long)bytes, (unsigned long long)offset, region->bytes);
    }
    if (region->flags & FQ_REGION_LOCAL) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "a local region cannot be granted");
    }
    if (region->is_file_writable && (rights & FQ_RIGHT_WRITE) &&
        conn->fabric->ops->transport == FQ_TRANSPORT_SHM) {
        return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED,
                          "a file is not granted for writing over shm: a mapping cannot be taken "
                          "back");
    }
    if ((region->flags & FQ_REGION_PEER_READS) && (rights & FQ_RIGHT_WRITE) &&
        !region->is_file_writable) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "peers only read this region");
    }
    if (!(region->flags & FQ_REGION_PEER_READS) && !(rights & FQ_RIGHT_WRITE)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "a read window needs a file or a region sealed with PEER_READS");
    }
    if (region->is_file && conn->is_initiator) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "only the accepting side may grant files");
    }
    return 0;
}

int fq_window_grant(struct fq_conn *conn, struct fq_region *region, uint64_t offset, uint64_t bytes,
                    enum fq_rights rights, struct fq_window **ret, uint8_t token[FQ_TOKEN_BYTES],
                    struct fq_err *err)
{
    if (!conn || !region || !ret || !token) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "NULL argument");
    }
    if (conn->state != FQ_CONN_OPEN) {
        return fq_err_set(err, FLASHQ_ERR_CLOSED, "the connection is not open");
    }
    int r = check_grant(conn, region, offset, bytes, rights, err);
    if (r < 0) {
        return r;
    }
    struct fq_window *window = calloc(1, sizeof *window);
    if (!window) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "window");
    }
    window->conn = conn;
    window->offset = offset;
    window->bytes = bytes;
    window->rights = rights;
    window->key = fq_random_u64();
    r = take_slot(conn, window);
    if (r < 0) {
        free(window);
        return fq_err_set(err, r, "%s",
                          r == FLASHQ_ERR_LIMIT ? "windows per connection: at most 65536"
                                                : "window table");
    }
    window->region = fq_region_ref(region);
    conn->in_place_windows += is_in_place(window);
    r = conn->fabric->ops->grant(window, token, err);
    if (r < 0) {
        free_window(window);
        return r;
    }
    *ret = window;
    return 0;
}

void fq_window_revoke(struct fq_window *window)
{
    if (!window) {
        return;
    }
    const struct fq_fabric_ops *ops = window->conn->fabric->ops;
    if (window->conn->state == FQ_CONN_OPEN) {
        ops->revoke(window);
    }
    if (ops->window_fini) {
        ops->window_fini(window);
    }
    free_window(window);
}

void fq_window_set_floor(struct fq_window *window, uint64_t offset)
{
    window->floor = offset > window->floor ? offset : window->floor;
    if (window->inner) {
        fq_window_set_floor(window->inner, offset);
    }
}

uint64_t fq_window_written(const struct fq_window *window)
{
    return window->inner ? fq_window_written(window->inner) : window->written;
}

void fq_window_retire(struct fq_window *window)
{
    if (!window->region) {
        return;
    }
    window->conn->in_place_windows -= is_in_place(window);
    fq_region_unref(window->region);
    window->region = NULL;
    if (window->inner) {
        fq_window_retire(window->inner);
    }
}

int fq_remote_open(struct fq_conn *conn, const uint8_t token[FQ_TOKEN_BYTES], enum fq_rights rights,
                   struct fq_remote **ret, struct fq_err *err)
{
    if (!conn || !token || !ret || rights == 0 ||
        ((unsigned)rights & ~(unsigned)(FQ_RIGHT_READ | FQ_RIGHT_WRITE))) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "wrong argument");
    }
    if (conn->state != FQ_CONN_OPEN) {
        return fq_err_set(err, FLASHQ_ERR_CLOSED, "the connection is not open");
    }
    struct fq_remote *remote = calloc(1, sizeof *remote);
    if (!remote) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "remote window");
    }
    remote->conn = conn;
    remote->rights = rights;
    fq_list_init(&remote->link);
    int r = conn->fabric->ops->remote_open(remote, token, err);
    if (r < 0) {
        free(remote);
        return r;
    }
    fq_list_append(&conn->remotes, &remote->link);
    *ret = remote;
    return 0;
}

void fq_remote_close(struct fq_remote *remote)
{
    if (remote) {
        fq_list_remove(&remote->link);
        if (remote->conn->fabric->ops->remote_fini) {
            remote->conn->fabric->ops->remote_fini(remote);
        }
        free(remote);
    }
}

uint64_t fq_remote_bytes(const struct fq_remote *remote)
{
    return remote->bytes;
}

uint64_t fq_remote_span(const struct fq_remote *remote)
{
    return remote->span;
}

void *fq_remote_map(struct fq_remote *remote)
{
    return remote->map;
}

void fq_remote_expect_reads(struct fq_remote *remote, uint64_t offset, uint64_t bytes)
{
    uint64_t left = offset < remote->bytes ? remote->bytes - offset : 0;
    bytes = bytes < left ? bytes : left;
    if (remote->map && bytes > 0) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t from = (uintptr_t)remote->map + offset, to = from + bytes;
        from -= from % page;
        /* Not every kernel or file does it: then reading faults them in. */
        (void)madvise((void *)from, to - from, MADV_POPULATE_READ);
    }
}

void fq_remote_close_mapped(struct fq_remote *remote, struct fq_mapping *ret)
{
    struct fq_remote *owner = remote;
    while (owner->inner) {
        owner = owner->inner;
    }
    *ret = (struct fq_mapping){.base = owner->map_base, .bytes = owner->map_bytes};
    owner->map_base = NULL;
    fq_remote_close(remote);
}

void fq_mapping_unmap(struct fq_mapping *mapping)
{
    if (mapping->base) {
        (void)munmap(mapping->base, mapping->bytes);
        mapping->base = NULL;
    }
}

void fq_remotes_revoked(struct fq_conn *conn, uint32_t id, uint64_t key)
{
    for (struct fq_list *at = conn->remotes.next; at != &conn->remotes; at = at->next) {
        struct fq_remote *remote = fq_list_item(at, struct fq_remote, link);
        if (remote->id == id && remote->key == key) {
            remote->is_revoked = true;
        }
    }
}

void fq_conn_free_windows(struct fq_conn *conn)
{
    while (!fq_list_is_empty(&conn->remotes)) {
        fq_remote_close(fq_list_item(conn->remotes.next, struct fq_remote, link));
    }
    for (size_t i = 0; i < conn->windows_capacity; i++) {
        if (conn->windows[i]) {
            if (conn->fabric->ops->window_fini) {
                conn->fabric->ops->window_fini(conn->windows[i]);
            }
            free_window(conn->windows[i]);
        }
    }
    free(conn->windows);
    conn->windows = NULL;
    conn->windows_capacity = 0;
}

void fq_copy_words(void *dst, const void *src, size_t length)
{
    bool to_words = ((uintptr_t)dst & 7) == 0;
    bool from_words = ((uintptr_t)src & 7) == 0;
    if (length > FQ_ATOMIC_COPY_BYTES || length < 8 || !(to_words || from_words)) {
        memcpy(dst, src, length);
        return;
    }
    /* Relaxed: order comes from the notify that follows. */
    uint8_t *to = dst;
    const uint8_t *from = src;
    for (; length >= 8; length -= 8, to += 8, from += 8) {
        uint64_t word =
            from_words ? __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_RELAXED)
                       : fq_load_le64(from);
        if (to_words) {
            __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELAXED);
        } else {
            fq_store_le64(to, word);
        }
    }
    memcpy(to, from, length);
}
