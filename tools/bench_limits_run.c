/* SPDX-License-Identifier: Apache-2.0 */
/* How a limit is measured: one or two threads, each on a processor of its own; medians of single rounds. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/bench_limits.h"

static bool pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

static bool start_on(int core, void *(*body)(void *), void *context, pthread_t *ret)
{
    pthread_attr_t attributes;
    cpu_set_t set;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    bool is_up = pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0 &&
                 pthread_create(ret, &attributes, body, context) == 0;
    (void)pthread_attr_destroy(&attributes);
    return is_up;
}

bool fq_solo_run(const struct fq_limits_run *run, void (*self)(void *context), void *context)
{
    cpu_set_t before;
    if (sched_getaffinity(0, sizeof before, &before) != 0 || !pin(run->cores[0])) {
        return false;
    }
    self(context);
    (void)sched_setaffinity(0, sizeof before, &before);
    return true;
}

bool fq_duo_run(const struct fq_limits_run *run, void (*self)(void *context),
                void *(*peer)(void *context), void *context)
{
    pthread_t thread;
    if (run->cores[0] == run->cores[1] || !start_on(run->cores[1], peer, context, &thread)) {
        return false;
    }
    bool is_pinned = fq_solo_run(run, self, context);
    if (!is_pinned) {
        self(context); /* the peer must end; the figure is not used */
    }
    (void)pthread_join(thread, NULL);
    return is_pinned;
}

double fq_limits_median_ns(const struct fq_limits_run *run, int (*once)(void *context), void *context,
                           unsigned rounds_each)
{
    struct fq_histogram *histogram = fq_alloc(sizeof *histogram);
    fq_histogram_clear(histogram);
    int64_t began = fq_now_ns(), before = began;
    while (before - began < run->run_ns && !fq_interrupted() && once(context) == 0) {
        int64_t now = fq_now_ns();
        fq_histogram_record(histogram, (uint64_t)(now - before));
        before = now;
    }
    double median = histogram->count > 0
                        ? (double)fq_histogram_percentile(histogram, 50) / rounds_each
                        : -1;
    free(histogram);
    return median;
}

uint8_t *fq_limits_prepared(size_t bytes)
{
    int fd = memfd_create("flashq-limits", MFD_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    uint8_t *map = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0) {
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    (void)close(fd);
    if (map == MAP_FAILED) {
        return NULL;
    }
    memset(map, 1, bytes);
    return map;
}
