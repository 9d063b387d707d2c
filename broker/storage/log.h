/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's log: an ordered list of segments of which the last is open. Knows bytes, offsets
 * and durability; knows nothing of connections, replication or time queries.
 *
 * One thread (the partition's shard) uses a log. The housekeeper prepares and recycles segments
 * through the store; the flusher calls sync.
 *
 * Append, in order (numbers are those of MEDIA.md, "Store order"):
 *   fq_log_reserve      room for `length` bytes at the tail: rolls if the segment is full
 *   fq_log_write        the stamped bytes, from memory that nobody else can change any more
 *   fq_log_commit_batch the batch counts as appended: end, positions, offset index
 *   fq_log_publish      once per poll round: fence, the tail word, fence; disks: queues the sync
 *   durable             fq_log_durable_end: pmem: after publish; disks: when the flusher synced
 */
#ifndef FQ_STORAGE_LOG_H
#define FQ_STORAGE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "storage/store.h"
#include "wire/protocol.h"
#include "wire/record_batch.h"

struct fq_log;
struct fq_segment;

enum fq_reserve {
    FQ_RESERVE_OK = 0,
    FQ_RESERVE_STARVED = 1 /* no prepared segment yet, or (disks) the full one is not synced yet:
                              leave the ring undrained, try again when the store has progressed */
};

struct fq_log_params {
    struct fq_uuid topic_id;
    const char *topic; /* for names of files and messages */
    uint32_t partition;
    uint64_t segment_bytes;   /* the most a segment grows to; may change later */
    uint64_t retention_bytes; /* 0: unlimited */
    bool wants_zeros; /* above what is appended the open segment is zero: for peers that write there
                         themselves (else only on disks) */
};

/* Called for each valid batch during recovery and scans, in offset order. `batch` points into the
 * mapping. Return non-zero to stop (fq_log_scan returns it; fq_log_open fails if it is negative).
 */
typedef int (*fq_log_visitor)(void *context, const struct fq_batch_header *header,
                              const uint8_t *batch, uint64_t segment_base, uint64_t position);

/* Opens and recovers what the store has for (topic id, partition); nothing there is an empty log at
 * offset 0. The visitor (may be NULL) sees the batches of unsealed segments, which recovery walks
 * anyway. Damage below the tail is recorded (fq_log_damage_*), kept, and served around. */
int fq_log_open(struct fq_store *store, const struct fq_log_params *params, fq_log_visitor visitor,
                void *context, struct fq_log **ret, struct fq_err *err);
/* Seals nothing; makes what is appended durable if `clean` (blocks), then forgets. */
void fq_log_close(struct fq_log *log, bool clean);
void fq_log_configure(struct fq_log *log, uint64_t segment_bytes, uint64_t retention_bytes);
/* Closes and removes its files: one durable rename, the rest by the housekeeper. A whole topic goes
 * by fq_store_delete_topic after its logs were closed. */
int fq_log_delete(struct fq_log *log, struct fq_err *err);

/* --- append --------------------------------------------------------------------------------- */
/* Batches come in offset order: base_offset is fq_log_end (an empty log without files may begin
 * anywhere). STARVED; NO_SPACE (the medium is full: by itself it will work again when it is not);
 * TOO_LARGE; OFFLINE. Calling it again before commit replaces the reservation. */
int fq_log_reserve(struct fq_log *log, uint64_t length, int64_t base_offset, struct fq_err *err);
/* All of the reserved bytes: body first, stamped header last. IO: the log is offline now. */
int fq_log_write(struct fq_log *log, const void *stamped_batch, uint64_t length);
/* On media where nothing above the tail exists a batch that needs no new segment may also be
 * written while it is being checked: reserve, then fq_log_stream of [61, length) in order (out of
 * memory that somebody else may be storing to: see persist.h), then either fq_log_write_part of the
 * stamped header and commit, or abort, which wipes what was written. */
bool fq_log_may_stream(const struct fq_log *log, uint64_t length);
int fq_log_stream(struct fq_log *log, uint64_t at, void *copy, const void *src, uint64_t length,
                  uint32_t *inout_crc);
int fq_log_write_part(struct fq_log *log, uint64_t at, const void *bytes, uint64_t length);
void fq_log_abort_batch(struct fq_log *log);

struct fq_log_place {
    struct fq_segment *segment;
    uint64_t position;   /* of the batch in the segment's data */
    int64_t base_offset; /* of the batch */
};
/* `header` is the stamped one. ret_place (may be NULL): where the batch lies. An epoch below an
 * earlier batch's is INVALID and leaves the batch unappended. */
int fq_log_commit_batch(struct fq_log *log, const struct fq_batch_header *header,
                        struct fq_log_place *ret_place);
/* --- append in place: log_lend.c (memory only) -------------------------------------------------
 * The log lends out the rest of its open segment, and later the next one as well, to one peer that
 * stores there by way of a window. A lent byte above the log's end is nobody's data until a batch
 * that holds it is committed. */
struct fq_log_loan {
    struct fq_segment *segment;
    uint64_t position; /* in its data */
    uint64_t bytes;    /* all zero when they are lent */
};
/* UNSUPPORTED where the medium is not memory, with the reason. */
int fq_log_may_lend(const struct fq_log *log, struct fq_err *err);
/* The rest of the open segment; a log without one, or with one that is as good as full, takes the
 * next. As fq_log_reserve: STARVED, NO_SPACE, OFFLINE. */
int fq_log_lend(struct fq_log *log, struct fq_log_loan *ret, struct fq_err *err);
/* All of the next segment, which holds any usual batch. */
int fq_log_lend_next(struct fq_log *log, struct fq_log_loan *ret, struct fq_err *err);
/* The lent next segment becomes the open one; what the peer left above the end of the one before,
 * which ends at the data position `written`, is wiped. */
int fq_log_move_on(struct fq_log *log, uint64_t written);
/* The next `length` bytes of the open segment are the batch. Then fq_log_write_part of its stamped
 * header, fq_log_write_back of the rest, fq_log_commit_batch. LIMIT: the segment has no number left
 * for it. */
int fq_log_reserve_in_place(struct fq_log *log, uint64_t length, struct fq_err *err);
int fq_log_write_back(struct fq_log *log, uint64_t at, uint64_t length);
/* The peer can store no more; it had stored up to the data positions `written` of the open segment
 * and `written_next` of the next one: what lies above the log's end is wiped. */
void fq_log_take_back(struct fq_log *log, uint64_t written, uint64_t written_next);

/* Nothing new: does nothing. */
int fq_log_publish(struct fq_log *log);

/* --- state ---------------------------------------------------------------------------------- */
int64_t fq_log_start(const struct fq_log *log);       /* first readable offset */
int64_t fq_log_end(const struct fq_log *log);         /* next offset to append */
int64_t fq_log_durable_end(const struct fq_log *log); /* everything below is durable */
uint64_t fq_log_bytes(const struct fq_log *log);
bool fq_log_is_offline(const struct fq_log *log, struct fq_err *ret_why);

/* --- reading -------------------------------------------------------------------------------- */
/* Finds the batch that holds `offset` (or, at the end, the place where it will be; segment is NULL
 * in a log that has none). The batch's CRC has been checked. TRIMMED, OUT_OF_RANGE, CORRUPT
 * (damaged there: ret->base_offset is the next readable offset). */
int fq_log_find(struct fq_log *log, int64_t offset, struct fq_log_place *ret);
/* The same, beginning to look at a batch known to be at (segment_base, position), such as a
 * chunk's. */
int fq_log_find_near(struct fq_log *log, int64_t offset, int64_t segment_base, uint64_t position,
                     struct fq_log_place *ret);
/* Visits every readable batch that has an offset in [from, to), checked; what is damaged is
 * recorded and passed over. */
int fq_log_scan(struct fq_log *log, int64_t from_offset, int64_t to_offset, fq_log_visitor visitor,
                void *context);
/* The same, begun at a batch that lies at or before from_offset, as for fq_log_find_near: touches
 * nothing before it. A hint that does not hold is not followed. */
int fq_log_scan_near(struct fq_log *log, int64_t from_offset, int64_t to_offset,
                     int64_t segment_base, uint64_t position, fq_log_visitor visitor,
                     void *context);

/* --- segments as readers see them ------------------------------------------------------------ */
struct fq_segment *fq_log_segment_first(struct fq_log *log); /* NULL: none yet */
struct fq_segment *fq_log_segment_last(struct fq_log *log);
struct fq_segment *fq_log_segment_by_base(struct fq_log *log, int64_t base_offset); /* or NULL */
struct fq_segment *fq_segment_next(struct fq_segment *segment); /* NULL after the open one */
uint64_t fq_segment_id(const struct fq_segment *segment);       /* unique in this store's life */
int64_t fq_segment_base_offset(const struct fq_segment *segment);
int64_t fq_segment_end_offset(const struct fq_segment *segment);
bool fq_segment_is_sealed(const struct fq_segment *segment);
/* The mapped data; a sealed segment is mapped on first use. NULL if that failed (EMFILE, ...). */
const uint8_t *fq_segment_data(struct fq_segment *segment);
uint64_t fq_segment_data_bytes(const struct fq_segment *segment); /* appended so far */
uint64_t fq_segment_capacity(const struct fq_segment *segment);
/* The fabric region over the whole file (header included), created on first use. */
struct fq_region *fq_segment_region(struct fq_segment *segment, struct fq_err *err);
/* A reader holds the segment: it is neither recycled nor unmapped until released, also when the log
 * retires the segment or is closed meanwhile. */
void fq_segment_pin(struct fq_segment *segment);
void fq_segment_unpin(struct fq_segment *segment);
/* Taken out of its log by a trim, retention or a truncation; for who holds it. */
bool fq_segment_is_retired(const struct fq_segment *segment);
/* A peer may map the segment for longer than anybody here pins it: once retired the file is
 * unlinked and its bytes stay as they are until the last mapping goes. */
void fq_segment_forbid_recycling(struct fq_segment *segment);

/* Derived data beside a segment (`<base>.<suffix>`), carried away with it. Writing is queued to the
 * housekeeper (the bytes are copied) and promises nothing: it may be lost, and carries its own
 * check. */
int fq_log_write_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix,
                         const void *bytes, size_t length);
