/* SPDX-License-Identifier: Apache-2.0 */
/* Codes, names and texts of errors; see error.h. No state; any thread. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *name;
    const char *description;
} errors[] = {
    {FLASHQ_OK, "OK", "success"},
    {FLASHQ_ERR_FAILED, "FAILED", "failed"},
    {FLASHQ_ERR_INVALID, "INVALID", "invalid argument"},
    {FLASHQ_ERR_NO_MEMORY, "NO_MEMORY", "out of memory"},
    {FLASHQ_ERR_TIMED_OUT, "TIMED_OUT", "timed out"},
    {FLASHQ_ERR_AGAIN, "AGAIN", "queue full, try again"},
    {FLASHQ_ERR_CLOSED, "CLOSED", "closed"},
    {FLASHQ_ERR_UNREACHABLE, "UNREACHABLE", "cannot reach a broker"},
    {FLASHQ_ERR_NOT_FOUND, "NOT_FOUND", "not found"},
    {FLASHQ_ERR_EXISTS, "EXISTS", "exists already"},
    {FLASHQ_ERR_NOT_PERMITTED, "NOT_PERMITTED", "not permitted"},
    {FLASHQ_ERR_CORRUPT, "CORRUPT", "data is damaged"},
    {FLASHQ_ERR_TRIMMED, "TRIMMED", "position is below the log start"},
    {FLASHQ_ERR_OUT_OF_RANGE, "OUT_OF_RANGE", "position is above the end"},
    {FLASHQ_ERR_TOO_LARGE, "TOO_LARGE", "too large"},
    {FLASHQ_ERR_LIMIT, "LIMIT", "a limit is reached"},
    {FLASHQ_ERR_PROTOCOL, "PROTOCOL", "protocol violation"},
    {FLASHQ_ERR_VERSION, "VERSION", "no common version"},
    {FLASHQ_ERR_SEQUENCE, "SEQUENCE", "batch out of sequence"},
    {FLASHQ_ERR_SLOT_FAILED, "SLOT_FAILED", "an earlier batch was refused"},
    {FLASHQ_ERR_EXCLUSIVE, "EXCLUSIVE", "held exclusively by another producer"},
    {FLASHQ_ERR_OFFLINE, "OFFLINE", "partition is offline"},
    {FLASHQ_ERR_MAYBE_PERSISTED, "MAYBE_PERSISTED", "outcome unknown: may or may not be stored"},
    {FLASHQ_ERR_UNSUPPORTED, "UNSUPPORTED", "not supported here"},
    {FLASHQ_ERR_CONFIG, "CONFIG", "wrong configuration"},
    {FLASHQ_ERR_IO, "IO", "input/output error"},
    {FLASHQ_ERR_NO_SPACE, "NO_SPACE", "no space left on the medium"},
    {FLASHQ_ERR_UNKNOWN_TOPIC_ID, "UNKNOWN_TOPIC_ID", "the topic was deleted or made anew"},
    {FLASHQ_ERR_NOT_LEADER, "NOT_LEADER", "not the partition's leader"},
    {FLASHQ_ERR_FENCED, "FENCED", "fenced by a newer epoch"},
    {FLASHQ_ERR_TIMESTAMP, "TIMESTAMP", "timestamp out of bounds"},
    {FLASHQ_ERR_BUSY, "BUSY", "in use"},
    {FLASHQ_ERR_SHUTTING_DOWN, "SHUTTING_DOWN", "shutting down"},
    {FLASHQ_ERR_FORKED, "FORKED", "the handle belongs to the parent process"},
    {FLASHQ_ERR_END, "END", "end reached"},
};

#define ERRORS_COUNT (sizeof errors / sizeof errors[0])

int fq_err_set(struct fq_err *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return code;
}

int fq_err_errno(struct fq_err *err, int code, int errnum, const char *format, ...)
{
    if (err) {
        char why[128];
        va_list args;
        va_start(args, format);
        err->code = code;
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        size_t used = strlen(err->text);
        (void)snprintf(err->text + used, sizeof err->text - used, ": %s",
                       strerror_r(errnum, why, sizeof why));
    }
    return code;
}

int fq_err_prefix(struct fq_err *err, const char *format, ...)
{
    if (!err) {
        return FLASHQ_ERR_FAILED;
    }
    char old[FQ_ERR_TEXT_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    (void)snprintf(err->text + used, sizeof err->text - used, "%.*s",
                   (int)(sizeof old - 1), old);
    return err->code;
}

void fq_err_clear(struct fq_err *err)
{
    if (err) {
        err->code = FLASHQ_OK;
        err->text[0] = '\0';
    }
}

static size_t find(int code)
{
    for (size_t i = 0; i < ERRORS_COUNT; i++) {
        if (errors[i].code == code) {
            return i;
        }
    }
    return ERRORS_COUNT;
}

const char *fq_err_name(int code)
{
    size_t i = find(code);
    return i < ERRORS_COUNT ? errors[i].name : "UNKNOWN";
}

const char *fq_err_describe(int code)
{
    size_t i = find(code);
    return i < ERRORS_COUNT ? errors[i].description : "unknown error";
}

int fq_err_from_errno(int errnum)
{
    switch (errnum) {
    case 0: return FLASHQ_OK;
    case ENOMEM: return FLASHQ_ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT: return FLASHQ_ERR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS: return FLASHQ_ERR_NOT_PERMITTED;
    case ENOENT: return FLASHQ_ERR_NOT_FOUND;
    case EEXIST: return FLASHQ_ERR_EXISTS;
    case EINVAL: return FLASHQ_ERR_INVALID;
    case EMFILE:
    case ENFILE: return FLASHQ_ERR_LIMIT;
    case ETIMEDOUT: return FLASHQ_ERR_TIMED_OUT;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH: return FLASHQ_ERR_UNREACHABLE;
    case EIO: return FLASHQ_ERR_IO;
    default: return FLASHQ_ERR_FAILED;
    }
}
