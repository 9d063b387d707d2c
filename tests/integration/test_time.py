# SPDX-License-Identifier: Apache-2.0
"""Time: queries and replay equal what a brute force over the records says."""
import bisect
import json
import unittest

import harness
import tap

INT64_MAX = (1 << 63) - 1


def publish(broker, topic, timestamps, extra=()):
    lines = "".join(json.dumps({"value": str(index), "timestamp_ms": timestamp}) + "\n"
                    for index, timestamp in enumerate(timestamps))
    broker.flashq(*extra, "pub", topic, "--in", "jsonl", input=lines.encode())


def brute(timestamps, query, start=0):
    for offset in range(start, len(timestamps)):
        if timestamps[offset] >= query:
            return offset
    return None


def digits(milliseconds):
    """A TIME that the command line cannot misread: RFC 3339, before 1970 too."""
    import datetime
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds") + "Z"


def query(broker, topic, time, transport="shm"):
    out = broker.flashq("-O", "json", "query", topic, "--at", time, transport=transport)
    return json.loads(out)["partitions"]


class Queries(unittest.TestCase):
    def check(self, broker, topic, timestamps, queries, start=0):
        for at in queries:
            answer = query(broker, topic, digits(at))[0]
            expected = brute(timestamps, at, start)
            if expected is None:
                self.assertTrue(answer["end"], f"T={at}: {answer}")
                self.assertIsNone(answer["offset"])
            else:
                self.assertEqual(answer["offset"], expected, f"T={at} in {timestamps[:20]}")
                self.assertEqual(answer["timestamp_ms"], timestamps[expected])

    def test_between_records_before_the_first_and_after_the_last(self):  # cases 1, 4
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            publish(broker, "t", [2, 4, 6, 8])
            self.check(broker, "t", [2, 4, 6, 8], [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
            far = query(broker, "t", "9999-12-31T23:59:59Z")[0]
            self.assertTrue(far["end"])
            self.assertIsNone(far["offset"])

    def test_the_answer_is_the_record_and_not_its_batch(self):  # case 2
        timestamps = [1000 + 10 * index for index in range(500)]
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for codec in ("none", "lz4", "zstd"):
                broker.flashq("topic", "create", codec)
                publish(broker, codec, timestamps, extra=("-X", "linger.ms=50", "-X",
                                                          f"compression.type={codec}"))
                self.check(broker, codec, timestamps, [1000, 1001, 2345, 2350, 5990, 5991])

    def test_out_of_order_old_and_far_apart(self):  # cases 3, 7
        rng = harness.seeded("out of order")
        now = 1_700_000_000_000
        orders = {
            "swapped": [2, 1, 3, 5, 4, 6],
            "months-old": [now, now + 1, now - 90 * 86400_000, now + 2],
            "far-apart": [0, 1 << 33, 1, (1 << 40) + 7, 5, now],
            "descending": list(range(now, now - 1000, -10)),
            "constant": [now] * 50,
            "random": [now + rng.randrange(100_000) for _ in range(2000)],
            "seconds-limit": [(1 << 31) * 1000 - 1, (1 << 31) * 1000, (1 << 31) * 1000 + 1],
        }
        settings = {"timestamp.max.ahead": "-1"}
        with harness.scratch() as folder, harness.Broker(folder, settings=settings) as broker:
            for name, timestamps in orders.items():
                broker.flashq("topic", "create", name)
                publish(broker, name, timestamps)
                around = sorted({t + d for t in rng.sample(timestamps, min(12, len(timestamps)))
                                 for d in (-1, 0, 1)})
                self.check(broker, name, timestamps, around)

    def test_one_record_far_ahead_is_refused_and_spoils_nothing(self):  # case 8
        now = 1_700_000_000_000
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            publish(broker, "t", [now])
            _, stderr = broker.run("pub", "t", "-t", "2300-01-01T00:00:00Z", "x", code=1)
            self.assertIn("timestamp", stderr.lower())
            publish(broker, "t", [now + 1000])
            self.check(broker, "t", [now, now + 1000], [now, now + 1, now + 1000, now + 1001])
            broker.flashq("topic", "create", "open", "-c", "timestamp.max.ahead=-1")
            broker.flashq("pub", "open", "-t", "2300-01-01T00:00:00Z", "x")
            publish(broker, "open", [now])
            self.assertEqual(query(broker, "open", digits(now))[0]["offset"], 0)
            lines = harness.json_lines(broker.flashq("sub", "open", "-o", "start", "-e", "-O", "jsonl"))
            self.assertEqual([line["timestamp_ms"] for line in lines], [10413792000000, now])

    def test_after_trim_restart_and_kill(self):
        rng = harness.seeded("after trim")
        now = 1_700_000_000_000
        timestamps = [now + rng.randrange(1_000_000) for _ in range(3000)]
        queries = [now - 1, now] + [now + rng.randrange(1_000_100) for _ in range(40)]
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            publish(broker, "t", timestamps)
            for start in (0, 700, 2999):
                if start:
                    broker.flashq("topic", "trim", "t", "-p", "0", "--before", str(start))
                self.check(broker, "t", timestamps, queries, start)
                self.assertEqual(broker.stop(), 0)
                broker.start()
                self.check(broker, "t", timestamps, queries[:10], start)
                broker.kill()
                broker.start()
                self.check(broker, "t", timestamps, queries[:10], start)

    def test_time_spellings(self):  # cases 5, 6
        moment = 1_700_000_000_000
        spelled = ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000",
                   "2023-11-14T22:13:20Z", "2023-11-15T03:43:20+05:30", "2023-11-14T21:43:20-00:30"]
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            publish(broker, "t", [moment - 1, moment, moment + 1])
            for text in spelled:
                self.assertEqual(query(broker, "t", text)[0]["offset"], 1, text)
            self.assertEqual(query(broker, "t", "1700000000000000001")[0]["offset"], 2)
            for text in ("170000000", "17000000000", "170000000000000", "now-ish", "2023-13-01T00:00:00Z"):
                _, stderr = broker.run("query", "t", "--at", text, code=2)
                self.assertIn(text, stderr)


class Replay(unittest.TestCase):
    def test_replay_equals_a_filter_for_any_order_of_timestamps(self):
        rng = harness.seeded("replay")
        now = 1_700_000_000_000
        timestamps = [now + rng.randrange(20_000) for _ in range(5000)]
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("topic", "create", "copy")
            publish(broker, "t", timestamps)
            for transport in ("shm", "tcp"):
                for begin, end in ((now, now + 20_000), (now + 5000, now + 5001), (now + 7123, now + 15_000)):
                    expected = [index for index, t in enumerate(timestamps) if begin <= t < end]
                    out = broker.flashq("replay", "t", "--from", digits(begin), "--to", digits(end),
                                        transport=transport)
                    self.assertEqual([int(line) for line in out.split()], expected)
            out = broker.flashq("replay", "t", "--from", digits(now + 19_000), "--for", "500ms")
            self.assertEqual([int(line) for line in out.split()],
                             [i for i, t in enumerate(timestamps) if now + 19_000 <= t < now + 19_500])
            broker.flashq("replay", "t", "--from", digits(now + 10_000), "--into", "copy")
            copied = harness.json_lines(broker.flashq("sub", "copy", "-o", "start", "-e", "-O", "jsonl"))
            self.assertEqual([(line["value"], line["timestamp_ms"]) for line in copied],
                             [(str(i), t) for i, t in enumerate(timestamps) if t >= now + 10_000])

    def test_replay_past_the_end_prints_nothing_and_succeeds(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t", "-p", "3")
            self.assertEqual(broker.flashq("replay", "t", "--from", "2020-01-01T00:00:00Z"), b"")
            publish(broker, "t", [1000])
            self.assertEqual(broker.flashq("replay", "t", "--from", "2020-01-01T00:00:00Z"), b"")

    def test_pace_follows_the_timestamps(self):
        import time
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            publish(broker, "t", [1000, 1400, 1800, 2200])
            begin = time.monotonic()
            broker.flashq("replay", "t", "--from", digits(0), "--speed", "1x")
            self.assertGreaterEqual(time.monotonic() - begin, 1.2)


class TenMillion(unittest.TestCase):
    """A big partition: answers equal a brute force, and their cost does not grow with the log."""

    def test_queries_over_ten_million_records(self):
        rng = harness.seeded("ten million")
        count = harness.scaled(10_000_000, 300_000)
        block = 50_000
        begin = 1_700_000_000_000
        maxima, firsts, costs = [], [], {}
        now = begin
        with harness.scratch() as folder:
            with harness.Broker(folder, settings={"timestamp.max.ahead": "-1"}) as broker:
                broker.flashq("topic", "create", "t")
                publisher = broker.popen("pub", "t", "-f", "%T %V{big4}%v", stdin=-1)
                offset = 0
                highest = -1
                filler = b"x" * 90
                while offset < count:
                    parts = []
                    for _ in range(min(block, count - offset)):
                        now += rng.randrange(40)
                        stamp = now - rng.randrange(5000) if offset % 7 == 0 else now
                        if stamp > highest:      # only running maxima can be answers
                            highest = stamp
                            maxima.append(stamp)
                            firsts.append(offset)
                        parts.append(b"%d \x00\x00\x00\x64%010d%s" % (stamp, offset, filler))
                        offset += 1
                    publisher.stdin.write(b"".join(parts))
                    if offset in (block, count):
                        pass
                publisher.stdin.close()
                self.assertEqual(publisher.wait(600), 0, publisher.stderr.read())
                for _ in range(harness.scaled(1000, 100)):
                    at = begin + rng.randrange(now - begin + 10_000)
                    answer = query(broker, "t", digits(at), rng.choice(("shm", "tcp")))[0]
                    place = bisect.bisect_left(maxima, at)
                    if place == len(maxima):
                        self.assertTrue(answer["end"])
                    else:
                        self.assertEqual(answer["offset"], firsts[place], f"T={at}")
                    for name in ("nodes", "bytes"):
                        costs[name] = max(costs.get(name, 0), answer["cost"][name])
                print(f"# greatest cost of a query over {count} records: {costs}", flush=True)
                self.assertLess(costs["nodes"], 400)
                self.assertLessEqual(costs["bytes"], 3 << 20)


if __name__ == "__main__":
    tap.main()
