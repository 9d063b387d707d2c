/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_broker.h. One connection at a time; aborts when the fabric itself fails. */
#include "fake_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "wire/protocol_codec.h"
#include "wire/record_batch.h"

#define WINDOW_BYTES (1u << 20)
#define SLOT 7u

struct side {
    struct fake_broker *f;
    struct fq_fabric *fabric;
    struct fq_conn *conn;
    struct fq_region *views, *window, *source;
    struct fq_window *views_window, *window_window;
    struct fq_remote *acks;
    uint32_t entries;
    uint64_t consumed, told, tail; /* told: the client knows */
    int owes_room;
    int64_t offset;
    uint32_t notify;
    int opens;
};

static void must(int code, const char *what)
{
    if (code != 0) {
        (void)fprintf(stderr, "fake_broker: %s: %s\n", what, fq_err_name(code));
        abort();
    }
}

static void send_answer(struct side *s, const void *bytes, int64_t length)
{
    if (atomic_load(&s->f->lie) == FAKE_GARBAGE_ANSWERS) {
        length--;
    }
    if (s->conn && length > 0) {
        (void)fq_conn_send(s->conn, bytes, (size_t)length);
    }
}

static void answer_session(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[1024];
    struct fq_session_open_answer answer = {.message_max_bytes = 1u << 20, .batch_max_bytes = 1u << 19,
                                            .max_in_flight = 32, .views_count = 1};
    answer.batch_max_bytes = s->f->direct.is_on ? FAKE_DIRECT_BATCH_BYTES : answer.batch_max_bytes;
    must(fq_window_grant(s->conn, s->views, 0, fq_region_bytes(s->views), FQ_RIGHT_READ,
                         &s->views_window, answer.views_token, NULL),
         "views");
    send_answer(s, out, fq_encode_session_open_answer(out, sizeof out, msg->correlation, &answer));
}

static void answer_metadata(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[4096];
    struct fq_page page;
    struct fq_topic_entry topic = {.name = fq_str_of("t", 1), .partitions_total = 1};
    struct fq_partition_entry partition = {.leader = 1};
    topic.append_mode = s->f->direct.is_on ? FQ_APPEND_DIRECT : FQ_APPEND_STAGED;
    must(fq_metadata_answer_begin(&page, out, sizeof out, msg->correlation), "page");
    (void)fq_metadata_answer_add_topic(&page, &topic);
    (void)fq_metadata_answer_add_partition(&page, &partition);
    send_answer(s, out, fq_metadata_answer_finish(&page, (struct fq_str){0}));
}

static void answer_ring(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[256];
    struct fq_ring_open open;
    struct fq_ring_open_answer answer = {.window_bytes = WINDOW_BYTES};
    must(fq_decode_ring_open(msg, &open, NULL), "ring");
    must(fq_remote_open(s->conn, open.ack_token, FQ_RIGHT_WRITE, &s->acks, NULL), "acks");
    must(fq_window_grant(s->conn, s->window, 0, fq_region_bytes(s->window), FQ_RIGHT_WRITE,
                         &s->window_window, answer.window_token, NULL),
         "window");
    uint32_t most = (uint32_t)atomic_load(&s->f->entries_most);
    answer.entries = s->entries = most != 0 && most < open.entries ? most : open.entries;
    s->consumed = s->told = s->tail = 0;
    s->owes_room = 0;
    send_answer(s, out, fq_encode_ring_open_answer(out, sizeof out, msg->correlation, &answer));
}

static void answer_producer(struct side *s, const struct fq_msg *msg)
{
    uint8_t out[256];
    struct fq_producer_open_answer answer = {.slot = SLOT, .last_sequence = -1, .last_offset = -1,
                                             .max_in_flight = 32, .message_max_bytes = 1u << 20};
    int most = atomic_load(&s->f->opens_most);
    if (most != 0 && s->opens == most) {
        send_answer(s, out, fq_encode_error(out, sizeof out, msg->type, msg->correlation, FLASHQ_ERR_BUSY,
                                            "no more slots are opened"));
        return;
    }
    s->opens++;
    s->notify = 0;
    send_answer(s, out, fq_encode_producer_open_answer(out, sizeof out, msg->correlation, &answer));
}

/* The client looks at the tail because of the message. */
static void lie_at_close(struct side *s)
{
    uint8_t *memory = fq_region_base(s->source), out[64];
    struct fq_ack_head head = {.tail = s->tail + 1000, .consumed = s->consumed};
    struct fq_slot_revoked revoked = {.slot = SLOT, .reason = FLASHQ_ERR_OFFLINE};
    memcpy(memory, &head, sizeof head);
    struct fq_op op = {.type = FQ_OP_WRITE, .remote = s->acks, .region = s->source, .local = memory,
                       .length = sizeof head};
    must(fq_conn_post(s->conn, &op, 1) == 1 ? 0 : FLASHQ_ERR_AGAIN, "head");
    send_answer(s, out, fq_encode_slot_revoked(out, sizeof out, 0, &revoked));
}

