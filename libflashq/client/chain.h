/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A circular doubly linked list whose nodes live inside what they link. A chain head is a node that
 * belongs to nothing; an unlinked node points at itself. Nothing allocates, nothing fails.
 */
#ifndef FQ_CLIENT_CHAIN_H
#define FQ_CLIENT_CHAIN_H

#include <stdbool.h>
#include <stddef.h>

struct fq_chain {
    struct fq_chain *prev, *next;
};

/* The struct of `type` whose member `member` is the node at `at`. */
#define fq_chain_item(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

static inline void fq_chain_init(struct fq_chain *head)
{
    head->prev = head->next = head;
}

static inline bool fq_chain_is_empty(const struct fq_chain *head)
{
    return head->next == head;
}

static inline void fq_chain_insert_after(struct fq_chain *at, struct fq_chain *node)
{
    node->prev = at;
    node->next = at->next;
    at->next->prev = node;
    at->next = node;
}

static inline void fq_chain_append(struct fq_chain *head, struct fq_chain *node)
{
    fq_chain_insert_after(head->prev, node);
}

/* Fine for a node that is in no chain but was initialised. */
static inline void fq_chain_remove(struct fq_chain *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = node;
}

/* Moves all nodes of `from` to the front of `to`, in their order. */
static inline void fq_chain_splice_front(struct fq_chain *to, struct fq_chain *from)
{
    if (!fq_chain_is_empty(from)) {
        from->prev->next = to->next;
        to->next->prev = from->prev;
        from->next->prev = to;
        to->next = from->next;
        fq_chain_init(from);
    }
}

#endif
