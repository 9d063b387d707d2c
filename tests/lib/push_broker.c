/* SPDX-License-Identifier: Apache-2.0 */
/* See push_broker.h. One connection and one push at a time; aborts when the fabric itself fails. */
#include "push_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/protocol_codec.h"
#include "wire/record_batch.h"

#define LOG_BYTES (64u << 20)
#define LINES 1024u
#define SEGMENT 9u
#define SOURCE_BYTES (16u << 20)

struct side {
    struct push_broker *b;
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_region *views, *credits, *source;
    struct fq_remote *heads;
    uint32_t readers, reader;        /* the last number given */
    int64_t armed;                   /* offset; -1: not */
    /* the push */
    bool is_open, is_head_due;
    struct fq_remote *ring;
    uint32_t line;
    uint64_t ring_bytes, tail, consumed, position;
    int64_t told;                    /* the high watermark in the last head */
    size_t source_at;
    int batches;                     /* pushed since it was opened */
    uint32_t close_correlation;      /* held back; 0: none */
};

static void must(int code, const char *what)
{
    if (code != 0) {
        (void)fprintf(stderr, "push_broker: %s: %s\n", what, fq_err_name(code));
        abort();
    }
}

static void answer(struct side *s, const void *bytes, int64_t length)
{
    if (s->conn && length > 0) {
        (void)fq_conn_send(s->conn, bytes, (size_t)length);
    }
}

static void refuse(struct side *s, const struct fq_msg *msg, int code)
{
    uint8_t out[1024];
    answer(s, out, fq_encode_error(out, sizeof out, msg->type, msg->correlation, code, NULL));
}

static bool lies(struct side *s, enum push_lie lie)
{
    return atomic_load(&s->b->lie) == (int)lie && atomic_load(&s->b->lies_left) > 0;
}

static void lied(struct side *s)
{
    atomic_fetch_sub(&s->b->lies_left, 1);
}

/* ---- what every broker does ------------------------------------------------------------------- */

static void publish_view(struct side *s)
{
    static uint32_t version;
    struct fq_view view = {.generation = 1, .segment_id = SEGMENT,
                           .committed_position = s->b->log_bytes, .high_watermark = s->b->end,
                           .version = ++version};
    view.crc = fq_crc32c(0, &view, offsetof(struct fq_view, crc));
    memcpy(fq_region_base(s->views), &view, sizeof view);
}

static void answer_session(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[1024];
    struct fq_window *window;
    struct fq_session_open_answer a = {.message_max_bytes = 1u << 16, .batch_max_bytes = 1u << 16,
                                       .max_in_flight = 32, .views_count = 1};
    must(fq_window_grant(s->conn, s->views, 0, fq_region_bytes(s->views), FQ_RIGHT_READ, &window,
                         a.views_token, NULL),
         "views");
    answer(s, out, fq_encode_session_open_answer(out, sizeof out, msg->correlation, &a));
}

static void answer_metadata(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[4096];
    struct fq_page page;
    struct fq_topic_entry topic = {.name = fq_str_of("t", 1), .partitions_total = 1};
    struct fq_partition_entry partition = {.leader = 1};
    must(fq_metadata_answer_begin(&page, out, sizeof out, msg->correlation), "page");
    (void)fq_metadata_answer_add_topic(&page, &topic);
    (void)fq_metadata_answer_add_partition(&page, &partition);
    answer(s, out, fq_metadata_answer_finish(&page, (struct fq_str){0}));
}

static void answer_reader(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[256];
    s->reader = ++s->readers;
    struct fq_reader_open_answer a = {.reader = s->reader, .view_generation = 1, .end = s->b->end};
    answer(s, out, fq_encode_reader_open_answer(out, sizeof out, msg->correlation, &a));
}

