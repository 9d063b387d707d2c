/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of a view line while its partition publishes: what passes the checksum is one
 * publication, whole, and no reader sees the high watermark go back.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "partition/view.h"

#define PUBLICATIONS 300000
#define READERS      2

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "race_view.c:%d: not so: %s\n", __LINE__, #condition);                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static _Alignas(64) struct fq_view line;
static _Atomic bool is_over;

static void *read_views(void *context)
{
    uint64_t *counts = context; /* whole, torn */
    int64_t last = 0;
    while (!atomic_load(&is_over)) {
        uint64_t words[8];
        for (size_t i = 0; i < 8; i++) { /* as a one-sided read: no order between the words */
            words[i] = __atomic_load_n((uint64_t *)(void *)&line + i, __ATOMIC_RELAXED);
        }
        struct fq_view view;
        memcpy(&view, words, sizeof view);
        if (fq_crc32c(0, &view, 60) != view.crc) {
            counts[1]++;
            continue;
        }
        counts[0]++;
        REQUIRE(view.high_watermark >= last);
        REQUIRE(view.committed_position == (uint64_t)view.high_watermark * 100);
        REQUIRE(view.version == (uint32_t)view.high_watermark + 1);
        last = view.high_watermark;
    }
    return NULL;
}

int main(void)
{
    struct fq_view view = {.generation = 1};
    uint64_t counts[READERS][2] = {{0}};
    pthread_t readers[READERS];
    fq_view_publish(&line, &view);
    for (size_t i = 0; i < READERS; i++) {
        REQUIRE(pthread_create(&readers[i], NULL, read_views, counts[i]) == 0);
    }
    for (int64_t i = 1; i <= PUBLICATIONS; i++) {
        view.high_watermark = i;
        view.committed_position = (uint64_t)i * 100;
        fq_view_publish(&line, &view);
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS; i++) {
        REQUIRE(pthread_join(readers[i], NULL) == 0);
        printf("reader %zu: %llu whole, %llu torn\n", i, (unsigned long long)counts[i][0],
               (unsigned long long)counts[i][1]);
        REQUIRE(counts[i][0] > 0);
    }
    return 0;
}
