# SPDX-License-Identifier: Apache-2.0
"""Idle costs nothing: broker with many connections and partitions, client without a broker."""
import json
import os
import resource
import subprocess
import time
import unittest

import harness
import tap

WATCH_SECONDS = harness.scaled(20, 4)


class Idle(unittest.TestCase):
    def share_of_cpu(self, pids):
        before = sum(harness.cpu_seconds(pid) for pid in pids)
        begin = time.monotonic()
        time.sleep(WATCH_SECONDS)
        used = sum(harness.cpu_seconds(pid) for pid in pids) - before
        return used / (time.monotonic() - begin)

    def test_broker_with_100_connections_and_1000_partitions(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "many", "-p", "1000")
            broker.flashq("topic", "create", "one")
            consumers = [broker.popen("sub", "one", "-o", "end", transport=("shm", "tcp")[index % 2],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                         for index in range(100)]
            try:
                harness.wait_for("100 connections", lambda: self.connections(broker) >= 100, 60)
                time.sleep(1)
                share = self.share_of_cpu([broker.process.pid])
                print(f"# idle broker: {100 * share:.2f} % of a core", flush=True)
                self.assertLess(share, 0.01)
                clients = self.share_of_cpu([consumer.pid for consumer in consumers])
                print(f"# 100 idle consumers: {100 * clients:.2f} % of a core", flush=True)
                self.assertLess(clients / 100, 0.01)
                broker.flashq("pub", "one", "wake up")
            finally:
                for consumer in consumers:
                    consumer.kill()
                    consumer.wait()

    @staticmethod
    def connections(broker):
        return sum(value for name, value in broker.counters().items()
                   if name.startswith("connections.open"))

    def test_client_without_a_broker(self):  # case 41
        with harness.scratch() as folder:
            waiting = subprocess.Popen([harness.FLASHQ, "-b", f"shm:{folder}/none.sock,tcp:127.0.0.1:1",
                                        "--timeout", "60s", "cluster", "health", "--wait", "60s"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(0.5)
                share = self.share_of_cpu([waiting.pid])
                print(f"# client without a broker: {100 * share:.2f} % of a core", flush=True)
                self.assertLess(share, 0.01)
            finally:
                waiting.kill()
                waiting.wait()

    def test_a_client_whose_broker_went_away_idles_and_comes_back(self):  # case 41
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            consumer = broker.popen("sub", "t", "-o", "end", "-n", "1")
            time.sleep(0.5)
            broker.kill()
            time.sleep(0.5)
            share = self.share_of_cpu([consumer.pid])
            self.assertLess(share, 0.01)
            broker.start()
            broker.flashq("pub", "t", "back")
            self.assertEqual(consumer.communicate(timeout=30)[0], b"back\n")


class Limits(unittest.TestCase):
    def test_too_few_descriptors_are_told_at_the_start(self):  # case 47
        with harness.scratch() as folder:
            broker = harness.Broker(folder, settings={"connections.max": "1000"},
                                    wrapper=("prlimit", "--nofile=64:64"))
            os.makedirs(broker.data)
            with self.assertRaises(AssertionError):
                broker.start()
            self.assertRegex(broker.log(), r"(?i)nofile|descriptors|open files")

    def test_descriptors_and_memory_do_not_grow_with_connections(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")

            def held():
                pid = broker.process.pid
                return (len(os.listdir(f"/proc/{pid}/fd")),
                        sum(1 for _ in open(f"/proc/{pid}/maps", encoding="ascii")))
            for _ in range(5):
                broker.flashq("pub", "t", "x", transport="tcp")
                broker.flashq("sub", "t", "-o", "start", "-e", transport="shm")
            time.sleep(0.3)
            before = held()
            for _ in range(harness.scaled(100, 20)):
                broker.flashq("pub", "t", "x", transport="shm")
                broker.flashq("sub", "t", "-o", "start", "-e", transport="tcp")
            time.sleep(0.3)
            after = held()
            self.assertLessEqual(after[0], before[0] + 2, (before, after))
            self.assertLessEqual(after[1], before[1] + 8, (before, after))


if __name__ == "__main__":
    tap.main()