/* Durable when it returns 0 (blocks); none there is fine. A write that is still queued is not
 * undone: queue an empty one after it. */
int fq_log_remove_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix);
/* *ret is the caller's to free. NOT_FOUND. */
int fq_log_read_sidecar(struct fq_log *log, struct fq_segment *segment, const char *suffix,
                        void **ret, size_t *ret_length);

/* --- removing ------------------------------------------------------------------------------- */
/* Moves the log start to `offset` (<= end); whole segments below it are retired: unlinked or
 * recycled once unpinned. Persistent when it returns 0. */
int fq_log_trim(struct fq_log *log, int64_t offset, struct fq_err *err);
/* Drops everything at and above `offset` (a batch boundary or the batch that holds it goes too).
 * Persistent when it returns 0. Below the log start: TRIMMED. No reader may look above the cut. */
int fq_log_truncate(struct fq_log *log, int64_t offset, struct fq_err *err);
/* Applies retention.bytes; returns the number of segments retired. */
int fq_log_apply_retention(struct fq_log *log);

/* --- damage --------------------------------------------------------------------------------- */
struct fq_damage {
    char path[256];
    uint64_t position, bytes;          /* in the file */
    int64_t first_offset, next_offset; /* offsets lost: [first, next) */
    char what[96];
};
size_t fq_log_damage_count(const struct fq_log *log);
const struct fq_damage *fq_log_damage_at(const struct fq_log *log, size_t index);
/* What recovery cut: bytes above the last batch that fits, never acknowledged as far as the tail
 * word knows. 0 after a clean stop. */
uint64_t fq_log_cut_bytes(const struct fq_log *log);

#endif
