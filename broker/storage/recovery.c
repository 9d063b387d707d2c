/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a partition's folder: which files are its segments, where the log starts and ends, what
 * is damaged. MEDIA.md, "Recovery", argues each rule.
 *
 * Happy path: list, read headers, sort; sealed segments are taken at their seal's word; unsealed
 * ones are walked, their batches shown to the visitor; the end is the last one's.
 * Failure: an error of the operating system fails the opening and changes nothing. Bytes that make
 * no sense never do: they become damage, and their neighbours are served.
 * Idempotent: what it stores (a cut, a tail, a seal) it stores in an order in which a second run
 * after any crash finds the same log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "storage/recovery_impl.h"
#include "storage/walk.h"

static int by_base(const void *a, const void *b)
{
    const struct fq_found *left = *(struct fq_found *const *)a,
                          *right = *(struct fq_found *const *)b;
    int64_t l = left->segment->identity.base_offset, r = right->segment->identity.base_offset;
    return l < r ? -1 : l > r;
}

/* --- one segment ------------------------------------------------------------------------------ */

struct walked {
    uint64_t position; /* where data ends */
    int64_t offset;    /* and offsets */
};

static void visit(struct fq_recovery *r, const struct fq_segment *segment,
                  const struct fq_batch_header *header, uint64_t position)
{
    if (r->visitor && r->visitor_result == 0) {
        r->visitor_result = r->visitor(r->context, header, fq_segment_bytes(segment) + position,
                                       (uint64_t)segment->identity.base_offset, position);
    }
}

/* Walks what is known to have been published, [walk->position, walk->limit): nothing of it is cut.
 */
static void walk_published(struct fq_recovery *r, struct fq_segment *segment, struct fq_walk *walk)
{
    struct fq_batch_header header;
    const char *why = "";
    for (;;) {
        enum fq_walk_result look = fq_walk_look(walk, &header, &why);
        if (look == FQ_WALK_END) {
            return;
        }
        if (look == FQ_WALK_FIT) {
            fq_segment_index_add(segment, header.base_offset, walk->position);
            visit(r, segment, &header, walk->position);
            fq_walk_advance(walk, &header);
            continue;
        }
        int64_t first = walk->offset;
        uint64_t from = fq_walk_resync(walk);
        fq_recovery_damage(r->log, segment, FQ_SEG_DATA + from, walk->position - from, first,
                           walk->offset, why);
    }
}

/* Walks what may or may not have been acknowledged, up to the first batch that does not fit. With a
 * damaged tail word (`is_unknown`) batches behind a misfit show that it is damage, not the end. */
static void walk_above(struct fq_recovery *r, struct fq_segment *segment, struct fq_walk *walk,
                       bool is_unknown)
{
    struct fq_batch_header header;
    const char *why = "";
    while (fq_walk_look(walk, &header, &why) != FQ_WALK_END) {
        if (fq_walk_look(walk, &header, &why) == FQ_WALK_FIT) {
            fq_segment_index_add(segment, header.base_offset, walk->position);
            visit(r, segment, &header, walk->position);
            fq_walk_advance(walk, &header);
            continue;
        }
        struct fq_walk beyond = *walk;
        if (!is_unknown || (fq_walk_resync(&beyond), beyond.position == beyond.limit)) {
            return;
        }
        fq_recovery_damage(r->log, segment, FQ_SEG_DATA + walk->position,
                           beyond.position - walk->position, walk->offset, beyond.offset, why);
        *walk = beyond;
    }
}

/* Up to where the segment may have been written: memory has a word for it. */
static uint64_t touched_end(const struct fq_recovery *r, const struct fq_found *f)
{
    struct fq_segment *segment = f->segment;
    uint64_t capacity = fq_segment_capacity(segment), bytes;
    if (r->log->persist->ops->needs_sync || !f->identity_ok ||
        !fq_word_read(&segment->identity, FQ_WORD_TOUCHED, fq_load_le64(f->header + FQ_SEG_TOUCHED),
                      &bytes) ||
        bytes < segment->data_bytes || bytes > capacity) {
        return capacity;
    }
    segment->touched_bytes = bytes;
    return bytes;
}

/* Above the end of the last segment everything must be zero before the log is used, or bytes of a
 * batch that was cut could continue a later one. */
