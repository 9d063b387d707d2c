/* SPDX-License-Identifier: Apache-2.0 */
/* The hub of one consumer on one link; see hub.h. Fails for want of memory only. Thread: any, under the
 * client's lock. */
#include "consumer/hub.h"

#include <stdlib.h>

#include "consumer/consumer.h"

static struct fq_hub *hub_of_user(struct fq_link_user *user)
{
    return fq_chain_item(user, struct fq_hub, user);
}

static void free_if_unused(struct fq_hub *hub)
{
    if (fq_chain_is_empty(&hub->readers) && fq_chain_is_empty(&hub->fetches)) {
        fq_link_remove_user(&hub->user);
        fq_idmap_fini(&hub->ids);
        free(hub);
    }
}

static void on_up(struct fq_link_user *user)
{
    struct fq_hub *hub = hub_of_user(user);
    for (struct fq_chain *at = hub->readers.next, *next; at != &hub->readers; at = next) {
        next = at->next;
        fq_pread_link_up(fq_chain_item(at, struct fq_pread, hub_node));
    }
}

static void on_down(struct fq_link_user *user, int code, const char *text)
{
    struct fq_hub *hub = hub_of_user(user);
    while (!fq_chain_is_empty(&hub->fetches)) {
        fq_fetch_lost(fq_chain_item(hub->fetches.next, struct fq_fetch, node));
    }
    fq_idmap_clear(&hub->ids);
    for (struct fq_chain *at = hub->readers.next, *next; at != &hub->readers; at = next) {
        next = at->next;
        fq_pread_link_down(fq_chain_item(at, struct fq_pread, hub_node), code, text);
    }
    free_if_unused(hub);
}

static bool on_notify(struct fq_link_user *user, uint32_t imm)
{
    struct fq_pread *reader = fq_idmap_get(&hub_of_user(user)->ids, imm);
    if (reader) {
        fq_pread_notified(reader);
    }
    return reader != NULL;
}

static bool on_message(struct fq_link_user *user, const struct fq_msg *msg)
{
    struct fq_hub *hub = hub_of_user(user);
    struct fq_segment_retiring retiring;
    struct fq_reader_reset reset;
    struct fq_push_stopped stopped;
    struct fq_pread *reader = NULL;
    if (msg->type == FQ_MSG_SEGMENT_RETIRING && fq_decode_segment_retiring(msg, &retiring, NULL) == 0) {
        reader = fq_idmap_get(&hub->ids, retiring.reader);
        if (reader) {
            fq_pread_retiring(reader, &retiring);
        }
    } else if (msg->type == FQ_MSG_READER_RESET && fq_decode_reader_reset(msg, &reset, NULL) == 0) {
        reader = fq_idmap_get(&hub->ids, reset.reader);
        if (reader) {
            fq_pread_reset(reader, &reset);
        }
    } else if (msg->type == FQ_MSG_PUSH_STOPPED && fq_decode_push_stopped(msg, &stopped, NULL) == 0) {
        reader = fq_idmap_get(&hub->ids, stopped.reader);
        if (reader) {
            fq_pushed_stopped(reader, &stopped);
        }
    }
    return reader != NULL;
}

static void on_writable(struct fq_link_user *user)
{
    struct fq_hub *hub = hub_of_user(user);
    for (struct fq_chain *at = hub->readers.next; at != &hub->readers; at = at->next) {
        fq_consumer_busy(hub->consumer, fq_chain_item(at, struct fq_pread, hub_node));
    }
}

static const struct fq_link_user_ops hub_ops = {.on_up = on_up, .on_down = on_down,
                                                .on_notify = on_notify, .on_message = on_message,
                                                .on_writable = on_writable};

int fq_hub_of(struct fq_consumer *consumer, struct fq_link *link, struct fq_hub **ret)
{
    for (struct fq_chain *at = link->users.next; at != &link->users; at = at->next) {
        struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
        if (user->ops == &hub_ops && hub_of_user(user)->consumer == consumer) {
            *ret = hub_of_user(user);
            return 0;
        }
    }
    struct fq_hub *hub = calloc(1, sizeof *hub);
    if (!hub) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    hub->user.ops = &hub_ops;
    hub->consumer = consumer;
    fq_chain_init(&hub->readers);
    fq_chain_init(&hub->fetches);
    fq_link_add_user(link, &hub->user);
    *ret = hub;
    return 0;
}

void fq_hub_join(struct fq_hub *hub, struct fq_pread *reader)
{
    reader->hub = hub;
    fq_chain_append(&hub->readers, &reader->hub_node);
}

void fq_hub_leave(struct fq_pread *reader)
{
    struct fq_hub *hub = reader->hub;
    if (hub) {
        fq_idmap_remove(&hub->ids, reader->id, reader);
        fq_chain_remove(&reader->hub_node);
        reader->hub = NULL;
        free_if_unused(hub);
    }
}

void fq_hubs_forget(struct fq_consumer *consumer)
{
    struct fq_engine *engine = consumer->engine;
    for (struct fq_chain *l = engine->links.next; l != &engine->links; l = l->next) {
        struct fq_link *link = fq_chain_item(l, struct fq_link, node);
        for (struct fq_chain *at = link->users.next; at != &link->users; at = at->next) {
            struct fq_link_user *user = fq_chain_item(at, struct fq_link_user, node);
            struct fq_hub *hub = user->ops == &hub_ops ? hub_of_user(user) : NULL;
            if (!hub || hub->consumer != consumer) {
                continue;
            }
            hub->consumer = NULL;
            for (struct fq_chain *f = hub->fetches.next; f != &hub->fetches; f = f->next) {
                fq_chain_item(f, struct fq_fetch, node)->buffer->buffers = NULL;
            }
        }
    }
}

void fq_hub_fetch_gone(struct fq_hub *hub)
{
    free_if_unused(hub);
}

void fq_hub_add_fetch(struct fq_hub *hub, struct fq_chain *node)
{
    fq_chain_append(&hub->fetches, node);
}
