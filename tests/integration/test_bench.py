# SPDX-License-Identifier: Apache-2.0
"""flashq bench prints what its documentation promises, and its numbers add up."""
import json
import re
import unittest

import harness
import tap

COUNT = harness.scaled(2_000_000, 100_000)


class Bench(unittest.TestCase):
    def check(self, document, count, size):
        self.assertGreater(document["msgs_per_s"], 0)
        self.assertAlmostEqual(document["mb_per_s"], document["msgs_per_s"] * size / 1e6,
                               delta=0.05 * document["mb_per_s"])
        self.assertEqual(document["msgs"], count)
        self.assertEqual(document["errors"], 0)
        latency = document["latency_us"]
        order = [latency[name] for name in ("p50", "p90", "p99", "p999", "p9999", "max")]
        self.assertEqual(order, sorted(order))
        self.assertIn("mean", latency)
        self.assertGreaterEqual(document["cpu_percent"], 0)
        self.assertGreater(document["memcpy_gb_per_s"], 0)

    def test_pub_sub_and_pull(self):
        settings = {"retention.bytes": "0"}
        with harness.scratch() as folder, harness.Broker(folder, settings=settings) as broker:
            for transport, share in (("shm", 1), ("tcp", 4)):
                count = COUNT // share
                topic = f"T-{transport}"
                out = json.loads(broker.flashq("bench", "pub", topic, "--msgs", str(count), "--size", "1024",
                                               "--transport", transport, "--json", transport=transport,
                                               timeout=300))
                self.check(out, count, 1024)
                self.assertGreater(out["batches"]["count"], 0)
                self.assertGreater(out["batches"]["mean_bytes"], 1024)
                print(f"# pub {transport}: {out['msgs_per_s']:.0f} msg/s, memcpy {out['memcpy_gb_per_s']:.1f} GB/s",
                      flush=True)
                for mode in ("sub", "pull"):
                    out = json.loads(broker.flashq("bench", mode, topic, "--msgs", str(count // 2),
                                                   "--transport", transport, "--verify", "--json",
                                                   transport=transport, timeout=300))
                    self.check(out, count // 2, 1024)
                    print(f"# {mode} {transport}: {out['msgs_per_s']:.0f} msg/s", flush=True)

    def test_a_topic_that_was_trimmed(self):
        settings = {"retention.bytes": "4MiB"}
        with harness.scratch() as folder, harness.Broker(folder, settings=settings) as broker:
            broker.flashq("bench", "pub", "T", "--msgs", "20000", "--size", "1024")
            broker.flashq("topic", "trim", "T", "-p", "0", "--before", "19000")
            out = json.loads(broker.flashq("bench", "sub", "T", "--msgs", "1000", "--verify", "--json"))
            self.check(out, 1000, 1024)
            _, said = broker.run("bench", "sub", "T", "-o", "5", "--msgs", "1000", "--verify", code=1)
            self.assertIn("position is below the log start", said)

    def test_one_at_a_time(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            out = json.loads(broker.flashq("bench", "pub", "T", "--msgs", "2000", "--size", "1024", "--sync",
                                           "--json"))
            self.check(out, 2000, 1024)

    def test_limits(self):
        out = json.loads(harness.flashq("-O", "json", "bench", "limits", timeout=120)[0])
        text = json.dumps(out)
        self.assertIn("memcpy", text)
        found = [value for value in re.findall(r'"line_handover_ns"[^-0-9]*(-?[0-9.]+)', text)]
        self.assertTrue(found, text)
        # two threads on one core would take turns of a scheduler's tick, a thousand times this
        self.assertLess(float(found[0]), 20_000)


if __name__ == "__main__":
    tap.main()
