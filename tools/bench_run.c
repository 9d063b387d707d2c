/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a bench: the clients' threads, the line that shows how far they are, the sum of what they found.
 * Main thread, but for fq_bench_meet. What can fail: a thread that cannot be started ends the process, for the
 * others wait for it; a client that could not work ends the run with its reason.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench.h"

#define WATCH_NS 200000000
#define BARS 30
#define SERIES_STRETCHES_MAX 4096u
#define SERIES_STRETCHES_ALL 65536u /* of all clients together: 280 MB */

/* ---- clients ------------------------------------------------------------------------------- */

static int64_t quota_of(const struct fq_bench *bench, int64_t msgs, int64_t index, int64_t count)
{
    return bench->kind == FQ_BENCH_PUB ? msgs / count + (index < msgs % count) : msgs;
}

/* Enough for what is expected; when a number of records is to come nobody knows how long that takes. */
static unsigned stretches_of(const struct fq_bench *bench, int64_t count)
{
    unsigned most = SERIES_STRETCHES_ALL / (unsigned)count;
    most = most < SERIES_STRETCHES_MAX ? most : SERIES_STRETCHES_MAX;
    int64_t wanted = bench->duration_ms > 0 ? bench->duration_ms / bench->series_ms + 2 : most;
    return wanted < (int64_t)most ? (unsigned)wanted : most;
}

struct fq_bench_worker *fq_bench_workers_create(struct fq_bench *bench, int64_t count)
{
    struct fq_bench_worker *workers = fq_alloc((size_t)count * sizeof *workers);
    for (int64_t i = 0; i < count; i++) {
        workers[i].bench = bench;
        workers[i].index = (unsigned)i;
        workers[i].quota = bench->msgs == 0 ? INT64_MAX : quota_of(bench, bench->msgs, i, count);
        workers[i].warmup_quota = bench->warmup_ms > 0
                                      ? INT64_MAX
                                      : quota_of(bench, bench->warmup_msgs, i, count);
        workers[i].series = bench->series_path ? fq_series_create(bench->series_ms * 1000000,
                                                                  stretches_of(bench, count))
                                               : NULL;
    }
    return workers;
}

void fq_bench_workers_destroy(struct fq_bench_worker *workers, int64_t count)
{
    for (int64_t i = 0; workers && i < count; i++) {
        fq_series_destroy(workers[i].series);
    }
    free(workers);
}

void fq_bench_meet(struct fq_bench *bench)
{
    (void)pthread_barrier_wait(&bench->meeting);
}

/* ---- watching ------------------------------------------------------------------------------ */

struct watch {
    const struct fq_bench *bench;
    struct fq_bench_worker *workers;
    int64_t count, began_ns;
    double wanted; /* records in all; 0: by duration */
};

static void show(const struct watch *watch)
{
    uint64_t done = 0;
    for (int64_t i = 0; i < watch->count; i++) {
        done += atomic_load_explicit(&watch->workers[i].done, memory_order_relaxed);
    }
    double seconds = (double)(fq_now_ns() - watch->began_ns) / 1e9;
    double share = watch->wanted > 0 ? (double)done / watch->wanted
                                     : 1e3 * seconds / (double)watch->bench->duration_ms;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    double left = share > 0 ? seconds / share - seconds : 0;
    (void)fprintf(stderr, "\r[%.*s%*s] %3.0f %%  %.0f msgs/s  %.0f s left \033[K", (int)(share * BARS),
                  "##############################", BARS - (int)(share * BARS), "", share * 100,
                  (double)done / seconds, left);
}

/* Shows the progress until the threads have done what they were asked, then joins them. */
static void watch_and_join(const struct watch *watch)
{
    bool is_terminal = isatty(STDERR_FILENO) != 0;
    for (int64_t i = 0; i < watch->count; i++) {
        while (is_terminal) {
            struct timespec until;
            (void)clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += WATCH_NS;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            if (pthread_timedjoin_np(watch->workers[i].thread, NULL, &until) == 0) {
                break;
            }
            show(watch);
        }
        if (!is_terminal) {
            (void)pthread_join(watch->workers[i].thread, NULL);
        }
    }
    if (is_terminal) {
        (void)fputs("\r\033[K", stderr);
    }
}

