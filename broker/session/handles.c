/* SPDX-License-Identifier: Apache-2.0 */
/* See handles.h. Fails only for want of memory, and then changes nothing. */
#include "session/handles.h"

#include <assert.h>
#include <stdlib.h>

#define GENERATION_LAST 0xfffeu /* so that no handle is FQ_HANDLE_NONE */
#define INDEX_NONE      0xffffu

void fq_handles_init(struct fq_handles *handles, uint32_t count_max)
{
    assert(count_max <= INDEX_NONE);
    *handles = (struct fq_handles){.count_max = count_max, .first_free = {INDEX_NONE, INDEX_NONE}};
}

void fq_handles_fini(struct fq_handles *handles)
{
    free(handles->items);
    handles->items = NULL;
    handles->used = handles->capacity = handles->count = 0;
}

static bool grow(struct fq_handles *handles)
{
    uint32_t capacity = handles->capacity ? 2 * handles->capacity : 8;
    capacity = capacity > INDEX_NONE ? INDEX_NONE : capacity;
    if (capacity == handles->capacity) {
        return false;
    }
    struct fq_handle_item *items = realloc(handles->items, capacity * sizeof *items);
    if (!items) {
        return false;
    }
    handles->items = items;
    handles->capacity = capacity;
    return true;
}

uint32_t fq_handles_add(struct fq_handles *handles, unsigned kind, void *object)
{
    assert(object && kind < FQ_HANDLE_KINDS);
    if (handles->count == handles->count_max) {
        return FQ_HANDLE_NONE;
    }
    uint32_t index = handles->first_free[kind];
    if (index != INDEX_NONE) {
        handles->first_free[kind] = handles->items[index].next_free;
    } else {
        if (handles->used == handles->capacity && !grow(handles)) {
            return FQ_HANDLE_NONE;
        }
        index = handles->used++;
        handles->items[index] =
            (struct fq_handle_item){.next_free = INDEX_NONE, .kind = (uint8_t)kind};
    }
    handles->items[index].object = object;
    handles->count++;
    return index | (uint32_t)handles->items[index].generation << 16;
}

static struct fq_handle_item *item_of(const struct fq_handles *handles, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    return index < handles->used ? &handles->items[index] : NULL;
}

void fq_handles_remove(struct fq_handles *handles, uint32_t handle)
{
    struct fq_handle_item *item = item_of(handles, handle);
    assert(item && item->object && item->generation == handle >> 16);
    item->object = NULL;
    item->generation++;
    handles->count--;
    if (item->generation <= GENERATION_LAST) {
        item->next_free = (uint16_t)handles->first_free[item->kind];
        handles->first_free[item->kind] = handle & 0xffffu;
    }
}

void *fq_handles_get(const struct fq_handles *handles, uint32_t handle)
{
    const struct fq_handle_item *item = item_of(handles, handle);
    return item && item->generation == handle >> 16 ? item->object : NULL;
}

bool fq_handles_is_gone(const struct fq_handles *handles, uint32_t handle)
{
    const struct fq_handle_item *item = item_of(handles, handle);
    return item && handle >> 16 < item->generation;
}

unsigned fq_handles_kind(const struct fq_handles *handles, uint32_t handle)
{
    const struct fq_handle_item *item = item_of(handles, handle);
    assert(item);
    return item->kind;
}
