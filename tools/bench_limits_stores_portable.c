/* SPDX-License-Identifier: Apache-2.0 */
/* Where no stores past the caches are known: plain ones, and a fence that the compiler and the processor know. */
#include <stdatomic.h>
#include <string.h>

#include "tools/bench_limits.h"

void fq_store_past_caches(void *dst, const void *src, size_t length)
{
    memcpy(dst, src, length);
}

void fq_store_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

void fq_store_pause(void)
{
}
