/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the pool: what pool.c has for pool_supply.c. The housekeeper's thread only. */
#ifndef FQ_STORAGE_POOL_IMPL_H
#define FQ_STORAGE_POOL_IMPL_H

#include "storage/store_impl.h"

#define FQ_POOL_FAULT_BYTES (16u << 20) /* at a time: other jobs go in between */

void fq_pool_path(const struct fq_store *store, uint64_t number, char out[FQ_PATH_BYTES]);
void fq_pool_folder(const struct fq_store *store, char out[FQ_PATH_BYTES]);
/* FREE -> zero -> PREPARED, durably, each word after what it claims: a piece of the way; `is_ready`
 * at its end. */
int fq_pool_prepare_piece(struct fq_pool_file *entry);
/* Takes over the caller's reference on `file` (NULL: not opened yet); NULL: no memory. */
struct fq_pool_file *fq_pool_add(struct fq_store *store, struct fq_segfile *file, uint64_t bytes,
                                 uint64_t number, bool is_ready);
/* Opens and faults in a file that was found at start; one that cannot be opened leaves the pool. */
int fq_pool_adopt(struct fq_store *store, struct fq_pool_file *entry);
void fq_pool_remove(struct fq_store *store, struct fq_pool_file *entry); /* from the list only */
void fq_pool_drop(struct fq_store *store, struct fq_pool_file *entry);   /* and unlinks it */
/* A new file in the pool, ready. NO_SPACE leaves nothing. */
int fq_pool_create(struct fq_store *store, uint64_t bytes, struct fq_pool_file **ret,
                   struct fq_err *err);
void fq_pool_note_demand(struct fq_store *store, uint64_t bytes);
/* Would one more file of this size be of use? */
bool fq_pool_is_kept(struct fq_store *store, uint64_t bytes);

#endif
