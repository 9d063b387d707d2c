/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the fuzz targets of control messages: check_NAME decodes a message as NAME whatever it says
 * it is (then the decoder must refuse it), and what was accepted must survive encoding: the second
 * encoding has the bytes of the first.
 */
#ifndef FQ_TESTS_FUZZ_CONTROL_CHECK_H
#define FQ_TESTS_FUZZ_CONTROL_CHECK_H

#include "wire/protocol_codec.h"

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

#define CONTROL_CHECK(name, body)                                                                  \
    static void check_##name(const struct fq_msg *msg)                                             \
    {                                                                                              \
        static uint8_t first[FQ_LIMIT_CONTROL_BYTES], second[FQ_LIMIT_CONTROL_BYTES];              \
        struct fq_err err;                                                                         \
        struct fq_msg again;                                                                       \
        struct body value;                                                                         \
        if (fq_decode_##name(msg, &value, &err) != 0) {                                            \
            return;                                                                                \
        }                                                                                          \
        int64_t length = fq_encode_##name(first, sizeof first, msg->correlation, &value);          \
        must(length >= FQ_MSG_HEADER_BYTES);                                                       \
        must(fq_msg_decode(first, (size_t)length, &again, &err) == 0);                             \
        must(fq_decode_##name(&again, &value, &err) == 0);                                         \
        must(fq_encode_##name(second, sizeof second, msg->correlation, &value) == length);         \
        must(memcmp(first, second, (size_t)length) == 0);                                          \
    }

#endif
