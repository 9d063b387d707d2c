/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread, and clients that speak to it by hand: the producer's side. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "raw_client.h"

static struct fq_uuid must_create(struct raw_client *c, const char *name, uint32_t partitions)
{
    struct fq_uuid id;
    struct fq_err err;
    cr_assert_eq(raw_create_topic(c, name, partitions, NULL, 0, &id, &err), 0, "%s", err.text);
    return id;
}

static uint32_t must_open_producer(struct raw_client *c, const struct fq_uuid *topic,
                                   uint32_t partition, int64_t producer_id)
{
    struct fq_producer_open_answer opened;
    struct fq_err err;
    cr_assert_eq(raw_producer_open(c, topic, partition, producer_id, &opened, &err), 0, "%s",
                 err.text);
    return opened.slot;
}

ParameterizedTestParameters(session, appends_are_acknowledged_in_order)
{
    static enum fq_transport transports[] = {FQ_TRANSPORT_SHM, FQ_TRANSPORT_TCP};
    return cr_make_param_array(enum fq_transport, transports, 2);
}

ParameterizedTest(enum fq_transport *transport, session, appends_are_acknowledged_in_order)
{
    struct test_broker t;
    struct raw_client c;
    test_broker_begin(&t);
    raw_connect(&c, &t, *transport);
    raw_session(&c);
    struct fq_uuid topic = must_create(&c, "events", 3);
    raw_ring(&c, 64);
    uint32_t slots[2] = {must_open_producer(&c, &topic, 0, 7),
                         must_open_producer(&c, &topic, 2, 7)};
    int64_t next_offset[2] = {0, 0};
    for (int i = 0; i < 500; i++) {
        int which = i % 3 == 0;
        raw_produce(&c, slots[which], 7, (int32_t)next_offset[which], 1 + i % 5, "some value");
        struct fq_ack_entry ack = raw_ack(&c);
        cr_assert_eq(ack.status, 0, "batch %d: %s", i, fq_err_name(ack.status));
        cr_assert_eq(ack.slot, slots[which]);
        cr_assert_eq(ack.base_offset, next_offset[which]);
        next_offset[which] += 1 + i % 5;
    }
    cr_assert_eq(raw_counter(&c, "append.batches"), 500);
    cr_assert_eq(raw_counter(&c, "append.records"), next_offset[0] + next_offset[1]);
    raw_close(&c);
    test_broker_end(&t);
}

/* ---- one client, over shm ------------------------------------------------------------------- */

static struct test_broker t;
static struct raw_client c;
static struct fq_uuid topic;

static void begin(void)
{
    test_broker_begin(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    topic = must_create(&c, "t", 1);
    raw_ring(&c, 16);
}

static void end(void)
{
    raw_close(&c);
    test_broker_end(&t);
}

/* Another client, to whom nothing of what the first does may matter. */
static void others_are_served(void)
{
    struct raw_client other;
    raw_connect(&other, &t, FQ_TRANSPORT_TCP);
    raw_session(&other);
    raw_ring(&other, 8);
    uint32_t slot = must_open_producer(&other, &topic, 0, 1000);
    raw_produce(&other, slot, 1000, 0, 1, "fine");
    cr_assert_eq(raw_ack(&other).status, 0);
    raw_close(&other);
}

static void ends_with(const char *what)
{
    RAW_UNTIL(&c, !c.conn);
    const struct fq_msg *goodbye = raw_next_event(&c, FQ_MSG_GOODBYE);
    struct fq_goodbye body;
    struct fq_err err;
    char text[512];
    cr_assert(goodbye, "the broker says why");
    cr_assert_eq(fq_decode_goodbye(goodbye, &body, &err), 0);
    cr_assert(fq_str_copy(body.text, text, sizeof text));
    cr_assert(strstr(text, what), "\"%s\" does not speak of \"%s\"", text, what);
    others_are_served();
}

/* case 27 */
Test(session, a_batch_sent_again_is_stored_once_and_answered_with_its_offset, .init = begin,
     .fini = end)
{
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    raw_produce(&c, slot, 7, 0, 3, "a");
    raw_produce(&c, slot, 7, 3, 2, "b");
    cr_assert_eq(raw_ack(&c).base_offset, 0);
    cr_assert_eq(raw_ack(&c).base_offset, 3);
    raw_produce(&c, slot, 7, 0, 3, "a");
    struct fq_ack_entry ack = raw_ack(&c);
    cr_assert_eq(ack.status, 0);
    cr_assert_eq(ack.flags, FQ_ACK_DUPLICATE);
    cr_assert_eq(ack.base_offset, 0);
    raw_produce(&c, slot, 7, 5, 1, "c");
    cr_assert_eq(raw_ack(&c).base_offset, 5);
    cr_assert_eq(raw_counter(&c, "append.duplicates"), 1);
}

Test(session, a_refused_batch_fails_its_slot_and_no_other, .init = begin, .fini = end)
{
    uint32_t slot = must_open_producer(&c, &topic, 0, 7),
             other = must_open_producer(&c, &topic, 0, 8);
    raw_produce(&c, slot, 7, 5, 1, "out of sequence"); /* an unknown producer starts at 0 */
    raw_produce(&c, slot, 7, 0, 1, "too late");
    raw_produce(&c, other, 8, 0, 1, "unaffected");
    struct fq_ack_entry ack = raw_ack(&c);
    cr_assert_eq(ack.status, FLASHQ_ERR_SEQUENCE);
    cr_assert_eq(ack.detail, 0, "the sequence that was expected");
    cr_assert_eq(ack.notify, 0);
    ack = raw_ack(&c);
    cr_assert_eq(ack.status, FLASHQ_ERR_SLOT_FAILED);
    cr_assert_eq(ack.notify, 1);
    ack = raw_ack(&c);
    cr_assert_eq(ack.slot, other);
    cr_assert_eq(ack.status, 0);
    cr_assert_eq(ack.base_offset, 0);
    cr_assert_eq(raw_consumed(&c), c.written, "refused batches give their room back");
    cr_assert_eq(raw_counter(&c, "append.refused.sequence"), 1);
    cr_assert_eq(raw_counter(&c, "append.refused.slot_failed"), 1);

    /* reopened: a new slot, and the rest can be sent */
    uint32_t again = must_open_producer(&c, &topic, 0, 7);
    cr_assert_neq(again, slot);
    raw_produce(&c, again, 7, 0, 1, "renumbered");
    cr_assert_eq(raw_ack(&c).base_offset, 1);
}

Test(session, a_slot_that_was_closed_is_late_not_wrong, .init = begin, .fini = end)
{
    uint8_t out[64];
    uint32_t slot = must_open_producer(&c, &topic, 0, 7),
             other = must_open_producer(&c, &topic, 0, 8);
    struct fq_slot_ref ref = {.slot = slot};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_producer_close(out, sizeof out, ++c.correlation, &ref));
    cr_assert(answer && answer->status == 0);
    raw_produce(&c, slot, 7, 0, 1, "late");
    raw_produce(&c, other, 8, 0, 1, "after it in the ring");
    cr_assert_eq(raw_ack(&c).status, FLASHQ_ERR_SLOT_FAILED);
    cr_assert_eq(raw_ack(&c).base_offset, 0);
    answer = raw_ask(&c, out, fq_encode_producer_close(out, sizeof out, ++c.correlation, &ref));
    cr_assert_eq(answer->status, FLASHQ_ERR_NOT_FOUND);
}

