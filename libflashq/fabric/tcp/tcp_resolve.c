/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names. getaddrinfo blocks for as long as a name server takes, so a name (not an address and
 * not localhost) is resolved in a thread that lives for that one call and shares one
 * reference-counted struct with the fabric's thread. Whoever comes last frees it.
 */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"

struct fq_tcp_resolve {
    _Atomic int refs;
    _Atomic bool is_done; /* release by the thread, acquire by take: the fields below */
    int fd;
    int result; /* of getaddrinfo */
    size_t count;
    struct sockaddr_storage addresses[FQ_TCP_ADDRESSES_MAX];
    char host[FQ_LIMIT_HOST_BYTES + 1];
    char port[8];
};

static int look_up(const char *host, const char *port, int flags,
                   struct sockaddr_storage *addresses, size_t *ret_count)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int r = getaddrinfo(host, port, &hints, &found);
    if (r != 0) {
        return r;
    }
    size_t count = 0;
    for (struct addrinfo *a = found; a && count < FQ_TCP_ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_addrlen <= sizeof addresses[0]) {
            memcpy(&addresses[count++], a->ai_addr, a->ai_addrlen);
        }
    }
    freeaddrinfo(found);
    *ret_count = count;
    return count ? 0 : EAI_NONAME;
}

static void unref(struct fq_tcp_resolve *resolve)
{
    if (atomic_fetch_sub_explicit(&resolve->refs, 1, memory_order_acq_rel) == 1) {
        close(resolve->fd);
        free(resolve);
    }
}

static void *resolve_main(void *argument)
{
    struct fq_tcp_resolve *resolve = argument;
    const uint64_t one = 1;
    resolve->result =
        look_up(resolve->host, resolve->port, AI_ADDRCONFIG, resolve->addresses, &resolve->count);
    atomic_store_explicit(&resolve->is_done, true, memory_order_release);
    while (write(resolve->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    unref(resolve);
    return NULL;
}

static int start_thread(struct fq_tcp_resolve *resolve)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int r = pthread_attr_init(&attr);
    if (r != 0) {
        return r;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for it */
    r = pthread_create(&thread, &attr, resolve_main, resolve);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return r;
}

static int localhost(const char *port, struct sockaddr_storage *addresses, size_t *ret_count)
{
    size_t v4 = 0, v6 = 0;
    int r = look_up("127.0.0.1", port, AI_NUMERICHOST, addresses, &v4);
    if (r == 0) {
        (void)look_up("::1", port, AI_NUMERICHOST, addresses + v4, &v6);
        *ret_count = v4 + v6;
    }
    return r;
}

int fq_tcp_resolve_start(const struct fq_endpoint *endpoint, struct sockaddr_storage *addresses,
                         size_t *ret_count, struct fq_tcp_resolve **ret, struct fq_err *err)
{
    char port[8];
    *ret = NULL;
    (void)snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    bool is_localhost = strcasecmp(endpoint->host, "localhost") == 0;
    int r = is_localhost ? localhost(port, addresses, ret_count)
                         : look_up(endpoint->host, port, AI_NUMERICHOST, addresses, ret_count);
    if (r == 0) {
        return 0;
    }
    struct fq_tcp_resolve *resolve = calloc(1, sizeof *resolve);
    if (!resolve) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "resolver");
    }
    atomic_init(&resolve->refs, 2);
    memcpy(resolve->host, endpoint->host, sizeof resolve->host);
    memcpy(resolve->port, port, sizeof port);
    resolve->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolve->fd < 0) {
        r = fq_err_errno(err, fq_err_from_errno(errno), errno, "resolver");
        free(resolve);
        return r;
    }
    r = start_thread(resolve);
    if (r != 0) {
        r = fq_err_errno(err, FLASHQ_ERR_FAILED, r, "resolver thread");
        close(resolve->fd);
        free(resolve);
        return r;
    }
    *ret = resolve;
    return 0;
}

int fq_tcp_resolve_fd(const struct fq_tcp_resolve *resolve)
{
    return resolve->fd;
}

int fq_tcp_resolve_take(struct fq_tcp_resolve *resolve, struct sockaddr_storage *addresses,
                        size_t *ret_count, struct fq_err *err)
{
    if (!atomic_load_explicit(&resolve->is_done, memory_order_acquire)) {
        return 0;
    }
    if (resolve->result != 0) {
        return fq_err_set(err, FLASHQ_ERR_UNREACHABLE, "%s: %s", resolve->host,
                          gai_strerror(resolve->result));
    }
    memcpy(addresses, resolve->addresses, resolve->count * sizeof addresses[0]);
    *ret_count = resolve->count;
    return 1;
}

void fq_tcp_resolve_free(struct fq_tcp_resolve *resolve, bool is_child)
{
    if (!resolve) {
        return;
    }
    if (is_child) { /* the thread did not come along */
        close(resolve->fd);
        free(resolve);
        return;
    }
    unref(resolve);
}
