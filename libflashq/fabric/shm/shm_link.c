/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket of an shm connection after the handshake: fixed records that wake the peer, pass the
 * descriptors of windows, revoke them, and say why a connection ends. A record is one send, so it
 * arrives whole or not at all; what the socket has no room for waits in a list, and operations wait
 * behind it. What arrives is hostile: one descriptor per GRANT, a bounded number of unopened
 * grants.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "fabric/shm/shm.h"
#include "fabric/sock.h"

#define STUCK_RETRY_US 10000

struct waiting {
    struct fq_list link;
    struct fq_shm_record record;
    struct fq_region *region;
};

static void encode(const struct fq_shm_record *record, uint8_t out[FQ_SHM_RECORD_BYTES])
{
    struct fq_writer w;
    fq_writer_init(&w, out, FQ_SHM_RECORD_BYTES);
    fq_write_u8(&w, record->type);
    fq_write_u8(&w, record->flags);
    fq_write_u16(&w, record->text_bytes);
    fq_write_u32(&w, record->id);
    fq_write_u64(&w, record->key);
    fq_write_u64(&w, record->offset);
    fq_write_u64(&w, record->bytes);
    fq_write_u32(&w, record->rights);
    fq_write_u32(&w, (uint32_t)record->code);
    fq_write_u64(&w, 0);
}

static struct fq_shm_record decode(const uint8_t *bytes)
{
    struct fq_reader r;
    fq_reader_init(&r, bytes, FQ_SHM_RECORD_BYTES);
    struct fq_shm_record record;
    record.type = fq_read_u8(&r);
    record.flags = fq_read_u8(&r);
    record.text_bytes = fq_read_u16(&r);
    record.id = fq_read_u32(&r);
    record.key = fq_read_u64(&r);
    record.offset = fq_read_u64(&r);
    record.bytes = fq_read_u64(&r);
    record.rights = fq_read_u32(&r);
    record.code = (int32_t)fq_read_u32(&r);
    return record;
}

/* ---- sending -------------------------------------------------------------------------------- */

enum sent { SENT, SENT_NO_ROOM, SENT_STUCK, SENT_DEAD };

static enum sent try_send(const struct fq_shm_conn *conn, const struct fq_shm_record *record,
                          const struct fq_region *region)
{
    uint8_t bytes[FQ_SHM_RECORD_BYTES];
    encode(record, bytes);
    ssize_t n = fq_sock_send_fd(conn->fd, bytes, sizeof bytes, region ? region->fd : -1);
    if (n == (ssize_t)sizeof bytes) {
        return SENT;
    }
    if (n < 0 && fq_sock_would_block(errno)) {
        return SENT_NO_ROOM;
    }
    /* ETOOMANYREFS: as many descriptors are under way as this process may have open. */
    bool is_stuck = n < 0 && (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM);
    return is_stuck ? SENT_STUCK : SENT_DEAD;
}

static void watch_output(struct fq_shm_conn *conn, bool is_wanted)
{
    if (conn->wants_output != is_wanted) {
        conn->wants_output = is_wanted;
        (void)fq_epoll_mod(conn->base.fabric->epoll_fd, conn->fd,
                           EPOLLIN | (is_wanted ? EPOLLOUT : 0), conn);
    }
}

/* What brings us back to the waiting records: the socket has room again, or some time has passed.
 */
static void wait_for(struct fq_shm_conn *conn, enum sent why)
{
    struct fq_shm_fabric *fabric = fq_shm_fabric_of(conn->base.fabric);
    watch_output(conn, why == SENT_NO_ROOM);
    if (why == SENT_STUCK) {
        if (fq_list_is_empty(&fabric->stuck)) {
            fabric->stuck_retry_us = fq_mono_us() + STUCK_RETRY_US;
        }
        fq_list_append(&fabric->stuck, &conn->stuck);
    } else {
        fq_list_remove(&conn->stuck);
    }
}

void fq_shm_link_retry_stuck(struct fq_shm_fabric *fabric, int64_t now_us)
{
    struct fq_list turn;
    if (now_us < fabric->stuck_retry_us) {
        return;
    }
    fq_list_init(&turn);
    while (!fq_list_is_empty(&fabric->stuck)) {
        fq_list_append(&turn, fabric->stuck.next);
    }
    while (!fq_list_is_empty(&turn)) {
        struct fq_shm_conn *conn = fq_list_item(turn.next, struct fq_shm_conn, stuck);
        fq_list_remove(&conn->stuck);
        (void)fq_shm_link_flush(conn);
        fq_shm_activate(conn);
    }
}

