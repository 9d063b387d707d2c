/* SPDX-License-Identifier: Apache-2.0 */
/* Between link.c (the connection) and session.c (what is said over it). */
#ifndef FQ_CLIENT_LINK_INTERNAL_H
#define FQ_CLIENT_LINK_INTERNAL_H

#include "client/link.h"

/* link.c */
void fq_link_set_state(struct fq_link *link, enum fq_link_state state);
/* Tells the users (in UP) and lets go of the connection; the state is the caller's business. */
void fq_link_drop_connection(struct fq_link *link, int code, const char *text);

/* session.c */
/* CONNECTED came: asks for the session. */
void fq_link_open_session(struct fq_link *link, const struct fq_event *event);
/* A message came. */
void fq_link_message(struct fq_link *link, const struct fq_event *event);

#endif