static int cut_above(struct fq_recovery *r, const struct fq_found *f, uint64_t position)
{
    struct fq_log *log = r->log;
    struct fq_segment *segment = f->segment;
    uint64_t end = fq_recovery_dirty_end(segment, position, touched_end(r, f));
    if (end == position) {
        return 0;
    }
    int result = fq_segment_zero(segment, position, end);
    if (result == 0) {
        result = segment->file->pf.persist->ops->sync(&segment->file->pf);
    }
    if (result == 0 && log->persist->ops->needs_sync) {
        log->cut_bytes += end - position;
        fq_warn("%s: %llu bytes above offset %lld were not complete and are cut", segment->path,
                (unsigned long long)(end - position), (long long)segment->end_offset);
    }
    return result < 0
               ? fq_err_set(r->err, result, "cut %s: %s", segment->path, fq_err_describe(result))
               : 0;
}

/* The last segment, or any unsealed one: finds its end by the tail word and by walking. */
static int walk_unsealed(struct fq_recovery *r, struct fq_found *f, bool is_last, int64_t next_base,
                         bool *ret_tail_ok)
{
    struct fq_segment *segment = f->segment;
    struct fq_walk walk;
    uint64_t tail = 0, end_delta = 0;
    int result = fq_segment_map(segment, r->err);
    if (result < 0) {
        return result;
    }
    uint64_t capacity = fq_segment_capacity(segment);
    bool tail_ok = f->identity_ok &&
                   fq_word_read(&segment->identity, FQ_WORD_TAIL,
                                fq_load_le64(f->header + FQ_SEG_TAIL), &tail) &&
                   tail <= capacity;
    bool end_ok = f->identity_ok && fq_word_read(&segment->identity, FQ_WORD_END,
                                                 fq_load_le64(f->header + FQ_SEG_END), &end_delta);
    if (f->seal_ok && (!tail_ok || tail < f->seal.data_bytes)) {
        tail_ok = true;
        tail = f->seal.data_bytes;
    }
    if (!tail_ok) {
        tail = 0;
        if (f->identity_ok) {
            fq_recovery_damage(r->log, segment, FQ_SEG_TAIL, 8, -1, -1, "the tail word");
        }
    }
    if (f->identity_ok && !end_ok) {
        fq_recovery_damage(r->log, segment, FQ_SEG_END, 8, -1, -1, "the end word");
    }
    fq_walk_init(&walk, segment, fq_segment_bytes(segment), tail);
    walk.any_epoch |= !f->identity_ok;
    walk.offset_limit = is_last ? INT64_MAX : next_base;
    walk_published(r, segment, &walk);
    if (walk.is_after_damage && end_ok &&
        segment->identity.base_offset + (int64_t)end_delta > walk.offset) {
        walk.offset = segment->identity.base_offset + (int64_t)end_delta;
    }
    if (r->log->persist->ops->needs_sync || !tail_ok) {
        walk.limit = capacity;
        walk_above(r, segment, &walk, !tail_ok || !is_last);
    }
    segment->data_bytes = walk.position;
    segment->end_offset = walk.offset;
    segment->last_epoch = walk.epoch;
    segment->published_bytes = tail_ok ? tail : UINT64_MAX;
    segment->index_next = (struct fq_index_entry){walk.offset, walk.position};
    segment->is_index_whole = true;
    *ret_tail_ok = tail_ok && end_ok;
    return 0;
}

/* Writes a header anew whose identity was damaged, once the data has said what it was. */
static int repair_header(struct fq_found *f)
{
    struct fq_segment *segment = f->segment;
    struct fq_pfile *pf = &segment->file->pf;
    const struct fq_persist_ops *ops = pf->persist->ops;
    uint8_t bytes[FQ_SEG_IDENTITY_BYTES];
    struct fq_walk walk;
    struct fq_batch_header header;
    segment->identity.life = fq_store_random_life();
    fq_walk_init(&walk, segment, fq_segment_bytes(segment), segment->data_bytes);
    walk.any_epoch = true;
    if (fq_walk_look(&walk, &header, NULL) == FQ_WALK_FIT) {
        segment->identity.first_epoch = header.leader_epoch;
    }
    static const uint8_t zeros[FQ_SECTOR_BYTES];
    int result = ops->write(pf, FQ_SEG_EPOCHS, zeros, sizeof zeros);
    segment->epochs_count = 0;
    int32_t epoch = segment->identity.first_epoch;
    for (; result == 0 && fq_walk_look(&walk, &header, NULL) != FQ_WALK_END;) {
        if (fq_walk_look(&walk, &header, NULL) == FQ_WALK_NO_FIT) {
            (void)fq_walk_resync(&walk);
            continue;
        }
        if (header.leader_epoch != epoch && segment->epochs_count < FQ_SEGMENT_EPOCHS) {
            epoch = header.leader_epoch;
            result = fq_segment_add_epoch(segment, header.base_offset, epoch);
        }
        fq_walk_advance(&walk, &header);
    }
    if (result == 0) {
        result = ops->word(pf, FQ_SEG_START, 0);
    }
    fq_identity_encode(&segment->identity, bytes);
    if (result == 0) {
        result = ops->write(pf, 0, bytes, sizeof bytes);
    }
    return result;
}

