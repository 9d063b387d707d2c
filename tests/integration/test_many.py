# SPDX-License-Identifier: Apache-2.0
"""Pushed and pulled consumers, staged and direct topics, one producer and eight with connections of their own, over
both transports, while broker, producers or consumers are killed and stopped and the log is cut under them: every
record acknowledged once, stored once, received once, in order; counted."""
import collections
import json
import os
import signal
import subprocess
import threading
import time
import unittest

import harness
import tap

PROGRAM = os.path.join(harness.BUILD, "tests", "integration", "many_client")
TRIMMED, UNKNOWN_TOPIC_ID = -12, -27
SEGMENTS = {"log.segment.bytes": "2MiB"}


class Client:
    """A many_client and the lines it prints."""

    def __init__(self, broker, transport, *arguments, settings=(), pace_us=0):
        command = [PROGRAM, arguments[0], broker.address(transport), *map(str, arguments[1:]), *settings]
        self.name = " ".join([transport, *map(str, arguments)])
        self.lines = collections.defaultdict(list)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=dict(broker.env, MANY_PACE_US=str(pace_us)))
        self.stderr = b""
        self.threads = [threading.Thread(target=self.read, daemon=True),
                        threading.Thread(target=self.listen, daemon=True)]
        for thread in self.threads:
            thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                kind, _, rest = line.decode().rstrip("\n").partition(" ")
                self.lines[kind].append(rest.split(" "))

    def listen(self):
        self.stderr = self.process.stderr.read()

    def count(self, kind):
        return len(self.lines[kind])

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self, timeout=90):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            self.end()
            raise AssertionError(f"{self.name} has not ended; it printed "
                                 f"{ {kind: len(lines) for kind, lines in self.lines.items()} }") from late
        for thread in self.threads:
            thread.join(20)
        if code != 0:
            raise AssertionError(f"{self.name} exited with {code}: {self.stderr.decode()}")
        return self

    def end(self):
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join(20)


class ManyTest(unittest.TestCase):
    def setUp(self):
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.end()

    def produce(self, broker, transport, topic, producers, count, partition, *settings, pace_us=0):
        client = Client(broker, transport, "produce", topic, producers, count, partition,
                        self.rng.randrange(1 << 30), settings=("delivery.timeout.ms=100000", *settings),
                        pace_us=pace_us)
        self.clients.append(client)
        return client

    def consume(self, broker, transport, topic, mode, count, *settings):
        client = Client(broker, transport, "consume", topic, mode, count, self.rng.randrange(1 << 30),
                        settings=settings)
        self.clients.append(client)
        return client

    def records(self, client):
        """What a consumer received, by partition: [(offset, producer, number)]."""
        self.assertEqual(client.lines["B"], [], f"{client.name}: bytes that nobody sent")
        found = collections.defaultdict(list)
        for partition, offset, producer, number in client.lines["R"]:
            found[int(partition)].append((int(offset), int(producer), int(number)))
        return found

    def check_producers(self, client, count):
        """All acknowledged, each once. Returns {(partition, offset): (producer, number)}."""
        self.assertEqual(client.lines["X"] + client.lines["F"], [], client.name)
        for producer, taken, acked, failed, undelivered in client.lines["E"]:
            self.assertEqual((int(taken), int(acked), int(failed), int(undelivered)), (count, count, 0, 0),
                             f"{client.name}: producer {producer}")
        acked = {}
        for producer, number, partition, offset, _ in client.lines["A"]:
            where = (int(partition), int(offset))
            self.assertNotIn(where, acked, client.name)
            acked[where] = (int(producer), int(number))
        self.assertEqual(len(acked), count * len(client.lines["E"]))
        return acked

    def check_all(self, producers, consumers, count):
        """Consumers have seen the same log, from 0 on without a gap; it holds what was acknowledged where it was, and
        nothing else; each producer's records in order. Producer numbers of different processes may be the same."""
        logs = [self.records(consumer) for consumer in consumers]
        for consumer, log in zip(consumers, logs):
            self.assertEqual(consumer.lines["C"], [], consumer.name)
            for partition, records in log.items():
                self.assertEqual([record[0] for record in records], list(range(len(records))),
                                 f"{consumer.name}: a gap, or one twice, in partition {partition}")
            self.assertEqual(log, logs[0], consumer.name)
        stored = {(partition, offset): (producer, number) for partition, records in logs[0].items()
                  for offset, producer, number in records}
        told = {}
        for client in producers:
            acked = self.check_producers(client, count)
            self.assertFalse(told.keys() & acked.keys(), "one offset told to two")
            told.update(acked)
            order = collections.defaultdict(list)
            for where in sorted(acked):
                order[where[0], acked[where][0]].append(acked[where][1])
            for who, numbers in order.items():
                self.assertEqual(numbers, list(range(count)), f"{client.name}: order of {who}")
        self.assertEqual(told, stored)


