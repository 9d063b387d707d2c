# SPDX-License-Identifier: Apache-2.0
"""The command line's own promises: output that fails, interrupts, input that does not fit, the log tools,
health, doctor."""
import glob
import json
import os
import signal
import socket
import subprocess
import time
import unittest

import harness
import tap


class WithBroker(unittest.TestCase):
    settings = None

    def setUp(self):
        stack = harness.contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = stack.enter_context(harness.scratch())
        self.broker = stack.enter_context(harness.Broker(folder, settings=self.settings))
        self.flashq = self.broker.flashq

    def lines(self, topic, *more):
        return harness.json_lines(self.flashq("sub", topic, "-e", "-O", "jsonl", *more))


class Output(WithBroker):
    def test_a_full_disk_below_stdout_is_a_failure_that_is_told(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "x")
        for command in (("sub", "t", "-e"), ("topic", "list"), ("query", "t", "--at", "-1h"), ("help",)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([harness.FLASHQ, "-b", self.broker.address("shm"), *command],
                                      stdout=full, stderr=subprocess.PIPE, check=False, timeout=20)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn(b"No space left", done.stderr, command)

    def test_a_reader_that_went_away_ends_it_quietly_with_a_code(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "-n", "50000", "y" * 100)
        done = subprocess.run(["bash", "-c", '"$0" -b "$1" sub t | head -c 10; exit "${PIPESTATUS[0]}"',
                               harness.FLASHQ, self.broker.address("shm")],
                              capture_output=True, check=False, timeout=20)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, b"y" * 10, b""))

    def test_verbose_tells_of_the_client_on_stderr_only(self):
        self.flashq("topic", "create", "t")
        out, told = self.broker.run("pub", "t", "x")
        self.assertEqual(told, "")
        out, told = self.broker.run("-v", "sub", "t", "-e")
        self.assertEqual(out, b"x\n")
        self.assertIn("flashq: info: connected to shm:", told)
        self.assertNotIn("debug", told)
        for flags in (("-vv",), ("-v", "-v")):
            out, told = self.broker.run("sub", "t", "-e", *flags)
            self.assertEqual(out, b"x\n")
            self.assertIn("flashq: info: connected to shm:", told)
            self.assertRegex(told, r"flashq: debug: t/0: reader .* -> ")
        _, told = self.broker.run("pub", "t", "y", "-vv")
        self.assertRegex(told, r"flashq: debug: t/0: producer .* -> open")

    def test_verbose_says_why_there_is_no_connection(self):
        done = subprocess.run([harness.FLASHQ, "-b", "shm:/nonexistent/flashq.sock", "-v", "--timeout", "300ms",
                               "topic", "list"], capture_output=True, check=False, timeout=20)
        self.assertEqual((done.returncode, done.stdout), (3, b""))
        self.assertIn(b"flashq: info: no connection: ", done.stderr)

    def test_meta_only_and_formats(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "-k", "key", "-H", "a=1", "-H", "n", "-t", "2026-11-30T12:00:00.123Z", "value")
        line = self.lines("t", "--meta-only")[0]
        self.assertEqual(line, {"topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 1796040000123,
                                "key_bytes": 3, "value_bytes": 5})
        out = self.flashq("sub", "t", "-e", "-f", "%t/%p/%o/%k/%v{hex}/%T/%d/%h/%H/%h{<%k:%V>}%%\\n")
        self.assertEqual(out, b"t/0/0/key/76616c7565/1796040000123/2026-11-30T12:00:00.123Z/a=1,n/2/"
                              b"<a:1><n:-1>%\n")
        _, stderr = self.broker.run("sub", "t", "-e", "-f", "%o %q", code=2)
        self.assertIn("character 4", stderr)

    def test_not_in_this_release_is_said_and_is_usage(self):
        for command in (("group", "list"), ("sub", "t", "-g", "g"),
                        ("cluster", "rebalance"), ("partition", "elect", "t", "0"),
                        ("bench", "pub", "t", "--transport", "rdma")):
            _, stderr = self.broker.run(*command, code=2)
            self.assertIn("release", stderr, command)


class Interrupts(WithBroker):
    def test_both_end_cleanly_and_what_was_read_is_delivered(self):
        self.flashq("topic", "create", "t")
        consumer = self.broker.popen("sub", "t")
        publisher = self.broker.popen("pub", "t", stdin=subprocess.PIPE)
        publisher.stdin.write(b"whole\nhalf")
        publisher.stdin.flush()
        self.assertEqual(consumer.stdout.readline(), b"whole\n")
        for process in (publisher, consumer):
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=10)
            self.assertEqual((process.returncode, out, err), (0, b"", b""))
        self.assertEqual(self.flashq("sub", "t", "-e"), b"whole\n", "half a line is not sent")

    def test_an_aim_that_was_not_reached_is_a_failure(self):
        self.flashq("topic", "create", "t")
        consumer = self.broker.popen("sub", "t", "-n", "1")
        time.sleep(0.4)
        consumer.send_signal(signal.SIGTERM)
        self.assertEqual(consumer.wait(10), 1)


