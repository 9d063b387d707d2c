/* SPDX-License-Identifier: Apache-2.0 */
/* See raw_client.h. */
#include "raw_client.h"

#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "shard.h"
#include "wire/record_batch.h"

#define SOURCE_BYTES (4u << 20)

static void die(const char *what)
{
    (void)fprintf(stderr, "raw_client: %s\n", what);
    abort();
}

/* ---- broker --------------------------------------------------------------------------------- */

void test_broker_prepare(struct test_broker *t)
{
    memset(t, 0, sizeof *t);
    (void)snprintf(t->dir, sizeof t->dir, "/dev/shm/flashq-unit-XXXXXX");
    if (!mkdtemp(t->dir)) {
        die("mkdtemp");
    }
    fq_conf_defaults(&fq_options_table, &t->options);
    (void)snprintf(t->options.data_dir, sizeof t->options.data_dir, "%s/data", t->dir);
    (void)snprintf(t->options.listen_shm, sizeof t->options.listen_shm, "%s/s", t->dir);
    (void)snprintf(t->options.listen_tcp, sizeof t->options.listen_tcp, "127.0.0.1:0");
    t->options.shards = 1;
    t->options.flush = 1; /* pmem, emulated */
    t->options.log_segment_bytes = 2 << 20;
    t->options.log_prepared_bytes = 4 << 20;
    t->options.meta_pool_bytes = 16 << 20;
}

/* One step, or a moment for its threads. */
static void step_broker(struct test_broker *t)
{
    if (t->has_threads) {
        (void)sched_yield();
    } else if (t->broker) {
        (void)fq_broker_step(t->broker, fq_mono_us() + t->ahead_us);
    }
}

/* Nobody is connected yet: other fabrics take the places of a shard's own. */
static int put_faulty(struct test_broker *t, unsigned index, struct fq_err *err)
{
    struct fq_shard *shard = fq_broker_shard(t->broker, index);
    struct epoll_event event = {.events = EPOLLIN};
    for (unsigned i = 0; i < shard->fabrics_count; i++) {
        enum fq_transport transport = fq_fabric_transport(shard->fabrics[i]);
        struct fq_fabric *faulty;
        int code = fq_fabric_faulty_create(transport, NULL, t->faults, &faulty, err);
        if (code != 0) {
            return code;
        }
        fq_fabric_destroy(shard->fabrics[i]);
        shard->fabrics[i] = faulty;
        if (epoll_ctl(shard->epoll_fd, EPOLL_CTL_ADD, fq_fabric_fd(faulty), &event) != 0) {
            die("epoll");
        }
        if (index == 0) {
            t->faulty[transport == FQ_TRANSPORT_TCP] = faulty;
        }
    }
    return 0;
}

int test_broker_try_start(struct test_broker *t, struct fq_err *err)
{
    int code = fq_options_check(&t->options, err);
    if (code == 0) {
        code = fq_broker_open(&t->options, fq_clock_system(), &t->broker, err);
    }
    for (unsigned i = 0; code == 0 && t->faults && i < (unsigned)t->options.shards; i++) {
        code = put_faulty(t, i, err);
    }
    if (code == 0 && t->has_threads) {
        code = fq_broker_start(t->broker, err);
    }
    for (int i = 0; code == 0 && !fq_broker_is_ready(t->broker); i++) {
        step_broker(t);
        if (i > 10000000) {
            die("the broker does not become ready");
        }
    }
    return code;
}

void test_broker_start(struct test_broker *t)
{
    struct fq_err err;
    if (test_broker_try_start(t, &err) != 0) {
        die(err.text);
    }
}

void test_broker_begin(struct test_broker *t)
{
    test_broker_prepare(t);
    test_broker_start(t);
}

void test_broker_stop(struct test_broker *t)
{
    fq_broker_stop(t->broker);
    fq_broker_close(t->broker);
    t->broker = NULL;
}

