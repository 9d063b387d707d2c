/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each sender numbers its records; a partition keeps their order, several partitions do not keep it among each
 * other. So what was seen of a sender is a set: everything below `low`, and a window of bits above it. The
 * set moves up as it fills; a record that is a whole window ahead leaves behind what never came.
 */
#include "tools/bench_verify.h"

#include <stdlib.h>
#include <string.h>

#include "tools/text.h"

#define WINDOW_BITS (UINT64_C(1) << 24)
#define WORD_BITS 64u
#define WORD_STEP UINT64_C(0x9e3779b97f4a7c15)

struct sender {
    uint32_t run, client;
    uint64_t low;       /* below this nothing is looked for any more */
    uint64_t top;       /* one above the highest seen */
    uint64_t *window;   /* bit sequence % WINDOW_BITS: seen, for low .. low + WINDOW_BITS */
    uint64_t *next;     /* per partition: one above the last seen; 0: none yet */
    uint64_t first_max; /* the highest of the partitions' first ones */
    uint32_t partitions_seen; /* in which there was a record of it */
    uint8_t *body;
};

struct fq_verifier {
    size_t size;
    uint32_t partitions, run;
    bool is_from_start;
    struct sender *senders;
    size_t senders_count, latest; /* index of the sender of the last record */
    struct fq_verify_counts counts;
};

/* ---- bytes --------------------------------------------------------------------------------- */

static uint32_t seal_of(const struct fq_bench_stamp *stamp)
{
    uint64_t words[3], seal = UINT64_C(0x466c617368510001);
    words[0] = (uint64_t)stamp->run << 32 | stamp->client;
    words[1] = stamp->sequence ^ (uint64_t)stamp->body << 56;
    words[2] = (uint64_t)stamp->sent_ns;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        seal = (seal ^ words[i]) * WORD_STEP;
        seal ^= seal >> 29;
    }
    return (uint32_t)(seal >> 32);
}

void fq_bench_seal(struct fq_bench_stamp *stamp)
{
    stamp->seal = seal_of(stamp);
}

bool fq_bench_read_stamp(const void *value, size_t length, struct fq_bench_stamp *ret)
{
    struct fq_bench_stamp stamp;
    if (!value || length < sizeof stamp) {
        return false;
    }
    memcpy(&stamp, value, sizeof stamp);
    if (stamp.seal != seal_of(&stamp) || stamp.body > FQ_BENCH_BODY_RECORD) {
        return false;
    }
    *ret = stamp;
    return true;
}

void fq_bench_fill(uint8_t *value, size_t size, uint32_t client)
{
    uint32_t state = client * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        value[i] = (uint8_t)(state >> 24);
    }
}

static uint64_t seed_of(uint32_t client, uint64_t sequence)
{
    uint64_t seed = (sequence + 1) * UINT64_C(0xd6e8feb86659fd93) + client;
    seed ^= seed >> 32;
    return seed * WORD_STEP;
}

void fq_bench_fill_record(uint8_t *value, size_t size, uint32_t client, uint64_t sequence)
{
    uint64_t word = seed_of(client, sequence);
    size_t at = sizeof(struct fq_bench_stamp);
    for (; at + sizeof word <= size; at += sizeof word) {
        memcpy(value + at, &word, sizeof word);
        word += WORD_STEP;
    }
    if (at < size) {
        memcpy(value + at, &word, size - at);
    }
}

static bool has_record_body(const uint8_t *value, size_t size, uint32_t client, uint64_t sequence)
{
    uint64_t expected = seed_of(client, sequence), there, differs = 0;
    size_t at = sizeof(struct fq_bench_stamp);
    for (; at + sizeof there <= size; at += sizeof there) {
        memcpy(&there, value + at, sizeof there);
        differs |= there ^ expected;
        expected += WORD_STEP;
    }
    return differs == 0 && (at >= size || memcmp(value + at, &expected, size - at) == 0);
}

/* ---- senders ------------------------------------------------------------------------------- */

static bool is_sender(const struct sender *sender, const struct fq_bench_stamp *stamp)
{
    return sender->run == stamp->run && sender->client == stamp->client;
}

static struct sender *sender_of(struct fq_verifier *v, const struct fq_bench_stamp *stamp)
{
    if (v->latest < v->senders_count && is_sender(&v->senders[v->latest], stamp)) {
        return &v->senders[v->latest];
    }
    for (size_t i = 0; i < v->senders_count; i++) {
        if (is_sender(&v->senders[i], stamp)) {
            v->latest = i;
            return &v->senders[i];
        }
    }
    v->senders = fq_realloc_array(v->senders, v->senders_count + 1, sizeof *v->senders);
    struct sender *sender = &v->senders[v->senders_count];
    *sender = (struct sender){.run = stamp->run,
                              .client = stamp->client,
                              .low = v->is_from_start ? 0 : stamp->sequence,
                              .window = fq_alloc(WINDOW_BITS / 8),
                              .next = fq_alloc(v->partitions * sizeof *sender->next),
                              .body = fq_alloc(v->size)};
    fq_bench_fill(sender->body, v->size, stamp->client);
    v->latest = v->senders_count++;
    return sender;
}

static bool is_seen(const struct sender *s, uint64_t sequence)
{
    uint64_t bit = sequence % WINDOW_BITS;
    return (s->window[bit / WORD_BITS] >> bit % WORD_BITS & 1) != 0;
}

static void mark(struct sender *s, uint64_t sequence, bool is_set)
{
    uint64_t bit = sequence % WINDOW_BITS, mask = UINT64_C(1) << bit % WORD_BITS;
    uint64_t *word = &s->window[bit / WORD_BITS];
    *word = is_set ? *word | mask : *word & ~mask;
}

