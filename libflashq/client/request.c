/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their answers. A request lives from being sent to its answer, its deadline or the loss of its
 * link, whichever is first; its `done` runs once. Blocking calls are a request plus fq_engine_wait.
 * Thread: any, under the lock.
 */
#include "client/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct fq_request {
    struct fq_chain node;
    uint32_t correlation;
    int64_t deadline_us;
    fq_request_done done;
    void *context;
};

uint32_t fq_link_correlation(struct fq_link *link)
{
    return ++link->engine->correlation;
}

int fq_link_request(struct fq_link *link, const void *bytes, int64_t length, uint32_t correlation,
                    int64_t deadline_us, fq_request_done done, void *context)
{
    if (length < 0) {
        return (int)length;
    }
    struct fq_request *request = malloc(sizeof *request);
    if (!request) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    *request = (struct fq_request){
        .correlation = correlation, .deadline_us = deadline_us, .done = done, .context = context};
    int code = fq_link_send(link, bytes, length);
    if (code != 0) {
        free(request);
        return code;
    }
    fq_chain_append(&link->requests, &request->node);
    return 0;
}

void fq_link_cancel(struct fq_link *link, void *context)
{
    for (struct fq_chain *at = link->requests.next, *next; at != &link->requests; at = next) {
        next = at->next;
        struct fq_request *request = fq_chain_item(at, struct fq_request, node);
        if (request->context == context) {
            fq_chain_remove(at);
            free(request);
        }
    }
}

static void finish(struct fq_request *request, int status, const struct fq_msg *msg, const char *text)
{
    struct fq_request copy = *request;
    fq_chain_remove(&request->node);
    free(request);
    copy.done(copy.context, status, msg, text);
}

bool fq_requests_answer(struct fq_link *link, const struct fq_msg *msg)
{
    for (struct fq_chain *at = link->requests.next; at != &link->requests; at = at->next) {
        struct fq_request *request = fq_chain_item(at, struct fq_request, node);
        if (request->correlation == msg->correlation) {
            struct fq_err err = {0};
            if (msg->status != 0) {
                (void)fq_msg_error(msg, &err);
            }
            finish(request, msg->status, msg, err.text);
            return true;
        }
    }
    return false;
}

void fq_requests_fail(struct fq_link *link, int code, const char *text)
{
    struct fq_chain failed;
    fq_chain_init(&failed);
    fq_chain_splice_front(&failed, &link->requests);
    while (!fq_chain_is_empty(&failed)) {
        finish(fq_chain_item(failed.next, struct fq_request, node), code, NULL, text);
    }
}

void fq_requests_expire(struct fq_link *link, int64_t now_us)
{
    for (struct fq_chain *at = link->requests.next; at != &link->requests;) {
        struct fq_request *request = fq_chain_item(at, struct fq_request, node);
        at = at->next;
        if (request->deadline_us <= now_us) {
            finish(request, FLASHQ_ERR_TIMED_OUT, NULL, "the broker did not answer in time");
            at = link->requests.next; /* done() may have changed the chain */
        }
    }
}

int64_t fq_requests_deadline_us(const struct fq_link *link)
{
    int64_t earliest = INT64_MAX;
    for (struct fq_chain *at = link->requests.next; at != &link->requests; at = at->next) {
        int64_t due = fq_chain_item(at, struct fq_request, node)->deadline_us;
        earliest = due < earliest ? due : earliest;
    }
    return earliest;
}

/* ---- blocking calls ------------------------------------------------------------------------- */

struct waiting {
    const struct fq_call *call;
    bool is_done, was_answered;
    struct fq_err err;
};

static void call_done(void *context, int status, const struct fq_msg *msg, const char *text)
{
    struct waiting *waiting = context;
    waiting->is_done = true;
    waiting->was_answered = msg != NULL;
    fq_err_clear(&waiting->err);
    if (status != 0) {
        (void)fq_err_set(&waiting->err, status, "%s",
                         text && text[0] ? text : fq_err_describe(status));
    } else if (msg && waiting->call->decode) {
        waiting->err.code = waiting->call->decode(msg, waiting->call->out, &waiting->err);
    } else if (msg) {
        waiting->err.code = fq_decode_empty(msg, &waiting->err);
    }
    fq_engine_progress(waiting->call->engine);
}

