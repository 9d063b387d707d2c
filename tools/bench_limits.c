/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq bench limits: what this machine can do, measured now, so that the figures of the other
 * benches can be read beside it. Needs no broker. Each line takes a fraction of a second; medians of
 * single events, rates over the whole time. The checksum is libflashq's own (base/crc32c.h): the one
 * place where the CLI reaches below the public header, since that is what is to be measured.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"

#include "tools/bench.h"

#define RUN_NS INT64_C(200000000)
#define CRC_BYTES ((size_t)64 << 10)
#define SYNC_BYTES ((size_t)4096)
#define SYNC_BLOCKS 256
#define LINE_ROUNDS 100

enum { LIMITS_DIR = 1, LIMITS_SIZE, LIMITS_JSON };

static const struct fq_opt options[] = {
    {LIMITS_DIR, 0, "dir", "DIR", "also write and sync a file in this directory"},
    {LIMITS_SIZE, 0, "size", "S", "bytes of one copy [1024]"},
    {LIMITS_JSON, 0, "json", NULL, "as -O json"},
    {0, 0, NULL, NULL, NULL},
};

struct limits {
    struct fq_cli *cli;
    const char *dir;
    uint64_t size;
    struct fq_table table;
    json_t *object;
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct limits *limits = args;
    switch (id) {
    case LIMITS_DIR: limits->dir = value; return 0;
    case LIMITS_SIZE: return fq_parse_size(value, &limits->size, fault);
    case LIMITS_JSON: limits->cli->output = FQ_OUTPUT_JSON; return 0;
    default: return fq_fault_set(fault, "unexpected \"%.64s\"", value);
    }
}

/* A value below 0 could not be measured. */
static void line(struct limits *limits, const char *key, const char *what, const char *unit,
                 double value)
{
    if (limits->object) {
        (void)json_object_set_new(limits->object, key, fq_json_real(value));
        return;
    }
    fq_table_add(&limits->table, "%s", what);
    if (value < 0) {
        fq_table_add(&limits->table, "not possible");
    } else {
        fq_table_add(&limits->table, "%.*f", value < 100 ? 2 : 0, value);
    }
    fq_table_add(&limits->table, "%s", unit);
}

/* ---- checksum ------------------------------------------------------------------------------ */

static volatile uint32_t crc_sink;

static double crc_rate(void)
{
    uint8_t *bytes = fq_alloc(CRC_BYTES);
    int64_t began = fq_now_ns(), now = began;
    uint64_t done = 0;
    uint32_t crc = 0;
    while (now - began < RUN_NS) {
        crc = fq_crc32c(crc, bytes, CRC_BYTES);
        done += CRC_BYTES;
        now = fq_now_ns();
    }
    crc_sink = crc;
    free(bytes);
    return (double)done / (double)(now - began);
}

/* ---- two threads --------------------------------------------------------------------------- */

struct pair {
    /* each word on a line of its own */
    _Alignas(64) _Atomic uint64_t ping;
    _Alignas(64) _Atomic uint64_t pong;
    _Alignas(64) _Atomic int is_over;
    int fds[2]; /* eventfds: there, back; or one connected socket in [1] */
};

static void *bounce_line(void *argument)
{
    struct pair *pair = argument;
    uint64_t seen = 0;
    while (!atomic_load_explicit(&pair->is_over, memory_order_relaxed)) {
        uint64_t value = atomic_load_explicit(&pair->ping, memory_order_acquire);
        if (value != seen) {
            seen = value;
            atomic_store_explicit(&pair->pong, value, memory_order_release);
        }
    }
    return NULL;
}

/* The first two processors that this process may use: two spinning threads on one would measure the
 * scheduler. false: there are no two. */
static bool two_cores(const cpu_set_t *allowed, cpu_set_t ret[2])
{
    int found = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, allowed)) {
            CPU_ZERO(&ret[found]);
            CPU_SET(cpu, &ret[found]);
            found++;
        }
    }
    return found == 2;
}

