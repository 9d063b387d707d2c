/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that answer requests on the housekeeper's thread: admin.c and admin_pages.c. */
#ifndef FQ_BROKER_ADMIN_H
#define FQ_BROKER_ADMIN_H

#include "housekeeper.h"

int fq_admin_find_topic(struct fq_housekeeper *hk, struct fq_str name, struct fq_topic **ret,
                        struct fq_err *err);

/* Fill the task's answer, or return an error. */
int fq_admin_metadata(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                      struct fq_err *err);
int fq_admin_info(struct fq_housekeeper *hk, struct fq_task *task, const struct fq_msg *msg,
                  struct fq_err *err);

#endif
