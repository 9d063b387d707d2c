/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running estimates; see estimate.h.
 *
 * The model: an answer to a batch of x bytes that meets an empty path takes latency + batch_ns + x * byte_ns,
 * and a path that is never empty answers one every batch_ns + x * byte_ns. So the time between the looks
 * that found answers, when the batches were posted before the earlier look, is a sample of the latter; and
 * batches that were alone sample the former. A sample moves the two costs in proportion to what they had in its
 * prediction: small batches teach what a batch costs, large ones what a byte costs.
 *
 * The time between answers is what the service takes only where batches queue; elsewhere it is how far apart they
 * were sent, and more than the service takes. A queue shows in the age of the oldest batch answered. Without
 * one, a sample may lower the costs, never raise them.
 */
#include "producer/estimate.h"

#define RATE_WEIGHT    0.25    /* of a new sample */
#define COST_WEIGHT    0.2
#define COST_WEIGHT_UNQUEUED 0.05
#define SLOPE_WEIGHT   0.03
#define CONTRAST_EVERY 8
#define LATENCY_WEIGHT_DOWN 0.3
#define LATENCY_WEIGHT_UP   0.02
#define RATE_WINDOW_NS 10000.0 /* a sample of the rate spans at least this, or the latency if longer */

#define BATCH_NS_MIN   50.0
#define BYTE_NS_MIN    0.001   /* 1 TB/s */
#define COST_NS_MAX    1e9
#define LATENCY_NS_MIN 100.0

/* Batches cost at most this share of the time that bytes leave free. */
#define BATCHES_SHARE  0.5
/* Beyond this many times what a batch costs in bytes, gathering gains less than 3 %. */
#define CLOSE_COSTS    32.0
#define CLOSE_BYTES_MIN 65536.0

void fq_estimate_init(struct fq_estimate *estimate)
{
    *estimate = (struct fq_estimate){.batch_ns = 1000, .byte_ns = 0.5, .latency_ns = 5000};
}

/* `most` wins where it is below `least`. */
static double bounded(double value, double least, double most)
{
    value = value < least ? least : value;
    return value > most ? most : value;
}

void fq_estimate_produced(struct fq_estimate *estimate, int64_t now_ns, size_t bytes)
{
    double span = (double)(now_ns - estimate->window_began_ns);
    double least = estimate->latency_ns > RATE_WINDOW_NS ? estimate->latency_ns : RATE_WINDOW_NS;
    estimate->window_bytes += (double)bytes;
    estimate->batches++;
    if (estimate->window_began_ns != 0 && span >= least) {
        estimate->rate += RATE_WEIGHT * (estimate->window_bytes / span - estimate->rate);
    }
    if (estimate->window_began_ns == 0 || span >= least) {
        estimate->window_began_ns = now_ns;
        estimate->window_bytes = 0;
    }
}

/* Batches larger than usual that take longer than predicted, or smaller ones that take less: bytes cost more than
 * thought, and batches less; otherwise the other way round. What a batch of the usual size takes stays. */
static void learn_slope(struct fq_estimate *e, double error)
{
    double size = e->answers_bytes / e->answers;
    if (e->usual_bytes > 0) {
        double larger = bounded((size - e->usual_bytes) / e->usual_bytes, -1, 1);
        double usual_bytes_ns = e->usual_bytes * e->byte_ns, usual = e->batch_ns + usual_bytes_ns;
        double most = 0.1 * (e->batch_ns < usual_bytes_ns ? e->batch_ns : usual_bytes_ns);
        double moved = bounded(SLOPE_WEIGHT * error * larger * usual, -most, most);
        e->batch_ns -= moved;
        e->byte_ns += moved / e->usual_bytes;
    }
    e->usual_bytes += SLOPE_WEIGHT * (size - e->usual_bytes);
}

