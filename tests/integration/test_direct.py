# SPDX-License-Identifier: Apache-2.0
"""Topics with append=direct: records lie where their producer wrote them, one producer a partition; broker and
producers killed and stopped: nothing acknowledged is lost, nothing stored twice."""
import json
import signal
import subprocess
import threading
import time
import unittest

import harness
import tap
from acknowledged import Publisher, Stored

SEGMENTS = {"log.segment.bytes": "2MiB"}


def make_topic(broker, *more):
    broker.flashq("topic", "create", "t", "-c", "append=direct", *more)


def feed(process, data):
    def write():
        try:
            process.stdin.write(data)
            process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


class Records(unittest.TestCase):
    def test_records_of_random_sizes_in_many_segments_come_back_as_they_were(self):
        rng = harness.seeded("direct records")
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker, "-p", "3")
            lines, total, most = [], 0, harness.scaled(60, 15) << 20
            while total < most:
                size = rng.choice((rng.randrange(100), rng.randrange(5000), rng.randrange(100000),
                                   rng.randrange(900000)))
                line = {"partition": rng.randrange(3), "timestamp_ms": 1 + len(lines),
                        "value": f"{len(lines)}:" + chr(97 + rng.randrange(26)) * size}
                total += size
                lines.append(line)
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            half = data.index(b"\n", len(data) // 2) + 1
            broker.flashq("pub", "t", "--in", "jsonl", transport="tcp", input=data[:half])
            broker.flashq("-X", "batch.max.bytes=20000", "pub", "t", "-z", "lz4", "--in", "jsonl",
                          transport="tcp", input=data[half:])
            topic = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))
            self.assertEqual(sum(part["end"] for part in topic["partitions"]), len(lines))
            for transport in ("shm", "tcp"):
                out = broker.flashq("sub", "t", "-o", "start", "-e", "-O", "jsonl", transport=transport)
                found = [[], [], []]
                for record in harness.json_lines(out):
                    self.assertEqual(record["offset"], len(found[record["partition"]]))
                    found[record["partition"]].append((record["timestamp_ms"], record["value"]))
                for partition in range(3):
                    sent = [(line["timestamp_ms"], line["value"]) for line in lines
                            if line["partition"] == partition]
                    self.assertTrue(found[partition] == sent, f"{transport}: partition {partition} differs")

    def test_sizes_around_the_largest_record(self):  # case 32
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker)
            expected = []
            for turn in range(4):  # segments grow: the rest of each is too small for these
                for size in ((1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1):
                    code = 0 if size <= 1 << 20 else 1
                    stderr = broker.run("pub", "t", "-D", "", transport="tcp", code=code,
                                        input=b"%d" % turn * size)[1]
                    if code:
                        self.assertRegex(stderr, "message.max.bytes")
                    else:
                        expected.append(size)
            out = broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%V\n")
            self.assertEqual([int(size) for size in out.split()], expected)

    def test_a_restart_between_any_two_batches_leaves_no_seam(self):
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker)
            expected = b""
            for turn in range(6):
                block = b"".join(b"%d-%d-%s\n" % (turn, number, b"x" * 500) for number in range(1000))
                broker.flashq("pub", "t", transport="tcp", input=block)
                expected += block
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), expected)
                if turn % 2:
                    broker.kill()
                else:
                    self.assertEqual(broker.stop(), 0)
                broker.start()
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), expected)


class Transport(unittest.TestCase):
    def test_where_the_transport_is_left_open_it_is_tcp(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            make_topic(broker)
            either = f"127.0.0.1:{broker.port}"
            harness.flashq("pub", "t", "one", brokers=either)
            harness.flashq("pub", "t", "two", brokers=f"shm:{broker.socket},{either}")
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"one\ntwo\n")
            with subprocess.Popen([harness.FLASHQ, "-b", either, "pub", "t"], stdin=subprocess.PIPE) as pub:
                pub.stdin.write(b"three\n")
                pub.stdin.flush()
                harness.wait_for("the third", lambda: broker.counters()["append.records"] >= 3)
                broker.kill()  # both connections come back
                broker.start()
                pub.stdin.write(b"four\n")
                pub.stdin.close()
                self.assertEqual(pub.wait(20), 0)
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"one\ntwo\nthree\nfour\n")

    def test_shared_memory_is_refused_with_the_reason(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            make_topic(broker)
            begun = time.monotonic()
            stderr = broker.run("pub", "t", "one", transport="shm", code=1)[1]
            self.assertRegex(stderr, "direct.*tcp")
            stderr = harness.flashq("-X", "transport=shm", "pub", "t", "one", code=1,
                                    brokers=f"127.0.0.1:{broker.port}")[1]
            self.assertRegex(stderr, "direct.*tcp")
            self.assertLess(time.monotonic() - begun, 20, "it is told at once")
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"")


