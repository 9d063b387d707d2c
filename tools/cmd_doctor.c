/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flashq doctor: what of this machine matters to FlashQ, and what is wrong with it. Reads /proc, /sys
 * and asks the broker if there is one. Every check is "ok", "note" (works, but know it) or "broken";
 * the exit code is 1 only if something is broken.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tools/cli.h"

#define MAP_COUNT_WANTED 262144
#define BROKER_MS 2000
#define FILES_WANTED 65536
#define MEMLOCK_WANTED (UINT64_C(64) << 20)

enum { DOCTOR_DATA_DIR = 1, DOCTOR_JSON };

static const struct fq_opt options[] = {
    {DOCTOR_DATA_DIR, 0, "data-dir", "DIR", "the broker's data.dir: its medium and room"},
    {DOCTOR_JSON, 0, "json", NULL, "as -O json"},
    {0, 0, NULL, NULL, NULL},
};

enum verdict { OK, NOTE, BROKEN };

struct doctor {
    struct fq_cli *cli;
    const char *data_dir;
    struct fq_table table;
    json_t *checks;
    unsigned broken;
};

static int take(void *args, int id, const char *value, struct fq_fault *fault)
{
    struct doctor *doctor = args;
    switch (id) {
    case DOCTOR_DATA_DIR: doctor->data_dir = value; return 0;
    case DOCTOR_JSON: doctor->cli->output = FQ_OUTPUT_JSON; return 0;
    default: return fq_fault_set(fault, "unexpected \"%.64s\"", value);
    }
}

static void check(struct doctor *doctor, enum verdict verdict, const char *name, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

static void check(struct doctor *doctor, enum verdict verdict, const char *name, const char *format,
                  ...)
{
    static const char *const verdicts[] = {"ok", "note", "broken"};
    char text[768];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    doctor->broken += verdict == BROKEN;
    if (doctor->checks) {
        (void)json_array_append_new(doctor->checks,
                                    json_pack("{s:s, s:s, s:s}", "name", name, "verdict",
                                              verdicts[verdict], "text", text));
    } else {
        fq_table_add(&doctor->table, "%s", verdicts[verdict]);
        fq_table_add(&doctor->table, "%s", name);
        fq_table_add(&doctor->table, "%s", text);
    }
}

/* The first line of a small file without its newline; "" if it cannot be read. */
static void read_line(const char *path, char *out, size_t bytes)
{
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file) {
        if (fgets(out, (int)bytes, file)) {
            out[strcspn(out, "\n")] = '\0';
        } else {
            out[0] = '\0';
        }
        (void)fclose(file);
    }
}

/* ---- limits -------------------------------------------------------------------------------- */

static void check_kernel(struct doctor *doctor)
{
    struct utsname host;
    char boot_id[64];
    if (uname(&host) == 0) {
        check(doctor, OK, "kernel", "%s %s on %s, %ld CPUs", host.sysname, host.release,
              host.machine, sysconf(_SC_NPROCESSORS_ONLN));
    }
    read_line("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
    check(doctor, boot_id[0] ? OK : NOTE, "boot id",
          boot_id[0] ? "%s" : "not readable: shared memory cannot be chosen by itself%s", boot_id);
}

static void check_rlimit(struct doctor *doctor, int which, const char *name, uint64_t wanted,
                         const char *why)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0) {
        check(doctor, BROKEN, name, "cannot be read: %s", strerror(errno));
    } else if (limit.rlim_cur == RLIM_INFINITY) {
        check(doctor, OK, name, "unlimited");
    } else {
        check(doctor, limit.rlim_cur < wanted ? NOTE : OK, name, "%" PRIu64 " (hard limit %" PRIu64
              ")%s%s", (uint64_t)limit.rlim_cur, (uint64_t)limit.rlim_max,
              limit.rlim_cur < wanted ? ": " : "", limit.rlim_cur < wanted ? why : "");
    }
}

static void check_mappings(struct doctor *doctor)
{
    char text[32];
    read_line("/proc/sys/vm/max_map_count", text, sizeof text);
    long count = strtol(text, NULL, 10);
    check(doctor, count < MAP_COUNT_WANTED ? NOTE : OK, "vm.max_map_count", "%ld%s", count,
          count < MAP_COUNT_WANTED ? ": each open segment is one mapping; raise it for many partitions"
                                   : "");
}

static void check_clock(struct doctor *doctor)
{
    char source[64];
    read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
              sizeof source);
    bool is_fast = strcmp(source, "tsc") == 0 || strcmp(source, "kvm-clock") == 0 ||
                   strcmp(source, "arch_sys_counter") == 0 ||
                   strcmp(source, "hyperv_clocksource_tsc_page") == 0;
    check(doctor, is_fast ? OK : NOTE, "clock source", "%s%s", source[0] ? source : "unknown",
          is_fast ? "" : ": reading the time may be a system call");
}