/* The batch that holds an offset, or the end. */
static void find(struct side *s, int64_t offset, uint64_t *ret_position, int64_t *ret_offset)
{
    struct push_broker *b = s->b;
    *ret_position = b->log_bytes;
    *ret_offset = b->end;
    for (size_t i = b->batches_count; i-- > 0 && *ret_offset > offset;) {
        *ret_position = b->batches[i].position;
        *ret_offset = b->batches[i].offset;
    }
}

static void answer_segment(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[512];
    struct fq_segment_open open;
    struct fq_window *window;
    must(fq_decode_segment_open(msg, &open, NULL), "segment");
    atomic_fetch_add(&s->b->segment_opens, 1);
    if (open.offset > s->b->end) {
        refuse(s, msg, FLASHQ_ERR_OUT_OF_RANGE);
        return;
    }
    struct fq_segment_open_answer a = {.segment_id = SEGMENT, .next_base_offset = -1,
                                       .data_bytes = s->b->log_bytes, .window_bytes = LOG_BYTES};
    find(s, open.offset, &a.position, &a.position_offset);
    must(fq_window_grant(s->conn, s->b->log, 0, LOG_BYTES, FQ_RIGHT_READ, &window, a.token, NULL),
         "segment window");
    answer(s, out, fq_encode_segment_open_answer(out, sizeof out, msg->correlation, &a));
}

/* ---- pushing ---------------------------------------------------------------------------------- */

static void answer_setup(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[256];
    struct fq_push_setup setup;
    struct fq_push_setup_answer a = {0};
    struct fq_window *window;
    int code = atomic_load(&s->b->refuse_setup);
    atomic_fetch_add(&s->b->setups, 1);
    if (code != 0) {
        refuse(s, msg, code);
        return;
    }
    must(fq_decode_push_setup(msg, &setup, NULL), "setup");
    must(fq_remote_open(s->conn, setup.heads_token, FQ_RIGHT_WRITE, &s->heads, NULL), "heads");
    a.lines = setup.lines < LINES ? setup.lines : LINES;
    struct fq_region *credits = s->credits, *small = NULL;
    if (lies(s, PUSH_BAD_CREDITS)) {
        must(fq_region_create(4096, 0, &small, NULL), "credits");
        credits = small;
        lied(s);
    } else if (lies(s, PUSH_LINES_MORE)) {
        a.lines = setup.lines + 1;
        lied(s);
    } else if (lies(s, PUSH_LINES_NONE)) {
        a.lines = 0;
        lied(s);
    }
    must(fq_window_grant(s->conn, credits, 0, fq_region_bytes(credits), FQ_RIGHT_WRITE, &window,
                         a.credits_token, NULL),
         "credits");
    fq_region_unref(small);
    answer(s, out, fq_encode_push_setup_answer(out, sizeof out, msg->correlation, &a));
}

static void answer_open(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[256];
    struct fq_push_open open;
    struct fq_push_open_answer a;
    int code = atomic_load(&s->b->refuse_open);
    must(fq_decode_push_open(msg, &open, NULL), "open");
    atomic_fetch_add(&s->b->opens, 1);
    code = code == 0 && open.offset > s->b->end ? FLASHQ_ERR_OUT_OF_RANGE : code;
    if (s->is_open || open.reader != s->reader || open.line >= LINES) {
        atomic_store(&s->b->broke_rules, true);
        code = FLASHQ_ERR_EXISTS;
    }
    if (code != 0) {
        refuse(s, msg, code);
        return;
    }
    must(fq_remote_open(s->conn, open.ring_token, FQ_RIGHT_WRITE, &s->ring, NULL), "ring");
    s->is_open = true;
    s->is_head_due = false;
    s->told = -1;
    s->line = open.line;
    s->ring_bytes = open.ring_bytes;
    s->tail = s->consumed = 0;
    s->batches = 0;
    memset((uint8_t *)fq_region_base(s->credits) + (size_t)s->line * 64, 0, 64);
    find(s, open.offset, &s->position, &a.position_offset);
    if (lies(s, PUSH_OPEN_AHEAD)) {
        a.position_offset = open.offset + 1;
        lied(s);
    } else if (lies(s, PUSH_OPEN_NEGATIVE)) {
        a.position_offset = -7;
        lied(s);
    }
    answer(s, out, fq_encode_push_open_answer(out, sizeof out, msg->correlation, &a));
}

