/* SPDX-License-Identifier: Apache-2.0 */
/* Built without libsystemd: the `ready` line on stderr is all there is. */
#include "host.h"

void fq_host_notify_ready(const char *status)
{
    (void)status;
}

void fq_host_notify_stopping(void)
{
}
