/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked chains. A chain and a link that is in none point at themselves. */
#ifndef FQ_SESSION_CHAIN_H
#define FQ_SESSION_CHAIN_H

#include <stdbool.h>
#include <stddef.h>

struct fq_chain {
    struct fq_chain *prev, *next;
};

#define fq_chain_item(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void fq_chain_init(struct fq_chain *chain)
{
    chain->prev = chain->next = chain;
}

/* Of a link: it is in no chain. */
static inline bool fq_chain_is_empty(const struct fq_chain *chain)
{
    return chain->next == chain;
}

/* Also fine for a link that is in none. */
static inline void fq_chain_remove(struct fq_chain *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    fq_chain_init(link);
}

/* Moves the link to the end of the chain, from whichever it is in. */
static inline void fq_chain_append(struct fq_chain *chain, struct fq_chain *link)
{
    fq_chain_remove(link);
    link->prev = chain->prev;
    link->next = chain;
    chain->prev->next = link;
    chain->prev = link;
}

/* Moves all of `from` to the end of the chain. */
static inline void fq_chain_append_all(struct fq_chain *chain, struct fq_chain *from)
{
    if (!fq_chain_is_empty(from)) {
        from->next->prev = chain->prev;
        chain->prev->next = from->next;
        from->prev->next = chain;
        chain->prev = from->prev;
        fq_chain_init(from);
    }
}

#endif