static void end_push(struct side *s)
{
    fq_remote_close(s->ring);
    s->ring = NULL;
    s->is_open = false;
}

static void answer_close(struct side *s, uint32_t correlation)
{
    uint8_t out[64];
    end_push(s);
    atomic_fetch_add(&s->b->closes, 1);
    answer(s, out, fq_encode_empty(out, sizeof out, FQ_MSG_PUSH_CLOSE, true, correlation));
}

static void write_ring(struct side *s, const uint8_t *from, uint64_t length)
{
    while (length > 0) {
        size_t part = length < (1u << 20) ? (size_t)length : 1u << 20;
        s->source_at = s->source_at + part > SOURCE_BYTES ? 0 : s->source_at;
        uint8_t *memory = (uint8_t *)fq_region_base(s->source) + s->source_at;
        s->source_at += part; /* used again long after it was sent */
        memcpy(memory, from, part);
        struct fq_op op = {.type = FQ_OP_WRITE, .remote = s->ring, .remote_offset = s->tail % s->ring_bytes,
                           .region = s->source, .local = memory, .length = part, .signaled = true};
        while (fq_conn_post(s->conn, &op, 1) == FLASHQ_ERR_AGAIN) {
            struct fq_event event;
            (void)fq_fabric_poll(s->fabric, &event, 0);
        }
        s->tail += part;
        from += part;
        length -= part;
    }
}

static void write_head(struct side *s, uint64_t tail)
{
    struct fq_push_head head = {.tail = tail, .high_watermark = s->b->end};
    if (lies(s, PUSH_LOW_WATERMARK)) {
        head.high_watermark = 0;
    } else if (lies(s, PUSH_BAD_EPOCH)) {
        head.leader_epoch = -5;
    }
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .remote = s->heads,
                       .remote_offset = (uint64_t)s->line * 64, .local = &head, .length = 64,
                       .imm = s->reader};
    s->told = head.high_watermark;
    s->is_head_due = fq_conn_post(s->conn, &op, 1) != 1; /* no room: told in the next step */
}

/* One batch told wrongly. true: it was. */
static bool write_lie(struct side *s, const uint8_t *batch, uint64_t length)
{
    uint8_t copy[1u << 16];
    int lie = atomic_load(&s->b->lie);
    if (lie == PUSH_HONEST || atomic_load(&s->b->lies_left) <= 0 || length > sizeof copy ||
        s->batches < atomic_load(&s->b->lie_after)) {
        return false;
    }
    memcpy(copy, batch, (size_t)length);
    switch (lie) {
    case PUSH_TAIL_BACK: s->tail--; break;
    case PUSH_TAIL_AHEAD: s->tail = s->consumed + 2 * s->ring_bytes + 1; break;
    case PUSH_TAIL_WRAPPED: s->tail = UINT64_MAX - 3; break;
    case PUSH_FLIPPED:
        copy[length - 1] ^= 1;
        write_ring(s, copy, length);
        break;
    case PUSH_GAP: break;
    case PUSH_TWICE:
        write_ring(s, copy, length);
        write_ring(s, copy, length);
        break;
    case PUSH_ZEROES: s->tail += length; break;
    case PUSH_HUGE_LENGTH:
        fq_store_be32(copy + FQ_BATCH_LENGTH, (uint32_t)s->ring_bytes + 1);
        write_ring(s, copy, length);
        break;
    case PUSH_TINY_LENGTH:
        fq_store_be32(copy + FQ_BATCH_LENGTH, 10);
        write_ring(s, copy, length);
        break;
    default: return false;
    }
    lied(s);
    bool is_end = lie == PUSH_TAIL_BACK || lie == PUSH_TAIL_AHEAD || lie == PUSH_TAIL_WRAPPED;
    s->position = is_end ? UINT64_MAX : s->position + length;
    s->batches++;
    return true;
}