Test(session, the_ring_is_used_again_and_again, .init = begin, .fini = end)
{
    static uint8_t batch[1 << 20];
    static char value[300001];
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    memset(value, 'v', sizeof value - 1);
    for (int32_t i = 0; i < 60; i++) { /* four times around, at ever other places */
        size_t length = raw_batch(batch, sizeof batch, 7, i, 1, 1000 + i, value + i * 997);
        raw_write(&c, slot, batch, length);
        struct fq_ack_entry ack = raw_ack(&c);
        cr_assert_eq(ack.status, 0, "batch %d: %s", i, fq_err_name(ack.status));
        cr_assert_eq(ack.base_offset, i);
    }
    cr_assert_gt(c.written, 4 * c.ring.window_bytes / 2);
    cr_assert_eq(raw_consumed(&c), c.written);
}

/* ---- misbehaviour: an error to that peer, a counter, nobody else affected (case 33) ---------- */

Test(session, a_lying_length_ends_the_connection, .init = begin, .fini = end)
{
    uint8_t batch[4096];
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    size_t length = raw_batch(batch, sizeof batch, 7, 0, 1, 1000, "x");
    memset(batch + 8, 0x7f, 4);
    raw_write(&c, slot, batch, length);
    ends_with("");
}

Test(session, a_lying_length_on_a_failed_slot_ends_the_connection, .init = begin, .fini = end)
{
    uint8_t batch[4096];
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    raw_produce(&c, slot, 7, 9, 1, "refused");
    cr_assert_eq(raw_ack(&c).status, FLASHQ_ERR_SEQUENCE);
    size_t length = raw_batch(batch, sizeof batch, 7, 0, 1, 1000, "x");
    memset(batch + 8, 0, 4);
    raw_write(&c, slot, batch, length);
    ends_with("length");
}

Test(session, a_notify_for_a_slot_never_given_ends_the_connection, .init = begin, .fini = end)
{
    raw_write(&c, 77, "", 0);
    ends_with("slot 77");
}

