/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting inside the client. One thread at a time is the sleeper: it sleeps on the fabrics' descriptors
 * with the fabrics armed. Other waiting threads sleep on a condition variable until somebody makes
 * progress. A thread that drove the engine while another sleeps has disarmed the fabrics, so on leaving it
 * arms them again in the sleeper's name; or, if the sleeper is the io thread, sends that one off to nap (so
 * that a busy application costs the broker no wake-ups).
 *
 * Happy path of a blocking call: drive, look, spin for `spin.us` after the last activity if that has paid of late
 * (base/spin.h), arm, sleep, drive.
 * Nothing here fails: a failing epoll_wait only shortens the sleep. EINTR is a wake-up like another.
 */
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/engine.h"

#define SLEEP_MS_MAX 60000
#define CLOSE_LOOK_US 100

/* 1: something is there already. */
static bool arm_fabrics(struct fq_engine *engine)
{
    bool is_ready = false;
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        if (engine->fabrics[t]) {
            is_ready |= fq_fabric_arm(engine->fabrics[t]) != 0;
        }
    }
    return is_ready;
}

static void disarm_fabrics(struct fq_engine *engine)
{
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        if (engine->fabrics[t]) {
            fq_fabric_disarm(engine->fabrics[t]);
        }
    }
}

static bool members_have_work(struct fq_engine *engine)
{
    bool has_work = false;
    for (struct fq_chain *at = engine->members.next; at != &engine->members; at = at->next) {
        struct fq_member *member = fq_chain_item(at, struct fq_member, node);
        has_work |= member->ops->before_sleep(member);
    }
    return has_work;
}

static void kick_sleeper(struct fq_engine *engine)
{
    if (engine->has_sleeper && !engine->is_kicked) {
        engine->is_kicked = true;
        fq_wake_signal(&engine->kick);
    }
}

static void sleep_armed(struct fq_engine *engine, int64_t deadline_us, bool is_io)
{
    if (members_have_work(engine) || arm_fabrics(engine)) {
        disarm_fabrics(engine);
        return;
    }
    int64_t due = fq_engine_next_deadline_us(engine);
    engine->sleeper_due_us = due < deadline_us ? due : deadline_us;
    int timeout = fq_deadline_poll_ms(fq_mono_us(), engine->sleeper_due_us);
    timeout = timeout < 0 || timeout > SLEEP_MS_MAX ? SLEEP_MS_MAX : timeout;
    fq_wake_arm(&engine->kick);
    engine->has_sleeper = true;
    engine->sleeper_is_io = is_io;
    engine->was_polled = engine->is_kicked = false;

    struct epoll_event events[FQ_ENGINE_FABRICS + 1];
    (void)pthread_mutex_unlock(&engine->lock);
    (void)epoll_wait(engine->epoll_fd, events, FQ_ENGINE_FABRICS + 1, timeout);
    fq_engine_lock(engine);

    fq_wake_disarm(&engine->kick);
    engine->has_sleeper = false;
    disarm_fabrics(engine);
}

/* After driving while another call sleeps: everything is left so that it wakes when it must. */
static void keep_sleeper_armed(struct fq_engine *engine)
{
    engine->was_polled = false;
    bool has_work = members_have_work(engine);
    has_work |= arm_fabrics(engine);
    if (has_work || fq_engine_next_deadline_us(engine) < engine->sleeper_due_us) {
        kick_sleeper(engine);
    }
}

/* What the peer wrote into this process's memory is there before the notify that tells of it: taken at once, it saves the
 * way through the fabric. The notify is met by a later turn, while the next answer is on its way. */
static bool has_come(const struct fq_engine *engine)
{
    struct fq_member *member = engine->looking;
    return member && member->ops->look && member->ops->look(member);
}

static bool has_news(void *context)
{
    struct fq_engine *engine = context;
    if (has_come(engine)) {
        return true;
    }
    for (int t = 0; t < FQ_ENGINE_FABRICS; t++) {
        if (engine->fabrics[t] && fq_fabric_has_news(engine->fabrics[t])) {
            return true;
        }
    }
    /* Somebody wants the lock. Only a hint, so no order is needed: it is taken by the mutex. */
    return atomic_load_explicit(&engine->lock_wanted, memory_order_relaxed) != 0;
}

/* The looks are at memory that a thread with the lock may give back, so they are made with it; who is alone pays nothing
 * for that, and gives way to whoever waits for it. */
static void spin_turn(struct fq_engine *engine, int64_t waited_us)
{
    bool is_alone = engine->waiters <= 1 && engine->cond_waiters == 0 && !fq_spin_yields(waited_us) &&
                    atomic_load_explicit(&engine->lock_wanted, memory_order_relaxed) == 0;
    if (is_alone) {
        (void)fq_spin_turn_looking(waited_us, has_news, engine);
        if (atomic_load_explicit(&engine->lock_wanted, memory_order_relaxed) == 0) {
            return;
        }
    }
    (void)pthread_mutex_unlock(&engine->lock);
    fq_spin_turn(waited_us);
    fq_engine_lock(engine);
}