int fq_shm_link_send(struct fq_shm_conn *conn, const struct fq_shm_record *record,
                     struct fq_region *region)
{
    enum sent sent = SENT;
    if (fq_list_is_empty(&conn->records)) {
        sent = try_send(conn, record, region);
        conn->needs_sync = true;
        if (sent == SENT || sent == SENT_DEAD) { /* a dead socket is told by the next poll */
            return sent == SENT ? 0 : FLASHQ_ERR_CLOSED;
        }
    }
    if (conn->records_count >= FQ_SHM_RECORDS_MAX) {
        return FLASHQ_ERR_AGAIN;
    }
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    waiting->record = *record;
    waiting->region = fq_region_ref(region);
    fq_list_init(&waiting->link);
    fq_list_append(&conn->records, &waiting->link);
    conn->records_count++;
    conn->needs_sync = true;
    if (sent != SENT) {
        wait_for(conn, sent);
    }
    return 0;
}

static void free_waiting(struct fq_shm_conn *conn, struct waiting *waiting)
{
    conn->records_count--;
    fq_list_remove(&waiting->link);
    fq_region_unref(waiting->region);
    free(waiting);
}

int fq_shm_link_flush(struct fq_shm_conn *conn)
{
    while (!fq_list_is_empty(&conn->records)) {
        struct waiting *waiting = fq_list_item(conn->records.next, struct waiting, link);
        enum sent sent = try_send(conn, &waiting->record, waiting->region);
        if (sent != SENT) {
            wait_for(conn, sent);
            return sent == SENT_DEAD ? FLASHQ_ERR_CLOSED : 0;
        }
        free_waiting(conn, waiting);
    }
    wait_for(conn, SENT);
    return 1;
}

/* A full socket is readable at the peer, so a wake-up that finds no room is not needed. (Not an
 * eventfd in the peer's hands: the peer can fill it and make it block, and then whoever wakes it
 * hangs. The difference is lost beside the wake-up itself: publish to acknowledgement with spinning
 * off takes 45 us at the median where an eventfd takes 45 there and back.) */