class OneProducer(unittest.TestCase):
    def hold(self, broker):
        """A publisher that has the partition."""
        before = broker.counters()["append.records"]
        holder = broker.popen("pub", "t", transport="tcp", stdin=subprocess.PIPE)
        holder.stdin.write(b"held\n")
        holder.stdin.flush()
        harness.wait_for("the holder to hold", lambda: broker.counters()["append.records"] > before)
        return holder

    def test_a_second_one_is_refused_until_the_first_has_closed(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            make_topic(broker)
            holder = self.hold(broker)
            stderr = broker.run("-X", "delivery.timeout.ms=4s", "pub", "t", "second", transport="tcp",
                                code=1)[1]
            self.assertIn("not delivered", stderr)
            self.assertRegex(stderr, "held|holds|exclusive")
            waiting = broker.popen("pub", "t", transport="tcp", stdin=subprocess.PIPE)
            feed(waiting, b"third\n")
            time.sleep(0.5)
            self.assertIsNone(waiting.poll(), "it waits for its turn")
            holder.stdin.write(b"still held\n")
            holder.stdin.close()
            self.assertEqual(holder.wait(20), 0, holder.stderr.read())
            self.assertEqual(waiting.wait(20), 0, waiting.stderr.read())
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"held\nstill held\nthird\n")

    def test_an_idle_holder_that_lives_is_never_fenced(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            make_topic(broker)
            holder = self.hold(broker)
            stderr = broker.run("-X", f"delivery.timeout.ms={harness.scaled(10, 5)}s", "pub", "t", "second",
                                transport="tcp", code=1)[1]
            self.assertRegex(stderr, "held|holds|exclusive")
            self.assertEqual(holder.communicate(b"on\n", 20)[1], b"")
            self.assertEqual(holder.returncode, 0)
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"held\non\n")

    def test_a_killed_one_is_replaced_and_what_it_was_told_is_there(self):
        rng = harness.seeded("direct killed producers")
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker)
            acked, stored = {}, Stored(self, broker, "shm")
            for cycle in range(harness.scaled(20, 5)):
                publisher = Publisher(broker, "tcp", b"c%d" % cycle, acked, give_up_ms=20000)
                before = len(acked)
                harness.wait_for("the next to take over", lambda: len(acked) > before, 15)
                time.sleep(rng.random() * 0.2)
                publisher.finish()
                self.assertEqual(publisher.problems, [])
                stored.look(acked)
                acked.clear()

    def stopped(self, broker, does_hold):
        """A holder is stopped, another takes over; the first comes back while the second still holds, or not."""
        make_topic(broker)
        acked, others, stored = {}, {}, Stored(self, broker, "shm")
        first = Publisher(broker, "tcp", b"first", acked, rate=20000, give_up_ms=4000)
        harness.wait_for("the first to hold", lambda: len(acked) > 1000)
        first.process.send_signal(signal.SIGSTOP)
        second = Publisher(broker, "tcp", b"second", others, rate=20000, give_up_ms=20000)
        harness.wait_for("the second to take over", lambda: len(others) > 1000, 20)
        if not does_hold:
            self.assertEqual(second.end(), 0, second.stderr)
        first.process.send_signal(signal.SIGCONT)
        if does_hold:
            time.sleep(1.0)
            taken = len(others)
            harness.wait_for("the second to go on", lambda: len(others) > taken + 1000)
            self.assertEqual(second.end(), 0, second.stderr)
        harness.wait_for("the first to hold again", lambda: max(acked) > max(others), 20)
        code = first.end()
        if does_hold:
            self.assertEqual(code, 1)
            self.assertRegex(first.stderr.decode(), "taken the partition over|another producer")
        else:
            self.assertEqual(code, 0, first.stderr)
        self.assertEqual(first.problems + second.problems, [])
        stored.look(acked)
        stored.look_at_all(others)
        told = set(acked.values()) | set(others.values())
        extra = [value for value in stored.values if value not in told]
        self.assertEqual(extra if not does_hold else [], [], "stored, and never acknowledged")
        for prefix in (b"first", b"second"):
            order = [value for value in stored.values if value.startswith(prefix)]
            self.assertEqual(order, sorted(order))

    def test_a_stopped_one_is_fenced_and_does_not_fight(self):
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            self.stopped(broker, True)

    def test_a_stopped_one_goes_on_where_nobody_is_in_its_place(self):
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            self.stopped(broker, False)


class BrokerTrouble(unittest.TestCase):
    def test_kills_at_random_moments(self):  # case 27
        rng = harness.seeded("direct broker kills")
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker)
            acked, total, stored = {}, 0, Stored(self, broker, "tcp")
            count = harness.scaled(40, 5)
            for cycle in range(count):
                publisher = Publisher(broker, "tcp", b"c%d" % cycle, acked)
                time.sleep(0.05 + rng.random() * 0.4)
                broker.kill()
                time.sleep(0.02)
                publisher.finish()
                self.assertEqual(publisher.problems, [])
                broker.start()
                stored.look(acked)
                total += len(acked)
                acked.clear()
            stored.look_at_all({})
            self.assertGreater(total, 100 * count, "load was too light to prove anything")

    def test_one_publisher_lives_through_kills_and_stops_without_gap_or_duplicate(self):  # cases 27, 28
        rng = harness.seeded("direct one publisher")
        lines = b"".join(b"%09d\n" % number for number in range(200000))
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            make_topic(broker)
            process = broker.popen("-X", "delivery.timeout.ms=60000", "pub", "t", "--rate", "40000",
                                   transport="tcp", stdin=subprocess.PIPE)
            feeder = feed(process, lines)
            for turn in range(harness.scaled(8, 4)):
                time.sleep(0.1 + rng.random() * 0.4)
                if turn % 2:
                    broker.pause()
                    time.sleep(harness.scaled(5.0, 1.0))
                    broker.resume()
                else:
                    broker.kill()
                    broker.start()
            feeder.join(60)
            self.assertEqual(process.wait(90), 0, process.stderr.read())
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), lines)

    def test_a_topic_deleted_under_load_ends_its_producer_with_a_reason(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            make_topic(broker)
            acked = {}
            publisher = Publisher(broker, "tcp", b"x", acked)
            harness.wait_for("some to be acknowledged", lambda: len(acked) > 1000)
            broker.flashq("topic", "delete", "t")
            publisher.process.wait(20)
            publisher.finish()
            self.assertEqual(publisher.process.returncode, 1)
            self.assertRegex(publisher.stderr, rb"not delivered.*deleted")
            make_topic(broker)
            broker.flashq("pub", "t", "new", transport="tcp")
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"new\n")


if __name__ == "__main__":
    tap.main()
