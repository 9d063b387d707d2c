/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When batches go: the policy as a table, the estimates one by one, and both together against a simulated
 * broker whose costs are known (a latency each way, a cost per batch and per byte, jitter by seed).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "producer/batching.h"
#include "producer/estimate.h"

/* ---- the policy ----------------------------------------------------------------------------- */

Test(batching, sends_at_once_when_nothing_is_in_flight_and_gathers_otherwise)
{
    static const struct {
        struct fq_batching_question question;
        bool sends;
    } table[] = {
        {{.batch_bytes = 100, .max_in_flight = 32}, true},
        {{.batch_bytes = 0, .max_in_flight = 32}, false},
        /* in flight: from the wanted size on, and not more than are wanted */
        {{100, .wanted_bytes = 101, .in_flight = 1, .wanted_in_flight = 4, .max_in_flight = 32}, false},
        {{101, .wanted_bytes = 101, .in_flight = 1, .wanted_in_flight = 4, .max_in_flight = 32}, true},
        {{101, .wanted_bytes = 101, .in_flight = 3, .wanted_in_flight = 4, .max_in_flight = 32}, true},
        {{101, .wanted_bytes = 101, .in_flight = 4, .wanted_in_flight = 4, .max_in_flight = 32}, false},
        {{100, .wanted_bytes = 101, .wanted_in_flight = 4, .max_in_flight = 32}, true},
        /* lingering */
        {{.batch_bytes = 100, .max_in_flight = 32, .age_us = 10, .linger_us = 20}, false},
        {{.batch_bytes = 100, .max_in_flight = 32, .age_us = 20, .linger_us = 20}, true},
        /* hurried */
        {{.batch_bytes = 100, .max_in_flight = 32, .linger_us = 20, .is_hurried = true}, true},
        {{.batch_bytes = 100, .in_flight = 5, .max_in_flight = 32, .is_hurried = true}, true},
        {{.batch_bytes = 100, .slot_in_flight = 32, .max_in_flight = 32, .is_hurried = true}, false},
        {{.batch_bytes = 100, .in_flight = 99, .max_in_flight = 32, .is_hurried = true}, true},
        /* other partitions keep the connection busy */
        {{1, .wanted_bytes = 101, .in_flight = 90, .wanted_in_flight = 4, .max_in_flight = 32}, false},
        {{1, .wanted_bytes = 101, .in_flight = 90, .wanted_in_flight = 4, .max_in_flight = 32,
          .has_waited = true}, true},
        {{1, .wanted_bytes = 101, .in_flight = 90, .wanted_in_flight = 4, .slot_in_flight = 32,
          .max_in_flight = 32, .has_waited = true}, false},
        /* fixed */
        {{.batch_bytes = 100, .in_flight = 31, .slot_in_flight = 31, .max_in_flight = 32, .is_fixed = true},
         true},
        {{.batch_bytes = 100, .slot_in_flight = 32, .max_in_flight = 32, .is_fixed = true}, false},
        {{100, .max_in_flight = 32, .age_us = 99, .linger_us = 100, .is_fixed = true}, false},
        {{100, .in_flight = 9, .max_in_flight = 32, .age_us = 100, .linger_us = 100, .is_fixed = true},
         true}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        cr_assert_eq(fq_batching_sends(&table[i].question), table[i].sends, "row %zu", i);
    }
}

/* ---- the estimates -------------------------------------------------------------------------- */

static bool is_near(double value, double wanted, double share)
{
    return value >= wanted * (1 - share) && value <= wanted * (1 + share);
}

Test(estimate, follows_a_steady_rate_and_a_step_of_it)
{
    struct fq_estimate e;
    int64_t now = 1000000;
    fq_estimate_init(&e);
    for (int i = 0; i < 100; i++, now += 20000) {
        fq_estimate_produced(&e, now, 2000); /* 0.1 bytes a ns */
    }
    cr_assert(is_near(e.rate, 0.1, 0.01), "%f", e.rate);
    for (int i = 0; i < 12; i++, now += 20000) {
        fq_estimate_produced(&e, now, 200000); /* a hundred times as much, for 12 samples */
    }
    cr_assert(is_near(e.rate, 10, 0.1), "%f", e.rate);
    fq_estimate_produced(&e, now + INT64_C(3600000000000), 100); /* an idle hour is one sample */
    cr_assert(is_near(e.rate, 7.5, 0.1), "%f", e.rate);
}