/* The median of many rounds, in nanoseconds one way. */
static double line_rounds(struct pair *pair)
{
    struct fq_histogram *histogram = fq_alloc(sizeof *histogram);
    fq_histogram_clear(histogram);
    int64_t began = fq_now_ns(), before = began;
    uint64_t round = 0;
    while (before - began < RUN_NS) {
        for (int i = 0; i < LINE_ROUNDS; i++) {
            round++;
            atomic_store_explicit(&pair->ping, round, memory_order_release);
            while (atomic_load_explicit(&pair->pong, memory_order_acquire) != round) {
            }
        }
        int64_t now = fq_now_ns();
        fq_histogram_record(histogram, (uint64_t)(now - before));
        before = now;
    }
    double median = (double)fq_histogram_percentile(histogram, 50) / LINE_ROUNDS / 2;
    free(histogram);
    return median;
}

/* Nanoseconds for a line to go from one core to another; -1 where there are no two. */
static double line_handover(void)
{
    struct pair *pair = aligned_alloc(64, sizeof *pair);
    cpu_set_t before, cores[2];
    pthread_t thread;
    double median = -1;
    if (!pair || sched_getaffinity(0, sizeof before, &before) != 0 || !two_cores(&before, cores)) {
        free(pair);
        return -1;
    }
    memset(pair, 0, sizeof *pair);
    if (sched_setaffinity(0, sizeof cores[0], &cores[0]) == 0 &&
        pthread_create(&thread, NULL, bounce_line, pair) == 0) {
        if (pthread_setaffinity_np(thread, sizeof cores[1], &cores[1]) == 0) {
            median = line_rounds(pair);
        }
        atomic_store(&pair->is_over, 1);
        (void)pthread_join(thread, NULL);
    }
    (void)sched_setaffinity(0, sizeof before, &before);
    free(pair);
    return median;
}

static void *bounce_event(void *argument)
{
    struct pair *pair = argument;
    uint64_t value;
    while (read(pair->fds[0], &value, sizeof value) == (ssize_t)sizeof value && value < 1000) {
        (void)!write(pair->fds[1], &(uint64_t){1}, sizeof value);
    }
    return NULL;
}

/* Runs `once` until the time is up; the median in microseconds. */
static double median_us(int (*once)(void *context), void *context)
{
    struct fq_histogram *histogram = fq_alloc(sizeof *histogram);
    fq_histogram_clear(histogram);
    int64_t began = fq_now_ns(), before = began;
    while (before - began < RUN_NS && once(context) == 0) {
        int64_t now = fq_now_ns();
        fq_histogram_record(histogram, (uint64_t)(now - before));
        before = now;
    }
    double median = histogram->count > 0 ? (double)fq_histogram_percentile(histogram, 50) / 1e3 : -1;
    free(histogram);
    return median;
}

static int event_once(void *context)
{
    struct pair *pair = context;
    uint64_t value = 1;
    return write(pair->fds[0], &value, sizeof value) == (ssize_t)sizeof value &&
                   read(pair->fds[1], &value, sizeof value) == (ssize_t)sizeof value
               ? 0
               : -1;
}

static double eventfd_round_trip(void)
{
    struct pair pair = {.fds = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC)}};
    pthread_t thread;
    double result = -1;
    if (pair.fds[0] >= 0 && pair.fds[1] >= 0 &&
        pthread_create(&thread, NULL, bounce_event, &pair) == 0) {
        result = median_us(event_once, &pair);
        (void)!write(pair.fds[0], &(uint64_t){1000}, sizeof(uint64_t));
        (void)pthread_join(thread, NULL);
    }
    (void)close(pair.fds[0]);
    (void)close(pair.fds[1]);
    return result;
}

static void *bounce_socket(void *argument)
{
    struct pair *pair = argument;
    char byte;
    while (read(pair->fds[1], &byte, 1) == 1) {
        (void)!write(pair->fds[1], &byte, 1);
    }
    return NULL;
}

static int socket_once(void *context)
{
    struct pair *pair = context;
    char byte = 0;
    return write(pair->fds[0], &byte, 1) == 1 && read(pair->fds[0], &byte, 1) == 1 ? 0 : -1;
}

/* A connected pair over loopback TCP; false if the system will not. */
static bool tcp_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = -1;
    bool is_up = listener >= 0 && fds[0] >= 0 &&
                 bind(listener, (struct sockaddr *)&address, length) == 0 &&
                 listen(listener, 1) == 0 &&
                 getsockname(listener, (struct sockaddr *)&address, &length) == 0 &&
                 connect(fds[0], (struct sockaddr *)&address, length) == 0;
    if (is_up) {
        fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        (void)setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (listener >= 0) {
        (void)close(listener);
    }
    return is_up && fds[1] >= 0;
}

