/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the pool: what pool.c has for pool_supply.c. The housekeeper's thread only. */
#ifndef FQ_STORAGE_POOL_IMPL_H
#define FQ_STORAGE_POOL_IMPL_H

#include "storage/store_impl.h"

#define FQ_POOL_FAULT_BYTES (16u << 20) /* at a time: other jobs go in between */

void fq_pool_path(const struct fq_store *store, uint64_t number, char out[FQ_PATH_BYTES]);
void fq_pool_folder(const struct fq_store *store, char out[FQ_PATH_BYTES]);
/* Takes over the caller's reference on `file` (NULL: not opened yet); NULL: no memory. */
struct fq_pool_file *fq_pool_add(struct fq_store *store, struct fq_segfile *file, uint64_t bytes,
                                 uint64_t number, bool is_ready);
/* Opens and faults in a file that was found at start; one that cannot be opened leaves the pool. */
int fq_pool_adopt(struct fq_store *store, struct fq_pool_file *entry);
void fq_pool_remove(struct fq_store *store, struct fq_pool_file *entry); /* from the list only */
void fq_pool_drop(struct fq_store *store, struct fq_pool_file *entry);   /* and unlinks it */
/* Would one more file of this size be of use? */
bool fq_pool_is_kept(struct fq_store *store, uint64_t bytes);

/* --- pool_make.c ------------------------------------------------------------------------------ */
/* A new file in the pool, which has its pages still before it. NO_SPACE leaves nothing. */
int fq_pool_begin(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                  struct fq_err *err);
/* A piece of what is left to do on a file of the pool: `is_ready` at its end. A file on which it
 * fails is dropped. */
int fq_pool_make_piece(struct fq_store *store, struct fq_pool_file *entry, struct fq_err *err);
/* How much that is, in bytes to zero; 0: it is ready. */
uint64_t fq_pool_left(const struct fq_pool_file *entry);
/* FREE -> PREPARED, durably, of a segment that lies beside the partition it had a life in: only
 * what a life begins with is blank. */
int fq_pool_prepare_former(struct fq_segment *segment);

/* --- pool_demand.c ---------------------------------------------------------------------------- */
void fq_pool_set_floor(struct fq_store *store);
/* A log took a segment of `bytes` and will want one of `after`. */
void fq_pool_note_demand(struct fq_store *store, uint64_t bytes, uint64_t after);
uint64_t fq_pool_wanted(struct fq_store *store, uint64_t bytes);    /* so many are to be there */
uint64_t fq_pool_kept_most(struct fq_store *store, uint64_t bytes); /* more are dropped */
bool fq_pool_is_quiet(struct fq_store *store, uint64_t bytes);      /* nobody asked of late */
void fq_pool_tick(struct fq_store *store);

#endif