void test_broker_forget(struct test_broker *t)
{
    fq_broker_close(t->broker);
    t->broker = NULL;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void test_broker_end(struct test_broker *t)
{
    if (t->broker) {
        test_broker_stop(t);
    }
    (void)nftw(t->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- connection ----------------------------------------------------------------------------- */

static void keep(struct raw_client *c, const struct fq_event *event)
{
    struct raw_message *m = malloc(sizeof *m + event->length);
    if (!m) {
        die("memory");
    }
    m->next = NULL;
    m->length = event->length;
    memcpy(m->bytes, event->data, event->length);
    if (fq_msg_decode(m->bytes, m->length, &m->msg, NULL) != 0) {
        die("the broker sent something that is no message");
    }
    struct raw_message **end = &c->inbox;
    while (*end) {
        end = &(*end)->next;
    }
    *end = m;
}

static void on_event(struct raw_client *c, const struct fq_event *event)
{
    switch (event->type) {
    case FQ_EVENT_CONNECTED: c->is_connected = true; break;
    case FQ_EVENT_DISCONNECTED:
        c->disconnect_status = event->status;
        (void)snprintf(c->disconnect_text, sizeof c->disconnect_text, "%s",
                       event->text ? event->text : "");
        fq_conn_close(c->conn);
        c->conn = NULL;
        c->views = c->window = NULL;
        c->acks_window = c->heads_window = NULL;
        c->credits = NULL;
        break;
    case FQ_EVENT_MESSAGE: keep(c, event); break;
    case FQ_EVENT_NOTIFY:
        if (c->notifies_count < sizeof c->notifies / sizeof c->notifies[0]) {
            c->notifies[c->notifies_count++] = event->imm;
        }
        break;
    case FQ_EVENT_COMPLETED:
    case FQ_EVENT_WRITABLE: break;
    }
}

void raw_pump(struct raw_client *c)
{
    for (int i = 0; i < 4; i++) {
        struct fq_event events[64];
        step_broker(c->t);
        int count = fq_fabric_poll(c->fabric, events, 64);
        for (int e = 0; e < count; e++) {
            on_event(c, &events[e]);
        }
    }
}

void raw_pump_or_abort(struct raw_client *c, int tries, const char *what)
{
    if (tries > 20000) {
        (void)fprintf(stderr, "raw_client: waited in vain for: %s\n", what);
        abort();
    }
    if (tries > 200) {
        (void)poll(NULL, 0, 1);
    }
    raw_pump(c);
}

static const struct fq_endpoint *endpoint_of(const struct test_broker *t,
                                             enum fq_transport transport)
{
    const struct fq_endpoint *endpoint;
    for (unsigned i = 0; (endpoint = fq_broker_endpoint(t->broker, i)); i++) {
        if (endpoint->transport == transport) {
            return endpoint;
        }
    }
    die("no such listener");
    return NULL;
}

void raw_connect(struct raw_client *c, struct test_broker *t, enum fq_transport transport)
{
    struct fq_err err;
    uint8_t hello[FQ_HELLO_WIRE_BYTES];
    memset(c, 0, sizeof *c);
    c->t = t;
    fq_hello_encode(hello, &(struct fq_hello){.version_min = FQ_PROTOCOL_VERSION_MIN,
                                              .version_max = FQ_PROTOCOL_VERSION_MAX});
    struct fq_connect_params params = {.endpoint = endpoint_of(t, transport),
                                       .shard = FQ_SHARD_ANY,
                                       .hello = hello,
                                       .hello_bytes = sizeof hello,
                                       .deadline_us = fq_mono_us() + 5000000};
    struct fq_fabric_params fabric_params = {.connections_max = 0};
    if (fq_fabric_create(transport, &fabric_params, &c->fabric, &err) != 0 ||
        fq_conn_open(c->fabric, &params, &c->conn, &err) != 0) {
        die(err.text);
    }
    RAW_UNTIL(c, c->is_connected || !c->conn);
}

static void free_inbox(struct raw_client *c)
{
    while (c->inbox) {
        struct raw_message *next = c->inbox->next;
        free(c->inbox);
        c->inbox = next;
    }
    free(c->last);
    c->last = NULL;
}

void raw_close(struct raw_client *c)
{
    fq_conn_close(c->conn);
    c->conn = NULL;
    free_inbox(c);
    fq_region_unref(c->acks);
    fq_region_unref(c->source);
    fq_region_unref(c->heads);
    fq_fabric_destroy(c->fabric);
    for (int i = 0; i < 20; i++) {
        step_broker(c->t);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

uint32_t raw_send(struct raw_client *c, const void *bytes, size_t length)
{
    if (c->conn && fq_conn_send(c->conn, bytes, length) < 0) {
        die("send");
    }
    return c->correlation;
}

/* Takes the first message that fits out of the inbox. */
static struct raw_message *take(struct raw_client *c, bool is_answer, uint32_t correlation,
                                uint16_t type)
{
    for (struct raw_message **at = &c->inbox; *at; at = &(*at)->next) {
        struct raw_message *m = *at;
        if (m->msg.is_answer == is_answer &&
            (is_answer ? m->msg.correlation == correlation : m->msg.type == type)) {
            *at = m->next;
            return m;
        }
    }
    return NULL;
}

const struct fq_msg *raw_ask(struct raw_client *c, const uint8_t *bytes, int64_t length)
{
    struct fq_msg request;
    if (length <= 0 || fq_msg_decode(bytes, (size_t)length, &request, NULL) != 0) {
        die("a request that cannot be encoded");
    }
    raw_send(c, bytes, (size_t)length);
    free(c->last);
    c->last = NULL;
    RAW_UNTIL(c, (c->last = take(c, true, request.correlation, 0)) != NULL || !c->conn);
    return c->last ? &c->last->msg : NULL;
}

const struct fq_msg *raw_next_event(struct raw_client *c, uint16_t type)
{
    free(c->last);
    c->last = NULL;
    for (int i = 0; i < 50 && !c->last; i++) {
        raw_pump(c);
        c->last = take(c, false, 0, type);
    }
    return c->last ? &c->last->msg : NULL;
}

void raw_session(struct raw_client *c)
{
    uint8_t out[512];
    struct fq_err err;
    struct fq_session_open open = {.client_id = fq_str_of("test", 4),
                                   .software = fq_str_of("raw", 3)};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_session_open(out, sizeof out, ++c->correlation, &open));
    if (!answer || answer->status != 0 ||
        fq_decode_session_open_answer(answer, &c->session, &err) != 0 ||
        fq_remote_open(c->conn, c->session.views_token, FQ_RIGHT_READ, &c->views, &err) != 0) {
        die("SESSION_OPEN");
    }
}

int raw_create_topic(struct raw_client *c, const char *name, uint32_t partitions,
                     const struct fq_config_pair *pairs, size_t pairs_count, struct fq_uuid *ret,
                     struct fq_err *err)
{
    uint8_t out[4096], list[2048];
    struct fq_topic_create_answer created;
    struct fq_topic_create create = {.name = fq_str_of(name, strlen(name)),
                                     .partitions = partitions};
    (void)fq_config_pairs_list(list, sizeof list, pairs, pairs_count, &create.configs);
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_topic_create(out, sizeof out, ++c->correlation, &create));
    if (!answer) {
        return FLASHQ_ERR_CLOSED;
    }
    if (answer->status != 0) {
        return fq_msg_error(answer, err);
    }
    int code = fq_decode_topic_create_answer(answer, &created, err);
    if (ret) {
        *ret = created.id;
    }
    return code;
}

int raw_delete_topic(struct raw_client *c, const char *name, struct fq_err *err)
{
    uint8_t out[512];
    struct fq_topic_name body = {.name = fq_str_of(name, strlen(name))};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_topic_delete(out, sizeof out, ++c->correlation, &body));
    return !answer ? FLASHQ_ERR_CLOSED : answer->status != 0 ? fq_msg_error(answer, err) : 0;
}

/* ---- producing ------------------------------------------------------------------------------ */

void raw_ring(struct raw_client *c, uint32_t entries)
{
    uint8_t out[512];
    struct fq_err err;
    struct fq_ring_open open = {.entries = entries};
    c->entries = entries;
    if (fq_region_create(sizeof(struct fq_ack_head) + entries * sizeof(struct fq_ack_entry), 0,
                         &c->acks, &err) != 0 ||
        fq_region_create(SOURCE_BYTES, FQ_REGION_LOCAL, &c->source, &err) != 0 ||
        fq_window_grant(c->conn, c->acks, 0, fq_region_bytes(c->acks), FQ_RIGHT_WRITE,
                        &c->acks_window, open.ack_token, &err) != 0) {
        die(err.text);
    }
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_ring_open(out, sizeof out, ++c->correlation, &open));
    if (!answer || answer->status != 0 || fq_decode_ring_open_answer(answer, &c->ring, &err) != 0 ||
        fq_remote_open(c->conn, c->ring.window_token, FQ_RIGHT_WRITE, &c->window, &err) != 0) {
        die("RING_OPEN");
    }
}

int raw_producer_open(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                      int64_t producer_id, struct fq_producer_open_answer *ret, struct fq_err *err)
{
    uint8_t out[512];
    struct fq_producer_open open = {
        .topic_id = *topic, .partition = partition, .producer_id = producer_id};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_producer_open(out, sizeof out, ++c->correlation, &open));
    if (!answer) {
        return FLASHQ_ERR_CLOSED;
    }
    return answer->status != 0 ? fq_msg_error(answer, err)
                               : fq_decode_producer_open_answer(answer, ret, err);
}

