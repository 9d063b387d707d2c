/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of entries; see journal.h. Fails only by dropping. */
#include "client/journal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

void fq_journal_fini(struct fq_journal *journal)
{
    free(journal->items);
    *journal = (struct fq_journal){0};
}

static flashq_log_entry *place(struct fq_journal *journal)
{
    if (!journal->items) {
        journal->items = calloc(FQ_JOURNAL_ENTRIES, sizeof *journal->items);
    }
    if (!journal->items) {
        journal->dropped++;
        return NULL;
    }
    if (journal->count == FQ_JOURNAL_ENTRIES) {
        journal->first = (journal->first + 1) % FQ_JOURNAL_ENTRIES;
        journal->count--;
        journal->dropped++;
    }
    return &journal->items[(journal->first + journal->count++) % FQ_JOURNAL_ENTRIES];
}

/* Brokers have a say in the words: nothing in them is for a terminal to obey, or begins another line. */
static void keep_to_one_line(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 0x7f) {
            *text = '?';
        }
    }
}

void fq_journal_add(struct fq_journal *journal, int level, const char *format, ...)
{
    flashq_log_entry *entry = fq_journal_wants(journal, level) ? place(journal) : NULL;
    if (!entry) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(entry->text, sizeof entry->text, format, args);
    va_end(args);
    keep_to_one_line(entry->text);
    entry->struct_bytes = sizeof *entry;
    entry->level = level;
    entry->timestamp_ms = fq_wall_ms();
    entry->dropped = 0;
}

size_t fq_journal_take(struct fq_journal *journal, flashq_log_entry *ret, size_t max)
{
    size_t taken = 0;
    for (; taken < max && journal->count > 0; taken++) {
        ret[taken] = journal->items[journal->first];
        journal->first = (journal->first + 1) % FQ_JOURNAL_ENTRIES;
        journal->count--;
    }
    if (taken > 0) {
        ret[0].dropped = journal->dropped;
        journal->dropped = 0;
    }
    return taken;
}
