/* SPDX-License-Identifier: Apache-2.0 */
/* What copying into memory of the kind the fabric uses (shared mappings of memfds) can do here. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench.h"

#define MAP_BYTES ((size_t)64 << 20)
#define RUN_NS INT64_C(150000000)

double fq_bench_memcpy_rate(size_t chunk, bool is_prepared)
{
    int fd = memfd_create("flashq-bench", MFD_CLOEXEC);
    chunk = chunk < 1 ? 1 : chunk > MAP_BYTES ? MAP_BYTES : chunk;
    uint8_t *source = fq_alloc(chunk);
    memset(source, 0x5a, chunk);
    double rate = -1;
    if (fd >= 0 && ftruncate(fd, (off_t)MAP_BYTES) == 0) {
        int flags = MAP_SHARED | (is_prepared ? MAP_POPULATE : 0);
        uint8_t *map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
        if (map != MAP_FAILED) {
            if (is_prepared) {
                memset(map, 1, MAP_BYTES);
            }
            uint64_t copied = 0;
            int64_t began = fq_now_ns(), now = began;
            /* fresh pages are fresh once; prepared ones go round until the time is up */
            for (size_t at = 0; at + chunk <= MAP_BYTES && now - began < RUN_NS;) {
                memcpy(map + at, source, chunk);
                copied += chunk;
                at += chunk;
                if (at + chunk > MAP_BYTES && is_prepared) {
                    at = 0;
                }
                now = copied % ((size_t)1 << 16) < chunk ? fq_now_ns() : now;
            }
            now = fq_now_ns();
            rate = now > began ? (double)copied / (double)(now - began) : -1; /* bytes/ns = GB/s */
            (void)munmap(map, MAP_BYTES);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(source);
    return rate;
}