/* The three meetings, from the main thread's side. */
static void begin(struct fq_bench *bench, struct fq_bench_cpu *cpu)
{
    fq_bench_meet(bench);
    if (bench->warmup_msgs > 0 || bench->warmup_ms > 0) {
        fq_cli_note("warming up");
    }
    fq_bench_meet(bench);
    if (cpu) {
        fq_bench_cpu_begin(cpu);
    }
    fq_bench_meet(bench);
}

int fq_bench_run_workers(struct fq_bench *bench, struct fq_bench_worker *workers, int64_t count,
                         int64_t publishing, struct fq_bench_cpu *cpu)
{
    (void)pthread_barrier_init(&bench->meeting, NULL, (unsigned)count + 1);
    atomic_store(&bench->producing, publishing);
    atomic_store(&bench->warm_sent, INT64_MAX);
    atomic_store(&bench->measured_ns, INT64_MAX);
    for (int64_t i = 0; i < count; i++) {
        void *(*body)(void *) = i < publishing ? fq_bench_publish : fq_bench_consume;
        if (pthread_create(&workers[i].thread, NULL, body, &workers[i]) != 0) {
            fq_cli_warn("cannot start thread %" PRId64, i + 1);
            exit(FQ_EXIT_FAILED); /* the others wait for it for ever */
        }
    }
    begin(bench, cpu);
    bool is_shared = bench->kind == FQ_BENCH_PUB; /* the records are divided among them */
    watch_and_join(&(struct watch){bench, workers, count, fq_now_ns(),
                                   (double)bench->msgs * (is_shared ? 1 : (double)count)});
    (void)pthread_barrier_destroy(&bench->meeting);
    for (int64_t i = 0; i < count; i++) {
        if (workers[i].code != 0) {
            return fq_cli_fail(bench->cli, workers[i].code, workers[i].errtext, "client %" PRId64,
                               i + 1);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (workers[i].errors > 0) {
            fq_cli_warn("client %" PRId64 ": %" PRIu64 " errors: %s", i + 1, workers[i].errors,
                        workers[i].errtext);
        }
    }
    return 0;
}

/* ---- adding up ----------------------------------------------------------------------------- */

static void sum_up(const struct fq_bench_worker *workers, int64_t count, struct fq_bench_result *r)
{
    int64_t began_ns = INT64_MAX, ended_ns = INT64_MIN;
    fq_histogram_clear(&r->latency);
    r->client_min = INFINITY;
    r->workers = workers;
    r->workers_count = count;
    for (int64_t i = 0; i < count; i++) {
        const struct fq_bench_worker *w = &workers[i];
        double rate = (double)w->records / ((double)(w->ended_ns - w->began_ns) / 1e9);
        began_ns = w->began_ns < began_ns ? w->began_ns : began_ns;
        ended_ns = w->ended_ns > ended_ns ? w->ended_ns : ended_ns;
        r->records += w->records;
        r->errors += w->errors;
        r->bytes += w->bytes;
        r->client_min = rate < r->client_min ? rate : r->client_min;
        r->client_max = rate > r->client_max ? rate : r->client_max;
        fq_histogram_add(&r->latency, &w->latency);
        fq_verify_add(&r->verified, &w->verified);
    }
    r->seconds = (double)(ended_ns - began_ns) / 1e9;
}

/* What was published and how, beside what the readers of e2e say. */
static void sum_published(const struct fq_bench *bench, struct fq_bench_worker *workers, int64_t count,
                          int64_t publishing, struct fq_bench_result *r)
{
    for (int64_t i = 0; i < publishing; i++) {
        r->batches += workers[i].stats.batches_sent;
        r->batch_bytes += workers[i].stats.batch_bytes;
        r->errors += bench->kind == FQ_BENCH_E2E ? workers[i].errors : 0;
    }
    for (int64_t i = publishing; i < count && bench->msgs == 0 && publishing == 1; i++) {
        if (workers[i].records < workers[0].records) { /* by duration: nobody knew how many would come */
            r->errors += workers[0].records - workers[i].records;
            fq_cli_warn("client %" PRId64 " received %" PRIu64 " of %" PRIu64 " records", i + 1,
                        workers[i].records, workers[0].records);
        }
    }
}

/* ---- files --------------------------------------------------------------------------------- */

static int close_written(FILE *file, const char *path)
{
    bool is_good = !ferror(file);
    if (fclose(file) != 0 || !is_good) {
        fq_cli_warn("%s: cannot be written", path);
        return FQ_EXIT_FAILED;
    }
    return 0;
}

static FILE *open_to_write(const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file) {
        fq_cli_warn("%s: cannot be written", path);
    }
    return file;
}

