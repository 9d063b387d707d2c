/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli, polynomial 0x1EDC6F41, as in RFC 3720 appendix B.4). `crc` is the value so
 * far, 0 at first; the result of one call is the start of the next.
 */
#ifndef FQ_BASE_CRC32C_H
#define FQ_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The fastest implementation this CPU has. */
uint32_t fq_crc32c(uint32_t crc, const void *bytes, size_t length);

/* Copies and checksums in one pass: each byte of the source, which may be memory that somebody else
 * changes meanwhile, is loaded exactly once, so the result is the checksum of the bytes as stored
 * at dst. The two must not overlap. */
uint32_t fq_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t length);

/* The same, and stored at `away` as well, past the cache: with a fence after it nothing of `away`
 * is left in a cache. `away` is aligned to 64 bytes, `length` a multiple of 64. Only where
 * fq_crc32c_can_stream says so. */
bool fq_crc32c_can_stream(void);
uint32_t fq_crc32c_stream(uint32_t crc, void *dst, void *away, const void *src, size_t length);

/* The implementations, for proving them equal. Hardware: NULL where the CPU has none. */
typedef uint32_t (*fq_crc32c_function)(uint32_t crc, const void *bytes, size_t length);
uint32_t fq_crc32c_software(uint32_t crc, const void *bytes, size_t length);
uint32_t fq_crc32c_copy_software(uint32_t crc, void *dst, const void *src, size_t length);
typedef uint32_t (*fq_crc32c_copy_function)(uint32_t crc, void *dst, const void *src,
                                            size_t length);
fq_crc32c_function fq_crc32c_hardware(void);
fq_crc32c_copy_function fq_crc32c_copy_hardware(void);

#endif