/* Where counting what is missing begins: the first records of a log that was cut are in different places in its
 * partitions, and in one that has shown nothing of the sender yet anything may lie before the cut. */
static uint64_t counted_from(const struct fq_verifier *v, const struct sender *s)
{
    if (v->is_from_start) {
        return 0;
    }
    return s->partitions_seen >= v->partitions ? s->first_max : UINT64_MAX;
}

/* Moves `low` up to `to`, counting what was not seen below it. */
static void leave_behind(struct fq_verifier *v, struct sender *s, uint64_t to)
{
    uint64_t from = counted_from(v, s);
    if (to > s->low && to - s->low > WINDOW_BITS) { /* all of the window, and what lies beyond it */
        uint64_t beyond = s->low + WINDOW_BITS > from ? s->low + WINDOW_BITS : from;
        v->counts.missing += to > beyond ? to - beyond : 0;
    }
    for (uint64_t count = 0; s->low < to && count < WINDOW_BITS; s->low++, count++) {
        v->counts.missing += !is_seen(s, s->low) && s->low >= from;
        mark(s, s->low, false);
    }
    s->low = s->low < to ? to : s->low;
}

static const char *take_sequence(struct fq_verifier *v, struct sender *s, uint32_t partition,
                                 uint64_t sequence)
{
    uint64_t next = s->next[partition];
    if (next == 0) {
        s->partitions_seen++;
        s->first_max = sequence > s->first_max ? sequence : s->first_max;
    }
    if (sequence < s->low) {
        if (!v->is_from_start && sequence >= next) {
            s->next[partition] = sequence + 1; /* another partition's part of a log that was cut */
            return NULL;
        }
        v->counts.duplicates++;
        return "a record came twice";
    }
    if (sequence - s->low >= WINDOW_BITS) {
        leave_behind(v, s, sequence - WINDOW_BITS + 1);
    }
    if (is_seen(s, sequence)) {
        v->counts.duplicates++;
        return "a record came twice";
    }
    mark(s, sequence, true);
    s->top = sequence + 1 > s->top ? sequence + 1 : s->top;
    while (s->low < s->top && is_seen(s, s->low)) {
        mark(s, s->low++, false);
    }
    if (sequence < next) {
        v->counts.reordered++;
        return "a record came after a later one";
    }
    s->next[partition] = sequence + 1;
    return NULL;
}

/* ---- the interface ------------------------------------------------------------------------- */

struct fq_verifier *fq_verifier_create(size_t size, uint32_t partitions, uint32_t run,
                                       bool is_from_start)
{
    struct fq_verifier *v = fq_alloc(sizeof *v);
    *v = (struct fq_verifier){.size = size, .partitions = partitions, .run = run,
                              .is_from_start = is_from_start};
    return v;
}

static void forget_senders(struct fq_verifier *v)
{
    for (size_t i = 0; i < v->senders_count; i++) {
        free(v->senders[i].window);
        free(v->senders[i].next);
        free(v->senders[i].body);
    }
    free(v->senders);
    v->senders = NULL;
    v->senders_count = 0;
}

void fq_verifier_destroy(struct fq_verifier *v)
{
    if (v) {
        forget_senders(v);
        free(v);
    }
}

static const char *corrupt(struct fq_verifier *v, const char *what)
{
    v->counts.records++;
    v->counts.corrupt++;
    return what;
}

const char *fq_verifier_take(struct fq_verifier *v, uint32_t partition, const void *value,
                             size_t length)
{
    struct fq_bench_stamp stamp;
    if (partition >= v->partitions || !fq_bench_read_stamp(value, length, &stamp)) {
        return corrupt(v, "no record of the bench, or its stamp is damaged");
    }
    if (v->run != 0 && stamp.run != v->run) {
        return NULL;
    }
    if (length != v->size) {
        return corrupt(v, "not of the size that was asked for");
    }
    const uint8_t *bytes = value;
    struct sender *sender = sender_of(v, &stamp);
    bool is_whole = stamp.body == FQ_BENCH_BODY_RECORD
                        ? has_record_body(bytes, length, stamp.client, stamp.sequence)
                        : memcmp(bytes + sizeof stamp, sender->body + sizeof stamp,
                                 length - sizeof stamp) == 0;
    if (!is_whole) {
        return corrupt(v, "its bytes are not those that were sent");
    }
    v->counts.records++;
    return take_sequence(v, sender, partition, stamp.sequence);
}

void fq_verifier_finish(struct fq_verifier *v, bool was_all)
{
    for (size_t i = 0; i < v->senders_count; i++) {
        struct sender *s = &v->senders[i];
        uint64_t to = s->top;
        for (uint32_t p = 0; !was_all && p < v->partitions; p++) {
            to = s->next[p] < to ? s->next[p] : to;
        }
        leave_behind(v, s, to);
    }
    forget_senders(v);
}

const struct fq_verify_counts *fq_verifier_counts(const struct fq_verifier *v)
{
    return &v->counts;
}

uint64_t fq_verify_faults(const struct fq_verify_counts *counts)
{
    return counts->missing + counts->duplicates + counts->reordered + counts->corrupt;
}

void fq_verify_add(struct fq_verify_counts *to, const struct fq_verify_counts *from)
{
    to->records += from->records;
    to->missing += from->missing;
    to->duplicates += from->duplicates;
    to->reordered += from->reordered;
    to->corrupt += from->corrupt;
}
