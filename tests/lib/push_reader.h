/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subscriber that believes nothing: takes what a push puts into its ring, byte by byte as the head
 * says, and keeps all of it, to be compared with the log itself.
 */
#ifndef FQ_TESTS_PUSH_READER_H
#define FQ_TESTS_PUSH_READER_H

#include "raw_client.h"

struct push_reader {
    struct raw_client *c;
    struct raw_push push;
    uint64_t ring_bytes;
    uint8_t *bytes; /* all that came, from the push's first byte on */
    uint64_t seen, capacity;
};

/* Opens a reader and a push on it; dies when refused. */
void push_reader_open(struct push_reader *r, struct raw_client *c, const struct fq_uuid *topic,
                      uint32_t partition, uint32_t line, int64_t offset, uint64_t ring_bytes);
/* Frees; the push itself is the connection's to end. */
void push_reader_end(struct push_reader *r);
/* Takes what the head tells of; returns how much that was. Dies when it says what cannot be. */
uint64_t push_reader_take(struct push_reader *r);
/* Gives credit for all but `keep` of the bytes taken. */
void push_reader_credit(struct push_reader *r, uint64_t keep);
/* Takes and gives credit until so many bytes have come. */
void push_reader_until(struct push_reader *r, uint64_t bytes);

/* The log from the batch that holds `offset` to the end, read through segment windows by a client
 * over shm. The caller's to free. */
uint8_t *raw_log_bytes(struct raw_client *c, const struct fq_uuid *topic, uint32_t partition,
                       int64_t offset, uint64_t *ret_bytes);

#endif
