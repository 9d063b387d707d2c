/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked lists. A list head and an unlinked node point at themselves. */
#ifndef FQ_FABRIC_LIST_H
#define FQ_FABRIC_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct fq_list {
    struct fq_list *prev, *next;
};

#define fq_list_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void fq_list_init(struct fq_list *node)
{
    node->prev = node->next = node;
}

static inline bool fq_list_is_empty(const struct fq_list *head)
{
    return head->next == head;
}

/* Also fine for a node that is in no list. */
static inline void fq_list_remove(struct fq_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    fq_list_init(node);
}

/* Moves `node` to the end of the list, from whatever list it is in. */
static inline void fq_list_append(struct fq_list *head, struct fq_list *node)
{
    fq_list_remove(node);
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

#endif