size_t raw_batch(uint8_t *out, size_t capacity, int64_t producer_id, int32_t sequence, int count,
                 int64_t timestamp_ms, const char *value)
{
    struct fq_batch_builder builder;
    fq_batch_builder_init(&builder, out, capacity);
    for (int i = 0; i < count; i++) {
        struct fq_record_in record = {
            .timestamp_ms = timestamp_ms,
            .value = {.data = (const uint8_t *)value, .length = strlen(value)}};
        if (fq_batch_builder_append(&builder, &record) != 0) {
            die("a batch that does not fit");
        }
    }
    struct fq_batch_finish how = {.producer_id = sequence < 0 ? -1 : producer_id,
                                  .producer_epoch = sequence < 0 ? -1 : 0,
                                  .base_sequence = sequence};
    return (size_t)fq_batch_builder_finish(&builder, &how);
}

void raw_write(struct raw_client *c, uint32_t slot, const void *bytes, size_t length)
{
    uint64_t at = c->written % c->ring.window_bytes;
    uint8_t *source = fq_region_base(c->source);
    memcpy(source, bytes, length);
    struct fq_op ops[2] = {{.type = FQ_OP_WRITE,
                            .remote = c->window,
                            .remote_offset = at,
                            .region = c->source,
                            .local = source,
                            .length = length},
                           {.type = FQ_OP_WRITE_NOTIFY, .imm = slot}};
    for (size_t done = 0; done < 2 && c->conn;) {
        int posted = fq_conn_post(c->conn, ops + done, 2 - done);
        if (posted < 0) {
            die("post");
        }
        done += (size_t)posted;
        raw_pump(c); /* the source is used again for the next */
    }
    c->written += length;
}