void fq_shm_link_wake(struct fq_shm_conn *conn)
{
    const struct fq_shm_record record = {.type = FQ_SHM_RECORD_WAKE};
    conn->base.fabric->stats.wakes_paid++;
    (void)try_send(conn, &record, NULL);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static int take_passed(struct fq_shm_conn *conn)
{
    if (conn->passed_count == 0) {
        return -1;
    }
    int fd = conn->passed[0];
    conn->passed[0] = conn->passed[1];
    conn->passed_count--;
    return fd;
}

static int receive_grant(struct fq_shm_conn *conn, const struct fq_shm_record *record)
{
    int fd = take_passed(conn);
    struct fq_fabric *fabric = conn->base.fabric;
    if (fd < 0 || conn->grants_count >= fabric->params.grants_max) {
        if (fd >= 0) {
            close(fd);
        }
        fabric->stats.refused_malformed++;
        return fq_shm_fail(conn, true, FLASHQ_ERR_PROTOCOL,
                           fd < 0 ? "a grant without a descriptor"
                                  : "more grants than may wait to be opened (%u)",
                           fabric->params.grants_max);
    }
    struct fq_shm_grant *grant = calloc(1, sizeof *grant);
    if (!grant) {
        close(fd);
        return fq_shm_fail(conn, true, FLASHQ_ERR_NO_MEMORY, "no memory for a grant");
    }
    grant->record = *record;
    grant->fd = fd;
    fq_list_init(&grant->link);
    fq_list_append(&conn->grants, &grant->link);
    conn->grants_count++;
    return 0;
}

static void free_grant(struct fq_shm_conn *conn, struct fq_shm_grant *grant)
{
    fq_list_remove(&grant->link);
    close(grant->fd);
    free(grant);
    conn->grants_count--;
}

static void receive_revoke(struct fq_shm_conn *conn, const struct fq_shm_record *record)
{
    fq_remotes_revoked(&conn->base, record->id, record->key);
    for (struct fq_list *at = conn->grants.next; at != &conn->grants; at = at->next) {
        struct fq_shm_grant *grant = fq_list_item(at, struct fq_shm_grant, link);
        if (grant->record.id == record->id && grant->record.key == record->key) {
            free_grant(conn, grant);
            return;
        }
    }
}

static void receive_close(struct fq_shm_conn *conn, const struct fq_shm_record *record,
                          const uint8_t *text)
{
    conn->close_code = record->code < 0 ? record->code : FLASHQ_ERR_CLOSED;
    size_t length = record->text_bytes < sizeof conn->close_text - 1 ? record->text_bytes
                                                                     : sizeof conn->close_text - 1;
    for (size_t i = 0; i < length; i++) {
        conn->close_text[i] = text[i] < ' ' ? ' ' : (char)text[i];
    }
    conn->close_text[length] = '\0';
}

/* Carries out one record at the start of `in`; returns its length, 0 when it is not complete. */
static int receive_record(struct fq_shm_conn *conn, const uint8_t *in, size_t have)
{
    if (have < FQ_SHM_RECORD_BYTES) {
        return 0;
    }
    struct fq_shm_record record = decode(in);
    int r = 0;
    switch (record.type) {
    case FQ_SHM_RECORD_WAKE: break;
    case FQ_SHM_RECORD_GRANT: r = receive_grant(conn, &record); break;
    case FQ_SHM_RECORD_REVOKE: receive_revoke(conn, &record); break;
    case FQ_SHM_RECORD_CLOSE:
        if (record.text_bytes > FQ_REASON_TEXT_BYTES) {
            return fq_shm_fail(conn, false, FLASHQ_ERR_PROTOCOL, "a closing text that is too long");
        }
        if (have < FQ_SHM_RECORD_BYTES + (size_t)record.text_bytes) {
            return 0;
        }
        receive_close(conn, &record, in + FQ_SHM_RECORD_BYTES);
        return FQ_SHM_RECORD_BYTES + record.text_bytes;
    default:
        conn->base.fabric->stats.refused_malformed++;
        r = fq_shm_fail(conn, true, FLASHQ_ERR_PROTOCOL, "unknown record %u", record.type);
    }
    return r < 0 ? r : FQ_SHM_RECORD_BYTES;
}

static int receive_records(struct fq_shm_conn *conn)
{
    size_t at = 0;
    for (;;) {
        int n = receive_record(conn, conn->in + at, conn->in_have - at);
        if (n < 0) {
            return n;
        }
        if (n == 0) {
            break;
        }
        at += (size_t)n;
    }
    conn->in_have -= at;
    memmove(conn->in, conn->in + at, conn->in_have);
    return 0;
}

/* A passed descriptor that found no free number here is dropped by the kernel, without an error. */
static bool is_out_of_descriptors(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    return fd < 0 && (errno == EMFILE || errno == ENFILE);
}

static int keep_passed(struct fq_shm_conn *conn, int fd, bool is_bad)
{
    if (fd >= 0 && conn->passed_count < FQ_SHM_PASSED_MAX && !is_bad) {
        conn->passed[conn->passed_count++] = fd;
        return 0;
    }
    if (fd >= 0) {
        close(fd);
        is_bad = true;
    }
    if (is_bad && is_out_of_descriptors()) {
        return fq_shm_fail(
            conn, true, FLASHQ_ERR_LIMIT,
            "a descriptor could not be received: too many open files (RLIMIT_NOFILE)");
    }
    if (is_bad) {
        conn->base.fabric->stats.refused_malformed++;
        return fq_shm_fail(conn, true, FLASHQ_ERR_PROTOCOL, "more descriptors than were announced");
    }
    return 0;
}

static void meet_eof(struct fq_shm_conn *conn)
{
    if (!conn->has_eof) {
        conn->has_eof = true;
        conn->eof_tail = atomic_load_explicit(&conn->rx.shared->tail, memory_order_acquire);
        fq_epoll_del(conn->base.fabric->epoll_fd, conn->fd);
        fq_shm_activate(conn);
    }
}

int fq_shm_link_drain(struct fq_shm_conn *conn)
{
    for (int i = 0; i < 64 && !conn->has_eof; i++) { /* bounded; epoll brings us back */
        size_t room = sizeof conn->in - conn->in_have;
        int fd;
        bool is_bad;
        ssize_t n = fq_sock_recv_fd(conn->fd, conn->in + conn->in_have, room, &fd, &is_bad);
        if (n < 0) {
            if (!fq_sock_would_block(errno)) {
                meet_eof(conn);
            }
            return 0;
        }
        if (n == 0) {
            meet_eof(conn);
            return 0;
        }
        conn->in_have += (size_t)n;
        int r = keep_passed(conn, fd, is_bad);
        r = r < 0 ? r : receive_records(conn);
        if (r < 0) {
            return r;
        }
        if ((size_t)n < room && fd < 0) {
            return 0;
        }
    }
    return 0;
}

void fq_shm_link_fini(struct fq_shm_conn *conn)
{
    while (!fq_list_is_empty(&conn->records)) {
        free_waiting(conn, fq_list_item(conn->records.next, struct waiting, link));
    }
    while (!fq_list_is_empty(&conn->grants)) {
        free_grant(conn, fq_list_item(conn->grants.next, struct fq_shm_grant, link));
    }
    for (int fd = take_passed(conn); fd >= 0; fd = take_passed(conn)) {
        close(fd);
    }
}
