/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench: what the parts share. The main thread sets up, starts one thread a client, watches, and
 * prints; each client has a connection, a producer or consumer and a histogram of its own. Clients
 * start together (a barrier) and are added up when all have ended.
 */
#ifndef FQ_TOOLS_BENCH_H
#define FQ_TOOLS_BENCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "tools/cli.h"
#include "tools/histogram.h"

enum fq_bench_kind { FQ_BENCH_PUB, FQ_BENCH_SUB, FQ_BENCH_PULL, FQ_BENCH_E2E };

struct fq_bench {
    struct fq_cli *cli;
    enum fq_bench_kind kind;
    const char *topic;
    int64_t msgs;           /* in all (pub, e2e), for each client (sub, pull); 0: by duration */
    int64_t duration_ms;    /* 0: by msgs */
    uint64_t size;          /* of a value */
    int64_t clients;
    int64_t partitions;     /* of a topic that the bench creates */
    double rate;            /* in all, a second; 0: max */
    bool is_sync, is_verify, has_latency;
    const char *transport;  /* NULL: the library's choice */
    pthread_barrier_t start;
    int64_t pinned_end;     /* sum over the partitions of what is there to read */
    _Atomic int64_t producing; /* clients that still publish (e2e) */
};

struct fq_bench_worker {
    struct fq_bench *bench;
    pthread_t thread;
    unsigned index;
    int64_t quota;           /* records; INT64_MAX: by duration */
    _Atomic uint64_t done;   /* for the watcher */
    uint64_t records, errors, bytes;
    int64_t began_ns, ended_ns;
    struct fq_histogram latency; /* ns */
    flashq_producer_stats stats;
    int code;                /* 0, or why it could not work */
    char errtext[FQ_ERRTEXT_BYTES];
};

/* Every record of the bench begins with this where its size allows (little-endian as the CPU is). */
struct fq_bench_stamp {
    uint32_t magic, client;
    uint64_t sequence;
    int64_t sent_ns;         /* CLOCK_MONOTONIC of this host */
};
#define FQ_BENCH_MAGIC 0x46514245u

/* The threads' functions. */
void *fq_bench_publish(void *worker);
void *fq_bench_consume(void *worker);

/* Fills the pattern that follows the stamp. */
void fq_bench_fill(uint8_t *value, size_t size, unsigned client);
/* Whether the value is what client and sequence say. */
bool fq_bench_is_whole(const void *value, size_t length, size_t size);

/* CPU time of this process and of the local broker's, in microseconds; -1: not known. */
int64_t fq_bench_cpu_us(void);
int64_t fq_bench_broker_cpu_us(struct fq_cli *cli);

struct fq_bench_result {
    double seconds;
    uint64_t records, errors, bytes;
    double client_min, client_max; /* msgs/s of the slowest and fastest client */
    struct fq_histogram latency;
    uint64_t batches, batch_bytes;
    double client_cpu, broker_cpu; /* percent of one core; -1: not known */
    double memcpy_gb_per_s;        /* record-sized copies into prepared memory */
};
void fq_bench_print(const struct fq_bench *bench, const struct fq_bench_result *result);

/* GB/s of copies of `chunk` bytes into a shared mapping; prepared: its pages were touched before. */
double fq_bench_memcpy_rate(size_t chunk, bool is_prepared);

/* A number, or null for what is not one: JSON has no NaN. */
json_t *fq_json_real(double value);

#endif
