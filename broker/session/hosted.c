/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See hosted.h. Happy path: find, open once, touch after each append, a round per step. A partition
 * that cannot be opened stays KNOWN and the reason goes to whoever asked; the next use tries again.
 * Lists have room for every open partition before it opens, so that rounds never allocate.
 */
#include "session/hosted.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "storage/log.h"

#define OFF_PATH_PAUSE_US      100000
#define OFF_PATH_PAUSE_BUSY_US 2000     /* while there is a backlog */
#define SWEEP_PAUSE_US         60000000 /* for what only time brings: the expiry of producers */
#define SNAPSHOT_LAG_BYTES     (UINT64_C(64) << 20)

/* ---- the table ------------------------------------------------------------------------------ */

int fq_hosted_table_init(struct fq_hosted_table *table, const struct fq_hosted_params *params)
{
    *table = (struct fq_hosted_table){
        .params = *params, .next_generation = 1, .next_sweep_us = INT64_MAX};
    table->scratch = malloc(params->batch_max_bytes);
    table->free_lines = calloc(params->views_count, sizeof *table->free_lines);
    if (!table->scratch || !table->free_lines) {
        free(table->scratch);
        free(table->free_lines);
        return FLASHQ_ERR_NO_MEMORY;
    }
    for (uint32_t line = params->views_count; line > 0; line--) {
        table->free_lines[table->free_lines_count++] = line - 1;
    }
    return 0;
}

static int compare_ids(const struct fq_uuid *a, const struct fq_uuid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

/* The index of the first topic whose id is not below `id`. */
static size_t lower_bound(const struct fq_hosted_table *table, const struct fq_uuid *id)
{
    size_t low = 0, high = table->topics_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_ids(&table->topics[middle]->id, id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct fq_hosted_topic *find_topic(const struct fq_hosted_table *table,
                                          const struct fq_uuid *id)
{
    size_t at = lower_bound(table, id);
    return at < table->topics_count && compare_ids(&table->topics[at]->id, id) == 0
               ? table->topics[at]
               : NULL;
}

static struct fq_hosted_topic *add_topic(struct fq_hosted_table *table,
                                         const struct fq_hosted_spec *spec)
{
    if (table->topics_count == table->topics_capacity) {
        size_t capacity = table->topics_capacity ? 2 * table->topics_capacity : 16;
        struct fq_hosted_topic **grown =
            realloc(table->topics, capacity * sizeof(struct fq_hosted_topic *));
        if (!grown) {
            return NULL;
        }
        table->topics = grown;
        table->topics_capacity = capacity;
    }
    struct fq_hosted_topic *topic = calloc(1, sizeof *topic);
    if (!topic) {
        return NULL;
    }
    topic->id = spec->topic_id;
    memcpy(topic->name, spec->name, sizeof topic->name);
    size_t at = lower_bound(table, &topic->id);
    memmove(table->topics + at + 1, table->topics + at,
            (table->topics_count - at) * sizeof(struct fq_hosted_topic *));
    table->topics[at] = topic;
    table->topics_count++;
    return topic;
}

int fq_hosted_serve(struct fq_hosted_table *table, const struct fq_hosted_spec *spec)
{
    struct fq_hosted_topic *topic = find_topic(table, &spec->topic_id);
    if (!topic) {
        topic = add_topic(table, spec);
    }
    struct fq_hosted **grown =
        topic ? realloc(topic->hosted, spec->partitions * sizeof(struct fq_hosted *)) : NULL;
    if (!grown) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    topic->hosted = grown;
    topic->config = spec->config;
    while (topic->partitions < spec->partitions) {
        uint32_t index = topic->partitions;
        struct fq_hosted *hosted = NULL;
        if ((spec->first_shard + index) % table->params.shards_count == table->params.shard) {
            hosted = calloc(1, sizeof *hosted);
            if (!hosted) {
                return FLASHQ_ERR_NO_MEMORY;
            }
            hosted->topic = topic;
            hosted->index = index;
            hosted->gauges = spec->gauges[index];
            hosted->table = table;
            fq_chain_init(&hosted->armed);
            fq_chain_init(&hosted->pushes_idle);
        }
        topic->hosted[index] = hosted;
        topic->partitions++;
    }
    return 0;
}

int fq_hosted_find(struct fq_hosted_table *table, const struct fq_uuid *topic_id, uint32_t index,
                   struct fq_hosted **ret, struct fq_err *err)
{
    struct fq_hosted_topic *topic = find_topic(table, topic_id);
    if (!topic) {
        char id[FQ_UUID_TEXT_BYTES];
        return fq_err_set(err, FLASHQ_ERR_UNKNOWN_TOPIC_ID, "no topic has the id %s (any more)",
                          fq_uuid_to_text(topic_id, id));
    }
    if (index >= topic->partitions) {
        return fq_err_set(err, FLASHQ_ERR_NOT_FOUND,
                          "topic \"%s\" has %u partitions, 0 to %u, not %u", topic->name,
                          topic->partitions, topic->partitions - 1, index);
    }
    if (!topic->hosted[index]) {
        return fq_err_set(err, FLASHQ_ERR_NOT_LEADER,
                          "partition %u of \"%s\" is not on shard %u; ask for metadata", index,
                          topic->name, table->params.shard);
    }
    *ret = topic->hosted[index];
    return 0;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static int list_reserve(struct fq_hosted_list *list, size_t wanted)
{
    if (wanted <= list->capacity) {
        return 0;
    }
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    struct fq_hosted **grown = realloc(list->items, capacity * sizeof(struct fq_hosted *));
    if (!grown) {
        return FLASHQ_ERR_NO_MEMORY;
    }
    list->items = grown;
    list->capacity = capacity;
    return 0;
}

static void list_add(struct fq_hosted_list *list, struct fq_hosted *hosted)
{
    assert(list->count < list->capacity);
    list->items[list->count++] = hosted;
}

static void list_drop(struct fq_hosted_list *list, const struct fq_hosted *hosted)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i] == hosted) {
            list->items[i] = list->items[--list->count];
            return;
        }
    }
}

