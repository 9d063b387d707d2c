/* SPDX-License-Identifier: Apache-2.0 */
/* Which partition a record goes to; see send.h. Fails only for a partition that does not exist. */
#include <stdio.h>

#include "base/murmur2.h"
#include "producer/send.h"

/* Records without a key stay with a partition until its batch went; then another one's turn comes, chosen at
 * random so that many producers spread. */
static struct fq_ppart *sticky(struct fq_producer *producer)
{
    struct fq_ppart *ppart = &producer->pparts[producer->sticky];
    if (!ppart->filling && !producer->sticky_is_new && producer->pparts_count > 1) {
        uint64_t others = (uint64_t)producer->pparts_count - 1;
        int32_t step = 1 + (int32_t)fq_prng_below(&producer->engine->prng, others);
        size_t block_bytes = ppart->block_bytes;
        producer->sticky = (int32_t)(((int64_t)producer->sticky + step) % producer->pparts_count);
        ppart = &producer->pparts[producer->sticky];
        if (ppart->block_bytes < block_bytes) {
            ppart->block_bytes = block_bytes; /* how large batches get depends on the records, not on whom they go to */
        }
    }
    producer->sticky_is_new = false;
    return ppart;
}

int fq_producer_choose(struct fq_producer *producer, const flashq_record *record,
                       struct fq_ppart **ret)
{
    if (record->partition >= 0 && record->partition < producer->pparts_count) {
        *ret = &producer->pparts[record->partition];
    } else if (record->partition != FLASHQ_PARTITION_ANY) {
        char text[400];
        (void)snprintf(text, sizeof text, "topic %s has partitions 0 to %d, no %d", producer->topic,
                       producer->pparts_count - 1, record->partition);
        fq_producer_note_error(producer, FLASHQ_ERR_NOT_FOUND, text);
        return FLASHQ_ERR_NOT_FOUND;
    } else if (record->key) {
        uint32_t hash = fq_murmur2(record->key, record->key_length) & 0x7fffffffu;
        *ret = &producer->pparts[hash % (uint32_t)producer->pparts_count];
    } else {
        *ret = sticky(producer);
    }
    return 0;
}
