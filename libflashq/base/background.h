/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread whose work is not waited for, on a machine where there may be no core for it alone.
 * Woken by a thread that is busy it does not take that thread's core, and a thread that wakes up
 * takes the core back from it at once, instead of after the share that the kernel gives out at a
 * time. It still gets its half of a core that two threads want: it comes later, not less. (A lower
 * priority would be less: where data waits for a segment, the segment would wait for the data.)
 */
#ifndef FQ_BASE_BACKGROUND_H
#define FQ_BASE_BACKGROUND_H

/* Of the calling thread. Needs no privilege. What the kernel does not know (slices: before
 * Linux 6.12) or refuses is left as it is. */
void fq_background_begin(void);

#endif
