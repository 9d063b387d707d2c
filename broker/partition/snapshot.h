/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's snapshot: what it knows beside the log and would otherwise have to read the whole
 * log for. Kept in meta.pool; derived; thrown away when it does not fit.
 *
 * Little-endian:
 *   u32 magic "FQSN", u16 version 1, u16 zero, i64 offset, u32 epochs, u32 producers
 *   per epoch     i32 epoch, i64 start_offset
 *   per producer  i64 id, i64 last_offset, i64 used_ms, i32 next_sequence, i16 epoch, u16 batches,
 *                 then per batch, oldest first, i64 base_offset, i32 base_sequence, i32 records
 *   u32 CRC-32C of everything before it
 * Producers come in the order in which they expire.
 */
#ifndef FQ_PARTITION_SNAPSHOT_H
#define FQ_PARTITION_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "partition/epochs.h"
#include "partition/producers.h"

size_t fq_snapshot_bytes(const struct fq_producers *producers, const struct fq_epochs *epochs);
/* The length written; TOO_LARGE when it does not fit. */
int64_t fq_snapshot_encode(int64_t offset, const struct fq_producers *producers,
                           const struct fq_epochs *epochs, void *out, size_t out_bytes);

/* Fills empty producers and epochs. CORRUPT, VERSION, NO_MEMORY: both are left empty. A use that
 * lies after now_ms (a clock that was set back) counts as now. `batches` as in fq_producers_ensure.
 */
int fq_snapshot_decode(const void *bytes, size_t length, unsigned batches, int64_t now_ms,
                       int64_t *ret_offset, struct fq_producers *producers,
                       struct fq_epochs *epochs, struct fq_err *err);

#endif
