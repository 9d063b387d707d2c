# SPDX-License-Identifier: Apache-2.0
"""What users of other command lines expect of this one: exit codes, offsets, ends, topics, names."""
import json
import subprocess
import time
import unittest

import harness
import tap


class WithBroker(unittest.TestCase):
    def setUp(self):
        stack = harness.contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = stack.enter_context(harness.scratch())
        self.broker = stack.enter_context(harness.Broker(folder))
        self.flashq = self.broker.flashq


class ExitCodes(WithBroker):
    def test_every_code_of_the_table(self):
        self.flashq("topic", "create", "t")
        self.flashq("topic", "create", "t", code=5)
        self.flashq("topic", "create", "t", "--if-not-exists")
        self.flashq("pub", "absent", "x", code=4)
        self.flashq("sub", "absent", "-e", code=4)
        self.flashq("topic", "describe", "absent", code=4)
        self.flashq("topic", "delete", "absent", code=4)
        self.flashq("query", "absent", "--at", "-1h", code=4)
        self.flashq("no-such-command", code=2)
        self.flashq("pub", code=2)
        self.flashq("pub", "t", "--no-such-option", code=2)
        self.flashq("sub", "t", "-o", "nonsense", code=2)
        harness.flashq("--timeout", "500ms", "topic", "list", brokers="tcp:127.0.0.1:1", code=3)
        harness.flashq("--timeout", "500ms", "topic", "list", brokers="shm:/nonexistent/s.sock", code=3)
        self.broker.pause()
        begin = time.monotonic()
        for transport in ("shm", "tcp"):
            _, stderr = self.broker.run("--timeout", "700ms", "topic", "list", code=None,
                                        transport=transport)
            self.assertNotEqual(stderr, "")
        self.assertLess(time.monotonic() - begin, 10)
        self.broker.resume()

    def test_an_undelivered_record_is_a_failure_also_with_several_files(self):  # case 35
        self.flashq("topic", "create", "t")
        good = f"{self.broker.folder}/good"
        big = f"{self.broker.folder}/big"
        with open(good, "wb") as out:
            out.write(b"fine")
        with open(big, "wb") as out:
            out.write(b"x" * (3 << 20))
        _, stderr = self.broker.run("pub", "t", "--file", good, big, good, code=1)
        self.assertIn("message.max.bytes", stderr)
        self.flashq("pub", "t", "--file", good, f"{self.broker.folder}/absent", code=1)
        self.broker.kill()
        self.flashq("--timeout", "500ms", "-X", "delivery.timeout.ms=500", "pub", "t", "x", code=3)

    def test_help_and_version(self):
        out = harness.flashq("--help")[0]
        for command in (b"pub", b"sub", b"replay", b"query", b"topic", b"cluster", b"log", b"bench", b"doctor"):
            self.assertIn(command, out)
        self.assertRegex(harness.flashq("--version")[0], rb"\d+\.\d+\.\d+")
        for command in ("pub", "sub", "replay", "query", "topic", "cluster", "log", "bench", "doctor"):
            self.assertGreater(len(harness.flashq(command, "--help")[0]), 100, command)


