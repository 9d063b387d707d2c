# SPDX-License-Identifier: Apache-2.0
"""A client that claims and sends many at once lives through what happens to its broker and to itself, with a signal every
millisecond: nothing is lost, stored twice or out of order, and no call says EINTR."""
import os
import signal
import subprocess
import time
import unittest

import harness
import tap

SURVIVOR = os.path.join(harness.BUILD, "tests", "integration", "survivor")
STOPPED_SECONDS = harness.scaled(60.0, 3.0)
RESTARTS = harness.scaled(10, 4)


class Survive(unittest.TestCase):
    def live_through(self, count, happens):
        for transport in ("shm", "tcp"):
            with self.subTest(transport), harness.scratch() as folder, harness.Broker(folder) as broker:
                broker.flashq("topic", "create", "t")
                client = subprocess.Popen([SURVIVOR, broker.address(transport), str(count)],
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                try:
                    harness.wait_for("records", lambda: broker.counters()["append.records"] > 100)
                    happens(broker, client)
                    out, err = client.communicate(timeout=180)
                finally:
                    client.kill()
                    client.wait()
                self.assertEqual(client.returncode, 0, err)
                self.assertEqual(err, b"")
                print(f"# {transport}: {out.decode().strip()}", flush=True)
                lines = broker.flashq("sub", "t", "-o", "start", "-e").split()
                self.assertGreaterEqual(len(lines), count)
                wrong = [at for at, line in enumerate(lines) if int(line) != at]
                self.assertEqual(wrong[:3], [], "a gap, a duplicate, or out of order")

    def test_the_broker_restarts_under_load(self):  # cases 40, 42
        def restarts(broker, client):
            for cycle in range(RESTARTS):
                time.sleep(0.2)
                self.assertIsNone(client.poll(), "it was done before the broker was")
                if cycle % 2:
                    broker.kill()
                else:
                    broker.stop()
                broker.start()
        self.live_through(harness.scaled(60000, 30000), restarts)

    def test_the_broker_is_stopped_for_long(self):  # case 28
        def pause(broker, client):
            broker.pause()
            time.sleep(STOPPED_SECONDS)
            self.assertIsNone(client.poll(), "it was done before the broker went on")
            broker.resume()
        self.live_through(20000, pause)

    def test_the_client_is_stopped_for_long(self):  # case 28
        def pause(_, client):
            client.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            client.send_signal(signal.SIGCONT)
        self.live_through(20000, pause)


if __name__ == "__main__":
    tap.main()
