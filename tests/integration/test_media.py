# SPDX-License-Identifier: Apache-2.0
"""Disks that fail, fill up or flip bits; metadata that is damaged or gone."""
import contextlib
import glob
import json
import os
import shutil
import subprocess
import time
import unittest

import harness
import tap

FAIL_IO = os.environ["FLASHQ_FAIL_IO_LIBRARY"]


def segments(broker, topic):
    return sorted(glob.glob(f"{broker.data}/{topic}-*/*/*.log"))


class Failing(unittest.TestCase):
    def break_io(self, what):
        with harness.scratch("disk") as folder:
            switch = f"{folder}/switch"
            env = {"LD_PRELOAD": FAIL_IO, "FLASHQ_FAIL_IO": switch,
                   "ASAN_OPTIONS": "verify_asan_link_order=0"}   # the sanitizer's runtime is not first
            broker = harness.Broker(folder, flush="sync", env=env)
            with broker:
                broker.env = dict(os.environ)       # for the commands: no faults there
                broker.flashq("topic", "create", "t")
                broker.flashq("topic", "create", "other")
                broker.flashq("pub", "t", input=b"".join(b"%d\n" % n for n in range(100)))
                with open(switch, "w", encoding="ascii") as out:
                    out.write(what)
                out, stderr = broker.run("-X", "delivery.timeout.ms=5000", "pub", "t", "--report", "doomed",
                                         code=1)
                self.assertEqual(out, b"", "an acknowledgement was a lie")
                self.assertRegex(stderr.lower(), r"may or may not|maybe|offline")
                os.unlink(switch)
                # the partition stays offline: a write that works again proves nothing about the lost one
                _, stderr = broker.run("-X", "delivery.timeout.ms=2000", "pub", "t", "later", code=1)
                self.assertIn("offline", stderr.lower())
                broker.flashq("pub", "other", "fine")
                document = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))
                self.assertIn("OFFLINE", json.dumps(document).upper())
                self.assertIn("offline", broker.log().lower())
                broker.kill()
                broker.start()
                out = broker.flashq("sub", "t", "-o", "start", "-e").split()
                self.assertEqual(out[:100], [b"%d" % n for n in range(100)])
                self.assertLessEqual(set(out[100:]), {b"doomed"}, "only the maybe may be there")
                broker.flashq("pub", "t", "works again")

    def test_a_failed_sync_takes_the_partition_offline(self):
        self.break_io("sync")

    def test_a_failed_write_takes_the_partition_offline(self):
        self.break_io("write")

    def test_log_and_doctor_say_what_is_guaranteed(self):
        with harness.scratch("disk") as folder, harness.Broker(folder, flush="sync") as broker:
            self.assertRegex(broker.log(), r"(?i)medium.*\n?.*guarantee|guarantee")
            self.assertIn("sync", broker.log())
            out = broker.flashq("doctor", code=None).decode()
            self.assertIn("flush sync: an acknowledged record survives power loss", out)
        with harness.scratch() as folder, harness.Broker(folder, flush="pmem") as broker:
            self.assertIn("emulated", broker.log())


@contextlib.contextmanager
def small_tmpfs(megabytes):
    with harness.scratch() as folder:
        mount = f"{folder}/small"
        os.mkdir(mount)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", mount], check=True)
        try:
            yield mount
        finally:
            subprocess.run(["umount", "-l", mount], check=True)


