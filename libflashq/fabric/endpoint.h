/* SPDX-License-Identifier: Apache-2.0 */
/* Where a broker can be reached: `HOST:PORT`, `tcp:HOST:PORT`, `rdma:HOST:PORT`, `shm:SOCKET`. */
#ifndef FQ_FABRIC_ENDPOINT_H
#define FQ_FABRIC_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

#define FQ_DEFAULT_PORT 9640

enum fq_transport {
    FQ_TRANSPORT_AUTO, /* HOST:PORT without a prefix: the client chooses */
    FQ_TRANSPORT_SHM,
    FQ_TRANSPORT_TCP,
    FQ_TRANSPORT_VERBS
};

struct fq_endpoint {
    enum fq_transport transport;
    char host[FQ_LIMIT_HOST_BYTES + 1]; /* tcp, verbs; without the brackets of [::1] */
    uint16_t port;
    char path[108]; /* shm: fits sockaddr_un */
};

/* Parses one endpoint; a missing port is FQ_DEFAULT_PORT. */
int fq_endpoint_parse(const char *text, struct fq_endpoint *ret, struct fq_err *err);

/* Parses a comma-separated list into `ret` (at most `max`); returns the count or an error. */
int fq_endpoint_parse_list(const char *text, struct fq_endpoint *ret, size_t max,
                           struct fq_err *err);

/* Writes the canonical text ("tcp:127.0.0.1:9640") and returns `buffer`. */
const char *fq_endpoint_format(const struct fq_endpoint *endpoint, char *buffer, size_t bytes);

/* The default shm socket: $XDG_RUNTIME_DIR/flashq.sock, else /run/flashq/flashq.sock. */
const char *fq_endpoint_default_socket(char *buffer, size_t bytes);

/* "shm", "tcp", "rdma", "auto". */
const char *fq_transport_name(enum fq_transport transport);

#endif
