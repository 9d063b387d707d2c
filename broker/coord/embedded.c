/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator of a single broker: the catalogue in memory, in meta.pool and in the file `topic` of each
 * topic's folder.
 *
 * Order of a creation: the file, then meta.pool, then memory. Cut short, the next start finds the file
 * and completes it. Order of a deletion: meta.pool says "deleting", memory; when the partitions are
 * closed, the folder goes by one durable rename, then meta.pool forgets. Cut short after the first, the
 * next start goes on deleting. If meta.pool is full, the rename alone carries the deletion: deleting
 * needs no free byte.
 *
 * Thread: the housekeeper's.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coord/coord.h"
#include "storage/meta.h"
#include "storage/store.h"
#include "wire/protocol_codec.h"

struct embedded {
    struct fq_coord coord;
    struct fq_meta *meta;
    struct fq_store *store;
    uint32_t shards_count;
    uint32_t next_shard;          /* where the next topic's first partition goes */
    struct fq_uuid cluster_id;
    struct fq_topic **active;     /* sorted by name */
    size_t active_count, active_capacity;
    struct fq_topic **dying;
    size_t dying_count, dying_capacity;
    uint64_t partitions_count;    /* of the active ones */
};

static struct embedded *self_of(struct fq_coord *coord)
{
    return (struct embedded *)coord;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* The index of the first active topic whose name is not below `name`. */
static size_t lower_bound(const struct embedded *self, const char *name)
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

static struct fq_topic *embedded_find(struct fq_coord *coord, const char *name)
{
    struct embedded *self = self_of(coord);
    size_t at = lower_bound(self, name);
    return at < self->active_count && strcmp(self->active[at]->name, name) == 0 ? self->active[at]
                                                                               : NULL;
}

static struct fq_topic *embedded_next(struct fq_coord *coord, const char *name)
{
    struct embedded *self = self_of(coord);
    size_t at = lower_bound(self, name);
    if (at < self->active_count && strcmp(self->active[at]->name, name) == 0) {
        at++;
    }
    return at < self->active_count ? self->active[at] : NULL;
}

static struct fq_topic *embedded_deleting(struct fq_coord *coord, size_t index)
{
    struct embedded *self = self_of(coord);
    return index < self->dying_count ? self->dying[index] : NULL;
}

static size_t embedded_topics_count(struct fq_coord *coord)
{
    return self_of(coord)->active_count;
}

static struct fq_uuid embedded_cluster_id(struct fq_coord *coord)
{
    return self_of(coord)->cluster_id;
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
static int reserve_both(struct embedded *self)
{
    int code = reserve(&self->active, self->active_count, &self->active_capacity);
    while (code == 0 && self->dying_capacity < self->dying_count + self->active_count + 1) {
        code = reserve(&self->dying, self->dying_capacity, &self->dying_capacity);
    }
    return code;
}

static void insert_active(struct embedded *self, struct fq_topic *topic)
{
    size_t at = lower_bound(self, topic->name);
    memmove(self->active + at + 1, self->active + at,
            (self->active_count - at) * sizeof(struct fq_topic *));
    self->active[at] = topic;
    self->active_count++;
    self->partitions_count += topic->partitions;
    self->next_shard = (topic->first_shard + topic->partitions) % self->shards_count;
}

static void remove_active(struct embedded *self, const struct fq_topic *topic)
{
    size_t at = lower_bound(self, topic->name);
    assert(at < self->active_count && self->active[at] == topic);
    self->active_count--;
    memmove(self->active + at, self->active + at + 1,
            (self->active_count - at) * sizeof(struct fq_topic *));
    self->partitions_count -= topic->partitions;
}

/* The topic with this name and id, whatever its state. */
static struct fq_topic *find_exact(struct embedded *self, const struct fq_topic *wanted)
{
    struct fq_topic *active = embedded_find(&self->coord, wanted->name);
    if (active && fq_uuid_equal(&active->id, &wanted->id)) {
        return active;
    }
    for (size_t i = 0; i < self->dying_count; i++) {
        if (fq_uuid_equal(&self->dying[i]->id, &wanted->id)) {
            return self->dying[i];
        }
    }
    return NULL;
}

/* ---- the two homes -------------------------------------------------------------------------- */

static const char topic_file[] = "topic";

static int file_put(struct embedded *self, const struct fq_topic *topic, struct fq_err *err)
{
    char text[FQ_TOPIC_TEXT_BYTES_MAX];
    size_t length = fq_topic_encode(topic, text);
    return fq_store_write_file(self->store, topic->name, &topic->id, topic_file, text, length, err);
}

static struct fq_meta_key key_of(const struct fq_topic *topic)
{
    return (struct fq_meta_key){.topic_id = topic->id};
}

static int meta_put(struct embedded *self, const struct fq_topic *topic, struct fq_err *err)
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
static int meta_forget(struct embedded *self, const struct fq_topic *topic)
{
    const struct fq_meta_ops *ops = self->meta->ops;
    int code = ops->begin(self->meta);
    if (code != 0) {
        return code;
    }
    for (int table = 0; table < FQ_META_TABLES && code == 0; table++) {
        if (table != FQ_META_SYSTEM) {
            code = fq_meta_remove_all(self->meta, (enum fq_meta_table)table, &topic->id, UINT32_MAX);
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
    const struct embedded *self = self_of(coord);
    if (embedded_find(coord, spec->name)) {
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
    struct embedded *self = self_of(coord);
    int code = embedded_check(coord, spec, err);
    if (code != 0) {
        return code;
    }
    struct fq_topic *topic = calloc(1, sizeof *topic);
    if (!topic || reserve_both(self) != 0) {
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
    code = file_put(self, topic, err);
    if (code == 0) {
        code = meta_put(self, topic, err);
    }
    if (code != 0) {
        (void)fq_store_delete_topic(self->store, &topic->id, NULL);
        free(topic);
        return code;
    }
    topic->has_folder = true;
    insert_active(self, topic);
    *ret = topic;
    return 0;
}

static int embedded_topic_delete(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err)
{
    struct embedded *self = self_of(coord);
    (void)err;
    topic->is_deleting = true;
    int code = meta_put(self, topic, NULL);
    if (code != 0) {
        fq_warn("topic %s: meta.pool cannot record that it is being deleted (%s); its folder will",
                topic->name, fq_err_describe(code));
    }
    remove_active(self, topic);
    self->dying[self->dying_count++] = topic; /* reserve_both left room */
    return 0;
}

static int embedded_topic_forget(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err)
{
    struct embedded *self = self_of(coord);
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
static int replace(struct embedded *self, struct fq_topic *topic, const struct fq_topic *changed,
                   struct fq_err *err)
{
    int code = file_put(self, changed, err);
    if (code != 0) {
        return code;
    }
    code = meta_put(self, changed, err);
    if (code != 0) {
        (void)file_put(self, topic, NULL);
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
    return replace(self_of(coord), topic, &changed, err);
}

static int embedded_partitions_add(struct fq_coord *coord, struct fq_topic *topic, uint32_t total,
                                   struct fq_err *err)
{
    struct embedded *self = self_of(coord);
    struct fq_topic changed = *topic;
    if (total <= topic->partitions) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "topic \"%s\" has %u partitions; their number can only grow", topic->name,
                          topic->partitions);
    }
    if (total > FQ_LIMIT_PARTITIONS_PER_TOPIC ||
        self->partitions_count + (total - topic->partitions) > FQ_LIMIT_PARTITIONS) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "%u partitions are above the limit of %u per topic or of %u in all", total,
                          FQ_LIMIT_PARTITIONS_PER_TOPIC, FQ_LIMIT_PARTITIONS);
    }
    changed.partitions = total;
    return replace(self, topic, &changed, err);
}

/* ---- opening -------------------------------------------------------------------------------- */

struct opening {
    struct embedded *self;
    int code;
};

/* Adds a copy to the list its state says; the name's second holder gives way to deletion. */
static int admit(struct embedded *self, const struct fq_topic *topic)
{
    struct fq_topic *copy = malloc(sizeof *copy);
    if (!copy || reserve_both(self) != 0) {
        free(copy);
        return FLASHQ_ERR_NO_MEMORY;
    }
    *copy = *topic;
    if (topic->is_deleting) {
        self->dying[self->dying_count++] = copy;
    } else {
        insert_active(self, copy);
    }
    return 0;
}

static int admit_from_meta(void *context, const struct fq_meta_key *key, const void *value,
                           size_t length)
{
    struct opening *opening = context;
    struct fq_topic topic;
    struct fq_err err;
    char id[FQ_UUID_TEXT_BYTES];
    if (fq_topic_decode(value, length, &topic, &err) != 0 ||
        !fq_uuid_equal(&topic.id, &key->topic_id)) {
        fq_warn("meta.pool: the catalogue's entry for topic id %s is damaged; its file will tell",
                fq_uuid_to_text(&key->topic_id, id));
        return 0;
    }
    if (!topic.is_deleting && embedded_find(&opening->self->coord, topic.name)) {
        fq_warn("meta.pool: two topics are named \"%s\"; the one with id %s is left alone", topic.name,
                fq_uuid_to_text(&topic.id, id));
        return 0;
    }
    opening->code = admit(opening->self, &topic);
    return opening->code;
}

/* What the folder says about a topic: its description, or as much as its name tells. */
static bool read_description(struct embedded *self, const char *name, const struct fq_uuid *id,
                             struct fq_topic *ret)
{
    void *bytes;
    size_t length;
    bool is_good = false;
    if (fq_store_read_file(self->store, id, topic_file, &bytes, &length, NULL) == 0) {
        is_good = fq_topic_decode(bytes, length, ret, NULL) == 0 && fq_uuid_equal(&ret->id, id);
        free(bytes);
    }
    if (!is_good) {
        *ret = (struct fq_topic){.id = *id, .partitions = 1, .replicas = 1};
        (void)snprintf(ret->name, sizeof ret->name, "%s", name);
        fq_conf_defaults(&fq_topic_config_table, &ret->settings.values);
    }
    return is_good;
}

/* meta.pool knew the topic: its file may be lost, or its folder hold more partitions. */
static void reconcile(struct embedded *self, struct fq_topic *known, bool is_good,
                      uint32_t partitions_on_disk)
{
    known->partitions_on_disk = partitions_on_disk;
    known->has_folder = true;
    if (known->is_deleting) {
        return;
    }
    if (partitions_on_disk > known->partitions) { /* never data without its partition */
        fq_warn("topic %s: %u partitions are on disk, the catalogue had %u", known->name,
                partitions_on_disk, known->partitions);
        self->partitions_count += partitions_on_disk - known->partitions;
        known->partitions = partitions_on_disk;
        is_good = false;
    }
    if (!is_good) {
        fq_warn("topic %s: its description file was missing, damaged or outdated; written again",
                known->name);
        (void)file_put(self, known, NULL);
    }
}

static int admit_from_disk(void *context, const char *name, const struct fq_uuid *id,
                           uint32_t partitions_on_disk)
{
    struct opening *opening = context;
    struct embedded *self = opening->self;
    struct fq_topic topic;
    char id_text[FQ_UUID_TEXT_BYTES];
    bool is_good = read_description(self, name, id, &topic);
    struct fq_topic *known = find_exact(self, &topic);
    if (known) {
        reconcile(self, known, is_good, partitions_on_disk);
        return 0;
    }
    if (fq_topic_name_check(topic.name, strlen(topic.name), NULL) != 0 ||
        embedded_find(&self->coord, topic.name)) {
        fq_warn("the folder of topic id %s has no description that is readable and its name \"%s\" is "
                "taken; it is left alone",
                fq_uuid_to_text(id, id_text), topic.name);
        return 0;
    }
    if (partitions_on_disk > topic.partitions) {
        topic.partitions = partitions_on_disk;
    }
    fq_warn("topic %s was not in the catalogue; restored from its folder%s (%u partitions)",
            topic.name, is_good ? "'s description" : "'s name", topic.partitions);
    opening->code = admit(self, &topic);
    if (opening->code == 0) {
        known = find_exact(self, &topic);
        reconcile(self, known, is_good, partitions_on_disk);
        if (meta_put(self, known, NULL) != 0) {
            fq_warn("topic %s: meta.pool cannot take it; its file keeps it", topic.name);
        }
    }
    return opening->code;
}

static int write_missing_files(struct embedded *self, struct fq_err *err)
{
    for (size_t i = 0; i < self->active_count; i++) {
        struct fq_topic *topic = self->active[i];
        if (!topic->has_folder) {
            fq_warn("topic %s: its folder is missing; made again, empty", topic->name);
            int code = file_put(self, topic, err);
            if (code != 0) {
                return code;
            }
        }
        topic->has_folder = true;
    }
    return 0;
}

/* The cluster's id is made once and kept in meta.pool. */
static int load_cluster_id(struct embedded *self, struct fq_err *err)
{
    const struct fq_meta_ops *ops = self->meta->ops;
    struct fq_meta_key key = {.node = 0};
    const void *value;
    size_t length;
    if (ops->get(self->meta, FQ_META_SYSTEM, &key, &value, &length) == 0 &&
        length == sizeof self->cluster_id) {
        memcpy(&self->cluster_id, value, length);
        return 0;
    }
    self->cluster_id = fq_uuid_random();
    int code = ops->begin(self->meta);
    if (code == 0) {
        code = ops->put(self->meta, FQ_META_SYSTEM, &key, &self->cluster_id, sizeof self->cluster_id,
                        err);
        if (code != 0) {
            ops->abort(self->meta);
        } else {
            code = ops->commit(self->meta);
        }
    }
    return code;
}

static void embedded_close(struct fq_coord *coord)
{
    struct embedded *self = self_of(coord);
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

static const struct fq_coord_ops embedded_ops = {
    .close = embedded_close,
    .check = embedded_check,
    .topic_create = embedded_topic_create,
    .topic_delete = embedded_topic_delete,
    .topic_forget = embedded_topic_forget,
    .topic_alter = embedded_topic_alter,
    .partitions_add = embedded_partitions_add,
    .find = embedded_find,
    .next = embedded_next,
    .deleting = embedded_deleting,
    .topics_count = embedded_topics_count,
    .cluster_id = embedded_cluster_id,
};

int fq_coord_open_embedded(const struct fq_embedded_params *params, struct fq_coord **ret,
                           struct fq_err *err)
{
    struct embedded *self = calloc(1, sizeof *self);
    if (!self) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    self->coord.ops = &embedded_ops;
    self->meta = params->meta;
    self->shards_count = params->shards_count;
    self->store = params->store;
    struct opening opening = {.self = self};
    int code = load_cluster_id(self, err);
    if (code == 0) {
        (void)self->meta->ops->visit(self->meta, FQ_META_CATALOGUE, NULL, admit_from_meta, &opening);
        code = opening.code;
    }
    if (code == 0) {
        code = fq_store_visit_topics(self->store, admit_from_disk, &opening, err);
    }
    if (code == 0) {
        code = write_missing_files(self, err);
    }
    if (code != 0) {
        embedded_close(&self->coord);
        return code;
    }
    *ret = &self->coord;
    return 0;
}
