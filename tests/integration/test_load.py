# SPDX-License-Identifier: Apache-2.0
"""Many clients on one partition, and what is done to the log under them: nothing lost, doubled or wrong."""
import signal
import subprocess
import threading
import time
import unittest

import harness
import tap

TRANSPORTS = ("shm", "tcp")
GONE = ("producers.open", "producers.rings.open", "readers.open", "readers.segments.held",
        "readers.segments.retiring")


def feed(process, lines):
    """Writes lines to a process in the background, until it ends or the lines do."""
    def write():
        try:
            for line in lines:
                process.stdin.write(line)
            process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


class Reading:
    """Collects what a process prints, `pause` seconds of sleep every 500 lines."""

    def __init__(self, process, pause=0.0):
        self.process = process
        self.lines = []
        self.pause = pause
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if self.pause and len(self.lines) % 500 == 0:
                time.sleep(self.pause)

    def finish(self, timeout=60):
        self.process.wait(timeout)
        self.thread.join(timeout)
        return self.lines


class ManyOnOnePartition(unittest.TestCase):
    def test_each_producers_records_come_once_and_in_order_to_every_consumer(self):
        each = harness.scaled(20000, 4000)
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            consumers = [Reading(broker.popen("sub", "t", "-o", "start", "-n", str(8 * each),
                                              transport=TRANSPORTS[index % 2])) for index in range(4)]
            producers = [broker.popen("pub", "t", transport=TRANSPORTS[index % 2],
                                      stdin=subprocess.PIPE) for index in range(8)]
            for index, producer in enumerate(producers):
                feed(producer, [b"%d %d\n" % (index, number) for number in range(each)])
            for producer in producers:
                self.assertEqual(producer.wait(120), 0, producer.stderr.read())
            for consumer in consumers:
                expected = [0] * 8
                for line in consumer.finish():
                    index, number = map(int, line.split())
                    self.assertEqual(number, expected[index], f"producer {index}")
                    expected[index] += 1
                self.assertEqual(expected, [each] * 8)

    def test_killed_clients_leave_nothing_behind(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t", "-p", "3")
            for _ in range(harness.scaled(8, 3)):
                clients = []
                for index in range(6):
                    transport = TRANSPORTS[index % 2]
                    if index < 3:
                        client = broker.popen("pub", "t", transport=transport, stdin=subprocess.PIPE)
                        feed(client, (b"%d\n" % number for number in range(1000000)))
                    else:
                        client = broker.popen("sub", "t", "-o", "start", transport=transport,
                                              stdout=subprocess.DEVNULL)
                    clients.append(client)
                time.sleep(0.3)
                for client in clients:
                    client.kill()
                    client.wait()
            harness.wait_for("all of them to be forgotten",
                             lambda: not any(broker.counters()[name] for name in GONE))
            stored = broker.counters()["append.records"]
            lines = broker.flashq("sub", "t", "-o", "start", "-e").count(b"\n")
            self.assertEqual(lines, stored)


class Taken(unittest.TestCase):
    """The log is cut, removed or its broker restarted while it is read and written."""

    def slow_reader(self, broker, transport, take):
        """A reader that is much slower than `take` removes what it reads: it stands still for a while."""
        reading = Reading(broker.popen("sub", "t", "-o", "start", "-f", "%o %v\\n",
                                       transport=transport), pause=0.01)
        batch = harness.scaled(20000, 10000)
        for turn in range(10):
            if turn in (2, 8):
                reading.process.send_signal(signal.SIGSTOP if turn == 2 else signal.SIGCONT)
            broker.flashq("pub", "t", transport=transport,
                          input=b"".join(b"%d %s\n" % (turn * batch + number, b"x" * 80)
                                         for number in range(batch)))
            take()
        broker.flashq("pub", "t", "%d" % (10 * batch), transport=transport)
        harness.wait_for("the reader to come to the end",
                         lambda: reading.lines and reading.lines[-1].startswith(b"%d " % (10 * batch)), 60)
        reading.process.send_signal(signal.SIGINT)
        lines = reading.finish()
        stderr = reading.process.stderr.read().decode()
        offsets = [int(line.split()[0]) for line in lines]
        values = [int(line.split()[1]) for line in lines]
        self.assertEqual(offsets, values, f"{transport}: bytes of another record")
        self.assertEqual(offsets, sorted(set(offsets)))
        gaps = sum(after != before + 1 for before, after in zip(offsets, offsets[1:]))
        gaps += offsets[0] != 0
        self.assertGreater(gaps, 0, "nothing was taken away: the test proves nothing")
        self.assertGreaterEqual(stderr.count("trimmed before they were read"), gaps, stderr)
        self.assertEqual(reading.process.returncode, 1, "records were lost to this reader")

    def test_retention_passes_a_slow_reader(self):
        for transport in TRANSPORTS:
            with harness.scratch() as folder, \
                    harness.Broker(folder, settings={"log.segment.bytes": "1MiB"}) as broker:
                broker.flashq("topic", "create", "t", "-c", "retention.bytes=2MiB")
                self.slow_reader(broker, transport, lambda: None)

    def test_trim_passes_a_slow_reader(self):
        for transport in TRANSPORTS:
            with harness.scratch() as folder, \
                    harness.Broker(folder, settings={"log.segment.bytes": "1MiB"}) as broker:
                broker.flashq("topic", "create", "t")
                self.slow_reader(broker, transport, lambda: broker.flashq(
                    "topic", "trim", "t", "-p", "0", "--before", "end"))

    def test_a_topic_deleted_under_load_ends_its_clients_with_a_reason(self):
        for transport in TRANSPORTS:
            with harness.scratch() as folder, harness.Broker(folder) as broker:
                broker.flashq("topic", "create", "t")
                consumer = broker.popen("sub", "t", "-o", "start", transport=transport,
                                        stdout=subprocess.DEVNULL)
                producer = broker.popen("pub", "t", transport=transport, stdin=subprocess.PIPE)
                feed(producer, (b"%d\n" % number for number in range(100000000)))
                time.sleep(0.5)
                broker.flashq("topic", "delete", "t")
                self.assertEqual(consumer.wait(20), 4)
                self.assertIn(b"deleted", consumer.stderr.read())
                self.assertEqual(producer.wait(20), 1)
                self.assertRegex(producer.stderr.read(), rb"not delivered.*deleted")
                harness.wait_for("all of them to be forgotten",
                                 lambda: not any(broker.counters()[name] for name in GONE))
                broker.flashq("topic", "create", "t")
                broker.flashq("pub", "t", "new")
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"new\n")

    def test_restarts_under_load_lose_and_double_nothing(self):
        count = harness.scaled(300000, 100000)
        for transport in TRANSPORTS:
            with harness.scratch() as folder, \
                    harness.Broker(folder, settings={"log.segment.bytes": "1MiB"}) as broker:
                broker.flashq("topic", "create", "t")
                reading = Reading(broker.popen("sub", "t", "-o", "start", "-n", str(count),
                                               transport=transport))
                producer = broker.popen("pub", "t", transport=transport, stdin=subprocess.PIPE)

                def lines():
                    for number in range(count):
                        yield b"%d\n" % number
                        if number % 1000 == 0:
                            time.sleep(0.005)
                feed(producer, lines())
                for turn in range(4):
                    time.sleep(0.2)
                    if turn % 2:
                        broker.kill()
                    else:
                        self.assertEqual(broker.stop(), 0)
                    time.sleep(0.1)
                    broker.start()
                self.assertEqual(producer.wait(60), 0, producer.stderr)
                self.assertEqual([int(line) for line in reading.finish()], list(range(count)))


if __name__ == "__main__":
    tap.main()
