/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buddy allocator: a chunk is one region of a power-of-two size, cut into blocks of 16 KiB * 2^order. Free
 * blocks are linked through their own memory (nobody else sees it: the regions are local). `orders` of a
 * chunk says, for the first unit of each block, its order and whether it is free.
 * Fails for want of memory only; the pool is then as it was.
 */
#include "producer/pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define CHUNK_BYTES ((size_t)4 << 20)
#define IS_FREE 0x80u

struct fq_pool_chunk {
    struct fq_chain node;
    struct fq_region *region;
    uint8_t *base;
    size_t bytes;
    uint8_t orders[]; /* one per unit of FQ_POOL_BLOCK_MIN */
};

static unsigned order_of(size_t bytes)
{
    unsigned order = 0;
    while ((FQ_POOL_BLOCK_MIN << order) < bytes && order < FQ_POOL_ORDERS) {
        order++;
    }
    return order;
}

static size_t unit_of(const struct fq_pool_chunk *chunk, const void *at)
{
    return (size_t)((const uint8_t *)at - chunk->base) / FQ_POOL_BLOCK_MIN;
}

/* A free block begins with this. */
struct free_block {
    struct fq_chain node;
    struct fq_pool_chunk *chunk;
};

static void put_free(struct fq_pool *pool, struct fq_pool_chunk *chunk, void *at, unsigned order)
{
    struct free_block *block = at;
    block->chunk = chunk;
    fq_chain_insert_after(&pool->free[order], &block->node);
    chunk->orders[unit_of(chunk, at)] = (uint8_t)(order | IS_FREE);
}

void fq_pool_init(struct fq_pool *pool, size_t limit_bytes)
{
    *pool = (struct fq_pool){.limit_bytes = limit_bytes};
    fq_chain_init(&pool->chunks);
    for (size_t i = 0; i < FQ_POOL_ORDERS; i++) {
        fq_chain_init(&pool->free[i]);
    }
}

void fq_pool_fini(struct fq_pool *pool)
{
    while (!fq_chain_is_empty(&pool->chunks)) {
        struct fq_pool_chunk *chunk = fq_chain_item(pool->chunks.next, struct fq_pool_chunk, node);
        fq_chain_remove(&chunk->node);
        fq_region_unref(chunk->region);
        free(chunk);
    }
}

/* What may still be grown. */
static size_t left(const struct fq_pool *pool)
{
    size_t taken = pool->grown_bytes + pool->heap_bytes;
    return taken < pool->limit_bytes ? pool->limit_bytes - taken : 0;
}

static bool may_use(const struct fq_pool *pool, size_t bytes)
{
    return pool->used_bytes + pool->heap_bytes + bytes <= pool->limit_bytes;
}

/* Gives up chunks that nobody uses, until there is room for `bytes`: a large block does not find a place in
 * many small chunks, however free they are. */
static void make_room(struct fq_pool *pool, size_t bytes)
{
    for (struct fq_chain *at = pool->chunks.next, *next; at != &pool->chunks; at = next) {
        next = at->next;
        struct fq_pool_chunk *chunk = fq_chain_item(at, struct fq_pool_chunk, node);
        if (bytes <= left(pool)) {
            return;
        }
        if (chunk->orders[0] == (order_of(chunk->bytes) | IS_FREE)) {
            struct free_block *block = (struct free_block *)(void *)chunk->base;
            fq_chain_remove(&block->node);
            fq_chain_remove(&chunk->node);
            pool->grown_bytes -= chunk->bytes;
            fq_region_unref(chunk->region);
            free(chunk);
        }
    }
}

static int grow(struct fq_pool *pool, unsigned order)
{
    size_t bytes = FQ_POOL_BLOCK_MIN << order;
    size_t usual = CHUNK_BYTES;
    while (usual > left(pool) && usual > FQ_POOL_BLOCK_MIN) {
        usual /= 2;
    }
    bytes = bytes > usual ? bytes : usual;
    make_room(pool, bytes);
    if (bytes > left(pool)) {
        return FLASHQ_ERR_AGAIN;
    }
    struct fq_pool_chunk *chunk = calloc(1, sizeof *chunk + bytes / FQ_POOL_BLOCK_MIN);
    if (!chunk) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    int code = fq_region_create(bytes, FQ_REGION_LOCAL, &chunk->region, NULL);
    if (code != 0) {
        free(chunk);
        return code;
    }
    chunk->base = fq_region_base(chunk->region);
    chunk->bytes = bytes;
    fq_chain_append(&pool->chunks, &chunk->node);
    pool->grown_bytes += bytes;
    put_free(pool, chunk, chunk->base, order_of(bytes));
    return 0;
}

