/* SPDX-License-Identifier: Apache-2.0 */
/* The map from a broker's numbers to our objects: see idmap.h. Fails only for want of memory, and then
 * the map is as it was. Thread: whoever holds the client's lock. */
#include "client/idmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define CAPACITY_MIN 16

static size_t place_of(const struct fq_idmap *map, uint32_t id)
{
    return (size_t)((id * 0x9E3779B1u) >> 7) & (map->capacity - 1);
}

void fq_idmap_fini(struct fq_idmap *map)
{
    free(map->entries);
    *map = (struct fq_idmap){0};
}

void fq_idmap_clear(struct fq_idmap *map)
{
    if (map->entries) {
        memset(map->entries, 0, map->capacity * sizeof *map->entries);
    }
    map->used = 0;
}

static struct fq_idmap_entry *find(const struct fq_idmap *map, uint32_t id)
{
    size_t at = place_of(map, id);
    while (map->entries[at].value && map->entries[at].id != id) {
        at = (at + 1) & (map->capacity - 1);
    }
    return &map->entries[at];
}

static int grow(struct fq_idmap *map)
{
    struct fq_idmap bigger = {.capacity = map->capacity ? map->capacity * 2 : CAPACITY_MIN};
    bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
    if (!bigger.entries) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].value) {
            *find(&bigger, map->entries[i].id) = map->entries[i];
            bigger.used++;
        }
    }
    free(map->entries);
    *map = bigger;
    return 0;
}

int fq_idmap_set(struct fq_idmap *map, uint32_t id, void *value)
{
    if ((map->used + 1) * 2 > map->capacity && grow(map) != 0) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    struct fq_idmap_entry *entry = find(map, id);
    map->used += entry->value == NULL;
    *entry = (struct fq_idmap_entry){.id = id, .value = value};
    return 0;
}

void *fq_idmap_get(const struct fq_idmap *map, uint32_t id)
{
    return map->capacity ? find(map, id)->value : NULL;
}

void fq_idmap_remove(struct fq_idmap *map, uint32_t id, const void *value)
{
    struct fq_idmap_entry *hole = map->capacity ? find(map, id) : NULL;
    if (!hole || !hole->value || hole->value != value) {
        return;
    }
    hole->value = NULL;
    map->used--;
    /* What was pushed on past the hole by it must be found again. */
    size_t at = (size_t)(hole - map->entries);
    for (;;) {
        at = (at + 1) & (map->capacity - 1);
        struct fq_idmap_entry moved = map->entries[at];
        if (!moved.value) {
            return;
        }
        map->entries[at].value = NULL;
        *find(map, moved.id) = moved;
    }
}
