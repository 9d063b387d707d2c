/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's own thread. It works only while the application does not:
 *
 *   NAP    the application called within the last millisecond: it drives; sleep a millisecond. Should its calls
 *          be of the kind that does not (counters, limits), drive once in a while all the same
 *   PARK   a call of the application waits inside the library all the time: that call drives; sleep until
 *          it returns
 *   WORK   nobody called during a whole nap: drive, spin, arm, sleep on the descriptors
 *
 * A client whose broker is down or silent sleeps in WORK until a back-off or a deadline is due.
 * Cannot fail once started. All signals are blocked in it.
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "client/engine.h"

#define NAP_US 1000
#define STALE_US 5000 /* acknowledgements and the brokers' questions wait no longer than this */

static void nap(struct fq_engine *engine)
{
    int64_t until = fq_mono_us() + NAP_US;
    struct timespec at = {.tv_sec = (time_t)(until / 1000000),
                          .tv_nsec = (long)(until % 1000000) * 1000};
    (void)pthread_cond_timedwait(&engine->io_cond, &engine->lock, &at);
}

static void park(struct fq_engine *engine)
{
    engine->io_parked = true;
    (void)pthread_cond_wait(&engine->io_cond, &engine->lock);
    engine->io_parked = false;
}

static void *run(void *context)
{
    struct fq_engine *engine = context;
    uint64_t entries_seen = 0;
    fq_engine_lock(engine);
    while (!engine->io_stop) {
        bool was_called = engine->app_entries != entries_seen;
        entries_seen = engine->app_entries;
        if (was_called) {
            nap(engine);
            if (engine->waiters == 0 && fq_mono_us() - engine->now_us >= STALE_US) {
                (void)fq_engine_drive(engine);
            }
        } else if (engine->waiters > 0) {
            park(engine);
        } else {
            (void)fq_engine_drive(engine);
            fq_engine_sleep_turn(engine, INT64_MAX, true);
        }
    }
    (void)pthread_mutex_unlock(&engine->lock);
    return NULL;
}

int fq_io_thread_start(struct fq_engine *engine, struct fq_err *err)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&engine->io_thread, NULL, run, engine);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        return fq_err_errno(err, FLASHQ_ERR_FAILED, code, "cannot start the io thread");
    }
    (void)pthread_setname_np(engine->io_thread, "flashq-io");
    engine->has_io_thread = true;
    return 0;
}

void fq_io_thread_stop(struct fq_engine *engine)
{
    if (!engine->has_io_thread) {
        return;
    }
    fq_engine_lock(engine);
    engine->io_stop = true;
    (void)pthread_cond_signal(&engine->io_cond);
    fq_wake_signal(&engine->kick);
    (void)pthread_mutex_unlock(&engine->lock);
    (void)pthread_join(engine->io_thread, NULL);
    engine->has_io_thread = false;
}
