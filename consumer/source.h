/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory behind received records, counted: a buffer that a fetch filled, a segment mapped from the
 * broker, or what a compressed batch became. The reader holds one reference on what it walks, a poll one on
 * each that it handed records out of, until the next poll. Thread: under the client's lock.
 */
#ifndef FQ_CONSUMER_SOURCE_H
#define FQ_CONSUMER_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/chain.h"
#include "client/link.h"
#include "wire/record_batch.h"

struct fq_source {
    unsigned refs;
    void (*release)(struct fq_source *source);
    /* What a poll holds instead of the source itself; NULL: it holds that already. May be NULL. */
    struct fq_source *(*lend)(struct fq_source *source);
};

static inline struct fq_source *fq_source_ref(struct fq_source *source)
{
    source->refs++;
    return source;
}
/* A reference for the poll that hands out records of it; NULL: it has one. */
static inline struct fq_source *fq_source_lend(struct fq_source *source)
{
    return source->lend ? source->lend(source) : fq_source_ref(source);
}
static inline void fq_source_unref(struct fq_source *source) /* NULL is fine */
{
    if (source && --source->refs == 0) {
        source->release(source);
    }
}

/* ---- buffers of one consumer: bounded by fetch.buffer.bytes, reused --------------------------- */

struct fq_buffers {
    struct fq_chain spare;        /* of the usual size */
    size_t usual_bytes, limit_bytes, total_bytes;
    unsigned used;
    struct fq_chain scratches;    /* spare */
};

/* `data` has `bytes`; the 64 bytes at `view` take the view read with it. */
struct fq_buffer {
    struct fq_source source;
    struct fq_chain node;
    struct fq_buffers *buffers;   /* NULL: its consumer is closed */
    struct fq_region *region;
    uint8_t *view, *data;
    size_t bytes;
};

struct fq_scratch {
    struct fq_source source;
    struct fq_chain node;
    struct fq_buffers *buffers;
    struct fq_batch_scratch scratch;
};

void fq_buffers_init(struct fq_buffers *buffers, size_t usual_bytes, size_t limit_bytes);
void fq_buffers_fini(struct fq_buffers *buffers);
/* A buffer of at least `bytes` with one reference. AGAIN: the limit is reached (one always gets through). */
int fq_buffers_get(struct fq_buffers *buffers, size_t bytes, struct fq_buffer **ret);
/* Room for memory that is no buffer (the ring of a push); one buffer's worth is left for partitions that are
 * pulled. false: there is none now. */
bool fq_buffers_charge(struct fq_buffers *buffers, uint64_t bytes);
void fq_buffers_discharge(struct fq_buffers *buffers, uint64_t bytes);
/* NULL without memory. */
struct fq_scratch *fq_buffers_scratch(struct fq_buffers *buffers);

/* ---- segments ------------------------------------------------------------------------------- */

/* A read window on one segment of the log. */
struct fq_rsegment {
    struct fq_source source;
    struct fq_link *link;         /* to tell that it is closed; only used while link->box == box */
    struct fq_conn_box *box;
    uint32_t reader_id;
    struct fq_segment_open_answer info;
    struct fq_remote *remote;
    const uint8_t *map;           /* the data, where they can be seen; else NULL */
    uint64_t expected_position;   /* data below it were mapped ahead of reading */
    int64_t retire_us;            /* let go by then; INT64_MAX */
};
/* Checks the answer and opens its token. PROTOCOL: it makes no sense. */
int fq_rsegment_open(struct fq_link *link, uint32_t reader_id,
                     const struct fq_segment_open_answer *info, struct fq_rsegment **ret,
                     struct fq_err *err);
/* Gives back the segment of an answer that is not opened. */
void fq_rsegment_decline(struct fq_link *link, uint32_t reader_id,
                         const struct fq_segment_open_answer *info);

#endif
