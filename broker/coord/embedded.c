/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator of a single broker: the catalogue in memory, in meta.pool and in the file `topic`
 * of each topic's folder.
 *
 * Order of a creation: the file, then meta.pool, then memory. Cut short, the next start finds the
 * file and completes it. Order of a deletion: meta.pool says "deleting", memory; when the
 * partitions are closed, the folder goes by one durable rename, then meta.pool forgets. Cut short
 * after the first, the next start goes on deleting. If meta.pool is full, the rename alone carries
 * the deletion: deleting needs no free byte.
 *
 * Thread: the housekeeper's.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coord/embedded.h"
#include "storage/meta.h"
#include "storage/store.h"

/* ---- memory --------------------------------------------------------------------------------- */

/* The index of the first active topic whose name is not below `name`. */
static size_t lower_bound(const struct fq_embedded *self, const char *name)
{
    size_t low = 0, high = self->active_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(self->active[middle]->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct fq_topic *fq_embedded_find(struct fq_coord *coord, const char *name)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    size_t at = lower_bound(self, name);
    return at < self->active_count && strcmp(self->active[at]->name, name) == 0 ? self->active[at]
                                                                                : NULL;
}

static struct fq_topic *embedded_next(struct fq_coord *coord, const char *name)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    size_t at = lower_bound(self, name);
    if (at < self->active_count && strcmp(self->active[at]->name, name) == 0) {
        at++;
    }
    return at < self->active_count ? self->active[at] : NULL;
}

static struct fq_topic *embedded_deleting(struct fq_coord *coord, size_t index)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    return index < self->dying_count ? self->dying[index] : NULL;
}

static size_t embedded_topics_count(struct fq_coord *coord)
{
    return fq_embedded_of(coord)->active_count;
}

static struct fq_uuid embedded_cluster_id(struct fq_coord *coord)
{
    return fq_embedded_of(coord)->cluster_id;
}

/* Makes room for one more pointer. */
static int reserve(struct fq_topic ***array, size_t count, size_t *capacity)
{
    if (count < *capacity) {
        return 0;
    }
    size_t wanted = *capacity ? 2 * *capacity : 16;
    struct fq_topic **grown = realloc(*array, wanted * sizeof(struct fq_topic *));
    if (!grown) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    *array = grown;
    *capacity = wanted;
    return 0;
}

/* Room in both lists, so that a topic can always become DELETING. */
int fq_embedded_reserve(struct fq_embedded *self)
{
    int code = reserve(&self->active, self->active_count, &self->active_capacity);
    while (code == 0 && self->dying_capacity < self->dying_count + self->active_count + 1) {
        code = reserve(&self->dying, self->dying_capacity, &self->dying_capacity);
    }
    return code;
}

void fq_embedded_insert(struct fq_embedded *self, struct fq_topic *topic)
{
    size_t at = lower_bound(self, topic->name);
    memmove(self->active + at + 1, self->active + at,
            (self->active_count - at) * sizeof(struct fq_topic *));
    self->active[at] = topic;
    self->active_count++;
    self->partitions_count += topic->partitions;
    self->next_shard = (topic->first_shard + topic->partitions) % self->shards_count;
}

void fq_embedded_remove(struct fq_embedded *self, const struct fq_topic *topic)
{
    size_t at = lower_bound(self, topic->name);
    assert(at < self->active_count && self->active[at] == topic);
    self->active_count--;
    memmove(self->active + at, self->active + at + 1,
            (self->active_count - at) * sizeof(struct fq_topic *));
    self->partitions_count -= topic->partitions;
}

/* ---- the two homes -------------------------------------------------------------------------- */

int fq_embedded_file_put(struct fq_embedded *self, const struct fq_topic *topic, struct fq_err *err)
{
    char text[FQ_TOPIC_TEXT_BYTES_MAX];
    size_t length = fq_topic_encode(topic, text);
    return fq_store_write_file(self->store, topic->name, &topic->id, FQ_EMBEDDED_TOPIC_FILE, text,
                               length, err);
}

static struct fq_meta_key key_of(const struct fq_topic *topic)
{
    return (struct fq_meta_key){.topic_id = topic->id};
}

int fq_embedded_meta_put(struct fq_embedded *self, const struct fq_topic *topic, struct fq_err *err)
{
    const struct fq_meta_ops *ops = self->meta->ops;
    struct fq_meta_key key = key_of(topic);
    char text[FQ_TOPIC_TEXT_BYTES_MAX];
    size_t length = fq_topic_encode(topic, text);
    int code = ops->begin(self->meta);
    if (code != 0) {
        return fq_err_set(err, code, "meta.pool: cannot begin a transaction");
    }
    code = ops->put(self->meta, FQ_META_CATALOGUE, &key, text, length, err);
    if (code != 0) {
        ops->abort(self->meta);
        return code;
    }
    code = ops->commit(self->meta);
    return code != 0 ? fq_err_set(err, code, "meta.pool: a transaction failed") : 0;
}

/* Removes all that meta.pool has of the topic, in one transaction. */
static int meta_forget(struct fq_embedded *self, const struct fq_topic *topic)
{
    const struct fq_meta_ops *ops = self->meta->ops;
    int code = ops->begin(self->meta);
    if (code != 0) {
        return code;
    }
    for (int table = 0; table < FQ_META_TABLES && code == 0; table++) {
        if (table != FQ_META_SYSTEM) {
            code =
                fq_meta_remove_all(self->meta, (enum fq_meta_table)table, &topic->id, UINT32_MAX);
        }
    }
    if (code != 0) {
        ops->abort(self->meta);
        return code;
    }
    return ops->commit(self->meta);
}

/* ---- changes -------------------------------------------------------------------------------- */

