/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the embedded coordinator: embedded.c changes the catalogue, embedded_open.c reads
 * it. */
#ifndef FQ_COORD_EMBEDDED_H
#define FQ_COORD_EMBEDDED_H

#include "coord/coord.h"

#define FQ_EMBEDDED_TOPIC_FILE "topic"

struct fq_embedded {
    struct fq_coord coord;
    struct fq_meta *meta;
    struct fq_store *store;
    uint32_t shards_count;
    uint32_t next_shard; /* where the next topic's first partition goes */
    struct fq_uuid cluster_id;
    struct fq_topic **active; /* sorted by name */
    size_t active_count, active_capacity;
    struct fq_topic **dying;
    size_t dying_count, dying_capacity;
    uint64_t partitions_count; /* of the active ones */
};

static inline struct fq_embedded *fq_embedded_of(struct fq_coord *coord)
{
    return (struct fq_embedded *)coord;
}

extern const struct fq_coord_ops fq_embedded_ops;

struct fq_topic *fq_embedded_find(struct fq_coord *coord, const char *name);
/* Room for one more topic in both lists, so that a topic can always become DELETING. */
int fq_embedded_reserve(struct fq_embedded *self);
void fq_embedded_insert(struct fq_embedded *self, struct fq_topic *topic);
void fq_embedded_remove(struct fq_embedded *self, const struct fq_topic *topic);
int fq_embedded_meta_put(struct fq_embedded *self, const struct fq_topic *topic,
                         struct fq_err *err);
int fq_embedded_file_put(struct fq_embedded *self, const struct fq_topic *topic,
                         struct fq_err *err);

#endif
