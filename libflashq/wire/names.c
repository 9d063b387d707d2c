/* SPDX-License-Identifier: Apache-2.0 */
/* Names and strings of the protocol. No state; any thread. */
#include <string.h>

#include "wire/protocol_codec.h"

static bool is_name_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

int fq_topic_name_check(const char *data, size_t length, struct fq_err *err)
{
    if (length == 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "the topic name is empty");
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)data[i];
        if (is_name_byte(c)) {
            continue;
        }
        char shown[8] = "";
        if (c > 0x20 && c < 0x7f) {
            memcpy(shown, (const char[]){' ', '\'', (char)c, '\''}, 4);
        }
        return fq_err_set(
            err, FLASHQ_ERR_INVALID,
            "the topic name has the byte 0x%02x%s at position %zu; only a-z, A-Z, 0-9, "
            "'.', '_' and '-' are allowed",
            (unsigned)c, shown, i + 1);
    }
    if (length > FQ_LIMIT_TOPIC_NAME_BYTES) {
        return fq_err_set(
            err, FLASHQ_ERR_TOO_LARGE,
            "the topic name has %zu bytes, over the limit of %d; byte 0x%02x at position "
            "%d is the first too many",
            length, FQ_LIMIT_TOPIC_NAME_BYTES,
            (unsigned)(unsigned char)data[FQ_LIMIT_TOPIC_NAME_BYTES],
            FQ_LIMIT_TOPIC_NAME_BYTES + 1);
    }
    if (data[0] == '.' && (length == 1 || (length == 2 && data[1] == '.'))) {
        return fq_err_set(err, FLASHQ_ERR_INVALID,
                          "the topic name is \"%.*s\": byte 0x2e '.' at position %zu cannot end it",
                          (int)length, data, length);
    }
    return 0;
}

bool fq_str_equal(struct fq_str a, struct fq_str b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

bool fq_str_copy(struct fq_str from, char *out, size_t capacity)
{
    bool fits = from.length < capacity;
    if (fits && from.length > 0) {
        memcpy(out, from.data, from.length);
    }
    if (capacity > 0) {
        out[fits ? from.length : 0] = '\0';
    }
    return fits;
}
