/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One partition being read.
 *
 *             link known        link up, READER_OPEN      reader given, SEGMENT_OPEN    segment given
 *   UNROUTED ----------> LINK ---------------------> OPENING ---------> SEEKING ----------------> READING
 *                         ^ ^                           |  refused         |  ^  end of segment, seek  |
 *                         | +---------------------------+------------------+  +------------------------+
 *                         +-- connection lost, reset by the broker: from any but UNROUTED and HALTED
 *   HALTED: a condition was reported that only a seek (or nothing: the topic is gone) gets over.
 *
 * A reader that is to be pushed to (fetch.mode) goes another way:
 *
 *                 PUSH_OPEN                    given             stopped, doubt, seek      PUSH_CLOSE answered
 *   OPENING,     ----------> PUSH_OPENING ----------> PUSHED ---------------------> PUSH_CLOSING --------> SEEKING or
 *   READING                       | refused              | PUSH_STOPPED                                 PUSH_OPENING
 *                                 +----------------------+--> SEEKING (it pulls)
 *
 * In PUSHED: `push` is set and `segment` is not; `next_position` counts the bytes of the push; chunks lie in
 * its ring. Whatever is wrong there is not looked into: the reader pulls, which knows how to look again, and
 * is pushed to again once the place is behind it.
 *
 * In READING: `segment` is set; `next_position`/`next_offset` say where the next batch to be walked begins in
 * it. Bytes come as chunks: `chunk` is walked, `fetch` (one at a time) brings the next. Over a transport
 * that shows the memory a chunk is the segment itself and nothing is fetched.
 *
 * Bytes are trusted in this order: a view with a good CRC and the reader's generation; data below its
 * committed position; in them a batch whose base offset is the one expected, whose epoch fits, whose CRC is
 * right. What fails is read again, view first, then data; what fails again is CORRUPT.
 */
#ifndef FQ_CONSUMER_READER_H
#define FQ_CONSUMER_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "consumer/source.h"
#include "flashq/flashq.h"
#include "wire/protocol_codec.h"

struct fq_consumer;
struct fq_hub;
struct fq_rpush;

enum fq_reader_state {
    FQ_READER_UNROUTED,
    FQ_READER_LINK,
    FQ_READER_OPENING,
    FQ_READER_SEEKING,
    FQ_READER_READING,
    FQ_READER_PUSH_OPENING,
    FQ_READER_PUSHED,
    FQ_READER_PUSH_CLOSING,
    FQ_READER_HALTED
};

/* Bytes of a segment, from a batch's beginning on. */
struct fq_chunk {
    struct fq_source *source;    /* NULL: none */
    const uint8_t *data;
    size_t length;               /* all of it below the committed position */
    size_t used;                 /* walked */
    uint64_t position;           /* of `data` in the segment */
};

/* Bytes being read from a broker whose memory cannot be seen here. */
struct fq_fetch {
    struct fq_completion view_read, data_read;
    struct fq_chain node;        /* in the hub's `fetches` while operations are posted */
    struct fq_hub *hub;
    struct fq_pread *reader;     /* NULL: nobody wants it any more */
    struct fq_buffer *buffer;
    uint64_t position;           /* in the segment */
    size_t asked;                /* bytes of data */
    unsigned posted;             /* operations not completed */
    bool is_view_only;           /* first half of reading again */
    int status;
};

struct fq_pread {
    struct fq_consumer *consumer;
    struct fq_chain node;        /* in consumer->readers */
    struct fq_chain hub_node;
    struct fq_chain busy_node;   /* in consumer->busy while something is to be done for it */
    struct fq_rtopic *rtopic;
    int32_t index;
    enum fq_reader_state state;
    struct fq_hub *hub;
    int64_t retry_us;
    unsigned failures;
    bool wants_reroute;

    /* where the application is */
    int64_t position;            /* the next offset it gets; FLASHQ_OFFSET_START, _END: not resolved */
    bool is_paused;
    bool has_condition;
    int condition;               /* code */
    int64_t condition_end;
    int reported;                /* the last condition told, until the partition serves again */