Test(session, more_notifies_than_credits_end_the_connection)
{
    struct fq_op ops[64];
    test_broker_begin(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    topic = must_create(&c, "t", 1);
    raw_ring(&c, 4);
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    raw_produce(&c, slot, 7, 0, 1, "x"); /* the same bytes are taken again: all are duplicates */
    for (size_t i = 0; i < 64; i++) {
        ops[i] = (struct fq_op){.type = FQ_OP_WRITE_NOTIFY, .imm = slot};
    }
    cr_assert_eq(fq_conn_post(c.conn, ops, 64), 64);
    RAW_UNTIL(&c, !c.conn);
    others_are_served();
    end();
}

Test(session, a_notify_without_a_ring_ends_the_connection)
{
    test_broker_begin(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    topic = must_create(&c, "t", 1);
    struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY, .imm = 0};
    cr_assert_eq(fq_conn_post(c.conn, &op, 1), 1);
    ends_with("without a ring");
    end();
}

Test(session, nothing_comes_before_session_open)
{
    uint8_t out[256];
    struct raw_client early;
    begin();
    raw_connect(&early, &t, FQ_TRANSPORT_TCP);
    struct fq_metadata body = {.cursor = fq_str_of("", 0)};
    const struct fq_msg *answer =
        raw_ask(&early, out, fq_encode_metadata(out, sizeof out, ++early.correlation, &body));
    cr_assert(answer);
    cr_assert_eq(answer->status, FLASHQ_ERR_PROTOCOL);
    RAW_UNTIL(&early, !early.conn);
    raw_close(&early);
    others_are_served();
    end();
}

Test(session, bytes_that_are_no_message_end_the_connection, .init = begin, .fini = end)
{
    raw_send(&c, "\xff\xff\xff", 3);
    ends_with("");
}

Test(session, a_request_of_a_later_release_is_refused_and_the_session_goes_on, .init = begin,
     .fini = end)
{
    uint8_t out[64];
    int64_t length = fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, ++c.correlation);
    cr_assert_gt(length, 0);
    out[0] = 200; /* the type, little-endian */
    const struct fq_msg *answer = raw_ask(&c, out, length);
    cr_assert(answer);
    cr_assert_eq(answer->status, FLASHQ_ERR_UNSUPPORTED);
    answer = raw_ask(&c, out,
                     fq_encode_empty(out, sizeof out, FQ_MSG_HEARTBEAT, false, ++c.correlation));
    cr_assert(answer);
    cr_assert_eq(answer->status, 0);
}

Test(session, what_cannot_be_opened_says_why, .init = begin, .fini = end)
{
    struct fq_producer_open_answer opened;
    struct fq_err err;
    struct fq_uuid unknown = {{1, 2, 3}};
    cr_assert_eq(raw_producer_open(&c, &unknown, 0, 7, &opened, &err), FLASHQ_ERR_UNKNOWN_TOPIC_ID);
    cr_assert_eq(raw_producer_open(&c, &topic, 1, 7, &opened, &err), FLASHQ_ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "1 partitions"), "%s", err.text);
    uint8_t out[256];
    struct fq_producer_open open = {.topic_id = topic, .producer_id = 7, .mode = 1};
    const struct fq_msg *answer =
        raw_ask(&c, out, fq_encode_producer_open(out, sizeof out, ++c.correlation, &open));
    cr_assert_eq(answer->status, FLASHQ_ERR_INVALID, "a staged topic has no direct slots");
}

Test(session, a_dead_client_leaves_nothing_behind, .init = begin, .fini = end)
{
    struct raw_client dead;
    raw_connect(&dead, &t, FQ_TRANSPORT_SHM);
    raw_session(&dead);
    raw_ring(&dead, 8);
    (void)must_open_producer(&dead, &topic, 0, 9);
    cr_assert_eq(raw_counter(&c, "producers.open"), 1);
    cr_assert_eq(raw_counter(&c, "producers.rings.open"), 2);
    raw_close(&dead);
    RAW_UNTIL(&c, raw_counter(&c, "connections.open") == 1);
    cr_assert_eq(raw_counter(&c, "producers.open"), 0);
    cr_assert_eq(raw_counter(&c, "producers.rings.open"), 1);
}

Test(session, a_stop_says_goodbye_after_the_last_acknowledgement)
{
    begin();
    uint32_t slot = must_open_producer(&c, &topic, 0, 7);
    raw_produce(&c, slot, 7, 0, 1, "last");
    test_broker_stop(&t);
    RAW_UNTIL(&c, !c.conn);
    const struct fq_ack_entry *entry =
        (const void *)((const uint8_t *)fq_region_base(c.acks) + sizeof(struct fq_ack_head));
    cr_assert_eq(entry->status, 0);
    cr_assert_eq(((const struct fq_ack_head *)fq_region_base(c.acks))->tail, 1);
    cr_assert(raw_next_event(&c, FQ_MSG_GOODBYE));
    end();
}

Test(session, the_limit_on_connections_is_named)
{
    struct raw_client first, second;
    test_broker_prepare(&t);
    t.options.connections_max = 1;
    test_broker_start(&t);
    raw_connect(&first, &t, FQ_TRANSPORT_TCP);
    raw_session(&first);
    raw_connect(&second, &t, FQ_TRANSPORT_TCP);
    cr_assert(!second.conn);
    cr_assert_eq(second.disconnect_status, FLASHQ_ERR_LIMIT);
    cr_assert(strstr(second.disconnect_text, "connections.max"), "%s", second.disconnect_text);
    raw_close(&second);
    raw_close(&first);
    raw_connect(&second, &t, FQ_TRANSPORT_TCP);
    cr_assert(second.conn, "the place is free again");
    raw_close(&second);
    test_broker_end(&t);
}
