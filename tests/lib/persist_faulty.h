/* SPDX-License-Identifier: Apache-2.0 */
/* A decorator of the persist ops of disks or of plain memory that fails on demand. */
#ifndef FQ_TESTS_PERSIST_FAULTY_H
#define FQ_TESTS_PERSIST_FAULTY_H

#include <stdatomic.h>

#include "storage/persist.h"

struct persist_faulty {
    struct fq_persist persist; /* first; its ops are `ops` */
    struct fq_persist_ops ops;
    struct fq_persist *inner;
    int fail_create; /* code that create returns; 0: works */
    int fail_write, fail_sync, fail_mkdir;
    int fail_sync_slowly; /* what the next sync returns, 100 ms after it began; the others work */
    _Atomic unsigned slow_syncs;
    unsigned creates;
    _Atomic unsigned syncs;
    unsigned begun;                 /* of syncs */
    void (*on_sync)(void *context); /* before each; NULL: nothing */
    void *context;
};

/* `inner` is used and destroyed with the decorator. */
void persist_faulty_init(struct persist_faulty *faulty, struct fq_persist *inner);
void persist_faulty_fini(struct persist_faulty *faulty);

#endif
