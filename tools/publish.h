/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending records and accounting for every one of them: what `pub` and `replay --into` share. The
 * producer's queue bounds the memory; sending waits for room. A record counts as delivered only
 * when the broker acknowledged it.
 */
#ifndef FQ_TOOLS_PUBLISH_H
#define FQ_TOOLS_PUBLISH_H

#include "tools/cli.h"
#include "tools/record.h"

struct fq_publish {
    struct fq_cli *cli;
    const char *topic;
    bool has_report;   /* one JSON line per acknowledged record on standard output */
    double rate;       /* records a second; 0: as fast as they go */

    flashq_producer *producer;
    uint64_t taken;    /* records given to fq_publish_send */
    uint64_t failed;
    int first_error;
    char first_text[FQ_ERRTEXT_BYTES];
    int64_t started_ns;
    uint64_t settled;  /* acknowledged or given up when last looked */
    int64_t progress_ns; /* when that last changed */
};

/* cli is connected, the client's key `reports` is set. 0 or an exit code, having complained. */
int fq_publish_open(struct fq_publish *publish);
/* 0: go on (the record may have been refused: counted); else stop: nothing can be sent any more. */
int fq_publish_send(struct fq_publish *publish, const struct fq_rec *rec);
/* Counts a record that never came to be sent (unreadable input); the text is the reason. */
void fq_publish_refuse(struct fq_publish *publish, const char *text);
/* Takes the reports that are there. */
void fq_publish_poll(struct fq_publish *publish);
/* Flushes, closes, tells; returns the exit code. */
int fq_publish_finish(struct fq_publish *publish);

#endif
