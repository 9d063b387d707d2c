# SPDX-License-Identifier: Apache-2.0
"""Runs the unittest cases of the calling module and prints TAP, one line a test, as it goes."""
import sys
import time
import traceback
import unittest


class _TapResult(unittest.TestResult):
    def __init__(self, total):
        super().__init__()
        self.number = 0
        self.is_told = False
        self.failed_parts = []
        self.started = 0.0
        print(f"1..{total}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.failed_parts = []
        self.is_told = False
        self.started = time.monotonic()

    def _line(self, ok, test, note=""):
        self.number += 1
        self.is_told = True
        name = test.id().split(".", 1)[-1]
        took = time.monotonic() - self.started
        print(f"{'ok' if ok else 'not ok'} {self.number} - {name} ({took:.1f} s){note}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._line(True, test)

    def _failed(self, test, err):
        self._line(False, test)
        self._explain(err)

    @staticmethod
    def _explain(err, what=""):
        for line in (what + "".join(traceback.format_exception(*err))).splitlines():
            print(f"# {line}", flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        # unittest reports parts only: neither addSuccess nor addFailure follows a part that failed
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed_parts.append((subtest, err))

    def stopTest(self, test):
        if self.failed_parts and not self.is_told:
            self._line(False, test)
        if self.failed_parts:
            for part, err in self.failed_parts:
                self._explain(err, f"{part.id()}: ")
        super().stopTest(test)

    def addSkip(self, test, reason):
        # A test that cannot run has not passed.
        super().addSkip(test, reason)
        self._line(False, test, f" # could not run: {reason}")


def main(module="__main__"):
    """Usage: TEST.py [SUBSTRING...]: only tests whose id contains one of them."""
    suite = unittest.TestSuite()
    wanted = sys.argv[1:]

    def collect(tests):
        for test in tests:
            if isinstance(test, unittest.TestSuite):
                collect(test)
            elif not wanted or any(word in test.id() for word in wanted):
                suite.addTest(test)

    collect(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module]))
    result = _TapResult(suite.countTestCases())
    suite.run(result)
    if result.testsRun == 0:
        print("Bail out! no test was run")
        sys.exit(1)
    sys.exit(0 if result.wasSuccessful() else 1)
