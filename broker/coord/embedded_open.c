/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start of the embedded coordinator: the catalogue from meta.pool, then from the topics' folders;
 * what one home has lost is restored from the other. Nothing is deleted, whatever is found; what
 * fits nowhere is reported and left alone.
 *
 * Thread: the housekeeper's, before there are others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coord/embedded.h"
#include "storage/meta.h"
#include "storage/store.h"
#include "wire/protocol_codec.h"

/* The topic with this name and id, whatever its state. */
static struct fq_topic *find_exact(struct fq_embedded *self, const struct fq_topic *wanted)
{
    struct fq_topic *active = fq_embedded_find(&self->coord, wanted->name);
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

struct opening {
    struct fq_embedded *self;
    int code;
};

/* Adds a copy to the list its state says; the name's second holder gives way to deletion. */
static int admit(struct fq_embedded *self, const struct fq_topic *topic)
{
    struct fq_topic *copy = malloc(sizeof *copy);
    if (!copy || fq_embedded_reserve(self) != 0) {
        free(copy);
        return FLASHQ_ERR_NO_MEMORY;
    }
    *copy = *topic;
    if (topic->is_deleting) {
        self->dying[self->dying_count++] = copy;
    } else {
        fq_embedded_insert(self, copy);
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
    if (!topic.is_deleting && fq_embedded_find(&opening->self->coord, topic.name)) {
        fq_warn("meta.pool: two topics are named \"%s\"; the one with id %s is left alone",
                topic.name, fq_uuid_to_text(&topic.id, id));
        return 0;
    }
    opening->code = admit(opening->self, &topic);
    return opening->code;
}

/* What the folder says about a topic: its description, or as much as its name tells. */
static bool read_description(struct fq_embedded *self, const char *name, const struct fq_uuid *id,
                             struct fq_topic *ret)
{
    void *bytes;
    size_t length;
    bool is_good = false;
    if (fq_store_read_file(self->store, id, FQ_EMBEDDED_TOPIC_FILE, &bytes, &length, NULL) == 0) {
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
static void reconcile(struct fq_embedded *self, struct fq_topic *known, bool is_good,
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
        (void)fq_embedded_file_put(self, known, NULL);
    }
}

static int admit_from_disk(void *context, const char *name, const struct fq_uuid *id,
                           uint32_t partitions_on_disk)
{
    struct opening *opening = context;
    struct fq_embedded *self = opening->self;
    struct fq_topic topic;
    char id_text[FQ_UUID_TEXT_BYTES];
    bool is_good = read_description(self, name, id, &topic);
    struct fq_topic *known = find_exact(self, &topic);
    if (known) {
        reconcile(self, known, is_good, partitions_on_disk);
        return 0;
    }
    if (fq_topic_name_check(topic.name, strlen(topic.name), NULL) != 0 ||
        fq_embedded_find(&self->coord, topic.name)) {
        fq_warn(
            "the folder of topic id %s has no description that is readable and its name \"%s\" is "
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
        if (fq_embedded_meta_put(self, known, NULL) != 0) {
            fq_warn("topic %s: meta.pool cannot take it; its file keeps it", topic.name);
        }
    }
    return opening->code;
}

static int write_missing_files(struct fq_embedded *self, struct fq_err *err)
{
    for (size_t i = 0; i < self->active_count; i++) {
        struct fq_topic *topic = self->active[i];
        if (!topic->has_folder) {
            fq_warn("topic %s: its folder is missing; made again, empty", topic->name);
            int code = fq_embedded_file_put(self, topic, err);
            if (code != 0) {
                return code;
            }
        }
        topic->has_folder = true;
    }
    return 0;
}

/* The cluster's id is made once and kept in meta.pool. */
static int load_cluster_id(struct fq_embedded *self, struct fq_err *err)
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
        code = ops->put(self->meta, FQ_META_SYSTEM, &key, &self->cluster_id,
                        sizeof self->cluster_id, err);
        if (code != 0) {
            ops->abort(self->meta);
        } else {
            code = ops->commit(self->meta);
        }
    }
    return code;
}

int fq_coord_open_embedded(const struct fq_embedded_params *params, struct fq_coord **ret,
                           struct fq_err *err)
{
    struct fq_embedded *self = calloc(1, sizeof *self);
    if (!self) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    self->coord.ops = &fq_embedded_ops;
    self->meta = params->meta;
    self->shards_count = params->shards_count;
    self->store = params->store;
    struct opening opening = {.self = self};
    int code = load_cluster_id(self, err);
    if (code == 0) {
        (void)self->meta->ops->visit(self->meta, FQ_META_CATALOGUE, NULL, admit_from_meta,
                                     &opening);
        code = opening.code;
    }
    if (code == 0) {
        code = fq_store_visit_topics(self->store, admit_from_disk, &opening, err);
    }
    if (code == 0) {
        code = write_missing_files(self, err);
    }
    if (code != 0) {
        self->coord.ops->close(&self->coord);
        return code;
    }
    *ret = &self->coord;
    return 0;
}
