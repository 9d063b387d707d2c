/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer that rewrites its ring while the broker takes batches out of it. Whatever the
 * partition reads: each batch is either refused with words or stored with a checksum that fits, an
 * offset that follows, and records that decode; and no refusal moves the log.
 *
 * The hostile side stores without synchronisation, which is the point; it is not instrumented, so
 * that ThreadSanitizer looks for races of the broker's own.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "partition_env.h"

#define PRODUCER   INT64_C(7)
#define RING_BYTES (64u << 10)
#define ATTEMPTS   20000

static uint8_t *ring;
static uint64_t batch_bytes;
static _Atomic bool is_over;

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "race_hostile_ring.c:%d: not so: %s\n", __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

__attribute__((no_sanitize("thread"))) static void *be_hostile(void *seed)
{
    struct fq_prng prng;
    fq_prng_seed(&prng, *(uint64_t *)seed);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        uint64_t at = fq_prng_below(&prng, 3) == 0 ? fq_prng_below(&prng, FQ_BATCH_HEADER_BYTES)
                                                   : fq_prng_below(&prng, batch_bytes);
        volatile uint8_t *byte = ring + at;
        uint8_t whole = *byte;
        *byte = (uint8_t)fq_prng_next(&prng);
        for (volatile uint64_t wait = fq_prng_below(&prng, 300); wait > 0; wait--) {
        }
        *byte = whole;
        for (volatile uint64_t wait = fq_prng_below(&prng, 3000); wait > 0; wait--) {
        }
    }
    return NULL;
}

static int check_stored(void *context, const struct fq_batch_header *header, const uint8_t *batch,
                        uint64_t segment_base, uint64_t position)
{
    int64_t *next = context;
    int64_t min, max;
    (void)segment_base;
    (void)position;
    uint64_t bytes = fq_batch_total_bytes(header);
    REQUIRE(fq_batch_crc_ok(batch, bytes));
    REQUIRE(header->base_offset == *next);
    REQUIRE(fq_batch_check_records(batch, bytes, &min, &max, NULL) == 0);
    *next += header->records_count;
    return 0;
}

int main(void)
{
    static struct env env;
    uint64_t seed = fq_random_u64(), taken = 0, refused = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    env_open(&env, &(struct env_params){.flush = FQ_FLUSH_PMEM, .batch_max_bytes = RING_BYTES});
    struct fq_producer_opened opened;
    REQUIRE(fq_partition_producer_open(env.partition, -1, -1, -1, &opened, NULL) == 0);
    ring = aligned_alloc(4096, RING_BYTES);
    REQUIRE(ring != NULL);
    char value[100];
    memset(value, 'x', sizeof value);
    struct env_record records[20];
    for (size_t i = 0; i < 20; i++) {
        records[i] = (struct env_record){env.wall_ms, value, sizeof value};
    }
    batch_bytes = env_batch(&env, -1, -1, -1, records, 20);
    memcpy(ring, env.batch, batch_bytes);
    pthread_t hostile;
    REQUIRE(pthread_create(&hostile, NULL, be_hostile, &seed) == 0);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct fq_append_result result;
        struct fq_err err = {0};
        int64_t end = fq_log_end(fq_partition_log(env.partition));
        int rc = fq_partition_append(env.partition, ring, RING_BYTES, -1, -1, &result, &err);
        if (rc == FQ_APPEND_STARVED) {
            (void)fq_partition_commit_round(env.partition);
            env_step(&env);
            continue;
        }
        REQUIRE(rc <= 0);
        REQUIRE(rc < 0 || result.base_offset == end);
        REQUIRE(rc == 0 ||
                (fq_log_end(fq_partition_log(env.partition)) == end && err.text[0] != '\0'));
        REQUIRE(result.bytes <= RING_BYTES);
        taken += rc == 0;
        refused += rc < 0;
    }
    atomic_store_explicit(&is_over, true, memory_order_relaxed);
    REQUIRE(pthread_join(hostile, NULL) == 0);
    env_commit(&env);
    int64_t next = 0;
    struct fq_log *log = fq_partition_log(env.partition);
    REQUIRE(fq_log_scan(log, 0, fq_log_end(log), check_stored, &next) == 0);
    REQUIRE(next == fq_log_end(log));
    printf("%llu taken, %llu refused\n", (unsigned long long)taken, (unsigned long long)refused);
    REQUIRE(taken > 0);
    free(ring);
    env_close(&env);
    return 0;
}
