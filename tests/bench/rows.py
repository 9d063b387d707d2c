# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: what is measured, beside what, and what must hold.

A row is set up once (brokers, topics past their first segments); then ours() and yardstick() are called in turn,
pair by pair, each returning named figures. A check turns the figures of a pair into one number and says what its
median over the pairs must be."""
import contextlib
import dataclasses
import os
import threading
import time
import typing

from rig import MIB, Impossible

GIB = 1 << 30


@dataclasses.dataclass
class Check:
    what: str
    value: typing.Callable          # of a pair's figures
    limit: float
    at_least: bool = True
    unit: str = "x"
    is_absolute: bool = False       # binds only where the machine's pipeline is fast enough

    def holds(self, value):
        return value >= self.limit if self.at_least else value <= self.limit


def ratio(what, ours, yardstick, limit, at_least=True):
    return Check(what, lambda pair: pair[ours] / pair[yardstick], limit, at_least)


def absolute(what, key, limit, unit, at_least=True):
    return Check(what, lambda pair: pair[key], limit, at_least, unit, True)


class Row:
    name = ""
    what = ""
    checks = ()

    def __init__(self, rig):
        self.rig = rig
        self.duration = rig.scaled("2s", "200ms")
        self.warmup = rig.scaled("300ms", "50ms")
        # more than the 8 segments that retention keeps, and those of growing size before them
        self.fill_bytes = 16 * rig.segment

    @contextlib.contextmanager
    def ready(self):
        yield

    def ours(self):
        raise NotImplementedError

    def yardstick(self, ours):
        raise NotImplementedError

    def timed(self):
        return ("--warmup", self.warmup, "--duration", self.duration)


def published(document, size):
    return {"msgs_per_s": document["msgs_per_s"], "gb_per_s": document["msgs_per_s"] * size / 1e9,
            "batch_bytes": (document["batches"] or {"mean_bytes": 0})["mean_bytes"],
            "broker_cpu": document["broker_cpu_percent"] or 0, "client_cpu": document["cpu_percent"] or 0}


# ---- publishing ------------------------------------------------------------------------------

class Publish(Row):
    size = 1024
    transport = "shm"
    medium = "tmpfs"

    @contextlib.contextmanager
    def ready(self):
        with self.rig.broker(medium=self.medium) as self.client:
            self.client.fill("T", self.fill_bytes, self.size)
            yield

    def ours(self):
        return published(self.client.bench("pub", "T", "--size", str(self.size), "--no-latency", *self.timed(),
                                           transport=self.transport), self.size)

    def yardstick(self, ours):
        return {"pipeline": self.rig.limits("pipeline", size=1024)["pipeline_gb_per_s"]}


class Publish1K(Publish):
    name = "pub-1k"
    what = "publish 1 KB, 1 partition, 1 producer, acks all and persisted, shm (emulated NVM), beside the pipeline"
    checks = (ratio("share of the pipeline", "gb_per_s", "pipeline", 0.3),
              absolute("msgs/s", "msgs_per_s", 3e6, "msgs/s"))


class Publish64(Publish):
    name = "pub-64"
    what = "publish 64 B, otherwise the same"
    size = 64
    checks = (absolute("msgs/s", "msgs_per_s", 10e6, "msgs/s"),)


class PublishTcp(Publish):
    name = "pub-tcp"
    what = "publish 1 KB over tcp loopback, beside a raw stream of the batches' size"
    transport = "tcp"
    checks = (ratio("share of the stream", "gb_per_s", "stream", 0.5),)

    def yardstick(self, ours):
        size = max(1024, int(ours["batch_bytes"]))
        return {"stream": self.rig.limits("tcp-stream", write_size=size)["tcp_stream_gb_per_s"][str(size)]}


class PublishDisk(Publish):
    name = "pub-ext4"
    what = "publish 1 KB, fdatasync before each acknowledgement, beside 1 MiB pwrite + fdatasync"
    medium = "disk"
    checks = (ratio("share of the disk", "gb_per_s", "disk", 0.8),)

    def yardstick(self, ours):
        us = self.rig.limits("sync-large", dir=self.rig.disk)["write_fdatasync_1mib_us"]
        return {"disk": MIB / us / 1e3}


class Producers8(Publish):
    name = "producers-8"
    what = "8 producers on one partition, shm, beside one"
    checks = (ratio("share of one producer's", "msgs_per_s", "one", 0.7),)

    def ours(self):
        return published(self.client.bench("pub", "T", "--clients", "8", "--no-latency", *self.timed()), 1024)

    def yardstick(self, ours):
        return {"one": super().ours()["msgs_per_s"]}


class SyncShm(Row):
    name = "sync-shm"
    what = "publish to acknowledgement, one at a time, 1 KB, shm, default settings"
    transport = "shm"
    keys = ()
    broker_settings = {}
    checks = (absolute("mean of 1,000", "mean", 13, "us", at_least=False),
              ratio("p50 beside a spinning ping-pong", "p50", "round_trip", 3, at_least=False))

    @contextlib.contextmanager
    def ready(self):
        with self.rig.broker(**self.broker_settings) as self.client:
            self.client.fill("T", self.fill_bytes)
            yield

    def ours(self):
        out = self.client.bench("pub", "T", "--sync", "-n", "1000", "--warmup", "200", transport=self.transport,
                                keys=self.keys)["latency_us"]
        return {"mean": out["mean"], "p50": out["p50"], "p99": out["p99"]}

    def yardstick(self, ours):
        return {"round_trip": self.rig.limits("record", size=1024)["record_round_trip_us"]}


class SyncShmNoSpin(SyncShm):
    name = "sync-shm-nospin"
    what = "the same with spinning off on both sides, beside an eventfd there and back"
    keys = ("spin.us=0",)
    broker_settings = {"spin_us": 0}
    checks = (ratio("p50 beside eventfd", "p50", "round_trip", 1.5, at_least=False),)

    def yardstick(self, ours):
        return {"round_trip": self.rig.limits("eventfd")["eventfd_round_trip_us"]}


class SyncTcp(SyncShm):
    name = "sync-tcp"
    what = "the same over tcp loopback, spinning, beside a spinning TCP ping-pong of that size"
    transport = "tcp"
    checks = (ratio("p50 beside TCP", "p50", "round_trip", 2, at_least=False),)

    def yardstick(self, ours):
        return {"round_trip": self.rig.limits("tcp-spinning", size=1024)["tcp_spinning_round_trip_us"]}


# ---- reading ---------------------------------------------------------------------------------

class Drain(Row):
    size = 1024
    mode = ("--mode", "push")

    @contextlib.contextmanager
    def ready(self):
        stored = self.rig.scaled(2 * GIB if self.size >= 1024 else GIB, 32 * MIB)
        self.count = stored // (self.size + 12)
        with self.rig.broker(retention_bytes=2 * stored + 512 * MIB) as self.client, \
             self.rig.broker() as self.publishing:
            self.client.fill("T", self.count * self.size, self.size)
            self.publishing.fill("T", self.fill_bytes, self.size)
            yield

    def ours(self):
        out = self.client.bench("sub", "T", "-o", "start", "-n", str(self.count), "--size", str(self.size),
                                *self.mode)
        return {"msgs_per_s": out["msgs_per_s"]}

    def yardstick(self, ours):
        out = self.publishing.bench("pub", "T", "--size", str(self.size), "--no-latency", *self.timed())
        return {"publish": out["msgs_per_s"]}


class DrainPush1K(Drain):
    name = "drain-push-1k"
    what = "push draining a stored log, 1 KB, every CRC checked, shm, beside the publish rate"
    checks = (ratio("beside publishing", "msgs_per_s", "publish", 1.0),
              absolute("msgs/s", "msgs_per_s", 2.5e6, "msgs/s"))


class DrainPush64(Drain):
    name = "drain-push-64"
    what = "the same, 64 B"
    size = 64
    checks = (absolute("msgs/s", "msgs_per_s", 13.9e6, "msgs/s"),)


class DrainPull1K(Drain):
    name = "drain-pull-1k"
    what = "pull with prefetch draining a stored log, 1 KB, every CRC checked, shm"
    mode = ()  # the default
    checks = DrainPush1K.checks


class PullOne(Row):
    transport = "shm"
    count = (200_000, 20_000)

    @contextlib.contextmanager
    def ready(self):
        self.records = self.rig.scaled(*self.count)
        with self.rig.broker(retention_bytes=2 * GIB) as self.client:
            # the bench fills what is missing with one record a batch
            self.client.bench("pull", "T", "--prefetch", "off", "-n", str(self.records))
            yield

    def ours(self):
        out = self.client.bench("pull", "T", "--prefetch", "off", "-n", str(self.records),
                                transport=self.transport)
        return {"msgs_per_s": out["msgs_per_s"]}


class PullOneShm(PullOne):
    name = "pull-one-shm"
    what = "pull one record (of 1 KB, a batch of its own) per call, no prefetch, shm"
    checks = (absolute("msgs/s", "msgs_per_s", 1e6, "msgs/s"),)

    def yardstick(self, ours):
        return {"round_trip": self.rig.limits("record", size=1024)["record_round_trip_us"]}


class PullOneTcp(PullOne):
    name = "pull-one-tcp"
    what = "the same over tcp loopback, beside a raw TCP ping-pong of that size, spinning"
    transport = "tcp"
    count = (50_000, 5_000)
    checks = (ratio("share of the ping-pong's rate", "msgs_per_s", "rate", 0.5),)

    def yardstick(self, ours):
        return {"rate": 1e6 / self.rig.limits("tcp-spinning", size=1024)["tcp_spinning_round_trip_us"]}


class EndToEnd(Row):
    name = "e2e-push"
    what = "publish to push delivered, shm: spinning off at half load beside idle, and idle with default settings"
    checks = (ratio("p99 at half load beside the idle p50", "load_p99", "idle_p50", 10, at_least=False),
              absolute("idle mean, default settings", "idle_mean", 43, "us", at_least=False))
    mode = "push"

    @contextlib.contextmanager
    def ready(self):
        with self.rig.broker(spin_us=0) as self.sleepy, self.rig.broker() as self.usual:
            for client in (self.sleepy, self.usual):
                client.fill("T", self.fill_bytes)
            # more than can be: what comes through then is the most there is
            out = self.sleepy.bench("e2e", "T", "--mode", self.mode, "--rate", "100M", "--duration", self.duration,
                                    keys=("spin.us=0",))
            self.rate = int(out["msgs_per_s"] / 2)
            yield

    def ours(self):
        out = self.sleepy.bench("e2e", "T", "--mode", self.mode, "--rate", str(self.rate), *self.timed(),
                                keys=("spin.us=0",))
        return {"load_p99": out["latency_us"]["p99"], "rate": self.rate}

    def yardstick(self, ours):
        idle = ("--rate", "1000", *self.timed())
        sleepy = self.sleepy.bench("e2e", "T", "--mode", self.mode, *idle, keys=("spin.us=0",))
        usual = self.usual.bench("e2e", "T", "--mode", self.mode, *idle)
        return {"idle_p50": sleepy["latency_us"]["p50"], "idle_mean": usual["latency_us"]["mean"]}


# ---- growth ----------------------------------------------------------------------------------

class GrowthLog(Publish):
    name = "growth-log"
    what = "publish 1 KB after 20 GB of log beside after 1 GB, recycling by retention"
    checks = (ratio("after 20 GB beside after 1 GB", "msgs_per_s", "young", 0.9),)

    def yardstick(self, ours):
        return {"young": self.young}

    @contextlib.contextmanager
    def ready(self):
        self.serial = 0
        with self.rig.broker() as self.client:
            yield

    def ours(self):
        """The young figure is of the same topic, before it grew."""
        self.serial += 1
        topic = f"T{self.serial}"
        measure = ("--no-latency", *self.timed())
        self.client.fill(topic, self.fill_bytes)
        self.young = self.client.bench("pub", topic, *measure)["msgs_per_s"]
        self.client.fill(topic, self.rig.scaled(19 * GIB, 256 * MIB))
        figures = published(self.client.bench("pub", topic, *measure), 1024)
        self.client.rig.run("-b", self.client.broker.address("shm"), "topic", "delete", topic)
        return figures


class GrowthPartitions(Row):
    name = "growth-partitions"
    what = "publish 1 KB to 1,000 partitions beside 1, segments of 2 MiB, retention of 4 of them"
    checks = (ratio("1,000 partitions beside 1", "msgs_per_s", "one", 0.9),)

    @contextlib.contextmanager
    def ready(self):
        segment = 2 * MIB
        partitions = self.rig.scaled(1000, 50)
        with self.rig.broker(log_segment_bytes=segment, retention_bytes=4 * segment) as self.client:
            self.client.fill("many", partitions * 6 * segment, 1024, "-p", str(partitions))
            self.client.fill("one", 64 * MIB)
            yield

    def ours(self):
        return published(self.client.bench("pub", "many", "--no-latency", *self.timed()), 1024)

    def yardstick(self, ours):
        return {"one": self.client.bench("pub", "one", "--no-latency", *self.timed())["msgs_per_s"]}


class GrowthConnections(Publish):
    name = "growth-connections"
    what = "publish 1 KB with 63 other connections waiting at the end of another topic, beside none"
    checks = (ratio("64 connections beside 1", "msgs_per_s", "alone", 0.9),)

    @contextlib.contextmanager
    def ready(self):
        with self.rig.broker() as self.client:
            self.client.fill("T", self.fill_bytes)
            self.client.fill("other", MIB)
            yield

    def ours(self):
        waiting = self.client.broker.popen("bench", "sub", "other", "-o", "end", "--clients", "63", "--duration",
                                           "10m")
        try:
            deadline = time.monotonic() + 20
            while self.connections() < 64:
                if time.monotonic() > deadline or waiting.poll() is not None:
                    raise Impossible("63 other connections did not come up")
                time.sleep(0.05)
            return super().ours()
        finally:
            waiting.kill()
            waiting.communicate()

    def connections(self):
        counters = self.client.broker.counters()
        return next(value for key, value in counters.items() if key.endswith("connections.open"))

    def yardstick(self, ours):
        return {"alone": super().ours()["msgs_per_s"]}


# ---- rolls -----------------------------------------------------------------------------------

def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class RollWatch(threading.Thread):
    """The base offsets of a partition's segments, as they come and before retention removes them."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder = folder
        self.offsets = set()
        self.is_over = threading.Event()

    def look(self):
        for name in os.listdir(self.folder):
            if name.endswith(".log") and name[:-4].isdigit():
                self.offsets.add(int(name[:-4]))

    def run(self):
        while not self.is_over.wait(0.01):
            self.look()

    def end(self):
        self.is_over.set()
        self.join()
        self.look()
        return sorted(self.offsets)


