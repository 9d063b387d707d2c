/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What topics there are and where their partitions live. Asked for when a handle needs it and again when a
 * broker says it is not the leader; kept by whoever asked.
 */
#ifndef FQ_CLIENT_METADATA_H
#define FQ_CLIENT_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "client/engine.h"
#include "wire/protocol_codec.h"

struct fq_meta_partition {
    int32_t status;
    uint32_t leader, shard;
    int32_t leader_epoch;
    int64_t log_start, end;
    uint64_t bytes;
    char medium[64];
};
struct fq_meta_topic {
    int32_t status;                /* NOT_FOUND, ... */
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
    struct fq_uuid id;
    uint8_t append_mode;           /* enum fq_append_mode */
    uint32_t partitions_count;
    struct fq_meta_partition *partitions;
};
struct fq_meta_broker {
    uint32_t id, shards_count;
    char host[FQ_LIMIT_HOST_BYTES + 1]; /* empty: the address the client used */
    uint16_t port;
};
struct fq_meta {
    struct fq_meta_topic *topics;
    size_t topics_count;
    struct fq_meta_broker *brokers;
    size_t brokers_count;
};
void fq_meta_free(struct fq_meta *meta); /* NULL is fine */

/* `meta` is the receiver's to free; NULL when code is not 0. */
typedef void (*fq_metadata_done)(void *context, int code, struct fq_meta *meta, const char *text);

/* Asks about one topic (NULL: all) over the control link, which must be up. `done` comes once, unless
 * cancelled. */
int fq_metadata_fetch(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                      fq_metadata_done done, void *context);
void fq_metadata_cancel(struct fq_engine *engine, void *context);
void fq_metadata_cancel_all(struct fq_engine *engine);

/* The same, waiting for a broker and for the answer. For one topic its own status counts as an error. */
int fq_metadata_get(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                    struct fq_meta **ret, struct fq_err *err);

/* The link that serves a partition according to `meta`. */
int fq_metadata_link(struct fq_engine *engine, const struct fq_meta *meta,
                     const struct fq_meta_partition *partition, struct fq_link **ret);
/* The same for direct appends, which shared memory cannot carry: where that was chosen by itself, a tcp
 * connection beside it. Where the user asked for it there is no other: the broker will say why it refuses. */
int fq_metadata_direct_link(struct fq_engine *engine, const struct fq_meta *meta,
                     const struct fq_meta_partition *partition, struct fq_link **ret);

#endif
