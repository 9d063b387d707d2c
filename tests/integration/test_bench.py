# SPDX-License-Identifier: Apache-2.0
"""flashq bench prints what its documentation promises, and its numbers add up."""
import csv
import json
import os
import pty
import subprocess
import time
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
        order = [latency[name] for name in ("min", "p50", "p90", "p99", "p999", "p9999", "max")]
        self.assertEqual(order, sorted(order))
        self.assertIn("mean", latency)
        self.assertGreaterEqual(document["cpu_percent"], 0)
        self.assertGreater(document["memcpy_gb_per_s"], 0)
        self.assertEqual(sum(client["msgs"] for client in document["per_client"]), count)
        self.assertEqual(sum(client["latency_us"]["count"] for client in document["per_client"]), latency["count"])
        self.assertEqual(set(document["versions"]), {"flashq", "libflashq", "kernel"})
        self.assertIn(" bench ", document["command"])
        if document["verified"]:
            faults = [document["verified"][name] for name in ("missing", "duplicates", "reordered", "corrupt")]
            self.assertEqual(faults, [0, 0, 0, 0])

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

    def test_a_warm_up_is_in_no_figure(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            hdr, series = os.path.join(folder, "l.hdr"), os.path.join(folder, "l.csv")
            out = json.loads(broker.flashq("bench", "pub", "T", "-n", "5000", "--warmup", "3000", "--clients", "3",
                                           "-p", "4", "--hdr", hdr, "--series", series, "--series-interval",
                                           "10ms", "--verify", "--json"))
            self.check(out, 5000, 1024)
            self.assertEqual(out["latency_us"]["count"], 5000)
            self.assertEqual((len(out["per_client"]), out["partitions"], out["loop"]), (3, 4, "closed"))
            self.assertEqual(out["verified"]["records"], 8000)  # those of the warm-up were published too
            self.check_hdr(hdr, 5000, out["latency_us"])
            with open(series, encoding="ascii") as file:
                lines = list(csv.DictReader(file))
            self.assertEqual(sum(int(line["count"]) for line in lines), 5000)
            for line in lines:
                if line["count"] != "0":
                    order = [float(line[name]) for name in ("p50_us", "p99_us", "p999_us", "max_us")]
                    self.assertEqual(order, sorted(order))
            # all 8000 of them, in any order of the partitions; then the last of each partition
            out = json.loads(broker.flashq("bench", "sub", "T", "-n", "7000", "--warmup", "1000", "--verify", "--json"))
            self.check(out, 7000, 1024)
            self.assertEqual(out["verified"]["records"], 8000)
            out = json.loads(broker.flashq("bench", "sub", "T", "-o", "-100", "-n", "400", "--verify", "--json"))
            self.check(out, 400, 1024)

    def check_hdr(self, path, count, latency):
        with open(path, encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0].split(), ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"])
        rows = [[float(field) for field in line.split()] for line in lines[2:] if not line.startswith("#")]
        self.assertEqual([len(row) for row in rows], [4] * (len(rows) - 1) + [3])
        self.assertEqual(rows, sorted(rows))
        self.assertEqual(rows[-1][2], count)
        self.assertAlmostEqual(rows[-1][0], latency["max"], delta=0.01)
        half = next(row for row in rows if row[1] == 0.5)
        self.assertAlmostEqual(half[0], latency["p50"], delta=latency["p50"] / 50)
        self.assertEqual([line.split("=")[0] for line in lines[-3:]], ["#[Mean    ", "#[Max     ", "#[Buckets "])

    def test_a_rate_makes_the_loop_open(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            out = json.loads(broker.flashq("bench", "pub", "T", "--rate", "20k", "--duration", "300ms", "--json"))
            self.assertEqual((out["loop"], out["latency_from"]), ("open", "intended send to acknowledgement"))
            self.assertLessEqual(out["msgs_per_s"], 20_500)
            # stopped for half a second: what was meant to be sent meanwhile has waited
            process = broker.popen("bench", "pub", "T", "--rate", "5k", "--duration", "2s", "--json")
            harness.wait_for("records", lambda: self.end_of(broker, "T") > 6500, pause=0.02)
            broker.pause()
            time.sleep(0.5)
            broker.resume()
            out = json.loads(process.communicate(timeout=60)[0])
            self.assertEqual(out["errors"], 0)
            self.assertGreater(out["latency_us"]["max"], 400_000)
            self.assertGreater(out["latency_us"]["p90"], 50_000, "every record that was due meanwhile has waited")

    def end_of(self, broker, topic):
        return json.loads(broker.flashq("-O", "json", "topic", "describe", topic))["partitions"][0]["end"]

    def test_end_to_end(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            out = json.loads(broker.flashq("bench", "e2e", "T", "-n", "500", "--warmup", "100", "--clients", "2",
                                           "--verify", "--json"))
            self.check(out, 1000, 1024)
            self.assertEqual(out["latency_us"]["count"], 1000)
            self.assertEqual(out["verified"]["records"], 1200)
            out = json.loads(broker.flashq("bench", "e2e", "T", "--duration", "300ms", "--verify", "--json"))
            self.assertEqual(out["errors"], 0)
            self.assertEqual(out["msgs"], out["verified"]["records"])

    def test_what_is_not_as_it_was_sent_fails_the_run(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("bench", "pub", "T", "-n", "1000", "--size", "100", "--verify")
            # the same bytes again: records that came before
            again = broker.flashq("sub", "T", "-o", "500", "-n", "10", "-O", "jsonl")
            broker.flashq("pub", "T", "--in", "jsonl", input=again)
            out, said = broker.run("bench", "sub", "T", "-n", "1010", "--size", "100", "--verify", "--json", code=1)
            self.assertEqual(json.loads(out)["verified"], {"records": 1010, "missing": 0, "duplicates": 10,
                                                           "reordered": 0, "corrupt": 0})
            self.assertIn("came twice", said)
            broker.flashq("pub", "T", "x" * 100)
            out, said = broker.run("bench", "sub", "T", "-n", "1011", "--size", "100", "--verify", "--json", code=1)
            self.assertEqual(json.loads(out)["verified"]["corrupt"], 1)
            # records with some left out between them, in another topic
            some = broker.flashq("sub", "T", "-o", "0", "-n", "50", "-O", "jsonl").splitlines(keepends=True)
            broker.flashq("topic", "create", "U")
            broker.flashq("pub", "U", "--in", "jsonl", input=b"".join(some[:20] + some[23:]).replace(b'"T"', b'"U"'))
            out, said = broker.run("bench", "sub", "U", "-n", "47", "--size", "100", "--verify", "--json", code=1)
            self.assertEqual(json.loads(out)["verified"], {"records": 47, "missing": 3, "duplicates": 0,
                                                           "reordered": 0, "corrupt": 0})
            self.assertIn("missing", said)

    def test_reading_for_a_time_begins_again(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("bench", "pub", "T", "-n", "2000", "-p", "3")
            out = json.loads(broker.flashq("bench", "sub", "T", "--duration", "500ms", "--verify", "--json"))
            self.assertGreater(out["msgs"], 2000)
            self.assertEqual((out["errors"], out["verified"]["records"]), (0, out["msgs"]))

    def test_one_record_a_call_without_reading_ahead(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            for transport in ("shm", "tcp"):
                out = json.loads(broker.flashq("bench", "pull", "T", "-n", "2000", "--prefetch", "off", "--verify",
                                               "--json", transport=transport))
                self.check(out, 2000, 1024)
                self.assertEqual((out["latency_us"]["count"], out["prefetch"]), (2000, False))

    def test_a_terminal_sees_how_far_it_is(self):
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            ours, theirs = pty.openpty()
            process = broker.popen("bench", "pub", "T", "--rate", "1000", "--duration", "1s", stderr=theirs)
            os.close(theirs)
            said = b""
            try:
                while chunk := os.read(ours, 4096):
                    said += chunk
            except OSError:
                pass  # the other side is closed
            out = process.communicate(timeout=60)[0]
            os.close(ours)
            self.assertRegex(said.decode(), r"\r\[#* *\] +[0-9]+ %  [0-9]+ msgs/s  [0-9]+ s left")
            self.assertNotIn(b"\n", said)
            self.assertNotIn(b"\r", out)

    def test_limits(self):
        out = json.loads(harness.flashq("-O", "json", "bench", "limits", "--dir", "/var/tmp", "--duration", "50ms",
                                        timeout=120)[0])
        limits = out["limits"]
        self.assertGreater(limits["memcpy_prepared_gb_per_s"], 0)
        self.assertEqual(list(limits["tcp_stream_gb_per_s"]), ["1024", "65536", "262144", "1048576"])
        if os.cpu_count() > 1:
            self.assertEqual(len(set(out["cores"])), 2)
            self.assertTrue(all(value is not None and (isinstance(value, dict) or value > 0)
                                for value in limits.values()), limits)
            # two threads on one core would take turns of a scheduler's tick, a thousand times this
            self.assertLess(limits["line_handover_ns"], 20_000)
        out = json.loads(harness.flashq("-O", "json", "bench", "limits", "--only", "crc32c,tcp-stream", "--write-size",
                                        "5000", "--duration", "20ms", timeout=120)[0])
        self.assertEqual(set(out["limits"]), {"crc32c_gb_per_s", "tcp_stream_gb_per_s"})
        self.assertEqual(list(out["limits"]["tcp_stream_gb_per_s"]), ["5000"])
        harness.flashq("bench", "limits", "--only", "nothing", code=2)
        harness.flashq("bench", "limits", "--cores", "0,0", code=2)

    def test_a_row_of_the_table(self):
        with harness.scratch() as folder:
            paths = {name: os.path.join(folder, name) for name in ("json", "markdown")}
            command = [os.path.join(harness.SOURCE, "tools", "bench.sh"), "--quick", "sync-tcp"]
            for name, path in paths.items():
                command += [f"--{name}", path]
            done = subprocess.run(command, env=dict(os.environ, FLASHQ_BUILD=harness.BUILD), capture_output=True,
                                  text=True, timeout=300, check=False)
            self.assertIn(done.returncode, (0, 1), done.stderr)  # whether it holds is not asked of a test
            with open(paths["json"], encoding="utf-8") as file:
                document = json.load(file)
            row, = document["rows"]
            self.assertNotIn("fault", row)
            pair, = row["pairs"]
            check, = row["checks"]
            self.assertEqual(row["row"], "sync-tcp")
            self.assertGreater(pair["mean"], 0)
            self.assertAlmostEqual(check["value"], pair["p50"] / pair["round_trip"])
            self.assertEqual(check["verdict"], "ok" if check["value"] <= 2 else "short")
            self.assertEqual(done.returncode, 0 if check["verdict"] == "ok" else 1)
            self.assertIn("emulated", document["machine"])
            self.assertIn("| `sync-tcp` |", open(paths["markdown"], encoding="utf-8").read())
            self.assertRegex(done.stdout, r"(?m)^sync-tcp .* (ok|short) ")


if __name__ == "__main__":
    tap.main()
