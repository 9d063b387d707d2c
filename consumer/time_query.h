/* SPDX-License-Identifier: Apache-2.0 */
/* "The first record at or after a time": asks the broker, and decides itself inside compressed batches. */
#ifndef FQ_CONSUMER_TIME_QUERY_H
#define FQ_CONSUMER_TIME_QUERY_H

#include "client/engine.h"
#include "flashq/flashq.h"

/* Blocks. ret->struct_bytes is the caller's business. */
int fq_time_query(struct fq_engine *engine, const char *topic, int32_t partition,
                  int64_t timestamp_ms, int64_t deadline_us, flashq_time_answer *ret,
                  struct fq_err *err);

#endif
