/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool under meta_pmem.c: its layout, making, looking at and opening it. Private to the two
 * files meta_pmem_pool.c and meta_pmem.c, the only ones that include libpmemobj.
 *
 * Layout: the root object says whose pool this is, and how many entries there are and what their
 * checksums add up to; every key is one object of type ENTRY; one object of type LOG keeps room for
 * libpmemobj's own log. There is no persistent structure beside libpmemobj's list of objects: the
 * order of keys is volatile. The sums are what tells when damage in libpmemobj's heap makes an
 * object vanish from that list or come back.
 */
#ifndef FQ_STORAGE_META_PMEM_POOL_H
#define FQ_STORAGE_META_PMEM_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpmemobj.h>

#include "storage/meta.h"

#define FQ_META_LAYOUT     "flashq-meta"
#define FQ_META_ROOT_MAGIC UINT64_C(0x314154454d5146) /* "FQMETA1" */

enum { FQ_META_POOL_VERSION = 1, FQ_META_TYPE_ENTRY = 1, FQ_META_TYPE_LOG = 2 };

/* Room for libpmemobj's log of a large transaction when the pool is full: 24 bytes a change, so
 * that some ten thousand keys can be removed at once from a pool without a free byte. */
enum { FQ_META_LOG_BYTES = 240 << 10 };

struct fq_meta_pool_root {
    uint64_t magic;
    uint32_t version;
    uint32_t crc;        /* CRC-32C of the other fields, as if crc were 0 */
    uint64_t file_bytes; /* what the file measured when it was made */
    uint64_t entries_count;
    uint64_t entries_sum; /* of fq_meta_pool_entry_share over all entries, modulo 2^64 */
    uint64_t log_offset;  /* of the one object of type LOG */
    uint8_t reserved[16];
};
_Static_assert(sizeof(struct fq_meta_pool_root) == 64, "on media");

struct fq_meta_pool_entry {
    uint32_t crc;    /* CRC-32C of everything after this field, value included */
    uint32_t length; /* of the value */
    uint32_t table;
    uint32_t partition;
    uint64_t node;
    uint8_t topic_id[FQ_UUID_BYTES];
    uint8_t value[];
};
_Static_assert(sizeof(struct fq_meta_pool_entry) == 40, "on media");
_Static_assert(offsetof(struct fq_meta_pool_entry, topic_id) == 24, "on media");

uint32_t fq_meta_pool_entry_crc(const struct fq_meta_pool_entry *entry);
/* `allocated` bytes are the object's: 0 or CORRUPT. */
int fq_meta_pool_entry_check(const struct fq_meta_pool_entry *entry, size_t allocated);

/* What one entry adds to entries_sum. */
uint64_t fq_meta_pool_entry_share(const struct fq_meta_pool_entry *entry);

/* The root object, once the pool is open. */
struct fq_meta_pool_root *fq_meta_pool_root_of(PMEMobjpool *pool);
uint32_t fq_meta_pool_root_crc(const struct fq_meta_pool_root *root);

/* Makes a new pool of `bytes` at `path`, which must not exist: under another name first, so that a
 * half-made one is never found. */
int fq_meta_pool_create(const char *path, size_t bytes, PMEMobjpool **ret, struct fq_err *err);
/* 0; NOT_FOUND; CORRUPT: what is there is no sound pool; BUSY, VERSION, other errors. `has_look`: a
 * child looks first. */
int fq_meta_pool_open(const char *path, bool has_look, PMEMobjpool **ret, struct fq_err *err);
/* Renames what is at `path` to PATH.damaged-N. */
int fq_meta_pool_set_aside(const char *path, struct fq_err *err);

/* fq_meta_open_pmem for a pool that is there, in this process alone and without setting anything
 * aside: for the crash test, which opens thousands, each in a child of its own. */
int fq_meta_open_pmem_trusting(const char *path, struct fq_meta **ret, struct fq_err *err);

#endif
