/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer's presence on one link: finds the reader that a notify or a message is for, and keeps track of
 * reads that the transport has not completed, also after their consumer was closed.
 */
#ifndef FQ_CONSUMER_HUB_H
#define FQ_CONSUMER_HUB_H

#include "client/idmap.h"
#include "client/link.h"
#include "consumer/reader.h"

struct fq_hub {
    struct fq_link_user user;
    struct fq_consumer *consumer;  /* NULL: closed; the hub only waits for `fetches` */
    struct fq_chain readers;
    struct fq_chain fetches;
    struct fq_idmap ids;           /* reader number -> struct fq_pread */
};

/* The consumer's hub on a link, made on first use. */
int fq_hub_of(struct fq_consumer *consumer, struct fq_link *link, struct fq_hub **ret);
void fq_hub_join(struct fq_hub *hub, struct fq_pread *reader);
/* The last reader to leave frees the hub, once no fetch is under way. */
void fq_hub_leave(struct fq_pread *reader);
void fq_hub_add_fetch(struct fq_hub *hub, struct fq_chain *node);
/* A fetch that nobody wanted any more is done. */
void fq_hub_fetch_gone(struct fq_hub *hub);

/* The consumer is closing: its hubs that still wait for the transport live on without it. */
void fq_hubs_forget(struct fq_consumer *consumer);

static inline struct fq_link *fq_hub_link(const struct fq_hub *hub)
{
    return hub->user.link;
}

#endif
