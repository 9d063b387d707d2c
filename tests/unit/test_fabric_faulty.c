/* SPDX-License-Identifier: Apache-2.0 */
/* The fault-injecting decorator: each fault happens, by seed, and no promise of a fabric is broken.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "fabric/faulty.h"
#include "fabric_pair.h"

#define RING_BYTES (64u << 10)

static enum pair_backend faulty_backends[] = {PAIR_SHM_FAULTY, PAIR_TCP_FAULTY};

#define for_each_faulty(name)                                                                      \
    ParameterizedTestParameters(faulty, name)                                                      \
    {                                                                                              \
        return cr_make_param_array(enum pair_backend, faulty_backends, 2);                         \
    }                                                                                              \
    ParameterizedTest(enum pair_backend *backend, faulty, name)

struct setup {
    struct pair pair;
    struct fq_region *ring, *local;
    struct fq_window *window;
    struct fq_remote *remote;
};

static void set_up(struct setup *s, enum pair_backend backend)
{
    struct fq_err err = {0};
    pair_open(&s->pair, backend);
    pair_connect(&s->pair);
    cr_assert_eq(fq_region_create(RING_BYTES, 0, &s->ring, &err), 0);
    cr_assert_eq(fq_region_create(RING_BYTES, FQ_REGION_LOCAL, &s->local, &err), 0);
    pair_window(&s->pair, s->pair.s, s->pair.c, s->ring, FQ_RIGHT_WRITE, &s->window, &s->remote);
}

static void tear_down(struct setup *s)
{
    fq_region_unref(s->ring);
    fq_region_unref(s->local);
    pair_close(&s->pair);
}

static void write_pattern(struct setup *s, uint32_t i)
{
    size_t length = 2 + i * 37 % 8000;
    uint8_t *here = fq_region_base(s->local);
    memset(here, (int)(i % 255 + 1), length);
    const struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY,
                             .remote = s->remote,
                             .region = s->local,
                             .local = here,
                             .length = length,
                             .imm = i,
                             .cookie = i,
                             .signaled = true};
    cr_assert_eq(fq_conn_post(s->pair.c, &op, 1), 1);
    struct pair_event event = pair_wait(&s->pair, s->pair.s, FQ_EVENT_NOTIFY);
    cr_assert_eq(event.event.imm, i);
    const uint8_t *there = fq_region_base(s->ring);
    for (size_t at = 0; at < length; at++) {
        cr_assert_eq(there[at], (uint8_t)(i % 255 + 1), "notify %u, byte %zu of %zu", i, at,
                     length);
    }
    event = pair_wait(&s->pair, s->pair.c, FQ_EVENT_COMPLETED);
    cr_assert_eq(event.event.cookie, i);
    cr_assert_eq(event.event.status, 0);
}

for_each_faulty(torn_late_and_delayed_keep_the_order_and_the_bytes_before_the_notify)
{
    struct setup s;
    struct fq_fault_counts counts;
    const struct fq_fault_plan plan = {
        .torn_write = 400000, .late_op = 300000, .delay_event = 300000, .delay_polls_max = 4};
    set_up(&s, *backend);
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &plan);
    fq_fabric_faulty_set_plan(s.pair.server.fabric, &plan);
    for (uint32_t i = 0; i < 300; i++) {
        write_pattern(&s, i);
    }
    for (uint32_t i = 0; i < 300; i++) {
        cr_assert_eq(fq_conn_send(s.pair.c, &i, sizeof i), 0);
        if (i % 8 == 7) {
            for (uint32_t k = i - 7; k <= i; k++) {
                struct pair_event event = pair_wait(&s.pair, s.pair.s, FQ_EVENT_MESSAGE);
                cr_assert_eq(memcmp(event.bytes, &k, sizeof k), 0);
                pair_event_free(&event);
            }
        }
    }
    fq_fabric_faulty_counts(s.pair.client.fabric, &counts);
    cr_assert_gt(counts.torn, 50);
    cr_assert_gt(counts.late, 50);
    cr_assert_gt(counts.delayed, 50);
    tear_down(&s);
}

/* A small write is cut between aligned words only: a word that is watched has its old value or its new one. */
for_each_faulty(aligned_words_of_a_small_write_are_never_torn)
{
    struct setup s;
    const struct fq_fault_plan plan = {.torn_write = FQ_FAULT_CERTAIN, .delay_polls_max = 8, .seed = 7};
    uint64_t before[8] = {0};
    set_up(&s, *backend);
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &plan);
    const uint64_t *there = fq_region_base(s.ring);
    unsigned parts_seen = 0;
    for (uint64_t i = 1; i < 200; i++) {
        uint64_t after[8], words = 1 + i % 8;
        uint64_t value = (i % 2 ? UINT64_C(0x0101010101010101) : UINT64_C(0x8080808080808080)) * (i % 100 + 1);
        memcpy(after, before, sizeof after);
        for (uint64_t w = 0; w < words; w++) {
            after[w] = value;
        }
        const struct fq_op op = {.type = FQ_OP_WRITE, .remote = s.remote, .local = after,
                                 .length = words * sizeof *after, .cookie = i, .signaled = true};
        cr_assert_eq(fq_conn_post(s.pair.c, &op, 1), 1);
        for (int poll = 0; poll < 40; poll++) {
            pair_poll(&s.pair.client);
            pair_poll(&s.pair.server);
            unsigned changed = 0;
            for (uint64_t w = 0; w < words; w++) {
                uint64_t seen = __atomic_load_n(&there[w], __ATOMIC_ACQUIRE);
                cr_assert(seen == before[w] || seen == after[w], "write %llu, word %llu: %016llx",
                          (unsigned long long)i, (unsigned long long)w, (unsigned long long)seen);
                changed += seen == after[w];
            }
            parts_seen += changed > 0 && changed < words;
        }
        cr_assert_eq(pair_wait(&s.pair, s.pair.c, FQ_EVENT_COMPLETED).event.cookie, i);
        memcpy(before, after, sizeof before);
    }
    cr_assert_gt(parts_seen, 20, "torn between words in %u looks", parts_seen);
    tear_down(&s);
}