static void on_message(struct side *s, const struct fq_event *event)
{
    struct fq_msg msg;
    uint8_t out[1024];
    must(fq_msg_decode(event->data, event->length, &msg, NULL), "message");
    switch (msg.type) {
    case FQ_MSG_SESSION_OPEN: answer_session(s, &msg); break;
    case FQ_MSG_METADATA: answer_metadata(s, &msg); break;
    case FQ_MSG_RING_OPEN: answer_ring(s, &msg); break;
    case FQ_MSG_PRODUCER_OPEN:
        if (s->f->direct.is_on) {
            fake_direct_open(&s->f->direct, s->conn, &msg);
        } else {
            answer_producer(s, &msg);
        }
        break;
    case FQ_MSG_HEARTBEAT:
        if (msg.is_answer) {
            atomic_fetch_add(&s->f->direct.beats, 1);
        }
        break;
    default:
        if (s->f->direct.is_on && msg.type == FQ_MSG_PRODUCER_CLOSE) {
            fake_direct_close(&s->f->direct, s->conn, &msg);
            break;
        }
        if (msg.type == FQ_MSG_PRODUCER_CLOSE && atomic_load(&s->f->lies_at_close)) {
            lie_at_close(s);
            break;
        }
        send_answer(s, out, fq_encode_error(out, sizeof out, msg.type, msg.correlation,
                                            FLASHQ_ERR_UNSUPPORTED, "the fake broker does not do that"));
        break;
    }
}

static void write_acks(struct side *s, const struct fq_ack_entry *entry, const struct fq_ack_head *head)
{
    uint8_t *memory = fq_region_base(s->source);
    memcpy(memory, entry, sizeof *entry);
    memcpy(memory + 64, head, sizeof *head);
    struct fq_op ops[2] = {
        {.type = FQ_OP_WRITE, .remote = s->acks, .region = s->source, .local = memory,
         .remote_offset = sizeof *head + ((s->tail - 1) % s->entries) * sizeof *entry,
         .length = sizeof *entry},
        {.type = FQ_OP_WRITE_NOTIFY, .remote = s->acks, .region = s->source, .local = memory + 64,
         .length = sizeof *head, .imm = FQ_ACK_NOTIFY_IMM}};
    (void)fq_conn_post(s->conn, ops, 2);
}

static void take_staged(struct side *s, struct fq_ack_entry *ret)
{
    struct fq_batch_header header;
    const uint8_t *ring = fq_region_base(s->window);
    const uint8_t *batch = ring + s->consumed % WINDOW_BYTES;
    must(fq_batch_header_read(batch, FQ_BATCH_HEADER_BYTES, &header, NULL), "batch");
    must(fq_batch_crc_ok(batch, (size_t)fq_batch_total_bytes(&header)) ? 0 : FLASHQ_ERR_CORRUPT, "crc");
    s->consumed += fq_batch_total_bytes(&header);
    *ret = (struct fq_ack_entry){.slot = SLOT, .base_offset = s->offset, .notify = s->notify++};
    s->offset += header.records_count;
}

static void on_notify(struct side *s, uint32_t imm)
{
    struct fq_ack_entry entry;
    if (s->f->direct.is_on) {
        fake_direct_notify(&s->f->direct, s->conn, imm, &entry);
    } else {
        take_staged(s, &entry);
    }
    s->tail++;
    atomic_fetch_add(&s->f->notifies, 1);
    struct fq_ack_head head = {.tail = s->tail, .consumed = s->consumed};
    switch ((enum fake_lie)atomic_load(&s->f->lie)) {
    case FAKE_HONEST:
    case FAKE_GARBAGE_ANSWERS:
    case FAKE_LIES_COUNT: break;
    case FAKE_SILENT: return;
    case FAKE_TAIL_AHEAD: head.tail += 1000; break;
    case FAKE_TAIL_BACK: head.tail = UINT64_MAX; break;
    case FAKE_CONSUMED_AHEAD: head.consumed += 1; break;
    case FAKE_WRONG_NOTIFY: entry.notify++; break;
    case FAKE_POSITIVE_STATUS: entry.status = 3; break;
    case FAKE_NEGATIVE_OFFSET: entry.base_offset = -5; break;
    case FAKE_OFFLINE: entry.status = FLASHQ_ERR_OFFLINE; break;
    case FAKE_ROOM_APART:
        head.consumed = s->told;
        s->owes_room = 1;
        break;
    case FAKE_REFUSING: entry.status = atomic_load(&s->f->status); break;
    case FAKE_DUPLICATE:
        entry.flags = FQ_ACK_DUPLICATE;
        entry.base_offset = FAKE_DUPLICATE_OFFSET;
        break;
    case FAKE_GARBAGE_MESSAGE: (void)fq_conn_send(s->conn, "nonsense", 8); return;
    }
    s->told = head.consumed;
    write_acks(s, &entry, &head);
}