void raw_produce(struct raw_client *c, uint32_t slot, int64_t producer_id, int32_t sequence,
                 int count, const char *value)
{
    static uint8_t batch[2 << 20];
    size_t length =
        raw_batch(batch, sizeof batch, producer_id, sequence, count, fq_wall_ms(), value);
    raw_write(c, slot, batch, length);
}

static uint64_t ack_tail(const struct raw_client *c)
{
    const _Atomic uint64_t *tail = fq_region_base(c->acks);
    return atomic_load_explicit(tail, memory_order_acquire);
}

uint64_t raw_consumed(const struct raw_client *c)
{
    const struct fq_ack_head *head = fq_region_base(c->acks);
    return head->consumed;
}

struct fq_ack_entry raw_ack(struct raw_client *c)
{
    struct fq_ack_entry entry;
    RAW_UNTIL(c, !c->conn || ack_tail(c) > c->acks_seen);
    if (!c->conn) {
        die("the connection ended before an acknowledgement came");
    }
    const uint8_t *entries = (const uint8_t *)fq_region_base(c->acks) + sizeof(struct fq_ack_head);
    memcpy(&entry, entries + c->acks_seen % c->entries * sizeof entry, sizeof entry);
    c->acks_seen++;
    return entry;
}

/* ---- consuming ------------------------------------------------------------------------------ */

