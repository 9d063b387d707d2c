/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric that misbehaves by seed: a decorator around any back end, with the same interface. What
 * it does is what networks, NICs and peers do; it never breaks a promise that a fabric makes.
 */
#ifndef FQ_FABRIC_FAULTY_H
#define FQ_FABRIC_FAULTY_H

#include "fabric/fabric.h"

#define FQ_FAULT_CERTAIN 1000000u

/* Probabilities are per million (FQ_FAULT_CERTAIN: always). All zero: a plain pass-through. */
struct fq_fault_plan {
    uint64_t seed;
    uint32_t drop;        /* per operation: the connection breaks (UNREACHABLE) instead */
    uint32_t late_op;     /* per operation: it is held back for some polls, later ones behind it */
    uint32_t torn_write;  /* per write: its bytes land in several parts, some polls apart */
    uint32_t delay_event; /* per event: it and those after it come some polls later */
    uint32_t key_refused; /* per write or read: refused by the peer, breaks (NOT_PERMITTED) */
    uint32_t delay_polls_max; /* how long "some polls" is at most; 0: 8 */
    bool borrows; /* what is held back keeps no reference on its region, as a NIC does not: the bytes
                     are there because the poster keeps them until COMPLETED, or they are not */
};

struct fq_fault_counts {
    uint64_t dropped, late, torn, delayed, refused;
};

int fq_fabric_faulty_create(enum fq_transport inner, const struct fq_fabric_params *params,
                            const struct fq_fault_plan *plan, struct fq_fabric **ret,
                            struct fq_err *err);
/* Changes the plan from now on (the seed is not looked at again). */
void fq_fabric_faulty_set_plan(struct fq_fabric *fabric, const struct fq_fault_plan *plan);
void fq_fabric_faulty_counts(const struct fq_fabric *fabric, struct fq_fault_counts *ret);

#endif
