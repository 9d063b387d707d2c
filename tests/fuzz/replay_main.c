/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over every file of a corpus folder, without libFuzzer, so that each build with
 * each compiler and sanitizer replays what was once found. An empty or missing corpus is a failure.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    (void)fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    /* exactly `size` bytes, so that a read past the end is seen by AddressSanitizer */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        exit(1);
    }
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    unsigned replayed = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        (void)fprintf(stderr, "usage: %s CORPUS_FOLDER (which must exist)\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            char path[4096];
            (void)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
            failed += replay(path);
            replayed++;
        }
    }
    (void)closedir(folder);
    (void)printf("replayed %u inputs, %d unreadable\n", replayed, failed);
    return failed != 0 || replayed == 0;
}