static double tcp_round_trip(void)
{
    struct pair pair;
    pthread_t thread;
    double result = -1;
    if (tcp_pair(pair.fds) && pthread_create(&thread, NULL, bounce_socket, &pair) == 0) {
        result = median_us(socket_once, &pair);
        (void)shutdown(pair.fds[0], SHUT_WR);
        (void)pthread_join(thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        if (pair.fds[i] >= 0) {
            (void)close(pair.fds[i]);
        }
    }
    return result;
}

/* ---- the disk ------------------------------------------------------------------------------ */

struct disk {
    int fd;
    uint8_t *block;
    int index;
};

static int sync_once(void *context)
{
    struct disk *disk = context;
    off_t at = (off_t)((size_t)(disk->index++ % SYNC_BLOCKS) * SYNC_BYTES);
    return pwrite(disk->fd, disk->block, SYNC_BYTES, at) == (ssize_t)SYNC_BYTES &&
                   fdatasync(disk->fd) == 0
               ? 0
               : -1;
}

/* 4 KiB written and synced: into blocks written before, as the log's segments are. */
static int disk_line(struct limits *limits)
{
    char path[4096];
    if (!limits->dir) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/flashq-limits-XXXXXX", limits->dir);
    struct disk disk = {.fd = mkostemp(path, O_CLOEXEC), .block = fq_alloc(SYNC_BYTES)};
    double median = -1;
    bool is_ready = disk.fd >= 0;
    if (is_ready) {
        (void)unlink(path);
        for (int i = 0; i < SYNC_BLOCKS && is_ready; i++) {
            is_ready = pwrite(disk.fd, disk.block, SYNC_BYTES,
                              (off_t)((size_t)i * SYNC_BYTES)) == (ssize_t)SYNC_BYTES;
        }
        is_ready = is_ready && fsync(disk.fd) == 0;
    }
    if (is_ready) {
        median = median_us(sync_once, &disk);
    } else {
        fq_cli_warn("%s: %s", limits->dir, strerror(errno));
    }
    line(limits, "write_fdatasync_us", "4 KiB overwrite + fdatasync", "us", median);
    if (disk.fd >= 0) {
        (void)close(disk.fd);
    }
    free(disk.block);
    return is_ready ? 0 : FQ_EXIT_FAILED;
}

/* ---- the command --------------------------------------------------------------------------- */

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    static const char *const headings[] = {"LIMIT", "VALUE", "UNIT", NULL};
    struct limits limits = {.cli = cli, .size = 1024};
    int code = fq_cli_parse(cli, parser, take, &limits);
    if (code >= 0) {
        return code;
    }
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_table_init(&limits.table, headings);
    } else {
        limits.object = json_object();
    }
    line(&limits, "memcpy_prepared_gb_per_s", "copy into prepared shared memory", "GB/s",
         fq_bench_memcpy_rate((size_t)limits.size, true));
    line(&limits, "memcpy_fresh_gb_per_s", "copy into fresh shared memory", "GB/s",
         fq_bench_memcpy_rate((size_t)limits.size, false));
    line(&limits, "crc32c_gb_per_s", "CRC-32C of 64 KiB", "GB/s", crc_rate());
    line(&limits, "line_handover_ns", "cache line from core to core", "ns", line_handover());
    line(&limits, "eventfd_round_trip_us", "eventfd there and back", "us", eventfd_round_trip());
    line(&limits, "tcp_round_trip_us", "loopback TCP there and back", "us", tcp_round_trip());
    code = disk_line(&limits);
    if (cli->output == FQ_OUTPUT_TABLE) {
        fq_table_finish(&limits.table, &cli->out);
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:I, s:o}", "schema", "flashq.bench.limits/1",
                                         "copy_bytes", (json_int_t)limits.size, "limits",
                                         limits.object));
    }
    return code;
}

const struct fq_command fq_cmd_bench_limits = {
    .name = "bench limits", .arguments = "[--dir DIR]",
    .summary = "what this machine can do, measured now", .options = options, .run = run};
