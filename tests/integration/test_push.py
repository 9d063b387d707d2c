# SPDX-License-Identifier: Apache-2.0
"""Many subscribers that are pushed to: one that stands still and one that is slow cost the others and the publisher nothing,
and the broker no memory; what they missed they get later."""
import json
import re
import signal
import threading
import time
import unittest

import harness
import tap

SUBSCRIBERS = 98
PROCESSES = 2
SIZE = 100
ANONYMOUS_MIB = 96  # of the broker; rings and segments are shared memory


def anonymous_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        return int(re.search(r"RssAnon:\s+(\d+)", text.read()).group(1)) >> 10


class Offsets:
    """`flashq sub --push` that prints offsets; the reader takes them as slowly as it is told."""

    def __init__(self, broker, transport, count, pause=0.0):
        self.count = count
        self.seen = 0
        self.pause = pause
        self.error = None
        self.process = broker.popen("-X", "push.buffer.bytes=1MiB", "sub", "t", "--push", "-o", "end", "-n", str(count),
                                    "-f", "%o\\n", transport=transport)
        self.thread = threading.Thread(target=self.take, daemon=True)
        self.thread.start()

    def take(self):
        for line in self.process.stdout:
            if int(line) != self.seen:
                self.error = f"offset {int(line)} after {self.seen} records"
                return
            self.seen += 1
            if self.pause and self.seen % 100 == 0:
                time.sleep(self.pause)

    def finish(self, test):
        self.pause = 0.0
        test.assertEqual(self.process.wait(120), 0, self.process.stderr.read())
        self.thread.join(120)
        test.assertIsNone(self.error)
        test.assertEqual(self.seen, self.count)


class Push(unittest.TestCase):
    def check(self, transport):
        count = harness.scaled(100000, 30000)  # more bytes than a ring has
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            stalled = Offsets(broker, transport, count)
            slow = Offsets(broker, transport, count, pause=0.05)
            crowd = [broker.popen("-O", "json", "-X", "push.buffer.bytes=1MiB", "bench", "sub", "t", "--mode", "push", "-o",
                                  "end", "-n", str(count), "--clients", str(SUBSCRIBERS // PROCESSES), "--size", str(SIZE),
                                  "--verify", transport=transport) for _ in range(PROCESSES)]
            for process in [stalled.process, slow.process, *crowd]:
                self.addCleanup(process.kill)  # one that is stopped would stay
            harness.wait_for("all to be pushed to", lambda: broker.counters()["push.open"] == SUBSCRIBERS + 2, 60)
            publish = ("bench", "pub", "t", "--size", str(SIZE), "--no-latency", "-n")
            broker.flashq(*publish, "1000", transport=transport)
            harness.wait_for("the first records", lambda: stalled.seen >= 1000, 60)
            stalled.process.send_signal(signal.SIGSTOP)
            broker.flashq(*publish, str(count - 1000), transport=transport)
            for process in crowd:
                out, text = process.communicate(timeout=300)
                self.assertEqual(process.returncode, 0, text)
                document = json.loads(out)
                self.assertEqual(document["verified"]["records"], count * (SUBSCRIBERS // PROCESSES))
            self.assertLess(stalled.seen, count, "it did not stand still")
            self.assertGreater(broker.counters()["push.stalled"], 0)
            most = anonymous_mib(broker.process.pid)
            print(f"# {transport}: the broker's own memory: {most} MiB, the slow one had {slow.seen} of {count}", flush=True)
            if not harness.SANITIZED:
                self.assertLess(most, ANONYMOUS_MIB)
            stalled.process.send_signal(signal.SIGCONT)
            stalled.finish(self)
            slow.finish(self)
            harness.wait_for("all to be gone", lambda: broker.counters()["push.open"] == 0)

    def test_one_that_stands_still_stalls_nobody_else_shm(self):
        self.check("shm")

    def test_one_that_stands_still_stalls_nobody_else_tcp(self):
        self.check("tcp")


if __name__ == "__main__":
    tap.main()