int raw_reader_open(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                    struct fq_reader_open_answer *ret, struct fq_err *err)
{
    uint8_t out[256];
    struct fq_reader_open open = {.topic_id = *topic, .partition = partition};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_reader_open(out, sizeof out, ++c->correlation, &open));
    if (!answer) {
        return FLASHQ_ERR_CLOSED;
    }
    return answer->status != 0 ? fq_msg_error(answer, err)
                               : fq_decode_reader_open_answer(answer, ret, err);
}

int raw_segment_open(struct raw_client *c, uint32_t reader, int64_t offset,
                     struct fq_segment_open_answer *ret, struct fq_err *err)
{
    uint8_t out[256];
    struct fq_segment_open open = {.reader = reader, .offset = offset};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_segment_open(out, sizeof out, ++c->correlation, &open));
    if (!answer) {
        return FLASHQ_ERR_CLOSED;
    }
    return answer->status != 0 ? fq_msg_error(answer, err)
                               : fq_decode_segment_open_answer(answer, ret, err);
}

void raw_arm(struct raw_client *c, uint32_t reader, int64_t offset)
{
    uint8_t out[256];
    struct fq_reader_arm arm = {.reader = reader, .offset = offset};
    int64_t length = fq_encode_reader_arm(out, sizeof out, ++c->correlation, &arm);
    raw_send(c, out, (size_t)length);
    raw_pump(c);
}

bool raw_was_notified(struct raw_client *c, uint32_t imm)
{
    for (size_t i = 0; i < c->notifies_count; i++) {
        if (c->notifies[i] == imm) {
            c->notifies[i] = c->notifies[--c->notifies_count];
            return true;
        }
    }
    return false;
}

struct fq_view raw_view(struct raw_client *c, uint32_t line)
{
    struct fq_view view;
    const uint8_t *map = fq_remote_map(c->views);
    if (!map) {
        die("views are read in place over shm only");
    }
    memcpy(&view, map + line * sizeof view, sizeof view);
    if (fq_crc32c(0, &view, sizeof view - sizeof view.crc) != view.crc) {
        die("a view whose checksum does not fit, with nobody writing");
    }
    return view;
}

int raw_trim(struct raw_client *c, const char *topic, uint32_t partition, int64_t before,
             int64_t *ret_start, struct fq_err *err)
{
    uint8_t out[512];
    struct fq_trim_answer trimmed;
    struct fq_trim body = {
        .name = fq_str_of(topic, strlen(topic)), .partition = partition, .before_offset = before};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_trim(out, sizeof out, ++c->correlation, &body));
    if (!answer || answer->status != 0) {
        return answer ? fq_msg_error(answer, err) : FLASHQ_ERR_CLOSED;
    }
    int code = fq_decode_trim_answer(answer, &trimmed, err);
    *ret_start = trimmed.log_start;
    return code;
}

/* ---- being pushed to ------------------------------------------------------------------------ */

int raw_push_setup(struct raw_client *c, uint32_t lines, struct fq_err *err)
{
    uint8_t out[256];
    struct fq_push_setup setup = {.lines = lines};
    size_t bytes = (lines > 0 ? lines : 1) * sizeof(struct fq_push_head);
    if (!c->heads && (fq_region_create(bytes, 0, &c->heads, err) != 0 ||
                      fq_window_grant(c->conn, c->heads, 0, fq_region_bytes(c->heads),
                                      FQ_RIGHT_WRITE, &c->heads_window, setup.heads_token, err) != 0)) {
        die(err->text);
    }
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_push_setup(out, sizeof out, ++c->correlation, &setup));
    if (!answer || answer->status != 0) {
        return answer ? fq_msg_error(answer, err) : FLASHQ_ERR_CLOSED;
    }
    int code = fq_decode_push_setup_answer(answer, &c->pushes, err);
    return code != 0 ? code
                     : fq_remote_open(c->conn, c->pushes.credits_token, FQ_RIGHT_WRITE, &c->credits,
                                      err);
}

