/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/endpoint.h"

static void parses(const char *text, enum fq_transport transport, const char *where, int port,
                   const char *canonical)
{
    struct fq_endpoint endpoint;
    struct fq_err err = {0};
    char buffer[512];
    cr_assert_eq(fq_endpoint_parse(text, &endpoint, &err), 0, "%s: %s", text, err.text);
    cr_assert_eq(endpoint.transport, transport, "%s", text);
    if (transport == FQ_TRANSPORT_SHM) {
        cr_assert_str_eq(endpoint.path, where);
    } else {
        cr_assert_str_eq(endpoint.host, where, "%s", text);
        cr_assert_eq(endpoint.port, port, "%s", text);
    }
    cr_assert_str_eq(fq_endpoint_format(&endpoint, buffer, sizeof buffer), canonical);
    struct fq_endpoint again;
    cr_assert_eq(fq_endpoint_parse(buffer, &again, &err), 0, "%s", err.text);
    cr_assert_eq(memcmp(&again, &endpoint, sizeof again), 0, "%s", text);
}

Test(endpoint, all_spellings)
{
    parses("localhost", FQ_TRANSPORT_AUTO, "localhost", 9640, "localhost:9640");
    parses("h:1", FQ_TRANSPORT_AUTO, "h", 1, "h:1");
    parses("tcp:127.0.0.1:0", FQ_TRANSPORT_TCP, "127.0.0.1", 0, "tcp:127.0.0.1:0");
    parses("tcp:broker-1.example", FQ_TRANSPORT_TCP, "broker-1.example", 9640,
           "tcp:broker-1.example:9640");
    parses("rdma:10.0.0.1:65535", FQ_TRANSPORT_VERBS, "10.0.0.1", 65535, "rdma:10.0.0.1:65535");
    parses("tcp:[::1]:7", FQ_TRANSPORT_TCP, "::1", 7, "tcp:[::1]:7");
    parses("[fe80::1%eth0]", FQ_TRANSPORT_AUTO, "fe80::1%eth0", 9640, "[fe80::1%eth0]:9640");
    parses("::1", FQ_TRANSPORT_AUTO, "::1", 9640, "[::1]:9640");
    parses(" h:2 ", FQ_TRANSPORT_AUTO, "h", 2, "h:2");
    parses("shm:/run/flashq/flashq.sock", FQ_TRANSPORT_SHM, "/run/flashq/flashq.sock", 0,
           "shm:/run/flashq/flashq.sock");
    parses("shm:relative:with:colons", FQ_TRANSPORT_SHM, "relative:with:colons", 0,
           "shm:relative:with:colons");
}

static void refuses(const char *text, int code)
{
    struct fq_endpoint endpoint;
    struct fq_err err = {0};
    cr_assert_eq(fq_endpoint_parse(text, &endpoint, &err), code, "\"%s\"", text);
    cr_assert_neq(err.text[0], '\0', "\"%s\" says why", text);
}

Test(endpoint, what_is_not_one_is_refused_with_words)
{
    static const char *const wrong[] = {"",        " ",      ":1",         "h:",       "h:x",
                                        "h:65536", "h:-1",   "h: 1",       "h:000001", "h:1x",
                                        "[::1",    "[::1]x", "[]:1",       "tcp:",     "shm:",
                                        "a/b:1",   "a b",    "http://h:1", "h:\n1",    "\x80:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuses(wrong[i], FLASHQ_ERR_INVALID);
    }
    refuses(NULL, FLASHQ_ERR_INVALID);
    char host[FQ_LIMIT_HOST_BYTES + 2];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    refuses(host, FLASHQ_ERR_TOO_LARGE);
    char path[4 + 108 + 1] = "shm:";
    memset(path + 4, 'p', 108);
    path[4 + 108] = '\0';
    refuses(path, FLASHQ_ERR_TOO_LARGE);
    struct fq_endpoint endpoint;
    path[4 + 107] = '\0';
    cr_assert_eq(fq_endpoint_parse(path, &endpoint, NULL), 0, "107 bytes fit");
    host[FQ_LIMIT_HOST_BYTES] = '\0';
    cr_assert_eq(fq_endpoint_parse(host, &endpoint, NULL), 0, "255 bytes fit");
}

Test(endpoint, lists)
{
    struct fq_endpoint endpoints[3];
    struct fq_err err = {0};
    cr_assert_eq(fq_endpoint_parse_list("a:1, shm:/s,tcp:b", endpoints, 3, &err), 3);
    cr_assert_str_eq(endpoints[0].host, "a");
    cr_assert_str_eq(endpoints[1].path, "/s");
    cr_assert_str_eq(endpoints[2].host, "b");
    cr_assert_eq(fq_endpoint_parse_list("a", endpoints, 3, &err), 1);
    cr_assert_eq(fq_endpoint_parse_list("a,b,c,d", endpoints, 3, &err), FLASHQ_ERR_LIMIT);
    cr_assert_eq(fq_endpoint_parse_list("", endpoints, 3, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_endpoint_parse_list("a,", endpoints, 3, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_endpoint_parse_list("a,,b", endpoints, 3, &err), FLASHQ_ERR_INVALID);
    cr_assert_eq(fq_endpoint_parse_list(NULL, endpoints, 3, &err), FLASHQ_ERR_INVALID);
}

Test(endpoint, names_and_default_socket)
{
    char buffer[108];
    cr_assert_str_eq(fq_transport_name(FQ_TRANSPORT_AUTO), "auto");
    cr_assert_str_eq(fq_transport_name(FQ_TRANSPORT_SHM), "shm");
    cr_assert_str_eq(fq_transport_name(FQ_TRANSPORT_TCP), "tcp");
    cr_assert_str_eq(fq_transport_name(FQ_TRANSPORT_VERBS), "rdma");
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    cr_assert_str_eq(fq_endpoint_default_socket(buffer, sizeof buffer), "/run/user/7/flashq.sock");
    setenv("XDG_RUNTIME_DIR", "", 1);
    cr_assert_str_eq(fq_endpoint_default_socket(buffer, sizeof buffer), "/run/flashq/flashq.sock");
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert_str_eq(fq_endpoint_default_socket(buffer, sizeof buffer), "/run/flashq/flashq.sock");
}
