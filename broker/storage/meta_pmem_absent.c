/* SPDX-License-Identifier: Apache-2.0 */
/* Built instead of meta_pmem.c where libpmemobj is absent. */
#include "storage/meta.h"

int fq_meta_open_pmem(const char *path, size_t bytes, struct fq_meta **ret, struct fq_err *err)
{
    (void)bytes;
    (void)ret;
    return fq_err_set(err, FLASHQ_ERR_UNSUPPORTED,
                      "%s: this FlashQ was built without libpmemobj (meson option pmem)", path);
}
