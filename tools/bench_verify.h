/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of flashq bench, and whether what came is what was sent. A record begins with a stamp (who sent
 * it, in which run, the how-manieth it is, when) and goes on with bytes that follow from the stamp, so a
 * receiver can tell each one that is missing, came twice, came late or is not what was sent, without
 * keeping any. Knows of no broker; memory is bounded (2 MiB a sender, and 8 bytes a sender and
 * partition). One thread a verifier.
 */
#ifndef FQ_TOOLS_BENCH_VERIFY_H
#define FQ_TOOLS_BENCH_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fq_bench_body {
    FQ_BENCH_BODY_SENDER, /* the same in every record of a sender: costs the sender nothing */
    FQ_BENCH_BODY_RECORD  /* of this record alone */
};

/* Every record of the bench begins with this where its size allows (little-endian as the CPU is). */
struct fq_bench_stamp {
    uint32_t seal;     /* of what follows */
    uint32_t run;      /* random, one a process */
    uint32_t client;
    uint32_t body;     /* enum fq_bench_body */
    uint64_t sequence; /* from 0, of this client in this run */
    int64_t sent_ns;   /* CLOCK_MONOTONIC of this host */
};
_Static_assert(sizeof(struct fq_bench_stamp) == 32, "stamp layout");

/* Sets the seal; fields are final. */
void fq_bench_seal(struct fq_bench_stamp *stamp);
/* Takes the stamp off a value; false: there is none, or it is not as it was sealed. */
bool fq_bench_read_stamp(const void *value, size_t length, struct fq_bench_stamp *ret);

/* Fills all of the value with what the records of a client have after their stamps. */
void fq_bench_fill(uint8_t *value, size_t size, uint32_t client);
/* The same for one record alone (FQ_BENCH_BODY_RECORD), what follows the stamp. */
void fq_bench_fill_record(uint8_t *value, size_t size, uint32_t client, uint64_t sequence);

struct fq_verify_counts {
    uint64_t records;    /* looked at */
    uint64_t missing;    /* never came, though later ones did */
    uint64_t duplicates; /* came before */
    uint64_t reordered;  /* came after a later one of the same partition */
    uint64_t corrupt;    /* not what the stamp says, or no record of the bench at all */
};

struct fq_verifier;
/* All records have `size` bytes. run: only records of it are looked at; 0: of all. is_from_start: the first
 * records of every sender can be expected, otherwise counting begins with those that come first. */
struct fq_verifier *fq_verifier_create(size_t size, uint32_t partitions, uint32_t run,
                                       bool is_from_start);
void fq_verifier_destroy(struct fq_verifier *verifier);
/* Looks at a record; returns what is wrong with it, or NULL. */
const char *fq_verifier_take(struct fq_verifier *verifier, uint32_t partition, const void *value,
                             size_t length);
/* All came that will, and was_all: every partition was read to its end (else only what no partition can
 * still bring is missing). Counts what is missing and forgets the senders: reading may begin anew. */
void fq_verifier_finish(struct fq_verifier *verifier, bool was_all);
const struct fq_verify_counts *fq_verifier_counts(const struct fq_verifier *verifier);
uint64_t fq_verify_faults(const struct fq_verify_counts *counts);
void fq_verify_add(struct fq_verify_counts *to, const struct fq_verify_counts *from);

#endif
