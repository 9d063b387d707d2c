/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a direct slot; see direct.h. Nothing here sends or waits. */
#include "producer/direct.h"

#include "base/limits.h"

static int check(const struct fq_direct *direct, const struct fq_direct_window *window,
                 uint32_t batch_max_bytes, struct fq_err *err)
{
    if (window->number != direct->windows_count) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "direct window %u came where %u was due",
                          window->number, direct->windows_count);
    }
    if (direct->next) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "direct window %u came while two are in use",
                          window->number);
    }
    uint64_t least = window->number == 0 ? 1 : batch_max_bytes;
    if (window->window_bytes < least || window->window_bytes > FQ_LIMIT_SEGMENT_BYTES_MAX) {
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL, "direct window %u of %llu bytes makes no sense",
                          window->number, (unsigned long long)window->window_bytes);
    }
    return 0;
}

int fq_direct_take(struct fq_direct *direct, struct fq_conn *conn, const struct fq_direct_window *window,
                   uint32_t batch_max_bytes, struct fq_err *err)
{
    struct fq_remote *remote;
    int code = check(direct, window, batch_max_bytes, err);
    if (code == 0) {
        code = fq_remote_open(conn, window->token, FQ_RIGHT_WRITE, &remote, err);
    }
    if (code != 0) {
        return code;
    }
    if (fq_remote_bytes(remote) != window->window_bytes) {
        fq_remote_close(remote);
        return fq_err_set(err, FLASHQ_ERR_PROTOCOL,
                          "direct window %u is said to have other bytes than it has", window->number);
    }
    direct->windows_count++;
    fq_remote_close(direct->former); /* the broker has seen a batch in the window that followed it */
    direct->former = NULL;
    if (direct->current) {
        direct->next = remote;
        direct->next_bytes = window->window_bytes;
    } else {
        direct->current = remote;
        direct->current_bytes = window->window_bytes;
        direct->position = 0;
    }
    return 0;
}

int fq_direct_next(struct fq_direct *direct, size_t length, struct fq_direct_place *ret)
{
    if (!direct->current) {
        return FLASHQ_ERR_AGAIN;
    }
    if (length > direct->current_bytes - direct->position) {
        if (!direct->next || length > direct->next_bytes) {
            return FLASHQ_ERR_AGAIN; /* the latter: larger than any batch the broker takes */
        }
        fq_remote_close(direct->former);
        direct->former = direct->current;
        direct->current = direct->next;
        direct->current_bytes = direct->next_bytes;
        direct->position = 0;
        direct->next = NULL;
    }
    *ret = (struct fq_direct_place){.remote = direct->current, .offset = direct->position};
    direct->position += length;
    return 0;
}

void fq_direct_end(struct fq_direct *direct)
{
    fq_remote_close(direct->former);
    fq_remote_close(direct->current);
    fq_remote_close(direct->next);
    *direct = (struct fq_direct){0};
}
