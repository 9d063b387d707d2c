/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash suite of storage: drives two logs of one store through everything that stores
 * (append, append in place, publish, roll, seal, recycle, trim, retention, truncate, delete and
 * make a topic, restart, small files) over the recording persist ops. At every crash point each
 * legal state of the medium (all while at most 12 units are pending, sampled beyond) is put into a
 * folder and recovered: all acknowledged batches are there with their bytes, none is torn, invented
 * or of a former life, no damage is reported, the log start holds, and recovering again changes
 * nothing. Some of the recoveries are recorded themselves and crashed in turn.
 *
 *   crash_log memory|disk [--seed N] [--steps N] [--fault NAME]
 * With a fault planted (see persist_recording.h) the run must find it: exit 0 when it did.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crash_model.h"
#include "log_maker.h"
#include "persist_recording.h"

#define EXHAUSTIVE_MAX 12u
#define SAMPLES        24u
#define LOGS           2u

struct run {
    enum recording_model kind;
    enum recording_fault fault;
    uint64_t seed;
    struct fq_prng prng;       /* of the scenario */
    struct fq_prng state_prng; /* of the states, so that sampling more changes no scenario */
    char *root, state_folder[4200], inner_folder[4200];
    struct recording *recording;
    struct fq_store *store;
    struct fq_log *logs[LOGS];
    struct model *models[LOGS];
    struct model *gone; /* the last deleted topic */
    const char *doing;
    unsigned step;
    uint64_t states, points, nested, salt, streamed_bytes, in_place_bytes;
    uint8_t next_topic;
    bool has_failed;
};

static struct fq_store_params store_params(const char *folder, struct fq_persist *persist)
{
    return (struct fq_store_params){.data_dir = folder,
                                    .shards_count = 1,
                                    .segment_bytes_max = 16u << 10,
                                    .segment_bytes_first = 8u << 10,
                                    .prepared_bytes = 8u << 10,
                                    .batch_bytes_max = 2048,
                                    .persist = persist};
}

/* --- looking at a state ----------------------------------------------------------------------- */

static const char *check_models(struct run *run, struct fq_store *store, int64_t *ends)
{
    int64_t start;
    for (unsigned i = 0; i < LOGS; i++) {
        const char *wrong = model_check(run->models[i], store, &start, &ends[i]);
        if (wrong) {
            return wrong;
        }
    }
    return run->gone ? model_check(run->gone, store, &start, &ends[LOGS]) : NULL;
}

static const char *recover(struct run *run, const char *folder, struct fq_persist *persist,
                           int64_t *ends)
{
    static char text[600];
    struct fq_store *store;
    struct fq_err err;
    const struct fq_store_params params = store_params(folder, persist);
    if (fq_store_open(&params, &store, &err) < 0) {
        (void)snprintf(text, sizeof text, "the store does not open: %s", err.text);
        return text;
    }
    const char *wrong = check_models(run, store, ends);
    /* the housekeeper's part of recovery, half of the time */
    fq_store_close(store, fq_prng_below(&run->state_prng, 2) == 0);
    return wrong;
}

static bool report(struct run *run, const char *wrong)
{
    char pending[100];
    if (!wrong) {
        return true;
    }
    recording_describe(run->recording, pending, sizeof pending);
    (void)printf("%s: seed %llu, step %u, during %s, crash point %llu, state %llu (%s): %s\n",
                 run->fault ? "found" : "FAILED", (unsigned long long)run->seed, run->step,
                 run->doing, (unsigned long long)run->points, (unsigned long long)run->states,
                 pending, wrong);
    run->has_failed = true;
    return false;
}

static bool check_inner_state(void *context, const char *folder)
{
    struct run *run = context;
    int64_t ends[LOGS + 1] = {0};
    struct fq_persist *plain = recording_plain_create(run->kind);
    const char *wrong = recover(run, folder, plain, ends);
    plain->ops->destroy(plain);
    return report(run, wrong);
}

struct inner {
    struct run *run;
    struct recording *recording;
};

static void inner_crash_point(void *context)
{
    struct inner *inner = context;
    if (!inner->run->has_failed) {
        (void)recording_each_state(inner->recording, &inner->run->state_prng, 4, 6,
                                   inner->run->inner_folder, check_inner_state, inner->run,
                                   &inner->run->nested);
    }
}

