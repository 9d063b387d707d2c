# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the broker at random moments under load: what was acknowledged is there, once, at the
offset acknowledged, and no acknowledged offset is ever given to another record."""
import json
import os
import subprocess
import threading
import time
import unittest

import harness
import tap
from acknowledged import Publisher, Stored


class Kill(unittest.TestCase):
    def cycles(self, medium, flush, transport, count):
        rng = harness.seeded(f"kill {medium} {flush} {transport}")
        with harness.scratch(medium) as folder:
            broker = harness.Broker(folder, flush=flush,
                                    settings={"retention.bytes": "0", "log.segment.bytes": "4MiB"})
            with broker:
                broker.flashq("topic", "create", "t", transport=transport)
                acked, total = {}, 0
                stored = Stored(self, broker, transport)
                for cycle in range(count):
                    publisher = Publisher(broker, transport, b"c%d" % cycle, acked)
                    time.sleep(0.05 + rng.random() * 0.4)
                    broker.kill()
                    time.sleep(0.02)
                    publisher.finish()
                    self.assertEqual(publisher.problems, [])
                    took = broker.start()
                    self.assertLess(took, 10)
                    stored.look(acked)      # the acknowledgements of this cycle
                    total += len(acked)
                    acked.clear()
                stored.look_at_all({})
                self.assertGreater(total, 100 * count, "load was too light to prove anything")
                print(f"# {count} kills, {total} acknowledged, {len(stored.values)} stored", flush=True)

    def test_shm_emulated_nvm(self):  # case 19
        self.cycles("tmpfs", "pmem", "shm", harness.scaled(140, 8))

    def test_tcp_emulated_nvm(self):
        self.cycles("tmpfs", "pmem", "tcp", harness.scaled(30, 4))

    def test_shm_disk_with_fdatasync(self):  # case 19
        self.cycles("disk", "sync", "shm", harness.scaled(30, 4))

    def test_one_publisher_lives_through_kills_without_gap_or_duplicate(self):  # case 27
        rng = harness.seeded("one publisher")
        lines = b"".join(b"%09d\n" % number for number in range(200000))
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            for transport in ("shm", "tcp"):
                process = broker.popen("-X", "delivery.timeout.ms=60000", "pub", "t", "--rate", "40000",
                                       transport=transport, stdin=subprocess.PIPE)
                feeder = threading.Thread(target=lambda: (process.stdin.write(lines), process.stdin.close()))
                feeder.start()
                for _ in range(harness.scaled(8, 3)):
                    time.sleep(0.1 + rng.random() * 0.4)
                    broker.kill()
                    broker.start()
                feeder.join(60)
                self.assertEqual(process.wait(90), 0, process.stderr.read())
                out = broker.flashq("sub", "t", "-o", "start", "-e")
                self.assertEqual(out, lines if transport == "shm" else lines + lines)

    def test_a_stopped_broker_costs_neither_gap_nor_duplicate(self):  # case 28
        lines = b"".join(b"%09d\n" % number for number in range(60000))
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            process = broker.popen("pub", "t", "--rate", "20000", stdin=subprocess.PIPE)
            feeder = threading.Thread(target=lambda: (process.stdin.write(lines), process.stdin.close()))
            feeder.start()
            for _ in range(3):
                time.sleep(0.3)
                broker.pause()
                time.sleep(harness.scaled(5.0, 1.0))
                broker.resume()
            feeder.join(60)
            self.assertEqual(process.wait(60), 0, process.stderr.read())
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), lines)


class Restart(unittest.TestCase):
    def test_produce_and_consume_across_clean_restarts_has_no_seam(self):  # case 10
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            expected = b""
            for cycle in range(5):
                block = b"".join(b"%d-%d\n" % (cycle, number) for number in range(1000))
                broker.flashq("pub", "t", input=block)
                expected += block
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), expected)
                self.assertEqual(broker.stop(), 0)
                broker.start()
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), expected)

    def test_a_waiting_consumer_goes_on_after_a_restart(self):  # case 17
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            for transport in ("shm", "tcp"):
                start = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))
                end = start["partitions"][0]["end"]
                consumer = broker.popen("sub", "t", "-o", str(end), "-n", "2", transport=transport)
                time.sleep(0.3)
                broker.flashq("pub", "t", input=b"before\n")
                time.sleep(0.2)
                broker.kill()
                broker.start()
                broker.flashq("pub", "t", input=b"after\n")
                out, err = consumer.communicate(timeout=30)
                self.assertEqual((out, consumer.returncode), (b"before\nafter\n", 0), err)

    def test_stale_leftovers_of_a_kill_do_not_stop_the_next_start(self):  # case 25
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for _ in range(3):
                broker.kill()
                self.assertTrue(os.path.exists(broker.socket))
                broker.start()

    def test_a_second_broker_on_the_same_directory_or_socket_is_refused(self):  # case 25
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            command = broker.command()
            done = subprocess.run(command, capture_output=True, timeout=20, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(broker.process.pid).encode(), done.stderr)
            broker.flashq("cluster", "health")


if __name__ == "__main__":
    tap.main()