/* Disks: a sync that failed in the process before may have left pages that look written and are
 * not; no later sync would write them. What no sync is known to have covered, the header and what
 * lies above the tail, is therefore written again before it counts. */
static int write_again(const struct fq_segment *segment)
{
    struct fq_pfile *pf = &segment->file->pf;
    uint8_t piece[16u << 10];
    uint64_t from = segment->published_bytes < segment->data_bytes ? segment->published_bytes
                    : segment->published_bytes == UINT64_MAX       ? 0
                                                                   : segment->data_bytes;
    memcpy(piece, pf->map, FQ_SEG_DATA);
    int result = pf->persist->ops->write(pf, 0, piece, FQ_SEG_DATA);
    while (result == 0 && from < segment->data_bytes) {
        uint64_t left = segment->data_bytes - from;
        size_t length = left < sizeof piece ? (size_t)left : sizeof piece;
        memcpy(piece, fq_segment_bytes(segment) + from, length);
        result = pf->persist->ops->write(pf, FQ_SEG_DATA + from, piece, length);
        from += length;
    }
    return result;
}

/* Stores what recovery found of the last segment, so that the next one need not find it again. */
static int settle_last(struct fq_recovery *r, struct fq_found *f, bool tail_ok)
{
    struct fq_segment *segment = f->segment;
    const struct fq_persist_ops *ops = segment->file->pf.persist->ops;
    bool was_ok = tail_ok && f->identity_ok &&
                  fq_state_read(fq_load_le64(f->header + FQ_SEG_STATE)) == segment->state;
    bool above = segment->published_bytes != segment->data_bytes;
    int result = f->identity_ok ? 0 : repair_header(f);
    if (result == 0 && ops->needs_sync && segment->state == FQ_SEGMENT_OPEN) {
        result = write_again(segment);
    }
    if (result == 0 && (above || !was_ok)) {
        /* What was accepted above the tail may still be in the page cache only. */
        result = ops->sync(&segment->file->pf);
    }
    if (result == 0 && (above || !was_ok)) {
        result = fq_segment_store_tail(segment, segment->data_bytes, segment->end_offset);
    }
    if (result == 0 && !was_ok) {
        result = ops->word(&segment->file->pf, FQ_SEG_STATE, fq_state_word(segment->state));
    }
    if (result == 0 && (above || !was_ok)) {
        result = ops->sync(&segment->file->pf);
    }
    return result < 0
               ? fq_err_set(r->err, result, "write %s: %s", segment->path, fq_err_describe(result))
               : 0;
}

/* A segment with a successor: complete by construction, so whatever is missing is damage. */
static int recover_middle(struct fq_recovery *r, struct fq_found *f, int64_t next_base)
{
    struct fq_segment *segment = f->segment;
    bool tail_ok = true;
    if (f->seal_ok) {
        segment->data_bytes = f->seal.data_bytes;
        segment->published_bytes = f->seal.data_bytes;
        segment->end_offset = f->seal.end_offset;
        segment->index_next = (struct fq_index_entry){segment->identity.base_offset, 0};
    } else {
        int result = walk_unsealed(r, f, false, next_base, &tail_ok);
        if (result < 0) {
            return result;
        }
    }
    if (segment->end_offset < next_base) {
        fq_recovery_damage(r->log, segment, FQ_SEG_DATA + segment->data_bytes, 0,
                           segment->end_offset, next_base,
                           "records between two segments are missing");
    } else if (segment->end_offset > next_base) {
        fq_recovery_damage(r->log, segment, 0, 0, next_base, segment->end_offset,
                           "offsets overlap the next segment's");
        segment->end_offset = next_base;
    }
    if (f->seal_ok) {
        return 0;
    }
    int result = f->identity_ok ? 0 : repair_header(f);
    if (result == 0) {
        result = fq_segment_store_tail(segment, segment->data_bytes, segment->end_offset);
    }
    if (result == 0) {
        segment->state = FQ_SEGMENT_OPEN;
        result = fq_segment_store_seal(segment, -1);
    }
    if (result == 0) {
        result = segment->file->pf.persist->ops->sync(&segment->file->pf);
    }
    return result < 0
               ? fq_err_set(r->err, result, "seal %s: %s", segment->path, fq_err_describe(result))
               : 0;
}