/* A recovery that crashes at each of its own crash points. */
static const char *recover_recorded(struct run *run, const char *folder, int64_t *ends)
{
    struct inner inner = {run, recording_create(folder, run->kind, RECORDING_SOUND)};
    recording_set_hook(inner.recording, inner_crash_point, &inner);
    const char *wrong = recover(run, folder, recording_persist(inner.recording), ends);
    recording_destroy(inner.recording);
    return wrong;
}

static bool check_state(void *context, const char *folder)
{
    struct run *run = context;
    int64_t first[LOGS + 1] = {0}, second[LOGS + 1] = {0};
    struct fq_persist *plain = recording_plain_create(run->kind);
    const char *wrong = fq_prng_below(&run->state_prng, 100) == 0
                            ? recover_recorded(run, folder, first)
                            : recover(run, folder, plain, first);
    if (!wrong && fq_prng_below(&run->state_prng, 4) == 0) {
        wrong = recover(run, folder, plain, second);
        if (!wrong && memcmp(first, second, sizeof first) != 0) {
            wrong = "recovering twice gives two ends";
        }
    }
    plain->ops->destroy(plain);
    return report(run, wrong);
}

static void crash_point(void *context)
{
    struct run *run = context;
    run->points++;
    if (!run->has_failed) {
        (void)recording_each_state(run->recording, &run->state_prng, EXHAUSTIVE_MAX, SAMPLES,
                                   run->state_folder, check_state, run, &run->states);
    }
}

/* --- the scenario ------------------------------------------------------------------------------
 */

static void note_acked(struct run *run)
{
    for (unsigned i = 0; i < LOGS; i++) {
        int64_t durable = run->logs[i] ? fq_log_durable_end(run->logs[i]) : 0;
        if (run->logs[i] && durable > run->models[i]->acked_end) {
            run->models[i]->acked_end = durable;
        }
    }
}

static void must(struct run *run, int r, const char *what)
{
    if (r != 0 && !run->has_failed) {
        (void)printf("FAILED: seed %llu, step %u: %s returned %d\n", (unsigned long long)run->seed,
                     run->step, what, r);
        run->has_failed = true;
    }
}

static void open_log(struct run *run, unsigned i)
{
    struct fq_err err;
    const struct fq_log_params params = {.topic_id = run->models[i]->topic_id,
                                         .topic = run->models[i]->topic,
                                         .segment_bytes = 16u << 10};
    must(run, fq_log_open(run->store, &params, NULL, NULL, &run->logs[i], &err), "fq_log_open");
}

static void new_topic(struct run *run, unsigned i)
{
    static const char *const names[LOGS] = {"left", "right"};
    run->models[i] = calloc(1, sizeof *run->models[i]);
    if (!run->models[i]) {
        abort();
    }
    run->models[i]->topic = names[i];
    run->models[i]->topic_id.bytes[0] = ++run->next_topic;
    open_log(run, i);
}

static void do_append(struct run *run, unsigned i)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    static const size_t sizes[] = {0, 3, 40, 300, 1200};
    struct fq_log *log = run->logs[i];
    int records = 1 + (int)fq_prng_below(&run->prng, 3);
    size_t value = sizes[fq_prng_below(&run->prng, records == 1 ? 5 : 3)];
    int64_t base = fq_log_end(log);
    size_t length =
        log_maker_batch(batch, base, (int32_t)(run->step / 100), records, value, ++run->salt);
    /* known to the model before the first store: a crash may keep it */
    model_add(run->models[i], batch, length, base, base + records);
    /* the paths of a shard: in one pass while it is checked, or whole; a refused one before it */
    bool is_streamed = fq_prng_below(&run->prng, 4) > 0;
    if (fq_prng_below(&run->prng, 5) == 0) {
        must(run, log_maker_stream(run->store, log, batch, length, &run->prng, true), "refuse");
    }
    must(run,
         is_streamed ? log_maker_stream(run->store, log, batch, length, &run->prng, false)
                     : log_maker_append(run->store, log, batch, length),
         "append");
}