static bool call_is_done(void *context)
{
    return ((struct waiting *)context)->is_done;
}

static bool link_is_up(void *context)
{
    return fq_link_is_up(context);
}

static int wait_up(struct fq_link *link, int64_t deadline_us, struct fq_err *err)
{
    struct fq_engine *engine = link->engine;
    if (fq_link_is_up(link)) {
        return 0;
    }
    int code = fq_engine_wait(engine, deadline_us, link_is_up, link);
    bool has_round = link == engine->control && engine->last_error.code != 0;
    const struct fq_err *why = has_round ? &engine->last_error : &link->last_error;
    if (code == FLASHQ_ERR_TIMED_OUT && why->code != 0) {
        return fq_err_set(err, FLASHQ_ERR_UNREACHABLE, "%s", why->text);
    }
    return code == 0 ? 0 : fq_err_set(err, code, "no broker: %s", fq_err_describe(code));
}

int fq_engine_wait_up(struct fq_engine *engine, int64_t deadline_us, struct fq_err *err)
{
    return wait_up(engine->control, deadline_us, err);
}

/* One try; *ret_again: the connection went away before the answer, or before the request was sent. */
static int call_once(const struct fq_call *call, struct fq_link *link, bool *ret_again,
                     bool *ret_was_sent, struct fq_err *err)
{
    *ret_again = false;
    *ret_was_sent = true;
    uint8_t *buffer = malloc(FQ_LIMIT_CONTROL_BYTES);
    if (!buffer) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory for a request");
    }
    struct waiting waiting = {.call = call};
    uint32_t correlation = fq_link_correlation(link);
    int64_t length = call->encode(buffer, FQ_LIMIT_CONTROL_BYTES, correlation, call->in);
    int code = fq_link_request(link, buffer, length, correlation, call->deadline_us, call_done,
                               &waiting);
    free(buffer);
    if (code != 0) {
        *ret_again = code == FLASHQ_ERR_UNREACHABLE; /* nothing was sent: also for what is not repeatable */
        *ret_was_sent = false;
        (void)fq_engine_drive(call->engine);
        if (code == FLASHQ_ERR_LIMIT) {
            return fq_err_set(err, code, "the broker takes no requests: %zu bytes of them wait to be sent "
                                         "(limit %u)",
                              link->outbox_bytes, FQ_LIMIT_CONTROL_QUEUED_BYTES);
        }
        return fq_err_set(err, code, "the request could not be sent: %s", fq_err_describe(code));
    }
    code = fq_engine_wait(call->engine, call->deadline_us, call_is_done, &waiting);
    if (!waiting.is_done) {
        fq_link_cancel(link, &waiting);
        return fq_err_set(err, code, "no answer from the broker: %s", fq_err_describe(code));
    }
    *ret_again = !waiting.was_answered && waiting.err.code != FLASHQ_ERR_TIMED_OUT;
    return waiting.err.code == 0 ? 0
                                 : fq_err_set(err, waiting.err.code, "%s", waiting.err.text);
}

int fq_call(const struct fq_call *call, struct fq_err *err)
{
    struct fq_link *link = call->link ? call->link : call->engine->control;
    for (;;) {
        bool again, was_sent;
        int code = wait_up(link, call->deadline_us, err);
        if (code != 0) {
            return code;
        }
        code = call_once(call, link, &again, &was_sent, err);
        if (!again) {
            return code;
        }
        if (was_sent && !call->is_repeatable) {
            (void)fq_err_prefix(err, "the connection was lost before the answer (it may have been "
                                     "done): ");
            return code;
        }
        if (fq_mono_us() >= call->deadline_us) {
            return code;
        }
    }
}
