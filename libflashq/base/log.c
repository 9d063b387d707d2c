/* SPDX-License-Identifier: Apache-2.0 */
/* One process-wide sink, set before threads start; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048

static struct {
    fq_log_sink write;
    void *context;
    enum fq_log_level most_verbose;
} sink;

void fq_log_set_sink(fq_log_sink write, void *context, enum fq_log_level most_verbose)
{
    sink.write = write;
    sink.context = context;
    sink.most_verbose = most_verbose;
}

void fq_log_to_stderr(void *context, enum fq_log_level level, const char *line)
{
    static const char *const names[] = {"ERROR", "WARN ", "INFO ", "DEBUG"};
    (void)context;
    struct timespec now;
    struct tm utc;
    char stamp[32];
    char out[LINE_BYTES + 64];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    int length = snprintf(out, sizeof out, "%s.%03ldZ %s %s\n", stamp, now.tv_nsec / 1000000,
                          names[level], line);
    if (length > 0) {
        size_t bytes = (size_t)length < sizeof out ? (size_t)length : sizeof out - 1;
        ssize_t ignored = write(STDERR_FILENO, out, bytes);
        (void)ignored;
    }
}

void fq_logf(enum fq_log_level level, const char *format, ...)
{
    if (!sink.write || level > sink.most_verbose) {
        return;
    }
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    sink.write(sink.context, level, line);
}