Test(estimate, many_records_in_no_time_do_not_make_a_rate)
{
    struct fq_estimate e;
    fq_estimate_init(&e);
    fq_estimate_produced(&e, 5000, 100);
    for (int i = 0; i < 50; i++) {
        fq_estimate_produced(&e, 5000, 100);
    }
    cr_assert_eq(e.rate, 0);
    fq_estimate_produced(&e, 15000, 0);
    cr_assert(is_near(e.rate, 0.25 * 5000 / 10000, 0.01), "%f", e.rate);
}

/* A path that is never empty: the answers of batches of two sizes in turn, each `took` after the last. */
static void answer_queued(struct fq_estimate *e, int64_t *now, int rounds, double batch, double byte)
{
    for (int i = 0; i < rounds; i++) {
        size_t bytes = i % 2 ? 500 : 200000;
        *now += (int64_t)(batch + (double)bytes * byte);
        fq_estimate_answered(e, *now, *now - 1000000, bytes, false);
    }
}

Test(estimate, tells_what_a_batch_costs_from_what_a_byte_costs)
{
    static const double costs[][2] = {{700, 0.15}, {1500, 0.6}, {8000, 0.4}, {100000, 0.1}, {300, 0.05}};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        struct fq_estimate e;
        int64_t now = 1000000;
        fq_estimate_init(&e);
        answer_queued(&e, &now, 400, costs[i][0], costs[i][1]);
        cr_assert(is_near(e.batch_ns, costs[i][0], 0.2), "row %zu: %f", i, e.batch_ns);
        cr_assert(is_near(e.byte_ns, costs[i][1], 0.2), "row %zu: %f", i, e.byte_ns);
    }
}

Test(estimate, one_stall_moves_nothing_far)
{
    struct fq_estimate e;
    int64_t now = 1000000;
    fq_estimate_init(&e);
    answer_queued(&e, &now, 400, 1000, 0.2);
    fq_estimate_answered(&e, now + 5000, now, 1000, true);
    struct fq_estimate before = e;
    now += 50000000; /* descheduled for 50 ms, with a batch in flight */
    fq_estimate_answered(&e, now, now - 50000000, 1000, true);
    fq_estimate_answered(&e, now + 1000, now + 500, 1000, true);
    cr_assert(is_near(e.batch_ns, before.batch_ns, 0.5), "%f", e.batch_ns);
    cr_assert(is_near(e.byte_ns, before.byte_ns, 0.5), "%f", e.byte_ns);
    cr_assert(is_near(e.latency_ns, before.latency_ns, 0.5), "%f", e.latency_ns);
}

Test(estimate, answers_far_apart_are_no_cost_where_nothing_queues)
{
    struct fq_estimate e;
    fq_estimate_init(&e);
    e.latency_ns = 50000;
    /* One batch every 10 us, each answered 51 us after it went: five in flight, none waits. */
    for (int64_t now = 1000000; now < 10000000; now += 10000) {
        fq_estimate_answered(&e, now, now - 51000, 500, false);
    }
    cr_assert_leq(e.batch_ns, 1000, "%f", e.batch_ns);
}

