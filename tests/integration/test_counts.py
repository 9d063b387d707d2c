# SPDX-License-Identifier: Apache-2.0
"""What a record costs in system calls, page faults and allocations at saturation, counted on both sides."""
import os
import struct
import subprocess
import unittest

import harness
import tap

COUNTER = os.environ.get("FLASHQ_COUNT_LIBRARY",
                         os.path.join(harness.BUILD, "tests", "integration", "libflashq_count_calls.so"))
SEGMENT = 16 << 20
SIZE = 100
RECORDS = 1_000_000
FEW = 100_000  # what a client does at its start and end is in a run of these too
PAST_EVERY_NEW_SEGMENT = 20 * SEGMENT // SIZE
KINDS = ("syscalls", "faults", "allocations")


def read_counts(path):
    with open(path, "rb") as file:
        allocations, calls = struct.unpack("QQ", file.read(16))
    return calls, allocations


@unittest.skipIf(harness.SANITIZED, "sanitizers bring their own allocator")
class Counts(unittest.TestCase):
    def setUp(self):
        scratch = harness.scratch()
        self.folder = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        self.broker_file = os.path.join(self.folder, "broker.counts")
        broker = harness.Broker(self.folder, env={"LD_PRELOAD": COUNTER, "FLASHQ_COUNT_FILE": self.broker_file},
                                settings={"log.segment.bytes": SEGMENT, "retention.bytes": 8 * SEGMENT})
        self.broker = broker.__enter__()
        self.addCleanup(broker.__exit__, None, None, None)
        self.client("shm", "pub", PAST_EVERY_NEW_SEGMENT)

    def broker_now(self):
        with open(f"/proc/{self.broker.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        calls, allocations = read_counts(self.broker_file)
        return calls, int(fields[7]) + int(fields[9]), allocations

    def client(self, transport, kind, records):
        """One client from start to end: (its counts, the broker's)."""
        path = os.path.join(self.folder, "client.counts")
        if os.path.exists(path):
            os.unlink(path)
        words = kind.split()
        options = ["--no-latency"] if words[0] == "pub" else ["--warmup", "0"]
        before = self.broker_now() if os.path.exists(self.broker_file) else (0, 0, 0)
        process = subprocess.Popen(
            [harness.FLASHQ, "-b", self.broker.address(transport), "bench", words[0], "T", "-n", str(records),
             "--size", str(SIZE), *options, *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=dict(os.environ, LD_PRELOAD=COUNTER, FLASHQ_COUNT_FILE=path))
        errors = process.stderr.read()
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, errors)
        calls, allocations = read_counts(path)
        after = self.broker_now()
        return ((calls, used.ru_minflt + used.ru_majflt, allocations),
                tuple(now - then for now, then in zip(after, before)))

    def check(self, transport, kind, client_most, broker_most):
        few, more = self.client(transport, kind, FEW), self.client(transport, kind, FEW + RECORDS)
        for side, most, least, full in (("client", client_most, few[0], more[0]),
                                        ("broker", broker_most, few[1], more[1])):
            self.assertTrue(full[0] > 0 and (side == "broker" or full[2] > 0), f"nothing was counted: {full}")
            costs = [max(0, b - a) / RECORDS for a, b in zip(least, full)]
            print(f"# {transport} {kind}: {side}, per million records: " +
                  ", ".join(f"{1e6 * cost:.0f} {name}" for name, cost in zip(KINDS, costs)), flush=True)
            for name, cost, bound in zip(KINDS, costs, most):
                self.assertLess(cost, bound, f"{transport} {kind}: {name} per record, {side}")

    SHM = (0.01, 0.01, 0.01)
    # A shard that is faster than its publisher looks for more, and yields its processor between two looks: those calls
    # go by the time it has left, not by records.
    SHM_SHARD = (0.05, 0.01, 0.01)

    def test_pub_over_shm(self):
        self.check("shm", "pub", self.SHM, self.SHM_SHARD)

    def test_push_over_shm(self):
        self.check("shm", "sub --mode push", self.SHM, self.SHM)

    def test_pull_over_shm(self):
        self.check("shm", "sub --mode pull", self.SHM, self.SHM)

    # A socket takes and gives what it has room for: of a batch of 64 KiB (600 records) often much less.
    TCP = (0.1, 0.01, 0.01)
    TCP_SHARD = (0.4, 0.01, 0.01)  # and looks at the socket in the time it has left

    def test_tcp(self):
        for kind in ("pub", "sub --mode push", "sub --mode pull"):
            self.check("tcp", kind, self.TCP, self.TCP_SHARD)


if __name__ == "__main__":
    tap.main()
