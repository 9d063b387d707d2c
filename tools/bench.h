/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench: what the parts share. The main thread sets up, starts one thread a client, watches, and
 * prints; each client has a connection, a producer or consumer and a histogram of its own. All meet three
 * times: when they are connected, when they are warm, and (the main thread having looked at the processor
 * time used so far) when the measurement begins. They are added up when all have ended.
 */
#ifndef FQ_TOOLS_BENCH_H
#define FQ_TOOLS_BENCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "tools/bench_series.h"
#include "tools/bench_verify.h"
#include "tools/cli.h"
#include "tools/histogram.h"

enum fq_bench_kind { FQ_BENCH_PUB, FQ_BENCH_SUB, FQ_BENCH_PULL, FQ_BENCH_E2E };

struct fq_bench {
    struct fq_cli *cli;
    enum fq_bench_kind kind;
    const char *topic;
    int64_t msgs;           /* in all (pub, e2e), for each client (sub, pull); 0: by duration */
    int64_t duration_ms;    /* 0: by msgs */
    int64_t warmup_msgs, warmup_ms; /* not measured; in all, or for each client, as msgs */
    uint64_t size;          /* of a value */
    int64_t clients;
    int64_t partitions;     /* of a topic that the bench creates; then: of the topic */
    double rate;            /* in all, a second; 0: max */
    bool is_sync, is_verify, has_latency, is_single; /* single: one batch a fetch, nothing ahead */
    const char *transport, *mode; /* NULL: the library's choice */
    const char *hdr_path, *series_path;
    int64_t series_ms;
    struct fq_offset_range from;
    uint32_t run;           /* of the stamps */
    uint32_t verify_run;    /* 0, or the only run that is looked at */

    int64_t *starts;        /* where reading begins in each partition, or FLASHQ_OFFSET_ */
    int64_t available;      /* records from there to the end when the bench began */
    bool is_tail;           /* reading goes on with what comes */
    bool is_from_start;     /* reading begins with the first record that was ever there */

    pthread_barrier_t meeting;       /* of all clients and the main thread */
    _Atomic int64_t producing;       /* clients that still publish (e2e) */
    _Atomic int64_t warm_sent;       /* e2e: records of the warm-up, once it is over; before: INT64_MAX */
    _Atomic int64_t measured_ns;     /* e2e: the measurement began; before: INT64_MAX */
};

struct fq_bench_worker {
    struct fq_bench *bench;
    pthread_t thread;
    unsigned index;
    int64_t quota;           /* measured records; INT64_MAX: by duration */
    int64_t warmup_quota;    /* INT64_MAX: by duration */
    _Atomic uint64_t done;   /* of the quota, for the watcher */
    uint64_t records, errors, bytes;
    int64_t began_ns, ended_ns;
    struct fq_histogram latency; /* ns */
    struct fq_series *series;    /* NULL: not asked for */
    struct fq_verify_counts verified;
    flashq_producer_stats stats; /* of what was measured */
    int code;                /* 0, or why it could not work */
    char errtext[FQ_ERRTEXT_BYTES];
};

/* The threads' functions. */
void *fq_bench_publish(void *worker);
void *fq_bench_consume(void *worker);
/* All have connected; are warm; begin. Every thread calls each once, whatever became of it. */
void fq_bench_meet(struct fq_bench *bench);
static inline void fq_bench_record(struct fq_bench_worker *worker, int64_t now_ns, int64_t latency_ns)
{
    uint64_t latency = latency_ns > 0 ? (uint64_t)latency_ns : 0;
    fq_histogram_record(&worker->latency, latency);
    if (worker->series) {
        fq_series_record(worker->series, now_ns, latency);
    }
}

/* bench_topic.c: the topic, and what of it is to be read. 0 or an exit code, having complained. */
int fq_bench_prepare_topic(struct fq_bench *bench);
/* sub and pull need something to read: publishes what is missing, unmeasured. */
int fq_bench_fill_topic(struct fq_bench *bench);

/* bench_run.c: starts the clients (the first `publishing` of them publish), watches and joins them. 0 or an
 * exit code, having complained. */
struct fq_bench_worker *fq_bench_workers_create(struct fq_bench *bench, int64_t count);
void fq_bench_workers_destroy(struct fq_bench_worker *workers, int64_t count);
struct fq_bench_cpu;
int fq_bench_run_workers(struct fq_bench *bench, struct fq_bench_worker *workers, int64_t count,
                         int64_t publishing, struct fq_bench_cpu *cpu);
int fq_bench_measure(struct fq_bench *bench);

/* bench_cpu.c: processor time of this process and of a broker on this host. */
struct fq_bench_cpu {
    long broker_pid;                  /* 0: not known */
    int64_t client_us, broker_us;     /* at the last look; -1: not known */
    int64_t at_ns;
};
void fq_bench_cpu_find(struct fq_bench_cpu *cpu, struct fq_cli *cli);
void fq_bench_cpu_begin(struct fq_bench_cpu *cpu);
/* Percent of one processor since fq_bench_cpu_begin; -1: not known. */
void fq_bench_cpu_end(const struct fq_bench_cpu *cpu, double *ret_client, double *ret_broker);

struct fq_bench_result {
    double seconds;
    uint64_t records, errors, bytes;
    double client_min, client_max; /* msgs/s of the slowest and fastest client */
    struct fq_histogram latency;
    struct fq_verify_counts verified;
    uint64_t batches, batch_bytes;
    double client_cpu, broker_cpu; /* percent of one core; -1: not known */
    double memcpy_gb_per_s;        /* record-sized copies into prepared memory */
    const struct fq_bench_worker *workers; /* those whose figures these are */
    int64_t workers_count;
};
void fq_bench_print(const struct fq_bench *bench, const struct fq_bench_result *result);

/* GB/s of copies of `chunk` bytes into a shared mapping; prepared: its pages were touched before. */
double fq_bench_memcpy_rate(size_t chunk, bool is_prepared);

/* A number, or null for what is not one: JSON has no NaN. */
json_t *fq_json_real(double value);

#endif
