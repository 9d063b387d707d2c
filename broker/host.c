/* SPDX-License-Identifier: Apache-2.0 */
/* See host.h. Nothing here is fatal: what is too small is said, and fails later with its own error.
 */
#include "host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "coord/topic.h"

#define FILES_WANTED 4096
#define MAPS_WANTED  65530

static unsigned long long raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
        limit = raised;
    }
    return limit.rlim_cur;
}

static unsigned long long read_number(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(text, sizeof text, file)) {
            text[0] = '\0';
        }
        (void)fclose(file);
    }
    return strtoull(text, NULL, 10);
}

void fq_host_prepare(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    unsigned long long files = raise_open_files();
    unsigned long long maps = read_number("/proc/sys/vm/max_map_count");
    fq_info("limits: %llu open files (RLIMIT_NOFILE), %llu mappings (vm.max_map_count)", files,
            maps);
    if (files < FILES_WANTED) {
        fq_warn("RLIMIT_NOFILE is %llu: every connection and every open segment takes one or more; "
                "raise "
                "it to %d or above (LimitNOFILE= in the systemd unit)",
                files, FILES_WANTED);
    }
    if (maps < MAPS_WANTED) {
        fq_warn(
            "vm.max_map_count is %llu: every open segment takes a mapping; raise it to %d or above "
            "(sysctl vm.max_map_count=%d)",
            maps, MAPS_WANTED, MAPS_WANTED);
    }
}

struct fq_uuid fq_host_boot_id(void)
{
    struct fq_uuid id = {{0}};
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fgets(text, sizeof text, file)) {
            text[strcspn(text, "\n")] = '\0';
        }
        (void)fclose(file);
    }
    if (!fq_uuid_from_text(text, strlen(text), &id)) {
        fq_warn("the kernel's boot id cannot be read; local clients that choose a transport by "
                "themselves take tcp");
    }
    return id;
}