static uint64_t batch_bytes(const uint8_t *batch)
{
    return fq_load_be32(batch + FQ_BATCH_LENGTH) + 12u;
}

/* Writes what there is credit for; true if anything. */
static bool pump(struct side *s)
{
    struct push_broker *b = s->b;
    const uint8_t *log = fq_region_base(b->log);
    if (!s->is_open || atomic_load(&b->is_stalled) || atomic_load(&b->is_mute) ||
        s->position >= b->log_bytes) {
        return false;
    }
    const uint8_t *at = log + s->position;
    uint64_t room = s->ring_bytes - (s->tail - s->consumed), there = b->log_bytes - s->position;
    uint64_t chunk = atomic_load(&b->chunk), length = there < room ? there : room;
    length = chunk && chunk < length ? chunk : length;
    int lie = atomic_load(&b->lie);
    if (lie != PUSH_HONEST && chunk == 0) { /* batch by batch, so that one can be told wrongly */
        length = batch_bytes(at);
        if ((lie == PUSH_TWICE ? 2 * length : length) > room) {
            return false;
        }
    }
    if (length == 0) {
        return false;
    }
    if (lie == PUSH_HONEST || chunk != 0 || !write_lie(s, at, length)) {
        write_ring(s, at, length);
        s->position += length;
        s->batches++;
    }
    write_head(s, s->tail);
    return true;
}

static void say_stopped(struct side *s, uint32_t reader, int32_t reason)
{
    uint8_t out[128];
    struct fq_push_stopped stopped = {.reader = reader, .reason = reason, .end = s->b->end};
    answer(s, out, fq_encode_push_stopped(out, sizeof out, 0, &stopped));
}

static void take_credit(struct side *s, uint32_t imm)
{
    uint64_t consumed;
    const uint8_t *line = (uint8_t *)fq_region_base(s->credits) + (size_t)FQ_PUSH_CREDIT_LINE(imm) * 64;
    if (!FQ_PUSH_IS_CREDIT_IMM(imm) || !s->is_open || FQ_PUSH_CREDIT_LINE(imm) != s->line) {
        return;
    }
    memcpy(&consumed, line, sizeof consumed);
    if (consumed < s->consumed || consumed > s->tail) {
        atomic_store(&s->b->broke_rules, true);
    }
    s->consumed = consumed;
    atomic_fetch_add(&s->b->credits, 1);
    atomic_store(&s->b->consumed, consumed);
}

/* ---- the thread ------------------------------------------------------------------------------- */

static void on_message(struct side *s, const struct fq_event *event)
{
    struct fq_msg msg;
    struct fq_reader_arm arm;
    uint8_t out[64];
    must(fq_msg_decode(event->data, event->length, &msg, NULL), "message");
    switch (msg.type) {
    case FQ_MSG_SESSION_OPEN: answer_session(s, &msg); break;
    case FQ_MSG_METADATA: answer_metadata(s, &msg); break;
    case FQ_MSG_READER_OPEN: answer_reader(s, &msg); break;
    case FQ_MSG_SEGMENT_OPEN: answer_segment(s, &msg); break;
    case FQ_MSG_READER_ARM:
        must(fq_decode_reader_arm(&msg, &arm, NULL), "arm");
        s->armed = arm.offset;
        break;
    case FQ_MSG_PUSH_SETUP: answer_setup(s, &msg); break;
    case FQ_MSG_PUSH_OPEN: answer_open(s, &msg); break;
    case FQ_MSG_PUSH_CLOSE:
        if (atomic_load(&s->b->holds_closes)) {
            s->close_correlation = msg.correlation;
        } else {
            answer_close(s, msg.correlation);
        }
        break;
    case FQ_MSG_READER_CLOSE:
    case FQ_MSG_SEGMENT_CLOSE:
        answer(s, out, fq_encode_empty(out, sizeof out, msg.type, true, msg.correlation));
        break;
    default: refuse(s, &msg, FLASHQ_ERR_UNSUPPORTED); break;
    }
}

