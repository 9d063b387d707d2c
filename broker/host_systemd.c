/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness through libsystemd; does nothing where no service manager asked. */
#include <systemd/sd-daemon.h>

#include "host.h"

void fq_host_notify_ready(const char *status)
{
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void fq_host_notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}
