/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging for programs. libflashq never installs a sink, so it never writes to stdout or stderr.
 * Not for the path of a record: a call formats and writes.
 */
#ifndef FQ_BASE_LOG_H
#define FQ_BASE_LOG_H

enum fq_log_level { FQ_LOG_ERROR, FQ_LOG_WARN, FQ_LOG_INFO, FQ_LOG_DEBUG };

/* `line` is one message without newline. Called from any thread. */
typedef void (*fq_log_sink)(void *context, enum fq_log_level level, const char *line);

/* NULL: silence (the default). Set before threads start. */
void fq_log_set_sink(fq_log_sink sink, void *context, enum fq_log_level most_verbose);
/* A sink that writes "2026-11-30T12:00:00.123Z INFO  text" to stderr with one write(2). */
void fq_log_to_stderr(void *context, enum fq_log_level level, const char *line);

void fq_logf(enum fq_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define fq_error(...) fq_logf(FQ_LOG_ERROR, __VA_ARGS__)
#define fq_warn(...) fq_logf(FQ_LOG_WARN, __VA_ARGS__)
#define fq_info(...) fq_logf(FQ_LOG_INFO, __VA_ARGS__)
#define fq_debug(...) fq_logf(FQ_LOG_DEBUG, __VA_ARGS__)

#endif
