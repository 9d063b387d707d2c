/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a producer knows of the path of its batches, from running estimates: how fast records are produced,
 * what a batch and a byte cost where they are slowest, and how long an answer takes when nothing is in
 * the way. From these follow the size of a batch and the number in flight (fq_estimate_plan).
 *
 * A pure function over a struct: it reads no clock (times are given, in ns, once per batch or look), calls nothing
 * and cannot fail. Every estimate moves by a bounded share per sample, so that one stall or one idle hour moves it
 * no more than any other sample does.
 */
#ifndef FQ_PRODUCER_ESTIMATE_H
#define FQ_PRODUCER_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fq_estimate {
    /* production */
    double rate;              /* bytes a ns that the application sends */
    int64_t window_began_ns;  /* the sample being taken; 0: none */
    double window_bytes;
    /* service, at the slowest place between here and the answer */
    double batch_ns;          /* what a batch costs, whatever its size */
    double byte_ns;           /* what a byte costs on top */
    unsigned batches;
    double usual_bytes;       /* size of the batches it was learnt from */
    /* the round trip */
    double latency_ns;        /* of the path: without service, and without waiting behind other batches */
    bool has_latency;         /* it was sampled */

    /* The answers of one look at the ack ring: they came together. */
    int64_t looked_ns;        /* when; 0: no answer yet */
    int64_t looked_before_ns; /* the look before that had answers */
    int64_t oldest_posted_ns; /* of the batches of this look */
    unsigned answers;
    double answers_bytes;
};

/* What the policy is to do now. */
struct fq_estimate_plan {
    size_t batch_bytes;   /* a batch of this size goes although others are in flight; at least 1 */
    size_t close_bytes;   /* gathering beyond this size gains nothing any more */
    unsigned in_flight;   /* and with so many in flight none goes; at least 2, but for the limit */
    bool is_contrast;     /* one in a few is smaller, so that sizes differ and what a batch costs shows */
};

void fq_estimate_init(struct fq_estimate *estimate);

/* The first record of a batch came at `now_ns`; `bytes` were appended to the batch before it. */
void fq_estimate_produced(struct fq_estimate *estimate, int64_t now_ns, size_t bytes);
/* A batch was answered, in the order of posting. `now_ns` is when the ack ring was looked at: equal for the
 * answers that one look found. `was_alone`: nothing was in flight when it was posted. */
void fq_estimate_answered(struct fq_estimate *estimate, int64_t now_ns, int64_t posted_ns, size_t bytes,
                          bool was_alone);
/* `batch_max_bytes` and `in_flight_max` bound the plan. */
struct fq_estimate_plan fq_estimate_plan(const struct fq_estimate *estimate, size_t batch_max_bytes,
                                         unsigned in_flight_max);

#endif
