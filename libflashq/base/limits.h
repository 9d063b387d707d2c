/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every limit of FlashQ. An error caused by one of these names the limit and its value.
 * Configurable limits have their default, lower and upper bound here; conf tables refer to them.
 */
#ifndef FQ_BASE_LIMITS_H
#define FQ_BASE_LIMITS_H

#include <stdint.h>

/* Names */
#define FQ_LIMIT_TOPIC_NAME_BYTES 249
#define FQ_LIMIT_CLIENT_ID_BYTES 128
#define FQ_LIMIT_HOST_BYTES 255
#define FQ_LIMIT_PATH_BYTES 4096
#define FQ_LIMIT_STORAGE_TEXT_BYTES 511 /* medium, flush and guarantee, in words */

/* Wire */
#define FQ_LIMIT_HELLO_BYTES 56            /* what librdmacm carries in a connect request */
#define FQ_LIMIT_PRE_HANDSHAKE_BYTES 4096  /* a frame before the handshake is done */
#define FQ_LIMIT_CONTROL_BYTES (64u << 10) /* one control message; long answers are paged */
#define FQ_LIMIT_CONTROL_QUEUED_BYTES (4u << 20) /* output queued for one connection */
#define FQ_LIMIT_FABRIC_FRAME_BYTES (8u << 20)   /* one tcp write or read */
#define FQ_LIMIT_WINDOWS_PER_CONNECTION 65536
#define FQ_LIMIT_NOTIFY_RING_ENTRIES 1024

/* Records and batches */
#define FQ_LIMIT_BATCH_HEADER_BYTES 61
#define FQ_LIMIT_MESSAGE_MAX_BYTES_DEFAULT (1u << 20)
#define FQ_LIMIT_MESSAGE_MAX_BYTES_MIN 1024u
#define FQ_LIMIT_MESSAGE_MAX_BYTES_MAX (64u << 20)
#define FQ_LIMIT_RECORD_OVERHEAD_BYTES 64u /* varints, attributes and lengths of one record */
#define FQ_LIMIT_BATCH_MAX_BYTES_DEFAULT (1u << 20)
#define FQ_LIMIT_BATCH_OVERHEAD_BYTES 4096u /* a batch may exceed message.max.bytes by this */
#define FQ_LIMIT_BATCH_RECORDS 1000000
/* Nothing that calls itself a batch and is longer is one. */
#define FQ_LIMIT_BATCH_BYTES (FQ_LIMIT_MESSAGE_MAX_BYTES_MAX + FQ_LIMIT_BATCH_OVERHEAD_BYTES)
#define FQ_LIMIT_RECORD_HEADERS 65536
#define FQ_LIMIT_DECOMPRESSED_BYTES (256u << 20) /* one batch, once decompressed */

/* Producers */
#define FQ_LIMIT_MAX_IN_FLIGHT_DEFAULT 32
#define FQ_LIMIT_MAX_IN_FLIGHT 64
#define FQ_LIMIT_PRODUCERS_PER_PARTITION 10000
#define FQ_LIMIT_PRODUCER_WINDOW_BYTES_DEFAULT (4u << 20)
#define FQ_LIMIT_PRODUCER_WINDOW_BYTES_MIN (64u << 10)
#define FQ_LIMIT_PRODUCER_WINDOW_BYTES_MAX (1u << 30)
#define FQ_LIMIT_ACK_RING_ENTRIES 256 /* also the notify credits of one connection */

/* A direct partition's holder that neither notifies nor answers for this long, while somebody else wants the
 * partition, is fenced. */
#define FQ_LIMIT_DIRECT_SILENT_MS 2000

/* Push */
#define FQ_LIMIT_PUSH_LINES 1024 /* pushes of one connection */
#define FQ_LIMIT_PUSH_RING_BYTES_DEFAULT (4u << 20)
#define FQ_LIMIT_PUSH_RING_BYTES_MIN (64u << 10)
#define FQ_LIMIT_PUSH_RING_BYTES_MAX (256u << 20)

/* Broker */
#define FQ_LIMIT_SHARDS 64
#define FQ_LIMIT_CONNECTIONS 65536
#define FQ_LIMIT_TOPICS 100000
#define FQ_LIMIT_PARTITIONS_PER_TOPIC 10000
#define FQ_LIMIT_PARTITIONS 100000
#define FQ_LIMIT_SLOTS_PER_CONNECTION 65536
#define FQ_LIMIT_READERS_PER_CONNECTION 65536

/* Storage */
#define FQ_LIMIT_SEGMENT_HEADER_BYTES 4096u
#define FQ_LIMIT_SEGMENT_BYTES_MIN (1u << 20)
#define FQ_LIMIT_SEGMENT_BYTES_DEFAULT (64u << 20)
#define FQ_LIMIT_SEGMENT_BYTES_MAX (1ull << 39) /* positions are 40 bits */
#define FQ_LIMIT_CHUNK_BYTES (64u << 10)

/* meta.pool: catalogue, epochs, producer snapshots, calendar. Fully allocated when it is made. A calendar
 * minute takes about 600 bytes of it, so that a partition's calendar is at most about 5 MiB. */
#define FQ_LIMIT_META_POOL_BYTES_DEFAULT (32u << 20)
#define FQ_LIMIT_META_POOL_BYTES_MIN (8u << 20) /* libpmemobj's least; some 4 MiB are of use */
#define FQ_LIMIT_CALENDAR_MINUTES 8192 /* per partition; the oldest give way */

/* Time */
#define FQ_LIMIT_TIMESTAMP_MAX_AHEAD_MS_DEFAULT INT64_C(3600000)

/* Waiting */
#define FQ_LIMIT_SPIN_US_DEFAULT 50
#define FQ_LIMIT_SPIN_US_MAX 1000000

#endif
