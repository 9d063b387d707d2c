# SPDX-License-Identifier: Apache-2.0
"""Brokers and clients pinned to two processors, and what the machine itself does on the same two."""
import contextlib
import json
import os
import platform
import shutil
import subprocess
import tempfile

import harness

MIB = 1 << 20


class Impossible(Exception):
    """A figure could not be had; says why."""


class Rig:
    """How everything in one call of bench.sh is measured."""

    def __init__(self, cores=(0, 1), disk=None, quick=False):
        self.client_core, self.broker_core = cores
        self.disk = disk
        self.quick = quick
        self.segment = self.scaled(64 * MIB, 4 * MIB)

    def scaled(self, full, quick):
        return quick if self.quick else full

    def run(self, *arguments, timeout=600):
        """flashq on the client's processor; returns its JSON document."""
        command = ["taskset", "-c", str(self.client_core), harness.FLASHQ, "-O", "json", *arguments]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=timeout, check=False)
        except subprocess.TimeoutExpired as late:
            raise Impossible(f"{' '.join(arguments)}: not done after {late.timeout:.0f} s") from late
        if done.returncode != 0:
            raise Impossible(f"flashq {' '.join(arguments)}: exit {done.returncode}: "
                             f"{done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def limits(self, *names, **options):
        """bench limits of these alone; not confined: it pins its own threads."""
        duration = self.scaled("1s", "200ms")
        arguments = ["--only", ",".join(names), "--duration", duration, "--cores",
                     f"{self.client_core},{self.broker_core}"]
        for key, value in options.items():
            arguments += [f"--{key.replace('_', '-')}", str(value)]
        out, _ = harness.flashq("-O", "json", "bench", "limits", *arguments, timeout=120)
        return json.loads(out)["limits"]

    @contextlib.contextmanager
    def broker(self, medium="tmpfs", **settings):
        """A broker of one shard on its processor. Settings: keys with _ for the dot."""
        parent = "/dev/shm" if medium == "tmpfs" else self.disk
        if parent is None:
            raise Impossible("no --dir on a disk was given")
        folder = tempfile.mkdtemp(prefix="flashq-bench-", dir=parent)
        if medium != "tmpfs" and file_system(parent) == "tmpfs":
            raise Impossible(f"{parent} is on tmpfs, not on a disk")
        keys = {"retention.bytes": str(8 * self.segment), "log.segment.bytes": str(self.segment)}
        keys.update({key.replace("_", "."): str(value) for key, value in settings.items()})
        broker = PinnedBroker(folder, self.broker_core, "pmem" if medium == "tmpfs" else "sync", keys)
        try:
            with broker:
                yield Client(self, broker)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class PinnedBroker(harness.Broker):
    def __init__(self, folder, core, flush, settings):
        super().__init__(folder, flush=flush, settings=settings, wrapper=["taskset", "-c", str(core)])

    def start(self, timeout=60.0, wait=True):
        return super().start(timeout, wait)


class Client:
    """What is asked of one broker."""

    def __init__(self, rig, broker):
        self.rig = rig
        self.broker = broker

    def bench(self, kind, topic, *arguments, transport="shm", keys=(), timeout=600):
        address = self.broker.address(transport)
        settings = [word for key in keys for word in ("-X", key)]
        return self.rig.run("-b", address, *settings, "bench", kind, topic, *arguments, timeout=timeout)

    def fill(self, topic, data_bytes, size=1024, *arguments):
        """Publishes that much, unmeasured: past it every segment is one that was used before."""
        return self.bench("pub", topic, "-n", str(max(1, data_bytes // size)), "--size", str(size),
                          "--no-latency", *arguments)

    def topic(self, name):
        return self.rig.run("-b", self.broker.address("shm"), "topic", "describe", name)


def file_system(folder):
    """The type of the one that a folder is on."""
    best, kind = "", "unknown"
    folder = os.path.realpath(folder)
    with open("/proc/mounts", encoding="utf-8") as text:
        for line in text:
            mount, found = line.split()[1:3]
            inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, found
    return kind


def machine(rig):
    """A line about where this was measured."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        for line in text:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as text:
        memory_gib = int(text.readline().split()[1]) / (1 << 20)
    load = os.getloadavg()[0]
    return (f"{model}, {os.cpu_count()} processors ({rig.client_core} and {rig.broker_core} used), "
            f"{memory_gib:.0f} GiB, {platform.system()} {platform.release()}, disk {file_system(rig.disk)}, load "
            f"{load:.1f} when it began")