static void drop(struct side *s)
{
    fq_conn_close(s->conn);
    s->conn = NULL;
    s->heads = s->ring = NULL;
    s->is_open = false;
    s->armed = -1;
    s->close_correlation = 0;
}

static void accept_one(struct side *s, struct fq_incoming *incoming)
{
    uint8_t reply[FQ_HELLO_REPLY_WIRE_BYTES];
    fq_hello_reply_encode(reply, &(struct fq_hello_reply){.version = 1, .broker_id = 1, .shards_count = 1});
    if (s->conn) {
        drop(s);
    }
    must(fq_fabric_adopt(s->fabric, incoming, reply, sizeof reply, NULL, &s->conn, NULL), "adopt");
    atomic_fetch_add(&s->b->connections, 1);
}

static void act(struct side *s)
{
    struct push_broker *b = s->b;
    publish_view(s);
    if (s->armed >= 0 && b->end > s->armed) {
        struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .imm = s->reader};
        s->armed = -1;
        (void)fq_conn_post(s->conn, &op, 1);
    }
    if (s->is_open && s->is_head_due) {
        write_head(s, s->tail);
    }
    if (s->is_open && atomic_load(&b->is_mute) && s->told != b->end) {
        write_head(s, s->tail);
    }
    for (int i = 0; i < 64 && pump(s); i++) {
    }
    if (s->close_correlation != 0 && !atomic_load(&b->holds_closes)) {
        answer_close(s, s->close_correlation);
        s->close_correlation = 0;
    }
    int reason = atomic_load(&b->stop_reason);
    if (reason != 0 && s->is_open && s->close_correlation == 0) {
        atomic_store(&b->stop_reason, 0);
        end_push(s);
        say_stopped(s, s->reader, reason);
        atomic_fetch_add(&b->stops, 1);
    }
    if (lies(s, PUSH_STOPPED_GARBAGE) && s->is_open) {
        lied(s);
        say_stopped(s, s->reader + 1000, FLASHQ_ERR_TRIMMED);
        say_stopped(s, UINT32_MAX, 77);
        say_stopped(s, s->reader, 0);
        end_push(s);
    }
}

static void step(struct side *s)
{
    struct fq_event events[16];
    struct fq_incoming *incoming;
    if (fq_listener_poll(s->b->listener, &incoming) == 1) {
        accept_one(s, incoming);
    }
    if (atomic_load(&s->b->is_deaf)) {
        (void)usleep(200);
        return;
    }
    if (s->conn && atomic_load(&s->b->kills)) {
        drop(s);
        atomic_store(&s->b->kills, false);
    }
    int count = fq_fabric_poll(s->fabric, events, 16);
    (void)pthread_mutex_lock(&s->b->lock);
    for (int i = 0; i < count && s->conn; i++) {
        if (events[i].conn != s->conn) {
            continue;
        }
        if (events[i].type == FQ_EVENT_MESSAGE) {
            on_message(s, &events[i]);
        } else if (events[i].type == FQ_EVENT_NOTIFY) {
            take_credit(s, events[i].imm);
        } else if (events[i].type == FQ_EVENT_DISCONNECTED) {
            drop(s);
        }
    }
    if (s->conn) {
        act(s);
    }
    (void)pthread_mutex_unlock(&s->b->lock);
    if (count <= 0) {
        (void)usleep(50);
    }
}