static int reserve_lists(struct fq_hosted_table *table)
{
    size_t wanted = table->open.count + 1;
    int code = list_reserve(&table->open, wanted);
    code = code != 0 ? code : list_reserve(&table->active, wanted);
    return code != 0 ? code : list_reserve(&table->restless, wanted);
}

/* ---- what a partition asks of its host ------------------------------------------------------- */

static int64_t host_wall_ms(void *context)
{
    struct fq_hosted_table *table = ((struct fq_hosted *)context)->table;
    const struct fq_clock *clock = table->params.clock;
    return clock == fq_clock_system() ? fq_wall_recent_ms(&table->wall) : clock->wall_ms(clock->context);
}

static bool push_item(struct fq_hosted *hosted, struct fq_calendar_item *item)
{
    const struct fq_hosted_params *params = &hosted->table->params;
    item->topic_id = hosted->topic->id;
    item->partition = hosted->index;
    return params->calendar_push(params->context, item);
}

static bool host_calendar_mark(void *context, struct fq_partition *partition,
                               const struct fq_calendar_mark *mark, int64_t complete_to)
{
    struct fq_calendar_item item = {.kind = mark ? FQ_CALENDAR_ITEM_MARK : FQ_CALENDAR_ITEM_ADVANCE,
                                    .offset = complete_to};
    (void)partition;
    if (mark) {
        item.mark = *mark;
    }
    return push_item(context, &item);
}