/* A torn write is seen half done, which is what it is for. */
for_each_faulty(a_torn_write_is_seen_in_parts)
{
    struct setup s;
    const struct fq_fault_plan plan = {.torn_write = FQ_FAULT_CERTAIN, .delay_polls_max = 20};
    set_up(&s, *backend);
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &plan);
    uint8_t *here = fq_region_base(s.local);
    const uint8_t *there = fq_region_base(s.ring);
    bool is_seen_torn = false;
    for (int i = 1; i < 100 && !is_seen_torn; i++) {
        memset(here, i, RING_BYTES);
        const struct fq_op op = {.type = FQ_OP_WRITE_NOTIFY,
                                 .remote = s.remote,
                                 .region = s.local,
                                 .local = here,
                                 .length = RING_BYTES};
        cr_assert_eq(fq_conn_post(s.pair.c, &op, 1), 1);
        while (!pair_has(&s.pair.server, s.pair.s, FQ_EVENT_NOTIFY)) {
            pair_poll(&s.pair.client);
            pair_poll(&s.pair.server);
            is_seen_torn |= there[0] == i && there[RING_BYTES - 1] != i;
        }
        struct pair_event event = pair_wait(&s.pair, s.pair.s, FQ_EVENT_NOTIFY);
        pair_event_free(&event);
    }
    cr_assert(is_seen_torn);
    tear_down(&s);
}

