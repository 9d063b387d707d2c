# SPDX-License-Identifier: Apache-2.0
"""Nonsense on the port: a hint or a clear error to that peer, a counter, nobody else affected."""
import os
import socket
import ssl
import subprocess
import threading
import time
import unittest

import harness
import tap


HOSTILE_PEER = os.path.join(harness.BUILD, "tests", "integration", "hostile_peer")


class BadInput(unittest.TestCase):
    def setUp(self):
        stack = harness.contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = stack.enter_context(harness.scratch())
        self.broker = stack.enter_context(harness.Broker(folder))
        self.broker.flashq("topic", "create", "t")
        self.rng = harness.seeded("bad input")

    def connect(self, transport="tcp"):
        if transport == "tcp":
            peer = socket.create_connection(("127.0.0.1", self.broker.port), timeout=10)
        else:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(10)
            peer.connect(self.broker.socket)
        return peer

    def answer(self, data, transport="tcp", shut=True):
        """Sends data, returns everything until the broker closes."""
        with self.connect(transport) as peer:
            got = b""
            try:
                peer.sendall(data)
                if shut:
                    peer.shutdown(socket.SHUT_WR)
                while True:
                    part = peer.recv(65536)
                    if not part:
                        return got
                    got += part
            except OSError:             # the broker may have hung up already
                return got

    def still_serving(self):
        self.broker.flashq("pub", "t", "alive", transport="tcp")
        self.broker.flashq("pub", "t", "alive", transport="shm")

    def refused(self):
        return sum(value for name, value in self.broker.counters().items() if name.startswith("bad_input."))

    def test_http_and_tls_get_a_hint_and_a_close(self):  # case 33
        before = self.refused()
        for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /topics HTTP/1.0\r\n\r\n"):
            self.assertIn(b"FlashQ", self.answer(request, shut=False))
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with self.assertRaises(OSError):
            with self.connect() as peer:
                context.wrap_socket(peer)
        self.assertGreaterEqual(self.refused(), before + 3)
        self.still_serving()

    def test_random_bytes_truncations_and_lying_lengths(self):  # case 33
        for transport in ("tcp", "shm"):
            for _ in range(harness.scaled(300, 60)):
                self.answer(self.rng.randbytes(self.rng.randrange(1, 600)), transport)
        with self.connect() as peer:   # what a real client says first, then variations of it
            pass
        captured = self.capture_hello()
        self.assertGreater(len(captured), 0)
        for cut in range(len(captured)):
            self.answer(captured[:cut])
        for _ in range(harness.scaled(500, 100)):
            mutated = bytearray(captured)
            for _ in range(self.rng.randrange(1, 4)):
                mutated[self.rng.randrange(len(mutated))] = self.rng.randrange(256)
            self.answer(bytes(mutated) + self.rng.randbytes(200))
        for length in (0, 1, 0x7fffffff, 0xffffffff):
            self.answer(captured + length.to_bytes(4, "little") * 8)
        self.still_serving()

    def capture_hello(self):
        """The first bytes that the real client sends over tcp."""
        captured = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

            def accept():
                peer, _ = server.accept()
                captured.append(peer.recv(65536))
                peer.close()
            thread = threading.Thread(target=accept)
            thread.start()
            harness.flashq("--timeout", "1s", "topic", "list", brokers=f"tcp:127.0.0.1:{port}", code=None)
            thread.join(5)
        return captured[0] if captured else b""

    def test_silent_connections_are_closed_and_do_not_keep_others_out(self):
        peers = [self.connect() for _ in range(200)]
        self.still_serving()
        for peer in peers:
            peer.close()

    def test_memory_does_not_follow_claimed_lengths(self):  # case 33
        def resident():
            with open(f"/proc/{self.broker.process.pid}/statm", encoding="ascii") as text:
                return int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.still_serving()
        before = resident()
        peers = []
        hello = self.capture_hello()
        for _ in range(50):
            peer = self.connect()
            peer.sendall(hello + b"\xff" * 64)
            peers.append(peer)
        time.sleep(0.3)
        self.assertLess(resident() - before, 64 << 20)
        for peer in peers:
            peer.close()
        self.still_serving()

    def hostile(self, transport, mode):
        seed = str(self.rng.randrange(1 << 62))
        print(f"# hostile_peer {transport} {seed} {mode}", flush=True)
        done = subprocess.run([HOSTILE_PEER, self.broker.address(transport), "t", seed, mode],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = [int(word) for word in done.stdout.split() if word.isdigit()]
        print(f"# {mode}: {done.stdout.strip()}", flush=True)
        return dict(zip(("accepted", "refused", "disconnected"), numbers))

    def test_a_peer_that_rewrites_its_ring_while_the_broker_reads_it(self):
        got = self.hostile("shm", "flip")
        self.assertGreater(got["accepted"], 0)
        out = self.broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%o %v\n")   # every CRC holds
        offsets = [int(line.split(b" ")[0]) for line in out.splitlines()]
        self.assertEqual(offsets, list(range(len(offsets))))
        self.assertGreaterEqual(len(offsets), 4 * got["accepted"])  # the last may be unacknowledged
        self.still_serving()

    def test_peers_that_send_garbage_batches_flood_or_lie_in_messages_and_tokens(self):
        for transport in ("shm", "tcp"):
            got = self.hostile(transport, "garbage")
            self.assertEqual(got["accepted"], 0)
            self.assertGreater(got["refused"] + got["disconnected"], 0)
            # whether a flood is ever ahead of the broker by more than its credits is a race; nobody else
            # may notice it either way (the unit tests post it in one piece and see it refused)
            self.hostile(transport, "flood")
            self.hostile(transport, "messages")
            self.assertEqual(self.hostile(transport, "tokens")["refused"], 50)
            self.still_serving()

    def test_an_exposed_listener_must_be_asked_for(self):
        other = harness.Broker(self.broker.folder + "/other", settings={"listen.tcp": "0.0.0.0:0"})
        os.makedirs(other.data)
        with self.assertRaises(AssertionError):
            other.start()
        self.assertIn("listen.insecure", other.log())


class Config(unittest.TestCase):
    def refuse(self, text):
        with harness.scratch() as folder:
            path = f"{folder}/flashqd.yaml"
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            done = harness.subprocess.run([harness.FLASHQD, "--config", path], capture_output=True,
                                          timeout=20, check=False)
            self.assertNotEqual(done.returncode, 0, text)
            return done.stderr.decode()

    def test_unknown_keys_and_bad_values_name_file_line_and_a_suggestion(self):
        message = self.refuse("# comment\nlog:\n  segment:\n    byte: 1MiB\n")
        self.assertIn("flashqd.yaml:4", message)
        self.assertIn("log.segment.bytes", message)
        message = self.refuse("shards: many\n")
        self.assertIn("flashqd.yaml:1", message)
        message = self.refuse("message.max.bytes: 12\n")
        self.assertIn("1024", message.replace("1KiB", "1024").replace("1 KiB", "1024"))
        self.assertIn("flashqd.yaml:2", self.refuse("shards: 1\nshards: 2\n"))
        self.assertIn("flashqd.yaml", self.refuse("a: [\n"))


if __name__ == "__main__":
    tap.main()
