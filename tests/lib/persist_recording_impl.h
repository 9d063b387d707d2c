/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the recorder: what persist_recording.c keeps and persist_recording_states.c makes states
 * of. */
#ifndef FQ_TESTS_PERSIST_RECORDING_IMPL_H
#define FQ_TESTS_PERSIST_RECORDING_IMPL_H

#include "persist_recording.h"

#define FILES_MAX    512u
#define FOLDERS_MAX  64u
#define NAMES_MAX    256u
#define SIZE_UNIT    UINT64_MAX
#define HEADER_BYTES 4096u

struct rfile {
    char *path;         /* as the process sees it; NULL: unlinked */
    char *durable_path; /* as the medium has it; NULL: not there */
    int fd;
    uint8_t *map;     /* what the process sees */
    uint8_t *durable; /* what the medium is guaranteed to hold */
    uint64_t bytes;
    bool is_size_durable;
    bool *is_pending; /* per unit */
    bool *is_late;    /* RECORDING_HEADER_FIRST: skipped one drain */
    bool *is_stray;   /* pending, stored by somebody else and not written back: no drain helps */
};

struct unit {
    struct rfile *file;
    uint64_t index;
};

enum name_kind { NAME_CREATE, NAME_RENAME, NAME_UNLINK, NAME_MKDIR };

struct name_op {
    enum name_kind kind;
    struct rfile *file; /* CREATE */
    char *from, *to;
};

struct recording {
    struct fq_persist persist; /* first: ops get this */
    char *root;
    enum recording_model model;
    enum recording_fault fault;
    uint64_t unit_bytes;
    struct rfile *files[FILES_MAX];
    size_t files_count;
    char *folders[FOLDERS_MAX]; /* durable ones below root */
    size_t folders_count;
    struct unit *units;
    size_t units_count, units_capacity;
    struct name_op names[NAMES_MAX];
    size_t names_count;
    void (*hook)(void *context);
    void *hook_context;
    bool is_in_hook;
    uint64_t streamed_bytes; /* written by stream */
};

/* Which files and folders there are, under which names. */
struct namespace
{
    char *paths[FILES_MAX]; /* of files[i]; NULL: not there */
    char *folders[FOLDERS_MAX];
    size_t folders_count;
};

/* Says what and why, and aborts. */
_Noreturn void recording_die(const char *what);
uint64_t recording_unit_length(const struct recording *r, const struct rfile *f, uint64_t index);
/* What the medium is guaranteed to have; one pending operation on top of it. */
void recording_names_load(const struct recording *r, struct namespace *n);
void recording_names_apply(struct recording *r, struct namespace *n, const struct name_op *op);
void recording_names_free(const struct recording *r, struct namespace *n);

#endif