class Full(unittest.TestCase):
    def test_a_full_medium_refuses_clearly_and_recovers(self):  # case 24
        with small_tmpfs(160) as mount:
            settings = {"log.segment.bytes": "4MiB", "log.prepared.bytes": "4MiB"}
            broker = harness.Broker(mount, settings=settings)
            broker.socket = "/dev/shm/" + os.path.basename(os.path.dirname(mount)) + ".sock"
            broker.log_path = "/dev/shm/" + os.path.basename(os.path.dirname(mount)) + ".log"
            self.addCleanup(lambda: [os.path.exists(p) and os.unlink(p)
                                     for p in (broker.socket, broker.log_path)])
            with broker:
                broker.flashq("topic", "create", "t")
                broker.flashq("topic", "create", "spare")
                value = b"x" * 1000
                out, stderr = broker.run("-X", "delivery.timeout.ms=8000", "pub", "t", "--report",
                                         input=(value + b"\n") * 200000, code=1)
                self.assertRegex(stderr.lower(), r"no space|full")
                acked = [line["offset"] for line in harness.json_lines(out)]
                self.assertGreater(len(acked), 1000)
                count = broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%o\n").split()
                self.assertGreaterEqual(len(count), len(acked))
                # fill the rest to the last byte, then restart
                with contextlib.suppress(OSError), open(f"{mount}/filler", "wb", buffering=0) as filler:
                    while filler.write(b"\0" * 4096):
                        pass
                broker.kill()
                broker.start()
                again = broker.flashq("sub", "t", "-o", "start", "-e", "-f", "%o\n").split()
                self.assertEqual(again[:len(acked)], [b"%d" % offset for offset in acked])
                # deleting works with no byte free, and appends come back by themselves
                os.unlink(f"{mount}/filler")
                broker.flashq("topic", "delete", "t")
                harness.wait_for("space to come back", lambda: self.can_publish(broker), 20)
                self.assertEqual(broker.stop(), 0)

    @staticmethod
    def can_publish(broker):
        try:
            broker.flashq("-X", "delivery.timeout.ms=1000", "pub", "spare", "x")
            return True
        except AssertionError:
            return False