static void do_restart(struct run *run, bool is_clean)
{
    struct fq_err err;
    for (unsigned i = 0; i < LOGS; i++) {
        fq_log_close(run->logs[i], is_clean);
        if (is_clean) {
            run->models[i]->acked_end =
                run->models[i]->count > 0 ? run->models[i]->batches[run->models[i]->count - 1].next
                                          : run->models[i]->acked_end;
        }
        run->logs[i] = NULL;
    }
    fq_store_close(run->store, is_clean);
    const struct fq_store_params params =
        store_params(run->root, recording_persist(run->recording));
    must(run, fq_store_open(&params, &run->store, &err), "fq_store_open");
    for (unsigned i = 0; i < LOGS && !run->has_failed; i++) {
        open_log(run, i);
        /* what this process still sees after "kill -9" is all that was written */
        model_cut(run->models[i], run->logs[i] ? fq_log_end(run->logs[i]) : 0, true);
    }
}

/* One batch of a producer that appends in place; false: it did not work out. */
static bool append_in_place(struct run *run, unsigned i, struct fq_log_loan *rest,
                            struct fq_log_loan *next, uint64_t *written)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct fq_log *log = run->logs[i];
    int64_t base = fq_log_end(log);
    size_t length = log_maker_batch(batch, base, (int32_t)(run->step / 100), 1,
                                    fq_prng_below(&run->prng, 1200), ++run->salt);
    uint64_t position = fq_segment_data_bytes(rest->segment);
    bool moves = length > fq_segment_capacity(rest->segment) - position;
    int r = moves && !next->segment ? log_maker_lend(run->store, log, true, next) : 0;
    model_add(run->models[i], batch, length, base, base + 1);
    if (r == 0 && moves) {
        log_maker_peer_store(next->segment, 0, batch, length, false);
        r = fq_log_move_on(log, *written);
        *rest = *next;
        *next = (struct fq_log_loan){.segment = NULL};
        position = 0;
    } else if (r == 0) {
        log_maker_peer_store(rest->segment, position, batch, length, false);
    }
    *written = position + length;
    r = r == 0 ? log_maker_take_in_place(log, batch, length) : r;
    must(run, r, "append in place");
    run->in_place_bytes += length;
    return r == 0;
}

/* Bytes that were never notified: a batch that would fit exactly, stamps and all, in both places.
 */
static void leave_unnotified(struct run *run, unsigned i, const struct fq_log_loan *rest,
                             const struct fq_log_loan *next, uint64_t *written,
                             uint64_t *written_next)
{
    static uint8_t batch[LOG_MAKER_BATCH_MAX];
    struct fq_log *log = run->logs[i];
    size_t length = log_maker_batch(batch, fq_log_end(log), (int32_t)(run->step / 100), 2,
                                    fq_prng_below(&run->prng, 300), ++run->salt);
    if (*written + length <= fq_segment_capacity(rest->segment)) {
        log_maker_peer_store(rest->segment, *written, batch, length, true);
        *written += length;
    }
    if (next->segment) {
        log_maker_peer_store(next->segment, 0, batch, length, true);
        *written_next = length;
    }
}

static void do_in_place(struct run *run, unsigned i)
{
    struct fq_log *log = run->logs[i];
    struct fq_log_loan rest, next = {.segment = NULL};
    uint64_t written_next = 0;
    int r = log_maker_lend(run->store, log, false, &rest);
    must(run, r, "lend");
    uint64_t written = r == 0 ? rest.position : 0;
    bool goes_on = r == 0;
    for (uint64_t n = 1 + fq_prng_below(&run->prng, 5); goes_on && n > 0; n--) {
        if (!next.segment && fq_prng_below(&run->prng, 3) == 0) {
            must(run, log_maker_lend(run->store, log, true, &next), "lend the next");
        }
        goes_on = append_in_place(run, i, &rest, &next, &written);
        if (goes_on && fq_prng_below(&run->prng, 2) == 0) {
            must(run, fq_log_publish(log), "publish");
            note_acked(run);
        }
    }
    if (goes_on && fq_prng_below(&run->prng, 2) == 0) {
        leave_unnotified(run, i, &rest, &next, &written, &written_next);
    }
    if (goes_on && fq_prng_below(&run->prng, 3) > 0) {
        fq_log_take_back(log, written, written_next);
    } else {
        do_restart(run, false); /* kill -9 while it is lent */
    }
}