static int recover_last(struct fq_recovery *r, struct fq_found *f)
{
    struct fq_segment *segment = f->segment;
    bool tail_ok = true;
    segment->has_former = fq_recovery_may_have_former(r->log);
    int result = walk_unsealed(r, f, true, INT64_MAX, &tail_ok);
    if (result == 0 && !(f->seal_ok && segment->data_bytes == f->seal.data_bytes)) {
        if (segment->state == FQ_SEGMENT_SEALED) {
            segment->state = FQ_SEGMENT_OPEN;
        }
        result = cut_above(r, f, segment->data_bytes);
    }
    return result < 0 ? result : settle_last(r, f, tail_ok);
}

/* --- the log ---------------------------------------------------------------------------------- */

/* A start word in a later segment outdates everything before it: finish that removal. */
static void drop_below_start(struct fq_recovery *r)
{
    struct fq_log *log = r->log;
    size_t first = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->found[i]->start_delta > 0) {
            first = i;
        }
    }
    for (size_t i = 0; i < first; i++) {
        fq_recovery_give_back(log, r->found[i]->segment);
        free(r->found[i]);
    }
    if (first > 0) {
        memmove(r->found, r->found + first, (r->count - first) * sizeof(struct fq_found *));
        r->count -= first;
    }
    if (r->count > 0) {
        const struct fq_found *f = r->found[0];
        log->start = f->segment->identity.base_offset;
        if (f->start_delta > 0) {
            log->start += (int64_t)f->start_delta - 1;
        }
    }
}

/* Two files with one base offset: the one with an intact header is the log's. */
static void quarantine_doubles(struct fq_recovery *r)
{
    for (size_t i = 1; i < r->count;) {
        struct fq_found *a = r->found[i - 1], *b = r->found[i];
        if (a->segment->identity.base_offset != b->segment->identity.base_offset) {
            i++;
            continue;
        }
        size_t out = b->identity_ok && !a->identity_ok ? i - 1 : i;
        struct fq_found *f = r->found[out];
        fq_recovery_damage(r->log, f->segment, 0, f->segment->identity.file_bytes, -1, -1,
                           "a second file with the same base offset");
        (void)fq_store_quarantine(r->log->store,
                                  f->segment->path + strlen(fq_store_data_dir(r->log->store)) + 1,
                                  "a second file with the same base offset", NULL);
        fq_segment_destroy(f->segment);
        free(f);
        memmove(r->found + out, r->found + out + 1,
                (r->count - out - 1) * sizeof(struct fq_found *));
        r->count--;
    }
}

static int recover_all(struct fq_recovery *r)
{
    struct fq_log *log = r->log;
    int result = fq_recovery_list(r);
    if (result < 0) {
        return result;
    }
    if (r->count > 1) {
        qsort(r->found, r->count, sizeof(struct fq_found *), by_base);
    }
    quarantine_doubles(r);
    drop_below_start(r);
    for (size_t i = 0; result == 0 && i < r->count; i++) {
        struct fq_found *f = r->found[i];
        bool is_last = i + 1 == r->count;
        result = is_last ? recover_last(r, f)
                         : recover_middle(r, f, r->found[i + 1]->segment->identity.base_offset);
        if (result == 0) {
            result = fq_log_add_segment(log, f->segment);
        }
        if (result == 0) {
            log->bytes += f->segment->data_bytes;
            log->end = f->segment->end_offset;
            int32_t epoch = fq_segment_epoch_at(f->segment, INT64_MAX);
            log->last_epoch = epoch > f->segment->last_epoch ? epoch : f->segment->last_epoch;
            r->found[i]->segment = NULL;
        }
    }
    struct fq_segment *last = fq_log_last(log);
    if (result == 0 && last && log->start > log->end) {
        /* The log was trimmed above what is readable now. Offsets go on from the start, in another
         * segment: nothing may be appended where the walk would expect lower ones. */
        fq_recovery_damage(log, last, FQ_SEG_DATA + last->data_bytes, 0, log->end, log->start,
                           "records below the log start are missing");
        last->end_offset = log->start;
        log->end = log->start;
        if (last->state == FQ_SEGMENT_OPEN) {
            result = fq_segment_store_seal(last, -1);
        }
    }
    return result;
}

int fq_log_recover(struct fq_log *log, fq_log_visitor visitor, void *context, struct fq_err *err)
{
    struct fq_recovery r = {.log = log, .visitor = visitor, .context = context, .err = err};
    int result = recover_all(&r);
    if (result == 0 && r.visitor_result < 0) {
        result = fq_err_set(err, r.visitor_result, "%s: reading its batches: %s", log->shared->dir,
                            fq_err_describe(r.visitor_result));
    }
    for (size_t i = 0; i < r.count; i++) {
        fq_segment_destroy(r.found[i]->segment);
        free(r.found[i]);
    }
    free(r.found);
    return result;
}
