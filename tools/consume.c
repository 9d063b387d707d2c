/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: assign the lanes, poll, hand each record below its lane's stop to the visitor, leave a
 * lane when its stop is reached, end when none is left.
 *
 * A damaged range is told and passed over. A trim that overtook the reader is told, counts as a failure,
 * and reading goes on at the new start. A lane that went offline or whose topic was deleted is told
 * and given up. What was read before is printed in every case.
 */
#include "tools/consume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DOWN_TOLD_NS INT64_C(1000000000)
#define POLL_MAX 1024
#define POLL_MS 100 /* how late an interrupt may be noticed */

struct loop {
    struct fq_consume *consume;
    flashq_consumer *consumer;
    size_t left;       /* lanes not done */
    struct fq_rec rec; /* reused */
    size_t last_lane;  /* where the last message belonged */
    bool is_unsettled; /* some lane is to be unassigned or moved */
    int64_t down_ns; /* since when there is no broker; 0: there is one */
    bool is_down_told;
};

static void leave_lane(struct loop *loop, struct fq_lane *lane)
{
    if (!lane->is_done) {
        lane->is_done = lane->is_left = true;
        loop->left--;
        loop->is_unsettled = true;
    }
}

/* Between two polls, so that what is in hand is handled first. */
static void settle(struct loop *loop)
{
    const struct fq_consume *consume = loop->consume;
    for (size_t i = 0; loop->is_unsettled && i < consume->lanes_count; i++) {
        struct fq_lane *lane = &consume->lanes[i];
        if (lane->is_left) {
            (void)flashq_consumer_unassign(loop->consumer, lane->topic, lane->partition);
        } else if (lane->seek_to >= 0 && !lane->is_done &&
                   flashq_seek_offset(loop->consumer, lane->topic, lane->partition, lane->seek_to,
                                      consume->cli->timeout_ms) != 0) {
            lane->is_done = true;
            loop->left--;
            (void)flashq_consumer_unassign(loop->consumer, lane->topic, lane->partition);
        }
        lane->is_left = false;
        lane->seek_to = -1;
    }
    loop->is_unsettled = false;
}

static struct fq_lane *find_lane(struct loop *loop, const flashq_message *message)
{
    const struct fq_consume *consume = loop->consume;
    for (size_t i = 0; i < consume->lanes_count; i++) {
        size_t index = (loop->last_lane + i) % consume->lanes_count;
        struct fq_lane *lane = &consume->lanes[index];
        if (lane->partition == message->partition && strcmp(lane->topic, message->topic) == 0) {
            loop->last_lane = index;
            return lane;
        }
    }
    return NULL;
}

static void keep_failure(struct loop *loop, int code)
{
    if (loop->consume->failed == 0) {
        loop->consume->failed = code;
    }
}

static void take_condition(struct loop *loop, struct fq_lane *lane, const flashq_message *message)
{
    struct fq_consume *consume = loop->consume;
    int64_t next = message->condition_end;
    switch (message->status) {
    case FLASHQ_ERR_CORRUPT:
        consume->damaged++;
        fq_cli_warn("%s[%" PRId32 "]: damaged: offsets %" PRId64 " to %" PRId64
                    " cannot be read and are passed over",
                    lane->topic, lane->partition, message->offset, next - 1);
        break;
    case FLASHQ_ERR_TRIMMED:
        fq_cli_warn("%s[%" PRId32 "]: offsets %" PRId64 " to %" PRId64
                    " were trimmed before they were read",
                    lane->topic, lane->partition, message->offset, next - 1);
        keep_failure(loop, FQ_EXIT_FAILED);
        lane->seek_to = next;
        loop->is_unsettled = true;
        break;
    default:
        keep_failure(loop, fq_cli_fail(consume->cli, message->status, NULL,
                                       "%s[%" PRId32 "] at offset %" PRId64, lane->topic,
                                       lane->partition, message->offset));
        leave_lane(loop, lane);
        return;
    }
    if (next >= lane->stop) {
        leave_lane(loop, lane);
    }
}

static void fill_record(struct loop *loop, const flashq_message *message)
{
    struct fq_rec *rec = &loop->rec;
    fq_rec_clear(rec);
    rec->topic = message->topic;
    rec->partition = message->partition;
    rec->offset = message->offset;
    rec->timestamp_ms = message->timestamp_ms;
    rec->key = message->key;
    rec->key_length = message->key_length;
    rec->value = message->value;
    rec->value_length = message->value_length;
    for (size_t i = 0; loop->consume->has_headers && i < message->headers_count; i++) {
        flashq_header header;
        if (flashq_message_header(message, i, &header) == 0) {
            fq_rec_add_header(rec, header.name, header.name_length, header.value,
                              header.value_length);
        }
    }
}

/* 0, or the visitor's wish to end. */
static int take_message(struct loop *loop, const flashq_message *message)
{
    struct fq_consume *consume = loop->consume;
    struct fq_lane *lane = find_lane(loop, message);
    if (!lane || lane->is_done) {
        return 0;
    }
    if (message->status != 0) {
        take_condition(loop, lane, message);
        return 0;
    }
    if (message->offset >= lane->stop || message->timestamp_ms >= lane->stop_ms) {
        leave_lane(loop, lane);
        return 0;
    }
    fill_record(loop, message);
    int wish = consume->visit(consume->context, &loop->rec);
    consume->records++;
    if (message->offset + 1 >= lane->stop) {
        leave_lane(loop, lane);
    }
    return wish;
}

