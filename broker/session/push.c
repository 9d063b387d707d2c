/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushing: from the log to the rings of clients. See push.h for the states.
 *
 * Happy path: a round moves the high watermark; every idle push of the partition becomes ready; at
 * the end of the same step, after all acknowledgements, each ready push writes one run of bytes out
 * of the segment and one head with a notify, all of a connection with one doorbell.
 *
 * Why acknowledgements come first: one costs tens of nanoseconds and frees a producer, a run is a
 * copy of up to FQ_PUSH_RUN_BYTES, times the number of subscribers. The shorter work first delays
 * the longer by next to nothing; the other way round a producer would pay for every subscriber.
 *
 * Batches are not looked at: a push begins at a batch, the log has no gaps between batches, and
 * the client finds the next one by itself. So a run may end anywhere: at the credit, the committed
 * position, a segment's end, a bound, or in front of damage.
 *
 * What can fail: the fabric's queue is full (the connection's pushes wait for WRITABLE, or for the
 * completion of their flights); the client lies about what it consumed (its connection ends).
 */
#include "session/push.h"

#include <assert.h>

#include "base/log.h"
#include "storage/log.h"

#define OPS_MAX    128u
#define HEAD_BYTES 32u /* of a head, the words that say something */

_Static_assert(offsetof(struct fq_push_head, reserved) == HEAD_BYTES, "a head is written in one go");

/* ---- chains --------------------------------------------------------------------------------- */

/* The host's turn comes to it, if it can write at all. */
static void enlist(struct fq_pushes *pushes)
{
    if (!pushes->is_blocked && pushes->flights_count < FQ_PUSH_FLIGHTS &&
        pushes->flights_bytes < FQ_PUSH_FLIGHT_BYTES && !fq_chain_is_empty(&pushes->ready) &&
        fq_chain_is_empty(&pushes->link) && pushes->session->state == FQ_SESSION_OPEN) {
        fq_chain_append(&pushes->session->host->pushing, &pushes->link);
    }
}

void fq_push_make_ready(struct fq_push *push)
{
    push->state = FQ_PUSH_READY;
    fq_chain_append(&push->pushes->ready, &push->link);
    enlist(push->pushes);
}

/* ---- where the next byte is ----------------------------------------------------------------- */

/* Damage that is known in the segment, at or behind the position. */
static uint64_t find_damage(const struct fq_push *push, const struct fq_log *log)
{
    int64_t base = fq_segment_base_offset(push->segment);
    int64_t end = fq_segment_end_offset(push->segment);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < fq_log_damage_count(log); i++) {
        const struct fq_damage *damage = fq_log_damage_at(log, i);
        uint64_t from = damage->position > FQ_LIMIT_SEGMENT_HEADER_BYTES
                            ? damage->position - FQ_LIMIT_SEGMENT_HEADER_BYTES
                            : 0;
        uint64_t to = damage->position + damage->bytes;
        to = to > FQ_LIMIT_SEGMENT_HEADER_BYTES ? to - FQ_LIMIT_SEGMENT_HEADER_BYTES : 0;
        if (damage->first_offset >= base && damage->first_offset < end && to > push->position &&
            from < first) {
            first = from;
        }
    }
    return first < push->position ? push->position : first;
}

void fq_push_enter(struct fq_push *push, struct fq_segment *segment, uint64_t position)
{
    struct fq_log *log = fq_partition_log(push->reader->hosted->partition);
    fq_segment_pin(segment);
    if (push->segment) {
        fq_segment_unpin(push->segment);
    }
    push->segment = segment;
    push->position = position;
    push->damage_count = fq_log_damage_count(log);
    push->damage_at = push->damage_count > 0 ? find_damage(push, log) : UINT64_MAX;
}

/* The first segment of a partition that had none when the push was opened. */
static int enter_first(struct fq_push *push)
{
    struct fq_segment_open_answer place;
    struct fq_segment *segment = NULL;
    int code = fq_partition_segment_open(push->reader->hosted->partition, push->from_offset,
                                         &segment, &place, NULL);
    if (code == 0 && segment) {
        fq_push_enter(push, segment, place.position);
    }
    return code;
}

