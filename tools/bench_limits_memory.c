/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory and two processors can do: copies, the checksum, the pipeline that a published batch goes
 * through (with nothing but its bytes: no records, no offsets, no protocol), and one record there and back.
 *
 * The pipeline. One thread copies records into a ring of 4 MiB and checksums them, 64 KiB a batch; the other
 * brings each batch through a scratch buffer of 4 KiB that stays in its nearest cache: copy and checksum,
 * compare, store past the caches into prepared memory, a fence a batch. The ring's space goes back with
 * the batch.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/crc32c.h"

#include "tools/bench.h"
#include "tools/bench_limits.h"

#define CRC_BYTES ((size_t)64 << 10)
#define BATCH_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)4 << 10)
#define RING_BATCHES ((size_t)64)
#define LOG_BYTES ((size_t)256 << 20)
#define RECORD_BYTES_MAX ((size_t)1 << 20)

/* ---- one processor ------------------------------------------------------------------------- */

struct solo {
    size_t size;
    bool is_prepared;
    int64_t run_ns;
    double rate;
};

static void copy(void *context)
{
    struct solo *solo = context;
    solo->rate = fq_bench_memcpy_rate(solo->size, solo->is_prepared);
}

static double memcpy_rate(const struct fq_limits_run *run, bool is_prepared)
{
    struct solo solo = {.size = run->size, .is_prepared = is_prepared, .rate = -1};
    return fq_solo_run(run, copy, &solo) ? solo.rate : -1;
}

double fq_limits_memcpy_prepared(const struct fq_limits_run *run)
{
    return memcpy_rate(run, true);
}

double fq_limits_memcpy_fresh(const struct fq_limits_run *run)
{
    return memcpy_rate(run, false);
}

static volatile uint32_t crc_sink;

static void checksum(void *context)
{
    struct solo *solo = context;
    uint8_t *bytes = fq_alloc(CRC_BYTES);
    int64_t began = fq_now_ns(), now = began;
    uint64_t done = 0;
    uint32_t crc = 0;
    while (now - began < solo->run_ns) {
        crc = fq_crc32c(crc, bytes, CRC_BYTES);
        done += CRC_BYTES;
        now = fq_now_ns();
    }
    crc_sink = crc;
    free(bytes);
    solo->rate = (double)done / (double)(now - began);
}

double fq_limits_crc32c(const struct fq_limits_run *run)
{
    struct solo solo = {.run_ns = run->run_ns, .rate = -1};
    return fq_solo_run(run, checksum, &solo) ? solo.rate : -1;
}

/* ---- the pipeline -------------------------------------------------------------------------- */

struct pipeline {
    /* each word on a line of its own */
    _Alignas(64) _Atomic uint64_t produced; /* batches; pairs with the consumer's acquire */
    _Alignas(64) _Atomic uint64_t consumed; /* pairs with the producer's acquire */
    _Alignas(64) _Atomic int is_over;
    const struct fq_limits_run *run;
    uint32_t crcs[RING_BATCHES];
    uint8_t *record, *ring, *log;
    uint64_t faults; /* batches whose checksums differed */
    double rate;
};

/* Fills a batch with records; each block is checksummed while it is near. */
static uint32_t fill_batch(const struct pipeline *p, uint8_t *batch)
{
    size_t done = 0, summed = 0;
    uint32_t crc = 0;
    while (done < BATCH_BYTES) {
        size_t length = BATCH_BYTES - done < p->run->size ? BATCH_BYTES - done : p->run->size;
        memcpy(batch + done, p->record, length);
        done += length;
        if (done - summed >= BLOCK_BYTES || done == BATCH_BYTES) {
            crc = fq_crc32c(crc, batch + summed, done - summed);
            summed = done;
        }
    }
    return crc;
}

static void produce(void *context)
{
    struct pipeline *p = context;
    int64_t began = fq_now_ns(), now = began;
    uint64_t batch = 0;
    while (now - began < p->run->run_ns) {
        while (batch - atomic_load_explicit(&p->consumed, memory_order_acquire) == RING_BATCHES) {
            fq_store_pause();
        }
        size_t slot = batch % RING_BATCHES;
        p->crcs[slot] = fill_batch(p, p->ring + slot * BATCH_BYTES);
        atomic_store_explicit(&p->produced, ++batch, memory_order_release);
        now = fq_now_ns();
    }
    while (atomic_load_explicit(&p->consumed, memory_order_acquire) != batch) {
        fq_store_pause();
    }
    now = fq_now_ns();
    atomic_store_explicit(&p->is_over, 1, memory_order_release);
    p->rate = (double)(batch * BATCH_BYTES) / (double)(now - began);
}