static int embedded_check(struct fq_coord *coord, const struct fq_topic_spec *spec,
                          struct fq_err *err)
{
    const struct fq_embedded *self = fq_embedded_of(coord);
    if (fq_embedded_find(coord, spec->name)) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "topic \"%s\" exists already", spec->name);
    }
    if (spec->replicas != 1) {
        return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED,
                          "%u replicas: this broker runs alone, so 1 is all there can be",
                          spec->replicas);
    }
    if (spec->partitions == 0 || spec->partitions > FQ_LIMIT_PARTITIONS_PER_TOPIC) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "%u partitions are not within 1 to %u",
                          spec->partitions, FQ_LIMIT_PARTITIONS_PER_TOPIC);
    }
    if (self->active_count >= FQ_LIMIT_TOPICS) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT, "the limit of %u topics is reached",
                          FQ_LIMIT_TOPICS);
    }
    if (self->partitions_count + spec->partitions > FQ_LIMIT_PARTITIONS) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "with %u more partitions the limit of %u would be passed",
                          spec->partitions, FQ_LIMIT_PARTITIONS);
    }
    return 0;
}

static int embedded_topic_create(struct fq_coord *coord, const struct fq_topic_spec *spec,
                                 struct fq_topic **ret, struct fq_err *err)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    int code = embedded_check(coord, spec, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic *topic = calloc(1, sizeof *topic);
    if (!topic || fq_embedded_reserve(self) != 0) {
        free(topic);
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    memcpy(topic->name, spec->name, strlen(spec->name) + 1);
    topic->id = fq_uuid_random();
    topic->partitions = spec->partitions;
    topic->replicas = spec->replicas;
    topic->first_shard = self->next_shard;
    topic->created_ms = spec->now_ms;
    topic->settings = spec->settings;
    code = fq_embedded_file_put(self, topic, err);
    if (code == 0) {
        code = fq_embedded_meta_put(self, topic, err);
    }
    if (code != 0) {
        (void)fq_store_delete_topic(self->store, &topic->id, NULL);
        free(topic);
        return code;
    }
    topic->has_folder = true;
    fq_embedded_insert(self, topic);
    *ret = topic;
    return 0;
}

static int embedded_topic_delete(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    (void)err;
    topic->is_deleting = true;
    int code = fq_embedded_meta_put(self, topic, NULL);
    if (code != 0) {
        fq_warn("topic %s: meta.pool cannot record that it is being deleted (%s); its folder will",
                topic->name, fq_err_describe(code));
    }
    fq_embedded_remove(self, topic);
    self->dying[self->dying_count++] = topic; /* fq_embedded_reserve left room */
    return 0;
}

static int embedded_topic_forget(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    int code = fq_store_delete_topic(self->store, &topic->id, err);
    if (code != 0) {
        return code;
    }
    int removed = meta_forget(self, topic);
    if (removed != 0) {
        fq_warn("topic %s: meta.pool cannot forget it now (%s); the next start will", topic->name,
                fq_err_describe(removed));
    }
    size_t at = 0;
    while (at < self->dying_count && self->dying[at] != topic) {
        at++;
    }
    assert(at < self->dying_count);
    self->dying[at] = self->dying[--self->dying_count];
    free(topic);
    return 0;
}

/* Stores a changed copy in both homes, then takes it over. */
static int replace(struct fq_embedded *self, struct fq_topic *topic, const struct fq_topic *changed,
                   struct fq_err *err)
{
    int code = fq_embedded_file_put(self, changed, err);
    if (code != 0) {
        return code;
    }
    code = fq_embedded_meta_put(self, changed, err);
    if (code != 0) {
        (void)fq_embedded_file_put(self, topic, NULL);
        return code;
    }
    self->partitions_count += changed->partitions - topic->partitions;
    *topic = *changed;
    return 0;
}

static int embedded_topic_alter(struct fq_coord *coord, struct fq_topic *topic,
                                const struct fq_topic_settings *settings, struct fq_err *err)
{
    struct fq_topic changed = *topic;
    changed.settings = *settings;
    return replace(fq_embedded_of(coord), topic, &changed, err);
}

static int embedded_partitions_add(struct fq_coord *coord, struct fq_topic *topic, uint32_t total,
                                   struct fq_err *err)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    struct fq_topic changed = *topic;
    if (total <= topic->partitions) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "topic \"%s\" has %u partitions; their number can only grow", topic->name,
                          topic->partitions);
    }
    if (total > FQ_LIMIT_PARTITIONS_PER_TOPIC ||
        self->partitions_count + (total - topic->partitions) > FQ_LIMIT_PARTITIONS) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "%u partitions are above the limit of %u per topic or of %u in all",
                          total, FQ_LIMIT_PARTITIONS_PER_TOPIC, FQ_LIMIT_PARTITIONS);
    }
    changed.partitions = total;
    return replace(self, topic, &changed, err);
}

static void embedded_close(struct fq_coord *coord)
{
    struct fq_embedded *self = fq_embedded_of(coord);
    for (size_t i = 0; i < self->active_count; i++) {
        free(self->active[i]);
    }
    for (size_t i = 0; i < self->dying_count; i++) {
        free(self->dying[i]);
    }
    free(self->active);
    free(self->dying);
    free(self);
}

const struct fq_coord_ops fq_embedded_ops = {
    .close = embedded_close,
    .check = embedded_check,
    .topic_create = embedded_topic_create,
    .topic_delete = embedded_topic_delete,
    .topic_forget = embedded_topic_forget,
    .topic_alter = embedded_topic_alter,
    .partitions_add = embedded_partitions_add,
    .find = fq_embedded_find,
    .next = embedded_next,
    .deleting = embedded_deleting,
    .topics_count = embedded_topics_count,
    .cluster_id = embedded_cluster_id,
};