    /* the broker's side; valid from SEEKING on */
    uint32_t id;
    uint32_t view_line, view_generation;
    struct fq_view view;         /* the last good one */
    bool has_view;
    int64_t high_watermark;      /* last seen; -1 */
    bool is_open;                /* `id` is valid on the hub's connection */
    bool is_armed, is_caught_up;
    bool wants_view;             /* what the view said may be old news */

    struct fq_rsegment *segment;
    uint64_t next_position;
    int64_t next_offset;         /* base of the batch there */
    uint64_t limit_position;     /* data of `segment` below this may be looked at */
    int32_t last_epoch;
    struct fq_chunk chunk;
    struct fq_fetch *fetch;
    struct fq_chunk ready;       /* a completed fetch, while `chunk` is still walked */
    size_t want_bytes;           /* the next fetch needs this much to make progress */
    size_t guess_bytes;          /* speculative length at the tail */
    unsigned doubts;             /* times the bytes at next_position were found wrong in a row */
    bool is_sequential;          /* read the view first, then the data */
    bool is_probing;             /* looking for the end of a damaged range that begins at next_offset: */
    int64_t probe_low;           /* still damaged */
    int64_t probe_high;          /* good, or the end */
    int64_t probe_step, asked_offset;
    bool is_superseded;          /* SEEKING: a seek came; the answer under way is not the one to go on with */

    /* pushing */
    bool wants_push;             /* the mode asked for */
    bool is_push_denied;         /* not on this connection */
    struct fq_rpush *push;        /* in PUSH_OPENING, PUSHED, PUSH_CLOSING */
    unsigned push_failures;      /* bytes that were wrong, in a row */
    unsigned push_hold;          /* batches to pull before it is tried again */
    unsigned push_good;          /* batches pushed since the last failure */
    int64_t push_retry_us;
    int64_t rest_due_us;         /* pushed bytes that are owed must come by then; INT64_MAX */
    uint64_t rest_tail;          /* the tail when that was said */

    /* the batch being handed out */
    bool has_batch;
    uint64_t batch_position;     /* of its first byte */
    struct fq_source *batch_source;
    struct fq_batch_iter iter;
    bool is_pinned;              /* the running poll holds batch_source already */
};

/* Assignment of a topic: what its partitions share, and the messages borrowed from them. */
struct fq_rtopic {
    unsigned refs;
    struct fq_chain node;        /* in consumer->parted, once refs is 0: until the next poll */
    struct fq_uuid id;
    char name[FQ_LIMIT_TOPIC_NAME_BYTES + 1];
};

int fq_pread_create(struct fq_consumer *consumer, struct fq_rtopic *rtopic, int32_t index,
                    int64_t offset, struct fq_pread **ret);
void fq_pread_destroy(struct fq_pread *reader);

/* Where the partition lives. */
void fq_pread_reroute(struct fq_pread *reader, struct fq_link *link);
/* Forgets everything fetched and goes on at `offset`. */
void fq_pread_seek(struct fq_pread *reader, int64_t offset);
/* Does what can be done without waiting so that a record or a condition is at hand. */
void fq_pread_prepare(struct fq_pread *reader, int64_t now_us);
/* Whether poll has something of it now. */
bool fq_pread_has_news(const struct fq_pread *reader);
/* Hands out the condition; it must be there. */
void fq_pread_take_condition(struct fq_pread *reader, int *ret_code, int64_t *ret_offset,
                             int64_t *ret_end);
/* Whether the position was resolved to an offset the partition has, or to a condition. */
bool fq_pread_is_resolved(const struct fq_pread *reader);
/* Before sleeping: asks the broker to wake us. true: there is work already. */
bool fq_pread_arm(struct fq_pread *reader);
int64_t fq_pread_next_deadline_us(const struct fq_pread *reader);

/* The next record; false: none at hand. Sets *ret_new_source when the record lies in memory that the
 * running poll does not hold yet. */
bool fq_pread_next(struct fq_pread *reader, struct fq_record *ret, struct fq_source **ret_new_source);
void fq_pread_poll_begins(struct fq_pread *reader);

/* Called by the hub. */
void fq_pread_link_up(struct fq_pread *reader);
void fq_pread_link_down(struct fq_pread *reader, int code, const char *text);
void fq_pread_notified(struct fq_pread *reader);
void fq_pread_retiring(struct fq_pread *reader, const struct fq_segment_retiring *msg);
void fq_pread_reset(struct fq_pread *reader, const struct fq_reader_reset *msg);

