/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator: who knows which topics exist. An ops table, so that a cluster's coordinator can
 * take the place of the embedded one of a single broker.
 *
 * The catalogue is read from memory; a change is durable when the call returns 0. Topics stay at
 * their address until topic_forget.
 *
 * Life of a topic
 *   (none) --topic_create--> ACTIVE --topic_delete--> DELETING --topic_forget--> (none)
 *   ACTIVE    found by name and by id; its partitions are served
 *   DELETING  only in the list of those; a new topic may take the name at once; the shards close
 * its partitions, then topic_forget removes its files. A restart goes on with that
 *
 * Thread: the housekeeper's. Calls may block on the disk.
 */
#ifndef FQ_COORD_COORD_H
#define FQ_COORD_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coord/topic.h"

struct fq_coord;

struct fq_topic_spec {
    const char *name; /* a legal one */
    uint32_t partitions, replicas;
    struct fq_topic_settings settings;
    int64_t now_ms;
};

struct fq_coord_ops {
    void (*close)(struct fq_coord *coord);

    /* Whether topic_create would try: EXISTS, LIMIT (topics, partitions), UNSUPPORTED (more
     * replicas than brokers). */
    int (*check)(struct fq_coord *coord, const struct fq_topic_spec *spec, struct fq_err *err);
    /* What check says, NO_SPACE, IO. */
    int (*topic_create)(struct fq_coord *coord, const struct fq_topic_spec *spec,
                        struct fq_topic **ret, struct fq_err *err);
    int (*topic_delete)(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err);
    /* Its partitions are closed: removes its files and its metadata, frees `topic`. */
    int (*topic_forget)(struct fq_coord *coord, struct fq_topic *topic, struct fq_err *err);
    int (*topic_alter)(struct fq_coord *coord, struct fq_topic *topic,
                       const struct fq_topic_settings *settings, struct fq_err *err);
    /* `total` is above the present number. */
    int (*partitions_add)(struct fq_coord *coord, struct fq_topic *topic, uint32_t total,
                          struct fq_err *err);

    /* ACTIVE topics. next: the first whose name comes after `name` in byte order ("": the first).
     */
    struct fq_topic *(*find)(struct fq_coord *coord, const char *name);
    struct fq_topic *(*next)(struct fq_coord *coord, const char *name);
    /* DELETING topics, index 0..; NULL past the last. */
    struct fq_topic *(*deleting)(struct fq_coord *coord, size_t index);
    size_t (*topics_count)(struct fq_coord *coord);
    struct fq_uuid (*cluster_id)(struct fq_coord *coord);
};

struct fq_coord {
    const struct fq_coord_ops *ops;
};

/* ---- the coordinator of a single broker ------------------------------------------------------ */

struct fq_meta;
struct fq_store;

struct fq_embedded_params {
    struct fq_meta *meta;   /* borrowed */
    struct fq_store *store; /* borrowed; holds the topics' folders */
    uint32_t shards_count;
};

/* Reads the catalogue: meta.pool first, then the `topic` files, then the folders' names. What one
 * home has lost is restored from the next, with a warning; nothing is ever deleted for being
 * unknown. */
int fq_coord_open_embedded(const struct fq_embedded_params *params, struct fq_coord **ret,
                           struct fq_err *err);

#endif
