# SPDX-License-Identifier: Apache-2.0
"""Calls of the API judged in the process that makes them, on staged and direct topics, pulled and pushed, over both
transports, while signals interrupt it and the broker is busy, stopped, or gone."""
import os
import subprocess
import time
import unittest

import harness
import tap

CALLS = os.path.join(harness.BUILD, "tests", "integration", "call_client")
MANY = os.path.join(harness.BUILD, "tests", "integration", "many_client")
WATCH_SECONDS = harness.scaled(20, 4)
# A direct topic is published to over tcp only.
PLACES = (("staged", "shm"), ("staged", "tcp"), ("direct", "tcp"))


def start(broker, transport, *arguments, program=CALLS, **options):
    command = [program, arguments[0], broker.address(transport), *map(str, arguments[1:])]
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen(command, stderr=subprocess.PIPE,
                            env=dict(broker.env, MANY_PACE_US="2000"), **options)


class Calls(unittest.TestCase):
    def fine(self, process, what, timeout=100):
        """Its output, once it has ended well."""
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        self.assertEqual((process.returncode, err), (0, b""), what)
        return out

    def make(self, broker, append, name=None, partitions=1):
        name = name or f"{append}-{self.id().rsplit('_', 1)[-1]}"
        broker.flashq("topic", "create", name, "-p", str(partitions), "-c", f"append={append}")
        return name

    def test_seek_pause_resume_and_mode_while_others_produce(self):  # case 15
        rng = harness.seeded("seek")
        rounds = harness.scaled(300, 60)
        with harness.scratch() as folder, \
                harness.Broker(folder, settings={"log.segment.bytes": "1MiB"}) as broker:
            for append, producers in (("staged", 8), ("direct", 1)):
                topic = self.make(broker, append, append)
                feed = start(broker, "tcp", "produce", topic, producers, 100000000, 0, rng.randrange(1 << 30),
                             program=MANY, stdout=subprocess.DEVNULL)
                running = []
                for transport in ("shm", "tcp"):
                    for mode in ("pull", "push", "flip"):
                        running.append((start(broker, transport, "seek", topic, mode, rounds, rng.randrange(1 << 30)),
                                        f"{append} {transport} {mode}"))
                try:
                    for process, what in running:
                        self.fine(process, what)
                finally:
                    feed.kill()
                    feed.communicate()

    def test_sizes_at_every_edge(self):  # case 32
        rng = harness.seeded("sizes")
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for append, transport in PLACES:
                for mode in ("pull", "push"):
                    topic = self.make(broker, append, f"{append}-{transport}-{mode}")
                    seed = rng.randrange(1 << 30)
                    self.fine(start(broker, transport, "sizes", topic, mode, seed), f"{topic} {seed}")

    def test_flush_and_close_without_a_broker_count_what_is_left(self):  # case 39
        for how in ("killed", "stopped"):
            for append, transport in PLACES:
                with harness.scratch() as folder, harness.Broker(folder) as broker:
                    topic = self.make(broker, append, "t", 8)
                    process = start(broker, transport, "close", topic, 8, stdin=subprocess.PIPE)
                    self.assertEqual(process.stdout.readline(), b"ready\n", process)
                    if how == "killed":
                        broker.kill()
                    else:
                        broker.pause()
                        time.sleep(0.2)  # until each of its threads stands still
                    process.stdin.write(b"go\n")
                    process.stdin.flush()
                    self.fine(process, f"{append} {transport} {how}")
                    if how == "stopped":
                        broker.resume()

    def test_nothing_stops_because_nobody_polls(self):  # case 40
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for append, transport in PLACES:
                topic = self.make(broker, append, f"{append}-{transport}")
                self.fine(start(broker, transport, "unpolled", topic), f"{append} {transport}")

    def test_an_idle_crowd_and_its_broker_sleep(self):  # case 41
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            running = []
            for append, transport in PLACES:
                topic = self.make(broker, append, f"{append}-{transport}", 8 if append == "direct" else 1)
                process = start(broker, transport, "idle", topic, 8, 8, stdin=subprocess.PIPE)
                self.assertEqual(process.stdout.readline(), b"ready\n")
                running.append(process)
            time.sleep(1.0)
            for what in ("idle", "without a broker"):
                pids = [process.pid for process in running] + ([broker.process.pid] if what == "idle" else [])
                before = {pid: harness.cpu_seconds(pid) for pid in pids}
                time.sleep(WATCH_SECONDS)
                used = {pid: harness.cpu_seconds(pid) - before[pid] for pid in pids}
                print(f"# {what}: {[round(100 * seconds / WATCH_SECONDS, 2) for seconds in used.values()]} % of a core",
                      flush=True)
                for pid, seconds in used.items():
                    clients = 1 if pid == broker.process.pid else 16
                    if not harness.SANITIZED:
                        self.assertLess(seconds, 0.01 * WATCH_SECONDS * clients + 0.02, what)
                broker.kill()
            for process in running:
                process.kill()
                process.communicate()

    def test_fork_in_the_middle_of_everything(self):  # case 42
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for append, transport in PLACES:
                topic = self.make(broker, append, f"{append}-{transport}")
                self.fine(start(broker, transport, "fork", topic), f"{append} {transport}")

    def test_every_call_ends_by_its_deadline_whatever_the_broker_does(self):  # case 43
        rng = harness.seeded("deadlines")
        run_ms = harness.scaled(20000, 5000)
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            running = []
            for append, transport in PLACES:
                topic = self.make(broker, append, f"{append}-{transport}")
                broker.flashq("pub", topic, "first", transport="tcp")
                running.append((start(broker, transport, "deadline", topic, run_ms, rng.randrange(1 << 30)),
                                f"{append} {transport}"))
            while any(process.poll() is None for process, _ in running):
                time.sleep(rng.random() * 0.4)
                if rng.randrange(6) == 0:
                    broker.kill()
                    time.sleep(rng.random() * 0.5)
                    broker.start()
                else:
                    broker.pause()
                    time.sleep(rng.random() * 0.6)
                    broker.resume()
            for process, what in running:
                print(f"# {what}: {self.fine(process, what).decode().strip()}", flush=True)


if __name__ == "__main__":
    tap.main()
