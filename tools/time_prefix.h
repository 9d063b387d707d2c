/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a line of a log file begins with (`pub --time-prefix`). The format is strptime's, in
 * UTC unless it has %z; a fraction behind it is taken too. "rfc3339" takes the line's first word as
 * RFC 3339.
 */
#ifndef FQ_TOOLS_TIME_PREFIX_H
#define FQ_TOOLS_TIME_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "tools/text.h"

int fq_time_prefix_check(const char *format, struct fq_fault *fault);
/* 0, or INVALID when the line does not begin so. */
int fq_time_prefix_read(const char *format, const void *line, size_t length, int64_t *ret_ms);

#endif
