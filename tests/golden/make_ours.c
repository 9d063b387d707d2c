/* SPDX-License-Identifier: Apache-2.0 */
/* make_ours FOLDER: writes FlashQ's vectors there, one file each (see README.md). */
#include <stdio.h>
#include <stdlib.h>

#include "ours.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: make_ours FOLDER\n");
        return 2;
    }
    uint8_t *bytes = malloc(GOLDEN_BATCH_BYTES_MAX);
    if (!bytes) {
        return 1;
    }
    for (size_t i = 0; i < golden_vectors_count; i++) {
        size_t length = golden_encode(&golden_vectors[i], bytes, GOLDEN_BATCH_BYTES_MAX);
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s.bin", argv[1], golden_vectors[i].name);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    free(bytes);
    return 0;
}