int fq_pool_alloc(struct fq_pool *pool, size_t bytes, struct fq_block *ret)
{
    unsigned wanted = order_of(bytes), order = wanted;
    if (wanted >= FQ_POOL_ORDERS) {
        return FLASHQ_ERR_TOO_LARGE;
    }
    if (!may_use(pool, FQ_POOL_BLOCK_MIN << wanted)) {
        return FLASHQ_ERR_AGAIN;
    }
    while (order < FQ_POOL_ORDERS && fq_chain_is_empty(&pool->free[order])) {
        order++;
    }
    if (order == FQ_POOL_ORDERS) {
        int code = grow(pool, wanted);
        return code != 0 ? code : fq_pool_alloc(pool, bytes, ret);
    }
    struct free_block *block = fq_chain_item(pool->free[order].next, struct free_block, node);
    struct fq_pool_chunk *chunk = block->chunk;
    fq_chain_remove(&block->node);
    while (order > wanted) {
        order--;
        put_free(pool, chunk, (uint8_t *)block + (FQ_POOL_BLOCK_MIN << order), order);
    }
    chunk->orders[unit_of(chunk, block)] = (uint8_t)order;
    pool->used_bytes += FQ_POOL_BLOCK_MIN << order;
    *ret = (struct fq_block){.data = (uint8_t *)block, .bytes = FQ_POOL_BLOCK_MIN << order,
                             .region = chunk->region, .chunk = chunk};
    return 0;
}

int fq_pool_alloc_beyond(struct fq_pool *pool, size_t bytes, struct fq_block *ret)
{
    size_t limit = pool->limit_bytes;
    int code = fq_pool_alloc(pool, bytes, ret);
    if (code == FLASHQ_ERR_AGAIN) {
        pool->limit_bytes = SIZE_MAX / 2;
        code = fq_pool_alloc(pool, bytes, ret);
        pool->limit_bytes = limit;
    }
    return code;
}

int fq_pool_charge(struct fq_pool *pool, size_t bytes)
{
    if (!may_use(pool, bytes)) {
        return FLASHQ_ERR_AGAIN;
    }
    pool->used_bytes += bytes;
    return 0;
}

int fq_pool_charge_heap(struct fq_pool *pool, size_t bytes, bool must_be)
{
    if (!must_be && !may_use(pool, bytes)) {
        return FLASHQ_ERR_AGAIN;
    }
    make_room(pool, bytes);
    pool->heap_bytes += bytes;
    return 0;
}

void fq_pool_discharge_heap(struct fq_pool *pool, size_t bytes)
{
    pool->heap_bytes -= bytes;
}

void fq_pool_discharge(struct fq_pool *pool, size_t bytes)
{
    pool->used_bytes -= bytes;
}

void fq_pool_free(struct fq_pool *pool, struct fq_block *block)
{
    struct fq_pool_chunk *chunk = block->chunk;
    if (!chunk) {
        return;
    }
    uint8_t *at = block->data;
    unsigned order = order_of(block->bytes);
    assert(chunk->orders[unit_of(chunk, at)] == order);
    pool->used_bytes -= block->bytes;
    *block = (struct fq_block){0};
    while ((FQ_POOL_BLOCK_MIN << order) < chunk->bytes) {
        uint8_t *buddy =
            chunk->base + ((size_t)(at - chunk->base) ^ (FQ_POOL_BLOCK_MIN << order));
        if (chunk->orders[unit_of(chunk, buddy)] != (order | IS_FREE)) {
            break;
        }
        struct free_block *other = (struct free_block *)(void *)buddy;
        fq_chain_remove(&other->node);
        at = at < buddy ? at : buddy;
        order++;
    }
    put_free(pool, chunk, at, order);
}