static bool host_calendar_cut(void *context, struct fq_partition *partition,
                              enum fq_calendar_cut cut, int64_t offset)
{
    struct fq_calendar_item item = {.kind = FQ_CALENDAR_ITEM_CUT, .cut = cut, .offset = offset};
    (void)partition;
    return push_item(context, &item);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static struct fq_partition_config partition_config(const struct fq_hosted *hosted)
{
    const struct fq_topic_config *topic = &hosted->topic->config;
    const struct fq_hosted_params *params = &hosted->table->params;
    return (struct fq_partition_config){
        .segment_bytes = (uint64_t)topic->segment_bytes,
        .retention_bytes = (uint64_t)topic->retention_bytes,
        .message_max_bytes = (uint32_t)topic->message_max_bytes,
        .timestamp_max_ahead_ms = topic->timestamp_max_ahead_ms,
        .producer_expiration_ms = params->producer_expiration_ms,
        .max_in_flight = params->max_in_flight,
        .durability = topic->durability == 0 ? FQ_DURABILITY_PERSISTED : FQ_DURABILITY_MEMORY,
        .is_direct = topic->append == FQ_APPEND_DIRECT,
    };
}

static void publish_gauges(struct fq_hosted *hosted)
{
    struct fq_partition *partition = hosted->partition;
    struct fq_gauges *gauges = hosted->gauges;
    atomic_store_explicit(&gauges->log_start, fq_partition_log_start(partition),
                          memory_order_relaxed);
    atomic_store_explicit(&gauges->bytes, fq_log_bytes(fq_partition_log(partition)),
                          memory_order_relaxed);
    atomic_store_explicit(&gauges->state, hosted->offline, memory_order_relaxed);
    atomic_store_explicit(&gauges->leader_epoch, fq_partition_leader_epoch(partition),
                          memory_order_relaxed);
    atomic_store_explicit(&gauges->end, hosted->high_watermark, memory_order_relaxed);
}

static void become_restless(struct fq_hosted *hosted)
{
    struct fq_hosted_table *table = hosted->table;
    if (!hosted->is_restless) {
        hosted->is_restless = true;
        list_add(&table->restless, hosted);
    }
}

int fq_hosted_open(struct fq_hosted *hosted, const struct fq_task *task, struct fq_err *err)
{
    struct fq_hosted_table *table = hosted->table;
    if (hosted->partition) {
        return 0;
    }
    if (table->free_lines_count == 0) {
        return fq_err_set(err, FLASHQ_ERR_LIMIT,
                          "the limit of %u open partitions per shard is reached",
                          table->params.views_count);
    }
    if (reserve_lists(table) != 0) {
        return fq_err_set(err, FLASHQ_ERR_NO_MEMORY, "out of memory");
    }
    uint32_t line = table->free_lines[table->free_lines_count - 1];
    hosted->host = (struct fq_partition_host){.scratch = table->scratch,
                                              .scratch_bytes = table->params.batch_max_bytes,
                                              .wall_ms = host_wall_ms,
                                              .calendar_mark = host_calendar_mark,
                                              .calendar_cut = host_calendar_cut,
                                              .context = hosted};
    struct fq_partition_params params = {.store = table->params.store,
                                         .host = &hosted->host,
                                         .topic_id = hosted->topic->id,
                                         .topic = hosted->topic->name,
                                         .index = hosted->index,
                                         .config = partition_config(hosted),
                                         .view_line = &table->params.views[line],
                                         .view_generation = table->next_generation,
                                         .snapshot = task ? task->bytes : NULL,
                                         .snapshot_bytes = task ? task->bytes_length : 0,
                                         .calendar_complete_to =
                                             task ? task->calendar_complete_to : 0};
    int code = fq_partition_open(&params, &hosted->partition, err);
    if (code != 0) {
        hosted->partition = NULL;
        atomic_store_explicit(&hosted->gauges->state, code, memory_order_relaxed);
        (void)fq_err_prefix(err, "partition %u of \"%s\": ", hosted->index, hosted->topic->name);
        return code;
    }
    table->free_lines_count--;
    hosted->view_line = line;
    hosted->view_generation = table->next_generation++;
    hosted->high_watermark = fq_partition_high_watermark(hosted->partition);
    list_add(&table->open, hosted);
    fq_count(table->params.counters, FQ_COUNT_PARTITIONS_OPEN);
    publish_gauges(hosted);
    become_restless(hosted);
    return 0;
}

/* Hands a snapshot to the housekeeper; false: not now. */
static bool take_snapshot(struct fq_hosted *hosted)
{
    const struct fq_hosted_params *params = &hosted->table->params;
    struct fq_task *task = fq_task_create(FQ_TASK_SNAPSHOT);
    size_t bytes = fq_partition_snapshot_bytes(hosted->partition);
    if (task) {
        task->topic_id = hosted->topic->id;
        task->partition = hosted->index;
        task->bytes = malloc(bytes);
    }
    if (!task || !task->bytes ||
        fq_partition_snapshot_encode(hosted->partition, task->bytes, bytes, &task->bytes_length,
                                     NULL) != 0) {
        fq_task_destroy(task);
        return false;
    }
    params->submit(params->context, task);
    fq_partition_snapshot_taken(hosted->partition);
    return true;
}

enum closing { CLOSING_CLEAN, CLOSING_DIRTY, CLOSING_DELETED };

static void close_partition(struct fq_hosted *hosted, enum closing how)
{
    struct fq_hosted_table *table = hosted->table;
    if (!hosted->partition) {
        return;
    }
    if (how == CLOSING_CLEAN && hosted->offline == 0 &&
        fq_partition_snapshot_lag(hosted->partition) > 0) {
        (void)fq_partition_commit_round(hosted->partition);
        (void)take_snapshot(hosted);
    }
    if (how == CLOSING_DELETED) {
        fq_partition_close_deleted(hosted->partition);
    } else {
        fq_partition_close(hosted->partition, how == CLOSING_CLEAN);
    }
    hosted->partition = NULL;
    list_drop(&table->open, hosted);
    if (hosted->is_active) {
        list_drop(&table->active, hosted);
    }
    if (hosted->is_restless) {
        list_drop(&table->restless, hosted);
    }
    hosted->is_active = hosted->is_restless = false;
    table->free_lines[table->free_lines_count++] = hosted->view_line;
    fq_count_add(table->params.counters, FQ_COUNT_PARTITIONS_OPEN, -1);
}

static void free_topic(struct fq_hosted_topic *topic, enum closing how)
{
    for (uint32_t i = 0; i < topic->partitions; i++) {
        if (topic->hosted[i]) {
            close_partition(topic->hosted[i], how);
            free(topic->hosted[i]);
        }
    }
    free(topic->hosted);
    free(topic);
}

void fq_hosted_remove(struct fq_hosted_table *table, const struct fq_uuid *topic_id)
{
    size_t at = lower_bound(table, topic_id);
    struct fq_hosted_topic *topic = find_topic(table, topic_id);
    if (!topic) {
        return;
    }
    for (uint32_t i = 0; i < topic->partitions; i++) {
        if (topic->hosted[i]) {
            table->params.on_event(table->params.context, topic->hosted[i], FQ_HOSTED_REMOVED);
        }
    }
    table->topics_count--;
    memmove(table->topics + at, table->topics + at + 1,
            (table->topics_count - at) * sizeof(struct fq_hosted_topic *));
    free_topic(topic, CLOSING_DELETED);
}

void fq_hosted_table_fini(struct fq_hosted_table *table, bool clean)
{
    for (size_t i = 0; i < table->topics_count; i++) {
        free_topic(table->topics[i], clean ? CLOSING_CLEAN : CLOSING_DIRTY);
    }
    free(table->topics);
    free(table->open.items);
    free(table->active.items);
    free(table->restless.items);
    free(table->free_lines);
    free(table->scratch);
    *table = (struct fq_hosted_table){.topics = NULL};
}

void fq_hosted_configure(struct fq_hosted_table *table, const struct fq_hosted_spec *spec)
{
    struct fq_hosted_topic *topic = find_topic(table, &spec->topic_id);
    if (!topic) {
        return;
    }
    topic->config = spec->config;
    for (uint32_t i = 0; i < topic->partitions; i++) {
        struct fq_hosted *hosted = topic->hosted[i];
        if (hosted && hosted->partition) {
            struct fq_partition_config config = partition_config(hosted);
            fq_partition_configure(hosted->partition, &config);
            become_restless(hosted); /* retention may have shrunk */
        }
    }
}

/* ---- rounds --------------------------------------------------------------------------------- */

void fq_hosted_touch(struct fq_hosted *hosted)
{
    if (!hosted->is_active) {
        hosted->is_active = true;
        list_add(&hosted->table->active, hosted);
    }
}

static void tell(struct fq_hosted *hosted, enum fq_hosted_event event)
{
    const struct fq_hosted_params *params = &hosted->table->params;
    params->on_event(params->context, hosted, event);
}

/* Its log has gone offline and nobody was told yet; the next round does. */
static bool has_failed(const struct fq_hosted *hosted)
{
    return hosted->offline == 0 && fq_log_is_offline(fq_partition_log(hosted->partition), NULL);
}

static unsigned apply_retention(struct fq_hosted *hosted)
{
    int retired = fq_partition_apply_retention(hosted->partition);
    if (has_failed(hosted)) {
        fq_hosted_touch(hosted);
        return 1;
    }
    if (retired <= 0) {
        return 0;
    }
    fq_count_add(hosted->table->params.counters, FQ_COUNT_RETENTION_SEGMENTS, retired);
    publish_gauges(hosted);
    tell(hosted, FQ_HOSTED_TRIMMED);
    return (unsigned)retired;
}

/* True when it advanced. */
static bool round_of(struct fq_hosted *hosted)
{
    int64_t before = hosted->high_watermark;
    hosted->high_watermark = fq_partition_commit_round(hosted->partition);
    bool has_advanced = hosted->high_watermark > before;
    if (hosted->offline == 0) {
        hosted->offline = fq_partition_state(hosted->partition, NULL); /* which has logged it */
        if (hosted->offline != 0) {
            fq_count(hosted->table->params.counters, FQ_COUNT_PARTITIONS_OFFLINE);
            publish_gauges(hosted);
            tell(hosted, FQ_HOSTED_OFFLINE);
        }
    }
    if (has_advanced) {
        publish_gauges(hosted);
        tell(hosted, FQ_HOSTED_ADVANCED);
    }
    if (fq_partition_is_retention_due(hosted->partition)) {
        (void)apply_retention(hosted);
    }
    return has_advanced;
}

unsigned fq_hosted_rounds(struct fq_hosted_table *table)
{
    struct fq_hosted_list *active = &table->active;
    unsigned advanced = 0;
    for (size_t i = 0; i < active->count;) {
        struct fq_hosted *hosted = active->items[i];
        advanced += round_of(hosted);
        become_restless(hosted);
        if (has_failed(hosted)) {
            advanced++; /* what followed the round: the next one is due at once */
            i++;
        } else if (hosted->offline != 0 || !fq_partition_needs_round(hosted->partition)) {
            hosted->is_active = false;
            active->items[i] = active->items[--active->count];
        } else {
            i++;
        }
    }
    return advanced;
}

int fq_hosted_trim(struct fq_hosted *hosted, int64_t before_offset, struct fq_err *err)
{
    int64_t start = fq_partition_log_start(hosted->partition);
    int code = fq_partition_trim(hosted->partition, before_offset, err);
    if (fq_partition_log_start(hosted->partition) != start) {
        publish_gauges(hosted);
        tell(hosted, FQ_HOSTED_TRIMMED);
        become_restless(hosted);
    }
    if (code < 0) {
        fq_hosted_touch(hosted); /* its state may have changed */
    }
    return code;
}

int fq_hosted_truncate(struct fq_hosted *hosted, int64_t offset, struct fq_err *err)
{
    int64_t end = fq_log_end(fq_partition_log(hosted->partition));
    int code = fq_partition_truncate(hosted->partition, offset, err);
    if (fq_log_end(fq_partition_log(hosted->partition)) != end) {
        hosted->high_watermark = fq_partition_high_watermark(hosted->partition);
        publish_gauges(hosted);
        tell(hosted, FQ_HOSTED_TRUNCATED);
        become_restless(hosted);
    }
    if (code < 0) {
        fq_hosted_touch(hosted);
    }
    return code;
}

/* ---- off the path --------------------------------------------------------------------------- */

/* Returns how much was done; *ret_again: there is more to do. */
static unsigned off_path_of(struct fq_hosted *hosted, bool *ret_again)
{
    unsigned done = apply_retention(hosted);
    int steps = fq_partition_off_path_step(hosted->partition);
    done += steps > 0 ? (unsigned)steps : 0;
    *ret_again = fq_partition_wants_off_path(hosted->partition);
    if (fq_partition_snapshot_lag(hosted->partition) >= SNAPSHOT_LAG_BYTES &&
        hosted->offline == 0) {
        done += take_snapshot(hosted);
    }
    return done;
}

unsigned fq_hosted_off_path(struct fq_hosted_table *table, int64_t now_us)
{
    unsigned done = 0;
    bool has_backlog = false;
    if (now_us >= table->next_sweep_us) {
        for (size_t i = 0; i < table->open.count; i++) {
            become_restless(table->open.items[i]);
        }
        table->next_sweep_us = INT64_MAX;
    }
    if (table->restless.count == 0 || now_us < table->next_off_path_us) {
        return 0;
    }
    for (size_t i = 0; i < table->restless.count;) {
        struct fq_hosted *hosted = table->restless.items[i];
        bool again;
        unsigned done_here = off_path_of(hosted, &again);
        done += done_here;
        if (again) {
            has_backlog |= done_here > 0;
            i++;
        } else {
            hosted->is_restless = false;
            table->restless.items[i] = table->restless.items[--table->restless.count];
        }
    }
    table->next_off_path_us = now_us + (has_backlog ? OFF_PATH_PAUSE_BUSY_US : OFF_PATH_PAUSE_US);
    if (table->open.count > 0 && table->next_sweep_us == INT64_MAX) {
        table->next_sweep_us = now_us + SWEEP_PAUSE_US;
    }
    return done;
}

int64_t fq_hosted_next_deadline_us(const struct fq_hosted_table *table)
{
    int64_t next = table->next_sweep_us;
    if (table->restless.count > 0 && table->next_off_path_us < next) {
        next = table->next_off_path_us;
    }
    return next;
}
