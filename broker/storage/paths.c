/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files and folders; MEDIA.md, "Names". Pure, but for fq_topic_dir_find. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "storage/store_impl.h"

void fq_uuid_hex(const struct fq_uuid *id, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < FQ_UUID_BYTES; i++) {
        out[2 * i] = digits[id->bytes[i] >> 4];
        out[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    out[32] = '\0';
}

bool fq_uuid_parse(const char *hex32, struct fq_uuid *ret)
{
    for (unsigned i = 0; i < 32; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = hex32[i] ? strchr(digits, hex32[i]) : NULL;
        if (!digit) {
            return false;
        }
        unsigned value = (unsigned)(digit - digits);
        ret->bytes[i / 2] = (uint8_t)(i % 2 == 0 ? value << 4 : ret->bytes[i / 2] | value);
    }
    return true;
}

void fq_topic_dir_name(const char *topic, const struct fq_uuid *id, char out[256])
{
    char hex[33];
    size_t length = strlen(topic);
    fq_uuid_hex(id, hex);
    if (length > FQ_TOPIC_DIR_NAME_BYTES) {
        (void)snprintf(out, 256, "%.*s~-%s", (int)FQ_TOPIC_DIR_NAME_BYTES, topic, hex);
    } else {
        (void)snprintf(out, 256, "%s-%s", topic, hex);
    }
}

bool fq_topic_dir_parse(const char *folder, char name[256], struct fq_uuid *ret)
{
    size_t length = strlen(folder);
    if (length < 34 || length > 255 || folder[length - 33] != '-' ||
        !fq_uuid_parse(folder + length - 32, ret)) {
        return false;
    }
    (void)snprintf(name, 256, "%.*s", (int)(length - 33), folder);
    return true;
}

int fq_topic_dir_find(const char *data_dir, const struct fq_uuid *id, char out[FQ_PATH_BYTES])
{
    DIR *folder = opendir(data_dir);
    if (!folder) {
        return fq_err_from_errno(errno);
    }
    int r = FLASHQ_ERR_NOT_FOUND;
    for (struct dirent *entry; r != 0 && (entry = readdir(folder)) != NULL;) {
        struct fq_uuid found;
        char name[256];
        if (fq_topic_dir_parse(entry->d_name, name, &found) &&
            memcmp(&found, id, sizeof found) == 0) {
            (void)snprintf(out, FQ_PATH_BYTES, "%s/%s", data_dir, entry->d_name);
            r = 0;
        }
    }
    (void)closedir(folder);
    return r;
}

bool fq_segment_name_parse(const char *name, int64_t *ret_base, bool *ret_next)
{
    *ret_next = strncmp(name, "next-", 5) == 0 && strlen(name) > 9 &&
                strcmp(name + strlen(name) - 4, ".log") == 0;
    if (*ret_next || strlen(name) != 24 || strcmp(name + 20, ".log") != 0) {
        return false;
    }
    uint64_t base = 0;
    for (unsigned i = 0; i < 20; i++) {
        unsigned digit = (unsigned)(name[i] - '0');
        if (digit > 9 || base > ((uint64_t)INT64_MAX - digit) / 10) {
            return false;
        }
        base = base * 10 + digit;
    }
    *ret_base = (int64_t)base;
    return true;
}
