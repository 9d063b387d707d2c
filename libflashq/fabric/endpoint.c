/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoint texts; see endpoint.h. No state; any thread. */
#include "fabric/endpoint.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *prefix;
    enum fq_transport transport;
} prefixes[] = {
    {"shm:", FQ_TRANSPORT_SHM},
    {"tcp:", FQ_TRANSPORT_TCP},
    {"rdma:", FQ_TRANSPORT_VERBS},
};

const char *fq_transport_name(enum fq_transport transport)
{
    switch (transport) {
    case FQ_TRANSPORT_AUTO: return "auto";
    case FQ_TRANSPORT_SHM: return "shm";
    case FQ_TRANSPORT_TCP: return "tcp";
    case FQ_TRANSPORT_VERBS: return "rdma";
    }
    return "unknown";
}

static int parse_path(const char *text, size_t length, struct fq_endpoint *ret, struct fq_err *err)
{
    if (length == 0) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "shm: wants the path of a socket");
    }
    if (length >= sizeof ret->path) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "socket path of %zu bytes: at most %zu",
                          length, sizeof ret->path - 1);
    }
    memcpy(ret->path, text, length);
    return 0;
}

static int parse_port(const char *text, size_t length, uint16_t *ret, struct fq_err *err)
{
    unsigned long port = 0;
    bool is_good = length > 0 && length <= 5;
    for (size_t i = 0; i < length && is_good; i++) {
        is_good = text[i] >= '0' && text[i] <= '9';
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    if (!is_good || port > UINT16_MAX) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "\"%.*s\" is not a port (0 to 65535)",
                          (int)(length < 40 ? length : 40), text);
    }
    *ret = (uint16_t)port;
    return 0;
}

static bool is_host(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c >= 0x7f || c == '/' || c == '[' || c == ']' || c == ',') {
            return false;
        }
    }
    return length > 0;
}

/* Splits HOST, HOST:PORT, [V6]:PORT, V6 (more than one colon). */
static int parse_host_port(const char *text, size_t length, struct fq_endpoint *ret,
                           struct fq_err *err)
{
    const char *end = text + length, *host = text, *host_end, *port = NULL;
    if (length > 0 && text[0] == '[') {
        host = text + 1;
        host_end = memchr(host, ']', length - 1);
        if (!host_end || (host_end + 1 < end && host_end[1] != ':')) {
            return fq_err_set(err, FLASHQ_ERR_INVALID, "\"%.*s\" is not [ADDRESS]:PORT",
                              (int)length, text);
        }
        port = host_end + 1 < end ? host_end + 2 : NULL;
    } else {
        const char *first = memchr(text, ':', length);
        bool is_v6 = first && memchr(first + 1, ':', (size_t)(end - first - 1));
        host_end = first && !is_v6 ? first : end;
        port = host_end < end ? host_end + 1 : NULL;
    }
    size_t host_length = (size_t)(host_end - host);
    if (host_length > FQ_LIMIT_HOST_BYTES) {
        return fq_err_set(err, FLASHQ_ERR_TOO_LARGE, "host name of %zu bytes: at most %d",
                          host_length, FQ_LIMIT_HOST_BYTES);
    }
    if (!is_host(host, host_length)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "\"%.*s\" names no host (HOST:PORT)",
                          (int)(length < 80 ? length : 80), text);
    }
    memcpy(ret->host, host, host_length);
    ret->port = FQ_DEFAULT_PORT;
    return port ? parse_port(port, (size_t)(end - port), &ret->port, err) : 0;
}

static int parse(const char *text, size_t length, struct fq_endpoint *ret, struct fq_err *err)
{
    while (length > 0 && *text == ' ') {
        text++, length--;
    }
    while (length > 0 && text[length - 1] == ' ') {
        length--;
    }
    struct fq_endpoint endpoint = {.transport = FQ_TRANSPORT_AUTO};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t prefix = strlen(prefixes[i].prefix);
        if (length >= prefix && memcmp(text, prefixes[i].prefix, prefix) == 0) {
            endpoint.transport = prefixes[i].transport;
            text += prefix;
            length -= prefix;
            break;
        }
    }
    int r = endpoint.transport == FQ_TRANSPORT_SHM ? parse_path(text, length, &endpoint, err)
                                                   : parse_host_port(text, length, &endpoint, err);
    if (r == 0) {
        *ret = endpoint;
    }
    return r;
}

int fq_endpoint_parse(const char *text, struct fq_endpoint *ret, struct fq_err *err)
{
    if (!text || !ret) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "no endpoint");
    }
    return parse(text, strlen(text), ret, err);
}

int fq_endpoint_parse_list(const char *text, struct fq_endpoint *ret, size_t max,
                           struct fq_err *err)
{
    if (!text || !ret) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "no endpoints");
    }
    size_t count = 0;
    for (const char *at = text;; count++) {
        size_t length = strcspn(at, ",");
        if (count == max) {
            return fq_err_set(err, FLASHQ_ERR_LIMIT, "more than %zu endpoints", max);
        }
        int r = parse(at, length, &ret[count], err);
        if (r < 0) {
            return r;
        }
        if (at[length] == '\0') {
            return (int)count + 1;
        }
        at += length + 1;
    }
}

const char *fq_endpoint_format(const struct fq_endpoint *endpoint, char *buffer, size_t bytes)
{
    const char *prefix =
        endpoint->transport == FQ_TRANSPORT_AUTO ? "" : fq_transport_name(endpoint->transport);
    const char *colon = *prefix ? ":" : "";
    if (endpoint->transport == FQ_TRANSPORT_SHM) {
        (void)snprintf(buffer, bytes, "shm:%s", endpoint->path);
    } else if (strchr(endpoint->host, ':')) {
        (void)snprintf(buffer, bytes, "%s%s[%s]:%u", prefix, colon, endpoint->host,
                       (unsigned)endpoint->port);
    } else {
        (void)snprintf(buffer, bytes, "%s%s%s:%u", prefix, colon, endpoint->host,
                       (unsigned)endpoint->port);
    }
    return buffer;
}

const char *fq_endpoint_default_socket(char *buffer, size_t bytes)
{
    const char *directory = getenv("XDG_RUNTIME_DIR");
    if (directory && directory[0] == '/') {
        (void)snprintf(buffer, bytes, "%s/flashq.sock", directory);
    } else {
        (void)snprintf(buffer, bytes, "/run/flashq/flashq.sock");
    }
    return buffer;
}