class Rolls(Row):
    name = "rolls"
    what = "publish latency across 50 segment rolls at half load: p99.9 of the stretches with a roll beside the others"
    checks = (ratio("p99.9 with rolls beside without", "with_rolls", "without", 1.5, at_least=False),)
    stretch_ms = 2

    @contextlib.contextmanager
    def ready(self):
        self.segment = self.rig.segment
        with self.rig.broker() as self.client:
            self.client.fill("T", self.fill_bytes)
            out = self.client.bench("pub", "T", "--warmup", self.warmup, "--duration", self.duration)
            self.rate = int(out["msgs_per_s"] / 2)
            self.record_bytes = out["batches"]["mean_bytes"] * out["batches"]["count"] / out["msgs"]
            yield

    def ours(self):
        rolls_wanted = self.rig.scaled(50, 8)
        seconds = (rolls_wanted + 2) * self.segment / self.record_bytes / self.rate
        self.stretch_ms = max(1, round(1e3 * seconds / 2000))
        series = os.path.join(self.client.broker.folder, "series.csv")
        before = self.client.topic("T")["partitions"][0]["end"]
        watch = RollWatch(self.partition_folder())
        watch.start()
        out = self.client.bench("pub", "T", "--rate", str(self.rate), "--duration", f"{seconds * 1e3:.0f}ms",
                                "--series", series, "--series-interval", f"{self.stretch_ms}ms")
        offsets = [offset - before for offset in watch.end() if offset > before]
        self.stretches = read_series(series)
        self.rolls = roll_times(self.stretches, offsets)
        self.latency = out["latency_us"]
        with_rolls, without = split(self.stretches, self.rolls, self.stretch_ms / 1e3)
        if not with_rolls or not without:
            raise Impossible(f"{len(offsets)} rolls in {len(self.stretches)} stretches: nothing to compare")
        return {"with_rolls": median(with_rolls), "without": median(without), "rolls": len(self.rolls),
                "p99": out["latency_us"]["p99"], "p999": out["latency_us"]["p999"], "rate": self.rate}

    def partition_folder(self):
        data = self.client.broker.data
        topic = next(name for name in os.listdir(data) if name.startswith("T-"))
        return os.path.join(data, topic, "0")

    def yardstick(self, ours):
        return {}


