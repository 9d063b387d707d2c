/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persist ops: the seam between the log and its medium. Everything durable goes through here, so
 * that the recording implementation can replay every legal persistent state.
 *
 * Three implementations: pmem (stores into the mapping, write-back, fence; libpmem), sync (pwrite
 * into written blocks; fdatasync by the flusher; read-only mapping), recording (crash tests).
 *
 * A file is always mapped for reading at `map`. On pmem the mapping is also what is written.
 */
#ifndef FQ_STORAGE_PERSIST_H
#define FQ_STORAGE_PERSIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct fq_persist; /* one per store (data directory or device) */

struct fq_pfile { /* one open file or extent */
    struct fq_persist *persist;
    int fd;
    const uint8_t *map; /* read view of all `bytes` */
    uint64_t bytes;
    void *backend; /* the implementation's own */
};

/* Every slot may be called from any thread; two calls on one file never overlap but for reads
 * through the mapping and sync beside write. Errors carry the path in their text. */
struct fq_persist_ops {
    const char *name; /* "pmem", "sync", "recording" */
    /* true: bytes are durable only after sync() (which the flusher thread calls); false: after
     * drain(). */
    bool needs_sync;

    /* Exclusive; fully allocated, every block written once with zeros; mapped and faulted in. The
     * file's content is durable after drain/sync, its name after sync_dir. Slow. NO_SPACE leaves
     * nothing behind. */
    int (*create)(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                  struct fq_err *err);
    /* The same in pieces. begin: a file of its size, mapped, of which no byte may be touched yet.
     * grow: bytes [from, to), in order from 0, are allocated, zero and faulted in; after an error
     * (NO_SPACE) the file is the caller's to unlink. NULL, both: there is only create. */
    int (*begin)(struct fq_persist *p, const char *path, uint64_t bytes, struct fq_pfile *ret,
                 struct fq_err *err);
    int (*grow)(struct fq_pfile *f, uint64_t from, uint64_t to, struct fq_err *err);
    /* Mapped, not faulted in: reading a few pages of a large file costs a few pages. */
    int (*open)(struct fq_persist *p, const char *path, struct fq_pfile *ret, struct fq_err *err);
    /* Faults in bytes [from, to) for storing, so that an append never does. Slow; touches no byte;
     * only a hint. NULL: nothing to fault in. */
    void (*fault_in)(struct fq_pfile *f, uint64_t from, uint64_t to);
    void (*close)(struct fq_pfile *f); /* makes nothing durable */
    int (*rename)(struct fq_persist *p, const char *from, const char *to, struct fq_err *err);
    int (*unlink)(struct fq_persist *p, const char *path, struct fq_err *err);
    int (*mkdir)(struct fq_persist *p, const char *path, struct fq_err *err); /* there: 0 */
    /* Names created, renamed and removed in `dir` are durable afterwards. Blocks. */
    int (*sync_dir)(struct fq_persist *p, const char *dir, struct fq_err *err);

    /* Data path. Never allocates; write and word may fail only on needs_sync media (an error is
     * final for the partition). write: bytes [pos, pos+len) will be durable after drain/sync.
     * word: one aligned 8-byte atomic store, likewise. drain orders and makes durable all earlier
     * writes of the calling thread on pmem; a no-op where needs_sync. sync blocks and makes
     * durable what was written on either kind. */
    int (*write)(struct fq_pfile *f, uint64_t pos, const void *src, size_t len);
    int (*word)(struct fq_pfile *f, uint64_t pos, uint64_t value);
    /* Two words of one cache line, stored in this order; what is durable of the line is never the
     * second without the first. NULL: word, twice, will do. */
    int (*words)(struct fq_pfile *f, const uint64_t pos[2], const uint64_t values[2]);
    /* As write, out of memory that somebody else may be storing to: each byte of `src` is loaded
     * once, checksummed, stored at `copy`, which the caller looks at instead, and written. What it
     * shares a cache line of the medium with (at its beginning, at its end) is the caller's to write
     * too, or to write back, before drain: until then those ends are only stored. NULL where
     * needs_sync. */
    int (*stream)(struct fq_pfile *f, uint64_t pos, void *copy, const void *src, size_t len,
                  uint32_t *inout_crc);
    /* Bytes [pos, pos+len) of the mapping were stored by somebody else (a peer, by way of a
     * window): they will be durable after drain. NULL where needs_sync. */
    int (*write_back)(struct fq_pfile *f, uint64_t pos, uint64_t len);
    void (*drain)(struct fq_persist *p);
    int (*sync)(struct fq_pfile *f);
    /* Begins what sync will wait for, without waiting and without learning of errors; so that
     * several files are written at once. NULL: there is nothing to begin. */
    void (*begin_sync)(struct fq_pfile *f);

    void (*destroy)(struct fq_persist *p);
};

struct fq_persist {
    const struct fq_persist_ops *ops;
};

/* pwrite and fdatasync. */
int fq_persist_sync_create(struct fq_persist **ret);
/* libpmem's copies and flushes on a shared mapping; UNSUPPORTED when built without libpmem. */
int fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *err);
/* Is `dir` on a DAX file system? 1 yes, 0 no (also when built without libpmem). */
int fq_persist_pmem_probe(const char *dir);

#endif