class Input(WithBroker):
    def test_input_that_does_not_fit_is_told_and_what_came_before_is_delivered(self):
        self.flashq("topic", "create", "t")
        _, stderr = self.broker.run("pub", "t", "--in", "jsonl", code=1,
                                    input=b'{"value":"one"}\n{"value":2}\n{"value":"three"}\n')
        self.assertIn("line 2", stderr)
        _, stderr = self.broker.run("pub", "t", "-f", "%V{big4}%v", code=1,
                                    input=b"\0\0\0\3two\0\0\0\4abc")
        self.assertIn("byte 11", stderr)
        _, stderr = self.broker.run("pub", "t", "-p", "7", "x", code=1)
        self.assertIn("7", stderr)
        self.assertEqual(self.flashq("sub", "t", "-e"), b"one\ntwo\n")
        _, stderr = self.broker.run("pub", "t", "-f", "%k%v\\n", code=2)
        self.assertIn("character 1", stderr)

    def test_lines_carry_their_own_time(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "--time-prefix", "%Y-%m-%d %H:%M:%S",
                    input=b"2026-11-30 12:00:00 a\n  continued\n1999-12-31 23:59:59.5 b\n")
        lines = self.lines("t")
        self.assertEqual([line["timestamp_ms"] for line in lines],
                         [1796040000000, 1796040000000, 946684799500])
        self.assertEqual(lines[0]["value"], "2026-11-30 12:00:00 a")
        self.broker.run("pub", "t", "--time-prefix", "%Y-%m-%d", input=b"no time\n", code=1)
        self.broker.run("pub", "t", "--time-prefix", "%H:%M", input=b"", code=2)

    def test_given_on_the_command_line_wins_over_the_record(self):
        self.flashq("topic", "create", "t", "-p", "2")
        record = {"key": "k", "value": "v", "partition": 1, "timestamp_ms": 1000,
                  "headers": [{"name": "h", "value": "1"}], "offset": 99, "topic": "other"}
        self.flashq("pub", "t", "--in", "jsonl", input=json.dumps(record).encode())
        self.flashq("pub", "t", "--in", "jsonl", "-p", "0", "-t", "1970-01-01T00:00:02Z", "-k", "K", "-H", "h=2",
                    input=json.dumps(record).encode())
        first = self.lines("t", "-p", "1")[0]
        self.assertEqual((first["key"], first["timestamp_ms"], len(first["headers"])), ("k", 1000, 1))
        second = self.lines("t", "-p", "0")[0]
        self.assertEqual((second["key"], second["timestamp_ms"]), ("K", 2000))
        self.assertEqual(second["headers"], [{"name": "h", "value": "1"}, {"name": "h", "value": "2"}])

    def test_rate_paces(self):
        self.flashq("topic", "create", "t")
        begin = time.monotonic()
        self.flashq("pub", "t", "-n", "30", "--rate", "50", "x")
        self.assertGreaterEqual(time.monotonic() - begin, 0.55)


class LargeRecords(WithBroker):
    settings = {"message.max.bytes": "8MiB", "producer.window.bytes": "32MiB"}

    def test_a_topics_own_limit_holds_and_not_the_clients_default(self):
        self.flashq("topic", "create", "t", "-c", "message.max.bytes=4MiB")
        value = os.urandom(3 << 20)
        self.flashq("pub", "t", "-D", "", input=value)
        self.assertEqual(self.flashq("sub", "t", "-e", "-f", "%v"), value)
        _, stderr = self.broker.run("pub", "t", "-D", "", input=value * 2, code=1)
        self.assertIn("4194304", stderr)
        _, stderr = self.broker.run("-X", "message.max.bytes=64KiB", "pub", "t", "-D", "", input=value, code=1)
        self.assertIn("65536", stderr)


