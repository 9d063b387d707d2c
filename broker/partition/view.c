/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing a view: eight aligned words, the one with the checksum last. The release store pairs
 * with nothing a remote READ could promise (no order between the bytes of a read): over any fabric
 * it is the checksum, over `version`, that makes a torn line known. It is released all the same so
 * that a reader on this host that sees the new checksum word sees the rest.
 */
#include "partition/view.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/crc32c.h"

#define VIEW_WORDS (sizeof(struct fq_view) / sizeof(uint64_t))

_Static_assert(offsetof(struct fq_view, crc) == 60, "the checksum ends the line");

void fq_view_publish(struct fq_view *line, struct fq_view *view)
{
    assert(((uintptr_t)line & 63u) == 0);
    view->version++;
    view->reserved = 0;
    view->crc = fq_crc32c(0, view, offsetof(struct fq_view, crc));
    uint64_t words[VIEW_WORDS];
    memcpy(words, view, sizeof words);
    uint64_t *at = (uint64_t *)(void *)line;
    for (size_t i = 0; i + 1 < VIEW_WORDS; i++) {
        __atomic_store_n(&at[i], words[i], __ATOMIC_RELAXED);
    }
    __atomic_store_n(&at[VIEW_WORDS - 1], words[VIEW_WORDS - 1], __ATOMIC_RELEASE);
}
