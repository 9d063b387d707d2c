/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers with units, as people write them in configuration: "64MiB", "1h30m", "500ms". Shared by
 * the broker's keys, the client's keys and a topic's configuration, so that one spelling works
 * everywhere. No state; any thread; nothing allocated.
 */
#ifndef FQ_CONF_UNITS_H
#define FQ_CONF_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A whole decimal number with an optional minus. Returns INVALID with a text on anything else. */
int fq_parse_int(const char *text, int64_t *ret, struct fq_err *err);

/* A size: digits, then nothing or B (bytes), K M G T or KiB MiB GiB TiB (powers of 1024), kB KB MB
 * GB TB (powers of 1000). A leading minus is accepted for the caller's range check to refuse. */
int fq_parse_bytes(const char *text, int64_t *ret, struct fq_err *err);

/* A span in units of `unit_us` microseconds (1 for us, 1000 for ms): one or more groups of digits
 * and w d h m s ms us ("1h30m"), the units falling, each number with a fraction or without ("0.1ms"). A bare
 * number counts in `unit_us`. What is finer than the unit is refused, not rounded. */
int fq_parse_duration(const char *text, int64_t unit_us, int64_t *ret, struct fq_err *err);
/* The same span in microseconds, whatever a bare number counts in (`bare_us`). */
int fq_parse_duration_us(const char *text, int64_t bare_us, int64_t *ret_us, struct fq_err *err);

/* The shortest exact spelling ("64MiB", "1h", "1500ms"). They return `buffer`. */
const char *fq_format_bytes(int64_t value, char *buffer, size_t bytes);
const char *fq_format_duration(int64_t value, int64_t unit_us, char *buffer, size_t bytes);

#endif
