/* SPDX-License-Identifier: Apache-2.0 */
/* What both implementations of meta.h have in common above the ops table. */
#include "storage/meta.h"

#include <string.h>

struct prefix_search {
    const struct fq_uuid *topic_id;
    uint32_t partition; /* UINT32_MAX: any */
    struct fq_meta_key found;
    bool is_found;
};

static int take_if_prefix(void *context, const struct fq_meta_key *key, const void *value,
                          size_t length)
{
    (void)value;
    (void)length;
    struct prefix_search *search = context;
    search->found = *key;
    search->is_found = memcmp(&key->topic_id, search->topic_id, sizeof key->topic_id) == 0 &&
                       (search->partition == UINT32_MAX || key->partition == search->partition);
    return 1;
}

int fq_meta_remove_all(struct fq_meta *meta, enum fq_meta_table table,
                       const struct fq_uuid *topic_id, uint32_t partition)
{
    struct fq_meta_key from = {.topic_id = *topic_id,
                               .partition = partition == UINT32_MAX ? 0 : partition};
    for (;;) {
        struct prefix_search search = {.topic_id = topic_id, .partition = partition};
        int r = meta->ops->visit(meta, table, &from, take_if_prefix, &search);
        if (r < 0 || !search.is_found) {
            return r < 0 ? r : 0;
        }
        from = search.found;
        r = meta->ops->remove(meta, table, &from);
        if (r < 0) {
            return r;
        }
    }
}
