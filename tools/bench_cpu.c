/* SPDX-License-Identifier: Apache-2.0 */
/* Where processor time went: this process's, and that of a broker on this host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/bench.h"

static int64_t client_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return -1;
    }
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static bool is_broker(const char *pid)
{
    char path[300], name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    bool is_it = file && fgets(name, sizeof name, file) && strncmp(name, "flashqd", 7) == 0;
    if (file) {
        (void)fclose(file);
    }
    return is_it;
}

static bool is_on_this_host(struct fq_cli *cli)
{
    static const char *const local[] = {"shm:", "tcp:127.", "tcp:localhost", "tcp:[::1]"};
    char endpoint[300];
    if (flashq_client_endpoint(cli->client, endpoint, sizeof endpoint) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strncmp(endpoint, local[i], strlen(local[i])) == 0) {
            return true;
        }
    }
    return false;
}

void fq_bench_cpu_find(struct fq_bench_cpu *cpu, struct fq_cli *cli)
{
    flashq_counter *counters = NULL;
    size_t count = 0;
    char text[24];
    *cpu = (struct fq_bench_cpu){.client_us = -1, .broker_us = -1};
    if (!is_on_this_host(cli) || flashq_cluster_counters(cli->client, cli->timeout_ms, &counters,
                                                         &count, NULL, 0) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(counters[i].name, "process.pid") == 0) {
            cpu->broker_pid = (long)counters[i].value;
        }
    }
    flashq_free(counters);
    (void)snprintf(text, sizeof text, "%ld", cpu->broker_pid);
    cpu->broker_pid = cpu->broker_pid > 0 && is_broker(text) ? cpu->broker_pid : 0;
}

static int64_t broker_us(long pid)
{
    char path[64], line[1024] = "";
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    bool is_read = file && fgets(line, sizeof line, file);
    if (file) {
        (void)fclose(file);
    }
    /* after the name in brackets: state and 10 numbers, then utime and stime in ticks */
    const char *at = is_read ? strrchr(line, ')') : NULL;
    for (int field = 0; at && field < 12; field++) {
        at = strchr(at + 1, ' ');
    }
    if (!at) {
        return -1;
    }
    char *end;
    unsigned long long user = strtoull(at, &end, 10), system = strtoull(end, NULL, 10);
    return (int64_t)((user + system) * 1000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}

void fq_bench_cpu_begin(struct fq_bench_cpu *cpu)
{
    cpu->broker_us = broker_us(cpu->broker_pid);
    cpu->client_us = client_us();
    cpu->at_ns = fq_now_ns();
}

static double percent(int64_t before_us, int64_t after_us, double seconds)
{
    return before_us < 0 || after_us < before_us || seconds <= 0
               ? -1
               : (double)(after_us - before_us) / 1e4 / seconds;
}

void fq_bench_cpu_end(const struct fq_bench_cpu *cpu, double *ret_client, double *ret_broker)
{
    double seconds = (double)(fq_now_ns() - cpu->at_ns) / 1e9;
    *ret_client = percent(cpu->client_us, client_us(), seconds);
    *ret_broker = percent(cpu->broker_us, broker_us(cpu->broker_pid), seconds);
}