class LogTools(WithBroker):
    def segments(self):
        return sorted(glob.glob(f"{self.broker.data}/t-*/0/0*.log"))

    def test_verify_stat_and_dump_read_what_was_written(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "-K", ":", input=b"a:1\nb:2\nc:3\n")
        self.assertEqual(self.broker.stop(), 0)
        before = {path: open(path, "rb").read() for path in self.segments()}
        document = json.loads(harness.flashq("-O", "json", "log", "verify", self.broker.data)[0])
        self.assertTrue(document["clean"])
        self.assertEqual(document["records"], 3)
        stat = json.loads(harness.flashq("-O", "json", "log", "stat", self.segments()[0])[0])
        self.assertEqual((stat["segments"][0]["base_offset"], stat["segments"][0]["end_offset"]), (0, 3))
        out = harness.flashq("log", "dump", self.broker.data, "-f", "%o %k=%v\n")[0]
        self.assertEqual(out, b"0 a=1\n1 b=2\n2 c=3\n")
        lines = harness.json_lines(harness.flashq("log", "dump", "-O", "jsonl", self.broker.data)[0])
        self.assertEqual([line["value"] for line in lines], ["1", "2", "3"])
        self.assertEqual(before, {path: open(path, "rb").read() for path in self.segments()})
        harness.flashq("log", "verify", f"{self.broker.data}/absent", code=4)

    def test_one_flipped_bit_is_found_and_the_rest_is_read(self):
        self.flashq("topic", "create", "t")
        for value in ("first", "second", "third"):
            self.flashq("pub", "t", value)
        self.assertEqual(self.broker.stop(), 0)
        path = self.segments()[0]
        data = bytearray(open(path, "rb").read())
        data[data.index(b"second") + 2] ^= 0x10
        with open(path, "r+b") as out:
            out.write(data)
        out, stderr = harness.flashq("-O", "json", "log", "verify", self.broker.data, code=7)
        document = json.loads(out)
        self.assertEqual(document["damages"][0]["first_offset"], 1)
        self.assertIn("offsets 1 to 1", stderr)
        out, _ = harness.flashq("log", "dump", "--records", self.broker.data, code=7)
        self.assertEqual(out, b"first\nthird\n")
        self.broker.start()
        out, stderr = self.broker.run("sub", "t", "-e", code=7)
        self.assertEqual(out, b"first\nthird\n")
        self.assertIn("offsets 1 to 1", stderr)
        self.broker.run("replay", "t", "--from", "1970-01-01T00:00:00Z", code=7)


class Health(WithBroker):
    def test_health_waits_for_a_broker_that_is_still_to_come(self):
        self.assertTrue(json.loads(self.flashq("-O", "json", "cluster", "health"))["healthy"])
        self.broker.stop()
        self.flashq("cluster", "health", "--wait", "300ms", code=3)
        waiting = self.broker.popen("cluster", "health", "--wait", "20s")
        time.sleep(0.3)
        self.broker.start()
        self.assertEqual(waiting.wait(20), 0)

    def test_doctor_is_a_table_and_a_document(self):
        self.flashq("topic", "create", "t")
        document = json.loads(self.flashq("-O", "json", "doctor", "--data-dir", self.broker.data))
        checks = {check["name"]: check for check in document["checks"]}
        self.assertEqual(checks["broker"]["verdict"], "ok")
        self.assertIn("tmpfs", checks["data dir medium"]["text"])
        self.assertIn(b"VERDICT", self.flashq("doctor"))
        self.broker.run("doctor", "--data-dir", "/nonexistent", code=1)
        document = json.loads(harness.flashq("-O", "json", "doctor", brokers="tcp:127.0.0.1:1")[0])
        self.assertTrue(document["ok"], "a broker that does not answer is a note")


class Benches(WithBroker):
    def test_e2e_rate_and_duration(self):
        document = json.loads(self.flashq("bench", "e2e", "E", "--msgs", "200", "--rate", "1000", "--verify",
                                          "--json"))
        self.assertEqual((document["msgs"], document["errors"]), (200, 0))
        self.assertGreater(document["latency_us"]["p50"], 0)
        document = json.loads(self.flashq("bench", "pub", "P", "--duration", "300ms", "--clients", "3", "--rate",
                                          "3000", "-p", "2", "--json"))
        self.assertEqual(document["errors"], 0)
        self.assertGreater(document["msgs"], 100)
        topic = json.loads(self.flashq("-O", "json", "topic", "describe", "P"))
        self.assertEqual(len(topic["partitions"]), 2)
        self.assertEqual(sum(part["end"] for part in topic["partitions"]), document["msgs"])

    def test_verify_finds_what_the_bench_did_not_write(self):
        self.flashq("topic", "create", "t")
        self.flashq("pub", "t", "-n", "10", "x" * 1024)
        out, stderr = self.broker.run("bench", "sub", "t", "--msgs", "10", "--verify", "--json", code=1)
        self.assertEqual(json.loads(out)["errors"], 10)
        self.assertIn("no record of the bench", stderr)


class ServiceManager(unittest.TestCase):
    def test_systemd_is_told_ready_and_stopping(self):
        libraries = subprocess.run(["ldd", harness.FLASHQD], capture_output=True, text=True, check=True).stdout
        with harness.scratch() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(10)
            with harness.Broker(folder, env={"NOTIFY_SOCKET": f"{folder}/notify"}) as broker:
                if "libsystemd" in libraries:
                    self.assertIn(b"READY=1", manager.recv(4096))
                self.assertEqual(broker.stop(), 0)
                broker.expect_death = True
            if "libsystemd" in libraries:
                self.assertIn(b"STOPPING=1", manager.recv(4096))
            else:   # built with -Dsystemd=disabled: nobody is told anything
                manager.setblocking(False)
                self.assertRaises(BlockingIOError, manager.recv, 4096)


if __name__ == "__main__":
    tap.main()
