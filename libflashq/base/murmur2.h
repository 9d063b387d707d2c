/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 32-bit MurmurHash2 (A. Appleby, public domain) with the seed of Kafka's default partitioner,
 * so that a key goes to the partition it would go to there: (murmur2(key) & 0x7fffffff) %
 * partitions.
 */
#ifndef FQ_BASE_MURMUR2_H
#define FQ_BASE_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

uint32_t fq_murmur2(const void *bytes, size_t length);

#endif
