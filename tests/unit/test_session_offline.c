/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker in this thread on a disk whose syncs fail: what its producers and readers hear. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw_client.h"
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
