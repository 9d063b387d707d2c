/* SPDX-License-Identifier: Apache-2.0 */
/* Writing into blocks that were written before, as the log's recycled segments are, and syncing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/bench_limits.h"

#define FILE_BYTES ((size_t)64 << 20)

struct disk {
    const struct fq_limits_run *run;
    int fd;
    uint8_t *block;
    size_t block_bytes, at;
    double median;
};

static int sync_once(void *context)
{
    struct disk *disk = context;
    off_t at = (off_t)disk->at;
    disk->at = (disk->at + disk->block_bytes) % FILE_BYTES;
    return pwrite(disk->fd, disk->block, disk->block_bytes, at) == (ssize_t)disk->block_bytes &&
                   fdatasync(disk->fd) == 0
               ? 0
               : -1;
}

static void sync_many(void *context)
{
    struct disk *disk = context;
    disk->median = fq_limits_median_ns(disk->run, sync_once, disk, 1) / 1e3;
}

static bool write_once(struct disk *disk)
{
    for (size_t at = 0; at < FILE_BYTES; at += disk->block_bytes) {
        if (pwrite(disk->fd, disk->block, disk->block_bytes, (off_t)at) != (ssize_t)disk->block_bytes) {
            return false;
        }
    }
    return fsync(disk->fd) == 0;
}

static double sync_us(const struct fq_limits_run *run, size_t block_bytes)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/flashq-limits-XXXXXX", run->dir ? run->dir : ".");
    struct disk disk = {.run = run, .fd = mkostemp(path, O_CLOEXEC), .block = fq_alloc(block_bytes),
                        .block_bytes = block_bytes, .median = -1};
    fq_bench_fill(disk.block, block_bytes, 1);
    bool is_ready = disk.fd >= 0 && unlink(path) == 0 && write_once(&disk);
    if (!is_ready) {
        fq_cli_warn("%s: %s", run->dir, strerror(errno));
    } else if (!fq_solo_run(run, sync_many, &disk)) {
        disk.median = -1;
    }
    if (disk.fd >= 0) {
        (void)close(disk.fd);
    }
    free(disk.block);
    return disk.median;
}

double fq_limits_small_sync(const struct fq_limits_run *run)
{
    return sync_us(run, (size_t)4 << 10);
}

double fq_limits_large_sync(const struct fq_limits_run *run)
{
    return sync_us(run, (size_t)1 << 20);
}
