/* SPDX-License-Identifier: Apache-2.0 */
/* getrandom(2) and xoshiro256**; see random.h. */
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

void fq_random_bytes(void *out, size_t length)
{
    uint8_t *at = out;
    while (length > 0) {
        ssize_t got = getrandom(at, length, 0);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            abort();
        }
        at += got;
        length -= (size_t)got;
    }
}

uint64_t fq_random_u64(void)
{
    uint64_t value;
    fq_random_bytes(&value, sizeof value);
    return value;
}

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void fq_prng_seed(struct fq_prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        prng->s[i] = z ^ (z >> 31);
    }
}

uint64_t fq_prng_next(struct fq_prng *prng)
{
    uint64_t *s = prng->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t fq_prng_below(struct fq_prng *prng, uint64_t bound)
{
    uint64_t least = (0 - bound) % bound; /* values below this would make some results likelier */
    uint64_t value;
    do {
        value = fq_prng_next(prng);
    } while (value < least);
    return value % bound;
}
