/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's keys. One table (config.c) turns text into this struct, prints flashq_config_describe and
 * is checked against flashq-client(5).
 */
#ifndef FQ_CLIENT_CONFIG_H
#define FQ_CLIENT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "conf/conf.h"

#define FQ_CLIENT_BROKERS_BYTES 2047

enum fq_transport_choice { FQ_CHOICE_AUTO, FQ_CHOICE_SHM, FQ_CHOICE_TCP };
enum fq_reports_kind { FQ_REPORTS_NONE, FQ_REPORTS_ERRORS, FQ_REPORTS_ALL };
enum fq_fetch_mode { FQ_FETCH_PULL, FQ_FETCH_PUSH };
enum fq_batching_mode { FQ_BATCHING_ADAPTIVE, FQ_BATCHING_FIXED };
enum fq_reset { FQ_RESET_NONE, FQ_RESET_START, FQ_RESET_END };

struct fq_client_config {
    /* client */
    char brokers[FQ_CLIENT_BROKERS_BYTES + 1];
    char client_id[FQ_LIMIT_CLIENT_ID_BYTES + 1];
    int64_t transport;             /* enum fq_transport_choice */
    int64_t timeout_ms;
    int64_t connect_timeout_ms;
    int64_t reconnect_backoff_ms;
    int64_t reconnect_backoff_max_ms;
    int64_t io_threads;
    int64_t spin_us;
    int64_t log_level;             /* enum flashq_log_level; 0: off */
    /* producers */
    int64_t queue_bytes;
    int64_t batch_max_bytes;
    int64_t batching;              /* enum fq_batching_mode */
    int64_t linger_us;
    int64_t max_in_flight;
    int64_t message_max_bytes;
    int64_t delivery_timeout_ms;
    int64_t acks;                  /* enum fq_acks */
    int64_t codec;                 /* enum fq_codec */
    int64_t compression_level;
    int64_t reports;               /* enum fq_reports_kind */
    int64_t reports_max;
    bool enable_idempotence;
    /* consumers */
    int64_t fetch_max_bytes;
    int64_t fetch_buffer_bytes;
    int64_t fetch_mode;            /* enum fq_fetch_mode */
    int64_t push_buffer_bytes;
    bool fetch_prefetch;
    int64_t reset;                 /* enum fq_reset */
    bool verify_crc;
};

const struct fq_conf_table *fq_client_keys(void);

#endif