static void do_trim(struct run *run, unsigned i)
{
    struct fq_err err;
    struct model *model = run->models[i];
    int64_t start = fq_log_start(run->logs[i]), end = fq_log_end(run->logs[i]);
    int64_t to = start + (int64_t)fq_prng_below(&run->prng, (uint64_t)(end - start) + 1);
    to = fq_prng_below(&run->prng, 4) == 0 ? end : to;
    model->start_high = to > model->start_high ? to : model->start_high;
    must(run, fq_log_trim(run->logs[i], to, &err), "trim");
    model->start_low = to > model->start_low ? to : model->start_low;
}

static void do_retention(struct run *run, unsigned i)
{
    while (fq_log_segment_first(run->logs[i]) == fq_log_segment_last(run->logs[i])) {
        do_append(run, i); /* until there is something to retire */
        must(run, fq_log_publish(run->logs[i]), "publish");
        note_acked(run);
    }
    struct model *model = run->models[i];
    struct fq_segment *second = fq_segment_next(fq_log_segment_first(run->logs[i]));
    if (second) { /* exactly one segment too much */
        uint64_t bytes = fq_log_bytes(run->logs[i]);
        model->start_high = fq_segment_base_offset(second) > model->start_high
                                ? fq_segment_base_offset(second)
                                : model->start_high;
        fq_log_configure(run->logs[i], 16u << 10, bytes - 1);
        must(run, fq_log_apply_retention(run->logs[i]) - 1, "retention");
        fq_log_configure(run->logs[i], 16u << 10, 0);
        log_maker_keep_house(run->store);
        if (run->kind == RECORDING_MEMORY) {
            model->start_low = fq_log_start(run->logs[i]);
        }
    }
}

static void do_truncate(struct run *run, unsigned i)
{
    struct fq_err err;
    struct model *model = run->models[i];
    int64_t start = fq_log_start(run->logs[i]), end = fq_log_end(run->logs[i]);
    uint64_t span = (uint64_t)(end - start);
    span = span > 12 && fq_prng_below(&run->prng, 3) > 0 ? 12 : span; /* mostly near the end */
    int64_t to = end - (int64_t)fq_prng_below(&run->prng, span + 1);
    model_cut(model, to, false);
    model->start_low = model->acked_end < model->start_low ? model->acked_end : model->start_low;
    must(run, fq_log_truncate(run->logs[i], to, &err), "truncate");
    model_cut(model, to, true);
    model->acked_end = fq_log_durable_end(run->logs[i]);
}

static void do_delete(struct run *run, unsigned i)
{
    struct fq_err err;
    fq_log_close(run->logs[i], false);
    run->logs[i] = NULL;
    if (run->gone) {
        model_fini(run->gone);
        free(run->gone);
        run->gone = NULL;
    }
    run->models[i]->may_be_gone = true;
    must(run, fq_store_delete_topic(run->store, &run->models[i]->topic_id, &err), "delete");
    run->models[i]->is_gone = true;
    run->gone = run->models[i];
    new_topic(run, i);
}

static void do_file(struct run *run, unsigned i)
{
    struct fq_segment *first = fq_log_segment_first(run->logs[i]);
    if (first && fq_segment_is_sealed(first)) {
        must(run, fq_log_write_sidecar(run->logs[i], first, "index", "an index", 8), "sidecar");
        log_maker_keep_house(run->store);
    }
    struct fq_err err;
    const struct model *model = run->models[i];
    must(run,
         fq_store_write_file(run->store, model->topic, &model->topic_id, "topic", "words", 5, &err),
         "write_file");
}

/* The rare things come in rotation, so that every run of RARE_EVERY * 7 steps has them all. */
#define RARE_EVERY 12u

static void take_rare_step(struct run *run, unsigned i)
{
    static const char *const names[] = {
        "trim",      "retention",     "truncate",    "delete and make",
        "a restart", "clean restart", "a small file"};
    unsigned which = run->step / RARE_EVERY % 7;
    run->doing = names[which];
    switch (which) {
    case 0: do_trim(run, i); break;
    case 1: do_retention(run, i); break;
    case 2: do_truncate(run, i); break;
    case 3: do_delete(run, i); break;
    case 4: do_restart(run, false); break;
    case 5: do_restart(run, true); break;
    default: do_file(run, i); break;
    }
}

