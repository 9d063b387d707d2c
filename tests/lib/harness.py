# SPDX-License-Identifier: Apache-2.0
"""Real brokers and real commands for the integration tests.

The build folder comes from FLASHQ_BUILD (meson sets it). Every Broker lives in a directory of its own and
is killed when its `with` block ends; a broker that died by itself, or whose sanitizer spoke, fails the
test that used it.
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("FLASHQ_BUILD", "build"))
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FLASHQD = os.path.join(BUILD, "broker", "flashqd")
FLASHQ = os.path.join(BUILD, "tools", "flashq")
QUICK = os.environ.get("FLASHQ_TEST_QUICK") == "1"
SHARDS = os.environ.get("FLASHQ_TEST_SHARDS", "1")
SANITIZED = os.environ.get("FLASHQ_TEST_SANITIZED") == "1"

READY = re.compile(r"flashqd: ready")
SANITIZER = re.compile(r"(AddressSanitizer|UndefinedBehaviorSanitizer|ThreadSanitizer|LeakSanitizer|"
                       r"runtime error:|Assertion .* failed)")


def scaled(full, quick):
    """How much of a long test to run: all of it, or the quick suite's share."""
    return quick if QUICK else full


def seeded(test_name):
    """A random generator whose seed is printed, and taken from FLASHQ_TEST_SEED when set."""
    seed = int(os.environ.get("FLASHQ_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"# {test_name}: FLASHQ_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


def wait_for(what, condition, timeout=10.0, pause=0.01):
    """Polls until condition() is true; returns its value. Fails with `what` otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout} s waiting for {what}")
        time.sleep(pause)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def scratch(medium="tmpfs"):
    """A directory on tmpfs ("tmpfs") or on a disk file system ("disk"), removed afterwards."""
    parent = "/dev/shm" if medium == "tmpfs" else os.environ.get("FLASHQ_TEST_DISK", "/var/tmp")
    folder = tempfile.mkdtemp(prefix="flashq-test-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Broker:
    """One flashqd. `settings` are --set keys; `flush` defaults to pmem (emulated on tmpfs)."""

    def __init__(self, folder, flush="pmem", settings=None, env=None, wrapper=()):
        self.folder = folder
        self.data = os.path.join(folder, "data")
        self.socket = os.path.join(folder, "flashq.sock")
        self.port = free_port()
        self.flush = flush
        self.settings = dict(settings or {})
        self.env = dict(os.environ, **(env or {}))
        self.wrapper = list(wrapper)
        self.log_path = os.path.join(folder, "flashqd.log")
        self.process = None
        self.expect_death = False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        died = self.process is not None and self.process.poll() is not None and not self.expect_death
        self.kill()
        if kind is not None:
            sys.stdout.write("".join(f"# flashqd: {line}\n" for line in self.log().splitlines()[-40:]))
            return
        if died:
            raise AssertionError(f"flashqd died by itself ({self.process.returncode}):\n{self.log()[-4000:]}")
        self.check_log()

    def command(self):
        keys = {"data.dir": self.data, "listen.tcp": f"127.0.0.1:{self.port}",
                "listen.shm": self.socket, "flush": self.flush, "shards": SHARDS}
        keys.update(self.settings)
        arguments = []
        for key, value in keys.items():
            arguments += ["--set", f"{key}={value}"]
        return self.wrapper + [FLASHQD] + arguments

    def start(self, timeout=30.0, wait=True):
        """Starts and waits for the ready line; returns the seconds it took."""
        os.makedirs(self.data, exist_ok=True)
        begin = time.monotonic()
        self.expect_death = False
        with open(self.log_path, "ab") as log:
            offset = log.tell()
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=self.env,
                                            stdin=subprocess.DEVNULL)
        if not wait:
            return 0.0

        def is_ready():
            if self.process.poll() is not None:
                raise AssertionError(f"flashqd exited with {self.process.returncode} before it was "
                                     f"ready:\n{self.log()[-4000:]}")
            with open(self.log_path, "rb") as text:
                text.seek(offset)
                return READY.search(text.read().decode("utf-8", "replace"))
        wait_for("the ready line", is_ready, timeout, pause=0.002)
        return time.monotonic() - begin

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as text:
            return text.read()

    def check_log(self):
        found = SANITIZER.search(self.log())
        if found:
            raise AssertionError(f"flashqd's log has {found.group(0)!r}:\n{self.log()[-6000:]}")

    def kill(self):
        """kill -9, reaped. Fine when it is dead already."""
        if self.process is not None:
            self.expect_death = True
            self.process.kill()
            self.process.wait()

    def stop(self, timeout=20.0):
        """SIGTERM; returns the exit code."""
        self.expect_death = True
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def address(self, transport):
        return f"shm:{self.socket}" if transport == "shm" else f"tcp:127.0.0.1:{self.port}"

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def counters(self, transport="shm"):
        document = json.loads(self.flashq("-O", "json", "cluster", "info", transport=transport))
        return document["counters"]

    def flashq(self, *arguments, transport="shm", input=None, code=0, timeout=120.0):
        """Runs flashq; returns stdout (bytes). Fails unless it exits with `code`."""
        return self.run(*arguments, transport=transport, input=input, code=code, timeout=timeout)[0]

    def run(self, *arguments, transport="shm", input=None, code=0, timeout=120.0):
        """As flashq(), returning (stdout, stderr as text)."""
        return flashq(*arguments, brokers=self.address(transport), input=input, code=code,
                      timeout=timeout, env=self.env)

    def popen(self, *arguments, transport="shm", **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([FLASHQ, "-b", self.address(transport), *arguments], env=self.env,
                                **options)


def flashq(*arguments, brokers=None, input=None, code=0, timeout=120.0, env=None):
    command = [FLASHQ] + (["-b", brokers] if brokers else []) + list(arguments)
    done = subprocess.run(command, input=input if input is not None else b"", capture_output=True,
                          timeout=timeout, env=env)
    stderr = done.stderr.decode("utf-8", "replace")
    if SANITIZER.search(stderr):
        raise AssertionError(f"{' '.join(command)}: {stderr[-6000:]}")
    if code is not None and done.returncode != code:
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}, not {code}\n"
                             f"stderr: {stderr[-3000:]}\nstdout: {done.stdout[-500:]!r}")
    return done.stdout, stderr


def cpu_seconds(pid):
    """User plus system time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as text:
        fields = text.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def json_lines(data):
    return [json.loads(line) for line in data.splitlines()]
