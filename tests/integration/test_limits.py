# SPDX-License-Identifier: Apache-2.0
"""A client at the limits of its own process is told which limit it was, and does not hammer the broker."""
import re
import subprocess
import threading
import time
import unittest

import harness
import tap

DESCRIPTORS = re.compile(r"(?i)too many open files|descriptor")


class Descriptors(unittest.TestCase):
    def test_any_shortage_is_told_by_its_name(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("pub", "t", "first")
            works = 0
            for transport in ("shm", "tcp"):
                for limit in range(5, 24):
                    for command in (("pub", "t", "x"), ("sub", "t", "-o", "start", "-n", "1")):
                        started = time.monotonic()
                        done = subprocess.run(
                            ["prlimit", f"--nofile={limit}:{limit}", harness.FLASHQ,
                             "-b", broker.address(transport), "--timeout", "1500ms", *command],
                            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=broker.env)
                        stderr = done.stderr.decode()
                        what = f"{transport} {command[0]} with {limit} descriptors: {stderr}"
                        if done.returncode == 0:
                            works += 1
                        elif "shared libraries" not in stderr:
                            self.assertRegex(stderr, DESCRIPTORS, what)
                        self.assertGreaterEqual(done.returncode, 0, what)
                        self.assertLess(time.monotonic() - started, 20, what)
            self.assertGreater(works, 8, "with enough of them it works")

    def test_a_connection_that_fails_at_once_after_it_came_up_is_tried_ever_more_rarely(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            limit = self.limit_that_connects_and_no_more(broker)
            accepted = broker.counters()["connections.accepted.shm"]
            subprocess.run(["prlimit", f"--nofile={limit}:{limit}", harness.FLASHQ,
                            "-b", broker.address("shm"), "--timeout", "5s", "pub", "t", "x"],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=broker.env)
            tries = broker.counters()["connections.accepted.shm"] - accepted
            print(f"# {tries} connections in 5 s", flush=True)
            self.assertLess(tries, 40)

    def limit_that_connects_and_no_more(self, broker):
        """Descriptors enough to open a session and too few for the ring of a producer."""
        for limit in range(8, 30):
            done = subprocess.run(["prlimit", f"--nofile={limit}:{limit}", harness.FLASHQ,
                                   "-b", broker.address("shm"), "--timeout", "1s", "pub", "t", "x"],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                                  env=broker.env)
            if done.returncode != 0 and b"cannot connect" not in done.stderr and \
                    b"shared libraries" not in done.stderr:
                return limit
        self.fail("no such limit")


class Records(unittest.TestCase):
    def test_what_refuses_a_record_is_named_with_its_value(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t", "-p", "2")
            for arguments, words in ((("-p", "9"), "partitions 0 to 1, no 9"),
                                     (("-t", "4102444800"), r"timestamp\.max\.ahead \(3600000 ms\)"),
                                     (("-t", "1969-12-31T23:59:59Z"), "negative")):
                _, stderr = broker.run("pub", "t", *arguments, "x", code=1)
                self.assertRegex(stderr, words)
                self.assertIn("1 of 1 records", stderr)
            _, stderr = broker.run("pub", "t", "-D", "", input=b"x" * 1048577, code=1)
            self.assertRegex(stderr, r"1048577.*message\.max\.bytes.*1048576")


class Stopped(unittest.TestCase):
    """SIGSTOP for long enough that every heartbeat is missed, on either side."""

    def test_a_stopped_broker_and_stopped_clients_lose_and_double_nothing(self):
        seconds = harness.scaled(45, 8)
        count = harness.scaled(60000, 20000)
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            clients = []
            for transport in ("shm", "tcp"):
                consumer = broker.popen("sub", "t", "-o", "start", "-n", str(2 * count + 2),
                                        transport=transport)
                producer = broker.popen("pub", "t", transport=transport, stdin=subprocess.PIPE)

                def feed(producer=producer, transport=transport):
                    for number in range(count):
                        producer.stdin.write(b"%s %d\n" % (transport.encode(), number))
                        if number % 1000 == 0:
                            time.sleep(0.01)
                    producer.stdin.close()
                threading.Thread(target=feed, daemon=True).start()
                clients.append((transport, consumer, producer))
            outputs = {}
            for transport, consumer, _ in clients:
                def read(transport=transport, consumer=consumer):
                    outputs[transport] = consumer.stdout.read()
                reader = threading.Thread(target=read, daemon=True)
                reader.start()
            time.sleep(0.2)
            broker.pause()
            time.sleep(seconds)
            broker.resume()
            for _, _, producer in clients:
                self.assertEqual(producer.wait(60), 0, producer.stderr.read())
            for _, consumer, _ in clients:
                consumer.send_signal(19)    # SIGSTOP
            broker.flashq("pub", "t", f"shm {count}", f"tcp {count}")
            time.sleep(seconds)
            for _, consumer, _ in clients:
                consumer.send_signal(18)    # SIGCONT
            for transport, consumer, _ in clients:
                self.assertEqual(consumer.wait(60), 0, consumer.stderr.read())
                harness.wait_for("its output", lambda transport=transport: transport in outputs)
                for name in (b"shm", b"tcp"):
                    numbers = [int(line.split()[1]) for line in outputs[transport].splitlines()
                               if line.startswith(name)]
                    self.assertEqual(numbers, list(range(count + 1)))


if __name__ == "__main__":
    tap.main()
