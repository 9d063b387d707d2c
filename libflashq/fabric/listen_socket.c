/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the socket of a listener. tcp: bind and listen. shm: a lock file beside the
 * socket is held with flock, so that two starts cannot race; a socket that nobody answers on is
 * stale and replaced; everything else that is in the way is an error that says what it is and
 * whose.
 */
#include "fabric/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/sock.h"

#define LOCK_TRIES      16
#define LOCK_PATH_BYTES (sizeof(((struct fq_endpoint *)0)->path) + 8)
#define BACKLOG         1024

static const char *user_name(uid_t uid, char *buffer, size_t bytes)
{
    char strings[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, strings, sizeof strings, &found) == 0 && found) {
        (void)snprintf(buffer, bytes, "user %s (uid %u)", entry.pw_name, (unsigned)uid);
    } else {
        (void)snprintf(buffer, bytes, "uid %u", (unsigned)uid);
    }
    return buffer;
}

static int refuse_foreign(const char *path, uid_t uid, struct fq_err *err)
{
    char who[128];
    return fq_err_set(err, FLASHQ_ERR_NOT_PERMITTED, "%s belongs to %s", path,
                      user_name(uid, who, sizeof who));
}

/* The folder a socket is to be in is made if its parent exists, as data.dir is. */
static int make_folder(const char *socket_path, struct fq_err *err)
{
    char folder[LOCK_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", socket_path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) {
        return 0;
    }
    *slash = '\0';
    if (mkdir(folder, 0755) == 0 || errno == EEXIST) {
        return 0;
    }
    int saved = errno;
    return access(folder, F_OK) == 0
               ? 0
               : fq_err_errno(err, fq_err_from_errno(saved), saved, "make %s", folder);
}

/* Opens and locks PATH.lock. The file may be removed by its last holder between our open and our
 * lock; then it is tried again with the new one. */
static int take_lock(const char *socket_path, struct fq_err *err)
{
    char path[LOCK_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.lock", socket_path);
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            struct stat st;
            int saved = errno;
            if (saved == EACCES && lstat(path, &st) == 0 && st.st_uid != geteuid()) {
                return refuse_foreign(path, st.st_uid, err);
            }
            return fq_err_errno(err, fq_err_from_errno(saved), saved, "%s", path);
        }
        int r;
        do {
            r = flock(fd, LOCK_EX | LOCK_NB);
        } while (r < 0 && errno == EINTR);
        if (r < 0) {
            close(fd);
            return fq_err_set(err, FLASHQ_ERR_EXISTS, "%s is in use by another process",
                              socket_path);
        }
        struct stat mine, there;
        if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev) {
            return fd;
        }
        close(fd);
    }
    return fq_err_set(err, FLASHQ_ERR_BUSY, "%s: cannot be locked", path);
}

static void drop_lock(const char *socket_path, int lock_fd)
{
    char path[LOCK_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.lock", socket_path);
    (void)unlink(path); /* while it is held, so nobody else's is removed */
    close(lock_fd);
}

/* Makes room at `path`: removes a stale socket, refuses everything else. */
static int clear_path(const char *path, const struct sockaddr_un *address, socklen_t length,
                      struct fq_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0) {
        return errno == ENOENT ? 0 : fq_err_errno(err, fq_err_from_errno(errno), errno, "%s", path);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "%s is there and is not a socket: not removed",
                          path);
    }
    if (st.st_uid != geteuid()) {
        return refuse_foreign(path, st.st_uid, err);
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "socket");
    }
    int r;
    do {
        r = connect(probe, (const struct sockaddr *)address, length);
    } while (r < 0 && errno == EINTR);
    bool is_stale = r < 0 && errno == ECONNREFUSED;
    close(probe);
    if (!is_stale) {
        return fq_err_set(err, FLASHQ_ERR_EXISTS, "%s is in use by another process", path);
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "remove the stale %s", path);
    }
    return 0;
}

