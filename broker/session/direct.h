/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of append=direct topics (PROTOCOL.md, 2.6 and 3.6): one producer at a time per partition is
 * lent the log's own memory. For the files of this folder only; see direct.c.
 */
#ifndef FQ_SESSION_DIRECT_H
#define FQ_SESSION_DIRECT_H

#include "session/session_internal.h"

/* Whether the slot that `open` asks for may be had, in its mode: INVALID, UNSUPPORTED, EXCLUSIVE.
 * When it returns 0 nobody holds the partition (any more). */
int fq_direct_check_open(struct fq_session *session, struct fq_hosted *hosted,
                         const struct fq_producer_open *open, struct fq_err *err);
/* The new slot, linked to its partition, holds it from now on. On an error it does not. */
int fq_direct_begin(struct fq_slot *slot, struct fq_err *err);
/* Announces the first windows, once PRODUCER_OPEN is answered. Staged slots: nothing to do, as with
 * all that follow but on_notify. */
void fq_direct_announce(struct fq_slot *slot);
/* A notify for a direct slot, which may be closed by now: it is late then, and only answered. */
void fq_direct_on_notify(struct fq_session *session, uint32_t handle);
/* Takes the log's memory back, and fails the slot. What is under way from the client is thrown
 * away. Once. */
void fq_direct_revoke(struct fq_slot *slot, int reason);
/* The slot is being closed: its windows go. */
void fq_direct_close(struct fq_slot *slot);
/* Grants what had to wait for a segment; returns how many windows. */
unsigned fq_direct_step(struct fq_session *session);

#endif