Test(estimate, a_plan_is_within_its_bounds_whatever_the_estimates)
{
    uint64_t seed = fq_random_u64();
    struct fq_prng prng;
    fq_prng_seed(&prng, seed);
    for (int turn = 0; turn < 20000; turn++) {
        struct fq_estimate e;
        int64_t now = 1;
        fq_estimate_init(&e);
        for (int i = 0; i < 20; i++) {
            now += (int64_t)(fq_prng_next(&prng) >> (1 + fq_prng_below(&prng, 62))) % 1000000000000;
            fq_estimate_produced(&e, now, fq_prng_below(&prng, 100000000));
            int64_t age = (int64_t)fq_prng_below(&prng, (uint64_t)now);
            fq_estimate_answered(&e, now, now - age, fq_prng_below(&prng, 100000000), i % 3 == 0);
        }
        size_t most = 1024 + fq_prng_below(&prng, 1 << 26);
        unsigned in_flight = 1 + (unsigned)fq_prng_below(&prng, 64);
        struct fq_estimate_plan plan = fq_estimate_plan(&e, most, in_flight);
        cr_assert(plan.batch_bytes >= 1 && plan.batch_bytes <= plan.close_bytes &&
                      plan.close_bytes <= most && plan.in_flight >= 1 && plan.in_flight <= in_flight,
                  "%zu of %zu of %zu bytes, %u of %u, seed %llu", plan.batch_bytes, plan.close_bytes,
                  most, plan.in_flight, in_flight, (unsigned long long)seed);
    }
}

/* ---- both, against a simulated broker ------------------------------------------------------- */

enum { LOOK_NS = 250, IN_FLIGHT_MAX = 32, RECORDS_MAX = 4000000, BATCH_MAX = 1 << 20 };

struct sim_batch {
    size_t bytes;
    uint64_t first, end; /* records */
    int64_t posted_ns, answered_ns;
    bool was_alone;
};

struct sim {
    /* the broker */
    double latency_ns, batch_ns, byte_ns; /* latency: there and back */
    double jitter;                        /* share of the service */
    bool is_group;                        /* batch_ns is paid once for all that have arrived (a sync) */
    /* the application */
    double rate;                          /* records a ns; 0: as many as the queue takes */
    size_t record_bytes, queue_bytes;
    double append_ns;                     /* the least between two records */

    uint64_t seed;
    struct fq_prng prng;
    struct fq_estimate estimate;
    struct fq_estimate_plan plan;
    int64_t now_ns;
    double next_record_ns, server_free_ns;
    struct sim_batch filling, *waiting, flying[IN_FLIGHT_MAX];
    unsigned waiting_count, flying_count, flying_first;
    size_t queued_bytes;                  /* not answered */
    size_t closed_bytes;
    int64_t *sent_ns;                     /* by record */
    uint64_t sent, answered, batches, answered_bytes;
    int64_t *took_ns;                     /* by record */
    double least_batch, most_batch;       /* plans of the last part */
};

static void sim_open(struct sim *sim, uint64_t seed)
{
    sim->seed = seed;
    fq_prng_seed(&sim->prng, seed);
    fq_estimate_init(&sim->estimate);
    sim->now_ns = 1000000;
    sim->next_record_ns = 1000000;
    sim->queue_bytes = sim->queue_bytes ? sim->queue_bytes : 8u << 20;
    sim->append_ns = sim->append_ns > 0 ? sim->append_ns : 50;
    sim->sent_ns = malloc(RECORDS_MAX * sizeof *sim->sent_ns);
    sim->took_ns = malloc(RECORDS_MAX * sizeof *sim->took_ns);
    sim->waiting = malloc(100000 * sizeof *sim->waiting);
    cr_assert(sim->sent_ns && sim->took_ns && sim->waiting);
}

static void sim_close(struct sim *sim)
{
    free(sim->sent_ns);
    free(sim->took_ns);
    free(sim->waiting);
}

static double sim_uniform(struct sim *sim)
{
    return (double)(fq_prng_next(&sim->prng) >> 11) / (double)(UINT64_C(1) << 53);
}

static void sim_close_batch(struct sim *sim)
{
    sim->closed_bytes += sim->filling.bytes;
    sim->waiting[sim->waiting_count++] = sim->filling;
    sim->filling = (struct sim_batch){0};
}

