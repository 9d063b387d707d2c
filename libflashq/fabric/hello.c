/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the handshake; see hello.h. Everything read here is hostile. No state; any thread. */
#include "fabric/hello.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "fabric/sock.h"

static const uint8_t hello_magic[4] = {'F', 'Q', 'F', '1'};
static const uint8_t reply_magic[4] = {'F', 'Q', 'R', '1'};

size_t fq_hello_frame_encode(const struct fq_hello_frame *hello, uint8_t out[FQ_HELLO_FRAME_BYTES])
{
    size_t whole = FQ_HELLO_HEADER_BYTES + hello->hello_bytes;
    memset(out, 0, FQ_HELLO_HEADER_BYTES);
    memcpy(out, hello_magic, sizeof hello_magic);
    fq_store_le16(out + 4, FQ_FABRIC_VERSION);
    fq_store_le16(out + 6, (uint16_t)whole);
    out[8] = (uint8_t)hello->transport;
    out[9] = (uint8_t)hello->hello_bytes;
    fq_store_le32(out + 12, hello->shard);
    fq_store_le32(out + 16, hello->ring_bytes);
    memcpy(out + FQ_HELLO_HEADER_BYTES, hello->hello, hello->hello_bytes);
    return whole;
}

int fq_hello_frame_length(const uint8_t *bytes, size_t length)
{
    size_t seen = length < sizeof hello_magic ? length : sizeof hello_magic;
    if (memcmp(bytes, hello_magic, seen) != 0) {
        return FLASHQ_ERR_PROTOCOL;
    }
    if (length < 8) {
        return FQ_HELLO_HEADER_BYTES;
    }
    if (fq_load_le16(bytes + 4) != FQ_FABRIC_VERSION) {
        return FLASHQ_ERR_VERSION;
    }
    unsigned whole = fq_load_le16(bytes + 6);
    if (whole < FQ_HELLO_HEADER_BYTES || whole > FQ_HELLO_FRAME_BYTES) {
        return FLASHQ_ERR_PROTOCOL;
    }
    return (int)whole;
}

int fq_hello_frame_decode(const uint8_t *bytes, size_t length, struct fq_hello_frame *ret)
{
    int whole = fq_hello_frame_length(bytes, length);
    if (whole < 0 || (size_t)whole != length) {
        return whole < 0 ? whole : FLASHQ_ERR_PROTOCOL;
    }
    struct fq_reader r;
    fq_reader_init(&r, bytes + 8, length - 8);
    uint8_t transport = fq_read_u8(&r);
    ret->hello_bytes = fq_read_u8(&r);
    uint16_t zero = fq_read_u16(&r);
    ret->shard = fq_read_u32(&r);
    ret->ring_bytes = fq_read_u32(&r);
    uint32_t zero_too = fq_read_u32(&r);
    const uint8_t *hello = fq_read_bytes(&r, ret->hello_bytes);
    if (r.failed || fq_reader_left(&r) != 0 || zero != 0 || zero_too != 0 ||
        (transport != FQ_TRANSPORT_SHM && transport != FQ_TRANSPORT_TCP)) {
        return FLASHQ_ERR_PROTOCOL;
    }
    ret->transport = (enum fq_transport)transport;
    memcpy(ret->hello, hello, ret->hello_bytes);
    return 0;
}

size_t fq_reply_encode(const struct fq_reply_frame *reply, uint8_t out[FQ_REPLY_FRAME_BYTES])
{
    size_t text_bytes = strnlen(reply->text, FQ_REPLY_TEXT_BYTES);
    size_t whole = FQ_REPLY_HEADER_BYTES + reply->reply_bytes + text_bytes;
    memset(out, 0, FQ_REPLY_HEADER_BYTES);
    memcpy(out, reply_magic, sizeof reply_magic);
    fq_store_le16(out + 4, FQ_FABRIC_VERSION);
    fq_store_le16(out + 6, (uint16_t)whole);
    fq_store_le32(out + 8, (uint32_t)reply->status);
    out[12] = (uint8_t)reply->reply_bytes;
    out[13] = (uint8_t)text_bytes;
    memcpy(out + FQ_REPLY_HEADER_BYTES, reply->reply, reply->reply_bytes);
    memcpy(out + FQ_REPLY_HEADER_BYTES + reply->reply_bytes, reply->text, text_bytes);
    return whole;
}

static int decode_reply(const uint8_t *bytes, size_t length, struct fq_reply_frame *ret)
{
    struct fq_reader r;
    fq_reader_init(&r, bytes + 8, length - 8);
    ret->status = (int32_t)fq_read_u32(&r);
    ret->reply_bytes = fq_read_u8(&r);
    size_t text_bytes = fq_read_u8(&r);
    uint16_t zero = fq_read_u16(&r);
    if (r.failed || zero != 0 || ret->reply_bytes > FQ_LIMIT_HELLO_BYTES ||
        text_bytes > FQ_REPLY_TEXT_BYTES || fq_reader_left(&r) != ret->reply_bytes + text_bytes ||
        ret->status > 0) {
        return FLASHQ_ERR_PROTOCOL;
    }
    memcpy(ret->reply, fq_read_bytes(&r, ret->reply_bytes), ret->reply_bytes);
    memcpy(ret->text, fq_read_bytes(&r, text_bytes), text_bytes);
    ret->text[text_bytes] = '\0';
    for (size_t i = 0; i < text_bytes; i++) { /* it ends on somebody's terminal */
        if ((unsigned char)ret->text[i] < ' ') {
            ret->text[i] = ' ';
        }
    }
    return 1;
}

static int reply_frame_length(const uint8_t *bytes, size_t length)
{
    size_t seen = length < sizeof reply_magic ? length : sizeof reply_magic;
    if (memcmp(bytes, reply_magic, seen) != 0) {
        return FLASHQ_ERR_PROTOCOL;
    }
    if (length < 8) {
        return FQ_REPLY_HEADER_BYTES;
    }
    if (fq_load_le16(bytes + 4) != FQ_FABRIC_VERSION) {
        return FLASHQ_ERR_VERSION;
    }
    unsigned whole = fq_load_le16(bytes + 6);
    return whole < FQ_REPLY_HEADER_BYTES || whole > FQ_REPLY_FRAME_BYTES ? FLASHQ_ERR_PROTOCOL
                                                                         : (int)whole;
}

int fq_reply_read(struct fq_reply_reader *reader, int fd, struct fq_reply_frame *ret)
{
    for (;;) {
        int whole = reply_frame_length(reader->bytes, reader->have);
        if (whole < 0) {
            return whole;
        }
        if (reader->have >= 8 && reader->have == (size_t)whole) {
            return decode_reply(reader->bytes, reader->have, ret);
        }
        ssize_t n = fq_sock_recv(fd, reader->bytes + reader->have, (size_t)whole - reader->have);
        if (n == 0) {
            return FLASHQ_ERR_CLOSED;
        }
        if (n < 0) {
            return fq_sock_would_block(errno)              ? 0
                   : errno == ECONNRESET || errno == EPIPE ? FLASHQ_ERR_CLOSED
                                                           : FLASHQ_ERR_IO;
        }
        reader->have += (size_t)n;
    }
}