int raw_push_open(struct raw_client *c, uint32_t reader, uint32_t line, int64_t offset,
                  uint64_t ring_bytes, struct raw_push *ret, struct fq_err *err)
{
    uint8_t out[256];
    struct fq_push_open_answer opened;
    struct fq_push_open open = {
        .reader = reader, .line = line, .offset = offset, .ring_bytes = ring_bytes};
    *ret = (struct raw_push){.reader = reader, .line = line};
    if (fq_region_create(ring_bytes, FQ_REGION_MIRRORED, &ret->ring, err) != 0 ||
        fq_window_grant(c->conn, ret->ring, 0, fq_region_bytes(ret->ring), FQ_RIGHT_WRITE,
                        &ret->window, open.ring_token, err) != 0) {
        die(err->text);
    }
    if (c->heads && line < fq_region_bytes(c->heads) / sizeof(struct fq_push_head)) {
        memset((struct fq_push_head *)fq_region_base(c->heads) + line, 0,
               sizeof(struct fq_push_head));
    }
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_push_open(out, sizeof out, ++c->correlation, &open));
    int code = !answer               ? FLASHQ_ERR_CLOSED
               : answer->status != 0 ? fq_msg_error(answer, err)
                                     : fq_decode_push_open_answer(answer, &opened, err);
    if (code == 0) {
        ret->position_offset = opened.position_offset;
        return 0;
    }
    if (c->conn) {
        fq_window_revoke(ret->window);
    }
    raw_push_end(ret);
    return code;
}

int raw_push_close(struct raw_client *c, struct raw_push *push)
{
    uint8_t out[64];
    struct fq_push_close body = {.reader = push->reader};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_push_close(out, sizeof out, ++c->correlation, &body));
    if (answer && answer->status == 0) {
        fq_window_revoke(push->window);
        push->window = NULL;
    }
    return answer ? answer->status : FLASHQ_ERR_CLOSED;
}

void raw_push_end(struct raw_push *push)
{
    fq_region_unref(push->ring);
    push->ring = NULL;
}

struct fq_push_head raw_push_head(const struct raw_client *c, uint32_t line)
{
    const struct fq_push_head *at = (struct fq_push_head *)fq_region_base(c->heads) + line;
    struct fq_push_head head = {.tail = __atomic_load_n(&at->tail, __ATOMIC_ACQUIRE)};
    head.high_watermark = __atomic_load_n(&at->high_watermark, __ATOMIC_RELAXED);
    head.log_start = __atomic_load_n(&at->log_start, __ATOMIC_RELAXED);
    head.leader_epoch = __atomic_load_n(&at->leader_epoch, __ATOMIC_RELAXED);
    return head;
}

static void post_one(struct raw_client *c, const struct fq_op *op)
{
    while (c->conn && fq_conn_post(c->conn, op, 1) == FLASHQ_ERR_AGAIN) {
        raw_pump(c);
    }
}

void raw_push_credit(struct raw_client *c, uint32_t line, uint64_t consumed)
{
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY,
                       .remote = c->credits,
                       .remote_offset = line * sizeof(struct fq_push_credit),
                       .local = &consumed,
                       .length = sizeof consumed,
                       .imm = FQ_PUSH_CREDIT_IMM(line)};
    post_one(c, &op);
}

void raw_notify(struct raw_client *c, uint32_t imm)
{
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .imm = imm};
    post_one(c, &op);
}

/* ---- counters ------------------------------------------------------------------------------- */

int64_t raw_counter(struct raw_client *c, const char *name)
{
    uint8_t out[256];
    struct fq_err err;
    struct fq_info_answer page;
    struct fq_counter counter;
    struct fq_info body = {.cursor = fq_str_of("", 0)};
    const struct fq_msg *answer =
        raw_ask(c, out, fq_encode_info(out, sizeof out, ++c->correlation, &body));
    if (!answer || answer->status != 0 || fq_decode_info_answer(answer, &page, &err) != 0) {
        die("INFO");
    }
    while (fq_counters_next(&page.counters, &counter) == 1) {
        if (fq_str_equal(counter.name, fq_str_of(name, strlen(name)))) {
            return counter.value;
        }
    }
    (void)fprintf(stderr, "raw_client: no counter is named %s\n", name);
    abort();
}
