/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames before the handshake is done, the same over shm's unix socket and over tcp.
 *
 *   hello   magic "FQF1" | u16 version | u16 frame length | u8 transport | u8 hello bytes | u16 0
 *           | u32 shard | u32 ring bytes (shm) | u32 0 | hello
 *   reply   magic "FQR1" | u16 version | u16 frame length | i32 status | u8 reply bytes
 *           | u8 text bytes | u16 0 | reply | text
 *
 * Over shm the hello's first byte carries one descriptor: the memfd of the connection's two rings.
 */
#ifndef FQ_FABRIC_HELLO_H
#define FQ_FABRIC_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"
#include "fabric/endpoint.h"
#include "fabric/fabric.h"

#define FQ_FABRIC_VERSION     1
#define FQ_HELLO_HEADER_BYTES 24
#define FQ_REPLY_HEADER_BYTES 16
#define FQ_REPLY_TEXT_BYTES   200
#define FQ_HELLO_FRAME_BYTES  (FQ_HELLO_HEADER_BYTES + FQ_LIMIT_HELLO_BYTES)
#define FQ_REPLY_FRAME_BYTES  (FQ_REPLY_HEADER_BYTES + FQ_LIMIT_HELLO_BYTES + FQ_REPLY_TEXT_BYTES)

_Static_assert(FQ_HELLO_FRAME_BYTES <= FQ_LIMIT_PRE_HANDSHAKE_BYTES, "hello fits");
_Static_assert(FQ_REPLY_FRAME_BYTES <= FQ_LIMIT_PRE_HANDSHAKE_BYTES, "reply fits");

struct fq_hello_frame {
    enum fq_transport transport;
    uint32_t shard;
    uint32_t ring_bytes;
    uint8_t hello[FQ_LIMIT_HELLO_BYTES];
    size_t hello_bytes;
};

size_t fq_hello_frame_encode(const struct fq_hello_frame *hello, uint8_t out[FQ_HELLO_FRAME_BYTES]);
/* Looks at the bytes so far: how many the whole frame has (never more than FQ_HELLO_FRAME_BYTES),
 * or PROTOCOL / VERSION as soon as they cannot become a hello. */
int fq_hello_frame_length(const uint8_t *bytes, size_t length);
int fq_hello_frame_decode(const uint8_t *bytes, size_t length, struct fq_hello_frame *ret);

struct fq_reply_frame {
    int32_t status;
    uint8_t reply[FQ_LIMIT_HELLO_BYTES];
    size_t reply_bytes;
    char text[FQ_REPLY_TEXT_BYTES + 1];
};

size_t fq_reply_encode(const struct fq_reply_frame *reply, uint8_t out[FQ_REPLY_FRAME_BYTES]);

/* Reads a reply from a socket, never a byte beyond it. 1: complete; 0: more has to come; negative:
 * CLOSED (end of file), PROTOCOL, VERSION, IO. */
struct fq_reply_reader {
    uint8_t bytes[FQ_REPLY_FRAME_BYTES];
    size_t have;
};
int fq_reply_read(struct fq_reply_reader *reader, int fd, struct fq_reply_frame *ret);

#endif