for_each_faulty(a_dropped_connection_completes_what_was_in_flight)
{
    struct setup s;
    set_up(&s, *backend);
    const struct fq_fault_plan late = {.late_op = FQ_FAULT_CERTAIN, .delay_polls_max = 1000000};
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &late);
    for (uint64_t i = 0; i < 5; i++) {
        const struct fq_op op = {.type = FQ_OP_WRITE,
                                 .remote = s.remote,
                                 .region = s.local,
                                 .local = fq_region_base(s.local),
                                 .length = 100,
                                 .cookie = i,
                                 .signaled = true};
        cr_assert_eq(fq_conn_post(s.pair.c, &op, 1), 1);
    }
    const struct fq_fault_plan drop = {.drop = FQ_FAULT_CERTAIN};
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &drop);
    cr_assert_eq(fq_conn_send(s.pair.c, "x", 1), FLASHQ_ERR_CLOSED);
    for (uint64_t i = 0; i < 5; i++) {
        struct pair_event event = pair_wait(&s.pair, s.pair.c, FQ_EVENT_COMPLETED);
        cr_assert_eq(event.event.cookie, i);
        cr_assert_eq(event.event.status, FLASHQ_ERR_UNREACHABLE);
    }
    struct pair_event event = pair_wait(&s.pair, s.pair.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_UNREACHABLE);
    pair_event_free(&event);
    event = pair_wait(&s.pair, s.pair.s, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_CLOSED);
    pair_event_free(&event);
    tear_down(&s);
}

for_each_faulty(a_refused_key_breaks_the_connection)
{
    struct setup s;
    set_up(&s, *backend);
    const struct fq_fault_plan plan = {.key_refused = FQ_FAULT_CERTAIN};
    fq_fabric_faulty_set_plan(s.pair.client.fabric, &plan);
    cr_assert_eq(fq_conn_send(s.pair.c, "x", 1), 0, "a message needs no key");
    const struct fq_op op = {
        .type = FQ_OP_WRITE, .remote = s.remote, .local = fq_region_base(s.local), .length = 8};
    cr_assert_eq(fq_conn_post(s.pair.c, &op, 1), FLASHQ_ERR_CLOSED);
    struct pair_event event = pair_wait(&s.pair, s.pair.c, FQ_EVENT_DISCONNECTED);
    cr_assert_eq(event.event.status, FLASHQ_ERR_NOT_PERMITTED);
    pair_event_free(&event);
    tear_down(&s);
}

/* The same seed gives the same faults. */
Test(faulty, a_seed_replays)
{
    struct fq_fault_counts counts[2];
    for (int run = 0; run < 2; run++) {
        struct setup s;
        struct fq_err err = {0};
        set_up(&s, PAIR_SHM_FAULTY);
        const struct fq_fault_plan plan = {
            .seed = 99, .torn_write = 200000, .late_op = 200000, .drop = 2000};
        struct fq_fabric *fabric;
        cr_assert_eq(fq_fabric_faulty_create(FQ_TRANSPORT_SHM, NULL, &plan, &fabric, &err), 0);
        fq_fabric_destroy(s.pair.client.fabric);
        s.pair.client.fabric = fabric;
        pair_connect(&s.pair);
        pair_window(&s.pair, s.pair.s, s.pair.c, s.ring, FQ_RIGHT_WRITE, &s.window, &s.remote);
        uint64_t word = 7;
        const struct fq_op op = {
            .type = FQ_OP_WRITE, .remote = s.remote, .local = &word, .length = 8};
        int r = 1;
        for (int i = 0; i < 10000 && (r == 1 || r == FLASHQ_ERR_AGAIN); i++) {
            r = fq_conn_post(s.pair.c, &op, 1);
            pair_poll(&s.pair.client);
        }
        cr_assert_eq(r, FLASHQ_ERR_CLOSED, "it dropped in the end");
        fq_fabric_faulty_counts(fabric, &counts[run]);
        tear_down(&s);
    }
    cr_assert_gt(counts[0].torn, 0);
    cr_assert_eq(memcmp(&counts[0], &counts[1], sizeof counts[0]), 0);
}
