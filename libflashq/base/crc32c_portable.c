/* SPDX-License-Identifier: Apache-2.0 */
/* For machines without a file of their own: no instructions for CRC-32C are known here. */
#include "base/crc32c_impl.h"

const struct fq_crc32c_ops *fq_crc32c_machine_ops(void)
{
    return NULL;
}

const struct fq_crc32c_ops *fq_crc32c_wide_ops(const struct fq_crc32c_ops *machine_ops)
{
    (void)machine_ops;
    return NULL;
}
