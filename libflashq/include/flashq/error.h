/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error codes of FlashQ: returned by the C API, carried in acknowledgements and control answers.
 * Zero is success; every error is negative and keeps its number for ever.
 */
#ifndef FLASHQ_ERROR_H
#define FLASHQ_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

enum flashq_error {
    FLASHQ_OK = 0,
    FLASHQ_ERR_FAILED = -1,           /* anything without a code of its own; see the text */
    FLASHQ_ERR_INVALID = -2,          /* an argument or a key is wrong */
    FLASHQ_ERR_NO_MEMORY = -3,        /* the allocator said no */
    FLASHQ_ERR_TIMED_OUT = -4,        /* the deadline passed first */
    FLASHQ_ERR_AGAIN = -5,            /* a bounded queue is full: try again later */
    FLASHQ_ERR_CLOSED = -6,           /* the handle or the connection is closed */
    FLASHQ_ERR_UNREACHABLE = -7,      /* no broker could be reached */
    FLASHQ_ERR_NOT_FOUND = -8,        /* no such topic, partition, group or key */
    FLASHQ_ERR_EXISTS = -9,           /* it is there already */
    FLASHQ_ERR_NOT_PERMITTED = -10,   /* the broker refuses this peer or operation */
    FLASHQ_ERR_CORRUPT = -11,         /* stored bytes are damaged */
    FLASHQ_ERR_TRIMMED = -12,         /* the position is below the log start */
    FLASHQ_ERR_OUT_OF_RANGE = -13,    /* the position is above the end */
    FLASHQ_ERR_TOO_LARGE = -14,       /* a record, batch, name or message is over its limit */
    FLASHQ_ERR_LIMIT = -15,           /* another limit is reached; the text names it */
    FLASHQ_ERR_PROTOCOL = -16,        /* the peer broke the protocol */
    FLASHQ_ERR_VERSION = -17,         /* no common protocol or media version */
    FLASHQ_ERR_SEQUENCE = -18,        /* a batch is out of its producer's sequence */
    FLASHQ_ERR_SLOT_FAILED = -19,     /* an earlier batch of the slot was refused */
    FLASHQ_ERR_EXCLUSIVE = -20,       /* somebody else holds the partition exclusively */
    FLASHQ_ERR_OFFLINE = -21,         /* the partition is offline on this broker */
    FLASHQ_ERR_MAYBE_PERSISTED = -22, /* outcome unknown: the record may or may not be stored */
    FLASHQ_ERR_UNSUPPORTED = -23,     /* not possible here */
    FLASHQ_ERR_CONFIG = -24,          /* a configuration file or value is wrong */
    FLASHQ_ERR_IO = -25,              /* the operating system reported an input/output error */
    FLASHQ_ERR_NO_SPACE = -26,        /* the medium is full */
    FLASHQ_ERR_UNKNOWN_TOPIC_ID = -27, /* the topic was deleted (and perhaps made anew) */
    FLASHQ_ERR_NOT_LEADER = -28,      /* another broker leads the partition */
    FLASHQ_ERR_FENCED = -29,          /* a newer producer or leader epoch exists */
    FLASHQ_ERR_TIMESTAMP = -30,       /* a timestamp is negative or too far ahead */
    FLASHQ_ERR_BUSY = -31,            /* in use: try later */
    FLASHQ_ERR_SHUTTING_DOWN = -32,   /* the broker or the handle is closing */
    FLASHQ_ERR_FORKED = -33,          /* the handle belongs to the parent process */
    FLASHQ_ERR_END = -34              /* the end was reached (only where documented) */
};

#ifdef __cplusplus
}
#endif
#endif
