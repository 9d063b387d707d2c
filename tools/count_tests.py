#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints `PASSED FAILED` of a meson testlog.junit.xml. A skipped test counts as failed."""
import sys
import xml.etree.ElementTree as tree


def is_good(case):
    return all(case.find(kind) is None for kind in ("failure", "error", "skipped"))


def main():
    suites = list(tree.parse(sys.argv[1]).getroot().iter("testsuite"))
    passed = failed = 0
    for suite in suites:
        cases = list(suite.iter("testcase"))
        good = sum(1 for case in cases if is_good(case))
        passed += good
        failed += len(cases) - good
        # a TAP program that died after its last good line has errors of its own
        declared = int(suite.get("errors", 0)) + int(suite.get("failures", 0)) + int(suite.get("skipped", 0))
        failed += max(0, declared - (len(cases) - good))
    print(passed, failed)
    return 0 if passed + failed > 0 else 1


sys.exit(main())