class Damaged(unittest.TestCase):
    def filled(self, broker, count=2000):
        broker.flashq("topic", "create", "t")
        lines = b"".join(b"record-%06d\n" % n for n in range(count))
        for block in range(0, count, 100):     # batches of at most 100 records
            broker.flashq("pub", "t", input=b"".join(b"record-%06d\n" % n
                                                     for n in range(block, block + 100)))
        return lines

    def test_one_flipped_bit_is_reported_with_its_place_and_the_rest_is_read(self):  # case 20
        rng = harness.seeded("flipped bit")
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            self.filled(broker)
            for stop in (broker.stop, broker.kill):
                stop()
                path = segments(broker, "t")[0]
                shutil.copy(path, f"{folder}/good")
                with open(path, "r+b") as file:
                    content = file.read()
                    place = content.index(b"record-000500") + rng.randrange(13)
                    file.seek(place)
                    file.write(bytes([content[place] ^ (1 << rng.randrange(8))]))
                broker.start()
                for transport in ("shm", "tcp"):
                    out, stderr = broker.run("sub", "t", "-o", "start", "-e", code=7, transport=transport)
                    got = out.split()
                    expected = [b"record-%06d" % n for n in range(2000)]
                    self.assertTrue(set(got) <= set(expected), "wrong bytes were served")
                    lost = [value for value in expected if value not in set(got)]
                    self.assertIn(b"record-000500", lost)
                    self.assertLessEqual(len(lost), 100, "more than the damaged batch was lost")
                    self.assertRegex(stderr, r"500|4\d\d")
                verify, stderr = harness.flashq("log", "verify", broker.data, code=7)
                self.assertIn(os.path.basename(path).encode(), verify + stderr.encode())
                broker.stop()
                shutil.copy(f"{folder}/good", path)
                broker.start()
                self.assertEqual(len(broker.flashq("sub", "t", "-o", "start", "-e").split()), 2000)

    def test_a_lost_or_damaged_index_and_metadata_are_rebuilt(self):  # cases 21, 22
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            lines = self.filled(broker)
            want = broker.flashq("query", "t", "--at", "-1h")

            def remove(pattern):
                found = glob.glob(f"{broker.data}/{pattern}", recursive=True)
                for path in found:
                    os.unlink(path)
                return found

            def damage(pattern):
                for path in glob.glob(f"{broker.data}/{pattern}", recursive=True):
                    size = os.path.getsize(path)
                    with open(path, "r+b") as file:
                        for at in range(0, min(size, 1 << 20), 997):
                            file.seek(at)
                            file.write(b"\xa5")
            for action in (lambda: remove("**/*.index"), lambda: remove("meta.pool"),
                           lambda: damage("meta.pool"), lambda: open(f"{broker.data}/meta.pool", "wb").close(),
                           lambda: (remove("meta.pool"), remove("**/*.index"))):
                self.assertEqual(broker.stop(), 0)
                action()
                broker.start()
                self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), lines)
                self.assertEqual(broker.flashq("query", "t", "--at", "-1h"), want)

    def test_unknown_files_are_never_deleted(self):  # case 21
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            lines = self.filled(broker, 200)
            broker.stop()
            strangers = [f"{broker.data}/notes.txt", f"{os.path.dirname(segments(broker, 't')[0])}/x.log",
                         f"{broker.data}/stranger-0123/0/00000000000000000000.log"]
            for path in strangers:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    out.write(b"precious " + path.encode())
            broker.start()
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), lines)
            time.sleep(0.5)
            kept = subprocess.run(["grep", "-rl", "precious", broker.data], capture_output=True,
                                  check=False).stdout.split()
            self.assertEqual(len(kept), len(strangers))

    def test_a_torn_tail_is_cut_cleanly_and_never_revived(self):  # case 23
        with harness.scratch() as folder, harness.Broker(folder) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("pub", "t", "first")
            broker.kill()
            path = segments(broker, "t")[0]
            with open(path, "r+b") as file:
                content = file.read()
                end = 4096 + content[4096:].rstrip(b"\0").__len__()
                batch = content[4096:end]
                torn = bytearray(batch)
                torn[0:8] = (1).to_bytes(8, "big")     # the next offset, but above the tail word
                file.seek(end)
                file.write(torn[:-5])
            broker.start()
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"first\n")
            broker.flashq("pub", "t", "second")
            broker.kill()
            broker.start()
            self.assertEqual(broker.flashq("sub", "t", "-o", "start", "-e"), b"first\nsecond\n")

    def test_the_end_does_not_depend_on_retention(self):  # case 11
        settings = {"log.segment.bytes": "1MiB"}
        with harness.scratch() as folder, harness.Broker(folder, settings=settings) as broker:
            broker.flashq("topic", "create", "t", "-c", "retention.bytes=2MiB")
            ends = [0]
            for _ in range(6):
                broker.flashq("pub", "t", input=(b"x" * 1000 + b"\n") * 2000)
                document = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))
                partition = document["partitions"][0]
                self.assertEqual(partition["end"], ends[-1] + 2000)
                ends.append(partition["end"])
            harness.wait_for("retention", lambda: json.loads(broker.flashq(
                "-O", "json", "topic", "describe", "t"))["partitions"][0]["start"] > 0)
            self.assertLess(len(segments(broker, "t")), 8)
            broker.flashq("topic", "trim", "t", "-p", "0", "--before", str(ends[-1]))
            for stop in (broker.stop, broker.kill):
                stop()
                broker.start()
                document = json.loads(broker.flashq("-O", "json", "topic", "describe", "t"))
                self.assertEqual(document["partitions"][0]["end"], ends[-1])
            out = harness.json_lines(broker.flashq("pub", "t", "--report", "next"))
            self.assertEqual(out[0]["offset"], ends[-1])


class StartTime(unittest.TestCase):
    def test_a_gigabyte_log_is_ready_soon(self):
        import statistics
        runs = harness.scaled(20, 3)
        size = harness.scaled(1 << 30, 128 << 20)
        limits = {"clean": 0.2, "unclean": 1.0}
        if harness.SANITIZED:
            limits = {"clean": 5.0, "unclean": 10.0}
        settings = {"log.segment.bytes": "1GiB"}
        with harness.scratch() as folder, harness.Broker(folder, settings=settings) as broker:
            broker.flashq("topic", "create", "t")
            broker.flashq("bench", "pub", "t", "--msgs", str(size // 1024), "--size", "1024", timeout=300)
            for how, stop in (("clean", broker.stop), ("unclean", broker.kill)):
                times = []
                for _ in range(runs):
                    stop()
                    times.append(broker.start())
                median = statistics.median(times)
                print(f"# {how} start of {size >> 20} MiB: median {1000 * median:.0f} ms, "
                      f"greatest {1000 * max(times):.0f} ms", flush=True)
                self.assertLess(median, limits[how], times)


if __name__ == "__main__":
    tap.main()
