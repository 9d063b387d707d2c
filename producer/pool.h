/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer's memory for batches: a buddy allocator over regions that grow on demand up to `queue.bytes`
 * and are kept. No system call once grown. Thread: under the client's lock.
 */
#ifndef FQ_PRODUCER_POOL_H
#define FQ_PRODUCER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/chain.h"
#include "fabric/fabric.h"

#define FQ_POOL_BLOCK_MIN ((size_t)16 << 10)
#define FQ_POOL_ORDERS 16 /* 16 KiB to 512 MiB */

struct fq_pool_chunk;

struct fq_block {
    uint8_t *data;
    size_t bytes;
    struct fq_region *region;
    struct fq_pool_chunk *chunk; /* NULL: no block */
};

struct fq_pool {
    struct fq_chain free[FQ_POOL_ORDERS];
    struct fq_chain chunks;
    size_t limit_bytes, grown_bytes, used_bytes;
    size_t heap_bytes; /* allocated elsewhere; counts against the limit */
};

void fq_pool_init(struct fq_pool *pool, size_t limit_bytes);
void fq_pool_fini(struct fq_pool *pool);
/* A block of at least `bytes` (a power of two); FLASHQ_ERR_AGAIN when the limit is reached, NO_MEMORY when
 * the system has none. */
int fq_pool_alloc(struct fq_pool *pool, size_t bytes, struct fq_block *ret);
/* The same without a limit: for what is in the queue already. */
int fq_pool_alloc_beyond(struct fq_pool *pool, size_t bytes, struct fq_block *ret);
void fq_pool_free(struct fq_pool *pool, struct fq_block *block); /* an empty one is fine */
/* Bytes that lie elsewhere but count; AGAIN when the limit is reached. */
int fq_pool_charge(struct fq_pool *pool, size_t bytes);
void fq_pool_discharge(struct fq_pool *pool, size_t bytes);
/* The same for memory of the heap, which takes the place of chunks that nobody uses; beyond the limit if it must be. */
int fq_pool_charge_heap(struct fq_pool *pool, size_t bytes, bool must_be);
void fq_pool_discharge_heap(struct fq_pool *pool, size_t bytes);

#endif