class Matrix(ManyTest):
    def test_every_mode_and_transport_sees_what_was_acknowledged(self):
        self.rng = harness.seeded("matrix")
        count = harness.scaled(6000, 1500)
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            for append in ("staged", "direct"):
                for producers in (1, 8):
                    topic = f"{append}-{producers}"
                    partitions = producers if append == "direct" else 1
                    broker.flashq("topic", "create", topic, "-p", str(partitions), "-c", f"append={append}")
                    consumers = [self.consume(broker, transport, topic, mode, producers * count)
                                 for transport in ("shm", "tcp") for mode in ("pull", "push", "flip")]
                    if append == "direct":
                        feeds = [self.produce(broker, "tcp", topic, producers, count, -1)]
                    elif producers == 1:
                        feeds = [self.produce(broker, self.rng.choice(("shm", "tcp")), topic, 1, count, 0)]
                    else:
                        feeds = [self.produce(broker, transport, topic, 4, count, 0) for transport in ("shm", "tcp")]
                    for client in feeds + consumers:
                        client.finish()
                    self.check_all(feeds, consumers, count)
                    for consumer in consumers:
                        if " push " in consumer.name:
                            self.assertEqual({mode for _, mode in consumer.lines["M"][partitions:]}, {"push"},
                                             consumer.name)


