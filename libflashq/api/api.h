/* SPDX-License-Identifier: Apache-2.0 */
/* What the public functions share: handles to inner structs and back, entering and leaving, error texts. */
#ifndef FQ_API_API_H
#define FQ_API_API_H

#include <string.h>

#include "client/engine.h"
#include "consumer/consumer.h"
#include "flashq/flashq.h"
#include "producer/producer.h"

struct flashq_client {
    struct fq_engine *engine;
};

static inline struct fq_producer *fq_api_producer(flashq_producer *producer)
{
    return (struct fq_producer *)(void *)producer;
}
static inline struct fq_consumer *fq_api_consumer(flashq_consumer *consumer)
{
    return (struct fq_consumer *)(void *)consumer;
}

/* Copies the text (a code without one gets its own words) and returns the code. */
int fq_api_give(const struct fq_err *err, int code, char *errtext, size_t errtext_bytes);

/* Enter a call on a client or one of its handles: 0, or the code to return. */
int fq_api_enter(flashq_client *client);
void fq_api_leave(flashq_client *client);
int fq_api_enter_member(struct fq_engine *engine, struct fq_member *member);
void fq_api_leave_member(struct fq_engine *engine, struct fq_member *member);

#endif
