/* SPDX-License-Identifier: Apache-2.0 */
/* What flashqd asks of its host: limits of the process, the boot id, the service manager. */
#ifndef FQ_BROKER_HOST_H
#define FQ_BROKER_HOST_H

#include "base/error.h"
#include "wire/protocol.h"

/* Raises the limit on open files to what is allowed, ignores SIGPIPE, and logs the limits that
 * bound how many segments and connections there can be. */
void fq_host_prepare(void);

/* The kernel's boot id: the same for all processes of one boot of one host. */
struct fq_uuid fq_host_boot_id(void);

/* host_systemd.c, or host_systemd_absent.c: tells the service manager, if one waits for it. */
void fq_host_notify_ready(const char *status);
void fq_host_notify_stopping(void);

#endif