static int write_files(const struct fq_bench *bench, struct fq_bench_worker *workers, int64_t from,
                       int64_t to, const struct fq_bench_result *r)
{
    int code = 0;
    if (bench->hdr_path) {
        FILE *file = open_to_write(bench->hdr_path);
        if (file) {
            fq_histogram_write_hdr(&r->latency, 1000, file);
        }
        code = file ? close_written(file, bench->hdr_path) : FQ_EXIT_FAILED;
    }
    if (bench->series_path) {
        for (int64_t i = from + 1; i < to; i++) {
            fq_series_add(workers[from].series, workers[i].series);
        }
        FILE *file = open_to_write(bench->series_path);
        if (file) {
            fq_series_write(workers[from].series, file);
        }
        int written = file ? close_written(file, bench->series_path) : FQ_EXIT_FAILED;
        code = code != 0 ? code : written;
    }
    return code;
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* pub --verify: what this run published and retention kept is read back. */
static int read_back(struct fq_bench *bench, struct fq_bench_result *result)
{
    struct fq_bench reader = *bench;
    reader.starts = NULL;
    reader.kind = FQ_BENCH_SUB;
    reader.verify_run = bench->run;
    reader.clients = 1;
    reader.warmup_msgs = reader.warmup_ms = reader.duration_ms = 0;
    reader.rate = 0;
    reader.is_sync = false;
    reader.series_path = NULL;
    int code = fq_bench_prepare_topic(&reader);
    reader.msgs = reader.available;
    if (code == 0 && reader.available > 0) {
        struct fq_bench_worker *worker = fq_bench_workers_create(&reader, 1);
        code = fq_bench_run_workers(&reader, worker, 1, 0, NULL);
        fq_verify_add(&result->verified, &worker->verified);
        result->errors += worker->errors;
        fq_bench_workers_destroy(worker, 1);
    }
    free(reader.starts);
    return code;
}

int fq_bench_measure(struct fq_bench *bench)
{
    bool is_e2e = bench->kind == FQ_BENCH_E2E;
    int64_t publishing = bench->kind == FQ_BENCH_PUB ? bench->clients : is_e2e ? 1 : 0;
    int64_t count = is_e2e ? bench->clients + 1 : bench->clients, from = is_e2e ? 1 : 0;
    struct fq_bench_worker *workers = fq_bench_workers_create(bench, count);
    struct fq_bench_result *result = fq_alloc(sizeof *result);
    struct fq_bench_cpu cpu;
    fq_bench_cpu_find(&cpu, bench->cli);
    int code = fq_bench_run_workers(bench, workers, count, publishing, &cpu);
    fq_bench_cpu_end(&cpu, &result->client_cpu, &result->broker_cpu);
    if (code == 0) {
        sum_up(workers + from, count - from, result);
        sum_published(bench, workers, count, publishing, result);
        code = write_files(bench, workers, from, count, result);
    }
    if (code == 0 && bench->kind == FQ_BENCH_PUB && bench->is_verify) {
        code = read_back(bench, result);
    }
    if (code == 0) {
        result->memcpy_gb_per_s = fq_bench_memcpy_rate((size_t)bench->size, true);
        fq_bench_print(bench, result);
        code = result->errors > 0 || fq_interrupted() ? FQ_EXIT_FAILED : FQ_EXIT_OK;
    }
    free(result);
    fq_bench_workers_destroy(workers, count);
    return code;
}
