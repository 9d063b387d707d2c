/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level k + 1 holds one maximum for each group of 32 of level k, the last group perhaps not full.
 * All levels are laid out for the capacity, so that a push touches one value per level and never
 * allocates.
 */
#include "timeindex/maxtree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static size_t groups_of(size_t count)
{
    return (count + FQ_MAXTREE_FANOUT - 1) / FQ_MAXTREE_FANOUT;
}

/* Levels for `capacity` values, down to one that fits a single group; their sizes added up. */
static unsigned shape(size_t capacity, size_t *ret_total)
{
    unsigned levels = 1;
    size_t total = capacity;
    for (size_t size = capacity; size > FQ_MAXTREE_FANOUT; levels++) {
        size = groups_of(size);
        total += size;
    }
    *ret_total = total;
    return levels;
}

static size_t level_count(const struct fq_maxtree *tree, unsigned level)
{
    size_t count = tree->count;
    for (unsigned i = 0; i < level; i++) {
        count = groups_of(count);
    }
    return count;
}

void fq_maxtree_init(struct fq_maxtree *tree)
{
    memset(tree, 0, sizeof *tree);
}

void fq_maxtree_fini(struct fq_maxtree *tree)
{
    free(tree->levels[0]);
    fq_maxtree_init(tree);
}

int fq_maxtree_reserve(struct fq_maxtree *tree, size_t capacity)
{
    if (capacity <= tree->capacity) {
        return 0;
    }
    size_t total;
    unsigned levels_count = shape(capacity, &total);
    int64_t *memory = total <= SIZE_MAX / sizeof *memory ? malloc(total * sizeof *memory) : NULL;
    if (!memory || levels_count > FQ_MAXTREE_LEVELS) {
        free(memory);
        return FLASHQ_ERR_NO_MEMORY;
    }
    struct fq_maxtree grown = {.capacity = capacity, .levels_count = levels_count};
    size_t size = capacity;
    for (unsigned level = 0; level < levels_count; level++) {
        grown.levels[level] = memory;
        memory += size;
        size = groups_of(size);
    }
    for (size_t i = 0; i < tree->count; i++) {
        fq_maxtree_push(&grown, tree->levels[0][i]);
    }
    free(tree->levels[0]);
    *tree = grown;
    return 0;
}

size_t fq_maxtree_memory_bytes(const struct fq_maxtree *tree)
{
    size_t total = 0;
    if (tree->capacity > 0) {
        (void)shape(tree->capacity, &total);
    }
    return total * sizeof(int64_t);
}

/* The value at `index` became `value`, which is the greatest of its groups or not. */
static void raise_groups(struct fq_maxtree *tree, size_t index, int64_t value)
{
    for (unsigned level = 1; level < tree->levels_count; level++) {
        size_t group = index / FQ_MAXTREE_FANOUT;
        int64_t *maximum = &tree->levels[level][group];
        if (index % FQ_MAXTREE_FANOUT == 0 || *maximum < value) {
            *maximum = value;
        }
        value = *maximum;
        index = group;
    }
}

void fq_maxtree_push(struct fq_maxtree *tree, int64_t value)
{
    assert(tree->count < tree->capacity);
    size_t index = tree->count++;
    tree->levels[0][index] = value;
    raise_groups(tree, index, value);
}

void fq_maxtree_raise_last(struct fq_maxtree *tree, int64_t value)
{
    assert(tree->count > 0);
    size_t index = tree->count - 1;
    if (value <= tree->levels[0][index]) {
        return;
    }
    tree->levels[0][index] = value;
    raise_groups(tree, index, value);
}

void fq_maxtree_truncate(struct fq_maxtree *tree, size_t count)
{
    assert(count <= tree->count);
    tree->count = count;
    size_t below_count = count;
    for (unsigned level = 1; level < tree->levels_count && below_count > 0; level++) {
        size_t group = (below_count - 1) / FQ_MAXTREE_FANOUT;
        const int64_t *below = tree->levels[level - 1];
        int64_t maximum = below[group * FQ_MAXTREE_FANOUT];
        for (size_t i = group * FQ_MAXTREE_FANOUT; i < below_count; i++) {
            maximum = below[i] > maximum ? below[i] : maximum;
        }
        tree->levels[level][group] = maximum;
        below_count = group + 1;
    }
}

int64_t fq_maxtree_max(const struct fq_maxtree *tree)
{
    unsigned level = 0;
    size_t count = tree->count;
    while (count > FQ_MAXTREE_FANOUT) {
        count = groups_of(count);
        level++;
    }
    int64_t maximum = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        maximum = tree->levels[level][i] > maximum ? tree->levels[level][i] : maximum;
    }
    return maximum;
}

/* The first value >= threshold from `from` to the end of its group, or NONE. */
static size_t find_in_group(const struct fq_maxtree *tree, unsigned level, size_t from,
                            int64_t threshold)
{
    size_t end = (from / FQ_MAXTREE_FANOUT + 1) * FQ_MAXTREE_FANOUT;
    size_t count = level_count(tree, level);
    end = end < count ? end : count;
    for (size_t i = from; i < end; i++) {
        if (tree->levels[level][i] >= threshold) {
            return i;
        }
    }
    return FQ_MAXTREE_NONE;
}

size_t fq_maxtree_find(const struct fq_maxtree *tree, size_t from, int64_t threshold,
                       uint64_t *inout_nodes)
{
    unsigned level = 0;
    size_t found = FQ_MAXTREE_NONE;
    while (level < tree->levels_count && from < level_count(tree, level)) {
        ++*inout_nodes;
        found = find_in_group(tree, level, from, threshold);
        if (found != FQ_MAXTREE_NONE) {
            break;
        }
        from = from / FQ_MAXTREE_FANOUT + 1;
        level++;
    }
    if (found == FQ_MAXTREE_NONE) {
        return FQ_MAXTREE_NONE;
    }
    while (level > 0) {
        level--;
        ++*inout_nodes;
        found = find_in_group(tree, level, found * FQ_MAXTREE_FANOUT, threshold);
        assert(found != FQ_MAXTREE_NONE);
    }
    return found;
}
