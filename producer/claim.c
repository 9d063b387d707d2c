/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims; see claim.h.
 *
 * Happy path: claim writes everything of the record but its value behind the records of the batch being
 * filled, the application writes the value, commit closes the gap that a shorter value leaves and counts the
 * record. Until then the batch stays `filling`: it is neither sent nor given up (fq_batch.is_claimed).
 * What can fail in between: the connection ends: a batch in the ring moves to memory of this process, and the
 * old mapping stays until the end of the claim, when the record's bytes follow. The topic goes, or its
 * numbers are somebody else's: the records before it are reported, and commit says why.
 * Thread: any, under the client's lock; the application writes without it.
 */
#include "producer/claim.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "producer/send.h"

int fq_claim_busy(struct fq_producer *producer)
{
    fq_producer_note_error(producer, FLASHQ_ERR_BUSY,
                           "a claimed record is open: flashq_commit or flashq_abort first");
    return FLASHQ_ERR_BUSY;
}

int fq_claim_begin(struct fq_producer *producer, const flashq_record *record, size_t bytes,
                   int timeout_ms, void **ret_value)
{
    struct fq_claim *claim = &producer->claim;
    struct fq_outgoing out = {.producer = producer, .now_ms = fq_wall_ms(), .timeout_ms = timeout_ms};
    int code = fq_outgoing_queue(&out, record, bytes, &claim->place);
    if (code != 0) {
        return code;
    }
    struct fq_batch *batch = out.ppart->filling;
    batch->is_claimed = true;
    claim->batch = batch;
    claim->memory = batch->builder.buffer;
    claim->user = record->user;
    claim->other_bytes = out.bytes - bytes;
    claim->code = 0;
    *ret_value = claim->memory + claim->place.value_at;
    return 0;
}

/* Nothing of the claim is looked at any more. */
static void end(struct fq_producer *producer)
{
    struct fq_claim *claim = &producer->claim;
    int64_t due_us =
        claim->batch->created_us + producer->engine->config.delivery_timeout_ms * 1000;
    producer->expire_us = due_us < producer->expire_us ? due_us : producer->expire_us;
    if (claim->batch->home) {
        fq_engine_progress(producer->engine); /* others may have waited for its place in the ring */
    }
    claim->batch->is_claimed = false;
    claim->batch = NULL;
    fq_mapping_unmap(&claim->mapping);
}

/* The batch goes on as if there had been no claim; an empty one, or one given up, goes. */
static void leave_batch(struct fq_producer *producer, struct fq_batch *batch)
{
    struct fq_ppart *ppart = batch->ppart;
    assert(ppart->filling == batch);
    if (batch->builder.records_count == 0 || batch->is_reported) {
        ppart->filling = NULL;
        fq_producer_batch_free(producer, batch);
        fq_engine_progress(producer->engine);
    }
}

int fq_claim_commit(struct fq_producer *producer, size_t length)
{
    struct fq_claim *claim = &producer->claim;
    struct fq_batch *batch = claim->batch;
    if (!batch || length > claim->place.value_bytes) {
        fq_producer_note_error(producer, FLASHQ_ERR_INVALID,
                               batch ? "more is committed than was claimed" : "no record is claimed");
        return FLASHQ_ERR_INVALID;
    }
    int code = claim->code;
    if (code == 0) {
        uint8_t *here = batch->builder.buffer;
        if (claim->memory != here) { /* the batch moved, and the application did not know */
            memcpy(here + claim->place.record_at, claim->memory + claim->place.record_at,
                   claim->place.end - claim->place.record_at);
        }
        fq_batch_builder_commit(&batch->builder, &claim->place, length);
        fq_producer_count_record(producer, batch, claim->user, claim->place.timestamp_ms,
                                 claim->other_bytes + length);
    }
    end(producer);
    leave_batch(producer, batch);
    if (code == 0) {
        fq_producer_after_append(producer, batch->ppart, fq_wall_ms());
    } else {
        fq_producer_note_error(producer, code, NULL);
    }
    return code;
}

int fq_claim_abort(struct fq_producer *producer)
{
    struct fq_batch *batch = producer->claim.batch;
    if (!batch) {
        fq_producer_note_error(producer, FLASHQ_ERR_INVALID, "no record is claimed");
        return FLASHQ_ERR_INVALID;
    }
    struct fq_ppart *ppart = batch->ppart;
    end(producer);
    leave_batch(producer, batch);
    (void)fq_ppart_pump(ppart, fq_mono_us());
    return 0;
}