static void *run(void *context)
{
    struct side s = {.b = context, .armed = -1};
    must(fq_fabric_create(s.b->transport, NULL, &s.fabric, NULL), "fabric");
    must(fq_region_create(4096, FQ_REGION_PEER_READS, &s.views, NULL), "views");
    must(fq_region_create(LINES * 64, 0, &s.credits, NULL), "credits");
    must(fq_region_create(SOURCE_BYTES, FQ_REGION_LOCAL, &s.source, NULL), "source");
    while (!atomic_load(&s.b->is_ending)) {
        step(&s);
    }
    if (s.conn) {
        drop(&s);
    }
    fq_fabric_destroy(s.fabric);
    fq_region_unref(s.views);
    fq_region_unref(s.credits);
    fq_region_unref(s.source);
    return NULL;
}

/* ---- what tests call -------------------------------------------------------------------------- */

void push_broker_begin(struct push_broker *b, enum fq_transport transport)
{
    struct fq_endpoint endpoint;
    char text[160] = "tcp:127.0.0.1:0";
    memset(b, 0, sizeof *b);
    b->transport = transport;
    atomic_store(&b->lies_left, 1);
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)snprintf(b->directory, sizeof b->directory, "/tmp/flashq-push-XXXXXX");
    if (transport == FQ_TRANSPORT_SHM) {
        must(mkdtemp(b->directory) ? 0 : FLASHQ_ERR_IO, "directory");
        (void)snprintf(text, sizeof text, "shm:%s/s", b->directory);
    }
    must(fq_region_create(LOG_BYTES, FQ_REGION_PEER_READS, &b->log, NULL), "log");
    must(fq_endpoint_parse(text, &endpoint, NULL), "endpoint");
    must(fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint}, &b->listener, NULL),
         "listener");
    (void)fq_endpoint_format(fq_listener_endpoint(b->listener), b->address, sizeof b->address);
    must(pthread_create(&b->thread, NULL, run, b), "thread");
}

void push_broker_end(struct push_broker *b)
{
    atomic_store(&b->is_ending, 1);
    (void)pthread_join(b->thread, NULL);
    fq_listener_close(b->listener);
    fq_region_unref(b->log);
    (void)pthread_mutex_destroy(&b->lock);
    if (b->transport == FQ_TRANSPORT_SHM) {
        (void)rmdir(b->directory);
    }
}

void push_broker_append(struct push_broker *b, int count, size_t value_bytes)
{
    (void)pthread_mutex_lock(&b->lock);
    struct fq_batch_builder builder;
    uint8_t *at = (uint8_t *)fq_region_base(b->log) + b->log_bytes;
    uint8_t *value = calloc(1, value_bytes + sizeof(int64_t));
    must(value ? 0 : FLASHQ_ERR_NO_MEMORY, "value");
    fq_batch_builder_init(&builder, at, LOG_BYTES - b->log_bytes);
    for (int i = 0; i < count; i++) {
        int64_t number = b->end + i;
        memcpy(value, &number, sizeof number);
        struct fq_record_in in = {.timestamp_ms = 1000 + number,
                                  .value = {value, value_bytes > 8 ? value_bytes : 8}};
        must(fq_batch_builder_append(&builder, &in), "append");
    }
    int64_t bytes = fq_batch_builder_finish(&builder, &(struct fq_batch_finish){.producer_id = -1,
                                                                               .base_sequence = -1});
    must(bytes > 0 ? 0 : (int)bytes, "finish");
    fq_batch_stamp(at, b->end, 0);
    must(b->batches_count < sizeof b->batches / sizeof b->batches[0] ? 0 : FLASHQ_ERR_LIMIT, "batches");
    b->batches[b->batches_count].position = b->log_bytes;
    b->batches[b->batches_count++].offset = b->end;
    b->log_bytes += (uint64_t)bytes;
    b->end += count;
    free(value);
    (void)pthread_mutex_unlock(&b->lock);
}

void push_broker_await(_Atomic int *counter, int least)
{
    for (int i = 0; atomic_load(counter) < least; i++) {
        must(i < 100000 ? 0 : FLASHQ_ERR_TIMED_OUT, "what the test waits for");
        (void)usleep(100);
    }
}