/* ---- devices and memory -------------------------------------------------------------------- */

/* Names in a folder, separated by blanks; returns how many. */
static size_t list_folder(const char *path, char *out, size_t bytes)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    out[0] = '\0';
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            size_t used = strlen(out);
            int n = snprintf(out + used, bytes - used, "%s%s", count > 0 ? " " : "", entry->d_name);
            if (n < 0 || (size_t)n >= bytes - used) {
                out[used] = '\0'; /* counted, not named */
            }
            count++;
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    return count;
}

static void check_rdma(struct doctor *doctor)
{
    char names[256];
    size_t count = list_folder("/sys/class/infiniband", names, sizeof names);
    check(doctor, OK, "RDMA devices", "%s (this release uses shared memory and TCP only)",
          count > 0 ? names : "none");
}

static void check_dax(struct doctor *doctor)
{
    char line[1024], found[512] = "";
    FILE *file = fopen("/proc/self/mounts", "re");
    while (file && fgets(line, sizeof line, file)) {
        char device[256], place[256], type[64], flags[256];
        if (sscanf(line, "%255s %255s %63s %255s", device, place, type, flags) == 4 &&
            strstr(flags, "dax") && !strstr(flags, "dax=never")) {
            size_t used = strlen(found);
            (void)snprintf(found + used, sizeof found - used, "%s%s (%s)", used > 0 ? ", " : "",
                           place, type);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    char names[256];
    size_t devices = list_folder("/sys/bus/dax/devices", names, sizeof names);
    check(doctor, OK, "DAX", "mounts: %s; devices: %s", found[0] ? found : "none",
          devices > 0 ? names : "none");
}

static void check_huge_pages(struct doctor *doctor)
{
    char total[32], mode[64];
    read_line("/proc/sys/vm/nr_hugepages", total, sizeof total);
    read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode, sizeof mode);
    check(doctor, OK, "huge pages", "%s reserved; transparent for shared memory: %s",
          total[0] ? total : "?", mode[0] ? mode : "unknown");
}

static void check_shared_memory(struct doctor *doctor)
{
    struct statvfs info;
    if (statvfs("/dev/shm", &info) == 0) {
        uint64_t bytes = (uint64_t)info.f_bavail * info.f_frsize;
        check(doctor, OK, "/dev/shm", "%" PRIu64 " MiB free (the fabric itself uses memfds)",
              bytes >> 20);
    }
}

static const struct {
    unsigned magic;
    const char *name;
} file_systems[] = {
    {0xEF53, "ext4"},      {0x58465342, "xfs"},      {0x01021994, "tmpfs"},
    {0x9123683E, "btrfs"}, {0x794c7630, "overlayfs"}, {0x6969, "nfs"},
    {0x2FC12FC1, "zfs"},
};

static void check_data_dir(struct doctor *doctor)
{
    struct statfs info;
    struct statvfs room;
    if (!doctor->data_dir) {
        return;
    }
    if (statfs(doctor->data_dir, &info) != 0 || statvfs(doctor->data_dir, &room) != 0) {
        check(doctor, BROKEN, "data dir", "%.200s: %s", doctor->data_dir, strerror(errno));
        return;
    }
    const char *name = "another file system";
    for (size_t i = 0; i < sizeof file_systems / sizeof *file_systems; i++) {
        if ((unsigned)info.f_type == file_systems[i].magic) {
            name = file_systems[i].name;
        }
    }
    bool is_tmpfs = strcmp(name, "tmpfs") == 0;
    check(doctor, is_tmpfs || strcmp(name, "nfs") == 0 ? NOTE : OK, "data dir medium",
          "%.200s is on %s%s", doctor->data_dir, name,
          is_tmpfs ? ": acknowledged records do not survive a power cut" : "");
    uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    check(doctor, free_bytes < ((uint64_t)1 << 30) ? NOTE : OK, "data dir room",
          "%" PRIu64 " MiB free", free_bytes >> 20);
    check(doctor, access(doctor->data_dir, R_OK | W_OK | X_OK) == 0 ? OK : NOTE, "data dir access",
          "%s", access(doctor->data_dir, R_OK | W_OK | X_OK) == 0
                    ? "this user can read and write it"
                    : "not for this user (the broker may run as another)");
}

/* ---- the broker ---------------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    return host[0] == '\0' || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static void check_exposure(struct doctor *doctor)
{
    struct fq_cli *cli = doctor->cli;
    flashq_broker_info *brokers = NULL;
    size_t count = 0;
    if (flashq_cluster_brokers(cli->client, cli->timeout_ms, &brokers, &count, NULL, 0) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_local = is_loopback(brokers[i].host);
        check(doctor, is_local ? OK : NOTE, "listeners",
              is_local ? "broker %d advertises no address but this host's%s"
                       : "broker %d is reachable at %s: there is no authentication yet, so whoever "
                         "reaches it may read and write everything",
              (int)brokers[i].id, is_local ? "" : brokers[i].host);
    }
    flashq_free(brokers);
}

static void check_media(struct doctor *doctor)
{
    struct fq_cli *cli = doctor->cli;
    flashq_topic_info *topics = NULL;
    size_t count = 0;
    uint64_t partitions = 0, offline = 0;
    char medium[64] = "";
    int result = flashq_topic_list(cli->client, cli->timeout_ms, &topics, &count, NULL, 0);
    for (size_t i = 0; result == 0 && i < count; i++) {
        flashq_topic_info info = {.struct_bytes = sizeof info};
        flashq_partition_info *list = NULL;
        size_t list_count = 0;
        if (flashq_topic_describe(cli->client, topics[i].name, cli->timeout_ms, &info, &list,
                                  &list_count, NULL, 0) != 0) {
            continue;
        }
        for (size_t p = 0; p < list_count; p++) {
            partitions++;
            offline += list[p].status != 0;
            (void)snprintf(medium, sizeof medium, "%s", list[p].medium);
        }
        flashq_free(list);
    }
    flashq_free(topics);
    if (result != 0) {
        check(doctor, BROKEN, "partitions", "cannot be listed: %s", flashq_strerror(result));
        return;
    }
    check(doctor, offline > 0 ? BROKEN : OK, "partitions", "%" PRIu64 ", %" PRIu64 " offline%s%s",
          partitions, offline, medium[0] ? "; medium: " : "", medium);
}

/* What an acknowledgement of this broker is worth. */
static void check_storage(struct doctor *doctor)
{
    struct fq_cli *cli = doctor->cli;
    flashq_broker_info *brokers = NULL;
    size_t count = 0;
    int result = flashq_cluster_brokers(cli->client, cli->timeout_ms, &brokers, &count, NULL, 0);
    for (size_t i = 0; result == 0 && i < count; i++) {
        if (brokers[i].storage[0]) {
            check(doctor, OK, "storage", "broker %" PRId32 ": %s", brokers[i].id, brokers[i].storage);
        }
    }
    flashq_free(brokers);
}

static void check_broker(struct doctor *doctor)
{
    struct fq_cli *cli = doctor->cli;
    cli->errtext[0] = '\0';
    int result = flashq_client_open(cli->config, &cli->client, cli->errtext, sizeof cli->errtext);
    if (result == 0) {
        result = flashq_client_wait(cli->client, cli->timeout_ms >= 0 ? cli->timeout_ms : BROKER_MS,
                                    cli->errtext, sizeof cli->errtext);
    }
    if (result != 0) {
        check(doctor, NOTE, "broker", "not reached: %.400s",
              cli->errtext[0] ? cli->errtext : flashq_strerror(result));
        return;
    }
    check(doctor, OK, "broker", "answers");
    check_storage(doctor);
    check_media(doctor);
    check_exposure(doctor);
}

static int run(struct fq_cli *cli, struct fq_opt_parser *parser)
{
    static const char *const headings[] = {"VERDICT", "CHECK", "FINDING", NULL};
    struct doctor doctor = {.cli = cli};
    int code = fq_cli_parse(cli, parser, take, &doctor);
    if (code >= 0) {
        return code;
    }
    bool is_table = cli->output == FQ_OUTPUT_TABLE;
    doctor.checks = is_table ? NULL : json_array();
    if (is_table) {
        fq_table_init(&doctor.table, headings);
    }
    check_kernel(&doctor);
    check_rlimit(&doctor, RLIMIT_NOFILE, "open files", FILES_WANTED,
                 "the broker wants more for many segments and connections");
    check_rlimit(&doctor, RLIMIT_MEMLOCK, "locked memory", MEMLOCK_WANTED,
                 "RDMA would need more; shared memory and TCP do not");
    check_mappings(&doctor);
    check_clock(&doctor);
    check_rdma(&doctor);
    check_dax(&doctor);
    check_huge_pages(&doctor);
    check_shared_memory(&doctor);
    check_data_dir(&doctor);
    check_broker(&doctor);
    if (is_table) {
        fq_table_finish(&doctor.table, &cli->out);
    } else {
        fq_cli_print_json(cli, json_pack("{s:s, s:b, s:o}", "schema", "flashq.doctor/1", "ok",
                                         doctor.broken == 0, "checks", doctor.checks));
    }
    return doctor.broken > 0 ? FQ_EXIT_FAILED : FQ_EXIT_OK;
}

const struct fq_command fq_cmd_doctor = {
    .name = "doctor", .arguments = "[--data-dir DIR]",
    .summary = "what of this machine matters to FlashQ, and what is wrong with it",
    .notes = "A broker that is not reached is a note, since it may be meant to run elsewhere.\n",
    .options = options, .run = run};