/* The head alone. */
static void tell_room(struct side *s)
{
    uint8_t *memory = fq_region_base(s->source);
    struct fq_ack_head head = {.tail = s->tail, .consumed = s->consumed};
    s->owes_room = 0;
    memcpy(memory + 64, &head, sizeof head);
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .remote = s->acks, .region = s->source,
                       .local = memory + 64, .length = sizeof head, .imm = FQ_ACK_NOTIFY_IMM};
    (void)fq_conn_post(s->conn, &op, 1);
}

static void drop(struct side *s)
{
    fake_direct_drop(&s->f->direct);
    fq_conn_close(s->conn);
    s->conn = NULL;
    s->acks = NULL;
    s->views_window = s->window_window = NULL;
}

static void accept_one(struct side *s, struct fq_incoming *incoming)
{
    uint8_t reply[FQ_HELLO_REPLY_WIRE_BYTES];
    fq_hello_reply_encode(reply, &(struct fq_hello_reply){.version = 1, .broker_id = 1, .shards_count = 1});
    if (s->conn) {
        drop(s);
    }
    must(fq_fabric_adopt(s->fabric, incoming, reply, sizeof reply, NULL, &s->conn, NULL), "adopt");
    atomic_fetch_add(&s->f->connections, 1);
}

static void step(struct side *s)
{
    struct fq_event events[16];
    struct fq_incoming *incoming;
    if (fq_listener_poll(s->f->listener, &incoming) == 1) {
        accept_one(s, incoming);
    }
    int count = fq_fabric_poll(s->fabric, events, 16);
    for (int i = 0; i < count; i++) {
        if (events[i].conn != s->conn) {
            continue;
        }
        if (events[i].type == FQ_EVENT_MESSAGE) {
            on_message(s, &events[i]);
        } else if (events[i].type == FQ_EVENT_NOTIFY) {
            on_notify(s, events[i].imm);
        } else if (events[i].type == FQ_EVENT_DISCONNECTED) {
            drop(s);
            break;
        }
    }
    if (s->conn && atomic_exchange(&s->f->is_cut, 0)) {
        drop(s);
    }
    if (s->conn && s->owes_room && atomic_load(&s->f->lie) == FAKE_HONEST) {
        tell_room(s);
    }
    if (s->conn && s->f->direct.is_on) {
        fake_direct_step(&s->f->direct, s->conn);
    }
    if (count <= 0) {
        (void)usleep(50);
    }
}

static void *run(void *context)
{
    struct side s = {.f = context};
    must(fq_fabric_create(FQ_TRANSPORT_TCP, NULL, &s.fabric, NULL), "fabric");
    must(fq_region_create(4096, FQ_REGION_PEER_READS, &s.views, NULL), "views");
    must(fq_region_create(WINDOW_BYTES, FQ_REGION_MIRRORED, &s.window, NULL), "window");
    must(fq_region_create(4096, FQ_REGION_LOCAL, &s.source, NULL), "source");
    while (!atomic_load(&s.f->is_ending)) {
        step(&s);
    }
    if (s.conn) {
        drop(&s);
    }
    fq_fabric_destroy(s.fabric);
    fq_region_unref(s.views);
    fq_region_unref(s.window);
    fq_region_unref(s.source);
    return NULL;
}

static void begin(struct fake_broker *f)
{
    struct fq_endpoint endpoint;
    must(fq_endpoint_parse("tcp:127.0.0.1:0", &endpoint, NULL), "endpoint");
    must(fq_listener_open(&(struct fq_listen_params){.endpoint = &endpoint}, &f->listener, NULL),
         "listener");
    (void)fq_endpoint_format(fq_listener_endpoint(f->listener), f->address, sizeof f->address);
    must(pthread_create(&f->thread, NULL, run, f), "thread");
}

void fake_broker_begin(struct fake_broker *f, enum fake_lie lie)
{
    memset(f, 0, sizeof *f);
    atomic_store(&f->lie, lie);
    begin(f);
}

void fake_broker_begin_direct(struct fake_broker *f, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    f->direct.seed = seed;
    fake_direct_begin(&f->direct);
    begin(f);
}

void fake_broker_stop(struct fake_broker *f)
{
    if (!atomic_exchange(&f->is_ending, 1)) {
        (void)pthread_join(f->thread, NULL);
        fq_listener_close(f->listener);
    }
}

void fake_broker_end(struct fake_broker *f)
{
    fake_broker_stop(f);
    fake_direct_end(&f->direct);
}