/* The answers of the last look are complete: one sample of the service. */
static void learn_service(struct fq_estimate *e)
{
    if (e->looked_before_ns == 0 || e->oldest_posted_ns > e->looked_before_ns) {
        return; /* the path was empty in between */
    }
    double batches = e->answers * e->batch_ns, bytes = e->answers_bytes * e->byte_ns;
    double predicted = batches + bytes;
    double took = (double)(e->looked_ns - e->looked_before_ns);
    double age = (double)(e->looked_ns - e->oldest_posted_ns);
    bool is_queued = age > e->latency_ns + 1.5 * predicted;
    if (took > predicted && !is_queued) {
        return;
    }
    double error = 2 * (took - predicted) / (took + predicted);
    double weight = is_queued ? COST_WEIGHT : COST_WEIGHT_UNQUEUED;
    e->batch_ns *= 1 + weight * error * batches / predicted;
    e->byte_ns *= 1 + weight * error * bytes / predicted;
    if (is_queued) {
        learn_slope(e, error);
    }
    e->batch_ns = bounded(e->batch_ns, BATCH_NS_MIN, COST_NS_MAX);
    e->byte_ns = bounded(e->byte_ns, BYTE_NS_MIN, COST_NS_MAX);
}

/* What a batch took that met an empty path: down to a smaller one soon, up slowly, so that it is what the smallest of
 * late took. Too small a value would keep too few in flight to tell the latency from the service. */
static void learn_latency(struct fq_estimate *e, double took)
{
    took = bounded(took, LATENCY_NS_MIN, COST_NS_MAX);
    double weight = took < e->latency_ns ? LATENCY_WEIGHT_DOWN : LATENCY_WEIGHT_UP;
    double error = 2 * (took - e->latency_ns) / (took + e->latency_ns);
    e->latency_ns = e->has_latency ? e->latency_ns * (1 + weight * error) : took;
    e->has_latency = true;
}

void fq_estimate_answered(struct fq_estimate *estimate, int64_t now_ns, int64_t posted_ns, size_t bytes,
                          bool was_alone)
{
    struct fq_estimate *e = estimate;
    if (now_ns != e->looked_ns) {
        if (e->answers > 0) {
            learn_service(e);
        }
        e->looked_before_ns = e->looked_ns;
        e->looked_ns = now_ns;
        e->oldest_posted_ns = posted_ns;
        e->answers = 0;
        e->answers_bytes = 0;
    }
    e->answers++;
    e->answers_bytes += (double)bytes;
    if (was_alone) {
        learn_latency(e, (double)(now_ns - posted_ns));
    }
}

struct fq_estimate_plan fq_estimate_plan(const struct fq_estimate *e, size_t batch_max_bytes,
                                         unsigned in_flight_max)
{
    /* What a batch costs, in bytes that could be moved instead. */
    double cost_bytes = e->batch_ns / e->byte_ns;
    double most = (double)batch_max_bytes;
    double close = bounded(CLOSE_COSTS * cost_bytes, CLOSE_BYTES_MIN, most);
    /* Bytes use `busy` of the time; a batch each batch_ns / (BATCHES_SHARE * (1 - busy)) uses its share of the
     * rest, and in that time rate * that are gathered. */
    double busy = e->rate * e->byte_ns;
    double share = BATCHES_SHARE * (1 - busy);
    double batch = share * close > e->rate * e->batch_ns ? e->rate * e->batch_ns / share : close;
    batch = bounded(batch, 1, close);
    bool is_contrast = e->batches % CONTRAST_EVERY == 0;
    if (is_contrast) {
        batch = bounded(batch / 4, 1, close);
        close = bounded(close / 4, 1, close);
    }
    /* So many cover the path's latency, one is served and one waits, twice for want of precision. */
    double depth = 2 * (1 + e->latency_ns / (e->batch_ns + batch * e->byte_ns));
    depth = bounded(depth, 2, in_flight_max);
    return (struct fq_estimate_plan){.batch_bytes = (size_t)batch, .close_bytes = (size_t)close,
                                     .in_flight = (unsigned)depth, .is_contrast = is_contrast};
}