static void take_step(struct run *run)
{
    unsigned i = (unsigned)fq_prng_below(&run->prng, LOGS);
    uint64_t dice = fq_prng_below(&run->prng, 100);
    if (run->step % RARE_EVERY == RARE_EVERY - 1) {
        take_rare_step(run, i);
    } else if (dice < 8 && run->kind == RECORDING_MEMORY) {
        run->doing = "appending in place";
        do_in_place(run, i);
    } else if (dice < 54) {
        run->doing = "append";
        do_append(run, i);
    } else if (dice < 83) {
        run->doing = "publish";
        must(run, fq_log_publish(run->logs[i]), "publish");
    } else if (dice < 96) {
        run->doing = "flush";
        (void)fq_store_flush_step(run->store);
    } else {
        run->doing = "housekeeping";
        (void)fq_store_step(run->store, run->step * 1000);
    }
    note_acked(run);
}

static void run_scenario(struct run *run, unsigned steps)
{
    struct fq_err err;
    run->root = log_maker_folder();
    if (!run->root) {
        abort();
    }
    (void)snprintf(run->state_folder, sizeof run->state_folder, "%s-state", run->root);
    (void)snprintf(run->inner_folder, sizeof run->inner_folder, "%s-inner", run->root);
    fq_prng_seed(&run->prng, run->seed);
    fq_prng_seed(&run->state_prng, run->seed + 1);
    run->recording = recording_create(run->root, run->kind, run->fault);
    run->doing = "start";
    const struct fq_store_params params =
        store_params(run->root, recording_persist(run->recording));
    must(run, fq_store_open(&params, &run->store, &err), "fq_store_open");
    for (unsigned i = 0; i < LOGS; i++) {
        new_topic(run, i);
    }
    recording_set_hook(run->recording, crash_point, run);
    for (run->step = 0; run->step < steps && !run->has_failed; run->step++) {
        take_step(run);
    }
    recording_set_hook(run->recording, NULL, NULL);
    run->streamed_bytes = recording_streamed_bytes(run->recording);
    for (unsigned i = 0; i < LOGS; i++) {
        fq_log_close(run->logs[i], false);
        model_fini(run->models[i]);
        free(run->models[i]);
    }
    if (run->gone) {
        model_fini(run->gone);
        free(run->gone);
    }
    fq_store_close(run->store, false);
    recording_destroy(run->recording);
    log_maker_remove_tree(run->root);
    free(run->root);
}

static enum recording_fault fault_named(const char *name)
{
    static const char *const names[] = {"none",         "no-data-fence", "header-first",
                                        "sync-lies",    "dir-sync-lies", "no-zeros",
                                        "no-write-back"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (enum recording_fault)i;
        }
    }
    (void)fprintf(stderr, "no such fault: %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    struct run run = {.seed = 1};
    unsigned steps = 7 * RARE_EVERY;
    if (argc < 2 || (strcmp(argv[1], "memory") != 0 && strcmp(argv[1], "disk") != 0)) {
        (void)fprintf(stderr, "usage: %s memory|disk [--seed N] [--steps N] [--fault NAME]\n",
                      argv[0]);
        return 2;
    }
    run.kind = strcmp(argv[1], "memory") == 0 ? RECORDING_MEMORY : RECORDING_DISK;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) {
            run.seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--steps") == 0) {
            steps = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--fault") == 0) {
            run.fault = fault_named(argv[i + 1]);
        }
    }
    (void)printf("seed %llu\n", (unsigned long long)run.seed);
    run_scenario(&run, steps);
    (void)printf("%s: %u steps, %llu crash points, %llu states, %llu of recovery itself\n", argv[1],
                 run.step, (unsigned long long)run.points, (unsigned long long)run.states,
                 (unsigned long long)run.nested);
    if (run.kind == RECORDING_MEMORY && !run.has_failed &&
        (run.streamed_bytes == 0 || run.in_place_bytes == 0)) {
        (void)printf("FAILED: no batch was streamed, or none written in place\n");
        return 1;
    }
    if (run.fault != RECORDING_SOUND && !run.has_failed) {
        (void)printf("FAILED: the planted fault was not found\n");
    }
    return run.has_failed == (run.fault != RECORDING_SOUND) ? 0 : 1;
}