static uint32_t store_batch(uint8_t *to, const uint8_t *batch)
{
    _Alignas(64) uint8_t scratch[BLOCK_BYTES];
    uint32_t crc = 0;
    for (size_t at = 0; at < BATCH_BYTES; at += BLOCK_BYTES) {
        crc = fq_crc32c_copy(crc, scratch, batch + at, BLOCK_BYTES);
        fq_store_past_caches(to + at, scratch, BLOCK_BYTES);
    }
    fq_store_fence();
    return crc;
}

static void *store(void *context)
{
    struct pipeline *p = context;
    uint64_t batch = 0;
    while (!atomic_load_explicit(&p->is_over, memory_order_relaxed)) {
        if (atomic_load_explicit(&p->produced, memory_order_acquire) == batch) {
            fq_store_pause();
            continue;
        }
        size_t slot = batch % RING_BATCHES;
        uint8_t *to = p->log + batch * BATCH_BYTES % LOG_BYTES;
        p->faults += store_batch(to, p->ring + slot * BATCH_BYTES) != p->crcs[slot];
        atomic_store_explicit(&p->consumed, ++batch, memory_order_release);
    }
    return NULL;
}

double fq_limits_pipeline(const struct fq_limits_run *run)
{
    struct pipeline *p = aligned_alloc(64, sizeof *p);
    double rate = -1;
    if (!p) {
        return -1;
    }
    memset(p, 0, sizeof *p);
    p->run = run;
    p->record = fq_alloc(run->size);
    fq_bench_fill(p->record, run->size, 1);
    p->ring = fq_limits_prepared(RING_BATCHES * BATCH_BYTES);
    p->log = fq_limits_prepared(LOG_BYTES);
    if (p->ring && p->log && fq_duo_run(run, produce, store, p) && p->faults == 0) {
        rate = p->rate;
    }
    if (p->ring) {
        (void)munmap(p->ring, RING_BATCHES * BATCH_BYTES);
    }
    if (p->log) {
        (void)munmap(p->log, LOG_BYTES);
    }
    free(p->record);
    free(p);
    return rate;
}

/* ---- one record there and back ------------------------------------------------------------- */

struct bounce {
    _Alignas(64) _Atomic uint64_t ping; /* rounds; pairs with the peer's acquire */
    _Alignas(64) _Atomic uint64_t pong; /* pairs with the sender's acquire */
    _Alignas(64) _Atomic int is_over;
    const struct fq_limits_run *run;
    uint32_t crc;
    size_t room; /* of one record in whole lines */
    uint64_t round, faults;
    uint8_t *record, *ring, *scratch, *log;
    double median;
};

static int send_record(void *context)
{
    struct bounce *b = context;
    memcpy(b->ring, b->record, b->run->size);
    b->crc = fq_crc32c(0, b->ring, b->run->size);
    atomic_store_explicit(&b->ping, ++b->round, memory_order_release);
    while (atomic_load_explicit(&b->pong, memory_order_acquire) != b->round) {
        fq_store_pause();
    }
    return 0;
}

static void send_records(void *context)
{
    struct bounce *b = context;
    b->median = fq_limits_median_ns(b->run, send_record, b, 1) / 1e3;
    atomic_store_explicit(&b->is_over, 1, memory_order_release);
}

static void *store_records(void *context)
{
    struct bounce *b = context;
    uint64_t seen = 0;
    while (!atomic_load_explicit(&b->is_over, memory_order_relaxed)) {
        if (atomic_load_explicit(&b->ping, memory_order_acquire) == seen) {
            fq_store_pause();
            continue;
        }
        seen++;
        b->faults += fq_crc32c_copy(0, b->scratch, b->ring, b->run->size) != b->crc;
        fq_store_past_caches(b->log + seen * b->room % LOG_BYTES, b->scratch, b->room);
        fq_store_fence();
        atomic_store_explicit(&b->pong, seen, memory_order_release);
    }
    return NULL;
}

double fq_limits_record_round_trip(const struct fq_limits_run *run)
{
    struct bounce *b = aligned_alloc(64, sizeof *b);
    double median = -1;
    if (!b || run->size > RECORD_BYTES_MAX) {
        free(b);
        return -1;
    }
    memset(b, 0, sizeof *b);
    b->run = run;
    b->room = 64; /* a power of two, so that every record ends within the log */
    while (b->room < run->size) {
        b->room *= 2;
    }
    b->record = fq_alloc(run->size);
    b->scratch = fq_alloc(b->room);
    fq_bench_fill(b->record, run->size, 1);
    b->ring = fq_limits_prepared(b->room);
    b->log = fq_limits_prepared(LOG_BYTES);
    if (b->ring && b->log && fq_duo_run(run, send_records, store_records, b) && b->faults == 0) {
        median = b->median;
    }
    if (b->ring) {
        (void)munmap(b->ring, b->room);
    }
    if (b->log) {
        (void)munmap(b->log, LOG_BYTES);
    }
    free(b->scratch);
    free(b->record);
    free(b);
    return median;
}
