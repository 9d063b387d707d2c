/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashqd's keys: one table drives the configuration file, --set, --help and the check of the
 * commented reference config/flashqd.yaml.
 */
#ifndef FQ_BROKER_OPTIONS_H
#define FQ_BROKER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "conf/conf.h"
#include "coord/topic.h"
#include "fabric/endpoint.h"

struct fq_options {
    char data_dir[FQ_LIMIT_PATH_BYTES];
    int64_t broker_id;
    char listen_tcp[FQ_LIMIT_HOST_BYTES + 16];
    bool listen_insecure;
    char listen_shm[108];
    char advertised_host[FQ_LIMIT_HOST_BYTES + 1];
    int64_t connections_max;
    int64_t shards; /* 0: one per core */
    int64_t spin_us;
    int64_t flush; /* enum fq_flush */
    int64_t log_segment_bytes;
    int64_t log_prepared_bytes;
    int64_t meta_pool_bytes;
    int64_t retention_bytes;
    int64_t message_max_bytes;
    int64_t producer_window_bytes;
    int64_t producer_expiration_ms;
    int64_t max_in_flight;
    int64_t timestamp_max_ahead_ms;
    int64_t partitions_default;
    bool topic_auto_create;
    int64_t log_level; /* enum fq_log_level */
};

extern const struct fq_conf_table fq_options_table;

/* What one key alone cannot tell: exposure of the listener, sizes that must fit each other. Fills
 * in what is "auto" (shards, listen.shm). CONFIG with a text that names the keys. */
int fq_options_check(struct fq_options *options, struct fq_err *err);

/* The defaults of topics that follow from the broker's keys. */
void fq_options_topic_config(const struct fq_options *options, struct fq_topic_config *ret);

/* The largest batch the broker takes. */
uint32_t fq_options_batch_max_bytes(const struct fq_options *options);

/* 1: *ret is where to listen; 0: that listener is off; negative: the address cannot be parsed. */
int fq_options_tcp_endpoint(const struct fq_options *options, struct fq_endpoint *ret,
                            struct fq_err *err);
int fq_options_shm_endpoint(const struct fq_options *options, struct fq_endpoint *ret,
                            struct fq_err *err);

#endif