class Trouble(ManyTest):
    """The broker, a producer or a consumer is killed or stopped under a full load of all kinds."""

    def start_all(self, broker, count, pace_us):
        """Eight producers on a staged partition, three on direct ones; consumers of each kind."""
        broker.flashq("topic", "create", "staged")
        broker.flashq("topic", "create", "direct", "-p", "3", "-c", "append=direct")
        staged = [self.produce(broker, transport, "staged", 4, count, 0, pace_us=pace_us)
                  for transport in ("shm", "tcp")]
        direct = [self.produce(broker, "tcp", "direct", 3, count, -1, pace_us=pace_us)]
        of_staged = [self.consume(broker, transport, "staged", mode, 8 * count)
                     for transport, mode in (("shm", "push"), ("tcp", "push"), ("shm", "flip"), ("tcp", "pull"))]
        of_direct = [self.consume(broker, transport, "direct", mode, 3 * count)
                     for transport, mode in (("shm", "push"), ("tcp", "push"), ("tcp", "flip"))]
        return staged, direct, of_staged, of_direct

    def finish_all(self, staged, direct, of_staged, of_direct, count):
        for client in staged + direct + of_staged + of_direct:
            client.finish()
        self.check_all(staged, of_staged, count)
        self.check_all(direct, of_direct, count)

    def is_over(self, clients):
        return all(client.process.poll() is not None for client in clients)

    def test_the_broker_is_killed_and_restarted_under_all_of_them(self):  # cases 19, 27
        self.rng = harness.seeded("killed broker")
        count = harness.scaled(12000, 3000)
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            clients = self.start_all(broker, count, 8000)
            kills = 0
            while not self.is_over(clients[0] + clients[1]) and kills < harness.scaled(40, 8):
                time.sleep(0.2 + self.rng.random() * 0.8)
                if kills % 3 == 2:
                    self.assertEqual(broker.stop(), 0)
                else:
                    broker.kill()
                kills += 1
                time.sleep(self.rng.random() * 0.1)
                broker.start()
            self.finish_all(*clients, count)
            duplicates = sum(int(line[4]) for client in clients[0] + clients[1] for line in client.lines["A"])
            print(f"# {kills} restarts, {duplicates} records known again", flush=True)
            self.assertGreater(kills, 3)

    def test_broker_producers_and_consumers_are_stopped_for_long(self):  # case 28
        self.rng = harness.seeded("stopped")
        seconds = harness.scaled(60, 3)
        count = harness.scaled(8000, 3000)
        with harness.scratch() as one, harness.scratch() as two, harness.scratch() as three, \
                harness.Broker(one, settings=SEGMENTS) as first, harness.Broker(two, settings=SEGMENTS) as second, \
                harness.Broker(three, settings=SEGMENTS) as third:
            brokers = (first, second, third)
            # slow enough that nobody is done before all have begun
            pace_us = 12000 if harness.SANITIZED else 3000
            started = [self.start_all(broker, count, pace_us) for broker in brokers]
            for staged, direct, of_staged, of_direct in started:
                for client in staged + direct:
                    harness.wait_for("acknowledgements", lambda client=client: client.count("A") > 200, 60)
                for client in of_staged + of_direct:
                    harness.wait_for("records", lambda client=client: client.count("R") > 200, 60)
            producers = started[1][0][:1] + started[1][1]
            consumers = [started[2][2][0], started[2][2][3], started[2][3][1]]
            stopped = [first.process, *(client.process for client in producers + consumers)]
            for process in stopped:
                process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            # What is not stopped goes on.
            others = started[1][0][1:] + started[2][0] + started[2][1]
            for client in others:
                client.finish()
            for client in (started[2][2][1], started[2][2][2], started[2][3][0], started[2][3][2]):
                client.finish()
            time.sleep(max(0, seconds - (time.monotonic() - begun)))
            for client in started[0][0] + started[0][1] + producers:
                self.assertIsNone(client.process.poll(), "it was stopped, or its broker")
            for process in stopped:
                process.send_signal(signal.SIGCONT)
            for clients in started:
                self.finish_all(*clients, count)


