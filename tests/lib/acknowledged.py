# SPDX-License-Identifier: Apache-2.0
"""A publisher that knows what was acknowledged, and a look at what is stored: what was acknowledged is there, once,
at its offset."""
import json
import subprocess
import threading


class Publisher:
    """Feeds numbered lines to `flashq pub --report` and collects the acknowledgements."""

    def __init__(self, broker, transport, prefix, acked, rate=60000, give_up_ms=3000):
        self.acked = acked          # offset -> line, shared by all cycles
        self.problems = []
        self.lines = []
        self.process = broker.popen("-X", f"delivery.timeout.ms={give_up_ms}", "pub", "t", "--report",
                                    "--rate", str(rate), transport=transport, stdin=subprocess.PIPE)
        self.prefix = prefix
        self.is_ending = False
        self.stderr = b""
        self.threads = [threading.Thread(target=self.feed), threading.Thread(target=self.collect),
                        threading.Thread(target=self.listen)]
        for thread in self.threads:
            thread.start()

    def feed(self):
        number = 0
        try:
            while not self.is_ending:
                block = [b"%s-%09d" % (self.prefix, number + index) for index in range(50)]
                self.lines += block
                number += len(block)
                self.process.stdin.write(b"\n".join(block) + b"\n")
                self.process.stdin.flush()
            self.process.stdin.close()
        except (BrokenPipeError, ValueError, OSError):
            pass

    def collect(self):
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break               # cut off with the process
            report = json.loads(line)
            value = self.lines[report["index"]]
            offset = report["offset"]
            if offset in self.acked and self.acked[offset] != value:
                self.problems.append(f"offset {offset} acknowledged for {self.acked[offset]} and {value}")
            self.acked[offset] = value

    def listen(self):
        self.stderr = self.process.stderr.read()

    def end(self, timeout=60):
        """No more lines; returns the exit code, once everything is acknowledged or given up."""
        self.is_ending = True
        code = self.process.wait(timeout)
        self.finish()
        return code

    def finish(self):
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join(10)


class Stored:
    """What the log was seen to hold, read on from where the last look ended."""

    def __init__(self, test, broker, transport):
        self.test, self.broker, self.transport = test, broker, transport
        self.values = []            # by offset
        self.offsets = {}           # by value

    def read(self, start):
        out = self.broker.flashq("sub", "t", "-o", str(start), "-e", "-f", "%o %v\n",
                                 transport=self.transport)
        values = []
        for line in out.splitlines():
            offset, value = line.split(b" ", 1)
            self.test.assertEqual(int(offset), start + len(values), "a gap")
            values.append(value)
        return values

    def look(self, acked):
        for value in self.read(len(self.values)):
            self.test.assertNotIn(value, self.offsets, f"{value} is stored twice")
            self.offsets[value] = len(self.values)
            self.values.append(value)
        for offset, value in acked.items():
            self.test.assertLess(offset, len(self.values), f"acknowledged {value} is gone")
            self.test.assertEqual(self.values[offset], value, f"at the acknowledged offset {offset}")

    def look_at_all(self, acked):
        self.look(acked)
        self.test.assertEqual(self.read(0), self.values, "what was read once is not what is there")
