/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that were sent and wait for their answer; part of link.c's work, in a file of its own. */
#ifndef FQ_CLIENT_REQUEST_H
#define FQ_CLIENT_REQUEST_H

#include "client/link.h"

/* Hands an answer to the request it belongs to. false: nobody waits for it (any more). */
bool fq_requests_answer(struct fq_link *link, const struct fq_msg *msg);
/* Fails every request (connection lost). */
void fq_requests_fail(struct fq_link *link, int code, const char *text);
/* Fails those whose deadline has passed. */
void fq_requests_expire(struct fq_link *link, int64_t now_us);
int64_t fq_requests_deadline_us(const struct fq_link *link);

/* A blocking request on the control link: waits for it to be up, sends what `encode` makes, waits for the
 * answer and gives it to `decode` (NULL: an empty one) while its bytes are valid. Asked again after a lost
 * connection if `is_repeatable`; otherwise the text says that it may have been done. */
struct fq_call {
    struct fq_engine *engine;
    int64_t (*encode)(void *out, size_t capacity, uint32_t correlation, const void *in);
    const void *in;
    int (*decode)(const struct fq_msg *msg, void *out, struct fq_err *err);
    void *out;
    int64_t deadline_us;
    bool is_repeatable;
    struct fq_link *link;        /* NULL: the control link */
};
int fq_call(const struct fq_call *call, struct fq_err *err);
/* Waits until the control link is up. UNREACHABLE (with the reason) or TIMED_OUT by the deadline. */
int fq_engine_wait_up(struct fq_engine *engine, int64_t deadline_us, struct fq_err *err);

#endif