void fq_engine_lock(struct fq_engine *engine)
{
    if (pthread_mutex_trylock(&engine->lock) == 0) {
        return;
    }
    (void)atomic_fetch_add_explicit(&engine->lock_wanted, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&engine->lock);
    (void)atomic_fetch_sub_explicit(&engine->lock_wanted, 1, memory_order_relaxed);
}

void fq_engine_sleep_turn(struct fq_engine *engine, int64_t deadline_us, bool is_io)
{
    int64_t now = fq_mono_us();
    if (fq_spin_goes_on(&engine->spin, engine->active_us, now)) {
        spin_turn(engine, now - engine->active_us);
        return;
    }
    sleep_armed(engine, deadline_us, is_io);
}

/* ---- waiters -------------------------------------------------------------------------------- */

static void wait_for_progress(struct fq_engine *engine, int64_t deadline_us)
{
    int64_t latest = fq_mono_us() + INT64_C(1000) * SLEEP_MS_MAX;
    int64_t until = deadline_us < latest ? deadline_us : latest;
    struct timespec at = {.tv_sec = (time_t)(until / 1000000),
                          .tv_nsec = (long)(until % 1000000) * 1000};
    engine->cond_waiters++;
    (void)pthread_cond_timedwait(&engine->progress, &engine->lock, &at);
    engine->cond_waiters--;
}

static void wait_a_turn(struct fq_engine *engine, int64_t deadline_us)
{
    if (engine->has_sleeper && !engine->sleeper_is_io) {
        keep_sleeper_armed(engine);
        wait_for_progress(engine, deadline_us);
    } else if (engine->has_sleeper) {
        kick_sleeper(engine); /* the io thread makes room; meanwhile look again soon */
        (void)pthread_mutex_unlock(&engine->lock);
        (void)sched_yield();
        fq_engine_lock(engine);
    } else {
        fq_engine_sleep_turn(engine, deadline_us, false);
    }
}

int fq_engine_wait(struct fq_engine *engine, int64_t deadline_us, bool (*ready)(void *context),
                   void *context)
{
    return fq_member_wait(engine, NULL, deadline_us, ready, context);
}

void fq_member_quiesce(struct fq_engine *engine, struct fq_member *member)
{
    member->is_closing = true;
    while (member->calls > 0) {
        fq_engine_progress(engine);
        (void)pthread_mutex_unlock(&engine->lock);
        (void)usleep(CLOSE_LOOK_US);
        fq_engine_lock(engine);
    }
}

int fq_member_wait(struct fq_engine *engine, struct fq_member *member, int64_t deadline_us,
                   bool (*ready)(void *context), void *context)
{
    int code = 0;
    engine->waiters++;
    for (;;) {
        (void)fq_engine_drive(engine);
        if (ready(context)) {
            break;
        }
        if (engine->is_closing || (member && member->is_closing)) {
            code = FLASHQ_ERR_CLOSED;
            break;
        }
        if (engine->now_us >= deadline_us) {
            code = FLASHQ_ERR_TIMED_OUT;
            break;
        }
        engine->looking = member;
        wait_a_turn(engine, deadline_us);
        engine->looking = NULL;
        if (ready(context)) {
            fq_spin_found(&engine->spin, engine->now_us);
            break;
        }
    }
    engine->waiters--;
    engine->app_entries++;
    if (engine->waiters > 0) {
        fq_engine_progress(engine); /* another waiter must become the sleeper */
    } else if (engine->io_parked) {
        (void)pthread_cond_signal(&engine->io_cond);
    }
    return code;
}

void fq_engine_progress(struct fq_engine *engine)
{
    if (engine->cond_waiters > 0) {
        (void)pthread_cond_broadcast(&engine->progress);
    }
    if (engine->has_sleeper && !engine->sleeper_is_io) {
        kick_sleeper(engine);
    }
}

void fq_engine_leave(struct fq_engine *engine)
{
    if (engine->has_sleeper && engine->sleeper_is_io) {
        kick_sleeper(engine); /* it goes to nap, and looks after things when this caller is gone */
    } else if (engine->has_sleeper && engine->was_polled) {
        keep_sleeper_armed(engine);
    }
    (void)pthread_mutex_unlock(&engine->lock);
}

/* ---- flashq_client_fd ----------------------------------------------------------------------- */

static bool members_have_news(struct fq_engine *engine)
{
    for (struct fq_chain *at = engine->members.next; at != &engine->members; at = at->next) {
        struct fq_member *member = fq_chain_item(at, struct fq_member, node);
        if (member->ops->has_news(member)) {
            return true;
        }
    }
    return false;
}

void fq_engine_news(struct fq_engine *engine)
{
    uint64_t count = 1;
    bool has_news = engine->news_wanted && members_have_news(engine);
    if (has_news == engine->news_set) {
        return;
    }
    ssize_t done = has_news ? write(engine->news_fd, &count, sizeof count)
                            : read(engine->news_fd, &count, sizeof count);
    if (done == (ssize_t)sizeof count) { /* else the next change tries again */
        engine->news_set = has_news;
    }
}