class Ends(WithBroker):
    def test_exit_at_end_on_empty_topic_and_empty_partitions(self):  # case 36
        self.flashq("topic", "create", "t", "-p", "4")
        for transport in ("shm", "tcp"):
            self.assertEqual(self.flashq("sub", "t", "-e", "-o", "start", transport=transport, timeout=10), b"")
            self.assertEqual(self.flashq("sub", "t", "-e", "-o", "end", transport=transport, timeout=10), b"")
        self.flashq("pub", "t", "-p", "2", "only")
        self.assertEqual(self.flashq("sub", "t", "-e", "-o", "start", timeout=10), b"only\n")

    def test_the_end_is_pinned_at_the_start(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", input=b"".join(b"%d\n" % n for n in range(5000)))
        writer = self.broker.popen("pub", "t", "--rate", "20000", stdin=subprocess.PIPE)
        try:
            writer.stdin.write(b"".join(b"w%d\n" % n for n in range(20000)))
            writer.stdin.flush()
            for _ in range(3):
                out = self.flashq("sub", "t", "-e", "-o", "start", timeout=10)
                self.assertGreaterEqual(out.count(b"\n"), 5000)
        finally:
            writer.kill()
            writer.wait()

    def test_max_wait_and_count(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", input=b"1\n2\n3\n")
        self.assertEqual(self.flashq("sub", "t", "-o", "start", "-n", "2", timeout=10), b"1\n2\n")
        begin = time.monotonic()
        self.flashq("sub", "t", "-o", "end", "-n", "1", "--max-wait", "300ms", code=None, timeout=10)
        self.assertLess(time.monotonic() - begin, 5)


class Offsets(WithBroker):
    def test_offset_words(self):
        self.flashq("topic", "create", "t")
        lines = [json.dumps({"value": str(n), "timestamp_ms": 1700000000000 + n * 1000}) for n in range(10)]
        self.flashq("pub", "t", "--in", "jsonl", input="\n".join(lines).encode() + b"\n")

        def read(offset, *more):
            return self.flashq("sub", "t", "-o", offset, "-e", *more).split()
        ten = [b"%d" % n for n in range(10)]
        for word in ("start", "beginning", "earliest", "oldest", "0", "@0000000000"):
            self.assertEqual(read(word), ten, word)
        for word in ("end", "latest", "newest", "10"):
            self.assertEqual(read(word), [], word)
        self.assertEqual(read("7"), ten[7:])
        self.assertEqual(read("-3"), ten[7:])
        self.assertEqual(read("-100"), ten)
        self.assertEqual(read("+2"), ten[2:])
        self.assertEqual(read("2:5"), ten[2:5])
        self.assertEqual(read(":4"), ten[:4])
        self.assertEqual(read("6:end"), ten[6:])
        self.assertEqual(read("@1700000004500"), ten[5:])
        self.assertEqual(read("@2023-11-14T22:13:24Z"), ten[4:])
        self.assertEqual(read("s@1700000004500"), ten[5:])
        self.assertEqual(read("@1700000002000:1700000005000"), ten[2:5])
        self.assertEqual(read("start", "--until", "4"), ten[:4])
        self.assertEqual(read("start", "--until", "@1700000003000"), ten[:3])

    def test_a_numeric_offset_with_several_partitions_needs_one_named(self):  # case 37
        self.flashq("topic", "create", "t", "-p", "2")
        _, stderr = self.broker.run("sub", "t", "-o", "5", "-e", code=2)
        self.assertIn("-p", stderr)
        self.flashq("pub", "t", "-p", "1", input=b"a\nb\nc\n")
        self.assertEqual(self.flashq("sub", "t", "-o", "1", "-p", "1", "-e"), b"b\nc\n")
        self.assertEqual(sorted(self.flashq("sub", "t", "-o", "-1", "-e").split()), [b"c"])

    def test_out_of_range_and_trimmed_are_told(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", input=b"".join(b"%d\n" % n for n in range(10)))
        _, stderr = self.broker.run("sub", "t", "-o", "11", "-e", code=1)
        self.assertIn("11", stderr)
        self.flashq("topic", "trim", "t", "-p", "0", "--before", "6")
        _, stderr = self.broker.run("sub", "t", "-o", "3", "-e", code=1)
        self.assertIn("6", stderr)
        self.assertEqual(self.flashq("-X", "auto.offset.reset=start", "sub", "t", "-o", "3", "-e"),
                         b"6\n7\n8\n9\n")
        document = json.loads(self.flashq("-O", "json", "topic", "describe", "t"))
        self.assertEqual(document["partitions"][0]["start"], 6)
        self.assertEqual(document["partitions"][0]["end"], 10)
        self.assertEqual(self.broker.stop(), 0)
        self.broker.start()
        after = json.loads(self.flashq("-O", "json", "topic", "describe", "t"))
        self.assertEqual(after["partitions"][0]["start"], 6)
        self.assertEqual(after["partitions"][0]["end"], 10)


class Input(WithBroker):
    def publish_and_read(self, data, *options):
        name = f"t{time.monotonic_ns()}"
        self.flashq("topic", "create", name)
        self.flashq("pub", name, *options, input=data)
        return harness.json_lines(self.flashq("sub", name, "-o", "start", "-e", "-O", "jsonl"))

    def values(self, data, *options):
        return [line["value"] for line in self.publish_and_read(data, *options)]

    def test_newlines_are_neither_added_nor_lost(self):  # case 34
        self.assertEqual(self.values(b"a\nb\n"), ["a", "b"])
        self.assertEqual(self.values(b"a\nb"), ["a", "b"])
        self.assertEqual(self.values(b"a\n\nb\n"), ["a", "", "b"])
        self.assertEqual(self.values(b"\n"), [""])
        self.assertEqual(self.values(b""), [])
        self.assertEqual(self.values(b"a\r\nb\r\n"), ["a\r", "b\r"])

    def test_delimiters_of_several_bytes(self):  # case 34
        self.assertEqual(self.values(b"a--b-c--", "-D", "--"), ["a", "b-c"])
        self.assertEqual(self.values(b"a\x00b\x00", "-D", "\\0"), ["a", "b"])
        self.assertEqual(self.values(b"a\nb\n", "-D", ""), ["a\nb\n"])

    def test_key_delimiters_keys_headers_tombstones(self):
        lines = self.publish_and_read(b"k1::v1\nk2::v2::x\n", "-K", "::")
        self.assertEqual([(line["key"], line["value"]) for line in lines], [("k1", "v1"), ("k2", "v2::x")])
        line = self.publish_and_read(b"v\n", "-k", "key", "-H", "a=1", "-H", "e=", "-H", "n")[0]
        self.assertEqual(line["key"], "key")
        self.assertEqual(line["headers"], [{"name": "a", "value": "1"}, {"name": "e", "value": ""},
                                           {"name": "n", "value": None}])
        lines = self.publish_and_read(b"k:\nk2:v\n", "-K", ":", "-Z")
        self.assertEqual([line["value"] for line in lines], [None, "v"])

    def test_values_on_the_command_line_and_repeats(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "one", "two")
        self.flashq("pub", "t", "-n", "3", "again")
        self.assertEqual(self.flashq("sub", "t", "-o", "start", "-e"), b"one\ntwo\nagain\nagain\nagain\n")

    def test_bytes_that_are_not_utf8_are_not_replaced(self):  # case 38
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "-D", "", input=b"\xff\x00\xfe")
        line = harness.json_lines(self.flashq("sub", "t", "-o", "start", "-e", "-O", "jsonl"))[0]
        self.assertEqual(line["value_b64"], "/wD+")
        self.assertNotIn("value", line)

    def test_each_line_goes_at_once_and_is_seen_by_a_waiting_consumer(self):
        self.flashq("topic", "create", "t")
        for transport in ("shm", "tcp"):
            consumer = self.broker.popen("sub", "t", "-o", "end", "-n", "2", transport=transport)
            time.sleep(0.4)
            self.flashq("pub", "t", "1", transport=transport)
            self.assertEqual(consumer.stdout.readline(), b"1\n")
            self.flashq("pub", "t", "2", transport=transport)
            self.assertEqual(consumer.communicate(timeout=10)[0], b"2\n")
            self.assertEqual(consumer.returncode, 0)

    def test_a_waiting_consumer_says_that_the_broker_is_away_and_back(self):
        self.broker.flashq("topic", "create", "away")
        self.broker.flashq("pub", "away", "w")
        process = self.broker.popen("sub", "away", "-n", "2")
        try:
            self.assertEqual(process.stdout.readline(), b"w\n")
            self.broker.stop()
            self.assertIn(b"the broker does not answer, waiting for it: shm:", process.stderr.readline())
            self.broker.start()
            self.assertIn(b"the broker is back", process.stderr.readline())
            self.broker.flashq("pub", "away", "x")
            self.assertEqual(process.communicate(timeout=60), (b"x\n", b""))
        finally:
            process.kill()
            process.wait()

    def test_nobody_listening_names_every_address(self):
        _, said = harness.flashq("topic", "list", "--timeout", "500ms", code=3,
                                 brokers="shm:/nowhere/a.sock,shm:/nowhere/b.sock")
        self.assertRegex(said, "/nowhere/a.sock: No such file.*; shm:/nowhere/b.sock: No such file")
        self.assertIn("is flashqd running", said)

    def test_report_names_partition_and_offset(self):
        self.flashq("topic", "create", "t")
        out = harness.json_lines(self.flashq("pub", "t", "--report", input=b"a\nb\nc\n"))
        self.assertEqual([(line["partition"], line["offset"], line["duplicate"]) for line in out],
                         [(0, 0, False), (0, 1, False), (0, 2, False)])

    def test_a_closed_output_is_not_a_crash(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", input=b"x" * 100 + b"\n", )
        self.flashq("pub", "t", "-n", "20000", "y" * 100)
        consumer = self.broker.popen("sub", "t", "-o", "start", "-e")
        consumer.stdout.read(10)
        consumer.stdout.close()
        consumer.wait(10)
        self.assertNotIn(consumer.returncode, (-6, -11))


class Topics(WithBroker):
    def test_names(self):  # case 45
        for name in ("a.b", "a_b", "a-b", "x" * 249):
            self.flashq("topic", "create", name)
            self.flashq("pub", name, name)
        for name in ("a.b", "a_b", "a-b", "x" * 249):
            self.assertEqual(self.flashq("sub", name, "-o", "start", "-e"), name.encode() + b"\n")
        for name, byte in (("", None), (".", None), ("..", None), ("x" * 250, "249"), ("a/b", "/"),
                           ("a b", "0x20"), ("\u0430", "0xd0")):
            _, stderr = self.broker.run("topic", "create", name, code=None)
            self.assertNotIn("created", stderr)
            self.flashq("topic", "describe", "--", name, code=None)
            listed = json.loads(self.flashq("-O", "json", "topic", "list"))
            self.assertNotIn(name, [topic["name"] for topic in listed["topics"]])
            if byte:
                self.assertIn(byte, stderr)

    def test_reading_never_creates_a_topic(self):  # case 46
        self.flashq("sub", "ghost", "-e", code=4)
        self.flashq("query", "ghost", "--at", "-1h", code=4)
        self.flashq("replay", "ghost", "--from", "-1h", code=4)
        listed = json.loads(self.flashq("-O", "json", "topic", "list"))
        self.assertEqual(listed["topics"], [])

    def test_deleted_and_made_anew_is_another_topic(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "old")
        consumer = self.broker.popen("sub", "t", "-o", "end", "-n", "1")
        time.sleep(0.3)
        self.flashq("topic", "delete", "t")
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "new")
        out, err = consumer.communicate(timeout=20)
        self.assertNotIn(b"new", out, "the handle belonged to the old topic")
        self.assertNotEqual(consumer.returncode, 0, err)
        self.assertEqual(self.flashq("sub", "t", "-o", "start", "-e"), b"new\n")

    def test_configuration_is_checked_and_described(self):
        self.flashq("topic", "create", "t", "-c", "segment.bytes=2MiB", "-c", "retention.bytes=64MiB",
                    "-c", "durability=memory", "-c", "timestamp.max.ahead=5m")
        document = json.loads(self.flashq("-O", "json", "topic", "describe", "t"))
        configs = {entry["key"]: entry for entry in document["configs"]}
        self.assertEqual(configs["segment.bytes"]["source"], "topic")
        self.assertEqual(configs["durability"]["value"], "memory")
        _, stderr = self.broker.run("topic", "create", "u", "-c", "segment.byte=2MiB", code=None)
        self.assertIn("segment.bytes", stderr)
        _, stderr = self.broker.run("topic", "create", "u", "-c", "segment.bytes=12", code=None)
        self.assertIn("1048576", stderr.replace("1MiB", "1048576").replace("1 MiB", "1048576"))
        self.flashq("topic", "describe", "u", code=4)
        self.flashq("topic", "alter", "t", "-c", "retention.bytes=32MiB")
        document = json.loads(self.flashq("-O", "json", "topic", "describe", "t"))
        configs = {entry["key"]: entry["value"] for entry in document["configs"]}
        self.assertIn(configs["retention.bytes"], ("33554432", "32MiB"))

    def test_partitions_can_be_added_and_survive_restarts(self):
        self.flashq("topic", "create", "t", "-p", "2")
        self.flashq("pub", "t", "-p", "1", "x")
        self.flashq("topic", "add-partitions", "t", "-n", "5")
        self.flashq("pub", "t", "-p", "4", "y")
        self.flashq("topic", "add-partitions", "t", "-n", "3", code=None)
        for restart in (self.broker.stop, self.broker.kill):
            restart()
            self.broker.start()
            document = json.loads(self.flashq("-O", "json", "topic", "describe", "t"))
            self.assertEqual(len(document["partitions"]), 5)
            self.assertEqual(sorted(self.flashq("sub", "t", "-o", "start", "-e").split()), [b"x", b"y"])


class Spellings(WithBroker):
    def test_long_options_of_other_tools(self):
        self.flashq("topic", "create", "t", "--partitions", "2", "--replication-factor", "1")
        harness.flashq("--bootstrap-server", self.broker.address("tcp"), "topic", "list")
        self.flashq("pub", "--topic", "t", "--key", "k", "--header", "a=b", "v")
        out = self.flashq("sub", "--topic", "t", "--from-beginning", "--max-messages", "1",
                          "--timeout-ms", "5000", "-f", "%k %v\n")
        self.assertEqual(out, b"k v\n")
        self.flashq("produce", "t", "v2")
        self.assertEqual(sorted(self.flashq("consume", "t", "-o", "start", "-e").split()), [b"v", b"v2"])


if __name__ == "__main__":
    tap.main()
