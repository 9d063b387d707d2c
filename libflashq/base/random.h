/* SPDX-License-Identifier: Apache-2.0 */
/* Randomness: the kernel's for ids and keys; a seeded generator for tests, jitter and simulation. */
#ifndef FQ_BASE_RANDOM_H
#define FQ_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills from getrandom(2); aborts when the kernel cannot (it always can after boot). */
void fq_random_bytes(void *out, size_t length);
uint64_t fq_random_u64(void);

/* xoshiro256** by Blackman and Vigna, seeded through splitmix64 (https://prng.di.unimi.it). */
struct fq_prng {
    uint64_t s[4];
};
void fq_prng_seed(struct fq_prng *prng, uint64_t seed);
uint64_t fq_prng_next(struct fq_prng *prng);
/* Uniform in [0, bound); bound > 0. */
uint64_t fq_prng_below(struct fq_prng *prng, uint64_t bound);

#endif