static void sim_post(struct sim *sim)
{
    struct sim_batch batch = sim->waiting[0];
    memmove(sim->waiting, sim->waiting + 1, --sim->waiting_count * sizeof *sim->waiting);
    batch.posted_ns = sim->now_ns;
    batch.was_alone = sim->flying_count == 0;
    double arrives = (double)sim->now_ns + sim->latency_ns / 2;
    bool joins = sim->is_group && sim->server_free_ns > arrives && sim->flying_count > 1;
    double cost = (joins ? 0 : sim->batch_ns) + (double)batch.bytes * sim->byte_ns;
    cost *= 1 + sim->jitter * (2 * sim_uniform(sim) - 1);
    sim->server_free_ns = (arrives > sim->server_free_ns ? arrives : sim->server_free_ns) + cost;
    batch.answered_ns = (int64_t)(sim->server_free_ns + sim->latency_ns / 2);
    sim->flying[(sim->flying_first + sim->flying_count++) % IN_FLIGHT_MAX] = batch;
    sim->batches++;
}

static void sim_pump(struct sim *sim)
{
    for (;;) {
        unsigned most = sim->plan.in_flight;
        if (sim->waiting_count == 0 && sim->filling.bytes > 0) {
            struct fq_batching_question question = {
                .batch_bytes = sim->filling.bytes, .wanted_bytes = sim->plan.batch_bytes,
                .in_flight = sim->flying_count, .wanted_in_flight = sim->plan.in_flight,
                .slot_in_flight = sim->flying_count, .max_in_flight = IN_FLIGHT_MAX};
            if (fq_batching_sends(&question)) {
                sim_close_batch(sim);
            }
        }
        if (sim->waiting_count == 0 || sim->flying_count >= most) {
            return;
        }
        sim_post(sim);
    }
}

static void sim_look(struct sim *sim)
{
    while (sim->flying_count > 0 && sim->flying[sim->flying_first].answered_ns <= sim->now_ns) {
        struct sim_batch *batch = &sim->flying[sim->flying_first];
        fq_estimate_answered(&sim->estimate, sim->now_ns, batch->posted_ns, batch->bytes,
                             batch->was_alone);
        for (; sim->answered < batch->end; sim->answered++) {
            sim->took_ns[sim->answered] = sim->now_ns - sim->sent_ns[sim->answered];
        }
        sim->answered_bytes += batch->bytes;
        sim->queued_bytes -= batch->bytes;
        sim->flying_first = (sim->flying_first + 1) % IN_FLIGHT_MAX;
        sim->flying_count--;
    }
}

static void sim_append(struct sim *sim)
{
    if (sim->filling.bytes > 0 && sim->filling.bytes + sim->record_bytes > sim->plan.close_bytes) {
        sim_close_batch(sim);
    }
    if (sim->filling.bytes == 0) {
        fq_estimate_produced(&sim->estimate, sim->now_ns, sim->closed_bytes);
        sim->closed_bytes = 0;
        sim->plan = fq_estimate_plan(&sim->estimate, BATCH_MAX, IN_FLIGHT_MAX);
        sim->filling.first = sim->sent;
    }
    cr_assert_lt(sim->sent, RECORDS_MAX);
    sim->sent_ns[sim->sent++] = sim->rate > 0 ? (int64_t)sim->next_record_ns : sim->now_ns;
    sim->filling.end = sim->sent;
    sim->filling.bytes += sim->record_bytes;
    sim->queued_bytes += sim->record_bytes;
}

/* Runs for so long; the application looks at its acknowledgements with every record, and otherwise now and
 * then. */
