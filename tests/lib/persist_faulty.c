/* SPDX-License-Identifier: Apache-2.0 */
#include "persist_faulty.h"

#include <unistd.h>

static struct persist_faulty *of(struct fq_persist *p)
{
    return (struct persist_faulty *)(void *)p;
}

static int faulty_create(struct fq_persist *p, const char *path, uint64_t bytes,
                         struct fq_pfile *ret, struct fq_err *err)
{
    struct persist_faulty *f = of(p);
    f->creates++;
    return f->fail_create ? fq_err_set(err, f->fail_create, "create %s: planted", path)
                          : f->inner->ops->create(p, path, bytes, ret, err);
}

static int faulty_mkdir(struct fq_persist *p, const char *path, struct fq_err *err)
{
    struct persist_faulty *f = of(p);
    return f->fail_mkdir ? fq_err_set(err, f->fail_mkdir, "mkdir %s: planted", path)
                         : f->inner->ops->mkdir(p, path, err);
}

static int faulty_write(struct fq_pfile *pf, uint64_t pos, const void *src, size_t len)
{
    struct persist_faulty *f = of(pf->persist);
    return f->fail_write ? f->fail_write : f->inner->ops->write(pf, pos, src, len);
}

static int faulty_sync(struct fq_pfile *pf)
{
    struct persist_faulty *f = of(pf->persist);
    f->syncs++;
    if (f->on_sync) {
        f->on_sync(f->context);
    }
    int slow = f->fail_sync_slowly;
    if (slow != 0) {
        f->fail_sync_slowly = 0;
        atomic_fetch_add(&f->slow_syncs, 1);
        (void)usleep(100000);
        return slow;
    }
    return f->fail_sync ? f->fail_sync : f->inner->ops->sync(pf);
}

static void faulty_begin_sync(struct fq_pfile *pf)
{
    struct persist_faulty *f = of(pf->persist);
    f->begun++;
    if (f->inner->ops->begin_sync) {
        f->inner->ops->begin_sync(pf);
    }
}

void persist_faulty_init(struct persist_faulty *faulty, struct fq_persist *inner)
{
    *faulty = (struct persist_faulty){.inner = inner, .ops = *inner->ops};
    faulty->ops.create = faulty_create;
    faulty->ops.begin = NULL; /* whoever makes a file comes here */
    faulty->ops.grow = NULL;
    faulty->ops.mkdir = faulty_mkdir;
    faulty->ops.write = faulty_write;
    faulty->ops.sync = faulty_sync;
    faulty->ops.begin_sync = faulty_begin_sync;
    faulty->persist.ops = &faulty->ops;
}

void persist_faulty_fini(struct persist_faulty *faulty)
{
    faulty->inner->ops->destroy(faulty->inner);
}