/* At the end of a segment that is committed to its last byte: goes on in the next. */
static int enter_next(struct fq_push *push)
{
    struct fq_segment *next = fq_segment_next(push->segment);
    if (!next) {
        return 0;
    }
    if (fq_segment_base_offset(next) != fq_segment_end_offset(push->segment)) {
        return FLASHQ_ERR_CORRUPT; /* a segment between them is lost */
    }
    fq_push_enter(push, next, 0);
    return 0;
}

/* Bytes from the position on that are committed, whole, and in one piece; 0: none now. Negative: there
 * will be none. */
static int64_t available(struct fq_push *push)
{
    struct fq_partition *partition = push->reader->hosted->partition;
    struct fq_log_place end;
    fq_partition_committed_end(partition, &end);
    if (!end.segment) {
        return 0;
    }
    int code = push->segment ? 0 : enter_first(push);
    while (code == 0 && push->segment && push->segment != end.segment &&
           push->position == fq_segment_data_bytes(push->segment)) { /* one may be empty */
        struct fq_segment *left = push->segment;
        code = enter_next(push);
        if (push->segment == left) {
            break;
        }
    }
    if (code != 0 || !push->segment) {
        return code;
    }
    uint64_t limit =
        push->segment == end.segment ? end.position : fq_segment_data_bytes(push->segment);
    struct fq_log *log = fq_partition_log(partition);
    if (push->damage_count != fq_log_damage_count(log)) {
        push->damage_count = fq_log_damage_count(log);
        push->damage_at = find_damage(push, log);
    }
    if (push->position < limit && push->damage_at == push->position) {
        return FLASHQ_ERR_CORRUPT;
    }
    limit = push->damage_at < limit ? push->damage_at : limit;
    return limit > push->position ? (int64_t)(limit - push->position) : 0;
}

static uint64_t credit(const struct fq_push *push)
{
    return push->ring_bytes - (push->tail - push->consumed);
}

void fq_push_settle(struct fq_push *push)
{
    int64_t more = available(push);
    if (push->tail != push->told || (more > 0 && credit(push) > 0)) {
        fq_push_make_ready(push);
    } else if (more > 0) {
        push->state = FQ_PUSH_STALLED;
        fq_chain_remove(&push->link);
        fq_count(push->pushes->session->host->counters, FQ_COUNT_PUSH_STALLED);
    } else if (more < 0 || push->stop_reason != 0) {
        fq_push_stop(push, more < 0 ? (int)more : push->stop_reason);
    } else {
        push->state = FQ_PUSH_IDLE;
        fq_chain_append(&push->reader->hosted->pushes_idle, &push->link);
    }
}

/* ---- flights -------------------------------------------------------------------------------- */

static void take_off(struct fq_push *push, uint64_t bytes)
{
    struct fq_pushes *pushes = push->pushes;
    uint32_t at = (pushes->flights_head + pushes->flights_count++) % FQ_PUSH_FLIGHTS;
    fq_segment_pin(push->segment);
    pushes->flights[at] = (struct fq_flight){.segment = push->segment,
                                             .hosted = push->reader->hosted,
                                             .bytes = bytes,
                                             .cut_at_us = INT64_MAX};
    pushes->flights_bytes += bytes;
    if (fq_chain_is_empty(&pushes->flying)) {
        fq_chain_append(&pushes->session->host->flying, &pushes->flying);
    }
}

static void land(struct fq_pushes *pushes)
{
    struct fq_flight *flight = &pushes->flights[pushes->flights_head];
    fq_segment_unpin(flight->segment);
    pushes->flights_bytes -= flight->bytes;
    pushes->flights_head = (pushes->flights_head + 1) % FQ_PUSH_FLIGHTS;
    if (--pushes->flights_count == 0) {
        fq_chain_remove(&pushes->flying);
        pushes->cut_at_us = INT64_MAX;
    }
}

void fq_pushes_on_completed(struct fq_session *session)
{
    struct fq_pushes *pushes = session->pushes;
    if (pushes && pushes->flights_count > 0) {
        land(pushes);
        enlist(pushes);
    }
}

