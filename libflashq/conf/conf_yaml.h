/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file into a struct through a table of keys. The only door to libyaml.
 *
 * Keys may be dotted (`log.segment.bytes: 64MiB`), nested (`log: {segment: {bytes: 64MiB}}`), or
 * both. A key given twice, a list, an anchor, a tag or a second document is an error: a
 * configuration that needs them says something the table cannot hold. An empty document changes
 * nothing.
 */
#ifndef FQ_CONF_CONF_YAML_H
#define FQ_CONF_CONF_YAML_H

#include <stddef.h>

#include "conf/conf.h"

#define FQ_CONF_FILE_BYTES_MAX (1u << 20)

/* Fields not named in the file keep their values. After an error the struct may be partly changed.
 * `name` stands for the file in messages. */
int fq_conf_load_bytes(const struct fq_conf_table *table, void *config, const char *name,
                       const void *bytes, size_t length, struct fq_err *err);
int fq_conf_load_file(const struct fq_conf_table *table, void *config, const char *path,
                      struct fq_err *err);

#endif