/* pushed.c */
/* To be pushed to from now on, or to pull. Takes effect by itself, at exactly the place reached. */
void fq_pushed_set(struct fq_pread *reader, bool wants_push);
/* Whether pushing should be tried now. */
bool fq_pushed_is_due(struct fq_pread *reader);
/* PUSH_OPEN at `offset`; false: it has to be pulled for now. */
bool fq_pushed_begin(struct fq_pread *reader, int64_t offset);
/* A seek, or the mode changed: goes on at `offset` (or FLASHQ_OFFSET_START, _END) once nothing is written any
 * more. */
void fq_pushed_go_to(struct fq_pread *reader, int64_t offset);
/* In PUSHED: takes what lies in the ring, gives credit. */
void fq_pushed_read(struct fq_pread *reader);
/* Called by push.c and the hub. */
void fq_pushed_hold_off(struct fq_pread *reader);
void fq_pushed_opened(struct fq_pread *reader, int status, int64_t position_offset, const char *text);
void fq_pushed_closed(struct fq_pread *reader);
void fq_pushed_stopped(struct fq_pread *reader, const struct fq_push_stopped *msg);

/* reader.c, for segments.c, fetch.c and walk.c */
void fq_pread_set_state(struct fq_pread *reader, enum fq_reader_state state);
/* What a refusal means, of READER_OPEN and of SEGMENT_OPEN. */
void fq_pread_refused(struct fq_pread *reader, int code, const char *text);
void fq_pread_set_condition(struct fq_pread *reader, int code, int64_t end);
void fq_pread_drop_segment(struct fq_pread *reader);
void fq_pread_drop_bytes(struct fq_pread *reader);
void fq_pread_drop_batch(struct fq_pread *reader);
/* Opens the reader anew (moved, another generation). */
void fq_pread_reopen(struct fq_pread *reader);
/* The same after a pause: what is in the way passes by itself, and the user is told nothing. */
void fq_pread_retry(struct fq_pread *reader);

/* Reads on at `offset`, pushed to or pulling; from OPENING, SEEKING, READING and PUSH_CLOSING. */
void fq_pread_begin_at(struct fq_pread *reader, int64_t offset);
void fq_pread_drop_chunk(struct fq_chunk *chunk);

/* segments.c. SEGMENT_OPEN; from OPENING, SEEKING and READING. */
void fq_pread_ask_segment(struct fq_pread *reader, int64_t offset);
/* The next batch is in another segment, or has to be found anew: SEGMENT_OPEN at next_offset. */
void fq_pread_find_segment(struct fq_pread *reader);
/* To where the application wants to be, from READING or SEEKING. */
void fq_pread_go_to_position(struct fq_pread *reader);
/* What stands at next_position is not the batch that must be there. */
void fq_pread_doubt(struct fq_pread *reader);

/* fetch.c: brings the next chunk. 1: a chunk is there; 0: it will come, or nothing is there now. */
int fq_fetch_next(struct fq_pread *reader);
/* Looks at the view in memory that can be seen; false: none, or not a good one. */
bool fq_fetch_look(struct fq_pread *reader);
void fq_fetch_abandon(struct fq_pread *reader);
/* Frees a fetch whose operations are gone with the connection. */
void fq_fetch_lost(struct fq_fetch *fetch);

/* walk.c: opens the next batch of the chunk. 1: `iter` is at its first record; 0: the chunk has no whole
 * batch; negative: what is there is not the batch expected (FLASHQ_ERR_CORRUPT) or memory is short. */
int fq_walk_open_batch(struct fq_pread *reader);
/* Leaves only the first batch of a chunk that has more. */
void fq_walk_cut_to_one(struct fq_chunk *chunk);
/* How many bytes of the chunk are whole batches, going by their lengths alone; *ret_wanted: how many the
 * batch after them needs, 0 if nothing is known of it. */
size_t fq_walk_whole_bytes(const struct fq_chunk *chunk, size_t *ret_wanted);
/* Passes over damage: the offset and position of the next good batch in the bytes at hand; false: not
 * found there. */
bool fq_walk_find_next(struct fq_pread *reader, int64_t *ret_offset, uint64_t *ret_position);

#endif