static int bind_unix(int fd, const char *path, unsigned mode, struct fq_listen_socket *ret,
                     struct fq_err *err)
{
    struct sockaddr_un address;
    socklen_t length;
    if (!fq_sock_unix_address(path, &address, &length)) {
        return fq_err_set(err, FLASHQ_ERR_INVALID, "socket path \"%s\"", path);
    }
    int r = clear_path(path, &address, length, err);
    if (r < 0) {
        return r;
    }
    /* Linux takes a bound socket's mode from the descriptor, less the umask: never too open. */
    (void)fchmod(fd, mode);
    if (bind(fd, (const struct sockaddr *)&address, length) < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s", path);
    }
    struct stat st;
    if (chmod(path, mode) < 0 || lstat(path, &st) < 0 || listen(fd, BACKLOG) < 0) {
        r = fq_err_errno(err, fq_err_from_errno(errno), errno, "%s", path);
        (void)unlink(path);
        return r;
    }
    ret->dev = st.st_dev;
    ret->ino = st.st_ino;
    return 0;
}

static int open_unix(const struct fq_endpoint *endpoint, unsigned mode,
                     struct fq_listen_socket *ret, struct fq_err *err)
{
    int made = make_folder(endpoint->path, err);
    if (made < 0) {
        return made;
    }
    int lock_fd = take_lock(endpoint->path, err);
    if (lock_fd < 0) {
        return lock_fd;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? fq_err_errno(err, fq_err_from_errno(errno), errno, "socket")
                   : bind_unix(fd, endpoint->path, mode ? mode : 0600, ret, err);
    if (r < 0) {
        if (fd >= 0) {
            close(fd);
        }
        drop_lock(endpoint->path, lock_fd);
        return r;
    }
    ret->fd = fd;
    ret->lock_fd = lock_fd;
    return 0;
}

static int bind_tcp(const struct addrinfo *address, struct fq_endpoint *endpoint, int *ret_fd,
                    struct fq_err *err)
{
    char text[FQ_LIMIT_HOST_BYTES + 32];
    (void)fq_endpoint_format(endpoint, text, sizeof text);
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fq_err_errno(err, fq_err_from_errno(errno), errno, "%s", text);
    }
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    char port[16];
    if (bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) < 0 ||
        getnameinfo((struct sockaddr *)&bound, length, NULL, 0, port, sizeof port,
                    NI_NUMERICSERV) != 0) {
        int code = errno == EADDRINUSE ? FLASHQ_ERR_EXISTS : fq_err_from_errno(errno);
        code = fq_err_errno(err, code, errno, "listen on %s", text);
        close(fd);
        return code;
    }
    unsigned number = 0;
    for (const char *p = port; *p; p++) {
        number = number * 10 + (unsigned)(*p - '0');
    }
    endpoint->port = (uint16_t)number;
    *ret_fd = fd;
    return 0;
}

static int open_tcp(struct fq_endpoint *endpoint, struct fq_listen_socket *ret, struct fq_err *err)
{
    char port[16];
    (void)snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    int r = getaddrinfo(endpoint->host, port, &hints, &addresses);
    if (r != 0) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND, "listen on %s: %s", endpoint->host,
                          gai_strerror(r));
    }
    r = FLASHQ_ERR_FAILED;
    for (struct addrinfo *a = addresses; a && r < 0; a = a->ai_next) {
        r = bind_tcp(a, endpoint, &ret->fd, err);
    }
    freeaddrinfo(addresses);
    ret->lock_fd = -1;
    return r;
}

int fq_listen_socket_open(struct fq_endpoint *endpoint, unsigned mode, struct fq_listen_socket *ret,
                          struct fq_err *err)
{
    switch (endpoint->transport) {
    case FQ_TRANSPORT_SHM: return open_unix(endpoint, mode, ret, err);
    case FQ_TRANSPORT_AUTO: endpoint->transport = FQ_TRANSPORT_TCP; /* fall through */
    case FQ_TRANSPORT_TCP: return open_tcp(endpoint, ret, err);
    case FQ_TRANSPORT_VERBS: break;
    }
    return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "transport %s is not in this build",
                      fq_transport_name(endpoint->transport));
}

void fq_listen_socket_close(struct fq_listen_socket *listening, const struct fq_endpoint *endpoint,
                            bool is_child)
{
    if (endpoint->transport == FQ_TRANSPORT_SHM && !is_child) {
        struct stat st;
        if (lstat(endpoint->path, &st) == 0 && st.st_dev == listening->dev &&
            st.st_ino == listening->ino) {
            (void)unlink(endpoint->path);
        }
        drop_lock(endpoint->path, listening->lock_fd);
    } else if (listening->lock_fd >= 0) {
        close(listening->lock_fd);
    }
    close(listening->fd);
}
