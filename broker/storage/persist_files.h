/* SPDX-License-Identifier: Apache-2.0 */
/* What the persist implementations on a file system share: names, allocation, mapping. */
#ifndef FQ_STORAGE_PERSIST_FILES_H
#define FQ_STORAGE_PERSIST_FILES_H

#include "storage/persist.h"

/* A new file of `bytes`, every block allocated. On an error (EXISTS, NO_SPACE) nothing is left. */
int fq_file_create_allocated(const char *path, uint64_t bytes, int *ret_fd, struct fq_err *err);
/* The same without a block, then its blocks. */
int fq_file_create_sparse(const char *path, uint64_t bytes, int *ret_fd, struct fq_err *err);
int fq_file_allocate(int fd, uint64_t from, uint64_t to, struct fq_err *err);
/* Opens a regular file read-write; an empty one is CORRUPT (it cannot be mapped). */
int fq_file_open_whole(const char *path, int *ret_fd, uint64_t *ret_bytes, struct fq_err *err);
void fq_file_unmap_close(struct fq_pfile *f);
int fq_file_rename(struct fq_persist *p, const char *from, const char *to, struct fq_err *err);
int fq_file_unlink(struct fq_persist *p, const char *path, struct fq_err *err);
int fq_file_mkdir(struct fq_persist *p, const char *path, struct fq_err *err);
int fq_file_sync_dir(struct fq_persist *p, const char *dir, struct fq_err *err);

#endif
