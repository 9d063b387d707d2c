/* SPDX-License-Identifier: Apache-2.0 */
/* Builds batches and drives a log by itself, for the tests of storage. */
#ifndef FQ_TESTS_LOG_MAKER_H
#define FQ_TESTS_LOG_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "storage/log.h"
#include "storage/store.h"

#define LOG_MAKER_BATCH_MAX (64u << 10)

/* One stamped batch of `records` records whose values hold `value_bytes` bytes derived from the
 * offset and `salt`. Returns its length. */
size_t log_maker_batch(uint8_t *out, int64_t base_offset, int32_t epoch, int records,
                       size_t value_bytes, uint64_t salt);

/* Reserves (running housekeeper and flusher while starved), writes, commits. Returns the first
 * result that is not OK, or 0. No publish. */
int log_maker_append(struct fq_store *store, struct fq_log *log, const uint8_t *batch,
                     size_t length);
/* The same in pieces through fq_log_stream, where the log allows it now (else as above); or given
 * up after some of the pieces (`is_refused`), where it allows it (else nothing). */
int log_maker_stream(struct fq_store *store, struct fq_log *log, const uint8_t *batch,
                     size_t length, struct fq_prng *prng, bool is_refused);
/* Publishes and runs the flusher until everything is durable. */
/* As a direct producer would have it, over a recorder: stores the batch where the log was lent
 * (`position` of the segment's data) as a client would, unstamped. */
void log_maker_peer_store(struct fq_segment *segment, uint64_t position, const uint8_t *batch,
                          size_t length, bool is_stamped);
/* Takes over the batch that lies at the log's end. */
int log_maker_take_in_place(struct fq_log *log, const uint8_t *batch, size_t length);
/* Lends, as often as it takes the housekeeper to have a segment. */
int log_maker_lend(struct fq_store *store, struct fq_log *log, bool is_next,
                   struct fq_log_loan *ret);

int log_maker_settle(struct fq_store *store, struct fq_log *log);
/* Runs the housekeeper until it is idle. */
void log_maker_keep_house(struct fq_store *store);

/* A fresh folder under $TMPDIR or /dev/shm; removed by log_maker_remove_tree. */
char *log_maker_folder(void);
void log_maker_remove_tree(const char *path);

#endif
