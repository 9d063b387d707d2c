/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the fabric's regions in tests of storage alone. */
#include <stdlib.h>

#include "fabric/fabric.h"

struct fq_region {
    int refs;
    void (*release)(void *context);
    void *context;
};

int fq_region_wrap_file(int fd, const void *base, size_t bytes, void (*release)(void *context),
                        void *context, struct fq_region **ret, struct fq_err *err)
{
    (void)fd;
    (void)base;
    (void)bytes;
    struct fq_region *region = calloc(1, sizeof *region);
    if (!region) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "no memory");
    }
    *region = (struct fq_region){1, release, context};
    *ret = region;
    return 0;
}

struct fq_region *fq_region_ref(struct fq_region *region)
{
    region->refs++;
    return region;
}

void fq_region_unref(struct fq_region *region)
{
    if (region && --region->refs == 0) {
        if (region->release) {
            region->release(region->context);
        }
        free(region);
    }
}
