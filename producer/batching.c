/* SPDX-License-Identifier: Apache-2.0 */
/* The batching policy; see batching.h. Pure. */
#include "producer/batching.h"

bool fq_batching_sends(const struct fq_batching_question *question)
{
    if (question->batch_bytes == 0 || question->slot_in_flight >= question->max_in_flight) {
        return false;
    }
    if (question->is_hurried) {
        return true;
    }
    if (question->age_us < question->linger_us) {
        return false;
    }
    return question->is_fixed || question->in_flight == 0 || question->has_waited ||
           (question->batch_bytes >= question->wanted_bytes &&
            question->in_flight < question->wanted_in_flight);
}
