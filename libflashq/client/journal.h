/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client has to tell a person, kept until the application asks (flashq_client_log_poll): nothing is written
 * anywhere, nobody is called. The newest FQ_JOURNAL_ENTRIES are kept; older ones are dropped and counted.
 * Thread: any, under the client's lock. Not for the path of a record.
 */
#ifndef FQ_CLIENT_JOURNAL_H
#define FQ_CLIENT_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flashq/flashq.h"

#define FQ_JOURNAL_ENTRIES 256

struct fq_journal {
    int level;                /* enum flashq_log_level; 0: off */
    flashq_log_entry *items;  /* a ring; made with the first entry */
    size_t first, count;
    uint64_t dropped;         /* since the last poll */
};

void fq_journal_fini(struct fq_journal *journal);
static inline bool fq_journal_wants(const struct fq_journal *journal, int level)
{
    return level <= journal->level;
}
/* An entry that is not wanted costs a comparison; one that finds no memory is counted as dropped. */
void fq_journal_add(struct fq_journal *journal, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t fq_journal_take(struct fq_journal *journal, flashq_log_entry *ret, size_t max);

#endif
