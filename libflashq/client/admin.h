/* SPDX-License-Identifier: Apache-2.0 */
/* Questions and orders to the broker: one blocking function each, on the control link. */
#ifndef FQ_CLIENT_ADMIN_H
#define FQ_CLIENT_ADMIN_H

#include "client/engine.h"
#include "flashq/flashq.h"
#include "wire/protocol_codec.h"

int fq_admin_topic_create(struct fq_engine *engine, const char *topic, int32_t partitions,
                          int32_t replicas, const flashq_pair *configs, size_t configs_count,
                          int64_t deadline_us, struct fq_err *err);
int fq_admin_topic_delete(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                          struct fq_err *err);
int fq_admin_topic_alter(struct fq_engine *engine, const char *topic, const flashq_pair *configs,
                         size_t configs_count, int64_t deadline_us, struct fq_err *err);
int fq_admin_add_partitions(struct fq_engine *engine, const char *topic, int32_t total,
                            int64_t deadline_us, struct fq_err *err);
int fq_admin_trim(struct fq_engine *engine, const char *topic, int32_t partition,
                  int64_t before_offset, int64_t deadline_us, int64_t *ret_start,
                  struct fq_err *err);

/* Arrays are malloc'd and the caller's. */
int fq_admin_topic_config(struct fq_engine *engine, const char *topic, int64_t deadline_us,
                          flashq_config_entry **ret_entries, size_t *ret_count, uint32_t *ret_replicas,
                          struct fq_err *err);
int fq_admin_counters(struct fq_engine *engine, int64_t deadline_us, flashq_counter **ret_counters,
                      size_t *ret_count, struct fq_err *err);

#endif
