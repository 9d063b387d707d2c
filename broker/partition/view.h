/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view line: 64 bytes that readers take with one-sided reads. One writer (the shard), any
 * number of readers in other processes, no lock.
 */
#ifndef FQ_PARTITION_VIEW_H
#define FQ_PARTITION_VIEW_H

#include "wire/protocol.h"

/* Gives *view the next version and its checksum, and stores it at `line`. Readers may see any
 * mixture of the words of two publications; the checksum tells them (they read again). */
void fq_view_publish(struct fq_view *line, struct fq_view *view);

#endif
