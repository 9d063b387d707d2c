# SPDX-License-Identifier: Apache-2.0
"""A publisher that is faster than its broker or the medium is slowed down: its memory stays bounded, nothing is dropped."""
import os
import re
import subprocess
import threading
import time
import unittest

import harness
import tap

QUEUE_MIB = 4
PROGRAM_MIB = 32  # code, libraries, the broker's mapped ring, input buffers


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        return int(re.search(r"VmHWM:\s+(\d+)", text.read()).group(1)) >> 10


class Endless:
    """`flashq pub` with more input than any queue holds; numbers, so that what arrives can be counted."""

    def __init__(self, broker, transport, count):
        self.process = broker.popen("-X", f"queue.bytes={QUEUE_MIB}MiB", "-X", "message.max.bytes=64KiB", "pub",
                                    "t", transport=transport, stdin=subprocess.PIPE)
        self.fed = 0
        threading.Thread(target=self.feed, args=(count,), daemon=True).start()

    def feed(self, count):
        try:
            for number in range(0, count, 1000):
                self.process.stdin.write(b"".join(b"%d\n" % (number + index) for index in range(1000)))
                self.fed = number + 1000
            self.process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass


class Flow(unittest.TestCase):
    def test_a_stopped_broker_holds_its_publisher_up(self):  # case 28
        count = harness.scaled(3000000, 1000000)
        for transport in ("shm", "tcp"):
            with harness.scratch() as folder, harness.Broker(folder) as broker:
                broker.flashq("topic", "create", "t")
                publisher = Endless(broker, transport, count)
                harness.wait_for("records", lambda: broker.counters()["append.records"] > 1000)
                broker.pause()
                time.sleep(harness.scaled(3.0, 1.0))
                fed = publisher.fed
                time.sleep(0.5)
                self.assertEqual(publisher.fed, fed, "it still takes input")
                self.assertLess(fed, count)
                broker.resume()
                self.assertEqual(publisher.process.wait(120), 0, publisher.process.stderr)
                out = broker.flashq("sub", "t", "-o", "start", "-e")
                self.assertTrue(out == b"".join(b"%d\n" % number for number in range(count)), "not all, or not once")

    def test_memory_of_a_publisher_is_bounded_while_nothing_is_taken(self):
        for transport in ("shm", "tcp"):
            with harness.scratch() as folder, harness.Broker(folder) as broker:
                broker.flashq("topic", "create", "t")
                publisher = Endless(broker, transport, 100000000)
                harness.wait_for("records", lambda: broker.counters()["append.records"] > 1000)
                broker.pause()
                time.sleep(harness.scaled(5.0, 2.0))
                most = resident_mib(publisher.process.pid)
                publisher.process.kill()
                publisher.process.wait()
                broker.resume()
                print(f"# {transport}: at most {most} MiB", flush=True)
                if not harness.SANITIZED:
                    self.assertLess(most, QUEUE_MIB + PROGRAM_MIB)

    def test_a_slow_medium_slows_its_publisher(self):
        count = harness.scaled(3000000, 1000000)
        with harness.scratch("disk") as folder:
            switch = os.path.join(folder, "switch")
            with open(switch, "w", encoding="ascii") as text:
                text.write("slow")  # every fdatasync takes 20 ms
            library = os.environ.get("FLASHQ_FAIL_IO_LIBRARY") or os.path.join(
                harness.BUILD, "tests", "integration", "libflashq_fail_io.so")
            with harness.Broker(folder, flush="sync", env={"LD_PRELOAD": library, "FLASHQ_FAIL_IO": switch}) as broker:
                broker.flashq("topic", "create", "t")
                publisher = Endless(broker, "tcp", count)
                most = 0
                while publisher.process.poll() is None:
                    try:
                        most = max(most, resident_mib(publisher.process.pid))
                    except (AttributeError, FileNotFoundError, ProcessLookupError):
                        break
                    time.sleep(0.05)
                self.assertEqual(publisher.process.wait(120), 0, publisher.process.stderr)
                if not harness.SANITIZED:
                    self.assertLess(most, QUEUE_MIB + PROGRAM_MIB)
                out = broker.flashq("sub", "t", "-o", "start", "-e")
                self.assertTrue(out == b"".join(b"%d\n" % number for number in range(count)), "not all, or not once")


if __name__ == "__main__":
    tap.main()