/* The last offsets below a stop may hold no record (trimmed, damaged): then the position tells. */
static void check_positions(struct loop *loop)
{
    const struct fq_consume *consume = loop->consume;
    for (size_t i = 0; i < consume->lanes_count; i++) {
        struct fq_lane *lane = &consume->lanes[i];
        int64_t position;
        if (!lane->is_done && lane->stop != FQ_STOP_NEVER &&
            flashq_position(loop->consumer, lane->topic, lane->partition, &position) == 0 &&
            position >= lane->stop) {
            leave_lane(loop, lane);
        }
    }
}

static int assign_lanes(struct loop *loop)
{
    struct fq_consume *consume = loop->consume;
    struct fq_cli *cli = consume->cli;
    for (size_t i = 0; i < consume->lanes_count; i++) {
        struct fq_lane *lane = &consume->lanes[i];
        if (lane->start >= lane->stop) {
            lane->is_done = true;
            continue;
        }
        cli->errtext[0] = '\0';
        int result =
            flashq_consumer_assign(loop->consumer, lane->topic, lane->partition, lane->start,
                                   cli->timeout_ms, cli->errtext, sizeof cli->errtext);
        if (result != 0) {
            return fq_cli_fail(cli, result, cli->errtext, "%s[%" PRId32 "]", lane->topic,
                               lane->partition);
        }
        lane->is_done = false;
        loop->left++;
    }
    return 0;
}

/* Says, once, that the broker is away (for more than a moment) and that it is back. */
static void watch_broker(struct loop *loop)
{
    struct fq_cli *cli = loop->consume->cli;
    int64_t now_ns = fq_now_ns();
    cli->errtext[0] = '\0';
    if (flashq_client_wait(cli->client, 0, cli->errtext, sizeof cli->errtext) == 0) {
        if (loop->is_down_told) {
            fq_cli_warn("the broker is back");
        }
        loop->down_ns = 0;
        loop->is_down_told = false;
    } else if (loop->down_ns == 0) {
        loop->down_ns = now_ns;
    } else if (!loop->is_down_told && now_ns - loop->down_ns > DOWN_TOLD_NS) {
        fq_cli_warn("the broker does not answer, waiting for it: %s", cli->errtext);
        loop->is_down_told = true;
    }
}

/* One poll and what came of it; -1 to go on, else an exit code. */
static int step(struct loop *loop, int64_t *last_record_ns)
{
    struct fq_consume *consume = loop->consume;
    const flashq_message *messages[POLL_MAX];
    int64_t wait_ns = consume->max_wait_ms * 1000000;
    int poll_ms = consume->max_wait_ms >= 0 && consume->max_wait_ms < POLL_MS
                      ? (int)consume->max_wait_ms
                      : POLL_MS;
    int count = flashq_consumer_poll(loop->consumer, messages, POLL_MAX, 0);
    if (count == 0) {
        if (consume->idle) {
            consume->idle(consume->context);
        }
        count = flashq_consumer_poll(loop->consumer, messages, POLL_MAX, poll_ms);
    }
    fq_cli_tell(consume->cli);
    if (count < 0) {
        return fq_cli_fail(consume->cli, count, NULL, "reading");
    }
    for (int i = 0; i < count; i++) {
        int wish = take_message(loop, messages[i]);
        if (wish != 0 || consume->records >= (uint64_t)consume->max_records) {
            return wish != 0 ? wish - 1 : FQ_EXIT_OK;
        }
    }
    if (count > 0) {
        settle(loop);
        *last_record_ns = fq_now_ns();
        return -1;
    }
    watch_broker(loop);
    check_positions(loop);
    settle(loop);
    if (consume->max_wait_ms >= 0 && fq_now_ns() - *last_record_ns >= wait_ns && loop->left > 0) {
        consume->is_timed_out = true;
        return FQ_EXIT_OK;
    }
    return -1;
}

int fq_consume_run(struct fq_consume *consume)
{
    struct fq_cli *cli = consume->cli;
    struct loop loop = {.consume = consume};
    cli->errtext[0] = '\0';
    int result = flashq_consumer_open(cli->client, &loop.consumer, cli->errtext,
                                      sizeof cli->errtext);
    if (result != 0) {
        return fq_cli_fail(cli, result, cli->errtext, "cannot read");
    }
    int64_t last_record_ns = fq_now_ns();
    int code = assign_lanes(&loop);
    if (code == 0) {
        code = -1;
    }
    while (code == -1 && loop.left > 0 && !fq_interrupted() && consume->max_records > 0) {
        code = step(&loop, &last_record_ns);
    }
    (void)flashq_consumer_close(loop.consumer, cli->timeout_ms);
    fq_rec_fini(&loop.rec);
    return code < 0 ? FQ_EXIT_OK : code;
}