static void sim_run(struct sim *sim, int64_t span_ns)
{
    int64_t end_ns = sim->now_ns + span_ns;
    sim->next_record_ns = (double)sim->now_ns;
    while (sim->now_ns < end_ns) {
        bool is_due = sim->next_record_ns <= (double)sim->now_ns;
        sim_look(sim);
        if (is_due && sim->queued_bytes + sim->record_bytes <= sim->queue_bytes) {
            sim_append(sim);
            sim->next_record_ns += sim->rate > 0 ? 1 / sim->rate : sim->append_ns;
        } else if (is_due && sim->rate <= 0) {
            sim->next_record_ns = (double)sim->now_ns;
        }
        sim_pump(sim);
        double plan = (double)sim->plan.batch_bytes;
        if (sim->now_ns > end_ns - span_ns / 4 && !sim->plan.is_contrast) {
            sim->least_batch = plan < sim->least_batch ? plan : sim->least_batch;
            sim->most_batch = plan > sim->most_batch ? plan : sim->most_batch;
        } else {
            sim->least_batch = 1e18;
            sim->most_batch = 0;
        }
        sim->now_ns += is_due ? (int64_t)sim->append_ns : LOOK_NS;
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Of the records answered from `from` on. */
static double sim_percentile(const struct sim *sim, uint64_t from, double share)
{
    uint64_t count = sim->answered - from;
    int64_t *sorted = malloc((count ? count : 1) * sizeof *sorted);
    cr_assert(sorted && count > 0);
    memcpy(sorted, sim->took_ns + from, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    double value = (double)sorted[(uint64_t)((double)(count - 1) * share)];
    free(sorted);
    return value;
}

struct broker {
    const char *name;
    double latency_ns, batch_ns, byte_ns;
    bool is_group;
};
static const struct broker brokers[] = {
    {"memory", 2500, 700, 0.15, false}, {"slow bytes", 2500, 700, 1.5, false},
    {"loopback", 30000, 8000, 0.4, false}, {"network", 100000, 3000, 0.8, false},
    {"disk", 20000, 300000, 1.0, true}};
#define BROKERS (sizeof brokers / sizeof brokers[0])

static struct sim sim_of(const struct broker *broker, size_t record_bytes, double rate)
{
    return (struct sim){.latency_ns = broker->latency_ns, .batch_ns = broker->batch_ns,
                        .byte_ns = broker->byte_ns, .is_group = broker->is_group, .jitter = 0.2,
                        .record_bytes = record_bytes, .rate = rate};
}


/* What a record takes that meets an idle broker. */
static double alone_ns(const struct broker *broker, size_t record_bytes)
{
    return broker->latency_ns + 1.2 * (broker->batch_ns + (double)record_bytes * broker->byte_ns);
}

/* Records a ns that the broker takes in batches that cost nothing, or the application makes. */
static double capacity_of(const struct broker *broker, size_t record_bytes)
{
    double capacity = 1 / ((double)record_bytes * broker->byte_ns);
    return capacity < 1 / 55.0 ? capacity : 1 / 55.0;
}

enum { WARM_NS = 20000000, SPAN_NS = 20000000 };
static const size_t sizes[] = {64, 1024, 16384};

static uint64_t new_seed(void)
{
    uint64_t seed = fq_random_u64();
    fprintf(stderr, "# seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Records that are sent far apart go alone, and wait for nothing. */
Test(simulated, a_record_that_meets_an_idle_broker_waits_for_nobody)
{
    uint64_t seed = new_seed();
    for (size_t b = 0; b < BROKERS; b++) {
        struct sim sim = sim_of(&brokers[b], 1024, 0.2 / alone_ns(&brokers[b], 1024));
        sim_open(&sim, seed);
        sim_run(&sim, 4 * SPAN_NS);
        cr_assert_eq(sim.batches, sim.sent, "%s", brokers[b].name);
        cr_assert_leq(sim_percentile(&sim, 0, 1), alone_ns(&brokers[b], 1024) + 2 * LOOK_NS, "%s",
                      brokers[b].name);
        sim_close(&sim);
    }
}

Test(simulated, below_saturation_latency_stays_near_that_of_a_lone_record)
{
    static const double loads[] = {0.003, 0.03, 0.1, 0.3, 0.6};
    uint64_t seed = new_seed();
    for (size_t i = 0; i < BROKERS * 3 * 5; i++) {
        const struct broker *broker = &brokers[i / 15];
        size_t size = sizes[i / 5 % 3];
        double rate = loads[i % 5] * capacity_of(broker, size);
        struct sim sim = sim_of(broker, size, rate);
        sim_open(&sim, seed + i);
        sim_run(&sim, WARM_NS);
        uint64_t from = sim.answered, sent = sim.sent;
        sim_run(&sim, SPAN_NS);
        cr_assert_geq((double)(sim.answered - from), 0.9 * (double)(sim.sent - sent) - 2, "%s %zu B %g",
                      broker->name, size, loads[i % 5]);
        double p99 = sim.answered > from ? sim_percentile(&sim, from, 0.99) : 0;
        cr_assert_leq(p99, 4 * alone_ns(broker, size), "%s %zu B at %g: %.0f ns", broker->name, size,
                      loads[i % 5], p99);
        sim_close(&sim);
    }
}

Test(simulated, an_application_faster_than_the_broker_gets_what_the_broker_has)
{
    uint64_t seed = new_seed();
    for (size_t i = 0; i < BROKERS * 3; i++) {
        const struct broker *broker = &brokers[i / 3];
        struct sim sim = sim_of(broker, sizes[i % 3], 0);
        sim_open(&sim, seed + i);
        sim_run(&sim, WARM_NS);
        uint64_t from = sim.answered;
        sim_run(&sim, SPAN_NS);
        double served = (double)(sim.answered - from) / SPAN_NS;
        cr_assert_geq(served, 0.85 * capacity_of(broker, sizes[i % 3]), "%s %zu B: %.2f of capacity",
                      broker->name, sizes[i % 3], served / capacity_of(broker, sizes[i % 3]));
        sim_close(&sim);
    }
}

/* Few round trips after a step of the rate latency is what the new rate allows; up from next to nothing, down from
 * more than there is room for, and after an hour of nothing. */
Test(simulated, a_step_of_the_rate_is_followed_within_few_round_trips)
{
    uint64_t seed = new_seed();
    for (size_t i = 0; i < BROKERS * 3; i++) {
        const struct broker *broker = &brokers[i / 3];
        double alone = alone_ns(broker, 1024), capacity = capacity_of(broker, 1024);
        struct sim sim = sim_of(broker, 1024, i % 3 == 1 ? 0 : 0.01 * capacity);
        sim.queue_bytes = 1 << 20;
        sim_open(&sim, seed + i);
        sim_run(&sim, WARM_NS);
        if (i % 3 == 2) {
            sim.now_ns += INT64_C(3600000000000);
        }
        sim.rate = i % 3 == 1 ? 0.03 * capacity : 0.6 * capacity;
        sim_run(&sim, (int64_t)(20 * alone) + (i % 3 == 1 ? 4000000 : 0));
        uint64_t from = sim.sent;
        sim_run(&sim, SPAN_NS);
        double p99 = sim_percentile(&sim, from, 0.99);
        cr_assert_leq(p99, 6 * alone, "%s, step %zu: %.0f ns", broker->name, i % 3, p99);
        sim_close(&sim);
    }
}

/* Whatever was sent is answered, also when nothing more comes to push it. */
Test(simulated, nothing_is_left_behind)
{
    uint64_t seed = new_seed();
    for (size_t i = 0; i < BROKERS * 3; i++) {
        const struct broker *broker = &brokers[i / 3];
        double rate = (double[]){0, 0.5, 0.01}[i % 3] * capacity_of(broker, 64);
        struct sim sim = sim_of(broker, 64, rate);
        sim.queue_bytes = 1 << 20;
        sim_open(&sim, seed + i);
        sim_run(&sim, SPAN_NS);
        sim.queue_bytes = 1; /* nothing more is taken */
        sim.rate = 0;
        sim_run(&sim, SPAN_NS);
        cr_assert_eq(sim.answered, sim.sent, "%s", broker->name);
        sim_close(&sim);
    }
}

/* A steady rate makes a steady plan: it is not the plan that makes the rate. */
Test(simulated, plans_do_not_oscillate)
{
    uint64_t seed = new_seed();
    for (size_t i = 0; i < BROKERS * 2; i++) {
        const struct broker *broker = &brokers[i / 2];
        struct sim sim = sim_of(broker, 1024, (i % 2 ? 0.3 : 0.1) * capacity_of(broker, 1024));
        sim_open(&sim, seed + i);
        sim_run(&sim, 4 * SPAN_NS);
        cr_assert_leq(sim.most_batch, 2 * sim.least_batch + 1024, "%s: %.0f to %.0f bytes",
                      broker->name, sim.least_batch, sim.most_batch);
        sim_close(&sim);
    }
}
