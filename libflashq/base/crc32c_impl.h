/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between crc32c.c and the files for this machine's instructions (crc32c_x86.c and crc32c_x86_wide.c,
 * or crc32c_portable.c; chosen by meson). Registers are inverted CRC values ("raw"), as the instructions use them.
 */
#ifndef FQ_BASE_CRC32C_IMPL_H
#define FQ_BASE_CRC32C_IMPL_H

#include "base/crc32c.h"

typedef uint64_t fq_u64_anywhere __attribute__((aligned(1), may_alias));

/* Loads once: `from` may be memory that another process stores to, and what is checksummed must be
 * what is stored, so the compiler may not load it a second time. */
static inline uint64_t fq_load_once64(const uint8_t *from)
{
    return *(const volatile fq_u64_anywhere *)from;
}

static inline uint8_t fq_load_once8(const uint8_t *from)
{
    return *(const volatile uint8_t *)from;
}

struct fq_crc32c_ops {
    uint32_t (*run)(uint32_t crc, const void *bytes, size_t length);
    uint32_t (*copy)(uint32_t crc, void *dst, const void *src, size_t length);
    /* As fq_crc32c_stream; NULL: there are no such instructions. */
    uint32_t (*stream)(uint32_t crc, void *dst, void *away, const void *src, size_t length);
};

/* NULL: this CPU has no such instructions. Called before main. */
const struct fq_crc32c_ops *fq_crc32c_machine_ops(void);
/* Wider ones, which leave short pieces to `machine_ops`; NULL: none. Likewise. */
const struct fq_crc32c_ops *fq_crc32c_wide_ops(const struct fq_crc32c_ops *machine_ops);

#endif
