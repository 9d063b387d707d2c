/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third implementation of the persist ops: keeps, beside what the process sees, what the medium
 * is guaranteed to hold, and can put every state that a power cut could leave into a folder.
 *
 * Memory model: stores since the last drain are pending, in units of 8 aligned bytes; any subset of
 * them may have reached the medium. A peer's stores stay pending until they are written back as
 * well. Disk model: writes since a file's last sync are pending, in units of one 512-byte sector.
 * Both: creating, renaming, unlinking and making folders are pending until the folder they happened
 * in is synced, each kept or lost by itself; a new file whose content was not synced may be there
 * with no bytes.
 *
 * Before each fence, sync and folder sync, and before a pending unit is overwritten with something
 * else, the hook is called: a crash point. One thread.
 */
#ifndef FQ_TESTS_PERSIST_RECORDING_H
#define FQ_TESTS_PERSIST_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "storage/persist.h"

enum recording_model { RECORDING_MEMORY, RECORDING_DISK };

/* Planted bugs: what the suite must find. They change what the recorder believes, not the product.
 */
enum recording_fault {
    RECORDING_SOUND = 0,
    RECORDING_NO_DATA_FENCE, /* a drain while nothing of a header is pending does nothing */
    RECORDING_HEADER_FIRST,  /* a drain makes headers durable, data only the drain after */
    RECORDING_SYNC_LIES,     /* sync says done and does nothing */
    RECORDING_DIR_SYNC_LIES, /* sync_dir likewise */
    RECORDING_NO_ZEROS,      /* zeroing data does nothing: former lives stay */
    RECORDING_NO_WRITE_BACK  /* what a peer stored is never written back */
};

struct recording;

/* `root` holds nothing yet, or files that count as durable as they are. */
struct recording *recording_create(const char *root, enum recording_model model,
                                   enum recording_fault fault);
void recording_destroy(struct recording *recording);
struct fq_persist *recording_persist(struct recording *recording);

/* Bytes that a peer stores into the file's mapping: until they are written back, no drain makes
 * them durable, and any of them may be so at any moment. A crash point. Memory only. */
void recording_peer_store(struct fq_pfile *pf, uint64_t pos, const void *src, size_t len);
/* How many bytes came by the stream slot so far. */
uint64_t recording_streamed_bytes(const struct recording *recording);

void recording_set_hook(struct recording *recording, void (*hook)(void *context), void *context);

/* Puts legal states of this moment into `folder` (made, and removed again, each time) and calls
 * `check`: every state while at most `exhaustive_max` units are pending, else `samples` of them.
 * Stops when check returns false, and returns false. *inout_states counts. */
bool recording_each_state(struct recording *recording, struct fq_prng *prng,
                          unsigned exhaustive_max, unsigned samples, const char *folder,
                          bool (*check)(void *context, const char *folder), void *context,
                          uint64_t *inout_states);
/* "3 words, 1 name": what is pending now. */
void recording_describe(const struct recording *recording, char *out, size_t out_bytes);

/* The same model without recording, for looking at a state. Freed by its destroy slot. */
struct fq_persist *recording_plain_create(enum recording_model model);

#endif