void fq_pushes_land_all(struct fq_pushes *pushes)
{
    while (pushes->flights_count > 0) {
        land(pushes);
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

/* What goes out with one doorbell. */
struct doorbell {
    struct fq_op ops[OPS_MAX];
    struct fq_push *of[OPS_MAX];
    size_t count;
    uint32_t flights;
    uint64_t bytes;
};

static void add_run(struct doorbell *bell, struct fq_push *push, struct fq_region *region,
                    uint64_t bytes)
{
    uint8_t *file = fq_region_base(region);
    bell->of[bell->count] = push;
    bell->ops[bell->count++] =
        (struct fq_op){.type = FQ_OP_WRITE,
                       .remote = push->ring,
                       .remote_offset = push->tail % push->ring_bytes,
                       .region = region,
                       .local = file + FQ_LIMIT_SEGMENT_HEADER_BYTES + push->position,
                       .length = bytes,
                       .cookie = FQ_PUSH_COOKIE,
                       .signaled = true};
    bell->flights++;
    bell->bytes += bytes;
}

static void add_head(struct doorbell *bell, struct fq_push *push, uint64_t tail)
{
    struct fq_hosted *hosted = push->reader->hosted;
    push->head =
        (struct fq_push_head){.tail = tail,
                              .high_watermark = hosted->high_watermark,
                              .log_start = fq_partition_log_start(hosted->partition),
                              .leader_epoch = fq_partition_leader_epoch(hosted->partition)};
    bell->of[bell->count] = push;
    bell->ops[bell->count++] =
        (struct fq_op){.type = FQ_OP_WRITE_NOTIFY,
                       .remote = push->pushes->heads,
                       .remote_offset = push->line * sizeof(struct fq_push_head),
                       .local = &push->head,
                       .length = HEAD_BYTES,
                       .imm = push->reader->handle};
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The push's share of the doorbell: a run and a head, or what there is of it. */
static int add(struct doorbell *bell, struct fq_push *push, uint64_t *budget)
{
    struct fq_pushes *pushes = push->pushes;
    int64_t more = available(push);
    uint64_t bytes = more > 0 ? (uint64_t)more : 0;
    bytes = least(least(bytes, credit(push)), least(FQ_PUSH_RUN_BYTES, *budget));
    bytes = least(bytes, FQ_PUSH_FLIGHT_BYTES - pushes->flights_bytes - bell->bytes);
    if (bytes > 0) {
        struct fq_err err;
        fq_err_clear(&err);
        struct fq_region *region = fq_segment_region(push->segment, &err);
        if (!region) {
            return err.code != 0 ? err.code : FLASHQ_ERR_NO_MEMORY;
        }
        add_run(bell, push, region, bytes);
        *budget -= bytes;
    }
    if (push->tail + bytes != push->told) {
        add_head(bell, push, push->tail + bytes);
    }
    return 0;
}

/* What the fabric took has happened. */
static void book(struct fq_pushes *pushes, const struct doorbell *bell, size_t taken)
{
    struct fq_counters *counters = pushes->session->host->counters;
    for (size_t i = 0; i < taken; i++) {
        struct fq_push *push = bell->of[i];
        if (bell->ops[i].type == FQ_OP_WRITE) {
            take_off(push, bell->ops[i].length);
            push->position += bell->ops[i].length;
            push->tail += bell->ops[i].length;
            fq_count_add(counters, FQ_COUNT_PUSH_BYTES, (int64_t)bell->ops[i].length);
        } else {
            push->told = push->head.tail;
            fq_count(counters, FQ_COUNT_PUSH_HEADS);
        }
    }
}

static void ring_bell(struct fq_pushes *pushes, const struct doorbell *bell)
{
    struct fq_session *session = pushes->session;
    int taken = bell->count > 0 ? fq_conn_post(session->conn, bell->ops, bell->count) : 0;
    if (taken > 0) {
        book(pushes, bell, (size_t)taken);
    }
    if (taken < 0 && taken != FLASHQ_ERR_AGAIN && taken != FLASHQ_ERR_CLOSED) {
        fq_session_end(session, FQ_COUNT_BAD_WINDOW, "a push cannot be written: %s",
                       fq_err_describe(taken)); /* such as into a ring that was taken back */
    }
    if (taken < (int)bell->count) {
        pushes->is_blocked = true; /* WRITABLE follows, or DISCONNECTED */
        fq_count(session->host->counters, FQ_COUNT_PUSH_BLOCKED);
    }
}

/* One turn of a connection: each ready push once. */
static unsigned write_pushes(struct fq_pushes *pushes, uint64_t *budget)
{
    struct doorbell bell;
    struct fq_chain turn;
    unsigned done = 0;
    bell.count = bell.flights = 0;
    bell.bytes = 0;
    fq_chain_init(&turn);
    while (!fq_chain_is_empty(&pushes->ready) && bell.count + 2 <= OPS_MAX && *budget > 0 &&
           pushes->flights_count + bell.flights < FQ_PUSH_FLIGHTS &&
           pushes->flights_bytes + bell.bytes < FQ_PUSH_FLIGHT_BYTES) {
        struct fq_push *push = fq_chain_item(pushes->ready.next, struct fq_push, link);
        fq_chain_append(&turn, &push->link);
        int code = add(&bell, push, budget);
        if (code != 0) {
            fq_push_stop(push, code);
        }
        done++;
    }
    ring_bell(pushes, &bell);
    while (!fq_chain_is_empty(&turn)) {
        fq_push_settle(fq_chain_item(turn.next, struct fq_push, link));
    }
    return done;
}

unsigned fq_pushes_step(struct fq_session_host *host)
{
    uint64_t budget = FQ_PUSH_STEP_BYTES;
    struct fq_chain turn;
    unsigned done = 0;
    fq_chain_init(&turn);
    fq_chain_append_all(&turn, &host->pushing);
    while (!fq_chain_is_empty(&turn) && budget > 0) {
        struct fq_pushes *pushes = fq_chain_item(turn.next, struct fq_pushes, link);
        fq_chain_remove(&pushes->link);
        if (pushes->session->state != FQ_SESSION_OPEN) {
            continue;
        }
        if (pushes->session->unsent) { /* the answer to PUSH_OPEN may be among it */
            pushes->is_blocked = true;
            continue;
        }
        done += write_pushes(pushes, &budget);
        enlist(pushes);
    }
    fq_chain_append_all(&turn, &host->pushing); /* who had no turn comes first next time */
    fq_chain_append_all(&host->pushing, &turn);
    return done;
}

/* ---- what makes a push go on ---------------------------------------------------------------- */

void fq_pushes_on_advanced(struct fq_hosted *hosted)
{
    while (!fq_chain_is_empty(&hosted->pushes_idle)) {
        fq_push_make_ready(fq_chain_item(hosted->pushes_idle.next, struct fq_push, link));
    }
}

void fq_pushes_on_writable(struct fq_session *session)
{
    if (session->pushes) {
        session->pushes->is_blocked = false;
        enlist(session->pushes);
    }
}

void fq_pushes_on_credit(struct fq_session *session, uint32_t imm)
{
    struct fq_pushes *pushes = session->pushes;
    uint32_t line = FQ_PUSH_CREDIT_LINE(imm);
    if (!pushes || line >= pushes->lines) {
        fq_session_end(session, FQ_COUNT_BAD_NOTIFY,
                       "credit for a push on line %u, of %u that were agreed", line,
                       pushes ? pushes->lines : 0);
        return;
    }
    fq_count(session->host->counters, FQ_COUNT_PUSH_CREDITS);
    struct fq_push *push = pushes->by_line[line];
    if (!push) { /* it has stopped, which the client may not know yet */
        return;
    }
    struct fq_push_credit *lines = fq_region_base(pushes->credits);
    /* The client's memory in all but name: read once. Acquire: what it read in the ring before it
     * gave the credit is read. */
    uint64_t consumed = __atomic_load_n(&lines[line].consumed, __ATOMIC_ACQUIRE);
    if (consumed < push->consumed || consumed > push->told) {
        fq_session_end(session, FQ_COUNT_BAD_CREDIT,
                       "the push on line %u has consumed %llu bytes, says the client, after %llu, "
                       "of %llu",
                       line, (unsigned long long)consumed, (unsigned long long)push->consumed,
                       (unsigned long long)push->told);
        return;
    }
    push->consumed = consumed;
    if (push->state == FQ_PUSH_STALLED && credit(push) > 0) {
        fq_push_make_ready(push);
    }
}