class Taken(ManyTest):
    def wait_for_offset(self, client, offset):
        try:
            harness.wait_for("it", lambda: client.lines["R"] and int(client.lines["R"][-1][1]) >= offset, 20)
        except AssertionError as late:
            raise AssertionError(f"{client.name} is not at {offset}: {client.lines['R'][-1:]}, {client.lines['C']}, "
                                 f"{client.process.poll()} {client.stderr}") from late

    def check_conditions(self, client):
        """Each gap is a TRIMMED that names both its ends, and each TRIMMED a gap. Returns how many."""
        records = [record[0] for record in self.records(client)[0]]
        conditions = [(int(offset), int(status), int(end)) for _, offset, status, end in client.lines["C"]]
        gaps, expected = [], 0
        for offset in records:
            if offset != expected:
                gaps.append((expected, TRIMMED, offset))
            expected = offset + 1
        self.assertEqual(conditions, gaps, client.name)
        return len(gaps)

    def test_retention_rolls_under_pushed_consumers_and_only_who_stands_still_loses(self):
        self.rng = harness.seeded("retention")
        rounds, each = harness.scaled(24, 10), 4000
        for append in ("staged", "direct"):
            with harness.scratch() as folder, \
                    harness.Broker(folder, settings={"log.segment.bytes": "1MiB"}) as broker:
                broker.flashq("topic", "create", "t", "-c", "retention.bytes=4MiB", "-c", f"append={append}")
                total = rounds * each
                fast = [self.consume(broker, transport, "t", mode, total)
                        for transport, mode in (("shm", "push"), ("tcp", "push"), ("tcp", "pull"))]
                slow = [self.consume(broker, transport, "t", "push", 1 << 30, "push.buffer.bytes=64KiB")
                        for transport in ("shm", "tcp")]
                for turn in range(rounds):
                    feed = self.produce(broker, "tcp", "t", 1, each, 0).finish()
                    self.check_producers(feed, each)
                    for client in fast:     # who reads on is never trimmed: it is at most one turn behind
                        self.wait_for_offset(client, (turn + 1) * each - 1)
                    if turn == 1:
                        for client in slow:
                            self.wait_for_offset(client, 2 * each - 1)
                            client.signal(signal.SIGSTOP)
                for client in fast:
                    client.finish()
                    self.assertEqual(self.check_conditions(client), 0)
                start = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))["partitions"][0]["start"]
                self.assertGreater(start, 3 * each, "nothing was taken away")
                for client in slow:
                    client.signal(signal.SIGCONT)
                    self.wait_for_offset(client, total - 1)
                    client.end()
                    self.assertEqual(self.check_conditions(client), 1, client.name)
                    self.assertEqual(int(client.lines["C"][0][3]), start, "what is left begins there")

    def test_delete_and_recreate_under_all_of_them(self):
        self.rng = harness.seeded("recreate")
        with harness.scratch() as folder, harness.Broker(folder, settings=SEGMENTS) as broker:
            for turn in range(harness.scaled(5, 2)):
                for topic, append in (("staged", "staged"), ("direct", "direct")):
                    broker.flashq("topic", "create", topic, "-p", "2", "-c", f"append={append}")
                feeds = [self.produce(broker, "shm", "staged", 4, 10000000, 0),
                         self.produce(broker, "tcp", "staged", 4, 10000000, 1),
                         self.produce(broker, "tcp", "direct", 2, 10000000, -1)]
                eaters = [self.consume(broker, transport, topic, mode, 1 << 30)
                          for topic in ("staged", "direct")
                          for transport, mode in (("shm", "push"), ("tcp", "push"), ("tcp", "flip"), ("shm", "pull"))]
                for client in eaters:
                    harness.wait_for("records", lambda client=client: client.count("R") > 500, 60)
                for topic in ("staged", "direct"):
                    broker.flashq("topic", "delete", topic)
                    broker.flashq("topic", "create", topic, "-p", "2")
                    broker.flashq("pub", topic, "-p", "0", "new")
                for client in feeds:
                    client.finish()
                    for line in client.lines["X"]:
                        self.assertEqual(int(line[1]), UNKNOWN_TOPIC_ID, line)
                    self.assertEqual(client.count("X"), client.count("E"), "each is told")
                    for producer, taken, acked, failed, undelivered in client.lines["E"]:
                        self.assertEqual(int(taken), int(acked) + int(failed) + int(undelivered), producer)
                        self.assertEqual(int(undelivered), 0)
                for client in eaters:
                    harness.wait_for("the news", lambda client=client: client.count("C") == 2, 30)
                    client.end()
                    self.assertEqual({int(line[2]) for line in client.lines["C"]}, {UNKNOWN_TOPIC_ID})
                    for partition, records in self.records(client).items():
                        self.assertEqual([record[0] for record in records], list(range(len(records))), partition)
                for topic in ("staged", "direct"):
                    self.assertEqual(broker.flashq("sub", topic, "-o", "start", "-e"), b"new\n")
                    broker.flashq("topic", "delete", topic)
                harness.wait_for("nothing to be left", lambda: not any(
                    broker.counters()[name] for name in ("producers.open", "push.open", "readers.open",
                                                         "append.direct.open", "readers.segments.held")))


if __name__ == "__main__":
    tap.main()