def read_series(path):
    """[(seconds, count, p50, p99, p99.9, max)], empty stretches left out."""
    with open(path, encoding="ascii") as text:
        lines = [line.rstrip("\n").split(",") for line in text][1:]
    return [tuple(float(field) for field in fields) for fields in lines if fields[1] != "0"]


def roll_times(stretches, offsets):
    """When the record at each offset (from the beginning of the series) was acknowledged."""
    times, seen, index = [], 0, 0
    for offset in offsets:
        while index < len(stretches) and seen + stretches[index][1] <= offset:
            seen += stretches[index][1]
            index += 1
        if index < len(stretches):
            times.append(stretches[index][0])
    return times


def split(stretches, rolls, stretch_s):
    """p99.9 of the stretches with a roll (or right after one), and of the others; not of the first tenth."""
    marked = {round(roll / stretch_s) + more for roll in rolls for more in (0, 1)}
    begin = stretches[-1][0] / 10 if stretches else 0
    with_rolls, without = [], []
    for stretch in stretches:
        if stretch[0] >= begin:
            (with_rolls if round(stretch[0] / stretch_s) in marked else without).append(stretch[4])
    return with_rolls, without


ROWS = (Publish1K, Publish64, PublishTcp, PublishDisk, Producers8, DrainPush1K, DrainPush64, DrainPull1K, PullOneShm,
        PullOneTcp, SyncShm, SyncShmNoSpin, SyncTcp, EndToEnd, GrowthLog, GrowthPartitions, GrowthConnections, Rolls)
