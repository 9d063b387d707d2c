/* SPDX-License-Identifier: Apache-2.0 */
/* Built instead of persist_pmem.c where libpmem is missing: nothing is on DAX, forcing is an error.
 */
#include "storage/persist.h"

int fq_persist_pmem_create(struct fq_persist **ret, struct fq_err *err)
{
    (void)ret;
    return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED, "flush pmem: built without libpmem");
}

int fq_persist_pmem_probe(const char *dir)
{
    (void)dir;
    return 0;
}
