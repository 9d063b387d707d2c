/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread on a disk whose syncs fail: what its producers and readers hear. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "push_reader.h"
#include "storage/store.h"

static struct test_broker t;
static struct raw_client c;
static struct fq_err err;
static bool is_sync_failing;

/* Instead of the C library's. */
int fdatasync(int fd)
{
    if (is_sync_failing) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

Test(offline, waiting_acks_say_maybe_and_a_new_open_says_offline_and_why)
{
    struct fq_uuid topic;
    struct fq_producer_open_answer waiting, idle, other, again;
    struct fq_reader_open_answer reader;
    struct fq_segment_open_answer segment;
    test_broker_prepare(&t);
    t.options.flush = FQ_FLUSH_SYNC;
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 2, NULL, 0, &topic, &err), 0);
    raw_ring(&c, 16);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &waiting, &err), 0);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 8, &idle, &err), 0);
    cr_assert_eq(raw_producer_open(&c, &topic, 1, 9, &other, &err), 0);
    raw_produce(&c, waiting.slot, 7, 0, 1, "before");
    cr_assert_eq(raw_ack(&c).status, 0);
    raw_produce(&c, other.slot, 9, 0, 1, "before");
    cr_assert_eq(raw_ack(&c).status, 0);

    is_sync_failing = true;
    raw_produce(&c, waiting.slot, 7, 1, 1, "maybe");
    struct fq_ack_entry ack = raw_ack(&c);
    is_sync_failing = false;
    cr_assert_eq(ack.status, FLASHQ_ERR_MAYBE_PERSISTED);
    cr_assert_eq(ack.base_offset, -1);
    raw_produce(&c, idle.slot, 8, 0, 1, "too late");
    cr_assert_eq(raw_ack(&c).status, FLASHQ_ERR_OFFLINE);

    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &again, &err), FLASHQ_ERR_OFFLINE);
    cr_assert_not_null(strstr(err.text, "sync"), "%s", err.text);
    cr_assert_eq(raw_counter(&c, "partitions.offline"), 1);
    cr_assert_eq(raw_counter(&c, "append.maybe_persisted"), 1);

    raw_produce(&c, other.slot, 9, 1, 1, "the other partition is none the worse");
    cr_assert_eq(raw_ack(&c).status, 0);
    cr_assert_eq(raw_reader_open(&c, &topic, 0, &reader, &err), 0);
    cr_assert_eq(reader.end, 1, "what was acknowledged is read, what may be lost is not");
    cr_assert_eq(raw_segment_open(&c, reader.reader, 0, &segment, &err), 0);

    raw_close(&c);
    test_broker_stop(&t);
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    raw_ring(&c, 16);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &again, &err), 0, "a restart brings it back");
    raw_close(&c);
    test_broker_end(&t);
}

/* What is committed is pushed first, however long the subscriber takes; what may be lost is not. */
Test(offline, pushes_are_stopped_once_they_have_all_that_is_committed)
{
    static char value[150001];
    struct fq_uuid topic;
    struct fq_producer_open_answer opened;
    struct push_reader idle, stalled, late;
    struct fq_push_stopped stopped;
    uint64_t length;
    memset(value, 'v', sizeof value - 1);
    test_broker_prepare(&t);
    t.options.flush = FQ_FLUSH_SYNC;
    test_broker_start(&t);
    raw_connect(&c, &t, FQ_TRANSPORT_SHM);
    raw_session(&c);
    cr_assert_eq(raw_create_topic(&c, "t", 1, NULL, 0, &topic, &err), 0);
    raw_ring(&c, 16);
    cr_assert_eq(raw_push_setup(&c, 8, &err), 0, "%s", err.text);
    cr_assert_eq(raw_producer_open(&c, &topic, 0, 7, &opened, &err), 0);
    push_reader_open(&idle, &c, &topic, 0, 0, 0, FQ_LIMIT_PUSH_RING_BYTES_MIN);
    push_reader_open(&stalled, &c, &topic, 0, 1, 0, FQ_LIMIT_PUSH_RING_BYTES_MIN);
    raw_produce(&c, opened.slot, 7, 0, 1, value);
    cr_assert_eq(raw_ack(&c).status, 0);
    uint8_t *log = raw_log_bytes(&c, &topic, 0, 0, &length);
    push_reader_until(&idle, length);

    is_sync_failing = true;
    raw_produce(&c, opened.slot, 7, 1, 1, value);
    cr_assert_eq(raw_ack(&c).status, FLASHQ_ERR_MAYBE_PERSISTED);
    is_sync_failing = false;
    const struct fq_msg *event = raw_next_event(&c, FQ_MSG_PUSH_STOPPED);
    cr_assert(event);
    cr_assert_eq(fq_decode_push_stopped(event, &stopped, &err), 0);
    cr_assert_eq(stopped.reader, idle.push.reader);
    cr_assert_eq(stopped.reason, FLASHQ_ERR_OFFLINE);
    cr_assert_eq(stopped.end, 1);
    cr_assert_null(raw_next_event(&c, FQ_MSG_PUSH_STOPPED), "the other one has not got it all");
    cr_assert_eq(push_reader_take(&idle), 0);
    push_reader_until(&stalled, length);
    event = raw_next_event(&c, FQ_MSG_PUSH_STOPPED);
    cr_assert(event);
    cr_assert_eq(fq_decode_push_stopped(event, &stopped, &err), 0);
    cr_assert_eq(stopped.reader, stalled.push.reader);
    cr_assert_eq(memcmp(idle.bytes, log, length), 0);
    cr_assert_eq(memcmp(stalled.bytes, log, length), 0);
    cr_assert_eq(stalled.seen, length);

    push_reader_open(&late, &c, &topic, 0, 2, 0, FQ_LIMIT_PUSH_RING_BYTES_MIN);
    push_reader_until(&late, length);
    cr_assert_eq(memcmp(late.bytes, log, length), 0);
    cr_assert(raw_next_event(&c, FQ_MSG_PUSH_STOPPED));
    cr_assert_eq(raw_counter(&c, "push.open"), 0);
    free(log);
    push_reader_end(&idle);
    push_reader_end(&stalled);
    push_reader_end(&late);
    raw_close(&c);
    test_broker_end(&t);
}
